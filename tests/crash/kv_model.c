/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Random operations on a database, written into the history of the model; the
 * virtual clock that makes a run deterministic. See kv_model.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "db/cgroup.h"
#include "db/db.h"
#include "db/etime.h"
#include "open/open.h"
#include "harness.h"
#include "kv_model.h"
#include "log/flush.h"
#include "compact/merge.h"
#include "db/thread.h"
#include "run/run_near.h"
#include "meta/mdc.h"
#include "txn/txn.h"

#define USEC	1000ull
#define MSEC	1000000ull
#define SEC	1000000000ull
#define POLLS	20	/* background steps at once, at most */
/* a database counts milliseconds from its open: so much behind, never ahead */
#define LAG	(3 * MSEC)
#define WALL	(1700000000 * SEC)	/* when km_clock() began */

/* ---- clock ---- */

static uint64_t clock_ns, clock_rand, ahead_ns;
static unsigned clock_stall;
static bool clock_is_slow;
static bool clock_is_stopped, wall_goes;

static uint64_t clock_now(void *arg)
{
	(void)arg;
	/* time passes between any two looks */
	return clock_is_stopped ? clock_ns : (clock_ns += 100);
}

static void clock_sleep(void *arg, uint64_t t_ns)
{
	(void)arg;
	if (t_ns > clock_ns)
		clock_ns = t_ns;
}

static uint64_t clock_wall(void *arg)
{
	(void)arg;
	return WALL + (wall_goes ? clock_ns : 0);
}

static const struct kvdb_clock virtual_clock = {
	.now_ns = clock_now,
	.sleep_until_ns = clock_sleep,
	.wall_ns = clock_wall,
};

/*
 * Takes the place of the C library's: which log a write goes to follows SEED, not where the
 * scheduler has put the test.
 */
int sched_getcpu(void)
{
	return (int)(clock_ns / (2 * MSEC) % 64);
}

/*
 * Takes the place of the engine's: what a database is allowed follows from its options, not from
 * the machine, whose files took a third of the time of a state.
 */
void kv_cgroup_own(struct kv_cgroup *out)
{
	out->g_memory = out->g_cores = UINT64_MAX;
}

/* Device work takes time; now and then a flush takes longer than the bound. */
static void tick(void *arg, int kind, uint64_t bytes)
{
	uint64_t r = sim_rand(&clock_rand), slow = 1;

	(void)arg;
	if (clock_is_stopped)
		return;
	if (clock_is_slow)
		slow = clock_ns / (2000 * MSEC) % 2 ? 100 : 10;
	if (kind != 2) {
		clock_ns += slow * (10 * USEC + bytes / 2);
		return;
	}
	clock_ns += slow * (100 * USEC + r % (2 * MSEC));
	if (clock_stall && (r >> 32) % clock_stall == 0)
		clock_ns += slow * 150 * MSEC;
}

void km_clock_reset(struct eng *e, uint64_t seed)
{
	clock_ns = 1000 * MSEC;
	ahead_ns = 0;
	clock_rand = seed;
	clock_stall = km_conf_of(e)->kc_stall;
	clock_is_slow = km_conf_of(e)->kc_slow;
	wall_goes = km_conf_of(e)->kc_expires;
	e->e_sim.s_tick = tick;
}

uint64_t km_clock(void)
{
	return clock_ns + ahead_ns;
}

int km_clock_follow(struct eng *e, struct kvdb *db, uint64_t least_ns, uint64_t most_ns)
{
	uint64_t ns;

	if (!wall_goes)
		return 0;
	ns = kv_time_ms(db) * MSEC - WALL;
	ahead_ns = ns > clock_ns ? ns - clock_ns : 0;
	if (ns + LAG < least_ns || ns + LAG < clock_ns)
		return eng_fail(e, "engine time went back: %u ms, recorded %u, clock %u",
				(unsigned)(ns / MSEC), (unsigned)(least_ns / MSEC),
				(unsigned)(clock_ns / MSEC));
	if (ns > most_ns + LAG && ns > clock_ns + LAG)
		return eng_fail(e, "engine time ran ahead: %u ms, was %u, clock %u",
				(unsigned)(ns / MSEC), (unsigned)(most_ns / MSEC),
				(unsigned)(clock_ns / MSEC));
	return 0;
}

