/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Relocation: which values move (reloc.c), one job (reloc_job.c), how they move
 * (move.c), and the merge that carries them (merge.c). SPACE.md has the
 * invariants.
 */
#ifndef KV_RELOC_H
#define KV_RELOC_H

#include <pthread.h>

#include <kvdb/kvdb.h>

#include "seg/seg.h"

struct kv_ent;
struct kv_run;
struct kv_run_build;
struct kv_backoff;
struct kv_tree;

/* ---- move.c: values on their way into new segments ----------------------------------- */

struct kv_move;

/*
 * kv_move_open - for one merge of one store
 * @epoch: of what is written: a horizon that every store had reached when the job began (G6)
 * @mclass: where segments go, or else, unless @only, to the other class
 * @whole: what lies in the other class moves, too, whether its segment is a victim or not
 */
int kv_move_open(struct kvdb *db, const struct kvdb_kvs *kvs, uint64_t epoch, uint8_t mclass,
		 bool only, bool whole, struct kv_move **out);
/*
 * kv_move_add - the next entry of the merge
 * An entry that refers to a victim (sg_victim) is added to @rb with its new
 * reference, everything else as it is; order is kept.
 */
int kv_move_add(struct kv_move *mv, struct kv_run_build *rb, const struct kv_ent *e);
/* The merge has no more entries: what is held back goes into @rb. */
int kv_move_flush(struct kv_move *mv, struct kv_run_build *rb);
/*
 * kv_move_looks_ahead - whether values are to be moved in the order of media
 * Then the merge shows its entries twice: in rounds, each begun by kv_move_round(), all that
 * comes by kv_move_note() until that says no more, then kv_move_sweep(), then the same
 * entries by kv_move_add().
 */
bool kv_move_looks_ahead(const struct kv_move *mv);
void kv_move_round(struct kv_move *mv);
bool kv_move_note(struct kv_move *mv, const struct kv_ent *e);
int kv_move_sweep(struct kv_move *mv, struct kv_run_build *rb);
/* G2: all that was written is durable and sealed on return; before the edit. */
int kv_move_seal(struct kv_move *mv);
/* Lets go of the segments: what no durable run refers to by now is deleted. */
void kv_move_close(struct kv_move *mv);
uint64_t kv_move_bytes(const struct kv_move *mv);	/* of the segments that it wrote, whole */

/* ---- merge.c ---------------------------------------------------------------------------- */

/*
 * kv_merge_move - merge the runs of a store from the newest to the oldest that
 * refer to victims, and move the values on the way
 * @epoch, @mclass, @only, @whole: as for kv_move_open()
 * @bytes: those of the segments that were written are added, whole
 * 1 = done, 0 = nothing refers to a victim, -EAGAIN = not possible now
 * (cancelled, too many runs), -errno.
 */
int kv_merge_move(struct kvdb *db, struct kvdb_kvs *kvs, uint64_t epoch, uint8_t mclass,
		  bool only, bool whole, uint64_t *bytes);

/* How many runs from the newest on hold all references to victims, the @first ones none. */
unsigned kv_runs_to_victims(struct kv_run *const *run, unsigned n, bool whole, unsigned *first);

/* ---- staging.c ------------------------------------------------------------ */

/* Bytes that should leave staging, of @values that are there; 0: it is within its budget. */
uint64_t kv_staging_excess(struct kvdb *db, uint64_t values);
/* Log bytes of a memtable that is to be flushed, at most. */
uint64_t kv_staging_flush_share(struct kvdb *db);
/* Staging holds enough values that some will have to leave. */
bool kv_staging_is_filling(struct kvdb *db, uint64_t values);
/* How many of @n runs, the newest first, there are down to the oldest that refers to staging. */
uint32_t kv_runs_staged(struct kv_run *const *run, uint32_t n);
/*
 * kv_staged_debt - how near values of so many bytes bring staging to where the log must leave it; pure
 * @room: bytes for values
 * @rate: at which values left it last, bytes per second; 0: not known
 * Half way from where they leave on to full it permits @rate, more below and less above,
 * half of it at least: the log takes capacity when staging is full.
 */
uint32_t kv_staged_debt(uint64_t values, uint64_t room, uint64_t rate);
/* The same with the current room. */
uint32_t kv_staging_debt(struct kvdb *db, uint64_t values, uint64_t rate);
/* Staging has room for these bytes of values beside keys and what their merges need. */
bool kv_staging_has_room(struct kvdb *db, uint64_t values);

/* ---- choose.c ------------------------------------------------------------------------------- */

