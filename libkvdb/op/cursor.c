/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Public cursors: an ordered walk on a stable snapshot, which is a reference
 * on a tree and a view number. The tree is taken first, then the view, and
 * both again when the tree was replaced in between: so every run of the tree
 * was made from versions that are older than the view, and what is newer is
 * in memtables, where stamps hide it.
 *
 * A cursor has a place in key order: below or above everything, below, on or
 * above a key. From it a walk starts in either direction, so that a change of
 * direction, a failed read and a changed write set are the same thing: the
 * sources are sought again. While the direction stays, keys run ahead of what
 * the caller sees: a batch of entries is taken from the merge, values in memory
 * are prefetched meanwhile, those on devices are read with one submission. While
 * a walk that finds values on devices goes on, the batch doubles.
 *
 * Opening is cheap: the sources are opened at the first use. Between calls the
 * cursor pins objects by reference only and is outside kv_enter(); the keeper may
 * take them away then (tree/hold.c). The batch stays: with the place in it, and what
 * the caller was shown.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "op/cursor_body.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/key.h"
#include "cache/load.h"
#include "mem/iter.h"
#include "mem/memtable.h"
#include "run/run_omf.h"
#include "tree/gap.h"
#include "tree/leaf.h"
#include "tree/merge_iter.h"
#include "tree/tomb_view.h"
#include "read/find.h"
#include "txn/txn.h"

#define BATCH_MIN	2u
#define BATCH_NEAR	16u	/* while values come from memory */
#define FETCH_AHEAD	4u	/* values: the lines of more wait for each other */
#define REST		256u	/* entries that a walk comes by inside kv_enter() */
#define REST_GAPS	64u	/* likewise, where there may be a gap to pass */

/* ---- sources ---------------------------------------------------------------------------- */

/* What deletes of many keys hide from the view. */
static int cover_open(struct kvdb_cursor *c)
{
	struct kv_tree *tr = c->c_tree;
	int rc = 0;

	if (tr && atomic_load(&tr->tr_tombs) && !c->c_hidden.hi_cover)
		c->c_hidden.hi_cover =
			     kv_cover_new(tr->tr_mt, tr->tr_nmt, tr->tr_run, tr->tr_nrun, c->c_seq,
					  &rc);
	return rc;
}

/* What a transaction wrote itself is newer than its deletes of ranges, or became a delete. */
static bool is_hidden(void *arg, const struct kv_ent *e)
{
	const struct kv_hidden *hi = arg;

	if (hi->hi_cover && kv_cover_hides(hi->hi_cover, e))
		return true;
	return hi->hi_txn && hi->hi_txn->t_ndel && e->e_seq != KV_SEQ_NOW &&
	       kv_txn_range_has(hi->hi_txn, hi->hi_kvs, e->e_key, e->e_klen);
}

int kv_sources_open(struct kvdb_kvs *kvs, const struct kv_cursor_in *in, struct kv_hidden *hidden,
		    bool up, struct kv_iter **out)
{
	struct kvdb *db = kvs->k_db;
	struct kv_tree *tr = in->tree;
	unsigned nmt = tr ? tr->tr_nmt : 0, nrun = tr ? tr->tr_nupper + 1 : 0;
	unsigned most = in->nextra + nmt + nrun, n = in->nextra;
	struct kv_iter *few[16], **src = few;
	int rc = 0;

	if (most > sizeof(few) / sizeof(few[0]))
		src = malloc(most * sizeof(*src));
	if (!src)
		return -ENOMEM;
	for (unsigned i = 0; i < nmt && !rc; i++) {
		rc = kv_mt_iter_in(in->room, db, tr->tr_mt[i], in->seq, !up, &src[n]);
		n += !rc;
	}
	if (tr && !rc) {
		rc = kv_tree_sources(db, tr, !up, false, &src[n]);
		n += rc > 0 ? (unsigned)rc : 0;
		rc = rc > 0 ? 0 : rc;
	}
	if (!rc) {
		for (unsigned i = 0; i < in->nextra; i++) {
			src[i] = in->extra[i];
			src[i]->it_ops->turn(src[i], !up);
		}
		rc = kv_merge_iter_in(in->room, src, n, !up, false, out);
	}
	if (rc)
		kv_iters_close(src + in->nextra, n - in->nextra);
	else if (hidden->hi_txn)
		kv_merge_hide(*out, is_hidden, hidden);
	else if (hidden->hi_cover)
		kv_merge_hide(*out, kv_cover_hides, hidden->hi_cover);
	if (src != few)
		free(src);
	return rc;
}

