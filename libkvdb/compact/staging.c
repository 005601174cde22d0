/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * How full the staging class is with values: from where on they leave it, how far writers are
 * slowed for that, and when logs go elsewhere. These are thresholds only: reloc.c begins a job,
 * choose.c chooses its segments, and move.c moves the values.
 */
#include <math.h>

#include "db/db.h"
#include "db/policy.h"
#include "compact/reloc.h"

#define ROOM_PARTS	16u	/* the part of staging for values, in parts of: */
#define FILLING_NUM	4u	/* parts from which on runs that refer to staging stay apart */
#define TIGHT_NUM	9u	/* parts from which on the oldest values leave, */
#define LEAVE_MAX	2u	/* one part beyond the excess, at most these parts a job */
#define LEAST_RATE	2u	/* full staging permits half the rate: capacity has room */
#define FLUSH_PART	16u	/* a memtable takes no more: unflushed values cannot leave */

/*
 * Bytes of staging that are for values, of which @values are there: not what keys take,
 * nor an eighth, or more if it is taken, for merges and for what is deleted and not free
 * yet. If that leaves less than a quarter, keys go to the other class.
 */
static uint64_t value_room(struct kvdb *db, uint64_t values)
{
	uint64_t taken = kv_reloc_run_bytes(db), total, used;
	struct mpool_info pi;

	if (mpool_info(db->d_mp, &pi))
		return 0;
	total = pi.cls[MPOOL_STAGING].total;
	used = pi.cls[MPOOL_STAGING].used;
	taken += total / 8;
	if (used > values && used - values > taken)
		taken = used - values;
	return taken < total - total / 4 ? total - taken : total / 4;
}

uint64_t kv_staging_flush_share(struct kvdb *db)
{
	uint64_t share;

	if (db->d_mode.md_log_class == MPOOL_CAPACITY)
		return UINT64_MAX;
	share = value_room(db, UINT64_MAX) / FLUSH_PART;
	return share > db->d_budget.b_seg_bytes ? share : db->d_budget.b_seg_bytes;
}

bool kv_staging_is_filling(struct kvdb *db, uint64_t values)
{
	return values > value_room(db, values) / ROOM_PARTS * FILLING_NUM;
}

uint64_t kv_staging_excess(struct kvdb *db, uint64_t values)
{
	uint64_t part = value_room(db, values) / ROOM_PARTS, tight = part * TIGHT_NUM;

	if (values <= tight)
		return 0;
	values -= tight - part;
	return values < part * LEAVE_MAX ? values : part * LEAVE_MAX;
}

uint32_t kv_staged_debt(uint64_t values, uint64_t room, uint64_t rate)
{
	uint64_t tight = room / ROOM_PARTS * TIGHT_NUM;
	double permit = (double)rate / LEAST_RATE;

	if (values <= tight || !rate)
		return 0;
	if (values < room)
		permit = fmax(permit, (double)rate * (double)(room - values) /
				      (double)(values - tight));
	return kv_throttle_debt(permit);
}

uint32_t kv_staging_debt(struct kvdb *db, uint64_t values, uint64_t rate)
{
	return kv_staged_debt(values, value_room(db, values), rate);
}

static bool has_staging_only(struct kvdb *db)
{
	bool has = false;

	for (uint32_t i = 0; i < KVDB_KVS_MAX && !has; i++) {
		struct kvdb_kvs *kvs = kv_kvs_hold(db, i);

		if (!kvs)
			continue;
		has = kv_policy_of(kvs) == KVDB_POLICY_STAGING_ONLY;
		kv_kvs_release(kvs);
	}
	return has;
}

bool kv_staging_has_room(struct kvdb *db, uint64_t values)
{
	/* G8: a staging_only store would fail although capacity has room */
	return values <= value_room(db, values) || has_staging_only(db);
}
