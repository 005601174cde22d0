/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Opening runs and looking keys up in them.
 *
 * In memory a run keeps, per key block, its range of keys, its segment table, and,
 * once it was needed (run_load.c), the CRCs and a top level of what else lies behind
 * the key pages. Filters, 1.25 bytes a key, and fences with an array of 8-byte heads
 * for the binary search and the CRCs of key pages, a fifth of a byte, are there too
 * while there is room (run_near.c), and else on pages of the pool. A lookup touches
 * one filter line, the heads, and one key page, which comes from the page pool.
 *
 * A run holds a reference on every segment that it refers to and a handle on
 * every object. No lock: a published run is immutable.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/key.h"
#include "base/trange.h"
#include "db/bell.h"
#include "db/db.h"
#include "db/limbo.h"
#include "cache/pages.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/tomb.h"
#include "run/filter.h"
#include "run/run.h"
#include "run/run_fence.h"
#include "run/run_filter.h"
#include "run/run_load.h"
#include "run/run_near.h"
#include "run/run_omf.h"

#define PAGE_HEAD	832u	/* bytes in front of the entries of a page of some 110 entries */
#define TAIL		8192u	/* bytes of a key block that an open reads: footer, and what fits */

/* ---- key blocks ------------------------------------------------------------------ */

static int find_segs(struct kvdb *db, struct kv_kblock *kb, uint32_t n, struct kv_seg *const *known)
{
	struct kv_kseg ks;

	kb->kb_segs = calloc(n ? n : 1, sizeof(struct kv_seg *));
	if (!kb->kb_segs)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		kv_kseg_decode(kb->kb_segtab + i * KV_KSEG_SIZE, &ks);
		KV_ASSERT(!known || known[i]->sg_id == ks.ks_id);
		kb->kb_segs[i] = known ? kv_seg_get(known[i]) : kv_seg_find(db, ks.ks_id);
		if (!CHECK(kb->kb_segs[i] != NULL))
			return kv_error(-EUCLEAN, "MP0960",
					"key block %llu: its segment %llu does not exist",
					(unsigned long long)kb->kb_id,
					(unsigned long long)ks.ks_id);
		kb->kb_nsegs = i + 1;
	}
	return 0;
}

/* An area that stays, into @at. */
static int area_copy(const struct kv_kfoot *f, const uint8_t *bytes, enum kv_karea area,
		     const char *what, uint8_t *at)
{
	const struct kv_area *a = &f->kf_area[area];

	if (!CHECK_CRC(mpool_crc32c(0, bytes, a->ar_len) == a->ar_crc))
		return kv_run_damaged(f->kf_obj, a->ar_off, what);
	memcpy(at, bytes, a->ar_len);
	return 0;
}

/* @segs: the object from its segment table on. */
static int index_copy(struct kv_kblock *kb, const struct kv_kfoot *f, const uint8_t *segs)
{
	const struct kv_area *a = &f->kf_area[KV_AREA_SEGS], *tombs = &f->kf_area[KV_AREA_PTOMB];
	size_t len = (size_t)a->ar_len + tombs->ar_len;
	int rc;

	kb->kb_index = malloc(len + 1);
	if (!kb->kb_index)
		return -ENOMEM;
	atomic_store(&kb->kb_mem, len);
	kb->kb_segtab = kb->kb_index;
	kb->kb_tombs = kb->kb_index + a->ar_len;
	kb->kb_tombs_len = tombs->ar_len;
	rc = area_copy(f, segs, KV_AREA_SEGS, "CRC of the segment table", kb->kb_index);
	if (!rc)
		rc = area_copy(f, segs + (tombs->ar_off - a->ar_off), KV_AREA_PTOMB,
			       "CRC of the prefix tombstones", kb->kb_index + a->ar_len);
	return rc;
}

static int range_copy(struct kv_kblock *kb, const struct kv_kfoot *f)
{
	kb->kb_min = malloc(f->kf_min_klen + f->kf_max_klen + 1u);
	if (!kb->kb_min)
		return -ENOMEM;
	kb->kb_max = kb->kb_min + f->kf_min_klen;
	kb->kb_min_klen = f->kf_min_klen;
	kb->kb_max_klen = f->kf_max_klen;
	memcpy(kb->kb_min, f->kf_min, f->kf_min_klen);
	memcpy(kb->kb_max, f->kf_max, f->kf_max_klen);
	return 0;
}

