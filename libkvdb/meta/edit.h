/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Durable changes of which runs and leaves a store has. */
#ifndef KV_EDIT_H
#define KV_EDIT_H

#include <stdbool.h>

struct kv_edit;
struct kv_mdc;
struct kv_run;
struct kvdb;

/*
 * kv_mdc_edit - one atomic, durable change of the tree
 * Flushes and commits the objects of ed_add, then appends
 * one record with MPOOL_SYNC. Compacts the container first when it is nearly
 * full. On return 0 the horizons are durable (kvs->k_horizon is updated here).
 */
int kv_mdc_edit(struct kvdb *db, const struct kv_edit *ed);
/*
 * The same of @n stores at once, each of which adds one run for all keys at most and drops none:
 * one commit and one MPOOL_SYNC. All or none of them, unless the database stops; a crash may keep
 * the first few.
 */
int kv_mdc_edits(struct kvdb *db, const struct kv_edit *ed, unsigned n);

/* The first step of kv_mdc_edit(), which ends it; RV9. For the tests. */
int kv_mdc_announce(struct kv_mdc *m, const struct kv_edit *ed, bool *is_announced);
/* Adds (@by 1) or takes (-1) a durable run's references on its segments. */
void kv_run_count(struct kvdb *db, struct kv_run *r, int by);

#endif
