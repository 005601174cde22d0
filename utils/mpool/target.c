/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * From the word that names a pool to something the library opens.
 *
 * A pool on block devices that is not active has no folder with a pool.json.
 * For the time of one command it gets one, in a private folder, so that every
 * verb works on it in this process, without the module.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "members.h"
#include "size.h"

bool pool_is_active(const char *name)
{
	char path[POOL_PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "/dev/mpool/%s", name);
	return !strchr(name, '/') && name[0] != '.' && !stat(path, &st) && S_ISCHR(st.st_mode);
}

static void config_write(FILE *f, const struct scan *s, const struct pgroup *g)
{
	struct json j;
	char uuid[UUID_STR];

	json_init(&j, f, false);
	json_obj(&j, NULL);
	json_str(&j, "name", g->name);
	json_str(&j, "uuid", uuid_str(uuid, g->uuid));
	json_arr(&j, "devices");
	for (unsigned i = 0; i < g->found; i++) {
		const struct member_dev *m = &s->dev[g->member[i]];

		json_obj(&j, NULL);
		json_str(&j, "path", m->path);
		json_str(&j, "class", mclass_name(m->probe.mclass));
		json_end(&j);
	}
	json_end(&j);
	json_end(&j);
}

static int target_make(struct ui *ui, const struct scan *s, const struct pgroup *g,
		       struct target *t)
{
	const char *tmp = secure_getenv("TMPDIR");
	char dir[POOL_PATH_MAX - 64];
	FILE *f = NULL;
	int fd;

	snprintf(dir, sizeof(dir), "%s/mpool.XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return ui_error(ui, EXIT_FAILED, dir, NULL, "cannot make a folder: %s",
				strerror(errno));
	t->is_temp = true;
	memcpy(t->uuid, g->uuid, sizeof(t->uuid));
	snprintf(t->path, sizeof(t->path), "%s/pool.json", dir);
	fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0)
		f = fdopen(fd, "w");
	if (f)
		config_write(f, s, g);
	snprintf(t->path, sizeof(t->path), "%s", dir);
	if (!f || fclose(f))
		return ui_error(ui, EXIT_FAILED, dir, NULL, "cannot write pool.json: %s",
				strerror(errno));
	return EXIT_DONE;
}

/* A name that the module does not have: its members, if this user may look. */
static int target_search(struct ui *ui, struct target *t)
{
	unsigned count = 0;
	struct pgroup *g;
	struct scan s;
	int rc = scan_run(&s, NULL, 0);

	g = rc ? NULL : scan_find(&s, t->word, &count);
	if (rc)
		rc = ui_error(ui, EXIT_FAILED, t->word, NULL, "%s", strerror(-rc));
	else if (!g)
		rc = EXIT_DONE; /* the library says that there is none */
	else if (count > 1)
		rc = ui_error(ui, EXIT_REFUSED, t->word, "give its UUID, see mpool scan",
			      "%u pools have this name", count);
	else if (g->is_active)
		snprintf(t->path, sizeof(t->path), "%s", g->name);
	else if (g->state != GROUP_COMPLETE)
		rc = ui_error(ui, EXIT_DAMAGE, t->word, "see mpool scan",
			      "the pool is %s: %u of %u members found", group_state_name(g),
			      g->found, g->wanted);
	else
		rc = target_make(ui, &s, g, t);
	if (!rc && g && g->is_active)
		t->is_active = true;
	scan_free(&s);
	return rc;
}

int target_open(struct ui *ui, const char *word, struct target *t)
{
	memset(t, 0, sizeof(*t));
	t->word = word;
	if ((size_t)snprintf(t->path, sizeof(t->path), "%s", word) >= sizeof(t->path))
		return ui_usage(ui, "the path is too long");
	if (strchr(word, '/'))
		return EXIT_DONE;
	t->is_active = pool_is_active(word);
	if (t->is_active || geteuid())
		return EXIT_DONE;
	return target_search(ui, t);
}

void target_close(struct target *t)
{
	char path[POOL_PATH_MAX + 16];

	if (!t->is_temp)
		return;
	snprintf(path, sizeof(path), "%s/pool.json", t->path);
	unlink(path);
	rmdir(t->path);
	t->is_temp = false;
}
