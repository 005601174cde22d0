/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Memory and log space: when memtables switch, when writers are held back.
 *
 * Two budgets: bytes in all memtables, and log bytes since the oldest record
 * that no durable run holds. A memtable is switched when it reaches its share
 * of either. Beyond such shares writers are slowed (throttle.c); they stop only
 * while a budget is exceeded, that is when flushing cannot keep up with the
 * slowest of rates or cannot find space.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "db/mem_wait.h"
#include "base/assert.h"
#include "base/guard.h"
#include "db/bell.h"
#include "cache/borrow.h"
#include "cache/slab.h"
#include "seg/reserve.h"
#include "mem/memtable.h"
#include "tree/leaf.h"
#include "log/flush.h"
#include "compact/merge.h"
#include "compact/reloc.h"
#include "background/work.h"

#define ROOM_TRIES	4u	/* jobs that make room for a delete before it uses the reserve */
#define SOON_PART	4u	/* of its share of the log a small memtable has left, or less */
#define FROZEN_LIMIT	4u	/* frozen memtables of a store, one more than it can have */

struct usage {
	uint64_t mt_bytes;
	uint64_t coming;	/* of them are about to be linked */
	uint64_t log_bytes;	/* since the oldest unflushed record */
	uint64_t mts;		/* memtables that hold them */
};

/*
 * Only memtables that a flush can free are counted. One that is flushed, or of a
 * store that was dropped, is held by cursors and views, whose owner may be the
 * writer that would wait; the table of an empty one is untouched memory, and
 * switching would not make it smaller.
 */
static struct usage usage(struct kvdb *db)
{
	struct kv_views *vw = db->d_mem.mm_views;
	uint64_t now = atomic_load(&db->d_logged.lc_bytes), oldest = now;
	struct usage u = { .coming = atomic_load(&db->d_count.mt_coming) };

	/* T16: writers make room for it as if it were there */
	u.mt_bytes = u.coming;
	pthread_mutex_lock(&vw->vw_lock);
	for (struct kv_mt *mt = vw->vw_mts; mt; mt = mt->m_next) {
		if (!atomic_load(&mt->m_first_epoch))
			continue;
		u.mt_bytes += atomic_load(&mt->m_bytes);
		u.mts++;
		if (atomic_load(&mt->m_log_pos) < oldest)
			oldest = atomic_load(&mt->m_log_pos);
	}
	pthread_mutex_unlock(&vw->vw_lock);
	u.log_bytes = now - oldest;
	return u;
}

/* Charges the store's writers for its backlog of memtables and runs. */
static void charge(struct kvdb_kvs *kvs, uint64_t frozen, uint64_t runs)
{
	uint32_t part[KVDB_DELAYS] = { 0 };

	part[KVDB_DELAY_FROZEN] = kv_debt_part(frozen, 1, FROZEN_LIMIT);
	part[KVDB_DELAY_RUNS] = kv_debt_part(runs, KV_UPPER_RUNS_SLOW, KV_UPPER_RUNS_MAX);
	kv_toll_set(&kvs->k_toll, part);
}

/*
 * TH-17: of each store its frozen memtables, and its upper runs if merges can make them fewer now.
 * Those that may have too many of them are looked at behind sr_lock: mg_lock is outside of it.
 */
static void charge_stores(struct kvdb *db)
{
	uint8_t late[KVDB_KVS_MAX];
	unsigned n = 0;
	struct kv_thread *t = kv_enter();

	_Static_assert(KVDB_KVS_MAX <= UINT8_MAX + 1, "late[]");
	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = db->d_stores.sr_kvs[i];
		struct kv_tree *tr;

		if (!kvs || kvs->k_dropped)
			continue;
		tr = atomic_load(&kvs->k_tree);
		if (kv_tree_flushed(tr) > KV_UPPER_RUNS_SLOW)
			late[n++] = (uint8_t)i;
		else
			charge(kvs, tr->tr_nmt - 1, 0);
	}
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	kv_exit(t);
	while (n--) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, late[n]);
		struct kv_tree *tr;

		if (!kvs)
			continue;
		tr = kv_tree_get(kvs);
		charge(kvs, tr->tr_nmt - 1,
		       CHECK(kv_merge_may_help(kvs)) ? kv_tree_flushed(tr) : 0);
		kv_tree_put(db, tr);
		kv_kvs_release(kvs);
	}
}

