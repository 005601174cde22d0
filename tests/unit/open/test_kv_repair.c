/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Repair of a database with planted damage of each kind, against a model of
 * every version of every key: what is certain is the newest, what is not lies
 * in the store of what was found, and nothing else is there.
 */
#include "kv_hurt.h"

/* ---- tests ------------------------------------------------------------------------ */

static void a_sound_database_is_brought_over_whole(void)
{
	struct kvdb_repair r;

	make();
	r = repair();
	T_EQ(r.found_keys + r.lost_values + r.lost_ranges + r.log_bytes + r.is_guess, 0);
	T_EQ(r.stores, 2);
	T_EQ(check(), 0);
	T_EQ(nrange, 0);
	/* not over something */
	T_EQ(kvdb_repair(dir, NULL, to, NULL, NULL, &r), -EINVAL);
	finish();
}

/* The newest versions and deletions of some keys are gone. */
static void what_a_damaged_page_may_have_hidden_is_not_certain(void)
{
	struct kvdb_repair r;
	unsigned found, deleted = 0;

	make();
	hurt(0, 0, 999, PAGE);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	T_OK(is_named(0, 999));
	found = check();
	T_EQ(found, r.found_keys);
	for (unsigned k = 0; k < KEYS; k++) {
		if (!is_named(0, k))
			continue;
		/* the logs have large values, of the newest version too */
		if (k % 2 && k % 7)
			T_EQ(version(to, "a.found", 0, k), newest[0][k]);
		else
			T_EQ(version(to, "a.found", 0, k), 1);
		deleted += k % 7 == 0;
	}
	/* of keys that were deleted the older version is there, and only there */
	T_OK(deleted > 2);
	finish();
}

/* The footer names the keys. */
static void a_block_without_the_crcs_of_its_pages_is_named_by_its_footer(void)
{
	struct kvdb_repair r;

	make();
	hurt(0, 0, 999, CRCS);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	T_OK(strstr(told, "CRC of the page CRCs"));
	/* the newer run has 0, 3, 6, 7, ... 1998 */
	T_OK(is_named(0, 0) && is_named(0, 1998) && !is_named(0, 1999) && !is_named(1, 0));
	T_EQ(check(), r.found_keys);
	T_EQ(version(to, "a", 0, 1999), newest[0][1999]);
	finish();
}

/* Any key may have been among them. */
static void keys_that_a_lost_range_delete_may_have_hidden_are_not_certain(void)
{
	struct kvdb_repair r;

	make();
	hurt(1, 0, 999, ROWS);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	T_OK(strstr(told, "CRC of the deletes of many keys"));
	T_OK(is_named(1, 0) && is_named(1, KEYS - 1) && !is_named(0, 0));
	for (unsigned k = 0; k < KEYS; k++) {
		bool is_gone = k >= GONE && k < GONE + 100;
		uint32_t maybe = version(to, "b.found", 1, k);

		T_EQ(version(to, "b", 1, k), 0);
		/* what the flush left out as hidden is gone, if no log has it */
		if (!is_gone)
			T_EQ(maybe, newest[1][k]);
		else
			T_OK(maybe == 1 || maybe == 2);
		T_EQ(version(to, "a", 0, k), newest[0][k]);
	}
	finish();
}

static void what_a_newer_run_says_is_certain_whatever_an_older_one_lost(void)
{
	struct kvdb_repair r;

	make();
	hurt(1, 1, 1000, FOOTER);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	check();
	for (unsigned k = 0; k < KEYS; k++) {
		/* what is left says that these are deleted */
		if (k >= GONE && k < GONE + 100)
			T_EQ(version(to, "b", 1, k) + version(to, "b.found", 1, k), 0);
		else if (k % 3 == 0 && k % 7)
			T_EQ(version(to, "b", 1, k), 2);
		/* small values were with the keys */
		else if (k % 7)
			T_EQ(version(to, "b.found", 1, k), k % 2 ? 1 : 0);
		else
			T_EQ(version(to, "b.found", 1, k), 0);
	}
	finish();
}

