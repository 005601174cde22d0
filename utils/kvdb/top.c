/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb top: what a database in use is doing, by its control socket. Each
 * report covers the interval before it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "remote.h"
#include "table.h"

const struct opt top_opts[] = { TBL_OPTS, DB_OPTS, { .name = NULL } };

static const struct col top_cols[] = {
	{ "puts", COL_COUNT, true, "puts per second" },
	{ "gets", COL_COUNT, true, "gets per second" },
	{ "dels", COL_COUNT, true, "deletes per second" },
	{ "scans", COL_COUNT, true, "cursors positioned per second" },
	{ "user", COL_SIZE, true, "bytes of keys and values written per second" },
	{ "written", COL_SIZE, true, "bytes submitted to media per second, all purposes" },
	{ "read", COL_SIZE, true, "bytes read from media per second" },
	{ "w/byte", COL_STR, true, "bytes written per byte put in the interval" },
	{ "r/byte", COL_STR, true, "bytes read per byte got in the interval" },
	{ "ops/cpu", COL_COUNT, true, "operations per second of processor time" },
	{ "flushes", COL_COUNT, true, "memtables written as runs in the interval" },
	{ "merges", COL_COUNT, true, "merges of runs in the interval" },
	{ "runs", COL_COUNT, true, "runs now" },
	{ "memtable", COL_SIZE, true, "memory of memtables now" },
	{ "late", COL_COUNT, true, "epochs that were durable late, in the interval" },
	{ "held", COL_TIME, true,
	  "time that writers were held back in the interval, by the loss bound, memory and log "
	  "space, all threads together" },
	{ "log", COL_SIZE, false, "bytes written to logs per second" },
	{ "key", COL_SIZE, false, "bytes of runs written per second" },
	{ "move", COL_SIZE, false, "bytes of values written by relocation per second" },
	{ "meta", COL_SIZE, false, "bytes of metadata written per second" },
	{ "window", COL_SIZE, false, "memory of log segments now" },
	{ "pages", COL_SIZE, false, "memory of cached pages now" },
	{ "misses", COL_COUNT, false, "pages read from media per second" },
	{ "segments", COL_COUNT, false, "log segments now" },
	{ "keys", COL_COUNT, false, "keys now, about" },
	{ NULL, 0, false, NULL },
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t rate(uint64_t now, uint64_t last, uint64_t ns)
{
	return now > last && ns ? (uint64_t)((double)(now - last) * 1e9 / (double)ns + 0.5) : 0;
}

static void io_sum(const struct kvdb_stats *st, uint64_t *written, uint64_t *read)
{
	*written = *read = 0;
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		*written += st->io[c].log_bytes + st->io[c].key_bytes + st->io[c].meta_bytes +
			    st->io[c].move_bytes;
		*read += st->io[c].read_bytes;
	}
}

static void ratio_cell(struct tbl *t, const char *col, double n)
{
	char s[24];

	snprintf(s, sizeof(s), "%.2f", n);
	tbl_str(t, col, s);
}

static void purpose_cells(struct tbl *t, const struct kvdb_stats *a, const struct kvdb_stats *b,
			  uint64_t ns)
{
	uint64_t n[4] = { 0 };

	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		n[0] += b->io[c].log_bytes - a->io[c].log_bytes;
		n[1] += b->io[c].key_bytes - a->io[c].key_bytes;
		n[2] += b->io[c].move_bytes - a->io[c].move_bytes;
		n[3] += b->io[c].meta_bytes - a->io[c].meta_bytes;
	}
	tbl_num(t, "log", rate(n[0], 0, ns));
	tbl_num(t, "key", rate(n[1], 0, ns));
	tbl_num(t, "move", rate(n[2], 0, ns));
	tbl_num(t, "meta", rate(n[3], 0, ns));
}

static void top_row(struct tbl *t, const struct kvdb_stats *a, const struct kvdb_stats *b,
		    uint64_t ns)
{
	uint64_t aw, ar, bw, br;

	io_sum(a, &aw, &ar);
	io_sum(b, &bw, &br);
	tbl_row(t);
	tbl_num(t, "puts", rate(b->puts, a->puts, ns));
	tbl_num(t, "gets", rate(b->gets, a->gets, ns));
	tbl_num(t, "dels", rate(b->dels, a->dels, ns));
	tbl_num(t, "scans", rate(b->seeks, a->seeks, ns));
	tbl_num(t, "user", rate(b->user_write_bytes, a->user_write_bytes, ns));
	tbl_num(t, "written", rate(bw, aw, ns));
	tbl_num(t, "read", rate(br, ar, ns));
	ratio_cell(t, "w/byte", efficiency_written(a, b));
	ratio_cell(t, "r/byte", efficiency_read(a, b));
	tbl_num(t, "ops/cpu", (uint64_t)efficiency_ops(a, b));
	purpose_cells(t, a, b, ns);
	tbl_num(t, "flushes", b->flushes - a->flushes);
	tbl_num(t, "merges", b->merges - a->merges);
	tbl_num(t, "runs", b->runs);
	tbl_num(t, "memtable", b->memtable_bytes);
	tbl_num(t, "late", b->durability_late - a->durability_late);
	tbl_num(t, "held", b->stall_ns - a->stall_ns + b->gate_wait_ns - a->gate_wait_ns);
	tbl_num(t, "window", b->window_bytes);
	tbl_num(t, "pages", b->page_bytes);
	tbl_num(t, "misses", rate(b->page_misses, a->page_misses, ns));
	tbl_num(t, "segments", b->segments);
	tbl_num(t, "keys", b->keys_estimate);
}

