/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Conformance of objects, batches and I/O queues: every function, every
 * documented error that can be provoked from outside, on both I/O back ends.
 */
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

#include "pool_help.h"

#define KIB64	(64u << 10)

static const char *io; /* back end of the run */

static void mblock_round_trip_survives_reopen(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_STAGING, 200000, 77);
	void *buf = th_buf(KIB64, 1), *back = th_buf(KIB64, 2);
	struct mpool_obj_info oi;
	struct mpool_op op = { .type = MPOOL_OP_COMMIT, .obj = obj, .length = 2 * KIB64,
			       .flags = MPOOL_OBJ_HAS_CRC };
	uint64_t id = mpool_obj_id(obj), damage = 9;

	T_EQ(mpool_obj_info(obj, &oi), 0);
	T_EQ(oi.capacity, 200704);
	T_EQ(oi.flags & MPOOL_OBJ_COMMITTED, 0);
	T_EQ(th_write(obj, 0, buf, KIB64), 0);
	T_EQ(th_write(obj, KIB64, buf, KIB64), 0);
	op.crc = mpool_crc32c(mpool_crc32c(0, buf, KIB64), buf, KIB64);
	T_EQ(mpool_batch(mp, &op, 1), 0);
	T_EQ(th_write(obj, 2 * KIB64, buf, 4096), -EINVAL);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	T_EQ(mpool_verify(th_pool, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	mp = th_open_with(io, NULL);
	T_EQ(mpool_obj_open(mp, id, &obj), 0);
	T_EQ(mpool_obj_info(obj, &oi), 0);
	T_EQ(oi.tag, 77);
	T_EQ(oi.length, 2 * KIB64);
	T_EQ(oi.mclass, MPOOL_STAGING);
	T_EQ(oi.flags, MPOOL_OBJ_COMMITTED | MPOOL_OBJ_HAS_CRC);
	T_EQ(oi.crc, op.crc);
	T_EQ(th_read(obj, KIB64, back, KIB64), 0);
	T_MEMEQ(buf, back, KIB64);
	T_OK(th_read(obj, 2 * KIB64, back, KIB64) < 0);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	free(buf);
	free(back);
}

static void uncommitted_mblock_is_gone_and_its_space_free(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, MIB, 0), *two;
	struct mpool_info in;
	uint64_t id = mpool_obj_id(obj);

	T_EQ(mpool_info(mp, &in), 0);
	T_EQ(in.cls[MPOOL_CAPACITY].used, MIB);
	T_EQ(mpool_obj_open(mp, id, &two), -ENOENT);
	T_OK(mpool_obj_get(obj) == obj);
	mpool_obj_close(obj);
	T_EQ(mpool_info(mp, &in), 0);
	T_EQ(in.cls[MPOOL_CAPACITY].used, MIB);
	mpool_obj_close(obj);
	mpool_obj_close(NULL);
	T_EQ(mpool_info(mp, &in), 0);
	T_EQ(in.cls[MPOOL_CAPACITY].used, 0);
	T_EQ(mpool_close(mp), 0);
}

static void append_object_grows_and_seals(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, MIB, 3);
	void *buf = th_buf(KIB64, 3), *back = th_buf(KIB64, 4);
	struct mpool_obj_info oi;
	uint64_t id = mpool_obj_id(obj);

	T_EQ(th_write(obj, 0, buf, KIB64), 0);
	T_EQ(th_write(obj, KIB64, buf, 4096), 0);
	T_EQ(th_write(obj, 0, buf, 4096), -EINVAL);	/* rewriting */
	T_EQ(th_write(obj, 3 * KIB64, buf, 4096), -EINVAL); /* a gap */
	T_EQ(mpool_obj_info(obj, &oi), 0);
	T_EQ(oi.length, KIB64 + 4096);
	T_EQ(mpool_flush(mp, 1u << MPOOL_CAPACITY), 0);
	T_EQ(th_op(mp, MPOOL_OP_COMMIT, obj, 0, KIB64), -EINVAL);
	T_EQ(th_op(mp, MPOOL_OP_SEAL, obj, 0, 2 * MIB), -EINVAL);
	T_EQ(th_op(mp, MPOOL_OP_SEAL, obj, 0, 100), -EINVAL);
	T_EQ(th_op(mp, MPOOL_OP_SEAL, obj, 0, KIB64), 0);
	T_EQ(th_write(obj, KIB64 + 4096, buf, 4096), -EINVAL);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	mp = th_open_with(io, NULL);
	T_EQ(mpool_obj_open(mp, id, &obj), 0);
	T_EQ(mpool_obj_info(obj, &oi), 0);
	T_EQ(oi.length, KIB64);
	T_OK(oi.flags & MPOOL_OBJ_SEALED);
	T_EQ(th_read(obj, 0, back, KIB64), 0);
	T_MEMEQ(buf, back, KIB64);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	free(buf);
	free(back);
}

