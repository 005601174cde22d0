/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The hash of keys, see hash.c. */
#ifndef KV_HASH_H
#define KV_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t kv_hash(const void *key, size_t klen);

#endif
