/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Runs: what is built is found, walked and read back; what is damaged is
 * refused and never becomes another answer.
 */
#include "kv_rig.h"
#include "base/hash.h"
#include "seg/kv_omf.h"
#include "run/run_fence.h"
#include "run/run_near.h"
#include "run/run_omf.h"

static struct rig r;

static void check_lookups(struct kv_run *run, const struct rec *m, unsigned n)
{
	uint8_t key[KVDB_KEY_MAX + 32];
	struct kv_ent e;

	for (unsigned i = 0; i < n; i++) {
		struct kv_thread *t = kv_enter();
		int rc = kv_run_lookup(&r.db, run, m[i].key, m[i].klen,
				       kv_hash(m[i].key, m[i].klen), &e);
		int same = !rc && ent_same(&r, &e, &m[i]);

		kv_exit(t);
		T_EQ(rc, 0);
		T_OK(same);
	}
	for (unsigned i = 0; i < 2000; i++) {
		uint16_t klen = rig_key(&r, key);
		unsigned at = model_below(m, n, key, klen, false);
		bool there = at < n && !kv_kcmp(m[at].key, m[at].klen, key, klen);
		struct kv_thread *t = kv_enter();
		int rc = kv_run_lookup(&r.db, run, key, klen, kv_hash(key, klen), &e);

		kv_exit(t);
		T_EQ(rc, there ? 0 : -ENOENT);
	}
}

static void check_walk(struct kv_run *run, const struct rec *m, unsigned n, bool reverse)
{
	uint8_t key[KVDB_KEY_MAX + 32];
	struct kv_iter *it;
	struct kv_ent e;

	T_EQ(kv_run_iter(&r.db, run, reverse, &it), 0);
	for (unsigned i = 0; i < n; i++) {
		T_EQ(iter_next(it, &e), 0);
		T_OK(ent_same(&r, &e, &m[reverse ? n - 1 - i : i]));
	}
	T_EQ(iter_next(it, &e), -ENOENT);
	T_EQ(iter_next(it, &e), -ENOENT);
	for (unsigned i = 0; i < 400; i++) {
		uint16_t klen = rig_key(&r, key);
		int64_t at = model_below(m, n, key, klen, reverse);

		T_EQ(iter_seek(it, key, klen), 0);
		if (reverse)
			at--;
		for (unsigned j = 0; j < 5; j++, at += reverse ? -1 : 1) {
			int rc = iter_next(it, &e);

			T_EQ(rc, at < 0 || at >= n ? -ENOENT : 0);
			if (rc)
				break;
			T_OK(ent_same(&r, &e, &m[at]));
		}
	}
	it->it_ops->close(it);
}

static void runs_of(unsigned n)
{
	struct kv_run_desc d;
	struct kv_run *run;
	struct rec *m;
	unsigned got;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	m = model_make(&r, n, &got);
	run = model_run(&r, m, got);
	T_EQ(kv_run_desc(run)->rd_keys, got);
	check_lookups(run, m, got);
	rig_commit(&r, run);
	d = desc_copy(run);
	kv_run_put(&r.db, run);
	for (uint32_t i = 0; i < d.rd_n; i++)
		kv_page_purge(&r.db, d.rd_kb[i].kd_id, 4096);
	T_EQ(kv_run_open(&r.db, &d, &run), 0);
	check_walk(run, m, got, false);
	check_walk(run, m, got, true);
	check_lookups(run, m, got);
	kv_run_put(&r.db, run);
	free(d.rd_kb);
	model_free(m, got);
	rig_close(&r);
}

static void one_key_round_trips(void)
{
	runs_of(1);
}

static void hundreds_of_keys_round_trip(void)
{
	runs_of(700);
}

static void many_blocks_round_trip(void)
{
	runs_of(12000);
}

static void largest_keys_fit_two_a_page(void)
{
	uint8_t key[KVDB_KEY_MAX], val[KV_INLINE_MAX] = { 1 };
	struct kv_ent e = { .e_key = key, .e_klen = KVDB_KEY_MAX, .e_kind = KV_ENT_INLINE,
			    .e_vlen = KV_INLINE_MAX, .e_val = val };
	struct kv_run_build *rb;
	struct kv_run *run;

	rig_open(&r, 4 << 20, 64 << 20);
	T_EQ(kv_run_build_open(&r.db, 7, 0, false, &rb), 0);
	for (unsigned i = 0; i < 200; i++) {
		for (unsigned j = 0; j < sizeof(key); j++)
			key[j] = (uint8_t)t_rand(&r.rnd);
		key[0] = (uint8_t)i;
		e.e_seq = t_rand(&r.rnd) % KV_NUMBER_END;
		T_EQ(kv_run_build_add(rb, &e), 0);
	}
	T_EQ(kv_run_build_finish(rb, &run), 0);
	T_OK(run->rn_kb[0].kb_npages <= 100);
	kv_run_put(&r.db, run);
	rig_close(&r);
}

/* All pages go, and their memory is another object's. */
static void pages_go(const struct kv_run_desc *d)
{
	uint8_t junk[KV_PAGE];

	for (uint32_t i = 0; i < d->rd_n; i++)
		kv_page_purge(&r.db, d->rd_kb[i].kd_id, 4096);
	kv_retire_barrier();
	memset(junk, 0xa5, sizeof(junk));
	for (uint64_t no = 0; no < 2048; no++)
		kv_page_add(&r.db, UINT64_MAX, no, junk, true);
	kv_page_purge(&r.db, UINT64_MAX, 2048);
	kv_retire_barrier();
}

