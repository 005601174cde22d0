/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What logs have ready before a writer needs it: one segment at a slow pace,
 * more at a fast one, with memory that the system has given; on either class.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "db/bell.h"
#include "die.h"
#include "log/flush.h"
#include "harness.h"
#include "mem/memtable.h"
#include "compact/reloc.h"
#include "cache/slab.h"
#include "tree/tree.h"
#include "meta/upkeep.h"
#include "kv_active.h"

#define SEG	(256u << 10)

static char dir[256];
static uint32_t seg_bytes = SEG;
static struct kvdb *db;
static struct kvdb_kvs *kvs;

static void open_on(unsigned flags, const struct mpool_dev_spec *devs, unsigned n)
{
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/kv_ahead.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = devs;
	co.ndevs = n;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
	o.flags = flags;
	o.logs = 1;
	o.segment_bytes = seg_bytes;
	o.cache_bytes = (64u << 20) + 8 * seg_bytes;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

static void open_db(unsigned flags)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 512u << 20 };

	open_on(flags, &dev, 1);
}

static void close_db(void)
{
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* Writes so many bytes of values. */
static void load(uint64_t bytes)
{
	static uint32_t key;
	uint8_t val[1000] = { 0 };

	for (; bytes >= sizeof(val); bytes -= sizeof(val), key++)
		T_EQ(kvdb_put(kvs, &key, sizeof(key), val, sizeof(val)), 0);
}

static struct kv_log *value_log(void)
{
	return kv_log_at(db->d_logs, KV_VLOG * db->d_logs->ls_n);
}

/* Prepared segments of the log; *ahead: what its pace asks for. */
static uint32_t ready(struct kv_log *lo, uint32_t *ahead)
{
	uint32_t n, found = 0;

	pthread_mutex_lock(&lo->lo_lock);
	n = lo->lo_nnext;
	*ahead = lo->lo_ahead;
	for (struct kv_seg *s = lo->lo_next; s; s = s->sg_full_next, found++)
		T_OK(atomic_load(&s->sg_image));
	pthread_mutex_unlock(&lo->lo_lock);
	T_EQ(found, n);
	return n;
}

static void a_fast_log_has_several_segments_ready(void)
{
	struct timespec ms = { .tv_nsec = 1000000 };
	uint32_t ahead, most = 1;

	open_db(0);
	T_OK(db->d_budget.b_ahead > 2);
	for (unsigned i = 0; i < 300 && most == 1; i++) {
		load(2 * SEG);
		ready(value_log(), &most);
	}
	T_OK(most > 1 && most <= db->d_budget.b_ahead);
	for (unsigned i = 0; ready(value_log(), &ahead) < ahead && i < 60000; i++)
		nanosleep(&ms, NULL);
	T_EQ(ready(value_log(), &ahead), ahead);
	close_db();
}

/* Else a writer that waits for the first would wait for the last. */
static void segments_get_ready_one_by_one(void)
{
	struct kv_log *lo;
	uint32_t ahead;

	open_db(KVDB_MANUAL);
	load(SEG / 2);
	lo = value_log();
	lo->lo_ahead = 3;
	for (uint32_t n = ready(lo, &ahead) + 1; n <= 3; n++) {
		T_EQ(kv_log_prepare_ahead(db, lo), 1);
		T_EQ(ready(lo, &ahead), n);
	}
	T_EQ(kv_log_prepare_ahead(db, lo), 0);
	close_db();
}

static void a_slow_log_has_one(void)
{
	uint32_t ahead;

	open_db(KVDB_MANUAL);
	for (unsigned i = 0; i < 8; i++) {
		load(SEG);
		T_EQ(kvdb_sync(db), 0);
		while (kvdb_poll(db) > 0)
			;
		T_OK(ready(value_log(), &ahead) <= 1);
		T_EQ(ahead, 1);
	}
	close_db();
}

static struct kv_frame *open_frame(struct kv_log *lo)
{
	return atomic_load(&lo->lo_frame[(atomic_load(&lo->lo_word) >> 40) % 4]);
}

/* No thread waits for its memory behind lo_lock. */
static void the_next_frame_is_there(void)
{
	struct kv_frame *f;
	struct kv_log *lo;

	open_db(KVDB_MANUAL);
	lo = value_log();
	T_OK(!atomic_load(&lo->lo_spare));
	load(SEG / 4);
	f = atomic_load(&lo->lo_spare);
	T_OK(f);
	load(SEG / 2);		/* as long as a frame */
	T_OK(atomic_load(&lo->lo_spare) && atomic_load(&lo->lo_spare) != f);
	f = atomic_load(&lo->lo_spare);
	T_EQ(kvdb_sync(db), 0);
	/* the end of the epoch has taken it, and left another */
	T_OK(open_frame(lo) == f);
	T_OK(atomic_load(&lo->lo_spare));
	close_db();
}

static bool is_resident(const uint8_t *mem)
{
	unsigned char page[SEG / 4096];

	T_EQ(mincore((void *)mem, SEG, page), 0);
	for (unsigned i = 0; i < SEG / 4096; i++)
		if (!(page[i] & 1))
			return false;
	return true;
}

static void memory_is_there_before_it_is_written(void)
{
	struct kv_log *lo;
	struct kv_seg *s;

	open_db(KVDB_MANUAL);
	lo = value_log();
	T_EQ(kv_log_prepare(db, lo, false), 0);
	s = lo->lo_next;
	T_OK(s && atomic_load(&s->sg_image));
	while (kv_slab_fault_step(db))
		;
	T_OK(is_resident(atomic_load(&s->sg_image)));
	close_db();
}

static void memory_is_there_at_once_for_who_wants_that(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct kv_log *lo;

		open_db(i ? KVDB_MANUAL | KVDB_PREFAULT : KVDB_MANUAL);
		lo = value_log();
		T_EQ(kv_log_prepare(db, lo, false), 0);
		T_EQ(is_resident(atomic_load(&lo->lo_next->sg_image)), i);
		T_EQ(kv_slab_fault_step(db), !i);
		close_db();
	}
}

