/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Cursors against a sorted model: both directions, prefixes, seeks to present
 * and absent keys, keys only; snapshots that stay while the store changes,
 * flushes, merges and grows beneath them; views that are never torn.
 */
#include <pthread.h>

#include "kvdb_help.h"

#define POOL (256 * MIB)

static struct kh_model model;

/* ---- one cursor and what it must show -------------------------------------------------- */

struct view {
	struct kvdb_cursor *cur;
	struct kh_val *val;	/* of the model when the cursor was opened */
	uint8_t prefix[KVDB_KEY_MAX];
	size_t plen;
	uint8_t from[KVDB_KEY_MAX], to[KVDB_KEY_MAX];
	size_t flen, tlen;
	unsigned flags;
	int pos;		/* index of the next key in its direction; may be -1 or n */
	int came;		/* the same before the step that found no more */
};

static int shows(const struct view *v, int i)
{
	const struct kh_key *k = &model.key[i];

	int behind = v->tlen ? kh_cmp(k->key, k->klen, v->to, v->tlen) : -1;

	return v->val[i].is_live && k->klen >= v->plen && !memcmp(k->key, v->prefix, v->plen) &&
	       (!v->flen || kh_cmp(k->key, k->klen, v->from, v->flen) >= 0) &&
	       (behind < 0 || (!behind && v->flags & KVDB_TO_INCLUSIVE));
}

/* A bound at a key of the model or beside one; 0: none. */
static size_t random_bound(uint8_t *out)
{
	const struct kh_key *k = &model.key[t_rand(&kh_rnd) % model.n];
	uint64_t x = t_rand(&kh_rnd);

	if (x % 3 == 0)
		return 0;
	memcpy(out, k->key, k->klen);
	if (x % 3 == 1)
		out[k->klen - 1] = (uint8_t)(out[k->klen - 1] + (x >> 8) % 3);
	return k->klen;
}

static void view_open(struct view *v, struct kvdb_kvs *kvs)
{
	const struct kh_key *k = &model.key[t_rand(&kh_rnd) % model.n];
	uint64_t x = t_rand(&kh_rnd);

	v->flags = (x & 1 ? KVDB_REVERSE : 0) | (x & 2 ? KVDB_KEYS_ONLY : 0);
	v->plen = 0;
	if ((x >> 2) % 4 == 1) {
		v->plen = 1 + (x >> 8) % k->klen;
		memcpy(v->prefix, k->key, v->plen);
	} else if ((x >> 2) % 4 == 2) {
		v->plen = 1 + (x >> 8) % 3;
		memset(v->prefix, x & 16 ? 0xff : 0, v->plen);
	} else if ((x >> 2) % 4 == 3) {
		v->plen = 3;
		memcpy(v->prefix, "use", 3);
	}
	v->flen = v->tlen = 0;
	v->val = malloc(model.n * sizeof(*v->val));
	memcpy(v->val, model.val, model.n * sizeof(*v->val));
	v->pos = v->came = v->flags & KVDB_REVERSE ? (int)model.n - 1 : 0;
	T_EQ(kvdb_cursor_open(kvs, v->flags, v->plen ? v->prefix : NULL, v->plen, &v->cur), 0);
}

/* A new snapshot, at the same place or of other keys. */
static void view_renew(struct view *v)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	uint64_t x = t_rand(&kh_rnd);

	memcpy(v->val, model.val, model.n * sizeof(*v->val));
	if (x & 1) {
		if (v->pos < 0 || v->pos >= (int)model.n)
			v->pos = v->came;
		T_EQ(kvdb_cursor_renew(v->cur, NULL), 0);
		return;
	}
	v->flags = (unsigned)(x >> 1) & (KVDB_REVERSE | KVDB_KEYS_ONLY | KVDB_TO_INCLUSIVE);
	v->flen = random_bound(v->from);
	v->tlen = random_bound(v->to);
	v->plen = (x >> 8) % 4;
	if (v->plen)
		memcpy(v->prefix, "use", v->plen);
	v->pos = v->came = v->flags & KVDB_REVERSE ? (int)model.n - 1 : 0;
	o.flags = v->flags;
	o.prefix = v->prefix;
	o.plen = v->plen;
	o.from = v->from;
	o.flen = v->flen;
	o.to = v->to;
	o.tlen = v->tlen;
	T_EQ(kvdb_cursor_renew(v->cur, &o), 0);
}

