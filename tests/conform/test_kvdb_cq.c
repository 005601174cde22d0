/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Completion queues: every operation completes once with its own result, what
 * is in memory at once, what must wait without holding up its caller; errors
 * reach the operation that has them and no other.
 */
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

#include "kvdb_help.h"

#define KEYS	4000u
#define VAL	1000u

static struct kvdb_cq *cq;

static size_t num_key(char *key, uint64_t i)
{
	return (size_t)sprintf(key, "%08x-%u", (unsigned)i * 0x9e3779b9u, (unsigned)i);
}

/* The store with nothing in memory, or NULL. */
static struct kvdb_kvs *cold_open(const char *dev)
{
	struct mpool_open_opts po = MPOOL_OPEN_OPTS_INIT;
	struct kvdb_opts o = kh_opts();

	po.dev = dev;
	o.pool = &po;
	th_again();
	return kvdb_open(th_pool, &o, &kh_db) ? NULL : kh_kvs("s");
}

/* Keys 0 .. n - 1 with values of VAL bytes that begin with their number. */
static struct kvdb_kvs *cold_store(unsigned n, const char *dev)
{
	struct kvdb_kvs *kvs;
	uint8_t val[VAL];
	char key[40];

	kh_fresh(256 * MIB, 0);
	kvs = kh_kvs("s");
	for (unsigned i = 0; i < n; i++) {
		memset(val, (int)i, sizeof(val));
		memcpy(val, &i, sizeof(i));
		T_EQ(kvdb_put(kvs, key, num_key(key, i), val, sizeof(val)), 0);
	}
	kh_close();
	return cold_open(dev);
}

static int val_is(const uint8_t *val, size_t len, unsigned i)
{
	unsigned got;

	memcpy(&got, val, sizeof(got));
	return len == VAL && got == i && val[VAL - 1] == (uint8_t)i;
}

/* One operation of one thread's storm. */
struct shot {
	char key[40];
	uint8_t val[VAL];
};

static struct kvdb_op get_op(struct kvdb_kvs *kvs, struct shot *s, unsigned i, uint64_t cookie)
{
	return (struct kvdb_op){ .type = KVDB_OP_GET, .kvs = kvs, .key = s->key,
				 .klen = num_key(s->key, i), .buf = s->val, .size = VAL,
				 .cookie = cookie };
}

static struct kvdb_op put_op(struct kvdb_kvs *kvs, const char *key, const char *val,
			     uint64_t cookie)
{
	return (struct kvdb_op){ .type = KVDB_OP_PUT, .kvs = kvs, .key = key, .klen = strlen(key),
				 .val = val, .size = strlen(val), .cookie = cookie };
}

/* One operation from beginning to end. */
static struct kvdb_cqe one(struct kvdb_op op)
{
	struct kvdb_cqe e = { .cookie = 0 };

	op.cookie = 4711;
	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, -1), 1);
	T_EQ(e.cookie, 4711);
	T_EQ(e.type, op.type);
	return e;
}

static void operations_complete_with_their_results(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb_cqe e;
	char buf[16];
	struct kvdb_op get = { .type = KVDB_OP_GET, .key = "a", .klen = 1, .buf = buf,
			       .size = sizeof(buf) };

	kh_fresh(64 * MIB, 0);
	get.kvs = kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	e = one(get);
	T_EQ(e.err, -ENOENT);
	T_OK(!e.error);
	T_EQ(one(put_op(kvs, "a", "value", 0)).err, 0);
	T_OK(kh_holds_str(kvs, "a", "value"));
	e = one(get);
	T_EQ(e.err, 0);
	T_EQ(e.vlen, 5);
	T_MEMEQ(buf, "value", 5);
	get.size = 2;
	memset(buf, 0, sizeof(buf));
	e = one(get);
	T_EQ(e.vlen, 5);
	T_MEMEQ(buf, "va\0", 3);
	T_EQ(one((struct kvdb_op){ .type = KVDB_OP_SYNC }).err, 0);
	e = one((struct kvdb_op){ .type = KVDB_OP_DEL, .kvs = kvs, .key = "a", .klen = 1 });
	T_EQ(e.err, 0);
	T_EQ(one(get).err, -ENOENT);
	/* nothing is in flight: there is nothing to wait for */
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, -1), 0);
	kvdb_cq_close(cq);
	kh_close();
}

