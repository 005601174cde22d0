/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb set: options of stores, kept in the database, and settings of a
 * database in use, which are the process's that has it open.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "remote.h"
#include "size.h"

const struct opt set_opts[] = {
	{ "interval", 0, OPT_STR, 0, "TIME",
	  "loss bound: 1ms or more, or 'none' = durable at sync and close only", "interval", NULL },
	{ "commit", 0, OPT_ENUM, 0, "ON", "every write is durable when it returns: off or on",
	  "commit", "off|on" },
	{ "log", 0, OPT_SIZE, 0, "SIZE",
	  "log since the oldest record that is not in a run, at most; what an opening reads after "
	  "a crash", "log", NULL },
	KVS_OPTS,
	DB_OPTS,
	{ .name = NULL },
};

struct setting {
	const char *opt, *name; /* here, and in kvdb_set() */
	char value[32];
};

/* The value in the library's spelling. */
static int setting_value(struct ui *ui, struct setting *s)
{
	const char *text = args_str(ui->args, s->opt, "");
	uint64_t v = args_num(ui->args, s->opt, 0);

	if (strcmp(s->opt, "interval")) {
		snprintf(s->value, sizeof(s->value), "%" PRIu64, v);
		return EXIT_DONE;
	}
	if (!strcmp(text, "none")) {
		snprintf(s->value, sizeof(s->value), "none");
		return EXIT_DONE;
	}
	if (time_parse(text, &v) || v < 1000000 || v / 1000000 >= KVDB_INTERVAL_NONE)
		return ui_usage(ui, "--interval: \"%s\" is not a time from 1ms to 49d, or none",
				text);
	snprintf(s->value, sizeof(s->value), "%" PRIu64, v / 1000000);
	return EXIT_DONE;
}

static void result(struct ui *ui, const char *kvs)
{
	const char *path = ui->args->v[0];

	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "db", path);
		json_str(&ui->js, "kvs", kvs);
		json_obj(&ui->js, "set");
		for (unsigned i = 0; i < ui->args->ngiven; i++) {
			const struct opt *o = ui->args->given[i].opt;

			if (o->key && strcmp(o->key, "cache") && strcmp(o->key, "io"))
				json_str(&ui->js, o->name, ui->args->given[i].str);
		}
		json_end(&ui->js);
		ui_doc_end(ui);
	} else if (!ui->quiet) {
		printf("%s %s: set\n", kvs ? "store" : "database", kvs ? kvs : path);
	}
}

static int set_live(struct ui *ui, struct setting *list, unsigned n)
{
	const char *path = ui->args->v[0];
	struct json_object *q, *a;
	struct remote r;
	unsigned i;
	int rc;

	rc = remote_open(path, &r);
	if (rc == -EACCES || rc == -EPERM)
		return ui_error(ui, EXIT_PERMISSION, path, "ask as that user, or as root",
				"another user's process has it open");
	/* a misspelt path is told from a database that no process has open */
	if (rc && strchr(path, '/') && access(path, F_OK))
		return ui_fail(ui, path, -errno, NULL);
	if (rc)
		return ui_error(ui, EXIT_NOTFOUND, path, "a program gives them to kvdb_open(); see "
				"kvdb info for who has it open", "no process that answers has it "
				"open, and these settings are of an open database");
	for (i = 0, rc = 0; i < n && !rc; i++) {
		q = remote_request("set");
		remote_add(q, "name", list[i].name);
		remote_add(q, "value", list[i].value);
		rc = remote_ask(ui, &r, path, q, &a);
		if (!rc)
			json_object_put(a);
	}
	remote_close(&r);
	if (!rc)
		result(ui, NULL);
	return rc;
}

static int set_store_live(struct view *v, const char *name, const struct kvdb_kvs_opts *o,
			  unsigned mask)
{
	struct json_object *q = remote_request("set"), *a;
	int rc;

	remote_add(q, "kvs", name);
	if (mask & KVDB_KVS_TTL)
		json_object_object_add(q, "ttl_s", json_object_new_uint64(o->ttl_s));
	if (mask & KVDB_KVS_POLICY)
		json_object_object_add(q, "policy", json_object_new_uint64(o->policy));
	if (mask & KVDB_KVS_COMPRESS)
		json_object_object_add(q, "compress", json_object_new_uint64(o->compress));
	rc = remote_ask(v->ui, &v->r, name, q, &a);
	if (!rc)
		json_object_put(a);
	return rc;
}

static int set_store(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	struct kvdb_kvs_opts ko;
	struct kvdb_kvs *kvs;
	struct view v;
	unsigned mask;
	int rc = kvs_args(ui, &ko, &mask);

	if (!rc && !mask)
		rc = ui_usage(ui, "of a store ttl, policy and compress can be set");
	if (!rc)
		rc = view_change(ui, path, &v);
	if (rc)
		return rc;
	if (!v.db) {
		rc = set_store_live(&v, name, &ko, mask);
	} else {
		rc = kvdb_kvs_open(v.db, name, &kvs);
		if (!rc)
			rc = kvdb_kvs_set(kvs, &ko, mask);
		rc = rc ? db_fail(ui, name, rc) : EXIT_DONE;
	}
	rc = view_close(&v, rc);
	if (!rc)
		result(ui, name);
	return rc;
}

int verb_set(struct ui *ui)
{
	struct setting all[] = {
		{ .opt = "interval", .name = "interval_ms" },
		{ .opt = "commit", .name = "commit" },
		{ .opt = "log", .name = "log_bytes" },
	}, given[3];
	unsigned i, n = 0;
	int rc;

	for (i = 0; i < 3; i++) {
		if (!args_has(ui->args, all[i].opt))
			continue;
		rc = setting_value(ui, &all[i]);
		if (rc)
			return rc;
		given[n++] = all[i];
	}
	if (ui->args->n > 1)
		return n ? ui_usage(ui, "interval, commit and log are settings of a database, not "
				    "of a store") : set_store(ui);
	if (args_has(ui->args, "ttl") || args_has(ui->args, "policy") ||
	    args_has(ui->args, "compress"))
		return ui_usage(ui, "ttl, policy and compress are options of a store: name it");
	if (!n)
		return ui_usage(ui, "nothing to set; of a database: interval, commit, log");
	return set_live(ui, given, n);
}
