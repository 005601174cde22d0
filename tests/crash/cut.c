/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The volatile cache model and the choice of crash states. See cut.h.
 */
#include <stdlib.h>
#include <string.h>

#include "cut.h"

#define SUBSET_UNITS	10u	/* up to so many units all subsets are candidates */
#define RANDOM_SUBSETS	256u

const char *const sim_plant_name[PLANTS] = {
	[PLANT_NONE] = "none",
	[PLANT_NO_FLUSH] = "flush of the metadata device ignored",
	[PLANT_NO_DATA_FLUSH] = "data flush before a commit ignored",
	[PLANT_EARLY] = "flush and FUA reported before the write",
	[PLANT_REORDER] = "log write reordered across a flush",
	[PLANT_TORN] = "torn block with a valid old half",
};

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

/* ---- bytes ---- */

static void put_write(struct sim *s, const struct sim_ev *ev, const struct sim_choice *ch)
{
	unsigned i, n = ev->ev_len / SIM_SECTOR;
	uint8_t junk[SIM_SECTOR];
	uint64_t seed = ch->ch_seed;

	if (ch->ch_part == PART_NONE)
		return;
	if (ch->ch_part == PART_WHOLE) {
		sim_poke(s, ev->ev_dev, ev->ev_off, ev->ev_data, ev->ev_len);
		return;
	}
	for (i = 0; i < n; i++) {
		const uint8_t *src = ev->ev_data + (size_t)i * SIM_SECTOR;

		switch (ch->ch_part) {
		case PART_FIRST:
			src = i < ch->ch_n ? src : NULL;
			break;
		case PART_LAST:
			src = i + ch->ch_n >= n ? src : NULL;
			break;
		case PART_SOME:
			src = sim_rand(&seed) & 1 ? src : NULL;
			break;
		case PART_GARBAGE:
		case PART_OLDGARBAGE:
			if (i == ch->ch_n) {
				sim_garbage(junk, sizeof(junk), seed);
				src = junk;
			} else if ((i > ch->ch_n) == (ch->ch_part == PART_GARBAGE)) {
				src = NULL;
			}
			break;
		case PART_ZERO:
			if (i >= ch->ch_n) {
				memset(junk, 0, sizeof(junk));
				src = junk;
			}
			break;
		}
		if (src)
			sim_poke(s, ev->ev_dev, ev->ev_off + (uint64_t)i * SIM_SECTOR, src,
				 SIM_SECTOR);
	}
}

static void put_discard(struct sim *s, const struct sim_ev *ev, const struct sim_choice *ch)
{
	static const uint8_t zero[SIM_PAGE];
	uint64_t seed = ch->ch_seed, o;

	if (ch->ch_part == PART_NONE)
		return;
	for (o = 0; o < ev->ev_len; o += SIM_PAGE) {
		unsigned kind = ch->ch_part == PART_WHOLE ? 2 : sim_rand(&seed) % 3;

		/* 0: as it was; 2: what the running system saw, see sim_discard() */
		if (kind)
			sim_poke_page(s, ev->ev_dev, ev->ev_off + o,
				      kind == 1 ? zero : sim_discarded());
	}
}

static void put_create(struct sim *s, const struct sim_ev *ev)
{
	struct sim_dev *d = &s->s_dev[ev->ev_dev];
	static const uint8_t zero[SIM_PAGE];
	uint64_t o;

	d->d_exists = true;
	d->d_size = ev->ev_off;
	if (s->s_is_dirty)
		return;
	for (o = 0; o < d->d_size; o += SIM_PAGE)
		sim_poke_page(s, ev->ev_dev, o, zero);
}

