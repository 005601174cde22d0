/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What an open leaves for later of a run: it reads the same few pages of a block of few keys and
 * of many; the first use of a block reads the rest, once; what is damaged there is damage of the
 * block.
 */
#include <pthread.h>

#include "kv_rig.h"
#include "cache/load.h"
#include "run/run_fence.h"
#include "run/run_load.h"
#include "run/run_near.h"

#define FEW	20000u
#define MANY	(10 * FEW)

static struct rig r;

static void open_rig(uint32_t kblock)
{
	rig_open(&r, 16 << 20, 256 << 20);
	r.db.d_budget.b_kblock_bytes = kblock;
}

static uint64_t mem(void)
{
	return atomic_load(&r.db.d_count.index_mem);
}

static uint64_t key_reads(void)
{
	return atomic_load(&r.db.d_count.read_bytes[KV_READ_KEY][MPOOL_CAPACITY]) / KV_PAGE;
}

static uint64_t bad_reads(void)
{
	return atomic_load(&r.db.d_count.csum_errors);
}

/* A run of even keys that was written, and its pages are in no cache. */
static struct kv_run_desc written(unsigned n)
{
	struct kv_run_build *rb;
	struct kv_run_desc d;
	struct kv_run *run;
	uint8_t key[8];
	struct kv_ent e = { .e_kind = KV_ENT_TOMB, .e_key = key, .e_klen = 8 };

	T_EQ(kv_run_build_open(&r.db, 7, n, false, &rb), 0);
	for (unsigned i = 0; i < n; i++) {
		uint64_t no = __builtin_bswap64(2ull * i);

		memcpy(key, &no, 8);
		e.e_seq = 1 + i;
		T_EQ(kv_run_build_add(rb, &e), 0);
	}
	T_EQ(kv_run_build_finish(rb, &run), 0);
	rig_commit(&r, run);
	d = desc_copy(run);
	kv_run_put(&r.db, run);
	for (uint32_t i = 0; i < d.rd_n; i++)
		kv_page_purge(&r.db, d.rd_kb[i].kd_id, 16384);
	kv_retire_barrier();
	return d;
}

static struct kv_run *opened(const struct kv_run_desc *d)
{
	struct kv_run *run;

	T_EQ(kv_run_open(&r.db, d, &run), 0);
	return run;
}

static int look(struct kv_run *run, uint64_t i)
{
	return rig_look(&r, run, i);
}

static unsigned loaded(const struct kv_run *run)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < run->rn_n; i++)
		n += kv_kblock_is_loaded(&run->rn_kb[i]);
	return n;
}

/* IDX-1 */
static void an_open_reads_as_much_of_few_keys_as_of_many(void)
{
	uint64_t reads[2], index[2];

	open_rig(8 << 20);
	for (int i = 0; i < 2; i++) {
		struct kv_run_desc d = written(i ? MANY : FEW);
		uint64_t before = key_reads();
		struct kv_run *run = opened(&d);
		const struct kv_kblock *kb = &run->rn_kb[0];

		T_EQ(run->rn_n, 1);
		reads[i] = key_reads() - before;
		index[i] = kb->kb_pages_end - kb->kb_npages;
		T_EQ(loaded(run), 0);
		T_EQ(kv_run_index_bytes(run), mem());
		T_OK(mem() < 1024);
		/* the first key brings the rest in one piece, and its page; the second its page */
		before = key_reads();
		T_EQ(look(run, 0), 0);
		T_EQ(key_reads() - before, index[i] + 1);
		before = key_reads();
		T_EQ(look(run, 2ull * (FEW - 1)), 0);
		T_EQ(key_reads() - before, 1);
		T_EQ(look(run, 1), -ENOENT);
		T_EQ(key_reads() - before, 1);
		T_EQ(kv_run_index_bytes(run), mem());
		kv_run_put(&r.db, run);
		T_EQ(mem(), 0);
		free(d.rd_kb);
	}
	printf("# an open reads %llu pages of %llu, and %llu of %llu\n",
	       (unsigned long long)reads[0], (unsigned long long)index[0],
	       (unsigned long long)reads[1], (unsigned long long)index[1]);
	T_EQ(reads[0], reads[1]);
	T_OK(index[1] > 8 * index[0]);
	rig_close(&r);
}

