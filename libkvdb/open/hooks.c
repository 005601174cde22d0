/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What rooms below call in rooms above. */
#include "compact/reloc.h"
#include "background/work.h"
#include "txn/txn.h"
#include "cq/cq.h"

const struct kv_hooks kv_hooks = {
	.ho_cqs_wake = kv_cqs_wake,
	.ho_txn_is_dead = kv_txn_is_dead,
	.ho_pressure = kv_pressure,
	.ho_space_take = kv_space_take,
	.ho_space_get = kv_space_get,
	.ho_staging_has_room = kv_staging_has_room,
	.ho_flusher_failed = kv_flusher_failed,
};
