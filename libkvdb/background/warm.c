/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Warming: segments are read back into the window.
 *
 * What this process wrote it reads from the images of its segments. What an
 * earlier one wrote comes through the page pool, at the cost of two lookups, a
 * CRC and a copy for every get. So while values are read through the pool, and
 * the database about fits into memory, the grower reads their segments whole,
 * checks each frame once, and publishes the bytes as an image like any other.
 *
 * It reads a page for every value that was read, but no more than sixteen for
 * each that came through the pool: no more than readers would, and nothing for a process
 * that looks up a few keys. A page for each of the latter would be the pace of readers that
 * follow it through the segments, for what is warm already asks for nothing.
 *
 * Invariants WM1, WM2, WM3: README.md.
 *
 * No locks: the grower's alone.
 */
#include "background/warm.h"
#include "base/assert.h"
#include "base/guard.h"
#include "db/db.h"
#include "db/thread.h"
#include "cache/pages.h"
#include "cache/slab.h"
#include "seg/kv_omf.h"
#include "seg/seg.h"

#define PIECE	(256u << 10)	/* bytes between two looks at what writers wait for */
#define LEFT		16u	/* part of all slabs that warming leaves unused */
/* when it uses them for small segments: without images a ninth of the values read through the
 * pool costs a tenth of a scan */
#define LEFT_OF_PLENTY	8u
#define PAGES_A_MISS	16u	/* for each value that came through the pool */
#define PAUSE_NS	1000000000ull	/* after a segment gave no image: WM3 */
#define PAUSE_MOST_NS	3600000000000ull

static void add_reads(struct kv_tctx *tc, void *arg)
{
	struct kv_warm_reads *wr = arg;

	wr->wr_pool += kv_counted(&tc->tc_value_dev);
	wr->wr_mem += kv_counted(&tc->tc_value_mem);
}

static bool may_read(struct kvdb *db, struct kv_warm *wm)
{
	struct kv_warm_reads now = { 0 };
	uint64_t pool, all;

	if (wm->wm_bytes >= PIECE)
		return true;
	kv_tctx_each(db, add_reads, &now);
	pool = now.wr_pool - wm->wm_seen.wr_pool;
	all = pool + now.wr_mem - wm->wm_seen.wr_mem;
	wm->wm_bytes += (all < PAGES_A_MISS * pool ? all : PAGES_A_MISS * pool) * KV_BLOCK;
	wm->wm_seen = now;
	return wm->wm_bytes >= PIECE;
}

static bool begin(struct kvdb *db, struct kv_warm *wm)
{
	uint32_t half = db->d_budget.b_seg_bytes / 2;
	struct kv_seg *s = kv_seg_next_cold(db, wm->wm_after, half);
	uint32_t part = LEFT;

	KV_ASSERT(!wm->wm_seg);
	/* what is small wastes most of a slab: last, and only of plenty */
	if (!s) {
		s = kv_seg_next_cold(db, wm->wm_after, 1);
		part = LEFT_OF_PLENTY;
	}
	wm->wm_mem = s ? kv_slab_take_spare(db, part) : NULL;
	if (!wm->wm_mem) {
		/* readers must ask anew */
		wm->wm_bytes = 0;
		kv_seg_put(db, s);
		return false;
	}
	wm->wm_after = s->sg_id;
	wm->wm_seg = s;
	wm->wm_read = wm->wm_good = 0;
	return true;
}

void kv_warm_end(struct kvdb *db)
{
	struct kv_warm *wm = &db->d_bg.bd_warm;

	if (!wm->wm_seg)
		return;
	kv_slab_give_spare(db, wm->wm_mem);
	kv_seg_put(db, wm->wm_seg);
	wm->wm_seg = NULL;
}

/* Checks the frames read so far; false: one is bad. */
static bool frames_are_good(struct kvdb *db, struct kv_warm *wm, uint32_t end)
{
	struct kv_frame_hdr h;

	KV_ASSERT(wm->wm_good % KV_BLOCK == 0 && wm->wm_good <= wm->wm_read && wm->wm_read <= end);
	while (wm->wm_good < wm->wm_read) {
		const uint8_t *p = wm->wm_mem + wm->wm_good;
		uint32_t len;

		if (kv_frame_decode(p, (uint32_t)db->d_ident.id_tag, wm->wm_seg->sg_id, wm->wm_good,
				    end - wm->wm_good, &h))
			return false;
		len = (h.fh_len + KV_BLOCK - 1) & ~(KV_BLOCK - 1);
		if (len > wm->wm_read - wm->wm_good)
			break;
		if (!CHECK(kv_frame_check_payload(p, &h)))
			return false;
		wm->wm_good += len;
	}
	return true;
}

static void give_up(struct kvdb *db, struct kv_warm *wm)
{
	struct kv_seg *s = wm->wm_seg;
	uint64_t pause = s->sg_cold_pause_ns;

	pause = !pause ? PAUSE_NS : pause < PAUSE_MOST_NS / 2 ? 2 * pause : PAUSE_MOST_NS;
	s->sg_cold_pause_ns = pause;
	s->sg_cold_until_ns = kv_now(db) + pause;
	kv_warm_end(db);
}

static void publish(struct kvdb *db, struct kv_warm *wm)
{
	struct kv_seg *s = wm->wm_seg;

	KV_ASSERT(wm->wm_good == wm->wm_read && !atomic_load(&s->sg_image));
	kv_slab_publish(db, wm->wm_mem, &s->sg_image);
	kv_page_purge(db, s->sg_id, s->sg_bytes / KV_BLOCK);
	kv_seg_put(db, s);
	wm->wm_seg = NULL;
}

int kv_warm_step(struct kvdb *db)
{
	struct kv_warm *wm = &db->d_bg.bd_warm;
	uint32_t end, len;

	KV_ASSERT_OUTSIDE();
	if (!may_read(db, wm) || (!wm->wm_seg && !begin(db, wm)))
		return 0;
	end = (atomic_load(&wm->wm_seg->sg_end) + KV_BLOCK - 1) & ~(KV_BLOCK - 1);
	len = end - wm->wm_read < PIECE ? end - wm->wm_read : PIECE;
	KV_ASSERT(wm->wm_bytes >= len && wm->wm_read <= end && end <= wm->wm_seg->sg_bytes);
	wm->wm_bytes -= len;
	if (kv_dev_read(db, wm->wm_seg->sg_obj, KV_READ_VALUE, wm->wm_read,
			wm->wm_mem + wm->wm_read, len)) {
		give_up(db, wm);
		return 1;
	}
	wm->wm_read += len;
	if (!frames_are_good(db, wm, end)) {
		/* a reader of a value in it gets the error */
		give_up(db, wm);
	} else if (wm->wm_good == end) {
		publish(db, wm);
	}
	return 1;
}
