/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Completion queues whose reads the pool refuses, and whose writes compete with
 * blocking ones: each operation completes once, with its own result, in time.
 * Blocking gets that wait for a device.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "log/flush.h"
#include "harness.h"
#include "ioq.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/iter.h"
#include "tree/merge_iter.h"
#include "background/work.h"
#include "read/find.h"
#include "tree/leaf.h"
#include "log/log.h"
#include "mem/memtable.h"
#include "cache/pages.h"
#include "run/run.h"
#include "db/thread.h"

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

/* A pool of so many bytes with an empty database of one store, which is open. */
static void open_fresh(uint64_t bytes, const struct kvdb_opts *o)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = bytes };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/kv_cq.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
	T_EQ(kvdb_open(dir, o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static void shut(void)
{
	kvdb_cq_close(cq);
	cq = NULL;
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* A queue of this depth to keys 0 .. KEYS - 1, of which nothing is in memory. */
static void open_cold(unsigned depth)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	static struct mpl_backend_ops ops;
	uint8_t val[VAL];

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	open_fresh(64u << 20, &o);
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
	db->d_mp->mp_ops = pool_ops;
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

/* Everything is durable, and then something else fails: no later sync returns 0 (E5). */
static void a_sync_of_what_has_stopped_fails(void)
{
	struct kvdb_op op = { .type = KVDB_OP_SYNC };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_cqe e;

	open_fresh(64u << 20, &o);
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	T_EQ(kvdb_sync(db), 0);
	T_EQ(kvdb_cq_open(db, 0, 0, &cq), 0);
	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, 5000000000), 1);
	T_EQ(e.err, 0);
	kv_fail(db, -EIO, "a test");
	T_EQ(kvdb_sync(db), -EIO);
	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, 5000000000), 1);
	T_EQ(e.err, -EIO);
	T_OK(e.error && strstr(e.error->text, "a test"));
	kvdb_cq_close(cq);
	T_EQ(kvdb_close(db), -EROFS);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* The images of large records have no room until an epoch is durable, a second later (L5). */
static void a_large_commit_waits_for_memory_in_the_queue(void)
{
	static uint8_t val[(31u << 20) / 2], key[1300];
	struct kvdb_op op = { .type = KVDB_OP_COMMIT };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_stats st;
	struct kvdb_cqe e;

	o.interval_ms = KVDB_INTERVAL_NONE;
	o.cache_bytes = 64u << 20;
	open_fresh(512u << 20, &o);
	T_EQ(kvdb_cq_open(db, 0, 0, &cq), 0);
	T_EQ(kvdb_txn_begin(db, 0, &op.txn), 0);
	for (unsigned i = 0; i < 1300; i++) {
		memcpy(key, &i, sizeof(i));
		T_EQ(kvdb_txn_put(op.txn, kvs, key, sizeof(key), val, 128), 0);
	}
	T_EQ(kvdb_put(kvs, "large", 5, val, sizeof(val)), 0);
	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.delay[KVDB_DELAY_MEMORY].waits, 0);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, 10000000000), 1);
	T_EQ(e.err, 0);
	T_EQ(kvdb_get(kvs, key, sizeof(key), NULL, 0, NULL), 0);
	shut();
}

#define WRITERS	8u

static _Atomic(bool) storm_ends;

static void *storm(void *arg)
{
	static const uint8_t val[4096];
	uint64_t key = (uintptr_t)arg, wrong = 0;

	for (; !atomic_load(&storm_ends); key += WRITERS)
		wrong += kvdb_put(kvs, &key, sizeof(key), val, sizeof(val)) != 0;
	return (void *)(uintptr_t)wrong;
}

