/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Names and options of stores in the model of a KVDB: each change is durable
 * when its call returns, and what was acknowledged before it too, so a store
 * looks as the last one that returned says, or as the one that had begun.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kv_model.h"

#define NAMES	6u	/* they come back: more than there are stores at once */

static int broken(struct eng *e, const char *what, int rc)
{
	return eng_fail(e, "%s: %d (%s)", what, rc, kvdb_error_detail()->text);
}

void km_face_add(struct km *m, unsigned s, struct km_time when, const struct km_face *f)
{
	if (m->m_nchange < KM_FACES)
		m->m_change[m->m_nchange++] = (struct km_change){ s, when, *f };
}

unsigned km_faces(const struct km *m, unsigned s, unsigned at, const struct km_face *out[2])
{
	unsigned n = 0, i;

	for (i = 0; i < m->m_nchange; i++) {
		const struct km_change *c = &m->m_change[i];

		if (c->ch_store != s || !km_begun(c->ch_when, at))
			continue;
		if (km_certain(c->ch_when, at))
			n = 0;
		out[n++] = &c->ch_face;
	}
	return n;
}

bool km_face_is(const struct km_face *a, const struct km_face *b)
{
	return !strcmp(a->f_name, b->f_name) && a->f_policy == b->f_policy &&
	       a->f_compress == b->f_compress && a->f_ttl_s == b->f_ttl_s;
}

int km_face_of(struct eng *e, struct kvdb_kvs *kvs, struct km_face *out)
{
	struct kvdb_kvs_info in;
	int rc = kvdb_kvs_info(kvs, &in);

	memset(out, 0, sizeof(*out));
	if (rc || in.pfx_len != KM_PFX)
		return eng_fail(e, "a store lost its options: %d", rc);
	snprintf(out->f_name, sizeof(out->f_name), "%.15s", in.name);
	out->f_policy = in.policy;
	out->f_compress = in.compress;
	out->f_ttl_s = in.ttl_s;
	return 0;
}

static unsigned rnd(struct km *m, unsigned n)
{
	return (unsigned)(sim_rand(&m->m_rand) % n);
}

/* Before the call: a change that fails may have happened. */
static struct km_change *begin(struct eng *e, struct km *m, unsigned s, const struct km_face *f)
{
	km_face_add(m, s, (struct km_time){ sim_now(&e->e_sim), KM_NEVER }, f);
	return &m->m_change[m->m_nchange - 1];
}

int km_rename(struct eng *e, struct km *m, struct km_rt *rt, unsigned s)
{
	const struct km_face *now[2];
	struct km_change *c;
	struct km_face f;
	char name[16];
	unsigned i;
	int rc;

	if (m->m_nchange == KM_FACES || km_faces(m, s, KM_END, now) != 1)
		return 0;
	f = *now[0];
	snprintf(f.f_name, sizeof(f.f_name), "store%u", rnd(m, NAMES));
	for (i = 0; i < m->m_nstore; i++)
		if (!m->m_store[i].s_is_dead && !strcmp(m->m_store[i].s_name, f.f_name))
			return 0;
	c = begin(e, m, s, &f);
	memcpy(name, m->m_store[s].s_name, sizeof(name));
	memcpy(m->m_store[s].s_name, f.f_name, sizeof(name));
	rc = kvdb_kvs_rename(rt->rt_db, name, f.f_name);
	if (rc)
		return broken(e, "kvdb_kvs_rename", rc);
	c->ch_when.e = sim_now(&e->e_sim);
	km_synced(e, m, m->m_nop, 0);
	return 0;
}

int km_set(struct eng *e, struct km *m, struct km_rt *rt, unsigned s)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	unsigned mask = 1 + rnd(m, 7);
	const struct km_face *now[2];
	struct km_change *c;
	struct km_face f;
	int rc;

	if (m->m_nchange == KM_FACES || km_faces(m, s, KM_END, now) != 1)
		return 0;
	f = *now[0];
	o.policy = rnd(m, KVDB_POLICY_CAPACITY_ONLY + 1);
	o.compress = rnd(m, KVDB_COMPRESS_ZSTD + 1);
	o.ttl_s = rnd(m, 3) * 1000000;	/* nothing expires here */
	f.f_policy = mask & KVDB_KVS_POLICY ? o.policy : f.f_policy;
	f.f_compress = mask & KVDB_KVS_COMPRESS ? o.compress : f.f_compress;
	f.f_ttl_s = mask & KVDB_KVS_TTL ? o.ttl_s : f.f_ttl_s;
	c = begin(e, m, s, &f);
	rc = kvdb_kvs_set(rt->rt_kvs[s], &o, mask);
	if (rc)
		return broken(e, "kvdb_kvs_set", rc);
	c->ch_when.e = sim_now(&e->e_sim);
	km_synced(e, m, m->m_nop, 0);
	return 0;
}
