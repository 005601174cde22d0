/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Checkpoints: what one shows, what it keeps from being deleted and for how
 * long, and what is left of it when the process dies at the wrong moment.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "kvdb_help.h"

static struct kh_model model;
static struct kh_val *saved[4];

static int open_at(const char *name)
{
	struct kvdb_opts o = kh_opts();

	o.flags |= KVDB_RDONLY;
	o.checkpoint = name;
	return kvdb_open(th_pool, &o, &kh_db);
}

static void save(unsigned i)
{
	free(saved[i]);
	saved[i] = malloc(model.n * sizeof(*saved[i]));
	memcpy(saved[i], model.val, model.n * sizeof(*saved[i]));
}

/* The checkpoint shows what save() kept; the database is closed before and after. */
static void check_at(const char *name, unsigned i)
{
	struct kh_val *now = model.val;
	struct kvdb_cursor *cur;
	unsigned n = 0, live = 0, k;
	int err;

	err = open_at(name);
	if (err)
		T_FAIL("%s: %d: %s", name, err, kvdb_error_detail()->text);
	model.val = saved[i];
	kh_model_check(&model, kh_kvs("s"));
	for (k = 0; k < model.n; k++)
		live += model.val[k].is_live;
	T_EQ(kvdb_cursor_open(kh_kvs("s"), 0, NULL, 0, &cur), 0);
	while (!(err = kvdb_cursor_next(cur, NULL, NULL, NULL, NULL)))
		n++;
	T_EQ(err, -ENOENT);
	T_EQ(n, live);
	kvdb_cursor_close(cur);
	model.val = now;
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), -EROFS);
	kh_close();
}

static uint64_t pinned(void)
{
	struct kvdb_stats st;

	T_EQ(kvdb_stats(kh_db, &st), 0);
	return st.pinned_bytes;
}

static int listed(void)
{
	struct kvdb_checkpoint_info in[KVDB_CHECKPOINT_MAX];

	return kvdb_checkpoint_list(kh_db, in, KVDB_CHECKPOINT_MAX);
}

static uint64_t pool_used(void)
{
	struct kvdb_info in;

	T_EQ(kvdb_info(kh_db, &in), 0);
	return in.pool.cls[0].used + in.pool.cls[1].used;
}

static void shows_what_was_there_when_it_was_made(void)
{
	struct kvdb_checkpoint_info in[3];
	struct kvdb_kvs *kvs;

	kh_fresh(64 * MIB, 0);
	kvs = kh_kvs("s");
	kh_model_make(&model, 600);
	kh_model_steps(&model, kvs, 800);
	T_EQ(kvdb_checkpoint(kh_db, "one", 0), 0);
	save(0);
	kh_model_steps(&model, kvs, 500);
	T_EQ(kvdb_checkpoint(kh_db, "two", 0), 0);
	save(1);
	kh_model_steps(&model, kvs, 900);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	kh_model_check(&model, kvs);
	T_EQ(kvdb_checkpoint_list(kh_db, in, 3), 2);
	T_OK(!strcmp(in[0].name, "one") && !strcmp(in[1].name, "two"));
	T_OK(in[0].epoch < in[1].epoch && in[0].runs && in[0].bytes && in[0].stores == 1);
	T_EQ(in[0].is_damaged, 0);
	kh_close();
	check_at("one", 0);
	check_at("two", 1);
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	kh_open();
	kh_model_check(&model, kh_kvs("s"));
	kh_close();
	kh_model_free(&model);
}

static void an_empty_database_has_checkpoints_too(void)
{
	kh_fresh(32 * MIB, 0);
	T_EQ(kvdb_checkpoint(kh_db, "nothing", 0), 0);
	kh_put_str(kh_kvs("s"), "k", "v");
	kh_close();
	T_EQ(open_at("nothing"), 0);
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), 0);
	kh_close();
}

