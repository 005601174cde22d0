/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Encoding of the metadata container's records; with mdc_fold.c the only code
 * that touches their bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "meta/mdc_omf.h"
#include "seg/kv_omf.h"
#include "run/run.h"
#include "tree/tree.h"

/* record header, byte offsets */
enum { MH_MAGIC = 0, MH_TYPE = 4, MH_VERSION = 6, MH_LEN = 8, MH_CRC = 12, MH_TAG = 16 };

static void need(struct kv_mdc_buf *b, size_t n)
{
	size_t cap = b->mb_cap ? b->mb_cap : 512;
	uint8_t *p;

	while (cap < b->mb_len + n)
		cap *= 2;
	if (b->mb_err || cap == b->mb_cap)
		return;
	p = realloc(b->mb_p, cap);
	if (!p) {
		b->mb_err = -ENOMEM;
		return;
	}
	b->mb_p = p;
	b->mb_cap = cap;
}

static void w8(struct kv_mdc_buf *b, uint64_t v, unsigned bytes)
{
	need(b, bytes);
	if (b->mb_err)
		return;
	while (bytes--) {
		b->mb_p[b->mb_len++] = (uint8_t)v;
		v >>= 8;
	}
}

static void w16(struct kv_mdc_buf *b, uint16_t v) { w8(b, v, 2); }
static void w32(struct kv_mdc_buf *b, uint32_t v) { w8(b, v, 4); }
static void w64(struct kv_mdc_buf *b, uint64_t v) { w8(b, v, 8); }

static void wbytes(struct kv_mdc_buf *b, const void *p, size_t n)
{
	need(b, n);
	if (b->mb_err)
		return;
	memcpy(b->mb_p + b->mb_len, p, n);
	b->mb_len += n;
}

static void begin(struct kv_mdc_buf *b, enum kv_mdc_type type, uint64_t tag)
{
	b->mb_len = 0;
	w32(b, KV_MDC_MAGIC);
	w16(b, (uint16_t)type);
	w16(b, KV_FORMAT);
	w32(b, 0);
	w32(b, 0);
	w64(b, tag);
}

static void poke32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)(v >> 16);
	p[3] = (uint8_t)(v >> 24);
}

uint32_t kv_mdc_rec_crc(const uint8_t *p, size_t len)
{
	return mpool_crc32c(mpool_crc32c(0, p, MH_CRC), p + MH_TAG, len - MH_TAG);
}

static void end(struct kv_mdc_buf *b)
{
	if (b->mb_err)
		return;
	poke32(b->mb_p + MH_LEN, (uint32_t)b->mb_len);
	poke32(b->mb_p + MH_CRC, kv_mdc_rec_crc(b->mb_p, b->mb_len));
}

void kv_mdc_enc_super(struct kv_mdc_buf *b, const struct kv_mdc_super *s)
{
	begin(b, KV_MDC_SUPER, s->ms_tag);
	wbytes(b, s->ms_uuid, 16);
	w16(b, s->ms_format);
	w16(b, s->ms_amp_percent);
	w32(b, s->ms_compat);
	w32(b, s->ms_ro_compat);
	w32(b, s->ms_incompat);
	w32(b, s->ms_seg_bytes);
	w32(b, s->ms_next_kvs);
	w64(b, s->ms_next_run);
	w64(b, s->ms_floor);
	end(b);
}

void kv_mdc_enc_features(struct kv_mdc_buf *b, uint64_t tag, uint32_t incompat)
{
	begin(b, KV_MDC_FEATURES, tag);
	w32(b, incompat);
	w32(b, 0);
	end(b);
}

void kv_mdc_enc_kvs_add(struct kv_mdc_buf *b, uint64_t tag, uint32_t id, const char *name,
			uint64_t horizon)
{
	char field[KVDB_NAME_MAX + 1] = "";

	strncpy(field, name, KVDB_NAME_MAX);
	begin(b, KV_MDC_KVS_ADD, tag);
	w32(b, id);
	w32(b, 0);
	w64(b, horizon);
	wbytes(b, field, sizeof(field));
	end(b);
}

void kv_mdc_enc_time(struct kv_mdc_buf *b, uint64_t tag, uint64_t ms)
{
	begin(b, KV_MDC_TIME, tag);
	w64(b, ms);
	end(b);
}

void kv_mdc_enc_kvs_prop(struct kv_mdc_buf *b, uint64_t tag, uint32_t id, const struct kv_props *p,
			 uint32_t which)
{
	uint32_t i;

	begin(b, KV_MDC_KVS_PROP, tag);
	w32(b, id);
	w32(b, (uint32_t)__builtin_popcount(which & KV_PROP_ALL));
	for (i = 1; i < KV_PROPS; i++) {
		if (!(which & KV_PROP_BIT(i)))
			continue;
		w32(b, i);
		w32(b, 0);
		w64(b, p->pr_val[i]);
	}
	end(b);
}

void kv_mdc_enc_kvs_drop(struct kv_mdc_buf *b, uint64_t tag, uint32_t id)
{
	begin(b, KV_MDC_KVS_DROP, tag);
	w32(b, id);
	w32(b, 0);
	end(b);
}

void kv_mdc_enc_kvs_rename(struct kv_mdc_buf *b, uint64_t tag, uint32_t id, const char *name)
{
	char field[KVDB_NAME_MAX + 1] = "";

	strncpy(field, name, KVDB_NAME_MAX);
	begin(b, KV_MDC_KVS_RENAME, tag);
	w32(b, id);
	w32(b, 0);
	wbytes(b, field, sizeof(field));
	end(b);
}

