/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool get, mpool set and mpool rename: the properties of a pool.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "members.h"
#include "size.h"
#include "table.h"

const struct opt get_opts[] = {
	TBL_OPTS,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

const struct opt set_opts[] = {
	{ "uid", 0, OPT_USER, 0, "USER", "owner", "uid", NULL },
	{ "gid", 0, OPT_GROUP, 0, "GROUP", "group", "gid", NULL },
	{ "mode", 0, OPT_MODE, 0, "MODE", "permissions, such as 0660", "mode", NULL },
	{ "label", 0, OPT_STR, 0, "TEXT", "free text, at most 63 bytes", "label", NULL },
	{ "spare", 0, OPT_PERCENT, 0, "PERCENT",
	  "part of each class withheld from ordinary allocation, at most 90", "spare", NULL },
	{ "spare-capacity", 0, OPT_PERCENT, 0, "PERCENT", "the same, of the capacity class",
	  "spare_capacity", NULL },
	{ "spare-staging", 0, OPT_PERCENT, 0, "PERCENT", "the same, of the staging class",
	  "spare_staging", NULL },
	{ "multihost", 0, OPT_ENUM, 0, "WHEN", "keep other hosts out by a heartbeat", "multihost",
	  "on|off" },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static const struct col get_cols[] = {
	{ "key", COL_STR, true, "name of the property" },
	{ "value", COL_STR, true, "value" },
	{ NULL, 0, false, NULL },
};

enum prop_type {
	PROP_TEXT, PROP_UUID, PROP_COUNT, PROP_FORMAT, PROP_SIZE, PROP_MODE, PROP_PCT, PROP_BOOL
};

/* struct props - what they are of */
struct props {
	struct mpool_info info;
	int is_multihost;
};

/* struct prop - one property */
struct prop {
	const char *key;
	enum prop_type type;
	const char *text;
	uint64_t num;
};

#define PROPS_MAX 40

static void prop_add(struct prop *p, unsigned *n, const char *key, enum prop_type type,
		     const void *text, uint64_t num)
{
	p[*n] = (struct prop){ key, type, text, num };
	++*n;
}

static void props_class(struct prop *p, unsigned *n, const struct mpool_class_info *k,
			const char *const key[6])
{
	if (!k->devs)
		return;
	prop_add(p, n, key[0], PROP_COUNT, NULL, k->devs);
	prop_add(p, n, key[1], PROP_SIZE, NULL, k->total);
	prop_add(p, n, key[2], PROP_SIZE, NULL, k->used);
	prop_add(p, n, key[3], PROP_SIZE, NULL, k->free);
	prop_add(p, n, key[4], PROP_SIZE, NULL, k->reserve);
	prop_add(p, n, key[5], PROP_PCT, NULL, k->spare_pct);
}

static unsigned props_list(struct prop *p, const struct props *of)
{
	static const char *const cap[] = { "devices_capacity", "size_capacity", "used_capacity",
					   "free_capacity", "reserve_capacity", "spare_capacity" };
	static const char *const stg[] = { "devices_staging", "size_staging", "used_staging",
					   "free_staging", "reserve_staging", "spare_staging" };
	const struct mpool_info *i = &of->info;
	unsigned n = 0;

	prop_add(p, &n, "name", PROP_TEXT, i->name, 0);
	prop_add(p, &n, "uuid", PROP_UUID, i->uuid, 0);
	prop_add(p, &n, "label", PROP_TEXT, i->label, 0);
	prop_add(p, &n, "uid", PROP_COUNT, NULL, i->uid);
	prop_add(p, &n, "gid", PROP_COUNT, NULL, i->gid);
	prop_add(p, &n, "mode", PROP_MODE, NULL, i->mode);
	prop_add(p, &n, "format_version", PROP_FORMAT, NULL, i->format_version);
	prop_add(p, &n, "generation", PROP_COUNT, NULL, i->generation);
	prop_add(p, &n, "objects", PROP_COUNT, NULL, i->objects);
	prop_add(p, &n, "is_direct", PROP_BOOL, NULL, i->is_direct);
	prop_add(p, &n, "multihost", PROP_BOOL, NULL, (uint64_t)of->is_multihost);
	prop_add(p, &n, "fault", PROP_TEXT, i->fault, 0);
	props_class(p, &n, &i->cls[MPOOL_CAPACITY], cap);
	props_class(p, &n, &i->cls[MPOOL_STAGING], stg);
	return n;
}

static void prop_row(struct tbl *t, const struct prop *p, bool is_exact)
{
	char buf[UUID_STR + SIZE_STR];

	tbl_row(t);
	tbl_str(t, "key", p->key);
	snprintf(buf, sizeof(buf), "%llu", (unsigned long long)p->num);
	if (p->type == PROP_SIZE && !is_exact)
		size_str(buf, p->num);
	else if (p->type == PROP_FORMAT && !is_exact)
		snprintf(buf, sizeof(buf), "0x%04llx", (unsigned long long)p->num);
	else if (p->type == PROP_UUID)
		uuid_str(buf, (const uint8_t *)p->text);
	else if (p->type == PROP_MODE)
		snprintf(buf, sizeof(buf), "%04llo", (unsigned long long)p->num);
	else if (p->type == PROP_PCT && !is_exact)
		snprintf(buf, sizeof(buf), "%llu%%", (unsigned long long)p->num);
	else if (p->type == PROP_BOOL)
		snprintf(buf, sizeof(buf), "%s", p->num ? "yes" : "no");
	tbl_str(t, "value", p->type == PROP_TEXT ? p->text : buf);
}

static void prop_json(struct json *j, const struct prop *p)
{
	char uuid[UUID_STR];

	if (p->type == PROP_TEXT)
		json_str(j, p->key, p->text);
	else if (p->type == PROP_UUID)
		json_str(j, p->key, uuid_str(uuid, (const uint8_t *)p->text));
	else if (p->type == PROP_BOOL)
		json_bool(j, p->key, p->num);
	else
		json_u64(j, p->key, p->num);
}

/* The properties that were asked for, or all; an unknown one is bad usage. */
static int props_print(struct ui *ui, const struct props *of, struct tbl *t)
{
	const struct args *a = ui->args;
	struct prop all[PROPS_MAX];
	unsigned n = props_list(all, of), k;
	bool is_known, is_exact = args_has(a, "exact");

	for (int i = 1; i < a->n; i++) {
		for (k = 0, is_known = false; k < n; k++)
			is_known |= !strcmp(all[k].key, a->v[i]);
		if (!is_known)
			return ui_usage(ui, "the pool has no property '%s'; without KEY all are "
					"printed", a->v[i]);
	}
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "pool", a->v[0]);
		json_obj(&ui->js, "properties");
	}
	for (k = 0; k < n; k++) {
		is_known = a->n == 1;
		for (int i = 1; i < a->n; i++)
			is_known |= !strcmp(all[k].key, a->v[i]);
		if (is_known && ui->json)
			prop_json(&ui->js, &all[k]);
		else if (is_known)
			prop_row(t, &all[k], is_exact);
	}
	if (ui->json) {
		json_end(&ui->js);
		ui_doc_end(ui);
	}
	return EXIT_DONE;
}

