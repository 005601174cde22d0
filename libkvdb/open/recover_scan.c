/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reading of log segments for recovery, verify and repair: every frame of which a header can be
 * read, with what lies between them; recover.c decides what that proves. RV numbers are
 * RECOVERY.md's.
 *
 * Segments are read one at a time; images are kept up to a share of the
 * slab budget, so that replay need not read them again.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/guard.h"
#include "base/vec.h"
#include "db/db.h"
#include "cache/pages.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "meta/mdc_omf.h"
#include "txn/txn_omf.h"
#include "open/recover.h"
#include "open/salvage.h"

uint32_t kv_rv_limit(const struct rv_seg *vs)
{
	uint32_t n = kv_seg_readable(vs->vs_seg);

	if (vs->vs_known && vs->vs_known->sc_len < n)
		n = vs->vs_known->sc_len / KV_BLOCK * KV_BLOCK;
	return n;
}

void kv_rv_forget(struct rv_seg *vs)
{
	if (vs->vs_image)
		munmap(vs->vs_image, vs->vs_len);
	vs->vs_image = NULL;
}

int kv_rv_read(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t len)
{
	struct kvdb *db = rv->rv_db;
	struct iovec v;
	int err;

	if (vs->vs_image)
		return 0;
	vs->vs_base = off;
	/* of the system: what the heap got back of many would stay with the process */
	vs->vs_image = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (vs->vs_image == MAP_FAILED)
		vs->vs_image = NULL;
	vs->vs_len = len;
	if (!vs->vs_image)
		return kv_error(-ENOMEM, "MP0902", "no memory to read a log segment of %u bytes",
				len);
	v.iov_base = vs->vs_image;
	v.iov_len = len;
	err = mpool_read(vs->vs_seg->sg_obj, off, &v, 1);
	if (!CHECK(err != -EIO || !rv->rv_hole)) {
		err = kv_salvage_blocks(vs->vs_seg, vs->vs_image, len);
		vs->vs_is_unread = true;
	}
	if (err) {
		kv_rv_forget(vs);
		return kv_error_mpool(err);
	}
	atomic_fetch_add(&db->d_count.read_bytes[KV_READ_LOG][vs->vs_seg->sg_mclass], len);
	db->d_opened.on_recovery.bytes += len;
	return 0;
}

void kv_rv_done(struct recovery *rv, struct rv_seg *vs, uint32_t len, bool may_keep)
{
	if (may_keep && rv->rv_kept + len <= rv->rv_keep_max) {
		rv->rv_kept += len;
		return;
	}
	kv_rv_forget(vs);
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
		if (!CHECK(d.ds_epoch == h->fh_epoch && d.ds_incarnation == h->fh_incarnation))
			return 424;
		err = desc_add(rv, &r, &d, h->fh_obj, h->fh_off);
		if (err)
			return err;
	}
	return CHECK(n == h->fh_nrec) ? 0 : 425;
}

/*
 * Is the header that of the segment's next frame? One of another incarnation, or of an older
 * epoch, is not: for @is_ours alone something lies there that the log put there.
 */
static bool follows(const struct recovery *rv, const struct rv_seg *vs,
		    const struct kv_frame_hdr *h, bool *is_ours)
{
	const struct rv_frame *prev = vs->vs_n ? &vs->vs_frame[vs->vs_n - 1] : NULL;
	uint32_t end = prev ? prev->vf_end : 0;

	*is_ours = false;
	/* a segment that no incarnation record lists was made after the last one */
	if (!vs->vs_known && !CHECK(h->fh_incarnation == rv->rv_st->st_inc.mi_incarnation))
		return false;
	if (prev && (h->fh_epoch < prev->vf_epoch || h->fh_incarnation != vs->vs_incarnation))
		return false;
	*is_ours = true;
	/* after a hole the chain is not known */
	return end != h->fh_off || CHECK_CRC(h->fh_chain == (prev ? prev->vf_crc : 0));
}

