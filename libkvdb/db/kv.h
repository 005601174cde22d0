/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Types and calls shared by the files of libkvdb. One section per noun; the
 * file that owns it is named. Lock order is written in DESIGN.md.
 */
#ifndef KV_KV_H
#define KV_KV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#include "base/guard.h"
#include "base/hash.h"
#include "db/hooks.h"
#include "seg/kv_omf.h"
#include "tree/point.h"
#include "background/warm.h"

#define KV_LIKELY(x)	__builtin_expect(!!(x), 1)
#define KV_UNLIKELY(x)	__builtin_expect(!!(x), 0)
#define KV_CACHELINE	64

/* Between two looks at a lock that another thread holds. */
static inline void kv_cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

/*
 * A full fence beside an atomic read-modify-write. C11 lets loads that follow one be done before
 * its store, and stores that precede it be seen after that, by those who look at other words; other
 * processors do so. On x86 it is a locked instruction, which nothing passes.
 */
static inline void kv_fence(void)
{
#ifndef __x86_64__
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

#define KV_LOGS_MAX	64u
#define KV_INLINE_MAX	128u	/* values up to this live with their key, bytes */

struct kv_thread;
struct kv_mt;
struct kv_run;
struct kv_seg;
struct kv_log;
struct kv_tree;
struct kv_pagepool;
struct kv_mdc;
struct kv_txns;
struct kv_forest;

/* ---- thread.c: per-thread state and epoch-based reclamation ---------------- */

/*
 * A thread reads shared structures only between kv_enter() and kv_exit()
 * (they nest). What was unlinked is freed by kv_retire() once every thread
 * that might still see it has left. A sleeping thread must not be inside,
 * except for bounded I/O on an object that it pins.
 */
struct kv_thread *kv_enter(void);
void kv_exit(struct kv_thread *t);

/* A part of what is to be retired: nobody needs memory to get rid of some. */
struct kv_limbo {
	void (*lb_free)(void *arg);
	void *lb_arg;
	uint64_t lb_epoch;
	struct kv_limbo *lb_next;
};
/* Calls @fn with @arg, which frees @lb too, when nobody can hold @arg any more. */
void kv_retire(struct kv_limbo *lb, void (*fn)(void *arg), void *arg);
/* Wait until everything retired so far was freed (close, tests). */
void kv_retire_barrier(void);
/* Frees what is due, if anything; inside kv_enter() nothing is done. */
void kv_reclaim(void);

/* ---- trouble.c: what background work failed at ------------------------------------- */

/* Zeroed: it works. Part of what fails, with its scope; the lists are trouble.c's. */
struct kv_trouble {
	_Atomic(int) tb_err;		/* the last failure since it worked, or 0 */
	_Atomic(uint64_t) tb_again_ns;	/* it is left alone until then */
	uint64_t tb_since_ns;		/* d_trouble_lock, as all that follows */
	uint32_t tb_n;			/* failures in a row */
	char *tb_text;
	struct kv_trouble *tb_next, **tb_at;
};

/* It failed with @err, -EIO or -EUCLEAN: what (@fmt), and why (the detail of the error). */
void kv_trouble_set(struct kvdb *db, struct kv_trouble *tb, int err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* It works, or there is no such thing any more. */
void kv_trouble_end(struct kvdb *db, struct kv_trouble *tb);
/* It failed, and is not to be tried yet. */
bool kv_trouble_holds(struct kvdb *db, const struct kv_trouble *tb);
/* The last failure, with its detail, as this thread's error; 0: it works. */
int kv_trouble_error(struct kvdb *db, const struct kv_trouble *tb);
/* Since it failed first; 0: it works. */
uint64_t kv_trouble_age_ns(struct kvdb *db, struct kv_trouble *tb);
/* How many there are; age and text (NULL: not wanted) of the oldest. */
uint64_t kv_troubles(struct kvdb *db, uint64_t *age_ns, char *text, size_t size);

/* ---- budget.c ------------------------------------------------------------ */

struct kv_budget {
	uint64_t b_cache_bytes;
	/* log since the oldest unflushed record; kvdb_set() changes it */
	_Atomic(uint64_t) b_log_bytes;
	uint64_t b_log_least;	/* of that */
	uint64_t b_mt_bytes;	/* all memtables of all KVSs, frozen included */
	uint64_t b_slab_bytes;	/* window and page pool */
	uint32_t b_share_bytes;	/* a segment of several large values, */
	uint32_t b_shares;	/* as many at a time, of the first logs */
	uint64_t b_own_bytes;	/* images of large records, beside the slabs */
	uint64_t b_point_bytes;	/* point index: a power of two, or 0: none */
	uint64_t b_scan_bytes;	/* that cursors read ahead into */
	uint64_t b_index_bytes;	/* fences, filters (watched, not enforced) */
	uint32_t b_seg_bytes;	/* log segment and slab size, multiple of 64 KiB */
	uint32_t b_move_bytes;	/* segment of moved values on capacity, at least that */
	uint32_t b_frame_max;	/* a frame is closed when it reaches this */
	uint32_t b_ahead;	/* segments that a busy log has ready, at most */
	uint32_t b_logs;
	uint32_t b_threads;
	uint32_t b_kblock_bytes; /* key block objects, at most */
	uint64_t b_mdc_bytes;	/* each log of the metadata container, at create */
	bool b_mdc_capacity;	/* on capacity, not where the logs are */
	/* a leaf with more splits when all of it is merged; tests make it small */
	_Atomic(uint64_t) b_leaf_keys;
	uint64_t b_leaf_bytes;	/* the same of what its runs take */
	uint64_t b_reserve_bytes; /* kept free in all classes together (R19) */
};

struct kv_limits {		/* what machine, control groups and pool offer */
	uint64_t l_ram_bytes;
	uint32_t l_cores;
	uint64_t l_class_bytes;	/* of the class that the logs live in */
	uint64_t l_capacity_bytes;
	uint64_t l_all_bytes;
};
/* -EINVAL with a detail when an option is out of range */
int kv_budget(const struct kvdb_opts *o, const struct kv_limits *l, struct kv_budget *b);
int kv_limits_read(struct mpool *mp, struct kv_limits *l);

/* ---- err.c ----------------------------------------------------------------- */

/* Records the detail of this thread's error and returns @err. */
int kv_error(int err, const char *id, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Makes another thread's detail of @err ours; returns @err. */
int kv_error_take(const struct mpool_error *e, int err);
/* Copies mpool_error_detail() into ours and returns @err. */
int kv_error_mpool(int err);
/* Says that there is no memory for @what, if @err is that and nobody has said it; returns @err. */
int kv_error_memory(int err, const char *what);
/* -ENOENT of a key, for little. */
int kv_error_absent(void);
/* Of a write that was not done: -EIO says that it was, and is -EROFS here. */
int kv_error_unwritten(int err);
/* The same of one that kv_stall_wait() refused with @err; @what it is of. */
int kv_error_room(struct kvdb *db, int err, const char *what);
/* -EIO of a change of the container that may be on media: behind kv_fail(). */
int kv_error_unknown(struct kvdb *db);
/*
 * 0, or -ENOENT: the handle of a store that was dropped. Until its caller leaves kv_enter() a
 * store that was not keeps its memtables: a drop waits for that (D1).
 */
int kv_error_dropped(const struct kvdb_kvs *kvs);
/* @err of work that others did: says for this thread what stopped the database, if that was it. */
int kv_error_stopped(struct kvdb *db, int err);

/* ---- seg.c: log segments, which are the value blocks ------------------------- */

enum kv_seg_state {
	KV_SEG_FREE = 0,	/* allocated, unused: in the stock */
	KV_SEG_OPEN,		/* a log appends to it */
	KV_SEG_FULL,		/* no more appends; seal not durable yet */
	KV_SEG_SEALED,
	KV_SEG_DELETED,
};

/*
 * struct kv_seg - one log segment
 * References: the segment table holds one, every run that refers to a value
 * in it (sg_refs counts all). sg_runs counts durable runs only.
 */
struct kv_seg {
	uint64_t sg_id;			/* object id */
	struct mpool_obj *sg_obj;
	uint32_t sg_bytes;		/* capacity */
	_Atomic(uint32_t) sg_room;	/* bytes that can be read: behind the seal there are none */
	uint8_t sg_stream;		/* enum kv_stream */
	uint16_t sg_log;
	uint8_t sg_mclass;
	_Atomic(uint32_t) sg_state;	/* enum kv_seg_state; changes under db->seg_lock */
	/* end of frames written or, after recovery, the sealed length */
	_Atomic(uint32_t) sg_end;
	uint32_t sg_keep;		/* the object is sealed no shorter: RV22; recovery only */
	/* its bytes in the window, or NULL; read inside kv_enter() */
	_Atomic(uint8_t *) sg_image;
	_Atomic(uint64_t) sg_first_epoch; /* epochs of its frames; 0 = none yet */
	_Atomic(uint64_t) sg_last_epoch;
	_Atomic(uint32_t) sg_refs;	/* in-memory holders */
	_Atomic(uint32_t) sg_runs;	/* runs of the durable tree that refer to it */
	_Atomic(uint32_t) sg_pins;	/* checkpoints that list it; ckpt.c */
	uint32_t sg_chain;		/* fh_crc of its last finished frame; flusher only */
	uint64_t sg_epoch;		/* the epoch of that frame, and where it begins; likewise */
	uint32_t sg_begin;
	/* queue of full segments whose image is still held; seg_lock */
	struct kv_seg *sg_full_next;
	struct kv_seg *sg_next;		/* list of all segments, db->seg_lock */
	struct kv_seg *sg_prev;
	struct kv_seg *sg_hash;		/* by id, db->seg_lock */
	struct kv_seg *sg_todo_next;	/* of those that upkeep looks at; seg_lock */
	struct kv_seg **sg_todo_at;	/* what points to it in that list; NULL: not in it */
	bool sg_is_staged, sg_is_in_use; /* is counted as such; seg_lock */
	bool sg_obj_sealed;		/* the object is sealed too; upkeep and recovery only */
	_Atomic(uint8_t) sg_victim;	/* enum kv_victim_of: a relocation is moving its values */
	struct kv_trouble sg_trouble;	/* a value in it cannot be moved: no victim for a while */
	/* no image is made of it before (UINT64_MAX: ever), and the pause until then; warm.c */
	uint64_t sg_cold_until_ns, sg_cold_pause_ns;
	_Atomic(int64_t) sg_heat;	/* what its order costs scans, bytes; heat.c */
	bool sg_is_ordered;		/* a job for scans wrote it; before it is listed */
	uint32_t sg_cand;		/* number + 1 among the candidates; the relocation job's */
	struct kv_limbo sg_limbo;
};

int kv_segs_init(struct kvdb *db);
void kv_segs_fini(struct kvdb *db);
/*
 * A fresh segment for a log: from the stock, which is refilled in batches
 * (one durable mpool_alloc() of several). Other than the ordinary @bytes asks
 * for a segment of its own for one large record. -ENOSPC: class full.
 * @urgent may use the reserve (deletes).
 */
int kv_seg_alloc(struct kvdb *db, uint16_t log, uint8_t stream, uint32_t bytes, bool urgent,
		 struct kv_seg **out);
/* Up to *@n such segments for values that are to come; *@n: so many, each with a reference. */
int kv_segs_alloc_alone(struct kvdb *db, uint16_t log, uint8_t stream, uint32_t bytes,
			bool urgent, unsigned *n, struct kv_seg **out);
/* The same on staging and nowhere else, past the stock: for a store that bears no other class. */
int kv_seg_alloc_staging(struct kvdb *db, uint16_t log, uint8_t stream, uint32_t bytes,
			 struct kv_seg **out);
/* The log is done with it: FULL; background work seals it. */
void kv_seg_close(struct kvdb *db, struct kv_seg *s, uint32_t end);
/* As kv_seg_close() of a segment that has no image, or was never used (@end 0). */
void kv_seg_close_cold(struct kvdb *db, struct kv_seg *s, uint32_t end);
/* Seals them now: they are durable on return, and the container says where they end. */
int kv_segs_seal(struct kvdb *db, struct kv_seg **seg, size_t n);
/* Lets go of the images of full segments that are durable (flusher). */
void kv_segs_durable(struct kvdb *db);
struct kv_seg *kv_seg_find(struct kvdb *db, uint64_t id);	/* with a reference, or NULL */
struct kv_seg *kv_seg_get(struct kv_seg *s);
/* For who saw it inside kv_enter() and has no reference; false: the last one is gone. */
bool kv_seg_tryget(struct kv_seg *s);
/* Behind each change of sg_runs to or from 0, by who has a reference. */
void kv_seg_note(struct kvdb *db, struct kv_seg *s);
/* One checkpoint more (@by 1) or less (-1) lists it. */
void kv_seg_pin(struct kvdb *db, struct kv_seg *s, int by);
void kv_seg_put(struct kvdb *db, struct kv_seg *s);
/* Adds a segment found at recovery (state SEALED, end = sealed length). */
int kv_seg_add(struct kvdb *db, uint64_t id, struct kv_seg **out);
/* Bytes of its object that can be read: a sealed one may end before its capacity. */
uint32_t kv_seg_readable(const struct kv_seg *s);
/*
 * One step of upkeep: refill the stock, seal FULL segments whose frames are
 * durable, delete dead ones (R6). 1 = did something, 0 = nothing due, or -errno.
 */
int kv_segs_step(struct kvdb *db);
/* Deletes as many as are dead now, however many. 0, -errno; -ENOMEM: kv_segs_step() will. */
int kv_segs_free_dead(struct kvdb *db);
/* Of those only what was never written, as recovery has found it. */
int kv_segs_free_unused(struct kvdb *db);
/* The part of it that writers wait for: refills the stock. */
int kv_segs_stock_step(struct kvdb *db);
/* How short of segments fast logs are that have @ready of their own: 0 to KV_DEBT_MAX. */
uint32_t kv_segs_debt(struct kvdb *db, uint32_t ready);
/* Somebody is in the middle of a step. */
bool kv_segs_are_busy(struct kvdb *db);
/*
 * The next segment behind object @after with values of runs and without an image, with a
 * reference; then from the first one on. NULL: none, or values of runs take a quarter
 * more than all slabs. @least: bytes that it has.
 */
struct kv_seg *kv_seg_next_cold(struct kvdb *db, uint64_t after, uint32_t least);

/* ---- reserve.c --------------------------------------------------------------- */

/* Bytes without the stock of segments, which nobody but logs and loads takes from. */
struct kv_space_left {
	uint64_t sl_free[MPOOL_MCLASSES];
	uint64_t sl_spare[MPOOL_MCLASSES];	/* less the reserve of R19: for who frees nothing */
	uint64_t sl_all_free, sl_all_spare;
	uint64_t sl_all;			/* of the pool, used or not */
};

void kv_space_left(struct kvdb *db, struct kv_space_left *out);
/* Where @bytes that may lie anywhere go: to @mclass, unless only the other class has spare room. */
uint8_t kv_space_class(struct kvdb *db, uint8_t mclass, uint64_t bytes);
uint64_t kv_segs_free_bytes(struct kvdb *db);	/* sl_all_free, */
uint64_t kv_segs_spare_bytes(struct kvdb *db);	/* sl_all_spare */
uint64_t kv_segs_class_bytes(struct kvdb *db);	/* of the largest class, used or not */
/* Ordinary writes are about to find the pool full. */
bool kv_segs_are_short(struct kvdb *db);

/* ---- slab.c: memory of the window and the page pool -------------------------- */

/*
 * Slabs are b_seg_bytes each, mapped on first use, never returned. The window
 * takes one per segment image, the page pool cuts one into pages. When all
 * are in use the taker steals: the window its oldest image, the pool likewise,
 * or the other's above its guaranteed share.
 */
int kv_slabs_init(struct kvdb *db);
void kv_slabs_fini(struct kvdb *db);
/* waits for reclamation if needed; NULL = -ENOMEM */
uint8_t *kv_slab_take_image(struct kvdb *db, struct kv_seg *owner);
/*
 * Has the system give memory to images that were just taken, a huge page at a
 * time: its first touch takes milliseconds. False: all have theirs. One thread only.
 */
bool kv_slab_fault_step(struct kvdb *db);
/* True when an image of @bytes that is no ordinary segment's keeps within its budget. */
bool kv_slab_has_own_room(struct kvdb *db, uint32_t bytes);
/* The image of @seg is complete and durable: it may be stolen from now on. */
void kv_slab_image_idle(struct kvdb *db, struct kv_seg *seg);
/*
 * Memory for an image that is to be read back, NULL unless it costs nobody his and more than
 * 1/@part of all slabs are unused (warm.c).
 */
uint8_t *kv_slab_take_spare(struct kvdb *db, uint32_t part);
void kv_slab_give_spare(struct kvdb *db, uint8_t *mem);
/* It holds the segment's bytes now: readers find them, and they may be stolen. */
void kv_slab_publish(struct kvdb *db, uint8_t *mem, struct kv_seg *seg);
/* Gives an image back at once (klog segments, deleted segments). */
void kv_slab_drop_image(struct kvdb *db, struct kv_seg *seg);
/* A slab for the page pool, or NULL when its share is used up. */
uint8_t *kv_slab_take_pages(struct kvdb *db);
/* Gives back one that it took just now, and nobody has seen. */
void kv_slab_give_pages(struct kvdb *db, uint8_t *mem);

/* ---- pagepool.c: cached 4 KiB pages ------------------------------------------- */

struct kv_page;	/* a cached page; pinned by kv_enter() of the reader */

int kv_pagepool_init(struct kvdb *db);
void kv_pagepool_fini(struct kvdb *db);
/*
 * kv_page_get - a page of an object
 * @crc: expected CRC32C of its 4096 bytes, compared once when it is read from
 * the device; NULL = the caller checks content itself.
 * Call inside kv_enter(); the pointer is good until kv_exit(). May do I/O.
 * -EUCLEAN with object and offset when the CRC differs; -EIO.
 */
int kv_page_get(struct kvdb *db, struct mpool_obj *obj, uint64_t page_no, const uint32_t *crc,
		const uint8_t **out);
/* Copies a page that was just written into the pool (a hint). */
void kv_page_insert(struct kvdb *db, uint64_t obj_id, uint64_t page_no, const uint8_t *data);
/* Forgets all pages of an object that is being deleted. */
void kv_page_purge(struct kvdb *db, uint64_t obj_id, uint64_t pages);
/* Steals one slab's worth of pages back for the window; NULL when none. */
uint8_t *kv_pagepool_yield_slab(struct kvdb *db);

/* ---- entries: what memtables and runs say about a key -------------------------- */

enum kv_ent_kind {
	KV_ENT_TOMB = 1,
	KV_ENT_INLINE = 2,
	KV_ENT_REF = 3,
	KV_ENT_COVER = 4,	/* tomb.c: a version that is a delete of many keys */
	/* point.c: plain bytes in the window, at e_val until kv_exit(); no segment, CRC, stamp */
	KV_ENT_NEAR = 5,
};

struct kv_ent {
	const uint8_t *e_key;
	uint16_t e_klen;
	uint8_t e_kind;		/* enum kv_ent_kind */
	uint8_t e_pack;		/* REF: how it is packed (enum kvdb_compress), 0 = plain */
	uint32_t e_vlen;	/* of the value, as the user knows it */
	uint32_t e_vcrc;	/* CRC32C of the value, as the user knows it */
	uint32_t e_plen;	/* packed: bytes on media */
	uint32_t e_pcrc;	/* packed: CRC32C of the bytes on media */
	uint32_t e_off8;	/* REF: offset of the value in the segment, / 8 */
	struct kv_seg *e_seg;	/* REF */
	const uint8_t *e_val;	/* INLINE, NEAR: the bytes */
	uint64_t e_seq;
	uint64_t e_expiry;	/* engine time from which on it is a tombstone, ms; 0 = never */
};

/* Bytes that the value takes where it lies. */
static inline uint32_t kv_ent_stored(const struct kv_ent *e)
{
	return e->e_pack ? e->e_plen : e->e_vlen;
}

/*
 * kv_value_read - the bytes of an entry's value (value.c)
 * Copies min(size, vlen) bytes to @buf. Verifies the CRC when the bytes came
 * from a device (then the whole value is read), not when they are in memory.
 * Call inside kv_enter().
 */
int kv_value_read(struct kvdb *db, const struct kv_ent *e, void *buf, size_t size);
/* The kv_ent_stored() bytes of a reference as they lie; packed ones are always verified. */
int kv_value_read_stored(struct kvdb *db, const struct kv_ent *e, void *buf);

#define KV_AHEAD_STEPS	2u
/* Ordered source of entries, ascending (or descending when opened or turned so). */
struct kv_iter;
struct kv_iter_ops {
	/* position at the first entry >= key (reverse: <= key); klen 0 = the very first */
	int (*seek)(struct kv_iter *it, const void *key, size_t klen);
	/*
	 * steps 0 to KV_AHEAD_STEPS - 1 before a seek fetch what it touches in memory, so that
	 * several sources wait for that together. False: it will wait for a device. Inside
	 * kv_enter(), and so may the seek be after true. NULL: a seek may take long
	 */
	bool (*ahead)(struct kv_iter *it, const void *key, size_t klen, unsigned step);
	/* fills @e and moves on; -ENOENT at the end. Pointers live until the next call. */
	int (*next)(struct kv_iter *it, struct kv_ent *e);
	/* sets the direction of what follows; the place is lost: seek next */
	void (*turn)(struct kv_iter *it, bool reverse);
	/*
	 * lets go of what only kv_enter() protects; the place and what next() gave stay.
	 * A caller that is inside parks before it leaves kv_enter(). NULL: nothing to let go of
	 */
	void (*park)(struct kv_iter *it);
	void (*close)(struct kv_iter *it);
};
struct kv_iter {
	const struct kv_iter_ops *it_ops;
};

static inline void kv_iter_park(struct kv_iter *it)
{
	if (it->it_ops->park)
		it->it_ops->park(it);
}

/* ---- memtable.c, order.c ---------------------------------------------------------- */

/*
 * A memtable holds the records of the epochs (mt_base, mt_boundary] of one
 * KVS. It is referenced by the tree snapshot that lists it and by cursors.
 */
/* An empty active memtable; sized and partitioned like @like when given (its predecessor). */
int kv_mt_new(struct kvdb *db, uint32_t kvs, struct kv_mt *like, struct kv_mt **out);
/* Database-wide memtable state (d_views): call before the first memtable is made. */
int kv_mts_init(struct kvdb *db);
void kv_mts_fini(struct kvdb *db);
struct kv_mt *kv_mt_get(struct kv_mt *mt);
void kv_mt_put(struct kvdb *db, struct kv_mt *mt);
uint64_t kv_mt_first_epoch(const struct kv_mt *mt);	/* of any record ever inserted; 0 = none */
uint64_t kv_mt_boundary(const struct kv_mt *mt);	/* last epoch, once frozen */
uint64_t kv_mt_keys(const struct kv_mt *mt);
/* R13: the birth of a view; returns its number. */
uint64_t kv_view_open(struct kvdb *db);
/* Takes a snapshot: a tree with a reference, and a view of its memtables (CUR-1). */
void kv_snapshot(struct kvdb_kvs *kvs, struct kv_tree **tree, uint64_t *seq);
/*
 * Ordered walk of what is visible at @seq (UINT64_MAX: newest final version;
 * frozen memtables). Each key once.
 */
int kv_mt_iter(struct kvdb *db, struct kv_mt *mt, uint64_t seq, bool reverse, struct kv_iter **out);
/* Recovery, single-threaded: insert a record read from a segment (R3: order is (epoch, rev)). */
int kv_mt_replay(struct kvdb_kvs *kvs, const struct kv_rec *r, uint64_t epoch,
		 struct kv_seg *seg, uint32_t val_off);

/* ---- runs: run_omf.[ch], run_build.c, run_read.c, filter.c --------------------------- */

/*
 * A run is a sorted list of key blocks (mblocks), immutable. Its description
 * lives in the MDC; fences, filters and segment tables are read at open and
 * stay in memory.
 */
#define KV_RUN_KBLOCKS_MAX 4096u

struct kv_kblock_desc {		/* as kept in the MDC */
	uint64_t kd_id;		/* object */
	uint32_t kd_len;	/* bytes */
	uint32_t kd_crc;	/* of its footer page: parent-held */
};

/* Of frames and runs of bulk loads: every store's horizon covers it (B2). */
#define KV_BULK_EPOCH	1u

struct kv_run_desc {
	uint64_t rd_id;		/* never reused within the database */
	uint64_t rd_pos;	/* list position: greater = newer data */
	uint64_t rd_keys;
	uint64_t rd_min_seq, rd_max_seq;
	uint64_t rd_newest_epoch;	/* of a record in it (R3) */
	uint64_t rd_leaf;	/* its leaf; 0: it may hold any key */
	uint32_t rd_kvs;
	uint32_t rd_n;		/* key blocks */
	struct kv_kblock_desc *rd_kb;
};

struct kv_run_build;
int kv_run_build_open(struct kvdb *db, uint32_t kvs, uint64_t keys_estimate, bool urgent,
		      struct kv_run_build **out);
/*
 * Ascending keys; each key once in this version of the engine (the format allows several,
 * newest first).
 */
int kv_run_build_add(struct kv_run_build *rb, const struct kv_ent *e);
/* Tombstones over many keys that go into the run; before the first key, at most once. */
struct kv_trange;
int kv_run_build_tombs(struct kv_run_build *rb, const struct kv_trange *r, uint32_t n);
/*
 * Writes what is left. The objects are written, not flushed and not committed;
 * the run can be read at once and holds references to its segments. An empty
 * build gives *out = NULL.
 */
int kv_run_build_finish(struct kv_run_build *rb, struct kv_run **out);
void kv_run_build_abort(struct kv_run_build *rb);

/* Opens a run that the MDC describes. Checks footers against kd_crc. */
int kv_run_open(struct kvdb *db, const struct kv_run_desc *d, struct kv_run **out);
struct kv_run *kv_run_get_ref(struct kv_run *r);
/* The last reference frees it; when it was dropped by a durable edit its objects are deleted. */
void kv_run_put(struct kvdb *db, struct kv_run *r);
/* rd_id, rd_pos, rd_newest_epoch are set by the caller that publishes it */
struct kv_run_desc *kv_run_desc(struct kv_run *r);
/* Handles of its key blocks, for mpool_batch(). */
struct mpool_obj *kv_run_obj(struct kv_run *r, uint32_t i);
/* Segments it refers to: calls fn(arg, seg, live records, live bytes). */
void kv_run_segs(struct kv_run *r, void (*fn)(void *arg, struct kv_seg *s, uint64_t n,
					      uint64_t bytes),
		 void *arg);
uint64_t kv_run_index_bytes(const struct kv_run *r);	/* memory it pins */
uint64_t kv_run_bytes(const struct kv_run *r);	/* media it takes */
/*
 * Deletes the objects of dropped runs that nobody reads any more, and what checkpoints kept of
 * them: 1 = did something. What fails is left for the next call.
 */
int kv_runs_reap(struct kvdb *db);
/* The database ends: what could not be deleted is garbage for the next open. */
void kv_runs_fini(struct kvdb *db);
/* Marks it dropped by a durable edit: its objects go when the last reference goes. */
void kv_run_drop(struct kv_run *r);
/*
 * Looks a key up. @hash = kv_hash(key). Call inside kv_enter(). 0 and *e
 * (pointers live until kv_exit()), -ENOENT, -EIO, -EUCLEAN, -ENOMEM.
 */
int kv_run_lookup(struct kvdb *db, struct kv_run *r, const void *key, size_t klen, uint64_t hash,
		  struct kv_ent *e);
/* Prefetches what the lookup touches first. */
void kv_run_prefetch(struct kv_run *r, uint64_t hash);
int kv_run_iter(struct kvdb *db, struct kv_run *r, bool reverse, struct kv_iter **out);

static inline uint64_t kv_mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	return x;
}

/* ---- merge_iter.c -------------------------------------------------------------------- */

/*
 * Merging iterator over @n sources, newest first: each key once, the newest
 * source wins; entries of KV_ENT_TOMB are returned when @keep_tombs. Takes
 * ownership of the sources, unless it fails.
 */
int kv_merge_iter(struct kv_iter **src, unsigned n, bool reverse, bool keep_tombs,
		  struct kv_iter **out);
void kv_iters_close(struct kv_iter **src, unsigned n);
/* cursor.c: stamp of the entry that kvdb_cursor_next() returned last */
uint64_t kv_cursor_ent_seq(const struct kvdb_cursor *cur);
/* Before the first step: values that have expired are shown, too. */
void kv_cursor_show_expired(struct kvdb_cursor *cur);
/*
 * The one place where more than a tombstone hides a key: when @hides says so of
 * its newest entry, the key is passed over. Whatever hides a version hides all
 * older ones.
 */
void kv_merge_hide(struct kv_iter *it, bool (*hides)(void *arg, const struct kv_ent *e),
		   void *arg);
/* Before the first step: the @n newest sources hide keys of the others and show none. */
void kv_merge_only_hide(struct kv_iter *it, unsigned n);
/*
 * Nothing at @end and above, in a reverse walk below it, is wanted: next() says -ENOENT when it
 * passes over an entry there. What it shows it shows as before. @end stays; length 0: no end.
 */
void kv_merge_until(struct kv_iter *it, const void *end, size_t len);
/*
 * The next seek goes to @key instead, which lies behind, with all sources but the @n newest:
 * these have nothing to show before it. @key stays until then.
 */
void kv_merge_skip(struct kv_iter *it, unsigned n, const void *key, size_t klen);
/*
 * From now on it moves on by @n entries, shown or passed over; then next() says -EAGAIN, and
 * goes on after another call of this.
 */
void kv_merge_rest(struct kv_iter *it, unsigned n);
/* By how many it has moved on so far. */
uint64_t kv_merge_steps(const struct kv_iter *it);

/* ---- merge.c ------------------------------------------------------------------------- */

/*
 * One key-only merge of a store that is due, beside those that run: picks runs
 * that are neighbours in age, merges, publishes. 1 = did one, 0 = none due, -errno.
 */
int kv_merge_step(struct kvdb *db, struct kvdb_kvs *kvs);
/* TH-17: merges of the store can go on, as far as is known without waiting. */
bool kv_merge_may_help(struct kvdb_kvs *kvs);
/* LF9: the store has all the upper runs that it may have, and merges can make them fewer. */
bool kv_merge_is_behind(struct kvdb_kvs *kvs);
/* A merge runs. */
bool kv_merge_is_busy(struct kvdb_kvs *kvs);

/* ---- tree.c: the list of memtables and runs of a KVS ---------------------------------- */

#define KV_MTS_MAX	4u	/* memtables of a store */

/*
 * Immutable snapshot, replaced as a whole under kvs->k_tree_lock; readers load
 * kvs->k_tree inside kv_enter() or hold a reference.
 */
struct kv_tree {
	_Atomic(uint32_t) tr_refs;
	uint32_t tr_nmt;		/* memtables, [0] is the active one */
	uint32_t tr_nrun;
	uint32_t tr_nupper;		/* runs of all keys: tr_run[0, tr_nupper) */
	uint32_t tr_nleaf;
	uint32_t tr_depth;		/* runs that one key may lie in, at most */
	/* trees of one number have runs that say the same of every key; no two stores share one */
	uint64_t tr_gen;
	uint64_t tr_line;		/* the tr_gen that the point index knows them by (PI5) */
	uint32_t tr_slot;		/* of the store */
	_Atomic(bool) tr_tombs;		/* some source has deletes of many keys (tomb.c) */
	struct kv_mt *tr_mt[KV_MTS_MAX];	/* newest first */
	struct kv_limbo tr_limbo;
	/* in order of keys; without any, all runs are upper ones */
	struct kv_leaf_runs {
		struct kv_leaf *lr_leaf;
		uint32_t lr_first, lr_n;	/* its runs in tr_run */
	} *tr_leaf;
	/* the upper ones, then those of each leaf; newest first among those with common keys */
	struct kv_run *tr_run[];
};
struct kv_tree *kv_tree_get(struct kvdb_kvs *kvs);	/* with a reference */
/* In exchange for a reference on @tr: its runs and leaves alone; without memory for that @tr. */
struct kv_tree *kv_tree_leave_mts(struct kvdb *db, struct kv_tree *tr);
/* True: the part, upper runs or those of a leaf, is left out. */
typedef bool kv_part_fn(void *arg, struct kv_run *const *run, uint32_t n);
/* A tree of the runs and leaves of @tr, with a reference; NULL: no memory. @omits NULL: of all. */
struct kv_tree *kv_tree_runs(struct kvdb *db, const struct kv_tree *tr, kv_part_fn *omits,
			     void *arg);
uint64_t kv_run_gen(struct kvdb *db);	/* a tr_gen that no tree had */
/*
 * What the tree says about a key in view @seq (KV_SEQ_NOW: now); kvs.c. A view looks
 * into trees of its birth only. Call inside kv_enter(). 0 with *e, -ENOENT, -EIO, -EUCLEAN.
 */
int kv_tree_lookup(struct kvdb *db, struct kv_tree *tr, const void *key, size_t klen,
		   uint64_t seq, struct kv_ent *e);
void kv_tree_put(struct kvdb *db, struct kv_tree *tr);
struct kv_edit;
/*
 * Shows what an edit changed; the oldest memtable @mt (may be NULL) goes with it. Runs lie
 * where their positions say.
 */
int kv_tree_edit(struct kvdb_kvs *kvs, struct kv_mt *mt, const struct kv_edit *ed);
/*
 * kv_tree_show - as kv_tree_edit(), of an edit that is on media: there is no way back
 * It waits for memory. An error is why the database has stopped.
 */
int kv_tree_show(struct kvdb_kvs *kvs, struct kv_mt *mt, const struct kv_edit *ed);
/* A new active memtable in front (memtable switch; db->d_tick_lock held). */
int kv_tree_switch(struct kvdb_kvs *kvs, struct kv_mt *mt);

/* ---- mdc.c: version edits ---------------------------------------------------------------- */

struct kv_horizon { uint32_t kvs; uint64_t epoch; };
struct kv_cut { uint64_t obj; uint32_t len; };

struct kv_edit {
	uint32_t ed_kvs;
	struct kv_run **ed_add;
	unsigned ed_nadd;
	struct kv_run **ed_drop;
	unsigned ed_ndrop;
	struct kv_leaf **ed_begin;	/* leaves that are there from now on */
	unsigned ed_nbegin;
	uint64_t ed_end;		/* id of the leaf that its neighbour takes over, 0 = none */
	const struct kv_horizon *ed_hor;	/* new horizons (flush) */
	unsigned ed_nhor;
	uint64_t ed_gen;		/* kv_point_news_tell() */
};
/*
 * kv_mdc_edit - one atomic, durable change of the tree
 * Flushes and commits the objects of ed_add, then appends
 * one record with MPOOL_SYNC. Compacts the container first when it is nearly
 * full. On return 0 the horizons are durable (kvs->k_horizon is updated here).
 */
int kv_mdc_edit(struct kvdb *db, const struct kv_edit *ed);

/* ---- log.c: reservation, frames ------------------------------------------------------------ */

/* A place in a log, taken by one atomic operation together with its epoch (R4). */
struct kv_resv {
	struct kv_frame *rs_frame;
	uint8_t *rs_buf;
	struct kv_seg *rs_seg;
	uint32_t rs_off;		/* of the record in the segment */
	uint64_t rs_epoch;
};

int kv_logs_init(struct kvdb *db);
void kv_logs_fini(struct kvdb *db);

/*
 * ---- flush.c: epochs, flusher, durability
 * ------------------------------------------------------
 */

int kv_flusher_start(struct kvdb *db);
/* A frame is full: it may be written before its epoch ends. */
void kv_flusher_kick(struct kvdb *db);
/* Memory or log space came free: writers that wait may go on. */
void kv_flusher_room(struct kvdb *db);
/* The database stopped: threads that wait for durability see the fault. */
void kv_flusher_failed(struct kvdb *db);
/* True when the open epoch should end now. */
bool kv_epoch_is_due(struct kvdb *db);
/* The first record of epoch @e was reserved: sets the gate (R1). */
void kv_epoch_born(struct kvdb *db, uint64_t e);
void kv_flusher_stop(struct kvdb *db);
/* Closes the open epoch, writes it, flushes the devices, publishes durable_epoch. */
int kv_epoch_sync(struct kvdb *db);
/*
 * Before a change that is durable at once: what was acknowledged so far is durable on return, for
 * a crash takes a suffix of history (P4).
 */
int kv_change_sync(struct kvdb *db);
/* Waits until @epoch is durable. */
int kv_wait_durable(struct kvdb *db, uint64_t epoch);
/* Asks for @epoch to be durable, without waiting. */
void kv_want_durable(struct kvdb *db, uint64_t epoch);
/* The epoch that is to be durable for all that was acknowledged so far. */
uint64_t kv_sync_epoch(struct kvdb *db);
/* The loss bound forbids acknowledgements of what is not durable (R1). */
bool kv_gate_is_shut(struct kvdb *db);

/* ---- cq_wait.c: completion queues ---- */

/* Durable epoch, room or fault changed: queues that wait look again. */
void kv_cqs_wake(struct kvdb *db);

/* ---- kvs.c: writes that never wait ---- */

/* Zeroed, and kept until the write is done. */
struct kv_begun {
	uint64_t bg_epoch;	/* result */
	uint64_t bg_due_ns;	/* when the throttle lets it go; 0: it was not asked yet */
};

/*
 * As kvdb_put() and kvdb_del(), but -EAGAIN instead of waiting for room, -EBUSY
 * instead of waiting for the transaction that owns the key, and the
 * acknowledgement is the caller's: not before the epoch is durable (commit mode)
 * or while kv_gate_is_shut() and it is not durable.
 */
int kv_put_begin(struct kvdb_kvs *kvs, const void *key, size_t klen, const void *val, size_t vlen,
		 struct kv_begun *bg);
int kv_del_begin(struct kvdb_kvs *kvs, const void *key, size_t klen, struct kv_begun *bg);
/* txn.c: likewise kvdb_txn_commit(); bg_epoch 0: nothing was written; -EAGAIN does nothing */
int kv_txn_commit_begin(struct kvdb_txn *txn, struct kv_begun *bg);
struct kvdb *kv_txn_db(const struct kvdb_txn *txn);

/*
 * ---- work.c: background work
 * --------------------------------------------------------------------
 */

int kv_work_start(struct kvdb *db);
/* Ends the threads; the flusher may still kick, so the rest goes after it: kv_work_fini(). */
void kv_work_stop(struct kvdb *db);
void kv_work_fini(struct kvdb *db);
/* One step of whatever is due (memtable flush, merge, segment upkeep): 1, 0, -errno. */
int kv_work_step(struct kvdb *db);
/* It is being closed and has flushed for long enough. */
bool kv_is_late(struct kvdb *db);

/*
 * ---- recover.c
 * ----------------------------------------------------------------------------------
 */

enum kv_recover_as {
	KV_RECOVER_WRITE,	/* what memtables cannot hold is flushed meanwhile (RV25) */
	KV_RECOVER_READ,	/* writes nothing: -EFBIG if memtables would hold too much */
	KV_RECOVER_CHECK,	/* writes nothing, and takes no memory: everything is judged */
	KV_RECOVER_ALL		/* writes nothing, and takes the memory that it needs */
};

/*
 * kv_recover - R2, R3: find D, replay into memtables, commit the incarnation record
 * Called by kvdb_open() after the MDC is read (stores, runs, horizons known)
 * and before logs and threads exist.
 */
int kv_recover(struct kvdb *db, enum kv_recover_as as);

/* ---- etime.c: engine time (R18) ---------------------------------------------------------- */

/* At open; @last: the time that was recorded. -ETIME when the wall clock jumped ahead of it. */
int kv_time_start(struct kvdb *db, uint64_t last);
uint64_t kv_time_ms(struct kvdb *db);
/* When something expires that is put now. */
uint64_t kv_expiry(struct kvdb *db, uint64_t ttl_s);

/* What it is once it has expired. */
static inline void kv_ent_expire(struct kv_ent *e)
{
	e->e_kind = KV_ENT_TOMB;
	e->e_pack = 0;
	e->e_vlen = 0;
	e->e_vcrc = 0;
	e->e_seg = NULL;
	e->e_expiry = 0;
}

static inline bool kv_is_expired(const struct kv_ent *e, uint64_t now_ms)
{
	return e->e_expiry && e->e_expiry <= now_ms;
}

/* ---- kvs_opts.c: options of stores ------------------------------------------------------- */

/* Their numbers on media. */
enum kv_prop {
	KV_PROP_PFX_LEN = 1,
	KV_PROP_TTL = 2,	/* seconds */
	KV_PROP_POLICY = 3,	/* enum kvdb_policy */
	KV_PROP_COMPRESS = 4,	/* enum kvdb_compress */
	KV_PROPS
};
#define KV_PROP_BIT(p)	(1u << (p))
#define KV_PROP_ALL	(KV_PROP_BIT(KV_PROPS) - 2u)

struct kv_props {
	uint64_t pr_val[KV_PROPS];	/* by number; 0 = default */
	uint32_t pr_unknown;		/* number of one that is not known here; 0 = none */
};
bool kv_props_are_default(const struct kv_props *p);
bool kv_prop_is_known(uint32_t prop, uint64_t val);
/* -EINVAL, -EOPNOTSUPP; @opts NULL: defaults. @which: bits of those that are looked at. */
int kv_props_take(const struct kvdb_kvs_opts *opts, uint32_t which, struct kv_props *p);
/* -EOPNOTSUPP when an option of the store is not known here. */
int kv_props_check(const struct kv_props *p, const char *name);

/*
 * ---- the database
 * ---------------------------------------------------------------------------------
 */

/* That the last job could not help, so the next one will not, until something changes; room.c */
struct kv_stuck {
	uint64_t sk_at;		/* bytes that were too many; 0 = it did help */
	uint64_t sk_spare;	/* of the pool, then */
	uint64_t sk_ns;		/* it holds no longer than so; 0 = no such bound */
};

/* What writers are charged for a debt; throttle.c. */
struct kv_toll {
	_Atomic(uint32_t) to_cost;	/* ns per KiB, 0 = free */
	_Atomic(uint32_t) to_cause;	/* enum kvdb_delay: the largest debt */
	_Atomic(uint64_t) to_next;	/* virtual clock, ns */
};

/* Merges of a store that run: what they exclude (LF7, LF8); merge.c. */
struct kv_merging {
	pthread_mutex_t mg_lock;	/* these, and rn_taken */
	uint32_t mg_n;
	uint32_t mg_spills;
	uint32_t mg_shapes;		/* splits and joins */
	uint32_t mg_joins;
	uint32_t mg_coming;		/* leaves that splits may make */
	uint32_t mg_moves;		/* relocations that wait for runs: no merge begins */
	bool mg_failed;			/* the last one that ended */
	struct kv_stuck mg_no_room;	/* sk_at: merges that met the end of the pool */
	struct kv_trouble mg_trouble;	/* their output could not be written */
};

/* Ranges of a store in which cursors found nothing; tree/gap.h. */
struct kv_gaps {
	_Atomic(struct kv_gap_dir *) gs_dir;	/* or NULL; readers: inside kv_enter() */
	pthread_mutex_t gs_lock;		/* replaces it */
	uint32_t gs_closed;			/* bulk loads that are being published */
	uint32_t gs_victim;
};

struct kvdb_kvs {
	struct kvdb *k_db;
	uint32_t k_id;
	uint32_t k_slot;	/* its place in d_kvs */
	char k_name[KVDB_NAME_MAX + 1];
	_Atomic(struct kv_tree *) k_tree;	/* readers: inside kv_enter() */
	pthread_mutex_t k_tree_lock;		/* replaces k_tree */
	/* one flush builds at a time; outside k_edit_lock */
	pthread_mutex_t k_flush_lock;
	/* LF11: no flush with less than this free, until then; k_flush_lock */
	uint64_t k_full_free, k_full_ns;
	struct kv_trouble k_flush_trouble;
	/* one flush or merge publishes at a time; outside k_tree_lock */
	pthread_mutex_t k_edit_lock;
	_Atomic(uint64_t) k_horizon;		/* durable replay horizon (R4), epochs */
	uint64_t k_next_pos;			/* next rd_pos, k_edit_lock */
	_Atomic(uint32_t) k_cursors;		/* and transactions that wrote to it */
	struct kv_merging k_merging;
	struct kv_toll k_toll;		/* of its writers alone (TH-17) */
	_Atomic(uint32_t) k_compact;	/* enum kv_compact_state */
	_Atomic(int) k_compact_err;	/* why that ended before its end, since it was asked for */
	_Atomic(uint64_t) k_compact_run; /* runs with smaller ids are to be merged */
	_Atomic(bool) k_bulk;		/* a bulk load has a place among the runs: no merge */
	/* background work on it: wait for 0 before freeing */
	_Atomic(uint32_t) k_holds;
	_Atomic(struct kv_mt *) k_next_mt;	/* prepared for the next switch, or NULL */
	_Atomic(uint64_t) k_prop[KV_PROPS];	/* by enum kv_prop; written under m_ddl_lock */
	_Atomic(bool) k_dropped;	/* its handle stays, and takes no writes */
	struct kvdb_kvs *k_next;	/* the one that was dropped before it; m_ddl_lock */
	/*
	 * Writer: a delete of many keys is stamped, a bulk load appears; reader: an
	 * update looks at such and is stamped (U1). A leaf, held without I/O or waiting.
	 */
	pthread_rwlock_t k_many_lock;
	struct kv_gaps k_gaps;
};

/* ---- throttle.c ---- */

#define KV_DEBT_MAX	1000u

struct kv_delay {
	_Atomic(uint64_t) de_waits, de_ns, de_max_ns;
};

struct kv_throttle {
	struct kv_toll th_all;		/* of all writers */
	_Atomic(uint64_t) th_looked;	/* when the debt was measured last, ns */
	struct kv_delay th_delay[KVDB_DELAYS];
};

/* Share of [from, limit] that @have has used up, in thousandths. */
uint32_t kv_debt_part(uint64_t have, uint64_t from, uint64_t limit);
/* ns per KiB at a debt of so many thousandths. */
uint32_t kv_throttle_cost(uint32_t debt);
/* The debt that permits so many bytes per second. Pure. */
uint32_t kv_throttle_debt(double rate);
/* Sets rate and cause from the parts of the debt, by enum kvdb_delay. */
void kv_toll_set(struct kv_toll *to, const uint32_t part[KVDB_DELAYS]);
/* The dearer one of the database's and the store's. */
struct kv_toll *kv_toll_of(struct kvdb *db, struct kvdb_kvs *kvs);
/* A write of @bytes that is charged @to: sleeps until it is due. */
void kv_throttle(struct kvdb *db, struct kv_toll *to, uint32_t bytes);
/* Measures the debt if nobody did for a while. */
void kv_throttle_look(struct kvdb *db, uint64_t now);
/*
 * Likewise for who cannot sleep: true when it may go. *due_ns is 0 at the first
 * call for a write, and kept for the others.
 */
bool kv_throttle_begun(struct kvdb *db, struct kv_toll *to, uint32_t bytes, uint64_t *due_ns);
/* Counts a wait of a writer. */
void kv_delayed(struct kvdb *db, unsigned cause, uint64_t ns);
/* What would hold a writer back now. */
unsigned kv_delay_cause(struct kvdb *db);
void kv_throttle_stats(struct kvdb *db, struct kvdb_stats *st);

/* Compaction that was asked for, compact.c. */
struct kv_compact {
	pthread_mutex_t cp_lock;	/* one step at a time; outside all others */
	_Atomic(uint64_t) cp_epoch;	/* memtables with records up to it are flushed first */
	_Atomic(uint64_t) cp_todo, cp_done; /* bytes of runs and values, since it was asked for */
	_Atomic(uint64_t) cp_moved;	/* value bytes that had been moved when it was */
	_Atomic(int) cp_err;		/* why the last one ended before its end, or 0 */
	_Atomic(int) cp_all_err;	/* the same of the last one of all stores and values */
};

/* Counters that many threads bump live in kv_thread; these are rarely touched. */
/* What bytes are read for, as struct kvdb_io tells them apart. */
enum kv_read_for { KV_READ_LOG, KV_READ_KEY, KV_READ_VALUE, KV_READ_MOVE, KV_READS };

struct kv_counters {
	_Atomic(uint64_t) log_bytes[MPOOL_MCLASSES], key_bytes[MPOOL_MCLASSES];
	_Atomic(uint64_t) meta_bytes[MPOOL_MCLASSES], move_bytes[MPOOL_MCLASSES];
	_Atomic(uint64_t) read_bytes[KV_READS][MPOOL_MCLASSES];
	_Atomic(uint64_t) relocations, damaged;
	_Atomic(uint64_t) scan_places, order_relocations, order_bytes;
	_Atomic(uint64_t) index_mem;	/* of all runs that are open */
	_Atomic(uint64_t) move_mem;	/* of jobs that run: images, and what they read into */
	_Atomic(uint64_t) pack_in, pack_out;	/* bytes of values that moved in stores that pack */
	_Atomic(uint64_t) flushes, merges, segments_freed, syncs;
	_Atomic(uint64_t) spills, splits, joins;
	_Atomic(uint64_t) merge_keys, merge_most_keys;	/* in the inputs; of the largest */
	_Atomic(uint64_t) page_hits, page_misses;
	_Atomic(uint64_t) csum_errors, rereads;
	_Atomic(uint64_t) log_device_max_ns;	/* fl_io_lock */
	_Atomic(uint64_t) durability_late, gate_waits, gate_wait_ns, stalls, stall_ns, skipped;
};

struct kvdb {
	uint64_t d_id;			/* of this open handle in this process (thread.c) */
	struct kv_tctx *d_ctxs;		/* thread.c */
	struct kv_tctx *d_ctx_ended;
	struct mpool *d_mp;
	const struct kv_hooks *d_hooks;
	uint8_t d_uuid[16];
	uint64_t d_tag;			/* client tag of every object; its low half is fh_tag */
	uint32_t d_flags;		/* KVDB_* */
	_Atomic(uint32_t) d_interval_ms; /* this and the next: kvdb_set() */
	_Atomic(bool) d_commit;
	bool d_rdonly;
	bool d_at_ckpt;			/* open at a checkpoint: no logs are read */
	uint64_t d_rollback;		/* kvdb_opts.rollback */
	uint8_t d_log_class;		/* enum mpool_mclass of logs and runs */
	struct kv_limits d_limits;	/* at open */
	struct kv_budget d_budget;
	struct kvdb_clock d_clock;
	bool d_clock_is_system;			/* no other was injected */
	uint64_t d_time_base, d_time_start;	/* etime.c: ms and ns, at open */
	_Atomic(uint64_t) d_time_ahead;		/* ms: of these the wall clock was, at most */
	_Atomic(bool) d_time_used;		/* something expires: the time is recorded */
	_Atomic(bool) d_time_is_kept;		/* it is recorded on media */
	_Atomic(uint64_t) d_time_due;		/* ms: when it is, even by an idle database */

	/* fail-stop (P5): set once, never cleared; kv_fail() */
	_Atomic(int) d_fault;		/* 0 or -errno */
	char d_fault_text[256];		/* written once, under d_fault_lock, before d_fault */
	pthread_mutex_t d_fault_lock;	/* a leaf */

	/* epochs, all only grow */
	_Atomic(uint64_t) d_epoch;	/* open epoch */
	_Atomic(uint64_t) d_closed;	/* every slot of epochs <= it is DONE or SKIP */
	_Atomic(uint64_t) d_durable;	/* durable epoch */
	/* newest epoch at whose end no active memtable held a record; d_tick_lock writes */
	_Atomic(uint64_t) d_boundary;
	/* stamps given until then are at most this, later ones are above */
	_Atomic(uint64_t) d_boundary_seq;
	_Atomic(uint64_t) d_seq;	/* R12: stamps and views */
	pthread_mutex_t d_tick_lock;	/* closing an epoch */
	uint32_t d_incarnation;
	struct {			/* newest descriptor on media: flusher, recovery */
		uint64_t epoch, obj;
		uint32_t off;
	} d_desc;

	pthread_mutex_t d_kvs_lock;	/* the array below */
	struct kvdb_kvs *d_kvs[KVDB_KVS_MAX];
	bool d_kvs_coming;		/* a store is being made; d_kvs_lock */
	uint32_t d_nkvs;
	uint32_t d_next_kvs_id;
	_Atomic(uint64_t) d_next_run;
	_Atomic(struct kv_run *) d_doomed;	/* dropped, unreferenced, objects not yet deleted */
	_Atomic(uint32_t) d_reaping;	/* threads inside kv_runs_reap() */
	_Atomic(uint32_t) d_merging;	/* jobs that have runs, of all stores: mg_n in all */
	_Atomic(uint64_t) d_close_ns;	/* when a close is to flush no more; 0 = it is not closed */

	struct kv_warm d_warm;		/* warm.c */
	struct kv_points d_points;	/* point.c */
	_Atomic(uint64_t) d_run_gen;	/* the newest tr_gen */
	struct kv_segs *d_segs;		/* seg.c */
	struct kv_slabs *d_slabs;	/* slab.c */
	struct kv_pagepool *d_pages;	/* pagepool.c */
	struct kv_lent *d_lent;		/* lent.c */
	_Atomic(uint64_t) d_scan_bytes;	/* of b_scan_bytes, in use */
	struct kv_readers *d_readers;	/* read.c */
	struct kv_logs *d_logs;		/* log.c */
	struct kv_flusher *d_flusher;	/* flush.c */
	_Atomic(struct kv_work *) d_work; /* work.c; the flusher runs before it is there */
	struct kv_mdc *d_mdc;		/* mdc.c */
	bool d_is_lossy;		/* repair reads it: goes on behind damage */
	struct kv_reloc *d_reloc;	/* reloc.c */
	struct kv_compact d_compact;	/* compact.c */
	struct kv_views *d_views;	/* memtable.c */
	struct kv_ckpts *d_ckpts;	/* ckpt.c */
	pthread_mutex_t d_cq_lock;	/* completion queues, cq.c; a leaf */
	struct kvdb_cq *d_cqs;
	_Atomic(uint32_t) d_cq_armed;	/* of them, that wait for kv_cqs_wake() */
	struct kv_txns *d_txns;		/* txn.c */
	uint32_t d_view_max_age_ms;
	/* transactions that own keys: a plain write looks at it under the bucket lock */
	_Atomic(uint32_t) d_owners;
	_Atomic(uint64_t) d_tree_gen;	/* trees published so far (view.c) */
	_Atomic(struct kv_forest *) d_forest; /* the trees of now, cached (view.c) */

	pthread_mutex_t d_trouble_lock;	/* trouble.c; a leaf */
	struct kv_trouble *d_troubles;
	struct kv_throttle d_throttle;	/* throttle.c */
	struct kv_ctl *d_ctl;		/* ctl.c; NULL = no control socket */
	const char *d_ctl_path;		/* of the socket, or NULL */
	struct kv_counters d_count;
	struct kvdb_recovery d_recovery;
	uint64_t d_log_left;	/* bytes of log that recovery replayed from: not flushed yet */
	uint64_t d_cpu_ns;	/* processor time of the process when it was opened */
};

/* First failure wins: sets the sticky state and its text, returns @err. */
int kv_fail(struct kvdb *db, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static inline int kv_fault(struct kvdb *db)
{
	return atomic_load_explicit(&db->d_fault, memory_order_acquire);
}

/* Processor time of this process (stats.c). */
uint64_t kv_cpu_ns(void);

/* kv_toll_of() if there is anything to pay, or NULL. */
static inline struct kv_toll *kv_toll(struct kvdb *db, struct kvdb_kvs *kvs)
{
	if (KV_LIKELY(!(atomic_load_explicit(&db->d_throttle.th_all.to_cost, memory_order_relaxed) |
			atomic_load_explicit(&kvs->k_toll.to_cost, memory_order_relaxed))))
		return NULL;
	return kv_toll_of(db, kvs);
}

static inline uint64_t kv_now(struct kvdb *db)
{
	return db->d_clock.now_ns(db->d_clock.arg);
}

/* mem.c: addresses, to begin with without memory, from the beginning of a huge page on */
#define KV_HUGE_PAGE	(2u << 20)
struct kv_range {
	void *ra_map;
	size_t ra_bytes;
};
uint8_t *kv_range_map(struct kv_range *ra, size_t bytes);	/* NULL: no memory */
void kv_range_unmap(struct kv_range *ra);
/* a millisecond */
void kv_nap(void);
/* The same for who waits for memory: 0, or at once why the database has stopped. */
int kv_nap_for(struct kvdb *db);
/* Memory, however long that takes (@size is not 0). NULL: the database has stopped. */
void *kv_realloc_wait(struct kvdb *db, void *p, size_t size);

/* Smallest first epoch of all memtables alive, UINT64_MAX when none (memtable.c). */
uint64_t kv_mt_oldest_epoch(struct kvdb *db);

/*
 * RV7: the epochs of the records of all memtables alive. A flushed one, which views keep, gets no
 * more; the last entry stands for all that have no room.
 */
#define KV_MT_SPANS	32

struct kv_mt_spans {
	unsigned ms_n;
	struct {
		uint64_t first, last;
	} ms[KV_MT_SPANS];
};

/* After the horizon was read that a segment is to be judged by. */
void kv_mt_spans(struct kvdb *db, struct kv_mt_spans *ms);
/* Whether the record of a memtable may name @s by its epoch; values of transactions pin theirs. */
bool kv_mt_may_name(const struct kv_mt_spans *ms, const struct kv_seg *s);
/* In-memory store object with an empty tree; adds it to d_kvs (open, create, recovery). */
int kv_kvs_new(struct kvdb *db, uint32_t id, const char *name, uint64_t horizon,
	       const struct kv_props *props, struct kvdb_kvs **out);
void kv_kvs_free(struct kvdb *db, struct kvdb_kvs *kvs);

#endif
