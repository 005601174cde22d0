/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Atomic batches: commit, seal, delete and erase of many objects in one
 * metadata record. Objects of a batch in flight are marked MP_O_BUSY under
 * p_lock, so two batches never meet on one object. Order: data flush, record,
 * flush, then the effects, applied by the log's leader in log order.
 */
#include "durable.h"

#define OP_ERASE	100u	/* internal: op_length is the new generation */
#define OP_SEAL_LOG	101u

struct batch {
	struct mp_pool *pool;
	const struct mp_op *op;
	struct mp_obj **obj;
	u32 n;		/* objects marked so far */
	u64 pend;
	struct mp_root *root_del;
};

/* what the state of @obj says about @op; p_lock held */
static int op_check(const struct mp_op *op, struct mp_obj *obj)
{
	u32 done = MP_OBJF_COMMITTED | MP_OBJF_SEALED | MP_OBJF_DELETED;
	u32 kind = op->op_type == MP_OP_COMMIT ? MP_MBLOCK :
		   op->op_type == MP_OP_SEAL ? MP_APPEND : MP_MLOG;
	u64 id = mp_obj_id(obj), end;

	mp_assert_locked(obj->o_pool);
	os_assert_held(&obj->o_lock);
	if (obj->o_state & MP_O_BUSY)
		return mp_err(MP_OBJ_BUSY, "object %llu", id);
	if (op->op_type == MP_OP_DELETE) {
		if (obj->o_state & MP_O_LOG_OPEN)
			return mp_err(MP_OBJ_OPEN, "log %llu", id);
		return obj->o_is_listed ? 0 : mp_err(MP_OBJ_STATE, "object %llu does not exist on "
						     "media", id);
	}
	if (obj->o_kind != kind)
		return mp_err(MP_OBJ_KIND, "object %llu is of kind %s", id,
			      mp_kind_text(obj->o_kind));
	if (obj->o_flags & (op->op_type == OP_ERASE ? MP_OBJF_DELETED : done))
		return mp_err(MP_OBJ_STATE, "object %llu is final already", id);
	if (op->op_type >= OP_ERASE)
		return 0;
	end = obj->o_is_placed ? obj->o_wpos : obj->o_capacity;
	if (!CHECK(op->op_length % MP_BLOCK == 0 && op->op_length <= end && !obj->o_inflight))
		return mp_err(MP_OBJ_RANGE, "object %llu: length %llu, %llu written, %u writes in "
			      "flight", id, op->op_length, end, obj->o_inflight);
	if (!CHECK(op->op_length <= obj->o_fail_off))
		return mp_err(MP_OBJ_WFAIL, "object %llu: the write at %llu failed", id,
			      obj->o_fail_off);
	return 0;
}

/* a container goes with both its logs, and its logs with it; p_lock held */
static int root_check(const struct batch *b, const struct mp_op *op, const struct mp_obj *obj)
{
	u64 id = mp_obj_id(obj);
	struct mp_root *r;

	mp_assert_locked(b->pool);
	if (op->op_type != MP_OP_DELETE || obj->o_kind != MP_MLOG || b->root_del)
		return 0;
	list_for_each_entry(r, &b->pool->p_roots, r_list)
		if (r->r_id[0] == id || r->r_id[1] == id)
			return mp_err(MP_OBJ_STATE, "log %llu is one of container '%s'", id,
				      r->r_name);
	return 0;
}

static int op_mark(struct batch *b, const struct mp_op *op)
{
	struct mp_obj *obj = op->op_obj;
	unsigned long irq;
	int rc;

	mp_assert_locked(b->pool);
	if (op->op_type != MP_OP_COMMIT && op->op_type != MP_OP_SEAL &&
	    op->op_type != MP_OP_DELETE && op->op_type != OP_ERASE && op->op_type != OP_SEAL_LOG)
		return mp_err(MP_INVAL, "operation type %u", op->op_type);
	if (!obj && op->op_type == MP_OP_DELETE)
		obj = mp_otab_find(b->pool, op->op_id);
	if (!obj)
		return mp_err(MP_OBJ_NONE, "object %llu", op->op_id);
	rc = root_check(b, op, obj);
	if (rc)
		return rc;
	spin_lock_irqsave(&obj->o_lock, irq);
	rc = op_check(op, obj);
	if (!rc && op->op_type == MP_OP_COMMIT)
		b->pend += mp_otab_rec_size(obj);
	if (!rc)
		obj->o_state |= MP_O_BUSY;
	spin_unlock_irqrestore(&obj->o_lock, irq);
	if (!rc)
		b->obj[b->n++] = obj;
	return rc;
}