/* The log counts as nearly full, and nothing is flushed: the debt hardly grows meanwhile. */
static void a_put_has_its_place_among_writers_that_sleep(void)
{
	struct kvdb_op op = { .type = KVDB_OP_PUT, .key = "k", .klen = 1, .val = "v", .size = 1 };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct timespec nap = { .tv_nsec = 1000000 };
	struct kv_delay *de;
	pthread_t tid[WRITERS];
	struct kvdb_cqe e;
	void *wrong;

	o.log_bytes = 128u << 20;
	open_fresh(512u << 20, &o);
	de = &db->d_throttle.th_delay[KVDB_DELAY_LOG];
	T_EQ(kvdb_cq_open(db, 0, 0, &cq), 0);
	pthread_mutex_lock(&kvs->k_flush_lock);
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	atomic_fetch_add(&db->d_logged.lc_bytes, 120u << 20);
	kv_pressure(db);
	for (uintptr_t i = 0; i < WRITERS; i++)
		T_EQ(pthread_create(&tid[i], NULL, storm, (void *)i), 0);
	while (atomic_load(&de->de_waits) < 100)
		nanosleep(&nap, NULL);
	op.kvs = kvs;
	for (unsigned i = 0; i < 5; i++) {
		T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
		T_EQ(kvdb_cq_reap(cq, &e, 1, 1, 1000000000), 1);
		T_EQ(e.err, 0);
	}
	pthread_mutex_unlock(&kvs->k_flush_lock);
	atomic_store(&storm_ends, true);
	for (unsigned i = 0; i < WRITERS; i++) {
		T_EQ(pthread_join(tid[i], &wrong), 0);
		T_OK(!wrong);
	}
	shut();
}

/* A write that is slowed down sleeps about as often as it is slowed, not every millisecond. */
static void a_queue_sleeps_until_its_put_is_due(void)
{
	struct kvdb_op op = { .type = KVDB_OP_PUT, .key = "k", .klen = 1, .val = "v", .size = 1 };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct rusage before, after;
	struct kv_delay *de;
	struct kvdb_cqe e;
	long sleeps;

	o.log_bytes = 128u << 20;
	open_fresh(512u << 20, &o);
	de = &db->d_throttle.th_delay[KVDB_DELAY_LOG];
	T_EQ(kvdb_cq_open(db, 0, 0, &cq), 0);
	pthread_mutex_lock(&kvs->k_flush_lock);
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	atomic_fetch_add(&db->d_logged.lc_bytes, 120u << 20);
	kv_pressure(db);
	op.kvs = kvs;
	getrusage(RUSAGE_THREAD, &before);
	for (unsigned i = 0; i < 20; i++) {
		/* others have booked the time until then */
		atomic_store(&db->d_throttle.th_all.to_next, kv_now(db) + 10000000u);
		T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
		T_EQ(kvdb_cq_reap(cq, &e, 1, 1, 1000000000), 1);
		T_EQ(e.err, 0);
	}
	getrusage(RUSAGE_THREAD, &after);
	pthread_mutex_unlock(&kvs->k_flush_lock);
	sleeps = after.ru_nvcsw - before.ru_nvcsw;
	printf("# %lu waits, %ld sleeps\n", (unsigned long)atomic_load(&de->de_waits), sleeps);
	T_OK(atomic_load(&de->de_waits) >= 20);
	T_OK(sleeps <= 20 * 5);
	shut();
}

static unsigned late, waited;

/* The log is nearly full, so writers are charged; flushes of the store are held. */
static void open_dear(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.log_bytes = 128u << 20;
	open_fresh(512u << 20, &o);
	late = waited = 0;
	T_EQ(kvdb_cq_open(db, 0, 0, &cq), 0);
	pthread_mutex_lock(&kvs->k_flush_lock);
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	atomic_fetch_add(&db->d_logged.lc_bytes, 120u << 20);
	kv_pressure(db);
}

/* Due in 10 ms: what the operation added to that. */
static uint64_t submit_dear(const struct kvdb_op *op)
{
	uint64_t t0 = kv_now(db), next = t0 + 10000000u, added;
	struct kvdb_cqe e;

	atomic_store(&db->d_throttle.th_all.to_next, next);
	T_EQ(kvdb_cq_submit(cq, op, 1), 1);
	late += kv_now(db) - t0 > 5000000u;
	added = atomic_load(&db->d_throttle.th_all.to_next) - next;
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, 1000000000), 1);
	T_EQ(e.err, 0);
	waited += kv_now(db) - t0 >= 9000000u;
	return added;
}

static void shut_dear(void)
{
	pthread_mutex_unlock(&kvs->k_flush_lock);
	printf("# of 20 %u waited, %u when they were submitted\n", waited, late);
	T_EQ(waited, 20);
	T_OK(late <= 5);	/* others want the processor, too */
	shut();
}

/* Its commits are slowed down as its puts are: the thread that submits them goes on. */
static void a_queue_does_not_sleep_in_a_commit(void)
{
	struct kvdb_op op = { .type = KVDB_OP_COMMIT };

	open_dear();
	for (unsigned i = 0; i < 20; i++) {
		T_EQ(kvdb_txn_begin(db, 0, &op.txn), 0);
		T_EQ(kvdb_txn_put(op.txn, kvs, "k", 1, "v", 1), 0);
		submit_dear(&op);
	}
	shut_dear();
}

