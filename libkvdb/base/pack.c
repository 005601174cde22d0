/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Packing with LZ4 and zstd. What does not shrink costs little: of a large value a piece
 * is tried first, and after many misses in a row only some values are tried until one
 * shrinks again. No locks: a packer belongs to one thread, unpacking has no state.
 */
#include <errno.h>
#include <stdlib.h>

#include <lz4.h>
#include <zstd.h>

#include <kvdb/kvdb.h>

#include "base/pack.h"
#include "base/assert.h"

#define ZSTD_LEVEL	3
#define PROBE		4096u	/* bytes out of the middle of a value ... */
#define PROBE_MIN	(4 * PROBE)	/* ... that has more bytes than this */
#define MISSES		16u	/* in a row: from there on every MISSES'th value is tried */

struct kv_packer {
	uint8_t pk_how;
	uint32_t pk_misses;	/* since a value shrank, those not tried included */
	ZSTD_CCtx *pk_zstd;
	uint8_t *pk_buf;
	uint32_t pk_cap;
};

int kv_packer_open(uint8_t how, struct kv_packer **out)
{
	struct kv_packer *pk = calloc(1, sizeof(*pk));

	KV_ASSERT(how == KVDB_COMPRESS_LZ4 || how == KVDB_COMPRESS_ZSTD);
	if (!pk)
		return -ENOMEM;
	pk->pk_how = how;
	if (how == KVDB_COMPRESS_ZSTD) {
		pk->pk_zstd = ZSTD_createCCtx();
		if (!pk->pk_zstd) {
			free(pk);
			return -ENOMEM;
		}
	}
	*out = pk;
	return 0;
}

void kv_packer_close(struct kv_packer *pk)
{
	if (!pk)
		return;
	ZSTD_freeCCtx(pk->pk_zstd);
	free(pk->pk_buf);
	free(pk);
}

/* Bytes in pk_buf, 0 when more than @most would be needed. */
static uint32_t shrink(struct kv_packer *pk, const uint8_t *val, uint32_t len, uint32_t most)
{
	size_t n;
	int k;

	KV_ASSERT(most <= pk->pk_cap);
	if (pk->pk_how == KVDB_COMPRESS_LZ4) {
		k = LZ4_compress_default((const char *)val, (char *)pk->pk_buf, (int)len,
					 (int)most);
		return k > 0 ? (uint32_t)k : 0;
	}
	n = ZSTD_compressCCtx(pk->pk_zstd, pk->pk_buf, most, val, len, ZSTD_LEVEL);
	return ZSTD_isError(n) ? 0 : (uint32_t)n;
}

static bool is_worth_it(struct kv_packer *pk, const uint8_t *val, uint32_t len)
{
	if (pk->pk_misses >= MISSES && pk->pk_misses % MISSES)
		return false;
	return len <= PROBE_MIN || shrink(pk, val + (len - PROBE) / 2, PROBE, PROBE - PROBE / 16);
}

uint32_t kv_pack(struct kv_packer *pk, const uint8_t *val, uint32_t len, const uint8_t **out)
{
	uint32_t most = len - len / 8, n = 0;

	if (most <= KV_PACK_COST)
		return 0;
	most -= KV_PACK_COST;
	if (len > pk->pk_cap) {
		uint8_t *p = realloc(pk->pk_buf, len);

		if (!p)
			return 0;
		pk->pk_buf = p;
		pk->pk_cap = len;
	}
	if (is_worth_it(pk, val, len))
		n = shrink(pk, val, len, most);
	KV_ASSERT(n <= most);
	pk->pk_misses = n ? 0 : pk->pk_misses + 1;
	*out = pk->pk_buf;
	return n;
}

bool kv_unpack(uint8_t how, const uint8_t *packed, uint32_t plen, uint8_t *out, uint32_t len)
{
	if (how == KVDB_COMPRESS_LZ4)
		return LZ4_decompress_safe((const char *)packed, (char *)out, (int)plen,
					   (int)len) == (int)len;
	return how == KVDB_COMPRESS_ZSTD && ZSTD_decompress(out, len, packed, plen) == len;
}
