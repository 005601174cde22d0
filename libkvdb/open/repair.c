/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Repair: what can be read of a damaged database goes into another one. The
 * damaged one is opened for reading and never written.
 *
 * Store by store. First its runs are walked for what is missing (salvage.c).
 * Then everything that is there - memtables of the logs, entries of runs, and
 * in the ranges of keys that are missing, records that the log segments still
 * hold - is merged by key, the newest version first. A version is certain when
 * nothing that is missing can hold a newer one; then it goes to a store of the
 * same name. Else it may have been overwritten or deleted, and goes to one
 * with .found after its name: nothing comes back in silence (RP1).
 *
 * What is missing of the logs and of the container has no keys: it is told,
 * and makes nothing uncertain, or everything would be.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/guard.h"
#include "base/key.h"
#include "base/trange.h"
#include "base/vec.h"
#include "db/db.h"
#include "db/etime.h"
#include "db/thread.h"
#include "cache/pages.h"
#include "seg/seg.h"
#include "seg/value.h"
#include "mem/iter.h"
#include "mem/memtable.h"
#include "mem/tomb.h"
#include "run/run.h"
#include "run/run_omf.h"
#include "tree/tree.h"
#include "meta/mdc.h"
#include "txn/txn_omf.h"
#include "open/open.h"
#include "open/recover.h"
#include "open/salvage.h"

#define MOST_STORES 65536u

/* A record of a log segment in a range of keys that is missing. */
struct cand {
	uint8_t *ca_key;	/* with an inline value after it */
	uint16_t ca_klen;
	uint8_t ca_kind;
	uint8_t ca_pack;	/* as the fields of kv_ent */
	uint32_t ca_rev, ca_vlen, ca_vcrc, ca_plen, ca_pcrc, ca_off8;
	uint64_t ca_seq, ca_epoch, ca_expiry;
	struct kv_seg *ca_seg;
};

enum source_kind { FROM_MEMTABLE, FROM_RUN, FROM_LOG };

struct source {
	enum source_kind so_kind;
	struct kv_iter *so_it;
	struct kv_salvage *so_run;
	bool so_has;
	struct kv_ent so_e;	/* the next entry, with so_has */
};

/* One of the two stores that a store becomes; made with its first key. */
struct target {
	const char *ta_suffix;
	struct kvdb_bulk *ta_bulk;
	uint64_t ta_keys;
};

struct repair {
	struct kvdb *rp_db;
	struct kvdb *rp_to;		/* NULL: say only */
	mpool_problem_fn *rp_fn;
	void *rp_arg;
	struct kvdb_repair rp_sum;
	uint8_t *rp_buf;		/* KVDB_VALUE_MAX */
	struct kv_run_desc *rp_block;	/* container damaged: each key block by itself */
	struct kv_kblock_desc *rp_kb;
	size_t rp_nblock;
	uint32_t rp_blockcap, rp_kbcap;
	uint8_t *rp_has_kvs;		/* bits by id: the log names it */

	/* the store at hand */
	const struct kv_mdc_kvs *rp_mk;
	struct kv_mt *rp_mt;
	uint64_t rp_flushed;		/* container damaged: stamps up to it were in runs */
	const struct kv_run_desc **rp_run;
	uint32_t rp_nrun;
	struct kv_lost *rp_lost;
	size_t rp_nlost;
	uint32_t rp_lostcap;
	int rp_err;			/* what a callback could not return */
	struct kv_trows rp_rows;	/* their keys are copies */
	struct kv_tindex *rp_tombs;
	struct cand *rp_cand;
	size_t rp_ncand, rp_atcand;
	uint32_t rp_candcap;
	struct source *rp_src;
	unsigned rp_nsrc;
	struct target rp_sure, rp_found;
	/* keys one after the other whose values cannot be read */
	uint64_t rp_bad, rp_bad_seg;
	uint16_t rp_bad_flen, rp_bad_llen;
	uint8_t rp_bad_first[KVDB_KEY_MAX], rp_bad_last[KVDB_KEY_MAX + 1];
};

static int no_memory(void)
{
	return kv_error(-ENOMEM, "MP0902", "no memory to repair");
}

/* Room for one more of an array. */
static int grow(void *vec, uint32_t *cap, size_t n, size_t size)
{
	return kv_vec_grow(vec, cap, n + 1, size) ? no_memory() : 0;
}

