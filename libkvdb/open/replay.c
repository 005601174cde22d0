/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Replay in bounded memory (RV25). The logs may hold what a process with a larger budget left.
 * They are replayed in parts, each of whole epochs in ascending order, so that after each of them
 * memtables hold all records up to an epoch and none above it. That is what they hold at a
 * switch: a flush with that epoch as its boundary moves horizons as any other (R4), and a crash
 * after it leaves what a crash after any other does. Before the first flush all the rest is
 * judged (RV24) and the incarnation's record is durable (R3).
 *
 * One epoch is the smallest part, whatever it holds.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/guard.h"
#include "db/db.h"
#include "mem/memtable.h"
#include "tree/tree.h"
#include "meta/mdc.h"
#include "background/work.h"
#include "open/recover.h"

struct part {
	uint64_t pa_hi;		/* its newest epoch */
	uint64_t pa_bytes;	/* of frames */
};

struct parts {
	struct part *ps_part;
	uint32_t ps_n;
	uint64_t ps_done;	/* bytes since the last flush */
};

/* While nothing else is in memory memtables may hold half as much again as they may later. */
static uint64_t memory_max(const struct kvdb *db)
{
	return db->d_budget.b_mt_bytes + db->d_budget.b_mt_bytes / 2;
}

/* A reader cannot flush: as much as a writer with the same budget leaves has room, twice. */
static uint64_t reader_max(const struct kvdb *db)
{
	return db->d_budget.b_mt_bytes * 2;
}

static uint64_t memory_now(const struct kvdb *db)
{
	return atomic_load(&db->d_count.mt_mem);
}

/* ---- parts ------------------------------------------------------------------------------- */

static int by_epoch(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	return x->pa_hi < y->pa_hi ? -1 : x->pa_hi > y->pa_hi;
}

/* As set_cuts() counts in lc_left: of one that is read every frame within its cut, above B. */
static uint32_t frames(const struct recovery *rv, const struct rv_seg *vs, struct part *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; !vs->vs_skip && i < vs->vs_n; i++) {
		const struct rv_frame *f = &vs->vs_frame[i];

		if (!f->vf_is_good || f->vf_epoch <= rv->rv_b || f->vf_end > vs->vs_cut)
			continue;
		if (out)
			out[n] = (struct part){ f->vf_epoch, f->vf_end - f->vf_off };
		n++;
	}
	return n;
}

/* Joins parts, in the order of their epochs, to parts of at most @most bytes, or of one epoch. */
static uint32_t join(struct part *pa, uint32_t n, uint64_t most)
{
	uint32_t to = 0;

	for (uint32_t i = 1; i < n; i++) {
		if (pa[i].pa_hi != pa[to].pa_hi && pa[to].pa_bytes + pa[i].pa_bytes > most)
			pa[++to] = pa[i];
		else
			pa[to] = (struct part){ pa[i].pa_hi, pa[to].pa_bytes + pa[i].pa_bytes };
	}
	return n ? to + 1 : 0;
}

static int parts_make(struct recovery *rv, struct parts *ps)
{
	uint32_t n = 0, i;

	for (i = 0; i < rv->rv_n; i++)
		n += frames(rv, &rv->rv_seg[i], NULL);
	ps->ps_part = calloc(n ? n : 1, sizeof(struct part));
	if (!ps->ps_part)
		return kv_error(-ENOMEM, "MP0902", "no memory for a list of %u log frames", n);
	for (n = 0, i = 0; i < rv->rv_n; i++)
		n += frames(rv, &rv->rv_seg[i], ps->ps_part + n);
	qsort(ps->ps_part, n, sizeof(struct part), by_epoch);
	ps->ps_n = join(ps->ps_part, n, memory_max(rv->rv_db) / 2);
	return 0;
}

static int replay_part(struct recovery *rv, uint64_t lo, uint64_t hi)
{
	int err = 0;

	for (uint32_t i = 0; i < rv->rv_n && !err; i++)
		err = kv_rv_replay_seg(rv, &rv->rv_seg[i], lo, hi);
	return err;
}

/* ---- flushing ---------------------------------------------------------------------------- */

