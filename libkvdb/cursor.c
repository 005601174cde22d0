/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Public cursors: an ordered walk on a stable snapshot, which is a reference
 * on a tree and a view number. The tree is taken first, then the view, and
 * both again when the tree was replaced in between: so every run of the tree
 * was made from versions that are older than the view, and what is newer is
 * in memtables, where stamps hide it.
 *
 * Opening is cheap; the sources are opened at the first use. Between calls the
 * cursor pins objects by reference only and is outside kv_enter().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "run.h"
#include "thread.h"

struct kvdb_cursor {
	struct kvdb_kvs *c_kvs;
	struct kv_tree *c_tree;
	uint64_t c_seq;
	unsigned c_flags;
	bool c_placed;		/* c_it stands where the walk goes on */
	bool c_ended;
	int c_err;		/* the walk lost its place: every next fails until a seek */
	struct kv_iter *c_it;	/* NULL until used */
	uint8_t *c_val;
	size_t c_val_size;
	uint16_t c_plen;
	uint16_t c_succ_len;	/* 0: nothing is greater than all keys with the prefix */
	uint8_t *c_succ;	/* smallest key behind those with the prefix */
	uint8_t c_prefix[];	/* c_plen, then c_succ */
};

/* The smallest string that is greater than every string with the prefix. */
static void succ_make(struct kvdb_cursor *c)
{
	uint16_t n = c->c_plen;

	c->c_succ = c->c_prefix + c->c_plen;
	memcpy(c->c_succ, c->c_prefix, n);
	while (n && c->c_succ[n - 1] == 0xff)
		n--;
	if (n)
		c->c_succ[n - 1]++;
	c->c_succ_len = n;
}

static void snapshot_take(struct kvdb_cursor *c)
{
	struct kvdb *db = c->c_kvs->k_db;

	for (;;) {
		c->c_tree = kv_tree_get(c->c_kvs);
		c->c_seq = kv_view_open(db);
		if (atomic_load_explicit(&c->c_kvs->k_tree, memory_order_acquire) == c->c_tree)
			return;
		kv_tree_put(db, c->c_tree);
	}
}

int kvdb_cursor_open(struct kvdb_kvs *kvs, unsigned flags, const void *prefix, size_t plen,
		     struct kvdb_cursor **out)
{
	struct kvdb_cursor *c;

	if (flags & ~(KVDB_REVERSE | KVDB_KEYS_ONLY))
		return kv_error(-EINVAL, "MP0951", "cursor flags %#x are not known", flags);
	if (plen && !prefix)
		return kv_error(-EINVAL, "MP0951", "a prefix of %zu bytes at NULL", plen);
	if (plen > KVDB_KEY_MAX)
		return kv_error(-ENAMETOOLONG, "MP0951", "a prefix of %zu bytes; the most is %u",
				plen, KVDB_KEY_MAX);
	c = calloc(1, sizeof(*c) + 2 * plen);
	if (!c)
		return -ENOMEM;
	c->c_kvs = kvs;
	c->c_flags = flags;
	c->c_plen = (uint16_t)plen;
	if (plen)
		memcpy(c->c_prefix, prefix, plen);
	succ_make(c);
	atomic_fetch_add(&kvs->k_cursors, 1);
	snapshot_take(c);
	*out = c;
	return 0;
}

static int cursor_build(struct kvdb_cursor *c)
{
	bool reverse = c->c_flags & KVDB_REVERSE;
	struct kvdb *db = c->c_kvs->k_db;
	struct kv_tree *tr = c->c_tree;
	unsigned most = tr->tr_nmt + tr->tr_nrun, n = 0;
	struct kv_iter **src = calloc(most ? most : 1, sizeof(struct kv_iter *));
	int rc = 0;

	if (!src)
		return -ENOMEM;
	for (unsigned i = 0; i < tr->tr_nmt && !rc; i++) {
		rc = kv_mt_iter(db, tr->tr_mt[i], c->c_seq, reverse, &src[n]);
		n += !rc;
	}
	for (unsigned i = 0; i < tr->tr_nrun && !rc; i++) {
		rc = kv_run_iter(db, tr->tr_run[i], reverse, &src[n]);
		n += !rc;
	}
	if (!rc)
		rc = kv_merge_iter(src, n, reverse, false, &c->c_it);
	else
		while (n)
			n--, src[n]->it_ops->close(src[n]);
	free(src);
	return rc;
}

