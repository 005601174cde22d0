/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Media classes: which devices, how much space, and the choice of a device
 * for an object. Whole objects go round robin over the devices of a class;
 * only when no device has one contiguous extent is an object cut into pieces,
 * on one device if possible. Everything under pool->p_lock; no I/O.
 */
#include "durable.h"

#define STOCK_MAX	((256u << 20) / MP_BLOCK)	/* blocks of a pool */
#define HURT_MS		60000u

void mp_class_add(struct mp_pool *pool, struct mp_pdev *pd)
{
	struct mp_cls *c = &pool->p_cls[pd->pd_mclass];

	os_assert(c->c_ndevs < MP_CLASS_DEVS);
	c->c_slot[c->c_ndevs++] = pd->pd_slot;
	c->c_total += pd->pd_smap.s_total;
}

void mp_class_reserve(struct mp_pool *pool)
{
	u32 i;

	mp_assert_locked(pool);
	for (i = 0; i < MP_CLASSES; i++)
		pool->p_cls[i].c_reserve = pool->p_cls[i].c_total / 100 *
					   pool->p_sb->sb_spare_pct[i];
	/* the stock is for what is written next, however large the pool is */
	for (i = 0; i < pool->p_ndevs; i++) {
		struct mp_smap *s = &pool->p_dev[i]->pd_smap;

		s->s_stock_max = min_t(u64, s->s_total / 8, STOCK_MAX / pool->p_ndevs);
	}
}

void mp_class_init(struct mp_pool *pool)
{
	u32 i;

	for (i = 0; i < pool->p_ndevs; i++)
		mp_class_add(pool, pool->p_dev[i]);
	mp_class_reserve(pool);
}

static u64 class_free(const struct mp_pool *pool, u32 mclass, u64 *inflight)
{
	const struct mp_cls *c = &pool->p_cls[mclass];
	u64 sum = 0;
	u32 i;

	*inflight = 0;
	for (i = 0; i < c->c_ndevs; i++) {
		sum += mp_smap_free_blocks(&pool->p_dev[c->c_slot[i]]->pd_smap);
		*inflight += pool->p_dev[c->c_slot[i]]->pd_smap.s_inflight;
	}
	return sum + *inflight;
}

u64 mp_class_avail(const struct mp_pool *pool, u32 mclass, bool is_spare)
{
	u64 inflight, n = class_free(pool, mclass, &inflight);
	u64 reserve = is_spare ? 0 : pool->p_cls[mclass].c_reserve;

	return n > reserve ? n - reserve : 0;
}

void mp_class_free(struct mp_pool *pool, const struct mp_extent *ext, u32 n, u32 kind,
		   bool is_clean)
{
	u32 i;

	mp_assert_locked(pool);
	for (i = 0; i < n; i++)
		mp_smap_put(&pool->p_dev[ext[i].ex_slot]->pd_smap, ext[i].ex_start,
			    ext[i].ex_count, kind != MP_MBLOCK, is_clean);
}

/*
 * INV-24: where a device failed a write it may fail the next. A minute after the first of them all
 * are given out again, so that a device that was away for a while costs no space for good.
 */
void mp_class_keep_out(struct mp_pool *pool, const struct mp_extent *ext, u32 n)
{
	u32 i;

	if (!pool->p_hurt_until)
		pool->p_hurt_until = os_now_ms() + HURT_MS;
	for (i = 0; i < n; i++)
		mp_smap_put_hurt(&pool->p_dev[ext[i].ex_slot]->pd_smap, ext[i].ex_start,
				 ext[i].ex_count);
}

bool mp_class_hurt_step(struct mp_pool *pool, u64 now)
{
	u32 i;

	if (!pool->p_hurt_until || now < pool->p_hurt_until)
		return pool->p_hurt_until;
	pool->p_hurt_until = 0;
	for (i = 0; i < pool->p_ndevs; i++)
		mp_smap_hurt_end(&pool->p_dev[i]->pd_smap);
	return false;
}

