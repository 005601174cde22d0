/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Little room: a pool that is filled to the last (R19), and the
 * memory budget when many stores or many cursors want a part of it. Writers
 * may be slow then, but they get an answer.
 */
#include "kvdb_help.h"

#define FILL_MAX 400000u

static uint32_t fill_len;	/* bytes of a value */
static unsigned filled;		/* keys 0 .. filled - 1 are there */

static size_t fill_key(char *key, unsigned i)
{
	/* spread in key order */
	return (size_t)sprintf(key, "%08x-%u", i * 0x9e3779b9u, i);
}

/* Without threads the test must end epochs and flush. */
static void poll_some(unsigned i)
{
	while (kh_mode->flags & KVDB_MANUAL && i % 64 == 0 && kvdb_poll(kh_db) > 0)
		;
}

/* Puts until the pool is full; the number of puts that were taken. */
static unsigned fill_more(struct kvdb_kvs *kvs, unsigned from)
{
	char key[40];
	unsigned i;
	int err = 0;

	for (i = from; i < FILL_MAX && !err; i++) {
		err = kh_put(kvs, key, fill_key(key, i), i, fill_len);
		if (err)
			break;
		poll_some(i);
	}
	if (err != -ENOSPC)
		T_FAIL("put %u: %d: %s", i, err, kvdb_error_detail()->text);
	T_OK(kvdb_error_detail()->id[0] == 'M');
	T_EQ(kvdb_error_detail()->err, -ENOSPC);
	T_OK(kvdb_error_detail()->text[0]);
	return i;
}

static void fill_check(struct kvdb_kvs *kvs, unsigned from, unsigned to, unsigned step)
{
	char key[40];
	unsigned i;

	for (i = from; i < to; i += step)
		T_OK(kh_holds(kvs, key, fill_key(key, i), i, fill_len));
}

static void delete_range(struct kvdb_kvs *kvs, unsigned from, unsigned to)
{
	char key[40];
	unsigned i;

	for (i = from; i < to; i++) {
		T_EQ(kvdb_del(kvs, key, fill_key(key, i)), 0);
		poll_some(i);
	}
}

