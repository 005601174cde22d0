/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The metadata log, reading side: find the newest life's newest epoch whose checkpoint
 * is complete (INV-21), take the longest valid chain of frames among the mirrors, replay
 * it, and tell a torn tail from damage.
 *
 * Torn or corrupt: every frame says up to which sequence all was durable when
 * it was written. A chain that stops is torn, unless some mirror holds a valid
 * frame of the same epoch or a later one that proves a later sequence durable:
 * then records that were acknowledged are gone and the open is refused.
 * Runs alone at open; reads only, except mp_md_repair(). Reads are bounded by
 * the region's size, memory by one window.
 */
#include "durable.h"

#define WINDOW	(2u * MP_FRAME_MAX)
#define WINDOW_FIRST (64u << 10)	/* most logs are shorter; a read that goes on takes twice */
#define AHEAD	(4ull << 20)	/* bytes looked at behind the last frame found */
#define VAIN_MAX 16		/* frames read whole for nothing: more are forged or damaged */

struct window {
	struct mp_pool *w_pool;
	struct mp_pdev *w_pd;
	u8 *w_buf;
	u64 w_base;		/* device offset of the region */
	u64 w_off;		/* of w_buf in the region */
	u32 w_len;
	int w_rc;		/* first read error */
};

struct walk {
	bool wk_has_first;	/* the region begins with a valid frame */
	bool wk_is_complete;	/* END seen */
	u64 wk_epoch;
	u64 wk_end;		/* bytes of valid chain */
	u64 wk_seq;		/* of the last frame of the chain */
	u64 wk_gen, wk_id_hwm;
	u32 wk_csum;
	u64 wk_ahead;		/* highest sequence proven durable by frames behind the end */
	bool wk_has_tail;	/* something of this epoch lies behind the end */
	int wk_rc;
};

/* bytes at @off; NULL at a read error or the region's end */
static const u8 *window_get(struct window *w, u64 off, u32 need)
{
	struct mp_dev *dev = w->w_pd->pd_dev;
	u64 bytes = w->w_pool->p_md.md_bytes;
	u32 want;
	int rc;

	if (off + need > bytes)
		return NULL;
	if (off < w->w_off || off + need > w->w_off + w->w_len) {
		/* ends all that follows like a read error, which is never this one */
		if (os_fatal_signal()) {
			w->w_rc = -EINTR;
			return NULL;
		}
		want = max_t(u32, WINDOW_FIRST, need);
		if (off >= w->w_off && off <= w->w_off + w->w_len)
			want = max_t(u32, want, 2 * w->w_len);
		want = min_t(u32, want, WINDOW);
		w->w_off = off;
		w->w_len = (u32)min_t(u64, want, bytes - off);
		/* a long log takes longer than others would wait */
		if (mp_pool_has_beat(w->w_pool))
			mp_pool_beat(w->w_pool);
		rc = dev->d_ops->read(dev, w->w_base + off, w->w_buf, w->w_len);
		if (rc) {
			w->w_len = 0;
			w->w_rc = rc;
			return NULL;
		}
	}
	return w->w_buf + (off - w->w_off);
}

/* the next block from @off on that may hold a frame; holes of a file are not read */
static u64 window_skip(const struct window *w, u64 off, u64 end)
{
	bool is_in = off >= w->w_off && off + MP_BLOCK <= w->w_off + w->w_len;

	return is_in || off >= end ? off :
	       mp_dev_data(w->w_pd->pd_dev, w->w_base + off, w->w_base + end) - w->w_base;
}

/* the valid frame at @off, or NULL */
static const u8 *frame_get(struct window *w, u64 off, struct mp_frame *fr)
{
	const u8 *uuid = w->w_pool->p_uuid;
	u64 left = w->w_pool->p_md.md_bytes - off;
	u32 max = (u32)min_t(u64, left, MP_FRAME_MAX) / MP_BLOCK;
	const u8 *p = window_get(w, off, MP_BLOCK);

	if (!p || mp_frame_peek(p, uuid, w->w_base + off, max, fr))
		return NULL;
	p = window_get(w, off, fr->mf_blocks * MP_BLOCK);
	if (!p || mp_frame_decode(p, uuid, w->w_base + off, max, fr))
		return NULL;
	return p;
}

