/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What lower rooms tell and ask higher ones: the only calls that go up. The table is open/hooks.c,
 * the same for every database.
 */
#ifndef KV_HOOKS_H
#define KV_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

struct kvdb;
struct kvdb_txn;

/* Takes space for kv_space_take(); @urgent: from the reserve (R19) too. */
typedef int (*kv_space_fn)(void *arg, bool urgent);

struct kv_hooks {
	/* cq: durable epoch, room, fault or owners changed: queues that wait look again */
	void (*ho_cqs_wake)(struct kvdb *db);
	/* txn: it cannot commit any more, so it owns no keys (T11) */
	bool (*ho_txn_is_dead)(struct kvdb_txn *t);
	/* background: memory, log or segments changed: what writers pay is measured */
	void (*ho_pressure)(struct kvdb *db);
	/* background: there is no room for @take; flushes, merges and moves make some, or try */
	int (*ho_space_take)(struct kvdb *db, bool urgent, kv_space_fn take, void *arg);
	/* background: as ho_space_take, but writers without room take turns */
	int (*ho_space_get)(struct kvdb *db, bool urgent, kv_space_fn take, void *arg);
	/* compact: these bytes of values fit on staging, beside keys and what merges need */
	bool (*ho_staging_has_room)(struct kvdb *db, uint64_t values);
	/* log: the database stopped: threads that wait for durability see the fault */
	void (*ho_flusher_failed)(struct kvdb *db);
};

extern const struct kv_hooks kv_hooks;

#endif