static void fill_delete_fill(uint64_t capacity, uint64_t staging, uint32_t len)
{
	unsigned step = 3, n, again;
	struct kvdb_kvs *kvs;
	char key[40];

	fill_len = len;
	kh_fresh(capacity, staging);
	kvs = kh_kvs("s");
	filled = fill_more(kvs, 0);
	T_OK((uint64_t)filled * len > capacity / 4);
	T_OK(kh_absent(kvs, key, fill_key(key, filled)));
	fill_check(kvs, 0, filled, step);
	T_EQ(kvdb_sync(kh_db), 0);
	delete_range(kvs, 0, 10);
	T_OK(kh_absent(kvs, key, fill_key(key, 3)));
	fill_check(kvs, 10, filled, step);
	/* full, and open again */
	kh_close();
	T_EQ(kh_damage(0), 0);
	kh_open();
	kvs = kh_kvs("s");
	T_OK(kh_absent(kvs, key, fill_key(key, 3)));
	fill_check(kvs, 10, filled, step);
	/* room comes back without opening again, more than once */
	for (n = 0; n < 2; n++) {
		delete_range(kvs, 0, filled);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		T_OK(kh_absent(kvs, key, fill_key(key, filled / 2)));
		again = fill_more(kvs, 0);
		if (again <= filled / 4)
			printf("# round %u: %u of %u keys fit: %s\n", n, again, filled,
			       kvdb_error_detail()->text);
		T_OK(again > filled / 4);
		fill_check(kvs, 0, filled / 4, step);
	}
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

static void full_of_large_values(void)
{
	fill_delete_fill(32 * MIB, 0, 60000);
}

static void full_of_middle_values(void)
{
	fill_delete_fill(32 * MIB, 0, 3000);
}

static void full_with_two_classes(void)
{
	fill_delete_fill(32 * MIB, 24 * MIB, 12000);
}

/* ---- death while full --------------------------------------------------------------- */

static void fill_and_die(void)
{
	unsigned n = fill_more(kh_kvs("s"), 0);
	char note[300];
	FILE *f;

	T_EQ(kvdb_sync(kh_db), 0);
	snprintf(note, sizeof(note), "%s/note", th_dir);
	f = fopen(note, "we");
	T_OK(f && fprintf(f, "%u\n", n) > 0 && !fclose(f));
}

static void full_when_the_process_dies(void)
{
	char note[300];
	unsigned n;
	FILE *f;

	fill_len = 12000;
	kh_make(32 * MIB, 0);
	kh_die_in(fill_and_die);
	snprintf(note, sizeof(note), "%s/note", th_dir);
	f = fopen(note, "re");
	T_OK(f && fscanf(f, "%u", &filled) == 1 && !fclose(f));
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	kh_open();
	fill_check(kh_kvs("s"), 0, filled, 1);
	delete_range(kh_kvs("s"), 0, filled);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	n = fill_more(kh_kvs("s"), 0);
	printf("# %u of %u keys fit again\n", n, filled);
	T_OK(n > filled / 4);
	kh_close();
	T_EQ(kh_damage(0), 0);
	th_clean();
}

static void dropping_a_store_gives_room(void)
{
	struct mpool_info before, after;
	struct kvdb_info in;
	int i;

	fill_len = 12000;
	kh_fresh(32 * MIB, 0);
	for (i = 0; i < 3; i++) {
		filled = fill_more(kh_kvs("s"), 0);
		T_OK(filled > 100);
		kvdb_info(kh_db, &in);
		before = in.pool;
		T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		kvdb_info(kh_db, &in);
		after = in.pool;
		T_OK(after.cls[0].used + 8 * MIB < before.cls[0].used);
	}
	kh_close();
	T_EQ(kh_damage(0), 0);
	T_EQ(kvdb_drop(th_pool, NULL), 0);
	T_EQ(kvdb_create(th_pool, NULL), 0);
	kh_open();
	T_OK(fill_more(kh_kvs("s"), 0) > 100);
	kh_close();
	th_clean();
}

/*
 * Half of each segment is dead, as the bound permits. What the put that meets the end of the pool
 * has moved fits into what is free: the segments in stock are the logs'.
 */
static void a_job_for_room_counts_on_no_stock(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb_kvs *kvs;
	unsigned i;

	kh_make(64 * MIB, 0);
	o.space_amp_max = 10;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	kvs = kh_kvs("s");
	for (i = 0; i < 10000; i++)
		T_EQ(kvdb_put(kvs, &i, 4, kh_buf, 2000), 0);
	for (i = 0; i < 10000; i += 2)
		T_EQ(kvdb_put(kvs, &i, 4, kh_buf, 2000), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	for (i = 20000; !kvdb_put(kvs, &i, 4, kh_buf, 60000); i++)
		;
	T_OK(i - 20000 > 380);	/* 290 without */
	kh_close();
	th_clean();
}

static uint64_t free_bytes(void)
{
	struct kvdb_info in;

	T_EQ(kvdb_info(kh_db, &in), 0);
	return in.pool.cls[MPOOL_CAPACITY].free;
}

/* A few segments that are a good part of the pool do not wait for more before they are sealed. */
static void a_few_large_segments_come_back(void)
{
	struct kvdb_opts o = kh_opts();
	uint64_t before;

	kh_make(96 * MIB, 0);
	o.segment_bytes = 8 * MIB;
	o.logs = 1;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	T_EQ(kh_put_str(kh_kvs("stays"), "k", "v"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	before = free_bytes();
	for (unsigned i = 0; i < 500; i++)
		T_EQ(kvdb_put(kh_kvs("goes"), &i, 4, kh_buf, 60000), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_kvs_drop(kh_db, "goes"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(free_bytes() + 17 * MIB > before);	/* but for one that is open, one that is ready */
	kh_close();
	th_clean();
}

/* ---- memory ------------------------------------------------------------------------------ */

/* Each store once held many keys: what it keeps ready for more must not use the budget up. */
static void stores_loaded_one_after_another(void)
{
	char name[16];
	unsigned i, j;

	kh_fresh(256 * MIB, 0);
	for (i = 0; i < 24; i++) {
		struct kvdb_kvs *kvs;

		snprintf(name, sizeof(name), "s%u", i);
		kvs = kh_kvs(name);
		for (j = 0; j < 33000; j++)
			T_EQ(kvdb_put(kvs, &(uint64_t){ j * 0x9e3779b9ull }, 8, "v", 1), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	}
	for (j = 0; j < 1000; j++)
		T_EQ(kvdb_put(kh_kvs("s3"), &j, 4, "v", 1), 0);
	kh_close();
	th_clean();
}

/* How a walk ends, and what it has shown. */
static int count(struct kvdb_cursor *cur, unsigned *n)
{
	int rc;

	for (*n = 0; !(rc = kvdb_cursor_next(cur, NULL, NULL, NULL, NULL)); ++*n)
		;
	return rc;
}

/*
 * A cursor keeps the memtables of its birth, or says that there was no memory for them; the
 * writer may be its owner.
 */
static void cursors_do_not_stop_writers(void)
{
	struct kvdb_cursor *cur[8];
	struct kvdb_kvs *kvs;
	char val[128] = "";
	unsigned i, j, n;
	int rc;

	kh_fresh(256 * MIB, 0);
	kvs = kh_kvs("s");
	for (i = 0; i < 8; i++) {
		for (j = 0; j < 18000; j++)
			T_EQ(kvdb_put(kvs, &(uint64_t){ (i * 18000 + j) * 0x9e3779b9ull }, 8, val,
				      sizeof(val)), 0);
		T_EQ(kvdb_cursor_open(kvs, KVDB_KEYS_ONLY, NULL, 0, &cur[i]), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	}
	for (i = 0; i < 8; i++) {
		rc = count(cur[i], &n);
		if (rc == -ESTALE && i < 7) {
			T_EQ(n, 0);
			T_EQ(kvdb_cursor_renew(cur[i], NULL), 0);
			rc = count(cur[i], &n);
			T_EQ(n, 8 * 18000);
		} else {
			T_EQ(n, (i + 1) * 18000);
		}
		T_EQ(rc, -ENOENT);
		kvdb_cursor_close(cur[i]);
	}
	kh_close();
	th_clean();
}

static void run_both(const char *name, void (*fn)(void))
{
	char full[160];

	kh_mode = &kh_modes[1];
	snprintf(full, sizeof(full), "%s (%s)", name, kh_mode->name);
	t_run(full, fn);
	kh_mode = &kh_modes[3];
	snprintf(full, sizeof(full), "%s (%s)", name, kh_mode->name);
	t_run(full, fn);
}

int main(void)
{
	run_both("full_of_large_values", full_of_large_values);
	run_both("full_of_middle_values", full_of_middle_values);
	run_both("full_with_two_classes", full_with_two_classes);
	run_both("full_when_the_process_dies", full_when_the_process_dies);
	run_both("dropping_a_store_gives_room", dropping_a_store_gives_room);
	run_both("a_few_large_segments_come_back", a_few_large_segments_come_back);
	run_both("a_job_for_room_counts_on_no_stock", a_job_for_room_counts_on_no_stock);
	run_both("stores_loaded_one_after_another", stores_loaded_one_after_another);
	run_both("cursors_do_not_stop_writers", cursors_do_not_stop_writers);
	th_clean();
	return t_done();
}