/* What is known of a segment that could be emptied. */
struct kv_victim {
	struct kv_seg *vi_seg;
	uint64_t vi_bytes;	/* of media that come free */
	uint64_t vi_live;	/* of them needed again elsewhere */
	uint64_t vi_age;	/* epochs since its last record */
	uint64_t vi_stay;	/* of vi_live: of stores whose values belong in its class */
	uint64_t vi_only[MPOOL_MCLASSES]; /* of vi_live: may go to no other class than this; */
	uint64_t vi_wrong;	/* of those what is in the other one */
	uint64_t vi_n;		/* values, unless they were counted one by one */
	uint64_t vi_heat;	/* what scans have paid for its order (heat.h) */
	bool vi_is_ordered;	/* a job for scans wrote it */
	bool vi_is_left;	/* the job leaves it: another merge has a run that refers to it */
};

/* Bytes of values that a job may write before anything comes free. */
struct kv_reloc_room {
	uint64_t rr_any;			/* wherever there is room */
	uint64_t rr_only[MPOOL_MCLASSES];	/* those that may go to no other class than this; */
	uint64_t rr_into[MPOOL_MCLASSES];	/* of them from the other: not its reserve */
};

/*
 * kv_reloc_choose - which segments to empty; pure
 * @v: candidates; sorted, the chosen first
 * @excess: bytes that are to come free
 * Returns how many were chosen.
 */
unsigned kv_reloc_choose(struct kv_victim *v, unsigned n, uint64_t excess,
			 const struct kv_reloc_room *room);
/*
 * kv_reloc_choose_old - which segments are to leave staging: the oldest
 * Segments of which half or more would stay are passed over.
 */
unsigned kv_reloc_choose_old(struct kv_victim *v, unsigned n, uint64_t excess, uint64_t room);
/* Which segments hold values that a policy wants elsewhere. */
unsigned kv_reloc_choose_wrong(struct kv_victim *v, unsigned n,
			       const struct kv_reloc_room *room);
/* What stays needs whole blocks again: else a handful of small values moves for ever. */
uint64_t kv_victim_stays(const struct kv_victim *v);

/* ---- space.c -------------------------------------------------------------------------------- */

struct kv_in_use {
	uint64_t iu_segs;	/* bytes of ended segments that durable runs refer to */
	uint64_t iu_runs;
	uint64_t iu_most;	/* of iu_runs: of one part of a store, which moves at once */
};
void kv_space_in_use(struct kvdb *db, struct kv_in_use *u);
uint64_t kv_tree_bytes(const struct kv_tree *tr);	/* of its runs */
/* Bytes of keys and values that a read would find now, about. */
int kv_space_live(struct kvdb *db, uint64_t *live);
typedef int kv_store_fn(struct kvdb *db, struct kvdb_kvs *kvs, struct kv_tree *tr, void *arg);
/*
 * Calls fn with every store and its tree, for what takes long (@is_long) without memtables: as
 * long as these are held, nothing that was logged since can be emptied. Stops at the first
 * result that is not 0.
 */
int kv_each_store(struct kvdb *db, kv_store_fn *fn, bool is_long, void *arg);

/* ---- pacer.c -------------------------------------------------------------------------------- */

#define KV_PACER_TAIL_NS	50000000u	/* a job's edit, when all is moved */

struct kv_pacer {
	_Atomic(uint64_t) pc_room;	/* log bytes that are to last it; 0: no job runs */
	_Atomic(uint64_t) pc_log;	/* log bytes at its beginning */
	_Atomic(uint64_t) pc_todo;	/* bytes that it moves, 0: not known yet; of them */
	_Atomic(uint64_t) pc_done;
	_Atomic(uint64_t) pc_move_ns;	/* when it began to move them */
	_Atomic(uint64_t) pc_began_ns;
	_Atomic(uint64_t) pc_took_ns;	/* the last one that moved something */
};

/*
 * kv_pacer_room - what writers may log while a job makes space; pure
 * @space: in use when it begins. To twice the excess that @amp allows beyond @live, and never
 * less than an eighth of that.
 */
uint64_t kv_pacer_room(uint64_t space, uint64_t live, double amp);
/* A job begins. @log: bytes logged so far, ever. */
void kv_pacer_begin(struct kv_pacer *pc, uint64_t room, uint64_t log, uint64_t now);
/* It knows what lives, and that it will move @todo bytes. */
void kv_pacer_moves(struct kv_pacer *pc, uint64_t room, uint64_t todo, uint64_t now);
void kv_pacer_moved(struct kv_pacer *pc, uint64_t bytes);
/* @usual: the next one will take about as long */
void kv_pacer_end(struct kv_pacer *pc, uint64_t now, bool usual);
/*
 * kv_pacer_debt - what lets writers log so much that room and job end together
 * While it is not known when that is, how much of the room is used. Any thread.
 */
uint32_t kv_pacer_debt(struct kv_pacer *pc, uint64_t log, uint64_t now);

/* ---- promise.c ------------------------------------------------------------------------ */

struct kv_promises {
	pthread_mutex_t ro_lock;
	/* bytes that the job with such victims still writes */
	uint64_t ro_due[KV_VICTIM_OLD + 1];
};

