/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Room for the descriptors of epochs that no log's frame carries (E7): segments that are kept for
 * nothing else, and stay open for as many descriptors as they hold.
 */
#ifndef KV_DESC_H
#define KV_DESC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct kv_seg;
struct kvdb;

struct kv_descs {
	pthread_mutex_t de_fill_lock;	/* one thread gets a segment; outside de_lock */
	pthread_mutex_t de_lock;	/* this group; a leaf */
	uint32_t de_left;		/* blocks that the segments have left */
	uint32_t de_promised;		/* descriptors that must find room */
	struct kv_seg *de_next, **de_tail; /* unused segments, by sg_full_next */
	bool de_has_open;		/* the open epoch has a promise; ep_tick_lock */
	bool de_has_ended;		/* the epoch in hand has one; fl_io_lock, like all below */
	struct kv_seg *de_seg;		/* is being filled, or NULL */
	uint32_t de_end;		/* up to here, bytes */
};

void kv_desc_init(struct kv_descs *de);
void kv_desc_fini(struct kvdb *db);
/*
 * A record whose frame no log covers is about to be made: the descriptor of its epoch has room
 * from now on. -ENOSPC, -ENOMEM, -EROFS: it has none. May block; outside kv_enter().
 */
int kv_desc_promise(struct kvdb *db);
/* That record is given up. */
void kv_desc_forget(struct kvdb *db);
/* It is logged in the open epoch, which needs one promise for all it has. ep_tick_lock held. */
void kv_desc_logged(struct kvdb *db);
/* The open epoch is being closed; ep_tick_lock and fl_io_lock held. */
void kv_desc_closed(struct kvdb *db);
/* It is durable, or wrote nothing. fl_io_lock held. */
void kv_desc_done(struct kvdb *db);
/*
 * Room of @bytes for the descriptor of epoch @e: in *out, with an image, at *off. It is there, but
 * for one of more segments than room is kept for. fl_io_lock held.
 */
int kv_desc_take(struct kvdb *db, uint64_t e, uint32_t bytes, struct kv_seg **out, uint32_t *off);
/* Keeps segments in stock (background work). */
void kv_desc_step(struct kvdb *db);

#endif
