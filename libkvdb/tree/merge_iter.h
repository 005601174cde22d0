/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* One walk over several sources. */
#ifndef KV_MERGE_ITER_H
#define KV_MERGE_ITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_ent;
struct kv_iter;
struct kv_iter_room;

/*
 * Merging iterator over @n sources, newest first: each key once, the newest
 * source wins; entries of KV_ENT_TOMB are returned when @keep_tombs. Takes
 * ownership of the sources, unless it fails.
 */
int kv_merge_iter(struct kv_iter **src, unsigned n, bool reverse, bool keep_tombs,
		  struct kv_iter **out);
/* The same, in @room as long as there is any (iter.h). */
int kv_merge_iter_in(struct kv_iter_room *room, struct kv_iter **src, unsigned n, bool reverse,
		     bool keep_tombs, struct kv_iter **out);
void kv_iters_close(struct kv_iter **src, unsigned n);
/*
 * The one place where more than a tombstone hides a key: when @hides says so of
 * its newest entry, the key is passed over. Whatever hides a version hides all
 * older ones.
 */
void kv_merge_hide(struct kv_iter *it, bool (*hides)(void *arg, const struct kv_ent *e),
		   void *arg);
/* Before the first step: the @n newest sources hide keys of the others and show none. */
void kv_merge_only_hide(struct kv_iter *it, unsigned n);
/*
 * Nothing at @end and above, in a reverse walk below it, is wanted: next() says -ENOENT when it
 * passes over an entry there; what it shows beyond may lack some. Seek next. @end stays; length 0:
 * no end.
 */
void kv_merge_until(struct kv_iter *it, const void *end, size_t len);
/*
 * The next seek goes to @key instead, which lies behind, with all sources but the @n newest:
 * these have nothing to show before it. @key stays until then.
 */
void kv_merge_skip(struct kv_iter *it, unsigned n, const void *key, size_t klen);
/*
 * From now on it moves on by @n entries, shown or passed over; then next() says -EAGAIN, and
 * goes on after another call of this.
 */
void kv_merge_rest(struct kv_iter *it, unsigned n);
/* By how many it has moved on so far. */
uint64_t kv_merge_steps(const struct kv_iter *it);

#endif