static void look_at_clock(struct eng *e, struct km *m)
{
	struct km_look *lk;

	if (!wall_goes)
		return;
	if (m->m_nlook < KM_LOOKS)
		m->m_nlook++;
	lk = &m->m_look[m->m_nlook - 1];
	*lk = (struct km_look){ sim_now(&e->e_sim), km_clock() };
}

uint64_t km_latest(const struct km *m, unsigned at)
{
	unsigned i = 0;

	while (i + 1 < m->m_nlook && m->m_look[i].lk_at <= at)
		i++;
	return m->m_nlook && m->m_look[i].lk_ns > m->m_born_ns ? m->m_look[i].lk_ns : m->m_born_ns;
}

uint64_t km_recorded(const struct km *m, unsigned at)
{
	uint64_t ns = 0;
	unsigned i;

	for (i = 0; i < m->m_nsync; i++)
		if (m->m_sync[i].sy_e <= at && m->m_sync[i].sy_ns > ns)
			ns = m->m_sync[i].sy_ns;
	return ns;
}

void km_clock_set(uint64_t ns)
{
	clock_ns = ns;
	ahead_ns = 0;
}

void km_clock_stop(void)
{
	clock_is_stopped = true;
}

void km_clock_go(void)
{
	clock_is_stopped = false;
}

/* ---- helpers ---- */

void km_opts(struct eng *e, struct kvdb_opts *o, struct mpool_open_opts *oo)
{
	const struct km_conf *c = km_conf_of(e);

	*oo = (struct mpool_open_opts)MPOOL_OPEN_OPTS_INIT;
	oo->io = "sync";
	oo->provider = &e->e_sim.s_prov;
	*o = (struct kvdb_opts)KVDB_OPTS_INIT;
	o->flags = KVDB_MANUAL | (c->kc_is_made ? KVDB_CREATE : 0);
	o->size_max = c->kc_size_max;
	o->interval_ms = c->kc_interval_ms;
	o->commit = c->kc_commit;
	o->logs = c->kc_logs;
	o->threads = 1;
	o->cache_bytes = 64u << 20;
	o->log_bytes = c->kc_log_bytes;
	o->segment_bytes = c->kc_segment_bytes;
	o->clock = &virtual_clock;
	o->pool = oo;
}

/* Keys of all lengths, some of the greatest, with long common prefixes. */
size_t km_key(unsigned key, uint8_t *buf)
{
	size_t len = (size_t)snprintf((char *)buf, 16, "%c-%03u", 'a' + (char)(key % 5), key);

	if (key % 13 == 0) {
		memset(buf + len, 'x', KVDB_KEY_MAX - len);
		return KVDB_KEY_MAX;
	}
	if (key % 7 == 0) {
		memset(buf + len, 'y', 90);
		return len + 90;
	}
	return len;
}

uint64_t km_hash(const void *val, size_t len)
{
	return XXH3_64bits_withSeed(val, len, len);
}

static unsigned rnd(struct km *m, unsigned n)
{
	return (unsigned)(sim_rand(&m->m_rand) % n);
}

static int broken(struct eng *e, const char *what, int rc)
{
	return eng_fail(e, "%s: %d (%s)", what, rc, kvdb_error_detail()->text);
}

void km_synced(struct eng *e, struct km *m, unsigned ops, uint64_t ns)
{
	if (m->m_nsync == KM_SYNCS)
		return;
	m->m_sync[m->m_nsync].sy_ops = ops;
	m->m_sync[m->m_nsync].sy_ns = ns;
	m->m_sync[m->m_nsync++].sy_e = sim_now(&e->e_sim);
}

static int store_pick(struct km *m, const struct km_conf *c, bool for_write)
{
	unsigned start = m->m_nstore ? rnd(m, m->m_nstore) : 0, i;

	for (i = 0; i < m->m_nstore; i++) {
		unsigned s = (start + i) % m->m_nstore;

		if (m->m_store[s].s_is_dead)
			continue;
		if (for_write && c->kc_has_idle && s == 0 && m->m_nop > 12)
			continue;
		return (int)s;
	}
	return -1;
}

/* ---- operations ---- */

