/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Checkpoints in the model of a KVDB: one thread writes, so a checkpoint holds
 * exactly what the history was when it was made, and it must hold that after
 * every crash until it is dropped. Bulk loads too: they count as writes that
 * are all acknowledged, and durable, at the end of the load.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kv_model.h"

static int broken(struct eng *e, const char *what, int rc)
{
	return eng_fail(e, "%s: %d (%s)", what, rc, kvdb_error_detail()->text);
}

static int by_bytes(const void *a, const void *b)
{
	uint8_t x[KVDB_KEY_MAX], y[KVDB_KEY_MAX];
	size_t xl = km_key(*(const unsigned *)a, x), yl = km_key(*(const unsigned *)b, y);
	int c = memcmp(x, y, xl < yl ? xl : yl);

	return c ? c : (xl > yl) - (xl < yl);
}

static int bulk_add(struct eng *e, struct km *m, struct kvdb_bulk *b, unsigned store, unsigned k)
{
	static uint8_t val[KM_VALUE_MAX];
	struct km_op *op = &m->m_op[m->m_nop];
	uint32_t vlen = (uint32_t)(sim_rand(&m->m_rand) % 4 ? sim_rand(&m->m_rand) % 3000 :
				   sim_rand(&m->m_rand) % 90000);
	uint64_t from = km_clock();
	uint8_t key[KVDB_KEY_MAX];
	int rc;

	sim_garbage(val, vlen, sim_rand(&m->m_rand));
	rc = kvdb_bulk_add(b, key, km_key(k, key), val, vlen);
	if (rc)
		return rc == -ENOSPC ? 1 : broken(e, "kvdb_bulk_add", rc);
	op->op_store = (uint16_t)store;
	op->op_key = (uint16_t)k;
	op->op_is_many = op->op_more = false;
	op->op_val = km_val_of(val, vlen);
	km_lives(e, op, km_store_ttl(e, store), from);
	m->m_nop++;
	return 0;
}

int km_bulk(struct eng *e, struct km *m, struct km_rt *rt)
{
	unsigned keys = km_conf_of(e)->kc_keys, first = m->m_nop, at[KM_KEYS], n = 0, k;
	unsigned s = km_conf_of(e)->kc_expires;	/* the second one has a time to live */
	struct kvdb_bulk *b;
	uint64_t ns;
	int rc;

	while (s < m->m_nstore && m->m_store[s].s_is_dead)
		s++;
	if (s == m->m_nstore || m->m_nop + keys > KM_HIST)
		return 0;
	for (k = 0; k < keys; k++)
		if (sim_rand(&m->m_rand) % 3 == 0)
			at[n++] = k;
	qsort(at, n, sizeof(at[0]), by_bytes);
	k = sim_now(&e->e_sim);
	rc = kvdb_bulk_open(rt->rt_kvs[s], 0, &b);
	if (rc)
		return rc == -ENOSPC ? 0 : broken(e, "kvdb_bulk_open", rc);
	for (unsigned i = 0; i < n && !rc; i++)
		rc = bulk_add(e, m, b, s, at[i]);
	if (rc || sim_rand(&m->m_rand) % 5 == 0) {
		kvdb_bulk_abort(b);
		m->m_nop = first;
		return rc < 0 ? rc : 0;
	}
	for (unsigned i = first; i < m->m_nop; i++)
		m->m_op[i].op_b = k;
	ns = km_clock();
	rc = kvdb_bulk_finish(b);
	if (rc) {
		m->m_nop = first;
		return rc == -ENOSPC ? 0 : broken(e, "kvdb_bulk_finish", rc);
	}
	for (unsigned i = first; i < m->m_nop; i++) {
		m->m_op[i].op_e = sim_now(&e->e_sim);
		m->m_op[i].op_ack_ns = ns;
		m->m_now[s][m->m_op[i].op_key] = m->m_op[i].op_val;
	}
	km_synced(e, m, m->m_nop, ns);
	return 0;
}

int km_ckpt_make(struct eng *e, struct km *m, struct km_rt *rt)
{
	struct km_ckpt *c = &m->m_ckpt[m->m_nckpt];
	unsigned ops = m->m_nop, i;
	int rc;

	if (m->m_nckpt == KM_CKPTS)
		return 0;
	/* names come back: eight of them */
	memset(c, 0, sizeof(*c));
	snprintf(c->c_name, sizeof(c->c_name), "c%u", m->m_nckpt % 8);
	for (i = 0; i < m->m_nckpt; i++)
		if (!m->m_ckpt[i].c_is_dead && !strcmp(m->m_ckpt[i].c_name, c->c_name))
			return 0;
	for (i = 0; i < m->m_nstore; i++) {
		const struct km_face *f[2];

		c->c_exists[i] = !m->m_store[i].s_is_dead;
		if (km_faces(m, i, KM_END, f))
			c->c_face[i] = *f[0];
		memcpy(c->c_face[i].f_name, m->m_store[i].s_name, sizeof(c->c_face[i].f_name));
	}
	memcpy(c->c_val, m->m_now, sizeof(c->c_val));
	c->c_made = (struct km_time){ sim_now(&e->e_sim), KM_NEVER };
	c->c_dropped = km_never;
	rc = kvdb_checkpoint(rt->rt_db, c->c_name, 0);
	if (rc == -ENOSPC)
		return 0;
	m->m_nckpt++;
	if (rc)
		return broken(e, "kvdb_checkpoint", rc);
	c->c_made.e = sim_now(&e->e_sim);
	km_synced(e, m, ops, 0);
	return 0;
}

