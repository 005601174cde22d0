/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What meets the end of the pool (LF10, LF11, LF15, R19): a real database, no threads. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "background/work.h"
#include "log/flush.h"
#include "seg/reserve.h"
#include "kv_fresh.h"
#include "tree/leaf.h"
#include "meta/mdc.h"
#include "compact/merge.h"
#include "compact/reloc.h"
#include "run/run.h"

#define VLEN	120u	/* inline: merges write it */

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *big, *small;

static uint64_t ahead_ns;	/* of the machine's clock */
static void (*at_look)(void);

static uint64_t clock_now(void *arg)
{
	struct timespec ts;

	(void)arg;
	if (at_look)
		at_look();
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec + ahead_ns;
}

static void clock_sleep(void *arg, uint64_t t)
{
	uint64_t now = clock_now(arg);

	ahead_ns += t > now ? t - now : 0;
}

static const struct kvdb_clock later = { clock_now, clock_sleep, NULL, NULL };

static void put(struct kvdb_kvs *kvs, uint32_t k)
{
	uint64_t x = k, v;
	uint8_t val[VLEN];
	char key[32];

	for (unsigned i = 0; i < VLEN; i += 8) {
		v = t_rand(&x);
		memcpy(val + i, &v, 8);
	}
	/* in no order: each run covers all keys */
	T_EQ(kvdb_put(kvs, key, (size_t)sprintf(key, "%08x", k * 0x9e3779b9u), val, VLEN), 0);
}

static void poll_all(void)
{
	while (kvdb_poll(db) > 0)
		;
}

static uint64_t written(void)
{
	return atomic_load(&db->d_count.key_bytes[MPOOL_CAPACITY]);
}

static unsigned runs(struct kvdb_kvs *kvs)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	unsigned n = tr->tr_nrun;

	kv_tree_put(db, tr);
	return n;
}

static void open_two(uint64_t cache_bytes, uint64_t log_bytes)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	kv_fresh(dir, sizeof(dir), "kv_noroom", 64u << 20, 256u << 10);
	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = cache_bytes;
	o.log_bytes = log_bytes;
	o.clock = &later;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	/* merges that take as much again as there is */
	db->d_budget.b_leaf_bytes = 64u << 20;
	T_EQ(kvdb_kvs_create(db, "big", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "big", &big), 0);
	T_EQ(kvdb_kvs_create(db, "small", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "small", &small), 0);
}

/* Until a merge of the large store met the end of the pool. */
static void fill(void)
{
	open_two(64u << 20, 4u << 20);
	for (uint32_t k = 0; !big->k_merging.mg_failed; k++) {
		T_OK(k < 400000);
		put(big, k);
		if (k % 64 == 0)
			poll_all();
	}
	T_OK(!kv_segs_are_short(db));	/* by that alone it would begin again */
}

