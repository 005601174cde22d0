/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Partitions of a memtable that is kept in order: order.c. */
#ifndef KV_ORDER_H
#define KV_ORDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/macros.h"
#include "db/limbo.h"

struct kv_entry;
struct kv_sorted;

#define KV_PART_MAX	1024u	/* keys; a partition with more is replaced when it is entered */
#define KV_TAIL_MAX	64u	/* a sorted tail is merged into the main array beyond this */
#define KV_PART_CLOSED	((struct kv_entry *)2)

/*
 * One key range. New entries go into pt_tail where it is, or are pushed to pt_new without a lock.
 * What each entry takes is in one line.
 */
struct kv_part {
	pthread_mutex_t pt_lock;
	_Atomic(struct kv_entry *) pt_new;	/* KV_PART_CLOSED: it was replaced */
	struct kv_sorted *pt_main;	/* this, the next and pt_raw under pt_lock */
	struct kv_sorted *pt_tail;
	struct kv_sorted *pt_raw;	/* not sorted yet */
	_Atomic(bool) pt_has_room;	/* insertions may look for it: they do in vain once */
	uint16_t pt_fence_len;
	uint16_t pt_skip;		/* bytes that its fence and the next have in common */
	const uint8_t *pt_fence;	/* smallest key of the range; NULL for the first */
	struct kv_part *pt_older;	/* all there ever were, m_parts */
} __attribute__((aligned(KV_CACHELINE)));

/* The partitions in key order. Immutable; replaced as a whole. */
struct kv_order_dir {
	struct kv_limbo od_limbo;
	uint32_t od_n;
	uint16_t od_skip;		/* bytes that all fences but the first share */
	uint64_t *od_head;		/* of each fence the 8 bytes after them, big-endian */
	struct kv_part *od_part[];
};

#endif
