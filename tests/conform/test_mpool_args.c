/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Each check of an argument of libmpool, by a call in which nothing else is wrong: without the
 * check the call does something. tests/ablate.py refusals takes them away one by one.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "crash/sim.h"
#include "pool_help.h"

#define KIB64 65536u

/* refused as a caller's mistake, and with a reason; what below would refuse it too says another */
#define BAD(call) do {							\
	T_EQ(call, -EINVAL);						\
	T_OK(*mpool_error_detail()->text);				\
} while (0)

#define SAYS(words)	T_OK(strstr(mpool_error_detail()->text, words))

static void of_objects(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, KIB64, 0), *out[1];
	struct mpool_alloc good = { .kind = MPOOL_MBLOCK, .capacity = 4096 }, req = good;
	struct mpool_obj_info oi;
	uint64_t pos, len;
	char *buf = th_buf(KIB64, 6);
	/* together they have 4096 bytes, modulo 2^64 */
	struct iovec wrap[2] = { { buf, (size_t)1 << 63 }, { buf, ((size_t)1 << 63) + 4096 } };
	struct iovec v = { buf, 4096 }, many[65];
	int fd, i;

	for (i = 0; i < 65; i++)
		many[i] = v;
	BAD(mpool_alloc(NULL, &good, 1, out));
	BAD(mpool_alloc(mp, &good, 1, NULL));
	BAD(mpool_alloc(mp, NULL, 1, out));
	BAD(mpool_alloc(mp, &good, 0, out));
	SAYS("objects, wanted");
	BAD(mpool_alloc(mp, &good, MPOOL_BATCH_MAX + 1, out));
	SAYS("objects, wanted");
	req.mclass = MPOOL_MCLASSES;
	BAD(mpool_alloc(mp, &req, 1, out));
	SAYS("object 0: no media class");
	req = good;
	req.kind = MPOOL_MLOG;
	BAD(mpool_alloc(mp, &req, 1, out));
	req = good;
	req.flags = 0x40;
	BAD(mpool_alloc(mp, &req, 1, out));
	req = good;
	req.pad = 1;
	BAD(mpool_alloc(mp, &req, 1, out));
	req = good;
	req.capacity = 0;
	BAD(mpool_alloc(mp, &req, 1, out));
	SAYS("capacity is zero");

	BAD(mpool_obj_open(NULL, mpool_obj_id(obj), out));
	BAD(mpool_obj_open(mp, mpool_obj_id(obj), NULL));
	BAD(mpool_obj_info(NULL, &oi));
	BAD(mpool_obj_info(obj, NULL));
	BAD(mpool_objects(NULL, 0, 0, &oi, 1));
	BAD(mpool_objects(mp, 0, 0, NULL, 1));
	BAD(mpool_objects(mp, 0, 0, &oi, 0));
	BAD(mpool_obj_place(NULL, 0, &fd, &pos, &len));
	BAD(mpool_obj_place(obj, 0, NULL, &pos, &len));
	BAD(mpool_obj_place(obj, 0, &fd, NULL, &len));
	BAD(mpool_obj_place(obj, 0, &fd, &pos, NULL));
	BAD(mpool_obj_place(obj, KIB64, &fd, &pos, &len));
	T_EQ(mpool_obj_place(obj, 4096, &fd, &pos, &len), 0);
	T_OK(fd >= 0 && len == KIB64 - 4096 && pos % 4096 == 0);

	BAD(mpool_write(NULL, 0, &v, 1));
	BAD(mpool_write(obj, 0, NULL, 1));
	BAD(mpool_write(obj, 512, &v, 1));
	SAYS("not a multiple of");
	BAD(mpool_read(obj, 512, &v, 1));
	SAYS("not a multiple of");
	BAD(mpool_write(obj, KIB64, &v, 1));
	BAD(mpool_write(obj, 0, wrap, 2));
	BAD(mpool_read(obj, 0, wrap, 2));
	BAD(mpool_write(obj, 0, &v, 0));
	SAYS("buffers, wanted");
	BAD(mpool_write(obj, 0, many, 65));
	SAYS("buffers, wanted");
	v.iov_len = 0;
	BAD(mpool_write(obj, 0, &v, 1));
	SAYS("multiples of");
	v = (struct iovec){ buf + 512, 4096 };
	BAD(mpool_write(obj, 0, &v, 1));
	v = (struct iovec){ buf, 512 };
	BAD(mpool_write(obj, 0, &v, 1));
	BAD(mpool_read(obj, 0, &v, 1));
	T_EQ(th_write(obj, 0, buf, 4096), 0);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

