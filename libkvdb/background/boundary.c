/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The boundary of a checkpoint or of a bulk load (C1): an epoch that no memtable spans, while
 * no other thread flushes.
 */
#include "base/assert.h"
#include "log/flush.h"
#include "meta/mdc.h"
#include "background/work.h"

void kv_flushes_lock(struct kvdb *db)
{
	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++)
		if (db->d_stores.sr_kvs[i])
			pthread_mutex_lock(&db->d_stores.sr_kvs[i]->k_flush_lock);
}

void kv_flushes_unlock(struct kvdb *db)
{
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++)
		if (db->d_stores.sr_kvs[i]) {
			KV_ASSERT_HELD(&db->d_stores.sr_kvs[i]->k_flush_lock);
			pthread_mutex_unlock(&db->d_stores.sr_kvs[i]->k_flush_lock);
		}
}

int kv_boundary_flush(struct kvdb *db, uint64_t upto)
{
	int r = 0;

	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	kv_flush_small(db, upto);
	for (uint32_t i = 0; i < KVDB_KVS_MAX && r >= 0; i++)
		for (r = !!db->d_stores.sr_kvs[i]; r > 0; )
			r = kv_flush_oldest(db, db->d_stores.sr_kvs[i], upto);
	return r < 0 ? r : 0;
}

/*
 * C1: an epoch at whose end all active memtables were switched or empty. The flusher may end
 * an epoch between the preparation of two stores; then the next one is tried.
 */
static int boundary_make(struct kvdb *db, uint64_t *e, uint64_t *seq)
{
	uint64_t from = atomic_load(&db->d_epochs.ep_open);
	int err = 0;

	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	KV_ASSERT_OUTSIDE();
	for (;;) {
		for (uint32_t i = 0; i < KVDB_KVS_MAX && !err; i++) {
			struct kvdb_kvs *kvs = db->d_stores.sr_kvs[i];

			if (kvs && !atomic_load(&kvs->k_next_mt))
				err = kv_switch_prepare(db, kvs);
		}
		if (!err)
			err = kv_epoch_force(db);
		pthread_mutex_lock(&db->d_epochs.ep_tick_lock);
		*e = atomic_load(&db->d_epochs.ep_boundary);
		*seq = atomic_load(&db->d_epochs.ep_boundary_seq);
		pthread_mutex_unlock(&db->d_epochs.ep_tick_lock);
		/* an empty epoch may have been ended meanwhile: then it is the boundary */
		if (!err && *e > atomic_load(&db->d_epochs.ep_durable))
			err = kv_wait_durable(db, *e);
		if (err || *e >= from)
			return err;
		/* a store may have had four memtables: none of them is newer than what comes */
		err = kv_boundary_flush(db, atomic_load(&db->d_epochs.ep_durable));
	}
}

int kv_boundary_enter(struct kvdb *db, uint64_t *e, uint64_t *seq)
{
	kv_flushes_lock(db);
	return boundary_make(db, e, seq);
}

void kv_boundary_leave(struct kvdb *db)
{
	KV_ASSERT_HELD(&db->d_mdc->m_ddl_lock);
	kv_flushes_unlock(db);
}
