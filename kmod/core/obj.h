/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The core's interface, second half: objects, their data, logs, and the names of logs.
 * What pool.h says of all calls holds here, too.
 */
#ifndef MP_CORE_OBJ_H
#define MP_CORE_OBJ_H

#include "dev.h"

struct mp_pool;
struct mp_obj;
struct mp_mlog;

#define MP_BATCH_MAX	1024u

enum mp_kind { MP_MBLOCK = 1, MP_APPEND = 2, MP_MLOG = 3 };

/* ---- objects ---- */

#define MP_ALLOC_SPARE	0x1u
#define MP_ALLOC_ANY	0x2u

struct mp_alloc {
	u32 al_kind;		/* enum mp_kind; MP_MLOG is allowed here */
	u32 al_mclass;
	u32 al_flags;
	u64 al_capacity;	/* bytes, rounded up to 4 KiB */
	u64 al_tag;
};

/*
 * Allocate, all or none; @out gets one reference each. Plain mblocks only: no
 * I/O but d_ops->reserve. Others: durable on return, one record, one flush.
 */
int mp_obj_alloc(struct mp_pool *pool, const struct mp_alloc *req, u32 n, struct mp_obj **out);
/* a reference on a durable object */
int mp_obj_open(struct mp_pool *pool, u64 id, struct mp_obj **out);
void mp_obj_get(struct mp_obj *obj);
/* last reference: an uncommitted mblock is aborted, a deleted object's space freed */
void mp_obj_put(struct mp_obj *obj);

struct mp_obj_info {
	u64 oi_id, oi_tag;
	u64 oi_capacity;	/* bytes */
	u64 oi_length;		/* bytes; unsealed: written since open */
	u64 oi_gen;		/* mlog: generation */
	u32 oi_kind, oi_mclass;
	u32 oi_flags;		/* as MPOOL_OBJ_*: 1 committed 2 sealed 4 deleted 8 crc */
	u32 oi_crc;
};

/* both never sleep for I/O */
void mp_obj_info(struct mp_obj *obj, struct mp_obj_info *out);
u64 mp_obj_id(const struct mp_obj *obj);
/* durable objects in ascending order; returns the number filled */
int mp_obj_list(struct mp_pool *pool, u64 after, u64 tag, struct mp_obj_info *out, u32 max);

enum mp_op_type {
	MP_OP_COMMIT = 1,
	MP_OP_SEAL = 2,		/* append mblock or mlog */
	MP_OP_DELETE = 3,
};

#define MP_OPF_CRC	0x8u	/* op_crc is given */

struct mp_op {
	u32 op_type;
	u32 op_flags;
	struct mp_obj *op_obj;	/* may be NULL for MP_OP_DELETE */
	u64 op_id;		/* MP_OP_DELETE without a handle */
	u64 op_length;		/* bytes, 4 KiB multiple */
	u32 op_crc;
};

/*
 * Atomic batch as mpool_batch(): flushes the devices that hold data of the
 * committed and sealed objects, then one record and one flush of the metadata log.
 */
int mp_pool_batch(struct mp_pool *pool, const struct mp_op *op, u32 n);

/* ---- data path: the caller does the I/O ---- */

/*
 * Admission of one write: offset and length 4 KiB multiples, inside the
 * capacity, at the end of what was written (the first write of a reopened
 * append object chooses its place, and is -EBUSY while a batch has the object). 0 = go; then
 * mp_obj_write_end() once. Sleeps as mp_pool_writable().
 */
int mp_obj_write_begin(struct mp_obj *obj, u64 off, u64 len);
/*
 * @err: 0 or the negative errno of the write: commit and seal beyond @off then
 * fail. Any context, interrupts too.
 */
void mp_obj_write_end(struct mp_obj *obj, u64 off, int err);
/* bounds of one read: committed length, what was written, or an append object's capacity */
int mp_obj_read_check(struct mp_obj *obj, u64 off, u64 len);
/*
 * Where byte @off lies: device, byte position, and contiguous bytes from there
 * (at most @len). -EINVAL beyond the capacity. Never sleeps, takes no lock.
 */
int mp_obj_map(const struct mp_obj *obj, u64 off, u64 len, struct mp_dev **dev, u64 *pos,
	       u64 *contig);
/* the same by slot number */
int mp_obj_map_slot(const struct mp_obj *obj, u64 off, u64 len, u32 *slot, u64 *pos, u64 *contig);
/* flush the devices that hold this object; failure fail-stops */
int mp_obj_flush(struct mp_obj *obj);
/*
 * Count for the member that holds @off a read whose bytes failed a checksum.
 * @is_reread: a second reading passed it. Never sleeps for I/O.
 */
void mp_obj_bad_read(const struct mp_obj *obj, u64 off, bool is_reread);

/* ---- mlogs ---- */

struct mp_vec {
	const void *v_buf;
	size_t v_len;
};

/* -EBUSY: open already; -EUCLEAN: damage before the tail. Takes its own reference */
int mp_mlog_open(struct mp_pool *pool, u64 id, struct mp_mlog **out);
/* writes out nothing: unsynced records may be lost */
void mp_mlog_close(struct mp_mlog *log);
/* one record of 1 .. 1 MiB; -EFBIG when it does not fit; is_sync: durable on return */
int mp_mlog_append(struct mp_mlog *log, const struct mp_vec *vec, u32 n, bool is_sync);
int mp_mlog_sync(struct mp_mlog *log);
/* as mpool_mlog_read() */
int mp_mlog_read(struct mp_mlog *log, u64 *pos, void *buf, size_t size, size_t *len);
/* the same for callers that may not write: without records that are still in the buffer */
int mp_mlog_peek(struct mp_mlog *log, u64 *pos, void *buf, size_t size, size_t *len);
/* new generation, durable on return */
int mp_mlog_erase(struct mp_mlog *log);
int mp_mlog_seal(struct mp_mlog *log);
void mp_mlog_space(struct mp_mlog *log, u64 *used, u64 *capacity);
/*
 * Space below for the first @must bytes of it, for @wish if there is as much; *have: for how many
 * there is. -ENOSPC: not for @must, and nothing has changed. Records that need no more fit.
 */
int mp_mlog_reserve(struct mp_mlog *log, u64 must, u64 wish, u64 *have);
/* nothing read so far or appended: for pair logic */
bool mp_mlog_is_empty(struct mp_mlog *log);

/* ---- named roots: a name and two mlog ids ---- */

/*
 * Allocate two mlogs and the name in one record; durable on return. They have space below for
 * their first MP_LOG_FIRST bytes; an append that finds no more does not fit (-EFBIG).
 */
int mp_root_create(struct mp_pool *pool, const char *name, u32 mclass, u64 capacity, u64 tag);
int mp_root_get(struct mp_pool *pool, const char *name, u64 id[2]);
/* remove the name and delete both logs in one record; -EBUSY while a log is open */
int mp_root_delete(struct mp_pool *pool, const char *name);
/* the first name after @after ("" = from the start); -ENOENT at the end */
int mp_root_next(struct mp_pool *pool, const char *after, char name[32], u64 id[2]);

#endif
