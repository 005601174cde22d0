/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Manifests and records of the container that are not what they should be, though the device
 * says nothing: a checkpoint whose manifest is damaged is named, holds everything and can be
 * dropped; a container that is damaged opens no database and takes nothing from what repair
 * finds in front of it; zeros in it are damage too. What is refused is left as it is.
 */
#include "harness.h"

#include <errno.h>
#include <stdlib.h>

#include "meta/ckpt.h"
#include "kv_sim.h"
#include "meta/mdc.h"
#include "db/db.h"
#include "meta/ckpt_omf.h"
#include "open/open.h"

#define KEYS	50u

static void fill(struct kvdb *db, char byte)
{
	struct kvdb_kvs *kvs;
	char val[500];

	memset(val, byte, sizeof(val));
	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	for (unsigned i = 0; i < KEYS; i++)
		T_EQ(kvdb_put(kvs, &i, sizeof(i), val, sizeof(val)), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
}

static void is_filled(struct kvdb *db, char byte)
{
	struct kvdb_kvs *kvs;
	char got[500];
	size_t len;

	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		T_EQ(kvdb_get(kvs, &i, sizeof(i), got, sizeof(got), &len), 0);
		T_OK(len == sizeof(got) && got[0] == byte && got[len - 1] == byte);
	}
}

static void make_db(void)
{
	struct kvdb *db;

	kv_sim(1);
	T_EQ(kvdb_create(POOL, &opts), 0);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_kvs_create(db, "a", NULL), 0);
	fill(db, 'x');
	T_EQ(kvdb_checkpoint(db, "good", 0), 0);
	fill(db, 'y');
	T_EQ(kvdb_close(db), 0);
}

/* The container alone. */
static void attach(struct kvdb *db)
{
	memset(db, 0, sizeof(*db));
	T_EQ(kv_db_attach(db, POOL, &opts, false), 0);
	T_EQ(mpool_begin(db->d_mp), 0);
}

static void detach(struct kvdb *db)
{
	struct mpool *mp = db->d_mp;

	kv_db_detach(db);
	T_EQ(mpool_close(mp), 0);
}

/* ---- manifests -------------------------------------------------------------------------- */

/* A manifest of its own with these records. */
static void manifest(struct kvdb *db, struct kv_mdc_ckpt *c, const struct kv_mdc_buf *rec,
		     uint64_t tag)
{
	struct kv_manifest mf = { tag, 0, c->mc_epoch, c->mc_seq, (uint32_t)rec->mb_len };
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY,
				   .capacity = KV_BLOCK, .tag = db->d_ident.id_tag };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT, .length = KV_BLOCK };
	uint8_t *p = aligned_alloc(KV_BLOCK, KV_BLOCK);
	struct iovec v = { p, KV_BLOCK };

	memset(p, 0, KV_BLOCK);
	T_EQ(mpool_alloc(db->d_mp, &req, 1, &op.obj), 0);
	mf.mf_obj = c->mc_obj = mpool_obj_id(op.obj);
	kv_manifest_encode(&mf, p);
	memcpy(p + KV_MANIFEST_HDR, rec->mb_p, rec->mb_len);
	T_EQ(mpool_write(op.obj, 0, &v, 1), 0);
	T_EQ(mpool_batch(db->d_mp, &op, 1), 0);
	mpool_obj_close(op.obj);
	c->mc_len = KV_BLOCK;
	c->mc_crc = mpool_crc32c(0, p, KV_BLOCK);
	free(p);
}

static void too_long(struct kvdb *db, struct kv_mdc_ckpt *c)
{
	(void)db;
	c->mc_len = KV_MANIFEST_MAX + KV_BLOCK;
	c->mc_obj += 1u << 20;
}

static void no_object(struct kvdb *db, struct kv_mdc_ckpt *c)
{
	(void)db;
	c->mc_obj += 1u << 20;
}

static void other_super(struct kvdb *db, struct kv_mdc_ckpt *c, uint64_t tag, uint32_t features)
{
	struct kv_mdc_super s = db->d_mdc->m_st.st_super;
	struct kv_mdc_buf b = { 0 };

	s.ms_incompat = features;
	kv_mdc_enc_super(&b, &s);
	manifest(db, c, &b, tag);
	kv_mdc_buf_free(&b);
}

