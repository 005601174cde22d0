/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Proof after a crash: kvdb bench --check FILE DB.
 *
 * The journal says which puts were acknowledged, in which order per thread and
 * when. The database after recovery must hold a prefix of that history:
 *  1. every value found is right, byte for byte;
 *  2. per thread: after the first lost record none is found;
 *  3. over all threads: no record that is found was begun after the
 *     acknowledgement of one that is lost. A put begins after the previous
 *     acknowledgement of its thread was noted, so that time stands for its begin;
 *  4. the lost acknowledgements span at most the loss bound;
 *  5. nothing is there that was not put: at most one unacknowledged record per
 *     thread, the one in flight.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "progress.h"
#include "size.h"

struct check {
	struct bench *b;
	struct bench_journal j;
	uint8_t *found[BENCH_THREADS]; /* per lane, per entry */
	uint64_t total;                /* acknowledged */
	uint64_t have, lost, in_flight, keys;
	uint64_t first_lost_ns, last_lost_ns, last_ack_ns, first_ack_ns;
	uint64_t bad_order, bad_history; /* violations of 2 and 3 */
	uint64_t begin_ns, checked_ns;
	unsigned workers;
	const char *verdict;           /* NULL: proven */
};

static bool is_stopped(struct bench *b)
{
	return __atomic_load_n(&b->stop, __ATOMIC_RELAXED);
}

struct worker {
	struct check *c;
	unsigned id;
	pthread_t tid;
	uint64_t done; /* atomic */
};

/* 1 found and right, 0 not found, negative: bench_fail() was called */
static int probe(struct check *c, uint64_t record, unsigned char *buf)
{
	struct bench *b = c->b;
	uint64_t hash = bench_fnv64(record);
	char key[BENCH_KEY_MAX];
	unsigned klen = bench_key(key, hash);
	const char *why;
	size_t vlen;
	int rc = kvdb_get(b->kvs, key, klen, buf, b->value_size, &vlen);

	if (rc == -ENOENT)
		return 0;
	if (rc) {
		bench_fail(b, key, klen, "get", rc);
		return rc;
	}
	why = bench_value_bad(b, buf, vlen, hash);
	if (why) {
		bench_fail(b, key, klen, why, 0);
		return -EBADMSG;
	}
	return 1;
}

/* Each worker takes every workers-th entry of every lane. */
static void *worker_main(void *arg)
{
	struct worker *w = arg;
	struct check *c = w->c;
	unsigned char *buf = malloc(c->b->value_size + 64);
	unsigned lane;
	uint64_t i;
	int rc;

	if (!buf) {
		bench_fail(c->b, "-", 1, "no memory", 0);
		return NULL;
	}
	for (lane = 0; lane < c->j.head->threads; lane++) {
		const struct bench_jlane *l = bench_jlane_of(&c->j, lane);

		for (i = w->id; i < l->count; i += c->workers) {
			if (is_stopped(c->b))
				goto out;
			rc = probe(c, l->entry[i].record, buf);
			if (rc < 0)
				goto out;
			c->found[lane][i] = (uint8_t)rc;
			__atomic_store_n(&w->done, w->done + 1, __ATOMIC_RELAXED);
		}
	}
out:
	free(buf);
	return NULL;
}

static int check_probe_all(struct check *c)
{
	struct worker *w = calloc(c->workers, sizeof(*w));
	struct progress p;
	unsigned i, n, k;
	uint64_t done = 0;

	if (!w)
		return ui_fail(c->b->ui, "check", -ENOMEM, NULL);
	progress_begin(&p, c->b->ui, "check", c->total, false);
	for (n = 0; n < c->workers; n++) {
		w[n].c = c;
		w[n].id = n;
		if (pthread_create(&w[n].tid, NULL, worker_main, &w[n])) {
			bench_fail(c->b, "-", 1, "a thread cannot be started", 0);
			break;
		}
	}
	for (i = 0; i < n; i++) {
		struct timespec ts;

		do {
			for (done = 0, k = 0; k < n; k++)
				done += __atomic_load_n(&w[k].done, __ATOMIC_RELAXED);
			progress_update(&p, done);
			clock_gettime(CLOCK_REALTIME, &ts);
			ts.tv_sec++;
		} while (pthread_timedjoin_np(w[i].tid, NULL, &ts) == ETIMEDOUT);
	}
	for (done = 0, k = 0; k < n; k++)
		done += w[k].done;
	progress_end(&p, done);
	free(w);
	return EXIT_DONE;
}

