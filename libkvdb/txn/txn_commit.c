/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What transactions write to the logs: values as they come, one commit record
 * at the end. The commit record holds the write set or names its parts (T15), and larger
 * values by their places, so a transaction belongs to the epoch of that record (R5).
 *
 * Commit, a refinement of R12: first all versions are linked into the active
 * memtables, pointing at a slot that is ACTIVE, hence invisible; no writer links
 * above them, for the keys are owned. Then the record is reserved, copied, and
 * goes from OPEN to INSTALLING if the memtables are still those of its epoch:
 * between reservation and installation lies a copy, not a walk over memtables,
 * so a large transaction is not overtaken by every tick. From INSTALLING on
 * the flusher can complete it by itself; before, it withdraws the record and the
 * committer logs it again. If a memtable was switched meanwhile, its versions
 * are taken out and linked anew, under a new slot: a reader that met an old version
 * must never see it committed, for its memtable is of other epochs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/vec.h"
#include "db/etime.h"
#include "db/thread.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/memtable.h"
#include "tree/gap.h"
#include "tree/tree.h"
#include "log/record.h"
#include "meta/mdc.h"
#include "background/work.h"
#include "txn/batch.h"
#include "txn/txn_omf.h"

#define SLOTS_BATCH 64u	/* slots that are retired together */
#define GROUP_MAX 32u	/* values that are logged together, */
#define GROUP_PART 4u	/* with so small a part of what one may have that has no own frame */
#define PART_MIN 2048u	/* one entry fits, whatever it has */
#define STEP 512u	/* writes that a large transaction links at a time */
#define AHEAD 12u	/* of that, whose buckets are fetched meanwhile */

/* ---- values ------------------------------------------------------------------------------- */

/*
 * R5: what the write set refers to stays; a transaction may hold so much and no more.
 * -EAGAIN: the segment is gone, so the record in it was withdrawn long ago.
 */
static int pin(struct kvdb_txn *t, struct kv_seg *s)
{
	uint32_t i;

	for (i = t->t_nseg; i-- > 0; )
		if (t->t_seg[i] == s)
			return 0;
	if (kv_vec_grow(&t->t_seg, &t->t_segcap, t->t_nseg + 1, sizeof(t->t_seg[0])))
		return kv_error(-ENOMEM, "MP0902", "no memory for a write");
	if (!kv_seg_tryget(s))
		return -EAGAIN;
	t->t_seg[t->t_nseg++] = s;
	t->t_seg_bytes += s->sg_bytes;
	return 0;
}

static int check_pinned(struct kvdb_txn *t)
{
	if (CHECK(t->t_seg_bytes <= t->t_db->d_budget.b_txn_log_bytes))
		return 0;
	kv_txn_doom(t, -EFBIG, KVDB_TXN_LOG_FULL);
	return kv_error(-EFBIG, "MP0924", "the values of the transaction lie in log segments of "
			"%llu bytes together; %llu are the most",
			(unsigned long long)t->t_seg_bytes,
			(unsigned long long)t->t_db->d_budget.b_txn_log_bytes);
}

/* The dearest of the stores that it writes to, or NULL. */
struct kv_toll *kv_txn_toll(struct kvdb_txn *t)
{
	struct kv_toll *worst = NULL;

	for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next) {
		struct kv_toll *to = kv_toll(t->t_db, tt->tt_kvs);

		if (to && (!worst || atomic_load(&to->to_cost) > atomic_load(&worst->to_cost)))
			worst = to;
	}
	return worst;
}

/* Memory, log space and debt hold a transaction back as they do a plain write. */
static int admit(struct kvdb_txn *t, uint32_t bytes, bool urgent)
{
	struct kvdb *db = t->t_db;
	struct kv_toll *toll;
	int err = 0;

	KV_ASSERT_OUTSIDE();
	if (KV_UNLIKELY(atomic_load_explicit(&db->d_flusher->fl_stall, memory_order_relaxed)))
		err = kv_stall_wait(db, urgent);
	if (err)
		return kv_error_room(db, err, "transaction");
	toll = kv_txn_toll(t);
	if (KV_UNLIKELY(toll != NULL))
		kv_throttle(db, toll, bytes);
	return 0;
}

/* The same for a caller that does not wait: it was held back before (kv_txn_commit_begin()). */
static int admit_begun(struct kvdb *db, bool urgent)
{
	int err = atomic_load(&db->d_flusher->fl_stall) && !urgent ?
		  atomic_load(&db->d_flusher->fl_space_err) : 0;

	return err ? kv_error_room(db, err, "transaction") : 0;
}

