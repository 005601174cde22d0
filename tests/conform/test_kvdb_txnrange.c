/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Deletes by prefix and range in transactions, through the public API: what they hide from which
 * views, conflicts, limits, refusals, what is there after a crash.
 */
#include "kvdb_txn_help.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

static int trange(struct kvdb_txn *t, struct kvdb_kvs *k, const char *from, const char *to)
{
	return kvdb_txn_range_del(t, k, from, from ? strlen(from) : 0, to, to ? strlen(to) : 0);
}

static int tprefix(struct kvdb_txn *t, struct kvdb_kvs *k, const char *prefix)
{
	return kvdb_txn_prefix_del(t, k, prefix, strlen(prefix));
}

static void plain(struct kvdb_kvs *k, const char *keys)
{
	for (; *keys; keys++)
		T_EQ(kvdb_put(k, keys, 1, keys, 1), 0);
}

static void commit(struct kvdb_txn *t)
{
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
}

/* All keys have one byte here. */
static const char *walk(struct kvdb_cursor *c)
{
	static char out[300];
	const void *k, *v;
	size_t kl, vl, n = 0;
	int rc;

	while (!(rc = kvdb_cursor_next(c, &k, &kl, &v, &vl)))
		out[n++] = *(const char *)k;
	T_EQ(rc, -ENOENT);
	out[n] = 0;
	return out;
}

/* @t NULL: what is committed. Both ways, and by gets. */
static void shows(struct kvdb_txn *t, struct kvdb_kvs *k, const char *want)
{
	size_t n = strlen(want), len;
	struct kvdb_cursor *c;
	char back[300] = "";

	for (size_t i = 0; i < n; i++)
		back[i] = want[n - 1 - i];
	for (unsigned i = 0; i < 2; i++) {
		unsigned flags = i ? KVDB_REVERSE : 0;

		T_EQ(t ? kvdb_txn_cursor_open(t, k, flags, NULL, 0, &c) :
			 kvdb_cursor_open(k, flags, NULL, 0, &c), 0);
		T_STREQ(walk(c), i ? back : want);
		kvdb_cursor_close(c);
	}
	for (char key = 'a'; key <= 'z'; key++) {
		int rc = t ? kvdb_txn_get(t, k, &key, 1, NULL, 0, &len) :
			     kvdb_get(k, &key, 1, NULL, 0, &len);

		T_EQ(rc, strchr(want, key) ? 0 : -ENOENT);
	}
}

static unsigned probe(struct kvdb_txn *t, const char *prefix)
{
	struct kvdb_probe p = { 0 };

	T_EQ(kvdb_txn_prefix_probe(t, ka, prefix, strlen(prefix), &p), 0);
	return p.found;
}

/* ---- what is seen ---------------------------------------------------------------------------- */

static void a_range_goes_with_the_commit(void)
{
	struct kvdb_txn *t, *before;
	struct kvdb_txn_info ti;

	fresh();
	plain(ka, "abcdefg");
	plain(kb, "abcdefg");
	before = begin(KVDB_TXN_RDONLY);
	t = begin(0);
	T_EQ(trange(t, ka, "b", "e"), 0);
	T_EQ(tprefix(t, kb, "f"), 0);
	T_EQ(tput(t, ka, "z", "z"), 0);
	shows(t, ka, "aefgz");
	shows(t, kb, "abcdeg");
	T_EQ(probe(t, "c"), KVDB_FOUND_NONE);
	T_EQ(probe(t, "e"), KVDB_FOUND_ONE);
	T_EQ(probe(t, ""), KVDB_FOUND_SEVERAL);
	shows(NULL, ka, "abcdefg");
	T_EQ(kvdb_txn_info(t, &ti), 0);
	T_EQ(ti.ranges, 2);
	T_EQ(ti.writes, 1);
	commit(t);
	shows(NULL, ka, "aefgz");
	shows(NULL, kb, "abcdeg");
	shows(before, ka, "abcdefg");
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	shows(NULL, ka, "aefgz");
	shows(before, ka, "abcdefg");
	kvdb_txn_abort(before);
	/* what is put later is there */
	plain(ka, "c");
	shows(NULL, ka, "acefgz");
	kh_close();
	kh_open();
	shows(NULL, kh_kvs("a"), "acefgz");
	shows(NULL, kh_kvs("b"), "abcdeg");
	kh_close();
}