/*
 * How far background work is behind. A memtable that fills and one that is
 * being flushed are no debt: each may have a third of the memory, and three
 * tenths of the log.
 */
static void measure_debt(struct kvdb *db, const struct usage *u)
{
	const struct kv_budget *b = &db->d_budget;
	uint32_t part[KVDB_DELAYS] = { 0 };

	charge_stores(db);
	part[KVDB_DELAY_MEMORY] = kv_debt_part(u->mt_bytes, b->b_mt_bytes * 2 / 3, b->b_mt_bytes);
	part[KVDB_DELAY_LOG] = kv_debt_part(u->log_bytes, b->b_log_bytes * 3 / 5, b->b_log_bytes);
	part[KVDB_DELAY_SPACE] = kv_reloc_debt(db);
	part[KVDB_DELAY_SEGMENT] = kv_segs_debt(db, kv_logs_ready(db));
	part[KVDB_DELAY_STAGING] = kv_reloc_staging_debt(db);
	part[KVDB_DELAY_GATE] = kv_lag_debt(db);
	kv_toll_set(&db->d_throttle.th_all, part);
	atomic_store_explicit(&db->d_throttle.th_looked, kv_now(db), memory_order_relaxed);
}

void kv_pressure(struct kvdb *db)
{
	struct kv_flusher *fl = db->d_flusher;
	const struct kv_budget *b = &db->d_budget;
	struct usage u = usage(db);
	bool stall = u.mt_bytes > b->b_mt_bytes || u.log_bytes > b->b_log_bytes;
	bool was = atomic_exchange(&fl->fl_stall, stall);

	KV_ASSERT_FREE(&fl->fl_lock);
	KV_ASSERT_FREE(&db->d_stores.sr_lock);
	atomic_store(&fl->fl_is_tight, u.mt_bytes > b->b_mt_bytes * 5 / 6 ||
		     u.log_bytes > b->b_log_bytes * 4 / 5);
	measure_debt(db, &u);
	/* LE1: the caller may be a put in the middle of its work, or the flusher */
	if (kv_is_manual(db))
		kv_pagepool_lent_step(db);
	else if (kv_borrow_excess(db, kv_slab_big_bytes(db)))
		kv_grower_kick(db);

	if (was && !stall) {
		pthread_mutex_lock(&fl->fl_lock);
		pthread_cond_broadcast(&fl->fl_done);
		pthread_mutex_unlock(&fl->fl_lock);
		db->d_hooks->ho_cqs_wake(db);
	}
	if (stall)
		kv_work_kick(db);
	else if (u.mt_bytes > b->b_mt_bytes / 4 || u.log_bytes > b->b_log_bytes / 4)
		kv_work_tick(db);
}

struct holder {		/* of memory and log: the active memtable of a store */
	uint64_t ho_bytes;
	uint64_t ho_age;	/* bytes of log since its first record */
	uint32_t ho_slot;
	bool ho_is_small;
	bool ho_goes;
};

static int by_bytes(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;

	return (x->ho_bytes < y->ho_bytes) - (x->ho_bytes > y->ho_bytes);
}

