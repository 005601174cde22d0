/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The check of a history: reads one by one, then cycles by Tarjan's strongly
 * connected components of four graphs over the committed transactions: ww; ww
 * and wr; all; and pairs (transaction, "arrived by rw"), in which no rw leaves a
 * pair that was arrived at by rw: a cycle there is one that snapshot isolation
 * forbids. See hist.h.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hist.h"

#define NO_OP	UINT32_MAX

enum edge_type { E_WW, E_WR, E_RW };

struct edge {
	uint32_t e_from, e_to;
	enum edge_type e_type;
};

struct check {
	const struct hist *c_h;
	struct hist_verdict *c_out;
	uint32_t *c_succ;	/* per operation: the write that replaced this one's version */
	uint32_t *c_succ0;	/* per key: the write that replaced the first version */
	uint32_t *c_pos;	/* per operation: place in its key's order, from 1 */
	uint64_t *c_end_min;	/* per operation: first end of it and all newer versions */
	struct edge *c_edge;
	uint32_t c_nedge, c_cap;
	uint32_t *c_skip;	/* component in which a cycle was named before, by transaction */
};

/* ---- building a history ---- */

static void *grow(void *p, uint32_t *cap, size_t size)
{
	*cap = *cap ? *cap * 2 : 64;
	p = realloc(p, *cap * size);
	if (!p)
		abort();
	return p;
}

static void *zeroes(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		abort();
	return p;
}

void hist_init(struct hist *h, uint32_t keys)
{
	memset(h, 0, sizeof(*h));
	h->hi_keys = keys;
	h->hi_txn = grow(NULL, &h->hi_cap, sizeof(*h->hi_txn));
	h->hi_txn[0] = (struct hist_txn){ .ht_state = HIST_COMMITTED };
}

void hist_fini(struct hist *h)
{
	free(h->hi_txn);
	free(h->hi_op);
	memset(h, 0, sizeof(*h));
}

uint32_t hist_begin(struct hist *h, uint64_t begin)
{
	if (h->hi_n + 1 == h->hi_cap)
		h->hi_txn = grow(h->hi_txn, &h->hi_cap, sizeof(*h->hi_txn));
	h->hi_txn[++h->hi_n] = (struct hist_txn){ .ht_first = h->hi_nop, .ht_begin = begin };
	return h->hi_n;
}

uint32_t hist_reserve(struct hist *h)
{
	return hist_begin(h, 0);
}

void hist_fill(struct hist *h, uint32_t no, const struct hist_op *op, uint32_t n, uint64_t begin,
	       enum hist_state state, uint64_t end)
{
	uint32_t i;

	h->hi_txn[no] = (struct hist_txn){ .ht_first = h->hi_nop, .ht_n = n, .ht_state = state,
					   .ht_begin = begin, .ht_end = end };
	for (i = 0; i < n; i++) {
		if (h->hi_nop == h->hi_op_cap)
			h->hi_op = grow(h->hi_op, &h->hi_op_cap, sizeof(*h->hi_op));
		h->hi_op[h->hi_nop++] = op[i];
	}
}

static struct hist_op *op_add(struct hist *h, uint32_t key)
{
	if (h->hi_nop == h->hi_op_cap)
		h->hi_op = grow(h->hi_op, &h->hi_op_cap, sizeof(*h->hi_op));
	h->hi_txn[h->hi_n].ht_n++;
	h->hi_op[h->hi_nop] = (struct hist_op){ .ho_key = key };
	return &h->hi_op[h->hi_nop++];
}

void hist_read(struct hist *h, uint32_t key, hist_ver ver)
{
	op_add(h, key)->ho_ver = ver;
}

hist_ver hist_write(struct hist *h, uint32_t key, hist_ver prev)
{
	const struct hist_txn *t = &h->hi_txn[h->hi_n];
	struct hist_op *op;
	uint32_t i, n = 1;

	for (i = 0; i < t->ht_n; i++)
		n += h->hi_op[t->ht_first + i].ho_is_write;
	op = op_add(h, key);
	op->ho_is_write = true;
	op->ho_ver = HIST_VER(h->hi_n, n);
	op->ho_prev = prev;
	return op->ho_ver;
}

