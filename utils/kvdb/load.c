/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb load: records from a text file, one per line.
 *
 * tsv:   key TAB value, with the escapes \t \n \r \\ \xHH in both.
 * jsonl: {"key":..,"value":..}; key_hex and value_hex carry bytes that are not
 *        text. A line with "output_version" (the first line that "scan -j"
 *        writes) is skipped, so that scan's output can be loaded as it is.
 *
 * dump:  the jsonl that "kvdb dump" writes: each record names its store, stores
 *        that are missing are made, and the last line says that it is whole.
 *
 * With --sorted the records of a store appear at once at the end, or not at all
 * (kvdb_bulk_open()).
 *
 * A bad line stops the load and is named with its number; what came before it
 * stays loaded. With --skip-bad it is named and left out, and the exit code
 * says so at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* json-c has a type of the name that the JSON writer of the tools gives a function */
#define json_bool jsonc_bool
#include <json-c/json.h>
#undef json_bool

#include "cli.h"
#include "progress.h"
#include "size.h"

/* text of a record at its longest: both parts wholly escaped, and the frame */
#define LINE_MAX_BYTES (8u * (KVDB_VALUE_MAX + KVDB_KEY_MAX) + 4096)
#define BAD_SHOWN      20

const struct opt load_opts[] = {
	{ "format", 0, OPT_ENUM, 0, "FORMAT", "format of the lines: tsv or jsonl (default tsv)",
	  "format", "tsv|jsonl" },
	{ "dump", 0, OPT_FLAG, 0, NULL,
	  "FILE is what 'kvdb dump' wrote: each record goes to the store that it names, and "
	  "stores that do not exist are made; KVS is not given then", NULL, NULL },
	{ "create", 'c', OPT_FLAG, 0, NULL, "make the store when it does not exist", NULL, NULL },
	{ "sorted", 0, OPT_FLAG, 0, NULL,
	  "keys ascend by their bytes (LC_ALL=C sort): write each record once, past the logs, and "
	  "let all of a store appear at the end or none", NULL, NULL },
	{ "skip-bad", 0, OPT_FLAG, 0, NULL, "name bad lines, leave them out and go on", NULL,
	  NULL },
	DB_OPTS_WRITE,
	{ .name = NULL },
};

/* set by SIGINT, SIGTERM and SIGHUP: end after the current record */
static volatile sig_atomic_t is_stopped;

static void on_signal(int sig)
{
	(void)sig;
	is_stopped = 1;
}

struct load {
	struct ui *ui;
	const char *file;
	struct kvdb *db;
	struct kvdb_kvs *kvs;
	struct kvdb_bulk *bulk; /* with --sorted, of kvs */
	char name[KVDB_NAME_MAX + 1]; /* of kvs, in a dump */
	struct json_tokener *tok;
	struct bytes key, val;
	bool is_jsonl, is_skip, is_dump, is_sorted, has_end;
	uint64_t line, records, bytes, bad;
	char why[160];
};

static int bad(struct load *l, const char *why)
{
	snprintf(l->why, sizeof(l->why), "%s", why);
	return -EBADMSG;
}

static int parse_tsv(struct load *l, const char *s, size_t len)
{
	const char *tab = memchr(s, '\t', len);
	int rc;

	if (!tab)
		return bad(l, "no tab between key and value");
	rc = esc_decode(&l->key, s, (size_t)(tab - s));
	if (!rc)
		rc = esc_decode(&l->val, tab + 1, len - (size_t)(tab + 1 - s));
	return rc == -EINVAL ? bad(l, "unknown escape (\\t \\n \\r \\\\ \\xHH are known)") : rc;
}

