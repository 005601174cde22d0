/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Threads at work on an open database, and what they check while they work.
 * See mk.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mk.h"

#define MSEC	1000000ull

static bool is_over(struct mk_worker *w)
{
	return w->w_done >= w->w_wo->wo_quota || mk_failed(w->w_wo) ||
	       w->w_th->th_n > MK_OPS - 1000;
}

static void nap_us(unsigned us)
{
	struct timespec ts = { .tv_nsec = (long)us * 1000 };

	nanosleep(&ts, NULL);
}

static void broken(struct mk_worker *w, const char *what, int rc)
{
	mk_fail(w->w_wo, "thread %u, operation %llu: %s: %d (%s)", w->w_no,
		(unsigned long long)w->w_done, what, rc, kvdb_error_detail()->text);
}

/* ---- writes ---- */

static uint32_t op_begin(struct mk_worker *w, struct mk_op what)
{
	struct mk_thread *th = w->w_th;
	uint32_t n = th->th_n;
	struct mk_op *op = &th->th_op[n];
	unsigned k;

	*op = what;
	op->op_begin = mk_now();
	for (k = op->op_key; k < op->op_key2 && op->op_kind != MK_NONE; k++)
		mk_ring_begin(mk_ring_of(w->w_wo, op->op_store, k),
			      mk_id(w->w_wo->wo_round, w->w_no, n), op->op_begin,
			      op->op_kind == MK_DEL);
	__atomic_store_n(&th->th_n, n + 1, __ATOMIC_RELEASE);
	return n;
}

uint32_t mk_write_begin(struct mk_worker *w, unsigned store, unsigned key, enum mk_kind kind,
			unsigned rest)
{
	return op_begin(w, (struct mk_op){ .op_key = (uint16_t)key, .op_key2 = (uint16_t)(key + 1),
					   .op_store = (uint8_t)store, .op_kind = (uint8_t)kind,
					   .op_rest = (uint8_t)rest });
}

uint32_t mk_range_begin(struct mk_worker *w, unsigned store, unsigned lo, unsigned hi,
			enum mk_kind kind, unsigned rest)
{
	return op_begin(w, (struct mk_op){ .op_key = (uint16_t)lo, .op_key2 = (uint16_t)hi,
					   .op_store = (uint8_t)store, .op_kind = (uint8_t)kind,
					   .op_rest = (uint8_t)rest });
}

