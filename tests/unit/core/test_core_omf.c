/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The media format: round trips, every flipped bit rejected, golden bytes,
 * and checks that hold even when an attacker recomputes the checksums.
 */
#include <sys/mman.h>

#include "harness.h"
#include "codec.h"

/* CRC32C of the encoded samples below: a change of these is a change of the format */
#define GOLDEN_SB	2396024129u
#define GOLDEN_FRAME	2842747335u

static u8 block[8192];
static const u8 uuid[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
static struct mp_sb sb, back;

static void sb_sample(void)
{
	memset(&sb, 0, sizeof(sb));
	memcpy(sb.sb_name, "golden", 6);
	memcpy(sb.sb_label, "a label", 7);
	memcpy(sb.sb_uuid, uuid, 16);
	memset(sb.sb_dev_uuid, 0x77, 16);
	sb.sb_format = MP_FORMAT;
	sb.sb_gen = 5;
	sb.sb_dev_bytes = 8 << 20;
	sb.sb_base_bytes = 8 << 20;
	sb.sb_mclass = 0;
	sb.sb_state = MP_SB_ACTIVE;
	sb.sb_ndevs = 1;
	sb.sb_md_off = 65536;
	sb.sb_md_bytes = 262144;
	sb.sb_md_epoch = 1;
	sb.sb_data_off = 65536 + 2 * 262144;
	sb.sb_uid = 1000;
	sb.sb_gid = 100;
	sb.sb_mode = 0600;
	memset(sb.sb_dev[0].sd_uuid, 0x77, 16);
	sb.sb_dev[0].sd_bytes = 8 << 20;
	sb.sb_dev[0].sd_flags = MP_DEVF_MD;
}

static void superblock_round_trip(void)
{
	sb_sample();
	mp_sb_encode(&sb, block);
	T_EQ(mp_sb_decode(block, 0, &back), 0);
	T_MEMEQ(&sb, &back, sizeof(sb));
	T_EQ(mp_sb_decode(block, 4096, &back), -EUCLEAN);
}

/* a device that has grown, while its copy 0 is being rewritten */
static void superblock_of_a_grown_device(void)
{
	sb_sample();
	sb.sb_base_bytes = 4 << 20;
	sb.sb_mark = 0x1234;
	mp_sb_encode(&sb, block);
	T_EQ(mp_sb_decode(block, 0, &back), 0);
	T_MEMEQ(&sb, &back, sizeof(sb));
	sb.sb_base_bytes = 512 << 10;	/* too small to have been a member */
	mp_sb_encode(&sb, block);
	T_EQ(mp_sb_decode(block, 0, &back), -EUCLEAN);
	sb.sb_base_bytes = (4 << 20) + 512;
	mp_sb_encode(&sb, block);
	T_EQ(mp_sb_decode(block, 0, &back), -EUCLEAN);
}

/* a new name changes the first sector only, and leaves a whole copy 0 */
static void superblock_first_sector(void)
{
	static u8 was[4096];

	sb_sample();
	sb.sb_gen = 1;
	mp_sb_encode(&sb, block);
	memcpy(was, block, sizeof(was));
	memcpy(sb.sb_name, "silver", 6);
	sb.sb_gen = 77;
	sb.sb_dev_bytes = 16 << 20;	/* what grew since and came since is not for copy 0 */
	sb.sb_dev[0].sd_bytes = 16 << 20;
	sb.sb_dev[1] = sb.sb_dev[0];
	sb.sb_ndevs = 2;
	mp_sb_first_encode(&sb, block);
	T_MEMEQ(block + 512, was + 512, sizeof(was) - 512);
	T_EQ(mp_sb_mark(block), mp_sb_mark(was));
	T_EQ(mp_sb_decode(block, 0, &back), 0);
	T_STREQ(back.sb_name, "silver");
	T_EQ(back.sb_gen, 1);
	T_EQ(back.sb_dev_bytes, 8 << 20);
	T_EQ(back.sb_ndevs, 1);
}

static void superblock_rejects_every_flipped_bit(void)
{
	u32 i;

	sb_sample();
	mp_sb_encode(&sb, block);
	for (i = 0; i < 4096 * 8; i++) {
		block[i / 8] ^= (u8)(1 << (i % 8));
		T_OK(mp_sb_decode(block, 0, &back) < 0);
		block[i / 8] ^= (u8)(1 << (i % 8));
	}
	T_EQ(mp_sb_decode(block, 0, &back), 0);
}

static void superblock_prefix_is_what_libblkid_knows(void)
{
	static const u8 head[8] = "mpoolDev";
	u32 crc;

	sb_sample();
	mp_sb_encode(&sb, block);
	T_MEMEQ(block, head, 8);
	T_STREQ((char *)block + 8, "golden");
	T_MEMEQ(block + 40, uuid, 16);
	T_EQ(block[56], 0);
	T_EQ(block[57], 1);
	T_EQ(block[58], 5);
	memcpy(&crc, block + 62, 4);
	T_EQ(crc, mp_csum(block, 62));
	T_EQ(mp_csum("123456789", 9), 0xe3069283u);
}

static void superblock_golden_bytes(void)
{
	sb_sample();
	mp_sb_encode(&sb, block);
	T_EQ(mp_csum(block, 4096), GOLDEN_SB);
}

/* libblkid's part of it is what that module wrote */
static void superblock_of_the_ancestor_is_refused_by_name(void)
{
	struct mp_sb_omf *o = (struct mp_sb_omf *)block;

	sb_sample();
	mp_sb_encode(&sb, block);
	o->sb_pre_version = cpu_to_le16(MP_FORMAT - 1);
	o->sb_pre_csum = cpu_to_le32(mp_csum(block, offsetof(struct mp_sb_omf, sb_pre_csum)));
	T_EQ(mp_sb_decode(block, 0, &back), -EOPNOTSUPP);
}

static int try_sb(void)
{
	mp_sb_encode(&sb, block);
	return mp_sb_decode(block, 0, &back);
}

#define BAD(field, value, err) do {	\
	sb_sample();			\
	sb.field = (value);		\
	T_EQ(try_sb(), (err));		\
} while (0)

