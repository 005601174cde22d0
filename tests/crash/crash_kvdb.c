/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Crash enumeration of databases: workloads, every crash point, oracle in
 * kv_check.c. The database runs without threads on a virtual clock, so a run
 * follows from SEED alone. Arguments choose workloads.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "kv_model.h"

#define KiB	(1ull << 10)
#define MiB	(1ull << 20)
#define SEC	1000000000ull

static int create_again(struct eng *e)
{
	struct km *m = km_new(e->e_rand);
	struct km_rt rt;
	int rc;

	rc = km_create(e, m) || km_open(e, m, &rt) || km_first_stores(e, m, &rt) ||
	     km_steps(e, m, &rt, 5) || km_close(e, m, &rt) ? -1 : 0;
	free(m);
	return rc;
}

/*
 * The clock at the open is behind what was recorded, right, or ahead. It is not behind the
 * last open unless that was recorded: what had expired by then may come back, and m_base has it
 * no more.
 */
static void reboot(struct eng *e, const struct km *m, unsigned at, uint64_t latest_ns)
{
	uint64_t seed = sim_mix(e->e_rand, at), ns = latest_ns;

	km_clock_reset(e, e->e_rand);
	if (!km_conf_of(e)->kc_expires)
		return;
	switch (sim_rand(&seed) % 3) {
	case 0:
		ns = sim_rand(&seed) % latest_ns;
		break;
	case 1:
		ns += sim_rand(&seed) % (6 * SEC);
		break;
	}
	if (ns < m->m_born_ns && km_recorded(m, at) < m->m_born_ns)
		ns = m->m_born_ns;
	km_clock_set(ns);
}

static int judge_once(struct eng *e, const struct km *m, unsigned at, uint64_t latest_ns,
		      bool post)
{
	struct km *next = post ? km_new(e->e_rand) : NULL;
	struct km_rt rt;
	int rc;

	reboot(e, m, at, latest_ns);
	/* checkpoints are looked at when the database is closed again */
	if (!next && m->m_nckpt)
		next = km_new(e->e_rand);
	rc = km_judge(e, m, at, latest_ns, &rt, next);
	if (!rc && !rt.rt_db) {
		rc = create_again(e);
	} else if (!rc && post) {
		rc = km_steps(e, next, &rt, 24) || km_close(e, next, &rt) ? -1 : 0;
		latest_ns = km_latest(next, KM_END);
		reboot(e, next, KM_END, latest_ns);
		if (!rc)
			rc = km_judge(e, next, KM_END, latest_ns, &rt, NULL);
		if (!rc)
			rc = kvdb_close(rt.rt_db) || km_ckpt_judge(e, next) ? -1 : 0;
	} else if (rt.rt_db) {
		int err = kvdb_close(rt.rt_db);

		if (!rc && err)
			rc = eng_fail(e, "kvdb_close: %d", err);
		if (!rc && next)
			rc = km_ckpt_judge(e, next);
	}
	e->e_sim.s_tick = NULL;
	free(next);
	return rc;
}

static int kv_check(struct eng *e, void *model, unsigned at, bool post)
{
	const struct km *m = model;
	uint64_t latest_ns = km_latest(m, at);

	/* the open that was cut may have recorded the time */
	if (m->m_prev && at < m->m_opened)
		return judge_once(e, m->m_prev, m->m_prev_at, latest_ns, post);
	return judge_once(e, m, at, latest_ns, post);
}

static int kv_again(struct eng *e, void *model, unsigned at, void **out)
{
	uint64_t latest_ns = km_latest(model, at);
	struct km *next = km_new(e->e_rand);
	struct km_rt rt;
	int rc;

	*out = next;
	reboot(e, model, at, latest_ns);
	rc = km_judge(e, model, at, latest_ns, &rt, next);
	next->m_prev = model;
	next->m_prev_at = at;
	if (!rc && !rt.rt_db) {
		next->m_opened = KM_NEVER;
		return 0;
	}
	if (!rc) {
		eng_opened(e);
		next->m_opened = e->e_opened;
		rc = km_steps(e, next, &rt, 14);
	}
	if (rt.rt_db)
		rc |= km_close(e, next, &rt);
	return rc;
}

