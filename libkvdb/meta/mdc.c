/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The metadata container: what a durable change of the database is. Every
 * change is one record; it counts when the record is on media, and the state
 * in memory is folded from the very bytes that were written.
 *
 * A record whose append failed may or may not be on media, so the database
 * stops (kv_fail()) and says so (MP0999); only "does not fit" leaves it as it was. When the log is
 * nearly full the state is written to the other log of the pair.
 *
 * Lock: m_lock orders records.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/mdc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/stream.h"
#include "base/vec.h"
#include "db/db.h"
#include "db/etime.h"
#include "db/waits.h"
#include "seg/seg.h"
#include "run/run.h"
#include "meta/mdc_append.h"

#define LEAVES_PART 256u	/* leaves in one record of a compaction */
#define SLACK	(64u << 10)	/* bytes of the log that records which grow the state leave free */
#define LOG_LONG (64ull << 20)	/* bytes: a longer log is written anew when a quarter is state */
#define ROOM_FIRST (512u << 10)	/* bytes of each log below which there is always space */
#define STATES	4u		/* lengths of the state that a log has space for */
#define SEG_BYTES 26u		/* of a segment in an incarnation; frames take a little, too */

int kv_mdc_no_memory(void)
{
	return kv_error(-ENOMEM, "MP0902", "no memory for the metadata of the database");
}

static int bad_record(int rc, uint64_t n)
{
	if (rc == -ENOMEM)
		return kv_mdc_no_memory();
	if (rc == -EOPNOTSUPP)
		return kv_error(rc, "MP0956",
				"metadata record %llu has a format or feature that is not known "
				"here",
				(unsigned long long)n);
	if (rc > 0)
		return kv_error(-EUCLEAN, "MP0960", "metadata record %llu is damaged (check %d)",
				(unsigned long long)n, rc);
	return rc;
}

/*
 * Folds records into @st, at most @max; *good = how many before the first that
 * failed. -ENOENT when there is none.
 */
static int replay(struct mpool_mdc *log, struct kv_mdc_state *st, uint64_t max, uint64_t *good)
{
	uint8_t *buf = malloc(KV_MDC_REC_MAX);
	uint64_t pos = 0, n = 0;
	size_t len;
	int err = 0;

	if (!buf)
		return kv_mdc_no_memory();
	for (;; *good = n) {
		err = n < max ? mpool_mdc_read(log, &pos, buf, KV_MDC_REC_MAX, &len) : -ENODATA;
		if (err == -ENODATA) {
			err = n ? 0 : -ENOENT;
			break;
		}
		if (err) {
			kv_error_mpool(err);
			break;
		}
		err = bad_record(kv_mdc_fold(st, buf, len), n++);
		if (err)
			break;
	}
	free(buf);
	return err;
}

/*
 * The tag of the database whose objects lie in the pool, 0: there are none. A drop
 * removes the container before them and a create comes after them, so where a
 * container is and they are, it has had records.
 */
static int find_tag(struct mpool *mp, uint64_t *tag)
{
	struct mpool_obj_info oi[64];
	uint64_t after = 0;
	int n;

	*tag = 0;
	while ((n = mpool_objects(mp, after, 0, oi, 64)) > 0) {
		for (int i = 0; i < n; i++) {
			after = oi[i].id;
			if (oi[i].kind == MPOOL_MLOG || !kv_tag_is_ours(oi[i].tag))
				continue;
			if (*tag && *tag != oi[i].tag)
				return kv_error(-EUCLEAN, "MP0960", "the pool holds objects of "
						"several databases, and no container names one");
			*tag = oi[i].tag;
		}
	}
	return n < 0 ? kv_error_mpool(n) : 0;
}

/* The container has no record: nor has the pool a database? */
static int check_empty(struct mpool *mp)
{
	uint64_t tag;
	int err = find_tag(mp, &tag);

	if (!err && !CHECK(!tag))
		err = kv_error(-EUCLEAN, "MP0961", "device lost acknowledged writes: there are "
			       "objects of a database, and the metadata that lists them is empty");
	return err;
}

