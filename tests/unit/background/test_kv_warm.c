/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Segments that are read back into the window, on a real database without
 * threads: what is read from them, what is not put there, and how much memory
 * that takes.
 */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "log/flush.h"
#include "kv_clock.h"
#include "kv_fresh.h"
#include "tree/leaf.h"
#include "mem/memtable.h"
#include "compact/reloc.h"
#include "db/thread.h"
#include "seg/value.h"
#include "background/warm.h"
#include "read/find.h"

#define VLEN	4000u
#define MIB	(1u << 20)
#define NSEC	1000000000ull

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static uint32_t keys;
static uint32_t version[20000];

static void open_at(uint32_t flags, const struct kvdb_clock *clock)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = flags;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	o.interval_ms = KVDB_INTERVAL_NONE;
	o.clock = clock;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	db->d_budget.b_point_bytes = 0;	/* entry() asks runs */
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static void open_with(uint32_t flags)
{
	open_at(flags, NULL);
}

static void open_db(void)
{
	open_with(KVDB_MANUAL);
}

static void value(uint32_t k, uint8_t *val)
{
	/* its second half repeats eight bytes: it packs */
	uint64_t x = (uint64_t)version[k] << 32 | k, v = 0;

	for (unsigned i = 0; i < VLEN; i += 8) {
		v = i > VLEN / 2 ? v : t_rand(&x);
		memcpy(val + i, &v, 8);
	}
}

static size_t key_of(uint32_t k, char *key)
{
	return (size_t)sprintf(key, "%06u-key", k);
}

static void put(uint32_t k)
{
	uint8_t val[VLEN];
	char key[32];

	version[k]++;
	value(k, val);
	T_EQ(kvdb_put(kvs, key, key_of(k, key), val, VLEN), 0);
}

static int get(uint32_t k)
{
	uint8_t want[VLEN], got[VLEN];
	size_t len = 0;
	char key[32];
	int rc = kvdb_get(kvs, key, key_of(k, key), got, VLEN, &len);

	if (rc)
		return rc;
	value(k, want);
	return len == VLEN && !memcmp(want, got, VLEN) ? 0 : -EILSEQ;
}

static void all_are_right(void)
{
	for (uint32_t k = 0; k < keys; k++) {
		int rc = get(k);

		if (rc)
			T_FAIL("key %u: %d", k, rc);
	}
}

/* A store of @n values, opened anew. */
static void fresh(uint32_t seg_bytes, uint32_t n, enum kvdb_compress how)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;

	kv_fresh(dir, sizeof(dir), "kv_warm", 192u << 20, seg_bytes);
	o.flags = KVDB_MANUAL;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	ko.compress = how;
	T_EQ(kvdb_kvs_create(db, "s", &ko), 0);
	T_EQ(kvdb_close(db), 0);
	open_db();
	keys = n;
	memset(version, 0, sizeof(version));
	for (uint32_t k = 0; k < keys; k++) {
		put(k);
		if (k % 3000 == 2999)
			T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
}

static void reopen(void)
{
	T_EQ(kvdb_close(db), 0);
	open_db();
}

static void done(void)
{
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static void warm(void)
{
	while (kv_warm_step(db))
		;
}

/* As many reads through the pool as warm everything, of a value that is cold. */
static void ask_for(uint32_t k)
{
	for (uint32_t i = 0; i < 20000; i++)
		T_EQ(get(k), 0);
}

/* Of one in the last segment. */
static void ask(void)
{
	ask_for(keys - 1);
}

static struct kvdb_stats stats(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(db, &st), 0);
	return st;
}

static void entry(uint32_t k, struct kv_ent *e)
{
	struct kv_thread *t = kv_enter();
	char key[32];

	T_EQ(kv_tree_lookup(db, atomic_load(&kvs->k_tree), key, key_of(k, key), KV_SEQ_NOW, e), 0);
	kv_exit(t);
	T_EQ(e->e_kind, KV_ENT_REF);
}

/* Turns a bit of the value of key @k over on its device. */
static struct kv_seg *damage(uint32_t k)
{
	uint64_t pos, len, off;
	struct kv_ent e;
	uint8_t *page;
	int fd;

	entry(k, &e);
	off = (uint64_t)e.e_off8 * 8;
	T_EQ(mpool_obj_place(e.e_seg->sg_obj, off / 4096 * 4096, &fd, &pos, &len), 0);
	T_EQ(posix_memalign((void **)&page, 4096, 4096), 0);
	T_EQ(pread(fd, page, 4096, (off_t)pos), 4096);
	page[off % 4096] ^= 1;
	T_EQ(pwrite(fd, page, 4096, (off_t)pos), 4096);
	free(page);
	return e.e_seg;
}

