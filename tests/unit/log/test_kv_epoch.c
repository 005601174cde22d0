/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Writers that stop at every step of a write while epochs end, views open and
 * the process dies (R1, R4, R7, R12). A "stopped writer" is a
 * thread that has done some of the steps of kvs.c and then waits.
 */
#include "die.h"

#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "log/flush.h"
#include "log/frame.h"
#include "kv_active.h"
#include "kv_clock.h"
#include "meta/mdc.h"
#include "mem/memtable.h"
#include "base/hash.h"
#include "db/thread.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "tree/tree.h"
#include "background/work.h"

#define INTERVAL_MS 100u

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;

static void open_db(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;

	o.flags = KVDB_MANUAL;
	o.interval_ms = INTERVAL_MS;
	o.logs = 2;
	o.cache_bytes = 64u << 20;
	o.clock = &test_clock;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	if (kvdb_kvs_open(db, "s", &kvs)) {
		T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
		T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	}
}

static void make_sized_db(uint64_t bytes)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = bytes };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/kv_epoch.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
}

static void make_db(void)
{
	make_sized_db(96u << 20);
}

static void drop_db(void)
{
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static void put(const char *key, const char *val)
{
	T_EQ(kvdb_put(kvs, key, strlen(key), val, strlen(val)), 0);
}

static void expect(const char *key, const char *val)
{
	char buf[64];
	size_t len = 0;
	int err = kvdb_get(kvs, key, strlen(key), buf, sizeof(buf) - 1, &len);

	if (!val) {
		T_EQ(err, -ENOENT);
		return;
	}
	T_EQ(err, 0);
	buf[len] = 0;
	T_STREQ(buf, val);
}

/* ---- a writer that stops ------------------------------------------------------ */

enum stop { AFTER_RESERVE, AFTER_ENCODE, AFTER_INSTALL, AFTER_STAMP };

struct writer {
	pthread_t thread;
	pthread_barrier_t stopped, go;
	const char *key, *val;
	enum stop where;
	struct kv_resv rs;
	int result;	/* of kv_mt_install() when it goes on */
};

static void writer_steps(struct writer *w)
{
	struct kv_slot *sl = &kv_tctx(db)->tc_slot;
	struct kv_log *lo = kv_log_at(db->d_logs, db->d_logs->ls_n);	/* first key log */
	uint32_t klen = (uint32_t)strlen(w->key), vlen = (uint32_t)strlen(w->val);
	uint32_t size = kv_rec_size(klen, vlen), crc = mpool_crc32c(0, w->val, vlen), start, i;
	struct kv_mt_op op = { .op_key = w->key, .op_klen = (uint16_t)klen, .op_val = w->val,
			       .op_vlen = vlen, .op_vcrc = crc, .op_kind = KV_ENT_INLINE,
			       .op_hash = kv_hash(w->key, klen) };
	struct kv_thread *t = kv_enter();
	struct kv_version *v;
	struct kv_resv rs;

	atomic_store(&sl->sl_state, 1u << 2 | KV_SLOT_OPEN);
	if (kv_log_reserve(db, lo, 1, size, &rs))
		abort();
	w->rs = rs;
	i = atomic_load(&sl->sl_index);
	start = rs.rs_off - rs.rs_frame->fr_off;
	if (w->where == AFTER_RESERVE) {
		pthread_barrier_wait(&w->stopped);
		pthread_barrier_wait(&w->go);
	}
	atomic_store(&sl->sl_frame, rs.rs_frame);
	atomic_store(&sl->sl_off, rs.rs_off);
	atomic_store(&sl->sl_buf, rs.rs_buf);
	kv_rec_encode(rs.rs_buf, KV_REC_PUT, (uint16_t)kvs->k_id, w->key, (uint16_t)klen, w->val,
		      vlen, crc);
	atomic_store(&rs.rs_frame->fr_rec[i], KV_REC_AT(start, start + size));
	if (w->where == AFTER_ENCODE) {
		pthread_barrier_wait(&w->stopped);
		pthread_barrier_wait(&w->go);
	}
	w->result = kv_mt_install(active_mt(kvs), &op, sl, &rs, &v);
	if (!w->result) {
		if (w->where == AFTER_INSTALL) {
			pthread_barrier_wait(&w->stopped);
			pthread_barrier_wait(&w->go);
		}
		kv_rec_stamp(rs.rs_buf, rs.rs_seg->sg_id, rs.rs_off, kv_version_stamp(db, v));
		if (w->where == AFTER_STAMP) {
			pthread_barrier_wait(&w->stopped);
			pthread_barrier_wait(&w->go);
		}
	} else {
		kv_rec_encode_skip(rs.rs_buf, rs.rs_seg->sg_id, rs.rs_off, size);
	}
	atomic_fetch_or(&rs.rs_frame->fr_rec[i], KV_REC_DONE);
	atomic_fetch_add(&rs.rs_frame->fr_done, size);
	atomic_store(&sl->sl_state, 1u << 2);
	kv_exit(t);
}

static void *writer_main(void *arg)
{
	writer_steps(arg);
	return NULL;
}

/* Returns when the writer stands at its stop. */
static void writer_start(struct writer *w, const char *key, const char *val, enum stop where)
{
	struct kv_log *lo;

	*w = (struct writer){ .key = key, .val = val, .where = where, .result = 1 };
	/* the log must have a segment: the writer's steps have no way to get one */
	lo = kv_log_at(db->d_logs, db->d_logs->ls_n);
	T_EQ(kv_log_prepare(db, lo, false), 0);
	pthread_barrier_init(&w->stopped, NULL, 2);
	pthread_barrier_init(&w->go, NULL, 2);
	T_EQ(pthread_create(&w->thread, NULL, writer_main, w), 0);
	pthread_barrier_wait(&w->stopped);
}

static void writer_go(struct writer *w)
{
	pthread_barrier_wait(&w->go);
	pthread_join(w->thread, NULL);
}

/* ---- crashes ------------------------------------------------------------------- */

static uint64_t damage(void)
{
	uint64_t n = 1;

	T_EQ(kvdb_verify(dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &n), 0);
	return n;
}

static struct writer wr;

static void stop_and_sync(enum stop where)
{
	uint64_t e;

	put("before", "1");
	writer_start(&wr, "late", "x", where);
	put("after", "2");
	e = atomic_load(&db->d_epochs.ep_open);
	T_EQ(kvdb_sync(db), 0);		/* does not wait for the writer (R1) */
	T_OK(atomic_load(&db->d_epochs.ep_durable) >= e);
}

static void open_unpublished(void) { stop_and_sync(AFTER_RESERVE); }
static void open_published(void) { stop_and_sync(AFTER_ENCODE); }
static void installing(void) { stop_and_sync(AFTER_INSTALL); }
static void stamped(void) { stop_and_sync(AFTER_STAMP); }

static void crash_with(void (*fn)(void), const char *late)
{
	make_db();
	t_die_in(open_db, fn);
	T_EQ(damage(), 0);
	open_db();
	expect("before", "1");
	expect("after", "2");
	expect("late", late);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

static void open_record_of_unknown_place_is_withdrawn_at_the_tick(void)
{
	crash_with(open_unpublished, NULL);
}

static void open_record_is_withdrawn_at_the_tick(void)
{
	crash_with(open_published, NULL);
}

static void installing_record_is_completed_at_the_tick(void)
{
	crash_with(installing, "x");
}

static void stamped_record_is_completed_at_the_tick(void)
{
	crash_with(stamped, "x");
}

/* A reader has seen the value: it may not be gone after the sync (P4). */
static void seen_then_sync(void)
{
	writer_start(&wr, "late", "x", AFTER_INSTALL);
	expect("late", "x");
	T_EQ(kvdb_sync(db), 0);
}

static void what_a_reader_saw_before_a_sync_survives(void)
{
	make_db();
	t_die_in(open_db, seen_then_sync);
	open_db();
	expect("late", "x");
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

/* The copy that is written is memory of the heap. */
static void memory_of_others_does_not_get_to_media(void)
{
	uint8_t *buf = aligned_alloc(KV_BLOCK, 2 * KV_BLOCK);
	struct iovec iov = { buf, 2 * KV_BLOCK };
	struct kvdb_stats st;
	struct kv_rec r;
	uint32_t off;

	make_db();
	open_db();
	mallopt(M_PERTURB, 0xa5);
	writer_start(&wr, "late", "x", AFTER_RESERVE);
	T_EQ(kvdb_sync(db), 0);
	mallopt(M_PERTURB, 0);
	writer_go(&wr);
	T_EQ(wr.result, -EAGAIN);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.skipped_records, 1);
	off = wr.rs.rs_off % KV_BLOCK;
	T_EQ(mpool_read(wr.rs.rs_seg->sg_obj, wr.rs.rs_off - off, &iov, 1), 0);
	T_EQ(kv_rec_decode(buf + off, wr.rs.rs_seg->sg_id, wr.rs.rs_off, KV_BLOCK, true, &r), 0);
	T_EQ(r.r_type, KV_REC_SKIP);
	T_OK(r.r_size > KV_REC_HDR);
	for (uint32_t i = KV_REC_HDR; i < r.r_size; i++)
		T_EQ(buf[off + i], 0);
	T_EQ(kvdb_close(db), 0);
	drop_db();
	free(buf);
}

/* ---- writers that go on after the tick --------------------------------------------- */

static void late_writer_is_told_to_log_again(void)
{
	make_db();
	open_db();
	writer_start(&wr, "late", "x", AFTER_ENCODE);
	put("other", "1");
	T_EQ(kvdb_sync(db), 0);
	writer_go(&wr);
	T_EQ(wr.result, -EAGAIN);
	expect("late", NULL);
	put("late", "y");
	expect("late", "y");
	T_EQ(kvdb_close(db), 0);
	T_EQ(damage(), 0);
	drop_db();
}

/* R7: the epoch moved on between the reservation and the installation. */
static void late_writer_without_its_slot_withdrawn_is_told_too(void)
{
	make_db();
	open_db();
	writer_start(&wr, "late", "x", AFTER_ENCODE);
	/* as if the tick had opened the next epoch and stood still there */
	atomic_fetch_add(&db->d_epochs.ep_open, 1);
	writer_go(&wr);
	atomic_fetch_sub(&db->d_epochs.ep_open, 1);
	T_EQ(wr.result, -EAGAIN);
	expect("late", NULL);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

static void helped_writer_goes_on_unharmed(void)
{
	make_db();
	open_db();
	writer_start(&wr, "late", "x", AFTER_INSTALL);
	T_EQ(kvdb_sync(db), 0);
	put("late", "y");
	writer_go(&wr);
	T_EQ(wr.result, 0);
	expect("late", "y");
	T_EQ(kvdb_close(db), 0);
	T_EQ(damage(), 0);
	open_db();
	expect("late", "y");
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

/* ---- views ----------------------------------------------------------------------------- */

static unsigned int count(struct kvdb_cursor *c)
{
	const void *k, *v;
	size_t kl, vl;
	unsigned int n = 0;

	while (!kvdb_cursor_next(c, &k, &kl, &v, &vl))
		n++;
	return n;
}

static void version_pending_at_a_views_birth_is_not_in_it(void)
{
	struct kvdb_cursor *c;

	make_db();
	open_db();
	put("a", "1");
	writer_start(&wr, "b", "2", AFTER_INSTALL);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
	T_EQ(count(c), 1);
	expect("b", "2");
	T_EQ(kvdb_cursor_seek(c, "a", 1), 0);
	T_EQ(count(c), 1);	/* the same view, the same answer */
	kvdb_cursor_close(c);
	writer_go(&wr);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

static void overwrites_keep_what_a_view_can_see_and_no_more(void)
{
	struct kvdb_cursor *c;
	struct kv_version *v;
	struct kv_entry *en = NULL;
	const void *k, *val;
	size_t kl, vl;
	uint64_t s;
	unsigned int n = 0;

	make_db();
	open_db();
	put("k", "1");
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c), 0);
	put("k", "2");
	put("k", "3");
	put("k", "4");
	T_EQ(kvdb_cursor_next(c, &k, &kl, &val, &vl), 0);
	T_OK(vl == 1 && !memcmp(val, "1", 1));
	for (uint64_t i = 0; !en && i <= active_mt(kvs)->m_table->tb_mask; i++) {
		s = atomic_load(&active_mt(kvs)->m_table->tb_bucket[i].bk_slot[0]);
		en = (struct kv_entry *)(s & 0xffffffffffffull);
	}
	T_OK(en);
	for (v = atomic_load(&en->en_head); v; v = atomic_load(&v->v_older))
		n++;
	T_OK(n == 3);	/* newest, its predecessor (dropped at the next put), the view's */
	kvdb_cursor_close(c);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

/* ---- records with a segment of their own ------------------------------------------------- */

#define OWN_BYTES 100000u

static char own_val[OWN_BYTES];

/* A writer of one; it stops where it has its epoch. */
struct own {
	pthread_t thread;
	pthread_barrier_t stopped, go;
	struct kv_resv rs;
	int result;
};

static struct own ow;

/* What write_own() of kvs.c does. */
static void *own_main(void *arg)
{
	struct own *o = arg;
	struct kv_slot *sl = &kv_tctx(db)->tc_slot;
	uint32_t size = kv_rec_size(5, OWN_BYTES), crc = mpool_crc32c(0, own_val, OWN_BYTES);
	struct kv_mt_op op = { .op_key = "large", .op_klen = 5, .op_vlen = OWN_BYTES,
			       .op_vcrc = crc, .op_kind = KV_ENT_REF,
			       .op_hash = kv_hash("large", 5),
			       .op_val_off = KV_FRAME_HDR + kv_rec_val_off(5) };
	struct kv_thread *t = kv_enter();
	struct kv_version *v;

	kv_rec_encode(o->rs.rs_buf, KV_REC_PUT, (uint16_t)kvs->k_id, "large", 5, own_val, OWN_BYTES,
		      crc);
	kv_large_enter(db, &o->rs);
	pthread_barrier_wait(&o->stopped);
	pthread_barrier_wait(&o->go);
	atomic_store(&sl->sl_state, 1u << 2 | KV_SLOT_OPEN);
	atomic_store(&o->rs.rs_frame->fr_rec[0], KV_REC_AT(KV_FRAME_HDR, KV_FRAME_HDR + size));
	o->result = kv_mt_install(active_mt(kvs), &op, sl, &o->rs, &v);
	if (!o->result) {
		kv_rec_stamp(o->rs.rs_buf, o->rs.rs_seg->sg_id, o->rs.rs_off,
			     kv_version_stamp(db, v));
		atomic_fetch_or(&o->rs.rs_frame->fr_rec[0], KV_REC_DONE);
		atomic_fetch_add(&o->rs.rs_frame->fr_done, size);
	}
	atomic_store(&sl->sl_state, 1u << 2);
	kv_large_leave(db, &o->rs, !o->result);
	kv_exit(t);
	return NULL;
}

static void *sync_main(void *arg)
{
	(void)arg;
	return kvdb_sync(db) ? db : NULL;
}

static void own_and_sync(void)
{
	pthread_t syncer;
	void *failed = NULL;

	memset(own_val, 'v', sizeof(own_val));
	T_OK(kv_large_is_for(db, kv_rec_size(5, OWN_BYTES)));
	T_EQ(kv_large_make(db, KV_VLOG, kv_rec_size(5, OWN_BYTES), 0, &ow.rs), 0);
	/* however many epochs end while it is filled */
	put("a", "1");
	T_EQ(kvdb_sync(db), 0);
	put("a", "2");
	T_EQ(kvdb_sync(db), 0);
	put("a", "3");
	pthread_barrier_init(&ow.stopped, NULL, 2);
	pthread_barrier_init(&ow.go, NULL, 2);
	T_EQ(pthread_create(&ow.thread, NULL, own_main, &ow), 0);
	pthread_barrier_wait(&ow.stopped);
	T_EQ(pthread_create(&syncer, NULL, sync_main, NULL), 0);
	usleep(100000);
	pthread_barrier_wait(&ow.go);
	pthread_join(ow.thread, NULL);
	pthread_join(syncer, &failed);
	T_OK(!failed);
	T_EQ(ow.result, 0);
	T_OK(atomic_load(&db->d_epochs.ep_durable) >= ow.rs.rs_epoch);
}

/* L4 */
static void an_epoch_does_not_end_between_a_large_record_and_its_place(void)
{
	static char buf[OWN_BYTES];
	struct kvdb_stats st;
	size_t len;

	make_db();
	t_die_in(open_db, own_and_sync);
	T_EQ(damage(), 0);
	open_db();
	expect("a", "3");
	T_EQ(kvdb_get(kvs, "large", 5, buf, sizeof(buf), &len), 0);
	T_EQ(len, OWN_BYTES);
	T_OK(buf[0] == 'v' && buf[OWN_BYTES - 1] == 'v');
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.skipped_records, 0);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

/* L5: without an epoch, too; the next writer would wait for ever. */
static void what_was_not_logged_gives_its_memory_back(void)
{
	uint32_t bytes = 15u << 20;
	struct kv_resv rs;

	make_db();
	open_db();
	T_OK(2 * bytes > db->d_budget.b_large_bytes);
	for (unsigned i = 0; i < 3; i++) {
		T_EQ(kv_large_make(db, KV_VLOG, bytes, KV_OWN_NOWAIT, &rs), 0);
		kv_large_drop(db, &rs);
		kv_retire_barrier();
	}
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

static void make_and_drop(uint32_t bytes)
{
	struct kv_resv rs;

	T_EQ(kv_large_make(db, KV_VLOG, bytes, KV_OWN_NOWAIT, &rs), 0);
	kv_large_drop(db, &rs);
	kv_retire_barrier();
}

/* One commit for several; but not for sizes that do not come again. */
static void segments_for_values_of_one_size_are_ready(void)
{
	struct kv_logs *ls;
	uint32_t n, bytes = 3u << 20;

	make_db();
	open_db();
	ls = db->d_logs;
	make_and_drop(bytes);
	T_EQ(kv_large_ready_step(db), 0);
	make_and_drop(bytes);
	T_EQ(kv_large_ready_step(db), 1);
	n = ls->ls_nalone;
	T_OK(n >= 1);
	make_and_drop(bytes - KV_BLOCK);
	T_EQ(ls->ls_nalone, n - 1);
	make_and_drop(bytes / 2);
	T_EQ(ls->ls_nalone, 0);
	T_EQ(kv_large_ready_step(db), 0);
	T_EQ(kvdb_close(db), 0);
	open_db();
	T_EQ(kvdb_close(db), 0);
	T_EQ(damage(), 0);
	drop_db();
}

/* What is made of any size finds its place: else it would be allocated to be deleted. */
static void segments_that_are_made_are_used(void)
{
	static const uint32_t size[] = { 1048577, 1400000, 2097152, 3000000, 4194304 };

	make_sized_db(1280u << 20);
	for (unsigned i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		struct kv_logs *ls;
		uint32_t made, left;
		uint64_t all;

		open_db();
		ls = db->d_logs;
		make_and_drop(size[i]);
		make_and_drop(size[i]);
		T_EQ(kv_large_ready_step(db), 1);
		made = ls->ls_nalone;
		T_OK(made * (uint64_t)size[i] >= 28u << 20);
		while (!kv_large_ready_step(db))
			make_and_drop(size[i]);
		left = made / 2;
		T_EQ(ls->ls_nalone, left + made);
		all = 0;
		for (struct kv_seg *s = kv_segs_first(db); s; s = s->sg_next)
			all += s->sg_bytes >= size[i] && s->sg_bytes < size[i] + (128u << 10) &&
			       s->sg_state == KV_SEG_OPEN;
		T_OK(all <= left + made);
		T_EQ(kvdb_close(db), 0);
	}
	drop_db();
}

static void own_and_no_more(void)
{
	T_EQ(kv_large_make(db, KV_VLOG, kv_rec_size(5, OWN_BYTES), 0, &ow.rs), 0);
	memset(ow.rs.rs_buf, 'v', OWN_BYTES);
	put("a", "1");
	T_EQ(kvdb_sync(db), 0);
}

static void a_segment_that_was_never_logged_is_freed_after_a_crash(void)
{
	uint64_t id;

	make_db();
	open_db();
	T_EQ(kvdb_close(db), 0);
	t_die_in(open_db, own_and_no_more);
	open_db();
	expect("a", "1");
	while (kv_work_step(db) > 0)
		;
	T_EQ(kvdb_close(db), 0);
	open_db();
	id = 0;
	for (struct kv_seg *s = kv_segs_first(db); s; s = s->sg_next)
		id += s->sg_bytes != db->d_budget.b_seg_bytes;
	T_EQ(id, 0);
	T_EQ(kvdb_close(db), 0);
	T_EQ(damage(), 0);
	drop_db();
}

#define PLAIN_BYTES (1u << 20)

static char long_val[PLAIN_BYTES + 1];

static bool announces(void)
{
	return db->d_mdc->m_st.st_super.ms_incompat & KV_FEAT_LARGE;
}

static void put_longer(void)
{
	T_EQ(kvdb_put(kvs, "plain", 5, long_val, PLAIN_BYTES), 0);
	T_OK(!announces());
	T_EQ(kvdb_put(kvs, "longer", 6, long_val, PLAIN_BYTES + 1), 0);
	T_EQ(kvdb_sync(db), 0);
}

/* L6 */
static void longer_values_are_announced_before_they_are_logged(void)
{
	size_t len;

	make_db();
	t_die_in(open_db, put_longer);
	open_db();
	T_OK(announces());
	T_EQ(kvdb_get(kvs, "longer", 6, NULL, 0, &len), 0);
	T_EQ(len, PLAIN_BYTES + 1);
	T_EQ(kvdb_close(db), 0);
	T_EQ(damage(), 0);
	drop_db();
}

/* ---- the loss bound ----------------------------------------------------------------------- */

static void acknowledgements_wait_at_the_gate(void)
{
	struct kvdb_stats st;

	make_db();
	open_db();
	put("a", "1");
	/* without a tick: the flusher stands still */
	now_ns += (INTERVAL_MS - 2) * 1000000ull;
	put("b", "2");		/* must not be acknowledged before a is durable */
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.gate_waits, 1);
	T_OK(atomic_load(&db->d_epochs.ep_durable) + 1 >= atomic_load(&db->d_epochs.ep_open));
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

/* TH-9: the flusher stands still, as if its device did. */
static void bytes_that_wait_slow_writers_before_the_gate_shuts(void)
{
	static char val[64 << 10];
	struct kvdb_stats st;
	char key[16];

	make_db();
	open_db();
	atomic_store(&db->d_flusher->fl_lag.lg_rate, 2u << 30);	/* what it has proven */
	for (int i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		T_EQ(kvdb_put(kvs, key, strlen(key), val, sizeof(val)), 0);
	}
	now_ns += INTERVAL_MS * 1000000ull / 64;
	kv_pressure(db);
	T_OK(kv_delay_cause(db) != KVDB_DELAY_GATE);
	now_ns += INTERVAL_MS * 1000000ull / 2;
	kv_pressure(db);
	T_EQ(kv_delay_cause(db), KVDB_DELAY_GATE);
	T_OK(atomic_load(&db->d_throttle.th_all.to_cost) > 0);
	T_OK(!kv_gate_is_shut(db));
	T_EQ(kvdb_sync(db), 0);
	T_EQ(atomic_load(&db->d_logs->ls_unwritten), 0);
	/* an epoch as old in which hardly anything waits */
	put("a", "1");
	now_ns += INTERVAL_MS * 1000000ull * 5 / 8;
	kv_pressure(db);
	T_OK(kv_delay_cause(db) != KVDB_DELAY_GATE);
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.gate_waits, 0);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

static void the_first_frames_prove_a_rate(void)
{
	_Atomic(uint64_t) *rate;

	make_db();
	open_db();
	rate = &db->d_flusher->fl_lag.lg_rate;
	T_EQ(atomic_load(rate), KV_LAG_FIRST_RATE);
	kv_lag_busy(db);
	now_ns += 1000000;
	kv_lag_written(db, 512u << 10);
	T_OK(atomic_load(rate) > 520000000 && atomic_load(rate) < 530000000);
	/* a pause before the next is no reason to fall */
	now_ns += 100000000;
	kv_lag_written(db, 512u << 10);
	T_OK(atomic_load(rate) > 520000000);
	/* an epoch says more */
	db->d_flusher->fl_lag.lg_is_proven = true;
	kv_lag_busy(db);
	kv_lag_written(db, 64u << 20);
	T_OK(atomic_load(rate) < 530000000);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

static void undurable_acknowledgements_never_span_more_than_the_interval(void)
{
	uint64_t oldest = 0, seed = t_seed();
	char key[32];

	make_db();
	open_db();
	for (int i = 0; i < 400; i++) {
		uint64_t durable = atomic_load(&db->d_epochs.ep_durable);

		now_ns += t_rand(&seed) % 30000000u;
		snprintf(key, sizeof(key), "k%d", i);
		put(key, "v");
		if (atomic_load(&db->d_epochs.ep_durable) != durable)
			oldest = 0;	/* the put waited: it is durable too */
		else if (!oldest)
			oldest = now_ns;
		T_OK(!oldest || now_ns - oldest < INTERVAL_MS * 1000000ull);
	}
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

static void idle_database_writes_nothing(void)
{
	struct kvdb_stats a, b;

	make_db();
	open_db();
	put("a", "1");
	T_EQ(kvdb_sync(db), 0);
	kvdb_stats(db, &a);
	for (int i = 0; i < 100; i++) {
		now_ns += 1000000000u;
		T_OK(kvdb_poll(db) >= 0);
		T_EQ(kvdb_sync(db), 0);
	}
	kvdb_stats(db, &b);
	T_EQ(a.io[0].log_bytes, b.io[0].log_bytes);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

/* Times that each thread of the process went to sleep, by its id. */
static unsigned sleeps_of_threads(long *id, long *sleeps, unsigned max)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *de;
	unsigned n = 0;

	T_OK(d != NULL);
	while ((de = readdir(d)) && n < max) {
		char path[300], line[128];
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", de->d_name);
		f = de->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (!f)
			continue;
		id[n] = atol(de->d_name);
		while (fgets(line, sizeof(line), f))
			if (sscanf(line, "voluntary_ctxt_switches: %ld", &sleeps[n]) == 1)
				n++;
		fclose(f);
	}
	closedir(d);
	return n;
}

/* TH-15: the clock stands still, so only the keeper is to be woken again. */
static void idle_workers_sleep_while_epochs_pass(void)
{
	enum { MAX = 32, EPOCHS = 1000 };
	long id0[MAX], id1[MAX], n0[MAX], n1[MAX];
	struct kvdb_opts o = KVDB_OPTS_INIT;
	unsigned c0, c1, woken = 0;
	time_t t0;
	long self;

	make_db();
	o.interval_ms = INTERVAL_MS;
	o.cache_bytes = 64u << 20;
	o.threads = 8;
	o.clock = &test_clock;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	t0 = time(NULL);
	c0 = sleeps_of_threads(id0, n0, MAX);
	for (unsigned i = 0; i < EPOCHS; i++) {
		T_EQ(kvdb_put(kvs, "k", 1, "v", 1), 0);
		T_EQ(kv_epoch_force(db), 0);
	}
	c1 = sleeps_of_threads(id1, n1, MAX);
	self = 10 * (long)(time(NULL) - t0 + 1);	/* by itself each wakes after 100 ms */
	for (unsigned i = 0; i < c1; i++)
		for (unsigned k = 0; k < c0; k++)
			woken += id0[k] == id1[i] && n1[i] - n0[k] >= EPOCHS / 2 + self;
	printf("# of %u threads %u were woken by every second epoch\n", c1, woken);
	/* the writer, the flusher, the keeper; not seven mergers, the supplier, the grower */
	T_OK(c0 >= 11 && woken <= 4);
	T_EQ(kvdb_close(db), 0);
	drop_db();
}

/* The first key of the program, and a thread that the library meets before any open. */
static void a_key_of_the_program_stays_its_own(void)
{
	static int mine;
	pthread_key_t key;

	T_EQ(pthread_key_create(&key, NULL), 0);
	T_EQ(pthread_setspecific(key, &mine), 0);
	kv_exit(kv_enter());
	T_OK(pthread_getspecific(key) == &mine);
	T_EQ(pthread_key_delete(key), 0);
}

int main(void)
{
	T_RUN(a_key_of_the_program_stays_its_own);
	T_RUN(open_record_of_unknown_place_is_withdrawn_at_the_tick);
	T_RUN(open_record_is_withdrawn_at_the_tick);
	T_RUN(installing_record_is_completed_at_the_tick);
	T_RUN(stamped_record_is_completed_at_the_tick);
	T_RUN(what_a_reader_saw_before_a_sync_survives);
	T_RUN(memory_of_others_does_not_get_to_media);
	T_RUN(late_writer_is_told_to_log_again);
	T_RUN(late_writer_without_its_slot_withdrawn_is_told_too);
	T_RUN(helped_writer_goes_on_unharmed);
	T_RUN(version_pending_at_a_views_birth_is_not_in_it);
	T_RUN(overwrites_keep_what_a_view_can_see_and_no_more);
	T_RUN(an_epoch_does_not_end_between_a_large_record_and_its_place);
	T_RUN(what_was_not_logged_gives_its_memory_back);
	T_RUN(segments_for_values_of_one_size_are_ready);
	T_RUN(segments_that_are_made_are_used);
	T_RUN(a_segment_that_was_never_logged_is_freed_after_a_crash);
	T_RUN(longer_values_are_announced_before_they_are_logged);
	T_RUN(acknowledgements_wait_at_the_gate);
	T_RUN(the_first_frames_prove_a_rate);
	T_RUN(bytes_that_wait_slow_writers_before_the_gate_shuts);
	T_RUN(undurable_acknowledgements_never_span_more_than_the_interval);
	T_RUN(idle_database_writes_nothing);
	T_RUN(idle_workers_sleep_while_epochs_pass);
	return t_done();
}
