/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Pages, slabs and values: bytes are right whatever the budget, the damage and
 * the number of threads; memory stays inside its shares.
 */
#include <limits.h>
#include <pthread.h>

#include "kv_rig.h"
#include "cache/load.h"

static struct rig r;

#define PAGES	2048u	/* 8 MiB, several times the budget of the stress test */

static int page_is(const uint8_t *p, uint64_t no)
{
	uint64_t first, last;

	memcpy(&first, p, 8);
	memcpy(&last, p + 4088, 8);
	return first == no && last == no;
}

struct job {
	struct mpool_obj *obj;
	uint64_t rnd;
	unsigned rounds, wrong, no;
};

static void *reader(void *arg)
{
	struct job *j = arg;
	const uint8_t *p[KV_PAGES_MAX];

	for (unsigned i = 0; i < j->rounds; i++) {
		uint64_t x = t_rand(&j->rnd);
		unsigned n = 1 + (x >> 40) % 8, no = x % (PAGES - n);
		struct kv_thread *t;

		kv_pages_room(&r.db, 32);
		t = kv_enter();
		/* most readers want the same pages */
		if (x >> 63)
			no %= 64;
		if (x >> 62 & 1) {
			struct kv_want want[2] = { { .wa_obj = j->obj, .wa_first = no, .wa_n = n },
						   { .wa_obj = j->obj, .wa_n = 9,
						     .wa_first = (no + 40) % (PAGES - 9) } };

			kv_pages_ahead(&r.db, want, 2);
		}
		if (kv_pages_get(&r.db, j->obj, no, n, NULL, p))
			j->wrong++;
		else
			for (unsigned k = 0; k < n; k++)
				j->wrong += !page_is(p[k], no + k);
		for (unsigned k = 0; k < n; k++)
			j->wrong += !page_is(p[k], no + k);
		kv_exit(t);
		if (i % 512 == 0)
			kv_page_purge(&r.db, mpool_obj_id(j->obj), 64);
	}
	return NULL;
}

/* Takes and gives images, so that slabs wander between window and pool. */
static void *imager(void *arg)
{
	struct job *j = arg;

	for (unsigned i = 0; i < j->rounds; i++) {
		struct kv_seg *s = r.seg[t_rand(&j->rnd) % RIG_SEGS];
		uint8_t *mem;

		if (atomic_load(&s->sg_image)) {
			kv_slab_drop_image(&r.db, &s->sg_image);
			continue;
		}
		mem = kv_slab_take_image(&r.db, s->sg_bytes, &s->sg_image);
		if (!mem || mem != atomic_load(&s->sg_image)) {
			j->wrong++;
			continue;
		}
		memset(mem, 0xee, s->sg_bytes);
		if (i & 1)
			kv_slab_image_idle(&r.db, &s->sg_image);
	}
	return NULL;
}

static void tiny_pool_stays_right_under_threads(void)
{
	struct mpool_obj *obj;
	struct job j[5];
	pthread_t th[5];
	unsigned rounds = getenv("TEST_SHORT") ? 2000 : 8000;

	rig_open(&r, 2 << 20, 64 << 20);
	rig_segs(&r);
	obj = rig_numbered(&r, PAGES);
	for (unsigned i = 0; i < 5; i++) {
		j[i] = (struct job){ .obj = obj, .rnd = t_rand(&r.rnd), .rounds = rounds };
		if (i == 4)
			j[i].rounds = 400;
		T_EQ(pthread_create(&th[i], NULL, i == 4 ? imager : reader, &j[i]), 0);
	}
	for (unsigned i = 0; i < 5; i++)
		pthread_join(th[i], NULL);
	for (unsigned i = 0; i < 5; i++)
		T_EQ(j[i].wrong, 0);
	T_OK(kv_slab_page_bytes(&r.db) <= 2 << 20);
	T_OK(atomic_load(&r.db.d_count.page_misses) > 100);
	for (unsigned i = 0; i < RIG_SEGS; i++)
		kv_slab_drop_image(&r.db, &r.seg[i]->sg_image);
	mpool_obj_close(obj);
	rig_close(&r);
}

