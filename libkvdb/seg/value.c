/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reading of values. While the segment's image is in the window a value is a
 * plain copy. From the device the whole value is read, its CRC is compared
 * with the one that the reference carries, and only then are bytes handed out:
 * small values through the page pool, large ones straight into a buffer. A
 * packed value is unpacked after its own CRC was compared, wherever it came from,
 * and what comes out has that of the put (PK1).
 *
 * The caller is inside kv_enter() and something that it holds (a run or a
 * memtable) refers to the segment, so neither image nor object goes away.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "seg/value.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/pack.h"
#include "db/thread.h"
#include "cache/pages.h"
#include "cache/slab.h"
#include "seg/seg.h"

#define DIRECT_MIN	65536u	/* larger values bypass the page pool */
#define PAGE		4096u
#define FETCH_MAX	1024u	/* bytes of a value to prefetch; then the hardware follows */

static int value_damaged(const struct kv_ent *e, const char *check)
{
	return kv_error(-EUCLEAN, "MP0960", "object %llu, offset %llu: value of %u bytes: %s",
			(unsigned long long)e->e_seg->sg_id, (unsigned long long)e->e_off8 * 8,
			e->e_vlen, check);
}

/* Past every cache. @is_again: an earlier reading was bad. */
static int value_direct(struct kvdb *db, const struct kv_ent *e, void *out, size_t size,
			bool is_again)
{
	uint64_t off = (uint64_t)e->e_off8 * 8, from = off & ~(uint64_t)(PAGE - 1);
	size_t len = (off + e->e_vlen - from + PAGE - 1) & ~(size_t)(PAGE - 1);
	uint8_t *buf = kv_scratch_get(db, len), *val = buf + (off - from);
	int rc = -EUCLEAN, tries;

	if (!buf)
		return kv_error(-ENOMEM, "MP0902", "no memory for a value of %u bytes", e->e_vlen);
	for (tries = 0; tries < 2 && rc == -EUCLEAN; tries++) {
		rc = kv_dev_read(db, e->e_seg->sg_obj, KV_READ_VALUE, from, buf, len);
		if (!rc && !CHECK_CRC(mpool_crc32c(0, val, e->e_vlen) == e->e_vcrc))
			rc = -EUCLEAN;
	}
	/* an asynchronous read that is not there yet comes here again */
	if (rc == -EUCLEAN || (rc != -EINPROGRESS && (is_again || tries > 1)))
		kv_bad_read(db, e->e_seg->sg_obj, off, !rc);
	if (!rc)
		memcpy(out, val, size);
	kv_scratch_put(db, buf, len);
	return rc == -EUCLEAN ? value_damaged(e, "CRC differs from the one in its reference") : rc;
}

static void bytes_prefetch(const uint8_t *p, uint32_t len)
{
	for (uint32_t at = 0; at < len && at < FETCH_MAX; at += KV_CACHELINE)
		__builtin_prefetch(p + at);
}

/* Through the page pool. -EUCLEAN: the CRC differs. */
static int value_pages(struct kvdb *db, const struct kv_ent *e, uint8_t *out, size_t size)
{
	const uint8_t *page[KV_PAGES_MAX];
	uint64_t off = (uint64_t)e->e_off8 * 8, first = off / PAGE;
	unsigned n = (unsigned)((off + e->e_vlen - 1) / PAGE - first + 1);
	uint32_t crc = 0, left = e->e_vlen, skip = (uint32_t)(off % PAGE);
	size_t done = 0;
	int rc = kv_pages_get(db, e->e_seg->sg_obj, first, n, NULL, page);

	KV_ASSERT(n <= KV_PAGES_MAX);
	if (rc)
		return rc;
	/* all lines at once: the CRC would meet them one after another */
	bytes_prefetch(page[0] + skip, left < PAGE - skip ? left : PAGE - skip);
	if (n > 1)
		bytes_prefetch(page[1], left - (PAGE - skip));
	for (unsigned i = 0; i < n; i++, skip = 0) {
		uint32_t part = left < PAGE - skip ? left : PAGE - skip;
		size_t copy = size - done < part ? size - done : part;

		crc = mpool_crc32c(crc, page[i] + skip, part);
		if (copy)
			memcpy(out + done, page[i] + skip, copy);
		done += copy;
		left -= part;
	}
	return CHECK_CRC(crc == e->e_vcrc) ? 0 : -EUCLEAN;
}