static int frame_add(struct rv_seg *vs, const struct kv_frame_hdr *h, bool is_good)
{
	struct rv_frame *f;
	struct kv_mark m = { 0 };
	bool has_mark;

	if (kv_vec_grow(&vs->vs_frame, &vs->vs_cap, vs->vs_n + 1, sizeof(vs->vs_frame[0])))
		return -ENOMEM;
	has_mark = kv_mark_decode(vs->vs_image + h->fh_off, h, &m);
	f = &vs->vs_frame[vs->vs_n++];
	*f = (struct rv_frame){
		.vf_epoch = h->fh_epoch, .vf_off = h->fh_off, .vf_crc = h->fh_crc,
		.vf_end = h->fh_off + (h->fh_len + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK,
		.vf_chain = h->fh_chain, .vf_nrec = h->fh_nrec, .vf_log = h->fh_log,
		.vf_is_good = is_good, .vf_has_mark = has_mark, .vf_begin = m.ma_begin,
		.vf_prev = m.ma_prev,
	};
	vs->vs_incarnation = h->fh_incarnation;
	return 0;
}

static void see_incarnation(struct recovery *rv, const struct kv_frame_hdr *h)
{
	if (h->fh_incarnation > rv->rv_incarnation) {
		rv->rv_incarnation = h->fh_incarnation;
		rv->rv_newest = h->fh_obj;
	}
}

/* Whatever is not replayed, no number of it is given again (RV4). */
static int frame_head(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t limit,
		      struct kv_frame_hdr *h)
{
	int rc = kv_frame_decode(vs->vs_image + off, (uint32_t)rv->rv_db->d_ident.id_tag,
				 vs->vs_seg->sg_id, off, limit - off, h);

	if (rc)
		return rc;
	see_incarnation(rv, h);
	if (h->fh_epoch > rv->rv_epoch)
		rv->rv_epoch = h->fh_epoch;
	return 0;
}

/*
 * The frame at @off, without its records: 0 or the check that failed. *is_ours: its header is
 * good, and proves that what was written before it had been durable (RV17). Repair takes
 * whatever is whole.
 */
static int judge_frame(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t limit,
		       struct kv_frame_hdr *h, bool *is_ours)
{
	int rc = frame_head(rv, vs, off, limit, h);

	*is_ours = !rc;
	if (!rc && !rv->rv_hole && !follows(rv, vs, h, is_ours))
		rc = 1;
	return rc ? rc : !kv_frame_check_payload(vs->vs_image + off, h);
}

/* What may be a frame is read again: all of it, or as much as tells that there is none. */
static int reread(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t limit)
{
	struct iovec v = { .iov_base = vs->vs_image + off, .iov_len = KV_BLOCK };
	struct kv_frame_hdr h;
	int err = mpool_read(vs->vs_seg->sg_obj, off, &v, 1);

	if (!err && !kv_frame_decode(v.iov_base, (uint32_t)rv->rv_db->d_ident.id_tag,
				     vs->vs_seg->sg_id, off, limit - off, &h)) {
		v.iov_len = (h.fh_len + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
		err = mpool_read(vs->vs_seg->sg_obj, off, &v, 1);
	}
	return err ? kv_error_mpool(err) : 0;
}

/* As judge_frame(), and its records; or -EIO. RV19: two readings say that it is bad. */
static int scan_sure(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t limit,
		     bool check_values, struct kv_frame_hdr *h, bool *is_ours)
{
	int rc = judge_frame(rv, vs, off, limit, h, is_ours), err;

	if (!CHECK(!rc)) {
		err = reread(rv, vs, off, limit);
		if (!err)
			rc = judge_frame(rv, vs, off, limit, h, is_ours);
		else if (err != -EIO || !rv->rv_hole)	/* repair goes on after it */
			return err;
		if (!rc)
			kv_bad_read(rv->rv_db, vs->vs_seg->sg_obj, off, true);
	}
	/* also of one that is not the next: what its descriptor proves is asked of other frames */
	if (!rc || (*is_ours && kv_frame_check_payload(vs->vs_image + off, h))) {
		err = walk_frame(rv, vs->vs_image + off, h, check_values);
		rc = err ? err : rc;
	}
	return rc;
}

static void frame_good(struct rv_seg *vs, const struct kv_frame_hdr *h)
{
	struct kv_seg *s = vs->vs_seg;

	s->sg_log = h->fh_log;
	s->sg_stream = h->fh_stream;
	s->sg_chain = h->fh_crc;
}

/* RV22: only a run needs what lies after the last good frame, and only what is no zero. */
static void note_used(struct rv_seg *vs, uint32_t end, uint32_t limit)
{
	static const uint8_t zero[KV_BLOCK];

	vs->vs_used = end;
	if (!atomic_load(&vs->vs_seg->sg_runs))
		return;
	for (; limit > end; limit -= KV_BLOCK)
		if (memcmp(vs->vs_image + limit - KV_BLOCK, zero, KV_BLOCK))
			break;
	vs->vs_used = limit;
}

bool kv_rv_next_whole(const uint8_t *p, const struct kv_frame_hdr *h, uint32_t *off,
		      struct kv_rec *r)
{
	for (; *off < h->fh_len; *off += KV_REC_ALIGN) {
		uint32_t at = h->fh_off + *off, room = h->fh_len - *off;
		int bad = kv_rec_decode(p + *off, h->fh_obj, at, room, false, r);

		/* a value that stays in the segment is checked when it is read: its key is named */
		if (!bad && (r->r_type != KV_REC_PUT || r->r_vlen <= KV_INLINE_MAX))
			bad = kv_rec_decode(p + *off, h->fh_obj, at, room, true, r);
		if (!bad)
			return true;
	}
	return false;
}

/* Tells repair of the stretch that is lost. */
static void hole_tell(struct recovery *rv, struct rv_seg *vs, uint32_t from, uint32_t to)
{
	if (from < to)
		rv->rv_hole(rv->rv_arg, vs->vs_seg, from, to);
}

/* What of a frame with a bad payload is in no record that is whole. */
static void frame_holes(struct recovery *rv, struct rv_seg *vs, const struct rv_frame *f)
{
	const uint8_t *p = vs->vs_image + f->vf_off;
	uint32_t off = KV_FRAME_HDR, end = KV_FRAME_HDR;
	struct kv_frame_hdr h;
	struct kv_rec r;

	if (kv_frame_decode(p, (uint32_t)rv->rv_db->d_ident.id_tag, vs->vs_seg->sg_id, f->vf_off,
			    f->vf_end - f->vf_off, &h))
		return;
	for (; kv_rv_next_whole(p, &h, &off, &r); end = off += r.r_size)
		hole_tell(rv, vs, f->vf_off + end, f->vf_off + off);
	hole_tell(rv, vs, f->vf_off + end, f->vf_off + h.fh_len);
}

/* Between @pos and @end, where frames end. */
static void holes_tell(struct recovery *rv, struct rv_seg *vs, uint32_t pos, uint32_t end)
{
	for (uint32_t i = 0; i < vs->vs_n && vs->vs_frame[i].vf_end <= end; i++) {
		const struct rv_frame *f = &vs->vs_frame[i];

		if (f->vf_off < pos)
			continue;
		hole_tell(rv, vs, pos, f->vf_off);
		if (!f->vf_is_good)
			frame_holes(rv, vs, f);
		pos = f->vf_end;
	}
	hole_tell(rv, vs, pos, end);
}

/* Frames of an epoch of the last incarnation that is not the newest had been durable (RV17). */
static uint32_t end_below(const struct recovery *rv, const struct rv_seg *vs, uint64_t newest)
{
	uint32_t end = 0;

	if (vs->vs_known || vs->vs_seg->sg_obj_sealed || vs->vs_is_unread)
		return kv_rv_limit(vs);
	for (uint32_t i = 0; i < vs->vs_n; i++)
		if (vs->vs_frame[i].vf_is_good || (vs->vs_incarnation == rv->rv_incarnation &&
						   vs->vs_frame[i].vf_epoch < newest))
			end = vs->vs_frame[i].vf_end;
	return end;
}

uint32_t kv_rv_end(const struct recovery *rv, const struct rv_seg *vs)
{
	return end_below(rv, vs, rv->rv_d);
}

int kv_rv_tell_tail(struct recovery *rv, struct rv_seg *vs)
{
	uint32_t limit = kv_rv_limit(vs), told = end_below(rv, vs, 0), end = kv_rv_end(rv, vs);
	int err;

	if (vs->vs_skip || told == end)
		return 0;
	err = kv_rv_read(rv, vs, 0, limit);
	if (err)
		return err;
	holes_tell(rv, vs, told, end);
	kv_rv_done(rv, vs, limit, true);
	return 0;
}

int kv_rv_scan_image(struct recovery *rv, struct rv_seg *vs, uint32_t limit, bool check_values)
{
	uint32_t off = 0, good = 0, bad = 0;	/* ends of the last good frame, of the last one */
	struct kv_frame_hdr h;
	bool is_ours;
	int rc;

	while (off < limit) {
		/* of a stretch without a frame the first block is read twice */
		if (off > bad && frame_head(rv, vs, off, limit, &h)) {
			off += KV_BLOCK;
			continue;
		}
		rc = scan_sure(rv, vs, off, limit, check_values, &h, &is_ours);
		if (rc < 0)
			return rc;
		if (!is_ours) {
			off += KV_BLOCK;
			continue;
		}
		if (frame_add(vs, &h, !rc))
			return -ENOMEM;
		off = bad = vs->vs_frame[vs->vs_n - 1].vf_end;
		if (rc)
			continue;
		good = off;
		frame_good(vs, &h);
	}
	/* after its last good frame a segment that was not sealed may end: others tell */
	if (rv->rv_hole)
		holes_tell(rv, vs, 0, end_below(rv, vs, 0));
	note_used(vs, good, limit);
	return 0;
}

uint32_t kv_rv_first_hole(const struct rv_seg *vs, uint32_t end, uint64_t d)
{
	uint32_t pos = 0;

	for (uint32_t i = 0; i < vs->vs_n && pos < end; i++) {
		const struct rv_frame *f = &vs->vs_frame[i];

		if ((!f->vf_is_good || f->vf_off > pos) && !CHECK(f->vf_epoch <= d))
			break;
		pos = f->vf_end;
	}
	return pos < end ? pos : end;
}

int kv_rv_scan(struct recovery *rv, struct rv_seg *vs)
{
	struct kvdb_recovery *st = &rv->rv_db->d_opened.on_recovery;
	uint32_t limit = kv_rv_limit(vs), i;
	int err;

	if (vs->vs_known && vs->vs_known->sc_last <= rv->rv_b) {
		vs->vs_skip = true;
		return 0;
	}
	if (!limit)
		return 0;
	err = kv_rv_read(rv, vs, 0, limit);
	if (!err)
		err = kv_rv_scan_image(rv, vs, limit, false);
	if (err)
		return err;
	st->segments++;
	st->frames += vs->vs_n;
	for (i = 0; i < vs->vs_n; i++)
		st->records += vs->vs_frame[i].vf_nrec;
	kv_rv_done(rv, vs, limit, vs->vs_n && vs->vs_frame[vs->vs_n - 1].vf_epoch > rv->rv_b);
	return 0;
}

static int by_obj(const void *a, const void *b)
{
	const struct rv_seg *x = a, *y = b;

	return x->vs_seg->sg_id < y->vs_seg->sg_id ? -1 : x->vs_seg->sg_id > y->vs_seg->sg_id;
}

int kv_rv_list(struct recovery *rv)
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

struct rv_seg *kv_rv_seg_by_id(struct recovery *rv, uint64_t id)
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

