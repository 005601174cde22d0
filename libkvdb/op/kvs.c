/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Put, delete, update.
 *
 * A write: log the record, install its version, stamp it, acknowledge (R12).
 * Any of its steps may be overtaken by the end of the epoch; then the record
 * is withdrawn and logged again in the next one (R1, R7). The record is never
 * both withdrawn and installed: one compare-and-swap on the slot decides.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/hash.h"
#include "base/trange.h"
#include "db/etime.h"
#include "db/policy.h"
#include "db/thread.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/keylock.h"
#include "mem/memtable.h"
#include "mem/tomb.h"
#include "tree/gap.h"
#include "tree/tomb_view.h"
#include "tree/tree.h"
#include "log/record.h"
#include "meta/mdc.h"
#include "background/work.h"
#include "read/find.h"
#include "op/write.h"

/* A delete of many keys on its way: in which memtable its tombstone waits. */
struct range_del {
	struct kv_trange range;
	struct kv_mt *mt;	/* with a reference, or NULL */
	struct kv_tomb *tomb;
	bool is_installed;
	struct timespec until;	/* bound on its wait for owners; 0 until it begins */
};

/* What kvdb_update() read, and must still find when it writes (R7). */
struct based {
	struct kv_mt *mt;	/* the active memtable, with a reference */
	uint64_t line;		/* of the runs: another one after a bulk load */
	uint64_t hidden;	/* newest delete of many keys that covers the key */
};

struct write {
	struct kvdb_kvs *kvs;
	struct kv_mt_op op;
	uint8_t type;		/* enum kv_rec_type */
	uint8_t stream;		/* enum kv_stream */
	uint32_t size;		/* of the record */
	struct kv_pending_write *begun;	/* it never waits; or NULL */
	uint64_t epoch;		/* result */
	struct range_del *many;	/* or NULL: of one key */
	struct based *based;	/* or NULL: whatever is there */
};

static int range_del_wait(struct kvdb_kvs *kvs, struct range_del *m)
{
	return kv_range_wait(kvs, &m->range, &m->until);
}

/* R15: links the tombstone, hidden, where readers will look. Inside kv_enter(). */
static int range_del_link(struct kvdb_kvs *kvs, struct range_del *m, struct kv_mt *mt)
{
	struct kv_tomb *tb = kv_mt_tomb_add(mt, &m->range);

	KV_ASSERT_INSIDE();
	if (!tb)
		return -ENOMEM;
	kv_tree_mark_tombs(kvs);
	if (m->mt) {
		kv_mt_tomb_kill(m->mt, m->tomb);
		kv_mt_put(kvs->k_db, m->mt);
	}
	m->mt = kv_mt_get(mt);
	m->tomb = tb;
	return 0;
}

/* H5: the memtable was switched, so a transaction that takes a key now may find only this one. */
static int range_del_move(struct kvdb_kvs *kvs, struct range_del *m, struct kv_mt *mt)
{
	int err = range_del_link(kvs, m, mt);

	if (err)
		return err;
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load(&kvs->k_db->d_mem.mm_owners) &&
	       !CHECK(!kv_range_is_owned(kvs, &m->range)) ? -EBUSY : 0;
}

static int range_del_install(struct write *w, struct kv_mt *mt, struct kv_slot *sl,
			     const struct kv_resv *rs, struct kv_version **out)
{
	struct range_del *m = w->many;
	int err = m->mt == mt ? 0 : range_del_move(w->kvs, m, mt);

	if (err)
		return err;
	/* U1: no update stands between its look at the tombstones and its stamp */
	pthread_rwlock_wrlock(&w->kvs->k_many_lock);
	err = kv_mt_tomb_install(mt, m->tomb, sl, rs, out);
	if (!err)
		kv_version_stamp(w->kvs->k_db, *out);
	pthread_rwlock_unlock(&w->kvs->k_many_lock);
	m->is_installed = !err;
	return err;
}

