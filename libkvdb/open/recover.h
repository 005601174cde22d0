/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What is read of the segments (recover_scan.c) and decided about them (recover.c). One thread. */
#ifndef KV_RECOVER_H
#define KV_RECOVER_H

#include "seg/kv_omf.h"

struct kv_mdc_seg;
struct kv_mdc_state;
struct kv_seg;
struct kvdb;

/* ---- recover.c ---- */

enum kv_recover_as {
	KV_RECOVER_WRITE,	/* what memtables cannot hold is flushed meanwhile (RV25) */
	KV_RECOVER_READ,	/* writes nothing: -EFBIG if memtables would hold too much */
	KV_RECOVER_CHECK,	/* writes nothing, and takes no memory: everything is judged */
	KV_RECOVER_ALL		/* writes nothing, and takes the memory that it needs */
};

/*
 * kv_recover - R2, R3: find D, replay into memtables, commit the incarnation record
 * Called by kvdb_open() after the MDC is read (stores, runs, horizons known)
 * and before logs and threads exist.
 */
int kv_recover(struct kvdb *db, enum kv_recover_as as);

/*
 * For repair: replays every frame that is whole, whatever is missing before or
 * between, to the newest epoch; calls fn per stretch of a segment that is not.
 */
typedef void kv_hole_fn(void *arg, const struct kv_seg *s, uint32_t from, uint32_t to);
int kv_recover_lossy(struct kvdb *db, kv_hole_fn *fn, void *arg);
/*
 * Reads every segment whole, whatever the horizon says; calls fn per stretch that is
 * damaged. What an unfinished epoch left is not, if kv_recover() said where that begins.
 */
int kv_logs_check(struct kvdb *db, bool check_values, kv_hole_fn *fn, void *arg);

/* ---- recover_scan.c ---- */

/* A frame of which at least the header can be read. */
struct rv_frame {
	uint64_t vf_epoch;
	uint64_t vf_prev;	/* by its mark: the epoch that wrote before its own */
	uint32_t vf_off, vf_end;	/* end with padding */
	uint32_t vf_begin;	/* by its mark: where its epoch begins in the segment */
	uint32_t vf_crc, vf_chain;
	uint32_t vf_nrec;
	uint16_t vf_log;
	bool vf_is_good;	/* all of it is */
	bool vf_has_mark;
};

struct rv_desc {
	struct kv_desc vd_d;
	struct kv_desc_ent *vd_ent;
	uint64_t vd_obj;
	uint32_t vd_off;	/* of the frame */
};

struct rv_seg {
	struct kv_seg *vs_seg;
	const struct kv_mdc_seg *vs_known;	/* its entry in the container, or NULL */
	bool vs_skip;			/* wholly at or below B: not read */
	bool vs_is_unread;		/* repair: blocks of it could not be read */
	uint32_t vs_used;		/* after it all bytes are zero */
	uint32_t vs_cut;		/* sealed length from now on */
	uint64_t vs_last;		/* newest epoch within it */
	uint8_t *vs_image;		/* kept bytes, or NULL */
	uint32_t vs_base, vs_len;	/* where in the segment, and how many */
	/* in order; what lies between two, or is not good, is a hole */
	struct rv_frame *vs_frame;
	uint32_t vs_n, vs_cap;
	uint32_t vs_incarnation;	/* of the newest of them */
};

struct kvdb_kvs;

