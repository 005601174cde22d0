/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Main program of the comparison: the command line, the store, and the order of
 * passes. A process runs one workload, so that memory, processor time and I/O
 * of the process are the engine's and the driver's alone; compare.py starts it.
 *
 * load          all records into a new store
 * others        on a store that was loaded: every record is read once (unless
 *               --cold), then the workload is measured
 * recover       opens a store whose loader was killed and looks what is left
 */
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench_value.h"
#include "size.h"
#include "ycsb.h"

static const struct option options[] = {
	{ "workload", required_argument, NULL, 'w' },
	{ "dir", required_argument, NULL, 'd' },
	{ "records", required_argument, NULL, 'r' },
	{ "ops", required_argument, NULL, 'o' },
	{ "threads", required_argument, NULL, 't' },
	{ "in-flight", required_argument, NULL, 'n' },
	{ "batch", required_argument, NULL, 'b' },
	{ "fields", required_argument, NULL, 'f' },
	{ "field-size", required_argument, NULL, 's' },
	{ "cache", required_argument, NULL, 'c' },
	{ "interval", required_argument, NULL, 'i' },
	{ "distribution", required_argument, NULL, 'D' },
	{ "seconds", required_argument, NULL, 'S' },
	{ "seed", required_argument, NULL, 'e' },
	{ "versions", required_argument, NULL, 'v' },
	{ "cold", no_argument, NULL, 'C' },
	{ "sync", no_argument, NULL, 'y' },
	{ "kill", no_argument, NULL, 'k' },
	{ NULL, 0, NULL, 0 },
};

static const char usage[] =
	"usage: %s --workload load|a|b|c|d|e|f|update|scan|recover --dir DIR [OPTION]...\n"
	"  --records N       records that are loaded (default 1000000)\n"
	"  --ops N           operations of the workload (default: records)\n"
	"  --threads N       that do them (default 4)\n"
	"  --in-flight N     of each thread, in calls that do not wait (default: calls that wait)\n"
	"  --batch N         load: so many puts in one write (default: one by one)\n"
	"  --fields N --field-size BYTES  of a record; one value holds all (default 10, 100)\n"
	"  --cache SIZE      memory budget of the engine (default 1G)\n"
	"  --interval MS     loss bound in milliseconds (default 100)\n"
	"  --distribution zipfian|latest|uniform  (default: as the workload says)\n"
	"  --seconds N       end the workload then\n"
	"  --seed N          of the choosers (default 1)\n"
	"  --versions FILE   carries what was written from one process to the next\n"
	"  --cold            do not read every record once first\n"
	"  --sync            every put is durable when it returns\n"
	"  --kill            load: end by SIGKILL at the last acknowledgement\n";

void die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("error: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	_exit(1);
}

static uint64_t number(const char *s, uint64_t max)
{
	char *end;
	uint64_t n = strtoull(s, &end, 10);

	if (end == s || *end || n > max)
		die("\"%s\" is not a number up to %" PRIu64, s, max);
	return n;
}

static uint64_t size(const char *s)
{
	uint64_t n;

	if (size_parse(s, &n))
		die("\"%s\" is not a size", s);
	return n;
}

static int dist_of(const char *s)
{
	for (int i = 0; i <= BENCH_UNIFORM; i++)
		if (!strcmp(s, bench_dist_name[i]))
			return i;
	die("\"%s\" is no distribution", s);
}

static void workload_of(struct ycsb *y, const char *s)
{
	y->is_recover = !strcmp(s, "recover");
	y->mix = bench_mix_find(y->is_recover ? "c" : s, y->is_recover ? 1 : strlen(s));
	if (!y->mix)
		die("\"%s\" is no workload", s);
}

static void parse(struct ycsb *y, int argc, char **argv)
{
	uint64_t fields = 10, field_size = 100;
	int opt;

	y->records = 1000000;
	y->seed = 1;
	y->dist = -1;
	y->o = (struct engine_opts){ .cache_bytes = 1ull << 30, .threads = 4, .interval_ms = 100 };
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'w': workload_of(y, optarg); break;
		case 'd': y->o.dir = optarg; break;
		case 'r': y->records = number(optarg, YCSB_RECORDS_MAX / 4); break;
		case 'o': y->ops = number(optarg, YCSB_RECORDS_MAX / 4); break;
		case 't': y->o.threads = (unsigned)number(optarg, YCSB_THREADS); break;
		case 'n': y->o.in_flight = (unsigned)number(optarg, YCSB_IN_FLIGHT); break;
		case 'b': y->batch = (unsigned)number(optarg, ENGINE_WRITES); break;
		case 'f': fields = number(optarg, 1024); break;
		case 's': field_size = number(optarg, 1024 * 1024); break;
		case 'c': y->o.cache_bytes = size(optarg); break;
		case 'i': y->o.interval_ms = (unsigned)number(optarg, 1000000); break;
		case 'D': y->dist = dist_of(optarg); break;
		case 'S': y->seconds = (unsigned)number(optarg, 1000000); break;
		case 'e': y->seed = number(optarg, UINT64_MAX); break;
		case 'v': y->versions_file = optarg; break;
		case 'C': y->is_cold = true; break;
		case 'y': y->o.is_sync = true; break;
		case 'k': y->is_kill = true; break;
		default: fprintf(stderr, usage, argv[0]); exit(2);
		}
	}
	y->value_size = fields * field_size;
	if (!y->ops)
		y->ops = y->records;
	if ((uint64_t)y->o.in_flight * y->o.threads > YCSB_IN_FLIGHT)
		die("more than %u operations in flight", YCSB_IN_FLIGHT);
	if (optind != argc || !y->mix || !y->o.dir || !y->records || !y->o.threads ||
	    !y->o.interval_ms || y->value_size < BENCH_HEADER) {
		fprintf(stderr, usage, argv[0]);
		exit(2);
	}
}

