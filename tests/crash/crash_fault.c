/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every k-th call of a device fails, or every k-th allocation: a database is opened and
 * worked on, and one read, write or flush of a kind fails, returns what was never written,
 * is lost, is slow; or it and all that follow. What is asked of it:
 *  - a call that fails says so; none says that something is there or gone that
 *    is not, and no get returns other bytes, neither then nor later (P1);
 *  - after a sync that failed no sync works (P5);
 *  - closed, and opened on devices that work, it holds what was acknowledged, as
 *    after a crash (P2, P3, P4), is sound for kvdb_verify() and takes writes;
 *  - memory that ends fails the calls that need it and nothing else: when there is some
 *    again the next sync works, and nothing leaks;
 *  - a value that expires is read until then and not afterwards, open and opened again;
 *  - a backup beside the writer restores to what was there, or it failed (kv_backup.c);
 *  - a device that loses a write and says nothing can take away what was written,
 *    but not make it something else: the open or the get fails.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "kv_model.h"

#define KiB	(1ull << 10)
#define MiB	(1ull << 20)
#define MSEC	1000000ull
#define BEFORE	80u	/* steps before the database is closed and kept */
#define STEPS	40u	/* in a run */
#define STEP_OPS KM_KEYS	/* writes of a step, at most */

static struct km base, model;
static uint64_t base_ns;	/* the clock then */

#define FT_WL(nm, two, ...) {								\
	.w_ops = { .eo_name = nm, .eo_is_two_devs = two },				\
	.w_conf = { .kc_name = nm, .kc_devs = (two) ? 2 : 1, .kc_segment_bytes = 64 * KiB,	\
		    .kc_logs = 2, .kc_log_bytes = 1 * MiB, __VA_ARGS__ },		\
}