static int json_part(struct load *l, struct json_object *o, const char *name, struct bytes *out)
{
	char hex[16];
	struct json_object *v;
	int rc;

	if (json_object_object_get_ex(o, name, &v)) {
		if (!json_object_is_type(v, json_type_string)) {
			snprintf(l->why, sizeof(l->why), "\"%s\" is not a string", name);
			return -EBADMSG;
		}
		return bytes_add(out, json_object_get_string(v),
				 (size_t)json_object_get_string_len(v));
	}
	snprintf(hex, sizeof(hex), "%s_hex", name);
	if (!json_object_object_get_ex(o, hex, &v) || !json_object_is_type(v, json_type_string)) {
		snprintf(l->why, sizeof(l->why), "no \"%s\" and no \"%s\"", name, hex);
		return -EBADMSG;
	}
	rc = hex_decode(out, json_object_get_string(v), (size_t)json_object_get_string_len(v));
	if (rc == -EINVAL) {
		snprintf(l->why, sizeof(l->why), "\"%s\" is not hexadecimal", hex);
		return -EBADMSG;
	}
	return rc;
}

/* The bulk load of the store at hand, if there is one, is at its end. */
static int bulk_end(struct load *l)
{
	struct kvdb_bulk *b = l->bulk;

	l->bulk = NULL;
	return b ? kvdb_bulk_finish(b) : 0;
}

static int number_in(struct load *l, struct json_object *o, const char *name, uint64_t *out)
{
	struct json_object *v;

	if (!json_object_object_get_ex(o, name, &v))
		return 0;
	*out = json_object_get_uint64(v);
	if (json_object_is_type(v, json_type_int) && json_object_get_int64(v) >= 0)
		return 0;
	snprintf(l->why, sizeof(l->why), "\"%s\" is not a number", name);
	return -EBADMSG;
}

/* Its text; NULL: it is another kind, or what stands behind a zero byte would be left out. */
static const char *text_of(struct json_object *v)
{
	const char *s = json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;

	return s && strlen(s) == (size_t)json_object_get_string_len(v) ? s : NULL;
}

static int word_in(struct load *l, struct json_object *o, const char *name,
		   bool (*number)(const char *word, uint32_t *out), uint32_t *out)
{
	struct json_object *v;

	if (!json_object_object_get_ex(o, name, &v))
		return 0;
	if (text_of(v) && number(text_of(v), out))
		return 0;
	snprintf(l->why, sizeof(l->why), "\"%s\" is unknown", name);
	return -EBADMSG;
}

/* The options that the line of a store has. */
static int opts_in(struct load *l, struct json_object *line, struct kvdb_kvs_opts *o)
{
	uint64_t pfx = 0;
	int rc = number_in(l, line, "prefix_len", &pfx);

	*o = (struct kvdb_kvs_opts)KVDB_KVS_OPTS_INIT;
	o->pfx_len = pfx < UINT32_MAX ? (uint32_t)pfx : UINT32_MAX;
	if (!rc)
		rc = number_in(l, line, "ttl_s", &o->ttl_s);
	if (!rc)
		rc = word_in(l, line, "policy", kvs_policy_of, &o->policy);
	if (!rc)
		rc = word_in(l, line, "compress", kvs_compress_of, &o->compress);
	return rc;
}

static int store_make(struct load *l, const char *name, struct json_object *line)
{
	struct kvdb_kvs_opts o;
	int rc = opts_in(l, line, &o);

	if (!rc)
		rc = kvdb_kvs_create(l->db, name, &o);
	return rc ? rc : kvdb_kvs_open(l->db, name, &l->kvs);
}

/* The store that a line of a dump names; made when it is not there. */
static int dump_store(struct load *l, const char *name, struct json_object *line)
{
	int rc;

	if (l->kvs && !strcmp(l->name, name))
		return 0;
	rc = bulk_end(l);
	if (!rc)
		rc = kvdb_kvs_open(l->db, name, &l->kvs);
	if (rc == -ENOENT)
		rc = store_make(l, name, line);
	if (!rc && l->is_sorted)
		rc = kvdb_bulk_open(l->kvs, 0, &l->bulk);
	if (rc) {
		l->kvs = NULL;
		return rc;
	}
	snprintf(l->name, sizeof(l->name), "%s", name);
	return 0;
}

