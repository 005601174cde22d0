/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The memtable: a hash table of entries with chains of versions, and range
 * partitions that are sorted only when order is asked for (order.c).
 */
#ifndef KV_MEMTABLE_H
#define KV_MEMTABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"
#include "db/limbo.h"
#include "mem/spans.h"

struct kv_ent;
struct kv_iter;
struct kv_iter_room;
struct kv_mt_pin;
struct kv_mtombs;
struct kv_rec;
struct kv_resv;
struct kv_seg;
struct kv_slot;
struct kvdb;

/* Stamps that are not yet sequence numbers (R12). */
#define KV_HIDDEN	UINT64_MAX		/* linked, invisible to all, not to be stamped */
#define KV_PENDING	(UINT64_MAX - 1)	/* a thread that meets it stamps it */
#define KV_SEQ_NOW	(UINT64_MAX - 2)	/* sees every final stamp */
#define KV_IN_SLOT	(1ull << 63)		/* with the address of a kv_tslot */

/*
 * struct kv_tslot - where one attempt to commit a transaction is decided (R12)
 * Its versions name it until each has the stamp itself. Freed after a grace
 * period, so inside kv_enter() a thread that read its address may use it.
 */
struct kv_tslot {
	_Atomic(uint64_t) ts_state;	/* final stamp or KV_TS_* */
	bool ts_has_ranges;		/* it takes two stamps, the first for tombstones (T13) */
	struct kv_tslot *ts_next;
	struct kv_limbo ts_limbo;	/* of the list that it heads */
};
#define KV_TS_ACTIVE	UINT64_MAX		/* invisible, not to be helped */
#define KV_TS_PREPARED	(UINT64_MAX - 1)	/* a thread that meets it commits it */
#define KV_TS_ABORTED	(UINT64_MAX - 2)	/* invisible for ever */

struct kv_version {
	_Atomic(uint64_t) v_seq;	/* stamp, KV_HIDDEN, KV_PENDING or KV_IN_SLOT */
	_Atomic(struct kv_version *) v_older;
	struct kv_seg *v_seg;		/* KV_ENT_REF */
	uint64_t v_epoch;
	uint32_t v_off8;
	uint32_t v_vlen;
	uint32_t v_vcrc;
	uint32_t v_rev;
	uint8_t v_kind;			/* enum kv_ent_kind */
	uint8_t v_expires;		/* 8 bytes after the value say when */
	uint8_t v_skips;		/* a struct kv_vskip comes after that */
	uint8_t v_val[];		/* KV_ENT_INLINE */
};

/*
 * struct kv_vskip - an older version than the next, for snapshots that are many versions old
 * Skip pointers as in a skew-binary list (E. W. Myers, "An applicative random-access
 * stack", 1983): from any version any older one is O(log n) steps away. A version
 * with at most one older one has none.
 */
struct kv_vskip {
	struct kv_version *vs_to;
	uint32_t vs_depth;		/* versions with a skip pointer below it */
};

struct kv_entry {
	_Atomic(struct kv_version *) en_head;	/* newest first; changes under the bucket lock */
	/* partition's list; KV_UNORDERED = in no partition yet */
	struct kv_entry *en_next;
	uint16_t en_klen;
	uint8_t en_key[];
};

#define KV_UNORDERED	((struct kv_entry *)1)

#define KV_BUCKET_SLOTS 6
#define KV_BUCKET_LOCK	1u
#define KV_BUCKET_MOVED	2u

/* A slot is tag << 48 | pointer: the tag is the top of the key's hash. */
struct kv_bucket {
	_Atomic(uint64_t) bk_meta;
	_Atomic(uint64_t) bk_slot[KV_BUCKET_SLOTS];
	_Atomic(struct kv_bucket *) bk_more;
};

struct kv_table {
	uint64_t tb_mask;
	_Atomic(struct kv_table *) tb_next;	/* buckets that are MOVED live there */
	struct kv_bucket *tb_bucket;
	struct kv_limbo tb_limbo;
};

struct kv_part;		/* a range of keys: order.h */
struct kv_order_dir;

struct kv_chunk;	/* arena memory */

#define KV_STRIPES 8u

struct kv_stripe {
	_Atomic(struct kv_chunk *) st_chunk;
	pthread_mutex_t st_lock;
} __attribute__((aligned(KV_CACHELINE)));