/* The areas that readers may ask the pool for. */
static void places_set(struct kv_kblock *kb, const struct kv_kfoot *f)
{
	const struct kv_area *a = f->kf_area;
	uint32_t filter = a[KV_AREA_FILTER].ar_len;
	uint32_t end = filter ? a[KV_AREA_FILTER].ar_off + filter :
		       a[KV_AREA_PAGECRC].ar_off + a[KV_AREA_PAGECRC].ar_len;

	kb->kb_npages = f->kf_npages;
	kb->kb_fence_off = a[KV_AREA_FENCE].ar_off;
	kb->kb_sep_len = a[KV_AREA_FENCE].ar_len - 4 * f->kf_npages;
	kb->kb_crc_off = a[KV_AREA_PAGECRC].ar_off;
	kb->kb_filter_off = a[KV_AREA_FILTER].ar_off;
	kb->kb_fblocks = filter / KV_FILTER_BLOCK;
	kb->kb_pages_end = f->kf_npages ? (end + KV_PAGE - 1) / KV_PAGE : 0;
	for (unsigned i = 0; i <= KV_AREA_FILTER; i++)
		kb->kb_area_crc[i] = a[i].ar_crc;
}

static int begin(struct kvdb *db, struct kv_kblock *kb, const struct kv_kfoot *f,
		 const uint8_t *segs, struct kv_seg *const *known)
{
	int rc = index_copy(kb, f, segs);

	if (!rc)
		rc = range_copy(kb, f);
	if (!rc)
		rc = find_segs(db, kb, f->kf_area[KV_AREA_SEGS].ar_len / KV_KSEG_SIZE, known);
	return rc;
}

/* All but what is loaded later. */
static int kblock_begin(struct kvdb *db, struct kv_kblock *kb, const struct kv_kfoot *f,
			const uint8_t *segs, struct kv_seg *const *known)
{
	int rc;

	KV_ASSERT(!kb->kb_index && !kb->kb_segs && !kv_kblock_is_loaded(kb));
	kb->kb_id = f->kf_obj;
	kb->kb_ntombs = f->kf_ntombs;
	kb->kb_expiring = f->kf_expiring;
	kb->kb_min_expiry = f->kf_min_expiry;
	kb->kb_max_expiry = f->kf_max_expiry;
	kb->kb_min_seq = f->kf_npages ? f->kf_min_seq : UINT64_MAX;
	places_set(kb, f);
	rc = begin(db, kb, f, segs, known);
	if (rc) {
		atomic_store(&kb->kb_mem, 0);
		return rc;
	}
	atomic_fetch_add(&kb->kb_mem, sizeof(*kb) + kb->kb_min_klen + kb->kb_max_klen +
				      kb->kb_nsegs * sizeof(*kb->kb_segs));
	atomic_fetch_add(&db->d_count.index_mem, atomic_load(&kb->kb_mem));
	return 0;
}

int kv_kblock_attach(struct kvdb *db, struct kv_kblock *kb, const struct kv_kfoot *f,
		     const uint8_t *index, struct kv_seg *const *known, struct kv_near_own *own)
{
	uint32_t segs = f->kf_area[KV_AREA_SEGS].ar_off - f->kf_npages * KV_PAGE;
	int rc = kblock_begin(db, kb, f, index + segs, known);

	if (!rc && kb->kb_npages)
		rc = kv_kblock_index(db, kb, index, own, false);
	return rc;
}

void kv_kblock_free(struct kvdb *db, struct kv_kblock *kb)
{
	for (uint32_t i = 0; i < kb->kb_nsegs; i++)
		kv_seg_put(db, kb->kb_segs[i]);
	free(kb->kb_segs);
	free(kb->kb_top);
	free(kb->kb_prefix);
	free(kb->kb_min);
	free(kb->kb_index);
	free(atomic_load(&kb->kb_page_crcs));
	kv_near_free(db, kb);
	atomic_fetch_sub(&db->d_count.index_mem, atomic_load(&kb->kb_mem));
	mpool_obj_close(kb->kb_obj);
}

