/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The metadata container of an open database, seen by the files that open,
 * recover and check it. The state is guarded by m_lock, except while the
 * database is being opened (one thread).
 */
#ifndef KV_MDC_H
#define KV_MDC_H

#include <pthread.h>
#include <stdatomic.h>

#include "meta/mdc_omf.h"

struct kv_leaf;
struct kv_mdc_capture;
struct kv_run;

#define KV_MDC_NAME "kvdb"

struct kv_mdc {
	struct kvdb *m_db;
	struct mpool_mdc *m_log;	/* NULL in tests of recovery without a container */
	uint8_t m_mclass;
	pthread_mutex_t m_lock;		/* order of records; below sr_lock and k_edit_lock */
	struct kv_mdc_state m_st;
	uint64_t m_have;		/* bytes of each log with space below; m_lock */
	uint64_t m_counted, m_counted_at;	/* length of the state, as counted at used bytes */
	bool m_is_cut;			/* repair: only what lies in front of damage */
	_Atomic(uint32_t) m_allows;	/* KV_FEAT_* known to be durable */
	struct kv_mdc_buf m_buf;
	uint32_t m_nannounced;		/* edits between announcement and record; m_lock */
	uint32_t m_nquiet;		/* blocks of the others, no record lists them yet; m_lock */
	struct kv_mdc_capture *m_capture;	/* records go there, not to m_log; m_lock */
	pthread_mutex_t m_ddl_lock;	/* one store is made or dropped at a time; outermost */
	struct kvdb_kvs *m_dropped;	/* users keep their handles until close; m_ddl_lock */
};

/* Opens the container and replays it to its end. -ENOENT: none, or one without its first record. */
int kv_mdc_open(struct kvdb *db);
void kv_mdc_close(struct kvdb *db);
/* Makes an empty container whose first record is @s. -EEXIST. */
int kv_mdc_create(struct mpool *mp, uint8_t mclass, uint64_t bytes, const struct kv_mdc_super *s);
/* True when a container holds a database; false when there is none, or half a one. */
int kv_mdc_probe(struct mpool *mp, bool *is_there);

int kv_mdc_kvs_add(struct kvdb *db, uint32_t id, const char *name, uint64_t horizon,
		   const struct kv_props *props);
/* Changes those options of a store that @which names, durable on return. */
int kv_mdc_kvs_prop(struct kvdb *db, uint32_t id, const struct kv_props *props, uint32_t which);
/* Records the engine time, durably, if anything expires. */
int kv_mdc_time(struct kvdb *db);
/* A step of background work: records the time once an hour, if anything expires. */
int kv_time_step(struct kvdb *db);
/*
 * In front of a put that expires: the database may be opened by a clock that is wrong before
 * anything else records the time. The first one of a database waits for the container; -errno.
 */
int kv_time_keep(struct kvdb *db);
/* KV_FEAT_LARGE is durable on return. Outside kv_enter(). */
int kv_mdc_allow_large(struct kvdb *db);
/* The same of KV_FEAT_TXN_RANGES, and KV_FEAT_TXN_PARTS. */
int kv_mdc_allow_txn_ranges(struct kvdb *db);
int kv_mdc_allow_txn_parts(struct kvdb *db);
int kv_mdc_kvs_drop(struct kvdb *db, uint32_t id);
int kv_mdc_kvs_rename(struct kvdb *db, uint32_t id, const char *name);
/* R3: the parts and the record, durable on return. @seg ascending, every live segment. */
int kv_mdc_incarn(struct kvdb *db, const struct kv_mdc_incarn *in, const struct kv_mdc_seg *seg,
		  uint32_t n);
/* Segments that are sealed and durable; not synced, a hint that a crash may lose. */
int kv_mdc_segs(struct kvdb *db, const struct kv_mdc_seg *seg, uint32_t n);
/* Blocks that recovery may delete; durable with the next record that syncs. */
int kv_mdc_gone(struct kvdb *db, const uint64_t *id, uint32_t n);
/* The objects are deleted; @id gets another order. */
void kv_mdc_segs_gone(struct kvdb *db, uint64_t *id, size_t n);
int kv_mdc_clean(struct kvdb *db, uint64_t epoch);
/*
 * The tree of all stores as records, for a manifest: super, @segs, stores with their runs;
 * what only the log has (cuts, incarnation, objects that are gone, checkpoints) is not in it.
 */
struct kv_mdc_capture {
	const struct kv_mdc_seg *mp_seg;	/* ascending */
	size_t mp_nseg;
	struct kv_mdc_buf mp_out;		/* the records, back to back */
};
int kv_mdc_capture(struct kvdb *db, struct kv_mdc_capture *cap);
int kv_mdc_ckpt_add(struct kvdb *db, const struct kv_mdc_ckpt *c);
int kv_mdc_ckpt_drop(struct kvdb *db, uint64_t obj);
/* ---- leaves.c ---- */

/* -EUCLEAN when a run of the store holds keys outside of its leaf. */
int kv_leaf_check(const struct kv_mdc_kvs *k, struct kv_run *r);
/* The leaves of a store as the container has them, for its first tree: 0 or -ENOMEM. */
int kv_leaves_load(const struct kv_mdc_kvs *k, struct kv_leaf **out);

#endif
