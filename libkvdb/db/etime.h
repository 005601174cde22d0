/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Engine time, the clock by which records expire (R18). */
#ifndef KV_ETIME_H
#define KV_ETIME_H

#include <stdint.h>

struct kvdb;

/* At open; @last: the time that was recorded. -ETIME when the wall clock jumped ahead of it. */
int kv_time_start(struct kvdb *db, uint64_t last);
uint64_t kv_time_ms(struct kvdb *db);
/* When something expires that is put now. */
uint64_t kv_expiry(struct kvdb *db, uint64_t ttl_s);

#endif
