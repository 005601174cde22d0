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

/* Sets @out to the checkpoint @name; false when there is none. */
static bool ckpt_find(struct kvdb *db, const char *name, struct kvdb_checkpoint_info *out)
{
	static struct kvdb_checkpoint_info all[KVDB_CHECKPOINT_MAX];
	int n = kvdb_checkpoint_list(db, all, KVDB_CHECKPOINT_MAX);

	for (int i = 0; i < n; i++) {
		if (strcmp(all[i].name, name))
			continue;
		*out = all[i];
		return true;
	}
	return false;
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

/* Another process has it open: that one makes the checkpoint, at work. */
static int create_live(struct ui *ui, const char *path, const char *name,
		       struct kvdb_checkpoint_info *c)
{
	struct json_object *q, *a;
	struct view v;
	int rc = view_open(ui, path, &v);

	if (rc)
		return rc;
	/* it was closed a moment ago */
	if (v.db)
		return view_close(&v, ui_error(ui, EXIT_BUSY, path, "try again",
					       "it was opened and closed meanwhile"));
	q = remote_request("checkpoint");
	remote_add(q, "name", name);
	rc = remote_ask(ui, &v.r, name, q, &a);
	if (!rc) {
		snprintf(c->name, sizeof(c->name), "%s", remote_str(a, "name"));
		c->time_ns = remote_num(a, "time_ns");
		c->stores = remote_num(a, "stores");
		c->keys = remote_num(a, "keys");
		c->bytes = remote_num(a, "bytes");
		json_object_put(a);
	}
	return view_close(&v, rc);
}

static int create_here(struct ui *ui, const char *path, const char *name,
		       struct kvdb_checkpoint_info *c)
{
	struct db_opts o;
	struct kvdb *db;
	int rc = db_opts(ui, &o, 0);

	if (rc)
		return rc;
	rc = kvdb_open(path, &o.kv, &db);
	if (rc == -EBUSY)
		return create_live(ui, path, name, c);
	if (rc)
		return db_fail(ui, path, rc);
	rc = kvdb_checkpoint(db, name, 0);
	if (rc)
		rc = db_fail(ui, name, rc);
	else
		ckpt_find(db, name, c);
	return db_close(ui, path, db, rc);
}

int verb_checkpoint_create(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	struct kvdb_checkpoint_info c = { 0 };
	char b[SIZE_STR];
	int rc = create_here(ui, path, name, &c);

	if (rc)
		return rc;
	if (ui->json) {
		result_json(ui, path, &c);
		ui_doc_end(ui);
	} else if (!ui->quiet) {
		printf("made checkpoint %s of database %s: %" PRIu64 " stores, it refers to %s\n",
		       name, path, c.stores, size_str(b, c.bytes));
	}
	return EXIT_DONE;
}

int verb_checkpoint_drop(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	bool is_plan = args_has(ui->args, "dry-run");
	struct kvdb_checkpoint_info c = { 0 };
	struct kvdb *db;
	int rc = db_open(ui, path, is_plan ? KVDB_RDONLY : 0, &db);

	if (rc)
		return rc;
	if (!ckpt_find(db, name, &c)) {
		rc = ui_error(ui, EXIT_NOTFOUND, name, "kvdb checkpoint list shows all",
			      "the database has no such checkpoint");
	} else if (!is_plan) {
		rc = confirm(ui, name, "the checkpoint", name);
		if (!rc)
			rc = kvdb_checkpoint_drop(db, name);
		if (rc < 0)
			rc = db_fail(ui, name, rc);
	}
	rc = db_close(ui, path, db, rc);
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
	struct kvdb *db;
	struct tbl *t;
	int rc, n, i;

	t = tbl_new(ui, ckpt_cols, &rc);
	if (!t)
		return rc;
	rc = db_open(ui, path, KVDB_RDONLY, &db);
	if (!rc && kvdb_stats(db, &st))
		rc = db_close(ui, path, db, db_fail(ui, path, -EIO));
	if (rc) {
		tbl_free(t);
		return rc;
	}
	n = kvdb_checkpoint_list(db, all, KVDB_CHECKPOINT_MAX);
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
	return db_close(ui, path, db, EXIT_DONE);
}
