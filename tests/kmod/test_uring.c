// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Control through io_uring: the same commands with the same results, really
 * counted by the module, never waiting in the submitter; and one flush for a
 * batch, counted on the devices.
 */
#include <liburing.h>
#include <limits.h>
#include <sys/sysmacros.h>

#include "kt.h"

#define DEPTH	64u
#define NOBJS	64u

static struct kt_rig rig;

static void ring_up(struct io_uring *ring)
{
	T_EQ(io_uring_queue_init(DEPTH, ring, 0), 0);
}

static void prep(struct io_uring *ring, int fd, unsigned long cmd, const void *arg, uint64_t data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	uint64_t addr = (uintptr_t)arg;

	T_OK(sqe != NULL);
	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = (uint32_t)cmd;
	memcpy(&sqe->addr3, &addr, sizeof(addr));	/* where the payload begins */
	sqe->user_data = data;
}

/* sends @n prepared ones and takes as many results: res[user_data] */
static void finish(struct io_uring *ring, unsigned int n, int *res)
{
	struct io_uring_cqe *cqe;
	unsigned int i;

	T_EQ(io_uring_submit(ring), n);
	for (i = 0; i < n; i++) {
		T_EQ(io_uring_wait_cqe(ring, &cqe), 0);
		res[cqe->user_data] = cqe->res;
		io_uring_cqe_seen(ring, cqe);
	}
}

static int one(struct io_uring *ring, int fd, unsigned long cmd, void *arg)
{
	int res = INT_MIN;

	((struct mpool_ioc_arg *)arg)->ma_size = _IOC_SIZE(cmd);
	prep(ring, fd, cmd, arg, 0);
	finish(ring, 1, &res);
	return res;
}

static void results_equal_those_of_ioctl(void)
{
	struct mpool_ioc_info a, b = { 0 };
	struct mpool_ioc_hold ho = { .ho_id = 0x1234 };
	struct io_uring ring;

	ring_up(&ring);
	T_EQ(one(&ring, rig.ro, MPOOL_IOC_INFO, &b), 0);
	T_EQ(ioc_info(rig.ro, &a), 0);
	T_STREQ(b.in_name, a.in_name);
	T_MEMEQ(b.in_uuid, a.in_uuid, 16);
	T_MEMEQ(&b.in_class, &a.in_class, sizeof(a.in_class));
	T_EQ(one(&ring, rig.ro, MPOOL_IOC_HOLD, &ho), -ENOENT);
	T_OK(ho.ho_arg.ma_error != 0);
	io_uring_queue_exit(&ring);
}

static void the_module_counts_them(void)
{
	struct mpool_ioc_info in[DEPTH], before, after;
	struct io_uring ring;
	int res[DEPTH];
	unsigned int i;

	ring_up(&ring);
	T_EQ(ioc_info(rig.rw, &before), 0);
	memset(in, 0, sizeof(in));
	for (i = 0; i < DEPTH; i++) {
		in[i].in_arg.ma_size = sizeof(in[i]);
		prep(&ring, rig.ro, MPOOL_IOC_INFO, &in[i], i);
	}
	finish(&ring, DEPTH, res);
	T_EQ(ioc_info(rig.rw, &after), 0);
	for (i = 0; i < DEPTH; i++) {
		T_EQ(res[i], 0);
		T_STREQ(in[i].in_name, rig.name);
	}
	T_EQ(after.in_uring_cmds - before.in_uring_cmds, DEPTH);
	io_uring_queue_exit(&ring);
}

