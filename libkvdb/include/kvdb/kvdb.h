/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * libkvdb: a key-value database (KVDB) of named key-value stores (KVS) in an
 * mpool. It includes what there is about cursors, transactions, completion
 * queues and sub-stores (cursor.h, txn.h, cq.h, sub.h).
 *
 * Conventions, true for every function unless its comment says otherwise:
 *  - it returns 0 or a negative errno and leaves out-parameters untouched on
 *    failure; kvdb_error_detail() tells the calling thread the rest;
 *  - handles, functions to be called and out-parameters are not NULL unless its
 *    comment allows it;
 *  - any thread may call it at any time on a live handle; a cursor belongs to
 *    one thread at a time;
 *  - a change of what the database is (the database itself, stores, their options,
 *    checkpoints, bulk loads) that failed on its way to the media returns -EIO with
 *    MP0999: the database has stopped, and whether the change was made only the next
 *    open shows. With any other error, or another -EIO, it was not made;
 *  - a code means one thing, and libkvdb(3) lists them all; where a program may want to
 *    know more, each identifier "MPnnnn" of a detail is one reason;
 *  - it takes at most KVDB_STACK_BYTES of its thread's stack;
 *  - lengths are bytes; times are nanoseconds unless the name ends in another
 *    unit;
 *  - it never prints, never exits, and installs no signal handler; to the threads
 *    of the library no signal of the program comes;
 *  - a thread must neither be cancelled (pthread_cancel()) nor leave by longjmp()
 *    while it is in a call;
 *  - the shared library stays loaded after dlclose();
 *  - after fork() only the parent may use its handles. A child may have databases
 *    of its own; exec() closes what it inherited.
 */
#ifndef KVDB_KVDB_H
#define KVDB_KVDB_H

#include <stddef.h>
#include <stdint.h>

#include <mpool/mpool.h>

#include <kvdb/cq.h>
#include <kvdb/cursor.h>
#include <kvdb/sub.h>
#include <kvdb/txn.h>

#ifdef __cplusplus
/* a function may have the name of a struct, as stat() has */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#endif

/* the libraries are built with hidden symbols; what is declared here is exported */
#pragma GCC visibility push(default)

#define KVDB_KEY_MAX   1344u          /* bytes; the shortest key is 1 */
#define KVDB_VALUE_MAX (16u << 20)    /* bytes; empty values are legal */
#define KVDB_KVS_MAX   256u           /* stores in one database */
#define KVDB_NAME_MAX  31u            /* bytes of a store's name, or a checkpoint's */
#define KVDB_CHECKPOINT_MAX 64u       /* checkpoints of one database */
#define KVDB_STACK_BYTES 65536u       /* of stack that a call takes at most, from its caller on */

struct kvdb;        /* an open database */
struct kvdb_kvs;    /* an open store; freed with its database, also when it is dropped before */
struct kvdb_cursor; /* an ordered walk on a stable snapshot */
struct kvdb_cq;     /* a completion queue: operations of one thread that do not wait */
struct kvdb_txn;    /* an open transaction, or a snapshot */

/** kvdb_error_detail() - details of this thread's last failed call, of this library or of libmpool: the same as mpool_error_detail(). Calls of this library that succeed leave it, and so do cursors at their end. Threads: any. Blocking: never. Durability: none. Errors: none. */
const struct mpool_error *kvdb_error_detail(void);
/**
 * kvdb_error_explain() - look up a stable error identifier, of this library or of libmpool
 * @id: "MPnnnn"
 * @name: set to the symbolic name; may be NULL
 * @text: set to the meaning; may be NULL
 * @cure: set to the cure; may be NULL
 *
 * The strings stay.
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
/*
 * no control socket. Without this flag (and KVDB_RDONLY, KVDB_MANUAL) one thread
 * answers the same user and root on a socket, for `kvdb info` and others
 */
#define KVDB_NOCTL  0x4u
/* the wall clock may be more than a day ahead of the time that the database recorded last */
#define KVDB_TIME_JUMP 0x8u
/*
 * the memory for values and pages, most of cache_bytes, is taken from the system
 * at open and not when it is first used: open takes longer, about a second for
 * 4 GiB, no put waits for memory, and -ENOMEM comes here if it comes
 */
#define KVDB_PREFAULT 0x10u
/*
 * open makes what is not there: a pool of one file in the folder @pool, which is made too, and
 * the database. Such a pool grows while it is open, as far as @size_max says. A pool that is there
 * and has no database gets one. An open that was cut is completed by the next; of several
 * processes at once one makes it, and the others find it or are told that it is in use. What is
 * there and cannot be read, or is away, is never replaced: the open fails as without this flag.
 * Not with KVDB_RDONLY
 */
#define KVDB_CREATE 0x20u
/*
 * for tests, tools, a database of each task: two threads instead of six or more, no control
 * socket, one log, cache_bytes from 4 MiB on, which is also its default. The process takes less
 * than 16 MiB more, but a value above 1 MiB takes 17 MiB of memory while it is written. Merges and
 * flushes come by turns, so writers that go on for long wait longer. The format is the same
 */
#define KVDB_SMALL 0x40u

/**
 * struct kvdb_clock - injected monotonic clock, and wall clock or NULL (tests, simulation);
 * with NULL the system's counts, at open only
 * Threads of the database sleep until a time of CLOCK_MONOTONIC: without KVDB_MANUAL a clock
 * that is ahead of it breaks the loss bound.
 */
