/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * libkvdb: transactions. Part of <kvdb/kvdb.h>, which is what programs
 * include; the conventions there hold here.
 */
#ifndef KVDB_TXN_H
#define KVDB_TXN_H

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
struct kvdb_cursor;
struct kvdb_cursor_opts;
struct kvdb_probe;
struct kvdb_txn;

/*
 * Snapshot isolation over any stores of a database. A transaction sees what was
 * committed when it began, and its own writes. Its writes are invisible to others
 * until it commits; then all of them become visible at once, and a crash keeps all or
 * none. Of two transactions that overlap and write one key the first to write
 * wins: the other gets -ECANCELED from its write and can only be aborted.
 *
 * Plain and transactional operations mix: kvdb_put() and kvdb_del() are
 * transactions of one write that see the newest state. A transaction that wants
 * to write a key which was written plainly since it began gets -ECANCELED; a
 * plain write of a key that an open transaction has written waits for its end,
 * at most a second (not at all with KVDB_MANUAL), then returns -ECANCELED. One that cannot commit
 * any more, because it is too old or a write of it failed, is no such transaction: its keys and
 * stores are free, whether or not it was aborted. In a completion queue
 * it does so beside the queue's other operations, but for the syncs behind it.
 * kvdb_get() and kvdb_cursor_open() see what is committed. No view changes
 * under its reader, whatever is written.
 *
 * One thread at a time uses a transaction. A database has any number of them;
 * all must have ended before kvdb_close().
 */

#define KVDB_TXN_RDONLY 0x1u /* begin: a snapshot; costs others nothing but memory */
#define KVDB_TXN_DURABLE 0x2u /* commit: durable on return */

/**
 * kvdb_txn_begin() - begin a transaction on the database's present state
 * @db: database
 * @flags: 0 or KVDB_TXN_RDONLY
 * @out: the transaction; ended by kvdb_txn_commit() or kvdb_txn_abort(). NULL on error
 * Threads: any. Blocking: never. Durability: none. Errors: -EINVAL (flags), -ENOMEM.
 */
int kvdb_txn_begin(struct kvdb *db, unsigned flags, struct kvdb_txn **out);
/**
 * kvdb_txn_put() - write a pair in a transaction
 * @txn: transaction
 * @kvs: store, and the rest as kvdb_put()
 * @key: 1 .. KVDB_KEY_MAX bytes
 * @klen: its length
 * @val: 0 .. KVDB_VALUE_MAX bytes
 * @vlen: its length
 *
 * Keys and values up to 128 bytes stay in memory until the commit, with some 200 bytes for each
 * write; larger values are logged at once. All open transactions together may take an eighth
 * of cache_bytes (768 MiB at most), and no more than a quarter of log_bytes (4 MiB at least; 256 KiB are left to
 * each): 600,000 writes with the largest defaults, 40,000 with a cache of 64 MiB. In a store with a time to live, as it is at the first
 * write to it, the pair expires as if it were put at the commit.
 * Threads: owner. Blocking: as kvdb_put(), and I/O to look for conflicts. Durability: none
 * before the commit.
 * Errors: -ECANCELED (conflict; only abort is left), -ESTALE (as kvdb_txn_get()),
 * -EFBIG (the transaction is too large: with MP0925 it, or others beside it, take all of that
 * memory, and it goes on without this write; with MP0924 its values hold more than half of
 * the media class of the logs, and only abort is left), -EROFS (begun for reading, or
 * fail-stopped), and as kvdb_put(). Nothing is changed on error.
 */
int kvdb_txn_put(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *key, size_t klen,
		 const void *val, size_t vlen);
/** kvdb_txn_del() - delete a key in a transaction, present or not; as kvdb_txn_put(). Threads: owner. Blocking: I/O to look for conflicts. Durability: none before the commit. Errors: as kvdb_txn_put(). */
int kvdb_txn_del(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *key, size_t klen);
/* Ranges that one transaction may delete. Of those that meet or touch each other one counts. */
#define KVDB_TXN_RANGES_MAX 1024u

