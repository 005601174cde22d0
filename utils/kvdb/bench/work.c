/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The driver: threads that do operations and check every answer.
 *
 * One clock reading per operation: the end of one is the beginning of the next,
 * so latencies include the driver's own work (about 0.1 us) and nothing is
 * hidden between them. No allocation and no formatting in the loops. Every read
 * is verified: length, key hash, version, and a sample of the body or all of it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench.h"
#include "progress.h"

/* In the form of every message: reason (way out) [identifier]. */
static void fail_text(struct bench *b, const void *key, unsigned klen, const char *what, int err)
{
	const struct mpool_error *e = kvdb_error_detail();
	bool has_cure = e && e->cure[0] && !strstr(e->text, e->cure);

	if (!e || !e->text[0])
		snprintf(b->error, sizeof(b->error), "key %.*s: %s: %s", (int)klen,
			 (const char *)key, what, strerror(-err));
	else
		snprintf(b->error, sizeof(b->error), "key %.*s: %s: %s%s%s%s%s%s%s", (int)klen,
			 (const char *)key, what, e->text, has_cure ? " (" : "",
			 has_cure ? e->cure : "", has_cure ? ")" : "", e->id[0] ? " [" : "",
			 e->id, e->id[0] ? "]" : "");
}

void bench_fail(struct bench *b, const void *key, unsigned klen, const char *what, int err)
{
	pthread_mutex_lock(&b->lock);
	if (!b->error[0]) {
		if (err)
			fail_text(b, key, klen, what, err);
		else
			snprintf(b->error, sizeof(b->error), "key %.*s: %s", (int)klen,
				 (const char *)key, what);
	}
	pthread_mutex_unlock(&b->lock);
	__atomic_store_n(&b->stop, 1, __ATOMIC_RELAXED);
}

/* A version this process or an earlier one can have written. */
static bool version_plausible(struct bench *b, uint64_t v)
{
	uint64_t thread = (v >> 40) & 0xffff, n = v & 0xffffffffffull;

	if (v == 0)
		return true;
	if (!thread || !n || !(v >> 56))
		return false;
	if (v >> 56 != b->run)
		return thread <= BENCH_THREADS;
	return thread <= b->threads && b->thr &&
	       n <= __atomic_load_n(&b->thr[thread - 1].version, __ATOMIC_ACQUIRE);
}

const char *bench_value_bad(struct bench *b, const unsigned char *buf, size_t len, uint64_t hash)
{
	uint64_t version;

	if (len != b->value_size)
		return "value has the wrong length";
	if (!bench_head_good(buf, len, hash))
		return "value belongs to another key";
	version = bench_value_version(buf, len);
	if (!version_plausible(b, version))
		return "value has a version that was never written";
	if (!bench_body_good(buf, len, hash, version, b->is_full))
		return "value differs from what was written";
	return NULL;
}

static int do_put(struct bench_thread *t, uint64_t record, bool is_update)
{
	struct bench *b = t->b;
	uint64_t hash = bench_fnv64(record), version = 0;
	char key[BENCH_KEY_MAX];
	unsigned klen = bench_key(key, hash);
	int rc;

	if (is_update) {
		version = BENCH_VERSION(b->run, t->id, t->version + 1);
		/* published first: a reader may see the value before put returns */
		__atomic_store_n(&t->version, t->version + 1, __ATOMIC_RELEASE);
	}
	bench_value_make(t->val, b->value_size, hash, version);
	rc = kvdb_put(b->kvs, key, klen, t->val, b->value_size);
	if (rc) {
		bench_fail(b, key, klen, "put", rc);
		return rc;
	}
	t->write_bytes += klen + b->value_size;
	return 0;
}

static int do_get(struct bench_thread *t, uint64_t record)
{
	struct bench *b = t->b;
	uint64_t hash = bench_fnv64(record);
	char key[BENCH_KEY_MAX];
	unsigned klen = bench_key(key, hash);
	const char *why;
	size_t vlen;
	int rc;

	rc = kvdb_get(b->kvs, key, klen, t->buf, b->value_size, &vlen);
	if (rc) {
		bench_fail(b, key, klen, "get", rc);
		return rc;
	}
	why = bench_value_bad(b, t->buf, vlen, hash);
	if (why) {
		bench_fail(b, key, klen, why, 0);
		return -EBADMSG;
	}
	t->read_bytes += klen + vlen;
	return 0;
}

static int scan_record(struct bench_thread *t, const void *key, size_t klen, const void *val,
		       size_t vlen)
{
	uint64_t hash = bench_key_parse(key, (unsigned)klen);
	const char *why = hash == UINT64_MAX ? "scan returned a key that was never written" :
					       bench_value_bad(t->b, val, vlen, hash);

	if (why) {
		bench_fail(t->b, key, klen < 64 ? (unsigned)klen : 64, why, 0);
		return -EBADMSG;
	}
	t->read_bytes += klen + vlen;
	t->scanned++;
	return 0;
}