/* A value and its record. */
struct value {
	const struct kv_keylock *va_lock;	/* key and store */
	struct kv_txn_val *va_v;	/* gets its place */
	const void *va_val;
	uint32_t va_size;
};

/* Values whose records lie one after another, in one frame. */
struct group {
	struct value gr_of[GROUP_MAX];
	uint32_t gr_n, gr_bytes;
};

static void encode_value(const struct value *va, const struct kv_resv *rs)
{
	kv_rec_encode(rs->rs_buf, KV_REC_PUT, (uint16_t)va->va_lock->kl_kvs, va->va_lock->kl_key,
		      va->va_lock->kl_klen, va->va_val, va->va_v->tv_vlen, va->va_v->tv_vcrc);
	kv_rec_set_flags(rs->rs_buf, KV_RECF_TXN);
}

/* It has no place in the order of writes: the commit record has. */
static void stamp_value(const struct value *va, const struct kv_resv *rs, uint32_t index)
{
	KV_ASSERT_SLOW(kv_rec_vlen(rs->rs_buf) == va->va_v->tv_vlen);
	kv_rec_stamp(rs->rs_buf, rs->rs_seg->sg_id, rs->rs_off, 0);
	kv_record_encoded(rs, index, va->va_size);
}

/* From the place of a record to that of the next one. */
static void go_behind(struct kv_resv *rs, const struct value *va)
{
	KV_ASSERT_SLOW(va->va_size % KV_REC_ALIGN == 0);
	rs->rs_buf += va->va_size;
	rs->rs_off += va->va_size;
}

/*
 * T8: once it is installed its epoch may end, and the segment with it; before, that
 * withdraws the record. A pin that is then not needed stays: the next attempt is
 * most likely in the same segment.
 */
static int pin_value(struct kvdb_txn *t, const struct kv_resv *rs)
{
	return BARRIER(pin(t, rs->rs_seg));
}

/* Whole records, in steps: what was written a moment ago is slow to read. */
static void encode_group(const struct group *gr, struct kv_resv rs, uint32_t index)
{
	struct kv_resv at = rs;

	KV_ASSERT_SLOW(rs.rs_off + gr->gr_bytes <= rs.rs_seg->sg_bytes);
	for (uint32_t i = 0; i < gr->gr_n; go_behind(&at, &gr->gr_of[i++]))
		encode_value(&gr->gr_of[i], &at);
	for (uint32_t i = 0; i < gr->gr_n; go_behind(&rs, &gr->gr_of[i++]))
		stamp_value(&gr->gr_of[i], &rs, index + i);
}

static void skip_group(const struct group *gr, struct kv_resv rs)
{
	for (uint32_t i = 0; i < gr->gr_n; go_behind(&rs, &gr->gr_of[i++]))
		kv_rec_encode_skip(rs.rs_buf, rs.rs_seg->sg_id, rs.rs_off, gr->gr_of[i].va_size);
}

static void group_done(const struct group *gr, struct kv_resv rs, uint32_t index)
{
	for (uint32_t i = 0; i < gr->gr_n; go_behind(&rs, &gr->gr_of[i++]))
		kv_record_done(&rs, index + i, gr->gr_of[i].va_size);
}

/* One attempt in a reserved place: 0, -EAGAIN (withdrawn), -ENOMEM. All of them, or none. */
static int write_group(struct kvdb_txn *t, const struct group *gr, struct kv_slot *sl,
		       const struct kv_resv *rs)
{
	uint32_t index = atomic_load_explicit(&sl->sl_index, memory_order_relaxed);
	int err;

	KV_ASSERT_INSIDE();
	KV_ASSERT(gr->gr_n && gr->gr_n <= GROUP_MAX);
	kv_slot_place(sl, rs);
	atomic_store_explicit(&sl->sl_more, gr->gr_n - 1, memory_order_release);
	encode_group(gr, *rs, index);
	atomic_store_explicit(&sl->sl_ver, 0, memory_order_release);
	err = pin_value(t, rs);
	if (!err && !kv_slot_install(sl))
		err = -EAGAIN;
	if (err)
		skip_group(gr, *rs);
	group_done(gr, *rs, index);
	kv_slot_idle(sl);
	return err;
}

