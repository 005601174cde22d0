/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Repair of a database with planted damage of each kind, against a model of
 * every version of every key: what is certain is the newest, what is not lies
 * in the store of what was found, and nothing else is there.
 */
#include "die.h"
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "meta/mdc.h"
#include "compact/reloc.h"
#include "run/run.h"
#include "run/run_omf.h"
#include "db/thread.h"

#define KEYS	2000u
#define SEG	(256u << 10)

static char dir[256], fresh_dir[256];
static struct kvdb *db;
static uint64_t tag;
/* Per store and key: the newest version, 0 = deleted; the one before. */
static uint32_t newest[2][KEYS], older[2][KEYS];

static size_t key_of(unsigned k, char *key)
{
	return (size_t)sprintf(key, "%06u", k);
}

/* Small values lie with their keys, large ones in segments. */
static size_t value(unsigned s, unsigned k, uint32_t ver, uint8_t *val)
{
	uint64_t x = ((uint64_t)s << 60) ^ ((uint64_t)ver << 32) ^ k, v;
	size_t len = k % 2 ? 400 : 24;

	for (size_t i = 0; i < len; i += 8) {
		v = t_rand(&x);
		memcpy(val + i, &v, 8);
	}
	return len;
}

static void pool_make(char *path)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 96u << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(path, 256, "%s/kv_repair.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(path));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(path, &co), 0);
	o.segment_bytes = SEG;
	T_EQ(kvdb_create(path, &o), 0);
}

static void pool_end(const char *path)
{
	T_EQ(mpool_destroy(path, NULL), 0);
	rmdir(path);
}

static void open_at(const char *path, struct kvdb **out)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	T_EQ(kvdb_open(path, &o, out), 0);
}

static void open_it(void)
{
	open_at(dir, &db);
}

static void write_key(unsigned s, unsigned k, uint32_t ver)
{
	struct kvdb_kvs *kvs;
	uint8_t val[400];
	char key[16];

	T_EQ(kvdb_kvs_open(db, s ? "b" : "a", &kvs), 0);
	if (ver)
		T_EQ(kvdb_put(kvs, key, key_of(k, key), val, value(s, k, ver, val)), 0);
	else
		T_EQ(kvdb_del(kvs, key, key_of(k, key)), 0);
	older[s][k] = newest[s][k];
	newest[s][k] = ver;
}

#define GONE 1200u	/* 100 keys of store b from here on are deleted as a range */

static void delete_range(void)
{
	struct kvdb_kvs *kvs;
	char from[16], end[16];

	T_EQ(kvdb_kvs_open(db, "b", &kvs), 0);
	T_EQ(kvdb_range_del(kvs, from, key_of(GONE, from), end, key_of(GONE + 100, end)), 0);
	for (unsigned k = GONE; k < GONE + 100; k++) {
		older[1][k] = newest[1][k];
		newest[1][k] = 0;
	}
}

/* Two runs in each store: all keys, then some overwritten and some deleted. */
static void make(void)
{
	memset(older, 0, sizeof(older));
	memset(newest, 0, sizeof(newest));
	pool_make(dir);
	open_at(dir, &db);
	tag = db->d_tag;
	T_EQ(kvdb_kvs_create(db, "a", NULL), 0);
	T_EQ(kvdb_kvs_create(db, "b", NULL), 0);
	for (uint32_t ver = 1; ver <= 2; ver++) {
		for (unsigned k = 0; k < KEYS; k++)
			for (unsigned s = 0; s < 2; s++)
				if (ver == 1 || k % 3 == 0 || k % 7 == 0)
					write_key(s, k, ver == 2 && k % 7 == 0 ? 0 : ver);
		if (ver == 2)
			delete_range();
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_close(db), 0);
}

static void flip_at(struct mpool_obj *obj, uint64_t off)
{
	uint64_t pos, room;
	char path[64];
	uint8_t b;
	int fd, own;

	T_EQ(mpool_obj_place(obj, off & ~4095ull, &fd, &pos, &room), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_RDWR | O_CLOEXEC);
	T_OK(own >= 0);
	pos += off & 4095;
	T_EQ(pread(own, &b, 1, (off_t)pos), 1);
	b ^= 0x10;
	T_EQ(pwrite(own, &b, 1, (off_t)pos), 1);
	T_EQ(fdatasync(own), 0);
	close(own);
}

enum what { PAGE, FOOTER, VALUE, CRCS, ROWS };

