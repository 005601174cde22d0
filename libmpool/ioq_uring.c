/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The io_uring transport of the I/O queues, for O_DIRECT descriptors: of members
 * (embedded) or of objects (kernel). The ring is made at the first submission and is used by one
 * thread at a time; a queue is handed to another thread with nothing in flight.
 *
 * A ring may stop working: a program that has opened its pool forbids io_uring to itself
 * (seccomp). The queue then goes on with plain calls, for good, and no request is lost or done
 * twice: what the kernel has taken is waited for and read from the memory of the ring, which
 * needs no call, and what it has not taken is done by plain calls. That is why rings are made
 * without DEFER_TASKRUN: with it an end becomes an entry in io_uring_enter() only. And why
 * without SINGLE_ISSUER: the thread that closes a queue need not be the one that used it, and
 * must unregister the files, or the kernel keeps them until it has ended the ring, some time
 * after the close.
 *
 * Short transfers are resumed, EAGAIN and EINTR resubmitted; a transfer of zero
 * bytes is an error (the file is shorter than the pool).
 *
 * Parts are issued in the order of their submission: the kernel module admits
 * writes at the end of an object, so nothing here may put one behind another
 * (no IOSQE_ASYNC, no links).
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "guard.h"
#include "ioq.h"
#include "user.h"

#define URING_BUFS_MAX	1024u
#define BROKEN_NAP_NS	200000u

struct mpl_uring {
	struct io_uring ur_ring;
	int ur_is_up;
	int ur_is_broken;		/* no ring any more: plain calls */
	int ur_has_files;		/* members are registered, by slot */
	uint64_t ur_owner;		/* thread_no() of the thread that has parts in flight */
	unsigned ur_parts;		/* in flight */
	int ur_event_fd;		/* -1 until asked for */
	unsigned ur_nbufs;
	struct iovec *ur_buf;
	int ur_has_bufs;
};

/* Of the calling thread, and of no other ever: its memory may be that of one that has ended. */
static uint64_t thread_no(void)
{
	static uint64_t last;
	static __thread uint64_t no;

	if (!no)
		no = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	return no;
}

/* its descriptor above 0, 1 and 2, which the program may have closed; nothing is in flight */
static int ring_fd_up(struct io_uring *ring)
{
	int fd = mpool_fd_up(ring->ring_fd), err = fd < 0 ? -errno : 0;

	ring->ring_fd = ring->enter_ring_fd = fd;
	if (err)
		io_uring_queue_exit(ring);
	return err;
}

static int uring_setup(struct io_uring *ring, unsigned entries)
{
	static const unsigned flags[] = {
		IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN,
		IORING_SETUP_CLAMP,
	};
	unsigned i;
	int rc = -EINVAL;

	for (i = 0; i < ARRAY_SIZE(flags) && rc == -EINVAL; i++) {
		struct io_uring_params p = { .flags = flags[i] };

		rc = io_uring_queue_init_params(entries, ring, &p);
	}
	return rc ? rc : ring_fd_up(ring);
}

int mpl_uring_works(void)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	int works;

	if (uring_setup(&ring, 2))
		return 0;
	/* a whole request: to make a ring may be allowed, and to use it not */
	io_uring_prep_nop(io_uring_get_sqe(&ring));
	works = io_uring_submit(&ring) == 1 && !io_uring_wait_cqe(&ring, &cqe) && !cqe->res;
	io_uring_queue_exit(&ring);
	return works;
}

static void uring_down(struct mpl_uring *ur)
{
	if (!ur->ur_is_up)
		return;
	/* the ring is freed later than it is closed; the files must be free at once */
	if (ur->ur_has_files)
		io_uring_unregister_files(&ur->ur_ring);
	io_uring_queue_exit(&ur->ur_ring);
	ur->ur_is_up = 0;
}

