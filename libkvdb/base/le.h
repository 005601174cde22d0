/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Numbers as media hold them: little-endian, at any address. */
#ifndef KV_LE_H
#define KV_LE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t kv_le16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, 2);
	return le16toh(v);
}

static inline uint32_t kv_le32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return le32toh(v);
}

static inline uint64_t kv_le64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
	return le64toh(v);
}

static inline void kv_le16_set(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, 2);
}

static inline void kv_le32_set(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, 4);
}

static inline void kv_le64_set(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, 8);
}

/* Bytes of @v as a base-128 number, 1 .. 10. */
static inline unsigned kv_varint_size(uint64_t v)
{
	return v ? (70u - (unsigned)__builtin_clzll(v)) / 7u : 1u;
}

#endif
