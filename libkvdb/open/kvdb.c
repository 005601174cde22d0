/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Life of a database: create, open, close, drop.
 *
 * Order at open: number, pool and lease, metadata container, budget, memory, segment
 * table, stores and runs, recovery, logs, flusher, workers; at close the
 * reverse, after everything is durable.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/error.h"
#include "base/guard.h"
#include "db/thread.h"
#include "db/waits.h"
#include "cache/load.h"
#include "cache/slab.h"
#include "mem/memtable.h"
#include "run/run.h"
#include "tree/hold.h"
#include "tree/leaf.h"
#include "tree/point.h"
#include "log/flush.h"
#include "meta/ckpt.h"
#include "meta/edit.h"
#include "meta/mdc.h"
#include "meta/upkeep.h"
#include "compact/reloc.h"
#include "background/work.h"
#include "txn/txn.h"
#include "op/stats.h"
#include "op/store.h"
#include "ctl/ctl.h"
#include "open/create.h"
#include "open/open.h"
#include "open/recover.h"

#define NSEC		1000000000ull
#define INTERVAL_MS	100u	/* default loss bound */
#define LOOKS		15	/* at a checkpoint of a database in use */
#define LOOK_NS		20000000
#define VIEW_MAX_AGE_MS	300000u
#define CLOSE_FLUSH_NS	500000000ull	/* a close flushes no longer */

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

const struct kvdb_clock *kv_opts_clock(const struct kvdb_opts *o)
{
	return o->clock ? o->clock : &mono;
}

int kv_opts_take(const struct kvdb_opts *in, uint32_t flags, struct kvdb_opts *o)
{
	const struct kvdb_opts none = KVDB_OPTS_INIT;

	/* read the size first: the caller's structure may be shorter than this one */
	if (in && in->size != sizeof(*in))
		return kv_error(-EINVAL, "MP0951", "kvdb_opts.size is %zu, wanted %zu", in->size,
				sizeof(*in));
	*o = in ? *in : none;
	/* a check makes nothing, whatever else the caller opens with the same options */
	if (flags & KVDB_RDONLY)
		o->flags &= ~KVDB_CREATE;
	o->flags |= flags;
	if (o->flags & ~(KVDB_RDONLY | KVDB_MANUAL | KVDB_NOCTL | KVDB_TIME_JUMP |
			 KVDB_PREFAULT | KVDB_CREATE | KVDB_SMALL) ||
	    o->commit > 1)
		return kv_error(-EINVAL, "MP0951", "kvdb_opts has unknown flags");
	if (o->flags & KVDB_CREATE && o->flags & KVDB_RDONLY)
		return kv_error(-EINVAL, "MP0951", "with KVDB_RDONLY nothing is made");
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

static uint8_t log_class(struct mpool *mp)
{
	struct mpool_info pi;

	if (mpool_info(mp, &pi) || !pi.cls[MPOOL_STAGING].devs)
		return MPOOL_CAPACITY;
	return MPOOL_STAGING;
}

/* ---- create, drop ------------------------------------------------------------------------ */

/* Deletes what a removed database left: objects with our mark that no container owns. */
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
	if (mpool_random(s->ms_uuid, 16))
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
	err = mpool_begin(mp);
	if (err)
		return kv_error_mpool(err);
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
	rc = mpool_begin(mp);
	if (!rc)
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
	struct kv_limits *lim = &db->d_opened.on_limits;
	int err = kv_limits_read(db->d_mp, lim);

	if (err)
		return err;
	if (!o.segment_bytes)
		o.segment_bytes = db->d_mdc->m_st.st_super.ms_seg_bytes;
	err = kv_budget(&o, lim, &db->d_budget);
	/* what create asked for need not fit into the memory of this machine */
	if (err && !in->segment_bytes)
		err = kv_budget(in, lim, &db->d_budget);
	return err;
}