static void a_lost_value_is_named_and_its_past_is_not_certain(void)
{
	struct kvdb_repair r;

	make();
	hurt(0, 0, 999, VALUE);
	r = repair();
	T_EQ(r.lost_values, 1);
	T_EQ(r.lost_ranges, 0);
	T_EQ(nrange, 1);
	T_OK(range[0].from == 999 && range[0].to == 1000);
	T_EQ(check(), 1);
	T_EQ(version(to, "a.found", 0, 999), 1);
	finish();
}

/* The log segment in which key @k of store @s has its newest value is gone, whole. */
static void lose_segment(unsigned s, unsigned k)
{
	struct mpool_op op = { .type = MPOOL_OP_DELETE };
	struct kvdb_kvs *kvs;
	struct kv_thread *t;
	struct mpool *mp;
	struct kv_ent e;
	char key[16];
	size_t klen = key_of(k, key);

	open_at(dir, &db);
	T_EQ(kvdb_kvs_open(db, s ? "b" : "a", &kvs), 0);
	t = kv_enter();
	T_EQ(kv_run_lookup(db, atomic_load(&kvs->k_tree)->tr_run[0], key, klen,
			   kv_hash(key, klen), &e), 0);
	op.id = e.e_seg->sg_id;
	kv_exit(t);
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_open(dir, NULL, &mp), 0);
	T_EQ(mpool_batch(mp, &op, 1), 0);
	T_EQ(mpool_close(mp), 0);
}

static void a_lost_segment_costs_the_values_in_it(void)
{
	struct kvdb_repair r;

	make();
	lose_segment(0, 999);
	r = repair();
	T_OK(r.lost_values && r.lost_values < KEYS);
	T_OK(is_named(0, 999));
	check();
	finish();
}

/* A store that has the name which what was found would get. */
static void names_that_are_taken_are_passed_over(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb_repair r;
	uint8_t val[400];
	char key[16];

	make();
	open_at(dir, &db);
	T_EQ(kvdb_kvs_create(db, "a.found", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "a.found", &kvs), 0);
	T_EQ(kvdb_put(kvs, key, key_of(5, key), val, value(0, 5, 7, val)), 0);
	T_EQ(kvdb_close(db), 0);
	hurt(0, 0, 999, PAGE);
	r = repair();
	T_EQ(r.stores, 3);
	T_EQ(version(to, "a.found", 0, 5), 7);
	T_EQ(version(to, "a.found", 0, 999), 0);
	T_EQ(version(to, "a.found-2", 0, 999), 2);
	finish();
}

/* ---- values that expire ------------------------------------------------------------ */

#define TTL_FROM 600u	/* 100 keys of store a from here on are put for a minute */

static uint64_t clock_now(void *arg)
{
	(void)arg;
	return 1000000000u;
}

static void clock_sleep(void *arg, uint64_t t)
{
	(void)arg;
	(void)t;
}

static uint64_t in_an_hour(void *arg)
{
	(void)arg;
	return ((uint64_t)time(NULL) + 3600) * 1000000000u;
}

static uint64_t in_ten_years(void *arg)
{
	return in_an_hour(arg) + 10ull * 365 * 24 * 3600 * 1000000000u;
}

static const struct kvdb_clock later = { clock_now, clock_sleep, NULL, in_an_hour };
static const struct kvdb_clock wrong = { clock_now, clock_sleep, NULL, in_ten_years };

static void make_with_expiry(void)
{
	struct kvdb_kvs *kvs;
	uint8_t val[400];
	char key[16];

	make();
	open_at(dir, &db);
	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	for (unsigned k = TTL_FROM; k < TTL_FROM + 100; k++) {
		T_EQ(kvdb_put_ttl(kvs, key, key_of(k, key), val, value(0, k, 3, val), 60), 0);
		older[0][k] = newest[0][k];
		newest[0][k] = 3;
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_close(db), 0);
}

static void expire(void)
{
	for (unsigned k = TTL_FROM; k < TTL_FROM + 100; k++)
		newest[0][k] = 0;
}

