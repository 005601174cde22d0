/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Scan order: what scans pay for values that lie apart, the choice of segments
 * by that, and jobs on a real database without threads, beneath a walk too.
 */
#include "harness.h"

#include <malloc.h>
#include <unistd.h>

#include "compact/heat.h"
#include "kv_clock.h"
#include "kv_fresh.h"
#include "cache/pages.h"
#include "compact/reloc.h"
#include "db/db.h"
#include "seg/reserve.h"

#define KEYS	400u
#define VLEN	3000u
#define SEG	(64u << 10)
#define PLACE	16384u
#define PART	16u	/* keys of one scan */

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs[2];
static const struct kvdb_clock *clk;	/* NULL: the machine's */

static void open_db(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	o.clock = clk;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (unsigned s = 0; s < 2; s++) {
		char name[2] = { (char)('a' + s), 0 };

		if (kvdb_kvs_open(db, name, &kvs[s])) {
			T_EQ(kvdb_kvs_create(db, name, NULL), 0);
			T_EQ(kvdb_kvs_open(db, name, &kvs[s]), 0);
		}
	}
}

/* Of the key that is put as number @k: neighbours are put far from each other. */
static uint32_t place_of(uint32_t k)
{
	return k * 33 % KEYS;
}

static size_t key_of(uint32_t k, char *key)
{
	return (size_t)sprintf(key, "%04u-key", place_of(k));
}

static void value(unsigned s, uint32_t k, uint8_t *val)
{
	uint64_t x = ((uint64_t)s << 32) + k, v;

	for (unsigned i = 0; i < VLEN; i += 8) {
		v = t_rand(&x);
		memcpy(val + i, &v, 8);
	}
}

static void settle(void)
{
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
}

static struct kvdb_stats stats(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(db, &st), 0);
	return st;
}

/* Two stores, one written after the other, each in an order of its own; no value in memory. */
static void fresh(void)
{
	uint8_t val[VLEN];
	char key[32];

	kv_fresh(dir, sizeof(dir), "kv_heat", 64u << 20, SEG);
	open_db();
	for (unsigned s = 0; s < 2; s++)
		for (uint32_t k = 0; k < KEYS; k++) {
			value(s, k, val);
			T_EQ(kvdb_put(kvs[s], key, key_of(k, key), val, VLEN), 0);
		}
	settle();
	T_EQ(kvdb_close(db), 0);
	open_db();
	settle();
}

static void done(void)
{
	kv_end(db, dir, 0);
}

static void list_seg(void *arg, struct kv_seg *s)
{
	uint64_t *id = arg;

	if (id[0] < 999)
		id[++id[0]] = s->sg_id;
}

/* What is cached of values goes, as if memory were small. */
static void forget(void)
{
	uint64_t id[1000];	/* [0]: how many */

	id[0] = 0;
	kv_segs_each(db, list_seg, id);
	for (uint64_t i = 1; i <= id[0]; i++)
		kv_page_purge(db, id[i], SEG / 4096);
}

static void entry_is(unsigned s, uint32_t at, struct kvdb_cursor *cur)
{
	const void *key, *val;
	uint8_t want[VLEN];
	size_t klen, vlen;
	uint32_t k = 0;
	char text[32];

	T_EQ(kvdb_cursor_next(cur, &key, &klen, &val, &vlen), 0);
	while (place_of(k) != at)
		k++;
	T_EQ(klen, key_of(k, text));
	T_MEMEQ(key, text, klen);
	value(s, k, want);
	T_EQ(vlen, VLEN);
	T_MEMEQ(val, want, VLEN);
}

