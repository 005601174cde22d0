/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Stores with compression: values of every size come back the same from every
 * reader, before and after they moved.
 */
#include "harness.h"

#include <errno.h>

#include "kvdb_help.h"

#define POOL	(256 * MIB)
#define ROUNDS	3u

static const uint32_t sizes[] = { 0, 1, 127, 128, 129, 130, 150, 1000, 4095, 4096, 4097, 16384,
				  16385, 65535, 65536, 65537, 131072, 500000, 1 << 20 };
#define SIZES	(sizeof(sizes) / sizeof(sizes[0]))
#define KEYS	(8 * SIZES)

static uint32_t version[KEYS];
static uint8_t *want;

/* By turns runs of bytes, text of few letters, and noise. */
static const uint8_t *value(unsigned k)
{
	uint64_t seed = (uint64_t)version[k] << 32 | k;
	uint32_t len = sizes[k % SIZES];

	for (uint32_t i = 0; i < len; i++) {
		if (i % (k % 3 ? 16 : 1) == 0 || !i)
			want[i] = (uint8_t)t_rand(&seed);
		else
			want[i] = k % 3 == 1 ? want[i - 1] : (uint8_t)('a' + i * 7 % 13);
	}
	return want;
}

static size_t key_of(unsigned k, char *key)
{
	return (size_t)sprintf(key, "%06u", k);
}

static void put_some(struct kvdb_kvs *kvs, unsigned first, unsigned step)
{
	char key[16];

	for (unsigned k = first; k < KEYS; k += step) {
		version[k]++;
		T_EQ(kvdb_put(kvs, key, key_of(k, key), value(k), sizes[k % SIZES]), 0);
	}
}

static void is_value(unsigned k, const void *val, size_t len)
{
	T_EQ(len, sizes[k % SIZES]);
	T_OK(!len || !memcmp(val, value(k), len));
}

static void all_readers_agree(struct kvdb_kvs *kvs)
{
	struct kvdb_cursor *c;
	struct kvdb_get get[KEYS];
	char keys[KEYS][16];
	struct kvdb_pin pin;
	size_t klen, vlen;
	const void *key, *val;

	memset(get, 0, sizeof(get));
	for (unsigned k = 0; k < KEYS; k++) {
		get[k].key = keys[k];
		get[k].klen = key_of(k, keys[k]);
		get[k].size = sizes[k % SIZES];
		get[k].buf = malloc(get[k].size + 1);
		T_EQ(kvdb_get(kvs, keys[k], get[k].klen, kh_buf, sizeof(kh_buf), &vlen), 0);
		is_value(k, kh_buf, vlen);
		T_EQ(kvdb_get_pinned(kvs, keys[k], get[k].klen, &pin), 0);
		is_value(k, pin.val, pin.vlen);
		kvdb_unpin(&pin);
	}
	T_EQ(kvdb_get_multi(kvs, 0, get, KEYS), 0);
	for (unsigned k = 0; k < KEYS; k++) {
		T_EQ(get[k].err, 0);
		is_value(k, get[k].buf, get[k].vlen);
		free(get[k].buf);
	}
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
	for (unsigned k = 0; k < KEYS; k++) {
		T_EQ(kvdb_cursor_next(c, &key, &klen, &val, &vlen), 0);
		T_OK(klen == 6 && !memcmp(key, keys[k], 6));
		is_value(k, val, vlen);
	}
	T_EQ(kvdb_cursor_next(c, &key, &klen, &val, &vlen), -ENOENT);
	kvdb_cursor_close(c);
}

static void queue_agrees(struct kvdb_kvs *kvs)
{
	struct kvdb_op op = { .type = KVDB_OP_GET, .kvs = kvs };
	uint8_t *buf[KEYS];
	char keys[KEYS][16];
	struct kvdb_cqe e;
	struct kvdb_cq *cq;

	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	for (unsigned k = 0; k < KEYS; k++) {
		op.key = keys[k];
		op.klen = key_of(k, keys[k]);
		op.size = sizes[k % SIZES];
		op.buf = buf[k] = malloc(op.size + 1);
		op.cookie = k;
		T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
	}
	for (unsigned i = 0; i < KEYS; i++) {
		T_EQ(kvdb_cq_reap(cq, &e, 1, 1, -1), 1);
		T_EQ(e.err, 0);
		is_value((unsigned)e.cookie, buf[e.cookie], e.vlen);
		free(buf[e.cookie]);
	}
	kvdb_cq_close(cq);
}

static void checkpoint_agrees(struct kvdb_opts o)
{
	struct kvdb *live = kh_db;
	struct kvdb_kvs *kvs;
	struct kvdb *old;

	o.checkpoint = "then";
	o.flags = KVDB_RDONLY;
	T_EQ(kvdb_open(th_pool, &o, &old), 0);
	T_EQ(kvdb_kvs_open(old, "s", &kvs), 0);
	kh_db = old;
	all_readers_agree(kvs);
	kh_db = live;
	T_EQ(kvdb_close(old), 0);
}

static void store_with(uint32_t how)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	struct kvdb_opts c = KVDB_OPTS_INIT;
	struct kvdb_kvs *kvs;
	struct kvdb_stats st;

	memset(version, 0, sizeof(version));
	th_fresh();
	T_EQ(th_create_at(th_pool, POOL, 0), 0);
	c.segment_bytes = 4 * MIB;	/* of many values, so that some of each move */
	T_EQ(kvdb_create(th_pool, &c), 0);
	kh_open();
	o.compress = how;
	T_EQ(kvdb_kvs_create(kh_db, "s", &o), 0);
	kvs = kh_kvs("s");
	put_some(kvs, 0, 1);
	all_readers_agree(kvs);
	for (unsigned i = 0; i < ROUNDS; i++) {
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		put_some(kvs, i, 2);
		T_EQ(kvdb_compact(kh_db, KVDB_COMPACT_WAIT), 0);
		all_readers_agree(kvs);
	}
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_OK(how ? st.pack_in_bytes > st.pack_out_bytes && st.pack_out_bytes : !st.pack_in_bytes);
	T_EQ(kvdb_checkpoint(kh_db, "then", 0), 0);
	kh_close();
	checkpoint_agrees(kh_opts());
	kh_open();
	queue_agrees(kh_kvs("s"));
	all_readers_agree(kh_kvs("s"));
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

static void plain_store(void)
{
	store_with(KVDB_COMPRESS_NONE);
}

static void lz4_store(void)
{
	store_with(KVDB_COMPRESS_LZ4);
}

static void zstd_store(void)
{
	store_with(KVDB_COMPRESS_ZSTD);
}

int main(void)
{
	want = malloc(1 << 20);
	T_RUN(plain_store);
	T_RUN(lz4_store);
	T_RUN(zstd_store);
	free(want);
	return t_done();
}
