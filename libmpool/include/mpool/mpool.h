/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * libmpool: object storage media pools.
 *
 * A pool joins files or block devices of several media classes and holds two
 * kinds of objects: write-once mblocks and append-only mlogs. The pool may be
 * opened inside the calling process (a path, containing '/') or, when the
 * kernel module is present, by name.
 *
 * Conventions, true for every function unless its comment says otherwise:
 *  - it returns 0 or a negative errno and leaves out-parameters untouched on
 *    failure; mpool_error_detail() tells the calling thread the rest;
 *  - NULL is -EINVAL where its comment does not allow it, also where it names no errors;
 *    what closes something ignores it;
 *  - any thread may call it at any time on a live handle;
 *  - offsets, lengths and sizes are bytes; times are nanoseconds unless the
 *    name ends in another unit;
 *  - a change that is to be durable on return and fails with -EIO on its way to the
 *    media (MP0145, MP0146) has made the pool read-only, and may be there or not: the
 *    next open shows. With any other error nothing was changed;
 *  - it never prints, never exits, and installs no signal handler; to the threads
 *    of the library no signal of the program comes;
 *  - a thread must neither be cancelled (pthread_cancel()) nor leave by longjmp()
 *    while it is in a call;
 *  - after fork() only the parent may use its handles. The child shares the
 *    pool's locks until it ends or calls exec(), which closes them.
 */
#ifndef MPOOL_MPOOL_H
#define MPOOL_MPOOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
/* a function may have the name of a struct, as stat() has */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#endif

/* the libraries are built with hidden symbols; what is declared here is exported */
#pragma GCC visibility push(default)

/* an initializer of options; C++ has no such thing that all compilers take without a warning */
#ifdef __cplusplus
#define MPOOL_OPTS_OF(type) \
	([] { struct type opts_ = {}; opts_.size = sizeof(opts_); return opts_; }())
#else
#define MPOOL_OPTS_OF(type) { .size = sizeof(struct type) }
#endif

#define MPOOL_NAME_MAX   31   /* bytes, without the NUL */
#define MPOOL_LABEL_MAX  63
#define MPOOL_ALIGN      4096 /* unit of offsets and lengths of object I/O */
#define MPOOL_DEVS_MAX   64   /* devices per media class */
#define MPOOL_BATCH_MAX  1024 /* operations in one atomic batch */

/** enum mpool_mclass - media class of a device or an object */
enum mpool_mclass {
	MPOOL_CAPACITY = 0, /* required in every pool */
	MPOOL_STAGING  = 1, /* optional: fast, enduring */
	MPOOL_MCLASSES = 2,
};

/** enum mpool_kind - kind of an object */
enum mpool_kind {
	MPOOL_MBLOCK = 1, /* written once, exists after commit */
	MPOOL_APPEND = 2, /* exists from alloc on, appended, then sealed */
	MPOOL_MLOG   = 3, /* framed log of records */
};

struct mpool;      /* an open pool */
struct mpool_obj;  /* a handle on an object: its space is not reused while one is held */
struct mpool_ioq;  /* an I/O queue, owned by one thread */
struct mpool_mlog; /* an open mlog */
struct mpool_mdc;  /* an open metadata container: a pair of mlogs */
struct mpool_dev_provider; /* porting interface, see mpool/provider.h */

/* ---- errors ---------------------------------------------------------- */

/**
 * struct mpool_error - what went wrong, for the calling thread
 * @id: stable identifier "MPnnnn"; "" when the last call succeeded
 * @err: the negative errno that was returned
 * @text: one line: object, reason, way out
 * @cure: what usually helps, or ""
 */
struct mpool_error {
	char id[8];
	int err;
	char text[256];
	char cure[256];
};

/**
 * mpool_error_detail() - details of this thread's last failed call
 *
 * There is one detail for a thread: a library on top of this one tells its errors here, too.
 * Submitting and reaping leave it when they succeed, and tell the last request of theirs
 * that failed.
 * Threads: any; the result belongs to the calling thread until its next call.
 * Blocking: never. Durability: none. Errors: none.
 */
const struct mpool_error *mpool_error_detail(void);

/**
 * mpool_error_slot() - where a library on top of this one writes the details of its failures
 *
 * What it writes there is what mpool_error_detail() tells the thread, until the next call of
 * this library that is not on a pool opened with MPOOL_OPEN_QUIET.
 * Threads: any; it belongs to the calling thread. Blocking: never. Durability: none.
 * Errors: none.
 */
struct mpool_error *mpool_error_slot(void);

/**
 * mpool_error_adopt() - make what this thread's last call met the detail of the thread
 * @err: the negative errno that is returned to the program; returned
 *
 * For a library on top of this one, after a call on a pool that it opened with
 * MPOOL_OPEN_QUIET has failed.
 * Threads: any. Blocking: never. Durability: none. Errors: @err.
 */
int mpool_error_adopt(int err);

/**
 * mpool_error_explain() - look up a stable error identifier
 * @id: "MPnnnn"
 * @name: set to the symbolic name; may be NULL
 * @text: set to the meaning; may be NULL
 * @cure: set to the cure; may be NULL
 *
 * The strings stay.
 * Threads: any. Blocking: never. Durability: none. Errors: -ENOENT.
 */
int mpool_error_explain(const char *id, const char **name, const char **text, const char **cure);

/* ---- pools ----------------------------------------------------------- */

/**
 * struct mpool_dev_spec - one member device at create
 * @path: file or block device; for a file pool NULL takes the default name
 *        inside the pool's directory
 * @mclass: enum mpool_mclass
 * @size: bytes to use; required for a file, 0 = all of a block device
 */
struct mpool_dev_spec {
	const char *path;
	uint32_t mclass;
	uint32_t pad;
	uint64_t size;
};

#define MPOOL_CREATE_FORCE 0x1u /* override the foreign-signature check */
#define MPOOL_CREATE_PLAN  0x2u /* check everything, write nothing */
/*
 * Hosts that reach the same devices are kept apart by a heartbeat: an open then takes one
 * second, or one and a half after a crash. MPOOL_CREATE_ONE_HOST: they are not; only one host
 * may have the devices. Neither: by what the devices are, yes for fabrics, no for disks.
 */
#define MPOOL_CREATE_MULTIHOST 0x4u
#define MPOOL_CREATE_ONE_HOST  0x8u
/* a path whose last component is no name of a pool gives it one made of its UUID */
#define MPOOL_CREATE_ANY_NAME  0x10u