static void a_walk_that_is_outside_has_no_page_in_hand(void)
{
	struct kv_run *run;
	struct kv_iter *it;
	struct kv_ent e;
	struct rec *m;
	unsigned got;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	m = model_make(&r, 2000, &got);
	run = model_run(&r, m, got);
	rig_commit(&r, run);
	T_EQ(kv_run_iter(&r.db, run, false, &it), 0);
	for (unsigned i = 0; i < got; i += got / 20) {
		T_EQ(it->it_ops->seek(it, m[i].key, m[i].klen), 0);
		for (unsigned k = i; k < i + 3 && k < got; k++) {
			pages_go(kv_run_desc(run));
			T_EQ(it->it_ops->next(it, &e), 0);
			T_OK(ent_same(&r, &e, &m[k]));
		}
	}
	it->it_ops->close(it);
	kv_run_put(&r.db, run);
	model_free(m, got);
	rig_close(&r);
}

/* Fetches ahead for the key: does the seek then find all in memory? */
static bool ahead(struct kv_iter *it, const struct rec *m)
{
	struct kv_thread *t = kv_enter();
	bool is_near = true;

	for (unsigned step = 0; step < KV_AHEAD_STEPS; step++)
		is_near &= it->it_ops->ahead(it, m->key, m->klen, step);
	kv_exit(t);
	return is_near;
}

static void a_seek_that_was_fetched_ahead_finds_the_same(void)
{
	struct kv_run *run;
	struct kv_iter *it;
	struct kv_ent e;
	struct rec *m;
	unsigned got;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	m = model_make(&r, 2000, &got);
	run = model_run(&r, m, got);
	rig_commit(&r, run);
	T_EQ(kv_run_iter(&r.db, run, false, &it), 0);
	for (unsigned i = 0; i < got; i += got / 20) {
		pages_go(kv_run_desc(run));
		T_OK(!ahead(it, &m[i]));
		T_EQ(it->it_ops->seek(it, m[i].key, m[i].klen), 0);
		T_OK(ahead(it, &m[i]));
		/* and then for another key, which is as if there was none */
		T_EQ(it->it_ops->seek(it, m[i].key, m[i].klen), 0);
		T_EQ(it->it_ops->seek(it, m[got - 1 - i].key, m[got - 1 - i].klen), 0);
		T_EQ(it->it_ops->next(it, &e), 0);
		T_OK(ent_same(&r, &e, &m[got - 1 - i]));
		T_OK(ahead(it, &m[i]));
		T_EQ(it->it_ops->seek(it, NULL, 0), 0);
		T_EQ(it->it_ops->next(it, &e), 0);
		T_OK(ent_same(&r, &e, &m[0]));
	}
	it->it_ops->close(it);
	kv_run_put(&r.db, run);
	model_free(m, got);
	rig_close(&r);
}

static void empty_build_gives_no_run(void)
{
	struct kv_run *run = (void *)1;
	struct kv_run_build *rb;

	rig_open(&r, 4 << 20, 64 << 20);
	T_EQ(kv_run_build_open(&r.db, 7, 0, false, &rb), 0);
	T_EQ(kv_run_build_finish(rb, &run), 0);
	T_OK(!run);
	rig_close(&r);
}

static void keys_out_of_order_are_refused(void)
{
	struct kv_ent e = { .e_key = (const uint8_t *)"b", .e_klen = 1, .e_kind = KV_ENT_TOMB };
	struct kv_run_build *rb;

	rig_open(&r, 4 << 20, 64 << 20);
	T_EQ(kv_run_build_open(&r.db, 7, 0, false, &rb), 0);
	T_EQ(kv_run_build_add(rb, &e), 0);
	T_EQ(kv_run_build_add(rb, &e), -EUCLEAN);
	e.e_key = (const uint8_t *)"a";
	T_EQ(kv_run_build_add(rb, &e), -EUCLEAN);
	kv_run_build_abort(rb);
	rig_close(&r);
}

static void entries_that_no_run_can_hold_are_refused(void)
{
	static const uint8_t key[KVDB_KEY_MAX + 1] = "k";
	static const struct kv_ent bad[] = {
		{ .e_kind = KV_ENT_TOMB },
		{ .e_kind = KV_ENT_TOMB, .e_klen = KVDB_KEY_MAX + 1 },
		{ .e_kind = KV_ENT_TOMB - 1, .e_klen = 1 },
		{ .e_kind = KV_ENT_REF + 1, .e_klen = 1 },
		{ .e_kind = KV_ENT_INLINE, .e_klen = 1, .e_vlen = KV_INLINE_MAX + 1 },
	};
	struct kv_run_build *rb;
	struct kv_ent e;

	rig_open(&r, 4 << 20, 64 << 20);
	T_EQ(kv_run_build_open(&r.db, 7, 0, false, &rb), 0);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		e = bad[i];
		e.e_key = key;
		T_EQ(kv_run_build_add(rb, &e), -EINVAL);
	}
	kv_run_build_abort(rb);
	rig_close(&r);
}

