/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What members are caught at is counted, for the member that did it: reads that
 * lie once, damage on the medium, copies that are made anew.
 */
#include "harness.h"

#include <errno.h>
#include <stdlib.h>

#include <kvdb/kvdb.h>

#include "sim.h"

#define POOL	"./sim"
#define KEYS	40u
#define LARGE	(100u << 10)	/* past the page pool */
#define DEVS	2u

static struct sim sim;
static const struct mpool_vdev_ops *sound;
static struct mpool_vdev_ops ops;
static struct mpool_dev_provider prov;
static struct mpool_open_opts oo;
static struct kvdb_opts opts;
static unsigned reads, lie_at;	/* the read that lies, counted from 1 */

static int lying_readv(void *dev, uint64_t off, const struct iovec *iov, unsigned n,
		       uint64_t *ready_ns)
{
	int rc = sound->readv(dev, off, iov, n, ready_ns);

	if (++reads != lie_at)
		return rc;
	for (unsigned i = 0; i < n; i++)
		for (size_t at = 8; at < iov[i].iov_len; at += 64)
			((uint8_t *)iov[i].iov_base)[at] ^= 1;
	return rc;
}

static int lying_open(void *ctx, const char *path, int is_create, int is_rdonly, uint64_t size,
		      struct mpool_vdev *out)
{
	int rc = sim.s_prov.open(ctx, path, is_create, is_rdonly, size, out);

	if (rc)
		return rc;
	sound = out->ops;
	ops = *sound;
	ops.readv = lying_readv;
	out->ops = &ops;
	return 0;
}

static size_t val_of(unsigned i, uint8_t *val)
{
	size_t len = i % 10 ? 1000 : LARGE;

	sim_garbage(val, len, i + 1);
	return len;
}

static void make_db(void)
{
	struct mpool_dev_spec dev[DEVS] = {
		{ .path = "capacity", .mclass = MPOOL_CAPACITY, .size = 64u << 20 },
		{ .path = "staging", .mclass = MPOOL_STAGING, .size = 64u << 20 },
	};
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	static uint8_t val[LARGE];
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	sim_init(&sim);
	prov = sim.s_prov;
	prov.open = lying_open;
	lie_at = 0;
	co.name = "health";
	co.devs = dev;
	co.ndevs = DEVS;
	co.provider = &prov;
	T_EQ(mpool_create(POOL, &co), 0);
	oo = (struct mpool_open_opts)MPOOL_OPEN_OPTS_INIT;
	oo.io = "sync";
	oo.provider = &prov;
	opts = (struct kvdb_opts)KVDB_OPTS_INIT;
	opts.flags = KVDB_MANUAL;
	opts.cache_bytes = 64u << 20;
	opts.pool = &oo;
	T_EQ(kvdb_create(POOL, &opts), 0);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (unsigned i = 0; i < KEYS; i++)
		T_EQ(kvdb_put(kvs, &i, sizeof(i), val, val_of(i, val)), 0);
	T_EQ(kvdb_close(db), 0);
}

/* Gets all keys; how many are damaged. */
static unsigned get_all(struct kvdb *db)
{
	static uint8_t val[LARGE], got[LARGE];
	struct kvdb_kvs *kvs;
	unsigned damaged = 0;
	size_t len, want;
	int rc;

	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		rc = kvdb_get(kvs, &i, sizeof(i), got, sizeof(got), &len);
		if (rc == -EUCLEAN) {
			damaged++;
			continue;
		}
		T_EQ(rc, 0);
		want = val_of(i, val);
		T_EQ(len, want);
		T_MEMEQ(got, val, want);
	}
	return damaged;
}

/* The members together. */
static struct mpool_dev_info all_members(struct kvdb *db)
{
	struct mpool_dev_info sum = { 0 }, d;
	unsigned i;

	for (i = 0; !kvdb_dev_info(db, i, &d); i++) {
		T_EQ(d.has_health, 1);
		sum.csum_errors += d.csum_errors;
		sum.rereads += d.rereads;
		sum.repairs += d.repairs;
	}
	T_EQ(i, DEVS);
	return sum;
}

