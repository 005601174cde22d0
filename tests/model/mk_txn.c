/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Transactions and snapshots in the mix. A transaction reads as of its
 * beginning, own writes excepted; its writes get the next numbers of the
 * thread, whatever becomes of it, and enter the history when it commits: all
 * or none of them survive a crash.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mk.h"

#define STEPS	12u

struct txn {
	struct kvdb_txn *x_txn;
	uint64_t x_r0, x_r1;	/* the snapshot was taken in between */
	uint32_t x_first;	/* number of its first write */
	int x_err;
};

static void gone_wrong(struct mk_worker *w, const char *what, int rc)
{
	mk_fail(w->w_wo, "thread %u, operation %llu: %s: %d (%s)", w->w_no,
		(unsigned long long)w->w_done, what, rc, kvdb_error_detail()->text);
}

static bool txn_begin(struct mk_worker *w, struct txn *x, unsigned flags)
{
	int rc;

	x->x_err = 0;
	x->x_first = w->w_th->th_n;
	w->w_nover = 0;
	w->w_is_writing = !(flags & KVDB_TXN_RDONLY);
	x->x_r0 = mk_now();
	rc = kvdb_txn_begin(w->w_wo->wo_db, flags, &x->x_txn);
	x->x_r1 = mk_now();
	if (rc)
		gone_wrong(w, "kvdb_txn_begin", rc);
	return !rc;
}

static void txn_get(struct mk_worker *w, struct txn *x, unsigned store, unsigned key)
{
	struct mk_world *wo = w->w_wo;
	const struct mk_key *ke = &wo->wo_key[key];
	struct mk_have ha = { .ha_len = MK_ABSENT };
	size_t len = 0;
	int rc;

	rc = kvdb_txn_get(x->x_txn, wo->wo_kvs[store], ke->ke_buf, ke->ke_len, w->w_got,
			  sizeof(w->w_got), &len);
	if (rc == -ESTALE)
		x->x_err = rc;
	else if (rc && rc != -ENOENT)
		gone_wrong(w, "kvdb_txn_get", rc);
	else if (!rc && !mk_value_read(wo, store, key, w->w_got, len, w->w_want, &ha))
		mk_fail(wo, "thread %u, operation %llu: transaction: store %u key %u: %zu bytes "
			"that are no version of it", w->w_no, (unsigned long long)w->w_done,
			store, key, len);
	else
		mk_check(w, store, key, &ha, x->x_r0, x->x_r1, w->w_base[store], "transaction");
}

static void txn_write(struct mk_worker *w, struct txn *x, unsigned store, unsigned key, bool is_del)
{
	struct mk_world *wo = w->w_wo;
	const struct mk_key *ke = &wo->wo_key[key];
	struct mk_over *ov = &w->w_over[w->w_nover];
	uint32_t len;

	*ov = (struct mk_over){ .ov_store = (uint8_t)store, .ov_key = (uint16_t)key,
				.ov_key2 = (uint16_t)(key + 1) };
	ov->ov_n = x->x_first + w->w_nover++;
	if (is_del) {
		x->x_err = kvdb_txn_del(x->x_txn, wo->wo_kvs[store], ke->ke_buf, ke->ke_len);
	} else {
		ov->ov_id = mk_id(wo->wo_round, w->w_no, ov->ov_n);
		len = mk_value(wo, ov->ov_id, store, key, w->w_want);
		x->x_err = kvdb_txn_put(x->x_txn, wo->wo_kvs[store], ke->ke_buf, ke->ke_len,
					w->w_want, len);
	}
	if (x->x_err && x->x_err != -ECANCELED && x->x_err != -ESTALE &&
	    x->x_err != -EFBIG)
		gone_wrong(w, "a write of a transaction", x->x_err);
}

static void txn_range(struct mk_worker *w, struct txn *x, unsigned store)
{
	struct kvdb_kvs *kvs = w->w_wo->wo_kvs[store];
	struct mk_range ra;

	if (!mk_range_pick(w, &ra))
		return;
	w->w_over[w->w_nover] = (struct mk_over){ .ov_store = (uint8_t)store,
						  .ov_key = (uint16_t)ra.ra_lo,
						  .ov_key2 = (uint16_t)ra.ra_hi,
						  .ov_n = x->x_first + w->w_nover };
	w->w_nover++;
	x->x_err = ra.ra_end_len ?
		   kvdb_txn_range_del(x->x_txn, kvs, ra.ra_from->ke_buf, ra.ra_from->ke_len,
				      ra.ra_end, ra.ra_end_len) :
		   kvdb_txn_prefix_del(x->x_txn, kvs, ra.ra_from->ke_buf, MK_PREFIX);
	if (x->x_err && x->x_err != -ECANCELED && x->x_err != -ESTALE)
		gone_wrong(w, "a range delete of a transaction", x->x_err);
	w->w_count[MC_RANGE]++;
}