static void segment_table_counts_what_is_referred_to(void)
{
	struct kv_run *run;
	struct rec *m;
	unsigned got;
	uint64_t n = 0, bytes = 0, want_n = 0, want_bytes = 0;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	m = model_make(&r, 1000, &got);
	run = model_run(&r, m, got);
	for (unsigned i = 0; i < got; i++) {
		want_n += m[i].kind == KV_ENT_REF;
		want_bytes += m[i].kind == KV_ENT_REF ? m[i].vlen : 0;
	}
	for (uint32_t i = 0; i < run->rn_n; i++) {
		for (uint32_t j = 0; j < run->rn_kb[i].kb_nsegs; j++) {
			struct kv_kseg ks;

			kv_kseg_decode(run->rn_kb[i].kb_segtab + j * KV_KSEG_SIZE, &ks);
			T_EQ(ks.ks_id, run->rn_kb[i].kb_segs[j]->sg_id);
			n += ks.ks_n;
			bytes += ks.ks_bytes;
		}
	}
	T_EQ(n, want_n);
	T_EQ(bytes, want_bytes);
	kv_run_put(&r.db, run);
	model_free(m, got);
	rig_close(&r);
}

/* ---- damage -------------------------------------------------------------------------- */

/* Every answer is the right one or -EUCLEAN; returns the number of refusals. */
static unsigned answers_are_right(const struct kv_run_desc *d, const struct rec *m, unsigned n)
{
	struct kv_run *run;
	struct kv_iter *it;
	struct kv_ent e;
	unsigned bad = 0, i;
	int rc = kv_run_open(&r.db, d, &run);

	if (rc) {
		T_EQ(rc, -EUCLEAN);
		T_OK(strstr(kvdb_error_detail()->text, "key block"));
		return 1;
	}
	for (i = 0; i < n; i++) {
		struct kv_thread *t = kv_enter();
		int same;

		rc = kv_run_lookup(&r.db, run, m[i].key, m[i].klen,
				   kv_hash(m[i].key, m[i].klen), &e);
		same = !rc && ent_same(&r, &e, &m[i]);
		kv_exit(t);
		T_OK(rc == -EUCLEAN || (!rc && same));
		bad += rc != 0;
	}
	T_EQ(kv_run_iter_bulk(&r.db, run, &it), 0);
	for (i = 0; !(rc = iter_next(it, &e)); i++)
		T_OK(i < n && ent_same(&r, &e, &m[i]));
	T_OK(rc == -EUCLEAN || (rc == -ENOENT && i == n));
	bad += rc == -EUCLEAN;
	it->it_ops->close(it);
	kv_run_put(&r.db, run);
	return bad;
}

static void bit_flips_never_give_wrong_data(void)
{
	unsigned got, flips = getenv("TEST_SHORT") ? 60 : 300, refused = 0, inside = 0;
	struct kv_run_desc d;
	struct kv_run *run;
	struct kv_kblock *kb;
	struct mpool_obj *obj;
	uint64_t areas;
	struct rec *m;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	m = model_make(&r, 120, &got);
	run = model_run(&r, m, got);
	rig_commit(&r, run);
	d = desc_copy(run);
	T_EQ(d.rd_n, 1);
	kb = &run->rn_kb[0];
	areas = rig_area_off(run, 0, KV_AREA_SEGS) + kb->kb_nsegs * KV_KSEG_SIZE;
	obj = mpool_obj_get(kb->kb_obj);
	T_EQ(answers_are_right(&d, m, got), 0);
	for (unsigned i = 0; i < flips; i++) {
		uint64_t off = t_rand(&r.rnd) % d.rd_kb[0].kd_len;
		uint8_t x = (uint8_t)(1u << t_rand(&r.rnd) % 8);
		unsigned bad;

		if (i % 3 == 0)	/* index areas and footer are small: hit them too */
			off = areas - 1 - t_rand(&r.rnd) % (areas - kb->kb_npages * KV_PAGE);
		else if (i % 3 == 1)
			off = d.rd_kb[0].kd_len - 1 - t_rand(&r.rnd) % KV_PAGE;
		obj_flip(obj, off, x);
		kv_page_purge(&r.db, d.rd_kb[0].kd_id, 4096);
		bad = answers_are_right(&d, m, got);
		obj_flip(obj, off, x);
		refused += bad > 0;
		inside += off < areas || off >= d.rd_kb[0].kd_len - KV_PAGE;
		/* only the unused gaps between areas may be changed unseen */
		T_OK(bad || (off >= (uint64_t)kb->kb_npages * KV_PAGE &&
			     off < d.rd_kb[0].kd_len - KV_PAGE));
	}
	T_OK(refused >= inside * 9 / 10);
	kv_page_purge(&r.db, d.rd_kb[0].kd_id, 4096);
	T_EQ(answers_are_right(&d, m, got), 0);
	mpool_obj_close(obj);
	kv_run_put(&r.db, run);
	free(d.rd_kb);
	model_free(m, got);
	rig_close(&r);
}

/* Walks up to the damaged page @bad of the first block; it is read with its neighbours. */
static void walk_to(struct kv_run *run, const struct rec *m, unsigned n, uint32_t bad, bool reverse)
{
	const struct kv_kblock *kb = &run->rn_kb[0];
	unsigned want, i = 0;
	struct kv_fences fe;
	const uint8_t *sep;
	char text[64];
	struct kv_iter *it;
	struct kv_ent e;
	size_t len;
	int rc;

	fe = kv_fences_in(kb, atomic_load(&kb->kb_fences));
	sep = kv_fence_sep(&fe, bad + reverse, &len);
	want = model_below(m, n, sep, len, false);
	want = reverse ? n - want : want;
	kv_page_purge(&r.db, kb->kb_id, kb->kb_npages);
	T_EQ(kv_run_iter(&r.db, run, reverse, &it), 0);
	for (; !(rc = iter_next(it, &e)); i++)
		T_OK(i < n && ent_same(&r, &e, &m[reverse ? n - 1 - i : i]));
	it->it_ops->close(it);
	T_EQ(rc, -EUCLEAN);
	T_EQ(i, want);
	snprintf(text, sizeof(text), "offset %u:", bad * KV_PAGE);
	T_OK(strstr(kvdb_error_detail()->text, text));
}

