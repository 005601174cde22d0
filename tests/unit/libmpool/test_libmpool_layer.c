/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The device layers: their text, the delay that overlaps, faults at the k-th
 * call, and the volatile cache with its power cut (run in a child, which the
 * cut kills).
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"
#include "harness.h"

#define BLOCKS	64u

static char path[2][300];

static void dev_open(struct mpool_vdev *vd, int i, const char *spec, struct mpl_power **pw,
		     int make)
{
	struct mpl_low low;
	const char *why = "";

	if (make)
		unlink(path[i]);
	if (mpl_file_open(path[i], make ? MPL_FILE_CREATE : 0, BLOCKS * MP_BLOCK, &low, &why)) {
		printf("# %s: %s\n", path[i], why);
		exit(1);
	}
	*vd = low.lo_vdev;
	if (spec && mpl_layer_push(vd, spec, (uint32_t)i, pw))
		exit(1);
}

static int block_write(struct mpool_vdev *vd, unsigned blk, int value, int fua)
{
	struct iovec v = { .iov_len = MP_BLOCK };
	int rc;

	if (posix_memalign(&v.iov_base, MP_BLOCK, MP_BLOCK))
		exit(1);
	memset(v.iov_base, value, MP_BLOCK);
	rc = vd->ops->writev(vd->dev, (uint64_t)blk * MP_BLOCK, &v, 1, fua, NULL);
	free(v.iov_base);
	return rc;
}

/* the value of every sector of a block, or -1 when a sector is mixed; @torn: sectors differ */
static int block_read(struct mpool_vdev *vd, unsigned blk, int *torn)
{
	struct iovec v = { .iov_len = MP_BLOCK };
	unsigned char *p;
	int i, j, first;

	if (posix_memalign(&v.iov_base, MP_BLOCK, MP_BLOCK))
		exit(1);
	if (vd->ops->readv(vd->dev, (uint64_t)blk * MP_BLOCK, &v, 1, NULL))
		exit(1);
	p = v.iov_base;
	first = p[0];
	*torn = 0;
	for (i = 0; i < 8; i++) {
		for (j = 1; j < 512; j++)
			if (p[i * 512 + j] != p[i * 512])
				first = -1;
		*torn |= p[i * 512] != p[0];
	}
	free(v.iov_base);
	return first;
}

static void layer_text_is_checked(void)
{
	static const char *const good[] = {
		"capacity:rate=60M,lat=2ms", "capacity:rate=60M,write_rate=20M",
		"all:volatile,cut=12s,seed=7;staging:fail=write,after=3",
		"staging:fail=flush,fail=read,sticky,err=ENOSPC", "all:torn", "", "all:lat=1.5us;",
		"all:pause=75ms,every=1s",
	};
	static const char *const bad[] = {
		"all:rate=17179869184G", "all:rate=99999999999999999999",
		"capacity", "disk:lat=1ms", "all:lat=1", "all:lat=ms", "all:rate=-3", "all:rate=5T",
		"all:write_rate=x", "all:rate=", "all:rate=,lat=1ms", "all:rate=;all:lat=1ms",
		"all:lat=", "all:lat=,rate=1", "all:lat=;all:rate=1", "all:lat=.5ms",
		"all:lat=1000001s",
		"all:fail=sometimes", "all:err=EPERM", "all:nothing", "all:=", "x;all:torn",
		"all:cut=9e99s", "all:lat=0x1ms", "all:lat=1e1ms", "all:lat=1..5ms",
		"all:pause=1s", "all:every=1s", "all:pause=1s,every=1s", "all:pause=2s,every=1s",
	};
	const char *at;
	unsigned i;

	for (i = 0; i < sizeof(good) / sizeof(*good); i++)
		T_EQ(mpl_layer_check(good[i], &at), 0);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		T_EQ(mpl_layer_check(bad[i], &at), -EINVAL);
}

