/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A model of a pool under random operations, with the time of every effect.
 *
 * One thread works, so at a crash at most one call is in flight; all its
 * effects are there or none is. Times are indexes of the simulator's log
 * (sim_now() before and after the call). What the model demands of a recovered
 * pool is in pool_check.c.
 */
#ifndef TESTS_CRASH_POOL_MODEL_H
#define TESTS_CRASH_POOL_MODEL_H

#include <mpool/mpool.h>

#include "engine.h"

#define PM_POOL		pm_pool
#define PM_OBJS		600u
#define PM_STREAMS	12u
#define PM_RECS		2000u	/* records of all streams */
#define PM_VERS		64u	/* versions of all streams */
#define PM_FLUSHES	8u
#define PM_ADMS		40u
#define PM_TAG_MDC	0x4d444300ull
#define PM_NEVER	UINT32_MAX
#define PM_END		(UINT32_MAX - 1)	/* a crash after everything */
#define PM_REC_MAX	(40u << 10)

/*
 * The pool that models work on: "./sim" on simulated devices. A program that
 * works on real ones names its own and leaves e_sim without a provider.
 */
extern const char *pm_pool;

/* an effect of a call: begun iff b <= at, certain iff e <= at */
struct pm_time {
	unsigned b, e;
};
static const struct pm_time pm_never = { PM_NEVER, PM_NEVER };

struct pm_obj {
	uint64_t o_id, o_tag, o_pat;
	uint64_t o_capacity, o_length, o_written;
	uint32_t o_kind, o_mclass;
	bool o_has_crc, o_is_dead, o_is_reopened; /* dead: of no use to the workload */
	struct pm_time o_exists, o_sealed, o_deleted;
	unsigned o_given;	/* its id was handed out: never again, though nothing came of it */
	unsigned o_nflush;
	struct { unsigned at; uint64_t len; } o_flush[PM_FLUSHES];
};

struct pm_rec {
	uint64_t r_pat;
	uint32_t r_len;
	uint16_t r_stream, r_ver;
	unsigned r_b;		/* append began */
	unsigned r_durable;	/* a sync that covers it returned */
};

/* an erase, or a compaction, begins a new version of a stream */
struct pm_ver {
	struct pm_time v_switch;
	uint16_t v_stream;
	uint16_t v_need;	/* records that are there if the switch is */
};

struct pm_stream {		/* an mlog or a metadata container */
	bool st_is_mdc, st_is_dead;
	uint64_t st_id;		/* mlog */
	char st_name[16];	/* mdc */
	struct pm_time st_exists, st_deleted, st_sealed;
};

/* what administration changes */
struct pm_adm {
	struct pm_time a_t;
	char a_name[MPOOL_NAME_MAX + 1];
	char a_label[MPOOL_LABEL_MAX + 1];
	uint32_t a_uid, a_gid, a_mode;
	uint32_t a_spare[2];
	uint32_t a_devs;
	uint64_t a_bytes;	/* of all members */
};

struct pm {
	struct pm_obj m_obj[PM_OBJS];
	unsigned m_nobj;
	struct pm_stream m_stream[PM_STREAMS];
	unsigned m_nstream;
	struct pm_rec m_rec[PM_RECS];
	unsigned m_nrec;
	struct pm_ver m_ver[PM_VERS];
	unsigned m_nver;
	struct pm_adm m_adm[PM_ADMS];	/* empty: the workload has no administration */
	unsigned m_nadm;
	struct pm_time m_created, m_destroyed;	/* the pool itself */
	uint64_t m_max_id;	/* highest id that was handed out */
	uint64_t m_rand;
	/* second generation: before m_opened the previous model judges */
	const struct pm *m_prev;
	unsigned m_prev_at, m_opened;
	unsigned m_certain;	/* first return of a durable call after m_opened */
};

