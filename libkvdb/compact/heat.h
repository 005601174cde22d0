/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Heat: what scans have paid because the values of a segment are not in key
 * order, and when that is as much as it costs to put them in order.
 */
#ifndef KV_HEAT_H
#define KV_HEAT_H

#include <stdbool.h>
#include <stdint.h>

struct kv_seg;
struct kv_victim;
struct kvdb;

/*
 * A scan is about to read a value of so many bytes from @s. @is_place: the device goes there for
 * it alone.
 */
void kv_heat_note(struct kv_seg *s, bool is_place, uint32_t bytes);
/* What is noted of all segments, bytes; @halve: and half of it is forgotten. */
uint64_t kv_heat_sum(struct kvdb *db, bool halve);
/* With less than that noted nothing is chosen; @keys: as for kv_heat_choose(). */
uint64_t kv_heat_least(uint64_t keys);
/*
 * kv_heat_choose - which segments to put in order; pure
 * @v: candidates; sorted, the chosen first
 * @keys: bytes of keys that the job has to read and to write
 * @room: bytes that may be written
 * Returns how many were chosen, as many as can be: scans have paid for them and for the keys.
 */
unsigned kv_heat_choose(struct kv_victim *v, unsigned n, uint64_t keys, uint64_t room);

#endif