static void of_batches(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, KIB64, 0);
	struct mpool_op good = { .type = MPOOL_OP_COMMIT, .obj = obj }, op = good;
	struct mpool_op *many = calloc(MPOOL_BATCH_MAX + 1, sizeof(*many));

	op = (struct mpool_op){ .type = MPOOL_OP_DELETE, .id = mpool_obj_id(obj) };
	BAD(mpool_batch(NULL, &op, 1));
	BAD(mpool_batch(mp, NULL, 1));
	BAD(mpool_batch(mp, &good, 0));
	BAD(mpool_batch(mp, many, MPOOL_BATCH_MAX + 1));
	SAYS("wanted 1 to");
	op.type = MPOOL_OP_COMMIT - 1;
	BAD(mpool_batch(mp, &op, 1));
	SAYS("unknown type");
	op.type = MPOOL_OP_DELETE + 1;
	BAD(mpool_batch(mp, &op, 1));
	SAYS("unknown type");
	op = good;
	op.flags = ~MPOOL_OBJ_HAS_CRC;
	BAD(mpool_batch(mp, &op, 1));
	op = good;
	op.obj = NULL;
	BAD(mpool_batch(mp, &op, 1));
	op.type = MPOOL_OP_DELETE;
	BAD(mpool_batch(mp, &op, 1));
	mpool_obj_close(obj);
	free(many);
	T_EQ(mpool_close(mp), 0);
}

static void of_queues(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, KIB64, 0);
	char *buf = th_buf(KIB64, 6);
	struct iovec wrap[2] = { { buf, (size_t)1 << 63 }, { buf, ((size_t)1 << 63) + 4096 } };
	struct iovec v = { buf, 4096 };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT, .obj = obj };
	struct mpool_io good = { .obj = obj, .type = MPOOL_WRITE, .iov = &v, .iovcnt = 1 }, io;
	struct mpool_cqe cqe[2];
	struct mpool_ioq *q;

	BAD(mpool_ioq_open(NULL, 4, &q));
	BAD(mpool_ioq_open(mp, 4, NULL));
	BAD(mpool_ioq_open(mp, 0, &q));
	BAD(mpool_ioq_open(mp, 4097, &q));
	T_EQ(mpool_ioq_open(mp, 4, &q), 0);

	BAD(mpool_ioq_submit(NULL, &good, 1));
	BAD(mpool_ioq_submit(q, NULL, 1));
	io = good;
	io.obj = NULL;
	BAD(mpool_ioq_submit(q, &io, 1));
	io.type = MPOOL_FLUSH;
	BAD(mpool_ioq_submit(q, &io, 1));
	io = good;
	io.type = MPOOL_BATCH + 1;
	BAD(mpool_ioq_submit(q, &io, 1));
	io = good;
	io.off = 512;
	BAD(mpool_ioq_submit(q, &io, 1));
	SAYS("not a multiple of");
	io = good;
	io.iov = wrap;
	io.iovcnt = 2;
	BAD(mpool_ioq_submit(q, &io, 1));
	io = (struct mpool_io){ .type = MPOOL_BATCH, .op = &op, .iovcnt = 1, .obj = obj };
	BAD(mpool_ioq_submit(q, &io, 1));
	io.obj = NULL;
	io.off = 4096;
	BAD(mpool_ioq_submit(q, &io, 1));

	BAD(mpool_ioq_register(NULL, &v, 1));
	BAD(mpool_ioq_register(q, NULL, 1));
	BAD(mpool_ioq_fd(NULL));
	T_EQ(mpool_ioq_submit(q, &good, 1), 1);
	BAD(mpool_ioq_reap(NULL, cqe, 2, 1, -1));
	BAD(mpool_ioq_reap(q, NULL, 2, 1, -1));
	BAD(mpool_ioq_reap(q, cqe, 0, 0, 0));
	BAD(mpool_ioq_reap(q, cqe, 1, 2, -1));
	T_EQ(mpool_ioq_reap(q, cqe, 2, 1, -1), 1);
	mpool_ioq_close(q);
	mpool_obj_close(obj);
	free(buf);
	T_EQ(mpool_close(mp), 0);
}