/* grow_max: files grow until their file system has no more than a tenth free */
#define MPOOL_GROW_AUTO UINT64_MAX

/**
 * struct mpool_create_opts - options of mpool_create()
 * @size: sizeof(struct mpool_create_opts)
 * @flags: MPOOL_CREATE_*
 * @name: pool name; NULL takes the last component of the path
 * @label: free text without control characters, at most MPOOL_LABEL_MAX bytes; may be NULL
 * @uid: owner recorded in the pool; 0 of a caller that is not root: the caller
 * @gid: group recorded in the pool; 0 of a caller that is not root: the caller's
 * @mode: permissions recorded in the pool, 0 .. 0777; 0 = 0600
 * @spare_pct: percent of each class withheld from ordinary allocation, 0 .. 90
 * @devs: member devices, at least one of MPOOL_CAPACITY
 * @ndevs: number of @devs
 * @provider: porting interface; NULL = files and block devices
 * @grow_max: 0, or: while the pool is open, files grow to so many bytes each, or MPOOL_GROW_AUTO;
 *   for opens that say nothing else. A new file begins no larger than its file system has room,
 *   and the metadata log of what it may become besides, which takes no space before it is used
 */
struct mpool_create_opts {
	size_t size;
	uint32_t flags;
	uint32_t uid, gid, mode;
	uint32_t spare_pct[MPOOL_MCLASSES];
	const char *name;
	const char *label;
	const struct mpool_dev_spec *devs;
	unsigned ndevs;
	const struct mpool_dev_provider *provider;
	uint64_t grow_max;
};
#define MPOOL_CREATE_OPTS_INIT MPOOL_OPTS_OF(mpool_create_opts)

/**
 * mpool_create() - make a pool
 * @path: directory of the pool (made if absent, mode 0700); holds pool.json
 *        and, for file pools, capacity.mp and staging.mp. Without '/': name of a
 *        pool of the kernel module, whose members are whole block devices (root);
 *        active on return, with the owner and mode given here
 * @opts: what to make
 *
 * All member devices are checked before the first byte is written; a device
 * with a foreign signature (libblkid) is refused unless forced.
 *
 * Threads: any. Blocking: I/O. Durability: durable on return; a crash in the
 * middle leaves a pool or none.
 * Errors: -EEXIST (a pool is there, a device is a member of one, a file is not empty, pool.json
 * names a member that is away or cannot be read), -EBUSY (device in use; another process makes or
 * removes a pool there), -EINVAL (options, name, sizes; neither file nor block device), -ENOENT (no
 * such device, or nothing above the directory), -ENOTDIR, -ELOOP (a file's path is a symbolic
 * link), -ENAMETOOLONG, -ENOSPC (files cannot be allocated), -EPERM (foreign signature; of the
 * module: not root), -EACCES, -EROFS (the file system), -EIO, -ENOMEM, -EOPNOTSUPP (module),
 * and what the system says of a file or directory.
 */
int mpool_create(const char *path, const struct mpool_create_opts *opts);

/*
 * Nothing is written. Several readers may have a pool on files open at once; a
 * writer excludes readers, and readers a writer. A block device has one opener.
 * A pool of the kernel module has any number of both: see mpool_lease().
 */
#define MPOOL_OPEN_RDONLY 0x1u
/*
 * With MPOOL_OPEN_RDONLY: beside a writer, without excluding it or being excluded. What is seen
 * is the pool of some moment: objects that existed then, of which those that the writer deletes
 * read as anything. So a client needs an agreement with the writer about what stays, see
 * mpool_hold(), and takes what looks damaged, in mpool_open() or later, for a reason to close
 * the pool and look again. Not with a provider (-EOPNOTSUPP).
 */
#define MPOOL_OPEN_SHARED 0x2u
/*
 * For writing, but nothing is written, what mpool_open() itself writes included, before
 * mpool_begin(): for a client that looks first whether what is in the pool is sound. Until then
 * what would write returns -EROFS. Not with MPOOL_OPEN_RDONLY. A pool of the kernel module is
 * open already: there the flag means nothing.
 */
#define MPOOL_OPEN_LOOK 0x4u
/*
 * For a library on top of this one, whose calls on the pool are not the program's: neither
 * mpool_open() nor calls on the pool and what is in it change what mpool_error_detail() tells
 * before that library says so by mpool_error_adopt().
 */
#define MPOOL_OPEN_QUIET 0x8u
/*
 * No thread of this library: the call that frees space gives it back to the file system or device
 * itself. What a crash left to be given back waits for an open without this flag. A pool of the
 * kernel module has its own threads.
 */
#define MPOOL_OPEN_NOTHREAD 0x10u

/**
 * struct mpool_open_opts - options of mpool_open()
 * @size: sizeof(struct mpool_open_opts)
 * @flags: MPOOL_OPEN_*
 * @io: "uring", "sync" or NULL (environment MPOOL_IO, else the best that works)
 * @dev: device layers as in the environment variable MPOOL_DEV, or NULL
 * @provider: porting interface, there as long as the pool is open; NULL = files and block
 *   devices. All else that is pointed to is needed during the call only
 * @grow_max: 0 = as the pool was made; else files grow to so many bytes each, or MPOOL_GROW_AUTO,
 *   while the pool is open. Each step is durable before it is used; a crash leaves the pool with
 *   the old or the new size. Not block devices, nor beside device layers
 */
struct mpool_open_opts {
	size_t size;
	uint32_t flags;
	const char *io;
	const char *dev;
	const struct mpool_dev_provider *provider;
	uint64_t grow_max;
};
#define MPOOL_OPEN_OPTS_INIT MPOOL_OPTS_OF(mpool_open_opts)

/**
 * mpool_open() - open (activate) a pool
 * @path: what mpool_create() was given; a name without '/' is that of a pool that
 *        is active in the kernel module. There, providers and device layers
 *        are -EOPNOTSUPP, and every user that the node's mode lets may open it
 * @opts: options, or NULL
 * @out: the pool
 *
 * Threads: any. Blocking: I/O; time follows live objects, not history. Readers of files
 * are waited for, 2 seconds at most, and the end of an owner that closed it or died, 30.
 * Durability: repairs of superblock copies are durable on return.
 * Errors: -EINVAL (options, path; what should be a member is none, or another pool's),
 * -ENOENT, -EBUSY (open elsewhere, on another host too), -EUCLEAN (damage, lost writes, pool.json),
 * -ENOTUNIQ (duplicate member), -ENODEV (member missing), -ESTALE (an older
 * copy of a member), -EOPNOTSUPP (format or module), -EAGAIN (no thread for the heartbeat of a
 * pool that hosts share), -EROFS (a feature that can only be
 * read, or a file system), -ENOSPC (a copy lacks its log's space, and the file system below is
 * full), -ELOOP, -ENAMETOOLONG, -EACCES, -EIO, -ENOMEM, and what the system says of a file.
 */
