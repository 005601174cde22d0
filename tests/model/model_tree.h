/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a state of the tree model is, the rules that can be broken, and what a
 * read of a state finds. model_tree.c has the actions.
 */
#ifndef TESTS_MODEL_TREE_H
#define TESTS_MODEL_TREE_H

#include <stdbool.h>
#include <string.h>

#include "harness.h"

enum { KEYS = 2, RUNS = 5, RUN_ENT = 4, MEM_ENT = 6, OPS = 6, VIEWS = 2, MERGES = 2,
       SEQ_MAX = 14, BLOCKS = 15, NOW = 15 };
enum kind { PUT = 1, DEL, PREFIX, RANGE };	/* PREFIX covers both keys, RANGE the first */

/* kind, key, seq, value block, number of the write; 0 = none */
typedef uint16_t ent;
#define ENT(kind, key, seq, blk, id) \
	((ent)((kind) << 12 | (key) << 11 | (seq) << 7 | (blk) << 3 | (id)))
#define E_KIND(e)	((unsigned)(e) >> 12)
#define E_KEY(e)	((e) >> 11 & 1u)
#define E_SEQ(e)	((e) >> 7 & 15u)
#define E_BLK(e)	((e) >> 3 & 15u)
#define E_ID(e)		((e) & 7u)

/* Upper runs, those of the leaf of the first key, of the second; UPPER alone while unsplit. */
enum part { UPPER, LEAF_A, LEAF_B, PARTS };

struct runs {
	ent r[RUNS][RUN_ENT];	/* by part, then newest first */
	uint8_t part[RUNS];
	uint8_t n, is_split;
};

struct tree {
	struct runs runs;
	uint8_t has_frozen;
	ent mem[2][MEM_ENT];	/* active, frozen */
};

struct view {
	uint8_t at;		/* 0 = closed */
	struct tree tree;
};

enum phase { IDLE, BUILT, DURABLE, COMMITTED };

struct job {
	uint8_t phase, n, part;	/* inputs: from the run @top of the part on */
	uint8_t has_front;	/* runs of the part lay in front of them at the start */
	uint8_t victim, copy;
	ent top[RUN_ENT], out[RUN_ENT];
};

/* A merge of the other kinds between what it read and its edit. */
enum kind_of_merge { NONE, MERGE, SPILL, SPLIT, JOIN };

struct merge {
	uint8_t kind, n, part;	/* as in struct job; of a join, those of the first leaf */
	uint8_t n_b;		/* of the second */
	ent top[RUN_ENT], top_b[RUN_ENT], out[RUN_ENT];
};

struct state {
	struct tree now;
	struct runs media;
	struct runs ckpt;
	uint8_t ckpt_ops;	/* 0 = none, else 1 + writes that it holds */
	struct view view[VIEWS];
	struct job job;
	struct merge merge[MERGES];
	ent op[OPS];		/* as written */
	uint8_t nop, synced, horizon, boundary;
	uint8_t seq, cur, nblk;
	uint8_t is_flushing;	/* the edit is durable, the run not yet shown */
	uint16_t freed, durable;	/* blocks: deleted; copies that are durable */
	uint8_t views, moves, crashes, ckpts, rolls, prefixes, ranges, switches, shapes;
	uint8_t merges;
};

#define RULES(X)	\
	X(flush_unsynced)	/* a flush does not wait for the log */			\
	X(flush_trusts_newer)	/* leaves out what a newer memtable overwrites */	\
	X(flush_keeps_covered)	/* and drops the range tombstone */			\
	X(merge_drops_tombs)	/* tombstones go, whatever lies below */		\
	X(merge_drops_ranges)	/* the same for range tombstones */			\
	X(tombs_ignore_views)	/* go although a view may look for a conflict */	\
	X(merge_trusts_memtable) /* what a memtable overwrites is left out */		\
	X(merge_swaps)		/* the older version of two inputs wins */		\
	X(view_reads_now)	/* a view does not hold its tree */			\
	X(job_on_top)		/* the result lies in front of newer runs */		\
	X(job_drops_newer)	/* a run in front that came meanwhile goes with its own */	\
	X(job_drops_above)	/* one that was there at the start does */			\
	X(job_beside_merge)	/* merges take runs that a relocation has */		\
	X(move_trusts_memtable)	/* what a memtable overwrites is left out */	\
	X(job_before_flush)	/* the edit does not wait for the copy */		\
	X(free_pinned)		/* under a view */					\
	X(free_before_edit)	/* shown first, then committed: durable runs refer to it */ \
	X(free_before_show)	/* what runs in memory refer to */			\
	X(free_copy)		/* a copy that no edit names yet */			\
	X(free_unlogged)	/* records above the horizon */				\
	X(free_checkpoint)	/* what only a checkpoint refers to */			\
	X(replay_all)		/* also what lies below the horizon */			\
	X(replay_behind)	/* the horizon is that of the newest memtable */	\
	X(parts_by_place)	/* a part of the replay ends anywhere, not behind a record */	\
	X(seq_restarts)		/* after a crash stamps begin where the runs end */	\
	X(split_leaves_runs)	/* runs that a split did not merge stay in the first leaf */ \
	X(spill_newest)		/* takes upper runs that have older ones above the leaves */ \
	X(spill_two_edits)	/* drops its inputs when the first leaf has its run */	\
	X(spill_drops_tombs)	/* as if nothing lay below */				\
	X(spill_ranges_once)	/* a prefix delete goes to the leaf where it begins */	\
	X(spill_under_leaf)	/* the new run lies below what the leaf has */		\
	X(leaf_ranges_ignore_upper) /* dropped when nothing in the leaf needs them */	\
	X(join_on_top)		/* the joined run lies in front of the upper ones */	\
	X(view_routes_now)	/* a view looks into leaves by current bounds */ 	\
	X(merges_share_runs)	/* two merges at once read the same run */		\
	X(spills_overlap)	/* a spill takes newer runs beside that of the oldest */ \
	X(spill_beside_join)	/* leaves join while a spill has what it writes there */

