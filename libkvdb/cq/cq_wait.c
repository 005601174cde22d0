/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How the owner of a completion queue sleeps: in the pool's queue, or in poll()
 * on that queue's event fd and on c_event. The latter is written by
 * kv_cqs_wake() while the queue is armed, that is while something waits for
 * what other threads do; after arming the queue looks once more, so that it
 * misses nothing. The end of a transaction wakes queues only while one of them
 * counts as a waiter for keys.
 *
 * Three things come by time alone: the throttle lets a write go, one has waited
 * for its key for too long, and the answer of the older of two kv_pressure()
 * that ran at once was wrong.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "mem/keylock.h"
#include "background/work.h"
#include "cq/cq.h"

#define ROOM_NS		10000000u /* look so often whether there is room, as kv_stall_wait() */

uint64_t kv_cq_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void wait_for_keys(struct kvdb_cq *cq, bool waits)
{
	if (cq->c_waits_for_keys == waits)
		return;
	cq->c_waits_for_keys = waits;
	kv_key_waiters(cq->c_db, waits ? 1 : -1);
}

static void arm(struct kvdb_cq *cq)
{
	wait_for_keys(cq, cq->c_owned.li_head != NULL);
	/* counted first, or a wake-up might pass by a queue that sleeps; only we arm */
	if (!atomic_load(&cq->c_armed)) {
		atomic_fetch_add(&cq->c_db->d_cqs.qs_armed, 1);
		atomic_store(&cq->c_armed, true);
	}
	atomic_thread_fence(memory_order_seq_cst);	/* pairs with kv_key_wake() */
}

void kv_cq_disarm(struct kvdb_cq *cq)
{
	wait_for_keys(cq, false);
	if (atomic_exchange(&cq->c_armed, false))
		atomic_fetch_sub(&cq->c_db->d_cqs.qs_armed, 1);
}

static void event_set(struct kvdb_cq *cq)
{
	uint64_t one = 1;
	ssize_t r = write(cq->c_event, &one, sizeof(one));

	(void)r;	/* full means readable already */
}

void kv_cq_event_clear(struct kvdb_cq *cq)
{
	uint64_t v;
	ssize_t r = read(cq->c_event, &v, sizeof(v));

	if (cq->c_timer >= 0)
		r = read(cq->c_timer, &v, sizeof(v));
	(void)r;	/* only to make them unreadable */
}

void kv_cqs_wake(struct kvdb *db)
{
	if (!atomic_load(&db->d_cqs.qs_armed))
		return;
	pthread_mutex_lock(&db->d_cqs.qs_lock);
	for (struct kvdb_cq *cq = db->d_cqs.qs_first; cq; cq = cq->c_next) {
		if (!atomic_exchange(&cq->c_armed, false))
			continue;
		KV_ASSERT(atomic_load(&db->d_cqs.qs_armed));
		atomic_fetch_sub(&db->d_cqs.qs_armed, 1);
		event_set(cq);
	}
	pthread_mutex_unlock(&db->d_cqs.qs_lock);
}

/* What happens from here on wakes it. */
static void look_armed(struct kvdb_cq *cq)
{
	KV_ASSERT_OUTSIDE();
	/* again when a write has met an owner only now */
	do {
		arm(cq);
		kv_cq_look(cq);
	} while (cq->c_owned.li_head && !cq->c_waits_for_keys);
	kv_cq_look_at_acks(cq);
}

static bool waits_for_others(const struct kvdb_cq *cq)
{
	return cq->c_writes.li_head || cq->c_owned.li_head || cq->c_durable.li_head ||
	       cq->c_acks.li_head;
}

