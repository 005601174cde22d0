/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Cached pages of objects, and reads that fill them. */
#ifndef KV_PAGES_H
#define KV_PAGES_H

#include <stdbool.h>

#include "db/count.h"

#define KV_PAGES_MAX	32u	/* pages of one kv_pages_get() */
#define KV_SCRATCH	((1u << 20) + 2 * 4096u)

/* ---- pagepool.c: cached 4 KiB pages ---- */

struct kv_page;	/* a cached page; pinned by kv_enter() of the reader */

int kv_pagepool_init(struct kvdb *db);
void kv_pagepool_fini(struct kvdb *db);
/*
 * kv_page_get - a page of an object
 * @crc: expected CRC32C of its 4096 bytes, compared once when it is read from
 * the device; NULL = the caller checks content itself.
 * Call inside kv_enter(); the pointer is good until kv_exit(). May do I/O.
 * -EUCLEAN with object and offset when the CRC differs; -EIO.
 */
int kv_page_get(struct kvdb *db, struct mpool_obj *obj, uint64_t page_no, const uint32_t *crc,
		const uint8_t **out);
/* Copies a page that was just written into the pool (a hint). */
void kv_page_insert(struct kvdb *db, uint64_t obj_id, uint64_t page_no, const uint8_t *data);
/* Forgets all pages of an object that is being deleted. */
void kv_page_purge(struct kvdb *db, uint64_t obj_id, uint64_t pages);
/* Steals one slab's worth of pages back for the window; NULL when none. */
uint8_t *kv_pagepool_yield_slab(struct kvdb *db);

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
/*
 * kv_area_read - @n pages past the pool, which their first user makes known to all
 * An operation that asks again, before they came or after, gets those of its one read. @nth: they
 * were wrong so many times, and are read anew.
 */
int kv_area_read(struct kvdb *db, struct mpool_obj *obj, uint64_t first, unsigned n, unsigned nth,
		 uint8_t *buf);
/* A read of this thread waits where it is: it is none of an operation that runs again. */
bool kv_reads_wait(struct kvdb *db);

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
 * A hint: what has no room or fails is read later. Inside kv_enter().
 */
void kv_pages_ahead(struct kvdb *db, const struct kv_want *w, unsigned n);
/* Sees to it that @n pages are, or will soon be, free for that. Outside kv_enter(). */
void kv_pages_room(struct kvdb *db, unsigned n);
#define KV_GET_PAGES	8u	/* that most gets need, at most */

/* What the page pool takes beside the pages: its table, their descriptors, buffers kept. */
uint64_t kv_pagepool_table_bytes(struct kvdb *db);

#endif
