/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Read-only consistency check, and the map of live extents. Both load the
 * pool as an open for reading does, which already checks every checksum,
 * bound and overlap of the metadata; here comes what an open does not look at:
 * spare copies, logs, containers, contents. Nothing is written.
 */
#include "durable.h"
#include "open.h"

#define CHUNK	(256u << 10)

struct check {
	struct mp_pool *pool;
	mp_finding_fn *fn;
	void *arg;
	u64 damage;
	u8 *buf;
	char text[256];
};

/* What @c->text says. */
static void found(struct check *c, int id, bool is_damage)
{
	struct mp_finding f = { .fi_id = id, .fi_is_damage = is_damage, .fi_text = c->text };

	c->damage += is_damage;
	if (c->fn)
		c->fn(c->arg, &f);
}

static void check_copies(struct check *c)
{
	u32 i, k;

	for (i = 0; i < c->pool->p_ndevs; i++) {
		struct mp_pdev *pd = c->pool->p_dev[i];

		for (k = 0; k < mp_sb_copies(pd->pd_sb); k++) {
			if (!(pd->pd_found.f_bad & (1u << k)))
				continue;
			/* INV-2: an open does not write copy 0 */
			scnprintf(c->text, sizeof(c->text), "%s: superblock copy at %llu%s",
				  pd->pd_dev->d_path, mp_sb_addr(pd->pd_sb, k),
				  k ? "" : ", which mpool scan --recover writes anew");
			found(c, MP_V_SBCOPY, false);
		}
		if (pd->pd_sb->sb_gen < c->pool->p_sb_gen || pd->pd_sb->sb_mark) {
			scnprintf(c->text, sizeof(c->text),
				  "%s: the superblock missed the last change", pd->pd_dev->d_path);
			found(c, MP_V_SBCOPY, false);
		}
	}
}

static void check_space(struct check *c)
{
	struct mp_node *n;
	u64 used = 0, total = 0, unused = 0;
	u32 i;

	for (n = mp_tree_first(&c->pool->p_objs); n; n = mp_tree_next(n)) {
		struct mp_obj *obj = container_of(n, struct mp_obj, o_node);

		for (i = 0; i < obj->o_nextents; i++)
			used += obj->o_extent[i].ex_count;
	}
	for (i = 0; i < c->pool->p_ndevs; i++) {
		total += c->pool->p_dev[i]->pd_smap.s_total;
		unused += mp_smap_free_blocks(&c->pool->p_dev[i]->pd_smap);
	}
	if (used + unused == total)
		return;
	scnprintf(c->text, sizeof(c->text), "%llu blocks used, %llu free, %llu in all", used,
		  unused, total);
	found(c, MP_V_SPACE, true);
}

static void check_roots(struct check *c)
{
	struct mp_root *r;
	u32 i;

	list_for_each_entry(r, &c->pool->p_roots, r_list) {
		for (i = 0; i < 2; i++) {
			struct mp_obj *obj = mp_otab_find(c->pool, r->r_id[i]);

			if (obj && obj->o_kind == MP_MLOG)
				continue;
			scnprintf(c->text, sizeof(c->text), "container '%s': object %llu",
				  r->r_name, r->r_id[i]);
			found(c, MP_V_ROOT, true);
		}
	}
}

static void check_log(struct check *c, struct mp_obj *obj)
{
	struct mp_mlog *l;
	int rc = mp_mlog_open(c->pool, mp_obj_id(obj), &l);

	if (!rc) {
		mp_mlog_close(l);
		return;
	}
	scnprintf(c->text, sizeof(c->text), "log %llu: error %d", mp_obj_id(obj), rc);
	found(c, rc == -EUCLEAN ? MP_MLOG_CORRUPT : MP_MLOG_READ, true);
}

static void check_data(struct check *c, struct mp_obj *obj)
{
	struct mp_dev *dev;
	u64 off, pos, n;
	u32 crc = ~0u;
	int rc = 0;

	for (off = 0; off < obj->o_length; off += n) {
		n = min_t(u64, CHUNK, obj->o_length - off);
		rc = mp_obj_map(obj, off, n, &dev, &pos, &n);
		if (!rc)
			rc = mp_pool_readable(obj->o_pool);
		if (!rc)
			rc = dev->d_ops->read(dev, pos, c->buf, n);
		if (rc)
			break;
		crc = crc32c(crc, c->buf, n);
	}
	if (rc) {
		scnprintf(c->text, sizeof(c->text), "object %llu near offset %llu: error %d",
			  mp_obj_id(obj), off, rc);
		found(c, MP_DATA_READ, true);
	} else if (!CHECK_CRC(~crc == obj->o_crc)) {
		scnprintf(c->text, sizeof(c->text), "object %llu: checksum 0x%08x, not 0x%08x",
			  mp_obj_id(obj), ~crc, obj->o_crc);
		found(c, MP_CRC_DATA, true);
	}
}

