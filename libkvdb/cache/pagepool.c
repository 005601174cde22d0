/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The page pool: 4 KiB pages of objects, found through one hash table.
 *
 * A reader looks a page up without a lock, inside kv_enter(); the bytes stay
 * until it leaves, for an evicted page is reused only after a grace period.
 * Chains change under the lock of their shard. A miss puts a page in state
 * LOADING into the chain first, so that others wait for the one read; load.c
 * does the read. A thread finishes its own reads before it waits for those of
 * others, and one that may leave in between claims nothing.
 *
 * A reader never waits for a free page: it may itself hold up the
 * grace period. When the free list is empty it reads into memory of its own,
 * which is retired at once.
 *
 * Eviction: a page comes as young. Beyond a quarter of the pool the oldest of the
 * young goes, unless it was used since it came: then it is grown, and goes when the
 * clock finds it unused. So what is read once, by a scan or of a flat tail, passes
 * through that quarter and pushes nothing out of the rest (two queues after Johnson
 * and Shasha, "2Q", VLDB 1994, with the promotion of Yang et al., "FIFO queues are
 * all you need for cache eviction", SOSP 2023; a list of those that went lately, which
 * both have, would save another fiftieth of the reads of zipfian gets: not kept).
 * A use within a short time of its coming is by the caller that asked for it: not counted.
 *
 * States: FREE -> LOADING -> LIVE -> RETIRED -> FREE, or LOADING -> FAILED ->
 * FREE. The thread that moves a page from LIVE to RETIRED (by compare-and-swap, under the
 * shard lock) retires it.
 *
 * Locks: pp_lock (free list, slabs, clock hand), then a shard's lock. Neither
 * is held during I/O or kv_retire().
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/guard.h"
#include "db/db.h"
#include "db/limbo.h"
#include "db/waits.h"
#include "cache/borrow.h"
#include "cache/pages.h"
#include "cache/slab.h"

#define SHARDS		64u
#define BATCH		64u
#define PAGE		4096u
#define SCRATCH_KEEP	4u
#define HITS_FOLD	256u
#define YOUNG		4u	/* part of all pages that those which came last may take */
#define FRESH		32u	/* while so large a part of them comes, uses are not counted */
#define USE_MAX		3u	/* rounds of the clock that a page survives at most */

enum page_state { PG_FREE = 0, PG_LOADING, PG_LIVE, PG_RETIRED, PG_FAILED };

struct kv_page {
	uint64_t pg_obj;
	uint64_t pg_no;
	_Atomic(struct kv_page *) pg_next;	/* of its chain, or of the free list */
	uint8_t *pg_data;
	_Atomic(uint32_t) pg_state;		/* enum page_state */
	int pg_err;				/* FAILED: why */
	_Atomic(uint8_t) pg_use;		/* how often, up to USE_MAX, less rounds survived */
	_Atomic(bool) pg_is_lost;		/* FAILED, and not retired yet */
	_Atomic(bool) pg_is_young;		/* changes under pp_lock */
	_Atomic(uint32_t) pg_turn;		/* young: its place in pp_young */
	uint32_t pg_slab;
} __attribute__((aligned(64)));

struct pslab {
	uint8_t *ps_mem;
	struct kv_page *ps_page;
	bool ps_leaving;	/* its pages go FREE for good */
	bool ps_is_lent;	/* its memory is no slab's */
};

struct shard {
	pthread_mutex_t sh_lock;
	pthread_cond_t sh_cond;
	unsigned sh_waiters;
} __attribute__((aligned(KV_CACHELINE)));

struct kv_pagepool {
	struct kvdb *pp_db;
	_Atomic(struct kv_page *) *pp_bucket;
	uint64_t pp_mask;
	unsigned pp_per_slab;	/* pages */
	unsigned pp_low;	/* free pages below which eviction starts */

	pthread_mutex_t pp_lock;
	struct kv_page *pp_free;
	unsigned pp_nfree;	/* on the free list */
	unsigned pp_ngrace;	/* evicted, not free yet */
	struct pslab *pp_slab;
	unsigned pp_nslab, pp_slab_cap;
	unsigned pp_hand_slab, pp_hand;
	_Atomic(uint32_t) pp_npage;	/* of slabs that are not leaving */
	/*
	 * Ring of pp_mask + 1: which pages came, slab by slab counted, oldest first. One
	 * that went otherwise is not taken out: it is not young any more, or of another turn.
	 */
	uint32_t *pp_young;
	_Atomic(uint32_t) pp_turn;	/* of the next page */
	uint32_t pp_oldest;		/* turn of the first */
	uint32_t pp_nyoung;
	_Atomic(bool) pp_short;		/* few free pages were found */
	_Atomic(bool) pp_is_repaying;	/* a thread takes lent slabs back */
	uint8_t *pp_scratch[SCRATCH_KEEP];
	unsigned pp_nscratch;
	_Atomic(uint32_t) pp_out;	/* batches in flight to the reclaimer */