int kv_db_attach(struct kvdb *db, const char *pool, const struct kvdb_opts *o, bool is_rdonly)
{
	int err;

	pthread_mutex_init(&db->d_epochs.ep_tick_lock, NULL);
	pthread_mutex_init(&db->d_stores.sr_lock, NULL);
	pthread_mutex_init(&db->d_cqs.qs_lock, NULL);
	pthread_mutex_init(&db->d_fault.fa_lock, NULL);
	pthread_mutex_init(&db->d_troubles.tl_lock, NULL);
	pthread_mutex_init(&db->d_runs.ru_near.ne_lock, NULL);
	pthread_cond_init(&db->d_runs.ru_near.ne_came, NULL);
	pthread_mutex_init(&db->d_bg.bd_compact.cp_lock, NULL);
	db->d_hooks = &kv_hooks;
	db->d_opened.on_cpu_ns = kv_cpu_ns();
	db->d_mode.md_flags = o->flags;
	db->d_mode.md_interval_ms = o->interval_ms;
	db->d_mode.md_commit = o->commit;
	db->d_mode.md_view_max_age_ms = o->view_max_age_ms;
	db->d_mode.md_rdonly = is_rdonly;
	db->d_opened.on_rollback = o->rollback;
	db->d_time.et_clock = o->clock ? *o->clock : mono;
	db->d_time.et_is_system = !o->clock;
	/* before anything is read: a thread finds its context by the number that this gives */
	err = kv_threads_init(db);
	if (!err)
		err = kv_pool_open(pool, o, is_rdonly, &db->d_mp);
	if (err)
		return err;
	db->d_mode.md_log_class = log_class(db->d_mp);
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
		err = kv_holds_init(db);
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
	if (!err) {
		pthread_mutex_lock(&kvs->k_edit_lock);
		err = kv_tree_edit(kvs, NULL, &ed);
		pthread_mutex_unlock(&kvs->k_edit_lock);
	}
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

	db->d_stores.sr_next_id = st->st_super.ms_next_kvs;
	atomic_store(&db->d_runs.ru_next, st->st_super.ms_next_run);
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
		if (db->d_stores.sr_kvs[i])
			kv_kvs_free(db, db->d_stores.sr_kvs[i]);
	memset(db->d_stores.sr_kvs, 0, sizeof(db->d_stores.sr_kvs));
	db->d_stores.sr_n = 0;
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
	if (db->d_cache.cc_pages)
		kv_pagepool_fini(db);
	kv_readers_fini(db);
	kv_points_fini(db);
	if (db->d_cache.cc_slabs)
		kv_slabs_fini(db);
	kv_reloc_fini(db);
	kv_segs_fini(db);
	retire_all();
	kv_holds_fini(db);
	kv_txns_fini(db);
	kv_mts_fini(db);
	if (db->d_threads.dt_id)
		kv_threads_fini(db);
	pthread_mutex_destroy(&db->d_cqs.qs_lock);
	pthread_mutex_destroy(&db->d_fault.fa_lock);
	pthread_mutex_destroy(&db->d_troubles.tl_lock);
	pthread_cond_destroy(&db->d_runs.ru_near.ne_came);
	pthread_mutex_destroy(&db->d_runs.ru_near.ne_lock);
	pthread_mutex_destroy(&db->d_bg.bd_compact.cp_lock);
	pthread_mutex_destroy(&db->d_epochs.ep_tick_lock);
	pthread_mutex_destroy(&db->d_stores.sr_lock);
}

int kv_db_start(struct kvdb *db)
{
	int err = kv_time_start(db, db->d_mdc->m_st.st_time);

	if (!err)
		err = kv_db_load_kvs(db, 0, true);
	if (!err)
		err = db->d_mode.md_at_ckpt ? kv_ckpt_numbers(db) :
		      kv_recover(db, db->d_mode.md_rdonly ? KV_RECOVER_READ : KV_RECOVER_WRITE);
	if (err || db->d_mode.md_rdonly)
		return err;
	err = kv_logs_init(db);
	if (err)
		return err;
	err = kv_flusher_start(db);
	if (err)
		goto fail_logs;
	/* TH-11; a full pool, or a failing one, says so to the call that it stops */
	if (!CHECK(kv_is_manual(db)))
		kv_segs_stock_step(db);
	err = kv_work_start(db);
	if (!err) {
		kv_pressure(db);	/* what was replayed counts from the first write on */
		return 0;
	}
	kv_flusher_stop(db);
fail_logs:
	kv_large_drop_ready(db);
	kv_logs_fini(db);
	return err;
}

/* What an open reads of the pool and the container it reads itself. */
static int attach(struct kvdb *db, const char *pool, const struct kvdb_opts *o)
{
	uint64_t began = kv_wait_begin();
	int err = kv_db_attach(db, pool, o, !!(o->flags & KVDB_RDONLY));

	kv_wait_end(KVDB_DELAY_MEDIA, began);
	return err;
}

