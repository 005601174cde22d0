/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Checkpoints: what they pin, as seen by the files that delete objects and open databases. */
#ifndef KV_CKPT_H
#define KV_CKPT_H

#include <stdbool.h>
#include <stdint.h>

struct kv_mdc_ckpt;
struct kv_mdc_state;
struct kv_run_desc;
struct kvdb;
struct kvdb_opts;
struct kvdb_stats;

/* mpool_hold(): every reader of a checkpoint; one of it is held by the number of its manifest */
#define KV_HOLD_ANY	0u

/* Opening: reads the manifests of all checkpoints and pins what they list. */
int kv_ckpts_load(struct kvdb *db);
void kv_ckpts_fini(struct kvdb *db);
/*
 * Opening at a checkpoint (o->checkpoint): the state of the container becomes that of its
 * manifest. -ENOENT, -EBUSY (it is being dropped), and as kv_manifest_read().
 */
int kv_ckpt_enter(struct kvdb *db, const char *pool, const struct kvdb_opts *o);
/* In place of recovery: nothing is replayed. */
int kv_ckpt_numbers(struct kvdb *db);

/* True when a checkpoint cannot be read: nothing that existed is deleted until it is dropped. */
bool kv_ckpt_holds_all(struct kvdb *db);
/* True when @id is a manifest, or a key block of a checkpoint that can be read (R8: no orphan). */
bool kv_ckpt_lists(struct kvdb *db, uint64_t id);
/*
 * A run that no tree lists and no reader has: 1 when a checkpoint pins it. Then its objects
 * stay, and go when the last such checkpoint is dropped. -ENOMEM: ask again.
 */
int kv_ckpt_keeps(struct kvdb *db, const struct kv_run_desc *d);
/* Deletes what no checkpoint pins any more; what fails is left for the next call. 1: it did. */
int kv_ckpts_reap(struct kvdb *db);
void kv_ckpt_stats(struct kvdb *db, struct kvdb_stats *st);

/* ---- making one: op/ckpt_make.c; m_ddl_lock is held ---- */

struct kv_ckpt;
/* 0; -EEXIST: there is one of that name; -EDQUOT: there are as many as there may be. */
int kv_ckpt_may_come(struct kvdb *db, const char *name);
/* C2: what the state lists is pinned; it is in the list, but not shown. -ENOMEM, -EUCLEAN. */
int kv_ckpt_pin(struct kvdb *db, const struct kv_mdc_ckpt *rec, const struct kv_mdc_state *st,
		struct kv_ckpt **out);
/* Where its manifest is is known now. */
void kv_ckpt_set(struct kvdb *db, struct kv_ckpt *c, const struct kv_mdc_ckpt *rec);
/* It is durable: it is shown. */
void kv_ckpt_show(struct kvdb *db, struct kv_ckpt *c);
/* It did not become durable: the pins go, and what it alone kept. */
void kv_ckpt_unpin(struct kvdb *db, struct kv_ckpt *c);

/*
 * kv_manifest_read - read and check the manifest of a checkpoint, fold it into @st
 * @st is empty before, and to be freed in any case. -EUCLEAN, -EIO, -ENOMEM.
 */
int kv_manifest_read(struct kvdb *db, const struct kv_mdc_ckpt *c, struct kv_mdc_state *st);

#endif
