/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of the kernel glue share. The core (core/pool.h) decides;
 * the glue claims devices, checks users, and moves bytes.
 *
 *   cmd.c        how every command is checked and run; error details for callers
 *   ctl.c        /dev/mpoolctl: administration
 *   pools.c      the table of active pools; activation and deactivation
 *   pool_dev.c   /dev/mpool/NAME: one table of commands, handles, lease, uring_cmd
 *   pool_mlog.c  its commands on mlogs and roots
 *   object_fd.c  objects as files on a pseudo file system; object_io.c their data; object.h both
 *   dev_bio.c    a claimed block device behind the core's mp_dev
 *   sysfs.c      attributes of pools and members, uevents
 *   main.c       init and exit; selftest.c checks the compiled core at each load
 *   os_kern.h    the kernel half of core/os.h; trace.h has the tracepoints
 *
 * Lifetimes. An mpk_pool lives from activation until the last reference:
 * the table's, one per open file (node or object), one of the pseudo file
 * system's superblock. Deactivation refuses while a file is open or an object's place
 * held (O_PATH); afterwards no new one can appear (pl_is_dead), the superblock is
 * unmounted and waited for, the core closed, the devices given back.
 *
 * Locks, outermost first: pl_admin -> mpk_pools_lock -> pl_lock -> the core's, and
 * pl_mlog_lock -> pf_lock -> the core's. I/O is done under pl_admin only. Attributes take
 * the core's locks alone: devices are removed under pl_admin and pl_node_lock, and removal
 * waits for readers of attributes.
 */
#ifndef MPK_MPK_H
#define MPK_MPK_H

#include <linux/blkdev.h>
#include <linux/cdev.h>
#include <linux/completion.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "compat/compat.h"
#include "core/obj.h"
#include "core/pool.h"
#include "uapi/mpool.h"

struct mpk_pool;

/* counters of one member, per CPU */
struct mpk_dev_stats {
	u64 ds_read_bytes, ds_write_bytes, ds_discard_bytes;
	u64 ds_reads, ds_writes, ds_flushes, ds_errors;
};

/* one claimed block device */
struct mpk_dev {
	struct mp_dev dv_core;		/* first; d_path is dv_path */
	struct mpk_claim dv_claim;	/* compat: the exclusive claim */
	struct file *dv_peek;		/* instead of a claim: the caller's descriptor */
	struct block_device *dv_bdev;
	struct mpk_pool *dv_pool;	/* NULL until the pool is open; set once */
	bool dv_is_gone;		/* the pool knows that the device was removed */
	char dv_path[64];
	struct mpk_dev_stats __percpu *dv_stats;
	atomic64_t dv_written;		/* writes completed; never 0: a new device is not clean */
	/* the flush owner: guarded by dv_flush_lock */
	struct mutex dv_flush_lock;
	struct os_cond dv_flush_cond;
	u64 dv_flush_begun, dv_flush_done, dv_flushed;
	bool dv_is_flushing;
	int dv_flush_err;		/* the first; sticky */
};

struct mpk_pool {
	struct kref pl_ref;
	struct list_head pl_list;	/* active pools in name order; mpk_pools_lock */
	struct mutex pl_admin;		/* one change by an administrator at a time */
	struct mp_pool *pl_core;
	char pl_name[MPOOL_IOC_NAME];	/* mpk_pools_lock and pl_lock to change */
	/* in a rename the new name, then the old one until the node has moved; mpk_pools_lock */
	char pl_next_name[MPOOL_IOC_NAME];
	u8 pl_uuid[16];
	u32 pl_minor;
	bool pl_is_rdonly;		/* activated so */
	bool pl_is_trusted;
	struct mutex pl_lock;
	bool pl_is_dead;		/* pl_lock: no new file may open */
	u32 pl_opens;			/* pl_lock: files of the node and of objects */
	atomic_t pl_places;		/* of objects, by a file or with O_PATH: object_fd.c */
	/* permissions of the node and of object files; pl_lock to change, READ_ONCE to read */
	kuid_t pl_uid;
	kgid_t pl_gid;
	umode_t pl_mode;
	/* lease; pl_lock. The holder is an open file */
	const void *pl_lease_file;
	u8 pl_lease_id[16];
	struct pid *pl_lease_pid;	/* referenced; NULL: no holder */
	struct mutex pl_mlog_lock;
	struct list_head pl_mlogs;	/* open mlogs, pool_mlog.c; pl_mlog_lock */
	atomic64_t pl_uring_cmds, pl_batches, pl_batch_ops;
	u32 pl_ndevs;			/* pl_admin and pl_lock to change, as the next */
	struct mpk_dev *pl_dev[MPOOL_IOC_DEVS_MAX];	/* in no special order */
	struct mutex pl_node_lock;	/* pl_device comes and goes; inside pl_admin */
	struct device *pl_device;	/* /sys/class/mpool/NAME and the node; pl_node_lock */
	struct kobject *pl_member[MPOOL_IOC_DEVS_MAX];	/* below it, by slot; pl_admin */
	struct vfsmount *pl_mnt;	/* object files */
	struct completion pl_sb_gone;	/* the superblock released its reference */
	struct work_struct pl_fault_work;	/* uevent of a fail-stop */
	struct delayed_work pl_discard_work;
	struct delayed_work pl_beat_work;	/* the heartbeat, of a pool that has one */
};

