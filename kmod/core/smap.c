/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Free extents, in a tree by address (for joining neighbours) and in lists by
 * power of two (for finding a fit in constant time).
 *
 * Free space has three states; a fourth is not free yet, where a device failed a write. Extents
 * waiting for discard and the stock of log-size extents are free space all the same: an allocation
 * simply takes them. Neighbours join only in the same state. Every live extent owns one
 * spare node, so giving space back never needs memory.
 * All functions run under pool->p_lock and do no I/O.
 */
#include "smap.h"
#include "guard.h"

#define SCAN_MAX	32	/* entries looked at where a fit is not certain */
#define TRIM_MAX	1024	/* extents that leave the stock at once */

static u32 bucket_of(u64 count)
{
	os_assert(count);
	return (u32)min_t(int, fls64(count), MP_BUCKETS) - 1;
}

static void index_add(struct mp_smap *s, struct mp_free *f)
{
	u32 b = bucket_of(f->f_count);

	list_add(&f->f_list, &s->s_bucket[f->f_state][b]);
	s->s_map[f->f_state] |= 1ull << b;
	s->s_free[f->f_state] += f->f_count;
}

static void index_del(struct mp_smap *s, struct mp_free *f)
{
	u32 b = bucket_of(f->f_count);

	os_assert(s->s_free[f->f_state] >= f->f_count);
	list_del_init(&f->f_list);
	if (list_empty(&s->s_bucket[f->f_state][b]))
		s->s_map[f->f_state] &= ~(1ull << b);
	s->s_free[f->f_state] -= f->f_count;
}

int mp_smap_init(struct mp_smap *s, bool has_discard)
{
	int i, k;

	memset(s, 0, sizeof(*s));
	mp_tree_init(&s->s_tree);
	INIT_LIST_HEAD(&s->s_spare);
	for (i = 0; i < MP_SPACE_LISTS; i++)
		for (k = 0; k < MP_BUCKETS; k++)
			INIT_LIST_HEAD(&s->s_bucket[i][k]);
	s->s_has_discard = has_discard;
	return 0;
}

void mp_smap_fini(struct mp_smap *s)
{
	struct mp_free *f, *tmp;
	struct mp_node *n;

	os_assert(!s->s_inflight);
	while ((n = mp_tree_take(&s->s_tree))) {
		os_free(container_of(n, struct mp_free, f_node));
		cond_resched();
	}
	list_for_each_entry_safe(f, tmp, &s->s_spare, f_list) {
		os_free(f);
		cond_resched();
	}
	INIT_LIST_HEAD(&s->s_spare);
}

u64 mp_smap_free_blocks(const struct mp_smap *s)
{
	return s->s_free[MP_SPACE_CLEAN] + s->s_free[MP_SPACE_STOCK] + s->s_free[MP_SPACE_PEND];
}

static struct mp_free *node_new(void)
{
	struct mp_free *f = os_zalloc(sizeof(*f));

	if (f)
		INIT_LIST_HEAD(&f->f_list);
	return f;
}

static int spare_add(struct mp_smap *s, bool is_call)
{
	struct mp_free *f = is_call ? os_call_zalloc_now(sizeof(*f)) : os_zalloc(sizeof(*f));

	if (!f)
		return -ENOMEM;
	list_add(&f->f_list, &s->s_spare);
	return 0;
}

static struct mp_free *spare_pop(struct mp_smap *s)
{
	struct mp_free *f;

	os_assert(!list_empty(&s->s_spare));
	f = list_first_entry(&s->s_spare, struct mp_free, f_list);
	list_del_init(&f->f_list);
	return f;
}

static void unlink_free(struct mp_smap *s, struct mp_free *f)
{
	index_del(s, f);
	mp_tree_erase(&s->s_tree, &f->f_node);
}