static void superblock_fields_are_bounded_behind_a_good_checksum(void)
{
	BAD(sb_format, 0x0200, -EOPNOTSUPP);
	BAD(sb_incompat, 1, -EOPNOTSUPP);
	BAD(sb_addr, 4096, -EUCLEAN);
	BAD(sb_ndevs, 0, -EUCLEAN);
	BAD(sb_ndevs, 129, -EUCLEAN);
	BAD(sb_slot, 1, -EUCLEAN);
	BAD(sb_md_bytes, 1ull << 31, -EUCLEAN);
	BAD(sb_md_bytes, 4097, -EUCLEAN);
	BAD(sb_md_off, ~0ull, -EUCLEAN);
	BAD(sb_data_off, 65536, -EUCLEAN);
	BAD(sb_data_off, 5 << 20, -EUCLEAN);
	BAD(sb_dev_bytes, 1ull << 62, -EUCLEAN);
	BAD(sb_state, 9, -EUCLEAN);
	BAD(sb_spare_pct[0], 91, -EUCLEAN);
	BAD(sb_dev[0].sd_flags, 0, -EUCLEAN);
	BAD(sb_dev[0].sd_bytes, 4 << 20, -EUCLEAN);
	/* what is counted on from them must not begin anew */
	BAD(sb_gen, MP_NUMBER_END, -EUCLEAN);
	BAD(sb_md_epoch, ~0ull, -EUCLEAN);
	BAD(sb_name[0], '\n', -EUCLEAN);
	/* no pool can be given these */
	BAD(sb_name[0], '.', -EUCLEAN);
	BAD(sb_name[0], '-', -EUCLEAN);
	BAD(sb_name[3], '/', -EUCLEAN);
	BAD(sb_name[3], ' ', -EUCLEAN);
	sb_sample();
	memset(sb.sb_name, 0, sizeof(sb.sb_name));
	T_EQ(try_sb(), -EUCLEAN);
	memset(sb.sb_name, 'n', sizeof(sb.sb_name) - 1);
	T_EQ(try_sb(), 0);
	memcpy(sb.sb_name, "a.b-c_9", 8);
	memset(sb.sb_name + 8, 0, sizeof(sb.sb_name) - 8);
	T_EQ(try_sb(), 0);
}

