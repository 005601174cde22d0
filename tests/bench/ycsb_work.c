/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The threads of the comparison: they do operations and check every answer.
 *
 * One clock reading per operation: the end of one is the beginning of the next,
 * so a latency includes the driver's own work and nothing is hidden between
 * them. A value is checked where the engine has it: all of its bytes, its key,
 * and that its version was current during the call.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench_value.h"
#include "ycsb.h"

void ycsb_key_make(struct ycsb_key *k, uint64_t record)
{
	k->hash = bench_fnv64(record);
	k->len = bench_key(k->text, k->hash);
}

/* Was version @n current during the read, which could not see one before @oldest? */
static void version_check(const struct ycsb_thread *t, const struct ycsb_key *k, uint64_t record,
			  uint32_t n, uint32_t oldest)
{
	const char *why = NULL;

	if (n < oldest)
		why = "an older version than was acknowledged";
	else if (n > version_newest(&t->y->versions[record]))
		why = "a version that was never written";
	if (why)
		die("key %.*s: %s (version %u, oldest %u)", (int)k->len, k->text, why, n, oldest);
}

/* Checks all but the version, which it returns. */
static uint32_t content_check(struct ycsb_thread *t, const struct ycsb_key *k, uint64_t record,
			      const void *val, size_t vlen)
{
	uint64_t stamp = bench_value_version(val, vlen);
	uint32_t n = (uint32_t)stamp & (YCSB_WRITES_MAX - 1);
	const char *why = NULL;

	if (vlen != t->y->value_size)
		why = "wrong length";
	else if (!bench_head_good(val, vlen, k->hash) || stamp >> 24 != record)
		why = "the value of another key";
	else if (!bench_body_good(val, vlen, k->hash, stamp, true))
		why = "bytes that were never written";
	if (why)
		die("key %.*s: %s (version %u)", (int)k->len, k->text, why, n);
	t->read_bytes += k->len + vlen;
	t->verified++;
	return n;
}

void ycsb_value_check(struct ycsb_thread *t, const struct ycsb_key *k, uint64_t record,
		      const void *val, size_t vlen, uint32_t oldest)
{
	version_check(t, k, record, content_check(t, k, record, val, vlen), oldest);
}

void ycsb_write_begin(struct ycsb_thread *t, const struct ycsb_key *k, uint64_t record,
		      bool is_update, unsigned char *val)
{
	uint32_t n = is_update ? version_begin(&t->y->versions[record]) : 0;

	if (n >= YCSB_WRITES_MAX)
		die("key %.*s: too many writes", (int)k->len, k->text);
	bench_value_make(val, t->y->value_size, k->hash, YCSB_STAMP(record, n));
}

void ycsb_write_end(struct ycsb_thread *t, const struct ycsb_key *k, uint64_t record,
		    bool is_update)
{
	if (is_update)
		version_end(&t->y->versions[record]);
	t->write_bytes += k->len + t->y->value_size;
}

static void do_put(struct ycsb_thread *t, uint64_t record, bool is_update)
{
	struct ycsb *y = t->y;
	struct ycsb_key k;

	__builtin_prefetch(&y->versions[record], 1);
	ycsb_key_make(&k, record);
	ycsb_write_begin(t, &k, record, is_update, t->val);
	y->e->put(t->engine, k.text, k.len, t->val, y->value_size);
	ycsb_write_end(t, &k, record, is_update);
}

/* The next @n records of a load. */
static void do_batch(struct ycsb_thread *t, uint64_t record, unsigned n)
{
	struct ycsb *y = t->y;
	struct engine_op op[ENGINE_WRITES];
	struct ycsb_key k[ENGINE_WRITES];
	unsigned i = 0;

	do {
		unsigned char *val = t->val + i * y->value_size;

		ycsb_key_make(&k[i], record + (uint64_t)i * y->o.threads);
		ycsb_write_begin(t, &k[i], record + (uint64_t)i * y->o.threads, false, val);
		op[i] = (struct engine_op){ .key = k[i].text, .klen = k[i].len, .val = val,
					    .vlen = y->value_size, .is_put = true };
	} while (++i < n);
	y->e->write(t->engine, op, n);
	for (i = 0; i < n; i++)
		ycsb_write_end(t, &k[i], record + (uint64_t)i * y->o.threads, false);
}

