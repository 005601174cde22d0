/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The switch behind guards, planted bugs and refusals (tests/switches.py): compiled into the
 * ablation build only. MP_ABLATE in the environment names the one that is off (of a bug: on).
 * MP_ABLATE_SEEN names a file, which is there, to which each number asked for is appended.
 */
#ifdef MP_ABLATE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <mpool/mpool.h>

int mp_ablated(int n);

#define SEEN	8192	/* more than there are numbers */

/* Each number about once for each process: readers of the file drop repetitions. */
static void note(const char *path, int n)
{
	static int seen[SEEN];
	unsigned i = (unsigned)n;
	int fd, was, err = errno;
	char line[16];

	for (;; i++) {
		was = __atomic_load_n(&seen[i % SEEN], __ATOMIC_RELAXED);
		if (was == n)
			return;
		if (!was)
			break;
	}
	fd = mpool_fd_up(open(path, O_WRONLY | O_APPEND | O_CLOEXEC));
	if (fd >= 0 && write(fd, line, (size_t)snprintf(line, sizeof(line), "%d\n", n)) > 0)
		__atomic_store_n(&seen[i % SEEN], n, __ATOMIC_RELAXED);
	if (fd >= 0)
		close(fd);
	errno = err;
}

__attribute__((visibility("default"))) int mp_ablated(int n)
{
	static const char *path;
	static int off = -1;
	int cur = __atomic_load_n(&off, __ATOMIC_ACQUIRE);

	if (cur < 0) {
		const char *s = secure_getenv("MP_ABLATE");

		cur = s ? atoi(s) : 0;
		path = secure_getenv("MP_ABLATE_SEEN");
		__atomic_store_n(&off, cur, __ATOMIC_RELEASE);
	}
	if (path)
		note(path, n);
	return n == cur;
}
#endif
