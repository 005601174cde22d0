/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Upkeep of log segments: an open finds them, full ones are sealed and their ends recorded (S4),
 * dead ones are deleted (RV7 in README.md). The invariants and locks are seg/seg.c's; a step has
 * sg_step_lock.
 */
#include <errno.h>
#include <string.h>

#include "meta/upkeep.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/stream.h"
#include "db/db.h"
#include "cache/pages.h"
#include "cache/slab.h"
#include "seg/segs.h"
#include "mem/spans.h"
#include "meta/ckpt.h"
#include "meta/mdc.h"

/* sealing waits for so many, or so many bytes; recovery reads what is not sealed whole */
#define SEAL_MIN	8u
#define SEAL_BYTES	(64u << 20)
#define STEP_MAX	64u	/* segments handled by one step */

int kv_segs_load(struct kvdb *db)
{
	const struct kv_mdc_state *st = &db->d_mdc->m_st;
	struct mpool_obj_info oi[64];
	uint64_t after = 0;
	int i, n, err = 0;

	/* the others may go at any moment, and a handle would keep their space */
	for (size_t k = 0; db->d_mode.md_at_ckpt && k < st->st_nseg && !err; k++)
		err = kv_seg_add(db, st->st_seg[k].sc_obj, NULL);
	if (db->d_mode.md_at_ckpt)
		return err != -ENOENT ? err :
		       kv_error(-EUCLEAN, "MP0980", "a segment of the checkpoint does not exist");
	for (;;) {
		n = mpool_objects(db->d_mp, after, db->d_ident.id_tag, oi, 64);
		if (n <= 0)
			return n < 0 ? kv_error_mpool(n) : 0;
		for (i = 0; i < n; i++) {
			after = oi[i].id;
			if (oi[i].kind == MPOOL_APPEND)
				err = kv_seg_add(db, oi[i].id, NULL);
			if (err)
				return err;
		}
	}
}

/* ---- sealing ------------------------------------------------------------------------ */

/* Takes up to STEP_MAX segments that are to be sealed, with references. */
static unsigned pick_seals(struct kvdb *db, struct kv_seg **out)
{
	struct kv_segs *ss = db->d_segs;
	uint64_t durable = atomic_load(&db->d_epochs.ep_durable);
	struct kv_seg *s;
	unsigned n = 0;

	KV_ASSERT_HELD(&ss->sg_step_lock);
	pthread_mutex_lock(&ss->sg_lock);
	for (s = ss->sg_todo; s && n < STEP_MAX; s = s->sg_todo_next) {
		uint32_t state = atomic_load(&s->sg_state);

		if ((state == KV_SEG_FULL && atomic_load(&s->sg_last_epoch) <= durable) ||
		    (state == KV_SEG_SEALED && !s->sg_obj_sealed))
			out[n++] = kv_seg_get(s);
	}
	pthread_mutex_unlock(&ss->sg_lock);
	return n;
}

/* S4: the batch flushes, the record that says where they end comes after it. */
static int seal(struct kvdb *db, struct kv_seg **seg, unsigned n)
{
	struct kv_segs *ss = db->d_segs;
	struct mpool_op op[STEP_MAX];
	struct kv_mdc_seg rec[STEP_MAX];
	unsigned i;
	int err;

	KV_ASSERT_FREE(&ss->sg_lock);
	memset(op, 0, n * sizeof(op[0]));
	for (i = 0; i < n; i++) {
		op[i].type = MPOOL_OP_SEAL;
		op[i].obj = seg[i]->sg_obj;
		op[i].length = atomic_load(&seg[i]->sg_end);
		if (op[i].length < seg[i]->sg_keep)
			op[i].length = seg[i]->sg_keep;
		KV_ASSERT(!seg[i]->sg_obj_sealed && op[i].length <= seg[i]->sg_bytes);
		rec[i].sc_obj = seg[i]->sg_id;
		rec[i].sc_len = atomic_load(&seg[i]->sg_end);
		rec[i].sc_last = atomic_load(&seg[i]->sg_last_epoch);
	}
	err = BARRIER(mpool_batch(db->d_mp, op, n));
	if (err == -ENOMEM)
		return kv_error_mpool(err);	/* nothing was sealed: later */
	if (err)
		return kv_fail(db, kv_error_mpool(err), "sealing log segments: %s",
			       kvdb_error_detail()->text);
	/* now: no object is sealed twice, and a record that does not fit is only missed (RV8) */
	pthread_mutex_lock(&ss->sg_lock);
	for (i = 0; i < n; i++) {
		seg[i]->sg_obj_sealed = true;
		atomic_store(&seg[i]->sg_room, (uint32_t)op[i].length);
		kv_segs_set_state(ss, seg[i], KV_SEG_SEALED);
	}
	pthread_mutex_unlock(&ss->sg_lock);
	return kv_mdc_segs(db, rec, n);
}

