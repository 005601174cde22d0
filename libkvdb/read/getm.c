/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reading many keys with one call, and reading without a copy.
 *
 * Many keys: they are taken in groups, and a group goes through the steps of a
 * lookup side by side, so that its waits for memory overlap: hash buckets and
 * filters, key pages, values. What is not in memory is read together, for up to
 * OPEN_MAX keys.
 *
 * A group is looked at inside kv_enter(), where nothing waits for a device: it notes
 * its reads (load.c), and its keys without an answer are taken again.
 */
#include <errno.h>
#include <stdlib.h>

#include "read/getm.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/hash.h"
#include "db/db.h"
#include "db/etime.h"
#include "db/thread.h"
#include "cache/load.h"
#include "cache/slab.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/memtable.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "tree/point.h"
#include "tree/tomb_view.h"
#include "tree/view.h"
#include "read/find.h"

#define GROUP		16u
#define OPEN_MAX	256u	/* keys of one multi-get that wait for reads: bounds its memory */

_Static_assert(KV_ASYNC_RUNS > KV_ASYNC_PAGES * (KV_UPPER_RUNS_MOST + KV_LEAF_RUNS_MAX +
						 2 * KV_SPILL_RUNS),
	       "a get that is run again for each page comes to its end");

/* One key of a group. */
struct probe {
	struct kvdb_get *pr_get;
	uint64_t pr_hash;
	struct kv_path pr_path;
	unsigned pr_run;	/* of the path; the runs before it do not have the key */
	struct kv_spot pr_spot;	/* where that run has it */
	const uint8_t *pr_page;	/* NULL: not in memory */
	uint64_t pr_hidden;	/* newest delete of many keys that covers the key */
	bool pr_done;
	int pr_rc;
	struct kv_ent pr_ent;
};

struct group {
	struct kvdb_kvs *gr_kvs;
	struct kv_tree *gr_tree;
	uint64_t gr_seq;
	uint64_t gr_now;	/* engine time, ms; 0: not needed yet */
	bool gr_tombs;		/* the tree has deletes of many keys */
	bool gr_near;		/* the point index is asked */
	unsigned gr_n;
	struct probe gr_probe[GROUP];
};

static bool is_gone(struct group *g, const struct probe *p)
{
	const struct kv_ent *e = &p->pr_ent;

	if (e->e_kind == KV_ENT_TOMB || e->e_seq <= p->pr_hidden)
		return true;
	if (KV_LIKELY(!e->e_expiry))
		return false;
	if (!g->gr_now)
		g->gr_now = kv_time_ms(g->gr_kvs->k_db);
	return kv_is_expired(e, g->gr_now);
}

static void done(struct group *g, struct probe *p, int rc)
{
	KV_ASSERT_SLOW(!p->pr_done && rc != -EAGAIN);
	p->pr_done = true;
	p->pr_rc = !rc && is_gone(g, p) ? -ENOENT : rc;
}

static void group_prefetch(struct group *g)
{
	const struct kv_tree *tr = g->gr_tree;

	g->gr_tombs = atomic_load_explicit(&tr->tr_tombs, memory_order_relaxed);
	for (unsigned i = 0; i < g->gr_n; i++) {
		for (uint32_t m = 0; m < tr->tr_nmt; m++)
			kv_mt_prefetch(tr->tr_mt[m], g->gr_probe[i].pr_hash);
		g->gr_near = !g->gr_tombs && kv_point_prefetch(&g->gr_kvs->k_db->d_trees.te_points,
							       g->gr_probe[i].pr_hash);
	}
}