/* What is not a record in the output of dump: 1 = skip it, 0 = a record follows. */
static int dump_line(struct load *l, struct json_object *o)
{
	bool has_key = json_object_object_get_ex(o, "key", NULL) ||
		       json_object_object_get_ex(o, "key_hex", NULL);
	struct json_object *v = NULL;
	int rc;

	if (!has_key && json_object_object_get_ex(o, "end", NULL)) {
		l->has_end = true;
		return 1;
	}
	if (!json_object_object_get_ex(o, "kvs", &v) && l->is_dump)
		return bad(l, "no \"kvs\": not a line of kvdb dump");
	if (!l->is_dump)
		return v && !has_key ? 1 : 0;
	if (!text_of(v))
		return bad(l, "\"kvs\" is not a string, or one with a zero byte");
	l->has_end = false;
	rc = dump_store(l, text_of(v), o);
	return rc ? rc : !has_key;
}

/* \uDxyy at @s, x one of @half */
static bool is_half(const char *s, const char *end, const char *half)
{
	return end - s >= 6 && s[0] == '\\' && s[1] == 'u' && (s[2] == 'd' || s[2] == 'D') &&
	       strchr(half, s[3]);
}

/*
 * Half of a surrogate pair, of which no UTF-8 is made: Python writes \udc80 to
 * \udcff for other bytes, and the parser would take each for U+FFFD.
 */
static bool has_half_pair(const char *s, size_t len)
{
	const char *end = s + len;

	while ((s = memchr(s, '\\', (size_t)(end - s)))) {
		if (is_half(s, end, "89abAB") && is_half(s + 6, end, "cdefCDEF"))
			s += 12;
		else if (is_half(s, end, "89abcdefABCDEF"))
			return true;
		else
			s += 2; /* a line that was parsed has no lone backslash at its end */
	}
	return false;
}

/* 1 = a line to skip */
static int parse_jsonl(struct load *l, const char *s, size_t len)
{
	struct json_object *o;
	int rc;

	json_tokener_reset(l->tok);
	o = json_tokener_parse_ex(l->tok, s, (int)len);
	if (!o) {
		enum json_tokener_error e = json_tokener_get_error(l->tok);

		snprintf(l->why, sizeof(l->why), "not JSON: %s",
			 e == json_tokener_continue ? "it ends in the middle" :
						      json_tokener_error_desc(e));
		return -EBADMSG;
	}
	if (!json_object_is_type(o, json_type_object))
		rc = bad(l, "not a JSON object");
	else if (json_tokener_get_parse_end(l->tok) < len)
		rc = bad(l, "text after the JSON object");
	else if (has_half_pair(s, len))
		rc = bad(l, "half a surrogate pair; other bytes go into key_hex and value_hex");
	else if (json_object_object_get_ex(o, "output_version", NULL))
		rc = 1;
	else
		rc = dump_line(l, o);
	if (!rc)
		rc = json_part(l, o, "key", &l->key);
	if (!rc)
		rc = json_part(l, o, "value", &l->val);
	json_object_put(o);
	return rc;
}

static int check_record(struct load *l)
{
	if (!l->key.len)
		return bad(l, "the key is empty");
	if (l->key.len > KVDB_KEY_MAX) {
		snprintf(l->why, sizeof(l->why), "the key has %zu bytes; at most %u are possible",
			 l->key.len, KVDB_KEY_MAX);
		return -EBADMSG;
	}
	if (l->val.len > KVDB_VALUE_MAX) {
		snprintf(l->why, sizeof(l->why), "the value has %zu bytes; at most %u are possible",
			 l->val.len, KVDB_VALUE_MAX);
		return -EBADMSG;
	}
	return 0;
}