/* Nor for the values of a batch, and these are paid for, too. */
static void a_queue_does_not_sleep_in_a_batch(void)
{
	enum { VALUE = 100000 };
	static uint8_t val[VALUE];
	struct kvdb_op put = { .type = KVDB_OP_PUT, .key = "k", .klen = 1, .val = val,
			       .size = VALUE };
	struct kvdb_op op = { .type = KVDB_OP_WRITE, .ops = &put, .size = 1 };

	open_dear();
	put.kvs = kvs;
	for (unsigned i = 0; i < 20; i++)
		T_OK(submit_dear(&op) >=
		     VALUE / 2048u * (uint64_t)atomic_load(&db->d_throttle.th_all.to_cost));
	shut_dear();
}

/* ---- blocking gets ---------------------------------------------------------------------- */

static unsigned reads, reads_inside;

static void *pass_grace(void *arg)
{
	kv_retire_barrier();
	return arg;
}

/* Ends only when the thread that reads is outside kv_enter(). */
static int read_watched(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned n,
			int is_write)
{
	struct timespec until;
	pthread_t tid;

	if (!is_write) {
		T_EQ(clock_gettime(CLOCK_REALTIME, &until), 0);
		until.tv_sec += 5;
		T_EQ(pthread_create(&tid, NULL, pass_grace, NULL), 0);
		reads++;
		if (pthread_timedjoin_np(tid, NULL, &until)) {
			reads_inside++;
			T_EQ(pthread_detach(tid), 0);
		}
	}
	return pool_ops->rw(obj, off, iov, n, is_write);
}

static int see(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	(void)val;
	(void)vlen;
	*(uint8_t *)arg = olen == VAL ? ((const uint8_t *)old)[VAL - 1] : 0;
	return KVDB_UPDATE_KEEP;
}

/* Many that did would keep evicted pages from their next use. */
static void a_get_that_waits_for_a_device_holds_no_memory_back(void)
{
	uint32_t key = __builtin_bswap32(KEYS / 2);
	struct mpl_backend_ops ops;
	struct kvdb_pin pin;
	uint8_t val[VAL];
	size_t vlen;

	open_cold(0);
	ops = *pool_ops;
	ops.rw = read_watched;
	db->d_mp->mp_ops = &ops;
	T_EQ(kvdb_get_pinned(kvs, &key, sizeof(key), &pin), 0);
	T_OK(reads);
	T_EQ(pin.vlen, VAL);
	T_EQ(((const uint8_t *)pin.val)[VAL - 1], (uint8_t)(KEYS / 2));
	kvdb_unpin(&pin);
	reads = 0;
	key = __builtin_bswap32(7);
	T_EQ(kvdb_get(kvs, &key, sizeof(key), val, VAL, &vlen), 0);
	T_OK(reads);
	T_EQ(vlen, VAL);
	T_EQ(val[VAL - 1], 7);
	reads = 0;
	key = __builtin_bswap32(KEYS / 4);
	T_EQ(kvdb_update(kvs, &key, sizeof(key), see, val), 0);
	T_OK(reads);
	T_EQ(val[0], (uint8_t)(KEYS / 4));
	T_EQ(reads_inside, 0);
	key = __builtin_bswap32(KEYS);
	T_EQ(kvdb_get_pinned(kvs, &key, sizeof(key), &pin), -ENOENT);
	db->d_mp->mp_ops = pool_ops;
	shut();
}

/* Nor does one in a transaction, which reads what was there when it began. */
static void a_transactions_get_holds_no_memory_back(void)
{
	uint32_t key = __builtin_bswap32(KEYS / 2), none = __builtin_bswap32(KEYS);
	struct mpl_backend_ops ops;
	struct kvdb_txn *txn;
	uint8_t val[VAL];
	size_t vlen;

	open_cold(0);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	T_EQ(kvdb_put(kvs, &key, sizeof(key), "new", 3), 0);
	ops = *pool_ops;
	ops.rw = read_watched;
	db->d_mp->mp_ops = &ops;
	reads = reads_inside = 0;
	T_EQ(kvdb_txn_get(txn, kvs, &key, sizeof(key), val, VAL, &vlen), 0);
	T_OK(reads);
	T_EQ(vlen, VAL);
	T_EQ(val[VAL - 1], (uint8_t)(KEYS / 2));
	T_EQ(kvdb_txn_get(txn, kvs, &none, sizeof(none), val, VAL, &vlen), -ENOENT);
	T_EQ(reads_inside, 0);
	db->d_mp->mp_ops = pool_ops;
	kvdb_txn_abort(txn);
	shut();
}

