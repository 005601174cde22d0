// SPDX-License-Identifier: GPL-2.0-only
/*
 * A block device behind the core's mp_dev: claimed exclusively, read and
 * written by bios, past the device's own page cache.
 *
 * One flush owner per device. Every flush of the pool comes through dev_flush():
 * callers that wait at the same time share one device flush, provided that it
 * begins after they came. Linux reports a flush error once. So the first
 * failure is kept for good and the pool is told before any waiter is released:
 * no caller can see a failed flush and then find the pool still writable. A device
 * to which nothing was written since its last good flush began is not flushed again.
 *
 * Accounting. What one user submits, others wait for: frames of the metadata log that it leads,
 * superblocks, frames and reads of an mlog (under its lock), the heartbeat, flushes. A limit of
 * that user's control group, or an idle I/O priority, would be a limit of all. So these are the
 * root group's, at a priority of their own (bio_share()). Discards run in a worker, which is
 * in the root group. What only its user waits for is that user's: the data of objects
 * (object_io.c) and the zeroes of a new object (dev_zero()).
 *
 * No allocation here may wait for writes that wait for us: GFP_NOIO throughout.
 */
#include <linux/bio.h>
#include <linux/blk-cgroup.h>
#include <linux/file.h>
#include <linux/highmem.h>
#include <linux/ioprio.h>
#include <linux/pagemap.h>
#include <linux/vmalloc.h>

#include "mpk.h"
#include "trace.h"

#define BIO_BYTES	(1u << 20)	/* of one bio */

/* as the journals of file systems: before what users write, after what has real-time priority */
#define SHARED_IOPRIO	IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 3)

/* ---- removed devices ---- */

/*
 * After a failed transfer or flush, in any context: an error may be that request's
 * alone, but a device that was removed makes the pool read-only at once.
 */
static void dev_failed(struct mpk_dev *dev)
{
	/* pairs with pool_load() and add_run() */
	struct mpk_pool *pool = smp_load_acquire(&dev->dv_pool);

	this_cpu_inc(dev->dv_stats->ds_errors);
	/* while the core still opens the pool it gets the error itself and gives up */
	if (!pool || disk_live(dev->dv_bdev->bd_disk) || READ_ONCE(dev->dv_is_gone))
		return;
	WRITE_ONCE(dev->dv_is_gone, true);
	mp_pool_fail(pool->pl_core, MP_K_GONE, -EIO, "%s was removed", dev->dv_path);
}

/* ---- statistics ---- */

void mpk_dev_account(struct mpk_dev *dev, bool is_write, size_t bytes, int err)
{
	if (err)
		dev_failed(dev);
	if (is_write) {
		this_cpu_inc(dev->dv_stats->ds_writes);
		this_cpu_add(dev->dv_stats->ds_write_bytes, bytes);
		/*
		 * After the write, before its end is told: a flush that is
		 * asked for then must see it. Failed writes count, parts may be there.
		 */
		atomic64_inc_return(&dev->dv_written);
	} else {
		this_cpu_inc(dev->dv_stats->ds_reads);
		this_cpu_add(dev->dv_stats->ds_read_bytes, bytes);
	}
}

void mpk_dev_stats_sum(struct mpk_dev *dev, struct mpk_dev_stats *out)
{
	int cpu;

	memset(out, 0, sizeof(*out));
	for_each_possible_cpu(cpu) {
		const struct mpk_dev_stats *ds = per_cpu_ptr(dev->dv_stats, cpu);

		out->ds_read_bytes += READ_ONCE(ds->ds_read_bytes);
		out->ds_write_bytes += READ_ONCE(ds->ds_write_bytes);
		out->ds_discard_bytes += READ_ONCE(ds->ds_discard_bytes);
		out->ds_reads += READ_ONCE(ds->ds_reads);
		out->ds_writes += READ_ONCE(ds->ds_writes);
		out->ds_flushes += READ_ONCE(ds->ds_flushes);
		out->ds_errors += READ_ONCE(ds->ds_errors);
	}
}

/* ---- transfers ---- */

/* others wait for @bio, too: it is not the caller's */
static void bio_share(struct bio *bio)
{
	bio_associate_blkg_from_css(bio, blkcg_root_css);
	bio->bi_ioprio = SHARED_IOPRIO;
}

