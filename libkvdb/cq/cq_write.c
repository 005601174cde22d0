/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Writes of completion queues: carried out at once or, while memory or log
 * space is over its budget, when there is room; the completion is handed out
 * when the loss bound allows (R1: handing it out is the acknowledgement). What
 * waits for durability is looked at when the durable epoch has moved.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/hash.h"
#include "background/work.h"
#include "txn/batch.h"
#include "op/write.h"
#include "cq/cq.h"

/* A write happened: what its completion waits for. */
static void wrote(struct kv_cq_op *o)
{
	struct kvdb_cq *cq = o->o_cq;

	KV_ASSERT(o->o_begun.bg_epoch &&
		  o->o_begun.bg_epoch <= atomic_load(&cq->c_db->d_epochs.ep_open));
	if (cq->c_db->d_mode.md_commit || (o->o_op.flags & KVDB_OP_DURABLE)) {
		kv_ops_add(&cq->c_durable, o);
		kv_want_durable(cq->c_db, o->o_begun.bg_epoch);
	} else {
		kv_ops_add(&cq->c_acks, o);
	}
}

static void wait_for_owner(struct kv_cq_op *o)
{
	struct kvdb_cq *cq = o->o_cq;

	if (!cq->c_owned.li_head || o->o_late_ns < cq->c_late_ns)
		cq->c_late_ns = o->o_late_ns;
	kv_ops_add(&cq->c_owned, o);
}

/* Its key has an owner: it waits as long as a blocking write does. */
static void park(struct kv_cq_op *o)
{
	KV_ASSERT(o->o_op.type != KVDB_OP_SYNC && o->o_op.type != KVDB_OP_COMMIT);
	o->o_since_ns = kv_now(o->o_cq->c_db);
	if (!o->o_late_ns)
		o->o_late_ns = kv_cq_now_ns() + KV_KEY_WAIT_S * 1000000000ull;
	wait_for_owner(o);
}

static int not_durable(struct kvdb *db)
{
	return kv_error(-EIO, "MP0905", "not durable: %s", db->d_fault.fa_text);
}

/* False: there is no room for the write now. */
static bool run_write(struct kv_cq_op *o)
{
	const struct kvdb_op *p = &o->o_op;
	int err;

	if (p->type == KVDB_OP_SYNC && BARRIER(o->o_cq->c_owned.li_head != NULL)) {
		kv_ops_add(&o->o_cq->c_owned, o);
		return true;
	}
	/* E5: also when nothing was written since what is durable */
	if (p->type == KVDB_OP_SYNC && !CHECK(!kv_fault(o->o_cq->c_db))) {
		kv_cq_op_done(o, not_durable(o->o_cq->c_db));
		return true;
	}
	if (p->type == KVDB_OP_SYNC) {
		o->o_begun.bg_epoch = kv_sync_epoch(o->o_cq->c_db);
		atomic_fetch_add(&o->o_cq->c_db->d_count.syncs, 1);
		kv_ops_add(&o->o_cq->c_durable, o);
		kv_want_durable(o->o_cq->c_db, o->o_begun.bg_epoch);
		return true;
	}
	if (p->type == KVDB_OP_COMMIT)
		err = kv_txn_commit_begin(p->txn, &o->o_begun);
	else if (p->type == KVDB_OP_WRITE)
		err = kv_batch_start(o->o_cq->c_db, p->ops, p->size, &o->o_begun);
	else if (p->type == KVDB_OP_PUT)
		err = kv_put_start(p->kvs, p->key, p->klen, p->val, p->size, &o->o_begun);
	else
		err = kv_del_start(p->kvs, p->key, p->klen, &o->o_begun);
	if (err == -EAGAIN)
		return false;
	if (err == -EBUSY)
		park(o);
	else if (err || !o->o_begun.bg_epoch)
		kv_cq_op_done(o, err);
	else
		wrote(o);
	return true;
}

void kv_cq_write(struct kv_cq_op *o)
{
	struct kvdb_cq *cq = o->o_cq;

	/* after those that wait: a sync covers them, and none is overtaken for ever */
	if (cq->c_writes.li_head || !run_write(o))
		kv_ops_add(&cq->c_writes, o);
}

