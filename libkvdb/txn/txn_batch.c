/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Batches: a write set that is there as a whole, and is committed as a transaction's is. It has no
 * view and no conflicts: as plain writes do it waits for the owners of its keys, and what was
 * written before it is older (T18).
 *
 * Keys and inline values stay where the caller has them. The order: the write set is made, large
 * values go to the value log, room is waited for, all keys and ranges are claimed at once or none
 * of them, and the rest is a commit. A batch that meets an owner holds no key while it waits.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/hash.h"
#include "db/thread.h"
#include "log/flush.h"
#include "mem/memtable.h"
#include "seg/value.h"
#include "txn/batch.h"
#include "txn/txn_omf.h"

#define FEW_BYTES	(256u << 10)	/* of a write set for which no turn is waited */
#define NOWAIT_BYTES	(1u << 20)	/* of values that are logged without a wait for room */

struct batch {
	struct kvdb *ba_db;
	const struct kvdb_op *ba_op;
	size_t ba_n;
	uint32_t ba_writes;		/* of one key */
	uint64_t ba_mem;		/* of the write set, keys and inline values */
	uint64_t ba_ranges;		/* of ranges, if they are of like size */
	uint64_t ba_values;		/* bytes of others */
	uint64_t ba_own;		/* of these, of those with segments of their own */
	struct kv_pending_write *ba_begun;	/* it does not wait; or NULL */
	bool ba_has_turn;		/* tx_batch_lock */
	struct timespec ba_until;	/* of its waits for owners; 0 = none yet */
	struct kvdb_txn *ba_txn;
};

/* ---- arguments ------------------------------------------------------------------------------ */

static int check_op(const struct batch *ba, const struct kvdb_op *p)
{
	size_t i = (size_t)(p - ba->ba_op);
	int err;

	if (p->type != KVDB_OP_PUT && p->type != KVDB_OP_DEL && p->type != KVDB_OP_RANGE_DEL)
		return kv_error(-EINVAL, "MP0951", "operation %zu of a batch is of type %u", i,
				p->type);
	if (p->flags)
		return kv_error(-EINVAL, "MP0951", "operation %zu of a batch has flags 0x%x", i,
				p->flags);
	if (!p->kvs || p->kvs->k_db != ba->ba_db)
		return kv_error(-EINVAL, "MP0951", "operation %zu of a batch is on no store of "
				"this database", i);
	if (p->type != KVDB_OP_RANGE_DEL || p->key || p->klen) {
		err = kv_check_key(p->kvs, p->key, p->klen);
		if (err)
			return err;
	}
	if (p->type == KVDB_OP_PUT)
		return kv_check_value(p->kvs, p->val, p->size);
	if (p->type == KVDB_OP_RANGE_DEL && (p->val || p->size))
		return kv_check_key(p->kvs, p->val, p->size);
	return 0;
}

static bool is_inline(const struct kvdb_op *p)
{
	return p->size <= KV_INLINE_MAX;
}

static void add_value(struct batch *ba, const struct kvdb_op *p)
{
	uint32_t size = kv_rec_size((uint32_t)p->klen, (uint32_t)p->size);

	ba->ba_values += p->size;
	if (kv_large_is_for(ba->ba_db, size))
		ba->ba_own += size;
}

/* What it will take is known before it takes anything. */
static int measure(struct batch *ba)
{
	for (size_t i = 0; i < ba->ba_n; i++) {
		const struct kvdb_op *p = &ba->ba_op[i];
		int err = check_op(ba, p);

		if (err)
			return err;
		if (p->type == KVDB_OP_RANGE_DEL) {
			ba->ba_ranges += kv_pad8((uint32_t)(sizeof(struct kv_tdel) + p->klen +
							    p->size));
			continue;
		}
		ba->ba_writes++;
		ba->ba_mem += sizeof(struct kv_write) + kv_pad8((uint32_t)p->klen);
		if (p->type == KVDB_OP_PUT && is_inline(p))
			ba->ba_mem += kv_pad8((uint32_t)p->size);
		else if (p->type == KVDB_OP_PUT)
			add_value(ba, p);
	}
	return 0;
}

static int too_large(const struct batch *ba, const char *why)
{
	return kv_error(-E2BIG, "MP0933", "a batch of %zu operations is too large: %s", ba->ba_n,
			why);
}

/* The machinery says so of a transaction. */
static int say_large(const struct batch *ba, int err)
{
	char why[200];

	if (err != -EFBIG)
		return err;
	snprintf(why, sizeof(why), "%.199s", kvdb_error_detail()->text);
	return too_large(ba, why);
}