static void batch_is_all_or_none(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	struct mpool_obj *a = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, KIB64, 0);
	struct mpool_obj *b = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, KIB64, 0), *two;
	void *buf = th_buf(KIB64, 5);
	struct mpool_obj_info oi[4];
	struct mpool_op op[3] = {
		{ .type = MPOOL_OP_COMMIT, .obj = a, .length = KIB64 },
		{ .type = MPOOL_OP_SEAL, .obj = b, .length = 0 },
		{ .type = MPOOL_OP_DELETE, .id = 123456789 },
	};

	T_EQ(th_write(a, 0, buf, KIB64), 0);
	T_EQ(mpool_batch(mp, op, 3), -ENOENT);
	T_EQ(mpool_obj_info(a, &oi[0]), 0);
	T_EQ(oi[0].flags & MPOOL_OBJ_COMMITTED, 0);
	T_EQ(mpool_batch(mp, op, 2), 0);
	T_EQ(mpool_objects(mp, 0, 0, oi, 4), 2);
	T_OK(oi[0].id < oi[1].id);
	T_EQ(mpool_objects(mp, oi[1].id, 0, oi, 4), 0);
	T_EQ(th_op(mp, MPOOL_OP_DELETE, a, 0, 0), 0);
	T_EQ(th_op(mp, MPOOL_OP_DELETE, NULL, mpool_obj_id(b), 0), 0);
	T_EQ(mpool_obj_open(mp, mpool_obj_id(a), &two), -ENOENT);
	T_EQ(th_read(a, 0, buf, 4096), 0); /* its space is not reused while held */
	T_EQ(mpool_obj_info(a, &oi[0]), 0);
	T_OK(oi[0].flags & MPOOL_OBJ_DELETED);
	mpool_obj_close(a);
	mpool_obj_close(b);
	T_EQ(mpool_objects(mp, 0, 0, oi, 4), 0);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

static void full_class_is_enospc_and_any_takes_another(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_STAGING,
				   .capacity = 4 * MIB };
	struct mpool_obj *obj[64], *other;
	struct mpool_obj_info oi;
	int n = 0, rc;

	while (!(rc = mpool_alloc(mp, &req, 1, &obj[n])) && n < 63)
		n++;
	T_EQ(rc, -ENOSPC);
	T_OK(n >= 5 && n <= 8);
	req.flags = MPOOL_ALLOC_ANY;
	T_EQ(mpool_alloc(mp, &req, 1, &other), 0);
	T_EQ(mpool_obj_info(other, &oi), 0);
	T_EQ(oi.mclass, MPOOL_CAPACITY);
	mpool_obj_close(other);
	while (n)
		mpool_obj_close(obj[--n]);
	req.flags = 0;
	T_EQ(mpool_alloc(mp, &req, 1, &other), 0);
	mpool_obj_close(other);
	T_EQ(mpool_close(mp), 0);
}

