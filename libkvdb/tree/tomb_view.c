/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Range and prefix tombstones (R15) of all memtables and runs of a tree: what they say about a
 * key, an iterator without what they hide, and when one may go.
 *
 * Invariant H3: ../mem/RANGE_DELETES.md.
 *
 * Locks: none; readers are inside kv_enter(), or hold what they look at.
 */
#include <errno.h>
#include <stdlib.h>

#include "tree/tomb_view.h"
#include "base/assert.h"
#include "base/guard.h"
#include "base/trange.h"
#include "db/kvs.h"
#include "seg/value.h"
#include "mem/iter.h"
#include "mem/memtable.h"
#include "mem/tomb.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "tree/view.h"

uint64_t kv_tombs_at(struct kv_tree *tr, const void *key, size_t klen, uint64_t v)
{
	struct kv_path pa = kv_path(tr, key, klen);
	uint64_t best = 0, s;
	uint32_t i;

	KV_ASSERT_INSIDE();
	for (i = 0; i < tr->tr_nmt; i++) {
		s = kv_mt_tomb_at(tr->tr_mt[i], key, klen, v);
		best = s > best ? s : best;
	}
	for (i = 0; i < pa.pa_n; i++) {
		const struct kv_tindex *ti = kv_path_run(tr, &pa, i)->rn_tindex;

		if (!ti || ti->ti_max_seq <= best)
			continue;
		s = kv_tindex_at(ti, key, klen, v);
		best = s > best ? s : best;
	}
	return best;
}

bool kv_tombs_conflict(struct kvdb_kvs *kvs, const void *key, size_t klen, uint64_t view)
{
	struct kv_tree *tr = atomic_load_explicit(&kvs->k_tree, memory_order_acquire);
	struct kv_path pa = kv_path(tr, key, klen);
	bool is = false;

	KV_ASSERT_INSIDE();
	for (uint32_t i = 0; i < tr->tr_nmt && !is; i++)
		is = kv_mt_tomb_conflict(tr->tr_mt[i], key, klen, view);
	for (uint32_t i = 0; i < pa.pa_n && !is; i++) {
		const struct kv_tindex *ti = kv_path_run(tr, &pa, i)->rn_tindex;

		is = ti && ti->ti_max_seq > view &&
		     kv_tindex_at(ti, key, klen, KV_SEQ_NOW) > view;
	}
	return is;
}

/* ---- an iterator without what is hidden ------------------------------------------------- */

struct kv_cover *kv_cover_new(struct kv_mt *const *mt, unsigned nmt, struct kv_run *const *run,
			      unsigned nrun, uint64_t v, int *err)
{
	struct kv_cover *co;
	unsigned n = 0;

	*err = 0;
	for (unsigned i = 0; i < nmt; i++)
		n += kv_mt_has_tombs(mt[i]);
	for (unsigned i = 0; i < nrun; i++)
		n += run[i]->rn_tindex != NULL;
	if (!n)
		return NULL;
	/* others may get theirs meanwhile: those are newer than the view */
	co = calloc(1, sizeof(*co) + (nmt + nrun) * sizeof(co->co_src[0]));
	if (!co) {
		*err = -ENOMEM;
		return NULL;
	}
	co->co_v = v;
	for (unsigned i = 0; i < nmt; i++) {
		if (!kv_mt_has_tombs(mt[i]))
			continue;
		co->co_src[co->co_n++].cs_mt = mt[i];
		co->co_has_mt = true;
	}
	for (unsigned i = 0; i < nrun; i++)
		if (run[i]->rn_tindex)
			co->co_src[co->co_n++].cs_ti = run[i]->rn_tindex;
	return co;
}

struct cover_iter {
	struct kv_iter ci_it;
	struct kv_iter *ci_src;
	struct kv_cover *ci_co;
};

bool kv_cover_hides(void *cover, const struct kv_ent *e)
{
	const struct kv_cover *co = cover;
	struct kv_thread *t = co->co_has_mt ? kv_enter() : NULL;
	bool is = false;

	for (unsigned i = 0; i < co->co_n && !is; i++) {
		const struct kv_cover_src *cs = &co->co_src[i];
		uint64_t s = cs->cs_mt ? kv_mt_tomb_at(cs->cs_mt, e->e_key, e->e_klen, co->co_v) :
					 kv_tindex_at(cs->cs_ti, e->e_key, e->e_klen, co->co_v);

		is = s && e->e_seq <= s;
	}
	if (t)
		kv_exit(t);
	return is;
}

static int cover_seek(struct kv_iter *it, const void *key, size_t klen)
{
	struct cover_iter *ci = (struct cover_iter *)it;

	return ci->ci_src->it_ops->seek(ci->ci_src, key, klen);
}

static int cover_next(struct kv_iter *it, struct kv_ent *e)
{
	struct cover_iter *ci = (struct cover_iter *)it;
	int rc;

	do
		rc = ci->ci_src->it_ops->next(ci->ci_src, e);
	while (!rc && kv_cover_hides(ci->ci_co, e));
	return rc;
}

static void cover_turn(struct kv_iter *it, bool reverse)
{
	struct cover_iter *ci = (struct cover_iter *)it;

	ci->ci_src->it_ops->turn(ci->ci_src, reverse);
}

