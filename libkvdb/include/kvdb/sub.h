/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * libkvdb: sub-stores. Part of <kvdb/kvdb.h>, which is what programs
 * include; the conventions there hold here.
 *
 * A database has few stores. What a program has thousands of (tables of users, partitions,
 * indexes) it keeps as sub-stores of one: each is a name of any bytes for a number, and its keys
 * are all that begin with that number. Reads, cursors, transactions and batches take such keys as
 * any others; a cursor or a delete by prefix is given the number alone, which is also the empty
 * key.
 *
 * The store is made with kvdb_kvs_opts.pfx_len = KVDB_SUB_LEN, has no time to live, and holds
 * nothing else. The names are the keys behind KVDB_SUB_NAMES, each with its number as the value: a
 * cursor of that prefix lists them in the order of their bytes. First comes a key of that prefix
 * alone, which is no name: its value is the number that was given last.
 */
#ifndef KVDB_SUB_H
#define KVDB_SUB_H

#include <stddef.h>
#include <stdint.h>

#include <mpool/mpool.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

struct kvdb_kvs;

#define KVDB_SUB_LEN 4u			/* bytes in front of each key of a sub-store */
#define KVDB_SUB_NAMES "\0\0\0\0"	/* those in front of each name */
#define KVDB_SUB_NAME_MAX 1340u		/* bytes of a name; its key has KVDB_SUB_LEN more */

#define KVDB_SUB_CREATE 0x1u /* open: make it if there is none of that name */

/**
 * kvdb_sub_open() - find a sub-store, or make it
 * @kvs: store of sub-stores
 * @name: 1 .. KVDB_SUB_NAME_MAX bytes
 * @nlen: its length
 * @flags: 0 or KVDB_SUB_CREATE
 * @prefix: set to its number, in big-endian order: no other sub-store of the store has or had it
 * Threads: any. Of those that make or drop one in a store one works at a time, also while it waits
 * for a transaction. Blocking: as kvdb_get(); to make it as kvdb_write(). Durability: of a new one as kvdb_put(): no write of its keys that comes later
 * survives without it.
 * Errors: -ENOENT (MP0958: none of that name), -EINVAL (name, flags; MP0957: a store of another
 * kind), -ENAMETOOLONG, -EDQUOT (MP0959: 4,294,967,294 were made), -EUCLEAN, and as kvdb_write().
 */
int kvdb_sub_open(struct kvdb_kvs *kvs, const void *name, size_t nlen, unsigned flags,
		  uint8_t prefix[KVDB_SUB_LEN]);
/**
 * kvdb_sub_drop() - remove a sub-store and all of its keys, in constant time
 * @kvs: store of sub-stores
 * @name: 1 .. KVDB_SUB_NAME_MAX bytes
 * @nlen: its length
 * Nothing may be written under its number any more: what is, is found there, and no drop takes it.
 * Threads: any, as kvdb_sub_open(). Blocking: as kvdb_write(). Durability: as kvdb_put(); a crash
 * leaves the name with all of its keys, or neither.
 * Errors: as kvdb_sub_open(), and -ECANCELED (an open transaction has keys of it).
 */
int kvdb_sub_drop(struct kvdb_kvs *kvs, const void *name, size_t nlen);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
