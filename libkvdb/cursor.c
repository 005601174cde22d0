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
 * cursor pins objects by reference only and is outside kv_enter().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ahead.h"
#include "cursor.h"
#include "leaf.h"
#include "load.h"
#include "pages.h"
#include "run.h"
#include "thread.h"
#include "tomb.h"
#include "txn.h"

#define BATCH_MIN	2u
#define BATCH_NEAR	16u	/* while values come from memory */
#define BATCH_MAX	KV_AHEAD_MAX
#define FETCH_AHEAD	4u	/* values: the lines of more wait for each other */
#define REST		256u	/* entries that a walk comes by inside kv_enter() */
#define BATCH_BYTES	12288u	/* of keys and inline values; more than two of the largest */
#define VALUE_MIN	4096u

/* Where the cursor stands, in key order whatever its direction. */
enum place {
	AT_BOTTOM,	/* below every key of the range */
	BELOW_KEY,
	ON_KEY,
	ABOVE_KEY,
	AT_TOP
};

/* Entries taken from the merge and not yet shown. Their bytes are copies. */
struct batch {
	unsigned b_n, b_i;	/* shown: [0, b_i) */
	unsigned b_want;	/* entries of the next one */
	unsigned b_far;		/* whose values are not in memory */
	uint32_t b_used;
	int b_end;		/* why it ends: 0 = it was full; -ENOENT; an error */
	struct kv_ahead b_ahead;	/* values of b_ent that were read from devices */
	uint8_t *b_val;		/* value shown last; b_val_size */
	size_t b_val_size;
	struct kv_ent b_ent[BATCH_MAX];
	uint8_t b_key[KVDB_KEY_MAX];	/* of the place */
	uint8_t b_bytes[BATCH_BYTES];
};

struct kvdb_cursor {
	struct kvdb_kvs *c_kvs;
	struct kv_tree *c_tree;	/* NULL: the store is younger than the transaction */
	struct kvdb_txn *c_txn;	/* whose view and writes it shows, or NULL */
	uint64_t c_seq;
	uint64_t c_ent_seq;	/* stamp of the entry returned last */
	uint64_t c_now;		/* engine time of its birth, ms: what expires later is there */
	struct kv_cover *c_cover;	/* deletes of many keys, or NULL */
	uint32_t c_flags;
	uint8_t c_place;	/* enum place */
	bool c_up;		/* direction of c_it */
	bool c_ready;		/* c_it and the batch go on from the place in direction c_up */
	bool c_skip;		/* the first entry is passed over when it has the place's key */
	uint16_t c_klen;	/* of the place's key */
	uint16_t c_lo_len;	/* range [lo, hi); 0: open */
	uint16_t c_hi_len;
	const uint8_t *c_key;	/* in the batch */
	uint64_t c_limit, c_left;
	const _Atomic(uint64_t) *c_changes;
	uint64_t c_seen;	/* *c_changes when the walk began */
	struct kv_iter *c_it;	/* NULL until used */
	struct batch *c_batch;	/* likewise */
	struct kv_iter **c_extra;
	unsigned c_nextra;
	uint8_t c_range[];	/* lo, then hi */
};

static inline const uint8_t *range_lo(const struct kvdb_cursor *c)
{
	return c->c_range;
}

static inline const uint8_t *range_hi(const struct kvdb_cursor *c)
{
	return c->c_range + c->c_lo_len;
}

/* ---- making one ----------------------------------------------------------------------- */

/* Length of the smallest string above all with the prefix, once its last byte is raised; 0: none */
static size_t succ_len(const uint8_t *prefix, size_t n)
{
	while (n && prefix[n - 1] == 0xff)
		n--;
	return n;
}