/* Damages what holds key @k of store @s in its run @run (0 the newest). */
static void hurt(unsigned s, unsigned run, unsigned k, enum what what)
{
	const struct kv_kblock *kb;
	struct kv_run *r;
	struct kv_thread *t;
	struct kvdb_kvs *kvs;
	struct kv_ent e;
	char key[16];
	size_t klen = key_of(k, key);
	uint64_t off;

	open_at(dir, &db);
	T_EQ(kvdb_kvs_open(db, s ? "b" : "a", &kvs), 0);
	t = kv_enter();
	r = atomic_load(&kvs->k_tree)->tr_run[run];
	T_EQ(kv_run_lookup(db, r, key, klen, kv_hash(key, klen), &e), 0);
	kb = &r->rn_kb[0];
	off = what == VALUE ? e.e_off8 * 8ull : what == PAGE ?
	      (uint64_t)kv_kblock_page(kb, (const uint8_t *)key, klen) * KV_PAGE :
	      what == FOOTER ? kv_run_desc(r)->rd_kb[0].kd_len - KV_PAGE :
	      (uint64_t)kb->kb_npages * KV_PAGE +
	      (uint64_t)((what == CRCS ? kb->kb_crcs : kb->kb_tombs) - kb->kb_index);
	T_OK(what != ROWS || kb->kb_tombs_len > 7);
	flip_at(what == VALUE ? e.e_seg->sg_obj : kb->kb_obj, off + 7);
	kv_exit(t);
	T_EQ(kvdb_close(db), 0);
}

/* ---- the result ------------------------------------------------------------------- */

struct range {
	unsigned s, from, to;
};
static struct range range[KEYS];
static unsigned nrange;
static char told[4096];	/* all texts */

static unsigned num(const void *p, size_t len, unsigned none)
{
	char s[] = "000000";

	if (!p || !len)
		return none;
	/* a separator may be shorter than a key */
	memcpy(s, p, len < 6 ? len : 6);
	return (unsigned)atoi(s) + (len > 6);
}

static void see(void *arg, const struct mpool_problem *p)
{
	const struct kvdb_problem *kp = (const struct kvdb_problem *)p;

	(void)arg;
	printf("# %s\n", p->text);
	snprintf(told + strlen(told), sizeof(told) - strlen(told), "%s\n", p->text);
	if (!kp->from)
		return;
	T_OK(nrange < KEYS && kp->kvs);
	range[nrange++] = (struct range){ kp->kvs[0] == 'b', num(kp->from, kp->flen, 0),
					  num(kp->to, kp->tlen, KEYS) };
}

static bool is_named(unsigned s, unsigned k)
{
	for (unsigned i = 0; i < nrange; i++)
		if (range[i].s == s && range[i].from <= k && k < range[i].to)
			return true;
	return false;
}

/* The version of the key in a store of the new database; 0: none. */
static uint32_t version(struct kvdb *to, const char *store, unsigned s, unsigned k)
{
	uint8_t val[400], want[400];
	struct kvdb_kvs *kvs;
	size_t len = 0, wlen;
	char key[16];
	char by_number[16];
	int err;

	snprintf(by_number, sizeof(by_number), "store-%u", s + 1);
	if (kvdb_kvs_open(to, store, &kvs) &&
	    (store[1] || kvdb_kvs_open(to, by_number, &kvs)))
		return 0;
	err = kvdb_get(kvs, key, key_of(k, key), val, sizeof(val), &len);
	if (err == -ENOENT)
		return 0;
	T_EQ(err, 0);
	for (uint32_t ver = 1; ver < 9; ver++) {
		wlen = value(s, k, ver, want);
		if (len == wlen && !memcmp(val, want, len))
			return ver;
	}
	T_FAIL("key %u of store %s holds what was never put", k, store);
	return 0;
}

static struct kvdb *to;
static const struct kvdb_opts *how;	/* of the database that is repaired */

static struct kvdb_repair repair(void)
{
	struct kvdb_repair plan = { 0 }, r = { 0 };

	nrange = 0;
	told[0] = 0;
	T_EQ(kvdb_repair(dir, how, NULL, NULL, NULL, &plan), 0);
	pool_make(fresh_dir);
	open_at(fresh_dir, &to);
	T_EQ(kvdb_repair(dir, how, to, see, NULL, &r), 0);
	/* what was said is what was done */
	T_OK(!memcmp(&plan, &r, sizeof(r)));
	return r;
}

static void forget(void)
{
	T_EQ(kvdb_close(to), 0);
	pool_end(fresh_dir);
}

static void finish(void)
{
	forget();
	pool_end(dir);
}

/*
 * What is named may be lost; the rest is there and certain. In named ranges
 * nothing is certain but what is newest.
 */
static unsigned check(void)
{
	unsigned found = 0;

	for (unsigned s = 0; s < 2; s++) {
		for (unsigned k = 0; k < KEYS; k++) {
			uint32_t sure = version(to, s ? "b" : "a", s, k);
			uint32_t maybe = version(to, s ? "b.found" : "a.found", s, k);

			if (!is_named(s, k) && (sure != newest[s][k] || maybe))
				T_FAIL("store %u, key %u: %u, %u found", s, k, sure, maybe);
			T_OK(!sure || (sure == newest[s][k] && !maybe));
			T_OK(!maybe || maybe == newest[s][k] || maybe == older[s][k]);
			found += maybe != 0;
		}
	}
	return found;
}

/* ---- tests ------------------------------------------------------------------------ */

static void a_sound_database_is_brought_over_whole(void)
{
	struct kvdb_repair r;

	make();
	r = repair();
	T_EQ(r.found_keys + r.lost_values + r.lost_ranges + r.log_bytes + r.is_guess, 0);
	T_EQ(r.stores, 2);
	T_EQ(check(), 0);
	T_EQ(nrange, 0);
	/* not over something */
	T_EQ(kvdb_repair(dir, NULL, to, NULL, NULL, &r), -EINVAL);
	finish();
}