static void queue_moves_many_requests(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, 4 * MIB, 0);
	char *buf = th_buf(4 * MIB, 7), *back = th_buf(4 * MIB, 8);
	struct mpool_cqe cqe[16];
	struct mpool_ioq *q;
	struct iovec v[64], reg = { .iov_base = back, .iov_len = 4 * MIB };
	unsigned i, done = 0, sent = 0;
	int n, k;

	T_EQ(mpool_ioq_open(mp, 8, &q), 0);
	while (done < 64) {
		struct mpool_io one;

		while (sent < 64) {
			v[sent].iov_base = buf + sent * KIB64;
			v[sent].iov_len = KIB64;
			one = (struct mpool_io){ .obj = obj, .type = MPOOL_WRITE, .iovcnt = 1,
						 .off = sent * KIB64, .iov = &v[sent],
						 .cookie = sent };
			n = mpool_ioq_submit(q, &one, 1);
			T_OK(n >= 0);
			if (!n)
				break;
			sent++;
		}
		n = mpool_ioq_reap(q, cqe, 16, 1, -1);
		T_OK(n > 0);
		for (k = 0; k < n; k++)
			T_EQ(cqe[k].res, KIB64);
		done += (unsigned)n;
	}
	T_EQ(mpool_ioq_register(q, &reg, 1), 0);
	for (i = 0, done = 0; i < 64; i += 8) {
		struct mpool_io io8[8];

		for (k = 0; k < 8; k++) {
			v[k].iov_base = back + (i + (unsigned)k) * KIB64;
			io8[k] = (struct mpool_io){ .obj = obj, .type = MPOOL_READ, .iovcnt = 1,
						    .off = (i + (unsigned)k) * KIB64,
						    .iov = &v[k], .cookie = 100 + (unsigned)k };
		}
		T_EQ(mpool_ioq_submit(q, io8, 8), 8);
		T_EQ(mpool_ioq_submit(q, io8, 1), 0); /* depth reached */
		T_EQ(mpool_ioq_reap(q, cqe, 16, 8, -1), 8);
		for (k = 0; k < 8; k++)
			T_EQ(cqe[k].res, KIB64);
	}
	T_MEMEQ(buf, back, 4 * MIB);
	T_EQ(mpool_ioq_reap(q, cqe, 16, 1, 0), 0);
	mpool_ioq_close(q);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	free(buf);
	free(back);
}

static void queue_flush_errors_and_event_fd(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, MIB, 0);
	char *buf = th_buf(KIB64, 9);
	struct iovec v[2] = { { buf, 4096 }, { buf + 8192, 4096 } };
	struct mpool_io r = { .obj = obj, .type = MPOOL_WRITE, .iovcnt = 2, .iov = v, .cookie = 1 };
	struct mpool_cqe cqe[4];
	struct mpool_ioq *q;
	struct pollfd p = { .events = POLLIN };

	T_EQ(mpool_ioq_open(mp, 0, &q), -EINVAL);
	T_EQ(mpool_ioq_open(mp, 5000, &q), -EINVAL);
	T_EQ(mpool_ioq_open(mp, 4, &q), 0);
	p.fd = mpool_ioq_fd(q);
	T_OK(p.fd >= 0);
	T_EQ(poll(&p, 1, 0), 0);
	T_EQ(mpool_ioq_submit(q, &r, 1), 1);
	T_EQ(poll(&p, 1, 5000), 1);
	T_EQ(mpool_ioq_reap(q, cqe, 4, 1, -1), 1);
	T_EQ(cqe[0].cookie, 1);
	T_EQ(cqe[0].res, 8192);
	T_EQ(mpool_ioq_reap(q, cqe, 4, 0, 0), 0);
	T_EQ(poll(&p, 1, 0), 0);
	r.type = MPOOL_FLUSH;
	r.cookie = 2;
	T_EQ(mpool_ioq_submit(q, &r, 1), 1);
	T_EQ(poll(&p, 1, 1000), 1);
	T_EQ(mpool_ioq_reap(q, cqe, 4, 1, -1), 1);
	T_EQ(cqe[0].cookie, 2);
	T_EQ(cqe[0].res, 0);
	r.type = MPOOL_WRITE;
	r.off = 0; /* rewriting */
	T_EQ(mpool_ioq_submit(q, &r, 1), -EINVAL);
	r.type = 7;
	T_EQ(mpool_ioq_submit(q, &r, 1), -EINVAL);
	r.type = MPOOL_READ;
	r.off = 5;
	T_EQ(mpool_ioq_submit(q, &r, 1), -EINVAL);
	r.off = 2 * MIB;
	T_EQ(mpool_ioq_submit(q, &r, 1), -EINVAL);
	r.off = 0;
	r.obj = NULL;
	T_EQ(mpool_ioq_submit(q, &r, 1), -EINVAL);
	T_EQ(mpool_ioq_reap(q, cqe, 0, 0, 0), -EINVAL);
	mpool_ioq_close(q);
	mpool_ioq_close(NULL);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