static void longer_than_its_object(struct kvdb *db, struct kv_mdc_ckpt *c)
{
	other_super(db, c, db->d_ident.id_tag, 0);
	c->mc_len += KV_BLOCK;
}

static void other_crc(struct kvdb *db, struct kv_mdc_ckpt *c)
{
	other_super(db, c, db->d_ident.id_tag, 0);
	c->mc_crc ^= 1;
}

static void other_tag(struct kvdb *db, struct kv_mdc_ckpt *c)
{
	other_super(db, c, db->d_ident.id_tag ^ 1, 0);
}

static void other_epoch(struct kvdb *db, struct kv_mdc_ckpt *c)
{
	other_super(db, c, db->d_ident.id_tag, 0);
	c->mc_epoch++;
}

static void other_feature(struct kvdb *db, struct kv_mdc_ckpt *c)
{
	other_super(db, c, db->d_ident.id_tag, 1u << 31);
}

static void record(struct kvdb *db, struct kv_mdc_ckpt *c, bool has_super)
{
	struct kv_mdc_seg seg = { .sc_obj = 1ull << 50, .sc_last = 1, .sc_len = KV_BLOCK };
	struct kv_mdc_buf all = { 0 }, b = { 0 };

	kv_mdc_enc_super(&b, &db->d_mdc->m_st.st_super);
	if (has_super)
		kv_mdc_buf_add(&all, b.mb_p, b.mb_len);
	kv_mdc_enc_segs(&b, db->d_ident.id_tag, false, 0, &seg, 1);
	kv_mdc_buf_add(&all, b.mb_p, b.mb_len);
	manifest(db, c, &all, db->d_ident.id_tag);
	kv_mdc_buf_free(&all);
	kv_mdc_buf_free(&b);
}

static void no_super(struct kvdb *db, struct kv_mdc_ckpt *c)
{
	record(db, c, false);
}

/* Whole, but what it lists is gone. */
static void no_segment(struct kvdb *db, struct kv_mdc_ckpt *c)
{
	record(db, c, true);
}

static const struct {
	void (*spoil)(struct kvdb *db, struct kv_mdc_ckpt *c);
	const char *says;
	int at, open;	/* error of an open at it, of the database */
} manifests[] = {
	{ too_long, "its length in the pin", -EUCLEAN, 0 },
	{ no_object, "the object does not exist", -EUCLEAN, 0 },
	{ longer_than_its_object, "shorter than its pin says", -EUCLEAN, 0 },
	{ other_crc, "its CRC differs", -EUCLEAN, 0 },
	{ other_tag, "another one's", -EUCLEAN, 0 },
	{ other_epoch, "another one's", -EUCLEAN, 0 },
	{ no_super, "a record of it", -EUCLEAN, 0 },
	{ no_segment, NULL, 0, 0 },
	{ other_feature, "a feature that is not known", -EOPNOTSUPP, -EOPNOTSUPP },
};

static int open_at(const char *name, struct kvdb **db)
{
	struct kvdb_opts at = opts;

	at.flags |= KVDB_RDONLY;
	at.checkpoint = name;
	return kvdb_open(POOL, &at, db);
}

/* It is damaged: work goes on, nothing is deleted, and it can be dropped. */
static void works_on(struct kvdb *db)
{
	struct kvdb_checkpoint_info in[4];
	uint64_t damage = 1;

	T_EQ(kvdb_checkpoint_list(db, in, 4), 2);
	T_EQ(in[0].is_damaged, 0);
	T_EQ(in[1].is_damaged, 1);
	is_filled(db, 'y');
	fill(db, 'z');
	T_EQ(kvdb_compact(db, 0), 0);
	T_EQ(kvdb_close(db), 0);
	T_EQ(open_at("good", &db), 0);
	is_filled(db, 'x');
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_checkpoint_drop(db, "bad"), 0);
	T_EQ(kvdb_checkpoint_list(db, in, 4), 1);
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	is_filled(db, 'z');
	T_EQ(kvdb_checkpoint_list(db, in, 4), 1);
	T_EQ(kvdb_close(db), 0);
	T_EQ(open_at("good", &db), 0);
	is_filled(db, 'x');
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_verify(POOL, &opts, KVDB_VERIFY_DEEP, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
}