unsigned km_store_ttl(const struct eng *e, unsigned n)
{
	return km_conf_of(e)->kc_expires && n % 2 ? 3 : 0;
}

void km_lives(const struct eng *e, struct km_op *op, unsigned ttl_s, uint64_t from_ns)
{
	if (!km_conf_of(e)->kc_expires || !ttl_s)
		return;
	op->op_val.v_dies_ns = from_ns + ttl_s * SEC - LAG;
	op->op_val.v_dead_ns = km_clock() + ttl_s * SEC + LAG;
}

static int put(struct eng *e, struct km *m, struct km_rt *rt, struct km_op *op,
	       const uint8_t *key, size_t klen, const void *val)
{
	unsigned s = op->op_store, ttl = km_store_ttl(e, s);
	const struct km_conf *c = km_conf_of(e);
	bool is_own = c->kc_expires ? rnd(m, 3) : !rnd(m, 8);
	uint64_t from = km_clock();
	int rc;

	if (is_own)	/* some would expire, much later */
		ttl = c->kc_expires ? rnd(m, 6) : 1000000;
	rc = is_own ? kvdb_put_ttl(rt->rt_kvs[s], key, klen, val, op->op_val.v_len, ttl) :
		      kvdb_put(rt->rt_kvs[s], key, klen, val, op->op_val.v_len);
	/* a put that failed may be there */
	km_lives(e, op, ttl, from);
	return rc;
}

/* 1 = no space: nothing changed */
static int do_write(struct eng *e, struct km *m, struct km_rt *rt, uint32_t vlen)
{
	static uint8_t val[KM_VALUE_MAX];
	const struct km_conf *c = km_conf_of(e);
	int s = store_pick(m, c, true), rc;
	uint8_t key[KVDB_KEY_MAX];
	unsigned k = rnd(m, c->kc_keys);
	size_t klen = km_key(k, key);
	struct km_op *op = &m->m_op[m->m_nop];

	if (s < 0 || m->m_nop == KM_HIST)
		return 0;
	op->op_store = (uint16_t)s;
	op->op_key = (uint16_t)k;
	op->op_is_many = false;
	op->op_b = sim_now(&e->e_sim);
	op->op_val = (struct km_val){ .v_len = vlen };
	op->op_more = false;
	if (vlen == KM_ABSENT) {
		rc = kvdb_del(rt->rt_kvs[s], key, klen);
	} else {
		sim_garbage(val, vlen, sim_rand(&m->m_rand));
		if (c->kc_moves && k % 2)	/* one that shrinks */
			memset(val + vlen / 3, (int)k, vlen - vlen / 3);
		op->op_val.v_hash = km_hash(val, vlen);
		rc = put(e, m, rt, op, key, klen, val);
	}
	if (rc == -ENOSPC && vlen != KM_ABSENT)
		return 1;
	if (km_txn_owns(rt, (unsigned)s, k))
		return rc == -ECANCELED ? 0 : broken(e, "a write of an owned key", rc);
	if (rc)
		return broken(e, vlen == KM_ABSENT ? "kvdb_del" : "kvdb_put", rc);
	op->op_e = sim_now(&e->e_sim);
	op->op_ack_ns = km_clock();
	m->m_now[s][k] = op->op_val;
	m->m_nop++;
	return 0;
}

static int order(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
	int c = memcmp(a, b, alen < blen ? alen : blen);

	return c ? c : alen < blen ? -1 : alen > blen;
}

void km_many_keys(uint8_t *keys, const uint8_t *from, size_t flen, const uint8_t *to, size_t tlen)
{
	uint8_t key[KVDB_KEY_MAX];
	unsigned k;

	memset(keys, 0, KM_KEYS / 8);
	for (k = 0; k < KM_KEYS; k++) {
		size_t klen = km_key(k, key);
		bool is_in = to ? order(key, klen, from, flen) >= 0 &&
				  order(key, klen, to, tlen) < 0 :
				  klen >= flen && !memcmp(key, from, flen);

		keys[k / 8] |= (uint8_t)(is_in << (k % 8));
	}
}

