/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Verbs on records: get, put, del, scan.
 *
 * get writes the value's bytes and nothing else, so that a pipe receives what
 * was stored. scan streams: its output is never held in memory.
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
	if (ui->tty_out)
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
	KEY_HEX_OPT,
	DB_OPTS_WRITE_PLAIN,
	{ .name = NULL },
};

/* one byte more than a value may have is read, so that the library refuses it */
static int read_stdin(struct ui *ui, struct bytes *b)
{
	char chunk[16384];
	size_t n;

	while (b->len <= KVDB_VALUE_MAX && (n = fread(chunk, 1, sizeof(chunk), stdin)) > 0)
		if (bytes_add(b, chunk, n))
			return ui_fail(ui, "value", -ENOMEM, NULL);
	if (ferror(stdin))
		return ui_error(ui, EXIT_FAILED, "standard input", NULL, "cannot be read");
	return EXIT_DONE;
}

static int value_operand(struct ui *ui, const char *s, struct bytes *val)
{
	struct bytes raw = { 0 };
	int rc = EXIT_DONE;

	if (strcmp(s, "-"))
		rc = bytes_add(&raw, s, strlen(s)) ? ui_fail(ui, "value", -ENOMEM, NULL) : 0;
	else
		rc = read_stdin(ui, &raw);
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
		rc = db_open_kvs(ui, path, name, 0, &db, &kvs);
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
	/* the library deletes absent keys silently; a person who names one wants to know */
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

/* ---- scan ----------------------------------------------------------------- */

const struct opt scan_opts[] = {
	{ "prefix", 0, OPT_STR, 0, "P", "only keys that begin with P", "prefix", NULL },
	{ "from", 0, OPT_STR, 0, "K", "only keys not less than K", "from", NULL },
	{ "to", 0, OPT_STR, 0, "K", "only keys less than K", "to", NULL },
	{ "reverse", 'r', OPT_FLAG, 0, NULL, "descending order", NULL, NULL },
	{ "limit", 0, OPT_UINT, 0, "N", "at most N records", "limit", NULL },
	{ "keys-only", 'k', OPT_FLAG, 0, NULL, "do not read the values", NULL, NULL },
	{ "no-header", 'H', OPT_FLAG, 0, NULL, "print no header: output can be loaded as tsv",
	  NULL, NULL },
	{ "hex", 'x', OPT_FLAG, 0, NULL, "print keys and values as hexadecimal text", NULL, NULL },
	KEY_HEX_OPT,
	DB_OPTS,
	{ .name = NULL },
};

struct scan {
	struct ui *ui;
	struct bytes prefix, from, to;
	bool is_reverse, is_keys_only, is_hex;
	uint64_t limit;
};

static int compare(const void *a, size_t alen, const void *b, size_t blen)
{
	int c = memcmp(a, b, alen < blen ? alen : blen);

	return c ? c : (alen > blen) - (alen < blen);
}

static void scan_print(const struct scan *s, const void *key, size_t klen, const void *val,
		       size_t vlen)
{
	struct json *j = &s->ui->js;

	if (s->ui->json) {
		json_obj(j, NULL);
		if (s->is_hex)
			json_hex(j, "key_hex", key, klen);
		else
			json_bytes(j, "key", "key_hex", key, klen);
		if (!s->is_keys_only && s->is_hex)
			json_hex(j, "value_hex", val, vlen);
		else if (!s->is_keys_only)
			json_bytes(j, "value", "value_hex", val, vlen);
		json_end(j);
		return;
	}
	if (s->is_hex)
		hex_print(stdout, key, klen);
	else
		esc_print(stdout, key, klen);
	if (!s->is_keys_only) {
		putchar('\t');
		if (s->is_hex)
			hex_print(stdout, val, vlen);
		else
			esc_print(stdout, val, vlen);
	}
	putchar('\n');
}

/* 0 inside the range, > 0 beyond its end in scan direction, < 0 before its begin */
static int scan_side(const struct scan *s, const void *key, size_t klen)
{
	bool low = s->from.len && compare(key, klen, s->from.p, s->from.len) < 0;
	bool high = s->to.len && compare(key, klen, s->to.p, s->to.len) >= 0;

	if (s->is_reverse)
		return low ? 1 : high ? -1 : 0;
	return high ? 1 : low ? -1 : 0;
}

static int scan_walk(const struct scan *s, struct kvdb_cursor *cur)
{
	const struct bytes *at = s->is_reverse ? &s->to : &s->from;
	const void *key, *val;
	size_t klen, vlen;
	uint64_t n = 0;
	int rc = 0, side;

	/* a start outside the prefix would leave it: the cursor's own start is right then */
	if (at->len && (at->len < s->prefix.len ||
			(s->prefix.len && memcmp(at->p, s->prefix.p, s->prefix.len))))
		at = NULL;
	if (at && at->len)
		rc = kvdb_cursor_seek(cur, at->p, at->len);
	while (!rc && n < s->limit) {
		rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen);
		if (rc)
			break;
		side = scan_side(s, key, klen);
		if (side > 0)
			break;
		if (side < 0)
			continue;
		scan_print(s, key, klen, val, vlen);
		if (ferror(stdout))
			break;
		n++;
	}
	return rc == -ENOENT ? 0 : rc;
}

static int scan_args(struct ui *ui, struct scan *s)
{
	static const char *const names[3] = { "prefix", "from", "to" };
	struct bytes *to[3] = { &s->prefix, &s->from, &s->to };
	const char *v;
	int i, rc;

	memset(s, 0, sizeof(*s));
	s->ui = ui;
	s->is_reverse = args_has(ui->args, "reverse");
	s->is_keys_only = args_has(ui->args, "keys-only");
	s->is_hex = args_has(ui->args, "hex");
	s->limit = args_num(ui->args, "limit", UINT64_MAX);
	for (i = 0; i < 3; i++) {
		v = args_str(ui->args, names[i], NULL);
		if (!v)
			continue;
		rc = key_operand(ui, v, to[i]);
		if (rc)
			return rc;
		if (to[i]->len > KVDB_KEY_MAX)
			return ui_usage(ui, "--%s: longer than a key can be (%u)", names[i],
					KVDB_KEY_MAX);
	}
	return EXIT_DONE;
}

static void scan_header(const struct scan *s)
{
	if (s->ui->json)
		ui_lines_begin(s->ui, 1, 0);
	else if (!args_has(s->ui->args, "no-header") && !s->ui->quiet)
		puts(s->is_keys_only ? "KEY" : "KEY\tVALUE");
}

int verb_scan(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	struct kvdb_cursor *cur;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	unsigned flags = 0;
	struct scan s;
	int rc = scan_args(ui, &s);

	if (!rc)
		rc = db_open_kvs(ui, path, name, KVDB_RDONLY, &db, &kvs);
	if (rc)
		goto out;
	flags |= s.is_reverse ? KVDB_REVERSE : 0;
	flags |= s.is_keys_only ? KVDB_KEYS_ONLY : 0;
	rc = kvdb_cursor_open(kvs, flags, s.prefix.p, s.prefix.len, &cur);
	if (!rc) {
		scan_header(&s);
		rc = scan_walk(&s, cur);
		if (rc)
			rc = db_fail(ui, name, rc);
		kvdb_cursor_close(cur);
	} else {
		rc = db_fail(ui, name, rc);
	}
	rc = db_close(ui, path, db, rc);
out:
	bytes_free(&s.prefix);
	bytes_free(&s.from);
	bytes_free(&s.to);
	return rc;
}
