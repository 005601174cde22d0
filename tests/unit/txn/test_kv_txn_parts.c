/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Large transactions: write sets in parts (T15), their memory (T16), and memtables that are not
 * switched while they are linked (T17).
 */
#include "kv_active.h"
#include "kv_committer.h"
#include "obj_flip.h"

#include <fcntl.h>

#include "txn/txn_omf.h"

#define WRITES	3000u	/* in two stores, with keys of 7 bytes: 240 KB in the commit record */

static void key_of(unsigned i, char *key)
{
	snprintf(key, 8, "w%06u", i);
}

static bool no_values;	/* in the value log */

static size_t len_of(unsigned i)
{
	return i % 100 || no_values ? 20 : sizeof(big);
}

/* Every third one is a delete of what was there, every hundredth has a value in the value log. */
static struct kvdb_txn *write_many(void)
{
	struct kvdb_txn *t = begin(0);
	char key[8];

	for (unsigned i = 0; i < WRITES; i++) {
		struct kvdb_kvs *k = i % 2 ? ka : kb;

		key_of(i, key);
		if (i % 3 == 0)
			T_EQ(kvdb_txn_del(t, k, key, 7), 0);
		else
			T_EQ(kvdb_txn_put(t, k, key, 7, big, len_of(i)), 0);
	}
	return t;
}

static void put_some(void)
{
	char key[8];

	for (unsigned i = 0; i < WRITES; i += 30) {
		key_of(i, key);
		put(i % 2 ? ka : kb, key, "old");
	}
}

/* How many of its writes are seen. */
static unsigned seen(void)
{
	static char buf[sizeof(big)];
	unsigned n = 0;
	char key[8];

	for (unsigned i = 0; i < WRITES; i++) {
		size_t len = 0;
		int err;

		key_of(i, key);
		err = kvdb_get(i % 2 ? ka : kb, key, 7, buf, sizeof(buf), &len);
		if (i % 3 == 0)
			n += err == -ENOENT;
		else
			n += !err && len == len_of(i) && !memcmp(buf, big, len);
	}
	return n;
}

static void commit_many(void)
{
	struct kvdb_txn *t;

	put_some();
	t = write_many();
	T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, NULL), 0);
}

static bool announces(void)
{
	return db->d_mdc->m_st.st_super.ms_incompat & KV_FEAT_TXN_PARTS;
}

/* ---- crashes --------------------------------------------------------------------------------- */

static void a_large_write_set_comes_back_from_its_parts(void)
{
	with_parts = true;
	make_db();
	t_die_in(open_db, commit_many);
	T_EQ(damage(), 0);
	for (unsigned i = 0; i < 2; i++) {
		open_db();
		T_OK(announces());
		T_EQ(seen(), WRITES);
		if (!i)
			T_EQ(kvdb_close(db), 0);
	}
	end();
	with_parts = false;
}

static enum stop stop_at;

static void stop_and_sync(void)
{
	uint64_t e;

	committer_start(stop_at);
	T_OK(cm.txn->t_npart);
	put(ka, "after", "2");
	e = atomic_load(&db->d_epochs.ep_open);
	T_EQ(kvdb_sync(db), 0);
	T_OK(atomic_load(&db->d_epochs.ep_durable) >= e);
}

/* Parts whose record was not written count for nothing; with it all of them do. */
static void whole_or_nothing_wherever_it_stops(void)
{
	with_parts = true;
	for (stop_at = AFTER_LINK; stop_at <= AFTER_STAMP; stop_at++) {
		make_db();
		t_die_in(open_db, stop_and_sync);
		T_EQ(damage(), 0);
		open_db();
		expect(ka, "after", "2");
		expect_all(stop_at >= AFTER_INSTALL);
		end();
	}
	with_parts = false;
}

static void announce_nothing(void)
{
	atomic_fetch_or(&db->d_mdc->m_allows, KV_FEAT_TXN_PARTS);
	commit_many();
	T_OK(!announces());
}

static int open_again(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.clock = &test_clock;
	return kvdb_open(dir, &o, &db);
}

static void parts_that_were_not_announced_are_refused(void)
{
	with_parts = true;
	make_db();
	t_die_in(open_db, announce_nothing);
	T_EQ(open_again(), -EUCLEAN);
	T_STREQ(kvdb_error_detail()->id, "MP0960");
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
	with_parts = false;
}

/* ---- segments of parts ---------------------------------------------------------- */