static void second_read_comes_from_memory(void)
{
	struct mpool_obj *obj;
	struct kv_thread *t;
	const uint8_t *p[8];
	uint64_t reads;

	rig_open(&r, 8 << 20, 64 << 20);
	obj = rig_numbered(&r, PAGES);
	t = kv_enter();
	T_EQ(kv_pages_get(&r.db, obj, 10, 8, NULL, p), 0);
	kv_exit(t);
	reads = atomic_load(&r.db.d_count.read_bytes[KV_READ_VALUE][MPOOL_CAPACITY]);
	T_EQ(reads, 8 * 4096);
	t = kv_enter();
	T_EQ(kv_pages_get(&r.db, obj, 8, 8, NULL, p), 0);
	T_OK(page_is(p[0], 8) && page_is(p[7], 15));
	T_OK(kv_page_peek(&r.db, mpool_obj_id(obj), 17) != NULL);
	T_OK(kv_page_peek(&r.db, mpool_obj_id(obj), 18) == NULL);
	kv_exit(t);
	T_EQ(atomic_load(&r.db.d_count.read_bytes[KV_READ_VALUE][MPOOL_CAPACITY]) - reads,
	     2 * 4096);
	kv_page_purge(&r.db, mpool_obj_id(obj), PAGES);
	T_OK(!rig_has_page(&r, mpool_obj_id(obj), 10));
	mpool_obj_close(obj);
	rig_close(&r);
}

/* Pages [@first, @first + @n), one at a time, each so often one after another. */
static void read_singly(struct mpool_obj *obj, uint64_t first, unsigned n, unsigned times)
{
	const uint8_t *p[1];

	for (uint64_t no = first; no < first + n; no++) {
		struct kv_thread *t;

		kv_pages_room(&r.db, 32);
		t = kv_enter();
		for (unsigned k = 0; k < times; k++)
			T_EQ(kv_pages_get(&r.db, obj, no, 1, NULL, p), 0);
		kv_exit(t);
	}
}

static unsigned cached(struct mpool_obj *obj, uint64_t first, unsigned n)
{
	struct kv_thread *t = kv_enter();
	unsigned found = 0;

	for (uint64_t no = first; no < first + n; no++)
		found += kv_page_peek(&r.db, mpool_obj_id(obj), no) != NULL;
	kv_exit(t);
	return found;
}

/* PAGE-4; @times: how often what passes through is read, at once */
static void hot_pages_stay(unsigned times)
{
	struct mpool_obj *obj;

	rig_open(&r, 2 << 20, 64 << 20);
	obj = rig_numbered(&r, PAGES);
	read_singly(obj, 0, 64, 1);
	read_singly(obj, 64, 64, 1);
	read_singly(obj, 0, 64, 1);
	T_EQ(cached(obj, 0, 64), 64);
	read_singly(obj, 128, PAGES - 128, times);
	T_OK(kv_slab_page_bytes(&r.db) / 4096 < PAGES / 3);
	T_EQ(cached(obj, 0, 64), 64);
	T_OK(cached(obj, PAGES - 32, 32) == 32);
	mpool_obj_close(obj);
	rig_close(&r);
}

static void what_is_read_once_pushes_nothing_out(void)
{
	hot_pages_stay(1);
}

static void who_asked_for_a_page_makes_it_no_more_wanted(void)
{
	hot_pages_stay(4);
}

/* SLAB-2: until the first write; then the window has its own part, and keeps it. */
static void an_idle_window_holds_pages(void)
{
	const unsigned slabs = (8 << 20) / RIG_SEG_BYTES;
	struct mpool_obj *obj;

	rig_open(&r, 8 << 20, 64 << 20);
	obj = rig_numbered(&r, PAGES);
	read_singly(obj, 0, PAGES, 1);
	T_EQ(kv_slab_page_bytes(&r.db), (slabs - 2) * RIG_SEG_BYTES);
	rig_segs(&r);
	for (unsigned i = 0; i < RIG_SEGS; i++)
		T_OK(kv_slab_take_image(&r.db, r.seg[i]->sg_bytes, &r.seg[i]->sg_image) != NULL);
	T_EQ(kv_slab_big_bytes(&r.db), 0);
	T_EQ(kv_slab_window_bytes(&r.db), RIG_SEGS * RIG_SEG_BYTES);
	read_singly(obj, 0, PAGES, 1);
	T_OK(kv_slab_page_bytes(&r.db) <= (slabs - RIG_SEGS) * RIG_SEG_BYTES);
	for (unsigned i = 0; i < RIG_SEGS; i++)
		kv_slab_drop_image(&r.db, &r.seg[i]->sg_image);
	mpool_obj_close(obj);
	rig_close(&r);
}

