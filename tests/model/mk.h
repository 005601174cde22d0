/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The model of a database under all operations of many threads at once, and
 * the oracle that judges what it shows (model_kvdb.c).
 *
 * A world is one pool over its whole life: a set of keys, some of which belong
 * to one thread each, the others to all, and rounds of work with other options,
 * each ended by a close, by SIGKILL or by a power cut. All choices follow from
 * the seed and the world's number; what threads do to one another does not.
 *
 * Every write has an id (round, thread, number), and its value follows from
 * the id. What is checked:
 *  - a key of the reading thread has exactly its last version;
 *  - of any other key, a version that was current at some time during the call
 *    (mk_ring.c keeps the last writes of each key with begin and end);
 *  - of the store whose values live for 90 minutes, nothing that has expired: time
 *    passes between rounds, in whole hours, so nothing expires in a round;
 *  - a cursor shows one moment between begin and end of its opening, twice;
 *  - after a crash, of every thread's writes a prefix is there, nothing is
 *    missing that ended before something present began, nothing that a sync
 *    covered, and what is missing was acknowledged within the loss bound
 *    (mk_crash.c).
 *
 * The history lies in memory that outlives the process that works.
 */
#ifndef TESTS_MODEL_MK_H
#define TESTS_MODEL_MK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <kvdb/kvdb.h>

#define MK_THREADS	8u
#define MK_STORES	3u
#define MK_ROUNDS	64u		/* of a world */
#define MK_KEYS		4096u		/* of a world, the same in every store */
#define MK_GROUPS	64u		/* sets of keys with a common prefix */
#define MK_PREFIX	4u		/* bytes of that prefix */
#define MK_OPS		(1u << 18)	/* writes of one thread in one round */
#define MK_VALUE_MAX	(2u << 20)
#define MK_RING		16u
#define MK_OVER		16u		/* writes of one transaction */
#define MK_CHURN	400u
#define MK_CKPTS	6u		/* of a round */
#define MK_SYNCS	1000u
#define MK_ABSENT	UINT32_MAX	/* as a length */
#define MK_PRESENT	(UINT32_MAX - 1) /* as a length: there, the value was not read */
#define MK_SHARED	UINT8_MAX	/* as an owner */

enum mk_kind {
	MK_NONE,	/* was refused */
	MK_PUT,
	MK_DEL,
};

/* one write; stamps are CLOCK_MONOTONIC, op_end 0 = not acknowledged */
struct mk_op {
	uint64_t op_begin, op_end;
	uint16_t op_key, op_key2;	/* the keys from the one up to the other */
	uint8_t op_store, op_kind;
	uint8_t op_rest;	/* writes of its transaction that follow it */
	uint8_t op_pad;
};

struct mk_thread {
	uint32_t th_n;		/* begun */
	uint32_t th_acked;	/* the first so many have ended */
	uint32_t th_synced;	/* the first so many are durable */
	struct mk_op th_op[MK_OPS];
};

#define MC_NAMES								\
	[MC_PUT] = "puts", [MC_DEL] = "deletes", [MC_RANGE] = "range deletes",		\
	[MC_GET] = "gets", [MC_CURSOR] = "cursors", [MC_PROBE] = "probes",			\
	[MC_TXN] = "commits", [MC_ABORT] = "aborts", [MC_SNAPSHOT] = "snapshots",	\
	[MC_QUEUE] = "batches", [MC_CKPT] = "checkpoints",				\
	[MC_SYNC] = "syncs", [MC_DRAIN] = "drains", [MC_STORE] = "stores",		\
	[MC_OPEN] = "opens", [MC_KILL] = "kills", [MC_CUT] = "power cuts",		\
	[MC_EXPIRED] = "values expired", [MC_UNSURE] = "reads not decidable"

/* what was acknowledged before a sync that returned at sy_end */
struct mk_sync {
	uint64_t sy_end;
	uint32_t sy_acked[MK_THREADS];
};

/* a store that comes and goes; 0 = not yet */
struct mk_churn {
	uint64_t ch_make_begin, ch_make_end, ch_drop_begin, ch_drop_end;
};

