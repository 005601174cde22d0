/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Statistics: per-thread counters summed, and what is held now. Counters of
 * running threads are read without locks; each is a word that only its thread
 * writes. What lies in the trees is summed without sr_lock, which the flusher
 * takes for each epoch: a tree that was taken stays whole, even after a drop.
 */
#include <time.h>

#include "op/stats.h"
#include "base/stream.h"
#include "db/db.h"
#include "db/thread.h"
#include "cache/borrow.h"
#include "cache/pages.h"
#include "cache/slab.h"
#include "mem/memtable.h"
#include "run/run.h"
#include "tree/hold.h"
#include "tree/point.h"
#include "tree/tree.h"
#include "tree/view.h"
#include "meta/ckpt.h"
#include "compact/reloc.h"

static void add_thread(struct kv_tctx *tc, void *arg)
{
	struct kvdb_stats *st = arg;

	st->puts += kv_counted(&tc->tc_puts);
	st->gets += kv_counted(&tc->tc_gets);
	st->dels += kv_counted(&tc->tc_dels);
	st->seeks += kv_counted(&tc->tc_seeks);
	st->nexts += kv_counted(&tc->tc_nexts);
	st->cursors += kv_counted(&tc->tc_cursors);
	st->table_bytes += kv_counted(&tc->tc_cursor_bytes);
	st->user_write_bytes += kv_counted(&tc->tc_user_bytes);
	st->user_read_bytes += kv_counted(&tc->tc_read_bytes);
	st->value_mem += kv_counted(&tc->tc_value_mem);
	st->value_dev += kv_counted(&tc->tc_value_dev);
	st->point_hits += kv_counted(&tc->tc_point_hits);
	st->txn_begun += kv_counted(&tc->tc_begun);
	st->txn_committed += kv_counted(&tc->tc_committed);
	st->txn_aborted += kv_counted(&tc->tc_aborted);
	st->txn_conflicts += kv_counted(&tc->tc_conflicts);
	st->txn_stale += kv_counted(&tc->tc_stale);
}

static void add_seg(void *arg, struct kv_seg *s, uint64_t n, uint64_t bytes)
{
	struct kvdb_stats *st = arg;

	(void)n;
	st->live_value_bytes += bytes;
	st->space[s->sg_mclass].live_value_bytes += bytes;
}

/* The tree of the store in that place, with a reference; NULL: there is none. */
static struct kv_tree *tree_in(struct kvdb *db, uint32_t place, struct kvdb_stats *st)
{
	struct kvdb_kvs *kvs = kv_kvs_hold(db, place);
	struct kv_tree *tr = NULL;

	if (kvs) {
		tr = kv_tree_get(kvs);
		st->cursors_forgotten += atomic_load(&kvs->k_gone);
		kv_kvs_release(kvs);	/* a drop waits for it */
	}
	return tr;
}

static void add_tree(const struct kv_tree *tr, struct kvdb_stats *st)
{
	uint32_t i;

	for (i = 0; i < tr->tr_nmt; i++)
		st->keys_estimate += kv_mt_keys(tr->tr_mt[i]);
	for (i = 0; i < tr->tr_nrun; i++) {
		st->keys_estimate += kv_run_desc(tr->tr_run[i])->rd_keys;
		kv_run_segs(tr->tr_run[i], add_seg, st);
	}
	st->runs += tr->tr_nrun;
	st->leaves += tr->tr_nleaf;
	if (tr->tr_depth > st->run_depth)
		st->run_depth = tr->tr_depth;
}

static void add_stores(struct kvdb *db, struct kvdb_stats *st)
{
	for (uint32_t i = 0; i < KVDB_KVS_MAX; i++) {
		struct kv_tree *tr = tree_in(db, i, st);

		if (tr)
			add_tree(tr, st);
		kv_tree_put(db, tr);
	}
}

static void add_counters(struct kvdb *db, struct kvdb_stats *st)
{
	struct kv_counters *c = &db->d_count;

	st->syncs = atomic_load(&c->syncs);
	st->flushes = atomic_load(&c->flushes);
	st->merges = atomic_load(&c->merges);
	st->flush_rounds = atomic_load(&c->flush_rounds);
	st->spills = atomic_load(&c->spills);
	st->splits = atomic_load(&c->splits);
	st->joins = atomic_load(&c->joins);
	st->merge_keys = atomic_load(&c->merge_keys);
	st->merge_most_keys = atomic_load(&c->merge_most_keys);
	st->segments_freed = atomic_load(&c->segments_freed);
	st->scan_places = atomic_load(&c->scan_places);
	st->order_relocations = atomic_load(&c->order_relocations);
	st->order_bytes = atomic_load(&c->order_bytes);
	st->page_hits = atomic_load(&c->page_hits);
	st->page_misses = atomic_load(&c->page_misses);
	st->csum_errors = atomic_load(&c->csum_errors);
	st->rereads = atomic_load(&c->rereads);
	st->stuck = kv_troubles(db, &st->stuck_ns, NULL, 0);
	st->durability_late = atomic_load(&c->durability_late);
	st->gate_waits = atomic_load(&c->gate_waits);
	st->gate_wait_ns = atomic_load(&c->gate_wait_ns);
	st->stalls = atomic_load(&c->stalls);
	st->stall_ns = atomic_load(&c->stall_ns);
	st->skipped_records = atomic_load(&c->skipped);
	st->log_device_max_ns = atomic_load(&c->log_device_max_ns);
	kv_throttle_stats(db, st);
	for (int i = 0; i < MPOOL_MCLASSES; i++) {
		st->io[i].log_bytes = atomic_load(&c->log_bytes[i]);
		st->io[i].key_bytes = atomic_load(&c->key_bytes[i]);
		st->io[i].meta_bytes = atomic_load(&c->meta_bytes[i]);
		st->io[i].move_bytes = atomic_load(&c->move_bytes[i]);
		st->io[i].read_log_bytes = atomic_load(&c->read_bytes[KV_READ_LOG][i]);
		st->io[i].read_key_bytes = atomic_load(&c->read_bytes[KV_READ_KEY][i]);
		st->io[i].read_value_bytes = atomic_load(&c->read_bytes[KV_READ_VALUE][i]);
		st->io[i].read_move_bytes = atomic_load(&c->read_bytes[KV_READ_MOVE][i]);
		st->io[i].read_bytes = st->io[i].read_log_bytes + st->io[i].read_key_bytes +
				       st->io[i].read_value_bytes + st->io[i].read_move_bytes;
	}
}