/* one bio of at most BIO_BYTES; @buf may come from vmalloc and is then taken page by page */
static int bio_rw(struct mpk_dev *dev, u64 off, void *buf, unsigned int len, blk_opf_t opf)
{
	unsigned int nr = DIV_ROUND_UP(offset_in_page(buf) + len, PAGE_SIZE), n;
	bool is_vmalloc = is_vmalloc_addr(buf);
	struct bio *bio;
	int rc;

	bio = bio_alloc(dev->dv_bdev, nr, opf, GFP_NOIO);
	bio_share(bio);
	bio->bi_iter.bi_sector = off >> SECTOR_SHIFT;
	if (is_vmalloc && op_is_write(opf))
		flush_kernel_vmap_range(buf, (int)len);
	while (len) {
		n = min_t(unsigned int, len, PAGE_SIZE - offset_in_page(buf));
		if (bio_add_page(bio, is_vmalloc ? vmalloc_to_page(buf) : virt_to_page(buf), n,
				 offset_in_page(buf)) != n)
			break;
		buf += n;
		len -= n;
	}
	rc = WARN_ON_ONCE(len) ? -EIO : submit_bio_wait(bio);
	bio_put(bio);
	return rc;
}

static int dev_rw(struct mpk_dev *dev, u64 off, void *buf, size_t len, blk_opf_t opf)
{
	size_t at, n;
	int rc = 0;

	if (off > dev->dv_core.d_size || len > dev->dv_core.d_size - off)
		return -EIO;
	for (at = 0; at < len && !rc; at += n) {
		n = min_t(size_t, len - at, BIO_BYTES);
		rc = mp_dev_err(bio_rw(dev, off + at, buf + at, (unsigned int)n, opf));
	}
	if (!op_is_write(opf) && is_vmalloc_addr(buf))
		invalidate_kernel_vmap_range(buf, (int)len);
	return rc;
}

static int dev_read(struct mp_dev *md, u64 off, void *buf, size_t len)
{
	struct mpk_dev *dev = mpk_dev_of(md);
	int rc = dev_rw(dev, off, buf, len, REQ_OP_READ | REQ_META);

	mpk_dev_account(dev, false, len, rc);
	return rc;
}

static int dev_write(struct mp_dev *md, u64 off, const void *buf, size_t len, unsigned int flags)
{
	/* REQ_IDLE: not one of the writes that are held back for readers */
	blk_opf_t opf = REQ_OP_WRITE | REQ_SYNC | REQ_IDLE | REQ_META;
	struct mpk_dev *dev = mpk_dev_of(md);
	u64 begin = MPK_TRACE_BEGIN(mpool_md_write);
	int rc;

	if (flags & MP_DEV_FUA)
		opf |= REQ_FUA;
	rc = dev_rw(dev, off, (void *)buf, len, opf);
	if (!(flags & MP_DEV_BEAT) || rc)
		mpk_dev_account(dev, true, len, rc);
	trace_mpool_md_write(dev->dv_bdev->bd_dev, off, len, begin, rc);
	return rc;
}

static int dev_discard(struct mp_dev *md, u64 off, u64 len)
{
	struct mpk_dev *dev = mpk_dev_of(md);
	int rc = blkdev_issue_discard(dev->dv_bdev, off >> SECTOR_SHIFT, len >> SECTOR_SHIFT,
				      GFP_NOIO);

	if (!rc)
		this_cpu_add(dev->dv_stats->ds_discard_bytes, len);
	else if (rc != -EOPNOTSUPP)
		this_cpu_inc(dev->dv_stats->ds_errors);
	return rc;
}

/* the core asks in steps: a device without the command for it is written */
static int dev_zero(struct mp_dev *md, u64 off, u64 len)
{
	struct mpk_dev *dev = mpk_dev_of(md);
	int rc = mp_dev_err(blkdev_issue_zeroout(dev->dv_bdev, off >> SECTOR_SHIFT,
						 len >> SECTOR_SHIFT, GFP_NOIO, 0));

	mpk_dev_account(dev, true, len, rc);
	return rc;
}

/* ---- the flush owner ---- */

static int bio_flush(struct mpk_dev *dev)
{
	struct bio bio;
	int rc;

	bio_init(&bio, dev->dv_bdev, NULL, 0, REQ_OP_WRITE | REQ_PREFLUSH);
	bio_share(&bio);
	rc = submit_bio_wait(&bio);
	bio_uninit(&bio);
	return rc;
}

