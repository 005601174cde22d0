/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Deletes of many keys: tombstones that cover a prefix or a range. tindex.c
 * searches a fixed set of them, tomb.c is what a memtable knows; what all
 * sources of a tree say together: tree/tomb_view.h.
 */
#ifndef KV_TOMB_H
#define KV_TOMB_H

#include <stdbool.h>
#include <stddef.h>

#include "db/limbo.h"

struct kv_mt;
struct kv_resv;
struct kv_slot;
struct kv_trange;
struct kv_tslot;
struct kv_version;

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
		uint64_t tb_covered;	/* after it a range of the node is open */
		uint32_t tb_before;	/* tb_right in all blocks before */
	} *ti_bits;
	uint64_t ti_min_seq, ti_max_seq;
	size_t ti_bytes;
	void *ti_mem;			/* what the rows point into, freed with it; or NULL */
	struct kv_limbo ti_limbo;
};

/*
 * kv_tindex_new - index @n rows, which are copied; the keys that they point to are not
 * @mem: freed with the index (also when this fails); NULL: the keys are not its own
 * Prefixes have one length. @n > 0. NULL: no memory.
 */
struct kv_tindex *kv_tindex_new(const struct kv_trange *r, uint32_t n, void *mem);
void kv_tindex_free(struct kv_tindex *ti);
/* Newest seq <= @v of a row that covers the key; 0 = none. */
uint64_t kv_tindex_at(const struct kv_tindex *ti, const void *key, size_t klen, uint64_t v);
/* The same; *@steps grows by how many ends, stamps and nodes were looked at. */
uint64_t kv_tindex_find(const struct kv_tindex *ti, const void *key, size_t klen, uint64_t v,
			unsigned *steps);
/* A row is newer than @v and meets the range, which is no prefix. Looks at those newer than @v. */
bool kv_tindex_meets(const struct kv_tindex *ti, const struct kv_trange *r, uint64_t v);
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
/* One of a transaction, hidden until the slot is final. As kv_mt_tomb_add(). */
struct kv_tomb *kv_mt_tomb_link(struct kv_mt *mt, const struct kv_trange *r, struct kv_tslot *ts);
/* It names another slot, or none any more: then it is killed, too. */
void kv_mt_tomb_renew(struct kv_tomb *tb, struct kv_tslot *ts);
void kv_mt_tomb_unlink(struct kv_mt *mt, struct kv_tomb *tb);
/* The epoch of its record, before that is installed; its stamp, once that is known. */
void kv_mt_tomb_set_epoch(struct kv_tomb *tb, uint64_t epoch);
void kv_mt_tomb_set_seq(struct kv_tomb *tb, uint64_t seq);
/* Recovery: a tombstone with its stamp. */
int kv_mt_tomb_replay(struct kv_mt *mt, const struct kv_trange *r, uint64_t epoch);
/* Newest final stamp <= @v of a tombstone that covers the key; 0 = none. Inside kv_enter(). */
uint64_t kv_mt_tomb_at(struct kv_mt *mt, const void *key, size_t klen, uint64_t v);
bool kv_mt_has_tombs(const struct kv_mt *mt);
uint32_t kv_mt_tombs(const struct kv_mt *mt);
/* A live one covers the key and is newer than @view, or not stamped. Inside kv_enter(). */
bool kv_mt_tomb_conflict(struct kv_mt *mt, const void *key, size_t klen, uint64_t view);
/* The same of any key in a range that is no prefix. */
bool kv_mt_tomb_meets(struct kv_mt *mt, const struct kv_trange *r, uint64_t view);
void kv_mt_tombs_fini(struct kv_mt *mt);

/* Rows being collected. */
struct kv_trows {
	struct kv_trange *tv_r;
	uint32_t tv_n, tv_cap;
};
int kv_trows_add(struct kv_trows *tv, const struct kv_trange *r);
/* The final tombstones of a frozen memtable: 0 or -ENOMEM. */
int kv_trows_mt(struct kv_trows *tv, struct kv_mt *mt);

#endif
