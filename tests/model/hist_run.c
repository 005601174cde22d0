/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Transactions of many threads on a database, recorded. See hist_run.h.
 *
 * A value is the name of its version: thread, transaction, number of the write.
 * Every write first reads its key in the same transaction, so it knows what it
 * replaces. A key that is also written plainly belongs to one thread, which
 * knows the last version itself.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hist_run.h"

#define OPS_MAX		(HR_STEPS * (HR_WIDE + 2))
#define TOKEN(thread, ver)	((uint64_t)(thread) << 48 | (ver))

struct slot {
	struct kvdb_txn *s_txn;
	uint32_t s_no, s_left, s_nop, s_nwrite;
	uint64_t s_begin;
	bool s_is_rdonly, s_is_stuck;	/* stuck: refused or given up, only abort is left */
	struct hist_op s_op[OPS_MAX];
};

struct worker {
	struct run *w_run;
	unsigned w_no;
	uint64_t w_rnd;
	struct hist w_h;		/* versions are tokens */
	struct slot w_slot[HR_OPEN];
	hist_ver w_plain[64];		/* newest version of the plain keys */
	struct hr_counts w_n;
};

struct run {
	const struct hr_conf *r_c;
	struct kvdb *r_db;
	struct kvdb_kvs *r_kvs[HR_STORES];
	struct worker r_w[HR_THREADS];
	uint32_t r_txns;		/* begun by all */
	bool r_is_over, r_is_failed;
	char *r_why;
	pthread_mutex_t r_lock;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t rnd(struct worker *w)
{
	uint64_t z = (w->w_rnd += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

__attribute__((format(printf, 2, 3)))
static void fail(struct run *r, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&r->r_lock);
	if (!r->r_is_failed) {
		va_start(ap, fmt);
		vsnprintf(r->r_why, 500, fmt, ap);
		va_end(ap);
	}
	__atomic_store_n(&r->r_is_failed, true, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&r->r_lock);
}

static void broken(struct worker *w, const char *what, int rc)
{
	fail(w->w_run, "thread %u, transaction %u: %s: %d (%s)", w->w_no, w->w_h.hi_n, what, rc,
	     kvdb_error_detail()->text);
}

/* ---- keys ---- */

/* Of each store: the keys of all, then those of each thread. */
static unsigned keys_of_store(const struct hr_conf *c)
{
	return c->hc_keys + c->hc_threads * c->hc_plain;
}

static struct kvdb_kvs *kvs_of(const struct run *r, uint32_t key)
{
	return r->r_kvs[key / keys_of_store(r->r_c)];
}

/* Neighbours in number are neighbours in order, so that a cursor meets many. */
static size_t key_make(const struct run *r, uint32_t key, char *buf)
{
	return (size_t)snprintf(buf, 40, "b%05u/%05u", r->r_c->hc_batch,
				key % keys_of_store(r->r_c));
}

static bool is_plain(const struct run *r, uint32_t key)
{
	return key % keys_of_store(r->r_c) >= r->r_c->hc_keys;
}

static uint32_t plain_key(const struct worker *w, unsigned i)
{
	const struct hr_conf *c = w->w_run->r_c;

	return i % HR_STORES * keys_of_store(c) + c->hc_keys + w->w_no * c->hc_plain +
	       i / HR_STORES % c->hc_plain;
}

static uint32_t key_pick(struct worker *w)
{
	const struct hr_conf *c = w->w_run->r_c;
	uint64_t x = rnd(w);
	uint32_t n = c->hc_keys;

	/* half of all accesses to a quarter of the keys */
	if (x & 1)
		n = n / 4 + 1;
	if ((x & 14) == 0 && c->hc_plain)
		return plain_key(w, (unsigned)(x >> 32));
	return (uint32_t)(x >> 8) % HR_STORES * keys_of_store(c) + (uint32_t)(x >> 32) % n;
}

/* A value is its token, sometimes with a tail that makes it large. */
static size_t value_make(struct worker *w, uint64_t token, uint8_t *buf)
{
	size_t len = rnd(w) % 4 ? 16 : 16 + rnd(w) % 600, i;

	memcpy(buf, &token, 8);
	for (i = 8; i < len; i++)
		buf[i] = (uint8_t)(token >> i % 6 * 8) ^ (uint8_t)i;
	return len;
}

static bool value_read(struct worker *w, const uint8_t *buf, size_t len, hist_ver *out)
{
	uint64_t token;
	size_t i;

	if (len < 16)
		return false;
	memcpy(&token, buf, 8);
	for (i = 8; i < len; i++)
		if (buf[i] != ((uint8_t)(token >> i % 6 * 8) ^ (uint8_t)i))
			return false;
	*out = token;
	(void)w;
	return true;
}

/* ---- recording ---- */

static void finish(struct worker *w, uint32_t no, const struct hist_op *op, uint32_t n,
		   uint64_t begin, enum hist_state state)
{
	hist_fill(&w->w_h, no, op, n, begin, state, now_ns());
}

/* What an aborted transaction read from outside was a snapshot all the same. */
static void finish_reads(struct worker *w, const struct slot *s)
{
	struct hist_op op[OPS_MAX];
	uint32_t n = 0, i;

	for (i = 0; i < s->s_nop; i++)
		if (!s->s_op[i].ho_is_write &&
		    (s->s_op[i].ho_ver & ~0xffull) != TOKEN(w->w_no, HIST_VER(s->s_no, 0)))
			op[n++] = s->s_op[i];
	finish(w, hist_reserve(&w->w_h), op, n, s->s_begin, HIST_COMMITTED);
}

static bool has_written(const struct worker *w, uint32_t key)
{
	unsigned i;
	uint32_t k;

	for (i = 0; i < HR_OPEN; i++)
		for (k = 0; w->w_slot[i].s_txn && k < w->w_slot[i].s_nop; k++)
			if (w->w_slot[i].s_op[k].ho_is_write && w->w_slot[i].s_op[k].ho_key == key)
				return true;
	return false;
}

/* ---- steps of a transaction ---- */

static void slot_begin(struct worker *w, struct slot *s)
{
	int rc;

	memset(s, 0, sizeof(*s));
	s->s_is_rdonly = rnd(w) % 5 == 0;
	s->s_left = 1 + (uint32_t)(rnd(w) % HR_STEPS);
	s->s_no = hist_reserve(&w->w_h);
	s->s_begin = now_ns();
	rc = kvdb_txn_begin(w->w_run->r_db, s->s_is_rdonly ? KVDB_TXN_RDONLY : 0, &s->s_txn);
	if (rc)
		broken(w, "kvdb_txn_begin", rc);
	__atomic_fetch_add(&w->w_run->r_txns, 1, __ATOMIC_RELAXED);
}

static bool step_read(struct worker *w, struct slot *s, uint32_t key)
{
	struct hist_op *op = &s->s_op[s->s_nop];
	uint8_t buf[1000];
	char name[40];
	size_t len = 0;
	int rc;

	rc = kvdb_txn_get(s->s_txn, kvs_of(w->w_run, key), name, key_make(w->w_run, key, name), buf,
			  sizeof(buf), &len);
	*op = (struct hist_op){ .ho_key = key };
	if (rc == -ESTALE) {
		s->s_is_stuck = true;
		return false;
	}
	if (rc && rc != -ENOENT) {
		broken(w, "kvdb_txn_get", rc);
		return false;
	}
	if (!rc && !value_read(w, buf, len, &op->ho_ver)) {
		fail(w->w_run, "key %u: %zu bytes that nobody wrote", key, len);
		return false;
	}
	s->s_nop++;
	w->w_n.hn_reads++;
	return true;
}

static void step_write(struct worker *w, struct slot *s, uint32_t key, hist_ver prev)
{
	hist_ver name_of;
	uint8_t buf[1000];
	char name[40];
	int rc;

	name_of = TOKEN(w->w_no, HIST_VER(s->s_no, s->s_nwrite + 1));
	rc = kvdb_txn_put(s->s_txn, kvs_of(w->w_run, key), name, key_make(w->w_run, key, name), buf,
			  value_make(w, name_of, buf));
	/* also a refused write has a number: no reader may ever see it */
	s->s_nwrite++;
	s->s_op[s->s_nop++] = (struct hist_op){ .ho_key = key, .ho_is_write = true,
						.ho_ver = name_of, .ho_prev = prev };
	w->w_n.hn_writes++;
	if (rc == -ECANCELED || rc == -ESTALE || rc == -EFBIG) {
		s->s_is_stuck = true;
		w->w_n.hn_conflicts += rc == -ECANCELED;
	} else if (rc) {
		broken(w, "kvdb_txn_put", rc);
	}
}

/*
 * Deletes a range and writes all of its keys again: others see the keys of before or those of
 * after, so that each version has a name.
 */
static void step_range(struct worker *w, struct slot *s, uint32_t key)
{
	struct run *r = w->w_run;
	uint32_t in = key % keys_of_store(r->r_c), n = r->r_c->hc_keys - in, first = s->s_nop, i;
	struct kvdb_kvs *kvs = kvs_of(r, key);
	char from[40], to[40];
	size_t flen, tlen, len;
	int rc;

	n = n < HR_RANGE ? n : HR_RANGE;
	for (i = 0; i < n; i++)
		if (!step_read(w, s, key + i))
			return;
	flen = key_make(r, key, from);
	tlen = key_make(r, key + n - 1, to);
	to[tlen++] = 0;
	rc = kvdb_txn_range_del(s->s_txn, kvs, from, flen, to, tlen);
	if (rc == -ECANCELED || rc == -ESTALE || rc == -EFBIG) {
		s->s_is_stuck = true;
		w->w_n.hn_conflicts += rc == -ECANCELED;
		return;
	}
	if (rc) {
		broken(w, "kvdb_txn_range_del", rc);
		return;
	}
	w->w_n.hn_ranges++;
	for (i = 0; i < n && !s->s_is_stuck; i++) {
		flen = key_make(r, key + i, from);
		rc = kvdb_txn_get(s->s_txn, kvs, from, flen, NULL, 0, &len);
		if (rc == -ESTALE)
			s->s_is_stuck = true;
		else if (rc != -ENOENT)
			broken(w, "a key of a range that the transaction deleted", rc);
		else
			step_write(w, s, key + i, s->s_op[first + i].ho_ver);
	}
}

/* Reads some neighbours at once, what is absent too. */
static void step_cursor(struct worker *w, struct slot *s, uint32_t key)
{
	struct run *r = w->w_run;
	uint32_t n = keys_of_store(r->r_c), in = key % n, base = key - in, at = 0, i;
	uint64_t x = rnd(w);
	bool reverse = x & 1;
	struct hist_op *op = &s->s_op[s->s_nop];
	struct kvdb_cursor *cur;
	const void *k, *v;
	size_t klen, vlen;
	char name[40], want[40];
	int rc;

	n = n - in < HR_WIDE ? n - in : HR_WIDE;
	for (i = 0; i < n; i++)
		op[i] = (struct hist_op){ .ho_key = base + in + i };
	rc = kvdb_txn_cursor_open(s->s_txn, r->r_kvs[key / keys_of_store(r->r_c)],
				  reverse ? KVDB_REVERSE : 0, name,
				  (size_t)snprintf(name, sizeof(name), "b%05u/", r->r_c->hc_batch),
				  &cur);
	if (rc) {
		s->s_is_stuck = rc == -ESTALE;
		if (rc != -ESTALE)
			broken(w, "kvdb_txn_cursor_open", rc);
		return;
	}
	rc = kvdb_cursor_seek(cur, name, key_make(r, reverse ? key + n - 1 : key, name));
	while (!rc && !(rc = kvdb_cursor_next(cur, &k, &klen, &v, &vlen))) {
		for (; at < n; at++) {
			i = reverse ? n - 1 - at : at;
			if (key_make(r, key + i, want) == klen && !memcmp(want, k, klen))
				break;
		}
		if (at++ >= n)
			break;
		if (!value_read(w, v, vlen, &op[i].ho_ver))
			fail(r, "key %u: cursor: %zu bytes that nobody wrote", key + i, vlen);
	}
	kvdb_cursor_close(cur);
	if (rc == -ESTALE) {
		/* it was too old or held too much: what it saw so far counts, not the rest */
		s->s_is_stuck = true;
		return;
	}
	if (rc && rc != -ENOENT)
		broken(w, "a transaction's cursor", rc);
	s->s_nop += n;
	w->w_n.hn_cursors++;
}

static void slot_end(struct worker *w, struct slot *s)
{
	bool aborts = s->s_is_stuck || rnd(w) % 20 == 0;
	uint32_t i;
	int rc = 0;

	if (aborts)
		kvdb_txn_abort(s->s_txn);
	else
		rc = kvdb_txn_commit(s->s_txn, rnd(w) % 2000 ? 0 : KVDB_TXN_DURABLE, NULL);
	s->s_txn = NULL;
	aborts |= rc == -ESTALE || rc == -EFBIG;
	if (rc && !aborts)
		broken(w, "kvdb_txn_commit", rc);
	finish(w, s->s_no, s->s_op, s->s_nop, s->s_begin,
	       aborts ? HIST_ABORTED : HIST_COMMITTED);
	if (aborts) {
		finish_reads(w, s);
		w->w_n.hn_aborted++;
		return;
	}
	w->w_n.hn_committed++;
	for (i = 0; i < s->s_nop; i++) {
		uint32_t in = s->s_op[i].ho_key % keys_of_store(w->w_run->r_c);

		if (s->s_op[i].ho_is_write && is_plain(w->w_run, s->s_op[i].ho_key))
			w->w_plain[(in - w->w_run->r_c->hc_keys) % w->w_run->r_c->hc_plain *
				   HR_STORES + s->s_op[i].ho_key / keys_of_store(w->w_run->r_c)] =
				s->s_op[i].ho_ver;
	}
}

static void slot_step(struct worker *w, struct slot *s)
{
	uint32_t key = key_pick(w);
	uint64_t x = rnd(w);

	if (!s->s_txn) {
		slot_begin(w, s);
		return;
	}
	if (!s->s_left || s->s_is_stuck) {
		slot_end(w, s);
		return;
	}
	s->s_left--;
	if (x % 8 == 0) {
		step_cursor(w, s, key);
		return;
	}
	if (x % 8 == 1 && !s->s_is_rdonly && !is_plain(w->w_run, key)) {
		step_range(w, s, key);
		return;
	}
	if (step_read(w, s, key) && !s->s_is_rdonly && x & 16)
		step_write(w, s, key, s->s_op[s->s_nop - 1].ho_ver);
}

/* A transaction of one write, or of one read, without the name. */
static void plain_step(struct worker *w)
{
	struct run *r = w->w_run;
	unsigned i = (unsigned)(rnd(w) % (HR_STORES * r->r_c->hc_plain));
	uint32_t key = plain_key(w, i), no;
	uint64_t begin = now_ns();
	struct hist_op op = { .ho_key = key };
	uint8_t buf[1000];
	char name[40];
	size_t len = 0;
	int rc;

	if (rnd(w) & 1) {
		op.ho_key = key = key_pick(w);
		rc = kvdb_get(kvs_of(r, key), name, key_make(r, key, name), buf, sizeof(buf), &len);
		if (rc && rc != -ENOENT)
			broken(w, "kvdb_get", rc);
		else if (!rc && !value_read(w, buf, len, &op.ho_ver))
			fail(r, "key %u: %zu bytes that nobody wrote", key, len);
		finish(w, hist_reserve(&w->w_h), &op, 1, begin, HIST_COMMITTED);
		return;
	}
	/* it would wait for this thread's own transaction */
	if (has_written(w, key))
		return;
	no = hist_reserve(&w->w_h);
	op.ho_is_write = true;
	op.ho_prev = w->w_plain[i];
	op.ho_ver = TOKEN(w->w_no, HIST_VER(no, 1));
	rc = kvdb_put(kvs_of(r, key), name, key_make(r, key, name), buf,
		      value_make(w, op.ho_ver, buf));
	if (rc)
		broken(w, "kvdb_put", rc);
	w->w_plain[i] = op.ho_ver;
	finish(w, no, &op, 1, begin, HIST_COMMITTED);
	w->w_n.hn_plain++;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct run *r = w->w_run;
	unsigned i;

	while (__atomic_load_n(&r->r_txns, __ATOMIC_RELAXED) < r->r_c->hc_txns &&
	       !__atomic_load_n(&r->r_is_failed, __ATOMIC_ACQUIRE)) {
		slot_step(w, &w->w_slot[rnd(w) % r->r_c->hc_open]);
		if (rnd(w) % 8 == 0 && r->r_c->hc_plain)
			plain_step(w);
		if (rnd(w) % 64 == 0)
			sched_yield();
	}
	for (i = 0; i < HR_OPEN; i++)
		if (w->w_slot[i].s_txn)
			slot_end(w, &w->w_slot[i]);
	return NULL;
}

static void *keeper_main(void *arg)
{
	struct run *r = arg;
	struct timespec ts = { .tv_nsec = 15000000 };
	unsigned i;

	for (i = 0; !__atomic_load_n(&r->r_is_over, __ATOMIC_ACQUIRE); i++) {
		int rc = kvdb_drain(r->r_db, i % 4 ? KVDB_WAIT_FLUSH :
						     KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);

		if (rc)
			fail(r, "kvdb_drain: %d (%s)", rc, kvdb_error_detail()->text);
		nanosleep(&ts, NULL);
	}
	return NULL;
}

/* ---- the whole ---- */

/* One reader at the end: what was committed last is what is there. */
static void last_look(struct run *r)
{
	struct worker *w = &r->r_w[0];
	uint32_t n = HR_STORES * keys_of_store(r->r_c), key;
	struct hist_op *op = calloc(n, sizeof(*op));
	struct slot *s = &w->w_slot[0];
	uint64_t begin = now_ns();

	memset(s, 0, sizeof(*s));
	if (!op || kvdb_txn_begin(r->r_db, KVDB_TXN_RDONLY, &s->s_txn))
		abort();
	for (key = 0; key < n && !r->r_is_failed; key++) {
		s->s_nop = 0;
		step_read(w, s, key);
		op[key] = s->s_op[0];
	}
	kvdb_txn_abort(s->s_txn);
	s->s_txn = NULL;
	finish(w, hist_reserve(&w->w_h), op, n, begin, HIST_COMMITTED);
	free(op);
}

/* One history with one numbering. */
static void gather(struct run *r, struct hist *out)
{
	uint32_t off[HR_THREADS + 1] = { 0 }, i, k;
	unsigned t;

	hist_init(out, HR_STORES * keys_of_store(r->r_c));
	for (t = 0; t < r->r_c->hc_threads; t++)
		off[t + 1] = off[t] + r->r_w[t].w_h.hi_n;
	for (t = 0; t < r->r_c->hc_threads; t++) {
		struct hist *h = &r->r_w[t].w_h;

		for (i = 0; i < h->hi_nop; i++) {
			hist_ver *v[2] = { &h->hi_op[i].ho_ver, &h->hi_op[i].ho_prev };

			for (k = 0; k < 2; k++) {
				unsigned from = (unsigned)(*v[k] >> 48) % HR_THREADS;

				if (*v[k])
					*v[k] = (*v[k] & 0xffffffffffffull) +
						HIST_VER(off[from], 0);
			}
		}
		for (i = 1; i <= h->hi_n; i++) {
			const struct hist_txn *x = &h->hi_txn[i];

			hist_fill(out, hist_reserve(out), h->hi_op + x->ht_first, x->ht_n,
				  x->ht_begin, (enum hist_state)x->ht_state, x->ht_end);
		}
		hist_fini(h);
	}
}

static int run_open(struct run *r)
{
	const struct hr_conf *c = r->r_c;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	char name[8];
	unsigned s;
	int rc;

	o.logs = c->hc_logs;
	o.commit = c->hc_commit;
	o.interval_ms = c->hc_interval_ms;
	o.cache_bytes = 64ull << 20;
	o.log_bytes = c->hc_log_bytes;
	rc = kvdb_open(c->hc_pool, &o, &r->r_db);
	for (s = 0; s < HR_STORES && !rc; s++) {
		snprintf(name, sizeof(name), "h%u", s);
		rc = kvdb_kvs_open(r->r_db, name, &r->r_kvs[s]);
		if (rc == -ENOENT)
			rc = kvdb_kvs_create(r->r_db, name, NULL);
		if (!rc)
			rc = kvdb_kvs_open(r->r_db, name, &r->r_kvs[s]);
	}
	if (rc)
		fail(r, "opening: %d (%s)", rc, kvdb_error_detail()->text);
	return rc;
}

int hr_run(const struct hr_conf *conf, struct hist *out, struct hr_counts *n, char why[500])
{
	struct run *r = calloc(1, sizeof(*r));
	pthread_t th[HR_THREADS], keeper;
	unsigned t;
	int rc;

	if (!r)
		abort();
	memset(out, 0, sizeof(*out));
	r->r_c = conf;
	r->r_why = why;
	pthread_mutex_init(&r->r_lock, NULL);
	if (run_open(r)) {
		free(r);
		return -1;
	}
	for (t = 0; t < conf->hc_threads; t++) {
		r->r_w[t] = (struct worker){ .w_run = r, .w_no = t,
					     .w_rnd = conf->hc_seed * 100 + t };
		hist_init(&r->r_w[t].w_h, 1);
		if (pthread_create(&th[t], NULL, worker_main, &r->r_w[t]))
			abort();
	}
	if (pthread_create(&keeper, NULL, keeper_main, r))
		abort();
	for (t = 0; t < conf->hc_threads; t++)
		pthread_join(th[t], NULL);
	__atomic_store_n(&r->r_is_over, true, __ATOMIC_RELEASE);
	pthread_join(keeper, NULL);
	last_look(r);
	for (t = 0; t < conf->hc_threads; t++) {
		n->hn_committed += r->r_w[t].w_n.hn_committed;
		n->hn_aborted += r->r_w[t].w_n.hn_aborted;
		n->hn_conflicts += r->r_w[t].w_n.hn_conflicts;
		n->hn_plain += r->r_w[t].w_n.hn_plain;
		n->hn_reads += r->r_w[t].w_n.hn_reads;
		n->hn_writes += r->r_w[t].w_n.hn_writes;
		n->hn_cursors += r->r_w[t].w_n.hn_cursors;
		n->hn_ranges += r->r_w[t].w_n.hn_ranges;
	}
	gather(r, out);
	rc = kvdb_close(r->r_db);
	if (rc)
		fail(r, "kvdb_close: %d (%s)", rc, kvdb_error_detail()->text);
	rc = r->r_is_failed ? -1 : 0;
	pthread_mutex_destroy(&r->r_lock);
	free(r);
	return rc;
}
