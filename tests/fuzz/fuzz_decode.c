/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every decoder of media, called as its reader calls it: what one accepts is
 * walked to its end. Checksums are made right where the decoder has its own,
 * except for every eighth input.
 */
#include <stdlib.h>
#include <string.h>

#include "meta/ckpt_omf.h"
#include "fuzz.h"
#include "seg/kv_omf.h"
#include "meta/mdc_omf.h"
#include "codec.h"
#include "base/pack.h"
#include "run/run_omf.h"
#include "mem/tomb.h"
#include "txn/txn_omf.h"
#include "base/le.h"
#include "base/trange.h"
#include "seg/value.h"

static const uint8_t uuid[16] = { 'f', 'u', 'z', 'z' };

void fz_init(void)
{
}

static uint8_t *sized(struct fz *f, size_t size)
{
	uint8_t *p = calloc(1, size);
	size_t n = f->n < size ? f->n : size;

	if (!p)
		abort();
	memcpy(p, f->p, n);
	f->p += n;
	f->n -= n;
	return p;
}

/* Most inputs have right checksums, and are where they say. */
static bool trust(struct fz *f)
{
	bool is_right = fz_num(f, 1) % 8 != 0;

	fz_trust(is_right);
	return is_right;
}

/* ---- the pool ------------------------------------------------------------------------- */

/* The same bytes as a heartbeat: what it says is text and ends. */
static void heartbeat(const uint8_t *p)
{
	const struct mp_beat_omf *o = (const void *)p;
	struct mp_beat be;

	if (mp_beat_decode(p, o->be_uuid, &be) && strnlen(be.be_host, MP_BEAT_HOST) == MP_BEAT_HOST)
		fz_bug("the name of a host has no end");
}

static void superblock(struct fz *f)
{
	struct mp_sb *sb = malloc(sizeof(*sb));
	bool is_right = trust(f);
	uint8_t *p = sized(f, MP_BLOCK);
	struct mp_sb_omf *o = (void *)p;
	uint64_t addr = is_right ? le64toh(o->sb_addr) : 0;

	if (is_right)
		o->sb_pre_csum = htole32(mp_csum(p, offsetof(struct mp_sb_omf, sb_pre_csum)));
	heartbeat(p);
	mp_sb_is_magic(p);
	mp_sb_mark(p);
	for (unsigned i = 0; i <= MP_SLOTS + 1; i++)
		mp_sb_hint(p, i);
	if (!mp_sb_decode(p, addr, sb))
		mp_sb_encode(sb, p);
	free(sb);
	free(p);
}

static void records(const uint8_t *p, uint32_t len, uint32_t n)
{
	struct mp_extent ex;
	struct mp_rec r;

	for (uint32_t at = 0; n && at < len; n--) {
		int used = mp_rec_decode(p + at, len - at, &r);

		if (used <= 0)
			return;
		if ((uint32_t)used > len - at)
			fz_bug("a record is longer than its room");
		for (uint32_t i = 0; i < r.r_nextents; i++)
			mp_rec_extent(&r, i, &ex);
		at += (uint32_t)used;
	}
}

static void record(struct fz *f)
{
	size_t n;
	uint8_t *p = fz_copy(f, MP_FRAME_MAX, &n);

	records(p, (uint32_t)n, UINT32_MAX);
	free(p);
}

static void frame(struct fz *f)
{
	bool is_right = trust(f);
	unsigned blocks = 1 + (unsigned)fz_num(f, 1) % 4;
	struct mp_frame fr;
	uint8_t *p = sized(f, blocks * MP_BLOCK);
	struct mp_frame_omf *o = (void *)p;
	uint64_t addr = is_right ? le64toh(o->mf_addr) : MP_BLOCK;

	memcpy(o->mf_uuid, uuid, 16);
	if (!mp_frame_peek(p, uuid, addr, blocks, &fr) &&
	    !mp_frame_decode(p, uuid, addr, blocks, &fr))
		records(p + MP_FRAME_HDR, fr.mf_len, fr.mf_nrecs);
	free(p);
}