/* the devices of a class have a table of their own in memory */
static void superblock_with_too_many_devices_of_a_class_is_refused(void)
{
	u32 i;

	sb_sample();
	sb.sb_ndevs = MP_CLASS_DEVS + 1;
	for (i = 1; i < sb.sb_ndevs; i++)
		sb.sb_dev[i].sd_bytes = 8 << 20;
	T_EQ(try_sb(), -EUCLEAN);
	sb.sb_dev[1].sd_mclass = 1;
	T_EQ(try_sb(), 0);
	sb.sb_ndevs = MP_SLOTS;
	for (i = 1; i < sb.sb_ndevs; i++) {
		sb.sb_dev[i].sd_bytes = 8 << 20;
		sb.sb_dev[i].sd_mclass = i >= MP_CLASS_DEVS;
	}
	T_EQ(try_sb(), 0);
	sb.sb_dev[1].sd_mclass = 1;
	T_EQ(try_sb(), -EUCLEAN);
}

static void frame_rejects_every_flipped_bit_and_every_other_place(void)
{
	struct mp_frame fr = { .mf_blocks = 2, .mf_addr = 65536, .mf_epoch = 3, .mf_seq = 9,
			       .mf_durable = 8, .mf_gen = 2, .mf_id_hwm = 77, .mf_len = 4096,
			       .mf_prev = 5, .mf_nrecs = 1 }, got;
	u8 other[16] = { 0 };
	u32 i;

	for (i = 0; i < sizeof(block); i++)
		block[i] = (u8)(i * 7);
	mp_frame_encode(&fr, uuid, block);
	T_EQ(mp_frame_decode(block, uuid, 65536, 2, &got), 0);
	T_MEMEQ(&fr, &got, sizeof(fr));
	T_EQ(mp_csum(block, 8192), GOLDEN_FRAME);
	T_OK(mp_frame_decode(block, uuid, 69632, 2, &got) < 0);
	T_OK(mp_frame_decode(block, other, 65536, 2, &got) < 0);
	T_OK(mp_frame_decode(block, uuid, 65536, 1, &got) < 0);
	for (i = 0; i < 8192 * 8; i++) {
		block[i / 8] ^= (u8)(1 << (i % 8));
		T_OK(mp_frame_decode(block, uuid, 65536, 2, &got) < 0);
		block[i / 8] ^= (u8)(1 << (i % 8));
	}
	/* what is counted on from them must not begin anew */
	fr.mf_epoch = MP_NUMBER_END;
	mp_frame_encode(&fr, uuid, block);
	T_OK(mp_frame_decode(block, uuid, 65536, 2, &got) < 0);
	fr.mf_epoch = 3;
	fr.mf_seq = ~0ull;
	mp_frame_encode(&fr, uuid, block);
	T_OK(mp_frame_decode(block, uuid, 65536, 2, &got) < 0);
}

