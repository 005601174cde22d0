/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The metadata log, writing side, when a mirror fails, memory ends or records do not fit: the
 * pool stops where it must and nowhere else, each waiter is told by which device, and what
 * was acknowledged is there at the next open.
 */
#include "core.h"
#include "core_mem.h"
#include "os_user.h"

#include <errno.h>

#define SMALL	(8ull << 20)

static struct rig r;
static struct mp_dev_ops ops;

/* the request of one mirror at which something happens */
enum kind { WRITE, TORN, FLUSH, KINDS };
static struct {
	struct mp_dev *dev;	/* NULL: none */
	enum kind kind;
	u64 calls;
	u64 at;			/* this call fails, counted from 1 */
	int err;		/* so; 0: -EIO */
	u64 fn_at;		/* in this one @fn runs */
	void (*fn)(void);
} on;

static bool is_it(const struct mp_dev *d, bool is_flush)
{
	if (d != on.dev || (on.kind == FLUSH) != is_flush)
		return false;
	if (++on.calls == on.fn_at)
		on.fn();
	return on.calls == on.at;
}

static int on_write(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	if (!is_it(d, false))
		return mem_write(d, off, buf, len, flags);
	if (on.kind == TORN)
		memcpy(mem_of(d)->now + off, buf, len / 2);
	return on.err ? on.err : -EIO;
}

static int on_flush(struct mp_dev *d)
{
	return is_it(d, true) ? on.err ? on.err : -EIO : mem_flush(d);
}

static void start(u64 size)
{
	static const char *const path[2] = { "first", "second" };

	memset(&on, 0, sizeof(on));
	rig_init(&r, 2, size);
	ops = mem_ops;
	ops.write = on_write;
	ops.flush = on_flush;
	for (u32 i = 0; i < 2; i++) {
		r.m[i].dev.d_path = path[i];
		r.m[i].dev.d_ops = &ops;
	}
	T_EQ(rig_open(&r), 0);
	add_objs(&r, 3);
}

static bool is_told(const char *what)
{
	return strstr(os_user_error()->oe_text, what);
}

/* ---- changes -------------------------------------------------------------------------- */

static int alloc_n(u32 n)
{
	static const struct mp_alloc one = { .al_kind = MP_MLOG, .al_capacity = 4096 };
	struct mp_alloc *a = calloc(n, sizeof(*a));
	struct mp_obj **o = calloc(n, sizeof(*o));
	u32 i;
	int rc;

	for (i = 0; i < n; i++)
		a[i] = one;
	rc = mp_obj_alloc(r.pool, a, n, o);
	for (i = 0; i < n && !rc; i++)
		mp_obj_put(o[i]);
	free(a);
	free(o);
	return rc;
}

static int change_alloc(void)
{
	return alloc_n(1);
}

static int change_delete(void)
{
	struct mp_obj_info oi;

	T_EQ(mp_obj_list(r.pool, 0, 0, &oi, 1), 1);
	return delete_id(r.pool, oi.oi_id);
}

/* The next record goes to the other region, behind a checkpoint. */
static void fill_region(void)
{
	const struct mp_mdlog *md = &r.pool->p_md;
	u64 epoch = md->md_epoch;

	while (md->md_bytes - md->md_tail >= 2 * MP_BLOCK) {
		T_EQ(change_alloc(), 0);
		if (md->md_bytes - md->md_tail >= MP_BLOCK)
			T_EQ(change_delete(), 0);
	}
	if (md->md_bytes - md->md_tail >= MP_BLOCK)
		T_EQ(change_alloc(), 0);
	T_EQ(md->md_epoch, epoch);
}

/* ---- one mirror fails ------------------------------------------------------------------ */

static const struct {
	int (*run)(void);
	bool at_end;	/* of the region */
	int adds;	/* objects */
} changes[] = {
	{ change_alloc, false, 1 }, { change_delete, false, -1 },
	{ change_alloc, true, 1 }, { change_delete, true, -1 },
};

/* The @k-th request of mirror @m; false: there is none. */
static bool fails_at(u32 c, u32 m, enum kind kind, u64 k)
{
	const char *path;
	struct mp_pool_info pi;
	u64 had, writes;
	int rc;

	start(SMALL);
	path = r.dev[m]->d_path;
	if (changes[c].at_end)
		fill_region();
	had = count_objs(&r);
	on.dev = r.dev[m];
	on.kind = kind;
	on.at = k;
	rc = changes[c].run();
	on.dev = NULL;
	if (on.calls < k) {
		T_EQ(rc, 0);
		rig_fini(&r);
		return false;
	}
	T_EQ(rc, -EIO);
	T_EQ(os_user_error()->oe_id, kind == FLUSH ? MP_MD_FLUSH : MP_MD_WRITE);
	T_OK(is_told(path));
	T_EQ(count_objs(&r), had);
	/* for good, for the same reason, and nothing more is written */
	writes = r.m[0].writes + r.m[1].writes;
	T_EQ(changes[c].run(), -EROFS);
	T_OK(is_told(path));
	T_EQ(r.m[0].writes + r.m[1].writes, writes);
	mp_pool_info(r.pool, &pi);
	T_OK(pi.pi_is_rdonly && strstr(pi.pi_fault, path));
	rig_reopen(&r, k % 2);
	/* what was not acknowledged is there or not */
	T_OK(count_objs(&r) == had || count_objs(&r) == had + (u64)(s64)changes[c].adds);
	T_EQ(change_alloc(), 0);
	rig_fini(&r);
	return true;
}

