/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reading of many keys with one call, and of values where they lie: against a
 * model, from memtables, runs and devices, beside writers; pinned values that
 * stay while everything around them is overwritten, flushed and merged.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "kvdb_help.h"

#define POOL (512 * MIB)
#define MANY 90u

static struct kh_model model;

static bool value_is(uint64_t seed, const uint8_t *val, size_t len)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t v = t_rand(&seed);

		if (memcmp(val + i, &v, len - i < 8 ? len - i : 8))
			return false;
	}
	return true;
}

/* ---- many keys ------------------------------------------------------------------------- */

/* @n keys: most of the universe, some next to it, some that are no keys. */
static void check_many(struct kvdb_kvs *kvs, unsigned n, unsigned flags)
{
	static uint8_t key[MANY][KVDB_KEY_MAX + 1], buf[MANY][5000];
	struct kvdb_get get[MANY];
	int at[MANY];

	for (unsigned i = 0; i < n; i++) {
		unsigned k = t_rand(&kh_rnd) % model.n;
		uint64_t x = t_rand(&kh_rnd);

		at[i] = (int)k;
		get[i] = (struct kvdb_get){ .key = key[i], .klen = model.key[k].klen, .buf = buf[i],
					    .size = x % 3 ? sizeof(buf[i]) : (x >> 8) % 600,
					    .vlen = 12345, .err = 77 };
		memcpy(key[i], model.key[k].key, model.key[k].klen);
		memset(buf[i], 0xee, sizeof(buf[i]));
		if (x % 16 == 5) {
			get[i].klen = x % 32 == 5 ? 0 : KVDB_KEY_MAX + 1;
			at[i] = -1;
		} else if (x % 16 == 6 && get[i].klen < KVDB_KEY_MAX) {
			key[i][get[i].klen++] = 0;
			for (unsigned j = 0; j < model.n; j++)
				if (!kh_cmp(model.key[j].key, model.key[j].klen, key[i],
					    get[i].klen))
					at[i] = (int)j;
			at[i] = at[i] == (int)k ? -2 : at[i];
		}
	}
	T_EQ(kvdb_get_multi(kvs, flags, get, n), 0);
	for (unsigned i = 0; i < n; i++) {
		const struct kh_val *v = at[i] >= 0 ? &model.val[at[i]] : NULL;
		size_t part;

		if (!v || !v->is_live) {
			T_EQ(get[i].err, at[i] != -1 ? -ENOENT : get[i].klen ? -ENAMETOOLONG :
									       -EINVAL);
			T_EQ(get[i].vlen, 12345);
			continue;
		}
		T_EQ(get[i].err, 0);
		T_EQ(get[i].vlen, v->vlen);
		part = v->vlen < get[i].size ? v->vlen : get[i].size;
		T_OK(value_is(v->seed, buf[i], part));
		T_OK(part == sizeof(buf[i]) || buf[i][part] == 0xee);
	}
}

static void many_keys_are_as_each(void)
{
	struct kvdb_kvs *kvs;

	kh_model_begin(&model, POOL, 600);
	kvs = kh_kvs("s");
	check_many(kvs, 40, 0);
	for (unsigned i = 0; i < 60; i++) {
		kh_model_steps(&model, kvs, 60);
		if (i % 6 == 3)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (i == 40)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		if (i % 10 == 9) {	/* everything from devices */
			kh_close();
			kh_open();
			kvs = kh_kvs("s");
		}
		for (unsigned j = 0; j < 4; j++)
			check_many(kvs, t_rand(&kh_rnd) % MANY,
				   j & 1 ? KVDB_GET_SNAPSHOT : 0);
	}
	T_EQ(kvdb_get_multi(kvs, 0, NULL, 0), 0);
	T_EQ(kvdb_get_multi(kvs, 0, NULL, 1), -EINVAL);
	T_EQ(kvdb_get_multi(kvs, 0x80, NULL, 0), -EINVAL);
	kh_model_end(&model);
}

struct writer {
	struct kvdb_kvs *kvs;
	_Atomic(bool) stop;
	_Atomic(int) err;
	_Atomic(unsigned) rounds;
};

