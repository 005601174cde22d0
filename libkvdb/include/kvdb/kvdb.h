/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * libkvdb: a key-value database (KVDB) of named key-value stores (KVS) in an
 * mpool.
 *
 * Conventions, true for every function unless its comment says otherwise:
 *  - it returns 0 or a negative errno and leaves out-parameters untouched on
 *    failure; kvdb_error_detail() tells the calling thread the rest;
 *  - any thread may call it at any time on a live handle; a cursor belongs to
 *    one thread at a time;
 *  - lengths are bytes; times are nanoseconds unless the name ends in another
 *    unit;
 *  - it never prints, never exits, and installs no signal handler;
 *  - after fork() only the parent may use its handles; a child that goes on
 *    should call exec(), which closes what it inherited.
 */
#ifndef KVDB_KVDB_H
#define KVDB_KVDB_H

#include <stddef.h>
#include <stdint.h>

#include <mpool/mpool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* the libraries are built with hidden symbols; what is declared here is exported */
#pragma GCC visibility push(default)

#define KVDB_KEY_MAX   1344u          /* bytes; the shortest key is 1 */
#define KVDB_VALUE_MAX (1024u * 1024) /* bytes; empty values are legal */
#define KVDB_KVS_MAX   256u           /* stores in one database */
#define KVDB_NAME_MAX  31u            /* bytes of a store's name */

struct kvdb;        /* an open database */
struct kvdb_kvs;    /* an open store; freed with its database */
struct kvdb_cursor; /* an ordered walk on a stable snapshot */

/** kvdb_error_detail() - details of this thread's last failed call; as mpool_error_detail(). Threads: any. Blocking: never. Durability: none. Errors: none. */
const struct mpool_error *kvdb_error_detail(void);
/**
 * kvdb_error_explain() - look up a stable error identifier, of this library or of libmpool
 * @id: "MPnnnn"
 * @name: set to the symbolic name; may be NULL
 * @text: set to the meaning; may be NULL
 * @cure: set to the cure; may be NULL
 *
 * Threads: any. Blocking: never. Durability: none. Errors: -ENOENT.
 */
int kvdb_error_explain(const char *id, const char **name, const char **text, const char **cure);
/** kvdb_version() - library version. Threads: any. Blocking: never. Durability: none. Errors: none. */
const char *kvdb_version(void);

/*
 * open for reading only: recovers in memory, writes nothing. Several processes
 * may have a database on files open this way, as long as none has it for writing
 */
#define KVDB_RDONLY 0x1u
/* no threads: kvdb_poll() and blocked callers do the background work (tests, simulation) */
#define KVDB_MANUAL 0x2u

/** struct kvdb_clock - injected monotonic clock (tests, simulation) */
struct kvdb_clock {
	uint64_t (*now_ns)(void *arg);
	void (*sleep_until_ns)(void *arg, uint64_t t_ns);
	void *arg;
};

#define KVDB_INTERVAL_NONE 0xffffffffu /* no bound: durable at sync, close and flush only */

/**
 * struct kvdb_opts - options of kvdb_create() and kvdb_open(); 0 = default
 * @size: sizeof(struct kvdb_opts)
 * @flags: KVDB_*
 * @interval_ms: loss bound: what a power cut may lose spans at most so many
 *   milliseconds of acknowledgements; default 100, >= 1, or KVDB_INTERVAL_NONE
 * @commit: 1: every write is durable when it returns
 * @cache_bytes: memory budget for everything the database holds; default
 *   min(25 % of RAM or cgroup limit, 4 GiB), at least 64 MiB
 * @log_bytes: log written since the oldest unflushed record, at most; default
 *   min(512 MiB, 1/8 of the class, a share of cache_bytes)
 * @logs: number of logs, default one per core, at most 64
 * @segment_bytes: log segment size, a multiple of 64 KiB from 64 KiB to 32 MiB;
 *   default: the class that holds the logs / (128 x @logs), not above 1/64 of
 *   cache_bytes, rounded down to a power of two, 256 KiB to 32 MiB (create and
 *   open; what create was given is the default of open)
 * @threads: background workers, at most 64; default half the cores, 2 to 16
 * @clock: NULL = CLOCK_MONOTONIC
 * @pool: options for mpool_open(), or NULL
 */
