/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Keys, values and stores of a world. See mk.h.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "db/db.h"
#include "mk.h"

#define VALUE_TINY	8u	/* shorter ones do not carry their id */
#define LARGE_RARE	64u	/* of the large values one in so many is above 1 MiB */
#define NSEC		1000000000ull
#define TTL_STORE	2u	/* its values live so long: gone when two whole hours have passed */
#define TTL_S		5400u

static int bytes_cmp(const struct mk_key *ke, const void *key, size_t klen)
{
	int c = memcmp(ke->ke_buf, key, ke->ke_len < klen ? ke->ke_len : klen);

	return c ? c : ke->ke_len < klen ? -1 : ke->ke_len > klen;
}

static int key_cmp(const void *a, const void *b)
{
	const struct mk_key *y = b;

	return bytes_cmp(a, y->ke_buf, y->ke_len);
}

/* Keys of many lengths: the bare prefix, binary ones, long common parts, the longest. */
static void key_make(struct mk_key *ke, unsigned group, unsigned owner, unsigned i, uint64_t x)
{
	uint8_t buf[KVDB_KEY_MAX + 8];
	size_t len = MK_PREFIX;

	snprintf((char *)buf, sizeof(buf), "%c%02u/", 'a' + (char)(group * 7 % 26), group);
	switch (i ? x % 16 : 99) {
	case 99:
		break;
	case 0:
		memset(buf + len, 'x', KVDB_KEY_MAX - len);
		len = KVDB_KEY_MAX - 5;
		len += (size_t)snprintf((char *)buf + len, 6, "%05u", i);
		break;
	case 1: case 2:
		memset(buf + len, 'y', 90 + x % 200);
		len += 90 + x % 200;
		len += (size_t)snprintf((char *)buf + len, 6, "%05u", i);
		break;
	case 3: case 4: case 5:
		buf[len++] = x & 64 ? 0 : 0xff;
		buf[len++] = (uint8_t)(i >> 8);
		buf[len++] = (uint8_t)i;
		break;
	default:
		len += (size_t)snprintf((char *)buf + len, 16, "%08u", i * 7919);
	}
	ke->ke_len = (uint16_t)len;
	ke->ke_group = (uint8_t)group;
	ke->ke_owner = (uint8_t)owner;
	ke->ke_buf = malloc(len);
	memcpy(ke->ke_buf, buf, len);
}

void mk_world_init(struct mk_world *wo, uint64_t seed, unsigned no)
{
	static const uint16_t sizes[] = { 12, 40, 40, 150 };
	uint64_t rnd = mk_hash(seed, no);
	unsigned g, i, per = sizes[mk_rand(&rnd) % 4], n = 0, shared;
	struct mk_shm *shm = wo->wo_shm;

	memset(wo, 0, sizeof(*wo));
	wo->wo_shm = shm;
	wo->wo_seed = mk_rand(&rnd);
	wo->wo_no = no;
	wo->wo_threads = 1 + mk_rand(&rnd) % 4;
	if (mk_rand(&rnd) % 8 == 0)
		wo->wo_threads = MK_THREADS;
	wo->wo_big = mk_rand(&rnd) % 3 ? 2000 : 100;
	memset(shm->sm_base, 0, sizeof(shm->sm_base));
	memset(shm->sm_churn, 0, sizeof(shm->sm_churn));
	memset(shm->sm_ckpt, 0, sizeof(shm->sm_ckpt));
	shm->sm_nchurn = shm->sm_nsync = shm->sm_nckpt = 0;
	shared = 2 + mk_rand(&rnd) % 4;
	wo->wo_groups = 3 * wo->wo_threads + shared;
	for (g = 0; g < wo->wo_groups; g++) {
		unsigned owner = g < 3 * wo->wo_threads ? g % wo->wo_threads : MK_SHARED;
		unsigned count = owner == MK_SHARED ? 4 + per / 4 : per;

		wo->wo_group_owner[g] = (uint8_t)owner;
		for (i = 0; i < count && n < MK_KEYS; i++)
			key_make(&wo->wo_key[n++], g, owner, i, mk_rand(&rnd));
	}
	wo->wo_keys = n;
	qsort(wo->wo_key, n, sizeof(wo->wo_key[0]), key_cmp);
	for (i = 0; i < n; i++) {
		g = wo->wo_key[i].ke_group;
		if (!i || wo->wo_key[i - 1].ke_group != g)
			wo->wo_group_lo[g] = (uint16_t)i;
		wo->wo_group_hi[g] = (uint16_t)(i + 1);
	}
}

void mk_world_fini(struct mk_world *wo)
{
	unsigned i;

	for (i = 0; i < wo->wo_keys; i++)
		free(wo->wo_key[i].ke_buf);
	free(wo->wo_ring);
	wo->wo_ring = NULL;
	wo->wo_keys = 0;
}