/* One that fails can be tried again: what came with the cursor stays, it cannot be opened anew. */
static int sources_open(struct kvdb_cursor *c, bool up)
{
	struct kv_iter_room room = { c->c_room, KV_WALK_ROOM };
	struct kv_cursor_in in = { .tree = c->c_tree, .seq = c->c_seq, .extra = c->c_extra,
				   .nextra = c->c_nextra, .room = &room };
	int rc = cover_open(c);

	if (!rc)
		rc = kv_sources_open(c->c_kvs, &in, &c->c_hidden, up, &c->c_it);
	if (!rc)
		c->c_nextra = 0;
	c->c_up = up;
	return rc;
}

/* Each thread keeps the batch of the cursor that it closed last. */
static int batch_open(struct kvdb_cursor *c)
{
	struct kv_tctx *tc;
	struct batch *b;

	if (c->c_batch)
		return 0;
	tc = kv_tctx(c->c_kvs->k_db);
	b = tc ? tc->tc_batch : NULL;
	if (b) {
		tc->tc_batch = NULL;
	} else {
		b = malloc(sizeof(*b) + VALUE_MIN);
		if (!b)
			return -ENOMEM;
		b->b_val = (uint8_t *)(b + 1);
		b->b_val_size = VALUE_MIN;
	}
	/* with a limit no keys are read in vain */
	b->b_want = c->c_limit ? BATCH_MAX : BATCH_MIN;
	b->b_n = b->b_i = 0;
	kv_ahead_init(&b->b_ahead);
	c->c_batch = b;
	count_bytes(tc, sizeof(*b) + VALUE_MIN);
	return 0;
}

void kv_cursor_batch_close(struct kvdb_cursor *c, struct kv_tctx *tc)
{
	struct batch *b = c->c_batch;

	if (!b)
		return;
	kv_ahead_close(c->c_kvs->k_db, &b->b_ahead);
	count_bytes(tc, -(sizeof(*b) + b->b_val_size));
	if (b->b_val != (uint8_t *)(b + 1)) {
		free(b->b_val);
		b->b_val = (uint8_t *)(b + 1);
		b->b_val_size = VALUE_MIN;
	}
	if (tc && !tc->tc_batch)
		tc->tc_batch = b;
	else
		free(b);
}

/* The place's key moves to where it outlives what the sources do. */
static void place_keep(struct kvdb_cursor *c)
{
	if (c->c_place < BELOW_KEY || c->c_place > ABOVE_KEY || c->c_key == c->c_batch->b_key)
		return;
	memcpy(c->c_batch->b_key, c->c_key, c->c_klen);
	c->c_key = c->c_batch->b_key;
}

/* The walk has found its end. Where it came from is kept for a renewal. */
static void place_end(struct kvdb_cursor *c, bool up)
{
	uint8_t end = up ? AT_TOP : AT_BOTTOM;

	place_keep(c);
	if (c->c_place != end)
		c->c_left_for = c->c_place;
	c->c_place = end;
}

/*
 * What to seek for a walk from the place; false: nothing lies there. c_skip is
 * set when the first entry may be one that the walk must not show: then b_key
 * holds its key.
 */
