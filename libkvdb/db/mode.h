/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Which database it is, how it was opened, and what was found then. */
#ifndef KV_MODE_H
#define KV_MODE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#include "db/budget.h"

struct kv_ident {
	uint8_t id_uuid[16];
	uint64_t id_tag;		/* client tag of every object; its low half is fh_tag */
	uint32_t id_incarnation;
};

/* Constant while it is open, but for what kvdb_set() changes. */
struct kv_mode {
	uint32_t md_flags;		/* KVDB_* */
	_Atomic(uint32_t) md_interval_ms; /* this and the next: kvdb_set() */
	_Atomic(bool) md_commit;
	bool md_rdonly;
	bool md_at_ckpt;		/* open at a checkpoint: no logs are read */
	bool md_is_lossy;		/* repair reads it: goes on after damage */
	uint8_t md_log_class;		/* enum mpool_mclass of logs and runs */
	uint32_t md_view_max_age_ms;
};

struct kv_opened {
	struct kv_limits on_limits;
	struct kvdb_recovery on_recovery;
	uint64_t on_rollback;		/* kvdb_opts.rollback */
	uint64_t on_cpu_ns;		/* processor time of the process at the open */
	bool on_is_made;		/* by the open itself (KVDB_CREATE) */
	const char *on_ctl_path;	/* of the control socket, or NULL */
};

#endif
