/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb bench: what was asked for, the database it runs on, the order of
 * phases. Without a database it makes a pool on plain files and removes it at
 * the end, also after an error or Ctrl-C.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "size.h"

const struct opt bench_opts[] = {
	{ "workload", 'w', OPT_STR, 0, "LIST",
	  "what to run, in this order: load, a, b, c, d, e, f, update, scan, separated by commas "
	  "(default load,a,c)", "workload", NULL },
	{ "records", 0, OPT_UINT, 0, "N", "records in the store (default 1000000)", "records",
	  NULL },
	{ "ops", 0, OPT_UINT, 0, "N", "operations of each workload after load (default: records)",
	  "ops", NULL },
	{ "threads", 't', OPT_UINT, 0, "N", "threads that do operations (default 4)", "threads",
	  NULL },
	{ "in-flight", 0, OPT_UINT, 0, "N",
	  "operations that each thread keeps in flight through a completion queue, in workloads "
	  "a, b and c (default: blocking calls)", "in-flight", NULL },
	{ "value-size", 0, OPT_SIZE, 0, "BYTES", "value size (default fields times field-size)",
	  "value-size", NULL },
	{ "fields", 0, OPT_UINT, 0, "N", "fields of a record as in YCSB (default 10)", "fields",
	  NULL },
	{ "field-size", 0, OPT_SIZE, 0, "BYTES", "size of a field (default 100)", "field-size",
	  NULL },
	{ "compressible", 0, OPT_UINT, 0, "PERCENT",
	  "part of each value that is zeros, 0 to 99, the same in all runs on one database "
	  "(default 0: noise)", "compressible", NULL },
	KVS_OPT_COMPRESS,
	{ "distribution", 0, OPT_ENUM, 0, "NAME",
	  "choice of keys: zipfian, latest or uniform (default: as the workload says)",
	  "distribution", "zipfian|latest|uniform" },
	{ "seed", 0, OPT_UINT, 0, "N", "seed of the key choosers (default 1)", "seed", NULL },
	{ "verify", 0, OPT_ENUM, 0, "HOW",
	  "check of every value read: sample (length, key, version and a sample of its bytes) or "
	  "full (all bytes); default sample", "verify", "sample|full" },
	{ "dir", 0, OPT_STR, 0, "DIR", "where to make the pool when no DB is given (default .)",
	  "dir", NULL },
	{ "prefault", 0, OPT_FLAG, 0, NULL,
	  "take the memory of the cache from the system before the first operation", NULL, NULL },
	{ "keep", 0, OPT_FLAG, 0, NULL, "do not remove the pool that was made", NULL, NULL },
	{ "size", 0, OPT_SIZE, 0, "SIZE",
	  "capacity of the pool to make (default: what is needed)", "size", NULL },
	{ "staging-size", 0, OPT_SIZE, 0, "SIZE",
	  "staging class of the pool to make (default none)", "staging-size", NULL },
	{ "classes", 0, OPT_ENUM, 0, "WHICH",
	  "media classes of the pool to make: capacity; both, staging with a tenth of the data; or "
	  "compare, one after the other. Capacity is slowed down by device layers: those of "
	  "MPOOL_DEV, or else " BENCH_LAYERS ". Default for --workload "
	  "then: load,a,a; for --records: 400000; for --ops: twice the records; for --threads: 32; "
	  "for --cache: an eighth of the data, at least 64M",
	  "classes", "capacity|both|compare" },
	{ "missing", 0, OPT_FLAG, 0, NULL, "load only records that are not there", NULL, NULL },
	{ "journal", 0, OPT_STR, 0, "FILE",
	  "note the time of every acknowledged put of load in FILE, outside the pool; what was "
	  "noted there before goes", NULL, NULL },
	{ "check", 0, OPT_STR, 0, "FILE",
	  "instead of running workloads, prove from a journal that DB lost nothing but what the "
	  "loss bound allows", NULL, NULL },
	DB_OPTS_WRITE,
	{ .name = NULL },
};

/* one per process; the handler touches nothing else */
static uint64_t *stop_flag;

static void on_signal(int sig)
{
	(void)sig;
	__atomic_store_n(stop_flag, 1, __ATOMIC_RELAXED);
}

