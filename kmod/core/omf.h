/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Media format: every structure that lies on a device. FORMAT.md has the byte
 * tables, omf_check.h pins sizes and offsets. Only omf.c touches the *_omf
 * structures; all others use their twins in codec.h. All integers are little-endian; pads are zero; checksums are CRC32C with
 * initial value ~0 and final inversion, over the whole unit with the checksum
 * field zero.
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
	MP_SB_CREATING = 1,
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
	__le32 sd_blocks_lo;	/* device size, 4 KiB blocks, low 32 bits */
	__le16 sd_blocks_hi;
	__u8 sd_mclass;
	__u8 sd_flags;		/* MP_DEVF_* */
} __packed;

/* the first 66 bytes are not naturally aligned: libblkid's layout */
struct mp_sb_omf {
	__u8 sb_magic[8];
	__u8 sb_name[32];
	__u8 sb_uuid[16];
	__le16 sb_pre_version;
	__le32 sb_pre_gen;
	__le32 sb_pre_csum;
	__u8 sb_pad0[6];
	__le32 sb_csum;
	__le32 sb_format;
	__le64 sb_compat;
	__le64 sb_ro_compat;
	__le64 sb_incompat;
	__u8 sb_dev_uuid[16];
	__le64 sb_addr;
	__le64 sb_gen;
	__le64 sb_dev_bytes;
	__le16 sb_slot;
	__u8 sb_mclass;
	__u8 sb_state;
	__le32 sb_ndevs;
	__le64 sb_md_off;
	__le64 sb_md_bytes;
	__le64 sb_md_epoch;
	__le64 sb_data_off;
	__le32 sb_uid;
	__le32 sb_gid;
	__le32 sb_mode;
	__le32 sb_block;
	__u8 sb_label[64];
	__u8 sb_spare_pct[8];
	__le64 sb_base_bytes;	/* size at creation of a device that has grown, or 0 */
	__le32 sb_mark;		/* see mp_sb_first_encode() */
	__u8 sb_pad1[228];
	struct mp_sbdev_omf sb_dev[128];
	__u8 sb_pad2[512];
} __packed;

#define MP_FRAME_MAGIC	0x474c504du	/* "MPLG" */
#define MP_FRAME_CKPT	0x1u		/* part of a checkpoint */
#define MP_FRAME_END	0x2u		/* last part: the checkpoint is complete */

/* one write of the metadata log: whole blocks, all or nothing */
struct mp_frame_omf {
	__le32 mf_magic;
	__le16 mf_version;
	__le16 mf_flags;
	__le32 mf_csum;
	__le32 mf_blocks;
	__u8 mf_uuid[16];
	__le64 mf_addr;
	__le64 mf_epoch;
	__le64 mf_seq;
	__le64 mf_durable;
	__le64 mf_gen;
	__le64 mf_id_hwm;
	__le32 mf_len;
	__le32 mf_prev;
	__le32 mf_nrecs;
	__le32 mf_pad;
} __packed;

/* the heartbeat: block 1 of slot 0; all of it in one sector of 512 bytes */
#define MP_BEAT_ADDR	4096u	/* bytes */
#define MP_BEAT_MAGIC	0x7473486c6f6f706dull
#define MP_BEAT_HOST	64u	/* bytes with the NUL */

struct mp_beat_omf {
	__le64 be_magic;	/* "mpoolHst" */
	__le32 be_csum;		/* of the first 512 bytes */
	__le32 be_version;
	__u8 be_uuid[16];	/* of the pool */
	__le64 be_claim;	/* which opening of the pool: random; 0: closed */
	__le64 be_count;	/* one more each time */
	__u8 be_host[64];
	__u8 be_pad[400];
} __packed;

enum mp_rec_type {
	MP_REC_OBJ = 1,		/* an object begins to exist, whole description */
	MP_REC_SEAL = 2,
	MP_REC_DEL = 3,
	MP_REC_ROOT = 4,
	MP_REC_ROOT_DEL = 5,
	MP_REC_VIRGIN = 6,
	MP_REC_GEN = 7,		/* erase of an mlog */
};

struct mp_rec_omf {
	__le16 rh_type;
	__le16 rh_len;		/* bytes with this header, multiple of 8 */
	__le32 rh_aux;		/* CRC of the content, or slot, or zero */
} __packed;

struct mp_extent_omf {
	__le64 ex_start;	/* 4 KiB blocks */
	__le32 ex_count;
	__le16 ex_slot;
	__le16 ex_pad;
} __packed;

struct mp_obj_omf {
	struct mp_rec_omf ob_h;
	__le64 ob_id;
	__le64 ob_tag;
	__le64 ob_length;
	__le64 ob_capacity;
	__le64 ob_gen;
	__u8 ob_kind;
	__u8 ob_mclass;
	__le16 ob_flags;
	__le32 ob_nextents;
	struct mp_extent_omf ob_extent[];
} __packed;

/* MP_REC_SEAL, MP_REC_DEL, MP_REC_GEN, MP_REC_VIRGIN */
struct mp_idrec_omf {
	struct mp_rec_omf ir_h;
	__le64 ir_id;
	__le64 ir_value;	/* length, generation or block */
	__le32 ir_flags;
	__le32 ir_pad;
} __packed;

struct mp_root_omf {
	struct mp_rec_omf rr_h;
	__u8 rr_name[32];
	__le64 rr_id[2];
} __packed;

#define MP_MLOG_MAGIC	0x4c4d504du	/* "MPML" */

struct mp_mlframe_omf {
	__le32 ml_magic;
	__le16 ml_version;
	__le16 ml_flags;
	__le32 ml_csum;
	__le32 ml_blocks;
	__u8 ml_uuid[16];
	__le64 ml_id;
	__le64 ml_gen;
	__le64 ml_off;
	__le64 ml_seq;
	__le64 ml_durable;
	__le32 ml_len;
	__le32 ml_nrecs;
	__le32 ml_prev;
	__le32 ml_life;		/* low half of the pool's generation when it was written */
} __packed;

struct mp_mlrec_omf {
	__le32 lr_len;		/* bytes of content, at least 1 */
	__le32 lr_pad;
} __packed;

#define MP_FRAME_HDR	96u	/* bytes before the first record, both frame kinds */
#define MP_FRAME_MAX	(256u << 10)
#define MP_MLFRAME_MAX	((1u << 20) + (8u << 10))
#define MP_MLREC_MAX	(1u << 20)

#endif