/* Reads a whole store in parts, from media; returns the places that values came from. */
static uint64_t scan(unsigned s, unsigned flags)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	uint64_t places = stats().scan_places;
	struct kvdb_cursor *cur;
	char key[32];

	o.flags = flags;
	o.limit = PART;
	for (uint32_t at = 0; at < KEYS; at += PART) {
		uint32_t end = flags & KVDB_REVERSE ? at + PART - 1 : at;

		forget();
		T_EQ(kvdb_cursor_open_opts(kvs[s], &o, &cur), 0);
		T_EQ(kvdb_cursor_seek(cur, key, (size_t)sprintf(key, "%04u-key", end)), 0);
		for (uint32_t i = 0; i < PART; i++)
			entry_is(s, flags & KVDB_REVERSE ? end - i : end + i, cur);
		kvdb_cursor_close(cur);
	}
	return stats().scan_places - places;
}

/* They come and go in any order, and keep what they have read ahead while others allocate. */
static void *open_and_close_cursors(void *arg)
{
	struct kvdb_cursor *cur[4] = { NULL };
	uint64_t x = (uintptr_t)arg;
	char key[32];

	for (unsigned i = 0; i < 1000; i++) {
		uint64_t r = t_rand(&x);
		struct kvdb_cursor **c = &cur[r % 4];

		if (*c)
			kvdb_cursor_close(*c);
		T_EQ(kvdb_cursor_open(kvs[0], 0, NULL, 0, c), 0);
		T_EQ(kvdb_cursor_seek(*c, key, (size_t)sprintf(key, "%04u-key", 0)), 0);
		forget();
		for (uint32_t k = 0; k < PART; k++)
			entry_is(0, k, *c);
	}
	for (unsigned i = 0; i < 4; i++)
		kvdb_cursor_close(cur[i]);
	return NULL;
}

static void cursors_leave_no_holes_in_the_heap(void)
{
	pthread_t tid[4];
	size_t before;

	fresh();
	before = mallinfo2().arena;
	for (unsigned i = 0; i < 4; i++)
		T_EQ(pthread_create(&tid[i], NULL, open_and_close_cursors,
				    (void *)(uintptr_t)(i + 1)), 0);
	for (unsigned i = 0; i < 4; i++)
		T_EQ(pthread_join(tid[i], NULL), 0);
	/* sixteen of 160 KiB */
	printf("# %zu bytes\n", mallinfo2().arena - before);
	T_OK(mallinfo2().arena - before < 8u << 20);
	done();
}

/* What a cursor has read ahead is of its moment, wherever the values are by now. */
static void a_walk_goes_on_while_its_values_move(void)
{
	uint8_t val[VLEN] = { 0 };
	struct kvdb_cursor *cur;
	char key[32];

	fresh();
	for (unsigned i = 0; i < 5; i++)
		scan(0, 0);
	forget();
	T_EQ(kvdb_cursor_open(kvs[0], 0, NULL, 0, &cur), 0);
	for (uint32_t at = 0; at < 2 * PART; at++)
		entry_is(0, at, cur);
	T_OK(atomic_load(&db->d_cache.cc_scan_bytes) > 0);
	settle();
	T_OK(stats().order_relocations > 0);
	/* and the places get other values */
	for (unsigned i = 0; i < 3; i++) {
		for (uint32_t k = 0; k < KEYS; k++)
			T_EQ(kvdb_put(kvs[0], key, key_of(k, key), val, VLEN), 0);
		settle();
	}
	forget();
	for (uint32_t at = 2 * PART; at < KEYS; at++)
		entry_is(0, at, cur);
	kvdb_cursor_close(cur);
	T_EQ(atomic_load(&db->d_cache.cc_scan_bytes), 0);
	done();
}

/* ---- the choice ------------------------------------------------------------------- */

static struct kv_victim hot(struct kv_seg *s, uint64_t n, uint64_t heat)
{
	return (struct kv_victim){ .vi_seg = s, .vi_bytes = n * 1000, .vi_live = n * 1000,
				   .vi_stay = n * 1000, .vi_n = n, .vi_heat = heat };
}

