/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The kernel module's interface: every ioctl of /dev/mpoolctl (administration,
 * root) and of /dev/mpool/NAME (an active pool, owner and mode of the pool).
 * libmpool speaks it behind its public API; other programs may as well.
 *
 * Rules, true for every command:
 *  - its structure begins with struct mpool_ioc_arg; ma_size is the size of
 *    the whole structure, which the command number carries too. An unknown
 *    command, a size of another version or the wrong node is -ENOTTY;
 *  - unknown flags and fields named reserved that are not zero are -EINVAL;
 *  - user memory is read once, before anything is done;
 *  - it returns 0 (OPEN: a descriptor; OBJECTS: a count) or a negative errno;
 *    a failed call leaves the structure's results undefined, except ma_error
 *    and the text at ma_text;
 *  - what it does follows from the command and the descriptor's access mode,
 *    never from a field: commands marked W need a descriptor open for writing
 *    (-EBADF). Commands of the control node need CAP_SYS_ADMIN in the initial
 *    user namespace (-EPERM), except MPOOL_IOC_VERSION. A pool's node is not opened
 *    for writing only (-EINVAL);
 *  - devices are descriptors of block devices (else -ENOTBLK), open for reading and
 *    writing (else -EACCES), without O_EXCL: the module claims the device itself.
 *    Sizes and sectors come from the device. Names are NUL-terminated, else -EINVAL;
 *  - integers are in host order, sizes and offsets are bytes; 32-bit processes
 *    use the same structures.
 *
 * Locks of a pool's node by flock() and of open files (F_OFD_SETLK) hold for the pool, by
 * whatever node it was opened: a new owner or name makes the node anew. Those of writers want a
 * descriptor open for writing, -EBADF. F_OFD_GETLK is not there.
 *
 * The commands of the pool node, but MPOOL_IOC_OPEN, also work through io_uring
 * (IORING_OP_URING_CMD; MPOOL_IOC_OPEN is -EOPNOTSUPP there):
 * cmd_op is the command number, the first 8 bytes of the payload are the address of its
 * structure, the rest is zero. The structure and what it points to must stay
 * until the completion. Nothing is done in the submitter's context that may
 * sleep.
 */
#ifndef _UAPI_MPOOL_H
#define _UAPI_MPOOL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define MPOOL_IOC_ABI		1u	/* of this header */
#define MPOOL_IOC_MAGIC		0xbe

#define MPOOL_IOC_NAME		32	/* bytes with the NUL */
#define MPOOL_IOC_LABEL		64
#define MPOOL_IOC_CLASSES	2
#define MPOOL_IOC_BATCH_MAX	1024	/* objects or operations in one call */
#define MPOOL_IOC_DEVS_MAX	128	/* members of a pool */
#define MPOOL_IOC_TEXT		256	/* room for an error text, bytes */
#define MPOOL_IOC_RECORD_MAX	(1u << 20)	/* one mlog record, bytes */
#define MPOOL_IOC_IOV_MAX	64

/**
 * struct mpool_ioc_arg - first member of every command's structure
 * @ma_size: size of the whole structure
 * @ma_flags: flags of the command, else 0
 * @ma_error: out: n of the error MPnnnn, 0 when there is none
 * @ma_text_size: room at @ma_text, 0 .. MPOOL_IOC_TEXT
 * @ma_text: address of a buffer that gets the error as NUL-terminated text; may be 0
 */
struct mpool_ioc_arg {
	__u32 ma_size;
	__u32 ma_flags;
	__u32 ma_error;
	__u32 ma_text_size;
	__u64 ma_text;
};

/* ---- both nodes ---- */

/**
 * struct mpool_ioc_version - MPOOL_IOC_VERSION: what is loaded
 * @iv_abi: out: MPOOL_IOC_ABI
 * @iv_format: out: newest media format it reads, 0x0100 ...
 * @iv_version: out: module version, text
 */
struct mpool_ioc_version {
	struct mpool_ioc_arg iv_arg;
	__u32 iv_abi;
	__u32 iv_format;
	char iv_version[32];
};

