/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Checks a closed database and writes nothing: the metadata container (its
 * replay), every run (footers, pages, key order and, on request, values), and
 * the logs (what recovery would do, and every sealed segment). A deep check
 * goes on after damage inside of a run and names the keys, compares what is
 * counted in several places, and looks for objects that nothing refers to. At
 * a checkpoint, also of a database in use, its runs are checked alone.
 *
 * One finding per damaged thing; checking goes on with the next. What cannot
 * be read at all (no pool, no database, a container that does not replay) is
 * an error of the call.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/guard.h"
#include "base/vec.h"
#include "db/db.h"
#include "db/thread.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/iter.h"
#include "run/run.h"
#include "meta/ckpt.h"
#include "meta/edit.h"
#include "meta/mdc.h"
#include "open/open.h"
#include "open/recover.h"
#include "open/salvage.h"

/* Values of one run in one segment that cannot be read. */
struct bad_seg {
	uint64_t bs_id, bs_off;		/* of the first */
	uint64_t bs_n;
	uint16_t bs_flen, bs_llen;	/* first and last key */
	uint8_t bs_first[KVDB_KEY_MAX], bs_last[KVDB_KEY_MAX];
	char bs_text[160];
};

struct verify {
	struct kvdb *v_db;
	mpool_problem_fn *v_fn;
	void *v_arg;
	uint64_t v_damage;
	bool v_values, v_deep;
	uint8_t *v_buf;		/* KVDB_VALUE_MAX */
	const char *v_kvs;	/* name of the store being checked, or NULL */
	struct bad_seg *v_bad;	/* of the run being checked */
	size_t v_nbad;
	uint32_t v_badcap;
};

static void tell(struct verify *v, struct kvdb_problem *kp, const char *fmt, va_list ap)
{
	char text[384];

	vsnprintf(text, sizeof(text), fmt, ap);
	kp->p.text = text;
	v->v_damage += kp->p.is_damage;
	if (v->v_fn)
		v->v_fn(v->v_arg, &kp->p);
}