/* @tail: its last TAIL bytes, read again once when the footer is not right. */
static int read_footer(struct kvdb *db, struct kv_kblock *kb, const struct kv_kblock_desc *d,
		       uint32_t kvs, uint8_t *tail, struct kv_kfoot *f)
{
	struct mpool_obj_info info;
	const char *bad;
	int rc = mpool_obj_info(kb->kb_obj, &info);

	if (rc)
		return kv_error_mpool(rc);
	if (!CHECK(d->kd_len % KV_PAGE == 0 && d->kd_len >= TAIL && d->kd_len <= KV_KBLOCK_MAX &&
		   d->kd_len <= info.length))
		return kv_run_damaged(d->kd_id, d->kd_len, "length in the version edit");
	for (int tries = 0; tries < 2; tries++) {
		rc = kv_dev_read(db, kb->kb_obj, KV_READ_KEY, d->kd_len - TAIL, tail, TAIL);
		if (rc)
			break;
		bad = kv_kfoot_decode(tail + TAIL - KV_PAGE, d->kd_crc, db->d_ident.id_tag,
				      d->kd_id, kvs, d->kd_len, f);
		if (!bad)
			break;
		rc = kv_run_damaged(d->kd_id, d->kd_len - KV_PAGE, bad);
	}
	return rc;
}

/* With the footer: segment table and tombstones, which most often lie in the tail. */
static int read_rest(struct kvdb *db, struct kv_kblock *kb, const struct kv_kfoot *f, uint32_t len,
		     const uint8_t *tail)
{
	uint32_t segs = f->kf_area[KV_AREA_SEGS].ar_off, from = segs / KV_PAGE * KV_PAGE;
	uint32_t end = len - KV_PAGE;
	uint8_t *more;
	int rc;

	if (segs >= len - TAIL)
		return kblock_begin(db, kb, f, tail + (segs - (len - TAIL)), NULL);
	more = aligned_alloc(KV_PAGE, end - from);
	if (!more)
		return -ENOMEM;
	rc = kv_dev_read(db, kb->kb_obj, KV_READ_KEY, from, more, end - from);
	if (!rc)
		rc = kblock_begin(db, kb, f, more + (segs - from), NULL);
	free(more);
	return rc;
}

static int kblock_open(struct kvdb *db, struct kv_kblock *kb, const struct kv_kblock_desc *d,
		       uint32_t kvs)
{
	struct kv_kfoot *f;
	uint8_t *tail;
	int rc = mpool_obj_open(db->d_mp, d->kd_id, &kb->kb_obj);

	if (rc) {
		kb->kb_obj = NULL;
		return rc == -ENOENT ? kv_run_damaged(d->kd_id, 0, "the object does not exist") :
				       kv_error_mpool(rc);
	}
	f = malloc(sizeof(*f));
	tail = aligned_alloc(KV_PAGE, TAIL);
	rc = f && tail ? read_footer(db, kb, d, kvs, tail, f) : -ENOMEM;
	if (!rc)
		rc = read_rest(db, kb, f, d->kd_len, tail);
	free(tail);
	free(f);
	return rc;
}

/* ---- runs ------------------------------------------------------------------------- */

struct kv_run *kv_run_new(uint32_t n)
{
	struct kv_run *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->rn_kb = calloc(n ? n : 1, sizeof(*r->rn_kb));
	r->rn_desc.rd_kb = calloc(n ? n : 1, sizeof(*r->rn_desc.rd_kb));
	if (!r->rn_kb || !r->rn_desc.rd_kb) {
		free(r->rn_kb);
		free(r->rn_desc.rd_kb);
		free(r);
		return NULL;
	}
	atomic_store(&r->rn_refs, 1);
	r->rn_n = n;
	return r;
}

void kv_run_measure(struct kvdb *db, struct kv_run *r)
{
	KV_ASSERT(!r->rn_mem);
	r->rn_mem = sizeof(*r) + (r->rn_tindex ? r->rn_tindex->ti_bytes : 0);
	r->rn_bytes = 0;
	r->rn_tombs = 0;
	r->rn_pages = 0;
	r->rn_min_seq = UINT64_MAX;
	for (uint32_t i = 0; i < r->rn_n; i++) {
		struct kv_kblock *kb = &r->rn_kb[i];

		kb->kb_run = r;
		r->rn_bytes += r->rn_desc.rd_kb[i].kd_len;
		r->rn_tombs += kb->kb_ntombs;
		r->rn_pages += kb->kb_npages;
		if (kb->kb_min_seq < r->rn_min_seq)
			r->rn_min_seq = kb->kb_min_seq;
	}
	atomic_fetch_add(&db->d_count.index_mem, r->rn_mem);
	kv_near_add(db, r);
}

