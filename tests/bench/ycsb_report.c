/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The result of a process: one line of JSON on standard output. Times are
 * nanoseconds, everything else of a size is bytes.
 */
#include <string.h>

#include "json.h"
#include "ycsb.h"

static const struct {
	const char *name;
	double part;
} quant[] = { { "p50_ns", 0.5 }, { "p99_ns", 0.99 }, { "p999_ns", 0.999 }, { "p9999_ns", 0.9999 } };

struct sums {
	uint64_t ops, write_bytes, read_bytes, verified, found, missed;
	struct bench_hist hist[BENCH_OPS];
};

static void sum_up(const struct ycsb *y, struct sums *s)
{
	memset(s, 0, sizeof(*s));
	for (unsigned i = 0; i < y->o.threads; i++) {
		const struct ycsb_thread *t = &y->thr[i];

		s->ops += t->done;
		s->write_bytes += t->write_bytes;
		s->read_bytes += t->read_bytes;
		s->verified += t->verified;
		s->found += t->found;
		for (unsigned op = 0; op < BENCH_OPS; op++)
			bench_hist_merge(&s->hist[op], &t->hist[op]);
	}
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

static uint64_t live_bytes(const struct ycsb *y)
{
	uint64_t n = bench_seq_limit(&y->seq), keys = 0, i;
	char key[BENCH_KEY_MAX];

	/* the mean length of some keys: they differ by a digit or two */
	for (i = 0; i < 10000 && i < n; i++)
		keys += bench_key(key, bench_fnv64(i));
	return n * y->value_size + (i ? keys * n / i : 0);
}

static void report_latency(struct json *j, const struct ycsb *y, const struct sums *s)
{
	double ns_per_tick = ratio((double)(y->ack.m.ns - y->begin.m.ns),
				   (double)(y->ack.m.ticks - y->begin.m.ticks));

	json_obj(j, "latency");
	for (unsigned op = 0; op < BENCH_OPS; op++) {
		const struct bench_hist *h = &s->hist[op];

		if (!h->count)
			continue;
		json_obj(j, bench_op_name[op]);
		json_u64(j, "count", h->count);
		for (unsigned q = 0; q < sizeof(quant) / sizeof(quant[0]); q++)
			json_u64(j, quant[q].name,
				 (uint64_t)((double)bench_hist_quantile(h, quant[q].part) *
					    ns_per_tick));
		json_u64(j, "max_ns", (uint64_t)((double)h->max * ns_per_tick));
		json_end(j);
	}
	json_end(j);
}

static void report_rates(struct json *j, const struct ycsb *y, uint64_t ops)
{
	const struct ycsb_edge *to[] = { &y->ack, &y->end };
	static const char *const name[][4] = {
		{ "ack_ns", "ops_per_s", "cpu_us_per_op", "ops_per_cpu_s" },
		{ "drained_ns", "drained_ops_per_s", "drained_cpu_us_per_op",
		  "drained_ops_per_cpu_s" },
	};

	for (unsigned i = 0; i < 2; i++) {
		double ns = (double)(to[i]->m.ns - y->begin.m.ns);
		double cpu_ns = (double)(to[i]->m.cpu_ns - y->begin.m.cpu_ns);

		json_f64(j, name[i][0], ns);
		json_f64(j, name[i][1], ratio((double)ops * 1e9, ns));
		json_f64(j, name[i][2], ratio(cpu_ns / 1e3, (double)ops));
		json_f64(j, name[i][3], ratio((double)ops * 1e9, cpu_ns));
	}
}

/* Cores that other processes had while operations were acknowledged. */
static double others(const struct ycsb *y)
{
	double all = (double)(y->ack.machine_ns - y->begin.machine_ns);
	double own = (double)(y->ack.m.cpu_ns - y->begin.m.cpu_ns);
	double n = ratio(all - own, (double)(y->ack.m.ns - y->begin.m.ns));

	return n > 0 ? n : 0;
}

static void report_config(struct json *j, const struct ycsb *y)
{
	json_str(j, "engine", y->e->name);
	json_str(j, "version", y->e->version());
	json_str(j, "workload", y->is_recover ? "recover" : y->mix->name);
	json_str(j, "distribution", y->mix->is_load || y->is_recover ? "sequence" :
		 bench_dist_name[y->dist >= 0 ? y->dist : (int)y->mix->dist]);
	json_u64(j, "records", y->first_record);
	json_u64(j, "value_size", y->value_size);
	json_u64(j, "threads", y->o.threads);
	json_u64(j, "in_flight", y->o.in_flight);
	json_u64(j, "cache_bytes", y->o.cache_bytes);
	json_u64(j, "interval_ms", y->o.interval_ms);
	json_bool(j, "is_warm", !y->is_cold);
	json_u64(j, "seed", y->seed);
	json_str(j, "settings", y->e->settings());
	json_bool(j, "is_sync", y->o.is_sync);
	json_str(j, "crash_loses", y->o.is_sync && !y->e->is_volatile ?
		 "nothing that was acknowledged" : y->e->loses);
}

void ycsb_report(const struct ycsb *y)
{
	static struct sums s;
	uint64_t live = live_bytes(y), wrote = y->end.m.proc_write - y->begin.m.proc_write;
	struct json j;

	sum_up(y, &s);
	json_init(&j, stdout, true);
	json_obj(&j, NULL);
	report_config(&j, y);
	json_u64(&j, "operations", s.ops);
	json_u64(&j, "values_verified", s.verified);
	json_u64(&j, "open_ns", y->open_ns);
	if (y->is_recover) {
		json_u64(&j, "found", s.found);
		json_u64(&j, "lost", y->first_record - s.found);
	}
	report_rates(&j, y, s.ops);
	report_latency(&j, y, &s);
	json_u64(&j, "user_written_bytes", s.write_bytes);
	json_u64(&j, "user_read_bytes", s.read_bytes);
	json_u64(&j, "written_bytes", wrote);
	json_u64(&j, "read_bytes", y->end.m.proc_read - y->begin.m.proc_read);
	json_f64(&j, "write_amplification", ratio((double)wrote, (double)s.write_bytes));
	json_u64(&j, "live_bytes", live);
	json_u64(&j, "space_bytes", y->space_bytes);
	json_f64(&j, "space_amplification", ratio((double)y->space_bytes, (double)live));
	json_u64(&j, "peak_rss_bytes", y->peak_rss);
	json_u64(&j, "driver_bytes", y->nversions * sizeof(*y->versions) +
		 y->o.threads * (sizeof(*y->thr) + (1 + y->o.in_flight) * y->value_size));
	json_f64(&j, "other_cores", others(y));
	if (y->e->report)
		y->e->report(&j);
	json_end(&j);
	fflush(stdout);
}
