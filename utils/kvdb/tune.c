/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb tune: what this process has of the machine and the pool, the options that
 * follow from it, and why. It changes nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "measured.h"
#include "size.h"
#include "table.h"

const struct opt tune_opts[] = {
	{ "bench", 'b', OPT_STR, 0, "FILE",
	  "what 'mpool bench -j' printed of the device of its logs", NULL, NULL },
	TBL_OPTS, DB_OPTS, { .name = NULL },
};

static const struct col tune_cols[] = {
	{ "option", COL_STR, true, "member of struct kvdb_opts, or what the pool lacks" },
	{ "default", COL_STR, true, "what an open without this option takes here" },
	{ "advice", COL_STR, true, "what to give, or '-': the default suits" },
	{ "why", COL_STR, true, "the reason" },
	{ NULL, 0, false, NULL },
};

struct facts {
	struct kvdb_info in;        /* with default options */
	struct kvdb_stats st;
	uint64_t data;              /* values and keys on media, bytes */
	const struct measured *dev; /* NULL: not measured */
};

static void row(struct tbl *t, const char *option, const char *is, const char *advice,
		const char *why)
{
	tbl_row(t);
	tbl_str(t, "option", option);
	tbl_str(t, "default", is);
	tbl_str(t, "advice", advice);
	tbl_str(t, "why", why);
}

/* Keys' pages and values that are read again should fit, with a third to spare. */
static void tune_cache(struct tbl *t, const struct facts *f)
{
	uint64_t want = f->data + f->data / 3, cache = f->in.cache_bytes;
	uint64_t most = f->in.ram_bytes / 2;
	char is[SIZE_STR], to[SIZE_STR], why[240], data[SIZE_STR], miss[SIZE_STR + 24] = "";

	size_str(is, cache);
	size_str(data, f->data);
	if (f->dev)
		snprintf(miss, sizeof(miss), ", %s each", time_str(to, f->dev->random_read_ns));
	want = want < 64u << 20 ? 64u << 20 : want > most ? most : want;
	want = (want + (1u << 20) - 1) >> 20 << 20;
	if (f->data + f->data / 3 <= cache) {
		snprintf(why, sizeof(why), "all %s in use fit; %s would do", data,
			 size_str(to, want));
		row(t, "cache_bytes", is, NULL, why);
	} else if (want > cache) {
		snprintf(why, sizeof(why), "%s in use: what does not fit is read from "
			 "media%s; half of memory is the most to give", data, miss);
		row(t, "cache_bytes", is, size_str(to, want), why);
	} else {
		snprintf(why, sizeof(why), "%s in use do not fit into memory; keys are "
			 "cached first", data);
		row(t, "cache_bytes", is, NULL, why);
	}
}

static void tune_interval(struct tbl *t, const struct facts *f)
{
	char is[SIZE_STR], to[SIZE_STR], flush[SIZE_STR], why[200];

	time_str(is, (uint64_t)f->in.interval_ms * 1000000u);
	if (f->dev) {
		time_str(to, f->dev->min_interval_ms * 1000000u);
		snprintf(why, sizeof(why), "what a power cut may lose; the device flushes in %s "
			 "(p99.9), so %s is the smallest bound that it keeps",
			 time_str(flush, f->dev->flush_p999_ns), to);
		row(t, "interval_ms", is, f->dev->min_interval_ms > f->in.interval_ms ? to : NULL,
		    why);
		return;
	}
	row(t, "interval_ms", is, NULL, "what a power cut may lose; the smallest bound that the "
	    "device keeps is printed by 'mpool bench', and durability_late in 'kvdb stats' counts "
	    "where it was too small");
}

static void tune_log(struct tbl *t, const struct facts *f)
{
	char is[SIZE_STR], to[SIZE_STR], why[200];
	/* half of the two seconds that an open may take, or as much on a common device */
	uint64_t bound = f->dev ? f->dev->seq_read_bytes_per_s >> 20 << 20 : 512ull << 20;
	char rate[SIZE_STR + 24] = "";

	if (bound < 64u << 20)
		bound = 64u << 20;
	if (f->dev)
		snprintf(rate, sizeof(rate), " at %s a second",
			 size_str(to, f->dev->seq_read_bytes_per_s));
	size_str(is, f->in.log_bytes);
	snprintf(why, sizeof(why), "an open after a crash reads at most this much%s; a smaller "
		 "log flushes more often", rate);
	row(t, "log_bytes", is, f->in.log_bytes > bound ? size_str(to, bound) : NULL, why);
}