static int block_tombs(const struct kv_kblock *kb, struct kv_trows *tv)
{
	struct kv_trange r;
	uint32_t size;
	int rc = 0;

	for (uint32_t pos = 0; pos < kb->kb_tombs_len && !rc; pos += size) {
		const char *bad = kv_ktomb_decode(kb->kb_tombs + pos, kb->kb_tombs_len - pos, &r,
						  &size);

		if (!bad && tv->tv_n &&
		    !CHECK(kv_trange_cmp(&tv->tv_r[tv->tv_n - 1], &r) <= 0))
			bad = "tombstone: order";
		/* prefixes come first and are found by their hash: they have one length */
		if (!bad && tv->tv_n && r.tr_flags & KV_TR_PREFIX &&
		    !CHECK(r.tr_flen == tv->tv_r[0].tr_flen))
			bad = "tombstone: prefix length";
		if (bad)
			return kv_run_damaged(kb->kb_id, pos, bad);
		rc = kv_trows_add(tv, &r);
	}
	return rc;
}

int kv_run_index_tombs(struct kv_run *r)
{
	struct kv_trows tv = { 0 };
	int rc = 0;

	KV_ASSERT(!r->rn_tindex && !r->rn_nkeyed);
	for (uint32_t i = 0; i < r->rn_n && !rc; i++) {
		const struct kv_kblock *kb = &r->rn_kb[i];

		/* the walk over keys ends at the first block without */
		if (!CHECK(!kb->kb_npages || r->rn_nkeyed == i))
			rc = kv_run_damaged(kb->kb_id, 0, "key block behind one without keys");
		r->rn_nkeyed += kb->kb_npages != 0;
		if (!rc)
			rc = block_tombs(kb, &tv);
	}
	if (!rc && tv.tv_n) {
		r->rn_tindex = kv_tindex_new(tv.tv_r, tv.tv_n, NULL);
		rc = r->rn_tindex ? 0 : -ENOMEM;
	}
	free(tv.tv_r);
	return rc;
}

void kv_run_free(struct kvdb *db, struct kv_run *r)
{
	KV_ASSERT(atomic_load(&r->rn_refs) <= 1);
	kv_trouble_end(db, &r->rn_trouble);
	kv_near_remove(db, r);
	for (uint32_t i = 0; i < r->rn_n; i++)
		kv_kblock_free(db, &r->rn_kb[i]);
	kv_tindex_free(r->rn_tindex);
	KV_ASSERT(atomic_load(&db->d_count.index_mem) >= r->rn_mem);
	atomic_fetch_sub(&db->d_count.index_mem, r->rn_mem);
	free(r->rn_kb);
	free(r->rn_desc.rd_kb);
	free(r);
}

int kv_run_open(struct kvdb *db, const struct kv_run_desc *d, struct kv_run **out)
{
	struct kv_kblock_desc *own;
	struct kv_run *r;
	int rc = 0;

	KV_ASSERT_OUTSIDE();
	if (!CHECK(d->rd_n && d->rd_n <= KV_RUN_KBLOCKS_MAX))
		return kv_error(-EUCLEAN, "MP0960", "run %llu: %u key blocks",
				(unsigned long long)d->rd_id, d->rd_n);
	r = kv_run_new(d->rd_n);
	if (!r)
		return -ENOMEM;
	for (uint32_t i = 0; i < d->rd_n && !rc; i++) {
		const struct kv_kblock *kb = &r->rn_kb[i], *prev = kb - 1;

		rc = kblock_open(db, &r->rn_kb[i], &d->rd_kb[i], d->rd_kvs);
		if (!rc && i && kb->kb_npages &&
		    !CHECK(kv_kcmp(prev->kb_max, prev->kb_max_klen, kb->kb_min,
				   kb->kb_min_klen) < 0))
			rc = kv_run_damaged(kb->kb_id, 0, "keys overlap those of the block before");
	}
	if (!rc)
		rc = kv_run_index_tombs(r);
	if (rc) {
		kv_run_free(db, r);
		return rc;
	}
	own = r->rn_desc.rd_kb;
	memcpy(own, d->rd_kb, d->rd_n * sizeof(*own));
	r->rn_desc = *d;
	r->rn_desc.rd_kb = own;
	kv_run_measure(db, r);
	*out = r;
	return 0;
}

void kv_run_blame(struct kvdb *db, struct kv_run *r, int err)
{
	struct kvdb_kvs *kvs = kv_kvs_by_id(db, r->rn_desc.rd_kvs);

	kv_trouble_set(db, &r->rn_trouble, err, "run %llu of store %s",
		       (unsigned long long)r->rn_desc.rd_id, kvs ? kvs->k_name : "");
}