/* ---- versions from one process to the next -------------------------------------- */

static void versions_init(struct ycsb *y)
{
	uint64_t have = y->records;
	FILE *f = NULL;

	if (y->versions_file && !y->mix->is_load && !y->is_recover)
		f = fopen(y->versions_file, "re");
	if (f && fread(&have, sizeof(have), 1, f) != 1)
		die("%s: too short", y->versions_file);
	y->nversions = have + (y->mix->pct[OP_INSERT] && !y->mix->is_load ? y->ops : 0);
	y->versions = mmap(NULL, y->nversions * sizeof(*y->versions), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (y->versions == MAP_FAILED)
		die("no memory for the versions of %" PRIu64 " records", y->nversions);
	/* looked at in each operation, at random */
	madvise(y->versions, y->nversions * sizeof(*y->versions), MADV_HUGEPAGE);
	if (f && fread(y->versions, sizeof(*y->versions), have, f) != have)
		die("%s: too short", y->versions_file);
	if (f)
		fclose(f);
	y->first_record = have;
	bench_seq_init(&y->seq, have);
}

static void versions_save(const struct ycsb *y)
{
	uint64_t have = bench_seq_limit(&y->seq);
	FILE *f;

	if (!y->versions_file)
		return;
	f = fopen(y->versions_file, "we");
	if (!f || fwrite(&have, sizeof(have), 1, f) != 1 ||
	    fwrite(y->versions, sizeof(*y->versions), have, f) != have || fclose(f))
		die("%s: %s", y->versions_file, strerror(errno));
}

/* ---- the store -------------------------------------------------------------------- */

static uint64_t space_sum;

static int space_add(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)path;
	(void)ftw;
	if (type == FTW_F)
		space_sum += (uint64_t)st->st_blocks * 512;
	return 0;
}

static void store_open(struct ycsb *y)
{
	uint64_t begun;

	if (y->mix->is_load && mkdir(y->o.dir, 0700) && errno != EEXIST)
		die("%s: %s", y->o.dir, strerror(errno));
	y->o.is_new = y->mix->is_load || y->e->is_volatile;
	y->o.data_bytes = y->nversions * (y->value_size + BENCH_KEY_MAX);
	begun = bench_now_ns();
	y->e->open(&y->o);
	y->open_ns = bench_now_ns() - begun;
}

static void measure(struct ycsb *y)
{
	enum ycsb_pass pass = y->is_recover ? PASS_FIND : y->mix->is_load ? PASS_LOAD : PASS_MIX;

	if (y->e->is_volatile && pass == PASS_MIX)
		ycsb_pass(y, PASS_LOAD, NULL, NULL);
	/* first: what it moves would be cold again */
	if (pass != PASS_LOAD && y->e->drain)
		y->e->drain();
	if (pass == PASS_MIX && !y->is_cold)
		ycsb_pass(y, PASS_WARM, NULL, NULL);
	bench_peak_reset();
	if (y->e->count)
		y->e->count();
	ycsb_pass(y, pass, &y->begin, &y->ack);
	if (y->e->drain)
		y->e->drain();
	ycsb_edge_read(&y->end);
	y->peak_rss = bench_peak_rss();
	space_sum = 0;
	nftw(y->o.dir, space_add, 16, FTW_PHYS);
	y->space_bytes = space_sum;
}

static void threads_alloc(struct ycsb *y)
{
	y->thr = aligned_alloc(_Alignof(struct ycsb_thread), y->o.threads * sizeof(*y->thr));
	if (!y->thr)
		die("no memory for %u threads", y->o.threads);
	memset(y->thr, 0, y->o.threads * sizeof(*y->thr));
	for (unsigned i = 0; i < y->o.threads; i++) {
		y->thr[i].y = y;
		y->thr[i].id = i;
		y->thr[i].val = malloc(y->value_size * (y->batch ? y->batch : 1));
		if (!y->thr[i].val)
			die("no memory for %u threads", y->o.threads);
	}
}

int ycsb_main(int argc, char **argv, const struct engine *e)
{
	static struct ycsb y;

	y.e = e;
	parse(&y, argc, argv);
	if (e->is_volatile)
		y.versions_file = NULL;
	if (y.mix->pct[OP_SCAN] && !e->scan)
		die("%s has no order of keys", e->name);
	if (y.o.in_flight && (!e->submit || y.mix->pct[OP_SCAN] || y.is_recover || y.is_kill))
		die("%s has no calls that do not wait for this workload", e->name);
	if (y.batch && (!e->write || !y.mix->is_load || y.o.in_flight))
		die("%s has no batches for this workload", e->name);
	bench_clock_init();
	bench_noise_init(0);
	versions_init(&y);
	threads_alloc(&y);
	store_open(&y);
	measure(&y);
	ycsb_report(&y);
	e->close();
	versions_save(&y);
	for (unsigned i = 0; i < y.o.threads; i++)
		free(y.thr[i].val);
	free(y.thr);
	munmap(y.versions, y.nversions * sizeof(*y.versions));
	return 0;
}