int km_ckpt_drop(struct eng *e, struct km *m, struct km_rt *rt)
{
	unsigned i = m->m_nckpt ? (unsigned)(sim_rand(&m->m_rand) % m->m_nckpt) : 0;

	return i == m->m_nckpt || m->m_ckpt[i].c_is_dead ? 0 :
	       km_ckpt_drop_one(e, &m->m_ckpt[i], rt);
}

int km_ckpt_drop_one(struct eng *e, struct km_ckpt *c, struct km_rt *rt)
{
	int rc;

	c->c_dropped.b = sim_now(&e->e_sim);
	rc = kvdb_checkpoint_drop(rt->rt_db, c->c_name);
	if (rc)
		return broken(e, "kvdb_checkpoint_drop", rc);
	c->c_dropped.e = sim_now(&e->e_sim);
	c->c_is_dead = true;
	return 0;
}

int km_ckpt_find(struct eng *e, const struct km *m, unsigned at, struct kvdb *db, struct km *next)
{
	static struct kvdb_checkpoint_info in[KVDB_CHECKPOINT_MAX];
	int n = kvdb_checkpoint_list(db, in, KVDB_CHECKPOINT_MAX), k;
	struct km_time now = { at, at };
	unsigned i;

	for (i = 0; i < m->m_nckpt; i++) {
		const struct km_ckpt *c = &m->m_ckpt[i];
		bool is_there = false;

		if (!km_begun(c->c_made, at) || km_certain(c->c_dropped, at))
			continue;
		for (k = 0; k < n && !is_there; k++)
			is_there = !strcmp(in[k].name, c->c_name);
		if (is_there) {
			k--;
			if (in[k].is_damaged)
				return eng_fail(e, "checkpoint %s is damaged", c->c_name);
			in[k].name[0] = 0;
			if (next) {
				struct km_ckpt *own = &next->m_ckpt[next->m_nckpt++];

				*own = *c;
				own->c_made = now;
				own->c_dropped = km_never;
				own->c_is_dead = false;
			}
		} else if (km_certain(c->c_made, at) && !km_begun(c->c_dropped, at)) {
			return eng_fail(e, "checkpoint %s is lost", c->c_name);
		}
	}
	for (k = 0; k < n; k++)
		if (in[k].name[0])
			return eng_fail(e, "checkpoint %s should not exist", in[k].name);
	return 0;
}

static int judge_face(struct eng *e, struct kvdb *db, const struct km_face *want)
{
	struct kvdb_kvs *kvs;
	struct km_face is;

	if (kvdb_kvs_open(db, want->f_name, &kvs) || km_face_of(e, kvs, &is) ||
	    !km_face_is(&is, want))
		return eng_fail(e, "store %s of a checkpoint has other options", want->f_name);
	return 0;
}

/* Store names come back: a checkpoint has at most one live store of a name. */
static int judge_one(struct eng *e, const struct km *m, const struct km_ckpt *c)
{
	struct mpool_open_opts oo;
	struct kvdb *db = NULL;
	struct kvdb_opts o;
	unsigned i, stores = 0;
	int rc;

	km_opts(e, &o, &oo);
	o.flags |= KVDB_RDONLY;
	o.checkpoint = c->c_name;
	rc = kvdb_open(KM_POOL, &o, &db);
	if (rc)
		return broken(e, c->c_name, rc);
	rc = km_clock_follow(e, db, km_recorded(m, KM_END), km_clock());
	for (i = 0; i < m->m_nstore && !rc; i++) {
		if (!c->c_exists[i])
			continue;
		stores++;
		rc = judge_face(e, db, &c->c_face[i]);
		if (!rc)
			rc = km_store_is(e, db, c->c_face[i].f_name, c->c_val[i]);
	}
	if (!rc && kvdb_kvs_list(db, NULL, 0) != (int)stores)
		rc = eng_fail(e, "checkpoint %s has %d stores, wanted %u", c->c_name,
			      kvdb_kvs_list(db, NULL, 0), stores);
	kvdb_close(db);
	return rc;
}

int km_ckpt_judge(struct eng *e, const struct km *m)
{
	struct sim *s = &e->e_sim;
	unsigned i;
	int rc = 0;

	s->s_bad_writes = 0;
	s->s_is_frozen = true;
	for (i = 0; i < m->m_nckpt && !rc; i++)
		if (!m->m_ckpt[i].c_is_dead)
			rc = judge_one(e, m, &m->m_ckpt[i]);
	s->s_is_frozen = false;
	if (!rc && s->s_bad_writes)
		rc = eng_fail(e, "opening a checkpoint wrote to a device");
	return rc;
}
