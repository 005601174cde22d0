/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A caller that is killed while the core goes over media: it ends at the next step with
 * -EINTR, whichever that is, reads and writes no more, and all others find the pool as it
 * was. In user space no thread is killed so: the kernel's answer comes from a hook.
 */
#include "core.h"
#include "core_mem.h"
#include "os_user.h"

#include <errno.h>
#include <unistd.h>

#define REC	(1u << 20)	/* bytes of a large record */

static struct rig r;
static struct mp_dev_ops ops;

/* the kill, and what is asked of devices after it was seen */
static struct {
	u64 asked;
	u64 at;		/* from this question on, counted from 1; 0: never */
	bool is_seen;
	u64 after;
} on;

static bool is_killed(void *ctx)
{
	(void)ctx;
	on.is_seen |= ++on.asked >= on.at && on.at;
	return on.is_seen;
}

static int on_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	on.after += on.is_seen;
	return mem_read(d, off, buf, len);
}

static int on_write(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	on.after += on.is_seen;
	return mem_write(d, off, buf, len, flags);
}

static void kill_at(u64 at)
{
	memset(&on, 0, sizeof(on));
	on.at = at;
}

static void start(u64 size)
{
	static const struct os_user_hooks hooks = { .fatal_signal = is_killed };
	u32 i;

	kill_at(0);
	os_user_hooks_set(&hooks);
	rig_init(&r, 2, size);
	ops = mem_ops;
	ops.read = on_read;
	ops.write = on_write;
	for (i = 0; i < 2; i++)
		r.dev[i]->d_ops = &ops;
	T_EQ(rig_open(&r), 0);
}

static void end(void)
{
	kill_at(0);
	rig_fini(&r);
	os_user_hooks_set(NULL);
}

/* the pool opens when no caller is killed, with @n objects */
static void reopens(u64 n)
{
	kill_at(0);
	T_EQ(rig_open(&r), 0);
	T_EQ(count_objs(&r), n);
	T_EQ(mp_pool_close(r.pool), 0);
	r.pool = NULL;
}

/* what the next open is to find on each mirror */
static u8 image[2][16u << 20];

static void images_take(u32 i)
{
	memcpy(image[i], r.m[i].now, sizeof(image[i]));
}

static void images_back(void)
{
	u32 i;

	for (i = 0; i < 2; i++)
		memcpy(r.m[i].now, image[i], sizeof(image[i]));
}

/*
 * At each question of an open, of a pool whose mirrors are equal, and of one whose second
 * mirror is behind and is made anew.
 */
static void an_open_ends_and_others_find_all(void)
{
	int rc, is_behind;
	u64 at;

	for (is_behind = 0; is_behind < 2; is_behind++) {
		start(sizeof(image[0]));
		add_objs(&r, 100);
		images_take(1);
		add_objs(&r, 900);
		images_take(0);
		if (!is_behind)
			images_take(1);
		T_EQ(mp_pool_close(r.pool), 0);
		r.pool = NULL;
		for (at = 1; ; at++) {
			images_back();
			kill_at(at);
			rc = rig_open(&r);
			if (!on.is_seen)
				break;
			T_EQ(rc, -EINTR);
			T_EQ(on.after, 0);
			reopens(1000);
		}
		T_EQ(rc, 0);
		T_OK(at > 4);
		kill_at(0);
		T_EQ(count_objs(&r), 1000);
		end();
	}
}

/* a log of @n large records, the first of them durable; with a torn tail when the second is hit */
static struct mp_obj *log_make(u32 n, bool is_torn)
{
	static u8 buf[REC];
	struct mp_vec v = { buf, sizeof(buf) - 64 };
	struct mp_mlog *l = NULL;
	struct mp_dev *dev;
	struct mp_obj *obj;
	u64 pos, contig;
	u32 i;

	T_EQ(alloc_one(r.pool, MP_MLOG, 32 * REC, &obj), 0);
	T_EQ(mp_mlog_open(r.pool, mp_obj_id(obj), &l), 0);
	for (i = 0; i < n; i++)
		T_EQ(mp_mlog_append(l, &v, 1, !i), 0);
	/* what is in its buffer is lost */
	mp_mlog_close(l);
	T_EQ(mp_obj_map(obj, REC + 2 * MP_BLOCK, 1, &dev, &pos, &contig), 0);
	mem_of(dev)->now[pos] ^= is_torn;
	return obj;
}

static int records(struct mp_mlog *l)
{
	static u8 buf[REC];
	size_t len;
	u64 pos = 0;
	int n = 0;

	while (!mp_mlog_read(l, &pos, buf, sizeof(buf), &len))
		n++;
	return n;
}

