/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Deletes of many keys: tombstones that cover a prefix or a range. tindex.c
 * searches a fixed set of them, tomb.c is what a memtable knows and what all
 * sources of a tree say together.
 */
#ifndef KV_TOMB_H
#define KV_TOMB_H

#include "db/kv.h"
#include "db/thread.h"

#define KV_TR_PREFIX	0x1u	/* the keys that begin with tr_from; no tr_to */
#define KV_TR_ENDLESS	0x2u	/* up to the greatest key; no tr_to */

/* The keys in [tr_from, tr_to), or with a prefix. tr_flen 0 = from the smallest key on. */
struct kv_trange {
	const uint8_t *tr_from, *tr_to;
	uint16_t tr_flen, tr_tlen;
	uint8_t tr_flags;	/* KV_TR_* */
	uint64_t tr_seq;	/* hides versions with stamps <= it from views >= it */
};

bool kv_trange_has(const struct kv_trange *r, const void *key, size_t klen);
/* Does it cover keys in [lo, hi)? @hi NULL: no end. */
bool kv_trange_meets(const struct kv_trange *r, const void *lo, size_t lolen, const void *hi,
		     size_t hilen);
/*
 * Smallest string behind every string with the prefix, in @to (as long as the
 * prefix); 0 = there is none.
 */
uint16_t kv_prefix_end(const uint8_t *pfx, uint16_t plen, uint8_t *to);
/* Orders by kind (prefixes first), start, then newest first. */
int kv_trange_cmp(const void *a, const void *b);

/* What a log record of a delete of many keys covers; false: it cannot have been written. */
bool kv_rec_trange(const struct kv_rec *r, struct kv_trange *t);
/* Fills the value of a KV_REC_RDEL (KVDB_KEY_MAX + 1 bytes); returns its length. */
uint32_t kv_rec_rdel_value(const struct kv_trange *t, uint8_t *val);

/* ---- tindex.c: a fixed set, searched by key ------------------------------------- */

struct kv_tindex {
	uint32_t ti_n, ti_npfx;		/* prefixes come first */
	uint16_t ti_plen;		/* length of all prefixes */
	struct kv_trange *ti_r;
	uint32_t *ti_slot;		/* prefix hash -> row + 1; open addressing */
	uint32_t ti_mask;
	/* ranges: their ends in order of keys, and what is different in the first of their bytes */
	uint32_t *ti_end, ti_nend;
	uint64_t *ti_head;
	uint16_t ti_common;		/* bytes that all ends begin with */
	/* by rank, oldest first: stamp, row, number of ends of those before (one more) */
	uint64_t *ti_seq;
	uint32_t *ti_row, *ti_sum;
	/* the tree, level by level: of each end, by 64 */
	uint32_t ti_levels, ti_blocks;
	struct kv_tbits {
		uint64_t tb_right;	/* it is of the upper half of its node's ranks */
		uint64_t tb_covered;	/* behind it a range of the node is open */
		uint32_t tb_before;	/* tb_right in all blocks before */
	} *ti_bits;
	uint64_t ti_min_seq, ti_max_seq;
	size_t ti_bytes;
	void *ti_mem;			/* what the rows point into, freed with it; or NULL */
	struct kv_limbo ti_limbo;
};

/*
 * kv_tindex_new - index @n rows, which are copied; the keys that they point to are not
 * @mem: freed with the index (also when this fails); NULL: the keys belong to somebody else
 * Prefixes have one length. @n > 0. NULL: no memory.
 */
struct kv_tindex *kv_tindex_new(const struct kv_trange *r, uint32_t n, void *mem);
void kv_tindex_free(struct kv_tindex *ti);
/* Newest seq <= @v of a row that covers the key; 0 = none. */
uint64_t kv_tindex_at(const struct kv_tindex *ti, const void *key, size_t klen, uint64_t v);
/* The same; *@steps grows by how many ends, stamps and nodes were looked at. */
uint64_t kv_tindex_find(const struct kv_tindex *ti, const void *key, size_t klen, uint64_t v,
			unsigned *steps);
/* is[i]: of some key row ti_r[i] is the newest that covers it; the others say nothing now. */
void kv_tindex_needed(const struct kv_tindex *ti, bool *is);

/* ---- tomb.c: of a memtable --------------------------------------------------------- */

struct kv_tomb;

/*
 * kv_mt_tomb_add - link a hidden tombstone
 * Keys are copied. NULL: no memory. Inside kv_enter().
 */
