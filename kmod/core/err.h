/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every origin of an error: stable number (shown as MPnnnn), name, errno,
 * meaning, cure. Numbers are never reused. 1-99 common, 100-399 core,
 * 400-599 libmpool, 900-999 libkvdb. A function reports its
 * detail with mp_err() and returns what that returns.
 */
#ifndef MP_CORE_ERR_H
#define MP_CORE_ERR_H

#include "os.h"

#define MP_ERRORS(X) \
X(NOMEM, 1, ENOMEM, "out of memory", "free memory or raise the limit, then try again") \
X(INVAL, 2, EINVAL, "an argument is invalid", "correct the argument named in the message") \
X(RDONLY, 3, EROFS, "the pool was opened read-only", "open it for writing") \
X(RANDOM, 4, EIO, "the system gave no random bytes", \
  "see getrandom(2): where a filter of system calls forbids it, a descriptor must be free for " \
  "/dev/urandom") \
X(NOTMEMBER, 101, EINVAL, "the device carries no pool signature at byte 0", \
  "check the path; what was overwritten comes back by mpool scan --recover only") \
X(SB_CORRUPT, 102, EUCLEAN, "no copy of the superblock is intact", \
  "restore the device from a backup; run verify for details") \
X(SB_VERSION, 103, EOPNOTSUPP, "the format version is newer than this program", \
  "use a newer release") \
X(SB_OLD, 104, EOPNOTSUPP, "a pool of the older Micron mpool format", \
  "open it with the software that made it") \
X(SB_INCOMPAT, 105, EOPNOTSUPP, "the pool uses features that this program does not know", \
  "use a newer release") \
X(SB_ROCOMPAT, 106, EROFS, "the pool uses features that this program can only read", \
  "open it read-only or use a newer release") \
X(SB_SHRUNK, 107, EUCLEAN, "the device is smaller than when the pool was made", \
  "restore the device's size; nothing was written") \
X(SB_BLOCKSIZE, 108, EOPNOTSUPP, "the device's sector size is larger than 4096 bytes", \
  "use a device with sectors of 4096 bytes or less") \
X(SB_READ, 109, EIO, "the superblock cannot be read", "check the device") \
X(SB_WRITE, 110, EIO, "the superblock cannot be written", "check the device") \
X(CREATING, 111, ENOENT, "the creation of this pool was interrupted: there is no pool", \
  "create it again") \
X(DESTROYED, 112, ENOENT, "this pool was destroyed", \
  "remove what is left of it: mpool destroy, of a device mpool wipe; then create a new one") \
X(NOPOOL, 113, ENOENT, "no member device was given", "name the pool's devices") \
X(DEV_FOREIGN, 114, EINVAL, "the devices belong to different pools", \
  "give only the devices of one pool") \
X(DEV_DUP, 115, ENOTUNIQ, "two devices claim the same place in the pool", \
  "remove the copy (a clone or a snapshot)") \
X(DEV_MISSING, 116, ENODEV, "a member device is missing", "attach the device named by its uuid") \
X(DEV_STALE, 117, ESTALE, "a member device is an older copy", \
  "attach the current device; mixing would lose data") \
X(DEV_TABLE, 118, EUCLEAN, "member devices disagree about the device table", \
  "run verify; restore the odd device") \
X(DEV_SMALL, 119, EINVAL, "the device is too small for a pool", "use at least 2 MiB") \
X(DEV_MANY, 120, EINVAL, "too many devices", "at most 64 devices in a class") \
X(DEV_BUSY, 121, EEXIST, "the device is a member of a pool", "destroy that pool first or force") \
X(NO_CAPACITY, 122, EINVAL, "a pool needs a device of class capacity", "add one") \
X(NAME, 123, EINVAL, "the name is not valid", \
  "use 1 to 31 characters of A-Z a-z 0-9 . _ - that do not begin with . or -") \
X(LABEL, 124, EINVAL, "the label is not valid", \
  "use at most 63 bytes without control characters") \
X(HOST_BUSY, 125, EBUSY, "another host has the pool open", \
  "close or deactivate it there; what a dead host had is free after two seconds") \
X(HOST_LOST, 126, EIO, "another host has opened the pool since", \
  "this host was silent too long: close the pool here, and look after the device and the load") \