static void found(struct verify *v, const char *id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void found(struct verify *v, const char *id, const char *fmt, ...)
{
	struct kvdb_problem kp = { .p = { .id = id, .is_damage = 1 } };
	va_list ap;

	va_start(ap, fmt);
	tell(v, &kp, fmt, ap);
	va_end(ap);
}

/* As found(), with more than a text. */
static void found_at(struct verify *v, struct kvdb_problem *kp, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void found_at(struct verify *v, struct kvdb_problem *kp, const char *fmt, ...)
{
	va_list ap;

	kp->p.id = "MP0960";
	va_start(ap, fmt);
	tell(v, kp, fmt, ap);
	va_end(ap);
}

/* Damage is a finding; anything else ends the check. */
static int judge(struct verify *v, int err, const char *what, uint64_t n)
{
	if (err != -EUCLEAN && err != -EIO && err != -ENOENT)
		return err;
	found(v, "MP0960", "%s %llu: %s", what, (unsigned long long)n, kvdb_error_detail()->text);
	return 0;
}

static int key_cmp(const uint8_t *a, size_t alen, const uint8_t *b, size_t blen)
{
	int c = memcmp(a, b, alen < blen ? alen : blen);

	return c ? c : alen < blen ? -1 : alen > blen;
}

/* Reads the whole value: the CRC is compared in there. */
static int check_value(struct verify *v, const struct kv_ent *e, uint64_t run)
{
	int err;

	if (e->e_kind != KV_ENT_REF)
		return 0;
	if (e->e_vlen > KVDB_VALUE_MAX) {
		found(v, "MP0960", "run %llu: a value of %u bytes", (unsigned long long)run,
		      e->e_vlen);
		return 0;
	}
	err = kv_value_read(v->v_db, e, v->v_buf, KVDB_VALUE_MAX);
	return err ? judge(v, err, "value of run", run) : 0;
}

static int walk_run(struct verify *v, struct kv_run *r, const struct kv_run_desc *d)
{
	uint8_t last[KVDB_KEY_MAX];
	size_t last_len = 0;
	uint64_t keys = 0;
	struct kv_iter *it;
	struct kv_ent e;
	int err = kv_run_iter(v->v_db, r, false, &it);

	if (err)
		return err;
	for (;;) {
		struct kv_thread *t = kv_enter();

		err = it->it_ops->next(it, &e);
		if (!err) {
			if (keys && key_cmp(last, last_len, e.e_key, e.e_klen) >= 0)
				found(v, "MP0960", "run %llu: key %llu is out of order",
				      (unsigned long long)d->rd_id, (unsigned long long)keys);
			memcpy(last, e.e_key, e.e_klen);
			last_len = e.e_klen;
			keys++;
			if (v->v_values)
				err = check_value(v, &e, d->rd_id);
		}
		kv_iter_park(it);
		kv_exit(t);
		if (err)
			break;
	}
	it->it_ops->close(it);
	if (err != -ENOENT)
		return err;
	if (keys != d->rd_keys)
		found(v, "MP0960", "run %llu: %llu keys, its description says %llu",
		      (unsigned long long)d->rd_id, (unsigned long long)keys,
		      (unsigned long long)d->rd_keys);
	return 0;
}

/* ---- deep ----------------------------------------------------------------------- */

static void on_lost(void *arg, const struct kv_lost *lo)
{
	struct verify *v = arg;
	struct kvdb_problem kp = {
		.p.is_damage = 1, .kvs = v->v_kvs, .object = lo->lo_obj, .offset = lo->lo_off,
		.from = lo->lo_from, .flen = lo->lo_flen,
		.to = lo->lo_tlen ? lo->lo_to : NULL, .tlen = lo->lo_tlen,
	};

	found_at(v, &kp, "run %llu, key block %llu, offset %llu: %s",
		 (unsigned long long)lo->lo_run, (unsigned long long)lo->lo_obj,
		 (unsigned long long)lo->lo_off, lo->lo_what);
}

static int bad_value(struct verify *v, const struct kv_ent *e, uint64_t seg, const char *text)
{
	struct bad_seg *b;
	size_t i;

	for (i = 0; i < v->v_nbad && v->v_bad[i].bs_id != seg; i++)
		;
	if (kv_vec_grow(&v->v_bad, &v->v_badcap, i + 1, sizeof(*b)))
		return kv_error(-ENOMEM, "MP0902", "no memory to check a run");
	b = &v->v_bad[i];
	if (i == v->v_nbad) {
		*b = (struct bad_seg){ .bs_id = seg, .bs_off = e->e_off8 * 8ull,
				       .bs_flen = e->e_klen };
		memcpy(b->bs_first, e->e_key, e->e_klen);
		snprintf(b->bs_text, sizeof(b->bs_text), "%.159s", text);
		v->v_nbad++;
	}
	b->bs_n++;
	b->bs_llen = e->e_klen;
	memcpy(b->bs_last, e->e_key, e->e_klen);
	return 0;
}

/* The value lies inside of its segment, and is what its reference says. */
static int deep_value(struct verify *v, const struct kv_ent *e)
{
	int err;

	if (e->e_kind != KV_ENT_REF)
		return 0;
	if (!e->e_seg)
		return bad_value(v, e, 0, "segments that do not exist");
	err = kv_value_read(v->v_db, e, v->v_buf, KVDB_VALUE_MAX);
	if (err == -EUCLEAN || err == -EIO)
		return bad_value(v, e, e->e_seg->sg_id, kvdb_error_detail()->text);
	return err;
}

static void tell_bad(struct verify *v, const struct kv_run_desc *d)
{
	for (size_t i = 0; i < v->v_nbad; i++) {
		const struct bad_seg *b = &v->v_bad[i];
		uint8_t to[KVDB_KEY_MAX + 1];
		struct kvdb_problem kp = {
			.p.is_damage = 1, .kvs = v->v_kvs, .object = b->bs_id,
			.offset = b->bs_off, .from = b->bs_first, .flen = b->bs_flen,
			.to = to, .tlen = b->bs_llen + 1u, .keys = b->bs_n,
		};

		memcpy(to, b->bs_last, b->bs_llen);
		to[b->bs_llen] = 0;
		found_at(v, &kp, "run %llu: %llu value%s cannot be read: %s",
			 (unsigned long long)d->rd_id, (unsigned long long)b->bs_n,
			 b->bs_n == 1 ? "" : "s", b->bs_text);
	}
	v->v_nbad = 0;
}

static int deep_run(struct verify *v, const struct kv_run_desc *d)
{
	struct kv_salvage_fns fns = { .sf_lost = on_lost, .sf_arg = v };
	struct kv_salvage *sv;
	struct kv_ent e;
	int err = kv_salvage_open(v->v_db, d, &fns, &sv);

	if (err)
		return err;
	while (!(err = kv_salvage_next(sv, &e))) {
		struct kv_thread *t = kv_enter();

		err = deep_value(v, &e);
		kv_exit(t);
		if (err)
			break;
	}
	kv_salvage_close(sv);
	tell_bad(v, d);
	return err == -ENOENT ? 0 : err;
}

/*
 * Nothing refers to it. What a crash leaves behind is newer than the last
 * checkpoint id (RV9), and the next open deletes it; what is older stays for ever.
 */
static void leak(struct verify *v, uint64_t id)
{
	uint64_t ckpt = v->v_db->d_mdc->m_st.st_inc.mi_ckpt;
	struct kvdb_problem kp = { .p.is_damage = id <= ckpt, .object = id };

	found_at(v, &kp, "object %llu: nothing refers to it; %s", (unsigned long long)id,
		 kp.p.is_damage ? "its space is lost" : "an open for writing deletes it");
}

static int look_for_leaks(struct verify *v)
{
	struct kvdb *db = v->v_db;
	uint64_t after = 0;
	struct mpool_obj_info oi[64];
	size_t nlist;
	uint64_t *list = kv_mdc_state_blocks(&db->d_mdc->m_st, true, &nlist);
	struct kv_seg *s;
	int i, n, err = list ? 0 : -ENOMEM;

	while (!err && (n = mpool_objects(db->d_mp, after, db->d_ident.id_tag, oi, 64)) != 0) {
		if (n < 0)
			err = kv_error_mpool(n);
		for (i = 0; i < n; i++) {
			after = oi[i].id;
			s = oi[i].kind == MPOOL_MBLOCK ? kv_seg_find(db, after) : NULL;
			if (s)
				kv_seg_put(db, s);
			if (oi[i].kind == MPOOL_MBLOCK && !s && !kv_ckpt_holds_all(db) &&
			    !kv_ckpt_lists(db, after) &&
			    !CHECK(kv_ids_have(list, nlist, after)))
				leak(v, after);
		}
	}
	free(list);
	return err;
}

/* ---- all of it ------------------------------------------------------------------ */

static int check_run(struct verify *v, const struct kv_mdc_kvs *k, const struct kv_run_desc *d)
{
	uint64_t before = v->v_damage;
	int err = v->v_deep ? deep_run(v, d) : 0;
	struct kv_run *r;

	/* VF4: what is whole, page by page, may still be what an open refuses */
	if (err || v->v_damage != before)
		return err;
	err = kv_run_open(v->v_db, d, &r);
	if (err)
		return err;
	err = kv_run_load(v->v_db, r);
	if (err) {
		kv_run_put(v->v_db, r);
		return err;
	}
	/* what a segment lacks is damage or not, by whether a run refers to it */
	kv_run_count(v->v_db, r, 1);
	err = kv_leaf_check(k, r);
	if (!err && !v->v_deep)
		err = walk_run(v, r, d);
	kv_run_put(v->v_db, r);
	return err;
}

static int check_runs(struct verify *v, struct kv_mdc_state *st)
{
	uint32_t i, j;
	int err = 0;

	for (i = 0; i < st->st_nkvs; i++) {
		v->v_kvs = st->st_kvs[i].mk_name;
		for (j = 0; j < st->st_kvs[i].mk_nrun && !err; j++) {
			const struct kv_run_desc *d = &st->st_kvs[i].mk_run[j];

			err = check_run(v, &st->st_kvs[i], d);
			if (err)
				err = judge(v, err, "run", d->rd_id);
		}
	}
	v->v_kvs = NULL;
	return err;
}

static void bad_segment(void *arg, const struct kv_seg *s, uint32_t from, uint32_t to)
{
	struct kvdb_problem kp = { .p.is_damage = 1, .object = s->sg_id, .offset = from };

	found_at(arg, &kp, "log segment %llu: %u bytes from offset %u are damaged",
		 (unsigned long long)s->sg_id, to - from, from);
}

/* Every checkpoint: its manifest, and all of its runs, shared with the tree or not. */
static int check_checkpoints(struct verify *v)
{
	const struct kv_mdc_state *st = &v->v_db->d_mdc->m_st;
	size_t i;
	int err = 0;

	for (i = 0; i < st->st_nckpt && !err; i++) {
		struct kv_mdc_state own = { 0 };

		err = kv_manifest_read(v->v_db, &st->st_ckpt[i], &own);
		if (!err)
			err = check_runs(v, &own);
		kv_mdc_state_free(&own);
		if (err)
			err = judge(v, err, "checkpoint", st->st_ckpt[i].mc_obj);
	}
	return err;
}

static int check_all(struct verify *v)
{
	int err = kv_db_load_kvs(v->v_db, 0, false);

	if (!err)
		err = check_runs(v, &v->v_db->d_mdc->m_st);
	if (err || v->v_db->d_mode.md_at_ckpt)
		return err;
	err = check_checkpoints(v);
	if (!err) {
		err = kv_recover(v->v_db, KV_RECOVER_CHECK);
		if (err)
			err = judge(v, err, "recovery of incarnation",
				    v->v_db->d_opened.on_recovery.incarnation);
	}
	if (!err) {
		err = kv_logs_check(v->v_db, v->v_values, bad_segment, v);
		if (err)
			err = judge(v, err, "logs of incarnation", v->v_db->d_ident.id_incarnation);
	}
	return !err && v->v_deep ? look_for_leaks(v) : err;
}

/* @v->v_db is fresh; afterwards it is one to be freed. */
static int attach(struct verify *v, const char *pool, const struct kvdb_opts *o)
{
	int looks = 0, err;

	for (;;) {
		err = kv_db_attach(v->v_db, pool, o, true);
		if (!err || !kv_open_should_retry(o, err, &looks))
			return err;
		kv_db_detach(v->v_db);
		if (v->v_db->d_mp)
			mpool_close(v->v_db->d_mp);
		memset(v->v_db, 0, sizeof(*v->v_db));
	}
}

int kvdb_verify(const char *pool, const struct kvdb_opts *opts, unsigned flags,
		mpool_problem_fn *fn, void *arg, uint64_t *damage)
{
	struct kvdb_opts o;
	struct verify v = { .v_fn = fn, .v_arg = arg, .v_deep = flags & KVDB_VERIFY_DEEP,
			    .v_values = flags & (MPOOL_VERIFY_DATA | KVDB_VERIFY_DEEP) };
	int err;

	if (flags & ~(MPOOL_VERIFY_DATA | KVDB_VERIFY_DEEP))
		return kv_error(-EINVAL, "MP0951", "unknown flags of a check");
	err = kv_opts_take(opts, KVDB_RDONLY, &o);
	if (!err)
		err = kv_threads_ready();
	if (err)
		return err;
	v.v_db = calloc(1, sizeof(*v.v_db));
	v.v_buf = malloc(KVDB_VALUE_MAX);
	if (!v.v_db || !v.v_buf) {
		free(v.v_db);
		free(v.v_buf);
		return kv_error(-ENOMEM, "MP0902", "no memory to check a database");
	}
	err = attach(&v, pool, &o);
	if (!err)
		err = check_all(&v);
	kv_db_detach(v.v_db);
	if (v.v_db->d_mp)
		mpool_close(v.v_db->d_mp);
	free(v.v_db);
	free(v.v_buf);
	free(v.v_bad);
	if (!err)
		*damage = v.v_damage;
	return err;
}
