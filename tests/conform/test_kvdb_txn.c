/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Transactions through the public API: what they see, which one wins, what mixing
 * with plain operations means, limits, durability, reopening.
 */
#include "kvdb_txn_help.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

static int tdel(struct kvdb_txn *t, struct kvdb_kvs *k, const char *key)
{
	return kvdb_txn_del(t, k, key, strlen(key));
}

static void plain(struct kvdb_kvs *k, const char *key, const char *val)
{
	T_EQ(kvdb_put(k, key, strlen(key), val, strlen(val)), 0);
}

/* @val NULL: absent */
static void tsees(struct kvdb_txn *t, struct kvdb_kvs *k, const char *key, const char *val)
{
	char buf[256];
	size_t len = 0;
	int rc = kvdb_txn_get(t, k, key, strlen(key), buf, sizeof(buf) - 1, &len);

	T_EQ(rc, val ? 0 : -ENOENT);
	if (val) {
		buf[len] = 0;
		T_STREQ(buf, val);
	}
}

static void sees(struct kvdb_kvs *k, const char *key, const char *val)
{
	char buf[256];
	size_t len = 0;
	int rc = kvdb_get(k, key, strlen(key), buf, sizeof(buf) - 1, &len);

	T_EQ(rc, val ? 0 : -ENOENT);
	if (val) {
		buf[len] = 0;
		T_STREQ(buf, val);
	}
}

static void commit(struct kvdb_txn *t)
{
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
}

/* "k=v k=v ..." of what the cursor shows */
static const char *walk(struct kvdb_cursor *c)
{
	static char out[4096];
	const void *k, *v;
	size_t kl, vl, n = 0;
	int rc;

	out[0] = 0;
	while (!(rc = kvdb_cursor_next(c, &k, &kl, &v, &vl)))
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%.*s=%.*s", n ? " " : "",
				      (int)kl, (const char *)k, (int)(vl > 8 ? 8 : vl),
				      (const char *)v);
	T_EQ(rc, -ENOENT);
	return out;
}

static void shows(struct kvdb_txn *t, struct kvdb_kvs *k, unsigned flags, const char *want)
{
	struct kvdb_cursor *c;

	T_EQ(kvdb_txn_cursor_open(t, k, flags, NULL, 0, &c), 0);
	T_STREQ(walk(c), want);
	kvdb_cursor_close(c);
}

/* ---- what is seen ---------------------------------------------------------------- */

static void writes_are_seen_by_their_transaction_only_until_the_commit(void)
{
	struct kvdb_txn *t;

	fresh();
	plain(ka, "x", "old");
	t = begin(0);
	T_EQ(tput(t, ka, "x", "new"), 0);
	T_EQ(tput(t, kb, "y", "1"), 0);
	tsees(t, ka, "x", "new");
	tsees(t, kb, "y", "1");
	sees(ka, "x", "old");
	sees(kb, "y", NULL);
	commit(t);
	sees(ka, "x", "new");
	sees(kb, "y", "1");
	kh_close();
	kh_open();
	sees(kh_kvs("a"), "x", "new");
	sees(kh_kvs("b"), "y", "1");
	kh_close();
}

static void an_aborted_transaction_leaves_nothing(void)
{
	struct kvdb_txn *t;
	char big[3000];

	fresh();
	memset(big, 'b', sizeof(big));
	plain(ka, "x", "old");
	t = begin(0);
	T_EQ(tput(t, ka, "x", "new"), 0);
	T_EQ(kvdb_txn_put(t, kb, "big", 3, big, sizeof(big)), 0);
	T_EQ(tdel(t, ka, "x"), 0);
	kvdb_txn_abort(t);
	kvdb_txn_abort(NULL);
	sees(ka, "x", "old");
	sees(kb, "big", NULL);
	plain(kb, "big", "free again");
	kh_close();
	kh_open();
	sees(kh_kvs("a"), "x", "old");
	sees(kh_kvs("b"), "big", "free again");
	kh_close();
}

static void a_view_does_not_change_whoever_writes(void)
{
	struct kvdb_txn *v, *t;
	struct kvdb_cursor *c;
	int i;

	fresh();
	plain(ka, "a", "1");
	plain(ka, "b", "1");
	plain(ka, "c", "1");
	v = begin(KVDB_TXN_RDONLY);
	T_EQ(kvdb_txn_cursor_open(v, ka, 0, NULL, 0, &c), 0);
	for (i = 0; i < 3; i++) {
		plain(ka, "a", "2");
		T_EQ(kvdb_del(ka, "b", 1), 0);
		plain(ka, "d", "2");
		t = begin(0);
		T_EQ(tput(t, ka, "c", "3"), 0);
		T_EQ(tput(t, kb, "z", "3"), 0);
		commit(t);
		tsees(v, ka, "a", "1");
		tsees(v, ka, "b", "1");
		tsees(v, ka, "c", "1");
		tsees(v, ka, "d", NULL);
		tsees(v, kb, "z", NULL);
		shows(v, ka, 0, "a=1 b=1 c=1");
		shows(v, ka, KVDB_REVERSE, "c=1 b=1 a=1");
		shows(v, kb, 0, "");
		T_EQ(kvdb_drain(kh_db, i ? KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT : 0), 0);
	}
	T_STREQ(walk(c), "a=1 b=1 c=1");
	kvdb_cursor_close(c);
	T_EQ(tput(v, ka, "e", "1"), -EROFS);
	T_STREQ(kvdb_error_detail()->id, "MP0926");
	commit(v);
	sees(ka, "a", "2");
	kh_close();
}

