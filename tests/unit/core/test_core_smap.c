/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The space map against a plain bitmap: never two owners, nothing lost,
 * discards and stock are free space. And the tree below it, and below the
 * table of objects, whose keys are an image's choice.
 */
#include "harness.h"
#include "smap.h"
#include "tree.h"

#define BLOCKS	4096u

static u8 owner[BLOCKS];

static void claim(const struct mp_extent *ex, int n)
{
	u32 k;
	int i;

	for (i = 0; i < n; i++) {
		for (k = 0; k < ex[i].ex_count; k++) {
			T_EQ(owner[ex[i].ex_start + k], 0);
			owner[ex[i].ex_start + k] = 1;
		}
	}
}

static void random_use_matches_a_bitmap(void)
{
	uint64_t seed = t_seed();
	struct { struct mp_extent ex[8]; int n; } held[64];
	struct mp_free *f;
	struct mp_smap s;
	u64 got, used = 0, want;
	int i, k, slot;

	memset(held, 0, sizeof(held));
	memset(owner, 0, sizeof(owner));
	T_EQ(mp_smap_init(&s, true), 0);
	s.s_stock_max = 200;
	T_EQ(mp_smap_add(&s, 0, BLOCKS), 0);
	for (i = 0; i < 50000; i++) {
		slot = t_rand(&seed) % 64;
		if (held[slot].n) {
			for (k = 0; k < held[slot].n; k++) {
				struct mp_extent *ex = &held[slot].ex[k];

				memset(owner + ex->ex_start, 0, ex->ex_count);
				mp_smap_put(&s, ex->ex_start, ex->ex_count, slot & 1, slot & 2);
				used -= ex->ex_count;
			}
			held[slot].n = 0;
		} else {
			want = 1 + t_rand(&seed) % 120;
			held[slot].n = mp_smap_alloc(&s, want, (slot & 1 ? MP_SMAP_LOG : 0) |
						     (slot & 4 ? MP_SMAP_PIECES : 0),
						     held[slot].ex, 8, &got);
			T_OK(held[slot].n >= 0);
			T_OK(!held[slot].n || got == want || (slot & 4));
			claim(held[slot].ex, held[slot].n);
			used += got;
		}
		if (i % 7 == 0) {
			f = mp_smap_discard_begin(&s, 16);
			if (f)
				mp_smap_discard_end(&s, f);
		}
		if (i % 11 == 0)
			mp_smap_found(&s, t_rand(&seed) % BLOCKS, t_rand(&seed) % 300);
		if (i % 13 == 0)
			mp_smap_trim(&s, t_rand(&seed) % 200);
		T_EQ(mp_smap_free_blocks(&s) + used, BLOCKS);
		T_OK(s.s_free[MP_SPACE_STOCK] <= 200 + 120);
	}
	mp_smap_fini(&s);
}

static void everything_joins_again(void)
{
	struct mp_extent ex[64], one;
	struct mp_smap s;
	u64 got;
	int i;

	T_EQ(mp_smap_init(&s, false), 0);
	T_EQ(mp_smap_add(&s, 16, 64), 0);
	for (i = 0; i < 64; i++)
		T_EQ(mp_smap_alloc(&s, 1, i & 1 ? MP_SMAP_LOG : 0, &ex[i], 1, &got), 1);
	T_EQ(mp_smap_alloc(&s, 1, MP_SMAP_PIECES, &one, 1, &got), 0);
	for (i = 0; i < 64; i++)
		mp_smap_put(&s, ex[(i * 37) % 64].ex_start, 1, false, false);
	T_EQ(mp_smap_alloc(&s, 64, 0, &one, 1, &got), 1);
	T_EQ(one.ex_start, 16);
	mp_smap_fini(&s);
}

static void taking_twice_is_refused(void)
{
	struct mp_smap s;

	T_EQ(mp_smap_init(&s, false), 0);
	T_EQ(mp_smap_add(&s, 10, 100), 0);
	T_EQ(mp_smap_take(&s, 20, 10), 0);
	T_EQ(mp_smap_take(&s, 29, 1), -EUCLEAN);
	T_EQ(mp_smap_take(&s, 15, 6), -EUCLEAN);
	T_EQ(mp_smap_take(&s, 5, 6), -EUCLEAN);
	T_EQ(mp_smap_take(&s, 105, 6), -EUCLEAN);
	T_EQ(mp_smap_take(&s, 105, ~0ull), -EUCLEAN);
	T_EQ(mp_smap_take(&s, 10, 10), 0);
	T_EQ(mp_smap_take(&s, 30, 80), 0);
	T_EQ(mp_smap_free_blocks(&s), 0);
	mp_smap_fini(&s);
}

