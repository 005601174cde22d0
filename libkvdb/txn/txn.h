/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Transactions: write sets (txn.c, txn_iter.c, txn_range.c), values and commit records in the
 * logs (txn_commit.c). README.md has the steps.
 */
#ifndef KV_TXN_H
#define KV_TXN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

#include "db/slot.h"
#include "mem/keylock.h"
#include "tree/view.h"
#include "log/durable.h"

struct kv_pending_write;
struct kv_ent;
struct kv_iter;
struct kv_mt;
struct kv_seg;
struct kv_toll;
struct kv_tomb;
struct kv_tslot;
struct kv_version;

struct kv_txns {
	struct kv_open_views tx_open_views;	/* te_open_views */
	struct kv_tickets tx_tickets;		/* ep_tickets */
	pthread_mutex_t tx_slot_lock;		/* slots that wait to be retired; a leaf */
	struct kv_tslot *tx_slots;
	uint32_t tx_nslots;
	/* a write set of more is logged in parts of a quarter of it (T15); tests make it small */
	_Atomic(uint32_t) tx_record_max;
	pthread_mutex_t tx_bulk_lock;		/* one large transaction is committed at a time */
	pthread_mutex_t tx_batch_lock;		/* one large batch has memory at a time (T18) */
	pthread_mutex_t tx_again_lock;		/* a batch that met an owner claims again (T18) */
};

struct kv_tdel {		/* a range that the transaction deletes */
	struct kv_rangelock td_lock;	/* range and store; its keys live as long as this */
	struct kv_tomb *td_tomb;	/* linked in the store's tt_mt, or NULL */
};

struct kv_touched {		/* a store that the transaction wrote to */
	struct kv_touched *tt_next;
	struct kvdb_kvs *tt_kvs;
	uint64_t tt_ttl_s;	/* of the store when it was touched; 0 = what is put stays */
	uint64_t tt_expiry;	/* engine time, ms: that, counted from the commit */
	struct kv_mt *tt_mt;	/* that holds its versions, with a reference; or NULL */
	struct kv_tdel **tt_del;	/* in order of keys; no two meet or touch */
	uint32_t tt_ndel, tt_delcap;
	uint64_t tt_del_gen;	/* t_gen of the newest of them */
};

struct kv_txn_val {
	struct kv_seg *tv_seg;		/* KV_ENT_REF; the transaction keeps it */
	const uint8_t *tv_val;		/* KV_ENT_INLINE */
	uint32_t tv_vlen, tv_vcrc, tv_off8;
	uint32_t tv_room;		/* bytes at tv_val */
	uint8_t tv_kind;		/* enum kv_ent_kind */
};

struct kv_write {
	struct kv_keylock w_lock;	/* key and store */
	struct kv_write *w_next;	/* in the order of the first write */
	struct kv_write *w_before, *w_after;	/* in the order of the last one */
	uint64_t w_gen;			/* t_gen of that */
	struct kv_touched *w_in;
	struct kv_txn_val w_v;
	struct kv_version *w_ver;	/* linked in w_in->tt_mt, or NULL */
	uint8_t *w_ent;			/* in the commit record being built; NULL: in a part */
	uint32_t w_rev;			/* in a part: that of its version (T15); else 0 */
};

/* A piece of the write set that lies in the value log, for the commit record to name. */
struct kv_txn_part {
	struct kv_txn_val tp_v;
	uint32_t tp_kvs;		/* store of all of them */
	uint32_t tp_n;			/* writes */
};

struct kv_txn_chunk {
	struct kv_txn_chunk *tc_next;
	uint32_t tc_size, tc_used;
	uint8_t tc_mem[] __attribute__((aligned(8)));
};

/* Are its keys and its hold on stores claims? T11 */
enum kv_claim {
	KV_CLAIM_LIVE,
	KV_CLAIM_COMMIT,	/* its owner commits: whatever its age, they are until it ends */
	KV_CLAIM_DEAD,		/* it cannot commit any more; for good */
};

