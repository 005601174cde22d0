// SPDX-License-Identifier: GPL-2.0-only
/*
 * Data of objects. Cached reads and maps are the kernel's: iomap fills the page
 * cache, and only of objects that are committed or sealed, so cached and
 * written data never meet. Direct reads are iomap's too. Direct writes go
 * through bios of our own: they end in the interrupt, as on the raw device.
 *
 * What may be read. A final object: its length. An append object: its capacity,
 * because the core has zeroed what was never written. An mblock in the making: what
 * has been written, and "written" means completed. The core's position moves
 * when a write is admitted, so reads also stop at the first write in flight: else
 * they would show what lay on the medium before.
 */
#include <linux/iomap.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sizes.h>
#include <linux/task_io_accounting_ops.h>

#include "object.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

/* one bio: a contiguous part of a write */
struct obj_part {
	struct obj_part *op_next;
	struct obj_write *op_write;
	struct mpk_dev *op_dev;
	u32 op_bytes;
	struct bio op_bio;		/* its vectors follow the part */
};

/* one write, ended once */
struct obj_write {
	struct list_head ow_list;	/* on_writes */
	struct mpk_onode *ow_on;
	struct kiocb *ow_iocb;
	struct completion *ow_done;	/* the writer waits; NULL: ki_complete */
	u64 ow_off;
	u64 ow_len;
	atomic_t ow_left;		/* bios in flight */
	int ow_err;			/* the first */
	struct obj_part *ow_part;
};

/*
 * What users see of a device's error: an input/output error, whatever its kind. Memory of
 * theirs that is not there, or not aligned, comes the same way and stays what it is.
 */
static int user_err(int err)
{
	switch (err) {
	case 0:
	case -EAGAIN:
	case -EFAULT:
	case -EINVAL:
	case -ENOMEM:
	case -EOPNOTSUPP:
		return err;
	default:
		return -EIO;
	}
}

/* ---- mapping ---- */

static int obj_iomap_begin(struct inode *inode, loff_t pos, loff_t len, unsigned int flags,
			   struct iomap *iomap, struct iomap *srcmap)
{
	struct mpk_onode *on = mpk_onode_of(inode);
	loff_t size = i_size_read(inode);
	u64 where, contig;
	struct mp_dev *dev;
	int rc;

	if (flags & IOMAP_WRITE)
		return -EIO;
	iomap->flags = 0;
	iomap->offset = pos;
	if (pos >= size) {
		/* the page cache asks in pages, which may reach beyond the end: zeroes */
		iomap->type = IOMAP_HOLE;
		iomap->addr = IOMAP_NULL_ADDR;
		iomap->length = len;
		return 0;
	}
	if ((flags & IOMAP_NOWAIT) && mp_pool_would_wait(on->on_pool->pl_core))
		return -EAGAIN;
	rc = mp_pool_readable(on->on_pool->pl_core);
	if (!rc)
		rc = mp_obj_map(on->on_obj, pos, min_t(u64, len, size - pos), &dev, &where,
				&contig);
	if (rc)
		return rc;
	iomap->type = IOMAP_MAPPED;
	iomap->bdev = mpk_dev_of(dev)->dv_bdev;
	iomap->addr = where;
	iomap->length = contig;
	mpk_dev_account(mpk_dev_of(dev), false, contig, 0);
	return 0;
}

static const struct iomap_ops obj_iomap_ops = { .iomap_begin = obj_iomap_begin };

/*
 * Counts a failed read of @len bytes at @pos, on each device that has a part of it: which part
 * failed is not known.
 */
static void account_error(struct mpk_onode *on, u64 pos, u64 len, int err)
{
	struct mp_dev *dev, *last = NULL;
	u64 where, contig;

	for (; len; pos += contig, len -= contig, last = dev) {
		if (mp_obj_map(on->on_obj, pos, len, &dev, &where, &contig))
			return;
		if (dev != last)
			mpk_dev_account(mpk_dev_of(dev), false, 0, err);
	}
}

bool mpk_obj_is_on_one(const struct mpk_onode *on, u64 pos, u64 len)
{
	struct mp_dev *dev, *first = NULL;
	u64 where, contig;

	for (; len; pos += contig, len -= contig) {
		if (mp_obj_map(on->on_obj, pos, len, &dev, &where, &contig))
			break;
		if (first && dev != first)
			return false;
		first = dev;
	}
	return true;
}