static void what_is_in_memory_completes_inside_submit(void)
{
	static struct shot s[64];
	struct kvdb_op op[64];
	struct kvdb_cqe e[64];
	struct kvdb_kvs *kvs;
	uint64_t seen = 0;

	kh_fresh(64 * MIB, 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	for (unsigned i = 0; i < 64; i++) {
		memset(s[i].val, (int)i, VAL);
		memcpy(s[i].val, &i, sizeof(i));
		T_EQ(kvdb_put(kvs, s[i].key, num_key(s[i].key, i), s[i].val, VAL), 0);
		op[i] = get_op(kvs, &s[i], i, i);
	}
	memset(s[7].val, 0, VAL);
	T_EQ(kvdb_cq_submit(cq, op, 64), 64);
	T_EQ(kvdb_cq_reap(cq, e, 64, 0, 0), 64);
	for (unsigned i = 0; i < 64; i++) {
		T_EQ(e[i].err, 0);
		seen |= 1ull << e[i].cookie;
	}
	T_EQ(seen, UINT64_MAX);
	T_OK(val_is(s[7].val, e[7].vlen, 7));
	kvdb_cq_close(cq);
	kh_close();
}

static void wrong_operations_fail_by_themselves(void)
{
	static const char long_key[KVDB_KEY_MAX + 1];
	struct kvdb_kvs *kvs;
	struct kvdb_cursor_opts bad_range = KVDB_CURSOR_OPTS_INIT;
	struct kvdb_get bad_key[2] = { { .key = "k", .klen = 1 }, { .key = "k", .klen = 0 } };
	struct kvdb_op op[14], good;
	struct kvdb_cqe e[14];
	uint64_t buf[8];

	kh_fresh(64 * MIB, 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 4, 0, &cq), 0);
	good = put_op(kvs, "k", "v", 0);
	for (unsigned i = 0; i < 14; i++)
		op[i] = good;
	bad_range.flags = 0x80;
	for (unsigned i = 8; i < 12; i++)
		op[i] = (struct kvdb_op){ .type = KVDB_OP_SCAN, .kvs = kvs, .buf = buf,
					  .size = sizeof(buf) };
	op[8].buf = (char *)buf + 1;
	op[9].buf = NULL;
	op[10].range = &bad_range;
	op[11].flags = KVDB_OP_SNAPSHOT;
	op[12] = (struct kvdb_op){ .type = KVDB_OP_MGET, .kvs = kvs, .size = 1 };
	op[13] = (struct kvdb_op){ .type = KVDB_OP_MGET, .kvs = kvs, .get = bad_key, .size = 2 };
	op[0].type = 0;
	op[1].type = 99;
	op[2].kvs = NULL;
	op[3].klen = 0;
	op[4].key = long_key;
	op[4].klen = sizeof(long_key);
	op[5].flags = 0x80;
	op[6].size = KVDB_VALUE_MAX + 1;
	T_EQ(kvdb_cq_submit(cq, op, 14), 14);
	/* what was put is acknowledged behind what is done: the good one comes last */
	T_EQ(kvdb_cq_reap(cq, e, 14, 14, -1), 14);
	for (unsigned i = 0; i < 12; i++) {
		T_OK(e[i].err < 0);
		T_OK(e[i].error && e[i].error->err == e[i].err);
		T_EQ(kvdb_error_explain(e[i].error->id, NULL, NULL, NULL), 0);
	}
	T_EQ(e[4].err, -ENAMETOOLONG);
	T_EQ(e[6].err, -E2BIG);
	T_EQ(e[12].err, 0);
	T_EQ(e[12].type, KVDB_OP_MGET);
	T_EQ(e[13].err, 0);
	T_EQ(e[13].type, KVDB_OP_PUT);
	T_EQ(bad_key[0].err, 0);
	T_EQ(bad_key[1].err, -EINVAL);
	T_EQ(kvdb_cq_open(kh_db, 1025, 0, &cq), -EINVAL);
	T_EQ(kvdb_cq_open(kh_db, 0, 1, &cq), -EINVAL);
	T_EQ(kvdb_cq_submit(NULL, op, 1), -EINVAL);
	T_EQ(kvdb_cq_reap(cq, e, 0, 0, 0), -EINVAL);
	T_EQ(kvdb_cq_reap(cq, e, 1, 2, 0), -EINVAL);
	kvdb_cq_close(cq);
	kvdb_cq_close(NULL);
	kh_close();
}

/* ---- device reads --------------------------------------------------------------- */

struct storm {
	struct kvdb_kvs *kvs;
	pthread_t tid;
	uint64_t rnd;
	unsigned ops, is_blocking;
	unsigned good, wrong;
};

static void *storm_main(void *arg)
{
	struct storm *st = arg;
	struct shot *s = calloc(st->ops, sizeof(*s));
	struct kvdb_op *op = calloc(st->ops, sizeof(*op));
	struct kvdb_cqe e[64];
	struct kvdb_cq *q = NULL;
	unsigned *want = calloc(st->ops, sizeof(*want));
	unsigned n = 0;
	size_t len;

	for (unsigned i = 0; i < st->ops; i++) {
		want[i] = (unsigned)(t_rand(&st->rnd) % KEYS);
		op[i] = get_op(st->kvs, &s[i], want[i], i);
	}
	if (st->is_blocking) {
		for (unsigned i = 0; i < st->ops; i++)
			if (!kvdb_get(st->kvs, op[i].key, op[i].klen, s[i].val, VAL, &len) &&
			    val_is(s[i].val, len, want[i]))
				st->good++;
	} else if (!kvdb_cq_open(kh_db, 0, 0, &q)) {
		st->wrong += kvdb_cq_submit(q, op, st->ops) != (int)st->ops;
		while (n < st->ops) {
			int k = kvdb_cq_reap(q, e, 64, 1, -1);

			if (k <= 0)
				break;
			n += (unsigned)k;
			for (int i = 0; i < k; i++)
				if (!e[i].err && val_is(s[e[i].cookie].val, e[i].vlen,
							want[e[i].cookie]) && op[e[i].cookie].buf) {
					op[e[i].cookie].buf = NULL;	/* once only */
					st->good++;
				}
		}
		st->wrong += kvdb_cq_reap(q, e, 64, 1, -1) != 0;
		kvdb_cq_close(q);
	}
	free(want);
	free(op);
	free(s);
	return NULL;
}

/* 10,000 operations in flight on 4 queues, and blocking readers of the same pages. */
static void storm(const char *dev, unsigned ops)
{
	struct kvdb_kvs *kvs = cold_store(KEYS, dev);
	struct storm st[8] = { 0 };
	struct kvdb_stats a;

	T_OK(kvs != NULL);
	for (unsigned i = 0; i < 8; i++) {
		st[i] = (struct storm){ .kvs = kvs, .rnd = t_rand(&kh_rnd), .ops = ops,
					.is_blocking = i >= 4 };
		T_EQ(pthread_create(&st[i].tid, NULL, storm_main, &st[i]), 0);
	}
	for (unsigned i = 0; i < 8; i++)
		pthread_join(st[i].tid, NULL);
	for (unsigned i = 0; i < 8; i++) {
		T_EQ(st[i].wrong, 0);
		T_EQ(st[i].good, ops);
	}
	T_EQ(kvdb_stats(kh_db, &a), 0);
	T_EQ(a.gets, 8 * ops);
	T_OK(a.page_misses > 0);
	kh_close();
}

