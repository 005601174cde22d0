/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A store is filled to the last, half of it is deleted, and three quarters of what was deleted
 * is put again: without a restart, without growing, whatever the size of values, the policy and
 * the pool (R19). No delete is refused. The restart behind the fill must not matter.
 *
 * CASE=n runs one line of the table; TEST_LONG all of them. It belongs to the suite `stress' of the
 * nightly run; `make check' leaves it out.
 */
#include <limits.h>
#include <stdbool.h>

#include "../conform/kvdb_help.h"

#define KEYS_MAX	8000000u
#define TRIES		100u	/* drains that a put waits for, when there must be room */

struct line {
	uint32_t len;		/* of a value */
	uint32_t capacity, staging; /* MiB */
	uint32_t policy;
	bool is_long;
	bool in_order;		/* of keys, as they are put */
};

static const struct line lines[] = {
	{ 10, 64, 0, KVDB_POLICY_DEFAULT, false, false },
	{ 100, 64, 0, KVDB_POLICY_DEFAULT, false, false },
	{ 1000, 64, 0, KVDB_POLICY_DEFAULT, false, false },
	{ 4000, 64, 0, KVDB_POLICY_DEFAULT, false, false },
	{ 64 << 10, 64, 0, KVDB_POLICY_DEFAULT, false, false },
	{ 1 << 20, 64, 0, KVDB_POLICY_DEFAULT, false, false },
	{ 100, 64, 64, KVDB_POLICY_STAGING_ONLY, false, false },
	{ 100, 64, 64, KVDB_POLICY_CAPACITY_ONLY, false, false },
	{ 1000, 64, 64, KVDB_POLICY_STAGING_ONLY, false, false },
	{ 1000, 64, 64, KVDB_POLICY_STAGING_PREF, false, false },
	{ 1000, 64, 64, KVDB_POLICY_TIERED, false, false },
	{ 1000, 64, 64, KVDB_POLICY_CAPACITY_ONLY, false, false },
	{ 64 << 10, 64, 64, KVDB_POLICY_STAGING_ONLY, false, false },
	{ 64 << 10, 64, 64, KVDB_POLICY_CAPACITY_ONLY, false, false },
	{ 1000, 64, 256, KVDB_POLICY_CAPACITY_ONLY, false, false },
	{ 1000, 256, 64, KVDB_POLICY_STAGING_ONLY, false, false },
	{ 10, 64, 64, KVDB_POLICY_STAGING_ONLY, true, false },
	{ 10, 64, 64, KVDB_POLICY_CAPACITY_ONLY, true, false },
	{ 10, 256, 0, KVDB_POLICY_DEFAULT, true, false },
	{ 100, 512, 0, KVDB_POLICY_DEFAULT, true, false },
	{ 1000, 512, 0, KVDB_POLICY_DEFAULT, true, false },
	{ 4000, 512, 0, KVDB_POLICY_DEFAULT, true, false },
	{ 1 << 20, 512, 0, KVDB_POLICY_DEFAULT, true, false },
	{ 100, 256, 64, KVDB_POLICY_STAGING_ONLY, true, false },
	{ 100, 256, 64, KVDB_POLICY_TIERED, true, false },
	{ 100, 64, 256, KVDB_POLICY_CAPACITY_ONLY, true, false },
	{ 1000, 64, 256, KVDB_POLICY_STAGING_ONLY, true, false },
	{ 1000, 64, 256, KVDB_POLICY_STAGING_PREF, true, false },
	{ 1000, 64, 256, KVDB_POLICY_TIERED, true, false },
	{ 1000, 256, 64, KVDB_POLICY_CAPACITY_ONLY, true, false },
	{ 1000, 256, 256, KVDB_POLICY_TIERED, true, false },
	{ 4000, 64, 256, KVDB_POLICY_CAPACITY_ONLY, true, false },
	{ 1 << 20, 256, 256, KVDB_POLICY_CAPACITY_ONLY, true, false },
	{ 1 << 20, 256, 256, KVDB_POLICY_STAGING_ONLY, true, false },
	{ 100, 256, 0, KVDB_POLICY_DEFAULT, true, true },
	{ 100, 512, 0, KVDB_POLICY_DEFAULT, true, true },
};

