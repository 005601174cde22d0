/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Verbs on one record: get, put, del.
 *
 * get writes the value's bytes and nothing else, so that a pipe receives what
 * was stored.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* ---- get ------------------------------------------------------------------ */

const struct opt get_opts[] = {
	{ "hex", 'x', OPT_FLAG, 0, NULL, "print the value as hexadecimal text", NULL, NULL },
	KEY_HEX_OPT,
	DB_OPTS_PLAIN,
	{ .name = NULL },
};

static void get_print(struct ui *ui, const struct bytes *key, const void *val, size_t vlen)
{
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_bytes(&ui->js, "key", "key_hex", key->p, key->len);
		if (args_has(ui->args, "hex"))
			json_hex(&ui->js, "value_hex", val, vlen);
		else
			json_bytes(&ui->js, "value", "value_hex", val, vlen);
		json_u64(&ui->js, "length", vlen);
		ui_doc_end(ui);
		return;
	}
	if (args_has(ui->args, "hex")) {
		hex_print(stdout, val, vlen);
		putchar('\n');
		return;
	}
	fwrite(val, 1, vlen, stdout);
	/* a pipe gets the value's bytes and no more */
	if (ui->tty_out && (!vlen || ((const char *)val)[vlen - 1] != '\n'))
		putchar('\n');
}

int verb_get(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	struct bytes key = { 0 };
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	size_t vlen = 0;
	char *buf;
	int rc = key_operand(ui, ui->args->v[2], &key);

	if (rc)
		return rc;
	rc = db_open_kvs(ui, path, name, KVDB_RDONLY, &db, &kvs);
	if (rc)
		goto out_key;
	buf = malloc(KVDB_VALUE_MAX);
	rc = buf ? kvdb_get(kvs, key.p, key.len, buf, KVDB_VALUE_MAX, &vlen) : -ENOMEM;
	if (rc == -ENOENT)
		rc = ui_error(ui, EXIT_NOTFOUND, ui->args->v[2], NULL, "no such key in %s", name);
	else if (rc)
		rc = db_fail(ui, name, rc);
	else
		get_print(ui, &key, buf, vlen);
	free(buf);
	rc = db_close(ui, path, db, rc);
out_key:
	bytes_free(&key);
	return rc;
}

/* ---- put ------------------------------------------------------------------ */

const struct opt put_opts[] = {
	{ "sync", 0, OPT_FLAG, 0, NULL, "make it durable before reporting success", NULL, NULL },
	{ "hex", 'x', OPT_FLAG, 0, NULL, "VALUE is hexadecimal text", NULL, NULL },
	{ "create", 'c', OPT_FLAG, 0, NULL, "make the store if the database has none of that name",
	  NULL, NULL },
	KEY_HEX_OPT,
	DB_OPTS_WRITE_PLAIN,
	{ .name = NULL },
};

/* more than @most is read when there is more, so that it is refused */
static int read_stdin(struct ui *ui, struct bytes *b, size_t most)
{
	char chunk[16384];
	size_t n;

	while (b->len <= most && (n = fread(chunk, 1, sizeof(chunk), stdin)) > 0)
		if (bytes_add(b, chunk, n))
			return ui_fail(ui, "value", -ENOMEM, NULL);
	if (ferror(stdin))
		return ui_fail(ui, "standard input", errno ? -errno : -EIO, NULL);
	return EXIT_DONE;
}

static int value_operand(struct ui *ui, const char *s, struct bytes *val)
{
	struct bytes raw = { 0 };
	int rc = EXIT_DONE;

	if (strcmp(s, "-"))
		rc = bytes_add(&raw, s, strlen(s)) ? ui_fail(ui, "value", -ENOMEM, NULL) : 0;
	else
		rc = read_stdin(ui, &raw, (args_has(ui->args, "hex") ? 2 : 1) * KVDB_VALUE_MAX);
	if (rc || !args_has(ui->args, "hex")) {
		*val = raw;
		return rc;
	}
	while (raw.len && raw.p[raw.len - 1] == '\n')
		raw.len--;
	rc = hex_decode(val, (char *)raw.p, raw.len);
	bytes_free(&raw);
	if (rc == -EINVAL)
		return ui_usage(ui, "VALUE is not hexadecimal");
	return rc ? ui_fail(ui, "value", rc, NULL) : EXIT_DONE;
}