/* Takes one out of the stock, unused. */
static void take_one(void)
{
	struct kv_seg *s;

	T_EQ(kv_seg_alloc(db, 0, KV_VLOG, SEG, false, &s), 0);
	kv_seg_close(db, s, 0);
	kv_seg_put(db, s);
}

static void fast_logs_are_slowed_before_the_last_segment(void)
{
	uint32_t last, debt, at_first;

	open_db(KVDB_MANUAL);
	while (kv_segs_stock_step(db) > 0)
		;
	T_EQ(kv_segs_debt(db, 0), 0);
	for (unsigned i = 0; i < 16; i++)
		take_one();
	at_first = last = kv_segs_debt(db, 0);
	T_OK(at_first < KV_DEBT_MAX / 8);
	for (unsigned i = 0; i < 12; i++) {
		take_one();
		debt = kv_segs_debt(db, 0);
		T_OK(debt > last && debt <= KV_DEBT_MAX);
		last = debt;
	}
	T_OK(kv_segs_debt(db, 12) <= at_first);
	T_EQ(kv_segs_debt(db, UINT32_MAX), 0);	/* no log is fast */
	while (kv_segs_stock_step(db) > 0)
		;
	T_EQ(kv_segs_debt(db, 0), 0);
	close_db();
}

static void a_log_that_left_staging_has_a_stock(void)
{
	const struct mpool_dev_spec dev[] = {
		{ .mclass = MPOOL_STAGING, .size = 96u << 20 },
		{ .mclass = MPOOL_CAPACITY, .size = 512u << 20 },
	};

	open_on(KVDB_MANUAL, dev, 2);
	while (kv_staging_has_room(db, kv_segs_staged(db)))
		load(SEG);
	while (kv_segs_stock_step(db) > 0)
		;
	for (unsigned i = 0; i < 32 && !kv_segs_debt(db, 0); i++)
		take_one();
	T_OK(kv_segs_debt(db, 0) > 0 && kv_segs_debt(db, 0) < KV_DEBT_MAX / 2);
	close_db();
}

static uint64_t segments(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(db, &st), 0);
	return st.segments;
}

/* Recovery reads all of it. */
static void a_stock_of_large_segments_is_small(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 16ull << 30 };

	seg_bytes = 32u << 20;
	open_on(KVDB_MANUAL, &dev, 1);
	while (kv_segs_stock_step(db) > 0)
		;
	T_OK(segments() > 1 && segments() * seg_bytes <= 256u << 20);
	close_db();
	seg_bytes = SEG;
}

/* On a slow device no other thread can have fetched it meanwhile; TH-11. */
static void an_open_has_a_stock(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	open_db(KVDB_MANUAL);
	T_EQ(kvdb_close(db), 0);
	o.logs = 1;
	o.segment_bytes = SEG;
	o.cache_bytes = 64u << 20;
	setenv("MPOOL_DEV", "all:lat=10ms", 1);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_OK(segments() >= 24);
	unsetenv("MPOOL_DEV");
	close_db();
}

