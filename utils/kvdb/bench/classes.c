/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a second media class is worth: the same workloads on capacity alone and
 * with staging of a tenth of the data in front of it. The layers below the
 * pool, and all else that was asked for, are the same in both runs.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "size.h"

#define STAGING_PART 10u
#define STAGING_MIN  (3ull << 20) /* metadata of a database */
#define CACHE_PART   8u
#define CACHE_MIN    (64ull << 20)
#define MIB          (1ull << 20)

static uint64_t data_bytes(const struct bench *b)
{
	return b->records * (b->value_size + BENCH_KEY_MAX);
}

static uint64_t staging_bytes(const struct bench *b)
{
	uint64_t n = (data_bytes(b) / STAGING_PART + MIB - 1) / MIB * MIB;

	return n < STAGING_MIN ? STAGING_MIN : n;
}

int bench_classes_parse(struct bench *b)
{
	const char *layers = secure_getenv("MPOOL_DEV");

	if (!layers && b->classes)
		layers = BENCH_LAYERS;
	if (layers && (size_t)snprintf(b->layers, sizeof(b->layers), "%s", layers) >=
	    sizeof(b->layers))
		return ui_usage(b->ui, "MPOOL_DEV: too long");
	if (!b->classes)
		return EXIT_DONE;
	if (b->path || b->staging_size || (b->classes == BENCH_COMPARE && b->is_keep) ||
	    args_has(b->ui->args, "journal") || args_has(b->ui->args, "check"))
		return ui_usage(b->ui, "--classes goes with no DB, --staging-size, --journal or "
				"--check, and compare keeps no pool");
	b->staging_size = b->classes == BENCH_BOTH ? staging_bytes(b) : 0;
	b->cache = data_bytes(b) / CACHE_PART;
	if (b->cache < CACHE_MIN)
		b->cache = CACHE_MIN;
	return EXIT_DONE;
}

/* struct figure - a row of the comparison: capacity alone, both */
struct figure {
	double capacity, both;
};

static double ratio(struct figure f)
{
	return f.capacity > 0 ? f.both / f.capacity : 0;
}

static struct figure rate_of(const struct bench_phase *a, const struct bench_phase *z,
			     bool drained)
{
	return (struct figure){ bench_rate(a, drained ? &a->end : &a->ack),
				bench_rate(z, drained ? &z->end : &z->ack) };
}

static struct figure p999_of(const struct bench_phase *a, const struct bench_phase *z, unsigned op)
{
	return (struct figure){ (double)bench_p999_ns(a, op), (double)bench_p999_ns(z, op) };
}

static struct figure written_of(const struct bench_phase *a, const struct bench_phase *z)
{
	return (struct figure){ (double)bench_class_written(a, MPOOL_CAPACITY),
				(double)bench_class_written(z, MPOOL_CAPACITY) };
}

static struct figure space_of(const struct bench_phase *a, const struct bench_phase *z)
{
	return (struct figure){ bench_space_amp(a), bench_space_amp(z) };
}

/* ---- JSON ----------------------------------------------------------------- */

static void json_run(struct json *j, const struct bench *b, const char *classes)
{
	json_obj(j, NULL);
	json_str(j, "classes", classes);
	json_u64(j, "staging_bytes", b->staging_size);
	bench_json_config(j, b);
	bench_json_phases(j, b);
	json_end(j);
}

static void json_ratios(struct json *j, const struct bench_phase *a, const struct bench_phase *z,
			uint64_t ideal)
{
	struct figure least = { written_of(a, z).capacity, (double)ideal };

	unsigned op;

	json_obj(j, NULL);
	json_str(j, "workload", a->mix->name);
	json_f64(j, "ops_per_s_ack", ratio(rate_of(a, z, false)));
	json_f64(j, "ops_per_s_drained", ratio(rate_of(a, z, true)));
	json_f64(j, "capacity_written_bytes", ratio(written_of(a, z)));
	json_f64(j, "capacity_written_bytes_least", ratio(least));
	json_f64(j, "space_amplification", ratio(space_of(a, z)));
	json_arr(j, "operations");
	for (op = 0; op < BENCH_OPS; op++) {
		if (!a->hist[op].count)
			continue;
		json_obj(j, NULL);
		json_str(j, "op", bench_op_name[op]);
		json_f64(j, "p999", ratio(p999_of(a, z, op)));
		json_end(j);
	}
	json_end(j);
	json_end(j);
}

