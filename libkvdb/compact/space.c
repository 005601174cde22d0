/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How much space is in use, and about how much of it lives.
 *
 * The estimate: pages spread over every run are looked at, and the filters of
 * the newer runs say which of their entries are overwritten. What was found of a run
 * holds until what may hide its keys has changed (G16): so pages are read as often as
 * data are written, not as often as the question comes.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/trange.h"
#include "db/bell.h"
#include "db/db.h"
#include "db/etime.h"
#include "cache/pages.h"
#include "seg/value.h"
#include "mem/memtable.h"
#include "mem/tomb.h"
#include "run/filter.h"
#include "run/run.h"
#include "run/run_fence.h"
#include "run/run_filter.h"
#include "run/run_load.h"
#include "run/run_omf.h"
#include "tree/leaf.h"
#include "tree/tomb_view.h"
#include "compact/reloc.h"

#define SAMPLE_PAGES	48u		/* of one run, */
#define SAMPLE_RUNS	16u		/* of so many; of more fewer each */
#define NEWS_PART	32u		/* of a run's keys may be hidden anew, or expire */

uint64_t kv_tree_bytes(const struct kv_tree *tr)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		n += kv_run_bytes(tr->tr_run[i]);
	return n;
}

int kv_each_store(struct kvdb *db, kv_store_fn *fn, bool is_long, void *arg)
{
	int rc = 0;

	KV_ASSERT_OUTSIDE();
	for (uint32_t i = 0; i < KVDB_KVS_MAX && !rc; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);
		struct kv_tree *tr;

		if (!kvs)
			continue;
		tr = kv_tree_get(kvs);
		if (is_long)
			tr = kv_tree_leave_mts(db, tr);
		rc = fn(db, kvs, tr, arg);
		kv_tree_put(db, tr);
		kv_kvs_release(kvs);
	}
	return rc;
}

static void add_part(struct kv_in_use *u, struct kv_run *const *run, uint32_t n)
{
	uint64_t bytes = 0;

	while (n--)
		bytes += kv_run_bytes(run[n]);
	u->iu_runs += bytes;
	if (bytes > u->iu_most)
		u->iu_most = bytes;
}

static int add_runs(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr, void *arg)
{
	(void)db;
	(void)kvs;
	add_part(arg, tr->tr_run, tr->tr_nupper);
	for (uint32_t i = 0; i < tr->tr_nleaf; i++)
		add_part(arg, tr->tr_run + tr->tr_leaf[i].lr_first, tr->tr_leaf[i].lr_n);
	return 0;
}

void kv_space_in_use(struct kvdb *db, struct kv_in_use *u)
{
	*u = (struct kv_in_use){ .iu_segs = kv_segs_in_use(db) };
	kv_each_store(db, add_runs, false, u);
}

/* ---- what lives -------------------------------------------------------------- */

/*
 * False: the run does not hold the key. A filter that said so might have said
 * otherwise: the key stands for @weight that were taken for overwritten, too.
 */
static bool may_hold(struct kvdb *db, struct kv_run *r, const uint8_t *key, size_t klen,
		     uint64_t hash, double *weight, unsigned *far)
{
	int i = r->rn_nkeyed == 1 ? 0 : kv_run_route(r, key, klen);
	const uint8_t *filter, *block;
	struct kv_kblock *kb;

	KV_ASSERT_INSIDE();
	if (i < 0)
		return false;
	kb = &r->rn_kb[i];
	filter = atomic_load_explicit(&kb->kb_filter, memory_order_acquire);
	*far += !filter;
	if (filter)
		block = kv_filter_block(filter, kb->kb_fblocks, hash);
	else if (kv_kblock_need(db, kb) || kv_filter_far(db, kb, hash, &block) || !block)
		return false;	/* what cannot be known is taken for live */
	if (kv_filter_block_has(block, hash))
		return true;
	*weight /= 1 - kv_filter_odds(block);
	return false;
}

struct sample {
	uint64_t sa_n;			/* entries seen */
	double sa_live;			/* bytes of those that are live */
};