static int do_scan(struct bench_thread *t, uint64_t record)
{
	struct bench *b = t->b;
	uint64_t want = 1 + bench_rand_below(&t->rng, BENCH_SCAN), n;
	char first[BENCH_KEY_MAX];
	unsigned flen = bench_key(first, bench_fnv64(record));
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	struct kvdb_cursor *cur;
	const void *key, *val;
	size_t klen, vlen;
	int rc;

	o.limit = want;
	rc = kvdb_cursor_open_opts(b->kvs, &o, &cur);
	if (rc) {
		bench_fail(b, first, flen, "cursor open", rc);
		return rc;
	}
	rc = kvdb_cursor_seek(cur, first, flen);
	for (n = 0; !rc && n < want; n++) {
		rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen);
		if (rc == -ENOENT && n)
			break;
		if (rc)
			break;
		if (!n && (klen != flen || memcmp(key, first, flen))) {
			bench_fail(b, first, flen, "scan did not begin with this key", 0);
			rc = -EBADMSG;
			goto out;
		}
		rc = scan_record(t, key, klen, val, vlen);
		if (rc)
			goto out;
	}
	if (rc == -ENOENT && n)
		rc = 0;
	if (rc)
		bench_fail(b, first, flen, "scan", rc);
out:
	kvdb_cursor_close(cur);
	return rc;
}

static int do_op(struct bench_thread *t, enum bench_op op)
{
	uint64_t record;
	int rc;

	switch (op) {
	case OP_READ:
		return do_get(t, bench_choose(&t->chooser, &t->rng));
	case OP_UPDATE:
		return do_put(t, bench_choose(&t->chooser, &t->rng), true);
	case OP_INSERT:
		record = bench_seq_take(&t->b->seq);
		rc = do_put(t, record, false);
		if (!rc)
			bench_seq_ack(&t->b->seq, record);
		return rc;
	case OP_SCAN:
		return do_scan(t, bench_choose(&t->chooser, &t->rng));
	default:
		record = bench_choose(&t->chooser, &t->rng);
		rc = do_get(t, record);
		return rc ? rc : do_put(t, record, true);
	}
}

static void run_mix(struct bench_thread *t)
{
	struct bench *b = t->b;
	uint64_t last, now, i;
	uint8_t pick[100];
	unsigned op, n = 0, k;

	for (op = 0; op < BENCH_OPS; op++)
		for (k = 0; k < b->mix->pct[op]; k++)
			pick[n++] = (uint8_t)op;
	if (b->inflight && b->mix->pct[OP_READ] + b->mix->pct[OP_UPDATE] == 100) {
		bench_run_async(t, pick);
		return;
	}
	last = bench_ticks();
	for (i = 0; i < t->ops; i++) {
		op = pick[bench_rand_below(&t->rng, 100)];
		if (__atomic_load_n(&b->stop, __ATOMIC_RELAXED) || do_op(t, (enum bench_op)op))
			return;
		now = bench_ticks();
		bench_hist_add(&t->hist[op], now - last);
		last = now;
		__atomic_store_n(&t->done, i + 1, __ATOMIC_RELAXED);
	}
}

static bool is_there(struct bench_thread *t, uint64_t record)
{
	char key[BENCH_KEY_MAX];
	unsigned klen = bench_key(key, bench_fnv64(record));
	size_t vlen;

	return !kvdb_get(t->b->kvs, key, klen, NULL, 0, &vlen);
}

/* Thread t of T writes the records t, t + T, t + 2T ... */
static void run_load(struct bench_thread *t)
{
	struct bench *b = t->b;
	uint64_t last = bench_ticks(), now, i, record = t->id;

	for (i = 0; i < t->ops; i++, record += b->threads) {
		if (__atomic_load_n(&b->stop, __ATOMIC_RELAXED))
			return;
		if (b->is_missing && is_there(t, record)) {
			t->skipped++;
			last = bench_ticks();
		} else {
			if (do_put(t, record, false))
				return;
			if (b->journal)
				bench_journal_note(b->journal, t->id, record);
			now = bench_ticks();
			bench_hist_add(&t->hist[OP_INSERT], now - last);
			last = now;
		}
		__atomic_store_n(&t->done, i + 1, __ATOMIC_RELAXED);
	}
}

static void *thread_main(void *arg)
{
	struct bench_thread *t = arg;

	/* touched here, so that page faults are not measured */
	memset(t->val, 1, t->b->value_size);
	memset(t->buf, 1, t->b->value_size);
	pthread_barrier_wait(&t->b->gate); /* ready */
	pthread_barrier_wait(&t->b->gate); /* the meter was read */
	if (t->b->mix->is_load)
		run_load(t);
	else
		run_mix(t);
	return NULL;
}

static void phase_threads_init(struct bench *b, const struct bench_mix *mix, enum bench_dist dist)
{
	uint64_t have = bench_seq_limit(&b->seq), total = mix->is_load ? b->records : b->ops;
	struct bench_chooser c;
	unsigned i;

	memset(&c, 0, sizeof(c));
	if (!mix->is_load)
		bench_chooser_init(&c, dist, have, b->ops * mix->pct[OP_INSERT] * 2 / 100, &b->seq);
	for (i = 0; i < b->threads; i++) {
		struct bench_thread *t = &b->thr[i];

		t->done = t->skipped = t->scanned = t->write_bytes = t->read_bytes = 0;
		t->ops = total / b->threads + (i < total % b->threads);
		t->chooser = c;
		bench_rng_seed(&t->rng, b->seed + i * 7919u + b->nphases * 104729u);
		memset(t->hist, 0, sizeof(t->hist));
	}
}

