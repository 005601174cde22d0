/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The shared library in a program that unloads it: a thread that has used it ends
 * afterwards, and what the library keeps for threads is still there.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include <kvdb/kvdb.h>

#include "harness.h"

static char lib[2][PATH_MAX + 64];

/* The libraries of this build, which lie beside the tests. */
static bool find_libs(void)
{
	static const char *const name[2] = { "libmpool.so", "libkvdb.so" };
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	char *slash;

	T_OK(n > 0);
	exe[n] = '\0';
	slash = strrchr(exe, '/');
	*slash = '\0';
	for (unsigned i = 0; i < 2; i++) {
		snprintf(lib[i], sizeof(lib[i]), "%s/../lib/%s", exe, name[i]);
		if (access(lib[i], R_OK))
			return false;
	}
	return true;
}

/* An open that fails is use enough: the thread is known from then on. */
static void *use_main(void *arg)
{
	int (*open_db)(const char *, const struct kvdb_opts *, struct kvdb **);
	void *mp = dlopen(lib[0], RTLD_NOW | RTLD_GLOBAL), *kv = dlopen(lib[1], RTLD_NOW);
	struct kvdb *db;

	if (!mp || !kv)
		return "no library";
	*(void **)&open_db = dlsym(kv, "kvdb_open");
	if (!open_db || open_db("/nonexistent", NULL, &db) != -ENOENT)
		return "no use";
	if (dlclose(kv) || dlclose(mp))
		return "not closed";
	return arg;
}

static void a_thread_ends_after_the_library_was_unloaded(void)
{
	pthread_t thread;
	void *said;

	if (!find_libs()) {
		printf("# no shared libraries in this build\n");
		return;
	}
	T_EQ(pthread_create(&thread, NULL, use_main, NULL), 0);
	T_EQ(pthread_join(thread, &said), 0);
	if (said)
		T_FAIL("%s", (const char *)said);
}

int main(void)
{
	T_RUN(a_thread_ends_after_the_library_was_unloaded);
	return t_done();
}