static void a_merge_without_room_is_not_repeated(void)
{
	uint64_t was;

	fill();
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	poll_all();
	was = written();
	for (unsigned i = 0; i < 5; i++)
		poll_all();
	T_EQ(written(), was);
	/* what others have to merge is merged */
	for (uint32_t k = 0; k < 6; k++) {
		put(small, k);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	poll_all();
	T_OK(runs(small) < 4);
	/* no flush waits for what cannot begin (LF9) */
	big->k_merging.mg_moves = 1;
	for (uint32_t k = 0; runs(big) < KV_UPPER_RUNS_MAX; k++) {
		put(big, k);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	big->k_merging.mg_moves = 0;
	big->k_merging.mg_failed = false;
	T_OK(!kv_merge_is_behind(big, KV_UPPER_RUNS_MAX));
	was = big->k_merging.mg_no_room.bo_at;
	big->k_merging.mg_no_room.bo_at = 0;
	T_OK(kv_merge_is_behind(big, KV_UPPER_RUNS_MAX));
	big->k_merging.mg_no_room.bo_at = was;
	/* and what makes room still begins */
	T_EQ(kvdb_range_del(big, "2", 1, NULL, 0), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	poll_all();
	T_EQ(runs(big), 1);
	kv_end(db, dir, 0);
}

/* The pool may have had all the bytes, and no room for one more object. */
static void a_merge_without_room_is_tried_again_a_minute_later(void)
{
	uint64_t was;

	fill();
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	poll_all();
	was = written();
	poll_all();
	T_EQ(written(), was);
	ahead_ns += 61000000000u;
	poll_all();
	T_OK(written() > was);
	kv_end(db, dir, 0);
}

#define FILLERS	512u

/* Another user of the pool leaves so much of it. */
static unsigned take_pool(struct mpool_obj **obj, uint64_t left)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY,
				   .capacity = 128u << 10, .tag = 7, .flags = MPOOL_ALLOC_SPARE };
	struct mpool_info pi;
	unsigned n = 0;

	while (!mpool_info(db->d_mp, &pi) && pi.cls[MPOOL_CAPACITY].free > left) {
		T_OK(n < FILLERS);
		T_EQ(mpool_alloc(db->d_mp, &req, 1, &obj[n++]), 0);
	}
	return n;
}

static void a_flush_without_room_is_not_repeated(void)
{
	static struct mpool_obj *obj[FILLERS];
	uint64_t was, block;
	unsigned n;

	open_two(256u << 20, 32u << 20);
	block = db->d_budget.b_kblock_bytes;
	for (uint32_t k = 0; k < 3 * block / VLEN; k++)
		put(big, k);
	put(small, 1);
	n = take_pool(obj, block + block / 2);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), -ENOSPC);
	/* the other one was flushed */
	T_EQ(runs(big), 0);
	T_EQ(runs(small), 1);
	was = written();
	for (unsigned i = 0; i < 5; i++) {
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), -ENOSPC);
		kvdb_poll(db);
	}
	T_EQ(written(), was);
	while (n--)
		mpool_obj_close(obj[n]);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(runs(big), 1);
	kv_end(db, dir, 0);
}

/* Whose lock another thread has: it may be the one that finds none, and will say so. */
static void a_flush_that_was_not_tried_says_nothing_of_room(void)
{
	static struct mpool_obj *obj[FILLERS];
	struct kv_flusher *fl;
	uint64_t since;
	unsigned n;

	open_two(256u << 20, 32u << 20);
	fl = db->d_flusher;
	for (uint32_t k = 0; k < 3 * db->d_budget.b_kblock_bytes / VLEN; k++)
		put(big, k);
	n = take_pool(obj, 128u << 10);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), -ENOSPC);
	since = atomic_load(&fl->fl_full_ns);
	T_OK(since);
	pthread_mutex_lock(&big->k_flush_lock);
	T_EQ(kv_flush_step(db), 0);
	pthread_mutex_unlock(&big->k_flush_lock);
	T_EQ(atomic_load(&fl->fl_full_ns), since);
	T_EQ(atomic_load(&fl->fl_space_err), -ENOSPC);
	while (n--)
		mpool_obj_close(obj[n]);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(atomic_load(&fl->fl_full_ns), 0);
	kv_end(db, dir, 0);
}

/* Sealed segments, which there are not, until not one more fits. */
static void container_fill(void)
{
	struct kv_mdc_seg s[50];
	uint64_t id = 1ull << 40;
	unsigned n = 50;

	while (n) {
		for (unsigned i = 0; i < n; i++)
			s[i] = (struct kv_mdc_seg){ id++, 1, 4096 };
		if (kv_mdc_segs(db, s, n))
			n /= 5;
	}
}

