/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Making a checkpoint, C1 and C2 of meta/ckpt.c: a boundary, a flush up to it, the captured state
 * with its pins, the manifest, the record that names it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/vec.h"
#include "db/db.h"
#include "seg/seg.h"
#include "meta/ckpt.h"
#include "meta/ckpt_omf.h"
#include "meta/mdc.h"
#include "background/work.h"

#define WRITE_PIECE	(1u << 20)
#define NSEC		1000000000ull

/* With m_ddl_lock held no store comes or goes. Locks of one kind are taken in order of slots. */
static void edits_lock(struct kvdb *db)
{
	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++)
		if (db->d_stores.sr_kvs[i])
			pthread_mutex_lock(&db->d_stores.sr_kvs[i]->k_edit_lock);
}

static void edits_unlock(struct kvdb *db)
{
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++)
		if (db->d_stores.sr_kvs[i]) {
			KV_ASSERT_HELD(&db->d_stores.sr_kvs[i]->k_edit_lock);
			pthread_mutex_unlock(&db->d_stores.sr_kvs[i]->k_edit_lock);
		}
}

struct seg_list {
	struct kv_mdc_seg *sl_seg;
	size_t sl_n;
	uint32_t sl_cap;
	int sl_err;
};

static void note_seg(void *arg, struct kv_seg *s)
{
	struct seg_list *sl = arg;

	if (!atomic_load(&s->sg_runs))
		return;
	if (kv_vec_grow(&sl->sl_seg, &sl->sl_cap, sl->sl_n + 1, sizeof(sl->sl_seg[0]))) {
		sl->sl_err = -ENOMEM;
		return;
	}
	sl->sl_seg[sl->sl_n++] = (struct kv_mdc_seg){
		.sc_obj = s->sg_id, .sc_last = atomic_load(&s->sg_last_epoch),
		.sc_len = atomic_load(&s->sg_end),
	};
}

static int by_obj(const void *a, const void *b)
{
	uint64_t x = ((const struct kv_mdc_seg *)a)->sc_obj;
	uint64_t y = ((const struct kv_mdc_seg *)b)->sc_obj;

	return x < y ? -1 : x > y;
}

/*
 * Every segment that a run of a store refers to; k_edit_lock of all held, so sg_runs is that of the
 * trees. Not by their tables, which name a segment in each block that has a value in it.
 */
static int list_segs(struct kvdb *db, struct seg_list *sl)
{
	kv_segs_each(db, note_seg, sl);
	if (sl->sl_n)
		qsort(sl->sl_seg, sl->sl_n, sizeof(sl->sl_seg[0]), by_obj);
	return sl->sl_err;
}

/* The state as records and, C2, its pins, while no edit can change it. */
static int capture(struct kvdb *db, struct kv_mdc_buf *out, const struct kv_mdc_ckpt *rec,
		   struct kv_ckpt **made)
{
	struct kv_mdc_capture cap = { 0 };
	struct kv_mdc_state st = { 0 };
	struct seg_list sl = { 0 };
	int err;

	edits_lock(db);
	err = list_segs(db, &sl);
	cap.mp_seg = sl.sl_seg;
	cap.mp_nseg = sl.sl_n;
	if (!err)
		err = kv_mdc_capture(db, &cap);
	/* what a reader will make of it is what is pinned */
	if (!err && cap.mp_out.mb_len > KV_MANIFEST_MAX / 2)
		err = kv_error(-EFBIG, "MP0982", "a manifest of %zu bytes is too long",
			       cap.mp_out.mb_len);
	if (!err)
		err = kv_manifest_fold(cap.mp_out.mb_p, (uint32_t)cap.mp_out.mb_len, &st);
	if (err > 0)
		err = kv_error(-EUCLEAN, "MP0980", "checkpoint %s: own record refused (check %d)",
			       rec->mc_name, err);
	if (!err)
		err = kv_ckpt_pin(db, rec, &st, made);
	edits_unlock(db);
	kv_mdc_state_free(&st);
	free(sl.sl_seg);
	*out = cap.mp_out;
	return err;
}

static int write_bytes(struct kvdb *db, struct mpool_obj *obj, const uint8_t *p, uint32_t len)
{
	struct mpool_obj_info oi;
	int err = mpool_obj_info(obj, &oi);
	uint32_t off, n;

	KV_ASSERT_OUTSIDE();
	for (off = 0; off < len && !err; off += n) {
		struct iovec v;

		n = len - off < WRITE_PIECE ? len - off : WRITE_PIECE;
		v = (struct iovec){ (void *)(p + off), n };
		err = mpool_write(obj, off, &v, 1);
	}
	if (!err)
		atomic_fetch_add(&db->d_count.meta_bytes[oi.mclass], len);
	return err;
}

struct want {
	struct kvdb *wa_db;
	const struct mpool_alloc *wa_req;
	struct mpool_obj **wa_out;
};

static int manifest_take(void *arg, bool urgent)
{
	struct want *wa = arg;
	int err = mpool_alloc(wa->wa_db->d_mp, wa->wa_req, 1, wa->wa_out);

	(void)urgent;
	return err ? kv_error_mpool(err) : 0;
}