struct kvdb_txn {
	struct kvdb *t_db;
	_Atomic(uint32_t) t_claim;	/* enum kv_claim */
	_Atomic(uint32_t) t_refs;	/* the owner and its cursors */
	uint32_t t_flags;
	struct kv_view t_view;
	bool t_is_batch;		/* a batch: no view, and nothing is tested (T18) */
	bool t_ended;			/* only its cursors are left */
	bool t_is_gone;			/* without its writes */
	bool t_is_begun;		/* its commit waits for no room: kv_txn_commit_begin() */
	bool t_is_paid;			/* nor do its values, */
	uint32_t t_paid_bytes;		/* which take so much */
	int t_doomed;			/* a write failed: it cannot commit, */
	uint32_t t_why;			/* enum kvdb_txn_state */
	uint64_t t_ticket;		/* for what its snapshot shows */
	uint32_t t_groups;		/* of keys it took; unless 0, it counts in mm_owners */
	struct kv_write *t_first, **t_tail;
	struct kv_write *t_newest;	/* the write changed last; w_before leads to older ones */
	struct kv_write **t_table;	/* open addressing once there are many */
	uint32_t t_slots;		/* of t_table; a power of two */
	uint32_t t_n;
	uint32_t t_ndel;		/* ranges that it deletes, of all stores */
	uint64_t t_rec_bytes;		/* of the commit record's value, if it had all writes */
	uint32_t t_range_bytes;		/* of that, of ranges */
	uint64_t t_part_bytes;		/* of that, in parts */
	struct kv_txn_part *t_part;
	uint32_t t_npart, t_partcap;
	uint64_t t_mem_bytes;		/* of chunks and table */
	uint64_t t_coming;		/* counted in mt_coming */
	struct kv_write *t_to_link;	/* those before it are linked; NULL: all are */
	_Atomic(uint64_t) t_gen;	/* changes of the write set */
	uint64_t t_user_bytes;
	/* its owner adds, others look: kv_txns_dead_holds() */
	_Atomic(struct kv_touched *) t_touched;
	struct kv_seg **t_seg;		/* pinned, with references (R5) */
	uint32_t t_nseg, t_segcap;
	uint64_t t_seg_bytes;
	struct kv_tslot *t_slot;	/* of this attempt to commit */
	struct kv_txn_chunk *t_chunk;
	uint32_t t_used;		/* of t_mem */
	uint8_t t_mem[512] __attribute__((aligned(8)));
};

static inline bool kv_txn_has_writes(const struct kvdb_txn *t)
{
	return t->t_n || t->t_ndel;
}

int kv_txns_init(struct kvdb *db);
void kv_txns_fini(struct kvdb *db);
/* Memory that lives as long as the transaction. */
void *kv_txn_alloc(struct kvdb_txn *t, uint32_t bytes);
struct kv_toll *kv_txn_toll(struct kvdb_txn *t);	/* what it is charged, or NULL */
struct kvdb_txn *kv_txn_get(struct kvdb_txn *t);
void kv_txn_put(struct kvdb_txn *t);
/*
 * The view of an open transaction for a cursor: the store's tree with a reference
 * (NULL: the store is younger) and the view number. -ESTALE.
 */
int kv_txn_snapshot(struct kvdb_txn *t, struct kvdb_kvs *kvs, struct kv_tree **tree,
		    uint64_t *seq);
/*
 * 0, or -ESTALE: for a cursor on @kvs, which may outlive its transaction and then shows what it
 * showed, unless these were writes that were not committed.
 */
int kv_txn_check(struct kvdb_txn *t, const struct kvdb_kvs *kvs);
/*
 * It can only be aborted, for the reason @why (enum kvdb_txn_state): @err is what its commit would
 * return. Its keys are free.
 */
void kv_txn_doom(struct kvdb_txn *t, int err, uint32_t why);
/* It can only be aborted, and is told so at the latest by its commit. Any thread, any lock. */
bool kv_txn_is_dead(struct kvdb_txn *t);
/* How many holds on @kvs, of those counted in k_cursors, are of transactions that are dead. */
uint32_t kv_txns_dead_holds(struct kvdb *db, const struct kvdb_kvs *kvs);
/*
 * Did a write to @kvs change after generation @since that lies in the way of a walk from @key, or
 * (NULL) from before everything? @is_on: the walk has shown @key.
 */
bool kv_txn_wrote_ahead(const struct kvdb_txn *t, const struct kvdb_kvs *kvs, uint64_t since,
			bool up, const void *key, size_t klen, bool is_on);
/* A write as an entry that is newer than every other. */
void kv_write_ent(const struct kv_write *w, struct kv_ent *e);
/*
 * For txn_range.c: may it go on, and write? The store among those that it wrote to, held. It comes
 * second, which is told and counted. The write becomes a delete. Nothing was written to the key.
 */
int kv_txn_check_write(struct kvdb_txn *t, const struct kvdb_kvs *kvs);
int kv_txn_touch(struct kvdb_txn *t, struct kvdb_kvs *kvs, struct kv_touched **out);
int kv_txn_conflict(struct kvdb_txn *t, const struct kvdb_kvs *kvs, const char *what);
void kv_txn_write_undo(struct kvdb_txn *t, struct kv_write *w);
/* Before it owns keys of these groups: a plain write that sees no owner links before we look. */
void kv_txn_is_owner(struct kvdb_txn *t, uint32_t groups);

/* ---- txn_range.c ------------------------------------------------------------------- */

/* It deletes a range with the key. Its own writes are not hidden by that. */
bool kv_txn_range_has(const struct kvdb_txn *t, const struct kvdb_kvs *kvs, const void *key,
		      size_t klen);
/* Its outcome is final: its ranges are free again. */
void kv_txn_ranges_unlock(struct kvdb_txn *t);
/* For the steps of a commit, as those of versions. */
uint32_t kv_txn_ranges_encode(const struct kvdb_txn *t, uint8_t *buf);
int kv_txn_ranges_link(struct kvdb_txn *t);
void kv_txn_ranges_renew(struct kvdb_txn *t);
void kv_txn_ranges_unlink(struct kv_touched *tt);
void kv_txn_ranges_set_epoch(struct kvdb_txn *t, uint64_t epoch);
void kv_txn_ranges_set_seq(struct kvdb_txn *t, uint64_t seq);
/* U1: no update stands between its look at the tombstones and its stamp. */
void kv_txn_ranges_hold(struct kvdb_txn *t);
void kv_txn_ranges_let(struct kvdb_txn *t);