/*
 * Two completions of which one is there when its request is handed over (its address cannot
 * be written to) and the other is not yet collected: the descriptor stays readable until
 * both were reaped.
 */
static void event_fd_tells_of_every_completion(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, MIB, 0);
	void *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *buf = th_buf(4096, 9);
	struct iovec v = { buf, 4096 }, bad = { none, 4096 };
	struct mpool_io w = { .obj = obj, .type = MPOOL_WRITE, .iovcnt = 1, .iov = &v };
	struct mpool_io r = { .obj = obj, .type = MPOOL_READ, .iovcnt = 1, .iov = &v, .cookie = 1 };
	struct mpool_io e = { .obj = obj, .type = MPOOL_READ, .iovcnt = 1, .iov = &bad,
			      .cookie = 2 };
	struct pollfd p = { .events = POLLIN };
	struct mpool_cqe cqe[4];
	struct mpool_ioq *q;
	unsigned turn, seen;
	int i, n;

	T_OK(none != MAP_FAILED);
	T_EQ(mpool_ioq_open(mp, 4, &q), 0);
	p.fd = mpool_ioq_fd(q);
	T_OK(p.fd >= 0);
	T_EQ(mpool_ioq_submit(q, &w, 1), 1);
	T_EQ(mpool_ioq_reap(q, cqe, 4, 1, -1), 1);
	T_EQ(cqe[0].res, 4096);
	for (turn = 0; turn < 8; turn++) {
		unsigned min = turn & 1;

		seen = 0;
		T_EQ(mpool_ioq_submit(q, &r, 1), 1);
		T_EQ(poll(&p, 1, 5000), 1);	/* the read is done and not collected */
		T_EQ(mpool_ioq_submit(q, &e, 1), 1);
		while (seen != 6) {
			T_EQ(poll(&p, 1, 5000), 1);
			n = mpool_ioq_reap(q, cqe, 1, min, 1000000000);
			T_OK(n >= 0);
			for (i = 0; i < n; i++) {
				seen |= 1u << cqe[i].cookie;
				T_EQ(cqe[i].res < 0, cqe[i].cookie == 2);
			}
		}
		T_EQ(mpool_ioq_reap(q, cqe, 4, 0, 0), 0);
		T_EQ(poll(&p, 1, 0), 0);
	}
	mpool_ioq_close(q);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	munmap(none, 4096);
	free(buf);
}

