/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Transactions: begin, put, delete, get, commit, abort. Snapshot isolation,
 * first writer wins.
 *
 * A write set is private until the commit: writes in the order of their first
 * touch, found by hash. A write owns its key from the moment that put returns
 * (keylock.c), and is refused when another transaction owns it or committed it after
 * the transaction's view (R14). Values that do not lie with their key go to
 * the value log at once; the commit record refers to them (R5).
 *
 * One thread at a time uses a transaction. Its cursors keep it in memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "txn/batch.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/hash.h"
#include "db/thread.h"
#include "cache/load.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/memtable.h"
#include "run/run.h"
#include "tree/leaf.h"
#include "tree/tomb_view.h"
#include "log/flush.h"
#include "read/find.h"
#include "txn/txn_omf.h"

#define CHUNK_MIN	4096u
#define CHUNK_MAX	(256u << 10)
#define FEW		8u	/* writes that are found by walking the list */
#define MEM_FREE	(256u << 10)

/* ---- life of the machinery ------------------------------------------------------- */

int kv_txns_init(struct kvdb *db)
{
	struct kv_txns *tx = calloc(1, sizeof(*tx));

	if (!tx)
		return -ENOMEM;
	pthread_mutex_init(&tx->tx_open_views.ov_lock, NULL);
	pthread_mutex_init(&tx->tx_open_views.ov_forest_lock, NULL);
	pthread_mutex_init(&tx->tx_slot_lock, NULL);
	pthread_mutex_init(&tx->tx_tickets.td_lock, NULL);
	pthread_mutex_init(&tx->tx_bulk_lock, NULL);
	pthread_mutex_init(&tx->tx_batch_lock, NULL);
	pthread_mutex_init(&tx->tx_again_lock, NULL);
	atomic_init(&tx->tx_record_max, KV_COMMIT_MAX);
	tx->tx_tickets.td_tail = &tx->tx_tickets.td_first;
	db->d_txns = tx;
	db->d_trees.te_open_views = &tx->tx_open_views;
	db->d_epochs.ep_tickets = &tx->tx_tickets;
	return kv_keylocks_init(db);
}

void kv_txns_fini(struct kvdb *db)
{
	struct kv_txns *tx = db->d_txns;
	struct kv_tslot *ts;

	if (!tx)
		return;
	KV_ASSERT(!atomic_load(&tx->tx_open_views.ov_n) && !atomic_load(&db->d_mem.mm_owners));
	kv_durable_run(db, true);
	while ((ts = tx->tx_slots)) {
		tx->tx_slots = ts->ts_next;
		free(ts);
	}
	kv_keylocks_fini(db);
	pthread_mutex_destroy(&tx->tx_open_views.ov_lock);
	pthread_mutex_destroy(&tx->tx_open_views.ov_forest_lock);
	pthread_mutex_destroy(&tx->tx_slot_lock);
	pthread_mutex_destroy(&tx->tx_tickets.td_lock);
	pthread_mutex_destroy(&tx->tx_bulk_lock);
	pthread_mutex_destroy(&tx->tx_batch_lock);
	pthread_mutex_destroy(&tx->tx_again_lock);
	free(tx);
	db->d_txns = NULL;
	db->d_trees.te_open_views = NULL;
	db->d_epochs.ep_tickets = NULL;
}

/* ---- memory of one --------------------------------------------------------------- */

void kv_txn_mem_add(struct kvdb_txn *t, uint64_t bytes)
{
	atomic_fetch_add_explicit(&t->t_db->d_count.txn_mem, bytes, memory_order_relaxed);
	t->t_mem_bytes += bytes;
}

/* May its memory grow so much? T16; the first of it is every transaction's. */
static int mem_check(struct kvdb_txn *t, uint64_t bytes)
{
	struct kvdb *db = t->t_db;
	uint64_t most = atomic_load(&db->d_budget.b_txn_bytes);
	uint64_t all = atomic_load(&db->d_count.txn_mem);

	if (t->t_mem_bytes + bytes <= MEM_FREE || CHECK(all + bytes <= most))
		return 0;
	return kv_error(-EFBIG, "MP0925", "%llu writes of the transaction take %llu bytes; those "
			"of all open transactions together may take %llu, which follows from "
			"cache_bytes and log_bytes", (unsigned long long)t->t_n,
			(unsigned long long)t->t_mem_bytes, (unsigned long long)most);
}

int kv_txn_mem_room(struct kvdb_txn *t, uint64_t bytes)
{
	return mem_check(t, bytes);
}

void *kv_txn_alloc(struct kvdb_txn *t, uint32_t bytes)
{
	struct kv_txn_chunk *ch = t->t_chunk;
	uint32_t size;
	void *p;

	KV_ASSERT(!t->t_ended && t->t_used <= sizeof(t->t_mem));
	bytes = kv_pad8(bytes);
	if (t->t_used + bytes <= sizeof(t->t_mem)) {
		p = t->t_mem + t->t_used;
		t->t_used += bytes;
		return p;
	}
	if (!ch || ch->tc_used + bytes > ch->tc_size) {
		size = !ch ? CHUNK_MIN : ch->tc_size < CHUNK_MAX ? ch->tc_size * 2 : CHUNK_MAX;
		ch = malloc(sizeof(*ch) + (size > bytes ? size : bytes));
		if (!ch)
			return NULL;
		ch->tc_size = size > bytes ? size : bytes;
		ch->tc_used = 0;
		kv_txn_mem_add(t, sizeof(*ch) + ch->tc_size);
		ch->tc_next = t->t_chunk;
		t->t_chunk = ch;
	}
	p = ch->tc_mem + ch->tc_used;
	ch->tc_used += bytes;
	return p;
}

