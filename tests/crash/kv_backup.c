/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Backups in the model of a KVDB, as the tool makes them (utils/kvdb/backup.c): a
 * checkpoint is read by another process while the writer goes on, the first time all
 * of it, then what differs from the checkpoint of the backup before.
 *
 * A backup that is told to be good restores to exactly what was there when its
 * checkpoint was made. One that fails is no backup; it neither writes nor stops the
 * writer, and when what failed has passed the next one is good again.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kv_model.h"

#define EVERY	6u	/* records between two steps of the writer */
#define TRIES	20u

struct taking {
	struct eng *ta_eng;
	struct km *ta_m;
	struct km_rt *ta_rt;
	unsigned ta_store, ta_n;
	bool ta_is_over;	/* the writer failed, or the reader saw what must not be */
	struct km_val ta_val[KM_STORES][KM_KEYS];
};

static int take(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct taking *ta = arg;
	int k = km_key_number(key, klen);

	if (k < 0) {
		ta->ta_is_over = true;
		return eng_wrong(ta->ta_eng, "a backup has a key that was never written");
	}
	ta->ta_val[ta->ta_store][k] = val ? km_val_of(val, vlen) :
				      (struct km_val){ .v_len = KM_ABSENT };
	if (++ta->ta_n % EVERY)
		return 0;
	ta->ta_is_over = km_beside(ta->ta_eng, ta->ta_m, ta->ta_rt);
	return ta->ta_is_over ? -EINTR : 0;
}

static int take_all(struct taking *ta, struct kvdb_kvs *kvs)
{
	const void *key, *val;
	struct kvdb_cursor *cur;
	size_t klen, vlen;
	int rc = kvdb_cursor_open(kvs, 0, NULL, 0, &cur);

	if (rc)
		return rc;
	while (!rc && !(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen)))
		rc = take(ta, key, klen, val, vlen);
	kvdb_cursor_close(cur);
	return rc == -ENOENT ? 0 : rc;
}

static int take_stores(struct taking *ta, struct kvdb *from, const struct km_ckpt *base,
		       struct kvdb *to, const struct km_ckpt *c)
{
	const struct km *m = ta->ta_m;
	struct kvdb_kvs *old, *kvs;
	unsigned i, k;
	int rc = 0;

	for (i = 0; i < m->m_nstore && !rc; i++) {
		bool is_new = !from || !base->c_exists[i];

		for (k = 0; k < KM_KEYS; k++)
			ta->ta_val[i][k] = (struct km_val){ .v_len = KM_ABSENT };
		if (!c->c_exists[i])
			continue;
		ta->ta_store = i;
		if (!is_new)
			memcpy(ta->ta_val[i], m->m_backup.b_val[i], sizeof(ta->ta_val[i]));
		rc = kvdb_kvs_open(to, m->m_store[i].s_name, &kvs);
		if (!rc && !is_new)
			rc = kvdb_kvs_open(from, m->m_store[i].s_name, &old);
		if (!rc)
			rc = is_new ? take_all(ta, kvs) : kvdb_diff(old, kvs, take, ta);
	}
	return rc;
}

static int open_at(struct eng *e, const struct km_ckpt *c, struct kvdb **out)
{
	struct mpool_open_opts oo;
	struct kvdb_opts o;

	*out = NULL;
	km_opts(e, &o, &oo);
	oo.provider = &e->e_sim.s_peek;
	o.flags |= KVDB_RDONLY;
	o.checkpoint = c->c_name;
	return kvdb_open(KM_POOL, &o, out);
}

static int read_once(struct taking *ta, const struct km_ckpt *base, const struct km_ckpt *c)
{
	struct kvdb *from = NULL, *to;
	int rc = open_at(ta->ta_eng, c, &to);

	if (!rc && base)
		rc = open_at(ta->ta_eng, base, &from);
	if (!rc)
		rc = take_stores(ta, from, base, to, c);
	kvdb_close(from);
	kvdb_close(to);
	return rc;
}

/* What failed for the reader is nothing to the writer; when it has passed, nothing to either. */
static int read_out(struct taking *ta, const struct km_ckpt *base, const struct km_ckpt *c)
{
	struct eng *e = ta->ta_eng;
	struct sim_fault *f = &e->e_sim.s_fault;
	unsigned i;
	int rc = 0, err;

	for (i = 0; i < TRIES; i++) {
		e->e_sim.s_bad_writes = 0;
		rc = read_once(ta, base, c);
		if (e->e_sim.s_bad_writes)
			return eng_wrong(e, "who reads a checkpoint wrote to a device");
		if (!rc || ta->ta_is_over)
			return rc ? -1 : 0;
		if (!f->f_fired)
			break;
		if (f->f_kind == FAULT_READ || f->f_kind == FAULT_ROT) {
			if (f->f_is_sticky)
				break;
			err = kvdb_sync(ta->ta_rt->rt_db);
			if (err)
				return eng_wrong(e, "a reader's failure stopped the writer: %d",
						 err);
			km_synced(e, ta->ta_m, ta->ta_m->m_nop, 0);
		} else if (f->f_kind != FAULT_MEMORY) {
			break;
		}
	}
	if (i == TRIES)
		return eng_wrong(e, "what fails a backup does not pass: %d (%s)", rc,
				 kvdb_error_detail()->text);
	return eng_fail(e, "backup: %d (%s)", rc, kvdb_error_detail()->text);
}

/* Where writes are lost an older state may be there, but nothing else. */
static int is_what_was(struct eng *e, const struct taking *ta, const struct km_ckpt *c)
{
	bool is_exact = e->e_sim.s_fault.f_kind != FAULT_DROP;
	const struct km *m = ta->ta_m;
	unsigned i, k;

	for (i = 0; i < m->m_nstore; i++) {
		for (k = 0; c->c_exists[i] && k < KM_KEYS; k++) {
			const struct km_val *got = &ta->ta_val[i][k];

			if (is_exact ? km_is_same(got, &c->c_val[i][k], 0, 0) :
			    got->v_len == KM_ABSENT || km_was_written(m, i, k, got, 0, 0))
				continue;
			return eng_wrong(e, "a backup restores store %u key %u to %d bytes, "
					 "wanted %d", i, k, (int)ta->ta_val[i][k].v_len,
					 (int)c->c_val[i][k].v_len);
		}
	}
	return 0;
}

int km_back_up(struct eng *e, struct km *m, struct km_rt *rt)
{
	static struct taking ta;
	struct km_ckpt *base = m->m_backup.b_ckpt < 0 ? NULL : &m->m_ckpt[m->m_backup.b_ckpt];
	unsigned n = m->m_nckpt;
	int rc;

	if (km_ckpt_make(e, m, rt))
		return -1;
	if (m->m_nckpt == n)
		return 0;	/* there is no room for it */
	ta = (struct taking){ .ta_eng = e, .ta_m = m, .ta_rt = rt };
	rc = read_out(&ta, base, &m->m_ckpt[n]);
	if (!rc)
		rc = is_what_was(e, &ta, &m->m_ckpt[n]);
	if (rc) {
		m->m_is_wrong = e->e_is_wrong;
		return -1;
	}
	m->m_backup.b_ckpt = (int)n;
	memcpy(m->m_backup.b_val, ta.ta_val, sizeof(ta.ta_val));
	return base ? km_ckpt_drop_one(e, base, rt) : 0;
}