void hist_end(struct hist *h, enum hist_state state, uint64_t end)
{
	h->hi_txn[h->hi_n].ht_state = state;
	h->hi_txn[h->hi_n].ht_end = end;
}

/* ---- names ---- */

static const char *const bit_name[HB_BITS] = {
	"own write or earlier read not seen", "G1a aborted read", "G1b intermediate read",
	"G0 write cycle", "G1c circular information flow", "lost update", "fractured read",
	"G-single read skew", "G-SI with several rw", "stale view", "version of nobody",
	"write skew",
};

const char *hist_names(unsigned bits, char *buf, unsigned size)
{
	unsigned i, n = 0;

	buf[0] = '\0';
	for (i = 0; i < HB_BITS; i++)
		if (bits >> i & 1)
			n += (unsigned)snprintf(buf + n, n < size ? size - n : 0, "%s%s",
						n ? ", " : "", bit_name[i]);
	return n ? buf : "none";
}

/* Operations of a transaction, for a person. */
static void describe(const struct hist *h, uint32_t t, char *buf, size_t size)
{
	const struct hist_txn *x = &h->hi_txn[t];
	size_t n = (size_t)snprintf(buf, size, " %u:", t);
	uint32_t i;

	for (i = 0; i < x->ht_n && n < size; i++) {
		const struct hist_op *op = &h->hi_op[x->ht_first + i];
		hist_ver v = op->ho_is_write ? op->ho_prev : op->ho_ver;

		n += (size_t)snprintf(buf + n, size - n, " %s%u%s%llu", op->ho_is_write ? "w" : "r",
				      op->ho_key, op->ho_is_write ? "<" : "=",
				      (unsigned long long)v >> 8);
	}
}

static void found(struct check *c, enum hist_bit bit, uint32_t a, uint32_t b)
{
	struct hist_verdict *out = c->c_out;
	char buf[80];
	size_t n;

	if (!(out->hv_bits & ~(unsigned)HB_SKEW) && bit != HB_SKEW) {
		n = (size_t)snprintf(out->hv_why, sizeof(out->hv_why), "%s:",
				     hist_names(bit, buf, sizeof(buf)));
		describe(c->c_h, a, out->hv_why + n, sizeof(out->hv_why) - n);
		n = strlen(out->hv_why);
		describe(c->c_h, b, out->hv_why + n, sizeof(out->hv_why) - n);
	}
	out->hv_bits |= bit;
}

/* ---- versions ---- */

static uint32_t writer_of(hist_ver v)
{
	return (uint32_t)(v >> 8);
}

static bool is_committed(const struct check *c, uint32_t t)
{
	return c->c_h->hi_txn[t].ht_state == HIST_COMMITTED;
}

/* The last write of a transaction to a key, or NO_OP. */
static uint32_t final_write(const struct hist *h, uint32_t t, uint32_t key)
{
	const struct hist_txn *x = &h->hi_txn[t];
	uint32_t i;

	for (i = x->ht_n; i--;) {
		const struct hist_op *op = &h->hi_op[x->ht_first + i];

		if (op->ho_is_write && op->ho_key == key)
			return x->ht_first + i;
	}
	return NO_OP;
}

static bool has_version(const struct hist *h, hist_ver v, uint32_t key)
{
	uint32_t t = writer_of(v), i;

	if (!v)
		return true;
	if (t > h->hi_n || !t)
		return false;
	for (i = 0; i < h->hi_txn[t].ht_n; i++) {
		const struct hist_op *op = &h->hi_op[h->hi_txn[t].ht_first + i];

		if (op->ho_is_write && op->ho_key == key && op->ho_ver == v)
			return true;
	}
	return false;
}

/* A version that came from outside: was it committed, and the last of its writer? */
static bool outside_check(struct check *c, uint32_t t, uint32_t key, hist_ver v)
{
	const struct hist *h = c->c_h;
	uint32_t w = writer_of(v);

	if (!v)
		return true;
	if (!has_version(h, v, key)) {
		found(c, HB_PHANTOM, t, 0);
		return false;
	}
	if (!is_committed(c, w)) {
		found(c, HB_G1A, t, w);
		return false;
	}
	if (h->hi_op[final_write(h, w, key)].ho_ver != v)
		found(c, HB_G1B, t, w);
	return true;
}

