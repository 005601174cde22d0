/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Concurrent transactions, held against snapshot isolation by the dependency
 * graph of hist.c. First the check itself is checked: by histories made by
 * hand, and by those of a store in memory with a fault.
 *
 *   SEED=n repeats choices, BATCH=n only one history of the database; TEST_SHORT
 *   is a tenth, TEST_LONG 20 million transactions
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"
#include "hist_run.h"

struct planted {
	const char *text;
	unsigned bits;
};

static const struct planted bad[] = {
	/* cycles of writes */
	{ "wx<0 wy<2 c | wx<1 wy<0 c", HB_G0 },
	{ "wx<0 wz<3 c | wx<1 wy<0 c | wy<2 wz<0 c", HB_G0 },
	/* what was never committed, or not last */
	{ "wx a | rx1 c", HB_G1A },
	{ "rx0 wx a | rx1 wx c", HB_G1A },
	{ "wx wy a | rx1 ry1 c", HB_G1A },
	{ "wx c | rx1 wx wx a | rx2.1 c", HB_G1A },
	{ "wx wx c | rx1.1 c", HB_G1B },
	{ "wx wx c | rx1.1 wx c", HB_G1B },
	{ "wx wy wx c | rx1.1 ry1 c", HB_G1B },
	{ "rx7 c", HB_PHANTOM },
	{ "wy c | rx1 c", HB_PHANTOM },
	/* information flows in a circle */
	{ "wx ry2 c | wy rx1 c", HB_G1C },
	{ "wx<0 ry2 c | wx<1 wy c", HB_G1C },
	{ "wx rz3 c | rx1 wy c | ry2 wz c", HB_G1C },
	/* lost updates */
	{ "rx0 wx c | rx0 wx c", HB_LOST },
	{ "wx c | rx1 wx c | rx1 wx c", HB_LOST },
	{ "rx0 wx c | rx0 wx c | rx0 wx c", HB_LOST },
	{ "rx0 ry0 wx c | rx0 ry0 wy c | rx0 wx c", HB_LOST | HB_SKEW },
	{ "rx0 wx<2 c | wx c", HB_SINGLE },
	/* parts of a transaction */
	{ "wx wy c | rx1 ry0 c", HB_FRACTURED | HB_SINGLE },
	{ "rx0 ry2 c | wx wy c", HB_FRACTURED | HB_SINGLE },
	{ "wx wy c | rx1 ry1 wx wy c | rx2 ry1 c", HB_FRACTURED | HB_SINGLE },
	{ "wx wy wz c | rx1 ry1 rz0 c", HB_FRACTURED | HB_SINGLE },
	/* more than one moment */
	{ "rx0 ry3 c | wx c | rx2 wy c", HB_SINGLE },
	{ "rx0 rz3 c | wx wy c | wy<2 wz c", HB_SINGLE },
	{ "rx0 wy<2 c | wx wy c", HB_SINGLE },
	{ "rx0 rx2 c | wx c", HB_INTERNAL | HB_SINGLE },
	{ "wx c | wy c | rx1 ry0 c | rx0 ry2 c", HB_NONADJACENT },
	{ "wx c | wy c | rx1 wx ry0 c | ry2 wy rx0 c", HB_NONADJACENT },
	{ "wx c | wy c | wz c | rx1 ry0 c | ry2 rz0 c | rz3 rx0 c", HB_NONADJACENT },
	/* itself */
	{ "wx rx0 c", HB_INTERNAL },
	{ "wx wx rx1.1 c", HB_INTERNAL },
	/* the past */
	{ "[1,2] wx c | [5,6] rx0 c", HB_STALE },
	{ "[1,9] wx c | [2,3] rx1 wx c | [5,6] rx0 c", HB_STALE },
};

static const struct planted good[] = {
	{ "rx0 wx c | rx1 wx c | rx2 wx wx rx3.2 c", 0 },
	{ "rx0 wx c | rx0 wx a", 0 },
	{ "wx wy c | rx0 ry0 c | rx1 ry1 c", 0 },
	{ "[1,9] wx c | [5,6] rx0 c", 0 },
	{ "wx rx1.1 wx rx1.2 c", 0 },
	{ "rx0 ry0 wx c | rx0 ry0 wy c", HB_SKEW },
	{ "rx0 ry0 wx c | ry0 rz0 wy c | rz0 rx0 wz c", HB_SKEW },
	/* a reader makes it visible that two were not serial */
	{ "rx0 ry0 wx c | ry0 wy c | rx0 ry2 c", HB_SKEW },
};

