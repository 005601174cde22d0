/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Moving values. A merge hands its entries over in key order; those that refer
 * to a victim get a place in the image of a new segment. When the image is
 * full the values are gathered, ordered by where they lie now, so that victims
 * are read in large pieces; each is compared with the CRC in its reference, and
 * packed if its store says so. What was gathered closes up, and if that made
 * room the image takes more. Then the segment is allocated, its records are
 * stamped with its id, and the entries go on to the run. While the image is
 * written the next one is filled: two of them take turns.
 *
 * The new segment has the log's frames and records, so recovery, verify and
 * repair know it: log number KV_MOVED_LOG, an epoch at or below every durable
 * horizon (nothing in it is ever replayed), revision KV_MOVED_REV, which is
 * above that of every record of the same key and sequence number.
 *
 * A value that does not match its CRC stays where it is: its entry keeps the
 * old reference, the victim stays (G5).
 *
 * Where no scan has paid and much must be read, values move ahead of the merge in the
 * order in which they lie (sweep.c): as many as notes have room for, each with its
 * whole record. What cannot be copied so moves, or stays, as if there were no sweep.
 *
 * A mover belongs to one thread; no locks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/pack.h"
#include "base/vec.h"
#include "db/bell.h"
#include "db/db.h"
#include "seg/kv_omf.h"
#include "seg/value.h"
#include "run/run.h"
#include "meta/upkeep.h"
#include "compact/keep.h"
#include "compact/reloc.h"
#include "compact/sweep.h"

#define GAP		(32u << 10)	/* bytes of no use that are read to save a request */
#define PIECE		(128u << 10)	/* of one request; larger values are read alone */
#define DEPTH		16u
#define DEPTH_ORDER	128u		/* for scans: values of a job for them lie anywhere */
#define READ_BYTES	(DEPTH * PIECE)
#define READ_AHEAD	(256u << 10)	/* on the device at once, for other readers wait for it */
#define WRITE_PIECE	(32u << 10)
#define WRITE_DEPTH	2u		/* readers of the device wait for no more pieces */
#define HELD_MAX	32768u		/* entries held back at once */
#define SEAL_BATCH	64u
#define READY_MAX	8u		/* segments that are allocated at once */
#define SEND_EVERY	32u	/* entries between looks at what is being written */
#define SWEEP_PART	32u	/* of the cache, for the notes of a sweep */
#define COLD_PART	4u	/* of the victims must be read from media for a sweep */

struct item {
	struct kv_ent im_e;
	uint32_t im_key;	/* offset of the key in mv_bytes, an inline value after it */
	uint32_t im_rec;	/* offset of the new record in the image; 0 = stays */
	bool im_is_recoded;	/* packed otherwise than its store says now: gathered unpacked */
	bool im_is_set;		/* gathered, in its final form and place */
};

struct place {			/* of an item to be gathered: they are read in this order */
	uint64_t pl_seg;
	uint32_t pl_off8;
	uint32_t pl_item;
};

struct span {			/* bytes that are wanted of a segment */
	struct kv_seg *sp_seg;
	uint32_t sp_off, sp_len;
};

struct want {			/* one device read, for places that are neighbours */
	struct kv_seg *wn_seg;
	uint32_t wn_from, wn_to;	/* bytes in the segment, multiples of KV_BLOCK */
	uint32_t wn_first, wn_n;	/* of the places */
	struct iovec wn_iov;
	int64_t wn_res;
};

struct frame {
	uint32_t mf_off, mf_end;	/* in the image, without padding */
	uint32_t mf_item;		/* the first that got a place in it */
	uint32_t mf_nrec;
};

struct image {
	uint8_t *ig_mem;
	uint32_t ig_bytes;
};

struct flight {			/* an image on its way to its segment */
	struct kv_seg *fl_seg;	/* NULL: none */
	uint32_t fl_len, fl_off;	/* bytes, and those that are sent */
	unsigned fl_n;		/* pieces that are not done */
	int fl_err;
	bool fl_is_near;	/* most of it came from memory */
	struct iovec fl_iov[WRITE_DEPTH];
};

struct kv_move {
	struct kvdb *mv_db;
	uint32_t mv_kvs;
	uint8_t mv_mclass;
	bool mv_only;		/* in no other class */
	bool mv_whole;		/* all that is in the other class moves */
	bool mv_frees;		/* space: it may take what is kept for flushes */
	uint8_t mv_how;		/* enum kvdb_compress */
	struct kv_packer *mv_packer;
	uint64_t mv_epoch;
	struct mpool_ioq *mv_q;		/* reads, mv_depth at once */
	unsigned mv_depth;
	struct mpool_ioq *mv_writes;

	struct image mv_image;	/* of the segment that is being filled */
	struct image mv_sent;	/* of the segment that is being written */
	struct flight mv_flight;
	uint32_t mv_added;
	uint32_t mv_full;	/* where an image ends; one record alone may need more */
	struct frame *mv_frame;	/* the last one is open */
	uint32_t mv_nframe, mv_framecap;
	uint8_t *mv_read;	/* READ_BYTES */

	struct item *mv_item;
	uint32_t mv_n, mv_itemcap;
	struct place *mv_place;	/* of those to be gathered */
	uint32_t mv_nmove, mv_placecap;
	uint8_t *mv_bytes;
	uint32_t mv_used, mv_bytescap;

	struct kv_sweep *mv_sweep;	/* NULL: all in key order */
	uint32_t mv_swept;	/* last note whose record is in the image, plus 1; 0: none */

	/* with references; mv_nseg are written, mv_nready after them wait for an image */
	struct kv_seg **mv_seg;
	uint32_t mv_nseg, mv_nready, mv_segcap;
	bool mv_sealed;
	uint64_t mv_near, mv_far;	/* bytes for the image, from memory and from media */
	uint64_t mv_taken;	/* bytes of its segments, whole */
	uint64_t mv_mem;	/* counted as memory of jobs */
};