static void view_close(struct view *v)
{
	kvdb_cursor_close(v->cur);
	free(v->val);
}

/* One step; 0 at the end. */
static int view_next(struct view *v)
{
	int step = v->flags & KVDB_REVERSE ? -1 : 1, err;
	const void *key = NULL, *val = NULL;
	size_t klen = 0, vlen = 0;

	while (v->pos >= 0 && v->pos < (int)model.n && !shows(v, v->pos))
		v->pos += step;
	err = kvdb_cursor_next(v->cur, &key, &klen, &val, &vlen);
	if (v->pos < 0 || v->pos >= (int)model.n) {
		T_EQ(err, -ENOENT);
		return 0;
	}
	T_EQ(err, 0);
	T_EQ(klen, model.key[v->pos].klen);
	T_MEMEQ(key, model.key[v->pos].key, klen);
	T_EQ(vlen, v->val[v->pos].vlen);
	if (!(v->flags & KVDB_KEYS_ONLY))
		T_MEMEQ(val, kh_value(v->val[v->pos].seed, vlen), vlen);
	v->pos += step;
	v->came = v->pos;
	return 1;
}

static void view_seek(struct view *v)
{
	uint8_t key[KVDB_KEY_MAX];
	unsigned lo = 0, hi = model.n;
	size_t klen;

	if (t_rand(&kh_rnd) % 2) {
		const struct kh_key *k = &model.key[t_rand(&kh_rnd) % model.n];

		klen = k->klen;
		memcpy(key, k->key, klen);
		if (t_rand(&kh_rnd) % 2)	/* a neighbour of it */
			key[klen - 1] = (uint8_t)(key[klen - 1] + 1);
	} else {
		klen = kh_random_key(key);
	}
	T_EQ(kvdb_cursor_seek(v->cur, key, klen), 0);
	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;
		int c = kh_cmp(model.key[mid].key, model.key[mid].klen, key, klen);

		if (c < 0 || (!c && v->flags & KVDB_REVERSE))
			lo = mid + 1;
		else
			hi = mid;
	}
	v->pos = v->came = v->flags & KVDB_REVERSE ? (int)lo - 1 : (int)lo;
}

static void view_walk(struct view *v, unsigned seeks)
{
	int n;

	while (seeks--) {
		view_seek(v);
		for (n = (int)(t_rand(&kh_rnd) % 8); n > 0 && view_next(v); n--)
			;
	}
}

/* From before the first to behind the last. */
static void view_all(struct view *v)
{
	struct kvdb_cursor *none = NULL;

	kvdb_cursor_close(none);
	while (view_next(v))
		;
	T_EQ(view_next(v), 0);	/* the end stays */
	view_walk(v, 3);	/* and can be left */
}

/* ---- behaviours ---------------------------------------------------------------------------- */

static void random_walks_follow_the_model(void)
{
	struct kvdb_kvs *kvs;
	struct view v;
	unsigned i, j;

	kh_model_begin(&model, POOL, 500);
	kvs = kh_kvs("s");
	for (i = 0; i < 10; i++) {
		kh_model_steps(&model, kvs, 150);
		if (i % 2)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (i == 8)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_COMPACT), 0);
		for (j = 0; j < 12; j++) {
			view_open(&v, kvs);
			view_all(&v);
			view_walk(&v, 10);
			view_close(&v);
		}
	}
	kh_model_end(&model);
}