static void keeps_what_overwrites_merges_and_drops_would_delete(void)
{
	uint64_t used, held;
	unsigned i;

	kh_fresh(64 * MIB, 0);
	kh_model_make(&model, 500);
	kh_model_steps(&model, kh_kvs("s"), 1500);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	used = pool_used();
	T_EQ(kvdb_checkpoint(kh_db, "keep", 0), 0);
	save(0);
	for (i = 0; i < 6; i++) {
		kh_model_steps(&model, kh_kvs("s"), 1500);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	}
	T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	held = pinned();
	T_OK(held > 0);
	kh_close();
	check_at("keep", 0);
	/* a process that writes and dies; recovery collects its orphans */
	kh_open();
	T_OK(pinned() >= held);	/* a log's open segment is not counted */
	kh_close();
	check_at("keep", 0);
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	kh_open();
	T_EQ(kvdb_checkpoint_drop(kh_db, "keep"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(pinned(), 0);
	T_OK(pool_used() < used);
	kh_close();
	T_EQ(open_at("keep"), -ENOENT);
	kh_model_free(&model);
}

static void names_and_limits(void)
{
	char name[40];
	unsigned i;

	kh_fresh(32 * MIB, 0);
	T_EQ(kvdb_checkpoint(kh_db, "", 0), -EINVAL);
	T_EQ(kvdb_checkpoint(kh_db, NULL, 0), -EINVAL);
	T_EQ(kvdb_checkpoint(kh_db, "a/b", 0), -EINVAL);
	T_EQ(kvdb_checkpoint(kh_db, "a", 1), -EINVAL);
	T_EQ(kvdb_checkpoint(kh_db, "a", 0), 0);
	T_EQ(kvdb_checkpoint(kh_db, "a", 0), -EEXIST);
	T_EQ(kvdb_checkpoint_drop(kh_db, "b"), -ENOENT);
	T_EQ(kvdb_checkpoint_drop(kh_db, NULL), -ENOENT);
	for (i = 1; i < KVDB_CHECKPOINT_MAX; i++) {
		sprintf(name, "n%u", i);
		T_EQ(kvdb_checkpoint(kh_db, name, 0), 0);
	}
	T_EQ(kvdb_checkpoint(kh_db, "more", 0), -EDQUOT);
	T_EQ(listed(), KVDB_CHECKPOINT_MAX);
	kh_close();
	T_EQ(kh_open_with(KVDB_RDONLY), 0);
	T_EQ(listed(), KVDB_CHECKPOINT_MAX);
	T_EQ(kvdb_checkpoint(kh_db, "x", 0), -EROFS);
	T_EQ(kvdb_checkpoint_drop(kh_db, "a"), -EROFS);
	kh_close();
	T_EQ(open_at("missing"), -ENOENT);
}

static void made_and_die(void)
{
	kh_put_str(kh_kvs("s"), "k", "two");
	T_EQ(kvdb_checkpoint(kh_db, "made", 0), 0);
	kh_put_str(kh_kvs("s"), "k", "three");
}

static void drop_and_die(void)
{
	T_EQ(kvdb_checkpoint_drop(kh_db, "made"), 0);
}

static void is_durable_when_the_call_returns(void)
{
	kh_fresh(32 * MIB, 0);
	kh_put_str(kh_kvs("s"), "k", "one");
	kh_close();
	kh_die_in(made_and_die);
	T_EQ(open_at("made"), 0);
	T_OK(kh_holds_str(kh_kvs("s"), "k", "two"));
	kh_close();
	kh_open();
	T_EQ(listed(), 1);
	kh_close();
	kh_die_in(drop_and_die);
	kh_open();
	T_EQ(listed(), 0);
	kh_close();
	T_EQ(kh_damage(0), 0);
}

static void the_container_is_compacted_around_it(void)
{
	unsigned i;

	kh_fresh(64 * MIB, 0);
	kh_model_make(&model, 60);
	kh_model_steps(&model, kh_kvs("s"), 200);
	T_EQ(kvdb_checkpoint(kh_db, "first", 0), 0);
	save(0);
	for (i = 0; i < 160; i++) {
		kh_model_steps(&model, kh_kvs("s"), 5);
		T_EQ(kvdb_checkpoint(kh_db, "other", 0), 0);
		T_EQ(kvdb_checkpoint_drop(kh_db, "other"), 0);
	}
	T_EQ(kvdb_checkpoint(kh_db, "last", 0), 0);
	save(1);
	kh_close();
	check_at("first", 0);
	check_at("last", 1);
	kh_open();
	T_EQ(listed(), 2);
	kh_model_check(&model, kh_kvs("s"));
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	kh_model_free(&model);
}

/* ---- writers meanwhile ------------------------------------------------------------ */

#define STORES 4u

static struct kvdb_kvs *pair[STORES];
static _Atomic(bool) stop;

static void *write_in_turn(void *arg)
{
	uint8_t val[300] = { 0 };
	char key[24];
	unsigned i, k;

	(void)arg;
	/* it must not fill the pool: checkpoints give nothing back */
	for (i = 0; i < 60000 && !atomic_load(&stop); i++)
		for (k = 0; k < STORES; k++)
			if (kvdb_put(pair[k], key, (size_t)sprintf(key, "%08u", i), val,
				     sizeof(val)))
				return "put failed";
	return NULL;
}

static unsigned count_in_order(struct kvdb_kvs *kvs)
{
	struct kvdb_cursor *cur;
	const void *key;
	size_t klen;
	unsigned n = 0;

	T_EQ(kvdb_cursor_open(kvs, KVDB_KEYS_ONLY, NULL, 0, &cur), 0);
	while (!kvdb_cursor_next(cur, &key, &klen, NULL, NULL)) {
		char text[24] = "";

		T_OK(klen < sizeof(text));
		memcpy(text, key, klen);
		T_EQ((unsigned)strtoul(text, NULL, 10), n++);
	}
	kvdb_cursor_close(cur);
	return n;
}

/* One thread writes key i into store 0, 1, 2, 3, then i + 1: every prefix of that is told. */
static void holds_a_prefix_of_all_stores_together(void)
{
	unsigned i, k, n[STORES];
	pthread_t thread;
	void *failed;
	char name[24];

	kh_fresh(256 * MIB, 0);
	for (k = 0; k < STORES; k++) {
		sprintf(name, "s%u", k);
		pair[k] = kh_kvs(name);
	}
	atomic_store(&stop, false);
	T_EQ(pthread_create(&thread, NULL, write_in_turn, NULL), 0);
	for (i = 0; i < 12; i++) {
		struct timespec ts = { .tv_nsec = 7000000 };

		sprintf(name, "c%u", i);
		T_EQ(kvdb_checkpoint(kh_db, name, 0), 0);
		nanosleep(&ts, NULL);
	}
	atomic_store(&stop, true);
	pthread_join(thread, &failed);
	T_OK(!failed);
	kh_close();
	for (i = 0; i < 12; i++) {
		sprintf(name, "c%u", i);
		T_EQ(open_at(name), 0);
		for (k = 0; k < STORES; k++) {
			sprintf(name, "s%u", k);
			n[k] = count_in_order(kh_kvs(name));
		}
		for (k = 1; k < STORES; k++)
			T_OK(n[k] <= n[k - 1] && n[k] + 1 >= n[0]);
		kh_close();
	}
	T_EQ(kh_damage(0), 0);
}

/* ---- no room ------------------------------------------------------------------------- */

static void a_full_pool_makes_none_and_pins_nothing(void)
{
	struct kvdb_kvs *kvs;
	char key[24];
	unsigned i;
	int err = 0;

	kh_fresh(24 * MIB, 0);
	kvs = kh_kvs("s");
	for (i = 0; !err && i < 100000; i++)
		err = kh_put(kvs, key, (size_t)sprintf(key, "%u", i), i, 3000);
	T_EQ(err, -ENOSPC);
	/* a checkpoint takes no spare space: it is refused, or there was room for it */
	err = kvdb_checkpoint(kh_db, "full", 0);
	T_OK(err == -ENOSPC || !err);
	T_EQ(listed(), err ? 0 : 1);
	if (!err)
		T_EQ(kvdb_checkpoint_drop(kh_db, "full"), 0);
	for (i = 0; i < 2000; i++)
		T_EQ(kvdb_del(kvs, key, (size_t)sprintf(key, "%u", i)), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(pinned(), 0);
	T_EQ(kvdb_checkpoint(kh_db, "room", 0), 0);
	kh_close();
	T_EQ(kh_damage(0), 0);
}

/* ---- damage ----------------------------------------------------------------------------- */

/* Flips a byte of the manifest; @at counts from its end when negative. */
static void spoil(uint64_t manifest, int at)
{
	struct mpool *mp = th_open_with(NULL, NULL);
	struct mpool_obj_info oi;
	struct mpool_obj *obj;
	uint64_t pos, len;
	uint8_t b;
	int fd, own;
	char path[64];

	T_EQ(mpool_obj_open(mp, manifest, &obj), 0);
	T_EQ(mpool_obj_info(obj, &oi), 0);
	T_EQ(mpool_obj_place(obj, 0, &fd, &pos, &len), 0);
	sprintf(path, "/proc/self/fd/%d", fd);
	own = open(path, O_RDWR | O_CLOEXEC);
	T_OK(own >= 0);
	pos += at < 0 ? oi.length - (uint64_t)-at : (uint64_t)at;
	T_EQ(pread(own, &b, 1, (off_t)pos), 1);
	b ^= 0x40;
	T_EQ(pwrite(own, &b, 1, (off_t)pos), 1);
	T_EQ(fsync(own), 0);
	close(own);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
}

/* How many things are stuck, and that the checkpoint is named if one is. */
static uint64_t stuck(void)
{
	struct kvdb_stats st;
	struct kvdb_info in;

	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(kvdb_info(kh_db, &in), 0);
	T_EQ(st.stuck, in.stuck);
	T_EQ(strstr(in.stuck_text, "checkpoint bad") != NULL, st.stuck != 0);
	return st.stuck;
}

static void damaged_at(int at)
{
	struct kvdb_checkpoint_info in;
	uint64_t used, i;

	kh_fresh(96 * MIB, 0);
	kh_model_make(&model, 100);
	kh_model_steps(&model, kh_kvs("s"), 300);
	/* more than the log segments kept in stock, which come and go */
	for (i = 0; i < 250; i++)
		T_EQ(kh_put(kh_kvs("s"), &i, 8, i, 80000), 0);
	T_EQ(kvdb_checkpoint(kh_db, "bad", 0), 0);
	T_EQ(kvdb_checkpoint_list(kh_db, &in, 1), 1);
	kh_close();
	spoil(in.id, at);
	T_EQ(kh_damage(0), 1);
	T_EQ(open_at("bad"), -EUCLEAN);
	kh_open();
	kh_model_check(&model, kh_kvs("s"));
	T_EQ(kvdb_checkpoint_list(kh_db, &in, 1), 1);
	T_EQ(in.is_damaged, 1);
	T_EQ(stuck(), 1);
	/* what it holds is not known: nothing goes until it is dropped */
	used = pool_used();
	T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(pool_used() + 4 * MIB >= used);
	kh_close();
	kh_open();
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(pool_used() + 4 * MIB >= used);
	T_EQ(stuck(), 1);
	T_EQ(kvdb_checkpoint_drop(kh_db, "bad"), 0);
	T_EQ(stuck(), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(pool_used() + 8 * MIB < used);
	kh_close();
	T_EQ(kh_damage(0), 0);
	kh_model_free(&model);
}

static void a_damaged_manifest_holds_everything(void)
{
	damaged_at(5);		/* its header */
	damaged_at(100);	/* a record */
	damaged_at(-1);		/* the padding: only the CRC in the pin sees that */
}

/* Commits a block of the database that no edit lists, as a power cut in a flush leaves it. */
static uint64_t leave_orphan(uint64_t manifest)
{
	struct mpool *mp = th_open_with(NULL, NULL);
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .flags = MPOOL_ALLOC_ANY,
				   .capacity = MPOOL_ALIGN };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT, .length = MPOOL_ALIGN };
	static _Alignas(MPOOL_ALIGN) uint8_t block[MPOOL_ALIGN];
	struct iovec v = { block, sizeof(block) };
	struct mpool_obj_info oi;
	struct mpool_obj *obj;
	uint64_t id;

	T_EQ(mpool_obj_open(mp, manifest, &obj), 0);
	T_EQ(mpool_obj_info(obj, &oi), 0);
	mpool_obj_close(obj);
	req.tag = oi.tag;
	req.mclass = oi.mclass;
	T_EQ(mpool_alloc(mp, &req, 1, &op.obj), 0);
	T_EQ(mpool_write(op.obj, 0, &v, 1), 0);
	T_EQ(mpool_batch(mp, &op, 1), 0);
	id = mpool_obj_id(op.obj);
	mpool_obj_close(op.obj);
	T_EQ(mpool_close(mp), 0);
	return id;
}

static bool exists(uint64_t id)
{
	struct mpool *mp = th_open_with(NULL, NULL);
	struct mpool_obj *obj;
	bool is = !mpool_obj_open(mp, id, &obj);

	if (is)
		mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	return is;
}

/* C5: many cuts, more than are ever taken for cuts at once. */
static void what_cuts_left_beside_a_damaged_manifest_goes_with_it(void)
{
	struct kvdb_checkpoint_info in;
	uint64_t id[70];
	unsigned i;

	kh_fresh(64 * MIB, 0);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "one"), 0);
	T_EQ(kvdb_checkpoint(kh_db, "bad", 0), 0);
	T_EQ(kvdb_checkpoint_list(kh_db, &in, 1), 1);
	kh_close();
	spoil(in.id, 5);
	for (i = 0; i < 70; i++) {
		id[i] = leave_orphan(in.id);
		kh_open();
		kh_close();
	}
	for (i = 0; i < 70; i++)
		T_OK(exists(id[i]));
	kh_open();
	T_EQ(kvdb_checkpoint_drop(kh_db, "bad"), 0);
	kh_close();
	kh_open();
	T_OK(kh_holds_str(kh_kvs("s"), "k", "one"));
	kh_close();
	for (i = 0; i < 70; i++)
		T_OK(!exists(id[i]));
	T_EQ(kh_damage(0), 0);
}

