/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Batches (kvdb_write()) through the public API: their order, what readers and a crash see of
 * them, what they wait for and what waits for them, limits, refusals.
 */
#include "kvdb_txn_help.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#define OPS 600u

/* A batch that is being made. */
static struct kvdb_op op[OPS];
static unsigned nops;

static struct kvdb_op *add(uint32_t type, struct kvdb_kvs *k, const void *key, size_t klen)
{
	struct kvdb_op *p = &op[nops++];

	memset(p, 0, sizeof(*p));
	p->type = type;
	p->kvs = k;
	p->key = key;
	p->klen = klen;
	return p;
}

static void bput(struct kvdb_kvs *k, const char *key, const char *val)
{
	struct kvdb_op *p = add(KVDB_OP_PUT, k, key, strlen(key));

	p->val = val;
	p->size = strlen(val);
}

static void bdel(struct kvdb_kvs *k, const char *key)
{
	add(KVDB_OP_DEL, k, key, strlen(key));
}

static void brange(struct kvdb_kvs *k, const char *from, const char *to)
{
	struct kvdb_op *p = add(KVDB_OP_RANGE_DEL, k, from, from ? strlen(from) : 0);

	p->val = to;
	p->size = to ? strlen(to) : 0;
}

static int bwrite(unsigned flags)
{
	unsigned n = nops;

	nops = 0;
	return kvdb_write(kh_db, op, n, flags, NULL);
}

static void plain(struct kvdb_kvs *k, const char *keys)
{
	for (; *keys; keys++)
		T_EQ(kvdb_put(k, keys, 1, keys, 1), 0);
}

/* All keys, of one byte each. */
static void shows(struct kvdb_kvs *k, const char *want)
{
	struct kvdb_cursor *c;
	const void *key;
	char out[300];
	size_t klen, n = 0;

	T_EQ(kvdb_cursor_open(k, 0, NULL, 0, &c), 0);
	while (!kvdb_cursor_next(c, &key, &klen, NULL, NULL))
		out[n++] = *(const char *)key;
	out[n] = 0;
	kvdb_cursor_close(c);
	T_STREQ(out, want);
	for (char i = 'a'; i <= 'z'; i++)
		T_EQ(kvdb_get(k, &i, 1, NULL, 0, &klen), strchr(want, i) ? 0 : -ENOENT);
}

static bool holds(struct kvdb_kvs *k, const char *key, const char *val)
{
	char buf[64];
	size_t len = 0;
	int err = kvdb_get(k, key, strlen(key), buf, sizeof(buf), &len);

	return val ? !err && len == strlen(val) && !memcmp(buf, val, len) : err == -ENOENT;
}

/* ---- what it does ---------------------------------------------------------------------------- */

static char large[5000];

static void fill_batch(void)
{
	memset(large, 'L', sizeof(large));
	bput(ka, "x", "1");
	bdel(ka, "b");
	bput(kb, "y", "2");
	bput(kb, "z", "");
	brange(ka, "c", "e");
	add(KVDB_OP_PUT, kb, "l", 1)->val = large;
	op[nops - 1].size = sizeof(large);
}

static void is_written(void)
{
	shows(ka, "aefgx");
	shows(kb, "lyz");
	T_OK(holds(ka, "x", "1") && holds(kb, "y", "2") && holds(kb, "z", ""));
	T_OK(kvdb_get(kb, "l", 1, kh_buf, sizeof(large), NULL) == 0 &&
	     !memcmp(kh_buf, large, sizeof(large)));
}