/**
 * kvdb_txn_prefix_del() - delete all keys that begin with a prefix, in a transaction
 * @txn: transaction
 * @kvs: store
 * @prefix: 1 .. KVDB_KEY_MAX bytes
 * @plen: its length
 *
 * What the transaction itself wrote there before is deleted, too; what it writes there later
 * stays. The whole prefix is written: a call that writes a key of it, or deletes a range that meets it,
 * meets it as a key that the transaction wrote, whether there are such keys or not. Takes 48 bytes
 * of the commit record and the keys of the range. What was written since the transaction began is
 * looked for, key by key, in memory and in what was flushed since.
 * Threads: owner. Blocking: until plain writes that are being made have ended, and I/O to look
 * for conflicts. Durability: none before the commit.
 * Errors: as kvdb_txn_del(); -EFBIG (MP0932: KVDB_TXN_RANGES_MAX, or their keys take more than 2
 * MiB; the transaction goes on). After -EIO and -ENOMEM from a delete that meets or
 * touches an earlier one only abort is left; else nothing is changed on error.
 */
int kvdb_txn_prefix_del(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *prefix,
			size_t plen);
/**
 * kvdb_txn_range_del() - delete all keys from one up to another, in a transaction
 * @txn: transaction
 * @kvs: store, and the rest as kvdb_range_del()
 * @from: the smallest key that is deleted; NULL/0 = from the smallest of all
 * @flen: its length
 * @to: the smallest key that is not; NULL/0 = up to the greatest of all
 * @tlen: its length
 *
 * A range in which no key can lie (@to <= @from) is none. As kvdb_txn_prefix_del().
 * Threads: owner. Blocking: as kvdb_txn_prefix_del(). Durability: none before the commit.
 * Errors: as kvdb_txn_prefix_del().
 */
int kvdb_txn_range_del(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *from, size_t flen,
		       const void *to, size_t tlen);
/**
 * kvdb_txn_get() - copy a value out, of the transaction's own writes or of its snapshot
 * @txn: transaction
 * @kvs: store, and the rest as kvdb_get()
 * @key: 1 .. KVDB_KEY_MAX bytes
 * @klen: its length
 * @buf: buffer; may be NULL when @size is 0
 * @size: its size
 * @vlen: set to the value's full length; @buf holds the first @size bytes of it; may be NULL
 * Threads: owner. Blocking: I/O when not in memory. Durability: none.
 * Errors: -ESTALE (older than kvdb_opts.view_max_age_ms, or given up because its
 * snapshot held too much memory: kvdb_error_detail() says which), and as kvdb_get().
 */
int kvdb_txn_get(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *key, size_t klen,
		 void *buf, size_t size, size_t *vlen);
/**
 * kvdb_txn_prefix_probe() - does no key begin with a prefix, or one, or do several?
 * @txn: transaction
 * @kvs: store, and the rest as kvdb_prefix_probe()
 * @prefix: bytes; NULL/0: every key begins so
 * @plen: its length
 * @probe: room, and results
 *
 * In the transaction's snapshot and its own writes. It claims nothing: two transactions that find
 * none may both insert, unless they write one key.
 * Threads: owner. Blocking: I/O when not in memory. Durability: none.
 * Errors: -ESTALE as kvdb_txn_get(), and as kvdb_prefix_probe().
 */
int kvdb_txn_prefix_probe(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *prefix,
			  size_t plen, struct kvdb_probe *probe);
/**
 * kvdb_txn_cursor_open() - a cursor on the transaction's snapshot and its own writes
 * @txn: transaction
 * @kvs: store, and the rest as kvdb_cursor_open()
 * @flags: as kvdb_cursor_open()
 * @prefix: only keys that begin with it; NULL/0 = all
 * @plen: its length
 * @out: the cursor
 *
 * Each step shows the writes made before it. It may outlive the transaction and then shows
 * what it showed; if that wrote to the store and was not committed, -ESTALE (MP0929).
 * Threads: owner. Blocking: never. Durability: none.
 * Errors: -ESTALE (also from seek and next), and as kvdb_cursor_open().
 */
