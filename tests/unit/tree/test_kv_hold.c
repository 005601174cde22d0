/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Holds of cursors from inside (HO1 to HO4): what is taken from which cursor and when,
 * what a cursor without a snapshot still does, and threads that walk beside the
 * keeper.
 */
#include <errno.h>
#include <pthread.h>

#include "kv_clock.h"
#include "kv_fresh.h"
#include "db/db.h"
#include "db/limbo.h"
#include "mem/memtable.h"
#include "op/cursor.h"
#include "tree/hold.h"
#include "txn/txn.h"

#define KEYS	2000u

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;

static void fresh(uint32_t flags, uint32_t max_age_ms)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	kv_fresh(dir, sizeof(dir), "kv_hold", 1u << 30, 0);
	o.flags = flags;
	o.cache_bytes = 64u << 20;
	o.view_max_age_ms = max_age_ms;
	if (flags & KVDB_MANUAL)
		o.clock = &test_clock;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static size_t key_of(unsigned i, char *key)
{
	return (size_t)sprintf(key, "k%06u", i);
}

/* Every key anew, each with the number of the round; what went before is flushed. */
static void round_of(unsigned r)
{
	char key[16], val[100] = { 0 };

	memcpy(val, &r, sizeof(r));
	for (unsigned i = 0; i < KEYS; i++)
		T_EQ(kvdb_put(kvs, key, key_of(i, key), val, sizeof(val)), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
}

static struct kvdb_cursor *open_one(void)
{
	struct kvdb_cursor *c;

	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
	return c;
}

/* The pair behind the place: number of its key and of its round; or the error. */
static int step(struct kvdb_cursor *c, unsigned *key, unsigned *r)
{
	const void *k, *v;
	size_t klen, vlen;
	int rc = kvdb_cursor_next(c, &k, &klen, &v, &vlen);

	if (!rc)
		memcpy(r, v, sizeof(*r));
	if (!rc)
		*key = (unsigned)strtoul((const char *)k + 1, NULL, 10);
	return rc;
}

static bool is_gone(struct kvdb_cursor *c, const char *id)
{
	const void *k;
	size_t n;

	if (kvdb_cursor_next(c, &k, &n, NULL, NULL) != -ESTALE)
		return false;
	T_STREQ(kvdb_error_detail()->id, id);
	T_EQ(kvdb_cursor_prev(c, &k, &n, NULL, NULL), -ESTALE);
	T_EQ(kvdb_cursor_seek(c, "k", 1), -ESTALE);
	T_EQ(kvdb_cursor_seek_after(c, NULL, 0), -ESTALE);
	T_STREQ(kvdb_error_detail()->id, id);
	return true;
}

/* What flushed memtables take that a cursor or view keeps. */
static uint64_t kept(void)
{
	/* trees, what they let go of, and what that does */
	for (unsigned i = 0; i < 4; i++)
		kv_retire_barrier();
	return atomic_load(&db->d_mem.mm_views->vw_flushed_bytes);
}

/* HO3, MEM1: however many there are, and whether they were used or not. */
static void idle_cursors_keep_no_more_than_their_bound(void)
{
	enum { N = 30 };
	uint64_t most = 0, mt;
	struct kvdb_cursor *c[N];
	struct kvdb_stats st;
	unsigned key, r, gone = 0;

	fresh(KVDB_MANUAL, 0);
	for (unsigned i = 0; i < N; i++) {
		c[i] = open_one();
		if (i % 2)
			T_EQ(step(c[i], &key, &r), 0);
		round_of(i);
		kv_holds_step(db);
		mt = kept();
		most = mt > most ? mt : most;
	}
	T_OK(most > 0);
	T_OK(most <= db->d_budget.b_mt_bytes / 3 * 2);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.cursors, N);
	T_OK(st.memory_bytes <= st.cache_bytes + st.cache_bytes / 9);
	/* those that were used last are the ones that stay */
	for (unsigned i = 0; i < N; i++) {
		bool is = is_gone(c[i], "MP0930");

		T_OK(!is || gone == i);
		gone += is;
	}
	T_OK(gone > 0 && gone < N);
	T_EQ(st.cursors_ended, gone);
	for (unsigned i = 0; i < N; i++)
		kvdb_cursor_close(c[i]);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.cursors, 0);
	kv_end(db, dir, 0);
}