static void a_batch_is_written_to_several_stores(void)
{
	struct kvdb_stats st;

	fresh();
	plain(ka, "abcdefg");
	fill_batch();
	T_EQ(bwrite(0), 0);
	is_written();
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(st.puts, 7 + 4);
	T_EQ(st.dels, 2);
	T_EQ(st.views, 0);
	T_EQ(st.txn_begun, 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	is_written();
	kh_close();
	kh_open();
	ka = kh_kvs("a");
	kb = kh_kvs("b");
	is_written();
	kh_close();
}

static void its_order_counts(void)
{
	fresh();
	plain(ka, "abcdef");
	bput(ka, "b", "lost");
	bput(ka, "b", "1");
	brange(ka, "b", "e");
	bput(ka, "c", "lost");
	bput(ka, "c", "2");
	bdel(ka, "d");
	bput(ka, "d", "3");
	bput(ka, "f", "lost");
	bdel(ka, "f");
	T_EQ(bwrite(0), 0);
	shows(ka, "acde");
	T_OK(holds(ka, "c", "2") && holds(ka, "d", "3"));
	/* ranges that meet, one without an end and one that is none */
	brange(ka, NULL, "b");
	brange(ka, "b", "d");
	brange(ka, "e", "e");
	bput(ka, "a", "4");
	T_EQ(bwrite(0), 0);
	shows(ka, "ade");
	brange(ka, "d", NULL);
	T_EQ(bwrite(0), 0);
	shows(ka, "a");
	/* what nothing is written by */
	brange(ka, "e", "d");
	T_EQ(bwrite(KVDB_OP_DURABLE), 0);
	brange(ka, NULL, NULL);
	T_EQ(bwrite(0), 0);
	shows(ka, "");
	kh_close();
}

/* More than one key of a store, and more than a table of few. */
static void keys_that_come_again_are_one(void)
{
	static char key[OPS][8];
	char want[8];

	fresh();
	for (unsigned i = 0; i < OPS; i++) {
		snprintf(key[i], sizeof(key[i]), "%03u", i % 100);
		add(KVDB_OP_PUT, i % 2 ? ka : kb, key[i], 3)->val = &key[i];
		op[nops - 1].size = 3;
		if (i >= 500)
			op[nops - 1].val = "new";
	}
	T_EQ(bwrite(0), 0);
	T_EQ(kh_count(ka, 0), 50);
	T_EQ(kh_count(kb, 0), 50);
	for (unsigned i = 0; i < 100; i++) {
		snprintf(want, sizeof(want), "%03u", i);
		T_OK(holds(i % 2 ? ka : kb, want, "new"));
	}
	kh_close();
}

static void tickets_are_of_the_batch(void)
{
	uint64_t ticket = 0;

	fresh();
	bput(ka, "a", "1");
	T_EQ(kvdb_write(kh_db, op, 1, 0, &ticket), 0);
	T_EQ(kvdb_wait_durable(kh_db, ticket), 0);
	T_EQ(kvdb_durable_within(kh_db, ticket, 0), 1);
	T_EQ(kvdb_write(kh_db, op, 1, KVDB_OP_DURABLE, &ticket), 0);
	T_EQ(kvdb_durable_within(kh_db, ticket, 0), 1);
	ticket = 0;
	T_EQ(kvdb_write(kh_db, NULL, 0, KVDB_OP_DURABLE, &ticket), 0);
	T_OK(ticket);
	T_EQ(kvdb_wait_durable(kh_db, ticket), 0);
	nops = 0;
	kh_close();
}

static void options_of_a_store_are_as_for_a_put(void)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	struct kvdb_kvs *k;

	fresh();
	o.ttl_s = 1;
	T_EQ(kvdb_kvs_create(kh_db, "short", &o), 0);
	T_EQ(kvdb_kvs_open(kh_db, "short", &k), 0);
	bput(k, "k", "v");
	bput(ka, "k", "v");
	T_EQ(bwrite(KVDB_OP_DURABLE), 0);
	T_OK(holds(k, "k", "v"));
	usleep(1200000);
	T_OK(holds(k, "k", NULL));
	T_OK(holds(ka, "k", "v"));
	o = (struct kvdb_kvs_opts)KVDB_KVS_OPTS_INIT;
	o.pfx_len = 2;
	T_EQ(kvdb_kvs_create(kh_db, "pfx", &o), 0);
	T_EQ(kvdb_kvs_open(kh_db, "pfx", &k), 0);
	T_EQ(kvdb_put(k, "aa1", 3, "v", 1), 0);
	T_EQ(kvdb_put(k, "ab1", 3, "v", 1), 0);
	brange(k, "aa", "ab");
	bput(k, "aa2", "v");
	T_EQ(bwrite(0), 0);
	T_OK(holds(k, "aa1", NULL) && holds(k, "ab1", "v") && holds(k, "aa2", "v"));
	T_EQ(kvdb_prefix_del(k, "aa", 2), 0);
	T_OK(holds(k, "aa2", NULL));
	kh_close();
}

/* ---- readers --------------------------------------------------------------------------------- */

static _Atomic(bool) is_over;
static _Atomic(unsigned) wrong, looks, given_up;