static void of_logs(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	char *buf = th_buf(2 * MIB, 6);
	struct iovec v[65], big[2] = { { buf, MIB / 2 + 1 }, { buf, MIB / 2 } };
	uint64_t id, pos = 0, used, capacity;
	struct mpool_mlog *log;
	size_t len;
	int i;

	for (i = 0; i < 65; i++)
		v[i] = (struct iovec){ buf, 8 };
	BAD(mpool_mlog_create(NULL, MPOOL_CAPACITY, MIB, 0, &id));
	BAD(mpool_mlog_create(mp, MPOOL_CAPACITY, MIB, 0, NULL));
	BAD(mpool_mlog_create(mp, MPOOL_MCLASSES, MIB, 0, &id));
	BAD(mpool_mlog_create(mp, MPOOL_CAPACITY, 0, 0, &id));
	T_EQ(mpool_mlog_create(mp, MPOOL_CAPACITY, 4 * MIB, 0, &id), 0);
	BAD(mpool_mlog_open(NULL, id, &log));
	BAD(mpool_mlog_open(mp, id, NULL));
	T_EQ(mpool_mlog_open(mp, id, &log), 0);

	BAD(mpool_mlog_append(NULL, v, 1, 0));
	BAD(mpool_mlog_append(log, NULL, 1, 0));
	BAD(mpool_mlog_append(log, v, 0, 0));
	BAD(mpool_mlog_append(log, v, 65, 0));
	BAD(mpool_mlog_append(log, v, 1, ~MPOOL_SYNC));
	BAD(mpool_mlog_append(log, big, 2, 0));
	SAYS("a record has 1 to");
	v[0].iov_len = 0;
	BAD(mpool_mlog_append(log, v, 1, 0));
	SAYS("a record has 1 to");
	v[0].iov_len = MIB + 1;
	BAD(mpool_mlog_append(log, v, 1, 0));
	v[0].iov_len = 8;
	/* all together have 16 bytes, modulo 2^64 */
	v[1].iov_len = (size_t)1 << 63;
	v[2].iov_len = ((size_t)1 << 63) + 8;
	BAD(mpool_mlog_append(log, v, 3, 0));
	SAYS("a record has 1 to");
	BAD(mpool_mlog_sync(NULL));
	T_EQ(mpool_mlog_append(log, v, 1, MPOOL_SYNC), 0);

	BAD(mpool_mlog_read(NULL, &pos, buf, 64, &len));
	BAD(mpool_mlog_read(log, NULL, buf, 64, &len));
	BAD(mpool_mlog_read(log, &pos, NULL, 64, &len));
	BAD(mpool_mlog_read(log, &pos, buf, 64, NULL));
	BAD(mpool_mlog_space(NULL, &used, &capacity));
	BAD(mpool_mlog_space(log, NULL, &capacity));
	BAD(mpool_mlog_space(log, &used, NULL));
	BAD(mpool_mlog_erase(NULL));
	BAD(mpool_mlog_seal(NULL));
	T_EQ(mpool_mlog_read(log, &pos, buf, 64, &len), 0);
	T_EQ(len, 8);
	mpool_mlog_close(log);
	free(buf);
	T_EQ(mpool_close(mp), 0);
}