struct kvdb_txn *kv_txn_get(struct kvdb_txn *t)
{
	KV_ASSERT(atomic_load(&t->t_refs));
	atomic_fetch_add(&t->t_refs, 1);
	return t;
}

void kv_txn_put(struct kvdb_txn *t)
{
	struct kv_txn_chunk *ch;

	KV_ASSERT(atomic_load(&t->t_refs));
	if (atomic_fetch_sub(&t->t_refs, 1) != 1)
		return;
	KV_ASSERT(t->t_ended);
	for (uint32_t i = 0; i < t->t_nseg; i++)
		kv_seg_put(t->t_db, t->t_seg[i]);
	for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next)
		free(tt->tt_del);
	while ((ch = t->t_chunk)) {
		t->t_chunk = ch->tc_next;
		free(ch);
	}
	atomic_fetch_sub_explicit(&t->t_db->d_count.txn_mem, t->t_mem_bytes, memory_order_relaxed);
	free(t->t_part);
	free(t->t_seg);
	free(t->t_table);
	free(t);
}

/* ---- the write set --------------------------------------------------------------- */

static bool is_of(const struct kv_write *w, const struct kvdb_kvs *kvs, const void *key,
		  size_t klen, uint64_t hash)
{
	return w->w_lock.kl_hash == hash && w->w_lock.kl_kvs == kvs->k_id &&
	       w->w_lock.kl_klen == klen && !memcmp(w->w_lock.kl_key, key, klen);
}

struct kv_write *kv_txn_find(struct kvdb_txn *t, struct kvdb_kvs *kvs, const void *key,
			     size_t klen, uint64_t hash)
{
	struct kv_write *w;

	if (!t->t_table) {
		for (w = t->t_first; w && !is_of(w, kvs, key, klen, hash); w = w->w_next)
			;
		return w;
	}
	for (uint32_t i = (uint32_t)hash & (t->t_slots - 1); (w = t->t_table[i]);
	     i = (i + 1) & (t->t_slots - 1))
		if (is_of(w, kvs, key, klen, hash))
			return w;
	return NULL;
}

static void table_add(struct kvdb_txn *t, struct kv_write *w)
{
	uint32_t i = (uint32_t)w->w_lock.kl_hash & (t->t_slots - 1);

	KV_ASSERT(t->t_n < t->t_slots);
	while (t->t_table[i])
		i = (i + 1) & (t->t_slots - 1);
	t->t_table[i] = w;
}

static int table_grow(struct kvdb_txn *t, uint32_t slots)
{
	struct kv_write **old = t->t_table, **p = calloc(slots, sizeof(*p));

	KV_ASSERT(slots > t->t_slots);
	if (!p)
		return -ENOMEM;
	kv_txn_mem_add(t, (uint64_t)(slots - t->t_slots) * sizeof(*p));
	t->t_table = p;
	t->t_slots = slots;
	for (struct kv_write *w = t->t_first; w; w = w->w_next)
		table_add(t, w);
	free(old);
	return 0;
}

/* Room for one more write in the table, which is made when there are many. */
static int table_room(struct kvdb_txn *t)
{
	if (t->t_n < FEW || t->t_n * 2 < t->t_slots)
		return 0;
	return table_grow(t, t->t_slots ? t->t_slots * 2 : 64);
}

/* Of a table for so many writes; 0 = they need none. */
static uint32_t table_slots(uint32_t n)
{
	uint32_t slots = 64;

	while (slots < n * 2ull && slots < 1u << 31)
		slots *= 2;
	return n > FEW ? slots : 0;
}

uint64_t kv_txn_table_bytes(uint32_t n)
{
	return (uint64_t)table_slots(n) * sizeof(struct kv_write *);
}

int kv_txn_table(struct kvdb_txn *t, uint32_t n)
{
	return n > FEW ? table_grow(t, table_slots(n)) : 0;
}

/* What kv_txn_alloc() adds to its memory. */
static uint64_t chunk_bytes(const struct kvdb_txn *t, uint32_t bytes)
{
	const struct kv_txn_chunk *ch = t->t_chunk;

	return ch && ch->tc_used + kv_pad8(bytes) > ch->tc_size ? CHUNK_MAX : 0;
}

int kv_txn_alloc_room(struct kvdb_txn *t, uint32_t bytes)
{
	uint64_t more = t->t_mem_bytes < MEM_FREE / 4 ? 0 : chunk_bytes(t, bytes);

	return more ? mem_check(t, more) : 0;
}

