/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Memory that must come: when the media say something already, there is no way
 * back, and stopping the database would give up what was acknowledged. A caller
 * that may still refuse asks the C library instead. For a database that has stopped
 * no thread waits: it gives up no more, and its close joins those that wait.
 */
#include <stdlib.h>
#include <time.h>

#include "db/mem_wait.h"
#include "base/assert.h"
#include "db/db.h"

void kv_sleep_ms(void)
{
	struct timespec ts = { .tv_nsec = 1000000 };

	nanosleep(&ts, NULL);
}

int kv_sleep_or_stop(struct kvdb *db)
{
	int err = kv_fault(db);

	if (!err)
		kv_sleep_ms();
	return err;
}

void *kv_realloc_wait(struct kvdb *db, void *p, size_t size)
{
	void *q;

	KV_ASSERT(size);	/* of 0 it would free, and wait for ever */
	while (!(q = realloc(p, size)) && !kv_sleep_or_stop(db))
		;
	return q;
}
