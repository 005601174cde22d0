/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Log segments, which are the value blocks. */
#ifndef KV_SEG_H
#define KV_SEG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "db/limbo.h"
#include "db/trouble.h"

struct kvdb;
struct mpool_obj;

enum kv_seg_state {
	KV_SEG_FREE = 0,	/* allocated, unused: in the stock */
	KV_SEG_OPEN,		/* a log appends to it */
	KV_SEG_FULL,		/* no more appends; seal not durable yet */
	KV_SEG_SEALED,
	KV_SEG_DELETED,
};

/*
 * struct kv_seg - one log segment
 * References: the segment table holds one, every run that refers to a value
 * in it (sg_refs counts all). sg_runs counts durable runs only.
 */
struct kv_seg {
	uint64_t sg_id;			/* object id */
	struct mpool_obj *sg_obj;
	uint32_t sg_bytes;		/* capacity */
	_Atomic(uint32_t) sg_room;	/* bytes that can be read: after the seal there are none */
	uint8_t sg_stream;		/* enum kv_stream */
	uint16_t sg_log;
	uint8_t sg_mclass;
	_Atomic(uint32_t) sg_state;	/* enum kv_seg_state; changes under sg_lock */
	/* end of frames written or, after recovery, the sealed length */
	_Atomic(uint32_t) sg_end;
	uint32_t sg_keep;		/* the object is sealed no shorter: RV22; recovery only */
	/* its bytes in the window, or NULL; read inside kv_enter() */
	_Atomic(uint8_t *) sg_image;
	_Atomic(uint64_t) sg_first_epoch; /* epochs of its frames; 0 = none yet */
	_Atomic(uint64_t) sg_last_epoch;
	_Atomic(uint32_t) sg_refs;	/* in-memory holders */
	_Atomic(uint32_t) sg_runs;	/* runs of the durable tree that refer to it */
	_Atomic(uint32_t) sg_pins;	/* checkpoints that list it; ckpt.c */
	uint32_t sg_chain;		/* fh_crc of its last finished frame; flusher only */
	uint64_t sg_epoch;		/* the epoch of that frame, and where it begins; likewise */
	uint32_t sg_begin;
	/* queue of full segments whose image is still held; sg_lock */
	struct kv_seg *sg_full_next;
	struct kv_seg *sg_next;		/* list of all segments; sg_lock */
	struct kv_seg *sg_prev;
	struct kv_seg *sg_hash;		/* by id; sg_lock */
	struct kv_seg *sg_todo_next;	/* of those that upkeep looks at; sg_lock */
	struct kv_seg **sg_todo_at;	/* what points to it in that list; NULL: not in it */
	bool sg_is_staged, sg_is_in_use; /* is counted as such; sg_lock */
	bool sg_obj_sealed;		/* the object is sealed too; upkeep and recovery only */
	_Atomic(uint8_t) sg_victim;	/* enum kv_victim_of: a relocation is moving its values */
	struct kv_trouble sg_trouble;	/* a value in it cannot be moved: no victim for a while */
	/* no image is made of it before (UINT64_MAX: ever), and the pause until then; warm.c */
	uint64_t sg_cold_until_ns, sg_cold_pause_ns;
	_Atomic(int64_t) sg_heat;	/* what its order costs scans, bytes; heat.c */
	bool sg_is_ordered;		/* a job for scans wrote it; before it is listed */
	uint32_t sg_cand;		/* number + 1 among the candidates; the relocation job's */
	struct kv_limbo sg_limbo;
};

int kv_segs_init(struct kvdb *db);
void kv_segs_fini(struct kvdb *db);
/*
 * A fresh segment for a log: from the stock, which is refilled in batches
 * (one durable mpool_alloc() of several). Other than the ordinary @bytes asks
 * for a segment of its own for one large record. -ENOSPC: class full.
 * @urgent may use the reserve (deletes).
 */
int kv_seg_alloc(struct kvdb *db, uint16_t log, uint8_t stream, uint32_t bytes, bool urgent,
		 struct kv_seg **out);
/* Up to *@n such segments for values that are to come; *@n: so many, each with a reference. */
int kv_segs_alloc_alone(struct kvdb *db, uint16_t log, uint8_t stream, uint32_t bytes,
			bool urgent, unsigned *n, struct kv_seg **out);