static void an_aborted_delete_deletes_nothing(void)
{
	struct kvdb_txn *t;

	fresh();
	plain(ka, "abc");
	t = begin(0);
	T_EQ(trange(t, ka, NULL, NULL), 0);
	shows(t, ka, "");
	kvdb_txn_abort(t);
	shows(NULL, ka, "abc");
	plain(ka, "d");
	T_EQ(kvdb_range_del(ka, "a", 1, "b", 1), 0);
	shows(NULL, ka, "bcd");
	kh_close();
}

/* What it put before is deleted as all else, what it puts afterwards stays. */
static void the_order_of_its_writes_counts(void)
{
	static char big[3000];
	struct kvdb_txn *t;
	struct kvdb_txn_info ti;
	size_t len;

	fresh();
	plain(ka, "abcdef");
	t = begin(0);
	T_EQ(tput(t, ka, "c", "new"), 0);
	T_EQ(kvdb_txn_put(t, ka, "d", 1, big, sizeof(big)), 0);
	T_EQ(tput(t, ka, "f", "new"), 0);
	T_EQ(trange(t, ka, "b", "f"), 0);
	shows(t, ka, "af");
	T_EQ(tput(t, ka, "d", "again"), 0);
	T_EQ(kvdb_txn_put(t, ka, "e", 1, big, sizeof(big)), 0);
	shows(t, ka, "adef");
	T_EQ(trange(t, ka, "e", NULL), 0);
	shows(t, ka, "ad");
	T_EQ(tput(t, ka, "y", "end"), 0);
	T_EQ(kvdb_txn_info(t, &ti), 0);
	T_EQ(ti.ranges, 1);	/* they touch */
	commit(t);
	shows(NULL, ka, "ady");
	T_EQ(kvdb_get(ka, "d", 1, NULL, 0, &len), 0);
	T_EQ(len, 5);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	shows(NULL, ka, "ady");
	kh_close();
	kh_open();
	ka = kh_kvs("a");
	shows(NULL, ka, "ady");
	kh_close();
}

static void a_cursor_steps_over_what_is_deleted_meanwhile(void)
{
	struct kvdb_cursor *c;
	struct kvdb_txn *t;
	const void *k;
	size_t kl;

	fresh();
	plain(ka, "abcdefghij");
	t = begin(0);
	T_EQ(kvdb_txn_cursor_open(t, ka, 0, NULL, 0, &c), 0);
	T_EQ(kvdb_cursor_next(c, &k, &kl, NULL, NULL), 0);
	T_EQ(trange(t, ka, "b", "d"), 0);
	T_EQ(kvdb_cursor_next(c, &k, &kl, NULL, NULL), 0);
	T_EQ(*(const char *)k, 'd');
	T_EQ(tprefix(t, ka, "e"), 0);
	T_EQ(tprefix(t, kb, "f"), 0);
	T_EQ(kvdb_cursor_next(c, &k, &kl, NULL, NULL), 0);
	T_EQ(*(const char *)k, 'f');
	/* behind it, too */
	T_EQ(kvdb_cursor_prev(c, &k, &kl, NULL, NULL), 0);
	T_EQ(*(const char *)k, 'd');
	/* it shows what it showed when the transaction has ended */
	commit(t);
	T_EQ(kvdb_cursor_seek(c, "a", 1), 0);
	T_STREQ(walk(c), "adfghij");
	kvdb_cursor_close(c);
	kh_close();
}

/* ---- conflicts ------------------------------------------------------------------------------- */

static void who_claims_first_wins(void)
{
	struct kvdb_txn *t, *u;

	kh_mode = &kh_modes[3];		/* manual: no put waits */
	fresh();
	plain(ka, "abcdef");
	t = begin(0);
	T_EQ(trange(t, ka, "b", "d"), 0);
	/* a key in it, existing or not, in a transaction or not */
	u = begin(0);
	T_EQ(tput(u, ka, "b", "u"), -ECANCELED);
	T_STREQ(kvdb_error_detail()->id, "MP0920");
	kvdb_txn_abort(u);
	u = begin(0);
	T_EQ(kvdb_txn_del(u, ka, "cc", 2), -ECANCELED);
	kvdb_txn_abort(u);
	T_EQ(kvdb_put(ka, "bb", 2, "v", 1), -ECANCELED);
	T_STREQ(kvdb_error_detail()->id, "MP0921");
	T_EQ(kvdb_del(ka, "c", 1), -ECANCELED);
	/* beside it */
	plain(ka, "ad");
	plain(kb, "bc");
	/* a range that meets it */
	u = begin(0);
	T_EQ(trange(u, ka, "c", "e"), -ECANCELED);
	T_STREQ(kvdb_error_detail()->id, "MP0920");
	kvdb_txn_abort(u);
	u = begin(0);
	T_EQ(trange(u, ka, NULL, NULL), -ECANCELED);
	kvdb_txn_abort(u);
	T_EQ(kvdb_range_del(ka, "a", 1, "bb", 2), -ECANCELED);
	T_EQ(kvdb_prefix_del(ka, "c", 1), -ECANCELED);
	u = begin(0);
	T_EQ(trange(u, ka, "d", "e"), 0);
	T_EQ(trange(u, ka, NULL, "b"), 0);
	commit(u);
	T_EQ(kvdb_range_del(ka, "e", 1, NULL, 0), 0);
	shows(NULL, ka, "bc");
	commit(t);
	shows(NULL, ka, "");
	plain(ka, "bc");
	shows(NULL, ka, "bc");
	kh_close();
	kh_mode = &kh_modes[0];
}