static void a_mirror_that_fails_stops_the_pool_and_is_named(void)
{
	unsigned runs = 0;
	u64 k;

	for (u32 c = 0; c < ARRAY_SIZE(changes); c++)
		for (u32 m = 0; m < 2; m++)
			for (enum kind kind = 0; kind < KINDS; kind++) {
				for (k = 1; fails_at(c, m, kind, k); k++)
					runs++;
				/* a checkpoint, its end, and the record */
				T_EQ(k > 3, changes[c].at_end);
			}
	printf("# %u runs\n", runs);
}

/* ---- waiters while a frame is written ----------------------------------------------------- */

#define WAITERS	4u

static struct waiter {
	pthread_t t;
	u32 n;		/* objects it makes */
	int rc;
	int id;
	char text[256];
} waiter[WAITERS];
static u32 nwaiters;

static void *wait_run(void *arg)
{
	struct waiter *w = arg;

	w->rc = alloc_n(w->n);
	w->id = os_user_error()->oe_id;
	memcpy(w->text, os_user_error()->oe_text, sizeof(w->text));
	return NULL;
}

static u32 queued(void)
{
	struct mp_txn *t;
	u32 n = 0;

	mutex_lock(&r.pool->p_md.md_lock);
	list_for_each_entry(t, &r.pool->p_md.md_queue, t_list)
		n++;
	mutex_unlock(&r.pool->p_md.md_lock);
	return n;
}

/* Until all of them wait behind the frame that is being written. */
static void let_wait(void)
{
	for (u32 i = 0; i < nwaiters; i++)
		T_EQ(pthread_create(&waiter[i].t, NULL, wait_run, &waiter[i]), 0);
	while (queued() < nwaiters)
		sched_yield();
}

/* @n of them make @objs objects each; write @at of the second mirror fails. */
static int with_waiters(u32 n, u32 objs, u64 at)
{
	int rc;

	nwaiters = n;
	for (u32 i = 0; i < n; i++)
		waiter[i] = (struct waiter){ .n = objs };
	on.dev = r.dev[1];
	on.at = at;
	on.fn_at = 1;
	on.fn = let_wait;
	rc = change_alloc();
	for (u32 i = 0; i < nwaiters; i++)
		pthread_join(waiter[i].t, NULL);
	return rc;
}

static void who_waits_behind_a_frame_that_fails_is_told_why(void)
{
	start(SMALL);
	T_EQ(with_waiters(WAITERS, 1, 1), -EIO);
	T_OK(is_told("second"));
	for (u32 i = 0; i < WAITERS; i++) {
		T_EQ(waiter[i].rc, -EROFS);
		T_OK(strstr(waiter[i].text, "second"));
	}
	T_EQ(on.calls, 1);
	on.dev = NULL;
	rig_reopen(&r, 0);
	T_OK(count_objs(&r) <= 3 + 1);
	rig_fini(&r);
}

static void all_of_a_group_that_fails_are_told_by_which_device(void)
{
	start(SMALL);
	T_EQ(with_waiters(WAITERS, 1, 2), 0);
	for (u32 i = 0; i < WAITERS; i++) {
		T_EQ(waiter[i].rc, -EIO);
		T_EQ(waiter[i].id, MP_MD_WRITE);
		T_OK(strstr(waiter[i].text, "second"));
	}
	on.dev = NULL;
	T_EQ(count_objs(&r), 3 + 1);
	rig_reopen(&r, 0);
	T_OK(count_objs(&r) >= 3 + 1 && count_objs(&r) <= 3 + 1 + WAITERS);
	rig_fini(&r);
}

static void what_does_not_fit_in_one_frame_goes_into_the_next(void)
{
	start(64 << 20);
	T_EQ(with_waiters(WAITERS, MP_BATCH_MAX, 0), 0);
	for (u32 i = 0; i < WAITERS; i++)
		T_EQ(waiter[i].rc, 0);
	T_EQ(on.calls, 1 + 2);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), 3 + 1 + WAITERS * MP_BATCH_MAX);
	rig_fini(&r);
}

/* ---- no room, no memory ------------------------------------------------------------------- */

