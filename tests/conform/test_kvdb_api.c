/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every public function of kvdb.h and every error that its comment promises,
 * and that an error changes nothing.
 */
#include "kvdb_fails.h"

/* Options of @size bytes at the end of what can be read. */
static void *opts_at_end(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	T_OK(p != MAP_FAILED);
	T_EQ(mprotect(p + page, page, PROT_NONE), 0);
	memcpy(p + page - sizeof(size), &size, sizeof(size));
	return p + page - sizeof(size);
}

/* ---- create, open, drop ------------------------------------------------------------ */

static void create_and_open_say_what_is_missing(void)
{
	struct kvdb *db = untouched;
	uint64_t damage = 77;

	th_fresh();
	FAILS(kvdb_create(th_pool, NULL), -ENOENT);
	FAILS(kvdb_open(th_pool, NULL, &db), -ENOENT);
	FAILS(kvdb_drop(th_pool, NULL), -ENOENT);
	FAILS(kvdb_verify(th_pool, NULL, 0, NULL, NULL, &damage), -ENOENT);
	FAILS(kvdb_create(NULL, NULL), -EINVAL);
	FAILS(kvdb_open(NULL, NULL, &db), -EINVAL);
	T_EQ(th_create_at(th_pool, POOL, 0), 0);
	FAILS(kvdb_open(th_pool, NULL, &db), -ENOENT);
	FAILS(kvdb_drop(th_pool, NULL), -ENOENT);
	FAILS(kvdb_verify(th_pool, NULL, 0, NULL, NULL, &damage), -ENOENT);
	T_EQ(damage, 77);
	T_OK(db == untouched);
	T_EQ(kvdb_create(th_pool, NULL), 0);
	FAILS(kvdb_create(th_pool, NULL), -EEXIST);
	kh_open();
	end();
	T_OK(strchr(kvdb_version(), '.') != NULL);
}

/* How its pool is opened the database decides: the pool's flags would go past its locks. */
static void flags_of_the_pool_are_the_databases(void)
{
	struct mpool_open_opts mo = MPOOL_OPEN_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb *db = untouched;

	kh_fresh(POOL, 0);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	o.pool = &mo;
	o.flags = KVDB_RDONLY;
	mo.flags = MPOOL_OPEN_RDONLY | MPOOL_OPEN_SHARED;
	FAILS(kvdb_open(th_pool, &o, &db), -EINVAL);
	kh_close();
	FAILS(kvdb_open(th_pool, &o, &db), -EINVAL);
	o.flags = 0;
	mo.flags = MPOOL_OPEN_RDONLY;
	FAILS(kvdb_open(th_pool, &o, &db), -EINVAL);
	FAILS(kvdb_drop(th_pool, &o), -EINVAL);
	T_OK(db == untouched);
	o.flags = KVDB_RDONLY;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	T_OK(kh_holds_str(kh_kvs("s"), "k", "v"));
	kh_close();
	kh_open();
	end();
}

/* No thread can do anything here without a key: that is told, and does not end the program. */
static void open_without_a_key(void)
{
	static pthread_key_t key[4096];
	struct kvdb_repair rp;
	struct kvdb *db = untouched;
	uint64_t damage;
	unsigned n = 0;

	while (n < 4096 && !pthread_key_create(&key[n], NULL))
		n++;
	T_OK(n && n < 4096);
	FAILS(kvdb_open(th_pool, NULL, &db), -EAGAIN);
	T_STREQ(kvdb_error_detail()->id, "MP0998");
	FAILS(kvdb_verify(th_pool, NULL, 0, NULL, NULL, &damage), -EAGAIN);
	FAILS(kvdb_repair(th_pool, NULL, NULL, NULL, NULL, &rp), -EAGAIN);
	T_EQ(pthread_key_delete(key[n / 2]), 0);
	T_EQ(kvdb_open(th_pool, NULL, &db), 0);
	T_EQ(kvdb_close(db), 0);
}

static void nothing(void)
{
}

/* First: once a program has opened a database the key is there. */
static void a_program_may_have_taken_all_keys(void)
{
	kh_make(POOL, 0);
	t_die_in(nothing, open_without_a_key);
	kh_open();
	end();
}

