/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Structures that the core's files share and no others see. Lock order,
 * outermost first: p_admin_lock -> p_root_lock -> l_lock (one mlog) -> ow_lock, md_lock or
 * md_space_lock -> p_lock -> o_lock. No I/O under md_lock, p_lock or o_lock; l_lock serialises
 * one mlog's I/O, ow_lock that of the heartbeat.
 */
#ifndef MP_CORE_CORE_H
#define MP_CORE_CORE_H

#include "guard.h"
#include "omf.h"
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
	u64 p_mem, p_mem_max;		/* bytes of objects and space nodes; p_lock */
	u64 p_ckpt;			/* bytes of a checkpoint of what is durable; p_lock */
	u64 p_ckpt_pend;		/* and of what is being made durable; p_lock */
	struct mp_mdlog p_md;
	struct mp_own p_own;
};

/* sb.c */
/* copies 0 to 2 of a device of @dev_bytes at creation */
u64 mp_sb_copy_addr(u64 dev_bytes, u32 copy);
/* how many copies there are, and where */
u32 mp_sb_copies(const struct mp_sb *sb);
u64 mp_sb_addr(const struct mp_sb *sb, u32 copy);
/* all copies but the first; @bad as mp_sb_read() found them, 0 for a new device */
int mp_sb_write(struct mp_dev *dev, struct mp_sb *sb, u32 bad, void *buf);
/* copy 0, when the device becomes a member */
int mp_sb_write_first(struct mp_dev *dev, struct mp_sb *sb, void *buf);
/* its sector 0, while the other copies carry @sb->sb_mark */
int mp_sb_rewrite_first(struct mp_dev *dev, const struct mp_sb *sb, void *buf);
/* best copy. -EINVAL: not a member */
int mp_sb_read(struct mp_dev *dev, struct mp_sb *sb, struct mp_sb_found *found);
void mp_sb_probe(const struct mp_sb *sb, struct mp_probe *out);
int mp_sb_erase(struct mp_dev *dev, const struct mp_sb *sb, void *buf);

/* own.c */
void mp_own_init(struct mp_own *own);
void mp_own_fini(struct mp_own *own);
/*
 * The pool's, for this opening: up to 1.5 s. -EBUSY: another host is alive, or came at the
 * same time. To be called before anything of the pool counts that was read.
 */
int mp_own_claim(struct mp_own *own, struct mp_dev *home, const struct mp_sb *sb);
/* for a reader, which leaves nothing behind. When to call it: as above */
int mp_own_read(struct mp_own *own, struct mp_dev *home, const struct mp_sb *sb);
/* the same before @dev is overwritten by force: a host that is alive stops for none */
int mp_own_look_at(struct mp_dev *dev);
/* from now on, of a pool that no other host could have opened */
int mp_own_begin(struct mp_own *own, struct mp_dev *home, const struct mp_sb *sb);
/* frees the block, if it is ours beyond doubt; or leaves it as it was found: !ow_has_written */
void mp_own_leave(struct mp_own *own);
/* is it so long since the last heartbeat that counted that nothing may be written? */
bool mp_own_is_late(struct mp_own *own);
/* returns when this host may write, or the pool has failed */
void mp_own_wait(struct mp_pool *pool);

/* otab.c */
/* -ENOSPC when all would take more than @mem_max bytes, or -ENOMEM */
int mp_otab_new(struct mp_pool *pool, u32 nextents, struct mp_obj **out);
void mp_otab_free(struct mp_obj *obj);
struct mp_obj *mp_otab_find(struct mp_pool *pool, u64 id);
void mp_otab_insert(struct mp_pool *pool, struct mp_obj *obj);
void mp_otab_remove(struct mp_pool *pool, struct mp_obj *obj);
void mp_otab_rec(const struct mp_obj *obj, struct mp_rec *r);
u32 mp_otab_rec_size(const struct mp_obj *obj);
struct mp_root *mp_otab_root(struct mp_pool *pool, const char *name);
int mp_otab_root_add(struct mp_pool *pool, struct mp_root *root);
void mp_otab_root_del(struct mp_pool *pool, struct mp_root *root);
/* apply one record during replay; 0 or a negative errno with detail */
int mp_otab_replay(struct mp_pool *pool, const struct mp_rec *r);
void mp_otab_fini(struct mp_pool *pool);
/* encode durable state after the cursor; returns bytes used, 0 at the end */
struct mp_ckpt_cursor {
	u32 cc_phase;
	u64 cc_key;
	char cc_name[MP_NAME_LEN];
};
u32 mp_otab_encode(struct mp_pool *pool, struct mp_ckpt_cursor *c, u8 *buf, u32 max, u32 *nrecs);

/* mdlog.c */
int mp_md_init(struct mp_pool *pool);
void mp_md_fini(struct mp_pool *pool);
/* of a log whose first MP_MD_FIRST bytes of each region have been reserved */
int mp_md_format(struct mp_pool *pool);
/* before the first write to a log that was loaded: space below for what it holds, and a delete */
int mp_md_space_open(struct mp_pool *pool);
/*
 * Space below for all that p_ckpt_pend counts, and a delete: before records that make the state
 * larger are committed (INV-28). -ENOSPC: nothing has changed. No lock held.
 */
