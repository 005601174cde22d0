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
#define KM_LOOKS	800u
#define KM_CKPTS	24u	/* over the life of a history */
#define KM_FACES	200u	/* likewise: made, renamed or set */
#define KM_NEVER	UINT32_MAX
#define KM_END		(UINT32_MAX - 1)
#define KM_ABSENT	UINT32_MAX	/* as a length */
#define KM_VALUE_MAX	(3u << 20)

struct km_time {
	unsigned b, e;
};
static const struct km_time km_never = { KM_NEVER, KM_NEVER };

struct km_val {
	uint32_t v_len;		/* KM_ABSENT: no such key */
	uint64_t v_hash;
	/* by km_clock() it is there before the one, gone from the other on; 0: it stays */
	uint64_t v_dies_ns, v_dead_ns;
};

struct km_op {
	uint16_t op_store, op_key;
	unsigned op_b, op_e;
	bool op_is_many;	/* a delete of the keys in op_keys */
	uint8_t op_keys[KM_KEYS / 8];
	struct km_val op_val;
	uint64_t op_ack_ns;
	bool op_more;		/* the next one is of the same transaction */
};

/* What a store is called and how it is set. */
struct km_face {
	char f_name[16];
	uint32_t f_policy, f_compress;
	uint64_t f_ttl_s;
};

/* Of which store, from when on. */
struct km_change {
	unsigned ch_store;
	struct km_time ch_when;
	struct km_face ch_face;
};

struct km_store {
	char s_name[16];
	bool s_is_dead;
	struct km_time s_exists, s_dropped;
};

struct km_ckpt {
	char c_name[16];
	struct km_time c_made, c_dropped;
	bool c_is_dead;
	bool c_exists[KM_STORES];
	struct km_face c_face[KM_STORES];
	/* one thread writes: everything that went before */
	struct km_val c_val[KM_STORES][KM_KEYS];
};

/* What was backed up last: the checkpoint, and what restoring gives. */
struct km_backup {
	int b_ckpt;		/* in m_ckpt; -1: there is no backup */
	struct km_val b_val[KM_STORES][KM_KEYS];
};

/*
 * Everything acknowledged before the call is durable from its return on, and as much of
 * engine time recorded; 0: it says nothing of that.
 */
struct km_sync {
	unsigned sy_ops, sy_e;
	uint64_t sy_ns;
};

/* What time it was, by km_clock(), before this event of the log. */
struct km_look {
	unsigned lk_at;
	uint64_t lk_ns;
};

struct km {
	struct km_val m_base[KM_STORES][KM_KEYS];	/* before the history */
	struct km_val m_now[KM_STORES][KM_KEYS];	/* after it, for live checks */
	struct km_op m_op[KM_HIST];
	unsigned m_nop;
	struct km_sync m_sync[KM_SYNCS];
	unsigned m_nsync;
	struct km_look m_look[KM_LOOKS];
	unsigned m_nlook;
	uint64_t m_born_ns;	/* what had expired by then, is not in m_base */
	struct km_store m_store[KM_STORES];
	unsigned m_nstore;
	struct km_change m_change[KM_FACES];
	unsigned m_nchange;
	struct km_ckpt m_ckpt[KM_CKPTS];
	unsigned m_nckpt;
	struct km_backup m_backup;
	bool m_is_wrong;	/* in a way that no lost write excuses */
	struct km_time m_created, m_dropped;	/* the database */
	uint64_t m_rand;
	uint64_t m_moves;	/* relocations */
	uint64_t m_splits;	/* of leaves */
	const struct km *m_prev;		/* judges before m_opened */
	unsigned m_prev_at, m_opened;
};

enum km_step {
	KM_PUT,		/* small value */
	KM_BIG,		/* 4 KiB to 100 KiB */
	KM_LARGE,	/* 1 MiB to 3 MiB */
	KM_DEL,
	KM_MANY,	/* delete by prefix or range */
	KM_GET,
	KM_SYNC,
	KM_POLL,
	KM_IDLE,	/* the clock runs, background work is polled */
	KM_STOP,	/* no thread runs for up to twice the loss bound */
	KM_AGE,		/* no thread runs for seconds: values expire */
	KM_FLUSH,
	KM_COMPACT,
	KM_MERGES,	/* two of a store at once */
	KM_CREATE,
	KM_DROP,
	KM_REOPEN,
	KM_FILL,	/* put until -ENOSPC, then delete much */
	KM_TAKEN,	/* another user has all of the pool for a while, in which epochs end */
	KM_CKPT,	/* a checkpoint */
	KM_UNCKPT,
	KM_TXN,		/* something in a transaction */
	KM_BATCH,	/* kvdb_write() */
	KM_FLUSH_ONE,	/* one store alone */
	KM_BULK,	/* a bulk load of some keys, now and then given up */
	KM_BACKUP,	/* of a checkpoint, beside the writer */
	KM_RENAME,
	KM_SET,		/* options of a store */
	KM_STEPS,
};

