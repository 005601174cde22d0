/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Merging: the iterator against a model, the choice of runs, and whole merges
 * and cursors on a real database, against the same model.
 */
#include "op/cursor.h"
#include "kv_clock.h"
#include "kv_rig.h"
#include "mem/memtable.h"
#include "tree/merge_iter.h"
#include "tree/tree.h"
#include "compact/merge.h"

static struct rig r;

#define RUNS	6u

/* Newest-first runs and what a reader must see of them: merged, tombstones included. */
struct stack {
	struct kv_run *run[RUNS];
	struct rec *part[RUNS];
	unsigned npart[RUNS];
	struct rec *all;	/* borrows the keys */
	unsigned nall;
};

static void stack_make(struct stack *s)
{
	unsigned total = 0, k = 0;

	memset(s, 0, sizeof(*s));
	for (unsigned i = 0; i < RUNS; i++) {
		s->part[i] = model_make(&r, 200 + 150 * i, &s->npart[i]);
		total += s->npart[i];
	}
	/* every second key of the newer runs also lives in the next older one */
	for (unsigned i = 0; i + 1 < RUNS; i++) {
		struct rec *old = calloc(s->npart[i] + s->npart[i + 1], sizeof(*old));
		unsigned n = 0, a = 0, b = 0;

		while (a < s->npart[i] || b < s->npart[i + 1]) {
			int c = a == s->npart[i] ? 1 : b == s->npart[i + 1] ? -1 :
				rec_cmp(&s->part[i][a], &s->part[i + 1][b]);

			if (c >= 0) {
				old[n++] = s->part[i + 1][b++];
				a += !c;
			} else if (a++ % 2 == 0) {
				const struct rec *m = &s->part[i][a - 1];

				old[n].key = malloc(m->klen);
				memcpy(old[n].key, m->key, m->klen);
				old[n].klen = m->klen;
				rec_random(&r, &old[n++], 500);
				total++;
			}
		}
		free(s->part[i + 1]);
		s->part[i + 1] = old;
		s->npart[i + 1] = n;
	}
	s->all = calloc(total, sizeof(*s->all));
	for (unsigned i = 0; i < RUNS; i++) {
		s->run[i] = model_run(&r, s->part[i], s->npart[i]);
		for (unsigned j = 0; j < s->npart[i]; j++) {
			const struct rec *m = &s->part[i][j];
			bool hidden = false;

			for (unsigned h = 0; h < i && !hidden; h++) {
				unsigned at = model_below(s->part[h], s->npart[h], m->key,
							  m->klen, false);

				hidden = at < s->npart[h] && !rec_cmp(&s->part[h][at], m);
			}
			if (!hidden)
				s->all[k++] = *m;
		}
	}
	qsort(s->all, k, sizeof(*s->all), rec_cmp);
	s->nall = k;
}

static void stack_free(struct stack *s)
{
	for (unsigned i = 0; i < RUNS; i++) {
		kv_run_put(&r.db, s->run[i]);
		model_free(s->part[i], s->npart[i]);
	}
	free(s->all);
}

static struct kv_iter *stack_iter(struct stack *s, bool reverse, bool tombs)
{
	struct kv_iter *src[RUNS], *it;

	for (unsigned i = 0; i < RUNS; i++)
		T_EQ(kv_run_iter(&r.db, s->run[i], reverse, &src[i]), 0);
	T_EQ(kv_merge_iter(src, RUNS, reverse, tombs, &it), 0);
	return it;
}

static void check_stack(struct stack *s, bool reverse, bool tombs)
{
	struct kv_iter *it = stack_iter(s, reverse, tombs);
	uint8_t key[KVDB_KEY_MAX + 32];
	struct kv_ent e;

	for (unsigned i = 0; i < s->nall; i++) {
		const struct rec *m = &s->all[reverse ? s->nall - 1 - i : i];

		if (m->kind == KV_ENT_TOMB && !tombs)
			continue;
		T_EQ(iter_next(it, &e), 0);
		T_OK(ent_same(&r, &e, m));
	}
	T_EQ(iter_next(it, &e), -ENOENT);
	for (unsigned i = 0; i < 300; i++) {
		uint16_t klen = rig_key(&r, key);
		int64_t at = model_below(s->all, s->nall, key, klen, reverse);

		T_EQ(iter_seek(it, key, klen), 0);
		at -= reverse;
		for (unsigned j = 0; j < 4; j++, at += reverse ? -1 : 1) {
			while (!tombs && at >= 0 && at < s->nall && s->all[at].kind == KV_ENT_TOMB)
				at += reverse ? -1 : 1;
			T_EQ(iter_next(it, &e), at < 0 || at >= s->nall ? -ENOENT : 0);
			if (at < 0 || at >= s->nall)
				break;
			T_OK(ent_same(&r, &e, &s->all[at]));
		}
	}
	it->it_ops->close(it);
}