/* Every key has the value that the first one has, or all are deleted. */
static void look(char (*key)[16], unsigned n)
{
	unsigned first = 0, v;
	struct kvdb_txn *t;
	int rc, rc0 = 0;
	size_t len;

	if (kvdb_txn_begin(kh_db, KVDB_TXN_RDONLY, &t))
		return;
	for (unsigned i = 0; i < n; i++) {
		rc = kvdb_txn_get(t, i % 2 ? ka : kb, key[i], 4, &v, sizeof(v), &len);
		/* its snapshot held too much memory */
		if (rc == -ESTALE) {
			given_up++;
			break;
		}
		if (!i) {
			rc0 = rc;
			first = v;
		}
		wrong += rc != rc0 || (!rc && v != first);
	}
	looks++;
	kvdb_txn_abort(t);
}

static char seen_key[4000][16];
static unsigned seen_n;

static void *reader(void *arg)
{
	(void)arg;
	while (!is_over)
		look(seen_key, seen_n);
	return NULL;
}

static void watch(unsigned n, unsigned rounds)
{
	struct kvdb_op *all = calloc(n + 2, sizeof(*all));
	pthread_t th[2];

	fresh();
	seen_n = n;
	is_over = false;
	wrong = looks = given_up = 0;
	for (unsigned i = 0; i < n; i++)
		snprintf(seen_key[i], sizeof(seen_key[i]), "%04u", i);
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&th[i], NULL, reader, NULL);
	for (unsigned r = 0; r < rounds; r++) {
		/* of three rounds one deletes both stores' keys and puts none */
		bool puts = r % 3 != 2;

		for (unsigned i = 0; i < 2; i++)
			all[i] = (struct kvdb_op){ .type = KVDB_OP_RANGE_DEL, .kvs = i ? ka : kb };
		for (unsigned i = 0; i < n; i++)
			all[i + 2] = (struct kvdb_op){
				.type = puts ? KVDB_OP_PUT : KVDB_OP_DEL,
				.kvs = i % 2 ? ka : kb, .key = seen_key[i], .klen = 4,
				.val = &r, .size = puts ? sizeof(r) : 0 };
		T_EQ(kvdb_write(kh_db, r % 2 ? all : all + 2, r % 2 ? n + 2 : n, 0, NULL), 0);
	}
	is_over = true;
	for (unsigned i = 0; i < 2; i++)
		pthread_join(th[i], NULL);
	free(all);
	printf("# %u of %u snapshots were given up\n", given_up, looks);
	T_EQ(wrong, 0);
	T_OK(looks > given_up);
	kh_close();
}

static void readers_see_all_of_it_or_nothing(void)
{
	watch(40, 3000);
}

/* Its memtables stay while it is linked. */
static void readers_see_all_of_a_large_one_or_nothing(void)
{
	watch(4000, 40);
}

static void a_view_is_as_old_as_it_is(void)
{
	struct kvdb_txn *t, *w;
	struct kvdb_cursor *c;
	size_t len;

	fresh();
	plain(ka, "ab");
	t = begin(KVDB_TXN_RDONLY);
	w = begin(0);
	T_EQ(kvdb_cursor_open(ka, 0, NULL, 0, &c), 0);
	bput(ka, "c", "1");
	brange(ka, "a", "b");
	bput(ka, "b", "1");
	T_EQ(bwrite(0), 0);
	T_EQ(kvdb_txn_get(t, ka, "a", 1, NULL, 0, &len), 0);
	T_EQ(kvdb_txn_get(t, ka, "c", 1, NULL, 0, &len), -ENOENT);
	T_EQ(kvdb_cursor_next(c, NULL, NULL, NULL, NULL), 0);
	T_EQ(kvdb_cursor_next(c, NULL, NULL, NULL, NULL), 0);
	T_EQ(kvdb_cursor_next(c, NULL, NULL, NULL, NULL), -ENOENT);
	kvdb_cursor_close(c);
	/* one that began before it was second with its keys, and with those of its range */
	T_EQ(tput(w, ka, "z", "1"), 0);
	T_EQ(tput(w, ka, "c", "2"), -ECANCELED);
	kvdb_txn_abort(w);
	kvdb_txn_abort(t);
	t = begin(0);
	brange(ka, "x", "z");
	T_EQ(bwrite(0), 0);
	T_EQ(tput(t, ka, "y", "2"), -ECANCELED);
	kvdb_txn_abort(t);
	shows(ka, "bc");
	kh_close();
}

