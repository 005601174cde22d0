/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The space bound: when values must move, and which.
 *
 * Space is what the segments and runs take that hold data; live is keys plus
 * values that a reader would find now. When space exceeds space_amp_max
 * times live, a relocation is due. Three steps, each dearer than the one
 * before and each the reason for the next:
 *
 *  1. Estimate: kv_space_live().
 *  2. Count: the runs are merged without writing anything. Now the live bytes
 *     of every segment are known, and the emptiest that make up the excess
 *     become victims.
 *  3. Move: every store that refers to a victim is merged down to its oldest
 *     such run, and the victims' values are copied on the way.
 *
 * The second and the third are a job's (reloc_job.c).
 *
 * Locks, outer first: rl_lock (a job for space, policy or scans), rl_age_lock (one for
 * staging, and any of both classes: G10), mg_lock or k_edit_lock, ro_lock, sg_lock. Inside
 * rl_force_lock nothing else is taken.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/guard.h"
#include "db/bell.h"
#include "db/db.h"
#include "db/mem_wait.h"
#include "db/policy.h"
#include "seg/reserve.h"
#include "run/run.h"
#include "tree/tree.h"
#include "meta/upkeep.h"
#include "compact/heat.h"
#include "compact/progress.h"
#include "compact/reloc_state.h"

#define AMP_DEFAULT	1.5
#define STAGED_EVERY_NS	5000000ull	/* between two looks at what staging holds */
#define AGED_WITHIN_NS	500000000ull	/* a waiting writer sees values leave so often */
#define PACE_NS		1000000000ull	/* the pace of the logs is that of about so long */
#define BURST_S		30u		/* at which they may go on so long beyond the bound, */
#define BURST_MOST	0.8		/* part of the excess that a burst adds at most, */
#define BURST_LEFT	3.0		/* which leaves a third of that */
#define ESTIMATE_NS	5000000000ull	/* an estimate holds so long, if space grows little */
#define KEYS_WORTH	2u		/* a job for space brings this times the bytes of keys */
#define ORDER_EVERY_NS	1000000000ull	/* between two looks at what scans have paid */
#define ORDER_AGAIN_NS	10000000000ull	/* after a job for them that had to give way */
#define HEAT_HALF_NS	3600000000000ull /* half-life of heat */
#define STUCK_NS	60000000000ull	/* pause after a job that was cancelled */

/* Why a job runs. */
enum reason { FOR_SPACE, FOR_STAGING, FOR_POLICY, FOR_SCANS };

int kv_reloc_init(struct kvdb *db, double amp)
{
	struct kv_reloc *rl = calloc(1, sizeof(*rl));

	if (!rl)
		return -ENOMEM;
	pthread_mutex_init(&rl->rl_lock, NULL);
	pthread_mutex_init(&rl->rl_age_lock, NULL);
	pthread_mutex_init(&rl->rl_force_lock, NULL);
	kv_promises_init(&rl->rl_room);
	rl->rl_max = amp != 0 ? amp : AMP_DEFAULT;
	db->d_reloc = rl;
	return 0;
}

void kv_reloc_fini(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;

	if (!rl)
		return;
	pthread_mutex_destroy(&rl->rl_lock);
	pthread_mutex_destroy(&rl->rl_age_lock);
	pthread_mutex_destroy(&rl->rl_force_lock);
	kv_trouble_end(db, &rl->rl_trouble);
	kv_promises_fini(&rl->rl_room);
	free(rl->rl_job.jb_cand);
	free(rl->rl_age.jb_cand);
	free(rl);
	db->d_reloc = NULL;
}

double kv_reloc_amp_max(struct kvdb *db)
{
	return db->d_reloc->rl_max;
}

static bool is_held(pthread_mutex_t *lock)
{
	if (pthread_mutex_trylock(lock))
		return true;
	pthread_mutex_unlock(lock);
	return false;
}

bool kv_reloc_is_busy(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;

	return rl && (is_held(&rl->rl_lock) || is_held(&rl->rl_age_lock));
}

/* Without a job there is no debt: a writer waits only while a thread works on it. */
uint32_t kv_reloc_debt(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;

	return rl ? kv_pacer_debt(&rl->rl_pacer, atomic_load(&db->d_logged.lc_bytes), kv_now(db)) :
		    0;
}

/*
 * As with space: a writer waits only while a job runs (TH-6). What the job has written
 * counts as gone, or else writers would go fast and slow by turns.
 */