int mpool_open(const char *path, const struct mpool_open_opts *opts, struct mpool **out);

/**
 * mpool_begin() - begin to write to a pool that was opened with MPOOL_OPEN_LOOK
 * @mp: the pool; objects, logs and containers of it may be open. Without the flag there is
 *      nothing to do
 *
 * Threads: no other use of @mp may be in progress. Blocking: I/O, as mpool_open().
 * Durability: repairs of superblock copies are durable on return.
 * Errors: -EINVAL (MPOOL_OPEN_RDONLY), -EIO, -ENOMEM, -EBUSY (another host took the pool), -ENOSPC
 * (as mpool_open()). After one, some of the superblocks may have been written, and the pool can
 * be read and closed only.
 */
int mpool_begin(struct mpool *mp);

/**
 * mpool_close() - close a pool
 * @mp: the pool; every object, queue, log and container must be closed
 *
 * What is free and was not discarded yet is discarded first, for 250 ms at most and one
 * discard more; the rest stays allocated in a file until the next open has discarded it.
 * Threads: no other use of @mp may be in progress. Blocking: I/O.
 * Durability: nothing that was not durable before becomes required.
 * Errors: -EBUSY (something is open; the pool stays open), -EIO.
 */
int mpool_close(struct mpool *mp);

/**
 * mpool_destroy() - remove a pool and all its member files
 * @path: as in mpool_open(); an active pool is deactivated first
 * @opts: options, or NULL
 *
 * Every member that is a file is removed, wherever it lies and whether or not
 * it existed before mpool_create(). Block devices stay and lose their
 * superblocks. The directory is removed when nothing else is in it, a symbolic link to it
 * is not. Where the folder of a file may not be written, nothing is removed: -EACCES.
 *
 * Threads: any. Blocking: I/O. Durability: durable on return; a cut anywhere
 * leaves the whole pool or none.
 * Errors: -EINVAL (MPOOL_OPEN_RDONLY), and as mpool_open().
 */
int mpool_destroy(const char *path, const struct mpool_open_opts *opts);

/** struct mpool_class_info - sizes of one class, bytes */
struct mpool_class_info {
	uint32_t mclass;
	uint32_t devs;
	uint32_t spare_pct;  /* withheld from ordinary allocation, percent of total */
	uint32_t pad;
	uint64_t total;      /* usable for objects */
	uint64_t used;       /* held by objects, committed or not */
	uint64_t free;       /* total - used - reserve */
	uint64_t reserve;    /* withheld: spare and metadata reserve */
	uint64_t discarding; /* part of free, waiting for discard */
	uint64_t growable;   /* by grow_max of mpool_open_opts it may become more */
};

/** struct mpool_info - what a pool is */
struct mpool_info {
	uint8_t uuid[16];
	char name[MPOOL_NAME_MAX + 1];
	char label[MPOOL_LABEL_MAX + 1];
	uint32_t uid, gid, mode;
	uint32_t format_version; /* 0x0100 ... */
	uint32_t is_rdonly;      /* 1: sticky fail-stop state, see fault */
	uint32_t is_direct;      /* 1: O_DIRECT works on every member */
	uint64_t generation;
	uint64_t objects;
	char io[16];             /* "uring", "sync" */
	char fault[256];         /* cause of the read-only state, or "" */
	struct mpool_class_info cls[MPOOL_MCLASSES];
};

/**
 * mpool_info() - describe an open pool.
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
int mpool_info(struct mpool *mp, struct mpool_info *out);

/**
 * mpool_is_multihost() - is this pool kept from other hosts by a heartbeat?
 * @mp: pool
 * Returns 0 or 1. Threads: any. Blocking: never. Durability: none. Errors: none.
 */
int mpool_is_multihost(struct mpool *mp);

/** struct mpool_dev_info - one member device */
struct mpool_dev_info {
	uint8_t uuid[16];
	char path[256]; /* of one that is longer the middle is "..." */
	uint32_t mclass;
	uint32_t slot;
	uint64_t size;
	uint32_t is_direct;
	uint32_t is_block;
	/* since open: bytes and calls submitted to the device */
	uint64_t read_bytes, write_bytes, discard_bytes;
	uint64_t reads, writes, flushes, errors;
	/*
	 * Since open: reads that succeeded, with bytes that failed a checksum; of these, reads
	 * whose second reading was good, so that not the medium was at fault; superblocks and
	 * records of the metadata log that were written anew from a good copy.
	 */
	uint64_t csum_errors, rereads, repairs;
	uint32_t has_health;     /* 0: these three are not counted here (kernel module) */
	uint32_t pad;
};

/**
 * mpool_dev_info() - describe member @slot (0, 1, ...)
 * Threads: any. Blocking: never. Durability: none. Errors: -ENOENT past the last.
 */
int mpool_dev_info(struct mpool *mp, unsigned slot, struct mpool_dev_info *out);

/* ---- objects --------------------------------------------------------- */

#define MPOOL_ALLOC_SPARE 0x1u /* may take spare space */
#define MPOOL_ALLOC_ANY   0x2u /* when the class is full take another */

/**
 * struct mpool_alloc - one object to allocate
 * @kind: enum mpool_kind (not MPOOL_MLOG)
 * @mclass: enum mpool_mclass
 * @flags: MPOOL_ALLOC_*
 * @capacity: 1 byte to 16 TiB, rounded up to 4 KiB
 * @tag: client tag, kept with the object
 */
struct mpool_alloc {
	uint32_t kind;
	uint32_t mclass;
	uint32_t flags;
	uint32_t pad;
	uint64_t capacity;
	uint64_t tag;
};

/**
 * mpool_alloc() - allocate objects, all or none
 * @mp: pool
 * @req: what to allocate
 * @n: number of @req, 1 .. MPOOL_BATCH_MAX
 * @out: @n handles
 *
 * Threads: any. Blocking: MPOOL_MBLOCK never; MPOOL_APPEND until durable (one
 * record and one flush for the whole batch).
 * Durability: an append object exists from return on; a plain mblock exists
 * when committed, and its space is free again when its last handle closes
 * uncommitted.
 * Errors: -ENOSPC (microseconds; also when the file system below is full), -EROFS (pool is
 * fail-stopped), -EINVAL, -ENOMEM, -EIO.
 */
