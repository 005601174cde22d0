/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Completion queues: operations of one thread that do not wait. What they read:
 * cq_read.c; what they write: cq_write.c; how their owner sleeps: cq_wait.c.
 *
 * An operation is on one list at a time: c_writes (no room yet), c_owned (a
 * transaction owns the key), c_durable (waits for an epoch), c_acks (writes that
 * are done; the gate decides), c_done; or it has device reads, which are on
 * c_reads until the depth lets them start.
 *
 * c_owned holds back nothing but syncs, which wait in it: the commit that is to
 * end the wait may be the queue's next operation. Owners tell queues when they
 * end.
 *
 * Locks: d_cqs.qs_lock guards the list of queues and c_event's life. All else
 * belongs to the owner.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cq/cq.h"
#include "base/assert.h"
#include "base/error.h"
#include "txn/txn.h"

static bool is_read(const struct kvdb_op *p)
{
	return p->type == KVDB_OP_GET || p->type == KVDB_OP_SCAN || p->type == KVDB_OP_MGET;
}

static uint32_t flags_known(const struct kvdb_op *p)
{
	if (p->type == KVDB_OP_MGET)
		return KVDB_OP_SNAPSHOT;
	return is_read(p) || p->type == KVDB_OP_SYNC ? 0 : KVDB_OP_DURABLE;
}

/* What is in a batch is looked at when it is carried out. */
static int batch_check(const struct kvdb_op *p)
{
	if (p->flags & ~flags_known(p))
		return kv_error(-EINVAL, "MP0951", "a batch with flags 0x%x", p->flags);
	if (!p->ops && p->size)
		return kv_error(-EINVAL, "MP0951", "a batch of %zu operations at NULL", p->size);
	return 0;
}

static int op_check(const struct kvdb_cq *cq, const struct kvdb_op *p)
{
	if (p->type == KVDB_OP_WRITE)
		return batch_check(p);
	if (p->type < KVDB_OP_GET || p->type > KVDB_OP_MGET)
		return kv_error(-EINVAL, "MP0951", "operation of unknown type %u", p->type);
	if (p->flags & ~flags_known(p))
		return kv_error(-EINVAL, "MP0951", "operation of type %u: flags 0x%x", p->type,
				p->flags);
	if (p->type == KVDB_OP_COMMIT && (!p->txn || kv_txn_db(p->txn) != cq->c_db))
		return kv_error(-EINVAL, "MP0951", "commit of no transaction of this database");
	if (p->type != KVDB_OP_SYNC && p->type != KVDB_OP_COMMIT &&
	    (!p->kvs || p->kvs->k_db != cq->c_db))
		return kv_error(-EINVAL, "MP0951", "operation on no store of this database");
	if ((p->type == KVDB_OP_GET || p->type == KVDB_OP_SCAN) && !p->buf && p->size)
		return kv_error(-EINVAL, "MP0951", "a buffer of %zu bytes at NULL", p->size);
	if (p->type == KVDB_OP_SCAN && (uintptr_t)p->buf % _Alignof(struct kvdb_pair))
		return kv_error(-EINVAL, "MP0951", "a buffer for pairs at %p", p->buf);
	return 0;
}

static void op_start(struct kv_cq_op *o)
{
	struct kvdb_cq *cq = o->o_cq;
	int err = op_check(cq, &o->o_op);

	KV_ASSERT_OUTSIDE();
	/* gone when it was accepted, as by kvdb_txn_commit() */
	if (err && o->o_op.type == KVDB_OP_COMMIT)
		kvdb_txn_abort(o->o_op.txn);
	if (err)
		kv_cq_op_done(o, err);
	else if (is_read(&o->o_op))
		kv_cq_read(o);
	else if (o->o_op.type == KVDB_OP_SYNC && cq->c_db->d_mode.md_rdonly)
		kv_cq_op_done(o, 0);
	else
		kv_cq_write(o);
}

static unsigned take_done(struct kvdb_cq *cq, struct kvdb_cqe *out, unsigned max)
{
	bool with_acks = kv_cq_acks_are_due(cq);
	unsigned n = 0;
	struct kv_cq_op *o;

	while (n < max && ((o = kv_ops_take(&cq->c_done)) ||
			   (with_acks && (o = kv_ops_take(&cq->c_acks))))) {
		out[n++] = (struct kvdb_cqe){ .cookie = o->o_op.cookie, .err = o->o_err,
					      .type = o->o_op.type, .vlen = o->o_vlen,
					      .error = o->o_error };
		if (o->o_error)
			cq->c_errors[cq->c_nerrors++] = o->o_error;
		kv_cq_op_free(o);
	}
	return n;
}

