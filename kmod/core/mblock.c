/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Objects: allocation, references, state rules, and the data path's map.
 *
 * A plain mblock lives in memory only until its commit record; append objects
 * and mlogs exist from their allocation record on. The table holds durable
 * objects; handles are counted in o_refs. Space returns to the map when the
 * delete record is durable and no handle is left (INV-9).
 *
 * Virgin space: an append object may be read before it is written, so space
 * that was never written under this pool is zeroed, and the zeroes are durable,
 * before the object's record is. s_virgin is the mark below which that holds.
 *
 * A discard does not lower it. What a device returns of a discarded block (old, zeroes, or
 * anything, as dev.h says) is the device's to answer for: it may be this pool's own, which the
 * mark allows, and no device may show another's. A thin pool of dm-thin that is set up with
 * skip_block_zeroing does, to each reader of its volume, written or not: no mark here helps.
 * Nothing rests on zeroes in reused space: frames of logs carry identity and checksum.
 *
 * Locks: p_lock for table, space and references; o_lock for the write position.
 */
#include "durable.h"

#define LIST_STEP	1024u	/* objects looked at under p_lock at a time */
#define ROOM_TURNS	8

/* ---- space ---- */

int mp_obj_id_reserve(struct mp_pool *pool, u32 n, u64 *first)
{
	struct mp_txn txn;
	u64 hwm;
	int rc, turn;

	mp_assert_no_lock(pool);
	/* bounded: a turn advances the mark by MP_ID_BATCH, others take at most so many */
	for (turn = 0; turn < 100; turn++) {
		mutex_lock(&pool->p_md.md_lock);
		hwm = pool->p_md.md_id_hwm;
		mutex_unlock(&pool->p_md.md_lock);
		mutex_lock(&pool->p_lock);
		/* an id beyond the durable mark could be given out twice: INV-10 */
		if (CHECK(pool->p_next_id + n <= hwm)) {
			*first = pool->p_next_id;
			pool->p_next_id += n;
			mutex_unlock(&pool->p_lock);
			return 0;
		}
		mutex_unlock(&pool->p_lock);
		if (hwm >= MP_ID_LAST)
			break;
		rc = mp_txn_init(&txn, 0);
		if (!rc)
			rc = mp_md_commit(pool, &txn);
		if (rc)
			return rc;
	}
	return mp_err(MP_IDS, "mark %llu", hwm);
}

int mp_obj_reserve(const struct mp_obj *obj, u64 from, u64 to, bool is_said)
{
	struct mp_dev *dev;
	u64 pos, n;
	int rc = 0;

	os_assert(to <= obj->o_capacity);
	mp_assert_no_lock(obj->o_pool);
	for (; from < to && !rc; from += n) {
		rc = mp_obj_map(obj, from, to - from, &dev, &pos, &n);
		if (!rc && is_said)
			rc = mp_dev_reserve(dev, pos, n);
		else if (!rc && mp_dev_is_sparse(dev))
			rc = dev->d_ops->reserve(dev, pos, n);
	}
	return rc;
}

u64 mp_obj_reserved(const struct mp_obj *obj)
{
	u64 off = 0, pos, n, has;
	struct mp_dev *dev;

	for (; off < obj->o_capacity; off += n) {
		if (mp_obj_map(obj, off, obj->o_capacity - off, &dev, &pos, &n))
			break;
		has = n;
		if (mp_dev_is_sparse(dev))
			has = dev->d_ops->reserved ? dev->d_ops->reserved(dev, pos, n) :
						     MP_DEV_UNKNOWN;
		/* that cannot tell: what every log has from the beginning */
		if (has == MP_DEV_UNKNOWN)
			has = off < MP_LOG_FIRST ? MP_LOG_FIRST - off : 0;
		if (has < n)
			return ALIGN_DOWN(off + has, MP_BLOCK);
	}
	return off;
}

static int class_choose(struct mp_pool *pool, const struct mp_alloc *req, u64 blocks,
			struct mp_extent *ext, u32 *n, u32 *mclass)
{
	u32 i;
	int rc;

