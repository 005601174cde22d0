/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mlogs: framed logs of records inside one object.
 *
 * Records gather in a buffer and leave it as frames of whole blocks; a block
 * is written once per generation. A frame carries pool, object, generation,
 * offset, sequence, the checksum of the frame before, and the sequence up to
 * which all was durable. The valid log is the longest chain from the start;
 * what follows is a torn tail, unless a frame there proves that the missing
 * part was durable once. Erase raises the generation in the metadata log.
 * In a file a log of a container has space below for its first bytes only. A record
 * is taken when there is space for its frame, so what was taken can be written (INV-29).
 * l_lock serialises everything on one log, I/O included.
 */
#include "durable.h"

#define SPACE_STEP	(1u << 20)	/* space below grows by as much again, or by this */
#define BUF_FIRST	(64u << 10)
#define AHEAD		(16ull << 20)	/* bytes looked at behind the last frame found */
#define VAIN_MAX	16		/* frames read whole for nothing: more were forged */
#define POS_BITS	24	/* of a read position: offset inside a frame */

struct mp_mlog {
	struct mp_obj *l_obj;
	struct mp_pool *l_pool;
	struct mutex l_lock;
	u8 *l_buf;		/* frame being filled */
	u32 l_cap, l_len, l_nrecs;
	u64 l_tail;		/* where the next frame goes, bytes */
	u64 l_space;		/* bytes from the begin that have space below; 0: not asked yet */
	u64 l_seq, l_durable;
	u32 l_prev;
	bool l_is_failed;
	u64 l_torn_end;		/* frames that were refused lie between l_tail and this; 0 = none */
	u8 *l_win;		/* read window */
	u32 l_win_cap, l_win_len;
	u64 l_win_off;
	u64 l_win_good;		/* offset + 1 of a frame in it that was decoded since; 0: none */
};

static int log_io(struct mp_mlog *l, u64 off, u8 *buf, u32 len, bool is_write)
{
	struct mp_dev *dev;
	u64 pos, n;
	int rc;

	os_assert(off + len <= l->l_obj->o_capacity);
	while (len) {
		rc = mp_obj_map(l->l_obj, off, len, &dev, &pos, &n);
		if (!rc && !is_write)
			rc = mp_pool_readable(l->l_pool);
		if (rc)
			return rc;
		rc = is_write ? mp_dev_write(dev, pos, buf, n) :
				dev->d_ops->read(dev, pos, buf, n);
		if (rc)
			return mp_err_as(is_write ? MP_MLOG_WRITE : MP_MLOG_READ, rc,
					 "%s: log %llu offset %llu: error %d", dev->d_path,
					 mp_obj_id(l->l_obj), off, rc);
		off += n;
		buf += n;
		len -= (u32)n;
	}
	return 0;
}

/* at least @need bytes at @off in the window; *@p = NULL at the object's end */
static int win_get(struct mp_mlog *l, u64 off, u32 need, u8 **p)
{
	u64 cap = l->l_obj->o_capacity;
	u32 want;
	int rc;

	*p = NULL;
	if (off >= cap || need > cap - off)
		return 0;
	if (off < l->l_win_off || off + need > l->l_win_off + l->l_win_len) {
		if (os_fatal_signal())
			return -EINTR;
		if (need > l->l_win_cap) {
			u8 *bigger = os_call_alloc_io(ALIGN(need, MP_BLOCK));

			if (!bigger)
				return mp_err(MP_NOMEM, "log window");
			os_free_io(l->l_win);
			l->l_win = bigger;
			l->l_win_cap = ALIGN(need, MP_BLOCK);
		}
		l->l_win_len = 0;
		l->l_win_good = 0;
		want = (u32)min_t(u64, l->l_win_cap, cap - off);
		rc = log_io(l, off, l->l_win, want, false);
		if (rc)
			return rc;
		l->l_win_off = off;
		l->l_win_len = want;
	}
	os_assert(off - l->l_win_off + need <= l->l_win_len);
	*p = l->l_win + (off - l->l_win_off);
	return 0;
}

