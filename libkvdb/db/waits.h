/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What the calling thread has waited for, by cause: kvdb_waits(). */
#ifndef KV_WAITS_H
#define KV_WAITS_H

#include <stdint.h>

/* A wait begins; those that lie in it are parts of it. What it returns is for the other one. */
uint64_t kv_wait_begin(void);
void kv_wait_end(unsigned cause, uint64_t began_ns);
/* One that was measured: counted unless it is part of another. */
void kv_waited(unsigned cause, uint64_t ns);

#endif
