/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Options of stores, see kvs_opts.c. */
#ifndef KV_PROPS_H
#define KV_PROPS_H

#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

/* Their numbers on media. */
enum kv_prop {
	KV_PROP_PFX_LEN = 1,
	KV_PROP_TTL = 2,	/* seconds */
	KV_PROP_POLICY = 3,	/* enum kvdb_policy */
	KV_PROP_COMPRESS = 4,	/* enum kvdb_compress */
	KV_PROPS
};
#define KV_PROP_BIT(p)	(1u << (p))
#define KV_PROP_ALL	(KV_PROP_BIT(KV_PROPS) - 2u)

struct kv_props {
	uint64_t pr_val[KV_PROPS];	/* by number; 0 = default */
	uint32_t pr_unknown;		/* number of one that is not known here; 0 = none */
};
bool kv_props_are_default(const struct kv_props *p);
bool kv_prop_is_known(uint32_t prop, uint64_t val);
/* -EINVAL, -EOPNOTSUPP; @opts NULL: defaults. @which: bits of those that are looked at. */
int kv_props_take(const struct kvdb_kvs_opts *opts, uint32_t which, struct kv_props *p);
/* -EOPNOTSUPP when an option of the store is not known here. */
int kv_props_check(const struct kv_props *p, const char *name);

#endif