static int opts_check(const struct kvdb_cursor_opts *o)
{
	if (o->size != sizeof(*o) || o->pad)
		return kv_error(-EINVAL, "MP0951", "cursor options of %zu bytes, wanted %zu, or "
				"with a reserved field set", o->size, sizeof(*o));
	if (o->flags & ~(KVDB_REVERSE | KVDB_KEYS_ONLY))
		return kv_error(-EINVAL, "MP0951", "cursor flags %#x are not known", o->flags);
	if ((o->plen && !o->prefix) || (o->flen && !o->from) || (o->tlen && !o->to))
		return kv_error(-EINVAL, "MP0951", "a cursor's bound of some bytes at NULL");
	if (o->plen > KVDB_KEY_MAX)
		return kv_error(-ENAMETOOLONG, "MP0911", "a prefix of %zu bytes; the most is %u",
				o->plen, KVDB_KEY_MAX);
	if (o->flen > KVDB_KEY_MAX || o->tlen > KVDB_KEY_MAX)
		return kv_error(-ENAMETOOLONG, "MP0911", "a bound of %zu bytes; the most is %u",
				o->flen > o->tlen ? o->flen : o->tlen, KVDB_KEY_MAX);
	return 0;
}

/* The range that prefix, from and to have in common. */
static void range_make(struct kvdb_cursor *c, const struct kvdb_cursor_opts *o)
{
	const uint8_t *lo = o->prefix, *hi = o->prefix;
	size_t lo_len = o->plen, hi_len = succ_len(o->prefix, o->plen);
	bool is_succ = true;
	uint8_t *p = c->c_range;

	if (o->flen && (!lo_len || kv_kcmp(o->from, o->flen, lo, lo_len) > 0)) {
		lo = o->from;
		lo_len = o->flen;
	}
	/* the successor differs from the prefix in its last byte: compare what is before it */
	if (o->tlen) {
		int d = hi_len ? kv_kcmp(o->to, o->tlen < hi_len ? o->tlen : hi_len, hi, hi_len) :
				 -1;

		if (!hi_len || d <= 0) {
			hi = o->to;
			hi_len = o->tlen;
			is_succ = false;
		}
	}
	c->c_lo_len = (uint16_t)lo_len;
	c->c_hi_len = (uint16_t)hi_len;
	if (lo_len)
		memcpy(p, lo, lo_len);
	if (hi_len)
		memcpy(p + lo_len, hi, hi_len);
	if (hi_len && is_succ)
		p[lo_len + hi_len - 1]++;
}

int kv_cursor_new(struct kvdb_kvs *kvs, const struct kvdb_cursor_opts *o,
		  const struct kv_cursor_in *in, struct kvdb_cursor **out)
{
	int rc = opts_check(o);
	size_t bounds = rc ? 0 : o->plen + o->flen + o->plen + o->tlen;
	size_t extra = in->nextra * sizeof(struct kv_iter *);
	struct kvdb_cursor *c;

	c = rc ? NULL : malloc(sizeof(*c) + bounds + 8 + extra);
	if (!c) {
		kv_iters_close(in->extra, in->nextra);
		kv_tree_put(kvs->k_db, in->tree);
		return rc ? rc : kv_error(-ENOMEM, "MP0902", "no memory for a cursor");
	}
	*c = (struct kvdb_cursor){ .c_kvs = kvs, .c_tree = in->tree, .c_seq = in->seq,
				   .c_txn = in->txn ? kv_txn_get(in->txn) : NULL,
				   .c_flags = o->flags, .c_changes = in->changes,
				   .c_nextra = in->nextra, .c_limit = o->limit,
				   .c_left = o->limit,
				   .c_place = o->flags & KVDB_REVERSE ? AT_TOP : AT_BOTTOM };
	c->c_now = in->txn ? kv_time_at(kvs->k_db, in->txn->t_view.vi_born_ns) :
			     kv_time_ms(kvs->k_db);
	range_make(c, o);
	c->c_extra = (struct kv_iter **)(((uintptr_t)c->c_range + bounds + 7) & ~(uintptr_t)7);
	if (extra)
		memcpy(c->c_extra, in->extra, extra);
	atomic_fetch_add(&kvs->k_cursors, 1);
	*out = c;
	return 0;
}

void kv_snapshot(struct kvdb_kvs *kvs, struct kv_tree **tree, uint64_t *seq)
{
	struct kvdb *db = kvs->k_db;

	for (;;) {
		*tree = kv_tree_get(kvs);
		*seq = kv_view_open(db);
		/* behind its fence: a put into a newer tree has a greater stamp, or that is seen */
		if (atomic_load_explicit(&kvs->k_tree, memory_order_acquire) == *tree)
			return;
		kv_tree_put(db, *tree);
	}
}

