/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verb compact: the work that a database in use does in the background,
 * done to its end on a closed one.
 */
#include <errno.h>
#include <inttypes.h>

#include "cli.h"
#include "size.h"

const struct opt compact_opts[] = { DB_OPTS, { .name = NULL } };

struct space {
	uint64_t used, runs, segments;
};

/* As it is when nobody has it open: a working database holds segments in stock. */
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

static void space_json(struct json *j, const char *name, const struct space *s)
{
	json_obj(j, name);
	json_u64(j, "used_bytes", s->used);
	json_u64(j, "runs", s->runs);
	json_u64(j, "segments", s->segments);
	json_end(j);
}

static int compact(struct ui *ui, const char *path)
{
	struct kvdb *db;
	int rc = db_open(ui, path, 0, &db);

	if (rc)
		return rc;
	rc = kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);
	return db_close(ui, path, db, rc ? db_fail(ui, path, rc) : EXIT_DONE);
}

int verb_compact(struct ui *ui)
{
	const char *path = ui->args->v[0];
	char x[SIZE_STR], y[SIZE_STR];
	struct space a, b;
	int rc = measure(ui, path, &a);

	if (!rc)
		rc = compact(ui, path);
	if (!rc)
		rc = measure(ui, path, &b);
	if (rc)
		return rc;
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "db", path);
		space_json(&ui->js, "before", &a);
		space_json(&ui->js, "after", &b);
		ui_doc_end(ui);
	} else if (!ui->quiet) {
		printf("%s: %s used, was %s; %" PRIu64 " runs, was %" PRIu64 "\n", path,
		       size_str(x, b.used), size_str(y, a.used), b.runs, a.runs);
	}
	return EXIT_DONE;
}