static void a_store_younger_than_the_view_is_empty_in_it(void)
{
	struct kvdb_cursor *c;
	struct kvdb_kvs *k;
	struct kvdb_txn *t;

	fresh();
	t = begin(0);
	k = kh_kvs("young");
	plain(k, "x", "1");
	tsees(t, k, "x", NULL);
	shows(t, k, 0, "");
	T_EQ(tput(t, k, "y", "mine"), 0);
	tsees(t, k, "y", "mine");
	T_EQ(kvdb_txn_cursor_open(t, k, 0, NULL, 0, &c), 0);
	T_STREQ(walk(c), "y=mine");
	kvdb_cursor_close(c);
	T_EQ(kvdb_kvs_drop(kh_db, "young"), -EBUSY);
	T_EQ(tput(t, k, "x", "2"), -ECANCELED);
	kvdb_txn_abort(t);
	T_EQ(kvdb_kvs_drop(kh_db, "young"), 0);
	kh_close();
}

static void cursors_show_own_writes_up_to_each_step(void)
{
	struct kvdb_cursor *c;
	struct kvdb_txn *t;
	const void *k, *v;
	char big[500];
	size_t kl, vl;

	fresh();
	memset(big, 'B', sizeof(big));
	plain(ka, "b", "1");
	plain(ka, "d", "1");
	plain(ka, "f", "1");
	t = begin(0);
	T_EQ(tput(t, ka, "a", "new"), 0);
	T_EQ(tdel(t, ka, "d"), 0);
	T_EQ(tput(t, ka, "f", "over"), 0);
	T_EQ(kvdb_txn_put(t, ka, "g", 1, big, sizeof(big)), 0);
	T_EQ(tput(t, kb, "elsewhere", "1"), 0);
	shows(t, ka, 0, "a=new b=1 f=over g=BBBBBBBB");
	shows(t, ka, KVDB_REVERSE, "g=BBBBBBBB f=over b=1 a=new");
	T_EQ(kvdb_txn_cursor_open(t, ka, 0, NULL, 0, &c), 0);
	T_EQ(kvdb_cursor_next(c, &k, &kl, &v, &vl), 0);
	T_EQ(tput(t, ka, "c", "late"), 0);
	T_EQ(tput(t, ka, "f", "x"), 0);
	T_STREQ(walk(c), "b=1 c=late f=x g=BBBBBBBB");
	T_EQ(kvdb_cursor_seek(c, "b", 1), 0);
	T_STREQ(walk(c), "b=1 c=late f=x g=BBBBBBBB");
	T_EQ(kvdb_cursor_seek(c, "c", 1), 0);
	commit(t);
	/* it outlives the transaction */
	T_STREQ(walk(c), "c=late f=x g=BBBBBBBB");
	kvdb_cursor_close(c);
	T_EQ(kvdb_cursor_open(ka, 0, NULL, 0, &c), 0);
	T_STREQ(walk(c), "a=new b=1 c=late f=x g=BBBBBBBB");
	kvdb_cursor_close(c);
	T_EQ(kvdb_txn_cursor_open(t = begin(0), ka, 0, "f", 1, &c), 0);
	T_EQ(tput(t, ka, "fa", "2"), 0);
	T_STREQ(walk(c), "f=x fa=2");
	kvdb_cursor_close(c);
	kvdb_txn_abort(t);
	kh_close();
}

/* Where it stands, in front of it and behind it, as in both directions. */
static void a_step_shows_what_was_written_before_it(void)
{
	struct kvdb_cursor *up, *down;
	struct kvdb_txn *t;
	const void *k, *v;
	size_t kl, vl;

	fresh();
	for (char key[2] = "b"; key[0] <= 'h'; key[0] += 2)
		plain(ka, key, "1");
	t = begin(0);
	T_EQ(kvdb_txn_cursor_open(t, ka, 0, NULL, 0, &up), 0);
	T_EQ(kvdb_txn_cursor_open(t, ka, KVDB_REVERSE, NULL, 0, &down), 0);
	T_EQ(kvdb_cursor_next(up, &k, &kl, &v, &vl), 0);	/* b */
	T_EQ(kvdb_cursor_next(down, &k, &kl, &v, &vl), 0);	/* h */
	/* behind both, before one; then over, and away */
	T_EQ(tput(t, ka, "a", "2"), 0);
	T_EQ(tput(t, ka, "e", "2"), 0);
	T_EQ(tput(t, ka, "b", "2"), 0);
	T_EQ(tdel(t, ka, "d"), 0);
	T_EQ(tput(t, kb, "c", "elsewhere"), 0);
	T_EQ(kvdb_cursor_next(up, &k, &kl, &v, &vl), 0);
	T_OK(kl == 1 && *(const char *)k == 'e');
	T_EQ(tput(t, ka, "f", "3"), 0);
	T_EQ(tput(t, ka, "f", "4"), 0);
	T_EQ(kvdb_cursor_next(up, &k, &kl, &v, &vl), 0);
	T_OK(kl == 1 && *(const char *)k == 'f' && vl == 1 && *(const char *)v == '4');
	T_EQ(tdel(t, ka, "f"), 0);
	T_EQ(kvdb_cursor_prev(up, &k, &kl, &v, &vl), 0);
	T_OK(*(const char *)k == 'e');
	T_STREQ(walk(up), "h=1");
	T_STREQ(walk(down), "e=2 b=2 a=2");
	kvdb_cursor_close(up);
	kvdb_cursor_close(down);
	commit(t);
	kh_close();
}

