/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Errors of the calling thread: a detail names object, reason and way out. See err.c. */
#ifndef KV_ERROR_H
#define KV_ERROR_H

#include <kvdb/kvdb.h>

/* Records the detail of this thread's error and returns @err. */
int kv_error(int err, const char *id, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Makes another thread's detail of @err ours; returns @err. */
int kv_error_take(const struct mpool_error *e, int err);
/* After a failed call on the database's pool: its detail is the thread's. Returns @err. */
int kv_error_mpool(int err);
/* Says that there is no memory for @what, if @err is that and was not said yet; returns @err. */
int kv_error_memory(int err, const char *what);
/* -ENOENT of a key, for little. */
int kv_error_absent(void);
/* Of a write that was not done: -EIO says that it was, and is -EROFS here. */
int kv_error_unwritten(int err);

#endif