static void forget_key_pages(void)
{
	struct kv_tree *tr = kv_tree_get(kvs);

	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		for (uint32_t j = 0; j < tr->tr_run[i]->rn_n; j++)
			kv_page_purge(db, tr->tr_run[i]->rn_kb[j].kb_id,
				      tr->tr_run[i]->rn_kb[j].kb_npages);
	kv_tree_put(db, tr);
}

/* Nor a write in one, which looks for conflicts, nor the get of what it wrote. */
static void a_transactions_write_holds_no_memory_back(void)
{
	uint32_t key = __builtin_bswap32(KEYS / 2), other = __builtin_bswap32(7);
	static uint8_t val[300000];	/* a segment of its own: no image once it is durable */
	struct mpl_backend_ops ops;
	struct kvdb_txn *txn;
	size_t vlen;

	open_cold(0);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	T_EQ(kvdb_put(kvs, &other, sizeof(other), "new", 3), 0);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	forget_key_pages();
	ops = *pool_ops;
	ops.rw = read_watched;
	db->d_mp->mp_ops = &ops;
	reads = reads_inside = 0;
	memset(val, 'v', sizeof(val));
	T_EQ(kvdb_txn_put(txn, kvs, &key, sizeof(key), val, sizeof(val)), 0);
	T_OK(reads);
	T_EQ(reads_inside, 0);
	T_EQ(kvdb_sync(db), 0);
	reads = 0;
	memset(val, 0, sizeof(val));
	T_EQ(kvdb_txn_get(txn, kvs, &key, sizeof(key), val, sizeof(val), &vlen), 0);
	T_OK(reads);
	T_EQ(reads_inside, 0);
	T_EQ(vlen, sizeof(val));
	T_EQ(val[sizeof(val) - 1], 'v');
	T_EQ(kvdb_txn_put(txn, kvs, &other, sizeof(other), "v", 1), -ECANCELED);
	db->d_mp->mp_ops = pool_ops;
	kvdb_txn_abort(txn);
	shut();
}

/* Nor one of many keys. */
static void a_get_of_many_keys_holds_no_memory_back(void)
{
	static uint8_t val[3][VAL];
	struct mpl_backend_ops ops;
	struct kvdb_get get[3];
	uint32_t key[3];

	open_cold(0);
	for (uint32_t i = 0; i < 3; i++) {
		key[i] = __builtin_bswap32(i * (KEYS / 2));
		get[i] = (struct kvdb_get){ .key = &key[i], .klen = sizeof(key[i]),
					    .buf = val[i], .size = VAL };
	}
	ops = *pool_ops;
	ops.rw = read_watched;
	db->d_mp->mp_ops = &ops;
	reads = reads_inside = 0;
	T_EQ(kvdb_get_multi(kvs, KVDB_GET_SNAPSHOT, get, 3), 0);
	T_OK(reads);
	for (uint32_t i = 0; i < 3; i++) {
		T_EQ(get[i].err, i * (KEYS / 2) < KEYS ? 0 : -ENOENT);
		T_OK(get[i].err || (get[i].vlen == VAL &&
				    val[i][VAL - 1] == (uint8_t)(i * (KEYS / 2))));
	}
	T_EQ(reads_inside, 0);
	shut();
}

/* Nor a cursor, whose keys are read before their values. */
static void a_cursor_holds_no_memory_back(void)
{
	uint32_t key = __builtin_bswap32(KEYS / 2), n = 0;
	struct kvdb_cursor *cur;
	struct mpl_backend_ops ops;
	const void *k, *v;
	size_t klen, vlen;

	open_cold(0);
	ops = *pool_ops;
	ops.rw = read_watched;
	db->d_mp->mp_ops = &ops;
	reads = reads_inside = 0;
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	T_EQ(kvdb_cursor_seek(cur, &key, sizeof(key)), 0);
	T_OK(reads);
	while (n < 50 && !kvdb_cursor_next(cur, &k, &klen, &v, &vlen)) {
		T_EQ(vlen, VAL);
		T_EQ(((const uint8_t *)v)[VAL - 1], (uint8_t)(KEYS / 2 + n));
		n++;
	}
	T_EQ(n, 50);
	T_EQ(kvdb_cursor_prev(cur, &k, &klen, &v, &vlen), 0);
	T_EQ(reads_inside, 0);
	kvdb_cursor_close(cur);
	db->d_mp->mp_ops = pool_ops;
	shut();
}

