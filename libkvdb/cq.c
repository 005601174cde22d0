/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Completion queues: operations of one thread that do not wait.
 *
 * A get is run at once and, when a page was missing, again when the page is
 * there (load.c says how). A write is carried out at once or, while memory or
 * log space is over its budget, when there is room; its completion is handed
 * out when the loss bound allows (R1: handing it out is the acknowledgement).
 * What waits for durability is looked at when the durable epoch has moved.
 *
 * An operation is on one list at a time: c_writes (no room yet), c_owned (a
 * transaction owns the key), c_durable (waits for an epoch), c_acks (writes that
 * are done; the gate decides), c_done; or it has device reads, which are on
 * c_reads until the depth lets them start.
 *
 * c_owned holds nobody back but syncs, which wait in it: the commit that is to
 * end the wait may be the queue's next operation. Owners tell queues nothing;
 * while a write is there its key's lock is looked at every STALL_NS.
 *
 * The owner sleeps in the pool's queue, or in poll() on that queue's event fd
 * and on c_event. The latter is written by kv_cqs_wake() while the queue is
 * armed, that is while something waits for what other threads do; after arming
 * the queue looks once more, so that it misses nothing.
 *
 * Locks: d_cq_lock guards the list of queues and c_event's life. All else
 * belongs to the owner.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "flush.h"
#include "load.h"
#include "thread.h"
#include "txn.h"

#define CHUNK		64u	/* operations that are allocated together */
#define REAP		64u
#define RUNS_MAX	16u	/* a get that still misses pages then waits for them */
#define STALL_NS	1000000u	/* look so often whether a write can go on */

struct op {
	struct op *o_next;
	struct kvdb_cq *o_cq;
	struct kvdb_op o_op;
	struct kv_async o_as;
	int o_err;
	uint64_t o_vlen;
	struct kv_begun o_begun;	/* of a write; a sync has an epoch */
	uint64_t o_since_ns;		/* kv_now() when it began to wait for a key */
	uint64_t o_late_ns;		/* now_ns() when it gives up; 0 = it never waited */
	struct mpool_error *o_error;
};

/* Operations are allocated together and reused; unused ones have no reads. */
struct chunk {
	struct chunk *ch_next;
	struct op ch_op[CHUNK];
};

struct list {
	struct op *li_head;
	struct op **li_tail;
};

struct kvdb_cq {
	struct kvdb *c_db;
	struct mpool_ioq *c_ioq;
	unsigned c_depth;
	unsigned c_inflight;		/* reads in c_ioq */
	unsigned c_ops;			/* operations that were not reaped */
	struct op *c_free;
	struct chunk *c_chunks;
	struct list c_writes, c_owned, c_durable, c_acks, c_done;
	struct kv_aload *c_reads;	/* to be started, oldest first */
	struct kv_aload **c_reads_tail;
	struct kv_aload *c_going;	/* in c_ioq */
	struct mpool_error **c_errors;	/* handed out by the last reap */
	unsigned c_nerrors, c_maxerrors;
	int c_event;			/* eventfd */
	int c_epoll;			/* -1 until kvdb_cq_fd(), as c_timer */
	int c_timer;			/* for waits_untold() */
	_Atomic(bool) c_armed;
	struct kvdb_cq *c_next;		/* d_cq_lock */
};

static void list_init(struct list *l)
{
	l->li_head = NULL;
	l->li_tail = &l->li_head;
}

static void list_add(struct list *l, struct op *o)
{
	o->o_next = NULL;
	*l->li_tail = o;
	l->li_tail = &o->o_next;
}

static struct op *list_take(struct list *l)
{
	struct op *o = l->li_head;

	if (o) {
		l->li_head = o->o_next;
		if (!l->li_head)
			l->li_tail = &l->li_head;
	}
	return o;
}

static void list_put_back(struct list *l, struct op *o)
{
	o->o_next = l->li_head;
	l->li_head = o;
	if (!o->o_next)
		l->li_tail = &o->o_next;
}