static bool seek_key(struct kvdb_cursor *c, bool up, const uint8_t **key, size_t *klen)
{
	bool has_key = c->c_place >= BELOW_KEY && c->c_place <= ABOVE_KEY;

	*key = NULL;
	*klen = 0;
	c->c_skip = false;
	if (c->c_place == (up ? AT_TOP : AT_BOTTOM))
		return false;
	if (has_key) {
		*key = c->c_key;
		*klen = c->c_klen;
		c->c_skip = c->c_place == ON_KEY || c->c_place == (up ? ABOVE_KEY : BELOW_KEY);
	}
	if (up && c->c_lo_len &&
	    (!has_key || kv_kcmp(*key, *klen, range_lo(c), c->c_lo_len) < 0)) {
		*key = range_lo(c);
		*klen = c->c_lo_len;
		c->c_skip = false;
	} else if (!up && c->c_hi_len &&
		   (!has_key || kv_kcmp(*key, *klen, range_hi(c), c->c_hi_len) >= 0)) {
		/* the upper bound itself is outside; the walk continues as from below it */
		memcpy(c->c_batch->b_key, range_hi(c), c->c_hi_len);
		*key = c->c_key = c->c_batch->b_key;
		*klen = c->c_klen = c->c_hi_len;
		c->c_place = BELOW_KEY;
		c->c_skip = true;
	}
	return true;
}

/* Is the entry beyond the range in the direction of the walk? */
static inline bool is_beyond(const struct kvdb_cursor *c, const struct kv_ent *e)
{
	if (c->c_up)
		return c->c_hi_len &&
		       kv_kcmp(e->e_key, e->e_klen, range_hi(c), c->c_hi_len) >= 0;
	return c->c_lo_len && kv_kcmp(e->e_key, e->e_klen, range_lo(c), c->c_lo_len) < 0;
}

/* ---- gaps: what cursors before this one found empty (GAP-1 to GAP-4) --------------------- */

/* Does it show the tree and nothing else? A tree's entries that own deletes hide are not dead. */
static bool shows_tree_only(const struct kvdb_cursor *c)
{
	if (!c->c_tree || !c->c_up)
		return false;
	return !c->c_nown || (c->c_txn && CHECK(!atomic_load(c->c_changes)));
}

/* Smallest key above one that was shown; 0: none that can be told. */
static size_t behind(const uint8_t *key, size_t klen, uint8_t *out)
{
	if (klen == KVDB_KEY_MAX)
		return 0;
	memcpy(out, key, klen);
	out[klen] = 0;
	return klen + 1;
}

static size_t gap_from(struct kvdb_cursor *c, const uint8_t *key, size_t klen, uint8_t *out)
{
	return kv_gaps_skip(c->c_kvs, key, klen, c->c_seq, c->c_now, out);
}

/* The tree's sources begin where the gap ends in which the walk begins; b_lo says where that is. */
static void gap_pass(struct kvdb_cursor *c, const uint8_t *key, size_t klen)
{
	struct batch *b = c->c_batch;
	uint8_t to[KVDB_KEY_MAX];
	size_t n = klen;

	b->b_is_fresh = c->c_up && c->c_tree;
	if (!b->b_is_fresh)
		return;
	if (c->c_skip)
		n = behind(key, klen, b->b_lo);
	else if (klen)
		memcpy(b->b_lo, key, klen);
	b->b_lo_len = (uint16_t)n;
	if (c->c_skip && !n) {
		b->b_is_fresh = false;
		return;
	}
	n = gap_from(c, b->b_lo, n, to);
	if (!n)
		return;
	memcpy(b->b_lo, to, n);
	b->b_lo_len = (uint16_t)n;
	kv_merge_skip(c->c_it, BARRIER((int)c->c_nown), b->b_lo, n);
}

/* A long walk that has something to show already: may it go on from elsewhere? */
static bool gap_is_ahead(struct kvdb_cursor *c)
{
	const struct batch *b = c->c_batch;
	uint8_t at[KVDB_KEY_MAX], to[KVDB_KEY_MAX];
	const struct kv_ent *e;
	size_t n;

	if (!c->c_up || !c->c_tree || !b->b_n)
		return false;
	e = &b->b_ent[b->b_n - 1];
	n = behind(e->e_key, e->e_klen, at);
	return n && gap_from(c, at, n, to);
}

