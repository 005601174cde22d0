/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A transaction's own writes as a source of its cursors.
 */
#include <errno.h>
#include <stdlib.h>

#include "seg/value.h"
#include "mem/iter.h"
#include "mem/memtable.h"
#include "txn/txn.h"

/*
 * A cursor's source: the writes to one store at the moment of the last seek,
 * sorted. The bytes that they name live as long as the transaction.
 */
struct txn_iter {
	struct kv_iter it;
	struct kvdb_txn *txn;
	struct kvdb_kvs *kvs;
	bool reverse, is_built;
	uint64_t gen;
	uint32_t n, at;
	struct kv_ent *ent;
};

static int by_key(const void *a, const void *b)
{
	const struct kv_ent *x = a, *y = b;

	return kv_key_cmp(x->e_key, x->e_klen, y->e_key, y->e_klen);
}

static int iter_build(struct txn_iter *ti)
{
	struct kvdb_txn *t = ti->txn;
	struct kv_ent *ent = malloc((t->t_n ? t->t_n : 1) * sizeof(*ent));
	uint32_t n = 0;

	if (!ent)
		return -ENOMEM;
	for (struct kv_write *w = t->t_first; w; w = w->w_next)
		if (w->w_lock.kl_kvs == ti->kvs->k_id)
			kv_write_ent(w, &ent[n++]);
	qsort(ent, n, sizeof(*ent), by_key);
	free(ti->ent);
	ti->ent = ent;
	ti->n = n;
	ti->gen = t->t_gen;
	ti->is_built = true;
	return 0;
}

static int iter_seek(struct kv_iter *it, const void *key, size_t klen)
{
	struct txn_iter *ti = (struct txn_iter *)it;
	uint32_t lo = 0, hi;
	int c;

	if ((!ti->is_built || ti->gen != ti->txn->t_gen) && iter_build(ti))
		return -ENOMEM;
	/* the number of entries before the key; reverse: up to it */
	for (hi = ti->n; klen && lo < hi; ) {
		uint32_t mid = (lo + hi) / 2;

		c = kv_key_cmp(ti->ent[mid].e_key, ti->ent[mid].e_klen, key, klen);
		if (c < 0 || (ti->reverse && c == 0))
			lo = mid + 1;
		else
			hi = mid;
	}
	ti->at = klen ? lo : ti->reverse ? ti->n : 0;
	return 0;
}

static int iter_next(struct kv_iter *it, struct kv_ent *e)
{
	struct txn_iter *ti = (struct txn_iter *)it;
	int err;

	if (!ti->is_built) {
		err = iter_seek(it, NULL, 0);
		if (err)
			return err;
	}
	if (ti->reverse ? !ti->at : ti->at == ti->n)
		return -ENOENT;
	*e = ti->ent[ti->reverse ? --ti->at : ti->at++];
	return 0;
}

static void iter_turn(struct kv_iter *it, bool reverse)
{
	((struct txn_iter *)it)->reverse = reverse;
}

static void iter_close(struct kv_iter *it)
{
	struct txn_iter *ti = (struct txn_iter *)it;

	free(ti->ent);
	free(ti);
}

static const struct kv_iter_ops iter_ops = {
	.seek = iter_seek,
	.next = iter_next,
	.turn = iter_turn,
	.close = iter_close,
};

int kv_txn_iter(struct kvdb_txn *t, struct kvdb_kvs *kvs, bool reverse, struct kv_iter **out)
{
	struct txn_iter *ti = calloc(1, sizeof(*ti));

	if (!ti)
		return -ENOMEM;
	ti->it.it_ops = &iter_ops;
	ti->txn = t;
	ti->kvs = kvs;
	ti->reverse = reverse;
	*out = &ti->it;
	return 0;
}