X(HOST_IO, 127, EIO, "the heartbeat cannot be written: the pool is read-only now", \
  "check the device, close and open the pool") \
X(MD_NONE, 140, EUCLEAN, "no intact metadata log was found", "restore the pool from a backup") \
X(MD_CORRUPT, 141, EUCLEAN, "the metadata log is damaged before its end", \
  "restore the pool from a backup; run verify for details") \
X(MD_RECORD, 142, EUCLEAN, "a metadata record is not valid", \
  "restore the pool from a backup; run verify for details") \
X(MD_EXTENT, 143, EUCLEAN, "an object's space is outside its device or taken twice", \
  "restore the pool from a backup; run verify for details") \
X(MD_READ, 144, EIO, "the metadata log cannot be read", "check the device") \
X(MD_WRITE, 145, EIO, "a metadata write failed: the pool is read-only now", \
  "check the device, close and open the pool: it shows then whether the change was made") \
X(MD_FLUSH, 146, EIO, "a flush failed: the pool is read-only now", \
  "check the device, close and open the pool: it shows then whether the change was made") \
X(MD_FULL, 147, ENOSPC, "the metadata log cannot hold more objects", \
  "delete objects, or make the pool on larger devices") \
X(MD_BATCH, 148, ENOSPC, "the batch is larger than a metadata record", "use smaller batches") \
X(MD_LIMIT, 149, ENOSPC, "the pool holds as many objects as memory limits allow", \
  "delete objects or use larger ones") \
X(MD_LOST, 150, EUCLEAN, "the device lost metadata writes that it had acknowledged", \
  "replace the device; restore the pool from a backup") \
X(READ_LIED, 153, EIO, "a read returned bytes that are not on the device", \
  "check the device, its cable and the memory; nothing was lost") \
X(FAILSTOP, 151, EROFS, "the pool is read-only after an earlier failure", \
  "see the pool's fault, check the device, close and open the pool") \
X(IDS, 152, ENOSPC, "no object ids are left", "make a new pool") \
X(NUMBERS, 154, EUCLEAN, "generations, epochs or sequences are too large to count on from", \
  "no pool has counted so far: open it for reading only, and save what is in it") \
X(NOSPC, 160, ENOSPC, "the media class has no free space", "delete objects, or use a larger pool") \
X(NOCLASS, 161, ENOSPC, "the pool has no device of this class", "use another class") \
X(RESERVE, 162, ENOSPC, "the file system below the pool cannot reserve space", \
  "free space in the file system that holds the pool's files") \
X(ZERO, 163, EIO, "new space cannot be zeroed", "check the device") \
X(OBJ_NONE, 170, ENOENT, "no such object", "check the id") \
X(OBJ_STATE, 171, EINVAL, "the object's state does not allow this", \
  "an object is written once, then committed or sealed, then read") \
X(OBJ_RANGE, 172, EINVAL, "offset or length is outside the object or not a multiple of 4096", \
  "correct the request") \
X(OBJ_BUSY, 173, EBUSY, "the object is part of another operation in flight", "wait for it") \
X(OBJ_WFAIL, 174, EIO, "a write of this object failed", "write the data to a new object") \
X(OBJ_KIND, 175, EINVAL, "the object is of another kind", "use the calls of its kind") \
X(OBJ_OPEN, 176, EBUSY, "the log is open already", "close it first") \
X(OBJ_FRAG, 177, ENOSPC, "free space is in too many pieces", "use smaller objects") \
X(POOL_BUSY, 178, EBUSY, "objects of the pool are still open", "close them first") \
X(MLOG_CORRUPT, 180, EUCLEAN, "the log is damaged before its end", "restore from a backup") \
X(MLOG_FULL, 181, EFBIG, "the record does not fit in the log", "erase or compact the log") \
X(MLOG_READ, 182, EIO, "the log cannot be read", "check the device") \
X(MLOG_WRITE, 183, EIO, "a write of the log failed: no more appends", "check the device") \
X(MLOG_SEALED, 184, EROFS, "the log is sealed or failed", "erase it or use another") \
X(MLOG_POS, 185, EINVAL, "the read position is not one that was returned", "start from 0") \
X(ROOT_NAME, 190, EINVAL, "the container name is not valid", "use 1 to 31 bytes") \
X(ROOT_EXISTS, 191, EEXIST, "the container exists", "choose another name") \
X(ROOT_NONE, 192, ENOENT, "no such container", "check the name") \
X(CRC_DATA, 200, EUCLEAN, "the object's content does not match its checksum", \
  "restore the object from a backup") \