static void a_damaged_manifest_is_named_and_holds_everything(void)
{
	static struct kvdb one;
	struct kv_mdc_ckpt c;
	struct kvdb *db;

	make_db();
	for (unsigned i = 0; i < sizeof(manifests) / sizeof(manifests[0]); i++) {
		sim_snap(&sim);
		attach(&one);
		c = one.d_mdc->m_st.st_ckpt[0];
		strcpy(c.mc_name, "bad");
		manifests[i].spoil(&one, &c);
		T_EQ(kv_mdc_ckpt_add(&one, &c), 0);
		detach(&one);
		if (manifests[i].says) {
			T_EQ(open_at("bad", &db), manifests[i].at);
			T_OK(strstr(kvdb_error_detail()->text, manifests[i].says));
			T_OK(strstr(kvdb_error_detail()->text, "checkpoint bad"));
		}
		T_EQ(kvdb_open(POOL, &opts, &db), manifests[i].open);
		if (manifests[i].open)
			T_OK(strstr(kvdb_error_detail()->text, "checkpoint bad"));
		else
			works_on(db);
		sim_rollback(&sim);
	}
	sim_fini(&sim);
}

/* ---- records of the container --------------------------------------------------------------- */

static void fix_crc(struct kv_mdc_buf *b)
{
	uint32_t crc = kv_mdc_rec_crc(b->mb_p, b->mb_len);

	memcpy(b->mb_p + 12, &crc, sizeof(crc));
}

static void flipped(struct kv_mdc_buf *b)
{
	b->mb_p[b->mb_len - 1] ^= 1;
}

static void later_version(struct kv_mdc_buf *b)
{
	b->mb_p[6] ^= 1;
	fix_crc(b);
}

static void later_type(struct kv_mdc_buf *b)
{
	b->mb_p[4] = KV_MDC_TYPES;
	fix_crc(b);
}

static void twice(struct kv_mdc_buf *b)
{
	(void)b;	/* the store that it makes is there */
}

static const struct {
	void (*spoil)(struct kv_mdc_buf *b);
	int err;
	const char *says;
} records[] = {
	{ flipped, -EUCLEAN, "is damaged (check" },
	{ later_version, -EOPNOTSUPP, "not known here" },
	{ later_type, -EOPNOTSUPP, "not known here" },
	{ twice, -EUCLEAN, "is damaged (check" },
};

static void a_damaged_record_opens_nothing_and_repair_has_the_rest(void)
{
	struct kvdb_repair whole = { 0 }, rp;
	struct kv_mdc_buf b = { 0 };
	static struct kvdb one;
	struct kvdb *db;
	struct iovec v;

	make_db();
	T_EQ(kvdb_repair(POOL, &opts, NULL, NULL, NULL, &whole), 0);
	T_EQ(whole.keys, KEYS);
	for (unsigned i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
		sim_snap(&sim);
		attach(&one);
		kv_mdc_enc_kvs_add(&b, one.d_ident.id_tag, 1, "a", 0);
		records[i].spoil(&b);
		v = (struct iovec){ b.mb_p, b.mb_len };
		T_EQ(mpool_mdc_append(one.d_mdc->m_log, &v, 1, MPOOL_SYNC), 0);
		detach(&one);
		T_EQ(kvdb_open(POOL, &opts, &db), records[i].err);
		T_OK(strstr(kvdb_error_detail()->text, records[i].says));
		T_OK(strstr(kvdb_error_detail()->text, "record"));
		memset(&rp, 0, sizeof(rp));
		T_EQ(kvdb_repair(POOL, &opts, NULL, NULL, NULL, &rp), 0);
		T_EQ(rp.keys + rp.found_keys, KEYS);
		sim_rollback(&sim);
	}
	kv_mdc_buf_free(&b);
	sim_fini(&sim);
}

static void a_store_that_is_gone_takes_no_options(void)
{
	struct kv_props props = { .pr_val = { 0 } };
	uint64_t used, after, cap;
	static struct kvdb one;

	make_db();
	attach(&one);
	T_EQ(mpool_mdc_space(one.d_mdc->m_log, &used, &cap), 0);
	T_EQ(kv_mdc_kvs_prop(&one, 77, &props, KV_PROP_ALL), -ENOENT);
	T_OK(strstr(kvdb_error_detail()->text, "store 77 was dropped"));
	T_EQ(mpool_mdc_space(one.d_mdc->m_log, &after, &cap), 0);
	T_EQ(after, used);
	detach(&one);
	sim_fini(&sim);
}

