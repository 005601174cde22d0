/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Checkpoints. One is a manifest, an object that lists every run and segment
 * of all stores at the end of one epoch, and a record in the metadata
 * container that names the manifest: the pin. Nothing is copied. op/ckpt_make.c makes one.
 *
 * Invariants C1, C2, C3, C4, C5, C6: CHECKPOINTS.md.
 *
 * Key blocks of a run that the tree has left, but a checkpoint has not, are
 * "parked", and so is the manifest of one that was dropped: the container lists
 * them as gone. They are deleted when the last pin goes, or when background
 * work tries again, or by the next open; until then they stay parked.
 *
 * Locks: m_ddl_lock around create and drop; all k_flush_lock, then all
 * k_edit_lock, each in order of slots, while the state is captured;
 * ck_reap_lock while what is parked is deleted; ck_lock is a leaf.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "meta/ckpt.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/vec.h"
#include "db/bell.h"
#include "cache/pages.h"
#include "seg/seg.h"
#include "run/run.h"
#include "log/flush.h"
#include "meta/ckpt_omf.h"
#include "meta/mdc.h"

#define WRITE_PIECE	(1u << 20)
#define BATCH		64u

struct block {			/* a key block, or a manifest that is parked */
	uint64_t bl_id;
	uint32_t bl_len;
};

struct kv_ckpt {
	struct kv_mdc_ckpt c_rec;
	struct block *c_block;		/* ascending bl_id */
	size_t c_nblock;
	struct kv_seg **c_seg;		/* each counted in sg_pins */
	size_t c_nseg;
	uint64_t c_stores, c_runs, c_keys, c_bytes;
	bool c_is_damaged;		/* then c_trouble says why */
	struct kv_trouble c_trouble;
	bool c_is_made;			/* durable: it is shown */
};

struct kv_ckpts {
	pthread_mutex_t ck_lock;
	struct kv_ckpt *ck_list[KVDB_CHECKPOINT_MAX];	/* in order of making */
	_Atomic(uint32_t) ck_n;
	_Atomic(uint32_t) ck_damaged;
	/* with room for the manifests of ck_list: a drop parks without memory */
	struct block *ck_parked;
	size_t ck_nparked;
	uint32_t ck_cap;
	_Atomic(bool) ck_is_due;	/* of ck_parked some may be pinned no more */
	pthread_mutex_t ck_reap_lock;	/* no other thread deletes from ck_parked */
	struct kv_mdc_ckpt ck_at;	/* with md_at_ckpt */
};

/* ---- manifests ------------------------------------------------------------------- */

static int damaged(const struct kv_mdc_ckpt *c, const char *what)
{
	return kv_error(-EUCLEAN, "MP0980", "checkpoint %s: manifest %llu: %s", c->mc_name,
			(unsigned long long)c->mc_obj, what);
}

/* The bytes, compared with the CRC that the pin holds. */
static int read_bytes(struct kvdb *db, const struct kv_mdc_ckpt *c, uint8_t *buf)
{
	struct mpool_obj_info oi;
	struct mpool_obj *obj;
	int tries, err = mpool_obj_open(db->d_mp, c->mc_obj, &obj);

	KV_ASSERT_OUTSIDE();
	if (err)
		return err == -ENOENT ? damaged(c, "the object does not exist") :
					kv_error_mpool(err);
	err = mpool_obj_info(obj, &oi);
	if (!err && oi.length < c->mc_len)
		err = damaged(c, "the object is shorter than its pin says");
	for (tries = 0; tries < 2 && !err; tries++) {
		uint32_t off, n;

		for (off = 0; off < c->mc_len && !err; off += n) {
			n = c->mc_len - off < WRITE_PIECE ? c->mc_len - off : WRITE_PIECE;
			err = kv_dev_read(db, obj, KV_READ_KEY, off, buf + off, n);
		}
		if (err || CHECK_CRC(mpool_crc32c(0, buf, c->mc_len) == c->mc_crc))
			break;
		if (tries)
			err = damaged(c, "its CRC differs from the one in its pin");
	}
	if (tries)
		kv_bad_read(db, obj, 0, !err);
	mpool_obj_close(obj);
	return err;
}

