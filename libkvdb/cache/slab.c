/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Memory of the window (images of log segments) and of the page pool: slabs
 * of one segment each, cut from one reserved range of addresses. Pages of the
 * range become real when they are first written and are never given back.
 *
 * Shares: the window can always have sl_win_min slabs, the pool sl_pool_min;
 * what lies between goes to the first that asks, and to the pool all but the first
 * few as long as there is no image: nothing has been written since the start. Under pressure from both the
 * pool ends at half of all: above that the window takes slabs from it, below
 * it takes slabs from the window.
 *
 * Only an image that is complete and durable is stolen (sl_fifo holds exactly
 * those, oldest first, with one second chance for images that readers used).
 * A stolen slab is reused after a grace period, so readers copy from an image
 * without a lock. A reader that keeps a pointer to an image beyond kv_enter()
 * pins its slab, which is then not stolen and, when its segment goes, not reused
 * before it is unpinned. A limited number of slabs are pinned at a time: others are
 * refused, and their readers make copies. Places for the first pins are kept in stripes,
 * so that threads which pin do not meet at one word. When every image is still being written, the taker gets a
 * mapping of its own: waiting there could wait for itself.
 *
 * Lock: sl_lock, innermost; never held while waiting, retiring or calling the
 * page pool.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cache/slab.h"
#include "cache/own.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/range.h"
#include "db/db.h"
#include "db/limbo.h"
#include "db/thread.h"
#include "cache/pages.h"

#define KEPT_NS		1000000000ull
#define FIRST_IMAGES	2u	/* of the first writer; it has the pool give back others */
#define OWN_LEAST	(64u << 10)	/* up to this one may stay open: a descriptor's (E7) */
#define PIN_STRIPES	16u
#define PIN_COUNT	0xffffffu	/* of s_pins */
#define PIN_STRIPE(n)	((n) >> 24)

/* HELD: the image was let go of, but its bytes are still pinned */
enum slab_user { SLAB_FREE = 0, SLAB_IMAGE, SLAB_PAGES, SLAB_GRACE, SLAB_HELD };

struct slab {
	struct kv_slabs *s_owner;
	_Atomic(uint8_t *) *s_image;	/* IMAGE: what names it */
	struct slab *s_next, *s_prev;	/* of sl_fifo or sl_free (next only) */
	_Atomic(uint8_t) s_user;	/* enum slab_user; changes under sl_lock */
	bool s_idle;			/* in sl_fifo */
	_Atomic(bool) s_used;		/* second chance */
	_Atomic(uint32_t) s_life;	/* images that it has let go of (PI2) */
	_Atomic(uint32_t) s_pins;	/* PIN_COUNT, above it its stripe; or 0 */
	struct kv_limbo s_limbo;	/* retires its image; one image at a time */
} __attribute__((aligned(KV_CACHELINE)));

struct pin_stripe {
	_Atomic(uint32_t) ps_left;	/* slabs that may get a first pin here */
} __attribute__((aligned(KV_CACHELINE)));

/* An image outside of the slabs: one large record, or nothing else was left. */
struct big {
	uint8_t *b_mem;
	size_t b_bytes;
	bool b_is_own;			/* no ordinary segment's */
	bool b_is_mapped;		/* by itself, else it is b_part */
	struct kv_own_part b_part;
	struct kv_slabs *b_owner;
	struct big *b_next;
	struct kv_limbo b_limbo;
};

struct kv_slabs {
	pthread_mutex_t sl_lock;
	uint8_t *sl_base;
	struct kv_range sl_range;
	size_t sl_bytes;		/* of one slab */
	unsigned sl_max;
	unsigned sl_win_min, sl_pool_min;
	unsigned sl_touched;		/* slabs [0, sl_touched) were handed out once */
	/* slabs [0, sl_faulted), and these bytes of the next, have memory or are no images */
	unsigned sl_faulted;
	size_t sl_fault_off;
	unsigned sl_nimage, sl_npages, sl_ngrace, sl_nheld;
	unsigned sl_nbig;		/* in use or retired */
	uint64_t sl_big_bytes;
	uint64_t sl_own_bytes;		/* of them, images that are no ordinary segment's */
	struct slab *sl_slab;
	struct slab *sl_free;
	struct slab sl_fifo;		/* list head */
	struct big *sl_big;
	/*
	 * The next large record finds the memory of those that ended, and nothing to fault in and
	 * to clear. What was not used for KEPT_NS goes back.
	 */
	struct kv_own sl_own;
	uint64_t sl_kept_ns;
	struct pin_stripe sl_pin[PIN_STRIPES];
};