/* the owner's work: one device flush, without the lock */
static int flush_device(struct mpk_dev *dev)
{
	u64 written = (u64)atomic64_read_acquire(&dev->dv_written);
	struct mpk_pool *pool;
	u64 begin;
	int rc;

	if (written == dev->dv_flushed)
		return 0;
	begin = MPK_TRACE_BEGIN(mpool_flush);
	this_cpu_inc(dev->dv_stats->ds_flushes);
	rc = mp_dev_err(bio_flush(dev));
	/* without a cache of its own even a removed device acknowledges */
	if (!rc && !disk_live(dev->dv_bdev->bd_disk))
		rc = -EIO;
	trace_mpool_flush(dev->dv_bdev->bd_dev, begin, rc);
	if (!rc) {
		dev->dv_flushed = written;
		return 0;
	}
	dev_failed(dev);
	/* as in dev_failed() */
	pool = smp_load_acquire(&dev->dv_pool);
	if (pool)
		mp_pool_fail(pool->pl_core, MP_MD_FLUSH, rc, "%s: flush: error %d", dev->dv_path,
			     rc);
	return rc;
}

static int dev_flush(struct mp_dev *md)
{
	struct mpk_dev *dev = mpk_dev_of(md);
	u64 want;
	int rc;

	mutex_lock(&dev->dv_flush_lock);
	want = dev->dv_flush_begun + 1;
	while (dev->dv_flush_done < want && !dev->dv_flush_err) {
		if (dev->dv_is_flushing) {
			os_cond_wait(&dev->dv_flush_cond, &dev->dv_flush_lock);
			continue;
		}
		dev->dv_is_flushing = true;
		dev->dv_flush_begun++;
		mutex_unlock(&dev->dv_flush_lock);
		rc = flush_device(dev);
		mutex_lock(&dev->dv_flush_lock);
		dev->dv_is_flushing = false;
		if (rc)
			dev->dv_flush_err = rc;
		else
			dev->dv_flush_done = dev->dv_flush_begun;
		os_cond_wake_all(&dev->dv_flush_cond);
	}
	rc = dev->dv_flush_err;
	mutex_unlock(&dev->dv_flush_lock);
	return rc;
}

/* ---- claim and release ---- */

/* reserve: a block device has its space */
static const struct mp_dev_ops dev_ops = {
	.read = dev_read,
	.write = dev_write,
	.flush = dev_flush,
	.zero = dev_zero,
};

static const struct mp_dev_ops dev_ops_discard = {
	.read = dev_read,
	.write = dev_write,
	.flush = dev_flush,
	.zero = dev_zero,
	.discard = dev_discard,
};

static struct mpk_dev *dev_new(void)
{
	/* the pool's, as all that an activation makes */
	struct mpk_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return NULL;
	dev->dv_stats = alloc_percpu(struct mpk_dev_stats);
	if (!dev->dv_stats) {
		kfree(dev);
		return NULL;
	}
	mutex_init(&dev->dv_flush_lock);
	os_cond_init(&dev->dv_flush_cond);
	atomic64_set(&dev->dv_written, 1);
	return dev;
}

void mpk_dev_release(struct mpk_dev *dev)
{
	if (!dev)
		return;
	if (dev->dv_bdev) {
		if (dev->dv_peek) {
			fput(dev->dv_peek);
		} else {
			/* what others read meanwhile is older than what we wrote */
			invalidate_bdev(dev->dv_bdev);
			mpk_claim_close(&dev->dv_claim);
		}
	}
	mutex_destroy(&dev->dv_flush_lock);
	free_percpu(dev->dv_stats);
	kfree(dev);
}

/* the core's view of the device; what the media say is the core's to check */
static int dev_setup(struct mpk_dev *dev, struct block_device *bdev, bool is_rdonly)
{
	struct mp_dev *md = &dev->dv_core;
	int rc;

	dev->dv_bdev = bdev;
	snprintf(dev->dv_path, sizeof(dev->dv_path), "/dev/%pg", bdev);
	md->d_path = dev->dv_path;
	md->d_ops = bdev_max_discard_sectors(bdev) && !is_rdonly ? &dev_ops_discard : &dev_ops;
	md->d_size = bdev_nr_bytes(bdev);
	md->d_sector = bdev_logical_block_size(bdev);
	md->d_flags = MP_DEV_IS_BLOCK | MP_DEV_DIRECT | (is_rdonly ? MP_DEV_RDONLY : 0);
	if (bdev_is_zoned(bdev))
		return mp_err(MP_K_ZONED, "%s", dev->dv_path);
	if (md->d_sector > MP_BLOCK)
		return mp_err(MP_SB_BLOCKSIZE, "%s: sectors of %u bytes", dev->dv_path,
			      md->d_sector);
	/* before any read beyond its end */
	if (md->d_size < MP_MIN_DEV)
		return mp_err(MP_DEV_SMALL, "%s: %llu bytes", dev->dv_path, md->d_size);
	/* the device's page cache is another cache: write back, then drop what is ours now */
	rc = sync_blockdev(bdev);
	if (rc)
		return mp_err_as(MP_SB_READ, rc, "%s: writing back its page cache: error %d",
				 dev->dv_path, rc);
	if (!dev->dv_peek)
		invalidate_bdev(bdev);
	return 0;
}