static bool do_find(struct ycsb_thread *t, uint64_t record)
{
	struct ycsb *y = t->y;
	union version_cell *c = &y->versions[record];
	struct engine_view v;
	uint32_t oldest;
	struct ycsb_key k;

	__builtin_prefetch(c);
	ycsb_key_make(&k, record);
	oldest = version_floor(c);
	if (!y->e->get(t->engine, k.text, k.len, &v))
		return false;
	ycsb_value_check(t, &k, record, v.val, v.vlen, oldest);
	y->e->unget(t->engine, &v);
	return true;
}

static void do_get(struct ycsb_thread *t, uint64_t record)
{
	if (!do_find(t, record))
		die("record %llu is lost", (unsigned long long)record);
}

struct scan {
	struct ycsb_thread *t;
	struct ycsb_key last;
	uint64_t last_record;
	uint32_t last_version;
	bool is_first, is_still;
};

/*
 * The version of the record shown last. With updates beside it a scan shows what was current
 * when it began, which is not recorded.
 */
static void last_check(const struct scan *s)
{
	union version_cell *c = &s->t->y->versions[s->last_record];

	version_check(s->t, &s->last, s->last_record, s->last_version,
		      s->is_still ? version_floor(c) : 0);
}

static bool scan_record(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct scan *s = arg;
	struct ycsb *y = s->t->y;
	uint64_t record = bench_value_version(val, vlen) >> 24;
	struct ycsb_key k = { .len = (unsigned)klen, .hash = bench_key_parse(key, (unsigned)klen) };
	size_t n = klen < s->last.len ? klen : s->last.len;
	int order;

	if (k.hash == UINT64_MAX || record >= y->nversions || bench_fnv64(record) != k.hash)
		die("a scan returned a key that was never written");
	/* only its value tells which record it is: its note would be waited for here */
	__builtin_prefetch(&y->versions[record]);
	memcpy(k.text, key, klen);
	order = memcmp(k.text, s->last.text, n);
	if (s->is_first && (order || klen != s->last.len))
		die("a scan did not begin with key %.*s", (int)s->last.len, s->last.text);
	if (!s->is_first && (order < 0 || (!order && klen <= s->last.len)))
		die("a scan is out of order at key %.*s", (int)klen, k.text);
	if (!s->is_first)
		last_check(s);
	s->last_version = content_check(s->t, &k, record, val, vlen);
	s->last_record = record;
	s->last = k;
	s->is_first = false;
	return true;
}

static void do_scan(struct ycsb_thread *t, uint64_t record)
{
	const uint8_t *pct = t->y->mix->pct;
	struct scan s = { .t = t, .is_first = true,
			  .is_still = !pct[OP_UPDATE] && !pct[OP_RMW] };
	uint64_t want = 1 + bench_rand_below(&t->rng, BENCH_SCAN);
	struct ycsb_key first;

	ycsb_key_make(&first, record);
	s.last = first;
	t->y->e->scan(t->engine, first.text, first.len, want, scan_record, &s);
	if (s.is_first)
		die("a scan from key %.*s found nothing", (int)first.len, first.text);
	last_check(&s);
}

struct step {
	enum bench_op op;
	uint64_t record;	/* of an insert: only taken when it begins */
};

/* Chosen one operation ahead, so that the driver's note of the record is near when it is needed. */
static struct step step_choose(struct ycsb_thread *t, const uint8_t pick[100])
{
	struct step s = { .op = (enum bench_op)pick[bench_rand_below(&t->rng, 100)] };

	if (s.op == OP_INSERT)
		return s;
	s.record = bench_choose(&t->chooser, &t->rng);
	__builtin_prefetch(&t->y->versions[s.record], 1);
	return s;
}