/* RV20: else nothing but a drop would make room again. */
static void a_full_container_takes_what_makes_it_smaller(void)
{
	open_two(256u << 20, 32u << 20);
	for (uint32_t k = 0; k < 20; k++) {
		put(small, k);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(runs(small), 20);
	container_fill();
	put(big, 1);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), -ENOSPC);
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
	T_EQ(runs(small), 1);
	/* what came free of it is room for the flush */
	ahead_ns += 11000000000u;
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(runs(big), 1);
	kv_end(db, dir, 0);
}

/* Puts by a queue, without a flush, until one finds no room; then the pool is full. */
static unsigned fill_by_queue(struct kvdb_cq *cq, struct mpool_obj **obj)
{
	static uint8_t val[VLEN];
	struct kvdb_op op = { .type = KVDB_OP_PUT, .kvs = big, .val = val, .size = VLEN };
	struct kvdb_cqe e;
	char key[16];

	op.key = key;
	for (uint32_t k = 0; !atomic_load(&db->d_flusher->fl_stall); k++) {
		T_OK(k < 400000);
		op.klen = (size_t)sprintf(key, "%08x", k);
		T_EQ(kvdb_cq_submit(cq, &op, 1), 1);
		T_EQ(kvdb_cq_reap(cq, &e, 1, 1, -1), 1);
		T_EQ(e.err, 0);
		if (k % 1024 == 0)
			T_EQ(kvdb_sync(db), 0);
	}
	return take_pool(obj, 128u << 10);
}

/* What waits at the head of a queue when there is no room ends as the blocking call would. */
static int head_of_a_full_queue(struct kvdb_op *op)
{
	static struct mpool_obj *obj[FILLERS];
	struct kvdb_cq *cq;
	struct kvdb_cqe e;
	unsigned n;

	T_EQ(kvdb_cq_open(db, 0, 0, &cq), 0);
	n = fill_by_queue(cq, obj);
	T_EQ(kvdb_cq_submit(cq, op, 1), 1);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 0, 0), 0);
	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, -1), 1);
	kvdb_cq_close(cq);
	while (n--)
		mpool_obj_close(obj[n]);
	return e.err;
}

static void a_queue_without_threads_ends_what_has_no_room(void)
{
	struct kvdb_op op = { .type = KVDB_OP_PUT, .key = "k", .klen = 1 };
	struct kvdb_stats st;

	open_two(64u << 20, 4u << 20);
	op.kvs = big;
	T_EQ(head_of_a_full_queue(&op), -ENOSPC);
	kv_end(db, dir, 0);
	/* by the reserve */
	open_two(64u << 20, 4u << 20);
	op.kvs = big;
	op.type = KVDB_OP_DEL;
	T_EQ(head_of_a_full_queue(&op), 0);
	kv_end(db, dir, 0);
	/* its keys have no owner any more */
	open_two(64u << 20, 4u << 20);
	op = (struct kvdb_op){ .type = KVDB_OP_COMMIT };
	T_EQ(kvdb_txn_begin(db, 0, &op.txn), 0);
	T_EQ(kvdb_txn_put(op.txn, big, "k", 1, "v", 1), 0);
	T_EQ(head_of_a_full_queue(&op), -ENOSPC);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.views, 0);
	T_EQ(kvdb_put(big, "k", 1, "w", 1), 0);
	kv_end(db, dir, 0);
}

#define LOOKS	1000u	/* at the clock: more than a delete needs that finds no room and gives up */

static struct mpool_obj *taken[FILLERS];
static unsigned ntaken, looks;
static struct kv_job job;

/* Deep in a delete the merge of another thread ends, which had the last of the pool. */
static void end_merge(void)
{
	if (++looks < LOOKS || !job.j_kvs || pthread_mutex_trylock(&small->k_merging.mg_lock))
		return;
	pthread_mutex_unlock(&small->k_merging.mg_lock);
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
	kv_merge_end(&job, -ECANCELED);
	job.j_kvs = NULL;
}

static void begin_merge(void)
{
	for (uint32_t k = 0; k < 6; k++) {
		put(small, k);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kv_merge_begin(db, small, &job), 1);
}