/* txn_iter.c: its writes to a store in key order, tombstones included; one look per seek */
int kv_txn_iter(struct kvdb_txn *t, struct kvdb_kvs *kvs, bool reverse, struct kv_iter **out);

/* As kv_put_start(), of kvdb_txn_commit(); bg_epoch 0: nothing was written; -EAGAIN does nothing */
int kv_txn_commit_begin(struct kvdb_txn *txn, struct kv_pending_write *bg);
struct kvdb *kv_txn_db(const struct kvdb_txn *txn);

/* ---- txn_parts.c ------------------------------------------------------------------------ */

/* A write as an entry of the commit record: bytes, and these; its revision may come later. */
uint32_t kv_write_size(const struct kv_write *w);
uint32_t kv_write_encode(const struct kv_write *w, uint8_t *to);
uint64_t kv_write_expiry(const struct kv_write *w);	/* engine time, ms; 0 = never */

/* The write set as it is put into parts. */
struct kv_filling {
	struct kvdb_txn *fi_txn;
	struct kv_touched *fi_of;	/* store of the part, NULL at first */
	struct kv_write *fi_next;	/* the first that is in none, NULL at first */
	uint8_t *fi_buf;		/* the part */
	uint32_t fi_size, fi_used;	/* of that, bytes */
	uint32_t fi_n;			/* writes */
};
/* Fills the next part; false: what is left belongs into the record. */
bool kv_filling_next(struct kv_filling *fi);
/* As entries of the commit record: bytes, and these. */
uint32_t kv_txn_parts_bytes(const struct kvdb_txn *t);
uint32_t kv_txn_parts_encode(const struct kvdb_txn *t, uint8_t *buf);

/* ---- txn_bulk.c ------------------------------------------------------------------------- */

/* Does it write so much that a memtable could be switched while it is linked? */
bool kv_txn_is_bulk(const struct kvdb_txn *t);
/*
 * kv_bulk_begin - memtables have room for what the transaction links (T16)
 * No other large one has its turn before kv_bulk_end(). May block. 0 or why there is no room.
 */
int kv_bulk_begin(struct kvdb_txn *t, bool urgent);
void kv_bulk_end(struct kvdb_txn *t);
/* Its memtables are not switched until kv_bulk_let() (T17). The holder waits for nothing. */
void kv_bulk_hold(struct kvdb_txn *t);
void kv_bulk_let(struct kvdb_txn *t);
/* So many bytes of what was to come are in memtables now. */
void kv_bulk_came(struct kvdb_txn *t, uint64_t bytes);

/* ---- txn_commit.c ---------------------------------------------------------------- */

/*
 * The steps of a commit; kv_txn_commit() takes them, tests stop between them.
 * Link: every version into the active memtables, invisible. Install: the record
 * into the open epoch, then OPEN -> INSTALLING. Finish: the stamp.
 */
struct kv_commit {
	struct kvdb_txn *co_txn;
	uint8_t *co_buf;		/* value of the record */
	uint32_t co_len, co_size;	/* of the value; of the record */
	bool co_is_bulk;		/* T16, T17 */
	uint32_t co_crc;		/* of the value */
	struct kv_resv co_rs;
	bool co_has_own;		/* co_rs is a segment of its own, not yet the log's */
	uint32_t co_index;
	struct kv_slot *co_slot;
	uint64_t co_seq;		/* result */
};
/* Writes the value of a key to the value log: tv_seg, tv_off8. May block; outside kv_enter(). */
int kv_txn_log_value(struct kvdb_txn *t, const struct kv_keylock *kl, struct kv_txn_val *v,
		     const void *val);
/* The same for all values of a batch, which its caller has at tv_val: many at a time. */
int kv_txn_log_values(struct kvdb_txn *t);
/* Of a transaction that is too large for one record: all but its end (T15). May block. */
int kv_txn_parts_log(struct kvdb_txn *t);
/* Of its commit record, at most. */
uint32_t kv_txn_record_bytes(const struct kvdb_txn *t);
int kv_commit_prepare(struct kv_commit *co, struct kvdb_txn *t);
int kv_commit_link(struct kv_commit *co);		/* inside kv_enter() */
int kv_commit_reserve(struct kv_commit *co);		/* 0, -ENOBUFS: the log needs a segment */
int kv_commit_install(struct kv_commit *co);		/* 0, -EAGAIN: link and reserve again */
void kv_commit_finish(struct kv_commit *co);
void kv_commit_undo(struct kv_commit *co);
/* All of it. 0 with the record's epoch in *epoch. */
int kv_txn_commit(struct kvdb_txn *t, uint64_t *epoch);

#endif