#define KV_WL(nm, two, ...) {								\
	.w_ops = { .eo_name = nm, .eo_is_two_devs = two, .eo_record = km_record,		\
		   .eo_check = kv_check, .eo_again = kv_again, .eo_free = free,		\
		   .eo_share = 2 },							\
	.w_conf = { .kc_name = nm, .kc_devs = (two) ? 2 : 1, .kc_segment_bytes = 64 * KiB,	\
		    __VA_ARGS__ },							\
}

#define KV_BOUND(nm, ms)								\
	KV_WL(nm, false, .kc_bytes = { 24 * MiB }, .kc_steps = 400, .kc_stores = 2,		\
	      .kc_keys = 40, .kc_stall = 20, .kc_logs = 2, .kc_log_bytes = 1 * MiB,		\
	      .kc_interval_ms = (ms), .kc_slow = true,					\
	      .kc_weight = { [KM_PUT] = 40, [KM_BIG] = 2, [KM_DEL] = 6, [KM_MANY] = 2,		\
			     [KM_STOP] = 2, [KM_POLL] = 3, [KM_IDLE] = 1, [KM_FLUSH] = 1 })

static const struct km_wl workload[] = {
	KV_WL("values", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 400, .kc_stores = 1,
	      .kc_keys = 60, .kc_stall = 40, .kc_logs = 2, .kc_log_bytes = 1 * MiB,
	      .kc_weight = { [KM_PUT] = 24, [KM_BIG] = 3, [KM_DEL] = 5, [KM_MANY] = 1, [KM_GET] = 3,
			     [KM_SYNC] = 2, [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 1 }),
	KV_WL("stores", false, .kc_bytes = { 32 * MiB }, .kc_steps = 350, .kc_stores = 4,
	      .kc_keys = 20, .kc_has_idle = true, .kc_logs = 3,
	      .kc_log_bytes = 1 * MiB,
	      .kc_weight = { [KM_PUT] = 30, [KM_BIG] = 1, [KM_DEL] = 6, [KM_MANY] = 3, [KM_GET] = 2,
			     [KM_SYNC] = 2, [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 2,
			     [KM_REOPEN] = 1 }),
	KV_WL("compact", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 260, .kc_stores = 2,
	      .kc_keys = 50, .kc_logs = 2, .kc_log_bytes = 1 * MiB,
	      .kc_weight = { [KM_PUT] = 24, [KM_BIG] = 2, [KM_DEL] = 8, [KM_MANY] = 5, [KM_GET] = 2,
			     [KM_SYNC] = 1, [KM_POLL] = 4, [KM_IDLE] = 2, [KM_FLUSH] = 8,
			     [KM_COMPACT] = 4 }),
	KV_WL("segments", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 300,
	      .kc_stores = 1, .kc_keys = 14, .kc_logs = 1, .kc_log_bytes = 512 * KiB,
	      .kc_weight = { [KM_PUT] = 6, [KM_BIG] = 16, [KM_DEL] = 3, [KM_GET] = 2,
			     [KM_SYNC] = 2, [KM_POLL] = 8, [KM_IDLE] = 3, [KM_FLUSH] = 1,
			     [KM_COMPACT] = 1 }),
	/* a few keys make a leaf: splits, spills and joins in every history */
	KV_WL("leaves", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 300, .kc_stores = 2,
	      .kc_keys = 80, .kc_logs = 2, .kc_log_bytes = 1 * MiB, .kc_leaf_keys = 12,
	      .kc_weight = { [KM_PUT] = 30, [KM_DEL] = 8, [KM_MANY] = 4, [KM_GET] = 3,
			     [KM_SYNC] = 1, [KM_POLL] = 4, [KM_IDLE] = 2, [KM_FLUSH] = 9,
			     [KM_COMPACT] = 3, [KM_MERGES] = 4, [KM_CKPT] = 1, [KM_UNCKPT] = 1,
			     [KM_BULK] = 1, [KM_REOPEN] = 1 }),
	/* values that share segments, overwritten and compacted all the time: they move */
	KV_WL("relocate", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 420,
	      .kc_stores = 2, .kc_keys = 70, .kc_logs = 1, .kc_log_bytes = 512 * KiB,
	      .kc_moves = true, .kc_leaf_keys = 20,
	      .kc_weight = { [KM_PUT] = 60, [KM_DEL] = 2, [KM_GET] = 4, [KM_SYNC] = 1,
			     [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 2, [KM_COMPACT] = 10,
			     [KM_REOPEN] = 1 }),
	/* stores of every policy on a staging class that is soon tight */
	KV_WL("policies", true, .kc_bytes = { 24 * MiB, 5 * MiB }, .kc_steps = 420,
	      .kc_stores = 4, .kc_keys = 70, .kc_logs = 1, .kc_log_bytes = 512 * KiB,
	      .kc_moves = true, .kc_policies = true,
	      .kc_weight = { [KM_PUT] = 60, [KM_DEL] = 2, [KM_GET] = 4, [KM_SYNC] = 1,
			     [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 2, [KM_COMPACT] = 10,
			     [KM_REOPEN] = 1 }),
	KV_WL("commit", false, .kc_bytes = { 24 * MiB }, .kc_steps = 200, .kc_stores = 2,
	      .kc_keys = 30, .kc_commit = 1, .kc_logs = 4, .kc_log_bytes = 1 * MiB,
	      .kc_weight = { [KM_PUT] = 20, [KM_BIG] = 1, [KM_DEL] = 6, [KM_MANY] = 3, [KM_GET] = 2,
			     [KM_POLL] = 4, [KM_IDLE] = 1, [KM_FLUSH] = 1, [KM_REOPEN] = 1 }),
	KV_WL("lifecycle", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 140,
	      .kc_stores = 2, .kc_keys = 20, .kc_is_create = true, .kc_logs = 2,
	      .kc_log_bytes = 1 * MiB,
	      .kc_weight = { [KM_PUT] = 16, [KM_BIG] = 1, [KM_DEL] = 3, [KM_SYNC] = 2,
			     [KM_POLL] = 3, [KM_IDLE] = 1, [KM_FLUSH] = 2, [KM_CREATE] = 5,
			     [KM_DROP] = 4, [KM_REOPEN] = 1 }),
	/* every open makes what it does not find */
	KV_WL("birth", false, .kc_bytes = { 32 * MiB }, .kc_steps = 30, .kc_stores = 2,
	      .kc_keys = 20, .kc_is_create = true, .kc_is_made = true, .kc_size_max = 32 * MiB,
	      .kc_logs = 2, .kc_log_bytes = 1 * MiB,
	      .kc_weight = { [KM_PUT] = 16, [KM_BIG] = 1, [KM_DEL] = 3, [KM_SYNC] = 2,
			     [KM_POLL] = 3, [KM_IDLE] = 1, [KM_FLUSH] = 1, [KM_REOPEN] = 1 }),
	/* a pool that is too small for what comes, and grows */
	KV_WL("growth", true, .kc_bytes = { 8 * MiB, 3 * MiB }, .kc_steps = 200,
	      .kc_stores = 1, .kc_keys = 60, .kc_logs = 1, .kc_log_bytes = 1 * MiB,
	      .kc_size_max = 12 * MiB,
	      .kc_weight = { [KM_PUT] = 6, [KM_BIG] = 24, [KM_DEL] = 3, [KM_GET] = 2,
			     [KM_SYNC] = 2, [KM_POLL] = 4, [KM_IDLE] = 2, [KM_FLUSH] = 2,
			     [KM_COMPACT] = 1, [KM_BULK] = 1, [KM_REOPEN] = 1 }),
	/* names that come back, options that change, of stores that are flushed and checkpointed */
	KV_WL("faces", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 320, .kc_stores = 3,
	      .kc_keys = 30, .kc_logs = 1, .kc_log_bytes = 512 * KiB, .kc_leaf_keys = 6,
	      .kc_weight = { [KM_PUT] = 24, [KM_DEL] = 3, [KM_MANY] = 1, [KM_SYNC] = 1,
			     [KM_POLL] = 4, [KM_IDLE] = 2, [KM_FLUSH] = 6, [KM_COMPACT] = 3,
			     [KM_CREATE] = 2, [KM_DROP] = 1, [KM_CKPT] = 2, [KM_UNCKPT] = 1,
			     [KM_RENAME] = 8, [KM_SET] = 8, [KM_REOPEN] = 1 }),
	KV_WL("fallback", true, .kc_bytes = { 16 * MiB, 3 * MiB }, .kc_steps = 60, .kc_stores = 1,
	      .kc_keys = 40, .kc_stall = 30, .kc_logs = 2, .kc_log_bytes = 1 * MiB,
	      .kc_weight = { [KM_PUT] = 10, [KM_BIG] = 10, [KM_DEL] = 4, [KM_GET] = 2,
			     [KM_SYNC] = 2, [KM_POLL] = 4, [KM_IDLE] = 1, [KM_FILL] = 2,
			     [KM_COMPACT] = 1, [KM_BULK] = 3 }),
	/* epochs of nothing but values with frames of their own, on a pool that others fill */
	KV_WL("lone", false, .kc_bytes = { 6 * MiB }, .kc_steps = 120, .kc_stores = 1,
	      .kc_keys = 20, .kc_stall = 30, .kc_logs = 1, .kc_log_bytes = 512 * KiB,
	      .kc_owns = true,
	      .kc_weight = { [KM_BIG] = 12, [KM_SYNC] = 6, [KM_GET] = 1, [KM_POLL] = 3,
			     [KM_IDLE] = 1, [KM_TAKEN] = 6, [KM_FLUSH] = 1, [KM_REOPEN] = 2 }),
	KV_WL("checkpoint", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 220,
	      .kc_stores = 2, .kc_keys = 24, .kc_logs = 2, .kc_log_bytes = 1 * MiB,
	      .kc_weight = { [KM_PUT] = 20, [KM_BIG] = 3, [KM_DEL] = 5, [KM_GET] = 1,
			     [KM_SYNC] = 1, [KM_POLL] = 3, [KM_IDLE] = 1, [KM_FLUSH] = 2,
			     [KM_COMPACT] = 3, [KM_CREATE] = 1, [KM_DROP] = 1, [KM_REOPEN] = 1,
			     [KM_CKPT] = 4, [KM_UNCKPT] = 3, [KM_BULK] = 2 }),
	/*
	 * Values above 1 MiB, which older programs do not know (L4, L6): six or seven in a
	 * history, because a state takes as long as its values take to be copied.
	 */
	KV_WL("large", true, .kc_bytes = { 40 * MiB, 20 * MiB }, .kc_steps = 100, .kc_stores = 2,
	      .kc_keys = 6, .kc_stall = 30, .kc_logs = 2, .kc_log_bytes = 4 * MiB,
	      .kc_weight = { [KM_PUT] = 22, [KM_LARGE] = 3, [KM_DEL] = 6, [KM_GET] = 2,
			     [KM_SYNC] = 3, [KM_POLL] = 10, [KM_IDLE] = 3, [KM_FLUSH] = 4,
			     [KM_COMPACT] = 1, [KM_REOPEN] = 1, [KM_CKPT] = 1, [KM_UNCKPT] = 1 }),
	KV_WL("txns", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 500, .kc_stores = 3,
	      .kc_keys = 40, .kc_stall = 40, .kc_logs = 2, .kc_log_bytes = 2 * MiB,
	      .kc_weight = { [KM_TXN] = 70, [KM_PUT] = 8, [KM_BIG] = 1, [KM_DEL] = 3, [KM_GET] = 1,
			     [KM_SYNC] = 1, [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 1,
			     [KM_FLUSH_ONE] = 3, [KM_COMPACT] = 1, [KM_REOPEN] = 1 }),
	/* the same with commit records that have parts in the value log */
	KV_WL("parts", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 500, .kc_stores = 3,
	      .kc_keys = 40, .kc_stall = 40, .kc_logs = 2, .kc_log_bytes = 2 * MiB,
	      .kc_record_max = 256,
	      .kc_weight = { [KM_TXN] = 70, [KM_PUT] = 8, [KM_BIG] = 1, [KM_DEL] = 3, [KM_GET] = 1,
			     [KM_SYNC] = 1, [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 1,
			     [KM_FLUSH_ONE] = 3, [KM_COMPACT] = 1, [KM_REOPEN] = 1 }),
	/* batches beside transactions and plain writes; every other one has parts */
	KV_WL("batches", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 360, .kc_stores = 3,
	      .kc_keys = 40, .kc_stall = 40, .kc_logs = 2, .kc_log_bytes = 2 * MiB,
	      .kc_record_max = 512,
	      .kc_weight = { [KM_BATCH] = 50, [KM_TXN] = 12, [KM_PUT] = 8, [KM_DEL] = 3,
			     [KM_GET] = 1, [KM_SYNC] = 1, [KM_POLL] = 5, [KM_IDLE] = 2,
			     [KM_FLUSH] = 1, [KM_FLUSH_ONE] = 3, [KM_COMPACT] = 1,
			     [KM_REOPEN] = 1 }),
	/* values that live for seconds; the clock at the open may differ */
	KV_WL("expiry", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 320, .kc_stores = 2,
	      .kc_keys = 60, .kc_logs = 2, .kc_log_bytes = 1 * MiB, .kc_leaf_keys = 12,
	      .kc_expires = true,
	      .kc_weight = { [KM_PUT] = 30, [KM_BIG] = 1, [KM_DEL] = 3, [KM_MANY] = 1,
			     [KM_GET] = 3, [KM_SYNC] = 2, [KM_POLL] = 5, [KM_IDLE] = 2,
			     [KM_AGE] = 7, [KM_FLUSH] = 5, [KM_COMPACT] = 3, [KM_MERGES] = 2,
			     [KM_CKPT] = 1, [KM_UNCKPT] = 1, [KM_BULK] = 1, [KM_REOPEN] = 1 }),
	/* more in the logs than the open has memory for */
	KV_WL("replay", true, .kc_bytes = { 24 * MiB, 16 * MiB }, .kc_steps = 240, .kc_stores = 3,
	      .kc_keys = 60, .kc_stall = 40, .kc_logs = 2, .kc_log_bytes = 1 * MiB,
	      .kc_replay_bytes = 16 * KiB,
	      .kc_weight = { [KM_TXN] = 20, [KM_PUT] = 30, [KM_BIG] = 1, [KM_DEL] = 5,
			     [KM_MANY] = 3, [KM_GET] = 1, [KM_SYNC] = 3, [KM_POLL] = 4,
			     [KM_IDLE] = 3, [KM_COMPACT] = 1 }),
	/* the loss bound, on devices that are slower than it and writers that stop */
	KV_BOUND("bound-1", 1),
	KV_BOUND("bound-10", 10),
	KV_BOUND("bound-100", 100),
	KV_BOUND("bound-1000", 1000),
};

int main(int argc, char **argv)
{
	enum { N = sizeof(workload) / sizeof(workload[0]) };
	const struct eng_ops *ops[N];
	int rc;

	for (unsigned i = 0; i < N; i++)
		ops[i] = &workload[i].w_ops;
	rc = eng_main(argc, argv, ops, N);
	km_bound_figure();
	return rc | km_replay_figure() | km_desc_figure();
}
