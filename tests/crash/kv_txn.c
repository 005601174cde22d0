/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Transactions and batches in the model of a KVDB: two may be open over many steps of
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

/* It deletes a range with the key. */
static bool is_in_range(const struct km_txn *t, unsigned s, unsigned k)
{
	unsigned i;

	for (i = 0; t->t_txn && i < t->t_nrange; i++)
		if (t->t_range[i].r_store == s && t->t_range[i].r_keys[k / 8] >> (k % 8) & 1)
			return true;
	return false;
}

static bool others_own(struct km_rt *rt, const struct km_txn *but, unsigned s, unsigned k)
{
	unsigned i;

	for (i = 0; i < KM_TXNS; i++)
		if (&rt->rt_txn[i] != but &&
		    (own(&rt->rt_txn[i], s, k) || is_in_range(&rt->rt_txn[i], s, k)))
			return true;
	return false;
}

bool km_txn_owns(struct km_rt *rt, unsigned s, unsigned k)
{
	return others_own(rt, NULL, s, k);
}

/* Another transaction was faster with the key. */
static bool must_conflict(struct km *m, struct km_rt *rt, struct km_txn *t, unsigned s, unsigned k)
{
	unsigned i;

	for (i = t->t_begun; i < m->m_nop; i++)
		if (m->m_op[i].op_store == s && km_changes(&m->m_op[i], k))
			return true;
	return others_own(rt, t, s, k);
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

	t->t_n = t->t_nrange = 0;
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

/*
 * A range from one key to another: it meets one that does so, too, only if they have a key in
 * common. What was written there before is deleted as everything else.
 */
static int txn_range(struct eng *e, struct km *m, struct km_rt *rt, struct km_txn *t)
{
	uint8_t from[KVDB_KEY_MAX], to[KVDB_KEY_MAX];
	struct km_trange *r = &t->t_range[t->t_nrange];
	unsigned keys = km_conf_of(e)->kc_keys, k;
	size_t flen = km_key(rnd(m, keys), from), tlen = km_key(rnd(m, keys), to);
	bool conflict = false, is_any = false;
	int s = store_pick(m), rc;

	if (s < 0 || t->t_nrange == KM_TRANGES)
		return 0;
	km_many_keys(r->r_keys, from, flen, to, tlen);
	for (k = 0; k < KM_KEYS; k++) {
		if (!(r->r_keys[k / 8] >> (k % 8) & 1))
			continue;
		is_any = true;
		conflict |= must_conflict(m, rt, t, (unsigned)s, k);
	}
	rc = kvdb_txn_range_del(t->t_txn, rt->rt_kvs[s], from, flen, to, tlen);
	if (conflict ? !rc : rc == -ECANCELED)
		return eng_wrong(e, "a range delete in store %d: %d, conflict %d", s, rc, conflict);
	if (rc) {
		if (rc != -ECANCELED && rc != -ENOSPC && rc != -ESTALE)
			return broken(e, "a range delete of a transaction", rc);
		give_up(t);
		return 0;
	}
	if (!is_any)
		return 0;
	r->r_store = (unsigned)s;
	t->t_nrange++;
	for (k = 0; k < t->t_n; k++)
		if (t->t_write[k].w_store == s &&
		    r->r_keys[t->t_write[k].w_key / 8] >> (t->t_write[k].w_key % 8) & 1)
			t->t_write[k].w_val = (struct km_val){ .v_len = KM_ABSENT };
	return 0;
}

/* What it must see of a key. */
static const struct km_val *sees(struct km_txn *t, unsigned s, unsigned k)
{
	static const struct km_val absent = { .v_len = KM_ABSENT };
	const struct km_twrite *w = own(t, s, k);

	return w ? &w->w_val : is_in_range(t, s, k) ? &absent : &t->t_view[s][k];
}

static int txn_read(struct eng *e, struct km *m, struct km_rt *rt, struct km_txn *t)
{
	static uint8_t val[KM_VALUE_MAX];
	unsigned k = rnd(m, km_conf_of(e)->kc_keys);
	uint8_t key[KVDB_KEY_MAX];
	const struct km_val *want;
	int s = store_pick(m), rc;
	size_t vlen = 0;

	if (s < 0)
		return 0;
	want = sees(t, (unsigned)s, k);
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
	for (k = 0; k < KM_KEYS; k++)
		want += sees(t, (unsigned)s, k)->v_len != KM_ABSENT;
	if (rc != -ENOENT)
		return broken(e, "a transaction's cursor", rc);
	if (n != want)
		return eng_wrong(e, "a transaction's cursor on store %d: %u keys, wanted %u", s,
				 n, want);
	return 0;
}

/* Its writes as operations from @at on: the ranges first, for none of them hides a write. */
static unsigned txn_ops(struct eng *e, struct km *m, const struct km_txn *t, unsigned at)
{
	unsigned n = t->t_nrange + t->t_n, i;

	for (i = 0; i < n; i++) {
		struct km_op *op = &m->m_op[at + i];

		op->op_is_many = i < t->t_nrange;
		if (op->op_is_many) {
			op->op_store = (uint16_t)t->t_range[i].r_store;
			op->op_val = (struct km_val){ .v_len = KM_ABSENT };
			memcpy(op->op_keys, t->t_range[i].r_keys, sizeof(op->op_keys));
		} else {
			op->op_store = t->t_write[i - t->t_nrange].w_store;
			op->op_key = t->t_write[i - t->t_nrange].w_key;
			op->op_val = t->t_write[i - t->t_nrange].w_val;
		}
		op->op_b = sim_now(&e->e_sim);
		op->op_more = i + 1 < n;
	}
	return n;
}

/* @n operations that are in the history now, as one. */
static void committed(struct eng *e, struct km *m, unsigned n, bool is_durable)
{
	for (unsigned i = 0; i < n; i++) {
		struct km_op *op = &m->m_op[m->m_nop + i];

		op->op_e = sim_now(&e->e_sim);
		op->op_ack_ns = km_clock();
		for (unsigned k = 0; k < KM_KEYS; k++)
			if (km_changes(op, k))
				m->m_now[op->op_store][k] = op->op_val;
	}
	m->m_nop += n;
	/* of one that wrote nothing there is nothing to be durable */
	if (is_durable && n)
		km_synced(e, m, m->m_nop, 0);
}

static int txn_commit(struct eng *e, struct km *m, struct km_txn *t)
{
	unsigned at = m->m_nop, n, flags = rnd(m, 6) ? 0 : KVDB_TXN_DURABLE;
	int rc;

	if (at + t->t_n + t->t_nrange > KM_HIST) {
		give_up(t);
		return 0;
	}
	n = txn_ops(e, m, t, at);
	rc = kvdb_txn_commit(t->t_txn, flags, NULL);
	t->t_txn = NULL;
	if (rc == -ENOSPC || rc == -ESTALE || rc == -EFBIG)
		return 0;
	if (rc)
		return broken(e, "kvdb_txn_commit", rc);
	committed(e, m, n, flags);
	return 0;
}

/* ---- batches ------------------------------------------------------------------------------- */

#define BATCH_OPS (KM_TWRITES + KM_TRANGES)

/* A batch that is being made: what it does, and as a transaction would have it. */
struct batch {
	struct kvdb_op b_op[BATCH_OPS];
	uint8_t b_key[BATCH_OPS][2][KVDB_KEY_MAX];
	uint8_t b_val[BATCH_OPS][VALUE_MAX];
	unsigned b_n;
	bool b_is_owned;	/* an open transaction has a key of it */
	bool b_only_deletes;
	struct km_txn b_is;
};

static void batch_write(struct km *m, struct km_rt *rt, struct batch *b, unsigned s, unsigned k)
{
	struct kvdb_op *p = &b->b_op[b->b_n];
	uint8_t *key = b->b_key[b->b_n][0], *val = b->b_val[b->b_n];
	unsigned len = rnd(m, 4) ? rnd(m, 140) : rnd(m, VALUE_MAX);
	struct km_twrite *w = own(&b->b_is, s, k);

	b->b_n++;
	if (!rnd(m, 5))
		len = KM_ABSENT;
	*p = (struct kvdb_op){ .type = len == KM_ABSENT ? KVDB_OP_DEL : KVDB_OP_PUT,
			       .kvs = rt->rt_kvs[s], .key = key, .klen = km_key(k, key) };
	if (!w)
		w = &b->b_is.t_write[b->b_is.t_n++];
	*w = (struct km_twrite){ .w_store = (uint16_t)s, .w_key = (uint16_t)k,
				 .w_val = { .v_len = len } };
	if (len != KM_ABSENT) {
		sim_garbage(val, len, sim_rand(&m->m_rand));
		w->w_val.v_hash = km_hash(val, len);
		p->val = val;
		p->size = len;
		b->b_only_deletes = false;
	}
	b->b_is_owned |= km_txn_owns(rt, s, k);
}

static void batch_range(struct km *m, struct km_rt *rt, struct batch *b, unsigned s, unsigned keys)
{
	struct km_trange *r = &b->b_is.t_range[b->b_is.t_nrange];
	uint8_t *from = b->b_key[b->b_n][0], *to = b->b_key[b->b_n][1];
	struct kvdb_op *p = &b->b_op[b->b_n++];
	bool is_any = false;

	*p = (struct kvdb_op){ .type = KVDB_OP_RANGE_DEL, .kvs = rt->rt_kvs[s], .key = from,
			       .klen = km_key(rnd(m, keys), from), .val = to,
			       .size = km_key(rnd(m, keys), to) };
	km_many_keys(r->r_keys, from, p->klen, to, p->size);
	for (unsigned k = 0; k < KM_KEYS; k++) {
		if (!(r->r_keys[k / 8] >> (k % 8) & 1))
			continue;
		is_any = true;
		b->b_is_owned |= km_txn_owns(rt, s, k);
	}
	if (!is_any)
		return;
	r->r_store = s;
	b->b_is.t_nrange++;
	for (unsigned i = 0; i < b->b_is.t_n; i++) {
		struct km_twrite *w = &b->b_is.t_write[i];

		if (w->w_store == s && r->r_keys[w->w_key / 8] >> (w->w_key % 8) & 1)
			w->w_val = (struct km_val){ .v_len = KM_ABSENT };
	}
}

int km_batch(struct eng *e, struct km *m, struct km_rt *rt)
{
	static struct batch b;
	unsigned keys = km_conf_of(e)->kc_keys, want = 1 + rnd(m, 16), n;
	unsigned flags = rnd(m, 6) ? 0 : KVDB_OP_DURABLE;
	int rc, s;

	b.b_n = b.b_is.t_n = b.b_is.t_nrange = 0;
	b.b_is_owned = false;
	b.b_only_deletes = true;
	/* own() asks whether there is one */
	b.b_is.t_txn = (struct kvdb_txn *)&b;
	while (b.b_n < want) {
		s = store_pick(m);
		if (s < 0)
			return 0;
		if (rnd(m, 8) || b.b_is.t_nrange == KM_TRANGES)
			batch_write(m, rt, &b, (unsigned)s, rnd(m, keys));
		else
			batch_range(m, rt, &b, (unsigned)s, keys);
	}
	if (m->m_nop + b.b_is.t_n + b.b_is.t_nrange > KM_HIST)
		return 0;
	n = txn_ops(e, m, &b.b_is, m->m_nop);
	rc = kvdb_write(rt->rt_db, b.b_op, b.b_n, flags, NULL);
	if (rc == -ENOSPC && !b.b_only_deletes)
		return 0;
	if (b.b_is_owned)
		return rc == -ECANCELED ? 0 : broken(e, "a batch with an owned key", rc);
	if (rc)
		return broken(e, "kvdb_write", rc);
	committed(e, m, n, flags);
	return 0;
}

int km_txn_step(struct eng *e, struct km *m, struct km_rt *rt)
{
	struct km_txn *t = &rt->rt_txn[rnd(m, KM_TXNS)];
	unsigned w;

	if (!t->t_txn)
		return txn_begin(e, m, rt, t);
	w = rnd(m, 100);
	if (w < 40)
		return txn_write(e, m, rt, t);
	if (w < 50)
		return txn_range(e, m, rt, t);
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
