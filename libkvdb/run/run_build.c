/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Building of runs from an ascending stream of entries. One key block is made
 * at a time, completely in memory (at most b_kblock_bytes), and written when
 * it is full: then its exact size is known, so nothing is allocated in vain,
 * and the index that readers need is at hand.
 *
 * A builder belongs to one thread; no locks. It holds a reference on every
 * segment that the current block refers to; finished blocks hold their own.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/hash.h"
#include "base/key.h"
#include "base/trange.h"
#include "base/vec.h"
#include "db/db.h"
#include "db/hooks.h"
#include "db/policy.h"
#include "db/waits.h"
#include "cache/pages.h"
#include "seg/reserve.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "run/filter.h"
#include "run/run.h"
#include "run/run_near.h"
#include "run/run_omf.h"

#define BLOCK_MIN	(256u << 10)
#define BLOCK_GROWN	(16u << 20)	/* blocks of large runs, whatever the budget says */
/* small: readers of the device wait for it (p99.9 of reads 6.0 instead of 10.1 ms) */
#define WRITE_PIECE	(128u << 10)
#define KEY_BYTES	48u		/* of a key on media, for estimates */
#define BLOCKS_WANTED	512u		/* a run fits in one atomic batch with room to spare */

struct kv_run_build {
	struct kvdb *rb_db;
	uint32_t rb_kvs;
	bool rb_urgent, rb_has_asked;
	uint8_t rb_mclass;
	uint32_t rb_limit;		/* bytes of a block, at most */
	uint8_t *rb_buf;		/* rb_limit bytes: pages, areas, footer */

	/* the current block */
	uint32_t rb_npages;
	uint32_t rb_nkeys, rb_keys_cap;
	uint64_t *rb_hash;		/* of every key */
	uint32_t *rb_end, *rb_crc;	/* per page; rb_pages_cap */
	uint32_t rb_pages_cap;
	uint8_t *rb_sep;		/* separators back to back */
	uint32_t rb_sep_used, rb_sep_cap;
	struct kv_seg **rb_seg;		/* rb_nsegs, with references */
	struct kv_kseg *rb_row;
	uint32_t rb_nsegs, rb_segs_cap;
	uint32_t *rb_map;		/* row + 1 by segment, open addressing */
	uint32_t rb_map_size;		/* power of two */
	struct kv_kfoot rb_foot;	/* counts and ranges so far */
	uint16_t rb_first_klen, rb_last_klen, rb_prev_klen;
	uint8_t rb_first[KVDB_KEY_MAX];	/* of the page */
	uint8_t rb_last[KVDB_KEY_MAX];	/* added last */
	uint8_t rb_prev[KVDB_KEY_MAX];	/* last of the page before */

	/* finished blocks */
	struct kv_kblock *rb_kb;
	struct kv_kblock_desc *rb_desc;
	uint32_t rb_n, rb_n_cap, rb_d_cap;
	uint64_t rb_keys, rb_min_seq, rb_max_seq;
	struct kv_near_own rb_near;

	/* tombstones over many keys, encoded; the first of them go into the current block */
	uint8_t *rb_tomb;
	uint32_t rb_tomb_len, rb_tomb_done, rb_tomb_here;

	struct kv_kpb rb_page;
};

/* Those that the current block takes: a quarter of its bytes, but one at least. */
static void tombs_choose(struct kv_run_build *rb)
{
	uint32_t room = rb->rb_limit / 4, size = 0;
	struct kv_trange r;

	rb->rb_tomb_here = 0;
	while (rb->rb_tomb_done + rb->rb_tomb_here < rb->rb_tomb_len) {
		uint32_t pos = rb->rb_tomb_done + rb->rb_tomb_here;
		const char *bad = kv_ktomb_decode(rb->rb_tomb + pos, rb->rb_tomb_len - pos, &r,
						  &size);

		KV_ASSERT(!bad);
		if (rb->rb_tomb_here && rb->rb_tomb_here + size > room)
			break;
		rb->rb_tomb_here += size;
	}
}