/* Of a program that knows less options than the library. */
static void options_of_another_size_are_not_read_further(void)
{
	void *few = opts_at_end(sizeof(size_t));
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_cursor *cur;
	struct kvdb *db = untouched;
	struct kvdb_repair rp;
	struct kvdb_txn *txn;
	struct mpool *mp;
	uint64_t damage;

	kh_make(POOL, 0);
	FAILS(kvdb_open(th_pool, few, &db), -EINVAL);
	FAILS(kvdb_create(th_pool, few), -EINVAL);
	FAILS(kvdb_drop(th_pool, few), -EINVAL);
	FAILS(kvdb_verify(th_pool, few, 0, NULL, NULL, &damage), -EINVAL);
	FAILS(kvdb_repair(th_pool, few, NULL, NULL, NULL, &rp), -EINVAL);
	o.pool = few;
	FAILS(kvdb_open(th_pool, &o, &db), -EINVAL);
	FAILS(kvdb_drop(th_pool, &o), -EINVAL);
	T_EQ(mpool_open(th_pool, few, &mp), -EINVAL);
	T_EQ(mpool_destroy(th_pool, few), -EINVAL);
	kh_open();
	FAILS(kvdb_kvs_create(kh_db, "t", few), -EINVAL);
	FAILS(kvdb_kvs_set(kh_kvs("s"), few, KVDB_KVS_TTL), -EINVAL);
	FAILS(kvdb_cursor_open_opts(kh_kvs("s"), few, &cur), -EINVAL);
	T_EQ(kvdb_txn_begin(kh_db, 0, &txn), 0);
	FAILS(kvdb_txn_cursor_open_opts(txn, kh_kvs("s"), few, &cur), -EINVAL);
	kvdb_txn_abort(txn);
	end();
}

static void a_database_is_open_once(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb *db = untouched;
	uint64_t damage;

	kh_fresh(POOL, 0);
	FAILS(kvdb_open(th_pool, NULL, &db), -EBUSY);
	FAILS(kvdb_create(th_pool, NULL), -EBUSY);
	FAILS(kvdb_drop(th_pool, NULL), -EBUSY);
	FAILS(kvdb_verify(th_pool, NULL, 0, NULL, NULL, &damage), -EBUSY);
	o.flags |= KVDB_RDONLY;
	FAILS(kvdb_open(th_pool, &o, &db), -EBUSY);
	T_OK(db == untouched);
	kh_close();
	/* readers share, and keep a writer out */
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	T_EQ(kvdb_open(th_pool, &o, &db), 0);
	T_EQ(kvdb_close(db), 0);
	FAILS(kvdb_open(th_pool, NULL, &db), -EBUSY);
	end();
}

static void drop_leaves_an_empty_pool(void)
{
	struct mpool_info before, after;
	struct kvdb *db = untouched;
	struct mpool *mp;
	int i;

	th_fresh();
	T_EQ(th_create_at(th_pool, POOL, 0), 0);
	T_EQ(mpool_open(th_pool, NULL, &mp), 0);
	T_EQ(mpool_info(mp, &before), 0);
	T_EQ(mpool_close(mp), 0);
	T_EQ(kvdb_create(th_pool, NULL), 0);
	kh_open();
	for (i = 0; i < 100; i++)
		T_EQ(kh_put(kh_kvs("s"), &i, 4, 1, 50000), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	kh_close();
	T_EQ(kvdb_drop(th_pool, NULL), 0);
	FAILS(kvdb_open(th_pool, NULL, &db), -ENOENT);
	FAILS(kvdb_drop(th_pool, NULL), -ENOENT);
	T_EQ(mpool_open(th_pool, NULL, &mp), 0);
	T_EQ(mpool_info(mp, &after), 0);
	T_EQ(mpool_close(mp), 0);
	T_EQ(after.objects, before.objects);
	T_EQ(after.cls[0].used, before.cls[0].used);
	T_EQ(kvdb_create(th_pool, NULL), 0);
	kh_open();
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), 0);
	end();
}

