/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * CRC32C: known answers, and every variant that this CPU can run against the
 * scalar one, for all short lengths, alignments and random starts.
 */
#include "harness.h"

#include "crc32c.h"

typedef uint32_t crc_fn_t(uint32_t crc, const void *buf, size_t len);

static unsigned char data[70000];

static void variant_equals_scalar(crc_fn_t *fn)
{
	uint64_t seed = t_seed();
	size_t len;
	int i;

	for (i = 0; i < (int)sizeof(data); i++)
		data[i] = (unsigned char)t_rand(&seed);
	for (len = 0; len < 2100; len++)
		T_EQ(fn(0, data + len % 67, len), mpl_crc32c_scalar(0, data + len % 67, len));
	for (i = 0; i < 2000; i++) {
		size_t off = t_rand(&seed) % 4096;
		uint32_t crc = (uint32_t)t_rand(&seed);

		len = t_rand(&seed) % (sizeof(data) - off);
		T_EQ(fn(crc, data + off, len), mpl_crc32c_scalar(crc, data + off, len));
	}
}

static void crc32c_known_answers(void)
{
	unsigned char b[32];
	int i;

	T_EQ(mpool_crc32c(0, "123456789", 9), 0xe3069283u);
	T_EQ(mpl_crc32c_scalar(0, "123456789", 9), 0xe3069283u);
	memset(b, 0, sizeof(b));
	T_EQ(mpool_crc32c(0, b, 32), 0x8a9136aau);
	memset(b, 0xff, sizeof(b));
	T_EQ(mpool_crc32c(0, b, 32), 0x62a8ab43u);
	for (i = 0; i < 32; i++)
		b[i] = (unsigned char)i;
	T_EQ(mpool_crc32c(0, b, 32), 0x46dd794eu);
	T_EQ(mpool_crc32c(0, b, 0), 0);
}

static void crc32c_continues_across_pieces(void)
{
	uint32_t whole = mpool_crc32c(0, data, 5000), part;
	size_t cut;

	for (cut = 0; cut <= 5000; cut += 97) {
		part = mpool_crc32c(0, data, cut);
		T_EQ(mpool_crc32c(part, data + cut, 5000 - cut), whole);
	}
}

static void crc32c_selected_equals_scalar(void)
{
	variant_equals_scalar(mpool_crc32c);
}

#ifdef __x86_64__
static void crc32c_sse42_equals_scalar(void)
{
	if (mpl_crc32c_has_sse42())
		variant_equals_scalar(mpl_crc32c_sse42);
}

static void crc32c_avx512_equals_scalar(void)
{
	if (mpl_crc32c_has_avx512())
		variant_equals_scalar(mpl_crc32c_avx512);
}
#endif

int main(void)
{
	T_RUN(crc32c_known_answers);
	T_RUN(crc32c_selected_equals_scalar);
#ifdef __x86_64__
	T_RUN(crc32c_sse42_equals_scalar);
	T_RUN(crc32c_avx512_equals_scalar);
#endif
	T_RUN(crc32c_continues_across_pieces);
	return t_done();
}
