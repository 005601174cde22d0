/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Relocation: the choice of victims, and whole jobs on a real database without
 * threads, against a table of what every key must hold.
 */
#include "db/db.h"
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "background/compact.h"
#include "log/flush.h"
#include "kv_clock.h"
#include "kv_table.h"
#include "meta/edit.h"
#include "meta/mdc.h"
#include "compact/merge.h"
#include "compact/reloc.h"
#include "run/run.h"
#include "background/work.h"
#include "base/hash.h"
#include "seg/reserve.h"
#include "mem/iter.h"
#include "tree/tree.h"

/* ---- choice --------------------------------------------------------------------- */

static unsigned choose(struct kv_victim *v, unsigned n, uint64_t excess, uint64_t room)
{
	struct kv_reloc_room rr = { .rr_any = room };

	return kv_reloc_choose(v, n, excess, &rr);
}

static void emptiest_segments_are_chosen_until_the_excess_is_covered(void)
{
	struct kv_seg seg[5];
	struct kv_victim v[5] = {
		{ .vi_seg = &seg[0], .vi_bytes = 1000, .vi_live = 900, .vi_age = 9 },
		{ .vi_seg = &seg[1], .vi_bytes = 1000, .vi_live = 100, .vi_age = 1 },
		{ .vi_seg = &seg[2], .vi_bytes = 1000, .vi_live = 0, .vi_age = 1 },
		{ .vi_seg = &seg[3], .vi_bytes = 1000, .vi_live = 990, .vi_age = 9 },
		{ .vi_seg = &seg[4], .vi_bytes = 1000, .vi_live = 500, .vi_age = 5 },
	}, w[5];

	memcpy(w, v, sizeof(v));
	T_EQ(choose(w, 5, 1500, 1 << 20), 2);
	T_OK(w[0].vi_seg == &seg[2] && w[1].vi_seg == &seg[1]);
	memcpy(w, v, sizeof(v));
	T_EQ(choose(w, 5, 2000, 1 << 20), 3);
	T_OK(w[2].vi_seg == &seg[4]);
	/* a segment that is nearly all live is not worth its copy, whatever is asked for */
	memcpy(w, v, sizeof(v));
	T_EQ(choose(w, 5, 1 << 20, 1 << 20), 4);
	/* what may be written bounds the job */
	memcpy(w, v, sizeof(v));
	T_EQ(choose(w, 5, 1 << 20, 599), 2);
	T_EQ(choose(w, 5, 0, 1 << 20), 0);
	T_EQ(choose(w, 0, 10, 10), 0);
}

static void what_may_go_to_one_class_only_is_bounded_by_its_room(void)
{
	struct kv_seg seg[3] = { 0 };
	struct kv_victim v[3] = {
		{ .vi_seg = &seg[0], .vi_bytes = 1000, .vi_live = 100, .vi_age = 1,
		  .vi_only = { 100, 0 } },
		{ .vi_seg = &seg[1], .vi_bytes = 1000, .vi_live = 200, .vi_age = 1,
		  .vi_only = { 150, 0 } },
		{ .vi_seg = &seg[2], .vi_bytes = 1000, .vi_live = 300, .vi_age = 1 },
	}, w[3];
	struct kv_reloc_room room = { .rr_any = 1000, .rr_only = { 200 }, .rr_into = { 200 } };

	memcpy(w, v, sizeof(v));
	T_EQ(kv_reloc_choose(w, 3, 1 << 20, &room), 2);
	T_OK(w[0].vi_seg == &seg[0] && w[1].vi_seg == &seg[2]);
	room.rr_only[0] = room.rr_into[0] = 250;
	memcpy(w, v, sizeof(v));
	T_EQ(kv_reloc_choose(w, 3, 1 << 20, &room), 3);
	room.rr_any = 599;
	memcpy(w, v, sizeof(v));
	T_EQ(kv_reloc_choose(w, 3, 1 << 20, &room), 2);
	/* what comes from another class finds no room in the reserve */
	room = (struct kv_reloc_room){ .rr_any = 1000, .rr_only = { 250, 0 } };
	seg[0].sg_mclass = MPOOL_STAGING;
	memcpy(w, v, sizeof(v));
	T_EQ(kv_reloc_choose(w, 3, 1 << 20, &room), 2);
	T_OK(w[0].vi_seg == &seg[1] && w[1].vi_seg == &seg[2]);
}

