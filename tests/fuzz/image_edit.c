/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Changes of a golden image, from the bytes of an input. See image_edit.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_edit.h"
#include "codec.h"

#define EDITS	64u	/* in one input */

/* The time that a pool of several hosts waits for passes at once. */
static u64 now_ms;

static u64 clock_now(void *ctx)
{
	(void)ctx;
	return __atomic_load_n(&now_ms, __ATOMIC_RELAXED);
}

static void clock_sleep(void *ctx, u32 ms)
{
	(void)ctx;
	__atomic_fetch_add(&now_ms, ms, __ATOMIC_RELAXED);
}

void fi_init(struct fi *fi, const char *path)
{
	static const struct os_user_hooks hooks = { .now_ms = clock_now, .sleep_ms = clock_sleep };
	static const uint8_t zero[MP_BLOCK];
	struct sim *s = &fi->fi_sim;

	os_user_hooks_set(&hooks);
	sim_init(s);
	if (image_load(s, path))
		fz_bug("no golden image; run from the top of the source tree");
	for (unsigned d = 0; d < s->s_ndev; d++) {
		uint32_t n = (uint32_t)(s->s_dev[d].d_size / MP_BLOCK);

		fi->fi_bytes += s->s_dev[d].d_size;
		fi->fi_block[d] = calloc(n, sizeof(uint32_t));
		for (uint32_t b = 0; b < n; b++)
			if (memcmp(s->s_dev[d].d_mem + (uint64_t)b * MP_BLOCK, zero, MP_BLOCK))
				fi->fi_block[d][fi->fi_n[d]++] = b;
	}
}

static uint32_t sum(const uint8_t *p, size_t len, size_t field)
{
	static const uint8_t zero[4];
	uint32_t c = crc32c(~0u, p, field);

	c = crc32c(c, zero, 4);
	return ~crc32c(c, p + field + 4, len - field - 4);
}

/* Computes the sum of @len bytes at @at, whose field is @field, and writes it there. */
static void sum_fix(struct sim *s, unsigned d, uint64_t at, uint64_t len, size_t field)
{
	uint32_t v;

	if (!len || len > s->s_dev[d].d_size - at)
		return;
	v = htole32(sum(s->s_dev[d].d_mem + at, len, field));
	sim_poke(s, d, at + field, &v, sizeof(v));
}

/* A frame has one sum over all of its blocks, and begins in this block or before it. */
static void frame_fix(struct sim *s, unsigned d, uint64_t at)
{
	for (unsigned back = 0; back < 64 && at >= MP_BLOCK; back++, at -= MP_BLOCK) {
		const struct mp_frame_omf *fr = (void *)(s->s_dev[d].d_mem + at);
		const struct mp_mlframe_omf *ml = (const void *)fr;
		uint64_t blocks;

		if (le32toh(fr->mf_magic) == MP_FRAME_MAGIC) {
			blocks = le32toh(fr->mf_blocks);
			if (blocks <= MP_FRAME_MAX / MP_BLOCK)
				sum_fix(s, d, at, blocks * MP_BLOCK,
					offsetof(struct mp_frame_omf, mf_csum));
			return;
		}
		if (le32toh(ml->ml_magic) == MP_MLOG_MAGIC) {
			blocks = le32toh(ml->ml_blocks);
			if (blocks <= MP_MLFRAME_MAX / MP_BLOCK)
				sum_fix(s, d, at, blocks * MP_BLOCK,
					offsetof(struct mp_mlframe_omf, ml_csum));
			return;
		}
	}
}

static void fix(struct sim *s, unsigned d, uint64_t at)
{
	const uint8_t *p = s->s_dev[d].d_mem + at;
	const size_t pre = offsetof(struct mp_sb_omf, sb_pre_csum);
	uint32_t v;

	if (!mp_sb_is_magic(p)) {
		frame_fix(s, d, at);
		return;
	}
	v = htole32(mp_csum(p, pre));
	sim_poke(s, d, at + pre, &v, sizeof(v));
	sum_fix(s, d, at, MP_BLOCK, offsetof(struct mp_sb_omf, sb_csum));
}

static bool edit(struct fi *fi, struct fz *f, bool is_fixed)
{
	struct sim *s = &fi->fi_sim;
	unsigned len = (unsigned)fz_num(f, 1), d = (unsigned)fz_num(f, 1) % s->s_ndev;
	uint64_t at = (uint64_t)fi->fi_block[d][fz_num(f, 2) % fi->fi_n[d]] * MP_BLOCK;
	unsigned off = (unsigned)fz_num(f, 2) % MP_BLOCK;
	uint8_t bytes[256] = { 0 };

	if (!len)
		return false;
	if (len > MP_BLOCK - off)
		len = MP_BLOCK - off;
	memcpy(bytes, f->p, f->n < len ? f->n : len);
	f->n -= f->n < len ? f->n : len;
	f->p += len;
	sim_poke(s, d, at + off, bytes, len);
	if (is_fixed)
		fix(s, d, at);
	return f->n > 0;
}

bool fi_is_multihost(const struct fi *fi)
{
	const struct sim *s = &fi->fi_sim;

	for (unsigned d = 0; d < s->s_ndev; d++) {
		for (unsigned i = 0; i < fi->fi_n[d]; i++) {
			const struct mp_sb_omf *o = (const void *)(s->s_dev[d].d_mem +
						(uint64_t)fi->fi_block[d][i] * MP_BLOCK);

			if (mp_sb_is_magic(o) && le64toh(o->sb_ro_compat) & MP_RO_MULTIHOST)
				return true;
		}
	}
	return false;
}

uint32_t fi_sum(const struct fi *fi)
{
	const struct sim *s = &fi->fi_sim;
	uint32_t c = 0;

	for (unsigned d = 0; d < s->s_ndev; d++)
		c = mpool_crc32c(c, s->s_dev[d].d_mem, s->s_dev[d].d_size);
	return c;
}

void fi_begin(struct fi *fi, struct fz *f)
{
	unsigned flags = (unsigned)fz_num(f, 1);

	sim_snap(&fi->fi_sim);
	for (unsigned i = 0; i < EDITS && edit(fi, f, !(flags & FI_UNFIXED)); i++)
		;
	fz_trust(!(flags & FI_HONEST));
	fi->fi_all++;
}

void fi_end(struct fi *fi)
{
	fz_trust(false);
	sim_release(&fi->fi_sim);
	sim_rollback(&fi->fi_sim);
}