/* What lies between the last entry shown, or the start of the walk, and what it came to. */
static void gap_set(const struct kvdb_cursor *c, const struct kv_ent *e, struct kv_gap_walk *w)
{
	const struct batch *b = c->c_batch;
	const struct kv_ent *last = b->b_n ? &b->b_ent[b->b_n - 1] : NULL;

	*w = (struct kv_gap_walk){ .gw_behind = last || !b->b_is_fresh,
				   .gw_to = range_hi(c), .gw_to_len = c->c_hi_len,
				   .gw_seq = c->c_seq, .gw_now = b->b_expired ? c->c_now : 0 };
	w->gw_lo = last ? last->e_key : b->b_is_fresh ? b->b_lo : c->c_key;
	w->gw_lo_len = last ? last->e_klen : b->b_is_fresh ? b->b_lo_len : c->c_klen;
	/* a merge ends there too; what lies beyond is no copy */
	if (c->c_hi_len && (!e || is_beyond(c, e))) {
		w->gw_hi = range_hi(c);
		w->gw_hi_len = c->c_hi_len;
	} else if (e) {
		w->gw_hi = c->c_batch->b_bytes + b->b_used;
		w->gw_hi_len = e->e_klen;
	}
}

/*
 * The walk came to @e, NULL for the end of all: was it long since the last one? *w is the first
 * such gap of a batch, its keys good until the next one, where batch_add() puts @e's.
 */
static inline void gap_note(struct kvdb_cursor *c, const struct kv_ent *e, struct kv_gap_walk *w)
{
	struct batch *b = c->c_batch;
	uint64_t steps = kv_merge_steps(c->c_it), n = steps - b->b_steps;

	b->b_steps = steps;
	if (KV_UNLIKELY(n >= KV_GAP_MIN) && !w->gw_seq && shows_tree_only(c))
		gap_set(c, e, w);
	b->b_expired = false;
}

/* Makes the walk go on from the place in the direction. */
static int cursor_place(struct kvdb_cursor *c, bool up)
{
	const uint8_t *key;
	struct batch *b;
	size_t klen;
	int rc = batch_open(c);

	KV_ASSERT_OUTSIDE();
	if (rc)
		return rc;
	b = c->c_batch;
	place_keep(c);
	if (c->c_ready && b->b_want > BATCH_MIN)
		b->b_want /= 2;
	c->c_ready = false;
	b->b_n = b->b_i = 0;
	if (!c->c_it)
		rc = sources_open(c, up);
	else if (c->c_up != up)
		c->c_it->it_ops->turn(c->c_it, !up);
	if (rc)
		return rc;
	c->c_up = up;
	if (up)
		kv_merge_until(c->c_it, range_hi(c), c->c_hi_len);
	else
		kv_merge_until(c->c_it, range_lo(c), c->c_lo_len);
	if (c->c_changes)
		c->c_seen = atomic_load_explicit(c->c_changes, memory_order_acquire);
	b->b_end = -ENOENT;
	if (seek_key(c, up, &key, &klen)) {
		gap_pass(c, key, klen);
		/* not inside kv_enter(): it may have to put a memtable in order */
		rc = c->c_it->it_ops->seek(c->c_it, key, klen);
		b->b_steps = kv_merge_steps(c->c_it);
		b->b_expired = false;
		b->b_end = 0;
	}
	c->c_ready = !rc;
	return rc;
}

/* ---- batches ---------------------------------------------------------------------------- */

/*
 * Runs @step until it needs no page any more that is not in memory, and waits for
 * these outside of kv_enter() (RD-4). In a queue it runs once: its owner waits.
 */
static int with_reads(struct kvdb_cursor *c, int (*step)(struct kvdb_cursor *c, bool up), bool up)
{
	struct kv_async as = { .as_db = c->c_kvs->k_db, .as_owner = c };
	uint64_t before;
	int rc;

	/* memtables miss no page */
	if (!c->c_tree || !c->c_tree->tr_nrun || kv_async_is_on(as.as_db))
		return step(c, up);
	do {
		before = kv_cursor_steps(c);
		kv_async_try(&as);
		rc = step(c, up);
	} while (kv_async_again(&as, rc, kv_cursor_steps(c) != before));
	return rc;
}

/* Keeps the entry after the last one, with its bytes. */
static inline void batch_add(struct batch *b)
{
	struct kv_ent *e = &b->b_ent[b->b_n++];

	KV_ASSERT_SLOW(b->b_n <= BATCH_MAX && b->b_used + e->e_klen <= BATCH_BYTES);
	b->b_is_fresh = false;
	e->e_key = memcpy(b->b_bytes + b->b_used, e->e_key, e->e_klen);
	b->b_used += e->e_klen;
	if (e->e_kind == KV_ENT_INLINE && e->e_vlen) {
		e->e_val = memcpy(b->b_bytes + b->b_used, e->e_val, e->e_vlen);
		b->b_used += e->e_vlen;
	}
}

