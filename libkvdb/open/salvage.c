/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Runs and segments of which something is damaged.
 *
 * A run is read for its keys alone, page by page: every check that a key block
 * allows, and on to the next page or block after one that failed.
 *
 * Pages need the page CRCs and the segment table only, so a block whose
 * filter, fences or tombstones are damaged still gives its entries. What is
 * missing is named by its keys: between the separators of a page, the first
 * and last key of a block in its footer, or, without one, the neighbours'.
 *
 * One thread, no locks: the database is open for reading or at a checkpoint.
 */
#include <errno.h>
#include <stdlib.h>

#include "open/salvage.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/hash.h"
#include "base/key.h"
#include "base/trange.h"
#include "db/db.h"
#include "cache/pages.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "run/filter.h"
#include "run/run.h"
#include "run/run_fence.h"
#include "run/run_omf.h"
#include "txn/txn_omf.h"
#include "open/recover.h"

#define UNREAD_MAX	256u	/* blocks of a segment: a dead device takes long to say so */

struct kv_salvage {
	struct kvdb *sv_db;
	const struct kv_run_desc *sv_d;
	struct kv_salvage_fns sv_fns;
	uint32_t sv_next;		/* block to open next */
	bool sv_is_open;
	struct kv_kblock sv_kb;
	struct kv_fences sv_fe;		/* of it */
	struct kv_kfoot sv_f;
	bool sv_has_fences, sv_has_filter;
	uint32_t sv_page, sv_ent;	/* next page; next entry of sv_kp */
	bool sv_has_page;
	struct kv_kpage sv_kp;
	uint8_t *sv_buf;		/* of that page */
	uint16_t sv_klen;		/* last key given, 0 = none */
	uint8_t sv_key[KVDB_KEY_MAX];
	/* what the block holds, to be compared with its footer and segment table */
	uint64_t sv_keys, sv_tombs, sv_bytes, sv_min_seq, sv_max_seq;
	struct kv_kseg *sv_seen;	/* kb_nsegs rows */
	bool sv_is_whole;		/* no page of it was passed over */
	uint64_t sv_total;		/* keys of the run */
	bool sv_is_all;			/* no block or page of the run was passed over */
	bool sv_has_tombs;		/* the next block may have deletes of many keys */
	int sv_err;			/* -ENOMEM: what follows is unknown */
};

/* ---- findings --------------------------------------------------------------------- */

static void set_from(struct kv_lost *lo, const uint8_t *key, uint16_t len)
{
	memcpy(lo->lo_from, key, len);
	lo->lo_flen = len;
}

static void set_to(struct kv_lost *lo, const uint8_t *key, size_t len, bool is_within)
{
	memcpy(lo->lo_to, key, len);
	/* the smallest key after it */
	if (is_within)
		lo->lo_to[len++] = 0;
	lo->lo_tlen = (uint16_t)len;
}

static struct kv_lost lost_init(const struct kv_salvage *sv, uint64_t off, const char *what)
{
	return (struct kv_lost){
		.lo_what = what, .lo_run = sv->sv_d->rd_id, .lo_kvs = sv->sv_d->rd_kvs,
		.lo_obj = sv->sv_d->rd_kb[sv->sv_next - 1].kd_id, .lo_off = off,
		.lo_max_seq = sv->sv_d->rd_max_seq,
	};
}

/* Something of the open block is not as it should be; its entries are there. */
static void odd(struct kv_salvage *sv, uint64_t off, const char *what)
{
	struct kv_lost lo = lost_init(sv, off, what);

	set_from(&lo, sv->sv_f.kf_min, sv->sv_f.kf_min_klen);
	if (sv->sv_f.kf_max_klen)
		set_to(&lo, sv->sv_f.kf_max, sv->sv_f.kf_max_klen, true);
	sv->sv_fns.sf_lost(sv->sv_fns.sf_arg, &lo);
}