struct km_conf {
	const char *kc_name;
	unsigned kc_devs, kc_steps;
	uint64_t kc_bytes[2];
	uint32_t kc_interval_ms, kc_commit, kc_logs;
	uint64_t kc_log_bytes, kc_segment_bytes;
	uint64_t kc_leaf_keys;	/* of a leaf; 0 = by the budget */
	bool kc_no_filters;	/* in memory: each is read where it is asked */
	uint64_t kc_replay_bytes;	/* budget of memtables during an open; 0 = the same */
	uint32_t kc_record_max;	/* write sets above it are logged in parts; 0 = as always */
	uint32_t kc_stall;	/* one flush in so many takes 150 ms; 0 = none */
	bool kc_slow;		/* device work takes 10 times as long, or 100 times, by turns */
	unsigned kc_stores, kc_keys;
	bool kc_is_create;	/* creation and removal of the database are in the log */
	bool kc_is_made;	/* by each open that finds none (KVDB_CREATE); with kc_is_create */
	uint64_t kc_size_max;	/* the pool grows to that; 0 = it does not */
	bool kc_has_idle;	/* store 0 is written once and then left alone */
	bool kc_moves;		/* middle values; relocations must happen */
	bool kc_policies;	/* each store has another policy */
	bool kc_cursors;	/* a cursor is open while a step runs; crash_fault.c alone looks */
	bool kc_owns;		/* big values all have frames of their own */
	bool kc_expires;	/* values live for seconds, the wall clock goes on */
	uint8_t kc_weight[KM_STEPS];
};

#define KM_TXNS		2u
#define KM_TWRITES	24u
#define KM_TRANGES	4u

struct km_twrite {
	uint16_t w_store, w_key;
	struct km_val w_val;
};

struct km_trange {
	unsigned r_store;
	uint8_t r_keys[KM_KEYS / 8];	/* as op_keys */
};

struct km_txn {
	struct kvdb_txn *t_txn;		/* NULL: none is open */
	unsigned t_begun;		/* m_nop then */
	unsigned t_n, t_nrange;
	struct km_trange t_range[KM_TRANGES];
	struct km_twrite t_write[KM_TWRITES];
	struct km_val t_view[KM_STORES][KM_KEYS];
};

struct km_rt {
	struct kvdb *rt_db;
	struct kvdb_kvs *rt_kvs[KM_STORES];
	struct km_txn rt_txn[KM_TXNS];
};

struct km_wl {
	struct eng_ops w_ops;	/* first */
	struct km_conf w_conf;
};

static inline uint32_t km_interval_ms(const struct km_conf *c)
{
	return c->kc_interval_ms ? c->kc_interval_ms : 100;
}

/* of the workloads with slow devices: the row "loss bound" */
void km_bound_figure(void);
/* of the workload that recovers in parts: not 0 if opens had hardly any */
int km_replay_figure(void);

/* of the workload whose descriptors lie by themselves: not 0 if none shared a segment */
int km_desc_figure(void);

#define KM_PFX	4u	/* prefix length of all stores */

/* Does a reader that looks between these times see @got where @want was written? */
static inline bool km_is_same(const struct km_val *got, const struct km_val *want, uint64_t from,
			      uint64_t to)
{
	if (want->v_len == KM_ABSENT)
		return got->v_len == KM_ABSENT;
	if (got->v_len == KM_ABSENT)
		return want->v_dead_ns && to >= want->v_dies_ns;
	return got->v_len == want->v_len && got->v_hash == want->v_hash &&
	       (!want->v_dead_ns || from < want->v_dead_ns);
}

/* Does the write change the key? */
static inline bool km_changes(const struct km_op *op, unsigned k)
{
	return op->op_is_many ? op->op_keys[k / 8] >> (k % 8) & 1 : op->op_key == k;
}

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

/*
 * The virtual clock: one per program, set back by km_clock_reset(). Where values expire
 * km_clock() is the engine time of what is open, which may be ahead of the clock.
 */
