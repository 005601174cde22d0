/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The kinds of logs, and the unit in which they are written. */
#ifndef KV_STREAM_H
#define KV_STREAM_H

#define KV_BLOCK	4096u	/* unit of frames, bytes */

/* Stream of a segment: which records it holds */
enum kv_stream { KV_VLOG = 0, KV_KLOG = 1, KV_STREAMS = 2 };

#endif
