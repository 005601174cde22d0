/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Settings of an open database that may change while it works. They live as
 * long as the handle: each open chooses its own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "db/bell.h"
#include "db/db.h"

static int number(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
	char *end;
	unsigned long long v;

	/* no space or sign before it; what is too large is more than any setting takes */
	v = strtoull(text, &end, 10);
	if (*text < '0' || *end || v < least || v > most)
		return kv_error(-EINVAL, "MP0974", "%s: '%.40s' is not a number from %llu to %llu",
				name, text, (unsigned long long)least, (unsigned long long)most);
	*out = v;
	return 0;
}

static int set_interval(struct kvdb *db, const char *text)
{
	uint64_t v = KVDB_INTERVAL_NONE;
	int err = 0;

	if (strcmp(text, "none"))
		err = number("interval_ms", text, 1, KVDB_INTERVAL_NONE - 1, &v);
	if (err)
		return err;
	atomic_store(&db->d_mode.md_interval_ms, (uint32_t)v);
	return 0;
}

static int set_commit(struct kvdb *db, const char *text)
{
	uint64_t v;
	int err = number("commit", text, 0, 1, &v);

	if (err)
		return err;
	atomic_store(&db->d_mode.md_commit, v);
	return 0;
}

static int set_log_bytes(struct kvdb *db, const char *text)
{
	uint64_t v;
	/* what an open raises to is the least here, too: what a database has may be set */
	int err = number("log_bytes", text, db->d_budget.b_log_least, 1ull << 40, &v);

	if (err)
		return err;
	atomic_store(&db->d_budget.b_log_bytes, v);
	kv_work_kick(db);
	return 0;
}

int kvdb_set(struct kvdb *db, const char *name, const char *value)
{
	static const struct {
		const char *name;
		int (*set)(struct kvdb *db, const char *text);
	} known[] = {
		{ "interval_ms", set_interval },
		{ "commit", set_commit },
		{ "log_bytes", set_log_bytes },
	};
	unsigned i;
	int err;

	if (!name || !value)
		return kv_error(-EINVAL, "MP0974", "a setting has a name and a value");
	err = kv_may_change(db);
	for (i = 0; i < sizeof(known) / sizeof(known[0]) && !err; i++) {
		if (strcmp(known[i].name, name))
			continue;
		err = known[i].set(db, value);
		/*
		 * The gate of the open epoch was set by the old bound. After a sync every
		 * record belongs to an epoch that is durable or was born under the new one.
		 */
		return err ? err : kvdb_sync(db);
	}
	return err ? err : kv_error(-EINVAL, "MP0974",
				    "'%.40s' is no setting of an open database; these are: "
				    "interval_ms, commit, log_bytes", name);
}
