/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Probes: has a prefix no key, one, or several? They look into the sources of a cursor, in one
 * merge, and see the same; but nothing outlives the call, so there is no place, no batch and no
 * reading ahead, and no value is read but the first one, if it is asked for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/trange.h"
#include "db/etime.h"
#include "db/thread.h"
#include "cache/load.h"
#include "seg/value.h"
#include "mem/iter.h"
#include "tree/merge_iter.h"
#include "tree/tomb_view.h"
#include "tree/tree.h"
#include "read/find.h"
#include "txn/txn.h"
#include "op/cursor.h"

#define REST	256u	/* entries that a walk comes by inside kv_enter() */

struct probe {
	struct kvdb *pr_db;
	struct kv_iter *pr_it;
	const void *pr_prefix;
	size_t pr_plen;
	uint64_t pr_now;	/* engine time, ms, 0 until needed: what expires later is there */
	bool pr_placed;		/* pr_it goes on from where it is */
	uint16_t pr_end_len;	/* 0: no key is behind all that have the prefix */
	uint8_t pr_end[KVDB_KEY_MAX];
	unsigned pr_n;		/* keys found */
	struct kv_ent pr_ent;	/* the first: what is not in the caller's room yet */
	const struct kvdb_probe *pr_room;
};

static int probe_check(const struct kvdb_kvs *kvs, const void *prefix, size_t plen,
		       const struct kvdb_probe *p)
{
	if (plen > KVDB_KEY_MAX)
		return kv_error(-ENAMETOOLONG, "MP0911", "a prefix of %zu bytes; the most is %u",
				plen, KVDB_KEY_MAX);
	if ((plen && !prefix) || (p->key_size && !p->key) || (p->val_size && !p->val))
		return kv_error(-EINVAL, "MP0951", "%s: a probe of some bytes at NULL",
				kvs->k_name);
	return 0;
}

/* Keeps the first pair; what the walk will overwrite goes to the caller at once. */
static void take_first(struct probe *pr, const struct kv_ent *e)
{
	const struct kvdb_probe *p = pr->pr_room;

	pr->pr_ent = *e;
	if (p->key_size)
		memcpy(p->key, e->e_key, e->e_klen < p->key_size ? e->e_klen : p->key_size);
	if (e->e_kind == KV_ENT_INLINE && p->val_size && e->e_vlen)
		memcpy(p->val, e->e_val, e->e_vlen < p->val_size ? e->e_vlen : p->val_size);
}

/* Most stores have no times to live: the clock is not asked before it is needed. */
static bool is_expired(struct probe *pr, const struct kv_ent *e)
{
	if (KV_LIKELY(!e->e_expiry))
		return false;
	if (!pr->pr_now)
		pr->pr_now = kv_time_ms(pr->pr_db);
	return kv_is_expired(e, pr->pr_now);
}

static struct kv_thread *walk_enter(struct probe *pr)
{
	kv_merge_rest(pr->pr_it, REST);
	return kv_enter();
}

static void walk_exit(struct probe *pr, struct kv_thread *t)
{
	kv_iter_park(pr->pr_it);
	kv_exit(t);
}

static bool has_prefix(const struct probe *pr, const struct kv_ent *e)
{
	return !pr->pr_plen ||
	       (e->e_klen >= pr->pr_plen && !memcmp(e->e_key, pr->pr_prefix, pr->pr_plen));
}

/* To the second key, or the end of the prefix. -EINPROGRESS: from where it is, once pages came. */
static int walk(struct probe *pr)
{
	struct kv_thread *t;
	struct kv_ent e;
	int rc = 0;

	if (!pr->pr_placed)
		rc = pr->pr_it->it_ops->seek(pr->pr_it, pr->pr_prefix, pr->pr_plen);
	if (rc)
		return rc;
	pr->pr_placed = true;
	t = walk_enter(pr);
	while (pr->pr_n < KVDB_FOUND_SEVERAL) {
		rc = pr->pr_it->it_ops->next(pr->pr_it, &e);
		/* CUR-8: what was deleted may be much */
		if (KV_UNLIKELY(rc == -EAGAIN)) {
			walk_exit(pr, t);
			t = walk_enter(pr);
			continue;
		}
		if (rc || !has_prefix(pr, &e))
			break;
		if (is_expired(pr, &e))
			continue;
		if (!pr->pr_n++)
			take_first(pr, &e);
	}
	walk_exit(pr, t);
	return rc == -ENOENT ? 0 : rc;
}

