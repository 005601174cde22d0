/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Life of the stores of an open database: create, open, rename, drop, describe. A store that is
 * dropped leaves the table at once; its memory stays until the database is closed, because a
 * worker may still look at it (D1).
 *
 * Locks: m_ddl_lock (outermost) for create and drop of stores; sr_lock for the table, never
 * across I/O. Options change under m_ddl_lock; readers load k_prop[] without one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "op/store.h"
#include "base/error.h"
#include "db/mem_wait.h"
#include "mem/memtable.h"
#include "mem/tomb.h"
#include "run/run.h"
#include "tree/gap.h"
#include "tree/tomb_view.h"
#include "tree/tree.h"
#include "log/flush.h"
#include "meta/edit.h"
#include "meta/mdc.h"
#include "compact/reloc.h"
#include "txn/txn.h"

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
	pthread_mutex_init(&k->k_sub_lock, NULL);
	pthread_mutex_init(&k->k_merging.mg_lock, NULL);
	pthread_rwlockattr_init(&ra);
	/* a stream of updates must not starve a delete */
	pthread_rwlockattr_setkind_np(&ra, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&k->k_many_lock, &ra);
	pthread_rwlockattr_destroy(&ra);
	kv_gaps_init(&k->k_gaps);
	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (i = 0; db->d_stores.sr_kvs[i]; i++)
		;	/* the callers see to it that one is free */
	db->d_stores.sr_kvs[i] = k;
	k->k_slot = i;
	db->d_stores.sr_n++;
	/* T5: in here: a thread that finds it may write, and each later view must have it */
	atomic_fetch_add(&db->d_trees.te_gen, 1);
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	kv_forest_stale(db);
	*out = k;
	return 0;
}

void kv_kvs_free(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct kv_mt *next = atomic_exchange(&kvs->k_next_mt, NULL);

	if (next)
		kv_mt_put(db, next);
	kv_trouble_end(db, &kvs->k_flush_trouble);
	kv_trouble_end(db, &kvs->k_merging.mg_trouble);
	kv_tree_put(db, atomic_load(&kvs->k_tree));
	pthread_mutex_destroy(&kvs->k_tree_lock);
	pthread_mutex_destroy(&kvs->k_flush_lock);
	pthread_mutex_destroy(&kvs->k_edit_lock);
	pthread_mutex_destroy(&kvs->k_sub_lock);
	pthread_mutex_destroy(&kvs->k_merging.mg_lock);
	pthread_rwlock_destroy(&kvs->k_many_lock);
	kv_gaps_fini(&kvs->k_gaps);
	free(kvs);
}