	struct shard pp_shard[SHARDS];
};

/* Pages on the way to the free list. */
struct batch {
	struct kv_pagepool *ba_pool;
	unsigned ba_n;
	struct kv_limbo ba_limbo;
	struct kv_page *ba_page[BATCH];
};

static inline uint64_t page_hash(uint64_t obj, uint64_t no)
{
	return kv_mix(obj * 0x9e3779b97f4a7c15ull + no);
}

static inline struct kv_page *lookup(struct kv_pagepool *pp, uint64_t hash, uint64_t obj,
				     uint64_t no)
{
	struct kv_page *p = atomic_load_explicit(&pp->pp_bucket[hash & pp->pp_mask],
						 memory_order_acquire);

	KV_ASSERT_INSIDE();
	while (p && (p->pg_no != no || p->pg_obj != obj))
		p = atomic_load_explicit(&p->pg_next, memory_order_acquire);
	return p;
}

static inline struct shard *shard_of(struct kv_pagepool *pp, uint64_t hash)
{
	return &pp->pp_shard[hash % SHARDS];
}

int kv_pagepool_init(struct kvdb *db)
{
	struct kv_pagepool *pp = aligned_alloc(KV_CACHELINE, sizeof(*pp));
	uint64_t pages = (db->d_budget.b_slab_bytes + kv_borrow_max(db)) / PAGE, n = 1024;

	if (!pp)
		return -ENOMEM;
	memset(pp, 0, sizeof(*pp));
	while (n < pages)
		n *= 2;
	pp->pp_db = db;
	pp->pp_mask = n - 1;
	pp->pp_per_slab = db->d_budget.b_seg_bytes / PAGE;
	pp->pp_low = pp->pp_per_slab / 4 < BATCH ? pp->pp_per_slab / 4 : BATCH;
	pp->pp_bucket = mmap(NULL, n * sizeof(*pp->pp_bucket), PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	pp->pp_young = calloc(n, sizeof(*pp->pp_young));
	if (pp->pp_bucket == MAP_FAILED || !pp->pp_young || kv_borrow_init(db)) {
		if (pp->pp_bucket != MAP_FAILED)
			munmap(pp->pp_bucket, n * sizeof(*pp->pp_bucket));
		free(pp->pp_young);
		free(pp);
		return -ENOMEM;
	}
	pthread_mutex_init(&pp->pp_lock, NULL);
	for (unsigned i = 0; i < SHARDS; i++) {
		pthread_mutex_init(&pp->pp_shard[i].sh_lock, NULL);
		pthread_cond_init(&pp->pp_shard[i].sh_cond, NULL);
	}
	db->d_cache.cc_pages = pp;
	return 0;
}

void kv_pagepool_fini(struct kvdb *db)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;

	if (!pp)
		return;
	kv_retire_barrier();
	while (atomic_load(&pp->pp_out)) {
		sched_yield();
		kv_retire_barrier();
	}
	for (unsigned i = 0; i < SHARDS; i++) {
		pthread_mutex_destroy(&pp->pp_shard[i].sh_lock);
		pthread_cond_destroy(&pp->pp_shard[i].sh_cond);
	}
	KV_ASSERT(!pp->pp_ngrace);
	for (unsigned i = 0; i < pp->pp_nslab; i++)
		free(pp->pp_slab[i].ps_page);
	for (unsigned i = 0; i < pp->pp_nscratch; i++)
		free(pp->pp_scratch[i]);
	munmap(pp->pp_bucket, (pp->pp_mask + 1) * sizeof(*pp->pp_bucket));
	kv_borrow_fini(db);
	pthread_mutex_destroy(&pp->pp_lock);
	free(pp->pp_young);
	free(pp->pp_slab);
	free(pp);
	db->d_cache.cc_pages = NULL;
}

/* ---- the young, all of it under pp_lock ------------------------------------------ */

static void young_end(struct kv_pagepool *pp, struct kv_page *p)
{
	KV_ASSERT_HELD(&pp->pp_lock);
	if (atomic_load_explicit(&p->pg_is_young, memory_order_relaxed)) {
		atomic_store_explicit(&p->pg_is_young, false, memory_order_relaxed);
		KV_ASSERT(pp->pp_nyoung);
		pp->pp_nyoung--;
	}
}

/* The page that came first, grown now; NULL: whatever it was is not young any more. */
static struct kv_page *young_oldest(struct kv_pagepool *pp)
{
	uint32_t turn = pp->pp_oldest++, no = pp->pp_young[turn & pp->pp_mask];
	struct kv_page *pages = pp->pp_slab[no / pp->pp_per_slab].ps_page, *p;

