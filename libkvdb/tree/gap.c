/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Gaps: what cursors walked over in vain, so that the next one need not. A
 * queue is the case: a consumer that takes its head with a new cursor meets the
 * tombstones of all that was taken before.
 *
 * A gap is a range that is watched, [lo, to), and its front part [lo, dead), in
 * which nothing is visible to views that are young enough. It begins with
 * nothing known: a walk that came by many dead entries starts the watch. Once
 * every writer that may not know of it has left kv_enter(), a walk of a younger
 * view says what is dead (GAP-1). Walks that go on from there make it longer.
 * A put into it cuts it off at its key, before the put can be visible (GAP-2).
 *
 * Gaps are disjoint and immutable, but for what says since when they are
 * watched; a directory of them is replaced as a whole under gs_lock, and read
 * inside kv_enter(). gs_lock is a leaf: a cursor that does not get it at once goes without.
 */
#include <stdlib.h>
#include <string.h>

#include "tree/gap.h"
#include "base/assert.h"
#include "base/guard.h"
#include "base/key.h"
#include "db/db.h"
#include "db/limbo.h"
#include "db/thread.h"

#define GAPS_MAX	64u	/* of a store */
#define GAPS_BYTES	(64u << 10)	/* that their keys may take */

enum edge { LO, OLD, DEAD, TO, EDGES };

/* From when on something is dead. */
struct since {
	uint64_t seq, now;
};

struct kv_gap {
	struct kv_limbo gp_limbo;
	uint64_t gp_grace;	/* gs_lock: until this is over a put may not know of it */
	uint64_t gp_armed;	/* gs_lock: views from this one on see all such puts */
	/*
	 * [LO, OLD) is dead since gp_old, [OLD, DEAD) since gp_dead: a cursor that was opened just
	 * before the one that made it longer still skips most of it
	 */
	struct since gp_old, gp_dead;
	uint16_t gp_len[EDGES];
	const uint8_t *gp_key[EDGES];
	uint8_t gp_bytes[];
};

struct kv_gap_dir {
	struct kv_limbo gd_limbo;
	uint32_t gd_n;
	struct kv_gap *gd_gap[];	/* by gp_key[LO] */
};

/* What a gap is made of. */
struct parts {
	const uint8_t *key[EDGES];
	size_t len[EDGES];
	struct since old, dead;
	uint64_t grace, armed;
};

/* The greatest key that there may be: a gap ends before it. */
static uint8_t top[KVDB_KEY_MAX];
static pthread_once_t top_once = PTHREAD_ONCE_INIT;

static void top_make(void)
{
	memset(top, 0xff, sizeof(top));
}

void kv_gaps_init(struct kv_gaps *gs)
{
	pthread_once(&top_once, top_make);
	pthread_mutex_init(&gs->gs_lock, NULL);
}

void kv_gaps_fini(struct kv_gaps *gs)
{
	struct kv_gap_dir *gd = atomic_load(&gs->gs_dir);

	KV_ASSERT(!gs->gs_closed);
	for (uint32_t i = 0; gd && i < gd->gd_n; i++)
		free(gd->gd_gap[i]);
	free(gd);
	pthread_mutex_destroy(&gs->gs_lock);
}

static int cmp_edge(const struct kv_gap *gp, enum edge e, const void *key, size_t klen)
{
	return kv_kcmp(gp->gp_key[e], gp->gp_len[e], key, klen);
}

