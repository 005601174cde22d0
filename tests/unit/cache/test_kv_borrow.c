/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Lent memory: the page pool has what memtables and cursors leave, gives it back when they
 * want it, and pages are right meanwhile (LE1).
 */
#include <pthread.h>

#include "kv_rig.h"
#include "cache/borrow.h"
#include "mem/memtable.h"

#define PAGES	4096u	/* 16 MiB: more than slabs and what may be lent */
#define SLABS	(2ull << 20)
#define OWNED	(8ull << 20)
#define SECOND	1000000000ull

static struct rig r;
static struct mpool_obj *obj;

static void open_rig(void)
{
	rig_open(&r, SLABS, 64 << 20);
	/* again, with more that can be lent */
	kv_pagepool_fini(&r.db);
	r.db.d_budget.b_mt_bytes = OWNED - (1 << 20);
	r.db.d_budget.b_scan_bytes = 1 << 20;
	T_EQ(kv_pagepool_init(&r.db), 0);
	T_EQ(kv_mts_init(&r.db), 0);
	obj = rig_numbered(&r, PAGES);
}

static void close_rig(void)
{
	mpool_obj_close(obj);
	kv_retire_barrier();
	kv_mts_fini(&r.db);
	rig_close(&r);
}

/* Reads the pages from @first on; returns how many were wrong. */
static unsigned read_pages(uint64_t first, unsigned n)
{
	unsigned wrong = 0;

	for (uint64_t no = first; no < first + n; no++) {
		struct kv_thread *t;
		const uint8_t *p;
		uint64_t is;

		kv_pages_room(&r.db, KV_GET_PAGES);
		t = kv_enter();
		if (kv_pages_get(&r.db, obj, no % PAGES, 1, NULL, &p)) {
			wrong++;
		} else {
			memcpy(&is, p, 8);
			wrong += is != no % PAGES;
		}
		kv_exit(t);
	}
	return wrong;
}

static void write_bytes(uint64_t bytes)
{
	atomic_store(&r.db.d_count.mt_mem, bytes);
}

static void what_was_in_use_lately_is_not_lent(void)
{
	uint64_t peak = 0, since = 0;

	T_EQ(kv_borrow_room(800, 0, 5, &peak, &since), 600);
	T_EQ(kv_borrow_room(800, 300, 10, &peak, &since), 300);
	T_EQ(kv_borrow_room(800, 100, 10 + SECOND, &peak, &since), 300);
	T_EQ(kv_borrow_room(800, 100, 10 + 2 * SECOND, &peak, &since), 400);
	T_EQ(kv_borrow_room(800, 100, 10 + 3 * SECOND, &peak, &since), 400);
	T_EQ(kv_borrow_room(800, 100, 10 + 4 * SECOND, &peak, &since), 450);
	T_EQ(kv_borrow_room(800, 750, 10 + 4 * SECOND, &peak, &since), 0);
	T_EQ(kv_borrow_room(800, 900, 10 + 4 * SECOND, &peak, &since), 0);
}

static void idle_memory_holds_pages_and_comes_back(void)
{
	uint64_t slab_pages, most;

	open_rig();
	most = kv_borrow_max(&r.db);
	T_EQ(most, OWNED - OWNED / 4);
	T_EQ(read_pages(0, PAGES), 0);
	slab_pages = kv_slab_page_bytes(&r.db);
	T_EQ(kv_borrow_bytes(&r.db), most);

	/* writers want a half: it is there after a few looks, and no slab went */
	write_bytes(OWNED / 2);
	for (int i = 0; i < 8; i++)
		kv_pagepool_lent_step(&r.db);
	T_EQ(kv_borrow_bytes(&r.db), most - OWNED / 2);
	T_EQ(kv_slab_page_bytes(&r.db), slab_pages);
	T_EQ(read_pages(0, PAGES), 0);
	T_EQ(kv_borrow_bytes(&r.db), most - OWNED / 2);

	/* all of it, cursors' part too */
	atomic_store(&r.db.d_cache.cc_scan_bytes, 1 << 20);
	write_bytes(OWNED - (1 << 20));
	for (int i = 0; i < 8; i++)
		kv_pagepool_lent_step(&r.db);
	T_EQ(kv_borrow_bytes(&r.db), 0);
	T_EQ(read_pages(0, PAGES), 0);
	T_EQ(kv_borrow_bytes(&r.db), 0);

	/* they are done; a while later it is lent again */
	atomic_store(&r.db.d_cache.cc_scan_bytes, 0);
	write_bytes(0);
	T_EQ(read_pages(0, PAGES), 0);
	T_EQ(kv_borrow_bytes(&r.db), 0);
	for (int i = 0; i < 30; i++) {
		atomic_fetch_add(&rig_ns, 2 * SECOND);
		kv_pagepool_lent_step(&r.db);
	}
	T_EQ(read_pages(0, PAGES), 0);
	T_EQ(kv_borrow_bytes(&r.db), most);
	close_rig();
}

static void an_index_wants_its_memory_back(void)
{
	open_rig();
	T_EQ(read_pages(0, PAGES), 0);
	atomic_fetch_add(&r.db.d_count.index_mem, 4 * RIG_SEG_BYTES);
	for (int i = 0; i < 8; i++)
		kv_pagepool_lent_step(&r.db);
	T_EQ(kv_borrow_bytes(&r.db), kv_borrow_max(&r.db) - 4 * RIG_SEG_BYTES);
	atomic_fetch_sub(&r.db.d_count.index_mem, 4 * RIG_SEG_BYTES);
	close_rig();
}