static void big_unmap(struct big *b)
{
	if (b->b_is_mapped)
		munmap(b->b_mem, b->b_bytes);
	free(b);
}

static uint8_t *slab_mem(const struct slab *s)
{
	return s->s_owner->sl_base + (size_t)(s - s->s_owner->sl_slab) * s->s_owner->sl_bytes;
}

static struct slab *slab_of(struct kv_slabs *sl, const uint8_t *mem)
{
	size_t off = (size_t)(mem - sl->sl_base);

	if (mem < sl->sl_base || off >= sl->sl_max * sl->sl_bytes)
		return NULL;
	return &sl->sl_slab[off / sl->sl_bytes];
}

static void *cachelines(size_t bytes)
{
	void *mem = aligned_alloc(KV_CACHELINE, bytes);

	return mem ? memset(mem, 0, bytes) : NULL;
}

/* Takes all memory from the system now; a kernel before 5.14 gives it as it is used. */
static int prefault(struct kv_slabs *sl)
{
	size_t bytes = sl->sl_max * sl->sl_bytes;

	if (!madvise(sl->sl_base, bytes, MADV_POPULATE_WRITE))
		sl->sl_faulted = sl->sl_max;
	else if (errno != EINVAL)
		return kv_error(-ENOMEM, "MP0902", "the system has no %zu MiB for cache_bytes: "
				"make it smaller, or open without KVDB_PREFAULT", bytes >> 20);
	return 0;
}

int kv_slabs_init(struct kvdb *db)
{
	const struct kv_budget *b = &db->d_budget;
	struct kv_slabs *sl = cachelines(sizeof(*sl));
	unsigned need = 4 * (b->b_logs ? b->b_logs : 1) + 2, pins;

	if (!sl)
		return -ENOMEM;
	sl->sl_bytes = b->b_seg_bytes;
	sl->sl_max = (unsigned)(b->b_slab_bytes / b->b_seg_bytes);
	if (sl->sl_max < need + need / 2)
		sl->sl_max = need + need / 2;
	sl->sl_win_min = sl->sl_max / 8 > need ? sl->sl_max / 8 : need;
	sl->sl_pool_min = sl->sl_max / 16 ? sl->sl_max / 16 : 1;
	/* what is left over beside the least that window and pool need */
	pins = (sl->sl_max - sl->sl_win_min - sl->sl_pool_min) / 4;
	if (pins > sl->sl_max / 8)
		pins = sl->sl_max / 8;
	while (pins--)
		sl->sl_pin[pins % PIN_STRIPES].ps_left++;
	sl->sl_slab = cachelines(sl->sl_max * sizeof(*sl->sl_slab));
	if (sl->sl_slab && !kv_own_init(&sl->sl_own, b->b_large_bytes)) {
		sl->sl_base = kv_range_map(&sl->sl_range, sl->sl_max * sl->sl_bytes);
		if (!sl->sl_base)
			kv_own_fini(&sl->sl_own);
	}
	if (!sl->sl_base) {
		free(sl->sl_slab);
		free(sl);
		return -ENOMEM;
	}
	madvise(sl->sl_base, sl->sl_max * sl->sl_bytes, MADV_HUGEPAGE);
	for (unsigned i = 0; i < sl->sl_max; i++)
		sl->sl_slab[i].s_owner = sl;
	sl->sl_fifo.s_next = sl->sl_fifo.s_prev = &sl->sl_fifo;
	pthread_mutex_init(&sl->sl_lock, NULL);
	db->d_cache.cc_slabs = sl;
	return db->d_mode.md_flags & KVDB_PREFAULT ? prefault(sl) : 0;
}