/* Has it memory for a write of so many bytes? */
static int write_room(struct kvdb_txn *t, uint32_t bytes)
{
	uint64_t more;

	if (KV_LIKELY(t->t_mem_bytes < MEM_FREE / 4))
		return 0;
	more = chunk_bytes(t, bytes);
	if (t->t_n * 2ull >= t->t_slots)
		more += (uint64_t)t->t_slots * sizeof(t->t_table[0]);
	return more ? mem_check(t, more) : 0;
}

/* It is the newest change now. */
static void changed(struct kvdb_txn *t, struct kv_write *w)
{
	w->w_gen = ++t->t_gen;
	KV_ASSERT(!t->t_newest || !t->t_newest->w_after);
	if (t->t_newest == w)
		return;
	if (w->w_after)
		w->w_after->w_before = w->w_before;
	if (w->w_before)
		w->w_before->w_after = w->w_after;
	KV_ASSERT(!t->t_newest || t->t_newest->w_gen < w->w_gen);
	w->w_before = t->t_newest;
	w->w_after = NULL;
	if (t->t_newest)
		t->t_newest->w_after = w;
	t->t_newest = w;
}

bool kv_txn_wrote_ahead(const struct kvdb_txn *t, const struct kvdb_kvs *kvs, uint64_t since,
			bool up, const void *key, size_t klen, bool is_on)
{
	for (const struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next)
		if (tt->tt_kvs == kvs && tt->tt_del_gen > since)
			return true;
	for (const struct kv_write *w = t->t_newest; w && w->w_gen > since; w = w->w_before) {
		int c;

		if (w->w_lock.kl_kvs != kvs->k_id)
			continue;
		c = key ? kv_key_cmp(w->w_lock.kl_key, w->w_lock.kl_klen, key, klen) : up ? 1 : -1;
		if (up ? c > 0 : c < 0)
			return true;
		if (!c && !is_on)
			return true;
	}
	return false;
}

int kv_txn_touch(struct kvdb_txn *t, struct kvdb_kvs *kvs, struct kv_touched **out)
{
	struct kv_touched *tt;
	int err;

	for (tt = t->t_touched; tt && tt->tt_kvs != kvs; tt = tt->tt_next)
		;
	*out = tt;
	if (tt)
		return kv_error_dropped(kvs);
	tt = kv_txn_alloc(t, sizeof(*tt));
	if (!tt)
		return kv_error(-ENOMEM, "MP0902", "no memory for a write");
	/* the store must not be dropped under it */
	err = kv_kvs_use(kvs);
	if (err)
		return err;
	*tt = (struct kv_touched){ .tt_next = t->t_touched, .tt_kvs = kvs,
				   .tt_ttl_s = atomic_load(&kvs->k_prop[KV_PROP_TTL]) };
	*out = tt;
	/* counted before others can see it */
	atomic_store(&t->t_touched, tt);
	return 0;
}

static struct kv_write *write_new(struct kvdb_txn *t, struct kv_touched *tt, const void *key,
				  size_t klen, uint64_t hash)
{
	struct kv_write *w = kv_txn_alloc(t, (uint32_t)(sizeof(*w) + klen));

	if (!w || table_room(t))
		return NULL;
	memset(w, 0, sizeof(*w));
	memcpy(w + 1, key, klen);
	w->w_lock = (struct kv_keylock){ .kl_key = (uint8_t *)(w + 1), .kl_klen = (uint16_t)klen,
					 .kl_kvs = tt->tt_kvs->k_id, .kl_hash = hash,
					 .kl_txn = t };
	w->w_in = tt;
	return w;
}

/* ---- conflicts (R14) ------------------------------------------------------------- */

/*
 * The newest committed stamp of a key, 0 = none or not above @view. The caller
 * owns the key. The tree is loaded after the key was locked, so it lists every
 * memtable that a plain write may have linked into without seeing the lock.
 * A delete of many keys that covers the key is a conflict too when it is newer
 * than the view or not yet stamped: it is linked before its writer looks for
 * owners of what it covers, and the key was locked before we look for it (R15).
 */
static int newest_above(struct kvdb_kvs *kvs, const struct kv_keylock *kl, uint64_t view,
			uint64_t *out)
{
	struct kv_tree *tr;
	struct kv_path pa;
	struct kv_ent e;
	uint64_t s;
	int err;

	KV_ASSERT_INSIDE();
	*out = 0;
	/* after the lock: pairs with the looks of plain writes and with range_del_begin() */
	atomic_thread_fence(memory_order_seq_cst);
	tr = atomic_load(&kvs->k_tree);
	if (KV_UNLIKELY(atomic_load(&tr->tr_tombs)) &&
	    !CHECK(!kv_tombs_conflict(kvs, kl->kl_key, kl->kl_klen, view))) {
		*out = view + 1;
		return 0;
	}
	for (uint32_t i = 0; i < tr->tr_nmt; i++) {
		s = kv_mt_newest(tr->tr_mt[i], kl->kl_key, kl->kl_klen, kl->kl_hash);
		if (s > view) {
			*out = s;
			return 0;
		}
		if (s)
			return 0;	/* what lies deeper is older */
	}
	pa = kv_path(tr, kl->kl_key, kl->kl_klen);
	for (uint32_t i = 0; i < pa.pa_n; i++) {
		struct kv_run *run = kv_path_run(tr, &pa, i);

		if (kv_run_desc(run)->rd_max_seq <= view)
			continue;
		err = kv_run_lookup(kvs->k_db, run, kl->kl_key, kl->kl_klen, kl->kl_hash, &e);
		if (err == -ENOENT)
			continue;
		if (!err && e.e_seq > view)
			*out = e.e_seq;
		return err;
	}
	return 0;
}