enum rule {
#define X(name) name,
	RULES(X)
#undef X
	RULE_COUNT,
};
static const char *const rule_name[RULE_COUNT] = {
#define X(name) #name,
	RULES(X)
#undef X
};

static bool broken[RULE_COUNT];

struct bounds {
	unsigned writes, views, moves, crashes, ckpts, rolls, prefixes, ranges, switches, shapes;
	unsigned merges, parts, max_states;
};
static struct bounds bound;

#define MANY	3000000u
static const struct bounds small[] = {
	{ .writes = 3, .moves = 1, .switches = 2, .max_states = MANY },
	{ .writes = 3, .moves = 1, .switches = 3, .max_states = MANY },
	{ .writes = 3, .views = 1, .moves = 1, .switches = 2, .max_states = MANY },
	{ .writes = 3, .ckpts = 1, .moves = 1, .rolls = 1, .switches = 2, .max_states = MANY },
	{ .writes = 3, .moves = 1, .crashes = 1, .switches = 2, .parts = 1, .max_states = MANY },
	{ .writes = 3, .views = 1, .moves = 1, .crashes = 1, .switches = 2, .max_states = MANY },
	{ .writes = 3, .views = 1, .switches = 2, .prefixes = 1, .max_states = MANY },
	{ .writes = 3, .views = 1, .switches = 2, .ranges = 1, .max_states = MANY },
	{ .writes = 3, .crashes = 1, .rolls = 1, .switches = 2, .prefixes = 1,
	  .max_states = MANY },
	{ .writes = 2, .views = 2, .moves = 1, .crashes = 1, .switches = 2,
	  .max_states = MANY },
	{ .writes = 2, .crashes = 2, .ckpts = 1, .switches = 2, .ranges = 1, .parts = 1,
	  .max_states = MANY },
	{ .writes = 3, .views = 1, .switches = 3, .shapes = 2, .max_states = MANY },
	{ .writes = 3, .switches = 3, .prefixes = 1, .shapes = 3, .max_states = MANY },
	{ .writes = 3, .crashes = 1, .switches = 2, .shapes = 2, .parts = 1, .max_states = MANY },
	{ .writes = 2, .moves = 1, .views = 1, .switches = 2, .shapes = 2, .max_states = MANY },
	{ .writes = 3, .switches = 3, .shapes = 2, .merges = 2, .max_states = MANY },
	{ .writes = 2, .views = 1, .switches = 2, .prefixes = 1, .shapes = 2, .merges = 2,
	  .max_states = MANY },
	{ .writes = 2, .crashes = 1, .moves = 1, .switches = 2, .shapes = 2, .merges = 1,
	  .max_states = MANY },
};
static const struct bounds large[] = {
	{ .writes = 3, .views = 1, .moves = 1, .crashes = 1, .switches = 2,
	  .prefixes = 1, .max_states = 25000000u },
	{ .writes = 4, .views = 1, .moves = 1, .switches = 3, .ranges = 1,
	  .max_states = 25000000u },
	{ .writes = 4, .crashes = 2, .rolls = 1, .switches = 3, .parts = 1,
	  .max_states = 25000000u },
	{ .writes = 3, .moves = 2, .crashes = 1, .ckpts = 1, .rolls = 1, .switches = 3,
	  .max_states = 25000000u },
	{ .writes = 3, .moves = 1, .views = 1, .switches = 3, .prefixes = 1, .shapes = 3,
	  .max_states = 25000000u },
	{ .writes = 3, .views = 1, .switches = 3, .prefixes = 1, .shapes = 3, .merges = 2,
	  .max_states = 25000000u },
	{ .writes = 3, .crashes = 1, .moves = 1, .switches = 3, .shapes = 2, .merges = 2,
	  .max_states = 25000000u },
};

/* ---- what a read finds --------------------------------------------------------- */

static bool covers(ent e, unsigned key)
{
	return E_KIND(e) == PREFIX || (E_KIND(e) == RANGE && key == 0);
}

static bool is_range(ent e)
{
	return E_KIND(e) >= PREFIX;
}