static const struct km_wl workload[] = {
	FT_WL("values", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_stores = 1, .kc_keys = 60,
	      .kc_weight = { [KM_PUT] = 24, [KM_BIG] = 3, [KM_DEL] = 5, [KM_MANY] = 1,
			     [KM_SYNC] = 4, [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 1 }),
	FT_WL("commit", false, .kc_bytes = { 32 * MiB }, .kc_stores = 3, .kc_keys = 20,
	      .kc_commit = 1,
	      .kc_weight = { [KM_PUT] = 20, [KM_BIG] = 1, [KM_DEL] = 6, [KM_MANY] = 3,
			     [KM_POLL] = 4, [KM_IDLE] = 1, [KM_FLUSH] = 1, [KM_REOPEN] = 1 }),
	FT_WL("compact", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_stores = 2, .kc_keys = 50,
	      .kc_weight = { [KM_PUT] = 24, [KM_BIG] = 2, [KM_DEL] = 8, [KM_MANY] = 5,
			     [KM_SYNC] = 1, [KM_POLL] = 4, [KM_IDLE] = 2, [KM_FLUSH] = 8,
			     [KM_COMPACT] = 4 }),
	FT_WL("relocate", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_stores = 2, .kc_keys = 70,
	      .kc_moves = true, .kc_leaf_keys = 20,
	      .kc_weight = { [KM_PUT] = 40, [KM_DEL] = 2, [KM_SYNC] = 1, [KM_POLL] = 5,
			     [KM_IDLE] = 2, [KM_FLUSH] = 2, [KM_COMPACT] = 10,
			     [KM_REOPEN] = 1 }),
	FT_WL("stores", true, .kc_bytes = { 32 * MiB, 16 * MiB }, .kc_stores = 2, .kc_keys = 24,
	      .kc_leaf_keys = 12,
	      .kc_no_filters = true,
	      .kc_weight = { [KM_PUT] = 20, [KM_BIG] = 2, [KM_DEL] = 4, [KM_MANY] = 2,
			     [KM_SYNC] = 1, [KM_POLL] = 3, [KM_FLUSH] = 3, [KM_COMPACT] = 2,
			     [KM_MERGES] = 2, [KM_CREATE] = 2, [KM_DROP] = 1, [KM_CKPT] = 2,
			     [KM_UNCKPT] = 1, [KM_BULK] = 2, [KM_REOPEN] = 1 }),
	FT_WL("txns", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_stores = 3, .kc_keys = 40,
	      .kc_weight = { [KM_TXN] = 50, [KM_PUT] = 4, [KM_DEL] = 2, [KM_SYNC] = 1,
			     [KM_POLL] = 5, [KM_IDLE] = 1, [KM_FLUSH] = 2, [KM_FLUSH_ONE] = 2,
			     [KM_COMPACT] = 1 }),
	FT_WL("parts", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_stores = 3, .kc_keys = 40,
	      .kc_record_max = 256,
	      .kc_weight = { [KM_TXN] = 50, [KM_PUT] = 4, [KM_DEL] = 2, [KM_SYNC] = 1,
			     [KM_POLL] = 5, [KM_IDLE] = 1, [KM_FLUSH] = 2, [KM_FLUSH_ONE] = 2,
			     [KM_COMPACT] = 1 }),
	FT_WL("batches", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_stores = 3, .kc_keys = 40,
	      .kc_record_max = 512,
	      .kc_weight = { [KM_BATCH] = 40, [KM_TXN] = 8, [KM_PUT] = 4, [KM_DEL] = 2,
			     [KM_SYNC] = 1, [KM_POLL] = 5, [KM_IDLE] = 1, [KM_FLUSH] = 2,
			     [KM_FLUSH_ONE] = 2, [KM_COMPACT] = 1 }),
	/* stores of every policy on a staging class that is soon tight */
	FT_WL("policies", true, .kc_bytes = { 24 * MiB, 5 * MiB }, .kc_stores = 4, .kc_keys = 70,
	      .kc_moves = true, .kc_policies = true,
	      .kc_weight = { [KM_PUT] = 40, [KM_DEL] = 2, [KM_SYNC] = 1, [KM_POLL] = 5,
			     [KM_IDLE] = 2, [KM_FLUSH] = 2, [KM_COMPACT] = 8,
			     [KM_REOPEN] = 1 }),
	/* with read-ahead, and values that were compressed when they moved */
	FT_WL("cursors", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_stores = 2, .kc_keys = 70,
	      .kc_moves = true, .kc_cursors = true, .kc_leaf_keys = 20,
	      .kc_no_filters = true,
	      .kc_weight = { [KM_PUT] = 30, [KM_BIG] = 2, [KM_DEL] = 4, [KM_MANY] = 1,
			     [KM_SYNC] = 1, [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 4,
			     [KM_COMPACT] = 8, [KM_MERGES] = 1 }),
	/* values, some by their store's rule, that live for seconds, as time goes by seconds */
	FT_WL("expiry", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_stores = 2, .kc_keys = 60,
	      .kc_moves = true, .kc_cursors = true, .kc_expires = true, .kc_leaf_keys = 20,
	      .kc_weight = { [KM_PUT] = 30, [KM_BIG] = 2, [KM_DEL] = 4, [KM_MANY] = 1,
			     [KM_SYNC] = 1, [KM_POLL] = 4, [KM_IDLE] = 1, [KM_AGE] = 6,
			     [KM_FLUSH] = 4, [KM_COMPACT] = 6, [KM_MERGES] = 2,
			     [KM_CKPT] = 2, [KM_UNCKPT] = 1, [KM_BULK] = 1 }),
	/* full, then what changed, each beside a writer that flushes and merges */
	FT_WL("backup", true, .kc_bytes = { 32 * MiB, 16 * MiB }, .kc_stores = 2, .kc_keys = 50,
	      .kc_moves = true, .kc_leaf_keys = 20,
	      .kc_weight = { [KM_PUT] = 24, [KM_BIG] = 2, [KM_DEL] = 4, [KM_MANY] = 2,
			     [KM_SYNC] = 1, [KM_POLL] = 4, [KM_IDLE] = 1, [KM_FLUSH] = 2,
			     [KM_COMPACT] = 2, [KM_BULK] = 1, [KM_CREATE] = 1, [KM_DROP] = 1,
			     [KM_BACKUP] = 5, [KM_REOPEN] = 1 }),
	FT_WL("leaves", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_stores = 2, .kc_keys = 80,
	      .kc_leaf_keys = 12,
	      .kc_no_filters = true,
	      .kc_weight = { [KM_PUT] = 30, [KM_DEL] = 8, [KM_MANY] = 4, [KM_SYNC] = 1,
			     [KM_POLL] = 4, [KM_IDLE] = 2, [KM_FLUSH] = 9, [KM_COMPACT] = 3,
			     [KM_MERGES] = 4, [KM_REOPEN] = 1 }),
};

/* ---- the database that every run begins with ---- */

static int stores_make(struct eng *e, struct km_rt *rt)
{
	struct km *m = &base;
	unsigned n = km_conf_of(e)->kc_stores, i, k;
	int rc = 0;

	for (i = 0; i < n && !rc; i++) {
		struct km_store *s = &m->m_store[m->m_nstore];
		struct km_face f = { .f_ttl_s = 0 };

		snprintf(s->s_name, sizeof(s->s_name), "store%u", i);
		s->s_dropped = km_never;
		rc = km_store_create(e, rt, s->s_name, i);
		if (!rc)
			rc = kvdb_kvs_open(rt->rt_db, s->s_name, &rt->rt_kvs[m->m_nstore]);
		if (!rc)
			rc = km_face_of(e, rt->rt_kvs[m->m_nstore], &f);
		km_face_add(m, m->m_nstore, s->s_exists, &f);
		for (k = 0; k < KM_KEYS; k++)
			m->m_now[m->m_nstore][k].v_len = KM_ABSENT;
		m->m_nstore++;
	}
	return rc ? eng_fail(e, "store: %d", rc) : 0;
}

static int prepare(struct eng *e, uint64_t seed)
{
	struct km_rt rt;
	unsigned i;

	memset(&base, 0, sizeof(base));
	base.m_rand = seed;
	base.m_dropped = km_never;
	base.m_backup.b_ckpt = -1;
	km_clock_reset(e, seed);
	if (km_pool_create(e) || km_create(e, &base) || km_open(e, &base, &rt) ||
	    stores_make(e, &rt))
		return -1;
	for (i = 0; i < BEFORE; i++)
		if (km_step(e, &base, &rt))
			return -1;
	if (km_close(e, &base, &rt))
		return -1;
	base_ns = km_clock();
	memcpy(base.m_base, base.m_now, sizeof(base.m_base));
	base.m_nop = base.m_nsync = 0;
	return 0;
}

/* ---- one run ---- */

/* What a get, or a cursor when it was opened, could see. */
struct seen {
	struct km_val se_val;
	uint64_t se_from_ns, se_to_ns;	/* by km_clock() */
};

static bool is_same(const struct seen *se, const struct km_val *want)
{
	return km_is_same(&se->se_val, want, se->se_from_ns, se->se_to_ns);
}

static bool was_written(const struct km *m, unsigned s, unsigned k, const struct seen *se)
{
	return km_was_written(m, s, k, &se->se_val, se->se_from_ns, se->se_to_ns);
}

/* One get. An error is allowed once something failed; other bytes never are. */
static int look(struct eng *e, const struct km *m, const struct km_rt *rt, unsigned s,
		unsigned k, bool is_exact)
{
	static uint8_t val[KM_VALUE_MAX];
	const struct km_val *want = &m->m_now[s][k];
	struct seen got = { { .v_len = KM_ABSENT }, km_clock(), 0 };
	uint8_t key[KVDB_KEY_MAX];
	size_t len = 0;
	int rc;

	if (!rt->rt_kvs[s])
		return 0;
	rc = kvdb_get(rt->rt_kvs[s], key, km_key(k, key), val, sizeof(val), &len);
	if (rc && rc != -ENOENT)
		return e->e_sim.s_fault.f_fired ? 0 :
		       eng_fail(e, "get of store %u key %u: %d though nothing failed", s, k, rc);
	got.se_to_ns = km_clock();
	if (!rc)
		got.se_val = km_val_of(val, len);
	if (is_exact ? is_same(&got, want) : was_written(m, s, k, &got))
		return 0;
	return eng_fail(e, "store %u key %u: %d bytes, wanted %d", s, k, (int)got.se_val.v_len,
			(int)want->v_len);
}

static int look_at_all(struct eng *e, const struct km *m, const struct km_rt *rt, bool is_exact)
{
	unsigned s, k;

	for (s = 0; s < m->m_nstore; s++)
		for (k = 0; k < km_conf_of(e)->kc_keys; k++)
			if (look(e, m, rt, s, k, is_exact))
				return -1;
	return 0;
}

/* ---- a cursor that is open while a step runs ---- */

struct held {
	struct kvdb_cursor *h_cur;	/* NULL: none */
	unsigned h_store, h_left;	/* keys that it has to show yet */
	struct km_val h_want[KM_KEYS];
	struct seen h_none;		/* what it shows of a key that was gone */
};

static void held_close(struct held *h)
{
	kvdb_cursor_close(h->h_cur);
	h->h_cur = NULL;
}

static int held_open(struct eng *e, const struct km *m, const struct km_rt *rt, struct held *h)
{
	unsigned s = (unsigned)(sim_rand(&e->e_rand) % m->m_nstore), k;
	int rc;

	h->h_none = (struct seen){ { .v_len = KM_ABSENT }, km_clock(), 0 };
	rc = kvdb_cursor_open(rt->rt_kvs[s], sim_rand(&e->e_rand) & 1 ? KVDB_REVERSE : 0,
			      NULL, 0, &h->h_cur);
	h->h_none.se_to_ns = km_clock();
	if (rc) {
		h->h_cur = NULL;
		return e->e_sim.s_fault.f_fired ? 0 :
		       eng_fail(e, "cursor: %d though nothing failed", rc);
	}
	h->h_store = s;
	h->h_left = 0;
	memcpy(h->h_want, m->m_now[s], sizeof(h->h_want));
	for (k = 0; k < KM_KEYS; k++)
		h->h_left += !is_same(&h->h_none, &h->h_want[k]);
	return 0;
}

/* @n pairs of its snapshot. As of a get, an error is allowed once something failed. */
static int held_walk(struct eng *e, const struct km *m, struct held *h, uint64_t n, bool is_exact)
{
	const void *key, *val;
	size_t klen, vlen;
	int rc = 0, k;

	while (h->h_cur && n-- && !(rc = kvdb_cursor_next(h->h_cur, &key, &klen, &val, &vlen))) {
		struct seen got = h->h_none;

		got.se_val = km_val_of(val, vlen);
		k = km_key_number(key, klen);
		if (k < 0 || !(is_exact ? is_same(&got, &h->h_want[k]) :
			       was_written(m, h->h_store, (unsigned)k, &got)))
			return eng_fail(e, "a cursor shows store %u key %d with %zu bytes",
					h->h_store, k, vlen);
		h->h_left -= !is_same(&h->h_none, &h->h_want[k]);
	}
	if (!rc)
		return 0;
	held_close(h);
	if (rc == -ENOENT)
		return is_exact && h->h_left ? eng_fail(e, "a cursor of store %u left out %u keys",
							h->h_store, h->h_left) : 0;
	return e->e_sim.s_fault.f_fired ? 0 :
	       eng_fail(e, "a cursor: %d though nothing failed", rc);
}

/* km_step(), with a cursor in the middle of its walk. *failed is the step's. */
static int step_beside(struct eng *e, struct km *m, struct km_rt *rt, bool is_exact, bool *failed)
{
	static struct held h;
	int rc = held_open(e, m, rt, &h);

	if (!rc)
		rc = held_walk(e, m, &h, sim_rand(&e->e_rand) % 16, is_exact);
	if (!rc) {
		*failed = km_step(e, m, rt);
		rc = held_walk(e, m, &h, UINT64_MAX, is_exact);
	}
	held_close(&h);
	return rc;
}

/* The work, up to the first call that fails: *failed. -1 = what must not be. */
static int work(struct eng *e, struct km *m, struct km_rt *rt, bool *failed)
{
	/* a device that loses its writes shows the old database at the next open */
	bool is_exact = e->e_sim.s_fault.f_kind != FAULT_DROP;
	unsigned i, j;

	*failed = km_open(e, m, rt);
	for (i = 0; i < STEPS && !*failed; i++) {
		for (j = 0; j < STEP_OPS; j++)
			m->m_op[m->m_nop + j].op_b = KM_NEVER;
		e->e_is_wrong = false;
		if (!km_conf_of(e)->kc_cursors)
			*failed = km_step(e, m, rt);
		else if (step_beside(e, m, rt, is_exact, failed))
			return -1;
		for (j = 0; j < 4 && !*failed; j++)
			if (look(e, m, rt, (unsigned)(sim_rand(&e->e_rand) % m->m_nstore),
				 (unsigned)(sim_rand(&e->e_rand) % km_conf_of(e)->kc_keys),
				 is_exact))
				return -1;
	}
	if (!*failed)
		return 0;
	/* an answer that is wrong is no call that failed */
	if (m->m_is_wrong || (e->e_is_wrong && is_exact))
		return -1;
	if (!e->e_sim.s_fault.f_fired || e->e_sim.s_fault.f_kind == FAULT_STALL)
		return -1;
	/* what failed may be there all the same, and be seen */
	for (j = 0; i && j < STEP_OPS && m->m_op[m->m_nop].op_b != KM_NEVER; j++)
		m->m_op[m->m_nop++].op_e = KM_NEVER;
	return 0;
}

/* P5: an error of a sync is for good. */
static int syncs(struct eng *e, const struct km_rt *rt)
{
	int first = kvdb_sync(rt->rt_db), second = kvdb_sync(rt->rt_db);

	return first && !second ? eng_fail(e, "sync: %d, and the next one works", first) : 0;
}

/* The device lost a write: what is left may be less, or refused, but nothing else. */
static int judge_lost(struct eng *e, struct km *m)
{
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	struct km_rt rt;
	unsigned i;
	int rc;

	memset(&rt, 0, sizeof(rt));
	km_opts(e, &o, &oo);
	if (kvdb_open(KM_POOL, &o, &rt.rt_db))
		return 0;
	for (i = rc = 0; i < m->m_nstore && !rc; i++)
		if (!m->m_store[i].s_is_dead)
			rc = kvdb_kvs_open(rt.rt_db, m->m_store[i].s_name, &rt.rt_kvs[i]);
	rc = rc ? 0 : look_at_all(e, m, &rt, false);
	kvdb_close(rt.rt_db);
	return rc;
}

/* There is memory again: nothing is left of its end but the calls that failed. */
static int goes_on(struct eng *e, struct km *m, const struct km_rt *rt, unsigned acked)
{
	int rc = kvdb_sync(rt->rt_db);

	if (rc)
		return eng_fail(e, "sync with memory: %d (%s)", rc, kvdb_error_detail()->text);
	km_synced(e, m, acked, 0);
	return 0;
}

static int judge(struct eng *e, struct km *m)
{
	static struct km next;
	struct km_rt rt;
	unsigned i, s = 0;
	int rc;

	if (e->e_sim.s_fault.f_kind == FAULT_DROP && e->e_sim.s_fault.f_fired)
		return judge_lost(e, m);
	memset(&e->e_sim.s_fault, 0, sizeof(e->e_sim.s_fault));
	next.m_nckpt = 0;
	rc = km_judge(e, m, KM_END, km_latest(m, KM_END), &rt, &next);
	while (!rc && s < next.m_nstore && next.m_store[s].s_is_dead)
		s++;
	for (i = 0; i < 5 && !rc && s < next.m_nstore; i++)
		rc = kvdb_put(rt.rt_kvs[s], "later", 5, &i, sizeof(i)) || kvdb_sync(rt.rt_db) ?
		     eng_fail(e, "no writes afterwards") : 0;
	if (rt.rt_db && kvdb_close(rt.rt_db) && !rc)
		rc = eng_fail(e, "no close afterwards");
	return rc ? rc : km_ckpt_judge(e, &next);
}

static int run(struct eng *e, struct sim_fault *f, uint64_t seed, bool *failed)
{
	struct km *m = &model;
	long before = sim_memory_live();
	struct km_rt rt;
	unsigned acked;
	int rc;

	memcpy(m, &base, sizeof(*m));
	m->m_rand = e->e_rand = seed;
	km_clock_reset(e, seed);
	km_clock_set(base_ns);
	sim_snap(&e->e_sim);
	sim_log_init(&e->e_log, 1);
	e->e_sim.s_log = &e->e_log;
	e->e_sim.s_fault = *f;
	memset(&rt, 0, sizeof(rt));
	rc = work(e, m, &rt, failed);
	for (acked = m->m_nop; acked && m->m_op[acked - 1].op_e == KM_NEVER;)
		acked--;
	if (rt.rt_db) {
		if (!rc && *failed)
			rc = look_at_all(e, m, &rt, false);
		if (!rc && *failed)
			rc = f->f_kind == FAULT_MEMORY ? goes_on(e, m, &rt, acked) : syncs(e, &rt);
		km_txns_abort(&rt);
		if (!kvdb_close(rt.rt_db) && !rc && f->f_kind != FAULT_DROP)
			km_synced(e, m, acked, 0);
	}
	e->e_sim.s_fault.f_at = 0;
	*f = e->e_sim.s_fault;
	if (!rc && sim_memory_live() != before)
		rc = eng_fail(e, "%ld allocations are left", sim_memory_live() - before);
	/* more expires while it is closed */
	if (km_conf_of(e)->kc_expires)
		km_clock_set(km_clock() + sim_rand(&e->e_rand) % 2000 * MSEC);
	if (!rc)
		rc = judge(e, m);
	e->e_sim.s_log = NULL;
	sim_log_fini(&e->e_log);
	sim_release(&e->e_sim);
	sim_rollback(&e->e_sim);
	return rc;
}

int main(int argc, char **argv)
{
	enum { N = sizeof(workload) / sizeof(workload[0]) };
	static const struct fault_ops ops = {
		.fo_name = "engine", .fo_whole = "stores",
		.fo_kinds = (1u << FAULT_MEMORY) - 2, .fo_prepare = prepare, .fo_run = run,
	};
	const struct eng_ops *wl[N];
	unsigned i;

	(void)argc;
	for (i = 0; i < N; i++)
		wl[i] = &workload[i].w_ops;
	return fault_main(argv + 1, &ops, wl, N);
}