uint32_t kv_reloc_staging_debt(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;
	uint64_t now, due, staged, aged;

	if (!rl || !atomic_load(&rl->rl_is_ageing))
		return 0;
	now = kv_now(db);
	if (now > atomic_load(&rl->rl_aged_ns) + AGED_WITHIN_NS)
		return 0;
	due = atomic_load(&rl->rl_staged_ns);
	if (now >= due &&
	    atomic_compare_exchange_strong(&rl->rl_staged_ns, &due, now + STAGED_EVERY_NS)) {
		aged = atomic_load(&rl->rl_aged_bytes);
		staged = kv_segs_staged(db);
		atomic_store(&rl->rl_staged_debt,
			     kv_staging_debt(db, staged > aged ? staged - aged : 0,
					     atomic_load(&rl->rl_aged_rate)));
	}
	return atomic_load(&rl->rl_staged_debt);
}

/* The merge rewrites keys, nearly all of them: it must be worth that. */
static unsigned choose_for_space(struct kv_reloc *rl, struct kv_rjob *jb, uint64_t space,
				 double limit, double goal, const struct kv_reloc_room *room)
{
	uint64_t want = (uint64_t)(goal * (double)jb->jb_user), excess;
	uint64_t least = rl->rl_is_short ? 0 : KEYS_WORTH * atomic_load(&rl->rl_run_bytes);

	jb->jb_is_over = (double)space > limit * (double)jb->jb_user;
	if (!jb->jb_is_over)
		return 0;
	excess = space > want ? space - want : 0;
	return kv_reloc_choose(jb->jb_cand, jb->jb_ncand, excess > least ? excess : least, room);
}

/*
 * Until the edit the values of a job for scans take their space twice. That is kept
 * within the bound, but for a quarter of what the bound allows beside live data.
 */
static uint64_t room_to_order(const struct kv_reloc *rl, uint64_t space, uint64_t most)
{
	double live = (double)atomic_load(&rl->rl_live), over = (rl->rl_max - 1) * live / 4;
	uint64_t room = (uint64_t)fmax(rl->rl_max * live - (double)space, over);

	return room < most ? room : most;
}

/* Number of candidates, the first ones, that are victims. @now: space that they could change. */
static unsigned choose(struct kvdb *db, struct kv_rjob *jb, enum reason why, uint64_t now,
		       double limit, double goal)
{
	struct kv_reloc *rl = db->d_reloc;
	enum kv_victim_of who = why == FOR_STAGING ? KV_VICTIM_OLD : KV_VICTIM;
	bool all = why == FOR_SPACE && kv_rjob_takes(jb, MPOOL_STAGING);
	uint64_t excess = kv_reloc_staged_excess(db, kv_segs_staged(db));
	struct kv_reloc_room room;
	unsigned n;

	KV_ASSERT_HELD(why == FOR_STAGING ? &rl->rl_age_lock : &rl->rl_lock);
	kv_promise_look(db, &rl->rl_room, who, all, &room);
	if (why == FOR_SPACE)
		n = choose_for_space(rl, jb, now, limit, goal, &room);
	else if (why == FOR_STAGING)
		n = kv_reloc_choose_old(jb->jb_cand, jb->jb_ncand, excess,
					room.rr_any < room.rr_into[MPOOL_CAPACITY] ?
					room.rr_any : room.rr_into[MPOOL_CAPACITY]);
	else if (why == FOR_SCANS)
		n = kv_heat_choose(jb->jb_cand, jb->jb_ncand, kv_reloc_run_bytes(db),
				   room_to_order(rl, now, room.rr_any));
	else
		n = kv_reloc_choose_wrong(jb->jb_cand, jb->jb_ncand, &room);
	kv_promise_make(db, &rl->rl_room, who, kv_rjob_todo(jb, n));
	KV_ASSERT(n <= jb->jb_ncand);
	for (unsigned i = 0; i < n; i++) {
		KV_ASSERT(kv_rjob_takes(jb, jb->jb_cand[i].vi_seg->sg_mclass));
		atomic_store(&jb->jb_cand[i].vi_seg->sg_victim, who);
		kv_compact_todo(db, jb->jb_cand[i].vi_live);
	}
	if (why == FOR_STAGING && n)
		kv_promise_reach(db, &rl->rl_room, who, kv_rjob_reach(db));
	return n;
}

/* What is logged while a job for space runs adds to what is in use when it begins. */
static uint64_t room_for_writers(const struct kv_reloc *rl, uint64_t space)
{
	return kv_pacer_room(space, atomic_load(&rl->rl_live), rl->rl_max);
}