struct kv_run *kv_run_get_ref(struct kv_run *r)
{
	KV_ASSERT(atomic_load_explicit(&r->rn_refs, memory_order_relaxed));
	atomic_fetch_add_explicit(&r->rn_refs, 1, memory_order_relaxed);
	return r;
}

/*
 * Adds the deletion of a block to a batch. One that was never committed is no object yet: it goes
 * with its handle, and a batch that names it fails.
 */
static int delete_add(struct kvdb *db, const struct kv_kblock *kb, struct mpool_op *op, unsigned *n)
{
	struct mpool_obj_info oi;
	int err = mpool_obj_info(kb->kb_obj, &oi);

	kv_page_purge(db, kb->kb_id, kb->kb_pages_end);
	if (!err && oi.flags & MPOOL_OBJ_COMMITTED)
		op[(*n)++] = (struct mpool_op){ .type = MPOOL_OP_DELETE, .obj = kb->kb_obj,
						.id = kb->kb_id };
	return err;
}

int kv_runs_delete(struct kvdb *db, struct kv_run *const *run, unsigned n)
{
	struct mpool_op op[64];
	unsigned from = 0;
	int err = 0;

	KV_ASSERT_OUTSIDE();
	while (from < n && !err) {
		unsigned k = from, nop = 0;
		uint32_t i = run[k]->rn_ndeleted;

		while (k < n && nop < 64 && !err) {
			KV_ASSERT(!atomic_load(&run[k]->rn_refs));
			if (i < run[k]->rn_n)
				err = delete_add(db, &run[k]->rn_kb[i++], op, &nop);
			else if (++k < n)
				i = run[k]->rn_ndeleted;
		}
		if (!err && nop)
			err = mpool_batch(db->d_mp, op, nop);
		if (err)
			break;
		for (; from < k; from++)
			run[from]->rn_ndeleted = run[from]->rn_n;
		if (from < n)
			run[from]->rn_ndeleted = i;
	}
	return err;
}

void kv_run_doom(struct kvdb *db, struct kv_run *r)
{
	KV_ASSERT(!atomic_load(&r->rn_refs) && atomic_load(&r->rn_dropped));
	r->rn_next = atomic_load(&db->d_runs.ru_doomed);
	while (!atomic_compare_exchange_weak(&db->d_runs.ru_doomed, &r->rn_next, r))
		;
}

/*
 * The last reference may go anywhere, in a reader's reclamation too: deleting
 * objects is I/O and waits for kv_runs_reap().
 */
void kv_run_put(struct kvdb *db, struct kv_run *r)
{
	KV_ASSERT(!r || atomic_load_explicit(&r->rn_refs, memory_order_relaxed));
	if (!r || atomic_fetch_sub_explicit(&r->rn_refs, 1, memory_order_acq_rel) != 1)
		return;
	if (!atomic_load(&r->rn_dropped) || db->d_mode.md_rdonly) {
		kv_run_free(db, r);
		return;
	}
	kv_run_doom(db, r);
	kv_work_kick(db);
}

void kv_runs_fini(struct kvdb *db)
{
	struct kv_run *r, *next;

	for (r = atomic_exchange(&db->d_runs.ru_doomed, NULL); r; r = next) {
		next = r->rn_next;
		kv_run_free(db, r);
	}
}

void kv_run_drop(struct kv_run *r)
{
	KV_ASSERT(atomic_load(&r->rn_refs) && !atomic_load(&r->rn_dropped));
	atomic_store(&r->rn_dropped, true);
}

struct kv_run_desc *kv_run_desc(struct kv_run *r)
{
	return &r->rn_desc;
}

struct mpool_obj *kv_run_obj(struct kv_run *r, uint32_t i)
{
	return i < r->rn_n ? r->rn_kb[i].kb_obj : NULL;
}

void kv_run_segs(struct kv_run *r,
		 void (*fn)(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes), void *arg)
{
	struct kv_kseg ks;

	for (uint32_t i = 0; i < r->rn_n; i++) {
		const struct kv_kblock *kb = &r->rn_kb[i];

		for (uint32_t j = 0; j < kb->kb_nsegs; j++) {
			kv_kseg_decode(kb->kb_segtab + j * KV_KSEG_SIZE, &ks);
			fn(arg, kb->kb_segs[j], ks.ks_n, ks.ks_bytes);
		}
	}
}

