/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The table of durable objects and named roots: what a checkpoint holds and
 * what replay rebuilds. Everything here is guarded by pool->p_lock. Memory is
 * bounded by p_mem_max, so that no image can make an open eat the machine.
 */
#include "durable.h"

static u64 obj_mem(u32 nextents)
{
	return sizeof(struct mp_obj) + nextents * (sizeof(struct mp_extent) +
						   sizeof(struct mp_free));
}

static int otab_new(struct mp_pool *pool, u32 nextents, u64 mem_max, bool is_call,
		    struct mp_obj **out)
{
	size_t size = sizeof(struct mp_obj) + nextents * sizeof(struct mp_extent);
	struct mp_obj *obj;

	mp_assert_locked(pool);
	if (!CHECK(pool->p_mem + obj_mem(nextents) <= mem_max))
		return mp_err(MP_MD_LIMIT, "%llu objects", pool->p_nobjs);
	obj = is_call ? os_call_zalloc_now(size) : os_zalloc(size);
	if (!obj)
		return mp_err(MP_NOMEM, "object");
	pool->p_mem += obj_mem(nextents);
	obj->o_pool = pool;
	obj->o_nextents = nextents;
	obj->o_fail_off = ~0ull;
	spin_lock_init(&obj->o_lock);
	*out = obj;
	return 0;
}

int mp_otab_new(struct mp_pool *pool, u32 nextents, struct mp_obj **out)
{
	/* what is made opens where an object takes a seventh more memory, too */
	return otab_new(pool, nextents, pool->p_mem_max / 8 * 7, true, out);
}

void mp_otab_free(struct mp_obj *obj)
{
	os_assert(obj->o_pool->p_mem >= obj_mem(obj->o_nextents));
	obj->o_pool->p_mem -= obj_mem(obj->o_nextents);
	os_free(obj);
}

/* What a file reserved takes space below it, written to or not. */
static bool is_reserved(const struct mp_obj *obj)
{
	u32 i;

	for (i = 0; i < obj->o_nextents; i++) {
		if (mp_dev_is_sparse(obj->o_pool->p_dev[obj->o_extent[i].ex_slot]->pd_dev))
			return true;
	}
	return false;
}

void mp_obj_free_space(struct mp_obj *obj, bool is_clean)
{
	mp_assert_locked(obj->o_pool);
	if (!CHECK(!obj->o_is_hurt)) {
		mp_class_keep_out(obj->o_pool, obj->o_extent, obj->o_nextents);
		return;
	}
	is_clean = is_clean && !is_reserved(obj);
	mp_class_free(obj->o_pool, obj->o_extent, obj->o_nextents, obj->o_kind, is_clean);
}

struct mp_obj *mp_otab_find(struct mp_pool *pool, u64 id)
{
	struct mp_node *n = mp_tree_find(&pool->p_objs, id);

	mp_assert_locked(pool);
	return n ? container_of(n, struct mp_obj, o_node) : NULL;
}

u32 mp_otab_rec_size(const struct mp_obj *obj)
{
	return (u32)(sizeof(struct mp_obj_omf) + obj->o_nextents * sizeof(struct mp_extent_omf));
}

void mp_otab_insert(struct mp_pool *pool, struct mp_obj *obj)
{
	mp_assert_locked(pool);
	os_assert(!obj->o_is_listed);
	mp_tree_insert(&pool->p_objs, &obj->o_node, obj->o_node.n_key);
	pool->p_nobjs++;
	pool->p_ckpt += mp_otab_rec_size(obj);
}

void mp_otab_remove(struct mp_pool *pool, struct mp_obj *obj)
{
	mp_assert_locked(pool);
	os_assert(obj->o_is_listed && pool->p_nobjs && pool->p_ckpt >= mp_otab_rec_size(obj));
	mp_tree_erase(&pool->p_objs, &obj->o_node);
	pool->p_nobjs--;
	pool->p_ckpt -= mp_otab_rec_size(obj);
}

void mp_otab_rec(const struct mp_obj *obj, struct mp_rec *r)
{
	memset(r, 0, sizeof(*r));
	r->r_type = MP_REC_OBJ;
	r->r_id = obj->o_node.n_key;
	r->r_tag = obj->o_tag;
	r->r_capacity = obj->o_capacity;
	r->r_gen = obj->o_gen;
	r->r_kind = obj->o_kind;
	r->r_mclass = obj->o_mclass;
	r->r_flags = obj->o_flags & (MP_OBJF_COMMITTED | MP_OBJF_SEALED | MP_OBJF_CRC);
	r->r_length = r->r_flags & (MP_OBJF_COMMITTED | MP_OBJF_SEALED) ? obj->o_length : 0;
	r->r_crc = obj->o_crc;
	r->r_nextents = obj->o_nextents;
	r->r_extent = obj->o_extent;
}

/* ---- roots ---- */