/* Pages of two objects, in any order, some of them twice and some cached: one submission. */
static void pages_ahead_are_there_afterwards(void)
{
	struct mpool_obj *obj[2];
	struct kv_want want[24];
	struct kv_thread *t;
	uint64_t reads, misses;
	const uint8_t *p;

	rig_open(&r, 8 << 20, 64 << 20);
	obj[0] = rig_numbered(&r, PAGES);
	obj[1] = rig_numbered(&r, PAGES);
	for (unsigned i = 0; i < 24; i++)
		want[i] = (struct kv_want){ .wa_obj = obj[i % 2], .wa_n = 1 + i % 3,
					    .wa_first = (i * 7) % 40 };
	t = kv_enter();
	T_EQ(kv_page_get(&r.db, obj[0], 14, NULL, &p), 0);
	kv_pages_ahead(&r.db, want, 24);
	misses = atomic_load(&r.db.d_count.page_misses);
	reads = atomic_load(&r.db.d_count.read_bytes[KV_READ_VALUE][MPOOL_CAPACITY]);
	T_EQ(reads, misses * 4096);
	for (unsigned i = 0; i < 24; i++)
		for (unsigned j = 0; j < want[i].wa_n; j++) {
			p = kv_page_peek(&r.db, mpool_obj_id(want[i].wa_obj),
					 want[i].wa_first + j);
			T_OK(p && page_is(p, want[i].wa_first + j));
		}
	kv_pages_ahead(&r.db, want, 24);
	kv_exit(t);
	T_EQ(atomic_load(&r.db.d_count.read_bytes[KV_READ_VALUE][MPOOL_CAPACITY]), reads);
	mpool_obj_close(obj[0]);
	mpool_obj_close(obj[1]);
	rig_close(&r);
}

static void failed_pages_ahead_are_not_cached(void)
{
	uint32_t crc[4] = { 1, 2, 3, 4 };
	struct mpool_obj *obj;
	struct kv_want want[2];
	struct kv_thread *t;
	const uint8_t *p;

	rig_open(&r, 8 << 20, 64 << 20);
	obj = rig_numbered(&r, PAGES);
	want[0] = (struct kv_want){ .wa_obj = obj, .wa_first = 3, .wa_n = 4, .wa_crc = crc };
	want[1] = (struct kv_want){ .wa_obj = obj, .wa_first = 20, .wa_n = 1 };
	t = kv_enter();
	kv_pages_ahead(&r.db, want, 2);
	for (unsigned i = 3; i < 7; i++)
		T_OK(!kv_page_peek(&r.db, mpool_obj_id(obj), i));
	T_OK(kv_page_peek(&r.db, mpool_obj_id(obj), 20) != NULL);
	T_EQ(kv_page_get(&r.db, obj, 5, NULL, &p), 0);
	T_OK(page_is(p, 5));
	/* beyond the end of the object: refused when it is submitted, or when it is read */
	want[0].wa_first = 1u << 20;
	want[0].wa_crc = NULL;
	want[1].wa_first = 30;
	kv_pages_ahead(&r.db, want, 2);
	T_OK(!kv_page_peek(&r.db, mpool_obj_id(obj), 1u << 20));
	T_OK(kv_page_peek(&r.db, mpool_obj_id(obj), 30) != NULL);
	kv_exit(t);
	mpool_obj_close(obj);
	rig_close(&r);
}

static void wrong_crc_is_refused_and_not_cached(void)
{
	struct mpool_obj *obj;
	struct kv_thread *t;
	const uint8_t *p;
	uint32_t crc = 1;

	rig_open(&r, 8 << 20, 64 << 20);
	obj = rig_numbered(&r, PAGES);
	t = kv_enter();
	T_EQ(kv_page_get(&r.db, obj, 5, &crc, &p), -EUCLEAN);
	T_OK(kv_page_peek(&r.db, mpool_obj_id(obj), 5) == NULL);
	T_EQ(kv_page_get(&r.db, obj, 5, NULL, &p), 0);
	T_OK(page_is(p, 5));
	kv_exit(t);
	mpool_obj_close(obj);
	rig_close(&r);
}