static void page_missing(struct kv_salvage *sv, const char *what)
{
	uint32_t no = sv->sv_page - 1;
	struct kv_lost lo = lost_init(sv, (uint64_t)no * KV_PAGE, what);
	const uint8_t *sep;
	size_t len;

	lo.lo_is_missing = true;
	lo.lo_max_seq = sv->sv_f.kf_max_seq;
	sv->sv_is_whole = sv->sv_is_all = false;
	set_from(&lo, sv->sv_klen ? sv->sv_key : sv->sv_f.kf_min,
		 sv->sv_klen ? sv->sv_klen : sv->sv_f.kf_min_klen);
	set_to(&lo, sv->sv_f.kf_max, sv->sv_f.kf_max_klen, true);
	if (sv->sv_has_fences && no) {
		sep = kv_fence_sep(&sv->sv_fe, no, &len);
		set_from(&lo, sep, (uint16_t)len);
	}
	if (sv->sv_has_fences && no + 1 < sv->sv_f.kf_npages) {
		sep = kv_fence_sep(&sv->sv_fe, no + 1, &len);
		set_to(&lo, sep, len, false);
	}
	sv->sv_fns.sf_lost(sv->sv_fns.sf_arg, &lo);
}

/* ---- blocks ----------------------------------------------------------------------- */

static const char *no_memory(struct kv_salvage *sv)
{
	sv->sv_err = kv_error(-ENOMEM, "MP0902", "no memory to read a run");
	return "no memory";
}

static const char *foot_read(struct kv_salvage *sv, const struct kv_kblock_desc *d,
			     struct mpool_obj *obj, struct kv_kfoot *f)
{
	const char *bad = "footer cannot be read";
	struct mpool_obj_info info;

	if (mpool_obj_info(obj, &info) || d->kd_len > info.length || d->kd_len < 2 * KV_PAGE ||
	    d->kd_len > KV_KBLOCK_MAX || d->kd_len % KV_PAGE)
		return "length in the version edit";
	for (int tries = 0; tries < 2 && bad; tries++)
		if (!kv_dev_read(sv->sv_db, obj, KV_READ_KEY, d->kd_len - KV_PAGE, sv->sv_buf,
				 KV_PAGE))
			bad = kv_kfoot_decode(sv->sv_buf, d->kd_crc, sv->sv_db->d_ident.id_tag,
					      d->kd_id, sv->sv_d->rd_kvs, d->kd_len, f);
	return bad;
}

/*
 * The whole block sv_next - 1. Its footer was read, or its neighbours tell its keys; deletes of
 * many keys that it may have had reach any.
 */
static void block_missing(struct kv_salvage *sv, bool has_foot, const char *what)
{
	struct kv_lost lo = lost_init(sv, 0, what);
	struct kv_kfoot *f = &sv->sv_f;
	struct mpool_obj *obj;

	lo.lo_is_missing = true;
	sv->sv_is_all = false;
	if (has_foot) {
		lo.lo_max_seq = f->kf_max_seq;
		set_from(&lo, f->kf_min, f->kf_min_klen);
		/* deletes of many keys reach further than the keys beside them */
		if (f->kf_max_klen && !f->kf_area[KV_AREA_PTOMB].ar_len)
			set_to(&lo, f->kf_max, f->kf_max_klen, true);
		else
			lo.lo_flen = 0;
	} else if (CHECK(!sv->sv_has_tombs)) {
		set_from(&lo, sv->sv_key, sv->sv_klen);
		for (uint32_t i = sv->sv_next; i < sv->sv_d->rd_n && !lo.lo_tlen; i++) {
			const struct kv_kblock_desc *d = &sv->sv_d->rd_kb[i];

			if (mpool_obj_open(sv->sv_db->d_mp, d->kd_id, &obj))
				continue;
			if (!foot_read(sv, d, obj, f))
				set_to(&lo, f->kf_min, f->kf_min_klen, false);
			mpool_obj_close(obj);
		}
	}
	sv->sv_fns.sf_lost(sv->sv_fns.sf_arg, &lo);
}

static void block_rows(struct kv_salvage *sv)
{
	struct kv_kblock *kb = &sv->sv_kb;
	struct kv_trange r;
	uint32_t size;

	for (uint32_t pos = 0; pos < kb->kb_tombs_len; pos += size) {
		const char *bad = kv_ktomb_decode(kb->kb_tombs + pos, kb->kb_tombs_len - pos, &r,
						  &size);

		if (bad) {
			odd(sv, pos, bad);
			return;
		}
		if (sv->sv_fns.sf_row)
			sv->sv_fns.sf_row(sv->sv_fns.sf_arg, &r);
	}
}

