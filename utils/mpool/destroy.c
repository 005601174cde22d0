/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool destroy.
 *
 * Every pool is opened and shown before the first is removed, so that a wrong
 * name among several harms nothing. One whose destroy was cut cannot be opened
 * any more: what is left of it is removed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "confirm.h"
#include "members.h"
#include "size.h"

const struct opt destroy_opts[] = {
	CONFIRM_OPTS,
	PLAN_OPT,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

struct victim {
	const char *path; /* or name */
	struct mpool_info info;
	struct mpool_dev_info *dev;
	unsigned ndevs;
	bool is_left; /* destroyed, its files are not yet removed */
};

static int victim_look(struct ui *ui, struct victim *v)
{
	struct target t;
	struct mpool *mp;
	int rc;

	v->dev = calloc(MPOOL_MCLASSES * MPOOL_DEVS_MAX, sizeof(*v->dev));
	if (!v->dev)
		return ui_error(ui, EXIT_FAILED, NULL, NULL, "out of memory");
	rc = target_open(ui, v->path, &t);
	if (rc)
		return rc;
	rc = pool_open_rdonly(t.path, &mp);
	v->is_left = rc && !strcmp(mpool_error_detail()->id, "MP0112");
	if (rc && !v->is_left)
		rc = ui_fail(ui, v->path, rc, mpool_error_detail());
	target_close(&t);
	if (rc)
		return v->is_left ? EXIT_DONE : rc;
	mpool_info(mp, &v->info);
	while (v->ndevs < MPOOL_MCLASSES * MPOOL_DEVS_MAX &&
	       !mpool_dev_info(mp, v->ndevs, &v->dev[v->ndevs]))
		v->ndevs++;
	mpool_close(mp);
	return EXIT_DONE;
}

static uint64_t victim_used(const struct victim *v)
{
	uint64_t used = 0;

	for (unsigned c = 0; c < MPOOL_MCLASSES; c++)
		used += v->info.cls[c].used;
	return used;
}

static void victim_text(FILE *f, const struct victim *v)
{
	char size[SIZE_STR], n[SIZE_STR];

	if (v->is_left) {
		fprintf(f, "what is left of a destroyed pool (%s)\n", v->path);
		return;
	}
	fprintf(f, "pool %s (%s): %s, %s used\n", v->info.name, v->path,
		count_str(n, v->info.objects, "object"), size_str(size, victim_used(v)));
	for (unsigned i = 0; i < v->ndevs; i++) {
		fprintf(f, "  %-8s  %-6s  ", mclass_name(v->dev[i].mclass),
			size_str(size, v->dev[i].size));
		ui_print(f, v->dev[i].path);
		fprintf(f, "  %s\n", v->dev[i].is_block ? "block device" : "file");
	}
}

static void victims_json(struct ui *ui, const struct victim *v, int n)
{
	struct json *j = &ui->js;
	char uuid[UUID_STR];

	ui_doc_begin(ui, 1, 0);
	json_bool(j, "is_dry_run", args_has(ui->args, "dry-run"));
	json_arr(j, "pools");
	for (int i = 0; i < n; i++, v++) {
		json_obj(j, NULL);
		json_str(j, "path", v->path);
		json_str(j, "name", v->info.name);
		json_str(j, "uuid", uuid_str(uuid, v->info.uuid));
		json_u64(j, "objects", v->info.objects);
		json_u64(j, "used", victim_used(v));
		json_arr(j, "devices");
		for (unsigned d = 0; d < v->ndevs; d++) {
			json_obj(j, NULL);
			json_str(j, "path", v->dev[d].path);
			json_str(j, "class", mclass_name(v->dev[d].mclass));
			json_u64(j, "size", v->dev[d].size);
			json_bool(j, "is_block", v->dev[d].is_block);
			json_end(j);
		}
		json_end(j);
		json_end(j);
	}
	json_end(j);
	ui_doc_end(ui);
}

static int victim_confirm(struct ui *ui, const struct victim *v)
{
	char what[512], n[SIZE_STR];

	if (ui->tty_in && !args_has(ui->args, "yes"))
		victim_text(stderr, v);
	if (v->is_left)
		return confirm(ui, v->path, "what is left of a destroyed pool", v->path);
	snprintf(what, sizeof(what), "the pool %s with %s", v->info.name,
		 count_str(n, v->info.objects, "object"));
	return confirm(ui, v->path, what, v->info.name);
}

/* An active pool is taken from the module first, which refuses while it is in use. */
static int victim_destroy(struct ui *ui, const struct victim *v)
{
	struct target t;
	int rc = target_open(ui, v->path, &t);

	if (!rc && t.is_active) {
		rc = mpool_deactivate(t.path);
		if (rc)
			return ui_fail(ui, v->path, rc, mpool_error_detail());
		rc = target_open(ui, v->path, &t);
	}
	if (!rc) {
		rc = mpool_destroy(t.path, NULL);
		if (rc)
			rc = ui_fail(ui, v->path, rc, mpool_error_detail());
		else if (t.is_temp)
			trust_del(t.uuid);
	}
	target_close(&t);
	return rc;
}

/* Copies of a pool share its uuid, but no member. */
static bool is_same(const struct victim *a, const struct victim *b)
{
	struct stat sa, sb;

	return !memcmp(a->info.uuid, b->info.uuid, sizeof(a->info.uuid)) &&
	       !stat(a->dev->path, &sa) && !stat(b->dev->path, &sb) &&
	       sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

static int victim_is_new(struct ui *ui, const struct victim *v, int i)
{
	for (int k = 0; k < i; k++)
		if (is_same(&v[k], &v[i]))
			return ui_error(ui, EXIT_USAGE, v[i].path, "give it once",
					"the pool is given twice, as %s before", v[k].path);
	return EXIT_DONE;
}

static int victims_run(struct ui *ui, struct victim *v, int n)
{
	bool is_dry = args_has(ui->args, "dry-run");
	int i, rc = 0;

	for (i = 0; !rc && i < n; i++) {
		v[i].path = ui->args->v[i];
		rc = victim_look(ui, &v[i]);
		if (!rc)
			rc = victim_is_new(ui, v, i);
	}
	for (i = 0; !rc && !is_dry && i < n; i++)
		rc = victim_confirm(ui, &v[i]);
	if (rc)
		return rc;
	for (i = 0; !is_dry && i < n; i++) {
		rc = victim_destroy(ui, &v[i]);
		if (rc)
			return rc;
		if (!ui->quiet && !ui->json)
			printf("destroyed %s\n", v[i].path);
	}
	if (ui->json)
		victims_json(ui, v, n);
	for (i = 0; is_dry && !ui->json && i < n; i++)
		victim_text(stdout, &v[i]);
	return EXIT_DONE;
}

int verb_destroy(struct ui *ui)
{
	int n = ui->args->n, rc;
	struct victim *v = calloc((size_t)n, sizeof(*v));

	if (!v)
		return ui_error(ui, EXIT_FAILED, NULL, NULL, "out of memory");
	rc = victims_run(ui, v, n);
	for (int i = 0; i < n; i++)
		free(v[i].dev);
	free(v);
	return rc;
}