static void renewed_cursors_follow_the_model(void)
{
	struct view v[3];
	struct kvdb_kvs *kvs;
	unsigned i, j, n;

	kh_model_begin(&model, POOL, 300);
	kvs = kh_kvs("s");
	for (j = 0; j < 3; j++)
		view_open(&v[j], kvs);
	for (i = 0; i < 60; i++) {
		kh_model_steps(&model, kvs, 40);
		if (i % 7 == 3)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		for (j = 0; j < 3; j++) {
			for (n = (unsigned)(t_rand(&kh_rnd) % 30); n && view_next(&v[j]); n--)
				;
			view_renew(&v[j]);
			for (n = (unsigned)(t_rand(&kh_rnd) % 30); n && view_next(&v[j]); n--)
				;
			if (t_rand(&kh_rnd) % 4 == 0)
				view_walk(&v[j], 2);
		}
	}
	for (j = 0; j < 3; j++)
		view_close(&v[j]);
	kh_model_end(&model);
}

/* Shows exactly these keys of one byte. */
static void shows_keys(struct kvdb_cursor *cur, const char *want)
{
	const void *key;
	size_t klen;

	for (; *want; want++) {
		T_EQ(kvdb_cursor_next(cur, &key, &klen, NULL, NULL), 0);
		T_EQ(klen, 1);
		T_MEMEQ(key, want, 1);
	}
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), -ENOENT);
}

/* A consumer that has read a queue to its end goes on with what comes. */
static void a_renewed_cursor_goes_on_behind_what_it_showed(void)
{
	struct kvdb_cursor *up, *down;
	struct kvdb_kvs *kvs;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &up), 0);
	T_EQ(kvdb_cursor_open(kvs, KVDB_REVERSE, NULL, 0, &down), 0);
	shows_keys(up, "");
	shows_keys(down, "");
	T_EQ(kh_put_str(kvs, "m", "1"), 0);
	shows_keys(up, "");
	T_EQ(kvdb_cursor_renew(up, NULL), 0);
	T_EQ(kvdb_cursor_renew(down, NULL), 0);
	shows_keys(up, "m");
	shows_keys(down, "m");
	/* it is the place that counts, not whether its key is there still */
	T_EQ(kvdb_del(kvs, "m", 1), 0);
	T_EQ(kh_put_str(kvs, "l", "1"), 0);
	T_EQ(kh_put_str(kvs, "n", "1"), 0);
	T_EQ(kvdb_cursor_renew(up, NULL), 0);
	T_EQ(kvdb_cursor_renew(down, NULL), 0);
	shows_keys(up, "n");
	shows_keys(down, "l");
	T_EQ(kvdb_cursor_prev(up, NULL, NULL, NULL, NULL), 0);
	kvdb_cursor_close(up);
	kvdb_cursor_close(down);
	kh_model_end(&model);
}

static void an_inclusive_bound_shows_its_key(void)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	static uint8_t longest[KVDB_KEY_MAX], last[KVDB_KEY_MAX];
	struct kvdb_cursor *cur;
	struct kvdb_kvs *kvs;
	unsigned i;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	memset(longest, 'q', sizeof(longest));
	memset(last, 0xff, sizeof(last));
	T_EQ(kvdb_put(kvs, longest, sizeof(longest), "v", 1), 0);
	T_EQ(kvdb_put(kvs, last, sizeof(last), "v", 1), 0);
	for (i = 'a'; i <= 'e'; i++)
		T_EQ(kvdb_put(kvs, &(char){ (char)i }, 1, "v", 1), 0);
	T_EQ(kvdb_put(kvs, "c\0", 2, "v", 1), 0);
	o.flags = KVDB_TO_INCLUSIVE;
	o.from = "b";
	o.flen = 1;
	o.to = "c";
	o.tlen = 1;
	T_EQ(kvdb_cursor_open_opts(kvs, &o, &cur), 0);
	shows_keys(cur, "bc");
	o.flags |= KVDB_REVERSE;
	T_EQ(kvdb_cursor_renew(cur, &o), 0);
	shows_keys(cur, "cb");
	/* of a prefix and a bound the nearer one counts */
	o.flen = 0;
	o.flags = KVDB_TO_INCLUSIVE;
	o.prefix = "c";
	o.plen = 1;
	T_EQ(kvdb_cursor_renew(cur, &o), 0);
	shows_keys(cur, "c");
	o.plen = 0;
	o.from = "f";
	o.flen = 1;
	o.to = longest;
	o.tlen = sizeof(longest);
	T_EQ(kvdb_cursor_renew(cur, &o), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), -ENOENT);
	o.to = last;
	o.flags = KVDB_TO_INCLUSIVE | KVDB_REVERSE;
	T_EQ(kvdb_cursor_renew(cur, &o), 0);
	for (i = 0; i < 2; i++)
		T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), -ENOENT);
	kvdb_cursor_close(cur);
	kh_model_end(&model);
}

