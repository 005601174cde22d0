/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * CRC32C (Castagnoli): the only file with CRC instructions of a CPU.
 *
 * Variants: scalar (slicing by eight), SSE4.2 (three interleaved streams joined
 * by carry-less multiplication) and AVX-512 with VPCLMULQDQ (folding of 256
 * bytes a step). The first call selects one and stores its address; later
 * calls cost one indirect jump and no CPUID. Every variant must give the
 * scalar result for every length and alignment (test_libmpool_crc32c).
 *
 * Constants are powers of x modulo the polynomial, bit-reflected: fold
 * constants for a distance of D bits are x^(D+32) and x^(D-32), shifted left
 * by one; join constants for L bytes are x^(8L-33), those for less than 1008 bytes in crc_join.
 */
#include "crc32c.h"

#include <string.h>

#define CRC_POLY	0x82f63b78u

#define CRC_JOINS	84u	/* twice a third of 1008, in words */

static uint32_t crc_table[8][256];
static uint32_t crc_join[CRC_JOINS + 1];	/* join constant for so many 8-byte words */

static void __attribute__((constructor(101))) crc_table_init(void)
{
	unsigned int i, k;

	for (crc_join[1] = 1, i = 2; i <= CRC_JOINS; i++) {	/* 1: x^31, reflected */
		uint32_t c = crc_join[i - 1];

		for (k = 0; k < 64; k++)
			c = (c >> 1) ^ (CRC_POLY & (0u - (c & 1)));
		crc_join[i] = c;
	}

	for (i = 0; i < 256; i++) {
		uint32_t c = i;

		for (k = 0; k < 8; k++)
			c = (c >> 1) ^ (CRC_POLY & (0u - (c & 1)));
		crc_table[0][i] = c;
	}
	for (i = 0; i < 256; i++)
		for (k = 1; k < 8; k++)
			crc_table[k][i] = (crc_table[k - 1][i] >> 8) ^
					  crc_table[0][crc_table[k - 1][i] & 0xff];
}

/* little-endian load; the compiler makes it one instruction */
static inline uint64_t crc_le64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

uint32_t mpl_crc32c_scalar(uint32_t crc, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	crc = ~crc;
	for (; len >= 8; len -= 8, p += 8) {
		uint64_t v = crc_le64(p) ^ crc;

		crc = crc_table[7][v & 0xff] ^ crc_table[6][(v >> 8) & 0xff] ^
		      crc_table[5][(v >> 16) & 0xff] ^ crc_table[4][(v >> 24) & 0xff] ^
		      crc_table[3][(v >> 32) & 0xff] ^ crc_table[2][(v >> 40) & 0xff] ^
		      crc_table[1][(v >> 48) & 0xff] ^ crc_table[0][v >> 56];
	}
	while (len--)
		crc = (crc >> 8) ^ crc_table[0][(crc ^ *p++) & 0xff];
	return ~crc;
}

#ifdef __x86_64__
#include <immintrin.h>

#define TGT_SSE	__attribute__((target("sse4.2,pclmul")))
#define TGT_512	__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,vpclmulqdq,pclmul,"	\
				      "sse4.2")))

/* @crc is the raw register, not inverted */
TGT_SSE static inline uint64_t crc_tail(uint64_t crc, const uint8_t *p, size_t len)
{
	for (; len >= 8; len -= 8, p += 8)
		crc = _mm_crc32_u64(crc, crc_le64(p));
	if (len & 4) {
		uint32_t v;

		memcpy(&v, p, 4);
		crc = _mm_crc32_u32((uint32_t)crc, v);
		p += 4;
	}
	if (len & 2) {
		uint16_t v;

		memcpy(&v, p, 2);
		crc = _mm_crc32_u16((uint32_t)crc, v);
		p += 2;
	}
	if (len & 1)
		crc = _mm_crc32_u8((uint32_t)crc, *p);
	return crc;
}

TGT_SSE static inline uint64_t crc_clmul(uint64_t crc, uint64_t k)
{
	__m128i r = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc),
					 _mm_cvtsi64_si128((long long)k), 0);

	return (uint64_t)_mm_cvtsi128_si64(r);
}

#define CRC_THREE	240u	/* bytes from which on they save more than to join them takes */

/* Three streams of @n bytes each; k1 shifts by n bytes, k2 by 2n bytes. */
TGT_SSE static inline uint64_t crc_three(uint64_t crc, const uint8_t *p, size_t n, uint64_t k1,
					 uint64_t k2)
{
	uint64_t b = 0, c = 0, t;
	size_t i;

	for (i = 0; i < n; i += 8) {
		crc = _mm_crc32_u64(crc, crc_le64(p + i));
		b = _mm_crc32_u64(b, crc_le64(p + n + i));
		c = _mm_crc32_u64(c, crc_le64(p + 2 * n + i));
	}
	t = crc_clmul(crc, k2) ^ crc_clmul(b, k1);
	return _mm_crc32_u64(0, t) ^ c;
}