static void put_event(struct sim *s, const struct sim_ev *ev, const struct sim_choice *ch)
{
	if (ch->ch_part == PART_NONE)
		return;
	switch (ev->ev_type) {
	case SIM_WRITE:
		put_write(s, ev, ch);
		break;
	case SIM_DISCARD:
		put_discard(s, ev, ch);
		break;
	case SIM_CREATE:
		put_create(s, ev);
		break;
	case SIM_RESIZE:
		sim_size(s, ev->ev_dev, ev->ev_off);
		break;
	case SIM_REMOVE:
		s->s_dev[ev->ev_dev].d_exists = false;
		break;
	case SIM_CONFIG:
		s->s_has_conf = ev->ev_data != NULL;
		strcpy(s->s_conf, ev->ev_data ? (const char *)ev->ev_data : "");
		break;
	}
}

static const struct sim_choice whole = { .ch_part = PART_WHOLE };

/* ---- the walk ---- */

void sim_cut_init(struct sim_cut *cu, struct sim *s, const struct sim_log *log,
		  enum sim_plant plant)
{
	memset(cu, 0, sizeof(*cu));
	cu->cu_sim = s;
	cu->cu_log = log;
	cu->cu_at = log->lo_first;
	cu->cu_plant = plant;
}

void sim_cut_fork(struct sim_cut *cu, const struct sim_cut *from, const struct sim_log *log)
{
	*cu = *from;
	cu->cu_log = log;
	cu->cu_cap = from->cu_n + 16;
	cu->cu_pend = must(malloc(cu->cu_cap * sizeof(*cu->cu_pend)));
	if (from->cu_n)
		memcpy(cu->cu_pend, from->cu_pend, from->cu_n * sizeof(*cu->cu_pend));
}

void sim_cut_fini(struct sim_cut *cu)
{
	free(cu->cu_pend);
	cu->cu_pend = NULL;
}

static const struct sim_ev *pend_ev(const struct sim_cut *cu, unsigned k)
{
	return sim_log_at(cu->cu_log, cu->cu_pend[k].pe_ev);
}

static void pend_add(struct sim_cut *cu, unsigned ev, bool is_durable)
{
	if (cu->cu_n == cu->cu_cap) {
		cu->cu_cap = cu->cu_cap ? cu->cu_cap * 2 : 32;
		cu->cu_pend = must(realloc(cu->cu_pend, cu->cu_cap * sizeof(*cu->cu_pend)));
	}
	cu->cu_pend[cu->cu_n].pe_ev = ev;
	cu->cu_pend[cu->cu_n++].pe_is_durable = is_durable;
}

static bool pend_overlaps(const struct sim_cut *cu, const struct sim_ev *ev)
{
	unsigned k;

	for (k = 0; k < cu->cu_n; k++) {
		const struct sim_ev *p = pend_ev(cu, k);

		if (p->ev_dev == ev->ev_dev && p->ev_off < ev->ev_off + ev->ev_len &&
		    ev->ev_off < p->ev_off + p->ev_len)
			return true;
	}
	return false;
}

static bool next_write_is_meta(const struct sim_cut *cu, unsigned idx)
{
	while (++idx < sim_log_end(cu->cu_log)) {
		const struct sim_ev *ev = sim_log_at(cu->cu_log, idx);

		if (ev->ev_type == SIM_WRITE)
			return ev->ev_is_meta;
	}
	return false;
}

/* Does the planted bug keep pending unit @k out of the flush at @idx? */
static bool plant_skips(const struct sim_cut *cu, unsigned idx, unsigned k, unsigned first,
			unsigned last)
{
	const struct sim_ev *fl = sim_log_at(cu->cu_log, idx), *ev = pend_ev(cu, k);

	switch (cu->cu_plant) {
	case PLANT_NO_FLUSH:
		return fl->ev_dev == 0;
	case PLANT_NO_DATA_FLUSH:
		return !ev->ev_is_meta && next_write_is_meta(cu, idx);
	case PLANT_EARLY:
		return k == last;
	case PLANT_REORDER:
		return k == first && ev->ev_type == SIM_WRITE;
	default:
		return false;
	}
}