static uint64_t hidden_now(struct kvdb_kvs *kvs, const void *key, size_t klen)
{
	struct kv_tree *tr = atomic_load(&kvs->k_tree);

	KV_ASSERT_INSIDE();
	return atomic_load(&tr->tr_tombs) ? kv_tombs_at(tr, key, klen, KV_SEQ_NOW) : 0;
}

/*
 * As kv_mt_install(), if the key is still what was read: -ESTALE. The bucket
 * lock holds back other writes of the key, k_many_lock deletes of many keys and
 * bulk loads: one that is hidden now gets a stamp above ours, or was not read.
 */
static int based_install(struct write *w, struct kv_mt *mt, struct kv_slot *sl,
			 const struct kv_resv *rs, struct kv_version **out)
{
	int err = -ESTALE;

	if (!CHECK(mt == w->based->mt))
		return err;
	pthread_rwlock_rdlock(&w->kvs->k_many_lock);
	if (CHECK(atomic_load(&w->kvs->k_tree)->tr_line == w->based->line) &&
	    CHECK(hidden_now(w->kvs, w->op.op_key, w->op.op_klen) == w->based->hidden))
		err = kv_mt_install(mt, &w->op, sl, rs, out);
	if (!err)
		kv_version_stamp(w->kvs->k_db, *out);
	pthread_rwlock_unlock(&w->kvs->k_many_lock);
	return err;
}

static int install(struct write *w, struct kv_slot *sl, const struct kv_resv *rs,
		   struct kv_version **out)
{
	struct kv_mt *mt = kv_mt_active(w->kvs);

	if (KV_UNLIKELY(w->many != NULL))
		return range_del_install(w, mt, sl, rs, out);
	if (w->op.op_kind != KV_ENT_TOMB)
		(void)BARRIER((kv_gaps_cut(w->kvs, w->op.op_key, w->op.op_klen), 0));
	if (KV_UNLIKELY(w->based != NULL))
		return based_install(w, mt, sl, rs, out);
	return kv_mt_install(mt, &w->op, sl, rs, out);
}

/* @val NULL: the value's bytes are still to come. */
static inline void encode(const struct write *w, const struct kv_resv *rs, const void *val)
{
	kv_rec_encode(rs->rs_buf, w->type, (uint16_t)w->kvs->k_id, w->op.op_key, w->op.op_klen,
		      val, w->op.op_vlen, w->op.op_vcrc);
	if (KV_UNLIKELY(w->op.op_expiry))
		kv_rec_set_expiry(rs->rs_buf, w->op.op_expiry);
}

/* Installs an encoded record and stamps it. */
static inline int install_record(struct kvdb *db, struct write *w, struct kv_slot *sl,
				 const struct kv_resv *rs, uint32_t index)
{
	struct kv_version *v;
	int err;

	KV_ASSERT_INSIDE();
	kv_record_encoded(rs, index, w->size);
	w->op.op_val_off = rs->rs_off + kv_rec_val_off(w->op.op_klen);
	(void)BARRIER((kv_wait_closed(db, rs->rs_epoch), 0));
	if (KV_UNLIKELY(w->type == KV_REC_PUT && kv_policy_refuses(w->kvs, rs->rs_seg->sg_mclass)))
		return -ENOSPC;
	err = install(w, sl, rs, &v);
	if (KV_LIKELY(!err))
		kv_rec_stamp(rs->rs_buf, rs->rs_seg->sg_id, rs->rs_off, kv_version_stamp(db, v));
	return err;
}

/* One attempt in a reserved place: 0, -EAGAIN (withdrawn), -EBUSY (a transaction's), -ENOMEM. */
static int write_record(struct kvdb *db, struct write *w, struct kv_slot *sl,
			const struct kv_resv *rs)
{
	uint32_t index = atomic_load_explicit(&sl->sl_index, memory_order_relaxed);
	int err;

	KV_ASSERT_INSIDE();
	kv_slot_place(sl, rs);
	encode(w, rs, w->op.op_val);
	err = install_record(db, w, sl, rs, index);
	/* nothing was logged */
	if (KV_UNLIKELY(err))
		kv_rec_encode_skip(rs->rs_buf, rs->rs_seg->sg_id, rs->rs_off, w->size);
	kv_record_done(rs, index, w->size);
	return err;
}