/* The newest versions and deletions of some keys are gone. */
static void what_a_damaged_page_may_have_hidden_is_not_certain(void)
{
	struct kvdb_repair r;
	unsigned found, deleted = 0;

	make();
	hurt(0, 0, 999, PAGE);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	T_OK(is_named(0, 999));
	found = check();
	T_EQ(found, r.found_keys);
	for (unsigned k = 0; k < KEYS; k++) {
		if (!is_named(0, k))
			continue;
		/* the logs have large values, of the newest version too */
		if (k % 2 && k % 7)
			T_EQ(version(to, "a.found", 0, k), newest[0][k]);
		else
			T_EQ(version(to, "a.found", 0, k), 1);
		deleted += k % 7 == 0;
	}
	/* of keys that were deleted the older version is there, and only there */
	T_OK(deleted > 2);
	finish();
}

/* The footer names the keys. */
static void a_block_without_the_crcs_of_its_pages_is_named_by_its_footer(void)
{
	struct kvdb_repair r;

	make();
	hurt(0, 0, 999, CRCS);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	T_OK(strstr(told, "CRC of the page CRCs"));
	/* the newer run has 0, 3, 6, 7, ... 1998 */
	T_OK(is_named(0, 0) && is_named(0, 1998) && !is_named(0, 1999) && !is_named(1, 0));
	T_EQ(check(), r.found_keys);
	T_EQ(version(to, "a", 0, 1999), newest[0][1999]);
	finish();
}

/* Any key may have been among them. */
static void keys_that_a_lost_range_delete_may_have_hidden_are_not_certain(void)
{
	struct kvdb_repair r;

	make();
	hurt(1, 0, 999, ROWS);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	T_OK(strstr(told, "CRC of the deletes of many keys"));
	T_OK(is_named(1, 0) && is_named(1, KEYS - 1) && !is_named(0, 0));
	for (unsigned k = 0; k < KEYS; k++) {
		bool is_gone = k >= GONE && k < GONE + 100;
		uint32_t maybe = version(to, "b.found", 1, k);

		T_EQ(version(to, "b", 1, k), 0);
		/* what the flush left out as hidden is gone, if no log has it */
		if (!is_gone)
			T_EQ(maybe, newest[1][k]);
		else
			T_OK(maybe == 1 || maybe == 2);
		T_EQ(version(to, "a", 0, k), newest[0][k]);
	}
	finish();
}

static void what_a_newer_run_says_is_certain_whatever_an_older_one_lost(void)
{
	struct kvdb_repair r;

	make();
	hurt(1, 1, 1000, FOOTER);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	check();
	for (unsigned k = 0; k < KEYS; k++) {
		/* what is left says that these are deleted */
		if (k >= GONE && k < GONE + 100)
			T_EQ(version(to, "b", 1, k) + version(to, "b.found", 1, k), 0);
		else if (k % 3 == 0 && k % 7)
			T_EQ(version(to, "b", 1, k), 2);
		/* small values were with the keys */
		else if (k % 7)
			T_EQ(version(to, "b.found", 1, k), k % 2 ? 1 : 0);
		else
			T_EQ(version(to, "b.found", 1, k), 0);
	}
	finish();
}

static void a_lost_value_is_named_and_its_past_is_not_certain(void)
{
	struct kvdb_repair r;

	make();
	hurt(0, 0, 999, VALUE);
	r = repair();
	T_EQ(r.lost_values, 1);
	T_EQ(r.lost_ranges, 0);
	T_EQ(nrange, 1);
	T_OK(range[0].from == 999 && range[0].to == 1000);
	T_EQ(check(), 1);
	T_EQ(version(to, "a.found", 0, 999), 1);
	finish();
}

/* The log segment in which key @k of store @s has its newest value is gone, whole. */
static void lose_segment(unsigned s, unsigned k)
{
	struct mpool_op op = { .type = MPOOL_OP_DELETE };
	struct kvdb_kvs *kvs;
	struct kv_thread *t;
	struct mpool *mp;
	struct kv_ent e;
	char key[16];
	size_t klen = key_of(k, key);

	open_at(dir, &db);
	T_EQ(kvdb_kvs_open(db, s ? "b" : "a", &kvs), 0);
	t = kv_enter();
	T_EQ(kv_run_lookup(db, atomic_load(&kvs->k_tree)->tr_run[0], key, klen,
			   kv_hash(key, klen), &e), 0);
	op.id = e.e_seg->sg_id;
	kv_exit(t);
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_open(dir, NULL, &mp), 0);
	T_EQ(mpool_batch(mp, &op, 1), 0);
	T_EQ(mpool_close(mp), 0);
}

static void a_lost_segment_costs_the_values_in_it(void)
{
	struct kvdb_repair r;

	make();
	lose_segment(0, 999);
	r = repair();
	T_OK(r.lost_values && r.lost_values < KEYS);
	T_OK(is_named(0, 999));
	check();
	finish();
}

