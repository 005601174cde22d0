/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The core's interface: what libmpool's embedded backend and the kernel glue
 * call. obj.h has the objects of a pool. Semantics follow mpool.h; where both have a call, this is its body.
 *
 * Devices belong to the caller: opened before mp_pool_open() (exclusively),
 * closed after mp_pool_close(); the core never calls d_ops->close. All calls
 * return 0 or a negative errno with a detail through os_verror(), leave
 * out-parameters untouched on failure, and may sleep, unless said otherwise.
 * Any thread may call at any time on a live handle. What goes over media for long ends with
 * -EINTR, without detail, when its caller is being killed (os_fatal_signal()): nothing has been
 * changed then. Lock order: core.h.
 */
#ifndef MP_CORE_POOL_H
#define MP_CORE_POOL_H

#include "dev.h"
#include "err.h"

struct mp_pool;

#define MP_POOL_NAME	32u	/* bytes with the NUL; same as MP_NAME_LEN of omf.h */
#define MP_POOL_LABEL	64u
#define MP_POOL_CLASSES	2u
#define MP_MIN_DEV	(2u << 20)	/* smallest member device, bytes */

enum mp_class { MP_CAPACITY = 0, MP_STAGING = 1 };

/* ---- pools ---- */

struct mp_create {
	const char *mc_name;
	const char *mc_label;		/* may be NULL */
	u8 mc_uuid[16];			/* all zero: made here; else one these devices never had */
	u32 mc_uid, mc_gid, mc_mode;
	u32 mc_spare_pct[MP_POOL_CLASSES];
	u32 mc_ndevs;
	struct mp_dev **mc_dev;		/* at least one of MP_CAPACITY */
	const u32 *mc_mclass;		/* class of each */
	u64 mc_md_bytes;		/* size of a metadata log region; 0: chosen */
	u32 mc_flags;
};

#define MP_CREATE_FORCE	0x1u	/* overwrite members of other (active) pools */
#define MP_CREATE_PLAN	0x2u	/* all checks, and space for it; nothing written */
#define MP_CREATE_MULTIHOST 0x4u /* hosts that share the devices are kept apart: own.c */

/* 0 when @name may be a pool's name */
int mp_name_check(const char *name);
/*
 * Make a pool. A crash anywhere leaves a pool or none; durable on return.
 * -EINVAL, -EEXIST (member of an active pool), -EIO, -ENOMEM, -ENOSPC.
 */
int mp_pool_create(const struct mp_create *c);

#define MP_OPEN_RDONLY	0x1u	/* nothing is written */
#define MP_OPEN_LOOK	0x2u	/* nothing is written before mp_pool_begin() */

/*
 * Open a pool from all of its members in any order. Nothing is written before
 * the whole set has been validated. Errors as mpool_open().
 */
int mp_pool_open(struct mp_dev **dev, u32 ndevs, u32 flags, struct mp_pool **out);
/*
 * Ends the look of MP_OPEN_LOOK: what mp_pool_open() writes otherwise is written now. No other
 * use of @pool meanwhile. After an error nothing more is written. Without that flag: 0.
 */
int mp_pool_begin(struct mp_pool *pool);
/* -EBUSY while an object or mlog is open (the pool stays open) */
int mp_pool_close(struct mp_pool *pool);
/*
 * Destroy from the members that are left (completes an interrupted destroy,
 * removes a half-created pool). Devices that are not members are not touched.
 */
int mp_pool_destroy(struct mp_dev **dev, u32 ndevs);

struct mp_probe {
	u8 pb_uuid[16];
	u8 pb_dev_uuid[16];
	char pb_name[MP_POOL_NAME];
	u32 pb_state;		/* 1 half-created, 2 active, 3 destroyed */
	u32 pb_slot, pb_ndevs, pb_mclass;
	u32 pb_format;
	u64 pb_gen;
	u64 pb_bytes;
	bool pb_is_damaged;	/* its first copy is: mp_recover() makes that anew */
};

/* what a device says it is; reads only. -EINVAL: not a member */
int mp_probe(struct mp_dev *dev, struct mp_probe *out);
/*
 * The first superblock, lost or damaged, anew from the copies, which *out tells. With @is_plan
 * nothing is written. -EINVAL: there is none.
 */
int mp_recover(struct mp_dev *dev, bool is_plan, struct mp_probe *out);
/* Was it to be the member of a pool whose creation ended before it wrote the first block? */
bool mp_is_unborn(struct mp_dev *dev);

struct mp_class_info {
	u32 ci_devs;
	u64 ci_total, ci_used, ci_free, ci_reserve, ci_discarding;	/* bytes */
};

struct mp_pool_info {
	u8 pi_uuid[16];
	char pi_name[MP_POOL_NAME];
	char pi_label[MP_POOL_LABEL];
	u32 pi_uid, pi_gid, pi_mode;
	u32 pi_spare_pct[MP_POOL_CLASSES];
	u32 pi_format;
	u32 pi_ndevs;
	u64 pi_gen;
	u64 pi_objects;		/* durable ones */
	bool pi_is_rdonly;	/* opened so, or fail-stopped */
	bool pi_is_multihost;	/* a host that writes has a heartbeat */
	int pi_fault_id;	/* err.h number of the cause, 0 = none */
	char pi_fault[256];	/* cause of the fail-stop, or "" */
	struct mp_class_info pi_cls[MP_POOL_CLASSES];
};

void mp_pool_info(struct mp_pool *pool, struct mp_pool_info *out);

/* what a member was caught at since the pool was opened */
struct mp_health {
	u64 he_csums;		/* reads whose bytes failed a checksum */
	u64 he_rereads;		/* of these, reads whose second reading passed it */
	u64 he_repairs;		/* copies of metadata made anew from a good one */
};

