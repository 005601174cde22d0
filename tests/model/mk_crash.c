/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What must have survived a crash. The database is read once; then the greatest
 * legal cut through the history is sought: of each thread the first so many
 * writes, such that
 *  - the thread's own keys have exactly the effect of these;
 *  - whole transactions are in or out;
 *  - of a key that all write, the version found is in, and nothing that
 *    certainly replaced it;
 *  - what ended before something in the cut began is in the cut too;
 *  - what a sync covered, and in commit mode what was acknowledged, is in;
 *  - the acknowledgements of what is out span at most the loss bound.
 * Every condition is closed under taking the greater of two cuts, so when the
 * greatest one fails, all do.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mk.h"

struct judge {
	struct mk_world *j_wo;
	const struct mk_crash *j_cr;
	struct mk_have *j_have;			/* MK_STORES x MK_KEYS */
	uint32_t j_n[MK_THREADS];		/* begun before the crash */
	uint32_t j_acked[MK_THREADS];
	uint32_t j_least[MK_THREADS];
	uint32_t j_cut[MK_THREADS];
	uint32_t j_max[MK_THREADS];		/* a cut may not be greater */
	uint8_t *j_fit[MK_THREADS];		/* whether the first so many fit */
	uint8_t *j_scratch;
};

static struct mk_have *have_of(struct judge *j, unsigned s, unsigned k)
{
	return &j->j_have[s * MK_KEYS + k];
}

static const struct mk_op *op_of(const struct judge *j, unsigned t, uint32_t i)
{
	return &j->j_wo->wo_shm->sm_th[t].th_op[i];
}

static bool has_ended(const struct judge *j, const struct mk_op *op)
{
	uint64_t e = __atomic_load_n(&op->op_end, __ATOMIC_ACQUIRE);

	return e && e < j->j_cr->cr_certain;
}

/* ---- reading everything ---- */

static int read_forward(struct judge *j, unsigned s)
{
	struct mk_world *wo = j->j_wo;
	struct kvdb_cursor *cur;
	const void *key, *val;
	size_t klen, vlen;
	int rc, k, last = -1;

	rc = kvdb_cursor_open(wo->wo_kvs[s], 0, NULL, 0, &cur);
	if (rc)
		return rc;
	while (!(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen))) {
		k = mk_key_find(wo, key, klen);
		if (k <= last) {
			mk_fail(wo, "store %u: after key %d the cursor shows key %d", s, last, k);
			break;
		}
		last = k;
		if (!mk_value_read(wo, s, (unsigned)k, val, vlen, j->j_scratch,
				   have_of(j, s, (unsigned)k))) {
			mk_fail(wo, "store %u key %d: %zu bytes that are no version of it", s, k,
				vlen);
			break;
		}
	}
	kvdb_cursor_close(cur);
	return rc == -ENOENT ? 0 : rc;
}

/* Backward, keys only; then every key by get. */
static int read_again(struct judge *j, unsigned s)
{
	static uint8_t buf[MK_VALUE_MAX];
	struct mk_world *wo = j->j_wo;
	struct kvdb_cursor *cur;
	const void *key, *val;
	int rc, k, at = (int)wo->wo_keys - 1;
	size_t klen, vlen;

	rc = kvdb_cursor_open(wo->wo_kvs[s], KVDB_REVERSE | KVDB_KEYS_ONLY, NULL, 0, &cur);
	if (rc)
		return rc;
	do {
		rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen);
		k = rc ? -1 : mk_key_find(wo, key, klen);
		while (at > k && have_of(j, s, (unsigned)at)->ha_len == MK_ABSENT)
			at--;
		if (at-- != k)
			mk_fail(wo, "store %u: backward the cursor shows key %d, not %d", s, k,
				at + 1);
	} while (!rc && !mk_failed(wo));
	kvdb_cursor_close(cur);
	for (k = 0; k < (int)wo->wo_keys && rc == -ENOENT; k++) {
		const struct mk_key *ke = &wo->wo_key[k];
		struct mk_have ha = { .ha_len = MK_ABSENT }, *want = have_of(j, s, (unsigned)k);
		int err;

		err = kvdb_get(wo->wo_kvs[s], ke->ke_buf, ke->ke_len, buf, sizeof(buf), &vlen);
		if (!err)
			mk_value_read(wo, s, (unsigned)k, buf, vlen, j->j_scratch, &ha);
		else if (err != -ENOENT)
			return err;
		if (ha.ha_len != want->ha_len || ha.ha_head != want->ha_head)
			mk_fail(wo, "store %u key %d: get and cursor differ", s, k);
	}
	return rc == -ENOENT ? 0 : rc;
}