static void a_store_that_is_read_comes_into_the_window(void)
{
	struct kvdb_stats before, st;

	fresh(MIB, 4000, KVDB_COMPRESS_NONE);
	reopen();
	T_EQ(get(7), 0);
	warm();
	T_OK(stats().window_bytes <= 4 * MIB);	/* of the logs: a few reads warm nothing */
	all_are_right();
	warm();
	before = stats();
	T_OK(before.window_bytes >= 14 * MIB);
	all_are_right();
	st = stats();
	/* all but what a last, short segment holds */
	T_OK(st.value_mem - before.value_mem >= keys - 300);
	/* values move out of segments with such images, and their images go */
	for (unsigned i = 0; i < 3; i++) {
		for (uint32_t k = i; k < keys; k += 3)
			put(k);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		all_are_right();
		warm();
	}
	T_OK(stats().segments_freed > 8);
	done();
}

static void small_segments_come_too_while_there_is_plenty(void)
{
	struct kvdb_stats before;

	fresh(MIB, 60, KVDB_COMPRESS_NONE);
	reopen();
	ask();
	warm();
	before = stats();
	all_are_right();
	T_EQ(stats().value_mem - before.value_mem, keys);
	done();
}

static void closing_gives_up_a_segment_that_is_being_read(void)
{
	fresh(MIB, 1000, KVDB_COMPRESS_NONE);
	reopen();
	all_are_right();
	T_EQ(kv_warm_step(db), 1);
	T_OK(db->d_bg.bd_warm.wm_seg);
	T_EQ(atomic_load(&db->d_bg.bd_warm.wm_seg->sg_image), NULL);
	reopen();
	all_are_right();
	done();
}

static void packed_values_are_read_from_images(void)
{
	struct kv_ent e;
	uint8_t *image = NULL;
	uint64_t reads;
	uint32_t k;

	fresh(MIB, 5000, KVDB_COMPRESS_LZ4);
	for (k = 0; k < keys; k += 2)
		put(k);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	T_OK(stats().pack_out_bytes);
	reopen();
	all_are_right();
	all_are_right();
	warm();
	reads = stats().page_misses;
	all_are_right();
	T_OK(stats().page_misses - reads < 500);
	/* memory that went bad is not unpacked */
	for (k = 1; k < keys; k += 2) {
		entry(k, &e);
		image = atomic_load(&e.e_seg->sg_image);
		if (e.e_pack && image)
			break;
	}
	T_OK(k < keys);
	image[(size_t)e.e_off8 * 8 + e.e_plen / 2] ^= 1;
	T_EQ(get(k), 0);
	done();
}

static void a_damaged_segment_gets_no_image(void)
{
	struct kv_seg *s;

	fresh(MIB, 2000, KVDB_COMPRESS_NONE);
	reopen();
	s = damage(600);
	ask();
	warm();
	T_OK(stats().window_bytes >= 5 * MIB);
	T_EQ(get(600), -EUCLEAN);
	T_EQ(atomic_load(&s->sg_image), NULL);
	for (uint32_t k = 0; k < keys; k++)
		T_EQ(get(k), k == 600 ? -EUCLEAN : 0);
	done();
}

/* WM3: what went wrong on the way, once, keeps no segment out of the window for good. */
static void a_segment_that_is_right_again_gets_an_image(void)
{
	struct kv_seg *s;
	struct kv_ent e;

	fresh(MIB, 2000, KVDB_COMPRESS_NONE);
	T_EQ(kvdb_close(db), 0);
	open_at(KVDB_MANUAL, &test_clock);
	s = damage(600);
	ask_for(601);
	warm();
	T_EQ(atomic_load(&s->sg_image), NULL);
	entry(601, &e);
	T_EQ(e.e_seg, s);
	ask_for(601);
	warm();		/* nothing is read again before its pause is over */
	T_EQ(s->sg_cold_pause_ns, NSEC);
	now_ns += 2 * NSEC;
	ask_for(601);
	warm();
	T_EQ(atomic_load(&s->sg_image), NULL);
	T_EQ(s->sg_cold_pause_ns, 2 * NSEC);
	damage(600);	/* the bit is turned back */
	ask_for(601);
	warm();
	T_EQ(atomic_load(&s->sg_image), NULL);
	now_ns += 2 * NSEC;
	ask_for(601);
	warm();
	T_OK(atomic_load(&s->sg_image));
	all_are_right();
	done();
}

/* A key whose value is in the window, or is not. */
static uint32_t key_that_is(bool warm)
{
	struct kv_ent e;

	for (uint32_t k = 0; k < keys; k++) {
		entry(k, &e);
		if ((atomic_load(&e.e_seg->sg_image) != NULL) == warm)
			return k;
	}
	T_FAIL("no value is %s", warm ? "warm" : "cold");
	return 0;
}

