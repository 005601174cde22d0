/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Administration in the middle of random operations: properties and the name,
 * devices added and grown, on the open pool (through the core, as the kernel
 * does it) or between two opens (through the public calls).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "pool_model.h"
#include "user.h"

#define MiB	(1ull << 20)
#define GROW_MAX	(32u << 20)	/* of one member, bytes */

static unsigned rnd(struct pm *m, unsigned n)
{
	return (unsigned)(sim_rand(&m->m_rand) % n);
}

int pm_adm_read(struct eng *e, struct mpool *mp, struct pm_adm *a)
{
	struct mpool_dev_info di;
	struct mpool_info in;
	unsigned i;
	int rc = mpool_info(mp, &in);

	if (rc)
		return eng_fail(e, "mpool_info: %d", rc);
	memset(a, 0, sizeof(*a));
	strcpy(a->a_name, in.name);
	strcpy(a->a_label, in.label);
	a->a_uid = in.uid;
	a->a_gid = in.gid;
	a->a_mode = in.mode;
	for (i = 0; i < 2; i++)
		a->a_spare[i] = in.cls[i].spare_pct;
	for (; !mpool_dev_info(mp, a->a_devs, &di); a->a_devs++)
		a->a_bytes += di.size;
	return 0;
}

bool pm_adm_equal(const struct pm_adm *a, const struct pm_adm *b)
{
	return !strcmp(a->a_name, b->a_name) && !strcmp(a->a_label, b->a_label) &&
	       a->a_uid == b->a_uid && a->a_gid == b->a_gid && a->a_mode == b->a_mode &&
	       !memcmp(a->a_spare, b->a_spare, sizeof(a->a_spare)) && a->a_devs == b->a_devs &&
	       a->a_bytes == b->a_bytes;
}

static int dev_index(const struct sim *s, const char *path)
{
	unsigned i;

	for (i = 0; i < s->s_ndev; i++)
		if (!strcmp(s->s_dev[i].d_path, path))
			return (int)i;
	return -1;
}

int pm_adm_names(struct eng *e, struct mpool *mp)
{
	static struct mp_sb sb;
	struct mpool_dev_info di;
	struct mpool_info in;
	unsigned slot;

	mpool_info(mp, &in);
	for (slot = 0; !mpool_dev_info(mp, slot, &di); slot++) {
		int i = dev_index(&e->e_sim, di.path);
		const uint8_t *block = i < 0 ? NULL : e->e_sim.s_dev[i].d_mem;

		if (!block || !mp_sb_is_magic(block))
			return eng_wrong(e, "member %u has lost byte 0", slot);
		if (!mp_sb_decode(block, 0, &sb) && strcmp(sb.sb_name, in.name))
			return eng_wrong(e, "byte 0 of member %u shows %s, the pool is %s", slot,
					 sb.sb_name, in.name);
	}
	return 0;
}

/* ---- changes ---- */

static int set(struct eng *e, struct pm *m, struct pm_rt *rt, struct pm_adm *a, bool is_online)
{
	unsigned mask = 1 + rnd(m, 7), n = m->m_nadm + rnd(m, 1000) * PM_ADMS;
	struct mpool_set_opts so = MPOOL_SET_OPTS_INIT;
	struct mpool_open_opts oo;
	struct mp_set ms = { .ms_mask = mask };

	if (mask & MPOOL_SET_OWNER) {
		a->a_uid = so.uid = ms.ms_uid = n;
		a->a_gid = so.gid = ms.ms_gid = n + 1;
		a->a_mode = so.mode = ms.ms_mode = 0600 + n % 64;
	}
	if (mask & MPOOL_SET_LABEL) {
		snprintf(a->a_label, sizeof(a->a_label), "label %u", n);
		so.label = ms.ms_label = a->a_label;
	}
	if (mask & MPOOL_SET_SPARE) {
		a->a_spare[0] = so.spare_pct[0] = ms.ms_spare_pct[0] = (a->a_spare[0] + 1) % 8;
		a->a_spare[1] = so.spare_pct[1] = ms.ms_spare_pct[1] = (a->a_spare[1] + 1) % 8;
	}
	if (is_online)
		return mp_pool_set(mpl_user(rt->rt_mp)->us_core, &ms);
	so.mask = mask;
	pm_open_opts(e, &oo);
	return mpool_set(PM_POOL, &oo, &so);
}

static int rename_pool(struct eng *e, struct pm *m, struct pm_rt *rt, struct pm_adm *a,
		       bool is_online)
{
	struct mpool_open_opts oo;

	snprintf(a->a_name, sizeof(a->a_name), "n%u-%u", m->m_nadm, rnd(m, 1000000));
	pm_open_opts(e, &oo);
	return is_online ? mp_pool_rename(mpl_user(rt->rt_mp)->us_core, a->a_name) :
			   mpool_rename(PM_POOL, &oo, a->a_name);
}

