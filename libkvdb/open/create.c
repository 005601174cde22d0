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
 * There is no pool, or what a cut create or destroy leaves: a file that is no member, no whole
 * superblock, a pool that is not born or was destroyed. Each can be something else, too: the
 * create knows, and overwrites nothing else.
 */
static bool is_absent(const char *pool)
{
	static const char *const id[] = { "MP0401", "MP0101", "MP0102", "MP0111", "MP0112" };

	for (size_t i = 0; i < sizeof(id) / sizeof(id[0]); i++)
		if (is_id(id[i]))
			return strchr(pool, '/') != NULL;
	return false;
}

bool kv_open_should_make(const char *pool, const struct kvdb_opts *o, int *err,
			 struct kv_making *m)
{
	struct mpool_error why = *kvdb_error_detail();
	const struct kvdb_clock *c = kv_opts_clock(o);
	bool has_pool = is_id("MP0952");
	bool *has_seen = has_pool ? &m->has_seen_db : &m->has_seen_pool;
	int rc;

	if (!(o->flags & KVDB_CREATE) || (!has_pool && !is_absent(pool)) || ++m->tries > TRIES)
		return false;
	rc = has_pool ? kvdb_create(pool, o) : pool_make(pool, o);
	m->has_made |= has_pool && !rc;
	/* it is there: another has made it since, or it is what the open says of it */
	if (rc == -EEXIST && *has_seen) {
		*err = kv_error_take(&why, *err);
		return false;
	}
	*has_seen |= rc == -EEXIST;
	/* another makes it: to be found when that has ended, or to be told that it is in use */
	if (rc == -EBUSY && m->tries < TRIES) {
		c->sleep_until_ns(c->arg, c->now_ns(c->arg) + TRY_NS);
		return true;
	}
	if (rc && rc != -EEXIST) {
		*err = rc;
		return false;
	}
	return true;
}
