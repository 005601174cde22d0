/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Filters of runs that do not fit their budget: they are asked through the page pool, answer the
 * same, never say "not there" without having been read, and come back when there is room.
 */
#include <pthread.h>

#include "kv_rig.h"
#include "base/hash.h"
#include "run/filter.h"
#include "run/run_near.h"
#include "run/run_omf.h"

#define BIG	150000u
#define SMALL	3000u
#define SECOND	1000000000ull

static struct rig r;

/* Key @i of a run of even keys. */
static uint16_t key_of(unsigned i, uint8_t *key)
{
	return (uint16_t)sprintf((char *)key, "%010u", i);
}

static struct kv_run *run_of(unsigned n)
{
	struct kv_run_build *rb;
	struct kv_run *run;
	uint8_t key[16];
	struct kv_ent e = { .e_kind = KV_ENT_TOMB, .e_key = key };

	T_EQ(kv_run_build_open(&r.db, 7, n, false, &rb), 0);
	for (unsigned i = 0; i < n; i++) {
		e.e_klen = key_of(2 * i, key);
		e.e_seq = 1 + i;
		T_EQ(kv_run_build_add(rb, &e), 0);
	}
	T_EQ(kv_run_build_finish(rb, &run), 0);
	return run;
}

static int look(struct kv_run *run, unsigned i)
{
	struct kv_thread *t;
	uint8_t key[16];
	uint16_t klen = key_of(i, key);
	struct kv_ent e;
	int rc;

	kv_pages_room(&r.db, KV_GET_PAGES);
	t = kv_enter();
	rc = kv_run_lookup(&r.db, run, key, klen, kv_hash(key, klen), &e);
	kv_exit(t);
	return rc;
}

/* All that are there are found, and none else; each @step-th. */
static unsigned wrong(struct kv_run *run, unsigned n, unsigned step)
{
	unsigned bad = 0;

	for (unsigned i = 0; i < n; i += step) {
		bad += look(run, 2 * i) != 0;
		bad += look(run, 2 * i + 1) != -ENOENT;
	}
	return bad;
}

static unsigned in_memory(const struct kv_run *run)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < run->rn_n; i++) {
		bool is = atomic_load(&run->rn_kb[i].kb_filter) != NULL;

		T_EQ(is, i < run->rn_near[KV_PIECE_FILTER].np_n);
		n += is;
	}
	return n;
}

static uint64_t filter_bytes(const struct kv_run *run)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < run->rn_n; i++)
		n += run->rn_kb[i].kb_fblocks * 64ull;
	return n;
}

static uint64_t mem(void)
{
	return atomic_load(&r.db.d_count.index_mem);
}

static uint64_t key_reads(void)
{
	return atomic_load(&r.db.d_count.read_bytes[KV_READ_KEY][MPOOL_CAPACITY]);
}

static void open_rig(uint64_t budget)
{
	rig_open(&r, 16 << 20, 64 << 20);
	r.db.d_budget.b_kblock_bytes = 256 << 10;
	atomic_store(&r.db.d_budget.b_near_bytes, budget);
}

static void purge(const struct kv_run *run)
{
	for (uint32_t i = 0; i < run->rn_n; i++)
		kv_page_purge(&r.db, run->rn_kb[i].kb_id, 4096);
	kv_retire_barrier();
}

