/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The metadata container of an open database, seen by the files that open,
 * recover and check it. The state is guarded by m_lock, except while the
 * database is being opened (one thread).
 */
#ifndef KV_MDC_H
#define KV_MDC_H

#include "meta/mdc_omf.h"

#define KV_MDC_NAME "kvdb"

struct kv_mdc {
	struct kvdb *m_db;
	struct mpool_mdc *m_log;	/* NULL in tests of recovery without a container */
	uint8_t m_mclass;
	pthread_mutex_t m_lock;		/* order of records; below d_kvs_lock and k_edit_lock */
	struct kv_mdc_state m_st;
	bool m_is_cut;			/* repair: only what lies in front of damage */
	_Atomic(bool) m_allows_large;	/* KV_FEAT_LARGE is durable; a hint: false asks m_st */
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
/* True when a container holds a database; false when it is none or half made. */
int kv_mdc_probe(struct mpool *mp, bool *is_there);

/* The first step of kv_mdc_edit(), which ends it; RV9. For the tests. */
int kv_mdc_announce(struct kv_mdc *m, const struct kv_edit *ed, bool *is_announced);
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
int kv_mdc_kvs_drop(struct kvdb *db, uint32_t id);
int kv_mdc_kvs_rename(struct kvdb *db, uint32_t id, const char *name);
/* R3: the parts and the record, durable on return. @seg ascending, every live segment. */
int kv_mdc_incarn(struct kvdb *db, const struct kv_mdc_incarn *in, const struct kv_mdc_seg *seg,
		  uint32_t n);
/* Segments that are sealed and durable; not synced, a hint that a crash may lose. */
int kv_mdc_segs(struct kvdb *db, const struct kv_mdc_seg *seg, uint32_t n);
/* Blocks that recovery may delete; durable with the next record that is. */
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
/* Adds (@by 1) or takes (-1) a durable run's references on its segments. */
void kv_run_count(struct kvdb *db, struct kv_run *r, int by);
/* tree.c: a tree with one memtable; references on what is given are taken over */
struct kv_tree *kv_tree_new(struct kvdb *db, struct kv_mt *mt);
/* A dropped store: @blank, taken over, is its tree, with neither memtables nor runs. */
void kv_tree_empty(struct kvdb_kvs *kvs, struct kv_tree *blank);

/* seg.c: the table of all segments of the pool with this database's tag */
int kv_segs_load(struct kvdb *db);
struct kv_seg *kv_segs_first(struct kvdb *db);	/* newest first; open and recovery only */
/* All that there are. */
uint32_t kv_segs_count(struct kvdb *db);
/* Those that upkeep looks at. For the tests. */
uint32_t kv_segs_watched(struct kvdb *db);
/* Close: seals what is full, records where every segment ends, gives the stock back. */
int kv_segs_finish(struct kvdb *db);

/* kvdb.c: @in checked and with its defaults, as every call takes options; @flags come to it */
int kv_opts_take(const struct kvdb_opts *in, uint32_t flags, struct kvdb_opts *o);
/* kvdb.c: everything up to the opened runs */
int kv_db_attach(struct kvdb *db, const char *pool, const struct kvdb_opts *o, bool is_rdonly);
int kv_db_load_kvs(struct kvdb *db, uint32_t from, bool with_runs);
/* The rest of an open: stores, recovery, threads. After a failure kv_db_detach() follows. */
int kv_db_start(struct kvdb *db);
void kv_db_detach(struct kvdb *db);
/*
 * After an attempt to open at a checkpoint: what a writer changes below a look can look like
 * damage; what stays is damage. True after a while to wait: try again.
 */
bool kv_look_again(const struct kvdb_opts *o, int err, int *looks);
/*
 * recover.c: for repair. Replays every frame that is whole, whatever is missing before or
 * between, to the newest epoch; calls fn per stretch of a segment that is not.
 */
typedef void kv_hole_fn(void *arg, const struct kv_seg *s, uint32_t from, uint32_t to);
int kv_recover_lossy(struct kvdb *db, kv_hole_fn *fn, void *arg);
/*
 * recover.c: reads every segment whole, whatever the horizon says; calls fn per stretch that is
 * damaged. What an unfinished epoch left is not, if kv_recover() said where that begins.
 */
int kv_logs_check(struct kvdb *db, bool check_values, kv_hole_fn *fn, void *arg);

#endif