X(DATA_READ, 201, EIO, "the object's content cannot be read", "check the device") \
X(V_SBCOPY, 210, EUCLEAN, "a copy of the superblock is damaged or old", \
  "it is repaired at the next open for writing, the one at 0 by mpool scan --recover") \
X(V_MDCOPY, 211, EUCLEAN, "a copy of the metadata log is damaged or short", \
  "it is repaired at the next open for writing") \
X(V_TAIL, 212, EUCLEAN, "the metadata log ends in a torn record", \
  "it was never acknowledged and is overwritten by the next one") \
X(V_SPACE, 213, EUCLEAN, "space accounting does not add up", "report this") \
X(V_ROOT, 214, EUCLEAN, "a container names an object that is not a log", "restore from a backup") \
X(V_MLOG, 215, EUCLEAN, "a log ends in a torn record", "it is cut at the next open of the log") \
X(V_EXTRA, 216, EUCLEAN, "a device of this pool was left by an interrupted add and is no member", \
  "add it again, or use it for something else") \
/* kernel module */ \
X(K_ARG, 300, EINVAL, "an argument of the module's call is invalid", \
  "use a libmpool of the module's version") \
X(K_PERM, 301, EPERM, "administration needs CAP_SYS_ADMIN", "run the command as root") \
X(K_RDONLY, 302, EBADF, "the pool's descriptor is open for reading only", \
  "open the pool for writing") \
X(K_NOTBLK, 303, ENOTBLK, "the descriptor is not one of a block device", \
  "name a block device; pools on files are opened in the process, by path") \
X(K_DEVMODE, 304, EACCES, "the device is read-only, or its descriptor is", \
  "open the device for reading and writing") \
X(K_ZONED, 305, EOPNOTSUPP, "zoned block devices are not supported", \
  "use a conventional device or namespace") \
X(K_CLAIMED, 306, EBUSY, "the device is in use", \
  "unmount it, or take it out of the RAID, volume group or pool that uses it") \
X(K_TWICE, 307, EINVAL, "a device was given twice", "name each device once") \
X(K_ACTIVE, 308, EEXIST, "a pool of this name or identity is active", \
  "deactivate it first, or rename one of the two") \
X(K_NOPOOL, 309, ENOENT, "no active pool has this name", "mpool list shows the active pools") \
X(K_INUSE, 310, EBUSY, "the pool is in use", "close the programs that use it, then try again") \
X(K_HANDLE, 311, ENOENT, "the object is not held by this descriptor", "hold it first") \
X(K_LOGNONE, 312, ENOENT, "the log is not open on this descriptor", "open it first") \
X(K_LOGBUSY, 313, EBUSY, "the log is open for writing already", "close the other descriptor") \
X(K_LEASED, 314, EBUSY, "the pool is leased", "end the process named in the message") \
X(K_NOLEASE, 315, ENOENT, "this descriptor holds no such lease", "take the lease first") \
X(K_NODE, 316, ENOMEM, "the pool's device node cannot be made", "read the kernel's log") \
X(K_MINORS, 317, ENOSPC, "too many pools are active", "deactivate one") \
X(K_GONE, 318, EIO, "a member device was removed: the pool is read-only now", \
  "attach the device again, deactivate and activate the pool")

enum mp_err_id {
#define X(name, num, err, text, cure)	MP_##name = num,
	MP_ERRORS(X)
#undef X
};

struct mp_err_info {
	int ei_id;
	int ei_errno;		/* positive */
	const char *ei_name;
	const char *ei_text;
	const char *ei_cure;
};

/* record the detail of an error; returns its negative errno */
int mp_err(enum mp_err_id id, const char *fmt, ...) __printf(2, 3);
/* Random bytes: 0 or an error that is told. */
int mp_random(void *buf, size_t len);
/* the same with another negative errno than the table's (a device's own) */
int mp_err_as(enum mp_err_id id, int err, const char *fmt, ...) __printf(3, 4);
/* what the kernel says of a failed transfer, as the core and its callers say it: INV-20 */
int mp_dev_err(int err);
/* NULL when there is no such number */
const struct mp_err_info *mp_err_lookup(int id);

#endif