static void a_walk_shows_what_lies_before_a_damaged_page(void)
{
	struct kv_run *run;
	struct rec *m;
	unsigned got;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	m = model_make(&r, 9000, &got);
	run = model_run(&r, m, got);
	rig_commit(&r, run);
	T_OK(run->rn_kb[0].kb_npages > 45);
	for (uint32_t bad = 20; bad < 40; bad += 3) {
		obj_flip(run->rn_kb[0].kb_obj, bad * KV_PAGE + 100, 1);
		walk_to(run, m, got, bad, false);
		walk_to(run, m, got, bad, true);
		obj_flip(run->rn_kb[0].kb_obj, bad * KV_PAGE + 100, 1);
	}
	kv_run_put(&r.db, run);
	model_free(m, got);
	rig_close(&r);
}

static void wrong_parent_crc_is_refused(void)
{
	struct kv_run_desc d;
	struct kv_run *run;
	struct rec *m;
	unsigned got;

	rig_open(&r, 4 << 20, 64 << 20);
	m = model_make(&r, 100, &got);
	run = model_run(&r, m, got);
	rig_commit(&r, run);
	d = desc_copy(run);
	kv_run_put(&r.db, run);
	d.rd_kb[0].kd_crc ^= 1;
	T_EQ(kv_run_open(&r.db, &d, &run), -EUCLEAN);
	d.rd_kb[0].kd_crc ^= 1;
	d.rd_kb[0].kd_len += 4096;
	T_EQ(kv_run_open(&r.db, &d, &run), -EUCLEAN);
	d.rd_kb[0].kd_len -= 4096;
	d.rd_kvs++;
	T_EQ(kv_run_open(&r.db, &d, &run), -EUCLEAN);
	d.rd_kvs--;
	d.rd_kb[0].kd_id += 1000;
	T_EQ(kv_run_open(&r.db, &d, &run), -EUCLEAN);
	free(d.rd_kb);
	model_free(m, got);
	rig_close(&r);
}

/* What an open keeps of a block it checks whole: also a count that no answer shows. */
static void a_damaged_segment_table_is_refused(void)
{
	struct mpool_obj *obj;
	struct kv_run_desc d;
	struct kv_run *run;
	struct rec *m;
	uint64_t off;
	unsigned got;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	m = model_make(&r, 100, &got);
	run = model_run(&r, m, got);
	T_OK(run->rn_kb[0].kb_nsegs > 0);
	rig_commit(&r, run);
	d = desc_copy(run);
	off = rig_area_off(run, 0, KV_AREA_SEGS) + KV_KSEG_SIZE - 8;
	obj = mpool_obj_get(run->rn_kb[0].kb_obj);
	kv_run_put(&r.db, run);
	obj_flip(obj, off, 1);
	T_EQ(kv_run_open(&r.db, &d, &run), -EUCLEAN);
	obj_flip(obj, off, 1);
	T_EQ(kv_run_open(&r.db, &d, &run), 0);
	kv_run_put(&r.db, run);
	mpool_obj_close(obj);
	free(d.rd_kb);
	model_free(m, got);
	rig_close(&r);
}

static void blocks_in_wrong_order_are_refused(void)
{
	struct kv_kblock_desc tmp;
	struct kv_run_desc d;
	struct kv_run *run;
	struct rec *m;
	unsigned got;

	rig_open(&r, 4 << 20, 64 << 20);
	r.db.d_budget.b_kblock_bytes = 256 << 10;
	m = model_make(&r, 12000, &got);
	run = model_run(&r, m, got);
	rig_commit(&r, run);
	d = desc_copy(run);
	kv_run_put(&r.db, run);
	T_OK(d.rd_n >= 2);
	tmp = d.rd_kb[0];
	d.rd_kb[0] = d.rd_kb[1];
	d.rd_kb[1] = tmp;
	T_EQ(kv_run_open(&r.db, &d, &run), -EUCLEAN);
	d.rd_kb[0] = d.rd_kb[1];
	T_EQ(kv_run_open(&r.db, &d, &run), -EUCLEAN);
	d.rd_n = 0;
	T_EQ(kv_run_open(&r.db, &d, &run), -EUCLEAN);
	free(d.rd_kb);
	model_free(m, got);
	rig_close(&r);
}

/* The areas of a block with right CRCs but a row or an entry that points nowhere. */
static void references_to_nowhere_are_refused(void)
{
	struct kv_kent ke = { .ke_kind = KV_ENT_REF };
	struct kv_kfoot *f = calloc(1, sizeof(*f));
	struct kv_kblock k = { .kb_npages = 0 };
	struct kv_near_own own = { 0 };
	struct kv_kblock *kb;
	struct kv_run *run;
	struct kv_ent e;
	struct rec *m;
	uint8_t *page = aligned_alloc(4096, KV_PAGE), *index;
	struct iovec iov = { .iov_base = page, .iov_len = KV_PAGE };
	uint32_t len, row, n;
	unsigned got;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	m = model_make(&r, 300, &got);
	run = model_run(&r, m, got);
	kb = &run->rn_kb[0];
	len = run->rn_desc.rd_kb[0].kd_len;
	T_EQ(mpool_read(kb->kb_obj, len - KV_PAGE, &iov, 1), 0);
	T_OK(!kv_kfoot_decode(page, run->rn_desc.rd_kb[0].kd_crc, r.db.d_ident.id_tag, kb->kb_id, 7,
			      len, f));
	ke.ke_seg = kb->kb_nsegs - 1;
	T_EQ(kv_kblock_ent(kb, 0, &ke, &e), 0);
	ke.ke_seg = kb->kb_nsegs;
	T_EQ(kv_kblock_ent(kb, 0, &ke, &e), -EUCLEAN);
	index = rig_index(run, 0, &n);
	row = (uint32_t)rig_area_off(run, 0, KV_AREA_SEGS) - kb->kb_npages * KV_PAGE;
	kv_le64_set(index + row, 987654321);
	f->kf_area[KV_AREA_SEGS].ar_crc =
		mpool_crc32c(0, index + row, f->kf_area[KV_AREA_SEGS].ar_len);
	T_EQ(kv_kblock_attach(&r.db, &k, f, index, NULL, &own), -EUCLEAN);
	free(index);
	T_OK(strstr(kvdb_error_detail()->text, "987654321"));
	kv_kblock_free(&r.db, &k);
	kv_run_put(&r.db, run);
	free(page);
	free(f);
	model_free(m, got);
	rig_close(&r);
}