/* What is left says that it expired, so what it replaced is gone as well. */
static void what_expired_hides_what_it_replaced_wherever_it_is_found(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_repair r;
	unsigned k;

	o.clock = &later;
	make_with_expiry();
	repair();
	T_EQ(check(), 0);
	forget();
	/* its page is lost: of large values the log is left */
	hurt(0, 0, TTL_FROM + 51, PAGE);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	T_EQ(check(), r.found_keys);
	for (k = TTL_FROM + 1; k < TTL_FROM + 100; k += 2)
		T_EQ(version(to, "a.found", 0, k), is_named(0, k) ? 3 : 0);
	T_OK(is_named(0, TTL_FROM + 51));
	forget();
	expire();
	/* a clock that is far ahead takes nothing away unasked */
	o.clock = &wrong;
	T_EQ(kvdb_repair(dir, &o, NULL, NULL, NULL, &r), -ETIME);
	o.flags = KVDB_TIME_JUMP;
	T_EQ(kvdb_repair(dir, &o, NULL, NULL, NULL, &r), 0);
	T_OK(r.expired_keys >= 50);
	o.flags = 0;
	o.clock = &later;
	how = &o;
	r = repair();
	how = NULL;
	T_EQ(r.lost_ranges, 1);
	T_OK(r.expired_keys >= 50 && r.expired_keys <= 100);
	T_EQ(check(), r.found_keys);
	for (k = TTL_FROM + 1; k < TTL_FROM + 100; k += 2)
		T_EQ(version(to, "a.found", 0, k) + version(to, "a", 0, k), 0);
	finish();
}

/* Nothing but their records is left of large values in a page that is lost. */
static void what_was_loaded_says_when_it_expires(void)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_bulk *bulk;
	struct kvdb_kvs *kvs;
	struct kvdb_repair r;
	uint8_t val[400];
	char key[16];
	unsigned k;

	make();
	open_at(dir, &db);
	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	ko.ttl_s = 60;
	T_EQ(kvdb_kvs_set(kvs, &ko, KVDB_KVS_TTL), 0);
	T_EQ(kvdb_bulk_open(kvs, 0, &bulk), 0);
	for (k = TTL_FROM; k < TTL_FROM + 100; k++) {
		T_EQ(kvdb_bulk_add(bulk, key, key_of(k, key), val, value(0, k, 3, val)), 0);
		older[0][k] = newest[0][k];
		newest[0][k] = 3;
	}
	T_EQ(kvdb_bulk_finish(bulk), 0);
	T_EQ(kvdb_close(db), 0);
	hurt(0, 0, TTL_FROM + 51, PAGE);
	expire();
	o.clock = &later;
	how = &o;
	r = repair();
	how = NULL;
	T_EQ(r.lost_ranges, 1);
	T_EQ(check(), r.found_keys);
	for (k = TTL_FROM + 1; k < TTL_FROM + 100; k += 2)
		T_EQ(version(to, "a.found", 0, k) + version(to, "a", 0, k), 0);
	finish();
}

/* ---- transactions ------------------------------------------------------------------- */

/* Values in the log, and a process that dies before the commit. */
static void die_in_a_transaction(void)
{
	struct kvdb_txn *txn;
	struct kvdb_kvs *kvs;
	uint8_t val[400];
	char key[17];
	size_t klen;

	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	for (unsigned k = 1; k < KEYS; k += 2) {
		klen = key_of(k, key);
		key[klen++] = 't';	/* a key that no other test has */
		T_EQ(kvdb_txn_put(txn, kvs, key, klen, val, value(0, k, 7, val)), 0);
	}
	T_EQ(kvdb_sync(db), 0);
	T_OK(kv_segs_seal_now(db) >= 0);
	T_EQ(kvdb_sync(db), 0);
}

