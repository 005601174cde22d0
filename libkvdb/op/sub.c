/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Sub-stores: names for numbers in front of keys. What is kept of them are keys of the store
 * itself: the names, behind the number 0, and under 0 alone the number that the last one got. A
 * number is given once, so nothing that was written late meets the keys of another.
 *
 * SUB1: what belongs together is written in one batch, under k_sub_lock.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/guard.h"
#include "db/db.h"

struct sub_key {
	uint8_t sk_key[KVDB_KEY_MAX];
	size_t sk_len;
};

static void number_set(uint8_t p[KVDB_SUB_LEN], uint32_t n)
{
	n = htobe32(n);
	memcpy(p, &n, KVDB_SUB_LEN);
}

static uint32_t number_get(const uint8_t p[KVDB_SUB_LEN])
{
	uint32_t n;

	memcpy(&n, p, KVDB_SUB_LEN);
	return be32toh(n);
}

static int key_of(struct kvdb_kvs *kvs, const void *name, size_t nlen, struct sub_key *out)
{
	if (kvs->k_prop[KV_PROP_PFX_LEN] != KVDB_SUB_LEN)
		return kv_error(-EINVAL, "MP0957", "store %s: its pfx_len is not %u", kvs->k_name,
				KVDB_SUB_LEN);
	if (!name || !nlen)
		return kv_error(-EINVAL, "MP0951", "%s: a sub-store without a name", kvs->k_name);
	if (nlen > KVDB_SUB_NAME_MAX)
		return kv_error(-ENAMETOOLONG, "MP0911", "a sub-store's name of %zu bytes; the "
				"most is %u", nlen, KVDB_SUB_NAME_MAX);
	memcpy(out->sk_key, KVDB_SUB_NAMES, KVDB_SUB_LEN);
	memcpy(out->sk_key + KVDB_SUB_LEN, name, nlen);
	out->sk_len = KVDB_SUB_LEN + nlen;
	return 0;
}

/* The number that a key of the list has as its value; -ENOENT: there is no such key. */
static int number_read(struct kvdb_kvs *kvs, const uint8_t *key, size_t klen, uint32_t *out)
{
	uint8_t val[KVDB_SUB_LEN];
	size_t vlen;
	int rc = kvdb_get(kvs, key, klen, val, sizeof(val), &vlen);

	if (!rc && vlen != sizeof(val))
		rc = kv_error(-EINVAL, "MP0957", "store %s holds keys of another kind: one that "
			      "begins with the number 0 has %zu bytes", kvs->k_name, vlen);
	if (!rc)
		*out = number_get(val);
	return rc;
}

static int name_read(struct kvdb_kvs *kvs, const struct sub_key *k, uint32_t *out)
{
	int rc = number_read(kvs, k->sk_key, k->sk_len, out);

	if (rc == -ENOENT)
		return kv_error(rc, "MP0958", "store %s has no sub-store of that name",
				kvs->k_name);
	if (!rc && (!*out || *out == UINT32_MAX))
		return kv_error(-EINVAL, "MP0957", "store %s: a name has the number %u",
				kvs->k_name, *out);
	return rc;
}

/* The count is gone: a repair could not bring it over. The greatest number of a name or key. */
static int count_again(struct kvdb_kvs *kvs, uint32_t *out)
{
	struct kvdb_cursor *cur;
	const void *key, *val;
	size_t klen, vlen;
	uint32_t most = 0;
	int rc = kvdb_cursor_open(kvs, KVDB_REVERSE | KVDB_KEYS_ONLY, NULL, 0, &cur);

	if (rc)
		return rc;
	rc = kvdb_cursor_next(cur, &key, &klen, NULL, NULL);
	if (!rc && klen >= KVDB_SUB_LEN)
		most = number_get(key);
	kvdb_cursor_close(cur);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = kvdb_cursor_open(kvs, 0, KVDB_SUB_NAMES, KVDB_SUB_LEN, &cur);
	if (rc)
		return rc;
	while (!(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen)))
		if (vlen == KVDB_SUB_LEN && number_get(val) > most)
			most = number_get(val);
	kvdb_cursor_close(cur);
	*out = most;
	return rc == -ENOENT ? 0 : rc;
}

/* k_sub_lock held */
static int sub_make(struct kvdb_kvs *kvs, const struct sub_key *k, uint32_t *out)
{
	uint8_t number[KVDB_SUB_LEN];
	struct kvdb_op op[2] = {
		{ .kvs = kvs, .type = KVDB_OP_PUT, .key = KVDB_SUB_NAMES, .klen = KVDB_SUB_LEN,
		  .val = number, .size = sizeof(number) },
		{ .kvs = kvs, .type = KVDB_OP_PUT, .key = k->sk_key, .klen = k->sk_len,
		  .val = number, .size = sizeof(number) },
	};
	uint32_t last = 0;
	int rc = number_read(kvs, op[0].key, op[0].klen, &last);

	if (rc == -ENOENT)
		rc = count_again(kvs, &last);
	if (rc)
		return rc;
	if (atomic_load(&kvs->k_prop[KV_PROP_TTL]))
		return kv_error(-EINVAL, "MP0957", "store %s has a time to live, which would count "
				"for the names, too", kvs->k_name);
	if (last >= UINT32_MAX - 1)
		return kv_error(-EDQUOT, "MP0959", "store %s: all numbers of sub-stores were given",
				kvs->k_name);
	number_set(number, last + 1);
	rc = kvdb_write(kvs->k_db, op, 2, 0, NULL);
	if (!rc)
		*out = last + 1;
	return rc;
}

int kvdb_sub_open(struct kvdb_kvs *kvs, const void *name, size_t nlen, unsigned flags,
		  uint8_t prefix[KVDB_SUB_LEN])
{
	struct sub_key k;
	uint32_t n = 0;
	int rc = flags & ~KVDB_SUB_CREATE ?
		 kv_error(-EINVAL, "MP0951", "%s: flags %#x of a sub-store", kvs->k_name, flags) :
		 key_of(kvs, name, nlen, &k);

	if (!rc)
		rc = name_read(kvs, &k, &n);
	if (rc == -ENOENT && flags) {
		pthread_mutex_lock(&kvs->k_sub_lock);
		rc = name_read(kvs, &k, &n);
		if (rc == -ENOENT)
			rc = sub_make(kvs, &k, &n);
		pthread_mutex_unlock(&kvs->k_sub_lock);
	}
	if (!rc)
		number_set(prefix, n);
	return rc;
}

int kvdb_sub_drop(struct kvdb_kvs *kvs, const void *name, size_t nlen)
{
	uint8_t from[KVDB_SUB_LEN], to[KVDB_SUB_LEN];
	struct sub_key k;
	struct kvdb_op op[2] = {
		{ .kvs = kvs, .type = KVDB_OP_RANGE_DEL, .key = from, .klen = sizeof(from),
		  .val = to, .size = sizeof(to) },
		{ .kvs = kvs, .type = KVDB_OP_DEL, .key = k.sk_key },
	};
	uint32_t n;
	int rc = key_of(kvs, name, nlen, &k);

	if (rc)
		return rc;
	op[1].klen = k.sk_len;
	pthread_mutex_lock(&kvs->k_sub_lock);
	rc = name_read(kvs, &k, &n);
	if (!rc) {
		number_set(from, n);
		number_set(to, n + 1);
		rc = kvdb_write(kvs->k_db, op, 2, 0, NULL);
	}
	pthread_mutex_unlock(&kvs->k_sub_lock);
	return rc;
}