/* Values in memory: of all what is slow to find, of the first ones the rest too. */
static void batch_prefetch(const struct batch *b)
{
	kv_values_touch(b->b_ent, b->b_n);
	for (unsigned i = 0; i < b->b_n && i < FETCH_AHEAD; i++)
		kv_value_prefetch(&b->b_ent[i]);
}

static struct kv_thread *merge_enter(struct kvdb_cursor *c)
{
	KV_ASSERT_OUTSIDE();
	kv_pages_room(c->c_kvs->k_db, 2 * BATCH_MAX);
	kv_merge_rest(c->c_it, kv_gaps_any(c->c_kvs) ? REST_GAPS : REST);
	return kv_enter();
}

static void merge_exit(struct kvdb_cursor *c, struct kv_thread *t)
{
	KV_ASSERT_INSIDE();
	kv_iter_park(c->c_it);
	kv_exit(t);
}

/* It comes after what the batch has, in the direction of the walk. */
static bool goes_on(const struct kvdb_cursor *c, const struct kv_ent *e)
{
	const struct batch *b = c->c_batch;
	const struct kv_ent *last = b->b_n ? &b->b_ent[b->b_n - 1] : NULL;
	int d = last ? kv_kcmp(last->e_key, last->e_klen, e->e_key, e->e_klen) : 0;

	return !last || (c->c_up ? d < 0 : d > 0);
}

/* Adds the next entries of the merge to the batch until that is full, or what ended it. */
static int batch_take(struct kvdb_cursor *c, bool up)
{
	struct batch *b = c->c_batch;
	unsigned want = c->c_limit && b->b_want > c->c_left ? (unsigned)c->c_left : b->b_want;
	struct kv_thread *t = merge_enter(c);
	struct kv_gap_walk gap = { 0 };
	int rc = 0;

	(void)up;
	while (b->b_n < want && b->b_used + KVDB_KEY_MAX + KV_PAGE <= BATCH_BYTES) {
		struct kv_ent *e = &b->b_ent[b->b_n];

		rc = c->c_it->it_ops->next(c->c_it, e);
		/* CUR-8: what was deleted may be much */
		if (KV_UNLIKELY(rc == -EAGAIN)) {
			if (gap_is_ahead(c))
				break;
			merge_exit(c, t);
			t = merge_enter(c);
			continue;
		}
		if (rc == -ENOENT)
			gap_note(c, NULL, &gap);
		if (rc)
			break;
		if (c->c_skip) {
			c->c_skip = false;
			if (!kv_kcmp(e->e_key, e->e_klen, b->b_key, c->c_klen))
				continue;
		}
		if (is_beyond(c, e)) {
			gap_note(c, e, &gap);
			rc = -ENOENT;
			break;
		}
		if (KV_UNLIKELY(e->e_expiry) && kv_is_expired(e, c->c_now)) {
			b->b_expired = true;
			continue;
		}
		gap_note(c, e, &gap);
		KV_ASSERT_SLOW(goes_on(c, e));
		batch_add(b);
		b->b_cold += !(c->c_flags & KVDB_KEYS_ONLY) && !kv_value_is_near(e);
	}
	if (!(c->c_flags & KVDB_KEYS_ONLY))
		batch_prefetch(b);
	merge_exit(c, t);
	if (KV_UNLIKELY(gap.gw_seq))
		kv_gaps_learn(c->c_kvs, &gap);
	return rc;
}

