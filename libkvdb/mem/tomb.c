/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Range and prefix tombstones (R15) of a memtable; those of all sources of a tree: tomb_view.c.
 *
 * A memtable has a list of them, newest link first. Its newest part is looked
 * at one by one; what is older and final is in indexes (tindex.c), each several
 * times as large as the next: a search looks at few of them (H6). A tombstone's
 * stamp is a version that is linked nowhere: so the flusher completes its record
 * as it does any other.
 *
 * Invariants H1, H2: RANGE_DELETES.md.
 *
 * Locks: mo_lock, a leaf, for a thread that adds; readers take none and are inside
 * kv_enter().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mem/tomb.h"
#include "base/assert.h"
#include "base/trange.h"
#include "base/vec.h"
#include "db/db.h"
#include "db/slot.h"
#include "seg/value.h"
#include "mem/memtable.h"

#define TAIL_MAX	32u	/* looked at one by one, about */
#define LEVELS		28u
#define LEVEL_FACTOR	4u	/* an index has more than this times the rows of the next */

struct kv_tomb {
	struct kv_tomb *tb_older;
	struct kv_version *tb_ver;	/* v_seq is the stamp, v_val the keys */
	struct kv_trange tb_r;		/* tr_seq is not used */
	_Atomic(bool) tb_dead;		/* never was one */
};

/* What is indexed: everything from ts_stop on. Replaced as a whole. */
struct kv_tset {
	struct kv_tomb *ts_stop;
	unsigned ts_n;
	struct kv_limbo ts_limbo;
	struct kv_tindex *ts_level[LEVELS];	/* largest first */
};

struct kv_mtombs {
	_Atomic(struct kv_tomb *) mo_head;
	_Atomic(struct kv_tset *) mo_set;
	_Atomic(uint32_t) mo_n;			/* not dead */
	uint32_t mo_tail;			/* since the newest index; mo_lock */
	pthread_mutex_t mo_lock;
};

/* ---- a memtable's ---------------------------------------------------------------- */

static struct kv_mtombs *mtombs(const struct kv_mt *mt)
{
	return atomic_load_explicit(&mt->m_tombs, memory_order_acquire);
}

bool kv_mt_has_tombs(const struct kv_mt *mt)
{
	return mtombs(mt) != NULL;
}

uint32_t kv_mt_tombs(const struct kv_mt *mt)
{
	struct kv_mtombs *mo = mtombs(mt);

	return mo ? atomic_load(&mo->mo_n) : 0;
}

static struct kv_mtombs *mtombs_make(struct kv_mt *mt)
{
	struct kv_mtombs *mo = mtombs(mt), *none = NULL;

	if (mo)
		return mo;
	mo = calloc(1, sizeof(*mo));
	if (!mo)
		return NULL;
	pthread_mutex_init(&mo->mo_lock, NULL);
	if (!atomic_compare_exchange_strong(&mt->m_tombs, &none, mo)) {
		pthread_mutex_destroy(&mo->mo_lock);
		free(mo);
		return none;
	}
	return mo;
}

void kv_mt_tombs_fini(struct kv_mt *mt)
{
	struct kv_mtombs *mo = mtombs(mt);
	struct kv_tset *ts = mo ? atomic_load(&mo->mo_set) : NULL;

	for (unsigned i = 0; ts && i < ts->ts_n; i++)
		kv_tindex_free(ts->ts_level[i]);
	free(ts);
	if (mo)
		pthread_mutex_destroy(&mo->mo_lock);
	free(mo);
}

static void index_retire(void *arg)
{
	kv_tindex_free(arg);
}

static uint64_t stamp_of(const struct kv_tomb *tb)
{
	return atomic_load_explicit(&tb->tb_ver->v_seq, memory_order_acquire);
}

static bool is_final(const struct kv_tomb *tb)
{
	return stamp_of(tb) < KV_IN_SLOT || atomic_load(&tb->tb_dead);
}

/* The rows of levels that are not larger join the new one. */
static int level_join(struct kv_trows *tv, struct kv_tset *ts)
{
	while (ts->ts_n && ts->ts_level[ts->ts_n - 1]->ti_n <= LEVEL_FACTOR * tv->tv_n) {
		const struct kv_tindex *ti = ts->ts_level[--ts->ts_n];

		for (uint32_t i = 0; i < ti->ti_n; i++) {
			int err = kv_trows_add(tv, &ti->ti_r[i]);

			if (err)
				return err;
		}
	}
	return ts->ts_n == LEVELS ? -ENOMEM : 0;
}

