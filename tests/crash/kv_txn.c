/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Transactions in the model of a KVDB: two may be open over many steps of
 * others. What each reads, whether a write conflicts, is known. The writes of
 * one enter the history at its commit as a group: no legal prefix ends inside it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "log/flush.h"
#include "kv_model.h"
#include "background/work.h"

#define VALUE_MAX 12000u

static unsigned rnd(struct km *m, unsigned n)
{
	return (unsigned)(sim_rand(&m->m_rand) % n);
}

static int broken(struct eng *e, const char *what, int rc)
{
	return eng_fail(e, "%s: %d (%s)", what, rc, kvdb_error_detail()->text);
}

/* Its write to a key, or NULL. */
static struct km_twrite *own(struct km_txn *t, unsigned s, unsigned k)
{
	unsigned i;

	for (i = 0; t->t_txn && i < t->t_n; i++)
		if (t->t_write[i].w_store == s && t->t_write[i].w_key == k)
			return &t->t_write[i];
	return NULL;
}

bool km_txn_owns(struct km_rt *rt, unsigned s, unsigned k)
{
	unsigned i;

	for (i = 0; i < KM_TXNS; i++)
		if (own(&rt->rt_txn[i], s, k))
			return true;
	return false;
}

/* Somebody was faster with the key. */
static bool must_conflict(struct km *m, struct km_rt *rt, struct km_txn *t, unsigned s, unsigned k)
{
	unsigned i;

	for (i = t->t_begun; i < m->m_nop; i++)
		if (m->m_op[i].op_store == s && m->m_op[i].op_key == k)
			return true;
	return !own(t, s, k) && km_txn_owns(rt, s, k);
}

static void give_up(struct km_txn *t)
{
	kvdb_txn_abort(t->t_txn);
	t->t_txn = NULL;
}

void km_txns_abort(struct km_rt *rt)
{
	unsigned i;

	for (i = 0; i < KM_TXNS; i++)
		if (rt->rt_txn[i].t_txn)
			give_up(&rt->rt_txn[i]);
}

static int txn_begin(struct eng *e, struct km *m, struct km_rt *rt, struct km_txn *t)
{
	int rc = kvdb_txn_begin(rt->rt_db, 0, &t->t_txn);

	t->t_n = 0;
	t->t_begun = m->m_nop;
	memcpy(t->t_view, m->m_now, sizeof(t->t_view));
	return rc ? broken(e, "kvdb_txn_begin", rc) : 0;
}

static int store_pick(struct km *m)
{
	unsigned start = m->m_nstore ? rnd(m, m->m_nstore) : 0, i;

	for (i = 0; i < m->m_nstore; i++)
		if (!m->m_store[(start + i) % m->m_nstore].s_is_dead)
			return (int)((start + i) % m->m_nstore);
	return -1;
}

static int txn_write(struct eng *e, struct km *m, struct km_rt *rt, struct km_txn *t)
{
	static uint8_t val[VALUE_MAX];
	unsigned k = rnd(m, km_conf_of(e)->kc_keys);
	unsigned len = rnd(m, 3) ? rnd(m, 140) : rnd(m, VALUE_MAX);
	int s = store_pick(m), rc;
	uint8_t key[KVDB_KEY_MAX];
	size_t klen = km_key(k, key);
	struct km_twrite *w;
	bool conflict;

	if (s < 0 || t->t_n == KM_TWRITES)
		return 0;
	conflict = must_conflict(m, rt, t, (unsigned)s, k);
	if (rnd(m, 5)) {
		sim_garbage(val, len, sim_rand(&m->m_rand));
		rc = kvdb_txn_put(t->t_txn, rt->rt_kvs[s], key, klen, val, len);
	} else {
		len = KM_ABSENT;
		rc = kvdb_txn_del(t->t_txn, rt->rt_kvs[s], key, klen);
	}
	if (conflict ? !rc : rc == -ECANCELED)
		return eng_wrong(e, "a write to store %d key %u: %d, conflict %d", s, k, rc,
				conflict);
	if (rc) {
		/* space and pinned segments end it too */
		if (rc != -ECANCELED && rc != -ENOSPC && rc != -ESTALE && rc != -EFBIG)
			return broken(e, "a write of a transaction", rc);
		give_up(t);
		return 0;
	}
	w = own(t, (unsigned)s, k);
	if (!w)
		w = &t->t_write[t->t_n++];
	w->w_store = (uint16_t)s;
	w->w_key = (uint16_t)k;
	w->w_val.v_len = len;
	w->w_val.v_hash = len == KM_ABSENT ? 0 : km_hash(val, len);
	return 0;
}