static void of_equally_empty_segments_the_oldest_goes(void)
{
	struct kv_seg seg[2];
	struct kv_victim v[2] = {
		{ .vi_seg = &seg[0], .vi_bytes = 1000, .vi_live = 500, .vi_age = 2 },
		{ .vi_seg = &seg[1], .vi_bytes = 1000, .vi_live = 500, .vi_age = 7 },
	};

	T_EQ(choose(v, 2, 1, 1 << 20), 1);
	T_OK(v[0].vi_seg == &seg[1]);
}

/* ---- when ------------------------------------------------------------------------- */

static void space_may_be_above_its_bound_by_what_is_written_soon(void)
{
	T_OK(kv_space_burst(0, 1000, 1.5) == 0);
	T_OK(kv_space_burst(100, 0, 1.5) == 0);		/* not counted yet */
	T_OK(kv_space_burst(1, 1000, 1.5) > 0);
	T_OK(kv_space_burst(2, 1000, 1.5) == 2 * kv_space_burst(1, 1000, 1.5));
	/* before writers must stop for it */
	T_OK(kv_space_burst(1e12, 1000, 1.5) < 0.5);
	T_OK(kv_space_burst(1e12, 1000, 1.1) < 0.1);
}

/* Writers pause for @ms, background work goes on. */
static void work(unsigned ms)
{
	int rc;

	for (unsigned i = 0; i < ms / 50; i++) {
		now_ns += 50000000;
		while ((rc = kvdb_poll(db)) > 0)
			;
		T_EQ(rc, 0);
	}
}

