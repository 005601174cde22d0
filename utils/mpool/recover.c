/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool scan --recover: devices whose first block was overwritten. Everything
 * that was found is shown before the question and before the first write.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "confirm.h"
#include "members.h"
#include "size.h"

struct lost {
	const char *path;
	struct mpool_probe probe; /* what the copies say */
	char holds[160];          /* what the first block says now, or "" */
};

static void lost_text(FILE *f, const struct lost *l)
{
	char uuid[UUID_STR], size[SIZE_STR];
	const struct mpool_probe *p = &l->probe;

	fprintf(f, "%s: member %u of %u of pool %s (%s), %s, %s; its first block holds %s\n",
		l->path, p->slot + 1, p->ndevs, p->name, uuid_str(uuid, p->uuid),
		mclass_name(p->mclass), size_str(size, p->bytes),
		l->holds[0] ? l->holds : "nothing that is known");
}

static void lost_json(struct ui *ui, const struct lost *l, int n, bool is_dry)
{
	struct json *j = &ui->js;
	char uuid[UUID_STR];

	ui_doc_begin(ui, 1, 0);
	json_bool(j, "is_dry_run", is_dry);
	json_arr(j, "recovered");
	for (; n; n--, l++) {
		json_obj(j, NULL);
		json_str(j, "path", l->path);
		json_str(j, "name", l->probe.name);
		json_str(j, "uuid", uuid_str(uuid, l->probe.uuid));
		json_str(j, "class", mclass_name(l->probe.mclass));
		json_u64(j, "slot", l->probe.slot);
		json_u64(j, "members", l->probe.ndevs);
		json_u64(j, "size", l->probe.bytes);
		json_str(j, "signature", l->holds[0] ? l->holds : NULL);
		json_end(j);
	}
	json_end(j);
	ui_doc_end(ui);
}

static int recover_run(struct ui *ui, struct lost *l, int n)
{
	bool is_dry = args_has(ui->args, "dry-run");
	int i, rc;

	for (i = 0; i < n; i++) {
		l[i].path = ui->args->v[i];
		rc = mpool_recover(l[i].path, MPOOL_RECOVER_PLAN, &l[i].probe);
		if (rc)
			return ui_fail(ui, l[i].path, rc, mpool_error_detail());
		if (!signature_find(l[i].path, l[i].holds, sizeof(l[i].holds)))
			l[i].holds[0] = '\0';
	}
	for (i = 0; !is_dry && i < n; i++) {
		if (ui->tty_in)
			lost_text(stderr, &l[i]);
		rc = confirm(ui, l[i].path, "what its first block holds now", l[i].probe.name);
		if (rc)
			return rc;
	}
	for (i = 0; i < n; i++) {
		rc = is_dry ? 0 : mpool_recover(l[i].path, 0, &l[i].probe);
		if (rc)
			return ui_fail(ui, l[i].path, rc, mpool_error_detail());
		if (!ui->json && is_dry)
			lost_text(stdout, &l[i]);
		else if (!ui->json && !ui->quiet)
			printf("restored %s: member of pool %s\n", l[i].path, l[i].probe.name);
	}
	if (ui->json)
		lost_json(ui, l, n, is_dry);
	return EXIT_DONE;
}

int scan_recover(struct ui *ui)
{
	int n = ui->args->n, rc;
	struct lost *l = calloc((size_t)n, sizeof(*l));

	if (!l)
		return ui_error(ui, EXIT_FAILED, NULL, NULL, "out of memory");
	rc = recover_run(ui, l, n);
	free(l);
	return rc;
}