static void thousands_in_flight_on_several_queues(void)
{
	storm(NULL, 2500);
}

static void reads_of_a_slow_device_overlap(void)
{
	storm("capacity:lat=2ms", 300);
}

/* More at once than one look at the device collects. */
static void hundreds_are_waited_for_with_one_call(void)
{
	enum { N = 600 };
	struct kvdb_kvs *kvs = cold_store(KEYS, "capacity:lat=10ms");
	struct shot *s = calloc(N, sizeof(*s));
	struct kvdb_cqe *e = calloc(N, sizeof(*e));
	struct kvdb_op *op = calloc(N, sizeof(*op));

	T_OK(kvs && s && e && op);
	T_EQ(kvdb_cq_open(kh_db, N, 0, &cq), 0);
	for (unsigned i = 0; i < N; i++)
		op[i] = get_op(kvs, &s[i], i * 6, i);
	T_EQ(kvdb_cq_submit(cq, op, N), N);
	T_EQ(kvdb_cq_reap(cq, e, N, N, -1), N);
	for (unsigned i = 0; i < N; i++) {
		T_EQ(e[i].err, 0);
		T_OK(val_is(s[e[i].cookie].val, e[i].vlen, (unsigned)e[i].cookie * 6));
	}
	kvdb_cq_close(cq);
	kh_close();
	free(s);
	free(e);
	free(op);
}

