// SPDX-License-Identifier: GPL-2.0-only
/*
 * Load-time check of the compiled core. A module built for a kernel it was
 * never tried on must refuse to load rather than lose data, so this makes a
 * pool of two devices in memory, writes and flushes through the core, cuts the
 * power, replays, and compares every byte.
 *
 * A test device is two images of memory: what was written, and what was
 * flushed. A power cut copies the second over the first. Uses only the core's
 * own contract (os.h), so the unit tests run it in user space as well.
 */
#include "selftest.h"

#include "obj.h"
#include "pool.h"

#define DEV_BYTES	(4u << 20)
#define CHUNK		(DEV_BYTES / 64)
#define NDEVS		2u
#define DATA_BYTES	(64u << 10)
#define RECORDS		5u

struct st_dev {
	struct mp_dev sd_dev;	/* first */
	u8 *sd_written;
	u8 *sd_durable;
	u64 sd_dirty;		/* bit per CHUNK that differs */
	bool sd_is_cut;		/* from now on nothing becomes durable */
};

struct st {
	struct st_dev dev[NDEVS];
	struct mp_dev *devs[NDEVS];
	u8 *data;		/* what the object holds */
	u8 *back;
	u64 obj_id, log_id;
	const char *what;	/* step in progress */
};

static int st_read(struct mp_dev *dev, u64 off_bytes, void *buf, size_t len_bytes)
{
	struct st_dev *sd = (struct st_dev *)dev;

	if (off_bytes > DEV_BYTES || len_bytes > DEV_BYTES - off_bytes)
		return -EIO;
	memcpy(buf, sd->sd_written + off_bytes, len_bytes);
	return 0;
}

static int st_write(struct mp_dev *dev, u64 off_bytes, const void *buf, size_t len_bytes,
		    unsigned int flags)
{
	struct st_dev *sd = (struct st_dev *)dev;
	u64 at;

	if (off_bytes > DEV_BYTES || len_bytes > DEV_BYTES - off_bytes)
		return -EIO;
	memcpy(sd->sd_written + off_bytes, buf, len_bytes);
	for (at = ALIGN_DOWN(off_bytes, CHUNK); at < off_bytes + len_bytes; at += CHUNK)
		sd->sd_dirty |= 1ull << (at / CHUNK);
	if ((flags & MP_DEV_FUA) && !sd->sd_is_cut)
		memcpy(sd->sd_durable + off_bytes, buf, len_bytes);
	return 0;
}

static int st_flush(struct mp_dev *dev)
{
	struct st_dev *sd = (struct st_dev *)dev;
	u32 i;

	for (i = 0; i < DEV_BYTES / CHUNK && !sd->sd_is_cut; i++)
		if (sd->sd_dirty & (1ull << i))
			memcpy(sd->sd_durable + i * CHUNK, sd->sd_written + i * CHUNK, CHUNK);
	if (!sd->sd_is_cut)
		sd->sd_dirty = 0;
	return 0;
}

static const struct mp_dev_ops st_ops = {
	.read = st_read,
	.write = st_write,
	.flush = st_flush,
};

static int st_init(struct st *st)
{
	static const char *const path[NDEVS] = { "selftest-0", "selftest-1" };
	u32 i;

	st->what = "memory";
	for (i = 0; i < NDEVS; i++) {
		struct st_dev *sd = &st->dev[i];

		sd->sd_written = os_zalloc(DEV_BYTES);
		sd->sd_durable = os_zalloc(DEV_BYTES);
		if (!sd->sd_written || !sd->sd_durable)
			return -ENOMEM;
		sd->sd_dev.d_ops = &st_ops;
		sd->sd_dev.d_size = DEV_BYTES;
		sd->sd_dev.d_flags = MP_DEV_ZEROED;
		sd->sd_dev.d_sector = MP_SECTOR;
		sd->sd_dev.d_path = path[i];
		st->devs[i] = &sd->sd_dev;
	}
	st->data = os_alloc_io(DATA_BYTES);
	st->back = os_alloc_io(DATA_BYTES);
	if (!st->data || !st->back)
		return -ENOMEM;
	os_random(st->data, DATA_BYTES);
	return 0;
}

static void st_fini(struct st *st)
{
	u32 i;

	for (i = 0; i < NDEVS; i++) {
		os_free(st->dev[i].sd_written);
		os_free(st->dev[i].sd_durable);
	}
	os_free_io(st->data);
	os_free_io(st->back);
}

static int st_create(struct st *st)
{
	static const u32 mclass[NDEVS] = { MP_CAPACITY, MP_STAGING };
	struct mp_create c = {
		.mc_name = "selftest",
		.mc_mode = 0600,
		.mc_ndevs = NDEVS,
		.mc_dev = st->devs,
		.mc_mclass = mclass,
	};

	st->what = "create";
	return mp_pool_create(&c);
}

/* moves the object's bytes as a client would: the core says where they lie */
static int st_object_io(struct mp_obj *obj, u8 *buf, bool is_write)
{
	struct mp_dev *dev;
	u64 off, pos, contig;
	int rc;

	for (off = 0; off < DATA_BYTES; off += contig) {
		rc = mp_obj_map(obj, off, DATA_BYTES - off, &dev, &pos, &contig);
		if (rc)
			return rc;
		if (!contig)
			return -EUCLEAN;
		rc = is_write ? dev->d_ops->write(dev, pos, buf + off, contig, 0) :
				dev->d_ops->read(dev, pos, buf + off, contig);
		if (rc)
			return rc;
	}
	return 0;
}