static int frame_replay(struct mp_pool *pool, const u8 *p, const struct mp_frame *fr)
{
	struct mp_rec r;
	u32 off = 0, n = 0;
	int rc, err;

	for (p += MP_FRAME_HDR; off < fr->mf_len; off += (u32)rc, n++) {
		rc = mp_rec_decode(p + off, fr->mf_len - off, &r);
		if (rc < 0)
			return mp_err(MP_MD_RECORD, "epoch %llu sequence %llu offset %u",
				      fr->mf_epoch, fr->mf_seq, off);
		err = mp_otab_replay(pool, &r);
		if (err)
			return err;
	}
	if (!CHECK(n == fr->mf_nrecs))
		return mp_err(MP_MD_RECORD, "epoch %llu sequence %llu: %u records, not %u",
			      fr->mf_epoch, fr->mf_seq, n, fr->mf_nrecs);
	return 0;
}

/* does @fr continue the chain of @wk? */
static bool is_next(const struct walk *wk, const struct mp_frame *fr)
{
	bool is_ckpt = fr->mf_flags & MP_FRAME_CKPT;

	if (!wk->wk_end)
		return is_ckpt;
	if (!CHECK(fr->mf_epoch == wk->wk_epoch))
		return false;
	if (!CHECK(fr->mf_seq == wk->wk_seq + 1 && fr->mf_prev == wk->wk_csum))
		return false;
	return is_ckpt != wk->wk_is_complete;
}

/* the frame that continues the chain of @wk, or NULL */
static const u8 *next_get(struct window *w, const struct walk *wk, struct mp_frame *fr)
{
	const u8 *p = frame_get(w, wk->wk_end, fr);

	return p && is_next(wk, fr) ? p : NULL;
}

/* The same; a chain ends where two readings say so: INV-19. */
static const u8 *next_sure(struct window *w, const struct walk *wk, struct mp_frame *fr)
{
	const u8 *p = next_get(w, wk, fr);

	if (w->w_rc || CHECK(p))
		return p;
	w->w_len = 0;
	p = next_get(w, wk, fr);
	if (p) {
		mp_pdev_bad_read(w->w_pool, w->w_pd, true);
		mp_err(MP_READ_LIED, "%s: the frame at %llu is good in the second reading",
		       w->w_pd->pd_dev->d_path, fr->mf_addr);
	}
	return p;
}

/* look behind the end of the chain for frames that prove more: INV-22 */
static void look_ahead(struct window *w, struct walk *wk)
{
	u64 bytes = w->w_pool->p_md.md_bytes, end = min_t(u64, bytes, wk->wk_end + AHEAD), off;
	struct mp_frame fr;
	u32 nvain = 0;

	for (off = wk->wk_end; off + MP_BLOCK <= end; off += MP_BLOCK) {
		const u8 *p;

		off = window_skip(w, off, end);
		if (off == end)
			return;
		p = window_get(w, off, MP_BLOCK);
		if (!p)
			return;
		if (mp_frame_peek(p, w->w_pool->p_uuid, w->w_base + off,
				  MP_FRAME_MAX / MP_BLOCK, &fr) || fr.mf_epoch != wk->wk_epoch ||
		    fr.mf_gen < wk->wk_gen)
			continue;
		wk->wk_has_tail = true;
		/* a checkpoint is of any size: on to the end that proves it */
		end = min_t(u64, bytes, off + AHEAD);
		if (fr.mf_durable <= max_t(u64, wk->wk_ahead, wk->wk_seq))
			continue;
		if (frame_get(w, off, &fr) || ++nvain == VAIN_MAX)
			wk->wk_ahead = fr.mf_durable;
	}
}

/* @fr continues the chain */
static void walk_on(struct walk *wk, const struct mp_frame *fr)
{
	os_assert(fr->mf_seq > wk->wk_seq || !wk->wk_end);
	wk->wk_has_first = true;
	wk->wk_epoch = fr->mf_epoch;
	wk->wk_end += (u64)fr->mf_blocks * MP_BLOCK;
	wk->wk_seq = fr->mf_seq;
	wk->wk_csum = fr->mf_csum;
	wk->wk_gen = fr->mf_gen;
	wk->wk_id_hwm = fr->mf_id_hwm;
	if (fr->mf_flags & MP_FRAME_END)
		wk->wk_is_complete = true;
}