static void newest_source_wins_both_ways(void)
{
	struct stack s;

	rig_open(&r, 4 << 20, 128 << 20);
	rig_segs(&r);
	stack_make(&s);
	for (unsigned i = 0; i < 4; i++)
		check_stack(&s, i & 1, i & 2);
	stack_free(&s);
	rig_close(&r);
}

/* One iterator that is turned now and then, in front of the model. */
static void turns_keep_the_order(void)
{
	uint8_t key[KVDB_KEY_MAX + 32];
	bool reverse = false;
	struct kv_iter *it;
	struct kv_ent e;
	struct stack s;

	rig_open(&r, 4 << 20, 128 << 20);
	rig_segs(&r);
	stack_make(&s);
	it = stack_iter(&s, reverse, true);
	for (unsigned i = 0; i < 600; i++) {
		uint16_t klen = rig_key(&r, key);
		int64_t at;

		if (i % 3 != 2) {
			reverse = !reverse;
			it->it_ops->turn(it, reverse);
		}
		at = model_below(s.all, s.nall, key, klen, reverse) - reverse;
		if (i % 7 == 6)	/* without a seek: from the end */
			at = reverse ? (int64_t)s.nall - 1 : 0;
		T_EQ(iter_seek(it, key, i % 7 == 6 ? 0 : klen), 0);
		for (unsigned j = 0; j < 5; j++, at += reverse ? -1 : 1) {
			T_EQ(iter_next(it, &e), at < 0 || at >= s.nall ? -ENOENT : 0);
			if (at < 0 || at >= s.nall)
				break;
			T_OK(ent_same(&r, &e, &s.all[at]));
		}
	}
	it->it_ops->close(it);
	stack_free(&s);
	rig_close(&r);
}

static bool odd_seq(void *arg, const struct kv_ent *e)
{
	++*(unsigned *)arg;
	return e->e_seq & 1;
}

/* What hides the newest version of a key hides the key: no older one comes out instead. */
static void a_hidden_key_is_passed_over(void)
{
	unsigned asked = 0;
	struct kv_iter *it;
	struct kv_ent e;
	struct stack s;

	rig_open(&r, 4 << 20, 128 << 20);
	rig_segs(&r);
	stack_make(&s);
	it = stack_iter(&s, false, true);
	kv_merge_hide(it, odd_seq, &asked);
	for (unsigned i = 0; i < s.nall; i++) {
		if (s.all[i].seq & 1)
			continue;
		T_EQ(iter_next(it, &e), 0);
		T_OK(ent_same(&r, &e, &s.all[i]));
	}
	T_EQ(iter_next(it, &e), -ENOENT);
	T_EQ(asked, s.nall);
	it->it_ops->close(it);
	stack_free(&s);
	rig_close(&r);
}

static void pick_takes_neighbours_of_the_lowest_tier(void)
{
	unsigned at = 99;

	T_EQ(kv_merge_pick((uint64_t[]){ 1000, 1000, 1000 }, 3, &at), 0);
	T_EQ(kv_merge_pick((uint64_t[]){ 1000, 1000, 1000, 1000 }, 4, &at), 4);
	T_EQ(at, 0);
	T_EQ(kv_merge_pick((uint64_t[]){ 1000, 1000, 1000, 300, 5000 }, 5, &at), 4);
	T_EQ(at, 0);
	T_EQ(kv_merge_pick((uint64_t[]){ 9000, 100, 100, 100, 100, 9000 }, 6, &at), 4);
	T_EQ(at, 1);
	T_EQ(kv_merge_pick((uint64_t[]){ 100, 5000, 100, 5000, 80000 }, 5, &at), 0);
	T_EQ(kv_merge_pick((uint64_t[]){ 100, 100, 100, 90000 }, 4, &at), 0);
	T_EQ(kv_merge_pick((uint64_t[]){ 1100, 1100, 1100, 1100, 3900 }, 5, &at), 4);
	T_EQ(at, 0);
	T_EQ(kv_merge_pick((uint64_t[]){ 1, 4, 16, 64, 256, 1024, 4096, 16384 }, 8, &at), 0);
	T_EQ(kv_merge_pick((uint64_t[]){ 1, 4, 16, 64, 256, 1024, 4096, 16384, 65536 }, 9, &at), 2);
	T_EQ(at, 0);
	T_EQ(kv_merge_pick(NULL, 0, &at), 0);
}