static uint8_t *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int image_map(struct image *ig, uint32_t bytes)
{
	ig->ig_mem = map(bytes);
	ig->ig_bytes = ig->ig_mem ? bytes : 0;
	return ig->ig_mem ? 0 : -ENOMEM;
}

static void image_unmap(struct image *ig)
{
	if (ig->ig_mem)
		munmap(ig->ig_mem, ig->ig_bytes);
}

/* MEM1: the large pieces; images may grow. */
static void count_mem(struct kv_move *mv)
{
	uint64_t now = READ_BYTES + mv->mv_image.ig_bytes + mv->mv_sent.ig_bytes +
		       (mv->mv_sweep ? kv_sweep_bytes(mv->mv_sweep) : 0);

	KV_ASSERT(atomic_load(&mv->mv_db->d_count.move_mem) >= mv->mv_mem);
	atomic_fetch_add(&mv->mv_db->d_count.move_mem, now - mv->mv_mem);
	mv->mv_mem = now;
}

struct look {			/* at the victims */
	uint64_t lk_all, lk_cold;	/* bytes; of them not in memory */
	bool lk_is_hot;		/* scans have paid for their order */
};

static void look_at(void *arg, struct kv_seg *s)
{
	struct look *lk = arg;

	if (!kv_is_victim(s, false))
		return;
	lk->lk_all += s->sg_bytes;
	if (!atomic_load(&s->sg_image))
		lk->lk_cold += s->sg_bytes;
	lk->lk_is_hot |= atomic_load_explicit(&s->sg_heat, memory_order_relaxed) > 0;
}

/*
 * What is in memory costs nothing to read, and is left in order for scans that may come. Nor do
 * jobs for staging or scans sweep, nor a store that packs: a sweep copies records as they are.
 */
static void sweep_open(struct kv_move *mv)
{
	struct look lk = { 0 };

	if (mv->mv_whole || mv->mv_depth == DEPTH_ORDER || mv->mv_how)
		return;
	kv_segs_each(mv->mv_db, look_at, &lk);
	if (!lk.lk_is_hot && lk.lk_cold && lk.lk_cold >= lk.lk_all / COLD_PART)
		mv->mv_sweep = kv_sweep_new(mv->mv_db->d_budget.b_cache_bytes / SWEEP_PART);
}

int kv_move_open(struct kvdb *db, const struct kvdb_kvs *kvs, uint64_t epoch, uint8_t mclass,
		 bool only, bool whole, struct kv_move **out)
{
	struct kv_move *mv = calloc(1, sizeof(*mv));
	int err;

	KV_ASSERT_OUTSIDE();
	if (!mv)
		return -ENOMEM;
	mv->mv_db = db;
	mv->mv_kvs = kvs->k_id;
	mv->mv_how = (uint8_t)atomic_load(&kvs->k_prop[KV_PROP_COMPRESS]);
	mv->mv_mclass = mclass;
	mv->mv_only = only;
	mv->mv_whole = whole;
	mv->mv_epoch = epoch;
	mv->mv_frees = kv_reloc_frees(db, whole);
	mv->mv_depth = kv_reloc_is_ordering(db) ? DEPTH_ORDER : DEPTH;
	mv->mv_full = mclass == MPOOL_CAPACITY ? db->d_budget.b_move_bytes :
						 db->d_budget.b_seg_bytes;
	mv->mv_read = map(READ_BYTES);
	err = mv->mv_read && !image_map(&mv->mv_image, mv->mv_full) &&
	      !image_map(&mv->mv_sent, mv->mv_full) ? 0 : -ENOMEM;
	if (!err && mv->mv_how)
		err = kv_packer_open(mv->mv_how, &mv->mv_packer);
	if (!err) {
		err = mpool_ioq_open(db->d_mp, mv->mv_depth, &mv->mv_q);
		if (!err)
			err = mpool_ioq_open(db->d_mp, WRITE_DEPTH, &mv->mv_writes);
		if (err)
			kv_error_mpool(err);
	}
	if (err) {
		kv_move_close(mv);
		return err;
	}
	sweep_open(mv);
	count_mem(mv);
	*out = mv;
	return 0;
}

void kv_move_close(struct kv_move *mv)
{
	if (!mv)
		return;
	/* upkeep, which deletes segments, must not find it being written */
	if (mv->mv_writes)
		mpool_ioq_close(mv->mv_writes);
	for (uint32_t i = 0; i < mv->mv_nseg + mv->mv_nready; i++) {
		if (!mv->mv_sealed || i >= mv->mv_nseg)
			kv_seg_abandon(mv->mv_db, mv->mv_seg[i], 0);
		kv_seg_put(mv->mv_db, mv->mv_seg[i]);
	}
	if (mv->mv_q)
		mpool_ioq_close(mv->mv_q);
	kv_packer_close(mv->mv_packer);
	kv_sweep_free(mv->mv_sweep);
	image_unmap(&mv->mv_image);
	image_unmap(&mv->mv_sent);
	if (mv->mv_read)
		munmap(mv->mv_read, READ_BYTES);
	atomic_fetch_sub(&mv->mv_db->d_count.move_mem, mv->mv_mem);
	free(mv->mv_item);
	free(mv->mv_place);
	free(mv->mv_frame);
	free(mv->mv_bytes);
	free(mv->mv_seg);
	free(mv);
}

uint64_t kv_move_bytes(const struct kv_move *mv)
{
	return mv->mv_taken;
}

/* ---- writing ---------------------------------------------------------------------------- */