/* More than twice what cursors may keep. */
static void flood(unsigned *r)
{
	for (unsigned i = 0; i < 15; i++) {
		round_of((*r)++);
		kv_holds_step(db);
	}
}

static void who_is_used_outlives_who_is_not(void)
{
	enum { N = 20 };
	struct kvdb_cursor *used, *idle[N];
	unsigned key, r = 0, at;

	fresh(KVDB_MANUAL, 0);
	round_of(r++);
	used = open_one();
	T_EQ(step(used, &key, &at), 0);
	T_EQ(key, 0);
	round_of(r++);
	for (unsigned i = 0; i < N; i++) {
		idle[i] = open_one();
		round_of(r++);
		T_EQ(step(used, &key, &at), 0);
		T_EQ(at, 0);
		kv_holds_step(db);
	}
	for (unsigned i = 0; i < N; i++) {
		T_OK(is_gone(idle[i], "MP0930") || i > N / 2);
		kvdb_cursor_close(idle[i]);
	}
	/* to its end, as when it was opened */
	for (unsigned k = key + 1; k < KEYS; k++) {
		T_EQ(step(used, &key, &at), 0);
		T_EQ(key, k);
		T_EQ(at, 0);
	}
	T_EQ(step(used, &key, &at), -ENOENT);
	kvdb_cursor_close(used);
	kv_end(db, dir, 0);
}

/* The last one used stays, whatever it keeps: a walk beside writers comes to its end. */
static void the_last_one_used_stays(void)
{
	struct kvdb_cursor *c;
	unsigned key, at, r = 1;
	uint64_t most;

	fresh(KVDB_MANUAL, 0);
	round_of(0);
	most = db->d_budget.b_mt_bytes;
	c = open_one();
	T_EQ(step(c, &key, &at), 0);
	/* what it keeps alone is too much */
	db->d_budget.b_mt_bytes = 3 << 10;
	round_of(r++);
	T_OK(kept() > db->d_budget.b_mt_bytes);
	kv_holds_step(db);
	T_EQ(step(c, &key, &at), 0);
	T_EQ(key, 1);
	T_EQ(at, 0);
	db->d_budget.b_mt_bytes = most;
	kvdb_cursor_close(c);
	kv_end(db, dir, 0);
}

/* HO1, guard in `take()` */
static void a_call_under_way_keeps_what_it_shows(void)
{
	struct kvdb_cursor *c, *other;
	unsigned key, at, r = 1;

	fresh(KVDB_MANUAL, 0);
	round_of(0);
	c = open_one();
	other = open_one();
	T_EQ(step(c, &key, &at), 0);
	T_OK(kv_hold_begin(kv_cursor_hold(c)));
	flood(&r);
	now_ns += 400000000000u;
	kv_holds_step(db);
	kv_holds_step(db);
	T_OK(is_gone(other, "MP0931"));
	T_EQ(atomic_load(&kv_cursor_hold(c)->ho_word), KV_HOLD_BUSY);
	kv_hold_end(db, kv_cursor_hold(c));
	for (unsigned k = 1; k < KEYS; k++) {
		T_EQ(step(c, &key, &at), 0);
		T_EQ(key, k);
		T_EQ(at, 0);
	}
	kvdb_cursor_close(c);
	kvdb_cursor_close(other);
	kv_end(db, dir, 0);
}

static void expire(unsigned r)
{
	round_of(r);
	kv_holds_step(db);	/* sees that it was used, ... */
	now_ns += 400000000000u;
	kv_holds_step(db);	/* ... and that it is not any more */
}