/* ---- control node ---- */

/**
 * struct mpool_ioc_dev - one device given to a command
 * @id_fd: descriptor
 * @id_mclass: 0 capacity, 1 staging (create, add), else 0
 */
struct mpool_ioc_dev {
	__s32 id_fd;
	__u32 id_mclass;
};

#define MPOOL_IOC_CREATE_FORCE	0x1u	/* overwrite members of other pools */
#define MPOOL_IOC_CREATE_PLAN	0x2u	/* all checks, nothing written */
#define MPOOL_IOC_CREATE_MULTIHOST 0x4u	/* a heartbeat keeps other hosts out */

/**
 * struct mpool_ioc_create - MPOOL_IOC_CREATE: make a pool, not active
 * @ic_uid: owner on media, and @ic_gid, @ic_mode: what an activation gives the node
 * @ic_spare_pct: percent of each class withheld, 0 .. 90
 * @ic_ndevs: number of devices at @ic_devs, 1 .. MPOOL_IOC_DEVS_MAX
 * @ic_uuid: all zero: made by the module and returned. Never one that a pool on these
 *           devices had before: what is left of its logs would be taken for the new one's
 *
 * Durable on return; a crash leaves a pool or none.
 * -EINVAL, -EEXIST (a device is in an active pool), -EBUSY (claimed), -EOPNOTSUPP
 * (zoned device), -EACCES (descriptor), -EIO, -ENOMEM.
 */
struct mpool_ioc_create {
	struct mpool_ioc_arg ic_arg;
	char ic_name[MPOOL_IOC_NAME];
	char ic_label[MPOOL_IOC_LABEL];
	__u8 ic_uuid[16];
	__u32 ic_uid, ic_gid, ic_mode;
	__u32 ic_spare_pct[MPOOL_IOC_CLASSES];
	__u32 ic_ndevs;
	__u64 ic_devs;
	__u64 ic_reserved;
};

/**
 * struct mpool_ioc_devs - MPOOL_IOC_DESTROY: remove an inactive pool
 * @ds_ndevs: number of devices at @ds_devs; those that are left suffice
 * -EBUSY: active. Devices that are not members are not touched.
 */
struct mpool_ioc_devs {
	struct mpool_ioc_arg ds_arg;
	__u32 ds_ndevs;
	__u32 ds_reserved;
	__u64 ds_devs;
};

/**
 * struct mpool_ioc_probe - MPOOL_IOC_PROBE: what a device says it is; reads only
 * @pr_fd: device, open for reading. The fields up to @pr_bytes are results
 * -EINVAL: not a member of any pool
 */
struct mpool_ioc_probe {
	struct mpool_ioc_arg pr_arg;
	__s32 pr_fd;
	__u32 pr_reserved;
	__u8 pr_uuid[16];
	__u8 pr_dev_uuid[16];
	char pr_name[MPOOL_IOC_NAME];
	__u32 pr_state;		/* 1 half-created, 2 active, 3 destroyed */
	__u32 pr_slot, pr_ndevs, pr_mclass;
	__u32 pr_format;
	__u32 pr_is_active;	/* 1: its pool is active in this kernel */
	__u64 pr_gen;
	__u64 pr_bytes;
};

#define MPOOL_IOC_ACTIVATE_RDONLY	0x1u	/* nothing is written */
#define MPOOL_IOC_ACTIVATE_TRUST	0x2u	/* take uid, gid and mode from the media */

/**
 * struct mpool_ioc_activate - MPOOL_IOC_ACTIVATE: open a pool and make /dev/mpool/NAME
 * @ia_name: out
 * @ia_uuid: out
 * @ia_minor: out: of the node
 *
 * All members, in any order. Without MPOOL_IOC_ACTIVATE_TRUST the node is
 * root:root 0600. Errors: -EEXIST (a pool of that name or uuid is active),
 * -EBUSY (device claimed elsewhere), -ENODEV (member missing), -EUCLEAN, -ESTALE,
 * -ENOTUNIQ, -EOPNOTSUPP, -EACCES, -EIO, -ENOMEM.
 */