/* A walk that changes what it has shown is not begun anew at each step. */
static void a_walk_that_writes_behind_itself_is_linear(void)
{
	enum { N = 8000 };
	struct kvdb_cursor *c;
	struct kvdb_txn *t;
	const void *k, *v;
	char key[16];
	unsigned n = 0;
	size_t kl, vl;

	fresh();
	for (unsigned i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "%08u", i);
		plain(ka, key, "1");
	}
	t = begin(0);
	T_EQ(kvdb_txn_cursor_open(t, ka, 0, NULL, 0, &c), 0);
	while (!kvdb_cursor_next(c, &k, &kl, &v, &vl)) {
		T_EQ(kvdb_txn_put(t, ka, k, kl, "2", 1), 0);
		T_EQ(kvdb_txn_put(t, kb, k, kl, "3", 1), 0);
		n++;
	}
	T_EQ(n, N);
	kvdb_cursor_close(c);
	commit(t);
	kh_close();
}

static void a_cursor_shows_no_writes_that_were_aborted(void)
{
	struct kvdb_cursor *c, *other;
	struct kvdb_txn *t;
	const void *k, *v;
	size_t kl, vl;

	fresh();
	plain(ka, "a", "1");
	plain(kb, "x", "1");
	t = begin(0);
	T_EQ(tput(t, ka, "b", "2"), 0);
	T_EQ(tput(t, ka, "c", "2"), 0);
	T_EQ(kvdb_txn_cursor_open(t, ka, 0, NULL, 0, &c), 0);
	T_EQ(kvdb_txn_cursor_open(t, kb, 0, NULL, 0, &other), 0);
	T_EQ(kvdb_cursor_next(c, &k, &kl, &v, &vl), 0);
	kvdb_txn_abort(t);
	T_EQ(kvdb_cursor_next(c, &k, &kl, &v, &vl), -ESTALE);
	T_STREQ(kvdb_error_detail()->id, "MP0929");
	T_EQ(kvdb_cursor_prev(c, &k, &kl, &v, &vl), -ESTALE);
	T_EQ(kvdb_cursor_seek(c, "b", 1), -ESTALE);
	T_EQ(kvdb_cursor_seek_after(c, "b", 1), -ESTALE);
	kvdb_cursor_close(c);
	/* of a store that it did not write to it shows the snapshot */
	plain(kb, "y", "1");
	T_STREQ(walk(other), "x=1");
	kvdb_cursor_close(other);
	kh_close();
}

static void a_renewed_cursor_keeps_the_snapshot_of_its_transaction(void)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	struct kvdb_cursor *c;
	struct kvdb_txn *t;

	fresh();
	plain(ka, "a", "1");
	plain(ka, "c", "1");
	t = begin(0);
	T_EQ(kvdb_txn_cursor_open(t, ka, 0, NULL, 0, &c), 0);
	T_STREQ(walk(c), "a=1 c=1");
	plain(ka, "d", "1");
	T_EQ(tput(t, ka, "b", "2"), 0);
	T_EQ(tput(t, ka, "e", "2"), 0);
	T_EQ(kvdb_cursor_renew(c, NULL), 0);
	T_STREQ(walk(c), "e=2");
	o.to = "c";
	o.tlen = 1;
	T_EQ(kvdb_cursor_renew(c, &o), 0);
	T_STREQ(walk(c), "a=1 b=2");
	T_EQ(tput(t, ka, "a", "3"), 0);
	o.flags = KVDB_TO_INCLUSIVE;
	T_EQ(kvdb_cursor_renew(c, &o), 0);
	T_STREQ(walk(c), "a=3 b=2 c=1");
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	/* there is no snapshot any more; it shows what it showed */
	T_EQ(kvdb_cursor_renew(c, NULL), -ESTALE);
	T_STREQ(kvdb_error_detail()->id, "MP0929");
	T_EQ(kvdb_cursor_seek(c, "b", 1), 0);
	T_STREQ(walk(c), "b=2 c=1");
	kvdb_cursor_close(c);
	kh_close();
}

