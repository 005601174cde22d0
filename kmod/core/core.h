/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A pool in memory: the structures that the core's files share and no others see. Lock order,
 * outermost first: p_admin_lock -> p_root_lock -> l_lock (one mlog) -> ow_lock -> md_lock or
 * md_space_lock -> p_lock -> o_lock (one object) -> p_fault_lock. No I/O under md_lock, p_lock or
 * o_lock; l_lock serialises one mlog's I/O, ow_lock that of the heartbeat. o_lock and
 * p_fault_lock are taken in interrupts.
 */
#ifndef MP_CORE_CORE_H
#define MP_CORE_CORE_H

#include "codec.h"
#include "guard.h"
#include "obj.h"
#include "pool.h"
#include "smap.h"
#include "tree.h"

#define MP_ROOTS_MAX	1024u
#define MP_ID_BATCH	(1ull << 20)	/* ids reserved ahead of use */
#define MP_ID_LAST	(1ull << 62)
#define MP_SPARE_MAX	90u	/* percent */
#define MP_SB_AREA	(64u << 10)	/* start of a device kept for copy 0 */
#define MP_LOG_FIRST	(512u << 10)	/* and of each log of a new container */
#define MP_MD_FIRST	(640u << 10)	/* bytes of each log region in a new file */
/* seven eighths of what an open may use (INV-13): of itself, and for media of @bytes */
#define MP_MEM_BASE	(56ull << 20)
#define MP_MEM_OF(bytes)	((bytes) / 8192 * 7)

/* ---- what reading a superblock found ---- */
struct mp_sb_found {
	u32 f_bad;		/* bit per copy that is not equal to the best */
	u32 f_mark;		/* mp_sb_mark() of copy 0; 0: it is not intact */
	char f_name[MP_NAME_LEN];	/* that copy 0 shows when it is intact */
	u32 f_csums;		/* copies that were read and are not intact */
	int f_io;		/* error of a copy that could not be read: it may be the newest */
};

/* ---- one member device of an open pool ---- */
struct mp_pdev {
	struct mp_dev *pd_dev;
	u8 pd_uuid[MP_UUID_LEN];
	u32 pd_slot;
	u32 pd_mclass;
	u32 pd_flags;		/* MP_DEVF_* */
	u64 pd_bytes;		/* acquire and release: read without a lock */
	u64 pd_data_off;	/* bytes */
	struct mp_sb *pd_sb;	/* what it should say; changed under p_admin_lock and p_lock */
	struct mp_sb_found pd_found;	/* at open */
	struct mp_health pd_health;	/* p_lock to change; read without a lock */
	struct mp_smap pd_smap;	/* guarded by p_lock */
};

/* ---- one object ---- */
#define MP_O_BUSY	0x1u	/* in a batch in flight */
#define MP_O_LOG_OPEN	0x2u	/* an mp_mlog uses it */
#define MP_O_DOUBT	0x4u	/* a failed record may name its space: never reuse it */

struct mp_obj {
	struct mp_node o_node;	/* key: id; in p_objs while durable; p_lock */
	struct mp_pool *o_pool;
	u64 o_tag, o_capacity, o_gen;
	u64 o_length;		/* final length; o_lock to change */
	u32 o_kind, o_mclass;
	u32 o_flags;		/* MP_OBJF_*; changed under p_lock and o_lock */
	u32 o_crc;
	u32 o_refs;		/* p_lock */
	u32 o_state;		/* MP_O_*; p_lock, MP_O_BUSY changes under o_lock too */
	spinlock_t o_lock;
	u64 o_wpos;		/* next byte to write; o_lock */
	u64 o_fail_off;		/* lowest offset of a failed write; o_lock */
	u32 o_inflight;		/* writes begun and not ended; o_lock */
	bool o_is_hurt;		/* a device failed one of them; o_lock */
	bool o_is_placed;	/* o_wpos is known; o_lock */
	bool o_is_listed;	/* in p_objs: durable and not deleted; p_lock */
	u32 o_nextents;
	struct mp_extent o_extent[];
};

struct mp_root {
	struct list_head r_list;	/* in p_roots by name; p_lock */
	char r_name[MP_NAME_LEN];
	u64 r_id[2];
};

/* ---- metadata log ---- */
struct mp_txn {
	struct list_head t_list;	/* md_lock */
	u8 *t_buf;			/* encoded records */
	u32 t_len, t_max, t_nrecs;
	/* called by the group's leader, in log order, after the record is durable */
	void (*t_apply)(struct mp_txn *txn);
	void *t_arg;
	int t_rc;
	bool t_is_done;
};

