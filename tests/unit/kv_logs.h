/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Logs written by hand, with the codec, into segments of a real pool on files. */
#ifndef TESTS_KV_LOGS_H
#define TESTS_KV_LOGS_H

#include "harness.h"

#include <errno.h>
#include <unistd.h>

#include "meta/mdc.h"
#include "db/db.h"
#include "seg/value.h"
#include "mem/iter.h"
#include "mem/memtable.h"
#include "run/run.h"
#include "tree/tree.h"
#include "meta/upkeep.h"
#include "open/open.h"
#include "open/recover.h"

#define SEG_BYTES	(256u << 10)
#define SEGS		8

static char dir[64];
static struct kvdb db;
static int open_err;
static char bad[160];	/* what up_damaged() wants to be told */

/* a segment while the test writes it */
static struct tseg {
	struct mpool_obj *obj;
	uint64_t id;
	uint32_t off, chain;
	uint64_t epoch;		/* of its newest frame, */
	uint32_t begin;		/* and where that epoch begins */
} ts[SEGS];

static struct { uint64_t epoch, obj; uint32_t off; } last_desc;
static uint64_t prev_epoch;	/* that wrote */
static bool lose;	/* the device forgets what is written now */
static bool tear;	/* or all but the header */
static bool marks;	/* frames have marks, as those of the engine */
static uint64_t rollback;	/* kvdb_opts of the next open */
static int wrong_nrec, wrong_incarnation;	/* added to what is written */
static bool no_own_entry;
static uint64_t pool_mib = 64;

static inline void pool_make(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = pool_mib << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;

	strcpy(dir, "/tmp/test_kv_recover.XXXXXX");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
	memset(&last_desc, 0, sizeof(last_desc));
}

static inline void down(void)
{
	int i;

	for (i = 0; i < SEGS; i++)
		mpool_obj_close(ts[i].obj);
	memset(ts, 0, sizeof(ts));
	kv_db_detach(&db);
	if (db.d_mp)
		T_EQ(mpool_close(db.d_mp), 0);
	memset(&db, 0, sizeof(db));
}

static inline void up_as(bool rdonly)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	memset(&db, 0, sizeof(db));
	o.rollback = rollback;
	T_EQ(kv_db_attach(&db, dir, &o, rdonly), 0);
	T_EQ(kv_db_load_kvs(&db, 0, false), 0);
	open_err = kv_recover(&db, rdonly);
	last_desc.epoch = db.d_epochs.ep_desc.epoch;
	last_desc.obj = db.d_epochs.ep_desc.obj;
	last_desc.off = db.d_epochs.ep_desc.off;
	prev_epoch = last_desc.epoch;
}

static inline void up(void)
{
	up_as(false);
	T_EQ(open_err, 0);
}

static inline void up_lost(void)
{
	up_as(false);
	T_EQ(open_err, -EUCLEAN);
	T_OK(strstr(kvdb_error_detail()->text, "device lost acknowledged writes"));
}

/* The open is refused: segment @i is bad at @off, with what was durable, and what is good. */
static inline void up_damaged(int i, uint32_t off, uint64_t durable, uint64_t good)
{
	struct kvdb_repair r;

	if (ts[i].id)		/* else as the last time */
		snprintf(bad, sizeof(bad), "object %llu: the log is damaged at %u; epochs up to "
			 "%llu were durable, the last good one is %llu",
			 (unsigned long long)ts[i].id, off, (unsigned long long)durable,
			 (unsigned long long)good);
	down();
	up_as(false);
	T_EQ(open_err, -EUCLEAN);
	T_OK(!strcmp(kvdb_error_detail()->id, "MP0907"));
	T_OK(!strcmp(kvdb_error_detail()->text, bad));
	down();
	T_EQ(kvdb_repair(dir, NULL, NULL, NULL, NULL, &r), 0);
	up_as(true);
	T_EQ(open_err, -EUCLEAN);
}

/* A database with two stores, a and b, opened once. */
static inline void fresh(void)
{
	pool_make();
	up();
	T_EQ(kvdb_kvs_create(&db, "a", NULL), 0);
	T_EQ(kvdb_kvs_create(&db, "b", NULL), 0);
}

