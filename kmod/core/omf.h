/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Media format: every structure that lies on a device. The number at the
 * beginning of a field's comment is its offset; omf_check.h pins offsets and
 * sizes. FORMAT.md says where structures lie, and how they make logs. Only omf.c
 * touches the *_omf structures; all others use their twins in codec.h. All
 * integers are little-endian; pads are zero; checksums are CRC32C with initial
 * value ~0 and final inversion, over the whole unit with the checksum field zero.
 */
#ifndef MP_CORE_OMF_H
#define MP_CORE_OMF_H

#include "dev.h"
#include "err.h"

#define MP_NAME_LEN	32u	/* with the NUL */
#define MP_LABEL_LEN	64u	/* with the NUL */
#define MP_UUID_LEN	16u
#define MP_CLASSES	2u	/* classes this release uses; the format allows 8 */
#define MP_CLASS_DEVS	64u	/* devices per class */
#define MP_SLOTS	128u	/* entries of the device table */
#define MP_EXTENTS_MAX	32u	/* extents of one object */
#define MP_MD_MAX	(1u << 30)	/* bytes of a region of the metadata log */
#define MP_FORMAT	0x0100u
#define MP_SB_COPIES	3u
/* generations, epochs and sequences are smaller: a reader counts on from them */
#define MP_NUMBER_END	(1ull << 62)

/* feature masks this release knows */
#define MP_COMPAT_KNOWN		0ull
#define MP_RO_MULTIHOST		0x1ull	/* a host that writes keeps a heartbeat: own.c */
#define MP_RO_COMPAT_KNOWN	MP_RO_MULTIHOST
#define MP_INCOMPAT_KNOWN	0ull

enum mp_sb_state {
	MP_SB_CREATING = 1,	/* or being added */
	MP_SB_ACTIVE = 2,
	MP_SB_DESTROYED = 3,
};

#define MP_DEVF_MD	0x1u	/* carries a copy of the metadata log */
#define MP_DEVF_ZEROED	0x2u	/* space never written reads as zeroes */

/* ---- on media ---- */

#define MP_SB_MAGIC	"mpoolDev"
#define MP_SB_PREFIX	66u	/* bytes, fixed by libblkid */

struct mp_sbdev_omf {
	__u8 sd_uuid[16];
	__le32 sd_blocks_lo;	/* 16: device size, 4 KiB blocks, low 32 bits */
	__le16 sd_blocks_hi;
	__u8 sd_mclass;		/* 22: as sb_mclass; at most MP_CLASS_DEVS of each */
	__u8 sd_flags;		/* 23: MP_DEVF_* */
} __packed;

/* the first 66 bytes are not naturally aligned: libblkid's layout */
struct mp_sb_omf {
	__u8 sb_magic[8];
	/* 8: of the pool, NUL padded: 1 to 31 of A-Z a-z 0-9 . _ -, the first not . or - */
	__u8 sb_name[32];
	__u8 sb_uuid[16];	/* 40: of the pool */
	__le16 sb_pre_version;	/* 56: MP_FORMAT; 1: the older Micron format */
	__le32 sb_pre_gen;	/* 58: low half of sb_gen */
	__le32 sb_pre_csum;	/* 62: of bytes 0-61 */
	__u8 sb_pad0[6];
	__le32 sb_csum;		/* 72: of the block */
	__le32 sb_format;	/* 76: MP_FORMAT; another high byte is refused */
	__le64 sb_compat;	/* 80: feature masks, MP_*_KNOWN */
	__le64 sb_ro_compat;
	__le64 sb_incompat;
	__u8 sb_dev_uuid[16];	/* 104 */
	__le64 sb_addr;		/* 120: own address on the device */
	__le64 sb_gen;		/* 128: generation */
	__le64 sb_dev_bytes;	/* 136: device size; in copy 0 at creation ("base") */
	__le16 sb_slot;		/* 144: of this device in sb_dev */
	__u8 sb_mclass;		/* 146: 0 capacity, 1 staging */
	__u8 sb_state;		/* 147: enum mp_sb_state */
	__le32 sb_ndevs;	/* 148: member devices */
	__le64 sb_md_off;	/* 152: address of the metadata log */
	__le64 sb_md_bytes;	/* 160: of one region of it: multiple of 64 KiB, md_size() */
	__le64 sb_md_epoch;	/* 168: oldest epoch of the log that may be used */
	__le64 sb_data_off;	/* 176: first byte for objects on this device */
	__le32 sb_uid;		/* 184 */
	__le32 sb_gid;
	__le32 sb_mode;
	__le32 sb_block;	/* 196: bytes of a block, 4096 */
	__u8 sb_label[64];	/* 200: NUL padded */
	__u8 sb_spare_pct[8];	/* 264: a byte for each class */
	__le64 sb_base_bytes;	/* 272: size at creation of a device that has grown, or 0 */
	/* 280: not 0 while copy 0 is rewritten: CRC32C of its bytes 512-4095, or 1 if that is 0 */
	__le32 sb_mark;
	__u8 sb_pad1[228];
	struct mp_sbdev_omf sb_dev[128]; /* 512: by slot */
	__u8 sb_pad2[512];
} __packed;

#define MP_FRAME_MAGIC	0x474c504du	/* "MPLG" */
#define MP_FRAME_CKPT	0x1u		/* part of a checkpoint */
#define MP_FRAME_END	0x2u		/* last part: the checkpoint is complete */

