/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Recovery: which epochs survived (R2), that what is discarded stays discarded
 * (R3), replay above the horizons (R4), orphans (R8). DESIGN.md has
 * the algorithm and its invariants; RV numbers below are theirs.
 *
 * Runs in one thread before logs, flusher and workers exist; needs no lock.
 * Segments are read one at a time; images are kept up to a share of the
 * slab budget, so that replay need not read them again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt.h"
#include "mdc.h"
#include "memtable.h"
#include "pages.h"
#include "salvage.h"
#include "tomb.h"
#include "txn_omf.h"
#include "vec.h"

#define ORPHANS_MAX	1000u
#define ORPHANS_FEW	64u	/* so many are never suspicious */

struct rv_frame {
	uint64_t vf_epoch;
	uint32_t vf_off, vf_end;	/* end with padding */
	uint32_t vf_crc, vf_chain;
	uint32_t vf_nrec;
};

struct rv_desc {
	struct kv_desc vd_d;
	struct kv_desc_ent *vd_ent;
	uint64_t vd_obj;
	uint32_t vd_off;	/* of the frame */
};

struct rv_seg {
	struct kv_seg *vs_seg;
	const struct kv_mdc_seg *vs_known;	/* its entry in the container, or NULL */
	bool vs_skip;			/* wholly at or below B: not read */
	bool vs_is_unread;		/* repair: blocks of it could not be read */
	uint32_t vs_valid;		/* end of the last valid frame */
	uint32_t vs_cut;		/* sealed length from now on */
	uint64_t vs_last;		/* newest epoch within it */
	uint8_t *vs_image;		/* kept bytes, or NULL */
	struct rv_frame *vs_frame;
	uint32_t vs_n, vs_cap;
	/* with those behind the first bad one, of the last incarnation, by their headers */
	uint32_t vs_all;
};

struct recovery {
	struct kvdb *rv_db;
	struct kv_mdc_state *rv_st;
	uint64_t rv_b, rv_floor;	/* smallest and largest durable horizon */
	uint64_t rv_d0, rv_d;
	uint64_t rv_epoch, rv_seq;	/* newest seen anywhere */
	uint32_t rv_incarnation;	/* the same, */
	uint64_t rv_newest;		/* and the object that has a frame of it */
	struct rv_seg *rv_seg;		/* ascending object id */
	uint32_t rv_n;
	struct rv_desc *rv_desc;
	uint32_t rv_ndesc, rv_desccap;
	uint64_t rv_kept, rv_keep_max;	/* bytes of images */
	uint64_t *rv_orphan;
	size_t rv_norphan;
	uint32_t rv_orphancap;
	uint64_t rv_newest_obj;
	/* where the epoch after D0 is not whole; object 0 = it has no descriptor */
	uint64_t rv_bad_obj;
	uint32_t rv_bad_off;
	bool rv_is_unlinked;		/* a descriptor names one that is not there */
	kv_hole_fn *rv_hole;		/* repair: goes on behind damage */
	void *rv_arg;
};

static int lost(const char *what, uint64_t a, uint64_t b)
{
	return kv_error(-EUCLEAN, "MP0961",
			"device lost acknowledged writes: %s (%llu, found %llu)", what,
			(unsigned long long)a, (unsigned long long)b);
}

/* ---- reading segments ----------------------------------------------------------------- */

/* Bytes of the segment that may be looked at. */
static uint32_t seg_limit(const struct rv_seg *vs)
{
	uint32_t n = kv_seg_readable(vs->vs_seg);

	if (vs->vs_known && vs->vs_known->sc_len < n)
		n = vs->vs_known->sc_len / KV_BLOCK * KV_BLOCK;
	return n;
}

static int seg_read(struct recovery *rv, struct rv_seg *vs, uint32_t len)
{
	struct kvdb *db = rv->rv_db;
	struct iovec v;
	int err;

	if (vs->vs_image)
		return 0;
	vs->vs_image = aligned_alloc(MPOOL_ALIGN, len);
	if (!vs->vs_image)
		return kv_error(-ENOMEM, "MP0902", "no memory to read a log segment of %u bytes",
				len);
	v.iov_base = vs->vs_image;
	v.iov_len = len;
	err = mpool_read(vs->vs_seg->sg_obj, 0, &v, 1);
	if (!CHECK(666, err != -EIO || !rv->rv_hole)) {
		err = kv_salvage_blocks(vs->vs_seg, vs->vs_image, len);
		vs->vs_is_unread = true;
	}
	if (err) {
		free(vs->vs_image);
		vs->vs_image = NULL;
		return kv_error_mpool(err);
	}
	atomic_fetch_add(&db->d_count.read_bytes[KV_READ_LOG][vs->vs_seg->sg_mclass], len);
	db->d_recovery.bytes += len;
	return 0;
}

/* Keeps the image for replay while there is memory for it. */
static void seg_done(struct recovery *rv, struct rv_seg *vs, uint32_t len, bool may_keep)
{
	if (may_keep && rv->rv_kept + len <= rv->rv_keep_max) {
		rv->rv_kept += len;
		return;
	}
	free(vs->vs_image);
	vs->vs_image = NULL;
}

static int desc_add(struct recovery *rv, const struct kv_rec *r, const struct kv_desc *d,
		    uint64_t obj, uint32_t off)
{
	struct rv_desc *vd;
	uint32_t i;

	if (kv_vec_grow(&rv->rv_desc, &rv->rv_desccap, rv->rv_ndesc + 1, sizeof(*vd)))
		return -ENOMEM;
	vd = &rv->rv_desc[rv->rv_ndesc];
	vd->vd_ent = malloc(d->ds_n * sizeof(vd->vd_ent[0]));
	if (!vd->vd_ent)
		return -ENOMEM;
	for (i = 0; i < d->ds_n; i++)
		kv_desc_ent(r, i, &vd->vd_ent[i]);
	vd->vd_d = *d;
	vd->vd_obj = obj;
	vd->vd_off = off;
	rv->rv_ndesc++;
	return 0;
}

/*
 * Walks the records of a frame. 0, the failed check, or -ENOMEM. Descriptors
 * are remembered, the newest sequence number is noted.
 */