/* A footer of two pages and one key with room behind the areas. */
static void plain_foot(struct kv_kfoot *f)
{
	memset(f, 0, sizeof(*f));
	f->kf_tag = 1;
	f->kf_obj = 2;
	f->kf_kvs = 3;
	f->kf_npages = 2;
	f->kf_nkeys = 1;
	f->kf_min_klen = f->kf_max_klen = 1;
	f->kf_min[0] = f->kf_max[0] = 'k';
	f->kf_min_seq = f->kf_max_seq = 5;
	for (unsigned i = 0; i < KV_AREAS; i++)
		f->kf_area[i].ar_off = 8192 + 128 * i;
	f->kf_area[KV_AREA_FENCE].ar_len = f->kf_area[KV_AREA_PAGECRC].ar_len = 8;
	f->kf_area[KV_AREA_FILTER].ar_len = 64;
	f->kf_area[KV_AREA_SEGS].ar_len = 24;
}

static void each_footer_check_works(void)
{
	static const struct {
		uint16_t off, size;
		uint32_t val;
	} bad[] = {
		{ 0, 4, 1 }, { 4, 2, 0x101 }, { 6, 2, 1 }, { 8, 4, 9 }, { 16, 4, 9 }, { 24, 4, 9 },
		{ 28, 4, 0 }, { 28, 4, 3 }, { 32, 4, 0 }, { 32, 4, 801 }, { 48, 4, 6 },
		{ 72, 2, 0 }, { 74, 2, 1345 }, { 176, 2, 'z' }, { 80, 4, 4096 }, { 84, 4, 4 },
		{ 96, 4, 8195 }, { 100, 4, 4 }, { 112, 4, 8460 }, { 116, 4, 63 }, { 132, 4, 23 },
		{ 144, 4, 12289 }, { 164, 4, 1 }, { 80, 4, 8193 }, { 96, 4, 8324 },
	};
	struct kv_kfoot f, g;
	uint8_t page[KV_PAGE];
	uint32_t crc;

	plain_foot(&f);
	crc = kv_kfoot_encode(&f, page);
	T_OK(!kv_kfoot_decode(page, crc, 1, 2, 3, 16384, &g));
	T_OK(kv_kfoot_decode(page, crc ^ 1, 1, 2, 3, 16384, &g));
	page[KV_PAGE - 1] ^= 1;
	T_OK(kv_kfoot_decode(page, crc, 1, 2, 3, 16384, &g));
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		kv_kfoot_encode(&f, page);
		if (bad[i].size == 2)
			kv_le16_set(page + bad[i].off, (uint16_t)bad[i].val);
		else
			kv_le32_set(page + bad[i].off, bad[i].val);
		crc = mpool_crc32c(0, page, KV_PAGE - 4);
		kv_le32_set(page + KV_PAGE - 4, crc);
		if (!kv_kfoot_decode(page, crc, 1, 2, 3, 16384, &g))
			T_FAIL("footer case %u was taken for good", i);
	}
}

/* A page with these keys, inline values of @vlen zero bytes; returns where entry 0 is. */
static unsigned plain_page(uint8_t *page, const char *a, const char *b, size_t klen,
			   uint32_t vlen)
{
	static const uint8_t zeros[KV_INLINE_MAX + 1];
	struct kv_kpb *pb = calloc(1, sizeof(*pb));
	struct kv_kpb_in in = { .in_val = zeros };

	in.in_ent.pe_klen = (uint16_t)klen;
	in.in_ent.pe_kind = KV_ENT_INLINE;
	in.in_ent.pe_vlen = vlen;
	in.in_key = (const uint8_t *)a;
	T_EQ(kv_kpb_add(pb, &in), 0);
	in.in_key = (const uint8_t *)b;
	T_EQ(kv_kpb_add(pb, &in), 0);
	kv_kpb_encode(pb, 3, page);
	free(pb->pb_bytes);
	free(pb);
	return kv_le16(page + 24 + 8);
}

static bool page_is_good(const uint8_t *page)
{
	struct kv_kpage kp;
	struct kv_kent e;

	if (kv_kpage_decode(page, 3, &kp))
		return false;
	for (unsigned i = 0; i < kp.kp_n; i++)
		if (kv_kpage_ent(&kp, i, &e))
			return false;
	return true;
}