static void begin_merge_with_all_room(void)
{
	begin_merge();
	ntaken = take_pool(taken, 128u << 10);
}

/* R19: until it ends a merge has the room of what it replaces as well. */
static void a_delete_waits_for_a_merge_that_has_the_last_of_the_pool(void)
{
	char key[16];

	open_two(64u << 20, 4u << 20);
	begin_merge_with_all_room();
	at_look = end_merge;
	for (uint32_t k = 0; job.j_kvs; k++) {
		looks = 0;
		T_OK(k < 400000);
		T_EQ(kvdb_del(big, key, (size_t)sprintf(key, "%08x", k)), 0);
	}
	at_look = NULL;
	kv_end(db, dir, 0);
}

/* R19: nor are a few naps beside it enough. */
static void a_delete_leaves_a_merge_that_runs_its_room(void)
{
	uint64_t was;
	char key[16];

	open_two(64u << 20, 4u << 20);
	begin_merge_with_all_room();
	/* some segments, but no room to merge */
	for (unsigned i = 0; i < 16; i++)
		mpool_obj_close(taken[--ntaken]);
	was = kv_segs_free_bytes(db);
	at_look = end_merge;
	for (uint32_t k = 0; job.j_kvs; k++) {
		looks = 0;
		T_OK(k < 400000);
		T_EQ(kv_segs_free_bytes(db), was);
		T_EQ(kvdb_del(big, key, (size_t)sprintf(key, "%08x", k)), 0);
	}
	at_look = NULL;
	kv_end(db, dir, 0);
}

/* G7: a put that must wait for a flush, which finds no room, does so too. */
static void a_put_waits_for_a_merge_that_has_the_room_of_a_flush(void)
{
	struct kvdb_stats st;

	open_two(64u << 20, 4u << 20);
	begin_merge();
	for (uint32_t k = 0; k < 4000; k++)
		put(big, k);
	ntaken = take_pool(taken, 128u << 10);
	db->d_budget.b_mt_bytes = 256u << 10;
	kv_pressure(db);
	T_OK(atomic_load(&db->d_flusher->fl_stall));
	looks = 0;
	at_look = end_merge;
	put(big, 4000);
	at_look = NULL;
	T_OK(!job.j_kvs);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.stalls, 1);
	kv_end(db, dir, 0);
}

static _Atomic(bool) is_in, may_go;

static int held_take(void *arg, bool urgent)
{
	(void)arg;
	(void)urgent;
	is_in = true;
	while (!may_go)
		sched_yield();
	return 0;
}

static void *take_held(void *arg)
{
	(void)arg;
	T_EQ(kv_space_take(db, false, held_take, NULL), 0);
	return NULL;
}

/* Deep in a put the other writer's turn brings room. */
static void let_go(void)
{
	if (++looks < LOOKS || may_go)
		return;
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
	may_go = true;
}

/* G7: of two that find none one has room made, and the other is not refused meanwhile. */
static void a_put_waits_for_a_writer_who_makes_room(void)
{
	pthread_t t;

	open_two(64u << 20, 4u << 20);
	ntaken = take_pool(taken, 128u << 10);
	T_EQ(pthread_create(&t, NULL, take_held, NULL), 0);
	while (!is_in)
		sched_yield();
	(void)kv_reloc_may_help(db);	/* that was its turn */
	at_look = let_go;
	for (uint32_t k = 0; !may_go; k++) {
		looks = 0;
		T_OK(k < 400000);
		put(big, k);
	}
	pthread_join(t, NULL);
	at_look = NULL;
	kv_end(db, dir, 0);
}

