/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Bulk load of sorted input: values go into log segments of their own as
 * ordinary frames and records, keys into runs of a leaf's keys each, and one
 * version edit makes them appear. Nothing passes through logs or memtables.
 *
 * Invariants B1, B2, B3, B4, B5: README.md.
 *
 * Its stamp is that of the boundary: views from then on may see it, older ones
 * do not. A bulk load belongs to one thread at a time; no lock of its own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/key.h"
#include "base/vec.h"
#include "db/bell.h"
#include "db/etime.h"
#include "db/mem_wait.h"
#include "db/policy.h"
#include "db/thread.h"
#include "db/waits.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "log/flush.h"
#include "meta/edit.h"
#include "meta/mdc.h"
#include "meta/upkeep.h"
#include "compact/merge.h"
#include "compact/reloc.h"
#include "background/work.h"

#define FRAME_FULL	(1u << 20)	/* bytes at which a frame is written */
#define SEGS_EQUAL	8u	/* segments of one size, before they are larger */
#define RUNS_MOST	(KV_LEAVES_MAX / 2)	/* the last one has the rest */
#define EDIT_MOST	(KV_MDC_REC_MAX / 2)	/* bytes; the same */

/* A run that is complete. */
struct bulk_run {
	struct kv_run *br_run;
	struct kv_leaf *br_leaf;	/* that begins with it */
};

struct kvdb_bulk {
	struct kvdb_kvs *b_kvs;
	uint64_t b_seq, b_pos;
	int b_err;			/* sticky: it can only be aborted */
	bool b_has_asked;		/* for room */
	uint64_t b_keys;
	struct kv_run_build *b_build;
	uint64_t b_build_keys;		/* of it */
	struct kv_leaf *b_leaf;		/* that begins with it; NULL before its first key */
	struct bulk_run *b_run;		/* the runs before it */
	uint32_t b_nrun, b_runcap;
	uint64_t b_edit;		/* bytes that they take in the edit */
	uint8_t *b_frame;		/* KV_FRAME_MAX, the frame under construction */
	uint32_t b_len, b_nrec;		/* of it; 0 = none */
	struct kv_seg *b_seg;		/* the last of b_segs, or NULL */
	uint32_t b_off;			/* where the frame goes in it */
	struct kv_seg **b_segs;		/* all, with references */
	size_t b_nsegs;
	uint32_t b_cap;
	uint16_t b_last_len;
	uint8_t b_last[KVDB_KEY_MAX];	/* the key added last */
};

/* ---- segments -------------------------------------------------------------------------- */

