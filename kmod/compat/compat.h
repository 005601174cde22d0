/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between kernels, 6.1 to 7.3, and nothing else: no other file
 * looks at the kernel's version. Where distributions carry newer calls back to
 * older kernels, the shape of the declaration decides (__same_type) and not the
 * version. An unknown shape does not compile, rather than do something else.
 */
#ifndef MPK_COMPAT_H
#define MPK_COMPAT_H

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/fs.h>
#include <linux/iomap.h>
#include <linux/mm.h>
#include <linux/uio.h>
#include <linux/version.h>
#include <linux/workqueue.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "mpool needs Linux 6.1 or newer"
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
#include <linux/filelock.h>
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
#include <linux/io_uring/cmd.h>
#else
#include <linux/io_uring.h>
#endif

/* ---- claim of a block device ---- */

struct mpk_claim {
	struct block_device *mc_bdev;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	struct file *mc_file;
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
	struct bdev_handle *mc_handle;
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	void *mc_holder;
#else
	fmode_t mc_mode;
#endif
};

/**
 * mpk_claim_open() - open a block device from within the kernel
 * @dev: its number
 * @is_rdonly: for reading only
 * @holder: exclusively for this holder; NULL: shared, claims nothing
 * @mc: result, for mpk_claim_close()
 *
 * May sleep. Returns 0, -EBUSY (claimed by another holder) or what the driver says.
 */
static inline int mpk_claim_open(dev_t dev, bool is_rdonly, void *holder, struct mpk_claim *mc)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	blk_mode_t mode = BLK_OPEN_READ | (is_rdonly ? 0 : BLK_OPEN_WRITE);
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	mc->mc_file = bdev_file_open_by_dev(dev, mode, holder, NULL);
	if (IS_ERR(mc->mc_file))
		return PTR_ERR(mc->mc_file);
	mc->mc_bdev = file_bdev(mc->mc_file);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
	mc->mc_handle = bdev_open_by_dev(dev, mode, holder, NULL);
	if (IS_ERR(mc->mc_handle))
		return PTR_ERR(mc->mc_handle);
	mc->mc_bdev = mc->mc_handle->bdev;
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	mc->mc_holder = holder;
	mc->mc_bdev = blkdev_get_by_dev(dev, mode, holder, NULL);
	if (IS_ERR(mc->mc_bdev))
		return PTR_ERR(mc->mc_bdev);
#else
	mc->mc_mode = FMODE_READ | (is_rdonly ? 0 : FMODE_WRITE) | (holder ? FMODE_EXCL : 0);
	mc->mc_bdev = blkdev_get_by_dev(dev, mc->mc_mode, holder);
	if (IS_ERR(mc->mc_bdev))
		return PTR_ERR(mc->mc_bdev);
#endif
	return 0;
}

/* the claim ends here, not some time later */
static inline void mpk_claim_close(struct mpk_claim *mc)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	bdev_fput(mc->mc_file);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
	bdev_release(mc->mc_handle);
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	blkdev_put(mc->mc_bdev, mc->mc_holder);
#else
	blkdev_put(mc->mc_bdev, mc->mc_mode);
#endif
	mc->mc_bdev = NULL;
}

static inline struct block_device *mpk_claim_bdev(const struct mpk_claim *mc)
{
	return mc->mc_bdev;
}

/* ---- io_uring commands ---- */

/* the payload in the submission entry, as a pointer to const @type */
#ifdef io_uring_sqe128_cmd
#define mpk_uring_payload(ioucmd, type)	io_uring_sqe_cmd((ioucmd)->sqe, type)
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
#define mpk_uring_payload(ioucmd, type)	((const type *)io_uring_sqe_cmd((ioucmd)->sqe))
#else
#define mpk_uring_payload(ioucmd, type)	((const type *)(ioucmd)->cmd)
#endif

/* completes a command whose function returns -EIOCBQUEUED */
static inline void mpk_uring_done(struct io_uring_cmd *ioucmd, int res, unsigned int issue_flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	io_uring_cmd_done(ioucmd, res, issue_flags);
#else
	io_uring_cmd_done(ioucmd, res, 0, issue_flags);
#endif
}

/* ---- work ---- */

/* of no processor; from 7.2 on the older name warns when it is used */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define mpk_unbound_wq	system_dfl_wq
#else
#define mpk_unbound_wq	system_unbound_wq
#endif

/* ---- classes and devices ---- */

/* the device given to ->devnode and ->uevent of a struct device_type */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
#define MPK_TYPE_CONST const
#else
#define MPK_TYPE_CONST
#endif

/* ---- inodes ---- */

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
typedef struct mnt_idmap mpk_idmap_t;
#else
typedef struct user_namespace mpk_idmap_t;
#endif

static inline void mpk_fillattr(mpk_idmap_t *idmap, u32 mask, struct inode *inode,
				struct kstat *stat)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
	generic_fillattr(idmap, mask, inode, stat);
#else
	generic_fillattr(idmap, inode, stat);
#endif
}

