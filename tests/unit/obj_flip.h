/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Damage of an object, for tests. */
#ifndef OBJ_FLIP_H
#define OBJ_FLIP_H

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <mpool/mpool.h>

#include "harness.h"

/* Changes one byte of an object behind the pool's back. */
static inline void obj_flip(struct mpool_obj *obj, uint64_t off, uint8_t x)
{
	uint64_t pos, len;
	char path[64];
	uint8_t b;
	int fd, own;

	T_EQ(mpool_obj_place(obj, off & ~4095ull, &fd, &pos, &len), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_RDWR | O_CLOEXEC);
	T_OK(own >= 0);
	pos += off & 4095;
	T_EQ(pread(own, &b, 1, (off_t)pos), 1);
	b ^= x;
	T_EQ(pwrite(own, &b, 1, (off_t)pos), 1);
	T_EQ(fdatasync(own), 0);
	close(own);
}

#endif