static int open_once(const char *pool, const struct kvdb_opts *o, struct kvdb **out)
{
	struct kvdb *db = calloc(1, sizeof(*db));
	int err;

	if (!db)
		return kv_error(-ENOMEM, "MP0902", "no memory for a database");
	err = attach(db, pool, o);
	if (!err)
		err = kv_db_start(db);
	if (!err) {
		if (!(o->flags & (KVDB_RDONLY | KVDB_MANUAL | KVDB_NOCTL | KVDB_SMALL)))
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

bool kv_open_should_retry(const struct kvdb_opts *o, int err, int *looks)
{
	const struct kvdb_clock *c = kv_opts_clock(o);

	if (!o->checkpoint || ++*looks >= LOOKS ||
	    (err != -EUCLEAN && err != -EIO && err != -ESTALE && err != -EBUSY))
		return false;
	c->sleep_until_ns(c->arg, c->now_ns(c->arg) + LOOK_NS);
	return true;
}

int kvdb_open(const char *pool, const struct kvdb_opts *opts, struct kvdb **out)
{
	struct kv_making making = { .tries = 0 };
	struct kvdb_opts o;
	int looks = 0, err;

	err = kv_opts_take(opts, 0, &o);
	if (!err)
		err = kv_threads_ready();
	if (err)
		return err;
	do {
		err = open_once(pool, &o, out);
	} while (kv_open_should_retry(&o, err, &looks) ||
		 (err && kv_open_should_make(pool, &o, &err, &making)));
	if (!err)
		(*out)->d_opened.on_is_made = making.has_made;
	return err;
}

/* ---- close --------------------------------------------------------------------- */

/* Nothing is left in memtables: the next open reads no log. A failure only costs that open time. */
static void leave_clean(struct kvdb *db)
{
	if (!kv_segs_finish(db) && kv_mt_oldest_epoch(db) == UINT64_MAX)
		/* records the time, too */
		kv_mdc_clean(db, atomic_load(&db->d_epochs.ep_durable));
}

static int check_closed(const struct kvdb_kvs *kvs)
{
	/* in this order: what loses its snapshot counts as gone first */
	uint32_t open = atomic_load(&kvs->k_cursors), gone = atomic_load(&kvs->k_gone);

	if (open || gone)
		return kv_error(-EBUSY, "MP0964", "store %s has an open cursor or bulk load: "
				"%u in use, %u whose snapshot was given up", kvs->k_name, open,
				gone);
	return 0;
}

/* Handles that are closed after their database would use freed memory. */
static int check_unused(struct kvdb *db)
{
	uint64_t views = atomic_load(&db->d_trees.te_open_views->ov_n);
	struct kvdb_kvs *k;
	int err = 0;

	if (views)
		return kv_error(-EBUSY, "MP0964", "%llu transactions are open",
				(unsigned long long)views);
	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (uint32_t i = 0; i < KVDB_KVS_MAX && !err; i++)
		err = db->d_stores.sr_kvs[i] ? check_closed(db->d_stores.sr_kvs[i]) : 0;
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	/* a drop does not wait for cursors that show nothing any more */
	if (db->d_mdc) {
		pthread_mutex_lock(&db->d_mdc->m_ddl_lock);
		for (k = db->d_mdc->m_dropped; k && !err; k = k->k_next)
			err = check_closed(k);
		pthread_mutex_unlock(&db->d_mdc->m_ddl_lock);
	}
	return err;
}

int kvdb_close(struct kvdb *db)
{
	int err = db ? check_unused(db) : 0, rc;
	uint64_t began;

	if (!db || err)
		return err;
	kv_ctl_stop(db);
	if (!db->d_mode.md_rdonly) {
		/* what finds no space, or no time, stays in the logs, which the sync covers */
		atomic_store(&db->d_bg.bd_close_ns, kv_now(db) + CLOSE_FLUSH_NS);
		if (!kv_fault(db))
			kvdb_drain(db, KVDB_WAIT_FLUSH);
		kv_work_stop(db);
		err = kv_fault(db) ? -EROFS : kv_epoch_sync(db);
		kv_flusher_stop(db);
		if (kv_fault(db))
			err = kv_error(-EROFS, "MP0963", "the database had stopped: %.200s",
				       db->d_fault.fa_text);
		kv_large_drop_ready(db);
		kv_logs_fini(db);
		retire_all();
		kv_runs_reap(db);
		if (!err)
			leave_clean(db);
	}
	kv_db_detach(db);
	began = kv_wait_begin();
	rc = mpool_close(db->d_mp);
	kv_wait_end(KVDB_DELAY_MEDIA, began);
	if (rc && !err)
		err = kv_error_mpool(rc);
	free(db);
	return err;
}
