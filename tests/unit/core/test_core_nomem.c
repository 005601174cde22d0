/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Memory that ends: each allocation of the core fails in turn, alone or with
 * all that follow it, in one workload of a pool. Calls that fail change nothing
 * and leak nothing, what succeeded is there at the next open.
 */
#include "core_mem.h"
#include "os_user.h"

#include <errno.h>

#define SIZE	(8ull << 20)
#define OBJS	3u

static struct rig rig;
static long to_go;		/* allocations that still succeed; < 0: all do */
static bool is_sticky, has_failed;
static long live;		/* allocations that were not freed */

static void *mem_get(void *ctx, size_t size, size_t align)
{
	void *p = NULL;

	(void)ctx;
	if (!to_go) {
		has_failed = true;
		if (!is_sticky)
			to_go = -1;
		return NULL;
	}
	to_go -= to_go > 0;
	if (!align)
		p = malloc(size);
	else if (posix_memalign(&p, align, size))
		p = NULL;
	live += p != NULL;
	return p;
}

static void mem_put(void *ctx, void *p)
{
	(void)ctx;
	live--;
	free(p);
}

static const struct os_user_hooks counting = { .alloc = mem_get, .free = mem_put };

/* What was acknowledged. */
struct done {
	u64 id[OBJS];
	u32 n;
	u64 log;
	u32 nrec;
	bool has_root, is_deleted;
};

static void objects(struct mp_pool *p, struct done *d)
{
	struct mp_obj *o;
	u32 i;

	for (i = 0; i < OBJS; i++) {
		if (alloc_one(p, MP_MBLOCK, 16384, &o))
			continue;
		if (!fill(o, 0, 8192, (u8)i) && !commit(p, o, 8192))
			d->id[d->n++] = mp_obj_id(o);
		mp_obj_put(o);
	}
	if (d->n > 1 && !delete_id(p, d->id[0]))
		d->is_deleted = true;
}

static void records(struct mp_pool *p, struct done *d)
{
	struct mp_vec v = { .v_buf = "record", .v_len = 6 };
	struct mp_mlog *l;
	u64 id[2];
	u32 i;

	if (mp_root_create(p, "root", MP_CAPACITY, 65536, 7))
		return;
	d->has_root = true;
	if (mp_root_get(p, "root", id) || mp_mlog_open(p, id[0], &l))
		return;
	d->log = id[0];
	for (i = 0; i < 4; i++)
		d->nrec += !mp_mlog_append(l, &v, 1, true);
	mp_mlog_close(l);
}

static void all_is_there(const struct done *d)
{
	struct mp_mlog *l;
	struct mp_obj *o;
	char buf[16];
	u64 id[2], pos = 0;
	size_t len;
	u32 i, n = 0;

	for (i = 0; i < d->n; i++) {
		int rc = mp_obj_open(rig.pool, d->id[i], &o);

		T_EQ(rc, i == 0 && d->is_deleted ? -ENOENT : 0);
		if (!rc)
			mp_obj_put(o);
	}
	T_EQ(mp_root_get(rig.pool, "root", id), d->has_root ? 0 : -ENOENT);
	if (!d->log)
		return;
	T_EQ(mp_mlog_open(rig.pool, d->log, &l), 0);
	while (!mp_mlog_read(l, &pos, buf, sizeof(buf), &len))
		n++;
	mp_mlog_close(l);
	T_EQ(n, d->nrec);
}

/* One run; false when nothing was left to fail. */
static bool run_once(long k, bool sticky)
{
	struct done d = { .n = 0 };

	rig_init(&rig, 1, SIZE);
	T_EQ(rig_open(&rig), 0);
	objects(rig.pool, &d);
	T_EQ(mp_pool_close(rig.pool), 0);
	rig.pool = NULL;
	live = 0;
	os_user_hooks_set(&counting);
	has_failed = false;
	is_sticky = sticky;
	to_go = k;
	if (!rig_open(&rig)) {
		struct done more = { .n = 0 };

		objects(rig.pool, &more);
		records(rig.pool, &d);
		T_EQ(mp_pool_close(rig.pool), 0);
		rig.pool = NULL;
	}
	to_go = -1;
	if (live)
		T_FAIL("allocation %ld%s: %ld are not freed", k, sticky ? " and all after it" : "",
		       live);
	os_user_hooks_set(NULL);
	T_EQ(rig_open(&rig), 0);
	all_is_there(&d);
	rig_fini(&rig);
	rig.pool = NULL;
	return has_failed;
}

static void every_allocation_may_fail_once(void)
{
	long k = 0;

	while (run_once(k, false))
		k++;
	t_figure("allocation failure", "core: each of %ld allocations, once", k);
	T_OK(k > 30);
}

static void from_any_allocation_on_all_may_fail(void)
{
	long k = 0;

	while (run_once(k, true))
		k++;
	t_figure("allocation failure", "core: all from each of %ld allocations on", k);
	T_OK(k > 30);
}

/* what is taken under p_lock does not wait there: room is made outside, and it is tried again */
static void an_object_has_a_second_try(void)
{
	u32 overcome = 0;
	struct mp_obj *o;
	long k;
	int rc;

	rig_init(&rig, 1, SIZE);
	T_EQ(rig_open(&rig), 0);
	os_user_hooks_set(&counting);
	is_sticky = has_failed = false;
	for (k = 0; !k || has_failed; k++) {
		has_failed = false;
		to_go = k;
		rc = alloc_one(rig.pool, MP_MBLOCK, 16384, &o);
		to_go = -1;
		T_OK(rc == 0 || rc == -ENOMEM);
		if (!rc)
			mp_obj_put(o);
		overcome += !rc && has_failed;
	}
	os_user_hooks_set(NULL);
	/* the object, and the node of its extent */
	T_EQ(overcome, 2);
	rig_fini(&rig);
}

int main(void)
{
	T_RUN(every_allocation_may_fail_once);
	T_RUN(from_any_allocation_on_all_may_fail);
	T_RUN(an_object_has_a_second_try);
	return t_done();
}