/* Does each slab count as what it is? Under sl_lock, or no other thread knows them any more. */
static bool slabs_add_up(const struct kv_slabs *sl)
{
	unsigned n[SLAB_HELD + 1] = { 0 };

	for (unsigned i = 0; i < sl->sl_max; i++)
		n[sl->sl_slab[i].s_user]++;
	return n[SLAB_IMAGE] == sl->sl_nimage && n[SLAB_PAGES] == sl->sl_npages &&
	       n[SLAB_GRACE] == sl->sl_ngrace && n[SLAB_HELD] == sl->sl_nheld;
}

void kv_slabs_fini(struct kvdb *db)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	struct big *b;
	unsigned live;
	bool busy;

	if (!sl)
		return;
	do {	/* a destructor that another thread runs may still hold the lock */
		kv_retire_barrier();
		pthread_mutex_lock(&sl->sl_lock);
		live = 0;
		for (b = sl->sl_big; b; b = b->b_next)
			live++;
		busy = sl->sl_ngrace || live != sl->sl_nbig;
		pthread_mutex_unlock(&sl->sl_lock);
	} while (busy);
	KV_ASSERT_SLOW(slabs_add_up(sl));
	while ((b = sl->sl_big)) {
		sl->sl_big = b->b_next;
		big_unmap(b);
	}
	kv_own_fini(&sl->sl_own);
	kv_range_unmap(&sl->sl_range);
	pthread_mutex_destroy(&sl->sl_lock);
	free(sl->sl_slab);
	free(sl);
	db->d_cache.cc_slabs = NULL;
}

static void fifo_del(struct slab *s)
{
	KV_ASSERT_HELD(&s->s_owner->sl_lock);
	if (!s->s_idle)
		return;
	s->s_prev->s_next = s->s_next;
	s->s_next->s_prev = s->s_prev;
	s->s_idle = false;
}

static void fifo_add(struct kv_slabs *sl, struct slab *s)
{
	KV_ASSERT_HELD(&sl->sl_lock);
	KV_ASSERT(!s->s_idle && s->s_user == SLAB_IMAGE);
	s->s_next = &sl->sl_fifo;
	s->s_prev = sl->sl_fifo.s_prev;
	s->s_prev->s_next = s;
	sl->sl_fifo.s_prev = s;
	s->s_idle = true;
}

/* Under sl_lock. */
static void slab_put(struct kv_slabs *sl, struct slab *s)
{
	KV_ASSERT_HELD(&sl->sl_lock);
	KV_ASSERT(s->s_user != SLAB_FREE && !s->s_idle);
	s->s_user = SLAB_FREE;
	s->s_next = sl->sl_free;
	sl->sl_free = s;
}

static void slab_freed(void *arg)
{
	struct slab *s = arg;
	struct kv_slabs *sl = s->s_owner;

	pthread_mutex_lock(&sl->sl_lock);
	KV_ASSERT(sl->sl_ngrace && s->s_user == SLAB_GRACE);
	sl->sl_ngrace--;
	/* it cannot be found any more: only unpinning is left, which looks at s_user last */
	atomic_store(&s->s_user, SLAB_HELD);
	if (atomic_load(&s->s_pins))
		sl->sl_nheld++;
	else
		slab_put(sl, s);
	pthread_mutex_unlock(&sl->sl_lock);
}

/* Under sl_lock: the image is unreachable from here on; the caller retires the slab. */
static void image_unhook(struct kv_slabs *sl, struct slab *s)
{
	KV_ASSERT_HELD(&sl->sl_lock);
	KV_ASSERT(s->s_user == SLAB_IMAGE && sl->sl_nimage);
	KV_ASSERT(atomic_load(s->s_image) == slab_mem(s));
	fifo_del(s);
	atomic_store_explicit(s->s_image, NULL, memory_order_release);
	(void)BARRIER((atomic_fetch_add(&s->s_life, 1), 0));
	s->s_image = NULL;
	s->s_user = SLAB_GRACE;
	sl->sl_nimage--;
	sl->sl_ngrace++;
}

static bool is_wanted(struct slab *s)
{
	return atomic_load_explicit(&s->s_used, memory_order_relaxed) ||
	       atomic_load_explicit(&s->s_pins, memory_order_relaxed);
}

