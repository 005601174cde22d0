/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * In-core twins of what lies on media, and the only bridge between the two (omf.c).
 */
#ifndef MP_CORE_CODEC_H
#define MP_CORE_CODEC_H

#include "omf.h"

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
