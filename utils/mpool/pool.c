/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What several verbs need: opening for a look, and names.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpool.h"

int pool_open_rdonly(const char *path, struct mpool **mp)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;

	o.flags = MPOOL_OPEN_RDONLY;
	return mpool_open(path, &o, mp);
}

const char *mclass_name(unsigned mclass)
{
	static const char *const name[MPOOL_MCLASSES] = {
		[MPOOL_CAPACITY] = "capacity",
		[MPOOL_STAGING] = "staging",
	};

	return mclass < MPOOL_MCLASSES ? name[mclass] : "unknown";
}

const char *kind_name(unsigned kind)
{
	switch (kind) {
	case 0:
		return "metadata";
	case MPOOL_MBLOCK:
		return "mblock";
	case MPOOL_APPEND:
		return "append";
	case MPOOL_MLOG:
		return "mlog";
	default:
		return "unknown";
	}
}

const char *health_of_error(int err)
{
	switch (err) {
	case -EBUSY:
		return "busy";
	case -EUCLEAN:
	case -EBADMSG:
		return "damaged";
	case -EINVAL:
		return "foreign";
	case -ENOTUNIQ:
		return "duplicate";
	case -ENODEV:
		return "missing";
	case -ESTALE:
		return "stale";
	case -EACCES:
	case -EPERM:
		return "denied";
	case -EOPNOTSUPP:
		return "unsupported";
	case -ENOENT:
	case -ENOTDIR:
		return "none";
	default:
		return "error";
	}
}