static void each_page_check_works(void)
{
	char a[KVDB_KEY_MAX], b[KVDB_KEY_MAX];
	uint8_t page[KV_PAGE];
	unsigned off;

	for (unsigned i = 0; i < 3; i++) {	/* flags, number, reserved */
		plain_page(page, "a", "b", 1, 0);
		T_OK(page_is_good(page));
		page[i == 0 ? 6 : i == 1 ? 16 : 20] ^= 1;
		T_OK(!page_is_good(page));
	}
	/* no entry, a prefix too long, an end too near and too far */
	for (unsigned i = 0; i < 4; i++) {
		static const uint16_t wrong[4][2] = {
			{ 0, 0 }, { 2, KVDB_KEY_MAX + 1 }, { 4, 25 }, { 4, KV_PAGE + 1 },
		};
		struct kv_kpage kp;

		plain_page(page, "a", "b", 1, 0);
		kv_le16_set(page + wrong[i][0], wrong[i][1]);
		T_OK(kv_kpage_decode(page, 3, &kp) != NULL);
	}
	plain_page(page, "a", "b", 1, 0);
	kv_le64_set(page + 8, KV_NUMBER_END - 1);
	T_OK(page_is_good(page));
	kv_le64_set(page + 8, KV_NUMBER_END);	/* stamps that none can be */
	T_OK(!page_is_good(page));
	off = plain_page(page, "a", "b", 1, 0);
	page[off + 1] = 0;			/* an empty key */
	T_OK(!page_is_good(page));
	off = plain_page(page, "a", "b", 1, 0);
	page[off] |= 8;				/* a flag of a later format */
	T_OK(!page_is_good(page));
	plain_page(page, "a", "b", 1, 0);
	page[4] -= 3;				/* the last CRC is cut */
	T_OK(!page_is_good(page));
	plain_page(page, "a", "b", 1, 9);
	page[4] -= 1;				/* the last value is cut */
	T_OK(!page_is_good(page));
	plain_page(page, "a", "b", 1, KV_INLINE_MAX);
	T_OK(page_is_good(page));
	plain_page(page, "a", "b", 1, KV_INLINE_MAX + 1);	/* no merge can write it */
	T_OK(!page_is_good(page));
	off = plain_page(page, "\1\1\0a", "\1\1\0b", 4, 0);
	kv_le16_set(page + 32, (uint16_t)(off - 3));	/* an entry inside the prefix */
	T_OK(!page_is_good(page));
	off = plain_page(page, "a", "b", 1, 100);
	memset(page + off + 2, 0x80, 10);	/* a number of eleven bytes */
	T_OK(!page_is_good(page));
	memset(a, 'p', sizeof(a));
	memset(b, 'p', sizeof(b));
	b[KVDB_KEY_MAX - 1] = 'q';
	off = plain_page(page, a, b, KVDB_KEY_MAX, KV_INLINE_MAX);
	page[off + 1] = 120;			/* longer than any key, inside the page */
	T_OK(!page_is_good(page));
}

/* Separators that do not ascend. */
static void fences_out_of_order_are_refused(void)
{
	struct kv_kblock k = { .kb_npages = 0 };
	struct kv_near_own own = { 0 };
	uint8_t *index;
	struct kv_kfoot f;

	rig_open(&r, 4 << 20, 64 << 20);
	for (unsigned good = 0; good < 2; good++) {
		plain_foot(&f);
		f.kf_npages = 3;
		for (unsigned i = 0; i < KV_AREAS; i++)
			f.kf_area[i] = (struct kv_area){ .ar_off = 12288 + 128 * i };
		f.kf_area[KV_AREA_FENCE].ar_len = 14;
		f.kf_area[KV_AREA_PAGECRC].ar_len = 12;
		index = aligned_alloc(4096, 4096);
		memset(index, 0, 4096);
		kv_le32_set(index + 4, 1);
		kv_le32_set(index + 8, 2);
		memcpy(index + 12, good ? "bc" : "cb", 2);
		for (unsigned i = 0; i < KV_AREAS; i++)
			f.kf_area[i].ar_crc = mpool_crc32c(0, index + 128 * i, f.kf_area[i].ar_len);
		memset(&k, 0, sizeof(k));
		T_EQ(kv_kblock_attach(&r.db, &k, &f, index, NULL, &own), good ? 0 : -EUCLEAN);
		kv_kblock_free(&r.db, &k);
		free(index);
	}
	rig_close(&r);
}

/* Pages whose CRC would be right but whose content is hostile: nothing may be read outside. */
static void hostile_pages_are_survived(void)
{
	uint8_t key[KVDB_KEY_MAX + 32], *page = malloc(KV_PAGE), *good = malloc(KV_PAGE);
	static struct kv_kpb pb;
	const char *bad;
	bool exact;

	memset(&r, 0, sizeof(r));
	r.rnd = t_seed();
	for (unsigned round = 0; round < 20000; round++) {
		struct kv_kpage kp;
		struct kv_kent ke;

		if (round % 500 == 0) {
			unsigned got;
			struct rec *m = model_make(&r, 40, &got);

			for (unsigned i = 0; i < got; i++) {
				struct kv_kpb_in in = { .in_key = m[i].key, .in_val = m[i].val };

				in.in_ent.pe_klen = m[i].klen;
				in.in_ent.pe_kind = m[i].kind;
				in.in_ent.pe_vlen = m[i].vlen;
				in.in_ent.pe_seq = m[i].seq;
				if (kv_kpb_add(&pb, &in))
					break;
			}
			kv_kpb_encode(&pb, 3, good);
			T_OK(!kv_kpage_decode(good, 3, &kp));
			model_free(m, got);
		}
		memcpy(page, good, KV_PAGE);
		for (unsigned i = 0; i <= round % 4; i++)
			page[t_rand(&r.rnd) % (i ? KV_PAGE : 400)] = (uint8_t)t_rand(&r.rnd);
		if (kv_kpage_decode(page, 3, &kp))
			continue;
		for (unsigned i = 0; i < kp.kp_n; i++)
			if (!kv_kpage_ent(&kp, i, &ke))
				T_OK(kv_kpage_key(&kp, i, &ke, key) <= KVDB_KEY_MAX);
		for (unsigned i = 0; i < 4; i++) {
			uint16_t klen = rig_key(&r, key);

			T_OK(kv_kpage_lower(&kp, key, klen, &exact, &bad) <= kp.kp_n);
			kv_kpage_find(&kp, key, klen, (uint8_t)i, &ke, &bad);
		}
	}
	free(pb.pb_bytes);
	free(page);
	free(good);
}