/*
 * Counts, chooses, moves. @goal: space per live byte to reach once it is above
 * @limit. 1 = something moved, 0 = nothing to do or nothing that helps.
 */
static int job_once(struct kvdb *db, struct kv_rjob *jb, enum reason why, double limit,
		    double goal)
{
	struct kv_reloc *rl = db->d_reloc;
	bool is_counted = why == FOR_SPACE || why == FOR_POLICY;
	uint64_t space, now = 0;
	unsigned n = 0;
	int rc = kv_rjob_begin(db, jb);

	KV_ASSERT_OUTSIDE();
	KV_ASSERT_HELD(why == FOR_STAGING ? &rl->rl_age_lock : &rl->rl_lock);
	jb->jb_tight = kv_reloc_staged_excess(db, kv_segs_staged(db)) != 0;
	/* values flushed during the count are left to the next job */
	space = kv_reloc_space(db);
	if (why == FOR_SPACE)
		kv_pacer_begin(&rl->rl_pacer, room_for_writers(rl, space),
			       atomic_load(&db->d_logged.lc_bytes), kv_now(db));
	if (why == FOR_SCANS)
		atomic_store(&rl->rl_is_ordering, true);
	if (why != FOR_STAGING)
		atomic_store(&rl->rl_is_for_space, why == FOR_SPACE);
	/* a caller without room asks again and again: it does not wait for a useless count */
	if (atomic_load(&rl->rl_is_rescue) && !jb->jb_ncand)
		is_counted = false;
	else if (!rc)
		rc = kv_rjob_count(db, jb, is_counted);
	if (!rc && is_counted) {
		atomic_store(&rl->rl_live, jb->jb_user);
		now = kv_rjob_space(db, jb);
	}
	if (!rc)
		n = choose(db, jb, why, is_counted && now < space ? now : space, limit, goal);
	if (why == FOR_SPACE && n)
		kv_pacer_moves(&rl->rl_pacer, room_for_writers(rl, space), kv_rjob_todo(jb, n),
			       kv_now(db));
	if (!rc && n)
		rc = kv_rjob_move(db, jb, why != FOR_SPACE, why == FOR_STAGING);
	/* on a pool that is nearly full no look is too early */
	jb->jb_is_early = why == FOR_SPACE && !n && now < space && !rl->rl_is_short;
	kv_rjob_settle(db, jb, n);
	/* scans pay again for what could not be moved */
	for (unsigned i = 0; i < n && why == FOR_SCANS && rc >= 0; i++)
		atomic_store(&jb->jb_cand[i].vi_seg->sg_heat, 0);
	kv_rjob_end(db, jb);
	kv_promise_end(&rl->rl_room, why == FOR_STAGING ? KV_VICTIM_OLD : KV_VICTIM);
	if (why == FOR_STAGING)
		atomic_store(&rl->rl_aged_bytes, 0);
	else if (why == FOR_SCANS)
		atomic_store(&rl->rl_is_ordering, false);
	else if (why == FOR_SPACE)
		kv_pacer_end(&rl->rl_pacer, kv_now(db), !atomic_load(&rl->rl_forced));
	if (why == FOR_SCANS && jb->jb_stores) {
		atomic_fetch_add(&db->d_count.order_relocations, 1);
		atomic_fetch_add(&db->d_count.order_bytes, jb->jb_bytes);
	}
	if (jb->jb_stores)
		atomic_fetch_add(&db->d_count.relocations, 1);
	return rc ? rc : jb->jb_stores != 0;
}

static int run_job(struct kvdb *db, struct kv_rjob *jb, enum reason why, double limit, double goal)
{
	unsigned tries = 0;
	int rc;

	KV_ASSERT_OUTSIDE();
	do {
		rc = job_once(db, jb, why, limit, goal);
		rc = rc < 0 ? rc : jb->jb_failed ? jb->jb_failed : rc;
	} while (kv_retry_allowed(db, rc, &tries));
	if (rc >= 0)
		kv_trouble_end(db, &db->d_reloc->rl_trouble);
	return rc;
}

/* Jobs for staging follow each other: the next one waits for this caller. rl_lock held. */
static bool stop_ageing(struct kv_reloc *rl)
{
	KV_ASSERT_HELD(&rl->rl_lock);
	atomic_store(&rl->rl_is_wanted, true);
	pthread_mutex_lock(&rl->rl_age_lock);
	atomic_store(&rl->rl_is_wanted, false);
	return true;
}

/* G13: it brought something. */
static bool has_gained(const struct kv_rjob *jb, uint64_t space)
{
	return jb->jb_gain > space / 128;
}