unsigned mk_key_lower(const struct mk_world *wo, const void *key, size_t klen)
{
	unsigned lo = 0, hi = wo->wo_keys;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if (bytes_cmp(&wo->wo_key[mid], key, klen) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int mk_key_find(const struct mk_world *wo, const void *key, size_t klen)
{
	unsigned k = mk_key_lower(wo, key, klen);

	return k < wo->wo_keys && !bytes_cmp(&wo->wo_key[k], key, klen) ? (int)k : -1;
}

/* ---- values ---- */

uint32_t mk_value_len(const struct mk_world *wo, uint64_t id, unsigned store, unsigned key)
{
	uint64_t x = mk_hash(wo->wo_seed ^ id, store << 16 | key), y = x >> 20;

	if (x % wo->wo_big == 0 && (y >> 32) % LARGE_RARE == 0)
		return (1u << 20) + (uint32_t)(y % (MK_VALUE_MAX - (1u << 20)));
	if (x % wo->wo_big == 0)
		return 3000 + (uint32_t)(y % (y & 0x100000 ? 12000 : 200000));
	switch (x % 16) {
	case 0:
		/* only its owner knows an unlabelled value */
		if (wo->wo_key[key].ke_owner != MK_SHARED)
			return (uint32_t)(y % VALUE_TINY);
		return 16;
	case 1: case 2:
		return 120 + (uint32_t)(y % 16);
	case 3:
		return 1000 + (uint32_t)(y % 1200);
	default:
		return 16 + (uint32_t)(y % 300);
	}
}

uint32_t mk_value(const struct mk_world *wo, uint64_t id, unsigned store, unsigned key,
		  uint8_t *buf)
{
	uint32_t len = mk_value_len(wo, id, store, key), i;
	uint64_t x = mk_hash(id, store << 16 | key), w = id;

	if (len < VALUE_TINY)
		w = mk_rand(&x);
	for (i = 0; i + 8 <= len; i += 8) {
		memcpy(buf + i, &w, 8);
		w = mk_rand(&x);
	}
	memcpy(buf + i, &w, len - i);
	return len;
}

bool mk_value_read(const struct mk_world *wo, unsigned store, unsigned key, const void *val,
		   size_t len, uint8_t *want, struct mk_have *out)
{
	uint64_t head = 0;

	out->ha_len = (uint32_t)len;
	memcpy(&head, val, len < 8 ? len : 8);
	out->ha_head = head;
	if (len < VALUE_TINY)
		return true;
	return mk_value_len(wo, head, store, key) == len &&
	       mk_value(wo, head, store, key, want) == len && !memcmp(want, val, len);
}

bool mk_have_is(const struct mk_world *wo, const struct mk_have *ha, unsigned store, unsigned key,
		uint64_t id)
{
	uint8_t buf[8] = { 0 };
	uint64_t head = 0;

	if (!id || ha->ha_len == MK_ABSENT)
		return !id && ha->ha_len == MK_ABSENT;
	if (ha->ha_len >= VALUE_TINY)
		return ha->ha_head == id;
	if (mk_value_len(wo, id, store, key) != ha->ha_len)
		return false;
	mk_value(wo, id, store, key, buf);
	memcpy(&head, buf, ha->ha_len);
	return head == ha->ha_head;
}

/* ---- the database ---- */

void mk_fail(struct mk_world *wo, const char *fmt, ...)
{
	struct mk_shm *shm = wo->wo_shm;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	va_list ap;

	pthread_mutex_lock(&lock);
	if (!shm->sm_why[0]) {
		va_start(ap, fmt);
		vsnprintf(shm->sm_why, sizeof(shm->sm_why), fmt, ap);
		va_end(ap);
	}
	pthread_mutex_unlock(&lock);
	__atomic_store_n(&shm->sm_is_failed, 1, __ATOMIC_RELEASE);
}

const char *mk_store_name(unsigned s)
{
	static const char *const name[MK_STORES] = { "plain", "second", "third" };

	return name[s];
}

void mk_churn_name(unsigned i, char *buf)
{
	memset(buf, 0, KVDB_NAME_MAX + 1);
	snprintf(buf, KVDB_NAME_MAX + 1, "churn-%u", i);
}

void mk_ckpt_name(const struct mk_world *wo, unsigned i, char *buf)
{
	snprintf(buf, KVDB_NAME_MAX + 1, "ckpt-%u-%u", wo->wo_round, i);
}

/* ---- time ---- */

static uint64_t clock_now(void *arg)
{
	(void)arg;
	return mk_now();
}

static void clock_sleep(void *arg, uint64_t t)
{
	struct timespec ts = { .tv_sec = (time_t)(t / NSEC), .tv_nsec = (long)(t % NSEC) };

	(void)arg;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static uint64_t clock_wall(void *arg)
{
	const struct mk_world *wo = arg;

	return (1700000000 + wo->wo_wall_hour * 3600ull) * NSEC;
}

void mk_time_pass(struct mk_world *wo, uint64_t *rnd)
{
	static const uint8_t hours[] = { 0, 0, 1, 1, 2, 3 };
	uint64_t x = mk_rand(rnd), *base = wo->wo_shm->sm_base[TTL_STORE];
	unsigned past = hours[x % 6], now = wo->wo_hour[wo->wo_round - 1] + past;

	wo->wo_hour[wo->wo_round] = wo->wo_wall_hour = now;
	/* the wall clock was set back; the last close has recorded the time */
	if (!past)
		wo->wo_wall_hour -= (unsigned)(x >> 16) % (now + 1);
	for (unsigned k = 0; k < wo->wo_keys; k++) {
		if (!base[k] || now - wo->wo_hour[mk_id_round(base[k])] < 2)
			continue;
		base[k] = 0;
		mk_count(wo)[MC_EXPIRED]++;
	}
}

void mk_options(struct mk_world *wo, uint64_t *rnd, bool is_small)
{
	static const uint32_t logs[] = { 1, 4, 16 };
	static const uint32_t interval[] = { 1, 5, 20, 100, 20, KVDB_INTERVAL_NONE };
	const struct mpool_open_opts *pool = wo->wo_opts.pool;
	uint64_t x = mk_rand(rnd);
	struct kvdb_opts *o = &wo->wo_opts;

	*o = (struct kvdb_opts)KVDB_OPTS_INIT;
	o->logs = is_small && x % 3 == 2 ? 2 : logs[x % 3];
	o->interval_ms = interval[(x >> 8) % 6];
	o->commit = (x >> 16) % 8 == 0;
	o->cache_bytes = 64ull << 20;
	o->log_bytes = (is_small ? 512ull << 10 : 1ull << 20) << (x >> 24) % (is_small ? 2 : 5);
	o->segment_bytes = (is_small ? 64ull << 10 : 256ull << 10) << (x >> 32) % 3;
	o->threads = 1 + (x >> 40) % 3;
	/* values move at little garbage in some rounds, at none in others */
	o->space_amp_max = 1.1 + (double)((x >> 44) % 20) / 10;
	o->pool = pool;
	wo->wo_clock = (struct kvdb_clock){ clock_now, clock_sleep, wo, clock_wall };
	o->clock = &wo->wo_clock;
	/* stores of many small leaves */
	wo->wo_leaf_keys = (x >> 52) % 2 ? 100ull << (x >> 56) % 4 : 0;
}

/*
 * The first knows no prefixes, the others those of the groups or a part of them; each packs
 * what moves in its own way. Values of the last have a time to live.
 */
const struct kvdb_kvs_opts *mk_store_opts(unsigned s)
{
	static const struct kvdb_kvs_opts o[MK_STORES] = {
		KVDB_KVS_OPTS_INIT,
		{ .size = sizeof(o[0]), .pfx_len = MK_PREFIX, .compress = KVDB_COMPRESS_LZ4 },
		{ .size = sizeof(o[0]), .pfx_len = MK_PREFIX - 2,
		  .compress = KVDB_COMPRESS_ZSTD, .ttl_s = TTL_S },
	};

	return &o[s];
}

int mk_create(struct mk_world *wo)
{
	int rc = kvdb_create(wo->wo_pool, &wo->wo_opts);
	unsigned s;

	if (!rc)
		rc = kvdb_open(wo->wo_pool, &wo->wo_opts, &wo->wo_db);
	for (s = 0; s < MK_STORES && !rc; s++)
		rc = kvdb_kvs_create(wo->wo_db, mk_store_name(s), mk_store_opts(s));
	if (!rc)
		return mk_close(wo);
	mk_fail(wo, "making the database: %d (%s)", rc, kvdb_error_detail()->text);
	return rc;
}

int mk_open(struct mk_world *wo, uint32_t flags)
{
	struct kvdb_opts o = wo->wo_opts;
	unsigned s;
	int rc;

	o.flags |= flags;
	rc = kvdb_open(wo->wo_pool, &o, &wo->wo_db);
	if (rc) {
		mk_fail(wo, "kvdb_open: %d (%s)", rc, kvdb_error_detail()->text);
		wo->wo_db = NULL;
		return rc;
	}
	if (wo->wo_leaf_keys)
		wo->wo_db->d_budget.b_leaf_keys = wo->wo_leaf_keys;
	mk_count(wo)[MC_OPEN]++;
	for (s = 0; s < MK_STORES; s++) {
		rc = kvdb_kvs_open(wo->wo_db, mk_store_name(s), &wo->wo_kvs[s]);
		if (rc) {
			mk_fail(wo, "store %s: %d (%s)", mk_store_name(s), rc,
				kvdb_error_detail()->text);
			return rc;
		}
	}
	return 0;
}

int mk_close(struct mk_world *wo)
{
	struct kvdb *db = wo->wo_db;
	int rc;

	wo->wo_db = NULL;
	rc = kvdb_close(db);
	if (rc)
		mk_fail(wo, "kvdb_close: %d (%s)", rc, kvdb_error_detail()->text);
	return rc;
}