static int uring_up(struct mpool_ioq *q)
{
	struct mpl_uring *ur = q->q_uring;
	int fds[MPL_CFG_DEVS], rc;
	unsigned n = 0;

	rc = uring_setup(&ur->ur_ring, q->q_depth);
	if (rc)
		return rc;
	ur->ur_is_up = 1;
	ur->ur_has_files = 0;
	/* a waiter for it would sleep for ever */
	if (ur->ur_event_fd >= 0) {
		rc = io_uring_register_eventfd(&ur->ur_ring, ur->ur_event_fd);
		if (rc) {
			uring_down(ur);
			return rc;
		}
	}
	if (q->q_back->files)
		n = q->q_back->files(q, fds, MPL_CFG_DEVS);
	/* both are optimisations: without them the same requests work */
	ur->ur_has_files = n && !io_uring_register_files(&ur->ur_ring, fds, n);
	ur->ur_has_bufs = ur->ur_nbufs &&
			  !io_uring_register_buffers(&ur->ur_ring, ur->ur_buf, ur->ur_nbufs);
	return 0;
}

/* index of the registered buffer that holds @v, or -1 */
static int uring_buf_find(const struct mpl_uring *ur, const struct iovec *v)
{
	const char *p = v->iov_base;
	unsigned i;

	for (i = 0; ur->ur_has_bufs && i < ur->ur_nbufs; i++) {
		const char *b = ur->ur_buf[i].iov_base;

		if (p >= b && p + v->iov_len <= b + ur->ur_buf[i].iov_len)
			return (int)i;
	}
	return -1;
}

/* After every call that hands over: when nothing is left queued, the files are not needed. */
static void uring_pushed(struct mpool_ioq *q)
{
	if (q->q_back->kicked && !io_uring_sq_ready(&q->q_uring->ur_ring))
		q->q_back->kicked(q);
}

/* the part by plain calls; its request is finished with its last part */
static void part_plain(struct mpool_ioq *q, struct mpl_part *pt)
{
	struct mpl_req *rq = pt->pt_req;

	mpl_ioq_sync_ops.start(q, pt);
	if (!rq->rq_parts)
		mpl_req_finish(q, rq);
}

/* What the kernel has not taken of what was queued, in its order, by plain calls. */
static void uring_take_back(struct mpool_ioq *q)
{
	struct mpl_uring *ur = q->q_uring;
	struct io_uring_sq *sq = &ur->ur_ring.sq;
	unsigned at = sq->sqe_tail - io_uring_sq_ready(&ur->ur_ring);

	for (; at != sq->sqe_tail; at++) {
		uint64_t data = sq->sqes[at & sq->ring_mask].user_data;

		/* liburing's own, for a wait with an end on kernels before 5.11 */
		if (data == LIBURING_UDATA_TIMEOUT)
			continue;
		ur->ur_parts--;
		part_plain(q, (struct mpl_part *)(uintptr_t)data);
	}
}

static void uring_collect(struct mpool_ioq *q);

/* The ring takes no calls any more. What it has taken ends all the same, and is waited for. */
static void uring_break(struct mpool_ioq *q)
{
	struct mpl_uring *ur = q->q_uring;

	if (ur->ur_is_broken)
		return;
	ur->ur_is_broken = 1;
	uring_collect(q);
	while (ur->ur_parts > io_uring_sq_ready(&ur->ur_ring)) {
		/* any call lets the kernel make entries of what has ended */
		mpl_sleep_until(mpl_now_ns() + BROKEN_NAP_NS);
		uring_collect(q);
	}
	uring_take_back(q);
	if (q->q_back->kicked)
		q->q_back->kicked(q);
	uring_down(ur);
}

/* what a call on the ring returned; 1: it can be used on */
static int uring_is_well(struct mpool_ioq *q, int rc)
{
	if (rc < 0 && rc != -EAGAIN && rc != -EBUSY && rc != -EINTR && rc != -ETIME)
		uring_break(q);
	return q->q_uring->ur_is_up && !q->q_uring->ur_is_broken;
}