/* A cursor that is closed behind its database would find nothing there. */
static void a_database_in_use_is_not_closed(void)
{
	struct kvdb_cursor *c;
	struct kvdb_bulk *b;
	struct kvdb_txn *t;

	fresh();
	T_EQ(kvdb_cursor_open(ka, 0, NULL, 0, &c), 0);
	T_EQ(kvdb_close(kh_db), -EBUSY);
	T_OK(strstr(kvdb_error_detail()->text, "store a has an open cursor"));
	kvdb_cursor_close(c);
	t = begin(KVDB_TXN_RDONLY);
	T_EQ(kvdb_close(kh_db), -EBUSY);
	T_OK(strstr(kvdb_error_detail()->text, "transactions are open"));
	kvdb_txn_abort(t);
	T_EQ(kvdb_bulk_open(ka, 0, &b), 0);
	T_EQ(kvdb_close(kh_db), -EBUSY);
	kvdb_bulk_abort(b);
	plain(ka, "x", "1");
	kh_close();
}

/* ---- which wins ------------------------------------------------------------------ */

static void the_first_writer_wins(void)
{
	struct kvdb_txn *t, *u;
	struct kvdb_stats st;

	fresh();
	plain(ka, "x", "0");
	t = begin(0);
	u = begin(0);
	T_EQ(tput(t, ka, "x", "t"), 0);
	T_EQ(tput(u, ka, "y", "u"), 0);
	T_EQ(tput(u, ka, "x", "u"), -ECANCELED);
	T_STREQ(kvdb_error_detail()->id, "MP0920");
	/* only abort is left, but it still reads */
	tsees(u, ka, "x", "0");
	T_EQ(tput(u, ka, "z", "u"), -ECANCELED);
	T_EQ(kvdb_txn_commit(u, 0, NULL), -ECANCELED);
	sees(ka, "y", NULL);
	commit(t);
	sees(ka, "x", "t");
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(st.txn_begun, 2);
	T_EQ(st.txn_committed, 1);
	T_EQ(st.txn_aborted, 1);
	T_EQ(st.txn_conflicts, 1);
	T_EQ(st.views, 0);
	kh_close();
}

/* Wherever the newer version lies by then. */
static void what_was_committed_after_the_view_is_a_conflict(unsigned drain, bool is_delete)
{
	struct kvdb_txn *t, *u, *w;

	fresh();
	plain(ka, "x", "0");
	plain(ka, "other", "0");
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	t = begin(0);
	u = begin(0);
	if (is_delete)
		T_EQ(tdel(u, ka, "x"), 0);
	else
		T_EQ(tput(u, ka, "x", "u"), 0);
	commit(u);
	if (drain) {
		/* several runs, so that there is something to merge */
		T_EQ(kvdb_drain(kh_db, drain), 0);
		for (int i = 0; i < 6; i++) {
			plain(ka, "filler", "1");
			T_EQ(kvdb_drain(kh_db, drain), 0);
		}
	}
	T_EQ(tput(t, ka, "x", "t"), -ECANCELED);
	T_STREQ(kvdb_error_detail()->id, "MP0920");
	kvdb_txn_abort(t);
	w = begin(0);
	T_EQ(tput(w, ka, "x", "w"), 0);
	commit(w);
	sees(ka, "x", "w");
	kh_close();
}

static void a_newer_version_in_memory_is_a_conflict(void)
{
	what_was_committed_after_the_view_is_a_conflict(0, false);
	what_was_committed_after_the_view_is_a_conflict(0, true);
}

static void a_newer_version_in_a_run_is_a_conflict(void)
{
	what_was_committed_after_the_view_is_a_conflict(KVDB_WAIT_FLUSH, false);
	what_was_committed_after_the_view_is_a_conflict(KVDB_WAIT_FLUSH, true);
}

static void a_newer_version_that_was_merged_is_a_conflict(void)
{
	what_was_committed_after_the_view_is_a_conflict(KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT,
							false);
	what_was_committed_after_the_view_is_a_conflict(KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT, true);
}

static void reading_is_no_conflict_so_write_skew_is_possible(void)
{
	struct kvdb_txn *t, *u;

	fresh();
	plain(ka, "x", "1");
	plain(ka, "y", "1");
	t = begin(0);
	u = begin(0);
	tsees(t, ka, "x", "1");
	tsees(u, ka, "y", "1");
	T_EQ(tput(t, ka, "y", "0"), 0);
	T_EQ(tput(u, ka, "x", "0"), 0);
	commit(t);
	commit(u);
	sees(ka, "x", "0");
	sees(ka, "y", "0");
	kh_close();
}

/* ---- mixed with plain operations ------------------------------------------------- */