struct kvdb_clock {
	uint64_t (*now_ns)(void *arg);
	void (*sleep_until_ns)(void *arg, uint64_t t_ns);
	void *arg;
	uint64_t (*wall_ns)(void *arg); /* since 1970; asked at open, and when values may expire */
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
 *   min(25 % of RAM or cgroup limit, 4 GiB), at least 64 MiB (KVDB_SMALL: 4 MiB), at most all of
 *   these. The limit is the smallest of the process's control group and those above it
 * @log_bytes: log written since the oldest unflushed record, at most; default
 *   min(512 MiB, 1/8 of the class that holds the logs, twice cache_bytes). Raised to
 *   8 segments for each log, or half of that class if that is less
 * @logs: number of logs, default one per core (of the process's affinity and the CPU quota
 *   of its control groups), fewer when memory or the class is small; at most 64
 * @segment_bytes: log segment size, a multiple of 64 KiB from 64 KiB to 32 MiB;
 *   default: the class that holds the logs / (128 x @logs), not above 1/64 of
 *   cache_bytes, rounded down to a power of two, 256 KiB to 32 MiB (create and
 *   open; what create was given is the default of open)
 * @threads: background workers, at most 64; default half the cores, 2 to 16
 * @space_amp_max: media in use per byte of live keys and values that relocation
 *   keeps to once writers pause; default 1.5, 1.1 to 100 (create and open; what
 *   create was given, to 1/100, is the default of open). While they go on, relocation
 *   begins later by what they write in 30 s, at most 0.8 of what is allowed beyond the
 *   living (at 1.9 for 1.5), and they write on while it works (2.0 to 2.4 seen)
 * @view_max_age_ms: transactions and snapshots older than this end with -ESTALE, and
 *   cursors that were not used for as long may do so; default 300000
 * @clock: NULL = CLOCK_MONOTONIC
 * @pool: options for mpool_open(), or NULL; without flags, for which KVDB_RDONLY and
 *   @checkpoint stand
 * @checkpoint: with KVDB_RDONLY: open the stores as this checkpoint holds them; only
 *   what it pins is read, no log, so that another process may have the database open for
 *   writing meanwhile. While it is open the checkpoint cannot be dropped
 * @rollback: 0, or the last good epoch that error MP0907 named: if the log is damaged
 *   behind just that one, what was acknowledged later is given up
 * @size_max: 0 = as the pool was made, by KVDB_CREATE until its file system has no more than a
 *   tenth free; else each file of the pool grows to so many bytes while the database is open,
 *   before anything waits for the space; block devices do not. Sizes above that follow from
 *   the size of a class are those at the open
 *
 * What it points to is needed during the call only, but for what the clock's functions and
 * the pool's provider need themselves.
 */
struct kvdb_opts {
	size_t size;
	uint32_t flags;
	uint32_t interval_ms;
	uint32_t commit;
	uint32_t logs;
	uint32_t threads;
	uint32_t view_max_age_ms;
	uint64_t cache_bytes;
	uint64_t log_bytes;
	uint64_t segment_bytes;
	double space_amp_max;
	const struct kvdb_clock *clock;
	const struct mpool_open_opts *pool;
	const char *checkpoint;
	uint64_t rollback;
	uint64_t size_max;
};
#define KVDB_OPTS_INIT MPOOL_OPTS_OF(kvdb_opts)

/**
 * kvdb_create() - make an empty database in an existing pool
 * @pool: path or name of the pool
 * @opts: options, or NULL
 * Threads: any. Blocking: I/O. Durability: durable on return; a crash leaves a
 * database or none.
 * Errors: -EEXIST (one per pool), -ENOENT (no pool), -EINVAL (an option, KVDB_RDONLY),
 * -EBUSY, -ENOSPC (the pool is too small or too full), -EIO, -ENOMEM, and as mpool_open().
 */
int kvdb_create(const char *pool, const struct kvdb_opts *opts);

/**
 * kvdb_open() - open a database, recovering if it was not closed
 * @pool: path or name of the pool
 * @opts: options, or NULL
 * @out: the database
 *
 * With KVDB_CREATE what is missing is made.
 * Threads: any. Blocking: I/O; time follows @log_bytes, not the size of the data; logs that hold
 * more than memtables of this cache_bytes may are flushed meanwhile.
 * Durability: what recovery found is durable on return.
 * Errors: -EINVAL (an option that is not known or out of its range), -ENOENT (no
 * pool, no database, no such checkpoint), -EBUSY (open elsewhere), -EUCLEAN (damage; lost
 * acknowledged writes; see @rollback), -EOPNOTSUPP (format), -EFBIG (KVDB_RDONLY, and the logs
 * hold more than a third of cache_bytes for memtables), -ENOSPC, -EIO, -ENOMEM, -EAGAIN
 * (no thread, or no key of thread-specific data, can be made), with KVDB_CREATE also as
 * mpool_create() and kvdb_create(), -ETIME (values expire, and the wall clock jumped ahead: see
 * KVDB_TIME_JUMP), and as mpool_open().
 */
int kvdb_open(const char *pool, const struct kvdb_opts *opts, struct kvdb **out);

/**
 * kvdb_close() - make everything durable and close; NULL is ignored
 * Its cursors, transactions, bulk loads, completion queues and pins must have ended: with one of
 * the first three open it stays open, -EBUSY. Else the handle is gone whatever is returned. It
 * writes memtables out for half a second at most, and ends the one that it is at; it waits for no
 * merge: what is left the next open reads from the logs. A kvdb_drain() before it leaves nothing.
 * Then it closes the pool, which may discard for 250 ms: see mpool_close().
 * Threads: no other use may be in progress. Blocking: I/O.
 * Durability: as kvdb_sync(). Errors: -EBUSY, -EIO, -EROFS (something was not durable).
 */
int kvdb_close(struct kvdb *db);

/** kvdb_drop() - remove a closed database and its objects from its pool; Threads: any. Blocking: I/O. Durability: durable on return; a crash leaves it whole or none. Errors: -EINVAL (KVDB_RDONLY), and as kvdb_open(). */
int kvdb_drop(const char *pool, const struct kvdb_opts *opts);

/* ---- stores ------------------------------------------------------------ */

/* Where the values of a store live, in a pool with two media classes. */
enum kvdb_policy {
	KVDB_POLICY_DEFAULT = 0,   /* tiered */
	KVDB_POLICY_STAGING_ONLY,  /* nowhere else: a put that finds staging full fails */
	KVDB_POLICY_STAGING_PREF,  /* on staging until it is tight, then the oldest move on */
	KVDB_POLICY_TIERED,	   /* keys on staging; values that last move to capacity */
	KVDB_POLICY_CAPACITY_ONLY, /* keys and values on capacity, but for the log */
};

/*
 * How the values of a store are compressed when they are moved; what does not
 * shrink by an eighth stays as it is.
 */
enum kvdb_compress {
	KVDB_COMPRESS_NONE = 0,
	KVDB_COMPRESS_LZ4,
	KVDB_COMPRESS_ZSTD,
};

#define KVDB_TTL_MAX 3155760000ull /* seconds: a hundred years */

/**
 * struct kvdb_kvs_opts - options of a store; 0 = default
 * @size: sizeof(struct kvdb_kvs_opts)
 * @pfx_len: bytes of a key's prefix that deletes by prefix usually name, 0 to
 *   KVDB_KEY_MAX; 0 = none. Fixed when the store is made
 * @policy: enum kvdb_policy
 * @compress: enum kvdb_compress
 * @pad: 0
 * @ttl_s: seconds after which what is put is gone, at most KVDB_TTL_MAX; 0 =
 *   never. Counts for what is put while it is set; by a transaction: see kvdb_txn_put()
 * @reserved: 0
 */
struct kvdb_kvs_opts {
	size_t size;
	uint32_t pfx_len;
	uint32_t policy;
	uint32_t compress;
	uint32_t pad;
	uint64_t ttl_s;
	uint64_t reserved[8];
};
#define KVDB_KVS_OPTS_INIT MPOOL_OPTS_OF(kvdb_kvs_opts)

/**
 * kvdb_kvs_create() - make a store
 * @name: 1 .. KVDB_NAME_MAX of [A-Za-z0-9._-], not starting with '.' or '-'
 * @opts: options, or NULL
 * Threads: any. Blocking: I/O. Durability: durable on return; a crash leaves
 * the store with all of its options or no store.
 * Errors: -EEXIST, -EINVAL (name, options), -EDQUOT (KVDB_KVS_MAX, or all 65535 ids of stores
 * were used), -ENOSPC (no room for metadata), -EROFS, -EIO, -ENOMEM.
 */
int kvdb_kvs_create(struct kvdb *db, const char *name, const struct kvdb_kvs_opts *opts);
/** kvdb_kvs_open() - open a store; the same handle for every opener. Threads: any. Blocking: never. Durability: none. Errors: -ENOENT. */
int kvdb_kvs_open(struct kvdb *db, const char *name, struct kvdb_kvs **out);
/** kvdb_kvs_drop() - remove a store and its data; writes by its handle fail with -ENOENT from then on, and nothing is found in it. Threads: any; of writes in progress each is done before, or fails with -ENOENT. Blocking: I/O. Durability: durable on return. Errors: -ENOENT, -EINVAL (no name), -EBUSY (a cursor or a bulk load is open, or a transaction that wrote to it), -EROFS, -ENOSPC, -EIO, -ENOMEM. */
int kvdb_kvs_drop(struct kvdb *db, const char *name);
/**
 * kvdb_kvs_rename() - give a store another name; open handles stay good
 * @db: database
 * @from: its name now
 * @to: its name from now on, as in kvdb_kvs_create(); the same name is no change
 * Threads: any. Blocking: I/O. Durability: durable on return; a crash leaves one of
 * the two names.
 * Errors: -ENOENT, -EEXIST (@to is another store), -EINVAL (name), -EROFS, -ENOSPC, -EIO,
 * -ENOMEM.
 */
int kvdb_kvs_rename(struct kvdb *db, const char *from, const char *to);
/** kvdb_kvs_list() - names of all stores; returns the number that exist, fills at most @max. Threads: any. Blocking: never. Durability: none. Errors: none. */
int kvdb_kvs_list(struct kvdb *db, char (*names)[KVDB_NAME_MAX + 1], unsigned max);

/** struct kvdb_kvs_info - what a store is */
struct kvdb_kvs_info {
	char name[KVDB_NAME_MAX + 1];
	uint32_t id;		/* never used again in this database */
	uint32_t pfx_len;
	uint32_t policy;	/* enum kvdb_policy */
	uint32_t compress;	/* enum kvdb_compress */
	uint64_t ttl_s;
	uint64_t keys_estimate; /* now */
	uint32_t runs;		/* now */
	uint32_t memtables;	/* now */
	uint64_t key_bytes;	/* now: media that its runs take */
	uint64_t range_tombs;	/* now: deletes by prefix or range that are kept */
	uint64_t covered_keys;	/* now: about so many keys of runs are deleted by them */
};
/** kvdb_kvs_info() - describe a store. Threads: any. Blocking: never. Durability: none. Errors: none. */
int kvdb_kvs_info(struct kvdb_kvs *kvs, struct kvdb_kvs_info *out);

#define KVDB_KVS_TTL	  0x1u /* ttl_s */
#define KVDB_KVS_POLICY	  0x2u /* policy */
#define KVDB_KVS_COMPRESS 0x4u /* compress */
/**
 * kvdb_kvs_set() - change options of a store that is in use
 * @opts: the new values
 * @mask: KVDB_KVS_*: which of them count
 * Threads: any. Blocking: I/O. Durability: durable on return; a crash leaves
 * all of the new values or none.
 * Errors: -EINVAL (mask, value), -ENOENT (the store was dropped), -EROFS, -ENOSPC, -EIO, -ENOMEM.
 */
int kvdb_kvs_set(struct kvdb_kvs *kvs, const struct kvdb_kvs_opts *opts, unsigned mask);

/* ---- data -------------------------------------------------------------- */

/**
 * kvdb_put() - store a value under a key
 * @kvs: store
 * @key: 1 .. KVDB_KEY_MAX bytes
 * @klen: its length
 * @val: 0 .. KVDB_VALUE_MAX bytes; after the first one above 1 MiB programs that
 *   knew no longer values refuse the database
 * @vlen: its length
 *
 * Atomic: readers and a crash see the old or the new value.
 * Threads: any. Blocking: only when memory, space debt or the loss bound asks.
 * Durability: within the loss bound; at once with kvdb_opts.commit.
 * Errors: -EINVAL (empty key), -ENAMETOOLONG (key), -E2BIG (value), -ENOENT (the store was
 * dropped), -ENOSPC, -ECANCELED (an open transaction wrote the key, and did not end within a
 * second), -EROFS (fail-stopped, or opened with KVDB_RDONLY), -ENOMEM: nothing is changed;
 * -EIO: written and visible, but not durable, and the database has stopped.
 */
int kvdb_put(struct kvdb_kvs *kvs, const void *key, size_t klen, const void *val, size_t vlen);

/**
 * kvdb_put_ttl() - store a value for a time
 * @ttl_s: seconds after which it is gone, at most KVDB_TTL_MAX, whatever the
 *   store's own time to live is; 0 = it stays
 *
 * What is gone was deleted: an older value does not come back. A cursor sees what
 * had not expired when it was opened. The time is that of the database: the wall
 * clock at open, then the time since boot, suspended or not, and the wall clock again where
 * that is ahead by less than a week; it never goes back. Nothing that reads
 * tells when a value expires, so a backup or a copy has no expiry: what is made of
 * it lives by the time to live of the store where it is put.
 * Threads: any. Blocking: as kvdb_put(), and the first one of a database for I/O: it records
 * the time. Durability: as kvdb_put(). Errors: as kvdb_put(), -EINVAL (@ttl_s).
 */
int kvdb_put_ttl(struct kvdb_kvs *kvs, const void *key, size_t klen, const void *val, size_t vlen,
		 uint64_t ttl_s);

/**
 * kvdb_get() - copy a value out
 * @buf: buffer; may be NULL when @size is 0
 * @size: its size
 * @vlen: set to the value's full length; @buf holds the first @size bytes of it; may be NULL
 * Threads: any. Blocking: I/O when not in memory. Durability: none.
 * Errors: -ENOENT, -EINVAL, -ENAMETOOLONG, -EUCLEAN (checksum), -EIO, -ENOMEM.
 */
int kvdb_get(struct kvdb_kvs *kvs, const void *key, size_t klen, void *buf, size_t size,
	     size_t *vlen);

/** struct kvdb_get - one key of kvdb_get_multi(); @key, @klen, @buf, @size as in kvdb_get(), @vlen and @err are results */
struct kvdb_get {
	const void *key;
	size_t klen;
	void *buf;
	size_t size;
	size_t vlen; /* the value's full length, when @err is 0 */
	int err;     /* as kvdb_get() would return: 0, -ENOENT, ... */
	int pad;
};

#define KVDB_GET_SNAPSHOT 0x1u /* all keys as of one moment */

/**
 * kvdb_get_multi() - read many keys at once
 * @kvs: store
 * @flags: 0: each key as a kvdb_get() of its own; or KVDB_GET_SNAPSHOT
 * @get: @n requests, in any order; their results are filled in
 * @n: how many; groups of 16 are looked up together
 *
 * Cheaper than as many calls of kvdb_get(): memory is prefetched for the group,
 * and what up to 256 keys need from devices is read together, first their key
 * pages, then their values.
 * Threads: any. Blocking: I/O when not in memory. Durability: none.
 * Errors: of the call as a whole: -EINVAL, -ENOMEM; of each key: kvdb_get.err.
 */
int kvdb_get_multi(struct kvdb_kvs *kvs, unsigned flags, struct kvdb_get *get, unsigned n);

/* How many keys a probe has found. */
enum kvdb_found {
	KVDB_FOUND_NONE = 0,
	KVDB_FOUND_ONE = 1,
	KVDB_FOUND_SEVERAL = 2,
};

/**
 * struct kvdb_probe - what a probe finds, and room for its first pair; zero but for the room
 * @key: room for the smallest key; may be NULL when @key_size is 0
 * @key_size: its size
 * @val: room for that key's value; may be NULL when @val_size is 0
 * @val_size: its size; with 0 no value is read
 * @klen: result: the key's full length; @key holds the first @key_size bytes of it
 * @vlen: result: the value's full length; @val holds the first @val_size bytes of it
 * @found: result: enum kvdb_found; with KVDB_FOUND_NONE both lengths are 0
 * @pad: 0
 */
struct kvdb_probe {
	void *key;
	size_t key_size;
	void *val;
	size_t val_size;
	size_t klen;
	size_t vlen;
	uint32_t found;
	uint32_t pad;
};

/**
 * kvdb_prefix_probe() - does no key begin with a prefix, or one, or do several?
 * @kvs: store
 * @prefix: bytes; NULL/0: every key begins so
 * @plen: its length, at most KVDB_KEY_MAX
 * @probe: room, and results
 *
 * The same answer as two steps of a new cursor with that prefix, but cheaper: what a unique index
 * asks before it inserts. None found is no error.
 * Threads: any. Blocking: I/O when not in memory. Durability: none.
 * Errors: -EINVAL (a length at NULL), -ENAMETOOLONG, -EUCLEAN, -EIO, -ENOMEM: nothing but the bytes
 * in the room has changed.
 */
int kvdb_prefix_probe(struct kvdb_kvs *kvs, const void *prefix, size_t plen,
		      struct kvdb_probe *probe);

/** struct kvdb_pin - a value that is read where it lies; @priv is the library's */
struct kvdb_pin {
	const void *val;
	size_t vlen;
	void *priv[3];
};

/**
 * kvdb_get_pinned() - read a value without copying it where that is possible
 * @kvs: store
 * @key: its key
 * @klen: the key's length
 * @pin: set to value and length; give it to kvdb_unpin() when done
 *
 * The value does not change and stays until it is unpinned, also when the key is
 * overwritten or deleted. A value that lies in the window of recent log segments
 * is not copied: the pin holds its segment's memory. At most an eighth of the
 * memory of window and page pool is held so; beyond that, and for values that are
 * small or elsewhere, the pin is a copy. A pin delays nothing: no reclamation, flush
 * or compaction waits for it, only that memory is not used for other segments.
 * Threads: any; the pin may be used and unpinned in another thread.
 * Blocking: I/O when not in memory. Durability: none.
 * Errors: as kvdb_get(). All pins must be gone before kvdb_close().
 */
int kvdb_get_pinned(struct kvdb_kvs *kvs, const void *key, size_t klen, struct kvdb_pin *pin);
/** kvdb_unpin() - let go of a pinned value; NULL and an unpinned pin are ignored. Threads: any. Blocking: never. Durability: none. Errors: none. */
void kvdb_unpin(struct kvdb_pin *pin);

/** kvdb_del() - delete a key, present or not; as kvdb_put(). Threads: any. Blocking: as kvdb_put(). Durability: as kvdb_put(). Errors: as kvdb_put(); on a full pool it may use the reserve. */
int kvdb_del(struct kvdb_kvs *kvs, const void *key, size_t klen);

#define KVDB_UPDATE_PUT	 0 /* put the new value */
#define KVDB_UPDATE_DEL	 1 /* delete the key */
#define KVDB_UPDATE_KEEP 2 /* leave it as it is */

/*
 * The new value of a key from its old one: sets *val and *vlen, which must stay
 * as they are until kvdb_update() calls again or returns, and returns
 * KVDB_UPDATE_*, or a negative errno to give up. @old is NULL when there is no
 * such key; it is valid during the call. It must not use the store.
 */
typedef int kvdb_update_fn(void *arg, const void *old, size_t olen, const void **val, size_t *vlen);

/**
 * kvdb_update() - change a value depending on what it is, atomically
 * @kvs: store, and the key as in kvdb_put()
 * @key: 1 .. KVDB_KEY_MAX bytes
 * @klen: its length
 * @fn: says what it becomes; called again whenever another write of the key, or a
 *   delete of many keys that covers it, came between, or a bulk load appeared
 * @arg: its argument
 *
 * No write of the key lies between what @fn was given last and what it returned.
 * Threads: any. Blocking: as kvdb_put(), and I/O to read. Durability: as kvdb_put().
 * Errors: what @fn returned (kvdb_error_detail() is not told of that), as kvdb_get() but for
 * -ENOENT, as kvdb_put(). -EIO with MP0946: it could not be read, and nothing is changed.
 */
int kvdb_update(struct kvdb_kvs *kvs, const void *key, size_t klen, kvdb_update_fn *fn, void *arg);

/**
 * kvdb_prefix_del() - delete all keys that begin with a prefix
 * @prefix: 1 .. KVDB_KEY_MAX bytes; fastest when it is as long as the store's pfx_len
 * @plen: its length
 *
 * Takes the same time however many keys there are. Atomic: every reader and a
 * crash see all of them deleted or none. What is put afterwards is there.
 * Threads: any. Blocking: as kvdb_put(). Durability: as kvdb_put().
 * Errors: as kvdb_del(), -ECANCELED (a transaction wrote such a key and is still open).
 */
int kvdb_prefix_del(struct kvdb_kvs *kvs, const void *prefix, size_t plen);
/**
 * kvdb_range_del() - delete all keys from one up to another
 * @kvs: store
 * @from: the smallest key that is deleted; NULL/0 = from the smallest of all
 * @flen: its length
 * @to: the smallest key that is not; NULL/0 = up to the greatest of all
 * @tlen: its length
 *
 * A range in which no key can lie (@to <= @from) is none. As kvdb_prefix_del().
 * Threads: any. Blocking: as kvdb_put(). Durability: as kvdb_put().
 * Errors: as kvdb_prefix_del().
 */
int kvdb_range_del(struct kvdb_kvs *kvs, const void *from, size_t flen, const void *to,
		   size_t tlen);

/**
 * kvdb_write() - a batch: several writes to any stores, atomically
 * @db: database
 * @ops: writes, in order, each with flags 0: KVDB_OP_PUT (@key, @klen, @val, @size), KVDB_OP_DEL
 *   (@key, @klen), KVDB_OP_RANGE_DEL from @key, @klen, NULL/0 = from the smallest of all, up to
 *   @val, @size, NULL/0 = up to the greatest of all. The cookie is not looked at
 * @n: number of them; with 0 nothing is written
 * @flags: 0 or KVDB_OP_DURABLE: durable on return
 * @ticket: set to what kvdb_wait_durable() takes; may be NULL
 *
 * As if they were made one after the other, and nothing between: of two writes of a key the later
 * one counts, a range that is deleted has what was put into it later. Readers see all of them or
 * none, and so does what is there after a crash. A value expires as if it were put alone.
 *
 * It sees nothing and has no conflicts. It waits for transactions that own a key or range of it,
 * as kvdb_put() does, and keeps no key from others meanwhile, but for the moment in which it finds
 * an owner of one: a transaction that writes another then gets -ECANCELED, as one does that began
 * before the batch and writes one of its keys. Batches wait for each other, without a bound, so of
 * two that have keys in common the later one is written later. None of its stores can be dropped
 * (-EBUSY) until it returns.
 *
 * Keys and values up to 128 bytes take memory as those of a transaction do, from the same budget:
 * with 180 bytes for each write, of all batches and open transactions together an eighth of
 * cache_bytes (768 MiB at most), and no more than a quarter of log_bytes (4 MiB at least). Of
 * batches above 256 KiB one takes it at a time. Its larger values may lie in half of the media
 * class of the logs, as those of a transaction.
 * Threads: any. Blocking: as kvdb_put(). Durability: as kvdb_put(), all of it or nothing.
 * Errors: -EINVAL, -ENAMETOOLONG (an operation, flags), -E2BIG (MP0912: a value; MP0933: the
 * batch, and its text says the limit: memory, log, more than KVDB_TXN_RANGES_MAX ranges), -ECANCELED (a
 * transaction that is open has a key for a second), -ENOENT (a store was dropped), -ENOSPC, -EROFS,
 * -ENOMEM: nothing was written; -EIO: written and visible, but not durable.
 */
int kvdb_write(struct kvdb *db, const struct kvdb_op *ops, size_t n, unsigned flags,
	       uint64_t *ticket);

/**
 * kvdb_sync() - make everything acknowledged so far durable
 * Threads: any; concurrent callers share one flush. Blocking: I/O.
 * Durability: everything acknowledged before the call. Errors: -EIO: never 0 after a
 * failed flush.
 */
int kvdb_sync(struct kvdb *db);

/** kvdb_ticket() - a ticket for everything acknowledged so far. Threads: any. Blocking: never. Durability: none. Errors: none. */
uint64_t kvdb_ticket(struct kvdb *db);
/** kvdb_wait_durable() - wait until what a ticket stands for is durable. Threads: any; waiters share one flush. Blocking: I/O. Durability: of the ticket. Errors: -EINVAL (no ticket of this database), -EIO. */
int kvdb_wait_durable(struct kvdb *db, uint64_t ticket);
/**
 * kvdb_sync_start() - ask for a sync, and do not wait for it
 * @db: database
 * @ticket: of everything acknowledged so far, for kvdb_durable_within() and kvdb_wait_durable()
 *
 * The flush begins at once, in another thread; with KVDB_MANUAL in the next kvdb_poll(), or in
 * the thread that waits.
 * Threads: any. Blocking: never. Durability: when the ticket is. Errors: -EINVAL, -EIO.
 */
int kvdb_sync_start(struct kvdb *db, uint64_t *ticket);
/**
 * kvdb_durable_within() - wait for what a ticket stands for, not for longer than a time
 * @db: database
 * @ticket: as for kvdb_wait_durable()
 * @ms: milliseconds; 0: only look, and ask for no flush
 *
 * Returns 1 when it is durable, 0 when it is not yet. With KVDB_MANUAL the caller does the work,
 * whatever time that takes.
 * Threads: any. Blocking: I/O, of others, for @ms. Durability: of the ticket, with 1.
 * Errors: -EINVAL (no ticket of this database), -EIO (it will not be).
 */
int kvdb_durable_within(struct kvdb *db, uint64_t ticket, uint32_t ms);
/**
 * kvdb_on_durable() - be told when what a ticket stands for is durable
 * @db: database
 * @ticket: of kvdb_txn_commit() or kvdb_ticket()
 * @fn: called once, with 0 or -EIO: at once if it is durable already, else by
 *   whichever thread made it so, at the latest in kvdb_close(). It must not
 *   block and must not call into the database
 * @arg: its argument
 * Threads: any. Blocking: never. Durability: none is asked for. Errors: -EINVAL, -ENOMEM.
 */
int kvdb_on_durable(struct kvdb *db, uint64_t ticket, void (*fn)(void *arg, int err), void *arg);

/* ---- maintenance -------------------------------------------------------- */

#define KVDB_WAIT_FLUSH   0x1u /* freeze and flush every memtable */
#define KVDB_WAIT_COMPACT 0x2u /* until no background work is due */
/**
 * kvdb_drain() - do the deferred work now
 * @db: database
 * @flags: KVDB_WAIT_*; 0: as kvdb_sync()
 * On a full pool a flush waits for merges that run, ten seconds at most, and is refused (-ENOSPC)
 * when none brings room.
 * Threads: any. Blocking: I/O. Durability: as kvdb_sync(). Errors: -EINVAL, -EIO, -EROFS, -ENOSPC,
 * -ENOMEM.
 */
int kvdb_drain(struct kvdb *db, unsigned flags);

#define KVDB_COMPACT_WAIT   0x1u /* until it is done */
#define KVDB_COMPACT_CANCEL 0x2u /* end what was asked for, and the job that runs */
/**
 * kvdb_compact() - bring space back now, beyond what space_amp_max asks for
 * @flags: KVDB_COMPACT_*; 0: ask, and return
 *
 * Flushes what is in memory now, merges the runs of every store into one, and moves values out
 * of segments that hold garbage, in the background, until there is nothing left to gain or, beside
 * writers, as many bytes were emptied as there were when it was called. Given up, with what was
 * reached, when the pool has no room for it, when damage is met, and while a store is bulk loaded.
 * Threads: any. Blocking: I/O with KVDB_COMPACT_WAIT, else never long. Durability:
 * none promised; with KVDB_COMPACT_WAIT as kvdb_sync(). Errors: -EINVAL, -EROFS; with
 * KVDB_COMPACT_WAIT also -ENOSPC, -ECANCELED, -EBUSY (bulk load), -EUCLEAN, -EIO, -ENOMEM, -EAGAIN
 * (writers were faster than merges: to be repeated).
 */
int kvdb_compact(struct kvdb *db, unsigned flags);
/**
 * kvdb_kvs_compact() - the same for the keys of one store; its values stay in their segments
 * Threads: any. Blocking: as kvdb_compact(). Durability: as kvdb_compact(). Errors: the same.
 */
int kvdb_kvs_compact(struct kvdb_kvs *kvs, unsigned flags);

/** struct kvdb_compact_status - space, and what is done about it */
struct kvdb_compact_status {
	uint32_t is_asked;	/* kvdb_compact(), kvdb_kvs_compact() was called and is not done */
	uint32_t is_active;	/* a relocation runs now */
	uint64_t space_bytes, live_bytes; /* as in struct kvdb_stats */
	double space_amp_max;
	uint64_t moved_bytes, relocations; /* since open */
	uint64_t todo_bytes;	/* runs to read and values to move as known so far, since asked */
	uint64_t done_bytes;	/* of them */
	int32_t error;		/* negative: why what was asked for last ended before its end */
};
/**
 * kvdb_compact_status() - progress of compaction, and the space
 * Threads: any. Blocking: never; open for reading only it reads some pages, to know live_bytes.
 * Durability: none. Errors: open for reading only -EIO, -EUCLEAN.
 */
int kvdb_compact_status(struct kvdb *db, struct kvdb_compact_status *out);

/**
 * kvdb_poll() - with KVDB_MANUAL: do one due step of background work
 * Returns 1 when something was done, 0 when nothing was due.
 * Threads: any. Blocking: I/O. Durability: none promised. Errors: -EIO, -EROFS, -ENOSPC, -ENOMEM.
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
	uint64_t read_bytes;   /* the sum of the four below */
	uint64_t move_bytes;   /* values moved by relocation */
	uint64_t read_log_bytes;   /* by recovery */
	uint64_t read_key_bytes;   /* runs: gets, scans, compaction */
	uint64_t read_value_bytes; /* for gets and scans */
	uint64_t read_move_bytes;  /* by relocation */
};
/* The members of struct kvdb_io, as KVDB_STATS_FIELDS. */
#define KVDB_IO_FIELDS(X) \
	X(log_bytes) X(key_bytes) X(meta_bytes) X(read_bytes) X(move_bytes) X(read_log_bytes) \
	X(read_key_bytes) X(read_value_bytes) X(read_move_bytes)

