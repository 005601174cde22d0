/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The only bridge between media bytes and in-core structures. Decoding
 * validates everything that a reader may rely on later: checksum, identity
 * (pool, address, generation), lengths and counts. Stateless; no locks.
 */
#include "codec.h"
#include "guard.h"
#include "omf_check.h"

u32 mp_csum(const void *buf, size_t len)
{
	return ~crc32c(~0u, buf, len);
}

static bool is_zero(const void *buf, size_t len)
{
	const u8 *p = buf;
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i])
			return false;
	return true;
}

/* checksum of @len bytes at @buf whose own field lies at @field; @buf unchanged */
static u32 csum_without(const void *buf, size_t len, size_t field)
{
	static const u8 zero[4];
	const u8 *p = buf;
	u32 c = crc32c(~0u, p, field);

	c = crc32c(c, zero, 4);
	return ~crc32c(c, p + field + 4, len - field - 4);
}

/* ---- superblock ---- */

int mp_sb_is_magic(const void *buf)
{
	return memcmp(buf, MP_SB_MAGIC, 8) == 0;
}

bool mp_sb_prefix_is_good(const void *buf)
{
	const struct mp_sb_omf *o = buf;

	return CHECK(mp_csum(buf, offsetof(struct mp_sb_omf, sb_pre_csum)) ==
		     le32_to_cpu(o->sb_pre_csum));
}

/* the first sector, without checksums */
static void sb_head(const struct mp_sb *sb, struct mp_sb_omf *o)
{
	memcpy(o->sb_magic, MP_SB_MAGIC, 8);
	memcpy(o->sb_name, sb->sb_name, MP_NAME_LEN);
	memcpy(o->sb_uuid, sb->sb_uuid, MP_UUID_LEN);
	o->sb_pre_version = cpu_to_le16(MP_FORMAT);
	o->sb_pre_gen = cpu_to_le32((u32)sb->sb_gen);
	o->sb_format = cpu_to_le32(sb->sb_format);
	o->sb_compat = cpu_to_le64(sb->sb_compat);
	o->sb_ro_compat = cpu_to_le64(sb->sb_ro_compat);
	o->sb_incompat = cpu_to_le64(sb->sb_incompat);
	memcpy(o->sb_dev_uuid, sb->sb_dev_uuid, MP_UUID_LEN);
	o->sb_addr = cpu_to_le64(sb->sb_addr);
	o->sb_gen = cpu_to_le64(sb->sb_gen);
	o->sb_dev_bytes = cpu_to_le64(sb->sb_dev_bytes);
	o->sb_slot = cpu_to_le16((u16)sb->sb_slot);
	o->sb_mclass = (u8)sb->sb_mclass;
	o->sb_state = (u8)sb->sb_state;
	o->sb_ndevs = cpu_to_le32(sb->sb_ndevs);
	o->sb_md_off = cpu_to_le64(sb->sb_md_off);
	o->sb_md_bytes = cpu_to_le64(sb->sb_md_bytes);
	o->sb_md_epoch = cpu_to_le64(sb->sb_md_epoch);
	o->sb_data_off = cpu_to_le64(sb->sb_data_off);
	o->sb_uid = cpu_to_le32(sb->sb_uid);
	o->sb_gid = cpu_to_le32(sb->sb_gid);
	o->sb_mode = cpu_to_le32(sb->sb_mode);
	o->sb_block = cpu_to_le32(MP_BLOCK);
	memcpy(o->sb_label, sb->sb_label, MP_LABEL_LEN);
	memcpy(o->sb_spare_pct, sb->sb_spare_pct, 8);
	if (sb->sb_base_bytes < sb->sb_dev_bytes)
		o->sb_base_bytes = cpu_to_le64(sb->sb_base_bytes);
	o->sb_mark = cpu_to_le32(sb->sb_mark);
}