static void enc_run(struct kv_mdc_buf *b, const struct kv_run_desc *d)
{
	uint32_t i;

	w64(b, d->rd_id);
	w64(b, d->rd_pos);
	w64(b, d->rd_keys);
	w64(b, d->rd_min_seq);
	w64(b, d->rd_max_seq);
	w64(b, d->rd_newest_epoch);
	w32(b, d->rd_kvs);
	w32(b, d->rd_n);
	for (i = 0; i < d->rd_n; i++) {
		w64(b, d->rd_kb[i].kd_id);
		w32(b, d->rd_kb[i].kd_len);
		w32(b, d->rd_kb[i].kd_crc);
	}
}

void kv_mdc_enc_edit(struct kv_mdc_buf *b, uint64_t tag, uint32_t kvs,
		     const struct kv_run_desc *add, const uint64_t *drop, uint32_t ndrop,
		     const struct kv_horizon *hor, uint32_t nhor)
{
	uint32_t i;

	begin(b, KV_MDC_EDIT, tag);
	w32(b, kvs);
	w32(b, nhor);
	w32(b, ndrop);
	w32(b, add ? 1 : 0);
	for (i = 0; i < nhor; i++) {
		w32(b, hor[i].kvs);
		w32(b, 0);
		w64(b, hor[i].epoch);
	}
	for (i = 0; i < ndrop; i++)
		w64(b, drop[i]);
	if (add)
		enc_run(b, add);
	end(b);
}

static void wkey(struct kv_mdc_buf *b, const void *key, uint32_t klen)
{
	static const uint8_t zero[8];

	wbytes(b, key, klen);
	wbytes(b, zero, -klen & 7u);
}

void kv_mdc_enc_leaves(struct kv_mdc_buf *b, uint64_t tag, const struct kv_mdc_leaves *le)
{
	uint32_t i;

	begin(b, KV_MDC_LEAVES, tag);
	w32(b, le->le_kvs);
	w32(b, le->le_ndrop);
	w32(b, le->le_nbegin);
	w32(b, le->le_nadd);
	w64(b, le->le_end);
	for (i = 0; i < le->le_ndrop; i++)
		w64(b, le->le_drop[i]);
	for (i = 0; i < le->le_nbegin; i++) {
		w64(b, le->le_begin[i].ml_id);
		w32(b, le->le_begin[i].ml_klen);
		w32(b, 0);
		wkey(b, le->le_begin[i].ml_key, le->le_begin[i].ml_klen);
	}
	for (i = 0; i < le->le_nadd; i++) {
		w64(b, le->le_add[i]->rd_leaf);
		enc_run(b, le->le_add[i]);
	}
	end(b);
}

void kv_mdc_enc_segs(struct kv_mdc_buf *b, uint64_t tag, bool is_cuts, uint32_t part,
		     const struct kv_mdc_seg *seg, uint32_t n)
{
	uint32_t i;

	begin(b, is_cuts ? KV_MDC_CUTS : KV_MDC_SEGS, tag);
	w32(b, part);
	w32(b, n);
	for (i = 0; i < n; i++) {
		w64(b, seg[i].sc_obj);
		w64(b, seg[i].sc_last);
		w32(b, seg[i].sc_len);
		w32(b, 0);
	}
	end(b);
}

void kv_mdc_enc_incarn(struct kv_mdc_buf *b, uint64_t tag, const struct kv_mdc_incarn *i)
{
	begin(b, KV_MDC_INCARN, tag);
	w32(b, i->mi_incarnation);
	w32(b, i->mi_nsegs);
	w64(b, i->mi_d);
	w64(b, i->mi_epoch);
	w64(b, i->mi_seq);
	w64(b, i->mi_ckpt);
	end(b);
}

void kv_mdc_enc_clean(struct kv_mdc_buf *b, uint64_t tag, uint64_t epoch, uint64_t seq)
{
	begin(b, KV_MDC_CLEAN, tag);
	w64(b, epoch);
	w64(b, seq);
	end(b);
}

void kv_mdc_enc_gone(struct kv_mdc_buf *b, uint64_t tag, const uint64_t *id, uint32_t n)
{
	uint32_t i;

	begin(b, KV_MDC_GONE, tag);
	w32(b, n);
	w32(b, 0);
	for (i = 0; i < n; i++)
		w64(b, id[i]);
	end(b);
}

void kv_mdc_enc_ckpt_add(struct kv_mdc_buf *b, uint64_t tag, const struct kv_mdc_ckpt *c)
{
	begin(b, KV_MDC_CKPT_ADD, tag);
	w64(b, c->mc_epoch);
	w64(b, c->mc_seq);
	w64(b, c->mc_time_ns);
	w64(b, c->mc_obj);
	w32(b, c->mc_len);
	w32(b, c->mc_crc);
	wbytes(b, c->mc_name, sizeof(c->mc_name));
	end(b);
}

void kv_mdc_enc_ckpt_drop(struct kv_mdc_buf *b, uint64_t tag, uint64_t obj)
{
	begin(b, KV_MDC_CKPT_DROP, tag);
	w64(b, obj);
	end(b);
}

void kv_mdc_buf_add(struct kv_mdc_buf *b, const void *p, size_t n)
{
	wbytes(b, p, n);
}

void kv_mdc_buf_free(struct kv_mdc_buf *b)
{
	free(b->mb_p);
	memset(b, 0, sizeof(*b));
}