/* Sends the next piece of the image in flight; @slot: of those that are not done. */
static int send_piece(struct kv_move *mv, unsigned slot)
{
	struct flight *fl = &mv->mv_flight;
	uint32_t left = fl->fl_len - fl->fl_off, n = left < WRITE_PIECE ? left : WRITE_PIECE;
	struct mpool_io io = { .obj = fl->fl_seg->sg_obj, .type = MPOOL_WRITE, .iovcnt = 1,
			       .off = fl->fl_off, .iov = &fl->fl_iov[slot], .cookie = slot };
	int rc;

	KV_ASSERT(left && fl->fl_n < WRITE_DEPTH);
	fl->fl_iov[slot] = (struct iovec){ mv->mv_sent.ig_mem + fl->fl_off, n };
	rc = mpool_ioq_submit(mv->mv_writes, &io, 1);
	if (rc <= 0)
		return rc ? rc : -EIO;
	fl->fl_off += n;
	fl->fl_n++;
	return 0;
}

/* Takes what is done of the image in flight and sends what follows; @wait: all of it. */
static void send_on(struct kv_move *mv, bool wait)
{
	struct flight *fl = &mv->mv_flight;
	struct mpool_cqe cq[WRITE_DEPTH];
	int n;

	while (fl->fl_n) {
		n = mpool_ioq_reap(mv->mv_writes, cq, WRITE_DEPTH, wait, wait ? -1 : 0);
		for (int i = 0; i < n; i++) {
			KV_ASSERT(fl->fl_n && cq[i].cookie < WRITE_DEPTH);
			fl->fl_n--;
			if (cq[i].res < 0)
				fl->fl_err = (int)cq[i].res;
			if (!fl->fl_err && fl->fl_off < fl->fl_len)
				fl->fl_err = send_piece(mv, (unsigned)cq[i].cookie);
		}
		if (!wait)
			return;
	}
}

/* Until nothing is in flight. */
static int flight_end(struct kv_move *mv)
{
	struct flight *fl = &mv->mv_flight;
	struct kv_seg *s = fl->fl_seg;

	KV_ASSERT_OUTSIDE();
	if (!s)
		return 0;
	send_on(mv, true);
	fl->fl_seg = NULL;
	if (fl->fl_err)
		return kv_error_mpool(fl->fl_err);
	KV_ASSERT(fl->fl_off == fl->fl_len && !fl->fl_n);
	atomic_fetch_add(&mv->mv_db->d_count.move_bytes[s->sg_mclass], fl->fl_len);
	mv->mv_taken += fl->fl_len;
	/* G13 */
	(void)BARRIER((mv->mv_taken += s->sg_bytes - fl->fl_len, 0));
	kv_reloc_wrote(mv->mv_db, mv->mv_whole, fl->fl_len);
	s->sg_is_ordered = mv->mv_depth == DEPTH_ORDER;
	atomic_store(&s->sg_first_epoch, mv->mv_epoch);
	atomic_store(&s->sg_last_epoch, mv->mv_epoch);
	atomic_store(&s->sg_end, fl->fl_len);
	if (CHECK(fl->fl_is_near))	/* G17 */
		kv_keep_written(mv->mv_db, s, mv->mv_sent.ig_mem, fl->fl_len);
	return 0;
}

/* The image goes to @s as fast as it can while the other one is filled. */
static void flight_begin(struct kv_move *mv, struct kv_seg *s, uint32_t len)
{
	struct flight *fl = &mv->mv_flight;
	struct image ig = mv->mv_sent;

	KV_ASSERT(!fl->fl_seg && !fl->fl_n);
	KV_ASSERT(len % KV_BLOCK == 0 && len <= mv->mv_image.ig_bytes && len <= s->sg_bytes);
	mv->mv_sent = mv->mv_image;
	mv->mv_image = ig;
	*fl = (struct flight){ .fl_seg = s, .fl_len = len,
			       .fl_is_near = mv->mv_near > mv->mv_far };
	mv->mv_near = mv->mv_far = 0;
	for (unsigned i = 0; i < WRITE_DEPTH && fl->fl_off < len && !fl->fl_err; i++)
		fl->fl_err = send_piece(mv, i);
}

/* ---- gathering ------------------------------------------------------------------------ */

static uint8_t *value_at(const struct kv_move *mv, const struct item *im)
{
	return mv->mv_image.ig_mem + im->im_rec + kv_rec_val_off(im->im_e.e_klen);
}

/* Bytes that are gathered of an item. */
static uint32_t gathered_len(const struct item *im)
{
	return im->im_is_recoded ? im->im_e.e_vlen : kv_ent_stored(&im->im_e);
}

/* G5: what does not match the CRC in the reference is never written under a new one. */
static bool value_is_good(const struct kv_move *mv, const struct item *im)
{
	const struct kv_ent *e = &im->im_e;
	uint32_t crc = e->e_pack && !im->im_is_recoded ? e->e_pcrc : e->e_vcrc;

	return CHECK_CRC(mpool_crc32c(0, value_at(mv, im), gathered_len(im)) == crc);
}

static int by_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->pl_seg != y->pl_seg)
		return x->pl_seg < y->pl_seg ? -1 : 1;
	return x->pl_off8 < y->pl_off8 ? -1 : x->pl_off8 > y->pl_off8;
}

/*
 * FS2: the value is not what it was where it lies. Its entry stays as it is, its segment is left
 * alone for a while: once for all that a job finds there, which is counted the first time.
 */
static void leave_damaged(struct kv_move *mv, struct item *im)
{
	struct kv_trouble *tb = &im->im_e.e_seg->sg_trouble;

	if (atomic_load(&tb->tb_err) != -EUCLEAN)
		kv_trouble_end(mv->mv_db, tb);
	if (!kv_trouble_holds(mv->mv_db, tb))
		kv_trouble_set(mv->mv_db, tb, -EUCLEAN, "values in segment %llu",
			       (unsigned long long)im->im_e.e_seg->sg_id);
	if (tb->tb_n == 1)
		atomic_fetch_add(&mv->mv_db->d_count.damaged, 1);
	im->im_rec = 0;
}

