/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Finished frames: what is written of a frame that its log has closed. */
#ifndef KV_FRAME_H
#define KV_FRAME_H

#include <stdbool.h>
#include <stdint.h>

struct kv_frame;
struct kvdb;

/* True when every writer of a record in the closed frame is done with it. */
bool kv_frame_is_done(struct kv_frame *f);
/*
 * The bytes to write of a closed frame whose epoch is closed too: the image,
 * or a copy, fr_space bytes. fl_io_lock held. NULL: the database has stopped.
 */
uint8_t *kv_frame_source(struct kvdb *db, struct kv_frame *f);
/* Pads, checksums, chains and describes the write (fr_iov). In order of offset; fl_io_lock held. */
void kv_frame_seal(struct kvdb *db, struct kv_frame *f, uint8_t *src);

#endif