/* What comes late keeps within the budget, wherever in the run it is, and comes back. */
static void what_comes_late_keeps_within_the_budget(void)
{
	struct kv_run_desc d;
	struct kv_run *run;
	uint64_t full, before;

	open_rig(256 << 10);
	d = written(MANY);
	run = opened(&d);
	T_OK(run->rn_n > 8);
	for (uint32_t i = run->rn_n; i-- > 0;) {
		T_EQ(look(run, kv_head8(run->rn_kb[i].kb_min, 8)), 0);
		T_EQ(loaded(run), run->rn_n - i);
		T_OK(atomic_load(&run->rn_kb[i].kb_filter) != NULL);
	}
	full = mem();
	T_EQ(kv_run_index_bytes(run), full);
	kv_run_put(&r.db, run);
	T_EQ(mem(), 0);
	atomic_store(&r.db.d_budget.b_near_bytes, full / 2);
	run = opened(&d);
	for (uint32_t i = 0; i < run->rn_n; i++) {
		uint32_t at = (i * 5 + 3) % run->rn_n;

		T_EQ(look(run, kv_head8(run->rn_kb[at].kb_min, 8)), 0);
		T_OK(mem() <= full / 2);
		T_EQ(kv_run_index_bytes(run), mem());
	}
	T_EQ(kv_run_load(&r.db, run), 0);
	T_EQ(loaded(run), run->rn_n);
	for (unsigned i = 0; i < MANY; i += 31) {
		T_EQ(look(run, 2ull * i), 0);
		T_EQ(look(run, 2ull * i + 1), -ENOENT);
	}
	atomic_store(&r.db.d_budget.b_near_bytes, 2 * full);
	while (kv_near_step(&r.db))
		;
	T_EQ(mem(), full);
	for (uint32_t i = 0; i < run->rn_n; i++)
		T_OK(atomic_load(&run->rn_kb[i].kb_filter) &&
		     atomic_load(&run->rn_kb[i].kb_fences));
	kv_run_put(&r.db, run);
	/* what nothing needed is not brought by the grower */
	run = opened(&d);
	T_EQ(look(run, 0), 0);
	before = key_reads();
	T_EQ(kv_near_step(&r.db), 0);
	T_EQ(key_reads(), before);
	T_EQ(loaded(run), 1);
	kv_run_put(&r.db, run);
	T_EQ(mem(), 0);
	free(d.rd_kb);
	rig_close(&r);
}

/* Damage is that of one block, and goes with what caused it; a filter's costs no key. */
static void damage_that_is_found_late_is_its_blocks(void)
{
	struct kv_run_desc d;
	struct kv_run *run;
	struct kv_iter *it;
	struct kv_ent e;
	unsigned i;
	int rc;

	open_rig(256 << 10);
	d = written(MANY);
	for (int what = 0; what < 3; what++) {
		const struct kv_kblock *kb;
		uint64_t off, in, before = bad_reads();

		run = opened(&d);
		kb = &run->rn_kb[2];
		in = kv_head8(kb->kb_min, 8) + 2;
		off = what == 0 ? kb->kb_fence_off + 9 : what == 1 ? kb->kb_crc_off + 9 :
		      kb->kb_filter_off + 9;
		obj_flip(kb->kb_obj, off, 4);
		T_EQ(look(run, in), what < 2 ? -EUCLEAN : 0);
		T_EQ(kv_kblock_is_loaded(kb), what == 2);
		T_EQ(bad_reads(), before + 1);
		T_EQ(look(run, 0), 0);
		T_EQ(look(run, kv_head8(run->rn_kb[3].kb_min, 8)), 0);
		T_EQ(kv_run_load(&r.db, run), -EUCLEAN);
		T_EQ(kv_run_iter_bulk(&r.db, run, &it), 0);
		for (i = 0; !(rc = iter_next(it, &e)); i++)
			T_EQ(kv_head8(e.e_key, 8), 2ull * i);
		it->it_ops->close(it);
		T_EQ(rc, what < 2 ? -EUCLEAN : -ENOENT);
		T_EQ(2 * i, what < 2 ? in - 2 : 2 * MANY);
		for (i = 0; what == 2 && i < MANY; i += 31)
			T_EQ(look(run, 2ull * i), 0);
		/* a filter that was damaged does not come to memory */
		T_EQ(kv_near_step(&r.db), 0);
		obj_flip(kb->kb_obj, off, 4);
		T_EQ(look(run, in), 0);
		T_EQ(kv_run_load(&r.db, run), what < 2 ? 0 : -EUCLEAN);
		kv_run_put(&r.db, run);
		T_EQ(mem(), 0);
		for (uint32_t j = 0; j < d.rd_n; j++)
			kv_page_purge(&r.db, d.rd_kb[j].kd_id, 4096);
	}
	free(d.rd_kb);
	rig_close(&r);
}

