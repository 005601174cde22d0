/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Values above 1 MiB: the same from every reader, by every way in, before and
 * after they moved, over reopening and death; in little memory; and what a pool
 * that is too small for one says.
 */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include <sys/resource.h>

#include "kvdb_help.h"

#define POOL	(768 * MIB)
#define PLAIN	(1u << 20)	/* longer ones are what this is about */

static const uint32_t sizes[] = { PLAIN, PLAIN + 1, 3000000, KVDB_VALUE_MAX - 1, KVDB_VALUE_MAX };
#define SIZES	(sizeof(sizes) / sizeof(sizes[0]))

static uint64_t version;

static size_t key_of(unsigned i, char *key)
{
	return (size_t)sprintf(key, "large%u", i);
}

/* A quarter of it shrinks. */
static const uint8_t *value(unsigned i)
{
	kh_value(version * SIZES + i, sizes[i]);
	memset(kh_want + sizes[i] / 2, (int)i, sizes[i] / 4);
	return kh_want;
}

static bool is_value(unsigned i, const void *val, size_t len)
{
	return len == sizes[i] && !memcmp(val, value(i), len);
}

static void put_all(struct kvdb_kvs *kvs)
{
	char key[16];

	version++;
	for (unsigned i = 0; i < SIZES; i++)
		T_EQ(kvdb_put(kvs, key, key_of(i, key), value(i), sizes[i]), 0);
}

static void check_cursor(struct kvdb_kvs *kvs)
{
	struct kvdb_cursor *c;
	const void *key, *val;
	size_t klen, vlen;

	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
	for (unsigned i = 0; i < SIZES; i++) {
		T_EQ(kvdb_cursor_next(c, &key, &klen, &val, &vlen), 0);
		T_OK(is_value(i, val, vlen));
	}
	T_EQ(kvdb_cursor_next(c, &key, &klen, &val, &vlen), -ENOENT);
	kvdb_cursor_close(c);
}

static void check_queue(struct kvdb_kvs *kvs)
{
	struct kvdb_op op = { .type = KVDB_OP_GET, .kvs = kvs, .buf = kh_buf,
			      .size = sizeof(kh_buf) };
	struct kvdb_cqe done;
	struct kvdb_cq *cq;
	char key[16];

	T_EQ(kvdb_cq_open(kh_db, 4, 0, &cq), 0);
	for (unsigned i = 0; i < SIZES; i++) {
		op.key = key;
		op.klen = key_of(i, key);
		T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
		T_EQ(kvdb_cq_reap(cq, &done, 1, 1, -1), 1);
		T_EQ(done.err, 0);
		T_OK(is_value(i, kh_buf, done.vlen));
	}
	kvdb_cq_close(cq);
}

static void check_all(struct kvdb_kvs *kvs)
{
	struct kvdb_get get[SIZES];
	char key[SIZES][16];
	struct kvdb_pin pin;
	size_t len;

	memset(get, 0, sizeof(get));
	for (unsigned i = 0; i < SIZES; i++) {
		get[i].key = key[i];
		get[i].klen = key_of(i, key[i]);
		get[i].size = sizes[i];
		get[i].buf = malloc(sizes[i]);
		T_EQ(kvdb_get(kvs, key[i], get[i].klen, kh_buf, sizeof(kh_buf), &len), 0);
		T_OK(is_value(i, kh_buf, len));
		T_EQ(kvdb_get(kvs, key[i], get[i].klen, kh_buf, 100, &len), 0);
		T_OK(len == sizes[i] && !memcmp(kh_buf, kh_want, 100));
		T_EQ(kvdb_get_pinned(kvs, key[i], get[i].klen, &pin), 0);
		T_OK(is_value(i, pin.val, pin.vlen));
		kvdb_unpin(&pin);
	}
	T_EQ(kvdb_get_multi(kvs, 0, get, SIZES), 0);
	for (unsigned i = 0; i < SIZES; i++) {
		T_EQ(get[i].err, 0);
		T_OK(is_value(i, get[i].buf, get[i].vlen));
		free(get[i].buf);
	}
	check_cursor(kvs);
	check_queue(kvs);
}

static void every_reader_sees_them(void)
{
	struct kvdb_kvs *kvs;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	put_all(kvs);
	check_all(kvs);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	check_all(kvs);
	put_all(kvs);
	kh_close();
	kh_open();
	kvs = kh_kvs("s");
	check_all(kvs);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
}

