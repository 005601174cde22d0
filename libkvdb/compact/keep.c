/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Moves write through memory: what a job found in images or pages is found there under its
 * new place, so that a move makes no value cold. A new segment holds nothing that is dead, so it
 * takes less memory than its victims did, whose images and pages go with them.
 *
 * Invariant G17: SPACE.md.
 *
 * No locks.
 */
#include <string.h>

#include "base/assert.h"
#include "cache/pages.h"
#include "cache/slab.h"
#include "compact/keep.h"
#include "db/db.h"
#include "db/thread.h"
#include "seg/kv_omf.h"
#include "seg/seg.h"

#define LEFT		16u	/* part of all slabs that stay unused: as warming leaves */
#define LEFT_OF_PLENTY	8u	/* when a segment wastes most of a slab */
#define ROOM		64u	/* pages that room is made for at once */

static bool copy_image(struct kv_seg *s, uint32_t off, uint32_t len, uint8_t *to)
{
	const uint8_t *image = atomic_load(&s->sg_image);

	if (image)
		memcpy(to, image + off, len);
	return image;
}

static bool copy_pages(struct kvdb *db, struct kv_seg *s, uint32_t off, uint32_t len, uint8_t *to)
{
	uint32_t part;

	for (; len; off += part, to += part, len -= part) {
		const uint8_t *page = kv_page_peek(db, s->sg_id, off / KV_BLOCK);

		part = KV_BLOCK - off % KV_BLOCK;
		if (part > len)
			part = len;
		if (!page)
			return false;
		memcpy(to, page + off % KV_BLOCK, part);
	}
	return true;
}

bool kv_keep_copy(struct kvdb *db, struct kv_seg *s, uint32_t off, uint32_t len, uint8_t *to)
{
	struct kv_thread *t = kv_enter();
	bool is_near;

	KV_ASSERT((uint64_t)off + len <= s->sg_bytes);
	is_near = copy_image(s, off, len, to) || copy_pages(db, s, off, len, to);
	kv_exit(t);
	return is_near;
}

static uint8_t *slab_for(struct kvdb *db, const struct kv_seg *s, uint32_t len)
{
	uint32_t slab = db->d_budget.b_seg_bytes;

	if (s->sg_bytes > slab)
		return NULL;
	return kv_slab_take_spare(db, len >= slab / 2 ? LEFT : LEFT_OF_PLENTY);
}

void kv_keep_written(struct kvdb *db, struct kv_seg *s, const uint8_t *from, uint32_t len)
{
	uint8_t *mem = slab_for(db, s, len);

	KV_ASSERT_OUTSIDE();
	KV_ASSERT(len % KV_BLOCK == 0 && len <= s->sg_bytes && !atomic_load(&s->sg_image));
	KV_ASSERT(atomic_load(&s->sg_refs) > 1 && !atomic_load(&s->sg_runs));
	if (mem) {
		memcpy(mem, from, len);
		kv_slab_publish(db, mem, &s->sg_image);
		return;
	}
	for (uint32_t no = 0; no < len / KV_BLOCK; no++) {
		if (no % ROOM == 0)
			kv_pages_room(db, ROOM);
		kv_page_add(db, s->sg_id, no, from + (size_t)no * KV_BLOCK, false);
	}
}