	rc = mp_class_alloc(pool, req->al_mclass, blocks, req->al_kind, req->al_flags, ext, n,
			    mclass);
	for (i = 0; rc == -ENOSPC && (req->al_flags & MP_ALLOC_ANY) && i < MP_CLASSES; i++)
		if (i != req->al_mclass)
			rc = mp_class_alloc(pool, i, blocks, req->al_kind, req->al_flags, ext, n,
					    mclass);
	return rc;
}

static u64 blocks_of(const struct mp_extent *ext, u32 n)
{
	u64 sum = 0;

	while (n--)
		sum += ext[n].ex_count;
	return sum;
}

static int obj_place(struct mp_pool *pool, const struct mp_alloc *req, u64 id,
		     struct mp_obj **out)
{
	struct mp_extent ext[MP_EXTENTS_MAX];
	u64 blocks = DIV_ROUND_UP(req->al_capacity, MP_BLOCK);
	struct mp_obj *obj = NULL;
	u32 n = 0, mclass = 0;
	int rc;

	mutex_lock(&pool->p_lock);
	rc = class_choose(pool, req, blocks, ext, &n, &mclass);
	if (!rc) {
		rc = mp_otab_new(pool, n, &obj);
		if (rc)
			mp_class_free(pool, ext, n, req->al_kind, true);
	}
	if (obj) {
		os_assert_slow(blocks_of(ext, n) == blocks);
		obj->o_node.n_key = id;
		obj->o_tag = req->al_tag;
		obj->o_capacity = blocks * MP_BLOCK;
		obj->o_gen = 1;
		obj->o_kind = req->al_kind;
		obj->o_mclass = mclass;
		obj->o_is_placed = true;
		obj->o_refs = 1;
		pool->p_nhandles++;
		memcpy(obj->o_extent, ext, n * sizeof(ext[0]));
		*out = obj;
	}
	mutex_unlock(&pool->p_lock);
	return rc;
}

/*
 * Memory for any object, within the caller's limit. Under p_lock nothing waits for
 * that: a group near its limit reclaims, sleeps and dies in its own time.
 */
static int room_make(void)
{
	void *p = os_call_alloc(sizeof(struct mp_obj) + MP_EXTENTS_MAX *
				(sizeof(struct mp_extent) + sizeof(struct mp_free)));

	os_free(p);
	return p ? 0 : -ENOMEM;
}

/* an object in memory with its space; one reference */
int mp_obj_make(struct mp_pool *pool, const struct mp_alloc *req, u64 id, u64 first,
		struct mp_obj **out)
{
	struct mp_obj *obj = NULL;
	int rc, turn = 0;

	/* bounded: others of the same group may have taken the room */
	do
		rc = obj_place(pool, req, id, &obj);
	while (rc == -ENOMEM && turn++ < ROOM_TURNS && !room_make());
	if (rc)
		return rc;
	rc = mp_obj_reserve(obj, 0, min(first, obj->o_capacity), true);
	if (rc) {
		mp_obj_put(obj);
		return rc;
	}
	*out = obj;
	return 0;
}

/* ---- references ---- */

void mp_obj_get(struct mp_obj *obj)
{
	mutex_lock(&obj->o_pool->p_lock);
	os_assert(obj->o_refs);
	obj->o_refs++;
	obj->o_pool->p_nhandles++;
	mutex_unlock(&obj->o_pool->p_lock);
}

/* p_lock held; the object is gone from the table and has no reference */
static void obj_release(struct mp_obj *obj, bool is_clean)
{
	mp_assert_locked(obj->o_pool);
	os_assert(!obj->o_refs && !obj->o_is_listed && !obj->o_inflight);
	mp_obj_free_space(obj, is_clean);
	mp_otab_free(obj);
}