/* The same on staging and nowhere else, past the stock: for a store that bears no other class. */
int kv_seg_alloc_staging(struct kvdb *db, uint16_t log, uint8_t stream, uint32_t bytes,
			 struct kv_seg **out);
/* The log is done with it: FULL; background work seals it. */
void kv_seg_close(struct kvdb *db, struct kv_seg *s, uint32_t end);
/* As kv_seg_close() of a segment that has no image, or was never used (@end 0). */
void kv_seg_close_cold(struct kvdb *db, struct kv_seg *s, uint32_t end);
/* Lets go of the images of full segments that are durable (flusher). */
void kv_segs_durable(struct kvdb *db);
struct kv_seg *kv_seg_find(struct kvdb *db, uint64_t id);	/* with a reference, or NULL */
struct kv_seg *kv_seg_get(struct kv_seg *s);
/* For a thread that saw it inside kv_enter() without a reference; false: the last one is gone. */
bool kv_seg_tryget(struct kv_seg *s);
/* After each change of sg_runs to or from 0, with a reference. */
void kv_seg_note(struct kvdb *db, struct kv_seg *s);
/* One checkpoint more (@by 1) or less (-1) lists it. */
void kv_seg_pin(struct kvdb *db, struct kv_seg *s, int by);
void kv_seg_put(struct kvdb *db, struct kv_seg *s);
struct kv_seg *kv_segs_first(struct kvdb *db);	/* newest first; open and recovery only */
/* All that there are. */
uint32_t kv_segs_count(struct kvdb *db);
/* Those that upkeep looks at. For the tests. */
uint32_t kv_segs_watched(struct kvdb *db);

/* Adds a segment found at recovery (state SEALED, end = sealed length). */
int kv_seg_add(struct kvdb *db, uint64_t id, struct kv_seg **out);
/* Bytes of its object that can be read: a sealed one may end before its capacity. */
uint32_t kv_seg_readable(const struct kv_seg *s);
/* The part of kv_segs_step() that writers wait for: refills the stock. */
int kv_segs_stock_step(struct kvdb *db);
/* How short of segments fast logs are that have @ready of their own: 0 to KV_DEBT_MAX. */
uint32_t kv_segs_debt(struct kvdb *db, uint32_t ready);
/*
 * The next segment after object @after with values of runs and without an image, with a
 * reference; then from the first one on. NULL: none, or values of runs take a quarter
 * more than all slabs. @least: bytes that it has.
 */
struct kv_seg *kv_seg_next_cold(struct kvdb *db, uint64_t after, uint32_t least);

/* ---- for values that move ---- */

/* Which job moves the values of a segment: one for staging runs beside any other. */
enum kv_victim_of { KV_VICTIM_NONE, KV_VICTIM, KV_VICTIM_OLD };

/* @whole: of a job for staging, see kv_move_open() */
static inline bool kv_is_victim(const struct kv_seg *s, bool whole)
{
	return atomic_load(&s->sg_victim) == (whole ? KV_VICTIM_OLD : KV_VICTIM);
}

/*
 * Up to *@n segments of @bytes for values that move, OPEN, each with a reference; *@n: so many.
 * One may use the reserve if @urgent.
 */
int kv_segs_alloc_moved(struct kvdb *db, uint8_t mclass, bool only, bool urgent, uint32_t bytes,
			unsigned *n, struct kv_seg **out);
/* One that kv_segs_alloc_moved() gave is not finished: dead, the keeper deletes it (RV7). */
void kv_seg_abandon(struct kvdb *db, struct kv_seg *s, uint32_t end);
/* Bytes on staging that hold what is logged or what runs refer to. */
uint64_t kv_segs_staged(struct kvdb *db);
/* Bytes of full segments that runs refer to, but for those that checkpoints hold. */
uint64_t kv_segs_in_use(struct kvdb *db);
/*
 * Calls fn for every segment, under sg_lock, which others get in between: of those that come or go
 * meanwhile some are seen.
 */
void kv_segs_each(struct kvdb *db, void (*fn)(void *arg, struct kv_seg *s), void *arg);

#endif