	KV_ASSERT_HELD(&pp->pp_lock);
	if (!pages)
		return NULL;
	p = &pages[no % pp->pp_per_slab];
	if (!atomic_load_explicit(&p->pg_is_young, memory_order_relaxed) ||
	    atomic_load_explicit(&p->pg_turn, memory_order_relaxed) != turn)
		return NULL;
	young_end(pp, p);
	return p;
}

static void young_add(struct kv_pagepool *pp, struct kv_page *p)
{
	uint32_t turn = atomic_load_explicit(&pp->pp_turn, memory_order_relaxed);

	KV_ASSERT_HELD(&pp->pp_lock);
	KV_ASSERT(!atomic_load_explicit(&p->pg_is_young, memory_order_relaxed));
	if (turn - pp->pp_oldest > pp->pp_mask)
		young_oldest(pp);
	pp->pp_young[turn & pp->pp_mask] = p->pg_slab * pp->pp_per_slab +
					   (uint32_t)(p - pp->pp_slab[p->pg_slab].ps_page);
	atomic_store_explicit(&p->pg_turn, turn, memory_order_relaxed);
	atomic_store_explicit(&p->pg_is_young, true, memory_order_relaxed);
	atomic_store_explicit(&pp->pp_turn, turn + 1, memory_order_relaxed);
	pp->pp_nyoung++;
}

/* ---- the free list ------------------------------------------------------------ */

/* Under pp_lock. */
static void page_free(struct kv_pagepool *pp, struct kv_page *p)
{
	KV_ASSERT_HELD(&pp->pp_lock);
	KV_ASSERT(atomic_load_explicit(&p->pg_state, memory_order_relaxed) != PG_LIVE);
	young_end(pp, p);
	atomic_store_explicit(&p->pg_state, PG_FREE, memory_order_release);
	if (pp->pp_slab[p->pg_slab].ps_leaving)
		return;
	atomic_store_explicit(&p->pg_next, pp->pp_free, memory_order_relaxed);
	pp->pp_free = p;
	pp->pp_nfree++;
}

static void batch_freed(void *arg)
{
	struct batch *b = arg;
	struct kv_pagepool *pp = b->ba_pool;

	pthread_mutex_lock(&pp->pp_lock);
	for (unsigned i = 0; i < b->ba_n; i++)
		page_free(pp, b->ba_page[i]);
	KV_ASSERT(pp->pp_ngrace >= b->ba_n);
	pp->pp_ngrace -= b->ba_n;
	pthread_mutex_unlock(&pp->pp_lock);
	free(b);
	atomic_fetch_sub(&pp->pp_out, 1);
}

/* Hands the pages of a batch to the reclaimer. */
static void batch_retire(struct batch *b)
{
	struct kv_pagepool *pp = b->ba_pool;

	KV_ASSERT(b->ba_n <= BATCH);
	KV_ASSERT_FREE(&pp->pp_lock);
	if (!b->ba_n) {
		free(b);
		return;
	}
	pthread_mutex_lock(&pp->pp_lock);
	pp->pp_ngrace += b->ba_n;
	pthread_mutex_unlock(&pp->pp_lock);
	atomic_fetch_add(&pp->pp_out, 1);
	kv_retire(&b->ba_limbo, batch_freed, b);
}

static struct batch *batch_new(struct kv_pagepool *pp)
{
	struct batch *b = malloc(sizeof(*b));

	if (b) {
		b->ba_pool = pp;
		b->ba_n = 0;
	}
	return b;
}

/* Takes @p out of its chain when it is in state @from; false: another thread did. */
static bool page_unlink(struct kv_pagepool *pp, struct kv_page *p, uint32_t from, uint32_t to)
{
	uint64_t hash = page_hash(p->pg_obj, p->pg_no);
	struct shard *sh = shard_of(pp, hash);
	_Atomic(struct kv_page *) *pp_link = &pp->pp_bucket[hash & pp->pp_mask];
	struct kv_page *q = NULL;
	bool won;

	pthread_mutex_lock(&sh->sh_lock);
	won = atomic_compare_exchange_strong(&p->pg_state, &from, to);
	while (won && (q = atomic_load_explicit(pp_link, memory_order_relaxed))) {
		if (q == p) {
			atomic_store_explicit(pp_link, atomic_load(&p->pg_next),
					      memory_order_release);
			break;
		}
		pp_link = &q->pg_next;
	}
	KV_ASSERT(!won || q == p);
	if (won && sh->sh_waiters)
		pthread_cond_broadcast(&sh->sh_cond);
	pthread_mutex_unlock(&sh->sh_lock);
	return won;
}

