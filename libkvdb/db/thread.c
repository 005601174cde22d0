/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Threads: epoch-based reclamation and the per-database contexts.
 *
 * Reclamation (after Fraser, "Practical lock-freedom", 2004): a reader
 * announces the global epoch on entry. What is retired in epoch g is freed
 * when the global epoch has reached g + 2, for then every reader that could
 * hold it has left. The epoch moves only when all announced readers have seen
 * it. One domain serves the process; retirement is rare and takes a mutex.
 *
 * A destructor may do I/O and take locks, so kv_retire() runs none for a caller
 * inside kv_enter(), which may hold locks; a thread that retires or reclaims outside
 * does. It may belong to another database than the thread that runs it: only
 * kv_retire_barrier(), which waits for those that are running, makes it safe
 * to free what destructors use.
 *
 * Locks: reg_lock (threads and contexts) > limbo_lock (retired items, running destructors), a
 * leaf; neither is held while a destructor runs. fork() takes both, in this order, so that its
 * child, which may have databases of its own, finds them free and what they guard whole. This is
 * all that databases have in common.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "db/thread.h"
#include "base/assert.h"
#include "base/error.h"
#include "db/db.h"
#include "db/limbo.h"
#include "db/mem_wait.h"

struct kv_thread {
	_Atomic(uint64_t) t_epoch;	/* announced epoch, 0 = outside */
	uint32_t t_nest;
	uint32_t t_no;
	uint64_t t_db_id;		/* of t_ctx */
	struct kv_tctx *t_ctx;		/* last used */
	struct kv_tctx *t_ctxs;		/* all of this thread; reg_lock */
	struct kv_thread *t_next;	/* reg_lock */
} __attribute__((aligned(128)));

/* One reclaim() that runs destructors, on its caller's stack; they nest. */
struct batch {
	struct kv_thread *owner;
	uint64_t no;
	struct batch *next;
};

static pthread_mutex_t reg_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kv_thread *threads;
static uint32_t next_no;
static _Atomic(uint64_t) next_db_id = 1;

static pthread_mutex_t limbo_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kv_limbo *limbo_head, **limbo_tail = &limbo_head;
static struct batch *running;	/* limbo_lock */
static uint64_t next_batch;	/* limbo_lock */
static _Atomic(uint64_t) limbo_n;
static _Atomic(uint64_t) epoch = 1;

static __thread struct kv_thread *self;
static pthread_key_t key;
static bool has_key;	/* reg_lock */

/* The counters of a context that ends stay in the database's first context. */
static void fold(struct kv_tctx *into, const struct kv_tctx *from)
{
	kv_count(&into->tc_puts, kv_counted(&from->tc_puts));
	kv_count(&into->tc_gets, kv_counted(&from->tc_gets));
	kv_count(&into->tc_dels, kv_counted(&from->tc_dels));
	kv_count(&into->tc_seeks, kv_counted(&from->tc_seeks));
	kv_count(&into->tc_nexts, kv_counted(&from->tc_nexts));
	kv_count(&into->tc_user_bytes, kv_counted(&from->tc_user_bytes));
	kv_count(&into->tc_read_bytes, kv_counted(&from->tc_read_bytes));
	kv_count(&into->tc_value_mem, kv_counted(&from->tc_value_mem));
	kv_count(&into->tc_value_dev, kv_counted(&from->tc_value_dev));
	kv_count(&into->tc_point_hits, kv_counted(&from->tc_point_hits));
	kv_count(&into->tc_cursors, kv_counted(&from->tc_cursors));
	kv_count(&into->tc_cursor_bytes, kv_counted(&from->tc_cursor_bytes));
	kv_count(&into->tc_begun, kv_counted(&from->tc_begun));
	kv_count(&into->tc_committed, kv_counted(&from->tc_committed));
	kv_count(&into->tc_aborted, kv_counted(&from->tc_aborted));
	kv_count(&into->tc_conflicts, kv_counted(&from->tc_conflicts));
	kv_count(&into->tc_stale, kv_counted(&from->tc_stale));
}