/* Not for ever: it may be the merge of a store that has nothing to drop. */
static void a_put_does_not_wait_for_ever_for_a_merge(void)
{
	uint64_t t0;

	open_two(64u << 20, 4u << 20);
	begin_merge();
	for (uint32_t k = 0; k < 4000; k++)
		put(big, k);
	ntaken = take_pool(taken, 128u << 10);
	db->d_budget.b_mt_bytes = 256u << 10;
	kv_pressure(db);
	t0 = clock_now(NULL);
	T_EQ(kvdb_put(big, "k", 1, "v", 1), -ENOSPC);
	T_OK(clock_now(NULL) - t0 > 9000000000u);
	kv_merge_end(&job, -ECANCELED);
	/* and no thread is waited for that makes no room */
	t0 = ahead_ns;
	T_EQ(kvdb_put(big, "k", 1, "v", 1), -ENOSPC);
	T_OK(ahead_ns - t0 < 1000000000u);
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
	T_EQ(kvdb_put(big, "k", 1, "v", 1), 0);
	kv_end(db, dir, 0);
}

/* A drain does so too: what it flushes has no room but that of a merge. */
static void a_drain_waits_for_a_merge_that_has_the_room_of_a_flush(void)
{
	open_two(64u << 20, 4u << 20);
	begin_merge();
	for (uint32_t k = 0; k < 4000; k++)
		put(big, k);
	ntaken = take_pool(taken, 128u << 10);
	looks = 0;
	at_look = end_merge;
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	at_look = NULL;
	T_OK(!job.j_kvs);
	kv_end(db, dir, 0);
}

static void a_drain_does_not_wait_for_ever_for_a_merge(void)
{
	uint64_t t0;

	open_two(64u << 20, 4u << 20);
	begin_merge();
	for (uint32_t k = 0; k < 4000; k++)
		put(big, k);
	ntaken = take_pool(taken, 128u << 10);
	t0 = clock_now(NULL);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), -ENOSPC);
	T_OK(clock_now(NULL) - t0 > 9000000000u);
	kv_merge_end(&job, -ECANCELED);
	/* and no thread is waited for that makes no room */
	t0 = ahead_ns;
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), -ENOSPC);
	T_OK(ahead_ns - t0 < 1000000000u);
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	kv_end(db, dir, 0);
}

/* And a checkpoint, whose flush needs blocks, */
static void a_checkpoint_waits_for_a_merge_that_has_the_room_of_a_flush(void)
{
	open_two(64u << 20, 4u << 20);
	begin_merge();
	for (uint32_t k = 0; k < 4000; k++)
		put(big, k);
	ntaken = take_pool(taken, 128u << 10);
	looks = 0;
	at_look = end_merge;
	T_EQ(kvdb_checkpoint(db, "c", 0), 0);
	at_look = NULL;
	T_OK(!job.j_kvs);
	kv_end(db, dir, 0);
}

/* or a bulk load, whose begin flushes its store, */
static void a_bulk_load_waits_for_a_merge_that_has_the_room_of_a_flush(void)
{
	struct kvdb_bulk *b;

	open_two(64u << 20, 4u << 20);
	begin_merge();
	for (uint32_t k = 0; k < 4000; k++)
		put(big, k);
	ntaken = take_pool(taken, 128u << 10);
	looks = 0;
	at_look = end_merge;
	T_EQ(kvdb_bulk_open(big, 0, &b), 0);
	at_look = NULL;
	T_OK(!job.j_kvs);
	kvdb_bulk_abort(b);
	kv_end(db, dir, 0);
}

/* and its manifest, which needs one. */
static void a_checkpoint_waits_for_a_merge_that_has_the_last_of_the_pool(void)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY,
				   .capacity = 4u << 10, .tag = 7, .flags = MPOOL_ALLOC_SPARE };

	open_two(64u << 20, 4u << 20);
	begin_merge_with_all_room();
	while (ntaken < FILLERS && !mpool_alloc(db->d_mp, &req, 1, &taken[ntaken]))
		ntaken++;
	looks = 0;
	at_look = end_merge;
	T_EQ(kvdb_checkpoint(db, "c", 0), 0);
	at_look = NULL;
	T_OK(!job.j_kvs);
	kv_end(db, dir, 0);
}

