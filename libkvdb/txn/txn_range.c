/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Deletes by prefix and range in a transaction.
 *
 * A transaction keeps the ranges that it deletes as a set: in each store in order of keys, of
 * which no two meet. For its own reads they hide what its snapshot has. What it wrote itself
 * before such a delete becomes a delete of that key; what it writes afterwards is not hidden. At
 * its commit each range becomes a tombstone in the store's memtable (R15), stamped one below the
 * versions (T13), and an entry of the commit record.
 *
 * A range is claimed as keys are (T12): first it is taken, then keys that others own are
 * looked for in it, then a grace period ends every plain write that saw no owner, then
 * whatever is newer than the transaction's view is looked for (R14).
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "txn/batch.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/guard.h"
#include "base/key.h"
#include "base/vec.h"
#include "cache/load.h"
#include "db/thread.h"
#include "mem/iter.h"
#include "mem/memtable.h"
#include "mem/tomb.h"
#include "meta/mdc.h"
#include "run/run.h"
#include "seg/value.h"
#include "tree/tomb_view.h"
#include "tree/tree.h"
#include "txn/txn_omf.h"

/* they lie in the commit record itself, beside the end of the write set and the names of parts */
#define RANGE_BYTES	(KV_COMMIT_MAX - (64u << 10))
#define REST	256u	/* entries that a look for newer ones comes by inside kv_enter() */

/* ---- the set ------------------------------------------------------------------------------- */

static const struct kv_trange *range_of(const struct kv_tdel *td)
{
	return &td->td_lock.rl_range;
}

static bool is_endless(const struct kv_trange *r)
{
	return r->tr_flags & KV_TR_ENDLESS;
}

