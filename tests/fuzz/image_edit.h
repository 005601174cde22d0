/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Images that a stranger wrote: a golden image and a list of changes.
 *
 * An input is a byte of flags, then changes until a byte 0: device and block
 * (3 bytes; block counts those that are not zero), offset in it (2), length
 * (1), bytes. What is left chooses operations on the image.
 */
#ifndef TESTS_FUZZ_IMAGE_EDIT_H
#define TESTS_FUZZ_IMAGE_EDIT_H

#include "fuzz.h"
#include "image.h"

/* bits of the flags */
#define FI_HONEST	0x01u	/* checksums are compared */
#define FI_UNFIXED	0x02u	/* and those that lie in the block are not made right */

struct fi {
	struct sim fi_sim;
	uint32_t *fi_block[SIM_DEVS];	/* numbers of those that are not zero */
	uint32_t fi_n[SIM_DEVS];
	uint64_t fi_bytes;
	uint64_t fi_opened, fi_all;
};

void fi_init(struct fi *fi, const char *path);
/* puts the changed image into the simulator; fi_end() takes it out again */
void fi_begin(struct fi *fi, struct fz *f);
void fi_end(struct fi *fi);
/* does a superblock say that hosts share the pool? */
bool fi_is_multihost(const struct fi *fi);
/* of all devices as they are */
uint32_t fi_sum(const struct fi *fi);

#endif
