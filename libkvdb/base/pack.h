/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Packing: compression of one value by itself. The numbers of the methods are
 * those of enum kvdb_compress, on media too. Values are packed when they move
 * (move.c) and unpacked when they are read (value.c).
 */
#ifndef KV_PACK_H
#define KV_PACK_H

#include <stdbool.h>
#include <stdint.h>

#define KV_PACK_COST	8u	/* bytes that say of a packed value what it was */

struct kv_packer;	/* of one thread */

/* @how: enum kvdb_compress, not NONE. -ENOMEM. */
int kv_packer_open(uint8_t how, struct kv_packer **out);
void kv_packer_close(struct kv_packer *pk);
/*
 * kv_pack - packs @len bytes
 * Returns how many bytes *out has, which are the packer's until its next call;
 * 0: it would not save an eighth, or is not worth a try.
 */
uint32_t kv_pack(struct kv_packer *pk, const uint8_t *val, uint32_t len, const uint8_t **out);
/*
 * kv_unpack - @plen packed bytes become @len
 * False when they are anything else. Writes nothing beyond @out[@len - 1], whatever
 * the bytes are; the caller has compared their CRC all the same.
 */
bool kv_unpack(uint8_t how, const uint8_t *packed, uint32_t plen, uint8_t *out, uint32_t len);

#endif