static int parse_workloads(struct bench *b, const char *list)
{
	while (*list) {
		size_t n = strcspn(list, ",");
		const struct bench_mix *mix;

		mix = bench_mix_find(list, n);
		if (!mix)
			return ui_usage(b->ui, "--workload: \"%.*s\" is none of load a b c d e f "
					"update scan", (int)n, list);
		if (b->nmixes == BENCH_PHASES)
			return ui_usage(b->ui, "--workload: more than %u", BENCH_PHASES);
		b->mixes[b->nmixes++] = *mix;
		list += n;
		list += *list == ',';
	}
	return b->nmixes ? EXIT_DONE : ui_usage(b->ui, "--workload: empty");
}

static int parse_numbers(struct bench *b)
{
	const struct args *a = b->ui->args;
	uint64_t fields = args_num(a, "fields", 10), size = args_num(a, "field-size", 100);
	uint64_t threads = args_num(a, "threads", b->classes ? BENCH_CLIENTS : 4);

	b->records = args_num(a, "records", b->classes ? BENCH_CLASS_RECORDS : 1000000);
	/* from one to the next: each value is overwritten once at the mean */
	b->ops = args_num(a, "ops", b->classes ? 2 * b->records : b->records);
	b->seed = args_num(a, "seed", 1);
	b->has_size = args_has(a, "value-size") || args_has(a, "fields") ||
		      args_has(a, "field-size");
	if (fields > KVDB_VALUE_MAX || size > KVDB_VALUE_MAX)
		return ui_usage(b->ui, "a value has at most %u bytes", KVDB_VALUE_MAX);
	b->value_size = args_num(a, "value-size", fields * size);
	if (b->value_size > KVDB_VALUE_MAX)
		return ui_usage(b->ui, "a value has at most %u bytes", KVDB_VALUE_MAX);
	if (args_num(a, "compressible", 0) > 99)
		return ui_usage(b->ui, "--compressible: 0 to 99 percent");
	b->zeros = (unsigned)args_num(a, "compressible", 0);
	if (!threads || threads > BENCH_THREADS)
		return ui_usage(b->ui, "--threads: 1 to %u", BENCH_THREADS);
	if (!b->records || b->records > 1000000000000ull || b->ops > 1000000000000ull)
		return ui_usage(b->ui, "--records, --ops: 1 to 10^12");
	b->threads = (unsigned)threads;
	if (args_num(a, "in-flight", 0) > 10000)
		return ui_usage(b->ui, "--in-flight: 1 to 10000");
	b->inflight = (unsigned)args_num(a, "in-flight", 0);
	return EXIT_DONE;
}

static int parse(struct bench *b)
{
	const struct args *a = b->ui->args;
	int rc;

	b->path = a->n ? a->v[0] : NULL;
	b->dir = args_str(a, "dir", ".");
	b->journal_file = args_str(a, "journal", NULL);
	b->is_keep = args_has(a, "keep");
	b->is_full = args_num(a, "verify", 0) == 1;
	b->is_missing = args_has(a, "missing");
	b->dist = args_has(a, "distribution") ? (int)args_num(a, "distribution", 0) : -1;
	b->size = args_num(a, "size", 0);
	b->staging_size = args_num(a, "staging-size", 0);
	b->classes = args_has(a, "classes") ? args_num(a, "classes", 0) + 1 : BENCH_AS_SIZED;
	b->run = (uint8_t)(1 + (bench_now_ns() >> 10 ^ (uint64_t)getpid()) % 255);
	rc = parse_numbers(b);
	if (!rc)
		rc = parse_workloads(b, args_str(a, "workload",
						 b->classes ? "load,a,a" : "load,a,c"));
	if (!rc)
		rc = bench_classes_parse(b);
	if (rc)
		return rc;
	if (!b->path && !b->mixes[0].is_load) {
		if (b->nmixes == BENCH_PHASES)
			return ui_usage(b->ui, "--workload: more than %u", BENCH_PHASES);
		memmove(b->mixes + 1, b->mixes, b->nmixes * sizeof(b->mixes[0]));
		b->mixes[0] = *bench_mix_find("load", 4);
		b->nmixes++;
	}
	if (b->path && (b->size || b->staging_size || b->is_keep || args_has(a, "dir")))
		return ui_usage(b->ui, "--dir, --keep, --size and --staging-size are for the pool "
				"that bench makes when no DB is given");
	return EXIT_DONE;
}