static void too_long_is_refused(void)
{
	struct kvdb_kvs *kvs;
	size_t len;

	kh_fresh(64 * MIB, 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_put(kvs, "k", 1, kh_want, KVDB_VALUE_MAX + 1), -E2BIG);
	T_STREQ(kvdb_error_detail()->id, "MP0912");
	T_EQ(kvdb_get(kvs, "k", 1, kh_buf, 1, &len), -ENOENT);
	kh_close();
}

/* ---- ways in -------------------------------------------------------------------------------- */

static void put_and_die(void)
{
	put_all(kh_kvs("s"));
	T_EQ(kvdb_sync(kh_db), 0);
}

static void they_survive_the_process(void)
{
	kh_make(POOL, 0);
	kh_die_in(put_and_die);
	version++;
	kh_open();
	check_all(kh_kvs("s"));
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
}

static int longer(void *arg, const void *val, size_t vlen, const void **out, size_t *olen)
{
	uint8_t **buf = arg;

	*buf = realloc(*buf, vlen + 1000000);
	if (vlen)
		memcpy(*buf, val, vlen);
	memset(*buf + vlen, (int)(vlen / 1000000), 1000000);
	*out = *buf;
	*olen = vlen + 1000000;
	return KVDB_UPDATE_PUT;
}

static void an_update_makes_one_longer_and_longer(void)
{
	struct kvdb_kvs *kvs;
	uint8_t *buf = NULL;
	size_t len;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	for (unsigned i = 0; i < 16; i++)
		T_EQ(kvdb_update(kvs, "k", 1, longer, &buf), 0);
	T_EQ(kvdb_update(kvs, "k", 1, longer, &buf), -E2BIG);
	T_EQ(kvdb_get(kvs, "k", 1, kh_buf, sizeof(kh_buf), &len), 0);
	T_EQ(len, 16000000);
	for (size_t i = 0; i < len; i++)
		T_OK(kh_buf[i] == i / 1000000);
	free(buf);
	kh_close();
}

/* What the values of a transaction may hold of the logs is more than all of them (MP0924). */
static void a_transaction_writes_and_reads_them(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb_kvs *kvs;
	struct kvdb_txn *t;
	char key[16];
	size_t len;

	kh_make(POOL, 0);
	o.log_bytes = 256 * MIB;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_txn_begin(kh_db, 0, &t), 0);
	version++;
	for (unsigned i = 0; i < SIZES; i++) {
		T_EQ(kvdb_txn_put(t, kvs, key, key_of(i, key), value(i), sizes[i]), 0);
		T_EQ(kvdb_txn_get(t, kvs, key, key_of(i, key), kh_buf, sizeof(kh_buf), &len), 0);
		T_OK(is_value(i, kh_buf, len));
		T_OK(kh_absent(kvs, key, key_of(i, key)));
	}
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	check_all(kvs);
	kh_close();
	kh_open();
	check_all(kh_kvs("s"));
	kh_close();
}

static void a_queue_takes_more_than_there_is_memory_for(void)
{
	struct kvdb_op op[SIZES] = { { 0 } };
	struct kvdb_cqe done[SIZES];
	uint8_t *val[SIZES];
	struct kvdb_kvs *kvs;
	struct kvdb_cq *cq;
	char key[SIZES][16];
	int n = 0;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	version++;
	for (unsigned i = 0; i < SIZES; i++) {
		val[i] = malloc(sizes[i]);
		memcpy(val[i], value(i), sizes[i]);
		op[i] = (struct kvdb_op){ .type = KVDB_OP_PUT, .kvs = kvs, .key = key[i],
					  .klen = key_of(i, key[i]), .val = val[i],
					  .size = sizes[i] };
	}
	T_EQ(kvdb_cq_open(kh_db, 4, 0, &cq), 0);
	T_EQ(kvdb_cq_submit(cq, op, SIZES), (int)SIZES);
	while (n < (int)SIZES) {
		int k = kvdb_cq_reap(cq, done, SIZES, 1, -1);

		T_OK(k > 0);
		for (int i = 0; i < k; i++)
			T_EQ(done[i].err, 0);
		n += k;
	}
	kvdb_cq_close(cq);
	for (unsigned i = 0; i < SIZES; i++)
		free(val[i]);
	check_all(kvs);
	kh_close();
}

static void a_bulk_load_brings_them(void)
{
	struct kvdb_bulk *b;
	struct kvdb_kvs *kvs;
	char key[16];

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	version++;
	for (unsigned i = 0; i < SIZES; i++)
		T_EQ(kvdb_bulk_add(b, key, key_of(i, key), value(i), sizes[i]), 0);
	T_EQ(kvdb_bulk_finish(b), 0);
	check_all(kvs);
	kh_close();
	kh_open();
	check_all(kh_kvs("s"));
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
}