/* A value with a segment of its own (L4): nothing has to be installed. */
static int log_own(struct kvdb_txn *t, const struct value *va, struct kv_resv *rs)
{
	struct kvdb *db = t->t_db;
	struct kv_thread *th;
	int err = kv_large_make(db, KV_VLOG, va->va_size, 0, rs);

	if (err)
		return err;
	encode_value(va, rs);
	stamp_value(va, rs, 0);
	kv_record_done(rs, 0, va->va_size);
	th = kv_enter();
	kv_large_enter(db, rs);
	err = pin_value(t, rs);
	kv_large_leave(db, rs, !err);
	kv_exit(th);
	if (err)
		kv_large_drop(db, rs);
	return err;
}

static int log_shared(struct kvdb_txn *t, const struct group *gr, struct kv_resv *rs)
{
	struct kvdb *db = t->t_db;
	struct kv_tctx *tc = kv_tctx(db);
	struct kv_thread *th;
	struct kv_log *lo;
	int err = 0;

	if (!tc)
		return kv_error(-ENOMEM, "MP0902", "no memory for a thread's state");
	while (!err) {
		lo = kv_log_pick(db, KV_VLOG);
		th = kv_enter();
		kv_slot_open(&tc->tc_slot);
		err = kv_log_reserve(db, lo, gr->gr_n, gr->gr_bytes, rs);
		if (!err) {
			err = write_group(t, gr, &tc->tc_slot, rs);
			if (err == -EAGAIN)	/* late: do not fill a dying epoch */
				kv_wait_closed(db, atomic_load(&db->d_epochs.ep_open));
			kv_exit(th);
			if (!err)
				break;
			err = err == -EAGAIN ? 0 : err;
			continue;
		}
		kv_slot_idle(&tc->tc_slot);
		kv_exit(th);
		err = err == -EAGAIN ? kv_segment_wait(db, lo, false) :
		      kv_error(err, "MP0902", "no memory for a write");
	}
	return err;
}

/* Each gets its place; the group is empty then. */
static void place_group(struct group *gr, struct kv_resv rs)
{
	for (uint32_t i = 0; i < gr->gr_n; go_behind(&rs, &gr->gr_of[i++])) {
		uint32_t off = rs.rs_off + kv_rec_val_off(gr->gr_of[i].va_lock->kl_klen);
		struct kv_txn_val *v = gr->gr_of[i].va_v;

		KV_ASSERT(off % KV_REC_ALIGN == 0);
		v->tv_seg = rs.rs_seg;
		v->tv_off8 = off / KV_REC_ALIGN;
	}
	gr->gr_n = gr->gr_bytes = 0;
}

static int log_group(struct kvdb_txn *t, struct group *gr)
{
	struct kvdb *db = t->t_db;
	struct kv_resv rs;
	int err = check_pinned(t);

	KV_ASSERT_OUTSIDE();
	if (!err)
		err = t->t_is_paid ? admit_begun(db, false) : admit(t, gr->gr_bytes, false);
	if (!err && gr->gr_of[0].va_v->tv_vlen > KV_VALUE_PLAIN)
		err = kv_mdc_allow_large(db);
	KV_ASSERT(gr->gr_n == 1 || !kv_large_is_for(db, gr->gr_bytes));
	if (!err)
		err = kv_large_is_for(db, gr->gr_bytes) ? log_own(t, gr->gr_of, &rs) :
							  log_shared(t, gr, &rs);
	if (err)
		return kv_error_unwritten(err);
	place_group(gr, rs);
	return 0;
}

static void group_add(struct group *gr, const struct kv_keylock *kl, struct kv_txn_val *v,
		      const void *val)
{
	uint32_t size = kv_rec_size(kl->kl_klen, v->tv_vlen);

	KV_ASSERT(gr->gr_n < GROUP_MAX);
	gr->gr_of[gr->gr_n++] = (struct value){ .va_lock = kl, .va_v = v, .va_val = val,
						.va_size = size };
	gr->gr_bytes += size;
}

int kv_txn_log_value(struct kvdb_txn *t, const struct kv_keylock *kl, struct kv_txn_val *v,
		     const void *val)
{
	struct group gr;

	gr.gr_n = gr.gr_bytes = 0;
	group_add(&gr, kl, v, val);
	return log_group(t, &gr);
}

/* A frame has room for it, and so have most segments before their end. */
static bool group_has_room(struct kvdb *db, const struct group *gr, uint32_t size)
{
	return !gr->gr_n || (gr->gr_n < GROUP_MAX &&
			     !kv_large_is_for(db, (gr->gr_bytes + size) * GROUP_PART));
}

