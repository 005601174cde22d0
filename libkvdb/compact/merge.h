/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Compaction of runs: what chooses them, one merge of them. */
#ifndef KV_MERGE_H
#define KV_MERGE_H

#include <kvdb/kvdb.h>

#include "db/parts.h"
#include "seg/value.h"
#include "mem/tomb.h"
#include "compact/progress.h"

struct kv_iter;
struct kv_leaf;
struct kv_run;
struct kv_tree;

#define KV_MERGE_MAX	32u	/* sources */

/* ---- merge_pick.c: the choice ---------------------------------------------------------- */

/*
 * kv_pick_part - which runs of a leaf, or of a store without leaves, are due
 * @run: all of them, or if not @is_all the newest ones, newest first.
 * The group is [*first, *first + returned); 0: none.
 */
unsigned kv_pick_part(struct kvdb_kvs *kvs, struct kv_run **run, unsigned n, bool is_all,
		      unsigned *first);
/*
 * LF6: of more runs than a leaf should have, for which what kv_pick_part() says has no room. It
 * merges fewer of them, which brings back no space.
 */
unsigned kv_pick_fitting(struct kvdb_kvs *kvs, struct kv_run **run, unsigned n, unsigned *first);
/* The same for kvdb_compact(): all, or of too many the oldest, which others may follow to. */
unsigned kv_pick_asked(struct kvdb *db, struct kv_run **run, unsigned n, unsigned *first);
/* LF2: twice a leaf's keys: all of it is merged, which splits it. */
bool kv_split_is_due(const struct kvdb_kvs *kvs, const struct kv_tree *tr, struct kv_run **run,
		     unsigned n);
/* Keys of each piece when @keys are cut; 0: no more leaves can be made. */
uint64_t kv_leaf_cut(const struct kvdb_kvs *kvs, const struct kv_tree *tr, uint64_t keys,
		     uint64_t leaf);
/* Keys of one leaf, if they are as long as those of these runs. */
uint64_t kv_leaf_keys(struct kvdb *db, struct kv_run *const *run, unsigned n);
/* R19: the upper runs delete a quarter of all keys below, or hold as many. */
bool kv_spill_for_space(struct kvdb *db, struct kv_tree *tr);
/*
 * kv_merge_output - bytes that a merge will write, about
 * @pieces: leaves that a spill has keys for, where nothing is dropped; else every deletion removes
 * itself and, most likely, what it deletes
 */
uint64_t kv_merge_output(struct kv_run *const *run, unsigned n, unsigned pieces);
/*
 * On a full pool a merge that cannot hold its output would only take the room
 * that deletes and flushes live on. @pieces: as for kv_merge_output()
 */
bool kv_merge_fits(struct kvdb_kvs *kvs, struct kv_run *const *run, unsigned n, unsigned pieces);
/* Of a merge that is no spill: it will, when those that run now have ended. */
bool kv_merge_will_fit(struct kvdb_kvs *kvs, struct kv_run *const *run, unsigned n);
uint64_t kv_runs_keys(struct kv_run *const *run, unsigned n);
uint64_t kv_runs_bytes(struct kv_run *const *run, unsigned n);	/* media they take */

/* ---- merge_job.c: one merge -------------------------------------------------------------- */

enum kv_merge_how {
	KV_MERGE_ONE,	/* one run, where the inputs were */
	KV_MERGE_SPLIT,	/* one for each new leaf: all runs of a leaf or of a store without */
	KV_MERGE_SPILL,	/* upper runs: one run for each leaf that has some of the keys */
};

struct kv_move;

struct kv_job {
	struct kvdb *j_db;
	struct kvdb_kvs *j_kvs;
	struct kv_tree *j_tree;
	enum kv_merge_how j_how;
	struct kv_run **j_in;	/* newest first; the tree reference keeps them */
	unsigned j_n;
	unsigned j_nabove;	/* runs in front that are read for what they hide (RUN-4) */
	unsigned j_nupper;	/* and of upper runs, for a job of a leaf (G3) */
	uint32_t j_leaf, j_nleaf;	/* leaves of the input; none: upper runs */
	/* no transaction looks for their deletions (T6) */
	bool j_forgets;
	/* and no older run lies below them: deletions go */
	bool j_no_tombs;
	bool j_asked;		/* for kvdb_compact() */
	bool j_is_last;		/* and it is done with it */
	uint64_t j_asked_run;	/* k_compact_run when it began */
	struct kv_move *j_move;	/* values of victims move on the way, or NULL */
	uint64_t j_cut;		/* split: keys of a leaf */
	uint32_t j_coming;	/* and leaves that it makes, at most */
	struct kv_backoff j_room;	/* of the pool when it began */
	uint64_t j_due;		/* bytes that it will write, about */

	/* the rest is merge_job.c's */
	struct kv_progress j_walk;	/* progress, with j_asked or j_move */
	struct kv_iter *j_it;
	struct kv_iter *j_scout;	/* the same ahead of it, or NULL; it has seen */
	uint64_t j_ahead;		/* this number of entries more */
	struct kv_ent j_ent;	/* the next one, if j_has */
	bool j_has;
	uint64_t j_seen, j_keys, j_now;
	struct kv_trows j_tombs;	/* tombstones over many keys that go on (H3) */
	uint16_t j_klen;
	uint8_t j_key[KVDB_KEY_MAX];	/* the last one before the cut */

	/* what was made, with references: runs, the leaves they go to, those that are new */
	struct kv_run **j_out;
	struct kv_leaf **j_to, **j_begin;
	unsigned j_nout, j_cap, j_nbegin;
};

/* 1, or -errno; -ECANCELED: the database stops, or the caller cancelled it. */
int kv_job_run(struct kv_job *j);
/* A run that it reads could not be read. */
bool kv_job_blames(const struct kv_job *j);
/*
 * A transaction finds out by the newest version that a key was deleted after
 * its view. Views that come later are newer than everything in a run.
 */
bool kv_is_looked_for(struct kvdb *db, struct kv_run **run, unsigned n);

/* ---- merge.c: those that may run at once ---------------------------------------------------- */

/*
 * kv_merge_begin - take the runs of a merge that is due (LF7, LF8)
 * 1: *j is to be run, and ended whatever became of it; 0: none is due.
 */
int kv_merge_begin(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_job *j);
/* @rc: what kv_job_run() returned. */
void kv_merge_end(struct kv_job *j, int rc);

/*
 * One key-only merge of a store that is due, beside those that run: picks runs
 * that are neighbours in age, merges, publishes. 1 = did one, 0 = none due, -errno.
 */
int kv_merge_step(struct kvdb *db, struct kvdb_kvs *kvs);
/* TH-17: merges of the store can go on, as far as is known without waiting. */
bool kv_merge_may_help(struct kvdb_kvs *kvs);
/* LF9: the store has @upper upper runs or more, and merges can make them fewer. */
bool kv_merge_is_behind(struct kvdb_kvs *kvs, uint32_t upper);
/* A merge runs. */
bool kv_merge_is_busy(struct kvdb_kvs *kvs);

/*
 * kv_merge_pick - which of @n runs (newest first, sizes in keys) to merge (merge_pick.c)
 * The group is [*first, *first + returned). 0: none is due.
 */
unsigned kv_merge_pick(const uint64_t *keys, unsigned n, unsigned *first);

#endif