/* ---- the write set -------------------------------------------------------------------------- */

static struct kvdb_txn *txn_new(struct kvdb *db)
{
	struct kvdb_txn *t = kv_tctx(db) ? malloc(sizeof(*t)) : NULL;

	if (!t)
		return NULL;
	memset(t, 0, offsetof(struct kvdb_txn, t_mem));
	t->t_db = db;
	t->t_is_batch = true;
	t->t_tail = &t->t_first;
	t->t_rec_bytes = KV_COMMIT_HDR;
	atomic_store_explicit(&t->t_refs, 1, memory_order_relaxed);
	/* it is never given up (T11) */
	atomic_store(&t->t_claim, KV_CLAIM_COMMIT);
	return t;
}

static void add_write(struct kvdb_txn *t, struct kv_touched *tt, const struct kvdb_op *p,
		      struct kv_write **next)
{
	uint64_t hash = kv_hash(p->key, p->klen);
	struct kv_write *w = kv_txn_find(t, p->kvs, p->key, p->klen, hash);
	struct kv_txn_val v = { .tv_kind = KV_ENT_TOMB };

	if (p->type == KVDB_OP_PUT)
		v = (struct kv_txn_val){ .tv_kind = is_inline(p) ? KV_ENT_INLINE : KV_ENT_REF,
					 .tv_val = p->val, .tv_vlen = (uint32_t)p->size };
	/* that of a large value is computed when it is logged */
	if (v.tv_kind != KV_ENT_REF)
		v.tv_vcrc = mpool_crc32c(0, v.tv_val, v.tv_vlen);
	t->t_user_bytes += p->klen + v.tv_vlen;
	if (w) {
		kv_txn_write_set(t, w, &v);
		return;
	}
	w = (*next)++;
	*w = (struct kv_write){
		.w_lock = { .kl_key = p->key, .kl_klen = (uint16_t)p->klen,
			    .kl_kvs = p->kvs->k_id, .kl_hash = hash, .kl_is_batch = true },
		.w_in = tt,
	};
	kv_txn_write_add(t, w, &v);
}

static struct kv_trange range_of(const struct kvdb_op *p)
{
	return (struct kv_trange){
		.tr_from = p->key, .tr_flen = (uint16_t)p->klen,
		.tr_to = p->val, .tr_tlen = (uint16_t)p->size,
		.tr_flags = p->size ? 0 : KV_TR_ENDLESS,
	};
}

static int add_range(struct kvdb_txn *t, const struct kvdb_op *p)
{
	const struct kv_trange r = range_of(p);

	return kv_txn_range_add(t, p->kvs, &r);
}

/* In order: what is written later counts, and lies behind an earlier delete of its range (T13). */
static int build(struct batch *ba)
{
	struct kvdb_txn *t = ba->ba_txn;
	struct kv_touched *tt = NULL;
	struct kv_write *w = NULL;
	int err = 0;

	if (ba->ba_writes) {
		w = kv_txn_alloc(t, (uint32_t)(ba->ba_writes * sizeof(*w)));
		if (!w || kv_txn_table(t, ba->ba_writes))
			return kv_error(-ENOMEM, "MP0902", "no memory for a batch");
		kv_txn_mem_add(t, ba->ba_mem - ba->ba_writes * sizeof(*w));
	}
	for (size_t i = 0; i < ba->ba_n && !err; i++) {
		const struct kvdb_op *p = &ba->ba_op[i];

		if (p->type == KVDB_OP_RANGE_DEL) {
			err = add_range(t, p);
			continue;
		}
		if (!tt || tt->tt_kvs != p->kvs)
			err = kv_txn_touch(t, p->kvs, &tt);
		if (!err)
			add_write(t, tt, p, &w);
	}
	return err;
}

static uint64_t all_bytes(const struct batch *ba)
{
	return ba->ba_mem + kv_txn_table_bytes(ba->ba_writes) + ba->ba_ranges;
}

