/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Threads that wake completion queues, and those that are about to sleep: one interleaving, made by
 * doing what the other threads do in the middle of arm().
 */
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cq/cq.h"
#include "harness.h"

static void (*between)(void);

static void others(void)
{
	void (*fn)(void) = between;

	between = NULL;
	if (fn)
		fn();
}

#undef atomic_fetch_add
#define atomic_fetch_add(p, v) (others(), __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST))

#include "cq/cq_wait.c"

static struct kvdb db;
static struct kvdb_cq q[3];
static int is_woken;

static int was_woken(struct kvdb_cq *cq)
{
	uint64_t n = 0;

	return read(cq->c_event, &n, sizeof(n)) == sizeof(n) && n;
}

/* One wakes all; the first goes to sleep after it, and then something happens for it. */
static void wake_arm_wake(void)
{
	kv_cqs_wake(&db);
	arm(&q[0]);
	was_woken(&q[0]);
	kv_cqs_wake(&db);
	is_woken = was_woken(&q[0]);
}

static void a_queue_is_woken_while_another_goes_to_sleep(void)
{
	unsigned i;

	pthread_mutex_init(&db.d_cqs.qs_lock, NULL);
	for (i = 0; i < 3; i++) {
		q[i].c_db = &db;
		q[i].c_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		T_OK(q[i].c_event >= 0);
		q[i].c_next = db.d_cqs.qs_first;
		db.d_cqs.qs_first = &q[i];
	}
	arm(&q[2]);
	between = wake_arm_wake;
	arm(&q[1]);
	T_OK(!between);
	T_OK(is_woken);
	/* and the count is that of sleepers */
	for (i = 0; i < 3; i++)
		kv_cq_disarm(&q[i]);
	T_EQ(atomic_load(&db.d_cqs.qs_armed), 0);
	for (i = 0; i < 3; i++)
		close(q[i].c_event);
	pthread_mutex_destroy(&db.d_cqs.qs_lock);
}

int main(void)
{
	T_RUN(a_queue_is_woken_while_another_goes_to_sleep);
	return t_done();
}
