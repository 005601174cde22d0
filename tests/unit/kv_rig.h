/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A struct kvdb on a small pool of plain files with just the parts that runs,
 * pages and values need: no logs, no container, no threads. And a model: an
 * array of entries whose values are known, in key order.
 */
#ifndef TESTS_KV_RIG_H
#define TESTS_KV_RIG_H

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/key.h"
#include "base/stream.h"
#include "db/db.h"
#include "db/hooks.h"
#include "cache/slab.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/iter.h"
#include "cache/pages.h"
#include "run/run.h"
#include "run/run_omf.h"
#include "db/thread.h"
#include "harness.h"
#include "obj_flip.h"

#define RIG_SEGS	4u
#define RIG_SEG_BYTES	(256u << 10)

struct rig {
	char dir[256];
	struct kvdb db;
	struct kv_seg *seg[RIG_SEGS];
	uint8_t *content[RIG_SEGS];	/* what the segments hold */
	uint64_t rnd;
};

static _Atomic(uint64_t) rig_ns;	/* the clock of all rigs */

static inline uint64_t rig_now(void *arg)
{
	(void)arg;
	return atomic_load(&rig_ns);
}

static inline void rig_open(struct rig *r, uint64_t slab_bytes, uint64_t pool_bytes)
{
	struct mpool_dev_spec dev = { .mclass = MPOOL_CAPACITY, .size = pool_bytes };
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	const char *tmp = getenv("TMPDIR");

	memset(r, 0, sizeof(*r));
	r->rnd = t_seed();
	snprintf(r->dir, sizeof(r->dir), "%s/kvrig-XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(r->dir));
	co.devs = &dev;
	co.ndevs = 1;
	co.name = "rig";
	T_EQ(mpool_create(r->dir, &co), 0);
	T_EQ(mpool_open(r->dir, NULL, &r->db.d_mp), 0);
	r->db.d_hooks = &kv_hooks;
	r->db.d_ident.id_tag = 0x1234567890abcdefull;
	r->db.d_time.et_clock.now_ns = rig_now;
	r->db.d_mode.md_log_class = MPOOL_CAPACITY;
	r->db.d_budget = (struct kv_budget){
		.b_cache_bytes = 64 << 20, .b_log_bytes = 1 << 20, .b_mt_bytes = 1 << 20,
		.b_slab_bytes = slab_bytes, .b_seg_bytes = RIG_SEG_BYTES, .b_logs = 1,
		.b_threads = 1, .b_kblock_bytes = 1 << 20, .b_near_bytes = 64 << 20,
	};
	T_EQ(kv_threads_init(&r->db), 0);
	T_EQ(kv_segs_init(&r->db), 0);
	T_EQ(kv_slabs_init(&r->db), 0);
	T_EQ(kv_pagepool_init(&r->db), 0);
}

/* Segments full of random bytes, written to the pool, without images. */
static inline void rig_segs(struct rig *r)
{
	for (unsigned i = 0; i < RIG_SEGS; i++) {
		struct iovec iov;

		T_EQ(kv_seg_alloc(&r->db, 0, KV_VLOG, RIG_SEG_BYTES, false, &r->seg[i]), 0);
		r->content[i] = aligned_alloc(4096, RIG_SEG_BYTES);
		for (unsigned j = 0; j < RIG_SEG_BYTES; j += 8) {
			uint64_t v = t_rand(&r->rnd);

			memcpy(r->content[i] + j, &v, 8);
		}
		iov = (struct iovec){ .iov_base = r->content[i], .iov_len = RIG_SEG_BYTES };
		T_EQ(mpool_write(r->seg[i]->sg_obj, 0, &iov, 1), 0);
	}
}

/* Is the page in the pool? */
static inline bool rig_has_page(struct rig *r, uint64_t obj, uint64_t no)
{
	struct kv_thread *t = kv_enter();
	bool has = kv_page_peek(&r->db, obj, no) != NULL;

	kv_exit(t);
	return has;
}

/* Where in its object an area of a key block begins, as its footer says. */
static inline uint64_t rig_area_off(struct kv_run *run, uint32_t block, enum kv_karea area)
{
	uint64_t foot = run->rn_desc.rd_kb[block].kd_len - 4096;
	struct iovec iov = { .iov_base = aligned_alloc(4096, 4096), .iov_len = 4096 };
	uint32_t off;

	T_EQ(mpool_read(run->rn_kb[block].kb_obj, foot, &iov, 1), 0);
	off = kv_le32((const uint8_t *)iov.iov_base + 80 + 16 * area);
	free(iov.iov_base);
	return off;
}

/* What lies between the key pages and the footer, as on media; free() it. */
static inline uint8_t *rig_index(const struct kv_run *run, uint32_t block, uint32_t *len)
{
	const struct kv_kblock *kb = &run->rn_kb[block];
	uint32_t base = kb->kb_npages * 4096;
	struct iovec iov;

	*len = run->rn_desc.rd_kb[block].kd_len - 4096 - base;
	iov = (struct iovec){ .iov_base = aligned_alloc(4096, *len), .iov_len = *len };
	T_EQ(mpool_read(kb->kb_obj, base, &iov, 1), 0);
	return iov.iov_base;
}

/* Everything must be given back: a handle that leaked keeps the pool busy. */
/* A key of 8 bytes that counts, in a run. */
static inline int rig_look(struct rig *r, struct kv_run *run, uint64_t i)
{
	uint64_t key = __builtin_bswap64(i);
	struct kv_thread *t;
	struct kv_ent e;
	int rc;

	kv_pages_room(&r->db, KV_GET_PAGES);
	t = kv_enter();
	rc = kv_run_lookup(&r->db, run, &key, 8, kv_hash(&key, 8), &e);
	kv_exit(t);
	return rc;
}

static inline void rig_close(struct rig *r)
{
	struct mpool *mp = r->db.d_mp;

	kv_retire_barrier();
	kv_retire_barrier();
	kv_pagepool_fini(&r->db);
	kv_slabs_fini(&r->db);
	for (unsigned i = 0; i < RIG_SEGS; i++)
		free(r->content[i]);
	kv_segs_fini(&r->db);
	kv_retire_barrier();
	kv_threads_fini(&r->db);
	T_EQ(mpool_close(mp), 0);
	T_EQ(mpool_destroy(r->dir, NULL), 0);
	rmdir(r->dir);
}

/* ---- the model -------------------------------------------------------------------- */

struct rec {
	uint8_t *key;
	uint16_t klen;
	uint8_t kind;
	uint8_t seg;
	uint32_t vlen, off8;
	uint64_t seq;
	uint8_t val[KV_INLINE_MAX];
};

static inline const uint8_t *rec_val(const struct rig *r, const struct rec *m)
{
	return m->kind == KV_ENT_INLINE ? m->val : r->content[m->seg] + (size_t)m->off8 * 8;
}

static inline void rec_ent(const struct rig *r, const struct rec *m, struct kv_ent *e)
{
	*e = (struct kv_ent){ .e_key = m->key, .e_klen = m->klen, .e_kind = m->kind,
			      .e_seq = m->seq };
	if (m->kind == KV_ENT_TOMB)
		return;
	e->e_vlen = m->vlen;
	e->e_vcrc = mpool_crc32c(0, rec_val(r, m), m->vlen);
	if (m->kind == KV_ENT_INLINE) {
		e->e_val = m->val;
	} else {
		e->e_seg = r->seg[m->seg];
		e->e_off8 = m->off8;
	}
}

static inline int rec_cmp(const void *a, const void *b)
{
	const struct rec *x = a, *y = b;

	return kv_kcmp(x->key, x->klen, y->key, y->klen);
}

/* A key of one of several shapes: short, long, common prefixes, zeros, 0xff. */
static inline uint16_t rig_key(struct rig *r, uint8_t *key)
{
	uint64_t x = t_rand(&r->rnd);
	unsigned shape = x % 8, len;

	switch (shape) {
	case 0:
		len = 1 + (x >> 8) % 3;
		break;
	case 1:
		len = 1 + (x >> 8) % KVDB_KEY_MAX;
		break;
	case 2:
		len = 1 + (x >> 8) % 8;
		break;
	default:
		return (uint16_t)sprintf((char *)key, "user%020llu",
					 (unsigned long long)(t_rand(&r->rnd) >> 20));
	}
	for (unsigned i = 0; i < len; i++) {
		uint8_t b = (uint8_t)t_rand(&r->rnd);

		key[i] = shape == 2 ? (b & 1 ? 0 : 0xff) : shape == 1 && i + 8 < len ? 'p' : b;
	}
	return (uint16_t)len;
}

static inline void rec_random(struct rig *r, struct rec *m, uint64_t seq)
{
	uint64_t x = t_rand(&r->rnd);

	m->seq = seq;
	m->kind = (uint8_t)(KV_ENT_TOMB + x % 3);
	if (m->kind == KV_ENT_REF && !r->seg[0])
		m->kind = KV_ENT_INLINE;
	m->vlen = 0;
	if (m->kind == KV_ENT_INLINE) {
		m->vlen = (x >> 8) % (KV_INLINE_MAX + 1);
		for (unsigned i = 0; i < m->vlen; i++)
			m->val[i] = (uint8_t)t_rand(&r->rnd);
	} else if (m->kind == KV_ENT_REF) {
		m->seg = (x >> 8) % RIG_SEGS;
		m->vlen = (x >> 16) % 5000;
		m->off8 = (uint32_t)((x >> 32) % ((RIG_SEG_BYTES - m->vlen) / 8));
	}
}

/* Up to @n records with distinct keys in order; *got of them. */
static inline struct rec *model_make(struct rig *r, unsigned n, unsigned *got)
{
	struct rec *m = calloc(n, sizeof(*m));
	uint8_t key[KVDB_KEY_MAX + 32];
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++) {
		m[i].klen = rig_key(r, key);
		m[i].key = malloc(m[i].klen);
		memcpy(m[i].key, key, m[i].klen);
		rec_random(r, &m[i], 1000 + t_rand(&r->rnd) % 100000);
	}
	qsort(m, n, sizeof(*m), rec_cmp);
	for (unsigned i = 0; i < n; i++) {
		if (k && !rec_cmp(&m[k - 1], &m[i]))
			free(m[i].key);
		else
			m[k++] = m[i];
	}
	*got = k;
	return m;
}