static void for_reading_only_none_is_made_or_removed(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb *db = untouched;

	o.flags = KVDB_RDONLY;
	th_fresh();
	T_EQ(th_create_at(th_pool, POOL, 0), 0);
	FAILS(kvdb_create(th_pool, &o), -EINVAL);
	FAILS(kvdb_open(th_pool, NULL, &db), -ENOENT);
	T_EQ(kvdb_create(th_pool, NULL), 0);
	kh_open();
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	kh_close();
	FAILS(kvdb_drop(th_pool, &o), -EINVAL);
	o.checkpoint = "c";
	FAILS(kvdb_drop(th_pool, &o), -EINVAL);
	FAILS(kvdb_create(th_pool, &o), -EINVAL);
	kh_open();
	T_OK(kh_holds_str(kh_kvs("s"), "k", "v"));
	end();
}

static void a_key_that_is_absent_is_said(void)
{
	struct kvdb_kvs *kvs, *none;
	struct kvdb_pin pin;
	struct kvdb_txn *txn;
	char buf[8];
	size_t len;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	T_EQ(kh_put_str(kvs, "k", "v"), 0);
	FAILS(kvdb_kvs_open(kh_db, "none", &none), -ENOENT);
	FAILS(kvdb_get(kvs, "n", 1, buf, sizeof(buf), &len), -ENOENT);
	T_STREQ(kvdb_error_detail()->id, "MP0967");
	FAILS(kvdb_put(kvs, "", 0, "", 0), -EINVAL);
	FAILS(kvdb_get_pinned(kvs, "n", 1, &pin), -ENOENT);
	T_EQ(kvdb_txn_begin(kh_db, 0, &txn), 0);
	FAILS(kvdb_put(kvs, "", 0, "", 0), -EINVAL);
	FAILS(kvdb_txn_get(txn, kvs, "n", 1, buf, sizeof(buf), &len), -ENOENT);
	/* whether it is there, and no more */
	T_EQ(kvdb_txn_get(txn, kvs, "k", 1, NULL, 0, NULL), 0);
	T_EQ(kvdb_get(kvs, "k", 1, NULL, 0, NULL), 0);
	T_EQ(kvdb_get(kvs, "n", 1, NULL, 0, NULL), -ENOENT);
	kvdb_txn_abort(txn);
	end();
}

/* ---- data -------------------------------------------------------------------------------- */

static void bad_keys_and_values_change_nothing(void)
{
	static uint8_t big[KVDB_VALUE_MAX + 1];
	struct kvdb_get get = { .key = big, .klen = KVDB_KEY_MAX, .size = 8 };
	struct kvdb_stats a, b;
	struct kvdb_txn *txn;
	struct kvdb_kvs *kvs;
	size_t len = 99;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	memset(big, 'k', sizeof(big));
	T_EQ(kvdb_put(kvs, big, KVDB_KEY_MAX, "old", 3), 0);
	kvdb_stats(kh_db, &a);
	FAILS(kvdb_put(kvs, big, KVDB_KEY_MAX + 1, "v", 1), -ENAMETOOLONG);
	FAILS(kvdb_put(kvs, big, SIZE_MAX, "v", 1), -ENAMETOOLONG);
	FAILS(kvdb_put(kvs, big, 0, "v", 1), -EINVAL);
	FAILS(kvdb_put(kvs, NULL, 1, "v", 1), -EINVAL);
	FAILS(kvdb_put(kvs, big, KVDB_KEY_MAX, big, KVDB_VALUE_MAX + 1), -E2BIG);
	FAILS(kvdb_put(kvs, big, KVDB_KEY_MAX, big, SIZE_MAX), -E2BIG);
	FAILS(kvdb_del(kvs, big, KVDB_KEY_MAX + 1), -ENAMETOOLONG);
	FAILS(kvdb_del(kvs, big, 0), -EINVAL);
	FAILS(kvdb_get(kvs, big, KVDB_KEY_MAX + 1, kh_buf, 8, &len), -ENAMETOOLONG);
	FAILS(kvdb_get(kvs, big, 0, kh_buf, 8, &len), -EINVAL);
	FAILS(kvdb_get(kvs, big, KVDB_KEY_MAX, NULL, 8, &len), -EINVAL);
	T_EQ(kvdb_get_multi(kvs, 0, &get, 1), 0);
	T_EQ(get.err, -EINVAL);
	T_EQ(kvdb_txn_begin(kh_db, 0, &txn), 0);
	FAILS(kvdb_txn_get(txn, kvs, big, KVDB_KEY_MAX, NULL, 8, &len), -EINVAL);
	kvdb_txn_abort(txn);
	T_EQ(kvdb_get(kvs, big, 5, kh_buf, 8, &len), -ENOENT);
	T_EQ(len, 99);
	kvdb_stats(kh_db, &b);
	T_EQ(a.puts, b.puts);
	T_EQ(a.dels, b.dels);
	T_EQ(a.user_write_bytes, b.user_write_bytes);
	T_EQ(kvdb_get(kvs, big, KVDB_KEY_MAX, kh_buf, 8, &len), 0);
	T_EQ(len, 3);
	T_MEMEQ(kh_buf, "old", 3);
	/* an empty value is a value */
	T_EQ(kvdb_put(kvs, "e", 1, NULL, 0), 0);
	T_EQ(kvdb_get(kvs, "e", 1, kh_buf, 8, &len), 0);
	T_EQ(len, 0);
	end();
}

