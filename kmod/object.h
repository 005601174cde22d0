/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What object_fd.c (files and inodes) and object_io.c (data) share.
 */
#ifndef MPK_OBJECT_H
#define MPK_OBJECT_H

#include "mpk.h"

/* the inode of an object: one, for all that have it open */
struct mpk_onode {
	struct inode on_inode;
	struct mpk_pool *on_pool;
	struct mp_obj *on_obj;		/* the inode's reference; NULL until it is set up */
	u64 on_id;
	u64 on_capacity;
	u32 on_kind;
	bool on_is_final;		/* committed or sealed: the content stays as it is */
	bool on_is_spread;		/* its pieces lie on several devices */
	spinlock_t on_lock;		/* taken in interrupts */
	struct list_head on_writes;	/* being admitted or in flight; on_lock */
};

static inline struct mpk_onode *mpk_onode_of(const struct inode *inode)
{
	return container_of(inode, struct mpk_onode, on_inode);
}

/* ---- object_fd.c ---- */

/*
 * Asks the core whether the object has become final; from then on it may be
 * cached and mapped, and i_size is its length. Returns what it is.
 */
bool mpk_onode_is_final(struct mpk_onode *on);

/* ---- object_io.c ---- */

/* do the @len bytes at @pos, all of them within the capacity, lie on one device? */
bool mpk_obj_is_on_one(const struct mpk_onode *on, u64 pos, u64 len);

extern const struct address_space_operations mpk_obj_aops;
extern const struct vm_operations_struct mpk_obj_vm_ops;

ssize_t mpk_obj_read_iter(struct kiocb *iocb, struct iov_iter *to);
ssize_t mpk_obj_splice_read(struct file *file, loff_t *pos, struct pipe_inode_info *pipe,
			    size_t len, unsigned int flags);
ssize_t mpk_obj_write_iter(struct kiocb *iocb, struct iov_iter *from);

#endif
