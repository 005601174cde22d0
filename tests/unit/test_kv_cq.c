/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Completion queues whose reads the pool refuses: each operation completes
 * once, with its own result.
 */
#include <errno.h>
#include <unistd.h>

#include "harness.h"
#include "ioq.h"
#include "kv.h"

#define KEYS	4000u
#define VAL	1000u

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static struct kvdb_cq *cq;

/* ---- a pool that refuses reads -------------------------------------------------------- */

static const struct mpl_backend_ops *pool_ops;
static const struct mpl_ioq_back *pool_back;
static __thread unsigned refusals;	/* of this thread, to come */

static int refuse(struct mpool_ioq *q, const struct mpool_io *io, uint64_t bytes)
{
	if (!refusals)
		return pool_back->admit(q, io, bytes);
	refusals--;
	return -EIO;
}

static int open_queue(struct mpool *mp, unsigned depth, struct mpool_ioq **out)
{
	static struct mpl_ioq_back back;
	int err = pool_ops->ioq_open(mp, depth, out);

	if (err)
		return err;
	pool_back = (*out)->q_back;
	back = *pool_back;
	back.admit = refuse;
	(*out)->q_back = &back;
	return 0;
}

/* A queue of this depth to keys 0 .. KEYS - 1, of which nothing is in memory. */
static void open_cold(unsigned depth)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 64u << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");
	static struct mpl_backend_ops ops;
	uint8_t val[VAL];

	snprintf(dir, sizeof(dir), "%s/kv_cq.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, &o), 0);
	o.flags = KVDB_MANUAL;
	o.logs = 1;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (uint32_t i = 0; i < KEYS; i++) {
		uint32_t key = __builtin_bswap32(i);

		memset(val, (int)i, sizeof(val));
		T_EQ(kvdb_put(kvs, &key, sizeof(key), val, sizeof(val)), 0);
	}
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	pool_ops = db->d_mp->mp_ops;
	ops = *pool_ops;
	ops.ioq_open = open_queue;
	db->d_mp->mp_ops = &ops;
	T_EQ(kvdb_cq_open(db, depth, 0, &cq), 0);
}

static void shut(void)
{
	kvdb_cq_close(cq);
	db->d_mp->mp_ops = pool_ops;
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* Gets of @n keys, submitted together while the pool refuses one read; the first one's. */
static void get_refused(const uint32_t *no, unsigned n)
{
	static uint8_t val[8][VAL];
	struct kvdb_cqe e[8];
	struct kvdb_op op[8];
	uint32_t key[8];

	for (unsigned i = 0; i < n; i++) {
		key[i] = __builtin_bswap32(no[i]);
		op[i] = (struct kvdb_op){ .type = KVDB_OP_GET, .kvs = kvs, .key = &key[i],
					  .klen = sizeof(key[i]), .buf = val[i], .size = VAL,
					  .cookie = i };
	}
	refusals = 1;
	T_EQ(kvdb_cq_submit(cq, op, n), n);
	T_EQ(refusals, 0);
	T_EQ(kvdb_cq_reap(cq, e, 8, n, 5000000000), n);
	for (unsigned i = 0; i < n; i++) {
		unsigned k = (unsigned)e[i].cookie;

		T_EQ(e[i].err, k ? 0 : -EIO);
		T_OK(!k || (e[i].vlen == VAL && val[k][VAL - 1] == (uint8_t)no[k]));
	}
}

/* ---- the tests ------------------------------------------------------------------------ */

static void a_refused_read_leaves_those_that_joined_it(void)
{
	static const uint32_t no[] = { 7, 7, 7 };

	open_cold(8);
	get_refused(no, 3);
	shut();
}

/* The second is put back with the third and then joins the fifth, which was behind it. */
static void a_read_that_is_put_back_keeps_those_that_joined_it(void)
{
	static const uint32_t no[] = { 10, 2000, 2000, 3900, 2000 };

	open_cold(3);
	get_refused(no, 5);
	shut();
}

int main(void)
{
	T_RUN(a_refused_read_leaves_those_that_joined_it);
	T_RUN(a_read_that_is_put_back_keeps_those_that_joined_it);
	return t_done();
}
