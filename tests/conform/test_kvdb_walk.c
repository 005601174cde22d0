/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Walks of cursors with every kind of bound, in both directions at once,
 * against a sorted model: prefixes, ranges, limits, keys only; steps forth and
 * back, seeks before and behind keys that are there, absent, and beyond the
 * ends. Cursors stay open while the store is changed, flushed and merged
 * beneath them, by this thread and by others.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "kvdb_help.h"

#define POOL (256 * MIB)
#define CASES 4u	/* of what a bound can be */

static struct kh_model model;

/* ---- a cursor and its model ------------------------------------------------------------ */

/*
 * The model's place: 2i + 1 is on the key of index i, 2i is the gap below it.
 * Checks return false and say why, for they also run in threads.
 */
struct walk {
	struct kvdb_cursor *cur;
	struct kh_val *val;	/* of the model when the cursor was opened */
	struct kvdb_cursor_opts o;
	uint8_t prefix[KVDB_KEY_MAX], from[KVDB_KEY_MAX], to[KVDB_KEY_MAX];
	uint64_t rnd;
	uint64_t left;		/* of the limit */
	int64_t place;
	unsigned shown;
};

static bool in_range(const struct walk *w, int64_t i)
{
	const struct kh_key *k = &model.key[i];

	return w->val[i].is_live && k->klen >= w->o.plen &&
	       !memcmp(k->key, w->prefix, w->o.plen) &&
	       (!w->o.flen || kh_cmp(k->key, k->klen, w->from, w->o.flen) >= 0) &&
	       (!w->o.tlen || kh_cmp(k->key, k->klen, w->to, w->o.tlen) < 0);
}

/* Number of keys below the key, or not above it when @upto. */
static int64_t below(const uint8_t *key, size_t klen, bool upto)
{
	unsigned lo = 0, hi = model.n;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;
		int c = kh_cmp(model.key[mid].key, model.key[mid].klen, key, klen);

		if (c < 0 || (!c && upto))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* A string at, next to, or far from a key. */
static size_t some_key(uint64_t *rnd, uint8_t *key)
{
	const struct kh_key *k = &model.key[t_rand(rnd) % model.n];
	uint64_t x = t_rand(rnd);
	size_t klen = k->klen;

	memcpy(key, k->key, klen);
	switch (x % 8) {
	case 0:
		key[klen - 1]++;
		break;
	case 1:
		key[klen - 1]--;
		break;
	case 2:
		klen = 1 + (x >> 8) % klen;
		break;
	case 3:
		if (klen < KVDB_KEY_MAX)
			key[klen++] = 0;
		break;
	case 4:
		klen = 1 + (x >> 8) % 4;
		memset(key, x & 128 ? 0xff : 0, klen);
		break;
	}
	return klen;
}

/* Option number @no of every combination; the rest is chance. */
static void walk_opts(struct walk *w, unsigned no)
{
	w->o = (struct kvdb_cursor_opts)KVDB_CURSOR_OPTS_INIT;
	w->o.flags = no % 4;
	no /= 4;
	if (no % CASES == 1) {	/* something that keys begin with */
		w->o.plen = some_key(&w->rnd, w->prefix) % 5;
	} else if (no % CASES == 2) {
		w->o.plen = 4;
		memcpy(w->prefix, "user", 4);
	} else if (no % CASES == 3) {
		w->o.plen = some_key(&w->rnd, w->prefix);
	}
	no /= CASES;
	if (no & 1)
		w->o.flen = some_key(&w->rnd, w->from);
	if (no & 2)
		w->o.tlen = some_key(&w->rnd, w->to);
	if (no & 4)
		w->o.limit = 1 + t_rand(&w->rnd) % 40;
	if (w->o.plen)
		w->o.prefix = w->prefix;
	if (w->o.flen)
		w->o.from = w->from;
	if (w->o.tlen)
		w->o.to = w->to;
}

#define COMBINATIONS (4u * CASES * 8u)

static int walk_open(struct walk *w, struct kvdb_kvs *kvs, unsigned no, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->rnd = seed;
	walk_opts(w, no);
	w->val = malloc(model.n * sizeof(*w->val));
	memcpy(w->val, model.val, model.n * sizeof(*w->val));
	w->left = w->o.limit;
	w->place = w->o.flags & KVDB_REVERSE ? 2 * (int64_t)model.n : 0;
	return kvdb_cursor_open_opts(kvs, &w->o, &w->cur);
}

static void walk_close(struct walk *w)
{
	kvdb_cursor_close(w->cur);
	free(w->val);
}

static bool value_is(uint64_t seed, const uint8_t *val, size_t len)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = t_rand(&seed);

		if (memcmp(val + i, &v, len - i < 8 ? len - i : 8))
			return false;
	}
	return true;
}

