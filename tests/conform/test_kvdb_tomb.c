/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Deletes by prefix and by range: what they hide and what they do not, from
 * gets and from cursors, through flush, compaction, close and death of the
 * process, and that their garbage gives its space back.
 */
#include "harness.h"

#include <errno.h>
#include <pthread.h>

#include "kvdb_help.h"

#define POOL	(256 * MIB)

static void end(void)
{
	kh_close();
	th_clean();
}

static struct kvdb_kvs *store(const char *name, uint32_t pfx_len)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;

	o.pfx_len = pfx_len;
	T_EQ(kvdb_kvs_create(kh_db, name, &o), 0);
	return kh_kvs(name);
}

static int prefix_del(struct kvdb_kvs *k, const char *p)
{
	return kvdb_prefix_del(k, p, strlen(p));
}

static int range_del(struct kvdb_kvs *k, const char *from, const char *to)
{
	return kvdb_range_del(k, from, strlen(from), to, strlen(to));
}

/* ---- what they mean ------------------------------------------------------------- */

static void a_prefix_hides_what_was_there_and_nothing_else(void)
{
	static const char *const in[] = { "aab", "aab1", "aabzzzz", "aab\xff" };
	static const char *const out[] = { "aa", "aaa", "aaazz", "aac", "b", "aa\xff" };
	struct kvdb_kvs *k;
	unsigned pfx, i;

	kh_fresh(POOL, 0);
	/* by hash, and as a range */
	for (pfx = 3; pfx <= 4; pfx++) {
		k = store(pfx == 3 ? "hash" : "range", pfx);
		for (i = 0; i < 4; i++)
			T_EQ(kh_put_str(k, in[i], "x"), 0);
		for (i = 0; i < 6; i++)
			T_EQ(kh_put_str(k, out[i], "y"), 0);
		T_EQ(prefix_del(k, "aab"), 0);
		for (i = 0; i < 4; i++)
			T_OK(kh_absent(k, in[i], strlen(in[i])));
		for (i = 0; i < 6; i++)
			T_OK(kh_holds_str(k, out[i], "y"));
		T_EQ(kh_count(k, 0), 6);
		T_EQ(kh_count(k, KVDB_REVERSE), 6);
		/* what comes afterwards is there */
		T_EQ(kh_put_str(k, "aab1", "new"), 0);
		T_OK(kh_holds_str(k, "aab1", "new"));
		T_EQ(kh_count(k, 0), 7);
	}
	end();
}

static void a_range_ends_before_its_end(void)
{
	struct kvdb_kvs *k;

	kh_fresh(POOL, 0);
	k = store("s", 0);
	T_EQ(kh_put_str(k, "a", "1"), 0);
	T_EQ(kh_put_str(k, "b", "2"), 0);
	T_EQ(kh_put_str(k, "c", "3"), 0);
	T_EQ(kh_put_str(k, "d", "4"), 0);
	T_EQ(range_del(k, "b", "d"), 0);
	T_OK(kh_holds_str(k, "a", "1"));
	T_OK(kh_absent(k, "b", 1));
	T_OK(kh_absent(k, "c", 1));
	T_OK(kh_holds_str(k, "d", "4"));
	/* in these lies nothing */
	T_EQ(range_del(k, "d", "d"), 0);
	T_EQ(range_del(k, "z", "a"), 0);
	T_OK(kh_holds_str(k, "a", "1"));
	T_OK(kh_holds_str(k, "d", "4"));
	T_EQ(kvdb_range_del(k, "b", 1, NULL, 0), 0);
	T_OK(kh_holds_str(k, "a", "1"));
	T_OK(kh_absent(k, "d", 1));
	T_EQ(kvdb_range_del(k, NULL, 0, "a", 1), 0);
	T_OK(kh_holds_str(k, "a", "1"));
	T_EQ(kvdb_range_del(k, NULL, 0, NULL, 0), 0);
	T_OK(kh_absent(k, "a", 1));
	T_EQ(kh_count(k, 0), 0);
	end();
}