/* Under pp_lock: the next grown page that the clock gives up, or NULL. */
static struct kv_page *clock_next(struct kv_pagepool *pp, uint64_t *steps)
{
	KV_ASSERT_HELD(&pp->pp_lock);
	while (*steps && pp->pp_nslab) {
		struct pslab *ps;
		struct kv_page *p;
		uint8_t use;

		if (pp->pp_hand >= pp->pp_per_slab) {
			pp->pp_hand = 0;
			pp->pp_hand_slab++;
		}
		if (pp->pp_hand_slab >= pp->pp_nslab)
			pp->pp_hand_slab = 0;
		ps = &pp->pp_slab[pp->pp_hand_slab];
		if (!ps->ps_mem || ps->ps_leaving) {
			pp->pp_hand = pp->pp_per_slab;
			--*steps;
			continue;
		}
		p = &ps->ps_page[pp->pp_hand++];
		--*steps;
		if (atomic_load_explicit(&p->pg_state, memory_order_acquire) != PG_LIVE ||
		    atomic_load_explicit(&p->pg_is_young, memory_order_relaxed))
			continue;
		use = atomic_load_explicit(&p->pg_use, memory_order_relaxed);
		if (!use)
			return p;
		atomic_store_explicit(&p->pg_use, use - 1, memory_order_relaxed);
	}
	return NULL;
}

/* Under pp_lock: the page that goes next, or NULL. */
static struct kv_page *next_out(struct kv_pagepool *pp, uint64_t *steps)
{
	uint32_t most = atomic_load_explicit(&pp->pp_npage, memory_order_relaxed) / YOUNG;

	KV_ASSERT_HELD(&pp->pp_lock);
	for (; *steps && pp->pp_nyoung > most; --*steps) {
		struct kv_page *p = young_oldest(pp);
		uint32_t st = p ? atomic_load_explicit(&p->pg_state, memory_order_acquire) :
			      (uint32_t)PG_FREE;

		if (st == PG_LIVE &&
		    !CHECK(atomic_load_explicit(&p->pg_use, memory_order_relaxed)))
			return p;
		/* it has been used once: from here on it must be again */
		if (st == PG_LIVE) {
			atomic_store_explicit(&p->pg_use, 0, memory_order_relaxed);
		} else if (st == PG_LOADING) {
			young_add(pp, p);
			most++;
		}
	}
	return clock_next(pp, steps);
}

static void evict(struct kv_pagepool *pp)
{
	struct batch *b = batch_new(pp);
	uint64_t steps;

	if (!b)
		return;
	pthread_mutex_lock(&pp->pp_lock);
	steps = 4ull * pp->pp_nslab * pp->pp_per_slab;
	while (b->ba_n < pp->pp_low) {
		struct kv_page *p = next_out(pp, &steps);

		if (!p)
			break;
		if (page_unlink(pp, p, PG_LIVE, PG_RETIRED))
			b->ba_page[b->ba_n++] = p;
	}
	pthread_mutex_unlock(&pp->pp_lock);
	batch_retire(b);
}

/*
 * Adds a slab's pages to the free list; the slab goes to a hole in the table or to its end.
 * False: there is none, or no memory for what describes it.
 */
static bool grow(struct kv_pagepool *pp)
{
	uint8_t *mem = kv_slab_take_pages(pp->pp_db);
	bool is_lent = !mem;
	struct kv_page *pages;
	unsigned at = 0;

	if (is_lent)
		mem = kv_borrow_take(pp->pp_db, kv_slab_big_bytes(pp->pp_db));
	if (!mem)
		return false;
	pages = aligned_alloc(64, pp->pp_per_slab * sizeof(*pages));
	pthread_mutex_lock(&pp->pp_lock);
	while (at < pp->pp_nslab && pp->pp_slab[at].ps_mem)
		at++;
	if (at == pp->pp_slab_cap) {
		unsigned cap = at ? at * 2 : 16;
		struct pslab *s = realloc(pp->pp_slab, cap * sizeof(*s));

		if (s) {
			pp->pp_slab = s;
			pp->pp_slab_cap = cap;
		}
	}
	if (!pages || at == pp->pp_slab_cap) {
		pthread_mutex_unlock(&pp->pp_lock);
		if (is_lent)
			kv_borrow_give(pp->pp_db, mem);
		else
			kv_slab_give_pages(pp->pp_db, mem);
		free(pages);
		return false;
	}
	if (at == pp->pp_nslab)
		pp->pp_nslab++;
	pp->pp_slab[at] = (struct pslab){ .ps_mem = mem, .ps_page = pages, .ps_is_lent = is_lent };
	memset(pages, 0, pp->pp_per_slab * sizeof(*pages));
	for (unsigned i = pp->pp_per_slab; i-- > 0;) {
		pages[i].pg_data = mem + (size_t)i * PAGE;
		pages[i].pg_slab = at;
		page_free(pp, &pages[i]);
	}
	atomic_fetch_add_explicit(&pp->pp_npage, pp->pp_per_slab, memory_order_relaxed);
	pthread_mutex_unlock(&pp->pp_lock);
	return true;
}