TGT_SSE uint32_t mpl_crc32c_sse42(uint32_t crc0, const void *buf, size_t len)
{
	const uint8_t *p = buf;
	uint64_t crc = (uint32_t)~crc0;

	for (; len >= 3 * 1360; len -= 3 * 1360, p += 3 * 1360)
		crc = crc_three(crc, p, 1360, 0x3f70cc6f, 0x5aa1f3cf);
	for (; len >= 3 * 336; len -= 3 * 336, p += 3 * 336)
		crc = crc_three(crc, p, 336, 0xa60ce07b, 0xcec3662e);
	if (len >= CRC_THREE) {
		size_t n = len / 24;

		crc = crc_three(crc, p, n * 8, crc_join[n], crc_join[2 * n]);
		len -= n * 24;
		p += n * 24;
	}
	return ~(uint32_t)crc_tail(crc, p, len);
}

TGT_512 static inline __m512i crc_fold512(__m512i a, __m512i k, __m512i next)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, k, 0x00),
					 _mm512_clmulepi64_epi128(a, k, 0x11), next, 0x96);
}

TGT_512 static inline __m128i crc_fold128(__m128i a, __m128i k)
{
	return _mm_xor_si128(_mm_clmulepi64_si128(a, k, 0x00), _mm_clmulepi64_si128(a, k, 0x11));
}

/* Four accumulators of 64 bytes over @len bytes (a multiple of 64, >= 256) into one. */
TGT_512 static inline __m512i crc_fold_long(uint32_t crc, const uint8_t *p, size_t len)
{
	const __m512i k2048 = _mm512_broadcast_i64x2(_mm_set_epi64x(0xb9e02b86, 0xdcb17aa4));
	const __m512i k512 = _mm512_broadcast_i64x2(_mm_set_epi64x(0x9e4addf8, 0x740eef02));
	__m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64);
	__m512i c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);

	a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
	for (p += 256, len -= 256; len >= 256; len -= 256, p += 256) {
		a = crc_fold512(a, k2048, _mm512_loadu_si512(p));
		b = crc_fold512(b, k2048, _mm512_loadu_si512(p + 64));
		c = crc_fold512(c, k2048, _mm512_loadu_si512(p + 128));
		d = crc_fold512(d, k2048, _mm512_loadu_si512(p + 192));
	}
	b = crc_fold512(a, k512, b);
	c = crc_fold512(b, k512, c);
	d = crc_fold512(c, k512, d);
	for (; len; len -= 64, p += 64)
		d = crc_fold512(d, k512, _mm512_loadu_si512(p));
	return d;
}

TGT_512 uint32_t mpl_crc32c_avx512(uint32_t crc0, const void *buf, size_t len)
{
	const uint8_t *p = buf;
	uint64_t crc = (uint32_t)~crc0;
	size_t n = len & ~(size_t)63;
	__m512i z;
	__m128i x;

	if (n < 256)
		return ~(uint32_t)crc_tail(crc, p, len);
	z = crc_fold_long((uint32_t)crc, p, n);
	x = crc_fold128(_mm512_castsi512_si128(z), _mm_set_epi64x(0x1d82c63da, 0x1c291d04));
	x = _mm_xor_si128(x, crc_fold128(_mm512_extracti64x2_epi64(z, 1),
					 _mm_set_epi64x(0xba4fc28e, 0x1384aa63a)));
	x = _mm_xor_si128(x, crc_fold128(_mm512_extracti64x2_epi64(z, 2),
					 _mm_set_epi64x(0x14cd00bd6, 0xf20c0dfe)));
	x = _mm_xor_si128(x, _mm512_extracti64x2_epi64(z, 3));
	crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x));
	crc = _mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(x, 1));
	return ~(uint32_t)crc_tail(crc, p + n, len - n);
}

int mpl_crc32c_has_sse42(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

int mpl_crc32c_has_avx512(void)
{
	return mpl_crc32c_has_sse42() && __builtin_cpu_supports("avx512f") &&
	       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("vpclmulqdq");
}
#endif

static uint32_t crc_select(uint32_t crc, const void *buf, size_t len);

static uint32_t (*crc_fn)(uint32_t crc, const void *buf, size_t len) = crc_select;

/* Threads may race here: all store the same address. */
static uint32_t crc_select(uint32_t crc, const void *buf, size_t len)
{
	uint32_t (*fn)(uint32_t, const void *, size_t) = mpl_crc32c_scalar;

#ifdef __x86_64__
	if (mpl_crc32c_has_avx512())
		fn = mpl_crc32c_avx512;
	else if (mpl_crc32c_has_sse42())
		fn = mpl_crc32c_sse42;
#endif
	__atomic_store_n(&crc_fn, fn, __ATOMIC_RELAXED);
	return fn(crc, buf, len);
}

uint32_t mpool_crc32c(uint32_t crc, const void *buf, size_t len)
{
	return __atomic_load_n(&crc_fn, __ATOMIC_RELAXED)(crc, buf, len);
}