static void mlog_frame(struct fz *f)
{
	bool is_right = trust(f);
	unsigned blocks = 1 + (unsigned)fz_num(f, 1) % 4;
	uint8_t *p = sized(f, blocks * MP_BLOCK);
	struct mp_mlframe_omf *o = (void *)p;
	uint64_t id = is_right ? le64toh(o->ml_id) : 1, gen = is_right ? le64toh(o->ml_gen) : 1;
	uint64_t off = is_right ? le64toh(o->ml_off) : 0;
	uint32_t at = 0, len = 0, i;
	struct mp_mlframe fr;

	memcpy(o->ml_uuid, uuid, 16);
	if (mp_mlframe_peek(p, uuid, id, gen, off, blocks, &fr) ||
	    mp_mlframe_decode(p, uuid, id, gen, off, blocks, &fr)) {
		free(p);
		return;
	}
	for (i = 0; i < fr.ml_nrecs; i++) {
		if (mp_mlrec_decode(p + MP_FRAME_HDR + at, fr.ml_len - at, &len))
			break;
		at += (uint32_t)sizeof(struct mp_mlrec_omf) + ((len + 7) & ~7u);
		if (at > fr.ml_len)
			break;
	}
	free(p);
}

/* ---- the database ----------------------------------------------------------------------- */

/* Several records: length (2) and bytes of each. */
static void mdc(struct fz *f)
{
	struct kv_mdc_state *st = calloc(1, sizeof(*st));
	size_t n;

	trust(f);
	while (f->n) {
		size_t len = fz_num(f, 2);
		uint8_t *p = fz_copy(f, len, &n);
		int rc = kv_mdc_fold(st, p, n);

		free(p);
		if (rc)
			break;
	}
	kv_mdc_state_bytes(st);
	kv_mdc_state_free(st);
	free(st);
}

static void desc(const struct kv_rec *r)
{
	struct kv_desc_ent e;
	struct kv_desc d;

	if (kv_desc_decode(r, &d))
		return;
	for (uint32_t i = 0; i < d.ds_n; i++)
		kv_desc_ent(r, i, &e);
}

/* What lies in a value of the log may be a part of a commit record. */
static void commit_part(const struct kv_rec *r)
{
	struct kv_commit_ent e = { .ce_kind = KV_ENT_PART, .ce_kvs = r->r_kvs, .ce_vlen = r->r_vlen,
				   .ce_vcrc = r->r_vcrc, .ce_rev = r->r_rev }, w;
	uint32_t pos = 0;

	if (kv_commit_check_part(&e, r->r_val))
		return;
	for (; kv_commit_next_part(r->r_val, r->r_vlen, &pos, &w); e.ce_rev--)
		if (w.ce_kvs != r->r_kvs || w.ce_kind == KV_ENT_PART)
			fz_bug("a part has what is no write of its store");
	if (e.ce_rev || pos != r->r_vlen)
		fz_bug("a part is not what was checked");
}

static void commit(const struct kv_rec *r)
{
	struct kv_commit_ent e;
	struct kv_trange t;
	uint32_t pos = 0;
	volatile uint8_t sink;

	if (kv_commit_check(r))
		return;
	while (kv_commit_next(r, &pos, &e)) {
		if (e.ce_kind == KV_ENT_COVER && !kv_commit_trange(&e, &t))
			fz_bug("a delete of no range was taken");
		if (e.ce_klen)
			sink = e.ce_key[e.ce_klen - 1];
		if (e.ce_val && e.ce_vlen)
			sink = e.ce_val[e.ce_vlen - 1];
	}
	(void)sink;
}

static void log_records(const uint8_t *p, uint32_t at, uint32_t len, uint64_t obj, uint32_t off)
{
	struct kv_rec r;

	while (at < len && !kv_rec_decode(p + at, obj, off + at, len - at, true, &r)) {
		if (r.r_size > len - at || r.r_key + r.r_klen > p + at + r.r_size)
			fz_bug("a record is longer than its room");
		if (r.r_type == KV_REC_DESC)
			desc(&r);
		if (r.r_type == KV_REC_COMMIT)
			commit(&r);
		if (r.r_type == KV_REC_PUT && r.r_vlen)
			commit_part(&r);
		at += r.r_size;
	}
}

static void log_record(struct fz *f)
{
	size_t n;
	uint8_t *p;

	trust(f);
	p = fz_copy(f, 1 << 16, &n);
	/* readers see records at multiples of 8 */
	log_records(p, 0, (uint32_t)n & ~7u, 7, 4096);
	free(p);
}