/*
 * A page in state LOADING that no other thread sees, or NULL. One of keys, which serves many
 * values, comes as if it had been used.
 */
static struct kv_page *page_take(struct kv_pagepool *pp, bool is_key)
{
	struct kv_page *p;
	bool low;

	pthread_mutex_lock(&pp->pp_lock);
	low = pp->pp_nfree + pp->pp_ngrace < pp->pp_low;
	/* at each miss, also while evicted pages are on their way: a thread must fetch them */
	if (pp->pp_nfree < pp->pp_low)
		atomic_store_explicit(&pp->pp_short, true, memory_order_relaxed);
	pthread_mutex_unlock(&pp->pp_lock);
	if (low && !grow(pp))
		evict(pp);
	pthread_mutex_lock(&pp->pp_lock);
	p = pp->pp_free;
	if (p) {
		pp->pp_free = atomic_load_explicit(&p->pg_next, memory_order_relaxed);
		KV_ASSERT(atomic_load_explicit(&p->pg_state, memory_order_relaxed) == PG_FREE);
		pp->pp_nfree--;
		atomic_store_explicit(&p->pg_state, PG_LOADING, memory_order_relaxed);
		atomic_store_explicit(&p->pg_use, is_key, memory_order_relaxed);
		young_add(pp, p);
	}
	pthread_mutex_unlock(&pp->pp_lock);
	return p;
}

/*
 * Evicted pages come back two grace periods later, so room for a batch is made
 * some batches ahead.
 */
void kv_pages_room(struct kvdb *db, unsigned n)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;

	KV_ASSERT_OUTSIDE();
	if (!atomic_load_explicit(&pp->pp_short, memory_order_relaxed))
		return;
	for (unsigned tries = 0; tries < 8; tries++) {
		bool is_short, is_coming;

		pthread_mutex_lock(&pp->pp_lock);
		is_short = pp->pp_nfree < n;
		is_coming = pp->pp_nfree + pp->pp_ngrace >= 4 * n;
		pthread_mutex_unlock(&pp->pp_lock);
		if (is_short && is_coming)
			kv_reclaim();
		else if (!is_short)
			atomic_store_explicit(&pp->pp_short, false, memory_order_relaxed);
		if (!is_short || is_coming)
			return;
		if (!grow(pp))
			evict(pp);
	}
}

static void page_untake(struct kv_pagepool *pp, struct kv_page *p)
{
	pthread_mutex_lock(&pp->pp_lock);
	page_free(pp, p);
	pthread_mutex_unlock(&pp->pp_lock);
}

/* Links @p, or returns the page that was there already (and keeps @p out). */
static struct kv_page *page_link(struct kv_pagepool *pp, struct kv_page *p, uint64_t hash,
				 uint64_t obj, uint64_t no, uint32_t state)
{
	struct shard *sh = shard_of(pp, hash);
	_Atomic(struct kv_page *) *head = &pp->pp_bucket[hash & pp->pp_mask];
	struct kv_page *q;

	pthread_mutex_lock(&sh->sh_lock);
	q = lookup(pp, hash, obj, no);
	if (!q) {
		p->pg_obj = obj;
		p->pg_no = no;
		p->pg_err = 0;
		atomic_store_explicit(&p->pg_next, atomic_load(head), memory_order_relaxed);
		atomic_store_explicit(&p->pg_state, state, memory_order_release);
		atomic_store_explicit(head, p, memory_order_release);
	}
	pthread_mutex_unlock(&sh->sh_lock);
	return q;
}

/* ---- what load.c uses ------------------------------------------------------------- */

static inline void count_hit(struct kv_pagepool *pp)
{
	static __thread uint32_t hits;

	if (++hits == HITS_FOLD) {
		hits = 0;
		atomic_fetch_add_explicit(&pp->pp_db->d_count.page_hits, HITS_FOLD,
					  memory_order_relaxed);
	}
}

static inline bool is_fresh(struct kv_pagepool *pp, struct kv_page *p)
{
	uint32_t turn = atomic_load_explicit(&p->pg_turn, memory_order_relaxed);

	return atomic_load_explicit(&p->pg_is_young, memory_order_relaxed) &&
	       atomic_load_explicit(&pp->pp_turn, memory_order_relaxed) - turn <
	       atomic_load_explicit(&pp->pp_npage, memory_order_relaxed) / FRESH;
}