/* a checkpoint of the round: the calls that made and dropped it; 0 = not yet */
struct mk_ckpt {
	uint64_t ck_begin, ck_end, ck_drop_begin, ck_drop_end;
};

enum mk_count {
	MC_PUT, MC_DEL, MC_RANGE, MC_GET, MC_CURSOR, MC_PROBE, MC_TXN, MC_ABORT, MC_SNAPSHOT,
	MC_QUEUE, MC_SYNC, MC_DRAIN, MC_STORE, MC_CKPT, MC_OPEN, MC_KILL, MC_CUT,
	MC_EXPIRED,
	MC_UNSURE,	/* reads that the ring was too short to judge */
	MC_COUNTS,
};

/* survives the worker process */
struct mk_shm {
	uint32_t sm_is_failed, sm_is_started;
	char sm_why[2000];
	uint64_t sm_count[MK_THREADS + 2][MC_COUNTS];	/* threads, keeper, others */
	struct mk_churn sm_churn[MK_CHURN];
	uint32_t sm_nchurn;
	struct mk_ckpt sm_ckpt[MK_CKPTS];
	uint32_t sm_nckpt;
	struct mk_sync sm_sync[MK_SYNCS];	/* the first of a round */
	uint32_t sm_nsync;
	uint64_t sm_base[MK_STORES][MK_KEYS];	/* ids before the round; 0 = absent */
	struct mk_thread sm_th[MK_THREADS];
};

struct mk_key {
	uint16_t ke_len;
	uint8_t ke_owner, ke_group;
	uint8_t *ke_buf;
};

struct mk_ent {
	uint64_t en_id, en_begin, en_end;
	uint8_t en_is_del, en_is_aborted;
};

/* the last writes of one key, in the order in which they were begun */
struct mk_ring {
	uint32_t ri_lock, ri_n;
	uint64_t ri_lost_end, ri_lost_del_end;	/* newest ends of what fell out */
	bool ri_lost, ri_lost_del;
	struct mk_ent ri_ent[MK_RING];
};

struct mk_world {
	uint64_t wo_seed;
	unsigned wo_no, wo_threads, wo_groups, wo_keys, wo_round;
	unsigned wo_big;		/* one value in so many is large */
	struct mk_key wo_key[MK_KEYS];	/* in byte order */
	uint16_t wo_group_lo[MK_GROUPS], wo_group_hi[MK_GROUPS];
	uint8_t wo_group_owner[MK_GROUPS];
	struct mk_shm *wo_shm;
	struct mk_ring *wo_ring;	/* of the working process */
	struct kvdb *wo_db;
	struct kvdb_kvs *wo_kvs[MK_STORES];
	const char *wo_pool;
	struct kvdb_opts wo_opts;
	struct kvdb_clock wo_clock;
	unsigned wo_hour[MK_ROUNDS];	/* of engine time, in each round */
	unsigned wo_wall_hour;		/* of this round: the wall clock may go back */
	uint64_t wo_leaf_keys;	/* 0 = by the budget */
	uint32_t wo_bound_ms;		/* of the round that is judged */
	bool wo_is_commit;
	uint64_t wo_quota;		/* operations of one thread in this round */
	bool wo_is_stopping;
};

/* a write of the open transaction */
struct mk_over {
	uint64_t ov_id;		/* 0 = delete */
	uint32_t ov_n;
	uint16_t ov_key, ov_key2;	/* as in struct mk_op */
	uint8_t ov_store;
};

/* one thread at work */
struct mk_worker {
	struct mk_world *w_wo;
	struct mk_thread *w_th;
	unsigned w_no;
	uint64_t w_rnd, w_done;
	uint64_t w_cur[MK_STORES][MK_KEYS];	/* ids of its own keys */
	uint64_t w_snap[MK_KEYS];		/* of one store, when a cursor was opened */
	uint64_t w_seen[MK_KEYS];
	uint64_t w_base[MK_STORES][MK_KEYS];	/* w_cur when the transaction began */
	struct mk_over w_over[MK_OVER];
	unsigned w_nover;
	bool w_is_writing;	/* in a transaction that may write: no plain writes */
	uint8_t w_got[MK_VALUE_MAX], w_want[MK_VALUE_MAX];
	struct kvdb_cq *w_cq;
	void *w_batch;
	uint64_t *w_count;
};