static void log_frame(struct fz *f)
{
	bool is_right = trust(f);
	uint32_t room = (1 + (uint32_t)fz_num(f, 1) % 8) * KV_BLOCK;
	uint8_t *p = sized(f, room);
	uint32_t tag = is_right ? kv_le32(p + 8) : 1, off = is_right ? kv_le32(p + 24) : 0;
	uint64_t obj = is_right ? kv_le64(p + 16) : 1;
	struct kv_frame_hdr h;

	if (kv_frame_decode(p, tag, obj, off, room, &h) > 0 || h.fh_len < KV_FRAME_HDR) {
		free(p);
		return;
	}
	if (kv_frame_check_payload(p, &h))
		log_records(p, KV_FRAME_HDR, h.fh_len, obj, off);
	free(p);
}

static void run_footer(struct fz *f)
{
	struct kv_kfoot *kf = malloc(sizeof(*kf));
	uint32_t len = (uint32_t)fz_num(f, 4);
	uint8_t *p;

	trust(f);
	p = sized(f, KV_PAGE);
	kv_kfoot_decode(p, 0, kv_le64(p + 8), kv_le64(p + 16), kv_le32(p + 24), len, kf);
	free(kf);
	free(p);
}

static void run_page(struct fz *f)
{
	uint32_t no = (uint32_t)fz_num(f, 1);
	uint8_t key[KVDB_KEY_MAX], want[32];
	size_t klen = fz_num(f, 1) % sizeof(want);
	struct kv_kpage kp;
	struct kv_kent e;
	const char *why;
	bool exact;
	uint8_t *p;

	for (size_t i = 0; i < sizeof(want); i++)
		want[i] = (uint8_t)fz_num(f, 1);
	p = sized(f, KV_PAGE);
	if (!kv_kpage_decode(p, no, &kp)) {
		for (unsigned i = 0; i < kp.kp_n; i++) {
			volatile uint8_t sink;

			if (kv_kpage_ent(&kp, i, &e))
				continue;
			if (kv_kpage_key(&kp, i, &e, key) > KVDB_KEY_MAX)
				fz_bug("a key is too long");
			if (e.ke_kind == KV_ENT_INLINE && kv_kent_stored(&e))
				sink = e.ke_val[kv_kent_stored(&e) - 1];
			(void)sink;
		}
		kv_kpage_lower(&kp, want, klen, &exact, &why);
		kv_kpage_find(&kp, want, klen, want[0], &e, &why);
	}
	free(p);
}

static void tombstones(struct fz *f)
{
	struct kv_trange r;
	uint32_t size = 0;
	size_t n, at = 0;
	uint8_t *p = fz_copy(f, 1 << 14, &n);

	while (at < n && !kv_ktomb_decode(p + at, (uint32_t)(n - at), &r, &size)) {
		if (!size || size > n - at)
			fz_bug("a tombstone is longer than its room");
		at += size;
	}
	free(p);
}

static void manifest(struct fz *f)
{
	struct kv_mdc_state *st = calloc(1, sizeof(*st));
	struct kv_manifest mf;
	size_t n;
	uint8_t *p;

	trust(f);
	p = fz_copy(f, 1 << 16, &n);
	if (!kv_manifest_decode(p, n, &mf))
		kv_manifest_fold(p + KV_MANIFEST_HDR, mf.mf_bytes, st);
	kv_mdc_state_free(st);
	free(st);
	free(p);
}

static void unpack(struct fz *f)
{
	uint8_t how = (uint8_t)fz_num(f, 1);
	uint32_t len = (uint32_t)fz_num(f, 2);
	uint8_t *out = malloc(len ? len : 1);
	size_t n;
	uint8_t *p = fz_copy(f, 1 << 16, &n);

	kv_unpack(how, p, (uint32_t)n, out, len);
	free(out);
	free(p);
}

const struct fz_target fz_targets[] = {
	{ "superblock", superblock }, { "frame", frame }, { "record", record },
	{ "mlog", mlog_frame }, { "mdc", mdc }, { "log frame", log_frame },
	{ "log record", log_record }, { "run footer", run_footer }, { "run page", run_page },
	{ "tombstones", tombstones }, { "manifest", manifest }, { "unpack", unpack },
	{ .name = NULL },
};
