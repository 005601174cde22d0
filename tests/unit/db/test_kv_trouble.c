/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A failure has the scope of what failed, an end and a notice (FS1 to FS3): reads and writes that
 * a device fails for a while, a page that is damaged for good; what else there is to merge, flush
 * and move goes on, what failed is told of, left alone for a while and tried again. By a clock
 * that the test moves.
 */
#include "harness.h"

#include <errno.h>
#include <stdlib.h>

#include "kv_clock.h"
#include "kv_sim.h"
#include "run/run.h"
#include "background/work.h"
#include "tree/tree.h"
#include "compact/merge.h"

#define KEYS	200u
#define S_NS	1000000000ull

static struct kvdb *db;
static struct kvdb_kvs *cold, *hot;

static void open_db(void)
{
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_kvs_open(db, "cold", &cold), 0);
	T_EQ(kvdb_kvs_open(db, "hot", &hot), 0);
}

static void begin(void)
{
	kv_sim(1);
	opts.clock = &test_clock;
	T_EQ(kvdb_create(POOL, &opts), 0);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_kvs_create(db, "cold", NULL), 0);
	T_EQ(kvdb_kvs_create(db, "hot", NULL), 0);
	T_EQ(kvdb_close(db), 0);
	open_db();
}

static void end(void)
{
	T_EQ(kvdb_close(db), 0);
	sim_fini(&sim);
}

static void fill(struct kvdb_kvs *kvs, unsigned seed)
{
	char key[16], val[100];

	for (unsigned i = 0; i < KEYS; i++) {
		snprintf(key, sizeof(key), "key%05u", i);
		snprintf(val, sizeof(val), "MARK%05u.%u", i, seed);
		memset(val + 20, '.', sizeof(val) - 20);
		T_EQ(kvdb_put(kvs, key, 8, val, sizeof(val)), 0);
	}
}

/* So many runs more, without a merge. */
static void runs(struct kvdb_kvs *kvs, unsigned n)
{
	while (n--) {
		fill(kvs, n);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
}

static unsigned runs_of(struct kvdb_kvs *kvs)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	unsigned n = tr->tr_nrun;

	kv_tree_put(db, tr);
	return n;
}

/* What is there is read from the device again. */
static void forget_pages(void)
{
	T_EQ(kvdb_close(db), 0);
	open_db();
}

static void poll_all(void)
{
	while (kvdb_poll(db) > 0)
		;
}

static struct kvdb_info told(void)
{
	struct kvdb_info in;
	struct kvdb_stats st;

	T_EQ(kvdb_info(db, &in), 0);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.stuck, in.stuck);
	T_EQ(st.stuck_ns, in.stuck_ns);
	return in;
}

static void fail(enum sim_fault_kind kind)
{
	sim.s_fault = (struct sim_fault){ .f_kind = kind, .f_at = 1, .f_is_sticky = true };
}

static void heal(void)
{
	sim.s_fault.f_kind = FAULT_NONE;
}

static void reads_that_fail_for_a_while_stop_no_merge_for_good(void)
{
	struct kvdb_info in;
	uint64_t calls;

	begin();
	runs(cold, 10);
	forget_pages();
	T_OK(runs_of(cold) >= 10);
	fail(FAULT_READ);
	for (unsigned i = 0; i < 10; i++)
		poll_all();
	T_OK(sim.s_fault.f_fired);
	T_OK(runs_of(cold) >= 10);
	/* the notice: what, since when, why */
	now_ns += S_NS / 20;
	in = told();
	T_OK(in.stuck && in.stuck_ns >= S_NS / 20 && !in.fault[0] && !in.is_rdonly);
	T_OK(strstr(in.stuck_text, "of store cold") && strstr(in.stuck_text, "read failed"));
	/* the pause: until it is over the device is left alone, too */
	calls = sim.s_fault.f_calls;
	for (unsigned i = 0; i < 10; i++)
		poll_all();
	T_EQ(sim.s_fault.f_calls, calls);
	/* the end; meanwhile pauses have grown, to a minute at most */
	for (unsigned i = 0; i < 20; i++) {
		now_ns += 61 * S_NS;
		poll_all();
	}
	T_OK(sim.s_fault.f_calls > calls && runs_of(cold) >= 10);
	heal();
	now_ns += 61 * S_NS;
	poll_all();
	T_OK(runs_of(cold) < 9);
	T_EQ(told().stuck, 0);
	end();
}

/* Changes a byte of the key page that holds a key, wherever it lies. */
static void damage(const char *mark)
{
	struct sim_dev *d = &sim.s_dev[0];
	size_t len = strlen(mark);
	unsigned n = 0;

	for (uint64_t off = 0; off + len < d->d_size; off++)
		if (!memcmp(d->d_mem + off, mark, len)) {
			sim_poke(&sim, 0, off, "X", 1);
			n++;
		}
	T_OK(n);
}

