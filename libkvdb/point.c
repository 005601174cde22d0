/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The point index: a table of b_point_bytes, one cache line per bucket, which says
 * where in the window lookups found the values of keys. A get that finds its key
 * here passes over filters, key pages and segments: it meets two lines, the bucket
 * and the record, instead of six, one after the other.
 *
 * Nothing is ever taken out. What is in it is what the runs of a tree answered,
 * under the generation of that tree's runs, and place and life of bytes in a slab:
 * another generation or another life is no match, and who finds none asks the runs.
 *
 * No locks. Who adds to a bucket that another thread changes lets it be.
 */
#include <sys/mman.h>

#include "pages.h"
#include "thread.h"

#define TAG_BITS	24
#define FETCH		512u	/* bytes of a record to prefetch; then the hardware follows */

static inline uint64_t key_of(const struct kv_tree *tr, uint64_t hash)
{
	return tr->tr_gen << TAG_BITS | hash >> (64 - TAG_BITS);
}

void kv_points_init(struct kvdb *db)
{
	db->d_points.po_mask = db->d_budget.b_point_bytes / sizeof(struct kv_point_bucket) - 1;
}

void kv_points_fini(struct kvdb *db)
{
	struct kv_point_bucket *pb = atomic_load(&db->d_points.po_bucket);

	if (pb)
		munmap(pb, db->d_budget.b_point_bytes);
}

uint64_t kv_points_bytes(struct kvdb *db)
{
	return atomic_load(&db->d_points.po_bucket) ? db->d_budget.b_point_bytes : 0;
}

/* The table, made now if need be; NULL: there is none. */
static struct kv_point_bucket *table(struct kvdb *db)
{
	struct kv_point_bucket *pb = atomic_load_explicit(&db->d_points.po_bucket,
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
	if (atomic_compare_exchange_strong(&db->d_points.po_bucket, &pb, mem))
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

bool kv_point_get(struct kvdb *db, const struct kv_tree *tr, const void *key, size_t klen,
		  uint64_t hash, struct kv_ent *e)
{
	struct kv_point_bucket *pb = atomic_load_explicit(&db->d_points.po_bucket,
							  memory_order_acquire);
	struct kv_tctx *tc = kv_tctx(db);
	const uint8_t *rec;
	uint64_t place;
	uint32_t life;

	if (!bucket_find(&pb[hash & db->d_points.po_mask], key_of(tr, hash), &place, &life))
		return false;
	rec = kv_slab_at(db, place, life);
	if (!rec)
		return false;
	for (unsigned at = 0; at < FETCH; at += KV_CACHELINE)
		__builtin_prefetch(rec + at);
	if (!CHECK(678, kv_rec_is_of(rec, key, klen)))
		return false;
	*e = (struct kv_ent){ .e_key = key, .e_klen = (uint16_t)klen, .e_kind = KV_ENT_NEAR,
			      .e_val = rec + kv_rec_val_off((uint32_t)klen),
			      .e_vlen = kv_rec_vlen(rec) };
	if (tc)
		kv_count(&tc->tc_point_hits, 1);
	return true;
}

/* FIFO; a key that is there keeps its place in it. */
static unsigned bucket_way(struct kv_point_bucket *pb, uint64_t key, uint32_t change)
{
	for (unsigned i = 0; i < KV_POINT_WAYS; i++)
		if (atomic_load_explicit(&pb->pb_key[i], memory_order_relaxed) == key)
			return i;
	return change / 2 % KV_POINT_WAYS;
}

static void bucket_set(struct kv_point_bucket *pb, uint64_t key, uint64_t place, uint32_t life)
{
	uint32_t change = atomic_load_explicit(&pb->pb_change, memory_order_relaxed);
	unsigned i;

	if (change & 1 ||
	    !atomic_compare_exchange_strong(&pb->pb_change, &change, change + 1))
		return;
	i = bucket_way(pb, key, change);
	/* release: whoever reads one of them sees that pb_change is odd */
	atomic_store_explicit(&pb->pb_key[i], key, memory_order_release);
	atomic_store_explicit(&pb->pb_place[i], place, memory_order_release);
	atomic_store_explicit(&pb->pb_life[i], life, memory_order_release);
	atomic_store_explicit(&pb->pb_change, change + 2, memory_order_release);
}

void kv_point_add(struct kvdb *db, const struct kv_tree *tr, const void *key, size_t klen,
		  uint64_t hash, const struct kv_ent *e)
{
	uint32_t val_off = kv_rec_val_off((uint32_t)klen), life;
	struct kv_point_bucket *pb;
	const uint8_t *image;
	uint64_t place;

	/* PI1, PI3 */
	if (e->e_kind != KV_ENT_REF || !e->e_vlen || e->e_pack || !CHECK(679, !e->e_expiry) ||
	    (uint64_t)e->e_off8 * 8 < val_off ||
	    (uint64_t)e->e_off8 * 8 + e->e_vlen > e->e_seg->sg_bytes)
		return;
	image = kv_slab_place(db, e->e_seg, &place, &life);
	if (!image || !kv_rec_is_of(image + (size_t)e->e_off8 * 8 - val_off, key, klen))
		return;
	pb = table(db);
	if (pb)
		bucket_set(&pb[hash & db->d_points.po_mask], key_of(tr, hash),
			   place + (uint64_t)e->e_off8 * 8 - val_off, life);
}
