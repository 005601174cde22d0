/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Decoding of the metadata container's records, and the state that they fold
 * into. A record is accepted whole or not at all: sizes are compared with the
 * record's length before anything is allocated, references are looked up
 * before anything changes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/guard.h"
#include "base/key.h"
#include "base/vec.h"
#include "db/mem_wait.h"
#include "seg/kv_omf.h"
#include "run/run.h"
#include "run/run_omf.h"
#include "tree/leaf.h"
#include "meta/mdc_omf.h"

/* ---- decoding ------------------------------------------------------------------ */

/* Reads past the end give 0 and set rd_bad: one test at the end of a record. */
struct reader {
	const uint8_t *rd_p, *rd_end;
	bool rd_bad;
};

static uint64_t rn(struct reader *r, unsigned bytes)
{
	uint64_t v = 0;
	unsigned i;

	KV_ASSERT_SLOW(bytes <= sizeof(v) && r->rd_p <= r->rd_end);
	if ((size_t)(r->rd_end - r->rd_p) < bytes) {
		r->rd_bad = true;
		r->rd_p = r->rd_end;
		return 0;
	}
	for (i = 0; i < bytes; i++)
		v |= (uint64_t)r->rd_p[i] << (8 * i);
	r->rd_p += bytes;
	return v;
}

static uint32_t r32(struct reader *r) { return (uint32_t)rn(r, 4); }
static uint64_t r64(struct reader *r) { return rn(r, 8); }

static void rzero(struct reader *r, unsigned bytes)
{
	if (rn(r, bytes))
		r->rd_bad = true;
}

static void rbytes(struct reader *r, void *to, size_t n)
{
	memset(to, 0, n);
	if ((size_t)(r->rd_end - r->rd_p) < n) {
		r->rd_bad = true;
		return;
	}
	memcpy(to, r->rd_p, n);
	r->rd_p += n;
}

/* True when exactly the record was read. */
static bool rdone(const struct reader *r)
{
	return !r->rd_bad && r->rd_p == r->rd_end;
}

/* True when @n elements of @size bytes are there: before anything is allocated. */
static bool rroom(struct reader *r, uint64_t n, size_t size)
{
	if (n > KV_MDC_REC_MAX || (size_t)(r->rd_end - r->rd_p) < n * size)
		r->rd_bad = true;
	return !r->rd_bad;
}

/* ---- state ----------------------------------------------------------------------- */

static void run_desc_free(struct kv_run_desc *d)
{
	free(d->rd_kb);
	d->rd_kb = NULL;
}

static void kvs_free(struct kv_mdc_kvs *k)
{
	uint32_t i;

	for (i = 0; i < k->mk_nrun; i++)
		run_desc_free(&k->mk_run[i]);
	free(k->mk_run);
	for (i = 0; i < k->mk_nleaf; i++)
		free(k->mk_leaf[i].ml_key);
	free(k->mk_leaf);
	memset(k, 0, sizeof(*k));
}

void kv_mdc_state_free(struct kv_mdc_state *st)
{
	uint32_t i;

	for (i = 0; i < st->st_nkvs; i++)
		kvs_free(&st->st_kvs[i]);
	free(st->st_seg);
	free(st->st_part);
	free(st->st_gone);
	free(st->st_ckpt);
	memset(st, 0, sizeof(*st));
}

struct kv_mdc_kvs *kv_mdc_state_kvs(struct kv_mdc_state *st, uint32_t id)
{
	uint32_t i;

	for (i = 0; i < st->st_nkvs; i++)
		if (st->st_kvs[i].mk_id == id)
			return &st->st_kvs[i];
	return NULL;
}

