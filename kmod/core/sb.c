/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Superblock copies of one device: at the start, in the middle, at the end; a
 * device that has grown carries one more, at its present end.
 *
 * They are read only while byte 0 carries our magic or cannot be read: anything
 * else at byte 0 means that the device is in other use now. So the
 * first copy is written once, when the device becomes a member: a power cut may
 * leave garbage in a sector that is being written, and would disown the device.
 * Later only a new name goes into its sector 0, under a mark in the other
 * copies that tells such a cut from a foreign owner; mp_recover() writes all of
 * it, for a person. The others are written
 * one at a time with a flush between. Among intact copies of one identity the
 * highest generation counts; copy 0 keeps generation 1. No locks: callers own
 * the device.
 */
#include "member.h"

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

u32 mp_sb_copies(const struct mp_sb *sb)
{
	return sb->sb_base_bytes < sb->sb_dev_bytes ? MP_SB_COPIES + 1 : MP_SB_COPIES;
}

u64 mp_sb_addr(const struct mp_sb *sb, u32 copy)
{
	return copy < MP_SB_COPIES ? mp_sb_copy_addr(sb->sb_base_bytes, copy) :
				     mp_sb_copy_addr(sb->sb_dev_bytes, 2);
}

int mp_sb_entry(struct mp_sb *sb, u32 i, const struct mp_dev *dev, u32 mclass)
{
	struct mp_sbdev *d = &sb->sb_dev[i];

	d->sd_bytes = ALIGN_DOWN(dev->d_size, MP_BLOCK);
	d->sd_mclass = (u8)mclass;
	d->sd_flags = dev->d_flags & MP_DEV_ZEROED ? MP_DEVF_ZEROED : 0;
	return mp_random(d->sd_uuid, MP_UUID_LEN);
}

void mp_sb_member(struct mp_sb *sb, u32 i)
{
	sb->sb_slot = i;
	memcpy(sb->sb_dev_uuid, sb->sb_dev[i].sd_uuid, MP_UUID_LEN);
	sb->sb_dev_bytes = sb->sb_dev[i].sd_bytes;
	sb->sb_base_bytes = sb->sb_dev_bytes;
	sb->sb_mark = 0;
	sb->sb_mclass = sb->sb_dev[i].sd_mclass;
	sb->sb_data_off = MP_SB_AREA;
	if (sb->sb_dev[i].sd_flags & MP_DEVF_MD)
		sb->sb_data_off += 2 * sb->sb_md_bytes;
}

int mp_sb_reserve(struct mp_dev *dev, const struct mp_sb *sb)
{
	bool has_log = sb->sb_dev[sb->sb_slot].sd_flags & MP_DEVF_MD;
	u64 first = min_t(u64, sb->sb_md_bytes, MP_MD_FIRST);
	int rc = mp_dev_reserve(dev, 0, has_log ? sb->sb_md_off + first : sb->sb_data_off);
	u32 k;

	if (!rc && has_log)
		rc = mp_dev_reserve(dev, sb->sb_md_off + sb->sb_md_bytes, first);
	for (k = 1; k < mp_sb_copies(sb) && !rc; k++)
		rc = mp_dev_reserve(dev, mp_sb_addr(sb, k), MP_BLOCK);
	return rc;
}

static int copy_write(struct mp_dev *dev, struct mp_sb *sb, u32 copy, void *buf)
{
	int rc;

	os_assert(copy < mp_sb_copies(sb));
	sb->sb_addr = mp_sb_addr(sb, copy);
	mp_sb_encode(sb, buf);
	rc = mp_dev_write(dev, sb->sb_addr, buf, MP_BLOCK);
	/* this copy must be on media before the next is touched: INV-2 */
	if (!rc)
		rc = BARRIER(dev->d_ops->flush(dev));
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

	if (!rc)
		rc = copy_write(dev, sb, 3 - first, buf);
	if (!rc && mp_sb_copies(sb) > MP_SB_COPIES)
		rc = copy_write(dev, sb, MP_SB_COPIES, buf);
	return rc;
}

int mp_sb_write_first(struct mp_dev *dev, struct mp_sb *sb, void *buf)
{
	/* it counts only where no other copy does */
	os_assert(sb->sb_gen == 1);
	return copy_write(dev, sb, 0, buf);
}

int mp_sb_rewrite_first(struct mp_dev *dev, const struct mp_sb *sb, void *buf)
{
	int rc = dev->d_ops->read(dev, 0, buf, MP_BLOCK);

	/* one that is damaged elsewhere is worth nothing but its magic: keep that */
	if (rc || mp_sb_mark(buf) != sb->sb_mark)
		return 0;
	mp_sb_first_encode(sb, buf);
	rc = mp_dev_write(dev, 0, buf, MP_BLOCK);
	/* whole on media before the mark goes that vouches for it: INV-2 */
	if (!rc)
		rc = BARRIER(dev->d_ops->flush(dev));
	if (rc)
		return mp_err_as(MP_SB_WRITE, rc, "%s: superblock at offset 0: error %d",
				 dev->d_path, rc);
	return 0;
}