/* Any sizes: repeated merging ends, and with no more than eight runs. */
static void picking_always_ends_with_few_runs(void)
{
	uint64_t keys[64], rnd = t_seed();

	for (unsigned round = 0; round < 2000; round++) {
		unsigned n = t_rand(&rnd) % 64, steps = 0, at, len;

		for (unsigned i = 0; i < n; i++)
			keys[i] = t_rand(&rnd) >> (t_rand(&rnd) % 60 + 4);
		while ((len = kv_merge_pick(keys, n, &at))) {
			uint64_t sum = 0;

			T_OK(len >= 2 && at + len <= n && ++steps < 64);
			for (unsigned i = at; i < at + len; i++)
				sum += keys[i];
			keys[at] = sum;
			memmove(&keys[at + 1], &keys[at + len], (n - at - len) * sizeof(*keys));
			n -= len - 1;
		}
		T_OK(n <= 8);
	}
}

/* ---- a real database ------------------------------------------------------------------- */

#define SLOTS	600u

static char pool_dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static uint32_t model[SLOTS];	/* generation of the value, 0 = absent */

static void db_open(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 256 << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	memset(model, 0, sizeof(model));
	r.rnd = t_seed();
	snprintf(pool_dir, sizeof(pool_dir), "%s/kvmerge-XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(pool_dir));
	co.devs = &dev;
	co.ndevs = 1;
	co.name = "merge";
	T_EQ(mpool_create(pool_dir, &co), 0);
	o.flags = KVDB_MANUAL;
	o.cache_bytes = 64 << 20;
	look_ns = 1000;
	o.clock = &test_clock;
	o.logs = 1;
	T_EQ(kvdb_create(pool_dir, &o), 0);
	T_EQ(kvdb_open(pool_dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static void db_close(void)
{
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(pool_dir, NULL), 0);
	rmdir(pool_dir);
}

static size_t slot_key(unsigned slot, char *key)
{
	return (size_t)sprintf(key, "%c%c-%04u", 'a' + slot % 3, slot % 2 ? '\377' : 'x', slot);
}

/* A value says which slot and generation it is; sizes go over and under the inline limit. */
static size_t slot_val(unsigned slot, uint32_t gen, uint8_t *val)
{
	size_t n = 8 + (slot * 31 + gen * 7) % 500;

	memset(val, (int)(gen + slot), n);
	memcpy(val, &slot, 4);
	memcpy(val + 4, &gen, 4);
	return n;
}

static void db_change(unsigned n, uint32_t gen)
{
	uint8_t val[1024];
	char key[32];

	for (unsigned i = 0; i < n; i++) {
		unsigned slot = t_rand(&r.rnd) % SLOTS;
		size_t klen = slot_key(slot, key);

		if (t_rand(&r.rnd) % 4 == 0) {
			T_EQ(kvdb_del(kvs, key, klen), 0);
			model[slot] = 0;
		} else {
			T_EQ(kvdb_put(kvs, key, klen, val, slot_val(slot, gen, val)), 0);
			model[slot] = gen;
		}
	}
}

struct slot_pos {
	char key[32];
	size_t klen;
	unsigned slot;
};

static int pos_cmp(const void *a, const void *b)
{
	const struct slot_pos *x = a, *y = b;

	return kv_kcmp(x->key, x->klen, y->key, y->klen);
}

/* Walks a cursor from @seek (or its beginning) and compares with the model @m. */
static void check_cursor(struct kvdb_cursor *c, const uint32_t *m, bool reverse,
			 const char *prefix, const char *seek)
{
	static struct slot_pos pos[SLOTS];
	size_t plen = strlen(prefix), slen = seek ? strlen(seek) : 0, klen, vlen;
	const void *key, *val;
	uint8_t want[1024];
	unsigned n = 0;

	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot_pos *p = &pos[n];

		p->klen = slot_key(i, p->key);
		p->slot = i;
		if (!m[i] || p->klen < plen || memcmp(p->key, prefix, plen))
			continue;
		if (seek && (reverse ? kv_kcmp(p->key, p->klen, seek, slen) > 0 :
				       kv_kcmp(p->key, p->klen, seek, slen) < 0))
			continue;
		n++;
	}
	qsort(pos, n, sizeof(*pos), pos_cmp);
	if (seek)
		T_EQ(kvdb_cursor_seek(c, seek, slen), 0);
	for (unsigned i = 0; i < n; i++) {
		const struct slot_pos *p = &pos[reverse ? n - 1 - i : i];

		T_EQ(kvdb_cursor_next(c, &key, &klen, &val, &vlen), 0);
		T_EQ(klen, p->klen);
		T_MEMEQ(key, p->key, klen);
		T_EQ(vlen, slot_val(p->slot, m[p->slot], want));
		T_MEMEQ(val, want, vlen);
	}
	T_EQ(kvdb_cursor_next(c, &key, &klen, &val, &vlen), -ENOENT);
}

static void check_db(void)
{
	static const char *const prefix[] = { "", "a", "b\377", "c", "zz", "\377" };
	static const char *const seek[] = { NULL, "a", "ax-03", "b", "b\377-", "c\377\377", "~" };
	uint8_t want[1024], got[1024];
	struct kvdb_cursor *c;
	size_t vlen;
	char key[32];

	for (unsigned i = 0; i < SLOTS; i++) {
		int rc = kvdb_get(kvs, key, slot_key(i, key), got, sizeof(got), &vlen);

		T_EQ(rc, model[i] ? 0 : -ENOENT);
		if (rc)
			continue;
		T_EQ(vlen, slot_val(i, model[i], want));
		T_MEMEQ(got, want, vlen);
	}
	for (unsigned i = 0; i < 12; i++) {
		const char *p = prefix[i / 2];

		T_EQ(kvdb_cursor_open(kvs, i % 2 ? KVDB_REVERSE : 0, p, strlen(p), &c), 0);
		for (unsigned j = 0; j < 7; j++)
			check_cursor(c, model, i % 2, p, seek[j]);
		kvdb_cursor_close(c);
	}
}

static unsigned runs_now(void)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	unsigned n = tr->tr_nrun;

	kv_tree_put(db, tr);
	return n;
}

static void merges_keep_what_readers_see(void)
{
	uint32_t gen = 1, snap[SLOTS];
	struct kvdb_cursor *c;
	unsigned merged = 0;

	db_open();
	check_db();
	for (unsigned round = 0; round < 6; round++) {
		for (unsigned i = 0; i < 5; i++) {
			db_change(150, gen++);
			T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
		}
		db_change(50, gen++);
		memcpy(snap, model, sizeof(snap));
		T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
		db_change(50, gen++);
		for (int rc = 1; rc; merged += rc != 0) {
			rc = kv_merge_step(db, kvs);
			T_OK(rc >= 0);
		}
		T_OK(runs_now() <= 8);
		check_db();
		check_cursor(c, snap, false, "", NULL);
		check_cursor(c, snap, false, "", "b");
		kvdb_cursor_close(c);
	}
	printf("# %u merges, %u runs at the end\n", merged, runs_now());
	T_OK(merged >= 1);
	db_close();
}

/* ---- a source in front of the tree ----------------------------------------------------- */

/* A write set: for every slot what is written over the store, by generation. */
struct over {
	struct kv_iter it;
	bool reverse;
	int at;				/* index in key order of the next */
	uint8_t val[1024];
};

static uint32_t over_gen[SLOTS];	/* UINT32_MAX: deleted; 0: not written */
static struct slot_pos over_pos[SLOTS];
static _Atomic(uint64_t) over_changes;

static int over_seek(struct kv_iter *it, const void *key, size_t klen)
{
	struct over *o = (struct over *)it;
	int n = 0;

	while (klen && n < (int)SLOTS) {
		int c = kv_kcmp(over_pos[n].key, over_pos[n].klen, key, klen);

		if (o->reverse ? c > 0 : c >= 0)
			break;
		n++;
	}
	o->at = !klen ? o->reverse ? (int)SLOTS - 1 : 0 : n - o->reverse;
	return 0;
}

static int over_next(struct kv_iter *it, struct kv_ent *e)
{
	struct over *o = (struct over *)it;
	int step = o->reverse ? -1 : 1;
	const struct slot_pos *p;
	uint32_t gen;

	while (o->at >= 0 && o->at < (int)SLOTS && !over_gen[over_pos[o->at].slot])
		o->at += step;
	if (o->at < 0 || o->at >= (int)SLOTS)
		return -ENOENT;
	p = &over_pos[o->at];
	o->at += step;
	gen = over_gen[p->slot];
	*e = (struct kv_ent){ .e_key = (const uint8_t *)p->key, .e_klen = (uint16_t)p->klen,
			      .e_kind = gen == UINT32_MAX ? KV_ENT_TOMB : KV_ENT_INLINE };
	if (gen != UINT32_MAX) {
		e->e_vlen = (uint32_t)slot_val(p->slot, gen, o->val);
		e->e_val = o->val;
	}
	return 0;
}

static void over_turn(struct kv_iter *it, bool reverse)
{
	((struct over *)it)->reverse = reverse;
}

static void over_close(struct kv_iter *it)
{
	free(it);
}

static const struct kv_iter_ops over_ops = {
	.seek = over_seek, .next = over_next, .turn = over_turn, .close = over_close,
};

static struct kvdb_cursor *over_cursor(void)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	struct over *ov = calloc(1, sizeof(*ov));
	struct kv_iter *src = &ov->it;
	struct kv_cursor_in in = { .extra = &src, .nextra = 1, .changes = &over_changes };
	struct kvdb_cursor *c;

	ov->it.it_ops = &over_ops;
	in.tree = kv_tree_get(kvs);
	in.seq = kv_view_open(db);
	T_EQ(kv_cursor_new(kvs, &o, &in, &c), 0);
	return c;
}