int kv_manifest_read(struct kvdb *db, const struct kv_mdc_ckpt *c, struct kv_mdc_state *st)
{
	struct kv_manifest mf;
	const char *bad;
	uint8_t *buf;
	int err;

	if (c->mc_len > KV_MANIFEST_MAX)
		return damaged(c, "its length in the pin");
	buf = aligned_alloc(MPOOL_ALIGN, c->mc_len);
	if (!buf)
		return kv_error(-ENOMEM, "MP0902", "no memory for a manifest of %u bytes",
				c->mc_len);
	err = read_bytes(db, c, buf);
	if (!err) {
		bad = kv_manifest_decode(buf, c->mc_len, &mf);
		if (!bad && (mf.mf_tag != db->d_ident.id_tag || mf.mf_obj != c->mc_obj ||
			     mf.mf_epoch != c->mc_epoch))
			bad = "it is another one's";
		err = bad ? damaged(c, bad) : 0;
	}
	if (!err) {
		err = kv_manifest_fold(buf + KV_MANIFEST_HDR, mf.mf_bytes, st);
		if (err == -EOPNOTSUPP)
			kv_error(err, "MP0956", "checkpoint %s: a feature that is not known here",
				 c->mc_name);
		else if (err > 0 || (!err && !st->st_has_super))
			err = damaged(c, "a record of it");
	}
	free(buf);
	return err;
}

/* ---- pins -------------------------------------------------------------------------- */

static int by_block(const void *a, const void *b)
{
	uint64_t x = ((const struct block *)a)->bl_id, y = ((const struct block *)b)->bl_id;

	return x < y ? -1 : x > y;
}

static void ckpt_free(struct kvdb *db, struct kv_ckpt *c)
{
	size_t i;

	kv_trouble_end(db, &c->c_trouble);
	for (i = 0; i < c->c_nseg; i++)
		kv_seg_pin(db, c->c_seg[i], -1);
	free(c->c_seg);
	free(c->c_block);
	free(c);
}

static int pin_segs(struct kvdb *db, const struct kv_mdc_state *st, struct kv_ckpt *c)
{
	size_t i;

	c->c_seg = calloc(st->st_nseg ? st->st_nseg : 1, sizeof(c->c_seg[0]));
	if (!c->c_seg)
		return -ENOMEM;
	for (i = 0; i < st->st_nseg; i++) {
		struct kv_seg *s = kv_seg_find(db, st->st_seg[i].sc_obj);

		if (!s)
			return damaged(&c->c_rec, "a segment of it does not exist");
		kv_seg_pin(db, s, 1);
		kv_seg_put(db, s);	/* the pin keeps it from now on */
		c->c_seg[c->c_nseg++] = s;
		c->c_bytes += s->sg_bytes;
	}
	return 0;
}

/* Pins what a manifest lists. */
static int ckpt_new(struct kvdb *db, const struct kv_mdc_ckpt *rec, const struct kv_mdc_state *st,
		    struct kv_ckpt **out)
{
	struct kv_ckpt *c = calloc(1, sizeof(*c));
	size_t blocks = 1;
	uint32_t i, j, k;
	int err;

	if (!c)
		return -ENOMEM;
	c->c_rec = *rec;
	for (i = 0; i < st->st_nkvs; i++)
		for (j = 0; j < st->st_kvs[i].mk_nrun; j++)
			blocks += st->st_kvs[i].mk_run[j].rd_n;
	c->c_block = calloc(blocks, sizeof(c->c_block[0]));
	err = c->c_block ? pin_segs(db, st, c) : -ENOMEM;
	if (err) {
		ckpt_free(db, c);
		return err;
	}
	c->c_stores = st->st_nkvs;
	c->c_bytes += rec->mc_len;
	for (i = 0; i < st->st_nkvs; i++) {
		for (j = 0; j < st->st_kvs[i].mk_nrun; j++) {
			const struct kv_run_desc *d = &st->st_kvs[i].mk_run[j];

			c->c_runs++;
			c->c_keys += d->rd_keys;
			for (k = 0; k < d->rd_n; k++) {
				KV_ASSERT(c->c_nblock < blocks);
				c->c_block[c->c_nblock++] = (struct block){ d->rd_kb[k].kd_id,
									    d->rd_kb[k].kd_len };
				c->c_bytes += d->rd_kb[k].kd_len;
			}
		}
	}
	qsort(c->c_block, c->c_nblock, sizeof(c->c_block[0]), by_block);
	*out = c;
	return 0;
}