/* ---- owners ---------------------------------------------------------------------------------- */

static _Atomic(int) result;	/* 1: it has not come back */

static void *write_it(void *arg)
{
	(void)arg;
	result = bwrite(0);
	return NULL;
}

static pthread_t start(void)
{
	pthread_t th;

	result = 1;
	pthread_create(&th, NULL, write_it, NULL);
	usleep(100000);
	T_EQ(result, 1);
	return th;
}

static void ends(pthread_t th, int want)
{
	pthread_join(th, NULL);
	T_EQ(result, want);
}

static void it_waits_for_the_owner_of_a_key(void)
{
	struct kvdb_txn *t;
	pthread_t th;

	fresh();
	for (unsigned i = 0; i < 2; i++) {
		t = begin(0);
		T_EQ(tput(t, ka, "k", "txn"), 0);
		bput(ka, "k", "batch");
		bput(kb, "other", "batch");
		th = start();
		/* it keeps nothing from others meanwhile */
		T_EQ(kvdb_put(kb, "other", 5, "put", 3), 0);
		T_EQ(tput(t, kb, "more", "txn"), 0);
		if (i)
			kvdb_txn_abort(t);
		else
			T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
		ends(th, 0);
		T_OK(holds(ka, "k", "batch") && holds(kb, "other", "batch"));
		T_OK(holds(kb, "more", "txn"));
	}
	kh_close();
}

static void it_waits_for_the_owner_of_a_range(void)
{
	struct kvdb_txn *t;
	pthread_t th;

	fresh();
	plain(ka, "klm");
	/* its key lies in an owned range */
	t = begin(0);
	T_EQ(kvdb_txn_range_del(t, ka, "a", 1, "z", 1), 0);
	bput(ka, "k", "batch");
	th = start();
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	ends(th, 0);
	shows(ka, "k");
	/* its range has an owned key */
	t = begin(0);
	T_EQ(tput(t, ka, "k", "txn"), 0);
	brange(ka, "a", "z");
	bput(kb, "b", "batch");
	th = start();
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	ends(th, 0);
	shows(ka, "");
	shows(kb, "b");
	kh_close();
}

/* For a second, as a plain write, and then nothing of it is there. */
static void an_owner_that_stays_ends_it(void)
{
	struct kvdb_txn *t;

	fresh();
	t = begin(0);
	T_EQ(tput(t, ka, "k", "txn"), 0);
	bput(kb, "b", "batch");
	bput(ka, "k", "batch");
	T_EQ(bwrite(0), -ECANCELED);
	T_STREQ(kvdb_error_detail()->id, "MP0921");
	brange(ka, "a", "z");
	bput(kb, "b", "batch");
	T_EQ(bwrite(0), -ECANCELED);
	T_OK(holds(kb, "b", NULL) && holds(ka, "k", NULL));
	T_EQ(kvdb_put(kb, "b", 1, "put", 3), 0);
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	T_OK(holds(ka, "k", "txn") && holds(kb, "b", "put"));
	kh_close();
}

/* ---- many at once ---------------------------------------------------------------------------- */

#define WRITERS 4u
#define COMMON 12u

static _Atomic(unsigned) refused, done, lost;

/* Batches of the same keys, forwards, backwards and by ranges, and plain writes of them. */
static void *fight(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	struct kvdb_op my[COMMON + 1];
	char key[COMMON][4];
	unsigned v;

	for (unsigned i = 0; i < COMMON; i++)
		snprintf(key[i], sizeof(key[i]), "%02u", i);
	for (unsigned r = 0; !is_over; r++) {
		unsigned n = 0;

		v = r * WRITERS + me;
		if (r % 3 == 2)
			my[n++] = (struct kvdb_op){ .type = KVDB_OP_RANGE_DEL, .kvs = ka,
						    .key = "03", .klen = 2, .val = "09",
						    .size = 2 };
		for (unsigned i = 0; i < COMMON; i++) {
			unsigned at = me % 2 ? i : COMMON - 1 - i;

			my[n++] = (struct kvdb_op){ .type = KVDB_OP_PUT, .kvs = ka,
						    .key = key[at], .klen = 2, .val = &v,
						    .size = sizeof(v) };
		}
		refused += kvdb_write(kh_db, my, n, 0, NULL) != 0;
		done++;
	}
	return NULL;
}