/** struct kvdb_space - the log segments of one class, now, bytes */
struct kvdb_space {
	uint64_t segment_bytes;    /* of media */
	uint64_t live_value_bytes; /* as in struct kvdb_stats */
	uint64_t dead_value_bytes;
};

/** enum kvdb_delay - why a caller waited */
enum kvdb_delay {
	KVDB_DELAY_MEMORY = 0, /* memtables approach their budget */
	KVDB_DELAY_FROZEN,     /* memtables queue to be flushed */
	KVDB_DELAY_LOG,        /* the log since the oldest unflushed record approaches its limit */
	KVDB_DELAY_RUNS,       /* runs queue to be merged */
	KVDB_DELAY_SPACE,      /* a flush finds no room, or space is beyond space_amp_max */
	KVDB_DELAY_SEGMENT,    /* a log had to get its next segment first */
	KVDB_DELAY_GATE,       /* the loss bound */
	KVDB_DELAY_KEY,        /* an open transaction had written the key */
	KVDB_DELAY_IMAGE,      /* a log had to get memory for its next segment first */
	KVDB_DELAY_FRAME,      /* a frame of a log, or the epoch, was being closed */
	KVDB_DELAY_STAGING,    /* values leave staging slower than they come */
	KVDB_DELAYS,           /* number of those of writers, which struct kvdb_stats has */
	/* of all callers: kvdb_waits() has them */
	KVDB_DELAY_READ = KVDB_DELAYS, /* a device, for what is read */
	KVDB_DELAY_DURABLE,    /* an epoch, to be durable: a sync, a change of a store */
	KVDB_DELAY_WORK,       /* background work: a drain, a compaction, a close */
	KVDB_DELAY_MEDIA,      /* what the caller writes or frees itself: a bulk load, a close */
	KVDB_WAITS
};