/* insert @f and join it with neighbours of its state; consumes @f */
static void link_free(struct mp_smap *s, struct mp_free *f, u64 start)
{
	struct mp_node *n;
	struct mp_free *o;

	n = start ? mp_tree_floor(&s->s_tree, start - 1) : NULL;
	o = n ? container_of(n, struct mp_free, f_node) : NULL;
	/* no block of it is free already */
	os_assert(!o || o->f_node.n_key + o->f_count <= start);
	if (o && o->f_state == f->f_state && o->f_node.n_key + o->f_count == start) {
		unlink_free(s, o);
		start = o->f_node.n_key;
		f->f_count += o->f_count;
		os_free(o);
	}
	n = mp_tree_ceil(&s->s_tree, start);
	o = n ? container_of(n, struct mp_free, f_node) : NULL;
	os_assert(!o || n->n_key >= start + f->f_count);
	if (o && n->n_key == start + f->f_count && o->f_state == f->f_state) {
		unlink_free(s, o);
		f->f_count += o->f_count;
		os_free(o);
	}
	mp_tree_insert(&s->s_tree, &f->f_node, start);
	index_add(s, f);
	os_assert(mp_smap_free_blocks(s) + s->s_inflight <= s->s_total);
}

struct mp_free *mp_smap_node(void)
{
	return node_new();
}

void mp_smap_extend(struct mp_smap *s, struct mp_free *f, u64 start, u64 count)
{
	f->f_count = count;
	f->f_state = MP_SPACE_CLEAN;
	s->s_total += count;
	link_free(s, f, start);
}

int mp_smap_add(struct mp_smap *s, u64 start, u64 count)
{
	struct mp_free *f;

	if (!count)
		return 0;
	f = node_new();
	if (!f)
		return -ENOMEM;
	mp_smap_extend(s, f, start, count);
	return 0;
}

/* cut [start, start + count) out of @f, which contains it; @extra: a node for a second half */
static void cut(struct mp_smap *s, struct mp_free *f, u64 start, u64 count, struct mp_free *extra)
{
	u64 head = start - f->f_node.n_key;
	u64 tail = f->f_node.n_key + f->f_count - start - count;

	os_assert(start >= f->f_node.n_key && start + count <= f->f_node.n_key + f->f_count);
	index_del(s, f);
	if (tail && head) {
		os_assert(extra);
		extra->f_count = tail;
		extra->f_state = f->f_state;
		mp_tree_insert(&s->s_tree, &extra->f_node, start + count);
		index_add(s, extra);
	}
	if (head) {
		f->f_count = head;
		index_add(s, f);
		return;
	}
	mp_tree_erase(&s->s_tree, &f->f_node);
	if (!tail) {
		os_free(f);
		return;
	}
	f->f_count = tail;
	mp_tree_insert(&s->s_tree, &f->f_node, start + count);
	index_add(s, f);
}

/* the free extent that holds block @at, or NULL */
static struct mp_free *free_at(struct mp_smap *s, u64 at)
{
	struct mp_node *n = mp_tree_floor(&s->s_tree, at);
	struct mp_free *f = n ? container_of(n, struct mp_free, f_node) : NULL;

	return f && at - n->n_key < f->f_count ? f : NULL;
}

/*
 * The range may span extents of several states: an object that was allocated
 * after a discard is replayed while the freed part still waits for its discard.
 */
int mp_smap_take(struct mp_smap *s, u64 start, u64 count)
{
	struct mp_free *f = NULL, *extra = NULL;
	u64 at = start, end = start + count;

	/* memory safety of the map itself: never switched off */
	if (!count || end < start)
		return -EUCLEAN;
	for (; at < end; at = f->f_node.n_key + f->f_count) {
		f = free_at(s, at);
		if (!f)
			return -EUCLEAN;
	}
	if (spare_add(s, false))
		return -ENOMEM;
	if (start > f->f_node.n_key && at > end) {
		extra = node_new();
		if (!extra) {
			os_free(spare_pop(s));
			return -ENOMEM;
		}
	}
	while (start < end) {
		f = free_at(s, start);
		at = min_t(u64, end, f->f_node.n_key + f->f_count);
		cut(s, f, start, at - start, extra);
		start = at;
	}
	return 0;
}

