/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Fences that are not in memory: a search over their pages finds what one in memory finds, reads
 * few pages, and what stays in memory of a run is small.
 */
#include "kv_rig.h"
#include "run/run_fence.h"
#include "run/run_near.h"

#define MANY	400000u

static struct rig r;

static void open_rig(void)
{
	rig_open(&r, 16 << 20, 256 << 20);
	rig_segs(&r);
}

static void budget(uint64_t bytes)
{
	atomic_store(&r.db.d_budget.b_near_bytes, bytes);
	kv_near_trim(&r.db);
	while (kv_near_step(&r.db))
		;
}

static uint64_t mem(void)
{
	return atomic_load(&r.db.d_count.index_mem);
}

static uint64_t key_reads(void)
{
	return atomic_load(&r.db.d_count.read_bytes[KV_READ_KEY][MPOOL_CAPACITY]) / KV_PAGE;
}

static void purge(const struct kv_run *run)
{
	for (uint32_t i = 0; i < run->rn_n; i++)
		kv_page_purge(&r.db, run->rn_kb[i].kb_id, 16384);
	kv_retire_barrier();
}

/* Where a key is, of all key blocks. */
struct place {
	uint32_t block, page, crc;
};

static int place_of(struct kv_run *run, const uint8_t *key, size_t klen, struct place *p)
{
	int at = kv_run_route(run, key, klen), rc = 0;
	int64_t no;
	struct kv_thread *t;

	p->block = at < 0 ? 0 : (uint32_t)at;
	kv_pages_room(&r.db, KV_GET_PAGES);
	t = kv_enter();
	no = kv_kblock_page(&r.db, &run->rn_kb[p->block], key, klen);
	T_OK(no >= 0);
	p->page = (uint32_t)no;
	rc = kv_fences_crcs(&r.db, &run->rn_kb[p->block], p->page, 1, &p->crc);
	kv_exit(t);
	return rc;
}

/* Keys of a model and of its neighbourhood, of all shapes. */
static uint16_t probe_key(const struct rec *m, unsigned i, uint8_t *key)
{
	uint16_t klen = m[i / 4].klen;

	memcpy(key, m[i / 4].key, klen);
	if (i % 4 == 1)
		key[klen - 1] ^= 1;
	if (i % 4 == 2 && klen > 1)
		klen--;
	if (i % 4 == 3)
		klen = rig_key(&r, key);
	return klen;
}

static void far_is_found_what_near_is_found(void)
{
	uint8_t key[KVDB_KEY_MAX + 32];
	struct place *near;
	struct kv_run *run;
	unsigned got, n;
	struct rec *m;

	open_rig();
	r.db.d_budget.b_kblock_bytes = 4 << 20;
	m = model_make(&r, 30000, &got);
	n = 4 * got;
	near = malloc(n * sizeof(*near));
	for (int round = 0; round < 2; round++) {
		uint64_t rnd = r.rnd, seed = rnd;

		run = model_run(&r, m, got);
		T_OK(run->rn_kb[0].kb_ntop > 3);
		for (unsigned i = 0; i < n; i++) {
			uint16_t klen = probe_key(m, i, key);

			T_OK(atomic_load(&run->rn_kb[0].kb_fences) != NULL);
			T_EQ(place_of(run, key, klen, &near[i]), 0);
		}
		r.rnd = seed;
		budget(0);
		if (round)
			purge(run);
		for (unsigned i = 0; i < n; i++) {
			uint16_t klen = probe_key(m, i, key);
			struct place p;

			T_EQ(place_of(run, key, klen, &p), 0);
			T_OK(!memcmp(&p, &near[i], sizeof(p)));
			T_OK(kv_fences_about(&run->rn_kb[p.block], key, klen) <
			     run->rn_kb[p.block].kb_npages);
		}
		for (uint32_t i = 0; i < run->rn_n; i++)
			T_OK(!atomic_load(&run->rn_kb[i].kb_fences));
		/* as they were, read back */
		budget(64 << 20);
		r.rnd = seed;
		for (unsigned i = 0; i < n; i++) {
			uint16_t klen = probe_key(m, i, key);
			struct place p;

			T_OK(atomic_load(&run->rn_kb[0].kb_fences) != NULL);
			T_EQ(place_of(run, key, klen, &p), 0);
			T_OK(!memcmp(&p, &near[i], sizeof(p)));
		}
		kv_run_put(&r.db, run);
	}
	free(near);
	model_free(m, got);
	rig_close(&r);
}

