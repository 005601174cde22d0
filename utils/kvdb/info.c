/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verbs info and stats: what a database is, and what it counted. One that
 * another process has open tells itself.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "health.h"
#include "remote.h"
#include "size.h"

/* ---- info ----------------------------------------------------------------- */

const struct opt info_opts[] = { DB_OPTS, { .name = NULL } };

static void json_recovery(struct json *j, const struct kvdb_recovery *r)
{
	json_obj(j, "recovery");
	json_bool(j, "was_clean", r->was_clean);
	json_u64(j, "incarnation", r->incarnation);
	json_u64(j, "durable_epoch", r->durable_epoch);
	json_u64(j, "segments", r->segments);
	json_u64(j, "frames", r->frames);
	json_u64(j, "records", r->records);
	json_u64(j, "bytes", r->bytes);
	json_u64(j, "replayed", r->replayed);
	json_u64(j, "discarded", r->discarded);
	json_u64(j, "elapsed_ns", r->elapsed_ns);
	json_end(j);
}

/* The process that has it open, or null. */
static void json_pid(struct json *j, uint64_t pid)
{
	if (pid)
		json_u64(j, "pid", pid);
	else
		json_null(j, "pid");
}

/* Media in use, what is live in it about (0: not known), and the bound on their quotient. */
static void space_json(struct json *j, const struct kvdb_info *in, const struct kvdb_stats *st)
{
	json_obj(j, "space");
	json_u64(j, "space_bytes", st->space_bytes);
	json_u64(j, "live_bytes", st->live_bytes);
	json_u64(j, "dead_value_bytes", st->dead_value_bytes);
	if (st->live_bytes)
		json_f64(j, "space_amp", (double)st->space_bytes / (double)st->live_bytes);
	else
		json_null(j, "space_amp");
	json_f64(j, "space_amp_max", in->space_amp_max);
	json_end(j);
}

static void space_text(const struct kvdb_info *in, const struct kvdb_stats *st)
{
	char b[SIZE_STR], d[SIZE_STR];

	printf("space          %s in use, %s of values dead", size_str(b, st->space_bytes),
	       size_str(d, st->dead_value_bytes));
	if (st->live_bytes)
		printf("; about %s live: %.2f", size_str(b, st->live_bytes),
		       (double)st->space_bytes / (double)st->live_bytes);
	printf("; bound %.2f\n", in->space_amp_max);
}

/* What the program that has it open holds, and may have forgotten to close. */
static void held_text(const struct kvdb_stats *st)
{
	char b[SIZE_STR];

	if (st->txns)
		printf("transactions   %" PRIu64 ", the oldest %s old\n", st->txns,
		       time_str(b, st->txn_oldest_ns));
	if (st->snapshots)
		printf("snapshots      %" PRIu64 ", the oldest %s old\n", st->snapshots,
		       time_str(b, st->snapshot_oldest_ns));
	if (st->cursors)
		printf("cursors        %" PRIu64 ", the oldest snapshot %s old\n", st->cursors,
		       time_str(b, st->cursor_oldest_ns));
	if (st->cursors_forgotten)
		printf("forgotten      %" PRIu64 " of the cursors lost their snapshot, unused or "
		       "for memory, and were not closed\n", st->cursors_forgotten);
}

static void held_json(struct json *j, const struct kvdb_stats *st)
{
	json_u64(j, "txns", st->txns);
	json_u64(j, "txn_oldest_ns", st->txn_oldest_ns);
	json_u64(j, "snapshots", st->snapshots);
	json_u64(j, "snapshot_oldest_ns", st->snapshot_oldest_ns);
	json_u64(j, "cursors", st->cursors);
	json_u64(j, "cursor_oldest_ns", st->cursor_oldest_ns);
	json_u64(j, "cursors_forgotten", st->cursors_forgotten);
}

