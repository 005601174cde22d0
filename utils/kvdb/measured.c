/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Strict: a file that is not the whole output of one 'mpool bench -j' is refused. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define json_bool jsonc_bool /* json-c's type and our printer have one name */
#include <json-c/json.h>
#undef json_bool

#include "cli.h"
#include "measured.h"

#define FILE_MAX (1u << 20)

static struct json_object *member(struct json_object *o, const char *name, enum json_type type)
{
	struct json_object *v;

	return json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, name, &v) &&
	       json_object_is_type(v, type) ? v : NULL;
}

/* Positive numbers only: fio measures no zero. */
static bool number(struct json_object *o, const char *name, uint64_t *out)
{
	struct json_object *v = member(o, name, json_type_int);
	int64_t n = v ? json_object_get_int64(v) : 0;

	*out = n > 0 ? (uint64_t)n : 0;
	return n > 0;
}

static bool text_is(struct json_object *o, const char *name, const char *text)
{
	struct json_object *v = member(o, name, json_type_string);

	return v && !strcmp(json_object_get_string(v), text);
}

static struct json_object *result(struct json_object *doc, const char *job, const char *op)
{
	struct json_object *list = member(doc, "results", json_type_array), *r;

	for (size_t i = 0; list && i < json_object_array_length(list); i++) {
		r = json_object_array_get_idx(list, i);
		if (text_is(r, "job", job) && text_is(r, "op", op))
			return r;
	}
	return NULL;
}

static bool take(struct json_object *doc, struct measured *m)
{
	struct json_object *version = member(doc, "output_version", json_type_object);
	struct json_object *staging = member(doc, "is_for_staging", json_type_boolean);

	m->is_for_staging = json_object_get_boolean(staging);
	return text_is(version, "command", "mpool bench") && staging &&
	       number(doc, "flush_p999_ns", &m->flush_p999_ns) &&
	       number(doc, "min_interval_ms", &m->min_interval_ms) &&
	       number(result(doc, "sequential-read", "read"), "bandwidth",
		      &m->seq_read_bytes_per_s) &&
	       number(result(doc, "sequential-write", "write"), "bandwidth",
		      &m->seq_write_bytes_per_s) &&
	       number(result(doc, "random-read-1", "read"), "p50", &m->random_read_ns);
}

int measured_read(struct ui *ui, const char *path, struct measured *out)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct json_object *doc = NULL;
	struct stat st;
	bool is_good;

	if (fd < 0)
		return ui_fail(ui, path, -errno, NULL);
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= FILE_MAX)
		doc = json_object_from_fd(fd);
	close(fd);
	is_good = doc && take(doc, out);
	json_object_put(doc);
	if (is_good)
		return EXIT_DONE;
	return ui_error(ui, EXIT_USAGE, path, "make it by 'mpool bench -j DEV|FILE >BENCH'",
			"this is not what mpool bench printed");
}