struct mpool_ioc_activate {
	struct mpool_ioc_arg ia_arg;
	__u32 ia_ndevs;
	__u32 ia_minor;
	__u64 ia_devs;
	char ia_name[MPOOL_IOC_NAME];
	__u8 ia_uuid[16];
	__u64 ia_reserved;
};

/**
 * struct mpool_ioc_name - MPOOL_IOC_DEACTIVATE, MPOOL_IOC_GROW: a command on an active pool
 * DEACTIVATE: -ENOENT, -EBUSY (the node, an object or a map is open, or an object held with
 * O_PATH; nothing changed). Watches of objects (inotify, fanotify) end, as at an unmount.
 * GROW: use what the member devices have gained; durable on return.
 */
struct mpool_ioc_name {
	struct mpool_ioc_arg na_arg;
	char na_name[MPOOL_IOC_NAME];
	__u64 na_reserved;
};

#define MPOOL_IOC_POOL_RDONLY	0x1u	/* activated so, or fail-stopped */
#define MPOOL_IOC_POOL_FAULT	0x2u	/* fail-stopped */
#define MPOOL_IOC_POOL_TRUSTED	0x4u
#define MPOOL_IOC_POOL_MULTIHOST 0x8u	/* has a heartbeat */

/**
 * struct mpool_ioc_list - MPOOL_IOC_LIST: the active pool after @li_after in name order
 * -ENOENT at the end.
 */
struct mpool_ioc_list {
	struct mpool_ioc_arg li_arg;
	char li_after[MPOOL_IOC_NAME];
	char li_name[MPOOL_IOC_NAME];
	__u8 li_uuid[16];
	__u32 li_state;		/* MPOOL_IOC_POOL_* */
	__u32 li_opens;		/* open files: nodes and objects */
	__u32 li_minor;
	__u32 li_reserved;
};

/**
 * struct mpool_ioc_rename - MPOOL_IOC_RENAME: new name of an active pool
 * The node moves at once; open descriptors stay valid. -ENOENT, -EEXIST, -EINVAL, -EIO.
 */
struct mpool_ioc_rename {
	struct mpool_ioc_arg rn_arg;
	char rn_from[MPOOL_IOC_NAME];
	char rn_to[MPOOL_IOC_NAME];
};

/**
 * struct mpool_ioc_add - MPOOL_IOC_ADD: add devices to an active pool
 * Durable on return, all or none. With MPOOL_IOC_CREATE_PLAN all checks, nothing written.
 */
struct mpool_ioc_add {
	struct mpool_ioc_arg ad_arg;
	char ad_name[MPOOL_IOC_NAME];
	__u32 ad_ndevs;
	__u32 ad_reserved;
	__u64 ad_devs;
};

#define MPOOL_IOC_SET_OWNER	0x1u	/* st_uid, st_gid, st_mode */
#define MPOOL_IOC_SET_LABEL	0x2u
#define MPOOL_IOC_SET_SPARE	0x4u
#define MPOOL_IOC_SET_MULTIHOST	0x8u	/* begin a heartbeat */
#define MPOOL_IOC_SET_ONE_HOST	0x10u	/* end it; not both */

/**
 * struct mpool_ioc_set - MPOOL_IOC_SET: change properties of an active pool
 * ma_flags says which. Durable on return. The owner holds for the node, for new
 * opens of it and for re-opens of object descriptors at once.
 */
struct mpool_ioc_set {
	struct mpool_ioc_arg st_arg;
	char st_name[MPOOL_IOC_NAME];
	char st_label[MPOOL_IOC_LABEL];
	__u32 st_uid, st_gid, st_mode;
	__u32 st_spare_pct[MPOOL_IOC_CLASSES];
	__u32 st_reserved;
};

