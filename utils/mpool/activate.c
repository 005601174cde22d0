/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool activate and mpool deactivate: giving pools on block devices to the
 * kernel module and taking them back.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "members.h"
#include "size.h"
#include "table.h"

const struct opt activate_opts[] = {
	{ "all", 'a', OPT_FLAG, 0, NULL, "every trusted pool of which all members are there", NULL,
	  NULL },
	{ "read-only", 'r', OPT_FLAG, 0, NULL, "write nothing to the pool while it is active", NULL,
	  NULL },
	{ "incremental", 0, OPT_FLAG, 0, NULL,
	  "for device events: a pool that lacks members or is not trusted is left for later and "
	  "is no error", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

const struct opt deactivate_opts[] = {
	{ "all", 'a', OPT_FLAG, 0, NULL, "every active pool, as at shutdown", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static const struct col result_cols[] = {
	{ "name", COL_STR, true, "name of the pool" },
	{ "result", COL_STR, true, "what was done" },
	{ "uuid", COL_STR, false, "identity" },
	{ NULL, 0, false, NULL },
};

/* What was done, one row per pool; text goes out as it happens. */
static struct tbl *results;

static void result_add(struct ui *ui, const char *name, const uint8_t *uuid, const char *what)
{
	char id[UUID_STR];

	if (results) {
		tbl_row(results);
		tbl_str(results, "name", name);
		tbl_str(results, "uuid", uuid ? uuid_str(id, uuid) : NULL);
		tbl_str(results, "result", what);
	} else if (!ui->quiet && !ui->json) {
		printf("%s: %s\n", name, what);
		fflush(stdout);
	}
}

static int results_begin(struct ui *ui)
{
	int code = EXIT_DONE;

	results = ui->json ? tbl_new(ui, result_cols, &code) : NULL;
	return code;
}

static int results_end(struct ui *ui, int code)
{
	if (!results)
		return code;
	ui_doc_begin(ui, 1, 0);
	tbl_print(results, "pools");
	ui_doc_end(ui);
	results = NULL;
	return code;
}

#define LOCK_PATH "/run/mpool.lock"

/*
 * Two device events may both have seen the last member. One activates; the other
 * waits here, instead of finding the members claimed by a pool that is not active
 * yet. Without the lock (not root) it may meet just that.
 */
static int activation_lock(void)
{
	int fd = open(LOCK_PATH, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd >= 0)
		(void)TEMP_FAILURE_RETRY(flock(fd, LOCK_EX));
	return fd;
}

int group_activate(struct ui *ui, const struct scan *s, const struct pgroup *g, bool is_rdonly,
		   bool is_silent)
{
	char name[MPOOL_NAME_MAX + 1];
	struct mpool_active active;
	const char **devs;
	unsigned flags = 0;
	bool is_late;
	int rc, lock;

	if (g->is_active) {
		result_add(ui, g->name, g->uuid, "active already");
		return EXIT_DONE;
	}
	devs = group_paths(s, g);
	if (!devs)
		return ui_error(ui, EXIT_FAILED, NULL, NULL, "out of memory");
	flags |= is_rdonly ? MPOOL_ACTIVATE_RDONLY : 0;
	flags |= g->is_trusted ? MPOOL_ACTIVATE_TRUST : 0;
	lock = activation_lock();
	is_late = active_find(g->uuid, &active) != NULL;
	rc = is_late ? 0 : mpool_activate(devs, g->found, flags, name);
	if (lock >= 0)
		close(lock);
	free(devs);
	if (is_late) {
		result_add(ui, g->name, g->uuid, "active already");
		return EXIT_DONE;
	}
	if (rc)
		return ui_fail(ui, g->name, rc, mpool_error_detail());
	if (!is_rdonly)
		history_add(ui, name);
	result_add(ui, name, g->uuid, is_rdonly ? "activated, read-only" : "activated");
	if (!g->is_trusted && !is_silent)
		ui_note(ui, "%s is not in %s: its node belongs to root alone (mpool scan --trust)",
			name, trust_dir());
	return EXIT_DONE;
}

/* Why @g cannot be activated; EXIT_DONE when it can. */
static int group_check(struct ui *ui, const struct pgroup *g)
{
	bool is_incremental = args_has(ui->args, "incremental");

	if (g->is_active)
		return EXIT_DONE;
	if (g->state == GROUP_COMPLETE && (!is_incremental || (g->is_trusted && !g->is_removable)))
		return EXIT_DONE;
	if (g->state == GROUP_COMPLETE || (g->state == GROUP_MISSING && is_incremental)) {
		result_add(ui, g->name, g->uuid,
			   g->state == GROUP_MISSING ? "waits for more members" :
			   g->is_trusted ? "on a removable device, not activated" :
			   "not trusted, not activated");
		return -1;
	}
	return ui_error(ui, EXIT_DAMAGE, g->name,
			g->state == GROUP_MISSING ? "bring the missing devices back" :
			g->state == GROUP_DUPLICATE ? "remove the copy; mpool scan -v names both" :
			"nothing of it is left to use", "the pool is %s: %u of %u members found",
			group_state_name(g), g->found, g->wanted);
}

static int activate_group(struct ui *ui, const struct scan *s, const struct pgroup *g)
{
	int rc = group_check(ui, g);

	if (rc)
		return rc < 0 ? EXIT_DONE : rc;
	return group_activate(ui, s, g, args_has(ui->args, "read-only"),
			      args_has(ui->args, "incremental"));
}

static int activate_all(struct ui *ui, const struct scan *s)
{
	int rc, code = EXIT_DONE;

	for (unsigned i = 0; i < s->ngroups; i++) {
		const struct pgroup *g = &s->group[i];

		if (g->is_active || !g->is_trusted || g->is_removable ||
		    g->state == GROUP_DESTROYED || g->state == GROUP_CREATING)
			continue;
		rc = activate_group(ui, s, g);
		code = code ? code : rc;
	}
	return code;
}

/* @word is a name, a UUID, or the path of one member. */
static int activate_one(struct ui *ui, struct scan *s, const char *word)
{
	char uuid[UUID_STR];
	struct mpool_probe p;
	unsigned count;
	struct pgroup *g;
	struct stat st;
	int rc;

	if (strchr(word, '/')) {
		if (stat(word, &st))
			return ui_fail(ui, word, -errno, NULL);
		if (!S_ISBLK(st.st_mode))
			return ui_error(ui, EXIT_UNSUPPORTED, word, "open it by its path instead",
					"a pool in files needs no activation and takes none");
		rc = mpool_probe(word, &p);
		if (rc)
			return ui_fail(ui, word, rc, mpool_error_detail());
		word = uuid_str(uuid, p.uuid);
	}
	g = scan_find(s, word, &count);
	if (!g && pool_is_active(word)) {
		result_add(ui, word, NULL, "active already");
		return EXIT_DONE;
	}
	if (!g && geteuid())
		return ui_error(ui, EXIT_PERMISSION, word, "do it as root",
				"its devices may not be looked for");
	if (!g)
		return ui_error(ui, EXIT_NOTFOUND, word, "mpool scan lists what there is",
				"no block device belongs to a pool of this name or UUID");
	if (count > 1)
		return ui_error(ui, EXIT_REFUSED, word, "give its UUID, see mpool scan",
				"%u pools have this name", count);
	return activate_group(ui, s, g);
}

int verb_activate(struct ui *ui)
{
	const struct args *a = ui->args;
	struct scan s;
	int rc, code;

	if (args_has(a, "all") == (a->n > 0))
		return ui_usage(ui, "either pools or -a");
	code = results_begin(ui);
	if (code)
		return code;
	rc = scan_run(&s, NULL, 0);
	if (rc)
		return ui_fail(ui, NULL, rc, NULL);
	if (!a->n)
		code = activate_all(ui, &s);
	for (int i = 0; i < a->n; i++) {
		rc = activate_one(ui, &s, a->v[i]);
		code = code ? code : rc;
	}
	scan_free(&s);
	return results_end(ui, code);
}

static int deactivate_one(struct ui *ui, const char *name)
{
	int rc;

	if (strchr(name, '/'))
		return ui_error(ui, EXIT_UNSUPPORTED, name, "close the program that has it open",
				"a pool given by its path is not the kernel's");
	rc = mpool_deactivate(name);
	if (rc)
		return ui_fail(ui, name, rc, mpool_error_detail());
	result_add(ui, name, NULL, "deactivated");
	return EXIT_DONE;
}

static int deactivate_all(struct ui *ui)
{
	char after[MPOOL_NAME_MAX + 1] = "";
	struct mpool_active a;
	int rc, one, code = EXIT_DONE;

	while (!(rc = mpool_active_next(after, &a))) {
		memcpy(after, a.name, sizeof(after));
		one = deactivate_one(ui, a.name);
		code = code ? code : one;
	}
	/* without the module nothing is active */
	if (rc != -ENOENT && rc != -EOPNOTSUPP)
		return ui_fail(ui, NULL, rc, mpool_error_detail());
	return code;
}

int verb_deactivate(struct ui *ui)
{
	const struct args *a = ui->args;
	int rc, code;

	if (args_has(a, "all") == (a->n > 0))
		return ui_usage(ui, "either pools or -a");
	code = results_begin(ui);
	if (code)
		return code;
	if (!a->n)
		code = deactivate_all(ui);
	for (int i = 0; i < a->n; i++) {
		rc = deactivate_one(ui, a->v[i]);
		code = code ? code : rc;
	}
	return results_end(ui, code);
}
