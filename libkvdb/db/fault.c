/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The fail-stop state of a database (P5), and errors that name it. Lock: d_fault.fa_lock, a leaf:
 * of several failures the first one writes the text.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/error.h"
#include "db/db.h"
#include "db/hooks.h"

int kv_error_room(struct kvdb *db, int err, const char *what)
{
	if (kv_fault(db))
		return kv_error(-EROFS, "MP0903", "%s", db->d_fault.fa_text);
	if (err == -EIO)
		return kv_error(-EROFS, "MP0906", "%s: no room for a write: flushes fail", what);
	return kv_error_unwritten(kv_error(err, "MP0904", "%s: no room for a write", what));
}

int kv_error_unknown(struct kvdb *db)
{
	KV_ASSERT(kv_fault(db));
	return kv_error(-EIO, "MP0999", "the database stopped: %.200s; the next open shows whether "
			"the change was made", db->d_fault.fa_text);
}

int kv_error_stopped(struct kvdb *db, int err)
{
	if (!err || !kv_fault(db))
		return kv_error_memory(err, "background work");
	return kv_error(err, "MP0963", "the database stopped: %.200s", db->d_fault.fa_text);
}

int kv_error_dropped(const struct kvdb_kvs *kvs)
{
	if (KV_LIKELY(!atomic_load(&kvs->k_dropped)))
		return 0;
	return kv_error(-ENOENT, "MP0965", "store %s was dropped", kvs->k_name);
}

int kv_fail(struct kvdb *db, int err, const char *fmt, ...)
{
	va_list ap;

	KV_ASSERT(err < 0);
	pthread_mutex_lock(&db->d_fault.fa_lock);
	if (!atomic_load_explicit(&db->d_fault.fa_err, memory_order_relaxed)) {
		va_start(ap, fmt);
		vsnprintf(db->d_fault.fa_text, sizeof(db->d_fault.fa_text), fmt, ap);
		va_end(ap);
		/* the text is complete before any thread sees the state */
		atomic_store_explicit(&db->d_fault.fa_err, err, memory_order_release);
	}
	pthread_mutex_unlock(&db->d_fault.fa_lock);
	db->d_hooks->ho_flusher_failed(db);
	kv_error(err, "MP0963", "the database stopped: %.200s", db->d_fault.fa_text);
	return err;
}
