/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Origins of errors in libmpool itself, numbers 400-599 of the one series that
 * core/err.h begins; same columns: name, number, errno, meaning, cure.
 */
#ifndef MPL_ERR_H
#define MPL_ERR_H

#include "err.h"

#define MPL_ERRORS(X) \
X(NOMODULE, 400, EOPNOTSUPP, \
  "a pool name without '/' needs the kernel module, which is not loaded", \
  "load the module, or give the pool's directory as a path with '/', such as ./NAME") \
X(NOPOOL, 401, ENOENT, "there is no pool", "check the path; create makes a pool there") \
X(CONFIG, 402, EUCLEAN, "the pool's pool.json cannot be used", \
  "it only holds hints: write one that names the pool's devices") \
X(BUSY, 403, EBUSY, "the pool or a member device is in use", \
  "close the other program that uses it; fuser -v FILE names it") \
X(DEVOPEN, 404, EIO, "a member device cannot be opened", "check the path and its permissions") \
X(EXISTS, 405, EEXIST, "a pool or file is there already", \
  "remove what is there, a pool with mpool destroy, or choose another path") \
X(FOREIGN, 406, EPERM, "the device holds something else", \
  "choose another device; force overwrites what is there") \
X(LAYER, 407, EINVAL, "the device layer text (MPOOL_DEV) is not understood", \
  "write CLASS:KEY=VALUE,... as in libmpool(7)") \
X(DIR, 408, EIO, "the pool's directory cannot be used", "check the path and its permissions") \
X(MEMBER, 409, ENODEV, "a member device of the pool is missing", \
  "bring the device back, or correct its path in pool.json") \
X(INUSE, 410, EBUSY, "something of the pool is still open", \
  "close objects, queues, logs and containers first") \
X(LEASED, 411, EBUSY, "another client holds the pool's lease", "close that client first") \
X(NOLEASE, 412, ENOENT, "this client does not hold the lease", "take it first") \
X(SPEC, 413, EINVAL, "the description of the pool is not valid", "correct what the message names") \
X(NOFD, 414, EOPNOTSUPP, "the member has no file descriptor", "use a plain file or block device") \
X(IO, 415, EOPNOTSUPP, "the I/O back end is not available", "use MPOOL_IO=sync") \
X(FULLFS, 416, ENOSPC, "the file system has not enough free space", \
  "free space there or make the pool smaller; nothing was left behind") \
X(DATAREAD, 417, EIO, "object data cannot be read", "check the device") \
X(DATAWRITE, 418, EIO, "object data cannot be written", \
  "check the device; write the data to a new object") \
X(MDC, 419, EUCLEAN, "no log of the container's pair is complete", "restore from a backup") \
X(MDCSTATE, 420, EBUSY, "the container is not in the state that this call needs", \
  "end the compaction in progress first, or begin one") \
X(MDCFAIL, 421, EROFS, "an earlier failure stopped the container", "close and open it") \
X(FLUSHFAIL, 422, EIO, "a device flush failed: the pool is read-only now", \
  "check the device, close and open the pool") \
X(NOTACTIVE, 423, ENOENT, "no pool of this name is active in the kernel module", \
  "mpool scan finds it, mpool activate activates it; a directory needs a '/', such as ./NAME") \
X(ABI, 424, EOPNOTSUPP, "the loaded kernel module speaks another interface than this program", \
  "install module and library of one version, then load the module anew") \
X(NOTHERE, 425, EOPNOTSUPP, "a pool of the kernel module does not have this", \
  "use a pool opened by its path") \
X(NODE, 426, EACCES, "the pool's device node cannot be opened", \
  "mpool set gives a pool an owner, a group and a mode; administration needs root") \
X(FDS, 427, EMFILE, "no file descriptor is left", \
  "raise the limit of open files (ulimit -n), or close some") \
X(MOVING, 428, EBUSY, "the pool changed during every attempt to inspect it", \
  "try again when it is less busy, or deactivate it first") \
X(INTACT, 429, EEXIST, "the device's first superblock is there", "there is nothing to restore") \
X(HELD, 430, EBUSY, "another process holds this part of the pool", "close that process first") \
X(LOGEND, 431, ENODATA, "a log has no further record", "") \
X(LOGROOM, 432, EOVERFLOW, "the buffer is smaller than the record", \
  "read again with a buffer of the length that was told") \
X(THREAD, 433, EAGAIN, "a thread of the library cannot be started", \
  "raise the limit of processes (ulimit -u), or end some") \
X(NOLOCKS, 434, ENOLCK, "files cannot be locked where the pool lies", \
  "mount that file system with locks (NFS: without nolock), or move the pool to another") \
X(LINK, 435, ELOOP, "a member or folder of the pool is a symbolic link, where none is followed", \
  "name the file itself, in pool.json too; links to block devices are followed")

enum mpl_err_id {
#define X(name, num, err, text, cure)	MPL_##name = num,
	MPL_ERRORS(X)
#undef X
};

/* records the detail; returns the table's errno, negative */
int mpl_err(enum mpl_err_id id, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* the same with another negative errno */
int mpl_err_as(enum mpl_err_id id, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
struct mpool;

/*
 * Begins a public call on @mp, or on no pool (NULL): the details of its failures go where those
 * of that pool do, and what an earlier call left there has gone.
 */
void mpl_begin(const struct mpool *mp);
/* as mpl_begin(), but what an earlier call left stays until this one fails */
void mpl_resume(const struct mpool *mp);
/* passes @rc on; gives a detail to a failure that has none yet */
int mpl_ret(int rc);

#endif