static uint32_t over_shown(const uint32_t *snap, unsigned slot)
{
	return over_gen[slot] == UINT32_MAX ? 0 : over_gen[slot] ? over_gen[slot] : snap[slot];
}

static void check_over_step(struct kvdb_cursor *c, const uint32_t *snap, int *place)
{
	bool back = t_rand(&r.rnd) % 3 == 0;
	int i = *place, err;
	const void *key, *val;
	size_t klen, vlen;
	uint8_t want[1024];

	do
		i += back ? -1 : 1;
	while (i >= 0 && i < (int)SLOTS && !over_shown(snap, over_pos[i].slot));
	err = back ? kvdb_cursor_prev(c, &key, &klen, &val, &vlen) :
		     kvdb_cursor_next(c, &key, &klen, &val, &vlen);
	if (i < 0 || i >= (int)SLOTS) {
		T_EQ(err, -ENOENT);
		*place = i < 0 ? -1 : (int)SLOTS;
		return;
	}
	T_EQ(err, 0);
	T_EQ(klen, over_pos[i].klen);
	T_MEMEQ(key, over_pos[i].key, klen);
	T_EQ(vlen, slot_val(over_pos[i].slot, over_shown(snap, over_pos[i].slot), want));
	T_MEMEQ(val, want, vlen);
	*place = i;
}