/* ck_lock held */
static const struct block *pinned_block(struct kv_ckpts *ck, uint64_t id)
{
	const struct block key = { id, 0 }, *b = NULL;
	uint32_t i;

	KV_ASSERT_HELD(&ck->ck_lock);
	for (i = 0; i < ck->ck_n && !b; i++) {
		const struct kv_ckpt *c = ck->ck_list[i];

		if (c->c_nblock)
			b = bsearch(&key, c->c_block, c->c_nblock, sizeof(key), by_block);
	}
	return b;
}

/* Room for @n more, and for a manifest of each checkpoint; ck_lock held */
static int park_room(struct kv_ckpts *ck, size_t n)
{
	KV_ASSERT_HELD(&ck->ck_lock);
	return kv_vec_grow(&ck->ck_parked, &ck->ck_cap, ck->ck_nparked + ck->ck_n + n,
			   sizeof(struct block));
}

/* ck_lock held, after park_room() */
static void park(struct kv_ckpts *ck, uint64_t id, uint32_t len)
{
	KV_ASSERT(ck->ck_nparked < ck->ck_cap);
	KV_ASSERT_HELD(&ck->ck_lock);
	ck->ck_parked[ck->ck_nparked++] = (struct block){ id, len };
}

static int ckpt_insert(struct kv_ckpts *ck, struct kv_ckpt *c)
{
	int err;

	pthread_mutex_lock(&ck->ck_lock);
	err = park_room(ck, 1);
	if (!err) {
		KV_ASSERT(ck->ck_n < KVDB_CHECKPOINT_MAX);
		ck->ck_list[ck->ck_n] = c;
		atomic_fetch_add(&ck->ck_n, 1);
		atomic_fetch_add(&ck->ck_damaged, c->c_is_damaged);
	}
	pthread_mutex_unlock(&ck->ck_lock);
	return err;
}

/* What it alone kept is due from now on, and its manifest, if it has one. */
static void ckpt_remove(struct kvdb *db, struct kv_ckpt *c)
{
	struct kv_ckpts *ck = db->d_ckpts;
	uint32_t i = 0;

	pthread_mutex_lock(&ck->ck_lock);
	while (i < ck->ck_n && ck->ck_list[i] != c)
		i++;
	KV_ASSERT(i < ck->ck_n);
	for (; i + 1 < ck->ck_n; i++)
		ck->ck_list[i] = ck->ck_list[i + 1];
	KV_ASSERT(atomic_load(&ck->ck_n));
	atomic_fetch_sub(&ck->ck_n, 1);
	KV_ASSERT(atomic_load(&ck->ck_damaged) >= c->c_is_damaged);
	atomic_fetch_sub(&ck->ck_damaged, c->c_is_damaged);
	if (c->c_rec.mc_obj)
		park(ck, c->c_rec.mc_obj, c->c_rec.mc_len);
	atomic_store(&ck->ck_is_due, true);
	pthread_mutex_unlock(&ck->ck_lock);
	ckpt_free(db, c);
}

bool kv_ckpt_holds_all(struct kvdb *db)
{
	return db->d_ckpts && atomic_load(&db->d_ckpts->ck_damaged);
}

bool kv_ckpt_lists(struct kvdb *db, uint64_t id)
{
	struct kv_ckpts *ck = db->d_ckpts;
	bool is = false;
	uint32_t i;

	if (!ck || !atomic_load(&ck->ck_n))
		return false;
	pthread_mutex_lock(&ck->ck_lock);
	for (i = 0; i < ck->ck_n && !is; i++)
		is = ck->ck_list[i]->c_rec.mc_obj == id;
	is = is || pinned_block(ck, id);
	pthread_mutex_unlock(&ck->ck_lock);
	return is;
}