#define LARGE	100000u		/* bytes of a value that is read past the page pool */

/* Nor for the values that it does not read into memory of its own. */
static void a_cursor_holds_no_memory_back_for_any_value(void)
{
	static uint8_t large[LARGE];
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_cursor *cur;
	struct mpl_backend_ops ops;
	const void *k, *v;
	size_t klen, vlen;
	uint32_t n = 0;

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	open_fresh(64u << 20, &o);
	for (uint32_t i = 0; i < 100; i++) {
		memset(large, (int)i, sizeof(large));
		T_EQ(kvdb_put(kvs, &(uint8_t){ (uint8_t)i }, 1, large, i % 20 ? VAL : LARGE), 0);
	}
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	pool_ops = db->d_mp->mp_ops;
	ops = *pool_ops;
	ops.rw = read_watched;
	db->d_mp->mp_ops = &ops;
	db->d_budget.b_scan_bytes = 0;	/* others have it */
	reads = reads_inside = 0;
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	while (!kvdb_cursor_next(cur, &k, &klen, &v, &vlen)) {
		T_EQ(vlen, n % 20 ? VAL : LARGE);
		T_EQ(((const uint8_t *)v)[vlen - 1], (uint8_t)n);
		n++;
	}
	T_EQ(n, 100);
	T_OK(reads > 5);
	T_EQ(reads_inside, 0);
	kvdb_cursor_close(cur);
	db->d_mp->mp_ops = pool_ops;
	shut();
}

/* ---- a page that cannot be read ------------------------------------------------------------ */

static uint64_t bad_obj, bad_off;

/* A request for several pages does not say which one failed. */
static int read_but_one(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned n,
			int is_write)
{
	uint64_t end = off;

	for (unsigned i = 0; i < n; i++)
		end += iov[i].iov_len;
	if (!is_write && mpool_obj_id(obj) == bad_obj && off <= bad_off && bad_off < end)
		return -EIO;
	return pool_ops->rw(obj, off, iov, n, is_write);
}

/* The page at @off of the object cannot be read any more. */
static void page_goes_bad(uint64_t obj, uint64_t off)
{
	static struct mpl_backend_ops ops;

	bad_obj = obj;
	bad_off = off & ~4095ull;
	ops = *pool_ops;
	ops.rw = read_but_one;
	db->d_mp->mp_ops = &ops;
}

static void look_up(uint32_t no, struct kv_ent *e)
{
	uint32_t key = __builtin_bswap32(no);
	struct kv_thread *t = kv_enter();

	T_EQ(kv_tree_lookup(db, atomic_load(&kvs->k_tree), &key, sizeof(key), KV_SEQ_NOW, e), 0);
	kv_exit(t);
}

/* Gets @n keys from @from on, each @step-th; which of them fail. */
static void get_all(uint32_t from, unsigned step, unsigned n, bool *fails)
{
	static uint8_t val[128][VAL];
	struct kvdb_get get[128];
	uint32_t key[128];

	for (uint32_t i = 0; i < n; i++) {
		key[i] = __builtin_bswap32(from + i * step);
		get[i] = (struct kvdb_get){ .key = &key[i], .klen = sizeof(key[i]), .buf = val[i],
					    .size = VAL };
	}
	T_EQ(kvdb_get_multi(kvs, 0, get, n), 0);
	for (uint32_t i = 0; i < n; i++) {
		T_OK(!get[i].err || get[i].err == -EIO);
		T_OK(get[i].err || val[i][VAL - 1] == (uint8_t)(from + i * step));
		fails[i] = get[i].err;
	}
}

/* Those of many keys whose values lie on it fail, and no others that were read together. */
static void an_unreadable_value_costs_no_other_key(void)
{
	bool fails[64];
	struct kv_ent e;
	unsigned bad = 0;

	open_cold(0);
	look_up(KEYS / 2 + 30, &e);
	page_goes_bad(e.e_seg->sg_id, e.e_off8 * 8ull);
	get_all(KEYS / 2, 1, 64, fails);
	for (unsigned i = 0; i < 64; i++) {
		look_up(KEYS / 2 + i, &e);
		T_EQ(fails[i], e.e_seg->sg_id == bad_obj && e.e_off8 * 8ull < bad_off + 4096 &&
			       e.e_off8 * 8ull + VAL > bad_off);
		bad += fails[i];
	}
	T_OK(bad && bad < 8);
	shut();
}