/* Under sl_lock: the image to steal, or NULL when none is idle, or all of those are pinned. */
static struct slab *image_steal(struct kv_slabs *sl)
{
	struct slab *s = sl->sl_fifo.s_next;

	KV_ASSERT_HELD(&sl->sl_lock);
	/* twice round: the first time each may have been used */
	for (unsigned n = 2 * sl->sl_nimage; s != &sl->sl_fifo && is_wanted(s); n--) {
		if (!n)
			return NULL;
		atomic_store_explicit(&s->s_used, false, memory_order_relaxed);
		fifo_del(s);
		fifo_add(sl, s);
		s = sl->sl_fifo.s_next;
	}
	if (s == &sl->sl_fifo)
		return NULL;
	image_unhook(sl, s);
	return s;
}

/* Under sl_lock. */
static struct slab *slab_unused(struct kv_slabs *sl)
{
	struct slab *s = sl->sl_free;

	KV_ASSERT_HELD(&sl->sl_lock);
	KV_ASSERT(!s || s->s_user == SLAB_FREE);
	KV_ASSERT_SLOW(slabs_add_up(sl));
	if (s)
		sl->sl_free = s->s_next;
	else if (sl->sl_touched < sl->sl_max)
		s = &sl->sl_slab[sl->sl_touched++];
	return s;
}

static unsigned unused_count(const struct kv_slabs *sl)
{
	KV_ASSERT(sl->sl_nimage + sl->sl_npages + sl->sl_ngrace + sl->sl_nheld <= sl->sl_max);
	return sl->sl_max - sl->sl_nimage - sl->sl_npages - sl->sl_ngrace - sl->sl_nheld;
}

/* Under sl_lock. */
static void big_count(struct kv_slabs *sl, const struct big *b, int by)
{
	uint64_t bytes = by < 0 ? -(uint64_t)b->b_bytes : b->b_bytes;

	KV_ASSERT_HELD(&sl->sl_lock);
	KV_ASSERT(by > 0 || (sl->sl_nbig && sl->sl_big_bytes >= b->b_bytes));
	sl->sl_nbig += (unsigned)by;
	sl->sl_big_bytes += bytes;
	if (b->b_is_own)
		sl->sl_own_bytes += bytes;
}

bool kv_slab_has_own_room(struct kvdb *db, uint32_t bytes)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	bool has;

	pthread_mutex_lock(&sl->sl_lock);
	has = CHECK(sl->sl_own_bytes + bytes <= db->d_budget.b_large_bytes &&
		    (bytes <= OWN_LEAST || kv_own_has(&sl->sl_own, bytes)));
	pthread_mutex_unlock(&sl->sl_lock);
	return has;
}

bool kv_slab_own_is_half_full(struct kvdb *db)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	bool is;

	pthread_mutex_lock(&sl->sl_lock);
	is = sl->sl_own_bytes > db->d_budget.b_large_bytes / 2;
	pthread_mutex_unlock(&sl->sl_lock);
	return is;
}

static bool big_map(struct big *b)
{
	b->b_mem = mmap(NULL, b->b_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);
	b->b_is_mapped = b->b_mem != MAP_FAILED;
	return b->b_is_mapped;
}

static uint8_t *big_take(struct kv_slabs *sl, size_t bytes, _Atomic(uint8_t *) *image)
{
	struct big *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->b_bytes = (bytes + 4095) & ~(size_t)4095;
	b->b_owner = sl;
	b->b_is_own = bytes != sl->sl_bytes;
	pthread_mutex_lock(&sl->sl_lock);
	if (b->b_is_own && bytes > OWN_LEAST)
		b->b_mem = kv_own_take(&sl->sl_own, &b->b_part, b->b_bytes);
	pthread_mutex_unlock(&sl->sl_lock);
	/* an ordinary one, or a segment that is larger than its record, which there was room for */
	if (!b->b_mem && !big_map(b)) {
		free(b);
		return NULL;
	}
	pthread_mutex_lock(&sl->sl_lock);
	b->b_next = sl->sl_big;
	sl->sl_big = b;
	big_count(sl, b, 1);
	atomic_store_explicit(image, b->b_mem, memory_order_release);
	pthread_mutex_unlock(&sl->sl_lock);
	return b->b_mem;
}

