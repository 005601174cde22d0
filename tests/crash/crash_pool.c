/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Crash enumeration of pools: workloads of random operations, every crash
 * point, oracle in pool_check.c. Arguments choose workloads; SEED= repeats.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "pool_model.h"

static int pool_record(struct eng *e, void **model)
{
	const struct pm_conf *c = pm_conf_of(e);
	struct pm *m = pm_new(sim_mix(e->e_conf.ec_seed, c->pc_steps));
	struct pm_rt *rt = calloc(1, sizeof(*rt));
	int rc;

	*model = m;
	if (!c->pc_is_create && pm_create(e, NULL, c))
		goto fail;
	eng_record_begin(e);
	if (c->pc_is_create && pm_create(e, m, c))
		goto fail;
	if (pm_rt_open(e, m, rt))
		goto fail;
	if (c->pc_admin) {
		if (pm_adm_read(e, rt->rt_mp, &m->m_adm[0]))
			goto fail;
		m->m_nadm = 1;
	}
	if (pm_steps(e, m, rt, c->pc_steps) || pm_rt_close(e, m, rt) ||
	    (c->pc_is_create && pm_destroy(e, m)))
		goto fail;
	free(rt);
	return 0;
fail:
	rc = -1;
	free(rt);
	return rc;
}

static int pool_check(struct eng *e, void *model, unsigned at, bool post)
{
	const struct pm *m = model;

	if (m->m_prev && at < m->m_opened)
		return pm_judge_more(e, m->m_prev, m->m_prev_at, post);
	return pm_judge_more(e, m, at, post);
}

static int pool_again(struct eng *e, void *model, unsigned at, void **out)
{
	struct pm_rt *rt = calloc(1, sizeof(*rt));
	struct pm *next = pm_new(0);
	int rc = pm_judge(e, model, at, rt, next);

	if (!rc && rt->rt_mp) {
		eng_opened(e);
		next->m_prev = model;
		next->m_prev_at = at;
		next->m_opened = e->e_opened;
		next->m_rand = e->e_rand;
		rc = pm_steps(e, next, rt, 6);
	} else if (!rc) {
		/* no pool: a crash later in this generation finds none either */
		*next = *(struct pm *)model;
		next->m_prev = model;
		next->m_prev_at = at;
		next->m_opened = PM_NEVER;
	}
	if (rt->rt_mp)
		rc |= pm_rt_close(e, next, rt);
	*out = next;
	free(rt);
	return rc;
}

int main(int argc, char **argv)
{
	static struct pm_wl workload[PM_WORKLOADS];
	const struct eng_ops *ops[PM_WORKLOADS];
	unsigned i;

	for (i = 0; i < PM_WORKLOADS; i++) {
		workload[i] = pm_workload[i];
		workload[i].w_ops.eo_record = pool_record;
		workload[i].w_ops.eo_check = pool_check;
		workload[i].w_ops.eo_again = pool_again;
		workload[i].w_ops.eo_free = free;
		ops[i] = &workload[i].w_ops;
	}
	return eng_main(argc, argv, ops, PM_WORKLOADS);
}