static const struct line *line;
static struct kvdb_kvs *kvs;
static uint8_t value[1 << 20], got[1 << 20];

static size_t key_make(char *key, unsigned i)
{
	if (line->in_order)
		return (size_t)sprintf(key, "k%08u", i);
	/* spread in key order: what is deleted lies beside what stays */
	return (size_t)sprintf(key, "%08x-%u", i * 0x9e3779b9u, i);
}

static void value_make(unsigned i)
{
	uint64_t s = i;

	for (uint32_t at = 0; at < line->len; at += 8) {
		uint64_t x = t_rand(&s);

		memcpy(value + at, &x, line->len - at < 8 ? line->len - at : 8);
	}
}

static int put(unsigned i)
{
	char key[40];

	value_make(i);
	return kvdb_put(kvs, key, key_make(key, i), value, line->len);
}

static int drain(void)
{
	return kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);
}

static void open_store(void)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	int err;

	kh_open();
	o.policy = line->policy;
	err = kvdb_kvs_create(kh_db, "s", &o);
	T_OK(!err || err == -EEXIST);
	T_EQ(kvdb_kvs_open(kh_db, "s", &kvs), 0);
}

/* Full is a pool that takes nothing though nothing is left to do. */
static unsigned fill(void)
{
	unsigned i, at = UINT_MAX;
	int err;

	for (i = 0; i < KEYS_MAX; i++) {
		err = put(i);
		if (!err)
			continue;
		T_EQ(err, -ENOSPC);
		if (at != UINT_MAX && i - at <= i / 128)
			break;
		at = i;
		err = drain();
		T_OK(!err || err == -ENOSPC);
		i--;
	}
	T_OK(i < KEYS_MAX);
	return i;
}

static void check(unsigned n, bool half)
{
	unsigned step = n / 5000 + 1;
	char key[40];
	size_t len;

	for (unsigned i = 0; i < n; i += step) {
		int err = kvdb_get(kvs, key, key_make(key, i), got, sizeof(got), &len);

		if (half && i % 2 == 0) {
			T_EQ(err, -ENOENT);
			continue;
		}
		T_EQ(err, 0);
		value_make(i);
		T_OK(len == line->len && !memcmp(got, value, len));
	}
}

static void delete_half(unsigned n)
{
	char key[40];

	for (unsigned i = 0; i < n; i += 2)
		if (kvdb_del(kvs, key, key_make(key, i)))
			T_FAIL("delete %u of %u: %s", i, n, kvdb_error_detail()->text);
}

static void put_again(unsigned from, unsigned n)
{
	unsigned tries = 0;
	int err;

	for (unsigned i = 0; i < n; i++) {
		while ((err = put(from + i)) == -ENOSPC && tries < TRIES) {
			tries++;
			drain();
		}
		if (err)
			T_FAIL("put %u of %u, after %u drains: %d: %s", i, n, tries, err,
			       kvdb_error_detail()->text);
	}
}

static void what_is_deleted_can_be_put_again(void)
{
	unsigned n, more;

	kh_make(line->capacity * MIB, line->staging * MIB);
	open_store();
	n = fill();
	T_EQ(kvdb_sync(kh_db), 0);
	kh_close();
	open_store();
	check(n, false);
	delete_half(n);
	check(n, true);
	more = n / 2 / 4 * 3;
	put_again(n, more);
	check(n, true);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

int main(void)
{
	static const char *const policy[] = { "default", "staging_only", "staging_pref", "tiered",
					      "capacity_only" };
	const char *one = getenv("CASE");
	char name[200];

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		line = &lines[i];
		if (one ? (size_t)atoi(one) != i : line->is_long && !getenv("TEST_LONG"))
			continue;
		snprintf(name, sizeof(name), "what_is_deleted_can_be_put_again (%zu: %u bytes, "
			 "%s, %u + %u MiB)", i, line->len, policy[line->policy], line->capacity,
			 line->staging);
		t_run(name, what_is_deleted_can_be_put_again);
	}
	th_clean();
	return t_done();
}