/* How many of the store's ranges end before @key; @or_at: or there. */
static uint32_t ends_before(const struct kv_touched *tt, const void *key, size_t klen, bool or_at)
{
	uint32_t lo = 0, hi = tt->tt_ndel;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct kv_trange *r = range_of(tt->tt_del[mid]);
		int c = is_endless(r) ? 1 : kv_kcmp(r->tr_to, r->tr_tlen, key, klen);

		if (c < 0 || (or_at && !c))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

bool kv_txn_range_has(const struct kvdb_txn *t, const struct kvdb_kvs *kvs, const void *key,
		      size_t klen)
{
	const struct kv_touched *tt = t->t_touched;
	uint32_t i;

	while (tt && tt->tt_kvs != kvs)
		tt = tt->tt_next;
	if (!tt || !tt->tt_ndel)
		return false;
	i = ends_before(tt, key, klen, true);
	return i < tt->tt_ndel && kv_trange_has(range_of(tt->tt_del[i]), key, klen);
}

/* Bytes of a range in the commit record. */
static uint32_t ent_bytes(const struct kv_trange *r)
{
	return kv_commit_ent_size(r->tr_flen, KV_ENT_COVER, 1u + (is_endless(r) ? 0 : r->tr_tlen),
				  false);
}

/* A range that is to come into the set: with those that it meets it becomes one. */
struct joined {
	struct kv_trange jo_range;	/* all of them; keys are those of others */
	uint32_t jo_at, jo_n;		/* in tt_del */
	uint32_t jo_bytes;		/* of these, in the commit record */
	bool jo_is_there;		/* one of them has it all */
};

static bool starts_behind(const struct kv_trange *r, const struct kv_trange *than)
{
	return !is_endless(than) &&
	       kv_kcmp(r->tr_from, r->tr_flen, than->tr_to, than->tr_tlen) > 0;
}

/* In order of keys, and no two meet or touch. */
static bool are_apart(const struct kv_touched *tt)
{
	uint32_t i;

	for (i = 1; i < tt->tt_ndel && starts_behind(range_of(tt->tt_del[i]),
						     range_of(tt->tt_del[i - 1])); i++)
		;
	return i >= tt->tt_ndel;
}

static void join(const struct kv_touched *tt, const struct kv_trange *r, struct joined *jo)
{
	struct kv_trange *all = &jo->jo_range;

	KV_ASSERT_SLOW(are_apart(tt));
	*jo = (struct joined){ .jo_range = *r, .jo_at = ends_before(tt, r->tr_from, r->tr_flen,
								    false) };
	for (uint32_t i = jo->jo_at; i < tt->tt_ndel; i++, jo->jo_n++) {
		const struct kv_trange *x = range_of(tt->tt_del[i]);
		bool is_lower = kv_kcmp(x->tr_from, x->tr_flen, all->tr_from, all->tr_flen) <= 0;

		if (starts_behind(x, r))
			break;
		jo->jo_bytes += ent_bytes(x);
		if (is_lower) {
			all->tr_from = x->tr_from;
			all->tr_flen = x->tr_flen;
		}
		if (is_endless(x) ||
		    (!is_endless(all) &&
		     kv_kcmp(x->tr_to, x->tr_tlen, all->tr_to, all->tr_tlen) >= 0)) {
			all->tr_to = x->tr_to;
			all->tr_tlen = x->tr_tlen;
			all->tr_flags = x->tr_flags;
			jo->jo_is_there |= is_lower;
		}
	}
}

/* Of a range in the set. */
static uint32_t del_bytes(const struct kv_trange *r)
{
	return (uint32_t)sizeof(struct kv_tdel) + r->tr_flen + (is_endless(r) ? 0 : r->tr_tlen);
}

static struct kv_tdel *del_new(struct kvdb_txn *t, const struct kv_touched *tt,
			       const struct kv_trange *r)
{
	uint32_t tlen = is_endless(r) ? 0 : r->tr_tlen;
	struct kv_tdel *td = kv_txn_alloc(t, del_bytes(r));
	uint8_t *p = (uint8_t *)(td + 1);

	if (!td)
		return NULL;
	*td = (struct kv_tdel){ .td_lock = { .rl_txn = t, .rl_kvs = tt->tt_kvs->k_id,
					     .rl_range = *r,
					     .rl_is_batch = t->t_is_batch } };
	if (r->tr_flen)
		memcpy(p, r->tr_from, r->tr_flen);
	if (tlen)
		memcpy(p + r->tr_flen, r->tr_to, tlen);
	td->td_lock.rl_range.tr_from = p;
	td->td_lock.rl_range.tr_to = p + r->tr_flen;
	td->td_lock.rl_range.tr_tlen = (uint16_t)tlen;
	return td;
}

/* It takes the place of those that it was joined with; there is room for it. */
static void set_put(struct kvdb_txn *t, struct kv_touched *tt, struct kv_tdel *td,
		    const struct joined *jo)
{
	struct kv_tdel **at = &tt->tt_del[jo->jo_at];

	KV_ASSERT(jo->jo_at + jo->jo_n <= tt->tt_ndel && tt->tt_ndel <= t->t_ndel);
	KV_ASSERT(tt->tt_ndel < tt->tt_delcap);
	KV_ASSERT(t->t_rec_bytes >= KV_COMMIT_HDR + jo->jo_bytes);
	memmove(at + 1, at + jo->jo_n, (tt->tt_ndel - jo->jo_at - jo->jo_n) * sizeof(*at));
	*at = td;
	tt->tt_ndel += 1 - jo->jo_n;
	t->t_ndel += 1 - jo->jo_n;
	t->t_range_bytes += ent_bytes(range_of(td)) - jo->jo_bytes;
	t->t_rec_bytes = t->t_rec_bytes + ent_bytes(range_of(td)) - jo->jo_bytes;
}

/* What it wrote there before is deleted as everything else. */
static void undo_writes(struct kvdb_txn *t, struct kv_touched *tt, const struct kv_trange *r)
{
	for (struct kv_write *w = t->t_first; w; w = w->w_next)
		if (w->w_in == tt && w->w_v.tv_kind != KV_ENT_TOMB &&
		    kv_trange_has(r, w->w_lock.kl_key, w->w_lock.kl_klen))
			kv_txn_write_undo(t, w);
	tt->tt_del_gen = atomic_fetch_add(&t->t_gen, 1) + 1;
}

/* ---- conflicts (R14) ----------------------------------------------------------------------- */

/* A look for an entry in a range that is newer than a view. */
struct look {
	struct kvdb *lk_db;
	const struct kv_trange *lk_range;
	uint64_t lk_view;
	struct kv_iter *lk_it;
	bool lk_is_placed;
	bool lk_found;
	uint64_t lk_steps;
};

static bool is_behind(const struct kv_trange *r, const struct kv_ent *e)
{
	return !is_endless(r) && kv_kcmp(e->e_key, e->e_klen, r->tr_to, r->tr_tlen) >= 0;
}

/* 0: the source is done. -EINPROGRESS: from where it is, once pages came. */
static int look_on(struct look *lk)
{
	struct kv_iter *it = lk->lk_it;
	struct kv_thread *th;
	struct kv_ent e;
	int rc = 0;

	KV_ASSERT_OUTSIDE();
	/* not inside kv_enter(): it may have to put a memtable in order */
	if (!lk->lk_is_placed)
		rc = it->it_ops->seek(it, lk->lk_range->tr_from, lk->lk_range->tr_flen);
	if (rc)
		return rc;
	lk->lk_is_placed = true;
	th = kv_enter();
	while (!lk->lk_found && !(rc = it->it_ops->next(it, &e)) && !is_behind(lk->lk_range, &e)) {
		lk->lk_found = e.e_seq > lk->lk_view;
		if (++lk->lk_steps % REST)
			continue;
		kv_iter_park(it);
		kv_exit(th);
		th = kv_enter();
	}
	kv_iter_park(it);
	kv_exit(th);
	return rc == -ENOENT ? 0 : rc;
}

/* Takes the source over. */
static int look_into(struct look *lk, struct kv_iter *it)
{
	struct kv_async as = { .as_db = lk->lk_db };
	uint64_t before;
	int rc;

	lk->lk_it = it;
	lk->lk_is_placed = false;
	do {
		before = lk->lk_steps;
		kv_pages_room(lk->lk_db, KV_GET_PAGES);
		kv_async_try(&as);
		rc = look_on(lk);
	} while (kv_async_again(&as, rc, lk->lk_steps != before));
	it->it_ops->close(it);
	return rc;
}

/* Deletes of many keys, and what is linked, hidden, to become one. */
static bool meets_newer_tomb(const struct kv_tree *tr, const struct kv_trange *r, uint64_t view)
{
	struct kv_thread *th = kv_enter();
	bool is = false;

	for (uint32_t i = 0; i < tr->tr_nmt && !is; i++)
		is = kv_mt_tomb_meets(tr->tr_mt[i], r, view);
	for (uint32_t i = 0; i < tr->tr_nrun && !is; i++) {
		const struct kv_tindex *ti = tr->tr_run[i]->rn_tindex;

		is = ti && kv_tindex_meets(ti, r, view);
	}
	kv_exit(th);
	return is;
}

/*
 * Was a key of the range, which is taken, written after the view? The tree is loaded after the
 * grace period: it lists all memtables that a write that saw no owner may have linked into.
 */
static int newer_in(struct kvdb_txn *t, struct kvdb_kvs *kvs, const struct kv_trange *r, bool *out)
{
	struct look lk = { .lk_db = t->t_db, .lk_range = r, .lk_view = t->t_view.vi_seq };
	struct kv_tree *tr = kv_tree_get(kvs);
	struct kv_iter *it;
	int rc = 0;

	lk.lk_found = !CHECK(!meets_newer_tomb(tr, r, lk.lk_view));
	for (uint32_t i = 0; i < tr->tr_nmt && !rc && !lk.lk_found; i++) {
		rc = kv_mt_iter(t->t_db, tr->tr_mt[i], KV_SEQ_NOW, false, &it);
		rc = rc ? rc : look_into(&lk, it);
	}
	for (uint32_t i = 0; i < tr->tr_nrun && !rc && !lk.lk_found; i++) {
		struct kv_run *run = tr->tr_run[i];

		if (kv_run_desc(run)->rd_max_seq <= lk.lk_view || !kv_run_pages_in(run, r))
			continue;
		rc = kv_run_iter(t->t_db, run, false, &it);
		rc = rc ? rc : look_into(&lk, it);
	}
	kv_tree_put(t->t_db, tr);
	*out = lk.lk_found;
	return rc;
}

/* T12: every plain write that has seen no owner of the range is linked, and has its stamp. */
static void wait_for_writes(void)
{
	uint64_t grace = kv_grace_begin();

	KV_ASSERT_OUTSIDE();
	/* on a busy machine a yield costs a time slice of each other thread */
	while (!kv_grace_is_over(grace))
		sched_yield();
}

/* What was read says by itself what was wrong with it. */
static int claim_failed(int err)
{
	return err == -ENOMEM ? kv_error(err, "MP0902", "no memory for a write of a transaction") :
				err;
}

/* Takes the range: what is new of it, @r, must not have been written since the view. */
static int claim(struct kvdb_txn *t, struct kvdb_kvs *kvs, struct kv_tdel *td,
		 const struct kv_trange *r)
{
	struct kvdb *db = t->t_db;
	bool is_newer;
	int err;

	KV_ASSERT_OUTSIDE();
	kv_txn_is_owner(t, KV_FUTEX_ALL);
	err = kv_range_lock(db, &td->td_lock);
	if (err == -EBUSY)
		return kv_txn_conflict(t, kvs, "another open transaction wrote into the range "
				       "first");
	if (err)
		return claim_failed(err);
	(void)BARRIER((wait_for_writes(), 0));
	err = newer_in(t, kvs, r, &is_newer);
	if (!err && !CHECK(!is_newer))
		err = kv_txn_conflict(t, kvs, "a key of the range was written after the "
				      "transaction began");
	if (err) {
		kv_range_unlock(db, &td->td_lock);
		kv_key_wake(db, KV_FUTEX_ALL);
	}
	return claim_failed(err);
}

/* ---- the calls ----------------------------------------------------------------------------- */

/* T16: those that it was joined with stay in its memory. */
static int check_room(struct kvdb_txn *t, const struct joined *jo)
{
	if (t->t_ndel + 1 - jo->jo_n > KVDB_TXN_RANGES_MAX)
		return kv_error(-EFBIG, "MP0932", "the transaction deletes %u ranges that do not "
				"touch each other; more are not possible", t->t_ndel);
	if (t->t_range_bytes - jo->jo_bytes + ent_bytes(&jo->jo_range) > RANGE_BYTES)
		return kv_error(-EFBIG, "MP0932", "the ranges that the transaction deletes would "
				"take more than %u bytes of its commit record", RANGE_BYTES);
	return kv_txn_alloc_room(t, del_bytes(&jo->jo_range));
}

static int range_add(struct kvdb_txn *t, struct kv_touched *tt, const struct kv_trange *r,
		     const struct joined *jo)
{
	struct kv_tdel *td;
	int err = check_room(t, jo);

	if (!err)
		err = kv_mdc_allow_txn_ranges(t->t_db);
	if (err)
		return err;
	td = del_new(t, tt, &jo->jo_range);
	if (!td || kv_vec_grow(&tt->tt_del, &tt->tt_delcap, tt->tt_ndel + 1,
			       sizeof(tt->tt_del[0])))
		return kv_error(-ENOMEM, "MP0902", "no memory for a write of a transaction");
	/* a batch claims all of them at its end */
	err = t->t_is_batch ? 0 : claim(t, tt->tt_kvs, td, r);
	/* the claims that it was joined with are given up for it */
	if (err && jo->jo_n && !t->t_doomed)
		kv_txn_doom(t, err, KVDB_TXN_FAILED);
	if (!err)
		set_put(t, tt, td, jo);
	return err;
}

int kv_txn_range_add(struct kvdb_txn *t, struct kvdb_kvs *kvs, const struct kv_trange *r)
{
	struct kv_touched *tt;
	struct joined jo;
	int err = kv_txn_check_write(t, kvs);

	if (!err && !is_endless(r) && kv_kcmp(r->tr_from, r->tr_flen, r->tr_to, r->tr_tlen) >= 0)
		return 0;	/* nothing lies in it */
	if (!err)
		err = kv_txn_touch(t, kvs, &tt);
	if (err)
		return err;
	join(tt, r, &jo);
	if (!jo.jo_is_there)
		err = range_add(t, tt, r, &jo);
	if (err)
		return err;
	undo_writes(t, tt, r);
	t->t_user_bytes += r->tr_flen + r->tr_tlen;
	return 0;
}

int kvdb_txn_prefix_del(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *prefix, size_t plen)
{
	uint8_t end[KVDB_KEY_MAX];
	struct kv_trange r = { .tr_from = prefix, .tr_to = end };
	int err = kv_check_key(kvs, prefix, plen);

	if (err)
		return err;
	r.tr_flen = (uint16_t)plen;
	r.tr_tlen = kv_prefix_end(prefix, r.tr_flen, end);
	r.tr_flags = r.tr_tlen ? 0 : KV_TR_ENDLESS;
	return kv_txn_range_add(txn, kvs, &r);
}

int kvdb_txn_range_del(struct kvdb_txn *txn, struct kvdb_kvs *kvs, const void *from, size_t flen,
		       const void *to, size_t tlen)
{
	struct kv_trange r = { .tr_from = from, .tr_to = to, .tr_flags = tlen ? 0 :
			       KV_TR_ENDLESS };
	int err = flen || from ? kv_check_key(kvs, from, flen) : 0;

	if (!err && (tlen || to))
		err = kv_check_key(kvs, to, tlen);
	if (err)
		return err;
	r.tr_flen = (uint16_t)flen;
	r.tr_tlen = (uint16_t)tlen;
	return kv_txn_range_add(txn, kvs, &r);
}

/* ---- commit and end ------------------------------------------------------------------------ */

/* Calls @fn for each range of each store. */
static int each(struct kvdb_txn *t, int (*fn)(struct kvdb_txn *t, struct kv_touched *tt,
					      struct kv_tdel *td, uint64_t arg), uint64_t arg)
{
	int err = 0;

	for (struct kv_touched *tt = t->t_ndel ? t->t_touched : NULL; tt && !err; tt = tt->tt_next)
		for (uint32_t i = 0; i < tt->tt_ndel && !err; i++)
			err = fn(t, tt, tt->tt_del[i], arg);
	return err;
}

static int unlock_one(struct kvdb_txn *t, struct kv_touched *tt, struct kv_tdel *td, uint64_t arg)
{
	(void)tt;
	(void)arg;
	kv_range_unlock(t->t_db, &td->td_lock);
	return 0;
}

void kv_txn_ranges_unlock(struct kvdb_txn *t)
{
	(void)each(t, unlock_one, 0);
}

uint32_t kv_txn_ranges_encode(const struct kvdb_txn *t, uint8_t *buf)
{
	uint8_t val[KVDB_KEY_MAX + 1], *p = buf;

	for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next) {
		for (uint32_t i = 0; i < tt->tt_ndel; i++) {
			const struct kv_trange *r = range_of(tt->tt_del[i]);
			struct kv_commit_ent e = {
				.ce_key = r->tr_from, .ce_klen = r->tr_flen, .ce_val = val,
				.ce_kvs = (uint16_t)tt->tt_kvs->k_id, .ce_kind = KV_ENT_COVER,
				.ce_vlen = kv_rec_rdel_value(r, val),
			};

			e.ce_vcrc = mpool_crc32c(0, val, e.ce_vlen);
			p += kv_commit_encode_ent(p, &e);
		}
	}
	return (uint32_t)(p - buf);
}

