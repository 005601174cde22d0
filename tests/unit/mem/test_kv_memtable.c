/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The memtable from inside: order over one and many ranges against a sorted
 * model, the sort when keys are alike, the table that grows beneath readers,
 * replay in any order of records (R3, R4).
 */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "harness.h"
#include "log/log.h"
#include "mem/order.h"
#include "db/thread.h"
#include "base/hash.h"
#include "base/key.h"
#include "db/db.h"
#include "seg/value.h"
#include "mem/iter.h"
#include "mem/sorted.h"
#include "tree/tree.h"
#include "kv_active.h"

static char dir[256];
static struct kvdb *db;
static uint64_t rnd;

static void open_db(unsigned flags)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 64u << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	rnd = t_seed();
	snprintf(dir, sizeof(dir), "%s/kv_memtable.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
	o.flags = flags;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	T_EQ(kvdb_open(dir, &o, &db), 0);
}

static void make_db(void)
{
	open_db(KVDB_MANUAL);
}

static void drop_db(void)
{
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* ---- insertion without a log ------------------------------------------------------ */

/* Links a version whose record is in no segment, with a stamp or PENDING; 0 or -errno. */
static int link_one(struct kv_mt *mt, const void *key, size_t klen, uint32_t number,
		    bool with_stamp, struct kv_version **v)
{
	uint8_t rec[64 + KVDB_KEY_MAX] __attribute__((aligned(8))) = { 0 };
	struct kv_slot sl = { .sl_state = 1u << 2 | KV_SLOT_OPEN };
	struct kv_resv rs = { .rs_buf = rec, .rs_epoch = atomic_load(&db->d_epochs.ep_open) };
	struct kv_mt_op op = { .op_key = key, .op_klen = (uint16_t)klen, .op_val = &number,
			       .op_vlen = 4, .op_kind = KV_ENT_INLINE,
			       .op_hash = kv_hash(key, klen) };
	struct kv_thread *t = kv_enter();
	int err = kv_mt_install(mt, &op, &sl, &rs, v);

	if (!err && with_stamp)
		kv_version_stamp(db, *v);
	kv_exit(t);
	if (atomic_load(&mt->m_grow_wanted))
		kv_mt_grow_soon(mt);
	return err;
}

static int insert(struct kv_mt *mt, const void *key, size_t klen, uint32_t number)
{
	struct kv_version *v;

	return link_one(mt, key, klen, number, true, &v);
}

/* The number under a key, or UINT32_MAX. */
static uint32_t number_of(struct kv_mt *mt, const void *key, size_t klen)
{
	struct kv_thread *t = kv_enter();
	uint32_t n = UINT32_MAX;
	struct kv_ent e;

	if (!kv_mt_lookup(mt, key, klen, kv_hash(key, klen), KV_SEQ_NOW, &e))
		memcpy(&n, e.e_val, 4);
	kv_exit(t);
	return n;
}

/* ---- many versions of one key ------------------------------------------------------- */

#define VERSIONS 100000u
#define STEPS	 64u	/* to any of them: a few times the logarithm */

/* The number that @seq sees under "hot", and how many versions were looked at. */
static uint32_t number_at(struct kv_mt *mt, uint64_t seq, unsigned *steps)
{
	const struct kv_version *v;
	struct kv_thread *t = kv_enter();
	uint32_t n = UINT32_MAX;

	*steps = 0;
	v = kv_mt_newest_version(mt, "hot", 3, kv_hash("hot", 3));
	for (; v && atomic_load(&v->v_seq) > seq; v = kv_version_next(v, seq))
		(*steps)++;
	if (v)
		memcpy(&n, v->v_val, 4);
	kv_exit(t);
	return n;
}

/* Of every three overwrites two are of one stamp: what M3 takes out is still on the way. */
static void any_version_of_a_hot_key_is_a_few_steps_away(void)
{
	uint64_t *seq = calloc(VERSIONS, sizeof(*seq));
	unsigned steps, most = 0, i;
	struct kv_mt *mt;

	make_db();
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	for (i = 0; i < VERSIONS; i++) {
		T_EQ(insert(mt, "hot", 3, i), 0);
		seq[i] = i % 3 ? kv_view_open(db) : 0;
	}
	for (i = 0; i < VERSIONS; i++) {
		if (!seq[i])
			continue;
		T_EQ(number_at(mt, seq[i], &steps), i);
		most = steps > most ? steps : most;
	}
	T_OK(most <= STEPS);
	T_EQ(number_at(mt, 0, &steps), UINT32_MAX);
	T_OK(steps <= STEPS);
	kv_mt_put(db, mt);
	drop_db();
	free(seq);
}

/* ---- a model ------------------------------------------------------------------------ */

struct mkey {
	uint16_t len;
	uint8_t key[60];
	uint32_t number;
};

struct model {
	struct mkey *k;
	unsigned n;
};

static int mkey_cmp(const void *a, const void *b)
{
	const struct mkey *x = a, *y = b;

	return kv_key_cmp(x->key, x->len, y->key, y->len);
}

/* Shapes: equal heads, prefixes of each other, zeros at the end, all different. */
static void mkey_make(struct mkey *k, unsigned shape)
{
	uint64_t x = t_rand(&rnd);
	unsigned i;

	switch (shape) {
	case 0:		/* a long common prefix, then few different bytes */
		memset(k->key, 'p', 40);
		k->len = (uint16_t)(40 + x % 12);
		for (i = 40; i < k->len; i++)
			k->key[i] = (uint8_t)(t_rand(&rnd) % 3);
		break;
	case 1:		/* equal heads: the first 8 bytes decide nothing */
		memcpy(k->key, "headhead", 8);
		memcpy(k->key + 8, &x, 8);
		k->len = (uint16_t)(8 + x % 9);
		break;
	case 2:		/* only zeros and 0xff, of all lengths */
		k->len = (uint16_t)(1 + x % 20);
		for (i = 0; i < k->len; i++)
			k->key[i] = t_rand(&rnd) % 2 ? 0 : 0xff;
		break;
	default:
		k->len = (uint16_t)(1 + x % 32);
		for (i = 0; i < k->len; i++)
			k->key[i] = (uint8_t)t_rand(&rnd);
	}
}

/* @shape 4 = a mixture. Distinct keys, sorted. */
static void model_make(struct model *m, unsigned n, unsigned shape)
{
	unsigned i, k = 0;

	m->k = calloc(n, sizeof(*m->k));
	for (i = 0; i < n; i++)
		mkey_make(&m->k[i], shape == 4 ? i % 4 : shape);
	qsort(m->k, n, sizeof(*m->k), mkey_cmp);
	for (i = 0; i < n; i++)
		if (!k || mkey_cmp(&m->k[k - 1], &m->k[i]))
			m->k[k++] = m->k[i];
	m->n = k;
	for (i = 0; i < k; i++)
		m->k[i].number = i + 1;
}

/* Inserts keys number @from, @from + @step, ... in an order that is not theirs. */
static void model_insert(const struct model *m, struct kv_mt *mt, unsigned from, unsigned step)
{
	unsigned i, n = (m->n - from + step - 1) / step, mul = 7919;

	while (n % mul == 0)
		mul += 2;
	for (i = 0; i < n; i++) {
		const struct mkey *k = &m->k[from + (uint64_t)i * mul % n * step];

		T_EQ(insert(mt, k->key, k->len, k->number), 0);
	}
}

static void ent_is(const struct kv_ent *e, const struct mkey *k)
{
	T_EQ(e->e_klen, k->len);
	T_MEMEQ(e->e_key, k->key, k->len);
	T_EQ(e->e_vlen, 4);
	T_MEMEQ(e->e_val, &k->number, 4);
}

/* Every @step-th key of the model is in the table: all of it, then seeks. */
static void walk(const struct model *m, struct kv_mt *mt, bool reverse, unsigned step)
{
	unsigned last = (m->n - 1) / step * step, i;
	struct kv_iter *it;
	struct kv_ent e;

	T_EQ(kv_mt_iter(db, mt, UINT64_MAX, reverse, &it), 0);
	for (i = 0; i <= last; i += step) {
		T_EQ(it->it_ops->next(it, &e), 0);
		ent_is(&e, &m->k[reverse ? last - i : i]);
	}
	T_EQ(it->it_ops->next(it, &e), -ENOENT);
	for (i = 0; i < 300; i++) {
		unsigned at = t_rand(&rnd) % m->n;
		unsigned want = reverse ? at / step * step : (at + step - 1) / step * step;

		T_EQ(it->it_ops->seek(it, m->k[at].key, m->k[at].len), 0);
		if (want > last) {
			T_EQ(it->it_ops->next(it, &e), -ENOENT);
			continue;
		}
		T_EQ(it->it_ops->next(it, &e), 0);
		ent_is(&e, &m->k[want]);
	}
	it->it_ops->close(it);
}

/* As walk(), from keys of the model to others, or to what lies behind those. */
static void walk_to_ends(const struct model *m, struct kv_mt *mt, bool reverse)
{
	struct kv_iter *it;
	struct kv_ent e;

	T_EQ(kv_mt_iter(db, mt, UINT64_MAX, reverse, &it), 0);
	for (unsigned i = 0; i < 200; i++) {
		unsigned lo = t_rand(&rnd) % m->n, hi = lo + t_rand(&rnd) % (m->n - lo) % 300;
		uint8_t end[KVDB_KEY_MAX + 1];
		bool is_behind = i & 1;
		size_t len = m->k[reverse ? lo : hi].len;

		memcpy(end, m->k[reverse ? lo : hi].key, len);
		end[len] = 0;
		it->it_ops->until(it, end, len + is_behind);
		T_EQ(it->it_ops->seek(it, m->k[reverse ? hi : lo].key,
				      m->k[reverse ? hi : lo].len), 0);
		/* the end itself is beyond upwards, and not downwards */
		for (unsigned n = hi - lo + (is_behind != reverse); n; n--) {
			T_EQ(it->it_ops->next(it, &e), 0);
			ent_is(&e, reverse ? &m->k[hi--] : &m->k[lo++]);
		}
		T_EQ(it->it_ops->next(it, &e), -ENOENT);
		T_EQ(it->it_ops->next(it, &e), -ENOENT);
	}
	it->it_ops->close(it);
}

static uint32_t parts_of(struct kv_mt *mt)
{
	return atomic_load(&mt->m_dir)->od_n;
}

static void fences_are_in_order(struct kv_mt *mt)
{
	struct kv_order_dir *od = atomic_load(&mt->m_dir);

	T_OK(!od->od_part[0]->pt_fence);
	for (uint32_t i = 2; i < od->od_n; i++)
		T_OK(kv_key_cmp(od->od_part[i - 1]->pt_fence, od->od_part[i - 1]->pt_fence_len,
				od->od_part[i]->pt_fence, od->od_part[i]->pt_fence_len) < 0);
	for (uint32_t i = 1; i < od->od_n; i++) {
		const struct kv_part *pt = od->od_part[i];

		T_MEMEQ(pt->pt_fence, od->od_part[1]->pt_fence, od->od_skip);
		T_EQ(od->od_head[i], kv_head8(pt->pt_fence + od->od_skip,
					      pt->pt_fence_len - od->od_skip));
	}
}

static void order_of_shape(unsigned shape, unsigned n)
{
	struct model m;
	struct kv_mt *mt;
	unsigned i;

	make_db();
	model_make(&m, n, shape);
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	T_EQ(parts_of(mt), 1);
	/* half of the keys, order, the rest: sorted arrays and a new list are joined */
	model_insert(&m, mt, 0, 2);
	walk(&m, mt, false, 2);
	walk(&m, mt, true, 2);
	if (m.n > 1)
		model_insert(&m, mt, 1, 2);
	walk(&m, mt, true, 1);
	walk(&m, mt, false, 1);
	walk_to_ends(&m, mt, true);
	walk_to_ends(&m, mt, false);
	T_EQ(kv_mt_keys(mt), m.n);
	for (i = 0; i < m.n; i++)
		T_EQ(number_of(mt, m.k[i].key, m.k[i].len), m.k[i].number);
	kv_mt_put(db, mt);
	free(m.k);
	drop_db();
}

static void long_common_prefixes_are_sorted(void) { order_of_shape(0, 6000); }
static void equal_heads_are_sorted(void) { order_of_shape(1, 6000); }
static void zeros_and_prefixes_are_sorted(void) { order_of_shape(2, 6000); }
static void random_keys_are_sorted(void) { order_of_shape(3, 6000); }
static void a_mixture_is_sorted(void) { order_of_shape(4, 6000); }
static void few_keys_are_sorted(void) { order_of_shape(4, 5); }
static void one_key_is_sorted(void) { order_of_shape(1, 1); }

/* ---- ranges ------------------------------------------------------------------------------ */

static void ranges_come_from_the_predecessor(void)
{
	struct kv_mt *first, *mt, *third;
	struct model m, other;

	make_db();
	model_make(&m, 60000, 4);
	model_make(&other, 3000, 0);
	T_EQ(kv_mt_new(db, 1, NULL, &first), 0);
	model_insert(&m, first, 0, 1);
	T_EQ(kv_mt_new(db, 1, first, &mt), 0);
	T_OK(parts_of(mt) > 4);
	fences_are_in_order(mt);
	/* the fences outlive where they came from */
	kv_mt_put(db, first);
	kv_retire_barrier();
	model_insert(&m, mt, 0, 3);
	walk(&m, mt, false, 3);
	walk(&m, mt, true, 3);
	model_insert(&m, mt, 1, 3);
	model_insert(&m, mt, 2, 3);
	walk_to_ends(&m, mt, false);
	walk_to_ends(&m, mt, true);
	/* keys that all fall into one of the ranges, and none in most of them */
	T_EQ(kv_mt_new(db, 1, mt, &third), 0);
	T_OK(parts_of(third) > 1);
	kv_mt_put(db, mt);
	model_insert(&other, third, 0, 1);
	walk(&other, third, false, 1);
	walk(&other, third, true, 1);
	kv_mt_put(db, third);
	free(m.k);
	free(other.k);
	drop_db();
}

static void count_all(struct kv_mt *mt)
{
	struct kv_iter *it;
	struct kv_ent e;
	uint64_t n = 0;

	T_EQ(kv_mt_iter(db, mt, UINT64_MAX, true, &it), 0);
	while (!it->it_ops->next(it, &e))
		n++;
	it->it_ops->close(it);
	T_EQ(n, kv_mt_keys(mt));
}

/* Is there a key like this? If not, insert it: at any size the same few entries are touched. */
static void a_partition_that_is_walked_stays_small(void)
{
	enum { N = 100000, RAW = 70000 };
	struct kv_order_dir *od;
	struct kv_iter *it;
	struct kv_mt *mt;
	struct kv_ent e;

	make_db();
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	for (uint32_t i = 0; i < N; i++) {
		/* shares its first bytes with all; from RAW on each is looked for first */
		uint64_t key[2] = { 0x6b6b6b6b6b6b6b6bull, i * 0x9e3779b97f4a7c15ull };

		if (i >= RAW) {
			T_EQ(kv_mt_iter(db, mt, KV_SEQ_NOW - 1, i & 1, &it), 0);
			T_EQ(it->it_ops->seek(it, key, sizeof(key)), 0);
			it->it_ops->next(it, &e);
			it->it_ops->close(it);
		}
		T_EQ(insert(mt, key, sizeof(key), i), 0);
	}
	fences_are_in_order(mt);
	count_all(mt);
	od = atomic_load(&mt->m_dir);
	T_OK(od->od_n >= N / KV_PART_MAX);
	for (uint32_t i = 0; i < od->od_n; i++)
		T_OK(kv_sorted_n(od->od_part[i]->pt_main) <= KV_PART_MAX + KV_TAIL_MAX);
	kv_mt_put(db, mt);
	drop_db();
}

static void an_iterator_keeps_what_it_walks(void)
{
	struct kv_iter *it;
	struct model m;
	struct kv_mt *mt;
	struct kv_ent e;
	uint64_t view;
	unsigned i;

	make_db();
	model_make(&m, 4000, 4);
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	model_insert(&m, mt, 0, 2);
	view = kv_view_open(db);
	T_EQ(kv_mt_iter(db, mt, view, false, &it), 0);
	for (i = 0; i < m.n; i += 2) {
		/* newer keys come between, newer versions on top */
		if (i + 1 < m.n)
			T_EQ(insert(mt, m.k[i + 1].key, m.k[i + 1].len, 7), 0);
		T_EQ(insert(mt, m.k[i].key, m.k[i].len, 8), 0);
		T_EQ(it->it_ops->next(it, &e), 0);
		ent_is(&e, &m.k[i]);
		if (i % 500 == 0)	/* another walk takes the new entries in */
			count_all(mt);
	}
	T_EQ(it->it_ops->next(it, &e), -ENOENT);
	it->it_ops->close(it);
	kv_mt_put(db, mt);
	free(m.k);
	drop_db();
}

/* With few keys all are in the tail, into which what is new comes. */
static void an_iterator_keeps_the_tail_that_it_walks(void)
{
	uint8_t key[2] = { 0 };
	struct kv_iter *it;
	struct kv_mt *mt;
	struct kv_ent e;

	make_db();
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	for (key[0] = 100; key[0] < 140; key[0]++) {
		T_EQ(insert(mt, key, 2, key[0]), 0);
		count_all(mt);
	}
	T_EQ(kv_mt_iter(db, mt, KV_SEQ_NOW - 1, false, &it), 0);
	for (unsigned i = 100; i < 140; i++) {
		key[0] = (uint8_t)(i - 50);
		T_EQ(insert(mt, key, 2, key[0]), 0);
		count_all(mt);
		T_EQ(it->it_ops->next(it, &e), 0);
		T_EQ(e.e_key[0], i == 100 ? 50 : i - 1);
	}
	it->it_ops->close(it);
	kv_mt_put(db, mt);
	drop_db();
}

/* A put and a short walk in turn: no array is copied, no entry beyond the end is read. */
static void a_short_walk_touches_what_it_shows(void)
{
	uint8_t key[3] = { 0 }, end[2] = { 0 };
	struct kv_version *beyond;
	struct kv_sorted *tail = NULL;
	struct kv_iter *it;
	struct kv_mt *mt;
	struct kv_ent e;

	make_db();
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	for (unsigned i = 0; i < KV_TAIL_MAX - 1; i++) {
		struct kv_sorted *was = tail;

		key[0] = end[0] = (uint8_t)(i * 37);
		end[1] = 1;
		T_EQ(insert(mt, key, 3, i), 0);
		/* a thread that reads it stamps it */
		T_EQ(link_one(mt, "\xff\xff\xff", 3, i, false, &beyond), 0);
		T_EQ(kv_mt_iter(db, mt, KV_SEQ_NOW - 1, false, &it), 0);
		it->it_ops->until(it, end, 2);
		T_EQ(it->it_ops->seek(it, key, 1), 0);
		T_EQ(it->it_ops->next(it, &e), 0);
		T_EQ(it->it_ops->next(it, &e), -ENOENT);
		it->it_ops->close(it);
		T_EQ(atomic_load(&beyond->v_seq), KV_PENDING);
		tail = atomic_load(&mt->m_dir)->od_part[0]->pt_tail;
		T_OK(i < 2 || tail == was);
	}
	kv_mt_put(db, mt);
	drop_db();
}

/* A key that a walk has just come by: nothing of it is left for the next one to do. */
static void an_insertion_takes_its_place_at_once(void)
{
	struct kv_sorted *tail;
	struct kv_part *pt;
	struct kv_mt *mt;
	uint8_t key = 0;

	make_db();
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	for (; key < 2; key++) {
		T_EQ(insert(mt, &key, 1, key), 0);
		count_all(mt);
	}
	pt = atomic_load(&mt->m_dir)->od_part[0];
	tail = pt->pt_tail;
	for (unsigned i = 2; i < KV_TAIL_MAX; i++) {
		key = (uint8_t)(i * 3);
		T_EQ(insert(mt, &key, 1, i), 0);
		T_OK(!atomic_load(&pt->pt_new));
		T_OK(pt->pt_tail == tail);
		T_EQ(tail->so_n, i + 1);
	}
	/* it has no room for more, and the next walk makes some */
	key = 255;
	T_EQ(insert(mt, &key, 1, 0), 0);
	T_OK(atomic_load(&pt->pt_new));
	count_all(mt);
	T_OK(!atomic_load(&pt->pt_new));
	T_EQ(kv_sorted_n(pt->pt_main), KV_TAIL_MAX + 1);
	kv_mt_put(db, mt);
	drop_db();
}

/* Ids that ascend, mostly: behind all that was sorted come more than a partition takes, at once. */
static void what_comes_behind_a_full_partition_is_dealt_out(void)
{
	static const unsigned come[] = { 1, 1000, 100, 1100, 3000, 30, 2000 };
	unsigned n, parts;
	struct kv_mt *mt;
	uint8_t key[12];

	make_db();
	for (unsigned kind = 0; kind < 4; kind++) {
		T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
		n = 0;
		for (unsigned i = 0; i < sizeof(come) / sizeof(come[0]); i++) {
			for (unsigned k = 0; k < come[i]; k++) {
				/* in their order or in none, all or three quarters behind */
				uint32_t at = n + (kind & 1 ? k * 7919 % come[i] : k);

				memset(key, 0, sizeof(key));
				key[0] = kind & 2 && k % 4 == 0 ? (uint8_t)(k % 16) : 99;
				for (unsigned b = 0; b < 4; b++)
					key[4 + b] = (uint8_t)(at >> (24 - 8 * b));
				T_EQ(insert(mt, key, sizeof(key), at), 0);
			}
			n += come[i];
			count_all(mt);
			fences_are_in_order(mt);
		}
		T_EQ(kv_mt_keys(mt), n);
		parts = parts_of(mt);
		T_OK(parts > 8 && parts < 100);
		kv_mt_put(db, mt);
	}
	drop_db();
}

/* Fences share what most keys do; others are above or below them all, or end before that. */
static void keys_that_share_less_than_fences_are_found(void)
{
	static const char *const other[] = { NULL, "k", "kkkkkkkkkkkk", "kkkkkkkkkkkj", "kl", "j~",
					     "kkkkkkkkkkkkkkkk", "\xff\xff", "kkkkkkkkkkk\xff" };
	enum { N = 20000, OTHERS = sizeof(other) / sizeof(other[0]) };
	struct kv_mt *mt;
	char key[40];
	size_t len;

	make_db();
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = round; i < N; i += 2) {
			/* a third differ behind the 8 bytes that are looked at first */
			len = (size_t)sprintf(key, i % 3 ? "kkkkkkkkkkkk%08x" :
					      "kkkkkkkkkkkk00000000%08x", i * 0x9e3779b1u);
			T_EQ(insert(mt, key, len, i), 0);
		}
		count_all(mt);
		fences_are_in_order(mt);
		T_OK(atomic_load(&mt->m_dir)->od_skip >= 12);
		for (unsigned i = 1; i < OTHERS; i++)
			T_EQ(insert(mt, other[i], strlen(other[i]), round), 0);
	}
	T_OK(parts_of(mt) > 8);
	for (unsigned i = 1; i < OTHERS; i++) {
		struct kv_iter *it;
		struct kv_ent e;

		for (unsigned reverse = 0; reverse < 2; reverse++) {
			len = strlen(other[i]);
			T_EQ(kv_mt_iter(db, mt, KV_SEQ_NOW - 1, reverse, &it), 0);
			T_EQ(it->it_ops->seek(it, other[i], len), 0);
			T_EQ(it->it_ops->next(it, &e), 0);
			T_EQ(e.e_klen, len);
			T_MEMEQ(e.e_key, other[i], len);
			it->it_ops->close(it);
		}
	}
	count_all(mt);
	kv_mt_put(db, mt);
	drop_db();
}