/*
 * Hands over what was queued. What the ring does not take now stays queued, with its files,
 * while there are ends to wait for; 1: the ring can be used on.
 */
static int uring_push(struct mpool_ioq *q)
{
	struct mpl_uring *ur = q->q_uring;
	int rc;

	if (!ur->ur_is_up || ur->ur_is_broken)
		return 0;
	rc = io_uring_submit(&ur->ur_ring);
	/* no memory for a single request: nothing will end and make room */
	if (rc == -EAGAIN && ur->ur_parts == io_uring_sq_ready(&ur->ur_ring))
		rc = -ENOMEM;
	if (!uring_is_well(q, rc))
		return 0;
	uring_pushed(q);
	return 1;
}

/* Waits until one part in flight, or more, has ended. */
static void uring_await(struct mpool_ioq *q)
{
	struct io_uring_cqe *cqe;

	if (uring_is_well(q, io_uring_wait_cqe(&q->q_uring->ur_ring, &cqe)))
		uring_collect(q);
}

/*
 * 1 when the ring has room for one more, for its entry and for its end: ends without room the
 * kernel hands out in a call only.
 */
static int uring_room(struct mpool_ioq *q)
{
	struct mpl_uring *ur = q->q_uring;

	while (ur->ur_is_up && !ur->ur_is_broken) {
		int is_full = ur->ur_parts >= ur->ur_ring.cq.ring_entries;

		if (!is_full && io_uring_sq_space_left(&ur->ur_ring))
			return 1;
		if (uring_push(q) && (is_full || !io_uring_sq_space_left(&ur->ur_ring)))
			uring_await(q);
	}
	return 0;
}

static void uring_prep_data(struct mpl_uring *ur, struct io_uring_sqe *sqe,
			    const struct mpl_part *pt)
{
	const struct iovec *v = pt->pt_iov;
	int buf = pt->pt_niov == 1 ? uring_buf_find(ur, v) : -1, fd = pt->pt_fd;
	int is_write = pt->pt_op == MPL_PART_WRITE;

	if (buf >= 0 && is_write)
		io_uring_prep_write_fixed(sqe, fd, v->iov_base, (unsigned)v->iov_len, pt->pt_pos,
					  buf);
	else if (buf >= 0)
		io_uring_prep_read_fixed(sqe, fd, v->iov_base, (unsigned)v->iov_len, pt->pt_pos,
					 buf);
	else if (is_write)
		io_uring_prep_writev(sqe, fd, v, pt->pt_niov, pt->pt_pos);
	else
		io_uring_prep_readv(sqe, fd, v, pt->pt_niov, pt->pt_pos);
}

/* the payload of a command is the address of its structure */
static void uring_prep_cmd(struct io_uring_sqe *sqe, const struct mpl_part *pt)
{
	uint64_t addr = (uintptr_t)pt->pt_arg;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = pt->pt_fd;
	sqe->cmd_op = pt->pt_cmd;
	memcpy(sqe->cmd, &addr, sizeof(addr));
}

static int uring_queue(struct mpool_ioq *q, struct mpl_part *pt)
{
	struct mpl_uring *ur = q->q_uring;
	struct io_uring_sqe *sqe;
	int rc;

	/* room first: between ready() and the entry nothing may be handed over */
	if (!uring_room(q))
		return mpl_ioq_sync_ops.start(q, pt);
	pt->pt_is_slot = ur->ur_has_files;
	rc = q->q_back->ready(q, pt);
	if (rc)
		return rc;
	/* ready() hands over for want of descriptors */
	if (!ur->ur_is_up || ur->ur_is_broken)
		return mpl_ioq_sync_ops.start(q, pt);
	sqe = io_uring_get_sqe(&ur->ur_ring);
	if (!sqe)
		return -EAGAIN;
	if (mpl_part_is_data(pt))
		uring_prep_data(ur, sqe, pt);
	else if (pt->pt_op == MPL_PART_CMD)
		uring_prep_cmd(sqe, pt);
	else if (!BARRIER((io_uring_prep_fsync(sqe, pt->pt_fd, IORING_FSYNC_DATASYNC), 1)))
		io_uring_prep_nop(sqe);
	if (pt->pt_is_slot)
		sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data(sqe, pt);
	ur->ur_parts++;
	return 0;
}