static void group_memtables(struct group *g)
{
	struct kv_tree *tr = g->gr_tree;

	KV_ASSERT_INSIDE();
	for (unsigned i = 0; i < g->gr_n; i++) {
		struct probe *p = &g->gr_probe[i];

		/* before the versions (R15) */
		if (KV_UNLIKELY(g->gr_tombs))
			p->pr_hidden = kv_tombs_at(tr, p->pr_get->key, p->pr_get->klen, g->gr_seq);
		for (uint32_t m = 0; m < tr->tr_nmt && !p->pr_done; m++)
			if (!kv_mt_lookup(tr->tr_mt[m], p->pr_get->key, p->pr_get->klen,
					  p->pr_hash, g->gr_seq, &p->pr_ent))
				done(g, p, 0);
	}
}

/* What the point index knows has no stamp, nor tombstones that could hide it. */
static void group_points(struct group *g)
{
	struct kvdb *db = g->gr_kvs->k_db;
	const uint8_t *rec[GROUP];

	if (!g->gr_near)
		return;
	for (unsigned i = 0; i < g->gr_n; i++)
		rec[i] = g->gr_probe[i].pr_done ? NULL :
			 kv_point_seek(db, g->gr_tree, g->gr_probe[i].pr_hash);
	for (unsigned i = 0; i < g->gr_n; i++) {
		struct probe *p = &g->gr_probe[i];

		if (rec[i])
			p->pr_done = kv_point_ent(db, rec[i], p->pr_get->key, p->pr_get->klen,
						  &p->pr_ent);
	}
}

static void group_paths(struct group *g)
{
	const struct kv_tree *tr = g->gr_tree;

	for (unsigned i = 0; i < g->gr_n; i++) {
		struct probe *p = &g->gr_probe[i];

		if (p->pr_done)
			continue;
		p->pr_path = kv_path(tr, p->pr_get->key, p->pr_get->klen);
		for (uint32_t r = 0; r < p->pr_path.pa_n; r++)
			kv_run_prefetch(kv_path_run(tr, &p->pr_path, r), p->pr_hash);
	}
}

/* Moves each key on to the next run that may have it. Returns how many are left. */
static unsigned group_spots(struct group *g)
{
	struct kv_tree *tr = g->gr_tree;
	unsigned left = 0;

	for (unsigned i = 0; i < g->gr_n; i++) {
		struct probe *p = &g->gr_probe[i];
		struct kv_spot *sp = &p->pr_spot;

		int rc = -ENOENT;

		for (; !p->pr_done && p->pr_run < p->pr_path.pa_n; p->pr_run++) {
			rc = kv_run_spot(g->gr_kvs->k_db,
					 kv_path_run(tr, &p->pr_path, p->pr_run), p->pr_get->key,
					 p->pr_get->klen, p->pr_hash, sp);
			if (rc != -ENOENT)
				break;
		}
		if (p->pr_done)
			continue;
		if (rc) {
			done(g, p, rc);
			continue;
		}
		kv_page_prefetch(g->gr_kvs->k_db, sp->sp_kb->kb_id, sp->sp_page);
		left++;
	}
	return left;
}

/* The pages of all spots: those in memory are prefetched, the others are read. */
static void group_pages(struct group *g)
{
	struct kvdb *db = g->gr_kvs->k_db;
	struct kv_want want[GROUP];
	unsigned n = 0;

	for (unsigned i = 0; i < g->gr_n; i++) {
		struct probe *p = &g->gr_probe[i];
		const struct kv_spot *sp = &p->pr_spot;

		if (p->pr_done)
			continue;
		p->pr_page = kv_page_hit(db, sp->sp_kb->kb_id, sp->sp_page);
		if (p->pr_page)
			kv_kpage_prefetch(p->pr_page);
		else
			want[n++] = (struct kv_want){ .wa_obj = sp->sp_kb->kb_obj, .wa_n = 1,
						      .wa_first = sp->sp_page,
						      .wa_crc = &sp->sp_crc };
	}
	if (n > 1)
		kv_pages_ahead(db, want, n);
}

