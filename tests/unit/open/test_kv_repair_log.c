/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Repair without a container, and of logs with holes: what is certain then is told by the records
 * of the logs alone.
 */
#include "kv_hurt.h"

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
			obj_flip(s->sg_obj, frame_below(s, 65536) + 8, 0x10);
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
	tag = db->d_ident.id_tag;
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
	obj_flip(run->rn_kb[0].kb_obj, kv_run_desc(run)->rd_kb[0].kd_len - KV_PAGE + 7, 0x10);
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
	tag = db->d_ident.id_tag;
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

#define MANY 300u	/* from this key of store a on a transaction deletes 200 */

/* Puts below, in and behind the range, before and after its delete; another one is given up. */
static void delete_a_range_in_a_transaction(void)
{
	struct kvdb_txn *txn, *lost;
	struct kvdb_kvs *kvs;
	char from[16], end[16];
	uint8_t val[400];

	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	T_EQ(kvdb_txn_begin(db, 0, &lost), 0);
	for (unsigned k = MANY - 1; k < MANY + 10; k++)
		T_EQ(kvdb_txn_put(txn, kvs, from, key_of(k, from), val, value(0, k, 3, val)), 0);
	T_EQ(kvdb_txn_range_del(txn, kvs, from, key_of(MANY, from), end, key_of(MANY + 200, end)),
	     0);
	for (unsigned k = MANY + 5; k < MANY + 8; k++)
		T_EQ(kvdb_txn_put(txn, kvs, from, key_of(k, from), val, value(0, k, 4, val)), 0);
	T_EQ(kvdb_txn_range_del(lost, kvs, from, key_of(1000, from), end, key_of(1100, end)), 0);
	T_EQ(kvdb_txn_commit(txn, 0, NULL), 0);
	T_EQ(kvdb_sync(db), 0);
	T_OK(kv_segs_seal_now(db) >= 0);
	T_EQ(kvdb_sync(db), 0);
}

static void check_the_transaction(void)
{
	for (unsigned k = 0; k < KEYS; k++) {
		bool is_in = k >= MANY && k < MANY + 200;

		T_EQ(version(to, "a.found", 0, k), 0);
		T_EQ(version(to, "a", 0, k), k == MANY - 1 ? 3 : !is_in ? newest[0][k] :
		     k >= MANY + 5 && k < MANY + 8 ? 4 : 0);
		T_EQ(version(to, "b", 1, k), newest[1][k]);
	}
}

static void a_range_delete_of_a_transaction_is_one_without_a_container(void)
{
	make();
	repair_without_container(delete_a_range_in_a_transaction);
	check_the_transaction();
	finish();
}

/* What lay in the hole is older: the transaction says of its keys what is certain. */
static void a_range_delete_of_a_transaction_is_one_beside_damage(void)
{
	struct kvdb_repair r;

	make();
	t_die_in(open_it, delete_a_range_in_a_transaction);
	hurt(0, 0, MANY + 99, PAGE);
	r = repair();
	T_EQ(r.lost_ranges, 1);
	for (unsigned k = MANY; k < MANY + 200; k++) {
		T_EQ(version(to, "a", 0, k), k >= MANY + 5 && k < MANY + 8 ? 4 : 0);
		T_EQ(version(to, "a.found", 0, k), 0);
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
	tag = db->d_ident.id_tag;
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

int main(void)
{
	T_RUN(a_damaged_container_loses_no_key);
	T_RUN(a_hole_in_a_log_costs_what_lay_in_it);
	T_RUN(a_damaged_container_loses_no_record_of_a_log);
	T_RUN(a_damaged_container_brings_nothing_back_that_the_log_replaced);
	T_RUN(a_damaged_container_loses_no_store_that_only_the_log_has);
	T_RUN(a_lost_block_may_have_deleted_any_key);
	T_RUN(a_deleted_prefix_is_one_without_a_container);
	T_RUN(a_range_delete_of_a_transaction_is_one_without_a_container);
	T_RUN(a_range_delete_of_a_transaction_is_one_beside_damage);
	T_RUN(packed_records_are_no_hole_without_a_container);
	return t_done();
}