struct kv_mt {
	_Atomic(uint32_t) m_refs;
	uint32_t m_kvs;
	struct kvdb *m_db;
	_Atomic(struct kv_table *) m_table;
	_Atomic(uint64_t) m_keys;
	_Atomic(uint64_t) m_bytes;		/* arenas and table */
	_Atomic(uint64_t) m_first_epoch;
	_Atomic(uint64_t) m_last_epoch;		/* of its newest record */
	_Atomic(uint64_t) m_boundary;		/* set when it freezes */
	/*
	 * no version of a key has a smaller stamp; UINT64_MAX: nor one that a
	 * range tombstone of a run hides
	 */
	_Atomic(uint64_t) m_min_seq;
	_Atomic(struct kv_mtombs *) m_tombs;	/* tomb.c; NULL until the first */
	_Atomic(uint64_t) m_log_pos;		/* lc_bytes at its first record; 0 = none yet */
	_Atomic(bool) m_grow_wanted;
	_Atomic(bool) m_grow_asked;		/* the grower was told */
	/* its run is durable, or its store was dropped; only cursors and views hold it */
	_Atomic(bool) m_flushed;
	uint64_t m_flushed_bytes;		/* counted in vw_flushed_bytes */
	pthread_mutex_t m_grow_lock;
	struct kv_stripe m_stripe[KV_STRIPES];
	struct kv_chunk *m_chunks;		/* all; views lock */
	_Atomic(struct kv_mt_pin *) m_pins;	/* segments of values older than it (R5) */
	uint64_t m_mark;			/* view.c, under its lock */
	struct kv_mt *m_next, *m_prev;		/* list of all alive; views lock */
	_Atomic(bool) m_ordered;		/* new entries go to their partitions at once */
	_Atomic(bool) m_collected;		/* and those from before are there too */
	_Atomic(bool) m_walked;			/* a cursor wanted order: so will the successor's */
	pthread_mutex_t m_collect_lock;		/* outside m_grow_lock */
	_Atomic(struct kv_order_dir *) m_dir;	/* partitions in key order */
	struct kv_part *m_parts;		/* all there ever were; m_dir_lock */
	pthread_mutex_t m_dir_lock;		/* one replaces the directory */
	uint8_t *m_fences;			/* storage of the first partitions' fences */
	struct kv_limbo m_limbo;
};

struct kv_views {
	pthread_mutex_t vw_lock;
	struct kv_mt *vw_mts;			/* every memtable that a flush can free, */
	struct kv_mt *vw_held;			/* and those that only readers have (TH-20) */
	uint64_t vw_nheld;			/* of the latter; */
	struct kv_mt_epochs vw_epochs;		/* theirs, or more; it is so for certain unless */
	bool vw_is_vague;
	uint64_t vw_asked, vw_looked;		/* since it is; memtables looked at, for tests */
	struct kv_chunk *vw_free;		/* arena chunks to reuse */
	_Atomic(uint64_t) vw_flushed_bytes;	/* of these, by flushed ones */
};

/* What a write puts into the memtable. */
struct kv_mt_op {
	const void *op_key;
	uint16_t op_klen;
	uint8_t op_kind;
	uint64_t op_hash;
	const void *op_val;	/* KV_ENT_INLINE */
	uint32_t op_vlen;
	uint32_t op_vcrc;
	uint32_t op_val_off;	/* KV_ENT_REF: in the segment, bytes */
	uint64_t op_expiry;	/* 0 = never */
	uint32_t op_rev;	/* the least revision of its version, 0 = any (T15) */
	bool op_is_based;	/* only over op_expect, which is NULL for none */
	const struct kv_version *op_expect;
};

struct kv_mt_pin {
	struct kv_seg *mp_seg;
	struct kv_mt_pin *mp_next;
};

/*
 * A memtable holds the records of the epochs (mt_base, mt_boundary] of one
 * KVS. It is referenced by the tree snapshot that lists it and by cursors.
 */
/* An empty active memtable; sized and partitioned like @like when given (its predecessor). */
int kv_mt_new(struct kvdb *db, uint32_t kvs, struct kv_mt *like, struct kv_mt **out);
/* Database-wide memtable state (mm_views): call before the first memtable is made. */
int kv_mts_init(struct kvdb *db);
void kv_mts_fini(struct kvdb *db);
struct kv_mt *kv_mt_get(struct kv_mt *mt);
void kv_mt_put(struct kvdb *db, struct kv_mt *mt);
uint64_t kv_mt_first_epoch(const struct kv_mt *mt);	/* of any record ever inserted; 0 = none */
uint64_t kv_mt_boundary(const struct kv_mt *mt);	/* last epoch, once frozen */
uint64_t kv_mt_keys(const struct kv_mt *mt);
/* R13: the birth of a view; returns its number. */
uint64_t kv_view_open(struct kvdb *db);
/*
 * Ordered walk of what is visible at @seq (UINT64_MAX: newest final version;
 * frozen memtables). Each key once.
 */
int kv_mt_iter(struct kvdb *db, struct kv_mt *mt, uint64_t seq, bool reverse, struct kv_iter **out);
/* The same, in @room as long as there is any (iter.h). */
int kv_mt_iter_in(struct kv_iter_room *room, struct kvdb *db, struct kv_mt *mt, uint64_t seq,
		  bool reverse, struct kv_iter **out);
/* Recovery, single-threaded: insert a record read from a segment (R3: order is (epoch, rev)). */
int kv_mt_replay(struct kv_mt *mt, const struct kv_rec *r, uint64_t epoch,
		 struct kv_seg *seg, uint32_t val_off);

void *kv_mt_arena(struct kv_mt *mt, uint32_t bytes);
/*
 * kv_mt_install - link a version and take its record from OPEN to INSTALLING (R7, R12)
 * -EAGAIN: the record was late or withdrawn; -EBUSY: a transaction owns the
 * key (R14). Nothing is left in the table then.
 * The caller is inside kv_enter() and has seen every epoch before the
 * record's closed (R4).
 */