static void info_json(struct ui *ui, const struct view *v, const struct kvdb_info *in,
		      const struct kvdb_stats *st)
{
	struct json *j = &ui->js;
	char uuid[UUID_STR];
	unsigned c;

	ui_doc_begin(ui, 1, 3);
	json_str(j, "db", v->path);
	json_pid(j, v->pid);
	json_str(j, "uuid", uuid_str(uuid, in->uuid));
	json_u64(j, "format_version", in->format_version);
	json_u64(j, "kvs", in->kvs);
	if (in->interval_ms == KVDB_INTERVAL_NONE)
		json_null(j, "interval_ms");
	else
		json_u64(j, "interval_ms", in->interval_ms);
	json_bool(j, "commit", in->commit);
	json_u64(j, "logs", in->logs);
	json_u64(j, "cache_bytes", in->cache_bytes);
	json_u64(j, "log_bytes", in->log_bytes);
	json_u64(j, "segment_bytes", in->segment_bytes);
	json_u64(j, "keys_estimate", st->keys_estimate);
	space_json(j, in, st);
	json_str(j, "fault", in->fault);
	json_u64(j, "stuck", in->stuck);
	json_u64(j, "stuck_s", in->stuck_ns / 1000000000u);
	json_str(j, "stuck_text", in->stuck_text);
	held_json(j, st);
	json_recovery(j, &st->recovery);
	json_obj(j, "pool");
	json_str(j, "name", in->pool.name);
	json_str(j, "uuid", uuid_str(uuid, in->pool.uuid));
	json_str(j, "io", in->pool.io);
	json_bool(j, "is_direct", in->pool.is_direct);
	json_arr(j, "classes");
	for (c = 0; c < MPOOL_MCLASSES; c++) {
		if (!in->pool.cls[c].devs)
			continue;
		json_obj(j, NULL);
		json_str(j, "class", class_name[c]);
		json_u64(j, "devices", in->pool.cls[c].devs);
		json_u64(j, "total", in->pool.cls[c].total);
		json_u64(j, "used", in->pool.cls[c].used);
		json_u64(j, "free", in->pool.cls[c].free);
		json_end(j);
	}
	json_end(j);
	json_end(j);
	ui_doc_end(ui);
}

/* What an open has chosen, or would choose. */
static void info_chosen(const struct view *v, const struct kvdb_info *in)
{
	char b[SIZE_STR];

	if (!v->pid) {
		printf("loss bound     chosen at each open (default %u ms)\n", in->interval_ms);
		printf("cache          chosen at each open (here %s)\n",
		       size_str(b, in->cache_bytes));
		return;
	}
	if (in->commit)
		printf("loss bound     none is lost: every write waits until it is durable\n");
	else if (in->interval_ms == KVDB_INTERVAL_NONE)
		printf("loss bound     none: durable at sync and close\n");
	else
		printf("loss bound     %u ms\n", in->interval_ms);
	printf("cache          %s\n", size_str(b, in->cache_bytes));
	printf("log            at most %s since the oldest record not in a run\n",
	       size_str(b, in->log_bytes));
}

static void info_text(const struct view *v, const struct kvdb_info *in,
		      const struct kvdb_stats *st)
{
	char a[UUID_STR], b[SIZE_STR], d[SIZE_STR];
	unsigned c;

	printf("database       %s\n", v->path);
	if (v->pid)
		printf("open           by process %" PRIu64 "\n", v->pid);
	printf("uuid           %s\n", uuid_str(a, in->uuid));
	printf("format         0x%04x\n", in->format_version);
	printf("stores         %u\n", in->kvs);
	printf("keys           about %" PRIu64 "\n", st->keys_estimate);
	info_chosen(v, in);
	printf("logs           %u, segments of %s\n", in->logs, size_str(b, in->segment_bytes));
	space_text(in, st);
	printf("last close     %s\n", st->recovery.was_clean ? "clean" : "not clean, recovered");
	printf("pool           %s (%s, %s)\n", in->pool.name, in->pool.io,
	       in->pool.is_direct ? "direct" : "buffered");
	for (c = 0; c < MPOOL_MCLASSES; c++)
		if (in->pool.cls[c].devs)
			printf("%-14s %s used, %s free\n", class_name[c],
			       size_str(b, in->pool.cls[c].used),
			       size_str(d, in->pool.cls[c].free));
	if (in->fault[0]) {
		printf("fault          ");
		ui_print(stdout, in->fault);
		putchar('\n');
	}
	if (in->stuck) {
		printf("stuck          %" PRIu64 " for %" PRIu64 " s, tried again: ", in->stuck,
		       in->stuck_ns / 1000000000u);
		ui_print(stdout, in->stuck_text);
		putchar('\n');
	}
	held_text(st);
}

int verb_info(struct ui *ui)
{
	struct kvdb_compact_status cs;
	struct kvdb_info in;
	struct kvdb_stats st;
	struct view v;
	int rc = view_open(ui, ui->args->v[0], &v);

	if (rc)
		return rc;
	rc = view_info(&v, &in);
	if (!rc)
		rc = view_stats(&v, &st);
	/* it was not estimated yet */
	if (!rc && v.db && !kvdb_compact_status(v.db, &cs))
		st.live_bytes = cs.live_bytes;
	if (!rc && ui->json)
		info_json(ui, &v, &in, &st);
	else if (!rc)
		info_text(&v, &in, &st);
	return view_close(&v, rc);
}

/* ---- stats ---------------------------------------------------------------- */

const struct opt stats_opts[] = { DB_OPTS, { .name = NULL } };

static const struct {
	const char *name;
	size_t off;
} stat_list[] = {
#define X(f) { #f, offsetof(struct kvdb_stats, f) },
	KVDB_STATS_FIELDS(X)
#undef X
};

