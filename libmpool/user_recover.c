/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Restoring the first superblock of one device or file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "user.h"

static void probe_out(const struct mp_probe *p, struct mpool_probe *out)
{
	memset(out, 0, sizeof(*out));
	memcpy(out->uuid, p->pb_uuid, sizeof(out->uuid));
	memcpy(out->dev_uuid, p->pb_dev_uuid, sizeof(out->dev_uuid));
	memcpy(out->name, p->pb_name, MPOOL_NAME_MAX);
	out->state = p->pb_state;
	out->slot = p->pb_slot;
	out->ndevs = p->pb_ndevs;
	out->mclass = p->pb_mclass;
	out->format_version = p->pb_format;
	out->generation = p->pb_gen;
	out->bytes = p->pb_bytes;
}

/* the device is held from the first look to the write */
static int recover(const char *path, uint32_t flags, struct mp_probe *p)
{
	struct mpl_dev *dev = calloc(1, sizeof(*dev));
	bool is_plan = flags & MPOOL_RECOVER_PLAN;
	const char *why = NULL;
	struct mpl_low low;
	int rc;

	if (!dev)
		return -ENOMEM;
	rc = mpl_file_open(path, is_plan ? MPL_FILE_RDONLY : 0, 0, &low, &why);
	if (rc) {
		free(dev);
		return mpl_err_as(rc == -EBUSY ? MPL_BUSY : MPL_DEVOPEN, rc, "%s: %s", path,
				  why ? why : strerror(-rc));
	}
	mpl_dev_init(dev, &low, path, MPOOL_CAPACITY, 0);
	rc = mp_probe(&dev->md_core, p);
	if (!rc && !p->pb_is_damaged) {
		rc = mpl_err(MPL_INTACT, "%s: it is a member of pool %s already", path,
			     p->pb_name);
	} else if (!rc || rc == -EINVAL) {
		os_user_error_clear();
		rc = mp_recover(&dev->md_core, is_plan, p);
	}
	mpl_dev_fini(dev);
	free(dev);
	return rc;
}

int mpool_recover(const char *path, uint32_t flags, struct mpool_probe *out)
{
	struct mp_probe p;
	int rc;

	mpl_begin(NULL);
	if (!path || !*path || (flags & ~MPOOL_RECOVER_PLAN))
		return mpl_ret(-EINVAL);
	rc = recover(path, flags, &p);
	if (!rc && out)
		probe_out(&p, out);
	return mpl_ret(rc);
}