/* the next block from @off on, before @end, that may hold a frame; holes of a file are not read */
static int win_skip(struct mp_mlog *l, u64 off, u64 end, u64 *next)
{
	struct mp_dev *dev;
	u64 pos, n, at;
	int rc;

	while (off < end && (off < l->l_win_off || off >= l->l_win_off + l->l_win_len)) {
		rc = mp_obj_map(l->l_obj, off, end - off, &dev, &pos, &n);
		if (rc)
			return rc;
		at = mp_dev_data(dev, pos, pos + n) - pos;
		off += at;
		if (at < n)
			break;
	}
	*next = off;
	return 0;
}

/* the valid frame at @off; *@p = NULL when there is none */
static int frame_get(struct mp_mlog *l, u64 off, struct mp_mlframe *fr, u8 **p)
{
	const u8 *uuid = l->l_pool->p_uuid;
	u64 id = mp_obj_id(l->l_obj), gen = l->l_obj->o_gen;
	u32 max;
	int rc;

	rc = win_get(l, off, MP_BLOCK, p);
	if (rc || !*p)
		return rc;
	max = (u32)min_t(u64, l->l_obj->o_capacity - off, MP_MLFRAME_MAX) / MP_BLOCK;
	if (!mp_mlframe_peek(*p, uuid, id, gen, off, max, fr)) {
		rc = win_get(l, off, fr->ml_blocks * MP_BLOCK, p);
		if (rc || !*p)
			return rc;
		/* it has many records, each of which is read by itself */
		if (l->l_win_good == off + 1)
			return 0;
		if (!mp_mlframe_decode(*p, uuid, id, gen, off, max, fr)) {
			l->l_win_good = off + 1;
			return 0;
		}
	}
	*p = NULL;
	return 0;
}

/* does a frame of this life, whole or not, begin at @off? */
static int has_head(struct mp_mlog *l, u64 off, struct mp_mlframe *fr, bool *yes)
{
	u32 max = (u32)min_t(u64, l->l_obj->o_capacity - off, MP_MLFRAME_MAX) / MP_BLOCK;
	u8 *p;
	int rc = win_get(l, off, MP_BLOCK, &p);

	*yes = !rc && p && !mp_mlframe_peek(p, l->l_pool->p_uuid, mp_obj_id(l->l_obj),
					    l->l_obj->o_gen, off, max, fr);
	return rc;
}

/* INV-22 */
static int look_ahead(struct mp_mlog *l)
{
	u64 cap = l->l_obj->o_capacity, end = min_t(u64, cap, l->l_tail + AHEAD), off;
	struct mp_mlframe fr;
	u32 nvain = 0;
	bool is_head;
	u8 *p;
	int rc;

	l->l_torn_end = 0;
	for (off = l->l_tail; off < end; off += MP_BLOCK) {
		rc = win_skip(l, off, end, &off);
		if (rc || off == end)
			return rc;
		rc = has_head(l, off, &fr, &is_head);
		if (rc)
			return rc;
		if (!is_head)
			continue;
		l->l_torn_end = off + MP_BLOCK;
		/* one sync may have made any number of frames durable: on to what proves it */
		end = min_t(u64, cap, off + AHEAD);
		/* of a torn tail no head claims that, whole or not: it is not read once more */
		if (CHECK(fr.ml_durable <= l->l_seq))
			continue;
		rc = frame_get(l, off, &fr, &p);
		if (rc)
			return rc;
		if (p || ++nvain == VAIN_MAX)
			return mp_err(MP_MLOG_CORRUPT, "log %llu: sequence %llu was durable, the "
				      "chain ends at %llu", mp_obj_id(l->l_obj), fr.ml_durable,
				      l->l_seq);
	}
	return 0;
}

