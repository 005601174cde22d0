/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Databases that processes have open, as their control sockets tell. Where those lie is written
 * in libkvdb/ctl/ctl.c. A name below /tmp could be any user's: only this user and root count.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <json-c/json.h>

#include "ctlsock.h"
#include "databases.h"

#define WAIT_S	   5
#define ANSWER_MAX 65536u

static const char ask[] = "{\"cmd\":\"info\"}\n";

/* The answer, one line; NULL: there is none, or none that can be read. */
static struct json_object *info_of(const char *path)
{
	static char line[ANSWER_MAX];
	struct json_object *o = NULL;
	size_t len = 0;
	ssize_t n = 0;
	int fd = ctlsock_open(path, geteuid(), WAIT_S, WAIT_S);

	if (fd < 0)
		return NULL;
	if (send(fd, ask, sizeof(ask) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(ask) - 1)
		n = 1;
	while (n > 0 && len < sizeof(line) - 1) {
		n = recv(fd, line + len, sizeof(line) - 1 - len, 0);
		len += n > 0 ? (size_t)n : 0;
		line[len] = '\0';
		if (len && line[len - 1] == '\n') {
			o = json_tokener_parse(line);
			break;
		}
	}
	close(fd);
	return o;
}

static struct json_object *member(struct json_object *o, const char *name)
{
	struct json_object *v = NULL;

	if (json_object_is_type(o, json_type_object))
		json_object_object_get_ex(o, name, &v);
	return v;
}

static const char *words(struct json_object *o, const char *name)
{
	struct json_object *v = member(o, name);

	return json_object_is_type(v, json_type_string) ? json_object_get_string(v) : "";
}

static void tell(const char *path, void (*fn)(void *arg, const struct live_db *l), void *arg)
{
	struct json_object *o = info_of(path);

	if (o && json_object_get_boolean(member(o, "ok"))) {
		struct live_db l = {
			.pool = words(member(o, "pool"), "name"),
			.pid = json_object_get_uint64(member(o, "pid")),
			.fault = words(o, "fault"),
			.stuck = json_object_get_uint64(member(o, "stuck")),
			.stuck_s = json_object_get_uint64(member(o, "stuck_ns")) / 1000000000u,
			.stuck_text = words(o, "stuck_text"),
		};

		fn(arg, &l);
	}
	json_object_put(o);
}

void databases_each(void (*fn)(void *arg, const struct live_db *l), void *arg)
{
	const char *xdg = secure_getenv("XDG_RUNTIME_DIR");
	unsigned uid = (unsigned)geteuid();
	char dir[3][300], path[600];

	snprintf(dir[0], sizeof(dir[0]), "%s/kvdb", xdg && *xdg == '/' ? xdg : "/run");
	snprintf(dir[1], sizeof(dir[1]), uid ? "/run/user/%u/kvdb" : "/run/kvdb", uid);
	snprintf(dir[2], sizeof(dir[2]), "/tmp/kvdb-%u", uid);
	for (unsigned i = 0; i < 3; i++) {
		DIR *d = i && !strcmp(dir[i], dir[0]) ? NULL : opendir(dir[i]);
		struct dirent *e;

		while (d && (e = readdir(d))) {
			size_t len = strlen(e->d_name);

			if (len < 5 || strcmp(e->d_name + len - 5, ".sock"))
				continue;
			snprintf(path, sizeof(path), "%.299s/%s", dir[i], e->d_name);
			tell(path, fn, arg);
		}
		if (d)
			closedir(d);
	}
}
