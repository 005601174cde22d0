/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Probes for a prefix: none, one or several keys, and the first of them, against a sorted model
 * and against a cursor; in a transaction; behind what was deleted.
 */
#include "kvdb_help.h"

#define POOL (256 * MIB)

static struct kh_model model;

static int has_prefix(const struct kh_key *k, const void *prefix, size_t plen)
{
	return k->klen >= plen && !memcmp(k->key, prefix, plen);
}

static void same(const void *got, size_t room, const void *want, size_t len)
{
	size_t n = room < len ? room : len;

	T_MEMEQ(got, want, n);
}

/* A prefix of a key of the model, or beside one; room for none, some or all of the first pair. */
static void probe_once(struct kvdb_kvs *kvs, struct kvdb_txn *txn)
{
	static uint8_t key[KVDB_KEY_MAX], val[100000], prefix[KVDB_KEY_MAX];
	const struct kh_key *k = &model.key[t_rand(&kh_rnd) % model.n];
	uint64_t x = t_rand(&kh_rnd);
	struct kvdb_probe p = { .key = key, .val = val };
	unsigned i, n = 0, first = 0;
	size_t plen = x % 5 ? (x >> 8) % (k->klen + 1u) : x & 32 ? 0 : k->klen;

	memcpy(prefix, k->key, plen);
	if (plen && x % 7 == 0)
		prefix[plen - 1] = (uint8_t)(prefix[plen - 1] + 1);
	p.key_size = x & 64 ? sizeof(key) : (x >> 32) % 24;
	p.val_size = x & 128 ? sizeof(val) : (x >> 40) % 200;
	for (i = 0; i < model.n; i++) {
		if (!model.val[i].is_live || !has_prefix(&model.key[i], prefix, plen))
			continue;
		if (!n++)
			first = i;
	}
	if (txn)
		T_EQ(kvdb_txn_prefix_probe(txn, kvs, prefix, plen, &p), 0);
	else
		T_EQ(kvdb_prefix_probe(kvs, prefix, plen, &p), 0);
	T_EQ(p.found, n < 2 ? n : KVDB_FOUND_SEVERAL);
	T_EQ(p.klen, n ? model.key[first].klen : 0);
	T_EQ(p.vlen, n ? model.val[first].vlen : 0);
	if (!n)
		return;
	same(key, p.key_size, model.key[first].key, p.klen);
	same(val, p.val_size, kh_value(model.val[first].seed, p.vlen), p.vlen);
}

static void random_probes_follow_the_model(void)
{
	struct kvdb_kvs *kvs;
	unsigned i, j;

	kh_model_begin(&model, POOL, 400);
	kvs = kh_kvs("s");
	for (i = 0; i < 12; i++) {
		probe_once(kvs, NULL);
		kh_model_steps(&model, kvs, 100);
		if (i % 3 == 2)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (i == 8)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_COMPACT), 0);
		if (i == 5 || i == 10) {
			/* nothing is in memory */
			kh_close();
			kh_open();
			kvs = kh_kvs("s");
		}
		for (j = 0; j < 100; j++)
			probe_once(kvs, NULL);
	}
	kh_model_end(&model);
}

/* The snapshot of the transaction and its own writes, whatever others write. */
static void a_transaction_probes_its_view(void)
{
	struct kvdb_txn *txn, *all;
	struct kvdb_kvs *kvs;
	struct kh_val v, *now;
	unsigned i, j;

	kh_model_begin(&model, POOL, 200);
	kvs = kh_kvs("s");
	now = calloc(model.n, sizeof(*now));
	kh_model_steps(&model, kvs, 200);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	kh_model_steps(&model, kvs, 100);
	T_EQ(kvdb_txn_begin(kh_db, 0, &txn), 0);
	T_EQ(kvdb_txn_begin(kh_db, KVDB_TXN_RDONLY, &all), 0);
	memcpy(now, model.val, model.n * sizeof(*now));
	for (i = 0; i < 40; i++)
		probe_once(kvs, txn);
	for (i = 0; i < model.n; i++) {
		const struct kh_key *k = &model.key[i];

		v = (struct kh_val){ .seed = i, .vlen = kh_random_len(), .is_live = i % 3 == 0 };
		if (i % 2) {
			/* another's write, which neither sees */
			T_EQ(kh_put(kvs, k->key, k->klen, 9999, 7), 0);
			continue;
		}
		if (v.is_live)
			T_EQ(kvdb_txn_put(txn, kvs, k->key, k->klen, kh_value(v.seed, v.vlen),
					  v.vlen), 0);
		else
			T_EQ(kvdb_txn_del(txn, kvs, k->key, k->klen), 0);
		model.val[i] = v;
		for (j = 0; j < 3; j++)
			probe_once(kvs, txn);
	}
	memcpy(model.val, now, model.n * sizeof(*now));
	for (i = 0; i < 100; i++)
		probe_once(kvs, all);
	kvdb_txn_abort(all);
	T_EQ(kvdb_txn_commit(txn, 0, NULL), 0);
	free(now);
	kh_model_end(&model);
}

