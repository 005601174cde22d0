/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What writers are charged, and for which store: a debt counts only while a worker can pay it, and
 * is charged to the store that makes it; memory is freed by the stores that hold it; and a store
 * that is dropped while a writer sleeps for a debt takes no more writes.
 */
#include "harness.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "kv_active.h"
#include "kv_sim.h"
#include "tree/leaf.h"
#include "log/flush.h"
#include "mem/memtable.h"
#include "meta/mdc.h"
#include "txn/txn.h"
#include "background/work.h"
#include "db/bell.h"

static struct kvdb *db;

static struct kvdb_kvs *make(const char *name)
{
	struct kvdb_kvs *kvs;

	T_EQ(kvdb_kvs_create(db, name, NULL), 0);
	T_EQ(kvdb_kvs_open(db, name, &kvs), 0);
	return kvs;
}

static void begin(unsigned flags)
{
	kv_sim(1);
	opts.flags = flags;
	T_EQ(kvdb_create(POOL, &opts), 0);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
}

static void end(void)
{
	T_EQ(kvdb_close(db), 0);
	sim_fini(&sim);
}

static void a_debt_that_no_worker_can_pay_is_not_charged(void)
{
	struct kvdb_kvs *s, *t;
	struct kvdb_bulk *b;

	begin(KVDB_MANUAL);
	s = make("s");
	t = make("t");
	T_EQ(kvdb_bulk_open(s, 0, &b), 0);
	T_EQ(kvdb_bulk_add(b, "a", 1, "b", 1), 0);
	for (unsigned i = 0; i < KV_UPPER_RUNS_SLOW + 10; i++) {
		T_EQ(kvdb_put(s, &i, sizeof(i), "v", 1), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	kv_pressure(db);
	T_OK(!kv_toll(db, s) && !kv_toll(db, t));
	/* without it merges may begin: writers of that store wait for them, others do not */
	kvdb_bulk_abort(b);
	kv_pressure(db);
	T_OK(kv_toll(db, s) == &s->k_toll && !kv_toll(db, t));
	T_EQ(atomic_load(&s->k_toll.to_cause), KVDB_DELAY_RUNS);
	/* nor for what failed, and is left alone for a while */
	kv_trouble_set(db, &s->k_merging.mg_trouble, -EUCLEAN, "a test");
	kv_pressure(db);
	T_OK(!kv_toll(db, s));
	kv_trouble_end(db, &s->k_merging.mg_trouble);
	kv_pressure(db);
	T_OK(kv_toll(db, s));
	while (kvdb_poll(db) > 0)
		;
	kv_pressure(db);
	T_OK(!kv_toll(db, s));
	end();
}

static void a_transaction_pays_for_the_dearest_of_its_stores(void)
{
	uint32_t part[KVDB_DELAYS] = { 0 };
	struct kvdb_kvs *s, *t;
	struct kvdb_txn *txn;

	begin(KVDB_MANUAL);
	s = make("s");
	t = make("t");
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	T_EQ(kvdb_txn_put(txn, t, "k", 1, "v", 1), 0);
	part[KVDB_DELAY_RUNS] = 500;
	kv_toll_set(&s->k_toll, part);
	T_OK(!kv_txn_toll(txn));
	T_EQ(kvdb_txn_put(txn, s, "k", 1, "v", 1), 0);
	T_OK(kv_txn_toll(txn) == &s->k_toll);
	part[KVDB_DELAY_RUNS] = 600;
	kv_toll_set(&db->d_throttle.th_all, part);
	T_OK(kv_txn_toll(txn) == &db->d_throttle.th_all);
	kvdb_txn_abort(txn);
	end();
}

#define QUIET	(KVDB_KVS_MAX - 1u)

static void quiet_stores_are_not_flushed_for_the_memory_of_a_busy_one(void)
{
	struct kvdb_kvs *busy, *quiet[QUIET];
	struct kvdb_stats st;
	char name[24], val[100];
	uint64_t least;

	begin(KVDB_MANUAL);
	/* it is memory alone that has them flushed */
	atomic_store(&db->d_budget.b_log_bytes, 1ull << 40);
	busy = make("busy");
	for (unsigned i = 0; i < QUIET; i++) {
		snprintf(name, sizeof(name), "quiet%u", i);
		quiet[i] = make(name);
	}
	memset(val, 'v', sizeof(val));
	least = db->d_budget.b_mt_bytes;
	for (uint64_t i = 0; i * 200 < 8 * least; i++) {
		uint64_t key = i % 20000;

		T_EQ(kvdb_put(busy, &key, sizeof(key), val, sizeof(val)), 0);
		if (i % 50 == 0)
			T_EQ(kvdb_put(quiet[i / 50 % QUIET], &i, sizeof(i), "y", 1), 0);
		if (i % 64 == 0)
			kvdb_poll(db);
	}
	T_EQ(kvdb_stats(db, &st), 0);
	printf("# %llu flushes, of memtables of %llu KiB together\n",
	       (unsigned long long)st.flushes, (unsigned long long)least >> 10);
	T_OK(st.flushes > 6 && st.flushes < 2 * QUIET);
	end();
}

/* Flushes of devices since begin(). */
static uint64_t dev_flushes(void)
{
	return sim.s_fault.f_calls;
}

static void quiet_stores_are_flushed_together_for_the_log(void)
{
	struct kvdb_kvs *busy, *quiet[QUIET];
	struct kvdb_stats st = { 0 };
	char name[24], val[100];
	uint64_t was;

	begin(KVDB_MANUAL);
	sim.s_fault = (struct sim_fault){ .f_kind = FAULT_FLUSH, .f_at = UINT64_MAX };
	/* it is the log alone that has them flushed; three times: merges begin with four runs */
	atomic_store(&db->d_budget.b_log_bytes, 8u << 20);
	db->d_budget.b_mt_bytes = 1ull << 30;
	busy = make("busy");
	for (unsigned i = 0; i < QUIET; i++) {
		snprintf(name, sizeof(name), "quiet%u", i);
		quiet[i] = make(name);
	}
	memset(val, 'v', sizeof(val));
	was = dev_flushes();
	for (uint64_t i = 0; st.flushes < 3 * QUIET; i++) {
		uint64_t key = i % 20000;

		T_EQ(kvdb_put(busy, &key, sizeof(key), val, sizeof(val)), 0);
		if (i % 20 == 0)
			T_EQ(kvdb_put(quiet[i / 20 % QUIET], &i, sizeof(i), "y", 1), 0);
		if (i % 64 == 0) {
			kvdb_poll(db);
			T_EQ(kvdb_stats(db, &st), 0);
		}
	}
	printf("# %llu flushes of devices for %llu of memtables\n",
	       (unsigned long long)(dev_flushes() - was), (unsigned long long)st.flushes);
	T_OK(dev_flushes() - was < st.flushes / 2);
	end();
}

/* Of what a flush can free; *@n: in so many memtables. */
static uint64_t held_bytes(unsigned *n)
{
	uint64_t bytes = 0;

	*n = 0;
	for (struct kv_mt *mt = db->d_mem.mm_views->vw_mts; mt; mt = mt->m_next)
		if (kv_mt_first_epoch(mt)) {
			bytes += atomic_load(&mt->m_bytes);
			(*n)++;
		}
	return bytes;
}

static void quiet_stores_hold_little_memory(void)
{
	struct kvdb_kvs *quiet;
	char name[24];
	uint64_t bytes;
	unsigned n;

	begin(KVDB_MANUAL);
	for (unsigned i = 0; i < QUIET; i++) {
		snprintf(name, sizeof(name), "quiet%u", i);
		quiet = make(name);
		T_EQ(kvdb_put(quiet, &i, sizeof(i), "y", 1), 0);
	}
	bytes = held_bytes(&n);
	printf("# %llu KiB in %u memtables\n", (unsigned long long)bytes >> 10, n);
	T_EQ(n, QUIET);
	T_OK(bytes <= QUIET * (7u << 10));
	end();
}

static uint32_t frozen(struct kvdb_kvs *kvs)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	uint32_t n = tr->tr_nmt - 1;

	kv_tree_put(db, tr);
	return n;
}

/* It is a quiet store's turn, and the busy one has what writers wait for. */
static void the_largest_goes_first_while_memory_is_dear(void)
{
	struct kvdb_kvs *quiet, *busy;
	char val[100] = { 0 };

	for (unsigned is_dear = 0; is_dear < 2; is_dear++) {
		begin(KVDB_MANUAL);
		quiet = make("quiet");
		busy = make("busy");
		T_EQ(kvdb_put(quiet, "k", 1, "v", 1), 0);
		for (uint32_t i = 0; i < 10000; i++)
			T_EQ(kvdb_put(busy, &i, sizeof(i), val, sizeof(val)), 0);
		T_EQ(kv_switch_prepare(db, quiet), 0);
		T_EQ(kv_switch_prepare(db, busy), 0);
		T_EQ(kv_epoch_force(db), 0);
		T_EQ(kv_epoch_force(db), 0);
		db->d_budget.b_mt_bytes = is_dear ? 1u << 20 : 1u << 30;
		kv_pressure(db);
		atomic_store(&db->d_bg.bd_work->wk_flush_steps, 0);
		T_EQ(kv_flush_step(db), 1);
		T_EQ(frozen(busy), !is_dear);
		T_EQ(frozen(quiet), is_dear);
		end();
	}
}

#define HELD	40u

static unsigned walked(void)
{
	unsigned n = 0;

	for (struct kv_mt *mt = db->d_mem.mm_views->vw_mts; mt; mt = mt->m_next)
		n++;
	return n;
}

static void memtables_of_readers_are_not_walked(void)
{
	struct kvdb_txn *view[HELD];
	struct kvdb_kvs *s;
	uint64_t log;

	begin(KVDB_MANUAL);
	s = make("s");
	for (unsigned i = 0; i < HELD; i++) {
		T_EQ(kvdb_put(s, &i, sizeof(i), "v", 1), 0);
		T_EQ(kvdb_txn_begin(db, KVDB_TXN_RDONLY, &view[i]), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_OK(walked() <= 2);
	/* their log is held back all the same: what they may name is not forgotten */
	log = kv_mt_oldest_epoch(db);
	T_OK(log <= kv_mt_first_epoch(active_mt(s)) || !kv_mt_first_epoch(active_mt(s)));
	T_OK(log != UINT64_MAX);
	for (unsigned i = 0; i < HELD; i++)
		kvdb_txn_abort(view[i]);
	end();
}

#define MANY	2000u

/* One that is asked at every step, of what readers have: a look at each of them now and then. */
static void epochs_of_readers_are_summed(void)
{
	struct kv_views *vw;
	struct kvdb_txn **view = calloc(MANY, sizeof(*view));
	struct kv_mt_epochs ms;
	struct kvdb_kvs *s;

	begin(KVDB_MANUAL);
	vw = db->d_mem.mm_views;
	s = make("s");
	for (unsigned i = 0; i < MANY; i++) {
		T_EQ(kvdb_put(s, &i, sizeof(i), "v", 1), 0);
		T_EQ(kvdb_txn_begin(db, KVDB_TXN_RDONLY, &view[i]), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(vw->vw_nheld, MANY);
	for (unsigned round = 0; round < 2; round++) {
		vw->vw_looked = 0;
		for (unsigned i = 0; i < MANY; i++)
			kv_mt_epochs(db, &ms);
		T_OK(vw->vw_looked <= MANY);
		T_EQ(ms.ms_n, KV_MT_EPOCHS);
		for (unsigned i = round * MANY / 2; i < (round + 1) * MANY / 2; i++)
			kvdb_txn_abort(view[i]);
		kv_views_step(db);
		kv_retire_barrier();
	}
	T_EQ(vw->vw_nheld, 0);
	kv_mt_epochs(db, &ms);
	T_EQ(ms.ms_n, 0);
	end();
	free(view);
}

#define ROUND	12u	/* stores that are flushed together */

/* Every prefix of the container's records: what a horizon covers is in runs. */
static void look_at_prefixes(const uint32_t *id, const uint64_t *bound, uint32_t waits,
			     uint64_t first)
{
	struct kv_mdc_state *st = calloc(1, sizeof(*st));
	static uint8_t rec[1 << 16];
	uint64_t pos = 0;
	unsigned n = 0;
	size_t len;

	T_OK(st);
	while (mpool_mdc_read(db->d_mdc->m_log, &pos, rec, sizeof(rec), &len) == 0 && len) {
		T_EQ(kv_mdc_fold(st, rec, len), 0);
		n++;
		for (unsigned i = 0; i < ROUND; i++) {
			struct kv_mdc_kvs *k = kv_mdc_state_kvs(st, id[i]);

			T_OK(!k || k->mk_horizon < bound[i] || k->mk_nrun == 1);
		}
		T_OK(!kv_mdc_state_kvs(st, waits) ||
		     kv_mdc_state_kvs(st, waits)->mk_horizon < first);
	}
	T_OK(n > 2 * ROUND);
	for (unsigned i = 0; i < ROUND; i++)
		T_EQ(kv_mdc_state_kvs(st, id[i])->mk_horizon, bound[i]);
	kv_mdc_state_free(st);
	free(st);
}

static void freeze(struct kvdb_kvs *const *s, unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++) {
		T_EQ(kvdb_put(s[i], "k", 1, "v", 1), 0);
		T_EQ(kv_switch_prepare(db, s[i]), 0);
	}
	T_EQ(kv_epoch_force(db), 0);
}

static void each_edit_of_a_round_speaks_for_its_own_store(void)
{
	struct kvdb_kvs *s[ROUND], *waits, *idle;
	uint32_t id[ROUND];
	uint64_t bound[ROUND];
	struct kvdb_stats st;
	char name[24];

	begin(KVDB_MANUAL);
	for (unsigned i = 0; i < ROUND; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		s[i] = make(name);
	}
	waits = make("waits");
	idle = make("idle");
	/* two boundaries, and a store whose record lies between them and stays in memory */
	freeze(s, 0, ROUND / 2);
	T_EQ(kvdb_put(waits, "k", 1, "v", 1), 0);
	freeze(s, ROUND / 2, ROUND);
	for (unsigned i = 0; i < ROUND; i++) {
		struct kv_tree *tr = kv_tree_get(s[i]);

		id[i] = s[i]->k_id;
		bound[i] = kv_mt_boundary(tr->tr_mt[tr->tr_nmt - 1]);
		kv_tree_put(db, tr);
	}
	T_EQ(kv_flush_step(db), 1);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.flushes, ROUND);
	T_EQ(st.flush_rounds, 1);
	T_EQ(atomic_load(&idle->k_horizon), bound[ROUND - 1]);
	look_at_prefixes(id, bound, waits->k_id, bound[0] + 1);
	end();
}

/* ---- a drop beside a writer that sleeps -------------------------------------------- */

static __thread bool is_writer;
static int drop_rc;

static void sleep_and_drop(void *arg, uint64_t until)
{
	(void)arg;
	(void)until;
	if (!is_writer)
		return;
	is_writer = false;
	drop_rc = kvdb_kvs_drop(db, "s");
}

static uint64_t real_now(void *arg)
{
	struct timespec ts;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int inc(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	(void)arg;
	(void)old;
	(void)olen;
	*val = "x";
	*vlen = 1;
	return KVDB_UPDATE_PUT;
}

static int write_how(struct kvdb_kvs *s, unsigned how)
{
	static char large[300000];

	switch (how) {
	case 0:
		return kvdb_put(s, "k", 1, "v", 1);
	case 1:
		return kvdb_del(s, "k", 1);
	case 2:
		return kvdb_range_del(s, "a", 1, "z", 1);
	case 3:
		return kvdb_put(s, "k", 1, large, sizeof(large));
	default:
		return kvdb_update(s, "k", 1, inc, NULL);
	}
}

static void a_store_is_dropped_beside_a_writer_that_sleeps(void)
{
	static const struct kvdb_clock clock = { real_now, sleep_and_drop, NULL, NULL };
	uint32_t part[KVDB_DELAYS] = { [KVDB_DELAY_RUNS] = KV_DEBT_MAX };
	struct kvdb_kvs *s;
	char val[4];
	size_t len;
	int rc = 0;

	for (unsigned how = 0; how < 5; how++) {
		begin(0);
		T_EQ(kvdb_close(db), 0);
		opts.clock = &clock;
		T_EQ(kvdb_open(POOL, &opts, &db), 0);
		s = make("s");
		drop_rc = 1;
		/* threads of the database measure the debt as well */
		for (is_writer = true; is_writer;) {
			kv_toll_set(&s->k_toll, part);
			atomic_store(&s->k_toll.to_next, kv_now(db) + 10000000u);
			rc = write_how(s, how);
		}
		T_EQ(drop_rc, 0);
		T_EQ(rc, -ENOENT);
		T_EQ(kvdb_get(s, "k", 1, val, sizeof(val), &len), -ENOENT);
		T_EQ(write_how(s, how), -ENOENT);
		end();
	}
}

int main(void)
{
	T_RUN(a_debt_that_no_worker_can_pay_is_not_charged);
	T_RUN(a_transaction_pays_for_the_dearest_of_its_stores);
	T_RUN(quiet_stores_are_not_flushed_for_the_memory_of_a_busy_one);
	T_RUN(quiet_stores_are_flushed_together_for_the_log);
	T_RUN(quiet_stores_hold_little_memory);
	T_RUN(the_largest_goes_first_while_memory_is_dear);
	T_RUN(memtables_of_readers_are_not_walked);
	T_RUN(epochs_of_readers_are_summed);
	T_RUN(each_edit_of_a_round_speaks_for_its_own_store);
	T_RUN(a_store_is_dropped_beside_a_writer_that_sleeps);
	return t_done();
}