static void a_plain_write_after_the_view_is_a_conflict(void)
{
	struct kvdb_txn *t;

	fresh();
	plain(ka, "x", "0");
	t = begin(0);
	plain(ka, "x", "plain");
	T_EQ(tput(t, ka, "x", "t"), -ECANCELED);
	kvdb_txn_abort(t);
	t = begin(0);
	T_EQ(kvdb_del(ka, "new", 3), 0);
	T_EQ(tput(t, ka, "new", "t"), -ECANCELED);
	kvdb_txn_abort(t);
	sees(ka, "x", "plain");
	kh_close();
}

static void *late_commit(void *arg)
{
	struct timespec ts = { .tv_nsec = 150000000 };

	nanosleep(&ts, NULL);
	T_EQ(kvdb_txn_commit(arg, 0, NULL), 0);
	return NULL;
}

static void a_plain_write_waits_for_the_owner_of_its_key(void)
{
	struct timespec a, b;
	struct kvdb_txn *t;
	pthread_t th;

	fresh();
	t = begin(0);
	T_EQ(tput(t, ka, "x", "t"), 0);
	clock_gettime(CLOCK_MONOTONIC, &a);
	T_EQ(kvdb_put(ka, "x", 1, "p", 1), -ECANCELED);
	clock_gettime(CLOCK_MONOTONIC, &b);
	T_STREQ(kvdb_error_detail()->id, "MP0921");
	if (!(kh_mode->flags & KVDB_MANUAL)) {
		T_OK(b.tv_sec - a.tv_sec >= 1 || b.tv_nsec - a.tv_nsec > 900000000);
		T_EQ(pthread_create(&th, NULL, late_commit, t), 0);
		plain(ka, "x", "p");	/* waits, comes second */
		pthread_join(th, NULL);
		sees(ka, "x", "p");
	} else {
		T_EQ(kvdb_del(ka, "x", 1), -ECANCELED);
		commit(t);
		sees(ka, "x", "t");
	}
	plain(ka, "y", "free");
	kh_close();
}

/* ---- limits ---------------------------------------------------------------------- */

static void a_transaction_has_room_for_many_writes_and_says_when_it_is_full(void)
{
	struct kvdb_txn *t = NULL;
	char key[64], big[100];
	uint64_t ticket = 0;
	unsigned n;
	int rc = 0;

	fresh();
	memset(big, 'v', sizeof(big));
	t = begin(0);
	for (n = 0; !rc; n++) {
		snprintf(key, sizeof(key), "key-%06u", n);
		rc = kvdb_txn_put(t, n % 2 ? ka : kb, key, strlen(key), big, sizeof(big));
	}
	T_EQ(rc, -EFBIG);
	T_STREQ(kvdb_error_detail()->id, "MP0925");
	T_OK(n > 10000);
	/* what is there may still be changed and committed */
	T_EQ(tput(t, kb, "key-000000", "small"), 0);
	T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, &ticket), 0);
	T_OK(ticket);
	sees(kb, "key-000000", "small");
	kh_close();
	kh_open();
	ka = kh_kvs("a");
	kb = kh_kvs("b");
	sees(kb, "key-000000", "small");
	for (unsigned i = 1; i < n - 1; i++) {
		size_t len = 0;

		snprintf(key, sizeof(key), "key-%06u", i);
		T_EQ(kvdb_get(i % 2 ? ka : kb, key, strlen(key), NULL, 0, &len), 0);
		T_EQ(len, sizeof(big));
	}
	kh_close();
}

static const size_t sizes[] = { 0, 1, 128, 129, 4096, 70000, 1 << 20 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
static uint8_t val[1 << 20], got[1 << 20];

static void commit_and_die(void)
{
	struct kvdb_txn *t;
	char key[16];

	ka = kh_kvs("a");
	t = begin(0);
	for (unsigned i = 0; i < SIZES; i++) {
		memset(val, (int)('a' + i), sizes[i]);
		snprintf(key, sizeof(key), "k%u", i);
		T_EQ(kvdb_txn_put(t, ka, key, strlen(key), val, sizes[i]), 0);
	}
	T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, NULL), 0);
	t = begin(0);	/* and this one is never committed */
	T_EQ(kvdb_txn_put(t, ka, "k0", 2, val, 5000), 0);
	T_EQ(kvdb_sync(kh_db), 0);
}

static void values_of_all_sizes_come_back_after_a_crash(void)
{
	char key[16];
	size_t len;

	kh_make(192 * MIB, 0);
	kh_die_in(commit_and_die);
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	for (int again = 0; again < 2; again++) {
		kh_open();
		ka = kh_kvs("a");
		for (unsigned i = 0; i < SIZES; i++) {
			memset(val, (int)('a' + i), sizes[i]);
			snprintf(key, sizeof(key), "k%u", i);
			T_EQ(kvdb_get(ka, key, strlen(key), got, sizeof(got), &len), 0);
			T_EQ(len, sizes[i]);
			T_OK(!memcmp(val, got, len));
		}
		kh_close();
	}
}

static void is_in_state(struct kvdb_txn *t, unsigned state, int err)
{
	struct kvdb_txn_info in;

	T_EQ(kvdb_txn_info(t, &in), 0);
	T_EQ(in.state, state);
	T_EQ(in.error, err);
}

