/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Replay of transactions: a commit record with its write set, of which parts may lie in the value
 * log (T15). All of it is replayed or nothing: all parts are looked at first. One that is damaged
 * fails the open, and repair takes nothing of its transaction.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/guard.h"
#include "db/db.h"
#include "mem/memtable.h"
#include "mem/tomb.h"
#include "meta/mdc.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "tree/tomb_view.h"
#include "tree/tree.h"
#include "txn/txn_omf.h"
#include "open/recover.h"

struct commit {
	struct recovery *cm_rv;
	struct rv_seg *cm_vs;		/* of the commit record, */
	uint32_t cm_off;		/* where it lies there */
	const struct kv_rec *cm_rec;
	uint64_t cm_epoch;
};

/* The value of a transaction's write, in a segment that may be older than the commit record. */
static int find_value(const struct commit *cm, const struct kv_commit_ent *e, struct rv_seg **out)
{
	struct rv_seg *at = kv_rv_seg_by_id(cm->cm_rv, e->ce_obj);

	*out = at;
	/* its epoch is at most the record's: so it is as durable, or was lost */
	if (CHECK(at && (uint64_t)e->ce_off8 * KV_REC_ALIGN + e->ce_vlen <= at->vs_cut))
		return 0;
	if (cm->cm_rv->rv_hole)	/* repair says so when it reads the value; others are there */
		return 0;
	return kv_error(-EUCLEAN, "MP0961", "device lost acknowledged writes: object %llu: "
			"the commit record at %u refers to object %llu, which ends before",
			(unsigned long long)cm->cm_vs->vs_seg->sg_id, cm->cm_off,
			(unsigned long long)e->ce_obj);
}

/* A delete of a range of a transaction, older than what that put (T13). */
static int replay_cover(const struct commit *cm, struct kvdb_kvs *kvs,
			const struct kv_commit_ent *e)
{
	struct recovery *rv = cm->cm_rv;
	struct kv_trange t;
	int err;

	/* checked with the whole record; repair also reads after a container that was cut */
	if (!CHECK(kv_commit_trange(e, &t) &&
		   (rv->rv_hole || rv->rv_st->st_super.ms_incompat & KV_FEAT_TXN_RANGES)))
		return kv_error(-EUCLEAN, "MP0960", "a commit record deletes a range, which the "
				"database's features do not allow");
	t.tr_seq = kv_tslot_tomb_seq(cm->cm_rec->r_seq);
	err = kv_mt_tomb_replay(kv_rv_active_mt(kvs), &t, cm->cm_epoch);
	kv_tree_mark_tombs(kvs);
	return err;
}

/* The memtable's epochs do not protect an older segment (RV7), be it of a value or of a part. */
static int hold(struct kvdb_kvs *kvs, struct kv_seg *seg)
{
	return BARRIER(kv_mt_pin(kv_rv_active_mt(kvs), seg));
}

/* *out NULL: what the transaction wrote to the store is not needed: dropped, or in a run. */
static int find_store(const struct commit *cm, const struct kv_commit_ent *e,
		      struct kvdb_kvs **out)
{
	int err = kv_rv_find_store(cm->cm_rv, cm->cm_vs, e->ce_kvs, out);

	if (!err && *out && !CHECK(cm->cm_epoch > atomic_load(&(*out)->k_horizon)))
		*out = NULL;
	return err;
}

static int replay_ent(const struct commit *cm, const struct kv_commit_ent *e)
{
	struct recovery *rv = cm->cm_rv;
	struct kv_rec w = { .r_type = e->ce_kind == KV_ENT_TOMB ? KV_REC_DEL : KV_REC_PUT,
			    .r_kvs = e->ce_kvs, .r_klen = e->ce_klen, .r_vlen = e->ce_vlen,
			    .r_vcrc = e->ce_vcrc, .r_seq = cm->cm_rec->r_seq, .r_rev = e->ce_rev,
			    .r_key = e->ce_key, .r_val = e->ce_val, .r_expiry = e->ce_expiry };
	struct rv_seg *at = NULL;
	struct kvdb_kvs *kvs;
	int err = find_store(cm, e, &kvs);

	if (err || !kvs)
		return err;
	if (e->ce_kind == KV_ENT_REF)
		err = find_value(cm, e, &at);
	if (err || rv->rv_is_dry)
		return err;
	err = at ? hold(kvs, at->vs_seg) : 0;
	if (!err && e->ce_kind == KV_ENT_COVER)
		err = replay_cover(cm, kvs, e);
	else if (!err)
		err = kv_mt_replay(kv_rv_active_mt(kvs), &w, cm->cm_epoch, at ? at->vs_seg : NULL,
				   e->ce_off8 * KV_REC_ALIGN);
	rv->rv_db->d_opened.on_recovery.replayed += !err;
	return err;
}

/* ---- parts ------------------------------------------------------------------------------- */

struct part {
	struct kv_seg *pt_seg;
	uint8_t *pt_mem;	/* to be freed, or NULL */
	const uint8_t *pt_val;	/* the entries */
};

