/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool wipe: make a device no pool's, by taking away the signature at its first
 * byte. Everything else stays, so that scan --recover can bring it back for as
 * long as nothing is written over it.
 *
 * The device is held exclusively from the first look to the last write. A
 * signature that is not ours is left alone.
 */
#define _GNU_SOURCE
#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confirm.h"
#include "members.h"
#include "size.h"
#include "utf8.h"

#define VERSION_OFF 56 /* in the prefix; 0x0100 and up are ours */

const struct opt wipe_opts[] = {
	CONFIRM_OPTS,
	PLAN_OPT,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

struct wipe {
	const char *path;
	int fd;
	char name[64], uuid[64];
};

/* Taken by the kernel, a mount, or a program that has the pool open. */
static int wipe_hold(struct ui *ui, struct wipe *w)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 2 };
	struct stat st;
	int err = 0;

	w->fd = open(w->path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (w->fd < 0 || fstat(w->fd, &st))
		return ui_fail(ui, w->path, -errno, NULL);
	if (S_ISBLK(st.st_mode)) {
		close(w->fd);
		w->fd = open(w->path, O_RDWR | O_CLOEXEC | O_EXCL);
		err = w->fd < 0 ? errno : 0;
	} else if (S_ISREG(st.st_mode)) {
		err = fcntl(w->fd, F_OFD_SETLK, &lock) ? errno : 0;
	} else {
		return ui_usage(ui, "%s is neither a block device nor a file", w->path);
	}
	if (err == EBUSY || err == EAGAIN || err == EACCES)
		return ui_error(ui, err == EACCES && w->fd < 0 ? EXIT_PERMISSION : EXIT_BUSY,
				w->path, "deactivate the pool, or close what has it open",
				"the device is in use");
	return err ? ui_fail(ui, w->path, -err, NULL) : EXIT_DONE;
}

static blkid_probe wipe_probe(int fd)
{
	blkid_probe pr = blkid_new_probe();

	if (pr && blkid_probe_set_device(pr, fd, 0, 0)) {
		blkid_free_probe(pr);
		return NULL;
	}
	if (pr) {
		blkid_probe_enable_superblocks(pr, 1);
		/* only mpool: another signature is neither looked at nor touched */
		blkid_probe_filter_superblocks_type(pr, BLKID_FLTR_ONLYIN,
						    (char *[]){ "mpool", NULL });
		blkid_probe_set_superblocks_flags(pr, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_MAGIC |
						  BLKID_SUBLKS_LABEL | BLKID_SUBLKS_UUID);
	}
	return pr;
}

static void value_copy(blkid_probe pr, const char *key, char *buf, size_t size)
{
	const char *v;

	buf[0] = '\0';
	if (!blkid_probe_lookup_value(pr, key, &v, NULL))
		snprintf(buf, size, "%s", v);
	/* foreign bytes, which are shown */
	utf8_clean(buf);
}

/* What is there, and with @is_wiping away with it. */
static int wipe_do(struct ui *ui, struct wipe *w, bool is_wiping)
{
	unsigned char prefix[64];
	blkid_probe pr = wipe_probe(w->fd);
	int rc;

	if (!pr)
		return ui_error(ui, EXIT_FAILED, w->path, NULL, "cannot be examined");
	rc = blkid_do_probe(pr);
	if (rc < 0) {
		blkid_free_probe(pr);
		return ui_error(ui, EXIT_FAILED, w->path, NULL, "cannot be examined");
	}
	if (rc) {
		blkid_free_probe(pr);
		return ui_error(ui, EXIT_NOTFOUND, w->path, NULL,
				"carries no signature of a pool; nothing was changed");
	}
	value_copy(pr, "LABEL", w->name, sizeof(w->name));
	value_copy(pr, "UUID", w->uuid, sizeof(w->uuid));
	rc = EXIT_DONE;
	if (TEMP_FAILURE_RETRY(pread(w->fd, prefix, sizeof(prefix), 0)) != (ssize_t)sizeof(prefix))
		rc = ui_fail(ui, w->path, -EIO, NULL);
	else if (prefix[VERSION_OFF] + 256u * prefix[VERSION_OFF + 1] < 0x0100)
		rc = ui_error(ui, EXIT_REFUSED, w->path, "use wipefs",
			      "it belongs to a pool of the older Micron format");
	else if (is_wiping && (TEMP_FAILURE_RETRY(blkid_do_wipe(pr, 0)) ||
			       TEMP_FAILURE_RETRY(fsync(w->fd))))
		rc = ui_error(ui, EXIT_FAILED, w->path, NULL, "cannot be written: %s",
			      strerror(errno));
	blkid_free_probe(pr);
	return rc;
}

static void wipe_json(struct ui *ui, const struct wipe *w, int n, bool is_dry)
{
	struct json *j = &ui->js;

	ui_doc_begin(ui, 1, 0);
	json_bool(j, "is_dry_run", is_dry);
	json_arr(j, "devices");
	for (int i = 0; i < n; i++) {
		json_obj(j, NULL);
		json_str(j, "path", w[i].path);
		json_str(j, "name", w[i].name);
		json_str(j, "uuid", w[i].uuid);
		json_end(j);
	}
	json_end(j);
	ui_doc_end(ui);
}

/* All are held and looked at before the first is changed. */
static int wipe_run(struct ui *ui, struct wipe *w, int n)
{
	bool is_dry = args_has(ui->args, "dry-run");
	char what[160];
	int i, rc = 0;

	for (i = 0; !rc && i < n; i++) {
		w[i].path = ui->args->v[i];
		rc = wipe_hold(ui, &w[i]);
		if (!rc)
			rc = wipe_do(ui, &w[i], false);
	}
	for (i = 0; !rc && !is_dry && i < n; i++) {
		snprintf(what, sizeof(what), "the claim of pool %s on it", w[i].name);
		rc = confirm(ui, w[i].path, what, w[i].name);
	}
	for (i = 0; !rc && i < n; i++) {
		rc = is_dry ? 0 : wipe_do(ui, &w[i], true);
		if (!rc && !ui->json && !ui->quiet)
			printf("%s %s: member of pool %s\n", is_dry ? "would wipe" : "wiped",
			       w[i].path, w[i].name);
	}
	if (!rc && ui->json)
		wipe_json(ui, w, n, is_dry);
	return rc;
}

int verb_wipe(struct ui *ui)
{
	int n = ui->args->n, rc;
	struct wipe *w = calloc((size_t)n, sizeof(*w));

	if (!w)
		return ui_error(ui, EXIT_FAILED, NULL, NULL, "out of memory");
	for (int i = 0; i < n; i++)
		w[i].fd = -1;
	rc = wipe_run(ui, w, n);
	for (int i = 0; i < n; i++)
		if (w[i].fd >= 0)
			close(w[i].fd);
	free(w);
	return rc;
}