static void *plainly(void *arg)
{
	(void)arg;
	while (!is_over) {
		/* beside those keys, in their ranges, and a delete of many of them */
		refused += kvdb_put(ka, "05x", 3, "p", 1) != 0;
		refused += kvdb_put(ka, "20", 2, "p", 1) != 0;
		refused += kvdb_range_del(ka, "04x", 3, "04z", 3) != 0;
		refused += kvdb_del(ka, "05x", 3) != 0;
	}
	return NULL;
}

static void *transact(void *arg)
{
	struct kvdb_txn *t;
	char key[4];
	int rc = 0;

	(void)arg;
	while (!is_over) {
		if (kvdb_txn_begin(kh_db, 0, &t))
			continue;
		for (unsigned i = 0; i < COMMON && !rc; i++) {
			snprintf(key, sizeof(key), "%02u", i);
			rc = kvdb_txn_put(t, ka, key, 2, "txn ", 4);
		}
		rc = kvdb_txn_commit(t, 0, NULL);
		lost += rc != 0;
		refused += rc && rc != -ECANCELED;
		rc = 0;
	}
	return NULL;
}

static void one_value(void)
{
	unsigned v, first = 0;
	char key[4];
	size_t len;

	for (unsigned i = 0; i < COMMON; i++) {
		snprintf(key, sizeof(key), "%02u", i);
		T_EQ(kvdb_get(ka, key, 2, &v, sizeof(v), &len), 0);
		first = i ? first : v;
		T_EQ(v, first);
	}
}

static void run_all(unsigned batches, bool with_plain, bool with_txns)
{
	pthread_t th[WRITERS + 2];
	unsigned n = 0;

	is_over = false;
	refused = done = lost = 0;
	for (unsigned i = 0; i < batches; i++)
		pthread_create(&th[n++], NULL, fight, (void *)(uintptr_t)i);
	if (with_plain)
		pthread_create(&th[n++], NULL, plainly, NULL);
	if (with_txns)
		pthread_create(&th[n++], NULL, transact, NULL);
	usleep(1500000);
	is_over = true;
	while (n)
		pthread_join(th[--n], NULL);
	T_EQ(refused, 0);
	T_OK(done > 20);
	one_value();
}

/* None ends otherwise than written, whatever the order of their keys. */
static void batches_with_common_keys_end(void)
{
	fresh();
	run_all(WRITERS, false, false);
	run_all(WRITERS, true, false);
	kh_close();
}

static void transactions_beside_them_are_whole(void)
{
	fresh();
	run_all(2, true, true);
	kh_close();
	kh_open();
	ka = kh_kvs("a");
	one_value();
	kh_close();
}