static void group_runs(struct group *g)
{
	struct kvdb *db = g->gr_kvs->k_db;

	while (group_spots(g)) {
		group_pages(g);
		for (unsigned i = 0; i < g->gr_n; i++) {
			struct probe *p = &g->gr_probe[i];
			const struct kv_spot *sp = &p->pr_spot;
			int rc = 0;

			if (p->pr_done)
				continue;
			/* what could not be kept, or failed, is read once more */
			if (!p->pr_page)
				rc = kv_page_get(db, sp->sp_kb->kb_obj, sp->sp_page, &sp->sp_crc,
						 &p->pr_page);
			if (!rc)
				rc = kv_spot_find(sp, p->pr_page, p->pr_get->key, p->pr_get->klen,
						  p->pr_hash, &p->pr_ent);
			if (rc == -ENOENT) {
				p->pr_run++;
				continue;
			}
			if (!rc && !g->gr_tombs)
				kv_point_add(db, g->gr_tree, p->pr_get->key, p->pr_get->klen,
					     p->pr_hash, &p->pr_ent);
			done(g, p, rc);
		}
	}
}

/* Returns how many wait for reads. */
static unsigned group_values(struct group *g)
{
	struct kvdb *db = g->gr_kvs->k_db;
	struct kv_tctx *tc = kv_tctx(db);
	struct kv_ent far[GROUP];
	unsigned n = 0, open = 0;
	uint64_t got = 0;

	for (unsigned i = 0; i < g->gr_n; i++) {
		const struct probe *p = &g->gr_probe[i];

		if (p->pr_rc || !p->pr_get->size)
			continue;
		if (kv_value_is_near(&p->pr_ent))
			kv_value_prefetch(&p->pr_ent);
		else
			far[n++] = p->pr_ent;
	}
	if (n > 1)
		kv_values_ahead(db, far, n);
	for (unsigned i = 0; i < g->gr_n; i++) {
		struct probe *p = &g->gr_probe[i];
		struct kvdb_get *get = p->pr_get;

		if (!p->pr_rc && get->size)
			p->pr_rc = kv_value_read(db, &p->pr_ent, get->buf, get->size);
		get->err = p->pr_rc;
		if (!p->pr_rc) {
			get->vlen = p->pr_ent.e_vlen;
			got += get->klen + (get->vlen < get->size ? get->vlen : get->size);
		}
		open += p->pr_rc == -EINPROGRESS;
	}
	if (tc)
		kv_count(&tc->tc_read_bytes, got);
	return open;
}

/* Takes the next keys without an answer. Returns how many were looked at. */
static unsigned group_take(struct group *g, struct kvdb_get *get, unsigned n)
{
	unsigned i;

	g->gr_n = 0;
	for (i = 0; i < n && g->gr_n < GROUP; i++) {
		if (get[i].err != -EINPROGRESS)
			continue;
		g->gr_probe[g->gr_n++] = (struct probe){
			.pr_get = &get[i], .pr_hash = kv_hash(get[i].key, get[i].klen) };
	}
	return i;
}

int kv_getm_begin(struct kv_getm *gm, struct kvdb_kvs *kvs, unsigned flags, struct kvdb_get *get,
		  size_t n)
{
	struct kv_tctx *tc = kv_tctx(kvs->k_db);

	if (flags & ~KVDB_GET_SNAPSHOT)
		return kv_error(-EINVAL, "MP0951", "multi-get flags %#x are not known", flags);
	if (n > UINT32_MAX || (n && !get))
		return kv_error(-EINVAL, "MP0951", "%zu keys at %p", n, (void *)get);
	if (!tc)
		return kv_error(-ENOMEM, "MP0902", "no memory for a thread's state");
	kv_count(&tc->tc_gets, n);
	*gm = (struct kv_getm){ .gm_kvs = kvs, .gm_get = get, .gm_n = (unsigned)n };
	for (unsigned i = 0; i < n; i++) {
		get[i].err = kv_check_key(kvs, get[i].key, get[i].klen);
		if (!get[i].err)
			get[i].err = kv_check_buf(kvs, get[i].buf, get[i].size);
		if (get[i].err)
			continue;
		get[i].err = -EINPROGRESS;
		gm->gm_left++;
	}
	if (flags & KVDB_GET_SNAPSHOT) {
		kv_snapshot(kvs, &gm->gm_tree, &gm->gm_seq);
		gm->gm_now = kv_time_ms(kvs->k_db);
	}
	return 0;
}

