/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Checks a closed database and writes nothing: the metadata container (its
 * replay), every run (footers, pages, key order and, on request, values), and
 * the logs (what recovery would do, and every sealed segment).
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

#include "ckpt.h"
#include "mdc.h"

struct verify {
	struct kvdb *v_db;
	mpool_problem_fn *v_fn;
	void *v_arg;
	uint64_t v_damage;
	bool v_values;
	uint8_t *v_buf;		/* KVDB_VALUE_MAX */
};

static void found(struct verify *v, const char *id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void found(struct verify *v, const char *id, const char *fmt, ...)
{
	struct mpool_problem p = { .id = id, .is_damage = 1 };
	char text[384];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	p.text = text;
	v->v_damage++;
	if (v->v_fn)
		v->v_fn(v->v_arg, &p);
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
		if (!err && (!e.e_klen || e.e_klen > KVDB_KEY_MAX)) {
			err = kv_error(-EUCLEAN, "MP0960", "a key of %u bytes", e.e_klen);
		} else if (!err) {
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

static int check_runs(struct verify *v, struct kv_mdc_state *st)
{
	uint32_t i, j;
	int err = 0;

	for (i = 0; i < st->st_nkvs; i++) {
		for (j = 0; j < st->st_kvs[i].mk_nrun && !err; j++) {
			const struct kv_run_desc *d = &st->st_kvs[i].mk_run[j];
			struct kv_run *r;

			err = kv_run_open(v->v_db, d, &r);
			if (!err) {
				err = walk_run(v, r, d);
				kv_run_put(v->v_db, r);
			}
			if (err)
				err = judge(v, err, "run", d->rd_id);
		}
	}
	return err;
}

static void bad_segment(void *arg, const struct kv_seg *s, uint32_t valid, uint32_t want)
{
	found(arg, "MP0960", "log segment %llu: valid up to %u of %u bytes",
	      (unsigned long long)s->sg_id, valid, want);
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
	int err = kv_db_load_kvs(v->v_db, false);

	if (!err)
		err = check_runs(v, &v->v_db->d_mdc->m_st);
	if (!err)
		err = check_checkpoints(v);
	if (!err) {
		err = kv_recover(v->v_db, true);
		if (err)
			err = judge(v, err, "recovery of incarnation",
				    v->v_db->d_recovery.incarnation);
	}
	if (!err) {
		err = kv_logs_check(v->v_db, v->v_values, bad_segment, v);
		if (err)
			err = judge(v, err, "logs of incarnation", v->v_db->d_incarnation);
	}
	return err;
}

int kvdb_verify(const char *pool, const struct kvdb_opts *opts, unsigned flags,
		mpool_problem_fn *fn, void *arg, uint64_t *damage)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct verify v = { .v_fn = fn, .v_arg = arg, .v_values = flags & MPOOL_VERIFY_DATA };
	int err;

	if (flags & ~MPOOL_VERIFY_DATA || (opts && opts->size != sizeof(o)) ||
	    (opts && opts->checkpoint))
		return kv_error(-EINVAL, "MP0951", "unknown flags or size of the options");
	if (opts)
		o = *opts;
	v.v_db = calloc(1, sizeof(*v.v_db));
	v.v_buf = malloc(KVDB_VALUE_MAX);
	if (!v.v_db || !v.v_buf) {
		free(v.v_db);
		free(v.v_buf);
		return kv_error(-ENOMEM, "MP0902", "no memory to check a database");
	}
	err = kv_db_attach(v.v_db, pool, &o, true);
	if (!err)
		err = check_all(&v);
	kv_db_detach(v.v_db);
	if (v.v_db->d_mp)
		mpool_close(v.v_db->d_mp);
	free(v.v_db);
	free(v.v_buf);
	if (!err)
		*damage = v.v_damage;
	return err;
}