static uint32_t align_block(uint32_t n)
{
	return (n + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
}

/* Writes the frame, if there is one. */
static int frame_write(struct kvdb_bulk *b)
{
	struct kvdb *db = b->b_kvs->k_db;
	struct kv_seg *s = b->b_seg;
	uint32_t bytes = align_block(b->b_len);
	struct kv_frame_hdr h = {
		.fh_incarnation = db->d_ident.id_incarnation, .fh_stream = KV_VLOG,
		.fh_tag = (uint32_t)db->d_ident.id_tag, .fh_epoch = KV_BULK_EPOCH,
		.fh_len = b->b_len, .fh_nrec = b->b_nrec, .fh_off = b->b_off,
	};
	struct iovec v = { b->b_frame, bytes };
	uint64_t began;
	int err;

	if (!b->b_len)
		return 0;
	KV_ASSERT(b->b_off % KV_BLOCK == 0);
	KV_ASSERT(b->b_off + (uint64_t)bytes <= s->sg_bytes);
	h.fh_obj = s->sg_id;
	h.fh_chain = s->sg_chain;
	memset(b->b_frame + b->b_len, 0, bytes - b->b_len);
	h.fh_payload_crc = mpool_crc32c(0, b->b_frame + KV_FRAME_HDR, b->b_len - KV_FRAME_HDR);
	kv_frame_encode(&h, b->b_frame, &s->sg_chain);
	began = kv_wait_begin();
	err = mpool_write(s->sg_obj, b->b_off, &v, 1);
	kv_wait_end(KVDB_DELAY_MEDIA, began);
	if (err)
		return kv_error_mpool(err);
	atomic_fetch_add(&db->d_count.log_bytes[s->sg_mclass], bytes);
	b->b_off += bytes;
	b->b_len = 0;
	b->b_nrec = 0;
	return 0;
}

static int seg_end(struct kvdb_bulk *b)
{
	int err = frame_write(b);

	if (b->b_seg)
		kv_seg_close_cold(b->b_kvs->k_db, b->b_seg, err ? 0 : b->b_off);
	b->b_seg = NULL;
	return err;
}

/*
 * A load is no log: where values of the store would leave staging they are not put there first, and
 * what is large gets segments as large as those of values that moved, as long as capacity has room
 * for them. Small staging makes the logs' small, and so many of them are more than a pool describes.
 */
static int seg_alloc(struct kvdb_bulk *b, uint32_t bytes)
{
	struct kvdb *db = b->b_kvs->k_db;
	size_t more = b->b_nsegs / SEGS_EQUAL;
	uint32_t large;
	unsigned n = 1;
	int err;

	if (db->d_mode.md_log_class == MPOOL_CAPACITY ||
	    kv_policy_move_class(db, b->b_kvs, false) != MPOOL_CAPACITY)
		return kv_seg_alloc(db, 0, KV_VLOG, bytes, false, &b->b_seg);
	bytes = (bytes + 0xffffu) & ~0xffffu;
	large = bytes;
	while (more-- && large <= db->d_budget.b_move_bytes / 2)
		large *= 2;
	err = kv_segs_alloc_moved(db, MPOOL_CAPACITY, large > bytes, false, large, &n, &b->b_seg);
	if (err != -ENOSPC || large == bytes)
		return err;
	n = 1;
	return kv_segs_alloc_moved(db, MPOOL_CAPACITY, false, false, bytes, &n, &b->b_seg);
}

struct want {
	struct kvdb_bulk *wa_bulk;
	uint32_t wa_bytes;
};

static int seg_take(void *arg, bool urgent)
{
	struct want *wa = arg;

	(void)urgent;
	return seg_alloc(wa->wa_bulk, wa->wa_bytes);
}

/* R19: as for a put, once: a load writes no log that would tell whether more has died since. */
static int seg_get(struct kvdb_bulk *b, uint32_t bytes)
{
	struct want wa = { b, bytes };
	int err = seg_take(&wa, false);

	if (err != -ENOSPC || b->b_has_asked)
		return err;
	b->b_has_asked = true;
	return kv_space_take(b->b_kvs->k_db, false, seg_take, &wa);
}

static int seg_begin(struct kvdb_bulk *b, uint32_t rec)
{
	struct kvdb *db = b->b_kvs->k_db;
	uint32_t bytes = db->d_budget.b_seg_bytes, need = align_block(KV_FRAME_HDR + rec);
	int err;

	KV_ASSERT(!b->b_seg && !b->b_len);
	if (kv_vec_grow(&b->b_segs, &b->b_cap, b->b_nsegs + 1, sizeof(b->b_segs[0])))
		return -ENOMEM;
	err = seg_get(b, need > bytes ? need : bytes);
	if (err)
		return err;
	b->b_segs[b->b_nsegs++] = b->b_seg;
	b->b_off = 0;
	b->b_seg->sg_chain = 0;
	atomic_store(&b->b_seg->sg_first_epoch, KV_BULK_EPOCH);
	atomic_store(&b->b_seg->sg_last_epoch, KV_BULK_EPOCH);
	return 0;
}

/* A place for a record of @rec bytes in the frame under construction. */
static int frame_room(struct kvdb_bulk *b, uint32_t rec)
{
	int err = 0;

	if (b->b_len && b->b_len + rec > FRAME_FULL)
		err = frame_write(b);
	if (!err && b->b_seg &&
	    align_block((b->b_len ? b->b_len : KV_FRAME_HDR) + rec) > b->b_seg->sg_bytes - b->b_off)
		err = seg_end(b);
	if (!err && !b->b_seg)
		err = seg_begin(b, rec);
	if (!err && !b->b_len)
		b->b_len = KV_FRAME_HDR;
	return err;
}

/* Puts the record into the frame; fills in where its value will be. */
static int value_add(struct kvdb_bulk *b, struct kv_ent *e, const void *val)
{
	uint32_t rec = kv_rec_size(e->e_klen, e->e_vlen) + (e->e_expiry ? KV_REC_EXPIRY : 0);
	int err = frame_room(b, rec);

	if (err)
		return err;
	KV_ASSERT(b->b_len + (uint64_t)rec <= KV_FRAME_MAX && b->b_len % KV_REC_ALIGN == 0);
	kv_rec_encode(b->b_frame + b->b_len, KV_REC_PUT, (uint16_t)b->b_kvs->k_id, e->e_key,
		      e->e_klen, val, e->e_vlen, e->e_vcrc);
	if (e->e_expiry)
		kv_rec_set_expiry(b->b_frame + b->b_len, e->e_expiry);
	kv_rec_stamp(b->b_frame + b->b_len, b->b_seg->sg_id, b->b_off + b->b_len, e->e_seq);
	e->e_seg = b->b_seg;
	e->e_off8 = (b->b_off + b->b_len + kv_rec_val_off(e->e_klen)) / 8;
	b->b_len += rec;
	b->b_nrec++;
	return 0;
}

/* ---- open ------------------------------------------------------------------------------------ */

static int busy(const struct kvdb_kvs *kvs)
{
	return kv_error(-EBUSY, "MP0986", "store %s has a bulk load already", kvs->k_name);
}

/* B2: every horizon covers epoch 1. No thread flushes; no memtable holds an epoch <= @e. */
static int horizons_push(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t e)
{
	struct kv_horizon hor[KVDB_KVS_MAX];
	struct kv_edit ed = { .ed_kvs = kvs->k_id, .ed_hor = hor };
	uint32_t i;

	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	KV_ASSERT(e >= KV_BULK_EPOCH);	/* B2 */
	for (i = 0; i < KVDB_KVS_MAX; i++)
		if (db->d_stores.sr_kvs[i])
			hor[ed.ed_nhor++] = (struct kv_horizon){ db->d_stores.sr_kvs[i]->k_id, e };
	return kv_mdc_edit(db, &ed);
}

static int flush_store(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t e)
{
	int r = 1;

	while (r > 0)
		r = kv_flush_oldest(db, kvs, e);
	return r;
}

/* B1: everything older is in runs, and the place above them is ours. */
static int place_try(void *arg, bool urgent)
{
	struct kvdb_bulk *b = arg;
	struct kvdb_kvs *kvs = b->b_kvs;
	struct kvdb *db = kvs->k_db;
	uint64_t e;
	uint32_t i;
	int err = kv_boundary_enter(db, &e, &b->b_seq);

	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	(void)urgent;
	if (!err)
		err = flush_store(db, kvs, e);
	if (!err && !kv_min_horizon(db)) {
		for (i = 0; i < KVDB_KVS_MAX && !err; i++)
			if (db->d_stores.sr_kvs[i])
				err = flush_store(db, db->d_stores.sr_kvs[i], e);
		if (!err)
			err = horizons_push(db, kvs, e);
	}
	if (!err) {
		pthread_mutex_lock(&kvs->k_edit_lock);
		b->b_pos = kvs->k_next_pos;
		kvs->k_next_pos += RUNS_MOST;
		pthread_mutex_unlock(&kvs->k_edit_lock);
	}
	kv_boundary_leave(db);
	return err;
}

/* R19: a flush that finds no room has some made, as a put; outside of the boundary's locks. */
static int place_take(struct kvdb *db, struct kvdb_bulk *b)
{
	int err = place_try(b, false);

	return err == -ENOSPC ? kv_space_take(db, false, place_try, b) : err;
}

static void bulk_free(struct kvdb_bulk *b)
{
	struct kvdb *db = b->b_kvs->k_db;

	KV_ASSERT(atomic_load(&b->b_kvs->k_bulk));
	for (uint32_t i = 0; i < b->b_nrun; i++)
		kv_leaf_put(b->b_run[i].br_leaf);
	kv_leaf_put(b->b_leaf);
	free(b->b_run);
	while (b->b_nsegs)
		kv_seg_put(db, b->b_segs[--b->b_nsegs]);
	atomic_store(&b->b_kvs->k_bulk, false);
	KV_ASSERT(atomic_load(&b->b_kvs->k_cursors));
	atomic_fetch_sub(&b->b_kvs->k_cursors, 1);
	free(b->b_segs);
	free(b->b_frame);
	free(b);
	kv_reloc_let_go(db);
	kv_work_kick(db);
}

static int bulk_begin(struct kvdb *db, struct kvdb_bulk *b)
{
	int err;

	/* merges that began before; none begins from now on */
	while (kv_merge_is_busy(b->b_kvs))
		kv_sleep_ms();
	pthread_mutex_lock(&db->d_mdc->m_ddl_lock);
	err = place_take(db, b);
	pthread_mutex_unlock(&db->d_mdc->m_ddl_lock);
	if (!err)
		err = kv_run_build_open(db, b->b_kvs->k_id, 0, false, &b->b_build);
	return err;
}

int kvdb_bulk_open(struct kvdb_kvs *kvs, unsigned flags, struct kvdb_bulk **out)
{
	struct kvdb *db = kvs->k_db;
	struct kvdb_bulk *b;
	bool none = false;
	int err;

	if (flags)
		return kv_error(-EINVAL, "MP0951", "bulk load flags %#x are not known", flags);
	err = kv_may_change(db);
	if (!err)
		err = kv_error_dropped(kvs);
	if (err)
		return err;
	if (!atomic_compare_exchange_strong(&kvs->k_bulk, &none, true))
		return busy(kvs);
	b = calloc(1, sizeof(*b));
	if (!b || posix_memalign((void **)&b->b_frame, MPOOL_ALIGN, KV_FRAME_MAX)) {
		free(b);
		atomic_store(&kvs->k_bulk, false);
		return kv_error_memory(-ENOMEM, "a bulk load");
	}
	err = kv_kvs_use(kvs);
	if (err) {
		free(b->b_frame);
		free(b);
		atomic_store(&kvs->k_bulk, false);
		return err;
	}
	b->b_kvs = kvs;
	err = bulk_begin(db, b);
	if (err) {
		bulk_free(b);
		return kv_error_memory(err, "a bulk load");
	}
	*out = b;
	return 0;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* The run under construction is complete; the next one begins with the next key. */
static int run_end(struct kvdb_bulk *b)
{
	struct kv_run *r = NULL;
	int err = kv_vec_grow(&b->b_run, &b->b_runcap, b->b_nrun + 1, sizeof(b->b_run[0]));

	KV_ASSERT(b->b_nrun < RUNS_MOST);
	if (err) {
		kv_run_build_abort(b->b_build);
		b->b_build = NULL;
		return err;
	}
	err = kv_run_build_finish(b->b_build, &r);	/* a failure frees it */
	b->b_build = NULL;
	if (err || !r)
		return err;
	b->b_edit += KV_MDC_RUN_BYTES + 16ull * r->rn_n;
	b->b_edit += KV_MDC_LEAF_BYTES + (b->b_leaf ? b->b_leaf->lf_klen : 0);
	b->b_run[b->b_nrun++] = (struct bulk_run){ r, b->b_leaf };
	b->b_leaf = NULL;
	b->b_build_keys = 0;
	return 0;
}

/* B5: before a key is added. */
static int run_for(struct kvdb_bulk *b, const void *key, size_t klen)
{
	struct kvdb *db = b->b_kvs->k_db;
	int err = 0;

	if (b->b_build_keys >= atomic_load(&db->d_budget.b_leaf_keys) &&
	    b->b_nrun + 1 < RUNS_MOST && b->b_edit < EDIT_MOST)
		err = run_end(b);
	if (!err && !b->b_build)
		err = kv_run_build_open(db, b->b_kvs->k_id, 0, false, &b->b_build);
	if (!err && !b->b_build_keys) {
		/* LF1: the first leaf has no smallest key, others the shortest that divides */
		klen = b->b_nrun ? kv_klcp(b->b_last, b->b_last_len, key, klen) + 1 : 0;
		b->b_leaf = kv_leaf_new(key, klen);
		err = b->b_leaf ? 0 : -ENOMEM;
	}
	return err;
}

/* What was made and is not shown goes; after a failure it is unknown what is listed. */
static void runs_drop(struct kvdb_bulk *b)
{
	struct kvdb *db = b->b_kvs->k_db;

	for (uint32_t i = 0; i < b->b_nrun; i++) {
		if (!kv_fault(db))
			kv_run_drop(b->b_run[i].br_run);
		kv_run_put(db, b->b_run[i].br_run);
	}
}

/* ---- add, finish --------------------------------------------------------------------------- */

static int check_record(struct kvdb_bulk *b, const void *key, size_t klen, const void *val,
			size_t vlen)
{
	const char *name = b->b_kvs->k_name;

	if (!key || !klen)
		return kv_error(-EINVAL, "MP0910", "%s: a key has at least 1 byte", name);
	if (klen > KVDB_KEY_MAX)
		return kv_error(-ENAMETOOLONG, "MP0911", "%s: key of %zu bytes; the longest is %u",
				name, klen, KVDB_KEY_MAX);
	if (!val && vlen)
		return kv_error(-EINVAL, "MP0913", "%s: a value of %zu bytes at NULL", name, vlen);
	if (vlen > KVDB_VALUE_MAX)
		return kv_error(-E2BIG, "MP0912", "%s: value of %zu bytes; the longest is %u", name,
				vlen, KVDB_VALUE_MAX);
	if (b->b_keys && kv_kcmp(b->b_last, b->b_last_len, key, klen) >= 0)
		return kv_error(-EINVAL, "MP0985",
				"%s: key %llu of the bulk load is not greater than the one before",
				name, (unsigned long long)b->b_keys + 1);
	return 0;
}

static int record_add(struct kvdb_bulk *b, const void *key, size_t klen, const void *val,
		      size_t vlen)
{
	struct kv_ent e = { .e_key = key, .e_klen = (uint16_t)klen, .e_vlen = (uint32_t)vlen,
			    .e_val = val, .e_seq = b->b_seq,
			    .e_kind = vlen > KV_INLINE_MAX ? KV_ENT_REF : KV_ENT_INLINE };
	struct kvdb *db = b->b_kvs->k_db;
	uint64_t ttl_s;
	int err = kv_may_change(db);

	if (!err && vlen > KV_VALUE_PLAIN)
		err = kv_mdc_allow_large(db);
	if (err)
		return err;
	e.e_vcrc = mpool_crc32c(0, val, vlen);
	ttl_s = atomic_load_explicit(&b->b_kvs->k_prop[KV_PROP_TTL], memory_order_relaxed);
	if (ttl_s)
		e.e_expiry = kv_expiry(db, ttl_s);
	if (e.e_kind == KV_ENT_REF)
		err = value_add(b, &e, val);
	if (!err)
		err = run_for(b, key, klen);
	if (!err)
		err = kv_run_build_add(b->b_build, &e);
	b->b_build_keys += !err;
	return err;
}

int kvdb_bulk_add(struct kvdb_bulk *b, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct kv_tctx *tc;
	int err = check_record(b, key, klen, val, vlen);

	if (err)
		return err;
	if (b->b_err)
		return kv_error(b->b_err, "MP0993", "%s: the bulk load has failed",
				b->b_kvs->k_name);
	err = record_add(b, key, klen, val, vlen);
	if (err) {
		b->b_err = err;
		return kv_error_memory(err, "a bulk load");
	}
	memcpy(b->b_last, key, klen);
	b->b_last_len = (uint16_t)klen;
	b->b_keys++;
	tc = kv_tctx(b->b_kvs->k_db);
	if (tc) {
		kv_count(&tc->tc_user_bytes, klen + vlen);
		kv_count(&tc->tc_puts, 1);
	}
	return 0;
}

void kvdb_bulk_abort(struct kvdb_bulk *b)
{
	if (!b)
		return;
	if (b->b_build)
		kv_run_build_abort(b->b_build);
	runs_drop(b);
	/* nothing of them is referred to: they need no seal, which would wait for more of them */
	for (size_t i = 0; i < b->b_nsegs; i++)
		kv_seg_abandon(b->b_kvs->k_db, b->b_segs[i], 0);
	bulk_free(b);
}

/*
 * B5: a leaf for each run, or in a store that has older runs but no leaves one that has all keys:
 * the runs spill into it as into those of others. Returns how many begin. k_edit_lock held.
 */
static unsigned int leaves(struct kvdb_bulk *b, struct kv_leaf **begin)
{
	struct kv_tree *tr = kv_tree_get(b->b_kvs);
	unsigned int most = b->b_nrun < 2 || tr->tr_nleaf ? 0 : b->b_nrun, n = 0;
	bool are_homes = true;

	KV_ASSERT_HELD(&b->b_kvs->k_edit_lock);
	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		are_homes &= kv_run_desc(tr->tr_run[i])->rd_pos > b->b_pos;
	kv_tree_put(b->b_kvs->k_db, tr);
	while (n < most && (are_homes || !n)) {
		struct kv_leaf *lf = b->b_run[n].br_leaf;

		lf->lf_id = atomic_fetch_add(&b->b_kvs->k_db->d_runs.ru_next, 1);
		if (are_homes)
			kv_run_desc(b->b_run[n].br_run)->rd_leaf = lf->lf_id;
		begin[n++] = lf;
	}
	return n;
}

/* One edit; the tree shows what is durable. */
static int publish(struct kvdb_bulk *b, struct kv_run **add, struct kv_leaf **begin)
{
	struct kvdb_kvs *kvs = b->b_kvs;
	struct kvdb *db = kvs->k_db;
	struct kv_edit ed = { .ed_kvs = kvs->k_id, .ed_add = add, .ed_nadd = b->b_nrun,
			      .ed_begin = begin };
	int err;

	/* C1: between a checkpoint's boundary and its capture it would be in it without its past */
	pthread_mutex_lock(&kvs->k_flush_lock);
	err = kv_change_sync(db);	/* B4 */
	pthread_mutex_lock(&kvs->k_edit_lock);
	for (uint32_t i = 0; i < b->b_nrun; i++) {
		struct kv_run_desc *d = kv_run_desc(b->b_run[i].br_run);

		d->rd_id = atomic_fetch_add(&db->d_runs.ru_next, 1);
		/* of its own: what merges it takes its newest input's (B5) */
		d->rd_pos = b->b_pos + i;
		KV_ASSERT(d->rd_pos < kvs->k_next_pos);
		d->rd_newest_epoch = KV_BULK_EPOCH;
		add[i] = b->b_run[i].br_run;
	}
	ed.ed_nbegin = leaves(b, begin);
	if (!err)
		err = kv_mdc_edit(db, &ed);
	if (!err && kv_tree_show(kvs, NULL, &ed))
		err = kv_error_unknown(db);
	pthread_mutex_unlock(&kvs->k_edit_lock);
	pthread_mutex_unlock(&kvs->k_flush_lock);
	return err;
}

static int runs_show(struct kvdb_bulk *b)
{
	struct kv_run **add = calloc(b->b_nrun, sizeof(*add));
	struct kv_leaf **begin = calloc(b->b_nrun, sizeof(*begin));
	int err = add && begin ? publish(b, add, begin) : -ENOMEM;

	free(add);
	free(begin);
	return err;
}

int kvdb_bulk_finish(struct kvdb_bulk *b)
{
	struct kvdb *db = b->b_kvs->k_db;
	int err = b->b_err ? kv_error(b->b_err, "MP0993", "%s: the bulk load had failed",
				      b->b_kvs->k_name) : seg_end(b);

	KV_ASSERT_OUTSIDE();
	if (!err)
		err = kv_segs_seal(db, b->b_segs, b->b_nsegs);	/* B3 */
	if (err) {
		kvdb_bulk_abort(b);
		return kv_error_memory(err, "a bulk load");
	}
	if (b->b_build)
		err = run_end(b);
	if (!err && b->b_nrun)
		err = runs_show(b);
	if (err)
		runs_drop(b);
	bulk_free(b);
	return kv_error_memory(err, "a bulk load");
}