void mp_obj_put(struct mp_obj *obj)
{
	struct mp_pool *pool = obj->o_pool;

	mutex_lock(&pool->p_lock);
	os_assert(obj->o_refs && pool->p_nhandles >= obj->o_refs);
	pool->p_nhandles--;
	/* an object in a batch is released by the batch */
	if (--obj->o_refs == 0 && !obj->o_is_listed && !(obj->o_state & MP_O_BUSY)) {
		/* after a failed metadata write it is not known whether media names this space */
		if (obj->o_state & MP_O_DOUBT)
			mp_otab_free(obj);
		else
			obj_release(obj, !obj->o_wpos && !(obj->o_flags & MP_OBJF_DELETED));
	}
	mutex_unlock(&pool->p_lock);
}

int mp_obj_open(struct mp_pool *pool, u64 id, struct mp_obj **out)
{
	struct mp_obj *obj;

	mutex_lock(&pool->p_lock);
	obj = mp_otab_find(pool, id);
	if (obj) {
		obj->o_refs++;
		pool->p_nhandles++;
		*out = obj;
	}
	mutex_unlock(&pool->p_lock);
	return obj ? 0 : mp_err(MP_OBJ_NONE, "object %llu", id);
}

void mp_obj_info(struct mp_obj *obj, struct mp_obj_info *out)
{
	unsigned long irq;

	memset(out, 0, sizeof(*out));
	out->oi_id = obj->o_node.n_key;
	out->oi_tag = obj->o_tag;
	out->oi_capacity = obj->o_capacity;
	out->oi_kind = obj->o_kind;
	out->oi_mclass = obj->o_mclass;
	spin_lock_irqsave(&obj->o_lock, irq);
	out->oi_gen = obj->o_gen;
	out->oi_flags = obj->o_flags;
	out->oi_crc = obj->o_crc;
	out->oi_length = obj->o_flags & (MP_OBJF_COMMITTED | MP_OBJF_SEALED) ? obj->o_length :
			 obj->o_wpos;
	spin_unlock_irqrestore(&obj->o_lock, irq);
}

u64 mp_obj_id(const struct mp_obj *obj)
{
	return obj->o_node.n_key;
}

int mp_obj_list(struct mp_pool *pool, u64 after, u64 tag, struct mp_obj_info *out, u32 max)
{
	struct mp_node *n;
	u32 i = 0, left;

	if (after == ~0ull)
		return 0;
	do {
		/* the others get their turn: all objects may be passed over for one of @tag */
		mutex_lock(&pool->p_lock);
		n = mp_tree_ceil(&pool->p_objs, after + 1);
		for (left = LIST_STEP; n && i < max && left; n = mp_tree_next(n), left--) {
			struct mp_obj *obj = container_of(n, struct mp_obj, o_node);

			if (!tag || obj->o_tag == tag)
				mp_obj_info(obj, &out[i++]);
			after = n->n_key;
		}
		mutex_unlock(&pool->p_lock);
		cond_resched();
	} while (n && i < max && !os_fatal_signal());
	return (int)i;
}

/* ---- data path ---- */

int mp_obj_write_begin(struct mp_obj *obj, u64 off, u64 len)
{
	unsigned long irq;
	int rc = 0;

	if (!CHECK(len && !((off | len) % MP_BLOCK) && off < obj->o_capacity &&
		   len <= obj->o_capacity - off))
		return mp_err(MP_OBJ_RANGE, "object %llu: write %llu+%llu of %llu", mp_obj_id(obj),
			      off, len, obj->o_capacity);
	rc = mp_pool_writable(obj->o_pool);
	if (rc)
		return rc;
	spin_lock_irqsave(&obj->o_lock, irq);
	if (!CHECK(!(obj->o_flags & (MP_OBJF_COMMITTED | MP_OBJF_SEALED | MP_OBJF_DELETED)) &&
		   obj->o_kind != MP_MLOG))
		rc = -EINVAL;
	else if (obj->o_is_placed && !CHECK(off == obj->o_wpos))
		rc = -ERANGE;
	/* not bound to what is written: it could lie below the length that a seal in flight has */
	else if (!obj->o_is_placed && (obj->o_state & MP_O_BUSY))
		rc = -EBUSY;
	if (!rc) {
		obj->o_is_placed = true;
		obj->o_wpos = off + len;
		obj->o_inflight++;
	}
	spin_unlock_irqrestore(&obj->o_lock, irq);
	if (rc == -EINVAL)
		return mp_err(MP_OBJ_STATE, "object %llu is not open for writing", mp_obj_id(obj));
	if (rc == -EBUSY)
		return mp_err(MP_OBJ_BUSY, "object %llu", mp_obj_id(obj));
	if (rc == -ERANGE)
		return mp_err(MP_OBJ_STATE, "object %llu: write at %llu, it ends elsewhere",
			      mp_obj_id(obj), off);
	return 0;
}

