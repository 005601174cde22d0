/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Sizes and offsets of the media format, as in omf.h. A change here is a
 * change of the format. Included by omf.c only.
 */
#ifndef MP_CORE_OMF_CHECK_H
#define MP_CORE_OMF_CHECK_H

#include "omf.h"

#define AT(type, field, off)	\
	static_assert(offsetof(struct type, field) == (off), #type "." #field)

AT(mp_sb_omf, sb_name, 8);
AT(mp_sb_omf, sb_uuid, 40);
AT(mp_sb_omf, sb_pre_version, 56);
AT(mp_sb_omf, sb_pre_gen, 58);
AT(mp_sb_omf, sb_pre_csum, 62);
AT(mp_sb_omf, sb_pad0, MP_SB_PREFIX);
AT(mp_sb_omf, sb_csum, 72);
AT(mp_sb_omf, sb_format, 76);
AT(mp_sb_omf, sb_compat, 80);
AT(mp_sb_omf, sb_dev_uuid, 104);
AT(mp_sb_omf, sb_addr, 120);
AT(mp_sb_omf, sb_gen, 128);
AT(mp_sb_omf, sb_slot, 144);
AT(mp_sb_omf, sb_md_off, 152);
AT(mp_sb_omf, sb_uid, 184);
AT(mp_sb_omf, sb_label, 200);
AT(mp_sb_omf, sb_spare_pct, 264);
AT(mp_sb_omf, sb_base_bytes, 272);
AT(mp_sb_omf, sb_mark, 280);
AT(mp_sb_omf, sb_dev, MP_SECTOR);
AT(mp_sb_omf, sb_pad2, 3584);
static_assert(sizeof(struct mp_sb_omf) == MP_BLOCK, "superblock is one block");
static_assert(sizeof(struct mp_sbdev_omf) == 24, "device table entry");
AT(mp_beat_omf, be_csum, 8);
AT(mp_beat_omf, be_claim, 32);
AT(mp_beat_omf, be_host, 48);
static_assert(sizeof(struct mp_beat_omf) == MP_SECTOR, "a heartbeat is one sector");
AT(mp_frame_omf, mf_csum, 8);
AT(mp_frame_omf, mf_uuid, 16);
AT(mp_frame_omf, mf_addr, 32);
AT(mp_frame_omf, mf_len, 80);
static_assert(sizeof(struct mp_frame_omf) == MP_FRAME_HDR, "frame header");
static_assert(sizeof(struct mp_rec_omf) == 8, "record header");
static_assert(sizeof(struct mp_extent_omf) == 16, "extent");
AT(mp_obj_omf, ob_kind, 48);
static_assert(sizeof(struct mp_obj_omf) == 56, "object record");
static_assert(sizeof(struct mp_idrec_omf) == 32, "id record");
static_assert(sizeof(struct mp_root_omf) == 56, "root record");
AT(mp_mlframe_omf, ml_csum, 8);
AT(mp_mlframe_omf, ml_uuid, 16);
AT(mp_mlframe_omf, ml_len, 72);
static_assert(sizeof(struct mp_mlframe_omf) == 88, "mlog frame header");
static_assert(sizeof(struct mp_mlrec_omf) == 8, "mlog record header");
static_assert(MP_FRAME_MAX % MP_BLOCK == 0 && MP_MLFRAME_MAX % MP_BLOCK == 0, "whole blocks");
static_assert(MP_CLASSES * MP_CLASS_DEVS <= MP_SLOTS, "who counts classes bounds the table");
static_assert(MP_MLREC_MAX + MP_FRAME_HDR + 16 <= MP_MLFRAME_MAX, "the largest record fits");

#undef AT

#endif