/** kvdb_delay_name() - one word for a cause, NULL beyond the last. Threads: any. Blocking: never. Durability: none. Errors: none. */
const char *kvdb_delay_name(unsigned cause);

/** struct kvdb_delays - waits for one cause */
struct kvdb_delays {
	uint64_t waits;
	uint64_t ns;
	uint64_t max_ns; /* the longest */
};

/**
 * kvdb_waits() - what the calling thread waited for in this library
 * @out: its waits since it began, by enum kvdb_delay, in all databases
 *
 * The difference of two calls tells why what lay between took long. Use of a processor, and
 * waiting for one, for a lock or for memory, is in none of them.
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
void kvdb_waits(struct kvdb_delays out[KVDB_WAITS]);

/** struct kvdb_stats - counters since open unless said otherwise */
struct kvdb_stats {
	uint64_t puts, gets, dels, seeks, nexts, syncs;
	uint64_t user_write_bytes;  /* keys + values given to put and del */
	uint64_t keys_estimate;     /* now */
	uint64_t live_value_bytes;  /* now: value bytes on media that runs and memtables refer to */
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
	uint64_t space_bytes;       /* now: media taken by runs and the segments they refer to */
	uint64_t live_bytes;        /* keys and values found, as stored, when last estimated; 0 */
	uint64_t relocations;       /* jobs that moved values */
	uint64_t damaged_values;    /* found by relocation, left where they are */
	uint64_t txn_begun, txn_committed, txn_aborted;
	uint64_t txn_conflicts;     /* writes of transactions that came second */
	uint64_t txn_stale;         /* transactions that grew too old or were evicted */
	uint64_t views, view_oldest_ns; /* now: open transactions; age of the oldest */
	struct kvdb_io io[MPOOL_MCLASSES];
	struct kvdb_recovery recovery;
	struct kvdb_delays delay[KVDB_DELAYS]; /* all waits of writers, by cause */
	uint64_t checkpoints;       /* now */
	uint64_t pinned_bytes;      /* now: media held by checkpoints alone */
	uint64_t spare_bytes;       /* now: memory kept to be used again */
	uint64_t table_bytes;       /* now: tables of pages, segments, values; buffers */
	uint64_t memory_bytes;      /* now: sum of the six: what the database holds of memory */
	uint64_t pack_in_bytes;     /* values that were moved in stores with compression ... */
	uint64_t pack_out_bytes;    /* ... and what they took then */
	struct kvdb_space space[MPOOL_MCLASSES];
	uint64_t leaves;            /* now: parts of stores by ranges of keys */
	uint64_t run_depth;         /* now: runs that a get may have to look at, at most */
	uint64_t spills, splits, joins; /* of the merges: into leaves, that made or ended some */
	uint64_t merge_keys, merge_most_keys; /* keys that merges read: all, the largest one */
	uint64_t user_read_bytes;   /* keys + values given by gets and cursors */
	uint64_t cpu_ns;            /* processor time of the process, all its threads */
	uint64_t scan_places;       /* places that scans read values from, on media */
	uint64_t order_relocations; /* of the relocations: for the sake of scans, ... */
	uint64_t order_bytes;       /* ... and the bytes that those moved */
	uint64_t point_hits;        /* lookups that found a value where one before had found it */
	uint64_t log_device_max_ns; /* the longest that the log waited for one write, or a flush */
	uint64_t csum_errors;       /* reads whose bytes failed their checksum, ... */
	uint64_t rereads;           /* ... and of these those that were good when read again */
	uint64_t stuck;             /* now: what background work failed at and tries again: runs, */
	uint64_t stuck_ns;          /* flushes, ...; since the oldest failed (struct kvdb_info) */
	uint64_t txns, snapshots;   /* now: of the views, those that may write, and the others; */
	uint64_t txn_oldest_ns;     /* age of the oldest of the one, 0 = none, ... */
	uint64_t snapshot_oldest_ns; /* ... and of the other */
	uint64_t cursors;           /* now: open ones */
	uint64_t flush_rounds;      /* of the flushes: small memtables are flushed together */
	uint64_t cursor_oldest_ns;  /* now: age of the oldest snapshot that one of them has */
	uint64_t cursors_ended;     /* whose snapshot was given up, for memory or unused */
	uint64_t cursors_forgotten; /* now: of those, the ones that were not closed since then */
};
/*
 * The 64-bit members of struct kvdb_stats, all of them, for tools that print or
 * carry them: X(name). A new member is added here too.
 */