struct mp_root *mp_otab_root(struct mp_pool *pool, const char *name)
{
	struct mp_root *r;

	mp_assert_locked(pool);
	list_for_each_entry(r, &pool->p_roots, r_list)
		if (!memcmp(r->r_name, name, MP_NAME_LEN))
			return r;
	return NULL;
}

int mp_otab_root_add(struct mp_pool *pool, struct mp_root *root)
{
	struct mp_root *r;
	struct list_head *at = &pool->p_roots;

	mp_assert_locked(pool);
	if (pool->p_nroots >= MP_ROOTS_MAX)
		return -ENOSPC;
	list_for_each_entry(r, &pool->p_roots, r_list) {
		int c = memcmp(r->r_name, root->r_name, MP_NAME_LEN);

		if (!c)
			return -EEXIST;
		if (c > 0)
			break;
		at = &r->r_list;
	}
	list_add(&root->r_list, at);
	pool->p_nroots++;
	pool->p_ckpt += sizeof(struct mp_root_omf);
	return 0;
}

void mp_otab_root_del(struct mp_pool *pool, struct mp_root *root)
{
	mp_assert_locked(pool);
	os_assert(pool->p_nroots);
	list_del_init(&root->r_list);
	pool->p_nroots--;
	pool->p_ckpt -= sizeof(struct mp_root_omf);
}

/* ---- replay ---- */

static int replay_obj(struct mp_pool *pool, const struct mp_rec *r)
{
	struct mp_obj *obj = NULL;
	u32 i;
	int rc;

	if (mp_otab_find(pool, r->r_id))
		return mp_err(MP_MD_RECORD, "object %llu exists twice", r->r_id);
	rc = otab_new(pool, r->r_nextents, pool->p_mem_max, false, &obj);
	if (rc)
		return rc;
	obj->o_node.n_key = r->r_id;
	obj->o_tag = r->r_tag;
	obj->o_length = r->r_length;
	obj->o_capacity = r->r_capacity;
	obj->o_gen = r->r_gen;
	obj->o_kind = r->r_kind;
	obj->o_mclass = r->r_mclass;
	obj->o_flags = r->r_flags & (MP_OBJF_COMMITTED | MP_OBJF_SEALED | MP_OBJF_CRC);
	obj->o_crc = r->r_crc;
	for (i = 0; i < r->r_nextents; i++) {
		struct mp_extent ex;

		mp_rec_extent(r, i, &ex);
		obj->o_extent[i] = ex;
		/* an index and the space map depend on this: never switched off */
		rc = ex.ex_slot < pool->p_ndevs ?
		     mp_smap_take(&pool->p_dev[ex.ex_slot]->pd_smap, ex.ex_start,
				  ex.ex_count) : -EUCLEAN;
		if (rc) {
			mp_otab_free(obj);
			if (rc == -ENOMEM)
				return mp_err(MP_NOMEM, "space of object %llu", r->r_id);
			return mp_err(MP_MD_EXTENT, "object %llu: device %u blocks %llu+%u",
				      r->r_id, ex.ex_slot, ex.ex_start, ex.ex_count);
		}
	}
	mp_otab_insert(pool, obj);
	obj->o_is_listed = true;
	return 0;
}

static int replay_root(struct mp_pool *pool, const struct mp_rec *r)
{
	struct mp_root *root;
	int rc;

	if (r->r_type == MP_REC_ROOT_DEL) {
		root = mp_otab_root(pool, r->r_name);
		if (!root)
			return mp_err(MP_MD_RECORD, "container '%s' does not exist", r->r_name);
		mp_otab_root_del(pool, root);
		os_free(root);
		return 0;
	}
	root = os_zalloc(sizeof(*root));
	if (!root)
		return mp_err(MP_NOMEM, "container");
	memcpy(root->r_name, r->r_name, MP_NAME_LEN);
	root->r_id[0] = r->r_root[0];
	root->r_id[1] = r->r_root[1];
	rc = mp_otab_root_add(pool, root);
	if (rc) {
		os_free(root);
		return mp_err(MP_MD_RECORD, "container '%s' exists twice", r->r_name);
	}
	return 0;
}

static int replay_virgin(struct mp_pool *pool, const struct mp_rec *r)
{
	struct mp_smap *s;

	if (r->r_slot >= pool->p_ndevs)
		return mp_err(MP_MD_RECORD, "watermark of device %u", r->r_slot);
	s = &pool->p_dev[r->r_slot]->pd_smap;
	if (r->r_id <= s->s_virgin && r->r_length > s->s_virgin)
		s->s_virgin = r->r_length;
	return 0;
}

