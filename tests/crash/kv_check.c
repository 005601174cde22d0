/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a recovered database must show: the stores that exist, and in all of
 * them together the effect of one prefix of the history. How long that prefix
 * must be: every sync, close and drain that returned, in commit mode every
 * write that returned, and by the loss bound all but a suffix whose first and
 * last acknowledgements lie at most the interval apart.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "kv_model.h"

static struct km_val found[KM_STORES][KM_KEYS];
static struct km_val wanted[KM_STORES][KM_KEYS];	/* by the prefix that was found */
static struct km_face face[KM_STORES];

/* The clock is stopped while a database is read and judged. */
static bool same(const struct km_val *got, const struct km_val *want)
{
	return km_is_same(got, want, km_clock(), km_clock());
}

/* ---- reading everything ---- */

int km_key_number(const uint8_t *key, size_t klen)
{
	uint8_t want[KVDB_KEY_MAX];
	unsigned n;

	if (klen < 5 || key[1] != '-')
		return -1;
	n = (unsigned)((key[2] - '0') * 100 + (key[3] - '0') * 10 + (key[4] - '0'));
	if (n >= KM_KEYS || km_key(n, want) != klen || memcmp(want, key, klen))
		return -1;
	return (int)n;
}

/* One walk; reverse must show what forward did. */
static int scan(struct eng *e, struct kvdb_kvs *kvs, unsigned s, bool reverse)
{
	uint8_t last[KVDB_KEY_MAX];
	struct kvdb_cursor *cur;
	size_t klen, vlen, last_len = 0;
	const void *key, *val;
	unsigned n = 0, k;
	int rc;

	rc = kvdb_cursor_open(kvs, reverse ? KVDB_REVERSE : 0, NULL, 0, &cur);
	if (rc)
		return eng_fail(e, "kvdb_cursor_open: %d", rc);
	while (!(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen))) {
		int i = km_key_number(key, klen), order = 0;

		if (i < 0) {
			rc = eng_fail(e, "store %u shows a key that was never written", s);
			break;
		}
		if (n) {
			size_t least = klen < last_len ? klen : last_len;

			order = memcmp(key, last, least);
			if (!order)
				order = klen < last_len ? -1 : klen > last_len;
		}
		if (n++ && (reverse ? order >= 0 : order <= 0)) {
			rc = eng_fail(e, "store %u: the cursor is out of order at key %d", s, i);
			break;
		}
		memcpy(last, key, klen);
		last_len = klen;
		if (!reverse) {
			found[s][i].v_len = (uint32_t)vlen;
			found[s][i].v_hash = km_hash(val, vlen);
		} else if (found[s][i].v_len != vlen || found[s][i].v_hash != km_hash(val, vlen)) {
			rc = eng_fail(e, "store %u key %d: backward differs from forward", s, i);
			break;
		}
	}
	kvdb_cursor_close(cur);
	if (rc != -ENOENT)
		return rc == -1 ? -1 : eng_fail(e, "store %u: cursor: %d (%s)", s, rc,
						kvdb_error_detail()->text);
	for (k = 0; reverse && k < KM_KEYS; k++)
		n -= found[s][k].v_len != KM_ABSENT;
	return reverse && n ? eng_fail(e, "store %u: backward shows fewer keys", s) : 0;
}

static int gets(struct eng *e, struct kvdb_kvs *kvs, unsigned s)
{
	static uint8_t val[KM_VALUE_MAX];
	uint8_t key[KVDB_KEY_MAX];
	unsigned k;

	for (k = 0; k < km_conf_of(e)->kc_keys; k++) {
		const struct km_val *f = &found[s][k];
		size_t vlen = 0;
		int rc = kvdb_get(kvs, key, km_key(k, key), val, sizeof(val), &vlen);

		if (f->v_len == KM_ABSENT ? rc != -ENOENT :
		    (rc || vlen != f->v_len || km_hash(val, vlen) != f->v_hash))
			return eng_fail(e, "store %u key %u: get says %d, %zu bytes, the cursor %d",
					s, k, rc, vlen, (int)f->v_len);
	}
	return 0;
}

static int store_is(struct eng *e, struct kvdb *db, const char *name, const struct km_val *want)
{
	struct kvdb_kvs *kvs;
	unsigned k;
	int rc = kvdb_kvs_open(db, name, &kvs);

	if (rc)
		return eng_fail(e, "kvdb_kvs_open %s: %d", name, rc);
	for (k = 0; k < KM_KEYS; k++)
		found[0][k] = (struct km_val){ .v_len = KM_ABSENT };
	if (scan(e, kvs, 0, false) || scan(e, kvs, 0, true) || gets(e, kvs, 0))
		return -1;
	for (k = 0; k < KM_KEYS; k++)
		if (!same(&found[0][k], &want[k]))
			return eng_fail(e, "store %s key %u: %d bytes, wanted %d", name, k,
					(int)found[0][k].v_len, (int)want[k].v_len);
	return 0;
}