int kv_mdc_probe(struct mpool *mp, bool *is_there)
{
	struct mpool_mdc *log;
	uint8_t first[4096];
	uint64_t pos = 0;
	size_t len;
	int err = mpool_mdc_open(mp, KV_MDC_NAME, &log);

	*is_there = false;
	if (err == -ENOENT)
		return 0;
	if (err)
		return kv_error_mpool(err);
	err = mpool_mdc_read(log, &pos, first, sizeof(first), &len);
	mpool_mdc_close(log);
	if (err == -ENODATA)
		return check_empty(mp);
	/* anything else is a database, sound or not */
	*is_there = true;
	return 0;
}

/* Of a create whose record failed to be appended. */
static int made_or_not(int err)
{
	char text[256];

	kv_error_mpool(err);
	if (err == -ENOMEM || err == -EFBIG || err == -EROFS)
		return err;
	snprintf(text, sizeof(text), "%s", kvdb_error_detail()->text);
	return kv_error(-EIO, "MP0999", "%s; the next open shows whether the database was made",
			text);
}

int kv_mdc_create(struct mpool *mp, uint8_t mclass, uint64_t bytes, const struct kv_mdc_super *s)
{
	struct kv_mdc_buf b = { 0 };
	struct mpool_mdc *log;
	struct iovec v;
	int err;

	err = mpool_mdc_create(mp, KV_MDC_NAME, mclass, bytes, s->ms_tag);
	if (err)
		return kv_error_mpool(err);
	err = mpool_mdc_open(mp, KV_MDC_NAME, &log);
	if (err)
		return kv_error_mpool(err);
	kv_mdc_enc_super(&b, s);
	v.iov_base = b.mb_p;
	v.iov_len = b.mb_len;
	if (b.mb_err)
		err = kv_mdc_no_memory();
	else if ((err = mpool_mdc_append(log, &v, 1, BARRIER(MPOOL_SYNC))) != 0)
		err = made_or_not(err);
	kv_mdc_buf_free(&b);
	mpool_mdc_close(log);
	return err;
}

/* Nothing of the container can be read: what belongs to the database says its tag. */
static int guess_super(struct kvdb *db, struct kv_mdc_state *st)
{
	uint64_t tag;
	int err = find_tag(db->d_mp, &tag);

	if (err)
		return err;
	st->st_super.ms_tag = tag;
	st->st_has_super = true;
	return tag ? 0 : kv_error(-ENOENT, "MP0952", "there is no object of a database");
}

/* Repair: the records in front of the damage, or none. */
static int keep_front(struct kv_mdc *m, uint64_t good)
{
	kv_mdc_state_free(&m->m_st);
	memset(&m->m_st, 0, sizeof(m->m_st));
	m->m_is_cut = true;
	return good ? replay(m->m_log, &m->m_st, good, &good) : guess_super(m->m_db, &m->m_st);
}

int kv_mdc_open(struct kvdb *db)
{
	struct kv_mdc *m = calloc(1, sizeof(*m));
	struct mpool_obj_info oi;
	uint64_t good = 0;
	int err;

	if (!m)
		return kv_mdc_no_memory();
	m->m_db = db;
	m->m_mclass = db->d_mode.md_log_class;
	pthread_mutex_init(&m->m_lock, NULL);
	pthread_mutex_init(&m->m_ddl_lock, NULL);
	db->d_mdc = m;
	err = mpool_mdc_open(db->d_mp, KV_MDC_NAME, &m->m_log);
	if (err) {
		m->m_log = NULL;
		kv_error_mpool(err);
	} else {
		err = replay(m->m_log, &m->m_st, UINT64_MAX, &good);
		if (err == -ENOENT)
			err = check_empty(db->d_mp) ?: -ENOENT;
	}
	if (err && err != -ENOMEM && db->d_mode.md_is_lossy)
		err = keep_front(m, good);
	if (err) {
		kv_mdc_close(db);
		return err;
	}
	memcpy(db->d_ident.id_uuid, m->m_st.st_super.ms_uuid, 16);
	db->d_ident.id_tag = m->m_st.st_super.ms_tag;
	if (mpool_objects(db->d_mp, 0, db->d_ident.id_tag, &oi, 1) == 1 && oi.kind == MPOOL_MLOG)
		m->m_mclass = (uint8_t)oi.mclass;
	return 0;
}

