/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Queues whose io_uring stops working while they are used: every request ends, once, with its
 * own bytes. And a pool that is closed is held by no ring.
 */
#include <poll.h>
#include <pthread.h>

#include "die.h"
#include "pool_help.h"
#include "sandbox.h"

#define N	16u
#define BYTES	(16u << 10)

static struct mpool *mp;
static struct mpool_obj *obj;
static struct mpool_ioq *q;
static uint8_t *buf[N];
static struct iovec v[N];

static void begin(void)
{
	unsigned i;

	alarm(60);
	mp = th_open_with("uring", NULL);
	obj = th_alloc(mp, MPOOL_APPEND, MPOOL_CAPACITY, 4 * MIB, 3);
	T_EQ(mpool_ioq_open(mp, 2 * N, &q), 0);
	for (i = 0; i < N; i++) {
		buf[i] = th_buf(BYTES, i);
		v[i] = (struct iovec){ buf[i], BYTES };
	}
}

/* all of them, of which number @i lies at the object's piece @i */
static void submit(uint32_t type, unsigned at)
{
	struct mpool_io io[N];
	unsigned i;

	for (i = 0; i < N; i++)
		io[i] = (struct mpool_io){ .obj = obj, .type = type, .iovcnt = 1, .iov = &v[i],
					   .off = (uint64_t)(at + i) * BYTES, .cookie = i };
	T_EQ(mpool_ioq_submit(q, io, N), (int)N);
}

/* each of them once, and good; with @fd only when it says that something is there */
static void reap(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct mpool_cqe cqe[N];
	unsigned seen = 0, n = 0;
	int got, i;

	while (n < N) {
		if (fd >= 0)
			T_EQ(poll(&p, 1, 10000), 1);
		got = mpool_ioq_reap(q, cqe, N, fd < 0, -1);
		T_OK(got >= (fd < 0));
		for (i = 0; i < got; i++) {
			T_EQ(cqe[i].res, BYTES);
			T_OK(!(seen & 1u << cqe[i].cookie));
			seen |= 1u << cqe[i].cookie;
		}
		n += (unsigned)got;
	}
	T_EQ(n, N);
	T_EQ(mpool_ioq_reap(q, cqe, N, 0, 0), 0);
}

/* What lies at the pieces from @at on is what was written; leaves it in the buffers. */
static void check(unsigned at)
{
	unsigned i;

	for (i = 0; i < N; i++)
		memset(buf[i], 0, BYTES);
	submit(MPOOL_READ, at);
	reap(-1);
	for (i = 0; i < N; i++) {
		uint8_t *want = th_buf(BYTES, i);

		T_MEMEQ(buf[i], want, BYTES);
		free(want);
	}
}

static void end(void)
{
	unsigned i;

	mpool_ioq_close(q);
	for (i = 0; i < N; i++)
		free(buf[i]);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
}

static void in_flight(void)
{
	submit(MPOOL_WRITE, 0);
	T_EQ(t_forbid(T_URING, EPERM), 0);
	reap(-1);
	check(0);
	end();
}

static void in_flight_of_reads(void)
{
	unsigned i;

	submit(MPOOL_WRITE, 0);
	reap(-1);
	for (i = 0; i < N; i++)
		memset(buf[i], 0, BYTES);
	submit(MPOOL_READ, 0);
	/* the other call stays: a filter that knows only the oldest two, say */
	T_EQ(t_forbid(__NR_io_uring_enter, -1, -1, ENOSYS), 0);
	reap(-1);
	check(0);
	end();
}

/* Some are the kernel's, some are not its yet. */
static void in_flight_and_behind(void)
{
	submit(MPOOL_WRITE, 0);
	T_EQ(t_forbid(T_URING, EPERM), 0);
	reap(-1);
	submit(MPOOL_WRITE, N);
	reap(-1);
	check(0);
	check(N);
	end();
}

static void not_taken(void)
{
	submit(MPOOL_WRITE, 0);
	reap(-1);
	T_EQ(t_forbid(__NR_io_uring_enter, -1, -1, EPERM), 0);
	submit(MPOOL_WRITE, N);
	reap(-1);
	check(0);
	check(N);
	end();
}

static void told_by_the_descriptor(void)
{
	int fd = mpool_ioq_fd(q);

	T_OK(fd >= 0);
	submit(MPOOL_WRITE, 0);
	reap(fd);
	T_EQ(t_forbid(T_URING, EPERM), 0);
	submit(MPOOL_WRITE, N);
	reap(fd);
	check(N);
	end();
}

/* The ring is there, and can no longer be asked to signal. */
static void asked_for_afterwards(void)
{
	int fd;

	submit(MPOOL_WRITE, 0);
	T_EQ(t_forbid(__NR_io_uring_register, -1, -1, EPERM), 0);
	fd = mpool_ioq_fd(q);
	T_OK(fd >= 0);
	reap(fd);
	submit(MPOOL_WRITE, N);
	reap(fd);
	check(N);
	end();
}

