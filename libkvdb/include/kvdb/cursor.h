/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * libkvdb: cursors. Part of <kvdb/kvdb.h>, which is what programs
 * include; the conventions there hold here.
 */
#ifndef KVDB_CURSOR_H
#define KVDB_CURSOR_H

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

struct kvdb_kvs;
struct kvdb_cursor;

/*
 * A cursor walks the keys of a store in the order of their bytes, on a snapshot:
 * it shows what was there when it was opened, whatever is written, flushed or
 * compacted meanwhile. It has a place, which is before, on, or behind a key, and
 * a direction: ascending, or descending with KVDB_REVERSE. "Before" and "behind"
 * are meant in that direction. A new cursor stands before everything.
 *
 * kvdb_cursor_next() goes to the nearest pair behind the place, kvdb_cursor_prev()
 * to the nearest one before it; both leave the cursor on the pair that they
 * return, so they may be mixed: next, next, prev shows the first, the second, the
 * first again. At an end they return -ENOENT and the cursor stands outside; the
 * other call turns it around. A failed read of keys, and memory that ends, leave the
 * place, so that the call can be repeated; a value that cannot be read (-EUCLEAN, -EIO)
 * leaves the cursor on that pair.
 *
 * While a cursor is open the memory of its snapshot's memtables and the space
 * of what was compacted or deleted since stay in use: close it when done. A cursor
 * that keeps any of these may lose its snapshot between two calls, as transactions do:
 * when all such memory is more than a 9th of cache_bytes, or 683 MiB, the least recently used
 * first (MP0930); or when it was not used for kvdb_opts.view_max_age_ms (MP0931).
 * Then every call but kvdb_cursor_renew() and kvdb_cursor_close() returns -ESTALE: it
 * never shows another snapshot by itself, not after a seek either. What it returned last
 * stays good until the next call, and its place is kept: after a renewal it goes on behind
 * the pair shown last, with what is there now. So a walk that may last while much is
 * written is prepared for -ESTALE. A cursor that has lost its snapshot does not keep
 * its store from being dropped.
 */

#define KVDB_REVERSE   0x1u /* descending */
#define KVDB_KEYS_ONLY 0x2u /* values are not read and not returned */
#define KVDB_TO_INCLUSIVE 0x4u /* of a range: the key @to itself is shown too */

/**
 * struct kvdb_cursor_opts - which keys a cursor shows; begin with KVDB_CURSOR_OPTS_INIT
 * @size: sizeof(struct kvdb_cursor_opts)
 * @flags: KVDB_REVERSE, KVDB_KEYS_ONLY, KVDB_TO_INCLUSIVE
 * @pad: 0
 * @prefix: only keys that begin with it
 * @plen: its length; 0 = all
 * @from: only keys >= it, whatever the direction
 * @flen: its length; 0 = no bound
 * @to: only keys < it, with KVDB_TO_INCLUSIVE only keys <= it
 * @tlen: its length; 0 = no bound
 * @limit: pairs returned since the open or the last seek, at most; then -ENOENT.
 *   0 = no limit. It also keeps the cursor from reading ahead in vain
 * All bounds hold together; they are copied.
 */
struct kvdb_cursor_opts {
	size_t size;
	uint32_t flags;
	uint32_t pad;
	const void *prefix;
	size_t plen;
	const void *from;
	size_t flen;
	const void *to;
	size_t tlen;
	uint64_t limit;
};
#define KVDB_CURSOR_OPTS_INIT MPOOL_OPTS_OF(kvdb_cursor_opts)

/**
 * kvdb_cursor_open() - open a cursor on the store's present state
 * @kvs: store
 * @flags: KVDB_REVERSE, KVDB_KEYS_ONLY
 * @prefix: only keys that begin with it; NULL/0 = all
 * @plen: its length
 * Threads: one at a time. Blocking: never. Durability: none. Errors: -ENOMEM, -ENAMETOOLONG, -EINVAL.
 */
int kvdb_cursor_open(struct kvdb_kvs *kvs, unsigned flags, const void *prefix, size_t plen,
		     struct kvdb_cursor **out);
