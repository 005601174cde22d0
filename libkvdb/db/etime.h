/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Engine time, the clock by which records expire (R18). */
#ifndef KV_ETIME_H
#define KV_ETIME_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

struct kvdb;

struct kv_etime {
	struct kvdb_clock et_clock;
	bool et_is_system;			/* no other was injected */
	uint64_t et_base, et_start;		/* ms and ns, at open */
	_Atomic(uint64_t) et_ahead;		/* ms: of these the wall clock was, at most */
	_Atomic(bool) et_used;			/* something expires: the time is recorded */
	_Atomic(bool) et_is_kept;		/* it is recorded on media */
	_Atomic(uint64_t) et_due;		/* ms: when it is, even by an idle database */
};

/* At open; @last: the time that was recorded. -ETIME when the wall clock jumped ahead of it. */
int kv_time_start(struct kvdb *db, uint64_t last);
uint64_t kv_time_ms(struct kvdb *db);
/* The same for a view that has its number: 0 while nothing in the database expires. */
uint64_t kv_time_of_view(struct kvdb *db);
/* When something expires that is put now. */
uint64_t kv_expiry(struct kvdb *db, uint64_t ttl_s);

#endif
