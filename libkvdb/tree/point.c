/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The point index: a table of b_point_bytes, one cache line per bucket, which says
 * where in the window lookups found the values of keys. A get that finds its key
 * here passes over filters, key pages and segments: it meets two lines, the bucket
 * and the record, instead of six, one after the other.
 *
 * What is in it is what the runs of a tree answered, under the line of that tree,
 * and place and life of bytes in a slab: another line or another life is no match,
 * and a lookup that finds none asks the runs. A flush that knows its keys goes on with the
 * line: it says what each has become, and only then is its tree there. Meanwhile,
 * and for older trees from then on, nothing is found and nothing is added.
 *
 * No locks. A thread that adds to a bucket that another one changes gives up; a flush
 * waits for that thread, which is at its last few instructions.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tree/point.h"
#include "base/assert.h"
#include "base/guard.h"
#include "base/hash.h"
#include "db/db.h"
#include "db/thread.h"
#include "cache/slab.h"
#include "seg/kv_omf.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/memtable.h"
#include "tree/tree.h"

#define TAG_BITS	24
#define FETCH		512u	/* bytes of a record to prefetch; then the hardware follows */
#define AHEAD		16u	/* buckets that a flush prefetches */
#define NOWHERE		UINT64_MAX	/* kv_point_new.pn_place: what is remembered is to go */

static inline uint64_t key_of(uint64_t line, uint64_t hash)
{
	return line << TAG_BITS | hash >> (64 - TAG_BITS);
}

static inline bool is_turn_of(struct kvdb *db, const struct kv_tree *tr)
{
	return atomic_load(&db->d_trees.te_points.po_turn[tr->tr_slot]) == tr->tr_gen;
}

void kv_points_init(struct kvdb *db)
{
	db->d_trees.te_points.po_mask =
		db->d_budget.b_point_bytes / sizeof(struct kv_point_bucket) - 1;
}

void kv_points_fini(struct kvdb *db)
{
	struct kv_point_bucket *pb = atomic_load(&db->d_trees.te_points.po_bucket);

	if (pb)
		munmap(pb, db->d_budget.b_point_bytes);
}

uint64_t kv_points_bytes(struct kvdb *db)
{
	return atomic_load(&db->d_trees.te_points.po_bucket) ? db->d_budget.b_point_bytes : 0;
}

/* The table, made now if need be; NULL: there is none. */
static struct kv_point_bucket *table(struct kvdb *db)
{
	struct kv_point_bucket *pb = atomic_load_explicit(&db->d_trees.te_points.po_bucket,
							  memory_order_acquire);
	size_t bytes = db->d_budget.b_point_bytes;
	void *mem;

	if (KV_LIKELY(pb) || !bytes)
		return pb;
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mem == MAP_FAILED)
		return NULL;
	madvise(mem, bytes, MADV_HUGEPAGE);
	if (atomic_compare_exchange_strong(&db->d_trees.te_points.po_bucket, &pb, mem))
		return mem;
	munmap(mem, bytes);
	return pb;
}

static inline bool bucket_find(struct kv_point_bucket *pb, uint64_t key, uint64_t *place,
			       uint32_t *life)
{
	uint32_t change = atomic_load_explicit(&pb->pb_change, memory_order_acquire);

	for (unsigned i = 0; i < KV_POINT_WAYS; i++) {
		if (atomic_load_explicit(&pb->pb_key[i], memory_order_acquire) != key)
			continue;
		*place = atomic_load_explicit(&pb->pb_place[i], memory_order_acquire);
		*life = atomic_load_explicit(&pb->pb_life[i], memory_order_acquire);
		return !(change & 1) &&
		       atomic_load_explicit(&pb->pb_change, memory_order_relaxed) == change;
	}
	return false;
}