/*
 * Follow the chain from the region's start; with @limit, replay it up to there.
 */
static int walk(struct window *w, u64 limit, struct walk *wk)
{
	struct mp_pool *pool = w->w_pool;
	struct mp_frame fr;
	const u8 *p;
	int rc;

	memset(wk, 0, sizeof(*wk));
	w->w_len = 0;
	w->w_rc = 0;
	while (!limit || wk->wk_end < limit) {
		p = next_sure(w, wk, &fr);
		if (!p)
			break;
		if (limit) {
			rc = frame_replay(pool, p, &fr);
			if (rc)
				return rc;
		}
		walk_on(wk, &fr);
	}
	if (w->w_rc == -EINTR)
		return w->w_rc;
	if (limit && wk->wk_end != limit)
		return mp_err(MP_MD_READ, "%s: the log changed while it was read",
			      w->w_pd->pd_dev->d_path);
	if (!limit && wk->wk_has_first)
		look_ahead(w, wk);
	wk->wk_rc = w->w_rc;
	return 0;
}

/*
 * The epoch after @best's of which the region of @wk has a frame that proves more durable than the
 * chain of @best has, 0: there is none. A region whose checkpoint lost its begin may begin with a
 * good frame of an older epoch: the next head is no farther than one frame is long. INV-22
 */
static u64 newer_epoch(struct window *w, const struct walk *wk, const struct walk *best)
{
	u64 bytes = w->w_pool->p_md.md_bytes, gen = best->wk_gen, off;
	u64 end = wk->wk_has_first ? min_t(u64, bytes, WINDOW) : bytes;
	struct mp_frame fr;
	u32 nvain = 0;

	/* behind an attempt of this life may lie what one of an earlier life left */
	if (wk->wk_epoch > best->wk_epoch)
		gen = max_t(u64, gen, wk->wk_gen);
	for (off = 0; off + MP_BLOCK <= end; off += MP_BLOCK) {
		const u8 *p;

		off = window_skip(w, off, end);
		if (off == end)
			return 0;
		p = window_get(w, off, MP_BLOCK);
		if (!p)
			return 0;
		if (mp_frame_peek(p, w->w_pool->p_uuid, w->w_base + off,
				  MP_FRAME_MAX / MP_BLOCK, &fr) || fr.mf_epoch <= best->wk_epoch ||
		    fr.mf_gen < gen)
			continue;
		end = max_t(u64, end, min_t(u64, bytes, off + AHEAD));
		/* a part of a checkpoint proves all before it, its end that it was whole */
		if (fr.mf_durable <= best->wk_seq)
			continue;
		if (frame_get(w, off, &fr) || ++nvain == VAIN_MAX)
			return fr.mf_epoch;
	}
	return 0;
}

struct load {
	struct window w;
	struct walk wk[2][2];	/* mirror, region */
	int io[2];		/* first read error of each mirror */
	u32 best_m, best_r;
	bool has_best;
};

/*
 * The later life first: a checkpoint that reached one mirror only does not count when that
 * mirror could not be read at the next open, which went on in the epoch before. INV-21
 */
static bool is_better(const struct walk *wk, const struct walk *best)
{
	if (!CHECK(wk->wk_gen == best->wk_gen))
		return wk->wk_gen > best->wk_gen;
	if (wk->wk_epoch != best->wk_epoch)
		return wk->wk_epoch > best->wk_epoch;
	return wk->wk_end > best->wk_end;
}

static void load_pick(struct mp_mdlog *md, struct load *l)
{
	u32 m, r;

	for (m = 0; m < md->md_ndevs; m++) {
		for (r = 0; r < 2; r++) {
			struct walk *wk = &l->wk[m][r], *best = &l->wk[l->best_m][l->best_r];

			if (!wk->wk_is_complete || (wk->wk_epoch & 1) != r)
				continue;
			if (!l->has_best || is_better(wk, best)) {
				l->best_m = m;
				l->best_r = r;
				l->has_best = true;
			}
		}
	}
}