static void jobs_begin_later_while_writers_are_fast_and_keep_the_bound_when_they_pause(void)
{
	uint64_t first = 0, rnd = t_seed(), live;
	struct kvdb_stats st;

	clk = &test_clock;
	fresh(64u << 20);
	put_some(1);
	settle();
	live = live_bytes();
	for (unsigned round = 0; round < 40 && !first; round++) {
		for (unsigned i = 0; i < KEYS / 8; i++)
			for (unsigned k = 0; k < 2; k++)
				T_EQ(put(k, (uint32_t)(t_rand(&rnd) % KEYS)), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
		st = stats();
		work(100);
		if (stats().relocations)
			first = st.space_bytes;
	}
	/* later than at the bound, earlier than where writers would stop */
	T_OK(first > live * 7 / 4);
	T_OK(first < live * 9 / 4);
	put_some(2);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_OK(stats().space_bytes > live + live / 2);
	work(20000);
	T_OK(stats().space_bytes <= live + live / 2);
	all_hold();
	done(0);
	clk = NULL;
}

/* As while stores are loaded: all that they refer to counts as live, and no job can help. */
static void what_could_not_be_mended_in_a_burst_is_tried_again_after_it(void)
{
	uint64_t live;

	clk = &test_clock;
	fresh(64u << 20);
	put_some(1);
	settle();
	live = live_bytes();
	for (unsigned s = 0; s < 2; s++)
		atomic_store(&kvs[s]->k_bulk, true);
	put_some(1);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	work(100);
	T_EQ(stats().relocations, 0);
	T_OK(stats().space_bytes > 2 * live);
	for (unsigned s = 0; s < 2; s++)
		atomic_store(&kvs[s]->k_bulk, false);
	settle();
	T_OK(stats().space_bytes <= live + live / 2);
	all_hold();
	done(0);
	clk = NULL;
}

static bool is_armed;	/* the first job is cancelled, by another thread */
static pthread_t canceller;

static void *cancel(void *arg)
{
	(void)arg;
	T_EQ(kvdb_compact(db, KVDB_COMPACT_CANCEL), 0);
	return NULL;
}

static uint64_t clock_cancels(void *arg)
{
	if (is_armed && kv_reloc_due(db)) {	/* it has chosen */
		is_armed = false;
		T_EQ(pthread_create(&canceller, NULL, cancel, NULL), 0);
		while (!kv_reloc_is_cancelled(db))
			sched_yield();
	}
	return clock_now(arg);
}

static const struct kvdb_clock cancelling_clock = { clock_cancels, clock_sleep, NULL, NULL };

/* Cancelling a compaction does not give up the bound of an idle database. */
static void a_job_that_was_cancelled_is_tried_again_a_minute_later(void)
{
	uint64_t live;

	clk = &cancelling_clock;
	fresh(64u << 20);
	put_some(1);
	settle();
	live = live_bytes();
	put_some(1);
	put_some(2);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	now_ns += 100000ull * 1000000000;	/* it was no burst */
	is_armed = true;
	work(10000);
	T_OK(!is_armed);
	T_EQ(pthread_join(canceller, NULL), 0);
	T_EQ(stats().relocations, 0);
	T_OK(stats().space_bytes > live + live / 2);
	work(60000);
	T_OK(stats().space_bytes <= live + live / 2);
	all_hold();
	done(0);
	clk = NULL;
}

#define ASKING	6u	/* threads that want room at once */

static _Atomic(unsigned) asking;

/* The first job goes on when all have asked, and most of them are there. */
static uint64_t clock_waits(void *arg)
{
	bool waits = asking && asking < ASKING && kv_reloc_is_busy(db);

	while (waits && asking < ASKING)
		sched_yield();
	if (waits)
		usleep(50000);
	return clock_now(arg);
}

static const struct kvdb_clock waiting_clock = { clock_waits, clock_sleep, NULL, NULL };

static void *ask_for_room(void *arg)
{
	(void)arg;
	asking++;
	kv_reloc_make_room(db);
	return NULL;
}

/* A job counts all keys: a thread that waits for another's does not count them again. */
static void many_that_want_room_share_a_job(void)
{
	pthread_t t[ASKING];
	uint64_t one, todo;

	asking = 0;
	clk = &waiting_clock;
	fresh(64u << 20);
	put_some(1);
	settle();
	kv_reloc_make_room(db);
	todo = atomic_load(&db->d_bg.bd_compact.cp_todo);
	kv_reloc_make_room(db);
	one = atomic_load(&db->d_bg.bd_compact.cp_todo) - todo;
	T_OK(one > 0);
	todo += one;
	for (unsigned i = 0; i < ASKING; i++)
		T_EQ(pthread_create(&t[i], NULL, ask_for_room, NULL), 0);
	for (unsigned i = 0; i < ASKING; i++)
		T_EQ(pthread_join(t[i], NULL), 0);
	/* one that had begun when others asked, one for all of those; and late ones */
	T_OK(atomic_load(&db->d_bg.bd_compact.cp_todo) - todo <= ASKING / 2 * one);
	asking = 0;
	all_hold();
	done(0);
	clk = NULL;
}

/* ---- jobs ------------------------------------------------------------------------- */

static void overwritten_segments_come_free_and_every_value_stays(void)
{
	struct kvdb_stats st;

	fresh(64u << 20);
	put_some(1);
	settle();
	for (unsigned round = 0; round < 6; round++) {
		put_some(2 + round % 3);
		settle();
		all_hold();
		st = stats();
		T_OK(st.space_bytes <= live_bytes() + live_bytes() / 2 + 2 * SEG);
	}
	T_OK(st.relocations > 0);
	T_OK(st.io[0].move_bytes > 0);
	T_EQ(st.damaged_values, 0);
	reopen();
	all_hold();
	done(0);
}

static void count_mblocks(void *arg, struct kv_seg *s)
{
	*(unsigned *)arg += s->sg_log == KV_MOVED_LOG;
}

static void a_moved_segment_survives_reopening_and_more_jobs(void)
{
	unsigned n = 0;

	fresh(64u << 20);
	put_some(1);
	settle();
	put_some(2);
	settle();
	kv_segs_each(db, count_mblocks, &n);
	T_OK(n > 0);
	reopen();
	all_hold();
	for (unsigned i = 0; i < 4; i++) {
		put_some(3);
		settle();
		reopen();
		all_hold();
	}
	done(0);
}

/* The cursor shows every key of the first store with the value of @was, its version then. */
static void shows_and_closes(struct kvdb_cursor *cur, const uint32_t was[KEYS])
{
	const void *key, *val;
	uint8_t want[VLEN];
	size_t klen, vlen;
	uint32_t n = 0;
	char k[32];

	while (!kvdb_cursor_next(cur, &key, &klen, &val, &vlen)) {
		uint32_t i = 0;

		while (i < KEYS && (key_of(i, k) != klen || memcmp(k, key, klen)))
			i++;
		T_OK(i < KEYS);
		value(0, i, was[i], want);
		T_EQ(vlen, VLEN);
		T_MEMEQ(val, want, VLEN);
		n++;
	}
	T_EQ(n, KEYS);
	kvdb_cursor_close(cur);
}

static void a_cursor_reads_on_while_its_values_are_moved(void)
{
	static uint32_t was[KEYS];
	struct kvdb_cursor *cur;
	uint64_t held;

	fresh(64u << 20);
	put_some(1);
	settle();
	T_EQ(kvdb_cursor_open(kvs[0], 0, NULL, 0, &cur), 0);
	memcpy(was, version[0], sizeof(was));
	for (unsigned i = 0; i < 4; i++) {
		put_some(2);
		settle();
	}
	T_OK(stats().relocations > 0);
	held = stats().segments;
	shows_and_closes(cur, was);
	settle();
	T_OK(stats().segments < held);
	all_hold();
	done(0);
}

/* Logs come free behind it: it holds what its memtables name, not all that came after them. */
static void an_open_cursor_does_not_hold_the_log(void)
{
	static uint32_t was[KEYS];
	struct kvdb_cursor *cur;
	uint64_t before, held;

	fresh(64u << 20);
	for (unsigned i = 0; i < 4; i++) {
		put_some(1);
		settle();
	}
	before = stats().segments;
	put_some(1);	/* what it reads is in memtables */
	T_EQ(kvdb_cursor_open(kvs[0], 0, NULL, 0, &cur), 0);
	memcpy(was, version[0], sizeof(was));
	for (unsigned i = 0; i < 24; i++) {
		put_some(i % 3 + 1);
		settle();
	}
	/* three rounds' worth, not the two hundred and more of all rounds */
	held = stats().segments;
	T_OK(held < before + 60);
	shows_and_closes(cur, was);
	settle();
	/* and what it read had been kept for it */
	T_OK(stats().segments < held);
	all_hold();
	done(0);
}

static void values_of_a_dropped_store_go_with_their_segments(void)
{
	fresh(64u << 20);
	put_some(1);
	settle();
	put_some(2);
	T_EQ(kvdb_kvs_drop(db, "b"), 0);
	memset(version[1], 0, sizeof(version[1]));
	T_EQ(kvdb_kvs_create(db, "b", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "b", &kvs[1]), 0);
	settle();
	all_hold();
	T_OK(stats().space_bytes <= live_bytes() + live_bytes() / 2 + 2 * SEG);
	reopen();
	all_hold();
	done(0);
}

static double bound(void)
{
	struct kvdb_info in;

	T_EQ(kvdb_info(db, &in), 0);
	return in.space_amp_max;
}

static void the_bound_of_create_is_that_of_every_open_which_names_none(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	fresh(64u << 20);
	T_OK(bound() == 1.5);
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_drop(dir, NULL), 0);
	o.space_amp_max = 2.25;
	T_EQ(kvdb_create(dir, &o), 0);
	open_db();
	T_OK(bound() == 2.25);
	T_EQ(kvdb_close(db), 0);
	o.space_amp_max = 3;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_OK(bound() == 3);
	reopen();
	T_OK(bound() == 2.25);
	done(0);
}