/* The next entries from the merge: 0 = there is one, or what ended the walk. */
static int batch_fill(struct kvdb_cursor *c)
{
	struct batch *b = c->c_batch;
	unsigned most;
	int rc = b->b_end;

	if (rc)
		return rc;
	KV_ASSERT(b->b_i == b->b_n);
	place_keep(c);
	b->b_n = b->b_i = b->b_cold = 0;
	b->b_used = 0;
	rc = with_reads(c, batch_take, c->c_up);
	kv_ahead_none(&b->b_ahead, b->b_n);
	if (b->b_cold)
		kv_ahead_read(c->c_kvs->k_db, &b->b_ahead, b->b_ent, b->b_n);
	b->b_end = rc == -EINPROGRESS ? 0 : rc;	/* the merge goes on from where it is */
	/* what is in memory needs no long way ahead, and keys read in vain cost too */
	most = b->b_cold || c->c_limit || c->c_flags & KVDB_KEYS_ONLY ? BATCH_MAX : BATCH_NEAR;
	b->b_want = b->b_want * 2 < most ? b->b_want * 2 : most;
	return b->b_n ? 0 : rc;
}

/* Did a source change, since the walk began, in what a step must show or not show? */
static bool is_overtaken(struct kvdb_cursor *c, bool up)
{
	uint64_t since = c->c_seen;
	bool has_key = c->c_place >= BELOW_KEY && c->c_place <= ABOVE_KEY;

	if (!c->c_changes || since == atomic_load_explicit(c->c_changes, memory_order_acquire))
		return false;
	if (!c->c_txn)
		return true;
	c->c_seen = atomic_load_explicit(c->c_changes, memory_order_acquire);
	return kv_txn_wrote_ahead(c->c_txn, c->c_kvs, since, up, has_key ? c->c_key : NULL,
				  c->c_klen, c->c_place == ON_KEY);
}

/* The entry that the next step goes to. -ENOENT: the end of the range. */
static int cursor_peek(struct kvdb_cursor *c, bool up, const struct kv_ent **out)
{
	struct batch *b;
	int rc = 0;

	if (KV_UNLIKELY(!c->c_ready || c->c_up != up || is_overtaken(c, up)))
		rc = with_reads(c, cursor_place, up);
	if (rc)
		return rc;
	b = c->c_batch;
	if (b->b_i == b->b_n) {
		/* met while more was taken ahead: again, its details are other calls' now */
		if (b->b_end && b->b_end != -ENOENT)
			rc = with_reads(c, cursor_place, up);
		if (!rc)
			rc = batch_fill(c);
		if (rc == -ENOENT)
			place_end(c, up);
		else if (rc && rc != -EINPROGRESS)
			c->c_ready = false;	/* the next call tries again from the place */
		if (rc)
			return rc;
	}
	*out = &b->b_ent[b->b_i];
	if (b->b_i + FETCH_AHEAD < b->b_n && !(c->c_flags & KVDB_KEYS_ONLY))
		kv_value_prefetch(*out + FETCH_AHEAD);
	return 0;
}

/* @e, the next of the batch, is shown and becomes the place. */
static void cursor_step(struct kvdb_cursor *c, const struct kv_ent *e)
{
	KV_ASSERT_SLOW(c->c_batch->b_i < c->c_batch->b_n);
	KV_ASSERT_SLOW(e == &c->c_batch->b_ent[c->c_batch->b_i]);
	c->c_batch->b_i++;
	c->c_place = ON_KEY;
	c->c_key = e->e_key;
	c->c_klen = e->e_klen;
}

/* ---- the calls ------------------------------------------------------------------------- */

static int seek_to(struct kvdb_cursor *c, const void *key, size_t klen, bool behind)
{
	struct kv_tctx *tc = kv_tctx(c->c_kvs->k_db);
	bool up = !(c->c_flags & KVDB_REVERSE);
	int rc = c->c_txn ? kv_txn_check(c->c_txn, c->c_kvs) : 0;

	if (rc)
		return rc;
	if (klen > KVDB_KEY_MAX)
		return kv_error(-ENAMETOOLONG, "MP0911", "%s: key of %zu bytes; the longest is %u",
				c->c_kvs->k_name, klen, KVDB_KEY_MAX);
	if (klen && !key)
		return kv_error(-EINVAL, "MP0951", "%s: a key of %zu bytes at NULL",
				c->c_kvs->k_name, klen);
	if (tc)
		kv_count(&tc->tc_seeks, 1);
	rc = batch_open(c);
	if (rc)
		return kv_error_memory(rc, "a cursor");
	if (klen) {
		memcpy(c->c_batch->b_key, key, klen);
		c->c_key = c->c_batch->b_key;
		c->c_klen = (uint16_t)klen;
		c->c_place = behind == up ? ABOVE_KEY : BELOW_KEY;
	} else {
		c->c_place = c->c_left_for = behind == up ? AT_TOP : AT_BOTTOM;
	}
	c->c_left = c->c_limit;
	/* most walks go on in the cursor's direction; for others it is found at the first step */
	if (!behind)
		return kv_error_memory(with_reads(c, cursor_place, up), "a cursor");
	c->c_ready = false;
	return 0;
}