/* Reads of what is warm already show that reads are many, if one misses. */
static void what_is_warm_hastens_the_rest(void)
{
	uint32_t near, far;

	fresh(MIB, 4000, KVDB_COMPRESS_NONE);
	reopen();
	for (uint32_t k = 0; k < 1000; k++)
		T_EQ(get(k), 0);
	T_EQ(stats().value_dev, 1000);	/* also of those that had to wait */
	warm();
	T_OK(stats().window_bytes <= 5 * MIB);
	near = key_that_is(true);
	far = key_that_is(false);
	for (uint32_t i = 0; i < 3000; i++)
		T_EQ(get(near), 0);
	warm();
	T_OK(stats().window_bytes <= 5 * MIB);
	for (uint32_t i = 0; i < 3000; i++)
		T_EQ(get(i % 10 ? near : far), 0);
	warm();
	T_OK(stats().window_bytes >= 14 * MIB);
	done();
}

static void a_sixteenth_of_the_memory_stays_unused(void)
{
	uint64_t slabs, window;

	fresh(256u << 10, 11500, KVDB_COMPRESS_NONE);	/* 46 MB */
	reopen();
	slabs = db->d_budget.b_slab_bytes;
	T_OK(stats().segments * (256u << 10) > slabs * 9 / 10);
	ask();
	warm();
	window = stats().window_bytes;
	T_OK(window > slabs * 7 / 8);
	T_OK(window <= slabs - slabs / 16);
	all_are_right();
	done();
}

static void what_does_not_fit_is_left_to_the_pool(void)
{
	fresh(256u << 10, 16500, KVDB_COMPRESS_NONE);	/* 66 MB */
	reopen();
	ask();
	warm();
	T_OK(stats().window_bytes <= 4 * MIB);
	all_are_right();
	done();
}

/* ---- threads --------------------------------------------------------------------- */

static _Atomic(bool) is_over;

struct reader {
	pthread_t tid;
	uint64_t rnd;
	uint64_t wrong;
};

/* The lower half of the keys is still; a value that is pinned stays what it was. */
static void *reader_main(void *arg)
{
	struct reader *r = arg;
	uint8_t want[VLEN];
	char key[32];

	while (!atomic_load(&is_over)) {
		uint32_t k = (uint32_t)(t_rand(&r->rnd) % (keys / 2));
		struct kvdb_pin pin;

		r->wrong += get(k) != 0;
		k = (uint32_t)(t_rand(&r->rnd) % (keys / 2));
		value(k, want);
		if (kvdb_get_pinned(kvs, key, key_of(k, key), &pin)) {
			r->wrong++;
			continue;
		}
		r->wrong += get(k) != 0;
		r->wrong += pin.vlen != VLEN || memcmp(pin.val, want, VLEN);
		kvdb_unpin(&pin);
	}
	return NULL;
}

/* Its images push those that were read back out, its garbage makes values move. */
static void *writer_main(void *arg)
{
	for (uint32_t k = keys / 2; !atomic_load(&is_over); k = k + 1 < keys ? k + 1 : keys / 2)
		put(k);
	return arg;
}

static void threads_read_and_write_meanwhile(void)
{
	struct reader r[3] = { 0 };
	pthread_t writer;
	uint64_t from, target;
	struct timespec nap = { .tv_nsec = 20000000 };

	fresh(256u << 10, 6000, KVDB_COMPRESS_NONE);
	T_EQ(kvdb_close(db), 0);
	open_with(0);
	is_over = false;
	for (unsigned i = 0; i < 3; i++) {
		r[i].rnd = i + 1;
		T_EQ(pthread_create(&r[i].tid, NULL, reader_main, &r[i]), 0);
	}
	while (stats().window_bytes < 16 * MIB)
		nanosleep(&nap, NULL);
	T_EQ(pthread_create(&writer, NULL, writer_main, NULL), 0);
	from = stats().user_write_bytes;
	target = from + (getenv("TEST_SHORT") ? 50 * MIB : 100ull * MIB);
	while (stats().user_write_bytes < target)
		nanosleep(&nap, NULL);
	atomic_store(&is_over, true);
	pthread_join(writer, NULL);
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(r[i].tid, NULL);
		T_EQ(r[i].wrong, 0);
	}
	all_are_right();
	done();
}

int main(void)
{
	T_RUN(a_store_that_is_read_comes_into_the_window);
	T_RUN(small_segments_come_too_while_there_is_plenty);
	T_RUN(closing_gives_up_a_segment_that_is_being_read);
	T_RUN(packed_values_are_read_from_images);
	T_RUN(a_damaged_segment_gets_no_image);
	T_RUN(a_segment_that_is_right_again_gets_an_image);
	T_RUN(what_is_warm_hastens_the_rest);
	T_RUN(a_sixteenth_of_the_memory_stays_unused);
	T_RUN(what_does_not_fit_is_left_to_the_pool);
	T_RUN(threads_read_and_write_meanwhile);
	return t_done();
}