static int store_record(struct load *l)
{
	const void *val = l->val.len ? (void *)l->val.p : "";
	int rc;

	if (!l->bulk)
		return kvdb_put(l->kvs, l->key.p, l->key.len, val, l->val.len);
	rc = kvdb_bulk_add(l->bulk, l->key.p, l->key.len, val, l->val.len);
	if (rc == -EINVAL)
		return bad(l, "the key is not greater than the one before (LC_ALL=C sort)");
	return rc;
}

static int load_line(struct load *l, const char *s, size_t len)
{
	int rc;

	l->key.len = 0;
	l->val.len = 0;
	if (len > LINE_MAX_BYTES)
		return bad(l, "the line is longer than any record can be");
	rc = l->is_jsonl ? parse_jsonl(l, s, len) : parse_tsv(l, s, len);
	if (rc)
		return rc > 0 ? 0 : rc;
	rc = check_record(l);
	if (rc)
		return rc;
	rc = store_record(l);
	if (rc)
		return rc;
	l->records++;
	l->bytes += l->key.len + l->val.len;
	return 0;
}

static int load_bad(struct load *l)
{
	char where[4200], n[SIZE_STR];

	snprintf(where, sizeof(where), "%s:%" PRIu64, l->file, l->line);
	l->bad++;
	if (!l->is_skip)
		return ui_error(l->ui, EXIT_FAILED, where, "--skip-bad leaves such lines out",
				"%s; stopped after %s", l->why, count_str(n, l->records, "record"));
	if (l->bad <= BAD_SHOWN)
		ui_error(l->ui, EXIT_FAILED, where, NULL, "%s", l->why);
	return EXIT_DONE;
}

/* The library's reason, and how far the load came. */
static int load_fail(struct load *l, int rc)
{
	struct mpool_error e = *kvdb_error_detail();
	size_t n = strlen(e.text);
	char done[SIZE_STR];

	count_str(done, l->records, "record");
	if (!e.id[0])
		return ui_error(l->ui, exit_from_error(rc, NULL), l->file, NULL,
				"%s; stopped after %s", strerror(-rc), done);
	snprintf(e.text + n, sizeof(e.text) - n, "; stopped after %s", done);
	return ui_fail(l->ui, l->file, rc, &e);
}