/* FS1: a device failed to read it: its segment is left alone for a while, and not for good. */
static void leave_for_now(struct kv_move *mv, struct item *im)
{
	kv_trouble_set(mv->mv_db, &im->im_e.e_seg->sg_trouble, -EIO, "values in segment %llu",
		       (unsigned long long)im->im_e.e_seg->sg_id);
	im->im_rec = 0;
}

/* One value by itself: the reader tries again and says what is wrong. */
static void take_alone(struct kv_move *mv, struct item *im)
{
	struct kv_thread *t = kv_enter();
	int rc = im->im_is_recoded ?
		kv_value_read(mv->mv_db, &im->im_e, value_at(mv, im), im->im_e.e_vlen) :
		kv_value_read_stored(mv->mv_db, &im->im_e, value_at(mv, im));

	kv_exit(t);
	if (rc == -ENOMEM)
		im->im_rec = 0;	/* no damage: it stays for another job */
	else if (rc == -EIO)
		leave_for_now(mv, im);
	/* it may have come from the window, where it was not checked */
	else if (rc || !value_is_good(mv, im))
		leave_damaged(mv, im);
}

/* How many of the next @n reads go to the device, where @flying bytes are being read. */
static unsigned may_go(const struct want *w, unsigned n, size_t flying)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		if (flying && flying + w[i].wn_iov.iov_len > READ_AHEAD)
			break;
		flying += w[i].wn_iov.iov_len;
	}
	return i;
}

static void wants_read(struct kv_move *mv, struct want *w, unsigned n)
{
	struct mpool_io io[DEPTH_ORDER];
	struct mpool_cqe cq[DEPTH_ORDER];
	unsigned sent = 0, done = 0;
	uint8_t *p = mv->mv_read;
	size_t flying = 0;

	KV_ASSERT(n <= mv->mv_depth);
	memset(io, 0, sizeof(io));
	for (unsigned i = 0; i < n; i++) {
		w[i].wn_iov = (struct iovec){ p, w[i].wn_to - w[i].wn_from };
		w[i].wn_res = -EIO;
		p += w[i].wn_iov.iov_len;
		io[i] = (struct mpool_io){ .obj = w[i].wn_seg->sg_obj, .type = MPOOL_READ,
					   .iovcnt = 1, .off = w[i].wn_from,
					   .iov = &w[i].wn_iov, .cookie = i };
		atomic_fetch_add(&mv->mv_db->d_count.read_bytes[KV_READ_MOVE]
					[w[i].wn_seg->sg_mclass], w[i].wn_iov.iov_len);
	}
	KV_ASSERT(p <= mv->mv_read + READ_BYTES);
	while (done < sent || sent < n) {
		unsigned m = may_go(w + sent, n - sent, flying);
		int k = m ? mpool_ioq_submit(mv->mv_q, io + sent, m) : 0;

		if (k < 0)	/* this one is taken alone, which says why */
			n = sent;
		for (int i = 0; i < k; i++)
			flying += w[sent++].wn_iov.iov_len;
		k = done < sent ? mpool_ioq_reap(mv->mv_q, cq, DEPTH_ORDER, 1, -1) : 0;
		for (int i = 0; i < k; i++) {
			w[cq[i].cookie].wn_res = cq[i].res;
			flying -= w[cq[i].cookie].wn_iov.iov_len;
		}
		done += k > 0 ? (unsigned)k : 0;
	}
}

/* Adds the place @at to the last read; false when it needs another. */
static bool want_join(struct want *w, const struct span *sp, uint32_t at)
{
	uint32_t from = sp->sp_off & ~(KV_BLOCK - 1);
	uint32_t to = (sp->sp_off + sp->sp_len + KV_BLOCK - 1) & ~(KV_BLOCK - 1);

	if (!w->wn_n)
		*w = (struct want){ .wn_seg = sp->sp_seg, .wn_from = from, .wn_to = to,
				    .wn_first = at };
	else if (w->wn_seg != sp->sp_seg || from < w->wn_from || from > w->wn_to + GAP ||
		 at != w->wn_first + w->wn_n || to - w->wn_from > PIECE)
		return false;
	if (to > w->wn_to)
		w->wn_to = to;
	w->wn_n++;
	return true;
}

/* One read may have them: larger ones are read alone. */
static bool span_joins(const struct span *sp)
{
	return sp->sp_len <= PIECE - 2 * KV_BLOCK;
}

/* A caller that wants places read. */
struct reader {
	/* What is wanted of place @at; false: nothing, or it was had in another way. */
	bool (*rd_span)(struct kv_move *mv, uint32_t at, struct span *sp);
	/* Here it is; NULL: it could not be read. */
	int (*rd_take)(struct kv_move *mv, uint32_t at, const struct span *sp,
		       const uint8_t *bytes);
};

static int wants_take(struct kv_move *mv, const struct reader *rd, struct want *w, unsigned n)
{
	struct span sp;
	int rc = 0;

	wants_read(mv, w, n);
	for (; n-- && !rc; w++)
		for (uint32_t i = w->wn_first; i < w->wn_first + w->wn_n && !rc; i++) {
			if (!rd->rd_span(mv, i, &sp))
				continue;
			KV_ASSERT(sp.sp_off >= w->wn_from && sp.sp_off + sp.sp_len <= w->wn_to);
			rc = rd->rd_take(mv, i, &sp, w->wn_res != w->wn_to - w->wn_from ? NULL :
					 (uint8_t *)w->wn_iov.iov_base + (sp.sp_off - w->wn_from));
		}
	return rc;
}

/*
 * Reads @n places, which are sorted.
 * -ECANCELED: a put that has no room waits no longer than for some of them.
 */