/* ---- the database --------------------------------------------------------- */

/* bytes that all phases together may write, and room for merges */
static uint64_t space_needed(const struct bench *b)
{
	uint64_t writes = 0;
	unsigned i;

	for (i = 0; i < b->nmixes; i++) {
		const struct bench_mix *m = &b->mixes[i];

		if (m->is_load)
			writes += b->records;
		else
			writes += b->ops / 100 *
				  (m->pct[OP_UPDATE] + m->pct[OP_INSERT] + m->pct[OP_RMW]);
	}
	return ((writes * (b->value_size + 128) * 13 / 10 + (1u << 30)) + 0xfffff) & ~0xfffffull;
}

static int make_db(struct bench *b, const struct db_opts *o)
{
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct mpool_dev_spec dev[2] = { { .mclass = MPOOL_CAPACITY },
					 { .mclass = MPOOL_STAGING } };
	char path[sizeof(b->made)], a[SIZE_STR], z[SIZE_STR];
	struct statvfs vfs;
	uint64_t need;
	int rc;

	if ((size_t)snprintf(path, sizeof(path), "%s/kvdb-bench.%d", b->dir, (int)getpid()) >=
	    sizeof(path))
		return ui_usage(b->ui, "--dir: too long");
	dev[0].size = b->size ? b->size : space_needed(b);
	dev[1].size = b->staging_size;
	need = dev[0].size + dev[1].size;
	if (!statvfs(b->dir, &vfs) && (uint64_t)vfs.f_bavail * vfs.f_frsize < need)
		return ui_error(b->ui, EXIT_FAILED, b->dir,
				"fewer --records, a smaller --size, or another --dir",
				"%s are needed and %s are free", size_str(a, need),
				size_str(z, (uint64_t)vfs.f_bavail * vfs.f_frsize));
	co.uid = (uint32_t)getuid();
	co.gid = (uint32_t)getgid();
	co.devs = dev;
	co.ndevs = dev[1].size ? 2 : 1;
	rc = mpool_create(path, &co);
	if (rc)
		return ui_fail(b->ui, path, rc, mpool_error_detail());
	memcpy(b->made, path, sizeof(path));
	rc = kvdb_create(path, &o->kv);
	return rc ? db_fail(b->ui, path, rc) : EXIT_DONE;
}

static int open_store(struct bench *b, const char *path, const struct db_opts *o)
{
	struct kvdb_kvs_opts opts;
	struct kvdb_stats st;
	unsigned mask;
	int rc = kvdb_open(path, &o->kv, &b->db);

	if (rc)
		return db_fail(b->ui, path, rc);
	if (!kvdb_stats(b->db, &st))
		b->recovery = st.recovery;
	kvdb_info(b->db, &b->info);
	rc = kvs_args(b->ui, &opts, &mask);
	if (rc)
		return rc;
	rc = kvdb_kvs_open(b->db, BENCH_STORE, &b->kvs);
	if (rc == -ENOENT && b->mixes[0].is_load) {
		rc = kvdb_kvs_create(b->db, BENCH_STORE, &opts);
		if (!rc)
			rc = kvdb_kvs_open(b->db, BENCH_STORE, &b->kvs);
	} else if (!rc && mask) {
		return ui_usage(b->ui, "the store %s is there, kvdb set changes how it is "
				"compressed", BENCH_STORE);
	}
	if (!rc)
		rc = kvdb_kvs_info(b->kvs, &b->store);
	return rc ? db_fail(b->ui, BENCH_STORE, rc) : EXIT_DONE;
}

/* Without a load the records must be there; their size is taken from the first. */
static int check_store(struct bench *b)
{
	uint64_t ends[2] = { 0, b->records - 1 };
	char key[BENCH_KEY_MAX];
	size_t vlen = 0;
	int i, rc;

	for (i = 1; i >= 0; i--) {
		rc = kvdb_get(b->kvs, key, bench_key(key, bench_fnv64(ends[i])), NULL, 0, &vlen);
		if (rc == -ENOENT)
			return ui_error(b->ui, EXIT_USAGE, b->path, "--records, or load first",
					"the store %s does not hold %" PRIu64 " records",
					BENCH_STORE, b->records);
		if (rc)
			return db_fail(b->ui, BENCH_STORE, rc);
	}
	if (b->has_size && vlen != b->value_size)
		return ui_usage(b->ui, "the records there have %zu bytes, not %" PRIu64, vlen,
				b->value_size);
	b->value_size = vlen;
	return EXIT_DONE;
}