/* Only the last write of a key counts; no reader may ever see the others. */
static bool is_last(const struct mk_worker *w, unsigned i)
{
	const struct mk_over *ov = &w->w_over[i];
	unsigned k;

	for (k = i + 1; k < w->w_nover; k++)
		if (w->w_over[k].ov_store == ov->ov_store && w->w_over[k].ov_key <= ov->ov_key &&
		    w->w_over[k].ov_key2 >= ov->ov_key2)
			return false;
	return true;
}

static void txn_end(struct mk_worker *w, struct txn *x, bool commits)
{
	uint32_t acked[MK_THREADS] = { 0 };
	bool durable = mk_rand(&w->w_rnd) % 256 == 0;
	unsigned i;
	int rc = x->x_err ? x->x_err : -ECANCELED;

	commits &= !x->x_err;
	w->w_is_writing = false;
	for (i = 0; i < w->w_nover; i++) {
		const struct mk_over *ov = &w->w_over[i];
		enum mk_kind kind = ov->ov_id ? MK_PUT : MK_DEL;

		mk_range_begin(w, ov->ov_store, ov->ov_key, ov->ov_key2,
			       commits && is_last(w, i) ? kind : MK_NONE, w->w_nover - 1 - i);
	}
	if (commits) {
		mk_durable_mark(w->w_wo, acked, true);
		rc = kvdb_txn_commit(x->x_txn, durable ? KVDB_TXN_DURABLE : 0, NULL);
		if (rc && rc != -ESTALE && rc != -EFBIG)
			gone_wrong(w, "kvdb_txn_commit", rc);
	} else {
		kvdb_txn_abort(x->x_txn);
	}
	mk_write_end(w, x->x_first, w->w_nover, rc);
	/* one that wrote nothing waits for nothing */
	if (durable && !rc && w->w_nover) {
		acked[w->w_no] = x->x_first + w->w_nover;
		mk_durable_mark(w->w_wo, acked, false);
	}
	w->w_nover = 0;
	w->w_count[rc ? MC_ABORT : MC_TXN]++;
}

void mk_do_txn(struct mk_worker *w)
{
	unsigned steps = 1 + (unsigned)(mk_rand(&w->w_rnd) % STEPS), i;
	struct txn x;

	memcpy(w->w_base, w->w_cur, sizeof(w->w_base));
	if (!txn_begin(w, &x, 0))
		return;
	for (i = 0; i < steps && !x.x_err && !mk_failed(w->w_wo); i++) {
		uint64_t r = mk_rand(&w->w_rnd);
		unsigned store = (unsigned)(r >> 8) % MK_STORES, key;

		switch (r % 16) {
		case 0: case 1: case 2: case 3:
			txn_get(w, &x, store, mk_key_pick(w, true));
			break;
		case 4:
			x.x_err = r & 16 ? mk_cursor(w, store, x.x_txn, x.x_r0, x.x_r1) :
					   mk_probe(w, store, x.x_txn, x.x_r0, x.x_r1);
			break;
		case 5:
			/* what it wrote itself */
			if (w->w_nover) {
				const struct mk_over *ov = &w->w_over[(r >> 16) % w->w_nover];

				txn_get(w, &x, ov->ov_store, ov->ov_key);
			}
			break;
		case 6:
			if (r & 16) {
				txn_range(w, &x, store);
				break;
			}
			/* fall through */
		default:
			key = mk_key_pick(w, false);
			if (mk_may_write(w, key))
				txn_write(w, &x, store, key, r % 16 < 8);
		}
	}
	txn_end(w, &x, mk_rand(&w->w_rnd) % 12 != 0);
}

/* ---- batches: as the writes of a transaction, but for conflicts --------------------------- */

static bool batch_range(struct mk_worker *w, struct kvdb_op *p, struct mk_over *ov, unsigned store,
			struct mk_range *ra)
{
	/* not by prefix: a batch has none */
	if (!mk_range_pick(w, ra) || !ra->ra_end_len)
		return false;
	*p = (struct kvdb_op){ .type = KVDB_OP_RANGE_DEL, .kvs = w->w_wo->wo_kvs[store],
			       .key = ra->ra_from->ke_buf, .klen = ra->ra_from->ke_len,
			       .val = ra->ra_end, .size = ra->ra_end_len };
	ov->ov_key = (uint16_t)ra->ra_lo;
	ov->ov_key2 = (uint16_t)ra->ra_hi;
	w->w_count[MC_RANGE]++;
	return true;
}