/* Index of the first entry with sc_obj >= @obj. */
static size_t seg_pos(const struct kv_mdc_state *st, uint64_t obj)
{
	size_t lo = 0, hi = st->st_nseg;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (st->st_seg[mid].sc_obj < obj)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

const struct kv_mdc_seg *kv_mdc_state_seg(const struct kv_mdc_state *st, uint64_t obj)
{
	size_t i = seg_pos(st, obj);

	return i < st->st_nseg && st->st_seg[i].sc_obj == obj ? &st->st_seg[i] : NULL;
}

static bool ids_ascend(const uint64_t *id, size_t n)
{
	size_t i;

	for (i = 1; i < n && id[i - 1] < id[i]; i++)
		;
	return i >= n;
}

void kv_mdc_state_segs_del(struct kv_mdc_state *st, const uint64_t *id, size_t n)
{
	size_t i = n ? seg_pos(st, id[0]) : st->st_nseg, k = i;

	KV_ASSERT_SLOW(ids_ascend(id, n));
	for (; i < st->st_nseg && n; i++) {
		for (; n && *id < st->st_seg[i].sc_obj; id++)
			n--;
		if (!n || *id != st->st_seg[i].sc_obj)
			st->st_seg[k++] = st->st_seg[i];
	}
	if (k == i)
		return;
	memmove(&st->st_seg[k], &st->st_seg[i], (st->st_nseg - i) * sizeof(st->st_seg[0]));
	st->st_nseg -= i - k;
}

static bool gone_has(const struct kv_mdc_state *st, uint64_t obj)
{
	size_t i;

	for (i = 0; i < st->st_ngone && st->st_gone[i] != obj; i++)
		;
	return i < st->st_ngone;
}

/*
 * The list may be long, and an open folds every edit. Ids ascend: most blocks are newer than all
 * that is gone, and what was announced stands at its end.
 */
void kv_mdc_state_gone_del(struct kv_mdc_state *st, uint64_t obj)
{
	size_t i = obj <= st->st_gone_most ? st->st_ngone : 0;

	KV_ASSERT_SLOW(i || !gone_has(st, obj));
	while (i--) {
		if (st->st_gone[i] == obj) {
			st->st_gone[i] = st->st_gone[--st->st_ngone];
			return;
		}
	}
}

static void *mem_get(const struct kv_mdc_state *st, void *p, size_t size)
{
	return st->st_waits ? kv_realloc_wait(st->st_waits, p, size) : realloc(p, size);
}

static int grow(const struct kv_mdc_state *st, void *vec, uint32_t *cap, size_t need, size_t size)
{
	int err;

	while ((err = kv_vec_grow(vec, cap, need, size)) && st->st_waits &&
	       !kv_sleep_or_stop(st->st_waits))
		;
	return err;
}

/* A length only ever shrinks (R3). */
static int seg_add(struct kv_mdc_state *st, const struct kv_mdc_seg *s)
{
	size_t i = seg_pos(st, s->sc_obj);

	if (i < st->st_nseg && st->st_seg[i].sc_obj == s->sc_obj) {
		if (s->sc_len < st->st_seg[i].sc_len)
			st->st_seg[i] = *s;
		return 0;
	}
	if (grow(st, &st->st_seg, &st->st_segcap, st->st_nseg + 1, sizeof(*s)))
		return -ENOMEM;
	memmove(&st->st_seg[i + 1], &st->st_seg[i], (st->st_nseg - i) * sizeof(*s));
	st->st_seg[i] = *s;
	st->st_nseg++;
	KV_ASSERT(!i || st->st_seg[i - 1].sc_obj < s->sc_obj);
	KV_ASSERT(i + 1 == st->st_nseg || s->sc_obj < st->st_seg[i + 1].sc_obj);
	return 0;
}

static int gone_add(struct kv_mdc_state *st, uint64_t id)
{
	if (grow(st, &st->st_gone, &st->st_gonecap, st->st_ngone + 1, sizeof(id)))
		return -ENOMEM;
	st->st_gone[st->st_ngone++] = id;
	if (id > st->st_gone_most)
		st->st_gone_most = id;
	return 0;
}

/* The run's objects may outlive the record that dropped it, until they are deleted. */
static int run_gone(struct kv_mdc_state *st, struct kv_run_desc *d)
{
	uint32_t i;
	int err = 0;

	for (i = 0; i < d->rd_n && !err; i++)
		err = gone_add(st, d->rd_kb[i].kd_id);
	return err;
}

/* ---- folding ---------------------------------------------------------------------- */

#define BAD_BODY	421	/* sizes or reserved fields */
#define BAD_STATE	422	/* names something that is not there, or is there already */

static bool body_ok(bool good)
{
	return CHECK(good);
}

static bool state_ok(bool good)
{
	return CHECK(good);
}

/* An epoch, a stamp, a number of a run: what comes after the greatest begins above it. */
static bool number_ok(uint64_t n)
{
	return CHECK(n < KV_NUMBER_END);
}

static int fold_super(struct kv_mdc_state *st, struct reader *r, uint64_t tag)
{
	struct kv_mdc_super s = { .ms_tag = tag };

	rbytes(r, s.ms_uuid, 16);
	s.ms_format = (uint16_t)rn(r, 2);
	s.ms_amp_percent = (uint16_t)rn(r, 2);
	s.ms_compat = r32(r);
	s.ms_ro_compat = r32(r);
	s.ms_incompat = r32(r);
	s.ms_seg_bytes = r32(r);
	s.ms_next_kvs = r32(r);
	s.ms_next_run = r64(r);
	s.ms_floor = r64(r);
	if (!body_ok(rdone(r) && number_ok(s.ms_floor) && number_ok(s.ms_next_run) &&
		     (!s.ms_amp_percent ||
		      (s.ms_amp_percent >= 110 && s.ms_amp_percent <= 10000))))
		return BAD_BODY;
	if (!CHECK(s.ms_format == KV_FORMAT && !(s.ms_incompat & ~KV_FEATS)))
		return -EOPNOTSUPP;
	if (!state_ok(!st->st_has_super && kv_tag_is_ours(tag) && s.ms_next_kvs && s.ms_next_run))
		return BAD_STATE;
	st->st_super = s;
	st->st_has_super = true;
	return 0;
}

static int fold_features(struct kv_mdc_state *st, struct reader *r)
{
	uint32_t incompat = r32(r);

	rzero(r, 4);
	if (!body_ok(rdone(r) && incompat))
		return BAD_BODY;
	if (!CHECK(!(incompat & ~KV_FEATS)))
		return -EOPNOTSUPP;
	st->st_super.ms_incompat |= incompat;
	return 0;
}

static bool name_ok(const char name[KVDB_NAME_MAX + 1])
{
	size_t n = strnlen(name, KVDB_NAME_MAX + 1), i;

	for (i = n; i < KVDB_NAME_MAX + 1; i++)
		if (name[i])
			return false;
	return n && n <= KVDB_NAME_MAX;
}

static int fold_kvs_add(struct kv_mdc_state *st, struct reader *r)
{
	struct kv_mdc_kvs k = { 0 };

	k.mk_id = r32(r);
	rzero(r, 4);
	k.mk_horizon = r64(r);
	rbytes(r, k.mk_name, sizeof(k.mk_name));
	if (!body_ok(rdone(r) && name_ok(k.mk_name) && k.mk_id && k.mk_id <= UINT16_MAX &&
		     number_ok(k.mk_horizon)))
		return BAD_BODY;
	if (!state_ok(!kv_mdc_state_kvs(st, k.mk_id) && st->st_nkvs < KVDB_KVS_MAX))
		return BAD_STATE;
	/* options of a store whose creation was cut belong to no store */
	if (st->st_prop_kvs == k.mk_id)
		k.mk_props = st->st_props;
	st->st_prop_kvs = 0;
	st->st_kvs[st->st_nkvs++] = k;
	if (k.mk_id >= st->st_super.ms_next_kvs)
		st->st_super.ms_next_kvs = k.mk_id + 1;
	if (k.mk_horizon > st->st_super.ms_floor)
		st->st_super.ms_floor = k.mk_horizon;
	return 0;
}

/* For a store that is not there yet they wait for its KVS_ADD, and replace what waited. */
static int fold_kvs_prop(struct kv_mdc_state *st, struct reader *r)
{
	uint32_t id = r32(r), n = r32(r), i, prop;
	struct kv_mdc_kvs *k = kv_mdc_state_kvs(st, id);
	struct kv_props p = { 0 };
	uint64_t val;

	if (k)
		p = k->mk_props;
	if (!body_ok(id && id <= UINT16_MAX && n && (size_t)(r->rd_end - r->rd_p) == n * 16ull))
		return BAD_BODY;
	for (i = 0; i < n; i++) {
		prop = r32(r);
		rzero(r, 4);
		val = r64(r);
		if (!body_ok(prop && !r->rd_bad))
			return BAD_BODY;
		if (kv_prop_is_known(prop, val))
			p.pr_val[prop] = val;
		else
			p.pr_unknown = prop;
	}
	if (k) {
		k->mk_props = p;
		return 0;
	}
	st->st_prop_kvs = id;
	st->st_props = p;
	return 0;
}

static int fold_kvs_drop(struct kv_mdc_state *st, struct reader *r)
{
	uint32_t i, id = r32(r);
	struct kv_mdc_kvs *k;

	rzero(r, 4);
	if (!body_ok(rdone(r)))
		return BAD_BODY;
	k = kv_mdc_state_kvs(st, id);
	if (!state_ok(k))
		return BAD_STATE;
	for (i = 0; i < k->mk_nrun; i++)
		if (run_gone(st, &k->mk_run[i]))
			return -ENOMEM;
	kvs_free(k);
	*k = st->st_kvs[--st->st_nkvs];
	memset(&st->st_kvs[st->st_nkvs], 0, sizeof(*k));
	return 0;
}

static int fold_kvs_rename(struct kv_mdc_state *st, struct reader *r)
{
	struct kv_mdc_kvs *k = kv_mdc_state_kvs(st, r32(r));
	char name[KVDB_NAME_MAX + 1];
	uint32_t i;

	rzero(r, 4);
	rbytes(r, name, sizeof(name));
	if (!body_ok(rdone(r) && name_ok(name)))
		return BAD_BODY;
	for (i = 0; i < st->st_nkvs && k; i++)
		if (!strcmp(st->st_kvs[i].mk_name, name))
			k = NULL;
	if (!state_ok(k))
		return BAD_STATE;
	memcpy(k->mk_name, name, sizeof(name));
	return 0;
}

static int dec_run(const struct kv_mdc_state *st, struct reader *r, struct kv_run_desc *d)
{
	uint32_t i;

	memset(d, 0, sizeof(*d));
	d->rd_id = r64(r);
	d->rd_pos = r64(r);
	d->rd_keys = r64(r);
	d->rd_min_seq = r64(r);
	d->rd_max_seq = r64(r);
	d->rd_newest_epoch = r64(r);
	d->rd_kvs = r32(r);
	d->rd_n = r32(r);
	if (!body_ok(d->rd_n && d->rd_n <= KV_RUN_KBLOCKS_MAX && rroom(r, d->rd_n, 16) &&
		   d->rd_keys <= d->rd_n * KV_KBLOCK_KEYS_MAX &&
		   d->rd_min_seq <= d->rd_max_seq && number_ok(d->rd_max_seq) &&
		   number_ok(d->rd_newest_epoch) && number_ok(d->rd_id) &&
		   number_ok(d->rd_pos))) {
		d->rd_n = 0;
		return BAD_BODY;
	}
	d->rd_kb = mem_get(st, NULL, d->rd_n * sizeof(d->rd_kb[0]));
	if (!d->rd_kb)
		return -ENOMEM;
	for (i = 0; i < d->rd_n; i++) {
		d->rd_kb[i].kd_id = r64(r);
		d->rd_kb[i].kd_len = r32(r);
		d->rd_kb[i].kd_crc = r32(r);
	}
	return 0;
}

static int run_index(const struct kv_mdc_kvs *k, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < k->mk_nrun; i++)
		if (k->mk_run[i].rd_id == id)
			return (int)i;
	return -1;
}

