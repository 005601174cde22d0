/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool status: health, cause, cure, space and members.
 *
 * Text and JSON are printed from the same struct report.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "health.h"
#include "members.h"
#include "size.h"

const struct opt status_opts[] = {
	{ "unhealthy", 'x', OPT_FLAG, 0, NULL, "only pools that are not healthy", NULL, NULL },
	{ "exit", 0, OPT_FLAG, 0, NULL, "exit status 6 when a pool is not healthy", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

struct status {
	const char *path;
	const char *health;           /* "ok", "fault", or health_of_error() */
	char cause[256], action[256]; /* "" when there is none */
	char error_id[8];
	bool is_open;                 /* @info and @dev are valid */
	struct mpool_info info;
	struct mpool_dev_info dev[MPOOL_MCLASSES * MPOOL_DEVS_MAX];
	unsigned ndevs;
};

/* Open elsewhere: nothing is known to be wrong, and the process that has it open would know. */
static bool is_busy(const struct status *s)
{
	return !strcmp(s->health, "busy");
}

static bool is_healthy(const struct status *s)
{
	return s->is_open ? !pool_has_fault(&s->info) : is_busy(s);
}

/*
 * Fill @s from the pool that the library opens as @path, named @word by the
 * user; returns 0 or the negative errno of the open.
 */
static int status_get(const char *word, const char *path, struct status *s)
{
	const struct mpool_error *e;
	struct mpool *mp;
	int rc;

	memset(s, 0, sizeof(*s));
	s->path = word;
	rc = pool_open_rdonly(path, &mp);
	if (rc) {
		e = mpool_error_detail();
		s->health = health_of_error(rc);
		snprintf(s->cause, sizeof(s->cause), "%s", e->id[0] ? e->text : strerror(-rc));
		snprintf(s->action, sizeof(s->action), "%s", e->cure);
		snprintf(s->error_id, sizeof(s->error_id), "%s", e->id);
		return rc;
	}
	s->is_open = true;
	mpool_info(mp, &s->info);
	while (s->ndevs < MPOOL_MCLASSES * MPOOL_DEVS_MAX &&
	       !mpool_dev_info(mp, s->ndevs, &s->dev[s->ndevs]))
		s->ndevs++;
	mpool_close(mp);
	s->health = pool_has_fault(&s->info) ? "fault" : "ok";
	if (pool_has_fault(&s->info)) {
		snprintf(s->cause, sizeof(s->cause), "%s", s->info.fault);
		snprintf(s->action, sizeof(s->action),
			 "replace or repair the device, then open the pool again");
	}
	return 0;
}

static void status_devices_text(struct ui *ui, const struct status *s)
{
	char size[SIZE_STR];

	puts("devices:");
	for (unsigned i = 0; i < s->ndevs; i++) {
		const struct mpool_dev_info *d = &s->dev[i];

		printf("  %-8s  %-6s  %-12s  %-8s  ", mclass_name(d->mclass),
		       size_str(size, d->size), d->is_block ? "block device" : "file",
		       d->is_direct ? "direct" : "buffered");
		ui_print(stdout, d->path);
		putchar('\n');
		if (!ui->verbose && !health_is_odd(d))
			continue;
		fputs("            ", stdout);
		health_text(d);
		putchar('\n');
	}
}

static void status_space_text(const struct status *s)
{
	char a[SIZE_STR], b[SIZE_STR], c[SIZE_STR], d[SIZE_STR];

	for (unsigned i = 0; i < MPOOL_MCLASSES; i++) {
		const struct mpool_class_info *k = &s->info.cls[i];

		if (k->devs)
			printf("%8s: %s, %s used, %s free, %s reserved\n", mclass_name(i),
			       size_str(a, k->total), size_str(b, k->used),
			       size_str(c, k->free), size_str(d, k->reserve));
	}
}

static void status_line(const char *style, const char *name, const char *text, const char *end)
{
	printf("%8s: %s", name, style);
	ui_print(stdout, text);
	printf("%s\n", end);
}

static void status_text(struct ui *ui, const struct status *s)
{
	char uuid[UUID_STR], id[16];

	status_line(ui_bold(ui), "pool", s->is_open ? s->info.name : s->path, ui_plain(ui));
	status_line("", "path", s->path, "");
	status_line(is_healthy(s) ? ui_good(ui) : ui_bad(ui), "health", s->health, ui_plain(ui));
	snprintf(id, sizeof(id), "%s%s%s", s->error_id[0] ? " [" : "", s->error_id,
		 s->error_id[0] ? "]" : "");
	if (s->cause[0])
		status_line("", "cause", s->cause, id);
	if (s->action[0])
		status_line("", "action", s->action, "");
	if (!s->is_open)
		return;
	if (s->info.label[0])
		status_line("", "label", s->info.label, "");
	printf("    uuid: %s\n", uuid_str(uuid, s->info.uuid));
	printf("  format: 0x%04x, generation %llu\n", s->info.format_version,
	       (unsigned long long)s->info.generation);
	printf("     i/o: %s, %s\n", s->info.io, s->info.is_direct ?
	       "direct" : "buffered on at least one member: the page cache is in the way");
	printf(" objects: %llu\n", (unsigned long long)s->info.objects);
	status_space_text(s);
	status_devices_text(ui, s);
}

static void status_classes_json(struct json *j, const struct status *s)
{
	json_arr(j, "classes");
	for (unsigned i = 0; i < MPOOL_MCLASSES; i++) {
		const struct mpool_class_info *k = &s->info.cls[i];

		if (!k->devs)
			continue;
		json_obj(j, NULL);
		json_str(j, "class", mclass_name(i));
		json_u64(j, "devices", k->devs);
		json_u64(j, "total", k->total);
		json_u64(j, "used", k->used);
		json_u64(j, "free", k->free);
		json_u64(j, "reserve", k->reserve);
		json_u64(j, "discarding", k->discarding);
		json_end(j);
	}
	json_end(j);
}

static void status_devices_json(struct json *j, const struct status *s)
{
	char uuid[UUID_STR];

	json_arr(j, "devices");
	for (unsigned i = 0; i < s->ndevs; i++) {
		const struct mpool_dev_info *d = &s->dev[i];

		json_obj(j, NULL);
		json_str(j, "path", d->path);
		json_str(j, "uuid", uuid_str(uuid, d->uuid));
		json_str(j, "class", mclass_name(d->mclass));
		json_u64(j, "slot", d->slot);
		json_u64(j, "size", d->size);
		json_bool(j, "is_block", d->is_block);
		json_bool(j, "is_direct", d->is_direct);
		json_u64(j, "read_bytes", d->read_bytes);
		json_u64(j, "write_bytes", d->write_bytes);
		json_u64(j, "discard_bytes", d->discard_bytes);
		health_json(j, d);
		json_end(j);
	}
	json_end(j);
}

static void status_json(struct ui *ui, const struct status *s)
{
	struct json *j = &ui->js;
	const struct mpool_info *n = &s->info;
	char uuid[UUID_STR];

	json_obj(j, NULL);
	json_str(j, "path", s->path);
	json_str(j, "health", s->health);
	json_bool(j, "is_healthy", is_healthy(s));
	json_str(j, "cause", s->cause[0] ? s->cause : NULL);
	json_str(j, "action", s->action[0] ? s->action : NULL);
	json_str(j, "error_id", s->error_id[0] ? s->error_id : NULL);
	if (s->is_open) {
		json_str(j, "name", n->name);
		json_str(j, "label", n->label);
		json_str(j, "uuid", uuid_str(uuid, n->uuid));
		json_u64(j, "uid", n->uid);
		json_u64(j, "gid", n->gid);
		json_u64(j, "mode", n->mode);
		json_u64(j, "format_version", n->format_version);
		json_u64(j, "generation", n->generation);
		json_u64(j, "objects", n->objects);
		json_str(j, "io", n->io);
		json_bool(j, "is_direct", n->is_direct);
		status_classes_json(j, s);
		status_devices_json(j, s);
	}
	json_end(j);
}

/*
 * The exit code for a pool that was not opened: bad health only counts with
 * --exit, but a pool that is absent, busy or closed to the caller always does.
 */
static int status_code(struct ui *ui, const struct status *s, int rc, bool is_asked)
{
	int code = exit_from_error(rc, s->error_id);

	if (code == EXIT_DAMAGE || (!rc && !is_healthy(s)))
		return args_has(ui->args, "exit") ? EXIT_DAMAGE : EXIT_DONE;
	if (is_busy(s) && args_has(ui->args, "unhealthy"))
		return EXIT_DONE;
	return is_asked ? code : EXIT_DONE;
}

static int status_one(struct ui *ui, const char *path, bool is_asked, unsigned *shown)
{
	struct target t;
	struct status *s;
	int rc, code;

	code = target_open(ui, path, &t);
	if (code)
		return code;
	s = malloc(sizeof(*s));
	if (!s)
		return ui_error(ui, EXIT_FAILED, NULL, NULL, "out of memory");
	rc = status_get(path, t.path, s);
	target_close(&t);
	code = status_code(ui, s, rc, is_asked);
	if (rc && is_asked && code && code != EXIT_DAMAGE) {
		ui_fail(ui, path, rc, mpool_error_detail());
	} else if (!args_has(ui->args, "unhealthy") || !is_healthy(s)) {
		if (ui->json)
			status_json(ui, s);
		else {
			if ((*shown)++)
				putchar('\n');
			status_text(ui, s);
		}
	}
	free(s);
	return code;
}

int verb_status(struct ui *ui)
{
	const struct args *a = ui->args;
	unsigned shown = 0;
	int rc, code = EXIT_DONE;

	if (ui->json) {
		ui_doc_begin(ui, 1, 1);
		json_arr(&ui->js, "pools");
	}
	for (int i = 0; i < a->n; i++) {
		rc = status_one(ui, a->v[i], true, &shown);
		code = code ? code : rc;
	}
	if (!a->n) {
		char **found = pool_find();

		for (char **p = found; p && *p; p++) {
			rc = status_one(ui, *p, false, &shown);
			code = code ? code : rc;
		}
		if (!found || !*found)
			ui_note(ui, "no pool in this directory or its direct subdirectories, as "
				"far as you may read them");
		pool_list_free(found);
	}
	if (ui->json) {
		json_end(&ui->js);
		ui_doc_end(ui);
	} else if (!code && !shown && args_has(a, "unhealthy")) {
		ui_note(ui, "all pools are healthy");
	}
	return code;
}