void mp_obj_write_end(struct mp_obj *obj, u64 off, int err)
{
	unsigned long irq;

	spin_lock_irqsave(&obj->o_lock, irq);
	os_assert(obj->o_inflight);
	obj->o_inflight--;
	if (err && off < obj->o_fail_off)
		obj->o_fail_off = off;
	obj->o_is_hurt |= err == -EIO;
	spin_unlock_irqrestore(&obj->o_lock, irq);
}

int mp_obj_read_check(struct mp_obj *obj, u64 off, u64 len)
{
	unsigned long irq;
	u64 end;

	spin_lock_irqsave(&obj->o_lock, irq);
	if (obj->o_flags & (MP_OBJF_COMMITTED | MP_OBJF_SEALED))
		end = obj->o_length;
	else
		/* an mblock's failed write leaves what lay there before */
		end = obj->o_kind == MP_APPEND ? obj->o_capacity :
		      min_t(u64, obj->o_wpos, obj->o_fail_off);
	spin_unlock_irqrestore(&obj->o_lock, irq);
	if (!CHECK(len && !((off | len) % MP_BLOCK) && off < end && len <= end - off))
		return mp_err(MP_OBJ_RANGE, "object %llu: read %llu+%llu of %llu", mp_obj_id(obj),
			      off, len, end);
	return 0;
}

int mp_obj_map_slot(const struct mp_obj *obj, u64 off, u64 len, u32 *slot, u64 *pos, u64 *contig)
{
	u64 base = 0, bytes;
	u32 i;

	for (i = 0; i < obj->o_nextents; i++, base += bytes) {
		bytes = (u64)obj->o_extent[i].ex_count * MP_BLOCK;
		if (off - base < bytes) {
			*slot = obj->o_extent[i].ex_slot;
			*pos = obj->o_extent[i].ex_start * MP_BLOCK + (off - base);
			*contig = min_t(u64, len, bytes - (off - base));
			return 0;
		}
	}
	return mp_err(MP_OBJ_RANGE, "object %llu: offset %llu", mp_obj_id(obj), off);
}

int mp_obj_map(const struct mp_obj *obj, u64 off, u64 len, struct mp_dev **dev, u64 *pos,
	       u64 *contig)
{
	u32 slot;
	int rc = mp_obj_map_slot(obj, off, len, &slot, pos, contig);

	if (!rc)
		*dev = obj->o_pool->p_dev[slot]->pd_dev;
	return rc;
}

void mp_obj_bad_read(const struct mp_obj *obj, u64 off, bool is_reread)
{
	u64 pos, contig;
	u32 slot;

	if (off < obj->o_capacity && !mp_obj_map_slot(obj, off, 1, &slot, &pos, &contig))
		mp_pdev_bad_read(obj->o_pool, obj->o_pool->p_dev[slot], is_reread);
}

static void mark_devs(const struct mp_obj *obj, u8 *mask)
{
	u32 i;

	for (i = 0; i < obj->o_nextents; i++)
		mask[obj->o_extent[i].ex_slot] = 1;
}

static int flush_devs(struct mp_pool *pool, const u8 *mask)
{
	u32 i, n = smp_load_acquire(&pool->p_ndevs);
	int rc = 0;

	for (i = 0; i < n && !rc; i++)
		if (mask[i])
			rc = mp_dev_flush(pool, pool->p_dev[i]);
	return rc;
}

