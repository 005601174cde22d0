/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Operations of completion queues: allocated together, reused, and completed.
 */
#include <errno.h>
#include <stdlib.h>

#include "cq/cq.h"
#include "base/assert.h"

#define CHUNK		64u	/* operations that are allocated together */

/* Operations are allocated together and reused; unused ones hold nothing. */
struct kv_cq_chunk {
	struct kv_cq_chunk *ch_next;
	struct kv_cq_op ch_op[CHUNK];
};

struct kv_cq_op *kv_cq_op_new(struct kvdb_cq *cq)
{
	struct kv_cq_op *o = cq->c_free;

	if (!o) {
		struct kv_cq_chunk *ch = malloc(sizeof(*ch));

		if (!ch)
			return NULL;
		ch->ch_next = cq->c_chunks;
		cq->c_chunks = ch;
		for (unsigned i = CHUNK; i-- > 0;) {
			ch->ch_op[i] = (struct kv_cq_op){ .o_as.as_db = cq->c_db };
			ch->ch_op[i].o_next = cq->c_free;
			cq->c_free = &ch->ch_op[i];
		}
		o = cq->c_free;
	}
	KV_ASSERT(!o->o_nreads && !o->o_cursor && !o->o_getm.gm_tree && !o->o_as.as_loads);
	cq->c_free = o->o_next;
	o->o_cq = cq;
	o->o_as = (struct kv_async){ .as_db = cq->c_db, .as_owner = o };
	o->o_err = 0;
	o->o_vlen = 0;
	o->o_begun = (struct kv_pending_write){ 0 };
	o->o_late_ns = 0;
	o->o_error = NULL;
	KV_ASSERT(cq->c_ops < KVDB_CQ_OPS_MAX);
	cq->c_ops++;
	return o;
}

void kv_cq_op_free(struct kv_cq_op *o)
{
	struct kvdb_cq *cq = o->o_cq;

	KV_ASSERT(cq->c_ops && !o->o_nreads && !o->o_cursor && !o->o_as.as_loads);
	o->o_next = cq->c_free;
	cq->c_free = o;
	cq->c_ops--;
}

void kv_cq_op_done(struct kv_cq_op *o, int err)
{
	const struct mpool_error *e = kvdb_error_detail();

	KV_ASSERT(!o->o_nreads && err != -EINPROGRESS && err != -EAGAIN);
	o->o_err = err;
	if (KV_UNLIKELY(err && err != -ENOENT && e->err == err)) {
		o->o_error = malloc(sizeof(*e));
		if (o->o_error)
			*o->o_error = *e;
	}
	kv_cq_read_end(o);
	kv_ops_add(&o->o_cq->c_done, o);
}

void kv_cq_ops_free(struct kvdb_cq *cq)
{
	struct kv_cq_chunk *ch;
	struct kv_cq_op *o;

	while ((o = kv_ops_take(&cq->c_done)))
		free(o->o_error);
	while ((o = kv_ops_take(&cq->c_writes)))
		if (o->o_op.type == KVDB_OP_COMMIT)
			kvdb_txn_abort(o->o_op.txn);
	while ((ch = cq->c_chunks)) {
		for (unsigned i = 0; i < CHUNK; i++)
			kv_cq_read_end(&ch->ch_op[i]);
		cq->c_chunks = ch->ch_next;
		free(ch);
	}
}