/* R19: it has room made first, as a put. */
static int manifest_alloc(struct kvdb *db, const struct mpool_alloc *req, struct mpool_obj **out)
{
	struct want wa = { db, req, out };
	int err = manifest_take(&wa, false);

	return err == -ENOSPC ? kv_space_take(db, false, manifest_take, &wa) : err;
}

/* Writes and commits the manifest; fills in where it is. */
static int manifest_write(struct kvdb *db, const struct kv_mdc_buf *rec, struct kv_mdc_ckpt *c)
{
	struct kv_manifest mf = { .mf_tag = db->d_ident.id_tag, .mf_epoch = c->mc_epoch,
				  .mf_seq = c->mc_seq, .mf_bytes = (uint32_t)rec->mb_len };
	uint32_t len = (uint32_t)kv_manifest_bytes(rec->mb_len);
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = db->d_mode.md_log_class,
				   .flags = MPOOL_ALLOC_ANY, .capacity = len,
				   .tag = db->d_ident.id_tag };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT, .length = len };
	uint8_t *buf = aligned_alloc(MPOOL_ALIGN, len);
	int err;

	if (!buf)
		return kv_error(-ENOMEM, "MP0902", "no memory for a manifest of %u bytes", len);
	err = manifest_alloc(db, &req, &op.obj);
	if (err) {
		free(buf);
		return err;
	}
	mf.mf_obj = mpool_obj_id(op.obj);
	KV_ASSERT(KV_MANIFEST_HDR + rec->mb_len <= len && len % KV_BLOCK == 0);
	memset(buf, 0, len);
	kv_manifest_encode(&mf, buf);
	memcpy(buf + KV_MANIFEST_HDR, rec->mb_p, rec->mb_len);
	err = write_bytes(db, op.obj, buf, len);
	if (!err)
		err = BARRIER(mpool_batch(db->d_mp, &op, 1));
	c->mc_obj = mf.mf_obj;
	c->mc_len = len;
	c->mc_crc = mpool_crc32c(0, buf, len);
	mpool_obj_close(op.obj);
	free(buf);
	return err ? kv_error_mpool(err) : 0;
}

static uint64_t time_now(struct kvdb *db)
{
	struct timespec ts;

	if (kv_is_manual(db))
		return kv_now(db);	/* a simulation has a time of its own */
	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

struct capture {
	struct kvdb *ca_db;
	struct kv_mdc_buf *ca_buf;
	struct kv_mdc_ckpt *ca_rec;
	struct kv_ckpt **ca_made;
};

/* From the boundary to the captured state; then writers of runs may go on. */
static int freeze_try(void *arg, bool urgent)
{
	struct capture *ca = arg;
	struct kvdb *db = ca->ca_db;
	int err;

	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	(void)urgent;
	kv_mdc_buf_free(ca->ca_buf);
	err = kv_boundary_enter(db, &ca->ca_rec->mc_epoch, &ca->ca_rec->mc_seq);
	if (!err)
		err = kv_boundary_flush(db, ca->ca_rec->mc_epoch);
	if (!err)
		err = capture(db, ca->ca_buf, ca->ca_rec, ca->ca_made);
	kv_boundary_leave(db);
	return err;
}

/* R19: a flush that finds no room has some made, as a put; outside of the boundary's locks. */
static int freeze(struct kvdb *db, struct kv_mdc_buf *buf, struct kv_mdc_ckpt *rec,
		  struct kv_ckpt **made)
{
	struct capture ca = { db, buf, rec, made };
	int err = freeze_try(&ca, false);

	return err == -ENOSPC ? kv_space_take(db, false, freeze_try, &ca) : err;
}

static int create_locked(struct kvdb *db, const char *name)
{
	struct kv_mdc_ckpt rec = { 0 };
	struct kv_mdc_buf buf = { 0 };
	struct kv_ckpt *c;
	int err;

	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	err = kv_ckpt_may_come(db, name);
	if (err)
		return err;
	strncpy(rec.mc_name, name, KVDB_NAME_MAX);
	rec.mc_time_ns = time_now(db);
	err = freeze(db, &buf, &rec, &c);
	if (err) {
		kv_mdc_buf_free(&buf);
		return err;
	}
	err = manifest_write(db, &buf, &rec);
	kv_mdc_buf_free(&buf);
	kv_ckpt_set(db, c, &rec);
	if (!err)
		err = kv_mdc_ckpt_add(db, &rec);
	if (err)
		kv_ckpt_unpin(db, c);
	else
		kv_ckpt_show(db, c);
	return err;
}

int kvdb_checkpoint(struct kvdb *db, const char *name, unsigned flags)
{
	int err;

	if (flags)
		return kv_error(-EINVAL, "MP0951", "checkpoint flags %#x are not known", flags);
	if (!kv_name_is_ok(name))
		return kv_error(-EINVAL, "MP0951",
				"a checkpoint's name has 1 to %u of A-Z a-z 0-9 . _ - and begins "
				"with none of . -",
				KVDB_NAME_MAX);
	err = kv_may_change(db);
	if (err)
		return err;
	pthread_mutex_lock(&db->d_mdc->m_ddl_lock);
	err = create_locked(db, name);
	pthread_mutex_unlock(&db->d_mdc->m_ddl_lock);
	return kv_error_memory(err, "a checkpoint");
}
