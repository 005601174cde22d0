/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Inside of an I/O queue: requests and the parts they consist of. Two choices
 * meet here and know nothing of each other: the transport (io_uring or plain
 * calls), which moves a part, and the pool's backend, which admits a request,
 * makes its parts and says which descriptor a part uses. Owned by one thread;
 * no locks.
 */
#ifndef MPL_IOQ_H
#define MPL_IOQ_H

#include "backend.h"

struct mpl_req;
struct mpl_dev;
struct mpl_kobj;

enum mpl_part_op {
	MPL_PART_READ = 1,
	MPL_PART_WRITE = 2,
	MPL_PART_FSYNC = 3,	/* no bytes */
	MPL_PART_CMD = 4,	/* pt_cmd with pt_arg; no bytes */
};

/* one call of the system: a contiguous transfer, a flush, or a command */
struct mpl_part {
	struct mpl_req *pt_req;
	enum mpl_part_op pt_op;
	int pt_fd;			/* set by ready(): a descriptor, or a registered slot */
	int pt_is_slot;
	uint64_t pt_pos;		/* bytes, in what pt_fd names */
	uint64_t pt_left;		/* bytes */
	const struct iovec *pt_iov;
	unsigned pt_niov;
	struct iovec *pt_own;		/* copy of the vector, or NULL: the caller's */
	struct mpl_dev *pt_dev;		/* embedded: the member */
	uint32_t pt_cmd;
	void *pt_arg;			/* freed with the part */
};

struct mpl_req {
	struct mpl_req *rq_next;	/* free list, or the waiting list of the plain transport */
	uint64_t rq_cookie;
	struct mpool_obj *rq_obj;	/* NULL: the pool's (MPOOL_BATCH) */
	uint64_t rq_off;
	uint64_t rq_bytes;
	uint64_t rq_ready_ns;
	uint32_t rq_type;		/* enum mpool_io_type */
	int rq_err;			/* the first error of a part */
	unsigned rq_parts;		/* parts in flight */
	struct mpl_part rq_first;	/* nearly all requests have one part */
};

struct mpl_transport {
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

struct mpl_ioq_back {
	/*
	 * The last check of a request with good arguments. 0: it will be started
	 * at once. -errno: refused, nothing happened.
	 */
	int (*admit)(struct mpool_ioq *q, const struct mpool_io *io, uint64_t bytes);
	/* would admit() sleep now, perhaps for long? NULL: never */
	int (*would_wait)(struct mpool_ioq *q);
	/* makes the parts and passes each to mpl_part_start() */
	void (*start)(struct mpool_ioq *q, struct mpl_req *rq, const struct mpool_io *io);
	/* io_uring is about to take the part: sets pt_fd and pt_is_slot. 0 or -errno */
	int (*ready)(struct mpool_ioq *q, struct mpl_part *pt);
	/* io_uring has taken all parts that were ready: their descriptors may go. May be NULL */
	void (*kicked)(struct mpool_ioq *q);
	/* the part as plain calls; 0 or -errno. *ready_ns as in mpool/provider.h */
	int (*transfer)(struct mpool_ioq *q, struct mpl_part *pt, uint64_t *ready_ns);
	/*
	 * accounting, and the detail when @err is the request's first; returns the error
	 * that the request gets
	 */
	int (*part_done)(struct mpool_ioq *q, struct mpl_part *pt, int err);
	/* all parts are done. May be NULL */
	void (*finish)(struct mpool_ioq *q, struct mpl_req *rq);
	/* descriptors to register with a ring, in slot order; at most @max. May be NULL */
	unsigned (*files)(struct mpool_ioq *q, int *fd, unsigned max);
};

struct mpl_uring;

struct mpool_ioq {
	struct mpool *q_pool;
	const struct mpl_transport *q_ops;
	const struct mpl_ioq_back *q_back;
	unsigned q_depth;
	unsigned q_inflight;		/* started and not yet reaped */
	struct mpl_req *q_reqs;
	struct mpl_req *q_free;
	struct mpool_cqe *q_done;	/* ring of q_depth completions not yet reaped */
	unsigned q_done_head, q_done_n;
	/* plain transport: completed, sorted by rq_ready_ns */
	struct mpl_req *q_wait;
	struct mpl_req *q_wait_tail;
	int q_timer_fd;			/* -1 until asked for */
	struct mpl_uring *q_uring;
	/* kernel backend: objects whose descriptors are held until the next kick */
	struct mpl_kobj **q_pin;
	unsigned q_npins;
};

extern const struct mpl_transport mpl_ioq_sync_ops;
extern const struct mpl_transport mpl_ioq_uring_ops;

/* a queue over @back, through io_uring or not; the backend's ioq_open() calls it */
int mpl_ioq_new(struct mpool *mp, unsigned depth, const struct mpl_ioq_back *back, int is_uring,
		struct mpool_ioq **out);
/* a part of @rq, zeroed, with its place and room for its completion; NULL: no memory */
struct mpl_part *mpl_part_new(struct mpl_req *rq, enum mpl_part_op op);
/* the bytes [@at, @at + @len) of the request's vector; 0 or -ENOMEM */
int mpl_part_iov(struct mpl_part *pt, const struct mpool_io *io, uint64_t at, uint64_t len);
/* frees a part that was not started */
void mpl_part_drop(struct mpl_part *pt);
void mpl_part_start(struct mpool_ioq *q, struct mpl_part *pt);
/* @err 0: the whole part was transferred */
void mpl_part_done(struct mpool_ioq *q, struct mpl_part *pt, int err);
/* the request is ready to be reaped */
void mpl_req_finish(struct mpool_ioq *q, struct mpl_req *rq);
int mpl_uring_init(struct mpool_ioq *q);
void mpl_sync_init(struct mpool_ioq *q);
/* 1 when this process may use io_uring */
int mpl_uring_works(void);

/* part [@skip, @skip + @len) of a vector into @out (64 entries); returns the count */
unsigned mpl_iov_slice(const struct iovec *iov, unsigned n, uint64_t skip, uint64_t len,
		       struct iovec *out);

static inline int mpl_part_is_data(const struct mpl_part *pt)
{
	return pt->pt_op <= MPL_PART_WRITE;
}

#endif