static long ms_between(struct timespec a, struct timespec b)
{
	return (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000;
}

/* Other programs may make one attempt slow, not each of several: every one reads other keys. */
#define TURNS	5u

/* one after the other: 64 keys, a key page and a value each, 1.2 seconds; of values alone 0.64 */
static void reads_of_one_queue_overlap(void)
{
	static struct shot s[64];
	struct kvdb_kvs *kvs = cold_store(KEYS, "capacity:lat=10ms");
	struct timespec a, b;
	struct kvdb_cqe e[64];
	struct kvdb_op op[64];
	long ms = 600;

	T_OK(kvs != NULL);
	T_EQ(kvdb_cq_open(kh_db, 64, 0, &cq), 0);
	for (unsigned turn = 0; turn < TURNS && ms >= 600; turn++) {
		for (unsigned i = 0; i < 64; i++)
			op[i] = get_op(kvs, &s[i], i * 60 + turn * 11, i);
		clock_gettime(CLOCK_MONOTONIC, &a);
		T_EQ(kvdb_cq_submit(cq, op, 64), 64);
		for (int n = 0; n < 64;)
			n += kvdb_cq_reap(cq, e, 64, 1, -1);
		clock_gettime(CLOCK_MONOTONIC, &b);
		ms = ms_between(a, b);
		for (unsigned i = 0; i < 64; i++)
			T_OK(val_is(s[i].val, VAL, i * 60 + turn * 11));
		printf("# 64 gets, %ld ms\n", ms);
	}
	T_OK(ms < 600);
	kvdb_cq_close(cq);
	kh_close();
}

static void event_loop_sleeps_in_poll(void)
{
	static struct shot s[64];
	struct kvdb_kvs *kvs = cold_store(KEYS, NULL);
	struct pollfd fd = { .events = POLLIN };
	struct kvdb_op op[64], sync = { .type = KVDB_OP_SYNC, .cookie = 100 };
	struct kvdb_cqe e[64];
	int n = 0, k;

	T_OK(kvs != NULL);
	T_EQ(kvdb_cq_open(kh_db, 8, 0, &cq), 0);
	fd.fd = kvdb_cq_fd(cq);
	T_OK(fd.fd >= 0);
	T_EQ(kvdb_cq_fd(cq), fd.fd);
	T_EQ(poll(&fd, 1, 0), 0);
	for (unsigned i = 0; i < 64; i++)
		op[i] = get_op(kvs, &s[i], i * 60, i);
	T_EQ(kvdb_cq_submit(cq, op, 64), 64);
	while (n < 64) {
		T_EQ(poll(&fd, 1, 10000), 1);
		k = kvdb_cq_reap(cq, e, 5, 0, 0);
		T_OK(k >= 0);
		n += k;
	}
	for (unsigned i = 0; i < 64; i++)
		T_OK(val_is(s[i].val, VAL, i * 60));
	T_EQ(kvdb_cq_reap(cq, e, 5, 0, 0), 0);
	T_EQ(poll(&fd, 1, 0), 0);
	/* durability: the descriptor tells that too */
	T_EQ(kh_put_str(kvs, "new", "value"), 0);
	T_EQ(kvdb_cq_submit(cq, &sync, 1), 1);
	for (n = 0; !n;) {
		T_EQ(poll(&fd, 1, 10000), 1);
		n = kvdb_cq_reap(cq, e, 5, 0, 0);
	}
	T_EQ(n, 1);
	T_EQ(e[0].cookie, 100);
	T_EQ(e[0].err, 0);
	/* what completed inside submit makes it readable too, until it is reaped */
	op[0] = get_op(kvs, &s[0], 0, 7);
	op[0].key = "new";
	op[0].klen = 3;
	T_EQ(kvdb_cq_submit(cq, op, 1), 1);
	T_EQ(poll(&fd, 1, 0), 1);
	T_EQ(kvdb_cq_reap(cq, e, 5, 0, 0), 1);
	T_EQ(poll(&fd, 1, 0), 0);
	kvdb_cq_close(cq);
	kh_close();
}

static void close_ends_what_is_in_flight(void)
{
	static struct shot s[64];
	struct kvdb_kvs *kvs = cold_store(KEYS, "capacity:lat=20ms");
	struct kvdb_op op[64];

	T_OK(kvs != NULL);
	T_EQ(kvdb_cq_open(kh_db, 16, 0, &cq), 0);
	for (unsigned i = 0; i < 64; i++)
		op[i] = get_op(kvs, &s[i], i * 60, i);
	T_EQ(kvdb_cq_submit(cq, op, 64), 64);
	kvdb_cq_close(cq);
	for (unsigned i = 0; i < 64; i++)
		memset(&s[i], 0x5a, sizeof(s[i]));
	T_EQ(kvdb_get(kvs, "x", 1, NULL, 0, &(size_t){ 0 }), -ENOENT);
	for (unsigned i = 0; i < 64; i++)
		T_OK(s[i].val[0] == 0x5a && s[i].val[VAL - 1] == 0x5a);
	kh_close();
}

/* The read that fails is one of the gets'; @after device reads before it. */
static int errors_with(unsigned after, int *failed)
{
	static struct shot s[256];
	static struct kvdb_op op[256];
	struct kvdb_cqe e[64];
	char dev[64];
	struct kvdb_kvs *kvs;
	int n = 0, k, is_open;

	snprintf(dev, sizeof(dev), "capacity:fail=read,after=%u,err=EIO", after);
	kvs = cold_store(KEYS, dev);
	is_open = kvs != NULL;
	*failed = 0;
	if (!is_open)
		return 0;
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	for (unsigned i = 0; i < 256; i++)
		op[i] = get_op(kvs, &s[i], i * 15, i);
	T_EQ(kvdb_cq_submit(cq, op, 256), 256);
	for (; n < 256; n += k) {
		k = kvdb_cq_reap(cq, e, 64, 1, -1);
		T_OK(k > 0);
		for (int i = 0; i < k; i++) {
			if (!e[i].err) {
				T_OK(val_is(s[e[i].cookie].val, e[i].vlen,
					    (unsigned)e[i].cookie * 15));
				continue;
			}
			T_EQ(e[i].err, -EIO);
			T_OK(e[i].error != NULL);
			T_STREQ(e[i].error->id, "MP0946");
			++*failed;
		}
	}
	/* the fault has passed: the same key can be read */
	for (unsigned i = 0; i < 256 && *failed; i++)
		T_EQ(kvdb_get(kvs, op[i].key, op[i].klen, s[i].val, VAL, &(size_t){ 0 }), 0);
	kvdb_cq_close(cq);
	kh_close();
	return 1;
}

static void device_error_reaches_one_operation(void)
{
	unsigned hits = 0;
	int failed;

	/* of a request for several pages each is read again, alone: more than half of them */
	for (unsigned after = 40; after < 400; after += 15) {
		if (!errors_with(after, &failed))
			continue;
		T_OK(failed <= 1);
		hits += (unsigned)failed;
	}
	T_OK(hits >= 3);
}

/* ---- scans and multi-gets ------------------------------------------------------------ */

#define SCAN	(512u << 10)

static union {
	struct kvdb_pair pair[SCAN / sizeof(struct kvdb_pair)];
	uint8_t room[SCAN];
} pairs_out;

static struct kvdb_op scan_op(struct kvdb_kvs *kvs, const struct kvdb_cursor_opts *range,
			      size_t size)
{
	return (struct kvdb_op){ .type = KVDB_OP_SCAN, .kvs = kvs, .range = range,
				 .buf = &pairs_out, .size = size };
}

/* Does a scan of the range, in pieces that @size bytes take, show what a cursor does? */
static unsigned scan_is_walk(struct kvdb_kvs *kvs, struct kvdb_cursor_opts o, size_t size)
{
	const int is_up = !(o.flags & KVDB_REVERSE);
	uint8_t bound[KVDB_KEY_MAX + 1];
	unsigned pairs = 0;
	struct kvdb_cursor *cur;
	const void *key, *val;
	size_t klen, vlen;
	struct kvdb_cqe e;

	T_EQ(kvdb_cursor_open_opts(kvs, &o, &cur), 0);
	do {
		e = one(scan_op(kvs, &o, size));
		T_OK(e.err == 0 || e.err == -ENOBUFS);
		T_OK(e.vlen || !e.err);
		for (unsigned i = 0; i < e.vlen; i++, pairs++) {
			const struct kvdb_pair *p = &pairs_out.pair[i];

			T_EQ(kvdb_cursor_next(cur, &key, &klen, &val, &vlen), 0);
			T_EQ(p->klen, klen);
			T_MEMEQ(p->key, key, klen);
			T_EQ(p->vlen, vlen);
			T_EQ(!p->val, !val);
			if (val)
				T_MEMEQ(p->val, val, vlen);
		}
		if (!e.vlen)
			break;
		/* behind the last one: its smallest successor, or below it */
		memcpy(bound, pairs_out.pair[e.vlen - 1].key, pairs_out.pair[e.vlen - 1].klen);
		bound[pairs_out.pair[e.vlen - 1].klen] = 0;
		if (is_up) {
			o.from = bound;
			o.flen = pairs_out.pair[e.vlen - 1].klen + 1;
		} else {
			o.to = bound;
			o.tlen = pairs_out.pair[e.vlen - 1].klen;
		}
		if (o.limit)
			o.limit -= e.vlen;
	} while (e.err);
	T_EQ(kvdb_cursor_next(cur, &key, &klen, &val, &vlen), -ENOENT);
	kvdb_cursor_close(cur);
	return pairs;
}

static void scans_show_what_a_cursor_shows(void)
{
	struct kvdb_kvs *kvs = cold_store(KEYS, NULL);
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	char key[40];

	T_OK(kvs != NULL);
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	for (unsigned dir = 0; dir < 4; dir++) {
		o = (struct kvdb_cursor_opts)KVDB_CURSOR_OPTS_INIT;
		o.flags = (dir & 1 ? KVDB_REVERSE : 0) | (dir & 2 ? KVDB_KEYS_ONLY : 0);
		T_EQ(scan_is_walk(kvs, o, 16384), KEYS);
		o.limit = 100;
		T_EQ(scan_is_walk(kvs, o, 16384), 100);
		T_EQ(scan_is_walk(kvs, o, sizeof(pairs_out)), 100);
		o.limit = 0;
		o.prefix = "7";
		o.plen = 1;
		T_OK(scan_is_walk(kvs, o, 8192) > 100);
		o.from = key;
		o.flen = num_key(key, 13);
		o.to = "f";
		o.tlen = 1;
		o.plen = 0;
		T_OK(scan_is_walk(kvs, o, 100000) > 100);
		/* also of what lies in memtables above the runs */
		for (unsigned i = 0; i < 500; i++)
			T_EQ(i % 3 ? kvdb_put(kvs, key, num_key(key, i * 7), "new", 3) :
				     kvdb_del(kvs, key, num_key(key, i * 7)), 0);
		o.flen = o.tlen = 0;
		T_OK(scan_is_walk(kvs, o, 16384) > 3000);
		for (unsigned i = 0; i < 500; i += 3)
			T_EQ(kvdb_put(kvs, key, num_key(key, i * 7), "", 0), 0);
	}
	T_EQ(one(scan_op(kvs, NULL, sizeof(pairs_out.pair[0]))).err, -ENOBUFS);
	kvdb_cq_close(cq);
	kh_close();
}

static long ms_of(struct kvdb_op op, struct kvdb_cqe *e)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	*e = one(op);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return ms_between(a, b);
}