static void read_all(struct judge *j)
{
	unsigned s, k;
	int rc;

	for (s = 0; s < MK_STORES && !mk_failed(j->j_wo); s++) {
		for (k = 0; k < MK_KEYS; k++)
			*have_of(j, s, k) = (struct mk_have){ .ha_len = MK_ABSENT };
		rc = read_forward(j, s);
		if (!rc && !mk_failed(j->j_wo))
			rc = read_again(j, s);
		if (rc)
			mk_fail(j->j_wo, "reading store %u: %d (%s)", s, rc,
				kvdb_error_detail()->text);
	}
}

/* ---- what fits ---- */

static void extent(struct judge *j)
{
	struct mk_world *wo = j->j_wo;
	unsigned t, i;

	for (t = 0; t < wo->wo_threads; t++) {
		const struct mk_thread *th = &wo->wo_shm->sm_th[t];
		uint32_t n = __atomic_load_n(&th->th_n, __ATOMIC_ACQUIRE), a = 0;

		while (n && op_of(j, t, n - 1)->op_begin > j->j_cr->cr_possible)
			n--;
		while (a < n && has_ended(j, op_of(j, t, a)))
			a++;
		j->j_n[t] = j->j_max[t] = n;
		j->j_acked[t] = a;
		j->j_least[t] = j->j_cr->cr_certain == UINT64_MAX ? th->th_synced : 0;
		for (i = 0; i < wo->wo_shm->sm_nsync && i < MK_SYNCS; i++) {
			const struct mk_sync *sy = &wo->wo_shm->sm_sync[i];

			if (sy->sy_end && sy->sy_end < j->j_cr->cr_certain &&
			    j->j_least[t] < sy->sy_acked[t])
				j->j_least[t] = sy->sy_acked[t];
		}
		if (wo->wo_is_commit)
			j->j_least[t] = a;
		if (j->j_cr->cr_is_clean)
			j->j_least[t] = n;
		if (j->j_cr->cr_is_ckpt)
			j->j_least[t] = a;
		j->j_fit[t] = calloc(n + 1u, 1);
	}
}

/* Which numbers of writes of thread @t leave its own keys as they were found. */
static bool fits_find(struct judge *j, unsigned t)
{
	struct mk_world *wo = j->j_wo;
	uint64_t (*now)[MK_KEYS] = malloc(sizeof(wo->wo_shm->sm_base));
	unsigned s, k, wrong = 0, least_wrong = UINT32_MAX, near = 0, odd_s = 0, odd_k = 0;
	bool any = false;
	uint32_t i;

	memcpy(now, wo->wo_shm->sm_base, sizeof(wo->wo_shm->sm_base));
	for (s = 0; s < MK_STORES; s++)
		for (k = 0; k < wo->wo_keys; k++)
			if (wo->wo_key[k].ke_owner == t)
				wrong += !mk_have_is(wo, have_of(j, s, k), s, k, now[s][k]);
	for (i = 0;; i++) {
		const struct mk_op *op = op_of(j, t, i);

		if (wrong < least_wrong) {
			least_wrong = wrong;
			near = i;
		}
		j->j_fit[t][i] = !wrong && (!i || !op_of(j, t, i - 1)->op_rest);
		any |= j->j_fit[t][i];
		if (i == j->j_n[t])
			break;
		s = op->op_store;
		for (k = op->op_key; k < op->op_key2 && op->op_kind != MK_NONE; k++) {
			const struct mk_have *ha = have_of(j, s, k);

			if (wo->wo_key[k].ke_owner != t)
				continue;
			wrong -= !mk_have_is(wo, ha, s, k, now[s][k]);
			now[s][k] = op->op_kind == MK_PUT ? mk_id(wo->wo_round, t, i) : 0;
			if (mk_have_is(wo, ha, s, k, now[s][k]))
				continue;
			wrong++;
			odd_s = s;
			odd_k = k;
		}
	}
	if (!any)
		mk_fail(wo, "thread %u: no prefix of its %u writes (%u acknowledged, %u synced) "
			"fits; nearest %u with %u wrong; store %u key %u has %u bytes of %llx", t,
			j->j_n[t], j->j_acked[t], j->j_least[t], near, least_wrong, odd_s, odd_k,
			have_of(j, odd_s, odd_k)->ha_len,
			(unsigned long long)have_of(j, odd_s, odd_k)->ha_head);
	free(now);
	return any;
}

/* ---- keys that all write ---- */

struct shared {
	uint64_t sh_end;	/* of the version found; 0 = begun before the round */
	bool sh_is_shared;
};

