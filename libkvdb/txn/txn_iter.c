/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A transaction's own writes as a source of its cursors.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "seg/value.h"
#include "base/assert.h"
#include "mem/iter.h"
#include "mem/memtable.h"
#include "txn/txn.h"

/*
 * A cursor's source: the writes to one store up to the last seek, sorted. A seek sorts those that
 * came since into the others, of which none goes and none changes its key: so a cursor that seeks
 * between the writes of a large transaction does not sort all of them each time. The bytes that
 * they name live as long as the transaction.
 */
struct txn_iter {
	struct kv_iter it;
	struct kvdb_txn *txn;
	struct kvdb_kvs *kvs;
	bool reverse, is_built;
	uint64_t gen;
	uint32_t n, cap, at;
	struct kv_write **write;
	struct kv_write *last;		/* the newest that was looked at, or NULL */
};

static int cmp(const struct kv_write *w, const void *key, size_t klen)
{
	return kv_key_cmp(w->w_lock.kl_key, w->w_lock.kl_klen, key, klen);
}

static int by_key(const void *a, const void *b)
{
	const struct kv_write *const *x = a, *const *y = b;

	return cmp(*x, (*y)->w_lock.kl_key, (*y)->w_lock.kl_klen);
}

/* The first @n are sorted, and so is what follows them. From behind: it has room of its own. */
static int merge(struct txn_iter *ti, uint32_t n)
{
	uint32_t add = ti->n - n, to = ti->n;
	struct kv_write **more = malloc(add * sizeof(*more)), **w = ti->write;

	if (!more)
		return -ENOMEM;
	memcpy(more, w + n, add * sizeof(*more));
	while (add) {
		bool is_old = n && by_key(&w[n - 1], &more[add - 1]) > 0;

		w[--to] = is_old ? w[--n] : more[--add];
	}
	free(more);
	return 0;
}

/* Those that came since the last time, at the end. */
static int collect(struct txn_iter *ti)
{
	struct kv_write *w = ti->last ? ti->last->w_next : ti->txn->t_first;

	for (; w; ti->last = w, w = w->w_next) {
		if (w->w_lock.kl_kvs != ti->kvs->k_id)
			continue;
		if (kv_vec_grow(&ti->write, &ti->cap, ti->n + 1, sizeof(*ti->write)))
			return -ENOMEM;
		ti->write[ti->n++] = w;
	}
	return 0;
}

static int iter_build(struct txn_iter *ti)
{
	struct kv_write *last = ti->last;
	uint32_t n = ti->n;
	int err = collect(ti);

	if (!err && ti->n > n) {
		qsort(ti->write + n, ti->n - n, sizeof(*ti->write), by_key);
		err = n ? merge(ti, n) : 0;
	}
	if (err) {	/* they are looked at again */
		ti->last = last;
		ti->n = n;
		return err;
	}
	ti->gen = ti->txn->t_gen;
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

		c = cmp(ti->write[mid], key, klen);
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
	KV_ASSERT(ti->at <= ti->n);
	if (ti->reverse ? !ti->at : ti->at == ti->n)
		return -ENOENT;
	kv_write_ent(ti->write[ti->reverse ? --ti->at : ti->at++], e);
	return 0;
}

static void iter_turn(struct kv_iter *it, bool reverse)
{
	((struct txn_iter *)it)->reverse = reverse;
}

static void iter_close(struct kv_iter *it)
{
	struct txn_iter *ti = (struct txn_iter *)it;

	free(ti->write);
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