/* Does not compile when a member of the structure is missing in the list. */
#define X(f) +sizeof(((struct kvdb_stats *)0)->f)
_Static_assert(sizeof(struct kvdb_stats) == sizeof(((struct kvdb_stats *)0)->io) +
	       sizeof(struct kvdb_recovery) + sizeof(((struct kvdb_stats *)0)->delay) +
	       sizeof(((struct kvdb_stats *)0)->space)
	       KVDB_STATS_FIELDS(X),
	       "KVDB_STATS_FIELDS in kvdb.h lists every 64-bit member of struct kvdb_stats");
#undef X
#define X(f) +sizeof(((struct kvdb_io *)0)->f)
_Static_assert(sizeof(struct kvdb_io) == 0 KVDB_IO_FIELDS(X), "so does KVDB_IO_FIELDS");
#undef X

uint64_t kv_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct seg_sums {
	struct kvdb_stats *su_st;
	uint64_t su_values[MPOOL_MCLASSES];
};

static void add_stats(void *arg, struct kv_seg *s)
{
	struct seg_sums *su = arg;

	su->su_st->space[s->sg_mclass].segment_bytes += s->sg_bytes;
	if (atomic_load(&s->sg_state) != KV_SEG_SEALED)
		return;
	if (atomic_load(&s->sg_pins) && !atomic_load(&s->sg_runs))
		su->su_st->pinned_bytes += s->sg_bytes;
	else if (s->sg_stream == KV_VLOG)
		su->su_values[s->sg_mclass] += atomic_load(&s->sg_end);
}

static void segs_stats(struct kvdb *db, struct kvdb_stats *st)
{
	struct seg_sums su = { .su_st = st };

	st->segments = kv_segs_count(db);
	kv_segs_each(db, add_stats, &su);
	kv_ckpt_stats(db, st);
	/* headers, keys and what memtables still refer to count as dead: a rough upper bound */
	for (int c = 0; c < MPOOL_MCLASSES; c++) {
		struct kvdb_space *sp = &st->space[c];

		if (su.su_values[c] > sp->live_value_bytes)
			sp->dead_value_bytes = su.su_values[c] - sp->live_value_bytes;
		st->dead_value_bytes += sp->dead_value_bytes;
	}
}

int kvdb_stats(struct kvdb *db, struct kvdb_stats *out)
{
	struct kvdb_stats st = { .cache_bytes = db->d_budget.b_cache_bytes,
				 .recovery = db->d_opened.on_recovery,
				 .cpu_ns = kv_cpu_ns() - db->d_opened.on_cpu_ns };

	kv_tctx_each(db, add_thread, &st);
	add_counters(db, &st);
	add_stores(db, &st);
	st.memtable_bytes = atomic_load(&db->d_count.mt_mem);
	/* of all runs, those included that only a cursor or a view keeps */
	st.index_bytes = atomic_load(&db->d_count.index_mem);
	st.epoch = atomic_load(&db->d_epochs.ep_open);
	st.durable_epoch = atomic_load(&db->d_epochs.ep_durable);
	segs_stats(db, &st);
	kv_reloc_stats(db, &st);
	st.window_bytes = kv_slab_window_bytes(db);
	st.page_bytes = kv_slab_page_bytes(db) + kv_borrow_bytes(db);
	kv_views_stats(db, &st);
	kv_holds_stats(db, &st);
	st.spare_bytes = kv_slab_spare_bytes(db);
	st.spare_bytes += atomic_load(&db->d_count.mt_free);
	st.table_bytes += kv_pagepool_table_bytes(db) + kv_points_bytes(db) +
			  st.segments * sizeof(struct kv_seg) +
			  atomic_load(&db->d_cache.cc_scan_bytes) +
			  atomic_load(&db->d_count.move_mem) +
			  atomic_load(&db->d_count.txn_mem);
	st.memory_bytes = st.memtable_bytes + st.window_bytes + st.page_bytes + st.index_bytes +
			  st.spare_bytes + st.table_bytes;
	*out = st;
	return 0;
}
