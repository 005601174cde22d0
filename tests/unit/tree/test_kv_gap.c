/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What cursors remember of ranges in which they found nothing: new cursors come
 * by few entries where many were deleted, counted in entries and not in time,
 * and miss nothing that is there. GAP-1 to GAP-4 of tree/HOLDS.md.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "db/thread.h"
#include "kv_clock.h"
#include "kv_fresh.h"
#include "op/cursor.h"
#include "db/limbo.h"

#define FEW	100u	/* entries that a step may come by; beside them a cursor reads one ahead */
#define SOME	2000u

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;

static void open_with(unsigned flags, const struct kvdb_clock *clk, uint64_t ttl_s)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;

	kv_fresh(dir, sizeof(dir), "kv_gap", 256u << 20, 256u << 10);
	o.flags = flags;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	o.clock = clk;
	ko.ttl_s = ttl_s;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "q", &ko), 0);
	T_EQ(kvdb_kvs_open(db, "q", &kvs), 0);
}

static void fresh(void)
{
	open_with(KVDB_MANUAL, NULL, 0);
}

static void done(void)
{
	kv_end(db, dir, 0);
}

static size_t key_of(char queue, unsigned i, char *key)
{
	return (size_t)sprintf(key, "%c%06u", queue, i);
}

static int put(char queue, unsigned i)
{
	char key[16];

	return kvdb_put(kvs, key, key_of(queue, i, key), "value", 5);
}

static int del(char queue, unsigned i)
{
	char key[16];

	return kvdb_del(kvs, key, key_of(queue, i, key));
}

/* Number of the key that a new cursor comes to first, of all queues when @queue is 0; -1: none. */
static int head_of(struct kvdb_cursor *cur, uint64_t *steps)
{
	const void *key;
	char text[16];
	size_t klen;
	int rc = kvdb_cursor_next(cur, &key, &klen, NULL, NULL);

	*steps += kv_cursor_steps(cur);
	kvdb_cursor_close(cur);
	if (rc == -ENOENT)
		return -1;
	T_EQ(rc, 0);
	memcpy(text, key, klen);
	text[klen] = 0;
	return atoi(text + 1);
}

static int head(char queue, uint64_t *steps)
{
	struct kvdb_cursor *cur;

	T_EQ(kvdb_cursor_open(kvs, 0, &queue, queue != 0, &cur), 0);
	return head_of(cur, steps);
}

static int txn_head(struct kvdb_txn *txn, uint64_t *steps)
{
	struct kvdb_cursor *cur;

	T_EQ(kvdb_txn_cursor_open(txn, kvs, 0, NULL, 0, &cur), 0);
	return head_of(cur, steps);
}

static void flush(void)
{
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
}

/* Keys [0, n) were there and are gone. */
static void put_and_take(char queue, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		T_EQ(put(queue, i), 0);
	for (unsigned i = 0; i < n; i++)
		T_EQ(del(queue, i), 0);
}

/* New cursors, until what they can learn is learned. */
static void learn(int want)
{
	uint64_t steps = 0;

	for (unsigned i = 0; i < 8; i++)
		T_EQ(head(0, &steps), want);
	steps = 0;
	T_EQ(head(0, &steps), want);
	T_OK(steps < FEW);
}

static void the_head_of_a_queue_is_near(void)
{
	const unsigned depth = 100, n = 2 * SOME;
	uint64_t steps = 0, worst = 0, before;

	fresh();
	for (unsigned i = 0; i < depth; i++)
		T_EQ(put('q', i), 0);
	for (unsigned i = 0; i < n; i++) {
		before = steps;
		T_EQ(head('q', &steps), (int)i);
		if (i > n / 2 && steps - before > worst)
			worst = steps - before;
		T_EQ(del('q', i), 0);
		T_EQ(put('q', i + depth), 0);
		if (i == n / 4 || i == n / 2 + 500)
			flush();
	}
	printf("# %.1f steps a cursor, %" PRIu64 " at most\n", (double)steps / n, worst);
	T_OK(steps / n < FEW);
	T_OK(worst < 3 * FEW);
	done();
}

static void an_empty_queue_is_known_to_be(void)
{
	uint64_t steps = 0;

	fresh();
	put_and_take('q', SOME);
	learn(-1);
	flush();
	T_EQ(head('q', &steps), -1);
	T_OK(steps < FEW);
	/* beyond the end of what was walked */
	T_EQ(put('q', SOME), 0);
	T_EQ(head('q', &steps), SOME);
	T_EQ(head(0, &steps), SOME);
	done();
}