/* ---- readers beside the writer (R20) ----------------------------------------------- */

#define KEYS	300u
#define LEN	2500u

static void put_all(struct kvdb_kvs *kvs, uint64_t round)
{
	uint64_t i;

	for (i = 0; i < KEYS; i++)
		T_EQ(kh_put(kvs, &i, sizeof(i), round * 1000 + i, LEN), 0);
}

static int holds_all(struct kvdb_kvs *kvs, uint64_t round)
{
	uint64_t i;

	for (i = 0; i < KEYS; i++)
		if (!kh_holds(kvs, &i, sizeof(i), round * 1000 + i, LEN))
			return 0;
	return 1;
}

/* The other process: opens when told, then says at every question whether all is there. */
static void reader_main(int ask, int answer)
{
	struct kvdb_kvs *kvs = NULL;
	char c;

	while (read(ask, &c, 1) == 1) {
		if (c == 'o')
			c = open_at("r") || kvdb_kvs_open(kh_db, "s", &kvs) ? 'n' : 'y';
		else
			c = kvs && holds_all(kvs, 1) ? 'y' : 'n';
		if (write(answer, &c, 1) != 1)
			break;
	}
	fflush(stdout);
	_exit(0);
}

static int ask_reader(int ask, int answer, char what)
{
	char c = 0;

	return write(ask, &what, 1) == 1 && read(answer, &c, 1) == 1 && c == 'y';
}