static void a_transaction_tells_its_state(void)
{
	struct timespec ts = { .tv_nsec = 30000000 };
	struct kvdb_txn *t, *u, *v;
	struct kvdb_cursor *c[3];
	struct kvdb_txn_info in;
	struct kvdb_stats st;

	fresh();
	plain(ka, "x", "1");
	t = begin(0);
	u = begin(0);
	v = begin(KVDB_TXN_RDONLY);
	T_EQ(tput(t, ka, "x", "2"), 0);
	T_EQ(tput(t, ka, "y", "2"), 0);
	T_EQ(tput(u, ka, "x", "3"), -ECANCELED);
	is_in_state(t, KVDB_TXN_ACTIVE, 0);
	is_in_state(u, KVDB_TXN_CONFLICT, -ECANCELED);
	is_in_state(v, KVDB_TXN_ACTIVE, 0);
	nanosleep(&ts, NULL);
	T_EQ(kvdb_txn_info(v, &in), 0);
	T_OK(in.is_rdonly && in.age_ms >= 30 && !in.writes && !in.record_bytes);
	/* what it shows can be made durable, what came later need not be */
	T_EQ(kvdb_wait_durable(kh_db, in.ticket), 0);
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_OK(st.durable_epoch >= in.ticket);
	T_EQ(kvdb_txn_info(t, &in), 0);
	T_OK(!in.is_rdonly && in.writes == 2 && in.record_bytes);
	for (unsigned i = 0; i < 2; i++)
		T_EQ(kvdb_cursor_open(ka, 0, NULL, 0, &c[i]), 0);
	T_EQ(kvdb_txn_cursor_open(v, ka, 0, NULL, 0, &c[2]), 0);
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_OK(st.txns == 2 && st.snapshots == 1 && st.views == 3 && st.cursors == 3);
	T_OK(st.txn_oldest_ns >= 30000000 && st.snapshot_oldest_ns >= 30000000);
	for (unsigned i = 0; i < 3; i++)
		kvdb_cursor_close(c[i]);
	commit(t);
	kvdb_txn_abort(u);
	kvdb_txn_abort(v);
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_OK(!st.txns && !st.snapshots && !st.cursors);
	T_OK(!st.txn_oldest_ns && !st.snapshot_oldest_ns);
	kh_close();
}

/* ---- age ------------------------------------------------------------------------- */

static void a_view_that_is_too_old_says_so(void)
{
	struct timespec ts = { .tv_nsec = 60000000 };
	struct kvdb_opts o = kh_opts();
	struct kvdb_cursor *c;
	struct kvdb_stats st;
	struct kvdb_txn *t;
	size_t len;

	kh_make(192 * MIB, 0);
	o.view_max_age_ms = 50;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	ka = kh_kvs("a");
	plain(ka, "x", "1");
	t = begin(0);
	T_EQ(tput(t, ka, "mine", "1"), 0);
	T_EQ(kvdb_txn_cursor_open(t, ka, 0, NULL, 0, &c), 0);
	nanosleep(&ts, NULL);
	is_in_state(t, KVDB_TXN_EXPIRED, -ESTALE);
	T_EQ(kvdb_txn_get(t, ka, "x", 1, NULL, 0, &len), -ESTALE);
	is_in_state(t, KVDB_TXN_EXPIRED, -ESTALE);
	T_STREQ(kvdb_error_detail()->id, "MP0922");
	T_EQ(tput(t, ka, "y", "1"), -ESTALE);
	T_EQ(kvdb_cursor_seek(c, "x", 1), -ESTALE);
	T_EQ(kvdb_cursor_next(c, NULL, NULL, NULL, NULL), -ESTALE);
	kvdb_cursor_close(c);
	T_EQ(kvdb_txn_commit(t, 0, NULL), -ESTALE);
	sees(ka, "mine", NULL);
	plain(ka, "mine", "free");
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(st.txn_stale, 1);
	kh_close();
}

/* T11: all that is left to it is its abort, for which no thread waits. */
static void blocks_nobody(struct kvdb_txn *t, int err)
{
	struct kvdb_txn *u = begin(0);

	T_EQ(tput(u, ka, "taken", "u"), 0);
	commit(u);
	plain(ka, "put", "free");
	T_EQ(kvdb_prefix_del(ka, "del", 3), 0);
	T_EQ(kvdb_range_del(ka, "ran", 3, "rao", 3), 0);
	T_EQ(kvdb_kvs_drop(kh_db, "b"), 0);
	T_EQ(tput(t, ka, "taken", "t"), err);
	T_EQ(kvdb_txn_commit(t, 0, NULL), err);
	sees(ka, "taken", "u");
	sees(ka, "put", "free");
	sees(ka, "del", NULL);
	/* what others hold it did not take with it */
	T_EQ(kvdb_kvs_create(kh_db, "b", NULL), 0);
	kb = kh_kvs("b");
	u = begin(0);
	T_EQ(tput(u, kb, "x", "1"), 0);
	T_EQ(kvdb_kvs_drop(kh_db, "b"), -EBUSY);
	kvdb_txn_abort(u);
	T_EQ(kvdb_kvs_drop(kh_db, "b"), 0);
}