static void bad_commands_fail_in_their_completion(void)
{
	struct mpool_ioc_info in = { 0 };
	struct mpool_ioc_open op = { .op_id = 1 };
	struct mpool_ioc_flush fl = { .fl_mask = 1 };
	struct mpool_ioc_version iv = { 0 };
	struct io_uring_sqe *sqe;
	struct io_uring ring;
	int res = 0;

	ring_up(&ring);
	T_EQ(one(&ring, rig.rw, MPOOL_IOC_OPEN, &op), -EOPNOTSUPP);
	T_EQ(one(&ring, rig.ro, MPOOL_IOC_FLUSH, &fl), -EBADF);
	T_EQ(one(&ring, rig.rw, MPOOL_IOC_LIST, &in), -ENOTTY);
	T_EQ(one(&ring, rig.rw, MPOOL_IOC_VERSION, &iv), 0);
	prep(&ring, rig.rw, MPOOL_IOC_INFO, (void *)8, 0);
	finish(&ring, 1, &res);
	T_EQ(res, -EFAULT);
	in.in_arg.ma_size = 16;
	prep(&ring, rig.rw, MPOOL_IOC_INFO, &in, 0);
	finish(&ring, 1, &res);
	T_EQ(res, -ENOTTY);
	/* the second half of the payload is reserved */
	in.in_arg.ma_size = sizeof(in);
	prep(&ring, rig.rw, MPOOL_IOC_INFO, &in, 0);
	sqe = &ring.sq.sqes[(ring.sq.sqe_tail - 1) & *ring.sq.kring_mask];
	sqe->__pad2[0] = 1;
	finish(&ring, 1, &res);
	T_EQ(res, -EINVAL);
	io_uring_queue_exit(&ring);
}

struct flushes {
	uint64_t counted;	/* by the module */
	uint64_t device;	/* by the block layer; only where the device has a cache */
	int has_cache;
};

static void flushes_of(unsigned int slot, struct flushes *f, struct mpool_ioc_dev_info *di)
{
	unsigned long long v[17] = { 0 };
	char path[96], mode[32] = "";
	FILE *file;
	int i;

	memset(di, 0, sizeof(*di));
	di->di_slot = slot;
	T_EQ(ioc_call(rig.ro, MPOOL_IOC_DEV_INFO, di), 0);
	f->counted = di->di_flushes;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/stat", di->di_major, di->di_minor);
	file = fopen(path, "re");
	T_OK(file != NULL);
	for (i = 0; i < 17 && fscanf(file, "%llu", &v[i]) == 1; i++)
		;
	fclose(file);
	f->device = v[15];
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/queue/write_cache", di->di_major,
		 di->di_minor);
	file = fopen(path, "re");
	T_OK(file != NULL);
	T_OK(fgets(mode, sizeof(mode), file) != NULL);
	fclose(file);
	f->has_cache = !strncmp(mode, "write back", 10);
}

/* NOBJS objects of staging with 8 KiB each, written and held; ids to @id */
static void written_objects(uint64_t *id)
{
	struct mpool_ioc_alloc_one ao[NOBJS];
	struct mpool_ioc_alloc al = { .al_n = NOBJS };
	void *buf = NULL;
	unsigned int i;
	int fd;

	T_EQ(posix_memalign(&buf, 4096, 8192), 0);
	memset(ao, 0, sizeof(ao));
	for (i = 0; i < NOBJS; i++) {
		ao[i].ao_kind = 1;
		ao[i].ao_mclass = 1;
		ao[i].ao_capacity = 8192;
	}
	al.al_req = (uintptr_t)ao;
	al.al_ids = (uintptr_t)id;
	KT_EQ(kt_call(rig.rw, MPOOL_IOC_ALLOC, &al), 0);
	for (i = 0; i < NOBJS; i++) {
		fd = ioc_obj_open(rig.rw, id[i], MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT);
		T_OK(fd >= 0);
		ioc_pattern(buf, id[i], 0, 8192);
		T_EQ(pwrite(fd, buf, 8192, 0), 8192);
		close(fd);
	}
	free(buf);
}

static void dropped_and_deleted(uint64_t *id)
{
	unsigned int i;

	for (i = 0; i < NOBJS; i++) {
		KT_EQ(ioc_drop(rig.rw, id[i]), 0);
		KT_EQ(ioc_op(rig.rw, 3, id[i], 0), 0);
	}
}

/*
 * One batch of 64 commits: each device with data is flushed once before the
 * record, each device of the metadata log once after it. Where the metadata
 * log has a staging device, that is the same one.
 */