static void arguments_are_checked(void)
{
	static char key[KVDB_KEY_MAX + 1];
	struct kvdb_kvs *k;

	kh_fresh(POOL, 0);
	k = store("s", 2);
	memset(key, 'k', sizeof(key));
	T_EQ(kvdb_prefix_del(k, NULL, 0), -EINVAL);
	T_EQ(kvdb_prefix_del(k, "a", 0), -EINVAL);
	T_EQ(kvdb_prefix_del(k, key, sizeof(key)), -ENAMETOOLONG);
	T_EQ(kvdb_range_del(k, key, sizeof(key), NULL, 0), -ENAMETOOLONG);
	T_EQ(kvdb_range_del(k, NULL, 0, key, sizeof(key)), -ENAMETOOLONG);
	T_EQ(kvdb_range_del(k, NULL, 1, NULL, 0), -EINVAL);
	T_EQ(kvdb_range_del(k, key, KVDB_KEY_MAX, NULL, 0), 0);
	T_EQ(kvdb_prefix_del(k, key, KVDB_KEY_MAX), 0);
	end();
}

/* A prefix of 0xff bytes has nothing behind it. */
static void the_greatest_prefix_has_no_end(void)
{
	struct kvdb_kvs *k;

	kh_fresh(POOL, 0);
	k = store("s", 0);
	T_EQ(kh_put_str(k, "\xff\xfe", "1"), 0);
	T_EQ(kh_put_str(k, "\xff\xff", "2"), 0);
	T_EQ(kh_put_str(k, "\xff\xff\xff", "3"), 0);
	T_EQ(prefix_del(k, "\xff\xff"), 0);
	T_OK(kh_holds_str(k, "\xff\xfe", "1"));
	T_OK(kh_absent(k, "\xff\xff", 2));
	T_OK(kh_absent(k, "\xff\xff\xff", 3));
	end();
}

