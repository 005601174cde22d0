/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Error details of the calling thread, and the fail-stop state of a database.
 * Every error that a user can act on has a stable id, a text that names
 * object, reason and way out, and the cure from the table here. The detail
 * belongs to the thread; nothing is locked except the first fault's text.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kv.h"

static _Thread_local struct mpool_error err_tls;

static const struct {
	const char *id, *cure;
} err_cures[] = {
	{ "MP0951", "check the argument against kvdb.h" },
	{ "MP0952", "create the database first: kvdb create POOL" },
	{ "MP0953", "open it, or remove it first: kvdb drop POOL" },
	{ "MP0954", "close the other process that uses this database" },
	{ "MP0955", "free space: delete data, or add a device to the pool" },
	{ "MP0956", "use a version of the tools that knows this format" },
	{ "MP0960", "restore from a backup; kvdb verify lists what is damaged" },
	{ "MP0961", "the device or its controller broke its flush promise; replace it and "
		"restore" },
	{ "MP0962", "run kvdb repair" },
	{ "MP0963", "close the database, repair the cause, and open it again" },
	{ "MP0964", "close its cursors first" },
	{ "MP0965", "list the stores: kvdb info POOL" },
};

const struct mpool_error *kvdb_error_detail(void)
{
	return &err_tls;
}

const char *kvdb_version(void)
{
	return MP_VERSION;
}

int kv_error(int err, const char *id, const char *fmt, ...)
{
	struct mpool_error *e = &err_tls;
	va_list ap;
	size_t i;

	memset(e, 0, sizeof(*e));
	snprintf(e->id, sizeof(e->id), "%s", id);
	e->err = err;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	for (i = 0; i < sizeof(err_cures) / sizeof(err_cures[0]); i++)
		if (!strcmp(err_cures[i].id, id))
			snprintf(e->cure, sizeof(e->cure), "%s", err_cures[i].cure);
	return err;
}

int kv_error_mpool(int err)
{
	const struct mpool_error *m = mpool_error_detail();

	err_tls = *m;
	err_tls.err = err;
	if (!err_tls.id[0])
		snprintf(err_tls.text, sizeof(err_tls.text), "%s", strerror(-err));
	return err;
}

int kv_fail(struct kvdb *db, int err, const char *fmt, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	va_list ap;

	pthread_mutex_lock(&lock);
	if (!atomic_load_explicit(&db->d_fault, memory_order_relaxed)) {
		va_start(ap, fmt);
		vsnprintf(db->d_fault_text, sizeof(db->d_fault_text), fmt, ap);
		va_end(ap);
		/* the text is complete before anybody sees the state */
		atomic_store_explicit(&db->d_fault, err, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	kv_flusher_failed(db);
	kv_error(err, "MP0963", "the database stopped: %.200s", db->d_fault_text);
	return err;
}
