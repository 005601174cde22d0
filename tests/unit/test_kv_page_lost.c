/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A page whose read failed while there was no memory to retire it with: its slab can be
 * given back all the same.
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

#define malloc pool_malloc
#include "../../libkvdb/pagepool.c"
#undef malloc

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
	/* who waited for it is told, and nobody finds it any more */
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

int main(void)
{
	T_RUN(a_lost_page_does_not_hold_up_its_slab);
	return t_done();
}
