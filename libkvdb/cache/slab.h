/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Memory of the window and of the page pool. */
#ifndef KV_SLAB_H
#define KV_SLAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kvdb;

/*
 * Slabs are b_seg_bytes each, mapped on first use, never returned. The window
 * takes one per segment image, the page pool cuts one into pages. When all
 * are in use the taker steals: the window its oldest image, the pool likewise,
 * or the other's above its guaranteed share.
 */
int kv_slabs_init(struct kvdb *db);
void kv_slabs_fini(struct kvdb *db);
/*
 * An image of so many bytes. *@image, which names it, is cleared when it is stolen; so in all of
 * these. Waits for reclamation if needed; NULL = -ENOMEM.
 */
uint8_t *kv_slab_take_image(struct kvdb *db, uint32_t bytes, _Atomic(uint8_t *) *image);
/*
 * Has the system give memory to images that were just taken, a huge page at a
 * time: its first touch takes milliseconds. False: all have theirs. One thread only.
 */
bool kv_slab_fault_step(struct kvdb *db);
/* Gives back memory of images of large records that no record wanted for a while. */
void kv_slab_kept_step(struct kvdb *db);
/* True when there is room in their budget for an image of @bytes that is no ordinary segment's. */
bool kv_slab_has_own_room(struct kvdb *db, uint32_t bytes);
bool kv_slab_own_is_half_full(struct kvdb *db);
/* It is complete and durable: it may be stolen from now on. */
void kv_slab_image_idle(struct kvdb *db, _Atomic(uint8_t *) *image);
/*
 * Memory for an image that is to be read back, NULL unless no other image goes for it and more than
 * 1/@part of all slabs are unused (warm.c).
 */
uint8_t *kv_slab_take_spare(struct kvdb *db, uint32_t part);
void kv_slab_give_spare(struct kvdb *db, uint8_t *mem);
/* It holds the segment's bytes now: readers find them, and they may be stolen. */
void kv_slab_publish(struct kvdb *db, uint8_t *mem, _Atomic(uint8_t *) *image);
/* Gives an image back at once (klog segments, deleted segments). */
void kv_slab_drop_image(struct kvdb *db, _Atomic(uint8_t *) *image);
/* A slab for the page pool, or NULL when its share is used up. */
uint8_t *kv_slab_take_pages(struct kvdb *db);
/* Gives back one that it took just now, before any thread has seen it. */
void kv_slab_give_pages(struct kvdb *db, uint8_t *mem);

/*
 * kv_slab_pin - keeps the bytes of an image beyond kv_exit()
 * @mem: what *@image was, read inside the same kv_enter(). NULL: it
 * cannot be pinned (too many are, it is not a slab's, it is gone).
 */
void *kv_slab_pin(struct kvdb *db, _Atomic(uint8_t *) *image, const uint8_t *mem);
/* The same for @mem, which kv_slab_at() gave inside the same kv_enter(). */
void *kv_slab_pin_near(struct kvdb *db, const uint8_t *mem);
void kv_slab_unpin(struct kvdb *db, void *pin);

/*
 * kv_slab_place - where the image that *@image names begins in the slabs, to come back to it
 * Returns the image, NULL: it has none there. The image may be read only inside kv_enter(); place
 * and life may be asked for outside: kv_slab_at() judges them by the life then.
 */
const uint8_t *kv_slab_place(struct kvdb *db, const _Atomic(uint8_t *) *image, uint64_t *place,
			     uint32_t *life);
/* What lies there until kv_exit(); NULL: another life has begun. Inside kv_enter(). */
const uint8_t *kv_slab_at(struct kvdb *db, uint64_t place, uint32_t life);

/* Notes that an image was useful; cheap, needs no exactness. */
void kv_slab_touch(struct kvdb *db, const uint8_t *image);
uint64_t kv_slab_window_bytes(struct kvdb *db);
uint64_t kv_slab_big_bytes(struct kvdb *db);	/* images beside the slabs, those kept too */
uint64_t kv_slab_page_bytes(struct kvdb *db);
uint64_t kv_slab_spare_bytes(struct kvdb *db);	/* used once, and free now */

#endif