/* one write of the metadata log: whole blocks, all or nothing */
struct mp_frame_omf {
	__le32 mf_magic;
	__le16 mf_version;	/* 4: MP_FORMAT */
	__le16 mf_flags;	/* 6: MP_FRAME_CKPT, MP_FRAME_END */
	__le32 mf_csum;		/* 8: of all its blocks */
	__le32 mf_blocks;	/* 12 */
	__u8 mf_uuid[16];	/* 16: of the pool */
	__le64 mf_addr;		/* 32: own address on the device */
	__le64 mf_epoch;	/* 40 */
	__le64 mf_seq;		/* 48: one more than in the frame before */
	__le64 mf_durable;	/* 56: frames up to it were durable when this one was written */
	__le64 mf_gen;		/* 64: generation of the pool */
	__le64 mf_id_hwm;	/* 72: object ids below it may be in use, no other is */
	__le32 mf_len;		/* 80: bytes of records */
	__le32 mf_prev;		/* 84: mf_csum of the frame before */
	__le32 mf_nrecs;	/* 88 */
	__le32 mf_pad;
} __packed;

/* the heartbeat: block 1 of slot 0; all of it in one sector of 512 bytes */
#define MP_BEAT_ADDR	4096u	/* bytes */
#define MP_BEAT_MAGIC	0x7473486c6f6f706dull
#define MP_BEAT_HOST	64u	/* bytes with the NUL */

struct mp_beat_omf {
	__le64 be_magic;	/* "mpoolHst" */
	__le32 be_csum;		/* 8: of the first 512 bytes */
	__le32 be_version;	/* 12: MP_FORMAT */
	__u8 be_uuid[16];	/* 16: of the pool */
	__le64 be_claim;	/* 32: which opening wrote this: random; 0: it has closed */
	__le64 be_count;	/* 40: one more each time */
	__u8 be_host[64];	/* 48: name of the host, for people */
	__u8 be_pad[400];
} __packed;

/* Their structures follow. What a comment does not name is zero. */
enum mp_rec_type {
	MP_REC_OBJ = 1,		/* an object begins to exist; aux: CRC32C of its content */
	MP_REC_SEAL = 2,	/* mp_idrec_omf: id, length, flags; aux as above */
	MP_REC_DEL = 3,		/* mp_idrec_omf: id */
	MP_REC_ROOT = 4,	/* mp_root_omf */
	MP_REC_ROOT_DEL = 5,	/* mp_root_omf: the name */
	/*
	 * mp_idrec_omf: first block in ir_id, end in ir_value; aux: slot. Raises the device's
	 * virgin mark to the end when it is at or above the first block.
	 */
	MP_REC_VIRGIN = 6,
	MP_REC_GEN = 7,		/* erase of an mlog; mp_idrec_omf: id, new generation */
};

struct mp_rec_omf {
	__le16 rh_type;
	__le16 rh_len;		/* 2: bytes with this header, multiple of 8 */
	__le32 rh_aux;		/* 4: CRC of the content, or slot, or zero */
} __packed;

struct mp_extent_omf {
	__le64 ex_start;	/* 4 KiB blocks */
	__le32 ex_count;	/* 8: blocks */
	__le16 ex_slot;		/* 12 */
	__le16 ex_pad;
} __packed;

struct mp_obj_omf {
	struct mp_rec_omf ob_h;
	__le64 ob_id;		/* 8 */
	__le64 ob_tag;		/* 16 */
	__le64 ob_length;	/* 24: bytes */
	__le64 ob_capacity;	/* 32: bytes */
	__le64 ob_gen;		/* 40: generation of an mlog */
	__u8 ob_kind;		/* 48: 1 mblock, 2 append, 3 mlog */
	__u8 ob_mclass;		/* 49 */
	__le16 ob_flags;	/* 50: 1 committed, 2 sealed, 8 has a CRC */
	__le32 ob_nextents;	/* 52: 1 to MP_EXTENTS_MAX */
	struct mp_extent_omf ob_extent[];
} __packed;

struct mp_idrec_omf {
	struct mp_rec_omf ir_h;
	__le64 ir_id;		/* 8 */
	__le64 ir_value;	/* 16 */
	__le32 ir_flags;	/* 24: as ob_flags */
	__le32 ir_pad;
} __packed;

struct mp_root_omf {
	struct mp_rec_omf rr_h;
	__u8 rr_name[32];	/* 8 */
	__le64 rr_id[2];	/* 40: two mlogs */
} __packed;

#define MP_MLOG_MAGIC	0x4c4d504du	/* "MPML" */

struct mp_mlframe_omf {
	__le32 ml_magic;
	__le16 ml_version;	/* 4: MP_FORMAT */
	__le16 ml_flags;
	__le32 ml_csum;		/* 8: of all its blocks */
	__le32 ml_blocks;	/* 12: at most MP_MLFRAME_MAX bytes */
	__u8 ml_uuid[16];	/* 16: of the pool */
	__le64 ml_id;		/* 32: of the object */
	__le64 ml_gen;		/* 40: raised by an erase */
	__le64 ml_off;		/* 48: own offset in the object */
	__le64 ml_seq;		/* 56: from 1 */
	__le64 ml_durable;	/* 64: frames up to it were durable when this one was written */
	__le32 ml_len;		/* 72: bytes of records */
	__le32 ml_nrecs;	/* 76 */
	__le32 ml_prev;		/* 80: ml_csum of the frame before, 0 in the first */
	__le32 ml_life;		/* 84: low half of the pool's generation when it was written */
} __packed;

struct mp_mlrec_omf {
	__le32 lr_len;		/* bytes of content, 1 to MP_MLREC_MAX */
	__le32 lr_pad;
} __packed;

#define MP_FRAME_HDR	96u	/* bytes before the first record, both frame kinds */
#define MP_FRAME_MAX	(256u << 10)
#define MP_MLFRAME_MAX	((1u << 20) + (8u << 10))
#define MP_MLREC_MAX	(1u << 20)

#endif