int kvdb_cq_submit(struct kvdb_cq *cq, const struct kvdb_op *ops, unsigned n)
{
	unsigned i;

	if (!cq || (!ops && n))
		return kv_error(-EINVAL, "MP0951", "no queue or no operations");
	for (i = 0; i < n && cq->c_ops < KVDB_CQ_OPS_MAX; i++) {
		struct kv_cq_op *o = kv_cq_op_new(cq);

		if (!o)
			break;
		o->o_op = ops[i];
		op_start(o);
	}
	kv_cq_reads_start(cq);
	kv_cq_event_keep(cq);
	return (int)i;
}

static void free_errors(struct kvdb_cq *cq)
{
	while (cq->c_nerrors)
		free(cq->c_errors[--cq->c_nerrors]);
}

/* Room to remember the details that one reap hands out. */
static int errors_room(struct kvdb_cq *cq, unsigned max)
{
	void *p;

	free_errors(cq);
	if (max <= cq->c_maxerrors)
		return 0;
	p = realloc(cq->c_errors, max * sizeof(cq->c_errors[0]));
	if (!p)
		return kv_error(-ENOMEM, "MP0902", "no memory for completions");
	cq->c_errors = p;
	cq->c_maxerrors = max;
	return 0;
}

int kvdb_cq_reap(struct kvdb_cq *cq, struct kvdb_cqe *out, unsigned max, unsigned min,
		 int64_t timeout_ns)
{
	uint64_t end = timeout_ns < 0 ? UINT64_MAX : 0;
	unsigned n = 0;
	int err;

	if (!cq || !out || !max || min > max)
		return kv_error(-EINVAL, "MP0951", "no queue, no room, or min above max");
	err = errors_room(cq, max);
	if (err)
		return err;
	if (cq->c_epoll >= 0)
		kv_cq_event_clear(cq);
	for (;;) {
		err = kv_cq_reads_take(cq, 0, 0);
		if (err)
			break;
		kv_cq_look(cq);
		kv_cq_look_at_acks(cq);
		kv_cq_reads_start(cq);
		n += take_done(cq, out + n, max - n);
		if (n >= min || !cq->c_ops)
			break;
		if (!end)
			end = kv_cq_now_ns() + (uint64_t)timeout_ns;
		else if (end != UINT64_MAX && kv_cq_now_ns() >= end)
			break;
		err = kv_cq_wait(cq, min - n, end);
		if (err)
			break;
	}
	kv_cq_event_keep(cq);
	return n || !err ? (int)n : err;
}

int kvdb_cq_open(struct kvdb *db, unsigned depth, unsigned flags, struct kvdb_cq **out)
{
	struct kvdb_cq *cq;
	int err;

	if (!db || !out || depth > 1024 || flags)
		return kv_error(-EINVAL, "MP0951", "depth %u, flags 0x%x: a depth is at most 1024, "
				"and there are no flags", depth, flags);
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return kv_error(-ENOMEM, "MP0902", "no memory for a completion queue");
	cq->c_db = db;
	cq->c_depth = depth ? depth : KVDB_CQ_DEPTH;
	cq->c_epoll = cq->c_timer = -1;
	cq->c_reads_tail = &cq->c_reads;
	kv_ops_init(&cq->c_writes);
	kv_ops_init(&cq->c_owned);
	kv_ops_init(&cq->c_durable);
	kv_ops_init(&cq->c_acks);
	kv_ops_init(&cq->c_done);
	cq->c_event = mpool_fd_up(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	if (cq->c_event < 0) {
		err = kv_error(-errno, "MP0947", "no descriptor for a completion queue: %s",
			       strerror(errno));
		free(cq);
		return err;
	}
	err = mpool_ioq_open(db->d_mp, cq->c_depth, &cq->c_ioq);
	if (err) {
		close(cq->c_event);
		free(cq);
		return kv_error_mpool(err);
	}
	pthread_mutex_lock(&db->d_cqs.qs_lock);
	cq->c_next = db->d_cqs.qs_first;
	db->d_cqs.qs_first = cq;
	pthread_mutex_unlock(&db->d_cqs.qs_lock);
	*out = cq;
	return 0;
}

void kvdb_cq_close(struct kvdb_cq *cq)
{
	struct kvdb_cq **pp;
	struct kvdb *db;

	if (!cq)
		return;
	db = cq->c_db;
	kv_cq_disarm(cq);
	KV_ASSERT(!atomic_load(&cq->c_armed) && !cq->c_waits_for_keys);
	pthread_mutex_lock(&db->d_cqs.qs_lock);
	for (pp = &db->d_cqs.qs_first; *pp != cq; pp = &(*pp)->c_next)
		;
	*pp = cq->c_next;
	pthread_mutex_unlock(&db->d_cqs.qs_lock);
	mpool_ioq_close(cq->c_ioq);
	kv_cq_ops_free(cq);
	free_errors(cq);
	if (cq->c_epoll >= 0) {
		close(cq->c_epoll);
		close(cq->c_timer);
	}
	close(cq->c_event);
	free(cq->c_errors);
	free(cq);
}