static void big_freed(void *arg)
{
	struct big *b = arg;
	struct kv_slabs *sl = b->b_owner;

	pthread_mutex_lock(&sl->sl_lock);
	big_count(sl, b, -1);
	if (!b->b_is_mapped)
		kv_own_put(&sl->sl_own, &b->b_part);
	pthread_mutex_unlock(&sl->sl_lock);
	big_unmap(b);
}

void kv_slab_kept_step(struct kvdb *db)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	uint64_t now = kv_now(db);
	struct kv_own_part part;
	uint8_t *mem = NULL;

	pthread_mutex_lock(&sl->sl_lock);
	if (now - sl->sl_kept_ns < KEPT_NS) {
		pthread_mutex_unlock(&sl->sl_lock);
		return;
	}
	sl->sl_kept_ns = now;
	while ((mem = kv_own_idle(&sl->sl_own, &part))) {
		pthread_mutex_unlock(&sl->sl_lock);
		madvise(mem, part.op_bytes, MADV_DONTNEED);
		pthread_mutex_lock(&sl->sl_lock);
		kv_own_put(&sl->sl_own, &part);
	}
	kv_own_age(&sl->sl_own);
	pthread_mutex_unlock(&sl->sl_lock);
}

/* Under sl_lock: takes the image's entry off the list. */
static struct big *big_find(struct kv_slabs *sl, const uint8_t *mem)
{
	struct big **pp, *b;

	KV_ASSERT_HELD(&sl->sl_lock);
	for (pp = &sl->sl_big; (b = *pp); pp = &b->b_next) {
		if (b->b_mem == mem) {
			*pp = b->b_next;
			return b;
		}
	}
	return NULL;
}

/*
 * Under sl_lock: a slab for an image, or what must be done first: *stolen to
 * retire, *yield to ask the pool, neither to wait for a grace period.
 */
static struct slab *image_slab(struct kv_slabs *sl, struct slab **stolen, bool *yield)
{
	bool pool_rich = sl->sl_npages > sl->sl_max / 2;
	struct slab *s = NULL;

	KV_ASSERT_HELD(&sl->sl_lock);
	*stolen = NULL;
	*yield = false;
	if (sl->sl_nimage < sl->sl_max - sl->sl_pool_min || sl->sl_nimage < sl->sl_win_min)
		s = slab_unused(sl);
	if (s || sl->sl_ngrace)
		return s;
	if (!pool_rich)
		*stolen = image_steal(sl);
	if (!*stolen)
		*yield = sl->sl_npages > sl->sl_pool_min;
	if (!*stolen && !*yield)
		*stolen = image_steal(sl);
	return NULL;
}

/* Under sl_lock: keeps one slab coming, so that the next taker need not wait. */
static struct slab *steal_ahead(struct kv_slabs *sl)
{
	unsigned limit = sl->sl_max - sl->sl_pool_min;

	KV_ASSERT_HELD(&sl->sl_lock);
	if (sl->sl_ngrace || (unused_count(sl) && sl->sl_nimage < limit) ||
	    sl->sl_npages > sl->sl_max / 2)
		return NULL;
	return image_steal(sl);
}

/*
 * Sets *@image. The memory holds whatever it held before. Call outside
 * kv_enter(): it may wait for a grace period.
 */