static inline void gone(void)
{
	down();
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static inline void seg_alloc(int i)
{
	struct mpool_alloc req = { .kind = MPOOL_APPEND, .mclass = MPOOL_CAPACITY,
				   .capacity = SEG_BYTES, .tag = db.d_ident.id_tag };

	T_EQ(mpool_alloc(db.d_mp, &req, 1, &ts[i].obj), 0);
	ts[i].id = mpool_obj_id(ts[i].obj);
	ts[i].off = ts[i].chain = 0;
	ts[i].epoch = 0;
}

/* A database with an empty segment in each of the first @n logs, and the epoch that is open. */
static inline uint64_t fresh_logs(int n)
{
	fresh();
	for (int i = 0; i < n; i++)
		seg_alloc(i);
	return db.d_epochs.ep_open;
}

/* Writes one frame whose records are in @buf from byte 64 to @len. */
static inline void frame_write(int i, uint64_t epoch, uint8_t *buf, uint32_t len, uint32_t nrec)
{
	struct kv_mark m = { .ma_begin = ts[i].epoch == epoch ? ts[i].begin : ts[i].off,
			     .ma_prev = prev_epoch };
	struct kv_frame_hdr h = {
		.fh_incarnation = db.d_ident.id_incarnation, .fh_tag = (uint32_t)db.d_ident.id_tag,
		.fh_obj = ts[i].id, .fh_off = ts[i].off, .fh_len = len, .fh_epoch = epoch,
		.fh_chain = ts[i].chain, .fh_nrec = nrec + (uint32_t)wrong_nrec, .fh_log =
		(uint16_t)i,
	};
	struct iovec v = { buf, 4096 };

	if (marks) {
		kv_mark_encode(buf + len, ts[i].id, ts[i].off + len, &m);
		h.fh_len = len += KV_MARK_SIZE;
		h.fh_nrec++;
	}
	ts[i].begin = m.ma_begin;
	h.fh_payload_crc = mpool_crc32c(0, buf + KV_FRAME_HDR, len - KV_FRAME_HDR);
	kv_frame_encode(&h, buf, &ts[i].chain);
	if (lose || tear)
		memset(buf + (tear ? KV_FRAME_HDR : 0), 0, 4096 - (tear ? KV_FRAME_HDR : 0));
	T_EQ(mpool_write(ts[i].obj, ts[i].off, &v, 1), 0);
	ts[i].off += 4096;
	ts[i].epoch = epoch;
}

/* One record of store @kvs in a frame of its own; @val NULL = a delete. */
static inline void put_rev(int i, uint64_t epoch, uint16_t kvs, const char *key, const char *val,
			   uint64_t seq, uint32_t rev)
{
	static uint8_t buf[4096] __attribute__((aligned(4096)));
	uint16_t klen = (uint16_t)strlen(key);
	uint32_t vlen = val ? (uint32_t)strlen(val) : 0;
	uint8_t *p = buf + KV_FRAME_HDR;

	memset(buf, 0, sizeof(buf));
	kv_rec_encode(p, val ? KV_REC_PUT : KV_REC_DEL, kvs, key, klen, val, vlen,
		      mpool_crc32c(0, val, vlen));
	kv_rec_set_rev(p, rev);
	kv_rec_stamp(p, ts[i].id, ts[i].off + KV_FRAME_HDR, seq);
	frame_write(i, epoch, buf, KV_FRAME_HDR + kv_rec_size(klen, vlen), 1);
}

static inline void put(int i, uint64_t epoch, uint16_t kvs, const char *key, const char *val,
		       uint64_t seq)
{
	put_rev(i, epoch, kvs, key, val, seq, (uint32_t)seq);
}

/* Ends an epoch: its descriptor goes to segment @carrier and lists all that it wrote to. */
static inline void end_epoch(int carrier, uint64_t epoch)
{
	static uint8_t buf[4096] __attribute__((aligned(4096)));
	struct kv_desc_ent ents[SEGS];
	struct kv_desc d = { .ds_incarnation = db.d_ident.id_incarnation +
					       (uint32_t)wrong_incarnation, .ds_epoch = epoch,
			     .ds_prev_epoch = last_desc.epoch, .ds_prev_obj = last_desc.obj,
			     .ds_prev_off = last_desc.off };
	int i;

	for (i = 0; i < SEGS; i++) {
		if (i != carrier && (!ts[i].obj || ts[i].epoch != epoch))
			continue;
		if (no_own_entry && i == carrier)
			continue;
		ents[d.ds_n].de_obj = ts[i].id;
		ents[d.ds_n].de_end = ts[i].off + (i == carrier ? 4096 : 0);
		ents[d.ds_n++].de_chain = ts[i].chain;
	}
	memset(buf, 0, sizeof(buf));
	kv_desc_encode(buf + KV_FRAME_HDR, ts[carrier].id, ts[carrier].off + KV_FRAME_HDR, &d,
		       ents);
	last_desc.epoch = epoch;
	last_desc.obj = ts[carrier].id;
	last_desc.off = ts[carrier].off;
	frame_write(carrier, epoch, buf, KV_FRAME_HDR + KV_REC_HDR + kv_desc_size(d.ds_n), 1);
	prev_epoch = epoch;
}

/* seq of the key's newest version in the store's memtable, 0 = not there; *kind as found */
static inline uint64_t seen(const char *store, const char *key, int *kind)
{
	struct kvdb_kvs *kvs;
	struct kv_tree *tr;
	struct kv_iter *it;
	struct kv_ent e;
	uint64_t seq = 0;

	T_EQ(kvdb_kvs_open(&db, store, &kvs), 0);
	tr = kv_tree_get(kvs);
	T_EQ(kv_mt_iter(&db, tr->tr_mt[0], UINT64_MAX - 1, false, &it), 0);
	while (!it->it_ops->next(it, &e))
		if (e.e_klen == strlen(key) && !memcmp(e.e_key, key, e.e_klen)) {
			seq = e.e_seq;
			if (kind)
				*kind = e.e_kind;
		}
	it->it_ops->close(it);
	kv_tree_put(&db, tr);
	return seq;
}

static inline void append_raw(void)
{
	struct iovec v = { db.d_mdc->m_buf.mb_p, db.d_mdc->m_buf.mb_len };

	T_EQ(mpool_mdc_append(db.d_mdc->m_log, &v, 1, MPOOL_SYNC), 0);
}

static inline void again(void)
{
	down();
	up();
}

#endif
