/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A search tree ordered by a 64-bit key: embedded nodes, logarithmic time,
 * iterative, no allocation. Heap priorities are random and not taken from the
 * media, so no image can make it degenerate. The owner's lock guards it.
 */
#ifndef MP_CORE_TREE_H
#define MP_CORE_TREE_H

#include "os.h"

struct mp_node {
	u64 n_key;
	struct mp_node *n_left, *n_right, *n_up;
	u32 n_prio;
};

struct mp_tree {
	struct mp_node *t_root;
	u64 t_rand;
};

void mp_tree_init(struct mp_tree *t);
/* the key must not be there yet */
void mp_tree_insert(struct mp_tree *t, struct mp_node *n, u64 key);
void mp_tree_erase(struct mp_tree *t, struct mp_node *n);
struct mp_node *mp_tree_find(const struct mp_tree *t, u64 key);
/* the node with the smallest key >= @key */
struct mp_node *mp_tree_ceil(const struct mp_tree *t, u64 key);
/* the node with the largest key <= @key */
struct mp_node *mp_tree_floor(const struct mp_tree *t, u64 key);
struct mp_node *mp_tree_first(const struct mp_tree *t);
struct mp_node *mp_tree_next(const struct mp_node *n);
/*
 * For the end of a tree, whose nodes are freed one by one: the next one, in no order, or NULL.
 * All of them take linear time. Until then nothing else may be done with it.
 */
struct mp_node *mp_tree_take(struct mp_tree *t);

#endif