static int read_places(struct kv_move *mv, const struct reader *rd, uint32_t n)
{
	struct want w[DEPTH_ORDER];
	struct span sp;
	uint32_t bytes = 0;
	unsigned k = 0;
	int rc = 0;

	memset(w, 0, sizeof(w));
	for (uint32_t i = 0; i < n; i++) {
		if (i % SEND_EVERY == 0) {
			send_on(mv, false);
			if (kv_work_stopping(mv->mv_db) || kv_reloc_is_cancelled(mv->mv_db))
				return -ECANCELED;
		}
		if (!rd->rd_span(mv, i, &sp))
			continue;
		/* nothing is read before wants_take(): the buffer is free */
		if (kv_keep_copy(mv->mv_db, sp.sp_seg, sp.sp_off, sp.sp_len, mv->mv_read)) {
			mv->mv_near += sp.sp_len;
			rc = rd->rd_take(mv, i, &sp, mv->mv_read);
			if (rc)
				return rc;
			continue;
		}
		mv->mv_far += sp.sp_len;
		if (want_join(&w[k], &sp, i))
			continue;
		bytes += w[k].wn_to - w[k].wn_from;
		if (++k == mv->mv_depth || bytes > READ_BYTES - PIECE) {
			rc = wants_take(mv, rd, w, k);
			if (rc)
				return rc;
			k = bytes = 0;
		}
		w[k].wn_n = 0;
		want_join(&w[k], &sp, i);
	}
	return wants_take(mv, rd, w, k + (w[k].wn_n != 0));
}

/* G6: the place is checked against the segment before a byte of it is read. */
static bool place_is_good(const struct kv_ent *e)
{
	return (uint64_t)e->e_off8 * 8 + kv_ent_stored(e) <= kv_seg_readable(e->e_seg);
}

static bool item_span(struct kv_move *mv, uint32_t at, struct span *sp)
{
	struct item *im = &mv->mv_item[mv->mv_place[at].pl_item];

	*sp = (struct span){ im->im_e.e_seg, im->im_e.e_off8 * 8, gathered_len(im) };
	if (!place_is_good(&im->im_e))
		leave_damaged(mv, im);
	else if (im->im_is_recoded || !span_joins(sp))
		take_alone(mv, im);
	else
		return true;
	return false;
}

static int item_take(struct kv_move *mv, uint32_t at, const struct span *sp, const uint8_t *bytes)
{
	struct item *im = &mv->mv_item[mv->mv_place[at].pl_item];

	if (bytes)
		memcpy(value_at(mv, im), bytes, sp->sp_len);
	if (!bytes || !value_is_good(mv, im))
		take_alone(mv, im);
	return 0;
}

/* Brings the values of all items that got a place since the last time into the image. */
static int gather(struct kv_move *mv)
{
	static const struct reader items = { item_span, item_take };
	int rc;

	if (mv->mv_nmove)
		qsort(mv->mv_place, mv->mv_nmove, sizeof(mv->mv_place[0]), by_place);
	rc = read_places(mv, &items, mv->mv_nmove);
	mv->mv_nmove = 0;
	return rc;
}

/* ---- packing ---------------------------------------------------------------------------- */

static uint32_t record_size(const struct kv_ent *e)
{
	return kv_rec_size(e->e_klen, kv_ent_stored(e)) + (e->e_expiry ? KV_REC_EXPIRY : 0) +
	       (e->e_pack ? KV_REC_PACKED : 0);
}

/* Its record at @rec, whole but for what the segment's id decides; @val NULL: still to come. */
static void encode(struct kv_move *mv, const struct kv_ent *e, uint32_t rec, const uint8_t *key,
		   const uint8_t *val)
{
	uint8_t *buf = mv->mv_image.ig_mem + rec;

	KV_ASSERT((uint64_t)rec + record_size(e) <= mv->mv_image.ig_bytes);
	kv_rec_encode(buf, KV_REC_PUT, (uint16_t)mv->mv_kvs, key, e->e_klen, val,
		      kv_ent_stored(e), e->e_pack ? e->e_pcrc : e->e_vcrc);
	kv_rec_set_rev(buf, KV_MOVED_REV);
	if (e->e_expiry)
		kv_rec_set_expiry(buf, e->e_expiry);
	if (e->e_pack)
		kv_rec_set_packed(buf, e->e_pack, e->e_vlen, e->e_vcrc);
}

/* The record goes to @to <= im_rec, packed if the store wants that and it is of use. */
static void set(struct kv_move *mv, struct item *im, uint32_t to)
{
	struct kv_ent *e = &im->im_e;
	const uint8_t *packed;
	uint32_t len = 0;

	KV_ASSERT(to <= im->im_rec && to % 8 == 0);
	if (im->im_is_recoded)
		e->e_pack = 0;
	if (mv->mv_how && !e->e_pack)
		len = kv_pack(mv->mv_packer, value_at(mv, im), e->e_vlen, &packed);
	if (len) {
		e->e_pack = mv->mv_how;
		e->e_plen = len;
		e->e_pcrc = mpool_crc32c(0, packed, len);
		encode(mv, e, to, mv->mv_bytes + im->im_key, packed);
	} else if (to != im->im_rec) {
		memmove(mv->mv_image.ig_mem + to, mv->mv_image.ig_mem + im->im_rec,
			record_size(e));
	}
	im->im_rec = to;
	im->im_is_set = true;
	if (mv->mv_how) {
		atomic_fetch_add(&mv->mv_db->d_count.pack_in, e->e_vlen);
		atomic_fetch_add(&mv->mv_db->d_count.pack_out, kv_ent_stored(e));
	}
}

/*
 * Closes the image up: every record goes to the end of the one before it in its
 * frame, every frame to the next block. Nothing grows, so nothing is overtaken.
 * Frames that hold nothing any more are gone.
 */