static int walk_frame(struct recovery *rv, const uint8_t *p, const struct kv_frame_hdr *h,
		      bool check_values)
{
	uint32_t off = KV_FRAME_HDR, n = 0;
	struct kv_desc d;
	struct kv_rec r;
	int err;

	for (; off < h->fh_len; off += r.r_size, n++) {
		err = kv_rec_decode(p + off, h->fh_obj, h->fh_off + off, h->fh_len - off,
				    check_values, &r);
		if (err)
			return err;
		if (r.r_seq > rv->rv_seq)
			rv->rv_seq = r.r_seq;
		if (r.r_type == KV_REC_COMMIT) {
			err = kv_commit_check(&r);
			if (err)
				return err;
		}
		if (r.r_type != KV_REC_DESC)
			continue;
		err = kv_desc_decode(&r, &d);
		if (err)
			return err;
		if (!CHECK(424, d.ds_epoch == h->fh_epoch && d.ds_incarnation == h->fh_incarnation))
			return 424;
		err = desc_add(rv, &r, &d, h->fh_obj, h->fh_off);
		if (err)
			return err;
	}
	return CHECK(425, n == h->fh_nrec) ? 0 : 425;
}

/*
 * A frame of another incarnation than the segment's first, or of an older epoch, is not its
 * next.
 */
static bool follows(const struct recovery *rv, const struct rv_seg *vs,
		    const struct kv_frame_hdr *h, uint32_t incarnation)
{
	const struct rv_frame *prev = vs->vs_n ? &vs->vs_frame[vs->vs_n - 1] : NULL;

	if (!CHECK(426, h->fh_chain == (prev ? prev->vf_crc : 0)))
		return false;
	/* a segment that no incarnation record lists was made after the last one */
	if (!vs->vs_known && !CHECK(427, h->fh_incarnation == rv->rv_st->st_inc.mi_incarnation))
		return false;
	return !prev || (h->fh_epoch >= prev->vf_epoch && h->fh_incarnation == incarnation);
}