/* operations by weight */
enum pm_op {
	PM_BATCH,	/* alloc, write, commit several in one batch */
	PM_ABORT,
	PM_DELETE,
	PM_MIXED,	/* commit, seal and delete in one batch */
	PM_APPEND,	/* alloc an append object */
	PM_GROW,	/* write to one */
	PM_FLUSH,
	PM_SEAL,
	PM_MLOG,	/* create */
	PM_REC,
	PM_SYNC,
	PM_ERASE,
	PM_MLOG_SEAL,
	PM_MLOG_DELETE,
	PM_MDC,		/* create */
	PM_COMPACT,
	PM_MDC_DELETE,
	PM_FILL,	/* until -ENOSPC, then delete most */
	PM_REOPEN,
	PM_SET,		/* properties */
	PM_RENAME,
	PM_ADD,		/* a device of either class */
	PM_LARGER,	/* grow one or all devices */
	PM_OPS,
};

struct pm_conf {
	const char *pc_name;
	unsigned pc_devs;
	uint64_t pc_bytes[2];	/* capacity, staging */
	unsigned pc_steps;
	bool pc_is_dirty;
	bool pc_is_create;	/* creation and destruction are part of the log */
	enum pm_op pc_admin;	/* one that happens for certain; 0: no administration */
	bool pc_is_mixed;	/* classes come later: objects ask for either */
	uint32_t pc_obj_bytes;	/* largest object */
	uint8_t pc_weight[PM_OPS];
};

/* handles of the running pool */
struct pm_rt {
	struct mpool *rt_mp;
	struct mpool_obj *rt_obj[PM_OBJS];
	struct mpool_mlog *rt_log[PM_STREAMS];
	struct mpool_mdc *rt_mdc[PM_STREAMS];
};

/* a workload of eng_main() */
struct pm_wl {
	struct eng_ops w_ops;	/* first */
	struct pm_conf w_conf;
};

/* pool_work.c */
#define PM_WORKLOADS	12u
extern const struct pm_wl pm_workload[PM_WORKLOADS];
const struct pm_conf *pm_conf_of(const struct eng *e);
struct pm *pm_new(uint64_t seed);
int pm_steps(struct eng *e, struct pm *m, struct pm_rt *rt, unsigned n);
int pm_destroy(struct eng *e, struct pm *m);
/* pm_judge() and a close; when there is no pool one is made; @post: writes, and judges that too */
int pm_judge_more(struct eng *e, const struct pm *m, unsigned at, bool post);

static inline bool pm_begun(struct pm_time t, unsigned at)
{
	return t.b != PM_NEVER && t.b <= at;
}
static inline bool pm_certain(struct pm_time t, unsigned at)
{
	return t.e != PM_NEVER && t.e <= at;
}

void pm_fill(void *buf, size_t len, uint64_t pat, uint64_t off);
void pm_open_opts(struct eng *e, struct mpool_open_opts *o);
int pm_create(struct eng *e, struct pm *m, const struct pm_conf *c);
int pm_rt_open(struct eng *e, struct pm *m, struct pm_rt *rt);
/* closes everything; what was not committed is gone for the model too */
int pm_rt_close(struct eng *e, struct pm *m, struct pm_rt *rt);
/* closes and opens; everything stays that was there */
int pm_reopen(struct eng *e, struct pm *m, struct pm_rt *rt);

/* pool_admin.c: one change, of the open pool or between two opens */
int pm_admin(struct eng *e, struct pm *m, struct pm_rt *rt, const struct pm_conf *c,
	     enum pm_op op);
int pm_adm_read(struct eng *e, struct mpool *mp, struct pm_adm *a);
bool pm_adm_equal(const struct pm_adm *a, const struct pm_adm *b);
/* byte 0 of every member shows the pool's name, or is damaged elsewhere */
int pm_adm_names(struct eng *e, struct mpool *mp);

/* one random operation */
int pm_step(struct eng *e, struct pm *m, struct pm_rt *rt, const struct pm_conf *c);

/*
 * Opens the pool, demands what @m says of a crash at @at, and with @next fills
 * it with what was found. On success the pool stays open in @rt.
 */
int pm_judge(struct eng *e, const struct pm *m, unsigned at, struct pm_rt *rt, struct pm *next);
/* the first @len bytes are what was written */
int pm_content(struct eng *e, struct mpool_obj *h, const struct pm_obj *o, uint64_t len);
int pm_foreign(struct eng *e, struct mpool_obj *h, uint64_t id, uint64_t capacity);

#endif