static struct kvdb_get many[200];
static struct shot many_shot[200];

/* the keys FIRST, FIRST + 20 and so on */
static struct kvdb_op mget_op(struct kvdb_kvs *kvs, unsigned first, uint32_t flags)
{
	for (unsigned i = 0; i < 200; i++)
		many[i] = (struct kvdb_get){ .key = many_shot[i].key, .buf = many_shot[i].val,
					     .size = VAL,
					     .klen = num_key(many_shot[i].key, first + i * 20) };
	return (struct kvdb_op){ .type = KVDB_OP_MGET, .flags = flags, .kvs = kvs, .get = many,
				 .size = 200 };
}

/* One after the other: 200 values alone would take 2 s. */
static void reads_of_one_operation_overlap(void)
{
	struct kvdb_kvs *kvs = cold_store(KEYS, "capacity:lat=10ms");
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	struct kvdb_cqe e;
	long ms = 600;

	T_OK(kvs != NULL);
	T_EQ(kvdb_cq_open(kh_db, 256, 0, &cq), 0);
	for (unsigned turn = 0; turn < TURNS && ms >= 600; turn++) {
		ms = ms_of(mget_op(kvs, turn, 0), &e);
		printf("# 200 keys at once, %ld ms\n", ms);
		T_EQ(e.err, 0);
		for (unsigned i = 0; i < 200; i++) {
			T_EQ(many[i].err, 0);
			T_OK(val_is(many_shot[i].val, many[i].vlen, turn + i * 20));
		}
	}
	T_OK(ms < 600);
	o.limit = 200;
	o.flen = 1;
	ms = 600;
	for (unsigned turn = 0; turn < TURNS && ms >= 600; turn++) {
		o.from = &"87654"[turn];
		ms = ms_of(scan_op(kvs, &o, sizeof(pairs_out)), &e);
		printf("# 200 pairs, %ld ms\n", ms);
		T_EQ(e.err, 0);
		T_EQ(e.vlen, 200);
	}
	T_OK(ms < 600);
	kvdb_cq_close(cq);
	kh_close();
}

static void one_moment_is_shown_however_long_it_takes(void)
{
	static struct shot s;
	struct kvdb_kvs *kvs = cold_store(KEYS, "capacity:lat=2ms");
	struct kvdb_op op[2];
	struct kvdb_cqe e[2];
	unsigned no;

	T_OK(kvs != NULL);
	T_EQ(kvdb_cq_open(kh_db, 1, 0, &cq), 0);
	op[0] = mget_op(kvs, 0, KVDB_OP_SNAPSHOT);
	op[1] = scan_op(kvs, NULL, sizeof(pairs_out));
	T_EQ(kvdb_cq_submit(cq, op, 2), 2);
	T_EQ(kvdb_cq_reap(cq, e, 2, 0, 0), 0);
	for (unsigned i = 0; i < KEYS; i++)
		T_EQ(i % 2 ? kvdb_put(kvs, s.key, num_key(s.key, i), "new", 3) :
			     kvdb_del(kvs, s.key, num_key(s.key, i)), 0);
	T_EQ(kvdb_put(kvs, "0", 1, "first", 5), 0);
	T_EQ(kvdb_drain(kh_db, 0), 0);
	for (int n = 0; n < 2;)
		n += kvdb_cq_reap(cq, e + n, 2, 1, -1);
	for (unsigned i = 0; i < 200; i++)
		T_OK(!many[i].err && val_is(many_shot[i].val, many[i].vlen, i * 20));
	no = e[0].type == KVDB_OP_SCAN ? 0 : 1;
	T_EQ(e[no].err, -ENOBUFS);
	T_OK(e[no].vlen > 300);
	for (unsigned i = 0; i < e[no].vlen; i++)
		T_EQ(pairs_out.pair[i].vlen, VAL);
	T_OK(*(const char *)pairs_out.pair[0].key == '0' && pairs_out.pair[0].klen > 1);
	kvdb_cq_close(cq);
	kh_close();
}