/* The active memtables that hold anything; *@going: bytes of those that are about to freeze. */
static unsigned holders(struct kvdb *db, struct holder *ho, uint64_t *going)
{
	struct kv_thread *t = kv_enter();
	unsigned n = 0;

	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kvdb_kvs *kvs = db->d_stores.sr_kvs[i];
		struct kv_mt *mt = kvs && !kvs->k_dropped ? kv_mt_active(kvs) : NULL;
		uint64_t bytes;

		if (!mt || !kv_mt_first_epoch(mt))
			continue;
		bytes = atomic_load(&mt->m_bytes);
		if (atomic_load(&kvs->k_next_mt))
			*going += bytes;
		else
			ho[n++] = (struct holder){
				.ho_bytes = bytes, .ho_slot = i,
				.ho_is_small = kv_mt_is_small(db, mt),
				.ho_age = atomic_load(&db->d_logged.lc_bytes) -
					  atomic_load(&mt->m_log_pos),
			};
	}
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	kv_exit(t);
	return n;
}

/*
 * TH-18: with three quarters of the memory in use the largest go, until half of it is left. A
 * store that is hardly written to holds little, and its flush would give little. What is about to
 * be linked frees nothing: beside it as many go as leave it room, and an eighth (T16). Where
 * writers stop one goes, whatever is about to be linked: no other would bring them on.
 */
static void choose_largest(struct kvdb *db, const struct usage *u, struct holder *ho, unsigned n,
			   uint64_t going)
{
	uint64_t most = db->d_budget.b_mt_bytes, active = 0, there = u->mt_bytes - u->coming;
	uint64_t left = u->coming + most / 8 > most / 2 ? u->coming + most / 8 : most / 2;

	if (u->mt_bytes <= most - most / 4)
		return;
	if (left > most)
		left = most;
	qsort(ho, n, sizeof(ho[0]), by_bytes);
	for (unsigned i = 0; i < n; i++)
		active += ho[i].ho_bytes;
	/* those that wait for their flush */
	going += there > active + going ? there - active - going : 0;
	for (unsigned i = 0; i < n && u->mt_bytes > going + left; i++) {
		ho[i].ho_goes = true;
		going += ho[i].ho_bytes;
	}
}

/*
 * Those that had their share of memory or log. TH-19: with one that must go for the log's sake go
 * the small ones that would soon: then all of them are written to anew, and due together again.
 */
static void choose_due(struct kvdb *db, struct holder *ho, unsigned n, uint64_t share)
{
	uint64_t soon = share;

	for (unsigned i = 0; i < n; i++)
		if (ho[i].ho_age > share)
			soon = share - share / SOON_PART;
	for (unsigned i = 0; i < n; i++)
		ho[i].ho_goes |= ho[i].ho_age > share ||
				 ho[i].ho_bytes > db->d_budget.b_mt_bytes / 3 ||
				 (ho[i].ho_is_small && ho[i].ho_age > soon);
}

int kv_switch_prepare(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kv_thread *t = kv_enter();
	struct kv_mt *mt = kv_mt_get(kv_mt_active(kvs)), *next, *none = NULL;
	int err;

	kv_exit(t);
	err = kv_mt_new(db, kvs->k_id, mt, &next);
	kv_mt_put(db, mt);
	if (err)
		return err;
	if (!atomic_compare_exchange_strong(&kvs->k_next_mt, &none, next))
		kv_mt_put(db, next);
	return 0;
}

/* 1, 0: it cannot now, or -errno. */
static int switch_slot(struct kvdb *db, uint32_t slot)
{
	struct kvdb_kvs *kvs = kv_kvs_hold(db, slot);
	struct kv_thread *t;
	bool may;
	int err = 0;

	KV_ASSERT_OUTSIDE();
	if (!kvs)
		return 0;
	t = kv_enter();
	may = !atomic_load(&kvs->k_next_mt) && atomic_load(&kvs->k_tree)->tr_nmt < KV_MTS_MAX;
	kv_exit(t);
	if (may)
		err = kv_switch_prepare(db, kvs);
	kv_kvs_release(kvs);
	return err ? err : may;
}