/* A store that has the name which what was found would get. */
static void names_that_are_taken_are_passed_over(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb_repair r;
	uint8_t val[400];
	char key[16];

	make();
	open_at(dir, &db);
	T_EQ(kvdb_kvs_create(db, "a.found", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "a.found", &kvs), 0);
	T_EQ(kvdb_put(kvs, key, key_of(5, key), val, value(0, 5, 7, val)), 0);
	T_EQ(kvdb_close(db), 0);
	hurt(0, 0, 999, PAGE);
	r = repair();
	T_EQ(r.stores, 3);
	T_EQ(version(to, "a.found", 0, 5), 7);
	T_EQ(version(to, "a.found", 0, 999), 0);
	T_EQ(version(to, "a.found-2", 0, 999), 2);
	finish();
}

/* ---- values that expire ------------------------------------------------------------ */

#define TTL_FROM 600u	/* 100 keys of store a from here on are put for a minute */

static uint64_t clock_now(void *arg)
{
	(void)arg;
	return 1000000000u;
}

static void clock_sleep(void *arg, uint64_t t)
{
	(void)arg;
	(void)t;
}

static uint64_t in_an_hour(void *arg)
{
	(void)arg;
	return ((uint64_t)time(NULL) + 3600) * 1000000000u;
}

static uint64_t in_ten_years(void *arg)
{
	return in_an_hour(arg) + 10ull * 365 * 24 * 3600 * 1000000000u;
}

static const struct kvdb_clock later = { clock_now, clock_sleep, NULL, in_an_hour };
static const struct kvdb_clock wrong = { clock_now, clock_sleep, NULL, in_ten_years };

static void make_with_expiry(void)
{
	struct kvdb_kvs *kvs;
	uint8_t val[400];
	char key[16];

	make();
	open_at(dir, &db);
	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	for (unsigned k = TTL_FROM; k < TTL_FROM + 100; k++) {
		T_EQ(kvdb_put_ttl(kvs, key, key_of(k, key), val, value(0, k, 3, val), 60), 0);
		older[0][k] = newest[0][k];
		newest[0][k] = 3;
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_close(db), 0);
}

static void expire(void)
{
	for (unsigned k = TTL_FROM; k < TTL_FROM + 100; k++)
		newest[0][k] = 0;
}

/* What is left says that it expired, so what it replaced is gone as well. */
static void what_expired_hides_what_it_replaced_wherever_it_is_found(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_repair r;
	unsigned k;

	o.clock = &later;
	make_with_expiry();
	repair();
	T_EQ(check(), 0);
	forget();
	/* its page is lost: of large values the log is left */
	hurt(0, 0, TTL_FROM + 51, PAGE);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	T_EQ(check(), r.found_keys);
	for (k = TTL_FROM + 1; k < TTL_FROM + 100; k += 2)
		T_EQ(version(to, "a.found", 0, k), is_named(0, k) ? 3 : 0);
	T_OK(is_named(0, TTL_FROM + 51));
	forget();
	expire();
	/* a clock that is far ahead takes nothing away unasked */
	o.clock = &wrong;
	T_EQ(kvdb_repair(dir, &o, NULL, NULL, NULL, &r), -ETIME);
	o.flags = KVDB_TIME_JUMP;
	T_EQ(kvdb_repair(dir, &o, NULL, NULL, NULL, &r), 0);
	T_OK(r.expired_keys >= 50);
	o.flags = 0;
	o.clock = &later;
	how = &o;
	r = repair();
	how = NULL;
	T_EQ(r.lost_ranges, 1);
	T_OK(r.expired_keys >= 50 && r.expired_keys <= 100);
	T_EQ(check(), r.found_keys);
	for (k = TTL_FROM + 1; k < TTL_FROM + 100; k += 2)
		T_EQ(version(to, "a.found", 0, k) + version(to, "a", 0, k), 0);
	finish();
}

/* Nothing but their records is left of large values in a page that is lost. */
static void what_was_loaded_says_when_it_expires(void)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_bulk *bulk;
	struct kvdb_kvs *kvs;
	struct kvdb_repair r;
	uint8_t val[400];
	char key[16];
	unsigned k;

	make();
	open_at(dir, &db);
	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	ko.ttl_s = 60;
	T_EQ(kvdb_kvs_set(kvs, &ko, KVDB_KVS_TTL), 0);
	T_EQ(kvdb_bulk_open(kvs, 0, &bulk), 0);
	for (k = TTL_FROM; k < TTL_FROM + 100; k++) {
		T_EQ(kvdb_bulk_add(bulk, key, key_of(k, key), val, value(0, k, 3, val)), 0);
		older[0][k] = newest[0][k];
		newest[0][k] = 3;
	}
	T_EQ(kvdb_bulk_finish(bulk), 0);
	T_EQ(kvdb_close(db), 0);
	hurt(0, 0, TTL_FROM + 51, PAGE);
	expire();
	o.clock = &later;
	how = &o;
	r = repair();
	how = NULL;
	T_EQ(r.lost_ranges, 1);
	T_EQ(check(), r.found_keys);
	for (k = TTL_FROM + 1; k < TTL_FROM + 100; k += 2)
		T_EQ(version(to, "a.found", 0, k) + version(to, "a", 0, k), 0);
	finish();
}

/* ---- transactions ------------------------------------------------------------------- */