void kv_promises_init(struct kv_promises *ro);
void kv_promises_fini(struct kv_promises *ro);
/*
 * kv_promise_look - bytes of values that a job may write before anything comes free, with what
 * their segments take beside them; kv_promise_make() follows
 * @all: also what is kept for flushes
 */
void kv_promise_look(struct kvdb *db, struct kv_promises *ro, enum kv_victim_of who, bool all,
		     struct kv_reloc_room *out);
/* It will write these bytes of values, and keys; 0: nothing. */
void kv_promise_make(struct kvdb *db, struct kv_promises *ro, enum kv_victim_of who,
		     uint64_t bytes);
/* It may come to write these bytes, as far as there is room. */
void kv_promise_reach(struct kvdb *db, struct kv_promises *ro, enum kv_victim_of who,
		      uint64_t bytes);
void kv_promise_wrote(struct kv_promises *ro, enum kv_victim_of who, uint64_t bytes);
/* What all of them together will write at most. */
uint64_t kv_promises_due(struct kv_promises *ro);
/* The job writes no more: what is left of its promise ends. */
void kv_promise_end(struct kv_promises *ro, enum kv_victim_of who);

void kv_backoff_set(struct kvdb *db, struct kv_backoff *bo, uint64_t at);
/* False: it helped, or the pool has twice the room, or it was long ago. */
bool kv_backoff_is_active(struct kvdb *db, const struct kv_backoff *bo);

/* ---- reloc.c -------------------------------------------------------------------------------- */

struct kv_reloc;

/* @amp: space_amp_max, 0 = default */
int kv_reloc_init(struct kvdb *db, double amp);
void kv_reloc_fini(struct kvdb *db);
double kv_reloc_amp_max(struct kvdb *db);
/* One relocation when one is due: 1, 0, -errno. */
int kv_reloc_step(struct kvdb *db);
/* The same if it was asked for (kv_reloc_force()), and nothing else. */
int kv_reloc_asked_step(struct kvdb *db);
/* The next step looks at the space in use whatever the clock says, and allows for no burst. */
void kv_reloc_look(struct kvdb *db);
/* FS2: what it wrote could not be written: it pauses. */
void kv_reloc_failed(struct kvdb *db, int err);
bool kv_reloc_is_busy(struct kvdb *db);
/*
 * Until there is nothing to gain, or as much was emptied as there is now, whatever space_amp_max
 * says; look, and take it back.
 */
void kv_reloc_force(struct kvdb *db);
bool kv_reloc_is_forced(struct kvdb *db);
bool kv_reloc_unforce(struct kvdb *db);		/* true: it was */
/* Ends the running job; returns when it has ended. */
void kv_reloc_cancel(struct kvdb *db);
/* Fills what relocation knows of it. A database that is only read estimates at each call. */
int kv_reloc_status(struct kvdb *db, struct kvdb_compact_status *st);
/* A put found no room: false when another one asked a moment ago. */
bool kv_reloc_may_help(struct kvdb *db);
/* A put has no room: no job for scans runs on, or begins, until it was helped. */
void kv_reloc_rescue_begin(struct kvdb *db);
void kv_reloc_rescue_end(struct kvdb *db);
/* Full media: empties all segments that hold garbage, as far as there is room. */
void kv_reloc_make_room(struct kvdb *db);
/* True when the running job was asked to stop. */
bool kv_reloc_is_cancelled(struct kvdb *db);
/* The running job puts values in order for scans. */
bool kv_reloc_is_ordering(struct kvdb *db);
/* Bytes of the largest part of a store, which a move writes anew at once. */
uint64_t kv_reloc_key_bytes(struct kvdb *db);
/*
 * kv_space_burst - how far above @amp times @live space may be before a relocation begins; pure
 * @pace: at which the logs grow, bytes per second
 */
double kv_space_burst(double pace, uint64_t live, double amp);
/* kv_pacer_debt() of the database. */
uint32_t kv_reloc_debt(struct kvdb *db);
/* How near staging is to where the log must leave it, while jobs bring it room; else 0. */
uint32_t kv_reloc_staging_debt(struct kvdb *db);
/* What no job could move, because a store was being loaded, may be moved now. */
void kv_reloc_let_go(struct kvdb *db);
/* The job frees space: it may use what is kept for flushes. @whole: as for kv_move_open() */
bool kv_reloc_frees(struct kvdb *db, bool whole);
/* Bytes that running jobs will still write, at most. */
uint64_t kv_reloc_due(struct kvdb *db);
/* A job wrote these bytes of values; @whole: they leave staging. */
void kv_reloc_wrote(struct kvdb *db, bool whole, uint64_t bytes);
/* Bytes of all runs, at the last look. */
uint64_t kv_reloc_run_bytes(struct kvdb *db);
void kv_reloc_stats(struct kvdb *db, struct kvdb_stats *st);

#endif
