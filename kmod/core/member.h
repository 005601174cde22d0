/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Members of a pool: their superblocks, which host may write to them, and how that is done.
 */
#ifndef MP_CORE_MEMBER_H
#define MP_CORE_MEMBER_H

#include "core.h"

#define MP_STEP	(4ull << 20)	/* bytes of a request that must not be late, INV-25 */

/* sb.c */
/* copies 0 to 2 of a device of @dev_bytes at creation */
u64 mp_sb_copy_addr(u64 dev_bytes, u32 copy);
/* how many copies there are, and where */
u32 mp_sb_copies(const struct mp_sb *sb);
u64 mp_sb_addr(const struct mp_sb *sb, u32 copy);
/* all copies but the first; @bad as mp_sb_read() found them, 0 for a new device */
int mp_sb_write(struct mp_dev *dev, struct mp_sb *sb, u32 bad, void *buf);
/* copy 0, when the device becomes a member */
int mp_sb_write_first(struct mp_dev *dev, struct mp_sb *sb, void *buf);
/* its sector 0, while the other copies carry @sb->sb_mark */
int mp_sb_rewrite_first(struct mp_dev *dev, const struct mp_sb *sb, void *buf);
/* best copy. -EINVAL: not a member */
int mp_sb_read(struct mp_dev *dev, struct mp_sb *sb, struct mp_sb_found *found);
void mp_sb_probe(const struct mp_sb *sb, struct mp_probe *out);
int mp_sb_erase(struct mp_dev *dev, const struct mp_sb *sb, void *buf);
/* turn superblock @sb into that of member @i of its table, which did not grow */
void mp_sb_member(struct mp_sb *sb, u32 i);
/* entry @i of its table: a new member */
int mp_sb_entry(struct mp_sb *sb, u32 i, const struct mp_dev *dev, u32 mclass);
/* space for the superblocks, and the begin of the metadata log where there is one */
int mp_sb_reserve(struct mp_dev *dev, const struct mp_sb *sb);
/* may @label be one, @dev a member? NULL is no label */
int mp_label_check(const char *label);
int mp_dev_check(const struct mp_dev *dev);

/* own.c */
void mp_own_init(struct mp_own *own);
void mp_own_fini(struct mp_own *own);
/*
 * The pool's, for this opening: up to 1.5 s. -EBUSY: another host is alive, or came at the
 * same time. To be called before anything of the pool counts that was read.
 */
int mp_own_claim(struct mp_own *own, struct mp_dev *home, const struct mp_sb *sb);
/* for a reader, which leaves nothing behind. When to call it: as above */
int mp_own_read(struct mp_own *own, struct mp_dev *home, const struct mp_sb *sb);
/* the same before @dev is overwritten by force: a host that is alive stops for none */
int mp_own_look_at(struct mp_dev *dev);
/* from now on, of a pool that no other host could have opened */
int mp_own_begin(struct mp_own *own, struct mp_dev *home, const struct mp_sb *sb);
/* frees the block, if it is ours beyond doubt; or leaves it as it was found: !ow_has_written */
void mp_own_leave(struct mp_own *own);
/* is it so long since the last heartbeat that counted that nothing may be written? */
bool mp_own_is_late(struct mp_own *own);
/* returns when this host may write, or the pool has failed */
void mp_own_wait(struct mp_pool *pool);

/* fault.c */
/* has it stopped? Then a record that failed may be on media, whatever the device called it */
bool mp_pool_is_failed(struct mp_pool *pool);
/* the detail of the fail-stop, or of no memory, for one that it struck too; returns @err */
int mp_pool_failed(struct mp_pool *pool, int err);
/* takes p_lock */
void mp_pdev_bad_read(struct mp_pool *pool, struct mp_pdev *pd, bool is_reread);
void mp_pdev_repaired(struct mp_pool *pool, struct mp_pdev *pd, u32 copies);
/* what an open pool writes to its members: each time only while it may (INV-25) */
int mp_dev_write(struct mp_dev *dev, u64 off, const void *buf, size_t len);
int mp_dev_flush(struct mp_pool *pool, struct mp_pdev *pd);
/* does what lies there take space of a file system, only when it is reserved or written? */
bool mp_dev_is_sparse(const struct mp_dev *dev);
/* space for later writes, where the device knows of such; 0 or a negative errno with detail */
int mp_dev_reserve(struct mp_dev *dev, u64 off, u64 len);
int mp_dev_zero(struct mp_pool *pool, struct mp_pdev *pd, u64 off, u64 len);

#endif