/* ---- page cache ---- */

/*
 * One call of iomap's joins what it reads by sector and does not look at the device: where
 * a piece on one device ends at the sector at which the next begins on another, it would read
 * both from the first. So of an object on several devices each folio is read by a call of its
 * own, and one that lies on several devices by what follows. Whatever the kernel's version:
 * nothing says that it looks.
 */

/* @len bytes of @folio from @off on, which one device has in one place; 0 or a negative errno */
static int read_piece(struct folio *folio, u32 off, u32 len, struct mpk_dev *dev, u64 where)
{
	struct bio_vec vec;
	struct bio bio;
	int rc;

	bio_init(&bio, dev->dv_bdev, &vec, 1, REQ_OP_READ);
	bio.bi_iter.bi_sector = where >> SECTOR_SHIFT;
	/* pages of a folio follow each other */
	rc = WARN_ON_ONCE(bio_add_page(&bio, folio_page(folio, 0), len, off) != len) ? -EIO :
	     submit_bio_wait(&bio);
	bio_uninit(&bio);
	mpk_dev_account(dev, false, len, 0);
	return rc;
}

/* piece by piece, and waits: at most as many folios of an object as it has pieces */
static void read_spread(struct mpk_onode *on, struct folio *folio, size_t len)
{
	u64 where, contig;
	struct mp_dev *dev;
	size_t at;
	int rc = 0;

	for (at = 0; at < len && !rc; at += contig) {
		rc = mp_pool_readable(on->on_pool->pl_core);
		if (!rc)
			rc = mp_obj_map(on->on_obj, folio_pos(folio) + at, len - at, &dev, &where,
					&contig);
		if (!rc)
			rc = read_piece(folio, (u32)at, (u32)contig, mpk_dev_of(dev), where);
	}
	if (!rc) {
		folio_zero_segment(folio, len, folio_size(folio));
		folio_mark_uptodate(folio);
	}
	/* not up to date: an input/output error to its waiters, as after iomap */
	folio_unlock(folio);
}

static int read_folio(struct mpk_onode *on, struct folio *folio)
{
	u64 pos = folio_pos(folio), size = i_size_read(&on->on_inode);
	size_t len = pos < size ? min_t(u64, folio_size(folio), size - pos) : 0;

	if (!on->on_is_spread || mpk_obj_is_on_one(on, pos, len))
		return mpk_iomap_read_folio(folio, &obj_iomap_ops);
	read_spread(on, folio, len);
	return 0;
}

/*
 * i_size of an object in the making is its capacity, for direct reads; advice
 * and readahead must not bring a page of it into the cache, where it would be stale
 * after the next write.
 */
static int obj_read_folio(struct file *file, struct folio *folio)
{
	struct mpk_onode *on = mpk_onode_of(folio->mapping->host);

	if (!mpk_onode_is_final(on)) {
		folio_unlock(folio);
		return -EINVAL;
	}
	return read_folio(on, folio);
}

static void obj_readahead(struct readahead_control *rac)
{
	struct mpk_onode *on = mpk_onode_of(rac->mapping->host);
	struct folio *folio;

	if (!mpk_onode_is_final(on))
		return;
	if (!on->on_is_spread) {
		mpk_iomap_readahead(rac, &obj_iomap_ops);
		return;
	}
	while ((folio = readahead_folio(rac)))
		read_folio(on, folio);
}

const struct address_space_operations mpk_obj_aops = {
	.read_folio		= obj_read_folio,
	.readahead		= obj_readahead,
	.is_partially_uptodate	= iomap_is_partially_uptodate,
	.invalidate_folio	= iomap_invalidate_folio,
	.release_folio		= iomap_release_folio,
	.dirty_folio		= noop_dirty_folio,
	.migrate_folio		= filemap_migrate_folio,
};

/* ---- reads ---- */

