/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * libkvdb: completion queues. Part of <kvdb/kvdb.h>, which is what programs
 * include; the conventions there hold here.
 */
#ifndef KVDB_CQ_H
#define KVDB_CQ_H

#include <stddef.h>
#include <stdint.h>

#include <mpool/mpool.h>

#ifdef __cplusplus
/* a function may have the name of a struct, as stat() has */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#endif

#pragma GCC visibility push(default)

struct kvdb;
struct kvdb_kvs;
struct kvdb_cq;
struct kvdb_cursor_opts;
struct kvdb_get;
struct kvdb_txn;

/*
 * Operations that do not wait. What is in memory completes inside
 * kvdb_cq_submit(); reads of a device are started together, at the end of
 * kvdb_cq_submit() and in kvdb_cq_reap(), by the calling thread: a queue has no
 * thread of its own, so nothing proceeds without these calls. Every operation
 * that was accepted is returned by kvdb_cq_reap() once, with its own result.
 * Operations in flight are in no order, except that a KVDB_OP_SYNC covers the
 * writes that its queue accepted before it.
 */
enum kvdb_op_type {
	KVDB_OP_GET = 1,  /* as kvdb_get() */
	KVDB_OP_PUT = 2,  /* as kvdb_put() */
	KVDB_OP_DEL = 3,  /* as kvdb_del() */
	KVDB_OP_SYNC = 4, /* as kvdb_sync() */
	/*
	 * As kvdb_txn_commit(). One of more than 1,024 writes is an exception: the thread that
	 * submits or reaps links them, and may wait for memory or room as that call does.
	 */
	KVDB_OP_COMMIT = 5,
	KVDB_OP_SCAN = 6, /* as a cursor of kvdb_cursor_open_opts() from its first pair on */
	KVDB_OP_MGET = 7, /* as kvdb_get_multi() */
	KVDB_OP_RANGE_DEL = 8, /* as kvdb_range_del(); in a batch only: kvdb_write() */
	/*
	 * As kvdb_write(). One of more than 1,024 writes, or 1 MiB of values, may wait as COMMIT;
	 * so may one with a value of 64 KiB whose room another takes at the same moment.
	 */
	KVDB_OP_WRITE = 9,
};

#define KVDB_OP_DURABLE  0x1u /* PUT, DEL, COMMIT, WRITE: completes when it is durable */
#define KVDB_OP_SNAPSHOT 0x2u /* MGET: all keys as of one moment */

/**
 * struct kvdb_pair - one pair that a SCAN found; @key and @val lie in the buffer of the SCAN
 * @val: NULL with KVDB_KEYS_ONLY
 */
struct kvdb_pair {
	const void *key;
	const void *val;
	size_t klen;
	size_t vlen;
};

/**
 * struct kvdb_op - one operation
 * @type: enum kvdb_op_type
 * @flags: KVDB_OP_*
 * @cookie: returned in the completion
 * @kvs: store; SYNC, COMMIT, WRITE: NULL
 * @key: bytes, valid and unchanged until the completion was reaped
 * @txn: COMMIT: transaction, gone when it was accepted
 * @range: SCAN: what to walk, in which direction; NULL: all. It is copied
 * @get: MGET: @size keys with their buffers; all of it like @key, results are filled in
 * @ops: WRITE: @size operations of a batch; all of it like @key
 * @klen: number of bytes at @key
 * @buf: GET: where the value goes; SCAN: where the pairs go, aligned as they are
 * @val: PUT: the value; both like @key
 * @size: GET, SCAN: room at @buf; PUT: length of the value
 *
 * A SCAN fills @buf with an array of struct kvdb_pair, in the order of the walk,
 * and from its end with their keys and values. It and a MGET of one moment show
 * the moment at which they were accepted, and keep in use what a cursor does
 * until they complete.
 */
struct kvdb_op {
	uint32_t type;
	uint32_t flags;
	uint64_t cookie;
	struct kvdb_kvs *kvs;
	__extension__ union {
		const void *key;
		struct kvdb_txn *txn;
		const struct kvdb_cursor_opts *range;
		struct kvdb_get *get;
		const struct kvdb_op *ops;
	};
	size_t klen;
	__extension__ union {
		void *buf;
		const void *val;
	};
	size_t size;
};

