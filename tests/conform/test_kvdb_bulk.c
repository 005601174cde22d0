/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Bulk load: what is loaded is there at once or not at all, in its place
 * between what was written before and after, and written about once.
 */
#include <pthread.h>
#include <stdbool.h>

#include "kvdb_help.h"

static size_t key_of(char *key, unsigned i)
{
	return (size_t)sprintf(key, "key%08u", i);
}

/* A third is kept with its key, a few are larger than a log segment. */
static size_t len_of(unsigned i)
{
	return i % 3 == 0 ? i % 129 : i % 997 == 1 ? 300000 : 200 + i % 1800;
}

static struct kvdb_bulk *bulk_open(struct kvdb_kvs *kvs)
{
	struct kvdb_bulk *b = NULL;

	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	return b;
}

static void add_range(struct kvdb_bulk *b, unsigned from, unsigned to, unsigned step, uint64_t seed)
{
	char key[24];
	unsigned i;

	for (i = from; i < to; i += step)
		T_EQ(kvdb_bulk_add(b, key, key_of(key, i), kh_value(seed + i, len_of(i)),
				   len_of(i)), 0);
}

static void check_range(struct kvdb_kvs *kvs, unsigned from, unsigned to, unsigned step,
			uint64_t seed)
{
	char key[24];
	unsigned i;

	for (i = from; i < to; i += step)
		T_OK(kh_holds(kvs, key, key_of(key, i), seed + i, len_of(i)));
}

static unsigned count(struct kvdb_kvs *kvs)
{
	struct kvdb_cursor *cur;
	unsigned n = 0;
	int err;

	T_EQ(kvdb_cursor_open(kvs, KVDB_KEYS_ONLY, NULL, 0, &cur), 0);
	while (!(err = kvdb_cursor_next(cur, NULL, NULL, NULL, NULL)))
		n++;
	T_EQ(err, -ENOENT);
	kvdb_cursor_close(cur);
	return n;
}

static void appears_at_once_and_stays(void)
{
	struct kvdb_bulk *b;
	struct kvdb_kvs *kvs;
	char key[24];

	kh_fresh(96 * MIB, 0);
	kvs = kh_kvs("s");
	b = bulk_open(kvs);
	add_range(b, 0, 6000, 1, 5);
	T_OK(kh_absent(kvs, key, key_of(key, 0)));
	T_EQ(count(kvs), 0);
	T_EQ(kvdb_bulk_finish(b), 0);
	check_range(kvs, 0, 6000, 1, 5);
	T_EQ(count(kvs), 6000);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	kh_open();
	check_range(kh_kvs("s"), 0, 6000, 1, 5);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	check_range(kh_kvs("s"), 0, 6000, 1, 5);
	kh_close();
}