/* All lengths are told, no byte beyond the buffer is touched; in memory and from media. */
static void get_with_short_buffers(void)
{
	static const size_t vlens[] = { 0, 5, 128, 129, 5000, 200000 };
	size_t i, j, len;
	int round;

	kh_fresh(POOL, 0);
	for (i = 0; i < 6; i++)
		T_EQ(kh_put(kh_kvs("s"), &vlens[i], 8, i, vlens[i]), 0);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 6; i++) {
			size_t sizes[] = { 0, 1, 4, 127, 4096, vlens[i], vlens[i] + 1 };

			T_EQ(kvdb_get(kh_kvs("s"), &vlens[i], 8, NULL, 0, &len), 0);
			T_EQ(len, vlens[i]);
			for (j = 0; j < 7; j++) {
				size_t n = sizes[j] < vlens[i] ? sizes[j] : vlens[i];

				memset(kh_buf, 0xa5, sizes[j] + 1);
				T_EQ(kvdb_get(kh_kvs("s"), &vlens[i], 8, kh_buf, sizes[j], &len),
				     0);
				T_EQ(len, vlens[i]);
				T_MEMEQ(kh_buf, kh_value(i, vlens[i]), n);
				T_EQ(kh_buf[sizes[j]], 0xa5);
			}
		}
		if (round == 0)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (round == 1) {
			kh_close();
			kh_open();
		}
	}
	end();
}

/* ---- reading only --------------------------------------------------------------------- */

static void put_and_flush(void)
{
	T_EQ(kh_put(kh_kvs("s"), "run", 3, 1, 5000), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kh_put(kh_kvs("s"), "log", 3, 2, 6000), 0);
	T_EQ(kh_put_str(kh_kvs("s"), "small", "x"), 0);
	T_EQ(kvdb_sync(kh_db), 0);
}

static void reading_only_writes_nothing(void)
{
	struct kvdb_cursor *cur;
	struct kvdb_info in;
	struct kvdb_kvs *kvs;
	uint32_t crc;
	int round, n;

	kh_make(POOL, 0);
	kh_die_in(put_and_flush);
	for (round = 0; round < 2; round++) {
		crc = kh_at_rest();
		T_EQ(kh_open_with(KVDB_RDONLY), 0);
		kvs = kh_kvs("s");
		T_OK(kh_holds(kvs, "run", 3, 1, 5000));
		T_OK(kh_holds(kvs, "log", 3, 2, 6000));
		T_OK(kh_holds_str(kvs, "small", "x"));
		FAILS(kvdb_put(kvs, "k", 1, "v", 1), -EROFS);
		FAILS(kvdb_del(kvs, "run", 3), -EROFS);
		FAILS(kvdb_kvs_create(kh_db, "t", NULL), -EROFS);
		FAILS(kvdb_kvs_drop(kh_db, "s"), -EROFS);
		FAILS(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), -EROFS);
		T_OK(kh_holds(kvs, "run", 3, 1, 5000));
		T_OK(kh_absent(kvs, "k", 1));
		T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
		for (n = 0; !kvdb_cursor_next(cur, NULL, NULL, NULL, NULL); n++)
			;
		T_EQ(n, 3);
		kvdb_cursor_close(cur);
		T_EQ(kvdb_info(kh_db, &in), 0);
		T_EQ(in.is_rdonly, 1);
		kh_close();
		T_EQ(kh_written(), crc);
		T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
		T_EQ(kh_written(), crc);
		kh_open();	/* the second round is after a clean close */
		kh_close();
	}
	th_clean();
}