/* Deletes of many keys are missing: what they hid, wherever it is, shows. */
static void rows_missing(struct kv_salvage *sv, const struct kv_area *a)
{
	struct kv_lost lo = lost_init(sv, a->ar_off, "CRC of the deletes of many keys");

	lo.lo_is_missing = true;
	lo.lo_max_seq = sv->sv_f.kf_max_seq;
	sv->sv_fns.sf_lost(sv->sv_fns.sf_arg, &lo);
}

static bool area_is_good(struct kv_salvage *sv, unsigned area)
{
	const struct kv_area *a = &sv->sv_f.kf_area[area];
	uint64_t base = (uint64_t)sv->sv_f.kf_npages * KV_PAGE;

	return CHECK_CRC(mpool_crc32c(0, sv->sv_kb.kb_index + (a->ar_off - base), a->ar_len) ==
			 a->ar_crc);
}

/* kb_segs and the areas' places, as kv_kblock_attach() of a block that is whole. */
static const char *block_index(struct kv_salvage *sv)
{
	const struct kv_area *a = sv->sv_f.kf_area;
	struct kv_kblock *kb = &sv->sv_kb;
	uint64_t base = (uint64_t)sv->sv_f.kf_npages * KV_PAGE;
	uint32_t n = a[KV_AREA_SEGS].ar_len / KV_KSEG_SIZE, last = 0, end;
	struct kv_kseg ks;

	kb->kb_npages = sv->sv_f.kf_npages;
	sv->sv_fe = kv_fences_at(&sv->sv_f, kb->kb_index);
	kb->kb_filter = kb->kb_index + (a[KV_AREA_FILTER].ar_off - base);
	kb->kb_fblocks = a[KV_AREA_FILTER].ar_len / KV_FILTER_BLOCK;
	kb->kb_segtab = kb->kb_index + (a[KV_AREA_SEGS].ar_off - base);
	kb->kb_tombs = kb->kb_index + (a[KV_AREA_PTOMB].ar_off - base);
	kb->kb_tombs_len = a[KV_AREA_PTOMB].ar_len;
	if (!area_is_good(sv, KV_AREA_PAGECRC))
		return "CRC of the page CRCs";
	if (!area_is_good(sv, KV_AREA_SEGS))
		return "CRC of the segment table";
	kb->kb_segs = calloc(n ? n : 1, sizeof(struct kv_seg *));
	sv->sv_seen = calloc(n ? n : 1, sizeof(*sv->sv_seen));
	if (!kb->kb_segs || !sv->sv_seen)
		return no_memory(sv);
	kb->kb_nsegs = n;
	for (uint32_t i = 0; i < n; i++) {
		kv_kseg_decode(kb->kb_segtab + i * KV_KSEG_SIZE, &ks);
		kb->kb_segs[i] = kv_seg_find(sv->sv_db, ks.ks_id);
		if (!kb->kb_segs[i])
			odd(sv, a[KV_AREA_SEGS].ar_off, "a segment of the table does not exist");
	}
	sv->sv_has_fences = area_is_good(sv, KV_AREA_FENCE);
	for (uint32_t i = 0; i < kb->kb_npages && sv->sv_has_fences; i++, last = end) {
		end = kv_le32(sv->sv_fe.fe_ends + 4 * i);
		sv->sv_has_fences = end >= last && end - last <= KVDB_KEY_MAX &&
				    end <= a[KV_AREA_FENCE].ar_len - 4u * kb->kb_npages;
	}
	if (!sv->sv_has_fences)
		odd(sv, a[KV_AREA_FENCE].ar_off, "CRC of the fences");
	sv->sv_has_filter = area_is_good(sv, KV_AREA_FILTER);
	if (!sv->sv_has_filter)
		odd(sv, a[KV_AREA_FILTER].ar_off, "CRC of the filter");
	if (area_is_good(sv, KV_AREA_PTOMB))
		block_rows(sv);
	else
		rows_missing(sv, &a[KV_AREA_PTOMB]);
	return NULL;
}

