/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The single variants of CRC32C, for tests; all other code calls
 * mpool_crc32c(). The has_ functions say whether this CPU may run one.
 */
#ifndef MPL_CRC32C_H
#define MPL_CRC32C_H

#include <stddef.h>
#include <stdint.h>

#include <mpool/mpool.h>

uint32_t mpl_crc32c_scalar(uint32_t crc, const void *buf, size_t len);
#ifdef __x86_64__
int mpl_crc32c_has_sse42(void);
int mpl_crc32c_has_avx512(void);
uint32_t mpl_crc32c_sse42(uint32_t crc, const void *buf, size_t len);
uint32_t mpl_crc32c_avx512(uint32_t crc, const void *buf, size_t len);
#endif

#endif