int kv_segs_seal_moved(struct kvdb *db, struct kv_seg **seg, unsigned n)
{
	return seal(db, seg, n);
}

int kv_segs_seal(struct kvdb *db, struct kv_seg **seg, size_t n)
{
	struct kv_segs *ss = db->d_segs;
	struct kv_seg *part[STEP_MAX];
	unsigned k = 0;
	size_t i;
	int err = 0;

	/* upkeep may be at the same segments */
	pthread_mutex_lock(&ss->sg_step_lock);
	for (i = 0; i < n && !err; i++) {
		if (!seg[i]->sg_obj_sealed)
			part[k++] = seg[i];
		if (k && (k == STEP_MAX || i + 1 == n)) {
			err = seal(db, part, k);
			k = 0;
		}
	}
	pthread_mutex_unlock(&ss->sg_step_lock);
	return err;
}

static int seal_step(struct kvdb *db, unsigned least)
{
	struct kv_seg *seg[STEP_MAX];
	unsigned i, n = pick_seals(db, seg);
	int err = 0;

	if (n >= least && n)
		err = seal(db, seg, n);
	for (i = 0; i < n; i++)
		kv_seg_put(db, seg[i]);
	return err ? err : n >= least && n;
}

/* ---- deletion ----------------------------------------------------------------------- */

/* R6; caller holds sg_lock. */
static bool is_dead(struct kv_seg *s, uint64_t horizon, const struct kv_mt_epochs *ms)
{
	return atomic_load(&s->sg_state) == KV_SEG_SEALED &&
	       atomic_load(&s->sg_last_epoch) <= horizon &&
	       CHECK(!kv_mt_may_refer(ms, s)) && !atomic_load(&s->sg_runs) &&
	       !atomic_load(&s->sg_pins) && atomic_load(&s->sg_refs) == 1;
}

/* There was no memory to delete them: later. No other thread has looked for what is dead. */
static void undelete(struct kv_segs *ss, struct kv_seg **dead, unsigned n)
{
	KV_ASSERT_HELD(&ss->sg_step_lock);
	pthread_mutex_lock(&ss->sg_lock);
	while (n--) {
		KV_ASSERT(atomic_load(&dead[n]->sg_state) == KV_SEG_DELETED);
		atomic_store(&dead[n]->sg_state, KV_SEG_SEALED);
		kv_segs_table_add(ss, dead[n]);
	}
	pthread_mutex_unlock(&ss->sg_lock);
}

/* No header of a frame was found in it, or written to it. */
static bool is_unused(const struct kv_seg *s)
{
	return !atomic_load(&s->sg_end) && !atomic_load(&s->sg_first_epoch);
}

static int delete_step(struct kvdb *db, bool only_unused)
{
	struct kv_segs *ss = db->d_segs;
	uint64_t horizon = kv_min_horizon(db);
	struct kv_mt_epochs memtables;
	struct kv_seg *s, *next, *dead[STEP_MAX];
	struct mpool_op op[STEP_MAX];
	uint64_t id[STEP_MAX];
	unsigned i, n = 0;
	int err;

	KV_ASSERT_HELD(&ss->sg_step_lock);
	KV_ASSERT_OUTSIDE();
	if (kv_ckpt_holds_all(db))
		return 0;
	memset(op, 0, sizeof(op));
	kv_mt_epochs(db, &memtables);
	pthread_mutex_lock(&ss->sg_lock);
	for (s = ss->sg_todo; s && n < STEP_MAX; s = next) {
		next = s->sg_todo_next;
		if (!is_dead(s, horizon, &memtables) || (only_unused && !is_unused(s)))
			continue;
		kv_segs_table_del(ss, s);
		op[n].type = MPOOL_OP_DELETE;
		op[n].obj = s->sg_obj;
		dead[n++] = s;
	}
	pthread_mutex_unlock(&ss->sg_lock);
	if (!n)
		return 0;
	err = mpool_batch(db->d_mp, op, n);
	if (err == -ENOMEM) {
		undelete(ss, dead, n);
		return kv_error_mpool(err);
	}
	if (err)
		kv_fail(db, kv_error_mpool(err), "deleting dead log segments: %s",
			kvdb_error_detail()->text);
	for (i = 0; i < n; i++) {
		if (atomic_load(&dead[i]->sg_image))
			kv_slab_drop_image(db, &dead[i]->sg_image);
		kv_page_purge(db, dead[i]->sg_id, dead[i]->sg_bytes / KV_BLOCK);
		id[i] = dead[i]->sg_id;
		KV_ASSERT(atomic_load(&dead[i]->sg_refs) == 1 && !atomic_load(&dead[i]->sg_runs));
		kv_seg_put(db, dead[i]);	/* the table's */
	}
	kv_mdc_segs_gone(db, id, n);
	atomic_fetch_add(&db->d_count.segments_freed, n);
	return err ? err : 1;
}

