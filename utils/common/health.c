/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What a member device was asked for, and what went wrong: its own words, checksums, repairs. */
#include <inttypes.h>
#include <stdio.h>

#include "health.h"

bool health_is_odd(const struct mpool_dev_info *d)
{
	return d->errors || d->csum_errors || d->repairs;
}

static void member_json(struct json *j, const char *key, const struct mpool_dev_info *d, uint64_t n)
{
	if (d->has_health)
		json_u64(j, key, n);
	else
		json_null(j, key);
}

void health_json(struct json *j, const struct mpool_dev_info *d)
{
	json_u64(j, "reads", d->reads);
	json_u64(j, "writes", d->writes);
	json_u64(j, "flushes", d->flushes);
	json_u64(j, "errors", d->errors);
	member_json(j, "csum_errors", d, d->csum_errors);
	member_json(j, "rereads", d, d->rereads);
	member_json(j, "repairs", d, d->repairs);
}

void health_text(const struct mpool_dev_info *d)
{
	printf("reads %" PRIu64 ", writes %" PRIu64 ", flushes %" PRIu64 ", errors %" PRIu64,
	       d->reads, d->writes, d->flushes, d->errors);
	if (d->has_health)
		printf(", checksum errors %" PRIu64 ", good when read again %" PRIu64 ", repaired %"
		       PRIu64, d->csum_errors, d->rereads, d->repairs);
}
