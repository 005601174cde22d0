/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The plain transport of the I/O queues: every part is one call of the backend,
 * executed at submission. A device that answers later (a delay layer, a
 * simulated device) says when, and the completion waits in time order until
 * then, so requests overlap as on the real thing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "device.h"
#include "ioq.h"

static int sync_start(struct mpool_ioq *q, struct mpl_part *pt)
{
	uint64_t ready = 0;
	int rc = q->q_back->transfer(q, pt, &ready);

	if (ready > pt->pt_req->rq_ready_ns)
		pt->pt_req->rq_ready_ns = ready;
	mpl_part_done(q, pt, rc);
	return 0;
}

/* into the waiting list by time; equal times keep their order */
static void sync_started(struct mpool_ioq *q, struct mpl_req *rq)
{
	struct mpl_req **pp = &q->q_wait;

	if (q->q_wait_tail && q->q_wait_tail->rq_ready_ns <= rq->rq_ready_ns)
		pp = &q->q_wait_tail->rq_next;
	else
		while (*pp && (*pp)->rq_ready_ns <= rq->rq_ready_ns)
			pp = &(*pp)->rq_next;
	rq->rq_next = *pp;
	*pp = rq;
	if (!rq->rq_next)
		q->q_wait_tail = rq;
}

static void sync_kick(struct mpool_ioq *q)
{
	(void)q;
}

static int sync_poll(struct mpool_ioq *q, unsigned want, uint64_t end_ns)
{
	struct mpl_req *rq = q->q_wait;
	uint64_t now;
	unsigned i;

	if (!rq)
		return 0;
	if (want) {
		for (i = 1; i < want && rq->rq_next; i++)
			rq = rq->rq_next;
		if (rq->rq_ready_ns)
			mpl_sleep_until(rq->rq_ready_ns < end_ns ? rq->rq_ready_ns : end_ns);
	}
	now = q->q_wait->rq_ready_ns ? mpl_now_ns() : 0;
	while ((rq = q->q_wait) && rq->rq_ready_ns <= now) {
		q->q_wait = rq->rq_next;
		if (!q->q_wait)
			q->q_wait_tail = NULL;
		mpl_req_finish(q, rq);
	}
	return 0;
}

/* The timer is due when the first completion is. */
static void sync_event(struct mpool_ioq *q)
{
	struct itimerspec its;
	uint64_t at = 0;

	if (q->q_timer_fd < 0)
		return;
	if (q->q_done_n)
		at = 1;
	else if (q->q_wait)
		at = q->q_wait->rq_ready_ns ? q->q_wait->rq_ready_ns : 1;
	memset(&its, 0, sizeof(its));
	its.it_value.tv_sec = (time_t)(at / 1000000000u);
	its.it_value.tv_nsec = (long)(at % 1000000000u);
	timerfd_settime(q->q_timer_fd, TFD_TIMER_ABSTIME, &its, NULL);
}

static int sync_event_fd(struct mpool_ioq *q)
{
	if (q->q_timer_fd < 0)
		q->q_timer_fd = mpool_fd_up(timerfd_create(CLOCK_MONOTONIC,
							    TFD_NONBLOCK | TFD_CLOEXEC));
	return q->q_timer_fd < 0 ? -errno : q->q_timer_fd;
}

static int sync_reg(struct mpool_ioq *q, const struct iovec *iov, unsigned n)
{
	(void)q;
	(void)iov;
	(void)n;
	return 0;
}

static void sync_fini(struct mpool_ioq *q)
{
	if (q->q_timer_fd >= 0)
		close(q->q_timer_fd);
}

const struct mpl_transport mpl_ioq_sync_ops = {
	.start = sync_start,
	.started = sync_started,
	.kick = sync_kick,
	.poll = sync_poll,
	.event_fd = sync_event_fd,
	.event = sync_event,
	.reg = sync_reg,
	.fini = sync_fini,
};

void mpl_sync_init(struct mpool_ioq *q)
{
	q->q_ops = &mpl_ioq_sync_ops;
}