#define VIEWS 12

static void snapshots_stay(void)
{
	struct view v[VIEWS];
	struct kvdb_kvs *kvs;
	unsigned i, j;

	kh_model_begin(&model, POOL, 400);
	kvs = kh_kvs("s");
	for (i = 0; i < VIEWS; i++) {
		kh_model_steps(&model, kvs, 100);
		view_open(&v[i], kvs);
		if (i % 3 == 0)	/* in the middle of a walk */
			view_next(&v[i]);
		kh_model_steps(&model, kvs, 100);
		if (i % 2)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (i % 5 == 4)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		for (j = 0; j <= i; j++)
			view_walk(&v[j], 2);
	}
	for (i = 0; i < model.n; i++)
		T_EQ(kvdb_del(kvs, model.key[i].key, model.key[i].klen), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	for (i = 0; i < VIEWS; i++) {
		view_walk(&v[i], 5);
		T_EQ(kvdb_cursor_seek(v[i].cur, v[i].flags & KVDB_REVERSE ? "\xff\xff\xff\xff"
				      "\xff\xff\xff\xff" : "\0", v[i].flags & KVDB_REVERSE ? 8 : 1),
		     0);
		view_close(&v[i]);
	}
	memset(model.val, 0, model.n * sizeof(*model.val));
	view_open(&v[0], kvs);
	view_all(&v[0]);
	view_close(&v[0]);
	kh_model_end(&model);
}

static void an_empty_store_has_nothing(void)
{
	struct kvdb_cursor *cur;
	struct kvdb_kvs *kvs;
	unsigned flags, round;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	T_EQ(kh_put_str(kh_kvs("other"), "a", "b"), 0);
	for (round = 0; round < 3; round++) {
		for (flags = 0; flags < 4; flags++) {
			T_EQ(kvdb_cursor_open(kvs, flags, NULL, 0, &cur), 0);
			T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), -ENOENT);
			T_EQ(kvdb_cursor_seek(cur, "k", 1), 0);
			T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), -ENOENT);
			kvdb_cursor_close(cur);
		}
		/* then it holds only deleted keys, in memory and in runs */
		T_EQ(kh_put_str(kvs, "k", "v"), 0);
		if (round == 1)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		T_EQ(kvdb_del(kvs, "k", 1), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	}
	kh_model_end(&model);
}

static void cursors_work_after_reopening(void)
{
	struct kvdb_kvs *kvs;
	struct view v;
	unsigned i;

	kh_model_begin(&model, POOL, 300);
	kh_model_steps(&model, kh_kvs("s"), 600);
	kh_close();
	kh_open();
	kvs = kh_kvs("s");
	kh_model_steps(&model, kvs, 50);
	for (i = 0; i < 8; i++) {
		view_open(&v, kvs);
		view_all(&v);
		view_close(&v);
	}
	kh_close();
	T_EQ(kh_open_with(KVDB_RDONLY), 0);
	for (i = 0; i < 8; i++) {
		view_open(&v, kh_kvs("s"));
		view_all(&v);
		view_close(&v);
	}
	kh_model_end(&model);
}