uint64_t kv_run_index_bytes(const struct kv_run *r)
{
	uint64_t n = r->rn_mem;

	for (uint32_t i = 0; i < r->rn_n; i++) {
		const struct kv_kblock *kb = &r->rn_kb[i];

		n += atomic_load(&kb->kb_mem) + kv_near_bytes(kb);
	}
	return n;
}

uint64_t kv_run_bytes(const struct kv_run *r)
{
	return r->rn_bytes;
}

/* ---- lookup ------------------------------------------------------------------------ */

int kv_run_route(const struct kv_run *r, const uint8_t *key, size_t klen)
{
	uint32_t lo = 0, hi = r->rn_nkeyed;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;
		const struct kv_kblock *kb = &r->rn_kb[mid];

		if (kv_kcmp(kb->kb_min, kb->kb_min_klen, key, klen) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return (int)lo - 1;
}

/* Number of heads in [0, n) that are < @h, or <= @h when @upto. Compiles without branches. */
static inline uint32_t heads_below(const uint64_t *heads, uint32_t n, uint64_t h, bool upto)
{
	const uint64_t *base = heads;

	while (n > 1) {
		uint32_t half = n / 2;

		base += (upto ? base[half - 1] <= h : base[half - 1] < h) ? half : 0;
		n -= half;
	}
	return (uint32_t)(base - heads) + (n && (upto ? *base <= h : *base < h));
}

/* Among separators with the head of the key, of which @lo is the first: they are compared whole. */
static __attribute__((noinline)) uint32_t page_tied(const struct kv_kblock *kb, const uint8_t *mem,
						    uint32_t lo, const uint8_t *key, size_t klen)
{
	const uint64_t *heads = (const uint64_t *)mem;
	struct kv_fences fe = kv_fences_in(kb, mem);
	uint32_t hi = lo + heads_below(heads + lo, kb->kb_npages - lo, heads[lo], true);

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;
		size_t len;
		const uint8_t *sep = kv_fence_sep(&fe, mid, &len);

		if (kv_kcmp(sep, len, key, klen) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo - 1;
}

/* With the fences at @mem. */
static inline uint32_t page_near(const struct kv_kblock *kb, const uint8_t *mem, const uint8_t *key,
				 size_t klen)
{
	size_t m = klen < kb->kb_plen ? klen : kb->kb_plen;
	const uint64_t *heads = (const uint64_t *)mem;
	uint32_t np = kb->kb_npages, lo;
	uint64_t h;
	int c;

	if (np == 1)
		return 0;
	c = memcmp(key, kb->kb_prefix, m);
	if (c < 0 || (!c && klen < kb->kb_plen))
		return 0;
	if (c > 0)
		return np - 1;
	h = kv_head8(key + kb->kb_plen, klen - kb->kb_plen);
	lo = 1 + heads_below(heads + 1, np - 1, h, false);
	return lo == np || heads[lo] != h ? lo - 1 : page_tied(kb, mem, lo, key, klen);
}

/* They were not in memory. */
static __attribute__((noinline)) int64_t page_far(struct kvdb *db, const struct kv_kblock *kb,
						  const uint8_t *key, size_t klen)
{
	int rc = kb->kb_npages == 1 ? 0 : kv_kblock_need(db, kb);
	const uint8_t *mem = atomic_load_explicit(&kb->kb_fences, memory_order_acquire);

	if (rc)
		return rc;
	return mem ? page_near(kb, mem, key, klen) : kv_fences_far(db, kb, key, klen);
}

static inline int64_t page_of(struct kvdb *db, const struct kv_kblock *kb, const uint8_t *key,
			      size_t klen)
{
	const uint8_t *mem = atomic_load_explicit(&kb->kb_fences, memory_order_acquire);

	if (KV_UNLIKELY(!mem))
		return page_far(db, kb, key, klen);
	return page_near(kb, mem, key, klen);
}

int64_t kv_kblock_page(struct kvdb *db, const struct kv_kblock *kb, const uint8_t *key,
		       size_t klen)
{
	return page_of(db, kb, key, klen);
}

/*
 * Number of key pages in front of the one that holds @key or would hold it; about, where fences
 * are not in memory. Inside kv_enter().
 */
static uint64_t pages_before(const struct kv_run *r, const uint8_t *key, size_t klen)
{
	int at = kv_run_route(r, key, klen);
	const struct kv_kblock *kb = &r->rn_kb[at];
	const uint8_t *mem;
	uint64_t n = 0;

	if (at < 0)
		return 0;
	for (int i = 0; i < at; i++)
		n += r->rn_kb[i].kb_npages;
	mem = atomic_load_explicit(&kb->kb_fences, memory_order_acquire);
	return n + (mem ? page_near(kb, mem, key, klen) : kv_fences_about(kb, key, klen));
}

uint64_t kv_run_pages_in(const struct kv_run *r, const struct kv_trange *tr)
{
	uint8_t end[KVDB_KEY_MAX];
	const uint8_t *to = tr->tr_to;
	const struct kv_kblock *last;
	uint16_t tlen = tr->tr_tlen;
	struct kv_thread *t;
	uint64_t from, until;

	if (!r->rn_nkeyed)
		return 0;
	last = &r->rn_kb[r->rn_nkeyed - 1];
	if (tr->tr_flags & KV_TR_ENDLESS)
		tlen = 0;
	if (tr->tr_flags & KV_TR_PREFIX) {
		tlen = kv_prefix_end(tr->tr_from, tr->tr_flen, end);
		to = end;
	}
	if (kv_kcmp(last->kb_max, last->kb_max_klen, tr->tr_from, tr->tr_flen) < 0 ||
	    (tlen && kv_kcmp(r->rn_kb[0].kb_min, r->rn_kb[0].kb_min_klen, to, tlen) >= 0))
		return 0;
	t = kv_enter();
	from = tr->tr_flen ? pages_before(r, tr->tr_from, tr->tr_flen) : 0;
	until = tlen ? pages_before(r, to, tlen) : r->rn_pages - 1;
	kv_exit(t);
	/* fences that leave in between make one end exact and the other not */
	return until > from ? until - from + 1 : 1;
}

uint64_t kv_run_keys_in(const struct kv_run *r, const struct kv_trange *tr)
{
	uint64_t pages = kv_run_pages_in(r, tr);

	/* half a page at each end */
	return pages ? (2 * pages - 1) * r->rn_desc.rd_keys / (2 * r->rn_pages) : 0;
}

uint64_t kv_run_expired(const struct kv_run *r, uint64_t now_ms)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < r->rn_nkeyed; i++) {
		const struct kv_kblock *kb = &r->rn_kb[i];

		if (!kb->kb_expiring || now_ms < kb->kb_min_expiry)
			continue;
		if (now_ms >= kb->kb_max_expiry)
			n += kb->kb_expiring;
		else	/* as if they were spread evenly */
			n += (uint64_t)((double)kb->kb_expiring *
					(double)(now_ms - kb->kb_min_expiry) /
					(double)(kb->kb_max_expiry - kb->kb_min_expiry));
	}
	return n;
}