int kv_ckpt_keeps(struct kvdb *db, const struct kv_run_desc *d)
{
	struct kv_ckpts *ck = db->d_ckpts;
	int keeps;
	uint32_t i;

	if (!ck || !d->rd_n || !atomic_load(&ck->ck_n))
		return 0;
	pthread_mutex_lock(&ck->ck_lock);
	keeps = ck->ck_damaged || pinned_block(ck, d->rd_kb[0].kd_id);
	if (keeps && park_room(ck, d->rd_n))
		keeps = -ENOMEM;
	for (i = 0; keeps > 0 && i < d->rd_n; i++)
		park(ck, d->rd_kb[i].kd_id, d->rd_kb[i].kd_len);
	pthread_mutex_unlock(&ck->ck_lock);
	return keeps;
}

/* ---- deleting what is parked ------------------------------------------------------------ */

/* What no checkpoint pins, BATCH at most. */
static size_t due(struct kv_ckpts *ck, uint64_t *id)
{
	size_t i, n = 0;

	KV_ASSERT_HELD(&ck->ck_reap_lock);
	pthread_mutex_lock(&ck->ck_lock);
	for (i = 0; !ck->ck_damaged && i < ck->ck_nparked && n < BATCH; i++)
		if (!pinned_block(ck, ck->ck_parked[i].bl_id))
			id[n++] = ck->ck_parked[i].bl_id;
	pthread_mutex_unlock(&ck->ck_lock);
	return n;
}

/* In their order in ck_parked, as due() took them. */
static void unpark(struct kv_ckpts *ck, const uint64_t *id, size_t n)
{
	size_t i, k = 0, keep = 0;

	KV_ASSERT_HELD(&ck->ck_reap_lock);
	pthread_mutex_lock(&ck->ck_lock);
	for (i = 0; i < ck->ck_nparked; i++) {
		if (k < n && ck->ck_parked[i].bl_id == id[k])
			k++;
		else
			ck->ck_parked[keep++] = ck->ck_parked[i];
	}
	KV_ASSERT(k == n);
	ck->ck_nparked = keep;
	pthread_mutex_unlock(&ck->ck_lock);
}

/* Those that exist: a manifest that was damaged may not, and what was lost with it. */
static int delete_due(struct kvdb *db, const uint64_t *id, size_t n)
{
	uint64_t there[BATCH];
	struct mpool_obj *obj;
	size_t i, k = 0;
	int err;

	KV_ASSERT_HELD(&db->d_ckpts->ck_reap_lock);
	KV_ASSERT_FREE(&db->d_ckpts->ck_lock);
	for (i = 0; i < n; i++) {
		err = mpool_obj_open(db->d_mp, id[i], &obj);
		if (err == -ENOENT)
			continue;
		if (err)
			return kv_error_mpool(err);
		mpool_obj_close(obj);
		there[k++] = id[i];
	}
	return kv_objs_delete(db->d_mp, there, k);
}

/* What fails stays parked and due. After a failed append it is unknown what is listed. */
int kv_ckpts_reap(struct kvdb *db)
{
	struct kv_ckpts *ck = db->d_ckpts;
	uint64_t id[BATCH];
	size_t n;
	int did = 0;

	if (!ck || db->d_mode.md_rdonly || !atomic_load(&ck->ck_is_due) || kv_fault(db))
		return 0;
	pthread_mutex_lock(&ck->ck_reap_lock);
	atomic_store(&ck->ck_is_due, false);
	while ((n = due(ck, id))) {
		int err = delete_due(db, id, n);

		if (!CHECK(!err)) {
			kv_stop_with_pool(db, err, "deleting what a checkpoint held");
			atomic_store(&ck->ck_is_due, true);
			break;
		}
		unpark(ck, id, n);
		did = 1;
	}
	pthread_mutex_unlock(&ck->ck_reap_lock);
	return did;
}

void kv_ckpt_stats(struct kvdb *db, struct kvdb_stats *st)
{
	struct kv_ckpts *ck = db->d_ckpts;
	size_t i;

	if (!ck)
		return;
	pthread_mutex_lock(&ck->ck_lock);
	st->checkpoints = ck->ck_n;
	for (i = 0; i < ck->ck_n; i++)
		st->pinned_bytes += ck->ck_list[i]->c_rec.mc_len;
	for (i = 0; i < ck->ck_nparked; i++)
		st->pinned_bytes += ck->ck_parked[i].bl_len;
	pthread_mutex_unlock(&ck->ck_lock);
}