/* Empties the list; returns what was on it, linked. */
static struct op *list_steal(struct list *l)
{
	struct op *o = l->li_head;

	list_init(l);
	return o;
}

/* ---- operations ------------------------------------------------------------------- */

static struct op *op_new(struct kvdb_cq *cq)
{
	struct op *o = cq->c_free;

	if (!o) {
		struct chunk *ch = malloc(sizeof(*ch));

		if (!ch)
			return NULL;
		ch->ch_next = cq->c_chunks;
		cq->c_chunks = ch;
		for (unsigned i = CHUNK; i-- > 0;) {
			ch->ch_op[i].o_as = (struct kv_async){ .as_db = cq->c_db };
			ch->ch_op[i].o_next = cq->c_free;
			cq->c_free = &ch->ch_op[i];
		}
		o = cq->c_free;
	}
	cq->c_free = o->o_next;
	o->o_cq = cq;
	o->o_as = (struct kv_async){ .as_db = cq->c_db, .as_owner = o };
	o->o_err = 0;
	o->o_vlen = 0;
	o->o_begun = (struct kv_begun){ 0 };
	o->o_late_ns = 0;
	o->o_error = NULL;
	cq->c_ops++;
	return o;
}

static void op_free(struct op *o)
{
	struct kvdb_cq *cq = o->o_cq;

	kv_async_free(&o->o_as);
	o->o_next = cq->c_free;
	cq->c_free = o;
	cq->c_ops--;
}

/* Complete; a failure takes the thread's detail along when it has one of this error. */
static void op_done(struct op *o, int err)
{
	const struct mpool_error *e = kvdb_error_detail();

	o->o_err = err;
	if (KV_UNLIKELY(err && err != -ENOENT && e->err == err)) {
		o->o_error = malloc(sizeof(*e));
		if (o->o_error)
			*o->o_error = *e;
	}
	kv_async_free(&o->o_as);
	list_add(&o->o_cq->c_done, o);
}

static void read_add(struct kvdb_cq *cq, struct kv_aload *al)
{
	al->al_link = NULL;
	*cq->c_reads_tail = al;
	cq->c_reads_tail = &al->al_link;
}

static void run_get(struct op *o)
{
	const struct kvdb_op *p = &o->o_op;
	struct kvdb_cq *cq = o->o_cq;
	bool may_wait = o->o_as.as_run >= RUNS_MAX;
	struct kv_aload *al;
	size_t vlen = 0;
	int err;

	if (!may_wait)
		kv_async_begin(&o->o_as);
	err = kv_get_run(p->kvs, p->key, p->klen, p->buf, p->size, &vlen);
	kv_async_end();
	if (err != -EINPROGRESS) {
		o->o_vlen = vlen;
		op_done(o, err);
		return;
	}
	while ((al = kv_async_next(&o->o_as)))
		read_add(cq, al);
}

static void start_get(struct op *o)
{
	struct kv_tctx *tc = kv_tctx(o->o_cq->c_db);

	if (!tc) {
		op_done(o, kv_error(-ENOMEM, "MP0902", "no memory for a thread's state"));
		return;
	}
	kv_count(&tc->tc_gets, 1);
	run_get(o);
}

