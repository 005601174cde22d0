/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The flusher's state: how epochs are closed, and what threads wait for. */
#ifndef KV_FLUSH_H
#define KV_FLUSH_H

#include "db/db.h"
#include "log/desc.h"
#include "log/log.h"

struct kv_epoch_seg {		/* a segment that the epoch in hand wrote to */
	struct kv_seg *es_seg;
	uint32_t es_end;
	uint32_t es_chain;
};

/* Bytes per second, before anything is known: one that is less is found out too late. */
#define KV_LAG_FIRST_RATE	(32u << 20)

struct kv_lag {
	_Atomic(uint64_t) lg_rate;	/* bytes per second that devices proved */
	/* when the epoch in hand was closed, what was unwritten then; fl_io_lock */
	uint64_t lg_since_ns, lg_bytes;
	uint64_t lg_epoch_bytes;	/* what was logged in it; fl_io_lock */
	_Atomic(uint64_t) lg_flush_ns;	/* what a flush takes */
	/* since the devices got something to do; the flusher's */
	uint64_t lg_busy_ns, lg_busy_bytes;
	bool lg_is_proven;		/* an epoch was measured */
};

struct kv_flusher {
	pthread_t fl_thread;
	bool fl_started;
	pthread_mutex_t fl_lock;	/* the fields of this group */
	pthread_cond_t fl_wake;		/* the flusher sleeps here */
	pthread_cond_t fl_done;		/* room or fault changed */
	bool fl_stop;
	bool fl_kicked;			/* a frame is full */
	_Atomic(uint64_t) fl_want;	/* a thread waits for this epoch; written under fl_lock */

	_Atomic(uint32_t) fl_turn;	/* changes with the durable epoch and at a fault; futex */
	_Atomic(uint64_t) fl_gate_ns;	/* no acknowledgement from this time on (R1) */
	_Atomic(bool) fl_stall;		/* memtables or logs are over their budget */
	_Atomic(bool) fl_is_tight;	/* or half way there from where writers are slowed */
	_Atomic(int) fl_space_err;	/* why background work cannot make room, or 0 */
	_Atomic(uint64_t) fl_full_ns;	/* flushes have found none since then, or 0 */

	pthread_mutex_t fl_io_lock;	/* one writer of frames; outside ep_tick_lock */
	struct mpool_ioq *fl_ioq;	/* fl_io_lock, like all below */
	unsigned int fl_inflight;
	unsigned int fl_classes;	/* written since the last flush: bit per class */
	struct kv_frame *fl_written;	/* frames on their way, until the flush */
	struct kv_descs fl_descs;	/* desc.c */
	struct kv_lag fl_lag;		/* lag.c */
	struct kv_epoch_seg *fl_segs;	/* of the epoch in hand */
	uint32_t fl_nsegs, fl_maxsegs;
};

int kv_flusher_start(struct kvdb *db);
/* A frame is full: it may be written before its epoch ends. */
void kv_flusher_kick(struct kvdb *db);
/* Memory or log space came free: writers that wait may go on. */
void kv_flusher_room(struct kvdb *db);
/* The database stopped: threads that wait for durability see the fault. */
void kv_flusher_failed(struct kvdb *db);
/* True when the open epoch should end now. */
bool kv_epoch_is_due(struct kvdb *db);
/* The first record of epoch @e was reserved: sets the gate (R1). */
void kv_gate_set(struct kvdb *db, uint64_t e);
void kv_flusher_stop(struct kvdb *db);
/* Closes the open epoch, writes it, flushes the devices, publishes durable_epoch. */
int kv_epoch_sync(struct kvdb *db);
/*
 * Before a change that is durable at once: what was acknowledged so far is durable on return, for
 * a crash takes a suffix of history (P4).
 */
int kv_change_sync(struct kvdb *db);
/* Waits until @epoch is durable. */
int kv_wait_durable(struct kvdb *db, uint64_t epoch);
/* The same up to @until, of CLOCK_MONOTONIC: then -ETIMEDOUT. With KVDB_MANUAL it does the work. */
int kv_wait_durable_until(struct kvdb *db, uint64_t epoch, const struct timespec *until);
/* Asks for @epoch to be durable, without waiting. */
void kv_want_durable(struct kvdb *db, uint64_t epoch);
/* The epoch that is to be durable for all that was acknowledged so far. */
uint64_t kv_sync_epoch(struct kvdb *db);
/* The loss bound forbids acknowledgements of what is not durable (R1). */
bool kv_gate_is_shut(struct kvdb *db);

