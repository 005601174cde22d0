/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What is durable: space, the table of objects, and the log that both are made from.
 */
#ifndef MP_CORE_DURABLE_H
#define MP_CORE_DURABLE_H

#include "member.h"

/* mclass.c */
void mp_class_init(struct mp_pool *pool);
/* p_lock held, or no other thread knows the pool */
void mp_class_add(struct mp_pool *pool, struct mp_pdev *pd);
void mp_class_reserve(struct mp_pool *pool);
/* fills obj's extents; p_lock held, may drop it to wait for a discard in flight */
int mp_class_alloc(struct mp_pool *pool, u32 mclass, u64 blocks, u32 kind, u32 flags,
		   struct mp_extent *ext, u32 *next, u32 *got_class);
void mp_class_free(struct mp_pool *pool, const struct mp_extent *ext, u32 n, u32 kind,
		   bool is_clean);
/* of an object where a device failed a write; p_lock held, as in the next */
void mp_class_keep_out(struct mp_pool *pool, const struct mp_extent *ext, u32 n);
/* gives it out again when its time has come; is some kept out still? */
bool mp_class_hurt_step(struct mp_pool *pool, u64 now);
u64 mp_class_avail(const struct mp_pool *pool, u32 mclass, bool is_spare);

/* otab.c */
/* -ENOSPC when all would take more memory than INV-13 allows, or -ENOMEM */
int mp_otab_new(struct mp_pool *pool, u32 nextents, struct mp_obj **out);
void mp_otab_free(struct mp_obj *obj);
struct mp_obj *mp_otab_find(struct mp_pool *pool, u64 id);
void mp_otab_insert(struct mp_pool *pool, struct mp_obj *obj);
void mp_otab_remove(struct mp_pool *pool, struct mp_obj *obj);
void mp_otab_rec(const struct mp_obj *obj, struct mp_rec *r);
u32 mp_otab_rec_size(const struct mp_obj *obj);
struct mp_root *mp_otab_root(struct mp_pool *pool, const char *name);
int mp_otab_root_add(struct mp_pool *pool, struct mp_root *root);
void mp_otab_root_del(struct mp_pool *pool, struct mp_root *root);
/* apply one record during replay; 0 or a negative errno with detail */
int mp_otab_replay(struct mp_pool *pool, const struct mp_rec *r);
void mp_otab_fini(struct mp_pool *pool);
/* encode durable state after the cursor; returns bytes used, 0 at the end */
struct mp_ckpt_cursor {
	u32 cc_phase;
	u64 cc_key;
	char cc_name[MP_NAME_LEN];
};
u32 mp_otab_encode(struct mp_pool *pool, struct mp_ckpt_cursor *c, u8 *buf, u32 max, u32 *nrecs);
/* p_lock held; @is_clean: never written */
void mp_obj_free_space(struct mp_obj *obj, bool is_clean);

/* mdlog.c */
int mp_md_init(struct mp_pool *pool);
void mp_md_fini(struct mp_pool *pool);
/* of a log whose first MP_MD_FIRST bytes of each region have been reserved */
int mp_md_format(struct mp_pool *pool);
/* before the first write to a log that was loaded: space below for what it holds, and a delete */
int mp_md_space_open(struct mp_pool *pool);
/*
 * Space below for all that p_ckpt_pend counts, and a delete: before records that make the state
 * larger are committed (INV-28). -ENOSPC: nothing has changed. No lock held.
 */
int mp_md_space(struct mp_pool *pool);
/* find the newest intact log and replay it; is_repair: make the mirrors equal */
int mp_md_load(struct mp_pool *pool, mp_finding_fn *fn, void *arg);
int mp_md_repair(struct mp_pool *pool);
int mp_md_commit(struct mp_pool *pool, struct mp_txn *txn);
int mp_txn_init(struct mp_txn *txn, u32 max);
void mp_txn_fini(struct mp_txn *txn);
int mp_txn_add(struct mp_txn *txn, const struct mp_rec *r);
/* may @bytes more of records become durable? -ENOSPC. p_lock held */
int mp_md_room(struct mp_pool *pool, u64 bytes);
u64 mp_md_region(const struct mp_mdlog *md, u64 epoch);

/* mblock.c */
int mp_obj_id_reserve(struct mp_pool *pool, u32 n, u64 *first);
/* the first @first bytes get space below */
int mp_obj_make(struct mp_pool *pool, const struct mp_alloc *req, u64 id, u64 first,
		struct mp_obj **out);
/* space below for bytes [@from, @to) of it; what fails has a detail only if @is_said */
int mp_obj_reserve(const struct mp_obj *obj, u64 from, u64 to, bool is_said);
/* how many bytes from its begin have space below */
u64 mp_obj_reserved(const struct mp_obj *obj);
int mp_alloc_durable(struct mp_pool *pool, const struct mp_alloc *req, u32 n,
		     struct mp_root *root, struct mp_obj **out);

/* batch.c */
int mp_obj_erase(struct mp_obj *obj, u64 gen);
int mp_obj_seal_log(struct mp_obj *obj, u64 length);

#endif