static int sample_page(struct kvdb *db, struct kv_tree *tr, uint32_t run,
		       const struct kv_kblock *kb, uint32_t no, struct sample *sa)
{
	uint8_t key[KVDB_KEY_MAX];
	struct kv_kpage kp;
	struct kv_kent ke;
	const uint8_t *page;
	uint64_t now = kv_time_ms(db);
	unsigned far = 0;	/* filters asked that are not in memory */
	uint32_t crc;
	int rc = kv_kblock_crcs(db, kb, no, 1, &crc);

	KV_ASSERT_INSIDE();
	if (!rc)
		rc = kv_page_get(db, kb->kb_obj, no, &crc, &page);
	if (rc)
		return rc;
	if (kv_kpage_decode(page, no, &kp))
		return -EUCLEAN;
	/* each may take a page, which comes back after kv_exit(): no more than a get takes */
	for (unsigned i = 0; i < kp.kp_n && far < KV_GET_PAGES; i++) {
		struct kv_path pa;
		uint64_t hash;
		uint16_t klen;
		double weight = 1;
		bool hidden = false;

		if (kv_kpage_ent(&kp, i, &ke))
			return -EUCLEAN;
		sa->sa_n++;
		if (ke.ke_kind == KV_ENT_TOMB || (ke.ke_expiry && ke.ke_expiry <= now))
			continue;
		klen = kv_kpage_key(&kp, i, &ke, key);
		hash = kv_hash(key, klen);
		if (atomic_load(&tr->tr_tombs))
			hidden = ke.ke_seq <= kv_tombs_at(tr, key, klen, UINT64_MAX);
		pa = kv_path(tr, key, klen);
		for (uint32_t j = 0; j < pa.pa_n && !hidden; j++) {
			struct kv_run *newer = kv_path_run(tr, &pa, j);

			if (newer == tr->tr_run[run])
				break;
			hidden = may_hold(db, newer, key, klen, hash, &weight, &far);
		}
		if (!hidden)
			sa->sa_live += weight * (klen + kv_kent_stored(&ke));
	}
	return 0;
}

static void add_seg(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	(void)s;
	(void)n;
	*(uint64_t *)arg += bytes;
}

/* FS1: a run that cannot be read, or that is left alone, is taken for live: all of it. */
static void guess_run(struct kv_run *r, uint64_t *live)
{
	*live += kv_run_bytes(r);
	kv_run_segs(r, add_seg, live);
}

/* A run and what may hide its keys: those in front of it among its leaf's, and the upper ones. */
struct place {
	struct kv_tree *pl_tree;
	uint32_t pl_run;
	uint32_t pl_first;		/* of its leaf */
	uint64_t pl_tombs;		/* as rl_tombs */
	uint64_t pl_above;		/* as rl_above */
};

static uint64_t keys_above(const struct place *pl)
{
	struct kv_tree *tr = pl->pl_tree;
	const struct kv_run *r = tr->tr_run[pl->pl_run];
	const struct kv_kblock *last = &r->rn_kb[r->rn_nkeyed - 1];
	const struct kv_trange all = {
		.tr_from = r->rn_kb[0].kb_min, .tr_flen = r->rn_kb[0].kb_min_klen,
		.tr_to = last->kb_max, .tr_tlen = last->kb_max_klen,
	};
	uint64_t n = 0;
	uint32_t i;

	KV_ASSERT(r->rn_nkeyed && pl->pl_run < tr->tr_nrun);
	for (i = 0; i < tr->tr_nupper && i < pl->pl_run; i++)
		n += kv_run_keys_in(tr->tr_run[i], &all);
	/* those of other leaves hide nothing */
	for (i = i < pl->pl_first ? pl->pl_first : i; i < pl->pl_run; i++)
		n += kv_run_keys_in(tr->tr_run[i], &all);
	return n;
}

/* Changes with every delete of many keys that is added or goes. */
static uint64_t tombs_of(struct kv_tree *tr)
{
	uint64_t n = 0;

	if (!atomic_load(&tr->tr_tombs))
		return 0;
	for (uint32_t i = 0; i < tr->tr_nmt; i++)
		n += kv_mt_tombs(tr->tr_mt[i]);
	for (uint32_t i = 0; i < tr->tr_nrun; i++) {
		const struct kv_tindex *ti = tr->tr_run[i]->rn_tindex;

		n += ti ? ti->ti_n + ti->ti_max_seq : 0;
	}
	return n;
}

/* Until when no more than a part of the run's entries expire. */
static uint64_t until_of(const struct kv_run *r, uint64_t now)
{
	uint64_t from = UINT64_MAX, to = 0;

	for (uint32_t i = 0; i < r->rn_nkeyed; i++) {
		const struct kv_kblock *kb = &r->rn_kb[i];

		if (!kb->kb_expiring)
			continue;
		from = kb->kb_min_expiry < from ? kb->kb_min_expiry : from;
		to = kb->kb_max_expiry > to ? kb->kb_max_expiry : to;
	}
	if (to <= now)
		return UINT64_MAX;
	return (from > now ? from : now) + (to - from) / NEWS_PART + 1;
}