/* HO4 */
static void one_that_has_gone_goes_on_when_it_is_renewed(void)
{
	struct kvdb_cursor *c;
	const void *k, *v;
	size_t klen, vlen;
	unsigned key, at;

	fresh(KVDB_MANUAL, 0);
	round_of(0);
	c = open_one();
	for (unsigned i = 0; i < 700; i++)
		T_EQ(step(c, &key, &at), 0);
	T_EQ(kvdb_cursor_next(c, &k, &klen, &v, &vlen), 0);
	expire(1);
	T_EQ(atomic_load(&kv_cursor_hold(c)->ho_word), KV_HOLD_GONE_UNUSED);
	/* what the caller was shown last is there until its next call */
	T_EQ(klen, 7);
	T_OK(!memcmp(k, "k000700", 7));
	T_EQ(vlen, 100);
	T_EQ(*(const uint8_t *)v, 0);
	T_OK(is_gone(c, "MP0931"));
	T_EQ(kept(), 0);
	T_EQ(kvdb_cursor_renew(c, NULL), 0);
	for (unsigned i = 701; i < KEYS; i++) {
		T_EQ(step(c, &key, &at), 0);
		T_EQ(key, i);
		T_EQ(at, 1);
	}
	T_EQ(step(c, &key, &at), -ENOENT);
	/* at its end as well; what came meanwhile is behind it */
	expire(2);
	T_OK(is_gone(c, "MP0931"));
	T_EQ(kvdb_put(kvs, "z", 1, "v", 1), 0);
	T_EQ(kvdb_cursor_renew(c, NULL), 0);
	T_EQ(kvdb_cursor_next(c, &k, &klen, NULL, NULL), 0);
	T_OK(klen == 1 && !memcmp(k, "z", 1));
	kvdb_cursor_close(c);
	kv_end(db, dir, 0);
}

/* T9: by the last use, and only when that keeps anything of the past. */
static void who_is_not_used_for_too_long_loses_what_is_not_of_now(void)
{
	struct kvdb_cursor *old, *used, *young;
	unsigned key, at;
	struct kvdb_stats st;

	fresh(KVDB_MANUAL, 60000);
	round_of(0);
	old = open_one();
	round_of(1);
	used = open_one();
	round_of(2);
	young = open_one();
	for (unsigned i = 0; i < 5; i++) {
		T_EQ(step(used, &key, &at), 0);
		T_EQ(at, 1);
		kv_holds_step(db);
		now_ns += 30000000000u;
	}
	kv_holds_step(db);
	T_OK(is_gone(old, "MP0931"));
	T_EQ(step(used, &key, &at), 0);
	T_EQ(key, 5);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.cursors_ended, 1);
	T_EQ(st.cursors_forgotten, 1);
	T_EQ(st.cursor_oldest_ns / 1000000000u, 150);
	T_EQ(kvdb_close(db), -EBUSY);
	T_OK(strstr(kvdb_error_detail()->text, "2 in use, 1 whose snapshot was given up"));
	T_EQ(step(young, &key, &at), 0);
	T_EQ(at, 2);
	kvdb_cursor_close(old);
	kvdb_cursor_close(used);
	T_EQ(kvdb_cursor_renew(young, NULL), 0);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.cursors_forgotten, 0);
	T_EQ(st.cursor_oldest_ns / 1000000000u, 0);
	kvdb_cursor_close(young);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.cursor_oldest_ns, 0);
	kv_end(db, dir, 0);
}

/* MEM1: what has no place in the store's tree any more is memory all the same. */
static void the_indexes_that_a_cursor_keeps_are_counted(void)
{
	struct kvdb_cursor *c;
	struct kvdb_stats st, less;

	fresh(KVDB_MANUAL, 0);
	round_of(0);
	c = open_one();
	for (unsigned r = 1; r < 4; r++)
		round_of(r);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	T_EQ(kvdb_stats(db, &st), 0);
	kvdb_cursor_close(c);
	T_EQ(kept(), 0);
	while (kvdb_poll(db) > 0)
		;
	T_EQ(kept(), 0);
	T_EQ(kvdb_stats(db, &less), 0);
	T_OK(less.index_bytes && st.index_bytes > less.index_bytes);
	kv_end(db, dir, 0);
}

