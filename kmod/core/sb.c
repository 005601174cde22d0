/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Superblock copies of one device: at the start, in the middle, at the end.
 *
 * They are read only while byte 0 carries our magic or cannot be read: anything
 * else at byte 0 means that the device belongs to somebody else now. So the
 * first copy is written once, at create, before the pool exists: a power cut
 * may leave garbage in a sector that is being written, and would disown the
 * device. The other two are written one at a time with a flush between.
 * Among intact copies of one identity the highest generation counts. No locks:
 * callers own the device.
 */
#include "core.h"

u64 mp_sb_copy_addr(u64 dev_bytes, u32 copy)
{
	switch (copy) {
	case 0:
		return 0;
	case 1:
		return ALIGN_DOWN(dev_bytes / 2, MP_SB_AREA);
	default:
		return ALIGN_DOWN(dev_bytes, MP_BLOCK) - MP_BLOCK;
	}
}

static int copy_write(struct mp_dev *dev, struct mp_sb *sb, u32 copy, void *buf)
{
	int rc;

	sb->sb_addr = mp_sb_copy_addr(sb->sb_dev_bytes, copy);
	mp_sb_encode(sb, buf);
	rc = dev->d_ops->write(dev, sb->sb_addr, buf, MP_BLOCK, 0);
	/* this copy must be on media before the next is touched: INV-2 */
	if (!rc)
		rc = BARRIER(60, dev->d_ops->flush(dev));
	if (rc)
		return mp_err_as(MP_SB_WRITE, rc, "%s: superblock at offset %llu: error %d",
				 dev->d_path, sb->sb_addr, rc);
	return 0;
}

int mp_sb_write(struct mp_dev *dev, struct mp_sb *sb, u32 bad, void *buf)
{
	/* the copy that is stale or torn goes first: the other is all there is */
	u32 first = bad & 4 ? 2 : 1;
	int rc = copy_write(dev, sb, first, buf);

	return rc ? rc : copy_write(dev, sb, 3 - first, buf);
}

int mp_sb_write_first(struct mp_dev *dev, struct mp_sb *sb, void *buf)
{
	return copy_write(dev, sb, 0, buf);
}

/*
 * Copy 0 first: without it the device is nobody's, whatever the others say.
 */
int mp_sb_erase(struct mp_dev *dev, u64 dev_bytes, void *buf)
{
	u32 i;
	int rc;

	memset(buf, 0, MP_BLOCK);
	for (i = 0; i < MP_SB_COPIES; i++) {
		u64 addr = mp_sb_copy_addr(dev_bytes, i);

		rc = dev->d_ops->write(dev, addr, buf, MP_BLOCK, 0);
		/* copy 0 must be gone before the others: INV-3 */
		if (!rc)
			rc = BARRIER(61, dev->d_ops->flush(dev));
		if (rc)
			return mp_err_as(MP_SB_WRITE, rc, "%s: erasing the superblock at %llu",
					 dev->d_path, addr);
	}
	return 0;
}

struct copies {
	struct mp_sb *best;
	struct mp_sb *cur;
	u64 gen[MP_SB_COPIES];	/* 0: not intact */
	bool has_best;
};

static void copy_take(struct copies *c, u32 i)
{
	struct mp_sb *tmp;

	/* a copy of another identity is a leftover of a former life of the device */
	if (c->has_best && (memcmp(c->best->sb_uuid, c->cur->sb_uuid, MP_UUID_LEN) ||
			    memcmp(c->best->sb_dev_uuid, c->cur->sb_dev_uuid, MP_UUID_LEN)))
		return;
	c->gen[i] = c->cur->sb_gen;
	if (!c->has_best || c->cur->sb_gen > c->best->sb_gen) {
		tmp = c->best;
		c->best = c->cur;
		c->cur = tmp;
		c->has_best = true;
	}
}