/* ---- growth ------------------------------------------------------------------------------- */

#define GROW_KEYS 60000u
#define GROW_THREADS 3u

struct grower {
	pthread_t thread;
	struct kv_mt *mt;
	unsigned no;
	_Atomic(unsigned) done;	/* keys inserted so far, all of them visible */
	struct grower *all;
	int err;
};

static void *insert_main(void *arg)
{
	struct grower *g = arg;

	for (unsigned i = 0; i < GROW_KEYS / GROW_THREADS && !g->err; i++) {
		uint32_t key[2] = { i * 0x9e3779b9u, g->no };

		g->err = insert(g->mt, key, sizeof(key), i);
		atomic_store(&g->done, i + 1);
	}
	return NULL;
}

/* Whatever was inserted is found, whichever table it is in at the moment. */
static void *read_main(void *arg)
{
	struct grower *g = arg;
	uint64_t seed = g->no + 1;

	for (;;) {
		struct grower *of = &g->all[t_rand(&seed) % GROW_THREADS];
		unsigned n = atomic_load(&of->done), i = n ? t_rand(&seed) % n : 0;
		uint32_t key[2] = { i * 0x9e3779b9u, of->no };

		if (n && number_of(g->mt, key, sizeof(key)) != i)
			g->err = 1;
		if (g->err || n == GROW_KEYS / GROW_THREADS)
			return NULL;
	}
}