/* ---- zeros ---------------------------------------------------------------------------------- */

/* where the two logs of the container lie */
struct logs {
	struct mpool_extent at[2];
	unsigned n;
};

static void keep_log(void *arg, const struct mpool_extent *e)
{
	struct logs *l = arg;

	if (e->kind != MPOOL_MLOG)
		return;
	T_OK(l->n < 2);
	l->at[l->n++] = *e;
}

static uint64_t used_of(const struct mpool_extent *e)
{
	const uint8_t *p = sim.s_dev[e->slot].d_mem + e->off;
	uint64_t n = e->len;

	while (n && !p[n - 1])
		n--;
	return (n + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
}

/* Each ends with is_filled('y') and a close. */
static void one_session(void)
{
	make_db();
}

static void several_sessions(void)
{
	struct kvdb *db;

	make_db();
	for (char c = 'w'; c <= 'y'; c++) {
		T_EQ(kvdb_open(POOL, &opts, &db), 0);
		fill(db, c);
		T_EQ(kvdb_close(db), 0);
	}
}

static void much_that_was_replaced(void)
{
	struct kvdb *db;

	make_db();
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	for (char c = 'a'; c <= 'y'; c++)
		fill(db, c);
	T_EQ(kvdb_compact(db, 0), 0);
	T_EQ(kvdb_close(db), 0);
}

static void a_transaction(void)
{
	struct kvdb_kvs *kvs, *other;
	struct kvdb_txn *txn;
	struct kvdb *db;
	char val[500];

	make_db();
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_kvs_open(db, "a", &kvs), 0);
	T_EQ(kvdb_kvs_create(db, "b", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "b", &other), 0);
	T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
	memset(val, 'y', sizeof(val));
	T_EQ(kvdb_txn_put(txn, other, "k", 1, val, sizeof(val)), 0);
	T_EQ(kvdb_txn_put(txn, kvs, &(unsigned){ 0 }, sizeof(unsigned), val, sizeof(val)), 0);
	T_EQ(kvdb_txn_commit(txn, 0, NULL), 0);
	T_EQ(kvdb_close(db), 0);
}

/* Values lie in key blocks, and of the log nothing is left. */
static void small_values(void)
{
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	make_db();
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_kvs_create(db, "b", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "b", &kvs), 0);
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kvdb_close(db), 0);
	for (unsigned i = 0; i < 2; i++) {
		T_EQ(kvdb_open(POOL, &opts, &db), 0);
		T_EQ(kvdb_close(db), 0);
	}
}

/* The store. What is in it no log tells any more: RV21. */
static bool has_small(struct kvdb *db)
{
	struct kvdb_kvs *kvs;

	return !kvdb_kvs_open(db, "b", &kvs);
}

static void (*const workloads[])(void) = {
	one_session, several_sessions, much_that_was_replaced, a_transaction, small_values
};

/* ---- refusals write nothing ----------------------------------------------------------------- */

static unsigned writes;

static void write_seen(void *arg, int kind, uint64_t bytes)
{
	(void)arg;
	(void)bytes;
	writes += kind == 1;
}

/* As kvdb_open(). RV24: one that is refused wrote to no member. */
static int open_or_leave(struct kvdb **db)
{
	int err;

	writes = 0;
	sim.s_tick = write_seen;
	err = kvdb_open(POOL, &opts, db);
	sim.s_tick = NULL;
	if (err)
		T_EQ(writes, 0);
	else
		T_OK(writes);
	return err;
}

/* The same of a create beside the damage, and of the pool. */
static void others_leave(void)
{
	struct mpool *mp;

	writes = 0;
	sim.s_tick = write_seen;
	T_OK(kvdb_create(POOL, &opts));
	T_EQ(writes, 0);
	if (mpool_open(POOL, &oo, &mp))
		T_EQ(writes, 0);
	else
		T_EQ(mpool_close(mp), 0);
	sim.s_tick = NULL;
}