struct kvdb_opts {
	size_t size;
	uint32_t flags;
	uint32_t interval_ms;
	uint32_t commit;
	uint32_t logs;
	uint32_t threads;
	uint32_t pad;
	uint64_t cache_bytes;
	uint64_t log_bytes;
	uint64_t segment_bytes;
	const struct kvdb_clock *clock;
	const struct mpool_open_opts *pool;
};
#define KVDB_OPTS_INIT { .size = sizeof(struct kvdb_opts) }

/**
 * kvdb_create() - make an empty database in an existing pool
 * @pool: path or name of the pool
 * @opts: options, or NULL
 * Threads: any. Blocking: I/O. Durability: durable on return; a crash leaves a
 * database or none.
 * Errors: -EEXIST (one per pool), -ENOENT (no pool), -EBUSY, and as mpool_open().
 */
int kvdb_create(const char *pool, const struct kvdb_opts *opts);

/**
 * kvdb_open() - open a database, recovering if it was not closed
 * @pool: path or name of the pool
 * @opts: options, or NULL
 * @out: the database
 * Threads: any. Blocking: I/O; time follows @log_bytes, not the size of the data.
 * Durability: what recovery found is durable on return.
 * Errors: -ENOENT (no pool, no database), -EBUSY (open elsewhere), -EUCLEAN
 * (damage; lost acknowledged writes), -EOPNOTSUPP (format), -ENOSPC, -EIO, -ENOMEM.
 */
int kvdb_open(const char *pool, const struct kvdb_opts *opts, struct kvdb **out);

/**
 * kvdb_close() - make everything durable and close
 * All cursors must be closed. The handle is gone whatever is returned.
 * Threads: no other use may be in progress. Blocking: I/O.
 * Durability: as kvdb_sync(). Errors: -EIO, -EROFS (something was not durable).
 */
int kvdb_close(struct kvdb *db);

/** kvdb_drop() - remove a closed database and its objects from its pool; Threads: any. Blocking: I/O. Durability: durable on return; a crash leaves it whole or none. Errors: as kvdb_open(). */
int kvdb_drop(const char *pool, const struct kvdb_opts *opts);

/* ---- stores ------------------------------------------------------------ */

/**
 * kvdb_kvs_create() - make a store
 * @name: 1 .. KVDB_NAME_MAX of [A-Za-z0-9._-], not starting with '.' or '-'
 * Threads: any. Blocking: I/O. Durability: durable on return.
 * Errors: -EEXIST, -EINVAL (name), -ENOSPC (KVDB_KVS_MAX), -EROFS, -EIO.
 */
int kvdb_kvs_create(struct kvdb *db, const char *name);
/** kvdb_kvs_open() - open a store; the same handle for every opener. Threads: any. Blocking: never. Durability: none. Errors: -ENOENT. */
int kvdb_kvs_open(struct kvdb *db, const char *name, struct kvdb_kvs **out);
/** kvdb_kvs_drop() - remove a store and its data. Threads: any; no use of the store may be in progress. Blocking: I/O. Durability: durable on return. Errors: -ENOENT, -EBUSY (cursor open), -EROFS, -EIO. */
int kvdb_kvs_drop(struct kvdb *db, const char *name);
/** kvdb_kvs_list() - names of all stores; returns the number that exist, fills at most @max. Threads: any. Blocking: never. Durability: none. Errors: none. */
int kvdb_kvs_list(struct kvdb *db, char (*names)[KVDB_NAME_MAX + 1], unsigned max);

/* ---- data -------------------------------------------------------------- */