/* "a" before "z", every time. */
static void *writer_main(void *arg)
{
	struct writer *w = arg;

	for (uint32_t i = 1; !atomic_load(&w->stop) && !atomic_load(&w->err); i++) {
		uint8_t val[300] = "";
		int err;

		memcpy(val, &i, 4);
		err = kvdb_put(w->kvs, "a", 1, val, i % 2 ? 4 : 300);
		if (!err)
			err = kvdb_put(w->kvs, "z", 1, val, i % 3 ? 4 : 200);
		atomic_store(&w->err, err);
		atomic_store(&w->rounds, i);
	}
	return NULL;
}

static void a_snapshot_is_one_moment(void)
{
	struct writer w = { 0 };
	pthread_t thread;
	bool bad = false;

	kh_model_begin(&model, POOL, 1);
	w.kvs = kh_kvs("s");
	T_EQ(kvdb_put(w.kvs, "a", 1, "\0\0\0\0", 4), 0);
	T_EQ(kvdb_put(w.kvs, "z", 1, "\0\0\0\0", 4), 0);
	T_EQ(pthread_create(&thread, NULL, writer_main, &w), 0);
	for (unsigned i = 0; !bad && !atomic_load(&w.err) &&
	     (i < 3000 || atomic_load(&w.rounds) < 100); i++) {
		struct kvdb_get get[40];
		uint32_t n[40];

		/* far apart: not in the same group */
		for (unsigned j = 0; j < 40; j++)
			get[j] = (struct kvdb_get){ .key = j < 20 ? i % 2 ? "a" : "z" :
							   i % 2 ? "z" : "a",
						    .klen = 1, .buf = &n[j], .size = 4 };
		bad = kvdb_get_multi(w.kvs, KVDB_GET_SNAPSHOT, get, 40) || get[0].err ||
		      get[39].err;
		for (unsigned j = 0; j < 40 && !bad; j++) {
			uint32_t a = i % 2 ? n[j < 20 ? j : 0] : n[j < 20 ? 39 : j];
			uint32_t z = i % 2 ? n[j < 20 ? 39 : j] : n[j < 20 ? j : 0];

			bad = a < z || a > z + 1;
		}
		if (i % 500 == 100)
			bad |= kvdb_drain(kh_db, KVDB_WAIT_FLUSH) != 0;
	}
	atomic_store(&w.stop, true);
	pthread_join(thread, NULL);
	T_OK(!bad);
	T_EQ(atomic_load(&w.err), 0);
	kh_model_end(&model);
}

/* ---- pinned values ------------------------------------------------------------------------ */

#define PINS 300u

/* Writes more than the window holds. */
static void flood(struct kvdb_kvs *kvs, unsigned mib)
{
	static uint8_t val[64 << 10];
	char key[32];

	for (unsigned i = 0; i < mib * 16; i++) {
		memset(val, (int)i, sizeof(val));
		T_EQ(kvdb_put(kvs, key, (size_t)sprintf(key, "flood%u", i), val, sizeof(val)), 0);
	}
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	for (unsigned i = 0; i < mib * 16; i++)
		T_EQ(kvdb_del(kvs, key, (size_t)sprintf(key, "flood%u", i)), 0);
}

static void pinned_values_stay(void)
{
	static struct kvdb_pin pin[PINS];
	static struct kh_val val[PINS];
	struct kvdb_kvs *kvs, *other;

	kh_model_begin(&model, POOL, 400);
	kvs = kh_kvs("s");
	other = kh_kvs("other");
	for (unsigned i = 0; i < PINS; i++) {
		unsigned k;

		kh_model_steps(&model, kvs, 10);
		if (i % 20 == 5)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		if (i % 100 == 50)
			flood(other, 12);
		k = t_rand(&kh_rnd) % model.n;
		val[i] = model.val[k];
		T_EQ(kvdb_get_pinned(kvs, model.key[k].key, model.key[k].klen, &pin[i]),
		     val[i].is_live ? 0 : -ENOENT);
	}
	for (unsigned i = 0; i < model.n; i++)
		T_EQ(kvdb_del(kvs, model.key[i].key, model.key[i].klen), 0);
	memset(model.val, 0, model.n * sizeof(*model.val));
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	flood(other, 60);
	for (unsigned i = 0; i < PINS; i++) {
		if (val[i].is_live) {
			T_EQ(pin[i].vlen, val[i].vlen);
			T_OK(value_is(val[i].seed, pin[i].val, pin[i].vlen));
		}
		kvdb_unpin(&pin[i]);
		T_OK(!pin[i].val);
		kvdb_unpin(&pin[i]);
	}
	kvdb_unpin(NULL);
	/* what was held is used again */
	flood(other, 60);
	kh_model_end(&model);
}