/* ---- open --------------------------------------------------------------------------- */

static int ckpts_new(struct kvdb *db)
{
	struct kv_ckpts *ck = calloc(1, sizeof(*ck));

	if (!ck)
		return -ENOMEM;
	pthread_mutex_init(&ck->ck_lock, NULL);
	pthread_mutex_init(&ck->ck_reap_lock, NULL);
	db->d_ckpts = ck;
	return 0;
}

static int load_one(struct kvdb *db, const struct kv_mdc_ckpt *rec)
{
	struct kv_mdc_state st = { 0 };
	struct kv_ckpt *c = NULL;
	int err = kv_manifest_read(db, rec, &st);

	if (!err)
		err = ckpt_new(db, rec, &st, &c);
	kv_mdc_state_free(&st);
	if (err == -EUCLEAN || err == -EIO) {
		/* C5; what the database itself consists of is not touched by this */
		c = calloc(1, sizeof(*c));
		if (!c)
			return -ENOMEM;
		c->c_rec = *rec;
		c->c_is_damaged = true;
		kv_trouble_set(db, &c->c_trouble, err,
			       "checkpoint %s holds all space until dropped", rec->mc_name);
		err = 0;
	}
	if (!err) {
		c->c_is_made = true;
		err = ckpt_insert(db->d_ckpts, c);
		if (err)
			ckpt_free(db, c);
	}
	return err;
}

/* Objects of runs that were dropped while a checkpoint listed them. */
static int park_gone(struct kvdb *db)
{
	const struct kv_mdc_state *st = &db->d_mdc->m_st;
	struct kv_ckpts *ck = db->d_ckpts;
	const struct block *b;
	size_t i, n = 0;
	int err = 0;

	if (!ck->ck_n)
		return 0;
	pthread_mutex_lock(&ck->ck_lock);
	for (i = 0; i < st->st_ngone && !err; i++) {
		b = pinned_block(ck, st->st_gone[i]);
		if (!b && !ck->ck_damaged)
			continue;
		err = park_room(ck, 1);
		if (!err)
			park(ck, st->st_gone[i], b ? b->bl_len : 0);
	}
	if (ck->ck_nparked)
		qsort(ck->ck_parked, ck->ck_nparked, sizeof(*ck->ck_parked), by_block);
	for (i = 0; i < ck->ck_nparked; i++)
		if (!i || ck->ck_parked[i].bl_id != ck->ck_parked[n - 1].bl_id)
			ck->ck_parked[n++] = ck->ck_parked[i];
	ck->ck_nparked = n;
	pthread_mutex_unlock(&ck->ck_lock);
	return err;
}

int kv_ckpts_load(struct kvdb *db)
{
	const struct kv_mdc_state *st = &db->d_mdc->m_st;
	size_t i;
	int err;

	if (db->d_mode.md_at_ckpt)
		return 0;
	err = ckpts_new(db);
	for (i = 0; i < st->st_nckpt && !err; i++)
		err = load_one(db, &st->st_ckpt[i]);
	return err ? err : park_gone(db);
}

void kv_ckpts_fini(struct kvdb *db)
{
	struct kv_ckpts *ck = db->d_ckpts;
	uint32_t i;

	if (!ck)
		return;
	for (i = 0; i < ck->ck_n; i++)
		ckpt_free(db, ck->ck_list[i]);
	free(ck->ck_parked);
	pthread_mutex_destroy(&ck->ck_lock);
	pthread_mutex_destroy(&ck->ck_reap_lock);
	free(ck);
	db->d_ckpts = NULL;
}

static const struct kv_mdc_ckpt *rec_find(const struct kv_mdc_state *st, const char *name)
{
	size_t i;

	for (i = 0; i < st->st_nckpt; i++)
		if (!strcmp(st->st_ckpt[i].mc_name, name))
			return &st->st_ckpt[i];
	return NULL;
}

static int no_such(const char *name)
{
	return kv_error(-ENOENT, "MP0981", "there is no checkpoint named %s", name ? name : "");
}

