/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Values that expire: of a store, of one put; what gets and cursors see when
 * time passes, through flush, compaction, close and death; clocks that jump;
 * and that what expired gives its space back. Time is the test's.
 */
#include "harness.h"

#include <errno.h>
#include <time.h>

#include "kvdb_help.h"

#define POOL	(256 * MIB)
#define SEC	1000000000ull
#define HOUR	(3600 * SEC)

static uint64_t mono, wall;	/* ns */
static unsigned jump_at;	/* at this look from now on an hour has passed; 0: at none */

static uint64_t clock_now(void *arg)
{
	(void)arg;
	if (jump_at && !--jump_at) {
		mono += HOUR;
		wall += HOUR;
	}
	return mono += 100;
}

static void clock_sleep(void *arg, uint64_t t)
{
	(void)arg;
	mono = t > mono ? t : mono;
}

static uint64_t clock_wall(void *arg)
{
	(void)arg;
	return wall;
}

static const struct kvdb_clock test_clock = { clock_now, clock_sleep, NULL, clock_wall };

static int reopen(uint32_t flags)
{
	struct kvdb_opts o = kh_opts();

	o.flags = KVDB_MANUAL | flags;
	o.segment_bytes = 256u << 10;
	o.clock = &test_clock;
	th_again();
	return kvdb_open(th_pool, &o, &kh_db);
}

static void fresh(void)
{
	mono = SEC;
	wall = 1700000000 * SEC;
	kh_make(POOL, 0);
	T_EQ(reopen(0), 0);
}

static void end(void)
{
	kh_close();
	th_clean();
}

/* Both clocks go on. */
static void pass(uint64_t ns)
{
	mono += ns;
	wall += ns;
}

static struct kvdb_kvs *store(const char *name, uint64_t ttl_s)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;

	o.ttl_s = ttl_s;
	T_EQ(kvdb_kvs_create(kh_db, name, &o), 0);
	return kh_kvs(name);
}

static int put_ttl(struct kvdb_kvs *k, const char *key, const char *val, uint64_t ttl_s)
{
	return kvdb_put_ttl(k, key, strlen(key), val, strlen(val), ttl_s);
}

static unsigned found(struct kvdb_kvs *k, const char *prefix)
{
	struct kvdb_probe p = { 0 };

	T_EQ(kvdb_prefix_probe(k, prefix, strlen(prefix), &p), 0);
	return p.found;
}

static void a_value_is_gone_after_its_time(void)
{
	static char big[3000];
	unsigned place;
	struct kvdb_kvs *k;

	fresh();
	k = store("s", 10);
	memset(big, 'b', sizeof(big) - 1);
	for (place = 0; place < 4; place++) {
		T_EQ(kh_put_str(k, "small", "1"), 0);
		T_EQ(kh_put_str(k, "large", big), 0);
		T_EQ(put_ttl(k, "long", "2", 20), 0);
		T_EQ(put_ttl(k, "ever", "3", 0), 0);
		/* in the memtable, in a run, in the oldest run, replayed */
		if (place)
			T_EQ(kvdb_drain(kh_db, place == 2 ? KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT :
					KVDB_WAIT_FLUSH), 0);
		if (place == 3) {
			kh_close();
			T_EQ(reopen(0), 0);
			k = kh_kvs("s");
		}
		pass(9 * SEC);
		T_OK(kh_holds_str(k, "small", "1"));
		T_OK(kh_holds_str(k, "large", big));
		T_EQ(kh_count(k, 0), 4);
		T_EQ(found(k, "s"), KVDB_FOUND_ONE);
		T_EQ(found(k, "l"), KVDB_FOUND_SEVERAL);
		pass(1 * SEC);
		T_EQ(found(k, "s"), KVDB_FOUND_NONE);
		T_EQ(found(k, "l"), KVDB_FOUND_ONE);
		T_OK(kh_absent(k, "small", 5));
		T_OK(kh_absent(k, "large", 5));
		T_OK(kh_holds_str(k, "long", "2"));
		T_EQ(kh_count(k, 0), 2);
		T_EQ(kh_count(k, KVDB_REVERSE), 2);
		pass(10 * SEC);
		T_OK(kh_absent(k, "long", 4));
		T_OK(kh_holds_str(k, "ever", "3"));
		T_EQ(kh_count(k, 0), 1);
	}
	T_EQ(put_ttl(k, "k", "v", KVDB_TTL_MAX + 1), -EINVAL);
	T_EQ(put_ttl(k, "k", "v", KVDB_TTL_MAX), 0);
	T_OK(kh_holds_str(k, "k", "v"));
	end();
}