/* Mostly a few keys; short prefixes take a fifth of all. */
static int do_many(struct eng *e, struct km *m, struct km_rt *rt)
{
	const struct km_conf *c = km_conf_of(e);
	int s = store_pick(m, c, true), rc;
	uint8_t from[KVDB_KEY_MAX], to[KVDB_KEY_MAX];
	struct km_op *op = &m->m_op[m->m_nop];
	size_t flen = km_key(rnd(m, c->kc_keys), from), tlen = 0;
	unsigned k;

	if (s < 0 || m->m_nop == KM_HIST)
		return 0;
	op->op_store = (uint16_t)s;
	op->op_is_many = true;
	op->op_more = false;
	op->op_b = sim_now(&e->e_sim);
	op->op_val = (struct km_val){ .v_len = KM_ABSENT };
	if (rnd(m, 3)) {
		flen = rnd(m, 6) ? KM_PFX : 1 + rnd(m, 3);
		km_many_keys(op->op_keys, from, flen, NULL, 0);
		rc = kvdb_prefix_del(rt->rt_kvs[s], from, flen);
	} else {
		tlen = km_key(rnd(m, c->kc_keys), to);
		km_many_keys(op->op_keys, from, flen, to, tlen);
		rc = kvdb_range_del(rt->rt_kvs[s], from, flen, to, tlen);
	}
	if (rc)
		return broken(e, tlen ? "kvdb_range_del" : "kvdb_prefix_del", rc);
	/* an empty range writes nothing, so nothing is acknowledged that could be lost */
	if (tlen && order(from, flen, to, tlen) >= 0) {
		op->op_is_many = false;	/* the next write takes its place */
		return 0;
	}
	op->op_e = sim_now(&e->e_sim);
	op->op_ack_ns = km_clock();
	for (k = 0; k < KM_KEYS; k++)
		if (km_changes(op, k))
			m->m_now[s][k] = op->op_val;
	m->m_nop++;
	return 0;
}

static int do_get(struct eng *e, struct km *m, struct km_rt *rt)
{
	static uint8_t val[KM_VALUE_MAX];
	int s = store_pick(m, km_conf_of(e), false), rc;
	uint8_t key[KVDB_KEY_MAX];
	unsigned k = rnd(m, km_conf_of(e)->kc_keys);
	struct km_val got = { .v_len = KM_ABSENT };
	uint64_t from = km_clock();
	size_t vlen = 0;

	if (s < 0)
		return 0;
	rc = kvdb_get(rt->rt_kvs[s], key, km_key(k, key), val, sizeof(val), &vlen);
	if (rc && rc != -ENOENT)
		return broken(e, "kvdb_get", rc);
	if (!rc)
		got = km_val_of(val, vlen);
	if (!km_is_same(&got, &m->m_now[s][k], from, km_clock()))
		return eng_wrong(e, "live: store %d key %u is wrong: %d, %zu bytes", s, k, rc,
				 vlen);
	return 0;
}

static int do_polls(struct eng *e, struct km_rt *rt, unsigned n)
{
	int rc = 1;

	for (; n && rc > 0; n--)
		rc = kvdb_poll(rt->rt_db);
	return rc < 0 ? broken(e, "kvdb_poll", rc) : 0;
}

/* Two merges of a store that run at once, as threads would: what begins later ends first. */
static int do_merges(struct eng *e, struct km *m, struct km_rt *rt)
{
	int s = store_pick(m, km_conf_of(e), false), rc = 1, n = 0;
	struct kv_job j[2];

	if (s < 0 || kv_fault(rt->rt_db))
		return 0;
	while (n < 2 && kv_merge_begin(rt->rt_db, rt->rt_kvs[s], &j[n]))
		n++;
	while (n--) {
		rc = rc > 0 ? kv_job_run(&j[n]) : rc;
		kv_merge_end(&j[n], rc);
	}
	return rc < 0 && rc != -ENOSPC && rc != -ECANCELED ? broken(e, "merge", rc) : 0;
}

/* Asked for, and looked at until it is done. */
static int sync_started(struct kvdb *db)
{
	uint64_t ticket;
	int rc = kvdb_sync_start(db, &ticket), did;

	if (rc)
		return rc;
	while (!(rc = kvdb_durable_within(db, ticket, 0))) {
		did = kvdb_poll(db);
		if (did < 0)
			return did;
	}
	return rc > 0 ? 0 : rc;
}

