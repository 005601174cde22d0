/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Records of the metadata container and the state that they add up to. The
 * container is replayed from its first record; the state after record n is
 * the fold of records 1 .. n and of nothing else.
 */
#ifndef KV_MDC_OMF_H
#define KV_MDC_OMF_H

#include "db/props.h"

struct kv_horizon;
struct kv_run_desc;

#define KV_MDC_MAGIC	0x434d564bu	/* "KVMC" */
#define KV_MDC_HDR	24u		/* bytes */
#define KV_MDC_REC_MAX	(1u << 20)	/* bytes; the container takes 8 less */
#define KV_MDC_PART	16384u		/* segments in one CUTS or SEGS record, at most */
/* what a run takes beside its blocks, and a leaf beside its key, in kv_mdc_state_bytes() */
#define KV_MDC_RUN_BYTES 160u
#define KV_MDC_LEAF_BYTES 24u
#define KV_TAG_MARK	0x4b56ull	/* "VK" in the top 16 bits of a database's tag */

static inline bool kv_tag_is_ours(uint64_t tag)
{
	return tag >> 48 == KV_TAG_MARK;
}

/*
 * A record is a header: magic (4), type (2), format KV_FORMAT (2), bytes of the record with this
 * header (4), CRC32C of the record without this field (4), the database's tag (8); and a body: its
 * fields in order, bytes in parentheses. 0 is a field that must be zero. A name is padded by
 * zeroes.
 */
enum kv_mdc_type {
	/*
	 * First record: what the database is. uuid (16), format (2), space_amp_max in percent or 0
	 * (2), compat (4), ro_compat (4), incompat (4), segment bytes or 0 (4), next store id (4),
	 * next run id (8), floor epoch (8)
	 */
	KV_MDC_SUPER = 1,
	KV_MDC_KVS_ADD = 2,	/* store id (4), 0 (4), horizon (8), name (32) */
	KV_MDC_KVS_DROP = 3,	/* store id (4), 0 (4) */
	/*
	 * One change of a tree. Store id (4), h (4), d (4), a (4: 0 or 1); h x {store id (4), 0
	 * (4), horizon (8)}; d x dropped run id (8); a x run. A run: id (8), position (8), keys (8;
	 * no more than its n blocks can hold), min seq (8), max seq (8), newest epoch of a record
	 * (8), store id (4), n (4); n x {key block's object id (8), length (4), CRC of its footer
	 * (4)}
	 */
	KV_MDC_EDIT = 4,
	/*
	 * Of the next INCARN record. Part, from 0 (4), n (4); n x {segment object id (8), last
	 * epoch within the length (8), length (4), 0 (4)}
	 */
	KV_MDC_CUTS = 5,
	/*
	 * R3: replaces the table of segments by the parts before it. Incarnation (4), segments in
	 * these (4), D (8), newest epoch seen (8), newest seq seen (8), checkpoint object id (8)
	 */
	KV_MDC_INCARN = 6,
	/* as CUTS with part 0: adds segments whose seal is durable, and lengthens no entry */
	KV_MDC_SEGS = 7,
	KV_MDC_CLEAN = 8,	/* epoch (8), seq (8): each horizon is at least this epoch */
	/*
	 * Objects that may still exist, of dropped runs, and of runs until the EDIT that adds them
	 * (RV9). n (4), 0 (4); n x object id (8)
	 */
	KV_MDC_GONE = 9,
	/*
	 * Options of a store. Store id (4), n (4), n x {property (4), 0 (4), value (8)}: 1 prefix
	 * length in bytes, 2 time to live in seconds, 3 enum kvdb_policy, 4 enum kvdb_compress; 0
	 * if not listed. It changes what it lists. For a store that does not exist it waits for the
	 * KVS_ADD of that id; a later KVS_PROP replaces it whole, any other KVS_ADD forgets it. An
	 * unknown property or value fails the open.
	 */
	KV_MDC_KVS_PROP = 10,
	KV_MDC_TIME = 11,	/* engine time in ms (8); the greatest counts */
	KV_MDC_FEATURES = 12,	/* KV_FEAT_* (4), not 0; 0 (4): added to SUPER's incompat */
	/*
	 * As EDIT for many runs, and leaves that begin or end. Store id (4), d (4), b (4), a (4),
	 * leaf that ends or 0 (8); d x dropped run id (8); b x leaf that begins: {leaf id (8),
	 * length of its smallest key (4), 0 (4), the key, zeroes up to a multiple of 8}; a x {leaf
	 * id, 0 = upper (8), run}. Leaves and runs share one counter of ids.
	 */
	KV_MDC_LEAVES = 13,
	/* store id (4), 0 (4), new name (32): of an existing store, and no store's name */
	KV_MDC_KVS_RENAME = 16,
	/*
	 * Pins what a manifest lists. Epoch (8), seq (8), time in ns since 1970 (8), manifest
	 * object id (8), its length (4), CRC of its bytes (4), name (32)
	 */
	KV_MDC_CKPT_ADD = 17,
	KV_MDC_CKPT_DROP = 18,	/* manifest object id (8) */
	KV_MDC_TYPES
};