#define MPOOL_IOC_VERSION	_IOWR(MPOOL_IOC_MAGIC, 0, struct mpool_ioc_version)
#define MPOOL_IOC_CREATE	_IOWR(MPOOL_IOC_MAGIC, 1, struct mpool_ioc_create)
#define MPOOL_IOC_DESTROY	_IOWR(MPOOL_IOC_MAGIC, 2, struct mpool_ioc_devs)
#define MPOOL_IOC_PROBE		_IOWR(MPOOL_IOC_MAGIC, 3, struct mpool_ioc_probe)
#define MPOOL_IOC_ACTIVATE	_IOWR(MPOOL_IOC_MAGIC, 4, struct mpool_ioc_activate)
#define MPOOL_IOC_DEACTIVATE	_IOWR(MPOOL_IOC_MAGIC, 5, struct mpool_ioc_name)
#define MPOOL_IOC_LIST		_IOWR(MPOOL_IOC_MAGIC, 6, struct mpool_ioc_list)
#define MPOOL_IOC_RENAME	_IOWR(MPOOL_IOC_MAGIC, 7, struct mpool_ioc_rename)
#define MPOOL_IOC_ADD		_IOWR(MPOOL_IOC_MAGIC, 8, struct mpool_ioc_add)
#define MPOOL_IOC_GROW		_IOWR(MPOOL_IOC_MAGIC, 9, struct mpool_ioc_name)
#define MPOOL_IOC_SET		_IOWR(MPOOL_IOC_MAGIC, 10, struct mpool_ioc_set)

/* ---- pool node: the pool ---- */

/* sizes of one class, bytes */
struct mpool_ioc_class {
	__u32 cl_devs;
	__u32 cl_reserved;
	__u64 cl_total;
	__u64 cl_used;
	__u64 cl_free;
	__u64 cl_reserve;
	__u64 cl_discarding;
};

/**
 * struct mpool_ioc_info - MPOOL_IOC_INFO: what the pool is; all results
 * @in_uring_cmds: commands that came through io_uring since activation
 * @in_batches: MPOOL_IOC_BATCH calls that were applied, and @in_batch_ops: their operations
 * @in_fault: cause of the fail-stop, or ""
 */
struct mpool_ioc_info {
	struct mpool_ioc_arg in_arg;
	__u8 in_uuid[16];
	char in_name[MPOOL_IOC_NAME];
	char in_label[MPOOL_IOC_LABEL];
	__u32 in_uid, in_gid, in_mode;
	__u32 in_format;
	__u32 in_state;		/* MPOOL_IOC_POOL_* */
	__u32 in_ndevs;
	__u32 in_spare_pct[MPOOL_IOC_CLASSES];
	__u64 in_gen;
	__u64 in_objects;
	__u64 in_uring_cmds;
	__u64 in_batches;
	__u64 in_batch_ops;
	__u32 in_fault_id;
	__u32 in_opens;
	char in_fault[MPOOL_IOC_TEXT];
	struct mpool_ioc_class in_class[MPOOL_IOC_CLASSES];
};

/**
 * struct mpool_ioc_dev_info - MPOOL_IOC_DEV_INFO: member @di_slot (0, 1, ...)
 * Counters since activation. -ENOENT past the last member.
 */
struct mpool_ioc_dev_info {
	struct mpool_ioc_arg di_arg;
	__u32 di_slot;
	__u32 di_mclass;
	__u8 di_uuid[16];
	char di_path[64];	/* kernel's name: "/dev/sda" */
	__u32 di_major, di_minor;
	__u32 di_sector;	/* logical sector, bytes */
	__u32 di_has_md;
	__u64 di_bytes;
	__u64 di_read_bytes, di_write_bytes, di_discard_bytes;
	__u64 di_reads, di_writes, di_flushes, di_errors;
};

/**
 * struct mpool_ioc_flush - MPOOL_IOC_FLUSH (W): make completed writes of classes durable
 * @fl_mask: bit per class
 */
struct mpool_ioc_flush {
	struct mpool_ioc_arg fl_arg;
	__u32 fl_mask;
	__u32 fl_reserved;
};

/* ---- pool node: objects ---- */

