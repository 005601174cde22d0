/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Blocking reads, and how many threads share the cost of them.
 *
 * One read per system call costs more processor time than the device takes, so
 * a thread whose read would find the device busy anyway posts it on a list and
 * parks. A thread that finds that little is in flight, or that enough is posted, takes
 * the whole list, its own reads included, submits it at once and stays until all
 * of it is done: it reaps for the others. When its own reads are done and the
 * list is due, it names the first of the waiting threads to take over.
 *
 * A queue of the pool belongs to the thread that submits (its ring accepts no
 * other), so each thread that reads often has one. A thread's first reads, reads
 * without io_uring and those of KVDB_MANUAL are plain calls.
 *
 * No read is forgotten: rs_inflight and the list change under one lock, each read
 * that is counted in rs_inflight is waited for by a thread that looks at the
 * list after every completion, and with nothing in flight no thread parks.
 *
 * What follows from a read (the next page of a get) is run by the reaper, too:
 * the owner is woken once, when all is done.
 *
 * Locks: rs_lock and rs_spare_lock, leaves; rq_busy is a try-lock, held while its thread reads.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/futex.h"
#include "db/db.h"
#include "db/thread.h"
#include "db/waits.h"
#include "cache/load.h"

#define QUEUES		128u
#define QUEUE_DEPTH	64u
#define FEW		8u	/* with less in flight no thread waits for company */
#define BATCH		8u	/* posted reads that are submitted in any case */
#define PAGE		4096u
#define SPARE_PAGES	2u	/* most values and all key pages */
#define SPARES		256u	/* unused reads that are kept */
#define FIRST_READS	16u	/* plain calls of a thread before it gets a queue */

enum wait_state { W_WAITING = 0, W_DONE, W_LEADS };

/* A waiting thread, on its stack. What ends its last read stores W_DONE, and nothing later. */
struct kv_wait {
	_Atomic(uint32_t) w_state;	/* enum wait_state; futex */
	_Atomic(uint32_t) w_left;	/* reads that are not done */
	struct kv_read *w_batch;	/* W_LEADS: reads to submit */
};

struct rqueue {
	_Atomic(bool) rq_busy;
	struct mpool_ioq *rq_ioq;	/* NULL until it is used */
	unsigned rq_inflight;
} __attribute__((aligned(KV_CACHELINE)));

struct kv_readers {
	pthread_mutex_t rs_lock;
	struct kv_read *rs_posted;	/* oldest first */
	struct kv_read **rs_tail;
	unsigned rs_nposted;
	unsigned rs_inflight;		/* taken by a thread and not done */
	bool rs_is_shared;		/* reads may be executed for others */
	pthread_mutex_t rs_spare_lock;
	struct kv_aload *rs_spare;	/* unused, with buffers of SPARE_PAGES */
	unsigned rs_nspare;
	struct rqueue rs_q[QUEUES];
};

static __thread unsigned reads_here;	/* of this thread, up to FIRST_READS */

static void park(struct kv_wait *w)
{
	kv_futex_wait(&w->w_state, W_WAITING, KV_FUTEX_ALL);
}

static void unpark(struct kv_wait *w, uint32_t state)
{
	atomic_store(&w->w_state, state);
	/* it may be gone already */
	kv_futex_wake(&w->w_state, 1, KV_FUTEX_ALL);
}

/*
 * The read is done; returns what follows from it, for the same waiter. @me: the
 * caller, which needs no waking.
 */
static struct kv_read *read_done(struct kv_read *rd, int err, const struct kv_wait *me)
{
	struct kv_wait *w = rd->rd_wait;
	struct kv_read *more;

	KV_ASSERT(atomic_load(&w->w_left));
	rd->rd_err = err;
	more = rd->rd_more ? rd->rd_more(rd) : NULL;
	if (more) {
		more->rd_wait = w;
		more->rd_next = NULL;
		return more;
	}
	if (atomic_fetch_sub(&w->w_left, 1) != 1)
		return NULL;
	if (w == me)
		atomic_store(&w->w_state, W_DONE);
	else
		unpark(w, W_DONE);
	return NULL;
}

/* ---- the list of posted reads ------------------------------------------------------ */

/* Under rs_lock: the posted reads, if they should go to the device now. */
static struct kv_read *take_due(struct kv_readers *rs)
{
	struct kv_read *list = rs->rs_posted;

	KV_ASSERT_HELD(&rs->rs_lock);
	if (!list || (rs->rs_inflight >= FEW && rs->rs_nposted < BATCH))
		return NULL;
	rs->rs_inflight += rs->rs_nposted;
	rs->rs_nposted = 0;
	rs->rs_posted = NULL;
	rs->rs_tail = &rs->rs_posted;
	return list;
}

static struct kv_read *post(struct kv_readers *rs, struct kv_read **rd, unsigned n)
{
	struct kv_read *list;

