/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A process that works on what a test made, and dies without putting it away. */
#ifndef TESTS_DIE_H
#define TESTS_DIE_H

#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

/* Runs @prepare and @fn in a process that dies; the test fails where they do. */
static inline void t_die_in(void (*prepare)(void), void (*fn)(void))
{
	int status = -1, r;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	T_OK(pid >= 0);
	if (!pid) {
		r = setjmp(t_env);
		if (!r) {
			prepare();
			fn();
		}
		fflush(stdout);
		_exit(r);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	T_OK(WIFEXITED(status) && !WEXITSTATUS(status));
}

#endif