/* Where the record of a value is that may be remembered (PI1, PI3); NULL: it may not. */
static const uint8_t *ent_place(struct kvdb *db, const struct kv_ent *e, uint32_t klen,
				uint64_t *place, uint32_t *life)
{
	uint32_t val_off = kv_rec_val_off(klen);
	const uint8_t *image;
	uint64_t off;

	if (e->e_kind != KV_ENT_REF || !e->e_vlen || e->e_pack || !CHECK(!e->e_expiry) ||
	    (uint64_t)e->e_off8 * 8 < val_off ||
	    (uint64_t)e->e_off8 * 8 + e->e_vlen > e->e_seg->sg_bytes)
		return NULL;
	image = kv_slab_place(db, &e->e_seg->sg_image, place, life);
	if (!image)
		return NULL;
	off = (uint64_t)e->e_off8 * 8 - val_off;
	*place += off;
	return image + off;
}

const uint8_t *kv_point_seek(struct kvdb *db, const struct kv_tree *tr, uint64_t hash)
{
	struct kv_point_bucket *pb = atomic_load_explicit(&db->d_trees.te_points.po_bucket,
							  memory_order_acquire);
	const uint8_t *rec;
	uint64_t place;
	uint32_t life;

	KV_ASSERT_INSIDE();
	if (!bucket_find(&pb[hash & db->d_trees.te_points.po_mask], key_of(tr->tr_line, hash),
			 &place, &life))
		return NULL;
	/* after the words, which may be of a flush that came meanwhile */
	if (!CHECK(is_turn_of(db, tr)))
		return NULL;
	rec = kv_slab_at(db, place, life);
	for (unsigned at = 0; rec && at < FETCH; at += KV_CACHELINE)
		__builtin_prefetch(rec + at);
	return rec;
}

bool kv_point_ent(struct kvdb *db, const uint8_t *rec, const void *key, size_t klen,
		  struct kv_ent *e)
{
	struct kv_tctx *tc = kv_tctx(db);

	if (!CHECK(kv_rec_is_of(rec, key, klen)))
		return false;
	*e = (struct kv_ent){ .e_key = key, .e_klen = (uint16_t)klen, .e_kind = KV_ENT_INMEM,
			      .e_val = rec + kv_rec_val_off((uint32_t)klen),
			      .e_vlen = kv_rec_vlen(rec) };
	if (tc)
		kv_count(&tc->tc_point_hits, 1);
	return true;
}

static int bucket_way(const struct kv_point_bucket *pb, uint64_t key)
{
	for (int i = 0; i < (int)KV_POINT_WAYS; i++)
		if (atomic_load_explicit(&pb->pb_key[i], memory_order_relaxed) == key)
			return i;
	return -1;
}

/* Into a bucket that is the caller's. FIFO; a key that is there keeps its place in it. */
static void bucket_set(struct kv_point_bucket *pb, uint32_t change, uint64_t key, uint64_t place,
		       uint32_t life)
{
	int i = bucket_way(pb, key);

	KV_ASSERT_SLOW(atomic_load(&pb->pb_change) == change + 1 && !(change & 1));
	if (i < 0 && place == NOWHERE)
		return;
	if (i < 0)
		i = (int)(change / 2 % KV_POINT_WAYS);
	/* release: a thread that reads one of them sees that pb_change is odd */
	atomic_store_explicit(&pb->pb_key[i], place == NOWHERE ? 0 : key, memory_order_release);
	atomic_store_explicit(&pb->pb_place[i], place, memory_order_release);
	atomic_store_explicit(&pb->pb_life[i], life, memory_order_release);
}