static bool is_current(struct kv_run *r, const struct place *pl, uint64_t now)
{
	struct kv_run_live *lv = &r->rn_live;
	uint64_t was = atomic_load(&lv->rl_above), is = pl->pl_above;

	return atomic_load(&lv->rl_is_known) && atomic_load(&lv->rl_tombs) == pl->pl_tombs &&
	       now < atomic_load(&lv->rl_until) &&
	       (is > was ? is - was : was - is) <= kv_run_desc(r)->rd_keys / NEWS_PART;
}

static void note_live(struct kv_run *r, const struct place *pl, uint64_t now, uint64_t bytes)
{
	struct kv_run_live *lv = &r->rn_live;

	atomic_store(&lv->rl_bytes, bytes);
	atomic_store(&lv->rl_above, pl->pl_above);
	atomic_store(&lv->rl_tombs, pl->pl_tombs);
	atomic_store(&lv->rl_until, until_of(r, now));
	atomic_store(&lv->rl_is_known, true);
}

/* Some of its pages stand for all. */
static int sample_pages(struct kvdb *db, const struct place *pl, struct sample *sa)
{
	struct kv_tree *tr = pl->pl_tree;
	struct kv_run *r = tr->tr_run[pl->pl_run];
	uint64_t pages = 0, most = SAMPLE_PAGES;
	int rc = 0;

	for (uint32_t i = 0; i < r->rn_n; i++)
		pages += r->rn_kb[i].kb_npages;
	if (tr->tr_nrun > SAMPLE_RUNS)
		most = SAMPLE_PAGES * SAMPLE_RUNS / tr->tr_nrun + 1;
	for (uint32_t k = 0; k < most && k < pages && !rc; k++) {
		uint64_t at = pages <= most ? k : (2 * k + 1) * pages / (2 * most);
		struct kv_thread *t;
		uint32_t b = 0;

		/* a close waits for no more than one page */
		if (kv_work_stopping(db))
			return -ECANCELED;
		for (; at >= r->rn_kb[b].kb_npages; b++)
			at -= r->rn_kb[b].kb_npages;
		KV_ASSERT(b < r->rn_n);
		rc = kv_kblock_need(db, &r->rn_kb[b]);
		if (rc)
			break;
		kv_pages_room(db, KV_GET_PAGES);
		t = kv_enter();
		rc = sample_page(db, tr, pl->pl_run, &r->rn_kb[b], (uint32_t)at, sa);
		kv_exit(t);
	}
	return rc;
}

/* Live bytes of one run. */
static int sample_run(struct kvdb *db, struct place *pl, uint64_t *live)
{
	struct kv_run *r = pl->pl_tree->tr_run[pl->pl_run];
	uint64_t now = kv_time_ms(db), bytes = 0;
	struct sample sa = { 0 };
	int rc;

	if (kv_trouble_holds(db, &r->rn_trouble)) {
		guess_run(r, live);
		return 0;
	}
	if (!r->rn_nkeyed)
		return 0;
	pl->pl_above = keys_above(pl);
	if (is_current(r, pl, now)) {
		*live += atomic_load(&r->rn_live.rl_bytes);
		return 0;
	}
	rc = sample_pages(db, pl, &sa);
	if (kv_is_local(db, rc)) {
		guess_run(r, live);
		return 0;
	}
	if (sa.sa_n)
		bytes = (uint64_t)(sa.sa_live / (double)sa.sa_n * (double)kv_run_desc(r)->rd_keys);
	if (!rc)
		note_live(r, pl, now, bytes);
	*live += bytes;
	return rc;
}

static int sample_store(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr, void *arg)
{
	struct place pl = { .pl_tree = tr, .pl_tombs = tombs_of(tr) };
	int rc = 0;

	(void)kvs;
	for (; pl.pl_run < tr->tr_nupper && !rc; pl.pl_run++)
		rc = sample_run(db, &pl, arg);
	for (uint32_t i = 0; i < tr->tr_nleaf && !rc; i++) {
		const struct kv_leaf_runs *lr = &tr->tr_leaf[i];

		pl.pl_first = lr->lr_first;
		for (pl.pl_run = lr->lr_first; pl.pl_run < lr->lr_first + lr->lr_n && !rc;
		     pl.pl_run++)
			rc = sample_run(db, &pl, arg);
	}
	return rc;
}

int kv_space_live(struct kvdb *db, uint64_t *live)
{
	*live = 0;
	return kv_each_store(db, sample_store, false, live);
}
