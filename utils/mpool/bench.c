/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool bench: what a device is good for, and the loss bound that it can keep.
 *
 * A database may promise to lose at most so many milliseconds only when a flush
 * takes less than half of that: while one flush runs, the next epoch fills. So
 * the smallest honest bound is twice the flush time that 999 in 1000 keep.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <linux/fs.h>
#include <unistd.h>

#include "bench.h"
#include "confirm.h"
#include "mpool.h"
#include "progress.h"
#include "size.h"
#include "table.h"

#define SIZE_DEFAULT (1ull << 30)
#define SIZE_MIN (4ull << 20)
#define PIECE (64ull << 20)           /* allocated between two looks for a signal */
#define STAGING_FLUSH_NS 2000000ull   /* p99 of a flush */
#define STAGING_WRITE 100000000ull    /* bytes per second */
#define CAPACITY_READ 50000000ull

const struct opt bench_opts[] = {
	{ "size", 's', OPT_SIZE, 0, "SIZE", "bytes to write and read, else 1G", NULL, NULL },
	{ "runtime", 0, OPT_TIME, 0, "TIME", "length of each timed job, else 5s", NULL, NULL },
	{ "force", 'f', OPT_FLAG, 0, NULL, "overwrite a device that holds something", NULL, NULL },
	CONFIRM_OPTS,
	PLAN_OPT,
	TBL_OPTS,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static const struct col bench_cols[] = {
	{ "job", COL_STR, true, "what was measured" },
	{ "op", COL_STR, true, "read, write or flush" },
	{ "bandwidth", COL_SIZE, true, "bytes per second" },
	{ "iops", COL_COUNT, true, "requests per second" },
	{ "p50", COL_TIME, true, "latency that half of the requests keep" },
	{ "p99", COL_TIME, true, "latency that 99 of 100 keep" },
	{ "p999", COL_TIME, true, "latency that 999 of 1000 keep" },
	{ NULL, 0, false, NULL },
};

struct job {
	const char *name, *rw, *bs;
	unsigned depth;
	bool is_timed, is_verified, is_synced;
};

enum { SEQ_WRITE, SEQ_READ, READ_1, READ_32, SYNC, MIXED, JOBS };

static const struct job jobs[JOBS] = {
	[SEQ_WRITE] = { "sequential-write", "write", "1M", 16, false, true, false },
	[SEQ_READ] = { "sequential-read", "read", "1M", 16, true, false, false },
	[READ_1] = { "random-read-1", "randread", "4k", 1, true, false, false },
	[READ_32] = { "random-read-32", "randread", "4k", 32, true, false, false },
	[SYNC] = { "write-and-flush", "randwrite", "4k", 1, true, false, true },
	[MIXED] = { "mixed-70-30", "randrw", "4k", 16, true, false, false },
};

struct bench {
	struct ui *ui;
	const char *path;
	int fd;             /* holds the device; -1 */
	bool is_block, is_made, is_direct;
	uint64_t size, runtime_s;
	char signature[160];
	struct bench_result result[JOBS];
};

static volatile sig_atomic_t is_stopped;

static void on_signal(int sig)
{
	(void)sig;
	is_stopped = 1;
}

/* ---- the device or file ---- */

static int device_open(struct bench *b)
{
	struct ui *ui = b->ui;
	uint64_t bytes = 0;
	bool has_data = signature_find(b->path, b->signature, sizeof(b->signature));

	b->is_block = true;
	if (has_data && !args_has(ui->args, "force"))
		return ui_error(ui, EXIT_REFUSED, b->path, "use -f to overwrite",
				"it holds: %s", b->signature);
	b->fd = open(b->path, O_RDWR | O_EXCL | O_CLOEXEC);
	if (b->fd < 0 && errno == EBUSY)
		return ui_error(ui, EXIT_BUSY, b->path, "close what uses it",
				"the device is in use");
	if (b->fd < 0 || ioctl(b->fd, BLKGETSIZE64, &bytes))
		return ui_fail(ui, b->path, -errno, NULL);
	if (bytes < SIZE_MIN)
		return ui_error(ui, EXIT_USAGE, b->path, NULL, "the device is too small");
	if (b->size > bytes)
		b->size = bytes / SIZE_MIN * SIZE_MIN;
	b->is_direct = true;
	return EXIT_DONE;
}

static int interrupted(const struct bench *b)
{
	return ui_error(b->ui, EXIT_FAILED, b->path, NULL, "interrupted");
}

/* Where no file system helps every block of it is written, and no signal ends that. */
static int file_allocate(const struct bench *b)
{
	uint64_t at = 0, n;
	int rc = 0;

	while (at < b->size && !rc && !is_stopped) {
		n = b->size - at < PIECE ? b->size - at : PIECE;
		rc = posix_fallocate(b->fd, (off_t)at, (off_t)n);
		if (!rc)
			at += n;
		else if (rc == EINTR)
			rc = 0;
	}
	if (is_stopped)
		return interrupted(b);
	return rc ? ui_fail(b->ui, b->path, -rc, NULL) : EXIT_DONE;
}

static int file_make(struct bench *b)
{
	int fd, rc;

	b->fd = open(b->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (b->fd < 0 && errno == EEXIST)
		return ui_error(b->ui, EXIT_REFUSED, b->path, "give a path that is free: the file "
				"is made and removed", "there is a file already");
	if (b->fd < 0)
		return ui_fail(b->ui, b->path, -errno, NULL);
	b->is_made = true;
	rc = file_allocate(b);
	if (rc)
		return rc;
	fd = open(b->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	b->is_direct = fd >= 0;
	if (fd >= 0)
		close(fd);
	return EXIT_DONE;
}

/* What is at the path; nothing is written yet. */
static int bench_look(struct bench *b)
{
	struct stat st;
	int rc;

	rc = stat(b->path, &st) ? -errno : 0;
	if (!rc && S_ISBLK(st.st_mode))
		return device_open(b);
	if (!rc)
		return ui_error(b->ui, EXIT_REFUSED, b->path,
				"give a block device, or a path that is free",
				"there is %s already", S_ISDIR(st.st_mode) ? "a folder" : "a file");
	return rc == -ENOENT ? EXIT_DONE : ui_fail(b->ui, b->path, rc, NULL);
}

static void bench_clean(struct bench *b)
{
	if (b->fd >= 0)
		close(b->fd);
	if (b->is_made)
		unlink(b->path);
}

/* ---- running ---- */

struct argv {
	char *v[BENCH_ARGS];
	unsigned n;
};

static void arg(struct argv *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void arg(struct argv *a, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (a->n + 1 < BENCH_ARGS && vasprintf(&a->v[a->n], fmt, ap) >= 0)
		a->n++;
	va_end(ap);
}

/* fio splits file names at ':' unless it is escaped */
static void arg_filename(struct argv *a, const char *path)
{
	char name[2 * POOL_PATH_MAX + 16];
	size_t n = 0;

	for (const char *p = path; *p && n + 2 < sizeof(name); p++) {
		if (*p == ':' || *p == '\\')
			name[n++] = '\\';
		name[n++] = *p;
	}
	name[n] = '\0';
	arg(a, "--filename=%s", name);
}

static void job_args(const struct bench *b, const struct job *j, struct argv *a)
{
	memset(a, 0, sizeof(*a));
	arg(a, "fio");
	arg(a, "--name=%s", j->name);
	arg_filename(a, b->path);
	arg(a, "--rw=%s", j->rw);
	arg(a, "--bs=%s", j->bs);
	arg(a, "--size=%llu", (unsigned long long)b->size);
	arg(a, "--direct=%d", b->is_direct);
	arg(a, "--iodepth=%u", j->depth);
	/* one request at a time is cheapest without a queue, and fdatasync needs none */
	arg(a, "--ioengine=%s", j->depth == 1 ? "psync" : has_io_uring() ? "io_uring" : "libaio");
	arg(a, "--allow_file_create=0");
	arg(a, "--randrepeat=0");
	arg(a, "--norandommap=1");
	arg(a, "--percentile_list=50:99:99.9");
	arg(a, "--output-format=json");
	arg(a, "--eta=never");
	if (j->is_timed) {
		arg(a, "--time_based=1");
		arg(a, "--runtime=%llu", (unsigned long long)b->runtime_s);
	}
	if (j->is_verified) {
		arg(a, "--verify=crc32c");
		arg(a, "--do_verify=1");
		arg(a, "--verify_fatal=1");
		arg(a, "--verify_state_save=0");
		arg(a, "--end_fsync=1");
	}
	if (j->is_synced)
		arg(a, "--fdatasync=1");
	if (!strcmp(j->rw, "randrw"))
		arg(a, "--rwmixread=70");
}

static int bench_job(struct bench *b, unsigned i)
{
	struct argv a;
	char why[256];
	int rc;

	job_args(b, &jobs[i], &a);
	rc = bench_fio(a.v, &b->result[i], why, sizeof(why));
	while (a.n)
		free(a.v[--a.n]);
	if (is_stopped || rc == -EINTR)
		return interrupted(b);
	if (rc == -ENOENT)
		return ui_error(b->ui, EXIT_UNSUPPORTED, NULL, "apt-get install fio",
				"fio is not installed");
	if (rc == -EILSEQ)
		return ui_error(b->ui, EXIT_DAMAGE, b->path, "do not use this device",
				"what was read is not what was written: %s", why);
	if (rc)
		return ui_error(b->ui, EXIT_FAILED, b->path, NULL, "fio failed in job %s: %s",
				jobs[i].name, *why ? why : strerror(-rc));
	return EXIT_DONE;
}

static int bench_run(struct bench *b)
{
	struct progress p;
	int rc = EXIT_DONE;

	progress_begin(&p, b->ui, "bench", JOBS, false);
	for (unsigned i = 0; !rc && i < JOBS; i++) {
		progress_update(&p, i);
		rc = bench_job(b, i);
	}
	progress_end(&p, JOBS);
	return rc;
}

/* ---- the report ---- */

static void row(struct tbl *t, const char *job, const char *op, uint64_t bytes, uint64_t iops,
		const struct bench_lat *l)
{
	if (!l->n)
		return;
	tbl_row(t);
	tbl_str(t, "job", job);
	tbl_str(t, "op", op);
	if (bytes) {
		tbl_num(t, "bandwidth", bytes);
		tbl_num(t, "iops", iops);
	}
	tbl_num(t, "p50", l->p50);
	tbl_num(t, "p99", l->p99);
	tbl_num(t, "p999", l->p999);
}

static void rows(const struct bench *b, struct tbl *t)
{
	for (unsigned i = 0; i < JOBS; i++) {
		const struct bench_result *r = &b->result[i];
		/* reading back for the comparison is no measurement */
		bool has_read = !jobs[i].is_verified;

		if (has_read)
			row(t, jobs[i].name, "read", r->read.bytes_per_s, r->read.iops,
			    &r->read.lat);
		row(t, jobs[i].name, "write", r->write.bytes_per_s, r->write.iops, &r->write.lat);
		row(t, jobs[i].name, "flush", 0, 0, &r->sync);
	}
}

static uint64_t bound_ms(const struct bench *b)
{
	uint64_t ms = (2 * b->result[SYNC].sync.p999 + 999999) / 1000000;

	return ms ? ms : 1;
}

static bool is_for_staging(const struct bench *b)
{
	return b->result[SYNC].sync.p99 <= STAGING_FLUSH_NS &&
	       b->result[SEQ_WRITE].write.bytes_per_s >= STAGING_WRITE;
}

static bool is_for_capacity(const struct bench *b)
{
	return b->result[SEQ_READ].read.bytes_per_s >= CAPACITY_READ;
}

static void report_json(const struct bench *b, struct tbl *t)
{
	struct json *j = &b->ui->js;

	ui_doc_begin(b->ui, 1, 0);
	json_str(j, "path", b->path);
	json_bool(j, "is_block", b->is_block);
	json_bool(j, "is_direct", b->is_direct);
	json_u64(j, "size", b->size);
	json_u64(j, "runtime_ns", b->runtime_s * 1000000000u);
	tbl_print(t, "results");
	json_bool(j, "is_for_staging", is_for_staging(b));
	json_bool(j, "is_for_capacity", is_for_capacity(b));
	json_u64(j, "flush_p999_ns", b->result[SYNC].sync.p999);
	json_u64(j, "min_interval_ms", bound_ms(b));
	ui_doc_end(b->ui);
}

static void report_text(const struct bench *b)
{
	const struct bench_result *r = b->result;
	uint64_t w = r[SEQ_WRITE].write.bytes_per_s;
	char a[SIZE_STR], c[SIZE_STR];

	printf("\nverified:   what was written was read back and compared (CRC32C)\n");
	printf("staging:    %s: flushes take %s (p99), sequential writes %s/s\n",
	       is_for_staging(b) ? "good" : "not advised", time_str(a, r[SYNC].sync.p99),
	       size_str(c, w));
	printf("capacity:   %s: sequential reads %s/s, %.1f times the writes\n",
	       is_for_capacity(b) ? "good" : "slow", size_str(a, r[SEQ_READ].read.bytes_per_s),
	       w ? (double)r[SEQ_READ].read.bytes_per_s / (double)w : 0.0);
	printf("loss bound: %llu ms or more: twice the flush that 999 of 1000 keep, %s\n",
	       (unsigned long long)bound_ms(b), time_str(a, r[SYNC].sync.p999));
	printf("endurance:  cannot be measured; compare the maker's bytes written or writes per "
	       "day\n            with what staging will take\n");
	if (!b->is_direct)
		printf("caution:    no direct I/O here: these are figures of the page cache, not "
		       "of a device\n");
}

static void report(struct bench *b, struct tbl *t)
{
	rows(b, t);
	if (b->ui->json) {
		report_json(b, t);
		return;
	}
	tbl_print(t, NULL);
	if (!args_has(b->ui->args, "no-header") && !args_has(b->ui->args, "output"))
		report_text(b);
}

static int bench_plan(const struct bench *b)
{
	char size[SIZE_STR];

	if (b->ui->json) {
		ui_doc_begin(b->ui, 1, 0);
		json_bool(&b->ui->js, "is_dry_run", true);
		json_str(&b->ui->js, "path", b->path);
		json_bool(&b->ui->js, "is_block", b->is_block);
		json_u64(&b->ui->js, "size", b->size);
		json_str(&b->ui->js, "signature", b->signature[0] ? b->signature : NULL);
		ui_doc_end(b->ui);
		return EXIT_DONE;
	}
	printf("would %s the first %s of %s%s%s and take about %llu s\n",
	       b->is_block ? "overwrite" : "make and remove a file of", size_str(size, b->size),
	       b->path, b->signature[0] ? ", which holds: " : "", b->signature,
	       (unsigned long long)(b->runtime_s * (JOBS - 1)));
	return EXIT_DONE;
}

static int bench_do(struct bench *b, struct tbl *t)
{
	char what[256];
	int rc = bench_look(b);

	if (rc)
		return rc;
	if (args_has(b->ui->args, "dry-run"))
		return bench_plan(b);
	if (b->is_block) {
		snprintf(what, sizeof(what), "%s on %.64s",
			 b->signature[0] ? b->signature : "whatever is", b->path);
		rc = confirm(b->ui, b->path, what, b->path);
	}
	/* from here on there may be a file to remove */
	if (!rc)
		ui_on_stop(on_signal);
	if (!rc && !b->is_block)
		rc = file_make(b);
	if (!rc)
		rc = bench_run(b);
	if (!rc)
		report(b, t);
	return rc;
}

int verb_bench(struct ui *ui)
{
	const struct args *a = ui->args;
	struct bench b = { .ui = ui, .path = a->v[0], .fd = -1 };
	struct tbl *t;
	int rc;

	b.size = args_num(a, "size", SIZE_DEFAULT) / MPOOL_ALIGN * MPOOL_ALIGN;
	b.runtime_s = (args_num(a, "runtime", 5000000000ull) + 999999999u) / 1000000000u;
	if (b.size < SIZE_MIN)
		return ui_usage(ui, "--size must be at least 4M");
	if (!b.runtime_s)
		return ui_usage(ui, "--runtime must not be 0");
	t = tbl_new(ui, bench_cols, &rc);
	if (!t)
		return rc;
	rc = bench_do(&b, t);
	bench_clean(&b);
	if (rc || args_has(a, "dry-run"))
		tbl_free(t);
	return rc;
}
