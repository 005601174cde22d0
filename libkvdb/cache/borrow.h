/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Memory that memtables and cursors leave to the page pool. */
#ifndef KV_BORROW_H
#define KV_BORROW_H

#include <stdint.h>

struct kvdb;

int kv_borrow_init(struct kvdb *db);
void kv_borrow_fini(struct kvdb *db);
/* Memory of one slab, or NULL: there is none to lend. @images: kv_slab_big_bytes() */
uint8_t *kv_borrow_take(struct kvdb *db, uint64_t images);
/* Back to the system at once. No reader looks at it any more. */
void kv_borrow_give(struct kvdb *db, uint8_t *mem);
/* How many slabs are lent that their owners want back (LE1). */
unsigned kv_borrow_excess(struct kvdb *db, uint64_t images);
uint64_t kv_borrow_bytes(struct kvdb *db);
/* As many may ever be lent. */
uint64_t kv_borrow_max(const struct kvdb *db);
/*
 * What may be lent of @most, after a look at @now which found @used in use; *peak,
 * *since: what was in use lately. Pure.
 */
uint64_t kv_borrow_room(uint64_t most, uint64_t used, uint64_t now, uint64_t *peak,
			uint64_t *since);

/* pagepool.c: takes lent slabs back, a step each time; waits for nothing. */
void kv_pagepool_lent_step(struct kvdb *db);

#endif
