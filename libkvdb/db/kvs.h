/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The state of a store. */
#ifndef KV_KVS_H
#define KV_KVS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#include "db/parts.h"
#include "db/props.h"
#include "db/throttle.h"

struct kv_mt;
struct kv_tree;
struct kvdb;

struct kvdb_kvs {
	struct kvdb *k_db;
	uint32_t k_id;
	uint32_t k_slot;	/* its place in sr_kvs */
	char k_name[KVDB_NAME_MAX + 1];
	_Atomic(struct kv_tree *) k_tree;	/* readers: inside kv_enter() */
	pthread_mutex_t k_tree_lock;		/* replaces k_tree */
	/* one flush builds at a time; outside k_edit_lock */
	pthread_mutex_t k_flush_lock;
	/* LF11: no flush with less than this free, until then; k_flush_lock */
	uint64_t k_full_free, k_full_ns;
	struct kv_trouble k_flush_trouble;
	/* one flush or merge publishes at a time; outside k_tree_lock */
	pthread_mutex_t k_edit_lock;
	_Atomic(uint64_t) k_horizon;		/* durable replay horizon (R4), epochs */
	uint64_t k_next_pos;			/* next rd_pos, k_edit_lock */
	_Atomic(uint32_t) k_cursors;		/* and transactions that wrote to it */
	_Atomic(uint32_t) k_gone;		/* cursors without a snapshot, not closed */
	struct kv_merging k_merging;
	struct kv_toll k_toll;		/* of its writers alone (TH-17) */
	_Atomic(uint32_t) k_compact;	/* enum kv_compact_state */
	_Atomic(int) k_compact_err;	/* why that ended before its end, since it was asked for */
	_Atomic(uint64_t) k_compact_run; /* runs with smaller ids are to be merged */
	_Atomic(bool) k_bulk;		/* a bulk load has a place among the runs: no merge */
	/* background work on it: wait for 0 before freeing */
	_Atomic(uint32_t) k_holds;
	_Atomic(struct kv_mt *) k_next_mt;	/* prepared for the next switch, or NULL */
	/* large transactions that link into the active memtable: it is not switched (T17) */
	_Atomic(uint32_t) k_linking;
	_Atomic(uint64_t) k_prop[KV_PROPS];	/* by enum kv_prop; written under m_ddl_lock */
	_Atomic(bool) k_dropped;	/* its handle stays, and takes no writes */
	struct kvdb_kvs *k_next;	/* the one that was dropped before it; m_ddl_lock */
	/*
	 * Writer: a delete of many keys is stamped, a bulk load appears; reader: an
	 * update looks at such and is stamped (U1). A leaf, held without I/O or waiting.
	 */
	pthread_rwlock_t k_many_lock;
	struct kv_gaps k_gaps;
	pthread_mutex_t k_sub_lock;	/* the list of sub-stores (SUB1); outside all others */
};

/* The stores of a database. */
struct kv_stores {
	pthread_mutex_t sr_lock;	/* the array below */
	struct kvdb_kvs *sr_kvs[KVDB_KVS_MAX];
	bool sr_coming;			/* a store is being made; sr_lock */
	uint32_t sr_n;
	uint32_t sr_next_id;
};

#endif