dev_t mpk_dev_number(int fd)
{
	struct file *file = fget(fd);
	dev_t dev = 0;

	if (file && S_ISBLK(file->f_mapping->host->i_mode))
		dev = I_BDEV(file->f_mapping->host)->bd_dev;
	if (file)
		fput(file);
	return dev;
}

/* the block device of @fd, whose file is returned referenced */
static struct file *dev_file(int fd, bool is_rdonly)
{
	fmode_t need = is_rdonly ? FMODE_READ : FMODE_READ | FMODE_WRITE;
	struct file *file = fget(fd);
	int rc = 0;

	if (!file)
		return ERR_PTR(mp_err_as(MP_K_NOTBLK, -EBADF, "descriptor %d is not open", fd));
	if (!S_ISBLK(file->f_mapping->host->i_mode))
		rc = mp_err(MP_K_NOTBLK, "descriptor %d", fd);
	else if ((file->f_mode & need) != need)
		rc = mp_err(MP_K_DEVMODE, "/dev/%pg: descriptor %d is open for %s only",
			    I_BDEV(file->f_mapping->host), fd,
			    file->f_mode & FMODE_READ ? "reading" : "writing");
	if (rc) {
		fput(file);
		return ERR_PTR(rc);
	}
	return file;
}

static int claim_failed(struct block_device *bdev, int err)
{
	char name[MPOOL_IOC_NAME];

	if (err == -EBUSY && mpk_pool_of_dev(bdev->bd_dev, name))
		return mp_err(MP_K_ACTIVE, "/dev/%pg: member of the active pool '%s'", bdev, name);
	if (err == -EBUSY)
		return mp_err(MP_K_CLAIMED, "/dev/%pg", bdev);
	return mp_err_as(MP_SB_READ, err, "/dev/%pg: cannot be opened: error %d", bdev, err);
}

/* A device is claimed by its number, which another may have by now: the caller's was removed */
static int claim_check(struct mpk_dev *dev, struct block_device *bdev)
{
	if (mpk_claim_bdev(&dev->dv_claim) == bdev)
		return 0;
	mpk_claim_close(&dev->dv_claim);
	return mp_err_as(MP_SB_READ, -ENXIO, "the device behind the descriptor was removed, "
			 "/dev/%pg is another now", bdev);
}

/*
 * A loop device on an object, of this pool or of another, needs no check against recursion as
 * that of loop itself: no member that is written lies on an object. An object takes each block
 * once, in ascending order, and only by direct I/O; the second write of create or add, to
 * another copy of the superblock, fails there, and both undo what they did. What reads only can
 * be built so, image in object: it needs the outer pool active first, so it has no cycle, and
 * the file that loop holds keeps that pool from deactivation.
 */
int mpk_dev_claim(int fd, bool is_rdonly, struct mpk_dev **out)
{
	struct file *file = dev_file(fd, is_rdonly);
	struct block_device *bdev;
	struct mpk_dev *dev;
	int rc;

	if (IS_ERR(file))
		return PTR_ERR(file);
	bdev = I_BDEV(file->f_mapping->host);
	dev = dev_new();
	rc = dev ? 0 : -ENOMEM;
	if (!rc && !is_rdonly && bdev_read_only(bdev))
		rc = mp_err(MP_K_DEVMODE, "/dev/%pg is read-only", bdev);
	if (!rc) {
		rc = mpk_claim_open(bdev->bd_dev, is_rdonly, dev, &dev->dv_claim);
		rc = rc ? claim_failed(bdev, rc) : claim_check(dev, bdev);
		rc = rc ? rc : dev_setup(dev, bdev, is_rdonly);
	}
	fput(file);
	if (rc) {
		mpk_dev_release(dev);
		return rc;
	}
	*out = dev;
	return 0;
}

int mpk_dev_peek(int fd, struct mpk_dev **out)
{
	struct file *file = dev_file(fd, true);
	struct mpk_dev *dev;
	int rc;

	if (IS_ERR(file))
		return PTR_ERR(file);
	dev = dev_new();
	if (!dev) {
		fput(file);
		return -ENOMEM;
	}
	dev->dv_peek = file;
	rc = dev_setup(dev, I_BDEV(file->f_mapping->host), true);
	if (rc) {
		mpk_dev_release(dev);
		return rc;
	}
	*out = dev;
	return 0;
}

void mpk_dev_resize(struct mpk_dev *dev)
{
	WRITE_ONCE(dev->dv_core.d_size, bdev_nr_bytes(dev->dv_bdev));
}
