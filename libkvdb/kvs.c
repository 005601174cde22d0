/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Put, delete, get.
 *
 * A write: log the record, install its version, stamp it, acknowledge (R12).
 * Any of its steps may be overtaken by the end of the epoch; then the record
 * is withdrawn and logged again in the next one (R1, R7). The record is never
 * both withdrawn and installed: one compare-and-swap on the slot decides.
 */
#include <errno.h>
#include <string.h>

#include "flush.h"
#include "memtable.h"
#include "work.h"

struct write {
	struct kvdb_kvs *kvs;
	struct kv_mt_op op;
	uint8_t type;		/* enum kv_rec_type */
	uint8_t stream;		/* enum kv_stream */
	uint32_t size;		/* of the record */
	uint64_t epoch;		/* result */
};

static int check_key(const struct kvdb_kvs *kvs, const void *key, size_t klen)
{
	if (KV_LIKELY(key && klen - 1 < KVDB_KEY_MAX))
		return 0;
	if (!key || !klen)
		return kv_error(-EINVAL, "MP0910", "%s: a key has at least 1 byte", kvs->k_name);
	return kv_error(-ENAMETOOLONG, "MP0911", "%s: key of %zu bytes; the longest is %u",
			kvs->k_name, klen, KVDB_KEY_MAX);
}

static inline void slot_open(struct kv_slot *sl)
{
	uint64_t st = atomic_load_explicit(&sl->sl_state, memory_order_relaxed);

	/* sequentially consistent: seen by whoever closes the epoch that we reserve in */
	atomic_store(&sl->sl_state, ((st >> 2) + 1) << 2 | KV_SLOT_OPEN);
}

static inline void slot_idle(struct kv_slot *sl)
{
	uint64_t st = atomic_load_explicit(&sl->sl_state, memory_order_relaxed);

	atomic_store_explicit(&sl->sl_state, st & ~(uint64_t)KV_SLOT_MASK, memory_order_release);
}

/* The record needs no more attention; its bytes are final. */
static inline void record_done(const struct kv_resv *rs, uint32_t index, uint32_t size)
{
	struct kv_frame *f = rs->rs_frame;
	uint32_t start = rs->rs_off - f->fr_off;

	atomic_store_explicit(&f->fr_rec[index], KV_REC_AT(start, start + size) | KV_REC_DONE,
			      memory_order_release);
	atomic_fetch_add_explicit(&f->fr_done, size, memory_order_release);
}

/* R4: nothing of epoch e is installed before e - 1 is closed. */
static void wait_closed(struct kvdb *db, uint64_t e)
{
	while (atomic_load(&db->d_closed) + 1 < e) {
		pthread_mutex_lock(&db->d_tick_lock);
		pthread_mutex_unlock(&db->d_tick_lock);
	}
}

/* One attempt in a reserved place: 0, -EAGAIN (withdrawn), -ENOMEM. */
static int write_record(struct kvdb *db, struct write *w, struct kv_slot *sl,
			const struct kv_resv *rs)
{
	uint32_t index = atomic_load_explicit(&sl->sl_index, memory_order_relaxed);
	uint32_t start = rs->rs_off - rs->rs_frame->fr_off;
	struct kv_version *v;
	int err;

	atomic_store_explicit(&sl->sl_frame, rs->rs_frame, memory_order_relaxed);
	atomic_store_explicit(&sl->sl_off, rs->rs_off, memory_order_relaxed);
	atomic_store_explicit(&sl->sl_buf, rs->rs_buf, memory_order_relaxed);
	kv_rec_encode(rs->rs_buf, w->type, (uint16_t)w->kvs->k_id, w->op.op_key, w->op.op_klen,
		      w->op.op_val, w->op.op_vlen, w->op.op_vcrc);
	atomic_store_explicit(&rs->rs_frame->fr_rec[index], KV_REC_AT(start, start + w->size),
			      memory_order_release);
	w->op.op_val_off = rs->rs_off + kv_rec_val_off(w->op.op_klen);
	(void)BARRIER(303, (wait_closed(db, rs->rs_epoch), 0));
	err = kv_mt_install(kv_mt_active(w->kvs), &w->op, sl, rs, &v);
	if (KV_UNLIKELY(err))
		kv_rec_encode_skip(rs->rs_buf, rs->rs_seg->sg_id, rs->rs_off, w->size);
	else
		kv_rec_stamp(rs->rs_buf, rs->rs_seg->sg_id, rs->rs_off, kv_version_stamp(db, v));
	record_done(rs, index, w->size);
	return err;
}

