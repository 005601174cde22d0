/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the control groups of this process leave it of the machine. */
#ifndef KV_CGROUP_H
#define KV_CGROUP_H

#include <stdint.h>

struct kv_cgroup {
	uint64_t g_memory;	/* bytes; UINT64_MAX: no limit */
	uint64_t g_cores;	/* rounded up, at least 1; UINT64_MAX: no quota */
};

/* The smallest limits from the group of this process up. */
void kv_cgroup_own(struct kv_cgroup *out);
/* The same; @root: "", or where a test has its /proc. */
void kv_cgroup_read(const char *root, struct kv_cgroup *out);

#endif