int kvdb_cursor_open_opts(struct kvdb_kvs *kvs, const struct kvdb_cursor_opts *opts,
			  struct kvdb_cursor **out)
{
	static const struct kvdb_cursor_opts none = KVDB_CURSOR_OPTS_INIT;
	struct kv_cursor_in in = { 0 };

	kv_snapshot(kvs, &in.tree, &in.seq);
	return kv_cursor_new(kvs, opts ? opts : &none, &in, out);
}

int kvdb_cursor_open(struct kvdb_kvs *kvs, unsigned flags, const void *prefix, size_t plen,
		     struct kvdb_cursor **out)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;

	o.flags = flags;
	o.prefix = prefix;
	o.plen = plen;
	return kvdb_cursor_open_opts(kvs, &o, out);
}

/* The view of a transaction; the cursor has its own hold on the tree and the writes. */
int kvdb_txn_cursor_open_opts(struct kvdb_txn *txn, struct kvdb_kvs *kvs,
			      const struct kvdb_cursor_opts *opts, struct kvdb_cursor **out)
{
	static const struct kvdb_cursor_opts none = KVDB_CURSOR_OPTS_INIT;
	struct kv_cursor_in in = { .txn = txn, .nextra = 1 };
	struct kv_iter *own;
	int rc = kv_txn_snapshot(txn, kvs, &in.tree, &in.seq);

	if (rc)
		return rc;
	rc = kv_txn_iter(txn, kvs, false, &own);
	if (rc) {
		kv_tree_put(kvs->k_db, in.tree);
		return kv_error_memory(rc, "a cursor");
	}
	in.extra = &own;
	return kv_cursor_new(kvs, opts ? opts : &none, &in, out);
}

int kvdb_txn_cursor_open(struct kvdb_txn *txn, struct kvdb_kvs *kvs, unsigned flags,
			 const void *prefix, size_t plen, struct kvdb_cursor **out)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;

	o.flags = flags;
	o.prefix = prefix;
	o.plen = plen;
	return kvdb_txn_cursor_open_opts(txn, kvs, &o, out);
}

/* ---- sources ---------------------------------------------------------------------------- */

/* What deletes of many keys hide from the view. */
static int cover_open(struct kvdb_cursor *c)
{
	struct kv_tree *tr = c->c_tree;
	int rc = 0;

	if (tr && !c->c_cover)
		c->c_cover = kv_cover_new(tr->tr_mt, tr->tr_nmt, tr->tr_run, tr->tr_nrun, c->c_seq,
					  &rc);
	return rc;
}

/* One that fails can be tried again: what came with the cursor stays, nobody can open it anew. */
static int sources_open(struct kvdb_cursor *c, bool up)
{
	struct kvdb *db = c->c_kvs->k_db;
	struct kv_tree *tr = c->c_tree;
	unsigned nmt = tr ? tr->tr_nmt : 0, nrun = tr ? tr->tr_nupper + 1 : 0;
	unsigned most = c->c_nextra + nmt + nrun, n = c->c_nextra;
	struct kv_iter *few[16], **src = few;
	int rc = cover_open(c);

	if (rc)
		return rc;
	if (most > sizeof(few) / sizeof(few[0]))
		src = malloc(most * sizeof(*src));
	if (!src)
		return -ENOMEM;
	for (unsigned i = 0; i < nmt && !rc; i++) {
		rc = kv_mt_iter(db, tr->tr_mt[i], c->c_seq, !up, &src[n]);
		n += !rc;
	}
	if (tr && !rc) {
		rc = kv_tree_sources(db, tr, !up, false, &src[n]);
		n += rc > 0 ? (unsigned)rc : 0;
		rc = rc > 0 ? 0 : rc;
	}
	if (!rc) {
		for (unsigned i = 0; i < c->c_nextra; i++) {
			src[i] = c->c_extra[i];
			src[i]->it_ops->turn(src[i], !up);
		}
		rc = kv_merge_iter(src, n, !up, false, &c->c_it);
	}
	if (rc) {
		kv_iters_close(src + c->c_nextra, n - c->c_nextra);
	} else {
		c->c_nextra = 0;
		if (c->c_cover)
			kv_merge_hide(c->c_it, kv_cover_hides, c->c_cover);
	}
	if (src != few)
		free(src);
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
	/* who says how many he wants reads no keys in vain */
	b->b_want = c->c_limit ? BATCH_MAX : BATCH_MIN;
	b->b_n = b->b_i = 0;
	kv_ahead_init(&b->b_ahead);
	c->c_batch = b;
	return 0;
}