#define KVDB_STATS_FIELDS(X) \
	X(keys_estimate) X(live_value_bytes) X(dead_value_bytes) X(segments) X(runs) \
	X(memtable_bytes) X(window_bytes) X(page_bytes) X(index_bytes) X(cache_bytes) \
	X(puts) X(gets) X(dels) X(seeks) X(nexts) X(syncs) X(user_write_bytes) X(flushes) \
	X(merges) X(segments_freed) X(page_hits) X(page_misses) X(value_mem) X(value_dev) \
	X(epoch) X(durable_epoch) X(durability_late) X(gate_waits) X(gate_wait_ns) X(stalls) \
	X(stall_ns) X(skipped_records) X(space_bytes) X(live_bytes) X(relocations) \
	X(damaged_values) X(checkpoints) X(pinned_bytes) X(txn_begun) X(txn_committed) \
	X(txn_aborted) X(txn_conflicts) X(txn_stale) X(views) X(view_oldest_ns) \
	X(spare_bytes) X(table_bytes) X(memory_bytes) X(leaves) X(run_depth) X(spills) \
	X(splits) X(joins) X(merge_keys) X(merge_most_keys) X(pack_in_bytes) \
	X(pack_out_bytes) X(user_read_bytes) X(cpu_ns) X(scan_places) X(order_relocations) \
	X(order_bytes) X(point_hits) X(log_device_max_ns) X(csum_errors) X(rereads) \
	X(stuck) X(stuck_ns) X(txns) X(snapshots) X(txn_oldest_ns) X(snapshot_oldest_ns) \
	X(cursors) X(flush_rounds) X(cursor_oldest_ns) X(cursors_ended) \
	X(cursors_forgotten)

