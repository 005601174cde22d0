/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool iostat: what active pools submit to their devices.
 *
 * The first report covers the time since activation and gives totals, each
 * further one the last interval, per second.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "members.h"
#include "table.h"

#define POOLS_MAX 64
#define DEVS_MAX (MPOOL_MCLASSES * MPOOL_DEVS_MAX)

const struct opt iostat_opts[] = {
	{ "class", 'c', OPT_ENUM, 0, "CLASS", "only devices of 'capacity' or 'staging'", NULL,
	  "capacity|staging" },
	TBL_OPTS,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static const struct col iostat_cols[] = {
	{ "pool", COL_STR, true, "name of the pool" },
	{ "device", COL_STR, true, "member" },
	{ "class", COL_STR, true, "media class" },
	{ "reads", COL_COUNT, true, "read requests" },
	{ "writes", COL_COUNT, true, "write requests" },
	{ "flushes", COL_COUNT, true, "flushes" },
	{ "read", COL_SIZE, true, "bytes read" },
	{ "written", COL_SIZE, true, "bytes written" },
	{ "discarded", COL_SIZE, false, "bytes discarded" },
	{ "errors", COL_COUNT, true, "failed requests" },
	{ NULL, 0, false, NULL },
};

struct watched {
	char name[MPOOL_NAME_MAX + 1];
	struct mpool *mp;
	unsigned ndevs;
	struct mpool_dev_info last[DEVS_MAX];
};

struct iostat {
	struct ui *ui;
	struct watched *pool[POOLS_MAX];
	unsigned n;
	uint64_t interval, count; /* seconds; 0 = once. 0 = without end */
};

static int watch(struct iostat *s, const char *name)
{
	struct watched *w;
	int rc;

	if (strchr(name, '/'))
		return ui_error(s->ui, EXIT_UNSUPPORTED, name, "see 'kvdb stats', or activate the "
				"pool and give its name",
				"counters of a pool in this process's hands begin at its opening");
	if (s->n == POOLS_MAX)
		return ui_usage(s->ui, "too many pools");
	w = calloc(1, sizeof(*w));
	if (!w)
		return ui_error(s->ui, EXIT_FAILED, NULL, NULL, "out of memory");
	s->pool[s->n++] = w;
	snprintf(w->name, sizeof(w->name), "%s", name);
	rc = pool_open_rdonly(name, &w->mp);
	return rc ? ui_fail(s->ui, name, rc, mpool_error_detail()) : EXIT_DONE;
}

static int watch_all(struct iostat *s)
{
	char after[MPOOL_NAME_MAX + 1] = "";
	struct mpool_active a;
	int rc, code = EXIT_DONE;

	while (!code && !(rc = mpool_active_next(after, &a))) {
		memcpy(after, a.name, sizeof(after));
		code = watch(s, a.name);
	}
	if (code)
		return code;
	if (rc != -ENOENT)
		return ui_fail(s->ui, NULL, rc, mpool_error_detail());
	if (!s->n)
		ui_note(s->ui, "no pool is active");
	return EXIT_DONE;
}

static bool is_number(const char *word)
{
	const char *p = word;

	while (isdigit((unsigned char)*p))
		p++;
	return p > word && !*p;
}

/* NAME... [INTERVAL [COUNT]]: numbers at the end are not names of pools. */
static int iostat_args(struct iostat *s)
{
	const struct args *a = s->ui->args;
	int n = a->n, rc = EXIT_DONE;

	while (n > 0 && a->n - n < 2 && is_number(a->v[n - 1]) && !pool_is_active(a->v[n - 1]))
		n--;
	if (n < a->n) {
		s->interval = strtoull(a->v[n], NULL, 10);
		if (!s->interval || s->interval > 86400)
			return ui_usage(s->ui, "the interval is 1 to 86400 seconds");
	}
	if (n + 1 < a->n) {
		s->count = strtoull(a->v[n + 1], NULL, 10);
		if (!s->count)
			return ui_usage(s->ui, "the count must not be 0");
	}
	for (int i = 0; !rc && i < n; i++)
		rc = watch(s, a->v[i]);
	return rc || n ? rc : watch_all(s);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Per second over @ns, or the total when @ns is 0. */
static uint64_t rate(uint64_t now, uint64_t last, uint64_t ns)
{
	return ns ? (uint64_t)((double)(now - last) * 1e9 / (double)ns + 0.5) : now;
}

static void report_json(struct json *j, const struct watched *w, const struct mpool_dev_info *d,
			const struct mpool_dev_info *l, uint64_t ns)
{
	json_obj(j, NULL);
	json_u64(j, "time_s", (uint64_t)time(NULL));
	json_u64(j, "interval_ns", ns);
	json_str(j, "pool", w->name);
	json_str(j, "device", d->path);
	json_str(j, "class", mclass_name(d->mclass));
	json_u64(j, "reads", d->reads - l->reads);
	json_u64(j, "writes", d->writes - l->writes);
	json_u64(j, "flushes", d->flushes - l->flushes);
	json_u64(j, "read_bytes", d->read_bytes - l->read_bytes);
	json_u64(j, "write_bytes", d->write_bytes - l->write_bytes);
	json_u64(j, "discard_bytes", d->discard_bytes - l->discard_bytes);
	json_u64(j, "errors", d->errors - l->errors);
	json_end(j);
}

static void report_row(struct tbl *t, const struct watched *w, const struct mpool_dev_info *d,
		       const struct mpool_dev_info *l, uint64_t ns)
{
	tbl_row(t);
	tbl_str(t, "pool", w->name);
	tbl_str(t, "device", d->path);
	tbl_str(t, "class", mclass_name(d->mclass));
	tbl_num(t, "reads", rate(d->reads, l->reads, ns));
	tbl_num(t, "writes", rate(d->writes, l->writes, ns));
	tbl_num(t, "flushes", rate(d->flushes, l->flushes, ns));
	tbl_num(t, "read", rate(d->read_bytes, l->read_bytes, ns));
	tbl_num(t, "written", rate(d->write_bytes, l->write_bytes, ns));
	tbl_num(t, "discarded", rate(d->discard_bytes, l->discard_bytes, ns));
	tbl_num(t, "errors", d->errors - l->errors);
}

/* @ns: length of the interval; 0: since activation. */
static void watched_report(struct iostat *s, struct watched *w, struct tbl *t, uint64_t ns)
{
	const struct args *a = s->ui->args;
	struct mpool_dev_info d;

	for (unsigned i = 0; i < DEVS_MAX && !mpool_dev_info(w->mp, i, &d); i++) {
		if (args_has(a, "class") && args_num(a, "class", 0) != d.mclass)
			continue;
		if (t)
			report_row(t, w, &d, &w->last[i], ns);
		else
			report_json(&s->ui->js, w, &d, &w->last[i], ns);
		w->last[i] = d;
	}
}

static int iostat_run(struct iostat *s)
{
	uint64_t last = 0, now;
	struct tbl *t = NULL;
	int code;

	if (s->ui->json)
		ui_lines_begin(s->ui, 1, 0);
	for (uint64_t i = 0; !i || (s->interval && (!s->count || i < s->count)); i++) {
		if (i)
			sleep((unsigned)s->interval);
		now = now_ns();
		if (!s->ui->json) {
			t = tbl_new(s->ui, iostat_cols, &code);
			if (!t)
				return code;
		}
		for (unsigned k = 0; k < s->n; k++)
			watched_report(s, s->pool[k], t, last ? now - last : 0);
		if (t)
			tbl_print(t, NULL);
		last = now;
		/* the reader is gone */
		if (fflush(stdout))
			break;
	}
	return EXIT_DONE;
}

int verb_iostat(struct ui *ui)
{
	struct iostat s = { .ui = ui };
	struct tbl *t;
	int rc, code;

	/* -o help and unknown columns need no pool */
	t = tbl_new(ui, iostat_cols, &code);
	if (!t)
		return code;
	tbl_free(t);
	rc = iostat_args(&s);
	if (!rc && s.n)
		rc = iostat_run(&s);
	else if (!rc && ui->json)
		ui_lines_begin(ui, 1, 0);
	for (unsigned i = 0; i < s.n; i++) {
		if (s.pool[i]->mp)
			mpool_close(s.pool[i]->mp);
		free(s.pool[i]);
	}
	return rc;
}