/* Of several large batches one has memory at a time, so each may take all that there is (T16). */
static int take_turn(struct batch *ba)
{
	struct kvdb *db = ba->ba_db;
	uint64_t bytes = all_bytes(ba);
	char why[200];

	if (bytes <= FEW_BYTES)
		return 0;
	if (!ba->ba_begun)
		pthread_mutex_lock(&db->d_txns->tx_batch_lock);
	else if (pthread_mutex_trylock(&db->d_txns->tx_batch_lock))
		return -EAGAIN;
	ba->ba_has_turn = true;
	if (!kv_txn_mem_room(ba->ba_txn, bytes))
		return 0;
	snprintf(why, sizeof(why), "it takes %llu bytes; batches and open transactions, which "
		 "have %llu now, may take %llu, which follows from cache_bytes and log_bytes",
		 (unsigned long long)bytes,
		 (unsigned long long)atomic_load(&db->d_count.txn_mem),
		 (unsigned long long)atomic_load(&db->d_budget.b_txn_bytes));
	return too_large(ba, why);
}

/* ---- claims --------------------------------------------------------------------------------- */

/* What has an owner: a key, or a range. */
struct busy {
	struct kvdb_kvs *bu_kvs;
	const struct kv_trange *bu_range;
	const struct kv_keylock *bu_key;
};

/* All that it writes, or nothing: -EBUSY. */
static int claim_all(struct kvdb_txn *t, struct busy *bu)
{
	uint32_t groups = t->t_ndel ? KV_FUTEX_ALL : 0;
	int err;

	KV_ASSERT(!t->t_groups);
	*bu = (struct busy){ .bu_range = NULL };
	for (struct kv_write *w = t->t_first; w; w = w->w_next)
		groups |= kv_key_group(w->w_lock.kl_hash);
	kv_txn_is_owner(t, groups);
	err = kv_txn_ranges_claim(t, &bu->bu_range, &bu->bu_kvs);
	for (struct kv_write *w = t->t_first; w && !err; w = w->w_next) {
		w->w_lock.kl_txn = t;
		err = kv_key_lock(t->t_db, &w->w_lock);
		if (!err)
			continue;
		w->w_lock.kl_txn = NULL;
		bu->bu_key = &w->w_lock;
		bu->bu_kvs = w->w_in->tt_kvs;
	}
	/* as newest_above() does for a transaction: what it links is later than its claims */
	atomic_thread_fence(memory_order_seq_cst);
	if (err)
		kv_txn_disown(t);
	return err == -ENOMEM ? kv_error(err, "MP0902", "no memory for a batch") : err;
}

static int wait_for(const struct busy *bu, struct timespec *until)
{
	const struct kv_keylock *kl = bu->bu_key;

	return kl ? kv_key_wait(bu->bu_kvs, kl->kl_key, kl->kl_klen, kl->kl_hash, until) :
		    kv_range_wait(bu->bu_kvs, bu->bu_range, until);
}

/*
 * T18: it waits with empty hands. Of those that have waited one claims at a time, so they do not
 * keep each other from it: one fails only at what is committed, or was begun since.
 */