/* Bits of ms_incompat: a program that does not know one refuses the database. */
#define KV_FEAT_PACKED	1u	/* values may be packed */
#define KV_FEAT_LARGE	2u	/* values may be longer than KV_VALUE_PLAIN */
#define KV_FEAT_TXN_RANGES 4u	/* commit records may delete ranges */
#define KV_FEAT_TXN_PARTS 8u	/* commit records may have parts */
#define KV_FEATS	(KV_FEAT_PACKED | KV_FEAT_LARGE | KV_FEAT_TXN_RANGES | KV_FEAT_TXN_PARTS)

struct kv_mdc_super {
	uint8_t ms_uuid[16];
	uint64_t ms_tag;
	uint16_t ms_format;
	uint16_t ms_amp_percent;	/* space_amp_max given at create; 0 = default */
	uint32_t ms_compat, ms_ro_compat, ms_incompat;	/* feature masks */
	uint32_t ms_seg_bytes;	/* given at create; 0 = by the budget */
	uint32_t ms_next_kvs;	/* next store id, never reused */
	uint64_t ms_next_run;	/* next run id, never reused */
	uint64_t ms_floor;	/* every epoch <= it was proven durable by some horizon */
};

struct kv_mdc_seg {
	uint64_t sc_obj;
	uint64_t sc_last;	/* newest epoch of a frame within the length; 0 = none */
	uint32_t sc_len;	/* replay never reads past it */
};

struct kv_mdc_incarn {
	uint32_t mi_incarnation;
	uint32_t mi_nsegs;	/* in the CUTS records before it */
	uint64_t mi_d;
	uint64_t mi_epoch;	/* newest epoch seen anywhere on media */
	uint64_t mi_seq;
	uint64_t mi_ckpt;	/* R8: objects up to this id are no orphans */
};

struct kv_mdc_leaf {
	uint64_t ml_id;
	uint16_t ml_klen;
	uint8_t *ml_key;	/* its smallest key; empty for the first, and only for it */
};

struct kv_mdc_kvs {
	uint32_t mk_id;
	char mk_name[KVDB_NAME_MAX + 1];
	uint64_t mk_horizon;
	struct kv_props mk_props;
	uint32_t mk_nrun;
	struct kv_run_desc *mk_run;	/* ascending rd_pos */
	uint32_t mk_nleaf;
	struct kv_mdc_leaf *mk_leaf;	/* ascending keys */
};

/* A checkpoint: its state is in its manifest, an mblock of the same tag (ckpt_omf.h). */
struct kv_mdc_ckpt {
	char mc_name[KVDB_NAME_MAX + 1];
	uint64_t mc_epoch;	/* it holds every record of epochs up to this one, no later */
	uint64_t mc_seq;	/* above every sequence number in it */
	uint64_t mc_time_ns;	/* since 1970 */
	uint64_t mc_obj;	/* the manifest, and the checkpoint's id */
	uint32_t mc_len, mc_crc;	/* bytes, CRC32C of them */
};

struct kv_mdc_state {
	bool st_has_super;
	bool st_clean;			/* the newest record is CLEAN */
	struct kvdb *st_waits;		/* for memory: what is folded is on media and counts */
	struct kv_mdc_super st_super;
	struct kv_mdc_incarn st_inc;
	uint32_t st_nkvs;
	struct kv_mdc_kvs st_kvs[KVDB_KVS_MAX];
	struct kv_mdc_seg *st_seg;	/* ascending sc_obj */
	size_t st_nseg;
	uint32_t st_segcap;
	struct kv_mdc_seg *st_part;	/* CUTS of an INCARN that has not come yet */
	size_t st_npart;
	uint32_t st_partcap;
	uint32_t st_parts;
	uint64_t *st_gone;
	uint64_t st_gone_most;		/* no id in it is greater */
	size_t st_ngone;
	uint32_t st_gonecap;
	uint64_t st_time;		/* greatest engine time recorded, ms; 0 = none */
	uint32_t st_prop_kvs;		/* the store that st_props wait for, 0 = none */
	struct kv_props st_props;
	struct kv_mdc_ckpt *st_ckpt;	/* in order of making */
	size_t st_nckpt;
	uint32_t st_ckptcap;
};

