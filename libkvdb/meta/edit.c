/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Version edits: runs and leaves that a store gets and loses in one durable step. The objects of
 * new runs are committed first; the record that lists them makes the edit durable.
 *
 * Locks: m_lock orders records. The objects are committed before it is taken: two edits may flush
 * at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "meta/edit.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/stream.h"
#include "db/db.h"
#include "db/waits.h"
#include "seg/seg.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "tree/tree.h"
#include "meta/mdc.h"
#include "meta/mdc_append.h"

#define BATCH	256u		/* objects in one commit */
#define ANNOUNCED 4u		/* orphans that one cut edit may leave; a fraction of ORPHANS_FEW */
#define QUIET	48u		/* and all edits together */
#define FRAMING	64u		/* bytes that the container takes for a record beside it, at most */

static int commit_batch(struct kvdb *db, const struct mpool_op *op, uint32_t n)
{
	uint64_t began = kv_wait_begin();
	int err = n ? BARRIER(mpool_batch(db->d_mp, op, n)) : 0;

	kv_wait_end(KVDB_DELAY_MEDIA, began);
	KV_ASSERT_OUTSIDE();
	KV_ASSERT(n <= BATCH);
	return err ? kv_error_mpool(err) : 0;
}

/* Commits the key blocks: their devices are flushed by the batch. */
static int commit_runs(struct kvdb *db, const struct kv_edit *ed, unsigned nedit)
{
	struct mpool_op op[BATCH];
	uint32_t j, n = 0;
	unsigned k, i;
	int err = 0;

	for (k = 0; k < nedit; k++) {
		for (i = 0; i < ed[k].ed_nadd; i++) {
			struct kv_run *r = ed[k].ed_add[i];

			KV_ASSERT(atomic_load(&r->rn_refs) && !atomic_load(&r->rn_dropped));
			for (j = 0; j < kv_run_desc(r)->rd_n && !err; j++) {
				uint64_t len = kv_run_desc(r)->rd_kb[j].kd_len;

				memset(&op[n], 0, sizeof(op[n]));
				op[n].type = MPOOL_OP_COMMIT;
				op[n].obj = kv_run_obj(r, j);
				op[n].length = (len + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
				if (++n < BATCH)
					continue;
				err = commit_batch(db, op, n);
				n = 0;
			}
		}
	}
	return err ? err : commit_batch(db, op, n);
}

static uint32_t count_blocks(const struct kv_edit *ed, unsigned nedit)
{
	uint32_t n = 0;

	for (unsigned k = 0; k < nedit; k++)
		for (unsigned i = 0; i < ed[k].ed_nadd; i++)
			n += kv_run_desc(ed[k].ed_add[i])->rd_n;
	return n;
}

/* Few blocks need no name, unless many edits have some that no record lists yet. */
static bool is_quiet(struct kv_mdc *m, uint32_t n)
{
	bool is;

	pthread_mutex_lock(&m->m_lock);
	is = n <= ANNOUNCED && m->m_nquiet + n <= QUIET;
	if (is)
		m->m_nquiet += n;
	pthread_mutex_unlock(&m->m_lock);
	return is;
}

/*
 * R8: a crash between the commit of many objects and the edit that lists them must not
 * look like damage. They are named as gone first; the edit makes them live (run_insert).
 */
static int announce(struct kv_mdc *m, const struct kv_edit *ed, unsigned nedit,
		    bool *is_announced)
{
	uint32_t n = count_blocks(ed, nedit), j;
	uint64_t *id;
	unsigned k, i;
	int err;

	KV_ASSERT_FREE(&m->m_lock);
	*is_announced = false;
	if (is_quiet(m, n))
		return 0;
	id = malloc(n * sizeof(*id));
	if (!id)
		return kv_mdc_no_memory();
	for (k = 0, n = 0; k < nedit; k++)
		for (i = 0; i < ed[k].ed_nadd; i++)
			for (j = 0; j < kv_run_desc(ed[k].ed_add[i])->rd_n; j++)
				id[n++] = kv_run_desc(ed[k].ed_add[i])->rd_kb[j].kd_id;
	pthread_mutex_lock(&m->m_lock);
	kv_mdc_enc_gone(&m->m_buf, m->m_db->d_ident.id_tag, id, n);
	err = kv_mdc_append(m, BARRIER(MPOOL_SYNC));
	*is_announced = !err;
	m->m_nannounced += !err;
	pthread_mutex_unlock(&m->m_lock);
	free(id);
	return err;
}

int kv_mdc_announce(struct kv_mdc *m, const struct kv_edit *ed, bool *is_announced)
{
	return announce(m, ed, 1, is_announced);
}

/* What failed may have left blocks: those go on to count as not listed. */
static void end_announced(struct kv_mdc *m, const struct kv_edit *ed, unsigned nedit,
			  bool is_announced, int err)
{
	pthread_mutex_lock(&m->m_lock);
	KV_ASSERT(is_announced ? m->m_nannounced > 0 : m->m_nquiet >= count_blocks(ed, nedit));
	if (is_announced)
		m->m_nannounced--;
	else if (!err)
		m->m_nquiet -= count_blocks(ed, nedit);
	pthread_mutex_unlock(&m->m_lock);
}

struct counted {
	struct kvdb *co_db;
	int co_by;
};

static void count_one(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	const struct counted *co = arg;
	uint32_t was = atomic_fetch_add(&s->sg_runs, (uint32_t)co->co_by);

	KV_ASSERT(was + (uint32_t)co->co_by <= INT32_MAX);
	(void)n;
	(void)bytes;
	if (!was || !(was + (uint32_t)co->co_by))
		kv_seg_note(co->co_db, s);
}

void kv_run_count(struct kvdb *db, struct kv_run *r, int by)
{
	struct counted co = { db, by };

	kv_run_segs(r, count_one, &co);
}

/* Horizons of stores that were dropped meanwhile mean nothing. */
static uint32_t live_horizons(struct kv_mdc *m, const struct kv_edit *ed, struct kv_horizon *to)
{
	uint32_t n = 0;
	unsigned i;

	KV_ASSERT_HELD(&m->m_lock);
	KV_ASSERT(ed->ed_nhor <= KVDB_KVS_MAX);
	for (i = 0; i < ed->ed_nhor && n < KVDB_KVS_MAX; i++)
		if (kv_mdc_state_kvs(&m->m_st, ed->ed_hor[i].kvs))
			to[n++] = ed->ed_hor[i];
	return n;
}

/* An EDIT record says no more than one run of all keys. */
static bool is_of_leaves(const struct kv_edit *ed)
{
	unsigned i;

	for (i = 0; i < ed->ed_nadd; i++)
		if (kv_run_desc(ed->ed_add[i])->rd_leaf)
			return true;
	return ed->ed_nadd > 1 || ed->ed_nbegin || ed->ed_end;
}

static void enc_change(struct kv_mdc *m, const struct kv_edit *ed, const uint64_t *drop,
		       struct kv_mdc_leaf *begin, const struct kv_run_desc **add)
{
	struct kv_horizon hor[KVDB_KVS_MAX];
	uint32_t nhor;
	unsigned i;

	KV_ASSERT_HELD(&m->m_lock);
	for (i = 0; i < ed->ed_nadd; i++)
		add[i] = kv_run_desc(ed->ed_add[i]);
	if (!is_of_leaves(ed)) {
		nhor = live_horizons(m, ed, hor);
		kv_mdc_enc_edit(&m->m_buf, m->m_db->d_ident.id_tag, ed->ed_kvs,
				ed->ed_nadd ? add[0] : NULL, drop, ed->ed_ndrop, hor, nhor);
		return;
	}
	for (i = 0; i < ed->ed_nbegin; i++)
		begin[i] = (struct kv_mdc_leaf){ .ml_id = ed->ed_begin[i]->lf_id,
						 .ml_klen = ed->ed_begin[i]->lf_klen,
						 .ml_key = ed->ed_begin[i]->lf_key };
	kv_mdc_enc_leaves(&m->m_buf, m->m_db->d_ident.id_tag, &(struct kv_mdc_leaves){
		.le_kvs = ed->ed_kvs, .le_drop = drop, .le_ndrop = ed->ed_ndrop,
		.le_end = ed->ed_end, .le_begin = begin, .le_nbegin = ed->ed_nbegin,
		.le_add = add, .le_nadd = ed->ed_nadd });
}

/* RV20: names of blocks that go stay until these are deleted. */
static bool is_smaller(const struct kv_edit *ed)
{
	uint64_t more = 0, less = 0;
	unsigned i;

	for (i = 0; i < ed->ed_nadd; i++)
		more += KV_MDC_RUN_BYTES + 16ull * kv_run_desc(ed->ed_add[i])->rd_n;
	for (i = 0; i < ed->ed_nbegin; i++)
		more += KV_MDC_LEAF_BYTES + ed->ed_begin[i]->lf_klen;
	for (i = 0; i < ed->ed_ndrop; i++)
		less += KV_MDC_RUN_BYTES + 8ull * kv_run_desc(ed->ed_drop[i])->rd_n;
	return more <= less;
}

/* Of the record that makes an edit durable, and those in front of it. */
static int durably(void)
{
	return BARRIER(MPOOL_SYNC);
}

static int append_change(struct kv_mdc *m, const struct kv_edit *ed)
{
	KV_ASSERT_HELD(&m->m_lock);
	return is_smaller(ed) ? kv_mdc_append_spare(m, durably()) : kv_mdc_append(m, durably());
}

static int look_for_store(struct kv_mdc *m, const struct kv_edit *ed)
{
	KV_ASSERT_HELD(&m->m_lock);
	return kv_mdc_state_kvs(&m->m_st, ed->ed_kvs) ? 0 :
	       kv_error(-ENOENT, "MP0965", "store %u was dropped", ed->ed_kvs);
}

static int append_edit(struct kv_mdc *m, const struct kv_edit *ed)
{
	uint64_t *drop = calloc(ed->ed_ndrop + 1, sizeof(*drop));
	struct kv_mdc_leaf *begin = calloc(ed->ed_nbegin + 1, sizeof(*begin));
	const struct kv_run_desc **add = calloc(ed->ed_nadd + 1, sizeof(*add));
	int err = drop && begin && add ? 0 : kv_mdc_no_memory();
	unsigned i;

	for (i = 0; i < ed->ed_ndrop && !err; i++)
		drop[i] = kv_run_desc(ed->ed_drop[i])->rd_id;
	pthread_mutex_lock(&m->m_lock);
	if (!err)
		err = look_for_store(m, ed);
	if (!err)
		err = kv_mdc_append_time(m, 0);
	if (!err) {
		enc_change(m, ed, drop, begin, add);
		err = append_change(m, ed);
	}
	pthread_mutex_unlock(&m->m_lock);
	free(drop);
	free(begin);
	free(add);
	return err;
}

/* The record of a flush. */
static void enc_flush(struct kv_mdc *m, const struct kv_edit *ed)
{
	const struct kv_run_desc *add;

	KV_ASSERT(ed->ed_nadd <= 1 && !ed->ed_ndrop && !ed->ed_nbegin && !ed->ed_end);
	enc_change(m, ed, NULL, NULL, &add);
}

/*
 * All of them are appended, or none: what may be refused is looked at before the first record; a
 * crash may still keep the first few. Encoding each once gives the buffer the memory that the second
 * time needs.
 */
static int append_edits(struct kv_mdc *m, const struct kv_edit *ed, unsigned n)
{
	uint64_t bytes = 0;
	int err = 0;
	unsigned i;

	pthread_mutex_lock(&m->m_lock);
	for (i = 0; i < n && !err; i++) {
		err = look_for_store(m, &ed[i]);
		if (!err)
			enc_flush(m, &ed[i]);
		bytes += m->m_buf.mb_len + FRAMING;
	}
	if (!err)
		err = kv_mdc_append_time(m, 0);
	/* RV20: the state takes less than twice as much */
	if (!err && !m->m_buf.mb_err)
		err = kv_mdc_make_room(m, 2 * bytes);
	for (i = 0; i < n && !err; i++) {
		enc_flush(m, &ed[i]);
		err = kv_mdc_append_here(m, i + 1 < n ? 0 : durably());
	}
	pthread_mutex_unlock(&m->m_lock);
	return err;
}

/* Counts and horizons: what was appended is durable. */
static void count_edit(struct kvdb *db, const struct kv_edit *ed)
{
	struct kvdb_kvs *kvs;
	unsigned i;

	for (i = 0; i < ed->ed_nadd; i++)
		kv_run_count(db, ed->ed_add[i], 1);
	for (i = 0; i < ed->ed_ndrop; i++)
		kv_run_count(db, ed->ed_drop[i], -1);
	for (i = 0; i < ed->ed_nhor; i++) {
		uint64_t e = ed->ed_hor[i].epoch, old;

		kvs = kv_kvs_by_id(db, ed->ed_hor[i].kvs);
		if (!kvs)
			continue;
		old = atomic_load(&kvs->k_horizon);
		while (old < e && !atomic_compare_exchange_weak(&kvs->k_horizon, &old, e))
			;
	}
}

int kv_mdc_edits(struct kvdb *db, const struct kv_edit *ed, unsigned n)
{
	bool is_announced;
	int err;

	KV_ASSERT_OUTSIDE();
	KV_ASSERT(n && (n == 1 || !ed->ed_ndrop));
	err = announce(db->d_mdc, ed, n, &is_announced);
	if (err)
		return err;
	err = commit_runs(db, ed, n);
	if (!err)
		err = n == 1 ? append_edit(db->d_mdc, ed) : append_edits(db->d_mdc, ed, n);
	end_announced(db->d_mdc, ed, n, is_announced, err);
	for (unsigned i = 0; i < n && !err; i++)
		count_edit(db, &ed[i]);
	return err;
}

int kv_mdc_edit(struct kvdb *db, const struct kv_edit *ed)
{
	return kv_mdc_edits(db, ed, 1);
}