static void close_up(struct kv_move *mv)
{
	uint32_t n = mv->mv_nframe, end = 0;

	mv->mv_nframe = 0;
	for (uint32_t f = 0; f < n; f++) {
		uint32_t i = mv->mv_frame[f].mf_item;
		uint32_t to = f + 1 < n ? mv->mv_frame[f + 1].mf_item : mv->mv_n;
		struct frame fr = { .mf_off = end, .mf_end = end + KV_FRAME_HDR, .mf_item = i };

		for (; i < to; i++) {
			struct item *im = &mv->mv_item[i];

			if (!im->im_rec)
				continue;
			KV_ASSERT(!im->im_is_set || im->im_rec == fr.mf_end);
			if (!im->im_is_set)
				set(mv, im, fr.mf_end);
			fr.mf_end += record_size(&im->im_e);
			fr.mf_nrec++;
		}
		if (!fr.mf_nrec)
			continue;
		mv->mv_frame[mv->mv_nframe++] = fr;
		end = (fr.mf_end + KV_BLOCK - 1) & ~(KV_BLOCK - 1);
	}
}

/* ---- the image's end --------------------------------------------------------------------- */

static uint32_t image_end(const struct kv_move *mv)
{
	const struct frame *f = mv->mv_nframe ? &mv->mv_frame[mv->mv_nframe - 1] : NULL;

	return f ? (f->mf_end + KV_BLOCK - 1) & ~(KV_BLOCK - 1) : 0;
}

/* Every frame gets its header: its records are stamped. */
static void stamp_frames(struct kv_move *mv, struct kv_seg *s)
{
	struct kvdb *db = mv->mv_db;
	uint32_t chain = 0;

	for (uint32_t i = 0; i < mv->mv_nframe; i++) {
		struct frame *f = &mv->mv_frame[i];
		struct kv_frame_hdr h = {
			.fh_incarnation = db->d_ident.id_incarnation, .fh_log = KV_MOVED_LOG,
			.fh_stream = KV_VLOG, .fh_tag = (uint32_t)db->d_ident.id_tag,
			.fh_obj = s->sg_id,
			.fh_off = f->mf_off, .fh_len = f->mf_end - f->mf_off,
			.fh_epoch = mv->mv_epoch, .fh_chain = chain, .fh_nrec = f->mf_nrec,
		};
		uint8_t *p = mv->mv_image.ig_mem + f->mf_off;
		uint32_t end = (f->mf_end + KV_BLOCK - 1) & ~(KV_BLOCK - 1);

		KV_ASSERT(f->mf_off % KV_BLOCK == 0 && end <= mv->mv_image.ig_bytes && f->mf_nrec);
		memset(mv->mv_image.ig_mem + f->mf_end, 0, end - f->mf_end);
		h.fh_payload_crc = mpool_crc32c(0, p + KV_FRAME_HDR, h.fh_len - KV_FRAME_HDR);
		kv_frame_encode(&h, p, &chain);
	}
}

/*
 * The next segment, for @len bytes. An image that is nearly full takes an ordinary one,
 * which is allocated with others, at most as many as were used so far: each allocation
 * is a metadata commit, and the log's wait behind it.
 */
static int seg_next(struct kv_move *mv, uint32_t len, struct kv_seg **out)
{
	bool is_full = len <= mv->mv_full && len >= mv->mv_full - mv->mv_full / 16;
	unsigned n = !is_full ? 1 : mv->mv_nseg < READY_MAX ? mv->mv_nseg + 1 : READY_MAX;
	uint32_t end = mv->mv_nseg + mv->mv_nready;
	struct kv_seg *s;
	int rc = 0;

	if (!is_full || !mv->mv_nready) {
		rc = kv_vec_grow(&mv->mv_seg, &mv->mv_segcap, end + n, sizeof(mv->mv_seg[0]));
		if (!rc)
			rc = kv_segs_alloc_moved(mv->mv_db, mv->mv_mclass, mv->mv_only,
						 CHECK(mv->mv_frees),
						 is_full ? mv->mv_full : len, &n, mv->mv_seg + end);
		if (rc)
			return rc;
		mv->mv_nready += n;
		s = mv->mv_seg[end];
		mv->mv_seg[end] = mv->mv_seg[mv->mv_nseg];
		mv->mv_seg[mv->mv_nseg] = s;
	}
	KV_ASSERT(mv->mv_nready && mv->mv_seg[mv->mv_nseg]->sg_bytes >= len);
	*out = mv->mv_seg[mv->mv_nseg++];
	mv->mv_nready--;
	return 0;
}

/* The image, whose records are stamped, is on its way to @s; the other one is filled now. */
static int image_send(struct kv_move *mv, struct kv_seg *s, uint32_t len)
{
	int rc;

	KV_ASSERT_OUTSIDE();
	stamp_frames(mv, s);
	rc = flight_end(mv);
	if (!rc)
		flight_begin(mv, s, len);
	return rc;
}

/* The image becomes a segment; what moved now refers to it. */
static int image_write(struct kv_move *mv)
{
	struct kv_seg *s;
	uint32_t len;
	int rc = gather(mv);

	if (rc)
		return rc;
	close_up(mv);
	len = image_end(mv);
	if (!len)
		return 0;	/* all of it stays */
	rc = seg_next(mv, len, &s);
	for (uint32_t i = 0; i < mv->mv_n && !rc; i++) {
		struct item *im = &mv->mv_item[i];

		if (!im->im_rec)
			continue;
		kv_rec_stamp(mv->mv_image.ig_mem + im->im_rec, s->sg_id, im->im_rec,
			     im->im_e.e_seq);
		im->im_e.e_seg = s;
		im->im_e.e_off8 = (im->im_rec + kv_rec_val_off(im->im_e.e_klen)) / 8;
	}
	return rc ? rc : image_send(mv, s, len);
}

int kv_move_flush(struct kv_move *mv, struct kv_run_build *rb)
{
	int rc = mv->mv_nframe ? image_write(mv) : 0;

	for (uint32_t i = 0; i < mv->mv_n && !rc; i++) {
		struct kv_ent *e = &mv->mv_item[i].im_e;

		e->e_key = mv->mv_bytes + mv->mv_item[i].im_key;
		if (e->e_kind == KV_ENT_INLINE)
			e->e_val = e->e_key + e->e_klen;
		rc = kv_run_build_add(rb, e);
	}
	mv->mv_n = mv->mv_nmove = mv->mv_used = mv->mv_nframe = 0;
	return rc;
}