static int do_sync(struct eng *e, struct km *m, struct km_rt *rt)
{
	unsigned ops = m->m_nop;
	int rc = ops % 2 ? kvdb_sync(rt->rt_db) : sync_started(rt->rt_db);

	if (rc)
		return broken(e, "kvdb_sync", rc);
	km_synced(e, m, ops, 0);
	return 0;
}

static int do_drain(struct eng *e, struct km *m, struct km_rt *rt, unsigned flags)
{
	unsigned ops = m->m_nop;
	int rc = kvdb_drain(rt->rt_db, flags);

	if (rc)
		return broken(e, "kvdb_drain", rc);
	/* what flushed the last one recorded the time, then or later */
	km_synced(e, m, ops, ops ? m->m_op[ops - 1].op_ack_ns : 0);
	return 0;
}

/* Stores of one history may differ in where their values live, and how when they moved. */
static struct km_face store_face(const struct eng *e, const char *name, unsigned n)
{
	struct km_face f = { .f_ttl_s = km_store_ttl(e, n) };

	snprintf(f.f_name, sizeof(f.f_name), "%s", name);
	if (km_conf_of(e)->kc_policies)
		f.f_policy = (n + 1) % (KVDB_POLICY_CAPACITY_ONLY + 1);
	if (km_conf_of(e)->kc_moves)
		f.f_compress = n % (KVDB_COMPRESS_ZSTD + 1);
	return f;
}

int km_store_create(struct eng *e, struct km_rt *rt, const char *name, unsigned n)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	struct km_face f = store_face(e, name, n);

	o.pfx_len = KM_PFX;
	o.policy = f.f_policy;
	o.compress = f.f_compress;
	o.ttl_s = f.f_ttl_s;
	return kvdb_kvs_create(rt->rt_db, name, &o);
}

static int do_create(struct eng *e, struct km *m, struct km_rt *rt)
{
	struct km_store *s = &m->m_store[m->m_nstore];
	unsigned k, slot = m->m_nstore % 4, at = m->m_nchange;
	struct km_face f;
	int rc;

	if (m->m_nstore == KM_STORES || at == KM_FACES)
		return 0;
	/* names come back, stores do not */
	memset(s, 0, sizeof(*s));
	snprintf(s->s_name, sizeof(s->s_name), "store%u", slot);
	for (k = 0; k < m->m_nstore; k++)
		if (!m->m_store[k].s_is_dead && !strcmp(m->m_store[k].s_name, s->s_name))
			return 0;
	s->s_exists = (struct km_time){ sim_now(&e->e_sim), KM_NEVER };
	s->s_dropped = km_never;
	for (k = 0; k < KM_KEYS; k++) {
		m->m_now[m->m_nstore][k].v_len = KM_ABSENT;
		m->m_base[m->m_nstore][k].v_len = KM_ABSENT;
	}
	for (unsigned i = 0; i < KM_TXNS; i++)
		memcpy(rt->rt_txn[i].t_view[m->m_nstore], m->m_now[m->m_nstore],
		       sizeof(m->m_now[0]));
	f = store_face(e, s->s_name, m->m_nstore);
	km_face_add(m, m->m_nstore, s->s_exists, &f);
	m->m_nstore++;
	rc = km_store_create(e, rt, s->s_name, m->m_nstore - 1);
	if (rc) {
		s->s_is_dead = true;
		return broken(e, "kvdb_kvs_create", rc);
	}
	m->m_change[at].ch_when.e = s->s_exists.e = sim_now(&e->e_sim);
	km_synced(e, m, m->m_nop, 0);
	rc = kvdb_kvs_open(rt->rt_db, s->s_name, &rt->rt_kvs[m->m_nstore - 1]);
	return rc ? broken(e, "kvdb_kvs_open", rc) : 0;
}

/* A step with a store that is there. */
static int do_store(struct eng *e, struct km *m, struct km_rt *rt,
		    int (*fn)(struct eng *e, struct km *m, struct km_rt *rt, unsigned s))
{
	int s = store_pick(m, km_conf_of(e), true);

	return s < 0 ? 0 : fn(e, m, rt, (unsigned)s);
}