/* The same for a caller that waits for its reads, outside of kv_enter() (RD-4). */
static int newest_wait(struct kvdb_kvs *kvs, const struct kv_keylock *kl, uint64_t view,
		       uint64_t *out)
{
	struct kv_async as = { .as_db = kvs->k_db };
	struct kv_thread *t;
	int err;

	KV_ASSERT_OUTSIDE();
	do {
		kv_async_try(&as);
		t = kv_enter();
		err = newest_above(kvs, kl, view, out);
		kv_exit(t);
	} while (kv_async_again(&as, err, false));
	return err;
}

void kv_txn_doom(struct kvdb_txn *t, int err, uint32_t why)
{
	uint32_t live = KV_CLAIM_LIVE;

	KV_ASSERT(err < 0 && why != KVDB_TXN_ACTIVE);
	t->t_doomed = err;
	t->t_why = why;
	if (atomic_compare_exchange_strong(&t->t_claim, &live, KV_CLAIM_DEAD) && t->t_groups)
		kv_key_wake(t->t_db, t->t_groups);
}

bool kv_txn_is_dead(struct kvdb_txn *t)
{
	uint32_t claim = atomic_load(&t->t_claim);

	/* its own commit sets COMMIT by the same word: one of the two is too late */
	if (claim == KV_CLAIM_LIVE && kv_view_is_old(t->t_db, &t->t_view) &&
	    atomic_compare_exchange_strong(&t->t_claim, &claim, KV_CLAIM_DEAD))
		return true;
	return claim == KV_CLAIM_DEAD;
}

struct holds {
	const struct kvdb_kvs *ho_kvs;
	uint32_t ho_n;
};

static void count_dead(void *arg, struct kv_view *vi)
{
	struct kvdb_txn *t = (struct kvdb_txn *)((char *)vi - offsetof(struct kvdb_txn, t_view));
	struct holds *ho = arg;

	if (!kv_txn_is_dead(t))
		return;
	for (struct kv_touched *tt = atomic_load(&t->t_touched); tt; tt = tt->tt_next)
		ho->ho_n += tt->tt_kvs == ho->ho_kvs;
}

uint32_t kv_txns_dead_holds(struct kvdb *db, const struct kvdb_kvs *kvs)
{
	struct holds ho = { .ho_kvs = kvs };

	kv_views_each(db, count_dead, &ho);
	return ho.ho_n;
}

int kv_txn_conflict(struct kvdb_txn *t, const struct kvdb_kvs *kvs, const char *what)
{
	struct kv_tctx *tc = kv_tctx(t->t_db);

	if (tc)
		kv_count(&tc->tc_conflicts, 1);
	kv_txn_doom(t, -ECANCELED, KVDB_TXN_CONFLICT);
	return kv_error(-ECANCELED, "MP0920", "%s: %s", kvs->k_name, what);
}

void kv_txn_is_owner(struct kvdb_txn *t, uint32_t groups)
{
	KV_ASSERT(groups && !t->t_ended);
	if (!t->t_groups)
		atomic_fetch_add(&t->t_db->d_mem.mm_owners, 1);
	t->t_groups |= groups;
}

/* Takes the key for the transaction. */
static int own(struct kvdb_txn *t, struct kvdb_kvs *kvs, struct kv_write *w)
{
	struct kvdb *db = t->t_db;
	uint64_t seq;
	int err;

	kv_txn_is_owner(t, kv_key_group(w->w_lock.kl_hash));
	if (kv_key_lock(db, &w->w_lock))
		return kv_txn_conflict(t, kvs, "another open transaction wrote the key first");
	err = newest_wait(kvs, &w->w_lock, t->t_view.vi_seq, &seq);
	if (!err && !CHECK(!seq))
		err = kv_txn_conflict(t, kvs, "the key was written after the transaction began");
	if (err) {
		kv_key_unlock(db, &w->w_lock);
		kv_key_wake(db, kv_key_group(w->w_lock.kl_hash));
	}
	return err;
}

/* ---- put, delete, get ------------------------------------------------------------ */

/* Its snapshot has gone: it cannot go on. */
static int stale(struct kvdb_txn *t)
{
	struct kv_tctx *tc = t->t_doomed != -ESTALE ? kv_tctx(t->t_db) : NULL;

	if (tc)
		kv_count(&tc->tc_stale, 1);
	kv_txn_doom(t, -ESTALE, kv_view_is_old(t->t_db, &t->t_view) ? KVDB_TXN_EXPIRED :
								       KVDB_TXN_GAVE_MEMORY);
	return -ESTALE;
}