/* ---- adding ------------------------------------------------------------------------------- */

/* Keeps a copy of the entry: the source's pointers live until its next one. */
static int hold(struct kv_move *mv, const struct kv_ent *e, uint32_t rec)
{
	uint32_t inl = e->e_kind == KV_ENT_INLINE ? e->e_vlen : 0;
	int rc = kv_vec_grow(&mv->mv_item, &mv->mv_itemcap, mv->mv_n + 1, sizeof(mv->mv_item[0]));

	KV_ASSERT(mv->mv_n < HELD_MAX);
	if (!rc)
		rc = kv_vec_grow(&mv->mv_bytes, &mv->mv_bytescap, mv->mv_used + e->e_klen + inl, 1);
	if (rc)
		return rc;
	memcpy(mv->mv_bytes + mv->mv_used, e->e_key, e->e_klen);
	if (inl)
		memcpy(mv->mv_bytes + mv->mv_used + e->e_klen, e->e_val, inl);
	mv->mv_item[mv->mv_n++] = (struct item){ .im_e = *e, .im_key = mv->mv_used,
						 .im_rec = rec };
	mv->mv_used += e->e_klen + inl;
	return 0;
}

/* A larger image for one record that does not fit into an ordinary one. */
static int image_grow(struct kv_move *mv, uint32_t bytes)
{
	struct image ig;
	int rc;

	KV_ASSERT(!mv->mv_nframe);
	if (bytes <= mv->mv_image.ig_bytes)
		return 0;
	rc = image_map(&ig, bytes);
	if (rc)
		return rc;
	image_unmap(&mv->mv_image);
	mv->mv_image = ig;
	count_mem(mv);
	return 0;
}

/* Opens a frame after the others. */
static int frame_open(struct kv_move *mv)
{
	uint32_t off = image_end(mv);
	int rc = kv_vec_grow(&mv->mv_frame, &mv->mv_framecap, mv->mv_nframe + 1,
			  sizeof(mv->mv_frame[0]));

	KV_ASSERT(off % KV_BLOCK == 0);
	if (!rc)
		mv->mv_frame[mv->mv_nframe++] = (struct frame){ .mf_off = off,
								.mf_end = off + KV_FRAME_HDR,
								.mf_item = mv->mv_n };
	return rc;
}

/* A place for a record of @size in the image: *rec. -ENOSPC: make room first. */
static int room_for(struct kv_move *mv, uint32_t size, uint32_t *rec)
{
	uint32_t frame_max = mv->mv_db->d_budget.b_frame_max;
	struct frame *f = mv->mv_nframe ? &mv->mv_frame[mv->mv_nframe - 1] : NULL;
	uint32_t end = image_end(mv);
	int rc;

	KV_ASSERT(size % 8 == 0);
	/* a record that made the image larger is alone in it */
	if (f && f->mf_end + size <= mv->mv_full && f->mf_end - f->mf_off + size <= frame_max) {
		*rec = f->mf_end;
	} else {
		if (f && end + KV_FRAME_HDR + size > mv->mv_full)
			return -ENOSPC;
		rc = f ? 0 : image_grow(mv, (KV_FRAME_HDR + size + 0xffffu) & ~0xffffu);
		if (!rc)
			rc = frame_open(mv);
		if (rc)
			return rc;
		f = &mv->mv_frame[mv->mv_nframe - 1];
		*rec = f->mf_end;
	}
	f->mf_end += size;
	KV_ASSERT(f->mf_end <= mv->mv_image.ig_bytes);
	f->mf_nrec++;
	return 0;
}

/* The image is full: what was gathered may have left a quarter of it, else it is written. */
static int make_room(struct kv_move *mv, struct kv_run_build *rb, uint32_t size)
{
	int rc = gather(mv);

	if (rc)
		return rc;
	close_up(mv);
	if ((uint64_t)image_end(mv) + size <= mv->mv_full - mv->mv_full / 4)
		return 0;
	return kv_move_flush(mv, rb);
}

static bool refers_to_victim(const struct kv_move *mv, const struct kv_ent *e)
{
	return e->e_kind == KV_ENT_REF &&
	       (kv_is_victim(e->e_seg, mv->mv_whole) ||
		(mv->mv_whole && e->e_seg->sg_mclass != mv->mv_mclass));
}

static int add(struct kv_move *mv, struct kv_run_build *rb, const struct kv_ent *e, bool moves)
{
	struct kv_ent to = *e;		/* as it is gathered */
	uint32_t rec = 0;
	int rc = 0;

	if (mv->mv_added++ % SEND_EVERY == 0)
		send_on(mv, false);
	if (!moves && !mv->mv_n)
		return kv_run_build_add(rb, e);
	if (to.e_pack != mv->mv_how)
		to.e_pack = 0;
	if (mv->mv_n == HELD_MAX)
		rc = kv_move_flush(mv, rb);
	if (!rc && moves) {
		rc = room_for(mv, record_size(&to), &rec);
		if (rc == -ENOSPC) {
			rc = make_room(mv, rb, record_size(&to));
			if (!rc)
				rc = room_for(mv, record_size(&to), &rec);
		}
	}
	if (!rc && moves)
		rc = kv_vec_grow(&mv->mv_place, &mv->mv_placecap, mv->mv_nmove + 1,
			      sizeof(mv->mv_place[0]));
	if (!rc)
		rc = hold(mv, e, rec);
	if (rc || !moves)
		return rc;
	mv->mv_item[mv->mv_n - 1].im_is_recoded = e->e_pack && !to.e_pack;
	mv->mv_place[mv->mv_nmove++] = (struct place){ e->e_seg->sg_id, e->e_off8,
							    mv->mv_n - 1 };
	encode(mv, &to, rec, e->e_key, NULL);
	return 0;
}

