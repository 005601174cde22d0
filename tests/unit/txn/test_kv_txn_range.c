/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Deletes of ranges in transactions, from inside (T12, T13): waits, what is announced, what a
 * commit record may hold, and the search for tombstones that meet a range.
 */
#include "kv_committer.h"

#include "base/trange.h"
#include "mem/tomb.h"
#include "meta/mdc_omf.h"

/* ---- waits ----------------------------------------------------------------------------------- */

static _Atomic(bool) is_inside, has_left;

static void *stays_inside(void *arg)
{
	struct kv_thread *th = kv_enter();

	(void)arg;
	atomic_store(&is_inside, true);
	usleep(100000);
	atomic_store(&has_left, true);
	kv_exit(th);
	return NULL;
}

/* T12: one that has looked for owners before the claim may still be linking its version. */
static void a_claim_waits_for_writes_that_have_not_seen_it(void)
{
	struct kvdb_txn *t;
	pthread_t thread;

	fresh();
	before();
	t = begin(0);
	T_EQ(pthread_create(&thread, NULL, stays_inside, NULL), 0);
	while (!atomic_load(&is_inside))
		usleep(1000);
	T_EQ(kvdb_txn_range_del(t, ka, "r", 1, "s", 1), 0);
	T_OK(atomic_load(&has_left));
	T_EQ(pthread_join(thread, NULL), 0);
	kvdb_txn_abort(t);
	end();
}

static enum kv_owner has(const char *from, const char *to)
{
	const struct kv_trange r = {
		.tr_from = (const uint8_t *)from, .tr_flen = (uint16_t)strlen(from),
		.tr_to = (const uint8_t *)to, .tr_tlen = (uint16_t)strlen(to),
	};

	return kv_range_owner(ka, &r);
}

static enum kv_owner has_key(const char *key)
{
	return kv_key_owner(db, ka->k_id, key, strlen(key), kv_hash(key, strlen(key)));
}

/* T18: of a range the bound is off only while all that is owned in it is of batches. */
static void a_range_of_a_batch_and_a_transaction_is_of_that(void)
{
	struct kvdb_txn *t, *b;
	struct kv_keylock kl = { .kl_key = (const uint8_t *)"f", .kl_klen = 1,
				 .kl_is_batch = true };

	fresh();
	t = begin(0);
	b = begin(0);
	kl.kl_kvs = ka->k_id;
	kl.kl_hash = kv_hash("f", 1);
	kl.kl_txn = b;
	/* ranges a, e, i, m, q and the key f; m, and the key s, are of the transaction */
	for (const char *p = "aeimq"; *p; p++) {
		char to = (char)(*p + 1);

		T_EQ(kvdb_txn_range_del(*p == 'm' ? t : b, ka, p, 1, &to, 1), 0);
	}
	for (struct kv_touched *tt = b->t_touched; tt; tt = tt->tt_next)
		for (uint32_t i = 0; i < tt->tt_ndel; i++)
			tt->tt_del[i]->td_lock.rl_is_batch = true;
	T_EQ(kv_key_lock(db, &kl), 0);
	T_EQ(kvdb_txn_put(t, ka, "s", 1, "1", 1), 0);
	T_EQ(has("b", "e"), KV_OWNER_NONE);
	T_EQ(has("a", "b"), KV_OWNER_BATCH);
	T_EQ(has("b", "j"), KV_OWNER_BATCH);
	T_EQ(has("f", "g"), KV_OWNER_BATCH);
	T_EQ(has("a", "z"), KV_OWNER_TXN);
	T_EQ(has("a", "ma"), KV_OWNER_TXN);
	T_EQ(has("m5", "q"), KV_OWNER_TXN);
	T_EQ(has("n", "s"), KV_OWNER_BATCH);
	T_EQ(has("n", "t"), KV_OWNER_TXN);
	T_EQ(has_key("a1"), KV_OWNER_BATCH);
	T_EQ(has_key("f"), KV_OWNER_BATCH);
	T_EQ(has_key("g"), KV_OWNER_NONE);
	T_EQ(has_key("m"), KV_OWNER_TXN);
	T_EQ(has_key("s"), KV_OWNER_TXN);
	/* what cannot commit any more owns nothing */
	kv_txn_doom(t, -ECANCELED, KVDB_TXN_CONFLICT);
	T_EQ(has("a", "z"), KV_OWNER_BATCH);
	T_EQ(has_key("s"), KV_OWNER_NONE);
	kvdb_txn_abort(t);
	kv_key_unlock(db, &kl);
	kvdb_txn_abort(b);
	T_EQ(has("a", "z"), KV_OWNER_NONE);
	end();
}

