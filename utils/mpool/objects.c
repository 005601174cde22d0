/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool objects and mpool df: what is in a pool, and how much room.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "members.h"
#include "table.h"

#define AT_ONCE 256

const struct opt objects_opts[] = {
	{ "type", 't', OPT_ENUM, 0, "TYPE", "only 'mblock', 'append' or 'mlog'", NULL,
	  "mblock|append|mlog" },
	{ "class", 'c', OPT_ENUM, 0, "CLASS", "only 'capacity' or 'staging'", NULL,
	  "capacity|staging" },
	TBL_OPTS,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

const struct opt df_opts[] = {
	TBL_OPTS,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static const struct col objects_cols[] = {
	{ "id", COL_STR, true, "identity, hexadecimal" },
	{ "type", COL_STR, true, "mblock, append or mlog" },
	{ "class", COL_STR, true, "media class" },
	{ "capacity", COL_SIZE, true, "bytes allocated" },
	{ "length", COL_SIZE, true, "bytes committed or sealed" },
	{ "state", COL_STR, true, "committed, sealed or open" },
	{ "crc", COL_STR, true, "CRC32C of the content, hexadecimal" },
	{ "tag", COL_STR, false, "tag that its owner gave it, hexadecimal" },
	{ NULL, 0, false, NULL },
};

static const char *state_name(const struct mpool_obj_info *o)
{
	if (o->flags & MPOOL_OBJ_SEALED)
		return "sealed";
	return o->flags & MPOOL_OBJ_COMMITTED ? "committed" : "open";
}

static bool is_wanted(struct ui *ui, const struct mpool_obj_info *o)
{
	const struct args *a = ui->args;

	if (args_has(a, "type") && args_num(a, "type", 0) + MPOOL_MBLOCK != o->kind)
		return false;
	return !args_has(a, "class") || args_num(a, "class", 0) == o->mclass;
}

static void object_json(struct json *j, const struct mpool_obj_info *o)
{
	json_obj(j, NULL);
	json_u64(j, "id", o->id);
	json_str(j, "type", kind_name(o->kind));
	json_str(j, "class", mclass_name(o->mclass));
	json_u64(j, "capacity", o->capacity);
	json_u64(j, "length", o->length);
	json_str(j, "state", state_name(o));
	if (o->flags & MPOOL_OBJ_HAS_CRC)
		json_u64(j, "crc", o->crc);
	else
		json_null(j, "crc");
	json_u64(j, "tag", o->tag);
	json_end(j);
}

static void object_row(struct tbl *t, const struct mpool_obj_info *o)
{
	char text[32];

	tbl_row(t);
	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)o->id);
	tbl_str(t, "id", text);
	tbl_str(t, "type", kind_name(o->kind));
	tbl_str(t, "class", mclass_name(o->mclass));
	tbl_num(t, "capacity", o->capacity);
	tbl_num(t, "length", o->length);
	tbl_str(t, "state", state_name(o));
	snprintf(text, sizeof(text), "%08x", o->crc);
	tbl_str(t, "crc", o->flags & MPOOL_OBJ_HAS_CRC ? text : NULL);
	snprintf(text, sizeof(text), "0x%llx", (unsigned long long)o->tag);
	tbl_str(t, "tag", text);
}

static int objects_run(struct ui *ui, struct mpool *mp, struct tbl *t)
{
	struct mpool_obj_info o[AT_ONCE];
	uint64_t after = 0;
	int n;

	if (ui->json)
		ui_lines_begin(ui, 1, 0);
	while ((n = mpool_objects(mp, after, 0, o, AT_ONCE)) > 0) {
		after = o[n - 1].id;
		for (int i = 0; i < n; i++) {
			if (!is_wanted(ui, &o[i]))
				continue;
			if (ui->json)
				object_json(&ui->js, &o[i]);
			else
				object_row(t, &o[i]);
		}
	}
	return n;
}