/* At a checkpoint the others are only shown: nothing is pinned by this process. */
static int list_only(struct kv_ckpts *ck, const struct kv_mdc_state *st)
{
	size_t i;

	for (i = 0; i < st->st_nckpt; i++) {
		struct kv_ckpt *c = calloc(1, sizeof(*c));

		if (!c)
			return -ENOMEM;
		c->c_rec = st->st_ckpt[i];
		c->c_is_made = true;
		if (ckpt_insert(ck, c)) {
			free(c);
			return -ENOMEM;
		}
	}
	return 0;
}

/* C6: looks into the container as it is now, after the number was taken. */
static int still_there(const char *pool, const struct kvdb_opts *o, const struct kv_mdc_ckpt *rec)
{
	struct kvdb *now = calloc(1, sizeof(*now));
	const struct kv_mdc_ckpt *c;
	int err;

	if (!now)
		return -ENOMEM;
	err = kv_pool_open(pool, o, true, &now->d_mp);
	if (!err) {
		err = kv_mdc_open(now);
		c = err ? NULL : rec_find(&now->d_mdc->m_st, rec->mc_name);
		if (!err && !(c && c->mc_obj == rec->mc_obj))
			err = kv_error(-EBUSY, "MP0984", "checkpoint %s was dropped meanwhile",
				       rec->mc_name);
		kv_mdc_close(now);
		mpool_close(now->d_mp);
	}
	free(now);
	return err;
}

static int reader_holds(struct kvdb *db, const char *pool, const struct kvdb_opts *o,
			const struct kv_mdc_ckpt *rec)
{
	int err;

	if (o->pool && o->pool->provider)
		return 0;	/* it excludes writers */
	err = mpool_hold(db->d_mp, KV_HOLD_ANY);
	if (!err)
		err = mpool_hold(db->d_mp, rec->mc_obj);
	if (err)
		return kv_error_mpool(err);
	return still_there(pool, o, rec);
}

int kv_ckpt_enter(struct kvdb *db, const char *pool, const struct kvdb_opts *o)
{
	struct kv_mdc_state *st = &db->d_mdc->m_st, own = { 0 };
	const char *name = o->checkpoint;
	const struct kv_mdc_ckpt *rec = rec_find(st, name);
	uint32_t i;
	int err;

	if (!rec)
		return no_such(name);
	err = reader_holds(db, pool, o, rec);
	if (!err)
		err = ckpts_new(db);
	if (err)
		return err;
	db->d_ckpts->ck_at = *rec;
	err = kv_manifest_read(db, rec, &own);
	if (err) {
		kv_mdc_state_free(&own);
		return err;
	}
	err = list_only(db->d_ckpts, st);
	if (err) {
		kv_mdc_state_free(&own);
		return err;
	}
	for (i = 0; i < own.st_nkvs; i++)
		own.st_kvs[i].mk_horizon = db->d_ckpts->ck_at.mc_epoch;
	/* X1: a reader's time is the database's, which went on; else its age were a jump */
	if (own.st_time && st->st_time > own.st_time)
		own.st_time = st->st_time;
	kv_mdc_state_free(st);
	*st = own;
	db->d_mode.md_at_ckpt = true;
	return 0;
}

int kv_ckpt_numbers(struct kvdb *db)
{
	const struct kv_mdc_ckpt *at = &db->d_ckpts->ck_at;

	atomic_store(&db->d_epochs.ep_seq, at->mc_seq + 1);
	atomic_store(&db->d_epochs.ep_open, at->mc_epoch + 1);
	atomic_store(&db->d_epochs.ep_closed, at->mc_epoch);
	atomic_store(&db->d_epochs.ep_durable, at->mc_epoch);
	db->d_opened.on_recovery.was_clean = 1;
	db->d_opened.on_recovery.durable_epoch = at->mc_epoch;
	return 0;
}

/* ---- making one ----------------------------------------------------------------------- */

int kv_ckpt_may_come(struct kvdb *db, const char *name)
{
	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	if (rec_find(&db->d_mdc->m_st, name))
		return kv_error(-EEXIST, "MP0983", "there is a checkpoint named %s", name);
	if (db->d_ckpts->ck_n == KVDB_CHECKPOINT_MAX)
		return kv_error(-EDQUOT, "MP0983", "a database holds at most %u checkpoints",
				KVDB_CHECKPOINT_MAX);
	return 0;
}