/* Keeps mk_run ascending by position. */
static int run_insert(struct kv_mdc_state *st, struct kv_mdc_kvs *k, const struct kv_run_desc *d)
{
	struct kv_run_desc *p;
	uint32_t i;

	/* of many runs in one record most ids are new: no search for those */
	if (!state_ok(d->rd_id && d->rd_kvs == k->mk_id &&
		      (d->rd_id >= st->st_super.ms_next_run || run_index(k, d->rd_id) < 0)))
		return BAD_STATE;
	p = mem_get(st, k->mk_run, (k->mk_nrun + 1) * sizeof(*p));
	if (!p)
		return -ENOMEM;
	k->mk_run = p;
	for (i = k->mk_nrun; i && p[i - 1].rd_pos > d->rd_pos; i--)
		p[i] = p[i - 1];
	p[i] = *d;
	k->mk_nrun++;
	for (i = 0; i < d->rd_n && st->st_ngone; i++)
		kv_mdc_state_gone_del(st, d->rd_kb[i].kd_id);
	if (d->rd_id >= st->st_super.ms_next_run)
		st->st_super.ms_next_run = d->rd_id + 1;
	return 0;
}

static int run_remove(struct kv_mdc_state *st, struct kv_mdc_kvs *k, uint64_t id)
{
	int i = run_index(k, id);

	if (!state_ok(i >= 0))
		return BAD_STATE;
	if (run_gone(st, &k->mk_run[i]))
		return -ENOMEM;
	run_desc_free(&k->mk_run[i]);
	k->mk_nrun--;
	memmove(&k->mk_run[i], &k->mk_run[i + 1],
		(k->mk_nrun - (uint32_t)i) * sizeof(k->mk_run[0]));
	return 0;
}

