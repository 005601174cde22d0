/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Memory of images of large records (L5). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kv_rig.h"
#include "cache/own.h"
#include "cache/slab.h"

#define MIB	(1u << 20)
#define PARTS	64u

/* Does one mapping for huge pages have all of the range? */
static bool is_in_huge_pages(uintptr_t from, uintptr_t to)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	unsigned long a = 0, b = 0, x, y;
	char line[512];
	bool is = false;

	T_OK(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &x, &y) == 2) {
			a = x;
			b = y;
		} else if (a <= from && to <= b && !strncmp(line, "VmFlags:", 8)) {
			is = strstr(line, " hg");
		}
	}
	fclose(f);
	return is;
}

static uintptr_t up(uintptr_t at)
{
	return (at + KV_HUGE_PAGE - 1) / KV_HUGE_PAGE * KV_HUGE_PAGE;
}

static void open_rig(struct rig *r, uint64_t large_bytes)
{
	rig_open(r, 8 * MIB, 64 * MIB);
	/* again, with images of large records */
	kv_pagepool_fini(&r->db);
	kv_slabs_fini(&r->db);
	r->db.d_budget.b_large_bytes = large_bytes;
	T_EQ(kv_slabs_init(&r->db), 0);
	T_EQ(kv_pagepool_init(&r->db), 0);
}

/* One in small pages is written alone: a device takes so many pieces of memory at a time. */
static void images_of_any_size_lie_close_in_huge_pages(void)
{
	static const uint32_t size[] = { 327680, 458752, 589824, 720896, 1114112, 1441792, 2162688,
					 3014656, 4194304, 5046272, 16842752 };
	_Atomic(uint8_t *) image[16] = { NULL };
	struct rig r;

	for (unsigned i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		uintptr_t lo = UINTPTR_MAX, hi = 0;
		unsigned n = 17 * MIB / size[i] < 16 ? 17 * MIB / size[i] : 16;

		open_rig(&r, 17 * MIB);
		for (unsigned k = 0; k < n; k++) {
			uintptr_t at = (uintptr_t)kv_slab_take_image(&r.db, size[i], &image[k]);

			T_OK(at);
			lo = at < lo ? at : lo;
			hi = at + size[i] > hi ? at + size[i] : hi;
		}
		T_OK(hi - lo == (uintptr_t)n * size[i]);
		T_OK(is_in_huge_pages(lo / KV_HUGE_PAGE * KV_HUGE_PAGE, up(hi)));
		T_EQ(kv_slab_big_bytes(&r.db), up(n * size[i]));
		for (unsigned k = 0; k < n; k++)
			kv_slab_drop_image(&r.db, &image[k]);
		rig_close(&r);
	}
}

/* Parts in any order against a map of what is taken. */
static void parts_never_overlap(void)
{
	static uint8_t map[8 * MIB / 4096];
	struct kv_own_part part[PARTS];
	bool is_taken[PARTS] = { false };
	struct kv_own ow = { 0 };
	unsigned full = 0, wrong = 0;
	uint64_t rnd = t_seed();

	memset(map, 0, sizeof(map));
	T_EQ(kv_own_init(&ow, 8 * MIB - 1), 0);
	T_EQ(ow.ow_bytes, 8 * MIB);
	for (unsigned i = 0; i < 20000; i++) {
		unsigned k = (unsigned)(t_rand(&rnd) % PARTS);
		size_t bytes = 1 + t_rand(&rnd) % (t_rand(&rnd) % 4 ? 200000 : 3 * MIB);
		bool has = kv_own_has(&ow, (bytes + 4095) / 4096 * 4096);
		uint8_t *mem;

		if (is_taken[k]) {
			memset(map + part[k].op_off / 4096, 0, part[k].op_bytes / 4096);
			kv_own_put(&ow, &part[k]);
			is_taken[k] = false;
			continue;
		}
		mem = kv_own_take(&ow, &part[k], bytes);
		wrong += !mem == has;
		full += !mem;
		if (!mem)
			continue;
		is_taken[k] = true;
		wrong += mem != kv_own_mem(&ow, &part[k]) || part[k].op_bytes < bytes ||
			 part[k].op_off + part[k].op_bytes > ow.ow_bytes;
		for (size_t p = 0; p < part[k].op_bytes / 4096; p++)
			wrong += map[part[k].op_off / 4096 + p]++;
	}
	T_EQ(wrong, 0);
	T_OK(full);
	for (unsigned k = 0; k < PARTS; k++)
		if (is_taken[k])
			kv_own_put(&ow, &part[k]);
	T_EQ(ow.ow_used, 0);
	T_OK(!ow.ow_first && kv_own_has(&ow, ow.ow_bytes) && !kv_own_has(&ow, ow.ow_bytes + 1));
	kv_own_fini(&ow);
}

/* A period after the last use, and no page that an image lies in. */
static void what_no_record_wanted_goes_back(void)
{
	struct kv_own_part a, b, c, idle;
	struct kv_own ow = { 0 };

	T_EQ(kv_own_init(&ow, 12 * MIB), 0);
	T_OK(kv_own_take(&ow, &a, 5 * MIB) && kv_own_take(&ow, &b, MIB / 2) &&
	     kv_own_take(&ow, &c, 5 * MIB));
	T_EQ(kv_own_kept(&ow), 12 * MIB - 5 * MIB - MIB / 2 - 5 * MIB);
	kv_own_put(&ow, &a);
	kv_own_put(&ow, &c);
	T_EQ(kv_own_kept(&ow), 12 * MIB - MIB / 2);
	T_OK(!kv_own_idle(&ow, &idle));
	kv_own_age(&ow);
	/* used again in the period: it stays */
	T_EQ(kv_own_take(&ow, &a, MIB), ow.ow_base);
	kv_own_put(&ow, &a);
	T_EQ(kv_own_idle(&ow, &idle), ow.ow_base + 2 * MIB);
	T_EQ(idle.op_bytes, 2 * MIB);
	T_OK(!kv_own_has(&ow, 7 * MIB));
	kv_own_put(&ow, &idle);
	T_EQ(kv_own_idle(&ow, &idle), ow.ow_base + 6 * MIB);
	T_EQ(idle.op_bytes, 6 * MIB);
	T_EQ(kv_own_take(&ow, &c, 5 * MIB), ow.ow_base);
	kv_own_put(&ow, &idle);
	T_OK(!kv_own_idle(&ow, &idle));
	kv_own_put(&ow, &c);
	kv_own_put(&ow, &b);
	T_EQ(kv_own_kept(&ow), 6 * MIB);
	kv_own_age(&ow);
	T_EQ(kv_own_idle(&ow, &idle), ow.ow_base);
	T_EQ(idle.op_bytes, 6 * MIB);
	kv_own_put(&ow, &idle);
	T_EQ(kv_own_kept(&ow), 0);
	kv_own_fini(&ow);
}

int main(void)
{
	T_RUN(images_of_any_size_lie_close_in_huge_pages);
	T_RUN(parts_never_overlap);
	T_RUN(what_no_record_wanted_goes_back);
	return t_done();
}