int kv_txn_log_values(struct kvdb_txn *t)
{
	struct group gr;
	int err = 0;

	KV_ASSERT(t->t_is_batch && !t->t_groups);	/* it owns nothing while it may wait */
	gr.gr_n = gr.gr_bytes = 0;
	for (struct kv_write *w = t->t_first; w; w = w->w_next) {
		struct kv_txn_val *v = &w->w_v;

		if (v->tv_kind != KV_ENT_REF)
			continue;
		if (!group_has_room(t->t_db, &gr, kv_rec_size(w->w_lock.kl_klen, v->tv_vlen)))
			err = log_group(t, &gr);
		if (err)
			return err;
		v->tv_vcrc = mpool_crc32c(0, v->tv_val, v->tv_vlen);
		group_add(&gr, &w->w_lock, v, v->tv_val);
		v->tv_val = NULL;
	}
	return gr.gr_n ? log_group(t, &gr) : 0;
}

/* ---- slots ---------------------------------------------------------------------------------- */

static void slots_free(void *arg)
{
	struct kv_tslot *ts = arg, *next;

	for (; ts; ts = next) {
		next = ts->ts_next;
		free(ts);
	}
}

/* Nothing names the slot any more, but readers that are inside kv_enter() may. */
static void slot_retire(struct kvdb *db, struct kv_tslot *ts)
{
	struct kv_txns *tx = db->d_txns;
	struct kv_tslot *list = NULL;

	KV_ASSERT(atomic_load(&ts->ts_state) != KV_TS_ACTIVE &&
		atomic_load(&ts->ts_state) != KV_TS_PREPARED);
	pthread_mutex_lock(&tx->tx_slot_lock);
	KV_ASSERT(tx->tx_nslots < SLOTS_BATCH);
	ts->ts_next = tx->tx_slots;
	tx->tx_slots = ts;
	if (++tx->tx_nslots == SLOTS_BATCH) {
		list = ts;
		tx->tx_slots = NULL;
		tx->tx_nslots = 0;
	}
	pthread_mutex_unlock(&tx->tx_slot_lock);
	if (list)
		kv_retire(&list->ts_limbo, slots_free, list);
}

/* ---- the steps ------------------------------------------------------------------------------ */

static void op_of(const struct kv_write *w, struct kv_mt_op *op)
{
	*op = (struct kv_mt_op){ .op_key = w->w_lock.kl_key, .op_klen = w->w_lock.kl_klen,
				 .op_hash = w->w_lock.kl_hash, .op_kind = w->w_v.tv_kind,
				 .op_val = w->w_v.tv_val, .op_vlen = w->w_v.tv_vlen,
				 .op_vcrc = w->w_v.tv_vcrc,
				 .op_val_off = w->w_v.tv_off8 * KV_REC_ALIGN, .op_rev = w->w_rev,
				 .op_expiry = kv_write_expiry(w) };
}

static struct kv_tslot *slot_new(const struct kvdb_txn *t)
{
	struct kv_tslot *ts = malloc(sizeof(*ts));

	if (!ts)
		return NULL;
	atomic_init(&ts->ts_state, KV_TS_ACTIVE);
	ts->ts_has_ranges = t->t_ndel;
	return ts;
}

/* X4: however often the record is logged again */
static void set_expiry(struct kvdb_txn *t)
{
	for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next)
		if (tt->tt_ttl_s && !tt->tt_expiry)
			tt->tt_expiry = kv_expiry(t->t_db, tt->tt_ttl_s);
}

/* It has no key: to replay it is a value of a transaction as others. */
static int part_log(struct kvdb_txn *t, const struct kv_filling *fi)
{
	struct kv_keylock none = { .kl_kvs = fi->fi_of->tt_kvs->k_id };
	struct kv_txn_part *tp;
	int err;

	if (kv_vec_grow(&t->t_part, &t->t_partcap, t->t_npart + 1, sizeof(t->t_part[0])))
		return kv_error(-ENOMEM, "MP0902", "no memory for a commit");
	tp = &t->t_part[t->t_npart];
	*tp = (struct kv_txn_part){
		.tp_v = { .tv_kind = KV_ENT_PART, .tv_vlen = fi->fi_used,
			  .tv_vcrc = mpool_crc32c(0, fi->fi_buf, fi->fi_used) },
		.tp_kvs = none.kl_kvs, .tp_n = fi->fi_n,
	};
	err = kv_txn_log_value(t, &none, &tp->tp_v, fi->fi_buf);
	if (err)
		return err;
	t->t_npart++;
	t->t_part_bytes += fi->fi_used;
	return 0;
}

uint32_t kv_txn_record_bytes(const struct kvdb_txn *t)
{
	uint32_t most = atomic_load(&t->t_db->d_txns->tx_record_max);

	return t->t_rec_bytes < most ? (uint32_t)t->t_rec_bytes : most;
}