int kv_mt_install(struct kv_mt *mt, const struct kv_mt_op *op, struct kv_slot *sl,
		  const struct kv_resv *rs, struct kv_version **out);
/*
 * kv_mt_link - link a transaction's version, invisible until its slot is final
 * The caller owns the key, so nothing is linked above it before the slot is
 * final. @seg holds the value of a KV_ENT_REF, and the memtable has it (kv_mt_pin()).
 */
int kv_mt_link(struct kv_mt *mt, const struct kv_mt_op *op, struct kv_seg *seg,
	       struct kv_tslot *ts, struct kv_version **out);
/*
 * The revision that kv_mt_link() gives the next version of the key, which the caller owns: a
 * writer that saw no owner has linked, for it held the bucket's lock. Inside kv_enter().
 */
uint32_t kv_mt_next_rev(struct kv_mt *mt, const void *key, size_t klen, uint64_t hash);
/* Takes it out again; it stays invisible to threads that have met it. Inside kv_enter(). */
void kv_mt_unlink(struct kv_mt *mt, const struct kv_mt_op *op, struct kv_version *v);
/* A record of epoch @e is about to be installed. */
void kv_mt_note_epoch(struct kv_mt *mt, uint64_t e);
/* Nothing needs it any more but the cursors and views that hold it. Once. */
void kv_mt_flushed(struct kv_mt *mt);
/* Keeps a segment as long as the memtable. -ENOMEM. */
int kv_mt_pin(struct kv_mt *mt, struct kv_seg *seg);
/* R14: the newest stamp of a key, looked at under its bucket's lock; 0 = none. */
uint64_t kv_mt_newest(struct kv_mt *mt, const void *key, size_t klen, uint64_t hash);
/* Takes what a slot needs of d_seq; returns the stamp for it. */
uint64_t kv_tslot_take(struct kvdb *db, const struct kv_tslot *ts);
/* What its tombstones have when its versions have the stamp @s. */
uint64_t kv_tslot_tomb_seq(uint64_t s);
/* The stamp of a slot, given when it is PREPARED; KV_HIDDEN while it is undecided or aborted. */
uint64_t kv_tslot_stamp(struct kvdb *db, struct kv_tslot *ts);
/* Every version is linked and the record INSTALLING: commits it; returns the stamp (flusher). */
uint64_t kv_tslot_commit(struct kvdb *db, struct kv_tslot *ts);
/* What to look at after @v, whose stamp is above @seq, in search of the newest up to @seq. */
struct kv_version *kv_version_next(const struct kv_version *v, uint64_t seq);
/* Gives a PENDING version its stamp; returns the stamp, or KV_HIDDEN. */
uint64_t kv_version_stamp(struct kvdb *db, struct kv_version *v);
/* Newest version visible at @seq, or NULL. */
struct kv_version *kv_version_at(struct kvdb *db, struct kv_entry *en, uint64_t seq);
void kv_version_ent(const struct kv_entry *en, const struct kv_version *v, struct kv_ent *e);
/* Looks a key up at @seq: 0 or -ENOENT. Call inside kv_enter(). */
int kv_mt_lookup(struct kv_mt *mt, const void *key, size_t klen, uint64_t hash, uint64_t seq,
		 struct kv_ent *e);
/* The newest version of a key that is not hidden, or NULL. Inside kv_enter(). */
const struct kv_version *kv_mt_newest_version(struct kv_mt *mt, const void *key, size_t klen,
					      uint64_t hash);
void kv_mt_prefetch(struct kv_mt *mt, uint64_t hash);
/* A record of epoch @e is about to be installed. */
void kv_mt_note_epoch(struct kv_mt *mt, uint64_t e);
/* Recovery: a record of epoch @e is in it. */
void kv_mt_note_replay(struct kv_mt *mt, uint64_t e);
/* Grows the table when an insertion asked for it (outside kv_enter() is best). */
void kv_mt_grow(struct kv_mt *mt);
/* The same for a writer: a table that takes long is left to the grower. */
void kv_mt_grow_soon(struct kv_mt *mt);

/*
 * Calls fn for every entry, each under its bucket's lock; the table does not
 * grow meanwhile. Stops at the first error and returns it.
 */
int kv_mt_each(struct kv_mt *mt, int (*fn)(struct kv_entry *en, void *arg), void *arg);

/* Smallest first epoch of all memtables alive, UINT64_MAX when none (memtable.c). */
uint64_t kv_mt_oldest_epoch(struct kvdb *db);

/* order.c */
int kv_order_init(struct kv_mt *mt, struct kv_mt *like);
void kv_order_fini(struct kv_mt *mt);
/* How many partitions a memtable after @like begins with. */
uint32_t kv_order_parts(struct kv_mt *like);
void kv_order_push(struct kv_mt *mt, struct kv_entry *en);
int kv_key_cmp(const void *a, size_t alen, const void *b, size_t blen);

#endif