/* iget5_locked() made it: the caller fills it in */
static inline bool mpk_inode_is_new(struct inode *inode)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
	return inode_state_read_once(inode) & I_NEW;
#else
	return inode->i_state & I_NEW;
#endif
}

/* ---- files and maps ---- */

/* reads that complete later, and writes side by side: bits of the file, then of its operations */
#ifdef FMODE_BUF_RASYNC
#define MPK_FMODE_RASYNC	FMODE_BUF_RASYNC
#else
#define MPK_FMODE_RASYNC	((__force fmode_t)0)
#endif
#ifdef FMODE_DIO_PARALLEL_WRITE
#define MPK_FMODE_PARALLEL	FMODE_DIO_PARALLEL_WRITE
#else
#define MPK_FMODE_PARALLEL	((__force fmode_t)0)
#endif
#ifdef FOP_BUFFER_RASYNC
#define MPK_FOP_FLAGS		.fop_flags = FOP_BUFFER_RASYNC | FOP_DIO_PARALLEL_WRITE,
#else
#define MPK_FOP_FLAGS
#endif

/* the second of them reads by ->read_iter */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#define mpk_splice_read filemap_splice_read
#define MPK_SPLICE_IS_READ 0
#else
#define mpk_splice_read generic_file_splice_read
#define MPK_SPLICE_IS_READ 1
#endif

static inline void mpk_vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_clear(vma, flags);
#else
	vma->vm_flags &= ~flags;
#endif
}

/* ---- locks of files ---- */

/* a field that locks and leases have in common: flags, type, owner, file */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
#define MPK_LOCK(fl, field)	((fl)->c.flc_##field)
#else
#define MPK_LOCK(fl, field)	((fl)->fl_##field)
#endif

/* ---- page cache and direct I/O ---- */

static inline int mpk_iomap_read_folio(struct folio *folio, const struct iomap_ops *ops)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
	iomap_bio_read_folio(folio, ops);
	return 0;
#else
	return iomap_read_folio(folio, ops);
#endif
}

static inline void mpk_iomap_readahead(struct readahead_control *rac, const struct iomap_ops *ops)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
	iomap_bio_readahead(rac, ops);
#else
	iomap_readahead(rac, ops);
#endif
}

/*
 * Adds all memory of @iter, which @bio has vectors for, to @bio; pages are held
 * until bio_release_pages(). From 6.18 on the block layer keeps its own call to
 * itself. -EINVAL: memory or lengths are not aligned as the device needs it.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
static inline bool mpk_iter_is_aligned(const struct block_device *bdev, const struct iov_iter *iter)
{
	unsigned int mask = bdev_dma_alignment((struct block_device *)bdev) |
			    (bdev_logical_block_size((struct block_device *)bdev) - 1);

	/* stricter than needed for memory: whole sectors, as all lengths */
	return !(iov_iter_alignment(iter) & mask);
}

static inline int mpk_bio_add_pages(struct bio *bio, struct iov_iter *iter)
{
	struct page *page[16], **pages = page;
	size_t off, n;
	ssize_t got;
	int i, rc = 0;

	if (iov_iter_extract_will_pin(iter))
		bio_set_flag(bio, BIO_PAGE_PINNED);
	while (iov_iter_count(iter) && bio->bi_vcnt < bio->bi_max_vecs) {
		got = iov_iter_extract_pages(iter, &pages, iov_iter_count(iter),
					     min_t(unsigned int, ARRAY_SIZE(page),
						   bio->bi_max_vecs - bio->bi_vcnt), 0, &off);
		if (got <= 0) {
			rc = got ? (int)got : -EFAULT;
			break;
		}
		for (i = 0; got > 0; i++, got -= n, off = 0) {
			n = min_t(size_t, got, PAGE_SIZE - off);
			__bio_add_page(bio, page[i], n, off);
		}
	}
	if (!rc && iov_iter_count(iter))
		rc = -EFAULT;
	return rc;
}

static inline int mpk_bio_get_pages(struct bio *bio, struct iov_iter *iter)
{
	if (!mpk_iter_is_aligned(bio->bi_bdev, iter))
		return -EINVAL;
	if (!iov_iter_is_bvec(iter))
		return mpk_bio_add_pages(bio, iter);
	/* registered buffers: their vectors are used as they are */
	bio->bi_io_vec = (struct bio_vec *)iter->bvec;
	bio->bi_vcnt = iter->nr_segs;
	bio->bi_iter.bi_size = iter->iov_offset + iov_iter_count(iter);
	bvec_iter_advance(bio->bi_io_vec, &bio->bi_iter, iter->iov_offset);
	bio_set_flag(bio, BIO_CLONED);
	iov_iter_advance(iter, iov_iter_count(iter));
	return 0;
}
#else
static inline int mpk_bio_get_pages(struct bio *bio, struct iov_iter *iter)
{
	int rc;

	if (!bdev_iter_is_aligned(bio->bi_bdev, iter))
		return -EINVAL;
	rc = bio_iov_iter_get_pages(bio, iter);
	return !rc && iov_iter_count(iter) ? -EFAULT : rc;
}
#endif

#endif