void mp_sb_encode(const struct mp_sb *sb, void *buf)
{
	struct mp_sb_omf *o = buf;
	u32 i;

	memset(o, 0, sizeof(*o));
	sb_head(sb, o);
	o->sb_pre_csum = cpu_to_le32(mp_csum(buf, offsetof(struct mp_sb_omf, sb_pre_csum)));
	for (i = 0; i < sb->sb_ndevs && i < MP_SLOTS; i++) {
		const struct mp_sbdev *d = &sb->sb_dev[i];
		u64 blocks = d->sd_bytes / MP_BLOCK;

		memcpy(o->sb_dev[i].sd_uuid, d->sd_uuid, MP_UUID_LEN);
		o->sb_dev[i].sd_blocks_lo = cpu_to_le32((u32)blocks);
		o->sb_dev[i].sd_blocks_hi = cpu_to_le16((u16)(blocks >> 32));
		o->sb_dev[i].sd_mclass = d->sd_mclass;
		o->sb_dev[i].sd_flags = d->sd_flags;
	}
	o->sb_csum = cpu_to_le32(csum_without(buf, MP_BLOCK, offsetof(struct mp_sb_omf, sb_csum)));
}

u32 mp_sb_mark(const void *buf)
{
	u32 c = mp_csum((const u8 *)buf + MP_SECTOR, MP_BLOCK - MP_SECTOR);

	return c ? c : 1;
}

static u64 sbdev_bytes(const struct mp_sbdev_omf *d)
{
	return ((u64)le32_to_cpu(d->sd_blocks_lo) |
		(u64)le16_to_cpu(d->sd_blocks_hi) << 32) * MP_BLOCK;
}

u64 mp_sb_hint(const void *buf, u32 i)
{
	const struct mp_sb_omf *o = buf;

	if (!i)
		return le64_to_cpu(o->sb_dev_bytes);
	return i <= MP_SLOTS ? sbdev_bytes(&o->sb_dev[i - 1]) : 0;
}

void mp_sb_first_encode(const struct mp_sb *sb, void *buf)
{
	struct mp_sb_omf *o = buf;
	u32 n = 0;

	/* the members that there were when this copy was made */
	while (n < MP_SLOTS && (o->sb_dev[n].sd_blocks_lo || o->sb_dev[n].sd_blocks_hi))
		n++;
	memset(o, 0, MP_SECTOR);
	sb_head(sb, o);
	o->sb_state = MP_SB_ACTIVE;
	o->sb_gen = cpu_to_le64(1);
	o->sb_addr = 0;
	o->sb_dev_bytes = cpu_to_le64(sb->sb_base_bytes);
	o->sb_base_bytes = 0;
	o->sb_mark = 0;
	o->sb_ndevs = cpu_to_le32(n);
	o->sb_pre_gen = cpu_to_le32(1);
	o->sb_pre_csum = cpu_to_le32(mp_csum(buf, offsetof(struct mp_sb_omf, sb_pre_csum)));
	o->sb_csum = cpu_to_le32(csum_without(buf, MP_BLOCK, offsetof(struct mp_sb_omf, sb_csum)));
}

static bool is_text(const __u8 *s, size_t len)
{
	size_t i;

	for (i = 0; i < len && s[i]; i++)
		if (s[i] < 0x20 || s[i] == 0x7f)
			return false;
	return i < len && is_zero(s + i, len - i);
}