int kv_ckpt_pin(struct kvdb *db, const struct kv_mdc_ckpt *rec, const struct kv_mdc_state *st,
		struct kv_ckpt **out)
{
	int err = ckpt_new(db, rec, st, out);

	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	if (err)
		return err;
	err = ckpt_insert(db->d_ckpts, *out);
	if (err)
		ckpt_free(db, *out);
	return err;
}

void kv_ckpt_set(struct kvdb *db, struct kv_ckpt *c, const struct kv_mdc_ckpt *rec)
{
	KV_ASSERT(!c->c_is_made);
	/* it is in the list: others look at it */
	pthread_mutex_lock(&db->d_ckpts->ck_lock);
	c->c_rec = *rec;
	pthread_mutex_unlock(&db->d_ckpts->ck_lock);
}

void kv_ckpt_show(struct kvdb *db, struct kv_ckpt *c)
{
	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	KV_ASSERT(!c->c_is_made && c->c_rec.mc_obj);
	pthread_mutex_lock(&db->d_ckpts->ck_lock);
	c->c_bytes += c->c_rec.mc_len;
	c->c_is_made = true;
	pthread_mutex_unlock(&db->d_ckpts->ck_lock);
}

void kv_ckpt_unpin(struct kvdb *db, struct kv_ckpt *c)
{
	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	ckpt_remove(db, c);
	kv_ckpts_reap(db);
	kv_work_kick(db);
}

/* ---- public --------------------------------------------------------------------------- */

/* C6, C4. A pool whose files cannot be locked has no other reader. */
static int drop_record(struct kvdb *db, const struct kv_ckpt *c)
{
	int err, rc = mpool_hold(db->d_mp, c->c_rec.mc_obj);

	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	KV_ASSERT(c->c_is_made);
	if (rc == -EBUSY)
		return kv_error(rc, "MP0984", "checkpoint %s is open for reading",
				c->c_rec.mc_name);
	if (rc && rc != -EOPNOTSUPP)
		return kv_error_mpool(rc);
	err = kv_change_sync(db);
	if (!err)
		err = kv_mdc_ckpt_drop(db, c->c_rec.mc_obj);
	if (!rc)
		mpool_unhold(db->d_mp, c->c_rec.mc_obj);
	return err;
}

int kvdb_checkpoint_drop(struct kvdb *db, const char *name)
{
	struct kv_ckpts *ck = db->d_ckpts;
	struct kv_mdc *m = db->d_mdc;
	struct kv_ckpt *c = NULL;
	int err = kv_may_change(db);

	if (err)
		return err;
	pthread_mutex_lock(&m->m_ddl_lock);
	for (uint32_t i = 0; name && i < ck->ck_n && !c; i++)
		if (!strcmp(ck->ck_list[i]->c_rec.mc_name, name))
			c = ck->ck_list[i];
	err = c ? drop_record(db, c) : no_such(name);
	if (!err)
		kv_ckpt_unpin(db, c);
	pthread_mutex_unlock(&m->m_ddl_lock);
	return err;
}

int kvdb_checkpoint_list(struct kvdb *db, struct kvdb_checkpoint_info *out, unsigned max)
{
	struct kv_ckpts *ck = db->d_ckpts;
	uint32_t i, n = 0;

	if (!ck)
		return 0;
	pthread_mutex_lock(&ck->ck_lock);
	for (i = 0; i < ck->ck_n; i++) {
		const struct kv_ckpt *c = ck->ck_list[i];

		if (!c->c_is_made || n++ >= max)
			continue;
		*out = (struct kvdb_checkpoint_info){
			.id = c->c_rec.mc_obj, .epoch = c->c_rec.mc_epoch,
			.time_ns = c->c_rec.mc_time_ns, .stores = c->c_stores,
			.runs = c->c_runs, .keys = c->c_keys, .segments = c->c_nseg,
			.bytes = c->c_bytes, .is_damaged = c->c_is_damaged,
		};
		memcpy(out->name, c->c_rec.mc_name, sizeof(out->name));
		out++;
	}
	pthread_mutex_unlock(&ck->ck_lock);
	return (int)n;
}