/**
 * struct kvdb_cqe - a completion
 * @cookie: of its operation
 * @err: 0 or what the blocking call would have returned; SCAN: -ENOBUFS: the next pair has no
 *   room, go on behind the last one; 0: the range or the limit has ended
 * @type: of its operation
 * @vlen: GET: full length of the value; SCAN: pairs at the buffer, also when it failed behind them
 * @error: details of a failure, or NULL; good until the next call for the queue
 */
struct kvdb_cqe {
	uint64_t cookie;
	int err;
	uint32_t type;
	uint64_t vlen;
	const struct mpool_error *error;
};

#define KVDB_CQ_DEPTH   32u    /* device reads of a queue in flight, unless it says otherwise */
#define KVDB_CQ_OPS_MAX 65536u /* operations of a queue in flight */

/**
 * kvdb_cq_open() - make a completion queue
 * @db: database; the queue must be closed before it
 * @depth: device reads in flight at most, 1 to 1024; 0 = KVDB_CQ_DEPTH
 * @flags: 0
 * @out: the queue
 * Threads: any; the queue belongs to the thread that calls kvdb_cq_submit() first, and to another
 * only when it has nothing in flight. Blocking: never. Durability: none.
 * Errors: -EINVAL, -ENOMEM, -EMFILE, -ENFILE.
 */
int kvdb_cq_open(struct kvdb *db, unsigned depth, unsigned flags, struct kvdb_cq **out);
/**
 * kvdb_cq_submit() - start operations
 * @cq: queue
 * @ops: operations; copied, the array may be used again at once
 * @n: their number
 * Returns the number accepted: less than @n only at KVDB_CQ_OPS_MAX or without
 * memory. A bad operation is accepted and completes with its error. A PUT that
 * finds no room waits in the queue, one of a key that an open transaction wrote
 * waits for its end (see "transactions"), so does a batch with such a key, one that the loss bound holds back is
 * visible and completes later.
 * Threads: owner. Blocking: never for device reads, room in memory and log, or durability; a log
 * that goes on in a new segment may wait for metadata, and on a full pool for what makes room, as
 * kvdb_put(); without io_uring device reads happen here.
 * Durability: as the operation says. Errors: -EINVAL.
 */
int kvdb_cq_submit(struct kvdb_cq *cq, const struct kvdb_op *ops, unsigned n);
/**
 * kvdb_cq_reap() - take completions
 * @cq: queue
 * @out: array
 * @max: its size
 * @min: wait for so many, but not for more than are in flight
 * @timeout_ns: wait at most so long; -1 = for ever
 * Returns the number taken.
 * Threads: owner. Blocking: as asked. With KVDB_MANUAL waiting does the background work.
 * Durability: of what it returns. Errors: -EINVAL, -ENOMEM; those of operations are in
 * @out.
 */
int kvdb_cq_reap(struct kvdb_cq *cq, struct kvdb_cqe *out, unsigned max, unsigned min,
		 int64_t timeout_ns);
/**
 * kvdb_cq_fd() - a descriptor for poll() that is readable when kvdb_cq_reap() may have something
 * It may also be readable without cause. Owned by the queue; do not read or close it. What
 * completes may end an epoll_wait() of the owner with EINTR, as a signal does.
 * Threads: owner. Blocking: never. Durability: none. Errors: -EINVAL, -EMFILE, -ENFILE, -ENOMEM.
 */
int kvdb_cq_fd(struct kvdb_cq *cq);
/**
 * kvdb_cq_close() - end a queue; NULL is ignored
 * Waits for the device reads in flight and forgets all operations: those whose
 * completion was not reaped may have happened or not; buffers are not touched
 * any more, transactions that were to be committed have ended.
 * Threads: owner. Blocking: I/O. Durability: none. Errors: none.
 */
void kvdb_cq_close(struct kvdb_cq *cq);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif

#endif