/**
 * kvdb_stats() - read the counters
 *
 * Threads: any. Blocking: no I/O; with more than 4096 segments it sleeps 50 us for each so many, so
 * that it delays no other thread. Durability: none. Errors: none.
 */
int kvdb_stats(struct kvdb *db, struct kvdb_stats *out);

/**
 * kvdb_dev_info() - describe member @slot (0, 1, ...) of the database's pool
 * @db: database
 * @slot: which
 * @out: as mpool_dev_info() tells it, with the database's own checksums in its counters
 * Threads: any. Blocking: never. Durability: none. Errors: -ENOENT past the last.
 */
int kvdb_dev_info(struct kvdb *db, unsigned slot, struct mpool_dev_info *out);

enum kvdb_part_kind {
	KVDB_PART_ACTIVE = 1, /* the memtable that takes writes */
	KVDB_PART_FROZEN = 2, /* a memtable that waits for its flush */
	KVDB_PART_RUN    = 3, /* sorted keys on media */
};

/** struct kvdb_tree_part - one memtable or run of a store */
struct kvdb_tree_part {
	uint32_t kind;        /* enum kvdb_part_kind */
	uint32_t blocks;      /* key blocks of a run */
	uint64_t id;          /* of a run, never used again; memtable: 0 */
	uint64_t keys, tombs; /* tombs: deletions among the keys of a run */
	uint64_t bytes;       /* of a memtable in memory, of a run on media */
	uint64_t index_bytes; /* memory that a run's index has now */
	uint64_t value_bytes; /* values in log segments that a run refers to */
	uint64_t segments;    /* different log segments that they lie in */
	uint64_t leaf;        /* of a run: its leaf, numbered in order of keys; 0: any key */
};
/**
 * kvdb_tree() - the shape of a store: its memtables and runs, newest first in each leaf
 * @db: database
 * @kvs: name of the store
 * @parts: array
 * @max: its size
 * Returns the number of parts, of which at most @max are filled.
 * Threads: any. Blocking: never. Durability: none. Errors: -ENOENT, -ENOMEM.
 */