static void block_close(struct kv_salvage *sv)
{
	struct kv_kblock *kb = &sv->sv_kb;

	for (uint32_t i = 0; i < kb->kb_nsegs; i++)
		if (kb->kb_segs[i])
			kv_seg_put(sv->sv_db, kb->kb_segs[i]);
	free(kb->kb_segs);
	free(kb->kb_index);
	free(sv->sv_seen);
	if (kb->kb_obj)
		mpool_obj_close(kb->kb_obj);
	memset(kb, 0, sizeof(*kb));
	sv->sv_seen = NULL;
	sv->sv_is_open = false;
}

static const char *block_read(struct kv_salvage *sv, const struct kv_kblock_desc *d, bool *has_foot)
{
	struct kv_kblock *kb = &sv->sv_kb;
	const char *bad;
	uint32_t len;
	int rc = mpool_obj_open(sv->sv_db->d_mp, d->kd_id, &kb->kb_obj);

	if (rc) {
		kb->kb_obj = NULL;
		return rc == -ENOMEM ? no_memory(sv) : "the object does not exist";
	}
	bad = foot_read(sv, d, kb->kb_obj, &sv->sv_f);
	if (bad)
		return bad;
	*has_foot = true;
	/* they fill one block after the other */
	sv->sv_has_tombs &= sv->sv_f.kf_area[KV_AREA_PTOMB].ar_len != 0;
	len = d->kd_len - KV_PAGE - sv->sv_f.kf_npages * KV_PAGE;
	kb->kb_id = d->kd_id;
	kb->kb_index = aligned_alloc(KV_PAGE, len ? len : KV_PAGE);
	if (!kb->kb_index)
		return no_memory(sv);
	if (len && kv_dev_read(sv->sv_db, kb->kb_obj, KV_READ_KEY,
			       (uint64_t)sv->sv_f.kf_npages * KV_PAGE,
			       kb->kb_index, len))
		return "index cannot be read";
	return block_index(sv);
}

/* The next block that can be read; false: there is none, or sv_err. */
static bool block_open(struct kv_salvage *sv)
{
	while (sv->sv_next < sv->sv_d->rd_n) {
		bool has_foot = false;
		const char *bad;

		sv->sv_next++;
		bad = block_read(sv, &sv->sv_d->rd_kb[sv->sv_next - 1], &has_foot);
		if (!bad) {
			sv->sv_is_open = sv->sv_is_whole = true;
			sv->sv_has_page = false;
			sv->sv_page = 0;
			sv->sv_keys = sv->sv_tombs = sv->sv_bytes = sv->sv_max_seq = 0;
			sv->sv_min_seq = UINT64_MAX;
			return true;
		}
		if (!sv->sv_err)
			block_missing(sv, has_foot, bad);
		block_close(sv);
		if (sv->sv_err)
			break;
	}
	return false;
}

/* What was read is what footer and segment table say: counts, bytes, bounds. */
static void block_check(struct kv_salvage *sv)
{
	const struct kv_kfoot *f = &sv->sv_f;
	uint64_t foot = (uint64_t)sv->sv_d->rd_kb[sv->sv_next - 1].kd_len - KV_PAGE;
	struct kv_kseg ks;

	if (!sv->sv_is_whole)
		return;
	if (!CHECK(sv->sv_keys == f->kf_nkeys && sv->sv_tombs == f->kf_ntombs &&
		   sv->sv_bytes == f->kf_live_bytes))
		odd(sv, foot, "footer: number of entries, deletions or value bytes");
	if (sv->sv_keys && !CHECK(sv->sv_min_seq >= f->kf_min_seq &&
				  sv->sv_max_seq <= f->kf_max_seq))
		odd(sv, foot, "footer: sequence numbers");
	for (uint32_t i = 0; i < sv->sv_kb.kb_nsegs; i++) {
		kv_kseg_decode(sv->sv_kb.kb_segtab + i * KV_KSEG_SIZE, &ks);
		if (!CHECK(ks.ks_n == sv->sv_seen[i].ks_n &&
			   ks.ks_bytes == sv->sv_seen[i].ks_bytes))
			odd(sv, f->kf_area[KV_AREA_SEGS].ar_off,
			    "segment table: entries or bytes of a segment");
	}
}

