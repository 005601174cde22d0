/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Blocking reads that threads execute for each other: each gets its own bytes
 * and its own error, none is forgotten.
 */
#include <pthread.h>
#include <sys/stat.h>

#include "kv_rig.h"
#include "cache/load.h"

static struct rig r;

#define PAGES	2048u
#define GOOD	1024u	/* pages that are there when the device was cut short */
#define THREADS	32u

static struct {
	int fd;
	off_t at, size;
	uint8_t *tail;
} cut;

/* The device ends behind page GOOD - 1 of the object: reads behind it fail. */
static void cut_device(struct mpool_obj *obj)
{
	uint64_t pos, len;
	struct stat st;

	T_EQ(mpool_obj_place(obj, 0, &cut.fd, &pos, &len), 0);
	T_OK(len >= PAGES * 4096ull);
	T_EQ(fstat(cut.fd, &st), 0);
	cut.at = (off_t)(pos + GOOD * 4096ull);
	cut.size = st.st_size;
	cut.tail = aligned_alloc(4096, (size_t)(cut.size - cut.at));
	T_EQ(pread(cut.fd, cut.tail, (size_t)(cut.size - cut.at), cut.at), cut.size - cut.at);
	T_EQ(ftruncate(cut.fd, cut.at), 0);
}

static void mend_device(void)
{
	T_EQ(pwrite(cut.fd, cut.tail, (size_t)(cut.size - cut.at), cut.at), cut.size - cut.at);
	free(cut.tail);
}

struct job {
	struct mpool_obj *obj;
	pthread_t tid;
	uint64_t rnd;
	unsigned rounds, max, done, wrong, errors;
	bool through_pool;
};

static int page_is(const uint8_t *p, uint64_t no)
{
	uint64_t first, last;

	memcpy(&first, p, 8);
	memcpy(&last, p + 4088, 8);
	return first == no && last == no;
}

static void read_raw(struct job *j, const unsigned *no, unsigned n, uint8_t *buf)
{
	struct kv_read rd[4], *list[4];
	struct iovec iov[4];

	for (unsigned i = 0; i < n; i++) {
		iov[i] = (struct iovec){ .iov_base = buf + i * 4096, .iov_len = 4096 };
		rd[i] = (struct kv_read){
			.rd_io = { .obj = j->obj, .type = MPOOL_READ, .iovcnt = 1,
				   .off = no[i] * 4096ull, .iov = &iov[i],
				   .cookie = (uintptr_t)&rd[i] },
			.rd_err = 1,
		};
		list[i] = &rd[i];
	}
	kv_reads_run(&r.db, list, n);
	for (unsigned i = 0; i < n; i++) {
		if (rd[i].rd_err) {
			j->wrong += no[i] < GOOD || rd[i].rd_err != -EIO;
			j->errors++;
		} else {
			j->wrong += !page_is(buf + i * 4096, no[i]);
		}
	}
}

/* One page through the pool, with a CRC that is wrong for pages behind GOOD. */
static void read_pages(struct job *j, unsigned no)
{
	uint64_t page[512];
	struct kv_thread *t = kv_enter();
	const uint8_t *p;
	uint32_t crc;
	int rc;

	for (unsigned i = 0; i < 512; i++)
		page[i] = no;
	crc = mpool_crc32c(0, page, 4096) ^ (no >= GOOD);
	rc = kv_page_get(&r.db, j->obj, no, &crc, &p);
	if (rc) {
		j->wrong += no < GOOD || rc != -EUCLEAN;
		j->errors++;
	} else {
		j->wrong += !page_is(p, no) || no >= GOOD;
	}
	kv_exit(t);
}

static void *reader(void *arg)
{
	struct job *j = arg;
	uint8_t *buf = aligned_alloc(4096, 4 * 4096);

	for (unsigned i = 0; i < j->rounds; i++) {
		unsigned no[4], n = 1 + (unsigned)(t_rand(&j->rnd) % 4);

		for (unsigned k = 0; k < n; k++)
			no[k] = (unsigned)(t_rand(&j->rnd) % j->max);
		if (j->through_pool)
			read_pages(j, no[0]);
		else
			read_raw(j, no, n, buf);
		j->done++;
	}
	free(buf);
	return NULL;
}

static unsigned run(unsigned max, bool through_pool, unsigned threads, unsigned rounds,
		    struct mpool_obj *obj)
{
	struct job j[THREADS];
	unsigned errors = 0;

	for (unsigned i = 0; i < threads; i++) {
		j[i] = (struct job){ .obj = obj, .rnd = t_rand(&r.rnd), .rounds = rounds,
				     .max = max, .through_pool = through_pool };
		T_EQ(pthread_create(&j[i].tid, NULL, reader, &j[i]), 0);
	}
	for (unsigned i = 0; i < threads; i++)
		pthread_join(j[i].tid, NULL);
	for (unsigned i = 0; i < threads; i++) {
		T_EQ(j[i].done, rounds);
		T_EQ(j[i].wrong, 0);
		errors += j[i].errors;
	}
	return errors;
}

static void open_rig(struct mpool_obj **obj)
{
	rig_open(&r, 1 << 20, 64 << 20);
	T_EQ(kv_readers_init(&r.db), 0);
	*obj = rig_numbered(&r, PAGES);
}

static void close_rig(struct mpool_obj *obj)
{
	mpool_obj_close(obj);
	kv_readers_fini(&r.db);
	rig_close(&r);
}

static void everybody_gets_his_own_bytes(void)
{
	static const unsigned threads[] = { 1, 2, 7, 16, THREADS };
	struct mpool_obj *obj;

	open_rig(&obj);
	for (unsigned i = 0; i < 5; i++)
		T_EQ(run(PAGES, false, threads[i], 300, obj), 0);
	close_rig(obj);
}

static void device_errors_stay_with_their_reads(void)
{
	struct mpool_obj *obj;

	open_rig(&obj);
	cut_device(obj);
	T_OK(run(PAGES, false, THREADS, 300, obj) > 1000);
	mend_device();
	close_rig(obj);
}

static void damaged_pages_stay_with_their_readers(void)
{
	struct mpool_obj *obj;

	open_rig(&obj);
	T_OK(run(PAGES, true, THREADS, 300, obj) > 1000);
	close_rig(obj);
}

/* A refused request must not be waited for, nor make others fail. */
static void bad_request_fails_alone(void)
{
	struct job j = { .obj = NULL, .rnd = 1, .rounds = 50, .max = PAGES };
	struct kv_read rd = { .rd_io = { .type = MPOOL_READ, .iovcnt = 1 } }, *list = &rd;
	struct iovec iov = { .iov_base = NULL, .iov_len = 100 };
	struct mpool_obj *obj;

	open_rig(&obj);
	j.obj = rd.rd_io.obj = obj;
	rd.rd_io.iov = &iov;
	reader(&j);
	T_EQ(j.wrong, 0);
	for (unsigned i = 0; i < 20; i++) {
		rd.rd_err = 0;
		kv_reads_run(&r.db, &list, 1);
		T_EQ(rd.rd_err, -EINVAL);
	}
	close_rig(obj);
}

int main(void)
{
	T_RUN(everybody_gets_his_own_bytes);
	T_RUN(device_errors_stay_with_their_reads);
	T_RUN(damaged_pages_stay_with_their_readers);
	T_RUN(bad_request_fails_alone);
	return t_done();
}