static void each_prefix_is_a_queue(void)
{
	const unsigned queues = 8, n = 500;
	uint64_t steps = 0;

	fresh();
	for (unsigned i = 0; i < n; i++)
		for (unsigned q = 0; q < queues; q++) {
			T_EQ(put((char)('a' + q), i), 0);
			T_EQ(head((char)('a' + q), &steps), (int)i);
			T_EQ(del((char)('a' + q), i), 0);
			T_EQ(head((char)('a' + q), &steps), -1);
		}
	printf("# %.1f steps a cursor\n", (double)steps / (2 * n * queues));
	T_OK(steps / (2 * n * queues) < FEW);
	done();
}

/* Of the second key: a job that no consumer takes stays in front. */
static uint64_t steps_to_second(int want)
{
	struct kvdb_cursor *cur;
	uint64_t steps = 0;

	T_EQ(kvdb_cursor_open(kvs, 0, "q", 1, &cur), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	T_EQ(head_of(cur, &steps), want);
	return steps;
}

static void what_stays_at_the_head_hides_no_gap(void)
{
	fresh();
	T_EQ(put('q', 0), 0);
	for (unsigned i = 1; i < SOME; i++)
		T_OK(!put('q', i) && !del('q', i));
	T_EQ(put('q', SOME), 0);
	for (unsigned i = 0; i < 8; i++)
		steps_to_second(SOME);
	T_OK(steps_to_second(SOME) < 256 + FEW);
	T_EQ(del('q', 0), 0);
	learn(SOME);
	done();
}

static void what_is_put_into_a_gap_is_there(void)
{
	struct kvdb_txn *txn;
	uint64_t steps = 0;

	fresh();
	put_and_take('q', SOME);
	learn(-1);
	T_EQ(put('q', 1000), 0);
	T_EQ(head(0, &steps), 1000);
	T_EQ(head('q', &steps), 1000);
	T_EQ(del('q', 1000), 0);
	learn(-1);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	T_EQ(kvdb_txn_put(txn, kvs, "q000500", 7, "v", 1), 0);
	T_EQ(head(0, &steps), -1);
	T_EQ(kvdb_txn_commit(txn, 0, NULL), 0);
	T_EQ(head(0, &steps), 500);
	T_EQ(head('q', &steps), 500);
	done();
}

static void an_older_view_sees_what_it_saw(void)
{
	struct kvdb_txn *txn;
	uint64_t steps = 0;

	fresh();
	put_and_take('q', SOME);
	T_EQ(put('q', 700), 0);
	T_EQ(kvdb_txn_begin(db, KVDB_TXN_RDONLY, &txn), 0);
	T_EQ(del('q', 700), 0);
	learn(-1);
	T_EQ(txn_head(txn, &steps), 700);
	kvdb_txn_abort(txn);
	done();
}

static void an_older_view_does_not_say_what_is_dead(void)
{
	struct kvdb_cursor *cur;
	uint64_t steps = 0;

	fresh();
	put_and_take('q', SOME);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	T_EQ(put('q', 700), 0);
	learn(700);
	T_EQ(head_of(cur, &steps), -1);
	T_EQ(head(0, &steps), 700);
	T_EQ(head('q', &steps), 700);
	done();
}

static void a_transaction_has_writes_of_its_own(void)
{
	struct kvdb_txn *txn;
	uint64_t steps = 0;

	fresh();
	put_and_take('q', SOME);
	for (unsigned i = SOME; i < SOME + 200; i++)
		T_EQ(put('q', i), 0);
	learn(SOME);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	for (unsigned i = SOME; i < SOME + 100; i++) {
		char key[16];

		T_EQ(kvdb_txn_del(txn, kvs, key, key_of('q', i, key)), 0);
	}
	T_EQ(txn_head(txn, &steps), SOME + 100);
	T_EQ(txn_head(txn, &steps), SOME + 100);
	T_EQ(head(0, &steps), SOME);
	T_EQ(kvdb_txn_put(txn, kvs, "q000300", 7, "v", 1), 0);
	steps = 0;
	T_EQ(txn_head(txn, &steps), 300);
	T_OK(steps < 3 * FEW);	/* its own deletes, and what they hide */
	kvdb_txn_abort(txn);
	T_EQ(head(0, &steps), SOME);
	done();
}

static void what_has_expired_is_a_gap_for_later_times(void)
{
	struct kvdb_cursor *cur;
	uint64_t steps = 0;

	open_with(KVDB_MANUAL, &test_clock, 10);
	for (unsigned i = 0; i < SOME; i++)
		T_EQ(put('q', i), 0);
	now_ns += 20000000000u;
	learn(-1);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	kv_cursor_show_expired(cur);
	T_EQ(head_of(cur, &steps), 0);
	T_EQ(put('q', 100), 0);
	T_EQ(head(0, &steps), 100);
	done();
}

static void what_is_loaded_into_a_gap_is_there(void)
{
	struct kvdb_bulk *b;
	uint64_t steps = 0;

	fresh();
	put_and_take('q', SOME);
	flush();
	learn(-1);
	T_EQ(kvdb_bulk_open(kvs, 0, &b), 0);
	T_EQ(kvdb_bulk_add(b, "q000300", 7, "v", 1), 0);
	T_EQ(kvdb_bulk_finish(b), 0);
	T_EQ(head(0, &steps), 300);
	done();
}

static void deletes_of_many_keys_are_gaps_too(void)
{
	uint64_t steps = 0;

	fresh();
	for (unsigned i = 0; i <= SOME; i++)
		T_EQ(put('q', i), 0);
	T_EQ(kvdb_range_del(kvs, "q", 1, "q002000", 7), 0);
	learn(SOME);
	T_EQ(put('q', 5), 0);
	T_EQ(head(0, &steps), 5);
	T_EQ(kvdb_prefix_del(kvs, "q", 1), 0);
	learn(-1);
	done();
}

/* ---- a put that does not know yet ------------------------------------------------------------ */

static _Atomic(int) stage;

static void *stay_inside(void *arg)
{
	struct kv_thread *t = kv_enter();

	(void)arg;
	atomic_store(&stage, 1);
	while (atomic_load(&stage) != 2)
		;
	kv_exit(t);
	return NULL;
}

static void nothing_is_known_while_a_put_may_be_under_way(void)
{
	uint64_t steps = 0;
	pthread_t th;

	fresh();
	put_and_take('q', SOME);
	atomic_store(&stage, 0);
	T_EQ(pthread_create(&th, NULL, stay_inside, NULL), 0);
	while (!atomic_load(&stage))
		;
	for (unsigned i = 0; i < 8; i++)
		T_EQ(head(0, &steps), -1);
	atomic_store(&stage, 2);
	pthread_join(th, NULL);
	printf("# %" PRIu64 " steps\n", steps);
	T_OK(steps >= 8 * (SOME - 1));
	learn(-1);
	done();
}

/* ---- against a model -------------------------------------------------------------------- */

#define KEYS	1200u
#define VIEWS	3u

struct view {
	struct kvdb_txn *txn;
	bool has_written;
	uint8_t is[KEYS];
};

static uint8_t now_is[KEYS];
static struct view view[VIEWS];
static uint64_t rnd;

static unsigned any(unsigned n)
{
	return (unsigned)(t_rand(&rnd) % n);
}

static char key_buf[16];

static const char *key_at(unsigned i)
{
	sprintf(key_buf, "%c%06u", 'a' + (int)(i * 4 / KEYS), i);
	return key_buf;
}

/* A step back from the key @at, and forth again. */
static void turn(struct kvdb_cursor *cur, const uint8_t *is, int at, bool up, int lo, int hi)
{
	int to = at, rc;
	const void *key;
	size_t klen;

	do
		to += up ? -1 : 1;
	while (to >= lo && to < hi && !is[to]);
	rc = kvdb_cursor_prev(cur, &key, &klen, NULL, NULL);
	if (to < lo || to >= hi) {
		T_EQ(rc, -ENOENT);
	} else {
		T_EQ(rc, 0);
		T_MEMEQ(key, key_at((unsigned)to), 7);
	}
	T_EQ(kvdb_cursor_next(cur, &key, &klen, NULL, NULL), 0);
	T_MEMEQ(key, key_at((unsigned)at), 7);
}

/* A few steps of a new cursor, from anywhere, both ways. */
static void walk(const uint8_t *is, struct kvdb_txn *txn)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	bool up = any(4) != 0, bounded = any(2);
	unsigned lo = bounded ? any(4) * (KEYS / 4) : 0, hi = bounded ? lo + KEYS / 4 : KEYS;
	int at = up ? (int)lo - 1 : (int)hi;
	char prefix = (char)('a' + (int)(lo * 4 / KEYS));
	struct kvdb_cursor *cur;
	const void *key;
	size_t klen;
	int rc;

	o.flags = up ? 0 : KVDB_REVERSE;
	o.prefix = &prefix;
	o.plen = bounded;
	T_EQ(txn ? kvdb_txn_cursor_open_opts(txn, kvs, &o, &cur) :
		   kvdb_cursor_open_opts(kvs, &o, &cur), 0);
	if (any(2)) {
		unsigned to = lo + any(hi - lo);

		T_EQ(kvdb_cursor_seek(cur, key_at(to), 7), 0);
		at = up ? (int)to - 1 : (int)to + 1;
	}
	for (unsigned n = 1 + any(4); n; n--) {
		do
			at += up ? 1 : -1;
		while (at >= (int)lo && at < (int)hi && !is[at]);
		rc = kvdb_cursor_next(cur, &key, &klen, NULL, NULL);
		if (at < (int)lo || at >= (int)hi) {
			T_EQ(rc, -ENOENT);
			break;
		}
		T_EQ(rc, 0);
		T_EQ(klen, 7);
		T_MEMEQ(key, key_at((unsigned)at), 7);
		/* and on the other way */
		if (any(8) == 0)
			turn(cur, is, at, up, (int)lo, (int)hi);
	}
	kvdb_cursor_close(cur);
}