/* May it go on? */
static int check(struct kvdb_txn *t, const struct kvdb_kvs *kvs, bool writes)
{
	KV_ASSERT(!t->t_ended);
	if (kvs && kvs->k_db != t->t_db)
		return kv_error(-EINVAL, "MP0951", "store %s is of another database", kvs->k_name);
	if (KV_UNLIKELY(!t->t_is_batch && kv_view_check(t->t_db, &t->t_view)))
		return stale(t);
	if (!writes)
		return 0;
	if (t->t_flags & KVDB_TXN_RDONLY)
		return kv_error(-EROFS, "MP0926", "the transaction was begun for reading only");
	if (t->t_db->d_mode.md_rdonly || kv_fault(t->t_db))
		return kv_error(-EROFS, "MP0903", "%s", t->t_db->d_mode.md_rdonly ?
				"the database is open for reading only" : t->t_db->d_fault.fa_text);
	if (t->t_doomed)
		return kv_error(t->t_doomed, "MP0927", "a write of the transaction failed before");
	return 0;
}

int kv_txn_check_write(struct kvdb_txn *t, const struct kvdb_kvs *kvs)
{
	return check(t, kvs, true);
}

/* What a write becomes: value with its key or in the value log. */
static int set_value(struct kvdb_txn *t, struct kv_write *w, uint8_t kind, const void *val,
		     uint32_t vlen)
{
	struct kv_txn_val n = { .tv_kind = kind, .tv_vlen = vlen, .tv_val = w->w_v.tv_val,
				.tv_room = w->w_v.tv_room };
	uint8_t *p = (uint8_t *)(uintptr_t)n.tv_val;
	int err;

	KV_ASSERT(kind == KV_ENT_REF || vlen <= KV_INLINE_MAX);
	n.tv_vcrc = mpool_crc32c(0, val, vlen);
	if (kind == KV_ENT_REF) {
		err = kv_txn_log_value(t, &w->w_lock, &n, val);
		if (err)
			return err;
	} else if (kind == KV_ENT_INLINE) {
		/* a cursor may still look at the old bytes */
		if (vlen > n.tv_room || atomic_load(&t->t_refs) > 1) {
			p = kv_txn_alloc(t, vlen ? vlen : 1);
			if (!p)
				return kv_error(-ENOMEM, "MP0902", "no memory for a write");
			n.tv_val = p;
			n.tv_room = kv_pad8(vlen);
		}
		if (vlen)
			memcpy(p, val, vlen);
	}
	w->w_v = n;
	return 0;
}

/* In the commit record. */
static uint32_t ent_size(const struct kv_touched *tt, size_t klen, uint8_t kind, uint32_t vlen)
{
	return kv_commit_ent_size((uint16_t)klen, kind, vlen, tt->tt_ttl_s && kind != KV_ENT_TOMB);
}

static uint32_t size_of(const struct kv_write *w)
{
	return ent_size(w->w_in, w->w_lock.kl_klen, w->w_v.tv_kind, w->w_v.tv_vlen);
}

void kv_txn_write_set(struct kvdb_txn *t, struct kv_write *w, const struct kv_txn_val *v)
{
	KV_ASSERT(t->t_rec_bytes >= KV_COMMIT_HDR + size_of(w));
	t->t_rec_bytes -= size_of(w);
	w->w_v = *v;
	t->t_rec_bytes += size_of(w);
	if (!t->t_is_batch)	/* which has no cursors */
		changed(t, w);
}

void kv_txn_write_undo(struct kvdb_txn *t, struct kv_write *w)
{
	const struct kv_txn_val none = {
		.tv_kind = KV_ENT_TOMB, .tv_val = w->w_v.tv_val, .tv_room = w->w_v.tv_room,
		.tv_vcrc = mpool_crc32c(0, NULL, 0),
	};

	kv_txn_write_set(t, w, &none);
}

void kv_txn_write_add(struct kvdb_txn *t, struct kv_write *w, const struct kv_txn_val *v)
{
	KV_ASSERT(!*t->t_tail && !t->t_slot);
	w->w_v = *v;
	*t->t_tail = w;
	t->t_tail = &w->w_next;
	if (t->t_table)
		table_add(t, w);
	t->t_n++;
	if (!t->t_is_batch)
		changed(t, w);
	t->t_rec_bytes += size_of(w);
}

/* A key that the transaction has not written yet. */
static int first_write(struct kvdb_txn *t, struct kv_touched *tt, const void *key, size_t klen,
		       uint64_t hash, uint8_t kind, const void *val, uint32_t vlen)
{
	struct kv_write *w = write_new(t, tt, key, klen, hash);
	int err;

	if (!w)
		return kv_error(-ENOMEM, "MP0902", "no memory for a write");
	err = own(t, tt->tt_kvs, w);
	if (err)
		return err;
	err = set_value(t, w, kind, val, vlen);
	if (err) {
		kv_key_unlock(t->t_db, &w->w_lock);
		kv_key_wake(t->t_db, kv_key_group(hash));
		return err;
	}
	kv_txn_write_add(t, w, &w->w_v);
	t->t_user_bytes += klen + vlen;
	return 0;
}

