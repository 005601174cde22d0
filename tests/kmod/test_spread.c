/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Objects in pieces on two devices, whose addresses meet: a piece ends on one device where
 * the next begins on the other. What joins transfers by address and does not look at the
 * device reads on there, in another object or in what lay on the disk before the pool.
 * Every path of reading is asked, for bytes that no other has.
 *
 * The pieces meet by force: the core, in this process, makes an object as no allocation would,
 * with borders that lie at no round address, so that a large folio holds one or several. And
 * as they did in a pool that is full but for one piece on each device.
 *
 * Disks: the first two of MPK_DEVS, else two in memory.
 */
#include <sys/ioctl.h>
#include <linux/fs.h>
#include <sys/sendfile.h>

#include "durable.h"

#include "kt.h"

#define MIB	(1u << 20)
#define MARK	0xEE	/* what lay on the disks before */
#define MARK_FROM 23u	/* MiB, and the end: where the pieces lie that meet by force */
#define MARK_TO	36u
#define DISK_MIB 128u	/* of a disk in memory */
#define POOL	"spread"
#define MBLOCK	1u
#define COMMIT	1u
#define DELETE	3u
#define WR	(MPOOL_IOC_OPEN_WRITE | MPOOL_IOC_OPEN_DIRECT)
#define ALICE	1001u

static struct kt_rig rig;
static unsigned char a[4 * MIB] __attribute__((aligned(4096)));
static unsigned char b[4 * MIB] __attribute__((aligned(4096)));

/* ---- the pool ---- */

static void disks_open(void)
{
	unsigned int i, m;

	memset(&rig, 0, sizeof(rig));
	rig.rw = rig.ro = -1;
	snprintf(rig.name, sizeof(rig.name), POOL);
	memset(a, MARK, sizeof(a));
	for (i = 0; i < 2; i++) {
		kt_disk(&rig, (int)i, POOL, DISK_MIB);
		for (m = MARK_FROM; m < MARK_TO; m++)
			T_EQ(pwrite(rig.disk[i].dk_fd, a, MIB, (off_t)m * MIB), MIB);
		T_EQ(fsync(rig.disk[i].dk_fd), 0);
	}
}

static void pool_up(uint32_t owner)
{
	struct mpool_ioc_set st = { .st_arg.ma_flags = MPOOL_IOC_SET_OWNER, .st_uid = owner,
				    .st_gid = owner, .st_mode = 0600, .st_name = POOL };

	KT_EQ(ioc_activate(rig.ctl, rig.dev, 2, 0), 0);
	if (owner)
		KT_EQ(kt_call(rig.ctl, MPOOL_IOC_SET, &st), 0);
	kt_settle("/dev/mpool/" POOL, 1);
}

static void pool_make(void)
{
	disks_open();
	rig.ctl = ioc_ctl_open();
	T_OK(rig.ctl >= 0);
	KT_EQ(ioc_create(rig.ctl, POOL, rig.dev, 2, 0600, MPOOL_IOC_CREATE_FORCE), 0);
}

static void pool_end(void)
{
	kt_destroy(&rig, POOL);
}

/* ---- reading ---- */

/* what object @id holds from @off on, as the path @how brought it */
static int same(const void *buf, const char *how, uint64_t id, uint64_t off, size_t len)
{
	long bad = ioc_pattern_check(buf, id, off, len);

	if (bad < 0)
		return 1;
	printf("# object %llu, %s: byte %llu is 0x%02x\n", (unsigned long long)id, how,
	       (unsigned long long)off + (unsigned long long)bad, ((const uint8_t *)buf)[bad]);
	fflush(stdout);
	return 0;
}

static int by_pread(int fd, uint64_t id, size_t len, size_t step, const char *how)
{
	size_t at, n;
	int is_good = 1;

	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	for (at = step > 65536 ? 0 : step / 2; at < len && is_good; at += n) {
		n = len - at < step ? len - at : step;
		if (pread(fd, b, n, (off_t)at) != (ssize_t)n)
			return 0;
		is_good = same(b, how, id, at, n);
	}
	return is_good;
}

/* each page by itself, the last one first, or with what the kernel reads ahead */
static int by_map(int fd, uint64_t id, size_t len, int is_random)
{
	unsigned char *p;
	size_t at;
	int is_good = 1;

	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return 0;
	madvise(p, len, is_random ? MADV_RANDOM : MADV_HUGEPAGE);
	for (at = len; at && is_random && is_good; at -= 4096)
		is_good = same(p + at - 4096, "a map, backwards", id, at - 4096, 4096);
	is_good = is_good && same(p, "a map", id, 0, len);
	munmap(p, len);
	return is_good;
}