int kv_txn_parts_log(struct kvdb_txn *t)
{
	uint32_t most = atomic_load(&t->t_db->d_txns->tx_record_max);
	struct kv_filling fi = { .fi_txn = t,
				 .fi_size = most / 4 > PART_MIN ? most / 4 : PART_MIN };
	int err;

	if (t->t_npart || t->t_rec_bytes <= most)
		return 0;
	err = kv_mdc_allow_txn_parts(t->t_db);
	if (err)
		return err;
	fi.fi_buf = malloc(fi.fi_size);
	if (!fi.fi_buf)
		return kv_error(-ENOMEM, "MP0902", "no memory for a commit");
	set_expiry(t);
	while (!err && kv_filling_next(&fi))
		err = part_log(t, &fi);
	free(fi.fi_buf);
	return err;
}

int kv_commit_prepare(struct kv_commit *co, struct kvdb_txn *t)
{
	struct kv_tctx *tc = kv_tctx(t->t_db);
	uint32_t n = t->t_npart + t->t_ndel;
	uint8_t *p;

	KV_ASSERT(!t->t_slot && !t->t_ended && kv_txn_has_writes(t));
	memset(co, 0, sizeof(*co));
	co->co_txn = t;
	co->co_is_bulk = kv_txn_is_bulk(t);
	co->co_len = (uint32_t)(t->t_rec_bytes - t->t_part_bytes) + kv_txn_parts_bytes(t);
	co->co_size = kv_rec_size(0, co->co_len);
	co->co_buf = malloc(co->co_len);
	t->t_slot = slot_new(t);
	t->t_to_link = t->t_first;
	if (!tc || !co->co_buf || !t->t_slot)
		return kv_error(-ENOMEM, "MP0902", "no memory for a commit");
	co->co_slot = &tc->tc_slot;
	set_expiry(t);
	p = co->co_buf + KV_COMMIT_HDR;
	p += kv_txn_parts_encode(t, p);
	for (struct kv_write *w = t->t_first; w; w = w->w_next) {
		if (w->w_rev)
			continue;
		w->w_ent = p;
		p += kv_write_encode(w, p);
		n++;
	}
	kv_commit_encode_hdr(co->co_buf, n);
	p += kv_txn_ranges_encode(t, p);
	KV_ASSERT(p == co->co_buf + co->co_len);
	return 0;
}

static void unlink_store(struct kvdb_txn *t, struct kv_touched *tt)
{
	struct kv_mt_op op;

	KV_ASSERT_INSIDE();
	for (struct kv_write *w = t->t_first; w; w = w->w_next) {
		if (w->w_in != tt || !w->w_ver)
			continue;
		op_of(w, &op);
		kv_mt_unlink(tt->tt_mt, &op, w->w_ver);
		w->w_ver = NULL;
	}
	kv_txn_ranges_unlink(tt);
	kv_mt_put(t->t_db, tt->tt_mt);
	tt->tt_mt = NULL;
	t->t_to_link = t->t_first;
}

/* T8: what its versions and the record refer to lives as long as they may be replayed. */
static int hold_segs(const struct kvdb_txn *t, struct kv_mt *mt)
{
	int err = 0;

	for (uint32_t i = 0; i < t->t_nseg && !err; i++)
		err = BARRIER(kv_mt_pin(mt, t->t_seg[i]));
	return err;
}

/* A new slot for what stays linked; the old one is aborted for all that have met it. */
static int slot_renew(struct kvdb_txn *t)
{
	struct kv_tslot *old = t->t_slot, *ts = slot_new(t);

	if (!ts)
		return -ENOMEM;
	for (struct kv_write *w = t->t_first; w; w = w->w_next)
		if (w->w_ver)
			atomic_store(&w->w_ver->v_seq, KV_IN_SLOT | (uint64_t)(uintptr_t)ts);
	t->t_slot = ts;
	kv_txn_ranges_renew(t);
	atomic_store(&old->ts_state, KV_TS_ABORTED);
	slot_retire(t->t_db, old);
	return 0;
}

/*
 * Takes the active memtables; what is linked in others is taken out of them, and
 * only then the rest gets a new slot: a version in a memtable that may be under
 * its flush never names one that will be committed (T2).
 */