static inline void page_used(struct kv_pagepool *pp, struct kv_page *p)
{
	uint8_t use = atomic_load_explicit(&p->pg_use, memory_order_relaxed);

	if (use < USE_MAX && CHECK(!is_fresh(pp, p)))
		atomic_store_explicit(&p->pg_use, use + 1, memory_order_relaxed);
}

/* Waits while another thread reads the page in; returns its state then. */
static uint32_t wait_loaded(struct kv_pagepool *pp, struct kv_page *p)
{
	struct shard *sh = shard_of(pp, page_hash(p->pg_obj, p->pg_no));
	uint64_t began = kv_wait_begin();
	uint32_t st;

	KV_ASSERT_FREE(&pp->pp_lock);
	pthread_mutex_lock(&sh->sh_lock);
	sh->sh_waiters++;
	while ((st = atomic_load(&p->pg_state)) == PG_LOADING)
		pthread_cond_wait(&sh->sh_cond, &sh->sh_lock);
	sh->sh_waiters--;
	pthread_mutex_unlock(&sh->sh_lock);
	kv_wait_end(KVDB_DELAY_READ, began);
	return st;
}

int kv_page_wait(struct kvdb *db, struct kv_page *p, const uint8_t **out)
{
	uint32_t st = atomic_load_explicit(&p->pg_state, memory_order_acquire);

	KV_ASSERT_INSIDE();
	if (KV_UNLIKELY(st == PG_LOADING))
		st = wait_loaded(db->d_cache.cc_pages, p);
	if (KV_UNLIKELY(st == PG_FAILED))
		return kv_load_error(p->pg_err, p->pg_obj, p->pg_no);
	/* RETIRED is as good: the bytes stay while we are inside */
	page_used(db->d_cache.cc_pages, p);
	*out = p->pg_data;
	return 0;
}

void kv_page_settle(struct kvdb *db, struct kv_page *p, int err)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;
	struct shard *sh = shard_of(pp, page_hash(p->pg_obj, p->pg_no));
	struct batch *b;

	KV_ASSERT(atomic_load_explicit(&p->pg_state, memory_order_relaxed) == PG_LOADING);
	if (!err) {
		pthread_mutex_lock(&sh->sh_lock);
		atomic_store_explicit(&p->pg_state, PG_LIVE, memory_order_release);
		if (sh->sh_waiters)
			pthread_cond_broadcast(&sh->sh_cond);
		pthread_mutex_unlock(&sh->sh_lock);
		return;
	}
	p->pg_err = err;
	page_unlink(pp, p, PG_LOADING, PG_FAILED);
	b = batch_new(pp);
	if (b) {
		b->ba_page[b->ba_n++] = p;
		batch_retire(b);
	} else {	/* no memory: until its slab is given back, see slab_empty() */
		atomic_store(&p->pg_is_lost, true);
	}
}

struct kv_page *kv_page_claim(struct kvdb *db, uint64_t obj, uint64_t no, bool is_key,
			      uint8_t **into)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;
	uint64_t hash = page_hash(obj, no);
	struct kv_page *p = lookup(pp, hash, obj, no), *q;

	*into = NULL;
	if (p) {
		count_hit(pp);
		return p;
	}
	atomic_fetch_add_explicit(&db->d_count.page_misses, 1, memory_order_relaxed);
	p = page_take(pp, is_key);
	if (!p)
		return NULL;
	q = page_link(pp, p, hash, obj, no, PG_LOADING);
	if (q) {
		page_untake(pp, p);
		return q;
	}
	*into = p->pg_data;
	return p;
}

int kv_page_get(struct kvdb *db, struct mpool_obj *obj, uint64_t page_no, const uint32_t *crc,
		const uint8_t **out)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;
	uint64_t id = mpool_obj_id(obj);
	struct kv_page *p = lookup(pp, page_hash(id, page_no), id, page_no);

	if (KV_LIKELY(p && atomic_load_explicit(&p->pg_state, memory_order_acquire) == PG_LIVE)) {
		count_hit(pp);
		page_used(pp, p);
		*out = p->pg_data;
		return 0;
	}
	return kv_pages_get(db, obj, page_no, 1, crc, out);
}

const uint8_t *kv_page_peek(struct kvdb *db, uint64_t obj_id, uint64_t page_no)
{
	struct kv_page *p = lookup(db->d_cache.cc_pages, page_hash(obj_id, page_no), obj_id,
				   page_no);

	return p && atomic_load_explicit(&p->pg_state, memory_order_acquire) == PG_LIVE ?
	       p->pg_data : NULL;
}