static void open_two_classes(void)
{
	struct mpool_dev_spec dev[2] = { { .mclass = MPOOL_CAPACITY, .size = 64u << 20 },
					 { .mclass = MPOOL_STAGING, .size = 64u << 20 } };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;

	kv_fresh_dir(dir, sizeof(dir), "kv_noroom");
	co.devs = dev;
	co.ndevs = 2;
	T_EQ(mpool_create(dir, &co), 0);
	o.segment_bytes = 256u << 10;
	T_EQ(kvdb_create(dir, &o), 0);
	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "big", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "big", &big), 0);
}

/* Another user leaves so much above the reserve of each class. */
static void take_classes(uint64_t spare)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .tag = 7, .flags = MPOOL_ALLOC_SPARE };
	struct kv_space_left left;

	for (req.mclass = 0; req.mclass < MPOOL_MCLASSES; req.mclass++) {
		kv_space_left(db, &left);
		while (left.sl_spare[req.mclass] > spare) {
			req.capacity = left.sl_spare[req.mclass] - spare > 512u << 10 ? 512u << 10 :
				       4u << 10;
			T_OK(ntaken < FILLERS);
			T_EQ(mpool_alloc(db->d_mp, &req, 1, &taken[ntaken++]), 0);
			kv_space_left(db, &left);
		}
	}
}

/* R19: a block lies in one class, so what both have above their reserves is no room for it. */
static void a_block_of_a_load_leaves_the_reserve_of_each_class(void)
{
	uint64_t block, free_bytes;
	struct kvdb_bulk *b;
	uint8_t val[VLEN] = { 0 };
	char key[16];
	int rc = 0;

	open_two_classes();
	block = db->d_budget.b_kblock_bytes;
	T_EQ(kvdb_bulk_open(big, 0, &b), 0);
	take_classes(block * 2 / 3);
	free_bytes = kv_segs_free_bytes(db);
	for (uint32_t k = 0; !rc && k < 2 * block / VLEN; k++)
		rc = kvdb_bulk_add(b, key, (size_t)sprintf(key, "%08x", k), val, VLEN);
	T_EQ(rc, -ENOSPC);
	T_EQ(kv_segs_free_bytes(db), free_bytes);
	kvdb_bulk_abort(b);
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
	kv_end(db, dir, 0);
}

static void put_runs(struct kvdb_kvs *kvs, uint32_t keys)
{
	for (uint32_t k = 0; k < keys; k++) {
		put(kvs, k);
		if (k % (keys / 6) == keys / 6 - 1)
			T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
}

/* Each has room, both have none. */
static void a_merge_does_not_count_on_what_another_will_write(void)
{
	struct kv_job other;

	open_two(64u << 20, 4u << 20);
	put_runs(small, 3600);
	put_runs(big, 3600);
	ntaken = take_pool(taken, 1000u << 10);
	T_EQ(kv_merge_begin(db, small, &job), 1);
	T_OK(job.j_due > 400000);
	T_EQ(kv_merge_begin(db, big, &other), 0);
	kv_merge_end(&job, -ECANCELED);
	T_EQ(kv_merge_begin(db, big, &other), 1);
	kv_merge_end(&other, -ECANCELED);
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
	kv_end(db, dir, 0);
}

/* Below the reserve, where nothing is spare. */
static void what_had_no_room_is_tried_again_with_twice_as_much(void)
{
	struct kv_backoff bo = { 0 };

	open_two(64u << 20, 4u << 20);
	ntaken = take_pool(taken, 1u << 20);
	kv_backoff_set(db, &bo, 1);
	T_OK(kv_backoff_is_active(db, &bo));
	for (unsigned i = 0; i < 4; i++)
		mpool_obj_close(taken[--ntaken]);
	T_OK(kv_backoff_is_active(db, &bo));
	while (kv_segs_free_bytes(db) < 4u << 20)
		mpool_obj_close(taken[--ntaken]);
	T_EQ(kv_segs_spare_bytes(db), 0);
	T_OK(!kv_backoff_is_active(db, &bo));
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
	kv_end(db, dir, 0);
}

/* ---- what is deleted of a full store ----------------------------------------------------- */

#define FULL_KEYS	80000u	/* some 12 MiB */

/* Deletions among the keys of runs that are in leaves, or are not. */
static uint64_t deletions(bool upper)
{
	struct kv_tree *tr = kv_tree_get(big);
	uint64_t n = 0;

	for (uint32_t i = upper ? 0 : tr->tr_nupper; i < (upper ? tr->tr_nupper : tr->tr_nrun); i++)
		n += tr->tr_run[i]->rn_tombs;
	kv_tree_put(db, tr);
	return n;
}

static void open_leaves(void)
{
	open_two(64u << 20, 4u << 20);
	db->d_budget.b_leaf_bytes = 1u << 20;
	for (uint32_t k = 0; k < FULL_KEYS; k++) {
		put(big, k);
		if (k % 64 == 0)
			poll_all();
	}
	/* into leaves, all of it */
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
}

static uint64_t pages_read(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(db, &st), 0);
	return st.page_hits + st.page_misses + st.io[MPOOL_CAPACITY].read_bytes;
}

