/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Upkeep of segments and of runs: what is sealed, and what is deleted. */
#ifndef KV_UPKEEP_H
#define KV_UPKEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_seg;
struct kvdb;

/*
 * One step of upkeep: refill the stock, seal FULL segments whose frames are
 * durable, delete dead ones (R6). 1 = did something, 0 = nothing due, or -errno.
 */
int kv_segs_step(struct kvdb *db);
/* Deletes as many as are dead now, however many. 0, -errno; -ENOMEM: kv_segs_step() will. */
int kv_segs_free_dead(struct kvdb *db);
/* Of those only what was never written, as recovery has found it. */
int kv_segs_free_unused(struct kvdb *db);

/* Seals them now: they are durable on return, and the container says where they end. */
int kv_segs_seal(struct kvdb *db, struct kv_seg **seg, size_t n);
/* Ends segments that kv_segs_alloc_moved() gave: durable, sealed, listed. */
int kv_segs_seal_moved(struct kvdb *db, struct kv_seg **seg, unsigned n);
/* Seals every full segment whose frames are durable, however few they are. */
int kv_segs_seal_now(struct kvdb *db);

/* A thread is in the middle of a step. */
bool kv_segs_are_busy(struct kvdb *db);
/* Reads the table of all segments of the pool with this database's tag. */
int kv_segs_load(struct kvdb *db);

/* Close: seals what is full, records where every segment ends, gives the stock back. */
int kv_segs_finish(struct kvdb *db);

/* ---- reap.c ---- */

/*
 * Deletes the objects of dropped runs that have no reader any more, and what checkpoints kept of
 * them: 1 = did something. What fails is left for the next call.
 */
int kv_runs_reap(struct kvdb *db);

#endif