/* Values in the log, and a process that dies before the commit. */
static void die_in_a_transaction(void)
{
	struct kvdb_txn *txn;
	struct kvdb_kvs *kvs;
	uint8_t val[400];
	char key[17];
	size_t klen;

	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	for (unsigned k = 1; k < KEYS; k += 2) {
		klen = key_of(k, key);
		key[klen++] = 't';	/* a key that nobody else has */
		T_EQ(kvdb_txn_put(txn, kvs, key, klen, val, value(0, k, 7, val)), 0);
	}
	T_EQ(kvdb_sync(db), 0);
	T_OK(kv_segs_seal_now(db) >= 0);
	T_EQ(kvdb_sync(db), 0);
}

static void what_was_never_committed_is_not_found(void)
{
	struct kvdb_cursor *cur;
	struct kvdb_repair r;
	struct kvdb_kvs *kvs;
	const void *key;
	size_t klen;
	unsigned n = 0;

	make();
	hurt(0, 0, 999, PAGE);
	t_die_in(open_it, die_in_a_transaction);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	T_EQ(check(), r.found_keys);
	T_EQ(kvdb_kvs_open(to, "a.found", &kvs), 0);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	for (; !kvdb_cursor_next(cur, &key, &klen, NULL, NULL); n++)
		T_EQ(klen, 6);
	kvdb_cursor_close(cur);
	T_EQ(n, r.found_keys);
	finish();
}

/* A large value in a transaction, then small ones, which lie in another log. */
static void commit_then_write(void)
{
	struct kvdb_txn *txn;
	struct kvdb_kvs *kvs;
	uint8_t val[400];
	char key[16];

	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	T_EQ(kvdb_txn_put(txn, kvs, key, key_of(1, key), val, value(0, 1, 5, val)), 0);
	T_EQ(kvdb_txn_put(txn, kvs, key, key_of(2, key), val, value(0, 2, 5, val)), 0);
	T_EQ(kvdb_txn_commit(txn, 0, NULL), 0);
	T_EQ(kvdb_sync(db), 0);
	for (unsigned k = 100; k < 200; k += 2)
		write_key(0, k, 3);
	T_EQ(kvdb_sync(db), 0);
}

/* The last frame of the value log. */
static void hurt_last_value(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_seg *s, *last = NULL;

	o.flags = KVDB_RDONLY;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (s = kv_segs_first(db); s; s = s->sg_next)
		if (s->sg_stream == KV_VLOG && atomic_load(&s->sg_first_epoch) &&
		    (!last || s->sg_id > last->sg_id))
			last = s;
	T_OK(last && atomic_load(&last->sg_end) == KV_BLOCK);
	flip_at(last->sg_obj, 200);
	T_EQ(kvdb_close(db), 0);
}

static void a_transaction_without_a_value_costs_no_other_record(void)
{
	struct kvdb_repair r;

	make();
	t_die_in(open_it, commit_then_write);
	hurt_last_value();
	T_OK(kvdb_open(dir, NULL, &db) == -EUCLEAN);
	r = repair();
	T_EQ(r.lost_values, 1);
	T_EQ(r.log_bytes, 0);
	/* what the lost value replaced */
	T_EQ(version(to, "a", 0, 1), 0);
	T_EQ(version(to, "a.found", 0, 1), newest[0][1]);
	T_EQ(version(to, "a", 0, 2), 5);
	for (unsigned k = 100; k < 200; k += 2)
		T_EQ(version(to, "a", 0, k), 3);
	finish();
}

/* Turns over a bit of both logs of the container. */
static void hurt_container(uint64_t off)
{
	struct mpool_obj_info oi[64];
	struct mpool_obj *obj;
	uint64_t after = 0;
	struct mpool *mp;
	unsigned hit = 0;
	int n;

	T_EQ(mpool_open(dir, NULL, &mp), 0);
	while ((n = mpool_objects(mp, after, tag, oi, 64)) > 0) {
		for (int i = 0; i < n; i++) {
			after = oi[i].id;
			if (oi[i].kind != MPOOL_MLOG || mpool_obj_open(mp, after, &obj))
				continue;
			flip_at(obj, off);
			hit++;
			mpool_obj_close(obj);
		}
	}
	T_OK(hit);
	T_EQ(mpool_close(mp), 0);
}

static void a_damaged_container_loses_no_key(void)
{
	struct kvdb_repair r;

	for (uint64_t off = 100; off < 40000; off += 8192) {
		uint64_t damage;

		make();
		hurt_container(off);
		if (!kvdb_verify(dir, NULL, 0, NULL, NULL, &damage)) {
			/* behind the last record */
			pool_end(dir);
			T_OK(off > 100);
			continue;
		}
		r = repair();
		T_EQ(r.is_guess, 1);
		T_EQ(r.lost_ranges + r.lost_values + r.log_bytes, 0);
		T_EQ(check(), 0);
		finish();
	}
}

static void write_without_a_flush(void)
{
	for (unsigned k = 0; k < KEYS; k++) {
		write_key(0, k, 3);
		if (k % 50 == 0)
			T_EQ(kvdb_sync(db), 0);
	}
	T_EQ(kvdb_sync(db), 0);
	T_OK(kv_segs_seal_now(db) >= 0);
	T_EQ(kvdb_sync(db), 0);
}

