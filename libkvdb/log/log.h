/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Logs: one per stream and core. A record's place and its epoch come from one
 * compare-and-swap on its log's reservation word (R4).
 */
#ifndef KV_LOG_H
#define KV_LOG_H

#include <pthread.h>
#include <sys/uio.h>

#include "base/macros.h"
#include "db/limbo.h"
#include "seg/kv_omf.h"

struct kv_log;
struct kv_resv;
struct kv_seg;
struct kvdb;

/* Marks of one record of a frame, beside its end offset. */
#define KV_REC_DONE	1u	/* its writer is done with it, or withdrew it itself */
#define KV_REC_HELPED	2u	/* the flusher completed it */

/*
 * struct kv_frame - a frame while it is filled and written
 * Its bytes are the segment's image from fr_off on. fr_rec[i] is where record
 * i lies in the frame (KV_REC_AT) and its marks; 0 = its writer has not said yet.
 */
#define KV_REC_AT(start, end)	((uint64_t)(start) << 32 | (uint64_t)(end) << 2)
#define KV_REC_START(r)		((uint32_t)((r) >> 32))
#define KV_REC_END(r)		((uint32_t)(r) >> 2)

int kv_logs_init(struct kvdb *db);
void kv_logs_fini(struct kvdb *db);

struct kv_frame {
	struct kv_log *fr_log;
	struct kv_seg *fr_seg;
	uint8_t *fr_base;		/* image of the frame */
	uint32_t fr_off;		/* in the segment, bytes */
	uint32_t fr_cap;		/* bytes that header and records may fill */
	uint32_t fr_len;		/* final, once closed */
	uint32_t fr_nrec;		/* final, once closed */
	/* media it owns, once closed: the next frame begins after it */
	uint32_t fr_space;
	uint64_t fr_epoch;
	bool fr_is_shared;		/* of one large record, in lo_large (L7) */
	struct kv_frame *fr_next;	/* lo_pending; fl_io_lock or lo_lock */
	uint8_t *fr_bounce;		/* what is written instead of the image, or NULL */
	struct iovec fr_iov;		/* of its write */
	struct kv_limbo fr_limbo;
	_Atomic(uint32_t) fr_done;	/* bytes of records that are done */
	_Atomic(uint64_t) fr_rec[];
};

/*
 * struct kv_log - one log
 * lo_word: frame number << 40 | records << 20 | used bytes / 8. The frame of
 * number n is lo_frame[n % 4], stored before the word names it.
 */
struct kv_log {
	_Atomic(uint64_t) lo_word __attribute__((aligned(KV_CACHELINE)));
	_Atomic(struct kv_frame *) lo_frame[4];
	/* frame changes; below ep_tick_lock */
	pthread_mutex_t lo_lock __attribute__((aligned(KV_CACHELINE)));
	uint16_t lo_no;
	uint8_t lo_stream;		/* enum kv_stream */
	uint32_t lo_frame_max;		/* bytes of an ordinary frame */
	_Atomic(struct kv_frame *) lo_spare; /* the next one, or NULL */
	struct kv_seg *lo_seg;		/* lo_lock */
	struct kv_seg *lo_next;		/* prepared successors, by sg_full_next; lo_lock */
	struct kv_seg **lo_next_tail;
	uint32_t lo_nnext;		/* how many; lo_lock */
	uint32_t lo_ahead;		/* how many its pace asks for; lo_lock */
	uint64_t lo_since_ns;		/* when lo_seg was begun; lo_lock */
	struct kv_frame *lo_pending;	/* closed, not yet written; oldest first; lo_lock */
	struct kv_frame **lo_tail;
	bool lo_is_preparing;		/* a thread gets one more; lo_lock */
	bool lo_large_is_busy;		/* lo_large is a writer's (L7); lo_lock */
	pthread_cond_t lo_ready;	/* either ended */
	struct kv_seg *lo_large;	/* the segment of large records, or NULL; its writer's */
	uint32_t lo_large_end;		/* where the next of them begins; its writer's */
};

#define KV_ALONE_MAX	48u	/* one and a half times what is made at a time */

struct kv_logs {
	unsigned int ls_n;		/* per stream */
	struct kv_log *ls_log;		/* [stream * ls_n + i] */
	/* first reservation in epoch e, [e % 4], ns; 0 = none (R1) */
	_Atomic(uint64_t) ls_birth[4];
	_Atomic(uint64_t) ls_epoch_bytes; /* closed since the last tick */
	_Atomic(uint64_t) ls_unwritten;	/* closed, not yet on the device */
	pthread_mutex_t ls_large_lock;	/* one segment of its own is made at a time; DESIGN.md */
	_Atomic(uint64_t) ls_large_epoch;	/* of the newest that was logged */
	_Atomic(uint64_t) ls_large_bytes;	/* of all that were logged */
	/* segments that are open for values as large as the last; outside sg_lock */
	pthread_mutex_t ls_alone_lock;
	struct kv_seg *ls_alone[KV_ALONE_MAX];
	uint32_t ls_nalone;
	uint32_t ls_alone_bytes;	/* written under ls_large_lock, too */
	bool ls_alone_wanted;		/* the last two were like each other */
};

static inline struct kv_log *kv_log_at(struct kv_logs *ls, unsigned int i)
{
	return &ls->ls_log[i];
}

