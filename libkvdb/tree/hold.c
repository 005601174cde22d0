/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Holds: a cursor keeps a tree, with its memtables and runs, for as long as its owner
 * likes. The keeper takes a hold away when it costs others too much.
 *
 * Between two calls of its owner a hold is IDLE, during one it is BUSY, and one
 * compare-and-swap decides whether the owner has it or the keeper (TAKEN). What
 * was taken is let go of outside of all locks; then the word says why it has
 * gone. A call that comes meanwhile waits for that.
 *
 * Holds on one tree keep the same memory, so they are counted, used and given up
 * together: struct kv_holders, made with the first hold on a tree, in stripes, as
 * threads open cursors on one tree. Those of all trees are in one list, the last
 * used first. A use is noted by the number of the keeper's step, which is read
 * by all and written by few: a walk costs no more for it. The list is put in
 * order when the keeper looks at it; however many holds a tree has, it looks at
 * them only when it takes them.
 *
 * Locks: hd_lock > ov_lock > limbo_lock; hd_lock > stripe.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tree/hold.h"
#include "base/assert.h"
#include "base/guard.h"
#include "base/macros.h"
#include "db/db.h"
#include "db/limbo.h"
#include "db/thread.h"
#include "mem/memtable.h"
#include "tree/tree.h"
#include "tree/view.h"

#define STRIPES		8u

struct stripe {
	pthread_mutex_t st_lock;
	struct kv_hold *st_newest, *st_oldest;
} __attribute__((aligned(KV_CACHELINE)));

struct kv_holders {
	struct kv_tree *hs_tree;
	_Atomic(uint64_t) hs_used;	/* hd_step of the last use */
	/* hd_lock: */
	struct kv_holders *hs_newer, *hs_older;
	struct kv_holders *hs_next;	/* of those that are given up */
	uint64_t hs_seen, hs_seen_ns;	/* the last use that was seen, and when */
	enum kv_hold_word hs_why;
	struct stripe hs_stripe[STRIPES];
};

int kv_holds_init(struct kvdb *db)
{
	db->d_holds = calloc(1, sizeof(*db->d_holds));
	if (!db->d_holds)
		return -ENOMEM;
	pthread_mutex_init(&db->d_holds->hd_lock, NULL);
	atomic_store(&db->d_holds->hd_step, 1);
	return 0;
}

void kv_holds_fini(struct kvdb *db)
{
	if (!db->d_holds)
		return;
	KV_ASSERT(!db->d_holds->hd_newest && !atomic_load(&db->d_holds->hd_n));
	pthread_mutex_destroy(&db->d_holds->hd_lock);
	free(db->d_holds);
	db->d_holds = NULL;
}

/* ---- the list of trees: hd_lock held --------------------------------------------------- */

static void list_add(struct kv_holds *hd, struct kv_holders *hs)
{
	KV_ASSERT_HELD(&hd->hd_lock);
	hs->hs_newer = NULL;
	hs->hs_older = hd->hd_newest;
	if (hs->hs_older)
		hs->hs_older->hs_newer = hs;
	else
		hd->hd_oldest = hs;
	hd->hd_newest = hs;
}

static void list_del(struct kv_holds *hd, struct kv_holders *hs)
{
	KV_ASSERT_HELD(&hd->hd_lock);
	KV_ASSERT(hs->hs_newer ? hs->hs_newer->hs_older == hs : hd->hd_newest == hs);
	if (hs->hs_newer)
		hs->hs_newer->hs_older = hs->hs_older;
	else
		hd->hd_newest = hs->hs_older;
	if (hs->hs_older)
		hs->hs_older->hs_newer = hs->hs_newer;
	else
		hd->hd_oldest = hs->hs_newer;
}

static struct kv_holders *holders_new(struct kv_tree *tr)
{
	struct kv_holders *hs = aligned_alloc(KV_CACHELINE, sizeof(*hs));

	if (!hs)
		return NULL;
	memset(hs, 0, sizeof(*hs));
	hs->hs_tree = tr;
	for (unsigned i = 0; i < STRIPES; i++)
		pthread_mutex_init(&hs->hs_stripe[i].st_lock, NULL);
	return hs;
}

static void holders_destroy(struct kv_holders *hs)
{
	for (unsigned i = 0; i < STRIPES; i++)
		pthread_mutex_destroy(&hs->hs_stripe[i].st_lock);
	free(hs);
}