/* one object to allocate: enum mpool_kind 1 mblock, 2 append, 3 mlog; flags MPOOL_ALLOC_* */
struct mpool_ioc_alloc_one {
	__u32 ao_kind;
	__u32 ao_mclass;
	__u32 ao_flags;
	__u32 ao_reserved;
	__u64 ao_capacity;
	__u64 ao_tag;
};

/**
 * struct mpool_ioc_alloc - MPOOL_IOC_ALLOC (W): allocate objects, all or none
 * @al_n: number, 1 .. MPOOL_IOC_BATCH_MAX
 * @al_req: address of as many struct mpool_ioc_alloc_one
 * @al_ids: address of as many __u64: results
 *
 * The descriptor's file holds one reference on each, dropped by
 * MPOOL_IOC_DROP or with the last descriptor of that file; an mblock that is not
 * committed by then is gone.
 */
struct mpool_ioc_alloc {
	struct mpool_ioc_arg al_arg;
	__u32 al_n;
	__u32 al_reserved;
	__u64 al_req;
	__u64 al_ids;
};

/* what an object is: fields and flags as struct mpool_obj_info of libmpool */
struct mpool_ioc_obj {
	__u64 ob_id;
	__u64 ob_tag;
	__u64 ob_capacity;
	__u64 ob_length;
	__u32 ob_kind;
	__u32 ob_mclass;
	__u32 ob_flags;
	__u32 ob_crc;
};

/**
 * struct mpool_ioc_hold - MPOOL_IOC_HOLD, MPOOL_IOC_OBJ_INFO
 * @ho_id: object
 * @ho_obj: out
 * HOLD takes one more reference for this file: the object's space is not reused
 * while one is held. OBJ_INFO describes a held object. -ENOENT.
 */
struct mpool_ioc_hold {
	struct mpool_ioc_arg ho_arg;
	__u64 ho_id;
	struct mpool_ioc_obj ho_obj;
};

/**
 * struct mpool_ioc_drop - MPOOL_IOC_DROP: give back one reference of each
 * @dr_ids: address of @dr_n ids, 1 .. MPOOL_IOC_BATCH_MAX
 * -ENOENT: one is not held by this file; those before it were dropped.
 */
struct mpool_ioc_drop {
	struct mpool_ioc_arg dr_arg;
	__u32 dr_n;
	__u32 dr_reserved;
	__u64 dr_ids;
};

/**
 * struct mpool_ioc_objects - MPOOL_IOC_OBJECTS: durable objects in ascending order
 * @os_after: ids greater than this
 * @os_tag: only this tag; 0 = all
 * @os_max: room at @os_out, 1 .. MPOOL_IOC_BATCH_MAX
 * @os_out: address of struct mpool_ioc_obj
 * Returns the number filled.
 */
struct mpool_ioc_objects {
	struct mpool_ioc_arg os_arg;
	__u64 os_after;
	__u64 os_tag;
	__u32 os_max;
	__u32 os_reserved;
	__u64 os_out;
};

#define MPOOL_IOC_OP_CRC	0x8u	/* op_crc is given */

/*
 * One operation: 1 commit, 2 seal, 3 delete. Commit and seal need a held object; the mlogs of
 * a root are deleted with it only.
 */
struct mpool_ioc_op {
	__u32 op_type;
	__u32 op_flags;
	__u64 op_id;
	__u64 op_length;
	__u32 op_crc;
	__u32 op_reserved;
};

/**
 * struct mpool_ioc_batch - MPOOL_IOC_BATCH (W): apply operations atomically
 * @ba_n: 1 .. MPOOL_IOC_BATCH_MAX operations at @ba_ops
 * One flush of the data's devices, one record, one flush of the metadata log.
 * Durable on return. -ENOENT, -EINVAL, -ENOSPC, -EROFS, -EIO.
 */
struct mpool_ioc_batch {
	struct mpool_ioc_arg ba_arg;
	__u32 ba_n;
	__u32 ba_reserved;
	__u64 ba_ops;
};