static void change(void)
{
	unsigned k = any(KEYS), n;

	switch (any(8)) {
	case 0:
	case 1:
		T_EQ(kvdb_put(kvs, key_at(k), 7, "v", 1), 0);
		now_is[k] = 1;
		break;
	case 2:
		/* as a queue does: what comes first goes */
		for (n = 1 + any(20), k = any(4) * (KEYS / 4); n && k < KEYS; k++)
			if (now_is[k]) {
				T_EQ(kvdb_del(kvs, key_at(k), 7), 0);
				now_is[k] = 0;
				n--;
			}
		break;
	case 3:
		for (n = any(200); n && k < KEYS; n--, k++) {
			T_EQ(kvdb_del(kvs, key_at(k), 7), 0);
			now_is[k] = 0;
		}
		break;
	case 4: {
		char to[16];

		n = k + any(KEYS - k);
		strcpy(to, key_at(n));
		T_EQ(kvdb_range_del(kvs, key_at(k), 7, to, 7), 0);
		memset(now_is + k, 0, n - k);
		break;
	}
	case 5:
		if (any(20) == 0)
			T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | (any(2) ? KVDB_WAIT_COMPACT : 0)), 0);
		break;
	default:
		T_EQ(kvdb_del(kvs, key_at(k), 7), 0);
		now_is[k] = 0;
	}
}