/* An operation that runs again notes one read, and what comes of it is there for all. */
static void an_operation_that_runs_again_reads_once(void)
{
	struct kv_async as = { .as_db = &r.db };
	struct kv_run_desc d;
	struct kv_run *run;
	struct kv_aload *al;
	unsigned runs = 0, most = 0;
	uint64_t before, pages;
	int rc;

	open_rig(1 << 20);
	d = written(FEW);
	run = opened(&d);
	pages = run->rn_kb[0].kb_pages_end - run->rn_kb[0].kb_npages;
	before = key_reads();
	do {
		unsigned n = 0;

		kv_async_try(&as);
		/* two questions in one run */
		rc = look(run, 2);
		T_EQ(look(run, 4), rc);
		for (al = as.as_new; al; al = al->al_link)
			n++;
		most = n > most ? n : most;
		runs++;
	} while (kv_async_again(&as, rc, false));
	T_EQ(rc, 0);
	T_EQ(most, 1);
	T_EQ(runs, 3);
	T_EQ(key_reads() - before, pages + 1);
	T_EQ(look(run, 6), 0);
	T_EQ(key_reads() - before, pages + 1);
	kv_run_put(&r.db, run);
	/* damage is read twice, and is the operation's */
	run = opened(&d);
	obj_flip(run->rn_kb[0].kb_obj, run->rn_kb[0].kb_fence_off + 5, 1);
	before = key_reads();
	runs = 0;
	do {
		kv_async_try(&as);
		rc = look(run, 2);
		runs++;
	} while (kv_async_again(&as, rc, false));
	T_EQ(rc, -EUCLEAN);
	T_EQ(runs, 3);
	T_EQ(key_reads() - before, 2 * pages);
	kv_run_put(&r.db, run);
	T_EQ(mem(), 0);
	free(d.rd_kb);
	rig_close(&r);
}

/* ---- threads ----------------------------------------------------------------------------- */

struct looker {
	struct kv_run *run;
	uint64_t rnd;
	unsigned bad;
	bool is_async;
};

static pthread_barrier_t start;

static void *look_around(void *arg)
{
	struct looker *l = arg;
	struct kv_async as = { .as_db = &r.db };
	int rc;

	pthread_barrier_wait(&start);
	for (unsigned n = 0; n < 300; n++) {
		unsigned i = (unsigned)(t_rand(&l->rnd) % (2 * MANY));

		do {
			if (l->is_async)
				kv_async_try(&as);
			rc = look(l->run, i);
		} while (l->is_async && kv_async_again(&as, rc, false));
		l->bad += rc != (i % 2 ? -ENOENT : 0);
	}
	return NULL;
}

static void threads_load_a_block_once(void)
{
	enum { N = 4 };
	unsigned rounds = getenv("TEST_SHORT") ? 4 : 12;
	struct looker l[N];
	struct kv_run_desc d;
	struct kv_run *run;
	pthread_t th[N];

	open_rig(256 << 10);
	d = written(MANY);
	T_EQ(pthread_barrier_init(&start, NULL, N + 1), 0);
	for (unsigned round = 0; round < rounds; round++) {
		uint64_t before, most = 0;

		atomic_store(&r.db.d_budget.b_near_bytes, round % 4 == 3 ? 100000 : 64 << 20);
		run = opened(&d);
		for (uint32_t i = 0; i < run->rn_n; i++)
			most += run->rn_kb[i].kb_pages_end;
		before = key_reads();
		for (int i = 0; i < N; i++) {
			l[i] = (struct looker){ .run = run, .rnd = t_rand(&r.rnd),
						.is_async = round % 2 && i };
			T_EQ(pthread_create(&th[i], NULL, look_around, &l[i]), 0);
		}
		pthread_barrier_wait(&start);
		for (unsigned i = 0; i < 200; i++) {
			kv_near_trim(&r.db);
			kv_near_step(&r.db);
			kv_reclaim();
		}
		for (int i = 0; i < N; i++) {
			pthread_join(th[i], NULL);
			T_EQ(l[i].bad, 0);
		}
		T_EQ(kv_run_index_bytes(run), mem());
		/* each page once at most, of keys and behind them */
		if (round % 2 == 0)
			T_OK(key_reads() - before <= most);
		kv_run_put(&r.db, run);
		T_EQ(mem(), 0);
		for (uint32_t j = 0; j < d.rd_n; j++)
			kv_page_purge(&r.db, d.rd_kb[j].kd_id, 4096);
		kv_retire_barrier();
	}
	pthread_barrier_destroy(&start);
	free(d.rd_kb);
	rig_close(&r);
}

int main(void)
{
	T_RUN(an_open_reads_as_much_of_few_keys_as_of_many);
	T_RUN(what_comes_late_keeps_within_the_budget);
	T_RUN(damage_that_is_found_late_is_its_blocks);
	T_RUN(an_operation_that_runs_again_reads_once);
	T_RUN(threads_load_a_block_once);
	return t_done();
}
