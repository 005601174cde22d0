/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Recovery: which epochs survived (R2), that what is discarded stays discarded
 * (R3), replay above the horizons (R4), orphans (R8). RECOVERY.md has
 * the algorithm and its invariants; RV numbers below are theirs.
 *
 * Runs in one thread before logs, flusher and workers exist; needs no lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "open/recover.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/trange.h"
#include "base/vec.h"
#include "db/db.h"
#include "cache/pages.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/memtable.h"
#include "mem/tomb.h"
#include "run/run.h"
#include "run/run_omf.h"
#include "tree/tomb_view.h"
#include "tree/tree.h"
#include "meta/ckpt.h"
#include "meta/mdc.h"
#include "meta/upkeep.h"
#include "txn/txn_omf.h"

#define ORPHANS_MAX	1000u
#define ORPHANS_FEW	64u	/* a crash leaves as many */

static int lost(const char *what, uint64_t a, uint64_t b)
{
	return kv_error(-EUCLEAN, "MP0961",
			"device lost acknowledged writes: %s (%llu, found %llu)", what,
			(unsigned long long)a, (unsigned long long)b);
}

/* The container lacks its end: repair does not rely on it. */
static int ends_early(struct recovery *rv, uint64_t obj, const char *what, uint32_t n)
{
	rv->rv_db->d_mdc->m_is_cut = true;
	return kv_error(-EUCLEAN, "MP0961", "device lost acknowledged writes: object %llu %s %u, "
			"later than all that the metadata tells", (unsigned long long)obj, what, n);
}

/* ---- the durable prefix (R2) ------------------------------------------------------------ */

static const struct rv_frame *frame_ending(const struct rv_seg *vs, uint32_t end)
{
	uint32_t lo = 0, hi = vs->vs_n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (vs->vs_frame[mid].vf_end < end)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == vs->vs_n || vs->vs_frame[lo].vf_end != end || !vs->vs_frame[lo].vf_is_good)
		return NULL;
	return &vs->vs_frame[lo];
}

/*
 * RV22: all that the epoch of frame @f, the last one, has in the segment is there. What lies in
 * front of that is judged by the epochs that it is of.
 */
static bool epoch_is_whole(const struct rv_seg *vs, const struct rv_frame *f)
{
	for (;; f--) {
		if (!CHECK(f->vf_is_good))
			return false;
		if (f->vf_has_mark ? f->vf_begin == f->vf_off : !f->vf_off)
			return true;
		if (f == vs->vs_frame || !CHECK(f[-1].vf_end == f->vf_off))
			return false;
		/* frames of earlier programs do not say where their epoch begins */
		if (f[-1].vf_epoch != f->vf_epoch)
			return !f->vf_has_mark;
	}
}

/*
 * RV1: of every segment that the epoch wrote to, its frames are there, up to the
 * listed end with the listed chain value. The carrier's own entry names the
 * chain before its frame, since the frame's CRC covers the descriptor.
 */
static bool desc_is_complete(struct recovery *rv, const struct rv_desc *vd)
{
	bool has_carrier = false;
	uint32_t i;

	for (i = 0; i < vd->vd_d.ds_n; i++) {
		const struct kv_desc_ent *e = &vd->vd_ent[i];
		struct rv_seg *vs = kv_rv_seg_by_id(rv, e->de_obj);
		const struct rv_frame *f = vs ? frame_ending(vs, e->de_end) : NULL;
		bool is_carrier = f && e->de_obj == vd->vd_obj && f->vf_off == vd->vd_off;

		rv->rv_bad_obj = e->de_obj;
		rv->rv_bad_off = vs ? kv_rv_first_hole(vs, UINT32_MAX, rv->rv_d0) : 0;
		if (!CHECK(f && f->vf_epoch == vd->vd_d.ds_epoch) || !epoch_is_whole(vs, f))
			return false;
		if (!CHECK_CRC(e->de_chain == (is_carrier ? f->vf_chain : f->vf_crc)))
			return false;
		has_carrier |= is_carrier;
	}
	return CHECK(has_carrier);
}

static int by_epoch(const void *a, const void *b)
{
	const struct rv_desc *x = a, *y = b;

	return x->vd_d.ds_epoch < y->vd_d.ds_epoch ? -1 : x->vd_d.ds_epoch > y->vd_d.ds_epoch;
}

