/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A bad frame in an open log segment, of which runs have what replay would need, then a crash:
 * it costs what lay in it, and nothing behind it (RV22). The engine writes, a process dies.
 */
#include "die.h"
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "meta/mdc.h"
#include "compact/reloc.h"
#include "background/work.h"
#include "log/flush.h"

static char dir[256];
static struct kvdb *db;
static struct kvdb_kvs *kvs;

static void pool_make(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 64u << 20 };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/kv_rot.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(dir));
	co.devs = &dev;
	co.ndevs = 1;
	T_EQ(mpool_create(dir, &co), 0);
	T_EQ(kvdb_create(dir, NULL), 0);
}

static int open_as(uint32_t flags)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	int err;

	o.flags = flags;
	o.logs = 1;
	o.cache_bytes = 64u << 20;
	o.interval_ms = KVDB_INTERVAL_NONE;
	err = kvdb_open(dir, &o, &db);
	return err ? err : kvdb_kvs_open(db, "s", &kvs);
}

static void begin(void)
{
	open_as(KVDB_MANUAL);
	T_EQ(kvdb_kvs_create(db, "s", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
}

/* Each value fills frames of its own: it is synced. */
static void put(const char *key)
{
	uint8_t val[5000];

	memset(val, key[0], sizeof(val));
	T_EQ(kvdb_put(kvs, key, strlen(key), val, sizeof(val)), 0);
	T_EQ(kvdb_sync(db), 0);
}

static int get(const char *key)
{
	uint8_t val[5000], want[5000];
	size_t len = 0;
	int err = kvdb_get(kvs, key, strlen(key), val, sizeof(val), &len);

	memset(want, key[0], sizeof(want));
	if (!err)
		T_OK(len == sizeof(want) && !memcmp(val, want, len));
	return err;
}

static void flush(void)
{
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
}

static void one_run_then_more(void)
{
	put("one");
	put("two");
	flush();
	put("three");
}

static void one_run_then_the_newest(void)
{
	put("one");
	flush();
	put("three");
}

static void one_run(void)
{
	put("one");
	flush();
}

/* Sealed behind "one", as by an open that took what lies there for its end. */
static void sealed_short(void)
{
	struct mpool_op op = { .type = MPOOL_OP_SEAL, .length = 2 * KV_BLOCK };
	struct kv_seg *s;

	put("one");
	put("two");
	flush();
	for (s = kv_segs_first(db); s && !(s->sg_stream == KV_VLOG && s->sg_runs); s = s->sg_next)
		;
	T_OK(s);
	op.obj = s->sg_obj;
	T_EQ(mpool_batch(db->d_mp, &op, 1), 0);
}

static void put_small(struct kvdb_kvs *to, const char *key)
{
	T_EQ(kvdb_put(to, key, strlen(key), key, strlen(key)), 0);
}

/*
 * An epoch in one store, one in another; the first is flushed, so far; then another epoch,
 * of whose value a power cut leaves nothing.
 */
static void one_store_of_two_flushed(void)
{
	struct kvdb_kvs *other;

	T_EQ(kvdb_kvs_create(db, "t", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "t", &other), 0);
	put_small(kvs, "one");
	T_EQ(kvdb_sync(db), 0);
	put_small(other, "one");
	T_EQ(kv_switch_prepare(db, kvs), 0);
	T_EQ(kv_epoch_force(db), 0);
	T_EQ(kv_flush_step(db), 1);
	put_small(kvs, "three");
	put("two");
}

/* One that a relocation wrote, and of which a power cut took the frame in the middle. */
static void a_move_that_was_cut(void)
{
	static uint8_t buf[3 * KV_BLOCK] __attribute__((aligned(4096)));
	struct iovec v = { buf, sizeof(buf) };
	struct kv_seg *s;
	uint32_t chain = 0;
	unsigned n = 1;

	one_run();
	T_EQ(kv_segs_alloc_moved(db, MPOOL_CAPACITY, false, false, sizeof(buf), &n, &s), 0);
	for (uint32_t off = 0; off < sizeof(buf); off += KV_BLOCK) {
		uint8_t *p = buf + off, *rec = p + KV_FRAME_HDR;
		struct kv_frame_hdr h = {
			.fh_incarnation = db->d_ident.id_incarnation, .fh_log = KV_MOVED_LOG,
			.fh_stream = KV_VLOG, .fh_tag = (uint32_t)db->d_ident.id_tag,
			.fh_obj = s->sg_id,
			.fh_off = off, .fh_len = KV_FRAME_HDR + kv_rec_size(3, 3),
			.fh_epoch = 1, .fh_chain = chain, .fh_nrec = 1,
		};

		kv_rec_encode(rec, KV_REC_PUT, 1, "one", 3, "old", 3, mpool_crc32c(0, "old", 3));
		kv_rec_set_rev(rec, KV_MOVED_REV);
		kv_rec_stamp(rec, s->sg_id, off + KV_FRAME_HDR, 1);
		h.fh_payload_crc = mpool_crc32c(0, rec, h.fh_len - KV_FRAME_HDR);
		kv_frame_encode(&h, p, &chain);
	}
	memset(buf + KV_BLOCK + KV_FRAME_HDR, 0, KV_BLOCK - KV_FRAME_HDR);
	T_EQ(mpool_write(s->sg_obj, 0, &v, 1), 0);
}

/* More values than a frame holds moved together: every second one had been overwritten. */
static void a_move(void)
{
	char key[] = "000";

	for (unsigned step = 1; step <= 2; step++) {
		for (unsigned i = 0; i < 400; i += step) {
			snprintf(key, sizeof(key), "%03u", i);
			put(key);
		}
		flush();
	}
	T_EQ(kvdb_compact(db, 0), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_COMPACT), 0);
}

/* G2: those of the log are open when the process dies. */
static bool has_moved(const struct kv_seg *s)
{
	return s->sg_obj_sealed && s->sg_runs;
}

static bool has_values(const struct kv_seg *s)
{
	return s->sg_stream == KV_VLOG && s->sg_runs;
}

static bool is_of_values(const struct kv_seg *s)
{
	return s->sg_stream == KV_VLOG;
}

static bool has_keys(const struct kv_seg *s)
{
	return s->sg_stream == KV_KLOG;
}

/* The bytes at @off of the first segment that @is_it; @with NULL: one bit of them. */
static void hurt_in(bool (*is_it)(const struct kv_seg *s), uint32_t off, uint32_t len,
		    const uint8_t *with)
{
	uint64_t pos, room;
	struct kv_seg *s;
	char path[64];
	uint8_t b;
	int fd, own;

	T_EQ(open_as(KVDB_RDONLY), 0);
	for (s = kv_segs_first(db); s && !is_it(s); s = s->sg_next)
		;
	T_OK(s);
	T_EQ(mpool_obj_place(s->sg_obj, off & ~4095ull, &fd, &pos, &room), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, O_RDWR | O_CLOEXEC);
	T_OK(own >= 0);
	pos += off & 4095;
	T_EQ(pread(own, &b, 1, (off_t)pos), 1);
	b ^= 0x10;
	T_EQ(pwrite(own, with ? with : &b, len, (off_t)pos), len);
	close(own);
	T_EQ(kvdb_close(db), 0);
}

/* Of the segment that runs refer to. */
static void hurt(uint32_t off, uint32_t len, const uint8_t *with)
{
	hurt_in(has_values, off, len, with);
}

#define IN_HEADER	33u	/* offsets in the first frame, which holds "one" */
#define IN_VALUE	500u

static void make(void (*history)(void))
{
	pool_make();
	t_die_in(begin, history);
}

static void gone(void)
{
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

/* However often it is opened, for reading and for writing. */
static void stays(int one, int two, int three)
{
	for (int i = 0; i < 5; i++) {
		T_EQ(open_as(i % 2 ? 0 : KVDB_RDONLY), 0);
		T_EQ(get("one"), one);
		T_EQ(get("two"), two);
		T_EQ(get("three"), three);
		T_EQ(kvdb_close(db), 0);
	}
}

static unsigned damage_told(void)
{
	uint64_t damage = 0;

	T_EQ(kvdb_verify(dir, NULL, KVDB_VERIFY_DEEP, NULL, NULL, &damage), 0);
	return (unsigned)damage;
}

static struct kvdb_repair repair(void)
{
	struct kvdb_repair r;

	memset(&r, 0, sizeof(r));
	T_EQ(kvdb_repair(dir, NULL, NULL, NULL, NULL, &r), 0);
	return r;
}

/* The newest epoch was taken for a torn end. */
static void a_bad_value_costs_no_epoch_behind_it(void)
{
	make(one_run_then_more);
	hurt(IN_VALUE, 1, NULL);
	T_EQ(damage_told(), 2);	/* the value of the run, and the frame of the log */
	stays(-EUCLEAN, 0, 0);
	T_EQ(damage_told(), 2);
	T_EQ(repair().keys, 2);
	T_EQ(repair().lost_values, 1);
	gone();
}

/* The value is whole: nothing at all is lost. */
static void a_bad_header_costs_nothing_that_runs_have(void)
{
	make(one_run_then_more);
	hurt(IN_HEADER, 1, NULL);
	T_EQ(damage_told(), 1);
	stays(0, 0, 0);
	T_EQ(damage_told(), 1);
	T_EQ(repair().keys, 3);
	gone();
}

/* Whose frame says that its epoch begins with it, so that what is missing is older. */
static void the_newest_epoch_directly_behind_a_bad_frame_stays(void)
{
	static const uint8_t zero[512];

	make(one_run_then_the_newest);
	hurt(IN_HEADER, 1, NULL);
	stays(0, -ENOENT, 0);
	gone();

	make(one_run_then_the_newest);
	hurt(0, sizeof(zero), zero);
	stays(-EUCLEAN, -ENOENT, 0);
	gone();
}

/* Nothing lies behind it: an open for writing seals no value away. */
static void what_runs_refer_to_is_not_sealed_away(void)
{
	make(one_run);
	hurt(IN_HEADER, 1, NULL);
	stays(0, -ENOENT, -ENOENT);
	gone();
}

/* The place of a value is not there any more: that is damage, and ends no check. */
static void a_value_behind_the_end_of_its_segment_is_damage(void)
{
	make(sealed_short);
	T_EQ(open_as(KVDB_RDONLY), 0);
	T_EQ(get("one"), 0);
	T_EQ(get("two"), -EUCLEAN);
	T_EQ(kvdb_close(db), 0);
	T_EQ(damage_told(), 1);
	T_EQ(repair().lost_values, 1);
	gone();
}

/* Nothing of it can be read but its name, in the mark behind it; no run of that store has it. */
static void an_epoch_of_a_store_that_was_not_flushed_is_missed(void)
{
	static const uint8_t zero[KV_BLOCK];

	make(one_store_of_two_flushed);
	hurt_in(is_of_values, 0, sizeof(zero), zero);
	hurt_in(has_keys, KV_BLOCK + IN_HEADER, 1, NULL);
	T_EQ(open_as(KVDB_RDONLY), -EUCLEAN);
	T_EQ(open_as(0), -EUCLEAN);
	gone();
}

static void open_manual(void)
{
	T_EQ(open_as(KVDB_MANUAL), 0);
}

static void nothing(void)
{
}

/* Nothing refers to it: neither before nor after an open has noted where it ends is it damage. */
static void what_a_cut_move_left_is_no_damage(void)
{
	make(a_move_that_was_cut);
	T_EQ(damage_told(), 0);
	t_die_in(open_manual, nothing);
	T_EQ(damage_told(), 0);
	stays(0, -ENOENT, -ENOENT);
	gone();
}

/* Only the frame says so: the value is whole. */
static void a_bad_header_of_a_move_that_was_done_is_damage(void)
{
	make(a_move);
	T_EQ(damage_told(), 0);
	hurt_in(has_moved, IN_HEADER, 1, NULL);
	T_EQ(damage_told(), 1);
	gone();
}

int main(void)
{
	T_RUN(a_bad_value_costs_no_epoch_behind_it);
	T_RUN(a_bad_header_costs_nothing_that_runs_have);
	T_RUN(the_newest_epoch_directly_behind_a_bad_frame_stays);
	T_RUN(what_runs_refer_to_is_not_sealed_away);
	T_RUN(a_value_behind_the_end_of_its_segment_is_damage);
	T_RUN(an_epoch_of_a_store_that_was_not_flushed_is_missed);
	T_RUN(what_a_cut_move_left_is_no_damage);
	T_RUN(a_bad_header_of_a_move_that_was_done_is_damage);
	return t_done();
}