static void what_was_never_committed_is_not_found(void)
{
	struct kvdb_cursor *cur;
	struct kvdb_repair r;
	struct kvdb_kvs *kvs;
	const void *key;
	size_t klen;
	unsigned n = 0;

	make();
	hurt(0, 0, 999, PAGE);
	t_die_in(open_it, die_in_a_transaction);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	T_EQ(check(), r.found_keys);
	T_EQ(kvdb_kvs_open(to, "a.found", &kvs), 0);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	for (; !kvdb_cursor_next(cur, &key, &klen, NULL, NULL); n++)
		T_EQ(klen, 6);
	kvdb_cursor_close(cur);
	T_EQ(n, r.found_keys);
	finish();
}

/* A large value in a transaction, then small ones, which lie in another log. */
static void commit_then_write(void)
{
	struct kvdb_txn *txn;
	struct kvdb_kvs *kvs;
	uint8_t val[400];
	char key[16];

	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	T_EQ(kvdb_txn_put(txn, kvs, key, key_of(1, key), val, value(0, 1, 5, val)), 0);
	T_EQ(kvdb_txn_put(txn, kvs, key, key_of(2, key), val, value(0, 2, 5, val)), 0);
	T_EQ(kvdb_txn_commit(txn, 0, NULL), 0);
	T_EQ(kvdb_sync(db), 0);
	for (unsigned k = 100; k < 200; k += 2)
		write_key(0, k, 3);
	T_EQ(kvdb_sync(db), 0);
}

/* The last frame of the value log. */
static void hurt_last_value(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_seg *s, *last = NULL;

	o.flags = KVDB_RDONLY;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (s = kv_segs_first(db); s; s = s->sg_next)
		if (s->sg_stream == KV_VLOG && atomic_load(&s->sg_first_epoch) &&
		    (!last || s->sg_id > last->sg_id))
			last = s;
	T_OK(last && atomic_load(&last->sg_end) == KV_BLOCK);
	obj_flip(last->sg_obj, 200, 0x10);
	T_EQ(kvdb_close(db), 0);
}

static void a_transaction_without_a_value_costs_no_other_record(void)
{
	struct kvdb_repair r;

	make();
	t_die_in(open_it, commit_then_write);
	hurt_last_value();
	T_OK(kvdb_open(dir, NULL, &db) == -EUCLEAN);
	r = repair();
	T_EQ(r.lost_values, 1);
	T_EQ(r.log_bytes, 0);
	/* what the lost value replaced */
	T_EQ(version(to, "a", 0, 1), 0);
	T_EQ(version(to, "a.found", 0, 1), newest[0][1]);
	T_EQ(version(to, "a", 0, 2), 5);
	for (unsigned k = 100; k < 200; k += 2)
		T_EQ(version(to, "a", 0, k), 3);
	finish();
}

/* An object of another database, as only a damaged container would leave it. */
static void plant_foreign(void)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY,
				   .capacity = KV_BLOCK, .tag = tag ^ 1 };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT };
	struct mpool *mp;

	T_EQ(mpool_open(dir, NULL, &mp), 0);
	T_EQ(mpool_alloc(mp, &req, 1, &op.obj), 0);
	T_EQ(mpool_batch(mp, &op, 1), 0);
	mpool_obj_close(op.obj);
	T_EQ(mpool_close(mp), 0);
}

/* With a container its tag decides; without one it cannot be told which of two it was. */
static void what_belongs_to_two_databases_is_not_mixed(void)
{
	struct kvdb_repair r;

	make();
	plant_foreign();
	r = repair();
	T_EQ(r.is_guess, 0);
	T_EQ(check(), 0);
	forget();
	hurt_container(100);
	T_EQ(kvdb_repair(dir, NULL, NULL, NULL, NULL, &r), -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "objects of several databases"));
	pool_end(dir);
}

static void a_pool_without_a_database_has_nothing_to_repair(void)
{
	struct kvdb_repair r;

	pool_make(dir);
	T_EQ(kvdb_drop(dir, NULL), 0);
	T_EQ(kvdb_repair(dir, NULL, NULL, NULL, NULL, &r), -ENOENT);
	T_OK(strstr(kvdb_error_detail()->text, "there is no database in this pool"));
	pool_end(dir);
}

