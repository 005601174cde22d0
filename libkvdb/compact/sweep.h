/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A sweep: values that move in the order in which they lie, not in that of their keys. */
#ifndef KV_SWEEP_H
#define KV_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

struct kv_ent;
struct kv_seg;

/* A value that is to move; once it did, where it is. */
struct kv_note {
	struct kv_seg *no_seg;
	uint64_t no_seq;
	uint32_t no_off8;
	uint32_t no_vlen, no_vcrc, no_kcrc;
	uint32_t no_next;	/* for the move */
	uint16_t no_klen;
	bool no_expires;	/* its record says when */
	bool no_is_moved;
};

struct kv_sweep {
	struct kv_note *sw_note;	/* in key order */
	uint32_t *sw_order;		/* of media, when sorted: of notes */
	uint32_t sw_n, sw_cap;
	uint32_t sw_taken;		/* notes in front that were asked for */
};

/* NULL: no memory. @bytes: of memory, at most, but at least 64 notes. One thread's. */
struct kv_sweep *kv_sweep_new(uint64_t bytes);
void kv_sweep_free(struct kv_sweep *sw);
uint64_t kv_sweep_bytes(const struct kv_sweep *sw);
bool kv_sweep_is_full(const struct kv_sweep *sw);
/* Forgets all notes. */
void kv_sweep_clear(struct kv_sweep *sw);
/* Notes an entry that refers to a plain value; not when it is full. */
void kv_sweep_add(struct kv_sweep *sw, const struct kv_ent *e);
void kv_sweep_sort(struct kv_sweep *sw);
/*
 * kv_note_is_of - whether the record is that of the note (G12), whole and right
 * @off: where it was read, in no_seg
 * @expiry: when its value expires, 0 = never
 */
bool kv_note_is_of(const struct kv_note *no, const uint8_t *rec, uint32_t off, uint32_t room,
		   uint64_t *expiry);
/*
 * kv_sweep_take - the entry refers to where its value is now
 * Entries come in the order in which they were noted. False: the value was not moved.
 */
bool kv_sweep_take(struct kv_sweep *sw, struct kv_ent *e);

#endif