/* The write is visible. Inside kv_enter(). */
static inline void installed(struct write *w, const struct kv_resv *rs)
{
	struct kv_mt *mt = kv_mt_active(w->kvs);

	KV_ASSERT_SLOW(rs->rs_epoch <= atomic_load(&w->kvs->k_db->d_epochs.ep_open));
	w->epoch = rs->rs_epoch;
	if (KV_UNLIKELY(atomic_load_explicit(&mt->m_grow_wanted, memory_order_relaxed)))
		kv_mt_grow_soon(mt);
}

static int error_staging(const struct kvdb_kvs *kvs)
{
	return kv_error(-ENOSPC, "MP0940", "%s: staging is full, and the store's policy allows no "
			"other class", kvs->k_name);
}

/* A segment of its own was to lie on staging: one that is too large for any class says so. */
static int error_own(const struct kvdb_kvs *kvs)
{
	return strcmp(kvdb_error_detail()->id, "MP0996") ? error_staging(kvs) : -ENOSPC;
}

/* What follows from an attempt that failed: 0 = another. @until: bound on the waits for a key. */
static int failed(struct kvdb *db, struct write *w, int err, struct timespec *until)
{
	KV_ASSERT_OUTSIDE();
	switch (err) {
	case -EBUSY:
		if (w->begun && !kv_is_manual(db))
			return err;
		return w->many ? range_del_wait(w->kvs, w->many) :
		       kv_key_wait(w->kvs, w->op.op_key, w->op.op_klen, w->op.op_hash, until);
	case -ENOSPC:
		return error_staging(w->kvs);
	case -ESTALE:
		return err;
	default:
		return kv_error(err, "MP0902", "no memory for a write");
	}
}

/* The record is whole, but for its stamp. */
static void fill_own(struct write *w, const struct kv_resv *rs)
{
	encode(w, rs, NULL);
	w->op.op_vcrc = kv_large_copy(rs->rs_buf + kv_rec_val_off(w->op.op_klen), w->op.op_val,
				      w->op.op_vlen);
	kv_rec_set_vcrc(rs->rs_buf, w->op.op_vcrc);
}

/* As write_install(), with a segment of its own (L4). */
static int write_own(struct kvdb *db, struct write *w, struct kv_tctx *tc)
{
	unsigned int flags = (w->begun && !kv_is_manual(db) ? KV_OWN_NOWAIT : 0) |
			     (kv_policy_bears_only_staging(w->kvs) ? KV_OWN_STAGING : 0);
	struct kv_slot *sl = &tc->tc_slot;
	struct timespec until = { 0 };
	struct kv_thread *t;
	struct kv_resv rs;
	int err;

	KV_ASSERT_OUTSIDE();
	do {
		err = kv_large_make(db, w->stream, w->size, flags, &rs);
		if (err)
			return err == -ENOSPC && flags & KV_OWN_STAGING ? error_own(w->kvs) : err;
		fill_own(w, &rs);
		t = kv_enter();
		/* D1 */
		err = kv_error_dropped(w->kvs);
		if (err) {
			kv_exit(t);
			kv_large_drop(db, &rs);
			return err;
		}
		kv_large_enter(db, &rs);
		kv_slot_open(sl);
		err = install_record(db, w, sl, &rs, 0);
		if (!err)
			kv_record_done(&rs, 0, w->size);
		kv_slot_idle(sl);
		kv_large_leave(db, &rs, !err);
		if (!err)
			installed(w, &rs);
		kv_exit(t);
		if (!err)
			return 0;
		kv_large_drop(db, &rs);
		err = failed(db, w, err, &until);
	} while (!err);
	return err;
}