/* A write happened: what its completion waits for. */
static void wrote(struct op *o)
{
	struct kvdb_cq *cq = o->o_cq;

	if (cq->c_db->d_commit || (o->o_op.flags & KVDB_OP_DURABLE)) {
		list_add(&cq->c_durable, o);
		kv_want_durable(cq->c_db, o->o_begun.bg_epoch);
	} else {
		list_add(&cq->c_acks, o);
	}
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Its key has an owner: it waits as long as a blocking write does. */
static void park(struct op *o)
{
	o->o_since_ns = kv_now(o->o_cq->c_db);
	if (!o->o_late_ns)
		o->o_late_ns = now_ns() + KV_KEY_WAIT_S * 1000000000ull;
	list_add(&o->o_cq->c_owned, o);
}

/* False: there is no room for the write now. */
static bool run_write(struct op *o)
{
	const struct kvdb_op *p = &o->o_op;
	int err;

	if (p->type == KVDB_OP_SYNC && BARRIER(565, o->o_cq->c_owned.li_head != NULL)) {
		list_add(&o->o_cq->c_owned, o);
		return true;
	}
	if (p->type == KVDB_OP_SYNC) {
		o->o_begun.bg_epoch = kv_sync_epoch(o->o_cq->c_db);
		atomic_fetch_add(&o->o_cq->c_db->d_count.syncs, 1);
		list_add(&o->o_cq->c_durable, o);
		kv_want_durable(o->o_cq->c_db, o->o_begun.bg_epoch);
		return true;
	}
	if (p->type == KVDB_OP_COMMIT)
		err = kv_txn_commit_begin(p->txn, &o->o_begun.bg_epoch);
	else if (p->type == KVDB_OP_PUT)
		err = kv_put_begin(p->kvs, p->key, p->klen, p->val, p->size, &o->o_begun);
	else
		err = kv_del_begin(p->kvs, p->key, p->klen, &o->o_begun);
	if (err == -EAGAIN)
		return false;
	if (err == -EBUSY)
		park(o);
	else if (err || !o->o_begun.bg_epoch)
		op_done(o, err);
	else
		wrote(o);
	return true;
}

static bool may_be_durable(const struct kvdb_op *p)
{
	return p->type == KVDB_OP_PUT || p->type == KVDB_OP_DEL || p->type == KVDB_OP_COMMIT;
}

static int op_check(const struct kvdb_cq *cq, const struct kvdb_op *p)
{
	if (p->type < KVDB_OP_GET || p->type > KVDB_OP_COMMIT)
		return kv_error(-EINVAL, "MP0951", "operation of unknown type %u", p->type);
	if (p->flags & ~(may_be_durable(p) ? KVDB_OP_DURABLE : 0))
		return kv_error(-EINVAL, "MP0951", "operation of type %u: flags 0x%x", p->type,
				p->flags);
	if (p->type == KVDB_OP_COMMIT && (!p->txn || kv_txn_db(p->txn) != cq->c_db))
		return kv_error(-EINVAL, "MP0951", "commit of no transaction of this database");
	if (p->type != KVDB_OP_SYNC && p->type != KVDB_OP_COMMIT &&
	    (!p->kvs || p->kvs->k_db != cq->c_db))
		return kv_error(-EINVAL, "MP0951", "operation on no store of this database");
	if (p->type == KVDB_OP_GET && !p->buf && p->size)
		return kv_error(-EINVAL, "MP0951", "a buffer of %zu bytes at NULL", p->size);
	return 0;
}

static void op_start(struct op *o)
{
	struct kvdb_cq *cq = o->o_cq;
	int err = op_check(cq, &o->o_op);

	if (err)
		op_done(o, err);
	else if (o->o_op.type == KVDB_OP_GET)
		start_get(o);
	else if (o->o_op.type == KVDB_OP_SYNC && cq->c_db->d_rdonly)
		op_done(o, 0);
	/* behind those that wait: a sync covers them, and nobody overtakes for ever */
	else if (cq->c_writes.li_head || !run_write(o))
		list_add(&cq->c_writes, o);
}

/* ---- progress ---------------------------------------------------------------------- */

/* Off the list of reads that wait to be started: the first one. */
static struct kv_aload *read_take(struct kvdb_cq *cq)
{
	struct kv_aload *al = cq->c_reads;

	cq->c_reads = al->al_link;
	if (!cq->c_reads)
		cq->c_reads_tail = &cq->c_reads;
	return al;
}

/* The first waiting reads, as long as their pages are being read already, wait for those. */
static void join_reads(struct kvdb_cq *cq)
{
	struct kv_aload *al, *going, **tail;

	while ((al = cq->c_reads)) {
		for (going = cq->c_going; going && !kv_async_is_same(going, al);)
			going = going->al_link;
		if (!going)
			return;
		read_take(cq);
		/* others may have joined it before it was put back */
		for (tail = &al->al_same; *tail;)
			tail = &(*tail)->al_same;
		*tail = going->al_same;
		going->al_same = al;
	}
}

static void read_ended(struct kvdb_cq *cq, struct kv_aload *al)
{
	struct kv_aload **pp = &cq->c_going;

	while (*pp != al)
		pp = &(*pp)->al_link;
	*pp = al->al_link;
}

/* Its read completed, or was refused, with @err; those that joined it run on with it. */
static void read_done(struct kvdb_cq *cq, struct kv_aload *al, int err)
{
	struct kv_aload *same = al->al_same, *next;
	struct kv_thread *t = kv_enter();
	bool again = kv_async_done(al, err);

	kv_exit(t);
	read_ended(cq, al);
	al->al_same = NULL;
	if (again)
		read_add(cq, al);
	else
		run_get(al->al_as->as_owner);
	/* they find the pages in the pool; a failure is not theirs, they read for themselves */
	for (al = same; al; al = next) {
		struct op *o = al->al_as->as_owner;

		next = al->al_same;
		kv_async_drop(al);
		run_get(o);
	}
}

/* Starts waiting reads up to the depth, in one submission. */
static void start_reads(struct kvdb_cq *cq)
{
	struct mpool_io io[REAP];
	struct kv_aload *al, *batch[REAP];
	unsigned n;
	int rc;

	do {
		for (n = 0; n < REAP && cq->c_inflight + n < cq->c_depth; n++) {
			join_reads(cq);
			if (!cq->c_reads)
				break;
			al = batch[n] = read_take(cq);
			io[n] = al->al_load.ld_read.rd_io;
			al->al_link = cq->c_going;
			cq->c_going = al;
		}
		rc = n ? mpool_ioq_submit(cq->c_ioq, io, n) : 0;
		if (rc > 0)
			cq->c_inflight += (unsigned)rc;
		for (unsigned i = rc > 0 ? (unsigned)rc : 0; i < n; i++) {
			/* the first may be what was refused; the others were not looked at */
			if (rc < 0 && !i) {
				read_done(cq, batch[i], rc);
				continue;
			}
			read_ended(cq, batch[i]);
			read_add(cq, batch[i]);
		}
	} while (n && (rc < 0 || n == REAP));
}

/* Takes completions of the device; waits for @want of them until @timeout_ns. 0 or -errno. */
static int take_reads(struct kvdb_cq *cq, unsigned want, int64_t timeout_ns)
{
	struct mpool_cqe cqe[REAP];
	int n = REAP;

	/* without reads too when somebody polls: that makes the pool's event fd unreadable */
	while ((cq->c_inflight || cq->c_epoll >= 0) && n == (int)REAP) {
		n = mpool_ioq_reap(cq->c_ioq, cqe, REAP, want, timeout_ns);
		for (int i = 0; i < n; i++) {
			cq->c_inflight--;
			read_done(cq, (struct kv_aload *)(uintptr_t)cqe[i].cookie,
				  cqe[i].res < 0 ? (int)cqe[i].res : 0);
		}
		want = 0;
	}
	return n < 0 ? kv_error_mpool(n) : 0;
}

static int not_durable(struct kvdb *db)
{
	return kv_error(-EIO, "MP0905", "not durable: %s", db->d_fault_text);
}

static bool is_owned(const struct op *o)
{
	const struct kvdb_op *p = &o->o_op;

	return p->type != KVDB_OP_SYNC &&
	       kv_key_is_owned(p->kvs->k_db, p->kvs->k_id, p->key, p->klen,
			       kv_hash(p->key, p->klen));
}

/* Looks at what waits for the owners of keys: trying would log a record each time. */
static void look_at_owned(struct kvdb_cq *cq)
{
	uint64_t now = cq->c_owned.li_head ? now_ns() : 0;
	struct op *o, *next;

	for (o = list_steal(&cq->c_owned); o; o = next) {
		bool waits = is_owned(o) && !kv_fault(cq->c_db);

		next = o->o_next;
		if (waits && now < o->o_late_ns) {
			list_add(&cq->c_owned, o);
			continue;
		}
		if (o->o_op.type != KVDB_OP_SYNC)
			kv_delayed(cq->c_db, KVDB_DELAY_KEY, kv_now(cq->c_db) - o->o_since_ns);
		if (waits)
			op_done(o, kv_key_denied(o->o_op.kvs));
		else if (cq->c_writes.li_head || !run_write(o))
			list_add(&cq->c_writes, o);
	}
}

/* Looks at what waits for room, for a key or for an epoch. */
static void look(struct kvdb_cq *cq)
{
	struct kvdb *db = cq->c_db;
	struct op *o, *next;
	uint64_t durable;
	int fault;

	if (cq->c_writes.li_head)
		kv_pressure(db);
	while ((o = list_take(&cq->c_writes))) {
		if (!run_write(o)) {
			list_put_back(&cq->c_writes, o);
			break;
		}
	}
	look_at_owned(cq);
	fault = kv_fault(db);
	durable = atomic_load(&db->d_durable);
	for (o = list_steal(&cq->c_durable); o; o = next) {
		next = o->o_next;
		if (!BARRIER(531, o->o_begun.bg_epoch > durable))
			op_done(o, 0);
		else if (fault)
			op_done(o, not_durable(db));
		else
			list_add(&cq->c_durable, o);
	}
}

/* True when writes that are done may be acknowledged now (R1). */
static bool acks_are_due(const struct kvdb_cq *cq)
{
	return cq->c_acks.li_head && !BARRIER(530, kv_gate_is_shut(cq->c_db));
}

/* Behind a shut gate only durable writes may be acknowledged. */
static void look_at_acks(struct kvdb_cq *cq)
{
	struct kvdb *db = cq->c_db;
	uint64_t durable;
	struct op *o, *next;
	int fault;

	if (!cq->c_acks.li_head || acks_are_due(cq))
		return;
	fault = kv_fault(db);
	durable = atomic_load(&db->d_durable);
	for (o = list_steal(&cq->c_acks); o; o = next) {
		next = o->o_next;
		if (o->o_begun.bg_epoch <= durable)
			op_done(o, 0);
		else if (fault)
			op_done(o, not_durable(db));
		else
			list_add(&cq->c_acks, o);
	}
	if (cq->c_acks.li_head)
		kv_want_durable(db, durable + 1);
}

static unsigned take_done(struct kvdb_cq *cq, struct kvdb_cqe *out, unsigned max)
{
	bool with_acks = acks_are_due(cq);
	unsigned n = 0;
	struct op *o;

	while (n < max && ((o = list_take(&cq->c_done)) ||
			   (with_acks && (o = list_take(&cq->c_acks))))) {
		out[n++] = (struct kvdb_cqe){ .cookie = o->o_op.cookie, .err = o->o_err,
					      .type = o->o_op.type, .vlen = o->o_vlen,
					      .error = o->o_error };
		if (o->o_error)
			cq->c_errors[cq->c_nerrors++] = o->o_error;
		op_free(o);
	}
	return n;
}

/* ---- sleeping ------------------------------------------------------------------------ */

static void arm(struct kvdb_cq *cq)
{
	if (!atomic_exchange(&cq->c_armed, true))
		atomic_fetch_add(&cq->c_db->d_cq_armed, 1);
}

static void disarm(struct kvdb_cq *cq)
{
	if (atomic_exchange(&cq->c_armed, false))
		atomic_fetch_sub(&cq->c_db->d_cq_armed, 1);
}

static void event_set(struct kvdb_cq *cq)
{
	uint64_t one = 1;
	ssize_t r = write(cq->c_event, &one, sizeof(one));

	(void)r;	/* full means readable already */
}

static void event_clear(struct kvdb_cq *cq)
{
	uint64_t v;
	ssize_t r = read(cq->c_event, &v, sizeof(v));

	if (cq->c_timer >= 0)
		r = read(cq->c_timer, &v, sizeof(v));
	(void)r;	/* only to make them unreadable */
}

void kv_cqs_wake(struct kvdb *db)
{
	if (!atomic_load(&db->d_cq_armed))
		return;
	pthread_mutex_lock(&db->d_cq_lock);
	for (struct kvdb_cq *cq = db->d_cqs; cq; cq = cq->c_next) {
		if (!atomic_exchange(&cq->c_armed, false))
			continue;
		atomic_fetch_sub(&db->d_cq_armed, 1);
		event_set(cq);
	}
	pthread_mutex_unlock(&db->d_cq_lock);
}

/* Nobody tells when these can go on. */
static bool waits_untold(const struct kvdb_cq *cq)
{
	return cq->c_writes.li_head || cq->c_owned.li_head;
}

static bool waits_for_others(const struct kvdb_cq *cq)
{
	return waits_untold(cq) || cq->c_durable.li_head || cq->c_acks.li_head;
}

/* KVDB_MANUAL: what it waits for it does itself. */
static int wait_manual(struct kvdb_cq *cq, unsigned want)
{
	struct kvdb *db = cq->c_db;
	int err = 0;

	if (cq->c_inflight)
		return take_reads(cq, want, -1);
	if (cq->c_writes.li_head)
		err = kv_stall_wait(db, false);
	if (cq->c_durable.li_head || cq->c_acks.li_head)
		kv_wait_durable(db, atomic_load(&db->d_durable) + 1);
	if (err && err != -ENOSPC)
		err = 0;	/* a fault: the operations say so */
	if (err && cq->c_writes.li_head) {
		kv_error(err, "MP0904", "no room for a write");
		op_done(list_take(&cq->c_writes), err);
	}
	return 0;
}

/* Sleeps until something has happened, or @end_ns. @want completions of the device are worth it. */
static int wait_some(struct kvdb_cq *cq, unsigned want, uint64_t end_ns)
{
	struct pollfd fd[2] = { { .fd = cq->c_event, .events = POLLIN },
				{ .fd = -1, .events = POLLIN } };
	uint64_t now = end_ns == UINT64_MAX ? 0 : now_ns();
	uint64_t left = end_ns == UINT64_MAX ? UINT64_MAX : end_ns > now ? end_ns - now : 0;
	struct timespec ts;

	/* not so many that the device runs dry meanwhile */
	if (want > cq->c_inflight / 2)
		want = cq->c_inflight / 2;
	want = want ? want : 1;
	if (kv_is_manual(cq->c_db))
		return wait_manual(cq, want);
	if (!waits_for_others(cq))
		return take_reads(cq, want, left == UINT64_MAX ? -1 : (int64_t)left);
	if (cq->c_inflight)
		fd[1].fd = mpool_ioq_fd(cq->c_ioq);
	arm(cq);
	look(cq);
	look_at_acks(cq);
	if (!cq->c_done.li_head && !acks_are_due(cq)) {
		if (waits_untold(cq) && left > STALL_NS)
			left = STALL_NS;
		ts = (struct timespec){ .tv_sec = (time_t)(left / 1000000000u),
					.tv_nsec = (long)(left % 1000000000u) };
		ppoll(fd, 2, left == UINT64_MAX ? NULL : &ts, NULL);
	}
	disarm(cq);
	event_clear(cq);
	return 0;
}

/* For who sleeps on kvdb_cq_fd(): it is readable when there is something to reap. */
static void event_keep(struct kvdb_cq *cq)
{
	static const struct itimerspec again = { .it_value = { .tv_nsec = STALL_NS } };

	if (cq->c_epoll < 0)
		return;
	if (waits_for_others(cq)) {
		arm(cq);
		look(cq);
		look_at_acks(cq);
		start_reads(cq);
	}
	if (cq->c_done.li_head || acks_are_due(cq))
		event_set(cq);
	else if (waits_untold(cq))
		timerfd_settime(cq->c_timer, 0, &again, NULL);
}

/* ---- public ---------------------------------------------------------------------------- */

int kvdb_cq_submit(struct kvdb_cq *cq, const struct kvdb_op *ops, unsigned n)
{
	unsigned i;

	if (!cq || (!ops && n))
		return kv_error(-EINVAL, "MP0951", "no queue or no operations");
	for (i = 0; i < n && cq->c_ops < KVDB_CQ_OPS_MAX; i++) {
		struct op *o = op_new(cq);

		if (!o)
			break;
		o->o_op = ops[i];
		op_start(o);
	}
	start_reads(cq);
	event_keep(cq);
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
		event_clear(cq);
	for (;;) {
		err = take_reads(cq, 0, 0);
		if (err)
			break;
		look(cq);
		look_at_acks(cq);
		start_reads(cq);
		n += take_done(cq, out + n, max - n);
		if (n >= min || !cq->c_ops)
			break;
		if (!end)
			end = now_ns() + (uint64_t)timeout_ns;
		else if (end != UINT64_MAX && now_ns() >= end)
			break;
		err = wait_some(cq, min - n, end);
		if (err)
			break;
	}
	event_keep(cq);
	return n || !err ? (int)n : err;
}

int kvdb_cq_fd(struct kvdb_cq *cq)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int ioq, ep, timer;

	if (!cq)
		return kv_error(-EINVAL, "MP0951", "no queue");
	if (cq->c_epoll >= 0)
		return cq->c_epoll;
	ioq = mpool_ioq_fd(cq->c_ioq);
	if (ioq < 0)
		return kv_error_mpool(ioq);
	ep = epoll_create1(EPOLL_CLOEXEC);
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (ep < 0 || timer < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, ioq, &ev) ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, cq->c_event, &ev) ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, timer, &ev)) {
		int err = -errno;

		if (ep >= 0)
			close(ep);
		if (timer >= 0)
			close(timer);
		return kv_error(err, "MP0947", "no descriptor for a completion queue: %s",
				strerror(-err));
	}
	cq->c_epoll = ep;
	cq->c_timer = timer;
	event_keep(cq);
	return ep;
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
	list_init(&cq->c_writes);
	list_init(&cq->c_owned);
	list_init(&cq->c_durable);
	list_init(&cq->c_acks);
	list_init(&cq->c_done);
	cq->c_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
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
	pthread_mutex_lock(&db->d_cq_lock);
	cq->c_next = db->d_cqs;
	db->d_cqs = cq;
	pthread_mutex_unlock(&db->d_cq_lock);
	*out = cq;
	return 0;
}