int kvdb_cursor_seek(struct kvdb_cursor *cur, const void *key, size_t klen)
{
	int rc = cursor_begin(cur);

	return rc ? rc : cursor_end(cur, seek_to(cur, key, klen, false));
}

int kvdb_cursor_seek_after(struct kvdb_cursor *cur, const void *key, size_t klen)
{
	int rc = cursor_begin(cur);

	return rc ? rc : cursor_end(cur, seek_to(cur, key, klen, true));
}

/* The value of an entry of the batch that was read ahead, or NULL. */
static const uint8_t *value_ahead(struct kvdb_cursor *c, const struct kv_ent *e)
{
	const struct batch *b = c->c_batch;
	const uint8_t *v = kv_ahead_value(&b->b_ahead, e, (unsigned)(e - b->b_ent));
	struct kv_tctx *tc = v ? kv_tctx(c->c_kvs->k_db) : NULL;

	if (tc)
		kv_count(&tc->tc_value_dev, 1);
	return v;
}

static int value_read(struct kvdb_cursor *c, const struct kv_ent *e, uint8_t *out)
{
	struct kvdb *db = c->c_kvs->k_db;
	struct kv_thread *t;
	int rc;

	/* a hint: its image may come or go meanwhile, which only costs time */
	if (!kv_value_is_near(e) && !kv_async_is_on(db))
		return kv_value_wait(db, e, out, e->e_vlen);
	t = kv_enter();
	rc = kv_value_read(db, e, out, e->e_vlen);
	kv_exit(t);
	return rc;
}

/* *out: the value of an entry of the batch, good until the cursor moves. */
static int value_fetch(struct kvdb_cursor *c, const struct kv_ent *e, const uint8_t **out)
{
	struct batch *b = c->c_batch;

	KV_ASSERT_OUTSIDE();
	*out = value_ahead(c, e);
	if (*out)
		return 0;
	if (KV_UNLIKELY(e->e_vlen > b->b_val_size)) {
		uint8_t *p = malloc(e->e_vlen);

		if (!p)
			return -ENOMEM;
		if (b->b_val != (uint8_t *)(b + 1))
			free(b->b_val);
		count_bytes(kv_tctx(c->c_kvs->k_db), e->e_vlen - b->b_val_size);
		b->b_val = p;
		b->b_val_size = e->e_vlen;
	}
	*out = b->b_val;
	return value_read(c, e, b->b_val);
}

static int cursor_show(struct kvdb_cursor *c, bool up, const void **key, size_t *klen,
		       const void **val, size_t *vlen)
{
	struct kv_tctx *tc = kv_tctx(c->c_kvs->k_db);
	bool with_value = !(c->c_flags & KVDB_KEYS_ONLY);
	const struct kv_ent *e;
	const uint8_t *v = NULL;
	int rc = c->c_txn ? kv_txn_check(c->c_txn, c->c_kvs) : 0;

	if (rc)
		return rc;
	if (tc)
		kv_count(&tc->tc_nexts, 1);
	if (c->c_limit && !c->c_left)
		return -ENOENT;
	rc = cursor_peek(c, up, &e);
	if (rc)
		return kv_error_memory(rc, "a cursor");
	if (with_value && e->e_kind == KV_ENT_INLINE)
		v = e->e_vlen ? e->e_val : e->e_key;
	else if (with_value)
		rc = value_fetch(c, e, &v);
	if (rc == -ENOMEM)	/* the pair is good, and still the next one */
		return kv_error_memory(rc, "a value");
	cursor_step(c, e);
	if (rc)
		return rc;
	c->c_left -= c->c_limit != 0;
	c->c_ent_seq = e->e_seq;
	if (key)
		*key = e->e_key;
	if (klen)
		*klen = e->e_klen;
	if (val)
		*val = v;
	if (vlen)
		*vlen = e->e_vlen;
	if (tc)
		kv_count(&tc->tc_read_bytes, e->e_klen + (with_value ? e->e_vlen : 0));
	return 0;
}

