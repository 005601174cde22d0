/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Where the data of a store belongs, in a pool with two media classes.
 *
 * Logs begin on staging whatever the store: they are shared. The policy says
 * where key blocks go and where a value goes when it moves. "Tight" is staging
 * above its budget: from there on what may leave it does, oldest first.
 *
 *  policy          keys      values that move
 *  staging_only    staging   staging, or they stay where they are
 *  staging_pref    staging   staging, capacity when staging is tight
 *  tiered          staging   capacity (the default)
 *  capacity_only   capacity  capacity, and soon
 *
 * No locks of its own: the policy is one word, read when it is needed.
 */
#include "db/policy.h"
#include "base/assert.h"
#include "db/db.h"

uint64_t kv_policy_of(const struct kvdb_kvs *kvs)
{
	uint64_t p = kvs ? atomic_load(&kvs->k_prop[KV_PROP_POLICY]) : KVDB_POLICY_DEFAULT;

	return p == KVDB_POLICY_DEFAULT ? KVDB_POLICY_TIERED : p;
}

uint8_t kv_policy_class(uint64_t policy, bool is_key, bool is_tight)
{
	KV_ASSERT(policy != KVDB_POLICY_DEFAULT);
	switch (policy) {
	case KVDB_POLICY_STAGING_ONLY:
		return MPOOL_STAGING;
	case KVDB_POLICY_STAGING_PREF:
		return is_key || !is_tight ? MPOOL_STAGING : MPOOL_CAPACITY;
	case KVDB_POLICY_CAPACITY_ONLY:
		return MPOOL_CAPACITY;
	default:
		return is_key ? MPOOL_STAGING : MPOOL_CAPACITY;
	}
}

uint8_t kv_policy_key_class(struct kvdb *db, const struct kvdb_kvs *kvs)
{
	if (db->d_mode.md_log_class == MPOOL_CAPACITY)
		return MPOOL_CAPACITY;
	return kv_policy_class(kv_policy_of(kvs), true, false);
}

uint8_t kv_policy_move_class(struct kvdb *db, const struct kvdb_kvs *kvs, bool is_tight)
{
	if (db->d_mode.md_log_class == MPOOL_CAPACITY)
		return MPOOL_CAPACITY;
	return kv_policy_class(kv_policy_of(kvs), false, is_tight);
}

bool kv_policy_is_strict(struct kvdb *db, const struct kvdb_kvs *kvs)
{
	uint64_t p = kv_policy_of(kvs);

	return db->d_mode.md_log_class != MPOOL_CAPACITY &&
	       (p == KVDB_POLICY_STAGING_ONLY || p == KVDB_POLICY_CAPACITY_ONLY);
}

bool kv_policy_bears_only_staging(const struct kvdb_kvs *kvs)
{
	return atomic_load_explicit(&kvs->k_prop[KV_PROP_POLICY], memory_order_relaxed) ==
	       KVDB_POLICY_STAGING_ONLY && kvs->k_db->d_mode.md_log_class == MPOOL_STAGING;
}

bool kv_policy_refuses(const struct kvdb_kvs *kvs, uint8_t mclass)
{
	return kv_policy_bears_only_staging(kvs) && mclass != MPOOL_STAGING;
}
