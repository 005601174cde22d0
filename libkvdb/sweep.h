/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A sweep: values that move in the order in which they lie, not in that of their keys. */
#ifndef KV_SWEEP_H
#define KV_SWEEP_H

#include "kv.h"

/* Where something lies, to be read in that order. */
struct kv_place {
	uint64_t pl_seg;
	uint32_t pl_off8;
	uint32_t pl_item;	/* of whoever wants it */
};

void kv_places_sort(struct kv_place *pl, uint32_t n);

/* A value that is to move; once it did, where it is. */
struct kv_note {
	struct kv_seg *no_seg;
	uint64_t no_seq, no_expiry;
	uint32_t no_off8;
	uint32_t no_vlen, no_vcrc, no_kcrc;
	uint32_t no_next;	/* for who moves it */
	uint16_t no_klen;
	bool no_is_moved;
};

struct kv_sweep {
	struct kv_note *sw_note;	/* in key order */
	struct kv_place *sw_place;	/* in that of media, when sorted */
	uint32_t sw_n, sw_cap;
	uint32_t sw_taken;		/* notes in front that were asked for */
};

/* NULL: no memory. @bytes: of memory, at most; a page at least. One thread's. */
struct kv_sweep *kv_sweep_new(uint64_t bytes);
void kv_sweep_free(struct kv_sweep *sw);
uint64_t kv_sweep_bytes(const struct kv_sweep *sw);
bool kv_sweep_is_full(const struct kv_sweep *sw);
/* Forgets all notes. */
void kv_sweep_clear(struct kv_sweep *sw);
/* Notes an entry that refers to a plain value; not when it is full. */
void kv_sweep_add(struct kv_sweep *sw, const struct kv_ent *e);
void kv_sweep_sort(struct kv_sweep *sw);
/* The record is that of the note (G12), whole and right. @off: where it was read, in no_seg. */
bool kv_note_is_of(const struct kv_note *no, const uint8_t *rec, uint32_t off, uint32_t room);
/*
 * kv_sweep_take - the entry refers to where its value is now
 * Entries come in the order in which they were noted. False: the value was not moved.
 */
bool kv_sweep_take(struct kv_sweep *sw, struct kv_ent *e);

#endif
