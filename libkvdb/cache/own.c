/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Memory of images of large records (L5).
 *
 * Each is written to its device from here, by one request. A device takes some
 * hundred pieces of memory at a time, for all requests together: an image in small
 * pages is so many pieces that it is written alone, at half the speed. So images of
 * any size lie in huge pages, close together: one that ended at the end of a huge page
 * would take memory up to twice its size.
 *
 * First fit: they end in the order in which they came, and the beginning of the range
 * is used again before more of it gets memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cache/own.h"
#include "base/assert.h"

/* NONE: no memory. USED: a part lay in it since kv_own_age(). IDLE: none did. */
enum own_page { OWN_NONE = 0, OWN_USED, OWN_IDLE };

static size_t round_up(size_t bytes, size_t to)
{
	return (bytes + to - 1) / to * to;
}

int kv_own_init(struct kv_own *ow, uint64_t bytes)
{
	ow->ow_bytes = round_up((size_t)bytes, KV_HUGE_PAGE);
	ow->ow_page = calloc(ow->ow_bytes / KV_HUGE_PAGE + 1, 1);
	if (!ow->ow_page)
		return -ENOMEM;
	ow->ow_base = kv_range_map(&ow->ow_range, ow->ow_bytes);
	if (!ow->ow_base) {
		free(ow->ow_page);
		return -ENOMEM;
	}
	madvise(ow->ow_base, ow->ow_bytes, MADV_HUGEPAGE);
	return 0;
}

void kv_own_fini(struct kv_own *ow)
{
	kv_range_unmap(&ow->ow_range);
	free(ow->ow_page);
}

/* The first gap of so many bytes: where it begins, and the link of the part behind it. */
static bool find(const struct kv_own *ow, size_t bytes, size_t *off,
		 struct kv_own_part *const **link)
{
	struct kv_own_part *const *pp;
	size_t end = 0;

	for (pp = &ow->ow_first; *pp && (*pp)->op_off - end < bytes; pp = &(*pp)->op_next)
		end = (*pp)->op_off + (*pp)->op_bytes;
	*off = end;
	*link = pp;
	return *pp || ow->ow_bytes - end >= bytes;
}

bool kv_own_has(const struct kv_own *ow, size_t bytes)
{
	struct kv_own_part *const *link;
	size_t off;

	return find(ow, bytes, &off, &link);
}

static void insert(struct kv_own *ow, struct kv_own_part *const *link, struct kv_own_part *part)
{
	struct kv_own_part **pp = (struct kv_own_part **)link;

	part->op_next = *pp;
	*pp = part;
	ow->ow_used += part->op_bytes;
}

uint8_t *kv_own_take(struct kv_own *ow, struct kv_own_part *part, size_t bytes)
{
	struct kv_own_part *const *link;

	KV_ASSERT(bytes);
	part->op_bytes = bytes = round_up(bytes, 4096);
	if (!find(ow, bytes, &part->op_off, &link))
		return NULL;
	insert(ow, link, part);
	for (size_t i = part->op_off / KV_HUGE_PAGE; i * KV_HUGE_PAGE < part->op_off + bytes; i++) {
		ow->ow_touched += ow->ow_page[i] == OWN_NONE;
		ow->ow_page[i] = OWN_USED;
	}
	return kv_own_mem(ow, part);
}

void kv_own_put(struct kv_own *ow, struct kv_own_part *part)
{
	struct kv_own_part **pp = &ow->ow_first;

	while (*pp != part) {
		KV_ASSERT(*pp);
		pp = &(*pp)->op_next;
	}
	*pp = part->op_next;
	KV_ASSERT(ow->ow_used >= part->op_bytes);
	ow->ow_used -= part->op_bytes;
}

uint8_t *kv_own_mem(const struct kv_own *ow, const struct kv_own_part *part)
{
	return ow->ow_base + part->op_off;
}

size_t kv_own_kept(const struct kv_own *ow)
{
	size_t has = ow->ow_touched * KV_HUGE_PAGE;

	return has > ow->ow_used ? has - ow->ow_used : 0;
}

/* Calls @fn for each huge page that no part touches. */
static void each_free(struct kv_own *ow, bool (*fn)(struct kv_own *ow, size_t page, void *arg),
		      void *arg)
{
	const struct kv_own_part *p = ow->ow_first;
	size_t page = 0, end;

	for (;; p = p->op_next) {
		end = (p ? p->op_off : ow->ow_bytes) / KV_HUGE_PAGE;
		while (page < end)
			if (!fn(ow, page++, arg))
				return;
		if (!p)
			return;
		end = round_up(p->op_off + p->op_bytes, KV_HUGE_PAGE) / KV_HUGE_PAGE;
		page = page > end ? page : end;
	}
}

static bool age_page(struct kv_own *ow, size_t page, void *arg)
{
	(void)arg;
	if (ow->ow_page[page] == OWN_USED)
		ow->ow_page[page] = OWN_IDLE;
	return true;
}

void kv_own_age(struct kv_own *ow)
{
	each_free(ow, age_page, NULL);
}

/* Pages that follow one another: the first of them, and their number. */
struct run {
	size_t r_first, r_n;
};

static bool run_page(struct kv_own *ow, size_t page, void *arg)
{
	struct run *r = arg;

	if (ow->ow_page[page] != OWN_IDLE)
		return !r->r_n;
	if (r->r_n && page != r->r_first + r->r_n)
		return false;
	if (!r->r_n++)
		r->r_first = page;
	return true;
}

uint8_t *kv_own_idle(struct kv_own *ow, struct kv_own_part *part)
{
	struct kv_own_part **pp = &ow->ow_first;
	struct run r = { 0, 0 };

	each_free(ow, run_page, &r);
	if (!r.r_n)
		return NULL;
	for (size_t i = r.r_first; i < r.r_first + r.r_n; i++)
		ow->ow_page[i] = OWN_NONE;
	KV_ASSERT(ow->ow_touched >= r.r_n);
	ow->ow_touched -= r.r_n;
	part->op_off = r.r_first * KV_HUGE_PAGE;
	part->op_bytes = r.r_n * KV_HUGE_PAGE;
	while (*pp && (*pp)->op_off < part->op_off)
		pp = &(*pp)->op_next;
	insert(ow, pp, part);
	return kv_own_mem(ow, part);
}