uint8_t *kv_slab_take_image(struct kvdb *db, uint32_t bytes, _Atomic(uint8_t *) *image)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	struct slab *s, *stolen;
	bool yield;

	KV_ASSERT(!kv_is_inside());
	if (bytes != sl->sl_bytes)
		return big_take(sl, bytes, image);
	for (unsigned tries = 0; tries < 64; tries++) {
		uint8_t *mem = NULL;

		pthread_mutex_lock(&sl->sl_lock);
		s = image_slab(sl, &stolen, &yield);
		if (s) {
			s->s_user = SLAB_IMAGE;
			s->s_image = image;
			atomic_store(&s->s_used, false);
			sl->sl_nimage++;
			stolen = steal_ahead(sl);
			mem = slab_mem(s);
			atomic_store_explicit(image, mem, memory_order_release);
		} else if (!stolen && !yield && !sl->sl_ngrace) {
			tries = 64;
		}
		pthread_mutex_unlock(&sl->sl_lock);
		if (stolen)
			kv_retire(&stolen->s_limbo, slab_freed, stolen);
		if (mem)
			return mem;
		if (yield && (mem = kv_pagepool_yield_slab(db))) {
			s = slab_of(sl, mem);
			pthread_mutex_lock(&sl->sl_lock);
			KV_ASSERT(s->s_user == SLAB_PAGES && sl->sl_npages);
			s->s_user = SLAB_GRACE;
			sl->sl_npages--;
			sl->sl_ngrace++;
			pthread_mutex_unlock(&sl->sl_lock);
			slab_freed(s);
		} else if (tries < 64) {
			kv_retire_barrier();
		}
	}
	return big_take(sl, bytes, image);
}

/* The next memory that an image will need and the system has not given yet, or NULL. */
static uint8_t *unfaulted(struct kv_slabs *sl, size_t bytes)
{
	uint8_t *mem = NULL;

	pthread_mutex_lock(&sl->sl_lock);
	for (; !mem && sl->sl_faulted < sl->sl_touched; sl->sl_faulted += !sl->sl_fault_off) {
		struct slab *s = &sl->sl_slab[sl->sl_faulted];

		if (s->s_user == SLAB_IMAGE && !s->s_idle) {
			mem = slab_mem(s) + sl->sl_fault_off;
			sl->sl_fault_off = (sl->sl_fault_off + bytes) % sl->sl_bytes;
		} else {
			sl->sl_fault_off = 0;
		}
	}
	pthread_mutex_unlock(&sl->sl_lock);
	return mem;
}

bool kv_slab_fault_step(struct kvdb *db)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	size_t bytes = sl->sl_bytes < KV_HUGE_PAGE ? sl->sl_bytes : KV_HUGE_PAGE;
	uint8_t *mem = unfaulted(sl, bytes);

	/* what is written there meanwhile stays; an old kernel leaves it to the first writer */
	return mem && !madvise(mem, bytes, MADV_POPULATE_WRITE);
}

/* Unhooks what *@image names, whatever it is made of; retires its memory. */
static void image_release(struct kv_slabs *sl, _Atomic(uint8_t *) *image)
{
	uint8_t *mem;
	struct slab *s = NULL;
	struct big *b = NULL;

	pthread_mutex_lock(&sl->sl_lock);
	mem = atomic_load(image);
	if (mem) {
		s = slab_of(sl, mem);
		if (s) {
			image_unhook(sl, s);
		} else {
			b = big_find(sl, mem);
			KV_ASSERT(b);
			atomic_store_explicit(image, NULL, memory_order_release);
		}
	}
	pthread_mutex_unlock(&sl->sl_lock);
	if (s)
		kv_retire(&s->s_limbo, slab_freed, s);
	if (b)
		kv_retire(&b->b_limbo, big_freed, b);
}

void kv_slab_image_idle(struct kvdb *db, _Atomic(uint8_t *) *image)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	bool is_big = false;
	struct slab *s;
	uint8_t *mem;

	pthread_mutex_lock(&sl->sl_lock);
	mem = atomic_load(image);
	if (mem) {
		s = slab_of(sl, mem);
		is_big = !s;
		if (s && !s->s_idle)
			fifo_add(sl, s);
	}
	pthread_mutex_unlock(&sl->sl_lock);
	if (is_big)
		image_release(sl, image);
}

uint8_t *kv_slab_take_spare(struct kvdb *db, uint32_t part)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	struct slab *s = NULL;

	pthread_mutex_lock(&sl->sl_lock);
	if (CHECK(unused_count(sl) > sl->sl_max / part))
		s = slab_unused(sl);
	if (s) {
		s->s_user = SLAB_IMAGE;
		atomic_store(&s->s_used, false);
		sl->sl_nimage++;
	}
	pthread_mutex_unlock(&sl->sl_lock);
	return s ? slab_mem(s) : NULL;
}

