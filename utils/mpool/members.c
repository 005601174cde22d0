/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Finding the members of pools.
 *
 * Every block device is looked at, except those that a read could harm, hang or
 * count twice: without a medium, suspended device-mapper targets, and devices
 * on which another one (a path of multipath, a leg of a mirror) is built.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "members.h"
#include "size.h"

#define SYS_BLOCK "/sys/class/block"

const char *group_state_name(const struct pgroup *g)
{
	static const char *const name[] = {
		[GROUP_COMPLETE] = "complete",
		[GROUP_MISSING] = "incomplete",
		[GROUP_DUPLICATE] = "duplicate",
		[GROUP_CREATING] = "half-created",
		[GROUP_DESTROYED] = "destroyed",
	};

	return g->is_active ? "active" : name[g->state];
}

/* A number in a file of sysfs; 0 when it cannot be read. */
static unsigned long long sys_num(const char *dev, const char *file)
{
	char path[512];
	unsigned long long v = 0;
	FILE *f;

	snprintf(path, sizeof(path), SYS_BLOCK "/%s/%s", dev, file);
	f = fopen(path, "re");
	if (f) {
		if (fscanf(f, "%llu", &v) != 1)
			v = 0;
		fclose(f);
	}
	return v;
}

static bool has_holders(const char *dev)
{
	char path[512];
	struct dirent *e;
	bool is_held = false;
	DIR *d;

	snprintf(path, sizeof(path), SYS_BLOCK "/%s/holders", dev);
	d = opendir(path);
	while (d && (e = readdir(d)))
		is_held |= e->d_name[0] != '.';
	if (d)
		closedir(d);
	return is_held;
}

static bool may_look(const char *dev)
{
	return sys_num(dev, "size") && !sys_num(dev, "dm/suspended") && !has_holders(dev);
}

static bool is_removable(dev_t rdev)
{
	char dev[64];

	/* of a partition its disk says so */
	snprintf(dev, sizeof(dev), "../../dev/block/%u:%u", major(rdev), minor(rdev));
	return sys_num(dev, "removable") || sys_num(dev, "../removable");
}

int scan_add(struct scan *s, const char *path)
{
	struct member_dev *m;
	struct mpool_probe p;
	struct stat st;
	int rc = mpool_probe(path, &p);

	if (rc)
		return rc;
	if (stat(path, &st))
		return -errno;
	/* by another path, or given twice: it is no copy of itself */
	for (unsigned i = 0; i < s->ndevs; i++)
		if (S_ISBLK(st.st_mode) ? s->dev[i].rdev == st.st_rdev :
		    s->dev[i].dev == st.st_dev && s->dev[i].ino == st.st_ino)
			return 0;
	m = realloc(s->dev, (s->ndevs + 1) * sizeof(*m));
	if (!m)
		return -ENOMEM;
	s->dev = m;
	m += s->ndevs;
	memset(m, 0, sizeof(*m));
	if ((size_t)snprintf(m->path, sizeof(m->path), "%s", path) >= sizeof(m->path))
		return -ENAMETOOLONG;
	m->dev = st.st_dev;
	m->ino = st.st_ino;
	if (S_ISBLK(st.st_mode)) {
		m->rdev = st.st_rdev;
		m->is_removable = is_removable(st.st_rdev);
	}
	m->probe = p;
	s->ndevs++;
	return 0;
}

static int scan_machine(struct scan *s)
{
	struct dirent **e;
	char path[300];
	int n = scandir(SYS_BLOCK, &e, NULL, alphasort), rc = 0;

	for (int i = 0; i < n; i++) {
		/* a '!' in a name of sysfs is a '/' in /dev */
		snprintf(path, sizeof(path), "/dev/%s", e[i]->d_name);
		for (char *p = path + 5; *p; p++)
			*p = *p == '!' ? '/' : *p;
		if (rc != -ENOMEM && e[i]->d_name[0] != '.' && may_look(e[i]->d_name))
			rc = scan_add(s, path);
		free(e[i]);
	}
	if (n >= 0)
		free(e);
	return rc == -ENOMEM ? rc : 0;
}

int scan_run(struct scan *s, const char *const *paths, unsigned n)
{
	int rc = 0;

	memset(s, 0, sizeof(*s));
	if (!n)
		rc = scan_machine(s);
	for (unsigned i = 0; !rc && i < n; i++)
		rc = scan_add(s, paths[i]);
	return rc ? rc : scan_group(s);
}

static struct pgroup *group_of(struct scan *s, const struct mpool_probe *p)
{
	struct pgroup *g;

	for (unsigned i = 0; i < s->ngroups; i++)
		if (!memcmp(s->group[i].uuid, p->uuid, sizeof(p->uuid)))
			return &s->group[i];
	g = realloc(s->group, (s->ngroups + 1) * sizeof(*g));
	if (!g)
		return NULL;
	s->group = g;
	g += s->ngroups++;
	memset(g, 0, sizeof(*g));
	memcpy(g->uuid, p->uuid, sizeof(p->uuid));
	return g;
}

/*
 * Being added when that was cut short, and not created: a creation ends with its third
 * generation. Whether it is a member only the home device's table tells, which the core reads.
 */
