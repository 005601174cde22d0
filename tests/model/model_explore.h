/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every state that can be reached, each once and the nearest first; and the shortest schedule that
 * leads to one that is wrong.
 */
#ifndef TESTS_MODEL_EXPLORE_H
#define TESTS_MODEL_EXPLORE_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "model_tree.h"

/* ---- exploration ---------------------------------------------------------------- */

struct node {
	uint64_t hash;
	uint32_t parent;
	uint16_t choice;	/* which of its parent's successors */
};

static struct node *node;
static uint64_t *table;	/* hashes, 0 = free; a power of two of them */
static size_t nnode, table_size;
static struct state *layer[2];	/* this depth and the next */
static size_t nlayer[2], layer_cap[2];
static size_t layer_first;	/* node of the first state of this depth */
static uint32_t cur_node;
static unsigned cur_choice, wanted_choice;
static bool is_told, is_full;
static struct state told;
static char told_act[48], act[48];
static const char *violation;

static void layer_add(const struct state *s)
{
	if (nlayer[1] == layer_cap[1]) {
		layer_cap[1] = layer_cap[1] ? layer_cap[1] * 2 : 1024;
		layer[1] = realloc(layer[1], layer_cap[1] * sizeof(*s));
		if (!layer[1])
			abort();
	}
	layer[1][nlayer[1]++] = *s;
}

/* From small on: most runs end after some ten thousand states, and these stay in the cache. */
static void table_grow(void)
{
	size_t n = table_size ? table_size * 2 : 1 << 12, i, at;
	uint64_t *t = calloc(n, sizeof(*t));

	if (!t)
		abort();
	for (i = 0; i < table_size; i++) {
		if (!table[i])
			continue;
		for (at = table[i] >> 1 & (n - 1); t[at]; at = (at + 1) & (n - 1))
			;
		t[at] = table[i];
	}
	free(table);
	table = t;
	table_size = n;
}

static bool is_new(uint64_t h)
{
	size_t at;

	if (2 * nnode >= table_size)
		table_grow();
	for (at = h >> 1 & (table_size - 1); table[at]; at = (at + 1) & (table_size - 1))
		if (table[at] == h)
			return false;
	table[at] = h;
	return true;
}

static void emit(const struct state *s)
{
	uint64_t h;

	if (is_told) {
		/* a schedule is told: only the wanted successor counts */
		if (cur_choice++ == wanted_choice) {
			told = *s;
			strcpy(told_act, act);
		}
		return;
	}
	cur_choice++;
	if (violation || is_full)
		return;
	h = XXH3_64bits(s, sizeof(*s)) | 1;
	if (!is_new(h))
		return;
	if (nnode == bound.max_states) {
		is_full = true;
		return;
	}
	node[nnode] = (struct node){ h, cur_node, (uint16_t)(cur_choice - 1) };
	nnode++;
	layer_add(s);
	violation = check(s);
}

/* the next act, for the report */
static void name_act(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void name_act(const char *fmt, ...)
{
	va_list ap;

	if (!is_told)
		return;
	va_start(ap, fmt);
	vsnprintf(act, sizeof(act), fmt, ap);
	va_end(ap);
}

/* Calls emit() with each state that may follow. */
static void successors(const struct state *s);

/* ---- telling ------------------------------------------------------------------------ */

static void tell_entries(const char *name, const ent *e, unsigned n)
{
	unsigned i;

	printf(" %s[", name);
	for (i = 0; i < n; i++) {
		if (!e[i])
			continue;
		printf("%s%c%c%u", i ? " " : "", "?aabb**aa"[E_KIND(e[i]) < PREFIX ?
		       1 + 2 * E_KEY(e[i]) : E_KIND(e[i]) == PREFIX ? 5 : 7],
		       "?+-PR"[E_KIND(e[i])], E_SEQ(e[i]));
		if (E_KIND(e[i]) == PUT)
			printf(":V%u", E_BLK(e[i]));
	}
	printf("]");
}

static void tell_state(const struct state *s)
{
	unsigned i;

	printf("#   %-32s", told_act);
	tell_entries("mem", s->now.mem[0], MEM_ENT);
	if (s->now.has_frozen)
		tell_entries("frozen", s->now.mem[1], MEM_ENT);
	for (i = 0; i < s->now.runs.n; i++)
		tell_entries(s->now.runs.part[i] ? "leaf" : "run", s->now.runs.r[i], RUN_ENT);
	for (i = 0; i < s->media.n; i++)
		tell_entries("media", s->media.r[i], RUN_ENT);
	printf(" synced %u horizon %u\n", s->synced, s->horizon);
}

static void start_state(struct state *s)
{
	memset(s, 0, sizeof(*s));
	s->seq = 1;
	s->cur = 1;
	s->nblk = 2;
}

/* The shortest schedule that leads to a node, by going there again. */
static void tell(uint32_t to)
{
	uint32_t path[400];
	unsigned n = 0;
	struct state s;

	for (; to; to = node[to].parent)
		path[n++] = to;
	start_state(&s);
	is_told = true;
	while (n--) {
		wanted_choice = node[path[n]].choice;
		successors(&s);
		s = told;
		tell_state(&s);
	}
	is_told = false;
}

/* Explores; what was found is told. Returns why a state is wrong, or NULL. */
static const char *explore(void)
{
	struct state s;
	size_t i;

	nnode = nlayer[0] = nlayer[1] = layer_first = 0;
	violation = NULL;
	is_full = false;
	node = calloc(bound.max_states, sizeof(*node));
	if (!node)
		abort();
	start_state(&s);
	cur_node = 0;
	emit(&s);
	while (nlayer[1] && !violation && !is_full) {
		struct state *l = layer[0];
		size_t cap = layer_cap[0];

		layer[0] = layer[1];
		layer_cap[0] = layer_cap[1];
		nlayer[0] = nlayer[1];
		layer[1] = l;
		layer_cap[1] = cap;
		nlayer[1] = 0;
		layer_first = nnode - nlayer[0];
		for (i = 0; i < nlayer[0] && !violation && !is_full; i++) {
			cur_node = (uint32_t)(layer_first + i);
			successors(&layer[0][i]);
		}
	}
	return violation;
}

static void explore_end(void)
{
	unsigned i;

	free(node);
	free(table);
	table = NULL;
	table_size = 0;
	for (i = 0; i < 2; i++) {
		free(layer[i]);
		layer[i] = NULL;
		layer_cap[i] = nlayer[i] = 0;
	}
}

#endif