/* The begin of the last frame below @off. */
static uint32_t frame_below(struct kv_seg *s, uint32_t off)
{
	_Alignas(4096) static uint8_t block[4096];
	struct iovec v = { block, sizeof(block) };
	struct kv_frame_hdr h;

	do
		T_EQ(mpool_read(s->sg_obj, off -= 4096, &v, 1), 0);
	while (kv_frame_decode(block, (uint32_t)tag, s->sg_id, off, KV_FRAME_MAX, &h));
	return off;
}

static void hurt_log(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kv_seg *s;
	unsigned hit = 0;

	o.flags = KVDB_RDONLY;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (s = kv_segs_first(db); s; s = s->sg_next)
		if (s->sg_stream == KV_VLOG && s->sg_obj_sealed &&
		    atomic_load(&s->sg_first_epoch) && atomic_load(&s->sg_end) > 128u << 10 &&
		    !hit++)
			flip_at(s->sg_obj, frame_below(s, 65536) + 8);
	T_OK(hit);
	T_EQ(kvdb_close(db), 0);
}

/* RP1: a run of several blocks, and of the first, which deleted keys behind its own, no footer */
static void a_lost_block_may_have_deleted_any_key(void)
{
	struct kvdb_repair r;
	struct kv_thread *t;
	struct kvdb_kvs *kvs;
	struct kv_run *run;
	char key[16], end[16], val[40] = "";
	unsigned k;
	size_t len;
	bool is_so;

	pool_make(dir);
	open_at(dir, &db);
	tag = db->d_tag;
	T_EQ(kvdb_kvs_create(db, "a", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	for (unsigned n = 30000; n; n = n > 20000 ? 20000 : 0) {
		for (k = 0; k < n; k++)
			T_EQ(kvdb_put(kvs, key, key_of(k, key), val, sizeof(val)), 0);
		if (n == 20000)
			T_EQ(kvdb_range_del(kvs, key, key_of(25000, key), end,
					    key_of(26000, end)), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	t = kv_enter();
	run = atomic_load(&kvs->k_tree)->tr_run[0];
	is_so = run->rn_n > 1 && run->rn_kb[0].kb_tombs_len;
	flip_at(run->rn_kb[0].kb_obj, kv_run_desc(run)->rd_kb[0].kd_len - KV_PAGE + 7);
	kv_exit(t);
	T_OK(is_so);
	T_EQ(kvdb_close(db), 0);
	r = repair();
	T_OK(r.lost_ranges);
	T_EQ(kvdb_kvs_open(to, "a", &kvs), 0);
	for (k = 25000; k < 26000; k++)
		T_EQ(kvdb_get(kvs, key, key_of(k, key), NULL, 0, &len), -ENOENT);
	finish();
}

static void a_hole_in_a_log_costs_what_lay_in_it(void)
{
	struct kvdb_repair r;
	unsigned n3 = 0;

	make();
	t_die_in(open_it, write_without_a_flush);
	hurt_log();
	T_OK(kvdb_open(dir, NULL, &db) == -EUCLEAN);
	r = repair();
	T_OK(r.log_bytes && r.log_bytes <= 128 << 10);
	T_EQ(r.lost_ranges + r.lost_values + r.found_keys, 0);
	for (unsigned k = 0; k < KEYS; k++) {
		uint32_t ver = version(to, "a", 0, k);

		T_OK(ver == 3 || ver == newest[0][k]);
		n3 += ver == 3;
		T_EQ(version(to, "b", 1, k), newest[1][k]);
	}
	T_OK(n3 > KEYS * 3 / 4 && n3 < KEYS);
	finish();
}

/* Of a process that died in @die the logs are whole, and nothing is left of the container. */
static struct kvdb_repair repair_without_container(void (*die)(void))
{
	struct kvdb_repair r;

	t_die_in(open_it, die);
	hurt_container(100);
	r = repair();
	T_EQ(r.is_guess, 1);
	T_EQ(r.lost_ranges + r.lost_values + r.log_bytes, 0);
	return r;
}

/* The stores are known by what their records say. */
static void a_damaged_container_loses_no_record_of_a_log(void)
{
	make();
	repair_without_container(write_without_a_flush);
	for (unsigned k = 0; k < KEYS; k++) {
		T_EQ(version(to, "a", 0, k), 3);
		T_EQ(version(to, "b", 1, k), newest[1][k]);
	}
	finish();
}

static void overwrite_and_delete(void)
{
	for (unsigned k = 0; k < KEYS; k++)
		write_key(0, k, k % 4 == 1 ? 0 : 3);
	T_EQ(kvdb_sync(db), 0);
}

/* Nothing of the log is sealed, so nothing says how long it was. */
static void a_damaged_container_brings_nothing_back_that_the_log_replaced(void)
{
	make();
	repair_without_container(overwrite_and_delete);
	for (unsigned k = 0; k < KEYS; k++)
		T_EQ(version(to, "a", 0, k), k % 4 == 1 ? 0 : 3);
	finish();
}

static void make_store_and_sync(void)
{
	T_EQ(kvdb_kvs_create(db, "a", NULL), 0);
	for (unsigned k = 0; k < KEYS; k++)
		write_key(0, k, 1);
	T_EQ(kvdb_sync(db), 0);
}

static void seal(void)
{
	while (kvdb_poll(db) > 0)
		;
	T_OK(kv_segs_seal_now(db) >= 0);
	for (struct kv_seg *s = kv_segs_first(db); s; s = s->sg_next)
		T_OK(!s->sg_obj_sealed || kv_seg_readable(s) < s->sg_bytes);
}

/* Of the store there is no key block, and its segments end before their capacity. */
static void a_damaged_container_loses_no_store_that_only_the_log_has(void)
{
	struct kvdb_repair r;

	pool_make(dir);
	open_at(dir, &db);
	tag = db->d_tag;
	T_EQ(kvdb_close(db), 0);
	t_die_in(open_it, make_store_and_sync);
	r = repair_without_container(seal);
	T_EQ(r.stores, 1);
	T_EQ(r.keys, KEYS);
	for (unsigned k = 0; k < KEYS; k++)
		T_EQ(version(to, "a", 0, k), 1);
	finish();
}

static void put_p(struct kvdb_kvs *kvs, unsigned k, uint32_t ver)
{
	uint8_t val[400];
	char key[16];

	T_EQ(kvdb_put(kvs, key, key_of(k, key), val, value(2, k, ver, val)), 0);
}

static void delete_a_prefix(void)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_kvs *kvs;

	ko.pfx_len = 3;
	T_EQ(kvdb_kvs_create(db, "p", &ko), 0);
	T_EQ(kvdb_kvs_open(db, "p", &kvs), 0);
	for (unsigned k = 0; k < 20; k += 2) {
		put_p(kvs, k, 1);
		put_p(kvs, k + 1000, 1);
	}
	T_EQ(kvdb_prefix_del(kvs, "000", 3), 0);
	put_p(kvs, 6, 2);
	put_p(kvs, 1006, 2);
	T_EQ(kvdb_sync(db), 0);
}

/* How long the store's prefixes were lay in the container. */
static void a_deleted_prefix_is_one_without_a_container(void)
{
	struct kvdb_repair r;

	make();
	t_die_in(open_it, delete_a_prefix);
	hurt_container(100);
	r = repair();
	T_EQ(r.is_guess, 1);
	T_EQ(r.log_bytes, 0);
	for (unsigned k = 0; k < 20; k += 2) {
		T_EQ(version(to, "p", 2, k), k == 6 ? 2 : 0);
		T_EQ(version(to, "p", 2, k + 1000), k == 6 ? 2 : 1);
	}
	finish();
}

#define PACKED 400u

static size_t packed_value(unsigned k, uint8_t *val)
{
	memset(val, (int)k, 400);
	memcpy(val, &k, sizeof(k));
	return 400;
}

/* Values that were moved, and packed on their way. */
static void make_packed(void)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	struct kvdb_kvs *kvs;
	uint8_t val[400];
	char key[16];

	pool_make(dir);
	open_at(dir, &db);
	tag = db->d_tag;
	ko.compress = KVDB_COMPRESS_LZ4;
	T_EQ(kvdb_kvs_create(db, "c", &ko), 0);
	T_EQ(kvdb_kvs_open(db, "c", &kvs), 0);
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned k = 0; k < PACKED; k += 1 + round)
			T_EQ(kvdb_put(kvs, key, key_of(k, key), val, packed_value(k, val)), 0);
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	}
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	T_OK(atomic_load(&db->d_count.pack_out) < atomic_load(&db->d_count.pack_in));
	T_EQ(kvdb_close(db), 0);
}

