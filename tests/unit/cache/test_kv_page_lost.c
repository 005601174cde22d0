/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The page pool while there is no memory: a page whose read failed then and could not be
 * retired does not keep its slab, and a slab whose pages could not be described is not lost.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <time.h>

#include "kv_rig.h"

static int has_no_memory;

static void *pool_malloc(size_t size)
{
	return has_no_memory ? NULL : malloc(size);
}

static void *pool_aligned_alloc(size_t align, size_t size)
{
	return has_no_memory ? NULL : aligned_alloc(align, size);
}

#define malloc pool_malloc
#define aligned_alloc pool_aligned_alloc
#include "cache/pagepool.c"
#undef malloc
#undef aligned_alloc

static struct rig r;

static void *yield_main(void *arg)
{
	*(uint8_t **)arg = kv_pagepool_yield_slab(&r.db);
	return NULL;
}

static void a_lost_page_does_not_hold_up_its_slab(void)
{
	struct timespec end;
	struct kv_thread *t;
	const uint8_t *out;
	struct kv_page *p;
	uint8_t *into, *mem = NULL;
	pthread_t th;

	rig_open(&r, 2 << 20, 64 << 20);
	t = kv_enter();
	p = kv_page_claim(&r.db, 4711, 0, false, &into);
	T_OK(p && into);
	has_no_memory = 1;
	kv_page_settle(&r.db, p, -EIO);
	has_no_memory = 0;
	/* the thread that waited for it is told, and no lookup finds it any more */
	T_EQ(kv_page_wait(&r.db, p, &out), -EIO);
	T_OK(!kv_page_hit(&r.db, 4711, 0));
	kv_exit(t);
	T_EQ(pthread_create(&th, NULL, yield_main, &mem), 0);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 10;
	T_EQ(pthread_timedjoin_np(th, NULL, &end), 0);
	T_OK(mem != NULL);
	rig_close(&r);
}

/* However often it is tried: the window can have the slab, and the pool when there is memory. */
static void a_slab_that_the_pool_cannot_use_is_given_back(void)
{
	struct kv_thread *t;
	uint8_t *into;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	has_no_memory = 1;
	for (unsigned no = 0; no < 40; no++) {
		t = kv_enter();
		T_OK(!kv_page_claim(&r.db, 4711, no, false, &into));
		kv_exit(t);
		kv_pages_room(&r.db, 64);
	}
	has_no_memory = 0;
	T_EQ(kv_slab_page_bytes(&r.db), 0);
	T_OK(kv_slab_take_image(&r.db, r.seg[0]->sg_bytes, &r.seg[0]->sg_image) != NULL);
	T_EQ(kv_slab_window_bytes(&r.db), RIG_SEG_BYTES);
	t = kv_enter();
	T_OK(kv_page_claim(&r.db, 4711, 0, false, &into) && into);
	kv_page_settle(&r.db, kv_page_claim(&r.db, 4711, 0, false, &into), 0);
	kv_exit(t);
	T_EQ(kv_slab_page_bytes(&r.db), RIG_SEG_BYTES);
	kv_slab_drop_image(&r.db, &r.seg[0]->sg_image);
	rig_close(&r);
}

int main(void)
{
	T_RUN(a_lost_page_does_not_hold_up_its_slab);
	T_RUN(a_slab_that_the_pool_cannot_use_is_given_back);
	return t_done();
}