/* The record that each thread had begun when the process ended. */
static void check_in_flight(struct check *c)
{
	unsigned char *buf = malloc(c->b->value_size + 64);
	const struct bench_jhead *h = c->j.head;
	unsigned lane;

	if (!buf) {
		bench_fail(c->b, "-", 1, "no memory", 0);
		return;
	}
	for (lane = 0; lane < h->threads && !h->is_missing; lane++) {
		uint64_t next = lane + bench_jlane_of(&c->j, lane)->count * h->threads;

		if (next < h->records && probe(c, next, buf) > 0)
			c->in_flight++;
	}
	free(buf);
}

/* Everything in the store, to find what was never put there. */
static int check_count_keys(struct check *c)
{
	struct kvdb_cursor *cur;
	const void *key, *val;
	size_t klen, vlen;
	int rc = kvdb_cursor_open(c->b->kvs, KVDB_KEYS_ONLY, NULL, 0, &cur);

	if (rc)
		return db_fail(c->b->ui, c->b->path, rc);
	while (!is_stopped(c->b) && !(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen)))
		c->keys++;
	kvdb_cursor_close(cur);
	return !rc || rc == -ENOENT ? EXIT_DONE : db_fail(c->b->ui, c->b->path, rc);
}

static void judge_lane(struct check *c, unsigned lane)
{
	const struct bench_jlane *l = bench_jlane_of(&c->j, lane);
	bool is_lost = false;
	uint64_t i, t;

	for (i = 0; i < l->count; i++) {
		t = l->entry[i].ack_ns;
		if (t > c->last_ack_ns)
			c->last_ack_ns = t;
		if (t < c->first_ack_ns)
			c->first_ack_ns = t;
		if (c->found[lane][i]) {
			c->have++;
			c->bad_order += is_lost;
			continue;
		}
		is_lost = true;
		c->lost++;
		if (t < c->first_lost_ns)
			c->first_lost_ns = t;
		if (t > c->last_lost_ns)
			c->last_lost_ns = t;
	}
}

/* Rule 3, once the earliest lost acknowledgement is known. */
static void judge_history(struct check *c)
{
	unsigned lane;
	uint64_t i;

	for (lane = 0; lane < c->j.head->threads; lane++) {
		const struct bench_jlane *l = bench_jlane_of(&c->j, lane);

		for (i = 1; i < l->count; i++)
			if (c->found[lane][i] && l->entry[i - 1].ack_ns > c->first_lost_ns)
				c->bad_history++;
	}
}

static uint64_t loss_span(const struct check *c)
{
	return c->lost ? c->last_lost_ns - c->first_lost_ns : 0;
}

static void judge(struct check *c)
{
	const struct bench_jhead *h = c->j.head;
	unsigned lane;

	c->first_lost_ns = UINT64_MAX;
	c->first_ack_ns = UINT64_MAX;
	for (lane = 0; lane < h->threads; lane++)
		judge_lane(c, lane);
	judge_history(c);
	if (c->bad_order)
		c->verdict = "a thread's later record was found although an earlier one is lost";
	else if (c->bad_history)
		c->verdict = "a record was found that was begun after a lost one was acknowledged";
	else if (h->interval_ms != KVDB_INTERVAL_NONE &&
		 loss_span(c) > (uint64_t)h->interval_ms * 1000000u)
		c->verdict = "the lost acknowledgements span more than the loss bound";
	else if (h->was_empty && c->keys > c->have + c->in_flight)
		c->verdict = "records are there that were never put";
	else if (h->was_empty && c->keys < c->have + c->in_flight)
		c->verdict = "a cursor does not return every record that get finds";
}

/* ---- report ---------------------------------------------------------------- */

static void check_json(struct check *c)
{
	struct json *j = &c->b->ui->js;
	const struct kvdb_recovery *r = &c->b->recovery;

	ui_doc_begin(c->b->ui, 1, 0);
	json_str(j, "db", c->b->path);
	json_obj(j, "check");
	json_u64(j, "acknowledged", c->total);
	json_u64(j, "found", c->have);
	json_u64(j, "lost", c->lost);
	json_u64(j, "in_flight_found", c->in_flight);
	json_u64(j, "keys", c->keys);
	json_u64(j, "loss_span_ns", loss_span(c));
	json_u64(j, "loss_before_end_ns", c->lost ? c->last_ack_ns - c->first_lost_ns : 0);
	if (c->j.head->interval_ms == KVDB_INTERVAL_NONE)
		json_null(j, "interval_ms");
	else
		json_u64(j, "interval_ms", c->j.head->interval_ms);
	json_u64(j, "checked_ns", c->checked_ns);
	json_bool(j, "is_proven", !c->verdict);
	json_str(j, "reason", c->verdict);
	json_end(j);
	json_obj(j, "recovery");
	json_bool(j, "was_clean", r->was_clean);
	json_u64(j, "segments", r->segments);
	json_u64(j, "records", r->records);
	json_u64(j, "bytes", r->bytes);
	json_u64(j, "replayed", r->replayed);
	json_u64(j, "discarded", r->discarded);
	json_u64(j, "elapsed_ns", r->elapsed_ns);
	json_end(j);
	ui_doc_end(c->b->ui);
}

