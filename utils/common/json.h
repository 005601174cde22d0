/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A streaming JSON writer.
 *
 * Integers are written exactly, never as strings; text is made valid UTF-8
 * (bytes that are not become U+FFFD). @key is NULL inside an array and at the
 * top. Errors of the stream are found when the tool ends (ui_main), not here.
 */
#ifndef UTILS_JSON_H
#define UTILS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH 16

struct json {
	FILE *f;
	unsigned depth;
	bool compact;              /* one line per top-level value */
	bool is_array[JSON_DEPTH];
	bool has_item[JSON_DEPTH];
};

void json_init(struct json *j, FILE *f, bool compact);
void json_obj(struct json *j, const char *key);   /* { ... json_end() */
void json_arr(struct json *j, const char *key);   /* [ ... json_end() */
void json_end(struct json *j);                    /* ends the innermost; newline at the top */
void json_u64(struct json *j, const char *key, uint64_t v);
void json_f64(struct json *j, const char *key, double v); /* not finite: null */
void json_bool(struct json *j, const char *key, bool v);
void json_null(struct json *j, const char *key);
void json_str(struct json *j, const char *key, const char *s); /* NULL: null */
void json_strn(struct json *j, const char *key, const void *s, size_t len);
/* A string of lower-case hexadecimal digits. */
void json_hex(struct json *j, const char *key, const void *p, size_t len);

#endif