/* What the transaction itself knows of the key before operation @i: its write or its read. */
static const struct hist_op *known_before(const struct hist *h, const struct hist_txn *x,
					  uint32_t i)
{
	uint32_t key = h->hi_op[x->ht_first + i].ho_key;

	while (i--)
		if (h->hi_op[x->ht_first + i].ho_key == key)
			return &h->hi_op[x->ht_first + i];
	return NULL;
}

static void reads_check(struct check *c, uint32_t t)
{
	const struct hist *h = c->c_h;
	const struct hist_txn *x = &h->hi_txn[t];
	uint32_t i;

	for (i = 0; i < x->ht_n; i++) {
		const struct hist_op *op = &h->hi_op[x->ht_first + i];
		const struct hist_op *known = known_before(h, x, i);

		if (!op->ho_is_write && known && known->ho_ver != op->ho_ver)
			found(c, HB_INTERNAL, t, writer_of(op->ho_ver));
		if (!op->ho_is_write && writer_of(op->ho_ver) != t)
			outside_check(c, t, op->ho_key, op->ho_ver);
	}
}

/* What the first write of a key in a transaction replaced. */
static hist_ver outer_prev(const struct hist *h, uint32_t t, uint32_t key)
{
	const struct hist_txn *x = &h->hi_txn[t];
	uint32_t i;

	for (i = 0; i < x->ht_n; i++) {
		const struct hist_op *op = &h->hi_op[x->ht_first + i];

		if (op->ho_is_write && op->ho_key == key)
			return op->ho_prev;
	}
	return 0;
}

static uint32_t *succ_of(struct check *c, uint32_t key, hist_ver v)
{
	return v ? &c->c_succ[final_write(c->c_h, writer_of(v), key)] : &c->c_succ0[key];
}

static uint32_t txn_of(const struct check *c, uint32_t op)
{
	return writer_of(c->c_h->hi_op[op].ho_ver);
}

/* Links a transaction's last write of each key behind what it replaced. */
static void order_link(struct check *c, uint32_t t)
{
	const struct hist *h = c->c_h;
	const struct hist_txn *x = &h->hi_txn[t];
	uint32_t i;

	for (i = 0; i < x->ht_n; i++) {
		const struct hist_op *op = &h->hi_op[x->ht_first + i];
		uint32_t *succ;
		hist_ver prev;

		if (!op->ho_is_write || final_write(h, t, op->ho_key) != x->ht_first + i)
			continue;
		prev = outer_prev(h, t, op->ho_key);
		if (!outside_check(c, t, op->ho_key, prev) || writer_of(prev) == t)
			continue;
		succ = succ_of(c, op->ho_key, prev);
		if (*succ != NO_OP)
			found(c, HB_LOST, t, txn_of(c, *succ));
		else
			*succ = x->ht_first + i;
	}
}

static void order_number(struct check *c)
{
	const struct hist *h = c->c_h;
	uint32_t *chain = zeroes(h->hi_nop + 1u, sizeof(*chain)), k, o, n;
	uint64_t least;

	for (k = 0; k < h->hi_keys; k++) {
		n = 0;
		for (o = c->c_succ0[k]; o != NO_OP && !c->c_pos[o]; o = c->c_succ[o]) {
			c->c_pos[o] = n + 1;
			chain[n++] = o;
		}
		least = UINT64_MAX;
		while (n--) {
			uint64_t end = h->hi_txn[txn_of(c, chain[n])].ht_end;

			if (end && end < least)
				least = end;
			c->c_end_min[chain[n]] = least;
		}
	}
	free(chain);
}

/* ---- edges ---- */

static void edge_add(struct check *c, uint32_t from, uint32_t to, enum edge_type type)
{
	if (from == to || !from || !to)
		return;
	if (c->c_nedge == c->c_cap)
		c->c_edge = grow(c->c_edge, &c->c_cap, sizeof(*c->c_edge));
	c->c_edge[c->c_nedge++] = (struct edge){ from, to, type };
}