int kv_hold_ready(struct kvdb *db, struct kv_tree *tr)
{
	struct kv_holds *hd = db->d_holds;
	struct kv_holders *hs;

	if (KV_LIKELY(!tr || atomic_load_explicit(&tr->tr_holders, memory_order_acquire)))
		return 0;
	hs = holders_new(tr);
	if (!hs)
		return -ENOMEM;
	pthread_mutex_lock(&hd->hd_lock);
	if (atomic_load(&tr->tr_holders)) {
		pthread_mutex_unlock(&hd->hd_lock);
		holders_destroy(hs);
		return 0;
	}
	list_add(hd, hs);
	hs->hs_seen = atomic_load(&hd->hd_step);
	hs->hs_seen_ns = kv_now(db);
	atomic_store(&hs->hs_used, hs->hs_seen);
	atomic_fetch_add(&hd->hd_n, 1);
	atomic_store_explicit(&tr->tr_holders, hs, memory_order_release);
	pthread_mutex_unlock(&hd->hd_lock);
	return 0;
}

void kv_holders_free(struct kvdb *db, struct kv_holders *hs)
{
	struct kv_holds *hd = db->d_holds;

	if (!hs)
		return;
	pthread_mutex_lock(&hd->hd_lock);
	list_del(hd, hs);
	KV_ASSERT(atomic_load(&hd->hd_n));
	atomic_fetch_sub(&hd->hd_n, 1);
	pthread_mutex_unlock(&hd->hd_lock);
	holders_destroy(hs);
}

/* ---- one hold ----------------------------------------------------------------------------- */

/* The stripe's lock held. */
static void stripe_del(struct stripe *st, struct kv_hold *ho)
{
	KV_ASSERT_HELD(&st->st_lock);
	KV_ASSERT(ho->ho_newer ? ho->ho_newer->ho_older == ho : st->st_newest == ho);
	if (ho->ho_newer)
		ho->ho_newer->ho_older = ho->ho_older;
	else
		st->st_newest = ho->ho_older;
	if (ho->ho_older)
		ho->ho_older->ho_newer = ho->ho_newer;
	else
		st->st_oldest = ho->ho_newer;
}

static inline void note_use(struct kvdb *db, struct kv_holders *hs)
{
	uint64_t step = atomic_load_explicit(&db->d_holds->hd_step, memory_order_relaxed);

	if (KV_UNLIKELY(atomic_load_explicit(&hs->hs_used, memory_order_relaxed) != step))
		atomic_store_explicit(&hs->hs_used, step, memory_order_relaxed);
}

/* The keeper does not touch it: its owner uses it, or there is nothing to take. */
static bool is_owners(const struct kv_hold *ho)
{
	uint32_t word = atomic_load_explicit(&ho->ho_word, memory_order_relaxed);

	return word != KV_HOLD_IDLE && word != KV_HOLD_TAKEN;
}

void kv_hold_add(struct kvdb *db, struct kv_hold *ho, struct kv_tree *tr)
{
	struct kv_holders *hs = NULL;
	struct stripe *st;

	KV_ASSERT(is_owners(ho));
	if (tr)
		hs = atomic_load_explicit(&tr->tr_holders, memory_order_acquire);
	ho->ho_in = hs;
	if (!hs)
		return;
	note_use(db, hs);
	ho->ho_stripe = kv_thread_no() % STRIPES;
	st = &hs->hs_stripe[ho->ho_stripe];
	pthread_mutex_lock(&st->st_lock);
	ho->ho_newer = NULL;
	ho->ho_older = st->st_newest;
	if (ho->ho_older)
		ho->ho_older->ho_newer = ho;
	else
		st->st_oldest = ho;
	st->st_newest = ho;
	pthread_mutex_unlock(&st->st_lock);
}

void kv_hold_del(struct kv_hold *ho)
{
	struct stripe *st;

	KV_ASSERT(is_owners(ho));
	if (!ho->ho_in)
		return;
	st = &ho->ho_in->hs_stripe[ho->ho_stripe];
	pthread_mutex_lock(&st->st_lock);
	stripe_del(st, ho);
	pthread_mutex_unlock(&st->st_lock);
	ho->ho_in = NULL;
}

void kv_hold_end(struct kvdb *db, struct kv_hold *ho)
{
	KV_ASSERT_SLOW(is_owners(ho));
	if (KV_LIKELY(ho->ho_in != NULL))
		note_use(db, ho->ho_in);
	atomic_store_explicit(&ho->ho_word, KV_HOLD_IDLE, memory_order_release);
}

bool kv_hold_settle(struct kv_hold *ho)
{
	while (!kv_hold_begin(ho)) {
		uint32_t w = atomic_load_explicit(&ho->ho_word, memory_order_acquire);

		if (w == KV_HOLD_BUSY)	/* by its owner, the caller */
			return true;
		if (w >= KV_HOLD_GONE_MEMORY)
			return false;
		sched_yield();	/* the keeper frees some memory */
	}
	return true;
}