static void view_end(struct view *v)
{
	int rc;

	if (!v->txn)
		return;
	if (any(2)) {
		kvdb_txn_abort(v->txn);
	} else {
		/* what it wrote is all that it changes: with the other keys as they are now */
		rc = kvdb_txn_commit(v->txn, 0, NULL);
		T_OK(rc == 0);
		for (unsigned k = 0; v->has_written && k < KEYS; k++)
			if (v->is[k] & 2)
				now_is[k] = v->is[k] & 1;
	}
	v->txn = NULL;
}

/* Other writers stay away from what a transaction wrote: only one of them writes, at one time. */
static void view_use(struct view *v)
{
	unsigned k = any(KEYS);

	if (!v->txn) {
		T_EQ(kvdb_txn_begin(db, 0, &v->txn), 0);
		memcpy(v->is, now_is, sizeof(v->is));
		v->has_written = false;
	}
	if (v == view) {
		for (unsigned n = any(30); n; n--, k = any(KEYS)) {
			bool is_put = any(3) == 0;

			T_EQ(is_put ? kvdb_txn_put(v->txn, kvs, key_at(k), 7, "t", 1) :
				      kvdb_txn_del(v->txn, kvs, key_at(k), 7), 0);
			v->is[k] = 2 + is_put;
			v->has_written = true;
		}
	}
}

static void walk_view(struct view *v)
{
	uint8_t is[KEYS];

	for (unsigned k = 0; k < KEYS; k++)
		is[k] = v->is[k] & 1;
	walk(is, v->txn);
}

