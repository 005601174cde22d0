/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * One way to look at a database, whether it is closed, and then opened here for
 * reading, or in use by another process, which is asked. It is asked first: an
 * open waits a while for the other one's end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "remote.h"

static int nobody_answers(struct ui *ui, const char *path, int err)
{
	if (err == -EACCES || err == -EPERM)
		return ui_error(ui, EXIT_PERMISSION, path, "ask as that user, or as root",
				"another user's process has it open and answers that user only");
	return ui_error(ui, EXIT_BUSY, path, "close it there, or wait for its end",
			"another process has it open and no control socket tells about it: it has "
			"none (KVDB_NOCTL, opened for reading), or another XDG_RUNTIME_DIR");
}

/* It was opened a moment ago, or by a process that does not answer. */
static int busy(struct ui *ui, const char *path)
{
	struct remote r;
	int err = remote_open(path, &r);

	remote_close(&r);
	return nobody_answers(ui, path, err);
}

/* v->pid: the process that has it open and answers, or 0. */
static int find_live(struct ui *ui, const char *path, struct view *v)
{
	struct json_object *a;
	int rc;

	*v = (struct view){ .ui = ui, .path = path, .r = { .fd = -1 } };
	if (remote_open(path, &v->r))
		return EXIT_DONE;
	rc = remote_ask(ui, &v->r, path, remote_request("info"), &a);
	if (rc) {
		remote_close(&v->r);
		return rc;
	}
	v->pid = remote_num(a, "pid");
	json_object_put(a);
	/* an answer without a pid is no database's */
	if (!v->pid)
		remote_close(&v->r);
	return EXIT_DONE;
}

static int live_or_open(struct ui *ui, const char *path, uint32_t flags, struct view *v)
{
	struct db_opts o;
	int rc = db_opts(ui, &o, flags);

	if (!rc)
		rc = find_live(ui, path, v);
	if (rc || v->pid)
		return rc;
	rc = kvdb_open(path, &o.kv, &v->db);
	if (!rc)
		return EXIT_DONE;
	v->db = NULL;
	return rc == -EBUSY ? busy(ui, path) : db_fail(ui, path, rc);
}

int view_open(struct ui *ui, const char *path, struct view *v)
{
	return live_or_open(ui, path, KVDB_RDONLY, v);
}

int view_change(struct ui *ui, const char *path, struct view *v)
{
	return live_or_open(ui, path, 0, v);
}

int view_close(struct view *v, int code)
{
	if (v->tree)
		json_object_put(v->tree);
	v->tree = NULL;
	if (v->db)
		return db_close(v->ui, v->path, v->db, code);
	remote_close(&v->r);
	return code;
}

int view_info(struct view *v, struct kvdb_info *in)
{
	struct json_object *a;
	int rc;

	if (v->db) {
		rc = kvdb_info(v->db, in);
		return rc ? db_fail(v->ui, v->path, rc) : EXIT_DONE;
	}
	rc = remote_ask(v->ui, &v->r, v->path, remote_request("info"), &a);
	if (rc)
		return rc;
	remote_info(a, in);
	json_object_put(a);
	return EXIT_DONE;
}

int view_stats(struct view *v, struct kvdb_stats *st)
{
	struct json_object *a;
	int rc;

	if (v->db) {
		rc = kvdb_stats(v->db, st);
		return rc ? db_fail(v->ui, v->path, rc) : EXIT_DONE;
	}
	rc = remote_ask(v->ui, &v->r, v->path, remote_request("stats"), &a);
	if (rc)
		return rc;
	remote_stats(a, st);
	json_object_put(a);
	return EXIT_DONE;
}

int view_devices(struct view *v, struct mpool_dev_info *out, unsigned max, unsigned *n)
{
	struct json_object *a;
	int rc;

	*n = 0;
	if (v->db) {
		while (*n < max && !kvdb_dev_info(v->db, *n, &out[*n]))
			(*n)++;
		return EXIT_DONE;
	}
	rc = remote_ask(v->ui, &v->r, v->path, remote_request("stats"), &a);
	if (rc)
		return rc;
	*n = remote_devices(a, out, max);
	json_object_put(a);
	return EXIT_DONE;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int tree_ask(struct view *v)
{
	if (v->tree)
		return EXIT_DONE;
	return remote_ask(v->ui, &v->r, v->path, remote_request("tree"), &v->tree);
}

int view_names(struct view *v, char (**names)[KVDB_NAME_MAX + 1])
{
	static char all[KVDB_KVS_MAX][KVDB_NAME_MAX + 1];
	unsigned n = 0;
	size_t i, parts;
	int rc;

	if (v->db)
		return kvs_names(v->db, names);
	rc = tree_ask(v);
	if (rc)
		return -rc;
	parts = remote_count(v->tree, "parts");
	for (i = 0; i < parts && n < KVDB_KVS_MAX; i++) {
		const char *name = remote_str(remote_item(v->tree, "parts", i), "kvs");

		/* the parts of a store stand together */
		if (!n || strcmp(all[n - 1], name))
			snprintf(all[n++], sizeof(all[0]), "%s", name);
	}
	qsort(all, n, sizeof(all[0]), by_name);
	*names = all;
	return (int)n;
}

static void part_of(struct json_object *o, struct kvdb_tree_part *p)
{
	p->kind = (uint32_t)remote_num(o, "kind");
	p->blocks = (uint32_t)remote_num(o, "blocks");
	p->id = remote_num(o, "id");
	p->keys = remote_num(o, "keys");
	p->tombs = remote_num(o, "tombs");
	p->bytes = remote_num(o, "bytes");
	p->index_bytes = remote_num(o, "index_bytes");
	p->value_bytes = remote_num(o, "value_bytes");
	p->segments = remote_num(o, "segments");
	p->leaf = remote_num(o, "leaf");
}

int view_shape(struct view *v, const char *name, struct shape *s)
{
	struct json_object *o;
	size_t i, n;
	int rc;

	*s = (struct shape){ 0 };
	if (v->db) {
		rc = shape_read(v->db, name, s);
		return rc ? db_fail(v->ui, name, rc) : EXIT_DONE;
	}
	rc = tree_ask(v);
	if (rc)
		return rc;
	n = remote_count(v->tree, "parts");
	s->part = calloc(n + 1, sizeof(*s->part));
	if (!s->part)
		return ui_fail(v->ui, name, -ENOMEM, NULL);
	for (i = 0; i < n; i++) {
		o = remote_item(v->tree, "parts", i);
		if (!strcmp(remote_str(o, "kvs"), name))
			part_of(o, &s->part[s->n++]);
	}
	if (s->n)
		return EXIT_DONE;
	free(s->part);
	s->part = NULL;
	return ui_error(v->ui, EXIT_NOTFOUND, name, "list the stores: kvdb kvs list POOL",
			"there is no store of that name");
}