/* end of what may be read from @pos on; the core checks once more */
static u64 read_end(struct mpk_onode *on, u64 pos)
{
	struct mp_obj_info info;
	struct obj_write *w;
	unsigned long flags;
	u64 end;

	if (mpk_onode_is_final(on))
		return i_size_read(&on->on_inode);
	if (on->on_kind == MP_APPEND)
		return on->on_capacity;
	/* position first, then the list: a write is listed before it moves the position */
	mp_obj_info(on->on_obj, &info);
	end = info.oi_length;
	spin_lock_irqsave(&on->on_lock, flags);
	list_for_each_entry(w, &on->on_writes, ow_list)
		if (pos < w->ow_off + w->ow_len)
			end = min(end, w->ow_off);
	spin_unlock_irqrestore(&on->on_lock, flags);
	return end;
}

static int obj_read_end_io(struct kiocb *iocb, ssize_t size, int err, unsigned int flags)
{
	struct mpk_onode *on = mpk_onode_of(file_inode(iocb->ki_filp));

	err = user_err(err);
	if (err == -EIO)
		account_error(on, iocb->ki_pos, max_t(ssize_t, size, 1), err);
	trace_mpool_obj_io(on->on_pool->pl_minor, on->on_id, false, iocb->ki_pos,
			   err ? err : size);
	return err;
}

static const struct iomap_dio_ops obj_read_ops = { .end_io = obj_read_end_io };

static ssize_t read_direct(struct kiocb *iocb, struct iov_iter *to)
{
	struct mpk_onode *on = mpk_onode_of(file_inode(iocb->ki_filp));
	u64 pos = iocb->ki_pos, len = iov_iter_count(to), end = read_end(on, pos), over = 0;
	ssize_t rc;

	if (pos >= end || !len)
		return 0;
	/* cut here: iomap would clear the caller's memory beyond the end, and not poll */
	if (len > end - pos) {
		over = len - (end - pos);
		len -= over;
	}
	if (!READ_ONCE(on->on_is_final)) {
		if ((pos | len) % MP_BLOCK)
			return -EINVAL;
		rc = mp_obj_read_check(on->on_obj, pos, len);
		if (rc)		/* it may have become final, and shorter, just now */
			return mpk_onode_is_final(on) ? read_direct(iocb, to) : rc;
	}
	iov_iter_truncate(to, len);
	rc = iomap_dio_rw(iocb, to, &obj_iomap_ops, &obj_read_ops, 0, NULL, 0);
	/* of a read in flight the iterator may be gone with its request */
	if (rc != -EIOCBQUEUED)
		iov_iter_reexpand(to, iov_iter_count(to) + over);
	return rc;
}

ssize_t mpk_obj_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct mpk_onode *on = mpk_onode_of(file_inode(iocb->ki_filp));
	ssize_t rc;

	if (iocb->ki_flags & IOCB_DIRECT)
		return read_direct(iocb, to);
	if (!mpk_onode_is_final(on))
		return -EINVAL;
	rc = generic_file_read_iter(iocb, to);
	if (rc == -EIO)
		account_error(on, iocb->ki_pos, 1, (int)rc);
	return rc;
}

/* also sendfile(); of a file with O_DIRECT the kernel reads by the call above */
ssize_t mpk_obj_splice_read(struct file *file, loff_t *pos, struct pipe_inode_info *pipe,
			    size_t len, unsigned int flags)
{
	ssize_t rc = mpk_splice_read(file, pos, pipe, len, flags);

	if (rc == -EIO && !MPK_SPLICE_IS_READ)
		account_error(mpk_onode_of(file_inode(file)), *pos, 1, (int)rc);
	return rc;
}

/* a page of a map: a failed read is a SIGBUS to its user */
static vm_fault_t obj_fault(struct vm_fault *vmf)
{
	struct mpk_onode *on = mpk_onode_of(file_inode(vmf->vma->vm_file));
	u64 pos = (u64)vmf->pgoff << PAGE_SHIFT;
	vm_fault_t ret = filemap_fault(vmf);

	/* the device: not the object's end, nor a signal that kills */
	if ((ret & VM_FAULT_SIGBUS) && pos < i_size_read(&on->on_inode) &&
	    !fatal_signal_pending(current))
		account_error(on, pos, 1, -EIO);
	return ret;
}

const struct vm_operations_struct mpk_obj_vm_ops = {
	.fault		= obj_fault,
	.map_pages	= filemap_map_pages,
};

/* ---- writes ---- */

static void write_free(struct obj_write *w)
{
	struct obj_part *part, *next;

	for (part = w->ow_part; part; part = next) {
		next = part->op_next;
		bio_release_pages(&part->op_bio, false);
		bio_uninit(&part->op_bio);
		kfree(part);
	}
	kfree(w);
}