static void batch_close(struct kvdb_cursor *c)
{
	struct batch *b = c->c_batch;
	struct kv_tctx *tc;

	if (!b)
		return;
	kv_ahead_close(c->c_kvs->k_db, &b->b_ahead);
	if (b->b_val != (uint8_t *)(b + 1)) {
		free(b->b_val);
		b->b_val = (uint8_t *)(b + 1);
		b->b_val_size = VALUE_MIN;
	}
	tc = kv_tctx(c->c_kvs->k_db);
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

/* Makes the walk go on from the place in the direction. */
static int cursor_place(struct kvdb_cursor *c, bool up)
{
	const uint8_t *key;
	struct batch *b;
	size_t klen;
	int rc = batch_open(c);

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
	if (c->c_changes)
		c->c_seen = atomic_load_explicit(c->c_changes, memory_order_acquire);
	b->b_end = -ENOENT;
	if (seek_key(c, up, &key, &klen)) {
		/* not inside kv_enter(): it may have to put a memtable in order */
		rc = c->c_it->it_ops->seek(c->c_it, key, klen);
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

	if (kv_async_is_on(as.as_db))
		return step(c, up);
	do {
		before = kv_cursor_steps(c);
		kv_async_try(&as);
		rc = step(c, up);
	} while (kv_async_again(&as, rc, kv_cursor_steps(c) != before));
	return rc;
}

/* Is the entry beyond the range in the direction of the walk? */
static inline bool is_beyond(const struct kvdb_cursor *c, const struct kv_ent *e)
{
	if (c->c_up)
		return c->c_hi_len &&
		       kv_kcmp(e->e_key, e->e_klen, range_hi(c), c->c_hi_len) >= 0;
	return c->c_lo_len && kv_kcmp(e->e_key, e->e_klen, range_lo(c), c->c_lo_len) < 0;
}

/* Keeps the entry behind the last one, with its bytes. */
static inline void batch_add(struct batch *b)
{
	struct kv_ent *e = &b->b_ent[b->b_n++];

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
	kv_pages_room(c->c_kvs->k_db, 2 * BATCH_MAX);
	kv_merge_rest(c->c_it, REST);
	return kv_enter();
}

static void merge_exit(struct kvdb_cursor *c, struct kv_thread *t)
{
	kv_iter_park(c->c_it);
	kv_exit(t);
}

/* Adds the next entries of the merge to the batch until that is full, or what ended it. */
static int batch_take(struct kvdb_cursor *c, bool up)
{
	struct batch *b = c->c_batch;
	unsigned want = c->c_limit && b->b_want > c->c_left ? (unsigned)c->c_left : b->b_want;
	struct kv_thread *t = merge_enter(c);
	int rc = 0;

	(void)up;
	while (b->b_n < want && b->b_used + KVDB_KEY_MAX + KV_PAGE <= BATCH_BYTES) {
		struct kv_ent *e = &b->b_ent[b->b_n];

		rc = c->c_it->it_ops->next(c->c_it, e);
		/* CUR-8: what was deleted may be much */
		if (KV_UNLIKELY(rc == -EAGAIN)) {
			merge_exit(c, t);
			t = merge_enter(c);
			continue;
		}
		if (rc)
			break;
		if (c->c_skip) {
			c->c_skip = false;
			if (!kv_kcmp(e->e_key, e->e_klen, b->b_key, c->c_klen))
				continue;
		}
		if (is_beyond(c, e)) {
			rc = -ENOENT;
			break;
		}
		if (KV_UNLIKELY(e->e_expiry) && kv_is_expired(e, c->c_now))
			continue;
		batch_add(b);
		b->b_far += !(c->c_flags & KVDB_KEYS_ONLY) && !kv_value_is_near(e);
	}
	if (!(c->c_flags & KVDB_KEYS_ONLY))
		batch_prefetch(b);
	merge_exit(c, t);
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
	place_keep(c);
	b->b_n = b->b_i = b->b_far = 0;
	b->b_used = 0;
	rc = with_reads(c, batch_take, c->c_up);
	kv_ahead_none(&b->b_ahead, b->b_n);
	if (b->b_far)
		kv_ahead_read(c->c_kvs->k_db, &b->b_ahead, b->b_ent, b->b_n);
	b->b_end = rc == -EINPROGRESS ? 0 : rc;	/* the merge goes on from where it is */
	/* what is in memory needs no long way ahead, and keys read in vain cost too */
	most = b->b_far || c->c_limit || c->c_flags & KVDB_KEYS_ONLY ? BATCH_MAX : BATCH_NEAR;
	b->b_want = b->b_want * 2 < most ? b->b_want * 2 : most;
	return b->b_n ? 0 : rc;
}

/* The entry that the next step goes to. -ENOENT: the end of the range. */
static int cursor_peek(struct kvdb_cursor *c, bool up, const struct kv_ent **out)
{
	struct batch *b;
	int rc = 0;

	if (KV_UNLIKELY(!c->c_ready || c->c_up != up ||
			(c->c_changes && c->c_seen != atomic_load_explicit(c->c_changes,
									   memory_order_acquire))))
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
			c->c_place = up ? AT_TOP : AT_BOTTOM;
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

/* Goes there. */
static void cursor_step(struct kvdb_cursor *c, const struct kv_ent *e)
{
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
	int rc = c->c_txn ? kv_txn_check(c->c_txn) : 0;

	if (rc)
		return rc;
	if (klen > KVDB_KEY_MAX || (klen && !key))
		return kv_error(-EINVAL, "MP0951", "a key of %zu bytes; the most is %u", klen,
				KVDB_KEY_MAX);
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
		c->c_place = behind == up ? AT_TOP : AT_BOTTOM;
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
	return seek_to(cur, key, klen, false);
}

int kvdb_cursor_seek_after(struct kvdb_cursor *cur, const void *key, size_t klen)
{
	return seek_to(cur, key, klen, true);
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

	/* it may have its image no more, or again: either is only slower */
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

	*out = value_ahead(c, e);
	if (*out)
		return 0;
	if (KV_UNLIKELY(e->e_vlen > b->b_val_size)) {
		uint8_t *p = malloc(e->e_vlen);

		if (!p)
			return -ENOMEM;
		if (b->b_val != (uint8_t *)(b + 1))
			free(b->b_val);
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
	int rc = c->c_txn ? kv_txn_check(c->c_txn) : 0;

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
	if (rc == -ENOMEM)	/* nothing is wrong with the pair: it is the next one still */
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
	return cursor_show(cur, !(cur->c_flags & KVDB_REVERSE), key, klen, val, vlen);
}

int kvdb_cursor_prev(struct kvdb_cursor *cur, const void **key, size_t *klen, const void **val,
		     size_t *vlen)
{
	return cursor_show(cur, cur->c_flags & KVDB_REVERSE, key, klen, val, vlen);
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

void kvdb_cursor_close(struct kvdb_cursor *cur)
{
	struct kvdb *db;

	if (!cur)
		return;
	db = cur->c_kvs->k_db;
	if (cur->c_it)
		cur->c_it->it_ops->close(cur->c_it);
	kv_iters_close(cur->c_extra, cur->c_nextra);
	free(cur->c_cover);
	kv_tree_put(db, cur->c_tree);
	atomic_fetch_sub(&cur->c_kvs->k_cursors, 1);
	if (cur->c_txn)
		kv_txn_put(cur->c_txn);
	batch_close(cur);
	free(cur);
}
