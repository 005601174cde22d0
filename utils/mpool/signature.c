/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What other tools would call the content of a member, for plans and questions.
 *
 * This only informs. The decision to refuse is the library's, which looks again
 * with the device held.
 */
#include <blkid/blkid.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mpool.h"
#include "utf8.h"

static const char *value_of(blkid_probe pr, const char *name)
{
	const char *v = NULL;

	if (blkid_probe_lookup_value(pr, name, &v, NULL))
		return NULL;
	return v;
}

static bool describe(blkid_probe pr, char *buf, size_t size)
{
	const char *type = value_of(pr, "TYPE"), *label = value_of(pr, "LABEL");
	const char *usage = value_of(pr, "USAGE"), *table = value_of(pr, "PTTYPE");

	if (type && !strcmp(type, "mpool"))
		snprintf(buf, size, "mpool%s%s%s", label ? " \"" : "", label ? label : "",
			 label ? "\"" : "");
	else if (type)
		snprintf(buf, size, "%s%s%s%s%s", type,
			 usage && !strcmp(usage, "filesystem") ? " file system" : "",
			 label ? " \"" : "", label ? label : "", label ? "\"" : "");
	else if (table)
		snprintf(buf, size, "%s partition table", table);
	return type || table;
}

bool signature_find(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;
	blkid_probe pr;
	bool is_found = false;

	if (fd < 0)
		return false;
	pr = blkid_new_probe();
	if (pr && !blkid_probe_set_device(pr, fd, 0, 0)) {
		blkid_probe_enable_superblocks(pr, 1);
		blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL |
						  BLKID_SUBLKS_USAGE);
		blkid_probe_enable_partitions(pr, 1);
		rc = blkid_do_safeprobe(pr);
		if (rc == 0)
			is_found = describe(pr, buf, size);
		/* a label must not drive the terminal that shows it */
		if (is_found)
			utf8_clean(buf);
		if (rc == -2) {
			snprintf(buf, size, "several signatures that contradict each other");
			is_found = true;
		}
	}
	blkid_free_probe(pr);
	close(fd);
	return is_found;
}