static void packed_records_are_no_hole_without_a_container(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb_repair r;
	uint8_t val[400], want[400];
	char key[16];
	size_t len;

	make_packed();
	hurt_container(100);
	r = repair();
	T_EQ(r.is_guess, 1);
	T_EQ(r.lost_ranges + r.lost_values + r.log_bytes, 0);
	T_EQ(kvdb_kvs_open(to, "store-1", &kvs), 0);
	for (unsigned k = 0; k < PACKED; k++) {
		T_EQ(kvdb_get(kvs, key, key_of(k, key), val, sizeof(val), &len), 0);
		T_EQ(len, packed_value(k, want));
		T_OK(!memcmp(val, want, len));
	}
	finish();
}

/* An object of another database, as nobody but a damaged container would leave it. */
static void plant_foreign(void)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY,
				   .capacity = KV_BLOCK, .tag = tag ^ 1 };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT };
	struct mpool *mp;

	T_EQ(mpool_open(dir, NULL, &mp), 0);
	T_EQ(mpool_alloc(mp, &req, 1, &op.obj), 0);
	T_EQ(mpool_batch(mp, &op, 1), 0);
	mpool_obj_close(op.obj);
	T_EQ(mpool_close(mp), 0);
}

/* With a container its tag decides; without one nobody can say which of two it was. */
static void what_belongs_to_two_databases_is_not_mixed(void)
{
	struct kvdb_repair r;

	make();
	plant_foreign();
	r = repair();
	T_EQ(r.is_guess, 0);
	T_EQ(check(), 0);
	forget();
	hurt_container(100);
	T_EQ(kvdb_repair(dir, NULL, NULL, NULL, NULL, &r), -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "objects of several databases"));
	pool_end(dir);
}

