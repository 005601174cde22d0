/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Calls that fail, and say so. */
#ifndef TESTS_KVDB_FAILS_H
#define TESTS_KVDB_FAILS_H

#include <pthread.h>
#include <sys/mman.h>

#include "kvdb_help.h"

#define POOL (128 * MIB)

static struct kvdb *const untouched = (struct kvdb *)0x10;

static inline void end(void)
{
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

/* The call failed, and says so in detail to this thread. */
#define FAILS(call, wanted) do {						\
	T_EQ(call, wanted);							\
	T_EQ(kvdb_error_detail()->err, wanted);					\
	T_OK(!strncmp(kvdb_error_detail()->id, "MP", 2));			\
	T_OK(kvdb_error_detail()->text[0]);					\
} while (0)

static inline int keep(void *arg, const void *old, size_t olen, const void **val, size_t *vlen)
{
	(void)arg, (void)old, (void)olen;
	*val = "u";
	*vlen = 1;
	return KVDB_UPDATE_PUT;
}

#endif