static void open_again(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.segment_bytes = SEG;
	o.cache_bytes = 64u << 20;
	T_EQ(kvdb_open(dir, &o, &db), 0);
}

static void have_all_ready(void)
{
	T_EQ(kv_log_prepare(db, value_log(), false), 0);
	while (kv_segs_stock_step(db) > 0)
		;
	T_OK(segments() > 24);
}

static uint64_t used(void)
{
	struct kvdb_info in;

	T_EQ(kvdb_info(db, &in), 0);
	return in.pool.cls[MPOOL_CAPACITY].used;
}

/* What each had ready holds nothing: the next open gives it back before it has its own. */
static void opens_that_are_killed_leave_no_more_than_one(void)
{
	uint64_t one;

	open_db(KVDB_MANUAL);
	T_EQ(kvdb_close(db), 0);
	t_die_in(open_again, have_all_ready);
	open_again();
	T_EQ(segments(), 0);
	one = used();
	T_EQ(kvdb_close(db), 0);
	for (unsigned i = 0; i < 20; i++)
		t_die_in(open_again, have_all_ready);
	open_again();
	T_EQ(segments(), 0);
	T_EQ(used(), one);
	close_db();
}

/* A 128th of the class at once; what is not used goes. */
static void values_that_move_get_segments_together(void)
{
	struct kv_seg *s[32];
	unsigned n = 32;
	uint64_t before;

	open_db(KVDB_MANUAL);
	while (kv_segs_step(db) > 0)
		;
	before = segments();
	T_EQ(kv_segs_alloc_moved(db, MPOOL_CAPACITY, true, true, 2 * SEG, &n, s), 0);
	T_OK(n > 1 && n <= 512 * 4 / 128 / 2);
	T_EQ(segments(), before + n);
	for (unsigned i = 0; i < n; i++) {
		T_EQ(s[i]->sg_bytes, 2 * SEG);
		kv_seg_abandon(db, s[i], 0);
		kv_seg_put(db, s[i]);
	}
	while (kv_segs_step(db) > 0)
		;
	T_EQ(segments(), before);
	n = 32;
	T_EQ(kv_segs_alloc_moved(db, MPOOL_CAPACITY, true, true, 16 * SEG, &n, s), 0);
	T_EQ(n, 1);
	kv_seg_abandon(db, s[0], 0);
	kv_seg_put(db, s[0]);
	close_db();
}

/* Its memory may be slow to come; TH-10. */
static void segments_get_ready_while_a_table_grows(void)
{
	struct timespec ms = { .tv_nsec = 1000000 };
	struct kv_bucket *bk;
	struct kv_log *lo;
	struct kv_mt *mt;
	uint64_t none = 0, keys;
	uint32_t ahead;

	open_db(0);
	load(SEG / 2);
	lo = value_log();
	mt = active_mt(kvs);
	bk = atomic_load(&mt->m_table)->tb_bucket;
	while (!atomic_compare_exchange_strong(&bk->bk_meta, &none, KV_BUCKET_LOCK))
		none = 0;
	keys = atomic_exchange(&mt->m_keys, 1u << 30);
	kv_mt_grow_soon(mt);
	while (atomic_load(&mt->m_grow_asked))
		nanosleep(&ms, NULL);	/* a thread is at it, and waits for the bucket */
	pthread_mutex_lock(&lo->lo_lock);
	lo->lo_ahead = 3;
	pthread_mutex_unlock(&lo->lo_lock);
	for (unsigned i = 0; i < 30000 && ready(lo, &ahead) < 3; i++) {
		kv_supplier_kick(db);
		nanosleep(&ms, NULL);
	}
	T_EQ(ready(lo, &ahead), 3);
	atomic_store(&mt->m_keys, keys);
	atomic_store(&bk->bk_meta, 0);
	close_db();
}

int main(void)
{
	T_RUN(a_fast_log_has_several_segments_ready);
	T_RUN(segments_get_ready_one_by_one);
	T_RUN(a_slow_log_has_one);
	T_RUN(the_next_frame_is_there);
	T_RUN(fast_logs_are_slowed_before_the_last_segment);
	T_RUN(a_log_that_left_staging_has_a_stock);
	T_RUN(a_stock_of_large_segments_is_small);
	T_RUN(an_open_has_a_stock);
	T_RUN(opens_that_are_killed_leave_no_more_than_one);
	T_RUN(values_that_move_get_segments_together);
	T_RUN(segments_get_ready_while_a_table_grows);
	T_RUN(memory_is_there_before_it_is_written);
	T_RUN(memory_is_there_at_once_for_who_wants_that);
	return t_done();
}
