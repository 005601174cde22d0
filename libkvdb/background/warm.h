/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Images of segments that are read back: values of a store opened anew are read from them. */
#ifndef KV_WARM_H
#define KV_WARM_H

struct kvdb;

/* Reads a piece of a segment: 1, 0 = nothing is due. */
int kv_warm_step(struct kvdb *db);
/* Gives up what is being read. */
void kv_warm_end(struct kvdb *db);

#endif