static void mlog_frame_rejects_every_flipped_bit_and_every_other_place(void)
{
	struct mp_mlframe fr = { .ml_blocks = 1, .ml_id = 4, .ml_gen = 2, .ml_off = 8192,
				 .ml_seq = 3, .ml_durable = 1, .ml_len = 64, .ml_nrecs = 2,
				 .ml_prev = 9 }, got;
	u32 i;

	mp_mlframe_encode(&fr, uuid, block);
	T_EQ(mp_mlframe_decode(block, uuid, 4, 2, 8192, 1, &got), 0);
	T_OK(got.ml_seq == 3 && got.ml_durable == 1 && got.ml_len == 64 && got.ml_prev == 9 &&
	     got.ml_nrecs == 2 && got.ml_csum == fr.ml_csum);
	T_OK(mp_mlframe_decode(block, uuid, 5, 2, 8192, 1, &got) < 0);
	T_OK(mp_mlframe_decode(block, uuid, 4, 1, 8192, 1, &got) < 0);
	T_OK(mp_mlframe_decode(block, uuid, 4, 2, 4096, 1, &got) < 0);
	for (i = 0; i < 4096 * 8; i++) {
		block[i / 8] ^= (u8)(1 << (i % 8));
		T_OK(mp_mlframe_decode(block, uuid, 4, 2, 8192, 1, &got) < 0);
		block[i / 8] ^= (u8)(1 << (i % 8));
	}
}

static void records_round_trip_and_bounds(void)
{
	struct mp_extent ex[2] = { { 10, 3, 0 }, { 20, 1, 1 } }, e;
	struct mp_rec r = { .r_type = MP_REC_OBJ, .r_id = 9, .r_tag = 1, .r_length = 4096,
			    .r_capacity = 16384, .r_gen = 1, .r_kind = 1, .r_nextents = 2,
			    .r_extent = ex, .r_crc = 44 }, got;
	u32 n = mp_rec_encode(&r, block);

	T_EQ(n, mp_rec_size(&r));
	T_EQ(mp_rec_decode(block, n, &got), n);
	T_EQ(got.r_capacity, 16384);
	T_EQ(got.r_crc, 44);
	mp_rec_extent(&got, 1, &e);
	T_EQ(e.ex_start, 20);
	T_EQ(e.ex_slot, 1);
	T_OK(mp_rec_decode(block, n - 8, &got) < 0);
	T_OK(mp_rec_decode(block, 4, &got) < 0);
	block[52] = 3;
	T_OK(mp_rec_decode(block, n, &got) < 0);
	r.r_length = 32768;
	mp_rec_encode(&r, block);
	T_OK(mp_rec_decode(block, n, &got) < 0);
	memset(&r, 0, sizeof(r));
	r.r_type = MP_REC_ROOT;
	memset(r.r_name, 'n', 32);
	n = mp_rec_encode(&r, block);
	T_OK(mp_rec_decode(block, n, &got) < 0);
	r.r_name[31] = 0;
	mp_rec_encode(&r, block);
	T_EQ(mp_rec_decode(block, n, &got), n);
}

/* a copy behind which nothing can be read */
static u8 *at_end(const void *buf, size_t len)
{
	static u8 *map;

	if (!map) {
		map = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0);
		T_OK(map != MAP_FAILED && !mprotect(map + 4096, 4096, PROT_NONE));
	}
	return memcpy(map + 4096 - len, buf, len);
}

/* whatever a header says, behind a good checksum: the reader stays inside the buffer */
static void frames_stay_inside_what_was_read(void)
{
	static const struct { u32 blocks, len, max; } bad[] = {
		{ 0, 64, 2 }, { 2, 64, 1 }, { MP_FRAME_MAX / MP_BLOCK + 1, 64, 9999 },
		{ 1, MP_BLOCK - MP_FRAME_HDR + 8, 2 }, { 1, 12, 2 },
	};
	struct mp_frame fr = { .mf_blocks = 1, .mf_addr = 65536, .mf_len = 64 };
	struct mp_frame_omf *o = (struct mp_frame_omf *)block;
	unsigned i;

	mp_frame_encode(&fr, uuid, block);
	T_EQ(mp_frame_peek(block, uuid, 65536, 2, &fr), 0);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		o->mf_blocks = cpu_to_le32(bad[i].blocks);
		o->mf_len = cpu_to_le32(bad[i].len);
		T_EQ(mp_frame_peek(block, uuid, 65536, bad[i].max, &fr), -EUCLEAN);
	}
	o->mf_blocks = cpu_to_le32(1);
	o->mf_len = cpu_to_le32(64);
	o->mf_version = cpu_to_le16(MP_FORMAT + 1);
	T_EQ(mp_frame_peek(block, uuid, 65536, 2, &fr), -EUCLEAN);
	o->mf_version = cpu_to_le16(MP_FORMAT);
	o->mf_magic = cpu_to_le32(MP_MLOG_MAGIC);
	T_EQ(mp_frame_peek(block, uuid, 65536, 2, &fr), -EUCLEAN);
}