static void cover_park(struct kv_iter *it)
{
	kv_iter_park(((struct cover_iter *)it)->ci_src);
}

static void cover_close(struct kv_iter *it)
{
	struct cover_iter *ci = (struct cover_iter *)it;

	ci->ci_src->it_ops->close(ci->ci_src);
	free(ci->ci_co);
	free(ci);
}

static const struct kv_iter_ops cover_ops = {
	.seek = cover_seek,
	.next = cover_next,
	.turn = cover_turn,
	.park = cover_park,
	.close = cover_close,
};

int kv_cover_iter(struct kv_iter *it, struct kv_cover *co, struct kv_iter **out)
{
	struct cover_iter *ci = malloc(sizeof(*ci));

	if (!ci) {
		it->it_ops->close(it);
		free(co);
		return -ENOMEM;
	}
	*ci = (struct cover_iter){ .ci_it = { &cover_ops }, .ci_src = it, .ci_co = co };
	*out = &ci->ci_it;
	return 0;
}

/* ---- what stays ---------------------------------------------------------------------------- */

int kv_trows_run(struct kv_trows *tv, const struct kv_run *r)
{
	int err = 0;

	for (uint32_t i = 0; r->rn_tindex && i < r->rn_tindex->ti_n && !err; i++)
		err = kv_trows_add(tv, &r->rn_tindex->ti_r[i]);
	return err;
}

static bool in_list(const struct kv_run *r, struct kv_run *const *list, unsigned n)
{
	while (n--)
		if (list[n] == r)
			return true;
	return false;
}

/* True when the run may hold a version that the tombstone hides. */
static bool run_may_hold(const struct kv_run *r, const struct kv_trange *tr)
{
	return r->rn_min_seq <= tr->tr_seq && kv_run_pages_in(r, tr);
}

static bool is_needed(const struct kv_trange *tr, struct kv_tree *t, struct kv_run *const *but,
		      unsigned nbut, const struct kv_mt *but_mt)
{
	uint64_t leaf;

	for (uint32_t i = 0; i < t->tr_nmt; i++)
		if (t->tr_mt[i] != but_mt && atomic_load(&t->tr_mt[i]->m_min_seq) <= tr->tr_seq)
			return true;
	/* LF3: what leaves other than the inputs' hold has a tombstone there */
	leaf = nbut ? but[0]->rn_desc.rd_leaf : 0;
	for (uint32_t i = 0; i < t->tr_nrun; i++) {
		uint64_t of = t->tr_run[i]->rn_desc.rd_leaf;

		if ((leaf && of && of != leaf) || in_list(t->tr_run[i], but, nbut))
			continue;
		if (run_may_hold(t->tr_run[i], tr))
			return true;
	}
	return false;
}

/*
 * Which rows are the newest that cover some key, in the order that they then have: the others say
 * nothing any more, for readers of older views have older runs. NULL: no memory to find out.
 */
static bool *newest_rows(struct kv_trows *tv)
{
	struct kv_tindex *ti = kv_tindex_new(tv->tv_r, tv->tv_n, NULL);
	bool *is = ti ? malloc(tv->tv_n * sizeof(*is)) : NULL;

	if (is) {
		kv_tindex_needed(ti, is);
		memcpy(tv->tv_r, ti->ti_r, tv->tv_n * sizeof(*tv->tv_r));
	}
	kv_tindex_free(ti);
	return is;
}

void kv_trows_prune(struct kv_trows *tv, struct kv_tree *tr, struct kv_run *const *but,
		    unsigned nbut, const struct kv_mt *but_mt)
{
	uint64_t view = tv->tv_n && tr && tr->tr_nmt ? kv_views_oldest(tr->tr_mt[0]->m_db) :
						       UINT64_MAX;
	uint32_t n = 0;
	bool *is;

	if (!tv->tv_n)
		return;
	qsort(tv->tv_r, tv->tv_n, sizeof(*tv->tv_r), kv_trange_cmp);
	is = newest_rows(tv);
	for (uint32_t i = 0; i < tv->tv_n; i++) {
		struct kv_trange *r = &tv->tv_r[i];

		if (is && !is[i])
			continue;
		/* a transaction that began earlier must find it when it takes a key */
		if (!tr || r->tr_seq > view ||
		    !CHECK(!is_needed(r, tr, but, nbut, but_mt)))
			tv->tv_r[n++] = *r;
	}
	free(is);
	tv->tv_n = n;
}

uint64_t kv_tombs_garbage(struct kv_run *const *run, unsigned newer, unsigned n)
{
	uint64_t keys = 0;

	for (unsigned i = 0; i < newer; i++) {
		const struct kv_tindex *ti = run[i]->rn_tindex;
		/* of very many every so manieth speaks for its neighbours */
		uint32_t step = ti ? ti->ti_n / 512 + 1 : 1;

		for (uint32_t k = 0; ti && k < ti->ti_n; k += step)
			for (unsigned j = i + 1; j < n; j++)
				if (run[j]->rn_min_seq <= ti->ti_r[k].tr_seq)
					keys += step * kv_run_keys_in(run[j], &ti->ti_r[k]);
	}
	return keys;
}
