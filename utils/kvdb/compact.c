/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb compact: bring space back beyond what the space bound asks for. On a
 * closed database here and to the end; on one that is in use by the process
 * that has it open, which is asked over its control socket.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "progress.h"
#include "remote.h"
#include "size.h"

#define LOOK_NS 200000000l /* between two looks at work that goes on elsewhere */

const struct opt compact_opts[] = {
	{ "wait", 0, OPT_FLAG, 0, NULL,
	  "wait for the end of what a process in use does; an interrupt ends the waiting, not the "
	  "work", NULL, NULL },
	{ "status", 0, OPT_FLAG, 0, NULL, "tell how it stands, start nothing", NULL, NULL },
	{ "cancel", 0, OPT_FLAG, 0, NULL, "end what was started; what was reached stays", NULL,
	  NULL },
	DB_OPTS,
	{ .name = NULL },
};

struct space {
	uint64_t used, runs, segments;
};

/* As it is when it is not open: a working database holds segments in stock. */
static int measure(struct ui *ui, const char *path, struct space *s)
{
	struct kvdb_stats st;
	struct kvdb_info in;
	struct kvdb *db;
	int rc = db_open(ui, path, KVDB_RDONLY, &db);

	if (rc)
		return rc;
	rc = kvdb_info(db, &in);
	if (!rc)
		rc = kvdb_stats(db, &st);
	rc = db_close(ui, path, db, rc ? db_fail(ui, path, rc) : EXIT_DONE);
	if (rc)
		return rc;
	*s = (struct space){ .runs = st.runs, .segments = st.segments };
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++)
		s->used += in.pool.cls[c].used;
	return EXIT_DONE;
}

/* ---- results -------------------------------------------------------------- */

static void space_json(struct json *j, const char *name, const struct space *s)
{
	if (!s) {
		json_null(j, name);
		return;
	}
	json_obj(j, name);
	json_u64(j, "used_bytes", s->used);
	json_u64(j, "runs", s->runs);
	json_u64(j, "segments", s->segments);
	json_end(j);
}

static void status_json(struct json *j, const struct kvdb_compact_status *st)
{
	if (!st) {
		json_null(j, "status");
		return;
	}
	json_obj(j, "status");
	json_bool(j, "is_asked", st->is_asked);
	json_bool(j, "is_active", st->is_active);
	json_u64(j, "todo_bytes", st->todo_bytes);
	json_u64(j, "done_bytes", st->done_bytes);
	json_u64(j, "space_bytes", st->space_bytes);
	json_u64(j, "live_bytes", st->live_bytes);
	if (st->live_bytes)
		json_f64(j, "space_amp", (double)st->space_bytes / (double)st->live_bytes);
	else
		json_null(j, "space_amp");
	json_f64(j, "space_amp_max", st->space_amp_max);
	json_u64(j, "moved_bytes", st->moved_bytes);
	json_u64(j, "relocations", st->relocations);
	json_end(j);
}

/* @before and @after, or @st: of a closed database, or of one in use. */
static void result_json(struct ui *ui, const char *state, const struct space *before,
			const struct space *after, const struct kvdb_compact_status *st)
{
	ui_doc_begin(ui, 1, 1);
	json_str(&ui->js, "db", ui->args->v[0]);
	json_str(&ui->js, "kvs", ui->args->n > 1 ? ui->args->v[1] : NULL);
	json_str(&ui->js, "state", state);
	space_json(&ui->js, "before", before);
	space_json(&ui->js, "after", after);
	status_json(&ui->js, st);
	ui_doc_end(ui);
}

static const char *state_of(const struct kvdb_compact_status *st)
{
	return st->is_asked ? "running" : st->error == -ECANCELED ? "cancelled" :
	       st->error ? "failed" : st->todo_bytes ? "done" : "idle";
}

static void status_text(const char *path, const struct kvdb_compact_status *st)
{
	char a[SIZE_STR], b[SIZE_STR];

	printf("%s: %s", path, state_of(st));
	if (st->todo_bytes)
		printf(", %s of %s", size_str(a, st->done_bytes), size_str(b, st->todo_bytes));
	printf("; %s in use", size_str(a, st->space_bytes));
	if (st->live_bytes)
		printf(", about %s live: %.2f, bound %.2f", size_str(b, st->live_bytes),
		       (double)st->space_bytes / (double)st->live_bytes, st->space_amp_max);
	printf("\n");
}

static int status_result(struct ui *ui, const struct kvdb_compact_status *st)
{
	if (ui->json)
		result_json(ui, state_of(st), NULL, NULL, st);
	else if (!ui->quiet)
		status_text(ui->args->v[0], st);
	return EXIT_DONE;
}

/* ---- in use --------------------------------------------------------------- */

static int ask(struct ui *ui, struct remote *r, const char *action, struct kvdb_compact_status *st)
{
	struct json_object *q = remote_request("compact"), *a;
	int rc;

	remote_add(q, "action", action);
	remote_add(q, "kvs", ui->args->n > 1 ? ui->args->v[1] : NULL);
	rc = remote_ask(ui, r, ui->args->v[0], q, &a);
	if (rc)
		return rc;
	*st = (struct kvdb_compact_status){
		.is_asked = remote_bool(a, "is_asked"),
		.is_active = remote_bool(a, "is_active"),
		.space_bytes = remote_num(a, "space_bytes"),
		.live_bytes = remote_num(a, "live_bytes"),
		.space_amp_max = (double)remote_num(a, "space_amp_max_percent") / 100,
		.moved_bytes = remote_num(a, "moved_bytes"),
		.relocations = remote_num(a, "relocations"),
		.todo_bytes = remote_num(a, "todo_bytes"),
		.done_bytes = remote_num(a, "done_bytes"),
		.error = remote_err(a, "error"),
	};
	json_object_put(a);
	return EXIT_DONE;
}