static bool wrong(const struct walk *w, const char *what, int err, int64_t want)
{
	printf("# %s: flags %u, prefix %zu, from %zu, to %zu, limit %" PRIu64
	       ": error %d, place %" PRId64 ", wanted index %" PRId64 "\n", what, w->o.flags,
	       w->o.plen, w->o.flen, w->o.tlen, w->o.limit, err, w->place, want);
	return false;
}

/* next, or prev with @back. */
static bool walk_step(struct walk *w, bool back)
{
	bool up = back == !!(w->o.flags & KVDB_REVERSE);
	const void *key = NULL, *val = NULL;
	int64_t n = model.n, i = up ? w->place / 2 + w->place % 2 : w->place / 2 - 1;
	size_t klen = 0, vlen = 0;
	int err;

	if (up && w->place % 2)
		i = w->place / 2 + 1;
	err = back ? kvdb_cursor_prev(w->cur, &key, &klen, &val, &vlen) :
		     kvdb_cursor_next(w->cur, &key, &klen, &val, &vlen);
	if (w->o.limit && !w->left)
		return err == -ENOENT || wrong(w, "beyond the limit", err, -1);
	while (i >= 0 && i < n && !in_range(w, i))
		i += up ? 1 : -1;
	if (i < 0 || i >= n) {
		if (err != -ENOENT)
			return wrong(w, "beyond the end", err, i);
		w->place = up ? 2 * n : 0;
		return true;
	}
	if (err || klen != model.key[i].klen || memcmp(key, model.key[i].key, klen) ||
	    vlen != w->val[i].vlen)
		return wrong(w, "step", err, i);
	if (w->o.flags & KVDB_KEYS_ONLY ? val != NULL : !value_is(w->val[i].seed, val, vlen))
		return wrong(w, "value", err, i);
	w->left -= w->o.limit != 0;
	w->place = 2 * i + 1;
	w->shown++;
	return true;
}

static bool walk_seek(struct walk *w, bool after)
{
	bool up = !(w->o.flags & KVDB_REVERSE), above = after == up;
	uint8_t key[KVDB_KEY_MAX];
	size_t klen = t_rand(&w->rnd) % 8 ? some_key(&w->rnd, key) : 0;
	int err = after ? kvdb_cursor_seek_after(w->cur, klen ? key : NULL, klen) :
			  kvdb_cursor_seek(w->cur, klen ? key : NULL, klen);

	if (err)
		return wrong(w, "seek", err, -1);
	w->left = w->o.limit;
	w->place = klen ? 2 * below(key, klen, above) : above ? 2 * (int64_t)model.n : 0;
	return true;
}

static bool walk_some(struct walk *w, unsigned steps)
{
	bool back = false, ok = true;

	while (ok && steps--) {
		uint64_t x = t_rand(&w->rnd) % 16;

		if (x == 0)
			ok = walk_seek(w, false);
		else if (x == 1)
			ok = walk_seek(w, true);
		else if (x < 4)
			back = !back;
		ok = ok && walk_step(w, back);
	}
	return ok;
}