/* an extent of at least @want blocks in @state, or NULL */
static struct mp_free *find_fit(struct mp_smap *s, u32 state, u64 want)
{
	u32 sure = want > 1 ? (u32)fls64(want - 1) : 0;	/* smallest bucket where all fit */
	u64 map = sure < 64 ? s->s_map[state] >> sure << sure : 0;
	struct mp_free *f;
	u32 floor = bucket_of(want), i = 0;

	if (floor != sure || sure >= MP_BUCKETS) {
		list_for_each_entry(f, &s->s_bucket[state][floor], f_list) {
			if (f->f_count >= want)
				return f;
			if (++i == SCAN_MAX)
				break;
		}
	}
	if (!map)
		return NULL;
	return list_first_entry(&s->s_bucket[state][fls64(map & -map) - 1], struct mp_free,
				f_list);
}

/* the lowest clean extent that fits, among the first few */
static struct mp_free *find_low(struct mp_smap *s, u64 want)
{
	struct mp_node *n = mp_tree_first(&s->s_tree);
	int i;

	for (i = 0; n && i < SCAN_MAX; i++, n = mp_tree_next(n)) {
		struct mp_free *f = container_of(n, struct mp_free, f_node);

		if (f->f_state == MP_SPACE_CLEAN && f->f_count >= want)
			return f;
	}
	return NULL;
}

static struct mp_free *find_largest(struct mp_smap *s)
{
	struct mp_free *best = NULL, *f;
	int i;

	for (i = 0; i < MP_SPACE_STATES; i++) {
		if (!s->s_map[i])
			continue;
		f = list_first_entry(&s->s_bucket[i][fls64(s->s_map[i]) - 1], struct mp_free,
				     f_list);
		if (!best || f->f_count > best->f_count)
			best = f;
	}
	return best;
}

static struct mp_free *find(struct mp_smap *s, u64 want, u32 flags)
{
	static const u8 order[2][MP_SPACE_STATES] = {
		{ MP_SPACE_CLEAN, MP_SPACE_PEND, MP_SPACE_STOCK },
		{ MP_SPACE_STOCK, MP_SPACE_CLEAN, MP_SPACE_PEND },
	};
	bool is_log = flags & MP_SMAP_LOG;
	struct mp_free *f = NULL;
	int i;

	for (i = 0; i < MP_SPACE_STATES && !f; i++) {
		if (is_log && order[is_log][i] == MP_SPACE_CLEAN)
			f = find_low(s, want);
		if (!f)
			f = find_fit(s, order[is_log][i], want);
	}
	return f;
}

int mp_smap_alloc(struct mp_smap *s, u64 want, u32 flags, struct mp_extent *out, u32 max,
		  u64 *got)
{
	struct mp_free *f;
	u32 n = 0;
	u64 take;

	*got = 0;
	if (!(flags & MP_SMAP_PIECES) && want > mp_smap_free_blocks(s))
		return 0;
	while (n < max && *got < want) {
		f = find(s, want - *got, flags);
		if (!f && (flags & MP_SMAP_PIECES))
			f = find_largest(s);
		if (!f)
			break;
		if (spare_add(s, true)) {
			while (n--)
				mp_smap_put(s, out[n].ex_start, out[n].ex_count, false, true);
			*got = 0;
			return -ENOMEM;
		}
		take = min_t(u64, f->f_count, want - *got);
		take = min_t(u64, take, 0xffffffffull);
		out[n].ex_start = flags & MP_SMAP_LOG ? f->f_node.n_key :
				  f->f_node.n_key + f->f_count - take;
		out[n].ex_count = (u32)take;
		cut(s, f, out[n].ex_start, take, NULL);
		*got += take;
		n++;
	}
	if (flags & MP_SMAP_LOG)
		s->s_taken += *got;
	return (int)n;
}

void mp_smap_put(struct mp_smap *s, u64 start, u64 count, bool is_log, bool is_clean)
{
	struct mp_free *f = spare_pop(s);

	f->f_count = count;
	if (is_clean || !s->s_has_discard)
		f->f_state = MP_SPACE_CLEAN;
	else if (is_log && s->s_free[MP_SPACE_STOCK] + count <= s->s_stock_max)
		f->f_state = MP_SPACE_STOCK;
	else
		f->f_state = MP_SPACE_PEND;
	link_free(s, f, start);
}