static struct kvdb_kvs *find_name(struct kvdb *db, const char *name)
{
	struct kvdb_kvs *k = NULL;
	uint32_t i;

	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (i = 0; i < KVDB_KVS_MAX && !k; i++)
		if (db->d_stores.sr_kvs[i] && !strcmp(db->d_stores.sr_kvs[i]->k_name, name))
			k = db->d_stores.sr_kvs[i];
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	return k;
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

static void set_coming(struct kvdb *db, bool is_coming)
{
	pthread_mutex_lock(&db->d_stores.sr_lock);
	db->d_stores.sr_coming = is_coming;
	pthread_mutex_unlock(&db->d_stores.sr_lock);
}

static int create_locked(struct kvdb *db, const char *name, const struct kv_props *props)
{
	struct kvdb_kvs *kvs;
	uint64_t horizon;
	int err;

	if (find_name(db, name))
		return kv_error(-EEXIST, "MP0970", "there is a store named %s", name);
	if (db->d_stores.sr_n == KVDB_KVS_MAX)
		return kv_error(-EDQUOT, "MP0990", "a database holds at most %u stores",
				KVDB_KVS_MAX);
	/* ids are 16 bits in log records and never used again */
	if (db->d_stores.sr_next_id > UINT16_MAX)
		return kv_error(-EDQUOT, "MP0990", "all %u store ids were used", UINT16_MAX);
	err = kv_change_sync(db);
	if (err)
		return err;
	/* R6: the proof of epochs above its horizon stays until it is in the table */
	set_coming(db, true);
	horizon = atomic_load(&db->d_epochs.ep_durable);
	err = kv_mdc_kvs_add(db, db->d_stores.sr_next_id, name, horizon, props);
	if (err) {
		set_coming(db, false);
		return err;
	}
	/* on media it is there; memory must not differ from it */
	while ((err = kv_kvs_new(db, db->d_stores.sr_next_id, name, horizon, props, &kvs)) ==
	       -ENOMEM && !kv_sleep_or_stop(db))
		;
	db->d_stores.sr_next_id++;
	set_coming(db, false);
	if (!err)
		return 0;
	kv_fail(db, err, "store %s was made but could not be opened", name);
	return kv_error_unknown(db);
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
		kv_mt_flushed(tr->tr_mt[i]);
	for (i = 0; i < tr->tr_nrun; i++) {
		kv_run_count(db, tr->tr_run[i], -1);
		kv_run_drop(tr->tr_run[i]);
	}
	kv_tree_put(db, tr);
	kv_tree_empty(kvs, blank);
	kv_flusher_room(db);
}

/* T11: holds of dead transactions are counted first: these only get fewer. */
static bool is_held(struct kvdb *db, struct kvdb_kvs *kvs)
{
	uint32_t held = kv_txns_dead_holds(db, kvs);

	return atomic_load(&kvs->k_cursors) > held;
}

static int in_use(const struct kvdb_kvs *kvs)
{
	return kv_error(-EBUSY, "MP0964", "store %s has an open cursor or bulk load, or an open "
			"transaction wrote to it", kvs->k_name);
}

static void set_dropped(struct kvdb *db, struct kvdb_kvs *kvs, bool is)
{
	pthread_mutex_lock(&db->d_stores.sr_lock);
	kvs->k_dropped = is;
	pthread_mutex_unlock(&db->d_stores.sr_lock);
}

/*
 * D1: from now on no worker takes it up, and no write begins in it; waits for those that have. A
 * write that sleeps finds out when it goes on. -EBUSY: what holds a store came meanwhile.
 */
static int quiesce(struct kvdb *db, struct kvdb_kvs *kvs)
{
	struct timespec ts = { .tv_nsec = 1000000 };

	set_dropped(db, kvs, true);
	/* pairs with kv_kvs_use(): one of both sees the other */
	if (is_held(db, kvs)) {
		set_dropped(db, kvs, false);
		return in_use(kvs);
	}
	while (atomic_load(&kvs->k_holds))
		nanosleep(&ts, NULL);
	kv_retire_barrier();
	return 0;
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
	if (is_held(db, kvs))
		return in_use(kvs);
	/* nothing that the drop needs may fail when it is durable */
	blank = kv_tree_new(db, NULL);
	if (!blank)
		return kv_error(-ENOMEM, "MP0902", "no memory for a tree");
	err = quiesce(db, kvs);
	if (err) {
		kv_tree_put(db, blank);
		return err;
	}
	err = kv_change_sync(db);
	if (!err)
		err = kv_mdc_kvs_drop(db, kvs->k_id);
	pthread_mutex_lock(&db->d_stores.sr_lock);
	if (err) {
		kvs->k_dropped = false;
	} else {
		for (i = 0; db->d_stores.sr_kvs[i] != kvs; i++)
			;
		db->d_stores.sr_kvs[i] = NULL;
		db->d_stores.sr_n--;
	}
	pthread_mutex_unlock(&db->d_stores.sr_lock);
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
	pthread_mutex_lock(&db->d_stores.sr_lock);
	memset(kvs->k_name, 0, sizeof(kvs->k_name));
	strncpy(kvs->k_name, to, KVDB_NAME_MAX);
	pthread_mutex_unlock(&db->d_stores.sr_lock);
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

	pthread_mutex_lock(&db->d_stores.sr_lock);
	for (i = 0; i < KVDB_KVS_MAX; i++) {
		if (!db->d_stores.sr_kvs[i])
			continue;
		if ((unsigned)n < max)
			memcpy(names[n], db->d_stores.sr_kvs[i]->k_name, sizeof(names[n]));
		n++;
	}
	pthread_mutex_unlock(&db->d_stores.sr_lock);
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
	memcpy(in.uuid, db->d_ident.id_uuid, 16);
	in.format_version = KV_FORMAT;
	pthread_mutex_lock(&db->d_stores.sr_lock);
	in.kvs = db->d_stores.sr_n;
	pthread_mutex_unlock(&db->d_stores.sr_lock);
	in.interval_ms = db->d_mode.md_interval_ms;
	in.commit = db->d_mode.md_commit;
	in.logs = db->d_budget.b_logs;
	in.is_rdonly = db->d_mode.md_rdonly || kv_fault(db);
	in.cache_bytes = db->d_budget.b_cache_bytes;
	in.log_bytes = db->d_budget.b_log_bytes;
	in.segment_bytes = db->d_budget.b_seg_bytes;
	in.space_amp_max = kv_reloc_amp_max(db);
	if (db->d_opened.on_ctl_path)
		strncpy(in.ctl, db->d_opened.on_ctl_path, sizeof(in.ctl) - 1);
	if (kv_fault(db))
		memcpy(in.fault, db->d_fault.fa_text, sizeof(in.fault));
	in.ram_bytes = db->d_opened.on_limits.l_ram_bytes;
	in.cores = db->d_opened.on_limits.l_cores;
	in.is_made = db->d_opened.on_is_made;
	in.stuck = kv_troubles(db, &in.stuck_ns, in.stuck_text, sizeof(in.stuck_text));
	err = mpool_info(db->d_mp, &in.pool);
	if (err)
		return kv_error_mpool(err);
	*out = in;
	return 0;
}

int kvdb_kvs_info(struct kvdb_kvs *kvs, struct kvdb_kvs_info *out)
{
	struct kvdb_kvs_info in;
	struct kv_tree *tr;
	uint32_t i;

	memset(&in, 0, sizeof(in));
	pthread_mutex_lock(&kvs->k_db->d_stores.sr_lock);	/* not half of a rename */
	memcpy(in.name, kvs->k_name, sizeof(in.name));
	pthread_mutex_unlock(&kvs->k_db->d_stores.sr_lock);
	in.id = kvs->k_id;
	in.pfx_len = (uint32_t)atomic_load(&kvs->k_prop[KV_PROP_PFX_LEN]);
	in.policy = (uint32_t)atomic_load(&kvs->k_prop[KV_PROP_POLICY]);
	in.compress = (uint32_t)atomic_load(&kvs->k_prop[KV_PROP_COMPRESS]);
	in.ttl_s = atomic_load(&kvs->k_prop[KV_PROP_TTL]);
	tr = kv_tree_get(kvs);
	in.runs = tr->tr_nrun;
	in.memtables = tr->tr_nmt;
	for (i = 0; i < tr->tr_nmt; i++)
		in.keys_estimate += kv_mt_keys(tr->tr_mt[i]);
	for (i = 0; i < tr->tr_nrun; i++) {
		in.keys_estimate += kv_run_desc(tr->tr_run[i])->rd_keys;
		in.key_bytes += kv_run_bytes(tr->tr_run[i]);
	}
	for (i = 0; i < tr->tr_nmt; i++)
		in.range_tombs += kv_mt_tombs(tr->tr_mt[i]);
	for (i = 0; i < tr->tr_nrun; i++)
		in.range_tombs += tr->tr_run[i]->rn_tindex ? tr->tr_run[i]->rn_tindex->ti_n : 0;
	in.covered_keys = kv_tombs_garbage(tr->tr_run, tr->tr_nrun, tr->tr_nrun);
	kv_tree_put(kvs->k_db, tr);
	*out = in;
	return 0;
}

int kvdb_kvs_set(struct kvdb_kvs *kvs, const struct kvdb_kvs_opts *opts, unsigned mask)
{
	struct kvdb *db = kvs->k_db;
	struct kv_props p;
	uint32_t which = 0;
	int err;

	if (!opts || !mask || (mask & ~(KVDB_KVS_TTL | KVDB_KVS_POLICY | KVDB_KVS_COMPRESS)))
		return kv_error(-EINVAL, "MP0951", "%s: options %#x cannot be set", kvs->k_name,
				mask);
	which |= mask & KVDB_KVS_TTL ? KV_PROP_BIT(KV_PROP_TTL) : 0;
	which |= mask & KVDB_KVS_POLICY ? KV_PROP_BIT(KV_PROP_POLICY) : 0;
	which |= mask & KVDB_KVS_COMPRESS ? KV_PROP_BIT(KV_PROP_COMPRESS) : 0;
	err = kv_props_take(opts, which, &p);
	if (!err)
		err = kv_may_change(db);
	if (err)
		return err;
	/* a name of a sub-store that is being written must not get the new time to live */
	pthread_mutex_lock(&kvs->k_sub_lock);
	pthread_mutex_lock(&db->d_mdc->m_ddl_lock);
	err = kv_change_sync(db);
	if (!err)
		err = kv_mdc_kvs_prop(db, kvs->k_id, &p, which);
	for (unsigned i = 1; i < KV_PROPS && !err; i++)
		if (which & KV_PROP_BIT(i))
			atomic_store(&kvs->k_prop[i], p.pr_val[i]);
	pthread_mutex_unlock(&db->d_mdc->m_ddl_lock);
	pthread_mutex_unlock(&kvs->k_sub_lock);
	return err;
}
