/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Key choosers of the benchmark: YCSB's generators, number for number.
 *
 * Everything here is per thread and takes no lock, except struct bench_seq,
 * which all threads share and which uses atomics only. The hot functions are
 * inline: the driver's own cost is part of every figure it reports.
 */
#ifndef UTILS_BENCH_GEN_H
#define UTILS_BENCH_GEN_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* YCSB's constants: the scrambled generator draws from ten thousand million
 * items, whose zeta(n, 0.99) is known and never computed.
 */
#define BENCH_THETA      0.99
#define BENCH_ZETAN      26.46902820178302
#define BENCH_ITEM_COUNT 10000000000ull

#define BENCH_KEY_MAX 24 /* "user" and at most 19 digits */

/* ---- random numbers: xoshiro256++ --------------------------------------- */

struct bench_rng {
	uint64_t s[4];
};

void bench_rng_seed(struct bench_rng *r, uint64_t seed);

static inline uint64_t bench_rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

static inline uint64_t bench_rand(struct bench_rng *r)
{
	uint64_t *s = r->s;
	uint64_t res = bench_rotl(s[0] + s[3], 23) + s[0];
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = bench_rotl(s[3], 45);
	return res;
}

/* in [0, 1), 53 bits as java.util.Random.nextDouble() */
static inline double bench_rand_double(struct bench_rng *r)
{
	return (double)(bench_rand(r) >> 11) * 0x1.0p-53;
}

/* in [0, n), n > 0; the bias of the multiplication is below 2^-32 for n < 2^32 */
static inline uint64_t bench_rand_below(struct bench_rng *r, uint64_t n)
{
	return (uint64_t)(((unsigned __int128)bench_rand(r) * n) >> 64);
}

/* ---- keys ---------------------------------------------------------------- */

/* YCSB's Utils.hash(): FNV-1a over the eight bytes, low first, then Math.abs() */
static inline uint64_t bench_fnv64(uint64_t val)
{
	uint64_t h = 0xcbf29ce484222325ull;
	int i;

	for (i = 0; i < 8; i++) {
		h ^= val & 0xff;
		val >>= 8;
		h *= 1099511628211ull;
	}
	return (int64_t)h < 0 ? 0 - h : h;
}

/* writes "user<hash>" without a NUL; returns the length, at most BENCH_KEY_MAX */
unsigned bench_key(char key[BENCH_KEY_MAX], uint64_t hash);
/* the hash in a key made by bench_key(), or UINT64_MAX when it is none */
uint64_t bench_key_parse(const void *key, unsigned len);

/* ---- zipfian ------------------------------------------------------------- */

struct bench_zipf {
	double theta, alpha, zetan, zeta2, eta, half_pow;
	uint64_t items;    /* at construction: YCSB's eta keeps using it */
	uint64_t for_zeta; /* items that zetan counts */
};

/* zeta(n): sum of 1/i^theta for i in (st, n], added to sum */
double bench_zeta(uint64_t st, uint64_t n, double theta, double sum);
/* @zetan 0 computes it, which takes time in proportion to @items */
void bench_zipf_init(struct bench_zipf *z, uint64_t items, double zetan);
/* the item set grew to @items (skewed latest); adds the missing terms only */
void bench_zipf_grow(struct bench_zipf *z, uint64_t items);

/* in [0, items), 0 the most frequent */
static inline uint64_t bench_zipf_next(const struct bench_zipf *z, uint64_t items, double u)
{
	double uz = u * z->zetan;
	uint64_t r;

	if (uz < 1.0)
		return 0;
	if (uz < 1.0 + z->half_pow)
		return 1;
	r = (uint64_t)((double)items * pow(z->eta * u - z->eta + 1.0, z->alpha));
	return r < items ? r : items - 1;
}

/* ---- shared sequence of inserted records --------------------------------- */

#define BENCH_SEQ_WINDOW 65536u

/*
 * YCSB's AcknowledgedCounterGenerator: numbers are taken in order, but readers
 * may ask only for numbers below which every insert was acknowledged.
 */
struct bench_seq {
	_Alignas(64) uint64_t next;       /* atomic: next number to insert */
	_Alignas(64) uint64_t limit;      /* atomic: all below it are acknowledged */
	uint32_t busy;                    /* atomic: one thread moves limit */
	uint8_t window[BENCH_SEQ_WINDOW]; /* atomic: acknowledged, above limit */
};

void bench_seq_init(struct bench_seq *s, uint64_t first);
/* the next number; waits (spinning) while the window is full */
uint64_t bench_seq_take(struct bench_seq *s);
void bench_seq_ack(struct bench_seq *s, uint64_t n);
static inline uint64_t bench_seq_limit(const struct bench_seq *s)
{
	return __atomic_load_n(&s->limit, __ATOMIC_ACQUIRE);
}

/* ---- key choosers -------------------------------------------------------- */

enum bench_dist { BENCH_ZIPFIAN, BENCH_LATEST, BENCH_UNIFORM };

struct bench_chooser {
	enum bench_dist dist;
	struct bench_zipf zipf;
	uint64_t items;  /* range of the draw; scrambled zipfian counts expected inserts */
	struct bench_seq *seq;
};

/*
 * @records exist; @expected more are expected to be inserted (YCSB: operations
 * times insert proportion times 2), so that popular keys do not move.
 */
void bench_chooser_init(struct bench_chooser *c, enum bench_dist dist, uint64_t records,
			uint64_t expected, struct bench_seq *seq);

/* a record number that exists */
static inline uint64_t bench_choose(struct bench_chooser *c, struct bench_rng *rng)
{
	uint64_t max, n;

	switch (c->dist) {
	case BENCH_UNIFORM:
		return bench_rand_below(rng, c->items);
	case BENCH_LATEST:
		max = bench_seq_limit(c->seq) - 1;
		if (max == 0)
			return 0;
		if (max > c->zipf.for_zeta)
			bench_zipf_grow(&c->zipf, max);
		return max - bench_zipf_next(&c->zipf, max, bench_rand_double(rng));
	default:
		do {
			n = bench_zipf_next(&c->zipf, BENCH_ITEM_COUNT + 1, bench_rand_double(rng));
			n = bench_fnv64(n) % c->items;
		} while (n >= bench_seq_limit(c->seq));
		return n;
	}
}

/* ---- workloads ----------------------------------------------------------- */

#define BENCH_SCAN 100u /* longest scan of workload E */

enum bench_op { OP_READ, OP_UPDATE, OP_INSERT, OP_SCAN, OP_RMW, BENCH_OPS };

/* struct bench_mix - a workload: percent of each operation, and its chooser */
struct bench_mix {
	const char *name;
	uint8_t pct[BENCH_OPS];
	enum bench_dist dist;
	bool is_load;
};

extern const char *const bench_op_name[BENCH_OPS];
extern const char *const bench_dist_name[];
/* The workload whose name is the first @len bytes of @name, or NULL. */
const struct bench_mix *bench_mix_find(const char *name, size_t len);

#endif