/* Logs and installs; returns with the version visible. */
static int write_install(struct kvdb *db, struct write *w, struct kv_tctx *tc)
{
	struct kv_slot *sl = &tc->tc_slot;
	struct kv_thread *t;
	struct kv_resv rs;
	struct kv_log *lo;
	struct timespec until = { 0 };
	int err;

	KV_ASSERT_OUTSIDE();
	for (;;) {
		lo = kv_log_pick(db, w->stream);
		t = kv_enter();
		/* D1: it may have been dropped while we waited */
		err = kv_error_dropped(w->kvs);
		if (KV_UNLIKELY(err)) {
			kv_exit(t);
			return err;
		}
		kv_mt_prefetch(kv_mt_active(w->kvs), w->op.op_hash);
		do {
			kv_slot_open(sl);
			err = kv_log_reserve(db, lo, 1, w->size, &rs);
			if (err)
				break;
			err = write_record(db, w, sl, &rs);
			kv_slot_idle(sl);
			/*
			 * Late: do not fill a dying epoch with withdrawn records. But the record
			 * may be of the epoch that is open now: that one ends in its own time.
			 */
			if (err == -EAGAIN)
				kv_wait_closed(db, atomic_load(&db->d_epochs.ep_open));
			if (!err) {
				installed(w, &rs);
				kv_exit(t);
				return 0;
			}
		} while (err == -EAGAIN);
		kv_slot_idle(sl);
		kv_exit(t);
		/* the log went elsewhere while staging was full, and there may be room again */
		if (err == -ENOSPC && !kv_segment_staging(db, lo, rs.rs_seg))
			continue;
		if (err != -EAGAIN) {
			err = failed(db, w, err, &until);
			if (err)
				return err;
			continue;
		}
		err = kv_segment_wait(db, lo, w->type != KV_REC_PUT);
		if (err)
			return err;
	}
}

/* As kv_stall_wait(), without waiting: -EAGAIN while waiting might help. */
static int stall_begun(struct kvdb *db, const struct write *w)
{
	int err = atomic_load(&db->d_flusher->fl_space_err);

	if (!err)
		return -EAGAIN;
	return w->type == KV_REC_DEL ? 0 : err;
}

static int write_op(struct kvdb *db, struct write *w)
{
	struct kv_flusher *fl = db->d_flusher;
	struct kv_toll *toll;
	struct kv_tctx *tc;
	int err = kv_fault(db);

	if (KV_UNLIKELY(err || db->d_mode.md_rdonly))
		return kv_error(-EROFS, "MP0903", "%s", db->d_mode.md_rdonly ?
				"the database is open for reading only" : db->d_fault.fa_text);
	err = kv_error_dropped(w->kvs);
	if (KV_UNLIKELY(err))
		return err;
	if (KV_UNLIKELY(atomic_load_explicit(&fl->fl_stall, memory_order_relaxed))) {
		err = w->begun ? stall_begun(db, w) :
				 kv_stall_wait(db, w->type != KV_REC_PUT);
		if (err == -EAGAIN)
			return err;
		if (err)
			return kv_error_room(db, err, w->kvs->k_name);
	}
	toll = kv_toll(db, w->kvs);
	if (KV_UNLIKELY(toll != NULL)) {
		uint32_t bytes = kv_rec_size(w->op.op_klen, w->op.op_vlen);

		if (!w->begun)
			kv_throttle(db, toll, bytes);
		else if (!kv_throttle_begun(db, toll, bytes, &w->begun->bg_due_ns))
			return -EAGAIN;
	}
	tc = kv_tctx(db);
	if (!tc)
		return kv_error(-ENOMEM, "MP0902", "no memory for a thread's state");
	w->op.op_hash = kv_hash(w->op.op_key, w->op.op_klen);
	w->size = kv_rec_size(w->op.op_klen, w->op.op_vlen) + (w->op.op_expiry ? 8 : 0);
	if (KV_UNLIKELY(w->op.op_vlen > KV_VALUE_PLAIN))
		err = kv_mdc_allow_large(db);
	if (err)
		return kv_error_unwritten(err);
	if (KV_UNLIKELY(kv_large_is_for(db, w->size))) {
		err = write_own(db, w, tc);
	} else {
		if (KV_LIKELY(w->type == KV_REC_PUT))
			w->op.op_vcrc = mpool_crc32c(0, w->op.op_val, w->op.op_vlen);
		err = write_install(db, w, tc);
	}
	if (err)
		return kv_error_unwritten(err);
	kv_count(&tc->tc_user_bytes, w->op.op_klen + w->op.op_vlen);
	kv_count(w->type == KV_REC_PUT ? &tc->tc_puts : &tc->tc_dels, 1);
	if (w->begun) {
		w->begun->bg_epoch = w->epoch;
		kv_gate_check(db, w->epoch);
		return 0;
	}
	err = kv_ack(db, w->epoch, false);
	return err ? kv_error(-EIO, "MP0905", "%s: written, but not durable: %s", w->kvs->k_name,
			      db->d_fault.fa_text) : 0;
}

