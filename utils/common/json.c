/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The JSON writer. Nesting is bounded by JSON_DEPTH; deeper is a programming
 * error and stops at once.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "utf8.h"

void json_init(struct json *j, FILE *f, bool compact)
{
	memset(j, 0, sizeof(*j));
	j->f = f;
	j->compact = compact;
}

static void json_indent(struct json *j)
{
	if (j->compact)
		return;
	fputc('\n', j->f);
	for (unsigned i = 0; i < j->depth; i++)
		fputs("  ", j->f);
}

static void json_quote(struct json *j, const void *s, size_t len)
{
	const unsigned char *p = s;
	size_t n;

	fputc('"', j->f);
	for (; len; p += n, len -= n) {
		n = utf8_len(p, len);
		if (!n) {
			fputs("\\ufffd", j->f);
			n = 1;
		} else if (*p == '"' || *p == '\\') {
			fprintf(j->f, "\\%c", *p);
		} else if (*p == '\n') {
			fputs("\\n", j->f);
		} else if (*p == '\t') {
			fputs("\\t", j->f);
		} else if (!utf8_shown(p, len)) {
			/* of two bytes the second one is the number */
			fprintf(j->f, "\\u%04x", p[n - 1]);
		} else {
			fwrite(p, 1, n, j->f);
		}
	}
	fputc('"', j->f);
}

/* Separator and key before a value. */
static void json_key(struct json *j, const char *key)
{
	if (j->depth) {
		if (j->has_item[j->depth])
			fputc(',', j->f);
		j->has_item[j->depth] = true;
		json_indent(j);
	}
	if (key) {
		json_quote(j, key, strlen(key));
		fputs(j->compact ? ":" : ": ", j->f);
	}
}

static void json_open(struct json *j, const char *key, bool is_array)
{
	json_key(j, key);
	if (j->depth + 1 >= JSON_DEPTH)
		abort();
	j->depth++;
	j->is_array[j->depth] = is_array;
	j->has_item[j->depth] = false;
	fputc(is_array ? '[' : '{', j->f);
}

void json_obj(struct json *j, const char *key)
{
	json_open(j, key, false);
}

void json_arr(struct json *j, const char *key)
{
	json_open(j, key, true);
}

void json_end(struct json *j)
{
	bool is_array = j->is_array[j->depth], had = j->has_item[j->depth];

	j->depth--;
	if (had)
		json_indent(j);
	fputc(is_array ? ']' : '}', j->f);
	if (!j->depth)
		fputc('\n', j->f);
}

void json_u64(struct json *j, const char *key, uint64_t v)
{
	json_key(j, key);
	fprintf(j->f, "%" PRIu64, v);
}

void json_f64(struct json *j, const char *key, double v)
{
	json_key(j, key);
	if (isfinite(v))
		fprintf(j->f, "%.6g", v);
	else
		fputs("null", j->f);
}

void json_bool(struct json *j, const char *key, bool v)
{
	json_key(j, key);
	fputs(v ? "true" : "false", j->f);
}

void json_null(struct json *j, const char *key)
{
	json_key(j, key);
	fputs("null", j->f);
}

void json_strn(struct json *j, const char *key, const void *s, size_t len)
{
	json_key(j, key);
	json_quote(j, s, len);
}

void json_str(struct json *j, const char *key, const char *s)
{
	if (s)
		json_strn(j, key, s, strlen(s));
	else
		json_null(j, key);
}

void json_hex(struct json *j, const char *key, const void *p, size_t len)
{
	const unsigned char *b = p;

	json_key(j, key);
	fputc('"', j->f);
	for (size_t i = 0; i < len; i++) {
		fputc("0123456789abcdef"[b[i] >> 4], j->f);
		fputc("0123456789abcdef"[b[i] & 15], j->f);
	}
	fputc('"', j->f);
}