/*
 * What stores with a strict policy have in the other class is to leave it, but a full class takes
 * nothing: then it is put together where it is. rl_lock held.
 */
static int run_where_it_is(struct kvdb *db, double limit, double goal)
{
	struct kv_rjob *jb = &db->d_reloc->rl_job;
	bool has = false;
	int rc = 0;

	KV_ASSERT_HELD(&db->d_reloc->rl_lock);
	jb->jb_stays = true;
	/* what little one class may bring is no reason to leave the other one */
	for (unsigned c = 0; c < MPOOL_MCLASSES && rc >= 0 && !has; c++) {
		jb->jb_home = (uint8_t)c;
		rc = run_job(db, jb, FOR_SPACE, limit, goal);
		has = rc > 0 && has_gained(jb, kv_reloc_space(db));
	}
	jb->jb_stays = false;
	return rc;
}

/* One that may empty any segment: no job for staging runs meanwhile (G10). rl_lock held. */
static int run_alone(struct kvdb *db, enum reason why, double limit, double goal)
{
	struct kv_reloc *rl = db->d_reloc;
	struct kv_rjob *jb = &rl->rl_job;
	bool is_alone = BARRIER(stop_ageing(rl));
	int rc;

	KV_ASSERT_HELD(&rl->rl_lock);
	jb->jb_classes = UINT8_MAX;
	rc = run_job(db, jb, why, limit, goal);
	if (why == FOR_SPACE && rc >= 0 && jb->jb_is_over && jb->jb_wrong &&
	    !(rc && has_gained(jb, kv_reloc_space(db))))
		rc = run_where_it_is(db, limit, goal);
	if (is_alone)
		pthread_mutex_unlock(&rl->rl_age_lock);
	return rc;
}

/*
 * For space, beside jobs for staging if there is enough for them: what is
 * overwritten there leaves with them. rl_lock held.
 */
static int run_for_space(struct kvdb *db, double limit, double goal)
{
	struct kv_reloc *rl = db->d_reloc;
	int rc;

	KV_ASSERT_HELD(&rl->rl_lock);
	if (db->d_mode.md_log_class == MPOOL_CAPACITY || rl->rl_is_short ||
	    !kv_staging_is_filling(db, kv_segs_staged(db)))
		return run_alone(db, FOR_SPACE, limit, goal);
	rl->rl_job.jb_classes = 1u << MPOOL_CAPACITY;
	rc = run_job(db, &rl->rl_job, FOR_SPACE, limit, goal);
	if (rc < 0 || !rl->rl_job.jb_is_over || (rc && has_gained(&rl->rl_job, kv_reloc_space(db))))
		return rc;
	/* nothing there helps */
	return run_alone(db, FOR_SPACE, limit, goal);
}

/*
 * A little below the bound, so that an estimate that is a little off keeps it.
 * On a pool that is nearly full space is dearer than writing.
 */
static double limit_of(const struct kv_reloc *rl)
{
	return 1 + (rl->rl_max - 1) * (rl->rl_is_short ? 0.4 : 0.98);
}

static double goal_of(const struct kv_reloc *rl)
{
	return 1 + (rl->rl_max - 1) * (rl->rl_is_short ? 0.25 : 0.94) + rl->rl_burst / BURST_LEFT;
}

double kv_space_burst(double pace, uint64_t live, double amp)
{
	return live ? fmin(pace * BURST_S / (double)live, BURST_MOST * (amp - 1)) : 0;
}

static void note_pace(struct kvdb *db, uint64_t now)
{
	struct kv_reloc *rl = db->d_reloc;
	uint64_t log = atomic_load(&db->d_logged.lc_bytes);
	double ns, pace;

	/* frames are counted when they are closed: of a moment there may be none or many */
	if (now < rl->rl_pace_ns + KV_RELOC_LOOK_NS)
		return;
	ns = (double)(now - rl->rl_pace_ns);
	pace = rl->rl_pace_ns ? (double)(log - rl->rl_pace_log) * 1e9 / ns : 0;
	rl->rl_pace += (pace - rl->rl_pace) * ns / (ns + PACE_NS);
	rl->rl_pace_log = log;
	rl->rl_pace_ns = now;
}

/*
 * What was written last is still being overwritten while writers are fast: a job would move
 * what will soon be dead. When they pause, or a caller waits, the bound is what it is.
 */