static void flush_done(struct sim_cut *cu, unsigned idx)
{
	unsigned dev = sim_log_at(cu->cu_log, idx)->ev_dev, k, keep = 0;
	unsigned first = cu->cu_n, last = cu->cu_n;

	for (k = 0; k < cu->cu_n; k++) {
		if (pend_ev(cu, k)->ev_dev != dev)
			continue;
		if (first == cu->cu_n)
			first = k;
		last = k;
	}
	for (k = 0; k < cu->cu_n; k++) {
		const struct sim_ev *ev = pend_ev(cu, k);
		struct sim_choice ch = whole;

		if (ev->ev_dev != dev || plant_skips(cu, idx, k, first, last)) {
			cu->cu_pend[keep++] = cu->cu_pend[k];
			continue;
		}
		if (cu->cu_plant == PLANT_TORN && k == last && ev->ev_type == SIM_WRITE) {
			ch.ch_part = idx & 1 ? PART_FIRST : PART_LAST;
			ch.ch_n = (uint16_t)(ev->ev_len / SIM_SECTOR / 2);
		}
		put_event(cu->cu_sim, ev, &ch);
	}
	cu->cu_n = keep;
}

void sim_cut_to(struct sim_cut *cu, unsigned idx)
{
	for (; cu->cu_at < idx; cu->cu_at++) {
		const struct sim_ev *ev = sim_log_at(cu->cu_log, cu->cu_at);
		bool is_fua = ev->ev_is_fua && cu->cu_plant != PLANT_EARLY &&
			      !(cu->cu_plant == PLANT_NO_FLUSH && ev->ev_dev == 0);

		switch (ev->ev_type) {
		case SIM_WRITE:
			if (is_fua && !pend_overlaps(cu, ev))
				put_event(cu->cu_sim, ev, &whole);
			else
				pend_add(cu, cu->cu_at, is_fua);
			break;
		case SIM_DISCARD:
		case SIM_RESIZE:
			pend_add(cu, cu->cu_at, false);
			break;
		case SIM_FLUSH:
			flush_done(cu, cu->cu_at);
			break;
		default:
			put_event(cu->cu_sim, ev, &whole);
		}
	}
}

/* ---- variants ---- */

enum recipe_kind {
	RE_SUBSET = 0,	/* bit set a */
	RE_PREFIX,	/* the first a */
	RE_SUFFIX,	/* the last a */
	RE_DROP,	/* all but a */
	RE_KEEP,	/* only a */
	RE_RANDOM,	/* seed a */
	RE_TORN,	/* unit a in part b, the others: before it all, or random */
};

struct recipe {
	uint8_t re_kind;
	uint8_t re_part;
	uint16_t re_n;
	uint32_t re_a;
};

struct recipes {
	struct recipe *v;
	unsigned n, cap;
};

static void re_add(struct recipes *r, unsigned kind, unsigned a, unsigned part, unsigned n)
{
	if (r->n == r->cap) {
		r->cap = r->cap ? r->cap * 2 : 256;
		r->v = must(realloc(r->v, r->cap * sizeof(*r->v)));
	}
	r->v[r->n++] = (struct recipe){ .re_kind = (uint8_t)kind, .re_part = (uint8_t)part,
					.re_n = (uint16_t)n, .re_a = a };
}

/* units of one device, as indexes into all units; the flying one is last */
struct dev_units {
	unsigned du_n;
	unsigned *du_unit;
	const struct sim_ev **du_ev;
	bool du_has_flying;
};

static void torn_recipes(struct recipes *r, const struct dev_units *du, unsigned u, uint64_t *rng)
{
	const struct sim_ev *ev = du->du_ev[u];
	unsigned n = ev->ev_len / SIM_SECTOR, k, step;
	bool is_flying = du->du_has_flying && u == du->du_n - 1;

	if (ev->ev_type == SIM_DISCARD) {
		re_add(r, RE_TORN, u, PART_SOME, 0);
		re_add(r, RE_TORN, u, PART_SOME, 1);
		return;
	}
	if (ev->ev_type != SIM_WRITE)
		return;
	step = n > 64 ? n / 16 : 1;
	for (k = 1; k < n; k += step) {
		unsigned c = step > 1 ? 1 + (unsigned)(sim_rand(rng) % (n - 1)) : k;

		re_add(r, RE_TORN, u, PART_FIRST, c);
		re_add(r, RE_TORN, u, PART_LAST, c);
		if (is_flying) {
			re_add(r, RE_TORN, u, PART_GARBAGE, c);
			re_add(r, RE_TORN, u, PART_OLDGARBAGE, c - 1);
			re_add(r, RE_TORN, u, PART_ZERO, c);
		}
	}
	for (k = 0; k < (is_flying ? 16u : 4u); k++)
		re_add(r, RE_TORN, u, PART_SOME, k);
}