static struct kvdb_txn *claims(void)
{
	struct kvdb_txn *t = begin(0);

	T_EQ(tput(t, ka, "taken", "t"), 0);
	T_EQ(tput(t, ka, "put", "t"), 0);
	T_EQ(tput(t, ka, "del", "t"), 0);
	T_EQ(tput(t, ka, "range", "t"), 0);
	T_EQ(tput(t, kb, "x", "t"), 0);
	return t;
}

static void a_transaction_that_cannot_commit_blocks_nobody(void)
{
	struct timespec ts = { .tv_nsec = 320000000 };
	struct kvdb_opts o = kh_opts();
	struct kvdb_txn *t;

	/* too old */
	kh_make(192 * MIB, 0);
	o.view_max_age_ms = 300;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	ka = kh_kvs("a");
	kb = kh_kvs("b");
	t = claims();
	nanosleep(&ts, NULL);
	blocks_nobody(t, -ESTALE);
	kh_close();
	/* second with a key */
	fresh();
	t = claims();
	plain(ka, "first", "other");
	T_EQ(tput(t, ka, "first", "t"), -ECANCELED);
	blocks_nobody(t, -ECANCELED);
	kh_close();
}

static void old_snapshots_that_pin_too_much_memory_are_given_up(void)
{
	enum { N = 30 };
	struct kvdb_txn *v[N];
	char key[32], big[100];
	unsigned gone = 0;
	size_t len;
	int rc;

	fresh();
	memset(big, 'v', sizeof(big));
	plain(ka, "x", "1");
	for (unsigned r = 0; r < N; r++) {
		v[r] = begin(KVDB_TXN_RDONLY);
		for (unsigned i = 0; i < 5000; i++) {
			snprintf(key, sizeof(key), "key-%u-%05u", r, i);
			T_EQ(kvdb_put(ka, key, strlen(key), big, sizeof(big)), 0);
		}
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	}
	for (unsigned i = 0; i < 100 && !gone; i++) {
		struct timespec ts = { .tv_nsec = 20000000 };

		nanosleep(&ts, NULL);
		gone = kvdb_txn_get(v[0], ka, "x", 1, NULL, 0, &len) == -ESTALE;
	}
	T_OK(gone);
	for (unsigned r = 0; r < N; r++) {
		rc = kvdb_txn_get(v[r], ka, "x", 1, NULL, 0, &len);
		if (rc)
			T_STREQ(kvdb_error_detail()->id, "MP0923");
		if (rc)
			is_in_state(v[r], KVDB_TXN_GAVE_MEMORY, -ESTALE);
		/* the oldest go, the youngest stay */
		T_EQ(rc, r < gone ? -ESTALE : rc);
		if (rc == -ESTALE)
			gone = r + 1;
		T_EQ(kvdb_txn_commit(v[r], 0, NULL), rc);
	}
	T_OK(gone > 1 && gone < N);
	kh_close();
}

/* ---- durability ------------------------------------------------------------------ */

static _Atomic(int) told;

static void tell(void *arg, int err)
{
	(void)arg;
	told = err ? -1 : told + 1;
}

static void tickets_are_waited_for_and_told(void)
{
	struct kvdb_txn *t;
	uint64_t a, b = 0;

	fresh();
	told = 0;
	t = begin(0);
	T_EQ(tput(t, ka, "x", "1"), 0);
	T_EQ(kvdb_txn_commit(t, 0, &a), 0);
	T_EQ(kvdb_on_durable(kh_db, a, tell, NULL), 0);
	T_EQ(kvdb_on_durable(kh_db, a, tell, NULL), 0);
	T_EQ(kvdb_wait_durable(kh_db, a), 0);
	for (int i = 0; i < 100 && told < 2; i++) {
		struct timespec ts = { .tv_nsec = 10000000 };

		nanosleep(&ts, NULL);
	}
	T_EQ(told, 2);
	/* durable already: at once */
	T_EQ(kvdb_on_durable(kh_db, a, tell, NULL), 0);
	T_EQ(told, 3);
	plain(ka, "y", "1");
	b = kvdb_ticket(kh_db);
	T_OK(b >= a);
	T_EQ(kvdb_wait_durable(kh_db, b), 0);
	T_EQ(kvdb_wait_durable(kh_db, UINT64_MAX), -EINVAL);
	T_STREQ(kvdb_error_detail()->id, "MP0928");
	T_EQ(kvdb_on_durable(kh_db, UINT64_MAX, tell, NULL), -EINVAL);
	/* a transaction without writes has a ticket too */
	T_EQ(kvdb_txn_commit(begin(0), 0, &b), 0);
	T_EQ(kvdb_wait_durable(kh_db, b), 0);
	/* a sync that is not waited for, then is */
	plain(ka, "y", "2");
	T_EQ(kvdb_sync_start(kh_db, &b), 0);
	T_OK(b > a);
	T_EQ(kvdb_durable_within(kh_db, b, 60000), 1);
	T_EQ(kvdb_durable_within(kh_db, b, 0), 1);
	T_EQ(kvdb_durable_within(kh_db, UINT64_MAX, 0), -EINVAL);
	T_STREQ(kvdb_error_detail()->id, "MP0928");
	/* at the latest the close tells */
	plain(ka, "z", "1");
	T_EQ(kvdb_on_durable(kh_db, kvdb_ticket(kh_db), tell, NULL), 0);
	kh_close();
	T_EQ(told, 4);
}

