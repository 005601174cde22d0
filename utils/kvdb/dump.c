/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb dump: a database, a store or a range of one as lines of text, which
 * "kvdb load" turns back into the same.
 *
 * jsonl (the format of this file's verb, of scan -j, and of load):
 *	{"output_version":{...}}		header
 *	{"kvs":"users","prefix_len":0,"ttl_s":0,"policy":"default","compress":"none"}
 *						a store begins, also an empty one; its
 *						options, which older dumps lack
 *	{"kvs":"users","key":"a","value":"b"}	a record; key_hex, value_hex: bytes that
 *						are not UTF-8
 *	{"end":true,"stores":1,"records":1}	a dump without it was cut
 * tsv: key TAB value, one store only, as "scan -H".
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cli.h"
#include "progress.h"

const struct opt dump_opts[] = {
	RANGE_OPTS,
	{ "format", 0, OPT_ENUM, 0, "FORMAT",
	  "format of the lines: jsonl or tsv (default jsonl); tsv holds one store", "format",
	  "jsonl|tsv" },
	KEY_HEX_OPT,
	DB_OPTS,
	{ .name = NULL },
};

struct dump {
	struct ui *ui;
	const char *kvs;
	bool is_tsv;
	uint64_t records, stores;
	struct progress p;
};

static int dump_record(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct dump *d = arg;
	struct json *j = &d->ui->js;

	if (d->is_tsv) {
		esc_print(stdout, key, klen);
		putchar('\t');
		esc_print(stdout, val, vlen);
		putchar('\n');
	} else {
		json_obj(j, NULL);
		json_str(j, "kvs", d->kvs);
		json_bytes(j, "key", "key_hex", key, klen);
		json_bytes(j, "value", "value_hex", val, vlen);
		json_end(j);
	}
	d->records++;
	if (!(d->records & 255))
		progress_update(&d->p, d->records);
	return ferror(stdout);
}

static int dump_store(struct dump *d, struct kvdb *db, const char *name, const struct range *r)
{
	struct json *j = &d->ui->js;
	struct kvdb_kvs_info in;
	struct kvdb_kvs *kvs;
	int rc = kvdb_kvs_open(db, name, &kvs);

	d->kvs = name;
	if (!rc)
		rc = kvdb_kvs_info(kvs, &in);
	if (!rc && !d->is_tsv) {
		json_obj(j, NULL);
		json_str(j, "kvs", name);
		kvs_opts_json(j, &in);
		json_end(j);
	}
	if (!rc)
		rc = range_walk(r, kvs, 0, dump_record, d);
	d->stores += !rc;
	return rc ? db_fail(d->ui, name, rc) : EXIT_DONE;
}

static int dump_all(struct dump *d, struct kvdb *db, const struct range *r)
{
	struct ui *ui = d->ui;
	char (*names)[KVDB_NAME_MAX + 1];
	int n, i, rc = EXIT_DONE;

	if (!d->is_tsv)
		ui_lines_begin(ui, 1, 1);
	if (ui->args->n > 1) {
		rc = dump_store(d, db, ui->args->v[1], r);
	} else {
		n = kvs_names(db, &names);
		for (i = 0; i < n && !rc && !ferror(stdout); i++)
			rc = dump_store(d, db, names[i], r);
	}
	if (rc || d->is_tsv || ferror(stdout))
		return rc;
	json_obj(&ui->js, NULL);
	json_bool(&ui->js, "end", true);
	json_u64(&ui->js, "stores", d->stores);
	json_u64(&ui->js, "records", d->records);
	json_end(&ui->js);
	return EXIT_DONE;
}

int verb_dump(struct ui *ui)
{
	struct dump d = { .ui = ui, .is_tsv = args_num(ui->args, "format", 0) == 1 };
	const char *path = ui->args->v[0];
	struct kvdb *db;
	struct range r;
	int rc;

	if (d.is_tsv && ui->json)
		return ui_usage(ui, "-j and --format tsv exclude each other");
	if (d.is_tsv && ui->args->n < 2)
		return ui_usage(ui, "tsv holds one store: name it, or use --format jsonl");
	rc = range_args(ui, &r);
	if (!rc && ui->args->n < 2 && (r.prefix.len || r.from.len || r.to.len))
		rc = ui_usage(ui, "a range is one of a store: name the store");
	if (!rc)
		rc = db_open(ui, path, KVDB_RDONLY, &db);
	if (!rc) {
		progress_begin(&d.p, ui, "dump", 0, false);
		rc = dump_all(&d, db, &r);
		progress_end(&d.p, d.records);
		rc = db_close(ui, path, db, rc);
	}
	range_free(&r);
	return rc;
}
