/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Memory that must come, see mem_wait.c. */
#ifndef KV_MEM_WAIT_H
#define KV_MEM_WAIT_H

#include <stddef.h>

struct kvdb;

/* Sleeps for a millisecond. */
void kv_sleep_ms(void);
/* The same for a caller that waits for memory: 0, or at once why the database has stopped. */
int kv_sleep_or_stop(struct kvdb *db);
/* Memory, however long that takes (@size is not 0). NULL: the database has stopped. */
void *kv_realloc_wait(struct kvdb *db, void *p, size_t size);

#endif