int mpool_alloc(struct mpool *mp, const struct mpool_alloc *req, unsigned n,
		struct mpool_obj **out);

/**
 * mpool_obj_open() - open an existing (committed, append or sealed) object
 * @mp: pool
 * @id: object id
 * @out: handle
 * Threads: any. Blocking: never. Durability: none. Errors: -ENOENT, -ENOMEM.
 */
int mpool_obj_open(struct mpool *mp, uint64_t id, struct mpool_obj **out);

/**
 * mpool_obj_get() - take another reference on a handle.
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
struct mpool_obj *mpool_obj_get(struct mpool_obj *obj);

/**
 * mpool_obj_close() - drop a reference; NULL is ignored
 * An uncommitted mblock is aborted with its last handle; the space of a
 * deleted object is freed with its last handle.
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
void mpool_obj_close(struct mpool_obj *obj);

#define MPOOL_OBJ_COMMITTED 0x1u
#define MPOOL_OBJ_SEALED    0x2u
#define MPOOL_OBJ_DELETED   0x4u
#define MPOOL_OBJ_HAS_CRC   0x8u

/** struct mpool_obj_info - what an object is */
struct mpool_obj_info {
	uint64_t id;
	uint64_t tag;
	uint64_t capacity; /* bytes allocated */
	/* committed or sealed length; of an unsealed append object: written since open */
	uint64_t length;
	uint32_t kind;
	uint32_t mclass;
	uint32_t flags; /* MPOOL_OBJ_* */
	uint32_t crc;   /* of the content, when MPOOL_OBJ_HAS_CRC */
};

/**
 * mpool_obj_info() - describe an object.
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
int mpool_obj_info(struct mpool_obj *obj, struct mpool_obj_info *out);
/**
 * mpool_obj_id() - id of an object.
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
uint64_t mpool_obj_id(const struct mpool_obj *obj);

/**
 * mpool_objects() - enumerate durable objects in ascending id order
 * @mp: pool
 * @after: return ids greater than this; 0 to begin
 * @tag: only this client tag; 0 = all
 * @out: array
 * @max: its size
 * Returns the number filled, 0 at the end.
 * Threads: any. Blocking: never. Durability: none. Errors: -EINVAL.
 */
int mpool_objects(struct mpool *mp, uint64_t after, uint64_t tag, struct mpool_obj_info *out,
		  unsigned max);

/**
 * mpool_obj_place() - where a byte range of an object lies, for outside tools such as fio
 * @obj: object
 * @off: offset in the object
 * @fd: file descriptor of the member (owned by the pool; do not close). Kernel
 *      module: of the object itself, open as long as the object has handles
 * @pos: offset in what @fd names
 * @len: contiguous bytes from there
 * Threads: any. Blocking: never. Durability: none.
 * Errors: -EINVAL (beyond capacity), -EOPNOTSUPP (member has no descriptor), -EMFILE (module).
 */
int mpool_obj_place(struct mpool_obj *obj, uint64_t off, int *fd, uint64_t *pos, uint64_t *len);

/**
 * mpool_bad_read() - count a read whose bytes failed the client's own checksum
 * @obj: object that was read
 * @off: offset in it of what failed
 * @is_reread: 1: a second reading was good, and not the medium at fault
 *
 * Counted for the member that holds @off, see struct mpool_dev_info; nothing else comes of it.
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
void mpool_bad_read(struct mpool_obj *obj, uint64_t off, int is_reread);

enum mpool_op_type {
	MPOOL_OP_COMMIT = 1, /* plain mblock: length (and CRC) become final */
	MPOOL_OP_SEAL   = 2, /* append mblock: length (and CRC) become final */
	MPOOL_OP_DELETE = 3, /* by handle or by id; a container's logs go with it only */
};

/**
 * struct mpool_op - one operation of an atomic batch
 * @type: enum mpool_op_type
 * @flags: MPOOL_OBJ_HAS_CRC when @crc is given
 * @obj: handle; may be NULL for MPOOL_OP_DELETE
 * @id: for MPOOL_OP_DELETE without a handle
 * @length: final length, bytes, 4 KiB multiple, <= capacity
 * @crc: CRC32C of the content up to @length
 */
struct mpool_op {
	uint32_t type;
	uint32_t flags;
	struct mpool_obj *obj;
	uint64_t id;
	uint64_t length;
	uint32_t crc;
	uint32_t pad;
};

/**
 * mpool_batch() - apply operations atomically
 * @mp: pool
 * @op: operations
 * @n: 1 .. MPOOL_BATCH_MAX
 *
 * The data of the objects that are committed or sealed must have been written;
 * this call flushes their devices before the metadata record, then writes one
 * record with one flush. A crash shows all of it or nothing.
 *
 * Threads: any; concurrent batches share flushes. Blocking: I/O.
 * Durability: durable on return.
 * Errors: -ENOENT (no such object), -EINVAL (state, length), -EBUSY (an object is in another
 * batch, a log is open), -ENOSPC (metadata log full), -EROFS, -ENOMEM, -EIO (MP0174: a write of
 * an object had failed, nothing was done; else the pool is then read-only, and whether the batch
 * was done the next open shows).
 */
int mpool_batch(struct mpool *mp, const struct mpool_op *op, unsigned n);

/**
 * mpool_flush() - make all completed writes of a class durable
 * @mp: pool
 * @mclass_mask: bit (1 << enum mpool_mclass) per class
 *
 * One flush per device serves all callers that wait for it.
 * Threads: any. Blocking: I/O. Durability: what completed before the call.
 * Errors: -EIO: the first failure makes the pool read-only for good; -EROFS.
 */
int mpool_flush(struct mpool *mp, unsigned mclass_mask);

/* ---- data I/O: queues ------------------------------------------------- */

enum mpool_io_type { MPOOL_READ = 1, MPOOL_WRITE = 2, MPOOL_FLUSH = 3, MPOOL_BATCH = 4 };

