/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Ordered walk of one run, both ways. The iterator holds a reference on the
 * run. Cursors read pages where they lie in the page pool: the page stays while
 * the caller is inside kv_enter(), and park forgets it; then it is looked up
 * again at the next use. Once they have walked a few pages in a row they ask
 * for the next ones together. A merge reads past the pool in large pieces, for
 * its pages are used once.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/guard.h"
#include "db/limbo.h"
#include "db/thread.h"
#include "cache/pages.h"
#include "seg/value.h"
#include "mem/iter.h"
#include "run/run.h"
#include "run/run_fence.h"
#include "run/run_load.h"
#include "run/run_omf.h"

#define AHEAD_MAX	16u	/* pages a cursor asks for at once */
#define ENTS_AHEAD	5	/* entries: their lines are asked for as many before their turn */
#define BULK_PAGES	32u	/* pages a merge reads at once */

struct run_iter {
	struct kv_iter ri_it;
	struct kvdb *ri_db;
	struct kv_run *ri_run;
	bool ri_reverse;
	bool ri_bulk;
	bool ri_routed;		/* the page is that of the key which is sought next */
	bool ri_loaded;		/* ri_kp is page ri_page of block ri_kb */
	int64_t ri_kb;		/* -1 and rn_nkeyed: beyond the ends */
	int64_t ri_page;
	int64_t ri_i;		/* entry to return next; may lie outside the page */
	unsigned ri_streak;	/* pages walked since the last seek */
	struct kv_kpage ri_kp;
	uint8_t *ri_buf;	/* bulk: BULK_PAGES */
	int64_t ri_buf_kb;	/* bulk: what the buffer holds */
	uint32_t ri_buf_first, ri_buf_n;
	uint32_t ri_buf_crc[BULK_PAGES]; /* of its pages */
	uint8_t ri_key[KVDB_KEY_MAX];
	uint8_t ri_val[KV_PAGE];	/* pool: the inline value returned last */
};

static const struct kv_kblock *iter_kb(const struct run_iter *ri)
{
	KV_ASSERT_SLOW(ri->ri_kb >= 0 && ri->ri_kb < ri->ri_run->rn_nkeyed);
	return &ri->ri_run->rn_kb[ri->ri_kb];
}

/* Through the page pool, with neighbours in the direction of the walk. */
static int page_pool(struct run_iter *ri, const struct kv_kblock *kb, uint32_t no,
		     const uint8_t **out)
{
	unsigned n = ri->ri_streak < 2 ? 1 : ri->ri_streak < AHEAD_MAX ? ri->ri_streak : AHEAD_MAX;
	const uint8_t *page[AHEAD_MAX];
	uint32_t crc[AHEAD_MAX], first = no;
	int rc;

	KV_ASSERT_INSIDE();
	KV_ASSERT(no < kb->kb_npages);
	*out = kv_page_hit(ri->ri_db, kb->kb_id, no);
	if (*out)
		return 0;
	if (ri->ri_reverse) {
		if (n > no + 1)
			n = no + 1;
		first = no + 1 - n;
	} else if (n > kb->kb_npages - no) {
		n = kb->kb_npages - no;
	}
	rc = kv_kblock_crcs(ri->ri_db, kb, first, n, crc);
	if (rc)
		return rc;
	rc = kv_pages_get(ri->ri_db, kb->kb_obj, first, n, crc, page);
	if (!rc)
		*out = page[no - first];
	/* what is wrong with a neighbour is said when the walk comes to it */
	else if (rc != -EINPROGRESS && n > 1)
		rc = kv_pages_get(ri->ri_db, kb->kb_obj, no, 1, &crc[no - first], out);
	return rc;
}

/* A walk past the pool is not inside kv_enter() while it reads; their CRCs come through it. */
static int bulk_crcs(struct run_iter *ri, const struct kv_kblock *kb, uint32_t first, unsigned n)
{
	struct kv_thread *t;
	int rc;

	rc = kv_kblock_need(ri->ri_db, kb);
	if (rc)
		return rc;
	kv_pages_room(ri->ri_db, KV_GET_PAGES);
	t = kv_enter();
	rc = kv_fences_crcs(ri->ri_db, kb, first, n, ri->ri_buf_crc);
	kv_exit(t);
	return rc;
}