/* ---- giving up ------------------------------------------------------------------------------- */

/* Uses since the last step come to the front of the list, the oldest first. hd_lock held. */
static void see_uses(struct kv_holds *hd, uint64_t now)
{
	struct kv_holders *hs, *newer;

	KV_ASSERT_HELD(&hd->hd_lock);
	for (hs = hd->hd_oldest; hs; hs = newer) {
		uint64_t used = atomic_load_explicit(&hs->hs_used, memory_order_relaxed);

		newer = hs->hs_newer;
		if (used == hs->hs_seen)
			continue;
		hs->hs_seen = used;
		hs->hs_seen_ns = now;
		if (newer) {
			list_del(hd, hs);
			list_add(hd, hs);
		}
	}
}

/* Memory of flushed memtables in the tree that has no mark yet; with @marks it has one then. */
static uint64_t tree_bytes(const struct kv_tree *tr, uint64_t mark, bool marks)
{
	uint64_t n = 0;

	for (uint32_t i = 0; tr && i < tr->tr_nmt; i++) {
		struct kv_mt *mt = tr->tr_mt[i];

		if (!atomic_load(&mt->m_flushed) || mt->m_mark == mark)
			continue;
		n += atomic_load(&mt->m_bytes);
		if (marks)
			mt->m_mark = mark;
	}
	return n;
}

static uint64_t forest_bytes(const struct kv_forest_trees *ft, uint64_t mark, bool marks)
{
	uint64_t n = 0;

	for (uint32_t i = 0; ft && i < ft->ft_n; i++)
		n += tree_bytes(ft->ft_ent[i].tree, mark, marks);
	return n;
}

/* Has it any? A tree may be kept by others. */
static bool has_holds(struct kv_holders *hs)
{
	bool has = false;

	for (unsigned i = 0; i < STRIPES && !has; i++) {
		pthread_mutex_lock(&hs->hs_stripe[i].st_lock);
		has = hs->hs_stripe[i].st_newest;
		pthread_mutex_unlock(&hs->hs_stripe[i].st_lock);
	}
	return has;
}

/*
 * Flushed memtables are not in the budget of memtables any more: views and cursors may keep
 * two thirds of as much again.
 */
static uint64_t kept_max(struct kvdb *db)
{
	return db->d_budget.b_mt_bytes / 3 * 2;
}

struct pass {			/* over what is kept, the last used first */
	uint64_t mark, sum, most;
	bool is_over;
};

/*
 * Does it stay that keeps @n bytes which none before it does? After one that does not, none stays
 * that keeps any; the first that does stays, however much that is: HO3.
 */
static bool stays(struct pass *pa, uint64_t n)
{
	if (!n)
		return true;
	if (pa->sum && pa->sum + n > pa->most)
		pa->is_over = true;
	if (!pa->is_over)
		pa->sum += n;
	return !pa->is_over;
}

static void look_at_forest(struct kvdb *db, struct pass *pa, struct kv_forest *fo)
{
	const struct kv_forest_trees *ft = atomic_load(&fo->fo_trees);
	uint64_t n = forest_bytes(ft, pa->mark, false);

	/* the cached forest's trees are the current ones: that frees nothing */
	if (stays(pa, n) || fo == atomic_load(&db->d_trees.te_forest))
		forest_bytes(ft, pa->mark, true);
	else
		kv_forest_give_up(fo);
}

/* hd_lock held. Returns those to be given up, in front of @gone. */
static struct kv_holders *choose_for_memory(struct kvdb *db, struct kv_holders *gone)
{
	struct pass pa = { .most = kept_max(db) };
	struct kv_holders *hs = db->d_holds->hd_newest;
	struct kv_open_views *ov = db->d_trees.te_open_views;
	struct kv_forest *fo;
	uint64_t n;

	KV_ASSERT_HELD(&db->d_holds->hd_lock);
	pthread_mutex_lock(&ov->ov_lock);
	pa.mark = ++ov->ov_marks;
	for (fo = ov->ov_forests; fo || hs;) {
		if (fo && (!hs || fo->fo_step >= hs->hs_seen)) {
			look_at_forest(db, &pa, fo);
			fo = fo->fo_older;
			continue;
		}
		n = tree_bytes(hs->hs_tree, pa.mark, false);
		if (n && hs->hs_why == KV_HOLD_IDLE && has_holds(hs)) {
			if (stays(&pa, n)) {
				tree_bytes(hs->hs_tree, pa.mark, true);
			} else {
				hs->hs_why = KV_HOLD_GONE_MEMORY;
				hs->hs_next = gone;
				gone = hs;
			}
		}
		hs = hs->hs_older;
	}
	pthread_mutex_unlock(&ov->ov_lock);
	return gone;
}