/* From one end to the other and back. */
static bool walk_all(struct walk *w)
{
	bool ok = true;

	for (int back = 0; back < 2 && ok; back++) {
		unsigned shown;

		do {
			shown = w->shown;
			ok = walk_step(w, back);
		} while (ok && shown != w->shown);
	}
	return ok;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void every_combination_of_bounds_follows_the_model(void)
{
	struct kvdb_kvs *kvs;
	struct walk w;

	kh_model_begin(&model, POOL, 500);
	kvs = kh_kvs("s");
	for (unsigned no = 0; no < 2 * COMBINATIONS; no++) {
		if (no % 8 == 0)
			kh_model_steps(&model, kvs, 60);
		if (no % 64 == 32)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (no % 64 == 16) {	/* values are no longer in memory */
			kh_close();
			kh_open();
			kvs = kh_kvs("s");
		}
		if (no == COMBINATIONS)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		T_EQ(walk_open(&w, kvs, no % COMBINATIONS, t_rand(&kh_rnd)), 0);
		T_OK(walk_all(&w));
		T_OK(walk_some(&w, 40));
		walk_close(&w);
	}
	kh_model_end(&model);
}

#define OPEN 24u

static void snapshots_stay_under_walks_both_ways(void)
{
	struct walk w[OPEN];
	struct kvdb_kvs *kvs;

	kh_model_begin(&model, POOL, 400);
	kvs = kh_kvs("s");
	for (unsigned i = 0; i < OPEN; i++) {
		kh_model_steps(&model, kvs, 60);
		T_EQ(walk_open(&w[i], kvs, (unsigned)t_rand(&kh_rnd) % COMBINATIONS,
			       t_rand(&kh_rnd)), 0);
		if (i % 2)
			T_OK(walk_some(&w[i], 5));
		kh_model_steps(&model, kvs, 60);
		if (i % 3 == 1)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (i % 7 == 6)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		for (unsigned j = 0; j <= i; j++)
			T_OK(walk_some(&w[j], 4));
	}
	for (unsigned i = 0; i < model.n; i++)
		T_EQ(kvdb_del(kvs, model.key[i].key, model.key[i].klen), 0);
	memset(model.val, 0, model.n * sizeof(*model.val));
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	for (unsigned i = 0; i < OPEN; i++) {
		T_OK(walk_some(&w[i], 60));
		walk_close(&w[i]);
	}
	T_EQ(walk_open(&w[0], kvs, 0, 1), 0);
	T_OK(walk_all(&w[0]));
	T_EQ(w[0].shown, 0);
	walk_close(&w[0]);
	kh_model_end(&model);
}

static bool key_is(const void *key, size_t klen, const char *want)
{
	return klen == strlen(want) && !memcmp(key, want, klen);
}

static void next_and_prev_mix(void)
{
	static const char *const expect[] = { "a", "b", "c", NULL, "c", "b", "a", NULL, "a" };
	struct kvdb_cursor *cur;
	struct kvdb_kvs *kvs;
	const void *key;
	size_t klen;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	for (const char *k = "abc"; *k; k++) {
		T_EQ(kvdb_put(kvs, k, 1, k, 1), 0);
		T_EQ(kvdb_drain(kh_db, *k == 'b' ? KVDB_WAIT_FLUSH : 0), 0);
	}
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	for (unsigned i = 0; i < 9; i++) {
		int err = i < 4 || i == 8 ? kvdb_cursor_next(cur, &key, &klen, NULL, NULL) :
					    kvdb_cursor_prev(cur, &key, &klen, NULL, NULL);

		T_EQ(err, expect[i] ? 0 : -ENOENT);
		if (!err)
			T_OK(key_is(key, klen, expect[i]));
	}
	/* behind everything, where nothing follows */
	T_EQ(kvdb_cursor_seek_after(cur, NULL, 0), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), -ENOENT);
	T_EQ(kvdb_cursor_prev(cur, &key, &klen, NULL, NULL), 0);
	T_OK(key_is(key, klen, "c"));
	kvdb_cursor_close(cur);
	kh_model_end(&model);
}