/* From the large buffer, which is refilled from the device when it does not hold the page. */
static int page_bulk(struct run_iter *ri, const struct kv_kblock *kb, uint32_t no,
		     const uint8_t **out)
{
	uint32_t crc;
	uint8_t *p;
	int rc;

	KV_ASSERT_OUTSIDE();
	KV_ASSERT(no < kb->kb_npages);
	if (ri->ri_buf_kb != ri->ri_kb || no < ri->ri_buf_first ||
	    no >= ri->ri_buf_first + ri->ri_buf_n) {
		uint32_t n = kb->kb_npages - no;

		if (n > BULK_PAGES)
			n = BULK_PAGES;
		ri->ri_buf_n = 0;
		rc = bulk_crcs(ri, kb, no, n);
		if (!rc)
			rc = kv_dev_read(ri->ri_db, kb->kb_obj, KV_READ_KEY, (uint64_t)no * KV_PAGE,
					 ri->ri_buf, (size_t)n * KV_PAGE);
		if (rc)
			return rc;
		ri->ri_buf_kb = ri->ri_kb;
		ri->ri_buf_first = no;
		ri->ri_buf_n = n;
	}
	p = ri->ri_buf + (size_t)(no - ri->ri_buf_first) * KV_PAGE;
	crc = ri->ri_buf_crc[no - ri->ri_buf_first];
	*out = p;
	if (CHECK_CRC(mpool_crc32c(0, p, KV_PAGE) == crc))
		return 0;
	rc = kv_dev_read(ri->ri_db, kb->kb_obj, KV_READ_KEY, (uint64_t)no * KV_PAGE, p, KV_PAGE);
	if (rc)
		return rc;
	if (CHECK_CRC(mpool_crc32c(0, p, KV_PAGE) == crc))
		return 0;
	return kv_run_damaged(kb->kb_id, (uint64_t)no * KV_PAGE,
			      "key page: CRC differs from the one its parent holds");
}

static int iter_load(struct run_iter *ri)
{
	const struct kv_kblock *kb = iter_kb(ri);
	uint32_t no = (uint32_t)ri->ri_page;
	const uint8_t *page;
	const char *bad;
	int rc;

	ri->ri_loaded = false;
	rc = ri->ri_bulk ? page_bulk(ri, kb, no, &page) : page_pool(ri, kb, no, &page);
	if (rc)
		return rc;
	bad = kv_kpage_decode(page, no, &ri->ri_kp);
	if (bad)
		return kv_run_damaged(kb->kb_id, (uint64_t)no * KV_PAGE, bad);
	ri->ri_loaded = true;
	return 0;
}

/* Goes to the neighbouring page in the direction of the walk. -ENOENT at the end. */
static int iter_turn(struct run_iter *ri)
{
	const struct kv_run *r = ri->ri_run;
	int rc;

	if (!ri->ri_reverse) {
		if (++ri->ri_page >= iter_kb(ri)->kb_npages) {
			ri->ri_page = 0;
			ri->ri_kb++;
		}
	} else if (--ri->ri_page < 0) {
		ri->ri_kb--;
		ri->ri_page = ri->ri_kb >= 0 ? (int64_t)iter_kb(ri)->kb_npages - 1 : 0;
	}
	ri->ri_loaded = false;
	ri->ri_streak++;
	ri->ri_i = ri->ri_reverse ? INT64_MAX : 0;
	if (ri->ri_kb < 0 || ri->ri_kb >= r->rn_nkeyed)
		return -ENOENT;
	KV_ASSERT(ri->ri_page >= 0 && ri->ri_page < iter_kb(ri)->kb_npages);
	rc = iter_load(ri);
	if (!rc && ri->ri_reverse)
		ri->ri_i = ri->ri_kp.kp_n - 1;
	return rc;
}

static void iter_rewind(struct run_iter *ri)
{
	const struct kv_run *r = ri->ri_run;

	ri->ri_routed = ri->ri_loaded = false;
	ri->ri_streak = 0;
	ri->ri_kb = ri->ri_reverse ? (int64_t)r->rn_nkeyed - 1 : 0;
	ri->ri_page = ri->ri_reverse && r->rn_nkeyed ? (int64_t)iter_kb(ri)->kb_npages - 1 : 0;
	ri->ri_i = ri->ri_reverse ? INT64_MAX : 0;	/* clipped when the page is loaded */
}