static void mlog_frames_stay_inside_what_was_read(void)
{
	static const struct { u32 blocks, len, max; } bad[] = {
		{ 0, 64, 2 }, { 2, 64, 1 }, { MP_MLFRAME_MAX / MP_BLOCK + 1, 64, 9999 },
		{ 1, MP_BLOCK - MP_FRAME_HDR + 8, 2 }, { 1, 12, 2 },
	};
	struct mp_mlframe fr = { .ml_blocks = 1, .ml_id = 4, .ml_gen = 2, .ml_len = 64 };
	struct mp_mlframe_omf *o = (struct mp_mlframe_omf *)block;
	unsigned i;

	mp_mlframe_encode(&fr, uuid, block);
	T_EQ(mp_mlframe_peek(block, uuid, 4, 2, 0, 2, &fr), 0);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		o->ml_blocks = cpu_to_le32(bad[i].blocks);
		o->ml_len = cpu_to_le32(bad[i].len);
		T_EQ(mp_mlframe_peek(block, uuid, 4, 2, 0, bad[i].max, &fr), -EUCLEAN);
	}
	o->ml_blocks = cpu_to_le32(1);
	o->ml_len = cpu_to_le32(64);
	o->ml_version = cpu_to_le16(MP_FORMAT + 1);
	T_EQ(mp_mlframe_peek(block, uuid, 4, 2, 0, 2, &fr), -EUCLEAN);
	o->ml_version = cpu_to_le16(MP_FORMAT);
	o->ml_magic = cpu_to_le32(MP_FRAME_MAGIC);
	T_EQ(mp_mlframe_peek(block, uuid, 4, 2, 0, 2, &fr), -EUCLEAN);
}

static void records_stay_inside_what_was_read(void)
{
	static const u16 type[] = { MP_REC_SEAL, MP_REC_DEL, MP_REC_VIRGIN, MP_REC_GEN,
				    MP_REC_ROOT_DEL };
	struct mp_extent ex[MP_EXTENTS_MAX + 1];
	struct mp_rec r = { .r_type = MP_REC_OBJ, .r_id = 9, .r_kind = 1, .r_nextents = 2,
			    .r_extent = ex, .r_capacity = 2 * 4096 }, got;
	struct mp_rec_omf *h = (struct mp_rec_omf *)block;
	u32 n, i;

	for (i = 0; i <= MP_EXTENTS_MAX; i++)
		ex[i] = (struct mp_extent){ .ex_start = 2 * i, .ex_count = 1 };
	n = mp_rec_encode(&r, block);
	T_EQ(mp_rec_decode(at_end(block, n), n, &got), n);
	T_EQ(mp_rec_decode(at_end(block, n - 8), n - 8, &got), -EUCLEAN);
	T_EQ(mp_rec_decode(at_end(block, 2), 2, &got), -EUCLEAN);
	/* shorter than its extents, than an object, than any record */
	h->rh_len = cpu_to_le16(n - sizeof(struct mp_extent_omf));
	n -= sizeof(struct mp_extent_omf);
	T_EQ(mp_rec_decode(at_end(block, n), n, &got), -EUCLEAN);
	h->rh_len = cpu_to_le16(sizeof(*h));
	T_EQ(mp_rec_decode(at_end(block, sizeof(*h)), sizeof(*h), &got), -EUCLEAN);
	h->rh_len = 0;
	T_EQ(mp_rec_decode(at_end(block, sizeof(*h)), sizeof(*h), &got), -EUCLEAN);
	r.r_nextents = MP_EXTENTS_MAX + 1;
	r.r_capacity = (MP_EXTENTS_MAX + 1) * 4096;
	n = mp_rec_encode(&r, block);
	T_EQ(mp_rec_decode(block, n, &got), -EUCLEAN);
	for (i = 0; i < sizeof(type) / sizeof(*type); i++) {
		memset(block, 0, sizeof(block));
		h->rh_type = cpu_to_le16(type[i]);
		h->rh_len = cpu_to_le16(sizeof(*h));
		T_EQ(mp_rec_decode(at_end(block, sizeof(*h)), sizeof(*h), &got), -EUCLEAN);
	}
}

