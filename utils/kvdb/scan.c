/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Ranges of keys, and the verb scan: records in key order. Output is streamed;
 * it is never held in memory.
 */
#include <errno.h>
#include <string.h>

#include "cli.h"

const struct opt scan_opts[] = {
	RANGE_OPTS,
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

/* ---- ranges --------------------------------------------------------------- */

int range_args(struct ui *ui, struct range *r)
{
	static const char *const names[3] = { "prefix", "from", "to" };
	struct bytes *to[3] = { &r->prefix, &r->from, &r->to };
	const char *v;
	int i, rc;

	memset(r, 0, sizeof(*r));
	r->limit = UINT64_MAX;
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

void range_free(struct range *r)
{
	bytes_free(&r->prefix);
	bytes_free(&r->from);
	bytes_free(&r->to);
}

int range_walk(const struct range *r, struct kvdb_kvs *kvs, unsigned flags, range_fn *fn,
	       void *arg)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	struct kvdb_cursor *cur;
	const void *key, *val;
	size_t klen, vlen;
	int rc;

	if (!r->limit)
		return 0;
	o.flags = flags | (r->is_reverse ? KVDB_REVERSE : 0);
	o.prefix = r->prefix.p;
	o.plen = r->prefix.len;
	o.from = r->from.p;
	o.flen = r->from.len;
	o.to = r->to.p;
	o.tlen = r->to.len;
	o.limit = r->limit == UINT64_MAX ? 0 : r->limit;
	rc = r->txn ? kvdb_txn_cursor_open_opts(r->txn, kvs, &o, &cur) :
		      kvdb_cursor_open_opts(kvs, &o, &cur);
	if (rc)
		return rc;
	while (!(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen)))
		if (fn(arg, key, klen, val, vlen))
			break;
	kvdb_cursor_close(cur);
	return rc == -ENOENT ? 0 : rc;
}

/* ---- scan ----------------------------------------------------------------- */

struct scan {
	struct ui *ui;
	bool is_keys_only, is_hex;
};

static int scan_print(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	const struct scan *s = arg;
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
		return ferror(stdout);
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
	return ferror(stdout);
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
	struct scan s = { .ui = ui, .is_keys_only = args_has(ui->args, "keys-only"),
			  .is_hex = args_has(ui->args, "hex") };
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	struct range r;
	int rc = range_args(ui, &r);

	r.is_reverse = args_has(ui->args, "reverse");
	r.limit = args_num(ui->args, "limit", UINT64_MAX);
	if (!rc)
		rc = db_open_kvs(ui, path, name, KVDB_RDONLY, &db, &kvs);
	if (rc)
		goto out;
	scan_header(&s);
	rc = range_walk(&r, kvs, s.is_keys_only ? KVDB_KEYS_ONLY : 0, scan_print, &s);
	if (rc)
		rc = db_fail(ui, name, rc);
	rc = db_close(ui, path, db, rc);
out:
	range_free(&r);
	return rc;
}