int mp_obj_flush(struct mp_obj *obj)
{
	u8 mask[MP_SLOTS] = { 0 };

	mark_devs(obj, mask);
	return BARRIER(flush_devs(obj->o_pool, mask));
}

/* ---- durable allocation ---- */

/* zero what an append object would expose for the first time; INV-11 */
static int expose(struct mp_pool *pool, struct mp_obj *obj, struct mp_txn *txn, u8 *mask)
{
	struct mp_rec r;
	u32 i;
	int rc;

	for (i = 0; obj->o_kind == MP_APPEND && i < obj->o_nextents; i++) {
		const struct mp_extent *ex = &obj->o_extent[i];
		struct mp_pdev *pd = pool->p_dev[ex->ex_slot];
		u64 end = ex->ex_start + ex->ex_count, from;
		bool is_zeroed;

		mutex_lock(&pool->p_lock);
		from = max_t(u64, ex->ex_start, pd->pd_smap.s_virgin);
		is_zeroed = pd->pd_flags & MP_DEVF_ZEROED;
		mutex_unlock(&pool->p_lock);
		if (from >= end || is_zeroed)
			continue;
		rc = mp_dev_zero(pool, pd, from * MP_BLOCK, (end - from) * MP_BLOCK);
		if (rc)
			return rc;
		mask[ex->ex_slot] = 1;
		memset(&r, 0, sizeof(r));
		r.r_type = MP_REC_VIRGIN;
		r.r_slot = ex->ex_slot;
		r.r_id = ex->ex_start;
		r.r_length = end;
		rc = mp_txn_add(txn, &r);
		if (rc)
			return rc;
	}
	return 0;
}

struct alloc_ctx {
	struct mp_pool *pool;
	struct mp_obj **obj;
	struct mp_root *root;
	const struct mp_txn *txn;
	u32 n;
	u64 pend;
};

static void alloc_apply(struct mp_txn *txn)
{
	struct alloc_ctx *a = txn->t_arg;
	u32 i, off = 0;
	struct mp_rec r;
	int rc;

	mutex_lock(&a->pool->p_lock);
	os_assert(a->pool->p_ckpt_pend >= a->pend);
	a->pool->p_ckpt_pend -= a->pend;
	a->pend = 0;
	for (i = 0; i < a->n; i++) {
		if (a->obj[i]->o_kind == MP_MBLOCK)
			continue;
		mp_otab_insert(a->pool, a->obj[i]);
		a->obj[i]->o_is_listed = true;
	}
	if (a->root) {
		/* p_root_lock, which the creation holds, kept the name free */
		rc = mp_otab_root_add(a->pool, a->root);
		os_assert(!rc);
	}
	for (; off < txn->t_len; off += (u32)rc) {
		rc = mp_rec_decode(txn->t_buf + off, txn->t_len - off, &r);
		os_assert(rc > 0);
		if (rc <= 0)
			break;
		if (r.r_type == MP_REC_VIRGIN)
			mp_otab_replay(a->pool, &r);
	}
	mutex_unlock(&a->pool->p_lock);
}

static int alloc_encode(struct alloc_ctx *a, struct mp_txn *txn)
{
	u8 mask[MP_SLOTS] = { 0 };
	struct mp_rec r;
	u32 i;
	int rc = 0;

	for (i = 0; i < a->n && !rc; i++) {
		if (a->obj[i]->o_kind == MP_MBLOCK)
			continue;
		rc = expose(a->pool, a->obj[i], txn, mask);
		if (rc)
			break;
		mp_otab_rec(a->obj[i], &r);
		rc = mp_txn_add(txn, &r);
	}
	if (!rc && a->root) {
		memset(&r, 0, sizeof(r));
		r.r_type = MP_REC_ROOT;
		memcpy(r.r_name, a->root->r_name, MP_NAME_LEN);
		a->root->r_id[0] = mp_obj_id(a->obj[0]);
		a->root->r_id[1] = mp_obj_id(a->obj[1]);
		r.r_root[0] = a->root->r_id[0];
		r.r_root[1] = a->root->r_id[1];
		rc = mp_txn_add(txn, &r);
	}
	/* zeroes before the record that exposes them: INV-11 */
	if (!rc)
		rc = BARRIER(flush_devs(a->pool, mask));
	return rc;
}