/* One that no other thread has seen; @count: of what it was to be. */
static void slab_give(struct kv_slabs *sl, uint8_t *mem, unsigned *count)
{
	pthread_mutex_lock(&sl->sl_lock);
	KV_ASSERT(*count);
	slab_put(sl, &sl->sl_slab[(size_t)(mem - sl->sl_base) / sl->sl_bytes]);
	(*count)--;
	pthread_mutex_unlock(&sl->sl_lock);
}

void kv_slab_give_spare(struct kvdb *db, uint8_t *mem)
{
	slab_give(db->d_cache.cc_slabs, mem, &db->d_cache.cc_slabs->sl_nimage);
}

void kv_slab_publish(struct kvdb *db, uint8_t *mem, _Atomic(uint8_t *) *image)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	struct slab *s = slab_of(sl, mem);

	pthread_mutex_lock(&sl->sl_lock);
	KV_ASSERT(s->s_user == SLAB_IMAGE && !s->s_image);
	s->s_image = image;
	atomic_store_explicit(image, mem, memory_order_release);
	fifo_add(sl, s);
	pthread_mutex_unlock(&sl->sl_lock);
}

void kv_slab_drop_image(struct kvdb *db, _Atomic(uint8_t *) *image)
{
	image_release(db->d_cache.cc_slabs, image);
}

uint8_t *kv_slab_take_pages(struct kvdb *db)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	struct slab *s = NULL, *stolen = NULL;
	unsigned keep;

	pthread_mutex_lock(&sl->sl_lock);
	keep = sl->sl_nimage ? sl->sl_win_min : FIRST_IMAGES;
	if (sl->sl_npages < sl->sl_max - keep) {
		s = slab_unused(sl);
		if (s) {
			s->s_user = SLAB_PAGES;
			sl->sl_npages++;
		} else if (!sl->sl_ngrace && sl->sl_npages < sl->sl_max / 2) {
			stolen = image_steal(sl);
		}
	}
	pthread_mutex_unlock(&sl->sl_lock);
	if (stolen)
		kv_retire(&stolen->s_limbo, slab_freed, stolen);
	return s ? slab_mem(s) : NULL;
}

void kv_slab_give_pages(struct kvdb *db, uint8_t *mem)
{
	slab_give(db->d_cache.cc_slabs, mem, &db->d_cache.cc_slabs->sl_npages);
}

static bool pin_place_take(struct kv_slabs *sl, unsigned *stripe)
{
	unsigned from = kv_thread_no();

	for (unsigned i = 0; i < PIN_STRIPES; i++) {
		struct pin_stripe *ps = &sl->sl_pin[(from + i) % PIN_STRIPES];
		uint32_t left = atomic_load_explicit(&ps->ps_left, memory_order_relaxed);

		while (left && !atomic_compare_exchange_weak(&ps->ps_left, &left, left - 1))
			;
		*stripe = (from + i) % PIN_STRIPES;
		if (left)
			return true;
	}
	return false;
}

static void pin_place_give(struct kv_slabs *sl, unsigned stripe)
{
	atomic_fetch_add(&sl->sl_pin[stripe].ps_left, 1);
}

/* Unless it would be the first pin of a slab, and too many have one, or it cannot be counted. */
static bool pin_add(struct kv_slabs *sl, struct slab *s)
{
	uint32_t n = atomic_load(&s->s_pins);
	unsigned stripe;

	for (;;) {
		while (n) {
			if (!CHECK((n & PIN_COUNT) != PIN_COUNT))
				return false;
			if (atomic_compare_exchange_weak(&s->s_pins, &n, n + 1))
				return true;
		}
		if (!pin_place_take(sl, &stripe))
			return false;
		if (atomic_compare_exchange_strong(&s->s_pins, &n, stripe << 24 | 1))
			return true;
		pin_place_give(sl, stripe);
	}
}

void *kv_slab_pin_near(struct kvdb *db, const uint8_t *mem)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	struct slab *s = slab_of(sl, mem);

	KV_ASSERT_INSIDE();
	return s && pin_add(sl, s) ? s : NULL;
}

void *kv_slab_pin(struct kvdb *db, _Atomic(uint8_t *) *image, const uint8_t *mem)
{
	void *s = kv_slab_pin_near(db, mem);

	/*
	 * Still its image: then the thread that unhooks it later finds the pin when the grace
	 * period, which our caller is part of, is over.
	 */
	if (!s || atomic_load(image) == mem)
		return s;
	kv_slab_unpin(db, s);
	return NULL;
}