/* An operation that does not wait has pages in memory of its own, the pool may keep none. */
static void a_bad_page_spoils_no_neighbour(void)
{
	struct kv_async as = { .as_db = &r.db };
	uint32_t crc[4];
	struct kv_want want = { .wa_first = 8, .wa_n = 4, .wa_crc = crc };
	struct kv_aload *al;
	struct kv_thread *t;
	const uint8_t *p;

	rig_open(&r, 8 << 20, 64 << 20);
	want.wa_obj = rig_numbered(&r, PAGES);
	t = kv_enter();
	for (unsigned i = 0; i < 4; i++) {
		T_EQ(kv_page_get(&r.db, want.wa_obj, 8 + i, NULL, &p), 0);
		crc[i] = mpool_crc32c(0, p, 4096) ^ (i == 2);
	}
	kv_page_purge(&r.db, mpool_obj_id(want.wa_obj), PAGES);
	kv_async_begin(&as);
	kv_pages_ahead(&r.db, &want, 1);
	kv_async_end();
	al = kv_async_next(&as);
	T_OK(al && al->al_load.ld_n == 4 && !kv_async_next(&as));
	do
		T_EQ(mpool_read(want.wa_obj, al->al_load.ld_read.rd_io.off,
				al->al_load.ld_read.rd_io.iov, 1), 0);
	while (kv_async_done(al, 0));
	kv_page_purge(&r.db, mpool_obj_id(want.wa_obj), PAGES);
	kv_async_begin(&as);
	for (unsigned i = 0; i < 4; i++) {
		T_EQ(kv_pages_get(&r.db, want.wa_obj, 8 + i, 1, &crc[i], &p),
		     i == 2 ? -EUCLEAN : 0);
		T_OK(i == 2 || page_is(p, 8 + i));
	}
	kv_async_end();
	kv_exit(t);
	kv_async_free(&as);
	mpool_obj_close(want.wa_obj);
	rig_close(&r);
}

/* RD-4: of a get that meets many runs, say, each of which needs pages that it misses */
static void an_operation_waits_outside_for_each_of_many_pages(void)
{
	struct kv_async as = { .as_db = &r.db };
	unsigned inside = 0, runs = 0;
	struct mpool_obj *obj;
	const uint8_t *p;
	int rc;

	rig_open(&r, 8 << 20, 64 << 20);
	obj = rig_numbered(&r, PAGES);
	do {
		struct kv_thread *t;

		kv_async_try(&as);
		inside += !kv_async_is_on(&r.db);
		t = kv_enter();
		rc = 0;
		for (unsigned i = 0; i < 200 && !rc; i++) {
			rc = kv_page_get(&r.db, obj, i, NULL, &p);
			T_OK(rc || page_is(p, i));
		}
		kv_exit(t);
		runs++;
	} while (kv_async_again(&as, rc, false));
	T_EQ(rc, 0);
	T_EQ(inside, 0);
	T_EQ(runs, 201);
	mpool_obj_close(obj);
	rig_close(&r);
}

/* ---- images --------------------------------------------------------------------------- */

static void only_idle_images_are_stolen(void)
{
	struct kv_seg *seg[40];
	unsigned had = 0;

	rig_open(&r, 4 << 20, 64 << 20);
	for (unsigned i = 0; i < 40; i++) {
		T_EQ(kv_seg_alloc(&r.db, 0, KV_VLOG, RIG_SEG_BYTES, true, &seg[i]), 0);
		T_OK(kv_slab_take_image(&r.db, seg[i]->sg_bytes, &seg[i]->sg_image) != NULL);
		if (i >= 3)
			kv_slab_image_idle(&r.db, &seg[i]->sg_image);
	}
	for (unsigned i = 0; i < 40; i++)
		had += atomic_load(&seg[i]->sg_image) != NULL;
	T_OK(had < 16 && had > 3);
	for (unsigned i = 0; i < 3; i++)
		T_OK(atomic_load(&seg[i]->sg_image) != NULL);
	T_OK(kv_slab_window_bytes(&r.db) <= 4 << 20);
	for (unsigned i = 0; i < 40; i++)
		kv_slab_drop_image(&r.db, &seg[i]->sg_image);
	rig_close(&r);
}