/* the frame that continues the chain; *@p = NULL when there is none */
static int next_get(struct mp_mlog *l, struct mp_mlframe *fr, u8 **p)
{
	int rc = frame_get(l, l->l_tail, fr, p);

	if (!rc && *p && !CHECK(fr->ml_seq == l->l_seq + 1 && fr->ml_prev == l->l_prev))
		*p = NULL;
	return rc;
}

static void read_lied(struct mp_mlog *l, u64 off)
{
	mp_obj_bad_read(l->l_obj, off, true);
	mp_err(MP_READ_LIED, "log %llu: the frame at %llu is good in the second reading",
	       mp_obj_id(l->l_obj), off);
}

/* find the valid chain */
static int log_scan(struct mp_mlog *l)
{
	struct mp_mlframe fr;
	u8 *p;
	int rc;

	l->l_tail = 0;
	l->l_seq = 0;
	l->l_prev = 0;
	while (l->l_tail < l->l_obj->o_capacity) {
		rc = next_get(l, &fr, &p);
		/* a chain ends where two readings say so: INV-19 */
		if (!rc && !CHECK(p)) {
			l->l_win_len = 0;
			rc = next_get(l, &fr, &p);
			if (!rc && p)
				read_lied(l, l->l_tail);
		}
		if (rc)
			return rc;
		if (!p)
			break;
		l->l_tail += (u64)fr.ml_blocks * MP_BLOCK;
		l->l_seq = fr.ml_seq;
		l->l_prev = fr.ml_csum;
	}
	rc = look_ahead(l);
	if (rc)
		return rc;
	if ((l->l_obj->o_flags & MP_OBJF_SEALED) &&
	    !CHECK(l->l_tail >= l->l_obj->o_length))
		return mp_err(MP_MLOG_CORRUPT, "log %llu: sealed at %llu, the chain ends at %llu",
			      mp_obj_id(l->l_obj), l->l_obj->o_length, l->l_tail);
	return 0;
}

static void log_free(struct mp_mlog *l)
{
	mutex_destroy(&l->l_lock);
	os_free_io(l->l_buf);
	os_free_io(l->l_win);
	os_free(l);
}

static int log_claim(struct mp_mlog *l)
{
	int rc = 0;

	mutex_lock(&l->l_pool->p_lock);
	if (l->l_obj->o_state & (MP_O_LOG_OPEN | MP_O_BUSY))
		rc = mp_err(MP_OBJ_OPEN, "log %llu", mp_obj_id(l->l_obj));
	/* deleted since it was found: what would be acknowledged is gone already */
	else if (!CHECK(l->l_obj->o_is_listed))
		rc = mp_err(MP_OBJ_NONE, "object %llu", mp_obj_id(l->l_obj));
	else
		l->l_obj->o_state |= MP_O_LOG_OPEN;
	mutex_unlock(&l->l_pool->p_lock);
	return rc;
}

static void log_unclaim(struct mp_mlog *l)
{
	mutex_lock(&l->l_pool->p_lock);
	os_assert(l->l_obj->o_state & MP_O_LOG_OPEN);
	l->l_obj->o_state &= ~MP_O_LOG_OPEN;
	mutex_unlock(&l->l_pool->p_lock);
	mp_obj_put(l->l_obj);
}