/* the core is told of the end before the write leaves the list: see read_end() */
static ssize_t write_end(struct obj_write *w)
{
	struct mpk_onode *on = w->ow_on;
	unsigned long flags;
	ssize_t ret = w->ow_err ? w->ow_err : (ssize_t)w->ow_len;

	mp_obj_write_end(on->on_obj, w->ow_off, w->ow_err);
	spin_lock_irqsave(&on->on_lock, flags);
	list_del(&w->ow_list);
	spin_unlock_irqrestore(&on->on_lock, flags);
	trace_mpool_obj_io(on->on_pool->pl_minor, on->on_id, true, w->ow_off, ret);
	return ret;
}

static void write_end_io(struct bio *bio)
{
	struct obj_part *part = container_of(bio, struct obj_part, op_bio);
	struct obj_write *w = part->op_write;
	int err = user_err(blk_status_to_errno(bio->bi_status));
	struct kiocb *iocb = w->ow_iocb;
	ssize_t ret;

	mpk_dev_account(part->op_dev, true, part->op_bytes, err);
	if (err)
		cmpxchg(&w->ow_err, 0, err);
	if (!atomic_dec_and_test(&w->ow_left))
		return;
	if (w->ow_done) {
		complete(w->ow_done);
		return;
	}
	ret = write_end(w);
	write_free(w);
	if (ret > 0)
		iocb->ki_pos += ret;
	/* last: it may drop the last reference to the file, and so to this module */
	iocb->ki_complete(iocb, ret);
}

/* a part at @pos of the object: as much of @from as is contiguous on one device */
static int part_add(struct obj_write *w, struct obj_part **tail, struct iov_iter *from, u64 pos)
{
	u64 where, contig, count = iov_iter_count(from);
	struct obj_part *part;
	struct mp_dev *dev;
	int nvecs, rc;

	/* bounds the vectors of one part; registered buffers bring their own */
	rc = mp_obj_map(w->ow_on->on_obj, pos,
			iov_iter_is_bvec(from) ? count : min_t(u64, count, SZ_1M), &dev, &where,
			&contig);
	if (rc)
		return rc;
	iov_iter_truncate(from, contig);
	nvecs = bio_iov_vecs_to_alloc(from, USHRT_MAX);
	part = kmalloc(sizeof(*part) + nvecs * sizeof(struct bio_vec), GFP_KERNEL_ACCOUNT);
	if (!part)
		return -ENOMEM;
	part->op_next = NULL;
	part->op_write = w;
	part->op_dev = mpk_dev_of(dev);
	bio_init(&part->op_bio, part->op_dev->dv_bdev,
		 nvecs ? (struct bio_vec *)(part + 1) : NULL, nvecs,
		 REQ_OP_WRITE | REQ_SYNC | REQ_IDLE);
	part->op_bio.bi_iter.bi_sector = where >> SECTOR_SHIFT;
	part->op_bio.bi_end_io = write_end_io;
	part->op_bio.bi_ioprio = w->ow_iocb->ki_ioprio;
	*tail = part;
	atomic_inc(&w->ow_left);
	rc = mpk_bio_get_pages(&part->op_bio, from);
	iov_iter_reexpand(from, iov_iter_count(from) + (count - contig));
	part->op_bytes = part->op_bio.bi_iter.bi_size;
	return rc;
}

/* hold all of the write's memory before the core is told: until then it can be refused */
static int write_build(struct obj_write *w, struct iov_iter *from)
{
	struct obj_part **tail = &w->ow_part;
	u64 pos = w->ow_off;
	int rc;

	while (iov_iter_count(from)) {
		rc = part_add(w, tail, from, pos);
		if (rc)
			return rc;
		pos += (*tail)->op_bytes;
		tail = &(*tail)->op_next;
	}
	return 0;
}

static int write_admit(struct obj_write *w)
{
	struct mpk_onode *on = w->ow_on;
	unsigned long flags;
	int rc;

	/* listed first: see read_end() */
	spin_lock_irqsave(&on->on_lock, flags);
	list_add_tail(&w->ow_list, &on->on_writes);
	spin_unlock_irqrestore(&on->on_lock, flags);
	rc = mp_obj_write_begin(on->on_obj, w->ow_off, w->ow_len);
	if (rc) {
		spin_lock_irqsave(&on->on_lock, flags);
		list_del(&w->ow_list);
		spin_unlock_irqrestore(&on->on_lock, flags);
	}
	return rc;
}