static int add(struct eng *e, struct pm *m, struct pm_adm *a, const struct pm_conf *c)
{
	struct mpool_dev_spec dev[2];
	struct mpool_open_opts oo;
	char path[2][16];
	unsigned i, n = 1 + (a->a_devs + 2 <= SIM_DEVS && rnd(m, 2));

	for (i = 0; i < n; i++) {
		/* a left-over of an add that was cut short is there under this name */
		snprintf(path[i], sizeof(path[i]), "add%u", a->a_devs + i);
		memset(&dev[i], 0, sizeof(dev[i]));
		dev[i].path = path[i];
		dev[i].mclass = rnd(m, 2);
		dev[i].size = c->pc_bytes[1];
		a->a_bytes += dev[i].size;
	}
	a->a_devs += n;
	pm_open_opts(e, &oo);
	return mpool_add(PM_POOL, &oo, dev, n, 0);
}

/* sizes first: they are the devices' own */
static void grow_devs(struct eng *e, struct pm *m, struct pm_rt *rt, struct pm_adm *a)
{
	unsigned i, from = 0, to = a->a_devs;
	struct mpool_dev_info di;

	if (rnd(m, 2)) {
		from = rnd(m, a->a_devs);
		to = from + 1;
	}
	for (i = from; i < to; i++) {
		uint64_t more = 65536 * (1 + rnd(m, 40));
		int k;

		if (mpool_dev_info(rt->rt_mp, i, &di))
			continue;
		k = dev_index(&e->e_sim, di.path);
		if (k < 0 || e->e_sim.s_dev[k].d_size + more > e->e_sim.s_dev[k].d_cap ||
		    e->e_sim.s_dev[k].d_size + more > GROW_MAX)
			continue;
		sim_resize(&e->e_sim, (unsigned)k, e->e_sim.s_dev[k].d_size + more);
	}
	/* also what an earlier call was cut short of */
	for (a->a_bytes = 0, i = 0; !mpool_dev_info(rt->rt_mp, i, &di); i++) {
		int k = dev_index(&e->e_sim, di.path);
		struct mp_member mb;

		if (k < 0 || mp_pool_member(mpl_user(rt->rt_mp)->us_core, i, &mb))
			continue;
		a->a_bytes += e->e_sim.s_dev[k].d_size;
		mb.mb_dev->d_size = e->e_sim.s_dev[k].d_size;
	}
}

static int larger(struct eng *e, struct pm_rt *rt, bool is_online)
{
	struct mpool_open_opts oo;

	pm_open_opts(e, &oo);
	return is_online ? mp_pool_grow(mpl_user(rt->rt_mp)->us_core) :
			   mpool_grow(PM_POOL, &oo, 0, MPOOL_CAPACITY);
}

/* after the call: does the open pool show what was asked for? */
static int seen(struct eng *e, struct pm *m, struct pm_rt *rt)
{
	struct pm_adm now;

	if (pm_adm_read(e, rt->rt_mp, &now))
		return -1;
	/* a copy that could not be read gets its name when the pool is opened again */
	if (!e->e_sim.s_fault.f_fired && pm_adm_names(e, rt->rt_mp))
		return -1;
	if (pm_adm_equal(&now, &m->m_adm[m->m_nadm - 1]))
		return 0;
	return eng_wrong(e, "asked for %s '%s' %u devices %" PRIu64 " bytes, "
			"got %s '%s' %u devices %" PRIu64 " bytes",
			m->m_adm[m->m_nadm - 1].a_name, m->m_adm[m->m_nadm - 1].a_label,
			m->m_adm[m->m_nadm - 1].a_devs, m->m_adm[m->m_nadm - 1].a_bytes,
			now.a_name, now.a_label, now.a_devs, now.a_bytes);
}

int pm_admin(struct eng *e, struct pm *m, struct pm_rt *rt, const struct pm_conf *c,
	     enum pm_op op)
{
	bool is_online = op != PM_ADD && rnd(m, 2);
	struct pm_adm *a = &m->m_adm[m->m_nadm];
	int rc;

	if (m->m_nadm == PM_ADMS)
		return 0;
	*a = m->m_adm[m->m_nadm - 1];
	if (op == PM_ADD && a->a_devs >= SIM_DEVS)
		op = PM_SET;
	if (op == PM_LARGER)
		grow_devs(e, m, rt, a);
	if (!is_online && pm_reopen(e, m, rt))
		return -1;
	if (!is_online && pm_rt_close(e, m, rt))
		return -1;
	a->a_t = (struct pm_time){ sim_now(&e->e_sim), PM_NEVER };
	switch (op) {
	case PM_SET:
		rc = set(e, m, rt, a, is_online);
		break;
	case PM_RENAME:
		rc = rename_pool(e, m, rt, a, is_online);
		break;
	case PM_ADD:
		rc = add(e, m, a, c);
		break;
	default:
		rc = larger(e, rt, is_online);
		break;
	}
	m->m_nadm++;
	if (rc)
		return eng_fail(e, "administration %d: %d (%s)", op, rc,
				mpool_error_detail()->text);
	a->a_t.e = sim_now(&e->e_sim);
	if (m->m_certain == PM_NEVER)
		m->m_certain = a->a_t.e;
	if (!is_online && pm_rt_open(e, m, rt))
		return -1;
	return seen(e, m, rt);
}