#define TTL_OF_STORE	UINT64_MAX

/* What a put writes, but for the key. */
static inline int put_fill(struct write *w, const void *val, size_t vlen, uint64_t ttl_s)
{
	struct kvdb_kvs *kvs = w->kvs;
	int err = kv_check_value(kvs, val, vlen);

	if (KV_UNLIKELY(err))
		return err;
	w->type = KV_REC_PUT;
	w->stream = vlen > KV_INLINE_MAX ? KV_VLOG : KV_KLOG;
	w->op.op_val = val;
	w->op.op_vlen = (uint32_t)vlen;
	w->op.op_kind = vlen > KV_INLINE_MAX ? KV_ENT_REF : KV_ENT_INLINE;
	if (ttl_s == TTL_OF_STORE)
		ttl_s = atomic_load_explicit(&kvs->k_prop[KV_PROP_TTL], memory_order_relaxed);
	if (KV_UNLIKELY(ttl_s)) {
		err = BARRIER(kv_time_keep(kvs->k_db));
		w->op.op_expiry = kv_expiry(kvs->k_db, ttl_s);
	}
	return err;
}

static int put(struct kvdb_kvs *kvs, const void *key, size_t klen, const void *val, size_t vlen,
	       uint64_t ttl_s, struct kv_pending_write *bg)
{
	struct write w = { .kvs = kvs, .begun = bg };
	int err = kv_check_key(kvs, key, klen);

	if (KV_LIKELY(!err))
		err = put_fill(&w, val, vlen, ttl_s);
	if (KV_UNLIKELY(err))
		return err;
	w.op.op_key = key;
	w.op.op_klen = (uint16_t)klen;
	return write_op(kvs->k_db, &w);
}

int kvdb_put(struct kvdb_kvs *kvs, const void *key, size_t klen, const void *val, size_t vlen)
{
	return put(kvs, key, klen, val, vlen, TTL_OF_STORE, NULL);
}

int kvdb_put_ttl(struct kvdb_kvs *kvs, const void *key, size_t klen, const void *val, size_t vlen,
		 uint64_t ttl_s)
{
	if (ttl_s > KVDB_TTL_MAX)
		return kv_error(-EINVAL, "MP0951",
				"%s: a time to live of %llu seconds; the most is %llu",
				kvs->k_name, (unsigned long long)ttl_s, KVDB_TTL_MAX);
	return put(kvs, key, klen, val, vlen, ttl_s, NULL);
}

int kv_put_start(struct kvdb_kvs *kvs, const void *key, size_t klen, const void *val, size_t vlen,
		 struct kv_pending_write *bg)
{
	return put(kvs, key, klen, val, vlen, TTL_OF_STORE, bg);
}

static int del(struct kvdb_kvs *kvs, const void *key, size_t klen, struct kv_pending_write *bg)
{
	struct write w = { .kvs = kvs, .type = KV_REC_DEL, .stream = KV_KLOG,
			   .begun = bg };
	int err = kv_check_key(kvs, key, klen);

	if (KV_UNLIKELY(err))
		return err;
	w.op = (struct kv_mt_op){ .op_key = key, .op_klen = (uint16_t)klen,
				  .op_kind = KV_ENT_TOMB };
	return write_op(kvs->k_db, &w);
}

int kvdb_del(struct kvdb_kvs *kvs, const void *key, size_t klen)
{
	return del(kvs, key, klen, NULL);
}