static int link_one(struct kvdb_txn *t, struct kv_touched *tt, struct kv_tdel *td, uint64_t arg)
{
	KV_ASSERT(tt->tt_mt);
	(void)arg;
	if (td->td_tomb)
		return 0;
	td->td_tomb = kv_mt_tomb_link(tt->tt_mt, range_of(td), t->t_slot);
	if (!td->td_tomb)
		return -ENOMEM;
	kv_tree_mark_tombs(tt->tt_kvs);
	return 0;
}

int kv_txn_ranges_link(struct kvdb_txn *t)
{
	return each(t, link_one, 0);
}

static int renew_one(struct kvdb_txn *t, struct kv_touched *tt, struct kv_tdel *td, uint64_t arg)
{
	(void)tt;
	(void)arg;
	if (td->td_tomb)
		kv_mt_tomb_renew(td->td_tomb, t->t_slot);
	return 0;
}

void kv_txn_ranges_renew(struct kvdb_txn *t)
{
	(void)each(t, renew_one, 0);
}

void kv_txn_ranges_unlink(struct kv_touched *tt)
{
	for (uint32_t i = 0; i < tt->tt_ndel; i++) {
		struct kv_tdel *td = tt->tt_del[i];

		if (td->td_tomb)
			kv_mt_tomb_unlink(tt->tt_mt, td->td_tomb);
		td->td_tomb = NULL;
	}
}