/* Number of gaps that begin at the key or before it. */
static uint32_t gaps_upto(const struct kv_gap_dir *gd, const void *key, size_t klen)
{
	uint32_t lo = 0, hi = gd ? gd->gd_n : 0;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (cmp_edge(gd->gd_gap[mid], LO, key, klen) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* ---- reading ---------------------------------------------------------------------------- */

static bool is_since(const struct since *s, uint64_t seq, uint64_t now)
{
	return CHECK(seq >= s->seq) && CHECK(now >= s->now);
}

/* The edge that a walk at the key may go on from; LO: from where it is. */
static enum edge edge_for(const struct kv_gap *gp, const uint8_t *key, size_t klen, uint64_t seq,
			  uint64_t now)
{
	if (!is_since(&gp->gp_old, seq, now))
		return LO;
	if (cmp_edge(gp, DEAD, key, klen) > 0 && is_since(&gp->gp_dead, seq, now))
		return DEAD;
	return cmp_edge(gp, OLD, key, klen) > 0 ? OLD : LO;
}

size_t kv_gaps_skip(struct kvdb_kvs *kvs, const uint8_t *key, size_t klen, uint64_t seq,
		    uint64_t now, uint8_t *out)
{
	struct kv_gap_dir *gd;
	struct kv_thread *t;
	const struct kv_gap *gp;
	size_t n = 0;
	enum edge e;
	uint32_t i;

	if (KV_LIKELY(!atomic_load_explicit(&kvs->k_gaps.gs_dir, memory_order_acquire)))
		return 0;
	t = kv_enter();
	gd = atomic_load_explicit(&kvs->k_gaps.gs_dir, memory_order_acquire);
	for (i = gaps_upto(gd, key, klen); i; i = gaps_upto(gd, out, n)) {
		gp = gd->gd_gap[i - 1];
		e = edge_for(gp, n ? out : key, n ? n : klen, seq, now);
		if (e == LO)
			break;
		n = gp->gp_len[e];
		memcpy(out, gp->gp_key[e], n);
	}
	kv_exit(t);
	return n;
}

/* ---- replacing: gs_lock held -------------------------------------------------------------- */

static struct parts parts_of(const struct kv_gap *gp)
{
	struct parts p = { .old = gp->gp_old, .dead = gp->gp_dead, .grace = gp->gp_grace,
			   .armed = gp->gp_armed };

	for (enum edge e = LO; e < EDGES; e++) {
		p.key[e] = gp->gp_key[e];
		p.len[e] = gp->gp_len[e];
	}
	return p;
}

static void set_edge(struct parts *p, enum edge e, const void *key, size_t len)
{
	p->key[e] = key;
	p->len[e] = len;
}

/* No edge lies beyond the key. */
static void cut_at(struct parts *p, const void *key, size_t klen)
{
	for (enum edge e = LO; e < EDGES; e++)
		if (kv_kcmp(p->key[e], p->len[e], key, klen) > 0)
			set_edge(p, e, key, klen);
}

static bool is_empty(const struct parts *p)
{
	return !kv_kcmp(p->key[LO], p->len[LO], p->key[TO], p->len[TO]);
}

static struct kv_gap *gap_new(const struct parts *p)
{
	size_t bytes = p->len[LO] + p->len[OLD] + p->len[DEAD] + p->len[TO];
	struct kv_gap *gp = malloc(sizeof(*gp) + bytes);
	uint8_t *to;

	KV_ASSERT(kv_kcmp(p->key[LO], p->len[LO], p->key[OLD], p->len[OLD]) <= 0);
	KV_ASSERT(kv_kcmp(p->key[OLD], p->len[OLD], p->key[DEAD], p->len[DEAD]) <= 0);
	KV_ASSERT(kv_kcmp(p->key[DEAD], p->len[DEAD], p->key[TO], p->len[TO]) <= 0);
	if (!gp)
		return NULL;
	gp->gp_grace = p->grace;
	gp->gp_armed = p->armed;
	gp->gp_old = p->old;
	gp->gp_dead = p->dead;
	to = gp->gp_bytes;
	for (enum edge e = LO; e < EDGES; e++) {
		gp->gp_key[e] = to;
		gp->gp_len[e] = (uint16_t)p->len[e];
		if (p->len[e])
			memcpy(to, p->key[e], p->len[e]);
		to += p->len[e];
	}
	return gp;
}

static size_t gap_bytes(const struct kv_gap *gp)
{
	return sizeof(*gp) + gp->gp_len[LO] + gp->gp_len[OLD] + gp->gp_len[DEAD] + gp->gp_len[TO];
}

static bool is_too_much(const struct kv_gap_dir *gd)
{
	size_t sum = 0;

	for (uint32_t i = 0; i < gd->gd_n; i++)
		sum += gap_bytes(gd->gd_gap[i]);
	return gd->gd_n > GAPS_MAX || sum > GAPS_BYTES;
}

static bool are_apart(const struct kv_gap_dir *gd)
{
	for (uint32_t i = 1; i < gd->gd_n; i++) {
		const struct kv_gap *b = gd->gd_gap[i];

		if (cmp_edge(gd->gd_gap[i - 1], TO, b->gp_key[LO], b->gp_len[LO]) > 0)
			return false;
	}
	return true;
}

static void dir_publish(struct kv_gaps *gs, struct kv_gap_dir *gd)
{
	struct kv_gap_dir *old = atomic_exchange(&gs->gs_dir, gd);

	KV_ASSERT_SLOW(!gd || are_apart(gd));
	KV_ASSERT_HELD(&gs->gs_lock);
	if (old)
		kv_retire(&old->gd_limbo, free, old);
}

/* Without any; needs no memory. */
static void dir_empty(struct kv_gaps *gs)
{
	struct kv_gap_dir *old = atomic_exchange(&gs->gs_dir, NULL);

	KV_ASSERT_HELD(&gs->gs_lock);
	for (uint32_t i = 0; old && i < old->gd_n; i++)
		kv_retire(&old->gd_gap[i]->gp_limbo, free, old->gd_gap[i]);
	if (old)
		kv_retire(&old->gd_limbo, free, old);
}

/* @nadd gaps in place of @n from number @at on. False: no memory, all is as before. */
static bool dir_put(struct kv_gaps *gs, uint32_t at, uint32_t n, struct kv_gap *const *add,
		    uint32_t nadd)
{
	struct kv_gap_dir *old = atomic_load(&gs->gs_dir), *gd;
	uint32_t have = old ? old->gd_n : 0, want = have - n + nadd, i;

	KV_ASSERT_HELD(&gs->gs_lock);
	gd = malloc(sizeof(*gd) + want * sizeof(gd->gd_gap[0]));
	if (!gd)
		return false;
	gd->gd_n = want;
	for (i = 0; i < want; i++) {
		if (i < at)
			gd->gd_gap[i] = old->gd_gap[i];
		else if (i < at + nadd)
			gd->gd_gap[i] = add[i - at];
		else
			gd->gd_gap[i] = old->gd_gap[i - nadd + n];
	}
	for (i = at; i < at + n; i++)
		kv_retire(&old->gd_gap[i]->gp_limbo, free, old->gd_gap[i]);
	if (!want) {
		free(gd);
		gd = NULL;
	}
	dir_publish(gs, gd);
	return true;
}

/* As dir_put(), with gaps that are made for it. */
static bool dir_put_parts(struct kv_gaps *gs, uint32_t at, uint32_t n, const struct parts *p,
			  uint32_t np)
{
	struct kv_gap *add[2] = { NULL, NULL };
	uint32_t nadd = 0;

	while (nadd < np && (add[nadd] = gap_new(&p[nadd])))
		nadd++;
	if (nadd == np && dir_put(gs, at, n, add, nadd))
		return true;
	while (nadd)
		free(add[--nadd]);
	return false;
}

/* ---- a put ------------------------------------------------------------------------------ */

/* The gap that watches the key, or UINT32_MAX. */
static uint32_t gap_at(const struct kv_gap_dir *gd, const void *key, size_t klen)
{
	uint32_t i = gaps_upto(gd, key, klen);

	return i && cmp_edge(gd->gd_gap[i - 1], TO, key, klen) > 0 ? i - 1 : UINT32_MAX;
}

void kv_gaps_cut_in(struct kvdb_kvs *kvs, const void *key, size_t klen)
{
	struct kv_gaps *gs = &kvs->k_gaps;
	struct kv_gap_dir *gd = atomic_load(&gs->gs_dir);
	struct parts p;
	uint32_t i;

	KV_ASSERT_INSIDE();
	/* what another thread watches from now on waits until we have left kv_enter() (GAP-1) */
	if (gap_at(gd, key, klen) == UINT32_MAX)
		return;
	pthread_mutex_lock(&gs->gs_lock);
	gd = atomic_load(&gs->gs_dir);
	i = gap_at(gd, key, klen);
	if (i != UINT32_MAX) {
		p = parts_of(gd->gd_gap[i]);
		cut_at(&p, key, klen);
		if (!dir_put_parts(gs, i, 1, &p, !is_empty(&p)))
			dir_empty(gs);	/* less is always right */
	}
	pthread_mutex_unlock(&gs->gs_lock);
}

/* ---- a bulk load -------------------------------------------------------------------------- */

void kv_gaps_close(struct kv_gaps *gs)
{
	struct kv_thread *t = kv_enter();	/* no destructor runs under the lock */

	pthread_mutex_lock(&gs->gs_lock);
	gs->gs_closed++;
	(void)BARRIER((dir_empty(gs), 0));
	pthread_mutex_unlock(&gs->gs_lock);
	kv_exit(t);
}

void kv_gaps_reopen(struct kv_gaps *gs)
{
	pthread_mutex_lock(&gs->gs_lock);
	KV_ASSERT(gs->gs_closed);
	gs->gs_closed--;
	pthread_mutex_unlock(&gs->gs_lock);
}

/* ---- learning: gs_lock held ---------------------------------------------------------------- */

/* May walks of views from gp_armed on say what is dead in it? */
static bool is_armed(struct kvdb *db, struct kv_gap *gp)
{
	if (gp->gp_armed == UINT64_MAX && CHECK(kv_grace_is_over(gp->gp_grace)))
		gp->gp_armed = atomic_load(&db->d_epochs.ep_seq);
	return gp->gp_armed != UINT64_MAX;
}

static struct since later(struct since a, struct since b)
{
	return (struct since){ a.seq > b.seq ? a.seq : b.seq, a.now > b.now ? a.now : b.now };
}

/* One gap that is dead to its end, and the one that begins there, become one. */
static void join(struct kvdb *db, struct kv_gaps *gs, uint32_t at)
{
	struct kv_gap_dir *gd = atomic_load(&gs->gs_dir);
	struct kv_gap *a, *b;
	struct parts p;

	KV_ASSERT_HELD(&gs->gs_lock);
	if (at + 1 >= gd->gd_n)
		return;
	a = gd->gd_gap[at];
	b = gd->gd_gap[at + 1];
	if (cmp_edge(a, DEAD, a->gp_key[TO], a->gp_len[TO]) ||
	    cmp_edge(a, TO, b->gp_key[LO], b->gp_len[LO]) || !is_armed(db, a) || !is_armed(db, b))
		return;
	p = parts_of(b);
	set_edge(&p, LO, a->gp_key[LO], a->gp_len[LO]);
	set_edge(&p, OLD, a->gp_key[DEAD], a->gp_len[DEAD]);
	p.old = later(a->gp_old, a->gp_dead);
	p.dead = later(p.old, later(b->gp_old, b->gp_dead));
	p.armed = a->gp_armed > b->gp_armed ? a->gp_armed : b->gp_armed;
	dir_put_parts(gs, at, 2, &p, 1);
}

/* The walk began in gap @at, beyond what is dead in it: a part of its own begins there. */
static bool split(struct kv_gaps *gs, uint32_t at, const struct kv_gap_walk *w)
{
	struct kv_gap *gp = atomic_load(&gs->gs_dir)->gd_gap[at];
	bool is_known = cmp_edge(gp, DEAD, gp->gp_key[LO], gp->gp_len[LO]) > 0;
	struct parts p[2] = { parts_of(gp), parts_of(gp) };

	KV_ASSERT_HELD(&gs->gs_lock);
	cut_at(&p[0], w->gw_lo, w->gw_lo_len);
	for (enum edge e = LO; e < TO; e++)
		set_edge(&p[1], e, w->gw_lo, w->gw_lo_len);
	p[1].old = p[1].dead = (struct since){ 0 };
	/* a front of which nothing is known is not worth a place */
	return is_known ? dir_put_parts(gs, at, 1, p, 2) : dir_put_parts(gs, at, 1, &p[1], 1);
}

/* [DEAD, hi) of gap @at is dead at the walk's view, as far as it is watched. */
static void extend(struct kvdb *db, struct kv_gaps *gs, uint32_t at, const struct kv_gap_walk *w)
{
	struct kv_gap *gp = atomic_load(&gs->gs_dir)->gd_gap[at];
	const uint8_t *hi = w->gw_hi ? w->gw_hi : top;
	size_t hi_len = w->gw_hi ? w->gw_hi_len : sizeof(top);
	struct parts p = parts_of(gp);

	KV_ASSERT_HELD(&gs->gs_lock);
	if (cmp_edge(gp, TO, hi, hi_len) < 0) {
		hi = gp->gp_key[TO];
		hi_len = gp->gp_len[TO];
	}
	if (cmp_edge(gp, DEAD, hi, hi_len) >= 0)
		return;
	set_edge(&p, OLD, gp->gp_key[DEAD], gp->gp_len[DEAD]);
	set_edge(&p, DEAD, hi, hi_len);
	p.old = later(p.old, p.dead);
	p.dead = later(p.old, (struct since){ w->gw_seq, w->gw_now });
	if (!dir_put_parts(gs, at, 1, &p, 1))
		return;
	join(db, gs, at);
	if (at)
		join(db, gs, at - 1);
}

/* A watch from where the walk began to the end of its range, or to the next gap. */
static void watch(struct kv_gaps *gs, const struct kv_gap_walk *w)
{
	struct kv_gap_dir *gd = atomic_load(&gs->gs_dir);
	uint32_t at = gaps_upto(gd, w->gw_lo, w->gw_lo_len);
	struct parts p = { .armed = UINT64_MAX };

	KV_ASSERT_HELD(&gs->gs_lock);
	for (enum edge e = LO; e < TO; e++)
		set_edge(&p, e, w->gw_lo, w->gw_lo_len);
	set_edge(&p, TO, top, sizeof(top));
	if (w->gw_to_len)
		cut_at(&p, w->gw_to, w->gw_to_len);
	if (gd && at < gd->gd_n)
		cut_at(&p, gd->gd_gap[at]->gp_key[LO], gd->gd_gap[at]->gp_len[LO]);
	if (is_empty(&p) || !dir_put_parts(gs, at, 0, &p, 1))
		return;
	gd = atomic_load(&gs->gs_dir);
	gd->gd_gap[at]->gp_grace = kv_grace_begin();	/* after it was published */
	while (gd && is_too_much(gd) && dir_put(gs, gs->gs_victim++ % gd->gd_n, 1, NULL, 0))
		gd = atomic_load(&gs->gs_dir);
}

static void learn(struct kvdb *db, struct kv_gaps *gs, const struct kv_gap_walk *w)
{
	struct kv_gap_dir *gd = atomic_load(&gs->gs_dir);
	uint32_t at = gap_at(gd, w->gw_lo, w->gw_lo_len);
	struct kv_gap *gp;

	KV_ASSERT_HELD(&gs->gs_lock);
	if (at == UINT32_MAX) {
		watch(gs, w);
		return;
	}
	gp = gd->gd_gap[at];
	if (!is_armed(db, gp) || !CHECK(w->gw_seq >= gp->gp_armed))
		return;
	if (cmp_edge(gp, DEAD, w->gw_lo, w->gw_lo_len) < 0) {
		if (!split(gs, at, w))
			return;
		at = gap_at(atomic_load(&gs->gs_dir), w->gw_lo, w->gw_lo_len);
	}
	extend(db, gs, at, w);
}

void kv_gaps_learn(struct kvdb_kvs *kvs, const struct kv_gap_walk *w)
{
	struct kv_gaps *gs = &kvs->k_gaps;
	struct kv_gap_walk own = *w;
	uint8_t lo[KVDB_KEY_MAX];
	struct kv_thread *t;

	KV_ASSERT_OUTSIDE();
	if (w->gw_behind) {
		if (w->gw_lo_len == KVDB_KEY_MAX)
			return;
		memcpy(lo, w->gw_lo, w->gw_lo_len);
		lo[w->gw_lo_len] = 0;
		own.gw_lo = lo;
		own.gw_lo_len++;
	}
	t = kv_enter();	/* no destructor runs under the lock */
	if (!pthread_mutex_trylock(&gs->gs_lock)) {
		if (!gs->gs_closed)
			learn(kvs->k_db, gs, &own);
		pthread_mutex_unlock(&gs->gs_lock);
	}
	kv_exit(t);
	kv_reclaim();
}
