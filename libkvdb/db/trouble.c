/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What background work failed at: one struct kv_trouble in the thing that failed, a run, the
 * flush or the merges of a store, a segment, relocation. It is left alone until its pause is
 * over, then tried again; each failure in a row makes the pause longer, one success ends
 * it (FS1 to FS3). All of them are in one list, for kvdb_stats() and kvdb_info().
 *
 * Lock: d_troubles.tl_lock, a leaf: the list, and all but tb_err and tb_again_ns, which are read
 * without it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "db/db.h"

#define NO_TEXT		"no memory to say why"
#define FREE_TRIES	3u		/* a request that a device failed is made again at once, */
#define EIO_NS		100000000ull	/* then after that, twice that, and so on, */
#define EIO_MOST_NS	60000000000ull	/* up to that */
#define BAD_NS		10000000000ull	/* the same for damaged bytes */
#define BAD_MOST_NS	3600000000000ull

/* How long what failed @n times is left alone. */
static uint64_t pause_ns(int err, uint32_t n)
{
	uint64_t first = err == -EIO ? EIO_NS : BAD_NS, most = err == -EIO ? EIO_MOST_NS :
									     BAD_MOST_NS;
	uint32_t free_tries = err == -EIO ? FREE_TRIES : 0, shift;

	if (n <= free_tries)
		return 0;
	shift = n - free_tries - 1;
	return shift < 16 && first << shift < most ? first << shift : most;
}

static void list_add(struct kvdb *db, struct kv_trouble *tb)
{
	KV_ASSERT_HELD(&db->d_troubles.tl_lock);
	KV_ASSERT(!tb->tb_at);
	tb->tb_next = db->d_troubles.tl_first;
	if (tb->tb_next)
		tb->tb_next->tb_at = &tb->tb_next;
	db->d_troubles.tl_first = tb;
	tb->tb_at = &db->d_troubles.tl_first;
}

void kv_trouble_set(struct kvdb *db, struct kv_trouble *tb, int err, const char *fmt, ...)
{
	char what[KVDB_NAME_MAX + 64];
	uint64_t now = kv_now(db);
	va_list ap;

	KV_ASSERT(err == -EIO || err == -EUCLEAN);
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&db->d_troubles.tl_lock);
	if (!tb->tb_at) {
		tb->tb_n = 0;
		tb->tb_since_ns = now;
		list_add(db, tb);
	}
	tb->tb_n++;
	free(tb->tb_text);
	if (asprintf(&tb->tb_text, "%s: %s", what, kvdb_error_detail()->err == err ?
		     kvdb_error_detail()->text : strerror(-err)) < 0)
		tb->tb_text = NULL;
	atomic_store(&tb->tb_again_ns, now + pause_ns(err, tb->tb_n));
	atomic_store(&tb->tb_err, err);
	pthread_mutex_unlock(&db->d_troubles.tl_lock);
}

void kv_trouble_end(struct kvdb *db, struct kv_trouble *tb)
{
	if (!atomic_load_explicit(&tb->tb_err, memory_order_relaxed))
		return;
	pthread_mutex_lock(&db->d_troubles.tl_lock);
	if (tb->tb_at) {
		KV_ASSERT(*tb->tb_at == tb);
		*tb->tb_at = tb->tb_next;
		if (tb->tb_next)
			tb->tb_next->tb_at = tb->tb_at;
		tb->tb_at = NULL;
		free(tb->tb_text);
		tb->tb_text = NULL;
		atomic_store(&tb->tb_err, 0);
	}
	pthread_mutex_unlock(&db->d_troubles.tl_lock);
}

bool kv_trouble_holds(struct kvdb *db, const struct kv_trouble *tb)
{
	return atomic_load_explicit(&tb->tb_err, memory_order_relaxed) &&
	       BARRIER(kv_now(db) < atomic_load(&tb->tb_again_ns));
}

int kv_trouble_error(struct kvdb *db, const struct kv_trouble *tb)
{
	int err;

	pthread_mutex_lock(&db->d_troubles.tl_lock);
	err = atomic_load(&tb->tb_err);
	if (err)
		kv_error(err, "MP0906", "%s", tb->tb_text ? tb->tb_text : NO_TEXT);
	pthread_mutex_unlock(&db->d_troubles.tl_lock);
	return err;
}

uint64_t kv_trouble_age_ns(struct kvdb *db, struct kv_trouble *tb)
{
	uint64_t ns = 0;

	pthread_mutex_lock(&db->d_troubles.tl_lock);
	if (tb->tb_at)
		ns = kv_now(db) - tb->tb_since_ns;
	pthread_mutex_unlock(&db->d_troubles.tl_lock);
	return ns;
}

uint64_t kv_troubles(struct kvdb *db, uint64_t *age_ns, char *text, size_t size)
{
	struct kv_trouble *oldest = NULL;
	uint64_t n = 0;

	pthread_mutex_lock(&db->d_troubles.tl_lock);
	for (struct kv_trouble *tb = db->d_troubles.tl_first; tb; tb = tb->tb_next) {
		n++;
		if (!oldest || tb->tb_since_ns < oldest->tb_since_ns)
			oldest = tb;
	}
	*age_ns = oldest ? kv_now(db) - oldest->tb_since_ns : 0;
	if (text)
		snprintf(text, size, "%s", !oldest ? "" : oldest->tb_text ? oldest->tb_text :
								    NO_TEXT);
	pthread_mutex_unlock(&db->d_troubles.tl_lock);
	return n;
}