/* ---- cmd.c: error details ---- */

/*
 * A command's caller gets the last error's number and text instead of the log.
 * Begin and end in the same task.
 */
struct mpk_detail {
	struct hlist_node de_node;
	struct task_struct *de_task;
	u32 de_id;
	int de_err;
	char de_text[MPOOL_IOC_TEXT];
};

void mpk_detail_begin(struct mpk_detail *de);
void mpk_detail_end(struct mpk_detail *de);

/* ---- ctl.c ---- */

int mpk_ctl_init(void);
void mpk_ctl_exit(void);

/* ---- pools.c ---- */

int mpk_pools_init(void);
void mpk_pools_exit(void);
/* -ENODEV: none, or going away. One reference and one count of pl_opens */
struct mpk_pool *mpk_pool_open_minor(u32 minor);
/* both for files: one more, and the end of one */
int mpk_pool_hold(struct mpk_pool *pool);
void mpk_pool_release(struct mpk_pool *pool);
/* references without a file */
void mpk_pool_get(struct mpk_pool *pool);
void mpk_pool_put(struct mpk_pool *pool);
/* with pl_admin held; -ENOENT. mpk_pool_unlock() drops both */
struct mpk_pool *mpk_pool_lock_name(const char *name);
void mpk_pool_unlock(struct mpk_pool *pool);
/* is a pool of this uuid active? */
bool mpk_pool_is_active(const u8 uuid[16]);
/* the active pool that has claimed @dev, by name; false: none */
bool mpk_pool_of_dev(dev_t dev, char name[MPOOL_IOC_NAME]);
/* what MPOOL_IOC_LIST says about the pool after li_after; -ENOENT */
int mpk_pool_list_next(struct mpool_ioc_list *li);
u32 mpk_pool_state(struct mpk_pool *pool, const struct mp_pool_info *pi);
/* @dev: claimed devices, taken over on success only. The pool is published on return */
int mpk_pool_activate(struct mpk_dev **dev, u32 n, u32 flags, struct mpool_ioc_activate *ia);
/* pl_admin held: -EBUSY, or the pool is gone but for the caller's reference */
int mpk_pool_deactivate(struct mpk_pool *pool);
int mpk_pool_rename(struct mpk_pool *pool, const char *name);
/* the end of a rename: the node has the new name, and the old one is free */
void mpk_pool_renamed(struct mpk_pool *pool);
/* owner and mode of the node from on-media numbers; -EINVAL */
int mpk_pool_set_owner(struct mpk_pool *pool, u32 uid, u32 gid, u32 mode);

/* ---- commands: one table per node ---- */

#define MPK_CMD_WRITE	0x1u	/* needs a descriptor open for writing */
#define MPK_CMD_ADMIN	0x2u	/* needs CAP_SYS_ADMIN */

#define MPK_CMD_FD	0x4u	/* returns a descriptor: no results, cannot fail afterwards */

struct mpk_cmd {
	u32 cm_cmd;		/* carries the size */
	u32 cm_flags;
	u32 cm_args;		/* what may be in ma_flags */
	u16 cm_zero_off, cm_zero_len;	/* the reserved field */
	/* @arg: kernel copy of the structure, copied back on return */
	long (*cm_fn)(struct file *file, void *arg);
};

#define MPK_RESERVED(type, field) \
	.cm_zero_off = offsetof(struct type, field), \
	.cm_zero_len = sizeof_field(struct type, field)

/*
 * Checks what the uapi header promises for all commands, then calls the handler, which
 * itself checks what its structure points to. Any context that may sleep.
 */
long mpk_cmd_run(const struct mpk_cmd *table, u32 n, struct file *file, unsigned int cmd,
		 void __user *uarg);
long mpk_cmd_version(struct file *file, void *arg);
/* @n elements of @size at user address @addr; 1 <= @n <= @max. ERR_PTR, else kvfree() */
void *mpk_copy_array(u64 addr, u32 n, u32 max, size_t size);
/* a name of the caller's is terminated; 0 or -EINVAL */
int mpk_text_check(const char *text, size_t size, const char *what);