/* what was read of a key */
struct mk_have {
	uint32_t ha_len;	/* MK_ABSENT */
	uint64_t ha_head;	/* id, or the bytes of a value shorter than 8 */
};

static inline uint64_t mk_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t mk_rand(uint64_t *s)
{
	uint64_t z = (*s += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static inline uint64_t mk_hash(uint64_t a, uint64_t b)
{
	uint64_t s = a * 0xd6e8feb86659fd93ull ^ b;

	return mk_rand(&s);
}

static inline uint64_t mk_id(unsigned round, unsigned thread, uint32_t n)
{
	return (uint64_t)round << 40 | (uint64_t)thread << 32 | n;
}
static inline unsigned mk_id_round(uint64_t id)
{
	return (unsigned)(id >> 40);
}
static inline uint64_t *mk_count(struct mk_world *wo)
{
	return wo->wo_shm->sm_count[MK_THREADS + 1];
}
static inline unsigned mk_id_thread(uint64_t id)
{
	return id >> 32 & 0xff;
}

/* ---- mk_world.c: keys, values, stores ---- */

void mk_world_init(struct mk_world *wo, uint64_t seed, unsigned no);
void mk_world_fini(struct mk_world *wo);
/* the number of the first key not below @key */
unsigned mk_key_lower(const struct mk_world *wo, const void *key, size_t klen);
/* the number of a key, or -1 */
int mk_key_find(const struct mk_world *wo, const void *key, size_t klen);
uint32_t mk_value_len(const struct mk_world *wo, uint64_t id, unsigned store, unsigned key);
uint32_t mk_value(const struct mk_world *wo, uint64_t id, unsigned store, unsigned key,
		  uint8_t *buf);
/* reads bytes as a version; false: they are no version of this key. @want: scratch */
bool mk_value_read(const struct mk_world *wo, unsigned store, unsigned key, const void *val,
		   size_t len, uint8_t *want, struct mk_have *out);
bool mk_have_is(const struct mk_world *wo, const struct mk_have *ha, unsigned store, unsigned key,
		uint64_t id);
/* the first failure is kept; all threads stop */
void mk_fail(struct mk_world *wo, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static inline bool mk_failed(const struct mk_world *wo)
{
	return __atomic_load_n(&wo->wo_shm->sm_is_failed, __ATOMIC_ACQUIRE);
}
const char *mk_store_name(unsigned s);
const struct kvdb_kvs_opts *mk_store_opts(unsigned s);
void mk_churn_name(unsigned i, char *buf);
/* the round's options; some that are chosen for a small pool when @is_small */
void mk_options(struct mk_world *wo, uint64_t *rnd, bool is_small);
/* before a round: some hours are over, and with them what has lived long enough */
void mk_time_pass(struct mk_world *wo, uint64_t *rnd);
/* a database with its stores in a pool */
int mk_create(struct mk_world *wo);
/* opens with the round's options; the stores exist */
int mk_open(struct mk_world *wo, uint32_t flags);
int mk_close(struct mk_world *wo);

/* ---- mk_ring.c: what a concurrent reader may see ---- */

void mk_ring_reset(struct mk_world *wo);
void mk_ring_begin(struct mk_ring *r, uint64_t id, uint64_t begin, bool is_del);
void mk_ring_end(struct mk_ring *r, uint64_t id, uint64_t end, bool is_aborted);
enum mk_verdict { MK_LEGAL, MK_UNSURE, MK_STALE, MK_FUTURE, MK_UNKNOWN, MK_ABORTED };
extern const char *const mk_verdict_name[];
/* may a call (or a snapshot's birth) that took [r0, r1] see version @id, 0 = absent? */
enum mk_verdict mk_ring_judge(struct mk_ring *r, uint64_t id, uint64_t r0, uint64_t r1);
static inline struct mk_ring *mk_ring_of(struct mk_world *wo, unsigned store, unsigned key)
{
	return &wo->wo_ring[store * MK_KEYS + key];
}

/* ---- mk_live.c: threads at work ---- */

/* one round of work on the open database; the history is in wo_shm */
void mk_work(struct mk_world *wo);
uint32_t mk_write_begin(struct mk_worker *w, unsigned store, unsigned key, enum mk_kind kind,
			unsigned rest);
/* the same of a delete of the keys [lo, hi), or of MK_NONE */
uint32_t mk_range_begin(struct mk_worker *w, unsigned store, unsigned lo, unsigned hi,
			enum mk_kind kind, unsigned rest);
void mk_write_end(struct mk_worker *w, uint32_t first, uint32_t n, int rc);
/* what a read of [r0, r1] saw; @own: what the thread's own keys must have, or NULL: w_cur */
void mk_check(struct mk_worker *w, unsigned store, unsigned key, const struct mk_have *ha,
	      uint64_t r0, uint64_t r1, const uint64_t *own, const char *who);

/* one of the keys that this thread may write, mostly its own; to read, others' too */
unsigned mk_key_pick(struct mk_worker *w, bool for_read);
bool mk_may_write(const struct mk_worker *w, unsigned key);
void mk_do_write(struct mk_worker *w, unsigned store, enum mk_kind kind);
/*
 * A cursor of its own moment, or (@txn) of a transaction that began in [r0, r1].
 * -ESTALE: the transaction was given up.
 */
int mk_cursor(struct mk_worker *w, unsigned store, struct kvdb_txn *txn, uint64_t r0, uint64_t r1);
/* The same of a probe for the prefix of a group. */
int mk_probe(struct mk_worker *w, unsigned store, struct kvdb_txn *txn, uint64_t r0, uint64_t r1);
/* before a sync: what is acknowledged; after it: that is durable */
void mk_durable_mark(struct mk_world *wo, uint32_t *acked, bool is_before);

/* ---- mk_txn.c ---- */

void mk_do_txn(struct mk_worker *w);
void mk_do_batch(struct mk_worker *w);	/* kvdb_write() */
void mk_do_snapshot(struct mk_worker *w);

/* ---- mk_range.c ---- */

void mk_do_range(struct mk_worker *w, unsigned store);
/* keys of a group that this thread may write: all, by its prefix, or from one to another */
struct mk_range {
	unsigned ra_lo, ra_hi;
	const struct mk_key *ra_from;
	size_t ra_end_len;	/* 0: by prefix */
	uint8_t ra_end[KVDB_KEY_MAX];
};
bool mk_range_pick(struct mk_worker *w, struct mk_range *ra);

/* ---- mk_cq.c ---- */

void mk_do_queue(struct mk_worker *w);
void mk_queue_close(struct mk_worker *w);

/* ---- mk_crash.c: what must have survived ---- */

/*
 * A crash between @certain and @possible: what ended before the one had ended,
 * what began after the other had not begun. UINT64_MAX: now.
 */
struct mk_crash {
	uint64_t cr_certain, cr_possible;
	bool cr_is_clean;	/* closed: nothing may be missing */
	bool cr_is_ckpt;	/* a checkpoint: what had ended for certain is in it */
};
/* judges the open database; the round's base becomes what was found if @keep */
void mk_judge(struct mk_world *wo, const struct mk_crash *cr, bool keep);
/* the round's checkpoints, each by itself; before mk_judge() with @keep */
void mk_judge_checkpoints(struct mk_world *wo, const struct mk_crash *cr);
void mk_ckpt_name(const struct mk_world *wo, unsigned i, char *buf);

/* ---- mk_cut.c ---- */

/* rounds on simulated devices, each with so many power cuts, of which one is gone on from */
void mk_cut_run(struct mk_world *wo, unsigned rounds, unsigned states);

#endif
