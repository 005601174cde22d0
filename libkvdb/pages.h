/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What slab.c and pagepool.c offer to the readers of runs and values beyond
 * kv.h.
 */
#ifndef KV_PAGES_H
#define KV_PAGES_H

#include "kv.h"

#define KV_PAGES_MAX	32u	/* pages of one kv_pages_get() */
#define KV_SCRATCH	(KVDB_VALUE_MAX + 2 * 4096u)

/*
 * kv_pages_get - @n consecutive pages of an object
 * Missing neighbours are read with one device read. @crc: expected CRC of each
 * page, or NULL. Call inside kv_enter(); the pointers are good until kv_exit().
 */
int kv_pages_get(struct kvdb *db, struct mpool_obj *obj, uint64_t first, unsigned n,
		 const uint32_t *crc, const uint8_t **out);
/* The page when it is cached, else NULL; no I/O. Inside kv_enter(). */
const uint8_t *kv_page_peek(struct kvdb *db, uint64_t obj_id, uint64_t page_no);
/* mpool_read() of @len bytes at @off, counted by class. All multiples of 4096. */
int kv_dev_read(struct kvdb *db, struct mpool_obj *obj, uint64_t off, void *buf, size_t len);
/* An aligned buffer of KV_SCRATCH bytes, NULL = no memory; a few are kept. */
uint8_t *kv_scratch_get(struct kvdb *db);
void kv_scratch_put(struct kvdb *db, uint8_t *buf);

/* Notes that an image was useful; cheap, needs no exactness. */
void kv_slab_touch(struct kvdb *db, const uint8_t *image);
uint64_t kv_slab_window_bytes(struct kvdb *db);
uint64_t kv_slab_page_bytes(struct kvdb *db);

#endif