int kvdb_tree(struct kvdb *db, const char *kvs, struct kvdb_tree_part *parts, unsigned max);
/** kvdb_diff_fn - receives a key that differs, good during the call; @val is NULL when it is deleted; not 0 ends the walk */
typedef int kvdb_diff_fn(void *arg, const void *key, size_t klen, const void *val, size_t vlen);
/**
 * kvdb_diff() - what changed in a store between two checkpoints, in order of keys
 * @from: the store in a database that is open at the earlier one (kvdb_opts.checkpoint)
 * @to: the same store, not only of the same name, at the later one
 * @fn: called for every key that was put, also with the value that it had, or deleted in between
 * @arg: its argument
 *
 * Reads the keys of both, and the values of those that differ. A key that has expired by now is
 * deleted at the later checkpoint, not at the earlier one: what was made of the earlier one may
 * hold it still. When a value expires is not told.
 * Threads: one per handle. Blocking: I/O. Durability: none.
 * Errors: what @fn returned; -EINVAL (not at checkpoints of one database, or another store),
 * -EIO, -EUCLEAN, -ENOMEM.
 */
int kvdb_diff(struct kvdb_kvs *from, struct kvdb_kvs *to, kvdb_diff_fn *fn, void *arg);

/* ---- bulk load ------------------------------------------------------------ */

struct kvdb_bulk; /* a bulk load in progress */

/**
 * kvdb_bulk_open() - begin to load sorted input into a store
 * @kvs: store; it may hold records already, and be written and read meanwhile
 * @flags: 0
 * @out: the load; one per store at a time
 *
 * Values are written once, to where they stay, and keys once, past logs and memtables. All of
 * it appears at kvdb_bulk_finish() at once: over everything that was acknowledged before this
 * call, under everything that is written after it returned. A cursor that was opened earlier
 * does not see it, nor does a transaction that began before it appeared; what that writes may lie
 * over it without a conflict. Until then runs of the store are not merged. In a store with a time
 * to live a record expires as if it were put at its kvdb_bulk_add().
 * Threads: any. Blocking: I/O (flushes the memtables). Durability: none.
 * Errors: -EINVAL, -ENOENT (the store was dropped), -EBUSY (one is open), -ENOSPC, -EROFS, -EIO,
 * -ENOMEM.
 */
int kvdb_bulk_open(struct kvdb_kvs *kvs, unsigned flags, struct kvdb_bulk **out);
/**
 * kvdb_bulk_add() - add a record; its key is greater than the one before
 * @b: load
 * @key: 1 .. KVDB_KEY_MAX bytes
 * @klen: its length
 * @val: 0 .. KVDB_VALUE_MAX bytes
 * @vlen: its length
 * Threads: one at a time. Blocking: I/O. Durability: none until finished.
 * Errors: -EINVAL (order, empty key), -ENAMETOOLONG, -E2BIG: the record is left out, the load
 * may go on; -ENOSPC, -EFBIG (more keys than one run holds), -EROFS, -EIO, -ENOMEM: it must be
 * aborted.
 */
int kvdb_bulk_add(struct kvdb_bulk *b, const void *key, size_t klen, const void *val, size_t vlen);
/**
 * kvdb_bulk_finish() - make everything that was added durable and visible, in one step
 * The handle is gone whatever is returned. On an error nothing was loaded, but with -EIO and
 * MP0999: then the next open shows all of it or nothing.
 * Threads: sole user. Blocking: I/O. Durability: durable on return; a crash shows all or none.
 * Errors: as kvdb_bulk_add(); the first of a load that had to be aborted.
 */
int kvdb_bulk_finish(struct kvdb_bulk *b);
/** kvdb_bulk_abort() - give up; nothing of it stays. NULL is ignored. Threads: sole user. Blocking: never. Durability: none. Errors: none. */
void kvdb_bulk_abort(struct kvdb_bulk *b);

/* ---- checkpoints --------------------------------------------------------- */