static void planted_check(const struct planted *p)
{
	char want[300], got[300];
	struct hist_verdict v;
	struct hist h;

	T_OK(hist_parse(&h, p->text));
	hist_check(&h, &v);
	hist_fini(&h);
	if (v.hv_bits != p->bits)
		T_FAIL("\"%s\": found %s, wanted %s", p->text,
		       hist_names(v.hv_bits, got, sizeof(got)),
		       hist_names(p->bits, want, sizeof(want)));
}

static void planted_bad_histories_are_all_found(void)
{
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		planted_check(&bad[i]);
	printf("# %zu planted histories\n", i);
	T_OK(i >= 30);
}

static void good_histories_pass(void)
{
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		planted_check(&good[i]);
}

/* An anomaly that needs three transactions in one order is not in every history of a fault. */
static void generated(enum hist_fault fault, unsigned want, unsigned every)
{
	struct hist_verdict v;
	unsigned bits = 0, i;
	char got[300];
	struct hist h;

	for (i = 0; !i || (i < 6 && (bits & want) != want); i++) {
		hist_generate(&h, t_seed() + i, 20000, 16, fault, every);
		hist_check(&h, &v);
		printf("# %s: %s; %" PRIu64 " write skews\n", hist_fault_name[fault],
		       hist_names(v.hv_bits, got, sizeof(got)), v.hv_skews);
		hist_fini(&h);
		bits |= v.hv_bits;
	}
	hist_names(bits, got, sizeof(got));
	if ((bits & want) != want)
		T_FAIL("%s: found only %s", hist_fault_name[fault], got);
	if (!(want & ~(unsigned)HB_SKEW) && bits != want)
		T_FAIL("%s: found %s: %s", hist_fault_name[fault], got, v.hv_why);
}

static void every_fault_of_a_store_is_found(void)
{
	static const unsigned want[HF_FAULTS] = {
		[HF_NONE] = HB_SKEW,
		[HF_SERIAL] = 0,
		[HF_NO_CONFLICT] = HB_LOST,
		[HF_READ_LATEST] = HB_SINGLE | HB_FRACTURED,
		[HF_READ_DIRTY] = HB_G1A,
		[HF_ABORT_STAYS] = HB_G1A,
		[HF_TORN_COMMIT] = HB_FRACTURED,
		[HF_TWO_VIEWS] = HB_SINGLE,
		[HF_OLD_VIEW] = HB_STALE,
		[HF_PLAIN_PUT] = HB_LOST,
		[HF_OWN_UNSEEN] = HB_INTERNAL,
	};
	unsigned f;

	for (f = 0; f < HF_FAULTS; f++)
		generated((enum hist_fault)f, want[f], 10);
}

/* ---- a database -------------------------------------------------------------- */

static char path[400];

static void pool_make(void)
{
	struct mpool_dev_spec dev[2] = {
		{ .mclass = MPOOL_CAPACITY, .size = 1024ull << 20 },
		{ .mclass = MPOOL_STAGING, .size = 256ull << 20 },
	};
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(path, sizeof(path), "%s/history.%d", tmp && *tmp ? tmp : "/tmp", (int)getpid());
	co.devs = dev;
	co.ndevs = 2;
	T_EQ(mpool_create(path, &co), 0);
	T_EQ(kvdb_create(path, NULL), 0);
}

/*
 * Two transactions that read both keys and write one each overlap: both may
 * commit, and the check must say so. A checker that sees no skew sees nothing.
 */
static void write_skew_is_seen(void)
{
	struct hist_verdict v;
	struct kvdb_kvs *kvs;
	struct kvdb_txn *txn[2];
	struct kvdb *db;
	struct hist h;
	char key[2][16], buf[16];
	unsigned i, t, k;
	size_t len;

	pool_make();
	T_EQ(kvdb_open(path, NULL, &db), 0);
	T_EQ(kvdb_kvs_create(db, "skew", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "skew", &kvs), 0);
	hist_init(&h, 400);
	for (i = 0; i < 200; i++) {
		for (k = 0; k < 2; k++)
			snprintf(key[k], sizeof(key[k]), "%u/%c", i, 'a' + (char)k);
		for (t = 0; t < 2; t++)
			T_EQ(kvdb_txn_begin(db, 0, &txn[t]), 0);
		for (t = 0; t < 2; t++) {
			for (k = 0; k < 2; k++)
				T_EQ(kvdb_txn_get(txn[t], kvs, key[k], strlen(key[k]), buf,
						  sizeof(buf), &len), -ENOENT);
			T_EQ(kvdb_txn_put(txn[t], kvs, key[t], strlen(key[t]), "taken", 5), 0);
		}
		for (t = 0; t < 2; t++) {
			T_EQ(kvdb_txn_commit(txn[t], 0, NULL), 0);
			hist_begin(&h, 0);
			hist_read(&h, 2 * i, 0);
			hist_read(&h, 2 * i + 1, 0);
			hist_write(&h, 2 * i + t, 0);
			hist_end(&h, HIST_COMMITTED, 0);
		}
	}
	hist_check(&h, &v);
	hist_fini(&h);
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(path, NULL), 0);
	T_EQ(v.hv_bits, HB_SKEW);
	T_EQ(v.hv_skews, 200);
}

