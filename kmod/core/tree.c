/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A treap: binary search tree by key, heap by random priority. See tree.h.
 */
#include "tree.h"

void mp_tree_init(struct mp_tree *t)
{
	t->t_root = NULL;
	/* for balance alone: without random bytes any number does */
	if (os_random(&t->t_rand, sizeof(t->t_rand)))
		t->t_rand = (unsigned long)t;
	t->t_rand |= 1;
}

static struct mp_node **link_of(struct mp_tree *t, struct mp_node *n)
{
	if (!n->n_up)
		return &t->t_root;
	return n->n_up->n_left == n ? &n->n_up->n_left : &n->n_up->n_right;
}

/* @n takes the place of its parent, which becomes its child */
static void rotate_up(struct mp_tree *t, struct mp_node *n)
{
	struct mp_node *p = n->n_up, **l = link_of(t, p), *moved;

	os_assert(p->n_left == n || p->n_right == n);
	if (p->n_left == n) {
		moved = n->n_right;
		p->n_left = moved;
		n->n_right = p;
	} else {
		moved = n->n_left;
		p->n_right = moved;
		n->n_left = p;
	}
	if (moved)
		moved->n_up = p;
	n->n_up = p->n_up;
	p->n_up = n;
	*l = n;
}

void mp_tree_insert(struct mp_tree *t, struct mp_node *n, u64 key)
{
	struct mp_node **l = &t->t_root, *up = NULL;

	while (*l) {
		up = *l;
		os_assert(up->n_key != key);
		l = key < up->n_key ? &up->n_left : &up->n_right;
	}
	t->t_rand ^= t->t_rand << 13;
	t->t_rand ^= t->t_rand >> 7;
	t->t_rand ^= t->t_rand << 17;
	n->n_key = key;
	n->n_prio = (u32)(t->t_rand >> 32);
	n->n_left = NULL;
	n->n_right = NULL;
	n->n_up = up;
	*l = n;
	while (n->n_up && n->n_up->n_prio < n->n_prio)
		rotate_up(t, n);
}

void mp_tree_erase(struct mp_tree *t, struct mp_node *n)
{
	struct mp_node *c;

	os_assert(*link_of(t, n) == n);
	while (n->n_left && n->n_right)
		rotate_up(t, n->n_left->n_prio > n->n_right->n_prio ? n->n_left : n->n_right);
	c = n->n_left ? n->n_left : n->n_right;
	*link_of(t, n) = c;
	if (c)
		c->n_up = n->n_up;
	n->n_up = NULL;
}

struct mp_node *mp_tree_ceil(const struct mp_tree *t, u64 key)
{
	struct mp_node *n = t->t_root, *best = NULL;

	while (n) {
		if (n->n_key < key) {
			n = n->n_right;
		} else {
			best = n;
			n = n->n_left;
		}
	}
	return best;
}

struct mp_node *mp_tree_floor(const struct mp_tree *t, u64 key)
{
	struct mp_node *n = t->t_root, *best = NULL;

	while (n) {
		if (n->n_key > key) {
			n = n->n_left;
		} else {
			best = n;
			n = n->n_right;
		}
	}
	return best;
}

struct mp_node *mp_tree_find(const struct mp_tree *t, u64 key)
{
	struct mp_node *n = mp_tree_ceil(t, key);

	return n && n->n_key == key ? n : NULL;
}

struct mp_node *mp_tree_first(const struct mp_tree *t)
{
	return mp_tree_ceil(t, 0);
}

struct mp_node *mp_tree_next(const struct mp_node *n)
{
	struct mp_node *up;

	if (n->n_right) {
		n = n->n_right;
		while (n->n_left)
			n = n->n_left;
		return (struct mp_node *)n;
	}
	for (up = n->n_up; up && up->n_right == n; up = up->n_up)
		n = up;
	return up;
}

struct mp_node *mp_tree_take(struct mp_tree *t)
{
	struct mp_node *n = t->t_root;

	if (!n)
		return NULL;
	while (n->n_left || n->n_right)
		n = n->n_left ? n->n_left : n->n_right;
	*link_of(t, n) = NULL;
	/* the next leaf is below its parent, or that one */
	t->t_root = n->n_up;
	return n;
}