static int epoch_of_one(struct kvdb_txn *t, struct kv_touched *tt, struct kv_tdel *td, uint64_t arg)
{
	(void)t;
	(void)tt;
	kv_mt_tomb_set_epoch(td->td_tomb, arg);
	return 0;
}

void kv_txn_ranges_set_epoch(struct kvdb_txn *t, uint64_t epoch)
{
	(void)each(t, epoch_of_one, epoch);
}

static int seq_of_one(struct kvdb_txn *t, struct kv_touched *tt, struct kv_tdel *td, uint64_t arg)
{
	(void)t;
	(void)tt;
	kv_mt_tomb_set_seq(td->td_tomb, arg);
	return 0;
}

void kv_txn_ranges_set_seq(struct kvdb_txn *t, uint64_t seq)
{
	(void)each(t, seq_of_one, seq);
}

/* The store with ranges that has the next number above @id, or NULL. */
static struct kv_touched *next_store(const struct kvdb_txn *t, uint32_t id)
{
	struct kv_touched *best = NULL;

	for (struct kv_touched *tt = t->t_touched; tt; tt = tt->tt_next)
		if (tt->tt_ndel && tt->tt_kvs->k_id > id &&
		    (!best || tt->tt_kvs->k_id < best->tt_kvs->k_id))
			best = tt;
	return best;
}