static void segments_go_when_scans_have_paid_for_them_together(void)
{
	uint64_t cost = 10 * (PLACE + 1000);
	struct kv_seg seg[4];
	struct kv_victim v[4];

	/* 1 is paid for, 2 with what 1 has beside; less than half is not enough */
	v[0] = hot(&seg[0], 10, cost / 2 - 1);
	v[1] = hot(&seg[1], 10, 3 * cost);
	v[2] = hot(&seg[2], 10, cost / 2);
	v[3] = hot(&seg[3], 10, 0);
	T_EQ(kv_heat_choose(v, 4, 0, 1 << 20), 2);
	T_OK(v[0].vi_seg == &seg[1] && v[1].vi_seg == &seg[2]);
	/* the keys are part of the price, read and written */
	T_EQ(kv_heat_choose(v, 4, cost / 4 * 3, 1 << 20), 2);
	T_EQ(kv_heat_choose(v, 4, cost / 4 * 3 + 1, 1 << 20), 1);
	T_EQ(kv_heat_choose(v, 4, cost + 1, 1 << 20), 0);
	T_EQ(kv_heat_choose(v, 4, 0, 10000), 1);
	T_EQ(kv_heat_choose(v, 4, 0, 9999), 0);
}

static void what_is_in_order_or_would_leave_its_class_stays(void)
{
	uint64_t cost = 10 * (PLACE + 1000);
	struct kv_seg seg;
	struct kv_victim v = hot(&seg, 10, 4 * cost - 1);

	v.vi_is_ordered = true;
	T_EQ(kv_heat_choose(&v, 1, 0, 1 << 20), 0);
	v.vi_heat++;
	T_EQ(kv_heat_choose(&v, 1, 0, 1 << 20), 1);
	v.vi_stay--;
	T_EQ(kv_heat_choose(&v, 1, 0, 1 << 20), 0);
}

/* ---- jobs ------------------------------------------------------------------------- */

struct heated {
	uint64_t he_bytes;	/* of the first segment */
	unsigned he_seen;	/* segments that a job has looked at */
};

static void heat_first(void *arg, struct kv_seg *s)
{
	struct heated *he = arg;

	s->sg_cand = UINT32_MAX;
	atomic_store(&s->sg_heat, (int64_t)he->he_bytes);
	he->he_bytes = 0;
}

static void count_seen(void *arg, struct kv_seg *s)
{
	struct heated *he = arg;

	he->he_seen += s->sg_cand != UINT32_MAX;
	s->sg_cand = 0;
}

/* Segments that one look at the database goes to when scans have paid @bytes. */
static unsigned seen_with(uint64_t bytes)
{
	struct heated he = { .he_bytes = bytes };

	kv_segs_each(db, heat_first, &he);
	kv_reloc_look(db);
	T_EQ(kv_reloc_step(db), 0);
	kv_segs_each(db, count_seen, &he);
	return he.he_seen;
}

static void heat_that_pays_for_nothing_begins_no_job(void)
{
	uint64_t least;

	fresh();
	least = kv_heat_least(kv_reloc_run_bytes(db));
	T_OK(least > 2 * kv_reloc_run_bytes(db) && kv_reloc_run_bytes(db));
	T_EQ(seen_with(1), 0);
	T_EQ(seen_with(least - 1), 0);
	T_OK(seen_with(least) > 0);
	T_EQ(stats().order_relocations, 0);
	done();
}

static void what_is_scanned_comes_into_order_and_nothing_else(void)
{
	struct kvdb_stats st;

	fresh();
	T_OK(scan(0, 0) > KEYS / 2);
	settle();
	T_EQ(stats().order_relocations, 0);	/* once is no habit */
	for (unsigned i = 0; i < 4; i++)
		T_OK(scan(0, i & 1 ? KVDB_REVERSE : 0) > KEYS / 2);
	settle();
	st = stats();
	T_OK(st.order_relocations > 0 && st.order_relocations == st.relocations);
	T_OK(st.order_bytes > KEYS * VLEN && st.order_bytes < KEYS * VLEN * 3 / 2);
	T_EQ(st.order_bytes, st.io[MPOOL_CAPACITY].move_bytes);
	T_OK(scan(0, 0) < KEYS / 4);
	T_OK(scan(0, KVDB_REVERSE) < KEYS / 4);
	T_OK(scan(1, 0) > KEYS / 2);
	settle();
	T_EQ(stats().order_bytes, st.order_bytes);
	done();
}