int kvdb_cursor_next(struct kvdb_cursor *cur, const void **key, size_t *klen, const void **val,
		     size_t *vlen)
{
	int rc = cursor_begin(cur);

	if (KV_UNLIKELY(rc))
		return rc;
	rc = cursor_show(cur, !(cur->c_flags & KVDB_REVERSE), key, klen, val, vlen);
	return cursor_end(cur, rc);
}

int kvdb_cursor_prev(struct kvdb_cursor *cur, const void **key, size_t *klen, const void **val,
		     size_t *vlen)
{
	int rc = cursor_begin(cur);

	if (KV_UNLIKELY(rc))
		return rc;
	rc = cursor_show(cur, cur->c_flags & KVDB_REVERSE, key, klen, val, vlen);
	return cursor_end(cur, rc);
}

/* Adds the pair of an entry; its value is read into its place. */
static int pairs_add(struct kvdb_cursor *c, struct kv_pairs *ps, const struct kv_ent *e)
{
	struct kvdb_pair *pr = (struct kvdb_pair *)ps->ps_buf + ps->ps_n;
	size_t vlen = c->c_flags & KVDB_KEYS_ONLY ? 0 : e->e_vlen;
	uint8_t *end, *key;
	const uint8_t *val;
	int rc = 0;

	if (sizeof(*pr) + e->e_klen + vlen > ps->ps_room)
		return -ENOBUFS;
	end = (uint8_t *)pr + ps->ps_room;
	key = end - vlen - e->e_klen;
	val = vlen ? value_ahead(c, e) : NULL;
	if (val)
		memcpy(end - vlen, val, vlen);
	else if (vlen)
		rc = value_read(c, e, end - vlen);
	if (rc)
		return rc;
	memcpy(key, e->e_key, e->e_klen);
	*pr = (struct kvdb_pair){ .key = key, .klen = e->e_klen, .vlen = e->e_vlen,
				  .val = c->c_flags & KVDB_KEYS_ONLY ? NULL : end - vlen };
	ps->ps_n++;
	ps->ps_room -= sizeof(*pr) + e->e_klen + vlen;
	return 0;
}

int kv_cursor_fill(struct kvdb_cursor *c, struct kv_pairs *out)
{
	struct kv_tctx *tc = kv_tctx(c->c_kvs->k_db);
	const struct kv_ent *e;
	struct kv_thread *t;
	struct batch *b;
	int rc;

	KV_ASSERT_OUTSIDE();
	while (!c->c_limit || c->c_left) {
		rc = cursor_peek(c, !(c->c_flags & KVDB_REVERSE), &e);
		if (rc)
			return rc == -ENOENT ? 0 : rc;
		rc = pairs_add(c, out, e);
		if (rc) {
			b = c->c_batch;
			t = kv_enter();
			if (rc == -EINPROGRESS)
				kv_values_ahead(c->c_kvs->k_db, e, b->b_n - b->b_i);
			kv_exit(t);
			return rc;
		}
		cursor_step(c, e);
		c->c_left -= c->c_limit != 0;
		if (!tc)
			continue;
		kv_count(&tc->tc_nexts, 1);
		kv_count(&tc->tc_read_bytes,
			 e->e_klen + (c->c_flags & KVDB_KEYS_ONLY ? 0 : e->e_vlen));
	}
	return 0;
}

uint64_t kv_cursor_steps(const struct kvdb_cursor *cur)
{
	return cur->c_it ? kv_merge_steps(cur->c_it) : 0;
}

void kv_cursor_show_expired(struct kvdb_cursor *cur)
{
	cur->c_now = 0;
}

uint64_t kv_cursor_ent_seq(const struct kvdb_cursor *cur)
{
	return cur->c_ent_seq;
}