/* Logs and installs; returns with the version visible. */
static int write_install(struct kvdb *db, struct write *w, struct kv_tctx *tc)
{
	struct kv_slot *sl = &tc->tc_slot;
	struct kv_thread *t;
	struct kv_resv rs;
	struct kv_log *lo;
	struct kv_mt *mt;
	int err;

	for (;;) {
		lo = kv_log_pick(db, w->stream);
		t = kv_enter();
		kv_mt_prefetch(kv_mt_active(w->kvs), w->op.op_hash);
		do {
			slot_open(sl);
			err = kv_log_reserve(db, lo, w->size, &rs);
			if (err)
				break;
			err = write_record(db, w, sl, &rs);
			slot_idle(sl);
			/*
			 * Late: do not fill a dying epoch with withdrawn records. But the record
			 * may be of the epoch that is open now: that one ends in its own time.
			 */
			if (err == -EAGAIN)
				wait_closed(db, atomic_load(&db->d_epoch));
			if (!err) {
				w->epoch = rs.rs_epoch;
				mt = kv_mt_active(w->kvs);
				if (KV_UNLIKELY(atomic_load_explicit(&mt->m_grow_wanted,
								     memory_order_relaxed)))
					kv_mt_grow(mt);
				kv_exit(t);
				return 0;
			}
		} while (err == -EAGAIN);
		slot_idle(sl);
		kv_exit(t);
		if (err != -EAGAIN)
			return kv_error(err, "MP0902", "no memory for a write");
		/* the log needs a segment; that may take I/O */
		err = kv_log_prepare(db, lo, w->size, false);
		if (err == -ENOSPC && w->type == KV_REC_DEL) {
			/* R19: room is made before a delete takes from the reserve */
			kv_make_room(db);
			err = kv_log_prepare(db, lo, w->size, true);
		}
		if (err)
			return err;
	}
}

static int write_op(struct kvdb *db, struct write *w)
{
	struct kv_flusher *fl = db->d_flusher;
	struct kv_tctx *tc;
	int err = kv_fault(db);

	if (KV_UNLIKELY(err || db->d_rdonly))
		return kv_error(-EROFS, "MP0903", "%s", db->d_rdonly ?
				"the database is open for reading only" : db->d_fault_text);
	if (KV_UNLIKELY(atomic_load_explicit(&fl->fl_stall, memory_order_relaxed))) {
		err = kv_stall_wait(db, w->type == KV_REC_DEL);
		if (err)
			return kv_error(err, "MP0904", "%s: no room for a write", w->kvs->k_name);
	}
	tc = kv_tctx(db);
	if (!tc)
		return kv_error(-ENOMEM, "MP0902", "no memory for a thread's state");
	w->op.op_hash = kv_hash(w->op.op_key, w->op.op_klen);
	w->size = kv_rec_size(w->op.op_klen, w->op.op_vlen);
	err = write_install(db, w, tc);
	if (err)
		return err;
	kv_count(&tc->tc_user_bytes, w->op.op_klen + w->op.op_vlen);
	kv_count(w->type == KV_REC_PUT ? &tc->tc_puts : &tc->tc_dels, 1);
	/* whoever was first in the epoch may have lost the processor before it set the gate */
	if (KV_UNLIKELY(atomic_load_explicit(&fl->fl_gate_ns, memory_order_relaxed) ==
			UINT64_MAX) &&
	    db->d_interval_ms != KVDB_INTERVAL_NONE && atomic_load(&db->d_durable) < w->epoch)
		kv_epoch_born(db, w->epoch);
	if (db->d_commit)
		err = kv_wait_durable(db, w->epoch);
	else if (KV_UNLIKELY(atomic_load_explicit(&fl->fl_gate_ns, memory_order_relaxed) !=
			     UINT64_MAX &&
			     kv_now(db) >= atomic_load(&fl->fl_gate_ns)))
		err = BARRIER(304, kv_gate_wait(db));
	return err ? kv_error(-EIO, "MP0905", "%s: written, but not durable: %s", w->kvs->k_name,
			      db->d_fault_text) : 0;
}