static void of_containers(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	char *buf = th_buf(2 * MIB, 6);
	struct iovec v[64], big[2] = { { buf, MIB / 2 }, { buf, MIB / 2 } };
	uint64_t pos = 0, used, capacity;
	struct mpool_mdc *mdc;
	char name[33];
	size_t len;
	int i;

	for (i = 0; i < 64; i++)
		v[i] = (struct iovec){ buf, 8 };
	memset(name, 'n', 32);
	name[32] = 0;
	BAD(mpool_mdc_create(NULL, "a", MPOOL_CAPACITY, MIB, 0));
	BAD(mpool_mdc_create(mp, NULL, MPOOL_CAPACITY, MIB, 0));
	BAD(mpool_mdc_create(mp, "", MPOOL_CAPACITY, MIB, 0));
	SAYS("has 1 to 31 bytes");
	BAD(mpool_mdc_create(mp, name, MPOOL_CAPACITY, MIB, 0));
	SAYS("has 1 to 31 bytes");
	BAD(mpool_mdc_create(mp, "a", MPOOL_MCLASSES, MIB, 0));
	BAD(mpool_mdc_create(mp, "a", MPOOL_CAPACITY, 0, 0));
	T_EQ(mpool_mdc_create(mp, "a", MPOOL_CAPACITY, 4 * MIB, 0), 0);
	BAD(mpool_mdc_open(NULL, "a", &mdc));
	BAD(mpool_mdc_open(mp, NULL, &mdc));
	BAD(mpool_mdc_open(mp, "a", NULL));
	T_EQ(mpool_mdc_open(mp, "a", &mdc), 0);

	BAD(mpool_mdc_append(NULL, v, 1, 0));
	BAD(mpool_mdc_append(mdc, NULL, 1, 0));
	BAD(mpool_mdc_append(mdc, v, 0, 0));
	BAD(mpool_mdc_append(mdc, v, 64, 0));
	BAD(mpool_mdc_append(mdc, v, 1, ~MPOOL_SYNC));
	BAD(mpool_mdc_append(mdc, big, 2, 0));
	SAYS("a container record");
	v[0].iov_len = 0;
	BAD(mpool_mdc_append(mdc, v, 1, 0));
	v[0].iov_len = 8;
	v[1].iov_len = (size_t)1 << 63;
	v[2].iov_len = ((size_t)1 << 63) + 8;
	BAD(mpool_mdc_append(mdc, v, 3, 0));
	T_EQ(mpool_mdc_append(mdc, v, 1, MPOOL_SYNC), 0);

	BAD(mpool_mdc_read(NULL, &pos, buf, 64, &len));
	BAD(mpool_mdc_read(mdc, NULL, buf, 64, &len));
	BAD(mpool_mdc_read(mdc, &pos, NULL, 64, &len));
	BAD(mpool_mdc_read(mdc, &pos, buf, 64, NULL));
	BAD(mpool_mdc_space(NULL, &used, &capacity));
	BAD(mpool_mdc_space(mdc, NULL, &capacity));
	BAD(mpool_mdc_space(mdc, &used, NULL));
	BAD(mpool_mdc_reserve(NULL, 0, 0, &used));
	BAD(mpool_mdc_reserve(mdc, 0, 0, NULL));
	BAD(mpool_mdc_compact_begin(NULL));
	BAD(mpool_mdc_compact_abort(NULL));
	BAD(mpool_mdc_compact_end(NULL));
	T_EQ(mpool_mdc_read(mdc, &pos, buf, 64, &len), 0);
	T_EQ(len, 8);
	mpool_mdc_close(mdc);
	BAD(mpool_mdc_delete(NULL, "a"));
	T_EQ(mpool_mdc_delete(mp, "a"), 0);
	free(buf);
	T_EQ(mpool_close(mp), 0);
}

static void of_pools(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_dev_info di;
	struct mpool_info in;
	uint8_t id[16] = "client";

	BAD(mpool_info(NULL, &in));
	BAD(mpool_info(mp, NULL));
	BAD(mpool_dev_info(NULL, 0, &di));
	BAD(mpool_dev_info(mp, 0, NULL));
	BAD(mpool_flush(NULL, 1));
	BAD(mpool_flush(mp, 0));
	BAD(mpool_flush(mp, 1u << MPOOL_MCLASSES | 1));
	BAD(mpool_flush(mp, 8));
	BAD(mpool_lease(NULL, id));
	BAD(mpool_lease(mp, NULL));
	BAD(mpool_unlease(NULL, id));
	BAD(mpool_unlease(mp, NULL));
	BAD(mpool_hold(NULL, 1));
	BAD(mpool_hold(mp, 0 - (1ull << 62)));	/* the place of the data, modulo 2^64 */
	BAD(mpool_unhold(NULL, 1));
	BAD(mpool_close(NULL));
	T_EQ(mpool_close(mp), 0);
}