/**
 * kvdb_put() - store a value under a key
 * @kvs: store
 * @key: 1 .. KVDB_KEY_MAX bytes
 * @klen: its length
 * @val: 0 .. KVDB_VALUE_MAX bytes
 * @vlen: its length
 *
 * Atomic: readers and a crash see the old or the new value.
 * Threads: any. Blocking: only when memory, space debt or the loss bound asks.
 * Durability: within the loss bound; at once with kvdb_opts.commit.
 * Errors: -EINVAL (empty key), -ENAMETOOLONG (key), -E2BIG (value), -ENOSPC,
 * -EROFS (fail-stopped), -EIO (commit mode). Nothing is changed on error.
 */
int kvdb_put(struct kvdb_kvs *kvs, const void *key, size_t klen, const void *val, size_t vlen);

/**
 * kvdb_get() - copy a value out
 * @buf: buffer; may be NULL when @size is 0
 * @size: its size
 * @vlen: set to the value's full length; @buf holds the first @size bytes of it
 * Threads: any. Blocking: I/O when not in memory. Durability: none.
 * Errors: -ENOENT, -EINVAL, -ENAMETOOLONG, -EUCLEAN (checksum), -EIO, -ENOMEM.
 */
int kvdb_get(struct kvdb_kvs *kvs, const void *key, size_t klen, void *buf, size_t size,
	     size_t *vlen);

/** kvdb_del() - delete a key, present or not; as kvdb_put(). Threads: any. Blocking: as kvdb_put(). Durability: as kvdb_put(). Errors: as kvdb_put(); on a full pool it may use the reserve. */
int kvdb_del(struct kvdb_kvs *kvs, const void *key, size_t klen);

/**
 * kvdb_sync() - make everything acknowledged so far durable
 * Threads: any; concurrent callers share one flush. Blocking: I/O.
 * Durability: everything acknowledged before the call. Errors: -EIO, -EROFS:
 * never 0 after a failed flush.
 */
int kvdb_sync(struct kvdb *db);

/* ---- cursors ----------------------------------------------------------- */

#define KVDB_REVERSE   0x1u
#define KVDB_KEYS_ONLY 0x2u

/**
 * kvdb_cursor_open() - a cursor on a snapshot of now
 * @kvs: store
 * @flags: KVDB_REVERSE: descending; KVDB_KEYS_ONLY: values are not read
 * @prefix: only keys that begin with it; NULL/0 = all
 * @plen: its length
 * Positioned before the first key in its direction.
 * Threads: one at a time. Blocking: never. Durability: none. Errors: -ENOMEM, -ENAMETOOLONG.
 */
int kvdb_cursor_open(struct kvdb_kvs *kvs, unsigned flags, const void *prefix, size_t plen,
		     struct kvdb_cursor **out);
/**
 * kvdb_cursor_seek() - position before the first key >= @key (reverse: <= @key)
 * Threads: owner. Blocking: I/O. Durability: none. Errors: -EIO, -EUCLEAN, -ENOMEM, -EINVAL.
 */
int kvdb_cursor_seek(struct kvdb_cursor *cur, const void *key, size_t klen);
/**
 * kvdb_cursor_next() - move on and return the pair; pointers live until the next call
 * Threads: owner. Blocking: I/O. Durability: none.
 * Errors: -ENOENT (no more), -EIO, -EUCLEAN, -ENOMEM.
 */
int kvdb_cursor_next(struct kvdb_cursor *cur, const void **key, size_t *klen, const void **val,
		     size_t *vlen);
/** kvdb_cursor_close() - close; NULL is ignored. Threads: owner. Blocking: never. Durability: none. Errors: none. */
void kvdb_cursor_close(struct kvdb_cursor *cur);

/* ---- maintenance -------------------------------------------------------- */

#define KVDB_WAIT_FLUSH   0x1u /* freeze and flush every memtable */
#define KVDB_WAIT_COMPACT 0x2u /* until no background work is due */
/**
 * kvdb_drain() - do the deferred work now
 * Threads: any. Blocking: I/O. Durability: as kvdb_sync(). Errors: -EIO, -EROFS, -ENOSPC.
 */