static void a_write_set_shows_through_at_once(void)
{
	uint32_t snap[SLOTS];
	struct kvdb_cursor *c;

	db_open();
	for (unsigned i = 0; i < SLOTS; i++) {
		over_pos[i].klen = slot_key(i, over_pos[i].key);
		over_pos[i].slot = i;
	}
	qsort(over_pos, SLOTS, sizeof(*over_pos), pos_cmp);
	memset(over_gen, 0, sizeof(over_gen));
	for (unsigned round = 0; round < 12; round++) {
		int place = -1;

		db_change(300, 1 + 2 * round);
		if (round % 3 == 1)
			T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
		memcpy(snap, model, sizeof(snap));
		c = over_cursor();
		db_change(100, 2 + 2 * round);
		for (unsigned i = 0; i < 800; i++) {
			if (t_rand(&r.rnd) % 5 == 0) {
				unsigned slot = t_rand(&r.rnd) % SLOTS;

				over_gen[slot] = i % 4 ? 1000 + i : i % 3 ? UINT32_MAX : 0;
				atomic_fetch_add(&over_changes, 1);
			}
			check_over_step(c, snap, &place);
		}
		kvdb_cursor_close(c);
	}
	/* one that is never used lets go of its source all the same */
	kvdb_cursor_close(over_cursor());
	db_close();
}

static void tombstones_go_with_the_oldest_run(void)
{
	char key[32];

	db_open();
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 0; i < 100; i++) {
			size_t klen = slot_key(i, key);

			if (round)
				T_EQ(kvdb_del(kvs, key, klen), 0);
			else
				T_EQ(kvdb_put(kvs, key, klen, "v", 1), 0);
		}
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	while (kv_merge_step(db, kvs) > 0)
		;
	T_EQ(runs_now(), 0);
	check_db();
	db_close();
}

int main(void)
{
	T_RUN(newest_source_wins_both_ways);
	T_RUN(turns_keep_the_order);
	T_RUN(a_hidden_key_is_passed_over);
	T_RUN(pick_takes_neighbours_of_the_lowest_tier);
	T_RUN(picking_always_ends_with_few_runs);
	T_RUN(merges_keep_what_readers_see);
	T_RUN(a_write_set_shows_through_at_once);
	T_RUN(tombstones_go_with_the_oldest_run);
	return t_done();
}