static const struct hr_conf shape[] = {
	{ .hc_logs = 1, .hc_threads = 4, .hc_open = 4, .hc_keys = 40, .hc_plain = 4 },
	{ .hc_logs = 4, .hc_threads = 8, .hc_open = 2, .hc_keys = 200, .hc_plain = 2 },
	{ .hc_logs = 16, .hc_threads = 2, .hc_open = 6, .hc_keys = 16, .hc_plain = 6,
	  .hc_interval_ms = 5 },
	{ .hc_logs = 2, .hc_threads = 8, .hc_open = 3, .hc_keys = 60, .hc_plain = 0,
	  .hc_interval_ms = KVDB_INTERVAL_NONE },
};

static void one_history(unsigned batch, uint32_t txns, struct hr_counts *n, uint64_t *skews)
{
	struct hr_conf c = shape[batch % (sizeof(shape) / sizeof(shape[0]))];
	struct hist_verdict v;
	char why[500] = "", names[300];
	struct hist h;
	int rc;

	c.hc_seed = t_seed() + batch;
	c.hc_pool = path;
	c.hc_log_bytes = 2ull << 20;
	c.hc_txns = txns;
	c.hc_batch = batch;
	rc = hr_run(&c, &h, n, why);
	if (rc)
		T_FAIL("history %u: %s", batch, why);
	hist_check(&h, &v);
	hist_fini(&h);
	*skews += v.hv_skews;
	if (v.hv_bits & ~(unsigned)HB_SKEW)
		T_FAIL("history %u: %s: %s", batch, hist_names(v.hv_bits, names, sizeof(names)),
		       v.hv_why);
}

static void transactions_of_a_database_have_no_anomaly(void)
{
	uint32_t all = getenv("TEST_SHORT") ? 20000 : getenv("TEST_LONG") ? 20000000 : 200000;
	uint32_t each = all < 50000 ? all / 4 : 50000;
	struct hr_counts n = { 0 };
	const char *only = getenv("BATCH");
	uint64_t skews = 0;
	unsigned i, batches = 0;

	pool_make();
	for (i = 0; i < all / each; i++) {
		if (only ? strtoul(only, NULL, 0) != i : !t_is_mine(i))
			continue;
		one_history(i, each, &n, &skews);
		batches++;
	}
	T_EQ(mpool_destroy(path, NULL), 0);
	printf("# %" PRIu64 " committed, %" PRIu64 " aborted, %" PRIu64 " conflicts, %" PRIu64
	       " plain puts, %" PRIu64 " reads, %" PRIu64 " writes, %" PRIu64 " cursors, %" PRIu64
	       " ranges; %" PRIu64 " write skews\n", n.hn_committed, n.hn_aborted,
	       n.hn_conflicts, n.hn_plain, n.hn_reads, n.hn_writes, n.hn_cursors, n.hn_ranges,
	       skews);
	t_figure("history checker", "%" PRIu64 " transactions, %" PRIu64 " write skews, no other "
		 "anomaly", n.hn_committed + n.hn_aborted, skews);
	T_OK(n.hn_committed + n.hn_aborted >= (uint64_t)each * batches);
	/* overlap there was */
	T_OK(n.hn_conflicts > 0 && skews > 0 && n.hn_ranges > 0);
}

int main(void)
{
	t_seed();
	T_RUN(planted_bad_histories_are_all_found);
	T_RUN(good_histories_pass);
	T_RUN(every_fault_of_a_store_is_found);
	T_RUN(write_skew_is_seen);
	T_RUN(transactions_of_a_database_have_no_anomaly);
	return t_done();
}
