/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What a store consists of: memtables, runs and leaves. */
#ifndef KV_TREE_H
#define KV_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "db/limbo.h"

struct kv_holders;
struct kv_leaf;
struct kv_mt;
struct kv_run;
struct kvdb;
struct kvdb_kvs;

/* ---- a change of the tree ---- */

struct kv_horizon { uint32_t kvs; uint64_t epoch; };
struct kv_cut { uint64_t obj; uint32_t len; };

struct kv_edit {
	uint32_t ed_kvs;
	struct kv_run **ed_add;
	unsigned ed_nadd;
	struct kv_run **ed_drop;
	unsigned ed_ndrop;
	struct kv_leaf **ed_begin;	/* leaves that are there from now on */
	unsigned ed_nbegin;
	uint64_t ed_end;		/* id of the leaf that its neighbour takes over, 0 = none */
	const struct kv_horizon *ed_hor;	/* new horizons (flush) */
	unsigned ed_nhor;
	uint64_t ed_gen;		/* kv_point_news_publish() */
};

/* ---- tree.c ---- */

#define KV_MTS_MAX	4u	/* memtables of a store */

/*
 * Immutable snapshot, replaced as a whole under kvs->k_tree_lock; readers load
 * kvs->k_tree inside kv_enter() or hold a reference.
 */
struct kv_tree {
	_Atomic(uint32_t) tr_refs;
	uint32_t tr_nmt;		/* memtables, [0] is the active one */
	uint32_t tr_nrun;
	uint32_t tr_nupper;		/* runs of all keys: tr_run[0, tr_nupper) */
	uint32_t tr_nleaf;
	uint32_t tr_depth;		/* runs that one key may lie in, at most */
	/* trees of one number have runs that say the same of every key; no two stores share one */
	uint64_t tr_gen;
	uint64_t tr_line;		/* the tr_gen that the point index knows them by (PI5) */
	uint32_t tr_slot;		/* of the store */
	_Atomic(bool) tr_tombs;		/* some source has deletes of many keys (tomb.c) */
	_Atomic(bool) tr_is_old;	/* the store has another now */
	_Atomic(struct kv_holders *) tr_holders;	/* NULL until a cursor has it; hold.c */
	struct kv_mt *tr_mt[KV_MTS_MAX];	/* newest first */
	struct kv_limbo tr_limbo;
	/* in order of keys; without any, all runs are upper ones */
	struct kv_leaf_runs {
		struct kv_leaf *lr_leaf;
		uint32_t lr_first, lr_n;	/* its runs in tr_run */
	} *tr_leaf;
	/* the upper ones, then those of each leaf; newest first among those with common keys */
	struct kv_run *tr_run[];
};
struct kv_tree *kv_tree_get(struct kvdb_kvs *kvs);	/* with a reference */
/* A tree with one memtable; references on what is given are taken over */
struct kv_tree *kv_tree_new(struct kvdb *db, struct kv_mt *mt);
/* A dropped store: @blank, taken over, is its tree, with neither memtables nor runs. */
void kv_tree_empty(struct kvdb_kvs *kvs, struct kv_tree *blank);

/* In exchange for a reference on @tr: its runs and leaves alone; without memory for that @tr. */
struct kv_tree *kv_tree_leave_mts(struct kvdb *db, struct kv_tree *tr);
/* True: the part, upper runs or those of a leaf, is left out. */
typedef bool kv_part_fn(void *arg, struct kv_run *const *run, uint32_t n);
/* A tree of the runs and leaves of @tr, with a reference; NULL: no memory. @omits NULL: of all. */
struct kv_tree *kv_tree_runs(struct kvdb *db, const struct kv_tree *tr, kv_part_fn *omits,
			     void *arg);
uint64_t kv_run_gen(struct kvdb *db);	/* a tr_gen that no tree had */
void kv_tree_put(struct kvdb *db, struct kv_tree *tr);
/*
 * Shows what an edit changed; the oldest memtable @mt (may be NULL) goes with it. Runs lie
 * where their positions say.
 */
int kv_tree_edit(struct kvdb_kvs *kvs, struct kv_mt *mt, const struct kv_edit *ed);
/*
 * kv_tree_show - as kv_tree_edit(), of an edit that is on media: there is no way back
 * It waits for memory. An error is why the database has stopped.
 */
int kv_tree_show(struct kvdb_kvs *kvs, struct kv_mt *mt, const struct kv_edit *ed);
/* The active memtable of a store; inside kv_enter(). */
struct kv_mt *kv_mt_active(struct kvdb_kvs *kvs);

/* Sets the flag of a tree that has tombstones; it is being made, or k_tree_lock is held. */
void kv_tree_note_tombs(struct kv_tree *tr);
/* A new active memtable in front (memtable switch; db->d_epochs.ep_tick_lock held). */
int kv_tree_switch(struct kvdb_kvs *kvs, struct kv_mt *mt);

#endif