static int by_sendfile(int fd, uint64_t id, size_t len)
{
	int to = memfd_create("to", MFD_CLOEXEC);
	off_t at = 0;
	ssize_t n = 1;

	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	while ((size_t)at < len && n > 0)
		n = sendfile(to, fd, &at, len - (size_t)at);
	n = (size_t)at == len ? pread(to, b, len, 0) : -1;
	close(to);
	return n == (ssize_t)len && same(b, "sendfile", id, 0, len);
}

static int by_advice(int fd, uint64_t id, size_t len)
{
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
	return pread(fd, b, len, 0) == (ssize_t)len && same(b, "WILLNEED", id, 0, len);
}

/* by all of them; 1: each byte is the object's own */
static int reads_true(int pool, uint64_t id, size_t len)
{
	int c = ioc_obj_open(pool, id, 0), d = ioc_obj_open(pool, id, MPOOL_IOC_OPEN_DIRECT);
	int is_good = c >= 0 && d >= 0;

	is_good = is_good && by_pread(d, id, len, len, "O_DIRECT");
	is_good = is_good && by_pread(d, id, len, 24 << 10, "O_DIRECT in steps");
	is_good = is_good && by_pread(c, id, len, len, "pread");
	is_good = is_good && by_pread(c, id, len, 128 << 10, "pread in steps");
	is_good = is_good && by_pread(c, id, len, 24 << 10, "pread in small steps");
	is_good = is_good && by_map(c, id, len, 0) && by_map(c, id, len, 1);
	is_good = is_good && by_sendfile(c, id, len) && by_advice(c, id, len);
	close(c);
	close(d);
	return is_good;
}

/* ---- by force ---- */

static int disk_read(struct mp_dev *md, u64 off, void *buf, size_t len)
{
	return pread(rig.disk[md->d_path[0] - '0'].dk_fd, buf, len, (off_t)off) == (ssize_t)len ?
	       0 : -EIO;
}

static int disk_write(struct mp_dev *md, u64 off, const void *buf, size_t len, unsigned int flags)
{
	(void)flags;
	return pwrite(rig.disk[md->d_path[0] - '0'].dk_fd, buf, len, (off_t)off) == (ssize_t)len ?
	       0 : -EIO;
}

static int disk_flush(struct mp_dev *md)
{
	return fsync(rig.disk[md->d_path[0] - '0'].dk_fd) ? -EIO : 0;
}

static const struct mp_dev_ops disk_ops = {
	.read = disk_read, .write = disk_write, .flush = disk_flush,
};

static struct mp_obj *obj_make(struct mp_pool *pool, u64 id, const struct mp_extent *ext, u32 n)
{
	struct mp_obj *obj = NULL;
	u32 i;

	mutex_lock(&pool->p_lock);
	T_EQ(mp_otab_new(pool, n, &obj), 0);
	obj->o_node.n_key = id;
	obj->o_gen = 1;
	obj->o_kind = MP_MBLOCK;
	obj->o_is_placed = true;
	obj->o_refs = 1;
	pool->p_nhandles++;
	memcpy(obj->o_extent, ext, n * sizeof(*ext));
	for (i = 0; i < n; i++) {
		obj->o_capacity += (u64)ext[i].ex_count * MP_BLOCK;
		T_EQ(mp_smap_take(&pool->p_dev[ext[i].ex_slot]->pd_smap, ext[i].ex_start,
				  ext[i].ex_count), 0);
	}
	mutex_unlock(&pool->p_lock);
	return obj;
}

/* an object of these pieces, committed, with its pattern; its id, and its length in *len */
static u64 obj_force(struct mp_pool *pool, const struct mp_extent *ext, u32 n, u64 *len)
{
	struct mp_op op = { .op_type = MP_OP_COMMIT };
	struct mp_dev *dev;
	struct mp_obj *obj;
	u64 id = 0, at, pos, contig;

	T_EQ(mp_obj_id_reserve(pool, 1, &id), 0);
	obj = obj_make(pool, id, ext, n);
	*len = obj->o_capacity;
	ioc_pattern(a, id, 0, *len);
	T_EQ(mp_obj_write_begin(obj, 0, *len), 0);
	for (at = 0; at < *len; at += contig) {
		T_EQ(mp_obj_map(obj, at, *len - at, &dev, &pos, &contig), 0);
		T_EQ(dev->d_ops->write(dev, pos, a + at, contig, 0), 0);
	}
	mp_obj_write_end(obj, 0, 0);
	op.op_obj = obj;
	op.op_length = *len;
	T_EQ(mp_pool_batch(pool, &op, 1), 0);
	mp_obj_put(obj);
	return id;
}

/*
 * From device to device with nothing between the addresses, in pieces of these lengths. What
 * lies beside each piece on the other device is MARK.
 */