static int write_op(struct kvdb_txn *t, struct kvdb_kvs *kvs, const void *key, size_t klen,
		    uint8_t kind, const void *val, uint32_t vlen)
{
	uint64_t hash = kv_hash(key, klen);
	struct kv_touched *tt;
	struct kv_write *w;
	uint32_t size, was, vlen_here = kind == KV_ENT_INLINE ? vlen : 0;
	int err = check(t, kvs, true);

	if (!err)
		err = kv_txn_touch(t, kvs, &tt);
	if (err)
		return err;
	w = kv_txn_find(t, kvs, key, klen, hash);
	size = ent_size(tt, klen, kind, vlen);
	was = w ? ent_size(tt, klen, w->w_v.tv_kind, w->w_v.tv_vlen) : 0;
	if (!w)
		err = write_room(t, (uint32_t)(sizeof(*w) + klen + vlen_here));
	else if (vlen_here > w->w_v.tv_room)
		err = write_room(t, vlen_here);
	if (err)
		return err;
	if (!w) {
		err = first_write(t, tt, key, klen, hash, kind, val, vlen);
	} else {
		err = set_value(t, w, kind, val, vlen);
		if (!err) {
			changed(t, w);
			t->t_rec_bytes += size - was;
			t->t_user_bytes += vlen;
		}
	}
	return err;
}

int kvdb_txn_put(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *key, size_t klen,
		 const void *val, size_t vlen)
{
	int err = kv_check_key(kvs, key, klen);

	if (!err)
		err = kv_check_value(kvs, val, vlen);
	if (err)
		return err;
	return write_op(txn, kvs, key, klen, vlen > KV_INLINE_MAX ? KV_ENT_REF : KV_ENT_INLINE, val,
			(uint32_t)vlen);
}

int kvdb_txn_del(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *key, size_t klen)
{
	int err = kv_check_key(kvs, key, klen);

	return err ? err : write_op(txn, kvs, key, klen, KV_ENT_TOMB, NULL, 0);
}

/* An entry of the write set as a reader wants it. */
void kv_write_ent(const struct kv_write *w, struct kv_ent *e)
{
	const struct kv_txn_val *v = &w->w_v;

	*e = (struct kv_ent){ .e_key = w->w_lock.kl_key, .e_klen = w->w_lock.kl_klen,
			      .e_kind = v->tv_kind, .e_vlen = v->tv_vlen, .e_vcrc = v->tv_vcrc,
			      .e_off8 = v->tv_off8, .e_seg = v->tv_seg, .e_val = v->tv_val,
			      .e_seq = KV_SEQ_NOW };
}

/* One of its snapshot that has missed memory: waits, outside of kv_enter() (RD-4). */
static int get_wait(struct kvdb_txn *t, struct kvdb_kvs *kvs, const void *key, size_t klen,
		    void *buf, size_t size, size_t *vlen)
{
	struct kv_moment mo = { .mo_now = t->t_view.vi_born_ms };
	int err = kv_txn_snapshot(t, kvs, &mo.mo_tree, &mo.mo_seq);

	if (err)
		return err;
	err = kv_get_wait(kvs, &mo, key, klen, buf, size, vlen);
	kv_tree_put(t->t_db, mo.mo_tree);
	return err;
}

static void count_got(struct kv_tctx *tc, size_t klen, size_t size, size_t vlen)
{
	kv_count(&tc->tc_read_bytes, klen + (vlen < size ? vlen : size));
}

/* What the transaction wrote itself; its segments are held by it. */
static int get_own(struct kvdb *db, const struct kv_write *w, void *buf, size_t size, size_t *vlen)
{
	struct kv_ent e;
	int err = 0;

	KV_ASSERT_OUTSIDE();
	kv_write_ent(w, &e);
	if (e.e_kind == KV_ENT_TOMB)
		return -ENOENT;
	if (size)
		err = kv_value_wait(db, &e, buf, size);
	if (!err)
		*vlen = e.e_vlen;
	return err;
}

int kvdb_txn_get(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *key, size_t klen,
		 void *buf, size_t size, size_t *vlen)
{
	struct kvdb *db = txn->t_db;
	struct kv_thread *t;
	struct kv_write *w;
	struct kv_tctx *tc;
	struct kv_tree *tr;
	struct kv_ent e;
	size_t len;
	int err = kv_check_key(kvs, key, klen);

	vlen = vlen ? vlen : &len;
	if (!err)
		err = kv_check_buf(kvs, buf, size);
	if (!err)
		err = check(txn, kvs, false);
	if (err)
		return err;
	tc = kv_tctx(db);
	if (!tc)
		return kv_error(-ENOMEM, "MP0902", "no memory for a thread's state");
	kv_count(&tc->tc_gets, 1);
	w = txn->t_n ? kv_txn_find(txn, kvs, key, klen, kv_hash(key, klen)) : NULL;
	if (w) {
		err = get_own(db, w, buf, size, vlen);
		if (!err)
			count_got(tc, klen, size, *vlen);
		return err == -ENOENT ? kv_error_absent() : err;
	}
	if (txn->t_ndel && kv_txn_range_has(txn, kvs, key, klen))
		return kv_error_absent();
	tc->tc_restarts = true;
	t = kv_enter();
	err = kv_view_tree(db, &txn->t_view, kvs, &tr);
	if (!err)
		err = tr ? kv_tree_lookup(db, tr, key, klen, txn->t_view.vi_seq, &e) : -ENOENT;
	if (!err && (e.e_kind == KV_ENT_TOMB ||
		     kv_is_expired(&e, txn->t_view.vi_born_ms)))
		err = -ENOENT;
	if (!err && size)
		err = kv_value_read(db, &e, buf, size);
	if (!err) {
		*vlen = e.e_vlen;
		count_got(tc, klen, size, e.e_vlen);
	}
	kv_exit(t);
	tc->tc_restarts = false;
	if (KV_UNLIKELY(err == -EINPROGRESS))
		err = get_wait(txn, kvs, key, klen, buf, size, vlen);
	return err == -ENOENT ? kv_error_absent() : err == -ESTALE ? stale(txn) : err;
}