void mp_smap_put_hurt(struct mp_smap *s, u64 start, u64 count)
{
	struct mp_free *f = spare_pop(s);

	f->f_count = count;
	f->f_state = MP_SPACE_HURT;
	link_free(s, f, start);
}

/* the largest free extent of @state, at most @max_blocks of it (0: all), out of the map; or NULL */
static struct mp_free *take_largest(struct mp_smap *s, u32 state, u64 max_blocks)
{
	struct mp_free *f, *rest;
	u64 start;

	if (!s->s_map[state])
		return NULL;
	f = list_first_entry(&s->s_bucket[state][fls64(s->s_map[state]) - 1], struct mp_free,
			     f_list);
	start = f->f_node.n_key;
	os_assert(f->f_state == state);
	unlink_free(s, f);
	if (max_blocks && f->f_count > max_blocks) {
		rest = node_new();
		if (rest) {	/* without memory the whole extent goes at once */
			rest->f_state = state;
			rest->f_count = f->f_count - max_blocks;
			f->f_count = max_blocks;
			link_free(s, rest, start + max_blocks);
		}
	}
	return f;
}

void mp_smap_trim(struct mp_smap *s, u64 keep)
{
	struct mp_free *f;
	int i;

	for (i = 0; i < TRIM_MAX && s->s_free[MP_SPACE_STOCK] > keep; i++) {
		f = take_largest(s, MP_SPACE_STOCK, s->s_free[MP_SPACE_STOCK] - keep);
		f->f_state = MP_SPACE_PEND;
		link_free(s, f, f->f_node.n_key);
	}
	s->s_taken = 0;
}

void mp_smap_hurt_end(struct mp_smap *s)
{
	struct mp_free *f;

	while ((f = take_largest(s, MP_SPACE_HURT, 0))) {
		f->f_state = s->s_has_discard ? MP_SPACE_PEND : MP_SPACE_CLEAN;
		link_free(s, f, f->f_node.n_key);
	}
}

/* the free extent that holds block @at, or the first one behind it, or NULL */
static struct mp_free *free_from(struct mp_smap *s, u64 at)
{
	struct mp_free *f = free_at(s, at);
	struct mp_node *n = f ? NULL : mp_tree_ceil(&s->s_tree, at);

	return n ? container_of(n, struct mp_free, f_node) : f;
}

void mp_smap_found(struct mp_smap *s, u64 start, u64 count)
{
	u64 at, from, to, end = start + count;
	struct mp_free *f, *part, *tail;

	for (at = start; at < end && (f = free_from(s, at)); at = to) {
		from = max_t(u64, at, f->f_node.n_key);
		to = min_t(u64, end, f->f_node.n_key + f->f_count);
		if (from >= end || f->f_state != MP_SPACE_CLEAN || !s->s_has_discard)
			continue;
		part = node_new();
		tail = node_new();
		if (!part || !tail) {
			os_free(part);
			os_free(tail);
			return;
		}
		if (from == f->f_node.n_key || to == f->f_node.n_key + f->f_count) {
			os_free(tail);
			tail = NULL;
		}
		cut(s, f, from, to - from, tail);
		part->f_count = to - from;
		part->f_state = MP_SPACE_PEND;
		link_free(s, part, from);
	}
}

struct mp_free *mp_smap_discard_begin(struct mp_smap *s, u64 max_blocks)
{
	struct mp_free *f = take_largest(s, MP_SPACE_PEND, max_blocks);

	if (f)
		s->s_inflight += f->f_count;
	return f;
}

void mp_smap_discard_end(struct mp_smap *s, struct mp_free *f)
{
	os_assert(s->s_inflight >= f->f_count && f->f_state == MP_SPACE_PEND);
	s->s_inflight -= f->f_count;
	f->f_state = MP_SPACE_CLEAN;
	link_free(s, f, f->f_node.n_key);
}