static int claim(struct batch *ba)
{
	struct kvdb_txn *t = ba->ba_txn;
	pthread_mutex_t *again = &ba->ba_db->d_txns->tx_again_lock;
	struct busy bu;
	int err = claim_all(t, &bu);

	while (err == -EBUSY && (!ba->ba_begun || kv_is_manual(ba->ba_db))) {
		err = wait_for(&bu, &ba->ba_until);
		if (err)
			break;
		pthread_mutex_lock(again);
		err = claim_all(t, &bu);
		pthread_mutex_unlock(again);
	}
	return err;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool is_owned(const struct kvdb_op *p)
{
	struct kv_trange r = range_of(p);

	if (p->type == KVDB_OP_RANGE_DEL)
		return kv_range_is_owned(p->kvs, &r);
	return kv_key_is_owned(p->kvs->k_db, p->kvs->k_id, p->key, p->klen,
			       kv_hash(p->key, p->klen));
}

const struct kvdb_op *kv_batch_owned(struct kvdb *db, const struct kvdb_op *ops, size_t n)
{
	if (!atomic_load(&db->d_mem.mm_owners))
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (is_owned(&ops[i]))
			return &ops[i];
	return NULL;
}

bool kv_batch_is_beside(const struct kvdb_op *p)
{
	struct kv_trange r = range_of(p);
	enum kv_owner ow = p->type == KVDB_OP_RANGE_DEL ? kv_range_owner(p->kvs, &r) :
			   kv_key_owner(p->kvs->k_db, p->kvs->k_id, p->key, p->klen,
					kv_hash(p->key, p->klen));

	return ow != KV_OWNER_TXN;
}

/* Room for the record; of a caller that does not wait for the values, too, unless they are many. */
static int admit(struct batch *ba)
{
	struct kvdb_txn *t = ba->ba_txn;
	int err;

	t->t_is_paid = ba->ba_begun && ba->ba_values <= NOWAIT_BYTES;
	t->t_paid_bytes = t->t_is_paid ? (uint32_t)ba->ba_values : 0;
	/* L5: for all of them, or it would log the first again each time */
	if (t->t_is_paid && ba->ba_own && !kv_is_manual(t->t_db) &&
	    !kv_large_has_room(t->t_db, (uint32_t)ba->ba_own))
		return -EAGAIN;
	if (ba->ba_begun && !kv_txn_may_begin(t, &ba->ba_begun->bg_due_ns))
		return -EAGAIN;
	err = kv_txn_log_values(t);
	t->t_is_paid = false;
	if (!err && !ba->ba_begun)
		err = kv_txn_admit(t);
	/* from here on it has keys, and waits for no more than a commit has to */
	t->t_is_begun = true;
	return err;
}

static int wait_for_op(struct batch *ba, const struct kvdb_op *p)
{
	struct kv_trange r = range_of(p);

	return p->type == KVDB_OP_RANGE_DEL ? kv_range_wait(p->kvs, &r, &ba->ba_until) :
	       kv_key_wait(p->kvs, p->key, p->klen, kv_hash(p->key, p->klen), &ba->ba_until);
}

/*
 * A large one waits for the owners that there are before it has its turn: the thread of one may
 * want the next. Each operation is looked at once, and the claims tell what came meanwhile.
 */
static int wait_before_turn(struct batch *ba)
{
	const struct kvdb_op *end = ba->ba_op + ba->ba_n, *p = ba->ba_op;
	int err = 0;

	while (!err && (p = kv_batch_owned(ba->ba_db, p, (size_t)(end - p)))) {
		err = wait_for_op(ba, p);
		p++;
	}
	return err;
}

static int carry_out(struct batch *ba, uint64_t *epoch)
{
	struct kvdb_txn *t = ba->ba_txn;
	int err = kv_txn_check_write(t, NULL);

	/* a look: to log values and find an owner then would log them again each time */
	if (!err && ba->ba_begun && !kv_is_manual(ba->ba_db) &&
	    kv_batch_owned(ba->ba_db, ba->ba_op, ba->ba_n))
		err = -EBUSY;
	if (!err && !ba->ba_begun && all_bytes(ba) > FEW_BYTES)
		err = wait_before_turn(ba);
	if (!err)
		err = take_turn(ba);
	if (!err)
		err = build(ba);
	if (err || !kv_txn_has_writes(t))
		return err;
	err = admit(ba);
	if (!err)
		err = claim(ba);
	return err ? err : kv_txn_commit_writes(t, epoch);
}

static int run(struct batch *ba, uint64_t *epoch)
{
	int err = measure(ba);

	KV_ASSERT_OUTSIDE();
	*epoch = 0;
	if (err || !ba->ba_n)
		return err;
	ba->ba_txn = txn_new(ba->ba_db);
	if (!ba->ba_txn)
		return kv_error(-ENOMEM, "MP0902", "no memory for a batch");
	err = carry_out(ba, epoch);
	kv_txn_end(ba->ba_txn, !err);
	kv_txn_put(ba->ba_txn);
	if (ba->ba_has_turn)
		pthread_mutex_unlock(&ba->ba_db->d_txns->tx_batch_lock);
	return say_large(ba, err);
}

int kv_batch_start(struct kvdb *db, const struct kvdb_op *ops, size_t n,
		   struct kv_pending_write *bg)
{
	struct batch ba = { .ba_db = db, .ba_op = ops, .ba_n = n, .ba_begun = bg };
	int err = run(&ba, &bg->bg_epoch);

	if (!err && bg->bg_epoch)
		kv_gate_check(db, bg->bg_epoch);
	return err;
}

int kvdb_write(struct kvdb *db, const struct kvdb_op *ops, size_t n, unsigned flags,
	       uint64_t *ticket)
{
	struct batch ba = { .ba_db = db, .ba_op = ops, .ba_n = n };
	uint64_t epoch;
	int err;

	if (flags & ~KVDB_OP_DURABLE)
		return kv_error(-EINVAL, "MP0951", "flags %#x of a batch are not known", flags);
	if (!ops && n)
		return kv_error(-EINVAL, "MP0951", "a batch of %zu operations at NULL", n);
	err = run(&ba, &epoch);
	return err ? err : kv_txn_acknowledge(db, epoch, flags & KVDB_OP_DURABLE, ticket);
}
