/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Reading what damage left of runs and segments, for verify.c and repair.c; salvage.c. */
#ifndef KV_SALVAGE_H
#define KV_SALVAGE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvdb/kvdb.h>

struct kv_ent;
struct kv_rec;
struct kv_run_desc;
struct kv_seg;
struct kv_trange;

/* Something that is wrong with a key block; keys in [lo_from, lo_to) may be missing. */
struct kv_lost {
	const char *lo_what;		/* the check that failed */
	uint64_t lo_run, lo_obj, lo_off;
	uint32_t lo_kvs;
	bool lo_is_missing;		/* entries are; else something about them is wrong */
	uint64_t lo_max_seq;		/* of what is missing, at most */
	uint16_t lo_flen, lo_tlen;	/* lo_tlen 0: no end */
	uint8_t lo_from[KVDB_KEY_MAX], lo_to[KVDB_KEY_MAX + 1];
};
typedef void kv_lost_fn(void *arg, const struct kv_lost *lo);
/* Deletes of many keys of a block; what the rows point to lives until the next call. */
typedef void kv_rows_fn(void *arg, const struct kv_trange *r);

struct kv_salvage_fns {
	kv_lost_fn *sf_lost;
	kv_rows_fn *sf_row;	/* or NULL */
	void *sf_arg;
};

/*
 * A run read page by page past every cache, which goes on after damage. A reference to a
 * segment that does not exist gives an entry with e_seg NULL.
 */
struct kv_salvage;
int kv_salvage_open(struct kvdb *db, const struct kv_run_desc *d, const struct kv_salvage_fns *fns,
		    struct kv_salvage **out);
/*
 * kv_salvage_next - the next entry; what it points to lives until the next call
 * 0, -ENOENT at the end, -errno when this cannot go on (memory).
 */
int kv_salvage_next(struct kv_salvage *sv, struct kv_ent *e);
void kv_salvage_close(struct kv_salvage *sv);

/*
 * RP6: of a segment that cannot be read in one piece the blocks that can; the others become
 * zeroes, which are no frame. -EIO: there are too many of those.
 */
int kv_salvage_blocks(struct kv_seg *s, uint8_t *buf, uint32_t len);
/* A record that is whole; @off: of it in the segment. 0, or -errno to stop. */
typedef int kv_rec_fn(void *arg, struct kv_seg *s, const struct kv_rec *r, uint64_t epoch,
		      uint32_t off);
/* Calls @fn for what is whole of a segment below sg_end; values that stay there are not checked. */
int kv_salvage_log(struct kvdb *db, struct kv_seg *s, kv_rec_fn *fn, void *arg);

#endif