static void a_pool_without_a_database_has_nothing_to_repair(void)
{
	struct kvdb_repair r;

	pool_make(dir);
	T_EQ(kvdb_drop(dir, NULL), 0);
	T_EQ(kvdb_repair(dir, NULL, NULL, NULL, NULL, &r), -ENOENT);
	T_OK(strstr(kvdb_error_detail()->text, "there is no database in this pool"));
	pool_end(dir);
}

/* Without the container nothing else says which keys the block had. */
static void a_key_block_that_nothing_describes_is_named(void)
{
	struct kvdb_repair r;

	make();
	hurt(0, 0, 999, FOOTER);
	hurt_container(100);
	r = repair();
	T_EQ(r.is_guess, 1);
	T_OK(strstr(told, "a key block whose footer is damaged: what it says is lost"));
	for (unsigned k = 0; k < KEYS; k++) {
		uint32_t ver = version(to, "a", 0, k);

		T_OK(ver == newest[0][k] || ver == older[0][k]);
		T_EQ(version(to, "b", 1, k), newest[1][k]);
	}
	finish();
}

/*
 * The read number @after fails, or (@is_for_good) that and all behind it. Either the repair
 * says that it failed, or it says what is lost, or nothing is. True: nothing is.
 */
static bool repair_with_a_failing_read(unsigned after, bool is_for_good,
				       const struct kvdb_repair *whole, unsigned *again)
{
	struct mpool_open_opts mo = MPOOL_OPEN_OPTS_INIT;
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_repair r = { 0 };
	char dev[64];
	int err;

	snprintf(dev, sizeof(dev), "capacity:fail=read,after=%u%s", after,
		 is_for_good ? ",sticky" : "");
	mo.dev = dev;
	o.pool = &mo;
	err = kvdb_repair(dir, &o, NULL, NULL, NULL, &r);
	if (err) {
		T_OK(kvdb_error_detail()->text[0]);
		*again += !strcmp(kvdb_error_detail()->id, "MP0997");
		return false;
	}
	if (r.lost_ranges || r.lost_values || r.log_bytes || r.is_guess)
		return false;
	if (memcmp(&r, whole, sizeof(r)))
		T_FAIL("read %u: %llu of %llu keys, and nothing is said", after,
		       (unsigned long long)r.keys, (unsigned long long)whole->keys);
	return true;
}

static void whatever_read_fails_nothing_is_left_out_in_silence(void)
{
	struct kvdb_repair whole = { 0 };
	unsigned step = getenv("TEST_SHORT") ? 9 : 3, again = 0, n;

	make();
	T_EQ(kvdb_repair(dir, NULL, NULL, NULL, NULL, &whole), 0);
	for (n = 1; !repair_with_a_failing_read(n, true, &whole, &again); n += step)
		repair_with_a_failing_read(n, false, &whole, &again);
	T_OK(n > 100 && again > 2);
	printf("# %u reads, %u times what was there could not be read again\n", n - 1, again);
	/* the damaged database is what it was; none fails */
	T_OK(repair_with_a_failing_read(0, false, &whole, &again));
	pool_end(dir);
}

int main(void)
{
	T_RUN(a_sound_database_is_brought_over_whole);
	T_RUN(what_a_damaged_page_may_have_hidden_is_not_certain);
	T_RUN(a_block_without_the_crcs_of_its_pages_is_named_by_its_footer);
	T_RUN(keys_that_a_lost_range_delete_may_have_hidden_are_not_certain);
	T_RUN(what_a_newer_run_says_is_certain_whatever_an_older_one_lost);
	T_RUN(a_lost_value_is_named_and_its_past_is_not_certain);
	T_RUN(a_lost_segment_costs_the_values_in_it);
	T_RUN(names_that_are_taken_are_passed_over);
	T_RUN(what_expired_hides_what_it_replaced_wherever_it_is_found);
	T_RUN(what_was_loaded_says_when_it_expires);
	T_RUN(what_was_never_committed_is_not_found);
	T_RUN(a_transaction_without_a_value_costs_no_other_record);
	T_RUN(a_damaged_container_loses_no_key);
	T_RUN(a_hole_in_a_log_costs_what_lay_in_it);
	T_RUN(a_damaged_container_loses_no_record_of_a_log);
	T_RUN(a_damaged_container_brings_nothing_back_that_the_log_replaced);
	T_RUN(a_damaged_container_loses_no_store_that_only_the_log_has);
	T_RUN(a_lost_block_may_have_deleted_any_key);
	T_RUN(a_deleted_prefix_is_one_without_a_container);
	T_RUN(packed_records_are_no_hole_without_a_container);
	T_RUN(what_belongs_to_two_databases_is_not_mixed);
	T_RUN(a_pool_without_a_database_has_nothing_to_repair);
	T_RUN(a_key_block_that_nothing_describes_is_named);
	T_RUN(whatever_read_fails_nothing_is_left_out_in_silence);
	return t_done();
}