/* The version found must be in the cut of its writer. */
static bool shared_found(struct judge *j, struct shared *sh, unsigned s, unsigned k)
{
	struct mk_world *wo = j->j_wo;
	const struct mk_have *ha = have_of(j, s, k);
	uint64_t id = ha->ha_head;
	unsigned t = mk_id_thread(id);
	const struct mk_op *op;
	uint32_t i = (uint32_t)id;

	sh->sh_is_shared = true;
	if (ha->ha_len == MK_ABSENT || id == wo->wo_shm->sm_base[s][k])
		return true;
	op = t < wo->wo_threads ? op_of(j, t, i) : NULL;
	if (!op || mk_id_round(id) != wo->wo_round || i >= j->j_n[t] || op->op_key != k ||
	    op->op_store != s || op->op_kind != MK_PUT) {
		mk_fail(wo, "store %u key %u: version %llx was never written in this round", s, k,
			(unsigned long long)id);
		return false;
	}
	sh->sh_end = has_ended(j, op) ? op->op_end : UINT64_MAX;
	if (j->j_least[t] < i + 1)
		j->j_least[t] = i + 1;
	return true;
}

static void shared_deleted(const struct judge *j, struct shared *sh, const struct mk_op *op)
{
	uint64_t end = has_ended(j, op) ? op->op_end : UINT64_MAX;
	unsigned k;

	for (k = op->op_key; k < op->op_key2 && op->op_kind == MK_DEL; k++) {
		unsigned x = op->op_store * MK_KEYS + k;

		if (sh[x].sh_is_shared && j->j_have[x].ha_len == MK_ABSENT && end > sh[x].sh_end)
			sh[x].sh_end = end;
	}
}

static bool is_certainly_later(const struct judge *j, const struct shared *sh,
			       const struct mk_op *op)
{
	unsigned k;

	for (k = op->op_key; k < op->op_key2 && op->op_kind != MK_NONE; k++) {
		unsigned x = op->op_store * MK_KEYS + k;

		if (sh[x].sh_is_shared && op->op_begin > sh[x].sh_end &&
		    !(op->op_kind == MK_DEL && j->j_have[x].ha_len == MK_ABSENT))
			return true;
	}
	return false;
}

/* Writes that certainly came after what was found bound the cuts from above. */
static bool shared_bounds(struct judge *j)
{
	struct mk_world *wo = j->j_wo;
	struct shared *sh = calloc((size_t)MK_STORES * MK_KEYS, sizeof(*sh));
	bool ok = true;
	unsigned s, k, t;
	uint32_t i;

	for (s = 0; s < MK_STORES; s++)
		for (k = 0; k < wo->wo_keys && ok; k++)
			if (wo->wo_key[k].ke_owner == MK_SHARED)
				ok = shared_found(j, &sh[s * MK_KEYS + k], s, k);
	/* an absent key: the newest end of a delete */
	for (t = 0; t < wo->wo_threads; t++)
		for (i = 0; i < j->j_n[t]; i++)
			shared_deleted(j, sh, op_of(j, t, i));
	for (t = 0; t < wo->wo_threads && ok; t++) {
		for (i = 0; i < j->j_max[t]; i++)
			if (is_certainly_later(j, sh, op_of(j, t, i)))
				j->j_max[t] = i;
	}
	free(sh);
	return ok;
}

/* ---- the cut ---- */

static void cut_lower(struct judge *j, unsigned t, uint32_t at)
{
	while (at && !j->j_fit[t][at])
		at--;
	j->j_cut[t] = at;
}