/* up to @want blocks on the device @slot; adds to ext[*n] */
static int take_from(struct mp_pool *pool, u32 slot, u64 want, u32 sflags, struct mp_extent *ext,
		     u32 *n, u64 *got)
{
	int i, rc;

	mp_assert_locked(pool);
	rc = mp_smap_alloc(&pool->p_dev[slot]->pd_smap, want, sflags, ext + *n,
			   MP_EXTENTS_MAX - *n, got);
	if (rc < 0)
		return rc;
	for (i = 0; i < rc; i++)
		ext[*n + (u32)i].ex_slot = slot;
	*n += (u32)rc;
	return 0;
}

/*
 * By falling address: whatever their devices, none begins where the one before it ends. INV-26
 */
static void pieces_order(struct mp_extent *ext, u32 n)
{
	struct mp_extent x;
	u32 i, k;

	for (i = 1; i < n; i++) {
		x = ext[i];
		for (k = i; k && ext[k - 1].ex_start < x.ex_start; k--)
			ext[k] = ext[k - 1];
		ext[k] = x;
	}
}

/* pass 0: contiguous; 1: pieces on one device; 2: pieces on several */
static int try_pass(struct mp_pool *pool, struct mp_cls *c, u64 blocks, u32 kind, int pass,
		    struct mp_extent *ext, u32 *n)
{
	u32 sflags = (kind == MP_MBLOCK ? 0 : MP_SMAP_LOG) | (pass ? MP_SMAP_PIECES : 0);
	u64 want = blocks, got;
	u32 i, k;
	int rc;

	for (i = 0; i < c->c_ndevs && want; i++) {
		k = (c->c_next + i) % c->c_ndevs;
		rc = take_from(pool, c->c_slot[k], want, sflags, ext, n, &got);
		if (!rc && got == want) {
			c->c_next = k + 1;
			if (pass == 2)
				pieces_order(ext, *n);
			return 0;
		}
		want -= got;
		if (rc || pass < 2) {
			mp_class_free(pool, ext, *n, kind, true);
			*n = 0;
			want = blocks;
			if (rc)
				return rc;
		}
	}
	mp_class_free(pool, ext, *n, kind, true);
	*n = 0;
	return -ENOSPC;
}

int mp_class_alloc(struct mp_pool *pool, u32 mclass, u64 blocks, u32 kind, u32 flags,
		   struct mp_extent *ext, u32 *next, u32 *got_class)
{
	struct mp_cls *c = &pool->p_cls[mclass];
	u64 inflight;
	int pass, rc, turn;

	os_assert_held(&pool->p_lock);
	if (!c->c_ndevs)
		return mp_err(MP_NOCLASS, "no device of class %s", mp_class_text(mclass));
	/* bounded: every turn waits for one discard to end */
	for (turn = 0; turn < 1000; turn++) {
		if (mp_class_avail(pool, mclass, flags & MP_ALLOC_SPARE) < blocks)
			break;
		*next = 0;
		for (pass = 0; pass < 3; pass++) {
			rc = try_pass(pool, c, blocks, kind, pass, ext, next);
			if (!rc) {
				*got_class = mclass;
				return 0;
			}
			if (rc != -ENOSPC)
				return mp_err(MP_NOMEM, "space map");
		}
		class_free(pool, mclass, &inflight);
		if (!inflight)
			return mp_err(MP_OBJ_FRAG, "%llu bytes in class %s",
				      blocks * MP_BLOCK, mp_class_text(mclass));
		if (os_fatal_signal())
			return -EINTR;
		os_cond_wait(&pool->p_cond, &pool->p_lock);
	}
	return mp_err(MP_NOSPC, "%llu bytes in class %s, %llu are free", blocks * MP_BLOCK,
		      mp_class_text(mclass),
		      mp_class_avail(pool, mclass, flags & MP_ALLOC_SPARE) * MP_BLOCK);
}
