/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Ordering points of libkvdb that a crash of the process or of the power at an
 * arbitrary moment hardly ever meets: each is watched where it has to act.
 */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "log/flush.h"
#include "kv_sim.h"
#include "log/log.h"
#include "meta/mdc.h"
#include "open/salvage.h"
#include "seg/seg.h"
#include "open/open.h"
#include "open/recover.h"

static void make_db(void)
{
	kv_sim(2);
	T_EQ(kvdb_create(POOL, &opts), 0);
}

static struct kvdb_kvs *open_db(struct kvdb **db)
{
	struct kvdb_kvs *kvs;

	T_EQ(kvdb_open(POOL, &opts, db), 0);
	T_EQ(kvdb_kvs_create(*db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(*db, "s", &kvs), 0);
	return kvs;
}

/* Bytes in the volatile caches of both devices, which recovery might be going to believe. */
static void dirty(struct mpool *mp)
{
	struct mpool_alloc req[2] = {
		{ .kind = MPOOL_APPEND, .mclass = MPOOL_CAPACITY, .capacity = 4096 },
		{ .kind = MPOOL_APPEND, .mclass = MPOOL_STAGING, .capacity = 4096 },
	};
	static uint8_t buf[4096] __attribute__((aligned(4096)));
	struct iovec v = { buf, sizeof(buf) };
	struct mpool_obj *o[2] = { NULL, NULL };
	unsigned i;

	T_EQ(mpool_alloc(mp, req, 2, o), 0);
	for (i = 0; i < 2; i++)
		T_EQ(mpool_write(o[i], 0, &v, 1), 0);
	for (i = 0; i < 2; i++)
		mpool_obj_close(o[i]);
}

/* R3: the pool may have been open all the time; only the process of the database died. */
static void recovery_builds_on_nothing_volatile(void)
{
	static struct kvdb db;
	struct sim_log log;
	unsigned i, flushed = 0, writes = 0;

	make_db();
	memset(&db, 0, sizeof(db));
	T_EQ(kv_db_attach(&db, POOL, &opts, false), 0);
	T_EQ(mpool_begin(db.d_mp), 0);
	dirty(db.d_mp);
	T_EQ(kv_db_load_kvs(&db, 0, false), 0);
	sim_log_init(&log, 0);
	sim.s_log = &log;
	T_EQ(kv_recover(&db, false), 0);
	sim.s_log = NULL;
	for (i = 0; i < sim_log_end(&log); i++) {
		const struct sim_ev *ev = sim_log_at(&log, i);

		if (ev->ev_type == SIM_FLUSH)
			flushed |= 1u << ev->ev_dev;
		else if (ev->ev_type == SIM_WRITE && !writes++)
			T_EQ(flushed, 3);
	}
	T_OK(writes > 0);
	sim_log_fini(&log);
	kv_db_detach(&db);
	T_EQ(mpool_close(db.d_mp), 0);
	sim_fini(&sim);
}

/* S4: a segment that the container calls sealed is a sealed object of that length. */
static void sealed_segments_are_sealed_objects(void)
{
	static char val[60000];
	struct mpool_obj_info oi;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	uint64_t after = 0;
	unsigned i, sealed = 0;
	char key[16];

	make_db();
	opts.segment_bytes = 256u << 10;
	kvs = open_db(&db);
	for (i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		T_EQ(kvdb_put(kvs, key, strlen(key), val, sizeof(val)), 0);
	}
	T_EQ(kvdb_sync(db), 0);
	for (i = 0; i < 1000 && kvdb_poll(db) == 1; i++)
		;
	for (; mpool_objects(db->d_mp, after, db->d_ident.id_tag, &oi, 1) == 1; after = oi.id) {
		if (oi.kind != MPOOL_APPEND || !(oi.flags & MPOOL_OBJ_SEALED))
			continue;
		sealed++;
		T_OK(oi.length > 0);
	}
	/* 2.4 MB of values, 256 KiB each */
	T_OK(sealed >= 5);
	T_EQ(kvdb_close(db), 0);
	sim_fini(&sim);
}

/* The answer comes after the flush that makes the change durable. */
static void options_of_stores_are_durable_when_they_are_set(void)
{
	struct kv_props p = { .pr_val = { [KV_PROP_TTL] = 5 } };
	struct kvdb_kvs *kvs;
	struct sim_log log;
	struct kvdb *db;
	unsigned n;

	make_db();
	kvs = open_db(&db);
	sim_log_init(&log, 0);
	sim.s_log = &log;
	T_EQ(kv_mdc_kvs_prop(db, kvs->k_id, &p, KV_PROP_BIT(KV_PROP_TTL)), 0);
	sim.s_log = NULL;
	n = sim_log_end(&log);
	T_OK(n >= 1);
	T_OK(sim_log_at(&log, n - 1)->ev_type == SIM_FLUSH ||
	     sim_log_at(&log, n - 1)->ev_is_fua);
	sim_log_fini(&log);
	T_EQ(kvdb_close(db), 0);
	sim_fini(&sim);
}

/* ---- epochs ---- */

static struct kvdb_kvs *late_kvs;
static int late_begun, late_done, late_err;

static void *late_put(void *arg)
{
	(void)arg;
	__atomic_store_n(&late_begun, 1, __ATOMIC_SEQ_CST);
	late_err = kvdb_put(late_kvs, "b", 1, "2", 1);
	__atomic_store_n(&late_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* R4: a write of the next epoch waits while the one before it is being closed. */
static void nothing_is_installed_before_the_last_epoch_closed(void)
{
	struct kvdb *db;
	pthread_t t;
	int i;

	make_db();
	late_kvs = open_db(&db);
	T_EQ(kvdb_sync(db), 0);
	T_EQ(kvdb_put(late_kvs, "a", 1, "1", 1), 0);
	/* as if the tick had opened this epoch and stood still before the last was closed */
	pthread_mutex_lock(&db->d_epochs.ep_tick_lock);
	atomic_fetch_sub(&db->d_epochs.ep_closed, 1);
	late_begun = late_done = 0;
	T_EQ(pthread_create(&t, NULL, late_put, NULL), 0);
	while (!__atomic_load_n(&late_begun, __ATOMIC_SEQ_CST))
		usleep(1000);
	for (i = 0; i < 500 && !__atomic_load_n(&late_done, __ATOMIC_SEQ_CST); i++)
		usleep(1000);
	T_EQ(late_done, 0);
	T_EQ(kvdb_get(late_kvs, "b", 1, NULL, 0, NULL), -ENOENT);
	atomic_fetch_add(&db->d_epochs.ep_closed, 1);
	pthread_mutex_unlock(&db->d_epochs.ep_tick_lock);
	T_EQ(pthread_join(t, NULL), 0);
	T_EQ(late_err, 0);
	T_EQ(kvdb_sync(db), 0);
	T_EQ(kvdb_close(db), 0);
	sim_fini(&sim);
}

/* No reader takes a descriptor of more segments, so no writer may make one. */
static void epoch_of_too_many_segments_is_not_durable(void)
{
	enum { N = KV_DESC_ENTS_MAX + 1 };
	struct kv_flusher *fl;
	struct kvdb_kvs *kvs;
	struct kv_seg *s;
	struct kvdb *db;
	unsigned i;

	make_db();
	kvs = open_db(&db);
	T_EQ(kvdb_put(kvs, "a", 1, "1", 1), 0);
	fl = db->d_flusher;
	s = kv_log_at(db->d_logs, db->d_logs->ls_n)->lo_seg;	/* of the first key log */
	T_OK(s != NULL);
	free(fl->fl_segs);
	fl->fl_segs = calloc(2 * N, sizeof(fl->fl_segs[0]));
	fl->fl_maxsegs = 2 * N;
	fl->fl_nsegs = N;
	for (i = 0; i < N; i++)
		fl->fl_segs[i].es_seg = s;
	T_OK(kvdb_sync(db) < 0);
	T_OK(strstr(kvdb_error_detail()->text, "log segments, more than"));
	kvdb_close(db);
	sim_fini(&sim);
}

/* RV14: when it returns, nothing of it is in a device's cache. */
static void rename_of_a_store_is_on_media_when_it_returns(void)
{
	struct sim_log log;
	struct kvdb *db;
	unsigned i, writes = 0, open = 0;

	make_db();
	open_db(&db);
	sim_log_init(&log, 0);
	sim.s_log = &log;
	T_EQ(kvdb_kvs_rename(db, "s", "t"), 0);
	sim.s_log = NULL;
	for (i = 0; i < sim_log_end(&log); i++) {
		const struct sim_ev *ev = sim_log_at(&log, i);

		if (ev->ev_type == SIM_WRITE) {
			writes++;
			open |= ev->ev_is_fua ? 0 : 1u << ev->ev_dev;
		} else if (ev->ev_type == SIM_FLUSH) {
			open &= ~(1u << ev->ev_dev);
		}
	}
	T_OK(writes > 0);
	T_EQ(open, 0);
	sim_log_fini(&log);
	T_EQ(kvdb_close(db), 0);
	sim_fini(&sim);
}

#define FLAKY "a value that the device changes"

static const struct mpool_vdev_ops *sound;
static unsigned times_read, lie_first, lie_last;
static bool is_head;	/* it is the block that begins with another byte, not FLAKY */
static int bad_err;	/* of each read of it; 0: none */

/*
 * As the simulator, but what holds FLAKY is another in its reads lie_first to lie_last, or
 * cannot be read.
 */
static int flaky_readv(void *dev, uint64_t off, const struct iovec *iov, unsigned n,
		       uint64_t *ready_ns)
{
	int rc = sound->readv(dev, off, iov, n, ready_ns);

	for (unsigned i = 0; i < n && !rc; i++) {
		char *p = memmem(iov[i].iov_base, iov[i].iov_len, FLAKY, strlen(FLAKY));

		if (p && bad_err)
			rc = bad_err;
		if (!p || ++times_read < lie_first || times_read > lie_last)
			continue;
		if (is_head)
			p -= (p - (char *)iov[i].iov_base) % KV_BLOCK;
		*p ^= 1;
	}
	return rc;
}

static int flaky_open(void *ctx, const char *path, int is_create, int is_rdonly, uint64_t size,
		      struct mpool_vdev *out)
{
	static struct mpool_vdev_ops ops;
	int rc = sim.s_prov.open(ctx, path, is_create, is_rdonly, size, out);

	if (rc)
		return rc;
	sound = out->ops;
	ops = *sound;
	ops.readv = flaky_readv;
	out->ops = &ops;
	return 0;
}

/* A database on a device that lies, in which FLAKY was acknowledged before its process died. */
static void make_flaky(struct mpool_dev_provider *prov)
{
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	make_db();
	kvs = open_db(&db);
	T_EQ(kvdb_put(kvs, "k", 1, FLAKY, strlen(FLAKY)), 0);
	T_EQ(kvdb_sync(db), 0);
	/* the process dies here */
	sim_snap(&sim);
	T_EQ(kvdb_close(db), 0);
	sim_rollback(&sim);
	*prov = sim.s_prov;
	prov->open = flaky_open;
	oo.provider = prov;
	times_read = 0;
}

/* RV16: recovery reads a segment twice when it cannot keep its bytes. */
static void a_frame_that_changes_between_two_reads_fails_the_open(void)
{
	struct mpool_dev_provider prov;
	static struct kvdb db;

	make_flaky(&prov);
	lie_first = 2;
	lie_last = ~0u;
	memset(&db, 0, sizeof(db));
	T_EQ(kv_db_attach(&db, POOL, &opts, true), 0);
	db.d_budget.b_slab_bytes = 0;
	T_EQ(kv_db_load_kvs(&db, 0, false), 0);
	T_EQ(kv_recover(&db, true), -EUCLEAN);
	T_EQ(times_read, 2);
	T_OK(strstr(kvdb_error_detail()->text, "changed between two reads"));
	kv_db_detach(&db);
	T_EQ(mpool_close(db.d_mp), 0);
	sim_fini(&sim);
}

/* RV19: the last frame of the log, its header or what it carries. */
static void a_read_that_lies_once_is_no_torn_write(void)
{
	struct mpool_dev_provider prov;
	char got[sizeof(FLAKY)];
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	size_t len;
	int i;

	for (i = 0; i < 2; i++) {
		make_flaky(&prov);
		is_head = i;
		lie_first = lie_last = 1;
		T_EQ(kvdb_open(POOL, &opts, &db), 0);
		T_OK(times_read > 1);
		T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
		T_EQ(kvdb_get(kvs, "k", 1, got, sizeof(got), &len), 0);
		T_EQ(len, strlen(FLAKY));
		T_MEMEQ(got, FLAKY, len);
		T_EQ(kvdb_close(db), 0);
		sim_fini(&sim);
	}
}

/* RP6 */
static void a_block_that_cannot_be_read_costs_repair_its_frame(void)
{
	struct mpool_dev_provider prov;
	struct kvdb_repair r, whole;
	char key[16], val[100] = "";
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	make_db();
	kvs = open_db(&db);
	for (unsigned i = 0; i < 100; i++) {
		if (i == 50)
			T_EQ(kvdb_put(kvs, "k", 1, FLAKY, strlen(FLAKY)), 0);
		else
			T_EQ(kvdb_put(kvs, key, (size_t)sprintf(key, "%u", i), val,
				      sizeof(val)), 0);
		T_EQ(kvdb_sync(db), 0);
	}
	/* the process dies here */
	sim_snap(&sim);
	T_EQ(kvdb_close(db), 0);
	sim_rollback(&sim);
	prov = sim.s_prov;
	prov.open = flaky_open;
	oo.provider = &prov;
	lie_first = lie_last = 0;
	T_EQ(kvdb_repair(POOL, &opts, NULL, NULL, NULL, &whole), 0);
	T_EQ(whole.keys, 100);
	T_EQ(whole.log_bytes, 0);
	bad_err = -EIO;
	T_EQ(kvdb_open(POOL, &opts, &db), -EIO);
	T_EQ(kvdb_repair(POOL, &opts, NULL, NULL, NULL, &r), 0);
	T_EQ(r.keys, 99);
	T_OK(r.log_bytes);
	bad_err = 0;
	sim_fini(&sim);
}

#define SMALL	"a small value"
#define LARGE	300u

/* A database whose process died. Of 100 keys each second is large; a frame follows on theirs. */
static void make_frames(void)
{
	char key[16], val[LARGE] = SMALL;
	struct kvdb_kvs *kvs;
	struct kvdb *db;

	make_db();
	kvs = open_db(&db);
	for (unsigned i = 0; i < 100; i++) {
		val[LARGE - 1] = (char)i;
		T_EQ(kvdb_put(kvs, key, (size_t)sprintf(key, "key %02u", i), val,
			      i & 1 ? LARGE : strlen(SMALL)), 0);
	}
	T_EQ(kvdb_sync(db), 0);
	T_EQ(kvdb_put(kvs, "key 98", 6, SMALL, strlen(SMALL)), 0);
	T_EQ(kvdb_put(kvs, "key 99", 6, val, LARGE), 0);
	T_EQ(kvdb_sync(db), 0);
	sim_snap(&sim);
	T_EQ(kvdb_close(db), 0);
	sim_rollback(&sim);
}

/* One bit of what lies @off bytes behind @key, wherever the devices have that. */
static void flip_behind(const char *key, size_t off)
{
	unsigned n = 0;

	for (unsigned d = 0; d < sim.s_ndev; d++) {
		uint8_t *mem = sim.s_dev[d].d_mem, *p = mem;

		while ((p = memmem(p, (size_t)(mem + sim.s_dev[d].d_cap - p), key, 6))) {
			uint8_t b = p[off] ^ 1;

			sim_poke(&sim, d, (uint64_t)(p - mem) + off, &b, 1);
			p += 6;
			n++;
		}
	}
	T_EQ(n, 1);
}

/* RP6: the checksum of the frame is wrong, those of its other records are not. */
static void a_flipped_bit_in_a_log_costs_repair_one_record(void)
{
	static const struct {
		const char *key;
		size_t off;
		unsigned values, most;
	} flip[] = {
		{ "key 40", 0, 0, 100 },	/* a key: nothing says which one */
		{ "key 40", 10, 0, 100 },	/* a value that is taken from its record */
		{ "key 41", 200, 1, 0 },	/* one that a read checks: it is named */
	};

	for (unsigned i = 0; i < sizeof(flip) / sizeof(flip[0]); i++) {
		struct kvdb_repair r;

		make_frames();
		flip_behind(flip[i].key, flip[i].off);
		T_EQ(kvdb_repair(POOL, &opts, NULL, NULL, NULL, &r), 0);
		T_EQ(r.keys, 99);
		T_EQ(r.lost_values, flip[i].values);
		T_OK(r.log_bytes <= flip[i].most && !r.log_bytes == !flip[i].most);
		sim_fini(&sim);
	}
}

/* RP6, RV17: the second epoch, in another segment, proves that the first was durable. */
static void a_bad_last_frame_is_no_torn_end_when_a_later_epoch_is_there(void)
{
	struct kvdb_repair r;

	for (unsigned is_later = 0; is_later < 2; is_later++) {
		char key[16], val[LARGE] = SMALL;
		struct kvdb_kvs *kvs;
		struct kvdb *db;

		make_db();
		kvs = open_db(&db);
		for (unsigned i = 0; i < 100; i++)
			T_EQ(kvdb_put(kvs, key, (size_t)sprintf(key, "key %02u", i), val,
				      LARGE), 0);
		T_EQ(kvdb_sync(db), 0);
		/* deletes are in other segments than large values */
		if (is_later) {
			T_EQ(kvdb_del(kvs, "key 98", 6), 0);
			T_EQ(kvdb_sync(db), 0);
		}
		sim_snap(&sim);
		T_EQ(kvdb_close(db), 0);
		sim_rollback(&sim);
		flip_behind("key 40", 0);
		T_EQ(kvdb_repair(POOL, &opts, NULL, NULL, NULL, &r), 0);
		T_EQ(r.keys, is_later ? 98 : 0);
		T_OK(is_later ? r.log_bytes && r.log_bytes <= 2 * LARGE : !r.log_bytes);
		sim_fini(&sim);
	}
}

static int count_key(void *arg, struct kv_seg *s, const struct kv_rec *r, uint64_t epoch,
		     uint32_t off)
{
	(void)s;
	(void)epoch;
	(void)off;
	*(unsigned *)arg += r->r_type == KV_REC_PUT;
	return 0;
}

/* RP6: a walk that looks for older versions, too, finds what is whole of a bad frame. */
static void a_flipped_bit_hides_one_record_of_a_log(void)
{
	static struct kvdb db;
	unsigned n = 0;

	make_frames();
	flip_behind("key 40", 0);
	memset(&db, 0, sizeof(db));
	T_EQ(kv_db_attach(&db, POOL, &opts, true), 0);
	for (struct kv_seg *s = kv_segs_first(&db); s; s = s->sg_next) {
		atomic_store(&s->sg_end, kv_seg_readable(s));
		T_EQ(kv_salvage_log(&db, s, count_key, &n), 0);
	}
	T_EQ(n, 101);
	kv_db_detach(&db);
	T_EQ(mpool_close(db.d_mp), 0);
	sim_fini(&sim);
}

/* INV-20 of the core: to a get of a key these would be answers. */
static void an_error_of_a_device_is_no_answer(void)
{
	static const int errs[] = { -ENOENT, -ESTALE, -ENODATA, -ECANCELED, -EINPROGRESS };
	struct mpool_dev_provider prov;
	char val[200] = FLAKY, got[200];
	struct kvdb_kvs *kvs;
	struct kvdb_txn *txn;
	struct kvdb *db;
	size_t len;

	make_db();
	kvs = open_db(&db);
	T_EQ(kvdb_put(kvs, "k", 1, val, sizeof(val)), 0);
	T_EQ(kvdb_close(db), 0);
	prov = sim.s_prov;
	prov.open = flaky_open;
	oo.provider = &prov;
	lie_first = lie_last = 0;
	T_EQ(kvdb_open(POOL, &opts, &db), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (unsigned i = 0; i < sizeof(errs) / sizeof(errs[0]); i++) {
		bad_err = errs[i];
		T_EQ(kvdb_get(kvs, "k", 1, got, sizeof(got), &len), -EIO);
		T_EQ(kvdb_txn_begin(db, 0, &txn), 0);
		T_EQ(kvdb_txn_get(txn, kvs, "k", 1, got, sizeof(got), &len), -EIO);
		kvdb_txn_abort(txn);
	}
	bad_err = 0;
	T_EQ(kvdb_get(kvs, "k", 1, got, sizeof(got), &len), 0);
	T_MEMEQ(got, val, sizeof(val));
	T_EQ(kvdb_close(db), 0);
	sim_fini(&sim);
}

int main(void)
{
	T_RUN(recovery_builds_on_nothing_volatile);
	T_RUN(sealed_segments_are_sealed_objects);
	T_RUN(options_of_stores_are_durable_when_they_are_set);
	T_RUN(nothing_is_installed_before_the_last_epoch_closed);
	T_RUN(epoch_of_too_many_segments_is_not_durable);
	T_RUN(rename_of_a_store_is_on_media_when_it_returns);
	T_RUN(a_frame_that_changes_between_two_reads_fails_the_open);
	T_RUN(a_read_that_lies_once_is_no_torn_write);
	T_RUN(a_block_that_cannot_be_read_costs_repair_its_frame);
	T_RUN(a_flipped_bit_in_a_log_costs_repair_one_record);
	T_RUN(a_bad_last_frame_is_no_torn_end_when_a_later_epoch_is_there);
	T_RUN(a_flipped_bit_hides_one_record_of_a_log);
	T_RUN(an_error_of_a_device_is_no_answer);
	return t_done();
}