static void queued_discards_are_free_space_and_those_in_flight_are_not(void)
{
	struct mp_extent ex;
	struct mp_free *f;
	struct mp_smap s;
	u64 got;

	T_EQ(mp_smap_init(&s, true), 0);
	T_EQ(mp_smap_add(&s, 0, 64), 0);
	T_EQ(mp_smap_alloc(&s, 64, 0, &ex, 1, &got), 1);
	mp_smap_put(&s, ex.ex_start, 64, false, false);
	T_EQ(s.s_free[MP_SPACE_PEND], 64);
	T_EQ(mp_smap_alloc(&s, 64, 0, &ex, 1, &got), 1);
	mp_smap_put(&s, ex.ex_start, 64, false, false);
	f = mp_smap_discard_begin(&s, 16);
	T_OK(f);
	T_EQ(mp_smap_alloc(&s, 64, 0, &ex, 1, &got), 0);
	mp_smap_discard_end(&s, f);
	T_EQ(mp_smap_free_blocks(&s), 64);
	s.s_stock_max = 8;
	T_EQ(mp_smap_alloc(&s, 8, MP_SMAP_LOG, &ex, 1, &got), 1);
	mp_smap_put(&s, ex.ex_start, 8, true, false);
	T_EQ(s.s_free[MP_SPACE_STOCK], 8);
	mp_smap_fini(&s);
}

static void of_what_is_found_only_clean_space_is_queued(void)
{
	struct mp_extent ex[2];
	struct mp_smap s;
	u64 got;

	T_EQ(mp_smap_init(&s, true), 0);
	s.s_stock_max = 64;
	T_EQ(mp_smap_add(&s, 0, 64), 0);
	T_EQ(mp_smap_add(&s, 80, 64), 0);
	T_EQ(mp_smap_alloc(&s, 8, MP_SMAP_LOG, &ex[0], 1, &got), 1);
	T_EQ(mp_smap_alloc(&s, 8, MP_SMAP_LOG, &ex[1], 1, &got), 1);
	T_EQ(ex[1].ex_start, 8);
	mp_smap_put(&s, 8, 8, true, false);
	/* 0-7 an object's, 8-15 stock, clean up to 63, no space of the map, clean from 80 on */
	mp_smap_found(&s, 4, 86);
	T_EQ(s.s_free[MP_SPACE_STOCK], 8);
	T_EQ(s.s_free[MP_SPACE_PEND], 48 + 10);
	T_EQ(s.s_free[MP_SPACE_CLEAN], 54);
	mp_smap_found(&s, 100, 10);
	T_EQ(s.s_free[MP_SPACE_PEND], 48 + 20);
	T_EQ(mp_smap_free_blocks(&s), 120);
	mp_smap_found(&s, 200, 10);
	mp_smap_found(&s, 0, 1000);
	T_EQ(s.s_free[MP_SPACE_CLEAN], 0);
	T_EQ(s.s_free[MP_SPACE_STOCK], 8);
	mp_smap_fini(&s);
}

/* Keys that an image chose: in order they would make a list of a plain tree. */
static void ids_in_order_make_no_deep_tree(void)
{
	static struct mp_node node[65536];
	const struct mp_node *n;
	struct mp_tree t;
	u32 i, depth, deepest = 0;

	mp_tree_init(&t);
	for (i = 0; i < 65536; i++)
		mp_tree_insert(&t, &node[i], i);
	for (i = 0; i < 65536; i++) {
		for (depth = 0, n = &node[i]; n; n = n->n_up)
			depth++;
		if (depth > deepest)
			deepest = depth;
	}
	/* 2 ln n at the mean; that much more than it has no chance worth a number */
	T_OK(deepest < 128);
}

static double cpu_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* a pool of millions of objects is closed by one processor, in the kernel without a pause */
static void what_was_built_goes_more_quickly(void)
{
	const u64 n = 400000;
	double begin, built;
	struct mp_smap s;
	u64 i;

	T_EQ(mp_smap_init(&s, false), 0);
	begin = cpu_s();
	for (i = 0; i < n; i++)
		T_EQ(mp_smap_add(&s, 2 * i, 1), 0);
	built = cpu_s();
	T_EQ(mp_smap_free_blocks(&s), n);
	mp_smap_fini(&s);
	T_OK(!s.s_tree.t_root);
	T_OK(cpu_s() - built < built - begin);
}

/* each node once, and none before those below it */
static void a_tree_is_taken_apart_from_its_leaves(void)
{
	static struct mp_node node[2000];
	uint64_t seed = t_seed();
	struct mp_tree t;
	struct mp_node *n;
	u32 i, k;

	for (k = 0; k < 50; k++) {
		u32 count = k ? (u32)(t_rand(&seed) % ARRAY_SIZE(node)) : 0;

		mp_tree_init(&t);
		for (i = 0; i < count; i++)
			mp_tree_insert(&t, &node[i], k % 2 ? i : t_rand(&seed) << 11 | i);
		for (i = 0; (n = mp_tree_take(&t)); i++) {
			T_OK(!n->n_left && !n->n_right && n->n_prio);
			/* as if it were freed */
			memset(n, 0, sizeof(*n));
		}
		T_EQ(i, count);
		T_OK(!t.t_root);
	}
}

int main(void)
{
	T_RUN(random_use_matches_a_bitmap);
	T_RUN(everything_joins_again);
	T_RUN(taking_twice_is_refused);
	T_RUN(queued_discards_are_free_space_and_those_in_flight_are_not);
	T_RUN(of_what_is_found_only_clean_space_is_queued);
	T_RUN(ids_in_order_make_no_deep_tree);
	T_RUN(what_was_built_goes_more_quickly);
	T_RUN(a_tree_is_taken_apart_from_its_leaves);
	return t_done();
}