int mp_otab_replay(struct mp_pool *pool, const struct mp_rec *r)
{
	struct mp_obj *obj;

	switch (r->r_type) {
	case MP_REC_OBJ:
		return replay_obj(pool, r);
	case MP_REC_ROOT:
	case MP_REC_ROOT_DEL:
		return replay_root(pool, r);
	case MP_REC_VIRGIN:
		return replay_virgin(pool, r);
	default:
		break;
	}
	obj = mp_otab_find(pool, r->r_id);
	if (!obj)
		return mp_err(MP_MD_RECORD, "record %u of object %llu, which does not exist",
			      r->r_type, r->r_id);
	if (r->r_type == MP_REC_DEL) {
		mp_otab_remove(pool, obj);
		mp_obj_free_space(obj, false);
		mp_otab_free(obj);
	} else if (r->r_type == MP_REC_GEN) {
		obj->o_gen = r->r_gen;
	} else {
		if (!CHECK(r->r_length <= obj->o_capacity && r->r_length % MP_BLOCK == 0))
			return mp_err(MP_MD_RECORD, "object %llu sealed at %llu of %llu", r->r_id,
				      r->r_length, obj->o_capacity);
		obj->o_length = r->r_length;
		obj->o_flags |= r->r_flags & (MP_OBJF_SEALED | MP_OBJF_CRC);
		obj->o_crc = r->r_crc;
	}
	return 0;
}

void mp_otab_fini(struct mp_pool *pool)
{
	struct mp_root *r, *tmp;
	struct mp_node *n;

	while ((n = mp_tree_take(&pool->p_objs))) {
		mp_otab_free(container_of(n, struct mp_obj, o_node));
		cond_resched();
	}
	list_for_each_entry_safe(r, tmp, &pool->p_roots, r_list)
		os_free(r);
	INIT_LIST_HEAD(&pool->p_roots);
	os_assert(!pool->p_mem);
}

/* ---- checkpoint ---- */

/* What p_ckpt says, counted. */
static u64 ckpt_size(const struct mp_pool *pool)
{
	u64 sum = pool->p_nroots * sizeof(struct mp_root_omf);
	const struct mp_node *n;

	for (n = mp_tree_first(&pool->p_objs); n; n = mp_tree_next(n))
		sum += mp_otab_rec_size(container_of(n, struct mp_obj, o_node));
	return sum;
}

static u32 encode_objs(struct mp_pool *pool, struct mp_ckpt_cursor *c, u8 *buf, u32 max,
		       u32 *nrecs)
{
	struct mp_node *n = mp_tree_ceil(&pool->p_objs, c->cc_key + 1);
	struct mp_rec r;
	u32 used = 0;

	mp_assert_locked(pool);
	os_assert_slow(ckpt_size(pool) == pool->p_ckpt);
	for (; n; n = mp_tree_next(n)) {
		mp_otab_rec(container_of(n, struct mp_obj, o_node), &r);
		if (used + mp_rec_size(&r) > max)
			return used;
		used += mp_rec_encode(&r, buf + used);
		c->cc_key = n->n_key;
		++*nrecs;
	}
	c->cc_phase = 1;
	return used;
}

static u32 encode_roots(struct mp_pool *pool, struct mp_ckpt_cursor *c, u8 *buf, u32 max,
			u32 *nrecs)
{
	struct mp_root *root;
	struct mp_rec r;
	u32 used = 0;

	mp_assert_locked(pool);
	list_for_each_entry(root, &pool->p_roots, r_list) {
		if (memcmp(root->r_name, c->cc_name, MP_NAME_LEN) <= 0)
			continue;
		memset(&r, 0, sizeof(r));
		r.r_type = MP_REC_ROOT;
		memcpy(r.r_name, root->r_name, MP_NAME_LEN);
		r.r_root[0] = root->r_id[0];
		r.r_root[1] = root->r_id[1];
		if (used + mp_rec_size(&r) > max)
			return used;
		used += mp_rec_encode(&r, buf + used);
		memcpy(c->cc_name, root->r_name, MP_NAME_LEN);
		++*nrecs;
	}
	c->cc_phase = 2;
	c->cc_key = 0;
	return used;
}

u32 mp_otab_encode(struct mp_pool *pool, struct mp_ckpt_cursor *c, u8 *buf, u32 max, u32 *nrecs)
{
	struct mp_rec r;
	u32 used = 0;

	mutex_lock(&pool->p_lock);
	if (c->cc_phase == 0)
		used += encode_objs(pool, c, buf, max, nrecs);
	if (c->cc_phase == 1)
		used += encode_roots(pool, c, buf + used, max - used, nrecs);
	while (c->cc_phase == 2 && c->cc_key < pool->p_ndevs) {
		memset(&r, 0, sizeof(r));
		r.r_type = MP_REC_VIRGIN;
		r.r_slot = (u32)c->cc_key;
		r.r_length = pool->p_dev[c->cc_key]->pd_smap.s_virgin;
		if (used + mp_rec_size(&r) > max)
			break;
		used += mp_rec_encode(&r, buf + used);
		c->cc_key++;
		++*nrecs;
	}
	mutex_unlock(&pool->p_lock);
	return used;
}