static int value_dev(struct kvdb *db, const struct kv_ent *e, void *out, size_t size)
{
	uint64_t first = (uint64_t)e->e_off8 * 8 / PAGE;
	struct kv_tctx *tc = kv_tctx(db);
	int rc;

	if (e->e_vlen > DIRECT_MIN) {
		rc = value_direct(db, e, out, size, false);
	} else {
		rc = value_pages(db, e, out, size);
		if (rc == -EUCLEAN) {
			rc = value_direct(db, e, out, size, true);
			if (!rc)	/* the cached copy was bad, the device is right */
				kv_page_purge(db, e->e_seg->sg_id, first + DIRECT_MIN / PAGE + 1);
		}
	}
	/* a caller that has to wait comes here again */
	if (tc && rc != -EINPROGRESS)
		kv_count(&tc->tc_value_dev, 1);
	return rc;
}

static bool place_is_good(const struct kv_ent *e)
{
	return CHECK(e->e_vlen <= KVDB_VALUE_MAX &&
		     (uint64_t)e->e_off8 * 8 + e->e_vlen <= atomic_load(&e->e_seg->sg_room));
}

int kv_value_read_stored(struct kvdb *db, const struct kv_ent *e, void *buf)
{
	struct kv_ent s = *e;
	const uint8_t *image;

	KV_ASSERT_INSIDE();
	if (!e->e_pack)
		return kv_value_read(db, e, buf, e->e_vlen);
	s.e_vlen = e->e_plen;
	s.e_vcrc = e->e_pcrc;
	if (!place_is_good(&s))
		return value_damaged(&s, "reference beyond the segment");
	image = atomic_load_explicit(&e->e_seg->sg_image, memory_order_acquire);
	if (image &&
	    CHECK_CRC(mpool_crc32c(0, image + (size_t)s.e_off8 * 8, s.e_vlen) == s.e_vcrc)) {
		memcpy(buf, image + (size_t)s.e_off8 * 8, s.e_vlen);
		return 0;
	}
	return value_dev(db, &s, buf, s.e_vlen);
}

/* @out has e_vlen bytes. */
static int value_unpack(struct kvdb *db, const struct kv_ent *e, uint8_t *out)
{
	uint8_t *packed = malloc(e->e_plen);
	int rc = packed ? kv_value_read_stored(db, e, packed) : -ENOMEM;
	bool is_good = !rc && kv_unpack(e->e_pack, packed, e->e_plen, out, e->e_vlen);

	if (!rc && !CHECK(is_good))
		rc = value_damaged(e, "does not unpack to its length");
	if (!rc && !CHECK_CRC(mpool_crc32c(0, out, e->e_vlen) == e->e_vcrc))
		rc = value_damaged(e, "CRC of what it unpacks to differs");
	free(packed);
	return rc;
}

static int value_packed(struct kvdb *db, const struct kv_ent *e, void *buf, size_t size)
{
	uint8_t *all = size == e->e_vlen ? buf : malloc(e->e_vlen);
	int rc = all ? value_unpack(db, e, all) : -ENOMEM;

	if (all != buf) {
		if (!rc && size)
			memcpy(buf, all, size);
		free(all);
	}
	return rc == -ENOMEM ? kv_error(rc, "MP0902", "no memory for a value of %u bytes",
					e->e_vlen) : rc;
}

/* From the window. */
static inline void value_copy(struct kvdb *db, const uint8_t *val, void *buf, size_t size,
			      bool touches)
{
	struct kv_tctx *tc = kv_tctx(db);

	if (size)
		memcpy(buf, val, size);
	if (touches)
		kv_slab_touch(db, val);
	if (tc)
		kv_count(&tc->tc_value_mem, 1);
}