/**
 * kvdb_cursor_open_opts() - the same with bounds
 * @kvs: store
 * @opts: what it shows; NULL: everything, ascending
 * @out: the cursor
 * Cheap: nothing is read before the first seek or step.
 * Threads: one at a time. Blocking: never. Durability: none.
 * Errors: -EINVAL (size, flags, a length at NULL), -ENAMETOOLONG (a bound above KVDB_KEY_MAX),
 * -ENOMEM.
 */
int kvdb_cursor_open_opts(struct kvdb_kvs *kvs, const struct kvdb_cursor_opts *opts,
			  struct kvdb_cursor **out);
/**
 * kvdb_cursor_renew() - show what is there now, or other keys, without a new cursor
 * @cur: cursor
 * @opts: NULL: the same bounds and flags, and the same place: next goes on behind the pair shown
 *   last, there still or not, also when it had found no more. Else as if opened with these
 * A transaction's cursor keeps its snapshot. @limit counts anew. An error leaves it as it was.
 * One that has lost its snapshot gets another.
 * Threads: owner. Blocking: never. Durability: none. Errors: as kvdb_cursor_open_opts(),
 * kvdb_txn_cursor_open(); -ESTALE (MP0929): the transaction of the cursor has ended; -ENOENT:
 * the store was dropped when the snapshot had gone.
 */
int kvdb_cursor_renew(struct kvdb_cursor *cur, const struct kvdb_cursor_opts *opts);
/**
 * kvdb_cursor_seek() - stand before a key, present or not
 * @cur: cursor
 * @key: any string; NULL/0: before everything
 * @klen: its length, at most KVDB_KEY_MAX
 * next then shows the first key >= @key, prev the last key < @key; with
 * KVDB_REVERSE next shows the last key <= @key, prev the first key > @key.
 * Threads: owner. Blocking: I/O. Durability: none. Errors: -EIO, -EUCLEAN, -ENOMEM, -ENAMETOOLONG,
 * -EINVAL (a length at NULL), -ESTALE (the snapshot has gone: above).
 */
int kvdb_cursor_seek(struct kvdb_cursor *cur, const void *key, size_t klen);
/**
 * kvdb_cursor_seek_after() - stand behind a key, present or not
 * @cur: cursor
 * @key: any string; NULL/0: behind everything, so that prev shows the last pair
 * @klen: its length, at most KVDB_KEY_MAX
 * prev then shows the last key <= @key, next the first key > @key; with
 * KVDB_REVERSE prev shows the first key >= @key, next the last key < @key.
 * Threads: owner. Blocking: never; the next step reads. Durability: none.
 * Errors: -ENOMEM, -ENAMETOOLONG, -EINVAL (a length at NULL), -ESTALE (the snapshot has gone).
 */
int kvdb_cursor_seek_after(struct kvdb_cursor *cur, const void *key, size_t klen);
/**
 * kvdb_cursor_next() - go to the nearest pair behind the place and return it
 * @cur: cursor
 * @key: set to the key; this and the others may be NULL
 * @klen: set to its length
 * @val: set to the value; NULL with KVDB_KEYS_ONLY
 * @vlen: set to its length, with KVDB_KEYS_ONLY too
 * The pointers live until the next call on the cursor.
 * Threads: owner. Blocking: I/O. Durability: none.
 * Errors: -ENOENT (no more), -EIO, -EUCLEAN, -ENOMEM, -ESTALE (the snapshot has gone: above).
 */
int kvdb_cursor_next(struct kvdb_cursor *cur, const void **key, size_t *klen, const void **val,
		     size_t *vlen);
/**
 * kvdb_cursor_prev() - go to the nearest pair before the place and return it; as kvdb_cursor_next()
 * Threads: owner. Blocking: I/O. Durability: none.
 * Errors: -ENOENT (no more), -EIO, -EUCLEAN, -ENOMEM, -ESTALE (the snapshot has gone: above).
 */
int kvdb_cursor_prev(struct kvdb_cursor *cur, const void **key, size_t *klen, const void **val,
		     size_t *vlen);
/** kvdb_cursor_close() - close; NULL is ignored. Threads: owner. Blocking: never. Durability: none. Errors: none. */
void kvdb_cursor_close(struct kvdb_cursor *cur);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif
#endif