int kv_kblock_ent(const struct kv_kblock *kb, uint32_t page, const struct kv_kent *k,
		  struct kv_ent *e)
{
	e->e_kind = k->ke_kind;
	e->e_pack = k->ke_pack;
	e->e_seq = k->ke_seq;
	e->e_expiry = k->ke_expiry;
	e->e_vlen = k->ke_vlen;
	e->e_vcrc = k->ke_vcrc;
	e->e_plen = k->ke_plen;
	e->e_pcrc = k->ke_pcrc;
	e->e_val = k->ke_val;
	e->e_off8 = 0;
	e->e_seg = NULL;
	if (k->ke_kind != KV_ENT_REF)
		return 0;
	if (!CHECK(k->ke_seg < kb->kb_nsegs))
		return kv_run_damaged(kb->kb_id, (uint64_t)page * KV_PAGE,
				      "key page: row of the segment table");
	e->e_off8 = k->ke_off8;
	e->e_seg = kb->kb_segs[k->ke_seg];
	return 0;
}

void kv_run_prefetch(struct kv_run *r, uint64_t hash)
{
	uint32_t n = r->rn_nkeyed < 8 ? r->rn_nkeyed : 8;

	for (uint32_t i = 0; i < n; i++) {
		const struct kv_kblock *kb = &r->rn_kb[i];
		const uint8_t *filter = atomic_load_explicit(&kb->kb_filter, memory_order_acquire);

		if (filter)
			__builtin_prefetch(kv_filter_block(filter, kb->kb_fblocks, hash));
	}
}

/* 0: the key may be in the block; -ENOENT, -EINPROGRESS. */
static int filter_ask_far(struct kvdb *db, struct kv_kblock *kb, uint64_t hash)
{
	const uint8_t *block;
	int rc = kv_kblock_need(db, kb);

	if (rc)
		return rc;
	rc = kv_filter_far(db, kb, hash, &block);
	return rc || !block || kv_filter_block_has(block, hash) ? rc : -ENOENT;
}