int kv_switch_step(struct kvdb *db)
{
	uint64_t share = kv_staging_flush_share(db), going = 0;
	struct holder ho[KVDB_KVS_MAX];
	struct usage u = usage(db);
	unsigned n = holders(db, ho, &going);
	int did = 0;

	if (share > db->d_budget.b_log_bytes / 2)
		share = db->d_budget.b_log_bytes / 2;
	choose_largest(db, &u, ho, n, going);
	choose_due(db, ho, n, share);
	for (unsigned i = 0; i < n; i++) {
		int r = ho[i].ho_goes ? switch_slot(db, ho[i].ho_slot) : 0;

		if (r < 0)
			return r;
		did |= r;
	}
	if (did && kv_is_manual(db))
		return kv_epoch_force(db) ? kv_fault(db) : 1;
	if (did)
		kv_flusher_tick(db);
	return did;
}

/*
 * Deletes bring nothing back but by merges: what these need of the reserve is not for the log of
 * deletes, whose writers wait for a few of them.
 */
static bool leaves_room_to_merge(struct kvdb *db)
{
	const struct kv_budget *b = &db->d_budget;

	return kv_segs_free_bytes(db) >= 2 * (b->b_leaf_bytes + b->b_seg_bytes) || kv_fault(db);
}

/* R19: before a delete takes from the reserve. */
static void make_room(struct kvdb *db, bool urgent, uint64_t since_ns)
{
	uint64_t begun = atomic_load(&db->d_count.merges);
	unsigned i = 0;

	kv_make_room(db);
	/* a nap beside the merges of others is no merge */
	while (urgent && !leaves_room_to_merge(db) &&
	       i + atomic_load(&db->d_count.merges) - begun < ROOM_TRIES) {
		if (kv_space_comes(db, since_ns))
			continue;
		kv_make_room(db);
		i++;
	}
}

int kv_space_take(struct kvdb *db, bool urgent, kv_space_fn take, void *arg)
{
	uint64_t t0 = kv_now(db);
	bool comes;
	int err;

	KV_ASSERT_OUTSIDE();
	atomic_fetch_add(&db->d_bg.bd_makers, 1);
	make_room(db, urgent, t0);
	do {
		comes = kv_space_comes(db, t0);
		err = take(arg, urgent);
	} while (err == -ENOSPC && comes);
	KV_ASSERT(atomic_load(&db->d_bg.bd_makers));
	atomic_fetch_sub(&db->d_bg.bd_makers, 1);
	kv_delayed(db, KVDB_DELAY_SPACE, kv_now(db) - t0);
	return err;
}

/* G7: it is another's turn, whose room is for all that find none: true, after a nap, till then. */
static bool others_make_room(struct kvdb *db, uint64_t since_ns)
{
	return atomic_load(&db->d_bg.bd_makers) && kv_now(db) - since_ns < KV_PATIENCE_NS &&
	       !kv_sleep_or_stop(db);
}

static int take_others(struct kvdb *db, kv_space_fn take, void *arg)
{
	uint64_t t0 = kv_now(db);
	bool comes;
	int err;

	KV_ASSERT_OUTSIDE();
	do {
		/* before the try, for the other may end in between */
		comes = others_make_room(db, t0);
		err = take(arg, false);
	} while (err == -ENOSPC && comes);
	kv_delayed(db, KVDB_DELAY_SPACE, kv_now(db) - t0);
	return err;
}

int kv_space_get(struct kvdb *db, bool urgent, kv_space_fn take, void *arg)
{
	int err = take(arg, false);

	if (err != -ENOSPC)
		return err;
	return urgent || kv_reloc_may_help(db) ? kv_space_take(db, urgent, take, arg) :
						 take_others(db, take, arg);
}

/* A segment for a log. */
struct want {
	struct kvdb *wa_db;
	struct kv_log *wa_log;
	const struct kv_seg *wa_at;
};

static int take_segment(void *arg, bool urgent)
{
	struct want *wa = arg;

	return kv_log_prepare(wa->wa_db, wa->wa_log, urgent);
}