static void a_key_that_another_owns_is_a_conflict(void)
{
	struct kvdb_txn *t, *u;

	fresh();
	plain(ka, "abc");
	t = begin(0);
	u = begin(0);
	T_EQ(tput(u, ka, "bb", "u"), 0);
	T_EQ(trange(t, ka, "b", "c"), -ECANCELED);
	T_STREQ(kvdb_error_detail()->id, "MP0920");
	/* it is over for it, and what it had taken is free */
	T_EQ(tput(t, ka, "x", "t"), -ECANCELED);
	T_EQ(trange(u, ka, "a", "z"), 0);
	T_EQ(kvdb_txn_commit(t, 0, NULL), -ECANCELED);
	commit(u);
	shows(NULL, ka, "");
	kh_close();
}

/* How it came into the range, and where it is now. */
enum came { BY_PUT, BY_DEL, BY_TXN, BY_RANGE, BY_PREFIX, BY_TXN_RANGE, CAME };

static void come(enum came by)
{
	struct kvdb_txn *u;

	if (by == BY_PUT)
		T_EQ(kvdb_put(ka, "mm", 2, "v", 1), 0);
	if (by == BY_DEL)
		T_EQ(kvdb_del(ka, "m", 1), 0);
	if (by == BY_RANGE)
		T_EQ(kvdb_range_del(ka, "m", 1, "mm", 2), 0);
	if (by == BY_PREFIX)
		T_EQ(kvdb_prefix_del(ka, "m", 1), 0);
	if (by != BY_TXN && by != BY_TXN_RANGE)
		return;
	u = begin(0);
	T_EQ(by == BY_TXN ? tput(u, ka, "mm", "u") : trange(u, ka, "m", "mm"), 0);
	commit(u);
}