static int part_read(struct recovery *rv, struct rv_seg *at, uint32_t from, uint32_t len,
		     struct part *pt)
{
	uint32_t off = from / KV_BLOCK * KV_BLOCK, end = (from + len + KV_BLOCK - 1) / KV_BLOCK *
							  KV_BLOCK;
	struct iovec v = { .iov_len = end - off };
	int err;

	if (at->vs_image && off >= at->vs_base && end <= at->vs_base + at->vs_len) {
		pt->pt_val = at->vs_image + (from - at->vs_base);
		return 0;
	}
	v.iov_base = pt->pt_mem = aligned_alloc(KV_BLOCK, v.iov_len);
	if (!v.iov_base)
		return kv_error(-ENOMEM, "MP0902", "no memory to read a part of a commit record");
	err = mpool_read(at->vs_seg->sg_obj, off, &v, 1);
	pt->pt_val = pt->pt_mem + (from - off);
	atomic_fetch_add(&rv->rv_db->d_count.read_bytes[KV_READ_LOG][at->vs_seg->sg_mclass],
			 v.iov_len);
	return err ? kv_error_mpool(err) : 0;
}

/* -EUCLEAN, -EIO: it is damaged. */
static int part_get(const struct commit *cm, const struct kv_commit_ent *e, struct part *pt)
{
	struct recovery *rv = cm->cm_rv;
	uint32_t from = e->ce_off8 * KV_REC_ALIGN;
	struct rv_seg *at;
	int err = find_value(cm, e, &at), check;

	*pt = (struct part){ 0 };
	if (!err && !CHECK(rv->rv_hole ||
			   rv->rv_st->st_super.ms_incompat & KV_FEAT_TXN_PARTS))
		err = kv_error(-EUCLEAN, "MP0960", "a commit record has parts, which the "
			       "database's features do not allow");
	if (!err && (!at || (uint64_t)from + e->ce_vlen > at->vs_cut))
		err = -EUCLEAN;
	if (!err)
		err = part_read(rv, at, from, e->ce_vlen, pt);
	if (err)
		return err;
	pt->pt_seg = at->vs_seg;
	check = kv_commit_check_part(e, pt->pt_val);
	if (!check)
		return 0;
	return kv_error(-EUCLEAN, "MP0960", "object %llu: a part of a commit record at %u is "
			"damaged (check %d)", (unsigned long long)e->ce_obj, from, check);
}

/* Its segment may be gone when its store has all of it in runs: then it is not looked for. */
static int replay_part(const struct commit *cm, const struct kv_commit_ent *e)
{
	struct kv_commit_ent w;
	struct kvdb_kvs *kvs;
	uint32_t pos = 0;
	struct part pt;
	int err = find_store(cm, e, &kvs);

	if (err || !kvs)
		return err;
	err = part_get(cm, e, &pt);
	if (!err && !cm->cm_rv->rv_is_dry)
		err = hold(kvs, pt.pt_seg);
	while (!err && kv_commit_next_part(pt.pt_val, e->ce_vlen, &pos, &w))
		err = replay_ent(cm, &w);
	free(pt.pt_mem);
	return err;
}

/* Are all parts whole? Repair is told of the first that is not, and goes on without *@out. */
static int check_parts(const struct commit *cm, bool *out)
{
	struct kv_commit_ent e;
	uint32_t pos = 0;
	int err = 0;

	while (!err && kv_commit_next(cm->cm_rec, &pos, &e)) {
		struct kvdb_kvs *kvs = NULL;
		struct part pt;

		if (e.ce_kind == KV_ENT_PART)
			err = find_store(cm, &e, &kvs);
		if (err || !kvs)
			continue;
		err = part_get(cm, &e, &pt);
		free(pt.pt_mem);
	}
	*out = !err;
	if (!cm->cm_rv->rv_hole || (err != -EUCLEAN && err != -EIO))
		return err;
	cm->cm_rv->rv_hole(cm->cm_rv->rv_arg, cm->cm_vs->vs_seg, cm->cm_off,
			   cm->cm_off + cm->cm_rec->r_size);
	return 0;
}

/* RV15: a transaction belongs to the epoch of its commit record, in each of its stores. */
int kv_rv_replay_commit(struct recovery *rv, struct rv_seg *vs, const struct kv_rec *r,
			uint64_t epoch, uint32_t off)
{
	struct commit cm = { .cm_rv = rv, .cm_vs = vs, .cm_off = off, .cm_rec = r,
			     .cm_epoch = epoch };
	bool is_whole = true;
	struct kv_commit_ent e;
	uint32_t pos = 0;
	/* first: a replay that ends inside it leaves a part of it in memtables, which repair has */
	int err = BARRIER(check_parts(&cm, &is_whole));

	while (!err && is_whole && kv_commit_next(r, &pos, &e))
		err = e.ce_kind == KV_ENT_PART ? replay_part(&cm, &e) : replay_ent(&cm, &e);
	return err;
}
