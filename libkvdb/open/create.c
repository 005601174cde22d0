/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * KVDB_CREATE: what an open does not find it makes, in two steps, each of which a crash leaves
 * whole or not begun: the pool, then the database in it. So an open goes on from where a cut
 * one was, and of several at once one makes what the others find. RV28
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "db/db.h"
#include "open/create.h"
#include "open/open.h"

#define FIRST_BYTES	(1ull << 30)	/* a file is sparse: it takes what is in it */
#define TRIES		100
#define TRY_NS		20000000u

static bool is_id(const char *id)
{
	return !strcmp(kvdb_error_detail()->id, id);
}

/* A pool of one file, which grows. */
static int pool_make(const char *pool, const struct kvdb_opts *o)
{
	uint64_t max = o->size_max ? o->size_max : MPOOL_GROW_AUTO;
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY };
	struct mpool_create_opts c = MPOOL_CREATE_OPTS_INIT;
	int err;

	dev.size = max < FIRST_BYTES ? max : FIRST_BYTES;
	c.flags = MPOOL_CREATE_ANY_NAME;
	c.devs = &dev;
	c.ndevs = 1;
	c.grow_max = max;
	c.provider = o->pool ? o->pool->provider : NULL;
	err = mpool_create(pool, &c);
	return err ? kv_error_mpool(err) : 0;
}

/*
 * What a cut create left can look like several things; the create knows it from a pool, and
 * overwrites nothing else.
 */
static bool is_absent(const char *pool, int err)
{
	return strchr(pool, '/') && !is_id("MP0951") &&
	       (err == -ENOENT || err == -ENODEV || err == -EINVAL || err == -EUCLEAN);
}

bool kv_open_should_make(const char *pool, const struct kvdb_opts *o, int *err, int *tries)
{
	struct mpool_error why = *kvdb_error_detail();
	const struct kvdb_clock *c = kv_opts_clock(o);
	int rc;

	if (!(o->flags & KVDB_CREATE) || ++*tries > TRIES)
		return false;
	if (*err == -ENOENT && is_id("MP0952"))
		rc = kvdb_create(pool, o);
	else if (is_absent(pool, *err))
		rc = pool_make(pool, o);
	else
		return false;
	if (!rc)
		return true;
	/* another makes it, or has: to be found, or to be told that it is in use */
	if (rc == -EEXIST || rc == -EBUSY) {
		if (*tries < TRIES) {
			c->sleep_until_ns(c->arg, c->now_ns(c->arg) + TRY_NS);
			return true;
		}
		*err = kv_error_take(&why, *err);
		return false;
	}
	*err = rc;
	return false;
}