struct mp_mdlog {
	struct mp_pdev *md_dev[2];	/* mirrors */
	u32 md_ndevs;
	u64 md_off, md_bytes;		/* region 0, and the size of one region */
	struct mutex md_space_lock;	/* outside p_lock; held while space is reserved */
	u64 md_space;	/* below each region of each mirror; release, under it */
	u32 md_frame_max;		/* bytes */
	struct mutex md_lock;
	struct os_cond md_cond;
	struct list_head md_queue;	/* txns waiting; md_lock */
	bool md_is_busy;		/* a leader is at work; md_lock */
	/* owned by the leader */
	u64 md_epoch, md_seq, md_tail;	/* tail: bytes from the region's start */
	u32 md_prev;
	u64 md_id_next;			/* mark of the newest frame */
	u64 md_id_hwm;			/* durable; read under md_lock by others */
	u8 *md_buf;			/* md_frame_max bytes */
	void *md_load;			/* what mdload.c found, for the repair */
};

struct mp_cls {
	u32 c_ndevs, c_next;		/* c_next: round robin; p_lock */
	u32 c_slot[MP_CLASS_DEVS];
	u64 c_total, c_reserve;		/* blocks */
};

/* ---- heartbeat ---- */
enum mp_own_state {
	MP_OWN_OFF,	/* the pool is not shared between hosts */
	MP_OWN_ALONE,	/* ours */
	MP_OWN_DOUBT,	/* a heartbeat came too late: another host may be here */
	MP_OWN_WAIT,	/* claimed anew, to be looked at again */
	MP_OWN_READS,	/* opened to read: it looks whether another comes */
	MP_OWN_LOST,
};

struct mp_own {
	struct mutex ow_lock;	/* held over the I/O and the waits of a step */
	struct mp_dev *ow_dev;	/* of slot 0 */
	u8 ow_uuid[MP_UUID_LEN];
	u8 *ow_buf, *ow_was;	/* MP_BLOCK bytes each: what is read and written; at the claim */
	u32 ow_state;		/* enum mp_own_state; changed with release under ow_lock */
	u64 ow_good;		/* ms: when the last heartbeat that counted began; as ow_state */
	bool ow_has_written;	/* the pool is another since the claim; set by its open */
	u64 ow_claimed;		/* ms: when the claim of MP_OWN_WAIT began; ow_lock */
	u64 ow_limit;		/* ms: from when on an error is the end; ow_lock */
	u64 ow_next;		/* ms: when the next step is due; ow_lock */
	struct mp_beat ow_beat;	/* what we wrote last; ow_lock */
};

struct mp_pool {
	struct mutex p_admin_lock;	/* one administration call at a time; outermost */
	struct mutex p_root_lock;	/* creation and removal of roots; outside md_lock */
	struct mutex p_lock;
	struct os_cond p_cond;		/* a discard ended, or a busy object is idle again */
	bool p_is_rdonly;		/* or became so: mp_pool_begin() failed */
	bool p_is_open;			/* mp_pool_open() has succeeded; not changed later */
	bool p_is_looking;		/* MP_OPEN_LOOK, before mp_pool_begin(): one thread */
	spinlock_t p_fault_lock;	/* innermost */
	u32 p_fault_id;			/* p_fault_lock, as the next two; 0 = none */
	int p_fault_err;
	char p_fault[256];
	void (*p_fault_fn)(void *arg);	/* NULL: none, or it has run */
	void *p_fault_arg;
	u8 p_uuid[MP_UUID_LEN];		/* never changes */
	struct mp_sb *p_sb;		/* of slot 0; as pd_sb */
	u64 p_gen;			/* that frames carry */
	u64 p_sb_gen;			/* highest of the superblocks; as pd_sb */
	u32 p_ndevs;			/* acquire and release: read without a lock */
	struct mp_pdev *p_dev[MP_SLOTS];
	struct mp_cls p_cls[MP_CLASSES];
	struct mp_tree p_objs;		/* durable objects by id; p_lock */
	u64 p_nobjs;
	struct list_head p_roots;
	u32 p_nroots;
	u32 p_nhandles;			/* references held by callers; p_lock */
	u64 p_next_id;			/* p_lock */
	u64 p_trim_at;			/* ms: when mp_pool_trim() looks again; p_lock */
	u64 p_hurt_until;		/* ms, 0: no space is kept out (INV-24); p_lock */
	u64 p_mem, p_mem_max;		/* bytes of objects and space nodes; p_lock */
	u64 p_ckpt;			/* bytes of a checkpoint of what is durable; p_lock */
	u64 p_ckpt_pend;		/* and of what is being made durable; p_lock */
	struct mp_mdlog p_md;
	struct mp_own p_own;
};

/* Before it is open no other thread knows it. */
static inline void mp_assert_locked(struct mp_pool *pool)
{
	if (pool->p_is_open)
		os_assert_held(&pool->p_lock);
}

static inline void mp_assert_admin(struct mp_pool *pool)
{
	if (pool->p_is_open)
		os_assert_held(&pool->p_admin_lock);
}

/* No I/O, and nothing that sleeps for it, under these. */
static inline void mp_assert_no_lock(struct mp_pool *pool)
{
	os_assert_free(&pool->p_lock);
	os_assert_free(&pool->p_md.md_lock);
}

#endif