static void block_reset(struct kv_run_build *rb)
{
	for (uint32_t i = 0; i < rb->rb_nsegs; i++)
		kv_seg_put(rb->rb_db, rb->rb_seg[i]);
	rb->rb_nsegs = 0;
	rb->rb_npages = 0;
	rb->rb_nkeys = 0;
	rb->rb_sep_used = 0;
	if (rb->rb_map)
		memset(rb->rb_map, 0, rb->rb_map_size * sizeof(*rb->rb_map));
	tombs_choose(rb);
	rb->rb_foot.kf_min_klen = 0;
	rb->rb_foot.kf_expiring = 0;
	rb->rb_foot.kf_min_expiry = rb->rb_foot.kf_max_expiry = 0;
	rb->rb_foot.kf_ntombs = 0;
	rb->rb_foot.kf_live_bytes = 0;
	rb->rb_foot.kf_min_seq = UINT64_MAX;
	rb->rb_foot.kf_max_seq = 0;
}

int kv_run_build_open(struct kvdb *db, uint32_t kvs, uint64_t keys_estimate, bool urgent,
		      struct kv_run_build **out)
{
	struct kv_run_build *rb = calloc(1, sizeof(*rb));
	uint64_t want = keys_estimate * KEY_BYTES / BLOCKS_WANTED;