/* The newest epoch linked with B through complete descriptors; ep_desc = its descriptor. */
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

			if (!CHECK(is_linked)) {
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
	memset(&db->d_epochs.ep_desc, 0, sizeof(db->d_epochs.ep_desc));
	if (prev) {
		db->d_epochs.ep_desc.epoch = prev->vd_d.ds_epoch;
		db->d_epochs.ep_desc.obj = prev->vd_obj;
		db->d_epochs.ep_desc.off = prev->vd_off;
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
			if (!CHECK(st->st_kvs[i].mk_run[j].rd_newest_epoch <= rv->rv_d0))
				return lost("a run holds records of a later epoch than the logs",
					    st->st_kvs[i].mk_run[j].rd_newest_epoch, rv->rv_d0);
	/* RV21: an incarnation's record is durable before its first frame */
	if (!CHECK(rv->rv_incarnation <= st->st_inc.mi_incarnation))
		return ends_early(rv, rv->rv_newest, "has frames of incarnation",
				  rv->rv_incarnation);
	if (!CHECK(rv->rv_d >= st->st_inc.mi_d))
		return lost("the last recovery reached a later epoch", st->st_inc.mi_d, rv->rv_d);
	for (i = 0; i < rv->rv_n; i++) {
		struct rv_seg *vs = &rv->rv_seg[i];
		bool is_sealed = vs->vs_known || vs->vs_seg->sg_obj_sealed;
		uint32_t want = vs->vs_known ? vs->vs_known->sc_len : kv_rv_limit(vs), have;

		/* of one that is not read, too: what lies in it is looked for below that */
		if (vs->vs_known && want > vs->vs_seg->sg_bytes)
			return lost("a log segment is sealed behind the end of its object", want,
				    vs->vs_seg->sg_bytes);
		have = kv_rv_first_hole(vs, want, rv->rv_d0);
		if (!vs->vs_skip && is_sealed && !CHECK(have >= want))
			return lost("a log segment ends before its sealed length", want, have);
		/* an epoch that a horizon covers was durable whole, so its descriptor must be */
		for (j = 0; j < vs->vs_n; j++)
			if (!CHECK(vs->vs_frame[j].vf_epoch <= rv->rv_d0 ||
				   vs->vs_frame[j].vf_epoch > rv->rv_d))
				return lost("an epoch below a durable horizon is incomplete",
					    vs->vs_frame[j].vf_epoch, rv->rv_d0);
	}
	return 0;
}

/*
 * True when the frame says that an epoch which is not whole was durable. Its mark names one that
 * wrote: above D0 that is not whole, also where a horizon, and so D, lies at it or above.
 */
static bool proves_more(const struct recovery *rv, const struct rv_frame *f, uint64_t newest)
{
	if (f->vf_epoch <= rv->rv_d)
		return false;
	return f->vf_epoch < newest || !CHECK(!f->vf_has_mark || f->vf_prev <= rv->rv_d0);
}

/* True when a part of a durable epoch above D, or word of one, is there; notes where. */
static bool has_part_of_older(struct recovery *rv, uint64_t newest)
{
	uint32_t i, j;

	for (i = 0; i < rv->rv_n; i++) {
		struct rv_seg *vs = &rv->rv_seg[i];

		for (j = 0; j < vs->vs_n; j++) {
			if (!proves_more(rv, &vs->vs_frame[j], newest))
				continue;
			if (!rv->rv_bad_obj) {
				rv->rv_bad_obj = vs->vs_seg->sg_id;
				rv->rv_bad_off = kv_rv_first_hole(vs, UINT32_MAX, rv->rv_d);
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
		for (j = 0; j < rv->rv_seg[i].vs_n; j++)
			if (newest < rv->rv_seg[i].vs_frame[j].vf_epoch)
				newest = rv->rv_seg[i].vs_frame[j].vf_epoch;
	if (CHECK(!rv->rv_is_unlinked) && CHECK(!has_part_of_older(rv, newest)))
		return 0;
	/* only what the caller was told of is given up */
	if (rv->rv_d && rv->rv_db->d_opened.on_rollback == rv->rv_d)
		return 0;
	return kv_error(-EUCLEAN, "MP0907",
			"object %llu: the log is damaged at %u; epochs up to %llu were durable, "
			"the last good one is %llu", (unsigned long long)rv->rv_bad_obj,
			rv->rv_bad_off, (unsigned long long)newest - 1,
			(unsigned long long)rv->rv_d);
}

/* Sealed lengths (RV2): never more than an earlier record said. */
static void set_cut(struct recovery *rv, struct rv_seg *vs)
{
	uint32_t j, end = rv->rv_hole ? kv_rv_end(rv, vs) : 0;

	if (vs->vs_skip) {
		vs->vs_cut = kv_rv_limit(vs);
		vs->vs_last = vs->vs_known->sc_last;
	}
	for (j = 0; j < vs->vs_n; j++) {
		const struct rv_frame *f = &vs->vs_frame[j];

		/* repair takes what is whole of one that was no torn end */
		if (!f->vf_is_good && f->vf_end > end)
			continue;
		if (f->vf_epoch > rv->rv_d) {
			rv->rv_db->d_opened.on_recovery.discarded += f->vf_nrec;
			continue;
		}
		vs->vs_cut = f->vf_end;
		vs->vs_last = f->vf_epoch;
		if (vs->vs_last > rv->rv_b)
			rv->rv_db->d_logged.lc_left += f->vf_end - f->vf_off;
	}
}

static void set_cuts(struct recovery *rv)
{
	uint32_t i;

	for (i = 0; i < rv->rv_n; i++) {
		struct rv_seg *vs = &rv->rv_seg[i];
		struct kv_seg *s = vs->vs_seg;

		set_cut(rv, vs);
		atomic_store(&s->sg_state, KV_SEG_SEALED);
		atomic_store(&s->sg_end, vs->vs_cut);
		/* RV22: nothing that a run may refer to is sealed away */
		(void)BARRIER((s->sg_keep = vs->vs_used, 0));
		/* and an image of its frames would lack that */
		if (vs->vs_used > vs->vs_cut ||
		    (s->sg_obj_sealed && kv_seg_readable(s) > vs->vs_cut))
			s->sg_cold_until_ns = UINT64_MAX;
		atomic_store(&s->sg_first_epoch, vs->vs_n ? vs->vs_frame[0].vf_epoch : 0);
		atomic_store(&s->sg_last_epoch, vs->vs_last);
	}
}

/* ---- replay (R4) ----------------------------------------------------------------------------- */

/* RV21: its record was durable before the first of its writes. */
int kv_rv_find_store(struct recovery *rv, struct rv_seg *vs, uint32_t id, struct kvdb_kvs **out)
{
	*out = kv_kvs_by_id(rv->rv_db, id);
	if (*out || rv->rv_hole || CHECK(id < rv->rv_st->st_super.ms_next_kvs))
		return 0;
	return ends_early(rv, vs->vs_seg->sg_id, "has records of store", id);
}

struct kv_mt *kv_rv_active_mt(const struct kvdb_kvs *kvs)
{
	return atomic_load(&kvs->k_tree)->tr_mt[0];
}

/* A delete of many keys: it hides by its stamp, so the order of replay does not matter. */
static int replay_many(struct recovery *rv, struct rv_seg *vs, const struct kv_rec *r,
		       uint64_t epoch, uint32_t off)
{
	struct kv_trange t = { .tr_from = r->r_key, .tr_flen = r->r_klen, .tr_seq = r->r_seq };
	uint8_t end[KVDB_KEY_MAX];
	struct kvdb_kvs *kvs;
	int err = kv_rv_find_store(rv, vs, r->r_kvs, &kvs);

	if (err || !kvs || epoch <= atomic_load(&kvs->k_horizon))
		return err;	/* dropped, or in a run */
	if (!CHECK(kv_rec_trange(r, &t) &&
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
	if (rv->rv_is_dry)
		return 0;
	err = kv_mt_tomb_replay(atomic_load(&kvs->k_tree)->tr_mt[0], &t, epoch);
	if (!err)
		rv->rv_db->d_opened.on_recovery.replayed++;
	kv_tree_mark_tombs(kvs);
	return err;
}

/* L6; repair also reads what lies after a container that was cut. */
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
		return kv_rv_replay_commit(rv, vs, r, epoch, off);
	if (r->r_flags & KV_RECF_TXN)
		return 0;	/* a value that counts only through its commit record (R5) */
	if (r->r_type == KV_REC_PDEL || r->r_type == KV_REC_RDEL)
		return replay_many(rv, vs, r, epoch, off);
	/* moved, so in a run; after a container that was cut no horizon says so */
	if (r->r_pack && rv->rv_hole)
		return 0;
	_Static_assert(KV_REC_TYPES == KV_REC_RDEL + 1, "what is left is a put or a delete");
	/* packed values are moved ones, which are never replayed (G6) */
	if (!CHECK(r->r_klen && r->r_klen <= KVDB_KEY_MAX && r->r_vlen <= value_max(rv) &&
		   !r->r_pack))
		return kv_error(-EUCLEAN, "MP0960",
				"object %llu: record at %u has impossible sizes",
				(unsigned long long)vs->vs_seg->sg_id, off);
	err = kv_rv_find_store(rv, vs, r->r_kvs, &kvs);
	if (err || !kvs || epoch <= atomic_load(&kvs->k_horizon) || rv->rv_is_dry)
		return err;	/* dropped, or in a run */
	err = kv_mt_replay(kv_rv_active_mt(kvs), r, epoch, vs->vs_seg,
			   off + kv_rec_val_off(r->r_klen));
	if (!err)
		db->d_opened.on_recovery.replayed++;
	return err;
}

static int replay_frame(struct recovery *rv, struct rv_seg *vs, const struct rv_frame *f)
{
	const uint8_t *p = vs->vs_image + (f->vf_off - vs->vs_base);
	uint32_t off = KV_FRAME_HDR;
	struct kv_frame_hdr h;
	struct kv_rec r;
	int err;

	err = kv_frame_decode(p, (uint32_t)rv->rv_db->d_ident.id_tag, vs->vs_seg->sg_id, f->vf_off,
			      f->vf_end - f->vf_off, &h);
	/* RV16: the scan judged other bytes; a record's own CRC says nothing of its value */
	if (!err && !CHECK(kv_frame_check_payload(p, &h)))
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

/* Repair: the payload is bad, but each record says by its CRC where it lies. */
static int replay_whole(struct recovery *rv, struct rv_seg *vs, const struct rv_frame *f)
{
	const uint8_t *p = vs->vs_image + (f->vf_off - vs->vs_base);
	uint32_t off = KV_FRAME_HDR;
	struct kv_frame_hdr h;
	struct kv_rec r;
	int err = 0;

	if (kv_frame_decode(p, (uint32_t)rv->rv_db->d_ident.id_tag, vs->vs_seg->sg_id, f->vf_off,
			    f->vf_end - f->vf_off, &h))
		return 0;
	for (; !err && kv_rv_next_whole(p, &h, &off, &r); off += r.r_size)
		if (r.r_type != KV_REC_COMMIT || !kv_commit_check(&r))
			err = replay_rec(rv, vs, &r, f->vf_epoch, f->vf_off + off);
	return err;
}

int kv_rv_replay_seg(struct recovery *rv, struct rv_seg *vs, uint64_t lo, uint64_t hi)
{
	bool is_kept = vs->vs_image;
	uint32_t i = 0, n = vs->vs_n, off;
	int err;

	lo = lo < rv->rv_b ? rv->rv_b : lo;
	if (vs->vs_skip || vs->vs_last <= lo)
		return 0;
	while (i < n && vs->vs_frame[i].vf_epoch <= lo)
		i++;
	while (n > i && (vs->vs_frame[n - 1].vf_epoch > hi ||
			 vs->vs_frame[n - 1].vf_end > vs->vs_cut))
		n--;
	if (i == n)
		return 0;
	off = rv->rv_hole ? 0 : vs->vs_frame[i].vf_off;
	err = kv_rv_read(rv, vs, off, vs->vs_frame[n - 1].vf_end - off);
	for (; i < n && !err; i++) {
		const struct rv_frame *f = &vs->vs_frame[i];

		if (f->vf_epoch <= lo || f->vf_epoch > hi)
			continue;
		if (f->vf_is_good)
			err = replay_frame(rv, vs, f);
		else if (rv->rv_hole)
			err = replay_whole(rv, vs, f);
	}
	/* what the scan kept has all of it */
	if (!is_kept || vs->vs_last <= hi)
		kv_rv_forget(vs);
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
	/* a frame that cannot be read proves nothing */
	if (!err && !kv_kfoot_decode(page, kv_le32(page + KV_PAGE - 4), db->d_ident.id_tag, oi->id,
				     kvs, (uint32_t)oi->length, f) && !CHECK(kvs < next))
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

	while (!err && (n = mpool_objects(db->d_mp, after, db->d_ident.id_tag, oi, 64)) != 0) {
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
			} else if (CHECK(after > st->st_inc.mi_ckpt)) {
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
	if (!err && !is_check && !CHECK(strange <= ORPHANS_FEW ||
				       (strange <= ORPHANS_MAX && strange <= objects / 100)))
		err = kv_error(-EUCLEAN, "MP0962",
			       "%llu of %llu objects belong to no run: more than a crash leaves; "
			       "this is for kvdb repair",
			       (unsigned long long)strange, (unsigned long long)objects);
	return err;
}

/* C5: they stay until the checkpoint is dropped. An open after that knows them by name only. */
static int name_orphans(struct recovery *rv)
{
	uint32_t n = (uint32_t)rv->rv_norphan;

	rv->rv_norphan = 0;
	return n ? BARRIER(kv_mdc_gone(rv->rv_db, rv->rv_orphan, n)) : 0;
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
		if (!CHECK(rv->rv_seq >= st->st_ckpt[i].mc_seq))
			rv->rv_seq = st->st_ckpt[i].mc_seq;
	db->d_ident.id_incarnation = st->st_inc.mi_incarnation + 1;
	atomic_store(&db->d_epochs.ep_seq, rv->rv_seq + 1);
	atomic_store(&db->d_epochs.ep_open, rv->rv_epoch + 1);
	atomic_store(&db->d_epochs.ep_closed, rv->rv_epoch);
	atomic_store(&db->d_epochs.ep_durable, rv->rv_epoch);
	db->d_opened.on_recovery.incarnation = db->d_ident.id_incarnation;
	db->d_opened.on_recovery.durable_epoch = rv->rv_d;
	most = most < rv->rv_seq ? rv->rv_seq : most;
	return most < rv->rv_epoch ? rv->rv_epoch : most;
}

/* No database counts so far; what this one wrote next would be refused at the next open. */
static int check_numbers(uint32_t incarnation, uint64_t most)
{
	if (CHECK(most < KV_NUMBER_END / 2 && incarnation < UINT32_MAX / 2))
		return 0;
	return kv_error(-EUCLEAN, "MP0960", "epochs, stamps or runs are numbered up to %llu, "
			"incarnations up to %u: there is no room to count on",
			(unsigned long long)most, incarnation);
}

int kv_rv_settle(struct recovery *rv)
{
	struct kvdb *db = rv->rv_db;
	int err;

	if (rv->rv_is_settled)
		return 0;
	rv->rv_is_settled = true;
	err = find_orphans(rv, rv->rv_as != KV_RECOVER_WRITE);
	if (err || rv->rv_as != KV_RECOVER_WRITE)
		return err;
	/* RV24: from here on nothing refuses the database for what is in it */
	err = mpool_begin(db->d_mp);
	if (err)
		return kv_error_mpool(err);
	if (kv_ckpt_holds_all(db))
		err = name_orphans(rv);
	if (!err)
		err = commit_incarnation(rv);
	if (!err)
		err = kv_objs_delete(db->d_mp, rv->rv_orphan, rv->rv_norphan);
	if (err)
		return err;
	/* RV26: what opens that were killed had ready must not add up */
	err = kv_segs_free_unused(db);
	return err == -ENOMEM ? 0 : kv_error_stopped(db, err);
}

static int recover(struct recovery *rv)
{
	struct kvdb *db = rv->rv_db;
	uint32_t i;
	int err = 0;

	/* what a process crash left in a device's cache must not vanish after it was believed */
	if (rv->rv_as == KV_RECOVER_WRITE)
		err = BARRIER(mpool_flush(db->d_mp, (1u << MPOOL_MCLASSES) - 1));
	if (err)
		return kv_error_mpool(err);
	err = kv_rv_list(rv);
	for (i = 0; i < rv->rv_n && !err; i++)
		err = kv_rv_scan(rv, &rv->rv_seg[i]);
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
	if (!err)
		err = kv_rv_replay(rv);
	return err ? err : kv_rv_settle(rv);
}

static void recovery_free(struct recovery *rv)
{
	uint32_t i;

	for (i = 0; i < rv->rv_n; i++) {
		kv_rv_forget(&rv->rv_seg[i]);
		free(rv->rv_seg[i].vs_frame);
	}
	for (i = 0; i < rv->rv_ndesc; i++)
		free(rv->rv_desc[i].vd_ent);
	free(rv->rv_seg);
	free(rv->rv_desc);
	free(rv->rv_orphan);
}

static void recovery_init(struct recovery *rv, struct kvdb *db, enum kv_recover_as as)
{
	struct kv_mdc_state *st = &db->d_mdc->m_st;
	uint32_t i;

	memset(rv, 0, sizeof(*rv));
	rv->rv_db = db;
	rv->rv_as = as;
	rv->rv_is_dry = as == KV_RECOVER_CHECK;
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

int kv_recover(struct kvdb *db, enum kv_recover_as as)
{
	struct recovery rv;
	uint64_t start = kv_now(db);
	int err;

	recovery_init(&rv, db, as);
	memset(&db->d_opened.on_recovery, 0, sizeof(db->d_opened.on_recovery));
	db->d_opened.on_recovery.was_clean = rv.rv_st->st_clean || !rv.rv_st->st_inc.mi_incarnation;
	err = recover(&rv);
	recovery_free(&rv);
	db->d_opened.on_recovery.elapsed_ns = kv_now(db) - start;
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

	recovery_init(&rv, db, KV_RECOVER_ALL);
	rv.rv_hole = fn;
	rv.rv_arg = arg;
	err = kv_rv_list(&rv);
	for (i = 0; i < rv.rv_n && !err; i++)
		err = lossy(&rv, &rv.rv_seg[i], kv_rv_scan(&rv, &rv.rv_seg[i]));
	rv.rv_d = rv.rv_floor;
	for (i = 0; i < rv.rv_n; i++)
		for (j = 0; j < rv.rv_seg[i].vs_n; j++)
			if (rv.rv_seg[i].vs_frame[j].vf_epoch > rv.rv_d)
				rv.rv_d = rv.rv_seg[i].vs_frame[j].vf_epoch;
	for (i = 0; i < rv.rv_n && !err; i++)
		err = lossy(&rv, &rv.rv_seg[i], kv_rv_tell_tail(&rv, &rv.rv_seg[i]));
	if (!err) {
		set_cuts(&rv);
		set_numbers(&rv);
	}
	for (i = 0; i < rv.rv_n && !err; i++)
		err = lossy(&rv, &rv.rv_seg[i],
			    kv_rv_replay_seg(&rv, &rv.rv_seg[i], 0, UINT64_MAX));
	recovery_free(&rv);
	return err;
}

/* G2: until a run refers to it a segment of moved values may be torn, and nothing needs it. */
static bool is_cut_move(const struct rv_seg *vs, const struct rv_frame *f)
{
	return f->vf_log == KV_MOVED_LOG && !atomic_load(&vs->vs_seg->sg_runs);
}

/* What is damaged of a segment of which @end is sealed, 0 = nothing; @d: epochs up to it count. */
static void tell_holes(struct rv_seg *vs, uint32_t end, uint64_t d, kv_hole_fn *fn, void *arg)
{
	uint32_t pos = 0, i;

	for (i = 0; i < vs->vs_n; i++) {
		const struct rv_frame *f = &vs->vs_frame[i];

		if (!f->vf_is_good)
			continue;
		if (f->vf_off > pos && (end || f->vf_epoch <= d) && !is_cut_move(vs, f))
			fn(arg, vs->vs_seg, pos, f->vf_off);
		pos = f->vf_end;
	}
	if (!CHECK(pos >= end))
		fn(arg, vs->vs_seg, pos, end);
}

int kv_logs_check(struct kvdb *db, bool check_values, kv_hole_fn *fn, void *arg)
{
	struct recovery rv;
	uint32_t i, limit;
	int err;

	recovery_init(&rv, db, KV_RECOVER_CHECK);
	rv.rv_keep_max = 0;
	err = kv_rv_list(&rv);
	for (i = 0; i < rv.rv_n && !err; i++) {
		struct rv_seg *vs = &rv.rv_seg[i];
		bool is_sealed = vs->vs_known || vs->vs_seg->sg_obj_sealed;

		limit = kv_rv_limit(vs);
		if (!limit)
			continue;
		err = kv_rv_read(&rv, vs, 0, limit);
		if (!err)
			err = kv_rv_scan_image(&rv, vs, limit, check_values);
		if (!err)
			tell_holes(vs, is_sealed ? limit : 0,
				   db->d_opened.on_recovery.durable_epoch, fn, arg);
		kv_rv_done(&rv, vs, limit, false);
	}
	recovery_free(&rv);
	return err;
}