/* The page of key @no in the first run of the store. */
static uint32_t page_of(uint32_t no)
{
	uint32_t key = __builtin_bswap32(no);
	struct kv_thread *t = kv_enter();
	int64_t page = kv_kblock_page(db, &atomic_load(&kvs->k_tree)->tr_run[0]->rn_kb[0],
				      (const uint8_t *)&key, sizeof(key));

	kv_exit(t);
	return (uint32_t)page;
}

static void key_page_goes_bad(uint32_t page)
{
	uint64_t obj = atomic_load(&kvs->k_tree)->tr_run[0]->rn_kb[0].kb_id;

	kv_page_purge(db, obj, 4096);
	page_goes_bad(obj, page * 4096ull);
}

static void an_unreadable_key_page_costs_no_other_key(void)
{
	bool fails[128];

	open_cold(0);
	/* of several keys on each page: where a group goes on to the next, both are one request */
	for (uint32_t page = page_of(KEYS / 4); page < page_of(KEYS / 2); page++) {
		unsigned bad = 0;

		key_page_goes_bad(page);
		get_all(KEYS / 4, 15, 128, fails);
		for (unsigned i = 0; i < 128; i++) {
			T_EQ(fails[i], page_of(KEYS / 4 + i * 15) == page);
			bad += fails[i];
		}
		T_OK(bad);
	}
	shut();
}

/* All keys up to the page are shown, whatever was read ahead with it, and it is named. */
static void walk_to_unreadable(unsigned flags)
{
	struct kvdb_cursor *cur;
	const void *k, *v;
	uint32_t n = 0, before = 0;
	char text[64];
	size_t klen, vlen;
	int rc;

	for (uint32_t i = 0; i < KEYS; i++)
		before += flags & KVDB_REVERSE ? page_of(i) > bad_off / 4096 :
						 page_of(i) < bad_off / 4096;
	T_EQ(kvdb_cursor_open(kvs, flags, NULL, 0, &cur), 0);
	while (!(rc = kvdb_cursor_next(cur, &k, &klen, &v, &vlen)))
		n++;
	T_EQ(rc, -EIO);
	T_EQ(n, before);
	snprintf(text, sizeof(text), "offset %llu:", (unsigned long long)bad_off);
	T_OK(strstr(kvdb_error_detail()->text, text));
	T_EQ(kvdb_cursor_next(cur, &k, &klen, &v, &vlen), -EIO);
	kvdb_cursor_close(cur);
}

static void a_walk_shows_what_lies_before_an_unreadable_page(void)
{
	open_cold(0);
	T_OK(page_of(KEYS - 1) > 15);
	for (uint32_t page = 1; page < page_of(KEYS - 1); page += 3) {
		key_page_goes_bad(page);
		walk_to_unreadable(KVDB_KEYS_ONLY);
		kv_page_purge(db, bad_obj, 4096);
		walk_to_unreadable(KVDB_REVERSE);
	}
	shut();
}

/* It was met while more was read ahead, and other calls have failed since. */
static void a_walk_names_its_own_error(void)
{
	struct kvdb_cursor *cur;
	char text[64];
	const void *k;
	size_t klen;
	int rc;

	open_cold(0);
	key_page_goes_bad(page_of(KEYS / 2));
	T_EQ(kvdb_cursor_open(kvs, KVDB_KEYS_ONLY, NULL, 0, &cur), 0);
	while (!(rc = kvdb_cursor_next(cur, &k, &klen, NULL, NULL)))
		T_EQ(kvdb_get(kvs, NULL, 0, NULL, 0, NULL), -EINVAL);
	T_EQ(rc, -EIO);
	T_EQ(kvdb_error_detail()->err, -EIO);
	snprintf(text, sizeof(text), "offset %llu:", (unsigned long long)bad_off);
	T_OK(strstr(kvdb_error_detail()->text, text));
	kvdb_cursor_close(cur);
	shut();
}

/* ---- walks that show nothing ------------------------------------------------------------- */

#define GONE	60000u		/* keys, one behind the other */
#define SMALL	100u		/* bytes of a value, which lies with its key */

static _Atomic(bool) graced;
static unsigned reads_held;