/**
 * struct mpool_io - one request
 * @obj: object; its reference must be held until the completion is reaped.
 *       MPOOL_BATCH: NULL; the same holds for the objects of @op
 * @type: enum mpool_io_type; MPOOL_FLUSH makes the object's completed writes
 *        durable; MPOOL_BATCH is mpool_batch() without waiting
 * @iovcnt: number of @iov, 1 .. 64; or of @op, 1 .. MPOOL_BATCH_MAX
 * @off: byte offset in the object, multiple of MPOOL_ALIGN; MPOOL_BATCH: 0
 * @iov: buffers, addresses and lengths multiples of MPOOL_ALIGN; must stay
 *       valid until the completion (the array itself too)
 * @op: MPOOL_BATCH: the operations, copied at submission; the writes of their
 *      objects must have been reaped before
 * @cookie: returned in the completion; the result of a batch is 0 or -errno
 *
 * Writes of an append object continue where the object ends; several may be in
 * flight. Rewriting is refused with -EINVAL, and with -EBUSY a first write since the
 * object was opened while a batch has it in flight. A request that crosses extents
 * is split by the queue and completes once.
 */
struct mpool_io {
	struct mpool_obj *obj;
	uint32_t type;
	uint32_t iovcnt;
	uint64_t off;
	__extension__ union {
		const struct iovec *iov;
		const struct mpool_op *op;
	};
	uint64_t cookie;
};

/** struct mpool_cqe - a completion: @res is bytes or -errno (never short) */
struct mpool_cqe {
	uint64_t cookie;
	int64_t res;
};

/**
 * mpool_ioq_open() - make a queue
 * @mp: pool
 * @depth: requests in flight at most, 1 .. 4096
 * @out: queue
 * Threads: the queue belongs to one thread at a time, and changes hands only while nothing
 * is in flight: io_uring completes a request in the thread that submitted it.
 * Blocking: never. Durability: none. Errors: -ENOMEM, -EINVAL.
 */
int mpool_ioq_open(struct mpool *mp, unsigned depth, struct mpool_ioq **out);
/**
 * mpool_ioq_close() - wait for what is in flight and free the queue.
 * Threads: owner; another one cannot wait, and the buffers may be in use afterwards.
 * Blocking: I/O. Durability: none. Errors: none.
 */
void mpool_ioq_close(struct mpool_ioq *q);
/**
 * mpool_ioq_submit() - start requests
 * Returns the number started: all, unless the depth is reached or one behind the first is bad.
 * Threads: owner. Blocking: the synchronous back end executes here. MPOOL_FLUSH
 * and MPOOL_BATCH wait in an embedded pool; in a pool of the kernel module, with
 * io_uring, they do not. Durability: MPOOL_FLUSH and MPOOL_BATCH, when completed.
 * Errors: -EINVAL (request 0 is bad; nothing started), -EROFS, -EMFILE. A request that is
 * started while another thread's are in flight completes with -EINVAL.
 */
int mpool_ioq_submit(struct mpool_ioq *q, const struct mpool_io *io, unsigned n);
/**
 * mpool_ioq_reap() - take completions
 * @q: queue
 * @out: array
 * @max: its size
 * @min: wait for so many (not more than are in flight)
 * @timeout_ns: -1 = for ever
 * Returns the number taken.
 * Threads: owner. Blocking: as asked. Durability: none. Errors: -EINVAL (@max is 0 or below
 * @min; another thread's requests are in flight).
 * That the time is over is none: what there is was taken, perhaps nothing.
 */
int mpool_ioq_reap(struct mpool_ioq *q, struct mpool_cqe *out, unsigned max, unsigned min,
		   int64_t timeout_ns);
/**
 * mpool_ioq_fd() - event fd that is readable when completions wait.
 * Owned by the queue; do not read or close it. Completions may end an epoll_wait() of the
 * owner with EINTR, as a signal does.
 * Threads: owner. Blocking: never. Durability: none. Errors: -ENOMEM, -EMFILE.
 */
int mpool_ioq_fd(struct mpool_ioq *q);
/**
 * mpool_ioq_register() - register buffers (a hint; 0 where it does not apply)
 * @q: queue
 * @iov: buffers, instead of those registered before; the array is copied
 * @n: their number; 0: none
 * Their memory must stay what it is, neither unmapped nor mapped anew, until others are
 * registered or the queue is closed: requests at these addresses use it as it is now.
 * Threads: owner. Blocking: never. Durability: none. Errors: -ENOMEM.
 */
int mpool_ioq_register(struct mpool_ioq *q, const struct iovec *iov, unsigned n);

/**
 * mpool_read() - read synchronously without a queue; as one MPOOL_READ.
 * Threads: any. Blocking: I/O. Durability: none. Errors: -EIO, -EINVAL, -ENOMEM, and
 * -EMFILE of a pool of the module.
 */
int mpool_read(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned iovcnt);
/**
 * mpool_write() - write synchronously without a queue; as one MPOOL_WRITE.
 * Threads: any. Blocking: I/O. Durability: none until flushed. Errors: -EIO,
 * -EINVAL, -EBUSY, -EROFS, -ENOSPC, -ENOMEM, and -EMFILE of a pool of the module.
 */
int mpool_write(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned iovcnt);

/* ---- mlogs ------------------------------------------------------------ */

/**
 * mpool_mlog_create() - make an empty mlog
 * @mp: pool
 * @mclass: class
 * @capacity: bytes
 * @tag: client tag
 * @id: its object id
 * Threads: any. Blocking: I/O. Durability: durable on return. Errors: as mpool_alloc().
 */
int mpool_mlog_create(struct mpool *mp, uint32_t mclass, uint64_t capacity, uint64_t tag,
		      uint64_t *id);
/**
 * mpool_mlog_open() - open an mlog; finds its valid prefix of records
 * Threads: any; one handle per mlog. Blocking: I/O. Durability: none.
 * Errors: -ENOENT, -EINVAL (no mlog), -EBUSY (open already), -EUCLEAN (damage before the tail),
 * -EIO, -ENOMEM.
 */
int mpool_mlog_open(struct mpool *mp, uint64_t id, struct mpool_mlog **out);
/**
 * mpool_mlog_close() - close; unsynced records may be lost.
 * Threads: sole user. Blocking: never. Durability: none. Errors: none.
 */
void mpool_mlog_close(struct mpool_mlog *log);
#define MPOOL_SYNC 0x1u
/**
 * mpool_mlog_append() - append one record
 * @log: mlog
 * @iov: content, 1 .. 1 MiB in total
 * @iovcnt: number of @iov, 1 .. 64
 * @flags: MPOOL_SYNC: durable on return
 * Threads: any; serialised. Blocking: I/O when the buffer is full or synced.
 * Durability: with MPOOL_SYNC or after mpool_mlog_sync(); a prefix survives.
 * Errors: -EFBIG (does not fit; nothing appended), -EROFS (sticky after a
 * failed write or sealed), -EIO (what was appended since the last sync may be in the log or
 * not), -ENOMEM (nothing appended), -EINVAL (content, flags).
 */
