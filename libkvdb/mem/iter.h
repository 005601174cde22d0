/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Ordered walks: of memtables, of runs, and merged ones. */
#ifndef KV_ITER_H
#define KV_ITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct kv_ent;

#define KV_AHEAD_STEPS	2u
/* Ordered source of entries, ascending (or descending when opened or turned so). */
struct kv_iter;
struct kv_iter_ops {
	/* position at the first entry >= key (reverse: <= key); klen 0 = the very first */
	int (*seek)(struct kv_iter *it, const void *key, size_t klen);
	/*
	 * steps 0 to KV_AHEAD_STEPS - 1 before a seek fetch what it touches in memory, so that
	 * several sources wait for that together. False: it will wait for a device. Inside
	 * kv_enter(), and so may the seek be after true. NULL: a seek may take long
	 */
	bool (*ahead)(struct kv_iter *it, const void *key, size_t klen, unsigned step);
	/* fills @e and moves on; -ENOENT at the end. Pointers live until the next call. */
	int (*next)(struct kv_iter *it, struct kv_ent *e);
	/* sets the direction of what follows; the place is lost: seek next */
	void (*turn)(struct kv_iter *it, bool reverse);
	/*
	 * nothing at @end and above, in a reverse walk below it, is wanted: next() may say
	 * -ENOENT there. The place is lost: seek next. @end stays; length 0: no end. NULL: it
	 * would gain nothing by it
	 */
	void (*until)(struct kv_iter *it, const void *end, size_t len);
	/*
	 * lets go of what only kv_enter() protects; the place and what next() gave stay.
	 * A caller that is inside parks before it leaves kv_enter(). NULL: nothing to let go of
	 */
	void (*park)(struct kv_iter *it);
	void (*close)(struct kv_iter *it);
};
struct kv_iter {
	const struct kv_iter_ops *it_ops;
};

/*
 * Memory for iterators that its owner outlives: what is small and short-lived needs no allocation.
 * One in it frees nothing when it is closed.
 */
struct kv_iter_room {
	uint8_t *ir_mem;	/* aligned to 8 */
	size_t ir_left;
};

/* @bytes of the room, which may be NULL, or else of the heap; *is_lent: the former. NULL: none. */
static inline void *kv_iter_mem(struct kv_iter_room *room, size_t bytes, bool *is_lent)
{
	uint8_t *mem;

	bytes = (bytes + 7) & ~(size_t)7;
	*is_lent = room && bytes <= room->ir_left;
	if (!*is_lent)
		return malloc(bytes);
	mem = room->ir_mem;
	room->ir_mem += bytes;
	room->ir_left -= bytes;
	return mem;
}

static inline void kv_iter_park(struct kv_iter *it)
{
	if (it->it_ops->park)
		it->it_ops->park(it);
}

#endif