/* Takes and drops images of @seg; how often the memory was @mem. */
static unsigned times_taken(struct kv_seg *seg, const uint8_t *mem)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 64; i++) {
		uint8_t *p = kv_slab_take_image(&r.db, seg->sg_bytes, &seg->sg_image);

		n += p == mem;
		memset(p, 0xff, RIG_SEG_BYTES);
		kv_slab_drop_image(&r.db, &seg->sg_image);
		kv_retire_barrier();
	}
	return n;
}

static void a_pinned_image_stays_until_it_is_unpinned(void)
{
	struct kv_thread *t;
	uint64_t spare;
	void *pin[3];
	uint8_t *mem;

	rig_open(&r, 8 << 20, 64 << 20);
	rig_segs(&r);
	mem = kv_slab_take_image(&r.db, r.seg[0]->sg_bytes, &r.seg[0]->sg_image);
	memset(mem, 7, RIG_SEG_BYTES);
	t = kv_enter();
	pin[0] = kv_slab_pin(&r.db, &r.seg[0]->sg_image, mem);
	pin[1] = kv_slab_pin(&r.db, &r.seg[0]->sg_image, mem);
	T_OK(pin[0] && pin[1]);
	kv_exit(t);
	kv_slab_drop_image(&r.db, &r.seg[0]->sg_image);
	t = kv_enter();	/* it is no longer that segment's */
	pin[2] = kv_slab_pin(&r.db, &r.seg[0]->sg_image, mem);
	kv_exit(t);
	T_OK(!pin[2]);
	T_EQ(times_taken(r.seg[1], mem), 0);
	kv_slab_unpin(&r.db, pin[0]);
	T_EQ(times_taken(r.seg[1], mem), 0);
	for (unsigned i = 0; i < RIG_SEG_BYTES; i++)
		T_EQ(mem[i], 7);
	T_EQ(kv_slab_window_bytes(&r.db), RIG_SEG_BYTES);
	spare = kv_slab_spare_bytes(&r.db);
	kv_slab_unpin(&r.db, pin[1]);
	T_EQ(kv_slab_window_bytes(&r.db), 0);
	T_EQ(kv_slab_spare_bytes(&r.db), spare + RIG_SEG_BYTES);
	T_OK(times_taken(r.seg[1], mem) > 0);
	rig_close(&r);
}

static void few_images_can_be_pinned(void)
{
	struct kv_thread *t;
	void *pin[RIG_SEGS];
	unsigned n = 0;

	rig_open(&r, 4 << 20, 64 << 20);	/* 16 slabs: 2 pins */
	rig_segs(&r);
	for (unsigned i = 0; i < RIG_SEGS; i++) {
		uint8_t *mem = kv_slab_take_image(&r.db, r.seg[i]->sg_bytes, &r.seg[i]->sg_image);

		kv_slab_image_idle(&r.db, &r.seg[i]->sg_image);
		t = kv_enter();
		pin[i] = kv_slab_pin(&r.db, &r.seg[i]->sg_image, mem);
		n += pin[i] != NULL;
		kv_exit(t);
	}
	T_EQ(n, 2);
	kv_slab_unpin(&r.db, pin[0]);
	t = kv_enter();
	pin[0] = kv_slab_pin(&r.db, &r.seg[3]->sg_image, atomic_load(&r.seg[3]->sg_image));
	kv_exit(t);
	T_OK(pin[0] != NULL);
	kv_slab_unpin(&r.db, pin[0]);
	kv_slab_unpin(&r.db, pin[1]);
	for (unsigned i = 0; i < RIG_SEGS; i++)
		kv_slab_drop_image(&r.db, &r.seg[i]->sg_image);
	rig_close(&r);
}