static bool batch_write(struct mk_worker *w, struct kvdb_op *p, struct mk_over *ov, unsigned store,
			bool is_del)
{
	struct mk_world *wo = w->w_wo;
	unsigned key = mk_key_pick(w, false);
	void *val;

	if (!mk_may_write(w, key))
		return false;
	ov->ov_key = (uint16_t)key;
	ov->ov_key2 = (uint16_t)(key + 1);
	*p = (struct kvdb_op){ .type = is_del ? KVDB_OP_DEL : KVDB_OP_PUT, .kvs = wo->wo_kvs[store],
			       .key = wo->wo_key[key].ke_buf, .klen = wo->wo_key[key].ke_len };
	if (is_del)
		return true;
	ov->ov_id = mk_id(wo->wo_round, w->w_no, ov->ov_n);
	p->size = mk_value(wo, ov->ov_id, store, key, w->w_want);
	val = malloc(p->size + 1);
	memcpy(val, w->w_want, p->size);
	p->val = val;
	return true;
}

/* The operations are in w_over, too: their number. */
static unsigned batch_make(struct mk_worker *w, struct kvdb_op *ops, struct mk_range *ra)
{
	unsigned steps = 1 + (unsigned)(mk_rand(&w->w_rnd) % STEPS);

	w->w_nover = 0;
	for (unsigned i = 0; i < steps; i++) {
		uint64_t r = mk_rand(&w->w_rnd);
		struct mk_over *ov = &w->w_over[w->w_nover];
		unsigned store = (unsigned)(r >> 8) % MK_STORES;

		*ov = (struct mk_over){ .ov_store = (uint8_t)store,
					.ov_n = w->w_th->th_n + w->w_nover };
		if (r % 16 ? batch_write(w, &ops[w->w_nover], ov, store, r % 16 < 3) :
			     batch_range(w, &ops[w->w_nover], ov, store, &ra[w->w_nover]))
			w->w_nover++;
	}
	return w->w_nover;
}

void mk_do_batch(struct mk_worker *w)
{
	uint32_t acked[MK_THREADS] = { 0 }, first = w->w_th->th_n;
	bool durable = mk_rand(&w->w_rnd) % 256 == 0;
	struct kvdb_op ops[STEPS];
	struct mk_range ra[STEPS];
	unsigned n = batch_make(w, ops, ra), i;
	int rc;

	for (i = 0; i < n; i++) {
		const struct mk_over *ov = &w->w_over[i];

		mk_range_begin(w, ov->ov_store, ov->ov_key, ov->ov_key2, is_last(w, i) ?
			       ov->ov_id ? MK_PUT : MK_DEL : MK_NONE, n - 1 - i);
	}
	mk_durable_mark(w->w_wo, acked, true);
	rc = kvdb_write(w->w_wo->wo_db, ops, n, durable ? KVDB_OP_DURABLE : 0, NULL);
	/* a transaction held a key for too long */
	if (rc && rc != -ECANCELED)
		gone_wrong(w, "kvdb_write", rc);
	mk_write_end(w, first, n, rc);
	if (durable && !rc && n) {
		acked[w->w_no] = first + n;
		mk_durable_mark(w->w_wo, acked, false);
	}
	for (i = 0; i < n; i++)
		if (ops[i].type == KVDB_OP_PUT)
			free((void *)(uintptr_t)ops[i].val);
	w->w_nover = 0;
	w->w_count[rc ? MC_ABORT : MC_TXN]++;
}

/* A snapshot is read while its own thread goes on writing. */
void mk_do_snapshot(struct mk_worker *w)
{
	unsigned steps = 1 + (unsigned)(mk_rand(&w->w_rnd) % STEPS), i;
	struct txn x;

	memcpy(w->w_base, w->w_cur, sizeof(w->w_base));
	if (!txn_begin(w, &x, KVDB_TXN_RDONLY))
		return;
	for (i = 0; i < steps && !x.x_err && !mk_failed(w->w_wo); i++) {
		uint64_t r = mk_rand(&w->w_rnd);
		unsigned store = (unsigned)(r >> 8) % MK_STORES;

		if (r % 16 == 0)
			x.x_err = mk_probe(w, store, x.x_txn, x.x_r0, x.x_r1);
		else if (r % 4 == 0)
			x.x_err = mk_cursor(w, store, x.x_txn, x.x_r0, x.x_r1);
		else if (r % 4 == 1)
			mk_do_write(w, store, r & 16 ? MK_PUT : MK_DEL);
		else
			txn_get(w, &x, store, mk_key_pick(w, true));
	}
	kvdb_txn_abort(x.x_txn);
	w->w_count[MC_SNAPSHOT]++;
}