struct kv_tomb *kv_mt_tomb_add(struct kv_mt *mt, const struct kv_trange *r);
/* It will never be one: readers pass over it. */
void kv_mt_tomb_kill(struct kv_mt *mt, struct kv_tomb *tb);
/*
 * kv_mt_tomb_install - take its record from OPEN to INSTALLING (R7, R12, R15)
 * @mt is the active memtable, in which it is linked. 0, -EAGAIN: the record was late or
 * withdrawn; the tombstone is still hidden. As kv_mt_install().
 */
int kv_mt_tomb_install(struct kv_mt *mt, struct kv_tomb *tb, struct kv_slot *sl,
		       const struct kv_resv *rs, struct kv_version **out);
/* Recovery: a tombstone with its stamp. */
int kv_mt_tomb_replay(struct kv_mt *mt, const struct kv_trange *r, uint64_t epoch);
/* Newest final stamp <= @v of a tombstone that covers the key; 0 = none. Inside kv_enter(). */
uint64_t kv_mt_tomb_at(struct kv_mt *mt, const void *key, size_t klen, uint64_t v);
bool kv_mt_has_tombs(const struct kv_mt *mt);
uint32_t kv_mt_tombs(const struct kv_mt *mt);
/* A live one covers the key and is newer than @view, or not stamped. Inside kv_enter(). */
bool kv_mt_tomb_conflict(struct kv_mt *mt, const void *key, size_t klen, uint64_t view);
void kv_mt_tombs_fini(struct kv_mt *mt);

/* ---- tomb_view.c: of a tree ---------------------------------------------------------------- */

/* Newest stamp <= @v of a tombstone that covers the key in any source. Inside kv_enter(). */
uint64_t kv_tombs_at(struct kv_tree *tr, const void *key, size_t klen, uint64_t v);
/*
 * R14: a tombstone that covers the key is newer than @view, or not stamped yet.
 * Inside kv_enter().
 */
bool kv_tombs_conflict(struct kvdb_kvs *kvs, const void *key, size_t klen, uint64_t view);
/* Sets the flag of a tree that has tombstones; it is being made, or k_tree_lock is held. */
void kv_tree_note_tombs(struct kv_tree *tr);
/*
 * H1: the active memtable has one more, perhaps its first. A tree that is being
 * published either saw it, or gets its mark here (tree.c).
 */
void kv_tree_mark_tombs(struct kvdb_kvs *kvs);

/* What covers: sources that somebody else keeps alive. */
struct kv_cover {
	uint64_t co_v;		/* the view */
	unsigned co_n;
	bool co_has_mt;
	struct kv_cover_src {
		struct kv_mt *cs_mt;
		const struct kv_tindex *cs_ti;
	} co_src[];
};
/* At view @v. NULL and *err = 0: nothing covers anything. To be freed. */
struct kv_cover *kv_cover_new(struct kv_mt *const *mt, unsigned nmt, struct kv_run *const *run,
			      unsigned nrun, uint64_t v, int *err);
/* Is the entry hidden at the view? @co: struct kv_cover; for kv_merge_hide(). */
bool kv_cover_hides(void *co, const struct kv_ent *e);
/* An iterator without what is hidden. Takes over @it (also when this fails) and @co. */
int kv_cover_iter(struct kv_iter *it, struct kv_cover *co, struct kv_iter **out);

/* Rows being collected. */
struct kv_trows {
	struct kv_trange *tv_r;
	uint32_t tv_n, tv_cap;
};
int kv_trows_add(struct kv_trows *tv, const struct kv_trange *r);
/* The final tombstones of a frozen memtable, or those of runs: 0 or -ENOMEM. */
int kv_trows_mt(struct kv_trows *tv, struct kv_mt *mt);
int kv_trows_run(struct kv_trows *tv, const struct kv_run *r);
/*
 * kv_trows_needed - drop what hides nothing any more (R15)
 * @tr: NULL: they may hide something that is still to come, all stay (B1)
 * @but: runs whose covered versions are not there in what replaces them
 * @but_mt: likewise
 */
void kv_trows_needed(struct kv_trows *tv, struct kv_tree *tr, struct kv_run *const *but,
		     unsigned nbut, const struct kv_mt *but_mt);
/*
 * Keys of older runs that the tombstones of the @newer first ones among @run (newest first)
 * cover, about: garbage that a merge of them drops.
 */
uint64_t kv_tombs_garbage(struct kv_run *const *run, unsigned newer, unsigned n);

#endif