static void check_text(const struct check *c)
{
	const struct kvdb_recovery *r = &c->b->recovery;
	const struct bench_jhead *h = c->j.head;
	char s[SIZE_STR], z[SIZE_STR];

	printf("recovery      %s; %" PRIu64 " segments, %s, %" PRIu64 " records read, %" PRIu64
	       " replayed, %" PRIu64 " discarded; %s\n",
	       r->was_clean ? "database was closed" : "database was not closed", r->segments,
	       size_str(z, r->bytes), r->records, r->replayed, r->discarded,
	       time_str(s, r->elapsed_ns));
	printf("acknowledged  %" PRIu64 " records in %.2f s by %u threads\n", c->total,
	       c->total ? (double)(c->last_ack_ns - h->begin_ns) / 1e9 : 0.0, h->threads);
	printf("found         %" PRIu64 ", every byte right; and %" PRIu64
	       " that were in flight\n", c->have, c->in_flight);
	printf("lost          %" PRIu64 " records", c->lost);
	if (c->lost)
		printf(", acknowledged within %.3f ms", (double)loss_span(c) / 1e6);
	if (h->interval_ms == KVDB_INTERVAL_NONE)
		printf(" (no bound)\n");
	else
		printf(" (bound %u ms)\n", h->interval_ms);
	if (!c->verdict)
		printf("proven        what is there is a prefix of history, and the loss is within "
		       "its bound (checked in %s)\n", time_str(s, c->checked_ns));
}

/* ---- frame ----------------------------------------------------------------- */

/*
 * Reads everything that is judged. An interrupted walk has seen only a part, and
 * what it did not see must never be taken for lost: no verdict then.
 */
static int check_read(struct check *c)
{
	struct bench *b = c->b;
	int rc = check_probe_all(c);

	if (!rc && !is_stopped(b))
		check_in_flight(c);
	if (!rc && !is_stopped(b) && c->j.head->was_empty)
		rc = check_count_keys(c);
	if (!rc && b->error[0])
		rc = ui_error(b->ui, EXIT_FAILED, b->path, NULL, "%s", b->error);
	if (!rc && is_stopped(b))
		rc = ui_error(b->ui, EXIT_FAILED, b->path, NULL,
			      "interrupted, nothing was proven or disproven");
	return rc;
}

static int check_run(struct check *c)
{
	struct bench *b = c->b;
	unsigned lane;
	int rc;

	for (lane = 0; lane < c->j.head->threads; lane++) {
		uint64_t n = bench_jlane_of(&c->j, lane)->count;

		c->found[lane] = calloc(n + 1, 1);
		if (!c->found[lane])
			return ui_fail(b->ui, b->path, -ENOMEM, NULL);
		c->total += n;
	}
	c->begin_ns = bench_now_ns();
	rc = check_read(c);
	if (rc)
		return rc;
	c->checked_ns = bench_now_ns() - c->begin_ns;
	judge(c);
	if (b->ui->json)
		check_json(c);
	else
		check_text(c);
	if (c->verdict)
		return ui_error(b->ui, EXIT_FAILED, b->path, NULL, "%s", c->verdict);
	return EXIT_DONE;
}

int bench_check(struct bench *b, const char *file)
{
	struct check *c = calloc(1, sizeof(*c));
	struct kvdb_stats st;
	unsigned lane;
	int rc;

	if (!c)
		return ui_fail(b->ui, file, -ENOMEM, NULL);
	c->b = b;
	c->workers = b->threads;
	b->is_full = true;
	rc = bench_journal_open(b->ui, file, &c->j);
	if (rc)
		goto out;
	b->value_size = c->j.head->value_size;
	rc = db_open_kvs(b->ui, b->path, BENCH_STORE, 0, &b->db, &b->kvs);
	if (rc)
		goto out;
	if (!kvdb_stats(b->db, &st))
		b->recovery = st.recovery;
	rc = db_close(b->ui, b->path, b->db, check_run(c));
	for (lane = 0; lane < c->j.head->threads; lane++)
		free(c->found[lane]);
out:
	bench_journal_close(&c->j);
	free(c);
	return rc;
}
