/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Where the data of a store belongs, see policy.c. No locks: the policy is one word. */
#ifndef KV_POLICY_H
#define KV_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct kvdb;
struct kvdb_kvs;

/* enum kvdb_policy of a store (NULL: any), not the default. */
uint64_t kv_policy_of(const struct kvdb_kvs *kvs);
/* @policy: enum kvdb_policy, not the default. Pure. */
uint8_t kv_policy_class(uint64_t policy, bool is_key, bool is_tight);
/* Where key blocks of the store go (NULL: any store); where its values move. */
uint8_t kv_policy_key_class(struct kvdb *db, const struct kvdb_kvs *kvs);
uint8_t kv_policy_move_class(struct kvdb *db, const struct kvdb_kvs *kvs, bool is_tight);
/* Values may be in no other class for long. */
bool kv_policy_is_strict(struct kvdb *db, const struct kvdb_kvs *kvs);
/* No value of the store may be logged elsewhere than on staging, which there is; */
bool kv_policy_bears_only_staging(const struct kvdb_kvs *kvs);
/* so not on @mclass. */
bool kv_policy_refuses(const struct kvdb_kvs *kvs, uint8_t mclass);

#endif
