/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every k-th call of a device, or allocation, fails under the workloads of pools
 * (pool_work.c): their creation, objects, logs, containers, properties, names,
 * devices that come and grow, their end. What is asked:
 *  - a call that fails says so, and may have happened or not; all others did (P2);
 *  - what was committed is read as before, also in the pool that failed (P1, P5);
 *  - after a flush that failed none works (P5); after memory that ended all goes on;
 *  - nothing is left: no memory, no device;
 *  - closed, and opened on devices that work, it is what pool_check.c asks for after
 *    a crash, and takes writes; one that was never made can be made;
 *  - a device that loses a write and says nothing, or whose reads lie from some on (at the
 *    end of a log that is a torn write, twice), can take away what was written; nothing leaks
 *    or hangs. One read that lies takes away nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "pool_model.h"

#define BEFORE	40u	/* steps before the pool is closed and kept */
#define STEPS	24u	/* in a run */

static struct pm base, model;
static struct pm_rt rt;

/* the pool that every run begins with; of those that make it themselves there is none */
static int prepare(struct eng *e, uint64_t seed)
{
	const struct pm_conf *c = pm_conf_of(e);
	/* no run repeats this history: its objects' tags are their names while ids are unknown */
	struct pm *m = pm_new(~seed);
	int rc = 0;

	if (!c->pc_is_create) {
		rc = pm_create(e, NULL, c) || pm_rt_open(e, m, &rt);
		if (!rc && c->pc_admin) {
			rc = pm_adm_read(e, rt.rt_mp, &m->m_adm[0]);
			m->m_nadm = 1;
		}
		rc = rc || pm_steps(e, m, &rt, c->pc_admin ? 1 : BEFORE) ||
		     pm_reopen(e, m, &rt) || pm_rt_close(e, m, &rt);
	}
	base = *m;
	free(m);
	return rc ? -1 : 0;
}

/* up to the first call that fails */
static int work(struct eng *e, struct pm *m)
{
	const struct pm_conf *c = pm_conf_of(e);

	memset(&rt, 0, sizeof(rt));
	if ((c->pc_is_create && pm_create(e, m, c)) || pm_rt_open(e, m, &rt) ||
	    pm_steps(e, m, &rt, STEPS) || pm_reopen(e, m, &rt) || pm_rt_close(e, m, &rt))
		return -1;
	return c->pc_is_create ? pm_destroy(e, m) : 0;
}

static bool is_there(const struct pm_obj *o)
{
	return o->o_kind == MPOOL_MBLOCK && o->o_exists.e != PM_NEVER &&
	       o->o_deleted.b == PM_NEVER;
}

static int look(struct eng *e, const struct pm *m)
{
	struct mpool_obj *h;
	unsigned i;
	int rc;

	for (i = 0; i < m->m_nobj; i++) {
		const struct pm_obj *o = &m->m_obj[i];

		if (!is_there(o))
			continue;
		rc = mpool_obj_open(rt.rt_mp, o->o_id, &h);
		if (rc)
			return eng_fail(e, "object %" PRIx64 " cannot be opened: %d", o->o_id, rc);
		rc = pm_content(e, h, o, o->o_length);
		mpool_obj_close(h);
		if (rc)
			return -1;
	}
	return 0;
}

/* The pool in which a request failed, still open. */
static int stays(struct eng *e, const struct pm *m, unsigned kind)
{
	int first = mpool_flush(rt.rt_mp, 3), second = mpool_flush(rt.rt_mp, 3);

	if (first && !second)
		return eng_fail(e, "flush: %d, and the next one works", first);
	if (kind == FAULT_FLUSH && !first)
		return eng_fail(e, "a flush failed, and the next one works");
	/* a read that fails or lies is the device's own */
	return kind == FAULT_READ || kind == FAULT_ROT || kind == FAULT_DROP ? 0 : look(e, m);
}

/* There is memory again: nothing is left of its end but the call that failed. */
static int goes_on(struct eng *e, struct pm *m)
{
	static const struct pm_conf more = {
		.pc_name = "more", .pc_devs = 1, .pc_obj_bytes = SIM_PAGE,
		.pc_weight = { [PM_BATCH] = 1 },
	};
	unsigned i;

	e->e_sim.s_fault.f_at = 0;
	for (i = 0; i < 3; i++)
		if (pm_step(e, m, &rt, &more))
			return -1;
	return look(e, m);
}

static int nothing_is_left(struct eng *e, long before)
{
	unsigned i;

	if (sim_memory_live() != before)
		return eng_fail(e, "%ld allocations are left", sim_memory_live() - before);
	for (i = 0; i < e->e_sim.s_ndev; i++)
		if (e->e_sim.s_dev[i].d_is_open)
			return eng_fail(e, "device %u is still open", i);
	return 0;
}

/* A device lied: the pool may be less, or refused. */
static int judge_lost(struct eng *e)
{
	struct mpool_obj_info in[64];
	struct mpool_open_opts oo;
	struct mpool *mp;

	pm_open_opts(e, &oo);
	if (mpool_open(PM_POOL, &oo, &mp))
		return 0;
	mpool_objects(mp, 0, 0, in, 64);
	mpool_close(mp);
	return 0;
}

static int run(struct eng *e, struct sim_fault *f, uint64_t seed, bool *failed)
{
	long before = sim_memory_live();
	struct pm *m = &model;
	bool is_lost;
	int rc = 0;

	*m = base;
	m->m_rand = e->e_rand = seed;
	sim_snap(&e->e_sim);
	sim_log_init(&e->e_log, 1);
	e->e_sim.s_log = &e->e_log;
	e->e_sim.s_fault = *f;
	e->e_is_wrong = false;
	*failed = work(e, m);
	is_lost = e->e_sim.s_fault.f_fired &&
		  (f->f_kind == FAULT_DROP || (f->f_kind == FAULT_ROT && f->f_is_sticky));
	/* an answer that is wrong is no call that failed */
	if (*failed && ((e->e_is_wrong && !is_lost) || !e->e_sim.s_fault.f_fired))
		rc = -1;
	if (rt.rt_mp) {
		if (!rc)
			rc = f->f_kind == FAULT_MEMORY ? goes_on(e, m) : stays(e, m, f->f_kind);
		pm_rt_close(e, m, &rt);
	}
	*f = e->e_sim.s_fault;
	memset(&e->e_sim.s_fault, 0, sizeof(e->e_sim.s_fault));
	if (!rc)
		rc = nothing_is_left(e, before);
	if (!rc)
		rc = is_lost ? judge_lost(e) : pm_judge_more(e, m, PM_END, true);
	e->e_sim.s_log = NULL;
	sim_log_fini(&e->e_log);
	sim_release(&e->e_sim);
	sim_rollback(&e->e_sim);
	return rc;
}

int main(int argc, char **argv)
{
	/* a pool has no clock that a slow flush could move */
	static const struct fault_ops ops = {
		.fo_name = "pool", .fo_whole = "add",
		.fo_kinds = ((1u << FAULT_MEMORY) - 2) & ~(1u << FAULT_STALL),
		.fo_prepare = prepare, .fo_run = run,
	};
	const struct eng_ops *wl[PM_WORKLOADS];
	unsigned i;

	(void)argc;
	for (i = 0; i < PM_WORKLOADS; i++)
		wl[i] = &pm_workload[i].w_ops;
	return fault_main(argv + 1, &ops, wl, PM_WORKLOADS);
}