void kv_mdc_close(struct kvdb *db)
{
	struct kv_mdc *m = db->d_mdc;

	if (!m)
		return;
	if (m->m_log)
		mpool_mdc_close(m->m_log);
	kv_mdc_state_free(&m->m_st);
	kv_mdc_buf_free(&m->m_buf);
	pthread_mutex_destroy(&m->m_lock);
	pthread_mutex_destroy(&m->m_ddl_lock);
	free(m);
	db->d_mdc = NULL;
}

/* ---- appending ------------------------------------------------------------------- */

static bool is_too_long(const struct kv_mdc *m)
{
	return m->m_buf.mb_len > KV_MDC_REC_MAX - 64;
}

static int too_long(const struct kv_mdc *m, int err)
{
	return kv_error(err, "MP0992", "a metadata record of %zu bytes is too long",
			m->m_buf.mb_len);
}

/* Appends the record in m_buf, without folding. @flags: MPOOL_SYNC or 0. */
static int append_raw(struct kv_mdc *m, int flags)
{
	struct kv_mdc_buf *b = &m->m_buf;
	struct iovec v = { b->mb_p, b->mb_len };
	uint64_t began;
	int err;

	KV_ASSERT_HELD(&m->m_lock);
	KV_ASSERT_OUTSIDE();
	if (b->mb_err) {
		b->mb_err = 0;
		return kv_mdc_no_memory();
	}
	if (is_too_long(m))
		return too_long(m, -EFBIG);
	if (m->m_capture) {
		kv_mdc_buf_add(&m->m_capture->mp_out, b->mb_p, b->mb_len);
		return m->m_capture->mp_out.mb_err ? kv_mdc_no_memory() : 0;
	}
	began = kv_wait_begin();
	err = mpool_mdc_append(m->m_log, &v, 1, (unsigned)flags);
	kv_wait_end(KVDB_DELAY_MEDIA, began);
	if (err)
		return kv_error_mpool(err);
	atomic_fetch_add(&m->m_db->d_count.meta_bytes[m->m_mclass], b->mb_len);
	return 0;
}

static int put_seg_parts(struct kv_mdc *m, bool is_cuts, const struct kv_mdc_seg *seg, size_t n)
{
	uint32_t part = 0, k;
	int err = 0;

	while (n && !err) {
		k = n < KV_MDC_PART ? (uint32_t)n : KV_MDC_PART;
		kv_mdc_enc_segs(&m->m_buf, m->m_st.st_super.ms_tag, is_cuts, part++, seg, k);
		err = append_raw(m, 0);
		seg += k;
		n -= k;
	}
	return err;
}

static int put_leaves(struct kv_mdc *m, const struct kv_mdc_kvs *k)
{
	struct kv_mdc_leaves le = { .le_kvs = k->mk_id };
	uint32_t i;
	int err = 0;

	for (i = 0; i < k->mk_nleaf && !err; i += le.le_nbegin) {
		le.le_begin = &k->mk_leaf[i];
		le.le_nbegin = k->mk_nleaf - i < LEAVES_PART ? k->mk_nleaf - i : LEAVES_PART;
		kv_mdc_enc_leaves(&m->m_buf, m->m_st.st_super.ms_tag, &le);
		err = append_raw(m, 0);
	}
	return err;
}

static int put_kvs(struct kv_mdc *m, const struct kv_mdc_kvs *k)
{
	uint64_t tag = m->m_st.st_super.ms_tag;
	uint32_t i;
	int err = 0;

	if (!kv_props_are_default(&k->mk_props)) {
		kv_mdc_enc_kvs_prop(&m->m_buf, tag, k->mk_id, &k->mk_props, KV_PROP_ALL);
		err = append_raw(m, 0);
	}
	kv_mdc_enc_kvs_add(&m->m_buf, tag, k->mk_id, k->mk_name, k->mk_horizon);
	if (!err)
		err = append_raw(m, 0);
	if (!err)
		err = put_leaves(m, k);
	for (i = 0; i < k->mk_nrun && !err; i++) {
		const struct kv_run_desc *d = &k->mk_run[i];

		if (d->rd_leaf)
			kv_mdc_enc_leaves(&m->m_buf, tag,
					  &(struct kv_mdc_leaves){ .le_kvs = k->mk_id, .le_add = &d,
								   .le_nadd = 1 });
		else
			kv_mdc_enc_edit(&m->m_buf, tag, k->mk_id, d, NULL, 0, NULL, 0);
		err = append_raw(m, 0);
	}
	return err;
}