int km_store_is(struct eng *e, struct kvdb *db, const char *name, const struct km_val *want)
{
	int rc;

	km_clock_stop();
	rc = store_is(e, db, name, want);
	km_clock_go();
	return rc;
}

/* ---- history ---- */

static bool was_written_to(const struct km *m, unsigned s, unsigned k, const struct km_val *got,
			   uint64_t from, uint64_t to)
{
	unsigned i;

	if (km_is_same(got, &m->m_base[s][k], from, to))
		return true;
	for (i = 0; i < m->m_nop; i++)
		if (m->m_op[i].op_store == s && km_changes(&m->m_op[i], k) &&
		    km_is_same(got, &m->m_op[i].op_val, from, to))
			return true;
	return false;
}

bool km_was_written(const struct km *m, unsigned s, unsigned k, const struct km_val *got,
		    uint64_t from, uint64_t to)
{
	unsigned i;

	for (i = 0; i < m->m_nstore; i++)
		if (!strcmp(m->m_store[i].s_name, m->m_store[s].s_name) &&
		    was_written_to(m, i, k, got, from, to))
			return true;
	return false;
}

unsigned km_least_ops(const struct km *m, unsigned at, const struct km_conf *c)
{
	uint32_t interval = km_interval_ms(c);
	unsigned acked = 0, lo = 0, i;

	while (acked < m->m_nop && m->m_op[acked].op_e <= at)
		acked++;
	for (i = 0; i < m->m_nsync; i++)
		if (m->m_sync[i].sy_e <= at && m->m_sync[i].sy_ops > lo)
			lo = m->m_sync[i].sy_ops;
	if (c->kc_commit)
		lo = acked;
	if (interval == KVDB_INTERVAL_NONE)
		return lo;
	while (lo < acked && m->m_op[acked - 1].op_ack_ns - m->m_op[lo].op_ack_ns >
			     interval * 1000000ull)
		lo++;
	return lo;
}

static void apply(struct km_val now[KM_STORES][KM_KEYS], const struct km_op *op)
{
	unsigned k;

	for (k = 0; k < KM_KEYS; k++)
		if (km_changes(op, k))
			now[op->op_store][k] = op->op_val;
}

/*
 * The longest legal prefix whose effect was found, or -1. Stores that do not
 * exist any more say nothing.
 */
static int prefix_find(const struct km *m, unsigned lo, unsigned hi, const bool *exists,
		       unsigned *near)
{
	struct km_val now[KM_STORES][KM_KEYS];
	unsigned wrong = 0, p, s, k, best = KM_NEVER;
	int fit = -1;

	memcpy(now, m->m_base, sizeof(now));
	for (p = 0; p < lo; p++)
		apply(now, &m->m_op[p]);
	for (s = 0; s < m->m_nstore; s++)
		for (k = 0; exists[s] && k < KM_KEYS; k++)
			wrong += !same(&found[s][k], &now[s][k]);
	for (p = lo;; p++) {
		const struct km_op *op = &m->m_op[p];

		if (wrong < best) {
			best = wrong;
			*near = p;
		}
		/* P4: no transaction is half there */
		if (!wrong && !(p && m->m_op[p - 1].op_more)) {
			fit = (int)p;
			memcpy(wanted, now, sizeof(now));
		}
		if (p == hi)
			return fit;
		if (!exists[op->op_store])
			continue;
		for (k = 0; k < KM_KEYS; k++) {
			if (!km_changes(op, k))
				continue;
			wrong -= !same(&found[op->op_store][k], &now[op->op_store][k]);
			now[op->op_store][k] = op->op_val;
			wrong += !same(&found[op->op_store][k], &op->op_val);
		}
	}
}

/* Says which keys differ from the nearest prefix. */
static int no_prefix(struct eng *e, const struct km *m, unsigned lo, unsigned hi, unsigned near,
		     const bool *exists)
{
	struct km_val now[KM_STORES][KM_KEYS];
	unsigned p, s, k, n = 0, last;
	char what[256] = "";

	memcpy(now, m->m_base, sizeof(now));
	for (p = 0; p < near; p++)
		apply(now, &m->m_op[p]);
	for (s = 0; s < m->m_nstore; s++) {
		for (k = 0; exists[s] && k < KM_KEYS; k++) {
			if (same(&found[s][k], &now[s][k]) || n++ > 2)
				continue;
			last = KM_NEVER;
			for (p = 0; p < m->m_nop; p++)
				if (m->m_op[p].op_store == s && km_changes(&m->m_op[p], k) &&
				    same(&found[s][k], &m->m_op[p].op_val))
					last = p;
			snprintf(what + strlen(what), sizeof(what) - strlen(what),
				 " [store %u key %u: %d bytes, wanted %d; found is of write %d]", s,
				 k, (int)found[s][k].v_len, (int)now[s][k].v_len, (int)last);
		}
	}
	return eng_fail(e, "no prefix of %u..%u writes; nearest %u differs in %u keys:%s", lo, hi,
			near, n, what);
}

