/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool verify. Findings are printed as they come: a badly damaged pool may
 * have more of them than fit in memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "members.h"

const struct opt verify_opts[] = {
	{ "data", 0, OPT_FLAG, 0, NULL, "read the contents of objects that carry a checksum too",
	  NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

struct verify {
	struct ui *ui;
	const char *path;
	uint64_t findings;
	bool is_begun; /* the JSON document */
};

static void verify_begin(struct verify *v)
{
	if (v->is_begun)
		return;
	v->is_begun = true;
	ui_doc_begin(v->ui, 1, 0);
	json_str(&v->ui->js, "path", v->path);
	json_bool(&v->ui->js, "is_data_checked", args_has(v->ui->args, "data"));
	json_arr(&v->ui->js, "findings");
}

static void verify_finding(void *arg, const struct mpool_problem *p)
{
	struct verify *v = arg;
	struct json *j = &v->ui->js;

	v->findings++;
	if (v->ui->json) {
		verify_begin(v);
		json_obj(j, NULL);
		json_str(j, "id", p->id);
		json_str(j, "text", p->text);
		json_bool(j, "is_damage", p->is_damage);
		json_end(j);
		return;
	}
	printf("%s%s%s: ", p->is_damage ? ui_bad(v->ui) : "",
	       p->is_damage ? "damage" : "repairable", ui_plain(v->ui));
	ui_print(stdout, p->text);
	printf(" [%s]\n", p->id);
}

static void verify_json_end(struct verify *v, uint64_t damage, bool is_complete)
{
	struct json *j = &v->ui->js;

	verify_begin(v);
	json_end(j);
	json_u64(j, "damage", damage);
	json_u64(j, "repairable", v->findings > damage ? v->findings - damage : 0);
	json_bool(j, "is_complete", is_complete);
	ui_doc_end(v->ui);
}

int verb_verify(struct ui *ui)
{
	struct verify v = { .ui = ui, .path = ui->args->v[0] };
	unsigned flags = args_has(ui->args, "data") ? MPOOL_VERIFY_DATA : 0;
	uint64_t damage = 0;
	struct target t;
	int rc = target_open(ui, v.path, &t);

	if (rc)
		return rc;
	rc = mpool_verify(t.path, NULL, flags, verify_finding, &v, &damage);
	target_close(&t);
	if (rc) {
		if (v.is_begun)
			verify_json_end(&v, damage, false);
		return ui_fail(ui, v.path, rc, mpool_error_detail());
	}
	if (ui->json)
		verify_json_end(&v, damage, true);
	else if (damage)
		printf("%s: %" PRIu64 " damaged, %" PRIu64 " repairable\n", v.path, damage,
		       v.findings > damage ? v.findings - damage : 0);
	else if (!ui->quiet)
		printf("%s: no damage%s\n", v.path,
		       v.findings ? ", the findings above are repaired at the next open, unless "
				    "they name another way" : "");
	return damage ? EXIT_DAMAGE : EXIT_DONE;
}