/*
 * Copy 0 first: without it the device is no member, whatever the others say.
 */
int mp_sb_erase(struct mp_dev *dev, const struct mp_sb *sb, void *buf)
{
	u32 i;
	int rc;

	memset(buf, 0, MP_BLOCK);
	for (i = 0; i < mp_sb_copies(sb); i++) {
		u64 addr = mp_sb_addr(sb, i);

		rc = mp_dev_write(dev, addr, buf, MP_BLOCK);
		/* copy 0 must be gone before the others: INV-3 */
		if (!rc)
			rc = BARRIER(dev->d_ops->flush(dev));
		if (rc)
			return mp_err_as(MP_SB_WRITE, rc, "%s: erasing the superblock at %llu",
					 dev->d_path, addr);
	}
	return 0;
}

struct copies {
	struct mp_dev *dev;
	u8 *first;		/* block 0 */
	u8 *buf;
	struct mp_sb *best;
	struct mp_sb *cur;
	u64 gen[MP_SB_COPIES + 1];	/* 0: not intact */
	bool has_best;
	int io;			/* of a read that failed: what is not intact need not be damaged */
	bool has_uuid;		/* copy 0 is damaged, but says whose it is */
	u8 uuid[MP_UUID_LEN];
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

/* the copy at @addr, if there is one that belongs there */
static void copy_at(struct copies *c, u64 addr)
{
	int rc = c->dev->d_ops->read(c->dev, addr, c->buf, MP_BLOCK);
	u32 i;

	/* behind the end of a device that shrank nothing can be read: the caller tells */
	c->io = c->io ? c->io : rc;
	if (rc || !mp_sb_is_magic(c->buf) || mp_sb_decode(c->buf, addr, c->cur))
		return;
	if (c->has_uuid && memcmp(c->uuid, c->cur->sb_uuid, MP_UUID_LEN))
		return;
	for (i = 1; i < mp_sb_copies(c->cur); i++) {
		if (mp_sb_addr(c->cur, i) == addr) {
			copy_take(c, i);
			return;
		}
	}
}

/* The end first: the middle of a device that grew may hold a copy of its last owner. */
static void copies_at(struct copies *c, u64 bytes)
{
	copy_at(c, mp_sb_copy_addr(bytes, 2));
	copy_at(c, mp_sb_copy_addr(bytes, 1));
}

/*
 * Copy 0 is damaged, perhaps while it was being rewritten: the device's size
 * tells where the others are, or what is left of copy 0 when it is larger now.
 */
static void copies_search(struct copies *c)
{
	u64 tried = c->dev->d_size, bytes;
	u32 i;

	copies_at(c, tried);
	for (i = 0; !c->has_best && i <= MP_SLOTS; i++) {
		bytes = mp_sb_hint(c->first, i);
		if (i && !bytes)
			break;
		if (bytes == tried || bytes < (1u << 20) || bytes > c->dev->d_size)
			continue;
		tried = bytes;
		copies_at(c, bytes);
	}
}

/*
 * Byte 0 is not ours, but may have been lost while copy 0 was being rewritten:
 * then the other copies carry the mark of what is left. Not when sector 0 looks
 * like the work of a person: zeroes, a partition table, only our magic wiped.
 */
static bool is_rewritten(const struct copies *c)
{
	const u8 *p = c->first;
	u32 i = 0;

	while (i < MP_SECTOR && !p[i])
		i++;
	if (i == MP_SECTOR || (p[MP_SECTOR - 2] == 0x55 && p[MP_SECTOR - 1] == 0xaa))
		return false;
	return c->has_best && memcmp(p + 40, c->best->sb_uuid, MP_UUID_LEN) &&
	       CHECK(c->best->sb_mark == mp_sb_mark(p));
}

static int copies_read(struct copies *c, struct mp_sb_found *found)
{
	struct mp_dev *dev = c->dev;
	bool is_lost = false;
	int rc, rc0;

	rc0 = dev->d_ops->read(dev, 0, c->first, MP_BLOCK);
	c->io = rc0;
	rc = rc0 ? rc0 : mp_sb_decode(c->first, 0, c->cur);
	if (!rc) {
		u64 bytes = c->cur->sb_dev_bytes;

		found->f_mark = mp_sb_mark(c->first);
		memcpy(found->f_name, c->cur->sb_name, MP_NAME_LEN);
		copy_take(c, 0);
		copies_at(c, bytes);
		/* of a device that grew another copy is at its end */
		if (c->io)
			copies_at(c, dev->d_size);
	} else if (rc0) {
		copies_at(c, dev->d_size);
	} else {
		is_lost = rc == -EINVAL && !mp_sb_is_magic(c->first);
		if (rc != -EUCLEAN && !is_lost)
			return rc;	/* another version or unknown features: final */
		/* damage of what it says would make strangers of the others */
		c->has_uuid = !is_lost && mp_sb_prefix_is_good(c->first);
		memcpy(c->uuid, c->first + 40, MP_UUID_LEN);
		copies_search(c);
	}
	/* the copy at the end of a grown device tells where the others are, and they of it */
	if (c->has_best && mp_sb_copies(c->best) > MP_SB_COPIES) {
		copies_at(c, c->best->sb_base_bytes);
		copy_at(c, mp_sb_addr(c->best, MP_SB_COPIES));
	}
	if (is_lost && !is_rewritten(c))
		return mp_err(MP_NOTMEMBER, "%s: no pool signature", dev->d_path);
	if (c->has_best)
		return 0;
	if (rc0)
		return mp_err_as(MP_SB_READ, rc0, "%s: superblock: error %d", dev->d_path, rc0);
	return mp_err(MP_SB_CORRUPT, "%s: no intact superblock", dev->d_path);
}

int mp_sb_read(struct mp_dev *dev, struct mp_sb *sb, struct mp_sb_found *found)
{
	struct copies c = { .dev = dev };
	int rc;
	u32 i;

	memset(found, 0, sizeof(*found));
	c.best = os_alloc(sizeof(*c.best));
	c.cur = os_alloc(sizeof(*c.cur));
	c.buf = os_alloc_io(MP_BLOCK);
	c.first = os_alloc_io(MP_BLOCK);
	if (!c.best || !c.cur || !c.buf || !c.first)
		rc = mp_err(MP_NOMEM, "%s: superblock", dev->d_path);
	else if (dev->d_size < (1u << 20))
		rc = mp_err(MP_NOTMEMBER, "%s: smaller than 1 MiB", dev->d_path);
	else if (dev->d_sector > MP_BLOCK)
		rc = mp_err(MP_SB_BLOCKSIZE, "%s: sectors of %u bytes", dev->d_path, dev->d_sector);
	else
		rc = copies_read(&c, found);
	if (!rc) {
		*sb = *c.best;
		found->f_io = c.io;
		/* the first copy keeps the generation of create */
		found->f_bad = !c.gen[0];
		for (i = 1; i < mp_sb_copies(sb); i++)
			if (c.gen[i] != sb->sb_gen)
				found->f_bad |= 1u << i;
		for (i = 0; i < mp_sb_copies(sb) && !c.io; i++)
			found->f_csums += !c.gen[i];
		if (!CHECK(sb->sb_dev_bytes <= dev->d_size))
			rc = mp_err(MP_SB_SHRUNK, "%s: %llu bytes, was %llu", dev->d_path,
				    dev->d_size, sb->sb_dev_bytes);
	}
	os_free(c.best);
	os_free(c.cur);
	os_free_io(c.buf);
	os_free_io(c.first);
	return rc;
}

void mp_sb_probe(const struct mp_sb *sb, struct mp_probe *out)
{
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

int mp_probe(struct mp_dev *dev, struct mp_probe *out)
{
	struct mp_sb *sb = os_alloc(sizeof(*sb));
	struct mp_sb_found found;
	int rc;

	if (!sb)
		return mp_err(MP_NOMEM, "%s: superblock", dev->d_path);
	rc = mp_sb_read(dev, sb, &found);
	if (!rc) {
		mp_sb_probe(sb, out);
		out->pb_is_damaged = found.f_bad & 1;
	}
	os_free(sb);
	return rc;
}

/* ---- what may be in one ---- */

int mp_name_check(const char *name)
{
	return name && mp_name_is_good(name) ? 0 :
	       mp_err(MP_NAME, "'%s' is no name for a pool", name ? name : "");
}

int mp_label_check(const char *label)
{
	size_t i;

	for (i = 0; label && label[i]; i++)
		if (i + 1 >= MP_LABEL_LEN || (u8)label[i] < 0x20 || label[i] == 0x7f)
			return mp_err(MP_LABEL, "byte %zu", i);
	return 0;
}

int mp_dev_check(const struct mp_dev *dev)
{
	if (dev->d_size < MP_MIN_DEV || dev->d_size > (1ull << 59))
		return mp_err(MP_DEV_SMALL, "%s: %llu bytes", dev->d_path, dev->d_size);
	if (dev->d_sector > MP_BLOCK)
		return mp_err(MP_SB_BLOCKSIZE, "%s: sectors of %u bytes", dev->d_path,
			      dev->d_sector);
	return 0;
}
