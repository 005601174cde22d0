/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Member devices in memory for the unit tests of the core: with a volatile
 * write cache that a test can cut, and failures by call count.
 */
#ifndef TESTS_CORE_MEM_H
#define TESTS_CORE_MEM_H

#include <pthread.h>

#include "obj.h"
#include "pool.h"
#include "codec.h"
#include "../harness.h"

/* one for all devices: they are not measured */
static pthread_mutex_t mem_lock = PTHREAD_MUTEX_INITIALIZER;

struct mem {
	struct mp_dev dev;
	u8 *now;		/* what reads see */
	u8 *media;		/* what survives a cut */
	u64 writes, flushes, discards, bytes_read;
	int fail_write, fail_flush;	/* errno from now on, 0 = none */
	u64 fail_after;			/* writes that still succeed */
	u64 dirty_lo, dirty_hi;		/* bytes that now and media may differ in */
};

static struct mem *mem_of(struct mp_dev *d)
{
	return (struct mem *)d;
}

/* the read of all devices, counted from 1, that has a wrong bit in each block and says nothing */
static u64 mem_reads, mem_lie_at;

static int mem_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	size_t i;

	if (off + len > d->d_size)
		return -EIO;
	pthread_mutex_lock(&mem_lock);
	memcpy(buf, mem_of(d)->now + off, len);
	mem_of(d)->bytes_read += len;
	if (++mem_reads == mem_lie_at)
		for (i = 0; i < len; i += 4096)
			((u8 *)buf)[i + 8] ^= 1;
	pthread_mutex_unlock(&mem_lock);
	return 0;
}

static int mem_write_locked(struct mp_dev *d, u64 off, const void *buf, size_t len)
{
	struct mem *m = mem_of(d);

	m->writes++;
	if (m->fail_write && !m->fail_after)
		return m->fail_write;
	m->fail_after -= m->fail_after > 0;
	if (off + len > d->d_size || (off | len) % 4096)
		return -EIO;
	memcpy(m->now + off, buf, len);
	m->dirty_lo = min(m->dirty_lo, off);
	m->dirty_hi = max(m->dirty_hi, off + len);
	return 0;
}

static int mem_write(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	int rc;

	(void)flags;
	pthread_mutex_lock(&mem_lock);
	rc = mem_write_locked(d, off, buf, len);
	pthread_mutex_unlock(&mem_lock);
	return rc;
}

static int mem_flush_locked(struct mp_dev *d)
{
	struct mem *m = mem_of(d);

	m->flushes++;
	if (m->fail_flush)
		return m->fail_flush;
	if (m->dirty_lo < m->dirty_hi)
		memcpy(m->media + m->dirty_lo, m->now + m->dirty_lo, m->dirty_hi - m->dirty_lo);
	m->dirty_lo = ~0ull;
	m->dirty_hi = 0;
	return 0;
}

static int mem_flush(struct mp_dev *d)
{
	int rc;

	pthread_mutex_lock(&mem_lock);
	rc = mem_flush_locked(d);
	pthread_mutex_unlock(&mem_lock);
	return rc;
}

static int mem_discard(struct mp_dev *d, u64 off, u64 len)
{
	pthread_mutex_lock(&mem_lock);
	mem_of(d)->discards++;
	memset(mem_of(d)->now + off, 0xdd, len);
	pthread_mutex_unlock(&mem_lock);
	return 0;
}

static const struct mp_dev_ops mem_ops = {
	.read = mem_read, .write = mem_write, .flush = mem_flush, .discard = mem_discard,
};

static inline void mem_init(struct mem *m, u64 size)
{
	memset(m, 0, sizeof(*m));
	m->dev.d_ops = &mem_ops;
	m->dev.d_size = size;
	m->dev.d_sector = 512;
	m->dev.d_path = "mem";
	m->dirty_lo = ~0ull;
	m->now = malloc(size);
	m->media = malloc(size);
	memset(m->now, 0xa5, size);
	memset(m->media, 0xa5, size);
}

