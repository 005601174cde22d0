/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The workloads of pools, for whatever interrupts them: a crash (crash_pool.c)
 * or a call that fails (crash_fault_pool.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool_model.h"

#define MiB	(1ull << 20)

const struct pm_conf *pm_conf_of(const struct eng *e)
{
	return &((const struct pm_wl *)e->e_ops)->w_conf;
}

struct pm *pm_new(uint64_t seed)
{
	struct pm *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	m->m_rand = seed;
	m->m_destroyed = pm_never;
	m->m_certain = PM_NEVER;
	return m;
}

int pm_steps(struct eng *e, struct pm *m, struct pm_rt *rt, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		/* whatever chance says, once in the middle */
		if (m->m_nadm == 1 && i == n / 2 &&
		    pm_admin(e, m, rt, pm_conf_of(e), pm_conf_of(e)->pc_admin))
			return -1;
		if (pm_step(e, m, rt, pm_conf_of(e)))
			return -1;
	}
	return 0;
}

int pm_destroy(struct eng *e, struct pm *m)
{
	struct mpool_open_opts oo;
	int rc;

	pm_open_opts(e, &oo);
	m->m_destroyed.b = sim_now(&e->e_sim);
	rc = mpool_destroy(PM_POOL, &oo);
	if (rc)
		return eng_fail(e, "mpool_destroy: %d (%s)", rc, mpool_error_detail()->text);
	m->m_destroyed.e = sim_now(&e->e_sim);
	return 0;
}

/*
 * There is no pool: then a new one can be made, at worst after the destroy that
 * was cut short has been repeated.
 */
static int create_again(struct eng *e)
{
	struct pm_rt *rt = calloc(1, sizeof(*rt));
	struct pm *m = pm_new(e->e_rand);
	int rc;

	rc = pm_create(e, m, pm_conf_of(e));
	if (rc)
		rc = pm_destroy(e, m) || pm_create(e, m, pm_conf_of(e));
	rc = rc || pm_rt_open(e, m, rt) || pm_steps(e, m, rt, 4) || pm_rt_close(e, m, rt) ? -1 : 0;
	free(rt);
	free(m);
	return rc;
}

/* After a check: write, close, reopen, and look again. */
static int write_more(struct eng *e, struct pm *next, struct pm_rt *rt)
{
	next->m_rand = e->e_rand;
	if (pm_steps(e, next, rt, 8) || pm_rt_close(e, next, rt) ||
	    pm_judge(e, next, PM_END, rt, NULL))
		return -1;
	return pm_rt_close(e, next, rt);
}

int pm_judge_more(struct eng *e, const struct pm *m, unsigned at, bool post)
{
	static struct pm_rt rt;
	struct pm *next = post ? pm_new(0) : NULL;
	int rc = pm_judge(e, m, at, &rt, next);

	if (!rc && !rt.rt_mp)
		rc = create_again(e);
	else if (!rc && post)
		rc = write_more(e, next, &rt);
	else if (rt.rt_mp)
		rc |= pm_rt_close(e, (struct pm *)m, &rt);
	free(next);
	return rc;
}

#define POOL_WL(nm, two, ...) {							\
	.w_ops = { .eo_name = nm, .eo_is_two_devs = two },				\
	.w_conf = { .pc_name = nm, .pc_devs = (two) ? 2 : 1, __VA_ARGS__ },	\
}

