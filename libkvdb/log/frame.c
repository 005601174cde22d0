/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Finished frames: what is written of a closed frame, when writers were late.
 *
 * When every record of a frame is done, its image is written as it is. A
 * record whose writer did not get as far as INSTALLING before its epoch ended
 * was withdrawn, yet its writer may still be copying: such a frame is written
 * from a copy in which the space of those records is one SKIP record each
 * (adjacent ones together). Nothing ever refers to that space.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "log/frame.h"
#include "base/assert.h"
#include "base/guard.h"
#include "db/db.h"
#include "db/mem_wait.h"
#include "seg/seg.h"
#include "log/flush.h"

bool kv_frame_is_done(struct kv_frame *f)
{
	return atomic_load_explicit(&f->fr_done, memory_order_acquire) + KV_FRAME_HDR ==
	       f->fr_len;
}

static void skip(struct kv_frame *f, uint32_t from, uint32_t to, uint32_t *n)
{
	if (from == to)
		return;
	KV_ASSERT(from < to && to <= f->fr_len);
	kv_rec_encode_skip(f->fr_bounce + from, f->fr_seg->sg_id, f->fr_off + from, to - from);
	++*n;
}

/* Builds the copy; returns the number of records in it. */
static uint32_t bounce_fill(struct kv_frame *f)
{
	uint32_t pos = KV_FRAME_HDR, n = 0, i, from;

	for (i = 0; i < f->fr_nrec; i++) {
		uint64_t r = atomic_load_explicit(&f->fr_rec[i], memory_order_acquire);

		if (!(r & (KV_REC_DONE | KV_REC_HELPED)))
			continue;
		skip(f, pos, KV_REC_START(r), &n);
		from = KV_REC_START(r) + KV_REC_HDR;
		/* a writer that was helped may be stamping the header, with what is there */
		kv_rec_header_copy(f->fr_bounce + KV_REC_START(r), f->fr_base + KV_REC_START(r));
		memcpy(f->fr_bounce + from, f->fr_base + from, KV_REC_END(r) - from);
		pos = KV_REC_END(r);
		n++;
	}
	skip(f, pos, f->fr_len, &n);
	return n;
}

uint8_t *kv_frame_source(struct kvdb *db, struct kv_frame *f)
{
	KV_ASSERT_HELD(&db->d_flusher->fl_io_lock);
	if (kv_frame_is_done(f))
		return f->fr_base;
	/* an epoch must end: wait for memory */
	while (!f->fr_bounce && posix_memalign((void **)&f->fr_bounce, KV_BLOCK, f->fr_space))
		if (kv_sleep_or_stop(db))
			return NULL;
	f->fr_nrec = bounce_fill(f);
	atomic_fetch_add(&db->d_count.skipped, 1);
	return f->fr_bounce;
}

static void skip_rest(struct kv_frame *f, uint8_t *src, uint32_t bytes)
{
	kv_rec_encode_skip(src + f->fr_len, f->fr_seg->sg_id, f->fr_off + f->fr_len, bytes);
	f->fr_len += bytes;
	f->fr_nrec++;
}

/* RV22: the frame's last record, for which there is room when it was closed. */
static void mark(struct kvdb *db, struct kv_frame *f, uint8_t *src)
{
	struct kv_seg *s = f->fr_seg;
	struct kv_mark m = { .ma_prev = db->d_epochs.ep_desc.epoch };

	KV_ASSERT(s->sg_epoch <= f->fr_epoch);
	if (s->sg_epoch != f->fr_epoch) {
		s->sg_epoch = f->fr_epoch;
		s->sg_begin = f->fr_off;
	}
	m.ma_begin = s->sg_begin;
	KV_ASSERT(m.ma_begin <= f->fr_off);
	kv_mark_encode(src + f->fr_len, s->sg_id, f->fr_off + f->fr_len, &m);
	f->fr_len += KV_MARK_SIZE;
	f->fr_nrec++;
}

void kv_frame_seal(struct kvdb *db, struct kv_frame *f, uint8_t *src)
{
	struct kv_log *lo = f->fr_log;
	struct kv_seg *s = f->fr_seg;
	struct kv_frame_hdr h = {
		.fh_incarnation = db->d_ident.id_incarnation,
		.fh_log = lo->lo_no,
		.fh_stream = lo->lo_stream,
		.fh_tag = (uint32_t)db->d_ident.id_tag,
		.fh_obj = s->sg_id,
		.fh_off = f->fr_off,
		.fh_epoch = f->fr_epoch,
		.fh_chain = s->sg_chain,
	};
	uint32_t bytes = f->fr_space;

	KV_ASSERT_HELD(&db->d_flusher->fl_io_lock);
	/* room that was kept for a descriptor and not used: frames leave no holes */
	if (kv_frame_space(f->fr_len) < bytes)
		skip_rest(f, src, bytes - KV_MARK_SIZE - f->fr_len);
	(void)BARRIER((mark(db, f, src), 0));
	h.fh_len = f->fr_len;
	h.fh_nrec = f->fr_nrec;
	KV_ASSERT(f->fr_len <= bytes && f->fr_off + bytes <= s->sg_bytes);
	memset(src + f->fr_len, 0, bytes - f->fr_len);
	h.fh_payload_crc = mpool_crc32c(0, src + KV_FRAME_HDR, f->fr_len - KV_FRAME_HDR);
	kv_frame_encode(&h, src, &s->sg_chain);
	f->fr_iov.iov_base = src;
	f->fr_iov.iov_len = bytes;
	atomic_store(&s->sg_end, f->fr_off + bytes);
}