static void a_large_record_wants_its_memory_back(void)
{
	struct kv_seg *s;

	open_rig();
	T_EQ(read_pages(0, PAGES), 0);
	T_EQ(kv_seg_alloc(&r.db, 0, KV_VLOG, 4 * RIG_SEG_BYTES, false, &s), 0);
	T_OK(kv_slab_take_image(&r.db, s->sg_bytes, &s->sg_image) != NULL);
	for (int i = 0; i < 8; i++)
		kv_pagepool_lent_step(&r.db);
	T_EQ(kv_borrow_bytes(&r.db), kv_borrow_max(&r.db) - 4 * RIG_SEG_BYTES);
	kv_slab_drop_image(&r.db, &s->sg_image);
	kv_seg_close(&r.db, s, 0);
	kv_seg_put(&r.db, s);
	close_rig();
}

static void an_image_gets_no_lent_memory(void)
{
	open_rig();
	rig_segs(&r);
	T_EQ(read_pages(0, PAGES), 0);
	for (unsigned i = 0; i < RIG_SEGS; i++) {
		T_OK(kv_slab_take_image(&r.db, r.seg[i]->sg_bytes, &r.seg[i]->sg_image) != NULL);
		kv_slab_image_idle(&r.db, &r.seg[i]->sg_image);
	}
	T_EQ(kv_borrow_bytes(&r.db), kv_borrow_max(&r.db));
	T_EQ(read_pages(0, PAGES), 0);
	for (unsigned i = 0; i < RIG_SEGS; i++)
		kv_slab_drop_image(&r.db, &r.seg[i]->sg_image);
	close_rig();
}

static void freed(void *arg)
{
	*(bool *)arg = true;
}

/* A put looks at memory, too, in the middle of its work (thread.c). */
static void who_is_inside_runs_no_destructor(void)
{
	bool is_freed = false;
	struct kv_thread *t;
	struct kv_limbo lb;

	open_rig();
	T_EQ(read_pages(0, PAGES), 0);
	write_bytes(OWNED);
	t = kv_enter();
	kv_retire(&lb, freed, &is_freed);
	kv_exit(t);
	for (int i = 0; i < 8; i++) {
		t = kv_enter();
		kv_pagepool_lent_step(&r.db);
		kv_exit(t);
	}
	T_OK(!is_freed);
	for (int i = 0; i < 8; i++)
		kv_pagepool_lent_step(&r.db);
	T_OK(is_freed);
	T_EQ(kv_borrow_bytes(&r.db), 0);
	write_bytes(0);
	close_rig();
}

/* Without writes no epoch ends: cursors alone want their memory. */
static void an_idle_database_gives_back_what_cursors_want(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 64 << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	static uint8_t page[4096];
	const char *tmp = getenv("TMPDIR");
	struct kvdb *db;
	char dir[256];

	snprintf(dir, sizeof(dir), "%s/kv_borrow.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
	o.cache_bytes = 64 << 20;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (uint64_t no = 0; no < 64 << 8; no++)
		kv_page_add(db, UINT64_MAX, no, page, false);
	T_OK(kv_borrow_bytes(db) > 0);
	atomic_fetch_add(&db->d_cache.cc_scan_bytes, 64 << 20);
	for (unsigned i = 0; i < 500 && kv_borrow_bytes(db); i++)
		usleep(10000);
	T_EQ(kv_borrow_bytes(db), 0);
	atomic_fetch_sub(&db->d_cache.cc_scan_bytes, 64 << 20);
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

struct job {
	uint64_t rnd;
	unsigned wrong;
};

static _Atomic(bool) stop;

static void *reader(void *arg)
{
	struct job *j = arg;

	for (unsigned i = 0; i < (getenv("TEST_SHORT") ? 2000u : 20000u); i++)
		j->wrong += read_pages(t_rand(&j->rnd) % PAGES, 4);
	return NULL;
}

static void *writer(void *arg)
{
	struct job *j = arg;

	while (!atomic_load(&stop)) {
		write_bytes(t_rand(&j->rnd) % OWNED);
		for (unsigned n = t_rand(&j->rnd) % 16; n--;)
			kv_pagepool_lent_step(&r.db);
		atomic_fetch_add(&rig_ns, SECOND);
	}
	return NULL;
}

static void pages_are_right_while_memory_comes_and_goes(void)
{
	struct job j[4];
	pthread_t th[4];

	open_rig();
	for (unsigned i = 0; i < 4; i++) {
		j[i] = (struct job){ .rnd = t_rand(&r.rnd) };
		T_EQ(pthread_create(&th[i], NULL, i < 2 ? reader : writer, &j[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(th[i], NULL);
		if (i == 1)
			atomic_store(&stop, true);
		T_EQ(j[i].wrong, 0);
	}
	write_bytes(OWNED);
	for (int i = 0; i < 8; i++)
		kv_pagepool_lent_step(&r.db);
	T_EQ(kv_borrow_bytes(&r.db), 0);
	write_bytes(0);
	close_rig();
}

int main(void)
{
	T_RUN(what_was_in_use_lately_is_not_lent);
	T_RUN(idle_memory_holds_pages_and_comes_back);
	T_RUN(an_index_wants_its_memory_back);
	T_RUN(a_large_record_wants_its_memory_back);
	T_RUN(an_image_gets_no_lent_memory);
	T_RUN(an_idle_database_gives_back_what_cursors_want);
	T_RUN(who_is_inside_runs_no_destructor);
	T_RUN(pages_are_right_while_memory_comes_and_goes);
	return t_done();
}