static int do_drop(struct eng *e, struct km *m, struct km_rt *rt)
{
	int s = store_pick(m, km_conf_of(e), true), rc;

	if (s < 0)
		return 0;
	km_txns_abort(rt);
	m->m_store[s].s_dropped.b = sim_now(&e->e_sim);
	m->m_store[s].s_is_dead = true;
	rt->rt_kvs[s] = NULL;
	rc = kvdb_kvs_drop(rt->rt_db, m->m_store[s].s_name);
	if (rc)
		return broken(e, "kvdb_kvs_drop", rc);
	m->m_store[s].s_dropped.e = sim_now(&e->e_sim);
	km_synced(e, m, m->m_nop, 0);
	return 0;
}

static uint32_t small_length(struct eng *e, struct km *m)
{
	if (km_conf_of(e)->kc_moves && rnd(m, 8))
		return 200 + rnd(m, 3600);
	switch (rnd(m, 6)) {
	/* two of a few bytes may be the same, then when it expires is not known */
	case 0:
		return km_conf_of(e)->kc_expires ? 7 : 0;
	case 1:
		return km_conf_of(e)->kc_expires ? 8 : 1;
	case 2:
		return 8 + rnd(m, 120);
	default:
		return 100 + rnd(m, 1500);
	}
}

static uint32_t big_length(struct eng *e, struct km *m)
{
	if (km_conf_of(e)->kc_owns)
		return 17000 + rnd(m, 20000);
	return rnd(m, 4) ? 4096 + rnd(m, 9000) : 30000 + rnd(m, 72400);
}

/* most just above the limit: a state takes as long as all of it takes to be copied */
static uint32_t large_length(struct km *m)
{
	return (1u << 20) + rnd(m, rnd(m, 6) ? 64u << 10 : 2u << 20);
}

static int do_fill(struct eng *e, struct km *m, struct km_rt *rt)
{
	unsigned k;
	int rc = 0;

	for (k = 0; k < 30 && !rc; k++)
		rc = do_write(e, m, rt, 60000 + rnd(m, 80000));
	if (rc < 0)
		return -1;
	/* a full database still deletes */
	for (k = 0; k < 30; k++)
		if (do_write(e, m, rt, KM_ABSENT))
			return -1;
	return do_drain(e, m, rt, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);
}

#define TAKEN_MAX	2048u

static unsigned taken_epochs, lone_descs; /* so many behind another one in their segment */

/* E7: no block is left for any thread; a few more values are logged, and epochs end. */
static int do_taken(struct eng *e, struct km *m, struct km_rt *rt)
{
	static struct mpool_obj *taken[TAKEN_MAX];
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY,
				   .capacity = 128u << 10, .tag = 7, .flags = MPOOL_ALLOC_SPARE };
	struct kvdb *db = rt->rt_db;
	unsigned n = 0, k;
	int rc = 0;

	for (; req.capacity >= 4096; req.capacity /= 2)
		while (n < TAKEN_MAX && !mpool_alloc(db->d_mp, &req, 1, &taken[n]))
			n++;
	for (k = 0; k < 5 && !rc; k++) {
		uint32_t end = db->d_flusher->fl_descs.de_end;

		rc = do_write(e, m, rt, big_length(e, m));
		if (rc)
			break;
		rc = do_sync(e, m, rt);
		taken_epochs++;
		lone_descs += end && db->d_flusher->fl_descs.de_end > end;
	}
	while (n)
		mpool_obj_close(taken[--n]);
	return rc < 0 ? rc : 0;
}

int km_desc_figure(void)
{
	if (!taken_epochs)
		return 0;
	t_figure("lone descriptors", "%u share a segment", lone_descs);
	if (lone_descs)
		return 0;
	printf("# FAILED: no descriptor of an epoch of lone values shared a segment\n");
	return 1;
}

static unsigned replay_opens, replay_flushes;

int km_replay_figure(void)
{
	if (!replay_opens)
		return 0;
	t_figure("replay in parts", "%u opens, %u flushes in them", replay_opens, replay_flushes);
	if (replay_flushes >= replay_opens / 4)
		return 0;
	printf("# FAILED: fewer than one open of four replayed more than it had memory for\n");
	return 1;
}