/* A bit of each block that holds anything. */
static void bits(unsigned dev, unsigned *refused, unsigned *whole)
{
	const uint8_t *mem = sim.s_dev[dev].d_mem;
	static const uint8_t zero[KV_BLOCK];
	struct kvdb *db;
	uint64_t off;
	uint8_t was;

	for (off = 0; off < sim.s_dev[dev].d_size; off += KV_BLOCK) {
		if (!memcmp(mem + off, zero, KV_BLOCK))
			continue;
		sim_snap(&sim);
		was = mem[off + 70] ^ 4;
		sim_poke(&sim, dev, off + 70, &was, 1);
		if (open_or_leave(&db)) {
			others_leave();
			++*refused;
		} else {
			T_EQ(kvdb_close(db), 0);
			++*whole;
		}
		sim_release(&sim);
		sim_rollback(&sim);
	}
}

/* Each read of an open fails once. */
static void reads(unsigned *refused)
{
	struct kvdb *db;
	bool fired = true;

	for (uint64_t at = 1; fired; at++) {
		sim_snap(&sim);
		sim.s_fault = (struct sim_fault){ .f_kind = FAULT_READ, .f_at = at };
		if (open_or_leave(&db))
			++*refused;
		else
			T_EQ(kvdb_close(db), 0);
		fired = sim.s_fault.f_fired;
		sim.s_fault = (struct sim_fault){ .f_kind = FAULT_NONE };
		sim_release(&sim);
		sim_rollback(&sim);
	}
}

static void what_is_refused_is_left_as_it_is(void)
{
	unsigned refused = 0, whole = 0, unread = 0;

	for (unsigned w = 0; w < sizeof(workloads) / sizeof(workloads[0]); w++) {
		workloads[w]();
		bits(0, &refused, &whole);
		reads(&unread);
		sim_fini(&sim);
	}
	T_OK(refused > 50 && whole > 50 && unread > 20);
}

/*
 * Zeros from each block of the container to its end, which its logs cannot tell from what was
 * never written: the open fails, or all is there.
 */
static void zeros(const struct mpool_extent *e, bool is_small, unsigned *refused, unsigned *whole)
{
	static const uint8_t zero[1u << 20];
	uint64_t off, used = used_of(e);
	struct kvdb_repair rp;
	struct kvdb *db;
	int err;

	for (off = 0; off < used; off += KV_BLOCK) {
		sim_snap(&sim);
		sim_poke(&sim, e->slot, e->off + off, zero, used - off);
		err = open_or_leave(&db);
		if (!err) {
			is_filled(db, 'y');
			T_OK(!is_small || has_small(db));
			T_EQ(kvdb_close(db), 0);
			++*whole;
		} else {
			T_EQ(err, -EUCLEAN);
			T_STREQ(kvdb_error_detail()->id, "MP0961");
			err = kvdb_create(POOL, &opts);
			T_OK(err == -EEXIST || err == -EUCLEAN);
			memset(&rp, 0, sizeof(rp));
			T_EQ(kvdb_repair(POOL, &opts, NULL, NULL, NULL, &rp), 0);
			T_OK(rp.is_guess && rp.keys + rp.found_keys);
			++*refused;
		}
		sim_release(&sim);
		sim_rollback(&sim);
	}
}

static void zeros_in_the_container_take_nothing_silently(void)
{
	unsigned refused = 0, whole = 0;

	for (unsigned w = 0; w < sizeof(workloads) / sizeof(workloads[0]); w++) {
		struct logs l = { .n = 0 };

		workloads[w]();
		T_EQ(mpool_map(POOL, &oo, keep_log, &l), 0);
		for (unsigned i = 0; i < l.n; i++)
			zeros(&l.at[i], workloads[w] == small_values, &refused, &whole);
		sim_fini(&sim);
	}
	T_OK(refused > 20 && whole > 20);
}

int main(void)
{
	T_RUN(a_damaged_manifest_is_named_and_holds_everything);
	T_RUN(a_damaged_record_opens_nothing_and_repair_has_the_rest);
	T_RUN(a_store_that_is_gone_takes_no_options);
	T_RUN(zeros_in_the_container_take_nothing_silently);
	T_RUN(what_is_refused_is_left_as_it_is);
	return t_done();
}