static int fold_horizons(struct kv_mdc_state *st, struct reader *r, uint32_t n)
{
	struct kv_mdc_kvs *k;
	uint32_t i, id;
	uint64_t epoch;

	for (i = 0; i < n; i++) {
		id = r32(r);
		rzero(r, 4);
		epoch = r64(r);
		k = kv_mdc_state_kvs(st, id);
		if (!body_ok(number_ok(epoch)))
			return BAD_BODY;
		if (!state_ok(k && !r->rd_bad))
			return BAD_STATE;
		if (epoch > k->mk_horizon)
			k->mk_horizon = epoch;
		if (epoch > st->st_super.ms_floor)
			st->st_super.ms_floor = epoch;
	}
	return 0;
}

static int fold_edit(struct kv_mdc_state *st, struct reader *r)
{
	uint32_t kvs = r32(r), nhor = r32(r), ndrop = r32(r), nadd = r32(r), i;
	struct kv_mdc_kvs *k = kv_mdc_state_kvs(st, kvs);
	struct kv_run_desc d = { 0 };
	int err;

	if (!body_ok(nadd <= 1 && rroom(r, nhor, 16) && rroom(r, ndrop, 8) &&
		   rroom(r, (uint64_t)nhor * 16 + (uint64_t)ndrop * 8, 1)))
		return BAD_BODY;
	if (!state_ok(k))
		return BAD_STATE;
	err = fold_horizons(st, r, nhor);
	for (i = 0; i < ndrop && !err; i++)
		err = run_remove(st, k, r64(r));
	if (!err && nadd)
		err = dec_run(st, r, &d);
	if (!err && !body_ok(rdone(r)))
		err = BAD_BODY;
	if (!err && nadd)
		err = run_insert(st, k, &d);
	if (err)
		run_desc_free(&d);
	return err;
}