/* ---- pages ------------------------------------------------------------------------ */

static const char *page_read(struct kv_salvage *sv, uint32_t no)
{
	const char *bad = "page cannot be read";

	for (int tries = 0; tries < 2 && bad; tries++) {
		if (kv_dev_read(sv->sv_db, sv->sv_kb.kb_obj, KV_READ_KEY,
				(uint64_t)no * KV_PAGE, sv->sv_buf,
				KV_PAGE))
			continue;
		bad = CHECK_CRC(mpool_crc32c(0, sv->sv_buf, KV_PAGE) ==
				kv_le32(sv->sv_fe.fe_crcs + 4ull * no)) ?
			kv_kpage_decode(sv->sv_buf, no, &sv->sv_kp) : "page CRC";
	}
	return bad;
}

static bool page_open(struct kv_salvage *sv)
{
	while (sv->sv_page < sv->sv_kb.kb_npages) {
		const char *bad = page_read(sv, sv->sv_page++);

		if (!bad) {
			sv->sv_has_page = true;
			sv->sv_ent = 0;
			return true;
		}
		page_missing(sv, bad);
	}
	return false;
}

/* Keys lie between the separators of their page and are in the filter. */
static const char *key_check(const struct kv_salvage *sv, const uint8_t *key, uint16_t klen)
{
	const struct kv_kblock *kb = &sv->sv_kb;
	uint32_t no = sv->sv_page - 1;
	const uint8_t *sep;
	size_t len;

	if (sv->sv_has_fences) {
		sep = kv_fence_sep(&sv->sv_fe, no, &len);
		if (!CHECK(kv_kcmp(sep, len, key, klen) <= 0))
			return "key below the fence of its page";
		sep = no + 1 < kb->kb_npages ? kv_fence_sep(&sv->sv_fe, no + 1, &len) : NULL;
		if (sep && !CHECK(kv_kcmp(key, klen, sep, len) < 0))
			return "key behind the fence of the next page";
	}
	if (sv->sv_has_filter && !CHECK(kv_filter_has(kb->kb_filter, kb->kb_fblocks,
						      kv_hash(key, klen))))
		return "key that the filter denies";
	return NULL;
}

static void count(struct kv_salvage *sv, const struct kv_kent *k)
{
	sv->sv_keys++;
	sv->sv_total++;
	sv->sv_tombs += k->ke_kind == KV_ENT_TOMB;
	if (k->ke_kind != KV_ENT_TOMB)
		sv->sv_bytes += kv_kent_stored(k);
	if (k->ke_seq < sv->sv_min_seq)
		sv->sv_min_seq = k->ke_seq;
	if (k->ke_seq > sv->sv_max_seq)
		sv->sv_max_seq = k->ke_seq;
	if (k->ke_kind == KV_ENT_REF) {
		sv->sv_seen[k->ke_seg].ks_n++;
		sv->sv_seen[k->ke_seg].ks_bytes += kv_kent_stored(k);
	}
}

/* The entry sv_ent of the page; false: the page ends, or has nothing more to give. */
static bool page_next(struct kv_salvage *sv, struct kv_ent *e)
{
	uint8_t key[KVDB_KEY_MAX];
	struct kv_kent k;
	const char *bad;
	uint16_t klen;

	if (!sv->sv_has_page || sv->sv_ent == sv->sv_kp.kp_n)
		return sv->sv_has_page = false;
	bad = kv_kpage_ent(&sv->sv_kp, sv->sv_ent++, &k);
	if (!bad && kv_kblock_ent(&sv->sv_kb, sv->sv_page - 1, &k, e))
		bad = "row of the segment table";
	klen = bad ? 0 : kv_kpage_key(&sv->sv_kp, sv->sv_ent - 1, &k, key);
	if (!bad && (!klen || (sv->sv_klen && kv_kcmp(sv->sv_key, sv->sv_klen, key, klen) >= 0)))
		bad = "key order";
	if (bad) {
		page_missing(sv, bad);
		return sv->sv_has_page = false;
	}
	bad = key_check(sv, key, klen);
	if (bad)
		odd(sv, (uint64_t)(sv->sv_page - 1) * KV_PAGE, bad);
	count(sv, &k);
	memcpy(sv->sv_key, key, klen);
	sv->sv_klen = klen;
	e->e_key = sv->sv_key;
	e->e_klen = klen;
	return true;
}

