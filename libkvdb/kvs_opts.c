/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Options of stores: what the caller may ask for, what the metadata container
 * keeps (a number and a value each), what may change while a store is in use.
 *
 * A store with an option of unknown number, or an unknown value of one, does not
 * open: a version that acts on it has written it.
 *
 * Lock: m_ddl_lock for changes; readers load k_prop[] without one.
 */
#include <errno.h>
#include <string.h>

#include "mdc.h"
#include "run.h"

/* By number: name in kvdb_kvs_opts, greatest value. */
static const struct {
	const char *name;
	uint64_t most;
} rule[KV_PROPS] = {
	[KV_PROP_PFX_LEN] = { "pfx_len", KVDB_KEY_MAX },
	[KV_PROP_TTL] = { "ttl_s", KVDB_TTL_MAX },
	[KV_PROP_POLICY] = { "policy", KVDB_POLICY_CAPACITY_ONLY },
	[KV_PROP_COMPRESS] = { "compress", KVDB_COMPRESS_ZSTD },
};

bool kv_props_are_default(const struct kv_props *p)
{
	for (unsigned i = 1; i < KV_PROPS; i++)
		if (p->pr_val[i])
			return false;
	return !p->pr_unknown;
}

bool kv_prop_is_known(uint32_t prop, uint64_t val)
{
	return prop && prop < KV_PROPS && val <= rule[prop].most;
}

int kv_props_check(const struct kv_props *p, const char *name)
{
	if (CHECK(480, !p->pr_unknown))
		return 0;
	return kv_error(-EOPNOTSUPP, "MP0935",
			"store %s: option %u, or the value it has, is not known here", name,
			p->pr_unknown);
}

static int unsane(const char *what, uint64_t val, uint64_t most)
{
	return kv_error(-EINVAL, "MP0951", "kvdb_kvs_opts.%s is %llu; the most is %llu", what,
			(unsigned long long)val, (unsigned long long)most);
}

int kv_props_take(const struct kvdb_kvs_opts *opts, uint32_t which, struct kv_props *p)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;

	memset(p, 0, sizeof(*p));
	if (opts && opts->size != sizeof(o))
		return kv_error(-EINVAL, "MP0951", "kvdb_kvs_opts.size is %zu, wanted %zu",
				opts->size, sizeof(o));
	if (opts)
		o = *opts;
	for (unsigned i = 0; i < sizeof(o.reserved) / sizeof(o.reserved[0]); i++)
		if (o.reserved[i] || o.pad)
			return kv_error(-EINVAL, "MP0951", "kvdb_kvs_opts has reserved fields set");
	p->pr_val[KV_PROP_PFX_LEN] = o.pfx_len;
	p->pr_val[KV_PROP_TTL] = o.ttl_s;
	p->pr_val[KV_PROP_POLICY] = o.policy;
	p->pr_val[KV_PROP_COMPRESS] = o.compress;
	for (unsigned i = 1; i < KV_PROPS; i++)
		if (which & KV_PROP_BIT(i) && p->pr_val[i] > rule[i].most)
			return unsane(rule[i].name, p->pr_val[i], rule[i].most);
	return 0;
}

int kvdb_kvs_info(struct kvdb_kvs *kvs, struct kvdb_kvs_info *out)
{
	struct kvdb_kvs_info in;
	struct kv_tree *tr;
	uint32_t i;

	memset(&in, 0, sizeof(in));
	pthread_mutex_lock(&kvs->k_db->d_kvs_lock);	/* not half of a rename */
	memcpy(in.name, kvs->k_name, sizeof(in.name));
	pthread_mutex_unlock(&kvs->k_db->d_kvs_lock);
	in.id = kvs->k_id;
	in.pfx_len = (uint32_t)atomic_load(&kvs->k_prop[KV_PROP_PFX_LEN]);
	in.policy = (uint32_t)atomic_load(&kvs->k_prop[KV_PROP_POLICY]);
	in.compress = (uint32_t)atomic_load(&kvs->k_prop[KV_PROP_COMPRESS]);
	in.ttl_s = atomic_load(&kvs->k_prop[KV_PROP_TTL]);
	tr = kv_tree_get(kvs);
	in.runs = tr->tr_nrun;
	in.memtables = tr->tr_nmt;
	for (i = 0; i < tr->tr_nmt; i++)
		in.keys_estimate += kv_mt_keys(tr->tr_mt[i]);
	for (i = 0; i < tr->tr_nrun; i++) {
		in.keys_estimate += kv_run_desc(tr->tr_run[i])->rd_keys;
		in.key_bytes += kv_run_bytes(tr->tr_run[i]);
	}
	for (i = 0; i < tr->tr_nmt; i++)
		in.range_tombs += kv_mt_tombs(tr->tr_mt[i]);
	for (i = 0; i < tr->tr_nrun; i++)
		in.range_tombs += tr->tr_run[i]->rn_tindex ? tr->tr_run[i]->rn_tindex->ti_n : 0;
	in.covered_keys = kv_tombs_garbage(tr->tr_run, tr->tr_nrun, tr->tr_nrun);
	kv_tree_put(kvs->k_db, tr);
	*out = in;
	return 0;
}

int kvdb_kvs_set(struct kvdb_kvs *kvs, const struct kvdb_kvs_opts *opts, unsigned mask)
{
	struct kvdb *db = kvs->k_db;
	struct kv_props p;
	uint32_t which = 0;
	int err;

	if (!opts || !mask || (mask & ~(KVDB_KVS_TTL | KVDB_KVS_POLICY | KVDB_KVS_COMPRESS)))
		return kv_error(-EINVAL, "MP0951", "%s: options %#x cannot be set", kvs->k_name,
				mask);
	which |= mask & KVDB_KVS_TTL ? KV_PROP_BIT(KV_PROP_TTL) : 0;
	which |= mask & KVDB_KVS_POLICY ? KV_PROP_BIT(KV_PROP_POLICY) : 0;
	which |= mask & KVDB_KVS_COMPRESS ? KV_PROP_BIT(KV_PROP_COMPRESS) : 0;
	err = kv_props_take(opts, which, &p);
	if (!err)
		err = kv_may_change(db);
	if (err)
		return err;
	pthread_mutex_lock(&db->d_mdc->m_ddl_lock);
	err = kv_change_sync(db);
	if (!err)
		err = kv_mdc_kvs_prop(db, kvs->k_id, &p, which);
	for (unsigned i = 1; i < KV_PROPS && !err; i++)
		if (which & KV_PROP_BIT(i))
			atomic_store(&kvs->k_prop[i], p.pr_val[i]);
	pthread_mutex_unlock(&db->d_mdc->m_ddl_lock);
	return err;
}