/* one record for all objects that are not plain mblocks */
static int alloc_commit(struct alloc_ctx *a)
{
	struct mp_txn txn;
	u32 i, max = 64;
	int rc;

	for (i = 0; i < a->n; i++)
		if (a->obj[i]->o_kind != MP_MBLOCK)
			max += mp_otab_rec_size(a->obj[i]) +
			       a->obj[i]->o_nextents * (u32)sizeof(struct mp_idrec_omf);
	rc = mp_txn_init(&txn, max);
	if (rc)
		return rc;
	txn.t_apply = alloc_apply;
	txn.t_arg = a;
	mutex_lock(&a->pool->p_lock);
	rc = mp_md_room(a->pool, max);
	if (!rc) {
		a->pend = max;
		a->pool->p_ckpt_pend += max;
	}
	mutex_unlock(&a->pool->p_lock);
	if (!rc)
		rc = mp_md_space(a->pool);
	if (!rc)
		rc = alloc_encode(a, &txn);
	if (!rc) {
		rc = mp_md_commit(a->pool, &txn);
		for (i = 0; rc && mp_pool_is_failed(a->pool) && i < a->n; i++)
			a->obj[i]->o_state |= MP_O_DOUBT;
	}
	mutex_lock(&a->pool->p_lock);
	os_assert(a->pool->p_ckpt_pend >= a->pend);
	a->pool->p_ckpt_pend -= a->pend;
	mutex_unlock(&a->pool->p_lock);
	mp_txn_fini(&txn);
	return rc;
}

int mp_alloc_durable(struct mp_pool *pool, const struct mp_alloc *req, u32 n,
		     struct mp_root *root, struct mp_obj **out)
{
	struct alloc_ctx a = { .pool = pool, .obj = out, .root = root };
	/* the logs of a container get more space as they grow: mlog.c */
	u64 first = root ? MP_LOG_FIRST : ~0ull;
	bool is_durable_kind = false;
	u64 id = 0;
	u32 i;
	int rc;

	mp_assert_no_lock(pool);
	rc = mp_pool_writable(pool);
	for (i = 0; i < n && !rc; i++) {
		if (req[i].al_kind < MP_MBLOCK || req[i].al_kind > MP_MLOG ||
		    req[i].al_mclass >= MP_CLASSES || !req[i].al_capacity ||
		    req[i].al_capacity > (1ull << 44))
			rc = mp_err(MP_INVAL, "allocation %u: kind, class or capacity", i);
		is_durable_kind |= req[i].al_kind != MP_MBLOCK;
	}
	if (!rc)
		rc = mp_obj_id_reserve(pool, n, &id);
	for (i = 0; i < n && !rc; i++) {
		rc = mp_obj_make(pool, &req[i], id + i, first, &out[i]);
		a.n += !rc;
	}
	if (!rc && is_durable_kind)
		rc = alloc_commit(&a);
	for (i = 0; rc && i < a.n; i++) {
		mp_obj_put(out[i]);
		out[i] = NULL;
	}
	return rc;
}

int mp_obj_alloc(struct mp_pool *pool, const struct mp_alloc *req, u32 n, struct mp_obj **out)
{
	struct mp_obj **tmp;
	int rc;

	if (!n || n > MP_BATCH_MAX)
		return mp_err(MP_INVAL, "%u objects in a batch", n);
	tmp = os_call_zalloc(n * sizeof(*tmp));
	if (!tmp)
		return mp_err(MP_NOMEM, "batch");
	rc = mp_alloc_durable(pool, req, n, NULL, tmp);
	if (!rc)
		memcpy(out, tmp, n * sizeof(*tmp));
	os_free(tmp);
	return rc;
}