/* Goes to the page that holds the key or would hold it; -ENOENT: it is before the first. */
static int iter_route(struct run_iter *ri, const void *key, size_t klen)
{
	int64_t no;
	int kb;

	iter_rewind(ri);
	kb = kv_run_route(ri->ri_run, key, klen);
	if (kb < 0)
		return -ENOENT;
	ri->ri_kb = kb;
	no = kv_kblock_page(ri->ri_db, iter_kb(ri), key, klen);
	if (no < 0)
		return (int)no;
	ri->ri_page = no;
	return 0;
}

static bool run_ahead(struct kv_iter *it, const void *key, size_t klen, unsigned step)
{
	struct run_iter *ri = (struct run_iter *)it;
	const uint8_t *page;

	if (!step) {
		/* where that needs a read the seek has it done */
		ri->ri_routed = !iter_route(ri, key, klen);
		if (ri->ri_routed)
			kv_page_prefetch(ri->ri_db, iter_kb(ri)->kb_id, (uint64_t)ri->ri_page);
		return true;
	}
	if (!ri->ri_routed)
		return true;
	KV_ASSERT_INSIDE();
	page = kv_page_peek(ri->ri_db, iter_kb(ri)->kb_id, (uint64_t)ri->ri_page);
	if (page)
		kv_kpage_prefetch(page);
	return page;
}

static int seek_inside(struct kv_iter *it, const void *key, size_t klen)
{
	struct run_iter *ri = (struct run_iter *)it;
	const char *bad;
	bool exact;
	int rc = 0;

	if (!klen) {
		iter_rewind(ri);
		return 0;
	}
	if (!ri->ri_routed)
		rc = iter_route(ri, key, klen);
	if (rc == -ENOENT && ri->ri_reverse)
		ri->ri_kb = -1;
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	ri->ri_routed = false;
	rc = iter_load(ri);
	if (rc)
		return rc;
	ri->ri_i = kv_kpage_lower(&ri->ri_kp, key, klen, &exact, &bad);
	if (bad)
		return kv_run_damaged(iter_kb(ri)->kb_id, (uint64_t)ri->ri_page * KV_PAGE, bad);
	if (ri->ri_reverse && !exact)
		ri->ri_i--;
	kv_kpage_ent_prefetch(&ri->ri_kp, (unsigned)ri->ri_i);
	return 0;
}

static int next_inside(struct kv_iter *it, struct kv_ent *e)
{
	struct run_iter *ri = (struct run_iter *)it;
	struct kv_kent ke;
	const char *bad;
	int rc, step = ri->ri_reverse ? -1 : 1;

	if (ri->ri_kb < 0 || ri->ri_kb >= ri->ri_run->rn_nkeyed)
		return -ENOENT;
	if (!ri->ri_loaded) {
		rc = iter_load(ri);
		if (rc)
			return rc;
		if (ri->ri_i == INT64_MAX)
			ri->ri_i = ri->ri_kp.kp_n - 1;
	}
	if (ri->ri_i < 0 || ri->ri_i >= ri->ri_kp.kp_n) {
		rc = iter_turn(ri);
		if (rc)
			return rc;
	}
	bad = kv_kpage_ent(&ri->ri_kp, (unsigned)ri->ri_i, &ke);
	if (bad)
		return kv_run_damaged(iter_kb(ri)->kb_id, (uint64_t)ri->ri_page * KV_PAGE, bad);
	e->e_klen = kv_kpage_key(&ri->ri_kp, (unsigned)ri->ri_i, &ke, ri->ri_key);
	e->e_key = ri->ri_key;
	rc = kv_kblock_ent(iter_kb(ri), (uint32_t)ri->ri_page, &ke, e);
	if (rc)
		return rc;
	if (e->e_kind == KV_ENT_INLINE && !ri->ri_bulk) {
		memcpy(ri->ri_val, e->e_val, e->e_vlen);
		e->e_val = ri->ri_val;
	}
	kv_kpage_ent_prefetch(&ri->ri_kp, (unsigned)(ri->ri_i + step * ENTS_AHEAD));
	ri->ri_i += step;
	return 0;
}