static void of_opens(void)
{
	struct mpool_open_opts good = MPOOL_OPEN_OPTS_INIT, o = good;
	struct mpool *mp;

	th_fresh();
	T_EQ(th_create_at(th_pool, 64 * MIB, 32 * MIB), 0);
	BAD(mpool_open(NULL, NULL, &mp));
	BAD(mpool_open("", NULL, &mp));
	SAYS("is empty");
	BAD(mpool_open(".", NULL, &mp));
	SAYS("./.");
	BAD(mpool_open(th_pool, NULL, NULL));
	o.size--;
	BAD(mpool_open(th_pool, &o, &mp));
	o = good;
	o.flags = 1u << 31;
	BAD(mpool_open(th_pool, &o, &mp));
	o.flags = MPOOL_OPEN_SHARED; /* of readers */
	BAD(mpool_open(th_pool, &o, &mp));
	o = good;
	o.io = "magic";
	BAD(mpool_open(th_pool, &o, &mp));
	o = good;
	o.dev = "capacity:speed=3";
	T_EQ(mpool_open(th_pool, &o, &mp), th_is_kmod() ? -EOPNOTSUPP : -EINVAL);
	SAYS("speed=3");
	o.dev = "all:lat=1ms";
	T_EQ(mpool_open("no-such-pool", &o, &mp), -EOPNOTSUPP);
	SAYS("device layers");
	o.dev = NULL;
	o.provider = (struct mpool_dev_provider *)&o;
	T_EQ(mpool_open("no-such-pool", &o, &mp), -EOPNOTSUPP);
	SAYS("no provider");
	T_EQ(mpool_open(th_pool, &good, &mp), 0);
	T_EQ(mpool_close(mp), 0);
}

static void of_creations(void)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 16 * MIB };
	struct mpool_create_opts good = MPOOL_CREATE_OPTS_INIT, o;
	struct stat st;

	th_fresh();
	dev.path = th_dev_make(MPOOL_CAPACITY, 16 * MIB);
	good.devs = &dev;
	good.ndevs = 1;
	good.flags = MPOOL_CREATE_PLAN;
	T_EQ(mpool_create(th_pool, &good), 0);
	BAD(mpool_create(NULL, &good));
	BAD(mpool_create(th_pool, NULL));
	o = good;
	o.size--;
	BAD(mpool_create(th_pool, &o));
	o = good;
	o.flags |= 1u << 31;
	BAD(mpool_create(th_pool, &o));
	o.flags = good.flags | MPOOL_CREATE_MULTIHOST | MPOOL_CREATE_ONE_HOST;
	BAD(mpool_create(th_pool, &o));
	o = good;
	o.devs = NULL;
	BAD(mpool_create(th_pool, &o));
	o = good;
	o.ndevs = 0;
	BAD(mpool_create(th_pool, &o));
	SAYS("no member device");
	o = good;
	o.name = "-bad";
	BAD(mpool_create(th_pool, &o));
	o.name = "0123456789012345678901234567890123456789";
	BAD(mpool_create(th_pool, &o));
	o = good;
	o.mode = 01777; /* as mpool_set(), and the module, refuse it */
	if (!th_is_kmod())
		BAD(mpool_create(th_pool, &o));
	good.flags = 0;
	dev.mclass = MPOOL_STAGING;	/* none of capacity */
	BAD(mpool_create(th_pool, &good));
	dev.mclass = 7;
	BAD(mpool_create(th_pool, &good));
	dev.mclass = MPOOL_CAPACITY;
	dev.size = 4096; /* the module uses whole devices */
	T_EQ(mpool_create(th_pool, &good), th_is_kmod() ? -EOPNOTSUPP : -EINVAL);
	T_OK(stat(th_pool, &st) && errno == ENOENT);
}

/* @o is refused for @words; nothing is made */
static void refused(const struct mpool_create_opts *o, const char *words)
{
	struct stat st;

	BAD(mpool_create(th_pool, o));
	if (!strstr(mpool_error_detail()->text, words))
		T_FAIL("'%s' is not in: %s", words, mpool_error_detail()->text);
	T_OK(stat(th_pool, &st) && errno == ENOENT);
}