	pthread_mutex_lock(&rs->rs_lock);
	for (unsigned i = 0; i < n; i++) {
		rd[i]->rd_next = NULL;
		*rs->rs_tail = rd[i];
		rs->rs_tail = &rd[i]->rd_next;
	}
	rs->rs_nposted += n;
	list = take_due(rs);
	pthread_mutex_unlock(&rs->rs_lock);
	return list;
}

/* @n reads that were taken are done. */
static struct kv_read *settle(struct kv_readers *rs, unsigned n)
{
	struct kv_read *list;

	pthread_mutex_lock(&rs->rs_lock);
	KV_ASSERT(rs->rs_inflight >= n);
	rs->rs_inflight -= n;
	list = take_due(rs);
	pthread_mutex_unlock(&rs->rs_lock);
	return list;
}

/* ---- submitting and reaping ---------------------------------------------------------- */

/* This thread's queue, locked; NULL: it has none. */
static struct rqueue *queue_get(struct kvdb *db)
{
	struct rqueue *q;

	if (!db->d_cache.cc_readers || !db->d_cache.cc_readers->rs_is_shared)
		return NULL;
	if (reads_here < FIRST_READS) {
		reads_here++;
		return NULL;
	}
	q = &db->d_cache.cc_readers->rs_q[kv_thread_no() % QUEUES];
	if (atomic_exchange(&q->rq_busy, true))
		return NULL;
	if (!q->rq_ioq && mpool_ioq_open(db->d_mp, QUEUE_DEPTH, &q->rq_ioq)) {
		q->rq_ioq = NULL;
		atomic_store(&q->rq_busy, false);
		return NULL;
	}
	return q;
}

/* What one thread executes: reads to be submitted, oldest first. */
struct todo {
	struct kv_read *td_head, **td_tail;
};

static void todo_add(struct todo *td, struct kv_read *list)
{
	*td->td_tail = list;
	while (*td->td_tail)
		td->td_tail = &(*td->td_tail)->rd_next;
}

static struct kv_read *todo_take(struct todo *td)
{
	struct kv_read *rd = td->td_head;

	td->td_head = rd->rd_next;
	if (!td->td_head)
		td->td_tail = &td->td_head;
	return rd;
}

/* A read is over, and with it perhaps what it was for; returns 1 then. */
static unsigned over(struct todo *td, struct kv_read *rd, int err, struct kv_wait *me)
{
	struct kv_read *more = read_done(rd, err, me);

	if (more)
		todo_add(td, more);
	return !more;
}

/* Submits what the queue has room for; returns the number of those that ended by being refused. */
static unsigned submit_some(struct rqueue *q, struct todo *td, struct kv_wait *me)
{
	struct mpool_io io[QUEUE_DEPTH];
	struct kv_read *rd = td->td_head;
	unsigned n = 0;
	int rc;

	for (; rd && q->rq_inflight + n < QUEUE_DEPTH; rd = rd->rd_next)
		io[n++] = rd->rd_io;
	if (!n)
		return 0;
	rc = mpool_ioq_submit(q->rq_ioq, io, n);
	if (rc < 0)	/* the first is bad; the others were not looked at */
		return over(td, todo_take(td), rc, me);
	q->rq_inflight += (unsigned)rc;
	while (rc-- > 0)
		todo_take(td);
	return 0;
}

static unsigned reap_some(struct rqueue *q, struct todo *td, struct kv_wait *me)
{
	struct mpool_cqe cqe[QUEUE_DEPTH];
	int n = mpool_ioq_reap(q->rq_ioq, cqe, QUEUE_DEPTH, 1, -1);
	unsigned ended = 0;

	for (int i = 0; i < n; i++) {
		KV_ASSERT(q->rq_inflight);
		q->rq_inflight--;
		ended += over(td, (struct kv_read *)(uintptr_t)cqe[i].cookie,
			      cqe[i].res < 0 ? (int)cqe[i].res : 0, me);
	}
	return ended;
}

/* Executes the reads of @list, which include the caller's, and what follows from them. */
static void lead(struct kv_readers *rs, struct rqueue *q, struct kv_read *list, struct kv_wait *me)
{
	struct todo td = { .td_tail = &td.td_head };
	struct kv_read *due;
	unsigned ended;

	KV_ASSERT(atomic_load(&q->rq_busy));
	KV_ASSERT_FREE(&rs->rs_lock);
	todo_add(&td, list);
	while (td.td_head || q->rq_inflight) {
		ended = submit_some(q, &td, me);
		if (q->rq_inflight)
			ended += reap_some(q, &td, me);
		due = ended ? settle(rs, ended) : NULL;
		if (!due)
			continue;
		if (atomic_load(&me->w_left)) {
			todo_add(&td, due);
		} else {
			due->rd_wait->w_batch = due;
			unpark(due->rd_wait, W_LEADS);
		}
	}
}