/* What ascends does not fall, whatever lies between two separators of the top level. */
static void about_where_a_key_is_ascends_with_it(void)
{
	struct kv_run *run;
	struct rec *m;
	unsigned got, off = 0;

	open_rig();
	r.db.d_budget.b_kblock_bytes = 4 << 20;
	m = model_make(&r, 30000, &got);
	run = model_run(&r, m, got);
	for (unsigned i = 0, last = 0, block = 0; i < got; i++) {
		unsigned at = (unsigned)kv_run_route(run, m[i].key, m[i].klen), no;
		struct place p;

		no = kv_fences_about(&run->rn_kb[at], m[i].key, m[i].klen);
		T_OK(at > block || no >= last);
		block = at;
		last = no;
		T_EQ(place_of(run, m[i].key, m[i].klen, &p), 0);
		off += no > p.page ? no - p.page : p.page - no;
	}
	printf("# about is %.1f pages off\n", (double)off / got);
	kv_run_put(&r.db, run);
	model_free(m, got);
	rig_close(&r);
}

static struct kv_run *run_of(unsigned n)
{
	struct kv_run_build *rb;
	struct kv_run *run;
	uint8_t key[16];
	struct kv_ent e = { .e_kind = KV_ENT_INLINE, .e_key = key, .e_klen = 8, .e_val = key,
			    .e_vlen = 16 };

	T_EQ(kv_run_build_open(&r.db, 7, n, false, &rb), 0);
	for (unsigned i = 0; i < n; i++) {
		uint64_t no = __builtin_bswap64(2ull * i);

		memcpy(key, &no, 8);
		memset(key + 8, 7, 8);
		e.e_vcrc = mpool_crc32c(0, key, 16);
		e.e_seq = 1 + i;
		T_EQ(kv_run_build_add(rb, &e), 0);
	}
	T_EQ(kv_run_build_finish(rb, &run), 0);
	return run;
}

static int look(struct kv_run *run, uint64_t i)
{
	return rig_look(&r, run, i);
}

/* The top level, and what describes a key block, is a small part; a lookup reads few pages. */
static void what_stays_is_small(void)
{
	uint64_t reads, most = 0, all = 0, near, far;
	struct kv_run *run;

	open_rig();
	r.db.d_budget.b_kblock_bytes = 2 << 20;
	run = run_of(MANY);
	near = mem();
	budget(0);
	far = mem();
	printf("# %u keys in %u blocks: %.4f bytes a key with filters and fences, %.4f without\n",
	       MANY, run->rn_n, (double)near / MANY, (double)far / MANY);
	T_OK(far < MANY / 50 && far < near / 64);
	T_EQ(kv_run_index_bytes(run), far);
	/* cold: filter, ends, separators, CRC, key page; one more where separators lie on two */
	for (unsigned i = 0; i < 500; i++) {
		uint64_t no = t_rand(&r.rnd) % MANY;

		purge(run);
		reads = key_reads();
		T_EQ(look(run, 2 * no), 0);
		reads = key_reads() - reads;
		most = reads > most ? reads : most;
		all += reads;
	}
	printf("# a cold lookup reads %.2f pages, %llu at most\n", (double)all / 500,
	       (unsigned long long)most);
	T_OK(most <= KV_GET_PAGES && all <= 500 * 5);
	/* and then those that all keys need are there */
	reads = key_reads();
	for (unsigned i = 0; i < 500; i++)
		T_EQ(look(run, 2 * (t_rand(&r.rnd) % MANY)), 0);
	reads = key_reads() - reads;
	printf("# 500 lookups after it read %llu pages\n", (unsigned long long)reads);
	kv_run_put(&r.db, run);
	T_EQ(mem(), 0);
	rig_close(&r);
}

