/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb repair: what damage left of a database goes into another one. The
 * damaged one is only read, so there is nothing to confirm; without another one
 * the verb says what would be lost. --rollback alone writes to it; the epoch that
 * must be named is the confirmation.
 */
#include <errno.h>
#include <inttypes.h>

#include "cli.h"
#include "confirm.h"
#include "size.h"

const struct opt repair_opts[] = {
	PLAN_OPT,
	{ "rollback", 0, OPT_UINT, 0, "EPOCH",
	  "of a database whose log is damaged (MP0907): give up all that was written after the "
	  "last good epoch, which the error names; DB itself is written, there is no TO", NULL,
	  NULL },
	DB_OPTS,
	{ .name = NULL }
};

static bool is_whole(const struct kvdb_repair *r)
{
	return !r->is_guess && !r->found_keys && !r->lost_values && !r->lost_ranges &&
	       !r->log_bytes;
}

static void result_json(struct ui *ui, const char *to, const struct kvdb_repair *r)
{
	struct json *j = &ui->js;

	json_u64(j, "stores", r->stores);
	json_u64(j, "keys", r->keys);
	json_u64(j, "found_keys", r->found_keys);
	json_u64(j, "bytes", r->bytes);
	json_u64(j, "lost_values", r->lost_values);
	json_u64(j, "lost_ranges", r->lost_ranges);
	json_u64(j, "lost_log_bytes", r->log_bytes);
	json_u64(j, "expired_keys", r->expired_keys);
	json_bool(j, "is_guess", r->is_guess);
	json_bool(j, "is_whole", is_whole(r));
	json_str(j, "to", to);
}

static void result_text(const char *path, const char *to, const struct kvdb_repair *r)
{
	char b[SIZE_STR], k[SIZE_STR], s[SIZE_STR];

	printf("%s: %s of %s, %s, %s%s; uncertain among them: %" PRIu64 "\n", path,
	       count_str(k, r->keys + r->found_keys, "key"), count_str(s, r->stores, "store"),
	       bytes_str(b, r->bytes), to ? "brought to " : "can be brought over", to ? to : "",
	       r->found_keys);
	if (r->lost_values || r->lost_ranges || r->log_bytes)
		printf("%s: lost: %s, %s of keys, %s of logs\n", path,
		       count_str(k, r->lost_values, "value"), count_str(s, r->lost_ranges, "range"),
		       bytes_str(b, r->log_bytes));
	if (r->expired_keys)
		printf("%s: left out: %s, expired by the clock of this machine\n", path,
		       count_str(k, r->expired_keys, "key"));
	if (is_whole(r))
		printf("%s: nothing is lost\n", path);
}

/* Opening for writing commits what was given up; for reading it shows that it would work. */
static int rollback(struct ui *ui, const char *path, struct db_opts *o)
{
	bool plan = args_has(ui->args, "dry-run");
	uint32_t flags = o->kv.flags;
	struct kvdb *db;
	int rc;

	o->kv.flags |= KVDB_RDONLY;
	rc = kvdb_open(path, &o->kv, &db);
	if (!rc)
		return db_close(ui, path, db, ui_error(ui, EXIT_USAGE, path, NULL,
				"its log is not damaged, there is nothing to give up"));
	if (rc != -EUCLEAN)
		return db_fail(ui, path, rc);
	o->kv.flags = flags;
	o->kv.rollback = args_num(ui->args, "rollback", 0);
	o->kv.flags |= plan ? KVDB_RDONLY : 0;
	rc = kvdb_open(path, &o->kv, &db);
	rc = rc ? db_fail(ui, path, rc) : db_close(ui, path, db, EXIT_DONE);
	if (rc)
		return rc;
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "db", path);
		json_bool(&ui->js, "plan", plan);
		json_u64(&ui->js, "rollback", o->kv.rollback);
		ui_doc_end(ui);
	} else if (!ui->quiet) {
		printf("%s: %s at epoch %" PRIu64 "\n", path, plan ? "can end" : "ends",
		       o->kv.rollback);
	}
	return EXIT_DONE;
}

int verb_repair(struct ui *ui)
{
	const char *path = ui->args->v[0], *to = ui->args->n > 1 ? ui->args->v[1] : NULL;
	struct kvdb_repair r = { 0 };
	struct kvdb *db = NULL;
	struct db_opts o;
	int rc = db_opts(ui, &o, 0);

	if (!rc && args_has(ui->args, "rollback"))
		return to ? ui_usage(ui, "--rollback: there is no TO") : rollback(ui, path, &o);
	if (args_has(ui->args, "dry-run"))
		to = NULL;
	if (!rc && to)
		rc = db_open_empty(ui, to, &db);
	if (rc)
		return rc;
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "db", path);
		json_bool(&ui->js, "plan", !to);
		json_arr(&ui->js, "findings");
	}
	rc = kvdb_repair(path, &o.kv, db, finding, ui, &r);
	if (ui->json) {
		json_end(&ui->js);
		result_json(ui, to, &r);
		ui_doc_end(ui);
	}
	rc = rc ? db_fail(ui, path, rc) : EXIT_DONE;
	if (db)
		rc = db_close(ui, to, db, rc);
	if (rc)
		return rc;
	if (!ui->json && !ui->quiet)
		result_text(path, to, &r);
	return is_whole(&r) ? EXIT_DONE : EXIT_DAMAGE;
}
