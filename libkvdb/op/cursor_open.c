/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Cursors begin, are renewed, and end; and the keeper takes away what one shows that has not been
 * used for long, or not as lately as others, when it costs too much (tree/hold.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "op/cursor_body.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/key.h"
#include "db/etime.h"
#include "mem/iter.h"
#include "tree/merge_iter.h"
#include "tree/tomb_view.h"
#include "tree/tree.h"
#include "tree/view.h"
#include "txn/txn.h"

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
	if (o->flags & ~(KVDB_REVERSE | KVDB_KEYS_ONLY | KVDB_TO_INCLUSIVE))
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

/* Makes of n bytes the smallest string above all that begin with them. Its length; 0: none */
static size_t raise(uint8_t *p, size_t n)
{
	n = succ_len(p, n);
	if (n)
		p[n - 1]++;
	return n;
}

/* The smallest key beyond @to of @o; 0: there is none. */
static size_t to_end(const struct kvdb_cursor_opts *o, uint8_t *out)
{
	if (!o->tlen)
		return 0;
	memcpy(out, o->to, o->tlen);
	if (!(o->flags & KVDB_TO_INCLUSIVE))
		return o->tlen;
	/* the next string of all is one byte longer, which no key can be after the longest */
	if (o->tlen == KVDB_KEY_MAX)
		return raise(out, o->tlen);
	out[o->tlen] = 0;
	return o->tlen + 1;
}

/* Bytes that the two ends of a range take at most. */
static size_t range_size(const struct kvdb_cursor_opts *o)
{
	size_t hi = o->plen > o->tlen + 1 ? o->plen : o->tlen + 1;

	return (o->plen > o->flen ? o->plen : o->flen) + hi;
}

/* The range that prefix, from and to have in common. */
static void range_make(struct kvdb_cursor *c, const struct kvdb_cursor_opts *o)
{
	bool from = o->flen && (!o->plen || kv_kcmp(o->from, o->flen, o->prefix, o->plen) > 0);
	const void *lo = from ? o->from : o->prefix;
	size_t lo_len = from ? o->flen : o->plen, hi_len, to_len;
	uint8_t *hi = c->c_range + lo_len, to[KVDB_KEY_MAX];

	if (lo_len)
		memcpy(c->c_range, lo, lo_len);
	if (o->plen)
		memcpy(hi, o->prefix, o->plen);
	hi_len = raise(hi, o->plen);
	to_len = to_end(o, to);
	if (to_len && (!hi_len || kv_kcmp(to, to_len, hi, hi_len) < 0)) {
		memcpy(hi, to, to_len);
		hi_len = to_len;
	}
	c->c_lo_len = (uint16_t)lo_len;
	c->c_hi_len = (uint16_t)hi_len;
}

/* Before everything. */
static uint8_t place_start(const struct kvdb_cursor_opts *o)
{
	return o->flags & KVDB_REVERSE ? AT_TOP : AT_BOTTOM;
}

/* One more, or less. @tc: of the thread, or NULL. */
static void count(struct kv_tctx *tc, uint64_t by)
{
	if (tc)
		kv_count(&tc->tc_cursors, by);
	count_bytes(tc, by * (sizeof(struct kvdb_cursor) + KV_WALK_ROOM));
}

/* Lets go of what it shows. */
static void sources_close(struct kvdb_cursor *c)
{
	if (c->c_it)
		c->c_it->it_ops->close(c->c_it);
	kv_iters_close(c->c_extra, c->c_nextra);
	free(c->c_hidden.hi_cover);
	kv_tree_put(c->c_kvs->k_db, c->c_tree);
	c->c_it = NULL;
	c->c_nextra = 0;
	c->c_hidden.hi_cover = NULL;
	c->c_tree = NULL;
	c->c_ready = false;
}

/* The keeper's; a drop of the store does not wait for its owner any more. */
static void let_go(struct kv_hold *ho)
{
	struct kvdb_cursor *c = (struct kvdb_cursor *)((char *)ho - offsetof(struct kvdb_cursor,
									    c_hold));

	sources_close(c);
	/* in this order: a close of the database sees one of them (check_unused()) */
	atomic_fetch_add(&c->c_kvs->k_gone, 1);
	KV_ASSERT(atomic_load(&c->c_kvs->k_cursors));
	atomic_fetch_sub(&c->c_kvs->k_cursors, 1);
}

int kv_cursor_error_gone(const struct kvdb_cursor *c)
{
	const struct kvdb_kvs *kvs = c->c_kvs;

	if (atomic_load(&c->c_hold.ho_word) == KV_HOLD_GONE_UNUSED)
		return kv_error(-ESTALE, "MP0931", "%s: the cursor was not used for %u ms "
				"(view_max_age_ms)", kvs->k_name,
				kvs->k_db->d_mode.md_view_max_age_ms);
	return kv_error(-ESTALE, "MP0930", "%s: the cursor's snapshot held more memory than "
			"snapshots may; it was the one used least lately", kvs->k_name);
}

int kv_cursor_new(struct kvdb_kvs *kvs, const struct kvdb_cursor_opts *o,
		  const struct kv_cursor_in *in, struct kvdb_cursor **out)
{
	int rc = opts_check(o), err = rc ? 0 : kv_hold_ready(kvs->k_db, in->tree);
	size_t bounds = rc ? 0 : range_size(o);
	size_t extra = in->nextra * sizeof(struct kv_iter *);
	struct kvdb_cursor *c;

	c = rc || err ? NULL : malloc(sizeof(*c) + KV_WALK_ROOM + bounds + 8 + extra);
	if (!c) {
		kv_iters_close(in->extra, in->nextra);
		kv_tree_put(kvs->k_db, in->tree);
		return rc ? rc : kv_error(-ENOMEM, "MP0902", "no memory for a cursor");
	}
	*c = (struct kvdb_cursor){ .c_hold = { .ho_word = KV_HOLD_BUSY, .ho_let_go = let_go },
				   .c_kvs = kvs, .c_tree = in->tree, .c_seq = in->seq,
				   .c_txn = in->txn ? kv_txn_get(in->txn) : NULL,
				   .c_hidden = { .hi_txn = in->txn, .hi_kvs = kvs },
				   .c_flags = o->flags, .c_changes = in->changes,
				   .c_nextra = in->nextra, .c_nown = in->nextra,
				   .c_limit = o->limit,
				   .c_left = o->limit,
				   .c_place = place_start(o) };
	c->c_left_for = c->c_place;
	c->c_hold.ho_born_ns = kv_now(kvs->k_db);
	c->c_now = in->txn ? in->txn->t_view.vi_born_ms : kv_time_of_view(kvs->k_db);
	c->c_range = c->c_room + KV_WALK_ROOM;
	c->c_range_size = (uint32_t)bounds;
	range_make(c, o);
	c->c_extra = (struct kv_iter **)(((uintptr_t)c->c_range + bounds + 7) & ~(uintptr_t)7);
	if (extra)
		memcpy(c->c_extra, in->extra, extra);
	atomic_fetch_add(&kvs->k_cursors, 1);
	count(kv_tctx(kvs->k_db), 1);
	kv_hold_add(kvs->k_db, &c->c_hold, c->c_tree);
	*out = c;
	return 0;
}

int kv_txn_sources(struct kvdb_txn *txn, struct kvdb_kvs *kvs, struct kv_cursor_in *in,
		   struct kv_iter **own)
{
	int rc = kv_txn_snapshot(txn, kvs, &in->tree, &in->seq);

	if (rc)
		return rc;
	rc = kv_txn_iter(txn, kvs, false, own);
	if (!rc)
		return 0;
	kv_tree_put(kvs->k_db, in->tree);
	return kv_error_memory(rc, "a cursor");
}

int kv_cursor_open(struct kvdb_kvs *kvs, const struct kvdb_cursor_opts *opts,
		   struct kvdb_cursor **out)
{
	static const struct kvdb_cursor_opts none = KVDB_CURSOR_OPTS_INIT;
	struct kv_cursor_in in = { 0 };

	kv_snapshot(kvs, &in.tree, &in.seq);
	return kv_cursor_new(kvs, opts ? opts : &none, &in, out);
}

int kvdb_cursor_open_opts(struct kvdb_kvs *kvs, const struct kvdb_cursor_opts *opts,
			  struct kvdb_cursor **out)
{
	int rc = kv_cursor_open(kvs, opts, out);

	return rc ? rc : cursor_end(*out, 0);
}

/* Of the calls without a range, in which its flags mean nothing. */
static int opts_plain(struct kvdb_cursor_opts *o, unsigned flags, const void *prefix, size_t plen)
{
	if (flags & ~(KVDB_REVERSE | KVDB_KEYS_ONLY))
		return kv_error(-EINVAL, "MP0951", "cursor flags %#x are not known", flags);
	*o = (struct kvdb_cursor_opts)KVDB_CURSOR_OPTS_INIT;
	o->flags = flags;
	o->prefix = prefix;
	o->plen = plen;
	return 0;
}

int kvdb_cursor_open(struct kvdb_kvs *kvs, unsigned flags, const void *prefix, size_t plen,
		     struct kvdb_cursor **out)
{
	struct kvdb_cursor_opts o;
	int err = opts_plain(&o, flags, prefix, plen);

	return err ? err : kvdb_cursor_open_opts(kvs, &o, out);
}

/* The view of a transaction; the cursor has its own hold on the tree and the writes. */
int kvdb_txn_cursor_open_opts(struct kvdb_txn *txn, struct kvdb_kvs *kvs,
			      const struct kvdb_cursor_opts *opts, struct kvdb_cursor **out)
{
	static const struct kvdb_cursor_opts none = KVDB_CURSOR_OPTS_INIT;
	struct kv_cursor_in in = { .txn = txn, .nextra = 1, .changes = &txn->t_gen };
	struct kv_iter *own;
	int rc = kv_txn_sources(txn, kvs, &in, &own);

	if (rc)
		return rc;
	in.extra = &own;
	rc = kv_cursor_new(kvs, opts ? opts : &none, &in, out);
	return rc ? rc : cursor_end(*out, 0);
}

int kvdb_txn_cursor_open(struct kvdb_txn *txn, struct kvdb_kvs *kvs, unsigned flags,
			 const void *prefix, size_t plen, struct kvdb_cursor **out)
{
	struct kvdb_cursor_opts o;
	int err = opts_plain(&o, flags, prefix, plen);

	return err ? err : kvdb_txn_cursor_open_opts(txn, kvs, &o, out);
}

/* ---- its end, and a new beginning ------------------------------------------------------ */

struct kv_hold *kv_cursor_hold(struct kvdb_cursor *cur)
{
	return &cur->c_hold;
}

static void range_free(struct kvdb_cursor *c)
{
	if (c->c_range != c->c_room + KV_WALK_ROOM)
		free(c->c_range);
}

/* Room for the bounds of @o; those that it has stay. */
static int range_room(struct kvdb_cursor *c, const struct kvdb_cursor_opts *o)
{
	size_t size = range_size(o);
	uint8_t *p;

	if (size <= c->c_range_size)
		return 0;
	p = malloc(size);
	if (!p)
		return kv_error(-ENOMEM, "MP0902", "no memory for a cursor");
	memcpy(p, c->c_range, c->c_lo_len + c->c_hi_len);
	range_free(c);
	c->c_range = p;
	c->c_range_size = (uint32_t)size;
	/* its sources are told the new place of the end before the next step, also if this fails */
	c->c_ready = false;
	return 0;
}

/* A new snapshot of its store or transaction into @in; *own: a look at the latter's writes. */
static int renew_sources(struct kvdb_cursor *cur, const struct kvdb_cursor_opts *opts,
			 struct kv_cursor_in *in, struct kv_iter **own)
{
	int rc = opts ? opts_check(opts) : 0;

	if (!rc && cur->c_txn && cur->c_txn->t_ended)
		rc = kv_error(-ESTALE, "MP0929", "%s: the transaction of the cursor has ended",
			      cur->c_kvs->k_name);
	if (!rc && opts)
		rc = range_room(cur, opts);
	if (!rc && cur->c_txn)
		rc = kv_txn_sources(cur->c_txn, cur->c_kvs, in, own);
	else if (!rc)
		kv_snapshot(cur->c_kvs, &in->tree, &in->seq);
	if (rc || !kv_hold_ready(cur->c_kvs->k_db, in->tree))
		return rc;
	if (*own)
		kv_iters_close(own, 1);
	kv_tree_put(cur->c_kvs->k_db, in->tree);
	return kv_error(-ENOMEM, "MP0902", "no memory for a cursor");
}

/* Nothing fails any more; the key of the place lies in the batch. */
static void renew_to(struct kvdb_cursor *cur, const struct kvdb_cursor_opts *opts,
		     const struct kv_cursor_in *in, struct kv_iter *own)
{
	struct kvdb *db = cur->c_kvs->k_db;

	kv_hold_del(&cur->c_hold);
	sources_close(cur);
	cur->c_tree = in->tree;
	cur->c_seq = in->seq;
	cur->c_hold.ho_born_ns = kv_now(db);
	if (own)
		cur->c_extra[cur->c_nextra++] = own;
	else
		cur->c_now = kv_time_of_view(db);
	kv_hold_add(db, &cur->c_hold, cur->c_tree);
	if (opts) {
		range_make(cur, opts);
		cur->c_flags = opts->flags;
		cur->c_limit = opts->limit;
		cur->c_place = cur->c_left_for = place_start(opts);
	}
	/* what is new may lie between the last pair and the end that a step found */
	if (cur->c_place == AT_TOP || cur->c_place == AT_BOTTOM)
		cur->c_place = cur->c_left_for;
	cur->c_left = cur->c_limit;
}

int kvdb_cursor_renew(struct kvdb_cursor *cur, const struct kvdb_cursor_opts *opts)
{
	struct kv_hold *ho = &cur->c_hold;
	bool is_there = kv_hold_settle(ho);
	struct kv_cursor_in in = { 0 };
	struct kv_iter *own = NULL;
	int rc = 0;

	/* its store may have been dropped when it had gone */
	if (!is_there)
		rc = kv_kvs_use(cur->c_kvs);
	if (rc)
		return rc;
	rc = renew_sources(cur, opts, &in, &own);
	if (!rc) {
		if (!is_there)
			atomic_fetch_sub(&cur->c_kvs->k_gone, 1);
		renew_to(cur, opts, &in, own);
		return cursor_end(cur, 0);
	}
	if (is_there)
		return cursor_end(cur, rc);
	KV_ASSERT(atomic_load(&cur->c_kvs->k_cursors));
	atomic_fetch_sub(&cur->c_kvs->k_cursors, 1);
	return rc;
}

void kvdb_cursor_close(struct kvdb_cursor *cur)
{
	struct kv_tctx *tc;
	bool is_there;

	if (!cur)
		return;
	tc = kv_tctx(cur->c_kvs->k_db);
	is_there = kv_hold_settle(&cur->c_hold);
	kv_hold_del(&cur->c_hold);
	sources_close(cur);
	count(tc, UINT64_MAX);	/* one less */
	atomic_fetch_sub(is_there ? &cur->c_kvs->k_cursors : &cur->c_kvs->k_gone, 1);
	if (cur->c_txn)
		kv_txn_put(cur->c_txn);
	kv_cursor_batch_close(cur, tc);
	range_free(cur);
	free(cur);
}