static int open_small(uint64_t bytes, const struct kvdb_opts *o, struct kvdb **out)
{
	struct kvdb *db;
	uint64_t all;
	int rc;

	db = calloc(1, sizeof(*db));
	rc = kv_threads_ready();
	if (!rc)
		rc = kv_db_attach(db, KM_POOL, o, false);
	if (!rc) {
		all = db->d_budget.b_mt_bytes;
		db->d_budget.b_mt_bytes = bytes;
		rc = kv_db_start(db);
		db->d_budget.b_mt_bytes = all;
	}
	if (rc) {
		kv_db_detach(db);
		if (db->d_mp)
			mpool_close(db->d_mp);
		free(db);
		return rc;
	}
	replay_opens++;
	replay_flushes += (unsigned)atomic_load(&db->d_count.flushes);
	*out = db;
	return 0;
}

int km_db_open(struct eng *e, const struct kvdb_opts *o, struct kvdb **out)
{
	const struct km_conf *c = km_conf_of(e);
	int rc = c->kc_replay_bytes ? open_small(c->kc_replay_bytes, o, out) :
				      kvdb_open(KM_POOL, o, out);

	if (!rc && c->kc_record_max)
		atomic_store(&(*out)->d_txns->tx_record_max, c->kc_record_max);
	return rc;
}

int km_open(struct eng *e, struct km *m, struct km_rt *rt)
{
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	unsigned i;
	int rc;

	memset(rt, 0, sizeof(*rt));
	km_opts(e, &o, &oo);
	look_at_clock(e, m);
	rc = km_db_open(e, &o, &rt->rt_db);
	if (rc)
		return broken(e, "kvdb_open", rc);
	if (km_clock_follow(e, rt->rt_db, km_recorded(m, KM_END), km_clock()))
		return -1;
	if (km_conf_of(e)->kc_leaf_keys)
		rt->rt_db->d_budget.b_leaf_keys = km_conf_of(e)->kc_leaf_keys;
	if (km_conf_of(e)->kc_no_filters) {
		rt->rt_db->d_budget.b_near_bytes = 0;
		kv_near_trim(rt->rt_db);
	}
	for (i = 0; i < m->m_nstore; i++) {
		if (m->m_store[i].s_is_dead)
			continue;
		rc = kvdb_kvs_open(rt->rt_db, m->m_store[i].s_name, &rt->rt_kvs[i]);
		if (rc)
			return broken(e, "kvdb_kvs_open", rc);
	}
	return 0;
}

int km_close(struct eng *e, struct km *m, struct km_rt *rt)
{
	unsigned ops = m->m_nop;
	uint64_t ns = km_clock();
	struct kvdb_stats st;
	int rc = kvdb_stats(rt->rt_db, &st);

	if (!rc) {
		m->m_moves += st.relocations;
		m->m_splits += st.splits;
	}
	km_txns_abort(rt);
	rc = kvdb_close(rt->rt_db);

	memset(rt, 0, sizeof(*rt));
	if (rc)
		return broken(e, "kvdb_close", rc);
	km_synced(e, m, ops, ns);
	look_at_clock(e, m);
	return 0;
}

static void extent(void *arg, const struct mpool_extent *x)
{
	struct eng *e = arg;

	if (!x->id)
		sim_meta_add(&e->e_sim, x->slot, x->off, x->len);
}

int km_pool_create(struct eng *e)
{
	const struct km_conf *c = km_conf_of(e);
	struct mpool_dev_spec dev[2] = {
		{ .path = "capacity", .mclass = MPOOL_CAPACITY, .size = c->kc_bytes[0] },
		{ .path = "staging", .mclass = MPOOL_STAGING, .size = c->kc_bytes[1] },
	};
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	struct mpool_open_opts oo = MPOOL_OPEN_OPTS_INIT;
	int rc;

	o.name = "sim";
	o.devs = dev;
	o.ndevs = c->kc_devs;
	o.provider = &e->e_sim.s_prov;
	oo.provider = o.provider;
	oo.io = "sync";
	rc = mpool_create(KM_POOL, &o);
	if (!rc)
		rc = mpool_map(KM_POOL, &oo, extent, e);
	return rc ? eng_fail(e, "mpool_create: %d (%s)", rc, mpool_error_detail()->text) : 0;
}