/* G7, B1: what a bulk load holds back is its own store, wherever that is in the table. */
static void a_bulk_load_does_not_stop_relocation(void)
{
	for (unsigned s = 0; s < 2; s++) {
		struct kvdb_bulk *bulk;

		fresh(64u << 20);
		put_some(1);
		settle();
		T_EQ(kvdb_bulk_open(kvs[s], 0, &bulk), 0);
		for (unsigned round = 0; round < 12; round++) {
			for (uint32_t k = 0; k < KEYS; k++)
				T_EQ(put(!s, k), 0);
			settle();
		}
		T_OK(stats().relocations > 0);
		kvdb_bulk_abort(bulk);
		all_hold();
		done(0);
	}
}

/* Nothing could be mended while both stores were loaded, at rest; space is as it was then. */
static void what_a_bulk_load_held_back_is_tried_again_after_it(void)
{
	struct kvdb_bulk *bulk[2];
	uint64_t live;

	fresh(64u << 20);
	put_some(1);
	settle();
	live = live_bytes();
	for (unsigned s = 0; s < 2; s++)
		T_EQ(kvdb_bulk_open(kvs[s], 0, &bulk[s]), 0);
	put_some(1);
	settle();
	T_OK(stats().space_bytes > live + live / 2);
	for (unsigned s = 0; s < 2; s++)
		kvdb_bulk_abort(bulk[s]);
	settle();
	T_OK(stats().space_bytes <= live + live / 2);
	all_hold();
	done(0);
}