static void do_op(struct ycsb_thread *t, const struct step *s)
{
	uint64_t record = s->record;

	switch (s->op) {
	case OP_READ:
		do_get(t, record);
		return;
	case OP_UPDATE:
		do_put(t, record, true);
		return;
	case OP_INSERT:
		record = bench_seq_take(&t->y->seq);
		do_put(t, record, false);
		bench_seq_ack(&t->y->seq, record);
		return;
	case OP_SCAN:
		do_scan(t, record);
		return;
	default:
		do_get(t, record);
		do_put(t, record, true);
	}
}

bool ycsb_is_stopped(const struct ycsb *y)
{
	return __atomic_load_n(&y->stop, __ATOMIC_RELAXED);
}

void ycsb_mix_pick(const struct ycsb *y, uint8_t pick[100])
{
	unsigned n = 0;

	for (unsigned op = 0; op < BENCH_OPS; op++)
		for (unsigned k = 0; k < y->mix->pct[op]; k++)
			pick[n++] = (uint8_t)op;
}

static void run_mix(struct ycsb_thread *t)
{
	uint8_t pick[100];
	uint64_t last, now;
	struct step s, next;

	ycsb_mix_pick(t->y, pick);
	next = step_choose(t, pick);
	last = bench_ticks();
	for (; t->done < t->ops && !ycsb_is_stopped(t->y); t->done++) {
		s = next;
		next = step_choose(t, pick);
		do_op(t, &s);
		now = bench_ticks();
		bench_hist_add(&t->hist[s.op], now - last);
		last = now;
	}
}

/* Thread t of T has the records t, t + T, t + 2T ... */
static void run_load(struct ycsb_thread *t)
{
	uint64_t last = bench_ticks(), now, record = t->id, left;
	unsigned n = 1;

	for (; t->done < t->ops; t->done += n, record += (uint64_t)n * t->y->o.threads) {
		left = t->ops - t->done;
		if (t->y->batch) {
			n = left < t->y->batch ? (unsigned)left : t->y->batch;
			do_batch(t, record, n);
		} else {
			do_put(t, record, false);
		}
		now = bench_ticks();
		bench_hist_add(&t->hist[OP_INSERT], now - last);
		last = now;
	}
}

static void run_warm(struct ycsb_thread *t)
{
	uint64_t record = t->id;

	for (; t->done < t->ops; t->done++, record += t->y->o.threads)
		do_get(t, record);
}

/* After a crash: a thread's records were acknowledged in their order. */
static void run_find(struct ycsb_thread *t)
{
	uint64_t record = t->id;

	t->missed = UINT64_MAX;
	for (; t->done < t->ops; t->done++, record += t->y->o.threads) {
		if (!do_find(t, record)) {
			if (t->missed == UINT64_MAX)
				t->missed = record;
		} else if (t->missed == UINT64_MAX) {
			t->found++;
		} else {
			die("record %llu is there, %llu before it is lost",
			    (unsigned long long)record, (unsigned long long)t->missed);
		}
	}
}

static void *thread_main(void *arg)
{
	static void (*const run[])(struct ycsb_thread *) = {
		[PASS_LOAD] = run_load, [PASS_WARM] = run_warm,
		[PASS_MIX] = run_mix, [PASS_FIND] = run_find,
	};
	struct ycsb_thread *t = arg;
	struct ycsb *y = t->y;

	t->engine = y->e->thread_begin();
	memset(t->val, 1, y->value_size);
	pthread_barrier_wait(&y->gate); /* ready */
	pthread_barrier_wait(&y->gate); /* the meter was read */
	if (y->o.in_flight && (y->pass == PASS_LOAD || y->pass == PASS_MIX))
		ycsb_async_run(t);
	else
		run[y->pass](t);
	pthread_barrier_wait(&y->gate); /* the last one has ended */
	y->e->thread_end(t->engine);
	return NULL;
}

