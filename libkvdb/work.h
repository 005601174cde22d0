/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Background work: memtable switches and flushes, segment upkeep, merges. */
#ifndef KV_WORK_H
#define KV_WORK_H

#include "kv.h"

/* Prepares the next memtable of a store: the switch happens when the open epoch ends. */
int kv_switch_prepare(struct kvdb *db, struct kvdb_kvs *kvs);
/* Prepares a switch in every store that holds records. */
int kv_switch_all(struct kvdb *db);
/* Prepares switches of memtables that had their share: 1, 0, -errno. */
int kv_switch_step(struct kvdb *db);
/*
 * Flushes the store's oldest frozen memtable if its boundary is at most @upto: 1, 0, -errno.
 * The caller holds k_flush_lock.
 */
int kv_flush_oldest(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t upto);
/*
 * LF14: what ended with @err is to be done again. *@tries begins with 0. With threads of the
 * database it sleeps before, up to 40 ms.
 */
bool kv_is_tried_again(struct kvdb *db, int err, unsigned *tries);
/* Flushes one frozen memtable to a run: 1, 0 (none is ready), -errno. */
int kv_flush_step(struct kvdb *db);
/*
 * Full media: flushes the memtables, so that key logs come free, merges and
 * frees what is dead. Whatever it gains; errors show where space is asked for.
 * It waits for who is in kv_runs_reap() or an upkeep step of segments (G14).
 */
void kv_make_room(struct kvdb *db);
/* Asks the flusher to end the open epoch soon. */
void kv_flusher_tick(struct kvdb *db);
/*
 * The store in slot @i of d_kvs, kept from being dropped until
 * kv_kvs_release(); NULL = none.
 */
struct kvdb_kvs *kv_kvs_hold(struct kvdb *db, uint32_t i);
void kv_kvs_release(struct kvdb_kvs *kvs);

#endif