/* ---- moves, checkpoints ---------------------------------------------------------------------- */

/* From staging to capacity, and packed. */
static void they_move_and_are_packed(void)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	struct kvdb_opts c = kh_opts();
	struct kvdb *live, *old;
	struct kvdb_stats st;
	struct kvdb_kvs *kvs;

	kh_fresh(POOL, 256 * MIB);
	o.compress = KVDB_COMPRESS_ZSTD;
	o.policy = KVDB_POLICY_STAGING_ONLY;
	T_EQ(kvdb_kvs_create(kh_db, "s", &o), 0);
	kvs = kh_kvs("s");
	put_all(kvs);
	o.policy = KVDB_POLICY_CAPACITY_ONLY;
	T_EQ(kvdb_kvs_set(kvs, &o, KVDB_KVS_POLICY), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	for (unsigned i = 0; i < 600; i++) {
		T_EQ(kvdb_stats(kh_db, &st), 0);
		if (!st.space[MPOOL_STAGING].live_value_bytes)
			break;
		usleep(50000);
	}
	T_EQ(st.space[MPOOL_STAGING].live_value_bytes, 0);
	check_all(kvs);
	T_OK(st.pack_in_bytes && st.pack_out_bytes < st.pack_in_bytes);
	T_EQ(kvdb_checkpoint(kh_db, "then", 0), 0);
	c.checkpoint = "then";
	c.flags = KVDB_RDONLY;
	T_EQ(kvdb_open(th_pool, &c, &old), 0);
	T_EQ(kvdb_kvs_open(old, "s", &kvs), 0);
	live = kh_db;
	kh_db = old;
	check_all(kvs);
	kh_db = live;
	T_EQ(kvdb_close(old), 0);
	kh_close();
	kh_open();
	check_all(kh_kvs("s"));
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
}

/* ---- memory, space ------------------------------------------------------------------- */

#define OVER	(18 * MIB)	/* one value, and what is small */

/* L5: only the writer ends epochs here. */
static void images_are_let_go_of_before_there_are_many(void)
{
	uint64_t most = 0, before;
	struct kvdb_stats st;
	struct kvdb_kvs *kvs;
	char key[16];

	kh_mode = &kh_modes[3];
	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_stats(kh_db, &st), 0);
	before = st.window_bytes;
	for (unsigned i = 0; i < 12; i++) {
		T_EQ(kh_put(kvs, key, key_of(i, key), i, KVDB_VALUE_MAX), 0);
		T_EQ(kvdb_stats(kh_db, &st), 0);
		most = st.window_bytes > most ? st.window_bytes : most;
	}
	kh_mode = &kh_modes[0];
	T_OK(most >= KVDB_VALUE_MAX);
	T_OK(most - before <= OVER);
	for (unsigned i = 0; i < 12; i++)
		T_OK(kh_holds(kvs, key, key_of(i, key), i, KVDB_VALUE_MAX));
	kh_close();
}

/* Its memory is cleared once, not for each value, and goes back when no more come. */
static void images_are_used_again(void)
{
	enum { N = 200, AFTER = 20 };
	struct rusage from, to;
	struct kvdb_stats st;
	struct kvdb_kvs *kvs;
	uint64_t most = 0;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	for (unsigned i = 0; i < N + AFTER; i++) {
		if (i == AFTER)
			getrusage(RUSAGE_SELF, &from);
		T_EQ(kvdb_put(kvs, &(unsigned){ i % 8 }, sizeof(i), kh_buf, MIB), 0);
		T_EQ(kvdb_stats(kh_db, &st), 0);
		most = st.spare_bytes > most ? st.spare_bytes : most;
	}
	getrusage(RUSAGE_SELF, &to);
	printf("# %.0f page faults for each\n", (double)(to.ru_minflt - from.ru_minflt) / N);
	T_OK(to.ru_minflt - from.ru_minflt < N * (long)(MIB / 4096) / 2);
	T_EQ(kvdb_sync(kh_db), 0);
	/* those that are being let go of are spare for a while, too */
	for (unsigned i = 0; i < 600 && (!i || st.spare_bytes + MIB > most); i++) {
		usleep(20000);
		T_EQ(kvdb_stats(kh_db, &st), 0);
		most = st.spare_bytes > most ? st.spare_bytes : most;
	}
	T_OK(st.spare_bytes + MIB <= most);
	kh_close();
}

#define SMALL	200000u		/* more than is copied while an epoch lasts, many in a segment */

