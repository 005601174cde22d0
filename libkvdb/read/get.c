/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A get that missed memory, for a caller that waits. It becomes the same
 * asynchronous operation as in a completion queue; a thread that reads for
 * others (read.c) also continues it when its page is there, so its owner sleeps once
 * however many pages it needs, and not inside kv_enter().
 */
#include <errno.h>

#include "base/assert.h"
#include "base/error.h"
#include "db/kvs.h"
#include "db/limbo.h"
#include "cache/load.h"
#include "seg/value.h"
#include "read/find.h"

struct get {
	struct kvdb_kvs *g_kvs;
	const struct kv_moment *g_mo;
	const void *g_key;
	size_t g_klen;
	void *g_buf;
	size_t g_size;
	size_t *g_vlen;
	struct kv_async g_as;
	int g_err;
	struct mpool_error g_error;	/* of the thread that ran it last */
};

/* Runs it until it is done or needs a read, which it returns. */
static struct kv_read *get_run(struct get *g)
{
	struct kv_aload *al;

	kv_async_begin(&g->g_as);
	g->g_err = kv_get_run(g->g_kvs, g->g_mo, g->g_key, g->g_klen, g->g_buf, g->g_size,
			      g->g_vlen);
	kv_async_end();
	if (g->g_err != -EINPROGRESS) {
		if (g->g_err && g->g_err != -ENOENT)
			g->g_error = *kvdb_error_detail();
		return NULL;
	}
	al = kv_async_next(&g->g_as);	/* a run ends at the first page that it misses */
	al->al_load.ld_read.rd_more = kv_get_more;
	return &al->al_load.ld_read;
}

struct kv_read *kv_get_more(struct kv_read *rd)
{
	struct kv_aload *al = (struct kv_aload *)rd;
	struct kv_thread *t = kv_enter();
	bool again = kv_async_done(al, rd->rd_err);

	kv_exit(t);
	return again ? rd : get_run(al->al_as->as_owner);
}

int kv_get_wait(struct kvdb_kvs *kvs, const struct kv_moment *mo, const void *key, size_t klen,
		void *buf, size_t size, size_t *vlen)
{
	struct get g = { .g_kvs = kvs, .g_mo = mo, .g_key = key, .g_klen = klen, .g_buf = buf,
			 .g_size = size, .g_vlen = vlen };
	struct kv_read *rd;

	KV_ASSERT_OUTSIDE();
	kv_pages_room(kvs->k_db, KV_GET_PAGES);
	g.g_as.as_db = kvs->k_db;
	g.g_as.as_owner = &g;
	g.g_error.id[0] = '\0';
	rd = get_run(&g);
	if (rd)
		kv_reads_run(kvs->k_db, &rd, 1);
	kv_async_free(&g.g_as);
	if (g.g_err && g.g_err != -ENOENT)
		kv_error_take(&g.g_error, g.g_err);
	return g.g_err;
}

int kv_value_wait(struct kvdb *db, const struct kv_ent *e, void *buf, size_t size)
{
	struct kv_async as = { .as_db = db };
	struct kv_thread *t;
	int rc;

	KV_ASSERT_OUTSIDE();
	do {
		kv_async_try(&as);
		t = kv_enter();
		rc = kv_value_read(db, e, buf, size);
		kv_exit(t);
	} while (kv_async_again(&as, rc, false));
	return rc;
}