static uint64_t phase_done(const struct bench *b)
{
	uint64_t n = 0;
	unsigned i;

	for (i = 0; i < b->threads; i++)
		n += __atomic_load_n(&b->thr[i].done, __ATOMIC_RELAXED);
	return n;
}

/* Wait for all threads; the progress line lives on a terminal only. */
static void phase_join(struct bench *b, const char *name)
{
	struct progress p;
	unsigned i;

	progress_begin(&p, b->ui, name, b->mix->is_load ? b->records : b->ops, false);
	for (i = 0; i < b->threads; i++) {
		struct timespec ts;

		do {
			clock_gettime(CLOCK_REALTIME, &ts);
			ts.tv_nsec += 250000000;
			if (ts.tv_nsec >= 1000000000) {
				ts.tv_nsec -= 1000000000;
				ts.tv_sec++;
			}
			progress_update(&p, phase_done(b));
		} while (pthread_timedjoin_np(b->thr[i].tid, NULL, &ts) == ETIMEDOUT);
	}
	progress_end(&p, phase_done(b));
}

static void phase_merge(struct bench *b, struct bench_phase *p)
{
	unsigned i, op;

	for (i = 0; i < b->threads; i++) {
		const struct bench_thread *t = &b->thr[i];

		for (op = 0; op < BENCH_OPS; op++)
			bench_hist_merge(&p->hist[op], &t->hist[op]);
		p->ops += t->done - t->skipped;
		p->skipped += t->skipped;
		p->scanned += t->scanned;
		p->write_bytes += t->write_bytes;
		p->read_bytes += t->read_bytes;
	}
}

/* Everything deferred is done and durable before a phase counts as drained. */
static int phase_drain(struct bench *b)
{
	int rc = kvdb_drain(b->db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);

	if (!rc)
		rc = kvdb_sync(b->db);
	return rc ? db_fail(b->ui, b->path ? b->path : b->made, rc) : EXIT_DONE;
}

static uint64_t live_bytes(const struct bench *b)
{
	uint64_t n = bench_seq_limit(&b->seq), total = 0, i;
	char key[BENCH_KEY_MAX];

	/* the mean key length of a sample: names differ by a digit or two */
	for (i = 0; i < 10000 && i < n; i++)
		total += bench_key(key, bench_fnv64(i));
	return n * b->value_size + (i ? total * n / i : 0);
}

static int start_threads(struct bench *b, unsigned *started)
{
	for (*started = 0; *started < b->threads; (*started)++) {
		struct bench_thread *t = &b->thr[*started];
		int rc = pthread_create(&t->tid, NULL, thread_main, t);

		/* those that wait at the gate cannot be released: the process ends */
		if (rc)
			return ui_error(b->ui, EXIT_FAILED, NULL, "fewer --threads",
					"thread %u cannot be started: %s", *started, strerror(rc));
	}
	return EXIT_DONE;
}

int bench_run(struct bench *b, const struct bench_mix *mix)
{
	struct bench_phase *p = &b->phase[b->nphases];
	unsigned started, i;
	int rc;

	memset(p, 0, sizeof(*p));
	p->mix = b->mix = mix;
	p->dist = b->dist >= 0 ? (enum bench_dist)b->dist : mix->dist;
	phase_threads_init(b, mix, p->dist);
	pthread_barrier_init(&b->gate, NULL, b->threads + 1);
	rc = start_threads(b, &started);
	if (rc)
		exit(rc);
	bench_peak_reset();
	pthread_barrier_wait(&b->gate);
	kvdb_stats(b->db, &p->before);
	bench_meter_read(&p->begin);
	pthread_barrier_wait(&b->gate);
	phase_join(b, mix->name);
	bench_meter_read(&p->ack);
	pthread_barrier_destroy(&b->gate);
	if (b->error[0])
		return ui_error(b->ui, EXIT_FAILED, mix->name, NULL, "%s", b->error);
	if (__atomic_load_n(&b->stop, __ATOMIC_RELAXED))
		return ui_error(b->ui, EXIT_FAILED, mix->name, NULL, "interrupted");
	rc = phase_drain(b);
	if (rc)
		return rc;
	kvdb_stats(b->db, &p->after);
	bench_meter_read(&p->end);
	p->peak_rss = bench_peak_rss();
	p->ns_per_tick = (double)(p->end.ns - p->begin.ns) /
			 (double)(p->end.ticks - p->begin.ticks);
	phase_merge(b, p);
	if (mix->is_load)
		bench_seq_init(&b->seq, b->records);
	p->live_bytes = live_bytes(b);
	kvdb_info(b->db, &b->info);
	for (i = 0; i < MPOOL_MCLASSES; i++)
		p->used[i] = b->info.pool.cls[i].used;
	b->nphases++;
	return EXIT_DONE;
}