/* ---- in the order of media --------------------------------------------------------------- */

/* Its record can be copied as it is. */
static bool is_swept(const struct kv_ent *e)
{
	return !e->e_pack && place_is_good(e) &&
	       e->e_off8 * 8 >= kv_rec_val_off(e->e_klen) + KV_FRAME_HDR;
}

static struct kv_note *note_at(const struct kv_move *mv, uint32_t at)
{
	return &mv->mv_sweep->sw_note[mv->mv_sweep->sw_order[at]];
}

/* The record, with what may follow its value. */
static bool note_span(struct kv_move *mv, uint32_t at, struct span *sp)
{
	const struct kv_note *no = note_at(mv, at);
	uint32_t off = no->no_off8 * 8 - kv_rec_val_off(no->no_klen);
	uint32_t len = kv_rec_size(no->no_klen, no->no_vlen) + KV_REC_EXPIRY + KV_REC_PACKED;
	uint32_t most = kv_seg_readable(no->no_seg) - off;

	*sp = (struct span){ no->no_seg, off, len < most ? len : most };
	return span_joins(sp);
}

/* The records that were copied into the image become a segment. */
static int swept_write(struct kv_move *mv)
{
	uint32_t len = image_end(mv);
	struct kv_note *no;
	struct kv_seg *s;
	int rc;

	KV_ASSERT(!mv->mv_n);
	if (!len)
		return 0;
	rc = seg_next(mv, len, &s);
	if (rc)
		return rc;
	for (; mv->mv_swept; mv->mv_swept = no->no_next) {
		uint32_t rec;

		no = &mv->mv_sweep->sw_note[mv->mv_swept - 1];
		rec = no->no_off8 * 8 - kv_rec_val_off(no->no_klen);
		kv_rec_stamp(mv->mv_image.ig_mem + rec, s->sg_id, rec, no->no_seq);
		no->no_seg = s;
	}
	rc = image_send(mv, s, len);
	mv->mv_nframe = 0;
	return rc;
}

static int note_take(struct kv_move *mv, uint32_t at, const struct span *sp, const uint8_t *bytes)
{
	struct kv_note *no = note_at(mv, at);
	uint32_t size = kv_rec_size(no->no_klen, no->no_vlen), rec = 0;
	uint64_t expiry;
	uint8_t *to;
	int rc;

	/* it moves alone later, which reads again and reports the error */
	if (!bytes || !kv_note_is_of(no, bytes, sp->sp_off, sp->sp_len, &expiry))
		return 0;
	size += expiry ? KV_REC_EXPIRY : 0;
	rc = room_for(mv, size, &rec);
	if (rc == -ENOSPC) {
		rc = swept_write(mv);
		if (!rc)
			rc = room_for(mv, size, &rec);
	}
	if (rc)
		return rc;
	KV_ASSERT(!no->no_is_moved);
	to = mv->mv_image.ig_mem + rec;
	kv_rec_encode(to, KV_REC_PUT, (uint16_t)mv->mv_kvs, bytes + KV_REC_HDR, no->no_klen,
		      bytes + kv_rec_val_off(no->no_klen), no->no_vlen, no->no_vcrc);
	kv_rec_set_rev(to, KV_MOVED_REV);
	if (expiry)
		kv_rec_set_expiry(to, expiry);
	no->no_off8 = (rec + kv_rec_val_off(no->no_klen)) / 8;
	no->no_is_moved = true;
	/* what is in the window overtakes what must be read */
	no->no_next = mv->mv_swept;
	mv->mv_swept = mv->mv_sweep->sw_order[at] + 1;
	return 0;
}

bool kv_move_looks_ahead(const struct kv_move *mv)
{
	return mv->mv_sweep;
}

void kv_move_round(struct kv_move *mv)
{
	kv_sweep_clear(mv->mv_sweep);
}

bool kv_move_note(struct kv_move *mv, const struct kv_ent *e)
{
	if (refers_to_victim(mv, e) && is_swept(e))
		kv_sweep_add(mv->mv_sweep, e);
	return !kv_sweep_is_full(mv->mv_sweep);
}

int kv_move_sweep(struct kv_move *mv, struct kv_run_build *rb)
{
	static const struct reader notes = { note_span, note_take };
	int rc = kv_move_flush(mv, rb);

	if (rc)
		return rc;
	KV_ASSERT(!mv->mv_n && !mv->mv_nframe);
	mv->mv_swept = 0;
	kv_sweep_sort(mv->mv_sweep);
	rc = read_places(mv, &notes, mv->mv_sweep->sw_n);
	return rc ? rc : swept_write(mv);
}

int kv_move_add(struct kv_move *mv, struct kv_run_build *rb, const struct kv_ent *e)
{
	struct kv_ent swept = *e;

	if (!refers_to_victim(mv, e))
		return add(mv, rb, e, false);
	if (mv->mv_sweep && is_swept(e) && kv_sweep_take(mv->mv_sweep, &swept))
		return add(mv, rb, &swept, false);
	return add(mv, rb, e, true);
}

int kv_move_seal(struct kv_move *mv)
{
	KV_ASSERT(!mv->mv_n && !mv->mv_nframe && !mv->mv_sealed);
	/* G2: the last image may still be on its way */
	int rc = BARRIER(flight_end(mv));

	for (uint32_t i = 0; i < mv->mv_nseg && !rc; i += SEAL_BATCH) {
		uint32_t n = mv->mv_nseg - i;

		rc = kv_segs_seal_moved(mv->mv_db, mv->mv_seg + i, n < SEAL_BATCH ? n : SEAL_BATCH);
	}
	mv->mv_sealed = !rc;
	return rc;
}