/* Counters as they grew in the interval, not per second: for programs that compute with them. */
static void top_json(struct json *j, const struct kvdb_stats *a, const struct kvdb_stats *b,
		     uint64_t ns)
{
	uint64_t aw, ar, bw, br;

	io_sum(a, &aw, &ar);
	io_sum(b, &bw, &br);
	json_obj(j, NULL);
	json_u64(j, "time_s", (uint64_t)time(NULL));
	json_u64(j, "interval_ns", ns);
	json_u64(j, "puts", b->puts - a->puts);
	json_u64(j, "gets", b->gets - a->gets);
	json_u64(j, "dels", b->dels - a->dels);
	json_u64(j, "seeks", b->seeks - a->seeks);
	json_u64(j, "user_write_bytes", b->user_write_bytes - a->user_write_bytes);
	json_u64(j, "user_read_bytes", b->user_read_bytes - a->user_read_bytes);
	json_u64(j, "cpu_ns", b->cpu_ns - a->cpu_ns);
	json_u64(j, "write_bytes", bw - aw);
	json_u64(j, "read_bytes", br - ar);
	json_u64(j, "flushes", b->flushes - a->flushes);
	json_u64(j, "merges", b->merges - a->merges);
	json_u64(j, "durability_late", b->durability_late - a->durability_late);
	json_u64(j, "gate_wait_ns", b->gate_wait_ns - a->gate_wait_ns);
	json_u64(j, "stall_ns", b->stall_ns - a->stall_ns);
	json_u64(j, "page_misses", b->page_misses - a->page_misses);
	json_u64(j, "runs", b->runs);
	json_u64(j, "segments", b->segments);
	json_u64(j, "keys_estimate", b->keys_estimate);
	json_u64(j, "memtable_bytes", b->memtable_bytes);
	json_u64(j, "window_bytes", b->window_bytes);
	json_u64(j, "page_bytes", b->page_bytes);
	efficiency_json(j, a, b);
	json_end(j);
}

static int top_loop(struct view *v, uint64_t seconds, uint64_t count)
{
	struct ui *ui = v->ui;
	struct kvdb_stats last, now;
	uint64_t then = now_ns(), i, t1;
	struct tbl *t;
	int rc = view_stats(v, &last);

	if (!rc && ui->json)
		ui_lines_begin(ui, 1, 1);
	for (i = 0; !rc && (!count || i < count); i++) {
		sleep((unsigned)seconds);
		rc = view_stats(v, &now);
		if (rc)
			break;
		t1 = now_ns();
		if (ui->json) {
			top_json(&ui->js, &last, &now, t1 - then);
		} else {
			t = tbl_new(ui, top_cols, &rc);
			if (!t)
				return rc;
			top_row(t, &last, &now, t1 - then);
			tbl_print(t, NULL);
		}
		last = now;
		then = t1;
		/* the reader is gone */
		if (fflush(stdout))
			break;
	}
	return rc;
}

static bool number(const char *s, uint64_t most, uint64_t *out)
{
	char *end;

	*out = strtoull(s, &end, 10);
	return *s >= '0' && *s <= '9' && !*end && *out && *out <= most;
}

int verb_top(struct ui *ui)
{
	const struct args *a = ui->args;
	uint64_t seconds = 1, count = 0;
	struct view v;
	struct tbl *t;
	int rc;

	if (a->n > 1 && !number(a->v[1], 86400, &seconds))
		return ui_usage(ui, "the interval is 1 to 86400 seconds");
	if (a->n > 2 && !number(a->v[2], UINT32_MAX, &count))
		return ui_usage(ui, "the count is a number from 1 on");
	t = tbl_new(ui, top_cols, &rc);
	if (!t)
		return rc;
	tbl_free(t);
	rc = view_open(ui, a->v[0], &v);
	if (rc)
		return rc;
	if (!v.pid)
		return view_close(&v, ui_error(ui, EXIT_NOTFOUND, a->v[0],
					       "kvdb stats prints what a closed one holds",
					       "no process has it open, so nothing happens in it"));
	return view_close(&v, top_loop(&v, seconds, count));
}
