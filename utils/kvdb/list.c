/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb list: which databases there are, where a person would look first.
 */
#include <errno.h>
#include <string.h>

#include "poolfind.h"
#include "remote.h"
#include "size.h"
#include "table.h"

const struct opt list_opts[] = { TBL_OPTS, DB_OPTS, { .name = NULL } };

static const struct col list_cols[] = {
	{ "db", COL_STR, true, "path or name of the pool, which names the database" },
	{ "state", COL_STR, true,
	  "clean or unclean (how it was closed), open (in use elsewhere), faulted, none (a pool "
	  "without a database), damaged, unreadable" },
	{ "kvs", COL_COUNT, true, "stores" },
	{ "keys", COL_COUNT, true, "keys, about" },
	{ "used", COL_SIZE, true, "space taken in the pool, all classes" },
	{ "free", COL_SIZE, true, "space free in the pool, all classes" },
	{ "format", COL_VERSION, false, "media format version" },
	{ "uuid", COL_STR, false, "identity of the database" },
	{ "error", COL_STR, false, "identifier of the error when it could not be opened" },
	{ NULL, 0, false, NULL },
};

static const char *state_of_error(int err)
{
	switch (err) {
	case -ENOENT:
		return "none";
	case -EBUSY:
		return "open";
	case -EUCLEAN:
	case -EIO:
	case -ENODEV:
	case -ENOTUNIQ:
	case -ESTALE:
		return "damaged";
	default:
		return "unreadable";
	}
}

static void row(struct tbl *t, const struct kvdb_info *in, const struct kvdb_stats *st,
		const char *state)
{
	char uuid[UUID_STR];
	uint64_t used = 0, left = 0;

	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		used += in->pool.cls[c].used;
		left += in->pool.cls[c].free;
	}
	tbl_str(t, "state", in->fault[0] ? "faulted" : state ? state :
		st->recovery.was_clean ? "clean" : "unclean");
	tbl_num(t, "kvs", in->kvs);
	tbl_num(t, "keys", st->keys_estimate);
	tbl_num(t, "used", used);
	tbl_num(t, "free", left);
	tbl_num(t, "format", in->format_version);
	tbl_str(t, "uuid", uuid_str(uuid, in->uuid));
}

/* What the process that has it open tells; not 0: it does not. */
static int ask_live(struct ui *ui, struct tbl *t, const char *path)
{
	struct json_object *a, *b;
	struct kvdb_stats st;
	struct kvdb_info in;
	struct remote r;
	int rc = remote_open(path, &r);

	if (rc)
		return rc;
	rc = remote_ask(ui, &r, path, remote_request("info"), &a);
	if (!rc) {
		rc = remote_ask(ui, &r, path, remote_request("stats"), &b);
		if (!rc) {
			remote_info(a, &in);
			remote_stats(b, &st);
			tbl_row(t);
			tbl_str(t, "db", path);
			row(t, &in, &st, "open");
			json_object_put(b);
		}
		json_object_put(a);
	}
	remote_close(&r);
	return rc;
}

/* A database that was named and cannot be read is an error; one that was found is listed. */
static int list_one(struct ui *ui, struct tbl *t, const char *path, bool is_named)
{
	struct kvdb_stats st;
	struct kvdb_info in;
	struct db_opts o;
	struct kvdb *db;
	int rc = db_opts(ui, &o, KVDB_RDONLY);

	if (rc)
		return rc;
	if (!ask_live(ui, t, path))
		return EXIT_DONE;
	rc = kvdb_open(path, &o.kv, &db);
	if (!rc) {
		rc = kvdb_info(db, &in);
		if (!rc)
			rc = kvdb_stats(db, &st);
		if (!rc) {
			tbl_row(t);
			tbl_str(t, "db", path);
			row(t, &in, &st, NULL);
		}
		return db_close(ui, path, db, rc ? db_fail(ui, path, rc) : EXIT_DONE);
	}
	if (is_named && rc != -EBUSY)
		return db_fail(ui, path, rc);
	tbl_row(t);
	tbl_str(t, "db", path);
	tbl_str(t, "state", state_of_error(rc));
	tbl_str(t, "error", rc == -EBUSY || rc == -ENOENT || !kvdb_error_detail()->id[0] ? NULL :
		kvdb_error_detail()->id);
	return EXIT_DONE;
}

int verb_list(struct ui *ui)
{
	const struct args *a = ui->args;
	char **found = NULL, **p;
	int code, rc, i;
	struct tbl *t;

	t = tbl_new(ui, list_cols, &code);
	if (!t)
		return code;
	for (i = 0; i < a->n; i++) {
		rc = list_one(ui, t, a->v[i], true);
		code = code ? code : rc;
	}
	if (!a->n) {
		found = pool_find();
		for (p = found; p && *p; p++) {
			rc = list_one(ui, t, *p, false);
			code = code ? code : rc;
		}
		if (!tbl_rows(t) && !code)
			ui_note(ui, "no pool in this directory or its direct subdirectories, as "
				"far as you may read them; kvdb create makes one with a database "
				"in it");
		pool_list_free(found);
	}
	if (ui->json)
		ui_doc_begin(ui, 1, 0);
	tbl_print(t, "databases");
	if (ui->json)
		ui_doc_end(ui);
	return code;
}