static void tset_publish(struct kv_mt *mt, struct kv_mtombs *mo, struct kv_tset *ts)
{
	struct kv_tset *old = atomic_load(&mo->mo_set);
	uint64_t bytes = ts->ts_level[ts->ts_n - 1]->ti_bytes, gone = 0;

	KV_ASSERT_HELD(&mo->mo_lock);
	KV_ASSERT(ts->ts_n <= LEVELS && ts->ts_stop);
	atomic_store_explicit(&mo->mo_set, ts, memory_order_release);
	for (unsigned i = ts->ts_n - 1; old && i < old->ts_n; i++) {
		gone += old->ts_level[i]->ti_bytes;
		kv_retire(&old->ts_level[i]->ti_limbo, index_retire, old->ts_level[i]);
	}
	if (old)
		kv_retire(&old->ts_limbo, free, old);
	atomic_fetch_add(&mt->m_bytes, bytes - gone);
	atomic_fetch_add(&mt->m_db->d_count.mt_mem, bytes - gone);
}

/*
 * Moves what is final and has nothing after it that is not into an index. Not
 * having the memory for it only makes searches slower. mo_lock held.
 */
static void tail_index(struct kv_mt *mt, struct kv_mtombs *mo)
{
	struct kv_tset *old = atomic_load(&mo->mo_set), *ts = calloc(1, sizeof(*ts));
	struct kv_tomb *tb, *from = NULL, *stop = old ? old->ts_stop : NULL;
	struct kv_trows tv = { 0 };
	uint32_t tail = 0;
	int err = ts ? 0 : -ENOMEM;

	KV_ASSERT_HELD(&mo->mo_lock);
	for (tb = atomic_load(&mo->mo_head); tb != stop; tb = tb->tb_older) {
		if (!is_final(tb)) {
			from = NULL;
			tail += tv.tv_n + 1;
			tv.tv_n = 0;
			continue;
		}
		from = from ? from : tb;
		if (!err && !atomic_load(&tb->tb_dead)) {
			struct kv_trange r = tb->tb_r;

			r.tr_seq = stamp_of(tb);
			err = kv_trows_add(&tv, &r);
		}
	}
	if (!err && tv.tv_n) {
		if (old)
			*ts = *old;
		err = level_join(&tv, ts);
		if (!err)
			ts->ts_level[ts->ts_n] = kv_tindex_new(tv.tv_r, tv.tv_n, NULL);
		if (!err && ts->ts_level[ts->ts_n]) {
			ts->ts_n++;
			ts->ts_stop = from;
			tset_publish(mt, mo, ts);
			mo->mo_tail = tail;
			ts = NULL;
		}
	}
	free(ts);
	free(tv.tv_r);
}

/* With the stamp @seq. */
static struct kv_tomb *tomb_new(struct kv_mt *mt, const struct kv_trange *r, uint64_t seq)
{
	uint32_t tlen = r->tr_flags ? 0 : r->tr_tlen;
	struct kv_tomb *tb = kv_mt_arena(mt, sizeof(*tb));
	struct kv_version *v = kv_mt_arena(mt, (uint32_t)sizeof(*v) + r->tr_flen + tlen);

	if (!tb || !v)
		return NULL;
	memset(tb, 0, sizeof(*tb));
	memset(v, 0, sizeof(*v));
	atomic_init(&v->v_seq, seq);
	v->v_kind = KV_ENT_COVER;
	if (r->tr_flen)
		memcpy(v->v_val, r->tr_from, r->tr_flen);
	if (tlen)
		memcpy(v->v_val + r->tr_flen, r->tr_to, tlen);
	tb->tb_ver = v;
	tb->tb_r = *r;
	tb->tb_r.tr_from = v->v_val;
	tb->tb_r.tr_to = v->v_val + r->tr_flen;
	tb->tb_r.tr_tlen = (uint16_t)tlen;
	return tb;
}