static void lies_over_what_was_there_and_under_what_comes(void)
{
	struct kvdb_cursor *old;
	struct kvdb_bulk *b;
	struct kvdb_kvs *kvs;
	char key[24];
	unsigned i, n = 0;

	kh_fresh(96 * MIB, 0);
	kvs = kh_kvs("s");
	/* before: in a run, and in the memtable */
	for (i = 0; i < 300; i++)
		T_EQ(kh_put(kvs, key, key_of(key, i), 1000 + i, 500), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	for (i = 300; i < 600; i++)
		T_EQ(kh_put(kvs, key, key_of(key, i), 1000 + i, 500), 0);
	for (i = 0; i < 600; i += 7)
		T_EQ(kvdb_del(kvs, key, key_of(key, i)), 0);
	T_EQ(kvdb_cursor_open(kvs, KVDB_KEYS_ONLY, NULL, 0, &old), 0);
	b = bulk_open(kvs);
	add_range(b, 0, 600, 2, 5);
	/* meanwhile: flushed before the end, and not */
	for (i = 0; i < 600; i += 4)
		T_EQ(kh_put(kvs, key, key_of(key, i), 2000 + i, 50), 0);
	for (i = 2; i < 600; i += 20)
		T_EQ(kvdb_del(kvs, key, key_of(key, i)), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	for (i = 0; i < 600; i += 8)
		T_EQ(kh_put(kvs, key, key_of(key, i), 3000 + i, 60), 0);
	T_EQ(kvdb_bulk_finish(b), 0);
	for (n = 0; !kvdb_cursor_next(old, NULL, NULL, NULL, NULL); n++)
		;
	T_EQ(n, 600 - 86);
	kvdb_cursor_close(old);
	/* again after the merges, and after the next open */
	for (n = 0; n < 3; n++) {
		for (i = 0; i < 600; i++) {
			key_of(key, i);
			if (i % 8 == 0)
				T_OK(kh_holds(kvs, key, 11, 3000 + i, 60));
			else if (i % 4 == 0)
				T_OK(kh_holds(kvs, key, 11, 2000 + i, 50));
			else if (i % 20 == 2)
				T_OK(kh_absent(kvs, key, 11));
			else if (i % 2 == 0)
				T_OK(kh_holds(kvs, key, 11, 5 + i, len_of(i)));
			else if (i % 7 == 0)
				T_OK(kh_absent(kvs, key, 11));
			else
				T_OK(kh_holds(kvs, key, 11, 1000 + i, 500));
		}
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		if (n == 1) {
			kh_close();
			kh_open();
			kvs = kh_kvs("s");
		}
	}
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
}

/* Runs from both sides of its place that were merged would be above it as a whole. */
static void merges_meanwhile_leave_its_place(void)
{
	struct kvdb_bulk *b = NULL;
	struct kvdb_kvs *kvs;
	char key[24];
	unsigned i, k;

	kh_fresh(96 * MIB, 0);
	kvs = kh_kvs("s");
	for (k = 0; k < 12; k++) {
		if (k == 3)
			b = bulk_open(kvs);
		for (i = k < 3 ? 0 : 500; i < 1000; i++)
			T_EQ(kh_put(kvs, key, key_of(key, i), 1000 * k + i, 300), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	}
	add_range(b, 0, 1000, 1, 7);
	T_EQ(kvdb_bulk_finish(b), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	check_range(kvs, 0, 500, 1, 7);
	for (i = 500; i < 1000; i++)
		T_OK(kh_holds(kvs, key, key_of(key, i), 11000 + i, 300));
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
}

static void what_is_not_sorted_is_refused(void)
{
	struct kvdb_bulk *b, *other = NULL;
	struct kvdb_kvs *kvs;

	kh_fresh(48 * MIB, 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_bulk_open(kvs, 1, &b), -EINVAL);
	b = bulk_open(kvs);
	T_EQ(kvdb_bulk_open(kvs, 0, &other), -EBUSY);
	T_EQ(kvdb_kvs_drop(kh_db, "s"), -EBUSY);
	T_OK(strstr(kvdb_error_detail()->text, "bulk load"));
	T_EQ(kvdb_bulk_add(b, "b", 1, "1", 1), 0);
	T_EQ(kvdb_bulk_add(b, "b", 1, "2", 1), -EINVAL);
	T_OK(!strcmp(kvdb_error_detail()->id, "MP0985"));
	T_EQ(kvdb_bulk_add(b, "a", 1, "2", 1), -EINVAL);
	T_EQ(kvdb_bulk_add(b, "", 0, "2", 1), -EINVAL);
	T_EQ(kvdb_bulk_add(b, kh_buf, KVDB_KEY_MAX + 1, "2", 1), -ENAMETOOLONG);
	T_EQ(kvdb_bulk_add(b, "c", 1, kh_buf, KVDB_VALUE_MAX + 1), -E2BIG);
	T_EQ(kvdb_bulk_add(b, "c", 1, NULL, 1), -EINVAL);
	/* none of them changed anything */
	T_EQ(kvdb_bulk_add(b, "bb", 2, kh_value(7, KVDB_VALUE_MAX), KVDB_VALUE_MAX), 0);
	T_EQ(kvdb_bulk_add(b, "c", 1, "", 0), 0);
	T_EQ(kvdb_bulk_finish(b), 0);
	T_EQ(count(kvs), 3);
	T_OK(kh_holds_str(kvs, "b", "1"));
	T_OK(kh_holds(kvs, "bb", 2, 7, KVDB_VALUE_MAX));
	T_OK(kh_holds_str(kvs, "c", ""));
	/* an empty one is nothing */
	T_EQ(kvdb_bulk_finish(bulk_open(kvs)), 0);
	T_EQ(count(kvs), 3);
	T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);
	kh_close();
	T_EQ(kh_open_with(KVDB_RDONLY), 0);
	kh_close();
}

static uint64_t pool_used(void)
{
	struct kvdb_info in;

	T_EQ(kvdb_info(kh_db, &in), 0);
	return in.pool.cls[0].used + in.pool.cls[1].used;
}

static void given_up_nothing_stays(void)
{
	struct kvdb_bulk *b;
	struct kvdb_kvs *kvs;
	uint64_t used;

	kh_fresh(96 * MIB, 0);
	kvs = kh_kvs("s");
	T_EQ(kh_put_str(kvs, "k", "v"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	used = pool_used();
	b = bulk_open(kvs);
	add_range(b, 0, 20000, 1, 5);
	T_OK(pool_used() > used + 10 * MIB);
	kvdb_bulk_abort(b);
	kvdb_bulk_abort(NULL);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(pool_used() < used + 6 * MIB);
	T_EQ(count(kvs), 1);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
}

static void load_and_die(void)
{
	add_range(bulk_open(kh_kvs("s")), 0, 8000, 1, 5);
}

static void load_finish_and_die(void)
{
	struct kvdb_bulk *b = bulk_open(kh_kvs("s"));

	add_range(b, 0, 8000, 1, 6);
	T_EQ(kvdb_bulk_finish(b), 0);
}

static void a_process_that_dies_leaves_all_or_nothing(void)
{
	unsigned i;

	kh_fresh(96 * MIB, 0);
	kh_kvs("s");
	kh_close();
	/* several: what a cut load leaves is not in the way of the next */
	for (i = 0; i < 3; i++)
		kh_die_in(load_and_die);
	kh_open();
	T_EQ(count(kh_kvs("s")), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(pool_used() < 24 * MIB);
	kh_close();
	kh_die_in(load_finish_and_die);
	kh_open();
	check_range(kh_kvs("s"), 0, 8000, 1, 6);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
}

static void a_full_pool_ends_it_and_nothing_stays(void)
{
	struct kvdb_bulk *b;
	struct kvdb_kvs *kvs;
	char key[24];
	unsigned i;
	int err = 0;

	kh_fresh(32 * MIB, 0);
	kvs = kh_kvs("s");
	b = bulk_open(kvs);
	for (i = 0; !err && i < 100000; i++)
		err = kvdb_bulk_add(b, key, key_of(key, i), kh_value(i, 2000), 2000);
	T_EQ(err, -ENOSPC);
	T_EQ(kvdb_bulk_add(b, "z", 1, "v", 1), -ENOSPC);
	T_EQ(kvdb_bulk_finish(b), -ENOSPC);
	T_EQ(count(kvs), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	b = bulk_open(kvs);
	add_range(b, 0, 2000, 1, 5);
	T_EQ(kvdb_bulk_finish(b), 0);
	check_range(kvs, 0, 2000, 1, 5);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
}

static void bytes_are_written_about_once(void)
{
	struct kvdb_stats st;
	struct kvdb_bulk *b;
	uint64_t out = 0;
	unsigned i;

	kh_fresh(96 * MIB, 0);
	b = bulk_open(kh_kvs("s"));
	add_range(b, 0, 20000, 1, 5);
	T_EQ(kvdb_bulk_finish(b), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(kvdb_stats(kh_db, &st), 0);
	for (i = 0; i < MPOOL_MCLASSES; i++)
		out += st.io[i].log_bytes + st.io[i].key_bytes;
	printf("# write amplification %.3f\n", (double)out / (double)st.user_write_bytes);
	T_OK(out < st.user_write_bytes + st.user_write_bytes / 8);
	kh_close();
}

/* A view keeps what it saw; one that begins afterwards sees all of it. */
static void transactions_see_none_or_all_of_it(void)
{
	struct kvdb_txn *before, *after;
	struct kvdb_kvs *kvs;
	struct kvdb_bulk *b;
	size_t got;

	kh_fresh(96 * MIB, 0);
	kvs = kh_kvs("s");
	b = bulk_open(kvs);
	T_EQ(kvdb_txn_begin(kh_db, 0, &before), 0);
	T_EQ(kvdb_txn_get(before, kvs, "key00000005", 11, kh_buf, sizeof(kh_buf), &got), -ENOENT);
	add_range(b, 0, 1000, 1, 5);
	T_EQ(kvdb_bulk_finish(b), 0);
	T_EQ(kvdb_txn_begin(kh_db, 0, &after), 0);
	T_EQ(kvdb_txn_get(before, kvs, "key00000005", 11, kh_buf, sizeof(kh_buf), &got), -ENOENT);
	T_EQ(kvdb_txn_get(after, kvs, "key00000005", 11, kh_buf, sizeof(kh_buf), &got), 0);
	T_EQ(got, len_of(5));
	kvdb_txn_abort(before);
	kvdb_txn_abort(after);
	kh_close();
}

static void is_part_of_the_next_checkpoint(void)
{
	struct kvdb_opts o;
	struct kvdb_bulk *b;

	kh_fresh(96 * MIB, 0);
	b = bulk_open(kh_kvs("s"));
	add_range(b, 0, 1000, 1, 5);
	T_EQ(kvdb_checkpoint(kh_db, "before", 0), 0);
	T_EQ(kvdb_bulk_finish(b), 0);
	T_EQ(kvdb_checkpoint(kh_db, "after", 0), 0);
	kh_close();
	o = kh_opts();
	o.flags |= KVDB_RDONLY;
	o.checkpoint = "before";
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	T_EQ(count(kh_kvs("s")), 0);
	kh_close();
	o.checkpoint = "after";
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	check_range(kh_kvs("s"), 0, 1000, 1, 5);
	kh_close();
}

/* ---- differences of checkpoints ----------------------------------------------------- */

#define DIFF_KEYS 400u

static struct {
	uint64_t seed;
	uint32_t len;
	bool is_live;
} then[DIFF_KEYS], now[DIFF_KEYS];
static unsigned diff_last, diff_seen;

static int diff_check(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	char digits[9] = "";
	unsigned i;

	(void)arg;
	T_EQ(klen, 11);
	memcpy(digits, (const char *)key + 3, 8);
	i = (unsigned)strtoul(digits, NULL, 10);
	T_OK(i < DIFF_KEYS && (!diff_seen || i > diff_last));
	diff_last = i;
	diff_seen++;
	T_EQ(!!val, now[i].is_live);
	T_OK(then[i].is_live || now[i].is_live);
	T_OK(then[i].is_live != now[i].is_live || then[i].seed != now[i].seed);
	if (val) {
		T_EQ(vlen, now[i].len);
		T_OK(!memcmp(val, kh_value(now[i].seed, vlen), vlen));
	}
	return 0;
}

static void diff_step(struct kvdb_kvs *kvs, uint64_t seed)
{
	unsigned i = t_rand(&kh_rnd) % DIFF_KEYS;
	char key[24];

	now[i].is_live = t_rand(&kh_rnd) % 4;
	now[i].seed = seed;
	now[i].len = t_rand(&kh_rnd) % 400;
	if (now[i].is_live)
		T_EQ(kh_put(kvs, key, key_of(key, i), seed, now[i].len), 0);
	else
		T_EQ(kvdb_del(kvs, key, key_of(key, i)), 0);
}

/* The difference has every key that is another one now, and no other. */
static void diff_compare(const char *from, const char *to)
{
	struct kvdb *a, *b;
	struct kvdb_kvs *ka, *kb;
	struct kvdb_opts o = kh_opts();
	unsigned i, want = 0;

	o.flags |= KVDB_RDONLY;
	o.checkpoint = from;
	T_EQ(kvdb_open(th_pool, &o, &a), 0);
	o.checkpoint = to;
	T_EQ(kvdb_open(th_pool, &o, &b), 0);
	T_EQ(kvdb_kvs_open(a, "s", &ka), 0);
	T_EQ(kvdb_kvs_open(b, "s", &kb), 0);
	for (i = 0; i < DIFF_KEYS; i++)
		want += then[i].is_live != now[i].is_live ||
			(now[i].is_live && then[i].seed != now[i].seed);
	diff_seen = 0;
	T_EQ(kvdb_diff(ka, kb, diff_check, NULL), 0);
	T_EQ(diff_seen, want);
	T_EQ(kvdb_diff(kb, kb, diff_check, NULL), 0);
	T_EQ(diff_seen, want);
	T_EQ(kvdb_diff(ka, kh_kvs("s"), diff_check, NULL), -EINVAL);
	T_EQ(kvdb_close(a), 0);
	T_EQ(kvdb_close(b), 0);
}

static void a_difference_is_what_was_written(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb_bulk *b;
	char name[2][24] = { "c0" }, key[24];
	unsigned i, k, round;

	kh_fresh(96 * MIB, 0);
	kvs = kh_kvs("s");
	memset(now, 0, sizeof(now));
	T_EQ(kvdb_checkpoint(kh_db, "c0", 0), 0);
	for (round = 1; round < 8; round++) {
		memcpy(then, now, sizeof(now));
		for (i = 0; i < 40 * round; i++)
			diff_step(kvs, round * 1000 + i + 1);
		if (round % 3 == 0) {
			/* a load whose place is older than the checkpoint before its end */
			b = bulk_open(kvs);
			sprintf(name[0], "d%u", round);
			T_EQ(kvdb_checkpoint(kh_db, name[0], 0), 0);
			memcpy(then, now, sizeof(now));
			for (k = 0; k < DIFF_KEYS; k += 9) {
				now[k].is_live = true;
				now[k].seed = 100000 * round + k;
				now[k].len = k;
				T_EQ(kvdb_bulk_add(b, key, key_of(key, k),
						   kh_value(now[k].seed, k), k), 0);
			}
			T_EQ(kvdb_bulk_finish(b), 0);
		}
		sprintf(name[1], "c%u", round);
		T_EQ(kvdb_checkpoint(kh_db, name[1], 0), 0);
		if (round % 2)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		diff_compare(name[0], name[1]);
		memcpy(name[0], name[1], sizeof(name[0]));
	}
	kh_close();
}

static void range_del(struct kvdb_kvs *kvs, unsigned from, unsigned to)
{
	char a[24], b[24];
	size_t alen = key_of(a, from), blen = key_of(b, to);

	T_EQ(kvdb_range_del(kvs, a, alen, b, blen), 0);
}

static void hidden_in_the_middle(struct kvdb_kvs *kvs)
{
	char key[24];
	unsigned i;

	check_range(kvs, 0, 100, 1, 5);
	for (i = 100; i < 300; i++)
		T_OK(kh_absent(kvs, key, key_of(key, i)));
	check_range(kvs, 300, 400, 1, 5);
	T_EQ(count(kvs), 200);
}

static void a_range_delete_meanwhile_hides_what_it_brings(void)
{
	struct kvdb_bulk *b;
	struct kvdb_kvs *kvs;

	kh_fresh(96 * MIB, 0);
	kvs = kh_kvs("s");
	/* before it: hides nothing of it */
	T_EQ(kvdb_prefix_del(kvs, "key", 3), 0);
	b = bulk_open(kvs);
	add_range(b, 0, 400, 1, 5);
	/* nothing is there yet that the first one hides when it is flushed */
	range_del(kvs, 100, 200);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	range_del(kvs, 200, 300);
	T_EQ(kvdb_bulk_finish(b), 0);
	hidden_in_the_middle(kvs);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	hidden_in_the_middle(kvs);
	kh_close();
	kh_open();
	hidden_in_the_middle(kh_kvs("s"));
	kh_close();
}

/* What failed once fails from then on, and leaves nothing. */
static void a_failed_load_can_only_be_given_up(void)
{
	struct kvdb_bulk *b;
	char key[8];
	int err = 0;

	kh_fresh(64 * MIB, 0);
	T_EQ(kvdb_bulk_open(kh_kvs("s"), 0, &b), 0);
	for (unsigned i = 0; i < 100 && !err; i++) {
		snprintf(key, sizeof(key), "%05u", i);
		err = kvdb_bulk_add(b, key, 5, kh_buf, KVDB_VALUE_MAX);
	}
	T_EQ(err, -ENOSPC);
	T_EQ(kvdb_bulk_add(b, "z", 1, "v", 1), -ENOSPC);
	T_STREQ(kvdb_error_detail()->id, "MP0993");
	T_EQ(kvdb_bulk_finish(b), -ENOSPC);
	T_STREQ(kvdb_error_detail()->id, "MP0993");
	T_EQ(kh_count(kh_kvs("s"), 0), 0);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	kh_close();
}

static uint64_t free_bytes(void)
{
	struct kvdb_info in;

	T_EQ(kvdb_info(kh_db, &in), 0);
	return in.pool.cls[MPOOL_CAPACITY].free;
}

#define LOADED	60000u	/* bytes of a value that is loaded */
#define SMALL	120u	/* of one that lies in a key block */

/* Values of @len bytes until the pool is full, of which *@left is free then; then it ends. */
static unsigned load_and_give_up_of(struct kvdb_kvs *kvs, size_t len, uint64_t *left)
{
	struct kvdb_bulk *b;
	char key[16];
	unsigned n = 0;

	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	do
		snprintf(key, sizeof(key), "%08u", n++);
	while (!kvdb_bulk_add(b, key, 8, kh_buf, len));
	*left = free_bytes();
	kvdb_bulk_abort(b);
	return n;
}

/* Values until the pool is full, of which *@left is free then; then the load is given up. */
static unsigned load_and_give_up(struct kvdb_kvs *kvs, uint64_t *left)
{
	return load_and_give_up_of(kvs, LOADED, left);
}

/* A few large segments are not enough to be sealed: they go all the same. */
static void given_up_gives_its_few_segments_back(void)
{
	struct kvdb_opts o = kh_opts();
	uint64_t before, left;
	unsigned n;

	kh_make(96 * MIB, 0);
	o.segment_bytes = 8 * MIB;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	before = free_bytes();
	n = load_and_give_up(kh_kvs("s"), &left);
	T_OK(n > 200);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(free_bytes() >= before);
	T_OK(load_and_give_up(kh_kvs("s"), &left) >= n);
	kh_close();
}

static uint64_t used_bytes(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(kh_db, &st), 0);
	return st.space_bytes;
}

/* Half of each segment of another store, which the bound on space permits. */
static void half_is_overwritten(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb_kvs *old;

	kh_make(64 * MIB, 0);
	o.space_amp_max = 10;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	old = kh_kvs("old");
	for (unsigned step = 1; step <= 2; step++)
		for (unsigned i = 0; i < 10000; i += step)
			T_EQ(kvdb_put(old, &i, 4, kh_buf, 2000), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
}

/*
 * A load gets what is free above the reserve and, of what comes free of the other store, at least half: how
 * many segments the logs hold depends on the cores that the writer was on.
 */
static void room_is_made_for_a_load_as_for_a_put(void)
{
	uint64_t before, used, made, left;
	unsigned n;

	half_is_overwritten();
	before = free_bytes();
	used = used_bytes();
	n = load_and_give_up(kh_kvs("s"), &left);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(used_bytes() + 5000 * 2000 / 2 < used);
	made = used - used_bytes();
	/* what is left to that one is the reserve */
	load_and_give_up(kh_kvs("s"), &left);
	T_OK(n * (uint64_t)LOADED + left >= before + made / 2);
	kh_close();
}

/* What is small lies in key blocks: they leave the reserve to deletes, and have room made, too. */
static void keys_of_a_load_leave_the_reserve_and_have_room_made(void)
{
	uint64_t before, used, made, left, reserve;
	unsigned n;

	half_is_overwritten();
	before = free_bytes();
	used = used_bytes();
	n = load_and_give_up_of(kh_kvs("s"), SMALL, &left);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(used_bytes() + 5000 * 2000 / 2 < used);
	made = used - used_bytes();
	load_and_give_up(kh_kvs("s"), &reserve);
	T_OK(left + MIB >= reserve);
	T_OK(n * (uint64_t)SMALL * 5 / 4 + reserve >= before + made / 2);
	kh_close();
}

/* ---- beside others --------------------------------------------------------------------------- */

#define LOADS	24u

static struct kvdb_bulk *loads[LOADS];

/* Before each of the loads ends a record says that it will. */
static void *finish_in_turn(void *arg)
{
	struct kvdb_kvs *told = arg;

	for (uint32_t i = 0; i < LOADS; i++) {
		if (kvdb_put(told, &i, sizeof(i), "", 0) || kvdb_bulk_finish(loads[i]))
			return "put or finish failed";
	}
	return NULL;
}

static struct kvdb_kvs *load_store(uint32_t i)
{
	char name[24];

	sprintf(name, "load%u", i);
	return kh_kvs(name);
}

/* The checkpoint flushes many keys, so loads end between its boundary and what it captures. */
static void a_checkpoint_has_no_load_without_what_was_before(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb_kvs *kvs, *told;
	pthread_t thread;
	void *failed;
	uint32_t i;

	kh_fresh(128 * MIB, 0);
	kvs = kh_kvs("many");
	told = kh_kvs("told");
	for (i = 0; i < LOADS; i++) {
		loads[i] = bulk_open(load_store(i));
		T_EQ(kvdb_bulk_add(loads[i], "k", 1, "v", 1), 0);
	}
	for (i = 0; i < 100000; i++)
		T_EQ(kvdb_put(kvs, &i, sizeof(i), "", 0), 0);
	T_EQ(pthread_create(&thread, NULL, finish_in_turn, told), 0);
	T_EQ(kvdb_checkpoint(kh_db, "c", 0), 0);
	T_EQ(pthread_join(thread, &failed), 0);
	T_OK(!failed);
	kh_close();
	o.flags |= KVDB_RDONLY;
	o.checkpoint = "c";
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	told = kh_kvs("told");
	for (i = 0; i < LOADS; i++) {
		bool is_told = !kh_absent(told, &i, sizeof(i));
		bool is_there = kh_holds_str(load_store(i), "k", "v");

		T_OK(is_told || !is_there);
	}
	kh_close();
}

static void put_beside_a_load_and_die(void)
{
	struct kvdb_bulk *b = bulk_open(kh_kvs("s"));

	T_EQ(kvdb_bulk_add(b, "k", 1, "v", 1), 0);
	T_EQ(kvdb_bulk_add(b, "n", 1, "v", 1), 0);
	T_EQ(kh_put_str(kh_kvs("t"), "k", "v"), 0);
	T_EQ(kvdb_range_del(kh_kvs("s"), "n", 1, NULL, 0), 0);
	T_EQ(kvdb_bulk_finish(b), 0);
}

/* What a crash takes is a suffix: not what was acknowledged before that which stays. */
static void what_was_acknowledged_before_its_end_stays_with_it(void)
{
	kh_fresh(48 * MIB, 0);
	kh_kvs("s");
	kh_kvs("t");
	kh_close();
	t_die_in(kh_open_unbounded, put_beside_a_load_and_die);
	kh_open();
	T_OK(kh_holds_str(kh_kvs("s"), "k", "v"));
	T_OK(kh_holds_str(kh_kvs("t"), "k", "v"));
	T_OK(kh_absent(kh_kvs("s"), "n", 1));
	kh_close();
}

int main(void)
{
	T_RUN(a_difference_is_what_was_written);
	KH_RUN_MODES(appears_at_once_and_stays);
	KH_RUN_MODES(lies_over_what_was_there_and_under_what_comes);
	T_RUN(merges_meanwhile_leave_its_place);
	T_RUN(a_range_delete_meanwhile_hides_what_it_brings);
	T_RUN(what_is_not_sorted_is_refused);
	T_RUN(given_up_nothing_stays);
	T_RUN(a_process_that_dies_leaves_all_or_nothing);
	T_RUN(a_full_pool_ends_it_and_nothing_stays);
	T_RUN(bytes_are_written_about_once);
	T_RUN(transactions_see_none_or_all_of_it);
	T_RUN(is_part_of_the_next_checkpoint);
	T_RUN(a_checkpoint_has_no_load_without_what_was_before);
	T_RUN(what_was_acknowledged_before_its_end_stays_with_it);
	T_RUN(a_failed_load_can_only_be_given_up);
	KH_RUN_LARGE(room_is_made_for_a_load_as_for_a_put);
	T_RUN(keys_of_a_load_leave_the_reserve_and_have_room_made);
	T_RUN(given_up_gives_its_few_segments_back);
	th_clean();
	return t_done();
}