static void what_came_after_the_view_is_a_conflict(void)
{
	struct kvdb_txn *t;

	for (unsigned i = 0; i < 3 * CAME; i++) {
		struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
		unsigned where = i / CAME;

		kh_fresh(192 * MIB, 0);
		o.pfx_len = 1;
		T_EQ(kvdb_kvs_create(kh_db, "a", &o), 0);
		ka = kh_kvs("a");
		plain(ka, "almz");
		t = begin(0);
		come(i % CAME);
		if (where)
			T_EQ(kvdb_drain(kh_db, where == 1 ? KVDB_WAIT_FLUSH :
					KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		/* beside it there is no conflict */
		T_EQ(trange(t, ka, "a", "m"), 0);
		T_EQ(trange(t, ka, "n", NULL), 0);
		T_EQ(trange(t, ka, "b", "n"), -ECANCELED);
		T_STREQ(kvdb_error_detail()->id, "MP0920");
		kvdb_txn_abort(t);
		/* a transaction that begins now has seen it */
		t = begin(0);
		T_EQ(trange(t, ka, "b", "n"), 0);
		commit(t);
		shows(NULL, ka, "az");
		kh_close();
	}
}

static void *put_later(void *arg)
{
	*(int *)arg = kvdb_put(ka, "c", 1, "new", 3);
	return NULL;
}

static void a_plain_write_waits_for_the_end(void)
{
	struct timespec ts = { .tv_nsec = 50000000 };
	struct kvdb_txn *t;
	pthread_t thread;
	int rc = 1;

	fresh();
	plain(ka, "abcd");
	t = begin(0);
	T_EQ(trange(t, ka, "b", "d"), 0);
	T_EQ(pthread_create(&thread, NULL, put_later, &rc), 0);
	nanosleep(&ts, NULL);
	commit(t);
	T_EQ(pthread_join(thread, NULL), 0);
	T_EQ(rc, 0);
	shows(NULL, ka, "acd");
	/* one that does not end */
	t = begin(0);
	T_EQ(trange(t, ka, "b", "d"), 0);
	(void)put_later(&rc);
	T_EQ(rc, -ECANCELED);
	kvdb_txn_abort(t);
	shows(NULL, ka, "acd");
	kh_close();
}

static void one_that_is_too_old_claims_nothing(void)
{
	struct timespec ts = { .tv_nsec = 320000000 };
	struct kvdb_opts o = kh_opts();
	struct kvdb_txn *t, *u;

	kh_make(192 * MIB, 0);
	o.view_max_age_ms = 300;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	ka = kh_kvs("a");
	kb = kh_kvs("b");
	plain(ka, "abcd");
	t = begin(0);
	T_EQ(trange(t, ka, "a", "c"), 0);
	T_EQ(trange(t, ka, "d", "e"), 0);
	T_EQ(trange(t, kb, "d", "e"), 0);
	nanosleep(&ts, NULL);
	plain(ka, "b");
	T_EQ(kvdb_range_del(ka, "d", 1, "e", 1), 0);
	u = begin(0);
	T_EQ(tput(u, ka, "bb", "u"), 0);
	T_EQ(trange(u, ka, "b", "z"), 0);
	T_EQ(kvdb_kvs_drop(kh_db, "b"), 0);
	T_EQ(kvdb_txn_commit(t, 0, NULL), -ESTALE);
	/* its end has taken nothing from the one that took it over */
	t = begin(0);
	T_EQ(tput(t, ka, "c", "t"), -ECANCELED);
	kvdb_txn_abort(t);
	commit(u);
	shows(NULL, ka, "a");
	kh_close();
}

static void a_dropped_store_takes_none(void)
{
	struct kvdb_txn *t;

	fresh();
	plain(ka, "a");
	t = begin(0);
	T_EQ(trange(t, ka, "a", "c"), 0);
	T_EQ(kvdb_kvs_drop(kh_db, "a"), -EBUSY);
	kvdb_txn_abort(t);
	t = begin(0);
	T_EQ(kvdb_kvs_drop(kh_db, "a"), 0);
	T_EQ(trange(t, ka, "a", "c"), -ENOENT);
	T_EQ(tprefix(t, ka, "a"), -ENOENT);
	kvdb_txn_abort(t);
	kh_close();
}

/* ---- limits and refusals --------------------------------------------------------------------- */

static size_t numbered(char *key, unsigned i)
{
	return (size_t)snprintf(key, 16, "%06u", i);
}

static void it_deletes_so_many_ranges_and_no_more(void)
{
	static char big[KVDB_KEY_MAX];
	char from[16], to[16];
	struct kvdb_txn_info ti;
	struct kvdb_txn *t;

	fresh();
	for (unsigned i = 0; i < 3000; i++)
		T_EQ(kvdb_put(ka, from, numbered(from, i), "v", 1), 0);
	t = begin(0);
	for (unsigned i = 0; i < KVDB_TXN_RANGES_MAX; i++) {
		size_t n = numbered(from, 2 * i);

		numbered(to, 2 * i + 1);
		T_EQ(kvdb_txn_range_del(t, ka, from, n, to, n), 0);
	}
	T_EQ(trange(t, kb, "a", "b"), -EFBIG);
	T_STREQ(kvdb_error_detail()->id, "MP0932");
	/* what is there, or makes fewer of them, has room */
	T_EQ(trange(t, ka, "000000", "0000001"), 0);
	T_EQ(trange(t, ka, "000000", "000100"), 0);
	T_EQ(trange(t, kb, "a", "b"), 0);
	T_EQ(kvdb_txn_info(t, &ti), 0);
	T_EQ(ti.ranges, KVDB_TXN_RANGES_MAX - 50 + 1);
	commit(t);
	T_EQ(kh_count(ka, 0), 3000 - KVDB_TXN_RANGES_MAX - 50);
	kh_close();
	kh_open();
	ka = kh_kvs("a");
	T_EQ(kh_count(ka, 0), 3000 - KVDB_TXN_RANGES_MAX - 50);
	/* the commit record is as large as it was */
	t = begin(0);
	for (unsigned i = 0; i < 780; i++) {
		big[0] = (char)(i >> 8);
		big[1] = (char)i;
		memset(big + 2, 0, sizeof(big) - 2);
		T_EQ(kvdb_txn_range_del(t, ka, big, sizeof(big), big, 2), 0);	/* none */
		big[2] = 1;
		if (kvdb_txn_range_del(t, ka, big, sizeof(big) - 1, big, sizeof(big)) == -EFBIG)
			break;
	}
	T_STREQ(kvdb_error_detail()->id, "MP0932");
	T_EQ(kvdb_txn_info(t, &ti), 0);
	T_OK(ti.ranges > 700 && ti.record_bytes <= 2 << 20);
	commit(t);
	kh_close();
}

static void bad_arguments_are_refused(void)
{
	static char key[KVDB_KEY_MAX + 1];
	struct kvdb_txn *t;

	fresh();
	plain(ka, "abc");
	t = begin(0);
	T_EQ(kvdb_txn_range_del(t, ka, key, sizeof(key), NULL, 0), -ENAMETOOLONG);
	T_EQ(kvdb_txn_range_del(t, ka, NULL, 0, key, sizeof(key)), -ENAMETOOLONG);
	T_EQ(kvdb_txn_range_del(t, ka, NULL, 1, NULL, 0), -EINVAL);
	T_EQ(kvdb_txn_range_del(t, ka, NULL, 0, NULL, 1), -EINVAL);
	T_EQ(kvdb_txn_range_del(t, ka, key, 0, NULL, 0), -EINVAL);
	T_EQ(kvdb_txn_range_del(t, ka, NULL, 0, key, 0), -EINVAL);
	T_EQ(kvdb_txn_prefix_del(t, ka, NULL, 0), -EINVAL);
	T_EQ(kvdb_txn_prefix_del(t, ka, key, 0), -EINVAL);
	T_EQ(kvdb_txn_prefix_del(t, ka, NULL, 1), -EINVAL);
	T_EQ(kvdb_txn_prefix_del(t, ka, key, sizeof(key)), -ENAMETOOLONG);
	/* none; and one that reaches to the end of all */
	T_EQ(trange(t, ka, "b", "b"), 0);
	T_EQ(trange(t, ka, "c", "b"), 0);
	T_EQ(tprefix(t, ka, "\xff\xff"), 0);
	shows(t, ka, "abc");
	commit(t);
	shows(NULL, ka, "abc");
	t = begin(KVDB_TXN_RDONLY);
	T_EQ(trange(t, ka, "a", "b"), -EROFS);
	T_STREQ(kvdb_error_detail()->id, "MP0926");
	T_EQ(tprefix(t, ka, "a"), -EROFS);
	kvdb_txn_abort(t);
	kh_close();
	T_EQ(kh_open_with(KVDB_RDONLY), 0);
	t = begin(0);
	T_EQ(trange(t, kh_kvs("a"), "a", "b"), -EROFS);
	kvdb_txn_abort(t);
	kh_close();
}

/* ---- crashes --------------------------------------------------------------------------------- */

static void commit_and_die(void)
{
	struct kvdb_txn *t = begin(0);

	ka = kh_kvs("a");
	kb = kh_kvs("b");
	plain(ka, "abcdef");
	plain(kb, "abcdef");
	T_EQ(kvdb_sync(kh_db), 0);
	kvdb_txn_abort(t);
	t = begin(0);
	T_EQ(tput(t, ka, "b", "lost"), 0);
	T_EQ(trange(t, ka, "b", "e"), 0);
	T_EQ(tput(t, ka, "c", "kept"), 0);
	T_EQ(tprefix(t, kb, "f"), 0);
	T_EQ(trange(t, kb, NULL, "b"), 0);
	T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, NULL), 0);
	/* and one that is open */
	t = begin(0);
	T_EQ(trange(t, ka, NULL, NULL), 0);
}