/* What the transaction wrote and deleted lies over what the store holds, within the bounds. */
static void cursors_of_transactions_have_bounds_and_turn(void)
{
	static const char *const expect[] = { "b", "c", "d", NULL, "d", "c", "b", NULL };
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	struct kvdb_cursor *cur;
	struct kvdb_kvs *kvs;
	struct kvdb_txn *txn;
	const void *key, *val;
	size_t klen, vlen;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	for (const char *k = "acdxz"; *k; k++)
		T_EQ(kvdb_put(kvs, k, 1, "old", 3), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_txn_begin(kh_db, 0, &txn), 0);
	T_EQ(kvdb_txn_put(txn, kvs, "b", 1, "new", 3), 0);
	T_EQ(kvdb_txn_put(txn, kvs, "d", 1, "new", 3), 0);
	T_EQ(kvdb_txn_del(txn, kvs, "x", 1), 0);
	T_EQ(kvdb_put(kvs, "c", 1, "later", 5), 0);
	o.from = "aa";
	o.flen = 2;
	o.to = "z";
	o.tlen = 1;
	T_EQ(kvdb_txn_cursor_open_opts(txn, kvs, &o, &cur), 0);
	for (unsigned i = 0; i < 8; i++) {
		int err = i < 4 ? kvdb_cursor_next(cur, &key, &klen, &val, &vlen) :
				  kvdb_cursor_prev(cur, &key, &klen, &val, &vlen);

		T_EQ(err, expect[i] ? 0 : -ENOENT);
		if (err)
			continue;
		T_OK(key_is(key, klen, expect[i]));
		T_OK(vlen == 3 && !memcmp(val, *expect[i] == 'c' ? "old" : "new", 3));
	}
	kvdb_cursor_close(cur);
	T_EQ(kvdb_txn_cursor_open_opts(txn, kvs, NULL, &cur), 0);
	T_EQ(kvdb_cursor_seek_after(cur, NULL, 0), 0);
	T_EQ(kvdb_cursor_prev(cur, &key, &klen, NULL, NULL), 0);
	T_OK(key_is(key, klen, "z"));
	T_EQ(kvdb_cursor_prev(cur, &key, &klen, NULL, NULL), 0);
	T_OK(key_is(key, klen, "d"));
	kvdb_cursor_close(cur);
	kvdb_txn_abort(txn);
	kh_model_end(&model);
}

static void bad_options_are_refused(void)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	static uint8_t big[KVDB_KEY_MAX + 1];
	struct kvdb_cursor *cur = NULL;
	struct kvdb_kvs *kvs;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	o.size = 8;
	T_EQ(kvdb_cursor_open_opts(kvs, &o, &cur), -EINVAL);
	/* what another version may mean by more is not passed over */
	o.size = sizeof(o) + 8;
	T_EQ(kvdb_cursor_open_opts(kvs, &o, &cur), -EINVAL);
	o.size = sizeof(o);
	o.pad = 1;
	T_EQ(kvdb_cursor_open_opts(kvs, &o, &cur), -EINVAL);
	o = (struct kvdb_cursor_opts)KVDB_CURSOR_OPTS_INIT;
	o.flags = 0x80;
	T_EQ(kvdb_cursor_open_opts(kvs, &o, &cur), -EINVAL);
	o.flags = 0;
	o.plen = 1;
	T_EQ(kvdb_cursor_open_opts(kvs, &o, &cur), -EINVAL);
	o.prefix = big;
	o.plen = sizeof(big);
	T_EQ(kvdb_cursor_open_opts(kvs, &o, &cur), -ENAMETOOLONG);
	o.plen = 0;
	o.to = big;
	o.tlen = sizeof(big);
	T_EQ(kvdb_cursor_open_opts(kvs, &o, &cur), -ENAMETOOLONG);
	T_OK(!cur);
	T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);	/* none of these holds the store */
	T_EQ(kvdb_kvs_create(kh_db, "s", NULL), 0);
	T_EQ(kvdb_cursor_open_opts(kh_kvs("s"), NULL, &cur), 0);
	T_EQ(kvdb_cursor_seek(cur, big, sizeof(big)), -ENAMETOOLONG);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), -ENOENT);
	kvdb_cursor_close(cur);
	kh_model_end(&model);
}