int kv_del_start(struct kvdb_kvs *kvs, const void *key, size_t klen, struct kv_pending_write *bg)
{
	return del(kvs, key, klen, bg);
}

/* Ends a delete of many keys, done or not. */
static void range_del_end(struct kvdb_kvs *kvs, struct range_del *m)
{
	if (m->mt && !m->is_installed)
		kv_mt_tomb_kill(m->mt, m->tomb);
	if (m->mt)
		kv_mt_put(kvs->k_db, m->mt);
}

/*
 * R15: linked, hidden, before owners of covered keys are looked for: a
 * transaction that takes one later finds the tombstone.
 */
static int range_del_begin(struct kvdb_kvs *kvs, struct range_del *m)
{
	struct kvdb *db = kvs->k_db;
	struct kv_thread *t;
	int err;

	if (db->d_mode.md_rdonly || kv_fault(db))
		return 0;	/* write_op() refuses */
	t = kv_enter();
	err = kv_error_dropped(kvs);
	if (!err && range_del_link(kvs, m, kv_mt_active(kvs)))
		err = kv_error(-ENOMEM, "MP0902", "no memory for a write");
	kv_exit(t);
	if (err)
		return err;
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load(&db->d_mem.mm_owners))
		return 0;
	return BARRIER(range_del_wait(kvs, m));
}

static int delete_many(struct kvdb_kvs *kvs, struct range_del *m)
{
	struct write w = { .kvs = kvs, .stream = KV_KLOG, .many = m };
	uint8_t val[KVDB_KEY_MAX + 1];
	int err = kv_error_dropped(kvs);

	if (err)
		return err;
	w.op.op_key = m->range.tr_from;
	w.op.op_klen = m->range.tr_flen;
	w.op.op_kind = KV_ENT_COVER;
	w.type = KV_REC_PDEL;
	if (!(m->range.tr_flags & KV_TR_PREFIX)) {
		w.type = KV_REC_RDEL;
		w.op.op_val = val;
		w.op.op_vlen = kv_rec_rdel_value(&m->range, val);
		w.op.op_vcrc = mpool_crc32c(0, val, w.op.op_vlen);
	}
	err = range_del_begin(kvs, m);
	if (!err)
		err = write_op(kvs->k_db, &w);
	range_del_end(kvs, m);
	return err;
}

int kvdb_prefix_del(struct kvdb_kvs *kvs, const void *prefix, size_t plen)
{
	uint8_t end[KVDB_KEY_MAX];
	struct range_del m = { .range = { .tr_from = prefix, .tr_to = end } };
	struct kv_trange *r = &m.range;
	int err = kv_check_key(kvs, prefix, plen);

	if (err)
		return err;
	r->tr_flen = (uint16_t)plen;
	if (plen == atomic_load_explicit(&kvs->k_prop[KV_PROP_PFX_LEN], memory_order_relaxed)) {
		r->tr_flags = KV_TR_PREFIX;
	} else {
		r->tr_tlen = kv_prefix_end(prefix, r->tr_flen, end);
		r->tr_flags = r->tr_tlen ? 0 : KV_TR_ENDLESS;
	}
	return delete_many(kvs, &m);
}

int kvdb_range_del(struct kvdb_kvs *kvs, const void *from, size_t flen, const void *to, size_t tlen)
{
	struct range_del m = { .range = { .tr_from = from, .tr_to = to } };
	struct kv_trange *r = &m.range;
	int err = flen || from ? kv_check_key(kvs, from, flen) : 0;

	if (!err && (tlen || to))
		err = kv_check_key(kvs, to, tlen);
	if (err)
		return err;
	r->tr_flen = (uint16_t)flen;
	r->tr_tlen = (uint16_t)tlen;
	r->tr_flags = tlen ? 0 : KV_TR_ENDLESS;
	if (tlen && flen && kv_key_cmp(from, flen, to, tlen) >= 0)
		return 0;	/* nothing lies in it */
	return delete_many(kvs, &m);
}

/* ---- update ------------------------------------------------------------------ */

#define UPDATE_BYTES	1024u	/* room for a value that is updated, at first */
#define UPDATE_AGAIN	1	/* no error: those may be the callback's */

