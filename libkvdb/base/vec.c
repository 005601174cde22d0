/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Arrays: see vec.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "base/assert.h"

int kv_vec_grow(void *vec, uint32_t *cap, size_t need, size_t size)
{
	size_t n = *cap ? *cap : 16;
	void *p;

	if (need <= *cap)
		return 0;
	if (need > UINT32_MAX / 2)
		return -ENOMEM;
	while (n < need)
		n *= 2;
	/* the pointer may be of any type, so it is copied as bytes */
	memcpy(&p, vec, sizeof(p));
	p = realloc(p, n * size);
	if (!p)
		return -ENOMEM;
	memcpy(vec, &p, sizeof(p));
	*cap = (uint32_t)n;
	return 0;
}

static int by_id(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void kv_ids_sort(uint64_t *id, size_t n)
{
	if (n)
		qsort(id, n, sizeof(*id), by_id);
}

static bool are_sorted(const uint64_t *id, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (id[i - 1] > id[i])
			return false;
	return true;
}

bool kv_ids_have(const uint64_t *ids, size_t n, uint64_t id)
{
	KV_ASSERT_SLOW(are_sorted(ids, n));
	return n && bsearch(&id, ids, n, sizeof(id), by_id);
}