int mp_mlog_open(struct mp_pool *pool, u64 id, struct mp_mlog **out)
{
	struct mp_mlog *l;
	struct mp_obj *obj;
	int rc;

	rc = mp_obj_open(pool, id, &obj);
	if (rc)
		return rc;
	l = os_call_zalloc(sizeof(*l));
	if (!l || obj->o_kind != MP_MLOG) {
		mp_obj_put(obj);
		os_free(l);
		return l ? mp_err(MP_OBJ_KIND, "object %llu is no log", id) :
			   mp_err(MP_NOMEM, "log %llu", id);
	}
	l->l_obj = obj;
	l->l_pool = pool;
	mutex_init(&l->l_lock);
	l->l_cap = BUF_FIRST;
	l->l_win_cap = BUF_FIRST;
	l->l_buf = os_call_alloc_io(l->l_cap);
	l->l_win = os_call_alloc_io(l->l_win_cap);
	rc = l->l_buf && l->l_win ? log_claim(l) : mp_err(MP_NOMEM, "log %llu", id);
	if (rc) {
		mp_obj_put(obj);
		log_free(l);
		return rc;
	}
	rc = log_scan(l);
	/* what the scan accepted may be in a volatile cache: INV-7 */
	if (!rc && l->l_seq && !pool->p_is_rdonly && !mp_pool_flushable(pool))
		rc = BARRIER(mp_obj_flush(obj));
	if (rc) {
		log_unclaim(l);
		log_free(l);
		return rc;
	}
	l->l_durable = l->l_seq;
	*out = l;
	return 0;
}

void mp_mlog_close(struct mp_mlog *l)
{
	if (!l)
		return;
	log_unclaim(l);
	log_free(l);
}

/* heads in [@from, @end) become random: zeroes may be just what a bad sector of one lacks */
static int heads_wipe(struct mp_mlog *l, u64 from, u64 end)
{
	struct mp_mlframe fr;
	bool is_head;
	u64 off;
	int rc = 0;

	os_assert(from >= l->l_tail && end <= l->l_obj->o_capacity);
	for (off = from; off < end && !rc; off += MP_BLOCK) {
		rc = has_head(l, off, &fr, &is_head);
		if (rc || !is_head)
			continue;
		l->l_win_len = 0;
		rc = mp_random(l->l_win, MP_BLOCK);
		if (!rc)
			rc = log_io(l, off, l->l_win, MP_BLOCK, true);
	}
	return rc;
}

/*
 * A refused frame must never come back: a write above it that is torn could
 * repair it, and one equal to its lost predecessor would link it again. So the
 * heads of all of them are gone from the media before anything follows. The
 * last ones go first, and no more at once than the next search passes over: one
 * that is cut short finds what is left.
 */
static int torn_wipe(struct mp_mlog *l)
{
	u64 from;
	int rc;

	os_assert_held(&l->l_lock);
	while (l->l_torn_end) {
		from = max_t(u64, l->l_tail, l->l_torn_end - min_t(u64, l->l_torn_end, AHEAD / 2));
		rc = heads_wipe(l, from, l->l_torn_end);
		if (!rc)
			rc = BARRIER(mp_obj_flush(l->l_obj));
		if (rc)
			return rc;
		l->l_torn_end = from > l->l_tail ? from : 0;
	}
	return 0;
}

/* write the buffered records as one frame; l_lock held */
static int frame_put(struct mp_mlog *l)
{
	struct mp_mlframe fr = {
		.ml_blocks = DIV_ROUND_UP(MP_FRAME_HDR + l->l_len, MP_BLOCK),
		.ml_id = mp_obj_id(l->l_obj),
		.ml_gen = l->l_obj->o_gen,
		.ml_off = l->l_tail,
		.ml_seq = l->l_seq + 1,
		.ml_durable = l->l_durable,
		.ml_len = l->l_len,
		.ml_nrecs = l->l_nrecs,
		.ml_prev = l->l_prev,
		/* what a crash discarded behind here must not chain to the same bytes again */
		.ml_life = (u32)l->l_pool->p_gen,
	};
	int rc;

	os_assert_held(&l->l_lock);
	if (!l->l_nrecs)
		return 0;
	/* what was taken can be written: INV-29 */
	os_assert(l->l_tail + (u64)fr.ml_blocks * MP_BLOCK <= l->l_space);
	os_assert(l->l_durable <= l->l_seq);
	mp_mlframe_encode(&fr, l->l_pool->p_uuid, l->l_buf);
	rc = torn_wipe(l);
	/* the thread is killed: nothing of the frame is there, and the next one wipes on */
	if (rc == -EINTR)
		return rc;
	if (!rc)
		rc = log_io(l, l->l_tail, l->l_buf, fr.ml_blocks * MP_BLOCK, true);
	if (rc) {
		l->l_is_failed = true;
		return rc;
	}
	l->l_tail += (u64)fr.ml_blocks * MP_BLOCK;
	l->l_seq++;
	l->l_prev = fr.ml_csum;
	l->l_len = 0;
	l->l_nrecs = 0;
	l->l_win_len = 0;
	return 0;
}

