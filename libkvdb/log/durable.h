/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Waiting for what was acknowledged to become durable, see durable.c. */
#ifndef KV_DURABLE_H
#define KV_DURABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "db/db.h"

struct kv_callback;

struct kv_tickets {
	pthread_mutex_t td_lock;		/* callbacks of durability; a leaf */
	struct kv_callback *td_first, **td_tail;
	_Atomic(uint32_t) td_n;
};

/* Calls what waited for what is durable now; @all: everything, the database ends. */
void kv_durable_run(struct kvdb *db, bool all);
static inline bool kv_durable_has(struct kvdb *db)
{
	/* sequentially consistent, as the store of ep_durable before it: kvdb_on_durable() */
	return db->d_epochs.ep_tickets && atomic_load(&db->d_epochs.ep_tickets->td_n);
}

#endif
