/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Background work: memtable switches and flushes, segment upkeep, merges. */
#ifndef KV_WORK_H
#define KV_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "db/hooks.h"

struct kv_log;
struct kv_mt;
struct kv_seg;
struct kvdb;
struct kvdb_kvs;

int kv_work_start(struct kvdb *db);
/* Ends the threads; the flusher may still kick, so the rest goes after it: kv_work_fini(). */
void kv_work_stop(struct kvdb *db);
void kv_work_fini(struct kvdb *db);
/* One step of whatever is due (memtable flush, merge, segment upkeep): 1, 0, -errno. */
int kv_work_step(struct kvdb *db);
/* It is being closed and has flushed for long enough. */
bool kv_is_late(struct kvdb *db);

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
/* Flushes one frozen memtable to a run, or several small ones: 1, 0 (none is ready), -errno. */
int kv_flush_step(struct kvdb *db);
/*
 * TH-19: flushes small memtables with a boundary of at most @upto together, as far as that works:
 * kv_flush_oldest() follows. The caller holds k_flush_lock of all stores, and none comes or goes.
 */
void kv_flush_small(struct kvdb *db, uint64_t upto);
/* It costs less to flush it than to make that durable. */
bool kv_mt_is_small(struct kvdb *db, const struct kv_mt *mt);
/*
 * Full media: flushes the memtables, so that key logs come free, merges and
 * frees what is dead. Whatever it gains; errors show where space is asked for.
 * It waits for threads in kv_runs_reap() or in an upkeep step of segments (G14).
 */
void kv_make_room(struct kvdb *db);
/* Writers that find no room wait so long for threads that make some. */
#define KV_PATIENCE_NS	10000000000ull
/*
 * R19: true, after a nap, while another thread merges, moves values or deletes: until its end a
 * merge has the room of what it replaces and of what it writes, and then gives back one of the two.
 * Asked before the try that decides, for it may end in between. False ten seconds after @since_ns.
 */
bool kv_space_comes(struct kvdb *db, uint64_t since_ns);
/* A thread merges, moves values or deletes. */
bool kv_is_making_room(struct kvdb *db);
/* A thread deletes what is dead, or is about to. */
bool kv_is_freeing(struct kvdb *db);
/*
 * The caller found no room: has room made and takes it, and waits while other threads may bring
 * some; a delete, @urgent, takes from the reserve only then. -ENOSPC: none of them brings any.
 */
int kv_space_take(struct kvdb *db, bool urgent, kv_space_fn take, void *arg);
/*
 * For frequent callers: takes it. Where there is none, one caller at a time does as kv_space_take()
 * (G7), and the others wait for it to make room. -ENOSPC: as above.
 */
int kv_space_get(struct kvdb *db, bool urgent, kv_space_fn take, void *arg);

/* ---- pressure.c ---- */

/* Looks at memory and log space: asks for memtable switches, holds writers back. */
void kv_pressure(struct kvdb *db);
/* Blocks while writers are held back; -ENOSPC, -EROFS. @urgent: deletes go on longer. */
int kv_stall_wait(struct kvdb *db, bool urgent);
/*
 * The log needs a segment, which may take I/O; on a full pool room is made
 * first. Only an @urgent caller (deletes) takes from the reserve (R19).
 */
int kv_segment_wait(struct kvdb *db, struct kv_log *lo, bool urgent);
/*
 * The log has to leave segment @at for one on staging, where room is made if that may help:
 * kv_log_restage().
 */
int kv_segment_staging(struct kvdb *db, struct kv_log *lo, const struct kv_seg *at);

/* ---- boundary.c ---- */

/*
 * C1: *e = an epoch at whose end every active memtable was switched or empty, durable; *seq =
 * what was stamped until then is at most it, what comes later is above. Until
 * kv_boundary_leave(), which follows in any case, no other thread flushes a store.
 * m_ddl_lock is held.
 */
int kv_boundary_enter(struct kvdb *db, uint64_t *e, uint64_t *seq);
void kv_boundary_leave(struct kvdb *db);
/* k_flush_lock of all stores, in order of slots. With m_ddl_lock held none comes or goes. */
void kv_flushes_lock(struct kvdb *db);
void kv_flushes_unlock(struct kvdb *db);
/* Flushes every memtable whose boundary is at most @upto; with these locks. */
int kv_boundary_flush(struct kvdb *db, uint64_t upto);

#endif
