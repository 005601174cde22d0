/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Merging of ordered sources, in either direction: memtables, runs, whatever
 * else speaks struct kv_iter. A loser tree (Knuth, "The art of computer
 * programming", volume 3, 5.4.1) holds the heads of the sources: a step costs
 * one comparison per level on the way from the source that moved to the root.
 * Keys are compared by their first 16 bytes, held beside the entries, and only
 * on a tie by what is in the source.
 *
 * Of equal keys the newest source's comes first. The others never come: in the
 * tournament an older one loses to a newer one before it can win, and the
 * loser of a tie is marked.
 *
 * An iterator belongs to one thread at a time; no locks.
 */
#include <errno.h>
#include <stdlib.h>

#include "tree/merge_iter.h"
#include "base/assert.h"
#include "base/guard.h"
#include "base/key.h"
#include "base/macros.h"
#include "db/limbo.h"
#include "seg/value.h"
#include "mem/iter.h"

struct source {
	struct kv_iter *so_it;
	uint64_t so_head[2];	/* first 16 bytes of so_ent's key, big-endian, padded with 0 */
	struct kv_ent so_ent;
	bool so_live;		/* so_ent is valid */
	bool so_old;		/* a newer source stands on the same key */
};

struct merge_iter {
	struct kv_iter mi_it;
	unsigned mi_n;
	unsigned mi_nahead;	/* number of those that can fetch ahead */
	unsigned mi_only_hide;	/* number of first sources whose entries only hide others */
	bool mi_is_lent;	/* its memory is not its own */
	bool mi_reverse, mi_tombs;
	bool mi_placed;
	bool mi_used;		/* the winner was looked at; the next call moves it on */
	int mi_err;		/* a source has lost its place: only a seek helps */
	uint64_t mi_steps;	/* entries that it has moved on by, shown or not */
	uint64_t mi_rest;	/* the step at which it rests (CUR-8) */
	const uint8_t *mi_end;	/* what is passed over there or beyond ends the walk */
	size_t mi_end_len;	/* 0: there is no end */
	unsigned mi_nown;	/* the next seek: so many sources, the first ones, go to its key, */
	const void *mi_rest_key;	/* the others to this one, unless it is NULL */
	size_t mi_rest_klen;
	bool (*mi_hides)(void *arg, const struct kv_ent *e);
	void *mi_arg;
	uint32_t *mi_tree;	/* [0]: the winner; [1, n): losers; leaf i is node n + i */
	struct source mi_src[];
};

static int source_next(struct source *s)
{
	int rc = s->so_it->it_ops->next(s->so_it, &s->so_ent);
	const struct kv_ent *e = &s->so_ent;

	s->so_old = false;
	s->so_live = !rc;
	if (!rc) {
		s->so_head[0] = kv_head8(e->e_key, e->e_klen);
		s->so_head[1] = e->e_klen > 8 ? kv_head8(e->e_key + 8, e->e_klen - 8u) : 0;
	}
	return rc == -ENOENT ? 0 : rc;
}

static inline int source_cmp(const struct source *a, const struct source *b)
{
	if (a->so_head[0] != b->so_head[0])
		return a->so_head[0] < b->so_head[0] ? -1 : 1;
	if (a->so_head[1] != b->so_head[1])
		return a->so_head[1] < b->so_head[1] ? -1 : 1;
	return kv_kcmp(a->so_ent.e_key, a->so_ent.e_klen, b->so_ent.e_key, b->so_ent.e_klen);
}

/* The match of two sources: does @a win? Marks the one that loses a tie. */
static inline bool beats(struct merge_iter *mi, uint32_t a, uint32_t b)
{
	struct source *x = &mi->mi_src[a], *y = &mi->mi_src[b];
	int c;

	if (!x->so_live || !y->so_live)
		return x->so_live;
	c = source_cmp(x, y);
	if (KV_UNLIKELY(!c)) {
		(a < b ? y : x)->so_old = true;
		return a < b;
	}
	return (c < 0) != mi->mi_reverse;
}

/* Plays all matches below @node; returns the winner. Depth: log2(n). */
static uint32_t play_all(struct merge_iter *mi, uint32_t node)
{
	uint32_t a, b;

	KV_ASSERT(mi->mi_n);
	if (node >= mi->mi_n)
		return node - mi->mi_n;
	a = play_all(mi, 2 * node);
	b = play_all(mi, 2 * node + 1);
	if (beats(mi, a, b)) {
		mi->mi_tree[node] = b;
		return a;
	}
	mi->mi_tree[node] = a;
	return b;
}

/* The winner has a new head: plays the matches from its leaf up. */
static void play_again(struct merge_iter *mi)
{
	uint32_t best = mi->mi_tree[0];

	for (uint32_t node = (best + mi->mi_n) / 2; node; node /= 2) {
		uint32_t other = mi->mi_tree[node];

		if (beats(mi, other, best)) {
			mi->mi_tree[node] = best;
			best = other;
		}
	}
	mi->mi_tree[0] = best;
}

/* What does not wait notes the missing pages of all sources at once. */
static inline bool goes_on(int rc)
{
	return !rc || rc == -EINPROGRESS;
}

/* What source @i seeks when the merge seeks @key. */
static inline const void *key_for(const struct merge_iter *mi, unsigned i, const void *key,
				  size_t *klen)
{
	if (KV_LIKELY(!mi->mi_rest_key) || i < mi->mi_nown)
		return key;
	*klen = mi->mi_rest_klen;
	return mi->mi_rest_key;
}

static int source_seek(struct merge_iter *mi, unsigned i, const void *key, size_t klen)
{
	struct kv_iter *src = mi->mi_src[i].so_it;

	key = key_for(mi, i, key, &klen);
	return src->it_ops->seek(src, key, klen);
}

/* One after the other, each may take long: those that can fetch ahead, or all others. */
static int seek_each(struct merge_iter *mi, const void *key, size_t klen, bool with_ahead)
{
	int rc = 0, err;

	for (unsigned i = 0; i < mi->mi_n && goes_on(rc); i++) {
		struct kv_iter *src = mi->mi_src[i].so_it;

		if (with_ahead != !!src->it_ops->ahead)
			continue;
		err = source_seek(mi, i, key, klen);
		if (!err)
			err = source_next(&mi->mi_src[i]);
		if (err)
			rc = err;
		kv_iter_park(src);
	}
	return rc;
}

/* Have all sources that can what a seek needs in memory? It is on its way to the processor then. */
static bool fetch_ahead(struct merge_iter *mi, const void *key, size_t klen)
{
	bool is_near = true;

	for (unsigned step = 0; step < KV_AHEAD_STEPS; step++)
		for (unsigned i = 0; i < mi->mi_n; i++) {
			struct kv_iter *src = mi->mi_src[i].so_it;

			size_t len = klen;
			const void *at = key_for(mi, i, key, &len);

			if (src->it_ops->ahead)
				is_near &= src->it_ops->ahead(src, at, len, step);
		}
	return is_near;
}

/* All at once, each step for all of them. Inside kv_enter(), after fetch_ahead(). */
static int seek_near(struct merge_iter *mi, const void *key, size_t klen)
{
	int rc = 0, err;

	KV_ASSERT_INSIDE();
	for (unsigned i = 0; i < mi->mi_n && goes_on(rc); i++) {
		err = mi->mi_src[i].so_it->it_ops->ahead ? source_seek(mi, i, key, klen) : 0;
		if (err)
			rc = err;
	}
	for (unsigned i = 0; i < mi->mi_n && !rc; i++)
		if (mi->mi_src[i].so_it->it_ops->ahead)
			rc = source_next(&mi->mi_src[i]);
	return rc;
}

static int seek_with_ahead(struct merge_iter *mi, const void *key, size_t klen)
{
	struct kv_thread *t = kv_enter();
	bool is_near = (klen || mi->mi_rest_key) && fetch_ahead(mi, key, klen);
	int rc = is_near ? seek_near(mi, key, klen) : 0;

	for (unsigned i = 0; i < mi->mi_n; i++)
		kv_iter_park(mi->mi_src[i].so_it);
	kv_exit(t);
	return is_near ? rc : seek_each(mi, key, klen, true);
}

static int merge_seek(struct kv_iter *it, const void *key, size_t klen)
{
	struct merge_iter *mi = (struct merge_iter *)it;
	int rc, err;

	for (unsigned i = 0; i < mi->mi_n; i++)
		mi->mi_src[i].so_live = false;
	rc = seek_each(mi, key, klen, false);
	err = mi->mi_nahead && goes_on(rc) ? seek_with_ahead(mi, key, klen) : 0;
	if (err)
		rc = err;
	mi->mi_placed = rc != -EINPROGRESS;
	mi->mi_used = false;
	mi->mi_err = rc;
	if (!rc && mi->mi_n)
		mi->mi_tree[0] = play_all(mi, 1);
	mi->mi_rest_key = NULL;
	return rc;
}

/* The entry at which a source stands is passed over: has the walk left its range? */
static bool is_outside(const struct merge_iter *mi, const struct source *s)
{
	int c;

	if (!mi->mi_end_len)
		return false;
	c = kv_kcmp(s->so_ent.e_key, s->so_ent.e_klen, mi->mi_end, mi->mi_end_len);
	return mi->mi_reverse ? c < 0 : c >= 0;
}

/* Nothing is left that the sources which only hide could hide. */
static bool is_over(const struct merge_iter *mi)
{
	unsigned i = mi->mi_only_hide;

	while (i < mi->mi_n && !mi->mi_src[i].so_live)
		i++;
	return i == mi->mi_n;
}

static int merge_next(struct kv_iter *it, struct kv_ent *e)
{
	struct merge_iter *mi = (struct merge_iter *)it;
	struct source *s;
	int rc = mi->mi_err;
	uint64_t was;

	if (!mi->mi_placed)
		rc = merge_seek(it, NULL, 0);
	if (!mi->mi_n)
		return rc ? rc : -ENOENT;
	for (; !rc; mi->mi_err = rc) {
		if (mi->mi_used) {
			if (!CHECK(mi->mi_steps != mi->mi_rest))
				return -EAGAIN;
			s = &mi->mi_src[mi->mi_tree[0]];
			was = s->so_head[0];
			rc = source_next(s);
			if (rc == -EINPROGRESS)
				return rc;	/* it stands where it stood */
			KV_ASSERT(rc || !s->so_live || s->so_head[0] == was ||
				  (s->so_head[0] < was) == mi->mi_reverse);
			mi->mi_steps++;
			mi->mi_used = false;
			if (rc)
				continue;
			play_again(mi);
		}
		s = &mi->mi_src[mi->mi_tree[0]];
		if (!s->so_live)
			return -ENOENT;
		mi->mi_used = true;
		if (mi->mi_tree[0] < mi->mi_only_hide && is_over(mi))
			return -ENOENT;
		if (s->so_old || mi->mi_tree[0] < mi->mi_only_hide ||
		    (s->so_ent.e_kind == KV_ENT_TOMB && !mi->mi_tombs) ||
		    (mi->mi_hides && mi->mi_hides(mi->mi_arg, &s->so_ent))) {
			if (is_outside(mi, s))
				return -ENOENT;
			continue;
		}
		*e = s->so_ent;
		return 0;
	}
	return rc;
}

static void merge_turn(struct kv_iter *it, bool reverse)
{
	struct merge_iter *mi = (struct merge_iter *)it;

	for (unsigned i = 0; i < mi->mi_n; i++)
		mi->mi_src[i].so_it->it_ops->turn(mi->mi_src[i].so_it, reverse);
	mi->mi_reverse = reverse;
	mi->mi_placed = false;
}

static void merge_park(struct kv_iter *it)
{
	struct merge_iter *mi = (struct merge_iter *)it;

	for (unsigned i = 0; i < mi->mi_n; i++)
		kv_iter_park(mi->mi_src[i].so_it);
}

static void merge_close(struct kv_iter *it)
{
	struct merge_iter *mi = (struct merge_iter *)it;

	for (unsigned i = 0; i < mi->mi_n; i++)
		mi->mi_src[i].so_it->it_ops->close(mi->mi_src[i].so_it);
	if (!mi->mi_is_lent)
		free(mi);
}

static const struct kv_iter_ops merge_ops = {
	.seek = merge_seek,
	.next = merge_next,
	.turn = merge_turn,
	.park = merge_park,
	.close = merge_close,
};

void kv_merge_hide(struct kv_iter *it, bool (*hides)(void *arg, const struct kv_ent *e), void *arg)
{
	struct merge_iter *mi = (struct merge_iter *)it;

	mi->mi_hides = hides;
	mi->mi_arg = arg;
}

void kv_merge_only_hide(struct kv_iter *it, unsigned n)
{
	((struct merge_iter *)it)->mi_only_hide = n;
}

void kv_merge_until(struct kv_iter *it, const void *end, size_t len)
{
	struct merge_iter *mi = (struct merge_iter *)it;

	mi->mi_end = end;
	mi->mi_end_len = len;
	for (unsigned i = 0; i < mi->mi_n; i++) {
		struct kv_iter *src = mi->mi_src[i].so_it;

		if (src->it_ops->until)
			src->it_ops->until(src, end, len);
	}
}

void kv_merge_skip(struct kv_iter *it, unsigned n, const void *key, size_t klen)
{
	struct merge_iter *mi = (struct merge_iter *)it;

	KV_ASSERT(n <= mi->mi_n);
	mi->mi_nown = n;
	mi->mi_rest_key = key;
	mi->mi_rest_klen = klen;
}

void kv_merge_rest(struct kv_iter *it, unsigned n)
{
	struct merge_iter *mi = (struct merge_iter *)it;

	mi->mi_rest = mi->mi_steps + n;
}

uint64_t kv_merge_steps(const struct kv_iter *it)
{
	return ((const struct merge_iter *)it)->mi_steps;
}

void kv_iters_close(struct kv_iter **src, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		src[i]->it_ops->close(src[i]);
}

int kv_merge_iter_in(struct kv_iter_room *room, struct kv_iter **src, unsigned n, bool reverse,
		     bool keep_tombs, struct kv_iter **out)
{
	size_t bytes = sizeof(struct merge_iter) + n * (sizeof(struct source) + sizeof(uint32_t));
	bool is_lent;
	struct merge_iter *mi = kv_iter_mem(room, bytes, &is_lent);

	if (!mi)
		return -ENOMEM;
	*mi = (struct merge_iter){ .mi_it = { &merge_ops }, .mi_n = n, .mi_is_lent = is_lent,
				   .mi_reverse = reverse, .mi_tombs = keep_tombs,
				   .mi_rest = UINT64_MAX };
	mi->mi_tree = (uint32_t *)&mi->mi_src[n];
	for (unsigned i = 0; i < n; i++) {
		mi->mi_src[i].so_it = src[i];
		mi->mi_nahead += src[i]->it_ops->ahead != NULL;
	}
	*out = &mi->mi_it;
	return 0;
}

int kv_merge_iter(struct kv_iter **src, unsigned n, bool reverse, bool keep_tombs,
		  struct kv_iter **out)
{
	return kv_merge_iter_in(NULL, src, n, reverse, keep_tombs, out);
}