/* hd_lock held. Those that were unused for too long, and that are no store's current tree. */
static struct kv_holders *choose_unused(struct kvdb *db, uint64_t now)
{
	uint64_t age = db->d_mode.md_view_max_age_ms * 1000000ull;
	struct kv_holders *hs, *gone = NULL;

	KV_ASSERT_HELD(&db->d_holds->hd_lock);
	/* the last used come last, so the first that is young ends the search */
	for (hs = db->d_holds->hd_oldest; hs && now >= hs->hs_seen_ns + age; hs = hs->hs_newer) {
		if (!atomic_load(&hs->hs_tree->tr_is_old))
			continue;
		hs->hs_why = KV_HOLD_GONE_UNUSED;
		hs->hs_next = gone;
		gone = hs;
	}
	return gone;
}

/* Its holds but for those of which a call is under way, in front of @list, by ho_older. */
static struct kv_hold *take(struct kv_holders *hs, struct kv_hold *list, uint64_t *n)
{
	for (unsigned i = 0; i < STRIPES; i++) {
		struct stripe *st = &hs->hs_stripe[i];
		struct kv_hold *ho, *older;

		pthread_mutex_lock(&st->st_lock);
		for (ho = st->st_newest; ho; ho = older) {
			uint32_t idle = KV_HOLD_IDLE;

			older = ho->ho_older;
			if (!CHECK(atomic_compare_exchange_strong(&ho->ho_word, &idle,
								  KV_HOLD_TAKEN)))
				continue;
			stripe_del(st, ho);
			ho->ho_in = NULL;
			ho->ho_why = hs->hs_why;
			ho->ho_older = list;
			list = ho;
			++*n;
		}
		pthread_mutex_unlock(&st->st_lock);
	}
	return list;
}

void kv_holds_step(struct kvdb *db)
{
	struct kv_holds *hd = db->d_holds;
	uint64_t now = kv_now(db), n = 0;
	struct kv_hold *taken = NULL, *next;
	struct kv_holders *gone, *hs;
	struct kv_thread *t;

	if (!atomic_load_explicit(&hd->hd_n, memory_order_relaxed) &&
	    !atomic_load_explicit(&db->d_trees.te_open_views->ov_n, memory_order_relaxed))
		return;
	t = kv_enter();	/* no destructor runs under the lock */
	pthread_mutex_lock(&hd->hd_lock);
	see_uses(hd, now);
	atomic_fetch_add(&hd->hd_step, 1);
	gone = choose_unused(db, now);
	if (atomic_load(&db->d_mem.mm_views->vw_flushed_bytes) > kept_max(db))
		gone = choose_for_memory(db, gone);
	for (hs = gone; hs; hs = hs->hs_next) {
		taken = take(hs, taken, &n);
		hs->hs_why = KV_HOLD_IDLE;
	}
	pthread_mutex_unlock(&hd->hd_lock);
	atomic_fetch_add(&hd->hd_ended, n);
	for (; taken; taken = next) {
		next = taken->ho_older;
		KV_ASSERT(atomic_load(&taken->ho_word) == KV_HOLD_TAKEN);
		KV_ASSERT_FREE(&hd->hd_lock);
		taken->ho_let_go(taken);
		atomic_store_explicit(&taken->ho_word, taken->ho_why, memory_order_release);
	}
	kv_exit(t);
}

/* ---- statistics ------------------------------------------------------------------------------ */

void kv_holds_stats(struct kvdb *db, struct kvdb_stats *st)
{
	uint64_t now = kv_now(db), born = now;
	struct kv_holds *hd = db->d_holds;

	pthread_mutex_lock(&hd->hd_lock);
	for (struct kv_holders *hs = hd->hd_newest; hs; hs = hs->hs_older) {
		for (unsigned i = 0; i < STRIPES; i++) {
			struct stripe *s = &hs->hs_stripe[i];

			pthread_mutex_lock(&s->st_lock);
			if (s->st_oldest && s->st_oldest->ho_born_ns < born)
				born = s->st_oldest->ho_born_ns;
			pthread_mutex_unlock(&s->st_lock);
		}
	}
	pthread_mutex_unlock(&hd->hd_lock);
	st->cursor_oldest_ns = now - born;
	st->cursors_ended = atomic_load(&hd->hd_ended);
}