/* Where the log stands: not part of a manifest, which has its own list of segments. */
static int put_log_state(struct kv_mdc *m)
{
	struct kv_mdc_state *st = &m->m_st;
	struct kv_mdc_incarn in = st->st_inc;
	int err;

	if (m->m_capture)
		return put_seg_parts(m, false, m->m_capture->mp_seg, m->m_capture->mp_nseg);
	if (!in.mi_incarnation)
		return put_seg_parts(m, false, st->st_seg, st->st_nseg);
	in.mi_nsegs = (uint32_t)st->st_nseg;
	err = put_seg_parts(m, true, st->st_seg, st->st_nseg);
	if (err)
		return err;
	kv_mdc_enc_incarn(&m->m_buf, st->st_super.ms_tag, &in);
	return append_raw(m, 0);
}

/* The whole state as records; kv_mdc_fold() over them gives it back. */
static int put_state(struct kv_mdc *m)
{
	struct kv_mdc_state *st = &m->m_st;
	uint64_t tag = st->st_super.ms_tag;
	size_t i, n;
	int err;

	KV_ASSERT_HELD(&m->m_lock);
	kv_mdc_enc_super(&m->m_buf, &st->st_super);
	err = append_raw(m, 0);
	if (!err && st->st_time) {
		kv_mdc_enc_time(&m->m_buf, tag, st->st_time);
		err = append_raw(m, 0);
	}
	if (!err)
		err = put_log_state(m);
	for (i = 0; i < st->st_nkvs && !err; i++)
		err = put_kvs(m, &st->st_kvs[i]);
	if (m->m_capture)
		return err;
	for (i = 0; i < st->st_nckpt && !err; i++) {
		kv_mdc_enc_ckpt_add(&m->m_buf, tag, &st->st_ckpt[i]);
		err = append_raw(m, 0);
	}
	for (i = 0; i < st->st_ngone && !err; i += n) {
		n = st->st_ngone - i < 4096 ? st->st_ngone - i : 4096;
		kv_mdc_enc_gone(&m->m_buf, tag, st->st_gone + i, (uint32_t)n);
		err = append_raw(m, 0);
	}
	return err;
}

/*
 * Dropped objects that are deleted by now need no memory. Blocks that were announced are
 * not there either, until they are committed (RV9).
 */
static void forget_gone(struct kv_mdc *m)
{
	struct kv_mdc_state *st = &m->m_st;
	struct mpool_obj *obj;
	size_t i = 0;
	int err;

	KV_ASSERT_HELD(&m->m_lock);
	if (!CHECK(!m->m_nannounced))
		return;
	while (i < st->st_ngone) {
		err = mpool_obj_open(m->m_db->d_mp, st->st_gone[i], &obj);
		if (!err)
			mpool_obj_close(obj);
		/* what cannot be opened now, for want of memory, is still to be deleted */
		if (err && CHECK(err == -ENOENT))
			st->st_gone[i] = st->st_gone[--st->st_ngone];
		else
			i++;
	}
}

/* Space below for the first @must bytes of each log, and for @wish if there is as much (RV27). */
static int room_below(struct kv_mdc *m, uint64_t must, uint64_t wish)
{
	int err;

	KV_ASSERT_HELD(&m->m_lock);
	KV_ASSERT_OUTSIDE();
	if (m->m_have && must <= m->m_have && wish <= m->m_have)
		return 0;
	err = mpool_mdc_reserve(m->m_log, must, wish, &m->m_have);
	if (err)
		kv_error_mpool(err);
	if (err == -EROFS)
		kv_fail(m->m_db, err, "metadata container: %s", kvdb_error_detail()->text);
	return err;
}