void km_clock_reset(struct eng *e, uint64_t seed);
uint64_t km_clock(void);
/* After an open: engine time must be between these, and km_clock() is it from now on. */
int km_clock_follow(struct eng *e, struct kvdb *db, uint64_t least_ns, uint64_t most_ns);
/* by km_clock(): a time that is recorded before event @at, one that had not come yet */
uint64_t km_recorded(const struct km *m, unsigned at);
uint64_t km_latest(const struct km *m, unsigned at);
/* seconds that a value of the n-th store lives, if nothing else is said; 0: it stays */
unsigned km_store_ttl(const struct eng *e, unsigned n);
/* op_val was written between then and now, to live so long */
void km_lives(const struct eng *e, struct km_op *op, unsigned ttl_s, uint64_t from_ns);
void km_clock_set(uint64_t ns);
/* what is read in between is read at one time */
void km_clock_stop(void);
void km_clock_go(void);
void km_opts(struct eng *e, struct kvdb_opts *o, struct mpool_open_opts *oo);
size_t km_key(unsigned key, uint8_t *buf);
/* what km_key() made it of; -1 = of nothing */
int km_key_number(const uint8_t *key, size_t klen);
uint64_t km_hash(const void *val, size_t len);
static inline struct km_val km_val_of(const void *val, size_t len)
{
	return (struct km_val){ .v_len = (uint32_t)len, .v_hash = km_hash(val, len) };
}
int km_pool_create(struct eng *e);
int km_create(struct eng *e, struct km *m);
int km_drop(struct eng *e, struct km *m);
/* kvdb_open(), as kc_replay_bytes says */
int km_db_open(struct eng *e, const struct kvdb_opts *o, struct kvdb **out);
int km_open(struct eng *e, struct km *m, struct km_rt *rt);
int km_store_create(struct eng *e, struct km_rt *rt, const char *name, unsigned n);
int km_close(struct eng *e, struct km *m, struct km_rt *rt);
/* kv_face.c: steps; store @s looks so from @when on; what it may look like at event @at */
int km_rename(struct eng *e, struct km *m, struct km_rt *rt, unsigned s);
int km_set(struct eng *e, struct km *m, struct km_rt *rt, unsigned s);
int km_face_of(struct eng *e, struct kvdb_kvs *kvs, struct km_face *out);
void km_face_add(struct km *m, unsigned s, struct km_time when, const struct km_face *f);
unsigned km_faces(const struct km *m, unsigned s, unsigned at, const struct km_face *out[2]);
bool km_face_is(const struct km_face *a, const struct km_face *b);
/* everything acknowledged by the first @ops writes is durable from now on, and so is the time */
void km_synced(struct eng *e, struct km *m, unsigned ops, uint64_t ns);
int km_txn_step(struct eng *e, struct km *m, struct km_rt *rt);
int km_batch(struct eng *e, struct km *m, struct km_rt *rt);
/* Which keys a prefix, or (@to) a range, holds. */
void km_many_keys(uint8_t *keys, const uint8_t *from, size_t flen, const uint8_t *to, size_t tlen);
/* Has an open transaction written the key, or deleted a range with it? */
bool km_txn_owns(struct km_rt *rt, unsigned s, unsigned k);
void km_txns_abort(struct km_rt *rt);
int km_flush_one(struct eng *e, struct km *m, struct km_rt *rt);
int km_step(struct eng *e, struct km *m, struct km_rt *rt);
/* kv_record.c: the caller frees it; @n steps; the stores at the start; eo_record of a workload */
struct km *km_new(uint64_t seed);
int km_steps(struct eng *e, struct km *m, struct km_rt *rt, unsigned n);
int km_first_stores(struct eng *e, struct km *m, struct km_rt *rt);
int km_record(struct eng *e, void **model);
/*
 * Opens, demands, and with @next describes what was found; stays open in @rt. No engine time
 * after @latest_ns was ever recorded.
 */
int km_judge(struct eng *e, const struct km *m, unsigned at, uint64_t latest_ns, struct km_rt *rt,
	     struct km *next);
/* kv_ckpt.c: steps, and what must be there; the contents with the database closed */
int km_bulk(struct eng *e, struct km *m, struct km_rt *rt);
int km_ckpt_make(struct eng *e, struct km *m, struct km_rt *rt);
int km_ckpt_drop(struct eng *e, struct km *m, struct km_rt *rt);
int km_ckpt_drop_one(struct eng *e, struct km_ckpt *c, struct km_rt *rt);
/* which of the model's checkpoints are there; with @next they are its own from now on */
int km_ckpt_find(struct eng *e, const struct km *m, unsigned at, struct kvdb *db, struct km *next);
int km_ckpt_judge(struct eng *e, const struct km *m);
/* kv_backup.c */
int km_back_up(struct eng *e, struct km *m, struct km_rt *rt);
/* a step of a writer beside a reader */
int km_beside(struct eng *e, struct km *m, struct km_rt *rt);
/*
 * Did this, read between these times, ever belong to the key? The write that failed may have
 * happened; when those that drop a store and make another of its name were lost, the old one is
 * there.
 */
bool km_was_written(const struct km *m, unsigned s, unsigned k, const struct km_val *got,
		    uint64_t from, uint64_t to);
/* kv_check.c: the first so many operations are there after a crash at event @at */
unsigned km_least_ops(const struct km *m, unsigned at, const struct km_conf *c);
/* reads a store whole, twice, and compares it with @want */
int km_store_is(struct eng *e, struct kvdb *db, const char *name, const struct km_val *want);

#endif