int verb_objects(struct ui *ui)
{
	struct target t;
	struct mpool *mp;
	struct tbl *tbl;
	int code, rc;

	tbl = tbl_new(ui, objects_cols, &code);
	if (!tbl)
		return code;
	code = target_open(ui, ui->args->v[0], &t);
	if (!code) {
		rc = pool_open_rdonly(t.path, &mp);
		if (!rc) {
			rc = objects_run(ui, mp, tbl);
			if (rc)
				code = ui_fail(ui, t.word, rc, mpool_error_detail());
			mpool_close(mp);
		} else {
			code = ui_fail(ui, t.word, rc, mpool_error_detail());
		}
	}
	target_close(&t);
	if (code || ui->json)
		tbl_free(tbl);
	else
		tbl_print(tbl, NULL);
	return code;
}

static const struct col df_cols[] = {
	{ "class", COL_STR, true, "media class" },
	{ "devices", COL_COUNT, true, "member devices" },
	{ "size", COL_SIZE, true, "bytes usable for objects" },
	{ "used", COL_SIZE, true, "bytes held by objects" },
	{ "free", COL_SIZE, true, "bytes free" },
	{ "reserve", COL_SIZE, true, "bytes withheld: spare and metadata reserve" },
	{ "use", COL_PCT, true, "percent used" },
	{ "allocated", COL_SIZE, true, "bytes that the file system counts for the member files" },
	{ "discarding", COL_SIZE, false, "part of free that waits for discard" },
	{ "spare", COL_PCT, false, "percent withheld as spare" },
	{ NULL, 0, false, NULL },
};

/* struct below - what the file system below the pool counts for the members of a class */
struct below {
	uint32_t files;		/* members that were looked at */
	uint64_t bytes;
};

static void look_below(struct mpool *mp, struct below below[MPOOL_MCLASSES])
{
	struct mpool_dev_info d;
	struct stat st;

	for (unsigned i = 0; !mpool_dev_info(mp, i, &d); i++) {
		if (d.is_block || stat(d.path, &st))
			continue;
		below[d.mclass].files++;
		below[d.mclass].bytes += (uint64_t)st.st_blocks * 512;
	}
}

static void df_row(struct tbl *t, const char *class, const struct mpool_class_info *k,
		   const struct below *below)
{
	tbl_row(t);
	tbl_str(t, "class", class);
	tbl_num(t, "devices", k->devs);
	tbl_num(t, "size", k->total);
	tbl_num(t, "used", k->used);
	tbl_num(t, "free", k->free);
	tbl_num(t, "reserve", k->reserve);
	tbl_num(t, "use", k->total ? k->used * 100 / k->total : 0);
	/* a part of them would be taken for all */
	if (below->files == k->devs)
		tbl_num(t, "allocated", below->bytes);
	tbl_num(t, "discarding", k->discarding);
	tbl_num(t, "spare", k->spare_pct);
}

int verb_df(struct ui *ui)
{
	struct below below[MPOOL_MCLASSES] = { { 0 } };
	struct mpool_info info;
	struct mpool *mp;
	struct target t;
	struct tbl *tbl;
	int code, rc;

	tbl = tbl_new(ui, df_cols, &code);
	if (!tbl)
		return code;
	code = target_open(ui, ui->args->v[0], &t);
	rc = code ? 0 : pool_open_rdonly(t.path, &mp);
	if (rc)
		code = ui_fail(ui, t.word, rc, mpool_error_detail());
	if (!code) {
		mpool_info(mp, &info);
		look_below(mp, below);
		mpool_close(mp);
		for (unsigned c = 0; c < MPOOL_MCLASSES; c++)
			if (info.cls[c].devs)
				df_row(tbl, mclass_name(c), &info.cls[c], &below[c]);
		if (ui->json) {
			ui_doc_begin(ui, 1, 1);
			json_str(&ui->js, "pool", t.word);
		}
		tbl_print(tbl, "classes");
		if (ui->json)
			ui_doc_end(ui);
	} else {
		tbl_free(tbl);
	}
	target_close(&t);
	return code;
}