static int take_staging(void *arg, bool urgent)
{
	struct want *wa = arg;

	(void)urgent;
	return kv_log_restage(wa->wa_db, wa->wa_log, wa->wa_at);
}

int kv_segment_wait(struct kvdb *db, struct kv_log *lo, bool urgent)
{
	struct want wa = { db, lo, NULL };

	KV_ASSERT_OUTSIDE();
	return kv_space_get(db, urgent, take_segment, &wa);
}

int kv_segment_staging(struct kvdb *db, struct kv_log *lo, const struct kv_seg *at)
{
	struct want wa = { db, lo, at };

	KV_ASSERT_OUTSIDE();
	return kv_space_get(db, false, take_staging, &wa);
}

/* G7: a put that a flush without room holds up has room made once, as one without a segment. */
static void stall_make_room(struct kvdb *db, bool urgent)
{
	uint64_t t0 = kv_now(db);

	if (urgent || atomic_load(&db->d_flusher->fl_space_err) != -ENOSPC)
		return;
	if (kv_reloc_may_help(db))
		kv_make_room(db);
	else
		while (others_make_room(db, t0))
			;
	/* the last flush may have failed long ago */
	while (kv_flush_step(db) > 0)
		;
	kv_pressure(db);
}

/* KVDB_MANUAL: the writer does the work itself. */
static int stall_manual(struct kvdb *db, bool urgent)
{
	struct kv_flusher *fl = db->d_flusher;
	int r = 1;

	while (atomic_load(&fl->fl_stall) && r > 0) {
		stall_make_room(db, urgent);
		r = kv_work_step(db);
		if (r == 0 && kv_epoch_force(db) == 0)
			r = kv_work_step(db);
		kv_pressure(db);
		/* another thread makes room */
		if (r == -ENOSPC && !urgent && !atomic_load(&fl->fl_space_err) &&
		    !kv_sleep_or_stop(db))
			r = 1;
	}
	if (!urgent && !r && atomic_load(&fl->fl_stall))
		r = atomic_load(&fl->fl_space_err);
	if (urgent && r == -ENOSPC)
		r = 0;	/* a delete on a full pool is how space comes back */
	return r < 0 ? r : kv_fault(db);
}

int kv_stall_wait(struct kvdb *db, bool urgent)
{
	struct kv_flusher *fl = db->d_flusher;
	unsigned cause = atomic_load(&fl->fl_space_err) ? KVDB_DELAY_SPACE : kv_delay_cause(db);
	uint64_t t0 = kv_now(db);
	struct timespec ts;
	int err = 0;

	KV_ASSERT_OUTSIDE();
	KV_ASSERT_FREE(&fl->fl_lock);
	atomic_fetch_add(&db->d_count.stalls, 1);
	if (kv_is_manual(db)) {
		err = stall_manual(db, urgent);
	} else {
		kv_work_kick(db);
		stall_make_room(db, urgent);
		pthread_mutex_lock(&fl->fl_lock);
		while (atomic_load(&fl->fl_stall) && !(err = kv_fault(db)) &&
		       !(err = urgent ? 0 : atomic_load(&fl->fl_space_err))) {
			uint64_t until = kv_now(db) + 10000000u;

			ts.tv_sec = (time_t)(until / 1000000000u);
			ts.tv_nsec = (long)(until % 1000000000u);
			pthread_cond_timedwait(&fl->fl_done, &fl->fl_lock, &ts);
			if (urgent && atomic_load(&fl->fl_space_err))
				break;
			/* two kv_pressure() at once may leave the older answer behind */
			pthread_mutex_unlock(&fl->fl_lock);
			kv_pressure(db);
			pthread_mutex_lock(&fl->fl_lock);
		}
		pthread_mutex_unlock(&fl->fl_lock);
	}
	t0 = kv_now(db) - t0;
	atomic_fetch_add(&db->d_count.stall_ns, t0);
	kv_delayed(db, cause, t0);
	return err;
}
