/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool dump and mpool map: what lies on the media, for people and for tools.
 *
 * Output begins with the first line that the library delivers, so that a pool
 * that cannot be read gives an error and no half document.
 */
#include <stdio.h>
#include <string.h>

#include "members.h"
#include "table.h"

const struct opt map_opts[] = {
	TBL_OPTS,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

struct dump {
	struct ui *ui;
	const char *path;
	bool is_begun;
};

static void dump_line(void *arg, const char *line)
{
	struct dump *d = arg;

	if (!d->ui->json) {
		ui_print(stdout, line);
		return;
	}
	if (!d->is_begun) {
		d->is_begun = true;
		ui_doc_begin(d->ui, 1, 0);
		json_str(&d->ui->js, "path", d->path);
		json_arr(&d->ui->js, "lines");
	}
	json_strn(&d->ui->js, NULL, line, strcspn(line, "\n"));
}

int verb_dump(struct ui *ui)
{
	struct dump d = { .ui = ui, .path = ui->args->v[0] };
	struct target t;
	int rc = target_open(ui, d.path, &t);

	if (rc)
		return rc;
	rc = mpool_dump(t.path, NULL, dump_line, &d);
	target_close(&t);
	if (d.is_begun) {
		json_end(&ui->js);
		json_bool(&ui->js, "is_complete", rc == 0);
		ui_doc_end(ui);
	}
	return rc ? ui_fail(ui, d.path, rc, mpool_error_detail()) : EXIT_DONE;
}

static const struct col map_cols[] = {
	{ "device", COL_COUNT, true, "slot of the member, as in status -j" },
	{ "offset", COL_SIZE, true, "first byte on the member" },
	{ "length", COL_SIZE, true, "bytes" },
	{ "kind", COL_STR, true, "metadata, mblock, append or mlog" },
	{ "id", COL_STR, true, "id of the object, hexadecimal" },
	{ "what", COL_STR, true, "what it is" },
	{ NULL, 0, false, NULL },
};

struct map {
	struct ui *ui;
	struct tbl *tbl;
	bool is_begun;
};

static void map_extent(void *arg, const struct mpool_extent *e)
{
	struct map *m = arg;
	struct json *j = &m->ui->js;
	char id[32];

	if (m->ui->json) {
		if (!m->is_begun) {
			m->is_begun = true;
			ui_lines_begin(m->ui, 1, 0);
		}
		json_obj(j, NULL);
		json_u64(j, "device", e->slot);
		json_u64(j, "offset", e->off);
		json_u64(j, "length", e->len);
		json_str(j, "kind", kind_name(e->kind));
		json_u64(j, "id", e->id);
		json_str(j, "what", e->what);
		json_end(j);
		return;
	}
	tbl_row(m->tbl);
	tbl_num(m->tbl, "device", e->slot);
	tbl_num(m->tbl, "offset", e->off);
	tbl_num(m->tbl, "length", e->len);
	tbl_str(m->tbl, "kind", kind_name(e->kind));
	snprintf(id, sizeof(id), "0x%llx", (unsigned long long)e->id);
	tbl_str(m->tbl, "id", e->id ? id : NULL);
	tbl_str(m->tbl, "what", e->what);
}

int verb_map(struct ui *ui)
{
	struct map m = { .ui = ui };
	struct target t;
	int rc, code;

	m.tbl = tbl_new(ui, map_cols, &code);
	if (!m.tbl)
		return code;
	code = target_open(ui, ui->args->v[0], &t);
	rc = code ? 0 : mpool_map(t.path, NULL, map_extent, &m);
	target_close(&t);
	if (rc)
		code = ui_fail(ui, t.word, rc, mpool_error_detail());
	if (code || ui->json)
		tbl_free(m.tbl);
	else
		tbl_print(m.tbl, NULL);
	return code;
}
