/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The I/O contract between the portable core and the world that runs it.
 *
 * Ordering and atomicity that an implementation promises:
 *  - a completed write is not durable; it may be lost, torn at 512 bytes or
 *    overtaken by any other write until a flush that began after its
 *    completion has completed;
 *  - MP_DEV_FUA makes that one write durable at its completion, and nothing
 *    else: it is never a barrier for earlier writes;
 *  - reads see all completed writes;
 *  - after a failed flush nothing is known about any unflushed write: the
 *    caller stops for good (a flush error is reported once).
 * All calls may sleep and may run concurrently. Offsets and lengths are bytes
 * and multiples of MP_BLOCK; buffers are aligned to MP_BLOCK.
 */
#ifndef MP_CORE_DEV_H
#define MP_CORE_DEV_H

#include "os.h"

#define MP_BLOCK	4096u	/* unit of metadata I/O and of object offsets, bytes */
#define MP_SECTOR	512u	/* smallest unit a device may tear a write at, bytes */

#define MP_DEV_FUA	0x1u
#define MP_DEV_BEAT	0x2u	/* the heartbeat: need not be durable, is not counted as written */

struct mp_dev;

struct mp_dev_ops {
	/* 0 or -errno, through mp_dev_err(); never short */
	int (*read)(struct mp_dev *dev, u64 off_bytes, void *buf, size_t len_bytes);
	int (*write)(struct mp_dev *dev, u64 off_bytes, const void *buf, size_t len_bytes,
		     unsigned int flags);
	int (*flush)(struct mp_dev *dev);
	/* hint; contents are undefined afterwards (old, zero or garbage); NULL = none */
	int (*discard)(struct mp_dev *dev, u64 off_bytes, u64 len_bytes);
	/* reserve space so that later writes never meet -ENOSPC; NULL = always reserved */
	int (*reserve)(struct mp_dev *dev, u64 off_bytes, u64 len_bytes);
	/* how much from @off_bytes on, of @len_bytes, needs no reserve; NULL: MP_DEV_UNKNOWN */
	u64 (*reserved)(struct mp_dev *dev, u64 off_bytes, u64 len_bytes);
	/*
	 * where the next bytes from @off_bytes on begin that may be other than zero, @end_bytes:
	 * none before it; NULL: @off_bytes
	 */
	u64 (*data)(struct mp_dev *dev, u64 off_bytes, u64 end_bytes);
	/* make a range read as zeroes; NULL = the core writes zeroes */
	int (*zero)(struct mp_dev *dev, u64 off_bytes, u64 len_bytes);
	void (*close)(struct mp_dev *dev);
};

#define MP_DEV_UNKNOWN	(~0ull)	/* bytes, that it cannot tell */

#define MP_DEV_IS_BLOCK	0x1u	/* block device */
#define MP_DEV_DIRECT	0x2u	/* bypasses the host's page cache */
#define MP_DEV_ZEROED	0x4u	/* never-written space reads as zeroes (a new file) */
#define MP_DEV_RDONLY	0x8u
#define MP_DEV_GOES	0x10u	/* removed when its pool is destroyed: saying so is enough */
#define MP_DEV_BESIDE	0x20u	/* read while another of this host may have it open */

struct mp_dev {
	const struct mp_dev_ops *d_ops;
	u64 d_size;		/* bytes */
	u32 d_flags;		/* MP_DEV_IS_BLOCK ... */
	u32 d_sector;		/* logical sector size, bytes */
	const char *d_path;	/* for messages; owned by the implementation */
	struct mp_pool *d_pool;	/* the core's: whose member it is; NULL: of none that is open */
};

/* The block from @off on, before @end, where bytes begin that may be other than zero. */
static inline u64 mp_dev_data(struct mp_dev *dev, u64 off, u64 end)
{
	u64 at = dev->d_ops->data ? dev->d_ops->data(dev, off, end) & ~(MP_BLOCK - 1ull) : off;

	return at < off ? off : at < end ? at : end;
}

#endif