int kv_txn_check(struct kvdb_txn *t, const struct kvdb_kvs *kvs)
{
	if (!t->t_ended)
		return check(t, NULL, false);
	for (struct kv_touched *tt = t->t_touched; tt && t->t_is_gone; tt = tt->tt_next)
		if (tt->tt_kvs == kvs)
			return kv_error(-ESTALE, "MP0929", "%s: the transaction of the cursor has "
					"ended, and its writes were not committed", kvs->k_name);
	return 0;
}

int kv_txn_snapshot(struct kvdb_txn *t, struct kvdb_kvs *kvs, struct kv_tree **tree,
		    uint64_t *seq)
{
	struct kv_thread *th;
	struct kv_tree *tr;
	uint32_t refs = 1;
	int err = check(t, kvs, false);

	if (err)
		return err;
	th = kv_enter();
	err = kv_view_tree(t->t_db, &t->t_view, kvs, &tr);
	if (tr) {
		refs = atomic_load_explicit(&tr->tr_refs, memory_order_relaxed);
		while (refs && !atomic_compare_exchange_weak(&tr->tr_refs, &refs, refs + 1))
			;
		if (!refs)	/* given up since: say why */
			err = kv_view_tree(t->t_db, &t->t_view, kvs, &tr);
	}
	kv_exit(th);
	if (err)
		return stale(t);
	*tree = tr;
	*seq = t->t_view.vi_seq;
	return 0;
}

/* ---- begin, end ------------------------------------------------------------------ */

int kvdb_txn_begin(struct kvdb *db, unsigned flags, struct kvdb_txn **out)
{
	struct kv_tctx *tc = kv_tctx(db);
	struct kvdb_txn *t;
	int err;

	*out = NULL;
	if (flags & ~KVDB_TXN_RDONLY)
		return kv_error(-EINVAL, "MP0951", "transaction flags %#x are not known", flags);
	t = tc ? malloc(sizeof(*t)) : NULL;
	if (!t)
		return kv_error(-ENOMEM, "MP0902", "no memory for a transaction");
	memset(t, 0, offsetof(struct kvdb_txn, t_mem));
	t->t_db = db;
	t->t_flags = flags;
	t->t_tail = &t->t_first;
	t->t_rec_bytes = KV_COMMIT_HDR;
	atomic_store_explicit(&t->t_refs, 1, memory_order_relaxed);
	err = kv_view_begin(db, &t->t_view, !(flags & KVDB_TXN_RDONLY));
	if (err) {
		free(t);
		return err;
	}
	/* after the view, which shows nothing of a later epoch */
	t->t_ticket = kvdb_ticket(db);
	kv_count(&tc->tc_begun, 1);
	*out = t;
	return 0;
}

void kv_txn_disown(struct kvdb_txn *t)
{
	struct kvdb *db = t->t_db;

	if (!t->t_groups)
		return;
	for (struct kv_write *w = t->t_first; w; w = w->w_next)
		if (w->w_lock.kl_txn) {
			kv_key_unlock(db, &w->w_lock);
			w->w_lock.kl_txn = NULL;
		}
	kv_txn_ranges_unlock(t);
	KV_ASSERT(atomic_load(&db->d_mem.mm_owners));
	atomic_fetch_sub(&db->d_mem.mm_owners, 1);
	kv_key_wake(db, t->t_groups);
	t->t_groups = 0;
}

void kv_txn_end(struct kvdb_txn *t, bool is_committed)
{
	struct kvdb *db = t->t_db;
	struct kv_touched *tt;

	KV_ASSERT(!t->t_ended);
	t->t_is_gone = !is_committed;
	kv_txn_disown(t);
	/* out of the list first: a thread that finds it there subtracts what it holds */
	if (!t->t_is_batch)
		kv_view_end(db, &t->t_view);
	for (tt = t->t_touched; tt; tt = tt->tt_next) {
		if (tt->tt_mt)
			kv_mt_put(db, tt->tt_mt);
		KV_ASSERT(atomic_load(&tt->tt_kvs->k_cursors));
		atomic_fetch_sub(&tt->tt_kvs->k_cursors, 1);
	}
	t->t_ended = true;
}

int kv_txn_commit_writes(struct kvdb_txn *t, uint64_t *epoch)
{
	struct kv_tctx *tc;
	uint64_t puts = 0;
	int err;

	err = kv_txn_commit(t, epoch);
	tc = err ? NULL : kv_tctx(t->t_db);
	if (!tc)
		return err;
	for (struct kv_write *w = t->t_first; w; w = w->w_next)
		puts += w->w_v.tv_kind != KV_ENT_TOMB;
	kv_count(&tc->tc_puts, puts);
	kv_count(&tc->tc_dels, t->t_n - puts + t->t_ndel);
	kv_count(&tc->tc_user_bytes, t->t_user_bytes);
	return 0;
}

