/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A model of a KVDB under random operations of one thread: the history of
 * writes with the times (log indexes and virtual clock) of call and
 * acknowledgement. A recovered database must equal the effect of a prefix of
 * the history, at least as long as every sync, commit and the loss bound
 * demand. See kv_check.c.
 */
#ifndef TESTS_CRASH_KV_MODEL_H
#define TESTS_CRASH_KV_MODEL_H

#include <kvdb/kvdb.h>

#include "engine.h"

#define KM_POOL		"./sim"
#define KM_STORES	10u	/* over the life of a history */
#define KM_KEYS		80u	/* per store */
#define KM_HIST		4000u
#define KM_SYNCS	800u
#define KM_NEVER	UINT32_MAX
#define KM_END		(UINT32_MAX - 1)
#define KM_ABSENT	UINT32_MAX	/* as a length */
#define KM_VALUE_MAX	(200u << 10)

struct km_time {
	unsigned b, e;
};
static const struct km_time km_never = { KM_NEVER, KM_NEVER };

struct km_val {
	uint32_t v_len;		/* KM_ABSENT: no such key */
	uint64_t v_hash;
};

struct km_op {
	uint16_t op_store, op_key;
	unsigned op_b, op_e;
	struct km_val op_val;
	uint64_t op_ack_ns;
};

struct km_store {
	char s_name[16];
	bool s_is_dead;
	struct km_time s_exists, s_dropped;
};

/* everything acknowledged before the call is durable from its return on */
struct km_sync {
	unsigned sy_ops, sy_e;
};

struct km {
	struct km_val m_base[KM_STORES][KM_KEYS];	/* before the history */
	struct km_val m_now[KM_STORES][KM_KEYS];	/* after it, for live checks */
	struct km_op m_op[KM_HIST];
	unsigned m_nop;
	struct km_sync m_sync[KM_SYNCS];
	unsigned m_nsync;
	struct km_store m_store[KM_STORES];
	unsigned m_nstore;
	struct km_time m_created, m_dropped;	/* the database */
	uint64_t m_rand;
	const struct km *m_prev;		/* judges before m_opened */
	unsigned m_prev_at, m_opened;
};

enum km_step {
	KM_PUT,		/* small value */
	KM_BIG,		/* 4 KiB to 100 KiB */
	KM_DEL,
	KM_GET,
	KM_SYNC,
	KM_POLL,
	KM_IDLE,	/* the clock runs, background work is polled */
	KM_FLUSH,
	KM_COMPACT,
	KM_CREATE,
	KM_DROP,
	KM_REOPEN,
	KM_FILL,	/* put until -ENOSPC, then delete much */
	KM_STEPS,
};

struct km_conf {
	const char *kc_name;
	unsigned kc_devs, kc_steps;
	uint64_t kc_bytes[2];
	uint32_t kc_interval_ms, kc_commit, kc_logs;
	uint64_t kc_log_bytes, kc_segment_bytes;
	uint32_t kc_stall;	/* one flush in so many takes 150 ms; 0 = none */
	unsigned kc_stores, kc_keys;
	bool kc_is_create;	/* creation and removal of the database are in the log */
	bool kc_has_idle;	/* store 0 is written once and then left alone */
	uint8_t kc_weight[KM_STEPS];
};

struct km_rt {
	struct kvdb *rt_db;
	struct kvdb_kvs *rt_kvs[KM_STORES];
};

struct km_wl {
	struct eng_ops w_ops;	/* first */
	struct km_conf w_conf;
};

static inline bool km_begun(struct km_time t, unsigned at)
{
	return t.b != KM_NEVER && t.b <= at;
}
static inline bool km_certain(struct km_time t, unsigned at)
{
	return t.e != KM_NEVER && t.e <= at;
}

static inline const struct km_conf *km_conf_of(const struct eng *e)
{
	return &((const struct km_wl *)e->e_ops)->w_conf;
}

/* the virtual clock: one per program, set back by km_clock_reset() */
void km_clock_reset(struct eng *e, uint64_t seed);
uint64_t km_clock(void);
void km_opts(struct eng *e, struct kvdb_opts *o, struct mpool_open_opts *oo);
size_t km_key(unsigned key, uint8_t *buf);
uint64_t km_hash(const void *val, size_t len);
int km_pool_create(struct eng *e);
int km_create(struct eng *e, struct km *m);
int km_drop(struct eng *e, struct km *m);
int km_open(struct eng *e, struct km *m, struct km_rt *rt);
int km_close(struct eng *e, struct km *m, struct km_rt *rt);
int km_step(struct eng *e, struct km *m, struct km_rt *rt);
/* opens, demands, and with @next describes what was found; stays open in @rt */
int km_judge(struct eng *e, const struct km *m, unsigned at, struct km_rt *rt, struct km *next);

#endif