static void delay_overlaps_and_rate_limits(void)
{
	struct mpl_power *pw = NULL;
	struct mpool_vdev vd;
	struct iovec v = { .iov_len = MP_BLOCK };
	uint64_t t, ready[4];
	int i;

	T_EQ(posix_memalign(&v.iov_base, MP_BLOCK, MP_BLOCK), 0);
	memset(v.iov_base, 1, MP_BLOCK);
	dev_open(&vd, 0, "capacity:lat=50ms", &pw, 1);
	t = mpl_now_ns();
	for (i = 0; i < 4; i++)
		T_EQ(vd.ops->writev(vd.dev, 0, &v, 1, 0, &ready[i]), 0);
	for (i = 0; i < 4; i++)
		T_OK(ready[i] >= t + 50000000u);
	T_OK(ready[3] - ready[0] < 40000000u); /* not one after the other */
	T_EQ(vd.ops->flush(vd.dev, NULL), 0);
	T_OK(mpl_now_ns() >= t + 50000000u); /* a plain caller sleeps */
	vd.ops->close(vd.dev);
	dev_open(&vd, 0, "capacity:rate=4096K;staging:lat=1s", &pw, 1);
	t = mpl_now_ns();
	for (i = 0; i < 4; i++)
		T_EQ(vd.ops->readv(vd.dev, 0, &v, 1, &ready[i]), 0);
	T_OK(ready[3] >= t + 3900000u && ready[3] < t + 500000000u); /* 16 KiB at 4 MiB/s */
	vd.ops->close(vd.dev);
	dev_open(&vd, 0, "capacity:rate=1G,write_rate=4096K", &pw, 1);
	t = mpl_now_ns();
	for (i = 0; i < 4; i++)
		T_EQ(vd.ops->writev(vd.dev, 0, &v, 1, 0, &ready[i]), 0);
	T_EQ(vd.ops->readv(vd.dev, 0, &v, 1, &ready[0]), 0);
	T_OK(ready[0] >= t + 3900000u && ready[0] - ready[3] < 900000u); /* one bucket */
	vd.ops->close(vd.dev);
	free(v.iov_base);
	T_OK(!pw);
}

static void a_device_that_pauses_goes_on_at_the_end(void)
{
	const uint64_t every = 1000000000000u;
	uint64_t t0 = mpl_now_ns(), t1, ready[2];
	struct mpl_power *pw = NULL;
	struct mpool_vdev vd;
	struct iovec v = { .iov_len = MP_BLOCK };

	T_EQ(posix_memalign(&v.iov_base, MP_BLOCK, MP_BLOCK), 0);
	memset(v.iov_base, 1, MP_BLOCK);
	dev_open(&vd, 0, "capacity:pause=999999ms,every=1000s", &pw, 1);
	t1 = mpl_now_ns();
	mpl_sleep_until(t1 + 2000000u);
	T_EQ(vd.ops->writev(vd.dev, 0, &v, 1, 0, &ready[0]), 0);
	T_OK(ready[0] >= t0 + every && ready[0] <= t1 + every);
	T_EQ(vd.ops->flush(vd.dev, &ready[1]), 0);
	T_EQ(ready[1], ready[0]);
	vd.ops->close(vd.dev);
	dev_open(&vd, 0, "capacity:pause=1ms,every=1000s", &pw, 1);
	T_EQ(vd.ops->writev(vd.dev, 0, &v, 1, 0, &ready[0]), 0);
	T_OK(ready[0] < t0 + every / 2);
	vd.ops->close(vd.dev);
	free(v.iov_base);
}

static void fault_hits_the_kth_call(void)
{
	struct mpl_power *pw = NULL;
	struct mpool_vdev vd;
	int torn;

	dev_open(&vd, 0, "all:fail=write,after=3", &pw, 1);
	T_EQ(block_write(&vd, 0, 1, 0), 0);
	T_EQ(block_write(&vd, 1, 1, 0), 0);
	T_EQ(block_write(&vd, 2, 1, 0), -EIO);
	T_EQ(block_read(&vd, 2, &torn), 0);
	T_EQ(block_write(&vd, 2, 1, 0), 0);
	vd.ops->close(vd.dev);
	dev_open(&vd, 0, "all:fail=write,fail=flush,after=2,sticky,err=ENOSPC,torn,seed=5", &pw, 1);
	T_EQ(block_write(&vd, 0, 1, 0), 0);
	T_EQ(vd.ops->flush(vd.dev, NULL), -ENOSPC);
	T_EQ(block_write(&vd, 3, 9, 0), -ENOSPC);
	T_EQ(block_write(&vd, 3, 9, 0), -ENOSPC);
	block_read(&vd, 3, &torn);
	T_EQ(torn, 1);
	vd.ops->close(vd.dev);
}

