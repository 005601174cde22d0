/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Options of stores: what the caller may ask for, and what the metadata container
 * keeps: a number and a value each.
 *
 * A store with an option of unknown number, or an unknown value of one, does not
 * open: a version that acts on it has written it.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/guard.h"
#include "db/props.h"

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
	if (CHECK(!p->pr_unknown))
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