/* Commits and ends the transaction; *epoch is 0 when it wrote nothing. */
static int commit_and_end(struct kvdb_txn *txn, int err, uint64_t *epoch)
{
	struct kv_tctx *tc = kv_tctx(txn->t_db);
	bool has_writes = kv_txn_has_writes(txn);
	uint32_t live = KV_CLAIM_LIVE;

	KV_ASSERT_OUTSIDE();
	*epoch = 0;
	/* T11: from here on no other writer takes its keys; before its age is looked at */
	atomic_compare_exchange_strong(&txn->t_claim, &live, KV_CLAIM_COMMIT);
	if (!err)
		err = check(txn, NULL, has_writes);
	if (!err && txn->t_doomed)
		err = kv_error(txn->t_doomed, "MP0927", "a write of the transaction failed before");
	if (!err && has_writes)
		err = kv_txn_commit_writes(txn, epoch);
	kv_txn_end(txn, !err);
	kv_txn_put(txn);
	if (tc)
		kv_count(err ? &tc->tc_aborted : &tc->tc_committed, 1);
	return err;
}

static uint32_t state_of(struct kvdb_txn *t)
{
	if (t->t_doomed)
		return t->t_why;
	if (kv_view_is_old(t->t_db, &t->t_view))
		return KVDB_TXN_EXPIRED;
	return kv_view_gave_up(&t->t_view) ? KVDB_TXN_GAVE_MEMORY : KVDB_TXN_ACTIVE;
}

int kvdb_txn_info(struct kvdb_txn *txn, struct kvdb_txn_info *out)
{
	uint64_t now = kv_now(txn->t_db), born = txn->t_view.vi_born_ns;
	uint32_t state = state_of(txn);

	*out = (struct kvdb_txn_info){
		.state = state,
		.error = state == KVDB_TXN_ACTIVE ? 0 : txn->t_doomed ? txn->t_doomed : -ESTALE,
		.is_rdonly = txn->t_flags & KVDB_TXN_RDONLY,
		.age_ms = now > born ? (now - born) / 1000000u : 0,
		.ticket = txn->t_ticket,
		.writes = txn->t_n,
		.ranges = txn->t_ndel,
		.record_bytes = kv_txn_has_writes(txn) ? txn->t_rec_bytes : 0,
	};
	return 0;
}

struct kvdb *kv_txn_db(const struct kvdb_txn *txn)
{
	return txn->t_db;
}

/* What cannot be written now, for want of room or because it is not due, can be tried again. */
bool kv_txn_may_begin(struct kvdb_txn *txn, uint64_t *due_ns)
{
	uint32_t size = kv_rec_size(0, kv_txn_record_bytes(txn));
	struct kvdb *db = txn->t_db;
	struct kv_toll *toll;

	if (!kv_txn_has_writes(txn) || kv_fault(db))
		return true;
	if (atomic_load(&db->d_flusher->fl_stall) && !atomic_load(&db->d_flusher->fl_space_err))
		return false;
	/* L5; a record of which another takes the room meanwhile waits all the same */
	if (!kv_is_manual(db) && kv_large_is_for(db, size) && !kv_large_has_room(db, size))
		return false;
	toll = kv_txn_toll(txn);
	return !toll || kv_throttle_begun(db, toll, size + txn->t_paid_bytes, due_ns);
}

int kv_txn_commit_begin(struct kvdb_txn *txn, struct kv_pending_write *bg)
{
	struct kvdb *db = txn->t_db;
	int err;

	if (!kv_txn_may_begin(txn, &bg->bg_due_ns))
		return -EAGAIN;
	txn->t_is_begun = true;
	err = commit_and_end(txn, 0, &bg->bg_epoch);
	if (!err && bg->bg_epoch)
		kv_gate_check(db, bg->bg_epoch);
	return err;
}

int kv_txn_acknowledge(struct kvdb *db, uint64_t epoch, bool is_durable, uint64_t *ticket)
{
	if (ticket)
		*ticket = epoch ? epoch : kvdb_ticket(db);
	if (epoch && kv_ack(db, epoch, is_durable))
		return kv_error(-EIO, "MP0905", "committed, but not durable: %s",
				db->d_fault.fa_text);
	return 0;
}

int kvdb_txn_commit(struct kvdb_txn *txn, unsigned flags, uint64_t *ticket)
{
	struct kvdb *db = txn->t_db;
	uint64_t epoch;
	int err = 0;

	if (flags & ~KVDB_TXN_DURABLE)
		err = kv_error(-EINVAL, "MP0951", "commit flags %#x are not known", flags);
	err = commit_and_end(txn, err, &epoch);
	if (err)
		return err;
	return kv_txn_acknowledge(db, epoch, flags & KVDB_TXN_DURABLE, ticket);
}

void kvdb_txn_abort(struct kvdb_txn *txn)
{
	struct kv_tctx *tc;

	if (!txn)
		return;
	tc = kv_tctx(txn->t_db);
	if (tc)
		kv_count(&tc->tc_aborted, 1);
	kv_txn_end(txn, false);
	kv_txn_put(txn);
}