static void tomb_link(struct kv_mt *mt, struct kv_mtombs *mo, struct kv_tomb *tb)
{
	pthread_mutex_lock(&mo->mo_lock);
	tb->tb_older = atomic_load(&mo->mo_head);
	atomic_store(&mo->mo_head, tb);
	atomic_fetch_add(&mo->mo_n, 1);
	if (++mo->mo_tail % TAIL_MAX == 0)
		tail_index(mt, mo);
	pthread_mutex_unlock(&mo->mo_lock);
}

struct kv_tomb *kv_mt_tomb_add(struct kv_mt *mt, const struct kv_trange *r)
{
	struct kv_mtombs *mo = mtombs_make(mt);
	struct kv_tomb *tb = mo ? tomb_new(mt, r, KV_HIDDEN) : NULL;

	KV_ASSERT_INSIDE();
	if (tb)
		tomb_link(mt, mo, tb);
	return tb;
}

struct kv_tomb *kv_mt_tomb_link(struct kv_mt *mt, const struct kv_trange *r, struct kv_tslot *ts)
{
	struct kv_mtombs *mo = mtombs_make(mt);
	struct kv_tomb *tb = mo ? tomb_new(mt, r, KV_IN_SLOT | (uint64_t)(uintptr_t)ts) : NULL;

	KV_ASSERT_INSIDE();
	if (tb)
		tomb_link(mt, mo, tb);
	return tb;
}

void kv_mt_tomb_renew(struct kv_tomb *tb, struct kv_tslot *ts)
{
	atomic_store(&tb->tb_ver->v_seq, KV_IN_SLOT | (uint64_t)(uintptr_t)ts);
}

void kv_mt_tomb_unlink(struct kv_mt *mt, struct kv_tomb *tb)
{
	/* T10: it stays in the list, and the slot that it names does not */
	atomic_store(&tb->tb_ver->v_seq, KV_HIDDEN);
	kv_mt_tomb_kill(mt, tb);
}

void kv_mt_tomb_set_epoch(struct kv_tomb *tb, uint64_t epoch)
{
	tb->tb_ver->v_epoch = epoch;
}

void kv_mt_tomb_set_seq(struct kv_tomb *tb, uint64_t seq)
{
	KV_ASSERT(seq < KV_IN_SLOT);
	atomic_store(&tb->tb_ver->v_seq, seq);
}

void kv_mt_tomb_kill(struct kv_mt *mt, struct kv_tomb *tb)
{
	KV_ASSERT(!atomic_load(&tb->tb_dead) && atomic_load(&mtombs(mt)->mo_n));
	atomic_store(&tb->tb_dead, true);
	atomic_fetch_sub(&mtombs(mt)->mo_n, 1);
}

int kv_mt_tomb_install(struct kv_mt *mt, struct kv_tomb *tb, struct kv_slot *sl,
		       const struct kv_resv *rs, struct kv_version **out)
{
	struct kv_version *v = tb->tb_ver;
	uint64_t st;

	KV_ASSERT_INSIDE();
	KV_ASSERT(atomic_load(&v->v_seq) == KV_HIDDEN);
	/* R7; and the record's memtable is the active one as long as its epoch is open */
	if (atomic_load(&mt->m_db->d_epochs.ep_open) != rs->rs_epoch)
		return -EAGAIN;
	v->v_epoch = rs->rs_epoch;
	kv_mt_note_epoch(mt, rs->rs_epoch);
	atomic_store_explicit(&sl->sl_ver, (uintptr_t)v, memory_order_release);
	/* sequentially consistent: linked before INSTALLING is seen (R12) */
	if (!kv_slot_install(sl))
		return -EAGAIN;
	st = KV_HIDDEN;	/* a helper may have been faster */
	atomic_compare_exchange_strong(&v->v_seq, &st, KV_PENDING);
	*out = v;
	return 0;
}

int kv_mt_tomb_replay(struct kv_mt *mt, const struct kv_trange *r, uint64_t epoch)
{
	struct kv_mtombs *mo = mtombs_make(mt);
	struct kv_tomb *tb = mo ? tomb_new(mt, r, r->tr_seq) : NULL;

	if (!tb)
		return -ENOMEM;
	tb->tb_ver->v_epoch = epoch;
	tomb_link(mt, mo, tb);
	kv_mt_note_replay(mt, epoch);
	return 0;
}