int kvdb_drain(struct kvdb *db, unsigned flags);

/**
 * kvdb_poll() - with KVDB_MANUAL: do one due step of background work
 * Returns 1 when something was done, 0 when nothing was due.
 * Threads: any. Blocking: I/O. Durability: none promised. Errors: -EIO, -EROFS.
 */
int kvdb_poll(struct kvdb *db);

/** struct kvdb_recovery - what the last open found */
struct kvdb_recovery {
	uint32_t was_clean;
	uint32_t incarnation;
	uint64_t durable_epoch;
	uint64_t segments, frames, records; /* read from the logs */
	uint64_t bytes;
	uint64_t replayed;  /* records put into memtables */
	uint64_t discarded; /* valid records beyond the durable prefix */
	uint64_t elapsed_ns;
};

/** struct kvdb_io - bytes submitted to one class since open, by purpose */
struct kvdb_io {
	uint64_t log_bytes;    /* logs, value data included */
	uint64_t key_bytes;    /* runs: flush and compaction */
	uint64_t meta_bytes;   /* metadata container */
	uint64_t read_bytes;
};

/** struct kvdb_stats - counters since open unless said otherwise */
struct kvdb_stats {
	uint64_t puts, gets, dels, seeks, nexts, syncs;
	uint64_t user_write_bytes;  /* keys + values given to put and del */
	uint64_t keys_estimate;     /* now */
	uint64_t live_value_bytes;  /* now: value bytes that runs and memtables refer to */
	uint64_t dead_value_bytes;  /* now: in segments, no longer referred to */
	uint64_t segments;          /* now */
	uint64_t runs;              /* now */
	uint64_t memtable_bytes, window_bytes, page_bytes, index_bytes; /* now, of cache_bytes */
	uint64_t cache_bytes;
	uint64_t flushes, merges, segments_freed;
	uint64_t page_hits, page_misses, value_mem, value_dev;
	uint64_t epoch, durable_epoch;
	uint64_t durability_late;   /* epochs that were durable later than half the bound allows */
	uint64_t gate_waits, gate_wait_ns; /* acknowledgements held back by the loss bound */
	uint64_t stalls, stall_ns;  /* writers held back by memory or log space */
	uint64_t skipped_records;   /* turned to SKIP by the flusher */
	struct kvdb_io io[MPOOL_MCLASSES];
	struct kvdb_recovery recovery;
};
/** kvdb_stats() - read the counters. Threads: any. Blocking: never. Durability: none. Errors: none. */
int kvdb_stats(struct kvdb *db, struct kvdb_stats *out);

/** struct kvdb_info - what a database is */
struct kvdb_info {
	uint8_t uuid[16];
	uint32_t format_version;
	uint32_t kvs;
	uint32_t interval_ms;
	uint32_t commit;
	uint32_t logs;
	uint32_t is_rdonly;
	uint64_t cache_bytes, log_bytes, segment_bytes;
	char fault[256]; /* cause of a fail-stop, or "" */
	struct mpool_info pool;
};
/** kvdb_info() - describe an open database. Threads: any. Blocking: never. Durability: none. Errors: none. */
int kvdb_info(struct kvdb *db, struct kvdb_info *out);

/**
 * kvdb_verify() - check a closed database without writing to it
 * @pool: path
 * @opts: options, or NULL
 * @flags: MPOOL_VERIFY_DATA: read every value and check its CRC
 * @fn: called per finding; may be NULL
 * @arg: its argument
 * @damage: number of findings that are damage
 * Threads: any. Blocking: I/O. Durability: none; writes nothing.
 * Errors: as kvdb_open(), when it cannot be read at all.
 */
int kvdb_verify(const char *pool, const struct kvdb_opts *opts, unsigned flags,
		mpool_problem_fn *fn, void *arg, uint64_t *damage);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