/* without a ring the queue continues with plain calls, for good */
static int uring_start(struct mpool_ioq *q, struct mpl_part *pt)
{
	struct mpl_uring *ur = q->q_uring;

	if (ur->ur_is_up && ur->ur_owner != thread_no() && ur->ur_parts)
		return -EINVAL;
	if (!ur->ur_is_up && !ur->ur_is_broken && uring_up(q))
		ur->ur_is_broken = 1;
	ur->ur_owner = thread_no();
	return uring_queue(q, pt);
}

static void uring_started(struct mpool_ioq *q, struct mpl_req *rq)
{
	if (!rq->rq_parts)
		mpl_req_finish(q, rq);
}

static void uring_kick(struct mpool_ioq *q)
{
	uring_push(q);
}

/* the rest of a part after a short transfer of @n bytes; 0 or -ENOMEM */
static int part_advance(struct mpl_part *pt, uint64_t n)
{
	struct iovec *v = malloc(pt->pt_niov * sizeof(*v));

	if (!v)
		return -ENOMEM;
	pt->pt_pos += n;
	pt->pt_left -= n;
	pt->pt_niov = mpl_iov_slice(pt->pt_iov, pt->pt_niov, n, pt->pt_left, v);
	free(pt->pt_own);
	pt->pt_own = v;
	pt->pt_iov = v;
	return 0;
}

static void uring_complete(struct mpool_ioq *q, struct mpl_part *pt, int res)
{
	struct mpl_req *rq = pt->pt_req;
	int is_data = mpl_part_is_data(pt), err;
	int is_short = is_data && res > 0 && (uint64_t)res < pt->pt_left;

	err = res < 0 ? res : res == 0 && is_data ? -EIO : 0;
	q->q_uring->ur_parts--;
	if (err == -EAGAIN || err == -EINTR || is_short) {
		err = is_short ? part_advance(pt, (uint64_t)res) : 0;
		if (!err)
			err = uring_queue(q, pt);
		if (!err && rq->rq_parts) {
			uring_push(q);
			return;
		}
		/* without a ring it is done */
		if (!err) {
			mpl_req_finish(q, rq);
			return;
		}
	}
	mpl_part_done(q, pt, err);
	if (!rq->rq_parts)
		mpl_req_finish(q, rq);
}

static void uring_collect(struct mpool_ioq *q)
{
	struct mpl_uring *ur = q->q_uring;
	struct io_uring_cqe *cqe;

	while (ur->ur_parts && !io_uring_peek_cqe(&ur->ur_ring, &cqe)) {
		struct mpl_part *pt = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&ur->ur_ring, cqe);
		uring_complete(q, pt, res);
	}
}

static int uring_wait(struct mpool_ioq *q, unsigned want, uint64_t end_ns)
{
	struct mpl_uring *ur = q->q_uring;
	struct __kernel_timespec ts;
	struct io_uring_cqe *cqe;
	uint64_t now;

	if (end_ns == UINT64_MAX)
		return io_uring_submit_and_wait(&ur->ur_ring, want);
	now = mpl_now_ns();
	if (now >= end_ns)
		return 0;
	ts.tv_sec = (long long)((end_ns - now) / 1000000000u);
	ts.tv_nsec = (long long)((end_ns - now) % 1000000000u);
	return io_uring_submit_and_wait_timeout(&ur->ur_ring, &cqe, want, &ts, NULL);
}