static inline void model_free(struct rec *m, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		free(m[i].key);
	free(m);
}

/* Number of records with a key < (or <= when @upto) the key. */
static inline unsigned model_below(const struct rec *m, unsigned n, const uint8_t *key,
				   size_t klen, bool upto)
{
	unsigned lo = 0, hi = n;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;
		int c = kv_kcmp(m[mid].key, m[mid].klen, key, klen);

		if (c < 0 || (upto && !c))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static inline struct kv_run *model_run(struct rig *r, const struct rec *m, unsigned n)
{
	struct kv_run_build *rb;
	struct kv_run *run = NULL;
	struct kv_ent e;

	T_EQ(kv_run_build_open(&r->db, 7, n, false, &rb), 0);
	for (unsigned i = 0; i < n; i++) {
		rec_ent(r, &m[i], &e);
		T_EQ(kv_run_build_add(rb, &e), 0);
	}
	T_EQ(kv_run_build_finish(rb, &run), 0);
	return run;
}

static inline void rig_commit(struct rig *r, struct kv_run *run)
{
	struct kv_run_desc *d = kv_run_desc(run);

	for (uint32_t i = 0; i < d->rd_n; i++) {
		struct mpool_op op = { .type = MPOOL_OP_COMMIT, .obj = kv_run_obj(run, i),
				       .length = d->rd_kb[i].kd_len };

		T_EQ(mpool_batch(r->db.d_mp, &op, 1), 0);
	}
}

/* A copy of a description, which outlives its run. */
static inline struct kv_run_desc desc_copy(struct kv_run *run)
{
	struct kv_run_desc d = *kv_run_desc(run);
	struct kv_kblock_desc *kb = malloc(d.rd_n * sizeof(*kb));

	memcpy(kb, d.rd_kb, d.rd_n * sizeof(*kb));
	d.rd_kb = kb;
	return d;
}

/* Steps of an iterator by a thread outside kv_enter(). */
static inline int iter_next(struct kv_iter *it, struct kv_ent *e)
{
	int rc = it->it_ops->next(it, e);

	kv_iter_park(it);
	return rc;
}

static inline int iter_seek(struct kv_iter *it, const void *key, size_t klen)
{
	int rc = it->it_ops->seek(it, key, klen);

	kv_iter_park(it);
	return rc;
}

/* Whether @e says what @m says; values are read. */
static inline int ent_same(struct rig *r, const struct kv_ent *e, const struct rec *m)
{
	static uint8_t buf[KVDB_VALUE_MAX];
	struct kv_thread *t;
	int rc;

	if (e->e_klen != m->klen || memcmp(e->e_key, m->key, m->klen) || e->e_kind != m->kind ||
	    e->e_seq != m->seq || e->e_vlen != (m->kind == KV_ENT_TOMB ? 0 : m->vlen))
		return 0;
	if (m->kind == KV_ENT_TOMB)
		return 1;
	t = kv_enter();
	rc = kv_value_read(&r->db, e, buf, sizeof(buf));
	kv_exit(t);
	return !rc && !memcmp(buf, rec_val(r, m), m->vlen);
}

/* A committed object of @pages pages; page n holds n in every word. */
static inline struct mpool_obj *rig_numbered(struct rig *r, uint64_t pages)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .mclass = MPOOL_CAPACITY,
				   .capacity = pages * 4096, .tag = r->db.d_ident.id_tag };
	uint64_t *buf = aligned_alloc(4096, pages * 4096);
	struct iovec iov = { .iov_base = buf, .iov_len = pages * 4096 };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT, .length = pages * 4096 };

	T_EQ(mpool_alloc(r->db.d_mp, &req, 1, &op.obj), 0);
	for (uint64_t i = 0; i < pages * 512; i++)
		buf[i] = i / 512;
	T_EQ(mpool_write(op.obj, 0, &iov, 1), 0);
	T_EQ(mpool_batch(r->db.d_mp, &op, 1), 0);
	free(buf);
	return op.obj;
}

#endif