static void *write_large(void *arg)
{
	struct kvdb_op *all = arg;

	refused += kvdb_write(kh_db, all, 15000, 0, NULL) != 0;
	return NULL;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static struct kvdb_cq *cq;
static struct kvdb_op qop[2][OPS];

/* What is in op[] goes into the queue, as number @i. */
static void submit(unsigned i, unsigned flags)
{
	struct kvdb_op w = { .type = KVDB_OP_WRITE, .flags = flags, .cookie = i, .ops = qop[i],
			     .size = nops };

	memcpy(qop[i], op, nops * sizeof(op[0]));
	nops = 0;
	T_EQ(kvdb_cq_submit(cq, &w, 1), 1);
}

static int reap(uint64_t cookie)
{
	struct kvdb_cqe e;

	T_EQ(kvdb_cq_reap(cq, &e, 1, 1, -1), 1);
	T_EQ(e.cookie, cookie);
	return e.err;
}

static unsigned none_done(void)
{
	struct kvdb_cqe e;

	return (unsigned)kvdb_cq_reap(cq, &e, 1, 0, 0);
}

static void a_queue_takes_batches(void)
{
	struct kvdb_op w = { .type = KVDB_OP_WRITE };

	fresh();
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	plain(ka, "abcdefg");
	fill_batch();
	submit(0, KVDB_OP_DURABLE);
	T_EQ(reap(0), 0);
	is_written();
	/* none, bad ones, and one of what it cannot do */
	submit(0, 0);
	T_EQ(reap(0), 0);
	bput(ka, "q", "1");
	bput(ka, "", "1");
	submit(1, 0);
	T_EQ(reap(1), -EINVAL);
	bput(ka, "q", "1");
	submit(0, KVDB_OP_SNAPSHOT);
	T_EQ(reap(0), -EINVAL);
	w.size = 1;
	T_EQ(kvdb_cq_submit(cq, &w, 1), 1);
	T_EQ(reap(0), -EINVAL);
	brange(ka, NULL, NULL);
	T_EQ(kvdb_cq_submit(cq, op, 1), 1);
	T_EQ(reap(0), -EINVAL);
	nops = 0;
	is_written();
	kvdb_cq_close(cq);
	kh_close();
}

/* The commit that it waits for stands behind it in the queue; then one that ends by abort. */
static void a_batch_waits_in_its_queue(void)
{
	struct kvdb_op c = { .type = KVDB_OP_COMMIT, .cookie = 7 };

	fresh();
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	c.txn = begin(0);
	T_EQ(tput(c.txn, ka, "k", "txn"), 0);
	bput(kb, "b", "batch");
	bput(ka, "k", "batch");
	submit(0, 0);
	brange(ka, "a", "z");
	submit(1, 0);
	T_EQ(none_done(), 0);
	T_EQ(kvdb_put(kb, "b", 1, "put", 3), 0);
	T_EQ(kvdb_cq_submit(cq, &c, 1), 1);
	T_EQ(reap(7), 0);
	T_EQ(reap(0), 0);
	T_EQ(reap(1), 0);
	T_OK(holds(kb, "b", "batch") && holds(ka, "k", NULL));
	c.txn = begin(0);
	T_EQ(tput(c.txn, ka, "k", "txn"), 0);
	bput(ka, "k", "batch");
	submit(0, 0);
	T_EQ(none_done(), 0);
	kvdb_txn_abort(c.txn);
	T_EQ(reap(0), 0);
	T_OK(holds(ka, "k", "batch"));
	/* an owner that stays */
	c.txn = begin(0);
	T_EQ(kvdb_txn_range_del(c.txn, ka, "a", 1, "z", 1), 0);
	bput(kb, "b", "late");
	bput(ka, "k", "late");
	submit(0, 0);
	T_EQ(reap(0), -ECANCELED);
	/* and one that is forgotten */
	bput(ka, "k", "late");
	submit(0, 0);
	T_EQ(none_done(), 0);
	kvdb_cq_close(cq);
	kvdb_txn_abort(c.txn);
	T_OK(holds(kb, "b", "batch") && holds(ka, "k", "batch"));
	kh_close();
}

static void *queued(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg, n = 0;
	struct kvdb_op my[8][COMMON], w[8];
	char key[COMMON][16];
	unsigned v[8];
	struct kvdb_cq *q;
	struct kvdb_cqe e[8];
	int got;

	if (kvdb_cq_open(kh_db, 0, 0, &q)) {
		refused++;
		return NULL;
	}
	for (unsigned i = 0; i < COMMON; i++)
		snprintf(key[i], sizeof(key[i]), "%02u", i);
	for (unsigned r = 0; !is_over; r++) {
		for (unsigned b = 0; b < 8; b++) {
			v[b] = (r * 8 + b) * WRITERS + me;
			for (unsigned i = 0; i < COMMON; i++)
				my[b][i] = (struct kvdb_op){
					.type = KVDB_OP_PUT, .kvs = ka,
					.key = key[me % 2 ? i : COMMON - 1 - i], .klen = 2,
					.val = &v[b], .size = sizeof(v[b]) };
			w[b] = (struct kvdb_op){ .type = KVDB_OP_WRITE, .ops = my[b],
						 .size = COMMON };
		}
		refused += kvdb_cq_submit(q, w, 8) != 8;
		for (n = 0; n < 8; n += (unsigned)got) {
			got = kvdb_cq_reap(q, e, 8, 8 - n, -1);
			if (got < 0) {
				refused++;
				return NULL;
			}
			for (int i = 0; i < got; i++)
				refused += e[i].err != 0;
			done += (unsigned)got;
		}
	}
	kvdb_cq_close(q);
	return NULL;
}

static void queues_and_threads_share_keys(void)
{
	pthread_t th[4];

	fresh();
	is_over = false;
	refused = done = 0;
	for (unsigned i = 0; i < 4; i++)
		pthread_create(&th[i], NULL, i < 2 ? queued : fight, (void *)(uintptr_t)i);
	usleep(1500000);
	is_over = true;
	for (unsigned i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	T_EQ(refused, 0);
	T_OK(done > 20);
	one_value();
	kh_close();
}

/* Several large ones, of which one at a time has memory. */
static void large_ones_wait_in_a_queue(void)
{
	struct kvdb_op *all = calloc(15000, sizeof(*all)), w[3];
	char (*keys)[12] = calloc(15000, sizeof(*keys));
	pthread_t th;

	fresh();
	T_EQ(kvdb_cq_open(kh_db, 0, 0, &cq), 0);
	for (unsigned i = 0; i < 15000; i++) {
		snprintf(keys[i], sizeof(keys[i]), "%08u", i);
		all[i] = (struct kvdb_op){ .type = KVDB_OP_PUT, .kvs = i % 2 ? ka : kb,
					   .key = keys[i], .klen = 8, .val = kh_want,
					   .size = i % 100 ? 100 : 3000 };
	}
	refused = 0;
	pthread_create(&th, NULL, write_large, all);
	for (unsigned i = 0; i < 3; i++)
		w[i] = (struct kvdb_op){ .type = KVDB_OP_WRITE, .cookie = i, .ops = all,
					 .size = 15000 };
	T_EQ(kvdb_cq_submit(cq, w, 3), 3);
	for (unsigned i = 0; i < 3; i++)
		T_EQ(reap(i), 0);
	pthread_join(th, NULL);
	T_EQ(refused, 0);
	T_EQ(kh_count(ka, 0) + kh_count(kb, 0), 15000);
	kvdb_cq_close(cq);
	kh_close();
	free(all);
	free(keys);
}

/* ---- limits and refusals --------------------------------------------------------------------- */

#define REFUSED(code) do {			\
	T_EQ(bwrite(0), code);			\
	T_EQ(kvdb_error_detail()->err, code);	\
	shows(ka, "a");				\
} while (0)

static void bad_arguments_are_refused(void)
{
	static char key[KVDB_KEY_MAX + 1];
	struct kvdb_kvs *gone = NULL;

	fresh();
	plain(ka, "a");
	T_EQ(kvdb_write(kh_db, op, 0, 4, NULL), -EINVAL);
	T_EQ(kvdb_write(kh_db, NULL, 1, 0, NULL), -EINVAL);
	T_EQ(kvdb_write(kh_db, NULL, 0, 0, NULL), 0);
	for (unsigned type = 0; type < 12; type++) {
		if (type == KVDB_OP_PUT || type == KVDB_OP_DEL || type == KVDB_OP_RANGE_DEL)
			continue;
		bput(ka, "b", "1");
		add(type, ka, "c", 1);
		REFUSED(-EINVAL);
	}
	bput(ka, "b", "1");
	bput(NULL, "b", "1");
	REFUSED(-EINVAL);
	bput(ka, "b", "1");
	op[0].flags = KVDB_OP_DURABLE;
	REFUSED(-EINVAL);
	bput(ka, "b", "1");
	bput(ka, "", "1");
	REFUSED(-EINVAL);
	bput(ka, "b", "1");
	add(KVDB_OP_DEL, ka, NULL, 1);
	REFUSED(-EINVAL);
	bput(ka, "b", "1");
	add(KVDB_OP_DEL, ka, key, sizeof(key));
	REFUSED(-ENAMETOOLONG);
	bput(ka, "b", "1");
	op[0].val = NULL;
	REFUSED(-EINVAL);
	bput(ka, "b", "1");
	op[0].size = KVDB_VALUE_MAX + 1;
	REFUSED(-E2BIG);
	brange(ka, NULL, NULL);
	op[0].klen = 1;
	REFUSED(-EINVAL);
	brange(ka, NULL, NULL);
	op[0].size = 1;
	REFUSED(-EINVAL);
	brange(ka, "", NULL);
	REFUSED(-EINVAL);
	brange(ka, NULL, "");
	REFUSED(-EINVAL);
	brange(ka, "b", key);
	op[0].size = sizeof(key);
	REFUSED(-ENAMETOOLONG);
	gone = kh_kvs("gone");
	T_EQ(kvdb_kvs_drop(kh_db, "gone"), 0);
	bput(ka, "b", "1");
	bput(gone, "b", "1");
	REFUSED(-ENOENT);
	kh_close();
}

static void a_store_of_another_database_is_refused(void)
{
	struct kvdb_kvs *other;
	struct kvdb *db;

	fresh();
	plain(ka, "a");
	db = kh_db;
	other = ka;
	th_fresh();
	T_EQ(th_create_at(th_pool, 192 * MIB, 0), 0);
	T_EQ(kvdb_create(th_pool, NULL), 0);
	kh_open();
	ka = kh_kvs("a");
	plain(ka, "a");
	bput(ka, "b", "1");
	bput(other, "b", "1");
	REFUSED(-EINVAL);
	kh_close();
	T_EQ(kvdb_close(db), 0);
}

static void a_reader_writes_none(void)
{
	fresh();
	plain(ka, "a");
	kh_close();
	T_EQ(kh_open_with(KVDB_RDONLY), 0);
	ka = kh_kvs("a");
	bput(ka, "b", "1");
	REFUSED(-EROFS);
	kh_close();
}

/* Deletes find room in the reserve; of what puts there is nothing. */
static void a_full_pool_takes_deletes_only(void)
{
	char key[16];
	unsigned n = 0;
	int rc = 0;

	kh_fresh(96 * MIB, 0);
	ka = kh_kvs("a");
	kb = kh_kvs("b");
	for (; !rc; n++) {
		snprintf(key, sizeof(key), "%08u", n);
		rc = kh_put(ka, key, 8, n, 60000);
	}
	T_EQ(rc, -ENOSPC);
	for (unsigned i = 0; i < 40; i++) {
		bput(kb, "b", "1");
		add(KVDB_OP_PUT, kb, "big", 3)->val = kh_want;
		op[nops - 1].size = 2000000;
		rc = bwrite(0);
		if (rc)
			break;
	}
	T_EQ(rc, -ENOSPC);
	T_EQ(kvdb_del(kb, "b", 1), 0);
	bput(kb, "b", "2");
	add(KVDB_OP_PUT, kb, "big", 3)->val = kh_want;
	op[nops - 1].size = 2000000;
	T_EQ(bwrite(0), -ENOSPC);
	T_OK(holds(kb, "b", NULL));
	brange(ka, "00000010", NULL);
	bdel(kb, "big");
	T_EQ(bwrite(KVDB_OP_DURABLE), 0);
	T_EQ(kh_count(ka, 0), 10);
	T_EQ(kh_count(kb, 0), 0);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
}

static void write_and_die(void)
{
	ka = kh_kvs("a");
	kb = kh_kvs("b");
	plain(ka, "abcdefg");
	fill_batch();
	T_EQ(bwrite(KVDB_OP_DURABLE), 0);
}

static void a_crash_leaves_the_whole_of_it(void)
{
	kh_make(192 * MIB, 0);
	kh_die_in(write_and_die);
	memset(large, 'L', sizeof(large));
	for (unsigned i = 0; i < 2; i++) {
		kh_open();
		ka = kh_kvs("a");
		kb = kh_kvs("b");
		is_written();
		kh_close();
	}
	T_EQ(kh_damage(KVDB_VERIFY_DEEP), 0);
}

int main(void)
{
	KH_RUN_MODES(a_batch_is_written_to_several_stores);
	T_RUN(its_order_counts);
	T_RUN(keys_that_come_again_are_one);
	T_RUN(tickets_are_of_the_batch);
	T_RUN(options_of_a_store_are_as_for_a_put);
	T_RUN(readers_see_all_of_it_or_nothing);
	T_RUN(readers_see_all_of_a_large_one_or_nothing);
	T_RUN(a_view_is_as_old_as_it_is);
	T_RUN(it_waits_for_the_owner_of_a_key);
	T_RUN(it_waits_for_the_owner_of_a_range);
	T_RUN(an_owner_that_stays_ends_it);
	T_RUN(batches_with_common_keys_end);
	T_RUN(transactions_beside_them_are_whole);
	KH_RUN_MODES(a_queue_takes_batches);
	T_RUN(a_batch_waits_in_its_queue);
	T_RUN(queues_and_threads_share_keys);
	T_RUN(large_ones_wait_in_a_queue);
	T_RUN(bad_arguments_are_refused);
	T_RUN(a_store_of_another_database_is_refused);
	T_RUN(a_reader_writes_none);
	T_RUN(a_full_pool_takes_deletes_only);
	T_RUN(a_crash_leaves_the_whole_of_it);
	return t_done();
}