int kv_txn_ranges_claim(struct kvdb_txn *t, const struct kv_trange **busy, struct kvdb_kvs **of)
{
	struct kv_touched *tt = t->t_ndel ? t->t_touched : NULL;
	int err = 0;

	KV_ASSERT(t->t_is_batch);
	for (; tt && !err; tt = tt->tt_next)
		for (uint32_t i = 0; i < tt->tt_ndel && !err; i++) {
			*busy = range_of(tt->tt_del[i]);
			*of = tt->tt_kvs;
			err = kv_range_lock(t->t_db, &tt->tt_del[i]->td_lock);
		}
	return err;
}

/* Of several stores in the order of their numbers: others take them so, too. */
void kv_txn_ranges_hold(struct kvdb_txn *t)
{
	struct kv_touched *tt = t->t_ndel ? next_store(t, 0) : NULL;

	for (; tt; tt = next_store(t, tt->tt_kvs->k_id))
		pthread_rwlock_wrlock(&tt->tt_kvs->k_many_lock);
}

void kv_txn_ranges_let(struct kvdb_txn *t)
{
	for (struct kv_touched *tt = t->t_ndel ? t->t_touched : NULL; tt; tt = tt->tt_next)
		if (tt->tt_ndel) {
			KV_ASSERT_WRITES(&tt->tt_kvs->k_many_lock);
			pthread_rwlock_unlock(&tt->tt_kvs->k_many_lock);
		}
}
