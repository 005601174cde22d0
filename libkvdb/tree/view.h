/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Views, what transactions and cursors see, and the trees that they look into. */
#ifndef KV_VIEW_H
#define KV_VIEW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#include "db/limbo.h"

struct kv_tree;

/* The trees of all stores at one moment. Immutable. */
struct kv_forest_trees {
	struct kvdb *ft_db;
	struct kv_limbo ft_limbo;
	uint32_t ft_n;
	struct {
		struct kvdb_kvs *kvs;
		struct kv_tree *tree;
	} ft_ent[];			/* by k_slot */
};

/* Shared by all views that were born between two changes of trees; a view holds one reference. */
struct kv_forest {
	_Atomic(uint32_t) fo_refs;
	uint32_t fo_views;		/* live; in the list while there are any; ov_lock */
	uint64_t fo_gen;		/* te_gen before the trees were taken */
	uint64_t fo_step;		/* hd_step when its newest view was born; ov_lock */
	_Atomic(struct kv_forest_trees *) fo_trees;	/* NULL: given up for their memory */
	struct kv_forest *fo_older, *fo_newer;		/* ov_lock */
	struct kv_limbo fo_limbo;
};

struct kv_view {
	struct kv_view *vi_older, *vi_newer;	/* ov_lock */
	_Atomic(struct kv_forest *) vi_forest;	/* NULL once it is too old */
	uint64_t vi_seq;
	uint64_t vi_born_ns;
	uint64_t vi_born_ms;			/* engine time: what had expired is not seen */
	bool vi_writes;				/* looks for conflicts */
};

/* Registers a view of this moment. 0, -ENOMEM. */
int kv_view_begin(struct kvdb *db, struct kv_view *vi, bool writes);
void kv_view_end(struct kvdb *db, struct kv_view *vi);
/* 0, or -ESTALE with its reason: the view is too old. */
int kv_view_check(struct kvdb *db, struct kv_view *vi);
/* The same without a word. */
bool kv_view_is_old(struct kvdb *db, struct kv_view *vi);
/* Calls @fn for each open view of a transaction that may write, under ov_lock. */
void kv_views_each(struct kvdb *db, void (*fn)(void *arg, struct kv_view *vi), void *arg);
/* Its trees were given up for their memory, or it is too old. Outside kv_enter(). */
bool kv_view_gave_up(struct kv_view *vi);
/*
 * The tree of a store in the view, NULL when the store is younger. -ESTALE with its reason when the
 * view is too old or its trees were given up for their memory. Inside kv_enter().
 */
int kv_view_tree(struct kvdb *db, struct kv_view *vi, struct kvdb_kvs *kvs, struct kv_tree **tr);
/* A tree was replaced: the cached forest is not the current one any more. */
void kv_forest_stale(struct kvdb *db);
/* What its views hold is given up; they end with -ESTALE. ov_lock held, inside kv_enter(). */
void kv_forest_give_up(struct kv_forest *fo);
/* Gives up what views hold that are too old (background work). */
void kv_views_step(struct kvdb *db);
/* View number of the oldest transaction that may still look for conflicts; UINT64_MAX = none. */
uint64_t kv_views_oldest(struct kvdb *db);
void kv_views_stats(struct kvdb *db, struct kvdb_stats *st);

/* By age. Views that are too old stay in the list until they end; they are at its old end. */
struct kv_view_list {
	struct kv_view *vl_oldest, *vl_newest;
	struct kv_view *vl_live;	/* the oldest that is not too old */
	uint64_t vl_n;
};

struct kv_open_views {
	pthread_mutex_t ov_lock;		/* lists of views and forests; outside limbo_lock */
	struct kv_view_list ov_list[2];		/* those that only read, those that write */
	struct kv_forest *ov_forests;		/* that live views hold, the newest */
	_Atomic(uint64_t) ov_n;			/* in both lists */
	uint64_t ov_marks;			/* passes over memtables; ov_lock */
	pthread_mutex_t ov_forest_lock;		/* one builds; outside sr_lock */
};

/* Takes a snapshot: a tree with a reference, and a view of its memtables (CUR-1). */
void kv_snapshot(struct kvdb_kvs *kvs, struct kv_tree **tree, uint64_t *seq);

#endif