/* A record under construction. mb_err is sticky: -ENOMEM. */
struct kv_mdc_buf {
	uint8_t *mb_p;
	size_t mb_len, mb_cap;
	int mb_err;
};

/* Each replaces what the buffer holds by one whole record. */
void kv_mdc_enc_super(struct kv_mdc_buf *b, const struct kv_mdc_super *s);
void kv_mdc_enc_kvs_add(struct kv_mdc_buf *b, uint64_t tag, uint32_t id, const char *name,
			uint64_t horizon);
void kv_mdc_enc_features(struct kv_mdc_buf *b, uint64_t tag, uint32_t incompat);
void kv_mdc_enc_time(struct kv_mdc_buf *b, uint64_t tag, uint64_t ms);
void kv_mdc_enc_kvs_prop(struct kv_mdc_buf *b, uint64_t tag, uint32_t id, const struct kv_props *p,
			 uint32_t which);
void kv_mdc_enc_kvs_drop(struct kv_mdc_buf *b, uint64_t tag, uint32_t id);
void kv_mdc_enc_kvs_rename(struct kv_mdc_buf *b, uint64_t tag, uint32_t id, const char *name);
void kv_mdc_enc_edit(struct kv_mdc_buf *b, uint64_t tag, uint32_t kvs,
		     const struct kv_run_desc *add, const uint64_t *drop, uint32_t ndrop,
		     const struct kv_horizon *hor, uint32_t nhor);
/* One LEAVES record. */
struct kv_mdc_leaves {
	uint32_t le_kvs;
	const uint64_t *le_drop;
	uint32_t le_ndrop;
	uint64_t le_end;	/* id of a leaf, 0 = none */
	const struct kv_mdc_leaf *le_begin;
	uint32_t le_nbegin;
	const struct kv_run_desc *const *le_add;
	uint32_t le_nadd;
};
void kv_mdc_enc_leaves(struct kv_mdc_buf *b, uint64_t tag, const struct kv_mdc_leaves *le);
void kv_mdc_enc_segs(struct kv_mdc_buf *b, uint64_t tag, bool is_cuts, uint32_t part,
		     const struct kv_mdc_seg *seg, uint32_t n);
void kv_mdc_enc_incarn(struct kv_mdc_buf *b, uint64_t tag, const struct kv_mdc_incarn *i);
void kv_mdc_enc_clean(struct kv_mdc_buf *b, uint64_t tag, uint64_t epoch, uint64_t seq);
void kv_mdc_enc_gone(struct kv_mdc_buf *b, uint64_t tag, const uint64_t *id, uint32_t n);
void kv_mdc_enc_ckpt_add(struct kv_mdc_buf *b, uint64_t tag, const struct kv_mdc_ckpt *c);
void kv_mdc_enc_ckpt_drop(struct kv_mdc_buf *b, uint64_t tag, uint64_t obj);
/* Adds bytes after what the buffer holds. */
void kv_mdc_buf_add(struct kv_mdc_buf *b, const void *p, size_t n);
void kv_mdc_buf_free(struct kv_mdc_buf *b);
/* CRC32C of a record's @len bytes but for the CRC itself. */
uint32_t kv_mdc_rec_crc(const uint8_t *p, size_t len);

/*
 * kv_mdc_fold - apply one record to the state
 * Returns 0, the positive number of the check that failed (the state is then
 * of no use), -EOPNOTSUPP (a format or feature that is not known), -ENOMEM.
 */
int kv_mdc_fold(struct kv_mdc_state *st, const uint8_t *rec, size_t len);
void kv_mdc_state_free(struct kv_mdc_state *st);

struct kv_mdc_kvs *kv_mdc_state_kvs(struct kv_mdc_state *st, uint32_t id);
const struct kv_mdc_seg *kv_mdc_state_seg(const struct kv_mdc_state *st, uint64_t obj);
/* @id ascending; those that are not there are passed over. */
void kv_mdc_state_segs_del(struct kv_mdc_state *st, const uint64_t *id, size_t n);
void kv_mdc_state_gone_del(struct kv_mdc_state *st, uint64_t obj);
/* Sorted ids of the key blocks of all runs, and of what is to be deleted; NULL: no memory. */
uint64_t *kv_mdc_state_blocks(const struct kv_mdc_state *st, bool with_gone, size_t *n);
/* Bytes that a fresh container with this state takes, at most. */
uint64_t kv_mdc_state_bytes(const struct kv_mdc_state *st);

#endif
