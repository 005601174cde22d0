/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Asking the process that has a database open (libkvdb/ctl/README.md), and the
 * way of commands that read: from that process, else from the pool.
 */
#ifndef KVDB_REMOTE_H
#define KVDB_REMOTE_H

/* json-c has a type of the name that the JSON writer of the tools gives a function */
#define json_bool jsonc_bool
#include <json-c/json.h>
#undef json_bool

#include "cli.h"

struct remote {
	int fd;           /* -1: not connected */
	struct bytes in;  /* the last answer */
};

/* Connects; 0, -ENOENT (no process listens), -EACCES, -EPERM and others. */
int remote_open(const char *path, struct remote *r);
void remote_close(struct remote *r);

/* A request {"cmd":@cmd}; members of text are added unless NULL. */
struct json_object *remote_request(const char *cmd);
void remote_add(struct json_object *request, const char *name, const char *value);
/*
 * Asks, takes over @request, and gives the answer, or reports and returns an
 * exit code. The caller puts the answer.
 */
int remote_ask(struct ui *ui, struct remote *r, const char *object, struct json_object *request,
	       struct json_object **out);

/*
 * Members of an answer; absent or of another kind: 0, false, "", no items. The pool's
 * owner may answer, so nothing else looks into one.
 */
uint64_t remote_num(struct json_object *o, const char *name);
bool remote_bool(struct json_object *o, const char *name);
int remote_err(struct json_object *o, const char *name); /* 0 or a negative errno */
const char *remote_str(struct json_object *o, const char *name);
size_t remote_count(struct json_object *o, const char *name); /* of items of an array */
struct json_object *remote_item(struct json_object *o, const char *name, size_t i);
void remote_info(struct json_object *o, struct kvdb_info *in);
void remote_stats(struct json_object *o, struct kvdb_stats *st);
/* The members of its pool in an answer to "stats", at most @max: their number. */
unsigned remote_devices(struct json_object *o, struct mpool_dev_info *out, unsigned max);

/* struct view - a database to look at: open here for reading, or elsewhere */
struct view {
	struct ui *ui;
	const char *path;
	struct kvdb *db;          /* NULL: elsewhere */
	struct remote r;
	uint64_t pid;             /* of the process that has it open, 0 = closed */
	struct json_object *tree; /* what view_names() and view_shape() ask once */
};

/* Finds the process that has it open, or opens it for reading; reports; returns an exit code. */
int view_open(struct ui *ui, const char *path, struct view *v);
/* The same for a change: what is not open is opened for writing. */
int view_change(struct ui *ui, const char *path, struct view *v);
/* Returns @code, or the exit code of a failed close when @code is good. */
int view_close(struct view *v, int code);
int view_info(struct view *v, struct kvdb_info *in);
int view_stats(struct view *v, struct kvdb_stats *st);
/* The members of its pool, at most @max: @*n. */
int view_devices(struct view *v, struct mpool_dev_info *out, unsigned max, unsigned *n);
/* Names of the stores, sorted, in static memory: their number, or an exit code negated. */
int view_names(struct view *v, char (**names)[KVDB_NAME_MAX + 1]);
/* Memtables and runs of a store; free(s->part). */
int view_shape(struct view *v, const char *name, struct shape *s);

#endif
