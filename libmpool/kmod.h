/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The kernel backend's inside: an open node /dev/mpool/NAME, the objects that
 * this process holds there, and their descriptors. The kernel decides about
 * everything; what is kept here of an object's state only serves to refuse a
 * bad request at submission instead of in its completion.
 *
 * Locks: km_lock guards the table of objects, what is known of each, and the
 * cache of descriptors. No system call is made under it.
 */
#ifndef MPL_KMOD_H
#define MPL_KMOD_H

#include "backend.h"
#include "mpl_err.h"
#include "obj.h"
#include "pool.h"
#include "uapi/mpool.h"

#define MPL_KMOD_BUCKETS	4096u	/* of the table of objects; a power of two */

/* an object of which this process holds handles; shared by all of them */
struct mpl_kobj {
	struct mpl_kobj *ko_chain;	/* bucket */
	uint64_t ko_id;
	uint64_t ko_capacity;		/* bytes */
	uint32_t ko_kind;
	uint32_t ko_mclass;
	uint64_t ko_tag;
	unsigned ko_refs;		/* handles; the kernel counts as many for this file */

	/* as the kernel's, or older */
	uint32_t ko_flags;		/* MPOOL_OBJ_* */
	uint64_t ko_length;		/* bytes; unsealed: where the next write goes */
	int ko_is_placed;		/* ko_length says where the next write goes */
	int ko_is_stale;		/* a write failed: ask before the next */

	/* descriptor, fdcache.c */
	struct mpl_kobj *ko_prev, *ko_next;	/* in the list of cached ones */
	int ko_fd;			/* -1: none */
	int ko_is_writable;		/* ko_fd */
	int ko_is_opening;		/* by another thread: wait */
	unsigned ko_pins;		/* users of ko_fd: it stays */
	int ko_is_lent;			/* mpool_obj_place() gave it out: a pin for good */
};

struct mpl_kmod {
	struct mpool km_pool;		/* first */
	int km_fd;			/* the node */
	int km_is_uring;
	char km_name[MPOOL_NAME_MAX + 1];

	pthread_mutex_t km_lock;
	pthread_cond_t km_cond;		/* a pin or an opening ended */
	struct mpl_kobj **km_bucket;
	/* descriptors in the order of their last use, oldest first */
	struct mpl_kobj *km_oldest, *km_newest;
	unsigned km_nfds, km_fds_max;
};

static inline struct mpl_kmod *mpl_kmod(const struct mpool *mp)
{
	return (struct mpl_kmod *)(uintptr_t)mp;
}

/* ---- kmod_ioc.c ---- */

/*
 * One command. @arg begins with struct mpool_ioc_arg, whose ma_flags the caller
 * has set; the rest of it is done here. Returns the command's result, or -errno
 * with the module's detail.
 */
int mpl_ioc(int fd, unsigned long cmd, void *arg);
/* the detail that a command left in @arg, for those that io_uring carried */
void mpl_ioc_detail(const struct mpool_ioc_arg *arg, int rc, const char *text);
/* /dev/mpool/NAME, or the control node for NULL; the descriptor or -errno. Checks the ABI */
int mpl_node_open(const char *name, int is_rdonly);
/* -EROFS with the detail, for a pool that is open read-only */
int mpl_kmod_writable(struct mpl_kmod *km);

/* ---- kmod_obj.c ---- */

int mpl_kobj_alloc(struct mpool *mp, const struct mpool_alloc *req, unsigned n,
		   struct mpool_obj **out);
int mpl_kobj_open(struct mpool *mp, uint64_t id, struct mpool_obj *obj);
void mpl_kobj_close(struct mpool_obj *obj);
void mpl_kobj_info(struct mpool_obj *obj, struct mpool_obj_info *out);
uint64_t mpl_kobj_id(const struct mpool_obj *obj);
int mpl_kobj_list(struct mpool *mp, uint64_t after, uint64_t tag, struct mpool_obj_info *out,
		  unsigned max);
int mpl_kobj_place(struct mpool_obj *obj, uint64_t off, int *fd, uint64_t *pos, uint64_t *len);
int mpl_kobj_batch(struct mpool *mp, const struct mpool_op *op, unsigned n);
/* a batch as its command, room for a text included: freed by free(); NULL: no memory */
struct mpool_ioc_batch *mpl_kobj_batch_arg(const struct mpool_op *op, unsigned n);
/* the operations of that command were applied */
void mpl_kobj_batch_done(struct mpl_kmod *km, const struct mpool_ioc_batch *ba);
/* they were not, and io_uring told it: leaves the detail */
void mpl_kobj_batch_error(const struct mpool_ioc_batch *ba, int err);
/* admission of a transfer, as mp_obj_write_begin() and mp_obj_read_check() */
int mpl_kobj_admit(struct mpl_kmod *km, struct mpl_kobj *ko, int is_write, uint64_t off,
		   uint64_t bytes);
/*
 * A transfer or a flush failed with @err: leaves the detail, returns the errno of
 * the public contract.
 */
int mpl_kobj_io_error(struct mpl_kmod *km, struct mpl_kobj *ko, int is_write, uint64_t off,
		      int err);

/* ---- fdcache.c ---- */

/* how many it may keep, and km_cond */
void mpl_fdcache_init(struct mpl_kmod *km);
/*
 * The object's descriptor, made when there is none; it stays until
 * mpl_fdcache_unpin(). Without @may_wait: -EMFILE instead of waiting for pins.
 */
int mpl_fdcache_pin(struct mpl_kmod *km, struct mpl_kobj *ko, int is_write, int may_wait);
void mpl_fdcache_unpin(struct mpl_kmod *km, struct mpl_kobj **ko, unsigned n);
/* the last handle is going; km_lock is held. Returns the descriptor to close, or -1 */
int mpl_fdcache_take(struct mpl_kmod *km, struct mpl_kobj *ko);

/* ---- kmod_ioq.c ---- */

int mpl_kmod_ioq_open(struct mpool *mp, unsigned depth, struct mpool_ioq **out);
int mpl_kmod_rw(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned n,
		int is_write);

#endif