static void gets_put_nothing_in_order(void)
{
	uint8_t val[VLEN];
	char key[32];
	size_t len;

	fresh();
	for (unsigned i = 0; i < 4; i++) {
		forget();
		for (uint32_t k = 0; k < KEYS; k++)
			T_EQ(kvdb_get(kvs[0], key, key_of(k, key), val, VLEN, &len), 0);
	}
	settle();
	T_OK(stats().value_dev >= 4 * KEYS);
	T_EQ(stats().scan_places, 0);
	T_EQ(stats().order_relocations, 0);
	done();
}

/* ---- beside writers that need room -------------------------------------------------- */

static struct mpool_obj *filler[64];
static unsigned nfiller;
static bool is_filling;
static unsigned looks, rescue_at;	/* at the clock, by a job for scans; 0: at none */

/* Takes the pool, down to what is kept for flushes. */
static void fill(void)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY,
				   .capacity = 1u << 20 };

	is_filling = false;
	while (kv_segs_free_bytes(db) > 8u << 20)
		T_EQ(mpool_alloc(db->d_mp, &req, 1, &filler[nfiller++]), 0);
}

static uint64_t busy_now(void *arg)
{
	if ((is_filling || rescue_at) && kv_reloc_is_ordering(db)) {
		if (is_filling)
			fill();
		else if (++looks == rescue_at)
			kv_reloc_rescue_begin(db);
	}
	return clock_now(arg);
}

static const struct kvdb_clock busy_clock = { busy_now, clock_sleep, NULL, NULL };

static void fresh_and_scanned(void)
{
	clk = &busy_clock;
	fresh();
	for (unsigned i = 0; i < 5; i++)
		scan(0, 0);
}

static void what_is_kept_for_flushes_is_not_for_scans(void)
{
	fresh_and_scanned();
	is_filling = true;
	kv_reloc_look(db);
	T_EQ(kv_reloc_step(db), 0);
	T_OK(nfiller > 0);
	T_EQ(stats().order_relocations, 0);
	while (nfiller)
		mpool_obj_close(filler[--nfiller]);
	settle();
	T_OK(stats().order_relocations > 0);
	scan(0, 0);
	done();
	clk = NULL;
}

static void a_job_for_scans_ends_soon_when_a_put_has_no_room(void)
{
	fresh_and_scanned();
	for (rescue_at = 1; !stats().order_relocations; rescue_at++) {
		looks = 0;
		kv_reloc_look(db);
		T_OK(kv_reloc_step(db) >= 0);
		if (looks >= rescue_at)
			kv_reloc_rescue_end(db);
	}
	T_OK(rescue_at > KEYS / 32);
	rescue_at = 0;
	scan(0, 0);
	done();
	clk = NULL;
}

int main(void)
{
	T_RUN(segments_go_when_scans_have_paid_for_them_together);
	T_RUN(what_is_in_order_or_would_leave_its_class_stays);
	T_RUN(heat_that_pays_for_nothing_begins_no_job);
	T_RUN(what_is_scanned_comes_into_order_and_nothing_else);
	T_RUN(gets_put_nothing_in_order);
	T_RUN(what_is_kept_for_flushes_is_not_for_scans);
	T_RUN(a_job_for_scans_ends_soon_when_a_put_has_no_room);
	T_RUN(cursors_leave_no_holes_in_the_heap);
	T_RUN(a_walk_goes_on_while_its_values_move);
	return t_done();
}
