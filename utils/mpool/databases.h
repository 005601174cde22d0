/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Databases that processes have open, as their control sockets tell. */
#ifndef UTILS_MPOOL_DATABASES_H
#define UTILS_MPOOL_DATABASES_H

#include <stdint.h>

struct live_db {
	const char *pool; /* name of the pool */
	uint64_t pid;
	const char *fault;      /* why it stopped, or "" */
	uint64_t stuck, stuck_s; /* what fails and is tried again, how long the oldest has */
	const char *stuck_text; /* which, and why, or "" */
};

/*
 * Calls fn for each that answers: those of this user and of root. One that does not answer
 * within seconds, or says what cannot be read, is skipped.
 */
void databases_each(void (*fn)(void *arg, const struct live_db *l), void *arg);

#endif
