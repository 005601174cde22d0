/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Free space of one device, in 4 KiB blocks. Nothing of it lies on media: it
 * is the complement of the layouts of live objects. Guarded by pool->p_lock.
 */
#ifndef MP_CORE_SMAP_H
#define MP_CORE_SMAP_H

#include "codec.h"
#include "tree.h"

enum mp_space {
	MP_SPACE_CLEAN = 0,	/* free */
	MP_SPACE_STOCK = 1,	/* free, kept undiscarded for logs */
	MP_SPACE_PEND = 2,	/* free, waiting for discard */
	MP_SPACE_STATES = 3,
	MP_SPACE_HURT = 3,	/* not free yet: a device failed a write there */
	MP_SPACE_LISTS = 4,
};

#define MP_BUCKETS	56

struct mp_free {
	struct mp_node f_node;	/* key: first block */
	struct list_head f_list;
	u64 f_count;		/* blocks */
	u32 f_state;
};

struct mp_smap {
	struct mp_tree s_tree;
	struct list_head s_bucket[MP_SPACE_LISTS][MP_BUCKETS];
	u64 s_map[MP_SPACE_LISTS];	/* bit per bucket that is not empty */
	u64 s_free[MP_SPACE_LISTS];	/* blocks */
	u64 s_inflight;			/* bit per bucket that is not empty */
	u64 s_total;			/* blocks that objects may use */
	u64 s_stock_max;		/* blocks */
	u64 s_taken;			/* blocks that logs took since mp_smap_trim() */
	u64 s_virgin;			/* first block never exposed; see mblock.c */
	bool s_has_discard;
	struct list_head s_spare;	/* one per live extent: a free cannot fail */
};

int mp_smap_init(struct mp_smap *s, bool has_discard);
void mp_smap_fini(struct mp_smap *s);
/* add [start, start + count) as clean space at open */
int mp_smap_add(struct mp_smap *s, u64 start, u64 count);
/* the same in two steps, of which only the first can fail (NULL); frees with os_free() */
struct mp_free *mp_smap_node(void);
void mp_smap_extend(struct mp_smap *s, struct mp_free *f, u64 start, u64 count);
/* remove exactly this range at replay; -EUCLEAN when it is not wholly free */
int mp_smap_take(struct mp_smap *s, u64 start, u64 count);
/* blocks free in all states, without those in flight */
u64 mp_smap_free_blocks(const struct mp_smap *s);

#define MP_SMAP_LOG	0x1u	/* append object or mlog: stock, then low end */
#define MP_SMAP_PIECES	0x2u	/* several extents are acceptable */

/*
 * Allocate up to @want blocks into at most @max extents. Without
 * MP_SMAP_PIECES all of it in one extent or nothing. Returns the number of
 * extents (0: no space) or -ENOMEM; *@got is the number of blocks.
 */
int mp_smap_alloc(struct mp_smap *s, u64 want, u32 flags, struct mp_extent *out, u32 max,
		  u64 *got);
/* give an allocated extent back; is_log: it may become stock; is_clean: never written */
void mp_smap_put(struct mp_smap *s, u64 start, u64 count, bool is_log, bool is_clean);
/* the same of one where a device failed a write: it is free after mp_smap_hurt_end() */
void mp_smap_put_hurt(struct mp_smap *s, u64 start, u64 count);
void mp_smap_hurt_end(struct mp_smap *s);
/* what of this range is clean waits for discard; no more of it than there is memory for */
void mp_smap_found(struct mp_smap *s, u64 start, u64 count);
/* of the stock, all but @keep blocks and what a bound of work leaves waits for discard */
void mp_smap_trim(struct mp_smap *s, u64 keep);
/* take one extent out of the discard queue; NULL when there is none */
struct mp_free *mp_smap_discard_begin(struct mp_smap *s, u64 max_blocks);
void mp_smap_discard_end(struct mp_smap *s, struct mp_free *f);

#endif