/* The buffers are the caller's again, and nothing keeps the snapshots. */
static void close_ends_scans_in_flight(void)
{
	struct kvdb_kvs *kvs = cold_store(KEYS, "capacity:lat=20ms");
	struct kvdb_op op[8];

	T_OK(kvs != NULL);
	T_EQ(kvdb_cq_open(kh_db, 2, 0, &cq), 0);
	for (unsigned i = 0; i < 8; i++)
		op[i] = i % 2 ? scan_op(kvs, NULL, sizeof(pairs_out)) :
				mget_op(kvs, 0, KVDB_OP_SNAPSHOT);
	T_EQ(kvdb_cq_submit(cq, op, 8), 8);
	T_EQ(kvdb_kvs_drop(kh_db, "s"), -EBUSY);
	kvdb_cq_close(cq);
	memset(&pairs_out, 0x5a, sizeof(pairs_out));
	memset(many, 0x5a, sizeof(many));
	T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);
	for (size_t i = 0; i < sizeof(pairs_out); i++)
		T_OK(pairs_out.room[i] == 0x5a);
	kh_close();
}

/* Pairs before the one whose read failed are good; of many keys one has the error. */
static void device_error_of_a_scan_comes_behind_good_pairs(void)
{
	unsigned scans = 0, keys = 0;
	struct kvdb_kvs *kvs;
	struct kvdb_cqe e;
	char dev[64];

	T_OK(cold_store(KEYS, NULL) != NULL);
	kh_close();
	for (unsigned after = 2; after < 200 && (scans < 2 || keys < 2); after++) {
		snprintf(dev, sizeof(dev), "capacity:fail=read,after=%u,err=EIO", after);
		kvs = cold_open(dev);
		if (!kvs)
			continue;
		T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
		if (after % 2) {
			e = one(scan_op(kvs, NULL, sizeof(pairs_out)));
			T_OK(e.err == -EIO || e.err == -ENOBUFS);
			scans += e.err == -EIO;
			for (unsigned i = 0; i < e.vlen; i++)
				T_EQ(pairs_out.pair[i].vlen, VAL);
			if (e.err == -EIO)
				T_STREQ(e.error->id, "MP0946");
			T_EQ(one(scan_op(kvs, NULL, sizeof(pairs_out))).err, -ENOBUFS);
		} else {
			T_EQ(one(mget_op(kvs, 0, 0)).err, 0);
			for (unsigned i = 0; i < 200; i++) {
				T_OK(many[i].err == -EIO ||
				     val_is(many_shot[i].val, many[i].vlen, i * 20));
				keys += many[i].err == -EIO;
			}
		}
		kvdb_cq_close(cq);
		kh_close();
	}
	T_OK(scans >= 2 && keys >= 2);
}

/* ---- waiting for others ----------------------------------------------------------- */

static uint64_t fake_ns;

static uint64_t fake_now(void *arg)
{
	(void)arg;
	return __atomic_load_n(&fake_ns, __ATOMIC_RELAXED);
}

static void fake_sleep(void *arg, uint64_t t)
{
	(void)arg;
	if (t > fake_ns)
		fake_ns = t;
}

static void open_manual(void)
{
	static const struct kvdb_clock clock = { fake_now, fake_sleep, NULL, NULL };
	struct kvdb_opts o = kh_opts();

	fake_ns = 1000000000u;
	kh_make(64 * MIB, 0);
	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.clock = &clock;
	th_again();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
}

static void write_is_not_acknowledged_behind_the_gate(void)
{
	struct kvdb_op op;
	struct kvdb_kvs *kvs;
	struct kvdb_cqe e;

	open_manual();
	kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	op = put_op(kvs, "a", "1", 1);
	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	fake_ns += 200000000u;	/* twice the loss bound, without a flush */
	T_EQ(kvdb_cq_reap(cq, &e, 1, 0, 0), 0);
	T_OK(kh_holds_str(kvs, "a", "1"));
	T_EQ(kvdb_poll(kh_db), 1);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 0, 0), 1);
	T_EQ(e.err, 0);
	/* the thread that waits for it does the work */
	op.cookie = 2;
	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	fake_ns += 200000000u;
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, -1), 1);
	T_EQ(e.cookie, 2);
	kvdb_cq_close(cq);
	kh_close();
}

static void durable_write_completes_when_it_is_durable(void)
{
	struct kvdb_op op[2] = { { .type = KVDB_OP_SYNC, .cookie = 2 } };
	struct kvdb_stats a, b;
	struct kvdb_kvs *kvs;
	struct kvdb_cqe e[2];

	open_manual();
	kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	op[1] = op[0];
	op[0] = put_op(kvs, "a", "1", 1);
	op[0].flags = KVDB_OP_DURABLE;
	T_EQ(kvdb_stats(kh_db, &a), 0);
	T_EQ(kvdb_cq_submit(cq, op, 2), 2);
	T_EQ(kvdb_cq_reap(cq, e, 2, 0, 0), 0);
	T_EQ(kvdb_poll(kh_db), 1);
	T_EQ(kvdb_cq_reap(cq, e, 2, 0, 0), 2);
	T_EQ(kvdb_stats(kh_db, &b), 0);
	T_OK(b.durable_epoch > a.durable_epoch);
	T_EQ(b.syncs, a.syncs + 1);
	kvdb_cq_close(cq);
	kh_close();
}