/* The log of this CPU. */
struct kv_log *kv_log_pick(struct kvdb *db, enum kv_stream stream);
/*
 * kv_log_reserve - take @size bytes in the open epoch, which kv_large_is_for() is false of
 * For @n records, which lie one after another; sl_index is the first's. The slot must be OPEN. 0,
 * or -EAGAIN: the log needs a segment; leave kv_enter(), call kv_log_prepare() and try again.
 */
int kv_log_reserve(struct kvdb *db, struct kv_log *lo, uint32_t n, uint32_t size,
		   struct kv_resv *rs);
/*
 * Gets a segment with an image ready for a writer, which waits for it: counted
 * with its cause. Outside kv_enter().
 */
int kv_log_prepare(struct kvdb *db, struct kv_log *lo, bool urgent);
/*
 * Gets one more segment ready, if the log's pace asks for it: 1, or 0 when it has enough.
 * The supplier's; outside kv_enter().
 */
int kv_log_prepare_ahead(struct kvdb *db, struct kv_log *lo);
/*
 * The log leaves segment @at, which is not on staging, for one that is: for a store that bears
 * no other class. 0 also when it has left that already; -ENOSPC: staging is full. Outside
 * kv_enter().
 */
int kv_log_restage(struct kvdb *db, struct kv_log *lo, const struct kv_seg *at);
/* Segments that all busy logs have ready, as if each had as few as the poorest; or UINT32_MAX. */
uint32_t kv_logs_ready(struct kvdb *db);
/* True when kv_log_prepare_ahead() would be useful. */
bool kv_log_wants_segment(struct kv_log *lo);
/*
 * kv_log_close - close the log's frame at the end of epoch @e; later
 * reservations belong to @e + 1. A frame that holds records becomes pending.
 * @desc_room > 0: leaves so many bytes after the frame's records for a descriptor, if it
 * holds records or @even_empty, and returns it (the carrier); NULL when the segment has no
 * room for it. Caller holds ep_tick_lock.
 */
struct kv_frame *kv_log_close(struct kvdb *db, struct kv_log *lo, uint64_t e, uint32_t desc_room,
			      bool even_empty);
/* True when the log's open frame holds a record. */
bool kv_log_is_dirty(struct kv_log *lo);
/* True when a descriptor can join the log's open frame, as long as no record fills it. */
bool kv_log_has_room(struct kv_log *lo);
/* Has the next frame of every log in use ready. */
void kv_logs_spare(struct kvdb *db);
struct kv_frame *kv_frame_new(struct kv_log *lo, struct kv_seg *s, uint8_t *image, uint32_t off,
			      uint32_t cap, uint64_t epoch);
/* One of a single record of @size bytes, at @off of @s; its epoch is still to come. */
struct kv_frame *kv_frame_new_own(struct kv_log *lo, struct kv_seg *s, uint32_t off, uint32_t size);
/*
 * Makes such a frame pending, and closes its segment, or lets others to it. Caller holds
 * ep_tick_lock.
 */
void kv_log_add_own(struct kvdb *db, struct kv_frame *f);
void kv_frame_retire(struct kv_frame *f);

/* ---- large.c: records with a frame of their own ---- */

/* True when a record is too large to be copied while an epoch lasts (R9). */
bool kv_large_is_for(struct kvdb *db, uint32_t size);
#define KV_OWN_URGENT	1u	/* may use the reserve (R19) */
#define KV_OWN_NOWAIT	2u	/* -EAGAIN instead of waiting for memory */
#define KV_OWN_STAGING	4u	/* on no other class */
/*
 * kv_large_make - room in a segment with an image for one record of @size
 * The caller writes the record to rs_buf, calls kv_large_enter(), installs, calls
 * kv_large_leave(). May block; outside kv_enter(). -ENOSPC, -ENOMEM, -EROFS.
 */
int kv_large_make(struct kvdb *db, enum kv_stream stream, uint32_t size, unsigned int flags,
		  struct kv_resv *rs);
/* Would it not wait for memory now? Sees to it that there is some soon. */
bool kv_large_has_room(struct kvdb *db, uint32_t size);
/* Copies a value; its CRC. */
uint32_t kv_large_copy(uint8_t *to, const void *val, uint32_t len);
/* The record gets its epoch, which does not end before kv_large_leave(). Inside kv_enter(). */
void kv_large_enter(struct kvdb *db, struct kv_resv *rs);
/* The record is the log's; !@is_logged: it is still the caller's, which may enter again. */
void kv_large_leave(struct kvdb *db, struct kv_resv *rs, bool is_logged);
/* Gives back what was not logged. */
void kv_large_drop(struct kvdb *db, struct kv_resv *rs);
/* Has segments ready for values as large as the last ones; 1, or 0: there are enough. */
int kv_large_ready_step(struct kvdb *db);
/* Gives back those for which no value came. */
void kv_large_drop_ready(struct kvdb *db);

static inline uint32_t kv_align_block(uint32_t n)
{
	return (n + KV_BLOCK - 1) & ~(KV_BLOCK - 1);
}

/* Media that a closed frame of @len bytes takes: with its mark. */
static inline uint32_t kv_frame_space(uint32_t len)
{
	return kv_align_block(len + KV_MARK_SIZE);
}

/*
 * Room kept free at the end of every segment, so that a descriptor usually fits after the
 * last frame.
 */
#define KV_SEG_TAIL	KV_BLOCK

#endif