/**
 * kvdb_checkpoint() - make a durable, named, consistent point of all stores
 * @name: as a store's name; no other checkpoint may have it
 * @flags: 0
 *
 * The checkpoint holds everything acknowledged before the call, and of what is written
 * meanwhile everything up to one moment within it: no write of two is in it without the one
 * before it. It costs a flush of the memtables' keys and one small object; values are not
 * copied. What it refers to stays on media until it is dropped, through overwrites, deletes,
 * merges, dropped stores and crashes.
 * Threads: any; others may write meanwhile. Blocking: I/O. Durability: durable on return; a
 * crash leaves it whole or none.
 * Errors: -EEXIST, -EINVAL (name), -EDQUOT (KVDB_CHECKPOINT_MAX of them), -ENOSPC (nothing is
 * pinned then), -EFBIG (more objects than its list can hold), -EROFS, -EIO, -ENOMEM.
 */
int kvdb_checkpoint(struct kvdb *db, const char *name, unsigned flags);

/** struct kvdb_checkpoint_info - a checkpoint */
struct kvdb_checkpoint_info {
	char name[KVDB_NAME_MAX + 1];
	uint64_t id;      /* never reused */
	uint64_t epoch;   /* it holds every record of epochs up to this one, no later */
	uint64_t time_ns; /* of making, since 1970 */
	uint64_t stores, runs, keys, segments; /* in it; keys: versions and deletions in its runs */
	uint64_t bytes;   /* media that it refers to, shared or not */
	uint32_t is_damaged; /* its list cannot be read: it holds all space until it is dropped */
	uint32_t pad;
};
/** kvdb_checkpoint_list() - all checkpoints of @db, oldest first; returns the number that exist, fills at most @max of @out, which may be NULL when @max is 0. Of a database that is open at one: those of that moment, without sizes. Threads: any. Blocking: never. Durability: none. Errors: none. */
int kvdb_checkpoint_list(struct kvdb *db, struct kvdb_checkpoint_info *out, unsigned max);
/**
 * kvdb_checkpoint_drop() - remove a checkpoint; the space that only it held comes free
 * Threads: any. Blocking: I/O. Durability: durable on return; a crash leaves it whole or none.
 * Errors: -ENOENT, -EBUSY (it is open, here or in another process), -EROFS, -ENOSPC, -EIO, -ENOMEM.
 */
int kvdb_checkpoint_drop(struct kvdb *db, const char *name);

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
	double space_amp_max; /* as kvdb_create() was told, unless this open was told another */
	char fault[256]; /* cause of a fail-stop, or "" */
	char ctl[112];   /* path of the control socket, or "" */
	struct mpool_info pool;
	/*
	 * what background work failed at, leaves alone and tries again with growing pauses, while
	 * everything else goes on: how many things, since when the oldest fails, what and why; a
	 * checkpoint that could not be read counts until it is dropped, for it holds all space
	 */
	uint64_t stuck, stuck_ns;
	char stuck_text[256];
	/*
	 * what the process could use of the machine when it opened: memory up to the least limit
	 * of its control groups, and the processors of its affinity up to their quota
	 */
	uint64_t ram_bytes, cores;
	uint32_t is_made; /* by the open that this handle is of: see KVDB_CREATE */
	uint32_t pad;
};
/** kvdb_info() - describe an open database. Threads: any. Blocking: never. Durability: none. Errors: none. */
int kvdb_info(struct kvdb *db, struct kvdb_info *out);

/**
 * kvdb_set() - change a setting of an open database
 * @db: database
 * @name: "interval_ms", "commit" or "log_bytes", as in struct kvdb_opts
 * @value: a number; for interval_ms also "none"; log_bytes is not raised to its least but
 *   refused below it, and above 1 TiB
 *
 * Holds until the handle is closed; each open chooses its own. The new loss
 * bound holds for everything acknowledged from the return on.
 * Threads: any. Blocking: I/O (a sync). Durability: as kvdb_sync().
 * Errors: -EINVAL (name, value), -EROFS, -EIO.
 */
int kvdb_set(struct kvdb *db, const char *name, const char *value);

/**
 * struct kvdb_problem - a finding of kvdb_verify() with what is known of it
 * What the callback gets a pointer to is the first member of one of these.
 */
struct kvdb_problem {
	struct mpool_problem p;
	const char *kvs;	 /* name of the store, or NULL */
	uint64_t object, offset; /* where; 0: no object is concerned, or not known */
	const void *from, *to;	 /* keys concerned lie in [from, to); to NULL: no end */
	size_t flen, tlen;	 /* from NULL: no keys are known */
	uint64_t keys;		 /* so many of them, 0 = not known */
};

#define KVDB_VERIFY_DEEP 0x100u
/**
 * kvdb_verify() - check a closed database, or a checkpoint, without writing to it
 * @pool: path
 * @opts: options, or NULL. With checkpoint set what that lists is checked, also beside the
 *   process that has the database open
 * @flags: MPOOL_VERIFY_DATA: read every value and check its CRC. KVDB_VERIFY_DEEP: that, and
 *   behind damage go on with the next page, name the keys concerned, check filters, counts
 *   and bounds, and name objects that nothing refers to
 * @fn: called per finding; may be NULL
 * @arg: its argument
 * @damage: number of findings that are damage
 * Threads: any. Blocking: I/O. Durability: none; writes nothing.
 * Errors: as kvdb_open(), when it cannot be read at all.
 */
int kvdb_verify(const char *pool, const struct kvdb_opts *opts, unsigned flags,
		mpool_problem_fn *fn, void *arg, uint64_t *damage);

/** struct kvdb_repair - what kvdb_repair() found, or brought over */
struct kvdb_repair {
	uint32_t is_guess;	/* the metadata container is damaged, or lacks its end */
	uint32_t stores;
	uint64_t keys;		/* certainly the newest versions */
	uint64_t found_keys;	/* that something lost may have overwritten or deleted */
	uint64_t lost_values;	/* keys whose newest value cannot be read */
	uint64_t lost_ranges;	/* parts of runs that cannot be read, each with its keys */
	uint64_t log_bytes;	/* of logs that cannot be read */
	uint64_t bytes;		/* keys and values, both kinds */
	uint64_t expired_keys;	/* left out: expired by the clock of this machine */
};

/**
 * kvdb_repair() - bring what can be read of a damaged database into another one
 * @pool: path of the damaged database, which is closed. It is opened for reading and not written
 * @opts: how to open it, or NULL
 * @to: a database without stores; NULL: only say what would be done
 * @fn: called per damage, with a struct kvdb_problem; may be NULL
 * @arg: its argument
 * @out: sums
 *
 * What is certain goes to a store of the same name and options. A key whose newer version may
 * be lost goes to one with ".found" behind the name (cut to fit, numbered when it is taken),
 * also when it is known from the logs alone. Values of transactions are not looked for in the
 * logs. Lost parts of the logs, or of the metadata container (is_guess), make nothing uncertain:
 * in their case overwritten or deleted keys may come back, and stores that are known by number
 * only are named so. Checkpoints are not brought over; what expires lives as long as a put of
 * now, and what has expired is left out: a clock that is more than a day ahead of the time that
 * the database recorded must be confirmed as for an open (KVDB_TIME_JUMP).
 * Threads: any. Blocking: I/O. Durability: what was brought over is durable on return.
 * Errors: as kvdb_open() when nothing can be read at all, -ETIME, -EINVAL (@to has stores, @opts a
 * checkpoint), -ENOSPC, -EROFS (@to).
 */
int kvdb_repair(const char *pool, const struct kvdb_opts *opts, struct kvdb *to,
		mpool_problem_fn *fn, void *arg, struct kvdb_repair *out);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif
#endif