/* Seeks what others have inserted, so that partitions are replaced while they insert. */
static void *walk_main(void *arg)
{
	struct grower *g = arg;
	uint64_t seed = g->no + 1;

	for (;;) {
		struct grower *of = &g->all[t_rand(&seed) % GROW_THREADS];
		unsigned n = atomic_load(&of->done), i = n ? t_rand(&seed) % n : 0;
		uint32_t key[2] = { i * 0x9e3779b9u, of->no };
		struct kv_iter *it;
		struct kv_ent e;

		if (kv_mt_iter(db, g->mt, KV_SEQ_NOW - 1, n & 1, &it))
			abort();
		if (n && (it->it_ops->seek(it, key, sizeof(key)) || it->it_ops->next(it, &e) ||
			  memcmp(e.e_key, key, sizeof(key))))
			g->err = 1;
		it->it_ops->close(it);
		if (g->err || n == GROW_KEYS / GROW_THREADS)
			return NULL;
	}
}

static void partitions_that_are_replaced_lose_nothing(void)
{
	struct grower g[GROW_THREADS + 2] = { 0 };
	struct kv_mt *mt;
	unsigned i;

	make_db();
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	for (i = 0; i < GROW_THREADS + 2; i++) {
		g[i].mt = mt;
		g[i].no = i;
		g[i].all = g;
		T_EQ(pthread_create(&g[i].thread, NULL,
				    i < GROW_THREADS ? insert_main : walk_main, &g[i]), 0);
	}
	for (i = 0; i < GROW_THREADS + 2; i++) {
		pthread_join(g[i].thread, NULL);
		T_EQ(g[i].err, 0);
	}
	T_OK(parts_of(mt) > 1);
	fences_are_in_order(mt);
	count_all(mt);
	kv_mt_put(db, mt);
	drop_db();
}