/* It was made for its pool, and stays as it is. */
static int no_room(struct kv_mdc *m)
{
	uint64_t used, cap = 0;

	mpool_mdc_space(m->m_log, &used, &cap);
	if (m->m_have && m->m_have < cap)
		return kv_error(-ENOSPC, "MP0955",
				"the file system below is full: the metadata container has space "
				"for %llu of %llu bytes: free space there, or delete data",
				(unsigned long long)m->m_have, (unsigned long long)cap);
	return kv_error(-ENOSPC, "MP0955",
			"the metadata container, of %llu bytes, is full of %u segments and their "
			"runs: delete data, open it with a larger segment_bytes or cache_bytes, "
			"or copy it into a new database",
			(unsigned long long)cap, kv_segs_count(m->m_db));
}

static int compact(struct kv_mdc *m)
{
	int err;

	KV_ASSERT(!m->m_capture);
	forget_gone(m);
	m->m_counted = 0;
	err = mpool_mdc_compact_begin(m->m_log);
	if (err == -ENOMEM || err == -EFBIG)
		return err == -ENOMEM ? kv_error_mpool(err) : no_room(m);
	if (err)
		return kv_fail(m->m_db, kv_error_mpool(err), "metadata container: compaction: %s",
			       kvdb_error_detail()->text);
	err = put_state(m);
	if (!err) {
		err = mpool_mdc_compact_end(m->m_log);
		if (err)
			kv_error_mpool(err);
	}
	/* the log that counts is as it was: later, when there is memory, or less to write */
	if ((err == -ENOMEM || err == -EFBIG) && !mpool_mdc_compact_abort(m->m_log))
		return err == -ENOMEM ? err : no_room(m);
	/* appends now go to a log that never became the valid one */
	if (err)
		return kv_fail(m->m_db, err, "metadata container: compaction: %s",
			       kvdb_error_detail()->text);
	return 0;
}

/* An open reads all of it: so it does not get long because there is room. */
static bool is_long(const struct kv_mdc *m, uint64_t used)
{
	return used > LOG_LONG && used / 4 > kv_mdc_state_bytes(&m->m_st);
}

/* Of each log, for a state that @len bytes come to. */
static uint64_t wish_for(const struct kv_mdc *m, uint64_t len)
{
	uint64_t n = STATES * (kv_mdc_state_bytes(&m->m_st) + len);

	return n > ROOM_FIRST ? n : ROOM_FIRST;
}

/* Makes room for @len bytes more; the record under construction is not touched. */
static int room_for(struct kv_mdc *m, uint64_t len)
{
	struct kv_mdc_buf keep = m->m_buf;
	uint64_t used, cap;
	bool is_full;
	int err;

	KV_ASSERT_HELD(&m->m_lock);
	err = mpool_mdc_space(m->m_log, &used, &cap);
	if (err)
		return kv_error_mpool(err);
	err = room_below(m, 0, 0);
	/* a log that is short beside the state gets longer */
	if (!err && used + len > m->m_have)
		err = room_below(m, 0, wish_for(m, len));
	if (err)
		return err;
	is_full = used + len > m->m_have;
	if (!is_full && !is_long(m, used))
		return 0;
	memset(&m->m_buf, 0, sizeof(m->m_buf));
	err = compact(m);
	kv_mdc_buf_free(&m->m_buf);
	m->m_buf = keep;
	/* there is room: what is only long can wait for memory */
	if (err == -ENOMEM && !is_full)
		return 0;
	if (!err && !mpool_mdc_space(m->m_log, &used, &cap) && used + len > cap)
		err = no_room(m);
	return err ? err : room_below(m, used + len, 0);
}

/* What the state's length is at most: it is less than twice what its records take. */
static uint64_t state_bound(const struct kv_mdc *m, uint64_t used)
{
	if (m->m_counted && used >= m->m_counted_at)
		return m->m_counted + 2 * (used - m->m_counted_at);
	return 2 * used;
}

static uint64_t state_count(struct kv_mdc *m, uint64_t used)
{
	m->m_counted = kv_mdc_state_bytes(&m->m_st);
	m->m_counted_at = used;
	return m->m_counted;
}

/*
 * The state's length, or something above it that goes into @most bytes with @want more: to count
 * it takes long.
 */
