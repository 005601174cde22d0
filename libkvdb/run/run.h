/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A run in memory: shared by run_build.c, which makes one, run_read.c, which
 * opens and searches one, and run_iter.c, which walks one. Everything here is
 * immutable once the run is published; only rn_refs, rn_dropped, rn_taken,
 * rn_trouble, rn_live, and which filters and fences are in memory, change.
 */
#ifndef KV_RUN_H
#define KV_RUN_H

#include "base/le.h"
#include "db/parts.h"
#include "db/trouble.h"

struct kv_ent;
struct kv_fence_top;
struct kv_iter;
struct kv_kent;
struct kv_kfoot;
struct kv_near_own;
struct kv_run;
struct kv_seg;
struct kv_tindex;
struct mpool_obj;

/*
 * A run is a sorted list of key blocks (mblocks), immutable. Its description
 * lives in the MDC; footers and segment tables are read at open, filters and
 * fences of a key block when they are needed first (run_load.h). These stay in
 * memory while there is room (run_near.h), the rest for good.
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
/* Reads and checks what an open leaves for later, all of it (IDX-1). Outside of kv_enter(). */
int kv_run_load(struct kvdb *db, struct kv_run *r);
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
uint64_t kv_run_index_bytes(const struct kv_run *r);	/* memory of its index, now */
uint64_t kv_run_bytes(const struct kv_run *r);	/* media it takes */
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

struct kv_kblock {
	struct mpool_obj *kb_obj;
	uint64_t kb_id;
	uint64_t kb_ntombs;		/* deletions among its keys */
	uint32_t kb_npages;
	uint32_t kb_fblocks;		/* 64-byte blocks of the filter, 0 = none */
	_Atomic(uint8_t *) kb_filter;	/* NULL: not in memory (FLT-3) */
	_Atomic(uint8_t *) kb_fences;	/* likewise; laid as kv_fences_lay() does */
	uint8_t *kb_prefix;		/* of all separators */
	uint32_t kb_plen;
	uint32_t kb_nsegs;
	uint32_t kb_sep_len;		/* bytes of separators */
	uint32_t kb_ntop;
	struct kv_fence_top *kb_top;	/* kb_ntop, and one more for the last separator */
	uint32_t kb_fence_off, kb_crc_off, kb_filter_off; /* bytes from the start of the object */
	uint32_t kb_pages_end;		/* the page after the last one that the pool may have */
	/* of the pages from kb_npages to there; NULL: not loaded, nor kb_prefix, kb_top (IDX-1) */
	_Atomic(uint32_t *) kb_page_crcs;
	const uint8_t *kb_segtab;
	const uint8_t *kb_tombs;	/* rows of kv_ktomb_size(), kb_tombs_len bytes */
	uint32_t kb_tombs_len;
	uint64_t kb_min_seq;		/* of a key's entry */
	uint64_t kb_expiring;		/* entries that expire, and between what times, ms */
	uint64_t kb_min_expiry, kb_max_expiry;
	struct kv_seg **kb_segs;
	uint8_t *kb_index;		/* segment table and tombstones */
	_Atomic(uint64_t) kb_filter_again; /* engine clock: one could not be read; or 0 */
	_Atomic(uint64_t) kb_mem;	/* bytes of memory, counted, but for what is near */
	uint16_t kb_min_klen, kb_max_klen;
	uint8_t *kb_min, *kb_max;	/* one allocation */
	struct kv_run *kb_run;		/* once that is whole */
	uint32_t kb_area_crc[3];	/* of fences, page CRCs, filter */
	bool kb_no_filter;		/* it was damaged when the others were loaded */
	bool kb_is_coming;		/* a thread loads them; ne_lock */
};

/*
 * What was found to live in a run, and what that depends on: compact/space.c. A hint: threads
 * that look at once may mix theirs.
 */
struct kv_run_live {
	_Atomic(bool) rl_is_known;
	_Atomic(uint64_t) rl_bytes;
	_Atomic(uint64_t) rl_above;	/* keys of newer runs between its first and its last */
	_Atomic(uint64_t) rl_tombs;	/* deletes of many keys in its tree: number and stamps */
	_Atomic(uint64_t) rl_until;	/* engine time, ms: more of it has expired then */
};

struct kv_near_link {
	struct kv_run *nl_next, **nl_at;
};

struct kv_near_piece {			/* FLT-2; ne_lock */
	uint32_t np_n;			/* blocks that have it in memory, */
	uint32_t np_lack;		/* and that were loaded and have not */
	uint32_t np_end;		/* behind the last that has it */
	uint32_t np_low;		/* none in front of it lacks it */
	uint32_t np_size;		/* log2 of the bytes of all */
	struct kv_near_link np_link[2];
};