int kv_value_read(struct kvdb *db, const struct kv_ent *e, void *buf, size_t size)
{
	const uint8_t *image;

	KV_ASSERT_INSIDE();
	if (size > e->e_vlen)
		size = e->e_vlen;
	if (e->e_kind == KV_ENT_TOMB)
		return -ENOENT;
	if (e->e_kind == KV_ENT_INLINE) {
		if (size)
			memcpy(buf, e->e_val, size);
		return 0;
	}
	if (!e->e_vlen)
		return 0;
	if (e->e_kind == KV_ENT_INMEM) {
		value_copy(db, e->e_val, buf, size, true);
		return 0;
	}
	if (KV_UNLIKELY(e->e_pack))
		return value_packed(db, e, buf, size);
	if (!place_is_good(e))
		return value_damaged(e, "reference beyond the segment");
	image = atomic_load_explicit(&e->e_seg->sg_image, memory_order_acquire);
	if (!image)
		return value_dev(db, e, buf, size);
	value_copy(db, image + (size_t)e->e_off8 * 8, buf, size, !(e->e_vcrc & 15));
	return 0;
}

bool kv_value_is_near(const struct kv_ent *e)
{
	return e->e_kind != KV_ENT_REF || !e->e_vlen ||
	       atomic_load_explicit(&e->e_seg->sg_image, memory_order_relaxed);
}

void kv_value_prefetch(const struct kv_ent *e)
{
	const uint8_t *image;

	if (e->e_kind != KV_ENT_REF)
		return;
	/* also when it is gone by now: an address that is prefetched needs no memory behind it */
	image = atomic_load_explicit(&e->e_seg->sg_image, memory_order_relaxed);
	if (image)
		bytes_prefetch(image + (size_t)e->e_off8 * 8, kv_ent_stored(e));
}

void kv_values_touch(const struct kv_ent *e, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *image = e[i].e_kind == KV_ENT_REF ?
			atomic_load_explicit(&e[i].e_seg->sg_image, memory_order_relaxed) : NULL;

		if (image)
			__builtin_prefetch(image + (size_t)e[i].e_off8 * 8);
	}
}

/* Has it to be read through the page pool? */
static bool is_paged(const struct kv_ent *e)
{
	uint32_t len = kv_ent_stored(e);

	return e->e_kind == KV_ENT_REF && len && len <= DIRECT_MIN &&
	       (uint64_t)e->e_off8 * 8 + len <= atomic_load(&e->e_seg->sg_room) &&
	       !atomic_load_explicit(&e->e_seg->sg_image, memory_order_acquire);
}

/* Prefetches the value if the pool has all of its pages. */
static bool pages_prefetch(struct kvdb *db, const struct kv_want *w, const struct kv_ent *e)
{
	uint32_t skip = (uint32_t)((uint64_t)e->e_off8 * 8 % PAGE), left = kv_ent_stored(e);

	for (unsigned i = 0; i < w->wa_n; i++, skip = 0) {
		const uint8_t *page = kv_page_peek(db, e->e_seg->sg_id, w->wa_first + i);

		if (!page)
			return false;
		bytes_prefetch(page + skip, left < PAGE - skip ? left : PAGE - skip);
		left -= left < PAGE - skip ? left : PAGE - skip;
	}
	return true;
}

unsigned kv_values_want(struct kvdb *db, const struct kv_ent *e, unsigned n, struct kv_want *want,
			const struct kv_ent **from)
{
	unsigned k = 0;

	KV_ASSERT_INSIDE();
	for (unsigned i = 0; i < n; i++)
		if (is_paged(&e[i]))
			kv_page_prefetch(db, e[i].e_seg->sg_id, (uint64_t)e[i].e_off8 * 8 / PAGE);
	for (unsigned i = 0; i < n && k < KV_AHEAD_MAX; i++) {
		uint64_t off = (uint64_t)e[i].e_off8 * 8;

		if (!is_paged(&e[i]))
			continue;
		want[k].wa_obj = e[i].e_seg->sg_obj;
		want[k].wa_first = off / PAGE;
		want[k].wa_n = (unsigned)((off + kv_ent_stored(&e[i]) - 1) / PAGE - off / PAGE + 1);
		want[k].wa_crc = NULL;
		from[k] = &e[i];
		k += !pages_prefetch(db, &want[k], &e[i]);
	}
	return k;
}

void kv_values_ahead(struct kvdb *db, const struct kv_ent *e, unsigned n)
{
	const struct kv_ent *from[KV_AHEAD_MAX];
	struct kv_want want[KV_AHEAD_MAX];
	unsigned k = kv_values_want(db, e, n, want, from);

	/* a single one is read as well when it is wanted */
	if (k > 1)
		kv_pages_ahead(db, want, k);
}