static int check_sizes(struct ui *ui, const char *what, size_t klen, size_t vlen)
{
	if (klen == 0 || klen > KVDB_KEY_MAX)
		return ui_error(ui, EXIT_USAGE, what, NULL,
				"the key has %zu bytes; 1 to %u are possible", klen, KVDB_KEY_MAX);
	if (vlen > KVDB_VALUE_MAX)
		return ui_error(ui, EXIT_USAGE, what, NULL,
				"the value has more than %u bytes", KVDB_VALUE_MAX);
	return EXIT_DONE;
}

/* What put stored, or (@val NULL) what del deleted; printed when it is durable. */
static void record_json(struct ui *ui, const struct bytes *key, const struct bytes *val)
{
	ui_doc_begin(ui, 1, 0);
	json_str(&ui->js, "db", ui->args->v[0]);
	json_str(&ui->js, "kvs", ui->args->v[1]);
	json_bytes(&ui->js, "key", "key_hex", key->p, key->len);
	if (val)
		json_u64(&ui->js, "length", val->len);
	ui_doc_end(ui);
}

int verb_put(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	struct bytes key = { 0 }, val = { 0 };
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	int rc = key_operand(ui, ui->args->v[2], &key);

	if (!rc)
		rc = value_operand(ui, ui->args->v[3], &val);
	/* before the database is opened: opening may recover, and that is a change */
	if (!rc)
		rc = check_sizes(ui, name, key.len, val.len);
	if (!rc)
		rc = db_open_or_make(ui, path, name, args_has(ui->args, "create"), &db, &kvs);
	if (rc)
		goto out;
	rc = kvdb_put(kvs, key.p, key.len, val.len ? (void *)val.p : "", val.len);
	if (!rc && args_has(ui->args, "sync"))
		rc = kvdb_sync(db);
	rc = db_close(ui, path, db, rc ? db_fail(ui, name, rc) : EXIT_DONE);
	if (!rc && ui->json)
		record_json(ui, &key, &val);
out:
	bytes_free(&key);
	bytes_free(&val);
	return rc;
}

/* ---- del ------------------------------------------------------------------ */

const struct opt del_opts[] = {
	{ "sync", 0, OPT_FLAG, 0, NULL, "make it durable before reporting success", NULL, NULL },
	KEY_HEX_OPT,
	DB_OPTS_WRITE_PLAIN,
	{ .name = NULL },
};

int verb_del(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	struct bytes key = { 0 };
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	size_t vlen;
	int rc = key_operand(ui, ui->args->v[2], &key);

	if (!rc)
		rc = check_sizes(ui, name, key.len, 0);
	if (!rc)
		rc = db_open_kvs(ui, path, name, 0, &db, &kvs);
	if (rc)
		goto out;
	/* the library deletes absent keys silently; a person that names one wants to know */
	rc = kvdb_get(kvs, key.p, key.len, NULL, 0, &vlen);
	if (rc == -ENOENT) {
		rc = ui_error(ui, EXIT_NOTFOUND, ui->args->v[2], NULL, "no such key in %s", name);
	} else {
		if (!rc)
			rc = kvdb_del(kvs, key.p, key.len);
		if (!rc && args_has(ui->args, "sync"))
			rc = kvdb_sync(db);
		if (rc)
			rc = db_fail(ui, name, rc);
	}
	rc = db_close(ui, path, db, rc);
	if (!rc && ui->json)
		record_json(ui, &key, NULL);
out:
	bytes_free(&key);
	return rc;
}