void kv_page_prefetch(struct kvdb *db, uint64_t obj_id, uint64_t page_no)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;

	__builtin_prefetch(&pp->pp_bucket[page_hash(obj_id, page_no) & pp->pp_mask]);
}

const uint8_t *kv_page_hit(struct kvdb *db, uint64_t obj_id, uint64_t page_no)
{
	struct kv_page *p = lookup(db->d_cache.cc_pages, page_hash(obj_id, page_no), obj_id,
				   page_no);

	if (!p || atomic_load_explicit(&p->pg_state, memory_order_acquire) != PG_LIVE)
		return NULL;
	count_hit(db->d_cache.cc_pages);
	page_used(db->d_cache.cc_pages, p);
	return p->pg_data;
}

void kv_page_add(struct kvdb *db, uint64_t obj_id, uint64_t page_no, const uint8_t *data,
		 bool is_key)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;
	uint64_t hash = page_hash(obj_id, page_no);
	struct kv_thread *t = kv_enter();
	struct kv_page *p = NULL;

	if (!lookup(pp, hash, obj_id, page_no))
		p = page_take(pp, is_key);
	if (p) {
		memcpy(p->pg_data, data, PAGE);
		if (page_link(pp, p, hash, obj_id, page_no, PG_LIVE))
			page_untake(pp, p);
	}
	kv_exit(t);
}

void kv_page_insert(struct kvdb *db, uint64_t obj_id, uint64_t page_no, const uint8_t *data)
{
	kv_page_add(db, obj_id, page_no, data, true);
}

void kv_page_purge(struct kvdb *db, uint64_t obj_id, uint64_t pages)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;
	struct batch *b = batch_new(pp);
	struct kv_thread *t = kv_enter();

	for (uint64_t no = 0; no < pages && b; no++) {
		struct kv_page *p = lookup(pp, page_hash(obj_id, no), obj_id, no);

		if (!p || !page_unlink(pp, p, PG_LIVE, PG_RETIRED))
			continue;
		b->ba_page[b->ba_n++] = p;
		if (b->ba_n == BATCH) {
			batch_retire(b);
			b = batch_new(pp);
		}
	}
	kv_exit(t);
	if (b)
		batch_retire(b);
}

/* ---- giving a slab back ------------------------------------------------------------ */

static unsigned free_count(const struct kv_pagepool *pp)
{
	unsigned n = 0;

	for (const struct kv_page *p = pp->pp_free; p;
	     p = atomic_load_explicit(&p->pg_next, memory_order_relaxed))
		n++;
	return n;
}

/* Under pp_lock: takes the pages of slabs that were marked as leaving off the free list. */
static void free_list_filter(struct kv_pagepool *pp, unsigned slabs)
{
	struct kv_page *p = pp->pp_free, *next;

	KV_ASSERT_HELD(&pp->pp_lock);
	KV_ASSERT_SLOW(free_count(pp) == pp->pp_nfree);
	atomic_fetch_sub_explicit(&pp->pp_npage, slabs * pp->pp_per_slab, memory_order_relaxed);
	pp->pp_free = NULL;
	pp->pp_nfree = 0;
	for (; p; p = next) {
		next = atomic_load_explicit(&p->pg_next, memory_order_relaxed);
		page_free(pp, p);
	}
}

/* Evicts what is in the slab; returns the number of pages that are not FREE yet. */
static unsigned slab_empty(struct kv_pagepool *pp, struct kv_page *pages)
{
	struct batch *b = batch_new(pp);
	unsigned busy = 0;

	for (unsigned i = 0; i < pp->pp_per_slab; i++) {
		struct kv_page *p = &pages[i];

		if (atomic_load_explicit(&p->pg_state, memory_order_acquire) == PG_FREE)
			continue;
		busy++;
		if (!b || (!atomic_exchange(&p->pg_is_lost, false) &&
			   (atomic_load(&p->pg_state) != PG_LIVE ||
			    !page_unlink(pp, p, PG_LIVE, PG_RETIRED))))
			continue;
		b->ba_page[b->ba_n++] = p;
		if (b->ba_n == BATCH) {
			batch_retire(b);
			b = batch_new(pp);
		}
	}
	if (b)
		batch_retire(b);
	return busy;
}

/* All its pages are FREE: no thread has them any more. */
static void slab_forget(struct kv_pagepool *pp, unsigned at, struct kv_page *pages)
{
	pthread_mutex_lock(&pp->pp_lock);
	KV_ASSERT(pp->pp_slab[at].ps_leaving && pp->pp_slab[at].ps_page == pages);
	pp->pp_slab[at] = (struct pslab){ .ps_mem = NULL };
	pthread_mutex_unlock(&pp->pp_lock);
	free(pages);
}