static int load_all(struct load *l, FILE *f, struct progress *p)
{
	uint64_t read = 0;
	char *line = NULL;
	char n[SIZE_STR];
	size_t room = 0;
	ssize_t len;
	int rc = 0, code = EXIT_DONE;

	while (!code && !is_stopped && (len = getline(&line, &room, f)) >= 0) {
		read += (uint64_t)len;
		l->line++;
		if (len && line[len - 1] == '\n')
			len--;
		if (!len)
			continue;
		rc = load_line(l, line, (size_t)len);
		if (rc == -EBADMSG)
			code = load_bad(l);
		else if (rc)
			code = load_fail(l, rc);
		if (!(l->line & 255))
			progress_update(p, read);
	}
	rc = errno;
	free(line);
	progress_end(p, read);
	/* a signal also ends the wait for a line */
	if (!code && is_stopped)
		code = ui_error(l->ui, EXIT_FAILED, l->file, NULL,
				"interrupted after %s", count_str(n, l->records, "record"));
	/* a line that memory does not hold is neither its end nor an error of the file */
	else if (!code && !feof(f))
		code = ui_error(l->ui, EXIT_FAILED, l->file, NULL,
				"%s; stopped after %s", strerror(rc),
				count_str(n, l->records, "record"));
	else if (!code && l->is_dump && !l->has_end)
		code = ui_error(l->ui, EXIT_FAILED, l->file, "make the dump again",
				"it ends without the last line of a dump, so it was cut; %s stored",
				count_str(n, l->records, "record"));
	return code;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void load_report(const struct load *l, uint64_t ns)
{
	struct json *j = &l->ui->js;
	char b[SIZE_STR], n[SIZE_STR];

	if (l->ui->json) {
		ui_doc_begin(l->ui, 1, 0);
		json_str(j, "file", l->file);
		json_u64(j, "lines", l->line);
		json_u64(j, "records", l->records);
		json_u64(j, "bytes", l->bytes);
		json_u64(j, "bad_lines", l->bad);
		json_u64(j, "elapsed_ns", ns);
		ui_doc_end(l->ui);
	} else if (!l->ui->quiet) {
		printf("loaded %s, %s, in %.2f s", count_str(n, l->records, "record"),
		       bytes_str(b, l->bytes), (double)ns / 1e9);
		if (l->bad)
			printf("; left out %" PRIu64 " bad lines", l->bad);
		putchar('\n');
	}
}

static int load_into(struct load *l, struct kvdb *db, FILE *f)
{
	const char *name = l->is_dump ? l->ui->args->v[0] : l->ui->args->v[1];
	uint64_t begin = now_ns();
	struct progress p;
	struct stat st;
	int rc, code;

	l->db = db;
	rc = l->is_dump ? 0 : kvdb_kvs_open(db, name, &l->kvs);
	if (rc == -ENOENT && args_has(l->ui->args, "create")) {
		rc = kvdb_kvs_create(db, name, NULL);
		if (!rc)
			rc = kvdb_kvs_open(db, name, &l->kvs);
	}
	if (!rc && l->is_sorted && !l->is_dump)
		rc = kvdb_bulk_open(l->kvs, 0, &l->bulk);
	if (rc)
		return db_fail(l->ui, name, rc);
	progress_begin(&p, l->ui, "load",
		       !fstat(fileno(f), &st) && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0,
		       true);
	code = load_all(l, f, &p);
	if (code && l->bulk) {
		kvdb_bulk_abort(l->bulk);
		ui_note(l->ui, "nothing of store %s was stored", l->is_dump ? l->name : name);
	}
	rc = code ? 0 : bulk_end(l);
	if (!rc)
		rc = kvdb_sync(db);
	if (rc && !code)
		code = db_fail(l->ui, name, rc);
	if (!code || (l->bad && l->is_skip && !is_stopped))
		load_report(l, now_ns() - begin);
	return !code && l->bad ? EXIT_FAILED : code;
}

int verb_load(struct ui *ui)
{
	struct load l = { .ui = ui, .is_dump = args_has(ui->args, "dump") };
	int file = l.is_dump ? 1 : 2, rc;
	struct kvdb *db;
	FILE *f = stdin;

	if (ui->args->n < file)
		return ui_usage(ui, "load needs DB KVS, or with --dump DB");
	if (ui->args->n > file + 1)
		return ui_usage(ui, "a dump names its stores: with --dump give DB and FILE only");
	if (l.is_dump && (args_has(ui->args, "format") || args_has(ui->args, "create")))
		return ui_usage(ui, "--dump stands without --format and --create");
	l.file = ui->args->n > file ? ui->args->v[file] : "-";
	l.is_jsonl = l.is_dump || args_num(ui->args, "format", 0) == 1;
	l.is_skip = args_has(ui->args, "skip-bad");
	l.is_sorted = args_has(ui->args, "sorted");
	if (strcmp(l.file, "-")) {
		int fd = open(l.file, O_RDONLY | O_CLOEXEC);

		f = fd >= 0 ? fdopen(fd, "r") : NULL;
		if (!f)
			return ui_fail(ui, l.file, -errno, NULL);
	}
	if (l.is_jsonl) {
		l.tok = json_tokener_new();
		if (!l.tok)
			return ui_fail(ui, l.file, -ENOMEM, NULL);
		json_tokener_set_flags(l.tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8 |
						      JSON_TOKENER_ALLOW_TRAILING_CHARS);
	}
	ui_on_stop(on_signal);
	rc = db_open(ui, ui->args->v[0], 0, &db);
	if (!rc)
		rc = db_close(ui, ui->args->v[0], db, load_into(&l, db, f));
	if (f != stdin)
		fclose(f);
	if (l.tok)
		json_tokener_free(l.tok);
	bytes_free(&l.key);
	bytes_free(&l.val);
	return rc;
}
