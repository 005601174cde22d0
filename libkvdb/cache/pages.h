/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What slab.c and pagepool.c offer to the readers of runs and values beyond
 * kv.h.
 */
#ifndef KV_PAGES_H
#define KV_PAGES_H

#include "db/kv.h"

#define KV_PAGES_MAX	32u	/* pages of one kv_pages_get() */
#define KV_SCRATCH	((1u << 20) + 2 * 4096u)

/*
 * kv_pages_get - @n consecutive pages of an object
 * Missing neighbours are read with one device read. @crc: expected CRC of each
 * page, or NULL. Call inside kv_enter(); the pointers are good until kv_exit().
 */
int kv_pages_get(struct kvdb *db, struct mpool_obj *obj, uint64_t first, unsigned n,
		 const uint32_t *crc, const uint8_t **out);
/* The page when it is cached, else NULL; no I/O. Inside kv_enter(). */
const uint8_t *kv_page_peek(struct kvdb *db, uint64_t obj_id, uint64_t page_no);
/* mpool_read() of @len bytes at @off, counted by purpose and class. All multiples of 4096. */
int kv_dev_read(struct kvdb *db, struct mpool_obj *obj, enum kv_read_for what, uint64_t off,
		void *buf, size_t len);

/* ---- between pagepool.c and load.c ---- */

/*
 * The page, or one in state LOADING that the caller must fill (*into) and
 * settle; NULL: the pool has no memory for it. Inside kv_enter(), and the
 * caller does not leave before it settled what it claimed.
 */
struct kv_page *kv_page_claim(struct kvdb *db, uint64_t obj, uint64_t no, bool is_key,
			      uint8_t **into);
/* Ends the loading of a page that was claimed. */
void kv_page_settle(struct kvdb *db, struct kv_page *p, int err);
/* The bytes of a page that another thread may still be reading in. */
int kv_page_wait(struct kvdb *db, struct kv_page *p, const uint8_t **out);
/* As kv_page_peek(), and the page counts as used. */
const uint8_t *kv_page_hit(struct kvdb *db, uint64_t obj_id, uint64_t page_no);
/* Prefetches what looking for the page touches first. */
void kv_page_prefetch(struct kvdb *db, uint64_t obj_id, uint64_t page_no);
/* Copies a page into the pool. */
void kv_page_add(struct kvdb *db, uint64_t obj_id, uint64_t page_no, const uint8_t *data,
		 bool is_key);
/* Error detail of a page that could not be had; returns @err. */
int kv_load_error(int err, uint64_t obj, uint64_t page_no);
/* Counts a read that failed a checksum; @is_reread: a second reading of the same did not. */
void kv_bad_read(struct kvdb *db, struct mpool_obj *obj, uint64_t off, bool is_reread);

/* An aligned buffer, NULL = no memory; a few of up to KV_SCRATCH bytes are kept. */
uint8_t *kv_scratch_get(struct kvdb *db, size_t bytes);
void kv_scratch_put(struct kvdb *db, uint8_t *buf, size_t bytes);

/* Pages that will be read soon; @wa_crc as in kv_pages_get(). */
struct kv_want {
	struct mpool_obj *wa_obj;
	uint64_t wa_first;
	unsigned wa_n;
	const uint32_t *wa_crc;
};
/*
 * kv_pages_ahead - reads what is missing of @n wants with one submission
 * A hint: what has no room or fails is left to who reads it. Inside kv_enter().
 */
void kv_pages_ahead(struct kvdb *db, const struct kv_want *w, unsigned n);
/* Sees to it that @n pages are, or will soon be, free for that. Outside kv_enter(). */
void kv_pages_room(struct kvdb *db, unsigned n);
#define KV_GET_PAGES	8u	/* that most gets need, at most */

#define KV_AHEAD_MAX	32u	/* entries of one kv_values_ahead() */
/* The same for the values of entries; what is in the window costs nothing. */
void kv_values_ahead(struct kvdb *db, const struct kv_ent *e, unsigned n);
/*
 * Fills @want, of KV_AHEAD_MAX, with what the pool lacks of their values, and @from with
 * whose it is; returns how many. Inside kv_enter().
 */
unsigned kv_values_want(struct kvdb *db, const struct kv_ent *e, unsigned n, struct kv_want *want,
			const struct kv_ent **from);

/* Has the value of @e no page of the pool to wait for, by now? */
bool kv_value_is_near(const struct kv_ent *e);
/* It will be read soon: prefetches it if it has an image. Its segment lives. */
void kv_value_prefetch(const struct kv_ent *e);
/*
 * kv_values_touch - prefetches the first line of each of @n values, where it has an image
 * One after another the processor would wait for the translation of each address.
 */
void kv_values_touch(const struct kv_ent *e, unsigned n);

/*
 * kv_slab_pin - keeps the bytes of an image beyond kv_exit()
 * @image: what seg->sg_image was, read inside the same kv_enter(). NULL: it
 * cannot be pinned (too many are, it is not a slab's, it is gone).
 */
void *kv_slab_pin(struct kvdb *db, struct kv_seg *seg, const uint8_t *image);
/* The same for @mem, which kv_slab_at() gave inside the same kv_enter(). */
void *kv_slab_pin_near(struct kvdb *db, const uint8_t *mem);
void kv_slab_unpin(struct kvdb *db, void *pin);

/*
 * kv_slab_place - where the image of @seg begins in the slabs, for who comes back to it
 * Returns the image, NULL: it has none there. The image may be read only inside kv_enter(); place
 * and life may be asked for outside: kv_slab_at() judges them by the life then.
 */
const uint8_t *kv_slab_place(struct kvdb *db, const struct kv_seg *seg, uint64_t *place,
			     uint32_t *life);
/* What lies there until kv_exit(); NULL: another life has begun. Inside kv_enter(). */
const uint8_t *kv_slab_at(struct kvdb *db, uint64_t place, uint32_t life);

/* Notes that an image was useful; cheap, needs no exactness. */
void kv_slab_touch(struct kvdb *db, const uint8_t *image);
uint64_t kv_slab_window_bytes(struct kvdb *db);
uint64_t kv_slab_big_bytes(struct kvdb *db);	/* images beside the slabs; of the window */
uint64_t kv_slab_page_bytes(struct kvdb *db);
uint64_t kv_slab_spare_bytes(struct kvdb *db);	/* used once, by nobody now */
/* What the page pool takes beside the pages: its table, their descriptors, buffers kept. */
uint64_t kv_pagepool_table_bytes(struct kvdb *db);

#endif