static void a_growing_table_loses_nothing(void)
{
	struct grower g[GROW_THREADS + 1] = { 0 };
	uint64_t buckets;
	struct kv_mt *mt;
	unsigned i, j;

	make_db();
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	buckets = atomic_load(&mt->m_table)->tb_mask;
	for (i = 0; i <= GROW_THREADS; i++) {
		g[i].mt = mt;
		g[i].no = i;
		g[i].all = g;
		T_EQ(pthread_create(&g[i].thread, NULL, i < GROW_THREADS ? insert_main : read_main,
				    &g[i]), 0);
	}
	for (i = 0; i <= GROW_THREADS; i++) {
		pthread_join(g[i].thread, NULL);
		T_EQ(g[i].err, 0);
	}
	T_OK(atomic_load(&mt->m_table)->tb_mask > 16 * buckets);
	T_EQ(kv_mt_keys(mt), GROW_KEYS);
	for (i = 0; i < GROW_THREADS; i++) {
		for (j = 0; j < GROW_KEYS / GROW_THREADS; j++) {
			uint32_t key[2] = { j * 0x9e3779b9u, i };

			T_EQ(number_of(mt, key, sizeof(key)), j);
		}
	}
	kv_mt_put(db, mt);
	drop_db();
}

static uint64_t buckets_of(struct kv_mt *mt)
{
	struct kv_thread *t = kv_enter();
	uint64_t n = atomic_load(&mt->m_table)->tb_mask + 1;

	kv_exit(t);
	return n;
}