/* batches beside flushes in one queue: several in flight, each all or none */
static void queue_carries_batches(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	void *buf = th_buf(KIB64, 12);
	struct iovec v = { .iov_base = buf, .iov_len = KIB64 };
	struct mpool_obj *obj[8];
	struct mpool_op op[8];
	struct mpool_io r[5];
	struct mpool_cqe cqe[8];
	struct mpool_obj_info oi[8];
	struct mpool_ioq *q;
	int64_t res[6] = { 1, 1, 1, 1, 1, 1 };
	unsigned i;

	memset(r, 0, sizeof(r));
	T_EQ(mpool_ioq_open(mp, 8, &q), 0);
	for (i = 0; i < 8; i++) {
		obj[i] = th_alloc(mp, MPOOL_MBLOCK, i % 2, KIB64, i / 4 + 1);
		r[0] = (struct mpool_io){ .obj = obj[i], .type = MPOOL_WRITE, .iovcnt = 1,
					  .iov = &v };
		T_EQ(mpool_ioq_submit(q, r, 1), 1);
		op[i] = (struct mpool_op){ .type = MPOOL_OP_COMMIT, .obj = obj[i],
					   .length = KIB64 };
	}
	T_EQ(mpool_ioq_reap(q, cqe, 8, 8, -1), 8);
	for (i = 0; i < 4; i++)
		r[i] = (struct mpool_io){ .type = MPOOL_BATCH, .iovcnt = 4, .cookie = i };
	r[0].op = op;
	r[1].op = op + 4;
	r[2] = (struct mpool_io){ .obj = obj[0], .type = MPOOL_FLUSH, .cookie = 2 };
	T_EQ(mpool_ioq_submit(q, r, 3), 3);
	memset(op, 0xff, sizeof(op));	/* copied at submission */
	T_EQ(mpool_ioq_reap(q, cqe, 8, 3, -1), 3);
	for (i = 0; i < 3; i++)
		res[cqe[i].cookie] = cqe[i].res;
	T_OK(!res[0] && !res[1] && !res[2]);
	T_EQ(mpool_objects(mp, 0, 0, oi, 8), 8);
	T_EQ(oi[7].flags, MPOOL_OBJ_COMMITTED);
	T_EQ(th_write(obj[0], 0, buf, KIB64), -EINVAL);
	/* all or none */
	op[0] = (struct mpool_op){ .type = MPOOL_OP_DELETE, .obj = obj[0] };
	op[1] = (struct mpool_op){ .type = MPOOL_OP_DELETE, .id = 123456789 };
	r[0] = (struct mpool_io){ .type = MPOOL_BATCH, .iovcnt = 2, .op = op, .cookie = 5 };
	T_EQ(mpool_ioq_submit(q, r, 1), 1);
	T_EQ(mpool_ioq_reap(q, cqe, 8, 1, -1), 1);
	T_EQ(cqe[0].cookie, 5);
	T_EQ(cqe[0].res, -ENOENT);
	T_EQ(mpool_objects(mp, 0, 0, oi, 8), 8);
	r[0].iovcnt = 1;
	T_EQ(mpool_ioq_submit(q, r, 1), 1);
	T_EQ(mpool_ioq_reap(q, cqe, 8, 1, -1), 1);
	T_EQ(cqe[0].res, 0);
	T_EQ(mpool_objects(mp, 0, 0, oi, 8), 7);
	/* arguments */
	r[0].iovcnt = 0;
	T_EQ(mpool_ioq_submit(q, r, 1), -EINVAL);
	r[0].iovcnt = MPOOL_BATCH_MAX + 1;
	T_EQ(mpool_ioq_submit(q, r, 1), -EINVAL);
	r[0].iovcnt = 1;
	r[0].obj = obj[1];
	T_EQ(mpool_ioq_submit(q, r, 1), -EINVAL);
	r[0].obj = NULL;
	r[0].off = 4096;
	T_EQ(mpool_ioq_submit(q, r, 1), -EINVAL);
	r[0].off = 0;
	op[0].type = 9;
	T_EQ(mpool_ioq_submit(q, r, 1), -EINVAL);
	mpool_ioq_close(q);
	for (i = 0; i < 8; i++)
		mpool_obj_close(obj[i]);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

/* calls that an open makes on the capacity device, so that a fault can be aimed behind it */
static struct mpool *open_with_fault(const char *kind)
{
	struct mpool *mp = th_new_pool("sync", "capacity:lat=1us");
	struct mpool_dev_info di;
	char text[96];

	T_EQ(mpool_close(mp), 0);
	mp = th_open_with("sync", "capacity:lat=1us");
	T_EQ(mpool_dev_info(mp, 0, &di), 0);
	T_EQ(di.mclass, MPOOL_CAPACITY);
	T_EQ(mpool_close(mp), 0);
	snprintf(text, sizeof(text), "capacity:fail=%s,after=%llu,%s", kind,
		 (unsigned long long)(strcmp(kind, "write") ? di.flushes : di.writes) + 1,
		 strcmp(kind, "write") ? "sticky" : "torn");
	return th_open_with("sync", text);
}

static void failed_write_is_that_objects_error(void)
{
	struct mpool *mp = open_with_fault("write");
	struct mpool_obj *bad = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, KIB64, 0);
	struct mpool_obj *good = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, KIB64, 0);
	void *buf = th_buf(KIB64, 10);
	struct mpool_info in;

	T_EQ(th_write(bad, 0, buf, KIB64), -EIO);
	T_OK(strstr(mpool_error_detail()->text, "capacity.mp"));
	T_EQ(th_op(mp, MPOOL_OP_COMMIT, bad, 0, KIB64), -EIO);
	T_EQ(th_write(good, 0, buf, KIB64), 0);
	T_EQ(th_op(mp, MPOOL_OP_COMMIT, good, 0, KIB64), 0);
	mpool_obj_close(bad);
	mpool_obj_close(good);
	T_EQ(mpool_info(mp, &in), 0);
	T_EQ(in.is_rdonly, 0);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