/* ---- stores ---- */

static int store_effect(struct eng *e, const struct km_store *s, unsigned at, bool is_there)
{
	if (km_begun(s->s_dropped, at)) {
		if (km_certain(s->s_dropped, at) && is_there)
			return eng_fail(e, "dropped store %s is back", s->s_name);
		return 0;
	}
	if (km_certain(s->s_exists, at) && !is_there)
		return eng_fail(e, "store %s is lost", s->s_name);
	return 0;
}

/* Store @s as one of @names, of no other; -1: it is not there. */
static int store_name(const struct km *m, unsigned s, unsigned at, char (*names)[KVDB_NAME_MAX + 1],
		      int n, const bool *known)
{
	const struct km_face *f[2];
	unsigned nf = km_faces(m, s, at, f), i;

	for (int k = 0; k < n; k++)
		for (i = 0; i < nf && !known[k]; i++)
			if (!strcmp(names[k], f[i]->f_name))
				return k;
	return -1;
}

/* Which stores of the model are there; a name belongs to one at a time. */
static int stores_find(struct eng *e, const struct km *m, unsigned at, struct kvdb *db,
		       bool *exists)
{
	char names[KM_STORES][KVDB_NAME_MAX + 1];
	bool known[KM_STORES] = { false };
	int n = kvdb_kvs_list(db, names, KM_STORES), k;
	unsigned i;

	if (n < 0 || n > (int)KM_STORES)
		return eng_fail(e, "kvdb_kvs_list: %d", n);
	for (i = 0; i < m->m_nstore; i++) {
		const struct km_store *s = &m->m_store[i];

		exists[i] = false;
		if (!km_begun(s->s_exists, at) || km_certain(s->s_dropped, at))
			continue;
		k = store_name(m, i, at, names, n, known);
		if (k >= 0) {
			exists[i] = known[k] = true;
			snprintf(face[i].f_name, sizeof(face[i].f_name), "%.15s", names[k]);
		}
		if (store_effect(e, s, at, exists[i]))
			return -1;
	}
	for (k = 0; k < n; k++)
		if (!known[k])
			return eng_fail(e, "store %s should not exist", names[k]);
	return 0;
}

/* What has expired stays away: the clock is not set back behind this open. */
static void next_fill(const struct km *m, unsigned at, const bool *exists, struct km *next)
{
	unsigned i, k;

	memcpy(next->m_store, m->m_store, sizeof(next->m_store));
	next->m_nstore = m->m_nstore;
	next->m_dropped = km_never;
	next->m_born_ns = km_clock();
	for (i = 0; i < m->m_nstore; i++) {
		struct km_time now = { at, at };

		/* found, and when it expires */
		for (k = 0; k < KM_KEYS; k++)
			next->m_base[i][k] = found[i][k].v_len == KM_ABSENT ? found[i][k] :
					     wanted[i][k];
		memcpy(next->m_now[i], next->m_base[i], sizeof(found[i]));
		if (exists[i]) {
			memcpy(next->m_store[i].s_name, face[i].f_name, sizeof(face[i].f_name));
			km_face_add(next, i, now, &face[i]);
		}
		next->m_store[i].s_is_dead = !exists[i];
		next->m_store[i].s_exists = exists[i] ? now : km_never;
		next->m_store[i].s_dropped = km_never;
	}
}

/* ---- the whole ---- */

static void first_problem(void *arg, const struct mpool_problem *p)
{
	char *text = arg;

	if (p->is_damage && !*text)
		snprintf(text, 200, "%s", p->text);
}

static int judge_verify(struct eng *e)
{
	char text[200] = "";
	struct sim *s = &e->e_sim;
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	uint64_t damage = 0;
	int rc;

	km_opts(e, &o, &oo);
	s->s_bad_writes = 0;
	s->s_is_frozen = true;
	rc = kvdb_verify(KM_POOL, &o, MPOOL_VERIFY_DATA, first_problem, text, &damage);
	s->s_is_frozen = false;
	if (rc || damage)
		return eng_fail(e, "kvdb_verify: %d, %" PRIu64 " damaged (%s)", rc, damage,
				rc ? kvdb_error_detail()->text : text);
	return s->s_bad_writes ? eng_fail(e, "kvdb_verify wrote to a device") : 0;
}