static struct claim {
	struct kv_keylock *key;		/* in a page that no thread may write to at first */
	_Atomic(bool) stands;
	int err;
} cl;

/* It has looked at ranges, and is about to be in its list. */
static void on_claim(int sig)
{
	(void)sig;
	atomic_store(&cl.stands, true);
	usleep(100000);
	if (mprotect(cl.key, 4096, PROT_READ | PROT_WRITE))
		abort();
}

static void *claim_main(void *arg)
{
	cl.err = kv_key_lock(db, cl.key);
	return arg;
}

/* T12: however close together they come. */
static void of_a_key_and_a_range_claimed_at_once_one_is_refused(void)
{
	struct kv_rangelock rl = { .rl_range = { .tr_from = (const uint8_t *)"a", .tr_flen = 1,
						 .tr_to = (const uint8_t *)"z", .tr_tlen = 1 } };
	struct sigaction sa = { .sa_handler = on_claim }, was;
	pthread_t thread;

	fresh();
	cl = (struct claim){ .key = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) };
	T_OK(cl.key != MAP_FAILED);
	*cl.key = (struct kv_keylock){ .kl_key = (const uint8_t *)"f", .kl_klen = 1,
				       .kl_kvs = ka->k_id, .kl_hash = kv_hash("f", 1),
				       .kl_txn = begin(0) };
	T_EQ(mprotect(cl.key, 4096, PROT_READ), 0);
	rl.rl_kvs = ka->k_id;
	rl.rl_txn = begin(0);
	sigaction(SIGSEGV, &sa, &was);
	T_EQ(pthread_create(&thread, NULL, claim_main, NULL), 0);
	while (!atomic_load(&cl.stands))
		usleep(1000);
	T_EQ(kv_range_lock(db, &rl), -EBUSY);
	pthread_join(thread, NULL);
	sigaction(SIGSEGV, &was, NULL);
	T_EQ(cl.err, 0);
	kv_key_unlock(db, cl.key);
	kvdb_txn_abort(cl.key->kl_txn);
	kvdb_txn_abort(rl.rl_txn);
	munmap(cl.key, 4096);
	end();
}

/* U1: what was read was deleted, and put again by the same transaction, before it is written. */
static int deleted_meanwhile(void *arg, const void *old, size_t olen, const void **val,
			     size_t *vlen)
{
	unsigned *calls = arg;
	struct kvdb_txn *t;

	if (!(*calls)++) {
		T_OK(old && olen == 3);
		t = begin(0);
		T_EQ(kvdb_txn_prefix_del(t, ka, "r", 1), 0);
		T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	} else {
		T_OK(!old);
	}
	*val = "upd";
	*vlen = 3;
	return KVDB_UPDATE_PUT;
}

static void an_update_notices_the_delete_of_a_transaction(void)
{
	unsigned calls = 0;

	fresh();
	before();
	T_EQ(kvdb_update(ka, "r1", 2, deleted_meanwhile, &calls), 0);
	T_EQ(calls, 2);
	expect(ka, "r1", "upd");
	expect(ka, "r2", NULL);
	end();
}

/* ---- what media hold ------------------------------------------------------------------------- */

static bool announces(void)
{
	return db->d_mdc->m_st.st_super.ms_incompat & KV_FEAT_TXN_RANGES;
}

static void commit_durably(void)
{
	struct kvdb_txn *t;

	before();
	T_OK(!announces());
	t = write_all();
	T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, NULL), 0);
}