static int leaf_index(const struct kv_mdc_kvs *k, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < k->mk_nleaf; i++)
		if (k->mk_leaf[i].ml_id == id)
			return (int)i;
	return -1;
}

static int key_cmp(const struct kv_mdc_leaf *a, const struct kv_mdc_leaf *b)
{
	return kv_kcmp(a->ml_key, a->ml_klen, b->ml_key, b->ml_klen);
}

/* Takes over the key. */
static int leaf_insert(struct kv_mdc_state *st, struct kv_mdc_kvs *k, struct kv_mdc_leaf *lf)
{
	struct kv_mdc_leaf *p = mem_get(st, k->mk_leaf, (k->mk_nleaf + 1) * sizeof(*p));
	uint32_t i;

	if (!p) {
		free(lf->ml_key);
		return -ENOMEM;
	}
	k->mk_leaf = p;
	for (i = k->mk_nleaf; i && key_cmp(&p[i - 1], lf) > 0; i--)
		p[i] = p[i - 1];
	p[i] = *lf;
	k->mk_nleaf++;
	if (lf->ml_id >= st->st_super.ms_next_run)
		st->st_super.ms_next_run = lf->ml_id + 1;
	return i && !key_cmp(&p[i - 1], lf) ? BAD_STATE : 0;
}

static int fold_begin(struct kv_mdc_state *st, struct kv_mdc_kvs *k, struct reader *r)
{
	struct kv_mdc_leaf lf = { .ml_id = r64(r) };
	uint32_t klen = r32(r);
	uint8_t pad[8];

	rzero(r, 4);
	if (!body_ok(klen <= KVDB_KEY_MAX && rroom(r, (klen + 7) & ~7u, 1) &&
		     number_ok(lf.ml_id)))
		return BAD_BODY;
	if (!CHECK(lf.ml_id && leaf_index(k, lf.ml_id) < 0 && k->mk_nleaf < KV_LEAVES_MAX))
		return BAD_STATE;
	lf.ml_klen = (uint16_t)klen;
	lf.ml_key = mem_get(st, NULL, klen + 1);
	if (!lf.ml_key)
		return -ENOMEM;
	rbytes(r, lf.ml_key, klen);
	rbytes(r, pad, -klen & 7u);
	return leaf_insert(st, k, &lf);
}