static void run_park(struct kv_iter *it)
{
	struct run_iter *ri = (struct run_iter *)it;

	ri->ri_loaded = false;
}

/* The page in hand is good until the caller leaves kv_enter(), which it may not be in. */
static void leave(struct kv_iter *it, struct kv_thread *t)
{
	kv_exit(t);
	if (!CHECK(kv_is_inside()))
		run_park(it);
}

static int run_seek(struct kv_iter *it, const void *key, size_t klen)
{
	struct kv_thread *t = kv_enter();
	int rc = seek_inside(it, key, klen);

	leave(it, t);
	return rc;
}

static int run_next(struct kv_iter *it, struct kv_ent *e)
{
	struct kv_thread *t;
	int rc;

	/* with a page in hand the caller is inside */
	if (((struct run_iter *)it)->ri_loaded) {
		KV_ASSERT_INSIDE();
		return next_inside(it, e);
	}
	t = kv_enter();
	rc = next_inside(it, e);
	leave(it, t);
	return rc;
}

static void run_turn(struct kv_iter *it, bool reverse)
{
	struct run_iter *ri = (struct run_iter *)it;

	KV_ASSERT(!ri->ri_bulk);
	ri->ri_reverse = reverse;
	iter_rewind(ri);
}

static void run_close(struct kv_iter *it)
{
	struct run_iter *ri = (struct run_iter *)it;

	kv_run_put(ri->ri_db, ri->ri_run);
	free(ri->ri_buf);
	free(ri);
}

/* FS1: background work failed at this run, and at no other. */
static int bulk_blame(struct run_iter *ri, int rc)
{
	if (rc == -EIO || rc == -EUCLEAN)
		kv_run_blame(ri->ri_db, ri->ri_run, rc);
	return rc;
}

static int bulk_seek(struct kv_iter *it, const void *key, size_t klen)
{
	struct run_iter *ri = (struct run_iter *)it;
	struct kv_thread *t;
	int rc = 0;

	if (klen) {
		kv_pages_room(ri->ri_db, KV_GET_PAGES);
		t = kv_enter();
		rc = iter_route(ri, key, klen);
		kv_exit(t);
		ri->ri_routed = !rc;
	}
	if (!rc)
		rc = seek_inside(it, key, klen);
	return rc == -ENOENT ? 0 : bulk_blame(ri, rc);
}

static int bulk_next(struct kv_iter *it, struct kv_ent *e)
{
	return bulk_blame((struct run_iter *)it, next_inside(it, e));
}

/* It uses its own buffer; inside kv_enter() its large reads would hold others up. */
static const struct kv_iter_ops bulk_iter_ops = {
	.seek = bulk_seek,
	.next = bulk_next,
	.turn = run_turn,
	.close = run_close,
};

static const struct kv_iter_ops run_iter_ops = {
	.seek = run_seek,
	.ahead = run_ahead,
	.next = run_next,
	.turn = run_turn,
	.park = run_park,
	.close = run_close,
};

static int iter_open(struct kvdb *db, struct kv_run *r, bool reverse, bool bulk,
		     struct kv_iter **out)
{
	struct run_iter *ri = malloc(sizeof(*ri));

	if (!ri)
		return -ENOMEM;
	/* not the key and the value: they are large */
	memset(ri, 0, offsetof(struct run_iter, ri_key));
	ri->ri_it.it_ops = bulk ? &bulk_iter_ops : &run_iter_ops;
	ri->ri_db = db;
	ri->ri_reverse = reverse;
	ri->ri_bulk = bulk;
	ri->ri_buf_kb = -1;
	if (bulk)
		ri->ri_buf = aligned_alloc(KV_PAGE, BULK_PAGES * KV_PAGE);
	if (bulk && !ri->ri_buf) {
		free(ri);
		return -ENOMEM;
	}
	ri->ri_run = kv_run_get_ref(r);
	iter_rewind(ri);
	*out = &ri->ri_it;
	return 0;
}

int kv_run_iter(struct kvdb *db, struct kv_run *r, bool reverse, struct kv_iter **out)
{
	return iter_open(db, r, reverse, false, out);
}

int kv_run_iter_bulk(struct kvdb *db, struct kv_run *r, struct kv_iter **out)
{
	return iter_open(db, r, false, true, out);
}