static void a_pin_of_a_recent_value_is_no_copy(void)
{
	struct kvdb_pin a, b, c;
	struct kvdb_kvs *kvs;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("s");
	T_EQ(kh_put(kvs, "k", 1, 5, 1000), 0);
	T_EQ(kvdb_get_pinned(kvs, "k", 1, &a), 0);
	T_EQ(kvdb_get_pinned(kvs, "k", 1, &b), 0);
	T_OK(a.val == b.val && value_is(5, a.val, 1000));
	kvdb_unpin(&a);
	T_OK(value_is(5, b.val, 1000));
	kvdb_unpin(&b);
	/* an empty value is a value */
	T_EQ(kvdb_put(kvs, "e", 1, NULL, 0), 0);
	T_EQ(kvdb_get_pinned(kvs, "e", 1, &c), 0);
	T_OK(c.val && !c.vlen);
	kvdb_unpin(&c);
	T_EQ(kvdb_get_pinned(kvs, "none", 4, &c), -ENOENT);
	T_EQ(kvdb_get_pinned(kvs, "", 0, &c), -EINVAL);
	kh_close();
	th_clean();
}

struct pinner {
	struct kvdb_kvs *kvs;
	uint64_t rnd;
	_Atomic(bool) *stop;
	unsigned bad, pins;
};

#define PIN_KEYS 64u

/* Every value is one number all over; it must stay what it was at the first look. */
static void *pinner_main(void *arg)
{
	struct pinner *p = arg;

	while (!atomic_load(p->stop)) {
		struct kvdb_pin pin[8] = { { .val = NULL } };
		uint8_t first[8];

		for (unsigned i = 0; i < 8; i++) {
			uint8_t key = (uint8_t)(t_rand(&p->rnd) % PIN_KEYS);

			if (kvdb_get_pinned(p->kvs, &key, 1, &pin[i]))
				p->bad++;
			else
				first[i] = *(const uint8_t *)pin[i].val;
		}
		for (unsigned i = 0; i < 8; i++) {
			const uint8_t *v = pin[i].val;

			for (size_t j = 0; v && j < pin[i].vlen; j += 97)
				p->bad += v[j] != first[i];
			kvdb_unpin(&pin[i]);
		}
		p->pins += 8;
	}
	return NULL;
}

static void pins_race_with_everything(void)
{
	unsigned rounds = getenv("TEST_SHORT") ? 2 : 8;
	static uint8_t val[20000];
	_Atomic(bool) stop = false;
	struct pinner p[3];
	pthread_t thread[3];
	struct kvdb_kvs *kvs, *other;

	kh_model_begin(&model, POOL, 1);
	kvs = kh_kvs("s");
	other = kh_kvs("other");
	for (unsigned i = 0; i < PIN_KEYS; i++)
		T_EQ(kvdb_put(kvs, &(uint8_t){ (uint8_t)i }, 1, val, sizeof(val)), 0);
	for (unsigned i = 0; i < 3; i++) {
		p[i] = (struct pinner){ .kvs = kvs, .rnd = t_rand(&kh_rnd), .stop = &stop };
		T_EQ(pthread_create(&thread[i], NULL, pinner_main, &p[i]), 0);
	}
	for (unsigned i = 0; i < rounds; i++) {
		for (unsigned j = 0; j < 600; j++) {
			memset(val, (int)(i * 31 + j), sizeof(val));
			T_EQ(kvdb_put(kvs, &(uint8_t){ (uint8_t)(j % PIN_KEYS) }, 1, val,
				      200 + t_rand(&kh_rnd) % 19000), 0);
		}
		flood(other, 12);
	}
	atomic_store(&stop, true);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	printf("# %u pins\n", p[0].pins + p[1].pins + p[2].pins);
	for (unsigned i = 0; i < 3; i++)
		T_EQ(p[i].bad, 0);
	kh_model_end(&model);
}

int main(void)
{
	KH_RUN_MODES(many_keys_are_as_each);
	T_RUN(a_snapshot_is_one_moment);
	T_RUN(pinned_values_stay);
	T_RUN(a_pin_of_a_recent_value_is_no_copy);
	T_RUN(pins_race_with_everything);
	th_clean();
	return t_done();
}