static uint64_t state_most(struct kv_mdc *m, uint64_t used, uint64_t want, uint64_t most)
{
	uint64_t n = state_bound(m, used);

	KV_ASSERT_SLOW(n + SLACK >= kv_mdc_state_bytes(&m->m_st));
	return n + want <= most ? n : state_count(m, used);
}

int kv_mdc_make_room(struct kv_mdc *m, uint64_t len)
{
	uint64_t known = m->m_st.st_nseg, n = kv_segs_count(m->m_db), want, used, cap;
	int err = mpool_mdc_space(m->m_log, &used, &cap);

	KV_ASSERT_HELD(&m->m_lock);
	if (err)
		return kv_error_mpool(err);
	n = n > known ? n : known;
	/* those that it does not know, for want of room say, are part of its state from then on */
	want = len + SLACK + (2 * n - known) * SEG_BYTES;
	if (state_most(m, used, want, cap) + want > cap)
		return no_room(m);
	err = room_below(m, 0, 0) ?: room_below(m, state_most(m, used, want, m->m_have) + want, 0);
	return err ? err : room_for(m, want);
}

int kv_mdc_append_here(struct kv_mdc *m, int flags)
{
	struct kvdb *db = m->m_db;
	int err = kv_fault(db);

	KV_ASSERT_HELD(&m->m_lock);
	if (err)
		return kv_error(-EROFS, "MP0963", "the database stopped: %.200s",
				db->d_fault.fa_text);
	if (m->m_buf.mb_err) {
		m->m_buf.mb_err = 0;
		return kv_mdc_no_memory();
	}
	err = append_raw(m, flags);
	/* nothing was written; that a record is too long stops no database either */
	if (err == -EFBIG && is_too_long(m))
		return too_long(m, -ENOSPC);
	if (err == -EFBIG)
		return no_room(m);
	if (err) {
		kv_fail(db, err, "metadata container: append: %s", kvdb_error_detail()->text);
		/* -EROFS: of a pool that had stopped before */
		return err == -ENOMEM || err == -EROFS ? err : kv_error_unknown(db);
	}
	m->m_st.st_waits = db;
	err = kv_mdc_fold(&m->m_st, m->m_buf.mb_p, m->m_buf.mb_len);
	if (!err)
		return 0;
	if (err < 0)
		kv_fail(db, err, "metadata container: no memory for what was written");
	else
		kv_fail(db, -EUCLEAN, "metadata container: own record refused (check %d)", err);
	return kv_error_unknown(db);
}

int kv_mdc_append(struct kv_mdc *m, int flags)
{
	int err = kv_fault(m->m_db) || m->m_buf.mb_err ? 0 : kv_mdc_make_room(m, m->m_buf.mb_len);

	KV_ASSERT_HELD(&m->m_lock);
	return err ? err : kv_mdc_append_here(m, flags);
}

int kv_mdc_append_spare(struct kv_mdc *m, int flags)
{
	int err = kv_fault(m->m_db) || m->m_buf.mb_err ? 0 :
		  room_for(m, m->m_buf.mb_len + 2 * KV_BLOCK);

	KV_ASSERT_HELD(&m->m_lock);
	return err ? err : kv_mdc_append_here(m, flags);
}

int kv_mdc_append_time(struct kv_mdc *m, int flags)
{
	struct kvdb *db = m->m_db;
	uint64_t ms = kv_time_ms(db);

	KV_ASSERT_HELD(&m->m_lock);
	if (!atomic_load(&db->d_time.et_used) || ms <= m->m_st.st_time)
		return 0;
	kv_mdc_enc_time(&m->m_buf, db->d_ident.id_tag, ms);
	return kv_mdc_append_spare(m, flags);
}

int kv_mdc_time(struct kvdb *db)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	pthread_mutex_lock(&m->m_lock);
	err = kv_mdc_append_time(m, BARRIER(MPOOL_SYNC));
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

/* In front of the first record that asks for it, so never after what needs it. m_lock. */
static int append_feature(struct kv_mdc *m, uint32_t bit, int flags)
{
	KV_ASSERT_HELD(&m->m_lock);
	if (m->m_st.st_super.ms_incompat & bit)
		return 0;
	kv_mdc_enc_features(&m->m_buf, m->m_db->d_ident.id_tag, bit);
	return kv_mdc_append(m, flags);
}