static int txn_read(struct eng *e, struct km *m, struct km_rt *rt, struct km_txn *t)
{
	static uint8_t val[KM_VALUE_MAX];
	unsigned k = rnd(m, km_conf_of(e)->kc_keys);
	uint8_t key[KVDB_KEY_MAX];
	const struct km_val *want;
	int s = store_pick(m), rc;
	struct km_twrite *w;
	size_t vlen = 0;

	if (s < 0)
		return 0;
	w = own(t, (unsigned)s, k);
	want = w ? &w->w_val : &t->t_view[s][k];
	rc = kvdb_txn_get(t->t_txn, rt->rt_kvs[s], key, km_key(k, key), val, sizeof(val), &vlen);
	if (rc == -ESTALE) {
		give_up(t);
		return 0;
	}
	if (rc && rc != -ENOENT)
		return broken(e, "kvdb_txn_get", rc);
	if (want->v_len == KM_ABSENT ? !rc :
	    (rc || vlen != want->v_len || km_hash(val, vlen) != want->v_hash))
		return eng_wrong(e, "a transaction reads store %d key %u: %d, %zu bytes, wanted %d",
				s, k, rc, vlen, (int)want->v_len);
	return 0;
}

/* As many keys as its view and its writes have. */
static int txn_scan(struct eng *e, struct km *m, struct km_rt *rt, struct km_txn *t)
{
	struct kvdb_cursor *cur;
	unsigned n = 0, want = 0, k;
	int s = store_pick(m), rc;

	if (s < 0)
		return 0;
	rc = kvdb_txn_cursor_open(t->t_txn, rt->rt_kvs[s], rnd(m, 2) ? KVDB_REVERSE : 0, NULL, 0,
				  &cur);
	if (rc == -ESTALE) {
		give_up(t);
		return 0;
	}
	if (rc)
		return broken(e, "kvdb_txn_cursor_open", rc);
	while (!(rc = kvdb_cursor_next(cur, NULL, NULL, NULL, NULL)))
		n++;
	kvdb_cursor_close(cur);
	for (k = 0; k < KM_KEYS; k++) {
		struct km_twrite *w = own(t, (unsigned)s, k);

		want += (w ? w->w_val.v_len : t->t_view[s][k].v_len) != KM_ABSENT;
	}
	if (rc != -ENOENT)
		return broken(e, "a transaction's cursor", rc);
	if (n != want)
		return eng_wrong(e, "a transaction's cursor on store %d: %u keys, wanted %u", s,
				 n, want);
	return 0;
}

static int txn_commit(struct eng *e, struct km *m, struct km_txn *t)
{
	unsigned at = m->m_nop, i, flags = rnd(m, 6) ? 0 : KVDB_TXN_DURABLE;
	struct km_op *op;
	int rc;

	if (at + t->t_n > KM_HIST) {
		give_up(t);
		return 0;
	}
	for (i = 0; i < t->t_n; i++) {
		op = &m->m_op[at + i];
		op->op_store = t->t_write[i].w_store;
		op->op_key = t->t_write[i].w_key;
		op->op_val = t->t_write[i].w_val;
		op->op_b = sim_now(&e->e_sim);
		op->op_is_many = false;
		op->op_more = i + 1 < t->t_n;
	}
	rc = kvdb_txn_commit(t->t_txn, flags, NULL);
	t->t_txn = NULL;
	if (rc == -ENOSPC || rc == -ESTALE || rc == -EFBIG)
		return 0;
	if (rc)
		return broken(e, "kvdb_txn_commit", rc);
	for (i = 0; i < t->t_n; i++) {
		op = &m->m_op[at + i];
		op->op_e = sim_now(&e->e_sim);
		op->op_ack_ns = km_clock();
		m->m_now[op->op_store][op->op_key] = op->op_val;
	}
	m->m_nop += t->t_n;
	/* of one that wrote nothing there is nothing to be durable */
	if (flags && t->t_n)
		km_synced(e, m, m->m_nop, 0);
	return 0;
}

int km_txn_step(struct eng *e, struct km *m, struct km_rt *rt)
{
	struct km_txn *t = &rt->rt_txn[rnd(m, KM_TXNS)];
	unsigned w;

	if (!t->t_txn)
		return txn_begin(e, m, rt, t);
	w = rnd(m, 100);
	if (w < 50)
		return txn_write(e, m, rt, t);
	if (w < 70)
		return txn_read(e, m, rt, t);
	if (w < 75)
		return txn_scan(e, m, rt, t);
	if (w < 96)
		return txn_commit(e, m, t);
	give_up(t);
	return 0;
}

int km_flush_one(struct eng *e, struct km *m, struct km_rt *rt)
{
	unsigned ops = m->m_nop;
	int s = store_pick(m), rc;

	if (s < 0)
		return 0;
	rc = kv_switch_prepare(rt->rt_db, rt->rt_kvs[s]);
	if (!rc)
		rc = kv_epoch_force(rt->rt_db);
	if (rc)
		return broken(e, "a memtable switch", rc);
	km_synced(e, m, ops, 0);
	rc = kv_flush_step(rt->rt_db);
	return rc < 0 && rc != -ENOSPC ? broken(e, "kv_flush_step", rc) : 0;
}
