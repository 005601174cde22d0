/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* How far a database is: epochs, stamps, and what of them is on media. All only grow. */
#ifndef KV_EPOCHS_H
#define KV_EPOCHS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct kv_tickets;

struct kv_epochs {
	_Atomic(uint64_t) ep_open;	/* the open epoch */
	_Atomic(uint64_t) ep_closed;	/* every slot of epochs <= it is DONE or SKIP */
	_Atomic(uint64_t) ep_durable;	/* durable epoch */
	/* newest epoch at whose end no active memtable held a record; ep_tick_lock writes */
	_Atomic(uint64_t) ep_boundary;
	/* stamps given until then are at most this, later ones are above */
	_Atomic(uint64_t) ep_boundary_seq;
	_Atomic(uint64_t) ep_seq;	/* R12: stamps and views */
	pthread_mutex_t ep_tick_lock;	/* closing an epoch */
	struct {			/* newest descriptor on media: flusher, recovery */
		uint64_t epoch, obj;
		uint32_t off;
	} ep_desc;
	struct kv_tickets *ep_tickets;	/* log/durable.c */
};

#endif