/* ---- pool_dev.c ---- */

/* one open file of the node */
struct mpk_file {
	struct mpk_pool *pf_pool;
	bool pf_is_writer;	/* the descriptor's access mode */
	struct mutex pf_lock;	/* the two tables */
	struct xarray pf_objs;	/* id -> struct handle, pool_dev.c */
	struct xarray pf_logs;	/* id -> struct open_log, pool_mlog.c */
};

extern dev_t mpk_pool_devt;	/* of minor 0; MPK_MINORS of them */
#define MPK_MINORS	4096u

int mpk_pool_dev_init(void);
void mpk_pool_dev_exit(void);
/* the core freed space or may have: discards run in the background */
void mpk_pool_kick_discard(struct mpk_pool *pool);
void mpk_pool_kick_beat(struct mpk_pool *pool);

/* ---- pool_mlog.c ---- */

long mpk_mlog_open(struct file *file, void *arg);
long mpk_mlog_close(struct file *file, void *arg);
long mpk_mlog_append(struct file *file, void *arg);
long mpk_mlog_sync(struct file *file, void *arg);
long mpk_mlog_read(struct file *file, void *arg);
long mpk_mlog_erase(struct file *file, void *arg);
long mpk_mlog_seal(struct file *file, void *arg);
long mpk_mlog_space(struct file *file, void *arg);
long mpk_root_create(struct file *file, void *arg);
long mpk_root_get(struct file *file, void *arg);
long mpk_root_delete(struct file *file, void *arg);
long mpk_root_next(struct file *file, void *arg);
/* the file goes: close what it has open */
void mpk_mlog_drop_all(struct mpk_file *pf);

/* ---- object_fd.c ---- */

int mpk_objfs_init(void);
void mpk_objfs_exit(void);
int mpk_objfs_mount(struct mpk_pool *pool);
/*
 * With pl_lock held, no file open and none to come: is no object's place held? A descriptor of
 * O_PATH holds one: it is no file of ours, and keeps the superblock. A watch of an object holds
 * none: it ends with the file system.
 */
bool mpk_objfs_is_idle(struct mpk_pool *pool);
/* idle: drops cached objects, waits until the superblock is gone */
void mpk_objfs_unmount(struct mpk_pool *pool);
/*
 * A descriptor for @obj, whose reference is taken over also on failure.
 * @flags: MPOOL_IOC_OPEN_*; write permission has been checked by the caller.
 */
int mpk_obj_fd(struct mpk_pool *pool, struct mp_obj *obj, u32 flags);
/* @id was deleted: a cached object without users goes, so that its space is freed */
void mpk_objfs_forget(struct mpk_pool *pool, u64 id);

/* ---- dev_bio.c ---- */

/*
 * Claim the device behind descriptor @fd; zoned, read-only, too small: refused by
 * name. -EBUSY: claimed otherwise; -EEXIST: by an active pool.
 */
int mpk_dev_claim(int fd, bool is_rdonly, struct mpk_dev **out);
/* the same for reading only, without a claim: probe */
int mpk_dev_peek(int fd, struct mpk_dev **out);
void mpk_dev_release(struct mpk_dev *dev);
/* of the block device behind @fd; 0: it is none */
dev_t mpk_dev_number(int fd);
/* the claimed device may have grown */
void mpk_dev_resize(struct mpk_dev *dev);
void mpk_dev_stats_sum(struct mpk_dev *dev, struct mpk_dev_stats *out);
/* statistics of a transfer that object_fd.c submitted itself; any context */
void mpk_dev_account(struct mpk_dev *dev, bool is_write, size_t bytes, int err);

static inline struct mpk_dev *mpk_dev_of(struct mp_dev *dev)
{
	return container_of(dev, struct mpk_dev, dv_core);
}

/* ---- sysfs.c ---- */

int mpk_sysfs_init(void);
void mpk_sysfs_exit(void);
/*
 * Makes the device of the pool, anew if it has one: name, owner and mode as they are now.
 * pl_admin held, as for the next three. The uevent is mpk_sysfs_announce()'s.
 */
int mpk_sysfs_add(struct mpk_pool *pool);
void mpk_sysfs_announce(struct mpk_pool *pool);
/* after a durable change: all of that anew, and never -ENOMEM */
int mpk_sysfs_move(struct mpk_pool *pool);
void mpk_sysfs_del(struct mpk_pool *pool);
/* directories of members that have none */
void mpk_sysfs_members(struct mpk_pool *pool);
/* the uevent of a pool that turned read-only: pl_fault_work */
void mpk_sysfs_fault_work(struct work_struct *work);

#endif