static double burst_of(struct kv_reloc *rl, uint64_t live)
{
	if (atomic_exchange(&rl->rl_is_awaited, false) || rl->rl_is_short)
		return 0;
	return kv_space_burst(rl->rl_pace, live, rl->rl_max);
}

/* It may be changed by space, or by the burst that the job was to leave a part of. */
static bool is_stuck(struct kvdb *db, uint64_t space)
{
	const struct kv_reloc *rl = db->d_reloc;
	uint64_t at = rl->rl_backoff.bo_at;

	return kv_backoff_is_active(db, &rl->rl_backoff) && space >= at && space <= at + at / 32 &&
	       CHECK(rl->rl_burst >= rl->rl_stuck_burst - (rl->rl_max - 1) / 32);
}

/* True when space is above the bound as far as can be told cheaply. rl_lock held. */
static int is_due(struct kvdb *db, uint64_t now)
{
	struct kv_reloc *rl = db->d_reloc;
	uint64_t space = kv_reloc_space(db), live = 0, bound;
	bool was_short;
	int rc;

	KV_ASSERT_HELD(&rl->rl_lock);
	was_short = rl->rl_is_short;
	rl->rl_is_short = kv_segs_are_short(db);
	note_pace(db, now);
	if (rl->rl_is_short == was_short && space < atomic_load(&rl->rl_next_space) &&
	    now < atomic_load(&rl->rl_next_est))
		return 0;
	rc = kv_space_live(db, &live);
	if (rc)
		return rc;
	atomic_store(&rl->rl_live, live);
	rl->rl_burst = burst_of(rl, live);
	bound = (uint64_t)((limit_of(rl) + rl->rl_burst) * (double)live);
	atomic_store(&rl->rl_next_est, now + ESTIMATE_NS);
	/* with nothing but overwrites from here on, the bound is reached there */
	atomic_store(&rl->rl_next_space, bound);
	return space >= bound && space >= 4ull * db->d_budget.b_seg_bytes && !is_stuck(db, space);
}

/*
 * What a job could not help, @at, stays as it is. Memory that ends says nothing of that (E5),
 * nor does a cancel, or that merges come first, or what a device could not read: then it
 * is tried again a minute later.
 */
static void backoff_after(struct kvdb *db, struct kv_backoff *bo, uint64_t at, int rc)
{
	uint64_t age_ns;
	bool may_heal = kv_troubles(db, &age_ns, NULL, 0);

	kv_backoff_set(db, bo, rc == -ENOMEM || kv_is_local(db, rc) ? 0 : at);
	bo->bo_ns = rc == -EAGAIN || rc == -ECANCELED || may_heal ? kv_now(db) + STUCK_NS : 0;
}

/*
 * A job for @call is over: so is the call if nothing is left to gain, @is_last, or as much was
 * emptied as there was when it was made, beside writers some of what came since (G15). Asked for
 * again meanwhile, it begins anew.
 */
static void force_count(struct kv_reloc *rl, uint64_t call, bool is_last)
{
	uint64_t n = rl->rl_job.jb_gain + rl->rl_job.jb_bytes;

	pthread_mutex_lock(&rl->rl_force_lock);
	if (atomic_load(&rl->rl_forced) == call) {
		rl->rl_forced_left -= n < rl->rl_forced_left ? n : rl->rl_forced_left;
		if (is_last || !rl->rl_forced_left)
			atomic_store(&rl->rl_forced, 0);
	}
	pthread_mutex_unlock(&rl->rl_force_lock);
}

static int step_locked(struct kvdb *db, uint64_t now)
{
	struct kv_reloc *rl = db->d_reloc;
	const struct kv_rjob *jb = &rl->rl_job;
	/* keys first: a version that a merge drops needs no place for its value */
	uint64_t call = atomic_load(&rl->rl_forced);
	bool forced = call && !kv_compact_is_merging(db);
	int rc = forced ? 1 : is_due(db, now);
	uint64_t space;

	KV_ASSERT_HELD(&rl->rl_lock);
	if (rc <= 0)
		return rc;
	rc = kv_segs_seal_now(db);
	if (rc >= 0)
		rc = forced ? run_alone(db, FOR_SPACE, 1, 1) :
			      run_for_space(db, limit_of(rl), goal_of(rl));
	space = kv_reloc_space(db);
	backoff_after(db, &rl->rl_backoff,
		      jb->jb_is_early || (rc > 0 && has_gained(jb, space)) ? 0 : space, rc);
	rl->rl_stuck_burst = rl->rl_burst;
	if (forced && rc < 0)
		kv_compact_end(db, rc);
	else if (forced)
		force_count(rl, call, !rc || rl->rl_backoff.bo_at);
	atomic_store(&rl->rl_next_space, 0);
	return rc;
}