static u64 zigzag(struct mp_pool *pool, u64 start, const u32 *count, u32 n, u64 *len)
{
	struct mp_extent ext[16];
	u32 i;

	T_OK(n <= 16);
	for (i = 0; i < n; start += count[i++])
		ext[i] = (struct mp_extent){ .ex_start = start, .ex_count = count[i],
					     .ex_slot = i % 2 };
	return obj_force(pool, ext, n, len);
}

static void pieces_that_meet_are_read_each_from_its_device(void)
{
	static const u32 odd[] = { 19, 45, 37, 1, 2, 130, 7, 64, 200, 3, 61, 87 };
	static const u32 even[] = { 64, 256, 128, 32, 160 };
	struct mp_dev dev[2], *devs[2] = { &dev[0], &dev[1] };
	static const char *const path[2] = { "0", "1" };
	struct mp_pool *pool;
	u64 id[2], len[2], size;
	int i;

	pool_make();
	for (i = 0; i < 2; i++) {
		T_EQ(ioctl(rig.disk[i].dk_fd, BLKGETSIZE64, &size), 0);
		dev[i] = (struct mp_dev){ .d_ops = &disk_ops, .d_size = size, .d_sector = 512,
					  .d_flags = MP_DEV_IS_BLOCK, .d_path = path[i] };
	}
	T_EQ(mp_pool_open(devs, 2, 0, &pool), 0);
	/* past the metadata log, where no page of a piece is one of a file */
	id[0] = zigzag(pool, (24u << 8) + 3, odd, ARRAY_SIZE(odd), &len[0]);
	id[1] = zigzag(pool, 32u << 8, even, ARRAY_SIZE(even), &len[1]);
	T_EQ(mp_pool_close(pool), 0);
	pool_up(0);
	kt_open(&rig);
	for (i = 0; i < 2; i++)
		T_OK(reads_true(rig.ro, id[i], len[i]));
	pool_end();
}

/* ---- as it came about ---- */

/* an object of its own pattern; 0: no room */
static uint64_t put(int fd, unsigned int mib)
{
	uint64_t id = 0;
	size_t len = (size_t)mib * MIB;
	int ofd;

	if (ioc_alloc(fd, MBLOCK, 0, len, 0, &id))
		return 0;
	ofd = ioc_obj_open(fd, id, WR);
	ioc_pattern(a, id, 0, len);
	if (ofd < 0 || pwrite(ofd, a, len, 0) != (ssize_t)len ||
	    ioc_op(fd, COMMIT, id, len))
		return 0;
	close(ofd);
	ioc_drop(fd, id);
	return id;
}

/*
 * What the owner of the node can do, without any right beside: fill the pool, delete two
 * objects that were made side by side, and make a larger one of their room. 0: all is well.
 */
static int alice(void *arg)
{
	static uint64_t id[4096];
	int fd, k, n, odd;
	uint64_t big;

	(void)arg;
	if (setgid(ALICE) || setuid(ALICE))
		return 1;
	fd = ioc_pool_open(POOL, O_RDWR);
	if (fd < 0)
		return 2;
	for (n = 0; n < 4096 && !ioc_alloc(fd, MBLOCK, 0, MIB, 0, &id[n]); n++)
		;
	/* what is left in pieces */
	while (!ioc_alloc(fd, MBLOCK, 0, 4096, 0, &big))
		;
	printf("# %d objects of 1 MiB fill the pool\n", n);
	for (k = 20; k < 60; k += 8) {
		odd = k / 8 & 1;
		if (k + 3 >= n || ioc_drop(fd, id[k + 2 + odd]) ||
		    ioc_drop(fd, id[k + 1 - odd]))
			return 3;
		big = put(fd, 2);
		if (!big)
			return 4;
		if (!reads_true(fd, big, 2 * MIB))
			return 5;
	}
	close(fd);
	return 0;
}

static void the_owner_of_a_full_pool_reads_what_is_hers(void)
{
	pool_make();
	pool_up(ALICE);
	T_EQ(kt_child(alice, NULL), 0);
	pool_end();
}

/* a kernel that has just booted may wait for minutes before it has any */
static void random_enough(void *ctx, void *buf, size_t len)
{
	(void)ctx;
	for (size_t i = 0; i < len; i++)
		((unsigned char *)buf)[i] = (unsigned char)rand();
}

int main(void)
{
	static const struct os_user_hooks hooks = { .random = random_enough };
	const char *why = kt_missing();

	os_user_hooks_set(&hooks);
	if (why)
		return t_skip_all(why);
	T_RUN(pieces_that_meet_are_read_each_from_its_device);
	T_RUN(the_owner_of_a_full_pool_reads_what_is_hers);
	return t_done();
}
