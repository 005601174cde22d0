/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What media and processor are used for, between two readings of the counters:
 * bytes for each byte of the user's, by class and purpose, and operations for
 * each second of processor time.
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "json.h"

struct purpose {
	const char *name;
	size_t off;	/* in struct kvdb_io */
};

static const struct purpose written[] = {
	{ "log", offsetof(struct kvdb_io, log_bytes) },
	{ "key", offsetof(struct kvdb_io, key_bytes) },
	{ "move", offsetof(struct kvdb_io, move_bytes) },
	{ "meta", offsetof(struct kvdb_io, meta_bytes) },
}, read_for[] = {
	{ "log", offsetof(struct kvdb_io, read_log_bytes) },
	{ "key", offsetof(struct kvdb_io, read_key_bytes) },
	{ "move", offsetof(struct kvdb_io, read_move_bytes) },
	{ "value", offsetof(struct kvdb_io, read_value_bytes) },
};
#define PURPOSES (sizeof(written) / sizeof(written[0]))

static uint64_t bytes_of(const struct kvdb_stats *st, unsigned c, const struct purpose *p)
{
	uint64_t n = 0;

	if (st)
		memcpy(&n, (const char *)&st->io[c] + p->off, sizeof(n));
	return n;
}

static double per_byte(const struct kvdb_stats *from, const struct kvdb_stats *to, unsigned c,
		       const struct purpose *p, uint64_t user)
{
	return user ? (double)(bytes_of(to, c, p) - bytes_of(from, c, p)) / (double)user : 0;
}

static uint64_t user_written(const struct kvdb_stats *from, const struct kvdb_stats *to)
{
	return to->user_write_bytes - (from ? from->user_write_bytes : 0);
}

static uint64_t user_read(const struct kvdb_stats *from, const struct kvdb_stats *to)
{
	return to->user_read_bytes - (from ? from->user_read_bytes : 0);
}

static double sum(const struct kvdb_stats *from, const struct kvdb_stats *to,
		  const struct purpose *p, uint64_t user)
{
	double n = 0;

	for (unsigned c = 0; c < MPOOL_MCLASSES; c++)
		for (unsigned i = 0; i < PURPOSES; i++)
			n += per_byte(from, to, c, &p[i], user);
	return n;
}

double efficiency_written(const struct kvdb_stats *from, const struct kvdb_stats *to)
{
	return sum(from, to, written, user_written(from, to));
}

double efficiency_read(const struct kvdb_stats *from, const struct kvdb_stats *to)
{
	return sum(from, to, read_for, user_read(from, to));
}

static uint64_t ops(const struct kvdb_stats *st)
{
	return st ? st->puts + st->gets + st->dels + st->nexts : 0;
}

double efficiency_ops(const struct kvdb_stats *from, const struct kvdb_stats *to)
{
	uint64_t cpu_ns = to->cpu_ns - (from ? from->cpu_ns : 0);

	return cpu_ns ? (double)(ops(to) - ops(from)) * 1e9 / (double)cpu_ns : 0;
}

static void list_json(struct json *j, const char *name, const struct kvdb_stats *from,
		      const struct kvdb_stats *to, unsigned c, const struct purpose *p,
		      uint64_t user)
{
	json_obj(j, name);
	for (unsigned i = 0; i < PURPOSES; i++)
		json_f64(j, p[i].name, per_byte(from, to, c, &p[i], user));
	json_end(j);
}

void efficiency_json(struct json *j, const struct kvdb_stats *from, const struct kvdb_stats *to)
{
	json_f64(j, "ops_per_cpu_s", efficiency_ops(from, to));
	json_arr(j, "per_user_byte");
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		json_obj(j, NULL);
		json_str(j, "class", class_name[c]);
		list_json(j, "written", from, to, c, written, user_written(from, to));
		list_json(j, "read", from, to, c, read_for, user_read(from, to));
		json_end(j);
	}
	json_end(j);
}

static void list_text(const char *label, const char *what, const struct kvdb_stats *from,
		      const struct kvdb_stats *to, unsigned c, const struct purpose *p,
		      uint64_t user)
{
	bool is_used = false;

	for (unsigned i = 0; i < PURPOSES; i++)
		is_used |= bytes_of(to, c, &p[i]) != bytes_of(from, c, &p[i]);
	if (!is_used || !user)
		return;
	printf("%s %s, %s:", label, what, class_name[c]);
	for (unsigned i = 0; i < PURPOSES; i++)
		printf(" %s %.3f", p[i].name, per_byte(from, to, c, &p[i], user));
	putchar('\n');
}

void efficiency_text(const char *label, const struct kvdb_stats *from, const struct kvdb_stats *to)
{
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		list_text(label, "written per byte put", from, to, c, written,
			  user_written(from, to));
		list_text(label, "read per byte got", from, to, c, read_for, user_read(from, to));
	}
	printf("%s operations per second of processor time: %.0f\n", label,
	       efficiency_ops(from, to));
}
