/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Records the history of a workload: a pool, a database, its stores, random steps. */
#include <stdio.h>
#include <stdlib.h>

#include "kv_model.h"

struct km *km_new(uint64_t seed)
{
	struct km *m = calloc(1, sizeof(*m));

	if (!m)
		abort();
	m->m_rand = seed;
	m->m_dropped = km_never;
	return m;
}

int km_steps(struct eng *e, struct km *m, struct km_rt *rt, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		if (km_step(e, m, rt))
			return -1;
	return 0;
}

/* stores at the start are made by the same step that may come later */
int km_first_stores(struct eng *e, struct km *m, struct km_rt *rt)
{
	unsigned k, n = km_conf_of(e)->kc_stores;

	for (k = 0; k < n; k++) {
		struct km_store *s = &m->m_store[m->m_nstore];
		struct km_face f;
		unsigned i;
		int rc;

		s->s_exists.b = sim_now(&e->e_sim);
		snprintf(s->s_name, sizeof(s->s_name), "store%u", k);
		rc = km_store_create(e, rt, s->s_name, k);
		s->s_exists.e = sim_now(&e->e_sim);
		s->s_dropped = km_never;
		if (!rc)
			rc = kvdb_kvs_open(rt->rt_db, s->s_name, &rt->rt_kvs[m->m_nstore]);
		if (rc)
			return eng_fail(e, "store: %d (%s)", rc, kvdb_error_detail()->text);
		if (km_face_of(e, rt->rt_kvs[m->m_nstore], &f))
			return -1;
		km_face_add(m, m->m_nstore, s->s_exists, &f);
		for (i = 0; i < KM_KEYS; i++) {
			m->m_base[m->m_nstore][i].v_len = KM_ABSENT;
			m->m_now[m->m_nstore][i].v_len = KM_ABSENT;
		}
		m->m_nstore++;
	}
	return 0;
}

static bool has_grown(const struct eng *e, const struct km_conf *c)
{
	bool has = false;

	for (unsigned i = 0; i < c->kc_devs; i++)
		has |= e->e_sim.s_dev[i].d_size > c->kc_bytes[i];
	return has;
}

int km_record(struct eng *e, void **model)
{
	const struct km_conf *c = km_conf_of(e);
	struct km *m = km_new(sim_mix(e->e_conf.ec_seed, c->kc_steps));
	struct km_rt rt;

	*model = m;
	km_clock_reset(e, m->m_rand);
	if (!c->kc_is_made && km_pool_create(e))
		return -1;
	if (!c->kc_is_create) {
		if (km_create(e, m) || km_open(e, m, &rt) || km_first_stores(e, m, &rt) ||
		    km_close(e, m, &rt))
			return -1;
		eng_record_begin(e);
		/* what happened before the log has happened */
		if (km_open(e, m, &rt))
			return -1;
	} else {
		eng_record_begin(e);
		if (km_create(e, m) || km_open(e, m, &rt) || km_first_stores(e, m, &rt))
			return -1;
	}
	if (km_steps(e, m, &rt, c->kc_steps) || km_close(e, m, &rt))
		return -1;
	if (c->kc_moves && !m->m_moves)
		return eng_fail(e, "no relocation in the whole history");
	if (c->kc_leaf_keys && !m->m_splits)
		return eng_fail(e, "no leaf was split in the whole history");
	if (c->kc_size_max && !c->kc_is_made && !has_grown(e, c))
		return eng_fail(e, "no growth in the whole history");
	return c->kc_is_create && !c->kc_is_made ? km_drop(e, m) : 0;
}