static int fold_end(struct kv_mdc_kvs *k, uint64_t id)
{
	int i = leaf_index(k, id);

	/* the first one has no neighbour below that could take it over */
	if (!CHECK(i > 0))
		return BAD_STATE;
	free(k->mk_leaf[i].ml_key);
	k->mk_nleaf--;
	memmove(&k->mk_leaf[i], &k->mk_leaf[i + 1],
		(k->mk_nleaf - (uint32_t)i) * sizeof(k->mk_leaf[0]));
	return 0;
}

/* Every run's leaf is there, and the leaves cover all keys. */
static bool leaves_ok(const struct kv_mdc_kvs *k, uint64_t end)
{
	uint32_t i;

	for (i = 0; end && i < k->mk_nrun; i++)
		if (k->mk_run[i].rd_leaf == end)
			return false;
	return !k->mk_nleaf || !k->mk_leaf[0].ml_klen;
}

static int fold_leaf_run(struct kv_mdc_state *st, struct kv_mdc_kvs *k, struct reader *r)
{
	struct kv_run_desc d = { 0 };
	uint64_t leaf = r64(r);
	int err = dec_run(st, r, &d);

	d.rd_leaf = leaf;
	if (!err && !body_ok(!r->rd_bad))
		err = BAD_BODY;
	if (!err && !CHECK(!leaf || leaf_index(k, leaf) >= 0))
		err = BAD_STATE;
	if (!err)
		err = run_insert(st, k, &d);
	if (err)
		run_desc_free(&d);
	return err;
}

static int fold_leaves(struct kv_mdc_state *st, struct reader *r)
{
	uint32_t kvs = r32(r), ndrop = r32(r), nbegin = r32(r), nadd = r32(r), i;
	struct kv_mdc_kvs *k = kv_mdc_state_kvs(st, kvs);
	uint64_t leaf = r64(r);
	int err = 0;

	if (!body_ok(rroom(r, ndrop, 8) && rroom(r, nbegin, 16) && rroom(r, nadd, 64)))
		return BAD_BODY;
	if (!state_ok(k))
		return BAD_STATE;
	for (i = 0; i < ndrop && !err; i++)
		err = run_remove(st, k, r64(r));
	if (!err && leaf)
		err = fold_end(k, leaf);
	for (i = 0; i < nbegin && !err; i++)
		err = fold_begin(st, k, r);
	for (i = 0; i < nadd && !err; i++)
		err = fold_leaf_run(st, k, r);
	if (!err && !body_ok(rdone(r)))
		err = BAD_BODY;
	if (!err && !CHECK(leaves_ok(k, leaf)))
		err = BAD_STATE;
	return err;
}

/* CUTS go to the side until their INCARN record; SEGS count at once. */
static int fold_segs(struct kv_mdc_state *st, struct reader *r, bool is_cuts)
{
	uint32_t part = r32(r), n = r32(r), i;
	struct kv_mdc_seg s;
	int err = 0;

	if (!body_ok(n <= KV_MDC_PART && rroom(r, n, 24) &&
		   (size_t)(r->rd_end - r->rd_p) == (size_t)n * 24))
		return BAD_BODY;
	if (is_cuts && !part)
		st->st_npart = st->st_parts = 0;	/* an attempt that was cut is forgotten */
	if (is_cuts && !state_ok(part == st->st_parts++))
		return BAD_STATE;
	for (i = 0; i < n && !err; i++) {
		s.sc_obj = r64(r);
		s.sc_last = r64(r);
		s.sc_len = r32(r);
		rzero(r, 4);
		if (!body_ok(!r->rd_bad && s.sc_obj && s.sc_len % KV_BLOCK == 0))
			return BAD_BODY;
		if (!is_cuts) {
			err = seg_add(st, &s);
			continue;
		}
		err = grow(st, &st->st_part, &st->st_partcap, st->st_npart + 1, sizeof(s));
		if (!err)
			st->st_part[st->st_npart++] = s;
	}
	return err;
}