/* does any mirror or region prove that the best chain is not the whole truth? */
static int load_doubt(struct mp_pool *pool, struct load *l)
{
	struct mp_mdlog *md = &pool->p_md;
	struct walk *best = &l->wk[l->best_m][l->best_r];
	u64 newer;
	u32 m, r;

	for (m = 0; m < md->md_ndevs; m++) {
		for (r = 0; r < 2; r++) {
			struct walk *wk = &l->wk[m][r];
			const char *path = md->md_dev[m]->pd_dev->d_path;

			if (wk->wk_epoch == best->wk_epoch && wk->wk_has_first &&
			    !CHECK(wk->wk_ahead <= best->wk_seq))
				return mp_err(MP_MD_CORRUPT,
					      "%s: %llu was durable, the chain ends at %llu",
					      path, wk->wk_ahead, best->wk_seq);
			if (wk->wk_epoch == best->wk_epoch || wk->wk_rc)
				continue;
			l->w.w_pd = md->md_dev[m];
			l->w.w_base = md->md_off + r * md->md_bytes;
			l->w.w_len = 0;
			l->w.w_rc = 0;
			/* an incomplete newer checkpoint is torn, unless it was once complete */
			newer = newer_epoch(&l->w, wk, best);
			if (!CHECK(!newer))
				return mp_err(MP_MD_CORRUPT,
					      "%s: epoch %llu follows more than %llu of epoch %llu",
					      path, newer, best->wk_seq, best->wk_epoch);
			l->io[m] = l->io[m] ? l->io[m] : l->w.w_rc;
		}
	}
	if (!CHECK(best->wk_epoch >= pool->p_sb->sb_md_epoch))
		return mp_err(MP_MD_LOST, "checkpoint %llu is the newest, %llu was durable",
			      best->wk_epoch, pool->p_sb->sb_md_epoch);
	return 0;
}

static void load_report(struct mp_pool *pool, struct load *l, mp_finding_fn *fn, void *arg)
{
	struct mp_mdlog *md = &pool->p_md;
	struct walk *best = &l->wk[l->best_m][l->best_r];
	char text[200];
	u32 m;

	for (m = 0; fn && m < md->md_ndevs; m++) {
		struct walk *wk = &l->wk[m][l->best_r];
		struct mp_finding f = { .fi_id = MP_V_MDCOPY, .fi_text = text };

		if (wk->wk_epoch != best->wk_epoch || wk->wk_end != best->wk_end) {
			scnprintf(text, sizeof(text), "%s: log copy %u ends at %llu, not %llu",
				  md->md_dev[m]->pd_dev->d_path, m, wk->wk_end, best->wk_end);
			fn(arg, &f);
		} else if (wk->wk_has_tail) {
			f.fi_id = MP_V_TAIL;
			scnprintf(text, sizeof(text), "%s: log copy %u has a torn tail at %llu",
				  md->md_dev[m]->pd_dev->d_path, m, wk->wk_end);
			fn(arg, &f);
		}
	}
}

/* is the chain of @wk, of another mirror, the begin of the best one, which is in the window? */
static bool is_begin(struct load *l, const struct walk *wk, const struct walk *best)
{
	struct mp_frame fr;

	if (wk->wk_epoch != best->wk_epoch || !wk->wk_is_complete)
		return false;
	return wk->wk_end < best->wk_end ? next_sure(&l->w, wk, &fr) != NULL :
					   wk->wk_csum == best->wk_csum;
}