static inline void mem_fini(struct mem *m)
{
	free(m->now);
	free(m->media);
}

/* power cut: all that was not flushed is gone */
static inline void mem_cut(struct mem *m)
{
	memcpy(m->now, m->media, m->dev.d_size);
	m->fail_write = 0;
	m->fail_flush = 0;
}

struct rig {
	struct mem m[2];
	struct mp_dev *dev[2];
	u32 n;
	struct mp_pool *pool;
};

static inline void rig_init(struct rig *r, u32 n, u64 size)
{
	static const u32 mclass[2] = { MP_CAPACITY, MP_STAGING };
	struct mp_create c = { .mc_name = "unit", .mc_ndevs = n, .mc_dev = r->dev,
			       .mc_mclass = mclass };
	u32 i;

	memset(r, 0, sizeof(*r));
	r->n = n;
	for (i = 0; i < n; i++) {
		mem_init(&r->m[i], size);
		r->dev[i] = &r->m[i].dev;
	}
	T_EQ(mp_pool_create(&c), 0);
}

static inline int rig_open(struct rig *r)
{
	return mp_pool_open(r->dev, r->n, 0, &r->pool);
}

static inline void rig_fini(struct rig *r)
{
	u32 i;

	if (r->pool)
		T_EQ(mp_pool_close(r->pool), 0);
	for (i = 0; i < r->n; i++)
		mem_fini(&r->m[i]);
}

/* close without leaving a trace and come back */
static inline void rig_reopen(struct rig *r, int is_cut)
{
	u32 i;

	T_EQ(mp_pool_close(r->pool), 0);
	r->pool = NULL;
	for (i = 0; i < r->n && is_cut; i++)
		mem_cut(&r->m[i]);
	T_EQ(rig_open(r), 0);
}

static inline int alloc_one(struct mp_pool *p, u32 kind, u64 cap, struct mp_obj **o)
{
	struct mp_alloc a = { .al_kind = kind, .al_capacity = cap, .al_tag = 7 };

	return mp_obj_alloc(p, &a, 1, o);
}

static inline int fill(struct mp_obj *o, u64 off, u64 len, u8 byte)
{
	struct mp_dev *dev;
	u64 pos, n, end = off + len;
	u8 *buf = malloc(len);
	int rc = mp_obj_write_begin(o, off, len);

	memset(buf, byte, len);
	if (!rc) {
		u64 at = off;

		while (!rc && at < end) {
			rc = mp_obj_map(o, at, end - at, &dev, &pos, &n);
			if (!rc)
				rc = dev->d_ops->write(dev, pos, buf, n, 0);
			at += n;
		}
		mp_obj_write_end(o, off, rc);
	}
	free(buf);
	return rc;
}

static inline u64 count_objs(const struct rig *r)
{
	struct mp_pool_info pi;

	mp_pool_info(r->pool, &pi);
	return pi.pi_objects;
}

/* what all members are caught at */
static inline struct mp_health rig_health(const struct rig *r)
{
	struct mp_health sum = { 0 };
	struct mp_member mb;

	for (u32 i = 0; !mp_pool_member(r->pool, i, &mb); i++) {
		sum.he_csums += mb.mb_health.he_csums;
		sum.he_rereads += mb.mb_health.he_rereads;
		sum.he_repairs += mb.mb_health.he_repairs;
	}
	return sum;
}

static inline void add_objs(struct rig *r, int n)
{
	struct mp_obj *o;

	while (n--) {
		T_EQ(alloc_one(r->pool, MP_APPEND, 4096, &o), 0);
		mp_obj_put(o);
	}
}

static inline int commit(struct mp_pool *p, struct mp_obj *o, u64 len)
{
	struct mp_op op = { .op_type = MP_OP_COMMIT, .op_obj = o, .op_length = len };

	return mp_pool_batch(p, &op, 1);
}

static inline int delete_id(struct mp_pool *p, u64 id)
{
	struct mp_op op = { .op_type = MP_OP_DELETE, .op_id = id };

	return mp_pool_batch(p, &op, 1);
}

#endif
