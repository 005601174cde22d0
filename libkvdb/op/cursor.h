/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Making cursors on a given snapshot and with more sources than the tree has.
 */
#ifndef KV_CURSOR_H
#define KV_CURSOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv_iter;
struct kv_iter_room;
struct kv_tree;
struct kvdb_cursor;
struct kvdb_cursor_opts;
struct kvdb_kvs;
struct kvdb_txn;

/*
 * struct kv_cursor_in - what a cursor shows
 * @tree: memtables and runs, or NULL; the cursor takes the caller's reference over
 * @seq: view: what memtables show
 * @extra: @nextra sources that go before everything in the tree, the newest first
 *   (a write set); the cursor takes them over. Inline values have at most 4096
 *   bytes; segments that entries refer to must outlive the cursor
 * @txn: whose snapshot this is, or NULL; the cursor looks at its age at every step
 * @changes: moves whenever a source of @extra changes; the cursor then drops what
 *   it read ahead and goes on from its place, of a transaction's writes only for those that
 *   lie in front of the walk. NULL: they never change
 * @room: kv_sources_open()'s: memory for iterators, or NULL
 */
struct kv_cursor_in {
	struct kv_tree *tree;
	uint64_t seq;
	struct kv_iter **extra;
	unsigned nextra;
	struct kvdb_txn *txn;
	const _Atomic(uint64_t) *changes;
	struct kv_iter_room *room;
};

/*
 * Checks @o and makes a cursor, BUSY: the keeper does not take what it shows (hold.h) before a call
 * of its owner has ended. On failure tree and sources are released too.
 */
int kv_cursor_new(struct kvdb_kvs *kvs, const struct kvdb_cursor_opts *o,
		  const struct kv_cursor_in *in, struct kvdb_cursor **out);

/* As kvdb_cursor_open_opts(), BUSY until it is closed: for kv_cursor_fill() and nothing else. */
int kv_cursor_open(struct kvdb_kvs *kvs, const struct kvdb_cursor_opts *opts,
		   struct kvdb_cursor **out);
/* What keeps what it shows; for tests. */
struct kv_hold;
struct kv_hold *kv_cursor_hold(struct kvdb_cursor *cur);

/* Pairs in a caller's memory: their descriptions from its start, their bytes from its end. */
struct kv_pairs {
	void *ps_buf;
	size_t ps_room;		/* between the two */
	size_t ps_n;
};

/*
 * kv_cursor_fill - what kvdb_cursor_next() would show, until an end of it or of the room
 * 0: an end, or the limit. -ENOBUFS: the next pair has no room. -EINPROGRESS, and
 * any other error: that of the next pair. What was added stays, the cursor stands
 * before what was not.
 */
int kv_cursor_fill(struct kvdb_cursor *cur, struct kv_pairs *out);
/* Entries that it has come by, shown or not. */
uint64_t kv_cursor_steps(const struct kvdb_cursor *cur);

/* What the iterators of a walk take, over two memtables and what comes below. */
#define KV_WALK_ROOM	640u

/* The snapshot of a transaction, and a look at what it has written to the store, into @own. */
int kv_txn_sources(struct kvdb_txn *txn, struct kvdb_kvs *kvs, struct kv_cursor_in *in,
		   struct kv_iter **own);
/* What deletes of many keys hide: those of the tree, and those of an open transaction. */
struct kv_cover;
struct kv_hidden {
	struct kv_cover *hi_cover;	/* or NULL */
	struct kvdb_txn *hi_txn;	/* or NULL */
	struct kvdb_kvs *hi_kvs;
};
/*
 * kv_sources_open - one walk over all that @in names, without what is hidden
 * It owns the sources in extra, but for a failure: then it is as if nothing had happened. @hidden
 * is looked at by each step.
 */
int kv_sources_open(struct kvdb_kvs *kvs, const struct kv_cursor_in *in, struct kv_hidden *hidden,
		    bool up, struct kv_iter **out);

/* Stamp of the entry that kvdb_cursor_next() returned last */
uint64_t kv_cursor_ent_seq(const struct kvdb_cursor *cur);
/* Before the first step: values that have expired are shown, too. */
void kv_cursor_show_expired(struct kvdb_cursor *cur);

#endif