/* It has no segment that a job could empty, and a writer asks for every segment of a log. */
static void who_has_no_room_waits_for_no_count_of_keys(void)
{
	uint64_t was;

	open_leaves();
	was = pages_read();
	kv_reloc_make_room(db);
	T_EQ(pages_read(), was);
	kv_end(db, dir, 0);
}

static void del_each(uint32_t from, uint32_t step, const char *below)
{
	char key[32];

	for (uint32_t k = from; k < FULL_KEYS; k += step) {
		int len = sprintf(key, "%08x", k * 0x9e3779b9u);

		if (strcmp(key, below) < 0)
			T_EQ(kvdb_del(big, key, (size_t)len), 0);
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	poll_all();
	ahead_ns += 1000000000u;
	poll_all();
}

/* V2: a quarter of the keys would take more than there is. */
static void deletions_are_merged_before_they_take_the_last_of_the_pool(void)
{
	open_leaves();
	/* with room a quarter is wanted */
	del_each(0, 8, "g");
	T_OK(deletions(true) + deletions(false) >= FULL_KEYS / 9);
	ntaken = take_pool(taken, 2500u << 10);
	ahead_ns += 1000000000u;
	poll_all();
	del_each(1, 16, "g");
	T_OK(deletions(true) + deletions(false) < FULL_KEYS / 6);	/* 3 of 16 without */
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
	kv_end(db, dir, 0);
}

/* All that comes is of one leaf, which must be split, and there is no room for that. */
static void a_leaf_without_room_to_be_split_holds_up_no_other(void)
{
	struct kv_tree *tr;
	unsigned n = 0;

	open_leaves();
	big->k_merging.mg_moves = 1;
	for (uint32_t k = FULL_KEYS; k < 30 * FULL_KEYS; k++)
		if (k * 0x9e3779b9u >= 0xfa000000u) {
			put(big, k);
			if (++n % 8192 == 0)
				T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
		}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	poll_all();
	ntaken = take_pool(taken, 2400u << 10);
	big->k_merging.mg_moves = 0;
	poll_all();
	del_each(0, 2, "8");
	del_each(0, 2, "g");
	tr = kv_tree_get(big);
	T_OK(kv_runs_bytes(tr->tr_run + tr->tr_leaf[tr->tr_nleaf - 1].lr_first,
			   tr->tr_leaf[tr->tr_nleaf - 1].lr_n) > 2u << 20);
	kv_tree_put(db, tr);
	T_OK(deletions(true) + deletions(false) < FULL_KEYS / 4);
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
	kv_end(db, dir, 0);
}

/* Puts keys of the last leaf from *k on, about @bytes of them, and flushes them. */
static void put_last(uint32_t *k, uint32_t bytes)
{
	for (uint32_t n = bytes / VLEN; n; (*k)++)
		if (*k * 0x9e3779b9u >= 0xfa000000u) {
			put(big, *k);
			n--;
		}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
}

/*
 * LF6, V2: the last leaf has more than there is room to merge, and each spill brings one run more.
 * Then fewer of them are merged.
 */
static void runs_that_have_no_room_together_hold_up_no_spill(void)
{
	uint32_t k = FULL_KEYS;
	struct kv_tree *tr;

	open_leaves();
	db->d_budget.b_leaf_bytes = 64u << 20;	/* none is split */
	for (unsigned i = 0; i < 90; i++) {
		big->k_merging.mg_moves = 1;
		put_last(&k, 100u << 10);
		ntaken = take_pool(taken, 1500u << 10);
		big->k_merging.mg_moves = 0;
		ahead_ns += 1000000000u;
		poll_all();
		if (i < 89)
			while (ntaken)
				mpool_obj_close(taken[--ntaken]);
	}
	tr = kv_tree_get(big);
	T_OK(kv_runs_bytes(tr->tr_run + tr->tr_leaf[tr->tr_nleaf - 1].lr_first,
			   tr->tr_leaf[tr->tr_nleaf - 1].lr_n) > 4u << 20);
	T_OK(tr->tr_leaf[tr->tr_nleaf - 1].lr_n < KV_LEAF_RUNS_MAX);
	T_OK(tr->tr_nupper < 2 * KV_SPILL_RUNS);
	kv_tree_put(db, tr);
	del_each(0, 2, "8");
	T_OK(deletions(true) + deletions(false) < FULL_KEYS / 8);
	while (ntaken)
		mpool_obj_close(taken[--ntaken]);
	kv_end(db, dir, 0);
}

int main(void)
{
	T_RUN(a_merge_without_room_is_not_repeated);
	T_RUN(a_merge_without_room_is_tried_again_a_minute_later);
	T_RUN(a_full_container_takes_what_makes_it_smaller);
	T_RUN(a_flush_without_room_is_not_repeated);
	T_RUN(a_flush_that_was_not_tried_says_nothing_of_room);
	T_RUN(a_queue_without_threads_ends_what_has_no_room);
	T_RUN(a_delete_waits_for_a_merge_that_has_the_last_of_the_pool);
	T_RUN(a_delete_leaves_a_merge_that_runs_its_room);
	T_RUN(a_put_waits_for_a_merge_that_has_the_room_of_a_flush);
	T_RUN(a_put_waits_for_a_writer_who_makes_room);
	T_RUN(a_put_does_not_wait_for_ever_for_a_merge);
	T_RUN(a_drain_waits_for_a_merge_that_has_the_room_of_a_flush);
	T_RUN(a_drain_does_not_wait_for_ever_for_a_merge);
	T_RUN(a_checkpoint_waits_for_a_merge_that_has_the_room_of_a_flush);
	T_RUN(a_bulk_load_waits_for_a_merge_that_has_the_room_of_a_flush);
	T_RUN(a_checkpoint_waits_for_a_merge_that_has_the_last_of_the_pool);
	T_RUN(a_block_of_a_load_leaves_the_reserve_of_each_class);
	T_RUN(a_merge_does_not_count_on_what_another_will_write);
	T_RUN(what_had_no_room_is_tried_again_with_twice_as_much);
	T_RUN(who_has_no_room_waits_for_no_count_of_keys);
	T_RUN(deletions_are_merged_before_they_take_the_last_of_the_pool);
	T_RUN(a_leaf_without_room_to_be_split_holds_up_no_other);
	T_RUN(runs_that_have_no_room_together_hold_up_no_spill);
	return t_done();
}