/* As many as there is a number for: later pins get a copy, and an unpin of one frees nothing. */
static void pins_of_a_slab_are_counted_to_the_end(void)
{
	struct kv_thread *t;
	void *pin = NULL, *next;
	unsigned n = 0;
	uint8_t *mem;

	rig_open(&r, 8 << 20, 64 << 20);
	rig_segs(&r);
	mem = kv_slab_take_image(&r.db, r.seg[0]->sg_bytes, &r.seg[0]->sg_image);
	t = kv_enter();
	while (n < (1u << 24) + 1 && (next = kv_slab_pin(&r.db, &r.seg[0]->sg_image, mem))) {
		pin = next;
		n++;
	}
	kv_exit(t);
	T_OK(n > 1u << 20);
	kv_slab_drop_image(&r.db, &r.seg[0]->sg_image);
	kv_retire_barrier();
	kv_retire_barrier();
	kv_slab_unpin(&r.db, pin);
	T_EQ(times_taken(r.seg[1], mem), 0);
	while (--n)
		kv_slab_unpin(&r.db, pin);
	T_OK(times_taken(r.seg[1], mem) > 0);
	rig_close(&r);
}

/* How many of the images of all segments can be pinned at a time. */
/* Though all have been used, and the pinned ones are the oldest of them. */
static void a_pinned_image_is_not_stolen(void)
{
	struct kv_seg *seg[40];
	struct kv_thread *t;
	unsigned had = 0;
	void *pin[2];

	rig_open(&r, 4 << 20, 64 << 20);
	for (unsigned i = 0; i < 40; i++) {
		uint8_t *mem;

		T_EQ(kv_seg_alloc(&r.db, 0, KV_VLOG, RIG_SEG_BYTES, true, &seg[i]), 0);
		mem = kv_slab_take_image(&r.db, seg[i]->sg_bytes, &seg[i]->sg_image);
		T_OK(mem != NULL);
		kv_slab_image_idle(&r.db, &seg[i]->sg_image);
		t = kv_enter();
		if (i < 2)
			T_OK((pin[i] = kv_slab_pin(&r.db, &seg[i]->sg_image, mem)) != NULL);
		for (unsigned k = 0; k <= i; k++) {
			mem = atomic_load(&seg[k]->sg_image);
			if (mem)
				kv_slab_touch(&r.db, mem);
		}
		kv_exit(t);
		T_OK(atomic_load(&seg[0]->sg_image) && atomic_load(&seg[i != 0]->sg_image));
	}
	for (unsigned i = 0; i < 40; i++)
		had += atomic_load(&seg[i]->sg_image) != NULL;
	T_OK(had < 16);	/* others were */
	kv_slab_unpin(&r.db, pin[0]);
	kv_slab_unpin(&r.db, pin[1]);
	for (unsigned i = 0; i < 40; i++)
		kv_slab_drop_image(&r.db, &seg[i]->sg_image);
	rig_close(&r);
}

static unsigned pins_of_all(void)
{
	void *pin[RIG_SEGS];
	unsigned n = 0;

	for (unsigned i = 0; i < RIG_SEGS; i++) {
		uint8_t *mem = kv_slab_take_image(&r.db, r.seg[i]->sg_bytes, &r.seg[i]->sg_image);
		struct kv_thread *t = kv_enter();

		pin[i] = kv_slab_pin(&r.db, &r.seg[i]->sg_image, mem);
		n += pin[i] != NULL;
		kv_exit(t);
	}
	for (unsigned i = 0; i < RIG_SEGS; i++) {
		if (pin[i])
			kv_slab_unpin(&r.db, pin[i]);
		kv_slab_drop_image(&r.db, &r.seg[i]->sg_image);
	}
	kv_retire_barrier();
	return n;
}

/* What the image of each segment is full of; 0: nothing yet, or it is about to go. */
static _Atomic(uint8_t) filled[RIG_SEGS];
static _Atomic(bool) is_over;
static _Atomic(unsigned) pinned_by[4];	/* times, by each thread */

