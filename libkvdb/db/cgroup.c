/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Limits of control groups, of version 1, 2, and both at once. A limit of any group above
 * ours binds as well, so the smallest counts on the way from our group to the root, as far as
 * we see it. /proc/self/cgroup says which group of each hierarchy is ours; where that is in the
 * file system is said by /proc/self/mountinfo, for a hierarchy may be mounted anywhere, and of
 * it perhaps a part only: a container often sees its own group as the root of the mount.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpool/mpool.h>

#include "db/cgroup.h"

static FILE *facts_open(const char *path)
{
	int fd = mpool_fd_up(open(path, O_RDONLY | O_CLOEXEC));
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

	if (!f && fd >= 0)
		close(fd);
	return f;
}

/* The first line of @dir/@name that begins with @key, without it. */
static bool fact(const char *dir, const char *name, const char *key, char *out, size_t size)
{
	char path[PATH_MAX];
	bool found = false;
	FILE *f;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
		return false;
	f = facts_open(path);
	while (f && !found && fgets(out, (int)size, f))
		found = !strncmp(out, key, strlen(key));
	if (f)
		fclose(f);
	if (found)
		memmove(out, out + strlen(key), strlen(out + strlen(key)) + 1);
	return found;
}

/* "max", -1 and what is not there are no limit. */
static uint64_t fact_number(const char *dir, const char *name, const char *key)
{
	char text[128];

	if (!fact(dir, name, key, text, sizeof(text)) || text[0] < '0' || text[0] > '9')
		return UINT64_MAX;
	return strtoull(text, NULL, 10);
}

static void lower(uint64_t *limit, uint64_t n)
{
	if (n < *limit)
		*limit = n;
}

static void lower_cores(struct kv_cgroup *g, uint64_t quota_us, uint64_t period_us)
{
	if (quota_us && quota_us != UINT64_MAX && period_us && period_us != UINT64_MAX)
		lower(&g->g_cores, (quota_us - 1) / period_us + 1);
}

/* ---- one group ---- */

static void group_v2(const char *dir, struct kv_cgroup *g)
{
	unsigned long long quota, period;
	char text[64];

	lower(&g->g_memory, fact_number(dir, "memory.max", ""));
	/* above this one it goes on, but ever more slowly */
	lower(&g->g_memory, fact_number(dir, "memory.high", ""));
	if (fact(dir, "cpu.max", "", text, sizeof(text)) &&
	    sscanf(text, "%llu %llu", &quota, &period) == 2)
		lower_cores(g, quota, period);
}

static void group_memory(const char *dir, struct kv_cgroup *g)
{
	lower(&g->g_memory, fact_number(dir, "memory.limit_in_bytes", ""));
	/* of the groups above, too, also of those that a container does not see */
	lower(&g->g_memory, fact_number(dir, "memory.stat", "hierarchical_memory_limit "));
}

static void group_cpu(const char *dir, struct kv_cgroup *g)
{
	lower_cores(g, fact_number(dir, "cpu.cfs_quota_us", ""),
		    fact_number(dir, "cpu.cfs_period_us", ""));
}

/* ---- hierarchies ---- */

static const struct hierarchy {
	const char *type;	/* of the file system */
	const char *controller;	/* of version 1, or "" */
	void (*group)(const char *dir, struct kv_cgroup *g);
} hierarchies[] = {
	{ "cgroup2", "", group_v2 },
	{ "cgroup", "memory", group_memory },
	{ "cgroup", "cpu", group_cpu },
};

/* Is @name one of the words of @list, which commas part? "" is in the empty list only. */
static bool has_word(const char *list, const char *name)
{
	size_t len = strlen(name);

	if (!len)
		return !*list;
	for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
		if (!strncmp(list, name, len) && (!list[len] || list[len] == ','))
			return true;
	return false;
}

/* Our group in the hierarchy, as a path from the root of it that we see. */
static bool own_group(const char *root, const struct hierarchy *h, char *out, size_t size)
{
	char path[PATH_MAX], line[PATH_MAX], *list, *group;
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	f = facts_open(path);
	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		list = strchr(line, ':');
		group = list ? strchr(list + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = 0;
		found = has_word(list + 1, h->controller);
		if (found)
			snprintf(out, size, "%s", group);
	}
	if (f)
		fclose(f);
	return found;
}

/* Blanks and the like are written as \ooo there. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = 0;
}

/*
 * From our group up to the directory of the mount, whose root is group @top. Where our group is
 * not below that, as seen from here, what the mount shows is all there is to be seen.
 */
static void climb(const char *root, const struct hierarchy *h, const char *top,
		  const char *mount, const char *group, struct kv_cgroup *g)
{
	size_t base = strlen(root) + strlen(mount), len = strcmp(top, "/") ? strlen(top) : 0;
	char dir[PATH_MAX], *slash;

	if (strncmp(group, top, len) || (group[len] && group[len] != '/') || strstr(group, "/.."))
		group = "", len = 0;
	if ((size_t)snprintf(dir, sizeof(dir), "%s%s%s", root, mount, group + len) >= sizeof(dir))
		return;
	for (;;) {
		h->group(dir, g);
		slash = strrchr(dir, '/');
		if (strlen(dir) <= base || !slash)
			return;
		*slash = 0;
	}
}

/* A line of mountinfo: the fourth word, the fifth, and after " - " type, source, options. */
static void mount_line(const char *root, char *line, const struct hierarchy *h,
		       const char *group, struct kv_cgroup *g)
{
	char top[PATH_MAX], mount[PATH_MAX], type[32], options[512];
	char *tail = strstr(line, " - ");

	if (!tail || sscanf(line, "%*s %*s %*s %4095s %4095s", top, mount) != 2 ||
	    sscanf(tail + 3, "%31s %*s %511s", type, options) != 2 || strcmp(type, h->type))
		return;
	if (*h->controller && !has_word(options, h->controller))
		return;
	unescape(top);
	unescape(mount);
	climb(root, h, top, mount, group, g);
}

static void hierarchy_read(const char *root, const struct hierarchy *h, struct kv_cgroup *g)
{
	char path[PATH_MAX], group[PATH_MAX], *line = NULL;
	size_t size = 0;
	FILE *f;

	if (!own_group(root, h, group, sizeof(group)))
		return;
	snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
	f = facts_open(path);
	while (f && getline(&line, &size, f) > 0)
		mount_line(root, line, h, group, g);
	free(line);
	if (f)
		fclose(f);
}

void kv_cgroup_read(const char *root, struct kv_cgroup *out)
{
	size_t i;

	out->g_memory = out->g_cores = UINT64_MAX;
	for (i = 0; i < sizeof(hierarchies) / sizeof(hierarchies[0]); i++)
		hierarchy_read(root, &hierarchies[i], out);
}

void kv_cgroup_own(struct kv_cgroup *out)
{
	kv_cgroup_read("", out);
}
