/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which versions of a record the comparison's driver lets a read return: none
 * that is too old, and none that may still be right is refused.
 */
#include "harness.h"

#include <pthread.h>

#include "bench/versions.h"

static void a_loaded_record_has_version_0(void)
{
	union version_cell c = { 0 };

	T_EQ(version_floor(&c), 0);
	T_EQ(version_newest(&c), 0);
}

static void an_acknowledged_write_ends_the_older_ones(void)
{
	union version_cell c = { 0 };

	T_EQ(version_begin(&c), 1);
	T_EQ(version_floor(&c), 0); /* not acknowledged: either one is right */
	T_EQ(version_newest(&c), 1);
	version_end(&c);
	T_EQ(version_floor(&c), 1);
	T_EQ(version_begin(&c), 2);
	T_EQ(version_floor(&c), 1);
	version_end(&c);
	T_EQ(version_floor(&c), 2);
}

static void writes_that_overlap_leave_any_of_them(void)
{
	union version_cell c = { 0 };

	version_begin(&c);
	version_end(&c);
	T_EQ(version_begin(&c), 2);
	T_EQ(version_begin(&c), 3);
	version_end(&c);
	T_EQ(version_begin(&c), 4);
	version_end(&c);
	T_EQ(version_floor(&c), 1); /* 2 may not be there yet */
	version_end(&c);
	T_EQ(version_floor(&c), 2); /* 3 and 4 may lie below 2 */
	T_EQ(version_newest(&c), 4);
	version_begin(&c);
	version_end(&c);
	T_EQ(version_floor(&c), 5);
}

static void what_is_too_far_refuses_nothing(void)
{
	union version_cell c = { 0 };
	unsigned i;

	version_begin(&c);
	for (i = 0; i < 2 * VERSIONS_FAR; i++) {
		version_begin(&c);
		version_end(&c);
	}
	T_EQ(version_floor(&c), 0);
	version_end(&c);
	T_EQ(version_floor(&c), 0);
	version_begin(&c);
	version_end(&c);
	T_EQ(version_floor(&c), 2 * VERSIONS_FAR + 2);
}

static union version_cell shared;

static void *writer(void *arg)
{
	unsigned i;

	(void)arg;
	for (i = 0; i < 100000; i++) {
		uint32_t n = version_begin(&shared);

		T_OK(n <= version_newest(&shared));
		T_OK(version_floor(&shared) <= n);
		version_end(&shared);
	}
	return NULL;
}

static void threads_lose_no_count(void)
{
	pthread_t t[4];
	unsigned i;

	for (i = 0; i < 4; i++)
		T_OK(!pthread_create(&t[i], NULL, writer, NULL));
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	T_EQ(version_newest(&shared), 400000);
	T_EQ(shared.w.in_progress, 0);
}

int main(void)
{
	T_RUN(a_loaded_record_has_version_0);
	T_RUN(an_acknowledged_write_ends_the_older_ones);
	T_RUN(writes_that_overlap_leave_any_of_them);
	T_RUN(what_is_too_far_refuses_nothing);
	T_RUN(threads_lose_no_count);
	return t_done();
}