int mpool_mlog_append(struct mpool_mlog *log, const struct iovec *iov, unsigned iovcnt,
		      unsigned flags);
/**
 * mpool_mlog_sync() - make all appended records durable.
 * Threads: any. Blocking: I/O. Durability: yes. Errors: -EIO, -EROFS.
 */
int mpool_mlog_sync(struct mpool_mlog *log);
/**
 * mpool_mlog_read() - read records in order
 * @log: mlog
 * @pos: position, 0 for the first; advanced past the record
 * @buf: buffer
 * @size: its size
 * @len: length of the record
 * Threads: any. Blocking: I/O. Durability: none.
 * Errors: -ENODATA (no further record), -EOVERFLOW (@len says what is needed;
 * @pos unchanged), -EINVAL (@pos is none that a read gave), -EUCLEAN, -EIO, -ENOMEM, -EROFS (what
 * was appended and is not written yet cannot be: the pool has stopped, or an append of the log had
 * failed).
 */
int mpool_mlog_read(struct mpool_mlog *log, uint64_t *pos, void *buf, size_t size, size_t *len);
/**
 * mpool_mlog_erase() - drop all records.
 * Threads: any. Blocking: I/O. Durability: durable on return. Errors: -EIO,
 * -EROFS, -ENOSPC (metadata log full), -ENOMEM.
 */
int mpool_mlog_erase(struct mpool_mlog *log);
/**
 * mpool_mlog_seal() - refuse further appends for good.
 * Threads: any. Blocking: I/O. Durability: durable on return. Errors: -EIO,
 * -EROFS, -ENOSPC (metadata log full), -ENOMEM.
 */
int mpool_mlog_seal(struct mpool_mlog *log);
/**
 * mpool_mlog_space() - bytes used and capacity of the log.
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
int mpool_mlog_space(struct mpool_mlog *log, uint64_t *used, uint64_t *capacity);

/* ---- metadata containers ---------------------------------------------- */

/**
 * mpool_mdc_create() - make a named container: a pair of mlogs found by name
 * @mp: pool
 * @name: 1 .. 31 bytes
 * @mclass: class
 * @capacity: bytes of each mlog
 * @tag: client tag of both mlogs
 * Threads: any. Blocking: I/O. Durability: durable on return, atomic.
 * Errors: -EEXIST, -EINVAL (name), and as mpool_alloc().
 */
int mpool_mdc_create(struct mpool *mp, const char *name, uint32_t mclass, uint64_t capacity,
		     uint64_t tag);
/**
 * mpool_mdc_open() - open by name: the newest complete log of the pair.
 * Threads: sole user at open. Blocking: I/O. Durability: none. Errors:
 * -ENOENT, -EINVAL (name), -EBUSY, -EUCLEAN, -EIO, -ENOMEM.
 */
int mpool_mdc_open(struct mpool *mp, const char *name, struct mpool_mdc **out);
/**
 * mpool_mdc_close() - close.
 * Threads: sole user. Blocking: never. Durability: none. Errors: none.
 */
void mpool_mdc_close(struct mpool_mdc *mdc);
/**
 * mpool_mdc_append() - append one record, 1 byte to 1 MiB less 8 bytes in at most 63 pieces;
 * flags as mpool_mlog_append().
 * Threads: any. Blocking: I/O. Durability: with MPOOL_SYNC. Errors: -EFBIG
 * (compact first; or the file system is full: mpool_mdc_reserve()), -EROFS, -EIO, -ENOMEM,
 * -EINVAL (content, flags).
 */
int mpool_mdc_append(struct mpool_mdc *mdc, const struct iovec *iov, unsigned iovcnt,
		     unsigned flags);
/**
 * mpool_mdc_read() - read records in order, as mpool_mlog_read().
 * Threads: any. Blocking: I/O. Durability: none. Errors: as mpool_mlog_read().
 */
int mpool_mdc_read(struct mpool_mdc *mdc, uint64_t *pos, void *buf, size_t size, size_t *len);
/**
 * mpool_mdc_compact_begin() - start writing the other log
 * Appends go to the new log until mpool_mdc_compact_end() makes it the valid
 * one in one durable step. A crash before that shows the old log.
 * Threads: one compaction at a time; no reader. Blocking: I/O. Durability:
 * none yet. Errors: -EROFS, -EIO, -EBUSY (one was begun), -ENOSPC, -ENOMEM, -EFBIG (the
 * file system is full; nothing has changed).
 */
int mpool_mdc_compact_begin(struct mpool_mdc *mdc);
/**
 * mpool_mdc_compact_abort() - go on with the old log.
 * What was appended since begin is gone, what was appended before is as it was.
 * Threads: as begin. Blocking: never. Durability: none. Errors: -EBUSY, -EROFS
 * (a step of the compaction failed, and not for want of memory).
 */
int mpool_mdc_compact_abort(struct mpool_mdc *mdc);
/**
 * mpool_mdc_compact_end() - switch to the new log.
 * Threads: as begin. Blocking: I/O. Durability: durable on return. Errors: -EBUSY (none was
 * begun), -EROFS, -EIO; -ENOMEM (if abort says so the container has stopped); -EFBIG
 * (the new log is full: abort).
 */
int mpool_mdc_compact_end(struct mpool_mdc *mdc);
/**
 * mpool_mdc_space() - bytes used and capacity of the valid log.
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
int mpool_mdc_space(struct mpool_mdc *mdc, uint64_t *used, uint64_t *capacity);
/**
 * mpool_mdc_reserve() - space of the file system for the logs of a container
 * @mdc: container
 * @must: bytes that each of both logs is to have space for, from its begin on; at most the capacity
 *        counts
 * @wish: the same, if the file system has as much; a smaller value than @must has no effect
 * @have: for how many both have space now
 * In files a new container has space for the begin of its logs only, and gets more as they grow. An
 * append beyond what there is may find a full file system, and does not fit then (-EFBIG). What
 * is reserved stays so. On block devices there is always space for all.
 * Threads: any. Blocking: a few calls of the file system. Durability: none. Errors: -ENOSPC (not
 * for @must: nothing has changed), -EROFS, -EIO, -EINVAL.
 */