/* p_lock held */
static void batch_unmark(struct batch *b, bool is_doubt)
{
	unsigned long irq;
	u32 i;

	mp_assert_locked(b->pool);
	os_assert(b->pool->p_ckpt_pend >= b->pend);
	for (i = 0; i < b->n; i++) {
		struct mp_obj *obj = b->obj[i];

		os_assert(obj->o_state & MP_O_BUSY);
		/* writers look at it under this lock */
		spin_lock_irqsave(&obj->o_lock, irq);
		obj->o_state &= ~MP_O_BUSY;
		spin_unlock_irqrestore(&obj->o_lock, irq);
		if (is_doubt && !obj->o_is_listed)
			obj->o_state |= MP_O_DOUBT;
		if (obj->o_refs || obj->o_is_listed)
			continue;
		/* its last handle went away while the batch ran, or it is deleted */
		if (!(obj->o_state & MP_O_DOUBT))
			mp_obj_free_space(obj, false);
		mp_otab_free(obj);
	}
	b->pool->p_ckpt_pend -= b->pend;
}

static void op_apply(struct mp_pool *pool, const struct mp_op *op, struct mp_obj *obj)
{
	u32 crc_flag = op->op_flags & MP_OPF_CRC;
	unsigned long irq;

	mp_assert_locked(pool);
	os_assert(obj->o_state & MP_O_BUSY);
	spin_lock_irqsave(&obj->o_lock, irq);
	switch (op->op_type) {
	case MP_OP_COMMIT:
	case MP_OP_SEAL:
		obj->o_length = op->op_length;
		obj->o_crc = crc_flag ? op->op_crc : 0;
		obj->o_flags |= crc_flag | (op->op_type == MP_OP_SEAL ? MP_OBJF_SEALED :
					    MP_OBJF_COMMITTED);
		break;
	case OP_SEAL_LOG:
		obj->o_length = op->op_length;
		obj->o_flags |= MP_OBJF_SEALED;
		break;
	case OP_ERASE:
	os_assert(op->op_length > obj->o_gen);
		obj->o_gen = op->op_length;
		break;
	default:
		obj->o_flags |= MP_OBJF_DELETED;
		break;
	}
	spin_unlock_irqrestore(&obj->o_lock, irq);
	os_assert(obj->o_length <= obj->o_capacity);
	if (op->op_type == MP_OP_COMMIT) {
		mp_otab_insert(pool, obj);
		obj->o_is_listed = true;
	} else if (op->op_type == MP_OP_DELETE) {
		mp_otab_remove(pool, obj);
		obj->o_is_listed = false;
	}
}

static void batch_apply(struct mp_txn *txn)
{
	struct batch *b = txn->t_arg;
	u32 i;

	mutex_lock(&b->pool->p_lock);
	for (i = 0; i < b->n; i++)
		op_apply(b->pool, &b->op[i], b->obj[i]);
	if (b->root_del)
		mp_otab_root_del(b->pool, b->root_del);
	mutex_unlock(&b->pool->p_lock);
}

static int op_encode(const struct mp_op *op, struct mp_obj *obj, struct mp_txn *txn)
{
	u32 crc_flag = op->op_flags & MP_OPF_CRC;
	struct mp_rec r;

	memset(&r, 0, sizeof(r));
	r.r_id = mp_obj_id(obj);
	r.r_crc = crc_flag ? op->op_crc : 0;
	r.r_length = op->op_length;
	switch (op->op_type) {
	case MP_OP_COMMIT:
		mp_otab_rec(obj, &r);
		r.r_length = op->op_length;
		r.r_flags |= MP_OBJF_COMMITTED | crc_flag;
		r.r_crc = crc_flag ? op->op_crc : 0;
		break;
	case MP_OP_SEAL:
	case OP_SEAL_LOG:
		r.r_type = MP_REC_SEAL;
		r.r_flags = MP_OBJF_SEALED | crc_flag;
		break;
	case OP_ERASE:
		r.r_type = MP_REC_GEN;
		r.r_gen = op->op_length;
		break;
	default:
		r.r_type = MP_REC_DEL;
		r.r_length = 0;
		break;
	}
	return mp_txn_add(txn, &r);
}