uint64_t kv_mt_tomb_at(struct kv_mt *mt, const void *key, size_t klen, uint64_t v)
{
	struct kv_mtombs *mo = mtombs(mt);
	const struct kv_tset *ts;
	struct kv_tomb *tb, *stop;
	uint64_t best = 0, s;

	KV_ASSERT_INSIDE();
	if (!mo)
		return 0;
	v = v < KV_SEQ_NOW ? v : KV_SEQ_NOW;	/* hidden ones are never seen */
	/* before the list: what leaves its tail later is then still in it */
	ts = atomic_load_explicit(&mo->mo_set, memory_order_acquire);
	stop = ts ? ts->ts_stop : NULL;
	for (tb = atomic_load_explicit(&mo->mo_head, memory_order_acquire); tb != stop;
	     tb = tb->tb_older) {
		if (!kv_trange_has(&tb->tb_r, key, klen))
			continue;
		s = kv_version_stamp(mt->m_db, tb->tb_ver);	/* HIDDEN is above every view */
		if (s <= v && s > best)
			best = s;
	}
	/* the newest first: what covers the key there makes most others not worth a look */
	for (unsigned i = ts ? ts->ts_n : 0; i--;) {
		if (ts->ts_level[i]->ti_max_seq <= best)
			continue;
		s = kv_tindex_at(ts->ts_level[i], key, klen, v);
		best = s > best ? s : best;
	}
	return best;
}

bool kv_mt_tomb_conflict(struct kv_mt *mt, const void *key, size_t klen, uint64_t view)
{
	struct kv_mtombs *mo = mtombs(mt);
	struct kv_tset *ts;
	struct kv_tomb *tb, *stop;

	KV_ASSERT_INSIDE();
	if (!mo)
		return false;
	ts = atomic_load_explicit(&mo->mo_set, memory_order_acquire);
	stop = ts ? ts->ts_stop : NULL;
	for (tb = atomic_load(&mo->mo_head); tb != stop; tb = tb->tb_older)
		if (!atomic_load(&tb->tb_dead) && kv_trange_has(&tb->tb_r, key, klen) &&
		    stamp_of(tb) > view)	/* PENDING and HIDDEN are */
			return true;
	return kv_mt_tomb_at(mt, key, klen, KV_SEQ_NOW) > view;
}

bool kv_mt_tomb_meets(struct kv_mt *mt, const struct kv_trange *r, uint64_t view)
{
	struct kv_mtombs *mo = mtombs(mt);
	struct kv_tset *ts;
	struct kv_tomb *tb, *stop;
	bool is = false;

	KV_ASSERT_INSIDE();
	if (!mo)
		return false;
	ts = atomic_load_explicit(&mo->mo_set, memory_order_acquire);
	stop = ts ? ts->ts_stop : NULL;
	for (tb = atomic_load(&mo->mo_head); tb != stop && !is; tb = tb->tb_older)
		is = !atomic_load(&tb->tb_dead) && stamp_of(tb) > view &&
		     kv_trange_meets(&tb->tb_r, r->tr_from, r->tr_flen,
				     r->tr_flags & KV_TR_ENDLESS ? NULL : r->tr_to, r->tr_tlen);
	for (unsigned i = ts ? ts->ts_n : 0; i-- && !is;)
		is = kv_tindex_meets(ts->ts_level[i], r, view);
	return is;
}

int kv_trows_add(struct kv_trows *tv, const struct kv_trange *r)
{
	if (kv_vec_grow(&tv->tv_r, &tv->tv_cap, tv->tv_n + 1, sizeof(tv->tv_r[0])))
		return -ENOMEM;
	tv->tv_r[tv->tv_n++] = *r;
	return 0;
}

int kv_trows_mt(struct kv_trows *tv, struct kv_mt *mt)
{
	struct kv_mtombs *mo = mtombs(mt);
	int err = 0;

	for (struct kv_tomb *tb = mo ? atomic_load(&mo->mo_head) : NULL; tb && !err;
	     tb = tb->tb_older) {
		struct kv_trange r = tb->tb_r;

		/* withdrawn, or moved to the next memtable */
		r.tr_seq = kv_version_stamp(mt->m_db, tb->tb_ver);
		if (r.tr_seq != KV_HIDDEN)
			err = kv_trows_add(tv, &r);
	}
	return err;
}