int mpool_mdc_reserve(struct mpool_mdc *mdc, uint64_t must, uint64_t wish, uint64_t *have);
/**
 * mpool_mdc_delete() - remove a closed container.
 * Threads: any. Blocking: I/O. Durability: durable on return, atomic. Errors:
 * -ENOENT, -EINVAL (name), -EBUSY (open), -EROFS, -ENOSPC (metadata log full), -EIO, -ENOMEM.
 */
int mpool_mdc_delete(struct mpool *mp, const char *name);

/* ---- administration ---------------------------------------------------- */

#define MPOOL_SET_OWNER 0x1u /* uid, gid, mode */
#define MPOOL_SET_LABEL 0x2u
#define MPOOL_SET_SPARE 0x4u
/* begin a heartbeat, or end it: see MPOOL_CREATE_MULTIHOST; not both */
#define MPOOL_SET_MULTIHOST 0x8u
#define MPOOL_SET_ONE_HOST  0x10u

/**
 * struct mpool_set_opts - what mpool_set() changes
 * @size: sizeof(struct mpool_set_opts)
 * @mask: MPOOL_SET_*: which of the other fields count
 * @uid: owner
 * @gid: group
 * @mode: permissions, 0 .. 0777
 * @spare_pct: percent of each class withheld from ordinary allocation, 0 .. 90
 * @label: at most MPOOL_LABEL_MAX bytes
 */
struct mpool_set_opts {
	size_t size;
	uint32_t mask;
	uint32_t uid, gid, mode;
	uint32_t spare_pct[MPOOL_MCLASSES];
	const char *label;
};
#define MPOOL_SET_OPTS_INIT MPOOL_OPTS_OF(mpool_set_opts)

/**
 * mpool_set() - change properties of a pool
 * @path: pool; a path must not be open, a name must be active
 * @opts: open options, or NULL
 * @set: what to change
 * Threads: any. Blocking: I/O. Durability: durable on return; a crash shows
 * the old or the new properties. Errors: -EINVAL, and as mpool_open().
 */
int mpool_set(const char *path, const struct mpool_open_opts *opts,
	      const struct mpool_set_opts *set);

/**
 * mpool_rename() - give a pool another name
 * @path: pool; a path must not be open, a name must be active
 * @opts: open options, or NULL
 * @name: new name; the directory of a path keeps its own
 * Threads: any. Blocking: I/O. Durability: durable on return, atomic.
 * Errors: -EINVAL (name), -EEXIST (another active pool has it), and as mpool_open().
 */
int mpool_rename(const char *path, const struct mpool_open_opts *opts, const char *name);

/**
 * mpool_add() - add member devices
 * @path: pool; a path must not be open, a name must be active
 * @opts: open options, or NULL
 * @devs: devices; a file needs path and size
 * @ndevs: number of @devs
 * @flags: MPOOL_CREATE_FORCE, MPOOL_CREATE_PLAN
 * Threads: any. Blocking: I/O. Durability: durable on return, all or none.
 * Errors: as mpool_create() and mpool_open().
 */
int mpool_add(const char *path, const struct mpool_open_opts *opts,
	      const struct mpool_dev_spec *devs, unsigned ndevs, uint32_t flags);

/**
 * mpool_grow() - use what the members have gained
 * @path: pool; a path must not be open, a name must be active
 * @opts: open options, or NULL
 * @size: file pools: new size of every member file of @mclass, bytes; else 0: the
 *        devices' sizes as they are now
 * @mclass: class to grow (files only)
 * Threads: any. Blocking: I/O. Durability: durable on return.
 * Errors: -EINVAL (smaller than before, for one of the files), -ENOSPC, and as mpool_open().
 * After one the files have the sizes that they had, unless -EIO says that a superblock may have
 * been written.
 */
int mpool_grow(const char *path, const struct mpool_open_opts *opts, uint64_t size,
	       uint32_t mclass);

/**
 * struct mpool_probe - what a device or file says it is
 * @state: 1 half-created, 2 active (complete), 3 destroyed
 */
struct mpool_probe {
	uint8_t uuid[16];
	uint8_t dev_uuid[16];
	char name[MPOOL_NAME_MAX + 1];
	uint32_t state;
	uint32_t slot, ndevs, mclass;
	uint32_t format_version;
	uint32_t pad;
	uint64_t generation;
	uint64_t bytes;
};

/**
 * mpool_probe() - read the superblocks of one device or file; writes nothing
 * Threads: any. Blocking: I/O. Durability: none.
 * Errors: -EINVAL (not a member), -EUCLEAN (no superblock is intact, or it has shrunk),
 * -EOPNOTSUPP (format), -ENOENT, -EACCES, -EIO, -ENOMEM.
 */
int mpool_probe(const char *path, struct mpool_probe *out);

#define MPOOL_RECOVER_PLAN 0x1u /* look only, write nothing */

/**
 * mpool_recover() - restore the first superblock of a device from the others
 * @path: device or file whose first block holds something else, or is damaged
 * @flags: MPOOL_RECOVER_PLAN
 * @out: what the copies further on say; may be NULL
 *
 * The only way back for a device that was overwritten at its start: everything
 * else takes it for another program's. What its first 4 KiB hold is lost.
 * Threads: any. Blocking: I/O. Durability: durable on return.
 * Errors: -EEXIST (the first block is intact), -EINVAL (no copy either),
 * -EUCLEAN (it has shrunk), -EOPNOTSUPP (format), -EBUSY, -ENOENT, -EACCES, -EIO, -ENOMEM.
 */
int mpool_recover(const char *path, uint32_t flags, struct mpool_probe *out);

#define MPOOL_ACTIVATE_RDONLY 0x1u
#define MPOOL_ACTIVATE_TRUST  0x2u /* owner and mode from the media, else root 0600 */

/**
 * mpool_activate() - give a pool on block devices to the kernel module
 * @devs: paths of all members
 * @ndevs: number of @devs
 * @flags: MPOOL_ACTIVATE_*
 * @name: gets the pool's name: /dev/mpool/NAME
 * Threads: any. Blocking: I/O. Durability: as mpool_open().
 * Errors: -EOPNOTSUPP (module not loaded), -EEXIST, and as mpool_open().
 */
int mpool_activate(const char *const *devs, unsigned ndevs, uint32_t flags,
		   char name[MPOOL_NAME_MAX + 1]);