/* Frees what operations hold; their reads are done. */
static void free_ops(struct kvdb_cq *cq)
{
	struct chunk *ch;
	struct op *o;

	while ((o = list_take(&cq->c_done)))
		free(o->o_error);
	while ((o = list_take(&cq->c_writes)))
		if (o->o_op.type == KVDB_OP_COMMIT)
			kvdb_txn_abort(o->o_op.txn);
	free_errors(cq);
	while ((ch = cq->c_chunks)) {
		for (unsigned i = 0; i < CHUNK; i++)
			kv_async_free(&ch->ch_op[i].o_as);
		cq->c_chunks = ch->ch_next;
		free(ch);
	}
}

void kvdb_cq_close(struct kvdb_cq *cq)
{
	struct kvdb_cq **pp;
	struct kvdb *db;

	if (!cq)
		return;
	db = cq->c_db;
	disarm(cq);
	pthread_mutex_lock(&db->d_cq_lock);
	for (pp = &db->d_cqs; *pp != cq; pp = &(*pp)->c_next)
		;
	*pp = cq->c_next;
	pthread_mutex_unlock(&db->d_cq_lock);
	mpool_ioq_close(cq->c_ioq);
	free_ops(cq);
	if (cq->c_epoll >= 0) {
		close(cq->c_epoll);
		close(cq->c_timer);
	}
	close(cq->c_event);
	free(cq->c_errors);
	free(cq);
}