static void a_crash_leaves_the_whole_of_it(void)
{
	kh_make(192 * MIB, 0);
	kh_die_in(commit_and_die);
	for (unsigned i = 0; i < 2; i++) {
		kh_open();
		shows(NULL, kh_kvs("a"), "acef");
		shows(NULL, kh_kvs("b"), "bcde");
		kh_close();
	}
	T_EQ(kh_damage(KVDB_VERIFY_DEEP), 0);
}

int main(void)
{
	KH_RUN_MODES(a_range_goes_with_the_commit);
	T_RUN(an_aborted_delete_deletes_nothing);
	T_RUN(the_order_of_its_writes_counts);
	T_RUN(a_cursor_steps_over_what_is_deleted_meanwhile);
	T_RUN(who_claims_first_wins);
	T_RUN(a_key_that_another_owns_is_a_conflict);
	T_RUN(what_came_after_the_view_is_a_conflict);
	T_RUN(a_plain_write_waits_for_the_end);
	T_RUN(one_that_is_too_old_claims_nothing);
	T_RUN(a_dropped_store_takes_none);
	T_RUN(it_deletes_so_many_ranges_and_no_more);
	T_RUN(bad_arguments_are_refused);
	T_RUN(a_crash_leaves_the_whole_of_it);
	return t_done();
}