static void another_process_reads_one_while_the_writer_works(void)
{
	int ask[2], answer[2], status;
	char name[24];
	unsigned i;
	pid_t pid;

	kh_make(96 * MIB, 0);
	T_EQ(pipe(ask), 0);
	T_EQ(pipe(answer), 0);
	fflush(stdout);
	pid = fork();
	T_OK(pid >= 0);
	if (!pid) {
		close(ask[1]);
		reader_main(ask[0], answer[1]);
	}
	kh_open();
	put_all(kh_kvs("s"), 1);
	T_EQ(kvdb_checkpoint(kh_db, "r", 0), 0);
	T_OK(ask_reader(ask[1], answer[0], 'o'));
	T_OK(ask_reader(ask[1], answer[0], '?'));
	T_EQ(kvdb_checkpoint_drop(kh_db, "r"), -EBUSY);
	for (i = 2; i < 8; i++) {
		put_all(kh_kvs("s"), i);
		sprintf(name, "x%u", i);
		T_EQ(kvdb_checkpoint(kh_db, name, 0), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
		T_EQ(kvdb_checkpoint_drop(kh_db, name), 0);
	}
	T_EQ(kvdb_kvs_drop(kh_db, "s"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(ask_reader(ask[1], answer[0], '?'));
	kh_close();
	/* neither a closed writer nor a new one is in its way, and it keeps the database */
	T_OK(ask_reader(ask[1], answer[0], '?'));
	th_again();
	T_EQ(kvdb_drop(th_pool, NULL), -EBUSY);
	kh_open();
	put_all(kh_kvs("s"), 9);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(ask_reader(ask[1], answer[0], '?'));
	T_EQ(kvdb_checkpoint_drop(kh_db, "r"), -EBUSY);
	/* a pin whose reader died can be removed */
	T_EQ(kill(pid, SIGKILL), 0);
	T_EQ(waitpid(pid, &status, 0), pid);
	for (i = 0; i < 200 && kvdb_checkpoint_drop(kh_db, "r"); i++)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	T_EQ(listed(), 0);
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	close(ask[0]);
	close(ask[1]);
	close(answer[0]);
	close(answer[1]);
}

static _Atomic(unsigned) made;

/* Writes rounds, makes "now" of every round, and drops it unless it is being read. */
static void *make_and_drop(void *arg)
{
	static uint8_t val[LEN];
	struct kvdb_kvs *kvs = arg;
	uint64_t round, i;
	int err = 0;

	for (round = 1; !err && !atomic_load(&stop); round++) {
		for (i = 0; i < KEYS && !err; i++) {
			memset(val, (int)(round & 0xff), sizeof(val));
			memcpy(val, &round, sizeof(round));
			err = kvdb_put(kvs, &i, sizeof(i), val, sizeof(val));
		}
		if (!err)
			err = kvdb_checkpoint(kh_db, "now", 0);
		if (err == -EEXIST)
			err = 0;
		else if (!err)
			atomic_fetch_add(&made, 1);
		nanosleep(&(struct timespec){ .tv_nsec = 15000000 }, NULL);
		if (!err && round % 2)
			err = kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);
		if (!err)
			err = kvdb_checkpoint_drop(kh_db, "now");
		if (err == -EBUSY || err == -ENOENT)
			err = 0;
	}
	return err ? "a writer's call failed" : NULL;
}

/* All values of one round, whole. */
static void one_round(struct kvdb *db)
{
	uint64_t round, first = 0, i;
	struct kvdb_kvs *kvs;
	size_t got, k;

	T_EQ(kvdb_kvs_open(db, "s", &kvs), 0);
	for (i = 0; i < KEYS; i++) {
		T_EQ(kvdb_get(kvs, &i, sizeof(i), kh_buf, sizeof(kh_buf), &got), 0);
		T_EQ(got, LEN);
		memcpy(&round, kh_buf, sizeof(round));
		first = i ? first : round;
		T_EQ(round, first);
		for (k = sizeof(round); k < LEN; k++)
			T_EQ(kh_buf[k], round & 0xff);
	}
}

static void opening_one_that_comes_and_goes_gives_all_of_it_or_says_no(void)
{
	struct kvdb_opts o = kh_opts();
	unsigned tries, opened = 0;
	struct kvdb *reader;
	pthread_t thread;
	void *failed;
	int err;

	kh_fresh(128 * MIB, 0);
	atomic_store(&stop, false);
	atomic_store(&made, 0);
	o.flags |= KVDB_RDONLY;
	o.checkpoint = "now";
	T_EQ(pthread_create(&thread, NULL, make_and_drop, kh_kvs("s")), 0);
	for (tries = 0; tries < 60 && opened < 12; tries++) {
		err = kvdb_open(th_pool, &o, &reader);
		if (err == -ENOENT || err == -EBUSY)
			continue;
		if (err)
			T_FAIL("open: %d: %s", err, kvdb_error_detail()->text);
		opened++;
		one_round(reader);
		T_EQ(kvdb_close(reader), 0);
	}
	atomic_store(&stop, true);
	pthread_join(thread, &failed);
	if (failed)
		T_FAIL("%s", (char *)failed);
	printf("# %u opened, %u made\n", opened, atomic_load(&made));
	T_OK(opened > 0);
	kh_close();
	T_EQ(kh_damage(0), 0);
}

/* Under ThreadSanitizer: what others look at changes in no other way than they expect. */
static void others_look_while_one_is_made(void)
{
	struct kvdb_checkpoint_info in[4];
	struct kvdb_stats st;
	pthread_t thread;
	void *failed;

	kh_fresh(128 * MIB, 0);
	atomic_store(&stop, false);
	atomic_store(&made, 0);
	T_EQ(pthread_create(&thread, NULL, make_and_drop, kh_kvs("s")), 0);
	while (atomic_load(&made) < 5) {
		T_EQ(kvdb_stats(kh_db, &st), 0);
		T_OK(st.checkpoints <= 1);
		T_OK(kvdb_checkpoint_list(kh_db, in, 4) <= 1);
	}
	atomic_store(&stop, true);
	pthread_join(thread, &failed);
	if (failed)
		T_FAIL("%s", (char *)failed);
	kh_close();
	T_EQ(kh_damage(0), 0);
}

int main(void)
{
	KH_RUN_MODES(shows_what_was_there_when_it_was_made);
	T_RUN(an_empty_database_has_checkpoints_too);
	KH_RUN_MODES(keeps_what_overwrites_merges_and_drops_would_delete);
	T_RUN(names_and_limits);
	T_RUN(is_durable_when_the_call_returns);
	T_RUN(the_container_is_compacted_around_it);
	T_RUN(holds_a_prefix_of_all_stores_together);
	T_RUN(a_full_pool_makes_none_and_pins_nothing);
	T_RUN(another_process_reads_one_while_the_writer_works);
	T_RUN(opening_one_that_comes_and_goes_gives_all_of_it_or_says_no);
	T_RUN(others_look_while_one_is_made);
	TH_RUN_FILES(a_damaged_manifest_holds_everything);
	TH_RUN_FILES(what_cuts_left_beside_a_damaged_manifest_goes_with_it);
	th_clean();
	return t_done();
}