static void free_what_can_be(void)
{
	for (unsigned i = 0; i < 5; i++)
		kv_retire_barrier();
	for (unsigned i = 0; i < 50; i++)
		T_OK(kv_segs_step(db) >= 0);
}

/* Everything else that lay in its segments dies, and their epochs are below every horizon. */
static void churn(void)
{
	char key[16];

	for (unsigned r = 0; r < 3; r++) {
		for (unsigned i = 0; i < 200; i++) {
			snprintf(key, sizeof(key), "c%u", i);
			T_EQ(kvdb_put(ka, key, strlen(key), big, sizeof(big)), 0);
		}
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	}
	T_EQ(kvdb_range_del(ka, "c", 1, "d", 1), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	free_what_can_be();
}

/* Its parts are there, and its record is not: the horizons pass them. */
static void parts_then_record(void)
{
	struct kvdb_txn *t;
	uint64_t e;

	put_some();
	t = write_many();
	T_EQ(kv_txn_parts_log(t), 0);
	T_OK(t->t_npart > 20);
	e = atomic_load(&db->d_epochs.ep_open);
	churn();
	T_OK(atomic_load(&ka->k_horizon) > e);
	T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, NULL), 0);
	free_what_can_be();
}

static void parts_older_than_every_horizon_come_back(void)
{
	with_parts = true;
	make_db();
	t_die_in(open_db, parts_then_record);
	T_EQ(damage(), 0);
	/* nothing is flushed in between, so the memtable that was replayed holds them */
	t_die_in(open_db, free_what_can_be);
	open_db();
	T_EQ(seen(), WRITES);
	end();
	with_parts = false;
}

static bool is_gone(uint64_t id)
{
	struct kv_seg *s = kv_segs_first(db);

	while (s && s->sg_id != id)
		s = s->sg_next;
	return !s;
}

static int flush_oldest(struct kvdb_kvs *kvs)
{
	int did;

	pthread_mutex_lock(&kvs->k_flush_lock);
	did = kv_flush_oldest(db, kvs, UINT64_MAX);
	pthread_mutex_unlock(&kvs->k_flush_lock);
	return did;
}

/* Both stores have it in runs, and a third one keeps the record in the log. */
static void parts_are_freed_before_the_record(void)
{
	struct kv_seg *part;
	struct kvdb_txn *t;
	uint64_t id;

	put_some();
	t = write_many();
	T_EQ(kv_txn_parts_log(t), 0);
	churn();
	/* from here on the log is needed */
	put(store("c"), "cold", "1");
	T_EQ(kv_epoch_force(db), 0);
	part = t->t_part[0].tp_v.tv_seg;
	id = part->sg_id;
	T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, NULL), 0);
	switch_memtable(ka);
	switch_memtable(kb);
	while (flush_oldest(ka) > 0 || flush_oldest(kb) > 0)
		;
	free_what_can_be();
	T_OK(kv_mt_first_epoch(active_mt(store("c"))));
	T_OK(is_gone(id));
}

static void parts_are_not_needed_of_what_is_in_runs(void)
{
	with_parts = no_values = true;
	make_db();
	t_die_in(open_db, parts_are_freed_before_the_record);
	T_EQ(damage(), 0);
	open_db();
	T_EQ(seen(), WRITES);
	expect(store("c"), "cold", "1");
	end();
	with_parts = no_values = false;
}

/* ---- damage ---------------------------------------------------------------------------------- */

static uint64_t *part_seg;	/* told by a child, which leaves the part as it is; or NULL */

/* Below every horizon, so that no frame of the log is looked at for it. */
static void damage_a_part(void)
{
	const struct kv_txn_val *v;
	struct mpool_obj *obj;
	struct kvdb_txn *t;
	uint32_t off;

	put_some();
	t = write_many();
	T_EQ(kv_txn_parts_log(t), 0);
	churn();
	v = &t->t_part[1].tp_v;
	obj = v->tv_seg->sg_obj;
	off = v->tv_off8 * KV_REC_ALIGN + 600;
	if (part_seg)
		*part_seg = v->tv_seg->sg_id;
	T_EQ(kvdb_txn_commit(t, KVDB_TXN_DURABLE, NULL), 0);
	if (!part_seg)
		obj_flip(obj, off, 0x10);
}