/* Moving a large table takes longer than a put may. */
static void a_writer_leaves_a_large_table_alone(void)
{
	struct kv_mt *mt;
	unsigned i;

	make_db();
	db->d_mode.md_flags &= ~KVDB_MANUAL;	/* as if others worked: none does */
	T_EQ(kv_mt_new(db, 1, NULL, &mt), 0);
	for (i = 0; i < GROW_KEYS; i++)
		T_EQ(insert(mt, &i, sizeof(i), i), 0);
	T_OK(atomic_load(&mt->m_grow_asked));
	T_OK(buckets_of(mt) > 64 && buckets_of(mt) < GROW_KEYS / 8);
	kv_mt_grow(mt);
	T_OK(buckets_of(mt) >= GROW_KEYS / 8);
	T_OK(!atomic_load(&mt->m_grow_asked));
	for (i = 0; i < GROW_KEYS; i++)
		T_EQ(number_of(mt, &i, sizeof(i)), i);
	kv_mt_put(db, mt);
	db->d_mode.md_flags |= KVDB_MANUAL;
	drop_db();
}

static uint64_t active_buckets(struct kvdb_kvs *kvs)
{
	struct kv_thread *t = kv_enter();
	uint64_t n = buckets_of(active_mt(kvs));

	kv_exit(t);
	return n;
}

