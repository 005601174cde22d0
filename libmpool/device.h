/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Member devices as libmpool sees them: a stack of struct mpool_vdev (a file,
 * a block device or the provider's, below zero or more layers), and on top
 * struct mpl_dev, which is what the core and the queues talk to. mpl_dev counts,
 * owns the device's flushes, and reports the first failed flush to the pool.
 *
 * Locks: md_flush_lock guards the flush tickets only; no I/O under it.
 */
#ifndef MPL_DEVICE_H
#define MPL_DEVICE_H

#include <pthread.h>
#include <stdint.h>

#include <mpool/mpool.h>
#include <mpool/provider.h>

#include "dev.h"

#define MPL_IOV_MAX	64u

/* what opening a member found out */
struct mpl_low {
	struct mpool_vdev lo_vdev;
	int lo_is_block;
	int lo_is_direct;
	uint32_t lo_sector;	/* bytes */
};

/* flags of mpl_file_open() */
#define MPL_FILE_RDONLY	0x1u
#define MPL_FILE_CREATE	0x2u	/* make the file; it must not exist */
#define MPL_FILE_PEEK	0x4u	/* read only, beside other processes: no lock, no claim */

/*
 * Opens a file or block device exclusively and finds out whether O_DIRECT
 * works. *why names the refusal for the message.
 */
int mpl_file_open(const char *path, unsigned flags, uint64_t size, struct mpl_low *out,
		  const char **why);
/* one transfer of the whole vector, resuming after short counts; 0 or -errno */
/* fabric.c: is the block device of this node of sysfs behind a fabric? */
int mpl_node_is_fabric(const char *node);
int mpl_fd_rw(int fd, uint64_t off, const struct iovec *iov, unsigned n, int is_write, int rwf);
/* how much from @off on, of @len bytes, the file has allocated; MP_DEV_UNKNOWN */
uint64_t mpl_fd_reserved(int fd, uint64_t off, uint64_t len);
/* what was written is durable, also when signals come; 0 or -errno */
int mpl_fd_flush(int fd);
/* which file or device it is: what stands at a path may be replaced, a device number given anew */
struct mpl_ident {
	uint64_t id_fs, id_node;	/* of a device: 0, and its number */
	uint64_t id_seq;		/* of a disk, since the boot; 0: unknown or a file */
};

int mpl_ident(int fd, struct mpl_ident *id);
int mpl_ident_is_same(const struct mpl_ident *a, const struct mpl_ident *b);
/* 0, or -EPERM with the name of the signature that was found in @what; @id: where */
int mpl_sigcheck(const char *path, char *what, size_t size, struct mpl_ident *id);
/*
 * Removes every signature that libblkid knows, backup copies too; @is_ours: claimed by us.
 * -ESTALE: what stands at @path is not @id any more, and was left alone.
 */
int mpl_sigwipe(const char *path, int is_ours, const struct mpl_ident *id);

/* ---- layers ---- */

struct mpl_power;	/* the simulated power supply, one per pool with volatile layers */

/*
 * Puts the layers that @spec asks for on @vd (class @mclass). *power is made on
 * demand and shared by the pool's devices. @spec was checked by mpl_layer_check.
 */
int mpl_layer_push(struct mpool_vdev *vd, const char *spec, uint32_t mclass,
		   struct mpl_power **power);
/* 0 or -EINVAL; *at = the offending text */
int mpl_layer_check(const char *spec, const char **at);
/* starts the timer of cut=TIME, once every device is there */
int mpl_power_start(struct mpl_power *pw);
/* after all devices are closed; NULL is ignored */
void mpl_power_free(struct mpl_power *pw);

/* one layer's settings, as parsed; zero = absent */
struct mpl_layer_conf {
	uint64_t lc_rate;		/* bytes per second */
	uint64_t lc_write_rate;		/* of writes; 0 = lc_rate */
	uint64_t lc_lat_ns;
	uint64_t lc_pause_ns, lc_every_ns; /* it stands still; both or none */
	unsigned lc_fail;		/* bits MPL_FAIL_* */
	uint64_t lc_after;		/* the k-th call fails, 1 = first */
	int lc_is_sticky;
	int lc_err;			/* negative errno */
	int lc_is_torn;
	int lc_is_volatile;
	uint64_t lc_cut_ns;
	uint64_t lc_cut_after;		/* writes */
	uint64_t lc_seed;
};
#define MPL_FAIL_READ		0x1u
#define MPL_FAIL_WRITE		0x2u
#define MPL_FAIL_FLUSH		0x4u
#define MPL_FAIL_DISCARD	0x8u

int mpl_delay_push(struct mpool_vdev *vd, const struct mpl_layer_conf *lc);
int mpl_fault_push(struct mpool_vdev *vd, const struct mpl_layer_conf *lc);
int mpl_volatile_push(struct mpool_vdev *vd, const struct mpl_layer_conf *lc,
		      struct mpl_power **power);

uint64_t mpl_now_ns(void);
void mpl_sleep_until(uint64_t ns);
/* splitmix64 */
uint64_t mpl_rand(uint64_t *state);

/* ---- the top ---- */

struct mpl_dev {
	struct mp_dev md_core;		/* first: the core's view */
	struct mpool_vdev md_vdev;	/* top of the stack below */
	uint32_t md_mclass;
	uint32_t md_slot;
	uint64_t md_fs;			/* st_dev of a file; 0: unknown */
	char md_path[4096];		/* whole: files are found, and removed, by it */
	/* called once, before any waiter of the failed flush is released */
	void (*md_fail)(void *arg, struct mpl_dev *dev, int err);
	void *md_fail_arg;

	pthread_mutex_t md_flush_lock;
	pthread_cond_t md_flush_cond;
	uint64_t md_flush_begun;	/* guarded by md_flush_lock, as the next three */
	uint64_t md_flush_done;
	int md_flush_running;
	int md_flush_err;		/* sticky */
	uint64_t md_written;		/* atomic: completed writes */
	uint64_t md_flushed;		/* md_written at the begin of the last good flush */

	/* statistics, atomic, relaxed */
	uint64_t md_read_bytes, md_write_bytes, md_discard_bytes;
	uint64_t md_reads, md_writes, md_flushes, md_errors;
};

/* takes over the device stack in @low */
void mpl_dev_init(struct mpl_dev *dev, const struct mpl_low *low, const char *path,
		  uint32_t mclass, uint32_t slot);
void mpl_dev_fini(struct mpl_dev *dev);

/* ready_ns as in mpool/provider.h */
int mpl_dev_readv(struct mpl_dev *dev, uint64_t off, const struct iovec *iov, unsigned n,
		  uint64_t *ready_ns);
int mpl_dev_writev(struct mpl_dev *dev, uint64_t off, const struct iovec *iov, unsigned n,
		   int is_fua, uint64_t *ready_ns);
/* everything that completed before the call is durable on return 0 */
int mpl_dev_flush(struct mpl_dev *dev);

/* for the io_uring back end, which moves the bytes itself */
void mpl_dev_count(struct mpl_dev *dev, int is_write, uint64_t bytes);
void mpl_dev_done(struct mpl_dev *dev, int is_write, int is_error);

#endif