/* In a run, all deleted with one call, and nothing of it in memory. */
static void open_gone(void)
{
	struct mpool_open_opts po = MPOOL_OPEN_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	static struct mpl_backend_ops ops;
	char val[SMALL] = "";

	po.io = "sync";
	o.pool = &po;
	o.flags = KVDB_MANUAL;
	o.logs = 1;
	open_fresh(256u << 20, &o);
	for (uint32_t i = 0; i < GONE; i++) {
		uint32_t key = __builtin_bswap32(i);

		T_EQ(kvdb_put(kvs, &key, sizeof(key), val, sizeof(val)), 0);
	}
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(kvdb_range_del(kvs, NULL, 0, NULL, 0), 0);
	T_EQ(kvdb_cq_open(db, 0, 0, &cq), 0);
	pool_ops = db->d_mp->mp_ops;
	ops = *pool_ops;
	db->d_mp->mp_ops = &ops;
	reads = reads_held = 0;
}

static void *pass_one_grace(void *arg)
{
	kv_retire_barrier();
	atomic_store(&graced, true);
	return arg;
}

/* Counts the reads after the fourth until a grace period is over that began at that. */
static int read_slowly(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned n,
		       int is_write)
{
	static const struct timespec ms = { .tv_nsec = 1000000 };
	pthread_t tid;

	if (!is_write && ++reads == 4) {
		T_EQ(pthread_create(&tid, NULL, pass_one_grace, NULL), 0);
		T_EQ(pthread_detach(tid), 0);
	}
	reads_held += reads >= 4 && !atomic_load(&graced);
	nanosleep(&ms, NULL);
	return pool_ops->rw(obj, off, iov, n, is_write);
}

/* However long it takes to find that there is nothing: what others evict comes back meanwhile. */
static void a_walk_that_shows_nothing_holds_no_memory_back(void)
{
	struct kvdb_cursor *cur;
	const void *key;
	size_t klen;

	open_gone();
	((struct mpl_backend_ops *)(uintptr_t)db->d_mp->mp_ops)->rw = read_slowly;
	T_EQ(kvdb_cursor_open(kvs, KVDB_KEYS_ONLY, NULL, 0, &cur), 0);
	T_EQ(kvdb_cursor_next(cur, &key, &klen, NULL, NULL), -ENOENT);
	kvdb_cursor_close(cur);
	printf("# %u reads, %u until a grace period was over\n", reads, reads_held);
	T_OK(reads > 50);
	T_OK(reads_held < reads / 2);
	db->d_mp->mp_ops = pool_ops;
	shut();
}

static bool hides_all(void *seen, const struct kv_ent *e)
{
	(void)e;
	++*(unsigned *)seen;
	return true;
}

/* CUR-8, when nothing of it is waited for. */
static void a_merge_that_shows_nothing_rests(void)
{
	unsigned rests = 0, seen = 0;
	struct kv_iter *src[16], *it;
	struct kv_thread *t;
	struct kv_tree *tr;
	struct kv_ent e;
	int rc;

	open_gone();
	tr = kv_tree_get(kvs);
	rc = kv_tree_sources(db, tr, false, false, src);
	T_OK(rc > 0 && rc <= 16);
	T_EQ(kv_merge_iter(src, (unsigned)rc, false, true, &it), 0);
	kv_merge_hide(it, hides_all, &seen);
	T_EQ(it->it_ops->seek(it, NULL, 0), 0);
	do {
		kv_merge_rest(it, 256);
		t = kv_enter();
		rc = it->it_ops->next(it, &e);
		kv_iter_park(it);
		kv_exit(t);
		rests += rc == -EAGAIN;
	} while (rc == -EAGAIN);
	T_EQ(rc, -ENOENT);
	T_EQ(seen, GONE);
	T_EQ(rests, GONE / 256);
	it->it_ops->close(it);
	kv_tree_put(db, tr);
	db->d_mp->mp_ops = pool_ops;
	shut();
}

static int read_counted(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned n,
			int is_write)
{
	reads += !is_write;
	return pool_ops->rw(obj, off, iov, n, is_write);
}