static void a_log_is_searched_no_further(void)
{
	struct mp_mlog *l = NULL;
	struct mp_obj *obj;
	u64 at;
	int rc;

	start(64u << 20);
	obj = log_make(6, false);
	for (at = 1; ; at++) {
		kill_at(at);
		rc = mp_mlog_open(r.pool, mp_obj_id(obj), &l);
		if (!on.is_seen)
			break;
		T_EQ(rc, -EINTR);
		T_EQ(on.after, 0);
	}
	/* the search behind the chain's end is the longest part */
	T_OK(at > 16);
	kill_at(0);
	T_EQ(rc, 0);
	T_EQ(records(l), 5);
	mp_mlog_close(l);
	mp_obj_put(obj);
	end();
}

/* a record of a log whose torn tail is wiped before; the next open can go on */
static void a_log_whose_writer_is_killed_has_not_failed(void)
{
	struct mp_vec v = { "record", 6 };
	struct mp_mlog *l = NULL;
	struct mp_obj *obj;
	u64 at;
	int rc;

	start(64u << 20);
	obj = log_make(6, true);
	T_EQ(mp_mlog_open(r.pool, mp_obj_id(obj), &l), 0);
	T_EQ(mp_mlog_append(l, &v, 1, false), 0);
	for (at = 1; ; at++) {
		kill_at(at);
		rc = mp_mlog_sync(l);
		if (!on.is_seen)
			break;
		T_EQ(rc, -EINTR);
	}
	T_OK(at > 4);
	T_EQ(rc, 0);
	kill_at(0);
	T_EQ(records(l), 2);
	mp_mlog_close(l);
	T_EQ(mp_mlog_open(r.pool, mp_obj_id(obj), &l), 0);
	T_EQ(records(l), 2);
	mp_mlog_close(l);
	mp_obj_put(obj);
	end();
}

static u64 used(void)
{
	struct mp_pool_info pi;

	mp_pool_info(r.pool, &pi);
	return pi.pi_cls[0].ci_used;
}

static int on_zero(struct mp_dev *d, u64 off, u64 len)
{
	on.after += on.is_seen;
	memset(mem_of(d)->now + off, 0, len);
	return 0;
}

/* zeroes for hours where the device has no command for them */
static void zeroing_ends(u64 steps)
{
	struct mp_obj *obj = NULL;
	u64 at, had = used();
	int rc;

	for (at = 1; ; at++) {
		kill_at(at);
		rc = alloc_one(r.pool, MP_APPEND, 8u << 20, &obj);
		if (!on.is_seen)
			break;
		T_EQ(rc, -EINTR);
		T_EQ(on.after, 0);
		T_EQ(used(), had);
	}
	T_OK(at > steps);
	T_EQ(rc, 0);
	T_EQ(used(), had + (8u << 20));
	mp_obj_put(obj);
}

static void an_allocation_gives_its_space_back(void)
{
	start(64u << 20);
	zeroing_ends(16);
	ops.zero = on_zero;
	zeroing_ends(1);
	end();
}

/* while a discard is on its way: what it gives back is all there is */
static int ask_for_all(struct mp_dev *d, u64 off, u64 len)
{
	struct mp_obj *obj = NULL;

	(void)d;
	(void)off;
	kill_at(1);
	T_EQ(alloc_one(r.pool, MP_MBLOCK, len, &obj), -EINTR);
	T_OK(on.is_seen);
	kill_at(0);
	return 0;
}

static void who_waits_for_space_ends(void)
{
	struct mp_obj *obj, *one;

	/* or it waits for ever */
	alarm(60);
	start(64u << 20);
	ops.discard = ask_for_all;
	T_EQ(alloc_one(r.pool, MP_MBLOCK, 32u << 20, &obj), 0);
	T_EQ(fill(obj, 0, MP_BLOCK, 'x'), 0);
	while (!alloc_one(r.pool, MP_APPEND, 1u << 20, &one))
		mp_obj_put(one);
	mp_obj_put(obj);
	while (mp_pool_discard_step(r.pool, 0))
		;
	alarm(0);
	end();
}

/* of all objects, for those of a tag that none has */
static void a_search_for_objects_ends(void)
{
	struct mp_obj_info oi;

	start(64u << 20);
	add_objs(&r, 5000);
	kill_at(0);
	T_EQ(mp_obj_list(r.pool, 0, 4711, &oi, 1), 0);
	T_OK(on.asked >= 4);
	kill_at(2);
	T_EQ(mp_obj_list(r.pool, 0, 4711, &oi, 1), 0);
	T_EQ(on.asked, 2);
	end();
}

int main(void)
{
	T_RUN(an_open_ends_and_others_find_all);
	T_RUN(a_log_is_searched_no_further);
	T_RUN(a_log_whose_writer_is_killed_has_not_failed);
	T_RUN(an_allocation_gives_its_space_back);
	T_RUN(who_waits_for_space_ends);
	T_RUN(a_search_for_objects_ends);
	return t_done();
}