static void *pinner(void *arg)
{
	struct job *j = arg;

	while (!atomic_load(&is_over)) {
		unsigned no = t_rand(&j->rnd) % RIG_SEGS;
		uint8_t with = atomic_load(&filled[no]), *mem;
		struct kv_thread *t = kv_enter();
		void *pin = NULL;

		mem = atomic_load(&r.seg[no]->sg_image);
		if (with && mem)
			pin = kv_slab_pin(&r.db, &r.seg[no]->sg_image, mem);
		kv_exit(t);
		if (!pin)
			continue;
		/* else it may be the next image */
		for (unsigned i = atomic_load(&filled[no]) == with ? 0 : 500; i < 500; i++)
			j->wrong += mem[t_rand(&j->rnd) % RIG_SEG_BYTES] != with;
		kv_slab_unpin(&r.db, pin);
		atomic_fetch_add(&pinned_by[j->no], 1);
	}
	return NULL;
}

static void threads_that_pin_leave_nothing_behind(void)
{
	struct job j[4];
	pthread_t th[4];
	unsigned most, least = 0;

	rig_open(&r, 8 << 20, 64 << 20);
	rig_segs(&r);
	most = pins_of_all();
	for (unsigned i = 0; i < 4; i++) {
		j[i] = (struct job){ .rnd = t_rand(&r.rnd), .no = i };
		T_EQ(pthread_create(&th[i], NULL, pinner, &j[i]), 0);
	}
	for (unsigned i = 0; i < 4000 || least < 100; i++) {
		unsigned no = t_rand(&r.rnd) % RIG_SEGS;

		least = UINT_MAX;
		for (unsigned k = 0; k < 4; k++)
			if (atomic_load(&pinned_by[k]) < least)
				least = atomic_load(&pinned_by[k]);
		atomic_store(&filled[no], 0);
		kv_slab_drop_image(&r.db, &r.seg[no]->sg_image);
		memset(kv_slab_take_image(&r.db, r.seg[no]->sg_bytes, &r.seg[no]->sg_image),
		       i % 255 + 1, RIG_SEG_BYTES);
		atomic_store(&filled[no], i % 255 + 1);
	}
	atomic_store(&is_over, true);
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(th[i], NULL);
		T_EQ(j[i].wrong, 0);
	}
	for (unsigned i = 0; i < RIG_SEGS; i++)
		kv_slab_drop_image(&r.db, &r.seg[i]->sg_image);
	kv_retire_barrier();
	T_EQ(kv_slab_window_bytes(&r.db), 0);
	T_EQ(pins_of_all(), most);
	rig_close(&r);
}

static void taker_never_waits_for_itself(void)
{
	struct kv_seg *seg[30];

	rig_open(&r, 4 << 20, 64 << 20);
	for (unsigned i = 0; i < 30; i++) {
		T_EQ(kv_seg_alloc(&r.db, 0, KV_VLOG, RIG_SEG_BYTES, true, &seg[i]), 0);
		T_OK(kv_slab_take_image(&r.db, seg[i]->sg_bytes, &seg[i]->sg_image) != NULL);
		memset(atomic_load(&seg[i]->sg_image), (int)i, RIG_SEG_BYTES);
	}
	for (unsigned i = 0; i < 30; i++)
		T_EQ(atomic_load(&seg[i]->sg_image)[i], i);
	for (unsigned i = 0; i < 30; i++)
		kv_slab_drop_image(&r.db, &seg[i]->sg_image);
	kv_retire_barrier();
	kv_retire_barrier();
	T_EQ(kv_slab_window_bytes(&r.db), 0);
	rig_close(&r);
}

/* ---- values ------------------------------------------------------------------------------ */

static int read_value(unsigned seg, uint32_t off8, uint32_t vlen, uint32_t crc, uint8_t *buf,
		      size_t size)
{
	struct kv_ent e = { .e_kind = KV_ENT_REF, .e_seg = r.seg[seg], .e_off8 = off8,
			    .e_vlen = vlen, .e_vcrc = crc };
	struct kv_thread *t = kv_enter();
	int rc = kv_value_read(&r.db, &e, buf, size);

	kv_exit(t);
	return rc;
}