int kvdb_put(struct kvdb_kvs *kvs, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct write w = { .kvs = kvs, .type = KV_REC_PUT };
	int err = check_key(kvs, key, klen);

	if (KV_UNLIKELY(err))
		return err;
	if (KV_UNLIKELY(!val && vlen))
		return kv_error(-EINVAL, "MP0913", "%s: a value of %zu bytes at NULL", kvs->k_name,
				vlen);
	if (KV_UNLIKELY(vlen > KVDB_VALUE_MAX))
		return kv_error(-E2BIG, "MP0912", "%s: value of %zu bytes; the longest is %u",
				kvs->k_name, vlen, KVDB_VALUE_MAX);
	w.stream = vlen > KV_INLINE_MAX ? KV_VLOG : KV_KLOG;
	w.op = (struct kv_mt_op){ .op_key = key, .op_klen = (uint16_t)klen, .op_val = val,
				  .op_vlen = (uint32_t)vlen,
				  .op_kind = vlen > KV_INLINE_MAX ? KV_ENT_REF : KV_ENT_INLINE,
				  .op_vcrc = mpool_crc32c(0, val, vlen) };
	return write_op(kvs->k_db, &w);
}

int kvdb_del(struct kvdb_kvs *kvs, const void *key, size_t klen)
{
	struct write w = { .kvs = kvs, .type = KV_REC_DEL, .stream = KV_KLOG };
	int err = check_key(kvs, key, klen);

	if (KV_UNLIKELY(err))
		return err;
	w.op = (struct kv_mt_op){ .op_key = key, .op_klen = (uint16_t)klen,
				  .op_kind = KV_ENT_TOMB };
	return write_op(kvs->k_db, &w);
}

/* What the store says about a key now. Inside kv_enter(). */
static int lookup(struct kvdb_kvs *kvs, const void *key, size_t klen, struct kv_ent *e)
{
	struct kv_tree *tr = atomic_load_explicit(&kvs->k_tree, memory_order_acquire);
	uint64_t hash = kv_hash(key, klen);
	uint32_t i;
	int err;

	for (i = 0; i < tr->tr_nmt; i++)
		kv_mt_prefetch(tr->tr_mt[i], hash);
	for (i = 0; i < tr->tr_nrun; i++)
		kv_run_prefetch(tr->tr_run[i], hash);
	for (i = 0; i < tr->tr_nmt; i++)
		if (!kv_mt_lookup(tr->tr_mt[i], key, klen, hash, KV_SEQ_NOW, e))
			return 0;
	for (i = 0; i < tr->tr_nrun; i++) {
		err = kv_run_lookup(kvs->k_db, tr->tr_run[i], key, klen, hash, e);
		if (err != -ENOENT)
			return err;
	}
	return -ENOENT;
}

int kvdb_get(struct kvdb_kvs *kvs, const void *key, size_t klen, void *buf, size_t size,
	     size_t *vlen)
{
	struct kvdb *db = kvs->k_db;
	struct kv_thread *t;
	struct kv_tctx *tc;
	struct kv_ent e;
	int err = check_key(kvs, key, klen);

	if (KV_UNLIKELY(err))
		return err;
	tc = kv_tctx(db);
	if (KV_UNLIKELY(!tc))
		return kv_error(-ENOMEM, "MP0902", "no memory for a thread's state");
	kv_count(&tc->tc_gets, 1);
	t = kv_enter();
	err = lookup(kvs, key, klen, &e);
	if (!err && e.e_kind == KV_ENT_TOMB)
		err = -ENOENT;
	if (!err && size)
		err = kv_value_read(db, &e, buf, size);
	if (!err)
		*vlen = e.e_vlen;
	kv_exit(t);
	return err;
}

int kvdb_sync(struct kvdb *db)
{
	int err;

	if (db->d_rdonly)
		return 0;
	atomic_fetch_add(&db->d_count.syncs, 1);
	err = kv_epoch_sync(db);
	return err ? kv_error(-EIO, "MP0905", "not durable: %s", db->d_fault_text) : 0;
}