static unsigned newest_cover(const ent *e, unsigned n, unsigned key, unsigned at)
{
	unsigned t = 0, i;

	for (i = 0; i < n; i++)
		if (e[i] && covers(e[i], key) && E_SEQ(e[i]) <= at && E_SEQ(e[i]) > t)
			t = E_SEQ(e[i]);
	return t;
}

/* The newest version in one memtable or run. */
static ent newest(const ent *e, unsigned n, unsigned key, unsigned at)
{
	ent best = 0;
	unsigned i;

	for (i = 0; i < n; i++)
		if (e[i] && !is_range(e[i]) && E_KEY(e[i]) == key && E_SEQ(e[i]) <= at &&
		    (!best || E_SEQ(e[i]) > E_SEQ(best)))
			best = e[i];
	return best;
}

/* Is the run one of those in which the key is looked for? */
static bool is_at(const struct runs *r, unsigned i, unsigned key)
{
	return r->part[i] == UPPER || r->part[i] == LEAF_A + key;
}

/* Memtables may be NULL (a checkpoint has none). 0 = absent. */
static ent lookup(const struct runs *r, const ent (*mem)[MEM_ENT], unsigned key, unsigned at)
{
	unsigned cover = 0, t, i;
	ent e = 0;

	for (i = 0; mem && i < 2; i++) {
		t = newest_cover(mem[i], MEM_ENT, key, at);
		cover = t > cover ? t : cover;
		if (!e)
			e = newest(mem[i], MEM_ENT, key, at);
	}
	for (i = 0; i < r->n; i++) {
		if (!is_at(r, i, key))
			continue;
		t = newest_cover(r->r[i], RUN_ENT, key, at);
		cover = t > cover ? t : cover;
		if (!e)
			e = newest(r->r[i], RUN_ENT, key, at);
	}
	return e && E_KIND(e) == PUT && E_SEQ(e) > cover ? e : 0;
}

/* The number of the write that is visible, 0 = absent. */
static unsigned truth(const struct state *s, unsigned nop, unsigned key, unsigned at)
{
	unsigned i;

	for (i = nop; i--;) {
		ent o = s->op[i];

		if (E_SEQ(o) > at || !(is_range(o) ? covers(o, key) : E_KEY(o) == key))
			continue;
		return E_KIND(o) == PUT ? E_ID(o) : 0;
	}
	return 0;
}

static bool is_newer_in(const ent *e, unsigned n, unsigned key, unsigned at)
{
	unsigned i;

	for (i = 0; i < n; i++)
		if (e[i] && E_SEQ(e[i]) > at &&
		    (is_range(e[i]) ? covers(e[i], key) : E_KEY(e[i]) == key))
			return true;
	return false;
}

/* What a transaction asks before it writes: did anything change since my view? */
static bool has_conflict(const struct tree *t, unsigned key, unsigned at)
{
	unsigned i;

	for (i = 0; i < 2; i++)
		if (is_newer_in(t->mem[i], MEM_ENT, key, at))
			return true;
	for (i = 0; i < t->runs.n; i++)
		if (is_at(&t->runs, i, key) && is_newer_in(t->runs.r[i], RUN_ENT, key, at))
			return true;
	return false;
}

static const char *check_view(const struct state *s, unsigned i)
{
	const struct view *v = &s->view[i];
	const struct tree *t = broken[view_reads_now] ? &s->now : &v->tree;
	struct tree old;
	unsigned k, o;

	if (broken[view_routes_now] && s->now.runs.is_split) {
		old = *t;
		memset(old.runs.part, LEAF_A, sizeof(old.runs.part));
		t = &old;
	}

	for (k = 0; k < KEYS; k++) {
		ent e = lookup(&t->runs, t->mem, k, v->at);
		bool has = false;

		if (E_ID(e) != truth(s, s->nop, k, v->at))
			return "a view changed";
		if (e && s->freed >> E_BLK(e) & 1)
			return "a view refers to a deleted block";
		for (o = 0; o < s->nop; o++)
			has |= is_newer_in(&s->op[o], 1, k, v->at);
		if (has != has_conflict(&s->now, k, v->at))
			return "a transaction does not see a conflict";
	}
	return NULL;
}

static const char *check(const struct state *s)
{
	const char *why = NULL;
	unsigned k, i;

	for (k = 0; k < KEYS; k++) {
		ent e = lookup(&s->now.runs, s->now.mem, k, NOW);

		if (E_ID(e) != truth(s, s->nop, k, NOW))
			return "a get differs from the history";
		if (e && s->freed >> E_BLK(e) & 1)
			return "a get finds a deleted block";
		if (!s->ckpt_ops)
			continue;
		e = lookup(&s->ckpt, NULL, k, NOW);
		if (E_ID(e) != truth(s, s->ckpt_ops - 1u, k, NOW))
			return "the checkpoint differs from the history";
		if (e && s->freed >> E_BLK(e) & 1)
			return "the checkpoint refers to a deleted block";
	}
	for (i = 0; i < VIEWS && !why; i++)
		if (s->view[i].at)
			why = check_view(s, i);
	return why;
}

#endif
