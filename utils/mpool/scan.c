/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool scan: which pools there are on the machine's devices.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "confirm.h"
#include "members.h"
#include "size.h"
#include "table.h"

const struct opt scan_opts[] = {
	{ "activate", 0, OPT_FLAG, 0, NULL,
	  "activate the trusted pools of which all members are there; DEV then names pools, and "
	  "their other members are searched for", NULL, NULL },
	{ "trust", 0, OPT_FLAG, 0, NULL,
	  "add what is found to the trusted pools: /etc/mpool/pools.d", NULL, NULL },
	{ "recover", 0, OPT_FLAG, 0, NULL,
	  "restore the first superblock of each DEV, overwritten by something else or damaged, "
	  "from the copies further on", NULL, NULL },
	CONFIRM_OPTS,
	PLAN_OPT,
	TBL_OPTS,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static const struct col scan_cols[] = {
	{ "name", COL_STR, true, "name of the pool" },
	{ "state", COL_STR, true,
	  "active, complete, incomplete, duplicate, half-created or destroyed" },
	{ "found", COL_COUNT, true, "members found" },
	{ "members", COL_COUNT, true, "members that the pool has" },
	{ "trusted", COL_BOOL, true, "whether this machine activates it by itself" },
	{ "devices", COL_STR, true, "paths of the members" },
	{ "uuid", COL_STR, true, "identity" },
	{ "removable", COL_BOOL, false, "a member is on a removable device" },
	{ NULL, 0, false, NULL },
};

static char *devices_text(const struct scan *s, const struct pgroup *g)
{
	char *text = NULL, *longer;

	for (unsigned i = 0; i < g->found; i++) {
		if (asprintf(&longer, "%s%s%s", text ? text : "", text ? "," : "",
			     s->dev[g->member[i]].path) < 0)
			break;
		free(text);
		text = longer;
	}
	return text;
}

static void group_row(struct tbl *t, const struct scan *s, const struct pgroup *g)
{
	char uuid[UUID_STR], *devices = devices_text(s, g);

	tbl_row(t);
	tbl_str(t, "name", g->name);
	tbl_str(t, "state", group_state_name(g));
	tbl_num(t, "found", g->found);
	tbl_num(t, "members", g->wanted);
	tbl_num(t, "trusted", g->is_trusted);
	tbl_num(t, "removable", g->is_removable);
	tbl_str(t, "devices", devices);
	tbl_str(t, "uuid", uuid_str(uuid, g->uuid));
	free(devices);
}

static void group_json(struct json *j, const struct scan *s, const struct pgroup *g)
{
	char uuid[UUID_STR];

	json_obj(j, NULL);
	json_str(j, "name", g->name);
	json_str(j, "uuid", uuid_str(uuid, g->uuid));
	json_str(j, "state", group_state_name(g));
	json_u64(j, "found", g->found);
	json_u64(j, "members", g->wanted);
	json_bool(j, "is_trusted", g->is_trusted);
	json_bool(j, "is_removable", g->is_removable);
	json_arr(j, "devices");
	for (unsigned i = 0; i < g->found; i++) {
		const struct member_dev *m = &s->dev[g->member[i]];

		json_obj(j, NULL);
		json_str(j, "path", m->path);
		json_str(j, "uuid", uuid_str(uuid, m->probe.dev_uuid));
		json_str(j, "class", mclass_name(m->probe.mclass));
		json_u64(j, "slot", m->probe.slot);
		json_u64(j, "size", m->probe.bytes);
		json_u64(j, "generation", m->probe.generation);
		json_u64(j, "format_version", m->probe.format_version);
		json_end(j);
	}
	json_end(j);
	json_end(j);
}

static void scan_print(struct ui *ui, struct tbl *t, const struct scan *s, int code)
{
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_arr(&ui->js, "pools");
		for (unsigned i = 0; i < s->ngroups; i++)
			group_json(&ui->js, s, &s->group[i]);
		json_end(&ui->js);
		ui_doc_end(ui);
		tbl_free(t);
		return;
	}
	for (unsigned i = 0; i < s->ngroups; i++)
		group_row(t, s, &s->group[i]);
	if (!s->ngroups && !code)
		ui_note(ui, "no member of a pool was found%s", geteuid() && !ui->args->n ?
			": only root may look at block devices" : "");
	if (s->ngroups)
		tbl_print(t, NULL);
	else
		tbl_free(t);
}