/* Durable, unless @flags say less. */
static int allow(struct kvdb *db, uint32_t bit, int flags)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	if (atomic_load_explicit(&m->m_allows, memory_order_acquire) & bit)
		return 0;
	pthread_mutex_lock(&m->m_lock);
	err = append_feature(m, bit, flags);
	if (!err)
		atomic_fetch_or_explicit(&m->m_allows, bit, memory_order_release);
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

int kv_mdc_allow_large(struct kvdb *db)
{
	return allow(db, KV_FEAT_LARGE, BARRIER(MPOOL_SYNC));
}

int kv_mdc_allow_txn_ranges(struct kvdb *db)
{
	return allow(db, KV_FEAT_TXN_RANGES, BARRIER(MPOOL_SYNC));
}

int kv_mdc_allow_txn_parts(struct kvdb *db)
{
	return allow(db, KV_FEAT_TXN_PARTS, BARRIER(MPOOL_SYNC));
}

/* What the values of the options need of any program that opens the database. */
static int append_needs(struct kv_mdc *m, const struct kv_props *p)
{
	return p->pr_val[KV_PROP_COMPRESS] ? append_feature(m, KV_FEAT_PACKED, 0) : 0;
}

int kv_mdc_kvs_add(struct kvdb *db, uint32_t id, const char *name, uint64_t horizon,
		   const struct kv_props *props)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	pthread_mutex_lock(&m->m_lock);
	/*
	 * The options come first and count from the store's own record on. Both go into one
	 * log: a compaction between them would drop what waits. An earlier creation that was
	 * cut may have left options for this id.
	 */
	if (props->pr_val[KV_PROP_TTL])
		atomic_store(&db->d_time.et_used, true);
	err = kv_mdc_append_time(m, 0);
	if (!err)
		err = append_needs(m, props);
	if (!err && !kv_fault(db))
		err = kv_mdc_make_room(m, 4 * KV_BLOCK);
	if (!err && (!kv_props_are_default(props) || m->m_st.st_prop_kvs)) {
		kv_mdc_enc_kvs_prop(&m->m_buf, db->d_ident.id_tag, id, props, KV_PROP_ALL);
		err = kv_mdc_append_here(m, 0);
	}
	if (!err) {
		kv_mdc_enc_kvs_add(&m->m_buf, db->d_ident.id_tag, id, name, horizon);
		err = kv_mdc_append_here(m, BARRIER(MPOOL_SYNC));
	}
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

int kv_mdc_kvs_prop(struct kvdb *db, uint32_t id, const struct kv_props *props, uint32_t which)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	pthread_mutex_lock(&m->m_lock);
	if (kv_mdc_state_kvs(&m->m_st, id)) {
		if (props->pr_val[KV_PROP_TTL])
			atomic_store(&db->d_time.et_used, true);
		err = kv_mdc_append_time(m, 0);
		if (!err)
			err = append_needs(m, props);
		kv_mdc_enc_kvs_prop(&m->m_buf, db->d_ident.id_tag, id, props, which);
		if (!err)
			err = kv_mdc_append(m, BARRIER(MPOOL_SYNC));
	} else {
		err = kv_error(-ENOENT, "MP0965", "store %u was dropped", id);
	}
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

int kv_mdc_kvs_drop(struct kvdb *db, uint32_t id)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	pthread_mutex_lock(&m->m_lock);
	kv_mdc_enc_kvs_drop(&m->m_buf, db->d_ident.id_tag, id);
	err = kv_mdc_append_spare(m, BARRIER(MPOOL_SYNC));
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

int kv_mdc_kvs_rename(struct kvdb *db, uint32_t id, const char *name)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	pthread_mutex_lock(&m->m_lock);
	kv_mdc_enc_kvs_rename(&m->m_buf, db->d_ident.id_tag, id, name);
	err = kv_mdc_append_spare(m, BARRIER(MPOOL_SYNC));
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