int km_create(struct eng *e, struct km *m)
{
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	int rc;

	km_opts(e, &o, &oo);
	m->m_created.b = sim_now(&e->e_sim);
	if (km_conf_of(e)->kc_is_made) {
		struct kvdb *db;

		rc = kvdb_open(KM_POOL, &o, &db);
		if (!rc)
			rc = kvdb_close(db);
	} else {
		rc = kvdb_create(KM_POOL, &o);
	}
	m->m_created.e = sim_now(&e->e_sim);
	return rc ? broken(e, "kvdb_create", rc) : 0;
}

int km_drop(struct eng *e, struct km *m)
{
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	int rc;

	km_opts(e, &o, &oo);
	m->m_dropped.b = sim_now(&e->e_sim);
	rc = kvdb_drop(KM_POOL, &o);
	m->m_dropped.e = sim_now(&e->e_sim);
	return rc ? broken(e, "kvdb_drop", rc) : 0;
}

static unsigned step_choose(struct km *m, const struct km_conf *c)
{
	unsigned sum = 0, k, w;

	for (k = 0; k < KM_STEPS; k++)
		sum += c->kc_weight[k];
	w = rnd(m, sum);
	for (k = 0; w >= c->kc_weight[k]; k++)
		w -= c->kc_weight[k];
	return k;
}

int km_beside(struct eng *e, struct km *m, struct km_rt *rt)
{
	switch (rnd(m, 10)) {
	case 0:
		return do_drain(e, m, rt, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);
	case 1:
		return do_drain(e, m, rt, KVDB_WAIT_FLUSH);
	case 2:
		return do_write(e, m, rt, KM_ABSENT);
	default:
		return do_write(e, m, rt, small_length(e, m)) < 0 ? -1 : 0;
	}
}

int km_step(struct eng *e, struct km *m, struct km_rt *rt)
{
	unsigned step = step_choose(m, km_conf_of(e));
	int rc;

	look_at_clock(e, m);
	clock_ns += rnd(m, 2000) * USEC;
	switch (step) {
	case KM_PUT:
	case KM_BIG:
		rc = do_write(e, m, rt, step == KM_PUT ? small_length(e, m) : big_length(e, m));
		return rc < 0 ? -1 : 0;
	case KM_LARGE:
		return do_write(e, m, rt, large_length(m)) < 0 ? -1 : 0;
	case KM_DEL:
		return do_write(e, m, rt, KM_ABSENT);
	case KM_MANY:
		return do_many(e, m, rt);
	case KM_GET:
		return do_get(e, m, rt);
	case KM_SYNC:
		return do_sync(e, m, rt);
	case KM_POLL:
		return do_polls(e, rt, 1 + rnd(m, 4));
	case KM_IDLE:
		clock_ns += (1 + rnd(m, 60)) * MSEC;
		return do_polls(e, rt, POLLS);
	case KM_STOP:
		clock_ns += rnd(m, 2 * km_interval_ms(km_conf_of(e))) * MSEC;
		return 0;
	case KM_AGE:
		clock_ns += rnd(m, 3000) * MSEC;
		return 0;
	case KM_FLUSH:
		return do_drain(e, m, rt, KVDB_WAIT_FLUSH);
	case KM_COMPACT:
		return do_drain(e, m, rt, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);
	case KM_MERGES:
		return do_merges(e, m, rt);
	case KM_CREATE:
		return do_create(e, m, rt);
	case KM_DROP:
		return do_drop(e, m, rt);
	case KM_FILL:
		return do_fill(e, m, rt);
	case KM_TAKEN:
		return do_taken(e, m, rt);
	case KM_TXN:
		return km_txn_step(e, m, rt);
	case KM_BATCH:
		return km_batch(e, m, rt);
	case KM_FLUSH_ONE:
		return km_flush_one(e, m, rt);
	case KM_CKPT:
		return km_ckpt_make(e, m, rt);
	case KM_UNCKPT:
		return km_ckpt_drop(e, m, rt);
	case KM_BULK:
		return km_bulk(e, m, rt);
	case KM_BACKUP:
		return km_back_up(e, m, rt);
	case KM_RENAME:
		return do_store(e, m, rt, km_rename);
	case KM_SET:
		return do_store(e, m, rt, km_set);
	default:
		if (km_close(e, m, rt))
			return -1;
		return km_open(e, m, rt);
	}
}