/*
 * Neither REQ_NOWAIT nor REQ_POLLED, which wants it: a bio that comes back with -EAGAIN
 * is submitted once more by io_uring, and the core, which has admitted the range,
 * would refuse it. So a write may wait for a free request of the device.
 */
static void write_submit(struct obj_write *w)
{
	struct obj_part *part, *next;
	struct blk_plug plug;

	blk_start_plug(&plug);
	for (part = w->ow_part; part; part = next) {
		/* with the last one, all of @w may be gone */
		next = part->op_next;
		submit_bio(&part->op_bio);
	}
	blk_finish_plug(&plug);
}

/* what the core would refuse anyway, but with a line in the log */
static int write_check(struct mpk_onode *on, const struct kiocb *iocb, u64 len)
{
	struct mp_obj_info info;
	u64 off = iocb->ki_pos;

	mp_obj_info(on->on_obj, &info);
	if (info.oi_flags)
		return -EROFS;
	if ((off | len) % MP_BLOCK || off >= info.oi_capacity || len > info.oi_capacity - off)
		return -EINVAL;
	/* RWF_APPEND would mean the object's end, where nothing fits */
	if (iocb->ki_flags & IOCB_APPEND)
		return -EINVAL;
	/* the first write of an append object chooses its place: only the core knows */
	return on->on_kind == MP_MBLOCK && off != info.oi_length ? -EINVAL : 0;
}

/* RLIMIT_FSIZE, as in any file system: cuts @from. A part of a block cannot be written */
static ssize_t write_limit(struct kiocb *iocb, struct iov_iter *from)
{
	ssize_t n = generic_write_checks(iocb, from);

	if (n <= 0)
		return n;
	iov_iter_truncate(from, ALIGN_DOWN((u64)n, MP_BLOCK));
	if (iov_iter_count(from))
		return (ssize_t)iov_iter_count(from);
	send_sig(SIGXFSZ, current, 0);
	return -EFBIG;
}

ssize_t mpk_obj_write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct mpk_onode *on = mpk_onode_of(file_inode(iocb->ki_filp));
	bool is_dsync = iocb_is_dsync(iocb), is_sync = is_dsync || is_sync_kiocb(iocb);
	DECLARE_COMPLETION_ONSTACK(done);
	struct obj_write *w;
	ssize_t rc;

	if (!(iocb->ki_flags & IOCB_DIRECT))
		return -EINVAL;
	rc = write_check(on, iocb, iov_iter_count(from));
	if (rc || !iov_iter_count(from))
		return rc;
	rc = write_limit(iocb, from);
	if (rc < 0)
		return rc;
	/* the flush sleeps: not in the submitter, and not in an interrupt */
	if (is_dsync && !is_sync_kiocb(iocb) && (iocb->ki_flags & IOCB_NOWAIT))
		return -EAGAIN;
	/* but never one of several in flight: the next would overtake it */
	if (is_sync_kiocb(iocb) && (iocb->ki_flags & IOCB_NOWAIT) &&
	    mp_pool_would_wait(on->on_pool->pl_core))
		return -EAGAIN;
	w = kzalloc(sizeof(*w), GFP_KERNEL_ACCOUNT);
	if (!w)
		return -ENOMEM;
	w->ow_on = on;
	w->ow_iocb = iocb;
	w->ow_done = is_sync ? &done : NULL;
	w->ow_off = iocb->ki_pos;
	w->ow_len = iov_iter_count(from);
	rc = write_build(w, from);
	if (!rc)
		rc = write_admit(w);
	if (rc) {
		write_free(w);
		return rc;
	}
	task_io_account_write(w->ow_len);
	write_submit(w);
	if (!is_sync)
		return -EIOCBQUEUED;
	wait_for_completion_io(&done);
	rc = write_end(w);
	write_free(w);
	if (rc > 0 && is_dsync) {
		int err = mp_obj_flush(on->on_obj);

		if (err)
			return err;
	}
	if (rc > 0)
		iocb->ki_pos += rc;
	return rc;
}
