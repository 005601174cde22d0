/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool add and mpool grow: more room for a pool.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "confirm.h"
#include "members.h"
#include "room.h"
#include "size.h"

const struct opt add_opts[] = {
	{ "capacity", 0, OPT_FLAG, 0, NULL, "each DEV is for the capacity class (the default)",
	  NULL, NULL },
	{ "staging", 0, OPT_FLAG, 0, NULL, "each DEV is for the staging class", NULL, NULL },
	{ "size", 's', OPT_SIZE, 0, "SIZE",
	  "size of each DEV that is a file; of a block device, all of it when not given", NULL,
	  NULL },
	{ "force", 'f', OPT_FLAG, 0, NULL, "overwrite devices that hold something else", NULL,
	  NULL },
	CONFIRM_OPTS,
	PLAN_OPT,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

const struct opt grow_opts[] = {
	{ "size", 's', OPT_SIZE, 0, "SIZE",
	  "pools in files: new size of every member file of the class", NULL, NULL },
	{ "class", 'c', OPT_ENUM, 0, "CLASS",
	  "pools in files: 'capacity' (the default) or 'staging'", NULL, "capacity|staging" },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

struct add {
	struct target target;
	struct mpool_dev_spec spec[MPOOL_DEVS_MAX];
	char signature[MPOOL_DEVS_MAX][160];
	unsigned n, signatures;
	const char *mclass;
};

static int add_gather(struct ui *ui, struct add *d)
{
	const struct args *a = ui->args;
	uint64_t size = args_num(a, "size", 0);
	struct stat st;

	if (args_has(a, "capacity") && args_has(a, "staging"))
		return ui_usage(ui, "a device is of one class: --capacity or --staging");
	if (args_has(a, "size") && size < MEMBER_MIN)
		return ui_usage(ui, "--size: '%s' is too small, at least 2M",
				args_str(a, "size", ""));
	for (int i = 1; i < a->n; i++) {
		struct mpool_dev_spec *s = &d->spec[d->n];
		bool is_there = !stat(a->v[i], &st);

		if (d->n == MPOOL_DEVS_MAX)
			return ui_usage(ui, "too many devices");
		if (is_there && S_ISBLK(st.st_mode) && size)
			return ui_usage(ui, "%s is a block device: all of it is taken, --size is "
					"for files", a->v[i]);
		if (!(is_there && S_ISBLK(st.st_mode)) && !size)
			return ui_usage(ui, "%s is %s: its size must be given with --size", a->v[i],
					is_there ? "a file" : "not there, and would be a file");
		s->path = a->v[i];
		s->size = size;
		s->mclass = args_has(a, "staging") ? MPOOL_STAGING : MPOOL_CAPACITY;
		if (is_there && signature_find(s->path, d->signature[d->n], sizeof(*d->signature)))
			d->signatures++;
		d->n++;
	}
	d->mclass = mclass_name(d->spec[0].mclass);
	return EXIT_DONE;
}

static void add_print(struct ui *ui, const struct add *d)
{
	struct json *j = &ui->js;
	bool is_dry = args_has(ui->args, "dry-run");

	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_bool(j, "is_dry_run", is_dry);
		json_str(j, "pool", d->target.word);
		json_arr(j, "devices");
	}
	for (unsigned i = 0; i < d->n; i++) {
		const char *sig = d->signature[i][0] ? d->signature[i] : NULL;

		if (!ui->json) {
			if (!ui->quiet)
				printf("%s %s to %s as %s%s%s\n", is_dry ? "would add" : "added",
				       d->spec[i].path, d->target.word, d->mclass,
				       is_dry && sig ? ", holds: " : "", is_dry && sig ? sig : "");
			continue;
		}
		json_obj(j, NULL);
		json_str(j, "path", d->spec[i].path);
		json_str(j, "class", d->mclass);
		json_str(j, "signature", sig);
		json_end(j);
	}
	if (ui->json) {
		json_end(j);
		ui_doc_end(ui);
	}
}

static int add_fail(struct ui *ui, const struct add *d, int rc)
{
	struct mpool_error e = *mpool_error_detail();

	if (rc == -EPERM && exit_from_error(rc, e.id) == EXIT_REFUSED)
		snprintf(e.cure, sizeof(e.cure), "use -f to overwrite");
	return ui_fail(ui, d->target.word, rc, &e);
}

static int add_confirm(struct ui *ui, const struct add *d)
{
	char what[512];
	unsigned i = 0;

	if (!d->signatures)
		return EXIT_DONE;
	while (!d->signature[i][0])
		i++;
	snprintf(what, sizeof(what), "%s on %.200s%s", d->signature[i], d->spec[i].path,
		 d->signatures > 1 ? " and what other devices hold" : "");
	return confirm(ui, d->target.word, what, d->target.word);
}

/* that of files; a device has its own */
static void add_room(struct ui *ui, const struct add *d)
{
	struct room room = { .n = 0 };

	for (unsigned i = 0; i < d->n; i++)
		if (d->spec[i].size)
			room_add(&room, d->spec[i].path, d->spec[i].size);
	room_note(ui, &room);
}

static int add_run(struct ui *ui, struct add *d)
{
	uint32_t flags = args_has(ui->args, "force") ? MPOOL_CREATE_FORCE : 0;
	int rc = target_open(ui, ui->args->v[0], &d->target);

	if (!rc)
		rc = add_gather(ui, d);
	if (rc)
		return rc;
	rc = mpool_add(d->target.path, NULL, d->spec, d->n, flags | MPOOL_CREATE_PLAN);
	if (rc)
		return add_fail(ui, d, rc);
	if (!args_has(ui->args, "dry-run")) {
		rc = add_confirm(ui, d);
		if (rc)
			return rc;
		rc = mpool_add(d->target.path, NULL, d->spec, d->n, flags);
		if (rc)
			return add_fail(ui, d, rc);
		history_add(ui, d->target.path);
	}
	add_room(ui, d);
	add_print(ui, d);
	return EXIT_DONE;
}

int verb_add(struct ui *ui)
{
	struct add *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return ui_error(ui, EXIT_FAILED, NULL, NULL, "out of memory");
	rc = add_run(ui, d);
	target_close(&d->target);
	free(d);
	return rc;
}

/* Files of @mclass have been made larger: is there room for them? */
static void grow_room(struct ui *ui, struct mpool *mp, unsigned mclass)
{
	const unsigned max = MPOOL_MCLASSES * MPOOL_DEVS_MAX;
	struct mpool_dev_info *dev = calloc(max, sizeof(*dev));
	struct room room = { .n = 0 };
	struct stat st;

	for (unsigned i = 0; dev && i < max && !mpool_dev_info(mp, i, &dev[i]); i++) {
		uint64_t has;

		if (dev[i].mclass != mclass || dev[i].is_block || stat(dev[i].path, &st))
			continue;
		has = (uint64_t)st.st_blocks * 512;
		if (has < dev[i].size)
			room_add(&room, dev[i].path, dev[i].size - has);
	}
	room_note(ui, &room);
	free(dev);
}

/* Usable bytes of each class; files of class @grown, unless -1, have just been made larger. */
static int totals(struct ui *ui, const struct target *t, uint64_t total[MPOOL_MCLASSES], int grown)
{
	struct mpool_info info;
	struct mpool *mp;
	int rc = pool_open_rdonly(t->path, &mp);

	if (rc)
		return ui_fail(ui, t->word, rc, mpool_error_detail());
	mpool_info(mp, &info);
	if (grown >= 0)
		grow_room(ui, mp, (unsigned)grown);
	mpool_close(mp);
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++)
		total[c] = info.cls[c].total;
	return EXIT_DONE;
}