/* Its object cannot be read: where its fences are not in memory, about. */
static uint32_t page_or_about(const struct kv_kblock *kb, const uint8_t *key, size_t klen)
{
	struct kv_thread *t = kv_enter();
	int64_t no;

	if (atomic_load(&kb->kb_fences))
		no = kv_kblock_page(&r.db, kb, key, klen);
	else
		no = kv_fences_about(kb, key, klen);
	kv_exit(t);
	return (uint32_t)no;
}

/* The same for the index areas and the footer. */
static void hostile_indexes_are_survived(void)
{
	struct kv_kfoot *f = malloc(sizeof(*f)), *g = malloc(sizeof(*g));
	unsigned got, opened = 0;
	struct kv_kblock *kb;
	struct kv_run *run;
	uint8_t *page = malloc(KV_PAGE), *whole;
	uint32_t bytes;
	struct rec *m;

	rig_open(&r, 4 << 20, 64 << 20);
	rig_segs(&r);
	m = model_make(&r, 600, &got);
	run = model_run(&r, m, got);
	kb = &run->rn_kb[0];
	whole = rig_index(run, 0, &bytes);
	for (unsigned round = 0; round < 3000; round++) {
		uint32_t base = kb->kb_npages * KV_PAGE, len = run->rn_desc.rd_kb[0].kd_len;
		struct iovec iov = { .iov_base = page, .iov_len = KV_PAGE };
		struct kv_near_own own = { .no_is_far = { round & 2, round & 2 } };
		struct kv_kblock k = { .kb_npages = 0 };
		uint8_t *index, *raw = aligned_alloc(4096, KV_PAGE);

		iov.iov_base = raw;
		T_EQ(mpool_read(kb->kb_obj, len - KV_PAGE, &iov, 1), 0);
		if (round % 2)
			raw[t_rand(&r.rnd) % 200] = (uint8_t)t_rand(&r.rnd);
		kv_le32_set(raw + KV_PAGE - 4, mpool_crc32c(0, raw, KV_PAGE - 4));
		memset(f, 0, sizeof(*f));
		if (kv_kfoot_decode(raw, kv_le32(raw + KV_PAGE - 4), r.db.d_ident.id_tag, kb->kb_id,
				    7, len, f)) {
			free(raw);
			continue;
		}
		free(raw);
		base = f->kf_npages * KV_PAGE;
		index = aligned_alloc(4096, len - KV_PAGE - base + (len - KV_PAGE == base) * 4096);
		memset(index, 0, len - KV_PAGE - base);
		if (base == kb->kb_npages * KV_PAGE)
			memcpy(index, whole, bytes);
		if (len - KV_PAGE > base)
			for (unsigned i = 0; i < 3; i++)
				index[t_rand(&r.rnd) % (i ? 256 : len - KV_PAGE - base)] ^=
					(uint8_t)(1u << t_rand(&r.rnd) % 8);
		for (unsigned i = 0; i < KV_AREAS; i++)
			f->kf_area[i].ar_crc = mpool_crc32c(
				0, index + (f->kf_area[i].ar_off - base), f->kf_area[i].ar_len);
		if (!kv_kblock_attach(&r.db, &k, f, index, NULL, &own)) {
			opened++;
			for (unsigned i = 0; i < got; i += 7)
				T_OK(page_or_about(&k, m[i].key, m[i].klen) < k.kb_npages);
		}
		kv_kblock_free(&r.db, &k);
		free(index);
	}
	printf("# %u of 3000 hostile indexes opened\n", opened);
	kv_run_put(&r.db, run);
	model_free(m, got);
	rig_close(&r);
	free(f);
	free(g);
	free(page);
	free(whole);
}