static int log_sync(struct mp_mlog *l)
{
	int rc = frame_put(l);

	os_assert_held(&l->l_lock);
	if (rc || l->l_durable == l->l_seq)
		return rc;
	/* acknowledged records are on media: INV-5 */
	rc = BARRIER(mp_obj_flush(l->l_obj));
	if (rc)
		l->l_is_failed = true;
	else
		l->l_durable = l->l_seq;
	return rc;
}

static int log_writable(struct mp_mlog *l)
{
	if (l->l_is_failed || (l->l_obj->o_flags & MP_OBJF_SEALED))
		return mp_err(MP_MLOG_SEALED, "log %llu is %s", mp_obj_id(l->l_obj),
			      l->l_is_failed ? "failed" : "sealed");
	return mp_pool_writable(l->l_pool);
}

/* space below for the first @must bytes, or for @wish if there is as much; l_lock held */
static int space_grow(struct mp_mlog *l, u64 must, u64 wish)
{
	int rc = 0;

	os_assert_held(&l->l_lock);
	os_assert(must <= l->l_obj->o_capacity);
	if (!l->l_space)
		l->l_space = mp_obj_reserved(l->l_obj);
	wish = min(ALIGN(max(must, wish), MP_SB_AREA), l->l_obj->o_capacity);
	if (wish <= l->l_space)
		return 0;
	rc = mp_pool_writable(l->l_pool);
	if (rc)
		return rc;
	if (!mp_obj_reserve(l->l_obj, l->l_space, wish, false)) {
		l->l_space = wish;
	} else if (must > l->l_space) {
		must = ALIGN(must, MP_BLOCK);
		rc = mp_obj_reserve(l->l_obj, l->l_space, must, true);
		if (!rc)
			l->l_space = must;
	}
	return rc;
}

int mp_mlog_reserve(struct mp_mlog *l, u64 must, u64 wish, u64 *have)
{
	u64 cap = l->l_obj->o_capacity;
	int rc;

	mutex_lock(&l->l_lock);
	rc = space_grow(l, min(must, cap), min(wish, cap));
	if (!rc)
		*have = l->l_space;
	mutex_unlock(&l->l_lock);
	return rc;
}

/* space below for all up to @end; -EFBIG: it may fit after a compaction. l_lock held */
static int space_for(struct mp_mlog *l, u64 end)
{
	int rc;

	os_assert_held(&l->l_lock);
	if (end <= l->l_space)
		return 0;
	rc = space_grow(l, end, end + min_t(u64, end, SPACE_STEP));
	if (rc != -ENOSPC)
		return rc;
	return mp_err_as(MP_RESERVE, -EFBIG, "the file system below is full: log %llu of %llu "
			 "bytes has space for %llu", mp_obj_id(l->l_obj), l->l_obj->o_capacity,
			 l->l_space);
}