/* Ends the open epoch, empty or not, and makes it durable. */
int kv_epoch_force(struct kvdb *db);
/* Asks the flusher to end the open epoch soon. */
void kv_flusher_tick(struct kvdb *db);

/* Waits until the epochs before @e are closed (R4). */
void kv_closed_wait(struct kvdb *db, uint64_t e);
/* Blocks an acknowledgement that the loss bound forbids (R1). */
int kv_gate_wait(struct kvdb *db);

/* Zeroed, and kept until the write is done. */
struct kv_pending_write {
	uint64_t bg_epoch;	/* result */
	uint64_t bg_due_ns;	/* when the throttle lets it go; 0: it was not asked yet */
};

/* ---- lag.c ---- */

void kv_lag_init(struct kvdb *db);
/* Until an epoch was measured writes prove a rate, too: the devices get work; some is done. */
void kv_lag_busy(struct kvdb *db);
void kv_lag_written(struct kvdb *db, uint32_t bytes);
/* The epoch in hand is closed; it is written; a flush took @ns. fl_io_lock held. */
void kv_lag_begin(struct kvdb *db);
void kv_lag_end(struct kvdb *db, uint64_t epoch);
void kv_lag_flushed(struct kvdb *db, uint64_t ns);
/* The estimate of a flush's time, @flush_ns before, after one that took @ns. Pure. */
uint64_t kv_lag_flush(uint64_t flush_ns, uint64_t ns);
/*
 * How long an epoch lasts that holds @least bytes: no longer than a device needs that
 * takes @flush_ns for a flush and writes at @rate. Pure.
 */
uint64_t kv_lag_span(uint64_t bound_ns, uint64_t flush_ns, uint64_t least, uint64_t rate);
uint64_t kv_lag_epoch_ns(struct kvdb *db);
/* So many bytes are worth an epoch: what it pads is little beside them. */
uint64_t kv_lag_least(struct kvdb *db);
/* What a device proves that wrote @bytes in @ns, and proved @rate before. Pure. */
uint64_t kv_lag_rate(uint64_t rate, uint64_t bytes, uint64_t ns);
/*
 * Debt of an open epoch of that age, when @bytes wait for devices that write at @rate and
 * epochs last @span_ns. Pure.
 */
uint32_t kv_lag_part(uint64_t bound_ns, uint64_t span_ns, uint64_t age_ns, uint64_t bytes,
		     uint64_t rate);
/* How far the loss bound is used up. */
uint32_t kv_lag_debt(struct kvdb *db);

/* R1: the epoch is born with its first reservation. */
static inline void kv_epoch_first(struct kvdb *db, uint64_t epoch)
{
	_Atomic(uint64_t) *b = &db->d_logs->ls_birth[epoch % 4];

	if (KV_UNLIKELY(atomic_load_explicit(b, memory_order_acquire) == 0))
		kv_gate_set(db, epoch);
}

/* The thread that was first in the epoch may have lost the processor before it set the gate. */
static inline void kv_gate_check(struct kvdb *db, uint64_t epoch)
{
	if (KV_UNLIKELY(atomic_load_explicit(&db->d_flusher->fl_gate_ns, memory_order_relaxed) ==
			UINT64_MAX) &&
	    db->d_mode.md_interval_ms != KVDB_INTERVAL_NONE &&
	    atomic_load(&db->d_epochs.ep_durable) < epoch)
		kv_gate_set(db, epoch);
}

/* An acknowledgement waits for what the loss bound or the caller demands (R1). */
static inline int kv_ack(struct kvdb *db, uint64_t epoch, bool is_durable)
{
	struct kv_flusher *fl = db->d_flusher;

	kv_gate_check(db, epoch);
	if (db->d_mode.md_commit || is_durable)
		return kv_wait_durable(db, epoch);
	if (KV_UNLIKELY(atomic_load_explicit(&fl->fl_gate_ns, memory_order_relaxed) !=
			UINT64_MAX && kv_now(db) >= atomic_load(&fl->fl_gate_ns)))
		return kv_gate_wait(db);
	return 0;
}

#endif