/* ---- size and speed, printed; only gross failures count -------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#define KEYS 400000u

static struct kv_run *big_run(void)
{
	struct kv_run_build *rb;
	struct kv_run *run;
	char key[32];
	struct kv_ent e = { .e_kind = KV_ENT_REF, .e_vlen = 1000, .e_key = (void *)key };

	r.db.d_budget.b_kblock_bytes = 16 << 20;
	T_EQ(kv_run_build_open(&r.db, 7, KEYS, false, &rb), 0);
	for (unsigned i = 0; i < KEYS; i++) {
		e.e_klen = (uint16_t)sprintf(key, "user%020llu", i * 46116860184273ull);
		e.e_seq = 1 + i * 7919ull % KEYS;
		e.e_seg = r.seg[i % RIG_SEGS];
		e.e_off8 = i * 17 % 30000;
		e.e_vcrc = i;
		T_EQ(kv_run_build_add(rb, &e), 0);
	}
	T_EQ(kv_run_build_finish(rb, &run), 0);
	return run;
}

static void lookup_cost(struct kv_run *run, unsigned per_enter, bool hit)
{
	unsigned n = 500000, wrong = 0;
	uint64_t *hash = malloc(n * sizeof(*hash)), t0, x = 1;
	char (*key)[32] = malloc(n * sizeof(*key));
	struct kv_thread *t = NULL;
	struct kv_ent e;

	for (unsigned i = 0; i < n; i++) {
		sprintf(key[i], "user%020llu",
			t_rand(&x) % KEYS * 46116860184273ull + (hit ? 0 : 1));
		hash[i] = kv_hash(key[i], 24);
	}
	t0 = now_ns();
	for (unsigned i = 0; i < n; i++) {
		if (i % per_enter == 0) {
			if (t)
				kv_exit(t);
			t = kv_enter();
		}
		if (i + 8 < n && !hit)
			kv_run_prefetch(run, hash[i + 8]);
		wrong += kv_run_lookup(&r.db, run, key[i], 24, hash[i], &e) != (hit ? 0 : -ENOENT);
	}
	t0 = now_ns() - t0;
	kv_exit(t);
	printf("# %s: %.0f ns\n", hit ? "hit in memory" : "filter miss, prefetched",
	       (double)t0 / n);
	free(hash);
	free(key);
	T_EQ(wrong, 0);
}

static void size_and_speed(void)
{
	struct kv_run *run;
	uint64_t t0;

	rig_open(&r, 256 << 20, 256 << 20);
	rig_segs(&r);
	t0 = now_ns();
	run = big_run();
	t0 = now_ns() - t0;
	printf("# build: %.0f ns a key; media %.1f bytes a key; memory %.2f bytes a key\n",
	       (double)t0 / KEYS, (double)kv_run_bytes(run) / KEYS,
	       (double)kv_run_index_bytes(run) / KEYS);
	T_OK(kv_run_bytes(run) < KEYS * 50ull);
	T_OK(kv_run_index_bytes(run) < KEYS * 2ull);
	lookup_cost(run, 1, true);
	lookup_cost(run, 1, true);
	lookup_cost(run, 1, false);
	kv_run_put(&r.db, run);
	rig_close(&r);
}

#define BLOCKS_WANTED 512u

/* Of one that was not expected to be so large; else it would end long before the pool does. */
static void blocks_of_a_long_run_get_larger(void)
{
	uint8_t key[KVDB_KEY_MAX];
	struct kv_ent e = { .e_key = key, .e_klen = KVDB_KEY_MAX, .e_kind = KV_ENT_INLINE };
	const struct kv_run_desc *d;
	struct kv_run_build *rb;
	struct kv_run *run;
	unsigned n = 110000;

	rig_open(&r, 4 << 20, 320 << 20);
	r.db.d_budget.b_kblock_bytes = 256 << 10;
	memset(key, 'k', sizeof(key));
	T_EQ(kv_run_build_open(&r.db, 1, 0, false, &rb), 0);
	for (unsigned i = 0; i < n; i++) {
		snprintf((char *)key, 9, "%08u", i);
		key[8] = 'k';
		e.e_seq = i + 1;
		T_EQ(kv_run_build_add(rb, &e), 0);
	}
	T_EQ(kv_run_build_finish(rb, &run), 0);
	d = kv_run_desc(run);
	T_EQ(d->rd_keys, n);
	T_OK(d->rd_n > BLOCKS_WANTED + 10);
	for (uint32_t i = 0; i + 1 < d->rd_n; i++)
		T_OK(i < BLOCKS_WANTED ? d->rd_kb[i].kd_len <= 256u << 10 :
		     d->rd_kb[i].kd_len > 384u << 10 && d->rd_kb[i].kd_len <= 512u << 10);
	for (unsigned i = 0; i < n; i += 97) {
		struct kv_thread *t = kv_enter();
		int rc;

		snprintf((char *)key, 9, "%08u", i);
		key[8] = 'k';
		rc = kv_run_lookup(&r.db, run, key, sizeof(key), kv_hash(key, sizeof(key)), &e);
		kv_exit(t);
		T_EQ(rc, 0);
		T_EQ(e.e_seq, i + 1);
	}
	kv_run_put(&r.db, run);
	rig_close(&r);
}

int main(void)
{
	/* quick ones first: the ablation stops at the first that fails */
	T_RUN(each_footer_check_works);
	T_RUN(each_page_check_works);
	T_RUN(fences_out_of_order_are_refused);
	T_RUN(one_key_round_trips);
	T_RUN(keys_out_of_order_are_refused);
	T_RUN(entries_that_no_run_can_hold_are_refused);
	T_RUN(references_to_nowhere_are_refused);
	T_RUN(wrong_parent_crc_is_refused);
	T_RUN(a_damaged_segment_table_is_refused);
	T_RUN(blocks_in_wrong_order_are_refused);
	T_RUN(bit_flips_never_give_wrong_data);
	T_RUN(a_walk_shows_what_lies_before_a_damaged_page);
	T_RUN(hundreds_of_keys_round_trip);
	T_RUN(many_blocks_round_trip);
	T_RUN(largest_keys_fit_two_a_page);
	T_RUN(a_walk_that_is_outside_has_no_page_in_hand);
	T_RUN(a_seek_that_was_fetched_ahead_finds_the_same);
	T_RUN(empty_build_gives_no_run);
	T_RUN(segment_table_counts_what_is_referred_to);
	T_RUN(hostile_pages_are_survived);
	T_RUN(hostile_indexes_are_survived);
	T_RUN(blocks_of_a_long_run_get_larger);
	T_RUN(size_and_speed);
	return t_done();
}