/**
 * mpool_deactivate() - take an active pool back from the module
 * Threads: any. Blocking: I/O. Durability: nothing that was not durable becomes required.
 * Errors: -EBUSY (something is open), -ENOENT, -EOPNOTSUPP.
 */
int mpool_deactivate(const char *name);

/** struct mpool_active - an active pool */
struct mpool_active {
	char name[MPOOL_NAME_MAX + 1];
	uint8_t uuid[16];
	uint32_t is_rdonly;
	uint32_t is_faulted;
	uint32_t is_trusted;
	uint32_t opens;
};

/**
 * mpool_active_next() - the active pool after @after ("" for the first), in name order
 * Threads: any. Blocking: never. Durability: none.
 * Errors: -ENOENT (no further one), -EOPNOTSUPP (module not loaded), -EACCES.
 */
int mpool_active_next(const char *after, struct mpool_active *out);

/* ---- exclusion --------------------------------------------------------- */

/**
 * mpool_lease() - take the named exclusive lease of a client on this pool
 * @mp: pool
 * @id: 16 bytes that name the client
 * Pools that are open read-only share a lease among them, but not with a writer.
 * Released by mpool_unlease() or mpool_close(), or when the process ends.
 * Threads: any. Blocking: never. Durability: none. Errors: -EBUSY.
 */
int mpool_lease(struct mpool *mp, const uint8_t id[16]);
/**
 * mpool_unlease() - release it.
 * Threads: any. Blocking: never. Durability: none. Errors: -ENOENT.
 */
int mpool_unlease(struct mpool *mp, const uint8_t id[16]);
/**
 * mpool_hold() - hold a number of this pool against other processes
 * @mp: pool
 * @n: number below 2^62, whose meaning the clients agree upon
 * Pools that are open read-only share a number among them; one that is open for writing has it
 * alone. Released by mpool_unhold() or mpool_close(), or when the process ends. Taking a number
 * again that this handle holds is nothing new.
 * Threads: any. Blocking: never. Durability: none.
 * Errors: -EBUSY (another handle has it), -EOPNOTSUPP (a provider or device layers: no file to
 * lock; a writer may not notice that), -EINVAL.
 */
int mpool_hold(struct mpool *mp, uint64_t n);
/**
 * mpool_unhold() - release it.
 * Threads: any. Blocking: never. Durability: none. Errors: -EINVAL, -EOPNOTSUPP.
 */
int mpool_unhold(struct mpool *mp, uint64_t n);

/* ---- inspection: pools that are not open ------------------------------- */

/** mpool_print_fn - receives text line by line (with newline), good during the call */
typedef void mpool_print_fn(void *arg, const char *line);

/** struct mpool_problem - one finding of mpool_verify() */
struct mpool_problem {
	const char *id;    /* "MPnnnn" */
	const char *text;  /* object, check, what was seen */
	uint32_t is_damage; /* 0: repaired at the next open (a stale copy, a torn tail) */
};
/** mpool_problem_fn - receives findings; all of @p is good during the call only */
typedef void mpool_problem_fn(void *arg, const struct mpool_problem *p);

#define MPOOL_VERIFY_DATA 0x1u /* read object contents that carry a CRC */

/**
 * mpool_verify() - check a pool without writing to it
 * @path: pool. An active pool is read from its members (root) while it is in use:
 *        what looks wrong is looked at again, and damage is reported only when nothing was
 *        written meanwhile; -EBUSY when the pool never rests
 * @opts: open options (provider, io), or NULL
 * @flags: MPOOL_VERIFY_*
 * @fn: called per finding; may be NULL
 * @arg: its argument
 * @damage: number of findings that are damage
 * Threads: any. Blocking: I/O. Durability: none; writes nothing.
 * Errors: as mpool_open(), when the pool cannot be read at all.
 */
int mpool_verify(const char *path, const struct mpool_open_opts *opts, unsigned flags,
		 mpool_problem_fn *fn, void *arg, uint64_t *damage);

/**
 * mpool_dump() - print all metadata readably; active pools as mpool_verify().
 * Threads: any. Blocking: I/O. Durability: none; writes nothing. Errors: as
 * mpool_open().
 */
int mpool_dump(const char *path, const struct mpool_open_opts *opts, mpool_print_fn *fn, void *arg);

/** struct mpool_extent - one live extent */
struct mpool_extent {
	uint32_t slot;   /* device */
	uint32_t kind;   /* enum mpool_kind; 0 = pool metadata */
	uint64_t off;    /* bytes on the device */
	uint64_t len;
	uint64_t id;     /* object id; 0 for metadata */
	const char *what; /* "superblock", "mdlog", "mblock", ... */
};
/** mpool_extent_fn - receives extents; all of @e is good during the call only */
typedef void mpool_extent_fn(void *arg, const struct mpool_extent *e);
/**
 * mpool_map() - report every live extent in device order; active pools as
 * mpool_verify().
 * Threads: any. Blocking: I/O. Durability: none; writes nothing. Errors: as
 * mpool_open().
 */
int mpool_map(const char *path, const struct mpool_open_opts *opts, mpool_extent_fn *fn, void *arg);

/* ---- helpers ----------------------------------------------------------- */

/**
 * mpool_crc32c() - CRC32C (Castagnoli), begin with crc 0; fastest instructions
 * of this CPU.
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
uint32_t mpool_crc32c(uint32_t crc, const void *buf, size_t len);
/**
 * mpool_random() - random bytes of the system, from getrandom() or, where a filter of system calls
 * forbids that, from /dev/urandom
 * Threads: any. Blocking: until the system has any. Durability: none. Errors: -EIO (MP0004).
 */
int mpool_random(void *buf, size_t len);
/**
 * mpool_fd_up() - move a descriptor above 0, 1 and 2, which a program may have closed
 * @fd: a descriptor that was just made, or what a failed call returned
 *
 * For what makes a descriptor that lives as long as a pool, a provider's devices for one:
 * mpool_fd_up(open(...)). A descriptor that is moved is closed under its old number and is
 * closed on exec. Returns the descriptor; @fd and errno as they are when @fd is negative.
 * Threads: any. Blocking: never. Durability: none.
 * Errors: -1 with errno EMFILE (no number is left; @fd is closed).
 */
int mpool_fd_up(int fd);
/**
 * mpool_version() - library version "MAJOR.MINOR.PATCH".
 * Threads: any. Blocking: never. Durability: none. Errors: none.
 */
const char *mpool_version(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#pragma GCC diagnostic pop
#endif
#endif
