/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Histories made by hand, from text, and by a store in memory that keeps
 * snapshot isolation, or breaks it in one chosen way: what the check is
 * checked with. See hist.h.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "hist.h"

const char *const hist_fault_name[HF_FAULTS] = {
	"none", "serial", "no conflict test", "reads see the newest",
	"dirty reads", "aborts leave a write", "torn commits",
	"two views in one", "old views", "plain puts without a test", "own writes not seen",
};

static uint64_t next(uint64_t *s)
{
	uint64_t z = (*s += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* ---- text ---- */

static uint32_t number(const char **p)
{
	uint32_t n = 0;

	while (isdigit((unsigned char)**p))
		n = n * 10 + (uint32_t)(*(*p)++ - '0');
	return n;
}

/* How many writes transaction @t has before @end of the text, or in all. */
static uint32_t writes_of(const char *text, uint32_t t, char key)
{
	uint32_t n = 0, last = 0;

	for (; *text && t > 1; text++)
		t -= *text == '|';
	for (; *text && *text != '|'; text++) {
		if (*text != 'w' || !isalpha((unsigned char)text[1]))
			continue;
		n++;
		if (text[1] == key)
			last = n;
	}
	return last;
}

/* "2" or "2.1" behind a key: the version that it names. */
static hist_ver version(const char *text, const char **p, char key)
{
	uint32_t t = number(p), n;

	if (**p == '.') {
		(*p)++;
		n = number(p);
	} else {
		n = writes_of(text, t, key);
	}
	return t ? HIST_VER(t, n) : 0;
}

static bool parse_op(struct hist *h, const char *text, const char **p, hist_ver *known)
{
	bool is_write = **p == 'w';
	char key = (*p)[1];
	unsigned k = (unsigned)(key - 'x' + 26) % 26;
	hist_ver v;

	if (!islower((unsigned char)key))
		return false;
	*p += 2;
	if (is_write) {
		v = known[k];
		if (**p == '<') {
			(*p)++;
			v = version(text, p, key);
		}
		known[k] = hist_write(h, k, v);
	} else {
		known[k] = version(text, p, key);
		hist_read(h, k, known[k]);
	}
	return true;
}

bool hist_parse(struct hist *h, const char *text)
{
	hist_ver known[26] = { 0 };
	const char *p = text;
	uint64_t begin = 0, end = 0;

	hist_init(h, 26);
	hist_begin(h, 0);
	while (*p) {
		switch (*p) {
		case ' ':
			p++;
			break;
		case '[':
			p++;
			begin = number(&p);
			p++;
			end = number(&p);
			p++;
			h->hi_txn[h->hi_n].ht_begin = begin;
			break;
		case '|':
			p++;
			memset(known, 0, sizeof(known));
			hist_begin(h, 0);
			end = 0;
			break;
		case 'c':
		case 'a':
			hist_end(h, *p == 'c' ? HIST_COMMITTED : HIST_ABORTED, end);
			p++;
			break;
		case 'r':
		case 'w':
			if (!parse_op(h, text, &p, known))
				return false;
			break;
		default:
			return false;
		}
	}
	return true;
}

/* ---- a store ---- */

#define RUNNING	8u
#define WRITES	8u
#define KEYS	256u
#define DEEP	64u	/* versions kept of a key */

struct version {
	hist_ver v_name;
	uint64_t v_stamp;	/* visible from here on */
};

struct slot {
	uint32_t s_step, s_steps;	/* 0 = free */
	uint64_t s_view, s_begin;
	struct hist_op s_op[2 * WRITES];
	uint32_t s_nop, s_nwrite;
	bool s_is_faulty;
};

struct store {
	struct version st_ver[KEYS][DEEP];	/* newest first */
	struct slot st_slot[RUNNING];
	uint64_t st_seq, st_time, st_rnd;
	uint32_t st_keys;
	enum hist_fault st_fault;
	struct hist *st_h;
};

static void version_add(struct store *st, uint32_t key, hist_ver name, uint64_t stamp)
{
	struct version *v = st->st_ver[key];

	memmove(v + 1, v, (DEEP - 1) * sizeof(*v));
	v[0] = (struct version){ name, stamp };
}

static hist_ver visible(const struct store *st, uint32_t key, uint64_t view)
{
	const struct version *v = st->st_ver[key];
	unsigned i;

	for (i = 0; i < DEEP - 1 && v[i].v_stamp > view; i++)
		;
	return v[i].v_name;
}

/*
 * Names are given when a transaction ends, since histories number transactions
 * in that order; until then its writes are called RUNNING_NAME + slot.
 */
#define RUNNING_NAME	(1ull << 60)

static struct hist_op *own_op(struct slot *s, uint32_t key, bool writes_only)
{
	uint32_t i;

	for (i = s->s_nop; i--;)
		if (s->s_op[i].ho_key == key && (s->s_op[i].ho_is_write || !writes_only))
			return &s->s_op[i];
	return NULL;
}

static void slot_read(struct store *st, struct slot *s, uint32_t key)
{
	struct hist_op *own = own_op(s, key, true);
	hist_ver v = visible(st, key, s->s_view);
	unsigned i;

	if (s->s_is_faulty && st->st_fault == HF_READ_LATEST)
		v = visible(st, key, st->st_seq);
	for (i = 0; i < RUNNING && s->s_is_faulty && st->st_fault == HF_READ_DIRTY; i++) {
		struct slot *o = &st->st_slot[i];

		if (o != s && own_op(o, key, true))
			v = own_op(o, key, true)->ho_ver;
	}
	if (own && !(s->s_is_faulty && st->st_fault == HF_OWN_UNSEEN))
		v = own->ho_ver;
	s->s_op[s->s_nop++] = (struct hist_op){ .ho_key = key, .ho_ver = v };
}

/* Every write replaces what it has just read. */
static void slot_write(struct slot *s, unsigned no, uint32_t key)
{
	hist_ver prev = s->s_op[s->s_nop - 1].ho_ver;

	s->s_op[s->s_nop++] = (struct hist_op){
		.ho_key = key, .ho_is_write = true, .ho_prev = prev,
		.ho_ver = RUNNING_NAME + no * 16u + ++s->s_nwrite,
	};
}

/* First committer wins. */
static bool has_conflict(const struct store *st, const struct slot *s)
{
	uint32_t i;

	if (st->st_fault == HF_NO_CONFLICT && s->s_is_faulty)
		return false;
	for (i = 0; i < s->s_nop; i++)
		if (s->s_op[i].ho_is_write &&
		    st->st_ver[s->s_op[i].ho_key][0].v_stamp > s->s_view)
			return true;
	return false;
}

/* Others may have read names of this slot: they learn the real ones. */
static void rename_everywhere(struct store *st, hist_ver from, hist_ver to)
{
	unsigned i;
	uint32_t k;

	for (i = 0; i < RUNNING; i++) {
		struct slot *o = &st->st_slot[i];

		for (k = 0; k < o->s_nop; k++) {
			if (o->s_op[k].ho_ver == from)
				o->s_op[k].ho_ver = to;
			if (o->s_op[k].ho_prev == from)
				o->s_op[k].ho_prev = to;
		}
	}
}

static bool is_final(const struct slot *s, uint32_t i)
{
	uint32_t k;

	for (k = i + 1; k < s->s_nop; k++)
		if (s->s_op[k].ho_is_write && s->s_op[k].ho_key == s->s_op[i].ho_key)
			return false;
	return true;
}

static void slot_end(struct store *st, struct slot *s, bool commits)
{
	uint64_t stamp = ++st->st_seq;
	uint32_t t = hist_begin(st->st_h, s->s_begin), i, n = 0;

	for (i = 0; i < s->s_nop; i++) {
		struct hist_op *op = &s->s_op[i];
		bool stays = commits || (st->st_fault == HF_ABORT_STAYS && s->s_is_faulty && !n);

		if (!op->ho_is_write) {
			hist_read(st->st_h, op->ho_key, op->ho_ver);
			continue;
		}
		n++;
		rename_everywhere(st, op->ho_ver, HIST_VER(t, n));
		hist_write(st->st_h, op->ho_key, op->ho_prev);
		if (!stays || !is_final(s, i))
			continue;
		/* the second and later keys of a torn commit are late */
		if (st->st_fault == HF_TORN_COMMIT && s->s_is_faulty && n > 1)
			version_add(st, op->ho_key, op->ho_ver, stamp + 40);
		else
			version_add(st, op->ho_key, op->ho_ver, stamp);
	}
	hist_end(st->st_h, commits ? HIST_COMMITTED : HIST_ABORTED, ++st->st_time);
	memset(s, 0, sizeof(*s));
}

static void slot_begin(struct store *st, struct slot *s, unsigned every)
{
	s->s_steps = 1 + (uint32_t)(next(&st->st_rnd) % 4);
	s->s_is_faulty = next(&st->st_rnd) % every == 0;
	s->s_begin = ++st->st_time;
	s->s_view = st->st_seq;
	if (st->st_fault == HF_OLD_VIEW && s->s_is_faulty)
		s->s_view -= s->s_view < 20 ? s->s_view : 20;
	/* a view's birth moves the clock */
	st->st_seq++;
}

static void slot_step(struct store *st, unsigned no, unsigned every)
{
	struct slot *s = &st->st_slot[no];
	uint64_t x = next(&st->st_rnd);
	uint32_t key = (uint32_t)(x >> 8) % st->st_keys;

	if (!s->s_steps) {
		slot_begin(st, s, every);
		return;
	}
	if (s->s_step == s->s_steps) {
		bool aborts = x % 16 == 0;

		if (st->st_fault == HF_PLAIN_PUT && s->s_is_faulty)
			aborts = false;
		else if (has_conflict(st, s))
			aborts = true;
		slot_end(st, s, !aborts);
		return;
	}
	s->s_step++;
	if (st->st_fault == HF_TWO_VIEWS && s->s_is_faulty && s->s_step == 2)
		s->s_view = st->st_seq;
	slot_read(st, s, key);
	if (x & 1)
		slot_write(s, no, key);
}

void hist_generate(struct hist *h, uint64_t seed, uint32_t txns, uint32_t keys,
		   enum hist_fault fault, unsigned every)
{
	struct store *st = calloc(1, sizeof(*st));
	unsigned no = 0;

	if (!st)
		abort();
	hist_init(h, keys);
	st->st_h = h;
	st->st_rnd = seed;
	st->st_keys = keys;
	st->st_fault = fault;
	st->st_seq = 1;
	while (h->hi_n < txns) {
		/* serial: until the slot is free again */
		if (fault != HF_SERIAL || !st->st_slot[no].s_steps)
			no = (unsigned)(next(&st->st_rnd) % RUNNING);
		slot_step(st, no, every);
	}
	free(st);
}
