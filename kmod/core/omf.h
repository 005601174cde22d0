/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Media format: every structure that lies on a device, and its in-core twin.
 * FORMAT.md has the byte tables, omf_check.h pins sizes and offsets. Only
 * omf.c touches the *_omf structures; all others use the twins. All integers
 * are little-endian; pads are zero; checksums are CRC32C with
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

/* ---- in core ---- */

struct mp_sbdev {
	u8 sd_uuid[MP_UUID_LEN];
	u64 sd_bytes;
	u8 sd_mclass;
	u8 sd_flags;
};

/* about 5 KiB: never on the stack */
struct mp_sb {
	char sb_name[MP_NAME_LEN];
	u8 sb_uuid[MP_UUID_LEN];
	u32 sb_format;
	u64 sb_compat, sb_ro_compat, sb_incompat;
	u8 sb_dev_uuid[MP_UUID_LEN];
	u64 sb_addr;		/* where this copy belongs, bytes */
	u64 sb_gen;
	u64 sb_dev_bytes;
	u32 sb_slot;
	u32 sb_mclass;
	u32 sb_state;		/* enum mp_sb_state */
	u32 sb_ndevs;
	u64 sb_md_off;		/* region 0 of the metadata log, bytes */
	u64 sb_md_bytes;	/* of one region */
	u64 sb_md_epoch;	/* no older checkpoint may be used */
	u64 sb_data_off;	/* first byte of this device for objects */
	u32 sb_uid, sb_gid, sb_mode;
	char sb_label[MP_LABEL_LEN];
	u8 sb_spare_pct[8];
	u64 sb_base_bytes;	/* device size at creation: where copies 1 and 2 are */
	u32 sb_mark;		/* not 0: copy 0 is being rewritten; mp_sb_mark() of it */
	struct mp_sbdev sb_dev[MP_SLOTS];
};

struct mp_frame {
	u32 mf_flags;
	u32 mf_blocks;
	u64 mf_addr;
	u64 mf_epoch;
	u64 mf_seq;
	u64 mf_durable;		/* all up to here were durable when this was written */
	u64 mf_gen;
	u64 mf_id_hwm;		/* ids below may have been used */
	u32 mf_len;		/* bytes of records */
	u32 mf_prev;		/* checksum of the frame before */
	u32 mf_nrecs;
	u32 mf_csum;
};

struct mp_extent {
	u64 ex_start;		/* 4 KiB blocks */
	u32 ex_count;
	u32 ex_slot;
};

#define MP_OBJF_COMMITTED	0x1u
#define MP_OBJF_SEALED		0x2u
#define MP_OBJF_DELETED		0x4u	/* in core only */
#define MP_OBJF_CRC		0x8u

/* what that block says */
struct mp_beat {
	u64 be_claim, be_count;
	char be_host[MP_BEAT_HOST];
};

struct mp_rec {
	u32 r_type;		/* enum mp_rec_type */
	u32 r_crc;
	u64 r_id;
	u64 r_tag;
	u64 r_length;		/* bytes; MP_REC_VIRGIN: block */
	u64 r_capacity;
	u64 r_gen;
	u32 r_kind;
	u32 r_mclass;
	u32 r_flags;
	u32 r_slot;
	u32 r_nextents;
	const struct mp_extent *r_extent;	/* encode: source */
	const void *r_extent_omf;		/* decode: see mp_rec_extent() */
	char r_name[MP_NAME_LEN];
	u64 r_root[2];
};

struct mp_mlframe {
	u32 ml_blocks;
	u64 ml_id;
	u64 ml_gen;
	u64 ml_off;
	u64 ml_seq;
	u64 ml_durable;
	u32 ml_len;
	u32 ml_nrecs;
	u32 ml_prev;
	u32 ml_life;	/* makes frames of two opens differ even when they say the same */
	u32 ml_csum;
};

#define MP_FRAME_HDR	96u	/* bytes before the first record, both frame kinds */
#define MP_FRAME_MAX	(256u << 10)
#define MP_MLFRAME_MAX	((1u << 20) + (8u << 10))
#define MP_MLREC_MAX	(1u << 20)

u32 mp_csum(const void *buf, size_t len);

/* may a pool have this name? */
bool mp_name_is_good(const char *name);
/* byte 0 of a device: 1 our magic, 0 not */
int mp_sb_is_magic(const void *buf);
/* is what the first bytes say of name and uuid intact, whatever became of the rest? */
bool mp_sb_prefix_is_good(const void *buf);
void mp_sb_encode(const struct mp_sb *sb, void *buf);
/*
 * Copy 0 is rewritten only in its first sector, and only while the other copies
 * carry the mark: the checksum of all that is not rewritten. So a sector 0 that
 * was lost in the middle still is ours when the rest of the block is unchanged.
 */
u32 mp_sb_mark(const void *buf);
/* sector 0 of copy 0 with the fields of @sb, in front of the rest, which is in @buf */
void mp_sb_first_encode(const struct mp_sb *sb, void *buf);
/*
 * Sizes that a damaged copy 0 may have had: its own field first, then its table's.
 * Unchecked: only good for looking there. 0 = no more.
 */
u64 mp_sb_hint(const void *buf, u32 i);
/* returns 0 or a negative errno with the failed check named; @addr: where it was read */
int mp_sb_decode(const void *buf, u64 addr, struct mp_sb *sb);

void mp_beat_encode(const struct mp_beat *be, const u8 *uuid, void *buf);
/* is there one of this pool? Of one that is damaged be_claim is ~0 */
bool mp_beat_decode(const void *buf, const u8 *uuid, struct mp_beat *be);

/* fills in the header and the checksum of @fr->mf_blocks blocks at @buf */
void mp_frame_encode(struct mp_frame *fr, const u8 *uuid, void *buf);
/* header plausibility from the first block only; 0 or -EUCLEAN, silent */
int mp_frame_peek(const void *buf, const u8 *uuid, u64 addr, u32 max_blocks, struct mp_frame *fr);
/* whole frame: checksum too */
int mp_frame_decode(const void *buf, const u8 *uuid, u64 addr, u32 max_blocks,
		    struct mp_frame *fr);

u32 mp_rec_size(const struct mp_rec *r);
u32 mp_rec_encode(const struct mp_rec *r, void *buf);
/* returns bytes consumed or a negative errno */
int mp_rec_decode(const void *buf, u32 len, struct mp_rec *r);
void mp_rec_extent(const struct mp_rec *r, u32 i, struct mp_extent *out);

void mp_mlframe_encode(struct mp_mlframe *fr, const u8 *uuid, void *buf);
int mp_mlframe_peek(const void *buf, const u8 *uuid, u64 id, u64 gen, u64 off, u32 max_blocks,
		    struct mp_mlframe *fr);
int mp_mlframe_decode(const void *buf, const u8 *uuid, u64 id, u64 gen, u64 off, u32 max_blocks,
		      struct mp_mlframe *fr);
void mp_mlrec_encode(void *buf, u32 len);
/* 0 or -EUCLEAN; @room: bytes left in the frame's payload */
int mp_mlrec_decode(const void *buf, u32 room, u32 *len);

#endif