static void read_edges(struct check *c, uint32_t t, const struct hist_op *op)
{
	const struct hist_txn *x = &c->c_h->hi_txn[t];
	uint32_t w = writer_of(op->ho_ver), next;

	if (w == t || !has_version(c->c_h, op->ho_ver, op->ho_key) || !is_committed(c, w))
		return;
	edge_add(c, w, t, E_WR);
	next = *succ_of(c, op->ho_key, op->ho_ver);
	if (next == NO_OP)
		return;
	edge_add(c, t, txn_of(c, next), E_RW);
	if (x->ht_begin && txn_of(c, next) != t && c->c_end_min[next] < x->ht_begin)
		found(c, HB_STALE, t, txn_of(c, next));
}

/* Reads of one transaction: did it see all that another wrote, or nothing? */
static void fractured_check(struct check *c, uint32_t t)
{
	const struct hist *h = c->c_h;
	const struct hist_txn *x = &h->hi_txn[t];
	uint32_t i, k;

	for (i = 0; i < x->ht_n; i++) {
		const struct hist_op *a = &h->hi_op[x->ht_first + i];
		uint32_t w = writer_of(a->ho_ver);

		if (a->ho_is_write || w == t || !w || w > h->hi_n || !is_committed(c, w))
			continue;
		for (k = 0; k < x->ht_n; k++) {
			const struct hist_op *b = &h->hi_op[x->ht_first + k];
			uint32_t v = writer_of(b->ho_ver), o, p;

			if (b->ho_is_write || b->ho_key == a->ho_key || v == t || v > h->hi_n)
				continue;
			o = final_write(h, w, b->ho_key);
			p = v ? final_write(h, v, b->ho_key) : NO_OP;
			if (o == NO_OP || !c->c_pos[o] || (v && (p == NO_OP || !c->c_pos[p])))
				continue;
			if ((v ? c->c_pos[p] : 0) < c->c_pos[o])
				found(c, HB_FRACTURED, t, w);
		}
	}
}

static void edges_make(struct check *c, uint32_t t)
{
	const struct hist *h = c->c_h;
	const struct hist_txn *x = &h->hi_txn[t];
	uint32_t i;

	for (i = 0; i < x->ht_n; i++) {
		const struct hist_op *op = &h->hi_op[x->ht_first + i];
		hist_ver prev = op->ho_prev;

		if (!op->ho_is_write)
			read_edges(c, t, op);
		else if (writer_of(prev) != t && has_version(h, prev, op->ho_key) &&
			 is_committed(c, writer_of(prev)))
			edge_add(c, writer_of(prev), t, E_WW);
	}
}

/* ---- components ---- */

struct graph {
	uint32_t g_n;
	uint32_t *g_off, *g_to;
	uint32_t *g_comp;	/* per node, from 1; 0 for nodes that are a component alone */
	uint32_t g_ncomp;
};

static void graph_edge(struct graph *g, uint32_t from, uint32_t to, bool is_count)
{
	if (is_count)
		g->g_off[from + 1]++;
	else
		g->g_to[g->g_off[from]++] = to;
}

/* @types: which edges; @pairs: nodes 2 t and 2 t + 1, see the head of this file */
static void graph_edges(struct graph *g, const struct check *c, unsigned types, bool pairs,
			bool is_count)
{
	uint32_t i;

	for (i = 0; i < c->c_nedge; i++) {
		const struct edge *e = &c->c_edge[i];

		if (!(types >> e->e_type & 1))
			continue;
		if (!pairs) {
			graph_edge(g, e->e_from, e->e_to, is_count);
		} else if (e->e_type == E_RW) {
			graph_edge(g, 2 * e->e_from, 2 * e->e_to + 1, is_count);
		} else {
			graph_edge(g, 2 * e->e_from, 2 * e->e_to, is_count);
			graph_edge(g, 2 * e->e_from + 1, 2 * e->e_to, is_count);
		}
	}
}

struct frame {
	uint32_t f_node, f_next;
};