/* The store's memtable holds all of its records up to epoch @e, and none above. */
static int freeze(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t e)
{
	struct kv_mt *mt = atomic_load(&kvs->k_tree)->tr_mt[0], *next;
	int err;

	if (!kv_mt_first_epoch(mt))
		return 0;
	err = kv_mt_new(db, kvs->k_id, mt, &next);
	if (err)
		return err;
	atomic_store(&mt->m_boundary, e);
	pthread_mutex_lock(&db->d_epochs.ep_tick_lock);
	err = kv_tree_switch(kvs, next);
	pthread_mutex_unlock(&db->d_epochs.ep_tick_lock);
	if (err)
		kv_mt_put(db, next);
	return err;
}

/* All are frozen first: the last flush is after every record up to @e (R4). */
static int flush_all(struct recovery *rv, uint64_t e)
{
	struct kvdb *db = rv->rv_db;
	uint32_t i;
	int err = 0;

	for (i = 0; i < KVDB_KVS_MAX && !err; i++)
		if (db->d_stores.sr_kvs[i])
			err = freeze(db, db->d_stores.sr_kvs[i], e);
	pthread_mutex_lock(&db->d_mdc->m_ddl_lock);
	kv_flushes_lock(db);
	if (!err)
		err = kv_boundary_flush(db, e);
	kv_flushes_unlock(db);
	pthread_mutex_unlock(&db->d_mdc->m_ddl_lock);
	/* a tree goes, then its memtables */
	kv_retire_barrier();
	kv_retire_barrier();
	/* a full pool opens: what is not flushed is frozen, and for the keeper */
	if (err == -ENOSPC || (err == -EIO && kv_is_local(db, err))) {
		rv->rv_is_stuck = true;
		err = 0;
	}
	return err;
}

/* Part @i is replayed, and memtables go before the next one. */
static int make_room(struct recovery *rv, struct parts *ps, uint32_t i)
{
	const struct part *pa = &ps->ps_part[i];
	int err = 0;

	if (!rv->rv_is_settled) {
		rv->rv_is_dry = true;
		err = BARRIER(replay_part(rv, pa->pa_hi, UINT64_MAX));
		rv->rv_is_dry = false;
		if (!err)
			err = BARRIER(kv_rv_settle(rv));
	}
	if (!err)
		err = flush_all(rv, pa->pa_hi);
	if (!err && !rv->rv_is_stuck) {
		rv->rv_db->d_logged.lc_left -= ps->ps_done;
		ps->ps_done = 0;
	}
	return err;
}

/* What memtables will hold after the part after part @i, or after the last one. */
static uint64_t memory_next(const struct recovery *rv, const struct parts *ps, uint32_t i)
{
	uint64_t now = memory_now(rv->rv_db);

	if (i + 1 == ps->ps_n || !ps->ps_done)
		return now;
	return now + (uint64_t)((double)now / (double)ps->ps_done *
				(double)ps->ps_part[i + 1].pa_bytes);
}

static int check_reader(const struct recovery *rv, const struct parts *ps)
{
	uint64_t now = memory_now(rv->rv_db), all = 0;

	if (now <= reader_max(rv->rv_db))
		return 0;
	for (uint32_t i = 0; i < ps->ps_n; i++)
		all += ps->ps_part[i].pa_bytes;
	return kv_error(-EFBIG, "MP0908", "the logs hold about %.0f MiB for memtables; a reader "
			"with cache_bytes of %llu MiB takes %llu MiB",
			(double)now / 1048576 * (double)all / (double)ps->ps_done,
			(unsigned long long)rv->rv_db->d_budget.b_cache_bytes >> 20,
			(unsigned long long)reader_max(rv->rv_db) >> 20);
}

int kv_rv_replay(struct recovery *rv)
{
	struct parts ps = { 0 };
	uint64_t lo = 0;
	int err = parts_make(rv, &ps);

	for (uint32_t i = 0; i < ps.ps_n && !err; i++) {
		uint64_t hi = i + 1 < ps.ps_n ? ps.ps_part[i].pa_hi : UINT64_MAX;

		err = replay_part(rv, lo, hi);
		lo = hi;
		ps.ps_done += ps.ps_part[i].pa_bytes;
		if (!err && rv->rv_as == KV_RECOVER_READ)
			err = check_reader(rv, &ps);
		if (!err && rv->rv_as == KV_RECOVER_WRITE && !rv->rv_is_stuck &&
		    memory_next(rv, &ps, i) > memory_max(rv->rv_db))
			err = make_room(rv, &ps, i);
	}
	free(ps.ps_part);
	return err;
}
