/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Figures of the pool, one line each: append throughput through a queue
 * against io_uring on a preallocated file of the same file system (1 MiB
 * writes, depth 8, O_DIRECT), the time of an allocation that fails on a full
 * pool, and the time to open a pool with 100,000 objects.
 *
 *	bench_pool [DIRECTORY [MIB]]
 */
#include <liburing.h>

#include "../conform/pool_help.h"

#define BLOCK	((size_t)1 << 20)
#define DEPTH	8u

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	printf("%s: %s (%s)\n", what, strerror(-rc), mpool_error_detail()->text);
	th_clean();
	exit(1);
}

/* MB/s of a plain loop with io_uring, fdatasync included */
static double file_append(uint64_t mib, char *buf)
{
	struct io_uring ring;
	struct io_uring_cqe *cqe;
	char path[600];
	uint64_t sent = 0, done = 0;
	double t;
	int fd;

	snprintf(path, sizeof(path), "%s/plain", th_dir);
	fd = open(path, O_RDWR | O_CREAT | O_DIRECT, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)(mib * BLOCK)) ||
	    fallocate(fd, 0, 0, (off_t)(mib * BLOCK)) ||
	    io_uring_queue_init(DEPTH, &ring, 0))
		check(-errno, path);
	fdatasync(fd);
	t = now();
	while (done < mib) {
		while (sent < mib && sent - done < DEPTH) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

			io_uring_prep_write(sqe, fd, buf + sent % DEPTH * BLOCK, BLOCK,
					    sent * BLOCK);
			sent++;
		}
		check(io_uring_submit_and_wait(&ring, 1), "submit");
		while (!io_uring_peek_cqe(&ring, &cqe)) {
			check(cqe->res, "write");
			io_uring_cqe_seen(&ring, cqe);
			done++;
		}
	}
	fdatasync(fd);
	t = now() - t;
	io_uring_queue_exit(&ring);
	close(fd);
	unlink(path);
	return (double)(mib * BLOCK) / t / 1e6;
}

/* the same bytes into append objects of 64 MiB; allocation and flush included */
static double pool_append(struct mpool *mp, uint64_t mib, char *buf)
{
	struct mpool_obj *obj[64];
	struct mpool_cqe cqe[DEPTH];
	struct mpool_ioq *q;
	struct iovec v[DEPTH];
	uint64_t sent = 0, done = 0, n = (mib + 63) / 64, i;
	double t = now();
	int rc;

	check(mpool_ioq_open(mp, DEPTH, &q), "queue");
	for (i = 0; i < n; i++) {
		struct mpool_alloc req = { .kind = MPOOL_APPEND, .capacity = 64 * BLOCK };

		check(mpool_alloc(mp, &req, 1, &obj[i]), "alloc");
	}
	while (done < mib) {
		while (sent < mib) {
			struct mpool_io io = {
				.obj = obj[sent / 64], .type = MPOOL_WRITE, .iovcnt = 1,
				.off = sent % 64 * BLOCK, .iov = &v[sent % DEPTH],
			};

			v[sent % DEPTH].iov_base = buf + sent % DEPTH * BLOCK;
			v[sent % DEPTH].iov_len = BLOCK;
			rc = mpool_ioq_submit(q, &io, 1);
			check(rc, "submit");
			if (!rc)
				break;
			sent++;
		}
		rc = mpool_ioq_reap(q, cqe, DEPTH, 1, -1);
		check(rc, "reap");
		for (i = 0; i < (uint64_t)rc; i++)
			check(cqe[i].res < 0 ? (int)cqe[i].res : 0, "write");
		done += (uint64_t)rc;
	}
	check(mpool_flush(mp, 1), "flush");
	t = now() - t;
	mpool_ioq_close(q);
	for (i = 0; i < n; i++) {
		check(th_op(mp, MPOOL_OP_DELETE, obj[i], 0, 0), "delete");
		mpool_obj_close(obj[i]);
	}
	return (double)(mib * BLOCK) / t / 1e6;
}