/* When something may go on without a word, in ns from now; UINT64_MAX: a word will come. */
static uint64_t untold_ns(const struct kvdb_cq *cq)
{
	uint64_t ns = UINT64_MAX, now, due;

	if (cq->c_writes.li_head) {
		now = kv_now(cq->c_db);
		due = cq->c_writes.li_head->o_begun.bg_due_ns;
		ns = due > now ? due - now : ROOM_NS;
	}
	if (cq->c_owned.li_head) {
		now = kv_cq_now_ns();
		due = cq->c_late_ns > now ? cq->c_late_ns - now : 1;
		ns = due < ns ? due : ns;
	}
	return ns;
}

/* KVDB_MANUAL: no other thread does the work, so the waiter does. */
static int wait_manual(struct kvdb_cq *cq, unsigned want)
{
	struct kvdb *db = cq->c_db;
	int err = 0;

	if (cq->c_inflight)
		return kv_cq_reads_take(cq, want, -1);
	if (cq->c_writes.li_head)
		err = kv_stall_wait(db, false);
	if (cq->c_durable.li_head || cq->c_acks.li_head)
		kv_wait_durable(db, atomic_load(&db->d_epochs.ep_durable) + 1);
	/* which operation this ends, and how, is told by its next run; so is a fault */
	if (err == -ENOSPC)
		atomic_store(&db->d_flusher->fl_space_err, err);
	return 0;
}

int kv_cq_wait(struct kvdb_cq *cq, unsigned want, uint64_t end_ns)
{
	struct pollfd fd[2] = { { .fd = cq->c_event, .events = POLLIN },
				{ .fd = -1, .events = POLLIN } };
	uint64_t now = end_ns == UINT64_MAX ? 0 : kv_cq_now_ns();
	uint64_t left = end_ns == UINT64_MAX ? UINT64_MAX : end_ns > now ? end_ns - now : 0;
	uint64_t untold;
	struct timespec ts;

	KV_ASSERT_OUTSIDE();
	/* few enough that the device always has requests */
	if (want > cq->c_inflight / 2)
		want = cq->c_inflight / 2;
	want = want ? want : 1;
	if (kv_is_manual(cq->c_db))
		return wait_manual(cq, want);
	if (!waits_for_others(cq))
		return kv_cq_reads_take(cq, want, left == UINT64_MAX ? -1 : (int64_t)left);
	if (cq->c_inflight)
		fd[1].fd = mpool_ioq_fd(cq->c_ioq);
	look_armed(cq);
	if (!cq->c_done.li_head && !kv_cq_acks_are_due(cq)) {
		untold = untold_ns(cq);
		left = untold < left ? untold : left;
		ts = (struct timespec){ .tv_sec = (time_t)(left / 1000000000u),
					.tv_nsec = (long)(left % 1000000000u) };
		ppoll(fd, 2, left == UINT64_MAX ? NULL : &ts, NULL);
	}
	kv_cq_disarm(cq);
	kv_cq_event_clear(cq);
	return 0;
}

/* The timer goes off in @ns; UINT64_MAX: not at all. */
static void timer_set(struct kvdb_cq *cq, uint64_t ns)
{
	struct itimerspec at = { .it_value = { .tv_sec = 0 } };

	KV_ASSERT(cq->c_timer >= 0 && cq->c_epoll >= 0);
	if (ns != UINT64_MAX) {
		at.it_value.tv_sec = (time_t)(ns / 1000000000u);
		at.it_value.tv_nsec = (long)(ns % 1000000000u);
	}
	timerfd_settime(cq->c_timer, 0, &at, NULL);
}

void kv_cq_event_keep(struct kvdb_cq *cq)
{
	if (cq->c_epoll < 0)
		return;
	if (waits_for_others(cq)) {
		look_armed(cq);
		kv_cq_reads_start(cq);
	}
	if (cq->c_done.li_head || kv_cq_acks_are_due(cq))
		event_set(cq);
	else
		timer_set(cq, untold_ns(cq));
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
	ep = mpool_fd_up(epoll_create1(EPOLL_CLOEXEC));
	timer = mpool_fd_up(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
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
	kv_cq_event_keep(cq);
	return ep;
}
