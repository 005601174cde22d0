/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Inside completion queues (cq.c): the operation, the lists it is on, and what
 * moves it along.
 */
#ifndef KV_CQ_H
#define KV_CQ_H

#include "cache/load.h"
#include "log/flush.h"
#include "read/getm.h"
#include "op/cursor.h"

struct kv_cq_chunk;

#define KV_CQ_REAP	64u	/* device reads that are submitted or reaped together */

struct kv_cq_op {
	struct kv_cq_op *o_next;
	struct kvdb_cq *o_cq;
	struct kvdb_op o_op;
	struct kv_async o_as;
	unsigned o_nreads;		/* of o_as, not done */
	struct kvdb_cursor *o_cursor;	/* SCAN, until it is done */
	struct kv_pairs o_pairs;	/* SCAN */
	struct kv_getm o_getm;		/* MGET */
	int o_err;
	uint64_t o_vlen;
	struct kv_pending_write o_begun;	/* of a write; a sync has an epoch */
	uint64_t o_since_ns;		/* kv_now() when it began to wait for a key */
	uint64_t o_late_ns;		/* kv_cq_now_ns() when it gives up; 0 = it never waited */
	struct mpool_error *o_error;
};

struct kv_ops {
	struct kv_cq_op *li_head;
	struct kv_cq_op **li_tail;
};

struct kvdb_cq {
	struct kvdb *c_db;
	struct mpool_ioq *c_ioq;
	unsigned c_depth;
	unsigned c_inflight;		/* reads in c_ioq */
	unsigned c_ops;			/* operations that were not reaped */
	struct kv_cq_op *c_free;
	struct kv_cq_chunk *c_chunks;
	struct kv_ops c_writes, c_owned, c_durable, c_acks, c_done;
	struct kv_aload *c_reads;	/* to be started, oldest first */
	struct kv_aload **c_reads_tail;
	struct kv_aload *c_going;	/* in c_ioq */
	struct mpool_error **c_errors;	/* handed out by the last reap */
	unsigned c_nerrors, c_maxerrors;
	int c_event;			/* eventfd */
	int c_epoll;			/* -1 until kvdb_cq_fd(), as c_timer */
	int c_timer;			/* for untold_ns() */
	uint64_t c_late_ns;		/* the earliest o_late_ns on c_owned */
	bool c_waits_for_keys;		/* it counts among kv_key_waiters() */
	_Atomic(bool) c_armed;
	struct kvdb_cq *c_next;		/* d_cqs.qs_lock */
};

static inline void kv_ops_init(struct kv_ops *l)
{
	l->li_head = NULL;
	l->li_tail = &l->li_head;
}

static inline void kv_ops_add(struct kv_ops *l, struct kv_cq_op *o)
{
	o->o_next = NULL;
	*l->li_tail = o;
	l->li_tail = &o->o_next;
}

static inline struct kv_cq_op *kv_ops_take(struct kv_ops *l)
{
	struct kv_cq_op *o = l->li_head;

	if (o) {
		l->li_head = o->o_next;
		if (!l->li_head)
			l->li_tail = &l->li_head;
	}
	return o;
}

static inline void kv_ops_put_back(struct kv_ops *l, struct kv_cq_op *o)
{
	o->o_next = l->li_head;
	l->li_head = o;
	if (!o->o_next)
		l->li_tail = &o->o_next;
}

/* Empties the list; returns what was on it, linked. */
static inline struct kv_cq_op *kv_ops_steal(struct kv_ops *l)
{
	struct kv_cq_op *o = l->li_head;

	kv_ops_init(l);
	return o;
}

/* ---- cq_op.c ---- */

struct kv_cq_op *kv_cq_op_new(struct kvdb_cq *cq);
void kv_cq_op_free(struct kv_cq_op *o);
/* Complete; a failure takes the thread's detail along when it has one of this error. */
void kv_cq_op_done(struct kv_cq_op *o, int err);
/* Frees all operations and what they hold; their reads are done. */
void kv_cq_ops_free(struct kvdb_cq *cq);

/* ---- cq_read.c ---- */

/* Begins a get, a multi-get or a scan. */
void kv_cq_read(struct kv_cq_op *o);
/* Gives back what such an operation holds beside its reads. */
void kv_cq_read_end(struct kv_cq_op *o);
/* Starts waiting reads up to the depth, in one submission. */
void kv_cq_reads_start(struct kvdb_cq *cq);
/* Takes completions of the device; waits for @want of them until @timeout_ns. 0 or -errno. */
int kv_cq_reads_take(struct kvdb_cq *cq, unsigned want, int64_t timeout_ns);

/* ---- cq_write.c ---- */

/* Begins a write, a sync or a commit. */
void kv_cq_write(struct kv_cq_op *o);
/* Looks at what waits for room, for a key or for an epoch. */
void kv_cq_look(struct kvdb_cq *cq);
/* True when writes that are done may be acknowledged now (R1). */
bool kv_cq_acks_are_due(const struct kvdb_cq *cq);
/* While the gate is shut only durable writes may be acknowledged. */
void kv_cq_look_at_acks(struct kvdb_cq *cq);

/* ---- cq_wait.c ---- */

uint64_t kv_cq_now_ns(void);	/* CLOCK_MONOTONIC */
/* Sleeps until something has happened, or @end_ns. @want completions of the device are worth it. */
int kv_cq_wait(struct kvdb_cq *cq, unsigned want, uint64_t end_ns);
/* For a caller that sleeps on kvdb_cq_fd(): it is readable when there is something to reap. */
void kv_cq_event_keep(struct kvdb_cq *cq);
void kv_cq_event_clear(struct kvdb_cq *cq);
void kv_cq_disarm(struct kvdb_cq *cq);

/* Durable epoch, room or fault changed: queues that wait look again. */
void kv_cqs_wake(struct kvdb *db);

#endif