/* ---- damage ------------------------------------------------------------------------ */

static void is_there(void *arg, struct kv_seg *s)
{
	uint64_t *id = arg;

	if (s->sg_id == id[0])
		id[1] = 1;
}

static int flip_fd;
static uint64_t flip_pos;

/* A bit on the device. */
static void flip(void)
{
	uint64_t page = flip_pos / 4096 * 4096;
	uint8_t *buf;

	T_EQ(posix_memalign((void **)&buf, 4096, 4096), 0);
	T_EQ(pread(flip_fd, buf, 4096, (off_t)page), 4096);
	buf[flip_pos % 4096] ^= 1;
	T_EQ(pwrite(flip_fd, buf, 4096, (off_t)page), 4096);
	free(buf);
}

/* Turns a bit of the value of key @k over on its device; returns its segment. */
static uint64_t damage(unsigned s, uint32_t k)
{
	struct kv_thread *t = kv_enter();
	struct kv_tree *tr = atomic_load(&kvs[s]->k_tree);
	size_t klen;
	uint64_t len, off;
	struct kv_ent e;
	char key[32];

	klen = key_of(k, key);
	T_EQ(kv_run_lookup(db, tr->tr_run[0], key, klen, kv_hash(key, klen), &e), 0);
	kv_exit(t);
	T_EQ(e.e_kind, KV_ENT_REF);
	off = (uint64_t)e.e_off8 * 8;
	T_EQ(mpool_obj_place(e.e_seg->sg_obj, off / 4096 * 4096, &flip_fd, &flip_pos, &len), 0);
	flip_pos += off % 4096;
	flip();
	return e.e_seg->sg_id;
}

/* A fresh database in which a value is damaged, and most others have moved; its segment. */
static uint64_t one_damaged(void)
{
	uint64_t id;

	fresh(64u << 20);
	put_some(1);
	settle();
	reopen();	/* the window forgets */
	id = damage(0, 201);
	for (unsigned i = 0; i < 3; i++) {
		put_some(2);
		settle();
	}
	return id;
}

static void a_damaged_value_keeps_its_segment_and_is_reported(void)
{
	uint64_t id[2] = { 0, 0 };
	struct kvdb_stats st;
	uint8_t got[VLEN];
	char key[32];
	size_t len;

	id[0] = one_damaged();
	st = stats();
	T_OK(st.relocations > 0);
	T_EQ(st.damaged_values, 1);
	kv_segs_each(db, is_there, id);
	T_EQ(id[1], 1);
	for (unsigned s = 0; s < 2; s++)
		for (uint32_t k = 0; k < KEYS; k++)
			if ((s || k != 201) && !holds(s, k))
				T_FAIL("store %u, key %u", s, k);
	T_EQ(kvdb_get(kvs[0], key, key_of(201, key), got, VLEN, &len), -EUCLEAN);
	T_EQ(put(0, 201), 0);
	all_hold();
	settle();
	/* with its value overwritten the segment goes */
	id[1] = 0;
	for (unsigned i = 0; i < 2 && (!i || id[1]); i++) {
		put_some(2);
		settle();
		id[1] = 0;
		kv_segs_each(db, is_there, id);
	}
	done(id[1]);
}

/* FS2: what was damaged on its way keeps no segment until the next open. */
static void a_value_that_is_right_again_is_moved(void)
{
	uint64_t id[2] = { 0, 0 };
	struct kvdb_info in;

	clk = &test_clock;
	id[0] = one_damaged();
	T_EQ(stats().damaged_values, 1);
	T_EQ(kvdb_info(db, &in), 0);
	T_EQ(in.stuck, 1);
	T_OK(strstr(in.stuck_text, "values in segment"));
	/* found again it is no other one */
	now_ns += 11000000000u;
	put_some(2);
	settle();
	T_EQ(stats().damaged_values, 1);
	kv_segs_each(db, is_there, id);
	T_EQ(id[1], 1);
	flip();
	now_ns += 21000000000u;
	put_some(2);
	settle();
	id[1] = 0;
	kv_segs_each(db, is_there, id);
	T_EQ(id[1], 0);
	T_EQ(kvdb_info(db, &in), 0);
	T_EQ(in.stuck, 0);
	all_hold();
	done(0);
	clk = NULL;
}