const struct pm_wl pm_workload[PM_WORKLOADS] = {
	POOL_WL("batches", false, .pc_bytes = { 16 * MiB }, .pc_steps = 90, .pc_obj_bytes = 32768,
		.pc_weight = { [PM_BATCH] = 8, [PM_ABORT] = 3, [PM_DELETE] = 4, [PM_MIXED] = 4,
			       [PM_REOPEN] = 1 }),
	POOL_WL("append", true, .pc_bytes = { 16 * MiB, 16 * MiB }, .pc_steps = 140,
		.pc_is_dirty = true, .pc_obj_bytes = 49152,
		.pc_weight = { [PM_APPEND] = 4, [PM_GROW] = 14, [PM_FLUSH] = 3, [PM_SEAL] = 4,
			       [PM_DELETE] = 2, [PM_MIXED] = 3, [PM_REOPEN] = 1 }),
	POOL_WL("mlog", false, .pc_bytes = { 16 * MiB }, .pc_steps = 240, .pc_is_dirty = true,
		.pc_obj_bytes = 16384,
		.pc_weight = { [PM_MLOG] = 3, [PM_REC] = 40, [PM_SYNC] = 6, [PM_ERASE] = 3,
			       [PM_MLOG_SEAL] = 1, [PM_MLOG_DELETE] = 1, [PM_BATCH] = 2,
			       [PM_DELETE] = 1, [PM_REOPEN] = 1 }),
	/* few logs, written after each crash where the last one tore them */
	POOL_WL("torn", false, .pc_bytes = { 8 * MiB }, .pc_steps = 240, .pc_is_dirty = true,
		.pc_obj_bytes = 16384,
		.pc_weight = { [PM_MLOG] = 1, [PM_REC] = 30, [PM_SYNC] = 8, [PM_ERASE] = 2,
			       [PM_REOPEN] = 1 }),
	POOL_WL("mdc", true, .pc_bytes = { 16 * MiB, 16 * MiB }, .pc_steps = 200,
		.pc_obj_bytes = 16384,
		.pc_weight = { [PM_MDC] = 3, [PM_REC] = 30, [PM_COMPACT] = 6, [PM_MDC_DELETE] = 1,
			       [PM_BATCH] = 2, [PM_DELETE] = 1, [PM_REOPEN] = 1 }),
	POOL_WL("lifecycle", true, .pc_bytes = { 16 * MiB, 16 * MiB }, .pc_steps = 30,
		.pc_is_create = true, .pc_obj_bytes = 16384,
		.pc_weight = { [PM_BATCH] = 6, [PM_DELETE] = 2, [PM_APPEND] = 2, [PM_GROW] = 4,
			       [PM_MLOG] = 1, [PM_REC] = 4, [PM_REOPEN] = 2 }),
	POOL_WL("full", false, .pc_bytes = { 3 * MiB }, .pc_steps = 30, .pc_is_dirty = true,
		.pc_obj_bytes = 160u << 10,
		.pc_weight = { [PM_FILL] = 2, [PM_BATCH] = 4, [PM_DELETE] = 4, [PM_MIXED] = 3,
			       [PM_APPEND] = 2, [PM_GROW] = 4, [PM_REOPEN] = 1 }),
	POOL_WL("mirror", true, .pc_bytes = { 16 * MiB, 16 * MiB }, .pc_steps = 160,
		.pc_is_dirty = true, .pc_obj_bytes = 32768,
		.pc_weight = { [PM_BATCH] = 6, [PM_ABORT] = 1, [PM_DELETE] = 4, [PM_MIXED] = 5,
			       [PM_APPEND] = 3, [PM_GROW] = 6, [PM_FLUSH] = 2, [PM_SEAL] = 2,
			       [PM_MLOG] = 2, [PM_REC] = 10, [PM_SYNC] = 1, [PM_ERASE] = 1,
			       [PM_MDC] = 1, [PM_COMPACT] = 1, [PM_REOPEN] = 1 }),
	POOL_WL("checkpoint", true, .pc_bytes = { 16 * MiB, 16 * MiB }, .pc_steps = 420,
		.pc_obj_bytes = 8192,
		.pc_weight = { [PM_BATCH] = 6, [PM_DELETE] = 4, [PM_MIXED] = 5, [PM_APPEND] = 3,
			       [PM_SEAL] = 1, [PM_GROW] = 2 }),
	POOL_WL("properties", true, .pc_bytes = { 8 * MiB, 8 * MiB }, .pc_steps = 30,
		.pc_admin = PM_RENAME, .pc_obj_bytes = 16384,
		.pc_weight = { [PM_SET] = 4, [PM_RENAME] = 4, [PM_BATCH] = 6, [PM_DELETE] = 3,
			       [PM_APPEND] = 2, [PM_GROW] = 4, [PM_MLOG] = 1, [PM_REC] = 4,
			       [PM_REOPEN] = 1 }),
	POOL_WL("add", false, .pc_bytes = { 8 * MiB, 4 * MiB }, .pc_steps = 24,
		.pc_admin = PM_ADD, .pc_is_mixed = true, .pc_obj_bytes = 32768,
		.pc_weight = { [PM_ADD] = 5, [PM_SET] = 1, [PM_RENAME] = 1, [PM_LARGER] = 1,
			       [PM_BATCH] = 8, [PM_MIXED] = 2, [PM_DELETE] = 3, [PM_APPEND] = 3,
			       [PM_GROW] = 4, [PM_MDC] = 1, [PM_REC] = 4, [PM_REOPEN] = 1 }),
	POOL_WL("grow", true, .pc_bytes = { 4 * MiB, 3 * MiB }, .pc_steps = 18,
		.pc_admin = PM_LARGER, .pc_is_dirty = true, .pc_obj_bytes = 64u << 10,
		.pc_weight = { [PM_LARGER] = 6, [PM_FILL] = 1, [PM_BATCH] = 8, [PM_MIXED] = 2,
			       [PM_DELETE] = 3, [PM_APPEND] = 3, [PM_GROW] = 4, [PM_RENAME] = 1,
			       [PM_ADD] = 1, [PM_REOPEN] = 1 }),
};