/* Without the container nothing else says which keys the block had. */
static void a_key_block_that_nothing_describes_is_named(void)
{
	struct kvdb_repair r;

	make();
	hurt(0, 0, 999, FOOTER);
	hurt_container(100);
	r = repair();
	T_EQ(r.is_guess, 1);
	T_OK(strstr(told, "a key block whose footer is damaged: what it says is lost"));
	for (unsigned k = 0; k < KEYS; k++) {
		uint32_t ver = version(to, "a", 0, k);

		T_OK(ver == newest[0][k] || ver == older[0][k]);
		T_EQ(version(to, "b", 1, k), newest[1][k]);
	}
	finish();
}

/*
 * The read number @after fails, or (@is_for_good) that and all behind it. Either the repair
 * says that it failed, or it says what is lost, or nothing is. True: nothing is.
 */
static bool repair_with_a_failing_read(unsigned after, bool is_for_good,
				       const struct kvdb_repair *whole, unsigned *again)
{
	struct mpool_open_opts mo = MPOOL_OPEN_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_repair r = { 0 };
	char dev[64];
	int err;

	snprintf(dev, sizeof(dev), "capacity:fail=read,after=%u%s", after,
		 is_for_good ? ",sticky" : "");
	mo.dev = dev;
	o.pool = &mo;
	err = kvdb_repair(dir, &o, NULL, NULL, NULL, &r);
	if (err) {
		T_OK(kvdb_error_detail()->text[0]);
		*again += !strcmp(kvdb_error_detail()->id, "MP0997");
		return false;
	}
	if (r.lost_ranges || r.lost_values || r.log_bytes || r.is_guess)
		return false;
	if (memcmp(&r, whole, sizeof(r)))
		T_FAIL("read %u: %llu of %llu keys, and nothing is said", after,
		       (unsigned long long)r.keys, (unsigned long long)whole->keys);
	return true;
}

static void whatever_read_fails_nothing_is_left_out_in_silence(void)
{
	struct kvdb_repair whole = { 0 };
	unsigned step = getenv("TEST_SHORT") ? 9 : 3, again = 0, n;

	make();
	T_EQ(kvdb_repair(dir, NULL, NULL, NULL, NULL, &whole), 0);
	for (n = 1; !repair_with_a_failing_read(n, true, &whole, &again); n += step)
		repair_with_a_failing_read(n, false, &whole, &again);
	T_OK(n > 100 && again > 2);
	printf("# %u reads, %u times what was there could not be read again\n", n - 1, again);
	/* the damaged database is what it was; none fails */
	T_OK(repair_with_a_failing_read(0, false, &whole, &again));
	pool_end(dir);
}

int main(void)
{
	T_RUN(a_sound_database_is_brought_over_whole);
	T_RUN(what_a_damaged_page_may_have_hidden_is_not_certain);
	T_RUN(a_block_without_the_crcs_of_its_pages_is_named_by_its_footer);
	T_RUN(keys_that_a_lost_range_delete_may_have_hidden_are_not_certain);
	T_RUN(what_a_newer_run_says_is_certain_whatever_an_older_one_lost);
	T_RUN(a_lost_value_is_named_and_its_past_is_not_certain);
	T_RUN(a_lost_segment_costs_the_values_in_it);
	T_RUN(names_that_are_taken_are_passed_over);
	T_RUN(what_expired_hides_what_it_replaced_wherever_it_is_found);
	T_RUN(what_was_loaded_says_when_it_expires);
	T_RUN(what_was_never_committed_is_not_found);
	T_RUN(a_transaction_without_a_value_costs_no_other_record);
	T_RUN(what_belongs_to_two_databases_is_not_mixed);
	T_RUN(a_pool_without_a_database_has_nothing_to_repair);
	T_RUN(a_key_block_that_nothing_describes_is_named);
	T_RUN(whatever_read_fails_nothing_is_left_out_in_silence);
	return t_done();
}