static bool may_be_absent(const struct km *m, unsigned at)
{
	return !km_certain(m->m_created, at) || km_begun(m->m_dropped, at);
}

/* Name and options are those of one change. */
static int judge_face(struct eng *e, const struct km *m, unsigned at, struct kvdb_kvs *kvs,
		      unsigned s)
{
	const struct km_face *f[2];
	unsigned n = km_faces(m, s, at, f), i;

	if (km_face_of(e, kvs, &face[s]))
		return -1;
	for (i = 0; i < n; i++)
		if (km_face_is(&face[s], f[i]))
			return 0;
	return eng_fail(e, "store %s: policy %u, compression %u, ttl %u", face[s].f_name,
			face[s].f_policy, face[s].f_compress, (unsigned)face[s].f_ttl_s);
}

static int judge_stores(struct eng *e, const struct km *m, unsigned at, struct km_rt *rt,
			bool *exists)
{
	unsigned i, k;
	int rc;

	if (stores_find(e, m, at, rt->rt_db, exists))
		return -1;
	for (i = 0; i < m->m_nstore; i++) {
		for (k = 0; k < KM_KEYS; k++)
			found[i][k] = (struct km_val){ .v_len = KM_ABSENT };
		if (!exists[i])
			continue;
		rc = kvdb_kvs_open(rt->rt_db, face[i].f_name, &rt->rt_kvs[i]);
		if (rc)
			return eng_fail(e, "kvdb_kvs_open: %d", rc);
		if (judge_face(e, m, at, rt->rt_kvs[i], i) ||
		    scan(e, rt->rt_kvs[i], i, false) || scan(e, rt->rt_kvs[i], i, true) ||
		    gets(e, rt->rt_kvs[i], i))
			return -1;
	}
	return 0;
}

static unsigned bound_cuts, bound_lost;
static double bound_most;

/* The first @fit operations are there: how much of the interval is lost? */
static void note_loss(const struct km *m, unsigned at, unsigned fit, const struct km_conf *c)
{
	unsigned acked = 0;
	double lost = 0;

	while (acked < m->m_nop && m->m_op[acked].op_e <= at)
		acked++;
	if (fit < acked)
		lost = (double)(m->m_op[acked - 1].op_ack_ns - m->m_op[fit].op_ack_ns) /
		       (km_interval_ms(c) * 1e6);
	bound_cuts++;
	bound_lost += fit < acked;
	if (lost > bound_most)
		bound_most = lost;
}

void km_bound_figure(void)
{
	if (bound_cuts)
		t_figure("loss bound", "%u cuts, in %u something is lost, at most of %.3f D",
			 bound_cuts, bound_lost, bound_most);
}

/* What is there, in @exists and found[], must be the effect of a prefix. */
static int judge_found(struct eng *e, const struct km *m, unsigned at, struct km_rt *rt,
		       bool *exists)
{
	const struct km_conf *c = km_conf_of(e);
	unsigned lo, hi = 0, near = 0;
	int fit;

	if (judge_stores(e, m, at, rt, exists))
		return -1;
	while (hi < m->m_nop && m->m_op[hi].op_b <= at)
		hi++;
	lo = km_least_ops(m, at, c);
	fit = prefix_find(m, lo, hi, exists, &near);
	if (fit < 0)
		return no_prefix(e, m, lo, hi, near, exists);
	if (c->kc_slow)
		note_loss(m, at, (unsigned)fit, c);
	return 0;
}

int km_judge(struct eng *e, const struct km *m, unsigned at, uint64_t latest_ns, struct km_rt *rt,
	     struct km *next)
{
	bool exists[KM_STORES];
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	int rc;

	memset(rt, 0, sizeof(*rt));
	if ((e->e_rand & 7) == 0 && !may_be_absent(m, at) && judge_verify(e))
		return -1;
	km_opts(e, &o, &oo);
	eng_recovery_begin(e);
	latest_ns -= km_clock();
	rc = km_db_open(e, &o, &rt->rt_db);
	latest_ns += km_clock();
	eng_recovery_end(e);
	if (rc) {
		rt->rt_db = NULL;
		if (rc == -ENOENT && may_be_absent(m, at))
			return 0;
		return eng_fail(e, "kvdb_open: %d (%s)", rc, kvdb_error_detail()->text);
	}
	if (km_certain(m->m_dropped, at))
		return eng_fail(e, "a dropped database is back");
	km_clock_stop();
	rc = km_clock_follow(e, rt->rt_db, km_recorded(m, at), latest_ns);
	if (!rc)
		rc = judge_found(e, m, at, rt, exists);
	km_clock_go();
	if (rc)
		return rc;
	if (next)
		next_fill(m, at, exists, next);
	return km_ckpt_find(e, m, at, rt->rt_db, next);
}