static int wait_for_end(struct ui *ui, struct remote *r, struct kvdb_compact_status *st)
{
	struct timespec nap = { .tv_nsec = LOOK_NS };
	struct progress p;
	int rc = EXIT_DONE;

	progress_begin(&p, ui, "compact", 0, true);
	while (!rc && st->is_asked) {
		p.total = st->todo_bytes;
		progress_update(&p, st->done_bytes);
		nanosleep(&nap, NULL);
		rc = ask(ui, r, "status", st);
	}
	progress_end(&p, st->done_bytes);
	if (rc || !st->error)
		return rc;
	return ui_error(ui, EXIT_FAILED, ui->args->v[0], "what was reached stays; ask again",
			"the compaction was given up before its end: %s", strerror(-st->error));
}

static int compact_live(struct ui *ui, struct remote *r)
{
	const char *path = ui->args->v[0];
	struct kvdb_compact_status st;
	int rc;

	if (args_has(ui->args, "status") || args_has(ui->args, "cancel")) {
		rc = ask(ui, r, args_has(ui->args, "status") ? "status" : "cancel", &st);
		return rc ? rc : status_result(ui, &st);
	}
	rc = ask(ui, r, "start", &st);
	if (!rc && args_has(ui->args, "wait"))
		rc = wait_for_end(ui, r, &st);
	if (rc || ui->json || args_has(ui->args, "wait"))
		return rc ? rc : status_result(ui, &st);
	if (!ui->quiet)
		printf("%s: the process that has it open compacts it now; 'kvdb compact %s "
		       "--status' tells how it stands, --wait waits for the end\n", path, path);
	return EXIT_DONE;
}

/* ---- closed --------------------------------------------------------------- */

static int compact_here(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->n > 1 ? ui->args->v[1] : NULL;
	struct kvdb_kvs *kvs = NULL;
	struct db_opts o;
	struct kvdb *db;
	int rc = db_opts(ui, &o, 0);

	if (rc)
		return rc;
	rc = kvdb_open(path, &o.kv, &db);
	if (rc == -EBUSY)
		return ui_error(ui, EXIT_BUSY, path, "close it there, or wait for its end",
				"another process has it open for reading: it cannot compact it "
				"and keeps others from it");
	if (rc)
		return db_fail(ui, path, rc);
	rc = name ? kvdb_kvs_open(db, name, &kvs) : 0;
	if (!rc)
		rc = kvs ? kvdb_kvs_compact(kvs, KVDB_COMPACT_WAIT) :
			   kvdb_compact(db, KVDB_COMPACT_WAIT);
	return db_close(ui, path, db, rc ? db_fail(ui, name && !kvs ? name : path, rc) :
						EXIT_DONE);
}

static int compact_closed(struct ui *ui)
{
	const char *path = ui->args->v[0];
	char x[SIZE_STR], y[SIZE_STR];
	struct space a, b;
	int rc = measure(ui, path, &a);

	if (!rc)
		rc = compact_here(ui);
	if (!rc)
		rc = measure(ui, path, &b);
	if (rc)
		return rc;
	if (ui->json)
		result_json(ui, "done", &a, &b, NULL);
	else if (!ui->quiet)
		printf("%s: %s used, was %s; %" PRIu64 " runs, was %" PRIu64 "\n", path,
		       size_str(x, b.used), size_str(y, a.used), b.runs, a.runs);
	return EXIT_DONE;
}

static int closed(struct ui *ui, struct kvdb *db)
{
	const char *path = ui->args->v[0], *name = ui->args->n > 1 ? ui->args->v[1] : NULL;
	struct kvdb_compact_status st;
	struct kvdb_kvs *kvs;
	int rc = name ? kvdb_kvs_open(db, name, &kvs) : 0;

	if (rc) {
		rc = db_fail(ui, name, rc);
	} else if (args_has(ui->args, "status")) {
		rc = kvdb_compact_status(db, &st);
		rc = rc ? db_fail(ui, path, rc) : status_result(ui, &st);
	} else if (args_has(ui->args, "cancel")) {
		rc = ui_error(ui, EXIT_NOTFOUND, path, NULL, "no process has it open, so nothing "
			      "is being compacted");
	}
	return db_close(ui, path, db, rc);
}

int verb_compact(struct ui *ui)
{
	const char *path = ui->args->v[0];
	struct view v;
	int rc;

	if (args_has(ui->args, "wait") + args_has(ui->args, "status") +
	    args_has(ui->args, "cancel") > 1)
		return ui_usage(ui, "one of --wait, --status and --cancel at most");
	rc = view_open(ui, path, &v);
	if (rc)
		return rc;
	if (!v.db)
		return view_close(&v, compact_live(ui, &v.r));
	rc = closed(ui, v.db);
	if (rc || args_has(ui->args, "status"))
		return rc;
	return compact_closed(ui);
}