/* room in the buffer for @need bytes, writing out what is there if it must; l_lock held */
static int buf_room(struct mp_mlog *l, u32 need)
{
	u64 cap = l->l_obj->o_capacity;
	u32 used = MP_FRAME_HDR + l->l_len;
	u64 out = l->l_nrecs ? ALIGN(used, MP_BLOCK) : 0;
	bool is_fit = used + need <= l->l_cap;
	u64 end = l->l_tail + (is_fit ? ALIGN((u64)used + need, MP_BLOCK) :
			       out + ALIGN((u64)MP_FRAME_HDR + need, MP_BLOCK));
	u8 *bigger;
	int rc;

	os_assert_held(&l->l_lock);
	if (end > cap)
		return mp_err(MP_MLOG_FULL, "log %llu: %u bytes, %llu of %llu used",
			      mp_obj_id(l->l_obj), need, l->l_tail + out, cap);
	rc = space_for(l, end);
	if (rc || is_fit)
		return rc;
	rc = frame_put(l);
	if (rc || MP_FRAME_HDR + need <= l->l_cap)
		return rc;
	bigger = os_call_alloc_io(ALIGN(MP_FRAME_HDR + need, MP_BLOCK));
	if (!bigger)
		return mp_err(MP_NOMEM, "log record");
	os_free_io(l->l_buf);
	l->l_buf = bigger;
	l->l_cap = ALIGN(MP_FRAME_HDR + need, MP_BLOCK);
	return 0;
}

int mp_mlog_append(struct mp_mlog *l, const struct mp_vec *vec, u32 n, bool is_sync)
{
	u64 total = 0;
	u8 *p;
	u32 i, need;
	int rc;

	for (i = 0; i < n; i++) {
		if (vec[i].v_len > MP_MLREC_MAX)
			return mp_err(MP_INVAL, "log record of more than %u bytes", MP_MLREC_MAX);
		total += vec[i].v_len;
	}
	if (!total || total > MP_MLREC_MAX)
		return mp_err(MP_INVAL, "log record of %llu bytes", total);
	need = 8 + (u32)ALIGN(total, 8);
	mutex_lock(&l->l_lock);
	rc = log_writable(l);
	if (!rc)
		rc = buf_room(l, need);
	if (!rc) {
		p = l->l_buf + MP_FRAME_HDR + l->l_len;
		memset(p + need - 8, 0, 8);
		mp_mlrec_encode(p, (u32)total);
		for (p += 8, i = 0; i < n; p += vec[i].v_len, i++)
			memcpy(p, vec[i].v_buf, vec[i].v_len);
		l->l_len += need;
		l->l_nrecs++;
		if (is_sync)
			rc = log_sync(l);
	}
	mutex_unlock(&l->l_lock);
	return rc;
}

int mp_mlog_sync(struct mp_mlog *l)
{
	int rc;

	mutex_lock(&l->l_lock);
	rc = l->l_nrecs || l->l_durable != l->l_seq ? log_writable(l) : 0;
	if (!rc)
		rc = log_sync(l);
	mutex_unlock(&l->l_lock);
	return rc;
}