/* of a pool of files */
static void of_new_files(void)
{
	static char path[6000], note[600], fifo[600];
	static struct mpool_dev_spec dev[129];
	struct mpool_create_opts good = MPOOL_CREATE_OPTS_INIT, o;
	unsigned i;

	th_fresh();
	for (i = 0; i < 129; i++)
		dev[i] = (struct mpool_dev_spec){ .mclass = MPOOL_CAPACITY, .size = 16 * MIB };
	good.devs = dev;
	good.ndevs = 1;
	o = good;
	o.name = "0123456789012345678901234567890-";
	refused(&o, "longer than");
	o = good;
	o.label = "0123456789012345678901234567890123456789012345678901234567890123456789";
	refused(&o, "label is longer");
	o.label = "a\x01";
	refused(&o, "control character");
	o.label = "a\x7f";
	refused(&o, "control character");
	o = good;
	o.mode = 01000;
	refused(&o, "not in 0 .. 0777");
	o = good;
	o.spare_pct[1] = 91;
	o.flags = MPOOL_CREATE_PLAN;
	refused(&o, "spare of 91");
	o = good;
	o.ndevs = 65;
	refused(&o, "more than 64");
	o.ndevs = 129;
	refused(&o, "more than 128");
	o = good;
	dev[0].mclass = MPOOL_MCLASSES;
	refused(&o, "no media class");
	dev[0].mclass = MPOOL_STAGING;
	refused(&o, "of class capacity");
	dev[0].mclass = MPOOL_CAPACITY;
	dev[0].size = 1ull << 63;
	refused(&o, "no file has");
	dev[0].size = 4096;
	refused(&o, "below the smallest");
	dev[0].size = 16 * MIB;
	snprintf(fifo, sizeof(fifo), "%s/fifo", th_dir);
	T_EQ(mkfifo(fifo, 0600), 0);
	dev[0].path = fifo;
	refused(&o, "fifo is neither a file");
	snprintf(note, sizeof(note), "%s/pool.json", th_pool);
	dev[0].path = note;
	refused(&o, "notes its members");
	/* names of one place that the kernel does not take */
	i = (unsigned)snprintf(path, sizeof(path), "%s/", th_dir);
	while (i < 5000)
		i += (unsigned)snprintf(path + i, sizeof(path) - i, "./");
	strcpy(path + i, "file");
	dev[0].path = path;
	T_EQ(mpool_create(th_pool, &o), -ENAMETOOLONG);
}

static void of_more_files(void)
{
	static struct mpool_dev_spec dev[129];
	struct mpool_open_opts with_sim = MPOOL_OPEN_OPTS_INIT;
	static struct sim sim;

	th_fresh();
	T_EQ(th_create_at(th_pool, 64 * MIB, 0), 0);
	for (unsigned i = 0; i < 129; i++)
		dev[i] = (struct mpool_dev_spec){ .path = "/nonexistent/file", .size = 16 * MIB };
	BAD(mpool_add(th_pool, NULL, dev, 128, 0));
	SAYS("129 devices are more than 128");
	BAD(mpool_add(th_pool, NULL, dev, 129, 0));
	SAYS("129 devices are more than 128");
	BAD(mpool_grow(th_pool, NULL, 128 * MIB, MPOOL_STAGING));
	SAYS("no device of class staging");
	sim_init(&sim);
	with_sim.provider = &sim.s_prov;
	BAD(mpool_grow(th_pool, &with_sim, 128 * MIB, MPOOL_CAPACITY));
	SAYS("the provider's");
	sim_fini(&sim);
}

/* of members that are the caller's own */
static void of_a_provider(void)
{
	struct mpool_dev_spec dev = { .path = "a", .size = 16 * MIB };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	static struct sim sim;
	struct mpool_obj *obj;
	struct mpool *mp;
	uint64_t pos, len;
	int fd;

	sim_init(&sim);
	co.devs = &dev;
	co.ndevs = 1;
	co.provider = o.provider = &sim.s_prov;
	T_EQ(mpool_create("/simulated", &co), 0);
	o.io = "uring";
	T_EQ(mpool_open("/simulated", &o, &mp), -EOPNOTSUPP);
	SAYS("io_uring");
	o.io = NULL;
	T_EQ(mpool_open("/simulated", &o, &mp), 0);
	obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, KIB64, 0);
	T_EQ(mpool_obj_place(obj, 0, &fd, &pos, &len), -EOPNOTSUPP);
	SAYS("no file descriptor");
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	sim_fini(&sim);
}

/* ---- a queue of another thread ---- */

static struct mpool_ioq *queue;
static struct mpool_io queued;