struct kv_run {
	_Atomic(uint32_t) rn_refs;
	_Atomic(bool) rn_dropped;
	bool rn_taken;			/* a merge is to replace it (LF7); mg_lock */
	struct kv_trouble rn_trouble;	/* a merge or a count could not read it */
	uint32_t rn_n;
	uint32_t rn_nkeyed;		/* number of blocks, the first ones, that hold keys */
	struct kv_kblock *rn_kb;
	struct kv_run_desc rn_desc;
	uint64_t rn_tombs;		/* deletions among its keys */
	uint64_t rn_pages;		/* of keys */
	uint64_t rn_min_seq;		/* of a key's entry; UINT64_MAX: there is none */
	struct kv_tindex *rn_tindex;	/* tombstones over many keys, or NULL */
	struct kv_near_piece rn_near[KV_PIECES];
	uint64_t rn_mem;		/* bytes of memory, counted, beside those of its blocks */
	uint64_t rn_bytes;
	struct kv_run_live rn_live;
	struct kv_run *rn_next;		/* ru_doomed */
	uint32_t rn_ndeleted;		/* its first objects, which are deleted */
};

/* FS1: background work failed at it, as the detail of @err says. */
void kv_run_blame(struct kvdb *db, struct kv_run *r, int err);
/*
 * kv_kblock_attach - checks @index, what lies between key pages and footer, and copies it
 * @known: the segments in table order, references are taken; NULL: find them
 * @own: what is near of the blocks before it
 * On failure @kb holds what it took so far; kv_kblock_free() releases it.
 */
int kv_kblock_attach(struct kvdb *db, struct kv_kblock *kb, const struct kv_kfoot *f,
		     const uint8_t *index, struct kv_seg *const *known, struct kv_near_own *own);
void kv_kblock_free(struct kvdb *db, struct kv_kblock *kb);
struct kv_run *kv_run_new(uint32_t n);
/* Gathers the blocks' tombstones over many keys: sets rn_tindex, rn_nkeyed. */
int kv_run_index_tombs(struct kv_run *r);
/* About how many key pages, and keys, may lie in what the tombstone covers; 0: none does. */
uint64_t kv_run_pages_in(const struct kv_run *r, const struct kv_trange *tr);
/* About how many of its entries have expired by @now_ms. */
uint64_t kv_run_expired(const struct kv_run *r, uint64_t now_ms);
uint64_t kv_run_keys_in(const struct kv_run *r, const struct kv_trange *tr);
/* Sums of the blocks, and what it takes beside them. Once, when the run is whole. */
void kv_run_measure(struct kvdb *db, struct kv_run *r);
/* Last block whose first key is <= the key, or -1. */
int kv_run_route(const struct kv_run *r, const uint8_t *key, size_t klen);
/*
 * The page that holds the key if any does, or -errno. Inside kv_enter(); may read as
 * kv_fences_far() does.
 */
int64_t kv_kblock_page(struct kvdb *db, const struct kv_kblock *kb, const uint8_t *key,
		       size_t klen);
/*
 * kv_run_lookup() in steps, for many keys side by side: where the key would be
 * (-ENOENT: nowhere in the run; -EINPROGRESS), its page from there, the entry in the page.
 */
struct kv_spot {
	const struct kv_kblock *sp_kb;
	uint32_t sp_page;
	uint32_t sp_crc;
};
int kv_run_spot(struct kvdb *db, struct kv_run *r, const void *key, size_t klen, uint64_t hash,
		struct kv_spot *sp);
void kv_kpage_prefetch(const uint8_t *page);
int kv_spot_find(const struct kv_spot *sp, const uint8_t *page, const void *key, size_t klen,
		 uint64_t hash, struct kv_ent *e);
/* Turns a decoded entry into a kv_ent without its key. */
int kv_kblock_ent(const struct kv_kblock *kb, uint32_t page, const struct kv_kent *k,
		  struct kv_ent *e);
/* As kv_run_iter(), ascending, reads past the page pool in large pieces (merge). */
int kv_run_iter_bulk(struct kvdb *db, struct kv_run *r, struct kv_iter **out);

/* ---- the end of a run: reap.c decides when ---- */

/*
 * The objects of runs that no durable tree lists and no reader holds, with few batches: 0, or
 * -errno; a run of which all are deleted has as many in rn_ndeleted.
 */
int kv_runs_delete(struct kvdb *db, struct kv_run *const *run, unsigned n);
void kv_run_free(struct kvdb *db, struct kv_run *r);
/* On the list of those that wait for kv_runs_reap(). */
void kv_run_doom(struct kvdb *db, struct kv_run *r);

#endif
