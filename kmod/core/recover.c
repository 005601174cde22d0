/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Bringing back a device whose first superblock was overwritten, or is damaged.
 *
 * To everything else the former is in other use, and the latter a member that other
 * programs do not know. Here, on request of a person that has seen what the others
 * say, the first copy is made anew from the best of them. What those say is only
 * taken as a whole: intact, at its own address, of an active pool. Of one that was not
 * created to the end they tell that a create may be repeated. No locks: the caller owns
 * the device.
 */
#include "member.h"

/* the copy at @addr into @best, if it is intact, of the same identity, and newer */
static bool take(struct mp_dev *dev, u64 addr, void *buf, struct mp_sb *cur, struct mp_sb *best,
		 bool has_best)
{
	if (dev->d_ops->read(dev, addr, buf, MP_BLOCK) || !mp_sb_is_magic(buf) ||
	    mp_sb_decode(buf, addr, cur))
		return has_best;
	if (!has_best || (cur->sb_gen > best->sb_gen &&
			  !memcmp(cur->sb_uuid, best->sb_uuid, MP_UUID_LEN) &&
			  !memcmp(cur->sb_dev_uuid, best->sb_dev_uuid, MP_UUID_LEN)))
		*best = *cur;
	return true;
}

/* 0, or why there is nothing to restore from */
static int look(struct mp_dev *dev, void *buf, struct mp_sb *cur, struct mp_sb *best)
{
	struct mp_sb_found found;
	bool has;
	u64 base;

	if (dev->d_size < (1u << 20) || dev->d_sector > MP_BLOCK)
		return mp_err(MP_NOTMEMBER, "%s: no pool", dev->d_path);
	/* one that is damaged may still tell where the others are */
	has = !mp_sb_read(dev, best, &found);
	if (!has) {
		/* in this order as in sb.c */
		has = take(dev, mp_sb_copy_addr(dev->d_size, 2), buf, cur, best, has);
		has = take(dev, mp_sb_copy_addr(dev->d_size, 1), buf, cur, best, has);
	}
	/* a device that grew carries only its last copy where its size says */
	base = has ? best->sb_base_bytes : dev->d_size;
	if (base != dev->d_size) {
		has = take(dev, mp_sb_copy_addr(base, 1), buf, cur, best, has);
		has = take(dev, mp_sb_copy_addr(base, 2), buf, cur, best, has);
	}
	if (!has)
		return mp_err(MP_NOTMEMBER, "%s: no copy of a superblock either", dev->d_path);
	if (best->sb_state != MP_SB_ACTIVE)
		return mp_err(MP_NOTMEMBER, "%s: the copies are of a pool that was %s",
			      dev->d_path, best->sb_state == MP_SB_DESTROYED ? "destroyed" :
			      "not created to the end");
	if (best->sb_dev_bytes > dev->d_size)
		return mp_err(MP_SB_SHRUNK, "%s: %llu bytes, was %llu", dev->d_path, dev->d_size,
			      best->sb_dev_bytes);
	return 0;
}

/* the first copy is as it was when the device became a member: see sb.c */
static int restore(struct mp_dev *dev, struct mp_sb *sb, void *buf)
{
	sb->sb_gen = 1;
	sb->sb_mark = 0;
	sb->sb_dev_bytes = sb->sb_base_bytes;
	sb->sb_dev[sb->sb_slot].sd_bytes = sb->sb_base_bytes;
	return mp_sb_write_first(dev, sb, buf);
}

int mp_recover(struct mp_dev *dev, bool is_plan, struct mp_probe *out)
{
	struct mp_sb *best = os_alloc(sizeof(*best)), *cur = os_alloc(sizeof(*cur));
	void *buf = os_alloc_io(MP_BLOCK);
	int rc = 0;

	if (!best || !cur || !buf)
		rc = mp_err(MP_NOMEM, "%s: superblock", dev->d_path);
	if (!rc)
		rc = look(dev, buf, cur, best);
	if (!rc) {
		mp_sb_probe(best, out);
		if (!is_plan)
			rc = restore(dev, best, buf);
	}
	os_free(best);
	os_free(cur);
	os_free_io(buf);
	return rc;
}

bool mp_is_unborn(struct mp_dev *dev)
{
	struct mp_sb *best = os_alloc(sizeof(*best)), *cur = os_alloc(sizeof(*cur));
	u8 *buf = os_alloc_io(MP_BLOCK);
	bool has = false;
	u32 i = 0;

	if (best && cur && buf && dev->d_size >= (1u << 20) && dev->d_sector <= MP_BLOCK &&
	    !dev->d_ops->read(dev, 0, buf, MP_BLOCK))
		while (i < MP_BLOCK && !buf[i])
			i++;
	if (i == MP_BLOCK) {
		has = take(dev, mp_sb_copy_addr(dev->d_size, 2), buf, cur, best, has);
		has = take(dev, mp_sb_copy_addr(dev->d_size, 1), buf, cur, best, has);
	}
	has = has && best->sb_state == MP_SB_CREATING && best->sb_gen <= 2;
	os_free(best);
	os_free(cur);
	os_free_io(buf);
	return has;
}