static void volatile_cache_keeps_writes_until_flush(void)
{
	struct mpl_power *pw = NULL;
	struct mpool_vdev vd;
	int torn, fd;
	char c[3];

	dev_open(&vd, 0, "all:volatile", &pw, 1);
	fd = open(path[0], O_RDONLY);
	T_EQ(block_write(&vd, 0, 1, 0), 0);
	T_EQ(block_write(&vd, 1, 2, 0), 0);
	T_EQ(block_write(&vd, 0, 3, 0), 0);
	T_EQ(block_read(&vd, 0, &torn), 3);
	T_EQ(block_read(&vd, 1, &torn), 2);
	T_EQ(block_read(&vd, 2, &torn), 0);
	T_EQ(pread(fd, c, 1, 0), 1);
	T_EQ(c[0], 0);
	T_EQ(block_write(&vd, 1, 4, 1), 0); /* FUA: this one, not the others */
	T_EQ(pread(fd, c, 1, 4096), 1);
	T_EQ(c[0], 4);
	T_EQ(pread(fd, c, 1, 0), 1);
	T_EQ(c[0], 0);
	T_EQ(vd.ops->flush(vd.dev, NULL), 0);
	T_EQ(pread(fd, c, 1, 0), 1);
	T_EQ(c[0], 3);
	T_EQ(pread(fd, c, 1, 4096), 1);
	T_EQ(c[0], 4);
	T_EQ(block_read(&vd, 0, &torn), 3);
	close(fd);
	vd.ops->close(vd.dev);
	mpl_power_free(pw);
}

/* Two devices; 16 flushed blocks of value 1, then 40 writes of value 2, cut at the 57th. */
static void cut_child(const char *spec)
{
	struct mpl_power *pw = NULL;
	struct mpool_vdev vd[2];
	unsigned i;

	dev_open(&vd[0], 0, spec, &pw, 1);
	dev_open(&vd[1], 1, spec, &pw, 1);
	mpl_power_start(pw);
	for (i = 0; i < 16; i++)
		block_write(&vd[i % 2], i, 1, 0);
	vd[0].ops->flush(vd[0].dev, NULL);
	vd[1].ops->flush(vd[1].dev, NULL);
	for (i = 0; i < 40; i++)
		block_write(&vd[i % 2], i, 2, 0);
	for (i = 0; i < 1000; i++) {
		block_write(&vd[0], 60, 3, 0);
		usleep(1000);
	}
	_exit(0);
}

static void cut_once(const char *spec, int *kept, int *lost, int *torn_n)
{
	struct mpool_vdev vd;
	pid_t pid = fork();
	unsigned i;
	int st, v, torn, d;

	if (!pid)
		cut_child(spec);
	T_EQ(waitpid(pid, &st, 0), pid);
	T_OK(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	for (d = 0; d < 2; d++) {
		dev_open(&vd, d, NULL, NULL, 0);
		for (i = (unsigned)d; i < 40; i += 2) {
			v = block_read(&vd, i, &torn);
			T_OK(v >= 0); /* never torn inside a sector */
			T_OK(v == 2 || v == (i < 16 ? 1 : 0)); /* what was flushed stays */
			*torn_n += torn;
			*kept += !torn && v == 2;
			*lost += !torn && v != 2;
		}
		vd.ops->close(vd.dev);
	}
}

static void cut_drops_tears_and_keeps_at_random(void)
{
	int kept = 0, lost = 0, torn = 0, i;
	char spec[64];

	for (i = 1; i <= 6; i++) {
		snprintf(spec, sizeof(spec), "all:volatile,cut_after=57,seed=%d", i);
		cut_once(spec, &kept, &lost, &torn);
	}
	printf("# kept %d, lost %d, torn %d\n", kept, lost, torn);
	T_OK(kept > 20 && lost > 20 && torn > 10);
}

static void cut_comes_by_the_clock_too(void)
{
	int kept = 0, lost = 0, torn = 0;

	cut_once("all:volatile,cut=100ms,seed=9", &kept, &lost, &torn);
	T_OK(lost > 0);
}

int main(void)
{
	const char *tmp = getenv("TMPDIR");
	int i;

	for (i = 0; i < 2; i++)
		snprintf(path[i], sizeof(path[i]), "%s/mpool-layer-%d-%d",
			 tmp && *tmp ? tmp : "/tmp", (int)getpid(), i);
	T_RUN(layer_text_is_checked);
	T_RUN(delay_overlaps_and_rate_limits);
	T_RUN(a_device_that_pauses_goes_on_at_the_end);
	T_RUN(fault_hits_the_kth_call);
	T_RUN(volatile_cache_keeps_writes_until_flush);
	T_RUN(cut_drops_tears_and_keeps_at_random);
	T_RUN(cut_comes_by_the_clock_too);
	for (i = 0; i < 2; i++)
		unlink(path[i]);
	return t_done();
}
