/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Values of transactions in the value log, and the horizons of their stores: what a commit record
 * refers to is there as long as the record may be replayed (R5, T7).
 */
#define _GNU_SOURCE
#include <sched.h>
#include "kv_committer.h"

/* ---- horizons -------------------------------------------------------------------- */

static void flush_store(struct kvdb_kvs *k)
{
	switch_memtable(k);
	T_EQ(kv_flush_step(db), 1);
}

/* One store of the transaction is flushed and goes on; the other still needs the record. */
static void one_store_ahead(void)
{
	before();
	T_EQ(kvdb_txn_commit(write_all(), 0, NULL), 0);
	flush_store(ka);
	T_EQ(kvdb_del(ka, "x", 1), 0);
	put(ka, "other", "1");
	flush_store(ka);
	while (kv_merge_step(db, ka) > 0)
		;
	T_EQ(kvdb_sync(db), 0);
}

static void each_store_has_its_own_horizon(void)
{
	make_db();
	t_die_in(open_db, one_store_ahead);
	for (unsigned i = 0; i < 2; i++) {
		open_db();
		expect(ka, "x", NULL);
		expect(ka, "gone", NULL);
		expect(ka, "other", "1");
		expect(kb, "y", "new");
		T_OK(holds(kb, "big", big, sizeof(big)));
		if (!i)
			T_EQ(kvdb_close(db), 0);
	}
	end();
}

/* ---- segments of values ---------------------------------------------------------- */