static void failed_flush_makes_the_pool_read_only(void)
{
	struct mpool *mp = open_with_fault("flush");
	struct mpool_obj *obj = th_alloc(mp, MPOOL_MBLOCK, MPOOL_CAPACITY, KIB64, 0);
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .capacity = 4096 };
	struct mpool_obj *two;
	void *buf = th_buf(KIB64, 11);
	struct mpool_info in;

	T_EQ(th_write(obj, 0, buf, KIB64), 0);
	T_EQ(th_op(mp, MPOOL_OP_COMMIT, obj, 0, KIB64), -EIO);
	T_EQ(mpool_info(mp, &in), 0);
	T_EQ(in.is_rdonly, 1);
	T_OK(strstr(in.fault, "capacity.mp"));
	T_EQ(mpool_alloc(mp, &req, 1, &two), -EROFS);
	T_EQ(mpool_flush(mp, 1), -EROFS);
	T_OK(strstr(mpool_error_detail()->text, "capacity.mp"));
	T_EQ(th_write(obj, 0, buf, 4096), -EROFS);
	mpool_obj_close(obj);
	mpool_close(mp);
	free(buf);
}

/* one request through a queue, from whatever thread */
struct moved {
	struct mpool_ioq *q;
	struct mpool_io *io;
	int64_t res;
};

static void *moved_main(void *arg)
{
	struct moved *m = arg;
	struct mpool_cqe cqe = { .res = -1 };

	if (mpool_ioq_submit(m->q, m->io, 1) == 1)
		mpool_ioq_reap(m->q, &cqe, 1, 1, 5000000000);
	m->res = cqe.res;
	return NULL;
}

static struct mpool *shared;
static int thread_errors;

/* its own queue; append, seal, delete in turns */
static void *thread_main(void *arg)
{
	char *buf = th_buf(KIB64, (uintptr_t)arg);
	struct iovec v = { .iov_base = buf, .iov_len = KIB64 };
	struct mpool_alloc req = { .kind = MPOOL_APPEND, .capacity = 2 * KIB64 };
	struct mpool_io r = { .type = MPOOL_WRITE, .iovcnt = 1, .iov = &v };
	struct mpool_cqe cqe;
	struct mpool_ioq *q = NULL;
	struct mpool_obj *obj;
	int i, bad = mpool_ioq_open(shared, 2, &q);

	for (i = 0; i < 40 && !bad; i++) {
		bad |= mpool_alloc(shared, &req, 1, &obj);
		if (bad)
			break;
		r.obj = obj;
		bad |= mpool_ioq_submit(q, &r, 1) != 1;
		bad |= mpool_ioq_reap(q, &cqe, 1, 1, -1) != 1 || cqe.res != KIB64;
		bad |= th_op(shared, MPOOL_OP_SEAL, obj, 0, KIB64);
		if (i % 3)
			bad |= th_op(shared, MPOOL_OP_DELETE, obj, 0, 0);
		mpool_obj_close(obj);
	}
	mpool_ioq_close(q);
	free(buf);
	__atomic_fetch_or(&thread_errors, bad, __ATOMIC_SEQ_CST);
	return NULL;
}