static void a_damaged_run_keeps_nothing_else_from_its_merges(void)
{
	struct kvdb_info in;
	struct kvdb_stats st;
	uint64_t moved;
	char val[100], big[4096];
	size_t len;

	begin();
	runs(cold, 1);
	T_EQ(kvdb_close(db), 0);
	damage("MARK00150.0");
	open_db();
	T_EQ(kvdb_get(cold, "key00150", 8, val, sizeof(val), &len), -EUCLEAN);
	runs(cold, 7);
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
	in = told();
	T_OK(in.stuck == 1 && strstr(in.stuck_text, "of store cold"));
	/* its newer neighbours, and other stores */
	runs(cold, 12);
	runs(hot, 12);
	poll_all();
	T_OK(runs_of(cold) < 12 && runs_of(hot) < 9);
	T_EQ(kvdb_get(cold, "key00150", 8, val, sizeof(val), &len), 0);
	/* a caller that asks for all is told, and what can be done is done */
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), -EUCLEAN);
	T_EQ(runs_of(hot), 1);
	/* space: segments of other stores are emptied */
	T_EQ(kvdb_stats(db, &st), 0);
	moved = st.relocations;
	for (unsigned n = 0; n < 40; n++) {
		for (unsigned i = 0; i < 100; i++) {
			unsigned k = (n * 100 + i) * 7919u % 1009u;

			sim_garbage(big, sizeof(big), n * 100 + i);
			T_EQ(kvdb_put(hot, &k, sizeof(k), big, sizeof(big)), 0);
		}
		now_ns += S_NS;
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	}
	T_EQ(kvdb_stats(db, &st), 0);
	T_OK(st.relocations > moved);
	T_OK(told().stuck);
	end();
}

static void a_block_that_cannot_be_written_is_written_elsewhere(void)
{
	struct kvdb_info in;
	unsigned n = 0;

	begin();
	fill(cold, 1);
	T_EQ(kvdb_sync(db), 0);
	fail(FAULT_WRITE);
	/* the waiter is told, the database goes on */
	for (; n < 5; n++) {
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), -EIO);
		T_OK(strstr(kvdb_error_detail()->text, "cold"));
	}
	in = told();
	T_OK(!in.fault[0] && in.stuck == 1 && strstr(in.stuck_text, "flushes of store cold"));
	T_EQ(runs_of(cold), 0);
	heal();
	now_ns += 61 * S_NS;
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(runs_of(cold), 1);
	T_EQ(told().stuck, 0);
	/* the same of a merge */
	runs(cold, 9);
	fail(FAULT_WRITE);
	for (unsigned i = 0; i < 5; i++)
		T_EQ(kv_merge_step(db, cold), 0);
	in = told();
	T_OK(!in.fault[0] && in.stuck == 1 && strstr(in.stuck_text, "merges of store cold"));
	T_OK(runs_of(cold) > 8);
	heal();
	now_ns += 61 * S_NS;
	poll_all();
	T_OK(runs_of(cold) < 8);
	T_EQ(told().stuck, 0);
	end();
}

/* P5: what fails of the database's own records is no failure of a part. */
static void a_flush_of_a_device_that_fails_in_a_merge_stops_all(void)
{
	begin();
	runs(cold, 10);
	fail(FAULT_FLUSH);
	T_EQ(kv_merge_step(db, cold), -EIO);
	T_OK(sim.s_fault.f_fired);
	heal();
	T_EQ(kvdb_put(hot, "k", 1, "v", 1), 0);
	T_OK(kvdb_sync(db) < 0);
	kvdb_close(db);
	sim_fini(&sim);
}

/* One read: the estimate of what lives may not be what ends merges. */
static void one_read_that_fails_stops_nothing(void)
{
	begin();
	for (uint64_t at = 1; at < 30; at++) {
		runs(cold, 9);
		forget_pages();
		sim.s_fault = (struct sim_fault){ .f_kind = FAULT_READ, .f_at = at };
		now_ns += 6 * S_NS;
		poll_all();
		heal();
		now_ns += S_NS;
		poll_all();
		T_OK(runs_of(cold) < 9);
	}
	T_EQ(told().stuck, 0);
	end();
}

int main(void)
{
	T_RUN(reads_that_fail_for_a_while_stop_no_merge_for_good);
	T_RUN(a_damaged_run_keeps_nothing_else_from_its_merges);
	T_RUN(a_block_that_cannot_be_written_is_written_elsewhere);
	T_RUN(a_flush_of_a_device_that_fails_in_a_merge_stops_all);
	T_RUN(one_read_that_fails_stops_nothing);
	return t_done();
}