struct wrong {
	const struct kv_rjob *wr_job;
	uint8_t wr_class;
	uint64_t wr_bytes;
};

static void add_wrong(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	struct wrong *w = arg;

	(void)n;
	if (s->sg_mclass != w->wr_class && kv_rjob_may_empty(w->wr_job, s))
		w->wr_bytes += bytes;
}

static int wrong_store(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr, void *arg)
{
	struct wrong *w = arg;

	if (!kv_policy_is_strict(db, kvs))
		return 0;
	w->wr_class = kv_policy_move_class(db, kvs, false);
	for (uint32_t i = 0; i < tr->tr_nrun; i++)
		kv_run_segs(tr->tr_run[i], add_wrong, w);
	return 0;
}

/* Bytes that stores with a strict policy have in the other class; rl_lock held. */
static uint64_t wrong_bytes(struct kvdb *db)
{
	struct kv_rjob *jb = &db->d_reloc->rl_job;
	struct wrong w = { .wr_job = jb };

	KV_ASSERT_HELD(&db->d_reloc->rl_lock);
	db->d_reloc->rl_counts++;
	kv_rjob_look(db, jb);
	kv_each_store(db, wrong_store, false, &w);
	return w.wr_bytes;
}

static void note_rate(struct kv_reloc *rl, uint64_t ns)
{
	uint64_t rate = (uint64_t)((double)rl->rl_age.jb_left * 1e9 / (double)(ns + 1));
	uint64_t was = atomic_load(&rl->rl_aged_rate);

	atomic_store(&rl->rl_aged_rate, was ? was - was / 4 + rate / 4 : rate);
}

void kv_reloc_let_go(struct kvdb *db)
{
	atomic_fetch_add(&db->d_reloc->rl_let_go, 1);
}

/* True once after that: a job that could not help may be able to now. */
static bool was_let_go(struct kv_reloc *rl, uint64_t *seen)
{
	uint64_t n = atomic_load(&rl->rl_let_go);
	bool was = BARRIER(n != *seen);

	*seen = n;
	return was;
}

/*
 * Values age: while there are too many on staging the oldest leave, job after
 * job. One that changed nothing is not tried again before something did.
 */
static int age_locked(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;
	struct kv_rjob *jb = &rl->rl_age;
	uint64_t staged = kv_segs_staged(db), t0 = kv_now(db);
	int rc;

	KV_ASSERT_HELD(&rl->rl_age_lock);
	if (was_let_go(rl, &rl->rl_age_seen))
		rl->rl_old_backoff.bo_at = 0;
	if (!kv_reloc_staged_excess(db, staged) ||
	    (kv_backoff_is_active(db, &rl->rl_old_backoff) && staged >= rl->rl_old_backoff.bo_at &&
	     staged <= rl->rl_old_backoff.bo_at + db->d_budget.b_seg_bytes)) {
		atomic_store(&rl->rl_is_ageing, false);
		return 0;
	}
	jb->jb_is_unflushed = false;
	jb->jb_classes = 1u << MPOOL_STAGING;
	atomic_store(&rl->rl_is_ageing, true);
	rc = kv_segs_seal_now(db);
	if (rc >= 0)
		rc = run_job(db, jb, FOR_STAGING, 0, 0);
	if (rc > 0 && jb->jb_left)
		note_rate(rl, kv_now(db) - t0);
	if ((rc > 0 && jb->jb_left) || (!rc && jb->jb_is_unflushed))
		rl->rl_old_backoff.bo_at = 0;
	else
		backoff_after(db, &rl->rl_old_backoff, kv_segs_staged(db), rc);
	if (rl->rl_old_backoff.bo_at)
		atomic_store(&rl->rl_is_ageing, false);
	return rc;
}