/* Describe the pool; returns an exit code after a message. */
static int props_get(struct ui *ui, const struct target *t, struct props *of)
{
	struct mpool *mp;
	int rc = pool_open_rdonly(t->path, &mp);

	if (rc)
		return ui_fail(ui, t->word, rc, mpool_error_detail());
	mpool_info(mp, &of->info);
	of->is_multihost = mpool_is_multihost(mp);
	mpool_close(mp);
	return EXIT_DONE;
}

int verb_get(struct ui *ui)
{
	struct props of;
	struct target t;
	struct tbl *tbl;
	int code;

	tbl = tbl_new(ui, get_cols, &code);
	if (!tbl)
		return code;
	code = target_open(ui, ui->args->v[0], &t);
	if (!code)
		code = props_get(ui, &t, &of);
	target_close(&t);
	if (!code)
		code = props_print(ui, &of, tbl);
	if (code || ui->json)
		tbl_free(tbl);
	else
		tbl_print(tbl, NULL);
	return code;
}

static void changed(struct ui *ui, const char *word)
{
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "pool", word);
		ui_doc_end(ui);
	}
}

/* What is not given stays as it is. */
static int set_run(struct ui *ui, struct target *t)
{
	struct mpool_set_opts o = MPOOL_SET_OPTS_INIT;
	const struct args *a = ui->args;
	const struct mpool_info *info;
	struct props of;
	uint64_t spare;
	int rc = props_get(ui, t, &of);

	if (rc)
		return rc;
	if (args_has(a, "uid") || args_has(a, "gid") || args_has(a, "mode"))
		o.mask |= MPOOL_SET_OWNER;
	if (args_has(a, "label"))
		o.mask |= MPOOL_SET_LABEL;
	if (args_has(a, "spare") || args_has(a, "spare-capacity") || args_has(a, "spare-staging"))
		o.mask |= MPOOL_SET_SPARE;
	if (args_has(a, "multihost"))
		o.mask |= args_num(a, "multihost", 0) ? MPOOL_SET_ONE_HOST : MPOOL_SET_MULTIHOST;
	if (!o.mask)
		return ui_usage(ui, "nothing to set: uid, gid, mode, label, spare, spare_capacity, "
				"spare_staging, multihost");
	info = &of.info;
	o.uid = (uint32_t)args_num(a, "uid", info->uid);
	o.gid = (uint32_t)args_num(a, "gid", info->gid);
	o.mode = (uint32_t)args_num(a, "mode", info->mode);
	o.label = args_str(a, "label", info->label);
	spare = args_num(a, "spare", info->cls[MPOOL_CAPACITY].spare_pct);
	o.spare_pct[MPOOL_CAPACITY] = (uint32_t)args_num(a, "spare-capacity", spare);
	spare = args_num(a, "spare", info->cls[MPOOL_STAGING].spare_pct);
	o.spare_pct[MPOOL_STAGING] = (uint32_t)args_num(a, "spare-staging", spare);
	rc = mpool_set(t->path, NULL, &o);
	if (rc)
		return ui_fail(ui, t->word, rc, mpool_error_detail());
	history_add(ui, t->path);
	changed(ui, t->word);
	return EXIT_DONE;
}

int verb_set(struct ui *ui)
{
	struct target t;
	int rc = target_open(ui, ui->args->v[0], &t);

	if (!rc)
		rc = set_run(ui, &t);
	target_close(&t);
	return rc;
}

int verb_rename(struct ui *ui)
{
	const char *name = ui->args->v[1];
	struct target t;
	int rc = target_open(ui, ui->args->v[0], &t);

	if (!rc) {
		rc = mpool_rename(t.path, NULL, name);
		if (rc)
			rc = ui_fail(ui, t.word, rc, mpool_error_detail());
		else
			history_add(ui, t.is_active ? name : t.path);
	}
	target_close(&t);
	if (!rc && ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "pool", t.word);
		json_str(&ui->js, "name", name);
		ui_doc_end(ui);
	}
	return rc;
}