/* ---- durability options ----------------------------------------------------------------- */

static struct kvdb_opts durability;

static void put_as_told(void)
{
	kh_close();
	T_EQ(kvdb_open(th_pool, &durability, &kh_db), 0);
	T_EQ(kh_put_str(kh_kvs("s"), "a", "1"), 0);
	if (!durability.commit)
		T_EQ(kvdb_sync(kh_db), 0);
	T_EQ(kh_put(kh_kvs("s"), "b", 1, 7, 3000), 0);
	if (!durability.commit)
		T_EQ(kvdb_sync(kh_db), 0);
}

static void commit_mode_and_no_interval(void)
{
	struct kvdb_info in;
	int round;

	for (round = 0; round < 4; round++) {
		durability = kh_opts();
		durability.flags = round & 1 ? KVDB_MANUAL : 0;
		durability.commit = round < 2;
		durability.interval_ms = round < 2 ? 0 : KVDB_INTERVAL_NONE;
		kh_make(POOL, 0);
		kh_die_in(put_as_told);
		T_EQ(kvdb_open(th_pool, &durability, &kh_db), 0);
		T_OK(kh_holds_str(kh_kvs("s"), "a", "1"));
		T_OK(kh_holds(kh_kvs("s"), "b", 1, 7, 3000));
		T_EQ(kvdb_info(kh_db, &in), 0);
		T_EQ(in.commit, round < 2);
		T_EQ(in.interval_ms, round < 2 ? 100 : KVDB_INTERVAL_NONE);
		end();
	}
}