static void a_cursor_sees_what_its_birth_saw(void)
{
	struct kvdb_cursor *old, *now;
	const void *key;
	size_t klen;
	struct kvdb_kvs *k;
	unsigned n = 0;

	kh_fresh(POOL, 0);
	k = store("s", 1);
	T_EQ(kh_put_str(k, "a1", "1"), 0);
	T_EQ(kh_put_str(k, "a2", "2"), 0);
	T_EQ(kh_put_str(k, "b1", "3"), 0);
	T_EQ(kvdb_cursor_open(k, 0, NULL, 0, &old), 0);
	T_EQ(prefix_del(k, "a"), 0);
	T_EQ(kh_put_str(k, "a2", "later"), 0);
	T_EQ(kvdb_cursor_open(k, 0, NULL, 0, &now), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	while (!kvdb_cursor_next(old, NULL, NULL, NULL, NULL))
		n++;
	T_EQ(n, 3);
	T_EQ(kvdb_cursor_next(now, &key, &klen, NULL, NULL), 0);
	T_EQ(klen, 2);
	T_EQ(memcmp(key, "a2", 2), 0);
	T_EQ(kvdb_cursor_next(now, &key, &klen, NULL, NULL), 0);
	T_EQ(memcmp(key, "b1", 2), 0);
	T_EQ(kvdb_cursor_next(now, &key, &klen, NULL, NULL), -ENOENT);
	kvdb_cursor_close(old);
	kvdb_cursor_close(now);
	end();
}

/* ---- against the model -------------------------------------------------------------- */

static int has_prefix(const struct kh_key *k, const uint8_t *p, size_t plen)
{
	return k->klen >= plen && !memcmp(k->key, p, plen);
}

/* A prefix of some key, or a range between two, deleted in store and model. */
static void many_step(struct kh_model *m, struct kvdb_kvs *kvs)
{
	unsigned a = t_rand(&kh_rnd) % m->n, b = t_rand(&kh_rnd) % m->n, i;
	const struct kh_key *x = &m->key[a], *y = &m->key[b];
	size_t plen = 1 + t_rand(&kh_rnd) % x->klen;

	switch (t_rand(&kh_rnd) % 4) {
	case 0:
		if (x->klen >= 8 && t_rand(&kh_rnd) % 2)
			plen = 8;	/* of the store */
		if (plen < 6 && !memcmp(x->key, "user", plen < 4 ? plen : 4))
			plen = 6;	/* not nearly everything */
		plen = plen > x->klen ? x->klen : plen;
		T_EQ(kvdb_prefix_del(kvs, x->key, plen), 0);
		for (i = 0; i < m->n; i++)
			if (has_prefix(&m->key[i], x->key, plen))
				m->val[i].is_live = 0;
		break;
	case 1:		/* far ends are rare */
		if (t_rand(&kh_rnd) % 16)
			return;
		T_EQ(kvdb_range_del(kvs, a & 1 ? NULL : x->key, a & 1 ? 0 : x->klen,
				    a & 1 ? x->key : NULL, a & 1 ? x->klen : 0), 0);
		for (i = 0; i < m->n; i++)
			if (a & 1 ? i < a : i >= a)
				m->val[i].is_live = 0;
		break;
	default:
		b = a + t_rand(&kh_rnd) % 12;
		b = b < m->n ? b : m->n - 1;
		y = &m->key[b];
		T_EQ(kvdb_range_del(kvs, x->key, x->klen, y->key, y->klen), 0);
		for (i = a; i < b; i++)
			m->val[i].is_live = 0;
	}
}

/* The cursor shows exactly what lives, in order. */
static void scan_check(const struct kh_model *m, struct kvdb_kvs *kvs, unsigned flags)
{
	struct kvdb_cursor *cur;
	const void *key;
	unsigned i, at;
	size_t klen;

	T_EQ(kvdb_cursor_open(kvs, flags, NULL, 0, &cur), 0);
	for (i = 0; i < m->n; i++) {
		at = flags & KVDB_REVERSE ? m->n - 1 - i : i;
		if (!m->val[at].is_live)
			continue;
		T_EQ(kvdb_cursor_next(cur, &key, &klen, NULL, NULL), 0);
		T_EQ(kh_cmp(key, klen, m->key[at].key, m->key[at].klen), 0);
	}
	T_EQ(kvdb_cursor_next(cur, &key, &klen, NULL, NULL), -ENOENT);
	kvdb_cursor_close(cur);
}

static struct kh_model model;

static void steps(struct kvdb_kvs *k, unsigned n)
{
	while (n--) {
		kh_model_step(&model, k);
		if (t_rand(&kh_rnd) % 10 == 0)
			many_step(&model, k);
	}
}

static void check(struct kvdb_kvs *k)
{
	kh_model_check(&model, k);
	scan_check(&model, k, 0);
	scan_check(&model, k, KVDB_REVERSE);
}

static void random_deletes_equal_the_model(void)
{
	unsigned round, rounds = getenv("TEST_SHORT") ? 4 : 12;
	struct kvdb_kvs *k;

	kh_fresh(POOL, 0);
	k = store("s", 8);
	kh_model_make(&model, 600);
	for (round = 0; round < rounds; round++) {
		steps(k, 700);
		check(k);
		switch (round % 4) {
		case 0:
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
			break;
		case 1:
			kh_close();
			kh_open();
			k = kh_kvs("s");
			break;
		case 2:
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
			steps(k, 300);
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
			break;
		default:
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		}
		check(k);
	}
	kh_model_free(&model);
	end();
}

static void die_after_deletes(void)
{
	struct kvdb_kvs *k = store("s", 8);

	steps(k, 1500);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	steps(k, 1500);
	T_EQ(kvdb_sync(kh_db), 0);
}

/* The child's random numbers are drawn once more here, on another store, for the model. */
static void deletes_outlive_the_process(void)
{
	struct kvdb_kvs *k;

	kh_make(POOL, 0);
	kh_model_make(&model, 600);
	kh_die_in(die_after_deletes);
	kh_open();
	steps(store("side", 8), 3000);
	k = kh_kvs("s");
	check(k);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	check(k);
	kh_model_free(&model);
	end();
}

/* Many tombstones: the index of the memtable, those of runs, the blocks that hold them. */
static void thousands_of_deletes_are_searched(void)
{
	unsigned n = getenv("TEST_SHORT") ? 3000 : 21000, i, round;
	struct kvdb_kvs_info in;
	char key[32], to[32];
	struct kvdb_kvs *k;

	kh_fresh(POOL, 0);
	k = store("s", 6);
	for (i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%06u:a", i);
		T_EQ(kh_put_str(k, key, "v"), 0);
	}
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	for (i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%06u", i);
		if (i % 3 == 0)
			T_EQ(prefix_del(k, key), 0);
		snprintf(to, sizeof(to), "%06u:b", i);
		if (i % 3 == 1)
			T_EQ(range_del(k, key, to), 0);
	}
	for (round = 0; round < 4; round++) {
		T_EQ(kh_count(k, 0), n / 3);
		for (i = 0; i < n; i++) {
			snprintf(key, sizeof(key), "%06u:a", i);
			T_OK(i % 3 == 2 ? kh_holds_str(k, key, "v") : kh_absent(k, key, 8));
		}
		if (round == 0)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (round == 1) {
			kh_close();
			T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
			kh_open();
			k = kh_kvs("s");
		}
		if (round == 2)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_COMPACT), 0);
	}
	T_EQ(kvdb_kvs_info(k, &in), 0);
	T_EQ(in.runs, 1);
	T_EQ(in.keys_estimate, n / 3);
	T_EQ(in.range_tombs, 0);
	end();
}