static void run_plain(struct kv_read *rd)
{
	do {
		rd->rd_err = mpool_read(rd->rd_io.obj, rd->rd_io.off, rd->rd_io.iov,
					rd->rd_io.iovcnt);
	} while (rd->rd_more && (rd = rd->rd_more(rd)));
}

/* ---- memory of reads --------------------------------------------------------------------- */

struct kv_aload *kv_aload_new(struct kvdb *db, unsigned pages)
{
	struct kv_readers *rs = db->d_cache.cc_readers;
	struct kv_aload *al = NULL;

	if (rs && pages <= SPARE_PAGES) {
		pthread_mutex_lock(&rs->rs_spare_lock);
		al = rs->rs_spare;
		if (al) {
			rs->rs_spare = al->al_next;
			rs->rs_nspare--;
		}
		pthread_mutex_unlock(&rs->rs_spare_lock);
	}
	if (al)
		return al;
	al = malloc(sizeof(*al));
	if (!al)
		return NULL;
	al->al_pages = pages < SPARE_PAGES ? SPARE_PAGES : pages;
	al->al_iov.iov_base = aligned_alloc(PAGE, (size_t)al->al_pages * PAGE);
	if (al->al_iov.iov_base)
		return al;
	free(al);
	return NULL;
}

static void aload_destroy(struct kv_aload *al)
{
	free(al->al_iov.iov_base);
	free(al);
}

void kv_aload_free(struct kvdb *db, struct kv_aload *al)
{
	struct kv_readers *rs = db->d_cache.cc_readers;

	if (rs && al->al_pages == SPARE_PAGES) {
		pthread_mutex_lock(&rs->rs_spare_lock);
		if (rs->rs_nspare < SPARES) {
			al->al_next = rs->rs_spare;
			rs->rs_spare = al;
			rs->rs_nspare++;
			al = NULL;
		}
		pthread_mutex_unlock(&rs->rs_spare_lock);
	}
	if (al)
		aload_destroy(al);
}

/* ---- the way in ---------------------------------------------------------------------------- */

static void run_all(struct kvdb *db, struct kv_read **rd, unsigned n)
{
	struct kv_wait me = { .w_left = n };
	struct rqueue *q = n ? queue_get(db) : NULL;
	struct kv_read *list;
	uint32_t st;

	if (!q) {
		for (unsigned i = 0; i < n; i++)
			run_plain(rd[i]);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		rd[i]->rd_wait = &me;
	list = post(db->d_cache.cc_readers, rd, n);
	if (list)
		lead(db->d_cache.cc_readers, q, list, &me);
	while ((st = atomic_load(&me.w_state)) != W_DONE) {
		if (st == W_LEADS) {
			atomic_store(&me.w_state, W_WAITING);
			lead(db->d_cache.cc_readers, q, me.w_batch, &me);
		} else {
			park(&me);
		}
	}
	atomic_store(&q->rq_busy, false);
}

void kv_reads_run(struct kvdb *db, struct kv_read **rd, unsigned n)
{
	uint64_t began = kv_wait_begin();

	run_all(db, rd, n);
	kv_wait_end(KVDB_DELAY_READ, began);
}

/* ---- open, close ------------------------------------------------------------------------ */

int kv_readers_init(struct kvdb *db)
{
	struct kv_readers *rs = aligned_alloc(KV_CACHELINE, sizeof(*rs));
	struct mpool_info info;

	if (!rs)
		return -ENOMEM;
	memset(rs, 0, sizeof(*rs));
	pthread_mutex_init(&rs->rs_lock, NULL);
	pthread_mutex_init(&rs->rs_spare_lock, NULL);
	rs->rs_tail = &rs->rs_posted;
	/* plain calls for others one after the other would be slower than each doing its own */
	rs->rs_is_shared = !kv_is_manual(db) && !mpool_info(db->d_mp, &info) &&
			   !strcmp(info.io, "uring");
	db->d_cache.cc_readers = rs;
	return 0;
}

void kv_readers_fini(struct kvdb *db)
{
	struct kv_readers *rs = db->d_cache.cc_readers;

	if (!rs)
		return;
	KV_ASSERT(!rs->rs_posted && !rs->rs_inflight);
	for (unsigned i = 0; i < QUEUES; i++)
		mpool_ioq_close(rs->rs_q[i].rq_ioq);
	while (rs->rs_spare) {
		struct kv_aload *al = rs->rs_spare;

		rs->rs_spare = al->al_next;
		aload_destroy(al);
	}
	pthread_mutex_destroy(&rs->rs_lock);
	pthread_mutex_destroy(&rs->rs_spare_lock);
	db->d_cache.cc_readers = NULL;
	free(rs);
}