/* A device that fails: one clear error, no later success, and reading goes on. */
static void a_failed_write_stops_the_database(void)
{
	struct mpool_open_opts mo = MPOOL_OPEN_OPTS_INIT;
	struct kvdb_opts o = kh_opts();
	struct kvdb *db;
	struct kvdb_info in;
	struct kvdb_kvs *kvs;
	int i, err = 0;

	kh_fresh(POOL, 0);
	T_EQ(kh_put_str(kh_kvs("s"), "old", "1"), 0);
	kh_close();
	mo.dev = "capacity:fail=write,after=20,sticky";
	o.pool = &mo;
	T_EQ(kvdb_open(th_pool, &o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (i = 0; i < 100 && !err; i++) {
		/* a thread of the database may meet the failure first */
		err = kh_put(kvs, &i, 4, 1, 5000);
		if (!err)
			err = kvdb_sync(db);
	}
	T_OK(err == -EIO || err == -EROFS);
	T_OK(kvdb_error_detail()->text[0]);
	FAILS(kvdb_put(kvs, "k", 1, "v", 1), -EROFS);
	FAILS(kvdb_kvs_create(db, "t", NULL), -EROFS);
	FAILS(kvdb_compact(db, 0), -EROFS);
	FAILS(kvdb_kvs_compact(kvs, KVDB_COMPACT_WAIT), -EROFS);
	T_OK(kvdb_sync(db) == -EIO || kvdb_sync(db) == -EROFS);
	/* the cause is told to each caller, not what this thread was told before */
	T_EQ(kvdb_get(kvs, "none", 4, NULL, 0, NULL), -ENOENT);
	err = kvdb_drain(db, KVDB_WAIT_FLUSH);
	T_OK(err < 0);
	T_EQ(kvdb_error_detail()->err, err);
	T_STREQ(kvdb_error_detail()->id, "MP0963");
	T_EQ(kvdb_get(kvs, "none", 4, NULL, 0, NULL), -ENOENT);
	err = kvdb_poll(db);
	T_OK(err < 0);
	T_EQ(kvdb_error_detail()->err, err);
	T_STREQ(kvdb_error_detail()->id, "MP0963");
	T_OK(kh_holds_str(kvs, "old", "1"));
	T_EQ(kvdb_info(db, &in), 0);
	T_OK(in.fault[0]);
	err = kvdb_close(db);
	T_OK(err == -EIO || err == -EROFS);
	kh_open();
	T_OK(kh_holds_str(kh_kvs("s"), "old", "1"));
	end();
}

static void signals_are_the_programs(void)
{
	kh_fresh(POOL, 0);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	T_OK(th_signal_waits());
	end();
}

/* ---- figures -------------------------------------------------------------------------------- */

static void statistics_are_plausible(void)
{
	struct kvdb_stats a, b;
	struct kvdb_cursor *cur;
	struct kvdb_info in;
	struct kvdb_kvs *kvs;
	int i;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_stats(kh_db, &a), 0);
	for (i = 0; i < 500; i++)
		T_EQ(kh_put(kvs, &i, 4, 1, 1000), 0);
	for (i = 0; i < 20; i++)
		T_EQ(kvdb_del(kvs, &i, 4), 0);
	for (i = 0; i < 30; i++)
		(void)kh_absent(kvs, &i, 4);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	T_EQ(kvdb_cursor_seek(cur, "a", 1), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	kvdb_cursor_close(cur);
	T_EQ(kvdb_sync(kh_db), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_stats(kh_db, &b), 0);
	T_EQ(b.puts - a.puts, 500);
	T_EQ(b.dels - a.dels, 20);
	T_EQ(b.gets - a.gets, 30);
	T_EQ(b.seeks - a.seeks, 1);
	T_EQ(b.nexts - a.nexts, 1);
	T_OK(b.syncs > a.syncs);
	T_EQ(b.user_write_bytes - a.user_write_bytes, 500 * 1004 + 20 * 4);
	T_OK(b.keys_estimate >= 480 && b.keys_estimate <= 520);
	T_EQ(b.live_value_bytes, 480 * 1000);
	T_OK(b.runs >= 1 && b.flushes >= 1 && b.segments >= 2);
	T_EQ(b.cache_bytes, kh_opts().cache_bytes);
	T_OK(b.memtable_bytes + b.window_bytes + b.page_bytes + b.index_bytes <= b.cache_bytes);
	T_OK(b.durable_epoch > a.durable_epoch && b.epoch > b.durable_epoch);
	T_OK(b.io[0].log_bytes >= 500 * 1004 && b.io[0].log_bytes < 4 * MIB);
	T_OK(b.io[0].key_bytes >= 480 * 4 && b.io[0].meta_bytes > 0);
	T_EQ(b.io[1].log_bytes, 0);
	T_EQ(kvdb_info(kh_db, &in), 0);
	T_EQ(in.kvs, 1);
	T_EQ(in.logs, kh_mode->logs);
	T_EQ(in.is_rdonly, 0);
	T_EQ(in.cache_bytes, kh_opts().cache_bytes);
	T_OK(in.log_bytes && in.segment_bytes && in.format_version && !in.fault[0]);
	kh_close();
	kh_open();
	T_EQ(kvdb_stats(kh_db, &b), 0);
	T_EQ(b.recovery.was_clean, 1);
	T_EQ(b.recovery.replayed, 0);
	T_EQ(b.puts, 0);
	T_OK(b.keys_estimate >= 480 && b.runs >= 1);
	end();
}

/* Each byte that is read is read for something; what users get is counted beside it. */
static void reads_are_counted_by_purpose(void)
{
	struct kvdb_get get = { .key = "c", .klen = 1, .buf = kh_buf, .size = 1000 };
	struct kvdb_cursor *cur;
	struct kvdb_stats st;
	struct kvdb_kvs *kvs;
	struct kvdb_pin pin;
	size_t len;

	kh_fresh(POOL, 0);
	for (char k = 'a'; k <= 'd'; k++)
		T_EQ(kh_put(kh_kvs("s"), &k, 1, 1, 1000), 0);
	kh_close();
	kh_open();
	kvs = kh_kvs("s");
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(st.user_read_bytes, 0);
	T_EQ(kvdb_get(kvs, "a", 1, kh_buf, 600, &len), 0);
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(st.user_read_bytes, 601);
	T_OK(st.io[0].read_key_bytes >= 4096 && st.io[0].read_value_bytes >= 4096);
	T_EQ(kvdb_get_pinned(kvs, "b", 1, &pin), 0);
	kvdb_unpin(&pin);
	T_EQ(kvdb_get_multi(kvs, 0, &get, 1), 0);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	T_EQ(kvdb_cursor_seek(cur, "d", 1), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	kvdb_cursor_close(cur);
	T_EQ(kvdb_get(kvs, "e", 1, kh_buf, 600, &len), -ENOENT);
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(st.user_read_bytes, 601 + 3 * 1001);
	T_EQ(st.io[0].read_bytes, st.io[0].read_log_bytes + st.io[0].read_key_bytes +
	     st.io[0].read_value_bytes + st.io[0].read_move_bytes);
	T_EQ(st.io[0].read_move_bytes, 0);
	T_OK(st.cpu_ns);
	end();
}

static void poll_says_whether_it_did_something(void)
{
	int i, r;

	kh_mode = &kh_modes[3];
	kh_fresh(POOL, 0);
	for (i = 0; i < 100 && (r = kvdb_poll(kh_db)) > 0; i++)
		;
	T_EQ(r, 0);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	/* the epoch is due after a part of the interval */
	for (i = 0; i < 200 && (r = kvdb_poll(kh_db)) == 0; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	T_EQ(r, 1);
	end();
	kh_mode = &kh_modes[0];
}

/* ---- damage ------------------------------------------------------------------------------ */

static void note_problem(void *arg, const struct mpool_problem *p)
{
	unsigned *n = arg;

	*n += p->is_damage && !strncmp(p->id, "MP", 2) && p->text[0];
}

static void a_damaged_value_is_found_and_not_returned(void)
{
	static uint8_t img[POOL];
	unsigned found = 0;
	uint64_t damage = 0;
	char path[600];
	uint8_t *p;
	size_t len;
	FILE *f;
	int rc;

	kh_fresh(POOL, 0);
	T_EQ(kh_put(kh_kvs("s"), "bad", 3, 5, 9000), 0);
	T_EQ(kh_put(kh_kvs("s"), "good", 4, 6, 9000), 0);
	kh_close();
	th_root();
	f = fopen(th_member(path), "r+e");
	th_user();
	T_OK(f != NULL);
	for (len = 0, p = NULL; !p && len < sizeof(img); len += MIB) {
		T_EQ(fread(img + len, MIB, 1, f), 1);
		p = memmem(img, len + MIB, kh_value(5, 9000) + 4000, 64);
	}
	T_OK(p != NULL);
	T_EQ(fseek(f, p - img, SEEK_SET), 0);
	T_EQ(fputc(*p ^ 1, f), *p ^ 1);
	T_EQ(fclose(f), 0);
	th_member(path);
	th_root();
	rc = kvdb_verify(th_pool, NULL, MPOOL_VERIFY_DATA, note_problem, &found, &damage);
	th_user();
	T_EQ(rc, 0);
	T_OK(damage > 0);
	T_EQ(found, damage);
	kh_open();
	FAILS(kvdb_get(kh_kvs("s"), "bad", 3, kh_buf, sizeof(kh_buf), &len), -EUCLEAN);
	T_OK(kh_holds(kh_kvs("s"), "good", 4, 6, 9000));
	kh_close();
	th_clean();
}

static void told_durable(void *arg, int err)
{
	*(int *)arg = err + 1;
}

/* Whatever is asked of a handle for reading is answered or refused. */
static void asked_for_reading(uint32_t flags)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_checkpoint_info ck;
	struct kvdb_compact_status cs;
	uint64_t ticket = 0, end;
	struct kvdb_bulk *load;
	struct kvdb_stats st;
	struct kvdb_txn *txn;
	struct kvdb_kvs *k;
	int told = 0;

	T_EQ(kh_open_with(KVDB_RDONLY | flags), 0);
	k = kh_kvs("s");
	FAILS(kvdb_poll(kh_db), -EROFS);
	T_EQ(kvdb_sync(kh_db), 0);
	end = kvdb_ticket(kh_db);
	T_EQ(kvdb_wait_durable(kh_db, end), 0);
	T_EQ(kvdb_on_durable(kh_db, end, told_durable, &told), 0);
	T_EQ(told, 1);
	T_EQ(kvdb_sync_start(kh_db, &end), 0);
	T_EQ(kvdb_durable_within(kh_db, end, 0), 1);
	FAILS(kvdb_durable_within(kh_db, end + 1, 0), -EINVAL);
	FAILS(kvdb_wait_durable(kh_db, end + 1), -EINVAL);
	FAILS(kvdb_on_durable(kh_db, end + 1, told_durable, &told), -EINVAL);
	FAILS(kvdb_put(k, "k", 1, "v", 1), -EROFS);
	FAILS(kvdb_put_ttl(k, "k", 1, "v", 1, 1), -EROFS);
	FAILS(kvdb_del(k, "k", 1), -EROFS);
	FAILS(kvdb_update(k, "k", 1, keep, NULL), -EROFS);
	FAILS(kvdb_prefix_del(k, "k", 1), -EROFS);
	FAILS(kvdb_range_del(k, NULL, 0, NULL, 0), -EROFS);
	FAILS(kvdb_bulk_open(k, 0, &load), -EROFS);
	FAILS(kvdb_kvs_create(kh_db, "t", NULL), -EROFS);
	FAILS(kvdb_kvs_drop(kh_db, "s"), -EROFS);
	FAILS(kvdb_kvs_rename(kh_db, "s", "t"), -EROFS);
	FAILS(kvdb_kvs_set(k, &ko, KVDB_KVS_TTL), -EROFS);
	FAILS(kvdb_kvs_compact(k, 0), -EROFS);
	FAILS(kvdb_compact(kh_db, KVDB_COMPACT_WAIT), -EROFS);
	FAILS(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), -EROFS);
	FAILS(kvdb_checkpoint(kh_db, "c", 0), -EROFS);
	FAILS(kvdb_checkpoint_drop(kh_db, "c"), -EROFS);
	FAILS(kvdb_set(kh_db, "commit", "1"), -EROFS);
	T_EQ(kvdb_checkpoint_list(kh_db, &ck, 1), 0);
	T_EQ(kvdb_compact_status(kh_db, &cs), 0);
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(kvdb_txn_begin(kh_db, 0, &txn), 0);
	FAILS(kvdb_txn_put(txn, k, "k", 1, "v", 1), -EROFS);
	T_EQ(kvdb_txn_commit(txn, KVDB_TXN_DURABLE, &ticket), 0);
	T_EQ(ticket, end);
	T_OK(kh_holds_str(k, "k", "old"));
	kh_close();
}

static void who_reads_only_is_refused_the_rest(void)
{
	kh_fresh(64 * MIB, 0);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "old"), 0);
	kh_close();
	asked_for_reading(0);
	asked_for_reading(KVDB_MANUAL);
	th_clean();
}

int main(void)
{
	T_RUN(a_program_may_have_taken_all_keys);
	T_RUN(create_and_open_say_what_is_missing);
	T_RUN(options_of_another_size_are_not_read_further);
	T_RUN(flags_of_the_pool_are_the_databases);
	T_RUN(a_database_is_open_once);
	T_RUN(drop_leaves_an_empty_pool);
	T_RUN(for_reading_only_none_is_made_or_removed);
	T_RUN(a_key_that_is_absent_is_said);
	T_RUN(bad_keys_and_values_change_nothing);
	T_RUN(get_with_short_buffers);
	T_RUN(reading_only_writes_nothing);
	T_RUN(who_reads_only_is_refused_the_rest);
	T_RUN(commit_mode_and_no_interval);
	T_RUN(signals_are_the_programs);
	/* of a simulated device, as with TH_RUN_FILES() */
	if (!th_is_kmod())
		KH_RUN_MODES(a_failed_write_stops_the_database);
	KH_RUN_MODES(statistics_are_plausible);
	KH_RUN_MODES(reads_are_counted_by_purpose);
	T_RUN(poll_says_whether_it_did_something);
	T_RUN(a_damaged_value_is_found_and_not_returned);
	th_clean();
	return t_done();
}