static void many_durable_writes_share_a_flush(void)
{
	static char key[1000][16];
	static struct kvdb_op op[1000];
	static struct kvdb_cqe e[1000];
	struct kvdb_stats a, b;
	struct kvdb_kvs *kvs;

	open_manual();
	kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(key[i], sizeof(key[i]), "key%u", i);
		op[i] = put_op(kvs, key[i], "value", i);
		op[i].flags = KVDB_OP_DURABLE;
	}
	T_EQ(kvdb_stats(kh_db, &a), 0);
	T_EQ(kvdb_cq_submit(cq, op, 1000), 1000);
	T_EQ(kvdb_cq_reap(cq, e, 1000, 0, 0), 0);
	T_EQ(kvdb_poll(kh_db), 1);
	T_EQ(kvdb_cq_reap(cq, e, 1000, 0, 0), 1000);
	for (unsigned i = 0; i < 1000; i++)
		T_EQ(e[i].err, 0);
	T_EQ(kvdb_stats(kh_db, &b), 0);
	T_EQ(b.durable_epoch, a.durable_epoch + 1);
	kvdb_cq_close(cq);
	kh_close();
}

/* More than the budgets hold, without a flush: submit returns all the same. */
static void writes_without_room_wait_in_the_queue(void)
{
	static uint8_t val[65536];
	struct kvdb_op op = { .type = KVDB_OP_PUT, .val = val, .size = sizeof(val) };
	static char key[1024][16];
	struct kvdb_cqe e[64];
	struct kvdb_kvs *kvs;
	struct kvdb_opts o = kh_opts();
	unsigned n = 0, max = 1024;
	struct kvdb_stats st;

	kh_make(512 * MIB, 0);
	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.log_bytes = 16 * MIB;
	th_again();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	op.kvs = kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	for (unsigned i = 0; i < max; i++) {
		snprintf(key[i], sizeof(key[i]), "key%u", i);
		op.key = key[i];
		op.klen = strlen(key[i]);
		op.cookie = i;
		T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
		if (i % 32 == 31)	/* epochs end, memtables do not leave */
			T_EQ(kvdb_sync(kh_db), 0);
	}
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_OK(st.puts < max);
	printf("# %u of %u puts found room\n", (unsigned)st.puts, max);
	while (n < max) {
		int k = kvdb_cq_reap(cq, e, 64, 1, -1);

		T_OK(k > 0);
		for (int i = 0; i < k; i++)
			T_EQ(e[i].err, 0);
		n += (unsigned)k;
	}
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(st.puts, max);
	kvdb_cq_close(cq);
	kh_close();
}

static struct kvdb_op commit_op(struct kvdb_kvs *kvs, const char *key, uint32_t flags)
{
	struct kvdb_op op = { .type = KVDB_OP_COMMIT, .flags = flags };

	T_EQ(kvdb_txn_begin(kh_db, 0, &op.txn), 0);
	if (key)
		T_EQ(kvdb_txn_put(op.txn, kvs, key, strlen(key), "v", 1), 0);
	return op;
}

static void transactions_commit_without_waiting(void)
{
	struct kvdb_op op, clash;
	struct kvdb_kvs *kvs;
	struct kvdb_cqe e;

	open_manual();
	kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	T_EQ(one(commit_op(kvs, "a", 0)).err, 0);
	T_OK(kh_holds_str(kvs, "a", "v"));
	/* nothing was written: nothing to wait for */
	op = commit_op(kvs, NULL, KVDB_OP_DURABLE);
	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 0, 0), 1);
	T_EQ(e.err, 0);
	op = commit_op(kvs, "b", KVDB_OP_DURABLE);
	T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	T_OK(kh_holds_str(kvs, "b", "v"));
	T_EQ(kvdb_cq_reap(cq, &e, 1, 0, 0), 0);
	T_EQ(kvdb_poll(kh_db), 1);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 0, 0), 1);
	T_EQ(e.err, 0);
	/* one that lost a conflict ends with that */
	op = commit_op(kvs, "c", 0);
	T_EQ(kvdb_txn_begin(kh_db, 0, &clash.txn), 0);
	T_EQ(kvdb_txn_put(clash.txn, kvs, "c", 1, "w", 1), -ECANCELED);
	clash.type = KVDB_OP_COMMIT;
	T_EQ(one(op).err, 0);
	T_EQ(one((struct kvdb_op){ .type = KVDB_OP_COMMIT, .txn = clash.txn }).err, -ECANCELED);
	T_EQ(one((struct kvdb_op){ .type = KVDB_OP_COMMIT }).err, -EINVAL);
	T_OK(kh_holds_str(kvs, "c", "v"));
	/* and so does one that is refused: its keys have no owner any more */
	T_EQ(one(commit_op(kvs, "d", ~KVDB_OP_DURABLE)).err, -EINVAL);
	T_EQ(kvdb_put(kvs, "d", 1, "p", 1), 0);
	kvdb_cq_close(cq);
	kh_close();
}

/* The completion with this cookie among @n that are taken. */
static struct kvdb_cqe reap_one(uint64_t cookie, unsigned n)
{
	struct kvdb_cqe e, found = { .err = 1 };

	while (n--) {
		T_EQ(kvdb_cq_reap(cq, &e, 1, 1, -1), 1);
		if (e.cookie == cookie)
			found = e;
	}
	return found;
}

