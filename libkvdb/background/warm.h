/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Images of segments that are read back: values of a store opened anew are read from them. */
#ifndef KV_WARM_H
#define KV_WARM_H

#include <stdint.h>

struct kvdb;
struct kv_seg;

/* Values that were read. */
struct kv_warm_reads {
	uint64_t wr_pool;	/* through the page pool */
	uint64_t wr_mem;	/* from images */
};

/* What one thread knows, the grower. */
struct kv_warm {
	struct kv_seg *wm_seg;		/* being read, with a reference; or NULL */
	uint8_t *wm_mem;		/* its slab */
	uint32_t wm_read;		/* bytes that were read */
	uint32_t wm_good;		/* of them in frames that are whole and right */
	uint64_t wm_after;		/* object id of the segment looked at last */
	struct kv_warm_reads wm_seen;	/* that wm_bytes was granted for */
	uint64_t wm_bytes;		/* may still be read */
};

/* Reads a piece of a segment: 1, 0 = nothing is due. */
int kv_warm_step(struct kvdb *db);
/* Gives up what is being read. */
void kv_warm_end(struct kvdb *db);

#endif