/* What says that the value that is read now, afterwards, is still the one. */
static int update_base(struct write *w)
{
	struct kv_thread *t = kv_enter();
	int err = kv_error_dropped(w->kvs);

	/* D1 */
	if (err) {
		kv_exit(t);
		return err;
	}
	w->based->mt = kv_mt_get(kv_mt_active(w->kvs));
	w->based->line = atomic_load(&w->kvs->k_tree)->tr_line;
	/* before the version: what comes between the two is noticed when it is written */
	w->based->hidden = hidden_now(w->kvs, w->op.op_key, w->op.op_klen);
	w->op.op_expect = kv_mt_newest_version(w->based->mt, w->op.op_key, w->op.op_klen,
					       w->op.op_hash);
	kv_exit(t);
	return 0;
}

static int update_read(struct write *w, uint8_t **buf, size_t *size, size_t *olen)
{
	uint8_t *p;
	int err;

	while (!(err = kv_find_wait(w->kvs, w->op.op_key, w->op.op_klen, *buf, *size, olen)) &&
	       *olen > *size) {
		p = realloc(*buf, *olen);
		if (!p)
			return kv_error(-ENOMEM, "MP0902", "no memory for a value");
		*buf = p;
		*size = *olen;
	}
	return err;
}

/* One attempt: UPDATE_AGAIN when another writer was faster. */
static int update_once(struct kvdb_kvs *kvs, struct write *w, kvdb_update_fn *fn, void *arg,
		       uint8_t **buf, size_t *size)
{
	const void *val = NULL, *old;
	size_t olen = 0, vlen = 0;
	int err, what;

	err = update_base(w);
	if (err)
		return err;
	err = update_read(w, buf, size, &olen);
	if (err && err != -ENOENT)
		return err;
	/* it may have gone after its length was read */
	old = err ? NULL : *buf;
	what = fn(arg, old, err ? 0 : olen, &val, &vlen);
	err = 0;
	if (what < 0 || what == KVDB_UPDATE_KEEP)
		return what < 0 ? what : 0;
	w->type = KV_REC_DEL;
	w->stream = KV_KLOG;
	w->op.op_kind = KV_ENT_TOMB;
	w->op.op_vlen = 0;
	w->op.op_vcrc = 0;
	w->op.op_expiry = 0;
	if (what == KVDB_UPDATE_PUT)
		err = put_fill(w, val, vlen, TTL_OF_STORE);
	else if (what != KVDB_UPDATE_DEL)
		err = kv_error(-EINVAL, "MP0951", "%s: an update answered %d", kvs->k_name,
			       what);
	if (!err)
		err = write_op(kvs->k_db, w);
	return err == -ESTALE ? UPDATE_AGAIN : err;
}

int kvdb_update(struct kvdb_kvs *kvs, const void *key, size_t klen, kvdb_update_fn *fn, void *arg)
{
	struct based b = { .mt = NULL };
	struct write w = { .kvs = kvs, .based = &b };
	size_t size = UPDATE_BYTES;
	int err = kv_check_key(kvs, key, klen);
	uint8_t *buf;

	if (!err)
		err = kv_error_dropped(kvs);
	if (err)
		return err;
	buf = malloc(size);
	if (!buf)
		return kv_error(-ENOMEM, "MP0902", "no memory for a value");
	w.op.op_key = key;
	w.op.op_klen = (uint16_t)klen;
	w.op.op_hash = kv_hash(key, klen);
	w.op.op_is_based = true;
	do {
		err = update_once(kvs, &w, fn, arg, &buf, &size);
		kv_mt_put(kvs->k_db, b.mt);
	} while (err == UPDATE_AGAIN);
	free(buf);
	return err;
}

int kvdb_sync(struct kvdb *db)
{
	int err;

	if (db->d_mode.md_rdonly)
		return 0;
	atomic_fetch_add(&db->d_count.syncs, 1);
	err = kv_epoch_sync(db);
	return err ? kv_error(-EIO, "MP0905", "not durable: %s", db->d_fault.fa_text) : 0;
}
