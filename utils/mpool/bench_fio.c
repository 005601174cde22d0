/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Running fio and reading its report.
 *
 * Both outputs go to memory files: a report of any length cannot block fio, and
 * its warnings do not mix with the JSON.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define REPORT_MAX (4u << 20) /* bytes */
#define EXIT_NO_FIO 127

static struct json_object *member(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	if (json_object_is_type(o, json_type_object))
		json_object_object_get_ex(o, key, &v);
	return v;
}

static uint64_t number(struct json_object *o, const char *key)
{
	double v = json_object_get_double(member(o, key));

	return v > 0 ? (uint64_t)v : 0;
}

/* @o has the members of fio's "clat_ns" */
static void parse_lat(struct json_object *o, struct bench_lat *out)
{
	struct json_object *p = member(o, "percentile");

	out->n = number(o, "N");
	out->p50 = number(p, "50.000000");
	out->p99 = number(p, "99.000000");
	out->p999 = number(p, "99.900000");
}

static void parse_io(struct json_object *o, struct bench_io *out)
{
	out->bytes_per_s = number(o, "bw_bytes");
	out->iops = number(o, "iops");
	parse_lat(member(o, "clat_ns"), &out->lat);
}

static int parse_report(const char *text, struct bench_result *out)
{
	struct json_object *root, *jobs, *job;
	int rc = -EIO;

	memset(out, 0, sizeof(*out));
	/* notes may stand before the document */
	text = strchr(text, '{');
	root = text ? json_tokener_parse(text) : NULL;
	jobs = member(root, "jobs");
	if (json_object_is_type(jobs, json_type_array) && json_object_array_length(jobs) == 1) {
		job = json_object_array_get_idx(jobs, 0);
		parse_io(member(job, "read"), &out->read);
		parse_io(member(job, "write"), &out->write);
		parse_lat(member(member(job, "sync"), "lat_ns"), &out->sync);
		rc = -(int)number(job, "error");
	}
	json_object_put(root);
	return rc;
}

/* All of a memory file as text, to be freed. */
static char *slurp(int fd)
{
	char *text = calloc(1, REPORT_MAX + 1);
	ssize_t n = text ? pread(fd, text, REPORT_MAX, 0) : 0;

	if (n < 0)
		text[0] = '\0';
	return text;
}

static int run(char *const *argv, int out, int err)
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (!pid) {
		if (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
			_exit(1);
		execvp(argv[0], argv);
		_exit(errno == ENOENT ? EXIT_NO_FIO : 1);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 128))
		return -EINTR;
	if (WEXITSTATUS(status) == EXIT_NO_FIO)
		return -ENOENT;
	return WEXITSTATUS(status) ? -EIO : 0;
}

int bench_fio(char *const *argv, struct bench_result *out, char *why, unsigned size)
{
	int rc = -EIO, rep = -EIO;
	int o = memfd_create("report", MFD_CLOEXEC), e = memfd_create("messages", MFD_CLOEXEC);
	char *text, *msg;

	why[0] = '\0';
	if (o >= 0 && e >= 0)
		rc = run(argv, o, e);
	if (o >= 0 && e >= 0 && rc != -ENOENT && rc != -EINTR) {
		text = slurp(o);
		msg = slurp(e);
		rep = text ? parse_report(text, out) : -ENOMEM;
		if (rep == -EILSEQ || (msg && strstr(msg, "verify:")))
			rc = -EILSEQ;
		else
			rc = rc ? rc : rep;
		/* without a message of its own the report may begin with one */
		if (msg && *msg)
			snprintf(why, size, "%.*s", (int)strcspn(msg, "\n"), msg);
		else if (text && rc)
			snprintf(why, size, "%.*s", (int)strcspn(text, "\n{"), text);
		free(text);
		free(msg);
	}
	if (o >= 0)
		close(o);
	if (e >= 0)
		close(e);
	return rc;
}