static void check_objs(struct check *c, u32 flags)
{
	struct mp_node *n;

	for (n = mp_tree_first(&c->pool->p_objs); n; n = mp_tree_next(n)) {
		struct mp_obj *obj = container_of(n, struct mp_obj, o_node);

		if (obj->o_kind == MP_MLOG)
			check_log(c, obj);
		else if ((flags & MP_VERIFY_DATA) && (obj->o_flags & MP_OBJF_CRC))
			check_data(c, obj);
	}
}

int mp_verify(struct mp_dev **dev, u32 ndevs, u32 flags, mp_finding_fn *fn, void *arg,
	      u64 *damage)
{
	struct check c = { .fn = fn, .arg = arg };
	int rc;

	c.buf = os_alloc_io(CHUNK);
	if (!c.buf)
		return mp_err(MP_NOMEM, "verify");
	rc = mp_pool_load(dev, ndevs, MP_OPEN_RDONLY, fn, arg, &c.pool);
	if (!rc) {
		check_copies(&c);
		check_space(&c);
		check_roots(&c);
		check_objs(&c, flags);
		mp_pool_free(c.pool);
		*damage = c.damage;
	}
	os_free_io(c.buf);
	return rc;
}

/* ---- map ---- */

struct piece {
	struct mp_node pc_node;	/* key: byte offset */
	u64 pc_len, pc_id;
	u32 pc_kind;
	const char *pc_what;
};

struct pieces {
	struct mp_tree tree;
	struct piece *pc;
	u64 n, max;
};

static void piece_add(struct pieces *ps, u64 off, u64 len, u32 kind, u64 id, const char *what)
{
	struct piece *pc = &ps->pc[ps->n++];

	os_assert(ps->n <= ps->max);
	pc->pc_len = len;
	pc->pc_kind = kind;
	pc->pc_id = id;
	pc->pc_what = what;
	mp_tree_insert(&ps->tree, &pc->pc_node, off);
}

static void map_dev(struct mp_pool *pool, struct mp_pdev *pd, struct pieces *ps, mp_map_fn *fn,
		    void *arg)
{
	struct mp_node *n;
	u32 i;

	mp_tree_init(&ps->tree);
	ps->n = 0;
	for (i = 0; i < mp_sb_copies(pd->pd_sb); i++)
		piece_add(ps, mp_sb_addr(pd->pd_sb, i), MP_BLOCK, 0, 0, "superblock");
	for (i = 0; i < 2 && (pd->pd_flags & MP_DEVF_MD); i++)
		piece_add(ps, mp_md_region(&pool->p_md, i), pool->p_md.md_bytes, 0, 0, "mdlog");
	for (n = mp_tree_first(&pool->p_objs); n; n = mp_tree_next(n)) {
		struct mp_obj *obj = container_of(n, struct mp_obj, o_node);

		for (i = 0; i < obj->o_nextents; i++)
			if (obj->o_extent[i].ex_slot == pd->pd_slot)
				piece_add(ps, obj->o_extent[i].ex_start * MP_BLOCK,
					  (u64)obj->o_extent[i].ex_count * MP_BLOCK, obj->o_kind,
					  mp_obj_id(obj), mp_kind_text(obj->o_kind));
	}
	for (n = mp_tree_first(&ps->tree); n; n = mp_tree_next(n)) {
		struct piece *pc = container_of(n, struct piece, pc_node);
		struct mp_map_extent e = {
			.me_slot = pd->pd_slot, .me_kind = pc->pc_kind, .me_off = n->n_key,
			.me_len = pc->pc_len, .me_id = pc->pc_id, .me_what = pc->pc_what,
		};

		fn(arg, &e);
	}
}

int mp_map(struct mp_dev **dev, u32 ndevs, mp_map_fn *fn, void *arg)
{
	struct pieces ps = { .max = MP_SB_COPIES + 3 };
	struct mp_pool *pool;
	struct mp_node *n;
	u32 i;
	int rc = mp_pool_load(dev, ndevs, MP_OPEN_RDONLY, NULL, NULL, &pool);

	if (rc)
		return rc;
	for (n = mp_tree_first(&pool->p_objs); n; n = mp_tree_next(n))
		ps.max += container_of(n, struct mp_obj, o_node)->o_nextents;
	ps.pc = os_alloc(ps.max * sizeof(*ps.pc));
	if (!ps.pc)
		rc = mp_err(MP_NOMEM, "map");
	for (i = 0; i < pool->p_ndevs && !rc; i++)
		map_dev(pool, pool->p_dev[i], &ps, fn, arg);
	os_free(ps.pc);
	mp_pool_free(pool);
	return rc;
}