#define MPOOL_IOC_OPEN_WRITE	0x1u	/* needs a pool descriptor open for writing */
#define MPOOL_IOC_OPEN_DIRECT	0x2u	/* O_DIRECT */
#define MPOOL_IOC_OPEN_CLOEXEC	0x4u

/**
 * struct mpool_ioc_open - MPOOL_IOC_OPEN: an object as a file; returns the descriptor
 * @op_id: a durable object, or one held by this file
 *
 * pread, pwrite, io_uring, mmap, fsync, syncfs (the whole pool), fadvise. Writes follow
 * on where the object ends, with O_DIRECT only, in multiples of 4 KiB; the rest is
 * -EINVAL, and a first write while a batch has the object in flight -EBUSY. RLIMIT_FSIZE
 * cuts a write at whole blocks, -EFBIG and SIGXFSZ beyond; statx() tells STATX_DIOALIGN.
 * Reading with the page cache and mapping need a committed or sealed object.
 * Shared writable maps, truncate, fallocate, extended attributes, chmod and chown are
 * refused. Opening it again through /proc checks the pool's permissions anew.
 */
struct mpool_ioc_open {
	struct mpool_ioc_arg op_arg;
	__u64 op_id;
	__u64 op_reserved;
};

/* ---- pool node: mlogs and roots ---- */

/**
 * struct mpool_ioc_mlog - MPOOL_IOC_MLOG_OPEN, _CLOSE, _SYNC (W), _ERASE (W), _SEAL (W), _SPACE
 * @ml_id: mlog
 * @ml_used: out of SPACE, bytes; @ml_capacity too
 *
 * OPEN belongs to the file: one writer (a descriptor open for writing) per
 * mlog, -EBUSY; any number of readers. The other commands and the next two
 * structures need it open: -ENOENT.
 */
struct mpool_ioc_mlog {
	struct mpool_ioc_arg ml_arg;
	__u64 ml_id;
	__u64 ml_used;
	__u64 ml_capacity;
};

/* as struct iovec, of the same size in every process */
struct mpool_ioc_vec {
	__u64 ve_base;
	__u64 ve_len;
};

#define MPOOL_IOC_APPEND_SYNC	0x1u	/* durable on return */

/**
 * struct mpool_ioc_append - MPOOL_IOC_MLOG_APPEND (W): one record
 * @ap_n: 1 .. MPOOL_IOC_IOV_MAX parts at @ap_vec, 1 .. MPOOL_IOC_RECORD_MAX bytes in all
 * -EFBIG: does not fit, nothing appended.
 */
struct mpool_ioc_append {
	struct mpool_ioc_arg ap_arg;
	__u64 ap_id;
	__u32 ap_n;
	__u32 ap_reserved;
	__u64 ap_vec;
};

/**
 * struct mpool_ioc_read - MPOOL_IOC_MLOG_READ: the record at @rd_pos
 * @rd_pos: 0 for the first; out: the next one
 * @rd_buf: address of @rd_size bytes
 * @rd_len: out: length of the record, also with -EOVERFLOW (@rd_pos unchanged)
 * -ENODATA: no further record. -EUCLEAN: no intact record begins at @rd_pos. A
 * descriptor open for reading only sees what has left the writer's buffer: all
 * that was synced, at least.
 */
struct mpool_ioc_read {
	struct mpool_ioc_arg rd_arg;
	__u64 rd_id;
	__u64 rd_pos;
	__u64 rd_buf;
	__u64 rd_size;
	__u64 rd_len;
};

/**
 * struct mpool_ioc_root - MPOOL_IOC_ROOT_CREATE (W), _GET, _DELETE (W), _NEXT
 * @ro_name: name of a pair of mlogs; NEXT: begin after it, out: the name found
 * @ro_id: out of GET and NEXT
 * @ro_mclass: CREATE, as @ro_capacity (of each) and @ro_tag
 */
struct mpool_ioc_root {
	struct mpool_ioc_arg ro_arg;
	char ro_name[MPOOL_IOC_NAME];
	__u64 ro_id[2];
	__u32 ro_mclass;
	__u32 ro_reserved;
	__u64 ro_capacity;
	__u64 ro_tag;
};

