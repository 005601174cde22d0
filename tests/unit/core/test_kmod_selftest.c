/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The module's load-time self-test, run in user space: it must pass on a good
 * core, and each of its media must really be needed to pass.
 */
#include "harness.h"

#include "selftest.c"

static void selftest_passes(void)
{
	const char *what = "";
	int rc = mpk_selftest(&what);

	if (rc)
		T_FAIL("%s: %d", what, rc);
}

/* without flushed images the second session must not find the pool */
static void selftest_sees_lost_flushes(void)
{
	struct st *st = calloc(1, sizeof(*st));
	u32 i;

	T_EQ(st_init(st), 0);
	T_EQ(st_create(st), 0);
	for (i = 0; i < NDEVS; i++)
		memset(st->dev[i].sd_durable, 0, DEV_BYTES);
	T_EQ(st_session(st, true), 0);
	for (i = 0; i < NDEVS; i++)
		memset(st->dev[i].sd_written, 0, DEV_BYTES);
	T_OK(st_session(st, false) != 0);
	st_fini(st);
	free(st);
}

int main(void)
{
	T_RUN(selftest_passes);
	T_RUN(selftest_sees_lost_flushes);
	return t_done();
}