int kv_mdc_incarn(struct kvdb *db, const struct kv_mdc_incarn *in, const struct kv_mdc_seg *seg,
		  uint32_t n)
{
	struct kv_mdc *m = db->d_mdc;
	struct kv_mdc_incarn rec = *in;
	uint32_t i, k, part = 0;
	int err;

	rec.mi_nsegs = n;
	pthread_mutex_lock(&m->m_lock);
	KV_ASSERT(rec.mi_incarnation > m->m_st.st_inc.mi_incarnation && rec.mi_d <= rec.mi_epoch);
	/*
	 * All parts and the record into one log: a compaction between them would drop those
	 * before it. Blocks and their frames take a little more than the bytes.
	 */
	err = room_for(m, (uint64_t)n * SEG_BYTES + (n / KV_MDC_PART + 2) * 2ull * KV_BLOCK);
	for (i = 0; i < n && !err; i += k) {
		k = n - i < KV_MDC_PART ? n - i : KV_MDC_PART;
		kv_mdc_enc_segs(&m->m_buf, db->d_ident.id_tag, true, part++, seg + i, k);
		err = kv_mdc_append_here(m, 0);
	}
	if (!err) {
		kv_mdc_enc_incarn(&m->m_buf, db->d_ident.id_tag, &rec);
		err = kv_mdc_append_here(m, BARRIER(MPOOL_SYNC));
	}
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

int kv_mdc_segs(struct kvdb *db, const struct kv_mdc_seg *seg, uint32_t n)
{
	struct kv_mdc *m = db->d_mdc;
	uint32_t i, k;
	int err = 0;

	pthread_mutex_lock(&m->m_lock);
	for (i = 0; i < n && !err; i += k) {
		k = n - i < KV_MDC_PART ? n - i : KV_MDC_PART;
		KV_ASSERT(seg[i].sc_obj && seg[i].sc_len % KV_BLOCK == 0);
		kv_mdc_enc_segs(&m->m_buf, db->d_ident.id_tag, false, 0, seg + i, k);
		err = kv_mdc_append(m, 0);
	}
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

int kv_mdc_gone(struct kvdb *db, const uint64_t *id, uint32_t n)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	pthread_mutex_lock(&m->m_lock);
	kv_mdc_enc_gone(&m->m_buf, db->d_ident.id_tag, id, n);
	err = kv_mdc_append_spare(m, 0);
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

void kv_mdc_segs_gone(struct kvdb *db, uint64_t *id, size_t n)
{
	struct kv_mdc *m = db->d_mdc;

	kv_ids_sort(id, n);
	pthread_mutex_lock(&m->m_lock);
	kv_mdc_state_segs_del(&m->m_st, id, n);
	pthread_mutex_unlock(&m->m_lock);
}

int kv_mdc_clean(struct kvdb *db, uint64_t epoch)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	pthread_mutex_lock(&m->m_lock);
	err = kv_mdc_append_time(m, 0);
	kv_mdc_enc_clean(&m->m_buf, db->d_ident.id_tag, epoch, atomic_load(&db->d_epochs.ep_seq));
	if (!err)
		err = kv_mdc_append_spare(m, BARRIER(MPOOL_SYNC));
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

int kv_mdc_capture(struct kvdb *db, struct kv_mdc_capture *cap)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	pthread_mutex_lock(&m->m_lock);
	KV_ASSERT(!m->m_capture);
	m->m_capture = cap;
	err = put_state(m);
	m->m_capture = NULL;
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

int kv_mdc_ckpt_add(struct kvdb *db, const struct kv_mdc_ckpt *c)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	pthread_mutex_lock(&m->m_lock);
	kv_mdc_enc_ckpt_add(&m->m_buf, db->d_ident.id_tag, c);
	err = kv_mdc_append(m, BARRIER(MPOOL_SYNC));
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

int kv_mdc_ckpt_drop(struct kvdb *db, uint64_t obj)
{
	struct kv_mdc *m = db->d_mdc;
	int err;

	pthread_mutex_lock(&m->m_lock);
	kv_mdc_enc_ckpt_drop(&m->m_buf, db->d_ident.id_tag, obj);
	err = kv_mdc_append_spare(m, BARRIER(MPOOL_SYNC));
	pthread_mutex_unlock(&m->m_lock);
	return err;
}