static void compare_json(const struct bench *a, const struct bench *z, const uint64_t *ideal)
{
	struct json *j = &z->ui->js;
	unsigned i;

	ui_doc_begin(z->ui, 1, 1);
	json_arr(j, "runs");
	json_run(j, a, "capacity");
	json_run(j, z, "both");
	json_end(j);
	json_arr(j, "ratios");
	for (i = 0; i < z->nphases; i++)
		json_ratios(j, &a->phase[i], &z->phase[i], ideal[i]);
	json_end(j);
	ui_doc_end(z->ui);
}

/* ---- text ----------------------------------------------------------------- */

static void row_rate(const char *phase, const char *name, struct figure f)
{
	printf("%-6s %-22s %10.0f %10.0f %7.2f\n", phase, name, f.capacity, f.both, ratio(f));
}

/* One that runs again has its number behind its name. */
static void phase_name(const struct bench *b, unsigned i, char name[16])
{
	unsigned n = 1;

	for (unsigned k = 0; k < i; k++)
		n += b->phase[k].mix->name == b->phase[i].mix->name;
	if (n > 1)
		snprintf(name, 16, "%s %u", b->phase[i].mix->name, n);
	else
		snprintf(name, 16, "%s", b->phase[i].mix->name);
}

static void text_phase(const char *name, const struct bench_phase *a, const struct bench_phase *z,
		       uint64_t ideal)
{
	struct figure w = written_of(a, z), space = space_of(a, z);
	char s[SIZE_STR], t[SIZE_STR], what[32];
	unsigned op;

	row_rate(name, "operations/s", rate_of(a, z, false));
	row_rate(name, "operations/s, drained", rate_of(a, z, true));
	for (op = 0; op < BENCH_OPS; op++) {
		struct figure f = p999_of(a, z, op);

		if (!a->hist[op].count)
			continue;
		snprintf(what, sizeof(what), "p99.9 of %s", bench_op_name[op]);
		printf("%-6s %-22s %10s %10s %7.2f\n", name, what,
		       time_str(s, (uint64_t)f.capacity), time_str(t, (uint64_t)f.both), ratio(f));
	}
	printf("%-6s %-22s %10.2f %10.2f %7.2f\n", name, "space per living byte",
	       space.capacity, space.both, ratio(space));
	if (!(w.capacity > 0))
		return;
	printf("%-6s %-22s %10s %10s %7.2f\n", name, "written to capacity",
	       size_str(s, (uint64_t)w.capacity), size_str(t, (uint64_t)w.both), ratio(w));
	if (ideal)
		printf("%-6s %-22s %10s %10s %7.2f\n", name, "at least", "",
		       size_str(t, ideal), (double)ideal / w.capacity);
}

static void compare_text(const struct bench *a, const struct bench *z, const uint64_t *ideal)
{
	char s[SIZE_STR], name[16];
	unsigned i;

	bench_text_config(z);
	printf("staging %s\n\n%-6s %-22s %10s %10s %7s\n", size_str(s, z->staging_size), "PHASE",
	       "FIGURE", "CAPACITY", "BOTH", "RATIO");
	for (i = 0; i < z->nphases; i++) {
		phase_name(z, i, name);
		text_phase(name, &a->phase[i], &z->phase[i], ideal[i]);
	}
	printf("capacity: that class alone; both: staging in front of it; ratio: both by "
	       "capacity\n"
	       "a workload that runs again: the first time may leave relocation for later, until "
	       "space\n"
	       "is at its bound; the second time pays\n"
	       "at least: if staging held nothing but values, the one written longest ago left,\n"
	       "and none moved for space\n");
}

int bench_compare(struct bench *b)
{
	struct bench *first = aligned_alloc(_Alignof(struct bench), sizeof(*first));
	uint64_t ideal[BENCH_PHASES];
	int rc;

	if (!first)
		return ui_fail(b->ui, NULL, -ENOMEM, NULL);
	ui_note(b->ui, "capacity alone");
	rc = bench_once(b);
	memcpy(first, b, sizeof(*first));
	b->nphases = 0;
	b->staging_size = staging_bytes(b);
	ui_note(b->ui, "staging in front of it");
	if (!rc)
		rc = bench_once(b);
	if (!rc)
		bench_ideal(b, ideal);
	if (b->store.compress)	/* that is of values as they are */
		memset(ideal, 0, sizeof(ideal));
	if (!rc && b->ui->json)
		compare_json(first, b, ideal);
	else if (!rc)
		compare_text(first, b, ideal);
	free(first);
	return rc;
}