static void without_room_filters_are_pages(void)
{
	struct kv_run_desc d;
	struct kv_run *run;
	uint64_t with, reads;
	unsigned pages = 0;

	open_rig(64 << 20);
	run = run_of(BIG);
	T_OK(run->rn_n > 3);
	T_EQ(in_memory(run), run->rn_n);
	with = mem();
	T_EQ(kv_run_index_bytes(run), with);
	T_OK(with > BIG * 5ull / 4);
	rig_commit(&r, run);
	d = desc_copy(run);
	T_EQ(wrong(run, BIG, 7), 0);
	kv_run_put(&r.db, run);
	T_EQ(mem(), 0);

	/* of a run that is opened, and of one that is built */
	for (int is_built = 0; is_built < 2; is_built++) {
		atomic_store(&r.db.d_budget.b_near_bytes, 0);
		if (is_built)
			run = run_of(BIG);
		else
			T_EQ(kv_run_open(&r.db, &d, &run), 0);
		T_EQ(in_memory(run), 0);
		T_OK(mem() < BIG / 3 && mem() + filter_bytes(run) < with + BIG / 50);
		T_EQ(kv_run_index_bytes(run), mem());
		T_EQ(wrong(run, BIG, 7), 0);
		/* what a filter says costs one read, and then none */
		purge(run);
		for (unsigned i = 0; i < 2000; i++) {
			reads = key_reads();
			T_EQ(look(run, 2 * i + 1), -ENOENT);
			reads = key_reads() - reads;
			T_OK(reads <= 8192);
			pages += reads > 0;
		}
		T_OK(pages < 200);
		T_EQ(kv_near_step(&r.db), 0);
		kv_run_put(&r.db, run);
		T_EQ(mem(), 0);
	}
	free(d.rd_kb);
	rig_close(&r);
}

static void the_largest_leave_first_and_come_back(void)
{
	struct kv_run *big, *small[4];
	uint64_t most;

	open_rig(64 << 20);
	big = run_of(BIG);
	most = mem() + 4096;
	atomic_store(&r.db.d_budget.b_near_bytes, most);
	for (int i = 0; i < 4; i++) {
		small[i] = run_of(SMALL);
		T_OK(mem() <= most);
		T_EQ(in_memory(small[i]), small[i]->rn_n);
	}
	T_OK(in_memory(big) > 0 && in_memory(big) < big->rn_n);
	T_EQ(wrong(big, BIG, 11), 0);
	T_EQ(kv_near_step(&r.db), 0);

	/* with nearly nothing the small ones go too */
	atomic_store(&r.db.d_budget.b_near_bytes, 1);
	kv_near_trim(&r.db);
	T_EQ(in_memory(big), 0);
	for (int i = 0; i < 4; i++)
		T_EQ(in_memory(small[i]), 0);
	T_EQ(wrong(small[0], SMALL, 1), 0);
	T_EQ(kv_near_step(&r.db), 0);

	/* room for the small ones: they come first */
	atomic_store(&r.db.d_budget.b_near_bytes, mem() + 4 * SMALL * 2);
	while (kv_near_step(&r.db))
		;
	T_EQ(in_memory(big), 0);
	for (int i = 0; i < 4; i++)
		T_EQ(in_memory(small[i]), small[i]->rn_n);
	atomic_store(&r.db.d_budget.b_near_bytes, 64 << 20);
	while (kv_near_step(&r.db))
		;
	T_EQ(in_memory(big), big->rn_n);
	T_EQ(wrong(big, BIG, 11), 0);
	kv_run_put(&r.db, big);
	for (int i = 0; i < 4; i++)
		kv_run_put(&r.db, small[i]);
	T_EQ(mem(), 0);
	rig_close(&r);
}

/* FLT-1 */
static void a_damaged_filter_says_maybe(void)
{
	struct kv_run *run;
	uint64_t from, bytes;
	unsigned gone = 0;

	open_rig(0);
	run = run_of(SMALL);
	T_EQ(run->rn_n, 1);
	from = run->rn_kb[0].kb_filter_off;
	bytes = filter_bytes(run);
	rig_commit(&r, run);
	purge(run);
	/* its fences, which lie on the same page, are in memory */
	atomic_store(&r.db.d_budget.b_near_bytes, mem() + bytes / 2);
	T_EQ(kv_near_step(&r.db), 1);
	T_EQ(in_memory(run), 0);
	/* each page of it says that nothing is there */
	for (uint64_t off = from; off < from + bytes; off += 64)
		obj_flip(run->rn_kb[0].kb_obj, off, 0xff);
	T_EQ(wrong(run, SMALL, 1), 0);
	T_OK(atomic_load(&r.db.d_count.csum_errors) > 0);
	/* it is not brought back to memory either */
	atomic_store(&r.db.d_budget.b_near_bytes, 64 << 20);
	T_EQ(kv_near_step(&r.db), 0);
	T_EQ(in_memory(run), 0);

	/* it is read again later */
	for (uint64_t off = from; off < from + bytes; off += 64)
		obj_flip(run->rn_kb[0].kb_obj, off, 0xff);
	for (unsigned i = 0; i < SMALL; i++)
		gone += rig_has_page(&r, run->rn_kb[0].kb_id, from / 4096);
	T_EQ(gone, 0);
	T_EQ(wrong(run, SMALL, 1), 0);
	T_OK(!rig_has_page(&r, run->rn_kb[0].kb_id, from / 4096));
	atomic_fetch_add(&rig_ns, 2 * SECOND);
	T_EQ(wrong(run, SMALL, 1), 0);
	T_OK(rig_has_page(&r, run->rn_kb[0].kb_id, from / 4096));
	kv_run_put(&r.db, run);
	rig_close(&r);
}