/* What expired is a tombstone: what it replaced stays away, wherever both lie. */
static void an_older_value_does_not_come_back(void)
{
	char key[16];
	struct kvdb_kvs *k;
	unsigned i;

	fresh();
	k = store("s", 0);
	for (i = 0; i < 400; i++) {
		snprintf(key, sizeof(key), "%03u", i);
		T_EQ(kh_put_str(k, key, "old"), 0);
	}
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	for (i = 0; i < 3; i++) {
		snprintf(key, sizeof(key), "%03u", i);
		T_EQ(put_ttl(k, key, "new", 5), 0);
		if (i)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(put_ttl(k, "003", "in the memtable", 5), 0);
	pass(5 * SEC);
	for (i = 0; i < 4; i++) {
		T_OK(kh_absent(k, "000", 3));
		T_OK(kh_absent(k, "001", 3));
		T_OK(kh_absent(k, "002", 3));
		T_OK(kh_absent(k, "003", 3));
		T_EQ(kh_count(k, 0), 396);
		T_EQ(kvdb_drain(kh_db, i < 2 ? KVDB_WAIT_FLUSH :
				KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	}
	T_EQ(kh_put_str(k, "001", "again"), 0);
	T_OK(kh_holds_str(k, "001", "again"));
	end();
}

static void a_cursor_sees_what_its_birth_saw(void)
{
	struct kvdb_cursor *cur;
	struct kvdb_kvs *k;
	unsigned n = 0;

	fresh();
	k = store("s", 5);
	T_EQ(kh_put_str(k, "a", "1"), 0);
	T_EQ(kh_put_str(k, "b", "2"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kh_put_str(k, "c", "3"), 0);
	T_EQ(kvdb_cursor_open(k, 0, NULL, 0, &cur), 0);
	pass(60 * SEC);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(kh_count(k, 0), 0);
	while (!kvdb_cursor_next(cur, NULL, NULL, NULL, NULL))
		n++;
	T_EQ(n, 3);
	kvdb_cursor_close(cur);
	end();
}

static void the_time_of_a_store_counts_for_what_is_put_later(void)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	struct kvdb_kvs_info in;
	struct kvdb_kvs *k;

	fresh();
	k = store("s", 0);
	T_EQ(kh_put_str(k, "before", "1"), 0);
	o.ttl_s = 5;
	T_EQ(kvdb_kvs_set(k, &o, KVDB_KVS_TTL), 0);
	T_EQ(kh_put_str(k, "between", "2"), 0);
	kh_close();
	T_EQ(reopen(0), 0);
	k = kh_kvs("s");
	T_EQ(kvdb_kvs_info(k, &in), 0);
	T_EQ(in.ttl_s, 5);
	o.ttl_s = KVDB_TTL_MAX + 1;
	T_EQ(kvdb_kvs_set(k, &o, KVDB_KVS_TTL), -EINVAL);
	o.ttl_s = 0;
	T_EQ(kvdb_kvs_set(k, &o, KVDB_KVS_TTL), 0);
	T_EQ(kh_put_str(k, "after", "3"), 0);
	pass(5 * SEC);
	T_OK(kh_holds_str(k, "before", "1"));
	T_OK(kh_absent(k, "between", 7));
	T_OK(kh_holds_str(k, "after", "3"));
	end();
}

/* ---- clocks ------------------------------------------------------------------------ */

static void time_does_not_go_back(void)
{
	struct kvdb_kvs *k;

	fresh();
	k = store("s", 0);
	T_EQ(put_ttl(k, "k", "v", 100), 0);
	T_EQ(put_ttl(k, "run", "v", 100), 0);
	T_EQ(kh_put_str(k, "1", "v"), 0);
	T_EQ(kh_put_str(k, "2", "v"), 0);
	T_EQ(kh_put_str(k, "3", "v"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	pass(99 * SEC);
	/* a clock that is set far ahead does nothing to a database that is open */
	wall += 1000 * HOUR;
	T_OK(kh_holds_str(k, "k", "v"));
	pass(SEC);
	T_OK(kh_absent(k, "k", 1));
	wall -= 1000 * HOUR;
	kh_close();
	wall -= HOUR;
	T_EQ(reopen(0), 0);
	k = kh_kvs("s");
	T_OK(kh_absent(k, "k", 1));
	T_OK(kh_absent(k, "run", 3));
	T_EQ(put_ttl(k, "k", "w", 100), 0);
	pass(99 * SEC);
	T_OK(kh_holds_str(k, "k", "w"));
	pass(SEC);
	T_OK(kh_absent(k, "k", 1));
	end();
}

/* A machine that was paused for days: of its clocks the wall clock alone tells. */
static void time_asleep_counts(void)
{
	struct kvdb_cursor *cur;
	struct kvdb_txn *txn;
	struct kvdb_kvs *k;
	char got[4];
	size_t len;

	fresh();
	k = store("s", 0);
	T_EQ(put_ttl(k, "hour", "v", 3600), 0);
	T_EQ(put_ttl(k, "week", "v", 7 * 24 * 3600), 0);
	T_EQ(kvdb_txn_begin(kh_db, KVDB_TXN_RDONLY, &txn), 0);
	T_EQ(kvdb_cursor_open(k, 0, "hour", 4, &cur), 0);
	wall += 72 * HOUR;
	T_OK(kh_absent(k, "hour", 4));
	T_OK(kh_holds_str(k, "week", "v"));
	/* no view changes under its reader */
	T_EQ(kvdb_txn_get(txn, k, "hour", 4, got, sizeof(got), &len), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	kvdb_cursor_close(cur);
	T_EQ(kvdb_txn_commit(txn, 0, NULL), 0);
	/* it does not go back, and goes on from there */
	wall -= 71 * HOUR;
	T_OK(kh_absent(k, "hour", 4));
	T_EQ(put_ttl(k, "later", "v", 2 * 3600), 0);
	mono += HOUR;
	T_OK(kh_holds_str(k, "later", "v"));
	mono += HOUR;
	T_OK(kh_absent(k, "later", 5));
	wall += 71 * HOUR;
	kh_close();
	T_EQ(reopen(0), 0);
	T_OK(kh_holds_str(kh_kvs("s"), "week", "v"));
	wall += 12 * HOUR;
	T_OK(kh_holds_str(kh_kvs("s"), "week", "v"));
	wall += 7 * 24 * HOUR - HOUR;
	T_OK(kh_absent(kh_kvs("s"), "week", 4));
	end();
}

static void a_clock_that_jumped_ahead_must_be_confirmed(void)
{
	struct kvdb_kvs *k;
	int rc;

	fresh();
	k = store("s", 0);
	T_EQ(put_ttl(k, "k", "v", 100), 0);
	kh_close();
	wall += 25 * HOUR;
	rc = reopen(0);
	T_EQ(rc, -ETIME);
	T_OK(strstr(kvdb_error_detail()->text, "KVDB_TIME_JUMP"));
	wall -= 2 * HOUR;
	T_EQ(reopen(0), 0);
	T_OK(kh_absent(kh_kvs("s"), "k", 1));
	kh_close();
	wall += 100 * HOUR;
	T_EQ(reopen(0), -ETIME);
	T_EQ(reopen(KVDB_TIME_JUMP), 0);
	kh_close();
	T_EQ(reopen(0), 0);
	end();
}

/* Where nothing expires the clock is of no interest. */
static void without_expiry_a_jump_is_none(void)
{
	fresh();
	T_EQ(kh_put_str(store("s", 0), "k", "v"), 0);
	kh_close();
	wall += 1000 * HOUR;
	T_EQ(reopen(0), 0);
	T_OK(kh_holds_str(kh_kvs("s"), "k", "v"));
	end();
}

static void die_with_values(void)
{
	struct kvdb_kvs *k = store("s", 3600);

	T_EQ(kh_put_str(k, "k", "v"), 0);
	T_EQ(kh_put(k, "large", 5, 7, 100000), 0);
	T_EQ(put_ttl(k, "short", "v", 60), 0);
	T_EQ(put_ttl(k, "ever", "v", 0), 0);
	T_EQ(kvdb_sync(kh_db), 0);
}

static void expiry_outlives_the_process(void)
{
	struct kvdb_kvs *k;

	kh_make(POOL, 0);
	kh_die_in(die_with_values);
	mono = SEC;
	wall = (uint64_t)time(NULL) * SEC + HOUR / 2;
	T_EQ(reopen(0), 0);
	k = kh_kvs("s");
	T_OK(kh_holds_str(k, "k", "v"));
	T_OK(kh_holds(k, "large", 5, 7, 100000));
	T_OK(kh_absent(k, "short", 5));
	pass(HOUR);
	T_OK(kh_absent(k, "k", 1));
	T_OK(kh_absent(k, "large", 5));
	T_OK(kh_holds_str(k, "ever", "v"));
	end();
}

static void die_after_the_first_value_that_expires(void)
{
	T_EQ(put_ttl(store("s", 0), "k", "v", 365 * 24 * 3600), 0);
	T_EQ(kvdb_sync(kh_db), 0);
}

static void a_jump_after_a_crash_must_be_confirmed_too(void)
{
	kh_make(POOL, 0);
	kh_die_in(die_after_the_first_value_that_expires);
	mono = SEC;
	wall = (uint64_t)time(NULL) * SEC + 1000 * HOUR;
	T_EQ(reopen(0), -ETIME);
	wall -= 1000 * HOUR;
	T_EQ(reopen(0), 0);
	T_OK(kh_holds_str(kh_kvs("s"), "k", "v"));
	end();
}

/* ---- space ---------------------------------------------------------------------------- */

static uint64_t used(void)
{
	struct kvdb_info in;

	T_EQ(kvdb_info(kh_db, &in), 0);
	return in.pool.cls[MPOOL_CAPACITY].used;
}

static void what_expired_gives_its_space_back(void)
{
	struct kvdb_kvs_info in;
	uint64_t before, full;
	struct kvdb_kvs *k;
	char key[16];
	unsigned i;

	fresh();
	k = store("s", 1000);
	before = used();
	for (i = 0; i < 10000; i++) {
		snprintf(key, sizeof(key), "%08u", i);
		T_EQ(kh_put(k, key, 8, i, 3000), 0);
	}
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	full = used();
	T_OK(full > before + 25 * MIB);
	pass(1000 * SEC);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(kvdb_kvs_info(k, &in), 0);
	T_EQ(in.keys_estimate, 0);
	T_EQ(in.runs, 0);
	T_OK(used() < before + (full - before) / 4);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	T_EQ(reopen(0), 0);
	end();
}

static void what_a_bulk_load_brings_expires(void)
{
	static char big[3000];
	struct kvdb_bulk *b;
	struct kvdb_kvs *k;

	fresh();
	k = store("s", 10);
	T_EQ(kvdb_bulk_open(k, 0, &b), 0);
	T_EQ(kvdb_bulk_add(b, "a", 1, "1", 1), 0);
	T_EQ(kvdb_bulk_add(b, "b", 1, big, sizeof(big)), 0);
	pass(5 * SEC);
	T_EQ(kvdb_bulk_add(b, "c", 1, big, sizeof(big)), 0);
	T_EQ(kvdb_bulk_finish(b), 0);
	T_EQ(kh_count(k, 0), 3);
	pass(6 * SEC);
	T_EQ(kh_count(k, 0), 1);
	T_OK(kh_absent(k, "a", 1) && kh_absent(k, "b", 1));
	kh_close();
	T_EQ(reopen(0), 0);
	T_EQ(kh_count(kh_kvs("s"), 0), 1);
	pass(5 * SEC);
	T_EQ(kh_count(kh_kvs("s"), 0), 0);
	end();
}

static struct kvdb_txn *begin(void)
{
	struct kvdb_txn *t;

	T_EQ(kvdb_txn_begin(kh_db, 0, &t), 0);
	return t;
}

static int txn_put(struct kvdb_txn *t, struct kvdb_kvs *k, const char *key, const char *val)
{
	return kvdb_txn_put(t, k, key, strlen(key), val, strlen(val));
}

static void what_a_transaction_puts_expires_from_its_commit_on(void)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	static char big[3000];
	struct kvdb_kvs *k, *ever;
	struct kvdb_txn *t;
	char buf[8];
	unsigned place;
	size_t len;

	fresh();
	k = store("s", 10);
	ever = store("ever", 0);
	memset(big, 'b', sizeof(big) - 1);
	for (place = 0; place < 3; place++) {
		t = begin();
		T_EQ(txn_put(t, k, "small", "1"), 0);
		T_EQ(txn_put(t, k, "large", big), 0);
		T_EQ(txn_put(t, k, "gone", "1"), 0);
		T_EQ(kvdb_txn_del(t, k, "gone", 4), 0);
		T_EQ(txn_put(t, ever, "k", "1"), 0);
		/* counts for later transactions */
		o.ttl_s = 1;
		T_EQ(kvdb_kvs_set(k, &o, KVDB_KVS_TTL), 0);
		pass(20 * SEC);
		T_EQ(kvdb_txn_get(t, k, "small", 5, buf, sizeof(buf), &len), 0);
		T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
		o.ttl_s = 10;
		T_EQ(kvdb_kvs_set(k, &o, KVDB_KVS_TTL), 0);
		/* in the memtable, in a run, in a run that was opened */
		if (place)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (place == 2) {
			kh_close();
			T_EQ(reopen(0), 0);
			k = kh_kvs("s");
			ever = kh_kvs("ever");
		}
		pass(9 * SEC);
		T_OK(kh_holds_str(k, "small", "1"));
		T_OK(kh_holds_str(k, "large", big));
		T_EQ(kh_count(k, 0), 2);
		pass(SEC);
		T_OK(kh_absent(k, "small", 5));
		T_EQ(kh_count(k, 0), 0);
		T_OK(kh_holds_str(ever, "k", "1"));
	}
	end();
}

static void die_with_a_transaction(void)
{
	static char big[3000];
	struct kvdb_kvs *k = store("s", 3600);
	struct kvdb_txn *t = begin();

	memset(big, 'b', sizeof(big) - 1);
	T_EQ(txn_put(t, k, "small", "1"), 0);
	T_EQ(txn_put(t, k, "large", big), 0);
	T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, NULL), 0);
}

static void expiry_of_a_transaction_outlives_the_process(void)
{
	kh_make(POOL, 0);
	kh_die_in(die_with_a_transaction);
	mono = SEC;
	wall = (uint64_t)time(NULL) * SEC + HOUR / 2;
	T_EQ(reopen(0), 0);
	T_EQ(kh_count(kh_kvs("s"), 0), 2);
	pass(HOUR / 2 + 60 * SEC);
	T_EQ(kh_count(kh_kvs("s"), 0), 0);
	end();
}

static char diff_text[64];

static int diff_note(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	(void)arg;
	(void)vlen;
	snprintf(diff_text + strlen(diff_text), sizeof(diff_text) - strlen(diff_text), "%c%.*s ",
		 val ? '+' : '-', (int)klen, (const char *)key);
	return 0;
}

static struct kvdb *at(const char *ckpt)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb *db;

	o.flags = KVDB_RDONLY;
	o.clock = &test_clock;
	o.checkpoint = ckpt;
	T_EQ(kvdb_open(th_pool, &o, &db), 0);
	return db;
}

static void a_difference_says_what_expired(void)
{
	struct kvdb_kvs *k, *ka, *kb;
	struct kvdb *a, *b;

	fresh();
	k = store("s", 0);
	T_EQ(put_ttl(k, "goes", "1", 10), 0);
	T_EQ(put_ttl(k, "stays", "1", 100), 0);
	T_EQ(kvdb_checkpoint(kh_db, "one", 0), 0);
	T_EQ(put_ttl(k, "comes", "1", 100), 0);
	T_EQ(put_ttl(k, "short", "1", 10), 0);
	T_EQ(kvdb_checkpoint(kh_db, "two", 0), 0);
	pass(11 * SEC);
	a = at("one");
	b = at("two");
	T_EQ(kvdb_kvs_open(a, "s", &ka), 0);
	T_EQ(kvdb_kvs_open(b, "s", &kb), 0);
	T_EQ(kvdb_diff(ka, kb, diff_note, NULL), 0);
	T_OK(!strcmp(diff_text, "+comes -goes "));
	T_EQ(kvdb_close(a), 0);
	T_EQ(kvdb_close(b), 0);
	end();
}

static void load(const char *val)
{
	struct kvdb_bulk *b;

	T_EQ(kvdb_bulk_open(kh_kvs("s"), 0, &b), 0);
	T_EQ(kvdb_bulk_add(b, "k", 1, val, strlen(val)), 0);
	T_EQ(kvdb_bulk_finish(b), 0);
}

static void reopen_later(void)
{
	pass(SEC);
	T_EQ(reopen(0), 0);
}

/* The run that had the stamp leaves nothing behind but its checkpoint. */
static void load_expire_and_die(void)
{
	struct kvdb_kvs_info in;

	load("old");
	T_EQ(kvdb_checkpoint(kh_db, "one", 0), 0);
	pass(11 * SEC);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(kvdb_kvs_info(kh_kvs("s"), &in), 0);
	T_EQ(in.runs, 0);
}

/* C7: a stamp that a checkpoint shows is not given again after a crash. */
static void a_difference_says_what_was_loaded_after_a_crash(void)
{
	struct kvdb_kvs *ka, *kb;
	struct kvdb *a, *b;

	fresh();
	store("s", 10);
	kh_close();
	t_die_in(reopen_later, load_expire_and_die);
	pass(15 * SEC);
	T_EQ(reopen(0), 0);
	load("new");
	T_EQ(kvdb_checkpoint(kh_db, "two", 0), 0);
	a = at("one");
	b = at("two");
	T_EQ(kvdb_kvs_open(a, "s", &ka), 0);
	T_EQ(kvdb_kvs_open(b, "s", &kb), 0);
	diff_text[0] = 0;
	T_EQ(kvdb_diff(ka, kb, diff_note, NULL), 0);
	T_OK(!strcmp(diff_text, "+k "));
	T_EQ(kvdb_close(a), 0);
	T_EQ(kvdb_close(b), 0);
	end();
}

static void an_old_checkpoint_of_values_that_expire_opens(void)
{
	struct kvdb_kvs *k;
	struct kvdb *a;

	fresh();
	k = store("s", 0);
	T_EQ(put_ttl(k, "goes", "1", 3600), 0);
	T_EQ(put_ttl(k, "stays", "1", 100 * 3600), 0);
	T_EQ(kvdb_checkpoint(kh_db, "one", 0), 0);
	pass(50 * HOUR);
	T_EQ(kh_put_str(k, "k", "v"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	a = at("one");
	T_EQ(kvdb_kvs_open(a, "s", &k), 0);
	T_EQ(kh_count(k, 0), 1);
	T_OK(kh_holds_str(k, "stays", "1"));
	T_EQ(kvdb_close(a), 0);
	end();
}

/* Its checkpoints can be read without KVDB_TIME_JUMP, however long it is open. */
static void an_idle_database_records_the_time(void)
{
	struct kvdb_kvs *k;
	struct kvdb *a;

	fresh();
	k = store("s", 0);
	T_EQ(put_ttl(k, "goes", "1", 3600), 0);
	T_EQ(put_ttl(k, "stays", "1", 200 * 3600), 0);
	T_EQ(kvdb_checkpoint(kh_db, "one", 0), 0);
	for (unsigned i = 0; i < 100; i++) {
		pass(HOUR);
		while (kvdb_poll(kh_db) > 0)
			;
	}
	a = at("one");
	T_EQ(kvdb_kvs_open(a, "s", &k), 0);
	T_EQ(kh_count(k, 0), 1);
	T_EQ(kvdb_close(a), 0);
	end();
}

static void many_keys_and_pinned_ones_expire_too(void)
{
	struct kvdb_get g[2] = { { .key = "a", .klen = 1 }, { .key = "b", .klen = 1 } };
	struct kvdb_pin pin;
	struct kvdb_kvs *k;
	unsigned round;

	fresh();
	k = store("s", 0);
	T_EQ(put_ttl(k, "a", "1", 10), 0);
	T_EQ(kh_put_str(k, "b", "2"), 0);
	T_EQ(kvdb_get_pinned(k, "a", 1, &pin), 0);
	kvdb_unpin(&pin);
	pass(11 * SEC);
	for (round = 0; round < 3; round++) {
		T_EQ(kvdb_get_multi(k, round % 2 ? KVDB_GET_SNAPSHOT : 0, g, 2), 0);
		T_EQ(g[0].err, -ENOENT);
		T_EQ(g[1].err, 0);
		T_EQ(kvdb_get_pinned(k, "a", 1, &pin), -ENOENT);
		T_EQ(kvdb_get_pinned(k, "b", 1, &pin), 0);
		kvdb_unpin(&pin);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	}
	end();
}

static int no_value_has_no_length(void *arg, const void *old, size_t olen, const void **val,
				  size_t *vlen)
{
	(void)val;
	(void)vlen;
	*(unsigned *)arg += !old;
	return old ? olen == 5000 ? KVDB_UPDATE_KEEP : -EDOM : olen ? -ERANGE : KVDB_UPDATE_KEEP;
}

/* An update reads a long value twice: for its length, and for its bytes. */
static void a_value_that_expires_while_it_is_updated_is_none(void)
{
	static char big[5000];
	unsigned gone = 0;
	struct kvdb_kvs *k;

	fresh();
	k = store("s", 0);
	for (unsigned n = 0; n < 20; n++) {
		T_EQ(kvdb_put_ttl(k, "k", 1, big, sizeof(big), 60), 0);
		jump_at = n;
		T_EQ(kvdb_update(k, "k", 1, no_value_has_no_length, &gone), 0);
		jump_at = 0;
	}
	T_OK(gone >= 2 && gone < 20);
	end();
}

int main(void)
{
	T_RUN(a_value_is_gone_after_its_time);
	T_RUN(an_older_value_does_not_come_back);
	T_RUN(a_cursor_sees_what_its_birth_saw);
	T_RUN(the_time_of_a_store_counts_for_what_is_put_later);
	T_RUN(time_does_not_go_back);
	T_RUN(time_asleep_counts);
	T_RUN(a_clock_that_jumped_ahead_must_be_confirmed);
	T_RUN(without_expiry_a_jump_is_none);
	T_RUN(expiry_outlives_the_process);
	T_RUN(a_jump_after_a_crash_must_be_confirmed_too);
	T_RUN(what_expired_gives_its_space_back);
	T_RUN(what_a_bulk_load_brings_expires);
	T_RUN(what_a_transaction_puts_expires_from_its_commit_on);
	T_RUN(expiry_of_a_transaction_outlives_the_process);
	T_RUN(a_difference_says_what_expired);
	T_RUN(a_difference_says_what_was_loaded_after_a_crash);
	T_RUN(an_old_checkpoint_of_values_that_expire_opens);
	T_RUN(an_idle_database_records_the_time);
	T_RUN(many_keys_and_pinned_ones_expire_too);
	T_RUN(a_value_that_expires_while_it_is_updated_is_none);
	return t_done();
}
