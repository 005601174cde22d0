/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The simulated power cut on a pool of plain files, as users may run it
 * (MPOOL_DEV=all:volatile,cut_after=N): a child commits pairs of objects and
 * compacts a container until the cut ends it; afterwards the pool opens clean,
 * every acknowledged pair is whole, no pair is half there, and the container
 * holds an acknowledged state.
 */
#include <signal.h>
#include <sys/wait.h>

#include "pool_help.h"

#define DATA	(16u << 10)

/* what the child has been told is durable, in a shared pipe */
struct ack {
	int pair;
	int state;
};

static int put_pair(struct mpool *mp, int i, void *buf)
{
	struct mpool_alloc req[2] = {
		{ .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY, .capacity = DATA },
		{ .kind = MPOOL_MBLOCK, .mclass = MPOOL_STAGING, .capacity = DATA },
	};
	struct mpool_op op[2];
	struct mpool_obj *obj[2];
	int k, rc;

	req[0].tag = req[1].tag = (uint64_t)i;
	rc = mpool_alloc(mp, req, 2, obj);
	if (rc)
		return rc;
	memset(op, 0, sizeof(op));
	for (k = 0; k < 2; k++) {
		memset(buf, i + k, DATA);
		if (!rc)
			rc = th_write(obj[k], 0, buf, DATA);
		op[k] = (struct mpool_op){ .type = MPOOL_OP_COMMIT, .flags = MPOOL_OBJ_HAS_CRC,
					   .obj = obj[k], .length = DATA,
					   .crc = mpool_crc32c(0, buf, DATA) };
	}
	if (!rc)
		rc = mpool_batch(mp, op, 2);
	mpool_obj_close(obj[0]);
	mpool_obj_close(obj[1]);
	return rc;
}

static int put_state(struct mpool_mdc *mdc, int state)
{
	struct iovec v = { .iov_base = &state, .iov_len = sizeof(state) };

	if (state % 5)
		return mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC);
	return mpool_mdc_compact_begin(mdc) ?: mpool_mdc_append(mdc, &v, 1, 0) ?:
	       mpool_mdc_compact_end(mdc);
}

static void __attribute__((noreturn)) child(const char *dev, int fd)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool *mp;
	struct mpool_mdc *mdc;
	struct ack a = { 0, 0 };
	void *buf = th_buf(DATA, 1);

	o.dev = dev;
	if (mpool_open(th_pool, &o, &mp) || mpool_mdc_open(mp, "state", &mdc))
		_exit(2);
	for (;;) {
		if (put_pair(mp, a.pair + 1, buf))
			_exit(3);
		a.pair++;
		if (write(fd, &a, sizeof(a)) != sizeof(a))
			_exit(4);
		if (put_state(mdc, a.state + 1))
			_exit(5);
		a.state++;
		if (write(fd, &a, sizeof(a)) != sizeof(a))
			_exit(6);
	}
}

static void pairs_are_whole(struct mpool *mp, int acked)
{
	static struct mpool_obj_info oi[64];
	void *buf = th_buf(DATA, 2);
	struct mpool_obj *obj;
	int i, k, n;

	for (i = 1; i <= acked + 1; i++) {
		n = mpool_objects(mp, 0, (uint64_t)i, oi, 64);
		if (i <= acked)
			T_EQ(n, 2);
		else
			T_OK(n == 0 || n == 2);
		for (k = 0; k < n; k++) {
			T_EQ(oi[k].length, DATA);
			T_EQ(mpool_obj_open(mp, oi[k].id, &obj), 0);
			T_EQ(th_read(obj, 0, buf, DATA), 0);
			T_EQ(mpool_crc32c(0, buf, DATA), oi[k].crc);
			mpool_obj_close(obj);
		}
	}
	free(buf);
}

static void state_is_a_legal_one(struct mpool *mp, int acked)
{
	struct mpool_mdc *mdc;
	uint64_t pos = 0;
	int last = 0, v, first = 0;
	size_t len;

	T_EQ(mpool_mdc_open(mp, "state", &mdc), 0);
	while (!mpool_mdc_read(mdc, &pos, &v, sizeof(v), &len)) {
		T_EQ(len, sizeof(v));
		T_OK(!last || v == last + 1);
		first = first ? first : v;
		last = v;
	}
	T_OK(last == acked || last == acked + 1);
	T_OK(!last || first == (last < 5 ? 1 : last / 5 * 5));
	mpool_mdc_close(mdc);
}

static int cut_round(int n, uint64_t seed, int is_last)
{
	struct ack a = { 0, 0 }, got;
	struct mpool *mp;
	uint64_t damage = 9;
	char dev[96];
	int fd[2], st;
	pid_t pid;

	th_fresh();
	T_EQ(th_create_at(th_pool, 64 * MIB, 32 * MIB), 0);
	mp = th_open_with(NULL, NULL);
	T_EQ(mpool_mdc_create(mp, "state", MPOOL_CAPACITY, 64 << 10, 1u << 30), 0);
	T_EQ(mpool_close(mp), 0);
	snprintf(dev, sizeof(dev), "all:volatile,cut_after=%d,seed=%llu", n,
		 (unsigned long long)seed);
	T_EQ(pipe(fd), 0);
	pid = fork();
	if (!pid)
		child(dev, fd[1]);
	close(fd[1]);
	while (read(fd[0], &got, sizeof(got)) == sizeof(got))
		a = got;
	close(fd[0]);
	T_EQ(waitpid(pid, &st, 0), pid);
	T_OK(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	T_EQ(mpool_verify(th_pool, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &damage), 0);
	T_EQ(damage, 0);
	mp = th_open_with(NULL, NULL);
	pairs_are_whole(mp, a.pair);
	state_is_a_legal_one(mp, a.state);
	T_EQ(mpool_close(mp), 0);
	if (is_last)
		printf("# last cut after %d writes: %d pairs, state %d\n", n, a.pair, a.state);
	return a.pair;
}

static void power_cut_shows_acknowledged_state(void)
{
	uint64_t seed = t_seed();
	int i;

	for (i = 0; i < 60; i++)
		cut_round(10 + 3 * i, t_rand(&seed) & 0xffff, i == 59);
}

int main(void)
{
	unsetenv("MPOOL_DEV");
	TH_RUN_FILES(power_cut_shows_acknowledged_state);
	th_clean();
	return t_done();
}