static void *other_thread(void *arg)
{
	struct mpool_cqe cqe;

	(void)arg;
	queued.off = 4096;
	T_EQ(mpool_ioq_submit(queue, &queued, 1), 1);
	T_EQ(mpool_ioq_reap(queue, &cqe, 1, 1, -1), 1);
	T_EQ(cqe.res, -EINVAL);
	BAD(mpool_ioq_reap(queue, &cqe, 1, 1, -1));
	return NULL;
}

static void of_threads(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool_cqe cqe;
	struct mpool *mp;
	pthread_t t;
	char *buf = th_buf(4096, 6);
	struct iovec v = { buf, 4096 };

	th_fresh();
	T_EQ(th_create_at(th_pool, 64 * MIB, 0), 0);
	o.io = "uring";
	if (mpool_open(th_pool, &o, &mp)) {
		printf("# io_uring is not available here: %s\n", mpool_error_detail()->text);
		free(buf);
		return;
	}
	queued = (struct mpool_io){ .type = MPOOL_WRITE, .iov = &v, .iovcnt = 1 };
	queued.obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, KIB64, 0);
	T_EQ(mpool_ioq_open(mp, 4, &queue), 0);
	T_EQ(mpool_ioq_submit(queue, &queued, 1), 1);
	T_EQ(pthread_create(&t, NULL, other_thread, NULL), 0);
	T_EQ(pthread_join(t, NULL), 0);
	T_EQ(mpool_ioq_reap(queue, &cqe, 1, 1, -1), 1);
	T_EQ(cqe.res, 4096);
	mpool_ioq_close(queue);
	mpool_obj_close(queued.obj);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

static void nothing(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static void no_extent(void *arg, const struct mpool_extent *e)
{
	(void)arg;
	(void)e;
}

static void of_looks(void)
{
	struct mpool_probe pb;
	uint64_t damage;

	th_fresh();
	T_EQ(th_create_at(th_pool, 64 * MIB, 32 * MIB), 0);
	BAD(mpool_verify(NULL, NULL, 0, NULL, NULL, &damage));
	BAD(mpool_verify(th_pool, NULL, ~MPOOL_VERIFY_DATA, NULL, NULL, &damage));
	BAD(mpool_verify(th_pool, NULL, 0, NULL, NULL, NULL));
	T_EQ(mpool_verify(th_pool, NULL, 0, NULL, NULL, &damage), 0);
	BAD(mpool_dump(th_pool, NULL, NULL, NULL));
	T_EQ(mpool_dump(th_pool, NULL, nothing, NULL), 0);
	BAD(mpool_map(th_pool, NULL, NULL, NULL));
	T_EQ(mpool_map(th_pool, NULL, no_extent, NULL), 0);
	BAD(mpool_probe(NULL, &pb));
	BAD(mpool_probe(th_pool, NULL));
}

static void of_changes(void)
{
	struct mpool_set_opts good = MPOOL_SET_OPTS_INIT, s;
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = 16 * MIB };
	char label[MPOOL_LABEL_MAX + 2];

	th_fresh();
	T_EQ(th_create_at(th_pool, 64 * MIB, 32 * MIB), 0);
	dev.path = th_dev_make(MPOOL_CAPACITY, 16 * MIB);
	memset(label, 'l', sizeof(label) - 1);
	label[sizeof(label) - 1] = 0;
	good.mask = MPOOL_SET_LABEL;
	good.label = "";
	o.flags = MPOOL_OPEN_RDONLY;
	BAD(mpool_set(NULL, NULL, &good));
	BAD(mpool_set(th_pool, &o, &good));
	SAYS("for writing");
	BAD(mpool_set(th_pool, NULL, NULL));
	s = good;
	s.size--;
	BAD(mpool_set(th_pool, NULL, &s));
	s = good;
	s.mask = 0;
	BAD(mpool_set(th_pool, NULL, &s));
	SAYS("unknown properties");
	s.mask = MPOOL_SET_LABEL | 1u << 31;
	BAD(mpool_set(th_pool, NULL, &s));
	SAYS("unknown properties");
	s = good;
	s.label = NULL;
	BAD(mpool_set(th_pool, NULL, &s));
	s.label = label;
	BAD(mpool_set(th_pool, NULL, &s));
	s = good;
	s.mask = MPOOL_SET_OWNER;
	s.mode = 01000;
	BAD(mpool_set(th_pool, NULL, &s));
	SAYS("not in 0 .. 0777");
	T_EQ(mpool_set(th_pool, NULL, &good), 0);

	BAD(mpool_rename(th_pool, NULL, NULL));
	BAD(mpool_rename(th_pool, &o, "new"));
	BAD(mpool_add(th_pool, NULL, NULL, 1, MPOOL_CREATE_PLAN));
	SAYS("no device was given");
	BAD(mpool_add(th_pool, NULL, &dev, 0, MPOOL_CREATE_PLAN));
	SAYS("no device was given");
	BAD(mpool_add(th_pool, NULL, &dev, 1, MPOOL_CREATE_PLAN | 1u << 31));
	SAYS("unknown flags");
	BAD(mpool_add(th_pool, &o, &dev, 1, MPOOL_CREATE_PLAN));
	BAD(mpool_grow(th_pool, NULL, 128 * MIB, MPOOL_MCLASSES));
	SAYS("no media class");
	BAD(mpool_grow(th_pool, &o, 128 * MIB, MPOOL_CAPACITY));
}