/* Tarjan's algorithm, with a stack of its own instead of recursion. */
static void tarjan(struct graph *g, uint32_t root, uint32_t *index, uint32_t *low,
		   uint32_t *stack, uint32_t *nstack, struct frame *call, uint32_t *count)
{
	uint32_t depth = 0;
	bool is_alone;

	call[depth++] = (struct frame){ root, g->g_off[root] };
	while (depth) {
		struct frame *f = &call[depth - 1];
		uint32_t v = f->f_node, w;

		if (f->f_next == g->g_off[v] && !index[v]) {
			index[v] = low[v] = ++*count;
			stack[(*nstack)++] = v;
		}
		if (f->f_next < g->g_off[v + 1]) {
			w = g->g_to[f->f_next++];
			if (!index[w])
				call[depth++] = (struct frame){ w, g->g_off[w] };
			else if (low[w] != UINT32_MAX && index[w] < low[v])
				low[v] = index[w];
			continue;
		}
		depth--;
		if (depth && low[v] < low[call[depth - 1].f_node])
			low[call[depth - 1].f_node] = low[v];
		if (low[v] != index[v])
			continue;
		is_alone = stack[*nstack - 1] == v;
		g->g_ncomp += !is_alone;
		do {
			w = stack[--*nstack];
			g->g_comp[w] = is_alone ? 0 : g->g_ncomp;
			/* a component is done: its nodes count no more */
			low[w] = UINT32_MAX;
		} while (w != v);
	}
}

static void graph_make(struct graph *g, const struct check *c, unsigned types, bool pairs)
{
	uint32_t n = (c->c_h->hi_n + 1) * (pairs ? 2 : 1), i, nstack = 0, count = 0;
	uint32_t *index, *low, *stack;
	struct frame *call;

	memset(g, 0, sizeof(*g));
	g->g_n = n;
	g->g_off = zeroes(n + 2u, sizeof(*g->g_off));
	graph_edges(g, c, types, pairs, true);
	for (i = 0; i < n; i++)
		g->g_off[i + 1] += g->g_off[i];
	g->g_to = zeroes(g->g_off[n], sizeof(*g->g_to));
	graph_edges(g, c, types, pairs, false);
	/* filling moved every offset to the next node's */
	memmove(g->g_off + 1, g->g_off, n * sizeof(*g->g_off));
	g->g_off[0] = 0;
	g->g_comp = zeroes(n, sizeof(*g->g_comp));
	index = zeroes(n, sizeof(*index));
	low = zeroes(n, sizeof(*low));
	stack = zeroes(n, sizeof(*stack));
	call = zeroes(n + 1u, sizeof(*call));
	for (i = 0; i < n; i++)
		if (!index[i])
			tarjan(g, i, index, low, stack, &nstack, call, &count);
	free(index);
	free(low);
	free(stack);
	free(call);
}

static void graph_free(struct graph *g)
{
	free(g->g_off);
	free(g->g_to);
	free(g->g_comp);
}

/* ---- cycles ---- */

/* Cycles of ww, or of ww and wr; what an earlier graph had named is passed over. */
static void plain_cycles(struct check *c, unsigned types, enum hist_bit bit)
{
	uint32_t t, last = 0;
	struct graph g;
	bool *old;

	graph_make(&g, c, types, false);
	old = zeroes(g.g_ncomp + 1u, sizeof(*old));
	for (t = 1; t < g.g_n; t++)
		if (g.g_comp[t] && c->c_skip[t])
			old[g.g_comp[t]] = true;
	for (t = 1; t < g.g_n; t++) {
		if (!g.g_comp[t])
			continue;
		if (!old[g.g_comp[t]]) {
			if (last && g.g_comp[last] == g.g_comp[t])
				found(c, bit, last, t);
			last = t;
		}
	}
	if (bit == HB_SKEW) {
		for (t = 1; t <= g.g_ncomp; t++)
			c->c_out->hv_skews += !old[t];
		if (c->c_out->hv_skews)
			found(c, bit, 0, 0);
	} else if (last) {
		found(c, bit, last, 0);
	}
	for (t = 1; t < g.g_n; t++)
		c->c_skip[t] |= g.g_comp[t] != 0;
	free(old);
	graph_free(&g);
}

/* Is there a way from @from to @to by ww and wr? @seen: scratch, stamped with @stamp. */
static bool reaches(const struct graph *d, uint32_t from, uint32_t to, uint32_t *seen,
		    uint32_t stamp, uint32_t *queue)
{
	uint32_t head = 0, tail = 0, i;

	queue[tail++] = from;
	seen[from] = stamp;
	while (head < tail) {
		uint32_t v = queue[head++];

		if (v == to)
			return true;
		for (i = d->g_off[v]; i < d->g_off[v + 1]; i++) {
			if (seen[d->g_to[i]] == stamp)
				continue;
			seen[d->g_to[i]] = stamp;
			queue[tail++] = d->g_to[i];
		}
	}
	return false;
}