/* make the data of what becomes final durable first: INV-4 */
static int data_flush(struct batch *b)
{
	u32 i, k, n = smp_load_acquire(&b->pool->p_ndevs);
	u8 mask[MP_SLOTS] = { 0 };
	int rc = 0;

	mp_assert_no_lock(b->pool);
	for (i = 0; i < b->n; i++)
		if ((b->op[i].op_type == MP_OP_COMMIT || b->op[i].op_type == MP_OP_SEAL) &&
		    b->op[i].op_length)
			for (k = 0; k < b->obj[i]->o_nextents; k++)
				mask[b->obj[i]->o_extent[k].ex_slot] = 1;
	for (i = 0; i < n && !rc; i++)
		if (mask[i])
			rc = BARRIER(mp_dev_flush(b->pool, b->pool->p_dev[i]));
	return rc;
}

static int batch_write(struct batch *b, bool *is_doubt)
{
	struct mp_txn txn;
	struct mp_rec r;
	u32 i, max = sizeof(struct mp_root_omf);
	int rc;

	for (i = 0; i < b->n; i++)
		max += b->op[i].op_type == MP_OP_COMMIT ? mp_otab_rec_size(b->obj[i]) :
		       (u32)sizeof(struct mp_idrec_omf);
	rc = mp_txn_init(&txn, max);
	if (rc)
		return rc;
	txn.t_apply = batch_apply;
	txn.t_arg = b;
	for (i = 0; i < b->n && !rc; i++)
		rc = op_encode(&b->op[i], b->obj[i], &txn);
	if (!rc && b->root_del) {
		memset(&r, 0, sizeof(r));
		r.r_type = MP_REC_ROOT_DEL;
		memcpy(r.r_name, b->root_del->r_name, MP_NAME_LEN);
		rc = mp_txn_add(&txn, &r);
	}
	if (!rc)
		rc = data_flush(b);
	if (!rc) {
		rc = mp_md_commit(b->pool, &txn);
		*is_doubt = rc && mp_pool_is_failed(b->pool);
	}
	mp_txn_fini(&txn);
	return rc;
}

static int batch_run(struct mp_pool *pool, const struct mp_op *op, u32 n, const char *root)
{
	struct batch b = { .pool = pool, .op = op };
	bool is_doubt = false;
	u32 i;
	int rc;

	mp_assert_no_lock(pool);
	rc = mp_pool_writable(pool);
	if (rc)
		return rc;
	b.obj = os_call_alloc(n * sizeof(*b.obj));
	if (!b.obj)
		return mp_err(MP_NOMEM, "batch");
	mutex_lock(&pool->p_lock);
	if (root) {
		b.root_del = mp_otab_root(pool, root);
		if (!b.root_del)
			rc = mp_err(MP_ROOT_NONE, "container '%s'", root);
	}
	for (i = 0; i < n && !rc; i++)
		rc = op_mark(&b, &op[i]);
	if (!rc && b.pend)
		rc = mp_md_room(pool, b.pend);
	pool->p_ckpt_pend += b.pend;
	mutex_unlock(&pool->p_lock);
	if (!rc && b.pend)
		rc = mp_md_space(pool);
	if (!rc)
		rc = batch_write(&b, &is_doubt);
	mutex_lock(&pool->p_lock);
	batch_unmark(&b, is_doubt);
	mutex_unlock(&pool->p_lock);
	if (!rc)
		os_free(b.root_del);
	os_free(b.obj);
	return rc;
}

int mp_pool_batch(struct mp_pool *pool, const struct mp_op *op, u32 n)
{
	u32 i;

	if (!n || n > MP_BATCH_MAX)
		return mp_err(MP_INVAL, "%u operations in a batch", n);
	for (i = 0; i < n; i++)
		if (op[i].op_type > MP_OP_DELETE)
			return mp_err(MP_INVAL, "operation type %u", op[i].op_type);
	return batch_run(pool, op, n, NULL);
}

int mp_obj_erase(struct mp_obj *obj, u64 gen)
{
	struct mp_op op = { .op_type = OP_ERASE, .op_obj = obj, .op_length = gen };

	return batch_run(obj->o_pool, &op, 1, NULL);
}

int mp_obj_seal_log(struct mp_obj *obj, u64 length)
{
	struct mp_op op = { .op_type = OP_SEAL_LOG, .op_obj = obj, .op_length = length };

	return batch_run(obj->o_pool, &op, 1, NULL);
}

/* ---- named roots ---- */