static void mlog_records_stay_inside_their_frame(void)
{
	u32 len, head = MP_MLREC_MAX;

	mp_mlrec_encode(block, head);
	T_EQ(mp_mlrec_decode(block, head + 8, &len), 0);
	T_EQ(len, head);
	T_EQ(mp_mlrec_decode(block, head, &len), -EUCLEAN);
	mp_mlrec_encode(block, head + 1);
	T_EQ(mp_mlrec_decode(block, 2 * head, &len), -EUCLEAN);
	mp_mlrec_encode(block, 0);
	T_EQ(mp_mlrec_decode(block, 64, &len), -EUCLEAN);
	mp_mlrec_encode(block, 1);
	T_EQ(mp_mlrec_decode(at_end(block, 4), 4, &len), -EUCLEAN);
}

/* no bytes make a decoder crash or overrun (run under ASan too) */
static void random_bytes_are_survived(void)
{
	uint64_t seed = t_seed();
	struct mp_frame fr;
	struct mp_rec r;
	u32 i, k, len;
	u8 *heap;

	for (i = 0; i < 20000; i++) {
		len = 8 + t_rand(&seed) % 120;
		heap = malloc(len);
		for (k = 0; k < len; k++)
			heap[k] = (u8)t_rand(&seed);
		heap[0] = 1 + t_rand(&seed) % 8;
		heap[1] = 0;
		heap[2] = (u8)(len & ~7u);
		heap[3] = 0;
		T_OK(mp_rec_decode(heap, len, &r) <= (int)len);
		free(heap);
	}
	for (k = 0; k < 4096; k++)
		block[k] = (u8)t_rand(&seed);
	T_OK(mp_frame_decode(block, uuid, 0, 1, &fr) < 0);
}

int main(void)
{
	T_RUN(superblock_round_trip);
	T_RUN(superblock_of_a_grown_device);
	T_RUN(superblock_first_sector);
	T_RUN(superblock_rejects_every_flipped_bit);
	T_RUN(superblock_prefix_is_what_libblkid_knows);
	T_RUN(superblock_golden_bytes);
	T_RUN(superblock_of_the_ancestor_is_refused_by_name);
	T_RUN(superblock_fields_are_bounded_behind_a_good_checksum);
	T_RUN(superblock_with_too_many_devices_of_a_class_is_refused);
	T_RUN(frame_rejects_every_flipped_bit_and_every_other_place);
	T_RUN(mlog_frame_rejects_every_flipped_bit_and_every_other_place);
	T_RUN(records_round_trip_and_bounds);
	T_RUN(frames_stay_inside_what_was_read);
	T_RUN(mlog_frames_stay_inside_what_was_read);
	T_RUN(records_stay_inside_what_was_read);
	T_RUN(mlog_records_stay_inside_their_frame);
	T_RUN(random_bytes_are_survived);
	return t_done();
}