/* Both ways, through the pool and past it. */
static void walks_go_over_blocks_without_fences(void)
{
	struct kv_run *run;
	struct kv_iter *it;
	struct kv_ent e;
	unsigned got;
	struct rec *m;

	open_rig();
	r.db.d_budget.b_kblock_bytes = 256 << 10;
	m = model_make(&r, 9000, &got);
	budget(0);
	run = model_run(&r, m, got);
	T_OK(run->rn_n > 1);
	for (int way = 0; way < 3; way++) {
		if (way == 2)
			T_EQ(kv_run_iter_bulk(&r.db, run, &it), 0);
		else
			T_EQ(kv_run_iter(&r.db, run, way == 1, &it), 0);
		purge(run);
		for (unsigned i = 0; i < got; i++) {
			const struct rec *w = &m[way == 1 ? got - 1 - i : i];

			T_EQ(iter_next(it, &e), 0);
			T_OK(e.e_klen == w->klen && !memcmp(e.e_key, w->key, w->klen));
		}
		T_EQ(iter_next(it, &e), -ENOENT);
		for (unsigned i = 0; i < 300; i++) {
			unsigned at = (unsigned)(t_rand(&r.rnd) % got);

			if (i % 10 == 0)
				purge(run);
			T_EQ(it->it_ops->seek(it, m[at].key, m[at].klen), 0);
			T_EQ(iter_next(it, &e), 0);
			T_OK(e.e_klen == m[at].klen && !memcmp(e.e_key, m[at].key, e.e_klen));
		}
		it->it_ops->close(it);
	}
	kv_run_put(&r.db, run);
	model_free(m, got);
	rig_close(&r);
}

/* A page of fences or CRCs that is damaged hides its keys, and nothing is wrong. */
static void a_damaged_page_of_fences_is_no_wrong_answer(void)
{
	const struct kv_kblock *kb;
	struct kv_run *run;
	uint32_t len;
	unsigned bad;

	open_rig();
	budget(0);
	run = run_of(MANY);
	rig_commit(&r, run);
	kb = &run->rn_kb[0];
	for (uint64_t off = kb->kb_fence_off; off < kb->kb_pages_end * 4096ull; off += 4096) {
		obj_flip(kb->kb_obj, off + 11, 1);
		purge(run);
		bad = 0;
		for (unsigned i = 0; i < MANY; i += 97) {
			int rc = look(run, 2 * i);

			T_OK(!rc || rc == -EUCLEAN);
			bad += rc != 0;
		}
		/* ends, separators and CRCs; then the filter alone, which says maybe */
		if (off < kb->kb_crc_off)
			T_OK(bad > 0);
		if (off >= kb->kb_filter_off)
			T_EQ(bad, 0);
		obj_flip(kb->kb_obj, off + 11, 1);
	}
	/* nor is one that says other than it did when it was checked */
	purge(run);
	len = kb->kb_sep_len;
	run->rn_kb[0].kb_sep_len = len / 2;
	T_EQ(look(run, 2 * (kb->kb_npages * 3 / 4) * (MANY / run->rn_pages)), -EUCLEAN);
	run->rn_kb[0].kb_sep_len = len;
	purge(run);
	atomic_fetch_add(&rig_ns, 2000000000ull);
	for (unsigned i = 0; i < MANY; i += 97)
		T_EQ(look(run, 2 * i), 0);
	kv_run_put(&r.db, run);
	rig_close(&r);
}

int main(void)
{
	printf("# SEED=%llu\n", (unsigned long long)t_seed());
	T_RUN(far_is_found_what_near_is_found);
	T_RUN(about_where_a_key_is_ascends_with_it);
	T_RUN(what_stays_is_small);
	T_RUN(walks_go_over_blocks_without_fences);
	T_RUN(a_damaged_page_of_fences_is_no_wrong_answer);
	return t_done();
}