/* Forget the pools that hold none of the devices named on the command line. */
static void scan_filter(struct scan *s, const struct scan *named)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < s->ngroups; i++) {
		bool is_named = false;

		for (unsigned k = 0; k < named->ngroups; k++)
			is_named |= !memcmp(named->group[k].uuid, s->group[i].uuid, 16);
		if (is_named)
			s->group[kept++] = s->group[i];
		else
			free(s->group[i].member);
	}
	s->ngroups = kept;
}

/* Gather: what was named, and with --activate the other members of those pools. */
static int scan_gather(struct ui *ui, struct scan *s)
{
	const struct args *a = ui->args;
	struct scan all;
	int rc, code = EXIT_DONE;

	memset(s, 0, sizeof(*s));
	for (int i = 0; i < a->n; i++) {
		rc = scan_add(s, a->v[i]);
		if (rc) {
			rc = ui_fail(ui, a->v[i], rc, mpool_error_detail());
			code = code ? code : rc;
		}
	}
	if (a->n) {
		rc = scan_group(s);
		if (rc || !args_has(a, "activate"))
			return rc ? ui_fail(ui, NULL, rc, NULL) : code;
	}
	rc = scan_run(&all, NULL, 0);
	if (rc)
		return ui_fail(ui, NULL, rc, NULL);
	if (a->n)
		scan_filter(&all, s);
	scan_free(s);
	*s = all;
	return code;
}

static int scan_trust(struct ui *ui, struct scan *s)
{
	int rc;

	for (unsigned i = 0; i < s->ngroups; i++) {
		struct pgroup *g = &s->group[i];

		/* a removable device is trusted only when it was named */
		if (g->is_trusted || g->state == GROUP_DESTROYED || g->state == GROUP_CREATING ||
		    (g->is_removable && !ui->args->n))
			continue;
		if (args_has(ui->args, "dry-run")) {
			ui_note(ui, "would trust %s", g->name);
			continue;
		}
		rc = trust_add(g->uuid, g->name);
		if (rc)
			return ui_error(ui, exit_from_error(rc, NULL), trust_dir(), NULL,
					"cannot note that %s is trusted: %s", g->name,
					strerror(-rc));
		g->is_trusted = true;
		ui_note(ui, "%s is trusted now", g->name);
	}
	return EXIT_DONE;
}

static int scan_activate(struct ui *ui, struct scan *s)
{
	int rc, code = EXIT_DONE;

	for (unsigned i = 0; i < s->ngroups; i++) {
		struct pgroup *g = &s->group[i];

		if (g->is_active || g->state == GROUP_DESTROYED || g->state == GROUP_CREATING)
			continue;
		if (g->state != GROUP_COMPLETE || !g->is_trusted || g->is_removable) {
			ui_note(ui, "%s is not activated: %s", g->name,
				g->state == GROUP_MISSING ? "it waits for more members" :
				g->state == GROUP_DUPLICATE ? "a member is there twice" :
				!g->is_trusted ? "it is not trusted" :
				"it is on a removable device");
			continue;
		}
		if (args_has(ui->args, "dry-run")) {
			ui_note(ui, "would activate %s", g->name);
			continue;
		}
		rc = group_activate(ui, s, g, false, true);
		g->is_active = !rc;
		code = code ? code : rc;
	}
	return code;
}

int verb_scan(struct ui *ui)
{
	const struct args *a = ui->args;
	struct tbl *t;
	struct scan s;
	int code, rc;

	if (args_has(a, "recover") && (args_has(a, "activate") || args_has(a, "trust") || !a->n))
		return ui_usage(ui, "--recover takes devices and stands alone");
	if (args_has(a, "recover"))
		return scan_recover(ui);
	t = tbl_new(ui, scan_cols, &code);
	if (!t)
		return code;
	code = scan_gather(ui, &s);
	if (args_has(a, "trust")) {
		rc = scan_trust(ui, &s);
		code = code ? code : rc;
	}
	if (args_has(a, "activate")) {
		rc = scan_activate(ui, &s);
		code = code ? code : rc;
	}
	scan_print(ui, t, &s, code);
	scan_free(&s);
	return code;
}