static void dev_recipes(struct recipes *r, const struct dev_units *du, uint64_t *rng)
{
	unsigned n = du->du_n, k;

	r->n = 0;
	re_add(r, RE_PREFIX, 0, 0, 0);
	if (!n)
		return;
	re_add(r, RE_PREFIX, n, 0, 0);
	if (n <= SUBSET_UNITS) {
		for (k = 1; k + 1 < 1u << n; k++)
			re_add(r, RE_SUBSET, k, 0, 0);
	} else {
		for (k = 1; k < n; k++) {
			re_add(r, RE_PREFIX, k, 0, 0);
			re_add(r, RE_SUFFIX, k, 0, 0);
		}
		for (k = 0; k < n; k++) {
			re_add(r, RE_DROP, k, 0, 0);
			re_add(r, RE_KEEP, k, 0, 0);
		}
		for (k = 0; k < RANDOM_SUBSETS; k++)
			re_add(r, RE_RANDOM, (uint32_t)sim_rand(rng), 0, 0);
	}
	for (k = 0; k < n; k++)
		torn_recipes(r, du, k, rng);
}

/*
 * Puts the recipes to be used first: the two extremes, then a random choice.
 * With a write in flight half of the choice tears it: the other states of the
 * older units come up again at the next flush.
 */
static void re_shuffle(struct recipes *r, const struct dev_units *du, unsigned max, uint64_t *rng)
{
	unsigned fixed = du->du_n ? 2 : 1, i, torn = r->n, j;
	struct recipe t;

	if (du->du_has_flying)
		for (torn = fixed; torn < r->n; torn++)
			if (r->v[torn].re_kind == RE_TORN && r->v[torn].re_a == du->du_n - 1)
				break;
	for (i = fixed; i < r->n && i < max; i++) {
		if (torn < r->n && (i & 1) && i < torn)
			j = torn + (unsigned)(sim_rand(rng) % (r->n - torn));
		else
			j = i + (unsigned)(sim_rand(rng) % (r->n - i));
		t = r->v[i];
		r->v[i] = r->v[j];
		r->v[j] = t;
	}
}

static void re_cook(const struct recipe *re, const struct dev_units *du, struct sim_choice *out,
		    uint64_t *rng)
{
	uint64_t seed = re->re_a;
	bool is_random = re->re_kind == RE_TORN && (sim_rand(rng) & 1);
	unsigned k;

	for (k = 0; k < du->du_n; k++) {
		struct sim_choice *ch = &out[du->du_unit[k]];
		bool is_in = false;

		switch (re->re_kind) {
		case RE_SUBSET:
			is_in = re->re_a >> k & 1;
			break;
		case RE_PREFIX:
			is_in = k < re->re_a;
			break;
		case RE_SUFFIX:
			is_in = k + re->re_a >= du->du_n;
			break;
		case RE_DROP:
			is_in = k != re->re_a;
			break;
		case RE_KEEP:
			is_in = k == re->re_a;
			break;
		case RE_RANDOM:
			is_in = sim_rand(&seed) & 1;
			break;
		case RE_TORN:
			is_in = is_random ? sim_rand(rng) & 1 : k < re->re_a;
			break;
		}
		ch->ch_part = is_in ? PART_WHOLE : PART_NONE;
		if (re->re_kind == RE_TORN && k == re->re_a) {
			ch->ch_part = re->re_part;
			ch->ch_n = re->re_n;
			ch->ch_seed = (uint32_t)sim_rand(rng);
		}
	}
}