static int root_name(const char *name, char out[MP_NAME_LEN])
{
	size_t n = strlen(name), i;

	if (!n || n >= MP_NAME_LEN)
		return mp_err(MP_ROOT_NAME, "%llu bytes", (u64)n);
	for (i = 0; i < n; i++)
		if ((u8)name[i] < 0x20 || name[i] == 0x7f)
			return mp_err(MP_ROOT_NAME, "control character");
	memset(out, 0, MP_NAME_LEN);
	memcpy(out, name, n);
	return 0;
}

int mp_root_create(struct mp_pool *pool, const char *name, u32 mclass, u64 capacity, u64 tag)
{
	struct mp_alloc req[2] = {
		{ .al_kind = MP_MLOG, .al_mclass = mclass, .al_capacity = capacity, .al_tag = tag },
		{ .al_kind = MP_MLOG, .al_mclass = mclass, .al_capacity = capacity, .al_tag = tag },
	};
	struct mp_obj *obj[2] = { NULL, NULL };
	struct mp_root *root = os_call_zalloc(sizeof(*root));
	int rc;

	if (!root)
		return mp_err(MP_NOMEM, "container");
	rc = root_name(name, root->r_name);
	/* one creation at a time: the name is free until the record is applied */
	mutex_lock(&pool->p_root_lock);
	mutex_lock(&pool->p_lock);
	if (!rc && mp_otab_root(pool, root->r_name))
		rc = mp_err(MP_ROOT_EXISTS, "container '%s'", name);
	if (!rc && pool->p_nroots >= MP_ROOTS_MAX)
		rc = mp_err(MP_MD_FULL, "%u containers", pool->p_nroots);
	mutex_unlock(&pool->p_lock);
	if (!rc)
		rc = mp_alloc_durable(pool, req, 2, root, obj);
	mutex_unlock(&pool->p_root_lock);
	if (rc) {
		os_free(root);
		return rc;
	}
	mp_obj_put(obj[0]);
	mp_obj_put(obj[1]);
	return 0;
}

int mp_root_get(struct mp_pool *pool, const char *name, u64 id[2])
{
	char key[MP_NAME_LEN];
	struct mp_root *r;
	int rc = root_name(name, key);

	if (rc)
		return rc;
	mutex_lock(&pool->p_lock);
	r = mp_otab_root(pool, key);
	if (r) {
		id[0] = r->r_id[0];
		id[1] = r->r_id[1];
	}
	mutex_unlock(&pool->p_lock);
	return r ? 0 : mp_err(MP_ROOT_NONE, "container '%s'", name);
}

/* which of its logs there are: a pool that an older release wrote to may lack one */
static u32 root_logs(struct mp_pool *pool, const u64 id[2], struct mp_op op[2])
{
	struct mp_obj *obj;
	u32 i, n = 0;

	mutex_lock(&pool->p_lock);
	for (i = 0; i < 2; i++) {
		obj = i && id[0] == id[1] ? NULL : mp_otab_find(pool, id[i]);
		if (!obj || obj->o_kind != MP_MLOG)
			continue;
		op[n].op_type = MP_OP_DELETE;
		op[n++].op_id = id[i];
	}
	mutex_unlock(&pool->p_lock);
	return n;
}

int mp_root_delete(struct mp_pool *pool, const char *name)
{
	struct mp_op op[2] = { { .op_id = 0 } };
	char key[MP_NAME_LEN];
	u64 id[2];
	int rc;

	rc = root_name(name, key);
	if (rc)
		return rc;
	mutex_lock(&pool->p_root_lock);
	rc = mp_root_get(pool, name, id);
	if (!rc)
		rc = batch_run(pool, op, root_logs(pool, id, op), key);
	mutex_unlock(&pool->p_root_lock);
	return rc;
}

int mp_root_next(struct mp_pool *pool, const char *after, char name[32], u64 id[2])
{
	struct mp_root *r;
	char key[MP_NAME_LEN] = { 0 };
	int rc = 0;

	if (*after)
		rc = root_name(after, key);
	if (rc)
		return rc;
	mutex_lock(&pool->p_lock);
	rc = -ENOENT;
	list_for_each_entry(r, &pool->p_roots, r_list) {
		if (memcmp(r->r_name, key, MP_NAME_LEN) <= 0)
			continue;
		memcpy(name, r->r_name, MP_NAME_LEN);
		id[0] = r->r_id[0];
		id[1] = r->r_id[1];
		rc = 0;
		break;
	}
	mutex_unlock(&pool->p_lock);
	return rc;
}