/* The view of a transaction is of one moment: its cursor gets that again, or nothing. */
static void a_transactions_cursor_is_taken_too(void)
{
	struct kvdb_cursor *c;
	struct kvdb_txn *t;
	unsigned key, at;

	fresh(KVDB_MANUAL, 0);
	round_of(0);
	T_EQ(kvdb_txn_begin(db, 0, &t), 0);
	T_EQ(kvdb_txn_put(t, kvs, "k", 1, "\0\0\0\0", 4), 0);
	T_EQ(kvdb_txn_cursor_open(t, kvs, 0, NULL, 0, &c), 0);
	T_EQ(step(c, &key, &at), 0);
	round_of(1);
	db->d_mode.md_view_max_age_ms = 0;
	kv_holds_step(db);
	kv_holds_step(db);
	db->d_mode.md_view_max_age_ms = 300000;
	T_OK(is_gone(c, "MP0931"));
	T_EQ(kvdb_cursor_renew(c, NULL), 0);
	T_EQ(step(c, &key, &at), 0);
	T_EQ(key, 0);
	T_EQ(at, 0);
	kv_holds_step(db);
	now_ns += 400000000000u;
	kv_views_step(db);
	kv_holds_step(db);
	/* the memory of both has gone: the transaction's, and its cursor's */
	T_EQ(kept(), 0);
	T_OK(kvdb_cursor_renew(c, NULL) == -ESTALE);
	T_STREQ(kvdb_error_detail()->id, "MP0922");
	T_OK(is_gone(c, "MP0931"));
	kvdb_cursor_close(c);
	kvdb_txn_abort(t);
	kv_end(db, dir, 0);
}

/* As a transaction that cannot commit any more, it blocks no other. */
static void a_store_can_be_dropped_when_all_its_cursors_have_gone(void)
{
	struct kvdb_cursor *c, *other;
	unsigned key, at;

	fresh(KVDB_MANUAL, 0);
	round_of(0);
	c = open_one();
	other = open_one();
	T_EQ(step(c, &key, &at), 0);
	T_EQ(kvdb_kvs_drop(db, "s"), -EBUSY);
	expire(1);
	T_EQ(kvdb_cursor_renew(other, NULL), 0);
	T_EQ(kvdb_kvs_drop(db, "s"), -EBUSY);
	kvdb_cursor_close(other);
	T_EQ(kvdb_kvs_drop(db, "s"), 0);
	T_EQ(kvdb_cursor_renew(c, NULL), -ENOENT);
	T_OK(is_gone(c, "MP0931"));
	T_EQ(kvdb_close(db), -EBUSY);
	kvdb_cursor_close(c);
	kv_end(db, dir, 0);
}

static uint32_t trees_found;

/* A step of the keeper at the end of a tree, when its memtables have gone. */
static void step_in_between(void *arg)
{
	(void)arg;
	kv_reclaim();
	trees_found = atomic_load(&db->d_holds->hd_n);
	kv_holds_step(db);
}

/* Destructors nest: what is retired behind the tree runs when that lets go of its memtable. */
static void a_tree_that_ends_is_not_looked_at(void)
{
	struct kvdb_cursor *first, *second;
	struct kv_limbo behind;
	uint64_t budget;

	fresh(KVDB_MANUAL, 0);
	T_EQ(kvdb_put(kvs, "k", 1, "a", 1), 0);
	first = open_one();
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_put(kvs, "k", 1, "b", 1), 0);
	second = open_one();
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_OK(kept() > 0);
	T_EQ(atomic_load(&db->d_holds->hd_n), 2);
	budget = db->d_budget.b_mt_bytes;
	db->d_budget.b_mt_bytes = 1;
	kvdb_cursor_close(first);
	kv_retire(&behind, step_in_between, NULL);
	T_EQ(trees_found, 1);
	db->d_budget.b_mt_bytes = budget;
	kvdb_cursor_close(second);
	kv_end(db, dir, 0);
}