static bool is_added(const struct mpool_probe *p)
{
	return p->state == 1 && p->generation > 2;
}

/* does @p know better than @o how many members there are? The home device (slot 0) decides */
static bool knows_better(const struct mpool_probe *p, const struct mpool_probe *o)
{
	if (!p->slot != !o->slot)
		return !p->slot;
	if (is_added(p) != is_added(o))
		return is_added(o);
	return p->generation > o->generation;
}

/* as the core sees it: in one place there may be a member, and what an add has left */
static bool is_copy(const struct mpool_probe *p, const struct mpool_probe *o)
{
	return p->slot == o->slot &&
	       (!p->slot || !memcmp(p->dev_uuid, o->dev_uuid, sizeof(p->dev_uuid)));
}

static const struct mpool_probe *group_probe(const struct scan *s, const struct pgroup *g,
					     unsigned i)
{
	return &s->dev[g->member[i]].probe;
}

static void group_judge(struct scan *s, struct pgroup *g, const struct mpool_active *active)
{
	bool seen[MPOOL_MCLASSES * MPOOL_DEVS_MAX] = { false }, is_twice = false;
	const struct mpool_probe *best = group_probe(s, g, 0), *p;
	unsigned distinct = 0;
	uint32_t state = 2;

	for (unsigned i = 1; i < g->found; i++)
		if (knows_better(group_probe(s, g, i), best))
			best = group_probe(s, g, i);
	g->generation = best->generation;
	g->wanted = best->ndevs;
	snprintf(g->name, sizeof(g->name), "%s", best->name);
	for (unsigned i = 0; i < g->found; i++) {
		p = group_probe(s, g, i);
		if (p->state != 2 && !is_added(p))
			state = p->state;
		g->is_removable |= s->dev[g->member[i]].is_removable;
		for (unsigned k = 0; k < i; k++)
			is_twice |= is_copy(p, group_probe(s, g, k));
		if (p->slot < g->wanted && !seen[p->slot])
			distinct += seen[p->slot] = true;
	}
	g->is_active = active != NULL;
	if (active)
		snprintf(g->name, sizeof(g->name), "%s", active->name);
	g->is_trusted = trust_has(g->uuid);
	if (state == 3)
		g->state = GROUP_DESTROYED;
	else if (state == 1)
		g->state = GROUP_CREATING;
	else if (is_twice)
		g->state = GROUP_DUPLICATE;
	else
		g->state = distinct < g->wanted ? GROUP_MISSING : GROUP_COMPLETE;
}

static int by_class_and_slot(const void *a, const void *b, void *arg)
{
	const struct scan *s = arg;
	const struct mpool_probe *x = &s->dev[*(const unsigned *)a].probe;
	const struct mpool_probe *y = &s->dev[*(const unsigned *)b].probe;

	if (x->mclass != y->mclass)
		return x->mclass < y->mclass ? -1 : 1;
	return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static int by_group_name(const void *a, const void *b)
{
	const struct pgroup *x = a, *y = b;
	int c = strcmp(x->name, y->name);

	return c ? c : memcmp(x->uuid, y->uuid, sizeof(x->uuid));
}

const struct mpool_active *active_find(const uint8_t uuid[16], struct mpool_active *a)
{
	char after[MPOOL_NAME_MAX + 1] = "";

	while (!mpool_active_next(after, a)) {
		if (!memcmp(a->uuid, uuid, sizeof(a->uuid)))
			return a;
		memcpy(after, a->name, sizeof(after));
	}
	return NULL;
}

int scan_group(struct scan *s)
{
	struct mpool_active a;

	for (unsigned i = 0; i < s->ndevs; i++) {
		struct pgroup *g = group_of(s, &s->dev[i].probe);
		unsigned *m;

		if (!g)
			return -ENOMEM;
		m = realloc(g->member, (g->found + 1) * sizeof(*m));
		if (!m)
			return -ENOMEM;
		g->member = m;
		m[g->found++] = i;
	}
	for (unsigned i = 0; i < s->ngroups; i++) {
		struct pgroup *g = &s->group[i];

		qsort_r(g->member, g->found, sizeof(*g->member), by_class_and_slot, s);
		group_judge(s, g, active_find(g->uuid, &a));
	}
	if (s->ngroups)
		qsort(s->group, s->ngroups, sizeof(*s->group), by_group_name);
	return 0;
}

void scan_free(struct scan *s)
{
	for (unsigned i = 0; i < s->ngroups; i++)
		free(s->group[i].member);
	free(s->group);
	free(s->dev);
	memset(s, 0, sizeof(*s));
}

struct pgroup *scan_find(struct scan *s, const char *word, unsigned *count)
{
	struct pgroup *g = NULL;
	char uuid[UUID_STR];

	*count = 0;
	for (unsigned i = 0; i < s->ngroups; i++)
		if (!strcmp(s->group[i].name, word) ||
		    !strcasecmp(uuid_str(uuid, s->group[i].uuid), word)) {
			g = &s->group[i];
			++*count;
		}
	return g;
}

const char **group_paths(const struct scan *s, const struct pgroup *g)
{
	const char **list = calloc(g->found, sizeof(*list));

	for (unsigned i = 0; list && i < g->found; i++)
		list[i] = s->dev[g->member[i]].path;
	return list;
}