/* Nor does it give up to wait: a queue's owner has other things to do. */
static void a_scan_that_shows_nothing_does_not_block(void)
{
	uint64_t before, buf[512];
	struct kvdb_op op = { .type = KVDB_OP_SCAN, .buf = buf, .size = sizeof(buf) };
	struct kvdb_stats st;
	struct kvdb_cqe e;

	open_gone();
	T_EQ(kvdb_stats(db, &st), 0);
	before = st.io[MPOOL_CAPACITY].read_key_bytes;
	((struct mpl_backend_ops *)(uintptr_t)db->d_mp->mp_ops)->rw = read_counted;
	op.kvs = kvs;
	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, -1), 1);
	T_EQ(e.err, 0);
	T_EQ(e.vlen, 0);
	T_EQ(kvdb_stats(db, &st), 0);
	T_OK(st.io[MPOOL_CAPACITY].read_key_bytes - before > GONE * SMALL);
	T_EQ(reads, 0);
	db->d_mp->mp_ops = pool_ops;
	shut();
}

/* ---- the page pool of threads that only get ----------------------------------------------- */

#define MANY	18000u		/* values: twice what the page pool has room for */
#define LAST	1000u		/* of them, a tenth of that */
#define PAGEFUL	4000u		/* bytes of a value */

static void get_one(uint32_t i, bool in_queue)
{
	static char val[PAGEFUL];
	struct kvdb_op op = { .type = KVDB_OP_GET, .kvs = kvs, .key = &i, .klen = sizeof(i),
			      .buf = val, .size = sizeof(val) };
	struct kvdb_cqe e;
	size_t vlen;

	if (!in_queue) {
		T_EQ(kvdb_get(kvs, &i, sizeof(i), val, sizeof(val), &vlen), 0);
		return;
	}
	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, -1), 1);
	T_EQ(e.err, 0);
}

/* What was read last is in memory, whatever was read first: it alone makes room. */
static void what_was_read_last_is_cached(bool in_queue)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	static char val[PAGEFUL];
	struct kvdb_stats a, b;

	o.cache_bytes = 64u << 20;
	open_fresh(256u << 20, &o);
	for (uint32_t i = 0; i < MANY; i++)
		T_EQ(kvdb_put(kvs, &i, sizeof(i), val, sizeof(val)), 0);
	T_EQ(kvdb_close(db), 0);
	o.flags = KVDB_RDONLY;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(kvdb_cq_open(db, 0, 0, &cq), 0);
	for (uint32_t i = 0; i < MANY; i++)
		get_one(i, in_queue);
	T_EQ(kvdb_stats(db, &a), 0);
	for (uint32_t i = MANY - LAST; i < MANY; i++)
		get_one(i, in_queue);
	T_EQ(kvdb_stats(db, &b), 0);
	printf("# %llu misses of %u\n", (unsigned long long)(b.page_misses - a.page_misses), LAST);
	T_OK(b.page_misses - a.page_misses < LAST / 4);
	shut();
}

static void gets_keep_what_they_read_last(void)
{
	what_was_read_last_is_cached(false);
}

static void gets_of_a_queue_keep_what_they_read_last(void)
{
	what_was_read_last_is_cached(true);
}

int main(void)
{
	T_RUN(a_refused_read_leaves_those_that_joined_it);
	T_RUN(a_read_that_is_put_back_keeps_those_that_joined_it);
	T_RUN(a_sync_of_what_has_stopped_fails);
	T_RUN(a_large_commit_waits_for_memory_in_the_queue);
	T_RUN(a_put_has_its_place_among_writers_that_sleep);
	T_RUN(a_queue_sleeps_until_its_put_is_due);
	T_RUN(a_queue_does_not_sleep_in_a_commit);
	T_RUN(a_queue_does_not_sleep_in_a_batch);
	T_RUN(a_get_that_waits_for_a_device_holds_no_memory_back);
	T_RUN(a_transactions_get_holds_no_memory_back);
	T_RUN(a_transactions_write_holds_no_memory_back);
	T_RUN(a_get_of_many_keys_holds_no_memory_back);
	T_RUN(a_cursor_holds_no_memory_back);
	T_RUN(a_cursor_holds_no_memory_back_for_any_value);
	T_RUN(an_unreadable_value_costs_no_other_key);
	T_RUN(an_unreadable_key_page_costs_no_other_key);
	T_RUN(a_walk_shows_what_lies_before_an_unreadable_page);
	T_RUN(a_walk_names_its_own_error);
	T_RUN(a_walk_that_shows_nothing_holds_no_memory_back);
	T_RUN(a_merge_that_shows_nothing_rests);
	T_RUN(a_scan_that_shows_nothing_does_not_block);
	T_RUN(gets_keep_what_they_read_last);
	T_RUN(gets_of_a_queue_keep_what_they_read_last);
	return t_done();
}