/* copy what a mirror lacks, and only what is good: INV-19; the source is @best */
static int mirror_copy(struct load *l, struct mp_pool *pool, u32 m)
{
	struct mp_mdlog *md = &pool->p_md;
	struct walk *best = &l->wk[l->best_m][l->best_r], *wk = &l->wk[m][l->best_r];
	struct mp_dev *dst = md->md_dev[m]->pd_dev;
	struct mp_frame fr;
	const u8 *p;
	u32 n = 0;
	int rc = 0;

	os_assert(m != l->best_m && !pool->p_is_rdonly);
	l->w.w_pd = md->md_dev[l->best_m];
	l->w.w_base = mp_md_region(md, best->wk_epoch);
	l->w.w_len = 0;
	l->w.w_rc = 0;
	if (!is_begin(l, wk, best))
		memset(wk, 0, sizeof(*wk));
	while (wk->wk_end < best->wk_end && !rc) {
		p = next_sure(&l->w, wk, &fr);
		if (p)
			rc = mp_dev_write(dst, fr.mf_addr, p, fr.mf_blocks * MP_BLOCK);
		else
			rc = l->w.w_rc ? l->w.w_rc : -EIO;
		if (!rc) {
			walk_on(wk, &fr);
			n++;
		}
	}
	mp_pdev_repaired(pool, md->md_dev[m], n);
	if (rc)
		return mp_err_as(MP_MD_WRITE, rc, "%s: repair of the log copy: error %d",
				 dst->d_path, rc);
	return 0;
}

static int load_apply(struct mp_pool *pool, struct load *l)
{
	struct mp_mdlog *md = &pool->p_md;
	struct walk done, *best = &l->wk[l->best_m][l->best_r];
	struct mp_node *last;
	int rc;

	os_assert(!pool->p_nobjs && best->wk_is_complete);
	l->w.w_pd = md->md_dev[l->best_m];
	l->w.w_base = mp_md_region(md, best->wk_epoch);
	rc = walk(&l->w, best->wk_end, &done);
	if (rc)
		return rc;
	md->md_epoch = best->wk_epoch;
	md->md_seq = best->wk_seq;
	md->md_prev = best->wk_csum;
	md->md_tail = best->wk_end;
	md->md_id_hwm = best->wk_id_hwm;
	pool->p_next_id = max_t(u64, best->wk_id_hwm, 1);
	if (!CHECK(pool->p_next_id <= MP_ID_LAST))
		return mp_err(MP_MD_RECORD, "object id mark %llu", pool->p_next_id);
	/* the next object would get the id of one that there is: INV-10 */
	last = mp_tree_floor(&pool->p_objs, ~0ull);
	if (last && !CHECK(last->n_key < pool->p_next_id))
		return mp_err(MP_MD_RECORD, "object %llu, and the id mark is %llu", last->n_key,
			      pool->p_next_id);
	pool->p_gen = best->wk_gen;
	return 0;
}

/* epochs that the regions begin with; unread regions of older epochs stay unread */
static void load_peek(struct mp_mdlog *md, struct load *l)
{
	struct mp_frame fr;
	u32 m, r;

	for (m = 0; m < md->md_ndevs; m++) {
		for (r = 0; r < 2; r++) {
			struct walk *wk = &l->wk[m][r];

			l->w.w_pd = md->md_dev[m];
			l->w.w_base = md->md_off + r * md->md_bytes;
			l->w.w_len = 0;
			l->w.w_rc = 0;
			wk->wk_has_first = next_sure(&l->w, wk, &fr);
			wk->wk_epoch = wk->wk_has_first ? fr.mf_epoch : 0;
			wk->wk_rc = l->w.w_rc;
			l->io[m] = l->io[m] ? l->io[m] : wk->wk_rc;
		}
	}
}

static int load_walk(struct mp_mdlog *md, struct load *l, u32 r)
{
	u32 m;
	int rc = 0;

	for (m = 0; m < md->md_ndevs && !rc; m++) {
		if (!l->wk[m][r].wk_has_first)
			continue;
		l->w.w_pd = md->md_dev[m];
		l->w.w_base = md->md_off + r * md->md_bytes;
		rc = walk(&l->w, 0, &l->wk[m][r]);
		l->io[m] = l->io[m] ? l->io[m] : l->wk[m][r].wk_rc;
	}
	return rc;
}

/*
 * A chain that stops at a read error does not end there. What was acknowledged
 * is on every mirror, so one that was read without error tells the whole truth.
 */
static int load_unread(struct mp_mdlog *md, const struct load *l)
{
	u32 m;

	for (m = 0; m < md->md_ndevs; m++)
		if (CHECK(!l->io[m]))
			return 0;
	return mp_err_as(MP_MD_READ, l->io[0], "%s: no copy can be read whole: error %d",
			 md->md_dev[0]->pd_dev->d_path, l->io[0]);
}