/* ---- steps -------------------------------------------------------------------------- */

/* What is dead but not sealed is no room: it is never a good part of a class. */
static unsigned seal_batch(struct kvdb *db)
{
	return min_u(kv_segs_batch(db), min_u(SEAL_MIN, kv_segs_of(db, SEAL_BYTES)));
}

int kv_segs_step(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	int rc;

	if (db->d_mode.md_rdonly || kv_fault(db))
		return 0;
	rc = kv_segs_stock_step(db);
	if (rc)
		return rc;
	if (pthread_mutex_trylock(&ss->sg_step_lock))
		return 0;
	rc = delete_step(db, false);
	if (!rc)
		rc = seal_step(db, seal_batch(db));
	pthread_mutex_unlock(&ss->sg_step_lock);
	return rc;
}

static int free_all(struct kvdb *db, bool only_unused)
{
	struct kv_segs *ss = db->d_segs;
	/* beside writers others die meanwhile */
	uint32_t steps = kv_segs_count(db) / STEP_MAX + 1;
	int rc = 1;

	while (rc > 0 && steps--) {
		pthread_mutex_lock(&ss->sg_step_lock);
		rc = kv_fault(db);
		rc = rc ? rc : delete_step(db, only_unused);
		pthread_mutex_unlock(&ss->sg_step_lock);
	}
	return rc < 0 ? rc : 0;
}

int kv_segs_free_dead(struct kvdb *db)
{
	return free_all(db, false);
}

int kv_segs_free_unused(struct kvdb *db)
{
	return free_all(db, true);
}

int kv_segs_seal_now(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	int rc;

	pthread_mutex_lock(&ss->sg_step_lock);
	do {
		rc = seal_step(db, 1);
	} while (rc > 0);
	pthread_mutex_unlock(&ss->sg_step_lock);
	return rc;
}

bool kv_segs_are_busy(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;

	if (pthread_mutex_trylock(&ss->sg_step_lock))
		return true;
	pthread_mutex_unlock(&ss->sg_step_lock);
	return false;
}

/* The stock holds nothing: it goes back with the close. */
static int drop_stock(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	struct mpool_op op[KV_SEGS_BATCH];
	struct kv_seg *s;
	unsigned n = 0;
	int err;

	memset(op, 0, sizeof(op));
	pthread_mutex_lock(&ss->sg_lock);
	for (; n < ss->sg_nstock; n++) {
		KV_ASSERT(n < KV_SEGS_BATCH && !atomic_load(&ss->sg_stock[n]->sg_end));
		op[n].type = MPOOL_OP_DELETE;
		op[n].obj = ss->sg_stock[n]->sg_obj;
		kv_segs_table_del(ss, ss->sg_stock[n]);
	}
	pthread_mutex_unlock(&ss->sg_lock);
	err = n ? mpool_batch(db->d_mp, op, n) : 0;
	while (ss->sg_nstock) {
		s = ss->sg_stock[--ss->sg_nstock];
		kv_seg_put(db, s);
	}
	return err ? kv_error_mpool(err) : 0;
}

int kv_segs_finish(struct kvdb *db)
{
	struct kv_segs *ss = db->d_segs;
	struct kv_seg *s, *next;
	int rc;

	pthread_mutex_lock(&ss->sg_step_lock);
	/* what the logs had open is as full as it gets; what they never used is dead */
	pthread_mutex_lock(&ss->sg_lock);
	for (s = ss->sg_todo; s; s = next) {
		next = s->sg_todo_next;
		if (atomic_load(&s->sg_state) != KV_SEG_OPEN)
			continue;
		kv_segs_set_state(ss, s, atomic_load(&s->sg_end) ? KV_SEG_FULL : KV_SEG_SEALED);
	}
	pthread_mutex_unlock(&ss->sg_lock);
	do {
		rc = delete_step(db, false);
	} while (rc > 0);
	while (!rc) {
		rc = seal_step(db, 1);
		if (!rc)
			break;
		rc = rc > 0 ? 0 : rc;
	}
	if (!rc)
		rc = drop_stock(db);
	pthread_mutex_unlock(&ss->sg_step_lock);
	return rc;
}