struct asker {
	struct kv_run *run;
	uint64_t rnd;
	unsigned bad;
};

static _Atomic(bool) stop;

static void *ask(void *arg)
{
	struct asker *a = arg;

	while (!atomic_load(&stop)) {
		unsigned i = (unsigned)(t_rand(&a->rnd) % BIG);

		a->bad += look(a->run, 2 * i) != 0;
		a->bad += look(a->run, 2 * i + 1) != -ENOENT;
		if (t_rand(&a->rnd) % 64 == 0)
			kv_page_purge(&r.db, a->run->rn_kb[0].kb_id, 4096);
	}
	return NULL;
}

static void answers_are_right_while_filters_come_and_go(void)
{
	enum { N = 3 };
	unsigned rounds = getenv("TEST_SHORT") ? 30 : 120, came = 0;
	struct asker a[N];
	struct kv_run *big, *small;
	pthread_t th[N];
	uint64_t full;

	open_rig(64 << 20);
	big = run_of(BIG);
	full = mem();
	atomic_store(&stop, false);
	for (int i = 0; i < N; i++) {
		a[i] = (struct asker){ .run = big, .rnd = t_rand(&r.rnd) };
		T_EQ(pthread_create(&th[i], NULL, ask, &a[i]), 0);
	}
	for (unsigned i = 0; i < rounds; i++) {
		atomic_store(&r.db.d_budget.b_near_bytes,
			     i % 3 ? t_rand(&r.rnd) % full : 2 * full);
		small = run_of(SMALL);
		while (kv_near_step(&r.db))
			came++;
		kv_run_put(&r.db, small);
		kv_reclaim();
	}
	atomic_store(&stop, true);
	for (int i = 0; i < N; i++) {
		pthread_join(th[i], NULL);
		T_EQ(a[i].bad, 0);
	}
	T_OK(came > rounds / 4);
	kv_run_put(&r.db, big);
	T_EQ(mem(), 0);
	rig_close(&r);
}

/* Runs end while filters are read back for them. */
static void *bring(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop))
		kv_near_step(&r.db);
	return NULL;
}

static void runs_end_while_their_filters_come(void)
{
	unsigned rounds = getenv("TEST_SHORT") ? 40 : 150;
	struct kv_run *run[4] = { NULL };
	pthread_t th;

	open_rig(64 << 20);
	atomic_store(&stop, false);
	T_EQ(pthread_create(&th, NULL, bring, NULL), 0);
	for (unsigned i = 0; i < rounds; i++) {
		struct kv_run **at = &run[i % 4];

		if (*at) {
			T_EQ(wrong(*at, SMALL, 500), 0);
			kv_run_put(&r.db, *at);
		}
		atomic_store(&r.db.d_budget.b_near_bytes, i % 2 ? 1 : 64 << 20);
		*at = run_of(SMALL);
	}
	atomic_store(&stop, true);
	pthread_join(th, NULL);
	for (int i = 0; i < 4; i++)
		kv_run_put(&r.db, run[i]);
	T_EQ(mem(), 0);
	rig_close(&r);
}

int main(void)
{
	printf("# SEED=%llu\n", (unsigned long long)t_seed());
	T_RUN(without_room_filters_are_pages);
	T_RUN(the_largest_leave_first_and_come_back);
	T_RUN(a_damaged_filter_says_maybe);
	T_RUN(answers_are_right_while_filters_come_and_go);
	T_RUN(runs_end_while_their_filters_come);
	return t_done();
}