static void put_sized(struct kvdb_kvs *kvs, unsigned i, uint32_t size)
{
	char key[16];

	T_EQ(kh_put(kvs, key, key_of(i, key), i, size), 0);
}

/* L7: a segment each would be a commit of the pool's metadata each. */
static void small_ones_share_segments(void)
{
	struct kvdb_stats st;
	struct kvdb_kvs *kvs;
	uint64_t before;
	char key[16];

	kh_mode = &kh_modes[3];
	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	put_sized(kvs, 0, SMALL);
	T_EQ(kvdb_stats(kh_db, &st), 0);
	before = st.segments;
	for (unsigned i = 1; i < 64; i++)
		put_sized(kvs, i, SMALL + i);
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_OK(st.segments - before <= 64 / 4);
	T_EQ(kvdb_sync(kh_db), 0);
	for (unsigned gen = 0; gen < 2; gen++) {
		for (unsigned i = 0; i < 64; i++)
			T_OK(kh_holds(kvs, key, key_of(i, key), i, SMALL + i));
		kh_close();
		kh_mode = &kh_modes[0];
		T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
		kh_open();
		kvs = kh_kvs("s");
	}
	kh_close();
}

/* L5: the image of a shared segment that is not full leaves no room for the largest. */
static void the_largest_has_its_turn_beside_small_ones(void)
{
	struct kvdb_kvs *kvs;
	char key[16];

	kh_mode = &kh_modes[0];
	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	for (unsigned i = 0; i < 4; i++)
		put_sized(kvs, i, i % 2 ? KVDB_VALUE_MAX : SMALL);
	for (unsigned i = 0; i < 4; i++)
		T_OK(kh_holds(kvs, key, key_of(i, key), i, i % 2 ? KVDB_VALUE_MAX : SMALL));
	kh_close();
}

static struct kvdb_kvs *shared;

static void *put_many(void *arg)
{
	unsigned n = *(unsigned *)arg;
	uint8_t *val = malloc(6 * MIB);
	char key[16];
	int err = 0;

	memset(val, (int)n, 6 * MIB);
	for (unsigned i = 0; i < 12 && !err; i++) {
		key_of(100 * n + i, key);
		err = kvdb_put(shared, key, strlen(key), val, (n + 1) * 100000 + i * MIB / 3);
	}
	free(val);
	return err ? arg : NULL;
}

static void writers_share_little_memory(void)
{
	pthread_t thread[6];
	unsigned no[6];
	struct kvdb_stats st;
	void *failed;

	kh_fresh(POOL, 0);
	shared = kh_kvs("s");
	for (unsigned i = 0; i < 6; i++) {
		no[i] = i;
		T_EQ(pthread_create(&thread[i], NULL, put_many, &no[i]), 0);
	}
	for (unsigned i = 0; i < 6; i++) {
		pthread_join(thread[i], &failed);
		T_OK(!failed);
		T_EQ(kvdb_stats(kh_db, &st), 0);
		T_OK(st.memory_bytes <= 64 * MIB + OVER);
	}
	T_EQ(kh_count(shared, 0), 72);
	kh_close();
}

static void a_pool_that_is_too_small_says_so(void)
{
	struct kvdb_kvs *kvs;
	size_t len;

	kh_fresh(20 * MIB, 0);
	kvs = kh_kvs("s");
	T_EQ(kh_put(kvs, "k", 1, 1, KVDB_VALUE_MAX), -ENOSPC);
	T_STREQ(kvdb_error_detail()->id, "MP0996");
	T_EQ(kvdb_get(kvs, "k", 1, kh_buf, 1, &len), -ENOENT);
	T_EQ(kh_put(kvs, "k", 1, 2, 2 * MIB), 0);
	T_OK(kh_holds(kvs, "k", 1, 2, 2 * MIB));
	kh_close();
	T_EQ(kh_damage(0), 0);
}

int main(void)
{
	T_RUN(every_reader_sees_them);
	T_RUN(too_long_is_refused);
	T_RUN(they_survive_the_process);
	T_RUN(an_update_makes_one_longer_and_longer);
	T_RUN(a_transaction_writes_and_reads_them);
	T_RUN(a_queue_takes_more_than_there_is_memory_for);
	T_RUN(a_bulk_load_brings_them);
	T_RUN(they_move_and_are_packed);
	T_RUN(images_are_let_go_of_before_there_are_many);
	T_RUN(images_are_used_again);
	T_RUN(small_ones_share_segments);
	T_RUN(the_largest_has_its_turn_beside_small_ones);
	T_RUN(writers_share_little_memory);
	T_RUN(a_pool_that_is_too_small_says_so);
	return t_done();
}