static void a_batch_of_64_costs_one_flush_of_each(void)
{
	struct flushes before[2], after[2];
	struct mpool_ioc_dev_info di[2];
	struct mpool_ioc_op op[NOBJS];
	struct mpool_ioc_batch ba = { .ba_n = NOBJS };
	struct mpool_ioc_info in0, in1;
	struct io_uring ring;
	uint64_t id[NOBJS];
	unsigned int i;

	ring_up(&ring);
	written_objects(id);
	memset(op, 0, sizeof(op));
	for (i = 0; i < NOBJS; i++) {
		op[i].op_type = 1;
		op[i].op_id = id[i];
		op[i].op_length = 8192;
	}
	ba.ba_ops = (uintptr_t)op;
	T_EQ(ioc_info(rig.rw, &in0), 0);
	for (i = 0; i < 2; i++)
		flushes_of(i, &before[i], &di[i]);
	T_EQ(one(&ring, rig.rw, MPOOL_IOC_BATCH, &ba), 0);
	for (i = 0; i < 2; i++)
		flushes_of(i, &after[i], &di[i]);
	T_EQ(ioc_info(rig.rw, &in1), 0);
	T_EQ(in1.in_uring_cmds - in0.in_uring_cmds, 1);
	T_EQ(in1.in_batches - in0.in_batches, 1);
	T_EQ(in1.in_batch_ops - in0.in_batch_ops, NOBJS);
	T_EQ(in1.in_objects - in0.in_objects, NOBJS);
	T_OK(di[0].di_has_md || di[1].di_has_md);
	for (i = 0; i < 2; i++) {
		uint64_t want = (di[i].di_mclass == 1) + (di[i].di_has_md != 0);
		uint64_t got = after[i].counted - before[i].counted;

		printf("# %s: class %u, metadata %u: %llu flushes counted, %llu on the disk%s\n",
		       di[i].di_path, di[i].di_mclass, di[i].di_has_md, (unsigned long long)got,
		       (unsigned long long)(after[i].device - before[i].device),
		       before[i].has_cache ? "" : " (it has no cache)");
		T_EQ(got, want);
		if (before[i].has_cache)
			T_EQ(after[i].device - before[i].device, want);
	}
	io_uring_queue_exit(&ring);
	dropped_and_deleted(id);
}

/* the other way round: without batches the same work costs a flush for each object */
static void one_by_one_costs_a_flush_of_each(void)
{
	struct flushes before, after;
	struct mpool_ioc_dev_info di;
	uint64_t id[NOBJS];
	unsigned int i, slot = 0;

	written_objects(id);
	flushes_of(slot, &before, &di);
	if (!di.di_has_md)
		flushes_of(++slot, &before, &di);
	T_OK(di.di_has_md);
	for (i = 0; i < NOBJS; i++)
		KT_EQ(ioc_op(rig.rw, 1, id[i], 8192), 0);
	flushes_of(slot, &after, &di);
	T_OK(after.counted - before.counted >= NOBJS);
	dropped_and_deleted(id);
}

