/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Tickets: waiting for what was acknowledged to become durable, or being told.
 * A ticket is the number of an epoch.
 *
 * Callbacks run in the thread that made the epoch durable, without locks. One
 * that comes too late for its epoch is called at once, by its own thread.
 * Lock: td_lock, a leaf.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "log/durable.h"
#include "base/assert.h"
#include "base/error.h"
#include "log/flush.h"

struct kv_callback {
	struct kv_callback *cb_next;
	uint64_t cb_epoch;
	void (*cb_fn)(void *arg, int err);
	void *cb_arg;
};

uint64_t kvdb_ticket(struct kvdb *db)
{
	return db->d_logs ? kv_sync_epoch(db) : atomic_load(&db->d_epochs.ep_open) - 1;
}

static int check(struct kvdb *db, uint64_t ticket)
{
	/* open for reading only: no epoch ends */
	if (ticket <= atomic_load(db->d_mode.md_rdonly ? &db->d_epochs.ep_durable :
						&db->d_epochs.ep_open))
		return 0;
	return kv_error(-EINVAL, "MP0928", "%llu is no ticket of this database",
			(unsigned long long)ticket);
}

static int not_durable(struct kvdb *db)
{
	return kv_error(-EIO, "MP0905", "not durable: %s", db->d_fault.fa_text);
}

int kvdb_wait_durable(struct kvdb *db, uint64_t ticket)
{
	int err = check(db, ticket);

	if (err || atomic_load(&db->d_epochs.ep_durable) >= ticket)
		return err;
	err = kv_wait_durable(db, ticket);
	return err ? not_durable(db) : 0;
}

int kvdb_sync_start(struct kvdb *db, uint64_t *ticket)
{
	uint64_t t = kvdb_ticket(db);

	if (!ticket)
		return kv_error(-EINVAL, "MP0951", "no place for the ticket");
	if (kv_fault(db))
		return not_durable(db);
	*ticket = t;
	if (db->d_mode.md_rdonly)
		return 0;
	atomic_fetch_add(&db->d_count.syncs, 1);
	kv_want_durable(db, t);
	return 0;
}

int kvdb_durable_within(struct kvdb *db, uint64_t ticket, uint32_t ms)
{
	struct timespec until;
	int err = check(db, ticket);

	if (err)
		return err;
	if (atomic_load(&db->d_epochs.ep_durable) >= ticket)
		return 1;
	if (ms) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec += ms / 1000;
		until.tv_nsec += (long)(ms % 1000) * 1000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		err = kv_wait_durable_until(db, ticket, &until);
	} else {
		err = kv_fault(db) && atomic_load(&db->d_epochs.ep_durable) < ticket ? -EIO : 0;
		err = err || atomic_load(&db->d_epochs.ep_durable) >= ticket ? err : -ETIMEDOUT;
	}
	return !err ? 1 : err == -ETIMEDOUT ? 0 : not_durable(db);
}

void kv_durable_run(struct kvdb *db, bool all)
{
	struct kv_tickets *td = db->d_epochs.ep_tickets;
	struct kv_callback *due = NULL, **tail = &due, **pp, *cb;
	/* before the epoch: what was durable at the fault stays so (E5) */
	bool failed = kv_fault(db);
	uint64_t durable = atomic_load(&db->d_epochs.ep_durable);

	KV_ASSERT_OUTSIDE();
	if (db->d_flusher)
		KV_ASSERT_FREE(&db->d_flusher->fl_io_lock);
	pthread_mutex_lock(&td->td_lock);
	for (pp = &td->td_first; (cb = *pp); ) {
		if (!all && !failed && cb->cb_epoch > durable) {
			pp = &cb->cb_next;
			continue;
		}
		*pp = cb->cb_next;
		*tail = cb;
		tail = &cb->cb_next;
		cb->cb_next = NULL;
		atomic_fetch_sub(&td->td_n, 1);
	}
	td->td_tail = pp;
	pthread_mutex_unlock(&td->td_lock);
	while ((cb = due)) {
		due = cb->cb_next;
		cb->cb_fn(cb->cb_arg, cb->cb_epoch <= durable ? 0 : -EIO);
		free(cb);
	}
}

int kvdb_on_durable(struct kvdb *db, uint64_t ticket, void (*fn)(void *arg, int err), void *arg)
{
	struct kv_callback *cb;
	int err = check(db, ticket);

	if (!err && !fn)
		err = kv_error(-EINVAL, "MP0951", "no function to call");
	if (err)
		return err;
	cb = malloc(sizeof(*cb));
	if (!cb)
		return kv_error(-ENOMEM, "MP0902", "no memory for a callback");
	*cb = (struct kv_callback){ .cb_epoch = ticket, .cb_fn = fn, .cb_arg = arg };
	pthread_mutex_lock(&db->d_epochs.ep_tickets->td_lock);
	*db->d_epochs.ep_tickets->td_tail = cb;
	db->d_epochs.ep_tickets->td_tail = &cb->cb_next;
	atomic_fetch_add(&db->d_epochs.ep_tickets->td_n, 1);
	pthread_mutex_unlock(&db->d_epochs.ep_tickets->td_lock);
	/* a thread that moved the durable epoch before it was in the list did not see it */
	if (atomic_load(&db->d_epochs.ep_durable) >= ticket || kv_fault(db))
		kv_durable_run(db, false);
	return 0;
}