	if (!rb)
		return -ENOMEM;
	rb->rb_db = db;
	rb->rb_kvs = kvs;
	rb->rb_urgent = urgent;
	rb->rb_mclass = kv_policy_key_class(db, kv_kvs_by_id(db, kvs));
	rb->rb_limit = db->d_budget.b_kblock_bytes;
	if (want > BLOCK_GROWN)
		want = BLOCK_GROWN;
	if (want > rb->rb_limit)
		rb->rb_limit = (uint32_t)want;
	if (rb->rb_limit < BLOCK_MIN)
		rb->rb_limit = BLOCK_MIN;
	rb->rb_limit = (rb->rb_limit + KV_PAGE - 1) & ~(KV_PAGE - 1);
	rb->rb_min_seq = UINT64_MAX;
	rb->rb_buf = mmap(NULL, rb->rb_limit, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	if (rb->rb_buf == MAP_FAILED) {
		free(rb);
		return -ENOMEM;
	}
	block_reset(rb);
	*out = rb;
	return 0;
}

/* As block_tombs() in run_read.c wants them. */
static bool rows_ascend(const struct kv_trange *r, uint32_t n)
{
	uint32_t i;

	for (i = 1; i < n && kv_trange_cmp(&r[i - 1], &r[i]) <= 0; i++)
		;
	return i >= n;
}

int kv_run_build_tombs(struct kv_run_build *rb, const struct kv_trange *r, uint32_t n)
{
	uint64_t len = 0;
	uint32_t pos = 0;

	KV_ASSERT(!rb->rb_tomb && !(rb->rb_nkeys | rb->rb_n | rb->rb_page.pb_n));
	for (uint32_t i = 0; i < n; i++)
		len += kv_ktomb_size(&r[i]);
	if (len > UINT32_MAX)
		return kv_error(-EFBIG, "MP0992",
				"store %u: %u range deletes are too many for a run", rb->rb_kvs, n);
	if (!n)
		return 0;
	rb->rb_tomb = malloc(len);
	if (!rb->rb_tomb)
		return -ENOMEM;
	KV_ASSERT_SLOW(rows_ascend(r, n));
	for (uint32_t i = 0; i < n; i++) {
		kv_ktomb_encode(&r[i], rb->rb_tomb + pos);
		pos += kv_ktomb_size(&r[i]);
	}
	rb->rb_tomb_len = pos;
	tombs_choose(rb);
	return 0;
}

static void build_free(struct kv_run_build *rb)
{
	block_reset(rb);
	free(rb->rb_tomb);
	munmap(rb->rb_buf, rb->rb_limit);
	free(rb->rb_hash);
	free(rb->rb_end);
	free(rb->rb_crc);
	free(rb->rb_sep);
	free(rb->rb_seg);
	free(rb->rb_row);
	free(rb->rb_map);
	free(rb->rb_kb);
	free(rb->rb_desc);
	free(rb->rb_page.pb_bytes);
	free(rb);
}

void kv_run_build_abort(struct kv_run_build *rb)
{
	if (!rb)
		return;
	for (uint32_t i = 0; i < rb->rb_n; i++) {
		kv_page_purge(rb->rb_db, rb->rb_kb[i].kb_id, rb->rb_kb[i].kb_pages_end);
		kv_kblock_free(rb->rb_db, &rb->rb_kb[i]);
	}
	build_free(rb);
}

/* ---- segment table of the current block ------------------------------------------- */

static uint32_t *map_slot(uint32_t *map, uint32_t size, struct kv_seg *const *segs,
			  const struct kv_seg *s)
{
	uint32_t i = (uint32_t)kv_mix(s->sg_id) & (size - 1);

	while (map[i] && segs[map[i] - 1] != s)
		i = (i + 1) & (size - 1);
	return &map[i];
}

/* Row of @s, or the row it would get. */
static uint32_t seg_row(const struct kv_run_build *rb, const struct kv_seg *s)
{
	uint32_t row = 0;

	if (rb->rb_map)
		row = *map_slot(rb->rb_map, rb->rb_map_size, rb->rb_seg, s);
	return row ? row - 1 : rb->rb_nsegs;
}

static int map_grow(struct kv_run_build *rb)
{
	uint32_t size = rb->rb_map_size ? rb->rb_map_size * 2 : 256;
	uint32_t *map = calloc(size, sizeof(*map));

	KV_ASSERT(rb->rb_nsegs < size);
	if (!map)
		return -ENOMEM;
	for (uint32_t i = 0; i < rb->rb_nsegs; i++)
		*map_slot(map, size, rb->rb_seg, rb->rb_seg[i]) = i + 1;
	free(rb->rb_map);
	rb->rb_map = map;
	rb->rb_map_size = size;
	return 0;
}

static int seg_note(struct kv_run_build *rb, struct kv_seg *s, uint32_t vlen)
{
	uint32_t row, cap = rb->rb_segs_cap;
	int rc = 0;

	if (2 * (rb->rb_nsegs + 1) > rb->rb_map_size)
		rc = map_grow(rb);
	if (rc)
		return rc;
	row = seg_row(rb, s);
	if (row == rb->rb_nsegs) {
		rc = kv_vec_grow(&rb->rb_seg, &cap, row + 1, sizeof(*rb->rb_seg));
		if (!rc)
			rc = kv_vec_grow(&rb->rb_row, &rb->rb_segs_cap, row + 1,
					 sizeof(*rb->rb_row));
		if (rc)
			return rc;
		rb->rb_seg[row] = kv_seg_get(s);
		rb->rb_row[row] = (struct kv_kseg){ .ks_id = s->sg_id };
		rb->rb_nsegs++;
		*map_slot(rb->rb_map, rb->rb_map_size, rb->rb_seg, s) = row + 1;
	}
	rb->rb_row[row].ks_n++;
	rb->rb_row[row].ks_bytes += vlen;
	return 0;
}

/* ---- writing a block ------------------------------------------------------------------ */

static uint32_t align64(uint32_t n)
{
	return (n + 63) & ~63u;
}

/* Bytes of a block with these counts, areas aligned to 64, footer included. */
static uint64_t block_bytes(const struct kv_run_build *rb, uint64_t pages, uint64_t keys,
			    uint64_t sep, uint64_t segs)
{
	uint64_t n = pages * 4 + sep + pages * 4 + kv_filter_bytes(keys) + segs * KV_KSEG_SIZE +
		     rb->rb_tomb_here + KV_AREAS * 64;

	return pages * KV_PAGE + ((n + KV_PAGE - 1) & ~(uint64_t)(KV_PAGE - 1)) + KV_PAGE;
}

static void area_set(struct kv_run_build *rb, enum kv_karea a, uint32_t off, uint32_t len)
{
	KV_ASSERT((uint64_t)off + len + KV_PAGE <= rb->rb_limit);
	rb->rb_foot.kf_area[a] = (struct kv_area){
		.ar_off = off, .ar_len = len, .ar_crc = mpool_crc32c(0, rb->rb_buf + off, len),
	};
}

/* Lays the areas after the pages; returns where the footer goes. */
static uint32_t lay_areas(struct kv_run_build *rb)
{
	uint32_t off = rb->rb_npages * KV_PAGE, np = rb->rb_npages;
	uint32_t end = (uint32_t)block_bytes(rb, np, rb->rb_nkeys, rb->rb_sep_used,
					     rb->rb_nsegs) - KV_PAGE;
	uint32_t len = (uint32_t)kv_filter_bytes(rb->rb_nkeys);
	uint8_t *b = rb->rb_buf;

	KV_ASSERT(end + (uint64_t)KV_PAGE <= rb->rb_limit && rb->rb_nsegs <= KV_KBLOCK_SEGS_MAX);
	memset(b + off, 0, end - off);
	for (uint32_t i = 0; i < np; i++)
		kv_le32_set(b + off + 4 * i, rb->rb_end[i]);
	if (rb->rb_sep_used)
		memcpy(b + off + 4 * np, rb->rb_sep, rb->rb_sep_used);
	area_set(rb, KV_AREA_FENCE, off, 4 * np + rb->rb_sep_used);
	off = align64(off + 4 * np + rb->rb_sep_used);
	for (uint32_t i = 0; i < np; i++)
		kv_le32_set(b + off + 4 * i, rb->rb_crc[i]);
	area_set(rb, KV_AREA_PAGECRC, off, 4 * np);
	off = align64(off + 4 * np);
	for (uint32_t i = 0; i < rb->rb_nkeys; i++)
		kv_filter_add(b + off, len / KV_FILTER_BLOCK, rb->rb_hash[i]);
	area_set(rb, KV_AREA_FILTER, off, len);
	off += len;
	for (uint32_t i = 0; i < rb->rb_nsegs; i++)
		kv_kseg_encode(&rb->rb_row[i], b + off + i * KV_KSEG_SIZE);
	area_set(rb, KV_AREA_SEGS, off, rb->rb_nsegs * KV_KSEG_SIZE);
	off = align64(off + rb->rb_nsegs * KV_KSEG_SIZE);
	if (rb->rb_tomb_here)
		memcpy(b + off, rb->rb_tomb + rb->rb_tomb_done, rb->rb_tomb_here);
	area_set(rb, KV_AREA_PTOMB, off, rb->rb_tomb_here);
	off = align64(off + rb->rb_tomb_here);
	area_set(rb, KV_AREA_SPARE, off, 0);
	KV_ASSERT(off <= end);
	return end;
}

static int block_write(struct kv_run_build *rb, struct mpool_obj *obj, uint32_t len)
{
	struct mpool_obj_info info;
	int rc = mpool_obj_info(obj, &info);
	uint64_t began = kv_wait_begin();

	KV_ASSERT_OUTSIDE();
	KV_ASSERT(len % KV_PAGE == 0 && len <= rb->rb_limit);
	for (uint32_t off = 0; off < len && !rc; off += WRITE_PIECE) {
		struct iovec iov = { .iov_base = rb->rb_buf + off,
				     .iov_len = len - off < WRITE_PIECE ? len - off : WRITE_PIECE };

		rc = mpool_write(obj, off, &iov, 1);
	}
	kv_wait_end(KVDB_DELAY_MEDIA, began);
	if (rc)
		return kv_error_mpool(rc);
	atomic_fetch_add_explicit(&rb->rb_db->d_count.key_bytes[info.mclass], len,
				  memory_order_relaxed);
	return 0;
}

struct want {
	struct kv_run_build *wa_rb;
	uint32_t wa_len;
	struct mpool_obj **wa_out;
};

static int block_take(void *arg, bool urgent)
{
	struct want *wa = arg;
	struct kv_run_build *rb = wa->wa_rb;
	struct mpool_alloc req = {
		.kind = MPOOL_MBLOCK,
		.mclass = kv_space_class(rb->rb_db, rb->rb_mclass, wa->wa_len),
		.flags = MPOOL_ALLOC_ANY | (rb->rb_urgent ? MPOOL_ALLOC_SPARE : 0),
		.capacity = wa->wa_len,
		.tag = rb->rb_db->d_ident.id_tag,
	};
	struct kv_space_left left;
	uint64_t began;
	int rc;

	(void)urgent;
	kv_space_left(rb->rb_db, &left);
	/* a block lies in one class: one with so much above its reserve, if there is one */
	if (!rb->rb_urgent && left.sl_spare[req.mclass] < wa->wa_len)
		return kv_error(-ENOSPC, "MP0955",
				"the pool is full: what is left is kept for deletes and flushes");
	began = kv_wait_begin();
	rc = mpool_alloc(rb->rb_db->d_mp, &req, 1, wa->wa_out);
	kv_wait_end(KVDB_DELAY_MEDIA, began);
	return rc ? kv_error_mpool(rc) : 0;
}

/* R19: what frees no space has room made first, once, and leaves the reserve. */
static int block_alloc(struct kv_run_build *rb, uint32_t len, struct mpool_obj **out)
{
	struct want wa = { rb, len, out };
	int rc = block_take(&wa, false);

	KV_ASSERT_OUTSIDE();
	if (rc != -ENOSPC || rb->rb_urgent || rb->rb_has_asked)
		return rc;
	rb->rb_has_asked = true;
	return rb->rb_db->d_hooks->ho_space_take(rb->rb_db, false, block_take, &wa);
}

/* The block's place in the lists of finished blocks. */
static int block_place(struct kv_run_build *rb, struct kv_kblock **kb)
{
	int rc;

	if (rb->rb_n == KV_RUN_KBLOCKS_MAX)
		return kv_error(-EFBIG, "MP0992", "a run of store %u needs more than %u key blocks",
				rb->rb_kvs, KV_RUN_KBLOCKS_MAX);
	rc = kv_vec_grow(&rb->rb_kb, &rb->rb_n_cap, rb->rb_n + 1, sizeof(*rb->rb_kb));
	if (!rc)
		rc = kv_vec_grow(&rb->rb_desc, &rb->rb_d_cap, rb->rb_n + 1, sizeof(*rb->rb_desc));
	if (rc)
		return rc;
	*kb = &rb->rb_kb[rb->rb_n];
	memset(*kb, 0, sizeof(**kb));
	return 0;
}

/* The greatest seq is of anything, the smallest of keys' entries when there are any. */
static void tombs_count(struct kv_run_build *rb)
{
	struct kv_kfoot *f = &rb->rb_foot;
	struct kv_trange r;
	uint32_t size = 0;

	for (uint32_t pos = 0; pos < rb->rb_tomb_here; pos += size) {
		kv_ktomb_decode(rb->rb_tomb + rb->rb_tomb_done + pos, rb->rb_tomb_len, &r, &size);
		if (r.tr_seq > f->kf_max_seq)
			f->kf_max_seq = r.tr_seq;
		if (!rb->rb_nkeys && r.tr_seq < f->kf_min_seq)
			f->kf_min_seq = r.tr_seq;
	}
}

static void foot_fill(struct kv_run_build *rb, uint64_t obj)
{
	struct kv_kfoot *f = &rb->rb_foot;

	f->kf_tag = rb->rb_db->d_ident.id_tag;
	f->kf_obj = obj;
	f->kf_kvs = rb->rb_kvs;
	f->kf_npages = rb->rb_npages;
	f->kf_nkeys = rb->rb_nkeys;
	f->kf_max_klen = rb->rb_nkeys ? rb->rb_last_klen : 0;
	memcpy(f->kf_max, rb->rb_last, f->kf_max_klen);
	tombs_count(rb);
	KV_ASSERT(f->kf_min_seq <= f->kf_max_seq && f->kf_expiring <= f->kf_nkeys &&
		f->kf_ntombs <= f->kf_nkeys && f->kf_min_expiry <= f->kf_max_expiry);
}

/* The next open takes the footer that is about to be written. */
static bool foot_is_good(const struct kv_run_build *rb, uint32_t at, uint32_t crc)
{
	const struct kv_kfoot *f = &rb->rb_foot;
	struct kv_kfoot read;

	return !kv_kfoot_decode(rb->rb_buf + at, crc, f->kf_tag, f->kf_obj, f->kf_kvs,
				at + KV_PAGE, &read);
}

/* Keys ascend from block to block, and those without any come last. */
static bool goes_on(const struct kv_run_build *rb, const struct kv_kblock *kb)
{
	const struct kv_kblock *prev = rb->rb_n ? kb - 1 : NULL;

	return !prev || !kb->kb_npages ||
	       (prev->kb_npages && kv_kcmp(prev->kb_max, prev->kb_max_klen, kb->kb_min,
					   kb->kb_min_klen) < 0);
}

/*
 * The number of keys was not told, or they are long: larger blocks, so that they remain
 * few. Without memory those to come are as those before.
 */
static void limit_grow(struct kv_run_build *rb)
{
	uint8_t *buf;

	KV_ASSERT(!rb->rb_page.pb_n);
	if (rb->rb_n % BLOCKS_WANTED || rb->rb_limit > KV_KBLOCK_MAX / 2)
		return;
	buf = mmap(NULL, 2 * (size_t)rb->rb_limit, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf == MAP_FAILED)
		return;
	munmap(rb->rb_buf, rb->rb_limit);
	rb->rb_buf = buf;
	rb->rb_limit *= 2;
}

/* What readers will ask the pool for. */
static void pages_insert(struct kv_run_build *rb, const struct kv_kblock *kb)
{
	uint64_t no, from = kb->kb_npages, end = kb->kb_pages_end;

	for (no = 0; no < from; no++)
		kv_page_insert(rb->rb_db, kb->kb_id, no, rb->rb_buf + no * KV_PAGE);
	if (atomic_load(&kb->kb_fences))
		from = kb->kb_filter_off / KV_PAGE;
	if (atomic_load(&kb->kb_filter))
		end = (kb->kb_filter_off + KV_PAGE - 1) / KV_PAGE;
	if (atomic_load(&kb->kb_fences) && atomic_load(&kb->kb_filter))
		return;
	for (no = from; no < end; no++)
		kv_page_insert(rb->rb_db, kb->kb_id, no, rb->rb_buf + no * KV_PAGE);
}

static int block_close(struct kv_run_build *rb)
{
	uint32_t foot, base = rb->rb_npages * KV_PAGE, crc;
	struct kv_kblock *kb = NULL;
	int rc;

	if (!rb->rb_npages && !rb->rb_tomb_here)
		return 0;
	KV_ASSERT(!rb->rb_page.pb_n);
	rc = block_place(rb, &kb);
	if (rc)
		return rc;
	foot = lay_areas(rb);
	rc = block_alloc(rb, foot + KV_PAGE, &kb->kb_obj);
	if (rc)
		return rc;
	foot_fill(rb, mpool_obj_id(kb->kb_obj));
	crc = kv_kfoot_encode(&rb->rb_foot, rb->rb_buf + foot);
	KV_ASSERT_SLOW(foot_is_good(rb, foot, crc));
	rc = block_write(rb, kb->kb_obj, foot + KV_PAGE);
	if (!rc)
		rc = kv_kblock_attach(rb->rb_db, kb, &rb->rb_foot, rb->rb_buf + base, rb->rb_seg,
				      &rb->rb_near);
	if (rc) {
		kv_kblock_free(rb->rb_db, kb);
		return rc;
	}
	KV_ASSERT(kb->kb_npages == rb->rb_npages && kb->kb_nsegs == rb->rb_nsegs);
	KV_ASSERT(goes_on(rb, kb));
	pages_insert(rb, kb);
	rb->rb_desc[rb->rb_n++] = (struct kv_kblock_desc){
		.kd_id = kb->kb_id, .kd_len = foot + KV_PAGE, .kd_crc = crc,
	};
	rb->rb_keys += rb->rb_nkeys;
	if (rb->rb_foot.kf_min_seq < rb->rb_min_seq)
		rb->rb_min_seq = rb->rb_foot.kf_min_seq;
	if (rb->rb_foot.kf_max_seq > rb->rb_max_seq)
		rb->rb_max_seq = rb->rb_foot.kf_max_seq;
	rb->rb_tomb_done += rb->rb_tomb_here;
	KV_ASSERT(rb->rb_tomb_done <= rb->rb_tomb_len);
	limit_grow(rb);
	block_reset(rb);
	return 0;
}

/* A lookup takes every entry of the page that is about to be written. */
static bool page_is_good(const uint8_t *page, uint32_t no)
{
	struct kv_kpage kp;
	struct kv_kent e;
	unsigned i = 0;

	if (kv_kpage_decode(page, no, &kp))
		return false;
	while (i < kp.kp_n && !kv_kpage_ent(&kp, i, &e))
		i++;
	return i == kp.kp_n;
}

/* Encodes the page, with the separator in front of it. */
static int page_close(struct kv_run_build *rb)
{
	uint32_t no = rb->rb_npages, cap = rb->rb_pages_cap, len = 0;
	uint8_t *page = rb->rb_buf + (size_t)no * KV_PAGE;
	int rc;

	if (!rb->rb_page.pb_n)
		return 0;
	if (no)
		len = (uint32_t)kv_klcp(rb->rb_prev, rb->rb_prev_klen, rb->rb_first,
					   rb->rb_first_klen) + 1;
	KV_ASSERT((no + 2ull) * KV_PAGE <= rb->rb_limit && len <= rb->rb_first_klen);
	rc = kv_vec_grow(&rb->rb_end, &cap, no + 1, sizeof(*rb->rb_end));
	if (!rc)
		rc = kv_vec_grow(&rb->rb_crc, &rb->rb_pages_cap, no + 1, sizeof(*rb->rb_crc));
	if (!rc)
		rc = kv_vec_grow(&rb->rb_sep, &rb->rb_sep_cap, rb->rb_sep_used + len, 1);
	if (rc)
		return rc;
	if (len)
		memcpy(rb->rb_sep + rb->rb_sep_used, rb->rb_first, len);
	rb->rb_sep_used += len;
	rb->rb_end[no] = rb->rb_sep_used;
	kv_kpb_encode(&rb->rb_page, no, page);
	KV_ASSERT_SLOW(page_is_good(page, no));
	rb->rb_crc[no] = mpool_crc32c(0, page, KV_PAGE);
	memcpy(rb->rb_prev, rb->rb_last, rb->rb_last_klen);
	rb->rb_prev_klen = rb->rb_last_klen;
	rb->rb_npages++;
	if (block_bytes(rb, rb->rb_npages + 1ull, (uint64_t)rb->rb_nkeys + KV_KPAGE_MAXN,
			(uint64_t)rb->rb_sep_used + KVDB_KEY_MAX,
			(uint64_t)rb->rb_nsegs + KV_KPAGE_MAXN) > rb->rb_limit)
		return block_close(rb);
	return 0;
}

static int entry_fit(struct kv_run_build *rb, const struct kv_ent *e, uint64_t hash)
{
	struct kv_kpb_in in = {
		.in_key = e->e_key,
		.in_val = e->e_val,
		.in_ent = {
			.pe_klen = e->e_klen,
			.pe_kind = e->e_kind,
			.pe_tag = kv_hash_tag(hash),
			.pe_seg = e->e_kind == KV_ENT_REF ? seg_row(rb, e->e_seg) : 0,
			.pe_off8 = e->e_off8,
			.pe_vlen = e->e_kind == KV_ENT_TOMB ? 0 : e->e_vlen,
			.pe_vcrc = e->e_vcrc,
			.pe_pack = e->e_pack,
			.pe_plen = e->e_plen,
			.pe_pcrc = e->e_pcrc,
			.pe_seq = e->e_seq,
			.pe_expiry = e->e_expiry,
		},
	};

	return kv_kpb_add(&rb->rb_page, &in);
}

/* Counts an entry that is in the page now. */
static void entry_count(struct kv_run_build *rb, const struct kv_ent *e, uint64_t hash)
{
	struct kv_kfoot *f = &rb->rb_foot;

	if (rb->rb_page.pb_n == 1) {
		memcpy(rb->rb_first, e->e_key, e->e_klen);
		rb->rb_first_klen = e->e_klen;
		if (!rb->rb_npages) {
			memcpy(f->kf_min, e->e_key, e->e_klen);
			f->kf_min_klen = e->e_klen;
		}
	}
	memcpy(rb->rb_last, e->e_key, e->e_klen);
	rb->rb_last_klen = e->e_klen;
	KV_ASSERT_SLOW(rb->rb_nkeys < rb->rb_keys_cap);
	rb->rb_hash[rb->rb_nkeys++] = hash;
	f->kf_ntombs += e->e_kind == KV_ENT_TOMB;
	f->kf_live_bytes += e->e_kind == KV_ENT_TOMB ? 0 : kv_ent_stored(e);
	if (KV_UNLIKELY(e->e_expiry)) {
		f->kf_expiring++;
		if (!f->kf_min_expiry || e->e_expiry < f->kf_min_expiry)
			f->kf_min_expiry = e->e_expiry;
		if (e->e_expiry > f->kf_max_expiry)
			f->kf_max_expiry = e->e_expiry;
	}
	if (e->e_seq < f->kf_min_seq)
		f->kf_min_seq = e->e_seq;
	if (e->e_seq > f->kf_max_seq)
		f->kf_max_seq = e->e_seq;
}

int kv_run_build_add(struct kv_run_build *rb, const struct kv_ent *e)
{
	uint64_t hash = kv_hash(e->e_key, e->e_klen);
	int rc;

	if (!e->e_klen || e->e_klen > KVDB_KEY_MAX || e->e_kind < KV_ENT_TOMB ||
	    e->e_kind > KV_ENT_REF || (e->e_kind == KV_ENT_INLINE && e->e_vlen > KV_INLINE_MAX))
		return kv_error(-EINVAL, "MP0951", "entry with a key of %u and a value of %u bytes",
				e->e_klen, e->e_vlen);
	/* merges read media: two sources that are not in order must not make a run that is not */
	if (!CHECK(!(rb->rb_nkeys | rb->rb_n) ||
		   kv_kcmp(rb->rb_last, rb->rb_last_klen, e->e_key, e->e_klen) < 0))
		return kv_error(-EUCLEAN, "MP0960", "store %u: keys are not in ascending order",
				rb->rb_kvs);
	rc = entry_fit(rb, e, hash);
	if (rc == -ENOSPC) {
		rc = page_close(rb);
		if (!rc)
			rc = entry_fit(rb, e, hash);
	}
	if (!rc && e->e_kind == KV_ENT_REF)
		rc = seg_note(rb, e->e_seg, kv_ent_stored(e));
	if (!rc)
		rc = kv_vec_grow(&rb->rb_hash, &rb->rb_keys_cap, rb->rb_nkeys + 1,
			      sizeof(*rb->rb_hash));
	if (!rc)
		entry_count(rb, e, hash);
	return rc;
}

int kv_run_build_finish(struct kv_run_build *rb, struct kv_run **out)
{
	struct kv_run *r = NULL;
	int rc = page_close(rb);

	/* what does not fit beside the keys gets blocks of its own, after them */
	while (!rc && (rb->rb_npages || rb->rb_tomb_here))
		rc = block_close(rb);
	if (!rc && rb->rb_n) {
		r = kv_run_new(rb->rb_n);
		if (!r)
			rc = -ENOMEM;
	}
	if (rc) {
		kv_run_build_abort(rb);
		return rc;
	}
	if (r) {
		KV_ASSERT(rb->rb_tomb_done == rb->rb_tomb_len && rb->rb_min_seq <= rb->rb_max_seq);
		memcpy(r->rn_kb, rb->rb_kb, rb->rb_n * sizeof(*rb->rb_kb));
		memcpy(r->rn_desc.rd_kb, rb->rb_desc, rb->rb_n * sizeof(*rb->rb_desc));
		r->rn_desc.rd_keys = rb->rb_keys;
		r->rn_desc.rd_min_seq = rb->rb_min_seq;
		r->rn_desc.rd_max_seq = rb->rb_max_seq;
		r->rn_desc.rd_kvs = rb->rb_kvs;
		r->rn_desc.rd_n = rb->rb_n;
		rc = kv_run_index_tombs(r);
		kv_run_measure(rb->rb_db, r);
		rb->rb_n = 0;
		if (rc)
			kv_run_put(rb->rb_db, r);
	}
	build_free(rb);
	if (!rc)
		*out = r;
	return rc;
}
