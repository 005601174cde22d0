/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What writers pay when background work is behind. */
#ifndef KV_THROTTLE_H
#define KV_THROTTLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#define KV_DEBT_MAX	1000u

/* What writers are charged for a debt. */
struct kv_toll {
	_Atomic(uint32_t) to_cost;	/* ns per KiB, 0 = free */
	_Atomic(uint32_t) to_cause;	/* enum kvdb_delay: the largest debt */
	_Atomic(uint64_t) to_next;	/* virtual clock, ns */
};

struct kv_delay {
	_Atomic(uint64_t) de_waits, de_ns, de_max_ns;
};

struct kv_throttle {
	struct kv_toll th_all;		/* of all writers */
	_Atomic(uint64_t) th_looked;	/* when the debt was measured last, ns */
	struct kv_delay th_delay[KVDB_DELAYS];
};

/* Share of [from, limit] that @have has used up, in thousandths. */
uint32_t kv_debt_part(uint64_t have, uint64_t from, uint64_t limit);
/* ns per KiB at the debt, in thousandths. */
uint32_t kv_throttle_cost(uint32_t debt);
/* The debt that permits the bytes per second. Pure. */
uint32_t kv_throttle_debt(double rate);
/* Sets rate and cause from the parts of the debt, by enum kvdb_delay. */
void kv_toll_set(struct kv_toll *to, const uint32_t part[KVDB_DELAYS]);
/* The dearer one of the database's and the store's. */
struct kv_toll *kv_toll_of(struct kvdb *db, struct kvdb_kvs *kvs);
/* A write of @bytes that is charged @to: sleeps until it is due. */
void kv_throttle(struct kvdb *db, struct kv_toll *to, uint32_t bytes);
/* Measures the debt if that was not done for a while. */
void kv_throttle_look(struct kvdb *db, uint64_t now);
/*
 * Likewise for a caller that cannot sleep: true when it may go. *due_ns is 0 at the first
 * call for a write, and kept for the others.
 */
bool kv_throttle_begun(struct kvdb *db, struct kv_toll *to, uint32_t bytes, uint64_t *due_ns);
/* Counts a wait of a writer, which is the calling thread. */
void kv_delayed(struct kvdb *db, unsigned cause, uint64_t ns);
/* The same of a write in a queue, whose thread does not wait. */
void kv_postponed(struct kvdb *db, unsigned cause, uint64_t ns);
/* What would hold a writer back now. */
unsigned kv_delay_cause(struct kvdb *db);
void kv_throttle_stats(struct kvdb *db, struct kvdb_stats *st);

#endif