static void of_activations(void)
{
	char name[MPOOL_NAME_MAX + 2];
	const char *dev[1] = { "/nonexistent" };
	struct mpool_active a;

	BAD(mpool_activate(NULL, 1, 0, name));
	BAD(mpool_activate(dev, 0, 0, name));
	BAD(mpool_activate(dev, 1, 0, NULL));
	BAD(mpool_activate(dev, 1, ~(MPOOL_ACTIVATE_RDONLY | MPOOL_ACTIVATE_TRUST), name));
	BAD(mpool_deactivate(NULL));
	BAD(mpool_deactivate("-x"));
	BAD(mpool_active_next(NULL, &a));
	BAD(mpool_active_next("", NULL));
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	BAD(mpool_active_next(name, &a));
}

/* which module's pool it is its path tells; files have members to read */
static void of_members(void)
{
	char path[600];
	struct mpool_probe pb;

	th_fresh();
	T_EQ(th_create_at(th_pool, 64 * MIB, 0), 0);
	snprintf(path, sizeof(path), "%s/capacity.mp", th_pool);
	BAD(mpool_recover(NULL, MPOOL_RECOVER_PLAN, &pb));
	BAD(mpool_recover("", MPOOL_RECOVER_PLAN, &pb));
	BAD(mpool_recover(path, MPOOL_RECOVER_PLAN | 1u << 31, &pb));
	T_EQ(mpool_recover(path, MPOOL_RECOVER_PLAN, &pb), -EEXIST); /* it is whole */
}

static void of_another_pool(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL), *two = NULL;
	struct mpool_op op = { .type = MPOOL_OP_DELETE };
	char path[600], *buf = th_buf(4096, 6);
	struct iovec v = { buf, 4096 };
	struct mpool_io io = { .type = MPOOL_WRITE, .iov = &v, .iovcnt = 1 };
	struct mpool_ioq *q;

	snprintf(path, sizeof(path), "%s-two", th_pool);
	T_EQ(th_create_at(path, 64 * MIB, 32 * MIB), 0);
	T_EQ(mpool_open(path, NULL, &two), 0);
	io.obj = op.obj = th_alloc(two, MPOOL_MBLOCK, MPOOL_CAPACITY, KIB64, 0);
	BAD(mpool_batch(mp, &op, 1));
	SAYS("of another pool");
	T_EQ(mpool_ioq_open(mp, 4, &q), 0);
	BAD(mpool_ioq_submit(q, &io, 1));
	SAYS("of this pool");
	mpool_ioq_close(q);
	mpool_obj_close(op.obj);
	T_EQ(mpool_close(two), 0);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

int main(void)
{
	unsetenv("MPOOL_DEV");
	T_RUN(of_objects);
	T_RUN(of_batches);
	T_RUN(of_queues);
	T_RUN(of_logs);
	T_RUN(of_containers);
	T_RUN(of_pools);
	T_RUN(of_opens);
	T_RUN(of_creations);
	T_RUN(of_looks);
	T_RUN(of_changes);
	T_RUN(of_activations);
	TH_RUN_FILES(of_new_files);
	TH_RUN_FILES(of_more_files);
	TH_RUN_FILES(of_a_provider);
	TH_RUN_FILES(of_threads);
	TH_RUN_FILES(of_members);
	TH_RUN_FILES(of_another_pool);
	th_clean();
	return t_done();
}