static int fold_incarn(struct kv_mdc_state *st, struct reader *r)
{
	struct kv_mdc_incarn in = { 0 };
	size_t i;
	int err = 0;

	in.mi_incarnation = r32(r);
	in.mi_nsegs = r32(r);
	in.mi_d = r64(r);
	in.mi_epoch = r64(r);
	in.mi_seq = r64(r);
	in.mi_ckpt = r64(r);
	if (!body_ok(rdone(r) && in.mi_nsegs == st->st_npart && in.mi_d <= in.mi_epoch &&
		     number_ok(in.mi_epoch) && number_ok(in.mi_seq) &&
		     in.mi_incarnation < UINT32_MAX))
		return BAD_BODY;
	if (!state_ok(in.mi_incarnation > st->st_inc.mi_incarnation))
		return BAD_STATE;
	st->st_inc = in;
	st->st_nseg = 0;
	for (i = 0; i < st->st_npart && !err; i++)
		err = seg_add(st, &st->st_part[i]);
	st->st_npart = st->st_parts = 0;
	return err;
}

static int fold_clean(struct kv_mdc_state *st, struct reader *r)
{
	uint64_t epoch = r64(r), seq = r64(r);
	uint32_t i;

	if (!body_ok(rdone(r) && number_ok(epoch) && number_ok(seq)))
		return BAD_BODY;
	for (i = 0; i < st->st_nkvs; i++)
		if (st->st_kvs[i].mk_horizon < epoch)
			st->st_kvs[i].mk_horizon = epoch;
	if (epoch > st->st_super.ms_floor)
		st->st_super.ms_floor = epoch;
	if (seq > st->st_inc.mi_seq)
		st->st_inc.mi_seq = seq;
	st->st_clean = true;
	return 0;
}

static int fold_gone(struct kv_mdc_state *st, struct reader *r)
{
	uint32_t n = r32(r), i;
	int err = 0;

	rzero(r, 4);
	if (!body_ok(rroom(r, n, 8) && (size_t)(r->rd_end - r->rd_p) == (size_t)n * 8))
		return BAD_BODY;
	for (i = 0; i < n && !err; i++)
		err = gone_add(st, r64(r));
	return err;
}

static int fold_ckpt_add(struct kv_mdc_state *st, struct reader *r)
{
	struct kv_mdc_ckpt c = { 0 };
	size_t i;

	c.mc_epoch = r64(r);
	c.mc_seq = r64(r);
	c.mc_time_ns = r64(r);
	c.mc_obj = r64(r);
	c.mc_len = r32(r);
	c.mc_crc = r32(r);
	rbytes(r, c.mc_name, sizeof(c.mc_name));
	if (!body_ok(rdone(r) && name_ok(c.mc_name) && c.mc_obj && c.mc_len &&
		     c.mc_len % KV_BLOCK == 0 && number_ok(c.mc_epoch) && number_ok(c.mc_seq)))
		return BAD_BODY;
	for (i = 0; i < st->st_nckpt; i++)
		if (!state_ok(st->st_ckpt[i].mc_obj != c.mc_obj &&
			      strcmp(st->st_ckpt[i].mc_name, c.mc_name)))
			return BAD_STATE;
	if (!state_ok(st->st_nckpt < KVDB_CHECKPOINT_MAX))
		return BAD_STATE;
	if (grow(st, &st->st_ckpt, &st->st_ckptcap, st->st_nckpt + 1, sizeof(c)))
		return -ENOMEM;
	st->st_ckpt[st->st_nckpt++] = c;
	kv_mdc_state_gone_del(st, c.mc_obj);
	return 0;
}

static int fold_ckpt_drop(struct kv_mdc_state *st, struct reader *r)
{
	uint64_t obj = r64(r);
	size_t i = 0;

	if (!body_ok(rdone(r)))
		return BAD_BODY;
	while (i < st->st_nckpt && st->st_ckpt[i].mc_obj != obj)
		i++;
	if (!state_ok(i < st->st_nckpt))
		return BAD_STATE;
	if (gone_add(st, obj))
		return -ENOMEM;
	st->st_nckpt--;
	memmove(&st->st_ckpt[i], &st->st_ckpt[i + 1],
		(st->st_nckpt - i) * sizeof(st->st_ckpt[0]));
	return 0;
}

static int fold_time(struct kv_mdc_state *st, struct reader *r)
{
	uint64_t ms = r64(r);

	if (!body_ok(rdone(r) && number_ok(ms)))
		return BAD_BODY;
	if (ms > st->st_time)
		st->st_time = ms;
	return 0;
}