static inline int filter_ask(struct kvdb *db, struct kv_kblock *kb, uint64_t hash)
{
	const uint8_t *filter = atomic_load_explicit(&kb->kb_filter, memory_order_acquire);

	if (KV_UNLIKELY(!filter))
		return filter_ask_far(db, kb, hash);
	return kv_filter_block_has(kv_filter_block(filter, kb->kb_fblocks, hash), hash) ? 0 :
	       -ENOENT;
}

int kv_run_spot(struct kvdb *db, struct kv_run *r, const void *key, size_t klen, uint64_t hash,
		struct kv_spot *sp)
{
	int i = r->rn_nkeyed == 1 ? 0 : kv_run_route(r, key, klen), rc;
	struct kv_kblock *kb = &r->rn_kb[i];
	int64_t no;

	KV_ASSERT_INSIDE();
	if (i < 0)
		return -ENOENT;
	rc = filter_ask(db, kb, hash);
	if (rc)
		return rc;
	no = page_of(db, kb, key, klen);
	if (KV_UNLIKELY(no < 0))
		return (int)no;
	sp->sp_kb = kb;
	sp->sp_page = (uint32_t)no;
	return kv_kblock_crcs(db, kb, sp->sp_page, 1, &sp->sp_crc);
}

void kv_kpage_prefetch(const uint8_t *page)
{
	/* header, heads, offsets and tags: one wait for memory instead of four */
	for (unsigned at = 0; at < PAGE_HEAD; at += KV_CACHELINE)
		__builtin_prefetch(page + at);
}

int kv_spot_find(const struct kv_spot *sp, const uint8_t *page, const void *key, size_t klen,
		 uint64_t hash, struct kv_ent *e)
{
	const struct kv_kblock *kb = sp->sp_kb;
	struct kv_kpage kp;
	struct kv_kent ke;
	const char *bad = kv_kpage_decode(page, sp->sp_page, &kp);

	KV_ASSERT_SLOW(kv_is_inside() && sp->sp_page < kb->kb_npages);
	if (!bad && kv_kpage_find(&kp, key, klen, kv_hash_tag(hash), &ke, &bad) >= 0) {
		e->e_key = key;
		e->e_klen = (uint16_t)klen;
		return kv_kblock_ent(kb, sp->sp_page, &ke, e);
	}
	return bad ? kv_run_damaged(kb->kb_id, (uint64_t)sp->sp_page * KV_PAGE, bad) : -ENOENT;
}

int kv_run_lookup(struct kvdb *db, struct kv_run *r, const void *key, size_t klen, uint64_t hash,
		  struct kv_ent *e)
{
	int i = r->rn_nkeyed == 1 ? 0 : kv_run_route(r, key, klen), rc;
	struct kv_kblock *kb = &r->rn_kb[i];
	struct kv_kpage kp;
	struct kv_kent ke;
	const uint8_t *page;
	const char *bad;
	uint32_t no, crc;
	int64_t at;

	KV_ASSERT_INSIDE();
	if (i < 0)
		return -ENOENT;
	rc = filter_ask(db, kb, hash);
	if (rc)
		return rc;
	at = page_of(db, kb, key, klen);
	if (KV_UNLIKELY(at < 0))
		return (int)at;
	no = (uint32_t)at;
	page = kv_page_hit(db, kb->kb_id, no);
	if (!page) {	/* only then: its CRC and its object are lines of their own */
		rc = kv_kblock_crcs(db, kb, no, 1, &crc);
		if (!rc)
			rc = kv_pages_get(db, kb->kb_obj, no, 1, &crc, &page);
		if (rc)
			return rc;
	}
	/* header, heads, offsets and tags: one wait for memory instead of four */
	for (unsigned j = 0; j < PAGE_HEAD; j += KV_CACHELINE)
		__builtin_prefetch(page + j);
	bad = kv_kpage_decode(page, no, &kp);
	if (!bad && kv_kpage_find(&kp, key, klen, kv_hash_tag(hash), &ke, &bad) >= 0) {
		e->e_key = key;
		e->e_klen = (uint16_t)klen;
		return kv_kblock_ent(kb, no, &ke, e);
	}
	return bad ? kv_run_damaged(kb->kb_id, (uint64_t)no * KV_PAGE, bad) : -ENOENT;
}