static int copies_read(struct mp_dev *dev, struct copies *c, u8 *buf)
{
	u64 bytes = dev->d_size;
	u8 uuid[MP_UUID_LEN];
	bool has_uuid = false;
	int rc, rc0;
	u32 i;

	rc0 = dev->d_ops->read(dev, 0, buf, MP_BLOCK);
	if (!rc0) {
		rc = mp_sb_decode(buf, 0, c->cur);
		if (rc == -EINVAL && !mp_sb_is_magic(buf))
			return mp_err(MP_NOTMEMBER, "%s: no pool signature", dev->d_path);
		if (rc && rc != -EUCLEAN)
			return rc;	/* another version or unknown features: final */
		if (!rc) {
			bytes = c->cur->sb_dev_bytes;
			copy_take(c, 0);
		} else {
			memcpy(uuid, buf + 40, MP_UUID_LEN);
			has_uuid = true;
		}
	}
	for (i = 1; i < MP_SB_COPIES; i++) {
		u64 addr = mp_sb_copy_addr(bytes, i);

		/* behind the end of a device that shrank nothing can be read: the caller tells */
		rc = dev->d_ops->read(dev, addr, buf, MP_BLOCK);
		if (rc || mp_sb_decode(buf, addr, c->cur))
			continue;
		if (has_uuid && memcmp(uuid, c->cur->sb_uuid, MP_UUID_LEN))
			continue;
		copy_take(c, i);
	}
	if (c->has_best)
		return 0;
	if (rc0)
		return mp_err_as(MP_SB_READ, rc0, "%s: superblock: error %d", dev->d_path, rc0);
	return mp_err(MP_SB_CORRUPT, "%s: no intact superblock", dev->d_path);
}

int mp_sb_read(struct mp_dev *dev, struct mp_sb *sb, u32 *bad)
{
	struct copies c = { .has_best = false };
	struct mp_sb *tmp = os_alloc(sizeof(*tmp));
	u8 *buf = os_alloc_io(MP_BLOCK);
	int rc;
	u32 i;

	c.best = os_alloc(sizeof(*tmp));
	c.cur = tmp;
	if (!tmp || !buf || !c.best)
		rc = mp_err(MP_NOMEM, "%s: superblock", dev->d_path);
	else if (dev->d_size < (1u << 20))
		rc = mp_err(MP_NOTMEMBER, "%s: %llu bytes are no pool", dev->d_path, dev->d_size);
	else if (dev->d_sector > MP_BLOCK)
		rc = mp_err(MP_SB_BLOCKSIZE, "%s: sectors of %u bytes", dev->d_path, dev->d_sector);
	else
		rc = copies_read(dev, &c, buf);
	if (!rc) {
		*sb = *c.best;
		/* the first copy keeps the generation of create */
		*bad = !c.gen[0];
		for (i = 1; i < MP_SB_COPIES; i++)
			if (c.gen[i] != sb->sb_gen)
				*bad |= 1u << i;
		if (!CHECK(64, sb->sb_dev_bytes <= dev->d_size))
			rc = mp_err(MP_SB_SHRUNK, "%s: %llu bytes, was %llu", dev->d_path,
				    dev->d_size, sb->sb_dev_bytes);
	}
	os_free(c.best);
	os_free(c.cur);
	os_free_io(buf);
	return rc;
}

int mp_probe(struct mp_dev *dev, struct mp_probe *out)
{
	struct mp_sb *sb = os_alloc(sizeof(*sb));
	u32 bad;
	int rc;

	if (!sb)
		return mp_err(MP_NOMEM, "%s: superblock", dev->d_path);
	rc = mp_sb_read(dev, sb, &bad);
	if (!rc) {
		memset(out, 0, sizeof(*out));
		memcpy(out->pb_uuid, sb->sb_uuid, MP_UUID_LEN);
		memcpy(out->pb_dev_uuid, sb->sb_dev_uuid, MP_UUID_LEN);
		memcpy(out->pb_name, sb->sb_name, MP_NAME_LEN);
		out->pb_state = sb->sb_state;
		out->pb_slot = sb->sb_slot;
		out->pb_ndevs = sb->sb_ndevs;
		out->pb_mclass = sb->sb_mclass;
		out->pb_format = sb->sb_format;
		out->pb_gen = sb->sb_gen;
		out->pb_bytes = sb->sb_dev_bytes;
	}
	os_free(sb);
	return rc;
}