struct mp_member {
	u8 mb_uuid[16];
	u32 mb_mclass, mb_slot;
	u64 mb_bytes;
	struct mp_dev *mb_dev;
	bool mb_has_md;		/* carries a copy of the metadata log */
	struct mp_health mb_health;
};

/* -ENOENT past the last slot; never sleeps */
int mp_pool_member(struct mp_pool *pool, u32 slot, struct mp_member *out);

/*
 * 0, or -EROFS with the detail of the first failure. Sleeps only for the heartbeat of a pool
 * that hosts share
 */
int mp_pool_writable(struct mp_pool *pool);
/* the same also before mp_pool_begin(): a flush changes nothing */
int mp_pool_flushable(struct mp_pool *pool);
/*
 * 0, or -EIO: another host has opened the pool since (or may have), and what is known here of
 * objects is old. Before each read of an object's data. Sleeps as mp_pool_writable().
 */
int mp_pool_readable(struct mp_pool *pool);
/*
 * Fail-stop: read-only for good, with this cause. The first call wins. The
 * flush owner calls it before any waiter learns of a failed flush. Returns @err.
 */
int mp_pool_fail(struct mp_pool *pool, enum mp_err_id id, int err, const char *fmt, ...)
	__printf(4, 5);

/* flush the devices of the classes in @mask (1 << class); failure fail-stops */
int mp_pool_flush(struct mp_pool *pool, u32 mask);

/*
 * Discard at most one queued extent (at most @max_bytes of it). Returns 1 when
 * there is more to do, 0 when the queue is empty. For a background thread.
 */
int mp_pool_discard_step(struct mp_pool *pool, u64 max_bytes);
/*
 * Space that logs have freed is kept for the next ones without a discard. What lies there beyond
 * what logs took in the last second is queued for discards. Returns the milliseconds until the
 * next call is due, 0: not before space is freed again. For the thread that discards, when nothing
 * is queued: so a pool that rests has given all back after two seconds.
 */
u32 mp_pool_trim(struct mp_pool *pool);
/* of what the file system below has allocated at @off, what is free and clean is queued */
void mp_pool_found(struct mp_pool *pool, u32 slot, u64 off, u64 len);
/* before a close: discards all that is free and not discarded, for about @ms at most */
void mp_pool_give_back(struct mp_pool *pool, u64 max_bytes, u32 ms);

/* would mp_pool_writable() or mp_pool_readable() sleep now? */
bool mp_pool_would_wait(struct mp_pool *pool);
/* does it keep or watch a heartbeat, from its open or since a mp_pool_set()? */
bool mp_pool_has_beat(struct mp_pool *pool);
/*
 * One step of the heartbeat, if it is due; returns the milliseconds to the next. 0: the pool
 * has none, or not any more. For a thread or a work of the pool's: without, a writer makes
 * up for it, and a pool that is idle can be taken over.
 */
u32 mp_pool_beat(struct mp_pool *pool);

/* ---- administration ---- */

#define MP_SET_OWNER	0x1u
#define MP_SET_LABEL	0x2u
#define MP_SET_SPARE	0x4u
#define MP_SET_MULTIHOST 0x8u	/* begin a heartbeat */
#define MP_SET_ONE_HOST	0x10u	/* end it */

struct mp_set {
	u32 ms_mask;		/* MP_SET_*: which fields count */
	u32 ms_uid, ms_gid, ms_mode;
	u32 ms_spare_pct[MP_POOL_CLASSES];
	const char *ms_label;
};

/* change properties, or the name; durable on return, a crash shows the old or the new */
int mp_pool_set(struct mp_pool *pool, const struct mp_set *set);
int mp_pool_rename(struct mp_pool *pool, const char *name);
/*
 * Add devices, opened by the caller as for mp_pool_open(). All or none, durable
 * on return; then they are members like the others. @flags: MP_CREATE_*
 */
int mp_pool_add_devs(struct mp_pool *pool, struct mp_dev **dev, const u32 *mclass, u32 n,
		     u32 flags);
/* use every member whose d_size, refreshed by the caller, is larger than recorded */
int mp_pool_grow(struct mp_pool *pool);
/*
 * @fn runs once, when the pool turns read-only, or here when it has already: in
 * any context, without locks. NULL: no more; one that has begun may still run.
 */
void mp_pool_on_fault(struct mp_pool *pool, void (*fn)(void *arg), void *arg);

/* ---- inspection; devices are only read ---- */

struct mp_finding {
	int fi_id;		/* err.h number */
	bool fi_is_damage;
	const char *fi_text;
};

typedef void mp_finding_fn(void *arg, const struct mp_finding *f);
typedef void mp_print_fn(void *arg, const char *line);	/* one line with newline */

#define MP_VERIFY_DATA	0x1u	/* read contents that carry a CRC */

int mp_verify(struct mp_dev **dev, u32 ndevs, u32 flags, mp_finding_fn *fn, void *arg,
	      u64 *damage);
int mp_dump(struct mp_dev **dev, u32 ndevs, mp_print_fn *fn, void *arg);

struct mp_map_extent {
	u32 me_slot;
	u32 me_kind;		/* enum mp_kind; 0 = pool metadata */
	u64 me_off, me_len;	/* bytes on the device */
	u64 me_id;
	const char *me_what;
};

typedef void mp_map_fn(void *arg, const struct mp_map_extent *e);
/* every live extent in device order */
int mp_map(struct mp_dev **dev, u32 ndevs, mp_map_fn *fn, void *arg);

/* ---- text ---- */

void mp_uuid_text(const u8 *uuid, char out[37]);
const char *mp_kind_text(u32 kind);
const char *mp_class_text(u32 mclass);
const char *mp_state_text(u32 sb_state);

#endif
