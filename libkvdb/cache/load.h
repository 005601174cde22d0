/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reads from devices on behalf of readers: how one goes to the device (read.c),
 * and how its bytes become pages (load.c). Blocking and asynchronous readers
 * use the same; they differ in which thread drives a read to its end.
 */
#ifndef KV_LOAD_H
#define KV_LOAD_H

#include <stdbool.h>

#include "cache/pages.h"

struct kv_aload;
struct kv_wait;

/* One read of an object, on its way to the device. */
struct kv_read {
	struct mpool_io rd_io;		/* its cookie is the address of this structure */
	int rd_err;			/* result: 0 or -errno */
	struct kv_read *rd_next;	/* posted after it */
	struct kv_wait *rd_wait;	/* what waits for it */
	/*
	 * What follows from it, run by the thread that reaped it: the next read of the same
	 * waiter (it may be the same one), or NULL. NULL itself: nothing follows.
	 */
	struct kv_read *(*rd_more)(struct kv_read *rd);
};

/*
 * Executes @n reads and waits for all of them; each has its own result. Many
 * threads that do so at once share submissions and reaping.
 */
void kv_reads_run(struct kvdb *db, struct kv_read **rd, unsigned n);
int kv_readers_init(struct kvdb *db);
void kv_readers_fini(struct kvdb *db);

/*
 * Consecutive pages on their way from the device: one read, repeated once when
 * a page's CRC is wrong, then published.
 */
struct kv_load {
	struct kv_read ld_read;		/* first: a completion names both */
	uint64_t ld_first;		/* page number */
	unsigned ld_n;			/* pages */
	unsigned ld_tries;
	uint32_t ld_bad;		/* bit per page that the latest reading brought damaged */
	const uint32_t *ld_crc;		/* expected, one per page; NULL: the reader checks */
	struct kv_page **ld_page;	/* claimed in the pool; NULL entries: reader's memory */
	bool ld_is_copied;		/* reader's memory, and the pool gets a copy */
	enum kv_read_for ld_for;
	int ld_err;			/* result */
};

/* A read of @n pages from page @first on, into @iov. */
void kv_load_init(struct kv_load *ld, struct mpool_obj *obj, uint64_t first, unsigned n,
		  const struct iovec *iov, unsigned niov, enum kv_read_for what);
/* Takes the result of the read. True: it must be read once more. */
bool kv_load_done(struct kvdb *db, struct kv_load *ld);

/*
 * Reads of one asynchronous operation. While a thread has one in hand, a read
 * of pages that are not in memory does not wait: it is noted here and fails
 * with -EINPROGRESS. Its owner has the noted reads done and runs the operation
 * again, which then finds their bytes.
 */
/*
 * Runs without progress; the next one waits where it is. A run ends at the first page that it misses
 * of a key, so they are more than the pages of all runs on the way to one (read/getm.c).
 */
#define KV_ASYNC_PAGES	5u	/* of each run */
#define KV_ASYNC_RUNS	640u

struct kv_async {
	struct kvdb *as_db;
	struct kv_aload *as_loads;	/* all of the operation */
	struct kv_aload *as_new;	/* noted, not started: kv_async_next() */
	unsigned as_run;		/* number of this run */
	unsigned as_tries;		/* of kv_async_try(), without progress */
	void *as_owner;
};

struct kv_aload {
	struct kv_load al_load;		/* first */
	struct kv_async *al_as;
	struct kv_aload *al_next;	/* of the operation */
	struct kv_aload *al_link;	/* noted, or on its owner's queue */
	struct kv_aload *al_same;	/* owner's: others that want the same pages */
	struct iovec al_iov;
	unsigned al_pages;		/* room in al_iov's buffer */
	unsigned al_run;		/* the run that has asked for it last */
	bool al_is_direct;		/* past the page pool */
	unsigned al_nth;		/* of kv_area_read(): one more; 0: it is not of one */
	bool al_is_done;
	uint32_t al_crc[KV_PAGES_MAX];
};

/* Begins a run of the operation in this thread; until kv_async_end(). */
void kv_async_begin(struct kv_async *as);
void kv_async_end(void);
/* The next read that the run noted, or NULL. */
struct kv_aload *kv_async_next(struct kv_async *as);
/* Its read completed with @err. True: it must be read once more. */
bool kv_async_done(struct kv_aload *al, int err);
/* Has all that the run noted done; the caller waits, outside of kv_enter() (RD-4). */
void kv_async_wait(struct kv_async *as);
/*
 * A run, which notes its reads, or waits for them where it is when many ran without progress. An
 * operation whose owner waits: do { kv_async_try(as); rc = ...; } while (kv_async_again(as, rc,
 * is_further)). It runs until @rc is another than -EINPROGRESS, and its reads are done in between,
 * outside of kv_enter() (RD-4). @is_further: the run came further than the one before.
 */
void kv_async_try(struct kv_async *as);
bool kv_async_again(struct kv_async *as, int rc, bool is_further);
/* The same pages, and what comes of one is there for the other too. */
bool kv_async_is_same(const struct kv_aload *a, const struct kv_aload *b);
/* Gives up a read that was not started; its operation is to be run again. */
void kv_async_drop(struct kv_aload *al);
/* True while this thread runs an asynchronous operation on @db. */
bool kv_async_is_on(struct kvdb *db);
/* Frees reads that the last run did not ask for: what it got is not asked for again. */
void kv_async_trim(struct kv_async *as);
/* Frees the reads; none may be under way. */
void kv_async_free(struct kv_async *as);

/*
 * Reads for others are booked in kv_readers, which also keeps memory of reads
 * that are done. NULL: no memory.
 */
struct kv_aload *kv_aload_new(struct kvdb *db, unsigned pages);
void kv_aload_free(struct kvdb *db, struct kv_aload *al);

#endif