/* do all mirrors have the checkpoint of the best chain? Then none went on without it */
static bool is_everywhere(const struct mp_mdlog *md, const struct load *l)
{
	u64 epoch = l->wk[l->best_m][l->best_r].wk_epoch;
	u32 m;

	for (m = 0; m < md->md_ndevs; m++)
		if (!l->wk[m][l->best_r].wk_is_complete || l->wk[m][l->best_r].wk_epoch != epoch)
			return false;
	return true;
}

static int load_all(struct mp_pool *pool, struct load *l, mp_finding_fn *fn, void *arg)
{
	struct mp_mdlog *md = &pool->p_md;
	u64 epoch[2] = { 0, 0 };
	u32 m, r, newer, bad;
	int rc;

	load_peek(md, l);
	for (m = 0; m < md->md_ndevs; m++)
		for (r = 0; r < 2; r++)
			epoch[r] = max_t(u64, epoch[r], l->wk[m][r].wk_epoch);
	newer = epoch[1] > epoch[0];
	rc = load_walk(md, l, newer);
	if (rc)
		return rc;
	load_pick(md, l);
	/*
	 * A torn start of a new checkpoint may look like the old epoch that it
	 * overwrites, whole on that mirror: the other region holds a newer one then.
	 */
	if (!l->has_best || l->wk[l->best_m][l->best_r].wk_epoch < epoch[!newer] ||
	    !is_everywhere(md, l)) {
		rc = load_walk(md, l, !newer);
		if (rc)
			return rc;
		load_pick(md, l);
	}
	bad = l->io[0] ? 0 : 1;
	if (!l->has_best && l->io[bad])
		return mp_err_as(MP_MD_READ, l->io[bad], "%s: no copy can be read: error %d",
				 md->md_dev[bad]->pd_dev->d_path, l->io[bad]);
	if (!l->has_best)
		return mp_err(MP_MD_NONE, "%s: none of %u copies has a checkpoint",
			      md->md_dev[0]->pd_dev->d_path, md->md_ndevs);
	/* what follows a read error proves no damage */
	rc = load_unread(md, l);
	if (!rc)
		rc = load_doubt(pool, l);
	if (!rc)
		rc = load_unread(md, l);
	if (rc)
		return rc;
	load_report(pool, l, fn, arg);
	return load_apply(pool, l);
}

int mp_md_load(struct mp_pool *pool, mp_finding_fn *fn, void *arg)
{
	struct load *l = os_zalloc(sizeof(*l));
	int rc = -ENOMEM;

	os_assert(!pool->p_is_open);
	if (l)
		l->w.w_buf = os_alloc_io(WINDOW);
	if (l && l->w.w_buf) {
		l->w.w_pool = pool;
		rc = load_all(pool, l, fn, arg);
		os_free(pool->p_md.md_load);
		pool->p_md.md_load = NULL;
		if (!rc) {
			os_free_io(l->w.w_buf);
			l->w.w_buf = NULL;
			pool->p_md.md_load = l;
			return 0;
		}
	} else {
		mp_err(MP_NOMEM, "metadata log");
	}
	if (l)
		os_free_io(l->w.w_buf);
	os_free(l);
	return rc;
}

int mp_md_repair(struct mp_pool *pool)
{
	struct mp_mdlog *md = &pool->p_md;
	struct load *l = md->md_load;
	int rc = 0;
	u32 m;

	l->w.w_buf = os_alloc_io(WINDOW);
	if (!l->w.w_buf)
		return mp_err(MP_NOMEM, "metadata log");
	for (m = 0; m < md->md_ndevs && !rc; m++) {
		if (m != l->best_m)
			rc = mirror_copy(l, pool, m);
		/* what replay accepted may be in a volatile cache: INV-7 */
		if (!rc)
			rc = BARRIER(mp_dev_flush(pool, md->md_dev[m]));
	}
	os_free_io(l->w.w_buf);
	os_free(l);
	md->md_load = NULL;
	return rc;
}
