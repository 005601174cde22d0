/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* An open, step by step, for kvdb_open(), check and repair; see kvdb.c. */
#ifndef KV_OPEN_H
#define KV_OPEN_H

#include <stdbool.h>
#include <stdint.h>

struct kvdb;
struct kvdb_opts;

/* @in checked and with its defaults, as every call takes options; @flags come to it */
int kv_opts_take(const struct kvdb_opts *in, uint32_t flags, struct kvdb_opts *o);
/* the one that it names, or the system's */
const struct kvdb_clock *kv_opts_clock(const struct kvdb_opts *o);
/* Everything up to the opened runs */
int kv_db_attach(struct kvdb *db, const char *pool, const struct kvdb_opts *o, bool is_rdonly);
int kv_db_load_kvs(struct kvdb *db, uint32_t from, bool with_runs);
/* The rest of an open: stores, recovery, threads. After a failure kv_db_detach() follows. */
int kv_db_start(struct kvdb *db);
void kv_db_detach(struct kvdb *db);
/*
 * After an attempt to open at a checkpoint: what a writer changes below a look can look like
 * damage; what stays is damage. True after a while to wait: try again.
 */
bool kv_open_should_retry(const struct kvdb_opts *o, int err, int *looks);

#endif
