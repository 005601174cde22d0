/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Is a block device reached through a fabric, so that other hosts may have it,
 * too? What sysfs says of it, of the disk of a partition, and of what a mapped
 * device lies on: NVMe over TCP, RDMA or Fibre Channel, iSCSI, Fibre Channel.
 * A guess, for a default that the user can overrule; stateless.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backend.h"
#include "device.h"
#include "fd.h"

#define DEPTH	8	/* mapped devices on each other */

static int transport_is_fabric(const char *dir)
{
	static const char *const fabrics[] = { "tcp", "rdma", "fc" };
	char path[PATH_MAX], text[16];
	size_t i, n;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s/transport", dir) >= (int)sizeof(path))
		return 0;
	f = mpl_fopen(path);
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	text[strcspn(text, "\n")] = 0;
	for (i = 0; i < sizeof(fabrics) / sizeof(fabrics[0]); i++)
		if (!strcmp(text, fabrics[i]))
			return 1;
	return 0;
}

/* @is: asked of each entry of @dir/@sub whose name begins with @prefix */
static int any_below(const char *dir, const char *sub, const char *prefix,
		     int (*is)(const char *path, int depth), int depth)
{
	char path[PATH_MAX];
	struct dirent *de;
	int found = 0;
	DIR *d;

	if (snprintf(path, sizeof(path), "%s/%s", dir, sub) >= (int)sizeof(path))
		return 0;
	d = mpl_opendir(path);
	while (d && !found && (de = readdir(d)) != NULL) {
		if (de->d_name[0] == '.' || strncmp(de->d_name, prefix, strlen(prefix)) ||
		    snprintf(path, sizeof(path), "%s/%s/%s", dir, sub, de->d_name) >=
		    (int)sizeof(path))
			continue;
		found = is(path, depth);
	}
	if (d)
		closedir(d);
	return found;
}

static int ctrl_is_fabric(const char *path, int depth)
{
	(void)depth;
	return transport_is_fabric(path);
}

static int node_is_fabric(const char *node, int depth)
{
	char path[PATH_MAX], part[PATH_MAX + 16];

	if (depth >= DEPTH || !realpath(node, path))
		return 0;
	if (strstr(path, "/session") || strstr(path, "/rport-"))
		return 1;
	snprintf(part, sizeof(part), "%s/partition", path);
	if (!access(part, F_OK))
		*strrchr(path, '/') = 0;
	snprintf(part, sizeof(part), "%s/device", path);
	/* one controller, or those of a subsystem with several paths */
	return transport_is_fabric(part) || any_below(path, "device", "nvme", ctrl_is_fabric, 0) ||
	       any_below(path, "slaves", "", node_is_fabric, depth + 1);
}

int mpl_node_is_fabric(const char *node)
{
	return node_is_fabric(node, 0);
}

static int dev_is_fabric(const char *path)
{
	char node[64];
	struct stat st;

	if (!path || stat(path, &st) || !S_ISBLK(st.st_mode))
		return 0;
	snprintf(node, sizeof(node), "/sys/dev/block/%u:%u", major(st.st_rdev),
		 minor(st.st_rdev));
	return mpl_node_is_fabric(node);
}

int mpl_create_is_multihost(const struct mpool_create_opts *o)
{
	unsigned i;

	if (o->flags & (MPOOL_CREATE_MULTIHOST | MPOOL_CREATE_ONE_HOST) || o->provider)
		return !!(o->flags & MPOOL_CREATE_MULTIHOST);
	for (i = 0; i < o->ndevs; i++)
		if (dev_is_fabric(o->devs[i].path))
			return 1;
	return 0;
}