static void threads_share_a_pool(void)
{
	struct mpool_obj_info oi[100];
	pthread_t t[4];
	uint64_t damage = 9;
	uintptr_t i;

	shared = th_new_pool(io, NULL);
	thread_errors = 0;
	for (i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, thread_main, (void *)(i + 1));
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	T_EQ(thread_errors, 0);
	T_EQ(mpool_objects(shared, 0, 0, oi, 100), 4 * 14);
	T_EQ(mpool_close(shared), 0);
	T_EQ(mpool_verify(th_pool, NULL, 0, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
}

static void queue_moves_to_another_thread_when_idle(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, MIB, 0);
	char *buf = th_buf(KIB64, 9);
	struct iovec v = { buf, 4096 };
	struct mpool_io r = { .obj = obj, .type = MPOOL_WRITE, .iovcnt = 1, .iov = &v };
	struct moved m = { .io = &r };
	pthread_t t;

	T_EQ(mpool_ioq_open(mp, 4, &m.q), 0);
	moved_main(&m);
	T_EQ(m.res, 4096);
	r.off = 4096;
	T_EQ(pthread_create(&t, NULL, moved_main, &m), 0);
	pthread_join(t, NULL);
	T_EQ(m.res, 4096);
	mpool_ioq_close(m.q);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

/* The system gives a thread the memory of one that has ended: it is another one all the same. */
static void queue_outlives_the_threads_that_used_it(void)
{
	struct mpool *mp = th_new_pool(io, NULL);
	struct mpool_obj *obj = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, MIB, 0);
	char *buf = th_buf(4096, 9);
	struct iovec v = { buf, 4096 };
	struct mpool_io r = { .obj = obj, .type = MPOOL_WRITE, .iovcnt = 1, .iov = &v };
	struct moved m = { .io = &r };
	pthread_t t;

	T_EQ(mpool_ioq_open(mp, 4, &m.q), 0);
	for (; r.off < 16 * 4096; r.off += 4096) {
		T_EQ(pthread_create(&t, NULL, moved_main, &m), 0);
		pthread_join(t, NULL);
		T_EQ(m.res, 4096);
	}
	mpool_ioq_close(m.q);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
	free(buf);
}

static void run_all(void)
{
	printf("# back end %s\n", io);
	T_RUN(mblock_round_trip_survives_reopen);
	T_RUN(uncommitted_mblock_is_gone_and_its_space_free);
	T_RUN(append_object_grows_and_seals);
	T_RUN(batch_is_all_or_none);
	T_RUN(full_class_is_enospc_and_any_takes_another);
	T_RUN(queue_moves_many_requests);
	T_RUN(queue_flush_errors_and_event_fd);
	T_RUN(event_fd_tells_of_every_completion);
	T_RUN(queue_carries_batches);
	T_RUN(threads_share_a_pool);
	T_RUN(queue_moves_to_another_thread_when_idle);
	T_RUN(queue_outlives_the_threads_that_used_it);
}

int main(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool *mp;

	unsetenv("MPOOL_DEV");
	io = "sync";
	run_all();
	TH_RUN_FILES(failed_write_is_that_objects_error);
	TH_RUN_FILES(failed_flush_makes_the_pool_read_only);
	th_fresh();
	o.io = "uring";
	if (!th_create_at(th_pool, 16 * MIB, 0) && !mpool_open(th_pool, &o, &mp)) {
		mpool_close(mp);
		io = "uring";
		run_all();
	} else {
		printf("# io_uring is not available here: %s\n", mpool_error_detail()->text);
	}
	th_clean();
	return t_done();
}