/* As a cursor's steps: what is not in memory is waited for outside of kv_enter() (RD-4). */
static int walk_wait(struct probe *pr)
{
	struct kv_async as = { .as_db = pr->pr_db };
	uint64_t before;
	int rc;

	do {
		before = kv_merge_steps(pr->pr_it);
		kv_pages_room(pr->pr_db, KV_GET_PAGES);
		kv_async_try(&as);
		rc = walk(pr);
	} while (kv_async_again(&as, rc, kv_merge_steps(pr->pr_it) != before));
	return rc;
}

static int probe_walk(struct probe *pr, struct kvdb_probe *out)
{
	int rc = walk_wait(pr);

	if (!rc && pr->pr_n && pr->pr_ent.e_kind != KV_ENT_INLINE && out->val_size)
		rc = kv_value_wait(pr->pr_db, &pr->pr_ent, out->val, out->val_size);
	if (rc)
		return rc;
	out->found = pr->pr_n;
	out->klen = pr->pr_n ? pr->pr_ent.e_klen : 0;
	out->vlen = pr->pr_n ? pr->pr_ent.e_vlen : 0;
	return 0;
}

static void count_probe(struct kvdb *db, const struct kvdb_probe *out)
{
	struct kv_tctx *tc = kv_tctx(db);

	if (!tc)
		return;
	kv_count(&tc->tc_seeks, 1);
	if (out->found && out->val_size)
		kv_count(&tc->tc_read_bytes,
			 out->klen + (out->vlen < out->val_size ? out->vlen : out->val_size));
}

/* Takes over what @in holds. */
static int probe_run(struct kvdb_kvs *kvs, struct kv_cursor_in *in, struct probe *pr,
		     struct kvdb_probe *out)
{
	struct kv_hidden hidden = { .hi_txn = in->txn, .hi_kvs = kvs };
	uint64_t mem[KV_WALK_ROOM / sizeof(uint64_t)];
	struct kv_iter_room room = { (uint8_t *)mem, sizeof(mem) };
	struct kv_tree *tr = in->tree;
	int rc = 0;

	in->room = &room;
	pr->pr_db = kvs->k_db;
	pr->pr_room = out;
	pr->pr_end_len = kv_prefix_end(pr->pr_prefix, (uint16_t)pr->pr_plen, pr->pr_end);
	if (tr && atomic_load(&tr->tr_tombs))
		hidden.hi_cover = kv_cover_new(tr->tr_mt, tr->tr_nmt, tr->tr_run, tr->tr_nrun,
					       in->seq, &rc);
	if (!rc)
		rc = kv_sources_open(kvs, in, &hidden, true, &pr->pr_it);
	if (rc) {
		kv_iters_close(in->extra, in->nextra);
	} else {
		kv_merge_until(pr->pr_it, pr->pr_end, pr->pr_end_len);
		rc = probe_walk(pr, out);
		pr->pr_it->it_ops->close(pr->pr_it);
	}
	free(hidden.hi_cover);
	kv_tree_put(kvs->k_db, tr);
	if (rc)
		return kv_error_memory(rc, "a probe");
	count_probe(kvs->k_db, out);
	return 0;
}

int kvdb_prefix_probe(struct kvdb_kvs *kvs, const void *prefix, size_t plen,
		      struct kvdb_probe *probe)
{
	struct probe pr = { .pr_prefix = prefix, .pr_plen = plen };
	struct kv_cursor_in in = { 0 };
	int err = probe_check(kvs, prefix, plen, probe);

	if (err)
		return err;
	kv_snapshot(kvs, &in.tree, &in.seq);
	return probe_run(kvs, &in, &pr, probe);
}

int kvdb_txn_prefix_probe(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *prefix,
			  size_t plen, struct kvdb_probe *probe)
{
	struct probe pr = { .pr_prefix = prefix, .pr_plen = plen };
	struct kv_cursor_in in = { .nextra = 1, .txn = txn };
	struct kv_iter *own;
	int err = probe_check(kvs, prefix, plen, probe);

	if (!err)
		err = kv_txn_sources(txn, kvs, &in, &own);
	if (err)
		return err;
	pr.pr_now = txn->t_view.vi_born_ms;
	in.extra = &own;
	return probe_run(kvs, &in, &pr, probe);
}