/* How many of the writes of @u ended before write @i - 1 of @t began. */
static uint32_t must_precede(const struct judge *j, unsigned t, uint32_t i, unsigned u)
{
	uint32_t lo = 0, hi = j->j_acked[u];
	uint64_t begin;

	if (!i)
		return 0;
	begin = op_of(j, t, i - 1)->op_begin;
	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (op_of(j, u, mid)->op_end < begin)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void cut_find(struct judge *j)
{
	unsigned t, u, n = j->j_wo->wo_threads;
	bool again = true;

	for (t = 0; t < n; t++)
		cut_lower(j, t, j->j_max[t]);
	while (again) {
		again = false;
		for (t = 0; t < n; t++) {
			for (u = 0; u < n; u++) {
				uint32_t at = j->j_cut[t];

				while (at && must_precede(j, t, at, u) > j->j_cut[u])
					at--;
				if (at == j->j_cut[t])
					continue;
				cut_lower(j, t, at);
				again = true;
			}
		}
	}
}

/* Acknowledgements that are lost lie at most the bound apart. */
static void bound_check(struct judge *j)
{
	const struct mk_world *wo = j->j_wo;
	uint64_t first = UINT64_MAX, last = 0, bound;
	uint32_t ms = wo->wo_bound_ms, i;
	unsigned t;

	if (ms == KVDB_INTERVAL_NONE || wo->wo_is_commit)
		return;
	bound = ms * 1000000ull;
	for (t = 0; t < wo->wo_threads; t++) {
		for (i = j->j_cut[t]; i < j->j_acked[t]; i++) {
			const struct mk_op *op = op_of(j, t, i);

			if (op->op_kind == MK_NONE)
				continue;
			/* the stamps lie around the acknowledgement */
			if (op->op_end < first)
				first = op->op_end;
			if (op->op_begin > last)
				last = op->op_begin;
		}
	}
	if (last > first && last - first > bound)
		mk_fail(j->j_wo, "lost acknowledgements span %llu us, the bound is %u ms",
			(unsigned long long)(last - first) / 1000, ms);
}

static void cut_check(struct judge *j)
{
	struct mk_world *wo = j->j_wo;
	char all[400] = "";
	unsigned t, bad = 0;

	for (t = 0; t < wo->wo_threads; t++) {
		bad += j->j_cut[t] < j->j_least[t] || !j->j_fit[t][j->j_cut[t]];
		snprintf(all + strlen(all), sizeof(all) - strlen(all),
			 " [%u: %u fit, at least %u, at most %u, %u acknowledged, %u begun]", t,
			 j->j_cut[t], j->j_least[t], j->j_max[t], j->j_acked[t], j->j_n[t]);
	}
	if (bad)
		mk_fail(wo, "no cut through the history fits:%s", all);
	else if (!j->j_cr->cr_is_ckpt)
		bound_check(j);
}

/* What the next round begins with, and no history. */
static void base_take(struct judge *j)
{
	struct mk_world *wo = j->j_wo;
	struct mk_shm *shm = wo->wo_shm;
	unsigned s, k, t;
	uint32_t i;

	for (t = 0; t < wo->wo_threads; t++) {
		for (i = 0; i < j->j_cut[t]; i++) {
			const struct mk_op *op = op_of(j, t, i);

			for (k = op->op_key; k < op->op_key2 && op->op_kind != MK_NONE; k++)
				if (wo->wo_key[k].ke_owner == t)
					shm->sm_base[op->op_store][k] = op->op_kind == MK_PUT ?
						mk_id(wo->wo_round, t, i) : 0;
		}
		shm->sm_th[t].th_n = shm->sm_th[t].th_acked = shm->sm_th[t].th_synced = 0;
	}
	memset(shm->sm_sync, 0, sizeof(shm->sm_sync));
	memset(shm->sm_ckpt, 0, sizeof(shm->sm_ckpt));
	shm->sm_nsync = shm->sm_nckpt = 0;
	for (s = 0; s < MK_STORES; s++)
		for (k = 0; k < wo->wo_keys; k++)
			if (wo->wo_key[k].ke_owner == MK_SHARED)
				shm->sm_base[s][k] = have_of(j, s, k)->ha_len == MK_ABSENT ?
						     0 : have_of(j, s, k)->ha_head;
}

static bool in_list(char (*names)[KVDB_NAME_MAX + 1], int n, const char *name)
{
	while (n-- > 0)
		if (!strcmp(names[n], name))
			return true;
	return false;
}

/* The stores that are there: the three, and those of the others that must or may be. */
static void stores_check(struct mk_world *wo, const struct mk_crash *cr, bool keep)
{
	struct mk_shm *shm = wo->wo_shm;
	char names[16][KVDB_NAME_MAX + 1], name[KVDB_NAME_MAX + 1];
	int n = kvdb_kvs_list(wo->wo_db, names, 16), known = MK_STORES;
	unsigned i;

	for (i = 0; i < shm->sm_nchurn; i++) {
		struct mk_churn *ch = &shm->sm_churn[i];
		bool is_there, must, may;

		mk_churn_name(i, name);
		is_there = in_list(names, n, name);
		must = ch->ch_make_end && ch->ch_make_end < cr->cr_certain &&
		       (!ch->ch_drop_begin || ch->ch_drop_begin > cr->cr_possible);
		may = ch->ch_make_begin <= cr->cr_possible &&
		      !(ch->ch_drop_end && ch->ch_drop_end < cr->cr_certain);
		if (is_there ? !may : must)
			mk_fail(wo, "store %s is %s", name, is_there ? "back" : "lost");
		known += is_there;
		if (!keep)
			continue;
		*ch = is_there ? (struct mk_churn){ 1, 1, 0, 0 } : (struct mk_churn){ 1, 1, 1, 1 };
	}
	if (n != known)
		mk_fail(wo, "%d stores where %d are known", n, known);
}

/* They belong to the round that ends. */
static void checkpoints_drop(struct mk_world *wo)
{
	struct kvdb_checkpoint_info info[MK_CKPTS];
	int n = kvdb_checkpoint_list(wo->wo_db, info, MK_CKPTS), rc = n < 0 ? n : 0;

	while (n-- > 0 && !rc)
		rc = kvdb_checkpoint_drop(wo->wo_db, info[n].name);
	if (rc)
		mk_fail(wo, "dropping checkpoints: %d (%s)", rc, kvdb_error_detail()->text);
}

void mk_judge(struct mk_world *wo, const struct mk_crash *cr, bool keep)
{
	struct judge j = { .j_wo = wo, .j_cr = cr };
	bool ok = true;
	unsigned t;

	j.j_have = malloc((size_t)MK_STORES * MK_KEYS * sizeof(*j.j_have));
	j.j_scratch = malloc(MK_VALUE_MAX);
	if (!j.j_have || !j.j_scratch)
		abort();
	if (!cr->cr_is_ckpt)
		stores_check(wo, cr, keep);
	read_all(&j);
	extent(&j);
	for (t = 0; t < wo->wo_threads; t++)
		ok = ok && !mk_failed(wo) && fits_find(&j, t);
	if (ok && shared_bounds(&j)) {
		cut_find(&j);
		cut_check(&j);
		if (keep && !mk_failed(wo)) {
			base_take(&j);
			checkpoints_drop(wo);
		}
	}
	for (t = 0; t < wo->wo_threads; t++)
		free(j.j_fit[t]);
	free(j.j_have);
	free(j.j_scratch);
}

static void judge_checkpoint(struct mk_world *wo, const struct mk_ckpt *ck, const char *name)
{
	struct mk_crash cr = { .cr_certain = ck->ck_begin, .cr_possible = ck->ck_end,
			       .cr_is_ckpt = true };
	struct kvdb *db = wo->wo_db;
	char why[600];

	if (!cr.cr_possible)
		cr.cr_possible = UINT64_MAX;
	wo->wo_opts.checkpoint = name;
	if (!mk_open(wo, KVDB_RDONLY)) {
		mk_judge(wo, &cr, false);
		mk_close(wo);
	}
	wo->wo_opts.checkpoint = NULL;
	wo->wo_db = db;
	if (mk_failed(wo)) {
		snprintf(why, sizeof(why), " [checkpoint %s]", name);
		strncat(wo->wo_shm->sm_why, why,
			sizeof(wo->wo_shm->sm_why) - strlen(wo->wo_shm->sm_why) - 1);
	}
}

void mk_judge_checkpoints(struct mk_world *wo, const struct mk_crash *cr)
{
	const struct mk_shm *shm = wo->wo_shm;
	struct kvdb_checkpoint_info info[MK_CKPTS + 1];
	unsigned i, known = 0, n;
	char name[KVDB_NAME_MAX + 1];
	bool is_there[MK_CKPTS];
	int have, k;

	if (mk_open(wo, KVDB_RDONLY))
		return;
	have = kvdb_checkpoint_list(wo->wo_db, info, MK_CKPTS + 1);
	mk_close(wo);
	n = have < 0 ? 0 : (unsigned)have;
	for (i = 0; i < shm->sm_nckpt && i < MK_CKPTS; i++) {
		const struct mk_ckpt *ck = &shm->sm_ckpt[i];

		mk_ckpt_name(wo, i, name);
		is_there[i] = false;
		for (k = 0; k < (int)n && k <= (int)MK_CKPTS; k++)
			is_there[i] |= !strcmp(info[k].name, name);
		known += is_there[i];
		if (is_there[i] ? ck->ck_drop_end && ck->ck_drop_end < cr->cr_certain :
				  ck->ck_end && ck->ck_end < cr->cr_certain &&
				  (!ck->ck_drop_begin || ck->ck_drop_begin > cr->cr_possible))
			mk_fail(wo, "checkpoint %s is %s", name, is_there[i] ? "back" : "lost");
	}
	if (have != (int)known)
		mk_fail(wo, "%d checkpoints where %u are known", have, known);
	for (i = 0; i < shm->sm_nckpt && i < MK_CKPTS && !mk_failed(wo); i++) {
		mk_ckpt_name(wo, i, name);
		if (is_there[i])
			judge_checkpoint(wo, &shm->sm_ckpt[i], name);
	}
}
