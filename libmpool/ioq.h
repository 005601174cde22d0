/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Inside of an I/O queue: requests, the parts they are split into at extents,
 * and what a back end (io_uring or plain calls) must do. Owned by one thread;
 * no locks.
 */
#ifndef MPL_IOQ_H
#define MPL_IOQ_H

#include "user.h"

struct mpl_req;

/* one contiguous transfer on one device */
struct mpl_part {
	struct mpl_req *pt_req;
	struct mpl_dev *pt_dev;
	uint64_t pt_pos;		/* bytes on the device */
	uint64_t pt_left;		/* bytes */
	const struct iovec *pt_iov;
	unsigned pt_niov;
	struct iovec *pt_own;		/* copy of the vector, or NULL: the caller's */
};

struct mpl_req {
	struct mpl_req *rq_next;	/* free list, or the waiting list of the plain back end */
	uint64_t rq_cookie;
	struct mp_obj *rq_obj;
	uint64_t rq_off;
	uint64_t rq_bytes;
	uint64_t rq_ready_ns;
	int rq_is_write;
	int rq_err;			/* the first error of a part */
	unsigned rq_parts;		/* parts in flight */
	struct mpl_part rq_first;	/* nearly all requests have one part */
};

struct mpl_ioq_ops {
	/* start one part; its completion goes to mpl_part_done(); 0, or -errno: not started */
	int (*start)(struct mpool_ioq *q, struct mpl_part *pt);
	/* a request's parts are all started */
	void (*started)(struct mpool_ioq *q, struct mpl_req *rq);
	/* hand the started parts to the system */
	void (*kick)(struct mpool_ioq *q);
	/*
	 * Collect completions; wait for at least @want until @end_ns (0 = do not wait).
	 * -EINVAL: another thread's requests are in flight.
	 */
	int (*poll)(struct mpool_ioq *q, unsigned want, uint64_t end_ns);
	int (*event_fd)(struct mpool_ioq *q);
	/* a completion was queued or taken: keep the event fd right */
	void (*event)(struct mpool_ioq *q);
	int (*reg)(struct mpool_ioq *q, const struct iovec *iov, unsigned n);
	void (*fini)(struct mpool_ioq *q);
};

struct mpl_uring;

struct mpool_ioq {
	const struct mpl_ioq_ops *q_ops;
	struct mpl_user *q_user;
	unsigned q_depth;
	unsigned q_inflight;		/* started and not yet reaped */
	struct mpl_req *q_reqs;
	struct mpl_req *q_free;
	struct mpool_cqe *q_done;	/* ring of q_depth completions not yet reaped */
	unsigned q_done_head, q_done_n;
	/* plain back end: completed, sorted by rq_ready_ns */
	struct mpl_req *q_wait;
	struct mpl_req *q_wait_tail;
	int q_timer_fd;			/* -1 until asked for */
	struct mpl_uring *q_uring;
};

extern const struct mpl_ioq_ops mpl_ioq_sync_ops;
extern const struct mpl_ioq_ops mpl_ioq_uring_ops;

/* @err 0: the whole part was transferred */
void mpl_part_done(struct mpool_ioq *q, struct mpl_part *pt, int err);
/* the request is ready to be reaped */
void mpl_req_finish(struct mpool_ioq *q, struct mpl_req *rq);
int mpl_uring_init(struct mpool_ioq *q);
void mpl_sync_init(struct mpool_ioq *q);

#endif