/* one record at *@pos; is_peek: of what has left the buffer; l_lock held */
static int read_one(struct mp_mlog *l, u64 *pos, void *buf, size_t size, size_t *len, bool is_peek)
{
	u64 frame = (*pos >> POS_BITS) * MP_BLOCK, off = *pos & ((1u << POS_BITS) - 1);
	struct mp_mlframe fr;
	u32 n;
	u8 *p;
	int rc;

	os_assert_held(&l->l_lock);
	off = off ? off : MP_FRAME_HDR;
	for (;;) {
		if (frame >= l->l_tail && (!l->l_nrecs || is_peek))
			return -ENODATA;
		/* also behind the last record of the last frame: the next is in the buffer */
		if (frame >= l->l_tail) {
			/* a reader writes no more than a writer may: INV-14 */
			rc = BARRIER(log_writable(l));
			if (!rc)
				rc = frame_put(l);
			if (rc)
				return rc;
			continue;
		}
		rc = frame_get(l, frame, &fr, &p);
		/* it was there before: INV-19 */
		if (!rc && !CHECK(p)) {
			l->l_win_len = 0;
			rc = frame_get(l, frame, &fr, &p);
			if (!rc && p)
				read_lied(l, frame);
		}
		if (rc)
			return rc;
		if (!p)
			return mp_err(MP_MLOG_CORRUPT, "log %llu: no frame at offset %llu",
				      mp_obj_id(l->l_obj), frame);
		if (off < MP_FRAME_HDR || off > MP_FRAME_HDR + fr.ml_len || off % 8)
			return mp_err(MP_MLOG_POS, "log %llu: position %llu", mp_obj_id(l->l_obj),
				      *pos);
		if (off == MP_FRAME_HDR + fr.ml_len) {
			frame += (u64)fr.ml_blocks * MP_BLOCK;
			off = MP_FRAME_HDR;
			continue;
		}
		if (mp_mlrec_decode(p + off, (u32)(MP_FRAME_HDR + fr.ml_len - off), &n))
			return mp_err(MP_MLOG_CORRUPT, "log %llu: record at %llu+%llu",
				      mp_obj_id(l->l_obj), frame, off);
		*len = n;
		if (n > size)
			return -EOVERFLOW;
		memcpy(buf, p + off + 8, n);
		*pos = (frame / MP_BLOCK) << POS_BITS | (off + 8 + ALIGN(n, 8));
		return 0;
	}
}

int mp_mlog_read(struct mp_mlog *l, u64 *pos, void *buf, size_t size, size_t *len)
{
	int rc;

	mutex_lock(&l->l_lock);
	rc = read_one(l, pos, buf, size, len, false);
	mutex_unlock(&l->l_lock);
	return rc;
}

int mp_mlog_peek(struct mp_mlog *l, u64 *pos, void *buf, size_t size, size_t *len)
{
	int rc;

	mutex_lock(&l->l_lock);
	rc = read_one(l, pos, buf, size, len, true);
	mutex_unlock(&l->l_lock);
	return rc;
}

int mp_mlog_erase(struct mp_mlog *l)
{
	int rc;

	mutex_lock(&l->l_lock);
	rc = l->l_obj->o_flags & MP_OBJF_SEALED ? log_writable(l) : mp_pool_writable(l->l_pool);
	if (!rc && !CHECK(l->l_obj->o_gen < MP_NUMBER_END))
		rc = mp_err(MP_NUMBERS, "log %llu: generation %llu", mp_obj_id(l->l_obj),
			    l->l_obj->o_gen);
	if (!rc)
		rc = mp_obj_erase(l->l_obj, l->l_obj->o_gen + 1);
	if (!rc) {
		l->l_tail = 0;
		l->l_seq = 0;
		l->l_durable = 0;
		l->l_prev = 0;
		l->l_len = 0;
		l->l_nrecs = 0;
		l->l_win_len = 0;
		l->l_is_failed = false;
		l->l_torn_end = 0;
	}
	mutex_unlock(&l->l_lock);
	return rc;
}

int mp_mlog_seal(struct mp_mlog *l)
{
	int rc;

	mutex_lock(&l->l_lock);
	rc = log_writable(l);
	if (!rc)
		rc = log_sync(l);
	if (!rc)
		rc = mp_obj_seal_log(l->l_obj, l->l_tail);
	mutex_unlock(&l->l_lock);
	return rc;
}

void mp_mlog_space(struct mp_mlog *l, u64 *used, u64 *capacity)
{
	mutex_lock(&l->l_lock);
	*used = l->l_tail + (l->l_nrecs ? ALIGN(MP_FRAME_HDR + l->l_len, MP_BLOCK) : 0);
	*capacity = l->l_obj->o_capacity;
	mutex_unlock(&l->l_lock);
}

bool mp_mlog_is_empty(struct mp_mlog *l)
{
	bool is_empty;

	mutex_lock(&l->l_lock);
	is_empty = !l->l_seq && !l->l_nrecs;
	mutex_unlock(&l->l_lock);
	return is_empty;
}