int mp_md_space(struct mp_pool *pool);
/* find the newest intact log and replay it; is_repair: make the mirrors equal */
int mp_md_load(struct mp_pool *pool, mp_finding_fn *fn, void *arg);
int mp_md_repair(struct mp_pool *pool);
int mp_md_commit(struct mp_pool *pool, struct mp_txn *txn);
int mp_txn_init(struct mp_txn *txn, u32 max);
void mp_txn_fini(struct mp_txn *txn);
int mp_txn_add(struct mp_txn *txn, const struct mp_rec *r);
/* may @bytes more of records become durable? -ENOSPC. p_lock held */
int mp_md_room(struct mp_pool *pool, u64 bytes);
u64 mp_md_region(const struct mp_mdlog *md, u64 epoch);

/* admin.c */
/*
 * Write the next generation of @next, which says all that members have in
 * common, to all of them and to @extra new ones, the home device first. @next is
 * a copy that is used up; no memory is asked for.
 */
int mp_admin_write(struct mp_pool *pool, struct mp_sb *next, struct mp_pdev **extra, u32 nextra,
		   void *buf);
/*
 * Give copy 0 of every member that carries a mark the pool's name, and take the marks off.
 * @next and @buf are only room.
 */
int mp_admin_names(struct mp_pool *pool, struct mp_sb *next, void *buf);

/* mclass.c */
void mp_class_init(struct mp_pool *pool);
/* p_lock held, or no other thread knows the pool */
void mp_class_add(struct mp_pool *pool, struct mp_pdev *pd);
void mp_class_reserve(struct mp_pool *pool);
/* fills obj's extents; p_lock held, may drop it to wait for a discard in flight */
int mp_class_alloc(struct mp_pool *pool, u32 mclass, u64 blocks, u32 kind, u32 flags,
		   struct mp_extent *ext, u32 *next, u32 *got_class);
void mp_class_free(struct mp_pool *pool, const struct mp_extent *ext, u32 n, u32 kind,
		   bool is_clean);
u64 mp_class_avail(const struct mp_pool *pool, u32 mclass, bool is_spare);

/* mblock.c */
void mp_obj_free_space(struct mp_obj *obj, bool is_clean);
int mp_obj_id_reserve(struct mp_pool *pool, u32 n, u64 *first);
/* the first @first bytes get space below */
int mp_obj_make(struct mp_pool *pool, const struct mp_alloc *req, u64 id, u64 first,
		struct mp_obj **out);
/* space below for bytes [@from, @to) of it; what fails has a detail only if @is_said */
int mp_obj_reserve(const struct mp_obj *obj, u64 from, u64 to, bool is_said);
/* how many bytes from its begin have space below */
u64 mp_obj_reserved(const struct mp_obj *obj);
int mp_alloc_durable(struct mp_pool *pool, const struct mp_alloc *req, u32 n,
		     struct mp_root *root, struct mp_obj **out);

/* batch.c */
int mp_obj_erase(struct mp_obj *obj, u64 gen);
int mp_obj_seal_log(struct mp_obj *obj, u64 length);

/* pool.c, open.c */
/* has it stopped? Then a record that failed may be on media, whatever the device called it */
bool mp_pool_is_failed(struct mp_pool *pool);
/* the detail of the fail-stop, or of no memory, for one that it struck too; returns @err */
int mp_pool_failed(struct mp_pool *pool, int err);
/* takes p_lock */
void mp_pdev_bad_read(struct mp_pool *pool, struct mp_pdev *pd, bool is_reread);
void mp_pdev_repaired(struct mp_pool *pool, struct mp_pdev *pd, u32 copies);
/* what an open pool writes to its members: each time only while it may (INV-25) */
int mp_dev_write(struct mp_dev *dev, u64 off, const void *buf, size_t len);
int mp_dev_flush(struct mp_pool *pool, struct mp_pdev *pd);
/* does what lies there take space of a file system, only when it is reserved or written? */
bool mp_dev_is_sparse(const struct mp_dev *dev);
/* space for later writes, where the device knows of such; 0 or a negative errno with detail */
int mp_dev_reserve(struct mp_dev *dev, u64 off, u64 len);
int mp_dev_zero(struct mp_pool *pool, struct mp_pdev *pd, u64 off, u64 len);
struct mp_pool *mp_pool_new(void);
void mp_pool_free(struct mp_pool *pool);
struct mp_pdev *mp_pdev_new(struct mp_dev *dev, const struct mp_sb *sb);
void mp_pdev_free(struct mp_pdev *pd);
int mp_pool_add(struct mp_pool *pool, struct mp_dev *dev, const struct mp_sb *sb);
/* the space that objects may use, all free */
int mp_pdev_space(struct mp_pdev *pd);
/* turn superblock @sb into that of member @i of its table, which did not grow */
void mp_sb_member(struct mp_sb *sb, u32 i);
/* entry @i of its table: a new member */
int mp_sb_entry(struct mp_sb *sb, u32 i, const struct mp_dev *dev, u32 mclass);
/* space for the superblocks, and the begin of the metadata log where there is one */
int mp_sb_reserve(struct mp_dev *dev, const struct mp_sb *sb);
/* may @label be one, @dev a member? NULL is no label */
int mp_label_check(const char *label);
int mp_dev_check(const struct mp_dev *dev);
int mp_pool_load(struct mp_dev **dev, u32 ndevs, u32 flags, mp_finding_fn *fn, void *arg,
		 struct mp_pool **out);

#endif