static int uring_poll(struct mpool_ioq *q, unsigned want, uint64_t end_ns)
{
	struct mpl_uring *ur = q->q_uring;

	if (ur->ur_event_fd >= 0) {
		uint64_t v;
		ssize_t r = read(ur->ur_event_fd, &v, sizeof(v));

		(void)r; /* only to make it unreadable */
	}
	if (!ur->ur_parts)
		return 0;
	if (ur->ur_owner != thread_no())
		return -EINVAL;
	if (want > ur->ur_parts)
		want = ur->ur_parts;
	/* what the ring did not take at the time: no other call will hand it over */
	if (io_uring_sq_ready(&ur->ur_ring) && !uring_push(q))
		return 0;
	/*
	 * What the kernel has ended becomes an entry only in a call. The signal of it is read
	 * by now: it must be collected, though there be entries enough without it.
	 */
	if ((ur->ur_event_fd >= 0 || (!want && !io_uring_cq_ready(&ur->ur_ring))) &&
	    !uring_is_well(q, io_uring_get_events(&ur->ur_ring)))
		return 0;
	if (want) {
		if (!uring_is_well(q, uring_wait(q, want, end_ns)))
			return 0;
		uring_pushed(q);
	}
	uring_collect(q);
	return 0;
}

static int uring_event_fd(struct mpool_ioq *q)
{
	struct mpl_uring *ur = q->q_uring;

	if (ur->ur_event_fd < 0) {
		ur->ur_event_fd = mpool_fd_up(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
		if (ur->ur_event_fd < 0)
			return -errno;
		/* a waiter for it would sleep for ever */
		if (ur->ur_is_up && io_uring_register_eventfd(&ur->ur_ring, ur->ur_event_fd))
			uring_break(q);
	}
	return ur->ur_event_fd;
}

/* The kernel signals its completions; ours that wait here are signalled by us. */
static void uring_event(struct mpool_ioq *q)
{
	struct mpl_uring *ur = q->q_uring;
	uint64_t one = 1;

	if (ur->ur_event_fd >= 0 &&
	    (q->q_done_n || (ur->ur_is_up && io_uring_cq_ready(&ur->ur_ring)))) {
		ssize_t r = write(ur->ur_event_fd, &one, sizeof(one));

		(void)r; /* full means readable already */
	}
}

static int uring_reg(struct mpool_ioq *q, const struct iovec *iov, unsigned n)
{
	struct mpl_uring *ur = q->q_uring;
	struct iovec *copy = NULL;

	if (n > URING_BUFS_MAX)
		n = 0; /* a hint: too many to look them up quickly */
	if (n) {
		copy = malloc(n * sizeof(*copy));
		if (!copy)
			return -ENOMEM;
		memcpy(copy, iov, n * sizeof(*copy));
	}
	if (ur->ur_is_up && ur->ur_has_bufs)
		io_uring_unregister_buffers(&ur->ur_ring);
	free(ur->ur_buf);
	ur->ur_buf = copy;
	ur->ur_nbufs = n;
	ur->ur_has_bufs = ur->ur_is_up && n &&
			  !io_uring_register_buffers(&ur->ur_ring, ur->ur_buf, n);
	return 0;
}

static void uring_fini(struct mpool_ioq *q)
{
	struct mpl_uring *ur = q->q_uring;

	uring_down(ur);
	if (ur->ur_event_fd >= 0)
		close(ur->ur_event_fd);
	free(ur->ur_buf);
	free(ur);
}

const struct mpl_transport mpl_ioq_uring_ops = {
	.start = uring_start,
	.started = uring_started,
	.kick = uring_kick,
	.poll = uring_poll,
	.event_fd = uring_event_fd,
	.event = uring_event,
	.reg = uring_reg,
	.fini = uring_fini,
};

int mpl_uring_init(struct mpool_ioq *q)
{
	q->q_uring = calloc(1, sizeof(*q->q_uring));
	if (!q->q_uring)
		return -ENOMEM;
	q->q_uring->ur_event_fd = -1;
	q->q_ops = &mpl_ioq_uring_ops;
	return 0;
}