static uint64_t stat_value(const struct kvdb_stats *st, unsigned i)
{
	uint64_t v;

	memcpy(&v, (const char *)st + stat_list[i].off, sizeof(v));
	return v;
}

#define DEVS_MAX (MPOOL_MCLASSES * MPOOL_DEVS_MAX)

static void devices_json(struct json *j, const struct mpool_dev_info *d, unsigned n)
{
	json_arr(j, "devices");
	for (; n--; d++) {
		json_obj(j, NULL);
		json_str(j, "path", d->path);
		json_str(j, "class", class_name[d->mclass]);
		json_u64(j, "slot", d->slot);
		health_json(j, d);
		json_end(j);
	}
	json_end(j);
}

static void devices_text(const struct mpool_dev_info *d, unsigned n)
{
	for (; n--; d++) {
		printf("device %-11s ", class_name[d->mclass]);
		ui_print(stdout, d->path);
		fputs(": ", stdout);
		health_text(d);
		putchar('\n');
	}
}

static void stats_json(struct ui *ui, const struct view *v, const struct kvdb_stats *st,
		       const struct mpool_dev_info *dev, unsigned ndevs)
{
	struct json *j = &ui->js;
	unsigned i;

	ui_doc_begin(ui, 1, 5);
	json_str(j, "db", v->path);
	json_pid(j, v->pid);
	for (i = 0; i < sizeof(stat_list) / sizeof(stat_list[0]); i++)
		json_u64(j, stat_list[i].name, stat_value(st, i));
	json_arr(j, "io");
	for (i = 0; i < MPOOL_MCLASSES; i++) {
		json_obj(j, NULL);
		json_str(j, "class", class_name[i]);
#define X(f) json_u64(j, #f, st->io[i].f);
		KVDB_IO_FIELDS(X)
#undef X
		json_end(j);
	}
	json_end(j);
	json_arr(j, "space");
	for (i = 0; i < MPOOL_MCLASSES; i++) {
		json_obj(j, NULL);
		json_str(j, "class", class_name[i]);
		json_u64(j, "segment_bytes", st->space[i].segment_bytes);
		json_u64(j, "live_value_bytes", st->space[i].live_value_bytes);
		json_u64(j, "dead_value_bytes", st->space[i].dead_value_bytes);
		json_end(j);
	}
	json_end(j);
	devices_json(j, dev, ndevs);
	efficiency_json(j, NULL, st);
	delays_json(j, NULL, st);
	json_recovery(j, &st->recovery);
	ui_doc_end(ui);
}

static void stats_text(const struct kvdb_stats *st)
{
	const struct kvdb_recovery *r = &st->recovery;
	char b[SIZE_STR];
	unsigned i;

	for (i = 0; i < sizeof(stat_list) / sizeof(stat_list[0]); i++)
		printf("%-18s %" PRIu64 "\n", stat_list[i].name, stat_value(st, i));
	for (i = 0; i < MPOOL_MCLASSES; i++)
		printf("io %-15s log %" PRIu64 " key %" PRIu64 " move %" PRIu64 " meta %" PRIu64
		       " read %" PRIu64 "\n", class_name[i], st->io[i].log_bytes,
		       st->io[i].key_bytes, st->io[i].move_bytes, st->io[i].meta_bytes,
		       st->io[i].read_bytes);
	efficiency_text("use", NULL, st);
	for (i = 0; i < MPOOL_MCLASSES; i++)
		printf("space %-12s segments %" PRIu64 " live %" PRIu64 " dead %" PRIu64 "\n",
		       class_name[i], st->space[i].segment_bytes, st->space[i].live_value_bytes,
		       st->space[i].dead_value_bytes);
	printf("recovery           %s: %" PRIu64 " segments, %" PRIu64 " records read, %" PRIu64
	       " replayed, %" PRIu64 " discarded, %s\n",
	       r->was_clean ? "clean" : "not clean", r->segments, r->records, r->replayed,
	       r->discarded, time_str(b, r->elapsed_ns));
	delays_text("delay", NULL, st);
}

int verb_stats(struct ui *ui)
{
	static struct mpool_dev_info dev[DEVS_MAX];
	struct kvdb_stats st;
	struct view v;
	unsigned n;
	int rc = view_open(ui, ui->args->v[0], &v);

	if (rc)
		return rc;
	rc = view_stats(&v, &st);
	if (!rc)
		rc = view_devices(&v, dev, DEVS_MAX, &n);
	if (!rc && ui->json) {
		stats_json(ui, &v, &st, dev, n);
	} else if (!rc) {
		stats_text(&st);
		devices_text(dev, n);
	}
	return view_close(&v, rc);
}