int kv_getm_run(struct kv_getm *gm)
{
	struct kvdb *db = gm->gm_kvs->k_db;
	bool is_moment = BARRIER(gm->gm_tree != NULL);
	struct group g = { .gr_kvs = gm->gm_kvs, .gr_now = gm->gm_now,
			   .gr_seq = is_moment ? gm->gm_seq : KV_SEQ_NOW };
	unsigned at = gm->gm_first, open = 0, left;

	KV_ASSERT(gm->gm_first <= gm->gm_n && gm->gm_left <= gm->gm_n);
	while (at < gm->gm_n && open < OPEN_MAX) {
		struct kv_thread *t;

		kv_pages_room(db, 4 * GROUP);
		at += group_take(&g, gm->gm_get + at, gm->gm_n - at);
		t = kv_enter();
		g.gr_tree = is_moment ? gm->gm_tree :
			    atomic_load_explicit(&gm->gm_kvs->k_tree, memory_order_acquire);
		group_prefetch(&g);
		group_memtables(&g);
		group_points(&g);
		group_paths(&g);
		group_runs(&g);
		left = group_values(&g);
		kv_exit(t);
		open += left;
		KV_ASSERT(left <= g.gr_n && gm->gm_left >= g.gr_n - left);
		gm->gm_left -= g.gr_n - left;
		if (!open)
			gm->gm_first = at;
	}
	KV_ASSERT(!open == !gm->gm_left);
	return gm->gm_left ? -EINPROGRESS : 0;
}

void kv_getm_end(struct kv_getm *gm)
{
	if (gm->gm_tree)
		kv_tree_put(gm->gm_kvs->k_db, gm->gm_tree);
	gm->gm_tree = NULL;
}

/* As an operation of a queue, whose caller waits. */
static void getm_wait(struct kv_getm *gm)
{
	struct kv_async as = { .as_db = gm->gm_kvs->k_db, .as_owner = gm };
	unsigned before;
	int rc;

	do {
		before = gm->gm_left;
		kv_async_try(&as);
		rc = kv_getm_run(gm);
	} while (kv_async_again(&as, rc, gm->gm_left != before));
}

int kvdb_get_multi(struct kvdb_kvs *kvs, unsigned flags, struct kvdb_get *get, unsigned n)
{
	struct kv_getm gm;
	int rc = kv_getm_begin(&gm, kvs, flags, get, n);

	if (rc)
		return rc;
	getm_wait(&gm);
	kv_getm_end(&gm);
	return 0;
}

/* ---- without a copy ------------------------------------------------------------------- */

/*
 * What holds the bytes of a pinned value: a slab of the window, or memory of its
 * own. priv[0] is the slab, priv[1] the memory, priv[2] the database.
 */
static int pin_copy(struct kvdb *db, const struct kv_ent *e, struct kvdb_pin *pin)
{
	uint8_t *buf = malloc(e->e_vlen ? e->e_vlen : 1);
	int rc;

	if (!buf)
		return kv_error(-ENOMEM, "MP0902", "no memory for a value of %u bytes",
				e->e_vlen);
	rc = kv_value_read(db, e, buf, e->e_vlen);
	if (rc) {
		free(buf);
		return rc;
	}
	*pin = (struct kvdb_pin){ .val = buf, .vlen = e->e_vlen, .priv = { NULL, buf, db } };
	return 0;
}

static int pin_value(struct kvdb *db, struct kv_tctx *tc, const struct kv_ent *e,
		     struct kvdb_pin *pin)
{
	const uint8_t *image = NULL, *val = e->e_val;
	void *slab = NULL;