static void unlink_db(struct kv_tctx *tc)
{
	struct kv_tctx **pp;

	for (pp = &tc->tc_db->d_threads.dt_ctxs; *pp; pp = &(*pp)->tc_db_next) {
		if (*pp == tc) {
			*pp = tc->tc_db_next;
			return;
		}
	}
}

static void thread_exit(void *arg)
{
	struct kv_thread *t = arg, **pp;
	struct kv_tctx *tc;

	KV_ASSERT(!t->t_nest);
	pthread_mutex_lock(&reg_lock);
	while ((tc = t->t_ctxs)) {
		t->t_ctxs = tc->tc_thread_next;
		unlink_db(tc);
		fold(tc->tc_db->d_threads.dt_ended, tc);
		free(tc->tc_batch);
		free(tc);
	}
	for (pp = &threads; *pp != t; pp = &(*pp)->t_next)
		;
	*pp = t->t_next;
	pthread_mutex_unlock(&reg_lock);
	self = NULL;
	free(t);
}

/* ---- fork() ---- */

static void fork_begin(void)
{
	pthread_mutex_lock(&reg_lock);
	pthread_mutex_lock(&limbo_lock);
}

static void fork_parent(void)
{
	pthread_mutex_unlock(&limbo_lock);
	pthread_mutex_unlock(&reg_lock);
}

/*
 * Of the threads there is the calling one. The others would be waited for, for ever, as readers
 * or for their destructors. What is retired is the parent's: a destructor of it here would give
 * away objects of a pool that the parent has open.
 */
static void fork_child(void)
{
	threads = self;
	if (self)
		self->t_next = NULL;
	limbo_head = NULL;
	limbo_tail = &limbo_head;
	atomic_store(&limbo_n, 0);
	running = NULL;
	fork_parent();
}

static int fork_err;	/* written by fork_hooks(), which every open has behind it */

static void fork_hooks(void)
{
	fork_err = pthread_atfork(fork_begin, fork_parent, fork_child);
}

/* The program may have taken all keys that there are: then it is asked again at the next open. */
static bool key_make(void)
{
	bool has;

	pthread_mutex_lock(&reg_lock);
	if (!has_key)
		has_key = !pthread_key_create(&key, thread_exit);
	has = has_key;
	pthread_mutex_unlock(&reg_lock);
	return has;
}

static __attribute__((noinline, cold)) struct kv_thread *thread_new(void)
{
	struct kv_thread *t;

	/* a few hundred bytes, once per thread: no caller takes an error, so they are waited for */
	while (!(t = aligned_alloc(128, sizeof(*t))))
		kv_sleep_ms();
	memset(t, 0, sizeof(*t));
	pthread_mutex_lock(&reg_lock);
	t->t_no = next_no++;
	t->t_next = threads;
	threads = t;
	pthread_mutex_unlock(&reg_lock);
	/* every open has made it: without one there is nothing to clean up after but this */
	if (key_make())
		pthread_setspecific(key, t);
	self = t;
	return t;
}

static inline struct kv_thread *thread_self(void)
{
	struct kv_thread *t = self;

	return KV_LIKELY(t != NULL) ? t : thread_new();
}

struct kv_thread *kv_enter(void)
{
	struct kv_thread *t = thread_self();

	if (t->t_nest++ == 0) {
		/* the announcement must be visible before any shared pointer is read */
		atomic_exchange_explicit(&t->t_epoch,
					 atomic_load_explicit(&epoch, memory_order_relaxed),
					 memory_order_seq_cst);
		kv_fence();
	}
	return t;
}

void kv_exit(struct kv_thread *t)
{
	KV_ASSERT_SLOW(t == self && t->t_nest);
	if (--t->t_nest == 0)
		atomic_store_explicit(&t->t_epoch, 0, memory_order_release);
}

bool kv_is_inside(void)
{
	return self && self->t_nest;
}

unsigned int kv_thread_no(void)
{
	return thread_self()->t_no;
}

/* Moves the epoch on when every reader has seen it; false: one has not. */
static bool advance(void)
{
	uint64_t now = atomic_load(&epoch);
	struct kv_thread *t;
	bool all = true;

	pthread_mutex_lock(&reg_lock);
	kv_fence();	/* pairs with kv_enter(): what was unhooked, before its readers */
	for (t = threads; t && all; t = t->t_next) {
		uint64_t e = atomic_load(&t->t_epoch);

		all = e == 0 || e == now;
	}
	pthread_mutex_unlock(&reg_lock);
	if (all)
		atomic_compare_exchange_strong(&epoch, &now, now + 1);
	return all;
}