/* Seeks the sources; @key NULL: where the walk begins. */
static int cursor_place(struct kvdb_cursor *c, const uint8_t *key, size_t klen)
{
	bool reverse = c->c_flags & KVDB_REVERSE;
	int rc = 0;

	if (c->c_plen && !reverse && (!key || kv_kcmp(key, klen, c->c_prefix, c->c_plen) < 0)) {
		key = c->c_prefix;
		klen = c->c_plen;
	} else if (c->c_succ_len && reverse &&
		   (!key || kv_kcmp(key, klen, c->c_succ, c->c_succ_len) > 0)) {
		key = c->c_succ;
		klen = c->c_succ_len;
	}
	if (!c->c_it)
		rc = cursor_build(c);
	if (!rc)
		rc = c->c_it->it_ops->seek(c->c_it, key, key ? klen : 0);
	c->c_placed = true;
	c->c_ended = false;
	c->c_err = rc;
	return rc;
}

int kvdb_cursor_seek(struct kvdb_cursor *cur, const void *key, size_t klen)
{
	struct kv_tctx *tc = kv_tctx(cur->c_kvs->k_db);

	if (klen > KVDB_KEY_MAX || (klen && !key))
		return kv_error(-EINVAL, "MP0951", "a key of %zu bytes; the most is %u", klen,
				KVDB_KEY_MAX);
	if (tc)
		kv_count(&tc->tc_seeks, 1);
	return cursor_place(cur, klen ? key : NULL, klen);
}

/* 0: in the prefix; -1: the walk has not come to it yet; 1: it is past it. */
static int prefix_side(const struct kvdb_cursor *c, const struct kv_ent *e)
{
	size_t n = e->e_klen < c->c_plen ? e->e_klen : c->c_plen;
	int d = memcmp(e->e_key, c->c_prefix, n);

	if (!d && e->e_klen >= c->c_plen)
		return 0;
	d = d > 0 ? 1 : -1;
	return c->c_flags & KVDB_REVERSE ? -d : d;
}

static int value_fetch(struct kvdb_cursor *c, const struct kv_ent *e)
{
	struct kv_thread *t;
	int rc;

	if (e->e_vlen > c->c_val_size || !c->c_val) {
		size_t size = e->e_vlen < 4096 ? 4096 : e->e_vlen;
		uint8_t *p;

		p = malloc(size);
		if (!p)
			return -ENOMEM;
		free(c->c_val);
		c->c_val = p;
		c->c_val_size = size;
	}
	t = kv_enter();
	rc = kv_value_read(c->c_kvs->k_db, e, c->c_val, e->e_vlen);
	kv_exit(t);
	return rc;
}

int kvdb_cursor_next(struct kvdb_cursor *cur, const void **key, size_t *klen, const void **val,
		     size_t *vlen)
{
	struct kv_tctx *tc = kv_tctx(cur->c_kvs->k_db);
	struct kv_ent e;
	int rc = cur->c_err, side;

	if (tc)
		kv_count(&tc->tc_nexts, 1);
	if (!cur->c_placed)
		rc = cursor_place(cur, NULL, 0);
	do {
		if (!rc)
			rc = cur->c_ended ? -ENOENT : cur->c_it->it_ops->next(cur->c_it, &e);
		if (rc) {
			cur->c_ended = rc == -ENOENT;
			cur->c_err = rc == -ENOENT ? 0 : rc;
			return rc;
		}
		side = prefix_side(cur, &e);
	} while (side < 0);
	if (side > 0) {
		cur->c_ended = true;
		return -ENOENT;
	}
	if (!(cur->c_flags & KVDB_KEYS_ONLY)) {
		rc = value_fetch(cur, &e);
		if (rc)
			return rc;
	}
	if (key)
		*key = e.e_key;
	if (klen)
		*klen = e.e_klen;
	if (val)
		*val = cur->c_flags & KVDB_KEYS_ONLY ? NULL : cur->c_val;
	if (vlen)
		*vlen = e.e_vlen;
	return 0;
}

void kvdb_cursor_close(struct kvdb_cursor *cur)
{
	struct kvdb *db;

	if (!cur)
		return;
	db = cur->c_kvs->k_db;
	if (cur->c_it)
		cur->c_it->it_ops->close(cur->c_it);
	kv_tree_put(db, cur->c_tree);
	atomic_fetch_sub(&cur->c_kvs->k_cursors, 1);
	free(cur->c_val);
	free(cur);
}
