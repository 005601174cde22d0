/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Values that prove themselves: a header with the hash of their key and a
 * version, then bytes of a fixed noise block from an offset that both decide.
 * So a value of another key, of another version, torn or shifted is noticed
 * from the key alone, in any process, with any seed. Values that are to
 * compress have zeros instead of noise in a part of each BENCH_FIELD bytes, as
 * fio and others make them.
 *
 * The noise is read-only after bench_noise_init(); no lock.
 */
#ifndef UTILS_BENCH_VALUE_H
#define UTILS_BENCH_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BENCH_NOISE  65536u /* bytes; stored twice in a row, so 64 KiB from any offset */
#define BENCH_HEADER 16u    /* key hash, version */
#define BENCH_STRIDE 256u   /* the quick check looks at 8 bytes of so many */
#define BENCH_FIELD  100u   /* no divisor of the stride: the check meets zeros and noise */

/* version: 0 = written by load; else run << 56 | (thread + 1) << 40 | number */
#define BENCH_VERSION(run, thread, n) \
	((uint64_t)(run) << 56 | ((uint64_t)(thread) + 1) << 40 | (n))

extern unsigned char bench_noise[2 * BENCH_NOISE];

/* @zeros: percent of each field that is zeros, 0 = noise that no compressor makes smaller */
void bench_noise_init(unsigned zeros);

/* where in the noise the body begins; a multiple of 8 */
static inline size_t bench_noise_at(uint64_t hash, uint64_t version)
{
	uint64_t z = (hash ^ version * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;

	return (size_t)(z >> 40) & (BENCH_NOISE - 8);
}

static inline void bench_value_make(unsigned char *buf, size_t len, uint64_t hash,
				    uint64_t version)
{
	uint64_t head[2] = { hash, version };
	const unsigned char *from = bench_noise + bench_noise_at(hash, version);
	size_t at, n;

	if (len <= BENCH_HEADER) {
		memcpy(buf, head, len);
		return;
	}
	memcpy(buf, head, BENCH_HEADER);
	for (at = BENCH_HEADER; at < len; at += n) {
		n = len - at < BENCH_NOISE ? len - at : BENCH_NOISE;
		memcpy(buf + at, from, n);
	}
}

static inline uint64_t bench_value_version(const unsigned char *buf, size_t len)
{
	uint64_t v = 0;

	if (len >= BENCH_HEADER)
		memcpy(&v, buf + 8, 8);
	return v;
}

/* The body from BENCH_HEADER on, all of it or 8 bytes of every stride and the last 8. */
static inline bool bench_body_good(const unsigned char *buf, size_t len, uint64_t hash,
				   uint64_t version, bool is_full)
{
	const unsigned char *from = bench_noise + bench_noise_at(hash, version);
	size_t at, n;

	for (at = BENCH_HEADER; at < len; at += n) {
		size_t end = len - at < BENCH_NOISE ? len - at : BENCH_NOISE, i;

		n = end;
		if (is_full || end < 8) {
			if (memcmp(buf + at, from, end))
				return false;
			continue;
		}
		for (i = 0; i + 8 <= end; i += BENCH_STRIDE)
			if (memcmp(buf + at + i, from + i, 8))
				return false;
		if (memcmp(buf + at + end - 8, from + end - 8, 8))
			return false;
	}
	return true;
}

/* true when the part of the header that @len holds names this key */
static inline bool bench_head_good(const unsigned char *buf, size_t len, uint64_t hash)
{
	return !memcmp(buf, &hash, len < 8 ? len : 8);
}

#endif