struct recovery {
	struct kvdb *rv_db;
	struct kv_mdc_state *rv_st;
	uint64_t rv_b, rv_floor;	/* smallest and largest durable horizon */
	uint64_t rv_d0, rv_d;
	uint64_t rv_epoch, rv_seq;	/* newest seen anywhere */
	uint32_t rv_incarnation;	/* the same, */
	uint64_t rv_newest;		/* and the object that has a frame of it */
	struct rv_seg *rv_seg;		/* ascending object id */
	uint32_t rv_n;
	struct rv_desc *rv_desc;
	uint32_t rv_ndesc, rv_desccap;
	uint64_t rv_kept, rv_keep_max;	/* bytes of images */
	uint64_t *rv_orphan;
	size_t rv_norphan;
	uint32_t rv_orphancap;
	uint64_t rv_newest_obj;
	/* where the epoch after D0 is not whole; object 0 = it has no descriptor */
	uint64_t rv_bad_obj;
	uint32_t rv_bad_off;
	bool rv_is_unlinked;		/* a descriptor names one that is not there */
	enum kv_recover_as rv_as;
	bool rv_is_dry;			/* records are judged, memtables stay as they are */
	bool rv_is_settled;		/* the incarnation's record is durable */
	bool rv_is_stuck;		/* a flush failed: the rest stays in memory */
	kv_hole_fn *rv_hole;		/* repair: goes on after damage */
	void *rv_arg;
};

/* rv_seg: all segments. 0 or -ENOMEM. */
int kv_rv_list(struct recovery *rv);
struct rv_seg *kv_rv_seg_by_id(struct recovery *rv, uint64_t id);
/* Bytes of the segment that may be looked at. */
uint32_t kv_rv_limit(const struct rv_seg *vs);
/* vs_image: @len bytes at @off, if it is not there. Repair reads from 0. */
int kv_rv_read(struct recovery *rv, struct rv_seg *vs, uint32_t off, uint32_t len);
/* Lets go of the image. */
void kv_rv_forget(struct rv_seg *vs);
/* Keeps the image for replay while there is memory for it. */
void kv_rv_done(struct recovery *rv, struct rv_seg *vs, uint32_t len, bool may_keep);
/*
 * Repair, when all segments were scanned and rv_d is the newest epoch: where what had been durable
 * ends, so that what cannot be read in front of it is no torn end.
 */
uint32_t kv_rv_end(const struct recovery *rv, const struct rv_seg *vs);
/* Then tells of the holes in front of that end which only other segments prove. */
int kv_rv_tell_tail(struct recovery *rv, struct rv_seg *vs);
/*
 * Of the frame at @p, whose payload is bad, the first whole record at @off or after it, to where
 * that moves; false: there is none. A record's CRC says where it lies.
 */
bool kv_rv_next_whole(const uint8_t *p, const struct kv_frame_hdr *h, uint32_t *off,
		      struct kv_rec *r);
/* Frames and descriptors of the image. */
int kv_rv_scan_image(struct recovery *rv, struct rv_seg *vs, uint32_t limit, bool check_values);
/* Reads the segment and scans it, if it has epochs above B. */
int kv_rv_scan(struct recovery *rv, struct rv_seg *vs);
/*
 * RV22: the first hole below @end after which no frame of an epoch up to @d follows, so that
 * nothing says that runs have what it held; @end: there is none.
 */
uint32_t kv_rv_first_hole(const struct rv_seg *vs, uint32_t end, uint64_t d);
/*
 * Records of epochs in (@lo, @hi], and above those that every store has in runs, into memtables.
 */
int kv_rv_replay_seg(struct recovery *rv, struct rv_seg *vs, uint64_t lo, uint64_t hi);
/*
 * What is written first: orphans are found, the incarnation's record is durable (R3), and they
 * go. After the last check of what is on media (RV24), in front of the first flush (RV25). Once.
 */
int kv_rv_settle(struct recovery *rv);
/* The store with number @id, of which @vs has a record; *out NULL: it was dropped. */
int kv_rv_find_store(struct recovery *rv, struct rv_seg *vs, uint32_t id, struct kvdb_kvs **out);
/* As kv_mt_active(): no other thread is there that could replace it. */
struct kv_mt *kv_rv_active_mt(const struct kvdb_kvs *kvs);
/* recover_txn.c: a commit record, which was checked, at @off of @vs (RV15). */
int kv_rv_replay_commit(struct recovery *rv, struct rv_seg *vs, const struct kv_rec *r,
			uint64_t epoch, uint32_t off);
/* replay.c: everything, in parts between which memtables are flushed when they hold too much. */
int kv_rv_replay(struct recovery *rv);

#endif
