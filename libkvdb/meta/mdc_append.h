/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Appending records to the metadata container, for the files of this room. All hold m_lock. */
#ifndef KV_MDC_APPEND_H
#define KV_MDC_APPEND_H

#include <stdint.h>

struct kv_mdc;

/* As kv_mdc_append_here(), making room first. */
int kv_mdc_append(struct kv_mdc *m, int flags);
/* RV20: of a record that makes the state no larger, or that an open needs. */
int kv_mdc_append_spare(struct kv_mdc *m, int flags);
/* Appends and folds the record in m_buf, for which there is room. @flags: MPOOL_SYNC or 0. */
int kv_mdc_append_here(struct kv_mdc *m, int flags);
/* R18: records engine time, mostly in front of a record that is synced. */
int kv_mdc_append_time(struct kv_mdc *m, int flags);
/*
 * RV20: for @len bytes that make the state larger. Looked at before the log is full, too: what it
 * took can no more be refused by the compaction, and the next open records all segments beside it.
 */
int kv_mdc_make_room(struct kv_mdc *m, uint64_t len);
/* -ENOMEM with a detail. */
int kv_mdc_no_memory(void);

#endif
