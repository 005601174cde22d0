/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A machine that is suspended with a database open: the monotonic clock stands
 * still, the time since boot goes on. This program's clock_gettime() is in front
 * of the C library's.
 */
#include "harness.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kv_sim.h"

static _Atomic(time_t) asleep;	/* seconds, so far */

int clock_gettime(clockid_t id, struct timespec *ts)
{
	int rc = (int)syscall(SYS_clock_gettime, id, ts);

	if (!rc && id == CLOCK_BOOTTIME)
		ts->tv_sec += asleep;
	return rc;
}

static void values_expire_while_the_machine_is_suspended(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	char got[8];
	size_t len;

	kv_sim(1);
	T_EQ(kvdb_create(POOL, &opts), 0);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(kvdb_put_ttl(kvs, "hour", 4, "v", 1, 3600), 0);
	T_EQ(kvdb_put_ttl(kvs, "days", 4, "v", 1, 4 * 86400), 0);
	asleep = 1800;
	T_EQ(kvdb_get(kvs, "hour", 4, got, sizeof(got), &len), 0);
	asleep = 3 * 86400;
	T_EQ(kvdb_get(kvs, "hour", 4, got, sizeof(got), &len), -ENOENT);
	T_EQ(kvdb_get(kvs, "days", 4, got, sizeof(got), &len), 0);
	asleep = 30 * 86400;
	T_EQ(kvdb_get(kvs, "days", 4, got, sizeof(got), &len), -ENOENT);
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_close(db), 0);
	sim_fini(&sim);
}

int main(void)
{
	T_RUN(values_expire_while_the_machine_is_suspended);
	return t_done();
}