int kv_mdc_fold(struct kv_mdc_state *st, const uint8_t *rec, size_t len)
{
	struct reader r = { rec, rec + (len < KV_MDC_HDR ? len : KV_MDC_HDR), false };
	uint32_t magic = r32(&r), type = (uint32_t)rn(&r, 2), version = (uint32_t)rn(&r, 2);
	uint32_t rlen = r32(&r), crc = r32(&r);
	uint64_t tag = r64(&r);

	if (!CHECK(len >= KV_MDC_HDR && magic == KV_MDC_MAGIC))
		return 416;
	if (!CHECK(rlen == len && len <= KV_MDC_REC_MAX))
		return 417;
	if (!CHECK_CRC(kv_mdc_rec_crc(rec, len) == crc))
		return 418;
	if (!CHECK(version == KV_FORMAT))
		return -EOPNOTSUPP;
	if (!CHECK((type == KV_MDC_SUPER) == !st->st_has_super &&
		   (type == KV_MDC_SUPER || tag == st->st_super.ms_tag)))
		return 420;
	r.rd_end = rec + len;
	st->st_clean = false;
	switch (type) {
	case KV_MDC_SUPER:
		return fold_super(st, &r, tag);
	case KV_MDC_FEATURES:
		return fold_features(st, &r);
	case KV_MDC_KVS_ADD:
		return fold_kvs_add(st, &r);
	case KV_MDC_KVS_DROP:
		return fold_kvs_drop(st, &r);
	case KV_MDC_KVS_RENAME:
		return fold_kvs_rename(st, &r);
	case KV_MDC_EDIT:
		return fold_edit(st, &r);
	case KV_MDC_LEAVES:
		return fold_leaves(st, &r);
	case KV_MDC_CUTS:
	case KV_MDC_SEGS:
		return fold_segs(st, &r, type == KV_MDC_CUTS);
	case KV_MDC_INCARN:
		return fold_incarn(st, &r);
	case KV_MDC_CLEAN:
		return fold_clean(st, &r);
	case KV_MDC_GONE:
		return fold_gone(st, &r);
	case KV_MDC_TIME:
		return fold_time(st, &r);
	case KV_MDC_KVS_PROP:
		return fold_kvs_prop(st, &r);
	case KV_MDC_CKPT_ADD:
		return fold_ckpt_add(st, &r);
	case KV_MDC_CKPT_DROP:
		return fold_ckpt_drop(st, &r);
	default:
		return -EOPNOTSUPP;
	}
}

uint64_t *kv_mdc_state_blocks(const struct kv_mdc_state *st, bool with_gone, size_t *n)
{
	size_t cap = 1 + st->st_ngone, k = 0;
	uint32_t i, j, b;
	uint64_t *id;

	for (i = 0; i < st->st_nkvs; i++)
		for (j = 0; j < st->st_kvs[i].mk_nrun; j++)
			cap += st->st_kvs[i].mk_run[j].rd_n;
	id = malloc(cap * sizeof(*id));
	if (!id)
		return NULL;
	for (i = 0; i < st->st_nkvs; i++)
		for (j = 0; j < st->st_kvs[i].mk_nrun; j++)
			for (b = 0; b < st->st_kvs[i].mk_run[j].rd_n; b++)
				id[k++] = st->st_kvs[i].mk_run[j].rd_kb[b].kd_id;
	for (i = 0; with_gone && i < st->st_ngone; i++)
		id[k++] = st->st_gone[i];
	KV_ASSERT(k < cap);
	kv_ids_sort(id, k);
	*n = k;
	return id;
}

uint64_t kv_mdc_state_bytes(const struct kv_mdc_state *st)
{
	uint64_t n = 512 + (st->st_nseg / KV_MDC_PART + 2) * 64 + st->st_nseg * 24 +
		st->st_ngone * 8 + st->st_nckpt * 128;
	uint32_t i, j;

	for (i = 0; i < st->st_nkvs; i++) {
		n += 128 + 64 + 16 * KV_PROPS;
		for (j = 0; j < st->st_kvs[i].mk_nleaf; j++)
			n += KV_MDC_LEAF_BYTES + st->st_kvs[i].mk_leaf[j].ml_klen;
		for (j = 0; j < st->st_kvs[i].mk_nrun; j++)
			n += KV_MDC_RUN_BYTES + 16ull * st->st_kvs[i].mk_run[j].rd_n;
	}
	/* the container frames each record and pads to blocks now and then */
	return n + n / 16 + 2 * KV_BLOCK;
}
