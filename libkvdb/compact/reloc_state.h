/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What relocation knows; reloc.c decides by it, reloc_state.c answers merges, moves and jobs. */
#ifndef KV_RELOC_STATE_H
#define KV_RELOC_STATE_H

#include "db/parts.h"
#include "compact/reloc.h"
#include "compact/reloc_job.h"

#define KV_RELOC_LOOK_NS	100000000ull	/* between two looks at the space that is in use */

struct kv_reloc {
	pthread_mutex_t rl_lock, rl_age_lock;
	struct kv_promises rl_room;
	_Atomic(bool) rl_is_for_space;	/* the job with rl_lock frees space */
	_Atomic(bool) rl_is_wanted;	/* rl_age_lock, with rl_lock held */
	_Atomic(unsigned) rl_cancels;	/* threads that cancel */
	_Atomic(bool) rl_is_rescue;	/* the job is for a writer that has no room */
	pthread_mutex_t rl_force_lock;	/* the next three; rl_forced is read without it */
	_Atomic(uint64_t) rl_forced;	/* compact all there is: number of the call; 0 = no */
	uint64_t rl_forced_left;	/* bytes of segments that are still to be emptied */
	uint64_t rl_calls;		/* of kv_reloc_force() */
	double rl_max;			/* space_amp_max */
	_Atomic(uint64_t) rl_live;	/* last estimate or count, bytes; 0 = none yet */
	_Atomic(uint64_t) rl_key_bytes;	/* runs of a store's largest part */
	_Atomic(uint64_t) rl_run_bytes;	/* runs of all stores */
	_Atomic(uint64_t) rl_next_ns;	/* next look */
	_Atomic(uint64_t) rl_next_space; /* no estimate before space reaches it ... */
	_Atomic(uint64_t) rl_next_est;	/* ... or the clock this */
	_Atomic(bool) rl_is_awaited;	/* a thread waits for the next look */
	double rl_pace;			/* of the logs, bytes per second; rl_lock */
	uint64_t rl_pace_log, rl_pace_ns; /* log bytes and clock when it was looked at; rl_lock */
	double rl_burst;		/* of the last estimate: allowed above rl_max; rl_lock */
	bool rl_is_short;		/* the pool is nearly full; rl_lock */
	struct kv_backoff rl_backoff;	/* space, */
	double rl_stuck_burst;		/* what a burst allowed above rl_max then; rl_lock */
	_Atomic(uint64_t) rl_room_log;	/* log bytes at the last call for room */
	struct kv_pacer rl_pacer;	/* of a job for space */
	/* jobs for staging follow each other and bring something, or will when more is flushed */
	_Atomic(bool) rl_is_ageing;
	_Atomic(uint32_t) rl_staged_debt;
	_Atomic(uint64_t) rl_staged_ns;	/* when rl_staged_debt is next computed */
	_Atomic(uint64_t) rl_aged_ns;	/* values left staging last, */
	_Atomic(uint64_t) rl_aged_bytes; /* bytes that left in the running job */
	_Atomic(uint64_t) rl_aged_rate;	/* at which they left in the last jobs, bytes per second */
	_Atomic(bool) rl_is_ordering;	/* a job for scans runs */
	_Atomic(unsigned) rl_rescues;	/* writers that have no room */
	_Atomic(uint64_t) rl_rooms;	/* jobs for them that were begun */
	_Atomic(uint64_t) rl_yield_ns;	/* that job's next look at what else is due */
	_Atomic(uint64_t) rl_next_order; /* next look at what scans have paid */
	uint64_t rl_next_half;		/* half of it is forgotten then; rl_lock */

	struct kv_rjob rl_job;		/* rl_lock */
	struct kv_rjob rl_age;		/* rl_age_lock */
	struct kv_backoff rl_wrong_backoff;	/* bytes in the wrong place; rl_lock */
	uint64_t rl_right_gen;		/* te_gen when those were too few for a job; rl_lock */
	uint64_t rl_counts;		/* times that they were counted, for tests; rl_lock */
	struct kv_backoff rl_old_backoff;	/* bytes on staging; rl_age_lock */
	_Atomic(uint64_t) rl_let_go;	/* times that what held values back let go of them */
	uint64_t rl_seen, rl_age_seen;	/* so many with rl_lock, rl_age_lock held */
	struct kv_trouble rl_trouble;	/* writes of moved values that failed (FS2) */
};

/* Space that segments and runs take; what kv_reloc_key_bytes() and kv_reloc_run_bytes() say. */
uint64_t kv_reloc_space(struct kvdb *db);
/* A job for scans has time: it ends when another one is due. */
bool kv_reloc_must_yield(struct kvdb *db);
/* Of the bytes of values on staging those that are to leave it. */
uint64_t kv_reloc_staged_excess(struct kvdb *db, uint64_t staged);

#endif
