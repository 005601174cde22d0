/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Life of a database and of its stores: create, open, close, drop, describe.
 *
 * Order at open: number, pool and lease, metadata container, budget, memory, segment
 * table, stores and runs, recovery, logs, flusher, workers; at close the
 * reverse, after everything is durable. A store that is dropped leaves the
 * table at once; its memory stays until the database is closed, because a
 * worker may still look at it.
 *
 * Locks: m_ddl_lock (outermost) for create and drop of stores; d_kvs_lock for
 * the table, never across I/O.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "ckpt.h"
#include "ctl.h"
#include "flush.h"
#include "leaf.h"
#include "load.h"
#include "mdc.h"
#include "memtable.h"
#include "reloc.h"
#include "thread.h"
#include "txn.h"

#define NSEC		1000000000ull
#define INTERVAL_MS	100u	/* default loss bound */
#define LOOKS		15	/* at a checkpoint of a database in use */
#define LOOK_NS		20000000
#define VIEW_MAX_AGE_MS	300000u

static const uint8_t lease_id[16] = "kvdb";

/* ---- options ------------------------------------------------------------------------- */

static uint64_t mono_now(void *arg)
{
	struct timespec ts;

	(void)arg;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

static void mono_sleep(void *arg, uint64_t t_ns)
{
	struct timespec ts = { .tv_sec = (time_t)(t_ns / NSEC), .tv_nsec = (long)(t_ns % NSEC) };

	(void)arg;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static const struct kvdb_clock mono = { mono_now, mono_sleep, NULL, NULL };

int kv_opts_take(const struct kvdb_opts *in, uint32_t flags, struct kvdb_opts *o)
{
	const struct kvdb_opts none = KVDB_OPTS_INIT;

	/* before it is copied: there may be no more of it */
	if (in && in->size != sizeof(*in))
		return kv_error(-EINVAL, "MP0951", "kvdb_opts.size is %zu, wanted %zu", in->size,
				sizeof(*in));
	*o = in ? *in : none;
	o->flags |= flags;
	if (o->flags & ~(KVDB_RDONLY | KVDB_MANUAL | KVDB_NOCTL | KVDB_TIME_JUMP |
			 KVDB_PREFAULT) ||
	    o->commit > 1)
		return kv_error(-EINVAL, "MP0951", "kvdb_opts has unknown flags");
	if (o->checkpoint && !(o->flags & KVDB_RDONLY))
		return kv_error(-EINVAL, "MP0951", "a checkpoint is opened with KVDB_RDONLY");
	if (o->clock && (!o->clock->now_ns || !o->clock->sleep_until_ns))
		return kv_error(-EINVAL, "MP0951", "kvdb_opts.clock is incomplete");
	if (o->space_amp_max != 0 && !(o->space_amp_max >= 1.1 && o->space_amp_max <= 100))
		return kv_error(-EINVAL, "MP0951", "space_amp_max is %g; wanted 1.1 to 100",
				o->space_amp_max);
	if (!o->interval_ms)
		o->interval_ms = INTERVAL_MS;
	if (!o->view_max_age_ms)
		o->view_max_age_ms = VIEW_MAX_AGE_MS;
	return 0;
}

/* Of a call that makes or removes a database. */
static int opts_take_writer(const struct kvdb_opts *in, struct kvdb_opts *o)
{
	int err = kv_opts_take(in, 0, o);

	if (!err && o->flags & KVDB_RDONLY)
		err = kv_error(-EINVAL, "MP0951",
			       "with KVDB_RDONLY no database is made or removed");
	return err;
}

int kv_pool_open(const char *pool, const struct kvdb_opts *o, bool is_rdonly, struct mpool **out)
{
	struct mpool_open_opts mo = MPOOL_OPEN_OPTS_INIT;
	int err;

	if (!pool)
		return kv_error(-EINVAL, "MP0951", "no pool was named");
	if (o->pool && o->pool->size != sizeof(mo))
		return kv_error(-EINVAL, "MP0951", "mpool_open_opts.size is %zu, wanted %zu",
				o->pool->size, sizeof(mo));
	if (o->pool)
		mo = *o->pool;
	/* one that is shared with a writer shows a database torn, one for reading takes no log */
	if (mo.flags & ~(is_rdonly ? MPOOL_OPEN_RDONLY : 0u))
		return kv_error(-EINVAL, "MP0951", "mpool_open_opts.flags is %#x: KVDB_RDONLY and "
				"a checkpoint say how the pool is opened", mo.flags);
	if (is_rdonly)
		mo.flags |= MPOOL_OPEN_RDONLY;
	/* R20: a checkpoint is read beside the writer; a simulation has one process */
	if (o->checkpoint && !mo.provider)
		mo.flags |= MPOOL_OPEN_SHARED;
	err = mpool_open(pool, &mo, out);
	if (err)
		return kv_error_mpool(err);
	if (mo.flags & MPOOL_OPEN_SHARED)
		return 0;
	/* readers of one pool share it */
	err = mpool_lease(*out, lease_id);
	if (err) {
		kv_error_mpool(err);
		mpool_close(*out);
		*out = NULL;	/* the caller closes what is open */
	}
	return err;
}

static uint8_t log_class(struct mpool *mp)
{
	struct mpool_info pi;

	if (mpool_info(mp, &pi) || !pi.cls[MPOOL_STAGING].devs)
		return MPOOL_CAPACITY;
	return MPOOL_STAGING;
}

/* ---- create, drop ------------------------------------------------------------------------ */

/* Deletes what a database left that is no more: objects with our mark that no container owns. */
static int collect(struct mpool *mp, uint64_t *count)
{
	struct mpool_obj_info oi[64];
	uint64_t ids[64], after = 0;
	size_t k;
	int i, n = 0, err = 0;

	*count = 0;
	while (!err && (n = mpool_objects(mp, after, 0, oi, 64)) > 0) {
		for (i = 0, k = 0; i < n; i++) {
			after = oi[i].id;
			if (oi[i].kind != MPOOL_MLOG && kv_tag_is_ours(oi[i].tag))
				ids[k++] = oi[i].id;
		}
		err = k ? kv_objs_delete(mp, ids, k) : 0;
		*count += k;
	}
	return err || n >= 0 ? err : kv_error_mpool(n);
}

static int super_make(const struct kvdb_opts *o, struct kv_mdc_super *s)
{
	uint64_t id[2];

	memset(s, 0, sizeof(*s));
	if (getrandom(s->ms_uuid, 16, 0) != 16)
		return kv_error(-EIO, "MP0991", "no random bytes for the database's UUID");
	s->ms_uuid[6] = (uint8_t)((s->ms_uuid[6] & 0x0f) | 0x40);
	s->ms_uuid[8] = (uint8_t)((s->ms_uuid[8] & 0x3f) | 0x80);
	memcpy(id, s->ms_uuid, 16);
	s->ms_tag = KV_TAG_MARK << 48 | kv_mix(id[0] ^ kv_mix(id[1])) >> 16;
	s->ms_format = KV_FORMAT;
	s->ms_seg_bytes = (uint32_t)o->segment_bytes;
	s->ms_amp_percent = (uint16_t)(o->space_amp_max * 100 + 0.5);
	s->ms_next_kvs = 1;
	s->ms_next_run = 1;
	return 0;
}

static int create_in(struct mpool *mp, const char *pool, const struct kvdb_opts *o)
{
	struct kv_mdc_super s;
	struct kv_limits lim;
	struct kv_budget b;
	uint64_t left;
	bool is_there;
	int err;

	err = kv_limits_read(mp, &lim);
	if (!err)
		err = kv_budget(o, &lim, &b);
	if (!err)
		err = kv_mdc_probe(mp, &is_there);
	if (err)
		return err;
	if (is_there)
		return kv_error(-EEXIST, "MP0953", "%s: there is a database in this pool", pool);
	/* a create that was cut left a container without its first record, or none */
	err = mpool_mdc_delete(mp, KV_MDC_NAME);
	if (err && err != -ENOENT)
		return kv_error_mpool(err);
	err = collect(mp, &left);
	if (!err)
		err = super_make(o, &s);
	if (!err)
		err = kv_mdc_create(mp, b.b_mdc_capacity ? MPOOL_CAPACITY : log_class(mp),
				    b.b_mdc_bytes, &s);
	return err;
}

int kvdb_create(const char *pool, const struct kvdb_opts *opts)
{
	struct kvdb_opts o;
	struct mpool *mp;
	int err, rc;

	err = opts_take_writer(opts, &o);
	if (!err)
		err = kv_pool_open(pool, &o, false, &mp);
	if (err)
		return err;
	err = create_in(mp, pool, &o);
	rc = mpool_close(mp);
	return err ? err : rc ? kv_error_mpool(rc) : 0;
}

int kvdb_drop(const char *pool, const struct kvdb_opts *opts)
{
	struct kvdb_opts o;
	struct mpool *mp;
	uint64_t count;
	bool was_there;
	int err, rc;

	err = opts_take_writer(opts, &o);
	if (!err)
		err = kv_pool_open(pool, &o, false, &mp);
	if (err)
		return err;
	rc = mpool_hold(mp, KV_HOLD_ANY);
	if (rc == -EBUSY) {
		mpool_close(mp);
		return kv_error(rc, "MP0984", "%s: another process reads a checkpoint", pool);
	}
	/* without its container there is no database: what is left is only space */
	rc = mpool_mdc_delete(mp, KV_MDC_NAME);
	was_there = !rc;
	if (rc && rc != -ENOENT)
		err = kv_error_mpool(rc);
	if (!err)
		err = collect(mp, &count);
	if (!err && !was_there && !count)
		err = kv_error(-ENOENT, "MP0952", "%s: there is no database in this pool", pool);
	rc = mpool_close(mp);
	return err ? err : rc ? kv_error_mpool(rc) : 0;
}

/* ---- open ------------------------------------------------------------------------------------ */

static int size_up(struct kvdb *db, const struct kvdb_opts *in)
{
	struct kvdb_opts o = *in;
	struct kv_limits lim;
	int err = kv_limits_read(db->d_mp, &lim);

	if (err)
		return err;
	if (!o.segment_bytes)
		o.segment_bytes = db->d_mdc->m_st.st_super.ms_seg_bytes;
	err = kv_budget(&o, &lim, &db->d_budget);
	/* what create asked for need not fit into the memory of this machine */
	if (err && !in->segment_bytes)
		err = kv_budget(in, &lim, &db->d_budget);
	return err;
}

int kv_db_attach(struct kvdb *db, const char *pool, const struct kvdb_opts *o, bool is_rdonly)
{
	int err;

	pthread_mutex_init(&db->d_tick_lock, NULL);
	pthread_mutex_init(&db->d_kvs_lock, NULL);
	pthread_mutex_init(&db->d_cq_lock, NULL);
	pthread_mutex_init(&db->d_compact.cp_lock, NULL);
	db->d_cpu_ns = kv_cpu_ns();
	db->d_flags = o->flags;
	db->d_interval_ms = o->interval_ms;
	db->d_commit = o->commit;
	db->d_view_max_age_ms = o->view_max_age_ms;
	db->d_rdonly = is_rdonly;
	db->d_rollback = o->rollback;
	db->d_clock = o->clock ? *o->clock : mono;
	/* before anything is read: a thread finds its context by the number that this gives */
	err = kv_threads_init(db);
	if (!err)
		err = kv_pool_open(pool, o, is_rdonly, &db->d_mp);
	if (err)
		return err;
	db->d_log_class = log_class(db->d_mp);
	err = kv_mdc_open(db);
	if (err == -ENOENT)
		return kv_error(err, "MP0952", "%s: there is no database in this pool", pool);
	if (!err && o->checkpoint)
		err = kv_ckpt_enter(db, pool, o);
	if (!err)
		err = size_up(db, o);
	if (!err)
		err = kv_segs_init(db);
	if (!err)
		err = kv_slabs_init(db);
	kv_points_init(db);
	if (!err)
		err = kv_pagepool_init(db);
	if (!err)
		err = kv_readers_init(db);
	if (!err)
		err = kv_mts_init(db);
	if (!err)
		err = kv_reloc_init(db, o->space_amp_max != 0 ? o->space_amp_max :
				    db->d_mdc->m_st.st_super.ms_amp_percent / 100.0);
	if (!err)
		err = kv_txns_init(db);
	if (!err)
		err = kv_segs_load(db);
	return err ? err : kv_ckpts_load(db);
}

static int open_runs(struct kvdb *db, struct kvdb_kvs *kvs, const struct kv_mdc_kvs *mk)
{
	struct kv_run **run = calloc(mk->mk_nrun + 1, sizeof(*run));
	struct kv_leaf **leaf = calloc(mk->mk_nleaf + 1, sizeof(*leaf));
	struct kv_edit ed = { .ed_kvs = mk->mk_id, .ed_add = run, .ed_begin = leaf };
	uint32_t i, n = 0;
	int err = run && leaf ? kv_leaves_load(mk, leaf) : -ENOMEM;

	if (!err)
		ed.ed_nbegin = mk->mk_nleaf;
	for (i = 0; i < mk->mk_nrun && !err; i++) {
		err = kv_run_open(db, &mk->mk_run[i], &run[n]);
		if (err)
			break;
		kv_run_count(db, run[n], 1);
		err = kv_leaf_check(mk, run[n]);
		n++;
		if (mk->mk_run[i].rd_pos >= kvs->k_next_pos)
			kvs->k_next_pos = mk->mk_run[i].rd_pos + 1;
	}
	ed.ed_nadd = n;
	if (!err)
		err = kv_tree_edit(kvs, NULL, &ed);
	if (err)
		while (n--)
			kv_run_put(db, run[n]);
	while (ed.ed_nbegin--)
		kv_leaf_put(leaf[ed.ed_nbegin]);
	free(run);
	free(leaf);
	return err;
}

int kv_db_load_kvs(struct kvdb *db, uint32_t from, bool with_runs)
{
	struct kv_mdc_state *st = &db->d_mdc->m_st;
	struct kvdb_kvs *kvs;
	uint32_t i;
	int err = 0;

	db->d_next_kvs_id = st->st_super.ms_next_kvs;
	atomic_store(&db->d_next_run, st->st_super.ms_next_run);
	for (i = from; i < st->st_nkvs && !err; i++) {
		const struct kv_mdc_kvs *mk = &st->st_kvs[i];

		err = kv_props_check(&mk->mk_props, mk->mk_name);
		if (!err)
			err = kv_kvs_new(db, mk->mk_id, mk->mk_name, mk->mk_horizon,
					 &mk->mk_props, &kvs);
		if (!err && with_runs)
			err = open_runs(db, kvs, mk);
	}
	return err;
}

static void free_stores(struct kvdb *db)
{
	struct kv_mdc *m = db->d_mdc;
	uint32_t i;

	for (i = 0; i < KVDB_KVS_MAX; i++)
		if (db->d_kvs[i])
			kv_kvs_free(db, db->d_kvs[i]);
	memset(db->d_kvs, 0, sizeof(db->d_kvs));
	db->d_nkvs = 0;
	while (m && m->m_dropped) {
		struct kvdb_kvs *kvs = m->m_dropped;

		m->m_dropped = kvs->k_next;
		kv_kvs_free(db, kvs);
	}
}

/* A tree retires its runs, a run its segments: each level needs a barrier of its own. */
static void retire_all(void)
{
	int i;

	for (i = 0; i < 4; i++)
		kv_retire_barrier();
}

/* Frees everything that was made, in whatever state; threads and logs are gone. */
void kv_db_detach(struct kvdb *db)
{
	kv_work_fini(db);
	kv_forest_stale(db);
	kv_retire_barrier();
	free_stores(db);
	retire_all();
	kv_runs_reap(db);
	kv_runs_fini(db);
	kv_ckpts_fini(db);
	kv_mdc_close(db);
	if (db->d_pages)
		kv_pagepool_fini(db);
	kv_readers_fini(db);
	kv_points_fini(db);
	if (db->d_slabs)
		kv_slabs_fini(db);
	kv_reloc_fini(db);
	kv_segs_fini(db);
	retire_all();
	kv_txns_fini(db);
	kv_mts_fini(db);
	if (db->d_id)
		kv_threads_fini(db);
	pthread_mutex_destroy(&db->d_cq_lock);
	pthread_mutex_destroy(&db->d_compact.cp_lock);
	pthread_mutex_destroy(&db->d_tick_lock);
	pthread_mutex_destroy(&db->d_kvs_lock);
}

static int start(struct kvdb *db)
{
	int err = kv_time_start(db);

	if (!err)
		err = kv_db_load_kvs(db, 0, true);
	if (!err)
		err = db->d_at_ckpt ? kv_ckpt_numbers(db) : kv_recover(db, db->d_rdonly);
	if (err || db->d_rdonly)
		return err;
	err = kv_logs_init(db);
	if (err)
		return err;
	err = kv_flusher_start(db);
	if (err)
		goto fail_logs;
	/* TH-11; a full pool, or a failing one, says so to whom it stops */
	if (!CHECK(664, kv_is_manual(db)))
		kv_segs_stock_step(db);
	err = kv_work_start(db);
	if (!err) {
		kv_pressure(db);	/* what was replayed counts from the first write on */
		return 0;
	}
	kv_flusher_stop(db);
fail_logs:
	kv_logs_fini(db);
	return err;
}

static int open_once(const char *pool, const struct kvdb_opts *o, struct kvdb **out)
{
	struct kvdb *db = calloc(1, sizeof(*db));
	int err;

	if (!db)
		return kv_error(-ENOMEM, "MP0902", "no memory for a database");
	err = kv_db_attach(db, pool, o, !!(o->flags & KVDB_RDONLY));
	if (!err)
		err = start(db);
	if (!err) {
		if (!(o->flags & (KVDB_RDONLY | KVDB_MANUAL | KVDB_NOCTL)))
			kv_ctl_start(db, pool);
		*out = db;
		return 0;
	}
	kv_error_memory(err, "an open database");
	kv_db_detach(db);
	if (db->d_mp)
		mpool_close(db->d_mp);
	free(db);
	return err;
}

bool kv_look_again(const struct kvdb_opts *o, int err, int *looks)
{
	const struct kvdb_clock *c = o->clock ? o->clock : &mono;

	if (!o->checkpoint || ++*looks >= LOOKS ||
	    (err != -EUCLEAN && err != -EIO && err != -ESTALE && err != -EBUSY))
		return false;
	c->sleep_until_ns(c->arg, c->now_ns(c->arg) + LOOK_NS);
	return true;
}

int kvdb_open(const char *pool, const struct kvdb_opts *opts, struct kvdb **out)
{
	struct kvdb_opts o;
	int looks = 0, err;

	err = kv_opts_take(opts, 0, &o);
	if (!err)
		err = kv_threads_ready();
	if (err)
		return err;
	do {
		err = open_once(pool, &o, out);
	} while (kv_look_again(&o, err, &looks));
	return err;
}

/* ---- close --------------------------------------------------------------------- */

/* Nothing is left in memtables: the next open reads no log. A failure only costs that open time. */
static void leave_clean(struct kvdb *db)
{
	if (!kv_segs_finish(db) && kv_mt_oldest_epoch(db) == UINT64_MAX)
		kv_mdc_clean(db, atomic_load(&db->d_durable));	/* records the time, too */
}

int kvdb_close(struct kvdb *db)
{
	int err = 0, rc;

	if (!db)
		return 0;
	kv_ctl_stop(db);
	if (!db->d_rdonly) {
		/* a drain that finds no space leaves the data in the logs, which the sync covers */
		if (!kv_fault(db))
			kvdb_drain(db, KVDB_WAIT_FLUSH);
		kv_work_stop(db);
		err = kv_fault(db) ? -EROFS : kv_epoch_sync(db);
		kv_flusher_stop(db);
		if (kv_fault(db))
			err = kv_error(-EROFS, "MP0963", "the database had stopped: %.200s",
				       db->d_fault_text);
		kv_logs_fini(db);
		retire_all();
		kv_runs_reap(db);
		if (!err)
			leave_clean(db);
	}
	kv_db_detach(db);
	rc = mpool_close(db->d_mp);
	if (rc && !err)
		err = kv_error_mpool(rc);
	free(db);
	return err;
}

/* ---- stores -------------------------------------------------------------------- */

int kv_kvs_new(struct kvdb *db, uint32_t id, const char *name, uint64_t horizon,
	       const struct kv_props *props, struct kvdb_kvs **out)
{
	struct kvdb_kvs *k = calloc(1, sizeof(*k));
	pthread_rwlockattr_t ra;
	struct kv_mt *mt = NULL;
	struct kv_tree *tr;
	uint32_t i;
	int err = k ? kv_mt_new(db, id, NULL, &mt) : -ENOMEM;

	if (err) {
		free(k);
		return err;
	}
	tr = kv_tree_new(db, mt);
	if (!tr) {
		kv_mt_put(db, mt);
		free(k);
		return -ENOMEM;
	}
	k->k_db = db;
	k->k_id = id;
	strncpy(k->k_name, name, KVDB_NAME_MAX);
	atomic_store(&k->k_tree, tr);
	atomic_store(&k->k_horizon, horizon);
	k->k_next_pos = 1;
	for (i = 0; i < KV_PROPS; i++)
		atomic_init(&k->k_prop[i], props->pr_val[i]);
	pthread_mutex_init(&k->k_tree_lock, NULL);
	pthread_mutex_init(&k->k_flush_lock, NULL);
	pthread_mutex_init(&k->k_edit_lock, NULL);
	pthread_mutex_init(&k->k_merging.mg_lock, NULL);
	pthread_rwlockattr_init(&ra);
	/* updates one after the other must not keep a delete out */
	pthread_rwlockattr_setkind_np(&ra, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&k->k_many_lock, &ra);
	pthread_rwlockattr_destroy(&ra);
	pthread_mutex_lock(&db->d_kvs_lock);
	for (i = 0; db->d_kvs[i]; i++)
		;	/* the callers see to it that one is free */
	db->d_kvs[i] = k;
	k->k_slot = i;
	db->d_nkvs++;
	/* T5: in here, for who finds it writes to it, and every later view must have it */
	atomic_fetch_add(&db->d_tree_gen, 1);
	pthread_mutex_unlock(&db->d_kvs_lock);
	kv_forest_stale(db);
	*out = k;
	return 0;
}

void kv_kvs_free(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kv_mt *next = atomic_exchange(&kvs->k_next_mt, NULL);

	if (next)
		kv_mt_put(db, next);
	kv_tree_put(db, atomic_load(&kvs->k_tree));
	pthread_mutex_destroy(&kvs->k_tree_lock);
	pthread_mutex_destroy(&kvs->k_flush_lock);
	pthread_mutex_destroy(&kvs->k_edit_lock);
	pthread_mutex_destroy(&kvs->k_merging.mg_lock);
	pthread_rwlock_destroy(&kvs->k_many_lock);
	free(kvs);
}

struct kvdb_kvs *kv_kvs_by_id(struct kvdb *db, uint32_t id)
{
	struct kvdb_kvs *k = NULL;
	uint32_t i;

	pthread_mutex_lock(&db->d_kvs_lock);
	for (i = 0; i < KVDB_KVS_MAX && !k; i++)
		if (db->d_kvs[i] && db->d_kvs[i]->k_id == id)
			k = db->d_kvs[i];
	pthread_mutex_unlock(&db->d_kvs_lock);
	return k;
}

uint64_t kv_min_horizon(struct kvdb *db)
{
	/* read first: a store that comes meanwhile has at least this horizon */
	uint64_t min = UINT64_MAX, durable = atomic_load(&db->d_durable);
	uint32_t i;

	pthread_mutex_lock(&db->d_kvs_lock);
	/* one that is not in the table yet may already have its horizon on media */
	if (db->d_kvs_coming)
		min = 0;
	for (i = 0; i < KVDB_KVS_MAX; i++) {
		if (db->d_kvs[i]) {
			uint64_t h = atomic_load(&db->d_kvs[i]->k_horizon);

			min = h < min ? h : min;
		}
	}
	pthread_mutex_unlock(&db->d_kvs_lock);
	return min == UINT64_MAX ? durable : min;
}

static struct kvdb_kvs *find_name(struct kvdb *db, const char *name)
{
	struct kvdb_kvs *k = NULL;
	uint32_t i;

	pthread_mutex_lock(&db->d_kvs_lock);
	for (i = 0; i < KVDB_KVS_MAX && !k; i++)
		if (db->d_kvs[i] && !strcmp(db->d_kvs[i]->k_name, name))
			k = db->d_kvs[i];
	pthread_mutex_unlock(&db->d_kvs_lock);
	return k;
}

bool kv_name_is_ok(const char *s)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				      "0123456789._-";
	size_t n = s ? strlen(s) : 0;

	return n && n <= KVDB_NAME_MAX && s[0] != '.' && s[0] != '-' && strspn(s, letters) == n;
}

static int check_name(const char *name)
{
	if (kv_name_is_ok(name))
		return 0;
	return kv_error(-EINVAL, "MP0951",
			"a store's name has 1 to %u of A-Z a-z 0-9 . _ - and begins with none "
			"of . -",
			KVDB_NAME_MAX);
}

int kv_may_change(struct kvdb *db)
{
	if (db->d_rdonly)
		return kv_error(-EROFS, "MP0903", "the database is open for reading only");
	if (kv_fault(db))
		return kv_error(-EROFS, "MP0963", "the database stopped: %.200s", db->d_fault_text);
	return 0;
}

int kv_change_sync(struct kvdb *db)
{
	/* without logs nothing was acknowledged */
	return db->d_flusher ? kv_error_stopped(db, BARRIER(693, kv_epoch_sync(db))) : 0;
}

static void set_coming(struct kvdb *db, bool is_coming)
{
	pthread_mutex_lock(&db->d_kvs_lock);
	db->d_kvs_coming = is_coming;
	pthread_mutex_unlock(&db->d_kvs_lock);
}

static int create_locked(struct kvdb *db, const char *name, const struct kv_props *props)
{
	struct kvdb_kvs *kvs;
	uint64_t horizon;
	int err;

	if (find_name(db, name))
		return kv_error(-EEXIST, "MP0970", "there is a store named %s", name);
	if (db->d_nkvs == KVDB_KVS_MAX)
		return kv_error(-ENOSPC, "MP0990", "a database holds at most %u stores",
				KVDB_KVS_MAX);
	/* ids are 16 bits in log records and never used again */
	if (db->d_next_kvs_id > UINT16_MAX)
		return kv_error(-ENOSPC, "MP0990", "all %u store ids were used", UINT16_MAX);
	err = kv_change_sync(db);
	if (err)
		return err;
	/* R6: the proof of epochs above its horizon stays until it is in the table */
	set_coming(db, true);
	horizon = atomic_load(&db->d_durable);
	err = kv_mdc_kvs_add(db, db->d_next_kvs_id, name, horizon, props);
	if (err) {
		set_coming(db, false);
		return err;
	}
	/* on media it is there; memory must not differ from it */
	while ((err = kv_kvs_new(db, db->d_next_kvs_id, name, horizon, props, &kvs)) == -ENOMEM &&
	       !kv_nap_for(db))
		;
	db->d_next_kvs_id++;
	set_coming(db, false);
	if (err)
		return kv_fail(db, err, "store %s was made but could not be opened", name);
	return 0;
}

int kvdb_kvs_create(struct kvdb *db, const char *name, const struct kvdb_kvs_opts *opts)
{
	struct kv_props props;
	int err = check_name(name);

	if (!err)
		err = kv_props_take(opts, KV_PROP_ALL, &props);
	if (!err)
		err = kv_may_change(db);
	if (err)
		return err;
	pthread_mutex_lock(&db->d_mdc->m_ddl_lock);
	err = create_locked(db, name, &props);
	pthread_mutex_unlock(&db->d_mdc->m_ddl_lock);
	return err;
}

int kvdb_kvs_open(struct kvdb *db, const char *name, struct kvdb_kvs **out)
{
	struct kvdb_kvs *k = name ? find_name(db, name) : NULL;

	if (!k)
		return kv_error(-ENOENT, "MP0965", "there is no store named %s", name ? name : "");
	*out = k;
	return 0;
}

/*
 * Its runs lose their durable references at once, their objects with the last reader. What is in
 * its memtables is never flushed: those that views hold count as theirs, and stop no writer.
 */
static void forget_tree(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *blank)
{
	struct kv_tree *tr = kv_tree_get(kvs);
	uint32_t i;

	for (i = 0; i < tr->tr_nmt; i++)
		atomic_store(&tr->tr_mt[i]->m_flushed, true);
	for (i = 0; i < tr->tr_nrun; i++) {
		kv_run_count(db, tr->tr_run[i], -1);
		kv_run_drop(tr->tr_run[i]);
	}
	kv_tree_put(db, tr);
	kv_tree_empty(kvs, blank);
	kv_flusher_room(db);
}

/* From now on no worker takes it up; waits for those that have. */
static void quiesce(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct timespec ts = { .tv_nsec = 1000000 };

	pthread_mutex_lock(&db->d_kvs_lock);
	kvs->k_dropped = true;
	pthread_mutex_unlock(&db->d_kvs_lock);
	while (atomic_load(&kvs->k_holds))
		nanosleep(&ts, NULL);
}

static int drop_locked(struct kvdb *db, const char *name)
{
	struct kvdb_kvs *kvs = find_name(db, name);
	struct kv_mdc *m = db->d_mdc;
	struct kv_tree *blank;
	uint32_t i;
	int err;

	if (!kvs)
		return kv_error(-ENOENT, "MP0965", "there is no store named %s", name);
	if (atomic_load(&kvs->k_cursors))
		return kv_error(-EBUSY, "MP0964",
				"store %s has an open cursor or bulk load, or an open "
				"transaction wrote to it", name);
	/* nothing that the drop needs may fail when it is durable */
	blank = kv_tree_new(db, NULL);
	if (!blank)
		return kv_error(-ENOMEM, "MP0902", "no memory for a tree");
	quiesce(db, kvs);
	err = kv_change_sync(db);
	if (!err)
		err = kv_mdc_kvs_drop(db, kvs->k_id);
	pthread_mutex_lock(&db->d_kvs_lock);
	if (err) {
		kvs->k_dropped = false;
	} else {
		for (i = 0; db->d_kvs[i] != kvs; i++)
			;
		db->d_kvs[i] = NULL;
		db->d_nkvs--;
	}
	pthread_mutex_unlock(&db->d_kvs_lock);
	if (err) {
		kv_tree_put(db, blank);
		return err;
	}
	kvs->k_next = m->m_dropped;
	m->m_dropped = kvs;
	forget_tree(db, kvs, blank);
	return 0;
}

int kvdb_kvs_drop(struct kvdb *db, const char *name)
{
	int err = kv_may_change(db);

	if (err)
		return err;
	if (!name)
		return kv_error(-EINVAL, "MP0951", "no store was named");
	pthread_mutex_lock(&db->d_mdc->m_ddl_lock);
	err = drop_locked(db, name);
	pthread_mutex_unlock(&db->d_mdc->m_ddl_lock);
	return err;
}

static int rename_locked(struct kvdb *db, const char *from, const char *to)
{
	struct kvdb_kvs *kvs = find_name(db, from);
	int err;

	if (!kvs)
		return kv_error(-ENOENT, "MP0965", "there is no store named %s", from);
	if (kvs == find_name(db, to))
		return 0;
	if (find_name(db, to))
		return kv_error(-EEXIST, "MP0970", "there is a store named %s", to);
	err = kv_change_sync(db);
	if (!err)
		err = kv_mdc_kvs_rename(db, kvs->k_id, to);
	if (err)
		return err;
	/* a message that another call makes right now may show either name */
	pthread_mutex_lock(&db->d_kvs_lock);
	memset(kvs->k_name, 0, sizeof(kvs->k_name));
	strncpy(kvs->k_name, to, KVDB_NAME_MAX);
	pthread_mutex_unlock(&db->d_kvs_lock);
	return 0;
}

int kvdb_kvs_rename(struct kvdb *db, const char *from, const char *to)
{
	int err;

	if (!from)
		return kv_error(-EINVAL, "MP0951", "no store was named");
	err = check_name(to);
	if (!err)
		err = kv_may_change(db);
	if (err)
		return err;
	pthread_mutex_lock(&db->d_mdc->m_ddl_lock);
	err = rename_locked(db, from, to);
	pthread_mutex_unlock(&db->d_mdc->m_ddl_lock);
	return err;
}

int kvdb_kvs_list(struct kvdb *db, char (*names)[KVDB_NAME_MAX + 1], unsigned max)
{
	uint32_t i;
	int n = 0;

	pthread_mutex_lock(&db->d_kvs_lock);
	for (i = 0; i < KVDB_KVS_MAX; i++) {
		if (!db->d_kvs[i])
			continue;
		if ((unsigned)n < max)
			memcpy(names[n], db->d_kvs[i]->k_name, sizeof(names[n]));
		n++;
	}
	pthread_mutex_unlock(&db->d_kvs_lock);
	return n;
}

int kvdb_dev_info(struct kvdb *db, unsigned slot, struct mpool_dev_info *out)
{
	int err = mpool_dev_info(db->d_mp, slot, out);

	return err ? kv_error_mpool(err) : 0;
}

int kvdb_info(struct kvdb *db, struct kvdb_info *out)
{
	struct kvdb_info in;
	int err;

	memset(&in, 0, sizeof(in));
	memcpy(in.uuid, db->d_uuid, 16);
	in.format_version = KV_FORMAT;
	pthread_mutex_lock(&db->d_kvs_lock);
	in.kvs = db->d_nkvs;
	pthread_mutex_unlock(&db->d_kvs_lock);
	in.interval_ms = db->d_interval_ms;
	in.commit = db->d_commit;
	in.logs = db->d_budget.b_logs;
	in.is_rdonly = db->d_rdonly || kv_fault(db);
	in.cache_bytes = db->d_budget.b_cache_bytes;
	in.log_bytes = db->d_budget.b_log_bytes;
	in.segment_bytes = db->d_budget.b_seg_bytes;
	in.space_amp_max = kv_reloc_amp_max(db);
	strncpy(in.ctl, kv_ctl_path(db), sizeof(in.ctl) - 1);
	if (kv_fault(db))
		memcpy(in.fault, db->d_fault_text, sizeof(in.fault));
	err = mpool_info(db->d_mp, &in.pool);
	if (err)
		return kv_error_mpool(err);
	*out = in;
	return 0;
}