/* Under limbo_lock: takes what is old enough off the list. */
static struct kv_limbo *take_due(void)
{
	struct kv_limbo *list = NULL, **tail = &list, *lb;
	uint64_t now = atomic_load(&epoch);

	KV_ASSERT_HELD(&limbo_lock);
	while ((lb = limbo_head) && lb->lb_epoch + 2 <= now) {
		limbo_head = lb->lb_next;
		if (!limbo_head)
			limbo_tail = &limbo_head;
		KV_ASSERT(!limbo_head || limbo_head->lb_epoch >= lb->lb_epoch);
		lb->lb_next = NULL;
		*tail = lb;
		tail = &lb->lb_next;
		atomic_fetch_sub(&limbo_n, 1);
	}
	return list;
}

/* Frees what is old enough. Outside kv_enter(). */
static void reclaim(void)
{
	struct batch me = { .owner = thread_self() }, **pp;
	struct kv_limbo *list, *lb;

	KV_ASSERT(!me.owner->t_nest);
	advance();
	pthread_mutex_lock(&limbo_lock);
	list = take_due();
	if (list) {
		me.no = next_batch++;
		me.next = running;
		running = &me;
	}
	pthread_mutex_unlock(&limbo_lock);
	if (!list)
		return;
	while ((lb = list)) {
		list = lb->lb_next;
		lb->lb_free(lb->lb_arg);
	}
	pthread_mutex_lock(&limbo_lock);
	for (pp = &running; *pp != &me; pp = &(*pp)->next)
		;
	*pp = me.next;
	pthread_mutex_unlock(&limbo_lock);
}

/*
 * The epoch in which what the caller has unhooked is retired. The fence pairs with that of
 * kv_enter(): a thread that is past its own and finds it still has announced at most this epoch.
 * Without it the load may be done first, for what unhooks is often but a release store; then the
 * epoch moves, and a thread that enters in the next one finds what is freed one too early.
 */
static uint64_t epoch_of_now(void)
{
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load(&epoch);
}

uint64_t kv_grace_begin(void)
{
	return epoch_of_now() + 2;
}

bool kv_grace_is_over(uint64_t grace)
{
	return atomic_load(&epoch) >= grace || (advance() && atomic_load(&epoch) >= grace);
}

/* Waits until no reader holds what was unlinked before the call. Outside kv_enter(). */
static void grace(void)
{
	uint64_t want = kv_grace_begin();

	KV_ASSERT(!kv_is_inside());	/* it would wait for itself */
	/* on a busy machine a yield costs a time slice of each other thread */
	while (atomic_load(&epoch) < want)
		if (!advance())
			sched_yield();
}

/* True while another thread runs destructors of a batch before @no. */
static bool is_running(uint64_t no)
{
	struct kv_thread *t = thread_self();
	struct batch *b;

	pthread_mutex_lock(&limbo_lock);
	for (b = running; b && (b->no >= no || b->owner == t); b = b->next)
		;
	pthread_mutex_unlock(&limbo_lock);
	return b != NULL;
}

void kv_retire(struct kv_limbo *lb, void (*fn)(void *arg), void *arg)
{
	*lb = (struct kv_limbo){ .lb_free = fn, .lb_arg = arg };
	pthread_mutex_lock(&limbo_lock);
	lb->lb_epoch = epoch_of_now();
	*limbo_tail = lb;
	limbo_tail = &lb->lb_next;
	atomic_fetch_add(&limbo_n, 1);
	pthread_mutex_unlock(&limbo_lock);
	if (!thread_self()->t_nest)
		reclaim();
}

void kv_reclaim(void)
{
	/* a put looks at memory where it stands, inside: destructors are not for it to run */
	if (atomic_load_explicit(&limbo_n, memory_order_relaxed) && !thread_self()->t_nest)
		reclaim();
}

