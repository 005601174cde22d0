/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Memory of images of large records: one range of addresses, cut as they come (L5). */
#ifndef KV_OWN_H
#define KV_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/range.h"

/* What is taken of it: in order of address. The memory of the struct is the caller's. */
struct kv_own_part {
	size_t op_off, op_bytes;
	struct kv_own_part *op_next;
};

struct kv_own {
	struct kv_range ow_range;
	uint8_t *ow_base;
	size_t ow_bytes;		/* whole huge pages */
	size_t ow_used;
	size_t ow_touched;		/* huge pages that have memory, as far as is known here */
	uint8_t *ow_page;		/* of each huge page: enum own_page */
	struct kv_own_part *ow_first;
};

/* The caller locks. Room for @bytes at least; -ENOMEM. */
int kv_own_init(struct kv_own *ow, uint64_t bytes);
void kv_own_fini(struct kv_own *ow);
/* Has it so many bytes in a row? */
bool kv_own_has(const struct kv_own *ow, size_t bytes);
/* Those, nearest to the beginning; NULL: it has not. */
uint8_t *kv_own_take(struct kv_own *ow, struct kv_own_part *part, size_t bytes);
void kv_own_put(struct kv_own *ow, struct kv_own_part *part);
uint8_t *kv_own_mem(const struct kv_own *ow, const struct kv_own_part *part);
/* Bytes that have memory and are in no part. */
size_t kv_own_kept(const struct kv_own *ow);
/* Once a period: notes which huge pages were in no part since the last call. */
void kv_own_age(struct kv_own *ow);
/*
 * Takes some that were in no part for a whole period, for the caller to give back to the system
 * without the lock, and then to put back. NULL: there are none.
 */
uint8_t *kv_own_idle(struct kv_own *ow, struct kv_own_part *part);

#endif