const uint8_t *kv_slab_place(struct kvdb *db, const _Atomic(uint8_t *) *image, uint64_t *place,
			     uint32_t *life)
{
	const uint8_t *mem = atomic_load_explicit(image, memory_order_acquire);
	struct slab *s = slab_of(db->d_cache.cc_slabs, mem);

	if (!s)
		return NULL;
	*place = (uint64_t)(mem - db->d_cache.cc_slabs->sl_base);
	*life = atomic_load_explicit(&s->s_life, memory_order_acquire);
	/* a slab that was let go of before its life was read is the next image's */
	return atomic_load_explicit(image, memory_order_relaxed) == mem ? mem : NULL;
}

const uint8_t *kv_slab_at(struct kvdb *db, uint64_t place, uint32_t life)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	struct slab *s = &sl->sl_slab[place / sl->sl_bytes];

	KV_ASSERT_INSIDE();
	return atomic_load_explicit(&s->s_life, memory_order_acquire) == life ?
	       sl->sl_base + place : NULL;
}

void kv_slab_unpin(struct kvdb *db, void *pin)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	struct slab *s = pin;
	uint32_t n = atomic_load(&s->s_pins);

	KV_ASSERT(n & PIN_COUNT);
	while (!atomic_compare_exchange_weak(&s->s_pins, &n, (n & PIN_COUNT) == 1 ? 0 : n - 1))
		;
	if ((n & PIN_COUNT) > 1)
		return;
	pin_place_give(sl, PIN_STRIPE(n));
	if (atomic_load(&s->s_user) != SLAB_HELD)
		return;
	pthread_mutex_lock(&sl->sl_lock);
	/* not if another thread did, or pins it for a moment: that one comes here, too */
	if (s->s_user == SLAB_HELD && !atomic_load(&s->s_pins)) {
		sl->sl_nheld--;
		slab_put(sl, s);
	}
	pthread_mutex_unlock(&sl->sl_lock);
}

void kv_slab_touch(struct kvdb *db, const uint8_t *image)
{
	struct slab *s = slab_of(db->d_cache.cc_slabs, image);

	if (s && !atomic_load_explicit(&s->s_used, memory_order_relaxed))
		atomic_store_explicit(&s->s_used, true, memory_order_relaxed);
}

uint64_t kv_slab_window_bytes(struct kvdb *db)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	uint64_t n;

	pthread_mutex_lock(&sl->sl_lock);
	n = (uint64_t)(sl->sl_nimage + sl->sl_ngrace + sl->sl_nheld) * sl->sl_bytes +
	    sl->sl_big_bytes;
	pthread_mutex_unlock(&sl->sl_lock);
	return n;
}

uint64_t kv_slab_big_bytes(struct kvdb *db)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	uint64_t n;

	pthread_mutex_lock(&sl->sl_lock);
	n = sl->sl_big_bytes + kv_own_kept(&sl->sl_own);
	pthread_mutex_unlock(&sl->sl_lock);
	return n;
}

uint64_t kv_slab_spare_bytes(struct kvdb *db)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	uint64_t n;

	pthread_mutex_lock(&sl->sl_lock);
	/* slabs are never given back to the system; with KVDB_PREFAULT all are there */
	n = sl->sl_touched > sl->sl_faulted ? sl->sl_touched : sl->sl_faulted;
	n = (n - sl->sl_nimage - sl->sl_ngrace - sl->sl_npages - sl->sl_nheld) * sl->sl_bytes;
	n += kv_own_kept(&sl->sl_own);
	pthread_mutex_unlock(&sl->sl_lock);
	return n;
}

uint64_t kv_slab_page_bytes(struct kvdb *db)
{
	struct kv_slabs *sl = db->d_cache.cc_slabs;
	uint64_t n;

	pthread_mutex_lock(&sl->sl_lock);
	n = (uint64_t)sl->sl_npages * sl->sl_bytes;
	pthread_mutex_unlock(&sl->sl_lock);
	return n;
}