bool mp_name_is_good(const char *name)
{
	size_t i;

	for (i = 0; name[i]; i++) {
		char c = name[i];

		if (i + 1 == MP_NAME_LEN ||
		    !((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
		      c == '_' || (i && (c == '.' || c == '-'))))
			return false;
	}
	return i;
}

/* geometry of one member: everything later code divides, adds or indexes with */
static bool sb_geometry_is_good(const struct mp_sb *sb)
{
	u64 end = sb->sb_base_bytes, md_end = sb->sb_md_off + 2 * sb->sb_md_bytes;

	if (sb->sb_ndevs < 1 || sb->sb_ndevs > MP_SLOTS || sb->sb_slot >= sb->sb_ndevs ||
	    sb->sb_mclass >= MP_CLASSES)
		return false;
	if (end < (1u << 20) || end % MP_BLOCK || end > sb->sb_dev_bytes ||
	    sb->sb_dev_bytes > (1ull << 59) || sb->sb_dev_bytes % MP_BLOCK)
		return false;
	if (sb->sb_md_bytes < (64u << 10) || sb->sb_md_bytes > MP_MD_MAX ||
	    sb->sb_md_bytes % MP_BLOCK || sb->sb_md_off < MP_BLOCK || sb->sb_md_off > (1u << 30) ||
	    sb->sb_md_off % MP_BLOCK)
		return false;
	if (sb->sb_data_off < MP_BLOCK || sb->sb_data_off % MP_BLOCK || sb->sb_data_off >= end / 2)
		return false;
	if ((sb->sb_dev[sb->sb_slot].sd_flags & MP_DEVF_MD) && sb->sb_data_off < md_end)
		return false;
	if (sb->sb_gen >= MP_NUMBER_END || sb->sb_md_epoch >= MP_NUMBER_END)
		return false;
	return sb->sb_state >= MP_SB_CREATING && sb->sb_state <= MP_SB_DESTROYED;
}

static bool sb_table_is_good(const struct mp_sb *sb)
{
	u32 i, md = 0, count[MP_CLASSES] = { 0 };

	for (i = 0; i < sb->sb_ndevs; i++) {
		const struct mp_sbdev *d = &sb->sb_dev[i];

		if (d->sd_mclass >= MP_CLASSES || d->sd_bytes < (1u << 20) ||
		    d->sd_bytes > (1ull << 59) || ++count[d->sd_mclass] > MP_CLASS_DEVS)
			return false;
		md += d->sd_flags & MP_DEVF_MD;
	}
	return md >= 1 && md <= 2 && (sb->sb_dev[0].sd_flags & MP_DEVF_MD) &&
	       sb->sb_dev[sb->sb_slot].sd_bytes == sb->sb_dev_bytes &&
	       sb->sb_dev[sb->sb_slot].sd_mclass == sb->sb_mclass &&
	       !memcmp(sb->sb_dev[sb->sb_slot].sd_uuid, sb->sb_dev_uuid, MP_UUID_LEN);
}

static void sb_load(const struct mp_sb_omf *o, struct mp_sb *sb)
{
	u32 i;

	memset(sb, 0, sizeof(*sb));
	memcpy(sb->sb_name, o->sb_name, MP_NAME_LEN);
	memcpy(sb->sb_uuid, o->sb_uuid, MP_UUID_LEN);
	sb->sb_format = le32_to_cpu(o->sb_format);
	sb->sb_compat = le64_to_cpu(o->sb_compat);
	sb->sb_ro_compat = le64_to_cpu(o->sb_ro_compat);
	sb->sb_incompat = le64_to_cpu(o->sb_incompat);
	memcpy(sb->sb_dev_uuid, o->sb_dev_uuid, MP_UUID_LEN);
	sb->sb_addr = le64_to_cpu(o->sb_addr);
	sb->sb_gen = le64_to_cpu(o->sb_gen);
	sb->sb_dev_bytes = le64_to_cpu(o->sb_dev_bytes);
	sb->sb_slot = le16_to_cpu(o->sb_slot);
	sb->sb_mclass = o->sb_mclass;
	sb->sb_state = o->sb_state;
	sb->sb_ndevs = le32_to_cpu(o->sb_ndevs);
	sb->sb_md_off = le64_to_cpu(o->sb_md_off);
	sb->sb_md_bytes = le64_to_cpu(o->sb_md_bytes);
	sb->sb_md_epoch = le64_to_cpu(o->sb_md_epoch);
	sb->sb_data_off = le64_to_cpu(o->sb_data_off);
	sb->sb_uid = le32_to_cpu(o->sb_uid);
	sb->sb_gid = le32_to_cpu(o->sb_gid);
	sb->sb_mode = le32_to_cpu(o->sb_mode);
	memcpy(sb->sb_label, o->sb_label, MP_LABEL_LEN);
	memcpy(sb->sb_spare_pct, o->sb_spare_pct, 8);
	sb->sb_base_bytes = le64_to_cpu(o->sb_base_bytes);
	if (!sb->sb_base_bytes)
		sb->sb_base_bytes = sb->sb_dev_bytes;
	sb->sb_mark = le32_to_cpu(o->sb_mark);
	for (i = 0; i < MP_SLOTS; i++) {
		struct mp_sbdev *d = &sb->sb_dev[i];

		memcpy(d->sd_uuid, o->sb_dev[i].sd_uuid, MP_UUID_LEN);
		d->sd_bytes = sbdev_bytes(&o->sb_dev[i]);
		d->sd_mclass = o->sb_dev[i].sd_mclass;
		d->sd_flags = o->sb_dev[i].sd_flags;
	}
}

int mp_sb_decode(const void *buf, u64 addr, struct mp_sb *sb)
{
	const struct mp_sb_omf *o = buf;
	u32 pre = mp_csum(buf, offsetof(struct mp_sb_omf, sb_pre_csum));
	u32 i;

	if (!CHECK(mp_sb_is_magic(buf)))
		return mp_err(MP_NOTMEMBER, "no pool signature at offset %llu", addr);
	if (pre == le32_to_cpu(o->sb_pre_csum) && le16_to_cpu(o->sb_pre_version) < MP_FORMAT)
		return mp_err(MP_SB_OLD, "superblock version %u of the older mpool format",
			      le16_to_cpu(o->sb_pre_version));
	if (!CHECK_CRC(csum_without(buf, MP_BLOCK, offsetof(struct mp_sb_omf, sb_csum)) ==
		       le32_to_cpu(o->sb_csum)))
		return mp_err(MP_SB_CORRUPT, "superblock at offset %llu: checksum", addr);
	sb_load(o, sb);
	/* the checks above hold for every version; the rest only for those known */
	if (!CHECK(sb->sb_format >= MP_FORMAT && (sb->sb_format >> 8) == (MP_FORMAT >> 8)))
		return mp_err(MP_SB_VERSION, "format version 0x%04x, this program reads 0x%04x",
			      sb->sb_format, MP_FORMAT);
	if (!CHECK(!(sb->sb_incompat & ~MP_INCOMPAT_KNOWN)))
		return mp_err(MP_SB_INCOMPAT, "unknown features 0x%llx",
			      sb->sb_incompat & ~MP_INCOMPAT_KNOWN);
	if (!CHECK(sb->sb_addr == addr))
		return mp_err(MP_SB_CORRUPT, "superblock at offset %llu belongs to offset %llu",
			      addr, sb->sb_addr);
	/* a name becomes that of a node and of folders: one that cannot be given is none */
	if (!CHECK(pre == le32_to_cpu(o->sb_pre_csum) && is_text(o->sb_name, MP_NAME_LEN) &&
		   mp_name_is_good(sb->sb_name) && is_text(o->sb_label, MP_LABEL_LEN) &&
		   le32_to_cpu(o->sb_block) == MP_BLOCK))
		return mp_err(MP_SB_CORRUPT, "superblock at offset %llu: fields", addr);
	for (i = 0; i < 8; i++)
		if (!CHECK(sb->sb_spare_pct[i] <= 90))
			return mp_err(MP_SB_CORRUPT, "superblock at offset %llu: spare", addr);
	if (!CHECK(sb_geometry_is_good(sb)))
		return mp_err(MP_SB_CORRUPT, "superblock at offset %llu: geometry", addr);
	if (!CHECK(sb_table_is_good(sb)))
		return mp_err(MP_SB_CORRUPT, "superblock at offset %llu: device table", addr);
	return 0;
}

/* ---- heartbeat ---- */

void mp_beat_encode(const struct mp_beat *be, const u8 *uuid, void *buf)
{
	struct mp_beat_omf *o = buf;

	memset(buf, 0, MP_BLOCK);
	o->be_magic = cpu_to_le64(MP_BEAT_MAGIC);
	o->be_version = cpu_to_le32(MP_FORMAT);
	memcpy(o->be_uuid, uuid, MP_UUID_LEN);
	o->be_claim = cpu_to_le64(be->be_claim);
	o->be_count = cpu_to_le64(be->be_count);
	memcpy(o->be_host, be->be_host, MP_BEAT_HOST);
	o->be_csum = cpu_to_le32(csum_without(buf, MP_SECTOR,
					      offsetof(struct mp_beat_omf, be_csum)));
}

bool mp_beat_decode(const void *buf, const u8 *uuid, struct mp_beat *be)
{
	const struct mp_beat_omf *o = buf;

	memset(be, 0, sizeof(*be));
	if (le64_to_cpu(o->be_magic) != MP_BEAT_MAGIC || memcmp(o->be_uuid, uuid, MP_UUID_LEN))
		return false;
	/* of one that is damaged the owner is not known */
	be->be_claim = ~0ull;
	if (!CHECK(csum_without(buf, MP_SECTOR, offsetof(struct mp_beat_omf, be_csum)) ==
		   le32_to_cpu(o->be_csum) && is_text(o->be_host, MP_BEAT_HOST)))
		return true;
	be->be_claim = le64_to_cpu(o->be_claim);
	be->be_count = le64_to_cpu(o->be_count);
	memcpy(be->be_host, o->be_host, MP_BEAT_HOST);
	return true;
}

/* ---- metadata log frames ---- */

void mp_frame_encode(struct mp_frame *fr, const u8 *uuid, void *buf)
{
	struct mp_frame_omf *o = buf;
	size_t len = (size_t)fr->mf_blocks * MP_BLOCK;

	os_assert(fr->mf_len + MP_FRAME_HDR <= len);
	memset(o, 0, sizeof(*o));
	memset((u8 *)buf + MP_FRAME_HDR + fr->mf_len, 0, len - MP_FRAME_HDR - fr->mf_len);
	o->mf_magic = cpu_to_le32(MP_FRAME_MAGIC);
	o->mf_version = cpu_to_le16(MP_FORMAT);
	o->mf_flags = cpu_to_le16((u16)fr->mf_flags);
	o->mf_blocks = cpu_to_le32(fr->mf_blocks);
	memcpy(o->mf_uuid, uuid, MP_UUID_LEN);
	o->mf_addr = cpu_to_le64(fr->mf_addr);
	o->mf_epoch = cpu_to_le64(fr->mf_epoch);
	o->mf_seq = cpu_to_le64(fr->mf_seq);
	o->mf_durable = cpu_to_le64(fr->mf_durable);
	o->mf_gen = cpu_to_le64(fr->mf_gen);
	o->mf_id_hwm = cpu_to_le64(fr->mf_id_hwm);
	o->mf_len = cpu_to_le32(fr->mf_len);
	o->mf_prev = cpu_to_le32(fr->mf_prev);
	o->mf_nrecs = cpu_to_le32(fr->mf_nrecs);
	fr->mf_csum = csum_without(buf, len, offsetof(struct mp_frame_omf, mf_csum));
	o->mf_csum = cpu_to_le32(fr->mf_csum);
}

int mp_frame_peek(const void *buf, const u8 *uuid, u64 addr, u32 max_blocks, struct mp_frame *fr)
{
	const struct mp_frame_omf *o = buf;

	if (le32_to_cpu(o->mf_magic) != MP_FRAME_MAGIC || le16_to_cpu(o->mf_version) != MP_FORMAT)
		return -EUCLEAN;
	fr->mf_flags = le16_to_cpu(o->mf_flags);
	fr->mf_blocks = le32_to_cpu(o->mf_blocks);
	fr->mf_addr = le64_to_cpu(o->mf_addr);
	fr->mf_epoch = le64_to_cpu(o->mf_epoch);
	fr->mf_seq = le64_to_cpu(o->mf_seq);
	fr->mf_durable = le64_to_cpu(o->mf_durable);
	fr->mf_gen = le64_to_cpu(o->mf_gen);
	fr->mf_id_hwm = le64_to_cpu(o->mf_id_hwm);
	fr->mf_len = le32_to_cpu(o->mf_len);
	fr->mf_prev = le32_to_cpu(o->mf_prev);
	fr->mf_nrecs = le32_to_cpu(o->mf_nrecs);
	fr->mf_csum = le32_to_cpu(o->mf_csum);
	if (!CHECK(!memcmp(o->mf_uuid, uuid, MP_UUID_LEN)))
		return -EUCLEAN;
	if (!CHECK(fr->mf_addr == addr))
		return -EUCLEAN;
	if (!CHECK(fr->mf_epoch < MP_NUMBER_END && fr->mf_seq < MP_NUMBER_END))
		return -EUCLEAN;
	/* the size bound keeps readers inside their buffers: never switched off */
	if (!fr->mf_blocks || fr->mf_blocks > max_blocks ||
	    fr->mf_blocks > MP_FRAME_MAX / MP_BLOCK ||
	    fr->mf_len > fr->mf_blocks * MP_BLOCK - MP_FRAME_HDR || fr->mf_len % 8)
		return -EUCLEAN;
	return 0;
}

int mp_frame_decode(const void *buf, const u8 *uuid, u64 addr, u32 max_blocks,
		    struct mp_frame *fr)
{
	int rc = mp_frame_peek(buf, uuid, addr, max_blocks, fr);

	if (rc)
		return rc;
	if (!CHECK_CRC(fr->mf_csum == csum_without(buf, (size_t)fr->mf_blocks * MP_BLOCK,
						   offsetof(struct mp_frame_omf, mf_csum))))
		return -EUCLEAN;
	return 0;
}

/* ---- records ---- */

u32 mp_rec_size(const struct mp_rec *r)
{
	switch (r->r_type) {
	case MP_REC_OBJ:
		return (u32)(sizeof(struct mp_obj_omf) +
			     r->r_nextents * sizeof(struct mp_extent_omf));
	case MP_REC_ROOT:
	case MP_REC_ROOT_DEL:
		return sizeof(struct mp_root_omf);
	default:
		return sizeof(struct mp_idrec_omf);
	}
}

static void obj_encode(const struct mp_rec *r, struct mp_obj_omf *o)
{
	u32 i;

	o->ob_id = cpu_to_le64(r->r_id);
	o->ob_tag = cpu_to_le64(r->r_tag);
	o->ob_length = cpu_to_le64(r->r_length);
	o->ob_capacity = cpu_to_le64(r->r_capacity);
	o->ob_gen = cpu_to_le64(r->r_gen);
	o->ob_kind = (u8)r->r_kind;
	o->ob_mclass = (u8)r->r_mclass;
	o->ob_flags = cpu_to_le16((u16)r->r_flags);
	o->ob_nextents = cpu_to_le32(r->r_nextents);
	for (i = 0; i < r->r_nextents; i++) {
		o->ob_extent[i].ex_start = cpu_to_le64(r->r_extent[i].ex_start);
		o->ob_extent[i].ex_count = cpu_to_le32(r->r_extent[i].ex_count);
		o->ob_extent[i].ex_slot = cpu_to_le16((u16)r->r_extent[i].ex_slot);
	}
}

u32 mp_rec_encode(const struct mp_rec *r, void *buf)
{
	u32 len = mp_rec_size(r);
	struct mp_rec_omf *h = buf;

	memset(buf, 0, len);
	h->rh_type = cpu_to_le16((u16)r->r_type);
	h->rh_len = cpu_to_le16((u16)len);
	h->rh_aux = cpu_to_le32(r->r_type == MP_REC_VIRGIN ? r->r_slot : r->r_crc);
	if (r->r_type == MP_REC_OBJ) {
		obj_encode(r, buf);
	} else if (r->r_type == MP_REC_ROOT || r->r_type == MP_REC_ROOT_DEL) {
		struct mp_root_omf *o = buf;

		memcpy(o->rr_name, r->r_name, MP_NAME_LEN);
		o->rr_id[0] = cpu_to_le64(r->r_root[0]);
		o->rr_id[1] = cpu_to_le64(r->r_root[1]);
	} else {
		struct mp_idrec_omf *o = buf;

		o->ir_id = cpu_to_le64(r->r_id);
		o->ir_value = cpu_to_le64(r->r_type == MP_REC_GEN ? r->r_gen : r->r_length);
		o->ir_flags = cpu_to_le32(r->r_flags);
	}
	return len;
}

void mp_rec_extent(const struct mp_rec *r, u32 i, struct mp_extent *out)
{
	const struct mp_extent_omf *o = (const struct mp_extent_omf *)r->r_extent_omf + i;

	out->ex_start = le64_to_cpu(o->ex_start);
	out->ex_count = le32_to_cpu(o->ex_count);
	out->ex_slot = le16_to_cpu(o->ex_slot);
}

static int obj_decode(const struct mp_obj_omf *o, u32 len, struct mp_rec *r)
{
	struct mp_extent ex;
	u64 blocks = 0;
	u32 i;

	/* memory safety of the loop below: never switched off */
	if (len < sizeof(*o) || le32_to_cpu(o->ob_nextents) > MP_EXTENTS_MAX ||
	    len != sizeof(*o) + le32_to_cpu(o->ob_nextents) * sizeof(struct mp_extent_omf))
		return -EUCLEAN;
	r->r_id = le64_to_cpu(o->ob_id);
	r->r_tag = le64_to_cpu(o->ob_tag);
	r->r_length = le64_to_cpu(o->ob_length);
	r->r_capacity = le64_to_cpu(o->ob_capacity);
	r->r_gen = le64_to_cpu(o->ob_gen);
	r->r_kind = o->ob_kind;
	r->r_mclass = o->ob_mclass;
	r->r_flags = le16_to_cpu(o->ob_flags);
	r->r_nextents = le32_to_cpu(o->ob_nextents);
	r->r_extent_omf = o->ob_extent;
	for (i = 0; i < r->r_nextents; i++) {
		mp_rec_extent(r, i, &ex);
		blocks += ex.ex_count;
	}
	if (!CHECK(r->r_id && r->r_kind >= 1 && r->r_kind <= 3 && r->r_mclass < MP_CLASSES &&
		   r->r_nextents && r->r_capacity == blocks * MP_BLOCK &&
		   r->r_length <= r->r_capacity && r->r_length % MP_BLOCK == 0))
		return -EUCLEAN;
	return 0;
}

int mp_rec_decode(const void *buf, u32 len, struct mp_rec *r)
{
	const struct mp_rec_omf *h = buf;
	const struct mp_idrec_omf *o = buf;
	const struct mp_root_omf *root = buf;
	u32 n;
	int rc = 0;

	memset(r, 0, sizeof(*r));
	/* memory safety: never switched off */
	if (len < sizeof(*h))
		return -EUCLEAN;
	n = le16_to_cpu(h->rh_len);
	if (n > len)	/* that it is not too short each type says below */
		return -EUCLEAN;
	r->r_type = le16_to_cpu(h->rh_type);
	r->r_crc = le32_to_cpu(h->rh_aux);
	switch (r->r_type) {
	case MP_REC_OBJ:
		rc = obj_decode(buf, n, r);
		break;
	case MP_REC_SEAL:
	case MP_REC_DEL:
	case MP_REC_VIRGIN:
	case MP_REC_GEN:
		if (n != sizeof(*o))
			return -EUCLEAN;
		r->r_id = le64_to_cpu(o->ir_id);
		r->r_length = le64_to_cpu(o->ir_value);
		r->r_gen = r->r_length;
		r->r_flags = le32_to_cpu(o->ir_flags);
		r->r_slot = r->r_crc;
		break;
	case MP_REC_ROOT:
	case MP_REC_ROOT_DEL:
		if (n != sizeof(*root))
			return -EUCLEAN;
		memcpy(r->r_name, root->rr_name, MP_NAME_LEN);
		r->r_root[0] = le64_to_cpu(root->rr_id[0]);
		r->r_root[1] = le64_to_cpu(root->rr_id[1]);
		if (!CHECK(r->r_name[0] && is_text(root->rr_name, MP_NAME_LEN)))
			return -EUCLEAN;
		break;
	default:
		return -EUCLEAN;
	}
	return rc ? rc : (int)n;
}

/* ---- mlog frames ---- */

void mp_mlframe_encode(struct mp_mlframe *fr, const u8 *uuid, void *buf)
{
	struct mp_mlframe_omf *o = buf;
	size_t len = (size_t)fr->ml_blocks * MP_BLOCK;

	os_assert(fr->ml_len + MP_FRAME_HDR <= len);
	memset(o, 0, MP_FRAME_HDR);
	memset((u8 *)buf + MP_FRAME_HDR + fr->ml_len, 0, len - MP_FRAME_HDR - fr->ml_len);
	o->ml_magic = cpu_to_le32(MP_MLOG_MAGIC);
	o->ml_version = cpu_to_le16(MP_FORMAT);
	o->ml_blocks = cpu_to_le32(fr->ml_blocks);
	memcpy(o->ml_uuid, uuid, MP_UUID_LEN);
	o->ml_id = cpu_to_le64(fr->ml_id);
	o->ml_gen = cpu_to_le64(fr->ml_gen);
	o->ml_off = cpu_to_le64(fr->ml_off);
	o->ml_seq = cpu_to_le64(fr->ml_seq);
	o->ml_durable = cpu_to_le64(fr->ml_durable);
	o->ml_len = cpu_to_le32(fr->ml_len);
	o->ml_nrecs = cpu_to_le32(fr->ml_nrecs);
	o->ml_prev = cpu_to_le32(fr->ml_prev);
	o->ml_life = cpu_to_le32(fr->ml_life);
	fr->ml_csum = csum_without(buf, len, offsetof(struct mp_mlframe_omf, ml_csum));
	o->ml_csum = cpu_to_le32(fr->ml_csum);
}

int mp_mlframe_peek(const void *buf, const u8 *uuid, u64 id, u64 gen, u64 off, u32 max_blocks,
		    struct mp_mlframe *fr)
{
	const struct mp_mlframe_omf *o = buf;

	if (le32_to_cpu(o->ml_magic) != MP_MLOG_MAGIC || le16_to_cpu(o->ml_version) != MP_FORMAT)
		return -EUCLEAN;
	fr->ml_blocks = le32_to_cpu(o->ml_blocks);
	fr->ml_id = le64_to_cpu(o->ml_id);
	fr->ml_gen = le64_to_cpu(o->ml_gen);
	fr->ml_off = le64_to_cpu(o->ml_off);
	fr->ml_seq = le64_to_cpu(o->ml_seq);
	fr->ml_durable = le64_to_cpu(o->ml_durable);
	fr->ml_len = le32_to_cpu(o->ml_len);
	fr->ml_nrecs = le32_to_cpu(o->ml_nrecs);
	fr->ml_prev = le32_to_cpu(o->ml_prev);
	fr->ml_life = le32_to_cpu(o->ml_life);
	fr->ml_csum = le32_to_cpu(o->ml_csum);
	if (!CHECK(!memcmp(o->ml_uuid, uuid, MP_UUID_LEN) && fr->ml_id == id))
		return -EUCLEAN;
	if (!CHECK(fr->ml_gen == gen))
		return -EUCLEAN;
	if (!CHECK(fr->ml_off == off))
		return -EUCLEAN;
	/* the size bound keeps readers inside their buffers: never switched off */
	if (!fr->ml_blocks || fr->ml_blocks > max_blocks ||
	    fr->ml_blocks > MP_MLFRAME_MAX / MP_BLOCK ||
	    fr->ml_len > fr->ml_blocks * MP_BLOCK - MP_FRAME_HDR || fr->ml_len % 8)
		return -EUCLEAN;
	return 0;
}

int mp_mlframe_decode(const void *buf, const u8 *uuid, u64 id, u64 gen, u64 off, u32 max_blocks,
		      struct mp_mlframe *fr)
{
	int rc = mp_mlframe_peek(buf, uuid, id, gen, off, max_blocks, fr);

	if (rc)
		return rc;
	if (!CHECK_CRC(fr->ml_csum == csum_without(buf, (size_t)fr->ml_blocks * MP_BLOCK,
						   offsetof(struct mp_mlframe_omf, ml_csum))))
		return -EUCLEAN;
	return 0;
}

void mp_mlrec_encode(void *buf, u32 len)
{
	struct mp_mlrec_omf *o = buf;

	o->lr_len = cpu_to_le32(len);
	o->lr_pad = 0;
}

int mp_mlrec_decode(const void *buf, u32 room, u32 *len)
{
	const struct mp_mlrec_omf *o = buf;

	/* memory safety: never switched off */
	if (room < sizeof(*o))
		return -EUCLEAN;
	*len = le32_to_cpu(o->lr_len);
	if (!*len || *len > MP_MLREC_MAX || *len > room - sizeof(*o))
		return -EUCLEAN;
	return 0;
}