static void grow_print(struct ui *ui, const struct target *t, const uint64_t *before,
		       const uint64_t *after)
{
	char a[SIZE_STR], b[SIZE_STR];
	bool is_changed = false;

	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "pool", t->word);
		json_arr(&ui->js, "classes");
	}
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		is_changed |= before[c] != after[c];
		if (ui->json && after[c]) {
			json_obj(&ui->js, NULL);
			json_str(&ui->js, "class", mclass_name(c));
			json_u64(&ui->js, "before", before[c]);
			json_u64(&ui->js, "after", after[c]);
			json_end(&ui->js);
		} else if (!ui->quiet && before[c] != after[c]) {
			printf("%s: %s from %s to %s\n", t->word, mclass_name(c),
			       size_str(a, before[c]), size_str(b, after[c]));
		}
	}
	if (ui->json) {
		json_end(&ui->js);
		ui_doc_end(ui);
	} else if (!is_changed) {
		ui_note(ui, "%s has not gained anything", t->word);
	}
}

static int grow_run(struct ui *ui, struct target *t)
{
	const struct args *a = ui->args;
	uint64_t before[MPOOL_MCLASSES], after[MPOOL_MCLASSES], size = args_num(a, "size", 0);
	uint32_t mclass = (uint32_t)args_num(a, "class", MPOOL_CAPACITY);
	int rc = target_open(ui, a->v[0], t);

	if (rc)
		return rc;
	if (!size && (args_has(a, "size") || args_has(a, "class")))
		return ui_usage(ui, "--size must be given and not 0");
	if (size && (t->is_active || t->is_temp))
		return ui_usage(ui, "block devices have the size they have: --size is for files");
	rc = totals(ui, t, before, -1);
	if (rc)
		return rc;
	rc = mpool_grow(t->path, NULL, size, mclass);
	if (rc)
		return ui_fail(ui, t->word, rc, mpool_error_detail());
	history_add(ui, t->path);
	rc = totals(ui, t, after, size ? (int)mclass : -1);
	if (!rc)
		grow_print(ui, t, before, after);
	return rc;
}

int verb_grow(struct ui *ui)
{
	struct target t = { .word = NULL };
	int rc = grow_run(ui, &t);

	target_close(&t);
	return rc;
}