/* Values go where their policy wants them. A job that changed nothing is not tried again. */
static int place_locked(struct kvdb *db, bool look)
{
	struct kv_reloc *rl = db->d_reloc;
	uint64_t wrong, least = look ? 1 : 4ull * db->d_budget.b_seg_bytes;
	uint64_t gen = atomic_load(&db->d_trees.te_gen);
	int rc;

	KV_ASSERT_HELD(&rl->rl_lock);
	/* it is counted in all parts of all stores: not while none of them has changed */
	if (db->d_mode.md_log_class == MPOOL_CAPACITY || (!look && gen == rl->rl_right_gen))
		return 0;
	/* a handful of segments that are full wait for more, which may never come */
	rc = look ? kv_segs_seal_now(db) : 0;
	if (rc < 0)
		return rc;
	wrong = wrong_bytes(db);
	rl->rl_right_gen = wrong < least ? gen : 0;
	if (wrong < least ||
	    (kv_backoff_is_active(db, &rl->rl_wrong_backoff) &&
	     wrong == rl->rl_wrong_backoff.bo_at))
		return 0;
	rc = kv_segs_seal_now(db);
	if (rc >= 0)
		rc = run_alone(db, FOR_POLICY, 0, 0);
	backoff_after(db, &rl->rl_wrong_backoff, rc > 0 ? 0 : wrong, rc);
	return rc;
}

/*
 * Segments whose order scans have paid for. It takes half of the time, at most, and none
 * while anything else is due.
 */
static int order_locked(struct kvdb *db, uint64_t now)
{
	struct kv_reloc *rl = db->d_reloc;
	bool halve = now >= rl->rl_next_half;
	uint64_t end;
	int rc;

	KV_ASSERT_HELD(&rl->rl_lock);
	if (now < atomic_load(&rl->rl_next_order))
		return 0;
	if (halve)
		rl->rl_next_half = now + HEAT_HALF_NS;
	atomic_store(&rl->rl_next_order, now + ORDER_EVERY_NS);
	/* a job looks at every segment: not for what cannot pay for the least of them */
	if (kv_heat_sum(db, halve) < kv_heat_least(kv_reloc_run_bytes(db)) ||
	    !atomic_load(&rl->rl_live) || kv_reloc_must_yield(db))
		return 0;
	rc = run_alone(db, FOR_SCANS, 0, 0);
	end = kv_now(db);
	if (rc)
		atomic_store(&rl->rl_next_order, end + (rc > 0 ? end - now : ORDER_AGAIN_NS));
	return rc;
}

/* What is due by the clock: space, then policy. rl_lock held. */
static int look_locked(struct kvdb *db, uint64_t now)
{
	struct kv_reloc *rl = db->d_reloc;
	bool look = now >= atomic_load(&rl->rl_next_est);
	int rc;

	KV_ASSERT_HELD(&rl->rl_lock);
	if (was_let_go(rl, &rl->rl_seen))
		rl->rl_backoff.bo_at = rl->rl_wrong_backoff.bo_at = rl->rl_right_gen = 0;
	rc = step_locked(db, now);
	if (!rc)
		rc = place_locked(db, look);
	/* what was given up comes free after readers: look again when it did */
	atomic_store(&rl->rl_next_ns,
		     kv_now(db) + (rl->rl_job.jb_is_early ? 10 : 1) * KV_RELOC_LOOK_NS);
	return rc;
}

/* What needs rl_lock, unless another thread has it. */
static int locked_step(struct kvdb *db, int (*fn)(struct kvdb *db, uint64_t now))
{
	struct kv_reloc *rl = db->d_reloc;
	int rc;

	if (pthread_mutex_trylock(&rl->rl_lock))
		return 0;
	rc = fn(db, kv_now(db));
	pthread_mutex_unlock(&rl->rl_lock);
	return rc;
}

static int age_step(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;
	int rc;

	if (db->d_mode.md_log_class == MPOOL_CAPACITY || atomic_load(&rl->rl_is_wanted) ||
	    pthread_mutex_trylock(&rl->rl_age_lock))
		return 0;
	rc = age_locked(db);
	pthread_mutex_unlock(&rl->rl_age_lock);
	return rc;
}

/* No room, or not now: what is there stays as it is, and space may come. What failed may heal. */
static int unless_not_now(struct kvdb *db, int rc)
{
	return rc == -EAGAIN || rc == -ECANCELED || rc == -ENOSPC || kv_is_local(db, rc) ? 0 : rc;
}

int kv_reloc_step(struct kvdb *db)
{
	bool is_due = kv_now(db) >= atomic_load(&db->d_reloc->rl_next_ns);
	int rc;

	if (db->d_mode.md_rdonly || kv_fault(db) || kv_trouble_holds(db, &db->d_reloc->rl_trouble))
		return 0;
	rc = is_due ? locked_step(db, look_locked) : 0;
	if (!rc)
		rc = age_step(db);
	if (!rc && is_due)
		rc = locked_step(db, order_locked);
	return unless_not_now(db, rc);
}

