/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The budget over 64 MiB to 1 TiB of cache, 1 to 256 cores, tiny to huge media (R10). */
#include "harness.h"

#include <errno.h>

#include "base/stream.h"
#include "db/db.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

static void check_one(const struct kvdb_opts *o, const struct kv_limits *l)
{
	struct kv_budget b;
	uint64_t streams;

	T_EQ(kv_budget(o, l, &b), 0);
	streams = (uint64_t)b.b_logs * KV_STREAMS;
	T_OK(b.b_mt_bytes + b.b_slab_bytes + b.b_index_bytes + b.b_point_bytes + b.b_scan_bytes <=
	     b.b_cache_bytes);
	T_OK(!(b.b_point_bytes & (b.b_point_bytes - 1)));
	T_OK(b.b_mt_bytes >= b.b_cache_bytes / 6 || b.b_mt_bytes == GIB);
	T_OK(b.b_slab_bytes >= b.b_cache_bytes / 2);
	T_OK(b.b_logs >= 1 && b.b_logs <= KV_LOGS_MAX);
	T_OK(b.b_threads >= 1);
	T_OK(b.b_seg_bytes >= 256 * KIB && b.b_seg_bytes <= 32 * MIB);
	T_EQ(b.b_seg_bytes & (b.b_seg_bytes - 1), 0);
	T_OK(b.b_seg_bytes <= b.b_cache_bytes / 64);
	T_EQ(b.b_slab_bytes % b.b_seg_bytes, 0);
	T_OK(b.b_seg_bytes * streams <= b.b_slab_bytes);
	T_OK(b.b_frame_max <= 512 * KIB && b.b_frame_max <= b.b_seg_bytes / 2);
	T_EQ(b.b_frame_max % KV_BLOCK, 0);
	T_OK(b.b_ahead >= 1 && b.b_ahead <= 16);
	if (b.b_ahead > 1)
		T_OK((uint64_t)b.b_ahead * b.b_logs * b.b_seg_bytes <= b.b_slab_bytes / 16 &&
		     (uint64_t)b.b_ahead * b.b_logs * b.b_seg_bytes <= l->l_class_bytes / 32);
	T_OK(b.b_log_bytes >= b.b_seg_bytes);
	if (l->l_class_bytes >= 8 * streams * b.b_seg_bytes)
		T_OK(b.b_log_bytes >= 4 * streams * b.b_seg_bytes);
	T_OK(b.b_log_bytes <= 512 * MIB || b.b_log_bytes == 4 * streams * b.b_seg_bytes);
	T_OK(b.b_kblock_bytes >= 256 * KIB && b.b_kblock_bytes <= 32 * MIB);
	T_OK(b.b_leaf_bytes >= MIB && b.b_reserve_bytes > 2 * b.b_leaf_bytes);
}

static void whole_range(void)
{
	static const uint32_t cores[] = { 1, 2, 4, 16, 64, 256 };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_limits l = { .l_ram_bytes = 1024 * GIB };
	uint64_t cache, media;
	unsigned i;

	for (cache = 64 * MIB; cache <= 1024 * GIB; cache *= 2)
		for (media = 64 * MIB; media <= 16384 * GIB; media *= 4)
			for (i = 0; i < 6; i++) {
				o.cache_bytes = cache;
				l.l_cores = cores[i];
				l.l_class_bytes = l.l_capacity_bytes = media;
				check_one(&o, &l);
			}
}

static void default_cache(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_limits l = { .l_ram_bytes = 8 * GIB, .l_cores = 2, .l_class_bytes = 10 * GIB,
			       .l_capacity_bytes = 10 * GIB };
	struct kv_budget b;

	T_EQ(kv_budget(&o, &l, &b), 0);
	T_EQ(b.b_cache_bytes, 2 * GIB);
	T_EQ(b.b_logs, 2);
	l.l_ram_bytes = 100 * GIB;
	T_EQ(kv_budget(&o, &l, &b), 0);
	T_EQ(b.b_cache_bytes, 4 * GIB);
	l.l_ram_bytes = 100 * MIB;
	T_EQ(kv_budget(&o, &l, &b), 0);
	T_EQ(b.b_cache_bytes, 64 * MIB);
}

/* R21: as many logs as asked for, also on two cores, also in 64 MiB. */
static void logs_are_real(void)
{
	static const uint32_t logs[] = { 1, 4, 16, 64 };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_limits l = { .l_ram_bytes = 8 * GIB, .l_cores = 2, .l_class_bytes = GIB,
			       .l_capacity_bytes = GIB };
	struct kv_budget b;
	unsigned i;

	o.cache_bytes = 64 * MIB;
	for (i = 0; i < 4; i++) {
		o.logs = logs[i];
		T_EQ(kv_budget(&o, &l, &b), 0);
		T_EQ(b.b_logs, logs[i]);
		check_one(&o, &l);
	}
}