static void a_write_waits_for_the_owner_of_its_key(void)
{
	struct kvdb_op op[4], commit;
	struct kvdb_kvs *kvs;
	struct kvdb_cqe e;
	struct timespec a, b;

	kh_fresh(64 * MIB, 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	commit = commit_op(kvs, "owned", 0);
	op[0] = put_op(kvs, "owned", "plain", 0);
	op[1] = put_op(kvs, "free", "plain", 1);
	op[2] = (struct kvdb_op){ .type = KVDB_OP_SYNC, .cookie = 2 };
	op[3] = put_op(kvs, "later", "plain", 3);
	T_EQ(kvdb_cq_submit(cq, op, 4), 4);
	T_EQ(reap_one(1, 2).err, 0);
	T_OK(kh_holds_str(kvs, "free", "plain") && kh_holds_str(kvs, "later", "plain"));
	/* the sync covers it */
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, 20000000), 0);
	T_EQ(kvdb_txn_commit(commit.txn, 0, NULL), 0);
	T_EQ(reap_one(0, 2).err, 0);
	T_OK(kh_holds_str(kvs, "owned", "plain"));
	/* not for ever */
	commit = commit_op(kvs, "owned", 0);
	clock_gettime(CLOCK_MONOTONIC, &a);
	e = one(op[0]);
	T_EQ(e.err, -ECANCELED);
	T_STREQ(e.error->id, "MP0921");
	clock_gettime(CLOCK_MONOTONIC, &b);
	T_OK((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >= 1000);
	/* nor longer than the queue */
	T_EQ(kvdb_cq_submit(cq, op, 1), 1);
	kvdb_cq_close(cq);
	kvdb_txn_abort(commit.txn);
	T_OK(kh_holds_str(kvs, "owned", "plain"));
	kh_close();
}

static void *commit_later(void *txn)
{
	const struct timespec nap = { .tv_nsec = 50000000 };

	nanosleep(&nap, NULL);
	T_EQ(kvdb_txn_commit(txn, 0, NULL), 0);
	return NULL;
}

/* Another thread ends the wait, and the queue does not poll meanwhile. */
static void a_queue_sleeps_until_its_key_is_free(void)
{
	struct rusage before, after;
	struct kvdb_op op, commit;
	struct kvdb_kvs *kvs;
	struct kvdb_cqe e;
	struct pollfd fd = { .events = POLLIN };
	struct kvdb_opts o = kh_opts();
	pthread_t tid;

	kh_make(64 * MIB, 0);
	o.interval_ms = 60000;	/* an epoch that ends would wake it too */
	th_again();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	op = put_op(kvs, "owned", "plain", 0);
	getrusage(RUSAGE_THREAD, &before);
	for (unsigned i = 0; i < 8; i++) {
		commit = commit_op(kvs, "owned", 0);
		T_EQ(pthread_create(&tid, NULL, commit_later, commit.txn), 0);
		T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
		/* both ways of sleeping; without a word it would take a second */
		if (i & 1) {
			fd.fd = kvdb_cq_fd(cq);
			T_EQ(poll(&fd, 1, 600), 1);
		}
		T_EQ(kvdb_cq_reap(cq, &e, 1, 1, 600000000), 1);
		T_EQ(e.err, 0);
		pthread_join(tid, NULL);
	}
	getrusage(RUSAGE_THREAD, &after);
	printf("# %ld sleeps\n", after.ru_nvcsw - before.ru_nvcsw);
	T_OK(after.ru_nvcsw - before.ru_nvcsw < 8 * 12);
	kvdb_cq_close(cq);
	kh_close();
}

static void a_commit_may_stand_behind_the_write_that_waits_for_it(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb_op op[2];
	struct pollfd fd = { .events = POLLIN };

	kh_fresh(64 * MIB, 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	fd.fd = kvdb_cq_fd(cq);
	op[1] = commit_op(kvs, "k", 0);
	op[1].cookie = 1;
	op[0] = put_op(kvs, "k", "plain", 0);
	T_EQ(kvdb_cq_submit(cq, op, 2), 2);
	T_EQ(poll(&fd, 1, 900), 1);
	T_EQ(reap_one(1, 1).err, 0);
	T_EQ(poll(&fd, 1, 900), 1);
	T_EQ(reap_one(0, 1).err, 0);
	T_OK(kh_holds_str(kvs, "k", "plain"));
	kvdb_cq_close(cq);
	kh_close();
}

int main(void)
{
	KH_RUN_MODES(operations_complete_with_their_results);
	T_RUN(what_is_in_memory_completes_inside_submit);
	T_RUN(wrong_operations_fail_by_themselves);
	T_RUN(thousands_in_flight_on_several_queues);
	TH_RUN_FILES(reads_of_a_slow_device_overlap);
	TH_RUN_FILES(reads_of_one_queue_overlap);
	TH_RUN_FILES(hundreds_are_waited_for_with_one_call);
	T_RUN(event_loop_sleeps_in_poll);
	TH_RUN_FILES(close_ends_what_is_in_flight);
	TH_RUN_FILES(device_error_reaches_one_operation);
	T_RUN(scans_show_what_a_cursor_shows);
	TH_RUN_FILES(reads_of_one_operation_overlap);
	TH_RUN_FILES(one_moment_is_shown_however_long_it_takes);
	TH_RUN_FILES(close_ends_scans_in_flight);
	TH_RUN_FILES(device_error_of_a_scan_comes_behind_good_pairs);
	T_RUN(write_is_not_acknowledged_behind_the_gate);
	T_RUN(durable_write_completes_when_it_is_durable);
	T_RUN(transactions_commit_without_waiting);
	T_RUN(a_write_waits_for_the_owner_of_its_key);
	T_RUN(a_queue_sleeps_until_its_key_is_free);
	T_RUN(a_commit_may_stand_behind_the_write_that_waits_for_it);
	T_RUN(many_durable_writes_share_a_flush);
	T_RUN(writes_without_room_wait_in_the_queue);
	th_clean();
	return t_done();
}