/* As a cursor would say it. */
static unsigned count_two(struct kvdb_kvs *kvs, const char *prefix)
{
	struct kvdb_cursor *cur;
	unsigned n = 0;

	T_EQ(kvdb_cursor_open(kvs, 0, prefix, strlen(prefix), &cur), 0);
	while (n < 2 && !kvdb_cursor_next(cur, NULL, NULL, NULL, NULL))
		n++;
	kvdb_cursor_close(cur);
	return n;
}

static void finds(struct kvdb_kvs *kvs, const char *prefix, unsigned found, const char *first)
{
	char key[16];
	struct kvdb_probe p = { .key = key, .key_size = sizeof(key) };

	T_EQ(count_two(kvs, prefix), found);
	T_EQ(kvdb_prefix_probe(kvs, prefix, strlen(prefix), &p), 0);
	T_EQ(p.found, found);
	T_EQ(p.klen, strlen(first));
	T_MEMEQ(key, first, p.klen);
}

/* Deleted one by one, by prefix and by range: a probe comes by all of them. */
static void what_was_deleted_is_not_found(void)
{
	struct kvdb_kvs *kvs;
	char key[16];
	unsigned i;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	for (i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "a/%04u", i);
		T_EQ(kh_put_str(kvs, key, "v"), 0);
		snprintf(key, sizeof(key), "b/%04u", i);
		T_EQ(kh_put_str(kvs, key, "v"), 0);
	}
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	for (i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "a/%04u", i);
		if (i != 2000)
			T_EQ(kvdb_del(kvs, key, 6), 0);
	}
	finds(kvs, "a/", KVDB_FOUND_ONE, "a/2000");
	T_EQ(kvdb_range_del(kvs, "b/", 2, "b/2998", 6), 0);
	finds(kvs, "b/", KVDB_FOUND_SEVERAL, "b/2998");
	T_EQ(kvdb_prefix_del(kvs, "b/2999", 6), 0);
	finds(kvs, "b/", KVDB_FOUND_ONE, "b/2998");
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	finds(kvs, "b/", KVDB_FOUND_ONE, "b/2998");
	T_EQ(kvdb_prefix_del(kvs, "a", 1), 0);
	finds(kvs, "a/", KVDB_FOUND_NONE, "");
	finds(kvs, "", KVDB_FOUND_ONE, "b/2998");
	kh_close();
	th_clean();
}

static void probes_refuse_what_a_transaction_refuses(void)
{
	struct kvdb_probe p = { .found = 7 };
	struct kvdb_txn *txn;
	struct kvdb_kvs *kvs;
	struct kvdb_opts o;

	kh_make(POOL, 0);
	o = kh_opts();
	o.view_max_age_ms = 1;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	kvs = kh_kvs("s");
	T_EQ(kvdb_txn_begin(kh_db, 0, &txn), 0);
	usleep(20000);
	T_EQ(kvdb_txn_prefix_probe(txn, kvs, "a", 1, &p), -ESTALE);
	T_EQ(kvdb_txn_prefix_probe(txn, kvs, NULL, 1, &p), -EINVAL);
	T_EQ(p.found, 7);
	kvdb_txn_abort(txn);
	kh_close();
	th_clean();
}

int main(void)
{
	KH_RUN_MODES(random_probes_follow_the_model);
	KH_RUN_MODES(a_transaction_probes_its_view);
	T_RUN(what_was_deleted_is_not_found);
	T_RUN(probes_refuse_what_a_transaction_refuses);
	th_clean();
	return t_done();
}