static void threads_init(struct ycsb *y)
{
	enum bench_dist dist = y->dist >= 0 ? (enum bench_dist)y->dist : y->mix->dist;
	uint64_t have = bench_seq_limit(&y->seq), total;
	struct bench_chooser c = { 0 };

	total = y->pass == PASS_LOAD ? y->records : y->pass == PASS_MIX ? y->ops : have;
	if (y->pass == PASS_MIX)
		bench_chooser_init(&c, dist, have, y->ops * y->mix->pct[OP_INSERT] * 2 / 100,
				   &y->seq);
	for (unsigned i = 0; i < y->o.threads; i++) {
		struct ycsb_thread *t = &y->thr[i];

		t->done = t->write_bytes = t->read_bytes = t->verified = t->found = 0;
		t->ops = total / y->o.threads + (i < total % y->o.threads);
		t->chooser = c;
		bench_rng_seed(&t->rng, y->seed + i * 7919u);
		memset(t->hist, 0, sizeof(t->hist));
	}
}

/* Processor time of the whole machine, and what a hypervisor took of it. */
static uint64_t machine_ns(void)
{
	unsigned long long v[8] = { 0 };
	FILE *f = fopen("/proc/stat", "re");
	int n = 0;

	if (f) {
		n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2],
			   &v[3], &v[4], &v[5], &v[6], &v[7]);
		fclose(f);
	}
	if (n < 8)
		return 0;
	/* without idle (3) and waiting for I/O (4) */
	return (v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) *
	       (1000000000ull / (unsigned long long)sysconf(_SC_CLK_TCK));
}

void ycsb_edge_read(struct ycsb_edge *e)
{
	e->machine_ns = machine_ns();
	bench_meter_read(&e->m);
}

/* Keeps the loss bound of an engine that does not do so itself, and the time limit. */
struct keeper {
	struct ycsb *y;
	pthread_t tid;
	bool is_over; /* atomic */
};

static void *keeper_main(void *arg)
{
	struct keeper *k = arg;
	struct ycsb *y = k->y;
	uint64_t begun = bench_now_ns(), due = begun, now;

	while (!__atomic_load_n(&k->is_over, __ATOMIC_ACQUIRE)) {
		struct timespec nap = { .tv_nsec = 2000000 };

		nanosleep(&nap, NULL);
		now = bench_now_ns();
		if (y->pass == PASS_MIX && y->seconds && now - begun > y->seconds * 1000000000ull)
			__atomic_store_n(&y->stop, 1, __ATOMIC_RELAXED);
		if (now - due < y->o.interval_ms * 1000000ull)
			continue;
		due = now;
		if (y->e->sync && !y->o.is_sync)
			y->e->sync();
	}
	return NULL;
}

void ycsb_pass(struct ycsb *y, enum ycsb_pass pass, struct ycsb_edge *begin, struct ycsb_edge *ack)
{
	struct keeper k = { .y = y };

	y->pass = pass;
	threads_init(y);
	pthread_barrier_init(&y->gate, NULL, y->o.threads + 1);
	for (unsigned i = 0; i < y->o.threads; i++)
		if (pthread_create(&y->thr[i].tid, NULL, thread_main, &y->thr[i]))
			die("thread %u cannot be started", i);
	pthread_barrier_wait(&y->gate);
	if (begin)
		ycsb_edge_read(begin);
	if (pthread_create(&k.tid, NULL, keeper_main, &k))
		die("no thread for the loss bound");
	pthread_barrier_wait(&y->gate);
	pthread_barrier_wait(&y->gate);
	if (ack)
		ycsb_edge_read(ack);
	if (pass == PASS_LOAD && y->is_kill)
		raise(SIGKILL);
	__atomic_store_n(&k.is_over, true, __ATOMIC_RELEASE);
	pthread_join(k.tid, NULL);
	for (unsigned i = 0; i < y->o.threads; i++)
		pthread_join(y->thr[i].tid, NULL);
	pthread_barrier_destroy(&y->gate);
	if (pass == PASS_LOAD)
		bench_seq_init(&y->seq, y->records);
}