static int st_write_object(struct st *st, struct mp_pool *pool)
{
	struct mp_alloc al = {
		.al_kind = MP_MBLOCK,
		.al_mclass = MP_CAPACITY,
		.al_capacity = DATA_BYTES,
		.al_tag = 7,
	};
	struct mp_op op = { .op_type = MP_OP_COMMIT, .op_length = DATA_BYTES };
	struct mp_obj *obj;
	int rc;

	st->what = "write and commit an object";
	rc = mp_obj_alloc(pool, &al, 1, &obj);
	if (rc)
		return rc;
	rc = mp_obj_write_begin(obj, 0, DATA_BYTES);
	if (!rc) {
		rc = st_object_io(obj, st->data, true);
		mp_obj_write_end(obj, 0, rc);
	}
	op.op_obj = obj;
	if (!rc)
		rc = mp_pool_batch(pool, &op, 1);
	st->obj_id = mp_obj_id(obj);
	mp_obj_put(obj);
	return rc;
}

static int st_write_log(struct st *st, struct mp_pool *pool)
{
	struct mp_alloc al = {
		.al_kind = MP_MLOG,
		.al_mclass = MP_STAGING,
		.al_capacity = DATA_BYTES,
	};
	struct mp_mlog *log;
	struct mp_obj *obj;
	u32 i;
	int rc;

	st->what = "append to a log";
	rc = mp_obj_alloc(pool, &al, 1, &obj);
	if (rc)
		return rc;
	st->log_id = mp_obj_id(obj);
	mp_obj_put(obj);
	rc = mp_mlog_open(pool, st->log_id, &log);
	if (rc)
		return rc;
	for (i = 0; !rc && i < RECORDS; i++) {
		struct mp_vec v = { .v_buf = st->data + i, .v_len = 100 + i };

		/* the last is the one that makes all of them durable */
		rc = mp_mlog_append(log, &v, 1, i == RECORDS - 1);
	}
	mp_mlog_close(log);
	return rc;
}

static int st_read_object(struct st *st, struct mp_pool *pool)
{
	struct mp_obj_info info;
	struct mp_obj *obj;
	int rc;

	st->what = "read the object back";
	rc = mp_obj_open(pool, st->obj_id, &obj);
	if (rc)
		return rc;
	mp_obj_info(obj, &info);
	if (info.oi_tag != 7 || info.oi_length != DATA_BYTES)
		rc = -EUCLEAN;
	if (!rc)
		rc = mp_obj_read_check(obj, 0, DATA_BYTES);
	if (!rc)
		rc = st_object_io(obj, st->back, false);
	if (!rc && memcmp(st->back, st->data, DATA_BYTES))
		rc = -EUCLEAN;
	mp_obj_put(obj);
	return rc;
}

static int st_read_log(struct st *st, struct mp_pool *pool)
{
	struct mp_mlog *log;
	size_t len;
	u64 pos = 0;
	u32 i;
	int rc;

	st->what = "replay the log";
	rc = mp_mlog_open(pool, st->log_id, &log);
	if (rc)
		return rc;
	for (i = 0; !rc && i < RECORDS; i++) {
		rc = mp_mlog_read(log, &pos, st->back, DATA_BYTES, &len);
		if (!rc && (len != 100 + i || memcmp(st->back, st->data + i, len)))
			rc = -EUCLEAN;
	}
	if (!rc && mp_mlog_read(log, &pos, st->back, DATA_BYTES, &len) != -ENODATA)
		rc = -EUCLEAN;
	mp_mlog_close(log);
	return rc;
}

static int st_session(struct st *st, bool is_first)
{
	struct mp_pool *pool;
	int rc, rc2;
	u32 i;

	st->what = is_first ? "open" : "open after the power cut";
	rc = mp_pool_open(st->devs, NDEVS, 0, &pool);
	if (rc)
		return rc;
	if (is_first) {
		rc = st_write_object(st, pool);
		if (!rc)
			rc = st_write_log(st, pool);
		/* a close would make more durable: that is lost too */
		for (i = 0; i < NDEVS; i++)
			st->dev[i].sd_is_cut = true;
	}
	if (!rc)
		rc = st_read_object(st, pool);
	if (!rc)
		rc = st_read_log(st, pool);
	if (!rc)
		st->what = "close";
	rc2 = mp_pool_close(pool);
	return rc ? rc : rc2;
}

static int st_run(struct st *st)
{
	struct mp_probe probe;
	u32 i;
	int rc;

	rc = st_init(st);
	if (rc)
		return rc;
	st->what = "crc32c";
	if (~crc32c(~0u, "123456789", 9) != 0xe3069283u)
		return -EUCLEAN;
	st->what = "refuse an empty device";
	if (mp_probe(st->devs[0], &probe) != -EINVAL)
		return -EUCLEAN;
	rc = st_create(st);
	if (!rc)
		rc = st_session(st, true);
	if (rc)
		return rc;
	for (i = 0; i < NDEVS; i++) {
		memcpy(st->dev[i].sd_written, st->dev[i].sd_durable, DEV_BYTES);
		st->dev[i].sd_dirty = 0;
		st->dev[i].sd_is_cut = false;
	}
	return st_session(st, false);
}

int mpk_selftest(const char **what)
{
	struct st *st = os_zalloc(sizeof(*st));
	int rc;

	*what = "memory";
	if (!st)
		return -ENOMEM;
	rc = st_run(st);
	*what = st->what;
	st_fini(st);
	os_free(st);
	return rc;
}