/**
 * struct mpool_ioc_lease - MPOOL_IOC_LEASE (W), MPOOL_IOC_UNLEASE (W)
 * Exclusive on the pool, released with the last descriptor of the file at the
 * latest. -EBUSY: the text names the holder, by its number where the caller has one for it.
 * UNLEASE: -ENOENT.
 */
struct mpool_ioc_lease {
	struct mpool_ioc_arg le_arg;
	__u8 le_id[16];
};

#define MPOOL_IOC_INFO		_IOWR(MPOOL_IOC_MAGIC, 32, struct mpool_ioc_info)
#define MPOOL_IOC_DEV_INFO	_IOWR(MPOOL_IOC_MAGIC, 33, struct mpool_ioc_dev_info)
#define MPOOL_IOC_FLUSH		_IOWR(MPOOL_IOC_MAGIC, 34, struct mpool_ioc_flush)
#define MPOOL_IOC_ALLOC		_IOWR(MPOOL_IOC_MAGIC, 35, struct mpool_ioc_alloc)
#define MPOOL_IOC_HOLD		_IOWR(MPOOL_IOC_MAGIC, 36, struct mpool_ioc_hold)
#define MPOOL_IOC_DROP		_IOWR(MPOOL_IOC_MAGIC, 37, struct mpool_ioc_drop)
#define MPOOL_IOC_OBJ_INFO	_IOWR(MPOOL_IOC_MAGIC, 38, struct mpool_ioc_hold)
#define MPOOL_IOC_OBJECTS	_IOWR(MPOOL_IOC_MAGIC, 39, struct mpool_ioc_objects)
#define MPOOL_IOC_BATCH		_IOWR(MPOOL_IOC_MAGIC, 40, struct mpool_ioc_batch)
#define MPOOL_IOC_OPEN		_IOWR(MPOOL_IOC_MAGIC, 41, struct mpool_ioc_open)
#define MPOOL_IOC_MLOG_OPEN	_IOWR(MPOOL_IOC_MAGIC, 42, struct mpool_ioc_mlog)
#define MPOOL_IOC_MLOG_CLOSE	_IOWR(MPOOL_IOC_MAGIC, 43, struct mpool_ioc_mlog)
#define MPOOL_IOC_MLOG_APPEND	_IOWR(MPOOL_IOC_MAGIC, 44, struct mpool_ioc_append)
#define MPOOL_IOC_MLOG_SYNC	_IOWR(MPOOL_IOC_MAGIC, 45, struct mpool_ioc_mlog)
#define MPOOL_IOC_MLOG_READ	_IOWR(MPOOL_IOC_MAGIC, 46, struct mpool_ioc_read)
#define MPOOL_IOC_MLOG_ERASE	_IOWR(MPOOL_IOC_MAGIC, 47, struct mpool_ioc_mlog)
#define MPOOL_IOC_MLOG_SEAL	_IOWR(MPOOL_IOC_MAGIC, 48, struct mpool_ioc_mlog)
#define MPOOL_IOC_MLOG_SPACE	_IOWR(MPOOL_IOC_MAGIC, 49, struct mpool_ioc_mlog)
#define MPOOL_IOC_ROOT_CREATE	_IOWR(MPOOL_IOC_MAGIC, 50, struct mpool_ioc_root)
#define MPOOL_IOC_ROOT_GET	_IOWR(MPOOL_IOC_MAGIC, 51, struct mpool_ioc_root)
#define MPOOL_IOC_ROOT_DELETE	_IOWR(MPOOL_IOC_MAGIC, 52, struct mpool_ioc_root)
#define MPOOL_IOC_ROOT_NEXT	_IOWR(MPOOL_IOC_MAGIC, 53, struct mpool_ioc_root)
#define MPOOL_IOC_LEASE		_IOWR(MPOOL_IOC_MAGIC, 54, struct mpool_ioc_lease)
#define MPOOL_IOC_UNLEASE	_IOWR(MPOOL_IOC_MAGIC, 55, struct mpool_ioc_lease)

#endif