static void bench_append(uint64_t mib)
{
	char *buf = th_buf(DEPTH * BLOCK, 1);
	double best_file = 0, best_pool = 0, x;
	struct mpool *mp;
	int i;

	check(th_create_at(th_pool, (mib + 256) * BLOCK, 0), "create");
	check(mpool_open(th_pool, NULL, &mp), "open");
	for (i = 0; i < 3; i++) {
		x = file_append(mib, buf);
		best_file = x > best_file ? x : best_file;
		x = pool_append(mp, mib, buf);
		best_pool = x > best_pool ? x : best_pool;
	}
	printf("append: pool %.0f MB/s, plain file %.0f MB/s, ratio %.2f\n", best_pool, best_file,
	       best_pool / best_file);
	check(mpool_close(mp), "close");
	check(mpool_destroy(th_pool, NULL), "destroy");
	free(buf);
}

static void bench_full(void)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .capacity = 64 << 10 };
	static struct mpool_obj *obj[4096];
	struct mpool_obj *no;
	struct mpool *mp;
	double t, worst = 0, sum = 0;
	int n = 0, i;

	check(th_create_at(th_pool, 128 * BLOCK, 0), "create");
	check(mpool_open(th_pool, NULL, &mp), "open");
	while (n < 4096 && !mpool_alloc(mp, &req, 1, &obj[n]))
		n++;
	for (i = 0; i < 1000; i++) {
		t = now();
		if (mpool_alloc(mp, &req, 1, &no) != -ENOSPC)
			check(-EINVAL, "allocation on a full pool");
		t = now() - t;
		worst = t > worst ? t : worst;
		sum += t;
	}
	printf("failed allocation: %.2f us on average, worst %.1f us (%d objects)\n", sum * 1e3,
	       worst * 1e6, n);
	while (n)
		mpool_obj_close(obj[--n]);
	check(mpool_close(mp), "close");
	check(mpool_destroy(th_pool, NULL), "destroy");
}

static void bench_open(void)
{
	static struct mpool_alloc req[MPOOL_BATCH_MAX];
	static struct mpool_obj *obj[MPOOL_BATCH_MAX];
	struct mpool *mp;
	unsigned made = 0, i;
	double t;

	for (i = 0; i < MPOOL_BATCH_MAX; i++)
		req[i] = (struct mpool_alloc){ .kind = MPOOL_APPEND, .capacity = 4096 };
	check(th_create_at(th_pool, 1024 * BLOCK, 0), "create");
	check(mpool_open(th_pool, NULL, &mp), "open");
	t = now();
	for (; made < 100000; made += 1000) {
		check(mpool_alloc(mp, req, 1000, obj), "alloc");
		for (i = 0; i < 1000; i++)
			mpool_obj_close(obj[i]);
	}
	printf("allocation of 100000 append objects in batches of 1000: %.0f ms\n",
	       (now() - t) * 1e3);
	check(mpool_close(mp), "close");
	t = now();
	check(mpool_open(th_pool, NULL, &mp), "open");
	printf("open with 100000 objects: %.0f ms\n", (now() - t) * 1e3);
	check(mpool_close(mp), "close");
	check(mpool_destroy(th_pool, NULL), "destroy");
}

static void bench_crc(void)
{
	char *buf = th_buf(65536, 3);
	const size_t len[3] = { 1024, 4096, 65536 };
	unsigned i, k, n;
	volatile uint32_t crc = 0;
	double t;

	for (i = 0; i < 3; i++) {
		n = (unsigned)((1u << 30) / len[i]);
		t = now();
		for (k = 0; k < n; k++)
			crc = mpool_crc32c(crc, buf, len[i]);
		printf("crc32c of %zu bytes: %.1f GB/s\n", len[i],
		       (double)n * (double)len[i] / (now() - t) / 1e9);
	}
	free(buf);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		setenv("TMPDIR", argv[1], 1);
	th_fresh();
	bench_crc();
	bench_full();
	bench_open();
	bench_append(argc > 2 ? strtoull(argv[2], NULL, 0) : 1024);
	th_clean();
	return 0;
}