static void a_closed_ring_leaves_nothing_behind(void)
{
	/* commands of a closed ring may still come back later */
	static struct mpool_ioc_info in[DEPTH];
	struct mpool_ioc_info in0, in1;
	struct io_uring ring;
	unsigned int i, round;

	T_EQ(ioc_info(rig.rw, &in0), 0);
	for (round = 0; round < 20; round++) {
		ring_up(&ring);
		for (i = 0; i < DEPTH; i++) {
			in[i].in_arg.ma_size = sizeof(in[i]);
			prep(&ring, rig.rw, MPOOL_IOC_INFO, &in[i], i);
		}
		T_EQ(io_uring_submit(&ring), DEPTH);
		io_uring_queue_exit(&ring);
	}
	/* their files do as well */
	for (i = 0; i < 250; i++) {
		T_EQ(ioc_info(rig.rw, &in1), 0);
		if (in1.in_opens == in0.in_opens)
			break;
		usleep(20000);
	}
	T_EQ(in1.in_opens, in0.in_opens);
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* on a disk that takes 200 ms for each request, submission takes no request's time */
static void submission_does_not_wait_for_the_disk(void)
{
	struct mpool_ioc_alloc_one ao = { .ao_kind = 2, .ao_capacity = 65536 };
	struct mpool_ioc_alloc al = { .al_n = 1 };
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	struct ioc_disk dk;
	uint64_t id = 0, t0, t1, t2;
	int fd;

	T_EQ(ioc_disk_make(&dk, "ktslow", 64, false, 200000000), 0);
	fd = kt_up_one(rig.ctl, &dk);
	al.al_arg.ma_size = sizeof(al);
	al.al_req = (uintptr_t)&ao;
	al.al_ids = (uintptr_t)&id;
	ring_up(&ring);
	prep(&ring, fd, MPOOL_IOC_ALLOC, &al, 0);
	t0 = now_ms();
	T_EQ(io_uring_submit(&ring), 1);
	t1 = now_ms();
	T_EQ(io_uring_wait_cqe(&ring, &cqe), 0);
	t2 = now_ms();
	T_EQ(cqe->res, 0);
	io_uring_queue_exit(&ring);
	T_OK(id != 0);
	printf("# submission %llu ms, completion %llu ms\n", (unsigned long long)(t1 - t0),
	       (unsigned long long)(t2 - t0));
	close(fd);
	T_EQ(ioc_deactivate(rig.ctl, "ktslow"), 0);
	ioc_disk_remove(&dk);
	/* an append object is durable when it exists: at least one request's time */
	T_OK(t2 - t0 >= 150);
	T_OK((t1 - t0) * 2 < t2 - t0);
}

static void the_pool_comes_up(void)
{
	const char *devs = getenv("MPK_DEVS");
	char path[2][64];
	int i;

	memset(&rig, 0, sizeof(rig));
	rig.rw = rig.ro = -1;
	strcpy(rig.name, "kturing");
	/* real disks if there are any: those of memory have no cache to flush */
	if (!devs || sscanf(devs, "%63s %63s", path[0], path[1]) != 2) {
		kt_up(&rig, "kturing", 128);
		return;
	}
	for (i = 0; i < 2; i++) {
		rig.dev[i].id_fd = open(path[i], O_RDWR | O_CLOEXEC);
		rig.dev[i].id_mclass = (uint32_t)i;
		T_OK(rig.dev[i].id_fd >= 0);
		rig.disk[i].dk_fd = -1;
	}
	rig.ctl = ioc_ctl_open();
	KT_EQ(ioc_create(rig.ctl, rig.name, rig.dev, 2, 0600, MPOOL_IOC_CREATE_FORCE), 0);
	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	kt_open(&rig);
}

static void the_pool_goes_down(void)
{
	kt_close(&rig);
	KT_EQ(ioc_deactivate(rig.ctl, rig.name), 0);
	KT_EQ(ioc_destroy(rig.ctl, rig.dev, 2), 0);
	if (*rig.disk[0].dk_name) {
		ioc_disk_remove(&rig.disk[0]);
		ioc_disk_remove(&rig.disk[1]);
	} else {
		close(rig.dev[0].id_fd);
		close(rig.dev[1].id_fd);
	}
	close(rig.ctl);
}

int main(void)
{
	const char *why = kt_missing();

	if (why)
		return t_skip_all(why);
	T_RUN(the_pool_comes_up);
	if (!t_failed) {
		T_RUN(results_equal_those_of_ioctl);
		T_RUN(the_module_counts_them);
		T_RUN(bad_commands_fail_in_their_completion);
		T_RUN(a_batch_of_64_costs_one_flush_of_each);
		T_RUN(one_by_one_costs_a_flush_of_each);
		T_RUN(a_closed_ring_leaves_nothing_behind);
		T_RUN(submission_does_not_wait_for_the_disk);
	}
	T_RUN(the_pool_goes_down);
	return t_done();
}
