/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Parts of a commit record: a write set that is too large for one record is logged in pieces,
 * as values of the transaction without a key, each of one store, and the record names them (T15).
 * Here the pieces are made; txn_commit.c logs them, before anything is linked, so they are of the
 * record's epoch or of older ones, and what holds the segments of values holds theirs (T8).
 */
#include "txn/txn.h"
#include "base/assert.h"
#include "db/thread.h"
#include "mem/memtable.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "tree/tree.h"
#include "txn/txn_omf.h"

#define ENTER_MAX	1024u	/* writes whose revision is looked up inside one kv_enter() */

/* Engine time from which on what was put is gone; 0 = never. */
uint64_t kv_write_expiry(const struct kv_write *w)
{
	return w->w_v.tv_kind == KV_ENT_TOMB ? 0 : w->w_in->tt_expiry;
}

uint32_t kv_write_size(const struct kv_write *w)
{
	return kv_commit_ent_size(w->w_lock.kl_klen, w->w_v.tv_kind, w->w_v.tv_vlen,
				  kv_write_expiry(w));
}

uint32_t kv_write_encode(const struct kv_write *w, uint8_t *to)
{
	struct kv_commit_ent e = {
		.ce_key = w->w_lock.kl_key, .ce_klen = w->w_lock.kl_klen,
		.ce_kvs = (uint16_t)w->w_lock.kl_kvs, .ce_kind = w->w_v.tv_kind,
		.ce_vlen = w->w_v.tv_vlen, .ce_vcrc = w->w_v.tv_vcrc,
		.ce_val = w->w_v.tv_val, .ce_off8 = w->w_v.tv_off8,
		.ce_obj = w->w_v.tv_seg ? w->w_v.tv_seg->sg_id : 0,
		.ce_expiry = kv_write_expiry(w), .ce_rev = w->w_rev,
	};

	return kv_commit_encode_ent(to, &e);
}

static struct kv_write *next_of(struct kv_write *w, const struct kv_touched *tt)
{
	while (w && w->w_in != tt)
		w = w->w_next;
	return w;
}

/*
 * A writer that saw no owner of the key held its bucket's lock from that look on until it had
 * linked; the look at the revision takes the lock, so it comes after that. No other writer links
 * a version of an owned key, so its version has this revision wherever it is linked: above the one
 * that is there now, or in a later memtable, whose epochs are later.
 */
static void take_revs(struct kv_write *w)
{
	struct kv_thread *th = kv_enter();
	struct kv_touched *tt = w->w_in;

	/* between the claims and the look at the tree: pairs with the looks of plain writes */
	atomic_thread_fence(memory_order_seq_cst);
	for (uint32_t i = 0; w && i < ENTER_MAX; i++, w = next_of(w->w_next, tt))
		w->w_rev = kv_mt_next_rev(kv_mt_active(tt->tt_kvs), w->w_lock.kl_key,
					  w->w_lock.kl_klen, w->w_lock.kl_hash);
	kv_exit(th);
}

/* Of fi_next's store as many as have room. */
static void fill(struct kv_filling *fi)
{
	fi->fi_used = fi->fi_n = 0;
	while (fi->fi_next) {
		struct kv_write *w = fi->fi_next;
		uint32_t size = kv_write_size(w);

		KV_ASSERT(size <= fi->fi_size);
		if (fi->fi_used + size > fi->fi_size)
			return;
		if (!w->w_rev)
			take_revs(w);
		fi->fi_used += kv_write_encode(w, fi->fi_buf + fi->fi_used);
		fi->fi_n++;
		fi->fi_next = next_of(w->w_next, fi->fi_of);
	}
}

/* They stay in the record: they are too short for a value. */
static void leave(struct kv_write *w, const struct kv_filling *fi)
{
	for (; w; w = next_of(w->w_next, fi->fi_of))
		w->w_rev = 0;
}

bool kv_filling_next(struct kv_filling *fi)
{
	struct kv_write *first;

	for (;;) {
		while (!fi->fi_next) {
			fi->fi_of = fi->fi_of ? fi->fi_of->tt_next : fi->fi_txn->t_touched;
			if (!fi->fi_of)
				return false;
			fi->fi_next = next_of(fi->fi_txn->t_first, fi->fi_of);
		}
		first = fi->fi_next;
		fill(fi);
		if (fi->fi_used > KV_INLINE_MAX)
			return true;
		leave(first, fi);
	}
}

uint32_t kv_txn_parts_bytes(const struct kvdb_txn *t)
{
	return t->t_npart * KV_COMMIT_ENT;
}

uint32_t kv_txn_parts_encode(const struct kvdb_txn *t, uint8_t *buf)
{
	uint8_t *p = buf;

	for (uint32_t i = 0; i < t->t_npart; i++) {
		const struct kv_txn_part *tp = &t->t_part[i];
		struct kv_commit_ent e = {
			.ce_kvs = (uint16_t)tp->tp_kvs, .ce_kind = KV_ENT_PART,
			.ce_vlen = tp->tp_v.tv_vlen, .ce_vcrc = tp->tp_v.tv_vcrc,
			.ce_rev = tp->tp_n, .ce_off8 = tp->tp_v.tv_off8,
			.ce_obj = tp->tp_v.tv_seg->sg_id,
		};

		p += kv_commit_encode_ent(p, &e);
	}
	return (uint32_t)(p - buf);
}