/* Opens what repair found in a database of its own; the first one stays as it is. */
static void repair_into(char *from)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct kvdb_repair r = { 0 };

	strcpy(from, dir);
	make_db();
	o.flags = KVDB_MANUAL;
	o.clock = &test_clock;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_repair(from, NULL, db, NULL, NULL, &r), 0);
	ka = store("a");
	kb = store("b");
}

/* Of the transaction there is nothing, of what was before it all. */
static void expect_repaired(void)
{
	char from[sizeof(dir)], key[8];
	unsigned n = 0;

	repair_into(from);
	for (unsigned i = 0; i < WRITES; i++) {
		struct kvdb_kvs *k = i % 2 ? ka : kb;

		key_of(i, key);
		if (i % 30 == 0)
			expect(k, key, "old");
		else
			n += !kvdb_get(k, key, 7, NULL, 0, NULL);
	}
	T_EQ(n, 0);
	end();
	T_EQ(mpool_destroy(from, NULL), 0);
	rmdir(from);
}

/* The rest of it is nothing without that part. */
static void repair_takes_nothing_of_what_has_a_damaged_part(void)
{
	with_parts = true;
	make_db();
	t_die_in(open_db, damage_a_part);
	T_EQ(open_again(), -EUCLEAN);
	T_STREQ(kvdb_error_detail()->id, "MP0960");
	T_OK(strstr(kvdb_error_detail()->text, "part of a commit record"));
	T_OK(damage());
	expect_repaired();
	with_parts = false;
}

static void repair_takes_nothing_of_what_lacks_a_part(void)
{
	struct mpool *mp;

	with_parts = no_values = true;
	part_seg = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_OK(part_seg != MAP_FAILED);
	make_db();
	t_die_in(open_db, damage_a_part);
	T_EQ(mpool_open(dir, NULL, &mp), 0);
	T_EQ(kv_objs_delete(mp, part_seg, 1), 0);
	T_EQ(mpool_close(mp), 0);
	T_EQ(open_again(), -EUCLEAN);
	T_STREQ(kvdb_error_detail()->id, "MP0961");
	expect_repaired();
	munmap(part_seg, 4096);
	part_seg = NULL;
	with_parts = no_values = false;
}

/* ---- revisions ------------------------------------------------------------------------------- */

/* Several records of a key in one epoch: parts have their place before they are linked. */
static void one_key_often(void)
{
	struct kvdb_txn *t;

	for (unsigned i = 0; i < 5; i++) {
		put(ka, "before", "1");
		put(ka, "both", "1");
	}
	t = write_many();
	T_EQ(kvdb_txn_put(t, ka, "before", 6, "txn", 3), 0);
	T_EQ(kvdb_txn_put(t, ka, "both", 4, "txn", 3), 0);
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	T_OK(kv_mt_first_epoch(active_mt(ka)));
	put(ka, "both", "2");
	expect(ka, "before", "txn");
	T_EQ(kvdb_sync(db), 0);
}

static void parts_have_their_place_among_records_of_a_key(void)
{
	with_parts = true;
	make_db();
	t_die_in(open_db, one_key_often);
	open_db();
	expect(ka, "before", "txn");
	expect(ka, "both", "2");
	T_EQ(seen(), WRITES);
	end();
	with_parts = false;
}

/* ---- memtables (T16, T17) -------------------------------------------------------------------- */

static void a_memtable_is_not_switched_while_a_large_transaction_is_linked(void)
{
	struct kvdb_txn *t;
	struct kv_mt *mt;

	fresh();
	put(ka, "x", "1");
	put(kb, "x", "1");
	t = write_many();
	T_OK(kv_txn_is_bulk(t));
	mt = active_mt(ka);
	kv_bulk_hold(t);
	switch_memtable(ka);
	T_OK(active_mt(ka) == mt);
	/* what another thread prepared waits for it */
	T_OK(atomic_load(&ka->k_next_mt));
	kv_bulk_let(t);
	T_EQ(kv_epoch_force(db), 0);
	T_OK(active_mt(ka) != mt);
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	T_EQ(seen(), WRITES);
	end();
}

/* A quarter of the budget is there, and what it links takes more than the rest. */
static void memtables_have_room_before_it_is_linked(void)
{
	uint64_t most, flushes;
	struct kvdb_txn *t;
	char key[8];

	fresh();
	t = write_many();
	most = t->t_mem_bytes * 5 / 4;
	for (unsigned i = 0; atomic_load(&db->d_count.mt_mem) < most / 2 + (1u << 20); i++) {
		key_of(i, key);
		key[0] = 'p';
		T_EQ(kvdb_put(ka, key, 7, big, 100), 0);
	}
	db->d_budget.b_mt_bytes = atomic_load(&db->d_count.mt_mem) + most / 4;
	flushes = atomic_load(&db->d_count.flushes);
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	T_OK(atomic_load(&db->d_count.flushes) > flushes);
	T_EQ(atomic_load(&db->d_count.mt_coming), 0);
	T_EQ(seen(), WRITES);
	end();
}

