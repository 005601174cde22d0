/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The search for pools where a person would look for them first.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "poolfind.h"

#define PATH_MAX_BYTES 4096

/* A directory of a pool holds its description or, that lost, its first file. */
static bool is_pool_dir(int dirfd, const char *name)
{
	char path[PATH_MAX_BYTES];

	snprintf(path, sizeof(path), "%s/pool.json", name);
	if (!faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW))
		return true;
	snprintf(path, sizeof(path), "%s/capacity.mp", name);
	return !faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct found {
	char **list;
	size_t n;
};

static void found_add(struct found *f, const char *before, const char *name)
{
	char **more = realloc(f->list, (f->n + 2) * sizeof(*more));

	if (!more)
		return;
	f->list = more;
	if (asprintf(&more[f->n], "%s%s", before, name) < 0)
		more[f->n] = NULL;
	else
		more[++f->n] = NULL;
}

char **pool_find(void)
{
	struct found f = { .list = calloc(1, sizeof(char *)) };
	DIR *d = opendir(".");
	struct dirent *e;

	while (f.list && d && (e = readdir(d)))
		if (strcmp(e->d_name, "..") && (e->d_type == DT_DIR || e->d_type == DT_UNKNOWN) &&
		    is_pool_dir(dirfd(d), e->d_name))
			found_add(&f, "./", strcmp(e->d_name, ".") ? e->d_name : "");
	if (d)
		closedir(d);
	/* the nodes of the kernel's pools */
	d = opendir("/dev/mpool");
	while (f.list && d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			found_add(&f, "", e->d_name);
	if (d)
		closedir(d);
	if (f.list)
		qsort(f.list, f.n, sizeof(*f.list), by_name);
	return f.list;
}

void pool_list_free(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}