/* What it writes that has an owner, or NULL. */
static const struct kvdb_op *owned(const struct kv_cq_op *o)
{
	const struct kvdb_op *p = &o->o_op;

	KV_ASSERT(p->type != KVDB_OP_COMMIT);
	if (p->type == KVDB_OP_WRITE)
		return kv_batch_owned(o->o_cq->c_db, p->ops, p->size);
	return p->type != KVDB_OP_SYNC ? kv_batch_owned(o->o_cq->c_db, p, 1) : NULL;
}

/* It waits on; the bound is for transactions alone (T18). */
static bool may_wait(struct kv_cq_op *o, const struct kvdb_op *p, uint64_t now)
{
	if (now >= o->o_late_ns && kv_batch_is_beside(p))
		o->o_late_ns = now + KV_KEY_WAIT_S * 1000000000ull;
	return now < o->o_late_ns;
}

/* Looks at what waits for the owners of keys: trying would log a record each time. */
static void look_at_owned(struct kvdb_cq *cq)
{
	uint64_t now = cq->c_owned.li_head ? kv_cq_now_ns() : 0;
	struct kv_cq_op *o, *next;

	for (o = kv_ops_steal(&cq->c_owned); o; o = next) {
		const struct kvdb_op *p = kv_fault(cq->c_db) ? NULL : owned(o);

		next = o->o_next;
		if (p && may_wait(o, p, now)) {
			wait_for_owner(o);
			continue;
		}
		if (o->o_op.type != KVDB_OP_SYNC)
			kv_postponed(cq->c_db, KVDB_DELAY_KEY, kv_now(cq->c_db) - o->o_since_ns);
		if (p)
			kv_cq_op_done(o, kv_key_denied(p->kvs));
		else if (cq->c_writes.li_head || !run_write(o))
			kv_ops_add(&cq->c_writes, o);
	}
}

void kv_cq_look(struct kvdb_cq *cq)
{
	struct kvdb *db = cq->c_db;
	struct kv_cq_op *o, *next;
	uint64_t durable;
	int fault;

	if (cq->c_writes.li_head)
		kv_pressure(db);
	while ((o = kv_ops_take(&cq->c_writes))) {
		if (!run_write(o)) {
			kv_ops_put_back(&cq->c_writes, o);
			break;
		}
	}
	look_at_owned(cq);
	fault = kv_fault(db);
	durable = atomic_load(&db->d_epochs.ep_durable);
	for (o = kv_ops_steal(&cq->c_durable); o; o = next) {
		next = o->o_next;
		/* a sync of a database that was never written to has none */
		KV_ASSERT(o->o_begun.bg_epoch || o->o_op.type == KVDB_OP_SYNC);
		if (!BARRIER(o->o_begun.bg_epoch > durable))
			kv_cq_op_done(o, 0);
		else if (fault)
			kv_cq_op_done(o, not_durable(db));
		else
			kv_ops_add(&cq->c_durable, o);
	}
}

bool kv_cq_acks_are_due(const struct kvdb_cq *cq)
{
	return cq->c_acks.li_head && !BARRIER(kv_gate_is_shut(cq->c_db));
}

void kv_cq_look_at_acks(struct kvdb_cq *cq)
{
	struct kvdb *db = cq->c_db;
	uint64_t durable;
	struct kv_cq_op *o, *next;
	int fault;

	if (!cq->c_acks.li_head || kv_cq_acks_are_due(cq))
		return;
	fault = kv_fault(db);
	durable = atomic_load(&db->d_epochs.ep_durable);
	for (o = kv_ops_steal(&cq->c_acks); o; o = next) {
		next = o->o_next;
		KV_ASSERT(o->o_begun.bg_epoch && !(o->o_op.flags & KVDB_OP_DURABLE));
		if (o->o_begun.bg_epoch <= durable)
			kv_cq_op_done(o, 0);
		else if (fault)
			kv_cq_op_done(o, not_durable(db));
		else
			kv_ops_add(&cq->c_acks, o);
	}
	if (cq->c_acks.li_head)
		kv_want_durable(db, durable + 1);
}