static int retarget(struct kvdb_txn *t)
{
	struct kv_touched *tt;
	bool has_moved = false;

	KV_ASSERT_INSIDE();
	for (tt = t->t_touched; tt; tt = tt->tt_next) {
		if (!tt->tt_mt || tt->tt_mt == kv_mt_active(tt->tt_kvs))
			continue;
		unlink_store(t, tt);
		has_moved = true;
	}
	if (has_moved && slot_renew(t))
		return -ENOMEM;
	for (tt = t->t_touched; tt; tt = tt->tt_next) {
		if (tt->tt_mt)
			continue;
		tt->tt_mt = kv_mt_get(kv_mt_active(tt->tt_kvs));
		if (hold_segs(t, tt->tt_mt))
			return -ENOMEM;
	}
	return 0;
}

/* The bucket of a write is on its way to the cache while others are linked; the next one. */
static struct kv_write *fetch(struct kv_write *w)
{
	if (!w)
		return NULL;
	kv_mt_prefetch(w->w_in->tt_mt, w->w_lock.kl_hash);
	return w->w_next;
}

/* Links writes from t_to_link on, @most of them. */
static int link_some(struct kvdb_txn *t, uint64_t most)
{
	struct kv_write *ahead = t->t_to_link;
	struct kv_mt_op op;
	int err = 0;

	for (unsigned int i = 0; i < AHEAD; i++)
		ahead = fetch(ahead);
	for (struct kv_write *w = t->t_to_link; w && most--; t->t_to_link = w = w->w_next) {
		ahead = fetch(ahead);
		if (w->w_ver)
			continue;
		op_of(w, &op);
		err = kv_mt_link(w->w_in->tt_mt, &op, w->w_v.tv_seg, t->t_slot, &w->w_ver);
		if (err)
			break;
		/* T15: a part has named it */
		KV_ASSERT(!w->w_rev || w->w_rev == w->w_ver->v_rev);
		if (w->w_ent)
			kv_commit_set_rev(w->w_ent, w->w_ver->v_rev);
	}
	return err;
}

static void grow_tables(struct kvdb_txn *t, void (*grow)(struct kv_mt *mt))
{
	for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next)
		if (tt->tt_mt && atomic_load_explicit(&tt->tt_mt->m_grow_wanted,
						      memory_order_relaxed))
			grow(tt->tt_mt);
}

/* Outside kv_enter(), in which nothing may take long: tables grow with what is in them. */
static int link_bulk(struct kvdb_txn *t)
{
	uint64_t share = t->t_mem_bytes / (t->t_n / STEP + 1);
	struct kv_thread *th = kv_enter();
	int err = retarget(t);

	kv_exit(th);
	while (!err && t->t_to_link) {
		th = kv_enter();
		err = link_some(t, STEP);
		kv_exit(th);
		grow_tables(t, kv_mt_grow);
		kv_bulk_came(t, share);
	}
	return err;
}

int kv_commit_link(struct kv_commit *co)
{
	struct kvdb_txn *t = co->co_txn;
	int err = retarget(t);

	if (!err)
		err = link_some(t, UINT64_MAX);
	if (!err)
		err = kv_txn_ranges_link(t);
	/* here, not between reservation and installation */
	co->co_crc = mpool_crc32c(0, co->co_buf, co->co_len);
	return err;
}

static int reserve(struct kv_commit *co)
{
	struct kvdb *db = co->co_txn->t_db;
	struct kv_slot *sl = co->co_slot;
	int err;

	KV_ASSERT_INSIDE();
	kv_slot_open(sl);
	err = kv_log_reserve(db, kv_log_pick(db, KV_KLOG), 1, co->co_size, &co->co_rs);
	if (err) {
		kv_slot_idle(sl);
		return err == -EAGAIN ? -ENOBUFS : err;
	}
	co->co_index = atomic_load_explicit(&sl->sl_index, memory_order_relaxed);
	return 0;
}

static bool is_own(const struct kv_commit *co)
{
	return kv_large_is_for(co->co_txn->t_db, co->co_size);
}

int kv_commit_reserve(struct kv_commit *co)
{
	struct kv_resv *rs = &co->co_rs;
	int err = 0;

	if (!is_own(co))
		err = reserve(co);
	else if (!co->co_has_own)
		err = -ENOBUFS;
	if (err)
		return err;
	KV_ASSERT(rs->rs_off % KV_REC_ALIGN == 0);
	kv_slot_place(co->co_slot, rs);
	kv_rec_encode(rs->rs_buf, KV_REC_COMMIT, 0, NULL, 0, co->co_buf, co->co_len, co->co_crc);
	kv_record_encoded(rs, co->co_index, co->co_size);
	return 0;
}

