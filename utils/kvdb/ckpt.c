/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Verbs on checkpoints: checkpoint create, list, drop. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "confirm.h"
#include "remote.h"
#include "size.h"
#include "table.h"

const struct opt checkpoint_opts[] = { DB_OPTS, { .name = NULL } };
const struct opt checkpoint_drop_opts[] = { CONFIRM_OPTS, PLAN_OPT, DB_OPTS, { .name = NULL } };
const struct opt checkpoint_list_opts[] = { TBL_OPTS, DB_OPTS, { .name = NULL } };

#define TIME_STR 32

static const char *time_text(char b[TIME_STR], uint64_t ns)
{
	time_t t = (time_t)(ns / 1000000000u);
	struct tm tm;

	if (!gmtime_r(&t, &tm) || !strftime(b, TIME_STR, "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(b, TIME_STR, "-");
	return b;
}

static void result_json(struct ui *ui, const char *path, const struct kvdb_checkpoint_info *c)
{
	struct json *j = &ui->js;
	char b[TIME_STR];

	ui_doc_begin(ui, 1, 0);
	json_str(j, "db", path);
	json_str(j, "checkpoint", c->name);
	json_str(j, "created", time_text(b, c->time_ns));
	json_u64(j, "stores", c->stores);
	json_u64(j, "keys", c->keys);
	json_u64(j, "bytes", c->bytes);
}

static void ckpt_of(struct json_object *o, struct kvdb_checkpoint_info *c)
{
	*c = (struct kvdb_checkpoint_info){ .id = remote_num(o, "id") };
	snprintf(c->name, sizeof(c->name), "%s", remote_str(o, "name"));
	c->time_ns = remote_num(o, "time_ns");
	c->stores = remote_num(o, "stores");
	c->keys = remote_num(o, "keys");
	c->bytes = remote_num(o, "bytes");
	c->runs = remote_num(o, "runs");
	c->segments = remote_num(o, "segments");
	c->epoch = remote_num(o, "epoch");
	c->is_damaged = remote_bool(o, "is_damaged");
}

/* Another process has it open: that one makes or drops the checkpoint, at work. */
static int ask_ckpt(struct view *v, const char *cmd, const char *name,
		    struct kvdb_checkpoint_info *c)
{
	struct json_object *q = remote_request(cmd), *a;
	int rc;

	remote_add(q, "name", name);
	rc = remote_ask(v->ui, &v->r, name, q, &a);
	if (rc)
		return rc;
	if (c)
		ckpt_of(a, c);
	json_object_put(a);
	return EXIT_DONE;
}

/* Sets @all, KVDB_CHECKPOINT_MAX of them: their number, or an exit code negated. */
static int view_ckpts(struct view *v, struct kvdb_checkpoint_info *all)
{
	struct json_object *a;
	size_t n;
	int rc;

	if (v->db)
		return kvdb_checkpoint_list(v->db, all, KVDB_CHECKPOINT_MAX);
	rc = remote_ask(v->ui, &v->r, v->path, remote_request("checkpoints"), &a);
	if (rc)
		return -rc;
	n = remote_count(a, "checkpoints");
	n = n < KVDB_CHECKPOINT_MAX ? n : KVDB_CHECKPOINT_MAX;
	for (size_t i = 0; i < n; i++)
		ckpt_of(remote_item(a, "checkpoints", i), &all[i]);
	json_object_put(a);
	return (int)n;
}

/* Sets @out to the checkpoint @name, or reports. */
static int ckpt_find(struct view *v, const char *name, struct kvdb_checkpoint_info *out)
{
	static struct kvdb_checkpoint_info all[KVDB_CHECKPOINT_MAX];
	int n = view_ckpts(v, all);

	if (n < 0)
		return -n;
	for (int i = 0; i < n; i++) {
		if (strcmp(all[i].name, name))
			continue;
		*out = all[i];
		return EXIT_DONE;
	}
	return ui_error(v->ui, EXIT_NOTFOUND, name, "kvdb checkpoint list shows all",
			"the database has no such checkpoint");
}

static int create(struct ui *ui, const char *path, const char *name,
		  struct kvdb_checkpoint_info *c)
{
	struct view v;
	int rc = view_change(ui, path, &v);

	if (rc)
		return rc;
	if (!v.db)
		return view_close(&v, ask_ckpt(&v, "checkpoint", name, c));
	rc = kvdb_checkpoint(v.db, name, 0);
	rc = rc ? db_fail(ui, name, rc) : ckpt_find(&v, name, c);
	return view_close(&v, rc);
}

int verb_checkpoint_create(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	struct kvdb_checkpoint_info c = { 0 };
	char b[SIZE_STR], s[SIZE_STR];
	int rc = create(ui, path, name, &c);

	if (rc)
		return rc;
	if (ui->json) {
		result_json(ui, path, &c);
		ui_doc_end(ui);
	} else if (!ui->quiet) {
		printf("made checkpoint %s of database %s: %s, it refers to %s\n", name, path,
		       count_str(s, c.stores, "store"), size_str(b, c.bytes));
	}
	return EXIT_DONE;
}

static int drop(struct view *v, const char *name)
{
	int rc = confirm(v->ui, name, "the checkpoint", name);

	if (rc)
		return rc;
	if (!v->db)
		return ask_ckpt(v, "checkpoint_drop", name, NULL);
	rc = kvdb_checkpoint_drop(v->db, name);
	return rc ? db_fail(v->ui, name, rc) : EXIT_DONE;
}

int verb_checkpoint_drop(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	bool is_plan = args_has(ui->args, "dry-run");
	struct kvdb_checkpoint_info c = { 0 };
	struct view v;
	int rc = is_plan ? view_open(ui, path, &v) : view_change(ui, path, &v);

	if (rc)
		return rc;
	rc = ckpt_find(&v, name, &c);
	if (!rc && !is_plan)
		rc = drop(&v, name);
	rc = view_close(&v, rc);
	if (rc)
		return rc;
	if (ui->json) {
		result_json(ui, path, &c);
		json_bool(&ui->js, "plan", is_plan);
		ui_doc_end(ui);
	} else if (!ui->quiet) {
		printf("%s checkpoint %s of database %s\n", is_plan ? "would remove" : "removed",
		       name, path);
	}
	return EXIT_DONE;
}

static const struct col ckpt_cols[] = {
	{ "name", COL_STR, true, "name of the checkpoint" },
	{ "created", COL_STR, true, "when it was made, UTC" },
	{ "stores", COL_COUNT, true, "stores in it" },
	{ "keys", COL_COUNT, true, "keys, about: overwritten and deleted ones count" },
	{ "bytes", COL_SIZE, true, "media that it refers to, shared with others or not" },
	{ "state", COL_STR, true, "good, or damaged: its list cannot be read" },
	{ "runs", COL_COUNT, false, "sorted lists of keys in it" },
	{ "segments", COL_COUNT, false, "log segments that hold its values" },
	{ "epoch", COL_COUNT, false, "the last epoch in it" },
	{ "id", COL_COUNT, false, "number that is never used again" },
	{ NULL, 0, false, NULL },
};

static void ckpt_row(struct tbl *t, const struct kvdb_checkpoint_info *c)
{
	char b[TIME_STR];

	tbl_row(t);
	tbl_str(t, "name", c->name);
	tbl_str(t, "created", time_text(b, c->time_ns));
	tbl_num(t, "stores", c->stores);
	tbl_num(t, "keys", c->keys);
	tbl_num(t, "bytes", c->bytes);
	tbl_str(t, "state", c->is_damaged ? "damaged" : "good");
	tbl_num(t, "runs", c->runs);
	tbl_num(t, "segments", c->segments);
	tbl_num(t, "epoch", c->epoch);
	tbl_num(t, "id", c->id);
}

int verb_checkpoint_list(struct ui *ui)
{
	static struct kvdb_checkpoint_info all[KVDB_CHECKPOINT_MAX];
	const char *path = ui->args->v[0];
	struct kvdb_stats st;
	struct view v;
	struct tbl *t;
	int rc, n, i;

	t = tbl_new(ui, ckpt_cols, &rc);
	if (!t)
		return rc;
	rc = view_open(ui, path, &v);
	if (rc) {
		tbl_free(t);
		return rc;
	}
	rc = view_stats(&v, &st);
	n = rc ? -rc : view_ckpts(&v, all);
	if (n < 0) {
		tbl_free(t);
		return view_close(&v, -n);
	}
	for (i = 0; i < n; i++)
		ckpt_row(t, &all[i]);
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "db", path);
		json_u64(&ui->js, "pinned_bytes", st.pinned_bytes);
	}
	tbl_print(t, "checkpoints");
	if (ui->json)
		ui_doc_end(ui);
	return view_close(&v, EXIT_DONE);
}