/* Everything else that lay beside the value dies, its epochs are below every horizon. */
static void churn(void)
{
	char key[16];

	for (unsigned r = 0; r < 3; r++) {
		for (unsigned i = 0; i < 300; i++) {
			snprintf(key, sizeof(key), "c%u", i);
			T_EQ(kvdb_put(ka, key, strlen(key), big, sizeof(big)), 0);
		}
		T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	}
	for (unsigned i = 0; i < 300; i++) {
		snprintf(key, sizeof(key), "c%u", i);
		T_EQ(kvdb_del(ka, key, strlen(key)), 0);
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
}

static void long_open(void)
{
	struct kvdb_txn *t;

	before();
	t = write_all();
	churn();
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	for (unsigned i = 0; i < 5; i++)
		kv_retire_barrier();
	for (unsigned i = 0; i < 50; i++)
		T_OK(kv_segs_step(db) >= 0);
	expect_all(true);
	churn();		/* flushes: now a run holds it */
	expect_all(true);
	T_EQ(kvdb_sync(db), 0);
}

static uint64_t *value_seg;	/* told by a child */

static void the_record_alone(void)
{
	struct kvdb_txn *t;

	before();
	t = write_all();
	T_EQ(t->t_nseg, 1);
	if (value_seg)
		*value_seg = t->t_seg[0]->sg_id;
	churn();
	T_EQ(kvdb_txn_commit(t, 0, NULL), 0);
	T_EQ(kvdb_sync(db), 0);
	/* what could be freed is freed: the view held the trees of its birth */
	for (unsigned i = 0; i < 5; i++)
		kv_retire_barrier();
	for (unsigned i = 0; i < 50; i++)
		T_OK(kv_segs_step(db) >= 0);
}

static void values_stay_while_a_transaction_is_open_over_flushes(void)
{
	make_db();
	t_die_in(open_db, long_open);
	open_db();
	expect_all(true);
	end();
}

static void values_older_than_every_horizon_come_back_with_the_record(void)
{
	make_db();
	t_die_in(open_db, the_record_alone);
	T_EQ(damage(), 0);
	open_db();
	expect_all(true);
	churn();
	expect_all(true);
	end();
}

#define PINS 512u

static struct pinning {
	struct kvdb_txn *txn;
	struct kv_slot *slot;		/* of the thread that pins */
	_Atomic(unsigned int) step;	/* 1: stands at the pin, 2: may go on */
	uint64_t slot_state;
	int result;
} pn;

/* The first pin of a transaction hits memory that no thread may write to: its thread stops. */
static void on_pin(int sig)
{
	static const struct timespec ts = { .tv_nsec = 1000000 };

	(void)sig;
	pn.slot_state = atomic_load(&pn.slot->sl_state) & KV_SLOT_MASK;
	atomic_store(&pn.step, 1);
	while (atomic_load(&pn.step) != 2)
		nanosleep(&ts, NULL);
	if (mprotect(pn.txn->t_seg, 4096, PROT_READ | PROT_WRITE))
		abort();
}

static void *pin_main(void *arg)
{
	pn.slot = &kv_tctx(db)->tc_slot;
	pn.result = kvdb_txn_put(pn.txn, kb, "big", 3, big, sizeof(big));
	return arg;
}

/* T8: before its record counts, so that the segment is never without a holder. */
static void a_value_holds_its_segment_before_its_epoch_can_end(void)
{
	struct sigaction sa = { .sa_handler = on_pin }, was;
	struct kv_seg **page;
	pthread_t thread;

	fresh();
	before();
	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	T_OK(page != MAP_FAILED);
	pn = (struct pinning){ .txn = begin(0) };
	pn.txn->t_seg = page;
	pn.txn->t_segcap = PINS;
	sigaction(SIGSEGV, &sa, &was);
	T_EQ(pthread_create(&thread, NULL, pin_main, NULL), 0);
	while (!atomic_load(&pn.step))
		usleep(1000);
	T_EQ(kv_epoch_force(db), 0);
	atomic_store(&pn.step, 2);
	pthread_join(thread, NULL);
	sigaction(SIGSEGV, &was, NULL);
	T_EQ(pn.slot_state, KV_SLOT_OPEN);
	T_EQ(pn.result, 0);
	T_OK(pn.txn->t_nseg >= 1);
	pn.txn->t_seg = malloc(PINS * sizeof(*page));
	memcpy(pn.txn->t_seg, page, PINS * sizeof(*page));
	munmap(page, 4096);
	/* the record that was withdrawn is logged again */
	T_EQ(kvdb_txn_commit(pn.txn, KVDB_TXN_DURABLE, NULL), 0);
	T_OK(holds(kb, "big", big, sizeof(big)));
	end();
}

static void a_commit_record_whose_value_is_gone_fails_the_open(void)
{
	struct mpool *mp;
	struct kvdb *d;

	value_seg = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_OK(value_seg != MAP_FAILED);
	make_db();
	t_die_in(open_db, the_record_alone);
	T_EQ(mpool_open(dir, NULL, &mp), 0);
	T_EQ(kv_objs_delete(mp, value_seg, 1), 0);
	T_EQ(mpool_close(mp), 0);
	T_EQ(kvdb_open(dir, NULL, &d), -EUCLEAN);
	T_STREQ(kvdb_error_detail()->id, "MP0961");
	T_OK(strstr(kvdb_error_detail()->text, "commit record"));
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

static void values_in_too_many_segments_end_the_transaction(void)
{
	static char huge[1 << 20];
	struct kvdb_txn_info in;
	struct kvdb_txn *t;
	char key[16];
	int err = 0;

	fresh();
	T_OK(db->d_budget.b_txn_log_bytes > 40u << 20);	/* half of the pool */
	db->d_budget.b_txn_log_bytes = 8u << 20;
	t = begin(0);
	for (unsigned i = 0; !err && i < 200; i++) {
		snprintf(key, sizeof(key), "h%u", i);
		err = kvdb_txn_put(t, ka, key, strlen(key), huge, sizeof(huge));
	}
	T_EQ(err, -EFBIG);
	T_STREQ(kvdb_error_detail()->id, "MP0924");
	T_OK(t->t_seg_bytes < 10u << 20);
	T_OK(!kvdb_txn_info(t, &in) && in.state == KVDB_TXN_LOG_FULL);
	T_EQ(in.error, -EFBIG);
	T_EQ(kvdb_txn_commit(t, 0, NULL), -EFBIG);
	expect(ka, "h0", NULL);
	put(ka, "h0", "free");
	end();
}

/* ---- values of a batch, which are logged together --------------------------------- */

#define BATCH 5u
#define FRAME_BYTES (1u << 20)

static struct stopped {
	uint8_t *page;			/* what a writer changes once it is INSTALLING */
	size_t at;			/* 4096: the page behind it, which it changes before */
	struct kv_slot *slot;
	_Atomic(unsigned int) step;	/* 1: it stands there, 2: it may go on */
	uint64_t slot_state;
	int result;
} st;

static void on_done(int sig)
{
	static const struct timespec ts = { .tv_nsec = 1000000 };

	(void)sig;
	st.slot_state = atomic_load(&st.slot->sl_state) & KV_SLOT_MASK;
	if (mprotect(st.page + st.at, 4096, PROT_READ | PROT_WRITE))
		abort();
	atomic_store(&st.step, 1);
	while (atomic_load(&st.step) != 2)
		nanosleep(&ts, NULL);
}

/* No memory is given back. */
static void *reader_main(void *arg)
{
	kv_enter();
	atomic_store(&st.step, 3);
	for (;;)
		pause();
	return arg;
}

/* The next frame of the log has its head in a page of its own. */
static void frame_on_pages(struct kv_log *lo)
{
	pthread_t reader;
	struct kv_frame *f;

	T_EQ(pthread_create(&reader, NULL, reader_main, NULL), 0);
	while (atomic_load(&st.step) != 3)
		usleep(1000);
	atomic_store(&st.step, 0);

	st.page = mmap(NULL, FRAME_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	T_OK(st.page != MAP_FAILED);
	f = (struct kv_frame *)(st.page + 4096 - offsetof(struct kv_frame, fr_rec));
	f->fr_log = lo;
	atomic_store(&lo->lo_spare, f);
}

static void batch_of_values(void)
{
	struct kvdb_op op[BATCH];

	for (unsigned i = 0; i < BATCH; i++)
		op[i] = (struct kvdb_op){ .type = KVDB_OP_PUT, .kvs = i % 2 ? kb : ka,
					  .key = &"0123456789"[i], .klen = 1, .val = big,
					  .size = sizeof(big) };
	st.result = kvdb_write(db, op, BATCH, 0, NULL);
}

static void *batch_main(void *arg)
{
	st.slot = &kv_tctx(db)->tc_slot;
	batch_of_values();
	return arg;
}

/* Stops a batch where it writes to the page that is @at bytes behind the begin of a frame. */
static void a_tick_within(size_t at, uint64_t state)
{
	struct sigaction sa = { .sa_handler = on_done };
	cpu_set_t cpu;
	pthread_t thread;

	/* one log */
	CPU_ZERO(&cpu);
	CPU_SET(sched_getcpu(), &cpu);
	T_EQ(sched_setaffinity(0, sizeof(cpu), &cpu), 0);
	T_EQ(kvdb_put(ka, "first", 5, big, sizeof(big)), 0);
	frame_on_pages(kv_log_pick(db, KV_VLOG));
	T_EQ(kvdb_sync(db), 0);
	st.at = at;
	T_EQ(mprotect(st.page + at, 4096, PROT_READ), 0);
	sigaction(SIGSEGV, &sa, NULL);
	T_EQ(pthread_create(&thread, NULL, batch_main, NULL), 0);
	while (!atomic_load(&st.step))
		usleep(1000);
	T_EQ(st.slot_state, state);
	T_EQ(kv_epoch_force(db), 0);
	atomic_store(&st.step, 2);
	pthread_join(thread, NULL);
	T_EQ(st.result, 0);
	T_EQ(kvdb_sync(db), 0);
}

/* Between the installation of the records and the word that they are done. */
static void a_tick_while_installing(void)
{
	a_tick_within(0, KV_SLOT_INSTALLING);
}

/* Before any of them counts: all are withdrawn, and logged again in the next epoch. */
static void a_tick_while_open(void)
{
	a_tick_within(4096, KV_SLOT_OPEN);
}

static void expect_batch(bool is_there)
{
	for (unsigned i = 0; i < BATCH; i++)
		T_OK(holds(i % 2 ? kb : ka, (char[]){ (char)('0' + i), 0 },
			   is_there ? big : NULL, sizeof(big)));
}

static void values_of_a_batch_are_completed_together_at_the_tick(void)
{
	make_db();
	t_die_in(open_db, a_tick_while_installing);
	T_EQ(damage(), 0);
	open_db();
	expect_batch(true);
	end();
}

static void values_of_a_batch_are_withdrawn_together_at_the_tick(void)
{
	make_db();
	t_die_in(open_db, a_tick_while_open);
	T_EQ(damage(), 0);
	open_db();
	expect_batch(true);
	end();
}

int main(void)
{
	T_RUN(each_store_has_its_own_horizon);
	T_RUN(values_stay_while_a_transaction_is_open_over_flushes);
	T_RUN(values_older_than_every_horizon_come_back_with_the_record);
	T_RUN(a_value_holds_its_segment_before_its_epoch_can_end);
	T_RUN(a_commit_record_whose_value_is_gone_fails_the_open);
	T_RUN(values_in_too_many_segments_end_the_transaction);
	T_RUN(values_of_a_batch_are_completed_together_at_the_tick);
	T_RUN(values_of_a_batch_are_withdrawn_together_at_the_tick);
	return t_done();
}