/* R4, R7: the record's epoch is the open one and the versions lie in its memtables. */
static bool is_in_time(struct kv_commit *co)
{
	struct kvdb_txn *t = co->co_txn;

	if (atomic_load(&t->t_db->d_epochs.ep_open) != co->co_rs.rs_epoch)
		return false;
	for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next)
		if (tt->tt_mt && kv_mt_active(tt->tt_kvs) != tt->tt_mt)
			return false;
	return true;
}

/* Every version and every range is in the memtable that its store is to have it in. */
static bool is_linked(const struct kvdb_txn *t)
{
	for (const struct kv_write *w = t->t_first; w; w = w->w_next)
		if (!w->w_ver || !w->w_in->tt_mt)
			return false;
	for (const struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next)
		for (uint32_t i = 0; i < tt->tt_ndel; i++)
			if (!tt->tt_del[i]->td_tomb || !tt->tt_mt)
				return false;
	return true;
}

static int install(struct kv_commit *co)
{
	struct kvdb_txn *t = co->co_txn;
	const struct kv_resv *rs = &co->co_rs;
	struct kv_slot *sl = co->co_slot;

	KV_ASSERT(rs->rs_epoch <= atomic_load(&t->t_db->d_epochs.ep_open));
	KV_ASSERT_SLOW(is_linked(t));
	(void)BARRIER((kv_wait_closed(t->t_db, rs->rs_epoch), 0));
	/* U1: until the stamp; an update that holds it waits for nothing */
	kv_txn_ranges_hold(t);
	if (CHECK(is_in_time(co))) {
		/* those of a large one were closed: kv_bulk_hold() */
		for (struct kv_write *w = co->co_is_bulk ? NULL : t->t_first; w; w = w->w_next)
			if (w->w_v.tv_kind != KV_ENT_TOMB)
				(void)BARRIER((kv_gaps_cut(w->w_in->tt_kvs, w->w_lock.kl_key,
							   w->w_lock.kl_klen), 0));
		kv_txn_ranges_set_epoch(t, rs->rs_epoch);
		for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next)
			if (tt->tt_mt)
				kv_mt_note_epoch(tt->tt_mt, rs->rs_epoch);
		atomic_store_explicit(&sl->sl_ver, (uintptr_t)t->t_slot | KV_SLOT_TXN,
				      memory_order_release);
		/* everything is linked: from here on the flusher may commit it */
		if (kv_slot_install(sl))
			return 0;
	}
	kv_txn_ranges_let(t);
	return -EAGAIN;
}

/* L4: the record is whole; only a switch of a memtable since the versions were linked is late. */
static int install_own(struct kv_commit *co)
{
	struct kvdb *db = co->co_txn->t_db;
	int err;

	kv_large_enter(db, &co->co_rs);
	atomic_store_explicit(&co->co_slot->sl_index, 0, memory_order_release);
	kv_slot_open(co->co_slot);
	err = install(co);
	co->co_has_own = err;
	kv_large_leave(db, &co->co_rs, !err);
	return err;
}

int kv_commit_install(struct kv_commit *co)
{
	const struct kv_resv *rs = &co->co_rs;
	int err = co->co_has_own ? install_own(co) : install(co);

	if (err && !co->co_has_own) {
		kv_rec_encode_skip(rs->rs_buf, rs->rs_seg->sg_id, rs->rs_off, co->co_size);
		kv_record_done(rs, co->co_index, co->co_size);
	}
	if (err)
		kv_slot_idle(co->co_slot);
	return err;
}

void kv_commit_finish(struct kv_commit *co)
{
	const struct kv_resv *rs = &co->co_rs;
	struct kvdb_txn *t = co->co_txn;
	struct kvdb *db = t->t_db;
	uint64_t s = KV_TS_ACTIVE;

	atomic_compare_exchange_strong(&t->t_slot->ts_state, &s, KV_TS_PREPARED);
	s = KV_TS_PREPARED;
	/* the commit; if another thread helped, its stamp stands */
	atomic_compare_exchange_strong(&t->t_slot->ts_state, &s, kv_tslot_take(db, t->t_slot));
	co->co_seq = atomic_load(&t->t_slot->ts_state);
	kv_txn_ranges_set_seq(t, kv_tslot_tomb_seq(co->co_seq));
	kv_txn_ranges_let(t);
	kv_rec_stamp(rs->rs_buf, rs->rs_seg->sg_id, rs->rs_off, co->co_seq);
	kv_record_done(rs, co->co_index, co->co_size);
	kv_slot_idle(co->co_slot);
	for (struct kv_write *w = t->t_first; w; w = w->w_next) {
		/* R7: for writers that come when the key is free */
		w->w_ver->v_epoch = rs->rs_epoch;
		atomic_store(&w->w_ver->v_seq, co->co_seq);
	}
}