/* ---- threads ------------------------------------------------------------------------------ */

#define WALKERS	3u
#define RENEWALS 300u

static _Atomic(bool) stops;
static _Atomic(uint64_t) ended, renewed;
static uint64_t seed;

static void *write_rounds(void *arg)
{
	for (unsigned r = 1; !atomic_load(&stops); r++)
		round_of(r);
	return arg;
}

static void *take_all(void *arg)
{
	while (!atomic_load(&stops)) {
		kv_holds_step(db);
		usleep(100);
	}
	return arg;
}

/*
 * Keys are written in ascending order: in one snapshot the rounds of ascending keys never grow,
 * and differ by one at most.
 */
static void *walk(void *arg)
{
	unsigned no = (unsigned)(uintptr_t)arg, key = 0, r = 0, first = 0, before = 0;
	uint64_t rnd = seed + no;
	struct kvdb_cursor *c = open_one();
	bool is_first = true;
	int rc;

	while (atomic_load(&renewed) < RENEWALS) {
		rnd = rnd * 6364136223846793005u + 1442695040888963407u;
		rc = step(c, &key, &r);
		if (rc == -ESTALE) {
			atomic_fetch_add(&ended, 1);
			if (rnd >> 62) {
				T_EQ(kvdb_cursor_renew(c, NULL), 0);
				atomic_fetch_add(&renewed, 1);
			} else {
				kvdb_cursor_close(c);
				c = open_one();
			}
			is_first = true;
			continue;
		}
		if (rc == -ENOENT) {
			T_EQ(kvdb_cursor_renew(c, NULL), 0);
			rc = kvdb_cursor_seek(c, NULL, 0);
			T_OK(!rc || rc == -ESTALE);
			is_first = true;
			continue;
		}
		T_EQ(rc, 0);
		if (is_first)
			first = before = r;
		is_first = false;
		T_OK(r <= before && r + 1 >= first);
		before = r;
		if ((rnd >> 40) % 64 == no)
			usleep(300);
	}
	kvdb_cursor_close(c);
	return NULL;
}

static void walks_beside_the_keeper_show_one_snapshot_or_say_that_it_has_gone(void)
{
	pthread_t writer, taker, walker[WALKERS];

	seed = t_seed();
	fresh(0, 1);
	round_of(0);
	atomic_store(&stops, false);
	T_EQ(pthread_create(&writer, NULL, write_rounds, NULL), 0);
	T_EQ(pthread_create(&taker, NULL, take_all, NULL), 0);
	for (unsigned i = 0; i < WALKERS; i++)
		T_EQ(pthread_create(&walker[i], NULL, walk, (void *)(uintptr_t)i), 0);
	for (unsigned i = 0; i < WALKERS; i++)
		pthread_join(walker[i], NULL);
	atomic_store(&stops, true);
	pthread_join(writer, NULL);
	pthread_join(taker, NULL);
	T_OK(atomic_load(&ended) >= RENEWALS);
	kv_end(db, dir, 0);
}

int main(void)
{
	T_RUN(idle_cursors_keep_no_more_than_their_bound);
	T_RUN(who_is_used_outlives_who_is_not);
	T_RUN(the_last_one_used_stays);
	T_RUN(a_call_under_way_keeps_what_it_shows);
	T_RUN(one_that_has_gone_goes_on_when_it_is_renewed);
	T_RUN(who_is_not_used_for_too_long_loses_what_is_not_of_now);
	T_RUN(the_indexes_that_a_cursor_keeps_are_counted);
	T_RUN(a_transactions_cursor_is_taken_too);
	T_RUN(a_store_can_be_dropped_when_all_its_cursors_have_gone);
	T_RUN(a_tree_that_ends_is_not_looked_at);
	T_RUN(walks_beside_the_keeper_show_one_snapshot_or_say_that_it_has_gone);
	return t_done();
}