/* ---- walks beside writers, flushes and merges -------------------------------------------- */

#define WALKERS 3u

struct race {
	struct kvdb_kvs *kvs;
	pthread_mutex_t lock;	/* the model and the store change together */
	_Atomic(bool) stop;
	_Atomic(unsigned) bad, walks;
	uint64_t seed[WALKERS];
};

struct walker {
	struct race *race;
	unsigned no;
};

static void *walker_main(void *arg)
{
	struct walker *me = arg;
	struct race *r = me->race;
	uint64_t rnd = r->seed[me->no];
	bool ok = true;

	while (!atomic_load(&r->stop) && ok) {
		struct walk w;
		int err;

		pthread_mutex_lock(&r->lock);
		err = walk_open(&w, r->kvs, (unsigned)t_rand(&rnd) % COMBINATIONS, t_rand(&rnd));
		pthread_mutex_unlock(&r->lock);
		ok = !err && walk_some(&w, 100) && walk_all(&w) && walk_some(&w, 50);
		walk_close(&w);
		atomic_fetch_add(&r->walks, 1);
	}
	if (!ok)
		atomic_fetch_add(&r->bad, 1);
	return NULL;
}

static void *drainer_main(void *arg)
{
	struct race *r = arg;

	for (unsigned i = 0; !atomic_load(&r->stop); i++) {
		struct timespec ts = { .tv_nsec = 3000000 };

		if (kvdb_drain(kh_db, i % 4 == 3 ? KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT :
						   KVDB_WAIT_FLUSH))
			atomic_fetch_add(&r->bad, 1);
		nanosleep(&ts, NULL);
	}
	return NULL;
}

static void walks_race_with_writers_flushes_and_merges(void)
{
	unsigned rounds = getenv("TEST_SHORT") ? 60 : 250;
	struct race r = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct walker me[WALKERS];
	pthread_t thread[WALKERS], drainer;

	kh_model_begin(&model, POOL, 600);
	r.kvs = kh_kvs("s");
	kh_model_steps(&model, r.kvs, 500);
	for (unsigned i = 0; i < WALKERS; i++) {
		r.seed[i] = t_rand(&kh_rnd);
		me[i] = (struct walker){ &r, i };
		T_EQ(pthread_create(&thread[i], NULL, walker_main, &me[i]), 0);
	}
	T_EQ(pthread_create(&drainer, NULL, drainer_main, &r), 0);
	for (unsigned i = 0; (i < rounds || atomic_load(&r.walks) < 20) && !atomic_load(&r.bad);
	     i++) {
		struct timespec ts = { .tv_nsec = 500000 };

		pthread_mutex_lock(&r.lock);
		kh_model_steps(&model, r.kvs, 30);
		pthread_mutex_unlock(&r.lock);
		nanosleep(&ts, NULL);
	}
	atomic_store(&r.stop, true);
	for (unsigned i = 0; i < WALKERS; i++)
		pthread_join(thread[i], NULL);
	pthread_join(drainer, NULL);
	printf("# %u walks\n", atomic_load(&r.walks));
	T_EQ(atomic_load(&r.bad), 0);
	kh_model_end(&model);
}

int main(void)
{
	KH_RUN_MODES(every_combination_of_bounds_follows_the_model);
	KH_RUN_LARGE(snapshots_stay_under_walks_both_ways);
	KH_RUN_MODES(next_and_prev_mix);
	T_RUN(cursors_of_transactions_have_bounds_and_turn);
	T_RUN(bad_options_are_refused);
	KH_RUN_MODES(walks_race_with_writers_flushes_and_merges);
	th_clean();
	return t_done();
}