/* ---- full media --------------------------------------------------------------------- */

/* Eight of them fill a frame of 32 KiB to 8/9. */
static int put_wide(uint32_t k)
{
	uint8_t val[3600];
	char key[32];

	memset(val, (int)k, sizeof(val));
	return kvdb_put(kvs[0], key, (size_t)sprintf(key, "%06u", k), val, sizeof(val));
}

/* G11: segments take more than the values in them; a job without room for that brings nothing. */
static void a_job_chooses_no_more_than_it_has_room_for(void)
{
	const uint32_t n = 8000;

	clk = &test_clock;
	fresh(64u << 20);
	for (uint32_t k = 0; kv_segs_free_bytes(db) > 12u << 20; k++) {
		/* all, and then every second one again */
		T_EQ(put_wide(k < n ? k : 2 * (k - n)), 0);
		if (k % 64 == 0)
			T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	/* not so near the end of the pool; a job counts no more runs than one merge takes */
	while (kv_merge_step(db, kvs[0]) > 0)
		;
	T_EQ(stats().relocations, 0);
	kv_reloc_force(db);
	T_EQ(kv_reloc_step(db), 1);
	T_EQ(stats().relocations, 1);
	done(0);
	clk = NULL;
}

static void garbage_never_fills_the_pool(void)
{
	fresh(12u << 20);
	for (unsigned round = 0; round < 60; round++)
		for (uint32_t k = round % 2; k < KEYS; k += 2)
			for (unsigned s = 0; s < 2; s++)
				T_EQ(put(s, k), 0);
	all_hold();
	reopen();
	all_hold();
	done(0);
}

/* ---- crash ----------------------------------------------------------------------------- */

static void mark(void *arg, struct kv_seg *s)
{
	if (atomic_load(&s->sg_state) == KV_SEG_SEALED && atomic_load(&s->sg_runs)) {
		atomic_store(&s->sg_victim, true);
		++*(unsigned *)arg;
	}
}

/* Dies in the middle of a relocation of everything, after step @step. */
static void die_at(int step)
{
	struct kv_run_build *rb;
	struct kv_move *mv;
	struct kv_tree *tr;
	struct kv_iter *it;
	struct kv_run *run;
	unsigned n = 0;
	struct kv_ent e;
	int err;

	open_db();
	kv_segs_each(db, mark, &n);
	tr = kv_tree_get(kvs[0]);
	if (!n || !tr->tr_nrun ||
	    kv_move_open(db, kvs[0], kv_min_horizon(db), MPOOL_CAPACITY, false, false, &mv) ||
	    kv_run_build_open(db, kvs[0]->k_id, KEYS, true, &rb) ||
	    kv_run_iter(db, tr->tr_run[0], false, &it))
		_exit(1);
	while (!(err = it->it_ops->next(it, &e)))
		if (kv_move_add(mv, rb, &e))
			_exit(2);
	if (err != -ENOENT || kv_move_flush(mv, rb) || !kv_move_bytes(mv))
		_exit(3);
	if (step == 0)
		_exit(0);
	if (kv_run_build_finish(rb, &run))
		_exit(4);
	if (step == 1)
		_exit(0);
	if (kv_move_seal(mv))
		_exit(5);
	if (step == 2)
		_exit(0);
	kv_run_desc(run)->rd_id = atomic_fetch_add(&db->d_runs.ru_next, 1);
	kv_run_desc(run)->rd_pos = kv_run_desc(tr->tr_run[0])->rd_pos;
	kv_run_desc(run)->rd_newest_epoch = kv_run_desc(tr->tr_run[0])->rd_newest_epoch;
	if (kv_mdc_edit(db, &(struct kv_edit){ .ed_kvs = kvs[0]->k_id, .ed_add = &run,
					       .ed_nadd = 1, .ed_drop = tr->tr_run,
					       .ed_ndrop = 1 }))
		_exit(6);
	_exit(0);
}

static void a_process_may_die_at_every_step(void)
{
	int st;

	fresh(64u << 20);
	put_some(1);
	settle();
	T_EQ(stats().runs, 2);
	for (int step = 0; step < 4; step++) {
		uint64_t before = stats().segments;
		pid_t pid;

		T_EQ(kvdb_close(db), 0);
		pid = fork();
		if (!pid)
			die_at(step);
		T_EQ(waitpid(pid, &st, 0), pid);
		T_EQ(st, 0);
		open_db();
		all_hold();
		settle();
		all_hold();
		/* what was written and never listed is gone again */
		if (step < 3)
			T_OK(stats().segments <= before + 2);
	}
	done(0);
}

/* G6: the current horizon is 0 then, which is no epoch of a frame. */
static void a_store_that_comes_meanwhile_leaves_moved_segments_whole(void)
{
	uint64_t horizon, bytes = 0;
	unsigned n = 0;

	fresh(64u << 20);
	put_some(1);
	settle();
	horizon = kv_min_horizon(db);
	T_OK(horizon > 0);
	kv_segs_each(db, mark, &n);
	T_OK(n > 0);
	db->d_stores.sr_coming = true;
	T_EQ(kv_merge_move(db, kvs[0], horizon, MPOOL_CAPACITY, false, false, &bytes), 1);
	db->d_stores.sr_coming = false;
	T_OK(bytes > 0);
	all_hold();
	reopen();
	all_hold();
	done(0);
}

static void mark_of_run(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	(void)arg;
	(void)n;
	(void)bytes;
	atomic_store(&s->sg_victim, true);
}

static void unmark(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	(void)arg;
	(void)n;
	(void)bytes;
	atomic_store(&s->sg_victim, false);
}

/* RUN-4: what newer runs hold is left out of a move, and they stay as they are. */
static void a_move_leaves_newer_runs_alone_and_what_they_hide_out(void)
{
	uint64_t bytes = 0, id[2];
	struct kv_tree *tr;
	char key[32];

	fresh(64u << 20);
	for (uint32_t k = 0; k < KEYS; k++)
		T_EQ(put(0, k), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	for (uint32_t k = 0; k < KEYS; k += 4)
		T_EQ(put(0, k), 0);
	for (uint32_t k = 1; k < KEYS; k += 4) {
		T_EQ(kvdb_del(kvs[0], key, key_of(k, key)), 0);
		version[0][k] = 0;
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	tr = kv_tree_get(kvs[0]);
	T_EQ(tr->tr_nrun, 2);
	id[0] = kv_run_desc(tr->tr_run[0])->rd_id;
	id[1] = kv_run_desc(tr->tr_run[1])->rd_id;
	kv_run_segs(tr->tr_run[1], mark_of_run, NULL);
	kv_run_segs(tr->tr_run[0], unmark, NULL);
	kv_tree_put(db, tr);
	T_EQ(kv_merge_move(db, kvs[0], kv_min_horizon(db), MPOOL_CAPACITY, false, false, &bytes),
	     1);
	T_OK(bytes > KEYS / 2 * VLEN && bytes < KEYS * 3 / 4 * VLEN);
	tr = kv_tree_get(kvs[0]);
	T_EQ(tr->tr_nrun, 2);
	T_EQ(kv_run_desc(tr->tr_run[0])->rd_id, id[0]);
	T_OK(kv_run_desc(tr->tr_run[1])->rd_id > id[1]);
	T_OK(kv_run_desc(tr->tr_run[1])->rd_keys <= KEYS / 2);
	kv_tree_put(db, tr);
	all_hold();
	reopen();
	all_hold();
	settle();
	all_hold();
	done(0);
}

/* MEM1 */
static void what_moves_values_is_counted_as_memory(void)
{
	struct kv_move *mv;
	uint64_t was;

	fresh(64u << 20);
	was = stats().table_bytes;
	T_EQ(kv_move_open(db, kvs[0], 1, MPOOL_CAPACITY, false, false, &mv), 0);
	T_OK(stats().table_bytes >= was + 2 * SEG);
	kv_move_close(mv);
	T_EQ(stats().table_bytes, was);
	done(0);
}

/* True once nothing is left that would help. */
static bool gives_up(unsigned jobs)
{
	kv_reloc_force(db);
	for (unsigned i = 0; i < jobs && kv_reloc_is_forced(db); i++) {
		T_OK(kv_reloc_step(db) >= 0);
		kv_reloc_look(db);
	}
	return !kv_reloc_is_forced(db);
}

/* There is something to gain each time: what was written meanwhile is overwritten again. */
static void a_compaction_ends_beside_writers(void)
{
	fresh(64u << 20);
	put_some(1);
	settle();
	put_some(2);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	kv_reloc_force(db);
	for (unsigned i = 0; i < 8 && kv_reloc_is_forced(db); i++) {
		put_some(2);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
		T_OK(kv_reloc_step(db) >= 0);
		kv_reloc_look(db);
	}
	T_OK(!kv_reloc_is_forced(db));
	T_OK(stats().relocations > 0);
	settle();
	all_hold();
	done(0);
}

/* The first @n keys of store 0 whose values lie in one segment. */
static void of_one_segment(uint32_t *k, unsigned n)
{
	struct kv_tree *tr = kv_tree_get(kvs[0]);
	struct kv_seg *first = NULL;
	struct kv_iter *it;
	struct kv_ent e;

	T_EQ(kv_run_iter_bulk(db, tr->tr_run[0], &it), 0);
	while (n) {
		T_EQ(it->it_ops->next(it, &e), 0);
		if (!first)
			first = e.e_seg;
		if (e.e_seg == first)
			k[--n] = (uint32_t)atoi((const char *)e.e_key) * 343 % KEYS;
	}
	it->it_ops->close(it);
	kv_tree_put(db, tr);
}

/* G13: what is left of a segment may need one as large, then nothing came free. */
static void a_job_that_brings_no_segment_is_not_repeated(void)
{
	const uint32_t n = 4 * (SEG / 1240);	/* when they moved they fill their segments */
	uint32_t gone[3];
	uint64_t space, jobs;
	char key[32];

	fresh(64u << 20);
	for (uint32_t k = 0; k < n; k++)
		T_EQ(put(0, k), 0);
	settle();
	reopen();
	T_OK(gives_up(8));
	/* of one segment as much goes as makes it worth a copy */
	of_one_segment(gone, 3);
	for (unsigned i = 0; i < 3; i++) {
		T_EQ(kvdb_del(kvs[0], key, key_of(gone[i], key)), 0);
		version[0][gone[i]] = 0;
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	space = stats().space_bytes;
	jobs = stats().relocations;
	T_OK(gives_up(8));
	T_OK(stats().space_bytes <= space);
	/* not by emptying as much as there is (G15) */
	T_OK(stats().relocations <= jobs + 1);
	all_hold();
	done(0);
}

int main(void)
{
	T_RUN(emptiest_segments_are_chosen_until_the_excess_is_covered);
	T_RUN(what_may_go_to_one_class_only_is_bounded_by_its_room);
	T_RUN(of_equally_empty_segments_the_oldest_goes);
	T_RUN(space_may_be_above_its_bound_by_what_is_written_soon);
	T_RUN(jobs_begin_later_while_writers_are_fast_and_keep_the_bound_when_they_pause);
	T_RUN(what_could_not_be_mended_in_a_burst_is_tried_again_after_it);
	T_RUN(a_job_that_was_cancelled_is_tried_again_a_minute_later);
	T_RUN(many_that_want_room_share_a_job);
	T_RUN(overwritten_segments_come_free_and_every_value_stays);
	T_RUN(a_moved_segment_survives_reopening_and_more_jobs);
	T_RUN(a_cursor_reads_on_while_its_values_are_moved);
	T_RUN(an_open_cursor_does_not_hold_the_log);
	T_RUN(the_bound_of_create_is_that_of_every_open_which_names_none);
	T_RUN(a_bulk_load_does_not_stop_relocation);
	T_RUN(what_a_bulk_load_held_back_is_tried_again_after_it);
	T_RUN(values_of_a_dropped_store_go_with_their_segments);
	T_RUN(a_damaged_value_keeps_its_segment_and_is_reported);
	T_RUN(a_value_that_is_right_again_is_moved);
	T_RUN(a_store_that_comes_meanwhile_leaves_moved_segments_whole);
	T_RUN(a_move_leaves_newer_runs_alone_and_what_they_hide_out);
	T_RUN(what_moves_values_is_counted_as_memory);
	T_RUN(a_job_that_brings_no_segment_is_not_repeated);
	T_RUN(a_job_chooses_no_more_than_it_has_room_for);
	T_RUN(garbage_never_fills_the_pool);
	T_RUN(a_process_may_die_at_every_step);
	T_RUN(a_compaction_ends_beside_writers);
	return t_done();
}
