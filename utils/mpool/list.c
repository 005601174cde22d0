/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool list.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "members.h"
#include "size.h"
#include "table.h"

const struct opt list_opts[] = {
	TBL_OPTS,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static const struct col list_cols[] = {
	{ "name", COL_STR, true, "name of the pool" },
	{ "size", COL_SIZE, true, "bytes usable for objects, all classes" },
	{ "alloc", COL_SIZE, true, "bytes held by objects" },
	{ "free", COL_SIZE, true, "bytes free" },
	{ "cap", COL_PCT, true, "percent allocated" },
	{ "classes", COL_STR, true, "media classes" },
	{ "health", COL_STR, true,
	  "ok, or why not: fault, damaged, missing, foreign, busy, inactive, ..." },
	{ "label", COL_STR, true, "free text" },
	{ "path", COL_STR, true, "directory, or name in the kernel" },
	{ "uuid", COL_STR, false, "identity" },
	{ "objects", COL_COUNT, false, "number of objects" },
	{ "uid", COL_COUNT, false, "owner recorded in the pool" },
	{ "gid", COL_COUNT, false, "group recorded in the pool" },
	{ "mode", COL_COUNT, false, "permissions recorded in the pool, decimal" },
	{ "capsize", COL_SIZE, false, "bytes usable in the capacity class" },
	{ "capfree", COL_SIZE, false, "bytes free in the capacity class" },
	{ "stgsize", COL_SIZE, false, "bytes usable in the staging class" },
	{ "stgfree", COL_SIZE, false, "bytes free in the staging class" },
	{ "error", COL_STR, false, "identifier of the error when the pool could not be opened" },
	{ NULL, 0, false, NULL },
};

static void row_identity(struct tbl *t, const struct mpool_info *info)
{
	char uuid[UUID_STR];

	tbl_str(t, "name", info->name);
	tbl_str(t, "label", info->label);
	tbl_str(t, "uuid", uuid_str(uuid, info->uuid));
	tbl_num(t, "uid", info->uid);
	tbl_num(t, "gid", info->gid);
	tbl_num(t, "mode", info->mode);
	tbl_num(t, "objects", info->objects);
}

static void row_space(struct tbl *t, const struct mpool_info *info)
{
	const struct mpool_class_info *cap = &info->cls[MPOOL_CAPACITY];
	const struct mpool_class_info *stg = &info->cls[MPOOL_STAGING];
	uint64_t total = cap->total + stg->total, used = cap->used + stg->used;

	tbl_num(t, "size", total);
	tbl_num(t, "alloc", used);
	tbl_num(t, "free", cap->free + stg->free);
	tbl_num(t, "cap", total ? (uint64_t)((double)used * 100 / (double)total) : 0);
	tbl_str(t, "classes", stg->devs ? "capacity,staging" : "capacity");
	tbl_num(t, "capsize", cap->total);
	tbl_num(t, "capfree", cap->free);
	if (stg->devs) {
		tbl_num(t, "stgsize", stg->total);
		tbl_num(t, "stgfree", stg->free);
	}
}

/*
 * A row for one pool. A pool that was asked for by path and cannot be opened is
 * an error too; one that was found by searching is only listed.
 */
static int list_one(struct ui *ui, struct tbl *t, const char *path, bool is_asked)
{
	struct mpool_info info;
	struct target target;
	struct mpool *mp;
	int rc = target_open(ui, path, &target);

	if (rc)
		return rc;
	rc = pool_open_rdonly(target.path, &mp);
	target_close(&target);
	if (rc) {
		const struct mpool_error *e = mpool_error_detail();

		if (rc != -ENOENT && rc != -ENOTDIR) {
			tbl_row(t);
			tbl_str(t, "path", path);
			tbl_str(t, "health", health_of_error(rc));
			tbl_str(t, "error", e->id[0] ? e->id : NULL);
		}
		return is_asked ? ui_fail(ui, path, rc, e) : EXIT_DONE;
	}
	mpool_info(mp, &info);
	tbl_row(t);
	tbl_str(t, "path", path);
	row_identity(t, &info);
	row_space(t, &info);
	tbl_str(t, "health", pool_has_fault(&info) ? "fault" : "ok");
	mpool_close(mp);
	return EXIT_DONE;
}

/* Pools on block devices that are not activated; only root may look. */
static void list_inactive(struct tbl *t)
{
	char uuid[UUID_STR];
	struct scan s;

	if (geteuid() || scan_run(&s, NULL, 0))
		return;
	for (unsigned i = 0; i < s.ngroups; i++) {
		const struct pgroup *g = &s.group[i];

		if (g->is_active || g->state == GROUP_DESTROYED)
			continue;
		tbl_row(t);
		tbl_str(t, "name", g->name);
		tbl_str(t, "path", g->name);
		tbl_str(t, "uuid", uuid_str(uuid, g->uuid));
		tbl_str(t, "health", g->state == GROUP_COMPLETE ? "inactive" :
			group_state_name(g));
	}
	scan_free(&s);
}

int verb_list(struct ui *ui)
{
	const struct args *a = ui->args;
	char **found = NULL;
	struct tbl *t;
	int code, rc;

	t = tbl_new(ui, list_cols, &code);
	if (!t)
		return code;
	for (int i = 0; i < a->n; i++) {
		rc = list_one(ui, t, a->v[i], true);
		code = code ? code : rc;
	}
	if (!a->n) {
		found = pool_find();
		for (char **p = found; p && *p; p++)
			list_one(ui, t, *p, false);
		list_inactive(t);
		if (!tbl_rows(t))
			ui_note(ui, "no pool in this directory or its direct subdirectories, as "
				"far as you may read them");
		pool_list_free(found);
	}
	if (ui->json)
		ui_doc_begin(ui, 1, 1);
	tbl_print(t, "pools");
	if (ui->json)
		ui_doc_end(ui);
	return code;
}