/* ---- space --------------------------------------------------------------------------------- */

static uint64_t used(void)
{
	struct kvdb_info in;

	T_EQ(kvdb_info(kh_db, &in), 0);
	return in.pool.cls[MPOOL_CAPACITY].used;
}

static void everything_deleted_gives_its_space_back(void)
{
	struct kvdb_opts o = kh_opts();
	uint64_t before, full;
	struct kvdb_kvs_info in;
	struct kvdb_kvs *k;
	char key[32];
	unsigned i, way;

	/* logs hold some in stock */
	o.segment_bytes = 128u << 10;
	for (way = 0; way < 3; way++) {
		kh_make(POOL, 0);
		th_again();
		T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
		k = store("s", 4);
		before = used();
		for (i = 0; i < 20000; i++) {
			snprintf(key, sizeof(key), "pfx/%08u", i);
			T_EQ(kh_put(k, key, strlen(key), i, 2000), 0);
			if (way == 2 && i % 5000 == 0)
				T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		}
		if (way)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		full = used();
		T_OK(full > before + 30 * MIB);
		if (way == 2)
			T_EQ(kvdb_range_del(k, "pfx", 3, "pfy", 3), 0);
		else
			T_EQ(prefix_del(k, "pfx/"), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		T_EQ(kvdb_kvs_info(k, &in), 0);
		T_EQ(in.keys_estimate, 0);
		T_EQ(in.runs, 0);
		/* but for segments that the logs hold in stock */
		T_OK(used() < before + (full - before) / 4);
		T_EQ(kh_count(k, 0), 0);
		end();
	}
}

/* ---- threads --------------------------------------------------------------------------------- */

static struct kvdb_kvs *thr_kvs;
static _Atomic(int) thr_stop;
static _Atomic(unsigned) thr_bad;

/* A thread that puts a key after its own delete finds it. */
static void *own_prefix(void *arg)
{
	char pfx[8], key[16];
	unsigned i;

	snprintf(pfx, sizeof(pfx), "t%02u/", (unsigned)(uintptr_t)arg);
	for (i = 0; !thr_stop; i++) {
		snprintf(key, sizeof(key), "%s%u", pfx, i % 7);
		if (kvdb_put(thr_kvs, key, strlen(key), "1", 1) ||
		    kvdb_get(thr_kvs, key, strlen(key), NULL, 0, &(size_t){ 0 }))
			thr_bad++;
		if (i % 2 ? prefix_del(thr_kvs, pfx) : kvdb_range_del(thr_kvs, pfx, 4, key, 16))
			thr_bad++;
		if (i % 2 &&
		    kvdb_get(thr_kvs, key, strlen(key), NULL, 0, &(size_t){ 0 }) != -ENOENT)
			thr_bad++;
	}
	return NULL;
}

static void threads_see_their_own_deletes(void)
{
	struct timespec ts = { .tv_nsec = 50000000 };
	pthread_t t[6];
	unsigned i;

	kh_fresh(POOL, 0);
	thr_kvs = store("s", 4);
	thr_stop = 0;
	thr_bad = 0;
	for (i = 0; i < 6; i++)
		T_EQ(pthread_create(&t[i], NULL, own_prefix, (void *)(uintptr_t)i), 0);
	for (i = 0; i < (getenv("TEST_SHORT") ? 10u : 40u); i++) {
		nanosleep(&ts, NULL);
		T_EQ(kvdb_drain(kh_db, i % 4 ? KVDB_WAIT_FLUSH :
				KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	}
	thr_stop = 1;
	for (i = 0; i < 6; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	T_EQ(thr_bad, 0);
	end();
}

/* The second one does not get it; what the delete covers stays deleted. */
static void a_transaction_and_a_range_delete_exclude_each_other(void)
{
	struct kvdb_kvs *k;
	struct kvdb_txn *t;
	unsigned place;
	size_t len;

	kh_mode = &kh_modes[4];		/* manual: no put waits */
	kh_fresh(POOL, 0);
	k = store("s", 1);
	T_EQ(kh_put_str(k, "a1", "1"), 0);
	/* the transaction owns a key */
	T_EQ(kvdb_txn_begin(kh_db, 0, &t), 0);
	T_EQ(kvdb_txn_put(t, k, "a2", 2, "2", 1), 0);
	T_EQ(prefix_del(k, "a"), -ECANCELED);
	T_EQ(range_del(k, "a", "b"), -ECANCELED);
	T_OK(kh_holds_str(k, "a1", "1"));
	T_EQ(prefix_del(k, "b"), 0);
	T_EQ(range_del(k, "a", "a2"), 0);
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	T_OK(kh_absent(k, "a1", 2));
	T_OK(kh_holds_str(k, "a2", "2"));
	for (place = 0; place < 3; place++) {
		T_EQ(kh_put_str(k, "a1", "1"), 0);
		T_EQ(kvdb_txn_begin(kh_db, 0, &t), 0);
		T_EQ(place % 2 ? range_del(k, "a", "b") : prefix_del(k, "a"), 0);
		/* also when there is nothing left for it to hide */
		if (place)
			T_EQ(kvdb_drain(kh_db, place == 1 ? KVDB_WAIT_FLUSH :
					KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		/* its view is older */
		T_EQ(kvdb_txn_get(t, k, "a1", 2, kh_buf, sizeof(kh_buf), &len), 0);
		T_EQ(kvdb_txn_put(t, k, "a7", 2, "2", 1), -ECANCELED);
		kvdb_txn_abort(t);
		T_OK(kh_absent(k, "a1", 2));
		T_OK(kh_absent(k, "a7", 2));
	}
	end();
	kh_mode = &kh_modes[0];
}

static void many_keys_and_pinned_ones_are_hidden_too(void)
{
	struct kvdb_get g[2] = { { .key = "a", .klen = 1 }, { .key = "b", .klen = 1 } };
	struct kvdb_pin pin;
	struct kvdb_kvs *k;
	unsigned round;

	kh_fresh(POOL, 0);
	k = store("s", 0);
	T_EQ(kh_put_str(k, "a", "1"), 0);
	T_EQ(kh_put_str(k, "b", "2"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	T_EQ(range_del(k, "a", "b"), 0);
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

int main(void)
{
	T_RUN(a_prefix_hides_what_was_there_and_nothing_else);
	T_RUN(a_range_ends_before_its_end);
	T_RUN(arguments_are_checked);
	T_RUN(the_greatest_prefix_has_no_end);
	T_RUN(a_cursor_sees_what_its_birth_saw);
	T_RUN(many_keys_and_pinned_ones_are_hidden_too);
	KH_RUN_MODES(random_deletes_equal_the_model);
	T_RUN(deletes_outlive_the_process);
	T_RUN(thousands_of_deletes_are_searched);
	T_RUN(everything_deleted_gives_its_space_back);
	T_RUN(threads_see_their_own_deletes);
	T_RUN(a_transaction_and_a_range_delete_exclude_each_other);
	return t_done();
}