static int alloc_threads(struct bench *b)
{
	unsigned i;

	b->thr = aligned_alloc(_Alignof(struct bench_thread), b->threads * sizeof(*b->thr));
	if (!b->thr)
		return ui_fail(b->ui, "threads", -ENOMEM, NULL);
	memset(b->thr, 0, b->threads * sizeof(*b->thr));
	for (i = 0; i < b->threads; i++) {
		struct bench_thread *t = &b->thr[i];

		t->b = b;
		t->id = i;
		t->val = malloc(b->value_size + 64);
		t->buf = malloc(b->value_size + 64);
		if (!t->val || !t->buf)
			return ui_fail(b->ui, "threads", -ENOMEM, NULL);
	}
	return EXIT_DONE;
}

static void free_threads(struct bench *b)
{
	unsigned i;

	for (i = 0; b->thr && i < b->threads; i++) {
		free(b->thr[i].val);
		free(b->thr[i].buf);
	}
	free(b->thr);
	b->thr = NULL;
}

static int run_phases(struct bench *b)
{
	unsigned i;
	int rc = b->mixes[0].is_load ? EXIT_DONE : check_store(b);

	if (!rc)
		rc = alloc_threads(b);
	bench_seq_init(&b->seq, b->records);
	if (!rc && b->journal_file)
		rc = bench_journal_make(b);
	for (i = 0; i < b->nmixes && !rc; i++)
		rc = bench_run(b, &b->mixes[i]);
	return rc;
}

int bench_once(struct bench *b)
{
	const char *path = b->path ? b->path : b->made;
	struct db_opts o;
	int rc = db_opts(b->ui, &o, args_has(b->ui->args, "prefault") ? KVDB_PREFAULT : 0), err;

	if (b->layers[0])
		o.pool.dev = b->layers;
	if (!o.kv.cache_bytes)
		o.kv.cache_bytes = b->cache;
	if (!rc && !b->path)
		rc = make_db(b, &o);
	if (!rc)
		rc = open_store(b, path, &o);
	if (!rc)
		rc = run_phases(b);
	free_threads(b);
	if (b->db)
		rc = db_close(b->ui, path, b->db, rc);
	b->db = NULL;
	if (b->made[0] && !b->is_keep) {
		err = mpool_destroy(b->made, &o.pool);
		if (err && !rc)
			rc = ui_fail(b->ui, b->made, err, mpool_error_detail());
	} else if (b->made[0]) {
		ui_note(b->ui, "the pool stays at %s; mpool destroy removes it", b->made);
	}
	return rc;
}

static int bench_main(struct bench *b)
{
	int rc = bench_once(b);

	if (!rc && b->ui->json)
		bench_report_json(b);
	else if (!rc)
		bench_report_text(b);
	return rc;
}

int verb_bench(struct ui *ui)
{
	const char *check = args_str(ui->args, "check", NULL);
	struct bench *b = aligned_alloc(_Alignof(struct bench), sizeof(*b));
	int rc;

	if (!b)
		return ui_fail(ui, NULL, -ENOMEM, NULL);
	memset(b, 0, sizeof(*b));
	b->ui = ui;
	pthread_mutex_init(&b->lock, NULL);
	bench_clock_init();
	stop_flag = &b->stop;
	ui_on_stop(on_signal);
	rc = parse(b);
	bench_noise_init(b->zeros);
	if (!rc && check && !b->path)
		rc = ui_usage(ui, "--check needs the database");
	if (!rc && b->classes == BENCH_COMPARE)
		rc = bench_compare(b);
	else if (!rc)
		rc = check ? bench_check(b, check) : bench_main(b);
	/* a second Ctrl-C ends the process; from here on the first does too */
	ui_on_stop(SIG_DFL);
	bench_journal_close(b->journal);
	free(b->journal);
	free(b);
	return rc;
}