static void values_of_all_sizes_are_read(void)
{
	uint8_t *buf = malloc(RIG_SEG_BYTES);

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	for (unsigned i = 0; i < 600; i++) {
		uint64_t x = t_rand(&r.rnd);
		uint32_t vlen = x % (i % 3 ? 6000 : 200000), off8, crc;
		size_t size = i % 5 ? vlen : vlen / 2;
		unsigned s = (x >> 60) % RIG_SEGS;

		off8 = (uint32_t)((x >> 32) % ((RIG_SEG_BYTES - vlen) / 8));
		crc = mpool_crc32c(0, r.content[s] + off8 * 8, vlen);
		memset(buf, 0, RIG_SEG_BYTES);
		T_EQ(read_value(s, off8, vlen, crc, buf, size), 0);
		T_MEMEQ(buf, r.content[s] + off8 * 8, size);
		T_EQ(buf[size], 0);
		if (vlen)
			T_EQ(read_value(s, off8, vlen, crc ^ 1, buf, size), -EUCLEAN);
	}
	T_OK(strstr(kvdb_error_detail()->text, "object"));
	T_EQ(read_value(0, RIG_SEG_BYTES / 8, 1, 0, buf, 1), -EUCLEAN);
	T_EQ(read_value(0, UINT32_MAX, KVDB_VALUE_MAX, 0, buf, 1), -EUCLEAN);
	T_EQ(read_value(0, 0, KVDB_VALUE_MAX + 1, 0, buf, 1), -EUCLEAN);
	rig_close(&r);
	free(buf);
}

static void image_is_preferred_to_the_device(void)
{
	uint8_t buf[100], *mem;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	mem = kv_slab_take_image(&r.db, r.seg[0]->sg_bytes, &r.seg[0]->sg_image);
	memcpy(mem, r.content[0], RIG_SEG_BYTES);
	T_EQ(read_value(0, 9, 100, 12345, buf, 100), 0);
	T_MEMEQ(buf, r.content[0] + 72, 100);
	T_EQ(kv_counted(&kv_tctx(&r.db)->tc_value_dev), 0);
	kv_slab_drop_image(&r.db, &r.seg[0]->sg_image);
	T_EQ(read_value(0, 9, 100, mpool_crc32c(0, r.content[0] + 72, 100), buf, 100), 0);
	T_EQ(kv_counted(&kv_tctx(&r.db)->tc_value_dev), 1);
	rig_close(&r);
}

/* A cached copy that went bad is read again from the device. */
static void bad_cached_copy_is_read_again(void)
{
	uint32_t crc;
	uint8_t buf[100], *p;
	struct kv_thread *t;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	crc = mpool_crc32c(0, r.content[0], 100);
	T_EQ(read_value(0, 0, 100, crc, buf, 100), 0);
	t = kv_enter();
	p = (uint8_t *)kv_page_peek(&r.db, r.seg[0]->sg_id, 0);
	kv_exit(t);
	T_OK(p);
	p[50] ^= 1;
	T_EQ(read_value(0, 0, 100, crc, buf, 100), 0);
	T_MEMEQ(buf, r.content[0], 100);
	t = kv_enter();
	T_OK(kv_page_peek(&r.db, r.seg[0]->sg_id, 0) == NULL);
	kv_exit(t);
	rig_close(&r);
}

int main(void)
{
	T_RUN(second_read_comes_from_memory);
	T_RUN(what_is_read_once_pushes_nothing_out);
	T_RUN(who_asked_for_a_page_makes_it_no_more_wanted);
	T_RUN(an_idle_window_holds_pages);
	T_RUN(pages_ahead_are_there_afterwards);
	T_RUN(failed_pages_ahead_are_not_cached);
	T_RUN(wrong_crc_is_refused_and_not_cached);
	T_RUN(a_bad_page_spoils_no_neighbour);
	T_RUN(an_operation_waits_outside_for_each_of_many_pages);
	T_RUN(only_idle_images_are_stolen);
	T_RUN(a_pinned_image_stays_until_it_is_unpinned);
	T_RUN(few_images_can_be_pinned);
	T_RUN(pins_of_a_slab_are_counted_to_the_end);
	T_RUN(a_pinned_image_is_not_stolen);
	T_RUN(threads_that_pin_leave_nothing_behind);
	T_RUN(taker_never_waits_for_itself);
	T_RUN(values_of_all_sizes_are_read);
	T_RUN(image_is_preferred_to_the_device);
	T_RUN(bad_cached_copy_is_read_again);
	T_RUN(tiny_pool_stays_right_under_threads);
	return t_done();
}