/* Cycles in which no rw follows another. */
static void snapshot_cycles(struct check *c)
{
	uint32_t i, n = c->c_h->hi_n + 1, stamp = 0, tries = 0;
	uint32_t *seen = zeroes(n, sizeof(*seen)), *queue = zeroes(n, sizeof(*queue));
	bool *done, *here;
	struct graph g, d;

	graph_make(&g, c, 1u << E_WW | 1u << E_WR | 1u << E_RW, true);
	graph_make(&d, c, 1u << E_WW | 1u << E_WR, false);
	done = zeroes(g.g_ncomp + 1u, sizeof(*done));
	here = zeroes(g.g_ncomp + 1u, sizeof(*here));
	for (i = 2; i < g.g_n; i++)
		if (g.g_comp[i] && c->c_skip[i / 2])
			done[g.g_comp[i]] = true;
	for (i = 0; i < c->c_nedge && tries < 1000; i++) {
		const struct edge *e = &c->c_edge[i];
		uint32_t comp = g.g_comp[2 * e->e_from];

		if (e->e_type != E_RW || !comp || done[comp] || comp != g.g_comp[2 * e->e_to + 1])
			continue;
		here[comp] = true;
		tries++;
		if (!reaches(&d, e->e_to, e->e_from, seen, ++stamp, queue))
			continue;
		found(c, HB_SINGLE, e->e_from, e->e_to);
		done[comp] = true;
	}
	for (i = 0; i < c->c_nedge; i++) {
		const struct edge *e = &c->c_edge[i];
		uint32_t comp = g.g_comp[2 * e->e_from];

		if (comp && here[comp] && !done[comp]) {
			found(c, HB_NONADJACENT, e->e_from, e->e_to);
			done[comp] = true;
		}
	}
	for (i = 2; i < g.g_n; i++)
		c->c_skip[i / 2] |= g.g_comp[i] != 0;
	free(seen);
	free(queue);
	free(done);
	free(here);
	graph_free(&g);
	graph_free(&d);
}

void hist_check(const struct hist *h, struct hist_verdict *out)
{
	struct check c = { .c_h = h, .c_out = out };
	uint32_t t, i;

	memset(out, 0, sizeof(*out));
	c.c_succ = zeroes(h->hi_nop, sizeof(*c.c_succ));
	c.c_succ0 = zeroes(h->hi_keys, sizeof(*c.c_succ0));
	c.c_pos = zeroes(h->hi_nop, sizeof(*c.c_pos));
	c.c_end_min = zeroes(h->hi_nop, sizeof(*c.c_end_min));
	c.c_skip = zeroes(h->hi_n + 1u, sizeof(*c.c_skip));
	memset(c.c_succ, 0xff, h->hi_nop * sizeof(*c.c_succ));
	memset(c.c_succ0, 0xff, h->hi_keys * sizeof(*c.c_succ0));
	for (t = 1; t <= h->hi_n; t++)
		if (is_committed(&c, t))
			reads_check(&c, t);
	for (t = 1; t <= h->hi_n; t++)
		if (is_committed(&c, t))
			order_link(&c, t);
	order_number(&c);
	for (t = 1; t <= h->hi_n; t++) {
		if (!is_committed(&c, t))
			continue;
		edges_make(&c, t);
		fractured_check(&c, t);
	}
	for (i = 0; i < c.c_nedge; i++) {
		out->hv_ww += c.c_edge[i].e_type == E_WW;
		out->hv_wr += c.c_edge[i].e_type == E_WR;
		out->hv_rw += c.c_edge[i].e_type == E_RW;
	}
	plain_cycles(&c, 1u << E_WW, HB_G0);
	plain_cycles(&c, 1u << E_WW | 1u << E_WR, HB_G1C);
	snapshot_cycles(&c);
	plain_cycles(&c, 1u << E_WW | 1u << E_WR | 1u << E_RW, HB_SKEW);
	free(c.c_succ);
	free(c.c_succ0);
	free(c.c_pos);
	free(c.c_end_min);
	free(c.c_skip);
	free(c.c_edge);
}