/* 0, or the error that refused them: then they never were */
void mk_write_end(struct mk_worker *w, uint32_t first, uint32_t n, int rc)
{
	struct mk_thread *th = w->w_th;
	uint64_t now = mk_now();
	uint32_t i;
	unsigned k;

	for (i = first; i < first + n; i++) {
		struct mk_op *op = &th->th_op[i];
		uint64_t id = mk_id(w->w_wo->wo_round, w->w_no, i);

		if (rc)
			op->op_kind = MK_NONE;
		for (k = op->op_key; k < op->op_key2; k++) {
			if (op->op_kind != MK_NONE && w->w_wo->wo_key[k].ke_owner == w->w_no)
				w->w_cur[op->op_store][k] = op->op_kind == MK_PUT ? id : 0;
			mk_ring_end(mk_ring_of(w->w_wo, op->op_store, k), id, now, rc);
		}
		__atomic_store_n(&op->op_end, now, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&th->th_acked, first + n, __ATOMIC_RELEASE);
}

unsigned mk_key_pick(struct mk_worker *w, bool for_read)
{
	const struct mk_world *wo = w->w_wo;
	unsigned tries, k = 0;

	for (tries = 0; tries < 64; tries++) {
		uint64_t x = mk_rand(&w->w_rnd);
		unsigned g = (unsigned)(x >> 8) % wo->wo_groups, n;

		/* half of all accesses go to a quarter of the keys */
		n = wo->wo_group_hi[g] - wo->wo_group_lo[g];
		if (n > 4 && (x & 1))
			n /= 4;
		k = wo->wo_group_lo[g] + (unsigned)(x >> 20) % n;
		if (wo->wo_group_owner[g] == w->w_no)
			break;
		if (wo->wo_group_owner[g] == MK_SHARED && (x & 6) == 0)
			break;
		if (for_read && (x & 24) == 0)
			break;
	}
	return k;
}

bool mk_may_write(const struct mk_worker *w, unsigned key)
{
	uint8_t owner = w->w_wo->wo_key[key].ke_owner;

	return owner == w->w_no || owner == MK_SHARED;
}

void mk_do_write(struct mk_worker *w, unsigned store, enum mk_kind kind)
{
	struct mk_world *wo = w->w_wo;
	unsigned k = mk_key_pick(w, false);
	const struct mk_key *ke = &wo->wo_key[k];
	uint32_t n, len;
	int rc;

	if (!mk_may_write(w, k))
		return;
	n = mk_write_begin(w, store, k, kind, 0);
	if (kind == MK_DEL) {
		rc = kvdb_del(wo->wo_kvs[store], ke->ke_buf, ke->ke_len);
	} else {
		len = mk_value(wo, mk_id(wo->wo_round, w->w_no, n), store, k, w->w_want);
		rc = kvdb_put(wo->wo_kvs[store], ke->ke_buf, ke->ke_len, w->w_want, len);
	}
	mk_write_end(w, n, 1, rc);
	/* a transaction held the key for too long */
	if (rc && !(rc == -ECANCELED && ke->ke_owner == MK_SHARED))
		broken(w, kind == MK_DEL ? "kvdb_del" : "kvdb_put", rc);
	w->w_count[kind == MK_DEL ? MC_DEL : MC_PUT]++;
}

void mk_durable_mark(struct mk_world *wo, uint32_t *acked, bool is_before)
{
	unsigned t;

	for (t = 0; t < wo->wo_threads; t++) {
		struct mk_thread *th = &wo->wo_shm->sm_th[t];
		uint32_t old = __atomic_load_n(&th->th_synced, __ATOMIC_RELAXED);

		if (is_before) {
			acked[t] = __atomic_load_n(&th->th_acked, __ATOMIC_ACQUIRE);
			continue;
		}
		while (old < acked[t] &&
		       !__atomic_compare_exchange_n(&th->th_synced, &old, acked[t], false,
						    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			;
	}
	if (is_before)
		return;
	t = __atomic_fetch_add(&wo->wo_shm->sm_nsync, 1, __ATOMIC_RELAXED);
	if (t < MK_SYNCS) {
		struct mk_sync *sy = &wo->wo_shm->sm_sync[t];

		memcpy(sy->sy_acked, acked, sizeof(sy->sy_acked));
		__atomic_store_n(&sy->sy_end, mk_now(), __ATOMIC_RELEASE);
	}
}

static void do_sync(struct mk_worker *w)
{
	uint32_t acked[MK_THREADS] = { 0 };
	int rc;

	mk_durable_mark(w->w_wo, acked, true);
	rc = kvdb_sync(w->w_wo->wo_db);
	if (rc)
		broken(w, "kvdb_sync", rc);
	else
		mk_durable_mark(w->w_wo, acked, false);
	w->w_count[MC_SYNC]++;
}

static void do_ticket(struct mk_worker *w)
{
	uint32_t acked[MK_THREADS] = { 0 };
	int rc;

	mk_durable_mark(w->w_wo, acked, true);
	rc = kvdb_wait_durable(w->w_wo->wo_db, kvdb_ticket(w->w_wo->wo_db));
	if (rc)
		broken(w, "kvdb_wait_durable", rc);
	else
		mk_durable_mark(w->w_wo, acked, false);
	w->w_count[MC_SYNC]++;
}

static void do_drain(struct mk_worker *w, unsigned flags)
{
	uint32_t acked[MK_THREADS] = { 0 };
	int rc;

	mk_durable_mark(w->w_wo, acked, true);
	rc = kvdb_drain(w->w_wo->wo_db, flags);
	if (rc)
		broken(w, "kvdb_drain", rc);
	else
		mk_durable_mark(w->w_wo, acked, false);
	w->w_count[MC_DRAIN]++;
}

/* ---- reads ---- */

static void describe(const struct mk_world *wo, const struct mk_have *ha, uint64_t id, char *buf,
		     size_t size)
{
	if (ha && ha->ha_len == MK_PRESENT)
		snprintf(buf, size, "present");
	else if (ha && ha->ha_len != MK_ABSENT && ha->ha_len < 8)
		snprintf(buf, size, "%u bytes", ha->ha_len);
	else if (ha ? ha->ha_len == MK_ABSENT : !id)
		snprintf(buf, size, "absent");
	else if (ha)
		id = ha->ha_head;
	if (id)
		snprintf(buf, size, "write %u of thread %u, round %u (now %u)", (unsigned)id,
			 mk_id_thread(id), mk_id_round(id), wo->wo_round);
}

/* Whether the open transaction wrote the key; then that is what it must see. */
static bool over_check(struct mk_worker *w, unsigned store, unsigned key, const struct mk_have *ha,
		       const char *who)
{
	unsigned i;

	for (i = w->w_nover; i--;) {
		const struct mk_over *ov = &w->w_over[i];

		if (ov->ov_store != store || key < ov->ov_key || key >= ov->ov_key2)
			continue;
		if (ha->ha_len == MK_PRESENT ? !ov->ov_id :
					       !mk_have_is(w->w_wo, ha, store, key, ov->ov_id))
			mk_fail(w->w_wo, "thread %u, operation %llu: %s: store %u key %u: not its "
				"own write %u", w->w_no, (unsigned long long)w->w_done, who,
				store, key, ov->ov_n);
		return true;
	}
	return false;
}

void mk_check(struct mk_worker *w, unsigned store, unsigned key, const struct mk_have *ha,
	      uint64_t r0, uint64_t r1, const uint64_t *own, const char *who)
{
	struct mk_world *wo = w->w_wo;
	char saw[80] = "", want[80] = "";
	enum mk_verdict v;
	uint64_t id;

	describe(wo, ha, 0, saw, sizeof(saw));
	if (own && over_check(w, store, key, ha, who))
		return;
	if (wo->wo_key[key].ke_owner == w->w_no) {
		id = own ? own[key] : w->w_cur[store][key];
		if (ha->ha_len == MK_PRESENT ? id != 0 : mk_have_is(wo, ha, store, key, id))
			return;
		describe(wo, NULL, id, want, sizeof(want));
		mk_fail(wo, "thread %u, operation %llu: %s: store %u key %u: %s, its own last "
			"is %s", w->w_no, (unsigned long long)w->w_done, who, store, key, saw,
			want);
		return;
	}
	if (ha->ha_len == MK_PRESENT || ha->ha_len < 8)
		return;
	id = ha->ha_len == MK_ABSENT ? 0 : ha->ha_head;
	v = mk_ring_judge(mk_ring_of(wo, store, key), id, r0, r1);
	if (v == MK_UNSURE)
		w->w_count[MC_UNSURE]++;
	else if (v != MK_LEGAL)
		mk_fail(wo, "thread %u, operation %llu: %s: store %u key %u: %s: %s", w->w_no,
			(unsigned long long)w->w_done, who, store, key, saw, mk_verdict_name[v]);
}

static void wrong_bytes(struct mk_worker *w, unsigned store, unsigned key, size_t len,
			const char *who)
{
	mk_fail(w->w_wo, "thread %u, operation %llu: %s: store %u key %u: %zu bytes that are no "
		"version of it", w->w_no, (unsigned long long)w->w_done, who, store, key, len);
}

static void do_get(struct mk_worker *w, unsigned store, unsigned key)
{
	struct mk_world *wo = w->w_wo;
	const struct mk_key *ke = &wo->wo_key[key];
	struct mk_have ha = { .ha_len = MK_ABSENT };
	uint64_t r0 = mk_now(), r1;
	size_t len = 0;
	int rc;

	rc = kvdb_get(wo->wo_kvs[store], ke->ke_buf, ke->ke_len, w->w_got, sizeof(w->w_got), &len);
	r1 = mk_now();
	w->w_count[MC_GET]++;
	if (rc && rc != -ENOENT)
		broken(w, "kvdb_get", rc);
	else if (!rc && !mk_value_read(wo, store, key, w->w_got, len, w->w_want, &ha))
		wrong_bytes(w, store, key, len, "get");
	else
		mk_check(w, store, key, &ha, r0, r1, NULL, "get");
}

/* a walk over the keys [lo, hi) of a store from a position on */
struct walk {
	struct kvdb_cursor *wa_cur;
	unsigned wa_store, wa_lo, wa_hi;
	unsigned wa_flags;
	int wa_from;		/* first key that may be shown, now or after a renewal */
	unsigned wa_limit;
	uint64_t wa_r0, wa_r1;	/* the snapshot was taken in between */
	bool wa_is_again;	/* compare with w_seen */
	int wa_err;		/* -ESTALE */
};

static bool walk_key(struct mk_worker *w, const struct walk *wa, unsigned key,
		     const struct mk_have *ha)
{
	uint64_t sum = ha->ha_len == MK_ABSENT ? 0 : mk_hash(ha->ha_head, ha->ha_len) | 1;

	mk_check(w, wa->wa_store, key, ha, wa->wa_r0, wa->wa_r1, w->w_snap,
		 wa->wa_flags & KVDB_REVERSE ? "cursor backward" : "cursor");
	if (!wa->wa_is_again)
		w->w_seen[key] = sum;
	else if (w->w_seen[key] != sum)
		mk_fail(w->w_wo, "thread %u, operation %llu: store %u key %u: a snapshot changed",
			w->w_no, (unsigned long long)w->w_done, wa->wa_store, key);
	return !mk_failed(w->w_wo);
}

static void walk(struct mk_worker *w, struct walk *wa)
{
	const struct mk_have absent = { .ha_len = MK_ABSENT };
	int step = wa->wa_flags & KVDB_REVERSE ? -1 : 1, at = wa->wa_from, k, rc = 0;
	int end = step < 0 ? (int)wa->wa_lo - 1 : (int)wa->wa_hi;
	const void *key, *val;
	size_t klen, vlen;
	unsigned n;

	for (n = 0; n < wa->wa_limit; n++) {
		struct mk_have ha = { .ha_len = MK_PRESENT };

		rc = kvdb_cursor_next(wa->wa_cur, &key, &klen, &val, &vlen);
		if (rc)
			break;
		k = mk_key_find(w->w_wo, key, klen);
		if (k < 0 || (k - at) * step < 0 || (end - k) * step <= 0) {
			mk_fail(w->w_wo, "thread %u, operation %llu: cursor of store %u shows key "
				"%d where %d is next and %d the end", w->w_no,
				(unsigned long long)w->w_done, wa->wa_store, k, at, end);
			return;
		}
		for (; at != k; at += step)
			if (!walk_key(w, wa, (unsigned)at, &absent))
				return;
		if (!(wa->wa_flags & KVDB_KEYS_ONLY) &&
		    !mk_value_read(w->w_wo, wa->wa_store, (unsigned)k, val, vlen, w->w_want, &ha)) {
			wrong_bytes(w, wa->wa_store, (unsigned)k, vlen, "cursor");
			return;
		}
		if (!walk_key(w, wa, (unsigned)k, &ha))
			return;
		at += step;
	}
	wa->wa_from = at;
	if (rc == -ENOENT) {
		for (; at != end; at += step)
			if (!walk_key(w, wa, (unsigned)at, &absent))
				return;
	} else if (rc == -ESTALE) {
		wa->wa_err = rc;
	} else if (rc) {
		broken(w, "kvdb_cursor_next", rc);
	}
}

static void walk_moved(struct mk_worker *w, struct walk *wa, int rc)
{
	if (rc == -ESTALE)
		wa->wa_err = rc;
	else if (rc)
		broken(w, "kvdb_cursor_seek", rc);
}

/* Moves a cursor to a key of its range, to just behind one, or to the start. */
static void walk_seek(struct mk_worker *w, struct walk *wa)
{
	const struct mk_world *wo = w->w_wo;
	uint64_t x = mk_rand(&w->w_rnd);
	unsigned k = wa->wa_lo + (unsigned)(x >> 8) % (wa->wa_hi - wa->wa_lo);
	uint8_t buf[KVDB_KEY_MAX];
	size_t len = wo->wo_key[k].ke_len;

	memcpy(buf, wo->wo_key[k].ke_buf, len);
	if (x & 1 && len < KVDB_KEY_MAX)
		buf[len++] = 0;
	wa->wa_from = (int)mk_key_lower(wo, buf, len);
	if (wa->wa_flags & KVDB_REVERSE && mk_key_find(wo, buf, len) < 0)
		wa->wa_from--;
	walk_moved(w, wa, kvdb_cursor_seek(wa->wa_cur, buf, len));
}

static void walk_rewind(struct mk_worker *w, struct walk *wa)
{
	walk_moved(w, wa, kvdb_cursor_seek(wa->wa_cur, NULL, 0));
	wa->wa_from = wa->wa_flags & KVDB_REVERSE ? (int)wa->wa_hi - 1 : (int)wa->wa_lo;
}

static int walk_open(struct mk_worker *w, struct walk *wa, struct kvdb_txn *txn, size_t plen)
{
	struct mk_world *wo = w->w_wo;
	const void *prefix = wo->wo_key[wa->wa_lo].ke_buf;
	int rc;

	wa->wa_from = wa->wa_flags & KVDB_REVERSE ? (int)wa->wa_hi - 1 : (int)wa->wa_lo;
	if (txn) {
		memcpy(w->w_snap, w->w_base[wa->wa_store], sizeof(w->w_snap));
		return kvdb_txn_cursor_open(txn, wo->wo_kvs[wa->wa_store], wa->wa_flags, prefix,
					    plen, &wa->wa_cur);
	}
	memcpy(w->w_snap, w->w_cur[wa->wa_store], sizeof(w->w_snap));
	wa->wa_r0 = mk_now();
	rc = kvdb_cursor_open(wo->wo_kvs[wa->wa_store], wa->wa_flags, prefix, plen, &wa->wa_cur);
	wa->wa_r1 = mk_now();
	return rc;
}

/*
 * The same place or other bounds, of the moment of this call; of a transaction the
 * snapshot stays. Sometimes the range ends with a key that is shown.
 */
static void walk_renew(struct mk_worker *w, struct walk *wa, struct kvdb_txn *txn)
{
	struct kvdb_cursor_opts o = KVDB_CURSOR_OPTS_INIT;
	const struct mk_key *ke = w->w_wo->wo_key;
	uint64_t x = mk_rand(&w->w_rnd);
	unsigned n = wa->wa_hi - wa->wa_lo, skip = (unsigned)(x >> 16) % n;

	if (!txn) {
		memcpy(w->w_snap, w->w_cur[wa->wa_store], sizeof(w->w_snap));
		wa->wa_is_again = false;
		wa->wa_r0 = mk_now();
	}
	if (x & 1) {
		walk_moved(w, wa, kvdb_cursor_renew(wa->wa_cur, NULL));
	} else {
		wa->wa_hi = wa->wa_lo + 1 + (unsigned)(x >> 40) % (n - skip) + skip;
		wa->wa_lo += skip;
		o.flags = wa->wa_flags ^= x >> 1 & KVDB_REVERSE;
		o.from = ke[wa->wa_lo].ke_buf;
		o.flen = ke[wa->wa_lo].ke_len;
		if (x & 8 || wa->wa_hi == w->w_wo->wo_keys) {
			o.flags |= KVDB_TO_INCLUSIVE;
			o.to = ke[wa->wa_hi - 1].ke_buf;
			o.tlen = ke[wa->wa_hi - 1].ke_len;
		} else {
			o.to = ke[wa->wa_hi].ke_buf;
			o.tlen = ke[wa->wa_hi].ke_len;
		}
		walk_moved(w, wa, kvdb_cursor_renew(wa->wa_cur, &o));
		wa->wa_from = wa->wa_flags & KVDB_REVERSE ? (int)wa->wa_hi - 1 : (int)wa->wa_lo;
	}
	if (!txn)
		wa->wa_r1 = mk_now();
}

int mk_cursor(struct mk_worker *w, unsigned store, struct kvdb_txn *txn, uint64_t r0, uint64_t r1)
{
	struct mk_world *wo = w->w_wo;
	unsigned g = wo->wo_key[mk_key_pick(w, true)].ke_group, i;
	uint64_t x = mk_rand(&w->w_rnd);
	bool is_full = (x >> 32) % 64 == 0;
	struct walk wa = { .wa_store = store, .wa_lo = 0, .wa_hi = wo->wo_keys,
			   .wa_limit = UINT32_MAX, .wa_r0 = r0, .wa_r1 = r1 };
	int rc;

	if (!is_full) {
		wa.wa_lo = wo->wo_group_lo[g];
		wa.wa_hi = wo->wo_group_hi[g];
	}
	if (x & 1)
		wa.wa_flags |= KVDB_REVERSE;
	if ((x & 6) == 0)
		wa.wa_flags |= KVDB_KEYS_ONLY;
	rc = walk_open(w, &wa, txn, is_full ? 0 : MK_PREFIX);
	if (rc) {
		if (rc != -ESTALE)
			broken(w, "kvdb_cursor_open", rc);
		return rc;
	}
	walk(w, &wa);
	wa.wa_is_again = true;
	if (x & 8 && !wa.wa_err) {
		/* the snapshot outlives writes, flushes and merges */
		for (i = x >> 8 & 15; i && !w->w_is_writing; i--)
			mk_do_write(w, store, i & 3 ? MK_PUT : MK_DEL);
		if ((x & 0xf0) == 0)
			nap_us((unsigned)(x >> 16) % 4000);
		walk_rewind(w, &wa);
		walk(w, &wa);
	}
	for (i = x >> 12 & 3; i && !mk_failed(wo) && !wa.wa_err; i--) {
		walk_seek(w, &wa);
		wa.wa_limit = 1 + (unsigned)(x >> 20) % 20;
		walk(w, &wa);
		if (x >> (50 + i) & 1 && !wa.wa_err && !mk_failed(wo))
			walk_renew(w, &wa, txn);
	}
	/* a cursor of no transaction that has lost its snapshot goes on with another */
	if (wa.wa_err && !txn && !mk_failed(wo)) {
		wa.wa_err = 0;
		walk_renew(w, &wa, NULL);
		if (!wa.wa_err)
			walk_rewind(w, &wa);
	}
	if (!wa.wa_err && !mk_failed(wo))
		walk(w, &wa);
	kvdb_cursor_close(wa.wa_cur);
	w->w_count[MC_CURSOR]++;
	return wa.wa_err;
}

/* The first key of a group, and whether there are more: up to the first all others are absent. */
int mk_probe(struct mk_worker *w, unsigned store, struct kvdb_txn *txn, uint64_t r0, uint64_t r1)
{
	struct mk_world *wo = w->w_wo;
	unsigned g = wo->wo_key[mk_key_pick(w, true)].ke_group, k, hi = wo->wo_group_hi[g];
	const void *prefix = wo->wo_key[wo->wo_group_lo[g]].ke_buf;
	const uint64_t *own = txn ? w->w_base[store] : NULL;
	struct mk_have ha = { .ha_len = MK_ABSENT };
	uint8_t key[KVDB_KEY_MAX];
	struct kvdb_probe p = { .key = key, .key_size = sizeof(key), .val = w->w_got,
				.val_size = sizeof(w->w_got) };
	int first = -1, rc;

	if (!txn)
		r0 = mk_now();
	rc = txn ? kvdb_txn_prefix_probe(txn, wo->wo_kvs[store], prefix, MK_PREFIX, &p) :
		   kvdb_prefix_probe(wo->wo_kvs[store], prefix, MK_PREFIX, &p);
	if (!txn)
		r1 = mk_now();
	w->w_count[MC_PROBE]++;
	if (rc) {
		if (rc != -ESTALE)
			broken(w, "kvdb_prefix_probe", rc);
		return rc;
	}
	if (p.found)
		first = mk_key_find(wo, key, p.klen);
	if (p.found && (first < wo->wo_group_lo[g] || first >= (int)hi)) {
		mk_fail(wo, "thread %u, operation %llu: a probe finds key %d, not of its group",
			w->w_no, (unsigned long long)w->w_done, first);
		return 0;
	}
	if (p.found == KVDB_FOUND_SEVERAL)
		hi = (unsigned)first;
	for (k = wo->wo_group_lo[g]; k < hi && !mk_failed(wo); k++)
		if ((int)k != first)
			mk_check(w, store, k, &ha, r0, r1, own, "probe");
	if (p.found && !mk_value_read(wo, store, (unsigned)first, w->w_got, p.vlen, w->w_want, &ha))
		wrong_bytes(w, store, (unsigned)first, p.vlen, "probe");
	else if (p.found)
		mk_check(w, store, (unsigned)first, &ha, r0, r1, own, "probe");
	return 0;
}

/* ---- the threads ---- */

static void one_step(struct mk_worker *w)
{
	uint64_t x = mk_rand(&w->w_rnd);
	unsigned store = (unsigned)(x >> 40) % MK_STORES, dice = (unsigned)(x % 2000);

	if (dice < 900)
		do_get(w, store, mk_key_pick(w, true));
	else if (dice < 1720)
		mk_do_write(w, store, MK_PUT);
	else if (dice < 1900)
		mk_do_write(w, store, MK_DEL);
	else if (dice < 1945)
		mk_do_txn(w);
	else if (dice < 1960)
		mk_do_batch(w);
	else if (dice < 1970)
		mk_do_snapshot(w);
	else if (dice < 1971)
		do_sync(w);
	else if (dice < 1972)
		do_ticket(w);
	else if (dice < 1976)
		mk_do_queue(w);
	else if (dice < 1980)
		mk_do_range(w, store);
	else if (dice < 1984)
		mk_probe(w, store, NULL, 0, 0);
	else
		mk_cursor(w, store, NULL, 0, 0);
}

static void *worker_main(void *arg)
{
	struct mk_worker *w = arg;
	struct mk_world *wo = w->w_wo;
	unsigned s, k;

	for (; !is_over(w); w->w_done++)
		one_step(w);
	mk_queue_close(w);
	for (s = 0; s < MK_STORES; s++)
		for (k = 0; k < wo->wo_keys && !mk_failed(wo); k++)
			if (wo->wo_key[k].ke_owner == w->w_no)
				do_get(w, s, k);
	return NULL;
}

static int churn_check(struct mk_world *wo, const char *name)
{
	char val[KVDB_NAME_MAX + 1];
	struct kvdb_kvs *kvs;
	int rc = kvdb_kvs_open(wo->wo_db, name, &kvs);
	size_t n = 0;
	unsigned i;

	for (i = 0; !rc && i < 40; i++) {
		rc = kvdb_get(kvs, &i, sizeof(i), val, sizeof(val), &n);
		/* what was lost by a crash may be missing, nothing else shown */
		if (rc == -ENOENT)
			rc = 0;
		else if (!rc && (n != sizeof(val) || memcmp(val, name, n)))
			rc = -EUCLEAN;
	}
	return rc;
}

/* A store that comes and goes: the judge knows the times. */
static void churn(struct mk_worker *w)
{
	struct mk_world *wo = w->w_wo;
	struct mk_shm *shm = wo->wo_shm;
	struct mk_churn *ch = &shm->sm_churn[shm->sm_nchurn];
	char name[KVDB_NAME_MAX + 1];
	struct kvdb_kvs *kvs;
	unsigned i;
	int rc;

	if (shm->sm_nchurn && !ch[-1].ch_drop_begin) {
		mk_churn_name(shm->sm_nchurn - 1, name);
		rc = churn_check(wo, name);
		__atomic_store_n(&ch[-1].ch_drop_begin, mk_now(), __ATOMIC_RELEASE);
		if (!rc)
			rc = kvdb_kvs_drop(wo->wo_db, name);
		__atomic_store_n(&ch[-1].ch_drop_end, mk_now(), __ATOMIC_RELEASE);
	} else {
		if (shm->sm_nchurn == MK_CHURN)
			return;
		mk_churn_name(shm->sm_nchurn, name);
		ch->ch_make_begin = mk_now();
		__atomic_store_n(&shm->sm_nchurn, shm->sm_nchurn + 1, __ATOMIC_RELEASE);
		rc = kvdb_kvs_create(wo->wo_db, name, NULL);
		__atomic_store_n(&ch->ch_make_end, mk_now(), __ATOMIC_RELEASE);
		if (!rc)
			rc = kvdb_kvs_open(wo->wo_db, name, &kvs);
		for (i = 0; !rc && i < 40; i++)
			rc = kvdb_put(kvs, &i, sizeof(i), name, sizeof(name));
		w->w_count[MC_STORE]++;
	}
	if (rc)
		broken(w, name, rc);
}

/* Makes a checkpoint, or drops one of the round. */
static void checkpoint(struct mk_worker *w, uint64_t x)
{
	struct mk_world *wo = w->w_wo;
	struct mk_shm *shm = wo->wo_shm;
	char name[KVDB_NAME_MAX + 1];
	struct mk_ckpt *ck;
	int rc;

	if (shm->sm_nckpt && x % 3 == 0) {
		unsigned i = (unsigned)(x >> 8) % shm->sm_nckpt;

		ck = &shm->sm_ckpt[i];
		if (!ck->ck_end || ck->ck_drop_begin)
			return;
		mk_ckpt_name(wo, i, name);
		__atomic_store_n(&ck->ck_drop_begin, mk_now(), __ATOMIC_RELEASE);
		rc = kvdb_checkpoint_drop(wo->wo_db, name);
		__atomic_store_n(&ck->ck_drop_end, mk_now(), __ATOMIC_RELEASE);
	} else {
		if (shm->sm_nckpt == MK_CKPTS)
			return;
		ck = &shm->sm_ckpt[shm->sm_nckpt];
		mk_ckpt_name(wo, shm->sm_nckpt, name);
		ck->ck_begin = mk_now();
		__atomic_store_n(&shm->sm_nckpt, shm->sm_nckpt + 1, __ATOMIC_RELEASE);
		rc = kvdb_checkpoint(wo->wo_db, name, 0);
		if (!rc)
			__atomic_store_n(&ck->ck_end, mk_now(), __ATOMIC_RELEASE);
		w->w_count[MC_CKPT]++;
	}
	if (rc)
		broken(w, name, rc);
}

static void *keeper_main(void *arg)
{
	struct mk_worker *w = arg;
	struct mk_world *wo = w->w_wo;
	char names[8][KVDB_NAME_MAX + 1];
	struct kvdb_stats st;

	unsigned stores = 0;	/* a database lets so many be dropped while it is open */

	while (!__atomic_load_n(&wo->wo_is_stopping, __ATOMIC_ACQUIRE) && !mk_failed(wo)) {
		uint64_t x = mk_rand(&w->w_rnd);

		switch (x % 16) {
		case 0: case 1: case 2:
			do_drain(w, KVDB_WAIT_FLUSH);
			break;
		case 3:
			do_drain(w, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT);
			break;
		case 4: case 5: case 6:
			if (stores++ < 250)
				churn(w);
			break;
		case 7:
			checkpoint(w, x >> 16);
			break;
		case 8:
			kvdb_stats(wo->wo_db, &st);
			kvdb_kvs_list(wo->wo_db, names, 8);
			break;
		default:
			break;
		}
		nap_us((unsigned)(x >> 8) % 8000);
	}
	return NULL;
}

static void base_take(struct mk_worker *w)
{
	const struct mk_world *wo = w->w_wo;
	unsigned s, k;

	for (s = 0; s < MK_STORES; s++)
		for (k = 0; k < wo->wo_keys; k++)
			if (wo->wo_key[k].ke_owner == w->w_no)
				w->w_cur[s][k] = wo->wo_shm->sm_base[s][k];
}

void mk_work(struct mk_world *wo)
{
	unsigned n = wo->wo_threads, i;
	struct mk_worker *w = calloc(n + 1, sizeof(*w));
	pthread_t th[MK_THREADS + 1];

	if (!w)
		abort();
	wo->wo_is_stopping = false;
	mk_ring_reset(wo);
	for (i = 0; i <= n; i++) {
		w[i].w_wo = wo;
		w[i].w_no = i;
		w[i].w_count = wo->wo_shm->sm_count[i < n ? i : MK_THREADS];
		w[i].w_rnd = mk_hash(wo->wo_seed, wo->wo_round * 100 + i);
		if (i < n) {
			w[i].w_th = &wo->wo_shm->sm_th[i];
			base_take(&w[i]);
		}
		if (pthread_create(&th[i], NULL, i < n ? worker_main : keeper_main, &w[i]))
			abort();
	}
	__atomic_store_n(&wo->wo_shm->sm_is_started, 1, __ATOMIC_RELEASE);
	for (i = 0; i <= n; i++) {
		if (i == n)
			__atomic_store_n(&wo->wo_is_stopping, true, __ATOMIC_RELEASE);
		pthread_join(th[i], NULL);
	}
	free(w);
}
