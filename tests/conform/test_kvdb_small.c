/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* KVDB_SMALL: few threads, little memory, and everything still works. */
#include <dirent.h>
#include <errno.h>

#include "kvdb_help.h"

#define KEYS	100000u

/* Threads of this process, without the workers that the kernel lends to a ring. */
static unsigned threads(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned n = 0;
	struct dirent *e;

	while ((e = readdir(d))) {
		char path[300], name[32] = "iou";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = e->d_name[0] != '.' ? fopen(path, "re") : NULL;
		if (!f)
			continue;
		if (!fgets(name, sizeof(name), f))
			strcpy(name, "iou");
		n += strncmp(name, "iou", 3) != 0;
		fclose(f);
	}
	closedir(d);
	return n;
}

static uint64_t resident(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long all = 0, own = 0;

	T_EQ(fscanf(f, "%lu %lu", &all, &own), 2);
	fclose(f);
	return own * (uint64_t)sysconf(_SC_PAGESIZE);
}

static struct kvdb_opts small(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_SMALL | KVDB_CREATE;
	return o;
}

static void put_all(struct kvdb_kvs *kvs, unsigned from, unsigned to)
{
	char key[16], val[100];

	memset(val, 'v', sizeof(val));
	for (unsigned i = from; i < to; i++) {
		/* in no order */
		int len = snprintf(key, sizeof(key), "%08x", i * 2654435761u);

		memcpy(val, key, 8);
		T_EQ(kvdb_put(kvs, key, (size_t)len, val, sizeof(val)), 0);
	}
}

static void get_all(struct kvdb_kvs *kvs, unsigned to)
{
	char key[16], val[100];
	size_t len;

	for (unsigned i = 0; i < to; i++) {
		int klen = snprintf(key, sizeof(key), "%08x", i * 2654435761u);

		T_EQ(kvdb_get(kvs, key, (size_t)klen, val, sizeof(val), &len), 0);
		T_OK(len == sizeof(val) && !memcmp(val, key, 8));
	}
}

static void two_threads_and_16_mib(void)
{
	struct kvdb_opts o = small();
	unsigned had = threads();
	uint64_t rss = resident(), most = 0;
	struct kvdb_kvs *kvs;

	th_fresh();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	T_EQ(threads(), had + 2);
	kvs = kh_kvs("s");
	for (unsigned i = 0; i < 10; i++) {
		put_all(kvs, i * KEYS / 10, (i + 1) * KEYS / 10);
		if (resident() > most)
			most = resident();
	}
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	get_all(kvs, KEYS);
	T_EQ(threads(), had + 2);
	if (resident() > most)
		most = resident();
	printf("# %.1f MiB more\n", (double)(most - rss) / MIB);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	T_OK(most - rss < 16 * MIB);
#endif
	kh_close();
	T_EQ(threads(), had);
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	get_all(kh_kvs("s"), KEYS);
	kh_close();
}

/* one value, and one transaction, of more than it keeps */
static void what_is_larger_than_its_memory_still_works(void)
{
	static char val[KVDB_VALUE_MAX];
	struct kvdb_opts o = small();
	struct kvdb_kvs *kvs;
	struct kvdb_txn *t;
	size_t len = 0;
	int rc = 0;

	th_fresh();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	kvs = kh_kvs("s");
	memset(val, 'x', sizeof(val));
	for (unsigned i = 0; i < 3; i++)
		T_EQ(kvdb_put(kvs, &i, sizeof(i), val, sizeof(val)), 0);
	for (unsigned i = 0; i < 3; i++) {
		memset(val, 0, sizeof(val));
		T_EQ(kvdb_get(kvs, &i, sizeof(i), val, sizeof(val), &len), 0);
		T_OK(len == sizeof(val) && val[0] == 'x' && val[sizeof(val) - 1] == 'x');
	}
	T_EQ(kvdb_txn_begin(kh_db, 0, &t), 0);
	for (unsigned i = 0; i < KEYS && !rc; i++)
		rc = kvdb_txn_put(t, kvs, &i, sizeof(i), val, 100);
	T_EQ(rc, -EFBIG);
	T_OK(strstr(kvdb_error_detail()->text, "cache_bytes"));
	kvdb_txn_abort(t);
	kh_close();
}

/* A database of ordinary size is opened so, and written to, and back. */
static void the_format_is_the_same(void)
{
	struct kvdb_opts o = small(), full = KVDB_OPTS_INIT;
	struct kvdb_opts made = KVDB_OPTS_INIT;

	kh_db = NULL;
	th_fresh();
	T_EQ(th_create_at(th_pool, 512 * MIB, 64 * MIB), 0);
	made.segment_bytes = 8 * MIB;
	made.cache_bytes = full.cache_bytes = 256 * MIB;
	T_EQ(kvdb_create(th_pool, &made), 0);
	T_EQ(kvdb_open(th_pool, &full, &kh_db), 0);
	put_all(kh_kvs("s"), 0, KEYS / 2);
	kh_close();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	put_all(kh_kvs("s"), KEYS / 4, KEYS);
	get_all(kh_kvs("s"), KEYS);
	kh_close();
	T_EQ(kvdb_open(th_pool, &full, &kh_db), 0);
	get_all(kh_kvs("s"), KEYS);
	kh_close();
}

static void too_little_memory_is_refused(void)
{
	struct kvdb_opts o = small();

	th_fresh();
	o.cache_bytes = 4 * MIB - 1;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), -EINVAL);
	T_OK(strstr(kvdb_error_detail()->text, "4 MiB"));
	o.flags = KVDB_CREATE;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), -EINVAL);
	T_OK(strstr(kvdb_error_detail()->text, "KVDB_SMALL"));
	kh_db = NULL;
}

int main(void)
{
	T_RUN(two_threads_and_16_mib);
	T_RUN(what_is_larger_than_its_memory_still_works);
	T_RUN(the_format_is_the_same);
	T_RUN(too_little_memory_is_refused);
	return t_done();
}