static void ranges_are_announced_before_they_are_logged(void)
{
	make_db();
	t_die_in(open_db, commit_durably);
	open_db();
	T_OK(announces());
	expect_all(true);
	end();
}

static void announce_nothing(void)
{
	atomic_fetch_or(&db->d_mdc->m_allows, KV_FEAT_TXN_RANGES);
	commit_durably();
}

static void a_range_that_was_not_announced_is_refused(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	make_db();
	t_die_in(open_db, announce_nothing);
	o.flags = KVDB_MANUAL;
	o.clock = &test_clock;
	T_EQ(kvdb_open(dir, &o, &db), -EUCLEAN);
	T_STREQ(kvdb_error_detail()->id, "MP0960");
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* ---- tombstones that meet a range ------------------------------------------------------------ */

#define ROWS	200u
#define SPAN	40u

static uint64_t rnd_state;

static unsigned rnd(unsigned n)
{
	rnd_state = rnd_state * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(rnd_state >> 33) % n;
}

/* Keys of one to three bytes out of few. */
static uint16_t some_key(uint8_t *key)
{
	uint16_t n = (uint16_t)(1 + rnd(3));

	for (unsigned i = 0; i < n; i++)
		key[i] = (uint8_t)("ab\xff"[rnd(3)]);
	return n;
}

static void some_range(struct kv_trange *r, uint8_t *mem, bool may_be_prefix)
{
	do {
		*r = (struct kv_trange){ .tr_from = mem, .tr_to = mem + 4,
					 .tr_seq = 1 + rnd(SPAN) };
		r->tr_flen = rnd(8) ? some_key(mem) : 0;
		if (may_be_prefix && rnd(2)) {
			memcpy(mem, "ab", 2);
			mem[1] = (uint8_t)("ab\xff"[rnd(3)]);
			r->tr_flen = 2;
			r->tr_flags = KV_TR_PREFIX;
			return;
		}
		if (rnd(6))
			r->tr_tlen = some_key(mem + 4);
		else
			r->tr_flags = KV_TR_ENDLESS;
	} while (!r->tr_flags &&
		 kv_key_cmp(r->tr_from, r->tr_flen, r->tr_to, r->tr_tlen) >= 0);
}

static void tombstones_that_meet_a_range_are_found(void)
{
	static uint8_t mem[ROWS][8], at[8];
	struct kv_trange rows[ROWS], r;
	uint64_t found = 0;

	rnd_state = t_seed();
	for (unsigned round = 0; round < 300; round++) {
		unsigned n = 1 + rnd(round % 3 ? 5 : ROWS);
		struct kv_tindex *ti;

		for (unsigned i = 0; i < n; i++)
			some_range(&rows[i], mem[i], round % 2);
		ti = kv_tindex_new(rows, n, NULL);
		T_OK(ti);
		for (unsigned i = 0; i < 100; i++) {
			uint64_t v = rnd(SPAN + 2);
			bool is = false;

			some_range(&r, at, false);
			for (unsigned k = 0; k < n; k++)
				is |= rows[k].tr_seq > v &&
				      kv_trange_meets(&rows[k], r.tr_from, r.tr_flen,
						      r.tr_flags ? NULL : r.tr_to, r.tr_tlen);
			T_EQ(kv_tindex_meets(ti, &r, v), is);
			found += is;
		}
		kv_tindex_free(ti);
	}
	T_OK(found > 1000);
}

int main(void)
{
	T_RUN(a_claim_waits_for_writes_that_have_not_seen_it);
	T_RUN(a_range_of_a_batch_and_a_transaction_is_of_that);
	T_RUN(of_a_key_and_a_range_claimed_at_once_one_is_refused);
	T_RUN(an_update_notices_the_delete_of_a_transaction);
	T_RUN(ranges_are_announced_before_they_are_logged);
	T_RUN(a_range_that_was_not_announced_is_refused);
	T_RUN(tombstones_that_meet_a_range_are_found);
	return t_done();
}