static void cursors_follow_a_model(void)
{
	unsigned rounds = 12000;

	rnd = t_seed();
	memset(now_is, 0, sizeof(now_is));
	memset(view, 0, sizeof(view));
	fresh();
	for (unsigned i = 0; i < rounds; i++) {
		unsigned v = any(VIEWS);

		if (any(3) == 0)
			change();
		walk(now_is, NULL);
		/* the one that writes ends before anything else changes */
		if (any(20) == 0) {
			view_end(&view[v]);
			view_use(&view[v]);
		}
		if (view[v].txn)
			walk_view(&view[v]);
		if (view[0].has_written && view[0].txn) {
			walk_view(&view[0]);
			walk(now_is, NULL);
			view_end(&view[0]);
		}
	}
	for (unsigned v = 0; v < VIEWS; v++)
		if (view[v].txn)
			kvdb_txn_abort(view[v].txn);
	done();
}

/* ---- threads ------------------------------------------------------------------------------ */

#define WRITERS	3u
#define TURNS	6000u

static _Atomic(unsigned) wrong, writing;

/* The first key at @from or above. */
static bool first(unsigned from, char *out)
{
	struct kvdb_cursor *cur;
	char key[16];
	const void *k;
	size_t klen;
	int rc;

	sprintf(key, "q%06u", from);
	if (kvdb_cursor_open(kvs, 0, NULL, 0, &cur))
		return false;
	rc = from ? kvdb_cursor_seek(cur, key, 7) : 0;
	if (!rc)
		rc = kvdb_cursor_next(cur, &k, &klen, NULL, NULL);
	if (!rc)
		memcpy(out, k, 7);
	kvdb_cursor_close(cur);
	return !rc;
}

/* A key of its own comes and goes, where mostly nothing is. */
static void *come_and_go(void *arg)
{
	uint64_t mine = (uint64_t)(uintptr_t)arg;
	uint64_t r = mine * 7919 + 1;

	for (unsigned i = 0; i < TURNS; i++) {
		unsigned k = (unsigned)(t_rand(&r) % 1000 * WRITERS + mine);
		char key[16], got[16] = "";
		unsigned from = t_rand(&r) % 2 ? 0 : k / 2;

		sprintf(key, "q%06u", k);
		if (kvdb_put(kvs, key, 7, "v", 1) || !first(from, got) || memcmp(got, key, 7) > 0)
			atomic_fetch_add(&wrong, 1);
		if (kvdb_del(kvs, key, 7))
			atomic_fetch_add(&wrong, 1);
		if (first(k, got) && !memcmp(got, key, 7))
			atomic_fetch_add(&wrong, 1);
	}
	atomic_fetch_sub(&writing, 1);
	return NULL;
}

static void *look_on(void *arg)
{
	char got[16];

	(void)arg;
	while (atomic_load(&writing))
		first(0, got);
	return NULL;
}

static void what_was_put_is_found_whatever_others_learn(void)
{
	pthread_t th[WRITERS + 1];

	open_with(0, NULL, 0);
	put_and_take('q', 3000);
	atomic_store(&wrong, 0);
	atomic_store(&writing, WRITERS);
	for (uintptr_t i = 0; i < WRITERS; i++)
		T_EQ(pthread_create(&th[i], NULL, come_and_go, (void *)i), 0);
	T_EQ(pthread_create(&th[WRITERS], NULL, look_on, NULL), 0);
	for (unsigned i = 0; i <= WRITERS; i++)
		pthread_join(th[i], NULL);
	T_EQ(atomic_load(&wrong), 0);
	done();
}

int main(void)
{
	T_RUN(the_head_of_a_queue_is_near);
	T_RUN(an_empty_queue_is_known_to_be);
	T_RUN(each_prefix_is_a_queue);
	T_RUN(what_stays_at_the_head_hides_no_gap);
	T_RUN(what_is_put_into_a_gap_is_there);
	T_RUN(an_older_view_sees_what_it_saw);
	T_RUN(an_older_view_does_not_say_what_is_dead);
	T_RUN(a_transaction_has_writes_of_its_own);
	T_RUN(what_has_expired_is_a_gap_for_later_times);
	T_RUN(what_is_loaded_into_a_gap_is_there);
	T_RUN(deletes_of_many_keys_are_gaps_too);
	T_RUN(nothing_is_known_while_a_put_may_be_under_way);
	T_RUN(cursors_follow_a_model);
	T_RUN(what_was_put_is_found_whatever_others_learn);
	return t_done();
}