/* ---- the walk --------------------------------------------------------------------- */

int kv_salvage_open(struct kvdb *db, const struct kv_run_desc *d, const struct kv_salvage_fns *fns,
		    struct kv_salvage **out)
{
	struct kv_salvage *sv = calloc(1, sizeof(*sv));

	if (sv)
		sv->sv_buf = aligned_alloc(KV_PAGE, KV_PAGE);
	if (!sv || !sv->sv_buf) {
		free(sv);
		return kv_error(-ENOMEM, "MP0902", "no memory to read a run");
	}
	sv->sv_db = db;
	sv->sv_d = d;
	sv->sv_fns = *fns;
	sv->sv_is_all = sv->sv_has_tombs = true;
	*out = sv;
	return 0;
}

int kv_salvage_next(struct kv_salvage *sv, struct kv_ent *e)
{
	while (!page_next(sv, e)) {
		if (sv->sv_is_open && page_open(sv))
			continue;
		if (sv->sv_is_open) {
			block_check(sv);
			block_close(sv);
		}
		if (block_open(sv))
			continue;
		if (sv->sv_err)
			return sv->sv_err;
		if (sv->sv_is_all && sv->sv_total != sv->sv_d->rd_keys && sv->sv_next) {
			sv->sv_is_all = false;
			odd(sv, 0, "number of keys in the version edit");
		}
		return -ENOENT;
	}
	return 0;
}

void kv_salvage_close(struct kv_salvage *sv)
{
	block_close(sv);
	free(sv->sv_buf);
	free(sv);
}

/* ---- segments --------------------------------------------------------------------- */

int kv_salvage_blocks(struct kv_seg *s, uint8_t *buf, uint32_t len)
{
	struct iovec v = { .iov_len = KV_BLOCK };
	uint32_t off, unread = 0;
	int err = 0;

	for (off = 0; off < len && !err; off += KV_BLOCK) {
		v.iov_base = buf + off;
		err = mpool_read(s->sg_obj, off, &v, 1);
		if (err != -EIO || ++unread > UNREAD_MAX)
			continue;
		memset(v.iov_base, 0, KV_BLOCK);
		err = 0;
	}
	return err;
}

/* RP6: what is whole of a frame, be its payload good or not. */
static int frame_recs(struct kv_seg *s, const uint8_t *p, const struct kv_frame_hdr *h,
		      kv_rec_fn *fn, void *arg)
{
	uint32_t off = KV_FRAME_HDR;
	struct kv_rec r;
	int err = 0;

	for (; !err && kv_rv_next_whole(p, h, &off, &r); off += r.r_size)
		if (r.r_type != KV_REC_COMMIT || !kv_commit_check(&r))
			err = fn(arg, s, &r, h->fh_epoch, h->fh_off + off);
	return err;
}

int kv_salvage_log(struct kvdb *db, struct kv_seg *s, kv_rec_fn *fn, void *arg)
{
	uint32_t len = atomic_load(&s->sg_end) / KV_BLOCK * KV_BLOCK, off = 0, size;
	uint8_t *buf = len ? aligned_alloc(KV_BLOCK, len) : NULL;
	struct kv_frame_hdr h;
	int err = 0;

	if (!len)
		return 0;
	if (!buf)
		return kv_error(-ENOMEM, "MP0902", "no memory to read a log segment");
	if (kv_dev_read(db, s->sg_obj, KV_READ_LOG, 0, buf, len) &&
	    kv_salvage_blocks(s, buf, len))
		len = 0;	/* nothing of it can be had */
	for (; off < len && !err; off += size) {
		size = KV_BLOCK;
		if (kv_frame_decode(buf + off, (uint32_t)db->d_ident.id_tag, s->sg_id, off,
				    len - off, &h))
			continue;
		err = frame_recs(s, buf + off, &h, fn, arg);
		size = (h.fh_len + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
	}
	free(buf);
	return err;
}
