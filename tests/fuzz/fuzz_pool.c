/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Pools that a stranger wrote: looked at, verified, opened, read, changed. An
 * image that is refused was not written to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image_edit.h"

#define OBJS	64u
#define OPS	16u

static struct fi image;
static uint8_t block[1 << 16] __attribute__((aligned(4096)));

void fz_init(void)
{
	fi_init(&image, "tests/golden/pool-1.img");
}

static void line(void *arg, const char *text)
{
	*(size_t *)arg += strlen(text);
}

static void extent(void *arg, const struct mpool_extent *e)
{
	*(size_t *)arg += e->len != 0;
}

static void problem(void *arg, const struct mpool_problem *p)
{
	*(size_t *)arg += strlen(p->text);
}

static void look(const struct mpool_open_opts *oo)
{
	uint64_t damage;
	size_t n = 0;

	mpool_verify(GOLDEN_POOL, oo, MPOOL_VERIFY_DATA, problem, &n, &damage);
	mpool_dump(GOLDEN_POOL, oo, line, &n);
	mpool_map(GOLDEN_POOL, oo, extent, &n);
}

static void log_read(struct mpool *mp, uint64_t id)
{
	struct mpool_mlog *log;
	uint64_t pos = 0;
	size_t len;

	if (mpool_mlog_open(mp, id, &log))
		return;
	while (!mpool_mlog_read(log, &pos, block, sizeof(block), &len))
		;
	mpool_mlog_close(log);
}

static void object_read(struct mpool *mp, const struct mpool_obj_info *in)
{
	uint64_t len = in->length < sizeof(block) ? in->length : sizeof(block);
	struct iovec iov = { .iov_base = block, .iov_len = len / 4096 * 4096 };
	struct mpool_obj *obj;

	if (in->kind == MPOOL_MLOG) {
		log_read(mp, in->id);
	} else if (iov.iov_len && !mpool_obj_open(mp, in->id, &obj)) {
		mpool_read(obj, 0, &iov, 1);
		mpool_read(obj, (in->length - iov.iov_len) / 4096 * 4096, &iov, 1);
		mpool_obj_close(obj);
	}
}

static void container(struct mpool *mp, unsigned op)
{
	struct iovec iov = { .iov_base = block, .iov_len = 100 };
	struct mpool_mdc *mdc;
	uint64_t pos = 0;
	size_t len;

	if (mpool_mdc_open(mp, "container", &mdc))
		return;
	while (!mpool_mdc_read(mdc, &pos, block, sizeof(block), &len))
		;
	if (op & 1)
		mpool_mdc_append(mdc, &iov, 1, MPOOL_SYNC);
	if (op & 2 && !mpool_mdc_compact_begin(mdc))
		mpool_mdc_compact_end(mdc);
	mpool_mdc_close(mdc);
}

static void make(struct mpool *mp, unsigned op)
{
	struct mpool_alloc req = { .kind = 1 + op % 3, .mclass = op / 4 % 2,
				   .capacity = (1 + op) * 4096ull };
	struct iovec iov = { .iov_base = block, .iov_len = 4096 };
	struct mpool_op end = { .type = req.kind, .length = 4096 };
	struct mpool_obj *obj;
	uint64_t id;

	if (req.kind == MPOOL_MLOG) {
		if (!mpool_mlog_create(mp, req.mclass, req.capacity, 1, &id))
			log_read(mp, id);
		return;
	}
	if (mpool_alloc(mp, &req, 1, &obj))
		return;
	end.obj = obj;
	if (!mpool_write(obj, 0, &iov, 1))
		mpool_batch(mp, &end, 1);
	mpool_obj_close(obj);
}

static void change(struct mpool *mp, const struct mpool_obj_info *in, unsigned op)
{
	struct mpool_op del = { .type = MPOOL_OP_DELETE, .id = in->id };
	struct iovec iov = { .iov_base = block, .iov_len = 1 + op };
	struct mpool_mlog *log;

	if (in->kind != MPOOL_MLOG || op % 2) {
		mpool_batch(mp, &del, 1);
		return;
	}
	if (mpool_mlog_open(mp, in->id, &log))
		return;
	mpool_mlog_append(log, &iov, 1, MPOOL_SYNC);
	if (op & 2)
		mpool_mlog_erase(log);
	mpool_mlog_close(log);
}

static void work(struct mpool *mp, struct fz *f)
{
	static struct mpool_obj_info in[OBJS];
	int n = mpool_objects(mp, 0, 0, in, OBJS);

	for (int i = 0; i < n; i++)
		object_read(mp, &in[i]);
	container(mp, (unsigned)fz_num(f, 1));
	for (unsigned i = 0; f->n && i < OPS; i++) {
		unsigned op = (unsigned)fz_num(f, 1);

		if (op % 2 || n <= 0)
			make(mp, op / 2);
		else
			change(mp, &in[fz_num(f, 1) % (unsigned)n], op / 2);
	}
}

/* writes and flushes */
static void changes(void *arg, int kind, uint64_t bytes)
{
	(void)bytes;
	*(unsigned *)arg += kind == 1 || kind == 2;
}

static void open_and_work(struct fz *f)
{
	struct mpool_open_opts oo;
	bool is_multihost;
	uint32_t sum = 0;
	struct mpool *mp;
	unsigned n = 0;
	int rc;

	fi_begin(&image, f);
	golden_opts(&image.fi_sim, &oo, NULL);
	/* such an open claims the pool first, and leaves it as it was when it fails */
	is_multihost = fi_is_multihost(&image);
	if (is_multihost)
		sum = fi_sum(&image);
	image.fi_sim.s_tick = changes;
	image.fi_sim.s_tick_arg = &n;
	fz_heap_begin();
	rc = mpool_open(GOLDEN_POOL, &oo, &mp);
	fz_heap_end(image.fi_bytes, 0);
	image.fi_sim.s_tick = NULL;
	if (rc && (is_multihost ? sum != fi_sum(&image) : n))
		fz_bug("refused, and written to");
	if (!rc) {
		image.fi_opened++;
		work(mp, f);
		mpool_close(mp);
	}
	fi_end(&image);
}

static void inspect(struct fz *f)
{
	struct mpool_open_opts oo;

	fi_begin(&image, f);
	golden_opts(&image.fi_sim, &oo, NULL);
	image.fi_sim.s_is_frozen = true;
	image.fi_sim.s_bad_writes = 0;
	look(&oo);
	if (image.fi_sim.s_bad_writes)
		fz_bug("looked at, and written to");
	fi_end(&image);
}

const struct fz_target fz_targets[] = {
	{ "pool open", open_and_work }, { "pool inspect", inspect },
	{ .name = NULL },
};