static void units_collect(const struct sim_cut *cu, unsigned dev, struct dev_units *du)
{
	const struct sim_ev *ev;
	unsigned k;

	du->du_n = 0;
	du->du_has_flying = false;
	du->du_unit = must(malloc((cu->cu_n + 1) * sizeof(*du->du_unit)));
	du->du_ev = must(malloc((cu->cu_n + 1) * sizeof(*du->du_ev)));
	for (k = 0; k <= cu->cu_n; k++) {
		if (k == cu->cu_n) {
			if (cu->cu_at >= sim_log_end(cu->cu_log))
				break;
			ev = sim_log_at(cu->cu_log, cu->cu_at);
			if (ev->ev_type == SIM_FLUSH || ev->ev_dev != dev)
				break;
			du->du_has_flying = true;
		} else {
			ev = pend_ev(cu, k);
			if (ev->ev_dev != dev || cu->cu_pend[k].pe_is_durable)
				continue;
		}
		du->du_unit[du->du_n] = k;
		du->du_ev[du->du_n++] = ev;
	}
}

void sim_cut_variants(const struct sim_cut *cu, uint64_t seed, unsigned max,
		      struct sim_variants *va)
{
	struct dev_units du[SIM_DEVS];
	struct recipes re[SIM_DEVS] = { { NULL, 0, 0 } };
	unsigned d, k, busy = 0, n = 1;

	for (d = 0; d < SIM_DEVS; d++) {
		units_collect(cu, d, &du[d]);
		dev_recipes(&re[d], &du[d], &seed);
		re_shuffle(&re[d], &du[d], max, &seed);
		busy += du[d].du_n != 0;
		if (re[d].n > n)
			n = re[d].n;
	}
	/* with two devices also: all of one and nothing of the other */
	if (busy > 1)
		n += 2;
	if (n > max)
		n = max;
	va->va_n = n;
	va->va_units = cu->cu_n + 1;
	va->va_is_two = busy > 1;
	va->va_c = must(calloc((size_t)n * va->va_units, sizeof(*va->va_c)));
	for (k = 0; k < n; k++) {
		struct sim_choice *c = va->va_c + (size_t)k * va->va_units;
		unsigned i;

		for (i = 0; i < cu->cu_n; i++)
			if (cu->cu_pend[i].pe_is_durable)
				c[i].ch_part = PART_WHOLE;
		for (d = 0; d < SIM_DEVS; d++) {
			unsigned pick = k;

			if (busy > 1 && (k == 2 || k == 3))
				pick = (k ^ d) & 1;
			else if (pick >= re[d].n || (busy > 1 && d && k > 3))
				pick = (unsigned)(sim_rand(&seed) % re[d].n);
			if (du[d].du_n)
				re_cook(&re[d].v[pick], &du[d], c, &seed);
		}
	}
	for (d = 0; d < SIM_DEVS; d++) {
		free(du[d].du_unit);
		free(du[d].du_ev);
		free(re[d].v);
	}
}

void sim_variants_free(struct sim_variants *va)
{
	free(va->va_c);
	va->va_c = NULL;
}

void sim_cut_apply(const struct sim_cut *cu, const struct sim_variants *va, unsigned k)
{
	const struct sim_choice *c = va->va_c + (size_t)k * va->va_units;
	unsigned i;

	for (i = 0; i < cu->cu_n; i++)
		put_event(cu->cu_sim, pend_ev(cu, i), &c[i]);
	if (cu->cu_at < sim_log_end(cu->cu_log))
		put_event(cu->cu_sim, sim_log_at(cu->cu_log, cu->cu_at), &c[cu->cu_n]);
}

void sim_cut_apply_all(const struct sim_cut *cu, bool with_flying)
{
	unsigned i;

	for (i = 0; i < cu->cu_n; i++)
		put_event(cu->cu_sim, pend_ev(cu, i), &whole);
	if (with_flying && cu->cu_at < sim_log_end(cu->cu_log))
		put_event(cu->cu_sim, sim_log_at(cu->cu_log, cu->cu_at), &whole);
}