void kv_point_add(struct kvdb *db, const struct kv_tree *tr, const void *key, size_t klen,
		  uint64_t hash, const struct kv_ent *e)
{
	uint32_t life, change;
	struct kv_point_bucket *pb;
	const uint8_t *image;
	uint64_t place;

	KV_ASSERT_INSIDE();
	image = ent_place(db, e, (uint32_t)klen, &place, &life);
	if (!image || !kv_rec_is_of(image, key, klen))
		return;
	pb = table(db);
	if (!pb)
		return;
	pb += hash & db->d_trees.te_points.po_mask;
	change = atomic_load_explicit(&pb->pb_change, memory_order_relaxed);
	if (change & 1 || !atomic_compare_exchange_strong(&pb->pb_change, &change, change + 1))
		return;
	/* in here: a flush changes po_turn, then waits for this bucket (PI5) */
	if (CHECK(is_turn_of(db, tr)))
		bucket_set(pb, change, key_of(tr->tr_line, hash), place, life);
	atomic_store_explicit(&pb->pb_change, change + 2, memory_order_release);
}

/* ---- what a flush brings ----------------------------------------------------------- */

void kv_point_news_begin(struct kvdb *db, const struct kv_mt *mt, struct kv_point_news *pn)
{
	uint64_t keys = kv_mt_keys(mt);

	*pn = (struct kv_point_news){ .pn_max = keys };
	if (!kv_points_bytes(db) || keys > db->d_trees.te_points.po_mask / 2)
		return;
	pn->pn_new = malloc((keys + 1) * sizeof(pn->pn_new[0]));
}

void kv_point_news_end(struct kv_point_news *pn)
{
	free(pn->pn_new);
	pn->pn_new = NULL;
}

void kv_point_news_add(struct kvdb *db, struct kv_point_news *pn, const struct kv_ent *e)
{
	struct kv_point_new *n;

	if (!pn->pn_new)
		return;
	if (pn->pn_n == pn->pn_max) {
		kv_point_news_end(pn);
		return;
	}
	n = &pn->pn_new[pn->pn_n++];
	n->pn_hash = kv_hash(e->e_key, e->e_klen);
	if (!ent_place(db, e, e->e_klen, &n->pn_place, &n->pn_life))
		n->pn_place = NOWHERE;
}

static uint32_t bucket_own(struct kv_point_bucket *pb)
{
	uint32_t change = atomic_load_explicit(&pb->pb_change, memory_order_relaxed);

	while (change & 1 ||
	       !atomic_compare_exchange_weak(&pb->pb_change, &change, change + 1)) {
		sched_yield();	/* its holder may have lost the processor */
		change = atomic_load_explicit(&pb->pb_change, memory_order_relaxed);
	}
	return change;
}

static void tell(struct kv_points *po, uint64_t line, const struct kv_point_news *pn)
{
	struct kv_point_bucket *bucket = atomic_load(&po->po_bucket);

	KV_ASSERT(pn->pn_n <= pn->pn_max);
	for (uint64_t i = 0; i < pn->pn_n; i++) {
		const struct kv_point_new *n = &pn->pn_new[i];
		struct kv_point_bucket *pb = &bucket[n->pn_hash & po->po_mask];
		uint32_t change;

		if (i + AHEAD < pn->pn_n)
			__builtin_prefetch(&bucket[n[AHEAD].pn_hash & po->po_mask], 1);
		change = bucket_own(pb);
		bucket_set(pb, change, key_of(line, n->pn_hash), n->pn_place, n->pn_life);
		atomic_store_explicit(&pb->pb_change, change + 2, memory_order_release);
	}
}

uint64_t kv_point_news_publish(struct kvdb_kvs *kvs, const struct kv_point_news *pn)
{
	struct kvdb *db = kvs->k_db;
	struct kv_tree *tr;
	uint64_t gen = 0;

	KV_ASSERT_HELD(&kvs->k_edit_lock);
	if (!pn->pn_new)
		return 0;
	tr = kv_tree_get(kvs);
	/* deletes of many keys, those of the memtable among them, do not say which */
	if (CHECK(!atomic_load(&tr->tr_tombs))) {
		gen = kv_run_gen(db);
		kv_points_advance(&db->d_trees.te_points, kvs->k_slot, gen);
		(void)BARRIER((tell(&db->d_trees.te_points, tr->tr_line, pn), 0));
	}
	kv_tree_put(db, tr);
	return gen;
}