static int frame_add(struct rv_seg *vs, uint32_t n, const struct kv_frame_hdr *h)
{
	if (kv_vec_grow(&vs->vs_frame, &vs->vs_cap, n + 1, sizeof(vs->vs_frame[0])))
		return -ENOMEM;
	vs->vs_frame[n] = (struct rv_frame){
		.vf_epoch = h->fh_epoch, .vf_off = h->fh_off, .vf_crc = h->fh_crc,
		.vf_end = h->fh_off + (h->fh_len + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK,
		.vf_chain = h->fh_chain, .vf_nrec = h->fh_nrec,
	};
	return 0;
}

/* The container lacks its end: repair does not rely on it. */
static int ends_early(struct recovery *rv, uint64_t obj, const char *what, uint32_t n)
{
	rv->rv_db->d_mdc->m_is_cut = true;
	return kv_error(-EUCLEAN, "MP0961", "device lost acknowledged writes: object %llu %s %u, "
			"later than all that the metadata tells", (unsigned long long)obj, what, n);
}

static void see_incarnation(struct recovery *rv, const struct kv_frame_hdr *h)
{
	if (h->fh_incarnation > rv->rv_incarnation) {
		rv->rv_incarnation = h->fh_incarnation;
		rv->rv_newest = h->fh_obj;
	}
}

/*
 * Frames after the first bad one are not replayed, but no epoch reuses their numbers (RV4), and
 * they prove that what was written before them had been durable (RV17).
 */
static int see_tail(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t limit)
{
	struct kv_frame_hdr h;
	int err = 0;

	vs->vs_all = vs->vs_n;
	for (; off < limit && err != -ENOMEM; off += KV_BLOCK) {
		const uint8_t *p = vs->vs_image + off;

		if (kv_frame_decode(p, (uint32_t)rv->rv_db->d_tag, vs->vs_seg->sg_id, off,
				    limit - off, &h))
			continue;
		see_incarnation(rv, &h);
		if (h.fh_epoch > rv->rv_epoch)
			rv->rv_epoch = h.fh_epoch;
		/* what an older incarnation left behind its cut proves nothing */
		if (vs->vs_known || h.fh_incarnation != rv->rv_st->st_inc.mi_incarnation)
			continue;
		err = frame_add(vs, vs->vs_all, &h);
		vs->vs_all += !err;
		if (!err && kv_frame_check_payload(p, &h))
			err = walk_frame(rv, p, &h, false);
	}
	return err < 0 ? err : 0;
}

/* The frame at @off, without its records: 0 or the check that failed. */
static int judge_frame(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t limit,
		       uint32_t incarnation, struct kv_frame_hdr *h)
{
	const uint8_t *p = vs->vs_image + off;
	int rc = kv_frame_decode(p, (uint32_t)rv->rv_db->d_tag, vs->vs_seg->sg_id, off,
				 limit - off, h);

	if (!rc)
		see_incarnation(rv, h);
	if (!rc && !rv->rv_hole && !follows(rv, vs, h, incarnation))
		rc = 1;
	return rc ? rc : !kv_frame_check_payload(p, h);
}

/* The frame at @off: 0, the check that failed, -ENOMEM. */
static int scan_frame(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t limit,
		      bool check_values, uint32_t incarnation, struct kv_frame_hdr *h)
{
	int rc = judge_frame(rv, vs, off, limit, incarnation, h);

	return rc ? rc : walk_frame(rv, vs->vs_image + off, h, check_values);
}

/* What may be a frame is read again: all of it, or as much as tells that there is none. */
static int reread(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t limit)
{
	struct iovec v = { .iov_base = vs->vs_image + off, .iov_len = KV_BLOCK };
	struct kv_frame_hdr h;
	int err = mpool_read(vs->vs_seg->sg_obj, off, &v, 1);

	if (!err && !kv_frame_decode(v.iov_base, (uint32_t)rv->rv_db->d_tag, vs->vs_seg->sg_id,
				     off, limit - off, &h)) {
		v.iov_len = (h.fh_len + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
		err = mpool_read(vs->vs_seg->sg_obj, off, &v, 1);
	}
	return err ? kv_error_mpool(err) : 0;
}

/* The same as scan_frame(), or -EIO. RV19: a log ends where two readings say so. */
static int scan_sure(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t limit,
		     bool check_values, uint32_t incarnation, struct kv_frame_hdr *h)
{
	int rc = judge_frame(rv, vs, off, limit, incarnation, h), err;

	if (!CHECK(634, !rc)) {
		err = reread(rv, vs, off, limit);
		if (!err)
			rc = judge_frame(rv, vs, off, limit, incarnation, h);
		else if (err != -EIO || !rv->rv_hole)	/* repair goes on behind it */
			return err;
		if (!rc)
			kv_bad_read(rv->rv_db, vs->vs_seg->sg_obj, off, true);
	}
	return rc ? rc : walk_frame(rv, vs->vs_image + off, h, check_values);
}

static int scan_image(struct recovery *rv, struct rv_seg *vs, uint32_t limit, bool check_values)
{
	struct kv_seg *s = vs->vs_seg;
	uint32_t off = 0, incarnation = 0, hole = 0;
	struct kv_frame_hdr h;
	int rc;

	for (; off < limit; hole = off) {
		rc = scan_sure(rv, vs, off, limit, check_values, incarnation, &h);
		while (rc > 0 && rv->rv_hole && (off += KV_BLOCK) < limit)
			rc = scan_frame(rv, vs, off, limit, check_values, incarnation, &h);
		if (rc < 0)
			return rc;
		/* behind its last frame a segment that was not sealed holds nothing */
		if (hole < off && (!rc || vs->vs_known || s->sg_obj_sealed || vs->vs_is_unread))
			rv->rv_hole(rv->rv_arg, s, hole, off);
		if (rc)
			break;
		if (frame_add(vs, vs->vs_n, &h))
			return -ENOMEM;
		off = vs->vs_frame[vs->vs_n++].vf_end;
		incarnation = h.fh_incarnation;
		s->sg_log = h.fh_log;
		s->sg_stream = h.fh_stream;
		s->sg_chain = h.fh_crc;
		if (h.fh_epoch > rv->rv_epoch)
			rv->rv_epoch = h.fh_epoch;
	}
	vs->vs_valid = hole;
	return see_tail(rv, vs, hole, limit);
}

static int scan_seg(struct recovery *rv, struct rv_seg *vs)
{
	struct kvdb_recovery *st = &rv->rv_db->d_recovery;
	uint32_t limit = seg_limit(vs), i;
	int err;

	if (vs->vs_known && vs->vs_known->sc_last <= rv->rv_b) {
		vs->vs_skip = true;
		vs->vs_valid = vs->vs_known->sc_len;
		return 0;
	}
	if (!limit)
		return 0;
	err = seg_read(rv, vs, limit);
	if (!err)
		err = scan_image(rv, vs, limit, false);
	if (err)
		return err;
	st->segments++;
	st->frames += vs->vs_n;
	for (i = 0; i < vs->vs_n; i++)
		st->records += vs->vs_frame[i].vf_nrec;
	seg_done(rv, vs, limit, vs->vs_n && vs->vs_frame[vs->vs_n - 1].vf_epoch > rv->rv_b);
	return 0;
}

static int by_obj(const void *a, const void *b)
{
	const struct rv_seg *x = a, *y = b;

	return x->vs_seg->sg_id < y->vs_seg->sg_id ? -1 : x->vs_seg->sg_id > y->vs_seg->sg_id;
}

static int list_segs(struct recovery *rv)
{
	struct kv_seg *s;
	uint32_t n = 0;

	for (s = kv_segs_first(rv->rv_db); s; s = s->sg_next)
		n++;
	rv->rv_seg = calloc(n ? n : 1, sizeof(rv->rv_seg[0]));
	if (!rv->rv_seg)
		return -ENOMEM;
	for (s = kv_segs_first(rv->rv_db); s; s = s->sg_next) {
		rv->rv_seg[rv->rv_n].vs_seg = s;
		rv->rv_seg[rv->rv_n++].vs_known = kv_mdc_state_seg(rv->rv_st, s->sg_id);
	}
	qsort(rv->rv_seg, rv->rv_n, sizeof(rv->rv_seg[0]), by_obj);
	return 0;
}

static struct rv_seg *seg_by_id(struct recovery *rv, uint64_t id)
{
	uint32_t lo = 0, hi = rv->rv_n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (rv->rv_seg[mid].vs_seg->sg_id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < rv->rv_n && rv->rv_seg[lo].vs_seg->sg_id == id ? &rv->rv_seg[lo] : NULL;
}

/* ---- the durable prefix (R2) ------------------------------------------------------------ */

static struct rv_frame *frame_ending(struct rv_seg *vs, uint32_t end)
{
	uint32_t lo = 0, hi = vs->vs_n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (vs->vs_frame[mid].vf_end < end)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < vs->vs_n && vs->vs_frame[lo].vf_end == end ? &vs->vs_frame[lo] : NULL;
}

/*
 * RV1: every segment that the epoch wrote to is valid from its start to the
 * listed end with the listed chain value. The carrier's own entry names the
 * chain before its frame, since the frame's CRC covers the descriptor.
 */
static bool desc_is_complete(struct recovery *rv, const struct rv_desc *vd)
{
	bool has_carrier = false;
	uint32_t i;

	for (i = 0; i < vd->vd_d.ds_n; i++) {
		const struct kv_desc_ent *e = &vd->vd_ent[i];
		struct rv_seg *vs = seg_by_id(rv, e->de_obj);
		struct rv_frame *f = vs ? frame_ending(vs, e->de_end) : NULL;
		bool is_carrier = f && e->de_obj == vd->vd_obj && f->vf_off == vd->vd_off;

		rv->rv_bad_obj = e->de_obj;
		rv->rv_bad_off = vs ? vs->vs_valid : 0;
		if (!CHECK(428, f && f->vf_epoch == vd->vd_d.ds_epoch))
			return false;
		if (!CHECK(429, e->de_chain == (is_carrier ? f->vf_chain : f->vf_crc)))
			return false;
		has_carrier |= is_carrier;
	}
	return CHECK(430, has_carrier);
}

static int by_epoch(const void *a, const void *b)
{
	const struct rv_desc *x = a, *y = b;

	return x->vd_d.ds_epoch < y->vd_d.ds_epoch ? -1 : x->vd_d.ds_epoch > y->vd_d.ds_epoch;
}

/* The newest epoch linked with B through complete descriptors; d_desc = its descriptor. */
static void find_d0(struct recovery *rv)
{
	struct kvdb *db = rv->rv_db;
	const struct rv_desc *prev = NULL;
	uint32_t i;

	if (rv->rv_ndesc)
		qsort(rv->rv_desc, rv->rv_ndesc, sizeof(rv->rv_desc[0]), by_epoch);
	rv->rv_d0 = rv->rv_b;
	for (i = 0; i < rv->rv_ndesc; i++) {
		const struct rv_desc *vd = &rv->rv_desc[i];
		const struct kv_desc *d = &vd->vd_d;

		if (d->ds_epoch > rv->rv_b) {
			bool is_linked = d->ds_prev_epoch <= rv->rv_b ||
				(prev && d->ds_prev_epoch == prev->vd_d.ds_epoch &&
				 d->ds_prev_obj == prev->vd_obj && d->ds_prev_off == prev->vd_off);

			if (!CHECK(431, is_linked)) {
				rv->rv_is_unlinked = true;
				rv->rv_bad_obj = d->ds_prev_obj;
				rv->rv_bad_off = d->ds_prev_off;
				break;
			}
			if (!desc_is_complete(rv, vd))
				break;
			rv->rv_bad_obj = 0;
			rv->rv_d0 = d->ds_epoch;
		}
		prev = vd;
	}
	rv->rv_d = rv->rv_d0 > rv->rv_floor ? rv->rv_d0 : rv->rv_floor;
	memset(&db->d_desc, 0, sizeof(db->d_desc));
	if (prev) {
		db->d_desc.epoch = prev->vd_d.ds_epoch;
		db->d_desc.obj = prev->vd_obj;
		db->d_desc.off = prev->vd_off;
	}
}

/* ---- lost writes (R3) --------------------------------------------------------------------- */

/* RV5: what the container says was durable must be there; never a hole. */
static int check_lost(struct recovery *rv)
{
	struct kv_mdc_state *st = rv->rv_st;
	uint32_t i, j;

	for (i = 0; i < st->st_nkvs; i++)
		for (j = 0; j < st->st_kvs[i].mk_nrun; j++)
			if (!CHECK(432, st->st_kvs[i].mk_run[j].rd_newest_epoch <= rv->rv_d0))
				return lost("a run holds records of a later epoch than the logs",
					    st->st_kvs[i].mk_run[j].rd_newest_epoch, rv->rv_d0);
	/* RV21: an incarnation's record is durable before its first frame */
	if (!CHECK(579, rv->rv_incarnation <= st->st_inc.mi_incarnation))
		return ends_early(rv, rv->rv_newest, "has frames of incarnation",
				  rv->rv_incarnation);
	if (!CHECK(433, rv->rv_d >= st->st_inc.mi_d))
		return lost("the last recovery reached a later epoch", st->st_inc.mi_d, rv->rv_d);
	for (i = 0; i < rv->rv_n; i++) {
		struct rv_seg *vs = &rv->rv_seg[i];
		bool is_sealed = vs->vs_known || vs->vs_seg->sg_obj_sealed;
		uint32_t want = vs->vs_known ? vs->vs_known->sc_len : seg_limit(vs);

		/* of one that is not read, too: what lies in it is looked for below that */
		if (vs->vs_known && want > vs->vs_seg->sg_bytes)
			return lost("a log segment is sealed behind the end of its object", want,
				    vs->vs_seg->sg_bytes);
		if (!vs->vs_skip && is_sealed && !CHECK(434, vs->vs_valid >= want))
			return lost("a log segment ends before its sealed length", want,
				    vs->vs_valid);
		/* an epoch that a horizon covers was durable whole, so its descriptor must be */
		for (j = 0; j < vs->vs_n; j++)
			if (!CHECK(435, vs->vs_frame[j].vf_epoch <= rv->rv_d0 ||
				   vs->vs_frame[j].vf_epoch > rv->rv_d))
				return lost("an epoch below a durable horizon is incomplete",
					    vs->vs_frame[j].vf_epoch, rv->rv_d0);
	}
	return 0;
}

/* True when a frame of an epoch between D and the newest one is there; notes its segment's end. */
static bool has_part_of_older(struct recovery *rv, uint64_t newest)
{
	uint32_t i, j;

	for (i = 0; i < rv->rv_n; i++) {
		struct rv_seg *vs = &rv->rv_seg[i];

		for (j = 0; j < vs->vs_all; j++) {
			if (vs->vs_frame[j].vf_epoch <= rv->rv_d ||
			    vs->vs_frame[j].vf_epoch >= newest)
				continue;
			if (!rv->rv_bad_obj) {
				rv->rv_bad_obj = vs->vs_seg->sg_id;
				rv->rv_bad_off = vs->vs_valid;
			}
			return true;
		}
	}
	return false;
}

/*
 * RV17: nothing of an epoch is written before the one in front of it was flushed. So what can be
 * read of one proves that all older ones were durable: if one of them is not whole that is no
 * torn tail.
 */
static int check_torn(struct recovery *rv)
{
	uint64_t newest = 0;
	uint32_t i, j;

	/* without stores nothing needs a segment: those of durable epochs above B may be gone */
	if (!rv->rv_st->st_nkvs)
		return 0;
	for (i = 0; i < rv->rv_n; i++)
		for (j = 0; j < rv->rv_seg[i].vs_all; j++)
			if (newest < rv->rv_seg[i].vs_frame[j].vf_epoch)
				newest = rv->rv_seg[i].vs_frame[j].vf_epoch;
	if (CHECK(680, !rv->rv_is_unlinked) && CHECK(681, !has_part_of_older(rv, newest)))
		return 0;
	/* only what the caller was told of is given up */
	if (rv->rv_d && rv->rv_db->d_rollback == rv->rv_d)
		return 0;
	return kv_error(-EUCLEAN, "MP0907",
			"object %llu: the log is damaged at %u; epochs up to %llu were durable, "
			"the last good one is %llu", (unsigned long long)rv->rv_bad_obj,
			rv->rv_bad_off, (unsigned long long)newest - 1,
			(unsigned long long)rv->rv_d);
}

/* Sealed lengths (RV2): never more than an earlier record said. */
static void set_cuts(struct recovery *rv)
{
	uint32_t i, j;

	for (i = 0; i < rv->rv_n; i++) {
		struct rv_seg *vs = &rv->rv_seg[i];

		if (vs->vs_skip) {
			vs->vs_cut = seg_limit(vs);
			vs->vs_last = vs->vs_known->sc_last;
		}
		for (j = 0; j < vs->vs_n && vs->vs_frame[j].vf_epoch <= rv->rv_d; j++) {
			vs->vs_cut = vs->vs_frame[j].vf_end;
			vs->vs_last = vs->vs_frame[j].vf_epoch;
			if (vs->vs_last > rv->rv_b)
				rv->rv_db->d_log_left += vs->vs_cut - vs->vs_frame[j].vf_off;
		}
		for (; j < vs->vs_n; j++)
			rv->rv_db->d_recovery.discarded += vs->vs_frame[j].vf_nrec;
		atomic_store(&vs->vs_seg->sg_state, KV_SEG_SEALED);
		atomic_store(&vs->vs_seg->sg_end, vs->vs_cut);
		atomic_store(&vs->vs_seg->sg_first_epoch, vs->vs_n ? vs->vs_frame[0].vf_epoch : 0);
		atomic_store(&vs->vs_seg->sg_last_epoch, vs->vs_last);
	}
}

/* ---- replay (R4) ----------------------------------------------------------------------------- */

/* *out NULL: the store was dropped. RV21: its record was durable before the first of its writes. */
static int find_store(struct recovery *rv, struct rv_seg *vs, uint32_t id, struct kvdb_kvs **out)
{
	*out = kv_kvs_by_id(rv->rv_db, id);
	if (*out || rv->rv_hole || CHECK(577, id < rv->rv_st->st_super.ms_next_kvs))
		return 0;
	return ends_early(rv, vs->vs_seg->sg_id, "has records of store", id);
}

/* The value of a transaction's write, in a segment that may be older than the commit record. */
static int find_value(struct recovery *rv, struct rv_seg *vs, uint32_t off,
		      const struct kv_commit_ent *e, struct kv_seg **out)
{
	struct rv_seg *at = seg_by_id(rv, e->ce_obj);

	*out = at ? at->vs_seg : NULL;
	/* its epoch is at most the record's: so it is as durable, or was lost */
	if (CHECK(461, at && (uint64_t)e->ce_off8 * KV_REC_ALIGN + e->ce_vlen <= at->vs_cut))
		return 0;
	if (rv->rv_hole)	/* repair says so when it reads the value; the others are there */
		return 0;
	return kv_error(-EUCLEAN, "MP0961", "device lost acknowledged writes: object %llu: "
			"the commit record at %u refers to object %llu, which ends before",
			(unsigned long long)vs->vs_seg->sg_id, off, (unsigned long long)e->ce_obj);
}

/* RV15: a transaction belongs to the epoch of its commit record, in each of its stores. */
static int replay_commit(struct recovery *rv, struct rv_seg *vs, const struct kv_rec *r,
			 uint64_t epoch, uint32_t off)
{
	struct kvdb *db = rv->rv_db;
	struct kv_commit_ent e;
	struct kvdb_kvs *kvs;
	uint32_t pos = 0;
	int err = 0;

	while (!err && kv_commit_next(r, &pos, &e)) {
		struct kv_rec w = { .r_type = e.ce_kind == KV_ENT_TOMB ? KV_REC_DEL : KV_REC_PUT,
				    .r_kvs = e.ce_kvs, .r_klen = e.ce_klen, .r_vlen = e.ce_vlen,
				    .r_vcrc = e.ce_vcrc, .r_seq = r->r_seq, .r_rev = e.ce_rev,
				    .r_key = e.ce_key, .r_val = e.ce_val,
				    .r_expiry = e.ce_expiry };
		struct kv_seg *seg = NULL;

		err = find_store(rv, vs, e.ce_kvs, &kvs);
		if (err || !kvs || !CHECK(462, epoch > atomic_load(&kvs->k_horizon)))
			continue;	/* dropped, or in a run */
		if (e.ce_kind == KV_ENT_REF) {
			err = find_value(rv, vs, off, &e, &seg);
			/* the memtable's epochs do not protect an older segment (RV7) */
			if (!err && seg)
				err = kv_mt_pin(atomic_load(&kvs->k_tree)->tr_mt[0], seg);
		}
		if (!err)
			err = kv_mt_replay(kvs, &w, epoch, seg, e.ce_off8 * KV_REC_ALIGN);
		db->d_recovery.replayed += !err;
	}
	return err;
}

/* A delete of many keys: it hides by its stamp, so the order of replay does not matter. */
static int replay_many(struct recovery *rv, struct rv_seg *vs, const struct kv_rec *r,
		       uint64_t epoch, uint32_t off)
{
	struct kv_trange t = { .tr_from = r->r_key, .tr_flen = r->r_klen, .tr_seq = r->r_seq };
	uint8_t end[KVDB_KEY_MAX];
	struct kvdb_kvs *kvs;
	int err = find_store(rv, vs, r->r_kvs, &kvs);

	if (err || !kvs || epoch <= atomic_load(&kvs->k_horizon))
		return err;	/* dropped, or in a run */
	if (!CHECK(491, kv_rec_trange(r, &t) &&
		   (r->r_type == KV_REC_RDEL || rv->rv_hole ||
		    r->r_klen == atomic_load(&kvs->k_prop[KV_PROP_PFX_LEN]))))
		return kv_error(-EUCLEAN, "MP0960",
				"object %llu: range delete at %u is impossible",
				(unsigned long long)vs->vs_seg->sg_id, off);
	/* repair may not know the store's prefix length: the container was cut */
	if (rv->rv_hole && t.tr_flags & KV_TR_PREFIX) {
		t.tr_to = end;
		t.tr_tlen = kv_prefix_end(t.tr_from, t.tr_flen, end);
		t.tr_flags = t.tr_tlen ? 0 : KV_TR_ENDLESS;
	}
	err = kv_mt_tomb_replay(atomic_load(&kvs->k_tree)->tr_mt[0], &t, epoch);
	if (!err)
		rv->rv_db->d_recovery.replayed++;
	kv_tree_mark_tombs(kvs);
	return err;
}

/* L6; repair also reads what lies behind a container that was cut. */
static uint32_t value_max(const struct recovery *rv)
{
	return rv->rv_hole || rv->rv_st->st_super.ms_incompat & KV_FEAT_LARGE ?
	       KVDB_VALUE_MAX : KV_VALUE_PLAIN;
}

static int replay_rec(struct recovery *rv, struct rv_seg *vs, const struct kv_rec *r,
		      uint64_t epoch, uint32_t off)
{
	struct kvdb *db = rv->rv_db;
	struct kvdb_kvs *kvs;
	int err;

	if (r->r_type == KV_REC_SKIP || r->r_type == KV_REC_DESC)
		return 0;
	if (r->r_type == KV_REC_COMMIT)
		return replay_commit(rv, vs, r, epoch, off);
	if (r->r_flags & KV_RECF_TXN)
		return 0;	/* a value that counts only through its commit record (R5) */
	if (r->r_type == KV_REC_PDEL || r->r_type == KV_REC_RDEL)
		return replay_many(rv, vs, r, epoch, off);
	/* moved, so in a run; behind a container that was cut no horizon says so */
	if (r->r_pack && rv->rv_hole)
		return 0;
	_Static_assert(KV_REC_TYPES == KV_REC_RDEL + 1, "what is left is a put or a delete");
	/* packed values are moved ones, which are never replayed (G6) */
	if (!CHECK(436, r->r_klen && r->r_klen <= KVDB_KEY_MAX && r->r_vlen <= value_max(rv) &&
		   !r->r_pack))
		return kv_error(-EUCLEAN, "MP0960",
				"object %llu: record at %u has impossible sizes",
				(unsigned long long)vs->vs_seg->sg_id, off);
	err = find_store(rv, vs, r->r_kvs, &kvs);
	if (err || !kvs || epoch <= atomic_load(&kvs->k_horizon))
		return err;	/* dropped, or in a run */
	err = kv_mt_replay(kvs, r, epoch, vs->vs_seg, off + kv_rec_val_off(r->r_klen));
	if (!err)
		db->d_recovery.replayed++;
	return err;
}

static int replay_frame(struct recovery *rv, struct rv_seg *vs, const struct rv_frame *f)
{
	const uint8_t *p = vs->vs_image + f->vf_off;
	uint32_t off = KV_FRAME_HDR;
	struct kv_frame_hdr h;
	struct kv_rec r;
	int err;

	err = kv_frame_decode(p, (uint32_t)rv->rv_db->d_tag, vs->vs_seg->sg_id, f->vf_off,
			      f->vf_end - f->vf_off, &h);
	/* RV16: the scan judged other bytes; a record's own CRC says nothing of its value */
	if (!err && !CHECK(563, kv_frame_check_payload(p, &h)))
		err = 563;
	for (; !err && off < h.fh_len; off += r.r_size) {
		err = kv_rec_decode(p + off, h.fh_obj, f->vf_off + off, h.fh_len - off, false, &r);
		if (!err)
			err = replay_rec(rv, vs, &r, f->vf_epoch, f->vf_off + off);
		if (err < 0)
			return err;
	}
	if (err)
		return kv_error(-EUCLEAN, "MP0960",
				"object %llu: frame at %u changed between two reads (check %d)",
				(unsigned long long)vs->vs_seg->sg_id, f->vf_off, err);
	return 0;
}

static int replay_seg(struct recovery *rv, struct rv_seg *vs)
{
	uint32_t i, limit = vs->vs_cut;
	int err = 0;

	if (vs->vs_skip || !vs->vs_n || vs->vs_last <= rv->rv_b)
		return 0;
	err = seg_read(rv, vs, limit);
	for (i = 0; !err && i < vs->vs_n && vs->vs_frame[i].vf_end <= limit; i++)
		if (vs->vs_frame[i].vf_epoch > rv->rv_b)
			err = replay_frame(rv, vs, &vs->vs_frame[i]);
	free(vs->vs_image);
	vs->vs_image = NULL;
	return err;
}

/* ---- orphans (R8) ---------------------------------------------------------------------------- */

static int orphan_add(struct recovery *rv, uint64_t id)
{
	if (kv_vec_grow(&rv->rv_orphan, &rv->rv_orphancap, rv->rv_norphan + 1, sizeof(id)))
		return -ENOMEM;
	rv->rv_orphan[rv->rv_norphan++] = id;
	return 0;
}

/* RV21: a key block of a store that was never made lost more than its own record. */
static int orphan_check(struct recovery *rv, const struct mpool_obj_info *oi)
{
	struct kvdb *db = rv->rv_db;
	uint32_t next = rv->rv_st->st_super.ms_next_kvs, kvs;
	struct mpool_obj *obj;
	struct kv_kfoot *f;
	uint8_t *page;
	int err;

	if (oi->length < 2 * KV_PAGE || oi->length > KV_KBLOCK_MAX)
		return 0;
	f = malloc(sizeof(*f));
	page = aligned_alloc(KV_PAGE, KV_PAGE);
	err = f && page ? mpool_obj_open(db->d_mp, oi->id, &obj) : -ENOMEM;
	if (!err) {
		err = kv_dev_read(db, obj, KV_READ_KEY, oi->length - KV_PAGE, page, KV_PAGE);
		mpool_obj_close(obj);
	}
	kvs = err ? 0 : kv_le32(page + 24);
	/* what cannot be read, or is none, says nothing */
	if (!err && !kv_kfoot_decode(page, kv_le32(page + KV_PAGE - 4), db->d_tag, oi->id, kvs,
				     (uint32_t)oi->length, f) && !CHECK(580, kvs < next))
		err = ends_early(rv, oi->id, "has keys of store", kvs);
	else if (err != -ENOMEM)
		err = 0;
	free(page);
	free(f);
	return err;
}

/* Objects of dropped runs are named by the container; others must be newer than its checkpoint. */
static int find_orphans(struct recovery *rv, bool is_check)
{
	struct kvdb *db = rv->rv_db;
	struct kv_mdc_state *st = rv->rv_st;
	struct mpool_obj_info oi[64];
	uint64_t after = 0, objects = 0, strange = 0;
	size_t nlisted, nnamed;
	uint64_t *listed = kv_mdc_state_blocks(st, false, &nlisted);
	/* and those that are gone */
	uint64_t *named = kv_mdc_state_blocks(st, true, &nnamed);
	int i, n, err = listed && named ? 0 : -ENOMEM;

	while (!err && (n = mpool_objects(db->d_mp, after, db->d_tag, oi, 64)) != 0) {
		if (n < 0)
			err = kv_error_mpool(n);
		for (i = 0; i < n && !err; i++) {
			after = oi[i].id;
			objects++;
			rv->rv_newest_obj = after;
			if (oi[i].kind != MPOOL_MBLOCK ||
			    kv_ids_have(listed, nlisted, after) ||
			    kv_ckpt_lists(db, after))
				continue;
			if (kv_ids_have(named, nnamed, after)) {
				err = kv_ckpt_holds_all(db) ? 0 : orphan_add(rv, after);
			} else if (CHECK(437, after > st->st_inc.mi_ckpt)) {
				strange++;
				/* of more the open is refused, whatever they are */
				err = strange <= ORPHANS_MAX ? orphan_check(rv, &oi[i]) : 0;
				if (!err)
					err = orphan_add(rv, after);
			}
		}
	}
	free(listed);
	free(named);
	if (!err && !is_check && !CHECK(438, strange <= ORPHANS_FEW ||
			   (strange <= ORPHANS_MAX && strange <= objects / 100)))
		err = kv_error(-EUCLEAN, "MP0962",
			       "%llu of %llu objects belong to no run: more than a crash leaves; "
			       "this is for kvdb repair",
			       (unsigned long long)strange, (unsigned long long)objects);
	return err;
}

/* C5: they stay until the checkpoint is dropped. An open behind that knows them by name only. */
static int name_orphans(struct recovery *rv)
{
	uint32_t n = (uint32_t)rv->rv_norphan;

	rv->rv_norphan = 0;
	return n ? BARRIER(692, kv_mdc_gone(rv->rv_db, rv->rv_orphan, n)) : 0;
}

int kv_objs_delete(struct mpool *mp, const uint64_t *id, size_t n)
{
	struct mpool_op op[64];
	size_t i, k;
	int err;

	for (i = 0; i < n; i += k) {
		memset(op, 0, sizeof(op));
		for (k = 0; k < 64 && i + k < n; k++) {
			op[k].type = MPOOL_OP_DELETE;
			op[k].id = id[i + k];
		}
		err = mpool_batch(mp, op, (unsigned)k);
		if (err)
			return kv_error_mpool(err);
	}
	return 0;
}

/* ---- all of it ----------------------------------------------------------------- */

/* R3: one record, durable before anything else happens. RV4: then new numbers begin above it. */
static int commit_incarnation(struct recovery *rv)
{
	struct kv_mdc_incarn in = {
		.mi_incarnation = rv->rv_st->st_inc.mi_incarnation + 1,
		.mi_d = rv->rv_d, .mi_epoch = rv->rv_epoch, .mi_seq = rv->rv_seq,
		.mi_ckpt = rv->rv_newest_obj,
	};
	struct kv_mdc_seg *seg = calloc(rv->rv_n ? rv->rv_n : 1, sizeof(*seg));
	size_t k;
	uint32_t i;
	int err;

	if (!seg)
		return -ENOMEM;
	/* what is not collected yet stays above the checkpoint */
	for (k = 0; k < rv->rv_norphan; k++)
		if (rv->rv_orphan[k] <= in.mi_ckpt)
			in.mi_ckpt = rv->rv_orphan[k] - 1;
	for (i = 0; i < rv->rv_n; i++) {
		seg[i].sc_obj = rv->rv_seg[i].vs_seg->sg_id;
		seg[i].sc_len = rv->rv_seg[i].vs_cut;
		seg[i].sc_last = rv->rv_seg[i].vs_last;
		rv->rv_seg[i].vs_known = NULL;	/* the fold moves the entries */
	}
	err = kv_mdc_incarn(rv->rv_db, &in, seg, rv->rv_n);
	free(seg);
	return err;
}

/* The greatest of the numbers that this open counts on from. */
static uint64_t set_numbers(struct recovery *rv)
{
	struct kv_mdc_state *st = rv->rv_st;
	struct kvdb *db = rv->rv_db;
	uint64_t most = st->st_super.ms_next_run;
	uint32_t i, j;

	if (rv->rv_epoch < st->st_inc.mi_epoch)
		rv->rv_epoch = st->st_inc.mi_epoch;
	if (rv->rv_epoch < rv->rv_d)
		rv->rv_epoch = rv->rv_d;
	if (rv->rv_seq < st->st_inc.mi_seq)
		rv->rv_seq = st->st_inc.mi_seq;
	for (i = 0; i < st->st_nkvs; i++) {
		for (j = 0; j < st->st_kvs[i].mk_nrun; j++) {
			const struct kv_run_desc *d = &st->st_kvs[i].mk_run[j];

			if (rv->rv_seq < d->rd_max_seq)
				rv->rv_seq = d->rd_max_seq;
			if (rv->rv_epoch < d->rd_newest_epoch)
				rv->rv_epoch = d->rd_newest_epoch;
			if (most < d->rd_pos)
				most = d->rd_pos;
		}
	}
	/* what only a checkpoint shows was dropped with its run, and is in no frame that is read */
	for (i = 0; i < st->st_nckpt; i++)
		if (!CHECK(691, rv->rv_seq >= st->st_ckpt[i].mc_seq))
			rv->rv_seq = st->st_ckpt[i].mc_seq;
	db->d_incarnation = st->st_inc.mi_incarnation + 1;
	atomic_store(&db->d_seq, rv->rv_seq + 1);
	atomic_store(&db->d_epoch, rv->rv_epoch + 1);
	atomic_store(&db->d_closed, rv->rv_epoch);
	atomic_store(&db->d_durable, rv->rv_epoch);
	db->d_recovery.incarnation = db->d_incarnation;
	db->d_recovery.durable_epoch = rv->rv_d;
	most = most < rv->rv_seq ? rv->rv_seq : most;
	return most < rv->rv_epoch ? rv->rv_epoch : most;
}

/* No database counts so far; what this one wrote next would be refused at the next open. */
static int check_numbers(uint32_t incarnation, uint64_t most)
{
	if (CHECK(648, most < KV_NUMBER_END / 2 && incarnation < UINT32_MAX / 2))
		return 0;
	return kv_error(-EUCLEAN, "MP0960", "epochs, stamps or runs are numbered up to %llu, "
			"incarnations up to %u: there is no room to count on",
			(unsigned long long)most, incarnation);
}

static int recover(struct recovery *rv, bool rdonly)
{
	struct kvdb *db = rv->rv_db;
	uint32_t i;
	int err = 0;

	/* what a process crash left in a device's cache must not vanish after it was believed */
	if (!rdonly)
		err = BARRIER(448, mpool_flush(db->d_mp, (1u << MPOOL_MCLASSES) - 1));
	if (err)
		return kv_error_mpool(err);
	err = list_segs(rv);
	for (i = 0; i < rv->rv_n && !err; i++)
		err = scan_seg(rv, &rv->rv_seg[i]);
	if (err)
		return err;
	find_d0(rv);
	err = check_lost(rv);
	if (!err)
		err = check_torn(rv);
	if (err)
		return err;
	set_cuts(rv);
	err = check_numbers(rv->rv_st->st_inc.mi_incarnation, set_numbers(rv));
	for (i = 0; i < rv->rv_n && !err; i++)
		err = replay_seg(rv, &rv->rv_seg[i]);
	if (!err)
		err = find_orphans(rv, rdonly);
	if (err || rdonly)
		return err;
	if (kv_ckpt_holds_all(db))
		err = name_orphans(rv);
	if (!err)
		err = commit_incarnation(rv);
	return err ? err : kv_objs_delete(db->d_mp, rv->rv_orphan, rv->rv_norphan);
}

static void recovery_free(struct recovery *rv)
{
	uint32_t i;

	for (i = 0; i < rv->rv_n; i++) {
		free(rv->rv_seg[i].vs_image);
		free(rv->rv_seg[i].vs_frame);
	}
	for (i = 0; i < rv->rv_ndesc; i++)
		free(rv->rv_desc[i].vd_ent);
	free(rv->rv_seg);
	free(rv->rv_desc);
	free(rv->rv_orphan);
}

static void recovery_init(struct recovery *rv, struct kvdb *db)
{
	struct kv_mdc_state *st = &db->d_mdc->m_st;
	uint32_t i;

	memset(rv, 0, sizeof(*rv));
	rv->rv_db = db;
	rv->rv_st = st;
	rv->rv_floor = st->st_super.ms_floor;
	rv->rv_keep_max = db->d_budget.b_slab_bytes / 2;
	/* without stores nothing needs the logs */
	rv->rv_b = st->st_nkvs ? UINT64_MAX :
		   rv->rv_floor > st->st_inc.mi_d ? rv->rv_floor : st->st_inc.mi_d;
	for (i = 0; i < st->st_nkvs; i++)
		if (st->st_kvs[i].mk_horizon < rv->rv_b)
			rv->rv_b = st->st_kvs[i].mk_horizon;
}

int kv_recover(struct kvdb *db, bool rdonly)
{
	struct recovery rv;
	uint64_t start = kv_now(db);
	int err;

	recovery_init(&rv, db);
	memset(&db->d_recovery, 0, sizeof(db->d_recovery));
	db->d_recovery.was_clean = rv.rv_st->st_clean || !rv.rv_st->st_inc.mi_incarnation;
	err = recover(&rv, rdonly);
	recovery_free(&rv);
	db->d_recovery.elapsed_ns = kv_now(db) - start;
	return err;
}

/* One of which too little can be read is one hole. */
static int lossy(struct recovery *rv, struct rv_seg *vs, int err)
{
	if (err != -EUCLEAN && err != -EIO)
		return err;
	rv->rv_hole(rv->rv_arg, vs->vs_seg, 0, vs->vs_seg->sg_bytes);
	vs->vs_n = 0;
	return 0;
}

int kv_recover_lossy(struct kvdb *db, kv_hole_fn *fn, void *arg)
{
	struct recovery rv;
	uint32_t i, j;
	int err;

	recovery_init(&rv, db);
	rv.rv_hole = fn;
	rv.rv_arg = arg;
	err = list_segs(&rv);
	for (i = 0; i < rv.rv_n && !err; i++)
		err = lossy(&rv, &rv.rv_seg[i], scan_seg(&rv, &rv.rv_seg[i]));
	rv.rv_d = rv.rv_floor;
	for (i = 0; i < rv.rv_n; i++)
		for (j = 0; j < rv.rv_seg[i].vs_n; j++)
			if (rv.rv_seg[i].vs_frame[j].vf_epoch > rv.rv_d)
				rv.rv_d = rv.rv_seg[i].vs_frame[j].vf_epoch;
	if (!err) {
		set_cuts(&rv);
		set_numbers(&rv);
	}
	for (i = 0; i < rv.rv_n && !err; i++)
		err = lossy(&rv, &rv.rv_seg[i], replay_seg(&rv, &rv.rv_seg[i]));
	recovery_free(&rv);
	return err;
}

int kv_logs_check(struct kvdb *db, bool check_values,
		  void (*fn)(void *arg, const struct kv_seg *s, uint32_t valid, uint32_t want),
		  void *arg)
{
	struct recovery rv;
	uint32_t i, limit;
	int err;

	recovery_init(&rv, db);
	rv.rv_keep_max = 0;
	err = list_segs(&rv);
	for (i = 0; i < rv.rv_n && !err; i++) {
		struct rv_seg *vs = &rv.rv_seg[i];

		limit = seg_limit(vs);
		if (!limit || (!vs->vs_known && !vs->vs_seg->sg_obj_sealed))
			continue;
		err = seg_read(&rv, vs, limit);
		if (!err)
			err = scan_image(&rv, vs, limit, check_values);
		if (!err && !CHECK(439, vs->vs_valid >= limit))
			fn(arg, vs->vs_seg, vs->vs_valid, limit);
		seg_done(&rv, vs, limit, false);
	}
	recovery_free(&rv);
	return err;
}