static void the_grower_grows_it(void)
{
	struct kvdb_kvs *kvs;
	unsigned i;

	open_db(0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	/* as long as it takes: the next memtable begins with as many buckets */
	for (i = 0; active_buckets(kvs) < GROW_KEYS / 8; i++)
		T_EQ(kvdb_put(kvs, &i, sizeof(i), "v", 1), 0);
	drop_db();
}

/* ---- replay --------------------------------------------------------------------------------- */

static struct kvdb_kvs *replay_store(const char *name)
{
	struct kvdb_kvs *kvs;

	T_EQ(kvdb_kvs_create(db, name, NULL), 0);
	T_EQ(kvdb_kvs_open(db, name, &kvs), 0);
	return kvs;
}

static void replay(struct kvdb_kvs *kvs, uint64_t epoch, uint32_t rev, bool is_del)
{
	uint32_t number = (uint32_t)(epoch * 100 + rev);
	struct kv_rec r = { .r_type = is_del ? KV_REC_DEL : KV_REC_PUT,
			    .r_kvs = (uint16_t)kvs->k_id, .r_key = (const uint8_t *)"key",
			    .r_klen = 3, .r_rev = rev, .r_seq = 1 };

	if (!is_del) {
		r.r_val = (const uint8_t *)&number;
		r.r_vlen = 4;
	}
	T_EQ(kv_mt_replay(active_mt(kvs), &r, epoch, NULL, 0), 0);
}

/* All orders of five records of one key: the last by (epoch, rev) wins. */
static void replay_takes_the_newest_by_epoch_and_revision(void)
{
	static const struct { uint64_t epoch; uint32_t rev; } rec[5] = {
		{ 5, 9 }, { 6, 1 }, { 6, 2 }, { 7, 1 }, { 7, 3 },
	};
	unsigned perm, del;
	char name[16];

	make_db();
	for (perm = 0; perm < 120; perm++) {
		struct kvdb_kvs *kvs;
		struct kv_mt *mt;
		unsigned left = 31, x = perm, i;
		struct kv_thread *t;
		struct kv_ent e;

		snprintf(name, sizeof(name), "s%u", perm);
		kvs = replay_store(name);
		del = perm % 2;		/* the newest is a delete */
		for (i = 5; i > 0; x /= i, i--) {
			unsigned nth = x % i, k = 0;

			while (!(left & 1u << k) || nth--)
				k++;
			left &= ~(1u << k);
			replay(kvs, rec[k].epoch, rec[k].rev, del && k == 4);
			/* the same record again, as from a second copy: no matter */
			replay(kvs, rec[k].epoch, rec[k].rev, del && k == 4);
		}
		mt = active_mt(kvs);
		T_OK(kv_mt_first_epoch(mt) >= 5 && kv_mt_first_epoch(mt) <= 7);
		T_EQ(atomic_load(&mt->m_last_epoch), 7);
		T_EQ(kv_mt_keys(mt), 1);
		t = kv_enter();
		i = (unsigned)kv_mt_lookup(mt, "key", 3, kv_hash("key", 3), KV_SEQ_NOW, &e);
		kv_exit(t);
		T_EQ(i, 0);
		T_EQ(e.e_kind, del ? KV_ENT_TOMB : KV_ENT_INLINE);
		if (!del)
			T_MEMEQ(e.e_val, &(uint32_t){ 703 }, 4);
		T_EQ(kvdb_kvs_drop(db, name), 0);
	}
	drop_db();
}

/* M6: a writer that was preempted in front of its record comes to note it long after others. */
struct asker {
	struct kv_mt *as_mt;
	_Atomic(uint32_t) as_rev;	/* 0: no answer yet */
	pthread_t as_thread;
};

static void *ask_main(void *arg)
{
	struct asker *as = arg;
	struct kv_thread *t = kv_enter();

	as->as_rev = kv_mt_next_rev(as->as_mt, "k", 1, kv_hash("k", 1));
	kv_exit(t);
	return NULL;
}

/* In the bucket's lock, as a writer that is about to link. */
static int ask_meanwhile(struct kv_entry *en, void *arg)
{
	struct asker *as = arg;

	(void)en;
	T_EQ(pthread_create(&as->as_thread, NULL, ask_main, as), 0);
	usleep(50000);
	T_EQ(as->as_rev, 0);
	return 0;
}

/* T15: one that saw no owner of the key is through when the owner asks. */
static void the_next_revision_is_behind_the_writer_in_the_bucket(void)
{
	struct asker as = { .as_rev = 0 };
	struct kv_version *v;

	make_db();
	T_EQ(kv_mt_new(db, 1, NULL, &as.as_mt), 0);
	T_EQ(link_one(as.as_mt, "k", 1, 1, true, &v), 0);
	T_EQ(kv_mt_each(as.as_mt, ask_meanwhile, &as), 0);
	pthread_join(as.as_thread, NULL);
	T_EQ(as.as_rev, v->v_rev + 1);
	kv_mt_put(db, as.as_mt);
	drop_db();
}

static void the_place_in_the_log_is_that_of_the_first_record(void)
{
	struct kvdb_kvs *kvs;
	struct kv_mt *mt;
	uint64_t pos, e;

	make_db();
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(kvdb_put(kvs, "a", 1, "a", 1), 0);
	mt = active_mt(kvs);
	e = kv_mt_first_epoch(mt);
	pos = atomic_load(&mt->m_log_pos);
	T_EQ(kvdb_sync(db), 0);
	T_OK(atomic_load(&db->d_logged.lc_bytes) > pos);
	atomic_store(&mt->m_first_epoch, 0);	/* what it saw */
	kv_mt_note_epoch(mt, e);
	T_EQ(atomic_load(&mt->m_log_pos), pos);
	T_EQ(kv_mt_first_epoch(mt), e);
	drop_db();
}

int main(void)
{
	T_RUN(any_version_of_a_hot_key_is_a_few_steps_away);
	T_RUN(long_common_prefixes_are_sorted);
	T_RUN(equal_heads_are_sorted);
	T_RUN(zeros_and_prefixes_are_sorted);
	T_RUN(random_keys_are_sorted);
	T_RUN(a_mixture_is_sorted);
	T_RUN(few_keys_are_sorted);
	T_RUN(one_key_is_sorted);
	T_RUN(ranges_come_from_the_predecessor);
	T_RUN(a_partition_that_is_walked_stays_small);
	T_RUN(partitions_that_are_replaced_lose_nothing);
	T_RUN(an_iterator_keeps_what_it_walks);
	T_RUN(an_iterator_keeps_the_tail_that_it_walks);
	T_RUN(a_short_walk_touches_what_it_shows);
	T_RUN(an_insertion_takes_its_place_at_once);
	T_RUN(keys_that_share_less_than_fences_are_found);
	T_RUN(what_comes_behind_a_full_partition_is_dealt_out);
	T_RUN(a_growing_table_loses_nothing);
	T_RUN(a_writer_leaves_a_large_table_alone);
	T_RUN(the_grower_grows_it);
	T_RUN(replay_takes_the_newest_by_epoch_and_revision);
	T_RUN(the_next_revision_is_behind_the_writer_in_the_bucket);
	T_RUN(the_place_in_the_log_is_that_of_the_first_record);
	return t_done();
}
