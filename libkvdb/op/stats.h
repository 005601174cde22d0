/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What is counted, see stats.c. */
#ifndef KV_STATS_H
#define KV_STATS_H

#include <stdint.h>

/* Processor time of this process. */
uint64_t kv_cpu_ns(void);

#endif