	if (e->e_kind == KV_ENT_INMEM)
		slab = kv_slab_pin_near(db, val);
	else if (e->e_kind == KV_ENT_REF && e->e_vlen && !e->e_pack &&
		 (uint64_t)e->e_off8 * 8 + e->e_vlen <= e->e_seg->sg_bytes)
		image = atomic_load_explicit(&e->e_seg->sg_image, memory_order_acquire);
	if (image) {
		slab = kv_slab_pin(db, &e->e_seg->sg_image, image);
		val = image + (size_t)e->e_off8 * 8;
	}
	if (!slab)
		return pin_copy(db, e, pin);
	*pin = (struct kvdb_pin){ .val = val, .vlen = e->e_vlen, .priv = { slab, NULL, db } };
	kv_slab_touch(db, val);
	kv_count(&tc->tc_value_mem, 1);
	return 0;
}

/*
 * A value that is not in memory, @vlen bytes of it as far as that is known. Outside
 * kv_enter(): threads that wait for a device inside keep every evicted page from
 * its next use, and then each read needs memory beyond the budget.
 */
static int pin_wait(struct kvdb_kvs *kvs, const void *key, size_t klen, size_t vlen,
		    struct kvdb_pin *pin)
{
	uint8_t *buf = NULL, *p;
	size_t size;
	int rc;

	KV_ASSERT_OUTSIDE();
	do {
		size = vlen;
		p = realloc(buf, size ? size : 1);
		if (!p) {
			free(buf);
			return kv_error(-ENOMEM, "MP0902", "no memory for a value of %zu bytes",
					size);
		}
		buf = p;
		rc = kv_get_wait(kvs, NULL, key, klen, buf, size, &vlen);
	} while (!rc && vlen > size);
	if (rc) {
		free(buf);
		return rc;
	}
	*pin = (struct kvdb_pin){ .val = buf, .vlen = vlen, .priv = { NULL, buf, kvs->k_db } };
	return 0;
}

int kvdb_get_pinned(struct kvdb_kvs *kvs, const void *key, size_t klen, struct kvdb_pin *pin)
{
	struct kvdb *db = kvs->k_db;
	struct kv_tctx *tc;
	struct kv_thread *t;
	struct kv_ent e;
	int rc = kv_check_key(kvs, key, klen);

	if (rc)
		return rc;
	tc = kv_tctx(db);
	if (!tc)
		return kv_error(-ENOMEM, "MP0902", "no memory for a thread's state");
	kv_count(&tc->tc_gets, 1);
	tc->tc_restarts = true;
	t = kv_enter();
	e.e_vlen = 0;
	rc = kv_tree_lookup(db, atomic_load_explicit(&kvs->k_tree, memory_order_acquire), key,
			    klen, KV_SEQ_NOW, &e);
	if (!rc && (e.e_kind == KV_ENT_TOMB ||
		    (KV_UNLIKELY(e.e_expiry) && kv_is_expired(&e, kv_time_ms(db)))))
		rc = -ENOENT;
	if (!rc)
		rc = pin_value(db, tc, &e, pin);
	kv_exit(t);
	tc->tc_restarts = false;
	if (!rc)
		kv_count(&tc->tc_read_bytes, klen + e.e_vlen);
	if (KV_UNLIKELY(rc == -EINPROGRESS))
		rc = pin_wait(kvs, key, klen, e.e_vlen, pin);
	return KV_UNLIKELY(rc == -ENOENT) ? kv_error_absent() : rc;
}

void kvdb_unpin(struct kvdb_pin *pin)
{
	if (!pin || !pin->val)
		return;
	if (pin->priv[0])
		kv_slab_unpin(pin->priv[2], pin->priv[0]);
	free(pin->priv[1]);
	*pin = (struct kvdb_pin){ .val = NULL };
}