static void no_memory(void)
{
	submit(MPOOL_WRITE, 0);
	reap(-1);
	T_EQ(t_forbid(__NR_io_uring_enter, -1, -1, EAGAIN), 0);
	submit(MPOOL_WRITE, N);
	reap(-1);
	check(N);
	end();
}

static void forbidden_before(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool_info in;

	/* the ring can be made, and not used */
	T_EQ(t_forbid(__NR_io_uring_enter, -1, -1, EPERM), 0);
	o.io = "uring";
	T_EQ(mpool_open(th_pool, &o, &mp), -EOPNOTSUPP);
	o.io = NULL;
	T_EQ(mpool_open(th_pool, &o, &mp), 0);
	T_EQ(mpool_info(mp, &in), 0);
	T_STREQ(in.io, "sync");
	T_EQ(mpool_close(mp), 0);
}

static void nothing(void)
{
	alarm(60);
}

#define IN_SANDBOX(name, prepare, fn)					\
static void name(void)							\
{									\
	th_fresh();							\
	T_EQ(th_create_at(th_pool, 64 * MIB, 0), 0);			\
	t_die_in(prepare, fn);						\
}

IN_SANDBOX(what_is_in_flight_when_the_ring_stops_is_done_once, begin, in_flight)
IN_SANDBOX(reads_in_flight_have_their_bytes, begin, in_flight_of_reads)
IN_SANDBOX(the_queue_goes_on_by_plain_calls, begin, in_flight_and_behind)
IN_SANDBOX(what_the_ring_has_not_taken_is_done_by_plain_calls, begin, not_taken)
IN_SANDBOX(the_event_descriptor_tells_without_a_ring, begin, told_by_the_descriptor)
IN_SANDBOX(a_ring_that_cannot_signal_is_not_used, begin, asked_for_afterwards)
IN_SANDBOX(no_memory_for_requests_does_not_spin, begin, no_memory)
IN_SANDBOX(the_trial_at_open_makes_a_request, nothing, forbidden_before)

/* ---- close ---- */

static void *write_all(void *arg)
{
	struct mpool_cqe cqe[N];
	struct mpool_io io[N];
	unsigned i;

	(void)arg;
	for (i = 0; i < N; i++)
		io[i] = (struct mpool_io){ .obj = obj, .type = MPOOL_WRITE, .iovcnt = 1,
					   .iov = &v[i], .off = (uint64_t)i * BYTES };
	if (mpool_ioq_submit(q, io, N) != (int)N || mpool_ioq_reap(q, cqe, N, N, -1) != (int)N)
		abort();
	return NULL;
}

static void *idle(void *arg)
{
	return arg;
}

/* A lease for reading is given only while the file is open for writing nowhere. */
static void is_free(void)
{
	char path[sizeof(th_pool) + 20];
	int fd;

	snprintf(path, sizeof(path), "%s/capacity.mp", th_pool);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	T_OK(fd >= 0);
	T_OK(!fcntl(fd, F_SETLEASE, F_RDLCK) || errno == EINVAL);
	close(fd);
}

static void a_pool_that_is_closed_is_held_by_no_ring(void)
{
	pthread_t t;
	int i;

	for (i = 0; i < 20; i++) {
		th_fresh();
		T_EQ(th_create_at(th_pool, 64 * MIB, 0), 0);
		begin();
		/* another thread than the one that used the queue may close it */
		T_EQ(pthread_create(&t, NULL, i % 2 ? write_all : idle, NULL), 0);
		pthread_join(t, NULL);
		if (!(i % 2))
			write_all(NULL);
		end();
		alarm(0);
		is_free();
	}
}

/* The ring cannot be told to let go of the files: its end is waited for. */
static void closed_in_a_sandbox(void)
{
	write_all(NULL);
	T_EQ(t_forbid(T_URING, EPERM), 0);
	end();
	is_free();
}

IN_SANDBOX(nor_by_one_that_cannot_be_told, begin, closed_in_a_sandbox)

int main(void)
{
	T_RUN(what_is_in_flight_when_the_ring_stops_is_done_once);
	T_RUN(reads_in_flight_have_their_bytes);
	T_RUN(the_queue_goes_on_by_plain_calls);
	T_RUN(what_the_ring_has_not_taken_is_done_by_plain_calls);
	T_RUN(the_event_descriptor_tells_without_a_ring);
	T_RUN(a_ring_that_cannot_signal_is_not_used);
	T_RUN(no_memory_for_requests_does_not_spin);
	T_RUN(the_trial_at_open_makes_a_request);
	T_RUN(a_pool_that_is_closed_is_held_by_no_ring);
	T_RUN(nor_by_one_that_cannot_be_told);
	th_clean();
	return t_done();
}