int kv_reloc_asked_step(struct kvdb *db)
{
	bool is_next = kv_reloc_is_forced(db) && !kv_compact_is_merging(db);

	return is_next && !kv_fault(db) ? unless_not_now(db, locked_step(db, step_locked)) : 0;
}

void kv_reloc_look(struct kvdb *db)
{
	atomic_store(&db->d_reloc->rl_is_awaited, true);
	atomic_store(&db->d_reloc->rl_next_ns, 0);
	atomic_store(&db->d_reloc->rl_next_est, 0);
	atomic_store(&db->d_reloc->rl_next_order, 0);
	atomic_store(&db->d_reloc->rl_yield_ns, 0);
}

bool kv_reloc_may_help(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;
	/* logged, not written, bytes: one epoch may fill a pool */
	uint64_t log = atomic_load(&db->d_logged.lc_bytes), last = atomic_load(&rl->rl_room_log);

	/* once in four segments, or every write would ask on a pool full of live data */
	return (!last || log - last >= 4ull * db->d_budget.b_seg_bytes) &&
	       atomic_compare_exchange_strong(&rl->rl_room_log, &last, log);
}

void kv_reloc_rescue_begin(struct kvdb *db)
{
	atomic_fetch_add(&db->d_reloc->rl_rescues, 1);
}

void kv_reloc_rescue_end(struct kvdb *db)
{
	KV_ASSERT(atomic_load(&db->d_reloc->rl_rescues));
	atomic_fetch_sub(&db->d_reloc->rl_rescues, 1);
}

void kv_reloc_make_room(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;
	uint64_t begun = atomic_load(&rl->rl_rooms);

	KV_ASSERT_OUTSIDE();
	pthread_mutex_lock(&rl->rl_lock);
	/* another's that was begun since, and is over, brought what this one could */
	if (atomic_load(&rl->rl_rooms) == begun) {
		atomic_store(&rl->rl_rooms, begun + 1);
		/* G7: a cancelled compaction does not end this job */
		atomic_store(&rl->rl_is_rescue, true);
		if (kv_segs_seal_now(db) >= 0)
			run_alone(db, FOR_SPACE, 1, 1);
		atomic_store(&rl->rl_is_rescue, false);
	}
	pthread_mutex_unlock(&rl->rl_lock);
}

void kv_reloc_force(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;
	uint64_t n = kv_reloc_space(db);

	pthread_mutex_lock(&rl->rl_force_lock);
	rl->rl_forced_left = n;
	atomic_store(&rl->rl_forced, ++rl->rl_calls);
	pthread_mutex_unlock(&rl->rl_force_lock);
	kv_reloc_look(db);
}

void kv_reloc_cancel(struct kvdb *db)
{
	struct kv_reloc *rl = db->d_reloc;

	KV_ASSERT_OUTSIDE();
	KV_ASSERT_FREE(&rl->rl_lock);
	KV_ASSERT_FREE(&rl->rl_age_lock);
	atomic_fetch_add(&rl->rl_cancels, 1);
	/* the job looks at it every few entries; one for a writer goes on, however long (G7) */
	while (is_held(&rl->rl_lock) && !atomic_load(&rl->rl_is_rescue))
		kv_sleep_ms();
	while (is_held(&rl->rl_age_lock) && !atomic_load(&rl->rl_is_rescue))
		kv_sleep_ms();
	KV_ASSERT(atomic_load(&rl->rl_cancels));
	atomic_fetch_sub(&rl->rl_cancels, 1);
}

int kv_reloc_status(struct kvdb *db, struct kvdb_compact_status *st)
{
	struct kv_reloc *rl = db->d_reloc;
	uint64_t live = 0;
	int rc = db->d_mode.md_rdonly ? kv_space_live(db, &live) : 0;

	if (db->d_mode.md_rdonly && !rc)
		atomic_store(&rl->rl_live, live);
	st->is_active = kv_reloc_is_busy(db);
	st->space_bytes = kv_reloc_space(db);
	st->live_bytes = atomic_load(&rl->rl_live);
	st->space_amp_max = rl->rl_max;
	return rc;
}

void kv_reloc_stats(struct kvdb *db, struct kvdb_stats *st)
{
	struct kv_reloc *rl = db->d_reloc;

	st->space_bytes = kv_reloc_space(db);
	st->live_bytes = atomic_load(&rl->rl_live);
	st->relocations = atomic_load(&db->d_count.relocations);
	st->damaged_values = atomic_load(&db->d_count.damaged);
	st->pack_in_bytes = atomic_load(&db->d_count.pack_in);
	st->pack_out_bytes = atomic_load(&db->d_count.pack_out);
}
