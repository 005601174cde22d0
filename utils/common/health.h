/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What a member device was caught at, as the verbs that list devices show it. */
#ifndef UTILS_HEALTH_H
#define UTILS_HEALTH_H

#include <stdbool.h>

#include <mpool/mpool.h>

#include "json.h"

/* failed requests, failed checksums or repairs: shown unasked */
bool health_is_odd(const struct mpool_dev_info *d);
/* members reads to errors; csum_errors, rereads, repairs: null where the kernel module counts */
void health_json(struct json *j, const struct mpool_dev_info *d);
/* the same, without newline */
void health_text(const struct mpool_dev_info *d);

#endif