int kvdb_txn_cursor_open(struct kvdb_txn *txn, struct kvdb_kvs *kvs, unsigned flags,
			 const void *prefix, size_t plen, struct kvdb_cursor **out);
/** kvdb_txn_cursor_open_opts() - the same with bounds; as kvdb_txn_cursor_open() and kvdb_cursor_open_opts(). Threads: owner. Blocking: never. Durability: none. Errors: as both. */
int kvdb_txn_cursor_open_opts(struct kvdb_txn *txn, struct kvdb_kvs *kvs,
			      const struct kvdb_cursor_opts *opts, struct kvdb_cursor **out);
/**
 * kvdb_txn_commit() - make the writes visible, all at once, and end the transaction
 * @txn: transaction; gone whatever is returned
 * @flags: 0 or KVDB_TXN_DURABLE
 * @ticket: set to what kvdb_wait_durable() takes; may be NULL
 * Others go on meanwhile, however many writes there are: 500,000 take about half a second. Of those
 * with more than 1,024 one at a time is committed.
 * Threads: owner. Blocking: as kvdb_put(); I/O with KVDB_TXN_DURABLE.
 * Durability: as kvdb_put(), the whole transaction or nothing of it. One that wrote
 * nothing waits for nothing; its ticket stands for what was acknowledged before.
 * Errors: -EINVAL (flags), -ECANCELED or -EFBIG (an earlier write failed so), -ESTALE, -ENOSPC,
 * -EROFS, -ENOMEM: nothing was written; -EIO: committed and visible, but not durable.
 */
int kvdb_txn_commit(struct kvdb_txn *txn, unsigned flags, uint64_t *ticket);
/* What may become of an open transaction. */
enum kvdb_txn_state {
	KVDB_TXN_ACTIVE = 0,  /* it may go on, and commit */
	KVDB_TXN_CONFLICT,    /* -ECANCELED: another was first with a key that it wrote */
	KVDB_TXN_EXPIRED,     /* -ESTALE: older than kvdb_opts.view_max_age_ms */
	KVDB_TXN_GAVE_MEMORY, /* -ESTALE: its snapshot held too much memory and was given up */
	KVDB_TXN_LOG_FULL,    /* -EFBIG: its values hold more than half of a media class */
	KVDB_TXN_FAILED,      /* -EIO, -ENOMEM: a delete of a range failed */
};

/** struct kvdb_txn_info - what an open transaction is */
struct kvdb_txn_info {
	uint32_t state;	     /* enum kvdb_txn_state; all but the first are for good */
	int32_t error;	     /* of its next write and its commit; 0: none that is known yet */
	uint32_t is_rdonly;
	uint32_t ranges;     /* that it deletes, of at most KVDB_TXN_RANGES_MAX */
	uint64_t age_ms;     /* since it began; for ages of all see kvdb_stats.txn_oldest_ns */
	uint64_t ticket;     /* for all that its snapshot shows: kvdb_wait_durable() takes it */
	uint64_t writes;     /* keys that it has written */
	uint64_t record_bytes; /* that its commit would log now, beside larger values */
};
/**
 * kvdb_txn_info() - state and age of an open transaction
 * @txn: transaction, or snapshot
 * @out: what it is now. It may expire, or its snapshot be given up, at any time after that
 * One that has ended has no handle: what ended it has told its outcome.
 * Threads: owner. Blocking: never. Durability: none. Errors: none.
 */
int kvdb_txn_info(struct kvdb_txn *txn, struct kvdb_txn_info *out);
/** kvdb_txn_abort() - forget the writes and end the transaction; NULL is ignored. Threads: owner. Blocking: never. Durability: none. Errors: none. */
void kvdb_txn_abort(struct kvdb_txn *txn);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif
#endif