static void a_database_open_for_reading_has_snapshots(void)
{
	struct kvdb_txn *t;

	fresh();
	plain(ka, "x", "1");
	kh_close();
	T_EQ(kh_open_with(KVDB_RDONLY), 0);
	T_EQ(kvdb_kvs_open(kh_db, "a", &ka), 0);
	t = begin(0);
	tsees(t, ka, "x", "1");
	shows(t, ka, 0, "x=1");
	T_EQ(tput(t, ka, "y", "1"), -EROFS);
	commit(t);
	kh_close();
}

static void thousands_of_transactions_may_be_open(void)
{
	enum { N = 5000 };
	struct kvdb_txn **t = calloc(N, sizeof(*t));
	struct kvdb_stats st;
	char key[32];

	fresh();
	for (unsigned i = 0; i < N; i++) {
		t[i] = begin(0);
		snprintf(key, sizeof(key), "k%u", i);
		T_EQ(tput(t[i], ka, key, key), 0);
	}
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(st.views, N);
	T_OK(st.view_oldest_ns > 0);
	for (unsigned i = 0; i < N; i++) {
		if (i % 3)
			commit(t[i]);
		else
			kvdb_txn_abort(t[i]);
	}
	for (unsigned i = 0; i < N; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		sees(ka, key, i % 3 ? key : NULL);
	}
	free(t);
	kh_close();
}

/* A device whose answers take 300 ms: time runs out, before its end and at once; then it comes. */
static void a_sync_that_is_waited_for_may_take_longer(void)
{
	struct mpool_open_opts mo = MPOOL_OPEN_OPTS_INIT;
	struct kvdb_opts o;
	struct timespec from, to;
	uint64_t b = 0;
	double ms;

	fresh();
	kh_close();
	o = kh_opts();
	mo.dev = "all:lat=300ms";
	o.pool = &mo;
	th_again();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	ka = kh_kvs("a");
	plain(ka, "y", "1");
	T_EQ(kvdb_sync_start(kh_db, &b), 0);
	T_EQ(kvdb_durable_within(kh_db, b, 0), 0);
	clock_gettime(CLOCK_MONOTONIC, &from);
	T_EQ(kvdb_durable_within(kh_db, b, 50), 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
	T_OK(ms >= 50);
	T_EQ(kvdb_durable_within(kh_db, b, 600000), 1);
	T_EQ(kvdb_durable_within(kh_db, b, 0), 1);
	kh_close();
}

int main(void)
{
	KH_RUN_MODES(writes_are_seen_by_their_transaction_only_until_the_commit);
	KH_RUN_MODES(an_aborted_transaction_leaves_nothing);
	KH_RUN_MODES(a_view_does_not_change_whoever_writes);
	T_RUN(a_store_younger_than_the_view_is_empty_in_it);
	T_RUN(cursors_show_own_writes_up_to_each_step);
	T_RUN(a_database_in_use_is_not_closed);
	T_RUN(a_step_shows_what_was_written_before_it);
	T_RUN(a_walk_that_writes_behind_itself_is_linear);
	T_RUN(a_cursor_shows_no_writes_that_were_aborted);
	T_RUN(a_renewed_cursor_keeps_the_snapshot_of_its_transaction);
	T_RUN(the_first_writer_wins);
	T_RUN(a_newer_version_in_memory_is_a_conflict);
	T_RUN(a_newer_version_in_a_run_is_a_conflict);
	T_RUN(a_newer_version_that_was_merged_is_a_conflict);
	T_RUN(reading_is_no_conflict_so_write_skew_is_possible);
	T_RUN(a_plain_write_after_the_view_is_a_conflict);
	KH_RUN_MODES(a_plain_write_waits_for_the_owner_of_its_key);
	T_RUN(a_transaction_has_room_for_many_writes_and_says_when_it_is_full);
	T_RUN(values_of_all_sizes_come_back_after_a_crash);
	T_RUN(a_transaction_tells_its_state);
	T_RUN(a_view_that_is_too_old_says_so);
	T_RUN(a_transaction_that_cannot_commit_blocks_nobody);
	T_RUN(old_snapshots_that_pin_too_much_memory_are_given_up);
	KH_RUN_MODES(tickets_are_waited_for_and_told);
	T_RUN(a_database_open_for_reading_has_snapshots);
	T_RUN(thousands_of_transactions_may_be_open);
	TH_RUN_FILES(a_sync_that_is_waited_for_may_take_longer);
	return t_done();
}
