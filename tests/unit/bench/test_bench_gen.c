/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The benchmark's choosers against YCSB: key names and constants that YCSB
 * publishes, and the frequencies that its formulas give.
 */
#include "harness.h"

#include <pthread.h>

#include "bench_gen.h"
#include "bench_value.h"

#define DRAWS 400000u

static void key_names_are_those_of_ycsb(void)
{
	static const char *const want[] = { "user6284781860667377211", "user8517097267634966620" };
	char key[BENCH_KEY_MAX + 1];
	unsigned i, len;

	for (i = 0; i < 2; i++) {
		len = bench_key(key, bench_fnv64(i));
		key[len] = 0;
		T_STREQ(key, want[i]);
	}
}

static void key_parse_inverts_key(void)
{
	static const uint64_t edge[] = { 0, 9, 10, 99, 100, 101, INT64_MAX };
	uint64_t rng = t_seed();
	char key[BENCH_KEY_MAX];
	unsigned i;

	for (i = 0; i < 7; i++)
		T_EQ(bench_key_parse(key, bench_key(key, edge[i])), edge[i]);
	for (i = 0; i < 1000; i++) {
		uint64_t h = bench_fnv64(t_rand(&rng));

		T_EQ(bench_key_parse(key, bench_key(key, h)), h);
	}
	T_EQ(bench_key_parse("user", 4), UINT64_MAX);
	T_EQ(bench_key_parse("user1x", 6), UINT64_MAX);
	T_EQ(bench_key_parse("user01", 6), UINT64_MAX);
	T_EQ(bench_key_parse("usex1", 5), UINT64_MAX);
}

static void zeta_is_the_sum_and_grows_in_steps(void)
{
	double all = bench_zeta(0, 1000, BENCH_THETA, 0);
	double part = bench_zeta(600, 1000, BENCH_THETA, bench_zeta(0, 600, BENCH_THETA, 0));
	struct bench_zipf a, b;

	T_OK(fabs(bench_zeta(0, 2, BENCH_THETA, 0) - (1.0 + pow(0.5, 0.99))) < 1e-12);
	T_OK(fabs(all - part) < 1e-9);
	bench_zipf_init(&a, 1000, 0);
	bench_zipf_init(&b, 600, 0);
	bench_zipf_grow(&b, 1000);
	T_OK(fabs(a.zetan - b.zetan) < 1e-9);
	T_EQ(b.for_zeta, 1000);
}

/* The first two ranks have exact probabilities 1/zetan and 0.5^theta/zetan. */
static void zipfian_ranks_have_their_frequencies(void)
{
	struct bench_zipf z;
	struct bench_rng r;
	uint64_t seen[3] = { 0 }, i, v;
	double want0, want1;

	bench_zipf_init(&z, 10000, 0);
	bench_rng_seed(&r, t_seed());
	for (i = 0; i < DRAWS; i++) {
		v = bench_zipf_next(&z, 10000, bench_rand_double(&r));
		T_OK(v < 10000);
		seen[v < 2 ? v : 2]++;
	}
	want0 = DRAWS / z.zetan;
	want1 = DRAWS * z.half_pow / z.zetan;
	/* six standard deviations of a count this large are below 3 % */
	T_OK(fabs((double)seen[0] - want0) < 0.03 * want0);
	T_OK(fabs((double)seen[1] - want1) < 0.05 * want1);
}

static void scrambled_zipfian_is_skewed_and_in_range(void)
{
	static uint32_t count[1001];
	static struct bench_seq seq;
	struct bench_chooser c;
	struct bench_rng r;
	uint64_t i, top = 0, hot = bench_fnv64(0) % 1001;

	memset(count, 0, sizeof(count));
	bench_seq_init(&seq, 1000);
	bench_chooser_init(&c, BENCH_ZIPFIAN, 1000, 0, &seq);
	T_OK(c.zipf.zetan == BENCH_ZETAN);
	bench_rng_seed(&r, t_seed());
	for (i = 0; i < DRAWS; i++) {
		uint64_t v = bench_choose(&c, &r);

		T_OK(v < 1000);
		count[v]++;
	}
	for (i = 0; i < 1000; i++)
		if (count[i] > count[top])
			top = i;
	T_EQ(top, hot);
	/* rank 0 has 1/26.47 of all draws, and a little from collisions */
	T_OK(count[top] > DRAWS / 28 && count[top] < DRAWS / 22);
}

static void latest_prefers_the_newest_and_follows_inserts(void)
{
	static struct bench_seq seq;
	struct bench_chooser c;
	struct bench_rng r;
	uint64_t i, v, newest = 0, n;

	bench_seq_init(&seq, 1000);
	bench_chooser_init(&c, BENCH_LATEST, 1000, 0, &seq);
	bench_rng_seed(&r, t_seed());
	for (i = 0; i < DRAWS; i++) {
		v = bench_choose(&c, &r);
		T_OK(v < 1000);
		newest += v == 999;
	}
	T_OK(newest > DRAWS / 10);
	n = bench_seq_take(&seq);
	T_EQ(n, 1000);
	bench_seq_ack(&seq, n);
	for (newest = 0, i = 0; i < DRAWS; i++)
		newest += bench_choose(&c, &r) == 1000;
	T_OK(newest > DRAWS / 10);
}