/* What opened before cursors read ahead opens still. */
static void logs_come_before_reading_ahead(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_limits l = { .l_ram_bytes = 8 * GIB, .l_cores = 2, .l_class_bytes = GIB,
			       .l_capacity_bytes = GIB };
	struct kv_budget b;

	o.cache_bytes = 64 * MIB;
	o.logs = 22;
	o.segment_bytes = MIB;
	T_EQ(kv_budget(&o, &l, &b), 0);
	T_OK(b.b_slab_bytes >= (uint64_t)b.b_logs * KV_STREAMS * b.b_seg_bytes);
	T_OK(b.b_mt_bytes + b.b_slab_bytes + b.b_index_bytes + b.b_point_bytes + b.b_scan_bytes <=
	     b.b_cache_bytes);
}

/* Bytes of the container's logs, at create, for a pool of so much. */
static uint64_t mdc_of(uint64_t staging, uint64_t capacity, bool *is_on_capacity, uint32_t *seg)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_limits l = { .l_ram_bytes = 64 * GIB, .l_cores = 16,
			       .l_class_bytes = staging ? staging : capacity,
			       .l_capacity_bytes = capacity, .l_all_bytes = staging + capacity };
	struct kv_budget b;

	T_EQ(kv_budget(&o, &l, &b), 0);
	*is_on_capacity = b.b_mdc_capacity;
	*seg = b.b_seg_bytes;
	return b.b_mdc_bytes;
}

/*
 * The state and an open's record have 24 bytes for each segment of a full pool; a class gives a
 * 32nd for each log, and no pool gives more than it gave before its logs need it.
 */
static void a_container_describes_its_pool(void)
{
	static const uint64_t staging[] = { 0, 16 * MIB, 64 * MIB, GIB, 64 * GIB, 4096 * GIB };
	uint64_t capacity, n, segs, most, was;
	bool is_on_capacity;
	uint32_t seg;

	for (capacity = 64 * MIB; capacity <= 100 * 1024 * GIB; capacity *= 2)
		for (unsigned i = 0; i < 6; i++) {
			n = mdc_of(staging[i], capacity, &is_on_capacity, &seg);
			segs = (staging[i] + capacity) / seg;
			most = is_on_capacity || !staging[i] ? capacity : staging[i];
			was = most / 64 < MIB ? MIB : most / 64 > 64 * MIB ? 64 * MIB : most / 64;
			T_EQ(n % MIB, 0);
			T_OK(n <= GIB && (n <= most / 32 || n == was / MIB * MIB));
			T_OK(is_on_capacity || n >= was / MIB * MIB);
			if (capacity >= staging[i])
				T_OK(n >= (2 * 24 + 12) * segs || n == GIB);
		}
	/* what was enough stays as it was */
	T_EQ(mdc_of(64 * MIB, 256 * MIB, &is_on_capacity, &seg), MIB);
	T_OK(!is_on_capacity);
	T_EQ(mdc_of(GIB, 5 * GIB, &is_on_capacity, &seg), 16 * MIB);
	T_OK(!is_on_capacity);
	T_EQ(mdc_of(0, 100 * GIB, &is_on_capacity, &seg), 64 * MIB);
	/* sixteen million segments of 6.25 MiB are 100 TiB */
	T_EQ(mdc_of(0, 100 * 1024 * GIB, &is_on_capacity, &seg), GIB);
	T_EQ(mdc_of(GIB, 2 * 1024 * GIB, &is_on_capacity, &seg), 256 * MIB);
	T_OK(is_on_capacity);
}

static void bad_options(void)
{
	struct kv_limits l = { .l_ram_bytes = 8 * GIB, .l_cores = 2, .l_class_bytes = GIB,
			       .l_capacity_bytes = GIB };
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_budget b;

	o.cache_bytes = 64 * MIB - 1;
	T_EQ(kv_budget(&o, &l, &b), -EINVAL);
	T_OK(kvdb_error_detail()->text[0]);
	o.cache_bytes = l.l_ram_bytes + 1;
	T_EQ(kv_budget(&o, &l, &b), -EINVAL);
	T_OK(strstr(kvdb_error_detail()->text, "memory"));
	o.cache_bytes = 0;
	o.logs = KV_LOGS_MAX + 1;
	T_EQ(kv_budget(&o, &l, &b), -EINVAL);
	o.logs = 0;
	o.segment_bytes = 100000;
	T_EQ(kv_budget(&o, &l, &b), -EINVAL);
	o.segment_bytes = 64 * MIB;
	T_EQ(kv_budget(&o, &l, &b), -EINVAL);
	/* segments of all streams must fit into the slabs */
	o.segment_bytes = 32 * MIB;
	o.logs = 64;
	o.cache_bytes = 64 * MIB;
	T_EQ(kv_budget(&o, &l, &b), -EINVAL);
	o.segment_bytes = 64 * KIB;
	T_EQ(kv_budget(&o, &l, &b), 0);
	T_EQ(b.b_seg_bytes, 64 * KIB);
	T_EQ(b.b_frame_max, 32 * KIB);
}

int main(void)
{
	T_RUN(whole_range);
	T_RUN(default_cache);
	T_RUN(logs_are_real);
	T_RUN(logs_come_before_reading_ahead);
	T_RUN(a_container_describes_its_pool);
	T_RUN(bad_options);
	return t_done();
}
