/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mp_dump(): the metadata of a pool as text. Reads only.
 */
#include "open.h"

struct out {
	mp_print_fn *fn;
	void *arg;
	char line[400];
};

static void put(struct out *o, const char *fmt, ...) __printf(2, 3);

static void put(struct out *o, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vscnprintf(o->line, sizeof(o->line) - 1, fmt, ap);
	va_end(ap);
	o->line[n] = '\n';
	o->line[n + 1] = 0;
	o->fn(o->arg, o->line);
}

static void sb_to_text(struct out *o, const struct mp_pdev *pd)
{
	const struct mp_sb *sb = pd->pd_sb;
	char uuid[37];

	mp_uuid_text(sb->sb_dev_uuid, uuid);
	put(o, "device %u %s", pd->pd_slot, pd->pd_dev->d_path);
	put(o, "  uuid %s class %s state %s generation %llu", uuid, mp_class_text(sb->sb_mclass),
	    mp_state_text(sb->sb_state), sb->sb_gen);
	put(o, "  bytes %llu data_off %llu flags 0x%x copies_bad 0x%x virgin_block %llu",
	    sb->sb_dev_bytes, sb->sb_data_off, pd->pd_flags, pd->pd_found.f_bad,
	    pd->pd_smap.s_virgin);
	if (sb->sb_base_bytes < sb->sb_dev_bytes)
		put(o, "  bytes_at_creation %llu", sb->sb_base_bytes);
	if (sb->sb_mark)
		put(o, "  rename of copy 0 unfinished");
}

static void pool_to_text(struct out *o, struct mp_pool *pool)
{
	const struct mp_sb *sb = pool->p_sb;
	const struct mp_mdlog *md = &pool->p_md;
	char uuid[37];
	u32 i;

	mp_uuid_text(sb->sb_uuid, uuid);
	put(o, "pool %s uuid %s label '%s'", sb->sb_name, uuid, sb->sb_label);
	put(o, "  format 0x%04x compat 0x%llx ro_compat 0x%llx incompat 0x%llx", sb->sb_format,
	    sb->sb_compat, sb->sb_ro_compat, sb->sb_incompat);
	put(o, "  uid %u gid %u mode 0%o devices %u objects %llu containers %u", sb->sb_uid,
	    sb->sb_gid, sb->sb_mode, pool->p_ndevs, pool->p_nobjs, pool->p_nroots);
	for (i = 0; i < pool->p_ndevs; i++)
		sb_to_text(o, pool->p_dev[i]);
	put(o, "log copies %u offset %llu region_bytes %llu", md->md_ndevs, md->md_off,
	    md->md_bytes);
	put(o, "  epoch %llu sequence %llu tail %llu generation %llu id_mark %llu", md->md_epoch,
	    md->md_seq, md->md_tail, pool->p_gen, md->md_id_hwm);
}

static void obj_to_text(struct out *o, const struct mp_obj *obj)
{
	u32 i;

	put(o, "object %llu %s %s tag 0x%llx capacity %llu length %llu generation %llu%s%s",
	    mp_obj_id(obj), mp_kind_text(obj->o_kind), mp_class_text(obj->o_mclass), obj->o_tag,
	    obj->o_capacity, obj->o_length, obj->o_gen,
	    obj->o_flags & MP_OBJF_COMMITTED ? " committed" : "",
	    obj->o_flags & MP_OBJF_SEALED ? " sealed" : "");
	if (obj->o_flags & MP_OBJF_CRC)
		put(o, "  crc 0x%08x", obj->o_crc);
	for (i = 0; i < obj->o_nextents; i++)
		put(o, "  extent %u device %u block %llu count %u", i, obj->o_extent[i].ex_slot,
		    obj->o_extent[i].ex_start, obj->o_extent[i].ex_count);
}

int mp_dump(struct mp_dev **dev, u32 ndevs, mp_print_fn *fn, void *arg)
{
	struct out *o = os_zalloc(sizeof(*o));
	struct mp_pool *pool;
	struct mp_root *r;
	struct mp_node *n;
	int rc;

	if (!o)
		return mp_err(MP_NOMEM, "dump");
	o->fn = fn;
	o->arg = arg;
	rc = mp_pool_load(dev, ndevs, MP_OPEN_RDONLY, NULL, NULL, &pool);
	if (!rc) {
		pool_to_text(o, pool);
		list_for_each_entry(r, &pool->p_roots, r_list)
			put(o, "container '%s' logs %llu %llu", r->r_name, r->r_id[0], r->r_id[1]);
		for (n = mp_tree_first(&pool->p_objs); n; n = mp_tree_next(n))
			obj_to_text(o, container_of(n, struct mp_obj, o_node));
		mp_pool_free(pool);
	}
	os_free(o);
	return rc;
}