/* Writers stand: what is there is so many percent of the budget, what is to be linked so many. */
static void little_is_flushed_beside(unsigned there, unsigned coming)
{
	uint64_t bytes;
	struct kv_mt *mt;
	char key[8];

	fresh();
	for (unsigned i = 0; i < 1000; i++) {
		key_of(i, key);
		T_EQ(kvdb_put(ka, key, 7, big, 100), 0);
	}
	mt = active_mt(ka);
	bytes = atomic_load(&mt->m_bytes);
	db->d_budget.b_mt_bytes = bytes * 100 / there;
	atomic_fetch_add(&db->d_count.mt_coming, bytes * coming / there);
	T_EQ(kv_switch_step(db), 1);
	T_OK(active_mt(ka) != mt);
	atomic_fetch_sub(&db->d_count.mt_coming, bytes * coming / there);
	end();
}

/* It takes most, or more than it may: the little that can be flushed goes. */
static void what_is_to_be_linked_counts_as_nothing_that_is_flushed(void)
{
	little_is_flushed_beside(30, 73);
	little_is_flushed_beside(5, 97);
}

static void a_switch_that_was_refused_is_due(void)
{
	struct kvdb_txn *t;

	fresh();
	t = write_many();
	put(ka, "x", "1");
	kv_bulk_hold(t);
	switch_memtable(ka);
	T_OK(atomic_load(&ka->k_next_mt));
	T_OK(atomic_load(&db->d_flusher->fl_want) < atomic_load(&db->d_epochs.ep_open));
	kv_bulk_let(t);
	T_EQ(atomic_load(&db->d_flusher->fl_want), atomic_load(&db->d_epochs.ep_open));
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	end();
}

static void write_sets_share_a_part_of_the_memory(void)
{
	uint64_t was;
	struct kvdb_txn *t, *u;
	char key[8];
	int err = 0;

	fresh();
	atomic_store(&db->d_budget.b_txn_bytes, 2u << 20);
	was = atomic_load(&db->d_count.txn_mem);
	t = write_many();
	u = begin(0);
	for (unsigned i = 0; !err && i < 20000; i++) {
		key_of(i, key);
		key[0] = 'u';
		err = kvdb_txn_put(u, ka, key, 7, "1", 1);
	}
	T_EQ(err, -EFBIG);
	T_STREQ(kvdb_error_detail()->id, "MP0925");
	T_OK(atomic_load(&db->d_count.txn_mem) <= 2u << 20);
	T_EQ(kvdb_txn_put(u, ka, "u000000", 7, "2", 1), 0);
	/* the least of it is every transaction's */
	kvdb_txn_abort(write_all());
	kvdb_txn_abort(t);
	T_EQ(kvdb_txn_put(u, ka, "u-more", 6, "1", 1), 0);
	T_EQ(kvdb_txn_commit(u, 0, NULL), 0);
	T_EQ(atomic_load(&db->d_count.txn_mem), was);
	expect(ka, "u000000", "2");
	expect(ka, "u-more", "1");
	end();
}

int main(void)
{
	T_RUN(a_large_write_set_comes_back_from_its_parts);
	T_RUN(whole_or_nothing_wherever_it_stops);
	T_RUN(parts_that_were_not_announced_are_refused);
	T_RUN(parts_older_than_every_horizon_come_back);
	T_RUN(parts_are_not_needed_of_what_is_in_runs);
	T_RUN(repair_takes_nothing_of_what_has_a_damaged_part);
	T_RUN(repair_takes_nothing_of_what_lacks_a_part);
	T_RUN(parts_have_their_place_among_records_of_a_key);
	T_RUN(a_memtable_is_not_switched_while_a_large_transaction_is_linked);
	T_RUN(memtables_have_room_before_it_is_linked);
	T_RUN(what_is_to_be_linked_counts_as_nothing_that_is_flushed);
	T_RUN(a_switch_that_was_refused_is_due);
	T_RUN(write_sets_share_a_part_of_the_memory);
	return t_done();
}
