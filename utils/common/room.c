/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Which file systems have less room than the files of a pool may take. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "room.h"
#include "size.h"

/* The nearest folder above @path that is there; false: none can be looked at. */
static bool above(const char *path, char *dir, size_t size, struct stat *st)
{
	char *slash;

	if ((size_t)snprintf(dir, size, "%s%s", strchr(path, '/') ? "" : "./", path) >= size)
		return false;
	while ((slash = strrchr(dir, '/'))) {
		slash[slash == dir] = '\0';
		if (!stat(dir, st))
			return true;
		if (slash == dir)
			break;
	}
	return !stat(".", st) && snprintf(dir, size, ".") > 0;
}

void room_add(struct room *r, const char *path, uint64_t size)
{
	char dir[4096];
	struct statvfs vfs;
	struct stat st;
	unsigned i;

	if (!above(path, dir, sizeof(dir), &st) || statvfs(dir, &vfs))
		return;
	for (i = 0; i < r->n && r->fs[i].dev != st.st_dev; i++)
		;
	if (i == sizeof(r->fs) / sizeof(r->fs[0]))
		return;
	if (i == r->n) {
		r->fs[i].dev = st.st_dev;
		r->fs[i].path = path;
		r->fs[i].need = 0;
		r->fs[i].free = (uint64_t)vfs.f_bavail * vfs.f_frsize;
		r->n++;
	}
	r->fs[i].need += size;
}

void room_note(struct ui *ui, const struct room *r)
{
	char need[SIZE_STR], left[SIZE_STR];

	for (unsigned i = 0; i < r->n; i++)
		if (r->fs[i].need > r->fs[i].free)
			ui_note(ui, "%s: the file system has %s free, less than the %s that the "
				"pool may take: writes fail when it is full", r->fs[i].path,
				size_str(left, r->fs[i].free), size_str(need, r->fs[i].need));
}