static void say(struct repair *rp, struct kvdb_problem *kp, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void say(struct repair *rp, struct kvdb_problem *kp, const char *fmt, ...)
{
	char text[384];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	kp->p.id = "MP0960";
	kp->p.text = text;
	kp->kvs = rp->rp_mk ? rp->rp_mk->mk_name : NULL;
	if (rp->rp_fn)
		rp->rp_fn(rp->rp_arg, &kp->p);
}

/* ---- what is missing ------------------------------------------------------------------ */

static void on_hole(void *arg, const struct kv_seg *s, uint32_t from, uint32_t to)
{
	struct repair *rp = arg;
	struct kvdb_problem kp = { .p.is_damage = 1, .object = s->sg_id, .offset = from };

	rp->rp_sum.log_bytes += to - from;
	say(rp, &kp, "log segment %llu: %u bytes from offset %u are lost: the newest puts and "
	    "deletes of any store may be among them, and older versions show instead",
	    (unsigned long long)s->sg_id, to - from, from);
}

static void on_lost(void *arg, const struct kv_lost *lo)
{
	struct repair *rp = arg;
	struct kvdb_problem kp = {
		.p.is_damage = 1, .object = lo->lo_obj, .offset = lo->lo_off, .from = lo->lo_from,
		.flen = lo->lo_flen, .to = lo->lo_tlen ? lo->lo_to : NULL, .tlen = lo->lo_tlen,
	};

	if (!lo->lo_is_missing)
		return;
	rp->rp_sum.lost_ranges++;
	say(rp, &kp, "run %llu, key block %llu, offset %llu: %s: what it said of these keys is "
	    "lost; what else is found of them goes to %s.found", (unsigned long long)lo->lo_run,
	    (unsigned long long)lo->lo_obj, (unsigned long long)lo->lo_off, lo->lo_what,
	    rp->rp_mk->mk_name);
	if (!rp->rp_err)
		rp->rp_err = grow(&rp->rp_lost, &rp->rp_lostcap, rp->rp_nlost, sizeof(*lo));
	if (!rp->rp_err)
		rp->rp_lost[rp->rp_nlost++] = *lo;
}

static void on_row(void *arg, const struct kv_trange *r)
{
	struct repair *rp = arg;
	struct kv_trange copy = *r;
	uint8_t *key = malloc(r->tr_flen + r->tr_tlen + 1u);

	if (!key) {
		rp->rp_err = no_memory();
		return;
	}
	memcpy(key, r->tr_from, r->tr_flen);
	if (r->tr_tlen)
		memcpy(key + r->tr_flen, r->tr_to, r->tr_tlen);
	copy.tr_from = key;
	copy.tr_to = key + r->tr_flen;
	if (!kv_trows_add(&rp->rp_rows, &copy))
		return;
	rp->rp_err = no_memory();
	free(key);
}

static int walk_runs(struct repair *rp)
{
	struct kv_salvage_fns fns = { .sf_lost = on_lost, .sf_row = on_row, .sf_arg = rp };
	struct kv_salvage *sv;
	struct kv_ent e;
	int err = 0;

	for (uint32_t i = 0; i < rp->rp_nrun && !err; i++) {
		err = kv_salvage_open(rp->rp_db, rp->rp_run[i], &fns, &sv);
		if (err)
			break;
		while (!err)
			err = kv_salvage_next(sv, &e);
		kv_salvage_close(sv);
		err = err == -ENOENT ? 0 : err;
	}
	if (!err)
		err = rp->rp_err;
	if (!err && rp->rp_rows.tv_n) {
		qsort(rp->rp_rows.tv_r, rp->rp_rows.tv_n, sizeof(*rp->rp_rows.tv_r),
		      kv_trange_cmp);
		rp->rp_tombs = kv_tindex_new(rp->rp_rows.tv_r, rp->rp_rows.tv_n, NULL);
		err = rp->rp_tombs ? 0 : no_memory();
	}
	return err;
}

/* Something that is missing may hold a newer version of the key. */
static bool is_uncertain(const struct repair *rp, const uint8_t *key, uint16_t klen, uint64_t seq)
{
	for (size_t i = 0; i < rp->rp_nlost; i++) {
		const struct kv_lost *lo = &rp->rp_lost[i];

		if (lo->lo_max_seq >= seq && kv_kcmp(lo->lo_from, lo->lo_flen, key, klen) <= 0 &&
		    (!lo->lo_tlen || kv_kcmp(key, klen, lo->lo_to, lo->lo_tlen) < 0))
			return true;
	}
	return false;
}

/* ---- records of the logs ---------------------------------------------------------- */

/*
 * Values of transactions are passed over: whether they were ever committed said
 * the commit record, or the entry that is missing (R5).
 */
static int on_rec(void *arg, struct kv_seg *s, const struct kv_rec *r, uint64_t epoch, uint32_t off)
{
	struct repair *rp = arg;
	struct cand *c;
	int err;

	if (r->r_kvs != rp->rp_mk->mk_id || r->r_flags & KV_RECF_TXN || !r->r_klen ||
	    r->r_klen > KVDB_KEY_MAX || r->r_vlen > KVDB_VALUE_MAX ||
	    (r->r_type != KV_REC_PUT && r->r_type != KV_REC_DEL) ||
	    !is_uncertain(rp, r->r_key, r->r_klen, r->r_seq))
		return 0;
	err = grow(&rp->rp_cand, &rp->rp_candcap, rp->rp_ncand, sizeof(*c));
	if (err)
		return err;
	c = &rp->rp_cand[rp->rp_ncand];
	*c = (struct cand){
		.ca_klen = r->r_klen, .ca_seq = r->r_seq, .ca_epoch = epoch, .ca_rev = r->r_rev,
		.ca_vlen = r->r_pack ? r->r_raw_len : r->r_vlen,
		.ca_vcrc = r->r_pack ? r->r_raw_crc : r->r_vcrc,
		.ca_pack = r->r_pack, .ca_plen = r->r_vlen, .ca_pcrc = r->r_vcrc,
		.ca_expiry = r->r_expiry,
		.ca_seg = s, .ca_off8 = (off + kv_rec_val_off(r->r_klen)) / KV_REC_ALIGN,
		.ca_kind = r->r_type == KV_REC_DEL ? KV_ENT_TOMB : KV_ENT_REF,
		.ca_key = malloc(r->r_klen),
	};
	if (!c->ca_key)
		return no_memory();
	memcpy(c->ca_key, r->r_key, r->r_klen);
	rp->rp_ncand++;
	return 0;
}

/* By key, the newest first. */
static int cand_cmp(const void *a, const void *b)
{
	const struct cand *x = a, *y = b;
	int c = kv_kcmp(x->ca_key, x->ca_klen, y->ca_key, y->ca_klen);

	if (c)
		return c;
	if (x->ca_seq != y->ca_seq)
		return x->ca_seq > y->ca_seq ? -1 : 1;
	if (x->ca_epoch != y->ca_epoch)
		return x->ca_epoch > y->ca_epoch ? -1 : 1;
	return x->ca_rev > y->ca_rev ? -1 : x->ca_rev < y->ca_rev;
}

static int gather_logs(struct repair *rp)
{
	struct kv_seg *s;
	int err = 0;

	if (!rp->rp_nlost)
		return 0;
	for (s = kv_segs_first(rp->rp_db); s && !err; s = s->sg_next)
		err = kv_salvage_log(rp->rp_db, s, on_rec, rp);
	if (!err && rp->rp_ncand)
		qsort(rp->rp_cand, rp->rp_ncand, sizeof(*rp->rp_cand), cand_cmp);
	return err;
}

/* ---- sources ---------------------------------------------------------------------- */

static void next_cand(struct repair *rp, struct source *so)
{
	const struct cand *c;

	so->so_has = rp->rp_atcand < rp->rp_ncand;
	if (!so->so_has)
		return;
	c = &rp->rp_cand[rp->rp_atcand];
	so->so_e = (struct kv_ent){ .e_key = c->ca_key, .e_klen = c->ca_klen,
				    .e_kind = c->ca_kind, .e_seq = c->ca_seq,
				    .e_expiry = c->ca_expiry };
	if (c->ca_kind == KV_ENT_REF) {
		so->so_e.e_vlen = c->ca_vlen;
		so->so_e.e_vcrc = c->ca_vcrc;
		so->so_e.e_pack = c->ca_pack;
		so->so_e.e_plen = c->ca_plen;
		so->so_e.e_pcrc = c->ca_pcrc;
		so->so_e.e_off8 = c->ca_off8;
		so->so_e.e_seg = c->ca_seg;
	}
	/* of a key the newest only */
	while (++rp->rp_atcand < rp->rp_ncand &&
	       !kv_kcmp(rp->rp_cand[rp->rp_atcand].ca_key, rp->rp_cand[rp->rp_atcand].ca_klen,
			c->ca_key, c->ca_klen))
		;
}

static int next_mem(struct repair *rp, struct source *so)
{
	int err;

	do {
		struct kv_thread *t = kv_enter();

		err = so->so_it->it_ops->next(so->so_it, &so->so_e);
		kv_iter_park(so->so_it);
		kv_exit(t);
	} while (!err && so->so_e.e_seq <= rp->rp_flushed);
	return err;
}

static int source_next(struct repair *rp, struct source *so)
{
	int err = 0;

	if (so->so_kind == FROM_LOG) {
		next_cand(rp, so);
		return 0;
	}
	err = so->so_kind == FROM_RUN ? kv_salvage_next(so->so_run, &so->so_e) : next_mem(rp, so);
	if (rp->rp_err)
		return rp->rp_err;
	so->so_has = !err;
	return err == -ENOENT ? 0 : err;
}

/* RP4: what was told to be missing may be so again; more may not, what it hid would come back. */
static void on_lost_again(void *arg, const struct kv_lost *lo)
{
	struct repair *rp = arg;
	const struct kv_lost *was = rp->rp_lost;
	size_t n = rp->rp_nlost;

	while (n && !(was->lo_max_seq >= lo->lo_max_seq &&
		      kv_kcmp(was->lo_from, was->lo_flen, lo->lo_from, lo->lo_flen) <= 0 &&
		      (!was->lo_tlen || (lo->lo_tlen && kv_kcmp(lo->lo_to, lo->lo_tlen, was->lo_to,
								was->lo_tlen) <= 0))))
		n--, was++;
	if (lo->lo_is_missing && !CHECK(n) && !rp->rp_err)
		rp->rp_err = kv_error(-EIO, "MP0997", "run %llu, key block %llu, offset %llu: %s, "
				      "though it could be read before: repair into another "
				      "database once more", (unsigned long long)lo->lo_run,
				      (unsigned long long)lo->lo_obj,
				      (unsigned long long)lo->lo_off, lo->lo_what);
}

static int sources_open(struct repair *rp)
{
	struct kv_salvage_fns fns = { .sf_lost = on_lost_again, .sf_arg = rp };
	struct source *so;
	int err = 0;

	rp->rp_src = calloc(rp->rp_nrun + 2, sizeof(*so));
	if (!rp->rp_src)
		return no_memory();
	so = rp->rp_src;
	so->so_kind = FROM_MEMTABLE;
	err = kv_mt_iter(rp->rp_db, rp->rp_mt, KV_SEQ_NOW, false, &so->so_it);
	if (err)
		return err;
	rp->rp_nsrc = 1;
	/* not inside kv_enter(), where next_mem() is: it puts the memtable in order */
	err = so->so_it->it_ops->seek(so->so_it, NULL, 0);
	for (uint32_t i = 0; i < rp->rp_nrun && !err; i++) {
		so = &rp->rp_src[rp->rp_nsrc];
		so->so_kind = FROM_RUN;
		err = kv_salvage_open(rp->rp_db, rp->rp_run[i], &fns, &so->so_run);
		rp->rp_nsrc += !err;
	}
	if (!err)
		rp->rp_src[rp->rp_nsrc++].so_kind = FROM_LOG;
	for (unsigned i = 0; i < rp->rp_nsrc && !err; i++)
		err = source_next(rp, &rp->rp_src[i]);
	return err;
}

static void sources_close(struct repair *rp)
{
	for (unsigned i = 0; i < rp->rp_nsrc; i++) {
		if (rp->rp_src[i].so_it)
			rp->rp_src[i].so_it->it_ops->close(rp->rp_src[i].so_it);
		if (rp->rp_src[i].so_run)
			kv_salvage_close(rp->rp_src[i].so_run);
	}
	free(rp->rp_src);
	rp->rp_src = NULL;
	rp->rp_nsrc = 0;
}

/* ---- targets ---------------------------------------------------------------------- */

/* No store that is, or will be, brought over has the name. */
static void target_name(struct repair *rp, const char *suffix, char name[KVDB_NAME_MAX + 1])
{
	const struct kv_mdc_state *st = &rp->rp_db->d_mdc->m_st;
	struct kvdb_kvs *kvs;
	char end[16];
	bool is_taken = true;

	snprintf(name, KVDB_NAME_MAX + 1, "%s", rp->rp_mk->mk_name);
	for (unsigned n = 1; *suffix && is_taken; n++) {
		snprintf(end, sizeof(end), n > 1 ? "%s-%u" : "%s", suffix, n);
		snprintf(name, KVDB_NAME_MAX + 1, "%.*s%s", (int)(KVDB_NAME_MAX - strlen(end)),
			 rp->rp_mk->mk_name, end);
		is_taken = !kvdb_kvs_open(rp->rp_to, name, &kvs);
		for (uint32_t i = 0; i < st->st_nkvs && !is_taken; i++)
			is_taken = !strcmp(st->st_kvs[i].mk_name, name);
	}
}

static int target_open(struct repair *rp, struct target *ta)
{
	const struct kv_props *p = &rp->rp_mk->mk_props;
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	char name[KVDB_NAME_MAX + 1];
	struct kvdb_kvs *kvs;
	int err;

	ko.pfx_len = (uint32_t)p->pr_val[KV_PROP_PFX_LEN];
	ko.policy = (uint32_t)p->pr_val[KV_PROP_POLICY];
	ko.compress = (uint32_t)p->pr_val[KV_PROP_COMPRESS];
	ko.ttl_s = p->pr_val[KV_PROP_TTL];
	target_name(rp, ta->ta_suffix, name);
	err = kvdb_kvs_create(rp->rp_to, name, &ko);
	if (!err)
		err = kvdb_kvs_open(rp->rp_to, name, &kvs);
	return err ? err : kvdb_bulk_open(kvs, 0, &ta->ta_bulk);
}

static int target_add(struct repair *rp, struct target *ta, const struct kv_ent *e)
{
	int err = 0;

	if (rp->rp_to && !ta->ta_bulk)
		err = target_open(rp, ta);
	if (!err && rp->rp_to)
		err = kvdb_bulk_add(ta->ta_bulk, e->e_key, e->e_klen, rp->rp_buf, e->e_vlen);
	ta->ta_keys += !err;
	rp->rp_sum.bytes += e->e_klen + e->e_vlen;
	return err;
}

static int target_close(struct target *ta, int err)
{
	if (err)
		kvdb_bulk_abort(ta->ta_bulk);
	else if (ta->ta_bulk)
		err = kvdb_bulk_finish(ta->ta_bulk);
	ta->ta_bulk = NULL;
	return err;
}

/* ---- the merge -------------------------------------------------------------------- */

static void tell_bad(struct repair *rp)
{
	struct kvdb_problem kp = {
		.p.is_damage = 1, .object = rp->rp_bad_seg, .from = rp->rp_bad_first,
		.flen = rp->rp_bad_flen, .to = rp->rp_bad_last, .tlen = rp->rp_bad_llen + 1u,
		.keys = rp->rp_bad,
	};

	if (!rp->rp_bad)
		return;
	rp->rp_bad_last[rp->rp_bad_llen] = 0;
	say(rp, &kp, "%llu value%s one behind the other cannot be read: lost; an older version, if "
	    "one is found, goes to %s.found", (unsigned long long)rp->rp_bad,
	    rp->rp_bad == 1 ? "" : "s", rp->rp_mk->mk_name);
	rp->rp_bad = 0;
}

static void note_bad(struct repair *rp, const struct kv_ent *e)
{
	if (!rp->rp_bad) {
		memcpy(rp->rp_bad_first, e->e_key, e->e_klen);
		rp->rp_bad_flen = e->e_klen;
		rp->rp_bad_seg = e->e_seg ? e->e_seg->sg_id : 0;
	}
	memcpy(rp->rp_bad_last, e->e_key, e->e_klen);
	rp->rp_bad_llen = e->e_klen;
	rp->rp_bad++;
	rp->rp_sum.lost_values++;
}

static int value_read(struct repair *rp, const struct kv_ent *e)
{
	struct kv_thread *t;
	int err;

	if (e->e_kind == KV_ENT_REF && !e->e_seg)
		return -EUCLEAN;
	t = kv_enter();
	err = kv_value_read(rp->rp_db, e, rp->rp_buf, KVDB_VALUE_MAX);
	kv_exit(t);
	return err == -EIO ? -EUCLEAN : err;
}

/* Newest stamp of a delete of many keys that covers the key. */
static uint64_t hidden_up_to(struct repair *rp, const struct kv_ent *e)
{
	struct kv_thread *t = kv_enter();
	uint64_t seq = kv_mt_tomb_at(rp->rp_mt, e->e_key, e->e_klen, UINT64_MAX), run = 0;

	kv_exit(t);
	if (rp->rp_tombs)
		run = kv_tindex_at(rp->rp_tombs, e->e_key, e->e_klen, UINT64_MAX);
	return run > seq ? run : seq;
}

/* The source with the smallest key, of those with the newest version; NULL: the end. */
static struct source *pick(struct repair *rp)
{
	struct source *best = NULL;

	for (unsigned i = 0; i < rp->rp_nsrc; i++) {
		struct source *so = &rp->rp_src[i];
		int c;

		if (!so->so_has)
			continue;
		c = best ? kv_kcmp(so->so_e.e_key, so->so_e.e_klen, best->so_e.e_key,
				   best->so_e.e_klen) : -1;
		/* of one version the memtable's, then the run's */
		if (c < 0 || (!c && so->so_e.e_seq > best->so_e.e_seq))
			best = so;
	}
	return best;
}

/*
 * One version, newer ones of its key came before. True: older ones do not count any more.
 * RP1: it is certain if it comes from a memtable or a run, no newer version of its key failed to
 * be read (@is_old), and nothing that is missing may hold one.
 */
static bool settle(struct repair *rp, const struct source *so, bool *is_old, int *err)
{
	const struct kv_ent *e = &so->so_e;
	bool is_sure = so->so_kind != FROM_LOG && !*is_old &&
		       !is_uncertain(rp, e->e_key, e->e_klen, e->e_seq);

	if (e->e_kind == KV_ENT_TOMB || e->e_seq <= hidden_up_to(rp, e))
		return true;
	if (kv_is_expired(e, kv_time_ms(rp->rp_db))) {
		rp->rp_sum.expired_keys++;
		return true;
	}
	*err = value_read(rp, e);
	if (*err == -EUCLEAN) {
		*err = 0;
		if (!*is_old)
			note_bad(rp, e);
		*is_old = true;
		return false;
	}
	if (!*err && !*is_old)
		tell_bad(rp);
	if (!*err)
		*err = target_add(rp, CHECK(is_sure) ? &rp->rp_sure : &rp->rp_found, e);
	return true;
}

static int merge(struct repair *rp)
{
	uint8_t key[KVDB_KEY_MAX];
	uint16_t klen = 0;
	bool is_old = false, is_settled = false;
	struct source *so;
	int err = 0;

	while (!err && (so = pick(rp))) {
		const struct kv_ent *e = &so->so_e;

		if (!klen || kv_kcmp(key, klen, e->e_key, e->e_klen)) {
			memcpy(key, e->e_key, e->e_klen);
			klen = e->e_klen;
			is_old = is_settled = false;
		}
		if (!is_settled)
			is_settled = settle(rp, so, &is_old, &err);
		if (!err)
			err = source_next(rp, so);
	}
	tell_bad(rp);
	return err;
}

/* ---- one store -------------------------------------------------------------------- */

static int runs_of(struct repair *rp)
{
	const struct kv_mdc_kvs *mk = rp->rp_mk;
	uint32_t n = 0;

	rp->rp_run = calloc(mk->mk_nrun + rp->rp_nblock + 1, sizeof(*rp->rp_run));
	if (!rp->rp_run)
		return no_memory();
	for (uint32_t i = 0; i < mk->mk_nrun && !rp->rp_db->d_mdc->m_is_cut; i++)
		rp->rp_run[n++] = &mk->mk_run[i];
	for (size_t i = 0; i < rp->rp_nblock; i++) {
		if (rp->rp_block[i].rd_kvs != mk->mk_id)
			continue;
		rp->rp_run[n++] = &rp->rp_block[i];
		if (rp->rp_block[i].rd_max_seq > rp->rp_flushed)
			rp->rp_flushed = rp->rp_block[i].rd_max_seq;
	}
	rp->rp_nrun = n;
	return 0;
}

static void store_free(struct repair *rp)
{
	while (rp->rp_ncand)
		free(rp->rp_cand[--rp->rp_ncand].ca_key);
	for (uint32_t i = 0; i < rp->rp_rows.tv_n; i++)
		free((void *)rp->rp_rows.tv_r[i].tr_from);
	kv_tindex_free(rp->rp_tombs);
	free(rp->rp_rows.tv_r);
	free(rp->rp_run);
	rp->rp_rows = (struct kv_trows){ 0 };
	rp->rp_tombs = NULL;
	rp->rp_run = NULL;
	rp->rp_nlost = rp->rp_atcand = 0;
	rp->rp_flushed = 0;
}

static int store_repair(struct repair *rp, const struct kv_mdc_kvs *mk)
{
	struct kvdb_kvs *kvs = kv_kvs_by_id(rp->rp_db, mk->mk_id);
	int err, e2;

	rp->rp_mk = mk;
	rp->rp_mt = atomic_load(&kvs->k_tree)->tr_mt[0];
	rp->rp_sure = (struct target){ .ta_suffix = "" };
	rp->rp_found = (struct target){ .ta_suffix = ".found" };
	err = runs_of(rp);
	if (!err)
		err = walk_runs(rp);
	if (!err)
		err = gather_logs(rp);
	/* a store without a key is a store */
	if (!err && rp->rp_to)
		err = target_open(rp, &rp->rp_sure);
	if (!err)
		err = sources_open(rp);
	if (!err)
		err = merge(rp);
	sources_close(rp);
	err = target_close(&rp->rp_sure, err);
	e2 = target_close(&rp->rp_found, err);
	store_free(rp);
	rp->rp_mk = NULL;
	rp->rp_sum.stores++;
	rp->rp_sum.keys += rp->rp_sure.ta_keys;
	rp->rp_sum.found_keys += rp->rp_found.ta_keys;
	return err ? err : e2;
}

/* ---- without a container ------------------------------------------------------------ */

static int add_block(struct repair *rp, const struct mpool_obj_info *oi, const uint8_t *page)
{
	uint32_t crc = kv_le32(page + KV_PAGE - 4), kvs = kv_le32(page + 24);
	struct kv_kfoot *f = malloc(sizeof(*f));
	struct kvdb_problem kp = { .p.is_damage = 1, .object = oi->id };
	size_t i = rp->rp_nblock;
	int err = f ? 0 : no_memory();

	if (!err && kv_kfoot_decode(page, crc, rp->rp_db->d_ident.id_tag, oi->id, kvs,
				    (uint32_t)oi->length, f)) {
		free(f);
		if (kv_le32(page) == KV_KBLOCK_MAGIC)
			say(rp, &kp, "object %llu: a key block whose footer is damaged: what it "
			    "says is lost", (unsigned long long)oi->id);
		return 0;
	}
	if (!err)
		err = grow(&rp->rp_block, &rp->rp_blockcap, i, sizeof(*rp->rp_block));
	if (!err)
		err = grow(&rp->rp_kb, &rp->rp_kbcap, i, sizeof(*rp->rp_kb));
	if (!err) {
		rp->rp_kb[i] = (struct kv_kblock_desc){ .kd_id = oi->id, .kd_crc = crc,
							.kd_len = (uint32_t)oi->length };
		rp->rp_block[i] = (struct kv_run_desc){ .rd_kvs = kvs, .rd_keys = f->kf_nkeys,
							.rd_max_seq = f->kf_max_seq, .rd_n = 1 };
		rp->rp_nblock++;
		rp->rp_has_kvs[kvs % MOST_STORES / 8] |= (uint8_t)(1u << kvs % 8);
	}
	free(f);
	return err;
}

static int read_block(struct repair *rp, const struct mpool_obj_info *oi, uint8_t *page)
{
	struct kvdb_problem kp = { .p.is_damage = 1, .object = oi->id };
	struct mpool_obj *obj;
	int err;

	if (oi->kind != MPOOL_MBLOCK || oi->length < 2 * KV_PAGE || oi->length > KV_KBLOCK_MAX)
		return 0;
	err = mpool_obj_open(rp->rp_db->d_mp, oi->id, &obj);
	if (err)
		return kv_error_mpool(err);
	if (!kv_dev_read(rp->rp_db, obj, KV_READ_KEY, oi->length - KV_PAGE, page, KV_PAGE))
		err = add_block(rp, oi, page);
	else
		say(rp, &kp, "object %llu: its last page cannot be read: if it is a key block, "
		    "what it says is lost", (unsigned long long)oi->id);
	mpool_obj_close(obj);
	return err;
}

static int find_blocks(struct repair *rp)
{
	uint8_t *page = aligned_alloc(KV_PAGE, KV_PAGE);
	struct mpool_obj_info oi[64];
	uint64_t after = 0;
	int n, err = page ? 0 : no_memory();

	while (!err && (n = mpool_objects(rp->rp_db->d_mp, after, rp->rp_db->d_ident.id_tag, oi,
					  64)) != 0) {
		if (n < 0)
			err = kv_error_mpool(n);
		for (int i = 0; i < n && !err; i++) {
			after = oi[i].id;
			err = read_block(rp, &oi[i], page);
		}
	}
	free(page);
	for (size_t i = 0; i < rp->rp_nblock; i++)
		rp->rp_block[i].rd_kb = &rp->rp_kb[i];
	return err;
}

static int note_kvs(void *arg, struct kv_seg *s, const struct kv_rec *r, uint64_t epoch,
		    uint32_t off)
{
	struct repair *rp = arg;
	struct kv_commit_ent e;
	uint32_t pos = 0;

	(void)s;
	(void)epoch;
	(void)off;
	if (r->r_type == KV_REC_PUT)
		rp->rp_has_kvs[r->r_kvs / 8] |= (uint8_t)(1u << r->r_kvs % 8);
	while (r->r_type == KV_REC_COMMIT && kv_commit_next(r, &pos, &e))
		rp->rp_has_kvs[e.ce_kvs / 8] |= (uint8_t)(1u << e.ce_kvs % 8);
	return 0;
}

/* Stores that the container does not know, and that were not there to be dropped, by number. */
static int find_stores(struct repair *rp)
{
	struct kv_mdc_state *st = &rp->rp_db->d_mdc->m_st;
	struct kv_seg *s;
	int err = 0;

	for (s = kv_segs_first(rp->rp_db); s && !err; s = s->sg_next) {
		atomic_store(&s->sg_end, kv_seg_readable(s));
		err = kv_salvage_log(rp->rp_db, s, note_kvs, rp);
	}
	for (uint32_t id = 1; id < MOST_STORES && !err; id++) {
		struct kv_mdc_kvs *mk = &st->st_kvs[st->st_nkvs];

		if (!(rp->rp_has_kvs[id / 8] >> id % 8 & 1) || id < st->st_super.ms_next_kvs ||
		    kv_mdc_state_kvs(st, id) || st->st_nkvs == KVDB_KVS_MAX)
			continue;
		*mk = (struct kv_mdc_kvs){ .mk_id = id };
		snprintf(mk->mk_name, sizeof(mk->mk_name), "store-%u", id);
		st->st_nkvs++;
	}
	return err;
}

static int guess(struct repair *rp)
{
	struct kvdb_problem kp = { .p.is_damage = 1 };
	int err;

	if (!rp->rp_db->d_mdc->m_is_cut)
		return 0;
	rp->rp_sum.is_guess = 1;
	say(rp, &kp, "the metadata container is damaged: names and options of stores are %s, runs "
	    "those whose key blocks are found; what was deleted or overwritten may come back",
	    rp->rp_db->d_mdc->m_log ? "those in front of the damage" : "lost");
	rp->rp_has_kvs = calloc(1, MOST_STORES / 8);
	err = rp->rp_has_kvs ? find_blocks(rp) : no_memory();
	return err ? err : find_stores(rp);
}

/* ---- all of it -------------------------------------------------------------------- */

static int repair_all(struct repair *rp)
{
	struct kvdb *db = rp->rp_db;
	struct kv_mdc_state *st = &db->d_mdc->m_st;
	struct kvdb_problem kp = { .p.is_damage = 1 };
	bool is_lossy = db->d_mdc->m_is_cut;
	int err = guess(rp), was_lost;
	uint32_t n;

	if (!err)
		err = kv_time_start(db, st->st_time);
	if (!err)
		err = kv_db_load_kvs(db, 0, false);
	if (err)
		return err;
	/* a cut container knows neither the newest incarnation nor what is missing */
	if (!is_lossy)
		err = kv_recover(db, KV_RECOVER_ALL);
	if (err == -EUCLEAN || err == -EIO) {
		was_lost = !strcmp(kvdb_error_detail()->id, "MP0961");
		say(rp, &kp, "recovery stops at %s: every record that can be read is taken",
		    kvdb_error_detail()->text);
		is_lossy = true;
		err = 0;
		/* more stores than the container knows, if that is why */
		n = st->st_nkvs;
		if (!rp->rp_sum.is_guess)
			err = guess(rp);
		if (!err)
			err = kv_db_load_kvs(db, n, false);
		rp->rp_sum.is_guess |= was_lost;
	}
	if (!err && is_lossy)
		err = kv_recover_lossy(db, on_hole, rp);
	for (uint32_t i = 0; i < st->st_nkvs && !err; i++)
		err = store_repair(rp, &st->st_kvs[i]);
	return err;
}

int kvdb_repair(const char *pool, const struct kvdb_opts *opts, struct kvdb *to,
		mpool_problem_fn *fn, void *arg, struct kvdb_repair *out)
{
	struct kvdb_opts o;
	struct repair rp = { .rp_to = to, .rp_fn = fn, .rp_arg = arg };
	int err;

	err = kv_opts_take(opts, KVDB_RDONLY, &o);
	if (!err)
		err = kv_threads_ready();
	if (err)
		return err;
	if (o.checkpoint)
		return kv_error(-EINVAL, "MP0951", "a checkpoint cannot be repaired");
	if (to && kvdb_kvs_list(to, NULL, 0))
		return kv_error(-EINVAL, "MP0995", "the database to fill has stores");
	rp.rp_db = calloc(1, sizeof(*rp.rp_db));
	rp.rp_buf = malloc(KVDB_VALUE_MAX);
	if (!rp.rp_db || !rp.rp_buf) {
		free(rp.rp_db);
		free(rp.rp_buf);
		return no_memory();
	}
	rp.rp_db->d_mode.md_is_lossy = true;
	err = kv_db_attach(rp.rp_db, pool, &o, true);
	if (!err)
		err = repair_all(&rp);
	kv_db_detach(rp.rp_db);
	if (rp.rp_db->d_mp)
		mpool_close(rp.rp_db->d_mp);
	free(rp.rp_db);
	free(rp.rp_buf);
	free(rp.rp_block);
	free(rp.rp_kb);
	free(rp.rp_lost);
	free(rp.rp_cand);
	free(rp.rp_has_kvs);
	if (!err)
		*out = rp.rp_sum;
	return err;
}