static void uniform_covers_the_range_evenly(void)
{
	uint32_t count[100] = { 0 };
	struct bench_chooser c;
	struct bench_rng r;
	unsigned i;

	bench_chooser_init(&c, BENCH_UNIFORM, 100, 0, NULL);
	bench_rng_seed(&r, t_seed());
	for (i = 0; i < DRAWS; i++)
		count[bench_choose(&c, &r)]++;
	for (i = 0; i < 100; i++)
		T_OK(count[i] > DRAWS / 100 * 85 / 100 && count[i] < DRAWS / 100 * 115 / 100);
}

static void sequence_limit_waits_for_the_gap(void)
{
	static struct bench_seq seq;

	bench_seq_init(&seq, 10);
	T_EQ(bench_seq_take(&seq), 10);
	T_EQ(bench_seq_take(&seq), 11);
	T_EQ(bench_seq_take(&seq), 12);
	bench_seq_ack(&seq, 12);
	bench_seq_ack(&seq, 11);
	T_EQ(bench_seq_limit(&seq), 10);
	bench_seq_ack(&seq, 10);
	T_EQ(bench_seq_limit(&seq), 13);
}

#define SEQ_EACH 200000u

static void *seq_thread(void *arg)
{
	struct bench_seq *seq = arg;
	unsigned i;

	for (i = 0; i < SEQ_EACH; i++)
		bench_seq_ack(seq, bench_seq_take(seq));
	return NULL;
}

static void sequence_loses_nothing_among_threads(void)
{
	static struct bench_seq seq;
	pthread_t t[4];
	int i;

	bench_seq_init(&seq, 0);
	for (i = 0; i < 4; i++)
		T_EQ(pthread_create(&t[i], NULL, seq_thread, &seq), 0);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	T_EQ(bench_seq_limit(&seq), 4 * SEQ_EACH);
}

static void values_verify_and_every_wrong_byte_is_found(void)
{
	static const size_t sizes[] = { 17, 23, 24, 25, 100, 1000, 4096, 65536 + 16, 70000 };
	static unsigned char buf[70000];
	size_t i, at;

	bench_noise_init(0);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t len = sizes[i], step = len > 5000 ? 37 : 1;

		bench_value_make(buf, len, 77, 5);
		T_EQ(bench_value_version(buf, len), 5);
		T_OK(bench_head_good(buf, len, 77));
		T_OK(!bench_head_good(buf, len, 78));
		T_OK(bench_body_good(buf, len, 77, 5, true));
		T_OK(bench_body_good(buf, len, 77, 5, false));
		for (at = BENCH_HEADER; at < len; at += step) {
			buf[at] ^= 1;
			T_OK(!bench_body_good(buf, len, 77, 5, true));
			buf[at] ^= 1;
		}
		buf[len - 1] ^= 0x80;
		T_OK(!bench_body_good(buf, len, 77, 5, false));
	}
}

static void values_of_other_versions_differ(void)
{
	unsigned char buf[1000];

	bench_noise_init(0);
	bench_value_make(buf, sizeof(buf), 77, 5);
	T_OK(!bench_body_good(buf, sizeof(buf), 77, 6, false));
	T_OK(!bench_body_good(buf, sizeof(buf), 78, 5, false));
}

static void zeros_are_as_many_as_wanted_and_hide_no_wrong_byte(void)
{
	unsigned char buf[1000];
	unsigned n = 0;
	size_t at;

	bench_noise_init(70);
	bench_value_make(buf, sizeof(buf), 77, 5);
	for (at = BENCH_HEADER; at < sizeof(buf); at++)
		n += !buf[at];
	T_OK(n > 650 && n < 730);
	T_OK(!bench_body_good(buf, sizeof(buf), 77, 6, false));
	T_OK(!bench_body_good(buf, sizeof(buf), 78, 5, false));
	for (at = BENCH_HEADER; at < sizeof(buf); at++) {
		buf[at] ^= 1;
		T_OK(!bench_body_good(buf, sizeof(buf), 77, 5, true));
		buf[at] ^= 1;
	}
	bench_noise_init(0);
}

int main(void)
{
	T_RUN(key_names_are_those_of_ycsb);
	T_RUN(key_parse_inverts_key);
	T_RUN(zeta_is_the_sum_and_grows_in_steps);
	T_RUN(zipfian_ranks_have_their_frequencies);
	T_RUN(scrambled_zipfian_is_skewed_and_in_range);
	T_RUN(latest_prefers_the_newest_and_follows_inserts);
	T_RUN(uniform_covers_the_range_evenly);
	T_RUN(sequence_limit_waits_for_the_gap);
	T_RUN(sequence_loses_nothing_among_threads);
	T_RUN(values_verify_and_every_wrong_byte_is_found);
	T_RUN(values_of_other_versions_differ);
	T_RUN(zeros_are_as_many_as_wanted_and_hide_no_wrong_byte);
	return t_done();
}
