/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the benchmark prints. Every figure of the table is in the JSON as well.
 *
 * Write amplification takes the larger of two witnesses: what the engine says
 * it submitted per class, and what the kernel counted for the process (the
 * second includes the pool's own metadata; a journal file would distort it).
 */
#include <inttypes.h>
#include <stdio.h>

#include "bench.h"
#include "size.h"

static const struct {
	const char *name;
	double part;
} quant[] = { { "p50", 0.5 }, { "p99", 0.99 }, { "p999", 0.999 },
	    { "p9999", 0.9999 } };
#define QUANTS (sizeof(quant) / sizeof(quant[0]))

uint64_t bench_class_written(const struct bench_phase *p, unsigned cls)
{
	const struct kvdb_io *a = &p->before.io[cls], *z = &p->after.io[cls];

	return z->log_bytes - a->log_bytes + z->key_bytes - a->key_bytes + z->meta_bytes -
	       a->meta_bytes + z->move_bytes - a->move_bytes;
}

uint64_t bench_class_read(const struct bench_phase *p, unsigned cls)
{
	return p->after.io[cls].read_bytes - p->before.io[cls].read_bytes;
}

static uint64_t engine_written(const struct bench_phase *p)
{
	return bench_class_written(p, MPOOL_CAPACITY) + bench_class_written(p, MPOOL_STAGING);
}

static uint64_t device_written(const struct bench *b, const struct bench_phase *p)
{
	uint64_t e = engine_written(p), k = p->end.proc_write - p->begin.proc_write;

	return k > e && !b->journal ? k : e;
}

static double ratio(double a, double z)
{
	return z > 0 ? a / z : 0;
}

static double cpu_us(const struct bench_phase *p, const struct bench_meter *to)
{
	return ratio((double)(to->cpu_ns - p->begin.cpu_ns) / 1000.0, (double)p->ops);
}

double bench_rate(const struct bench_phase *p, const struct bench_meter *to)
{
	return ratio((double)p->ops * 1e9, (double)(to->ns - p->begin.ns));
}

static double write_amp(const struct bench *b, const struct bench_phase *p)
{
	return ratio((double)device_written(b, p), (double)p->write_bytes);
}

double bench_space_amp(const struct bench_phase *p)
{
	return ratio((double)(p->used[MPOOL_CAPACITY] + p->used[MPOOL_STAGING]),
		     (double)p->live_bytes);
}

/* Values that were read; every one of them was checked, or the run had ended. */
static uint64_t verified_of(const struct bench_phase *p)
{
	return p->hist[OP_READ].count + p->hist[OP_RMW].count + p->scanned;
}

static uint64_t to_ns(const struct bench_phase *p, uint64_t ticks)
{
	return (uint64_t)((double)ticks * p->ns_per_tick);
}

uint64_t bench_p999_ns(const struct bench_phase *p, unsigned op)
{
	return to_ns(p, bench_hist_quantile(&p->hist[op], 0.999));
}

/* ---- JSON ----------------------------------------------------------------- */

static void json_class(struct json *j, const struct bench_phase *p, unsigned c)
{
	const struct kvdb_io *a = &p->before.io[c], *z = &p->after.io[c];

	json_obj(j, NULL);
	json_str(j, "class", class_name[c]);
	json_u64(j, "written_bytes", bench_class_written(p, c));
#define X(f) json_u64(j, #f, z->f - a->f);
	KVDB_IO_FIELDS(X)
#undef X
	json_u64(j, "used_bytes", p->used[c]);
	json_end(j);
}

static void json_ops(struct json *j, const struct bench_phase *p)
{
	unsigned op, q;

	json_arr(j, "operations");
	for (op = 0; op < BENCH_OPS; op++) {
		const struct bench_hist *h = &p->hist[op];
		char name[16];

		if (!h->count)
			continue;
		json_obj(j, NULL);
		json_str(j, "op", bench_op_name[op]);
		json_u64(j, "count", h->count);
		for (q = 0; q < QUANTS; q++) {
			snprintf(name, sizeof(name), "%s_ns", quant[q].name);
			json_u64(j, name, to_ns(p, bench_hist_quantile(h, quant[q].part)));
		}
		json_u64(j, "max_ns", to_ns(p, h->max));
		json_u64(j, "mean_ns", to_ns(p, h->sum / h->count));
		json_end(j);
	}
	json_end(j);
}

static void json_phase(struct json *j, const struct bench *b, const struct bench_phase *p)
{
	const struct kvdb_stats *a = &p->before, *z = &p->after;
	unsigned c;

	json_obj(j, NULL);
	json_str(j, "workload", p->mix->name);
	json_str(j, "distribution", p->mix->is_load ? "sequence" : bench_dist_name[p->dist]);
	json_u64(j, "operations_done", p->ops);
	json_u64(j, "skipped", p->skipped);
	json_u64(j, "records_scanned", p->scanned);
	json_u64(j, "values_verified", verified_of(p));
	json_u64(j, "ack_ns", p->ack.ns - p->begin.ns);
	json_u64(j, "drained_ns", p->end.ns - p->begin.ns);
	json_f64(j, "ops_per_s_ack", bench_rate(p, &p->ack));
	json_f64(j, "ops_per_s_drained", bench_rate(p, &p->end));
	json_f64(j, "cpu_us_per_op_ack", cpu_us(p, &p->ack));
	json_f64(j, "cpu_us_per_op_drained", cpu_us(p, &p->end));
	json_ops(j, p);
	json_arr(j, "classes");
	for (c = 0; c < MPOOL_MCLASSES; c++)
		if (b->info.pool.cls[c].devs)
			json_class(j, p, c);
	json_end(j);
	json_u64(j, "process_written_bytes", p->end.proc_write - p->begin.proc_write);
	json_u64(j, "process_read_bytes", p->end.proc_read - p->begin.proc_read);
	json_u64(j, "user_written_bytes", p->write_bytes);
	json_u64(j, "user_read_bytes", p->read_bytes);
	json_u64(j, "live_user_bytes", p->live_bytes);
	efficiency_json(j, a, z);
	json_f64(j, "write_amplification", write_amp(b, p));
	json_f64(j, "space_amplification", bench_space_amp(p));
	json_u64(j, "peak_rss_bytes", p->peak_rss);
	json_u64(j, "gate_waits", z->gate_waits - a->gate_waits);
	json_u64(j, "gate_wait_ns", z->gate_wait_ns - a->gate_wait_ns);
	json_u64(j, "stalls", z->stalls - a->stalls);
	json_u64(j, "stall_ns", z->stall_ns - a->stall_ns);
	json_u64(j, "durability_late", z->durability_late - a->durability_late);
	delays_json(j, a, z);
	json_u64(j, "log_device_max_ns_since_open", z->log_device_max_ns);
	json_end(j);
}

void bench_json_config(struct json *j, const struct bench *b)
{
	json_obj(j, "config");
	json_u64(j, "records", b->records);
	json_u64(j, "ops", b->ops);
	json_u64(j, "threads", b->threads);
	json_u64(j, "in_flight", b->inflight);
	json_u64(j, "value_size", b->value_size);
	json_u64(j, "compressible_percent", b->zeros);
	json_str(j, "compress", kvs_compress_str(b->store.compress));
	json_u64(j, "seed", b->seed);
	json_str(j, "verify", b->is_full ? "full" : "sample");
	if (b->info.interval_ms == KVDB_INTERVAL_NONE)
		json_null(j, "interval_ms");
	else
		json_u64(j, "interval_ms", b->info.interval_ms);
	json_u64(j, "cache_bytes", b->info.cache_bytes);
	json_str(j, "io", b->info.pool.io);
	json_bool(j, "is_direct", b->info.pool.is_direct);
	json_str(j, "layers", b->layers[0] ? b->layers : NULL);
	json_str(j, "clock", bench_has_tsc ? "tsc" : "monotonic");
	json_end(j);
}

void bench_json_phases(struct json *j, const struct bench *b)
{
	unsigned i;

	json_arr(j, "phases");
	for (i = 0; i < b->nphases; i++)
		json_phase(j, b, &b->phase[i]);
	json_end(j);
}

void bench_report_json(struct bench *b)
{
	struct json *j = &b->ui->js;

	ui_doc_begin(b->ui, 1, 2);
	json_str(j, "db", b->path ? b->path : b->made);
	bench_json_config(j, b);
	json_obj(j, "recovery");
	json_bool(j, "was_clean", b->recovery.was_clean);
	json_u64(j, "replayed", b->recovery.replayed);
	json_u64(j, "discarded", b->recovery.discarded);
	json_u64(j, "elapsed_ns", b->recovery.elapsed_ns);
	json_end(j);
	bench_json_phases(j, b);
	ui_doc_end(b->ui);
}

/* ---- text ----------------------------------------------------------------- */

static void text_rates(const struct bench *b)
{
	uint64_t verified = 0;
	unsigned i;

	printf("%-6s %10s %11s %11s %9s %10s %7s %7s %8s\n", "PHASE", "OPS", "OPS/S",
	       "DRAINED/S", "CPU-US/OP", "DRAINED/OP", "W-AMP", "SPACE", "RSS");
	for (i = 0; i < b->nphases; i++) {
		const struct bench_phase *p = &b->phase[i];
		char rss[SIZE_STR], amp[16] = "-";

		if (p->write_bytes)
			snprintf(amp, sizeof(amp), "%.2f", write_amp(b, p));
		printf("%-6s %10" PRIu64 " %11.0f %11.0f %9.2f %10.2f %7s %7.2f %8s\n",
		       p->mix->name, p->ops, bench_rate(p, &p->ack), bench_rate(p, &p->end),
		       cpu_us(p, &p->ack), cpu_us(p, &p->end), amp, bench_space_amp(p),
		       size_str(rss, p->peak_rss));
		verified += verified_of(p);
	}
	printf("drained: with the deferred work done and all durable; CPU in microseconds, all "
	       "threads\n"
	       "amplification: W-AMP, bytes written per byte put; SPACE, bytes used per living "
	       "byte\n");
	printf("verified: %" PRIu64 " values read, each by its length, key, version and %s of its "
	       "bytes\n", verified, b->is_full ? "all" : "a sample");
}

static void text_latency(const struct bench *b)
{
	unsigned i, op, q;

	printf("\n%-6s %-7s %10s %9s %9s %9s %9s %9s\n", "PHASE", "OP", "COUNT", "P50", "P99",
	       "P99.9", "P99.99", "MAX");
	for (i = 0; i < b->nphases; i++) {
		const struct bench_phase *p = &b->phase[i];

		for (op = 0; op < BENCH_OPS; op++) {
			const struct bench_hist *h = &p->hist[op];
			char s[SIZE_STR];

			if (!h->count)
				continue;
			printf("%-6s %-7s %10" PRIu64, p->mix->name, bench_op_name[op], h->count);
			for (q = 0; q < QUANTS; q++)
				printf(" %9s", time_str(s, to_ns(p, bench_hist_quantile(
								       h, quant[q].part))));
			printf(" %9s\n", time_str(s, to_ns(p, h->max)));
		}
	}
}

static void text_classes(const struct bench *b)
{
	unsigned i, c;

	printf("\n%-6s %-9s %9s %9s %9s %9s %9s %9s\n", "PHASE", "CLASS", "LOG", "KEYS", "MOVED",
	       "META", "READ", "USED");
	for (i = 0; i < b->nphases; i++) {
		const struct bench_phase *p = &b->phase[i];

		for (c = 0; c < MPOOL_MCLASSES; c++) {
			const struct kvdb_io *a = &p->before.io[c], *z = &p->after.io[c];
			char s[6][SIZE_STR];

			if (!b->info.pool.cls[c].devs)
				continue;
			printf("%-6s %-9s %9s %9s %9s %9s %9s %9s\n", p->mix->name, class_name[c],
			       size_str(s[0], z->log_bytes - a->log_bytes),
			       size_str(s[1], z->key_bytes - a->key_bytes),
			       size_str(s[2], z->move_bytes - a->move_bytes),
			       size_str(s[3], z->meta_bytes - a->meta_bytes),
			       size_str(s[4], bench_class_read(p, c)), size_str(s[5], p->used[c]));
		}
		if (p->end.proc_write) {
			char w[SIZE_STR], r[SIZE_STR];

			printf("%-6s kernel counted %s written, %s read\n", p->mix->name,
			       size_str(w, p->end.proc_write - p->begin.proc_write),
			       size_str(r, p->end.proc_read - p->begin.proc_read));
		}
	}
}

static void text_efficiency(const struct bench *b)
{
	char label[16];

	putchar('\n');
	for (unsigned i = 0; i < b->nphases; i++) {
		snprintf(label, sizeof(label), "%-6s", b->phase[i].mix->name);
		efficiency_text(label, &b->phase[i].before, &b->phase[i].after);
	}
}

static void text_delays(const struct bench *b)
{
	unsigned i;

	printf("\nWAITS OF WRITERS\n");
	for (i = 0; i < b->nphases; i++) {
		const struct bench_phase *p = &b->phase[i];
		char label[16];

		snprintf(label, sizeof(label), "%-6s", p->mix->name);
		if (p->write_bytes)
			delays_text(label, &p->before, &p->after);
	}
}

void bench_text_config(const struct bench *b)
{
	char s[SIZE_STR];

	printf("%" PRIu64 " records of %" PRIu64 " bytes, %u threads, cache %s, %s%s", b->records,
	       b->value_size, b->threads, size_str(s, b->info.cache_bytes), b->info.pool.io,
	       b->info.pool.is_direct ? " direct" : " buffered");
	if (b->info.interval_ms == KVDB_INTERVAL_NONE)
		printf(", no loss bound\n");
	else
		printf(", loss bound %u ms\n", b->info.interval_ms);
	if (b->zeros || b->store.compress)
		printf("%u %% of each value are zeros, compression %s\n", b->zeros,
		       kvs_compress_str(b->store.compress));
	if (b->layers[0])
		printf("device layers: %s\n", b->layers);
	if (b->inflight)
		printf("workloads a, b, c: %u operations of each thread in flight\n", b->inflight);
}

void bench_report_text(struct bench *b)
{
	char s[SIZE_STR];

	bench_text_config(b);
	if (!b->made[0])
		printf("opened in %s (%s; %" PRIu64 " records replayed)\n",
		       time_str(s, b->recovery.elapsed_ns),
		       b->recovery.was_clean ? "was closed" : "recovered", b->recovery.replayed);
	putchar('\n');
	text_rates(b);
	text_latency(b);
	text_classes(b);
	text_efficiency(b);
	text_delays(b);
}
