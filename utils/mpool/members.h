/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Members of pools on block devices (or files that were named), grouped by
 * pool, and the list of pools that this machine trusts.
 */
#ifndef UTILS_MEMBERS_H
#define UTILS_MEMBERS_H

#include <stdbool.h>
#include <sys/types.h>

#include "mpool.h"

/* struct member_dev - a device or file that says that it belongs to a pool */
struct member_dev {
	char path[256];
	dev_t rdev;              /* of a block device, else 0 */
	dev_t dev;               /* with ino: the file or node itself */
	ino_t ino;
	bool is_removable;
	struct mpool_probe probe;
};

enum group_state {
	GROUP_COMPLETE = 0, /* every member is there */
	GROUP_MISSING,      /* some are not */
	GROUP_DUPLICATE,    /* one member is there twice: a copied disk, a second path */
	GROUP_CREATING,     /* creation was cut: it will be taken back */
	GROUP_DESTROYED,
};

/* struct pgroup - what was found of one pool */
struct pgroup {
	uint8_t uuid[16];
	char name[MPOOL_NAME_MAX + 1];
	enum group_state state;
	unsigned found, wanted;  /* members */
	uint64_t generation;
	bool is_active, is_trusted, is_removable;
	unsigned *member;        /* @found indexes into scan.dev, by class and slot */
};

struct scan {
	struct member_dev *dev;
	unsigned ndevs;
	struct pgroup *group;
	unsigned ngroups;
};

const char *group_state_name(const struct pgroup *g);

/*
 * Look at @paths, or with @n == 0 at every block device of this machine that may
 * be read without harm. Devices that are no members are passed over. Returns 0 or
 * -errno.
 */
int scan_run(struct scan *s, const char *const *paths, unsigned n);
/* one more device or file: 0, or the negative errno of mpool_probe() */
int scan_add(struct scan *s, const char *path);
/* after the last scan_add(): groups, states, trust */
int scan_group(struct scan *s);
void scan_free(struct scan *s);

/* The pool of that name or UUID; *count gets how many there are. */
struct pgroup *scan_find(struct scan *s, const char *word, unsigned *count);

/* The active pool of that UUID in @a, or NULL. */
const struct mpool_active *active_find(const uint8_t uuid[16], struct mpool_active *a);

/* Paths of a pool's members, to be freed; NULL without memory. */
const char **group_paths(const struct scan *s, const struct pgroup *g);

/*
 * The trust list: one file per pool in /etc/mpool/pools.d, named by the UUID.
 * udev activates these pools only, and only their owner and mode are honoured.
 */
bool trust_has(const uint8_t uuid[16]);
int trust_add(const uint8_t uuid[16], const char *name); /* 0 or -errno */
int trust_del(const uint8_t uuid[16]);
const char *trust_dir(void);

/*
 * Give a complete pool to the module; prints the result. @is_rdonly as --read-only.
 * Returns an exit code. A pool that is active already is a success.
 */
int group_activate(struct ui *ui, const struct scan *s, const struct pgroup *g, bool is_rdonly,
		   bool is_silent);

/* struct target - the pool that a verb was given, by path or by name */
struct target {
	const char *word;         /* as it was typed, for messages */
	char path[POOL_PATH_MAX]; /* for the library */
	bool is_active;           /* the kernel module has it */
	bool is_temp;             /* @path is a folder made for this command */
	uint8_t uuid[16];         /* when is_temp */
};

/*
 * What @word means: a path when it has a '/', else an active pool, else (root)
 * an inactive pool whose members are all found; these are then used in this
 * process. Returns an exit code after a message; target_close() in any case.
 */
int target_open(struct ui *ui, const char *word, struct target *t);
void target_close(struct target *t);
/* by its name in the kernel, unprivileged */
bool pool_is_active(const char *name);

/* scan --recover for the devices of the command line; returns an exit code. */
int scan_recover(struct ui *ui);

/* After a verb that changed pool @path: note the command in the pool. Never fails. */
void history_add(struct ui *ui, const char *path);

#endif