/* Call outside kv_enter(): it waits for a grace period. */
uint8_t *kv_pagepool_yield_slab(struct kvdb *db)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;
	struct kv_page *pages = NULL;
	uint8_t *mem = NULL;
	unsigned at;

	KV_ASSERT(!kv_is_inside());
	if (!pp)
		return NULL;
	pthread_mutex_lock(&pp->pp_lock);
	for (at = pp->pp_nslab; at-- > 0;) {
		struct pslab *ps = &pp->pp_slab[at];

		if (ps->ps_mem && !ps->ps_leaving && !ps->ps_is_lent) {
			ps->ps_leaving = true;
			mem = ps->ps_mem;
			pages = ps->ps_page;
			free_list_filter(pp, 1);
			break;
		}
	}
	pthread_mutex_unlock(&pp->pp_lock);
	if (!mem)
		return NULL;
	while (slab_empty(pp, pages)) {
		kv_retire_barrier();
		sched_yield();
	}
	slab_forget(pp, at, pages);
	return mem;
}

/* Marks lent slabs until @n are leaving; returns how many are. */
static unsigned lent_leave(struct kv_pagepool *pp, unsigned n)
{
	unsigned leaving = 0, marked = 0;

	pthread_mutex_lock(&pp->pp_lock);
	for (unsigned at = 0; at < pp->pp_nslab; at++)
		leaving += pp->pp_slab[at].ps_is_lent && pp->pp_slab[at].ps_leaving;
	for (unsigned at = pp->pp_nslab; leaving + marked < n && at-- > 0;) {
		struct pslab *ps = &pp->pp_slab[at];

		if (ps->ps_is_lent && !ps->ps_leaving) {
			ps->ps_leaving = true;
			marked++;
		}
	}
	if (marked)
		free_list_filter(pp, marked);
	pthread_mutex_unlock(&pp->pp_lock);
	return leaving + marked;
}

void kv_pagepool_lent_step(struct kvdb *db)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;
	/* first: what is in use is noted in any case */
	unsigned n = kv_borrow_excess(db, kv_slab_big_bytes(db)), nslab;
	struct pslab ps;

	if (!kv_borrow_bytes(db) || atomic_exchange(&pp->pp_is_repaying, true))
		return;
	n = lent_leave(pp, n);
	if (n)
		kv_reclaim();
	pthread_mutex_lock(&pp->pp_lock);
	nslab = pp->pp_nslab;
	pthread_mutex_unlock(&pp->pp_lock);
	for (unsigned at = 0; n && at < nslab; at++) {
		pthread_mutex_lock(&pp->pp_lock);
		ps = pp->pp_slab[at];
		pthread_mutex_unlock(&pp->pp_lock);
		if (!ps.ps_is_lent || !ps.ps_leaving || slab_empty(pp, ps.ps_page))
			continue;
		slab_forget(pp, at, ps.ps_page);
		kv_borrow_give(db, ps.ps_mem);
	}
	atomic_store(&pp->pp_is_repaying, false);
}

/* ---- buffers for large values ---------------------------------------------------------- */

uint64_t kv_pagepool_table_bytes(struct kvdb *db)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;
	uint64_t n = sizeof(*pp) + (pp->pp_mask + 1) *
		     (sizeof(pp->pp_bucket[0]) + sizeof(pp->pp_young[0]));

	pthread_mutex_lock(&pp->pp_lock);
	n += (uint64_t)pp->pp_nslab * pp->pp_per_slab * sizeof(struct kv_page);
	n += (uint64_t)pp->pp_nscratch * KV_SCRATCH;
	pthread_mutex_unlock(&pp->pp_lock);
	return n;
}

uint8_t *kv_scratch_get(struct kvdb *db, size_t bytes)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;
	uint8_t *b = NULL;

	if (bytes > KV_SCRATCH)
		return aligned_alloc(PAGE, bytes);
	pthread_mutex_lock(&pp->pp_lock);
	if (pp->pp_nscratch)
		b = pp->pp_scratch[--pp->pp_nscratch];
	pthread_mutex_unlock(&pp->pp_lock);
	return b ? b : aligned_alloc(PAGE, KV_SCRATCH);
}

void kv_scratch_put(struct kvdb *db, uint8_t *buf, size_t bytes)
{
	struct kv_pagepool *pp = db->d_cache.cc_pages;

	pthread_mutex_lock(&pp->pp_lock);
	if (bytes <= KV_SCRATCH && pp->pp_nscratch < SCRATCH_KEEP) {
		pp->pp_scratch[pp->pp_nscratch++] = buf;
		buf = NULL;
	}
	pthread_mutex_unlock(&pp->pp_lock);
	free(buf);
}