static void a_batch_longer_than_a_frame_changes_nothing(void)
{
	start(SMALL);
	T_EQ(alloc_n(MP_BATCH_MAX), -ENOSPC);
	T_EQ(os_user_error()->oe_id, MP_MD_BATCH);
	T_EQ(count_objs(&r), 3);
	T_EQ(change_alloc(), 0);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), 3 + 1);
	rig_fini(&r);
}

static long to_go;	/* allocations that still succeed, then none; < 0: all do */

static void *mem_get(void *ctx, size_t size, size_t align)
{
	void *p = NULL;

	(void)ctx;
	if (!to_go)
		return NULL;
	to_go -= to_go > 0;
	if (align && posix_memalign(&p, align, size))
		return NULL;
	return align ? p : malloc(size);
}

static void mem_put(void *ctx, void *p)
{
	(void)ctx;
	free(p);
}

static void without_memory_for_its_checkpoint_a_record_fails_alone(void)
{
	static const struct os_user_hooks hooks = { .alloc = mem_get, .free = mem_put };
	u64 had, epoch;
	long k = 0;
	int rc;

	os_user_hooks_set(&hooks);
	to_go = -1;
	start(SMALL);
	fill_region();
	had = count_objs(&r);
	epoch = r.pool->p_md.md_epoch;
	do {
		to_go = k++;
		rc = change_alloc();
		if (!rc)
			break;
		to_go = -1;
		T_EQ(rc, -ENOMEM);
		T_EQ(os_user_error()->oe_id, MP_NOMEM);
		T_EQ(mp_pool_writable(r.pool), 0);
		T_EQ(count_objs(&r), had);
		T_EQ(r.pool->p_md.md_epoch, epoch);
	} while (rc);
	to_go = -1;
	T_OK(k > 3);
	T_EQ(r.pool->p_md.md_epoch, epoch + 1);
	rig_reopen(&r, 1);
	T_EQ(count_objs(&r), had + 1);
	rig_fini(&r);
	os_user_hooks_set(NULL);
}

static u64 used(void)
{
	struct mp_pool_info pi;

	mp_pool_info(r.pool, &pi);
	return pi.pi_cls[0].ci_used;
}

/*
 * The record may be on the other mirror: what it names stays taken until the next open has seen
 * it, though the device that failed called it "no space" or "no memory".
 */
static void space_that_a_failed_record_may_name_stays_taken(void)
{
	static const int err[] = { -EIO, -ENOSPC, -ENOMEM };
	struct mp_obj *o;
	bool is_alloc;
	u64 had;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(err) * 4; i++) {
		is_alloc = i / 2 % 2;
		start(SMALL);
		had = used();
		T_EQ(alloc_one(r.pool, MP_MBLOCK, 65536, &o), 0);
		T_EQ(fill(o, 0, 65536, 7), 0);
		on.dev = r.dev[1];
		on.kind = i % 2 ? FLUSH : WRITE;
		on.calls = 0;
		on.at = 1;
		on.err = err[i / 4];
		T_EQ(is_alloc ? alloc_n(1) : commit(r.pool, o, 65536), err[i / 4]);
		T_EQ(mp_pool_writable(r.pool), -EROFS);
		mp_obj_put(o);
		T_EQ(used(), had + (is_alloc ? 4096 : 65536));
		rig_fini(&r);
	}
}

static __attribute__((noinline)) void soil_the_stack(void)
{
	volatile u8 soil[16384];
	size_t i;

	for (i = 0; i < sizeof(soil); i++)
		soil[i] = 0xa5;
}

/* callers pass it on as a whole, to users of the pool */
static void the_cause_has_nothing_behind_its_end(void)
{
	static const u8 zero[sizeof(((struct mp_pool_info *)0)->pi_fault)];
	static struct mp_pool_info pi;
	size_t n;

	start(SMALL);
	soil_the_stack();
	T_EQ(mp_pool_fail(r.pool, MP_MD_WRITE, -EIO, "%s: error %d", "mem", -EIO), -EIO);
	mp_pool_info(r.pool, &pi);
	T_STREQ(pi.pi_fault, "mem: error -5");
	n = strlen(pi.pi_fault);
	T_MEMEQ(pi.pi_fault + n, zero, sizeof(pi.pi_fault) - n);
	rig_fini(&r);
}

int main(void)
{
	T_RUN(a_mirror_that_fails_stops_the_pool_and_is_named);
	T_RUN(who_waits_behind_a_frame_that_fails_is_told_why);
	T_RUN(all_of_a_group_that_fails_are_told_by_which_device);
	T_RUN(what_does_not_fit_in_one_frame_goes_into_the_next);
	T_RUN(space_that_a_failed_record_may_name_stays_taken);
	T_RUN(a_batch_longer_than_a_frame_changes_nothing);
	T_RUN(without_memory_for_its_checkpoint_a_record_fails_alone);
	T_RUN(the_cause_has_nothing_behind_its_end);
	return t_done();
}
