/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* One relocation, see reloc_job.c; reloc.c begins it and chooses its victims. */
#ifndef KV_RELOC_JOB_H
#define KV_RELOC_JOB_H

#include "mem/spans.h"

struct kv_victim;

/* What a job knows while it runs, under the job's lock. */
struct kv_rjob {
	uint8_t jb_classes;		/* bits: segments that no other job empties */
	struct kv_victim *jb_cand;
	unsigned jb_ncand, jb_cap;
	uint64_t jb_user;		/* live keys and values counted, as they are stored */
	uint64_t jb_horizon;
	uint64_t jb_now;		/* time of the count: segments stuck then stay */
	struct kv_mt_epochs jb_memtables;
	uint64_t jb_stores, jb_bytes;	/* in which it moved values; of segments it wrote */
	uint64_t jb_gain;		/* bytes that the job brought */
	uint64_t jb_left;		/* bytes that left staging */
	uint64_t jb_else;		/* live values in segments that other jobs empty */
	bool jb_is_over;		/* space is above the limit */
	bool jb_is_unflushed;		/* most of what is there could not */
	bool jb_tight;
	/* while a store is counted: where its values belong, and whether nowhere else */
	uint8_t jb_class;
	bool jb_strict;
	bool jb_stays;			/* what strict stores have in class jb_home moves there, */
	uint8_t jb_home;		/* and nothing else */
	uint64_t jb_wrong;		/* bytes of strict stores in the wrong class */
	uint8_t jb_how;			/* how its values are packed when they move */
	/* values whose class would not change stay where they are */
	bool jb_only;
	bool jb_whole;			/* rewritten runs leave nothing on staging */
	int jb_err;
	int jb_failed;			/* of a store that it could not move, or 0 */
	bool jb_is_early;		/* what it wanted may not be emptied yet */
};

bool kv_rjob_takes(const struct kv_rjob *jb, unsigned mclass);
/* What may be emptied from now on is what is durable now. */
void kv_rjob_look(struct kvdb *db, struct kv_rjob *jb);
/* R6: everything in it is in durable runs, and no memtable may refer to it. */
bool kv_rjob_may_empty(const struct kv_rjob *jb, struct kv_seg *s);
/* Finds the candidates; kv_rjob_end() follows, whatever comes. */
int kv_rjob_begin(struct kvdb *db, struct kv_rjob *jb);
/* What lives in them: entry by entry if @is_exact, else all that runs refer to. */
int kv_rjob_count(struct kvdb *db, struct kv_rjob *jb, bool is_exact);
/*
 * kv_rjob_space - space as if all that is no candidate were live
 * That of a memtable which was flushed a moment ago would else be made up for by copying what
 * is nearly full. What another job empties counts as it is.
 */
uint64_t kv_rjob_space(struct kvdb *db, const struct kv_rjob *jb);
/* The first @n candidates are victims. Bytes that live in them: */
uint64_t kv_rjob_todo(const struct kv_rjob *jb, unsigned n);
/* Bytes on staging that will leave it with the victims: what the same runs refer to there. */
uint64_t kv_rjob_reach(struct kvdb *db);
int kv_rjob_move(struct kvdb *db, struct kv_rjob *jb, bool only, bool whole);
/* What it brought. */
void kv_rjob_settle(struct kvdb *db, struct kv_rjob *jb, unsigned n);
void kv_rjob_end(struct kvdb *db, struct kv_rjob *jb);

#endif