void kv_commit_undo(struct kv_commit *co)
{
	struct kvdb_txn *t = co->co_txn;
	struct kv_thread *th = kv_enter();	/* tables in which it looks may grow meanwhile */

	KV_ASSERT(!t->t_slot || atomic_load(&t->t_slot->ts_state) == KV_TS_ACTIVE);
	if (t->t_slot)
		atomic_store(&t->t_slot->ts_state, KV_TS_ABORTED);
	for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next)
		if (tt->tt_mt)
			unlink_store(t, tt);
	kv_exit(th);
}

/* What was linked before, step by step, is passed over. */
static int attempt_now(struct kv_commit *co)
{
	struct kv_thread *th = kv_enter();
	struct kvdb *db = co->co_txn->t_db;
	int err = kv_commit_link(co);

	if (!err)
		err = kv_commit_reserve(co);
	if (!err)
		err = kv_commit_install(co);
	if (!err)
		kv_commit_finish(co);
	else if (err == -EAGAIN)	/* late: do not fill a dying epoch */
		kv_wait_closed(db, atomic_load(&db->d_epochs.ep_open));
	kv_exit(th);
	return err;
}

/* One attempt: 0, -EAGAIN (withdrawn), -ENOBUFS (no segment), -ENOMEM. */
static int attempt(struct kv_commit *co)
{
	struct kvdb_txn *t = co->co_txn;
	int err;

	if (!co->co_is_bulk)
		return attempt_now(co);
	kv_bulk_hold(t);
	err = link_bulk(t);
	if (!err)
		err = attempt_now(co);
	kv_bulk_let(t);
	return err;
}

static bool only_deletes(const struct kvdb_txn *t)
{
	for (const struct kv_write *w = t->t_first; w; w = w->w_next)
		if (w->w_v.tv_kind != KV_ENT_TOMB)
			return false;
	return true;
}

int kv_txn_admit(struct kvdb_txn *t)
{
	return admit(t, kv_rec_size(0, kv_txn_record_bytes(t)), only_deletes(t));
}

/* The record needs a segment. */
static int commit_ready(struct kv_commit *co, bool urgent)
{
	struct kvdb *db = co->co_txn->t_db;
	int err;

	KV_ASSERT_OUTSIDE();
	if (!is_own(co))
		return kv_segment_wait(db, kv_log_pick(db, KV_KLOG), urgent);
	err = kv_large_make(db, KV_KLOG, co->co_size, urgent ? KV_OWN_URGENT : 0,
			    &co->co_rs);
	co->co_has_own = !err;
	return err;
}

static int commit_steps(struct kv_commit *co, bool urgent)
{
	int err = 0;

	while (!err) {
		err = attempt(co);
		if (!err)
			break;
		if (err == -ENOBUFS)
			err = commit_ready(co, urgent);
		else if (err == -EAGAIN)
			err = 0;
		else
			err = kv_error(err, "MP0902", "no memory for a commit");
	}
	return err;
}

/* Linked and logged, or nothing is left of it. */
static int commit_now(struct kvdb_txn *t, bool urgent, uint64_t *epoch)
{
	struct kvdb *db = t->t_db;
	struct kv_commit co;
	int err = kv_commit_prepare(&co, t);

	if (!err)
		err = commit_steps(&co, urgent);
	if (err)
		kv_commit_undo(&co);
	else
		grow_tables(t, kv_mt_grow_soon);
	*epoch = co.co_rs.rs_epoch;
	if (co.co_has_own)
		kv_large_drop(db, &co.co_rs);
	free(co.co_buf);
	if (t->t_slot)
		slot_retire(db, t->t_slot);
	t->t_slot = NULL;
	return err;
}

int kv_txn_commit(struct kvdb_txn *t, uint64_t *epoch)
{
	struct kvdb *db = t->t_db;
	bool urgent = only_deletes(t);
	int err = t->t_is_begun ? admit_begun(db, urgent) :
				  admit(t, kv_rec_size(0, kv_txn_record_bytes(t)), urgent);

	if (!err)
		err = kv_txn_parts_log(t);
	if (err || !kv_txn_is_bulk(t))
		return kv_error_unwritten(err ? err : commit_now(t, urgent, epoch));
	err = kv_bulk_begin(t, urgent);
	if (!err) {
		err = commit_now(t, urgent, epoch);
		kv_bulk_end(t);
	}
	return kv_error_unwritten(err);
}