/* ---- writers beside cursors ---------------------------------------------------------------- */

struct pair_writer {
	struct kvdb_kvs *kvs;
	int stop, err;
	unsigned rounds;
};

/* "a" first, then "z": no view may show z without the a of its round. */
static void *pair_main(void *arg)
{
	struct pair_writer *w = arg;
	uint32_t i;
	int err = 0;

	for (i = 1; !__atomic_load_n(&w->stop, __ATOMIC_RELAXED) && !err; i++) {
		uint8_t val[300] = "";

		memcpy(val, &i, 4);
		err = kvdb_put(w->kvs, "a", 1, val, i % 2 ? 4 : 300);
		if (!err)
			err = kvdb_put(w->kvs, "z", 1, val, i % 3 ? 4 : 200);
		__atomic_store_n(&w->err, err, __ATOMIC_RELAXED);
		__atomic_store_n(&w->rounds, i, __ATOMIC_RELAXED);
	}
	return NULL;
}

static uint32_t first_number(struct kvdb_kvs *kvs, unsigned flags, uint32_t *other)
{
	uint32_t n[2] = { 0, 0 };
	struct kvdb_cursor *cur;
	const void *val;
	size_t vlen;
	int i;

	T_EQ(kvdb_cursor_open(kvs, flags, NULL, 0, &cur), 0);
	for (i = 0; i < 2 && !kvdb_cursor_next(cur, NULL, NULL, &val, &vlen); i++)
		memcpy(&n[i], val, 4);
	kvdb_cursor_close(cur);
	*other = n[1];
	return n[0];
}

static void a_view_is_one_moment(void)
{
	struct pair_writer w = { 0 };
	pthread_t thread;
	unsigned i;
	int bad = 0;

	kh_fresh(POOL, 0);
	w.kvs = kh_kvs("s");
	T_EQ(kh_put_str(w.kvs, "a", "\0\0\0\0"), 0);
	T_EQ(kvdb_put(w.kvs, "a", 1, "\0\0\0\0", 4), 0);
	T_EQ(kvdb_put(w.kvs, "z", 1, "\0\0\0\0", 4), 0);
	T_EQ(pthread_create(&thread, NULL, pair_main, &w), 0);
	/* the writer may come late, and may fail */
	for (i = 0; !bad && !__atomic_load_n(&w.err, __ATOMIC_RELAXED) &&
	     (i < 600 || __atomic_load_n(&w.rounds, __ATOMIC_RELAXED) < 50); i++) {
		uint32_t a, z;

		if (i % 2)
			a = first_number(w.kvs, 0, &z);
		else
			z = first_number(w.kvs, KVDB_REVERSE, &a);
		bad = a < z || a > z + 1;
		if (bad)
			printf("# a view with a of round %u and z of round %u\n", a, z);
		if (i % 150 == 100)
			bad |= kvdb_drain(kh_db, KVDB_WAIT_FLUSH) != 0;
	}
	__atomic_store_n(&w.stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	T_OK(!bad);
	T_EQ(w.err, 0);
	kh_model_end(&model);
}

int main(void)
{
	KH_RUN_MODES(random_walks_follow_the_model);
	KH_RUN_MODES(renewed_cursors_follow_the_model);
	T_RUN(a_renewed_cursor_goes_on_behind_what_it_showed);
	T_RUN(an_inclusive_bound_shows_its_key);
	KH_RUN_LARGE(snapshots_stay);
	KH_RUN_MODES(an_empty_store_has_nothing);
	KH_RUN_MODES(cursors_work_after_reopening);
	KH_RUN_MODES(a_view_is_one_moment);
	th_clean();
	return t_done();
}
