/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What lies on a device that a pool shall overwrite: file systems, RAID and
 * volume members, crypto headers and partition tables, by libblkid. Ambiguous
 * results count as something. A pool of ours is not foreign: the core decides
 * about those.
 */
#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device.h"
#include "mpl_err.h"

static blkid_probe sig_probe_new(int fd)
{
	blkid_probe pr = blkid_new_probe();

	if (!pr)
		return NULL;
	if (blkid_probe_set_device(pr, fd, 0, 0)) {
		blkid_free_probe(pr);
		return NULL;
	}
	blkid_probe_enable_superblocks(pr, 1);
	blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_LABEL |
					  BLKID_SUBLKS_MAGIC | BLKID_SUBLKS_BADCSUM);
	blkid_probe_enable_partitions(pr, 1);
	blkid_probe_set_partitions_flags(pr, BLKID_PARTS_MAGIC | BLKID_PARTS_FORCE_GPT);
	return pr;
}

/* 1 when bytes 0.. carry our prefix with our version; the core judges the rest */
static int sig_is_ours(int fd)
{
	unsigned char b[64];

	return pread(fd, b, sizeof(b), 0) == (ssize_t)sizeof(b) && !memcmp(b, "mpoolDev", 8) &&
	       b[56] + 256u * b[57] >= 0x0100;
}

static int sig_name(blkid_probe pr, char *what, size_t size)
{
	const char *type = NULL, *label = NULL;

	if (!blkid_probe_lookup_value(pr, "TYPE", &type, NULL)) {
		blkid_probe_lookup_value(pr, "LABEL", &label, NULL);
		if (!strcmp(type, "mpool"))
			snprintf(what, size, "a pool of the older Micron mpool format%s%s",
				 label ? " named " : "", label ? label : "");
		else
			snprintf(what, size, "%s%s%s%s", type, label ? " labelled \"" : "",
				 label ? label : "", label ? "\"" : "");
		return 1;
	}
	if (!blkid_probe_lookup_value(pr, "PTTYPE", &type, NULL)) {
		snprintf(what, size, "a %s partition table", type);
		return 1;
	}
	return 0;
}

int mpl_ident(int fd, struct mpl_ident *id)
{
	struct stat st;

	*id = (struct mpl_ident){ .id_seq = 0 };
	if (fstat(fd, &st))
		return -errno;
	id->id_fs = S_ISBLK(st.st_mode) ? 0 : st.st_dev;
	id->id_node = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_ino;
#ifdef BLKGETDISKSEQ
	/* from Linux 5.15 on */
	if (S_ISBLK(st.st_mode) && ioctl(fd, BLKGETDISKSEQ, &id->id_seq))
		id->id_seq = 0;
#endif
	return 0;
}

int mpl_ident_is_same(const struct mpl_ident *a, const struct mpl_ident *b)
{
	return a->id_fs == b->id_fs && a->id_node == b->id_node && a->id_seq == b->id_seq;
}

int mpl_sigcheck(const char *path, char *what, size_t size, struct mpl_ident *id)
{
	int fd = mpool_fd_up(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)), rc, found = 0;
	blkid_probe pr;

	if (fd < 0)
		return -errno;
	rc = mpl_ident(fd, id);
	pr = rc ? NULL : sig_probe_new(fd);
	if (!pr) {
		close(fd);
		return rc ? rc : -ENOMEM;
	}
	rc = blkid_do_safeprobe(pr);
	if (rc == -2) {
		snprintf(what, size, "several signatures at once");
		found = 1;
	} else if (rc == 0) {
		found = sig_name(pr, what, size) && !sig_is_ours(fd);
	}
	blkid_free_probe(pr);
	close(fd);
	return found ? -EPERM : rc == -1 ? -EIO : 0;
}

int mpl_sigwipe(const char *path, int is_ours, const struct mpl_ident *id)
{
	/* a block device in use, mounted for instance, is not wiped */
	int fd = mpool_fd_up(open(path, O_RDWR | (is_ours ? 0 : O_EXCL) | O_CLOEXEC | O_NONBLOCK));
	struct mpl_ident now;
	blkid_probe pr;
	int rc, found = 0, n = 0;

	if (fd < 0)
		return -errno;
	rc = mpl_ident(fd, &now);
	if (!rc && !mpl_ident_is_same(&now, id))
		rc = -ESTALE;
	pr = rc ? NULL : sig_probe_new(fd);
	if (!pr) {
		close(fd);
		return rc ? rc : -ENOMEM;
	}
	/*
	 * Each round finds the next signature, backup copies too, and libblkid
	 * syncs what it wiped; 64 are plenty.
	 */
	while (n++ < 64 && !rc && !(found = blkid_do_probe(pr)))
		rc = TEMP_FAILURE_RETRY(blkid_do_wipe(pr, 0)) ? -EIO : 0;
	if (found < 0)
		rc = -EIO;
	blkid_free_probe(pr);
	close(fd);
	return rc;
}
