/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The parts of the key choosers that are not hot: construction, zeta sums, key
 * names, the sequence of inserts. See bench_gen.h for the rules.
 */
#include <sched.h>
#include <string.h>
#include <strings.h>

#include "bench_gen.h"

const char *const bench_op_name[BENCH_OPS] = { "read", "update", "insert", "scan", "rmw" };
const char *const bench_dist_name[] = { "zipfian", "latest", "uniform" };

/* YCSB's core workloads, then an update and a scan of uniform keys */
static const struct bench_mix mixes[] = {
	{ "load", { [OP_INSERT] = 100 }, BENCH_UNIFORM, true },
	{ "a", { [OP_READ] = 50, [OP_UPDATE] = 50 }, BENCH_ZIPFIAN, false },
	{ "b", { [OP_READ] = 95, [OP_UPDATE] = 5 }, BENCH_ZIPFIAN, false },
	{ "c", { [OP_READ] = 100 }, BENCH_ZIPFIAN, false },
	{ "d", { [OP_READ] = 95, [OP_INSERT] = 5 }, BENCH_LATEST, false },
	{ "e", { [OP_SCAN] = 95, [OP_INSERT] = 5 }, BENCH_ZIPFIAN, false },
	{ "f", { [OP_READ] = 50, [OP_RMW] = 50 }, BENCH_ZIPFIAN, false },
	{ "update", { [OP_UPDATE] = 100 }, BENCH_UNIFORM, false },
	{ "scan", { [OP_SCAN] = 100 }, BENCH_UNIFORM, false },
};

const struct bench_mix *bench_mix_find(const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++)
		if (strlen(mixes[i].name) == len && !strncasecmp(mixes[i].name, name, len))
			return &mixes[i];
	return NULL;
}

void bench_rng_seed(struct bench_rng *r, uint64_t seed)
{
	int i;

	/* splitmix64, as the authors of xoshiro advise; never all zero */
	for (i = 0; i < 4; i++) {
		uint64_t z = (seed += 0x9e3779b97f4a7c15ull);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
		r->s[i] = z ^ (z >> 31);
	}
}

unsigned bench_key(char key[BENCH_KEY_MAX], uint64_t hash)
{
	char tmp[20], *p = tmp + sizeof(tmp);
	unsigned len;

	while (hash >= 100) {
		unsigned two = (unsigned)(hash % 100);

		hash /= 100;
		*--p = (char)('0' + two % 10);
		*--p = (char)('0' + two / 10);
	}
	if (hash >= 10) {
		*--p = (char)('0' + hash % 10);
		hash /= 10;
	}
	*--p = (char)('0' + hash);
	len = (unsigned)(tmp + sizeof(tmp) - p);
	memcpy(key, "user", 4);
	memcpy(key + 4, p, len);
	return len + 4;
}

uint64_t bench_key_parse(const void *key, unsigned len)
{
	const unsigned char *k = key;
	uint64_t h = 0;
	unsigned i;

	if (len < 5 || len > 23 || memcmp(k, "user", 4) || (k[4] == '0' && len > 5))
		return UINT64_MAX;
	for (i = 4; i < len; i++) {
		if (k[i] < '0' || k[i] > '9')
			return UINT64_MAX;
		h = h * 10 + (k[i] - '0');
	}
	return h;
}

double bench_zeta(uint64_t st, uint64_t n, double theta, double sum)
{
	uint64_t i;

	for (i = st; i < n; i++)
		sum += 1.0 / pow((double)(i + 1), theta);
	return sum;
}

static void zipf_eta(struct bench_zipf *z)
{
	z->eta = (1.0 - pow(2.0 / (double)z->items, 1.0 - z->theta)) / (1.0 - z->zeta2 / z->zetan);
}

void bench_zipf_init(struct bench_zipf *z, uint64_t items, double zetan)
{
	z->theta = BENCH_THETA;
	z->items = items;
	z->for_zeta = items;
	z->zeta2 = bench_zeta(0, 2, z->theta, 0);
	z->alpha = 1.0 / (1.0 - z->theta);
	z->half_pow = pow(0.5, z->theta);
	z->zetan = zetan > 0 ? zetan : bench_zeta(0, items, z->theta, 0);
	zipf_eta(z);
}

void bench_zipf_grow(struct bench_zipf *z, uint64_t items)
{
	z->zetan = bench_zeta(z->for_zeta, items, z->theta, z->zetan);
	z->for_zeta = items;
	zipf_eta(z);
}

void bench_seq_init(struct bench_seq *s, uint64_t first)
{
	memset(s, 0, sizeof(*s));
	s->next = first;
	s->limit = first;
}

uint64_t bench_seq_take(struct bench_seq *s)
{
	uint64_t n = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED);

	while (n - bench_seq_limit(s) >= BENCH_SEQ_WINDOW)
		sched_yield();
	return n;
}

void bench_seq_ack(struct bench_seq *s, uint64_t n)
{
	uint64_t limit;

	__atomic_store_n(&s->window[n % BENCH_SEQ_WINDOW], 1, __ATOMIC_SEQ_CST);
	/*
	 * The thread that holds busy moves the limit for all. After letting go it
	 * looks again: an acknowledgement that came too late for its loop and saw
	 * busy taken must not be left behind.
	 */
	for (;;) {
		if (__atomic_exchange_n(&s->busy, 1, __ATOMIC_SEQ_CST))
			return;
		limit = s->limit;
		while (__atomic_load_n(&s->window[limit % BENCH_SEQ_WINDOW], __ATOMIC_SEQ_CST)) {
			__atomic_store_n(&s->window[limit % BENCH_SEQ_WINDOW], 0, __ATOMIC_RELAXED);
			limit++;
			__atomic_store_n(&s->limit, limit, __ATOMIC_RELEASE);
		}
		__atomic_store_n(&s->busy, 0, __ATOMIC_SEQ_CST);
		if (!__atomic_load_n(&s->window[limit % BENCH_SEQ_WINDOW], __ATOMIC_SEQ_CST))
			return;
	}
}

void bench_chooser_init(struct bench_chooser *c, enum bench_dist dist, uint64_t records,
			uint64_t expected, struct bench_seq *seq)
{
	memset(c, 0, sizeof(*c));
	c->dist = dist;
	c->seq = seq;
	c->items = records;
	if (dist == BENCH_ZIPFIAN) {
		c->items = records + expected + 1;
		bench_zipf_init(&c->zipf, BENCH_ITEM_COUNT + 1, BENCH_ZETAN);
	} else if (dist == BENCH_LATEST) {
		bench_zipf_init(&c->zipf, records > 1 ? records - 1 : 1, 0);
	}
}