static void tune_threads(struct tbl *t, const struct facts *f)
{
	char is[32], why[200];

	snprintf(is, sizeof(is), "%u", f->in.logs);
	snprintf(why, sizeof(why), "%" PRIu64 " cores can be used here: one log for each "
		 "keeps writers apart%s", f->in.cores, f->in.logs < f->in.cores ?
		 ", but cache or pool are too small for so many" : "");
	row(t, "logs", is, NULL, why);
}

static void tune_segment(struct tbl *t, const struct facts *f)
{
	char is[SIZE_STR];

	size_str(is, f->in.segment_bytes);
	row(t, "segment_bytes", is,
	    f->in.segment_bytes < 512u << 10 ? "larger pool or cache" : NULL,
	    f->in.segment_bytes < 512u << 10 ?
	    "small segments cost device operations; it follows from pool and cache, and kvdb "
	    "create --segment-size fixes it" :
	    "follows from pool and cache; large enough for full speed");
}

static void tune_pool(struct tbl *t, const struct facts *f)
{
	const struct mpool_class_info *cap = &f->in.pool.cls[MPOOL_CAPACITY];
	const struct mpool_class_info *stg = &f->in.pool.cls[MPOOL_STAGING];
	unsigned full = cap->total ? (unsigned)((double)cap->used * 100 / (double)cap->total) : 0;
	char is[48];

	row(t, "staging class", stg->devs ? "yes" : "no",
	    stg->devs && f->dev && !f->dev->is_for_staging ? "a faster device" : NULL, stg->devs ?
	    f->dev && !f->dev->is_for_staging ?
	    "logs and young values go there first, and mpool bench does not advise the device" :
	    "logs and young values go there first" :
	    "worth it when a faster device is at hand: kvdb create --staging-size");
	row(t, "direct I/O", f->in.pool.is_direct ? "yes" : "no",
	    f->in.pool.is_direct ? NULL : "another file system",
	    f->in.pool.is_direct ? "the cache of the system is not used twice" :
	    "the file system below caches what the database caches itself");
	row(t, "io", f->in.pool.io, strcmp(f->in.pool.io, "uring") ? "allow io_uring" : NULL,
	    strcmp(f->in.pool.io, "uring") ? "one system call per read; reads of several threads "
	    "are not joined" : "reads and writes are submitted in batches");
	snprintf(is, sizeof(is), "%u%% used", full);
	row(t, "space", is, full > 80 ? "grow the pool" : NULL, full > 80 ?
	    "old segments must be moved before new ones fit: mpool grow, mpool add" :
	    "room to collect garbage in large pieces");
}

static int look(struct ui *ui, const char *path, struct facts *f)
{
	struct kvdb *db;
	int rc = db_open(ui, path, KVDB_RDONLY, &db);

	if (rc)
		return rc;
	rc = kvdb_info(db, &f->in);
	if (!rc)
		rc = kvdb_stats(db, &f->st);
	rc = db_close(ui, path, db, rc ? db_fail(ui, path, rc) : EXIT_DONE);
	for (unsigned c = 0; c < MPOOL_MCLASSES && !rc; c++)
		f->data += f->in.pool.cls[c].used;
	return rc;
}

int verb_tune(struct ui *ui)
{
	const char *bench = args_str(ui->args, "bench", NULL);
	struct facts f = { 0 };
	struct measured dev;
	struct tbl *t;
	int rc;

	if (bench) {
		rc = measured_read(ui, bench, &dev);
		if (rc)
			return rc;
		f.dev = &dev;
	}
	t = tbl_new(ui, tune_cols, &rc);
	if (!t)
		return rc;
	rc = look(ui, ui->args->v[0], &f);
	if (rc) {
		tbl_free(t);
		return rc;
	}
	tune_cache(t, &f);
	tune_interval(t, &f);
	tune_log(t, &f);
	tune_threads(t, &f);
	tune_segment(t, &f);
	tune_pool(t, &f);
	if (ui->json) {
		ui_doc_begin(ui, 1, 1);
		json_str(&ui->js, "db", ui->args->v[0]);
		json_str(&ui->js, "bench", bench);
		json_u64(&ui->js, "ram_bytes", f.in.ram_bytes);
		json_u64(&ui->js, "cores", f.in.cores);
	}
	tbl_print(t, "options");
	if (ui->json)
		ui_doc_end(ui);
	return EXIT_DONE;
}