static void a_read_that_lies_once_is_counted_and_not_believed(void)
{
	unsigned of_database = 0, of_log = 0, of_superblock = 0;
	struct mpool_dev_info sum;
	struct kvdb_stats st;
	bool more = true;
	struct kvdb *db;
	int rc;

	make_db();
	opts.flags |= KVDB_RDONLY;	/* each round finds the same bytes */
	for (lie_at = 0; more; lie_at++) {
		reads = 0;
		rc = kvdb_open(POOL, &opts, &db);
		if (rc) {	/* what an open reads once only: said, and gone the next time */
			T_EQ(rc, -EUCLEAN);
			continue;
		}
		T_EQ(get_all(db), 0);
		more = reads > lie_at;
		T_EQ(kvdb_stats(db, &st), 0);
		sum = all_members(db);
		T_EQ(st.csum_errors, st.rereads);
		T_OK(sum.rereads >= st.rereads && sum.csum_errors >= sum.rereads);
		T_EQ(sum.repairs, 0);
		T_OK(lie_at || !sum.csum_errors);
		of_database += st.rereads != 0;
		of_log += sum.rereads > st.rereads;
		of_superblock += sum.csum_errors > sum.rereads;
		T_EQ(kvdb_close(db), 0);
	}
	/* a page of keys, values by pages, and large ones */
	T_OK(of_database >= 1 + KEYS / 10);
	T_OK(of_log > 0);
	T_EQ(of_superblock, 3 * DEVS);
	sim_fini(&sim);
}

/* Where the first bytes of the value of key @i lie on the member @dev; 0: not there. */
static uint64_t find_value(unsigned i, unsigned dev)
{
	static uint8_t val[LARGE];
	const uint8_t *p;

	val_of(i, val);
	p = memmem(sim.s_dev[dev].d_mem, sim.s_dev[dev].d_size, val, 64);
	return p ? (uint64_t)(p - sim.s_dev[dev].d_mem) : 0;
}

static void damage_of_the_medium_is_counted_for_its_member(void)
{
	struct mpool_dev_info d;
	struct kvdb_stats st;
	struct kvdb *db;
	unsigned dev;
	uint64_t off;

	for (unsigned i = 0; i < 2; i++) {	/* a large value, a small one */
		make_db();
		opts.flags |= KVDB_RDONLY;
		for (dev = 0; dev < DEVS && !(off = find_value(i, dev)); dev++)
			;
		T_OK(dev < DEVS);
		sim_poke(&sim, dev, off + 30, "?", 1);
		T_EQ(kvdb_open(POOL, &opts, &db), 0);
		T_EQ(get_all(db), 1);
		T_EQ(kvdb_stats(db, &st), 0);
		T_EQ(st.csum_errors, 1);
		T_EQ(st.rereads, 0);
		for (unsigned k = 0; k < DEVS; k++) {
			T_EQ(kvdb_dev_info(db, k, &d), 0);
			T_EQ(d.csum_errors, k == dev);
			T_EQ(d.rereads, 0);
		}
		T_EQ(kvdb_dev_info(db, DEVS, &d), -ENOENT);
		T_EQ(kvdb_close(db), 0);
		sim_fini(&sim);
	}
}

static void a_repaired_superblock_is_counted_once(void)
{
	uint8_t bad[SIM_PAGE];
	struct mpool_dev_info d;
	struct mpool *mp;

	make_db();
	sim_garbage(bad, sizeof(bad), 1);
	sim_poke(&sim, 0, sim.s_dev[0].d_size - SIM_PAGE, bad, sizeof(bad));
	for (unsigned i = 0; i < 2; i++) {
		T_EQ(mpool_open(POOL, &oo, &mp), 0);
		for (unsigned k = 0; k < DEVS; k++) {
			T_EQ(mpool_dev_info(mp, k, &d), 0);
			T_EQ(d.csum_errors, !i && !k);
			T_EQ(d.repairs, !i && !k);
			T_EQ(d.rereads, 0);
		}
		T_EQ(mpool_close(mp), 0);
	}
	sim_fini(&sim);
}

int main(void)
{
	T_RUN(a_read_that_lies_once_is_counted_and_not_believed);
	T_RUN(damage_of_the_medium_is_counted_for_its_member);
	T_RUN(a_repaired_superblock_is_counted_once);
	return t_done();
}