void kv_retire_barrier(void)
{
	uint64_t no;

	grace();
	reclaim();
	/* others may have taken what we wait for */
	pthread_mutex_lock(&limbo_lock);
	no = next_batch;
	pthread_mutex_unlock(&limbo_lock);
	while (is_running(no))
		sched_yield();
}

/* ---- contexts ------------------------------------------------------------- */

static struct kv_tctx *ctx_alloc(struct kvdb *db)
{
	struct kv_tctx *tc = aligned_alloc(128, sizeof(*tc));

	if (tc) {
		memset(tc, 0, sizeof(*tc));
		tc->tc_db = db;
	}
	return tc;
}

static struct kv_tctx *ctx_find(struct kvdb *db, struct kv_thread *t)
{
	struct kv_tctx *tc;

	pthread_mutex_lock(&reg_lock);
	for (tc = t->t_ctxs; tc && tc->tc_db != db; tc = tc->tc_thread_next)
		;
	pthread_mutex_unlock(&reg_lock);
	if (tc)
		return tc;
	tc = ctx_alloc(db);
	if (!tc)
		return NULL;
	tc->tc_thread = t;
	pthread_mutex_lock(&reg_lock);
	tc->tc_db_next = db->d_threads.dt_ctxs;
	db->d_threads.dt_ctxs = tc;
	tc->tc_thread_next = t->t_ctxs;
	t->t_ctxs = tc;
	pthread_mutex_unlock(&reg_lock);
	return tc;
}

/* Out of the way, so that the call that finds what it had last saves no registers for it. */
static __attribute__((noinline, cold)) struct kv_tctx *ctx_switch(struct kvdb *db)
{
	struct kv_thread *t = thread_self();

	t->t_ctx = ctx_find(db, t);
	t->t_db_id = t->t_ctx ? db->d_threads.dt_id : 0;
	return t->t_ctx;
}

struct kv_tctx *kv_tctx(struct kvdb *db)
{
	struct kv_thread *t = self;

	if (KV_LIKELY(t && t->t_db_id == db->d_threads.dt_id))
		return t->t_ctx;
	return ctx_switch(db);
}

void kv_tctx_each(struct kvdb *db, void (*fn)(struct kv_tctx *tc, void *arg), void *arg)
{
	struct kv_tctx *tc;

	KV_ASSERT_FREE(&limbo_lock);
	pthread_mutex_lock(&reg_lock);
	for (tc = db->d_threads.dt_ctxs; tc; tc = tc->tc_db_next)
		fn(tc, arg);
	if (db->d_threads.dt_ended)
		fn(db->d_threads.dt_ended, arg);
	pthread_mutex_unlock(&reg_lock);
}

int kv_threads_ready(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	/* not under a lock that the hooks take: fork() may have the list of hooks locked */
	pthread_once(&once, fork_hooks);
	if (fork_err)
		return kv_error(-ENOMEM, "MP0902", "no memory to take part in fork()");
	return key_make() ? 0 : kv_error(-EAGAIN, "MP0998", "no key of thread-specific data can "
					 "be made");
}

int kv_threads_init(struct kvdb *db)
{
	db->d_threads.dt_ended = ctx_alloc(db);
	if (!db->d_threads.dt_ended)
		return -ENOMEM;
	db->d_threads.dt_id = atomic_fetch_add(&next_db_id, 1);
	return 0;
}

void kv_threads_fini(struct kvdb *db)
{
	struct kv_tctx *tc, **pp;

	pthread_mutex_lock(&reg_lock);
	while ((tc = db->d_threads.dt_ctxs)) {
		db->d_threads.dt_ctxs = tc->tc_db_next;
		for (pp = &tc->tc_thread->t_ctxs; *pp != tc; pp = &(*pp)->tc_thread_next)
			;
		*pp = tc->tc_thread_next;
		free(tc->tc_batch);
		free(tc);
	}
	pthread_mutex_unlock(&reg_lock);
	free(db->d_threads.dt_ended);
	db->d_threads.dt_ended = NULL;
}

/*
 * A signal that the program blocks in its own threads, to wait for it, would come to one of ours:
 * its handler would run there, or the process end. What a thread itself does wrong stays its own.
 */
int kv_thread_start(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}
