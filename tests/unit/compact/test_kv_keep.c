/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * G17: what was in memory is read from memory after it has moved. On a real database without
 * threads, against a table of what every key must hold.
 */
#include "db/db.h"
#include "harness.h"

#include <errno.h>
#include <unistd.h>

#include "cache/pages.h"
#include "db/thread.h"
#include "kv_table.h"
#include "seg/kv_omf.h"
#include "seg/seg.h"

#define ROUNDS	12u
#define GETS	(2u * KEYS)	/* of all_hold() */

struct moved {
	unsigned mo_segs, mo_images, mo_pages;
};

static void look(void *arg, struct kv_seg *s)
{
	struct moved *mo = arg;

	if (s->sg_log != KV_MOVED_LOG || !atomic_load(&s->sg_runs))
		return;
	mo->mo_segs++;
	mo->mo_images += atomic_load(&s->sg_image) != NULL;
	for (uint32_t no = 0; no < atomic_load(&s->sg_end) / KV_BLOCK; no++)
		mo->mo_pages += kv_page_peek(db, s->sg_id, no) != NULL;
}

static struct moved moved(void)
{
	struct kv_thread *t = kv_enter();
	struct moved mo = { 0 };

	kv_segs_each(db, look, &mo);
	kv_exit(t);
	T_OK(mo.mo_segs);
	return mo;
}

/* Some of the keys are written, all are read, what is mostly dead moves: no get reads media. */
static void run_on(void)
{
	struct kvdb_stats was, st;

	put_some(1);
	settle();
	was = stats();
	for (unsigned i = 0; i < ROUNDS; i++) {
		put_some(2 + i % 3);
		all_hold();
		settle();
		all_hold();
	}
	st = stats();
	T_OK(st.relocations - was.relocations >= 2);
	T_OK(st.io[0].move_bytes > was.io[0].move_bytes);
	T_EQ(st.io[0].read_move_bytes, was.io[0].read_move_bytes);
	T_EQ(st.io[0].read_value_bytes, was.io[0].read_value_bytes);
}

static void what_moves_in_memory_stays_there_as_an_image(void)
{
	struct moved mo;

	fresh(64u << 20);
	T_EQ(db->d_budget.b_move_bytes, SEG);
	run_on();
	mo = moved();
	T_EQ(mo.mo_images, mo.mo_segs);
	T_EQ(mo.mo_pages, 0);
	done(0);
}

static void what_is_larger_than_an_image_stays_as_pages(void)
{
	struct moved mo;

	fresh(64u << 20);
	db->d_budget.b_move_bytes = 4 * SEG;	/* as in a pool with staging */
	run_on();
	mo = moved();
	T_OK(mo.mo_pages > 0);
	done(0);
}

static void overwrite_half_and_move(void)
{
	put_some(2);
	settle();
	T_OK(stats().relocations > 0);
}

/* Values that come from media, and were not asked for, take no memory. */
static void what_was_not_in_memory_takes_none(void)
{
	struct moved mo;

	fresh(64u << 20);
	put_some(1);
	settle();
	reopen();
	overwrite_half_and_move();
	T_OK(stats().io[0].read_move_bytes > 0);
	mo = moved();
	T_EQ(mo.mo_images, 0);
	T_EQ(mo.mo_pages, 0);
	all_hold();
	done(0);
}

static void what_the_pool_has_is_moved_without_a_read(void)
{
	uint64_t read;

	fresh(64u << 20);
	put_some(1);
	settle();
	reopen();
	all_hold();
	T_OK(stats().value_dev > GETS / 2);
	overwrite_half_and_move();
	T_EQ(stats().io[0].read_move_bytes, 0);
	read = stats().io[0].read_value_bytes;
	all_hold();
	T_EQ(stats().io[0].read_value_bytes, read);
	done(0);
}

static void flip(void *arg, struct kv_seg *s)
{
	const uint8_t *page;

	for (uint32_t no = 0; no < atomic_load(&s->sg_end) / KV_BLOCK; no++) {
		page = kv_page_peek(db, s->sg_id, no);
		for (unsigned i = 0; page && i < KV_BLOCK; i += 64)
			((uint8_t *)(uintptr_t)page)[i] ^= 1;
		*(unsigned *)arg += page != NULL;
	}
}

/* G5: memory that went bad is not written again. */
static void a_page_that_went_bad_is_not_moved(void)
{
	struct kv_thread *t;
	unsigned n = 0;

	fresh(64u << 20);
	put_some(1);
	settle();
	reopen();
	all_hold();
	t = kv_enter();
	kv_segs_each(db, flip, &n);
	kv_exit(t);
	T_OK(n > 0);
	overwrite_half_and_move();
	T_EQ(stats().damaged_values, 0);
	all_hold();
	reopen();
	all_hold();
	done(0);
}

static void count(void *arg, struct kv_seg *s)
{
	if (s->sg_log == KV_MOVED_LOG && ((uint64_t *)arg)[0] < 63)
		((uint64_t *)arg)[++((uint64_t *)arg)[0]] = s->sg_id;
}

/* Nothing of a segment that was deleted is left to be found. */
static void what_is_deleted_leaves_memory(void)
{
	uint64_t id[64] = { 0 };
	struct kv_thread *t;
	unsigned gone = 0;

	fresh(64u << 20);
	run_on();
	kv_segs_each(db, count, id);
	T_OK(id[0]);
	for (unsigned i = 0; i < 4; i++) {
		put_some(1);
		settle();
	}
	for (uint64_t i = 1; i <= id[0]; i++) {
		struct kv_seg *s = kv_seg_find(db, id[i]);

		gone += !s;
		t = kv_enter();
		for (uint32_t no = 0; !s && no < db->d_budget.b_move_bytes / KV_BLOCK; no++)
			T_EQ(kv_page_peek(db, id[i], no), NULL);
		kv_exit(t);
		kv_seg_put(db, s);
	}
	T_OK(gone > 0);
	done(0);
}

int main(void)
{
	T_RUN(what_moves_in_memory_stays_there_as_an_image);
	T_RUN(what_is_larger_than_an_image_stays_as_pages);
	T_RUN(what_was_not_in_memory_takes_none);
	T_RUN(what_the_pool_has_is_moved_without_a_read);
	T_RUN(a_page_that_went_bad_is_not_moved);
	T_RUN(what_is_deleted_leaves_memory);
	return t_done();
}
