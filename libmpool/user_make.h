/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * New member devices: what create (user_create.c) and add (user_admin.c) have
 * in common. First every check on every device, then the first change.
 */
#ifndef MPL_USER_MAKE_H
#define MPL_USER_MAKE_H

#include <limits.h>

#include "user.h"

enum member_kind {
	MEMBER_NEW,		/* a file to be made */
	MEMBER_LEFTOVER,	/* a file of an unfinished create, add or destroy: made anew */
	MEMBER_BLOCK,		/* a block device */
	MEMBER_VDEV,		/* the provider's */
};

struct member {
	char mm_path[PATH_MAX];
	char mm_temp[PATH_MAX + 4]; /* the new file while the old one is in its place; else "" */
	enum member_kind mm_kind;
	int mm_is_made;		/* by this call */
	int mm_is_signed;	/* forced over a foreign signature */
	struct mpl_ident mm_id;	/* what was looked at for one */
	int mm_is_adding;	/* pool.json says that an add of it was cut short */
};

struct creation {
	const char *cr_pool;
	const struct mpool_create_opts *cr_opts;
	struct mpl_cfg *cr_cfg;		/* the new devices */
	const struct mpl_cfg *cr_old;	/* add: the devices that there were */
	struct member *cr_member;
	struct mpl_set cr_set;
	uint8_t cr_uuid[16];
	char cr_name[MPOOL_NAME_MAX + 1];
	int cr_folder;			/* locked from before the first check, or -1 */
	int cr_made_dir;
	int cr_made_cfg;
};

/* device @i of the options: decides what it is and refuses what must not be touched */
int mpl_member_check(struct creation *cr, unsigned i);
/* makes or opens it, into cr_set; what was there before stays */
int mpl_member_make(struct creation *cr, unsigned i);
/*
 * All are made and nothing is left to be refused: what was there before goes, and the
 * new files are in their places, wherever that is, for good.
 */
int mpl_members_take(struct creation *cr);
/* cr_cfg: a file in the pool's own directory moves with it, if that is there already */
void mpl_paths_shorten(const struct creation *cr);
/* closes cr_set and removes what this call has made */
void mpl_creation_undo(struct creation *cr);

#endif
