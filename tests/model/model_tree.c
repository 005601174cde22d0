/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Every order of a bounded number of writes, deletes by key, prefix and range,
 * syncs, memtable switches, flushes, merges, relocations in their steps, views,
 * deletions of value blocks, checkpoints and crashes, on two keys: breadth
 * first, so what is found has the shortest schedule.
 *
 * What is modelled is what libkvdb does (libkvdb/compact/README.md), one store of it:
 *  - a view is a number and the whole tree of its birth, memtables and runs, so
 *    runs keep one version of a key (T5);
 *  - the stamp of a write is the current sequence number; a view, a range delete
 *    and a memtable switch count it up; a version overwritten under the same
 *    stamp is unlinked (M3);
 *  - a flush commits an edit when its records are durable (R4), then publishes;
 *  - tombstones go when nothing older is left and no view may still look for a
 *    conflict (T3, T6);
 *  - relocation is a merge that copies the values of one block, makes the copy
 *    durable, commits one edit and publishes (G1 to G4); in a leaf it leaves out what upper
 *    runs hide;
 *  - a split ends the one list of runs: what a merge with the oldest run wrote lies
 *    in two leaves, a key each, what is newer in the upper level; a spill takes the
 *    oldest upper runs into both leaves, a join merges the leaves, each with one edit
 *    (LF1 to LF4); leaves merge for themselves;
 *  - merges take time: some read, and replace what they read later, two at once and
 *    beside a relocation where they take other runs (LF7, LF8);
 *  - a block is deleted when it is sealed, its records are below the horizon and
 *    no run, memtable, view, checkpoint or job refers to it (RV7, C3);
 *  - a crash keeps the edits and a prefix of the records that is at least what
 *    was synced, and replays what lies above the horizon (RV6), in two parts: the
 *    first is frozen behind its last record, and flushed as any other (RV25).
 * Not modelled: several stores and logs, the states of one write, caches.
 *
 * In every state: what a get finds now, at every view and in the checkpoint is
 * what the history of writes says, in a block that exists; and a view that looks
 * for conflicts sees every write that came after it.
 *
 * Each rule can be broken by its name; the model must then show a violation. A
 * state is kept as a hash of 64 bits, its schedule by what led to it. (That a
 * memtable may hold what a range tombstone of a run covers cannot come about
 * here, where writes are atomic; that rule is kept, but breaking it shows nothing.)
 *
 *   model_tree [RULE...] [writes=3] [views=1] [moves=1] ...   one run, told in full
 */
#include "model_explore.h"

/* ---- writes, views, memtables --------------------------------------------------- */

static void mem_insert(ent *mem, ent e)
{
	unsigned i, at = MEM_ENT;

	for (i = 0; i < MEM_ENT; i++) {
		/* overwritten under the same stamp */
		if (mem[i] && !is_range(e) && !is_range(mem[i]) && E_KEY(mem[i]) == E_KEY(e) &&
		    E_SEQ(mem[i]) == E_SEQ(e)) {
			at = i;
			break;
		}
		if (!mem[i]) {
			at = i;
			break;
		}
	}
	mem[at] = e;
}

static void write_one(const struct state *old, enum kind kind, unsigned key)
{
	static const char *const name[] = { "", "put", "delete", "prefix delete", "range delete" };
	struct state s = *old;
	ent e = ENT(kind, key, s.seq, kind == PUT ? s.cur : 0, s.nop + 1);

	s.op[s.nop++] = e;
	mem_insert(s.now.mem[0], e);
	if (kind >= PREFIX)
		s.seq++;
	s.prefixes += kind == PREFIX;
	s.ranges += kind == RANGE;
	name_act("%s %c", name[kind], kind == PREFIX ? '*' : 'a' + (char)key);
	emit(&s);
}

static void writes(const struct state *old)
{
	unsigned k;

	if (old->nop == bound.writes || old->seq >= SEQ_MAX)
		return;
	for (k = 0; k < KEYS; k++) {
		write_one(old, PUT, k);
		write_one(old, DEL, k);
	}
	if (old->prefixes < bound.prefixes)
		write_one(old, PREFIX, 0);
	if (old->ranges < bound.ranges)
		write_one(old, RANGE, 0);
}

static void views(const struct state *old)
{
	struct state s;
	unsigned i;

	for (i = 0; i < VIEWS; i++) {
		s = *old;
		if (s.view[i].at) {
			memset(&s.view[i], 0, sizeof(s.view[i]));
			name_act("close view at %u", old->view[i].at);
			emit(&s);
		} else if (s.views < bound.views && s.nop && s.seq < SEQ_MAX) {
			s.views++;
			s.view[i].at = s.seq++;
			s.view[i].tree = s.now;
			name_act("open view at %u", s.view[i].at);
			emit(&s);
			return;
		}
	}
}

static void memtables(const struct state *old)
{
	struct state s = *old;

	if (s.synced < s.nop) {
		s.synced = s.nop;
		name_act("sync");
		emit(&s);
	}
	s = *old;
	if (!s.now.has_frozen && s.now.mem[0][0] && s.seq < SEQ_MAX && s.nblk < BLOCKS &&
	    s.switches < bound.switches) {
		memcpy(s.now.mem[1], s.now.mem[0], sizeof(s.now.mem[0]));
		memset(s.now.mem[0], 0, sizeof(s.now.mem[0]));
		s.now.has_frozen = 1;
		s.boundary = s.nop;
		s.seq++;
		s.cur = s.nblk++;
		s.switches++;
		name_act("switch memtables");
		emit(&s);
	}
	s = *old;
	if (s.rolls < bound.rolls && s.nblk < BLOCKS && s.nop && E_BLK(s.op[s.nop - 1]) == s.cur) {
		s.cur = s.nblk++;
		s.rolls++;
		name_act("new log block %u", s.cur);
		emit(&s);
	}
}

/* ---- flush and merge -------------------------------------------------------------- */

static bool runs_insert(struct runs *r, unsigned at, const ent *out, enum part part)
{
	if (!out[0])
		return true;
	if (r->n == RUNS)
		return false;
	memmove(r->r[at + 1], r->r[at], (r->n - at) * sizeof(r->r[0]));
	memmove(&r->part[at + 1], &r->part[at], r->n - at);
	memcpy(r->r[at], out, sizeof(r->r[0]));
	r->part[at] = (uint8_t)part;
	r->n++;
	return true;
}

static void runs_remove(struct runs *r, unsigned at, unsigned n)
{
	memmove(r->r[at], r->r[at + n], (r->n - at - n) * sizeof(r->r[0]));
	memmove(&r->part[at], &r->part[at + n], r->n - at - n);
	r->n = (uint8_t)(r->n - n);
	memset(r->r[r->n], 0, n * sizeof(r->r[0]));
	memset(&r->part[r->n], 0, n);
}

/* Where the run lies in its part; r->n: it is not there. */
static unsigned run_find(const struct runs *r, enum part part, const ent *run)
{
	unsigned i = 0;

	while (i < r->n && (r->part[i] != part || memcmp(r->r[i], run, sizeof(r->r[i]))))
		i++;
	return i;
}

/* The first run of a part, or where it would be. */
static unsigned part_first(const struct runs *r, enum part part)
{
	unsigned i = 0;

	while (i < r->n && r->part[i] < part)
		i++;
	return i;
}

/* Does no run behind the inputs hold older versions of the key? */
static bool is_last_of(const struct runs *r, unsigned first, unsigned n, unsigned key)
{
	unsigned i;

	for (i = first + n; i < r->n; i++)
		if (is_at(r, i, key))
			return false;
	return true;
}

/* Does anything outside of the inputs hold what the range tombstone covers? */
static bool covers_outside(const struct state *s, ent t, unsigned first, unsigned n,
			   bool frozen_too)
{
	unsigned k, i;

	for (k = 0; k < KEYS; k++) {
		if (!covers(t, k) || (n && !is_at(&s->now.runs, first, k)))
			continue;
		for (i = 0; i < s->now.runs.n; i++)
			if ((i < first || i >= first + n) && is_at(&s->now.runs, i, k) &&
			    !(broken[leaf_ranges_ignore_upper] && n &&
			      s->now.runs.part[first] != s->now.runs.part[i]) &&
			    newest(s->now.runs.r[i], RUN_ENT, k, E_SEQ(t)))
				return true;
		for (i = 0; i < 1u + frozen_too; i++)
			if (newest(s->now.mem[i], MEM_ENT, k, E_SEQ(t)))
				return true;
	}
	return false;
}

static bool is_looked_for(const struct state *s, ent e)
{
	unsigned i;

	for (i = 0; i < VIEWS && !broken[tombs_ignore_views]; i++)
		if (s->view[i].at && E_SEQ(e) > s->view[i].at)
			return true;
	return false;
}

/*
 * One version of each key of @in, and the range tombstones that are still
 * needed. False: does not fit.
 */
static bool squeeze(const struct state *s, const ent *in, unsigned nin, unsigned first, unsigned n,
		    bool is_flush, ent *out)
{
	unsigned k, i, nout = 0;

	memset(out, 0, RUN_ENT * sizeof(*out));
	for (k = 0; k < KEYS; k++) {
		ent e = newest(in, nin, k, NOW);

		if (!e || (E_SEQ(e) <= newest_cover(in, nin, k, NOW) &&
			   !(is_flush && broken[flush_keeps_covered])))
			continue;
		if (E_KIND(e) == DEL && !is_flush &&
		    ((is_last_of(&s->now.runs, first, n, k) && !is_looked_for(s, e)) ||
		     broken[merge_drops_tombs]))
			continue;
		if (broken[is_flush ? flush_trusts_newer : merge_trusts_memtable] &&
		    newest(s->now.mem[0], MEM_ENT, k, NOW))
			continue;
		out[nout++] = e;
	}
	for (i = 0; i < nin; i++) {
		if (!in[i] || !is_range(in[i]) ||
		    broken[is_flush ? flush_keeps_covered : merge_drops_ranges])
			continue;
		if (!is_looked_for(s, in[i]) && !covers_outside(s, in[i], first, n, !is_flush))
			continue;
		if (nout == RUN_ENT)
			return false;
		out[nout++] = in[i];
	}
	return true;
}

static void flush(const struct state *old)
{
	struct state s = *old;
	ent out[RUN_ENT];

	if (!s.now.has_frozen || s.job.phase == COMMITTED)
		return;
	if (!squeeze(&s, s.now.mem[1], MEM_ENT, 0, 0, true, out))
		return;
	if (!s.is_flushing) {
		if (s.synced < s.boundary && !broken[flush_unsynced])
			return;
		if (!runs_insert(&s.media, 0, out, UPPER))
			return;
		s.horizon = broken[replay_behind] ? s.nop : s.boundary;
		s.is_flushing = 1;
		name_act("flush: commit the edit");
	} else {
		/* what was committed is what is shown */
		if (s.media.n > s.now.runs.n)
			memcpy(out, s.media.r[0], sizeof(out));
		else
			memset(out, 0, sizeof(out));
		if (!runs_insert(&s.now.runs, 0, out, UPPER))
			return;
		memset(s.now.mem[1], 0, sizeof(s.now.mem[1]));
		s.now.has_frozen = 0;
		s.boundary = 0;
		s.is_flushing = 0;
		name_act("flush: show the run");
	}
	emit(&s);
}

static bool inputs(const struct runs *r, unsigned first, unsigned n, ent *in)
{
	unsigned i;

	for (i = 0; i < n; i++)
		memcpy(in + i * RUN_ENT, r->r[first + i], sizeof(r->r[0]));
	if (broken[merge_swaps] && n > 1)
		for (i = 0; i < RUN_ENT; i++) {
			ent *a = &in[i], b = in[RUN_ENT + i];

			if (*a && b && !is_range(*a) && !is_range(b) && E_KEY(*a) == E_KEY(b))
				*a = 0;
		}
	return true;
}

/* Is one of the runs in [@at, @at + @n) an input that begins with @top? */
static bool overlaps(const struct runs *r, unsigned at, unsigned n, enum part part, const ent *top,
		     unsigned of)
{
	unsigned i = run_find(r, part, top);

	return of && i < r->n && at < i + of && i < at + n;
}

/* LF7: another merge is to replace one of the runs. */
static bool is_taken(const struct state *s, unsigned at, unsigned n)
{
	const struct runs *r = &s->now.runs;
	unsigned i;

	for (i = 0; i < MERGES && !broken[merges_share_runs]; i++) {
		const struct merge *m = &s->merge[i];

		if (m->kind && (overlaps(r, at, n, m->part, m->top, m->n) ||
				overlaps(r, at, n, LEAF_B, m->top_b, m->n_b)))
			return true;
	}
	return s->job.phase && !broken[job_beside_merge] &&
	       overlaps(r, at, n, s->job.part, s->job.top, s->job.n);
}

static bool is_running(const struct state *s, enum kind_of_merge kind)
{
	unsigned i;

	for (i = 0; i < MERGES; i++)
		if (s->merge[i].kind == kind)
			return true;
	return false;
}

/* What of a merge's output belongs to the leaf of a key. */
static void cut(const ent *out, unsigned key, ent *piece)
{
	unsigned i, n = 0;

	memset(piece, 0, RUN_ENT * sizeof(*piece));
	for (i = 0; i < RUN_ENT && out[i]; i++) {
		bool goes = is_range(out[i]) ? covers(out[i], key) : E_KEY(out[i]) == key;

		if (is_range(out[i]) && key && broken[spill_ranges_once])
			goes = false;
		if (goes)
			piece[n++] = out[i];
	}
}

/* Both pieces on top of their leaves. Only a crash between two edits shows the first alone. */
static bool to_leaves(struct state *s, const ent *out)
{
	struct runs *r = &s->now.runs;
	ent piece[RUN_ENT];
	unsigned k, at;

	for (k = 0; k < KEYS; k++) {
		cut(out, k, piece);
		at = part_first(r, LEAF_A + k + broken[spill_under_leaf]);
		if (!runs_insert(r, at, piece, LEAF_A + k))
			return false;
		if (!k && broken[spill_two_edits])
			s->media = *r;
	}
	if (!broken[spill_two_edits])
		s->media = *r;
	return true;
}

/* Takes the inputs out; where they were. */
static unsigned take_out(struct runs *r, enum part part, const ent *top, unsigned n)
{
	unsigned at = run_find(r, part, top);

	if (at == r->n || !n)	/* replaced by another one, which is older than it claims */
		return part_first(r, part);
	runs_remove(r, at, at + n > r->n ? r->n - at : n);
	return at;
}

/* The edit of a merge. False: does not fit. */
static bool replace(struct state *s, const struct merge *m)
{
	struct runs *r = &s->now.runs;
	unsigned at = take_out(r, m->part, m->top, m->n);

	s->shapes += m->kind != MERGE;
	switch (m->kind) {
	case SPLIT:
		for (; at < r->n; at++)
			r->part[at] = LEAF_A;
		r->is_split = 1;
		/* fall through */
	case SPILL:
		return to_leaves(s, m->out);
	case JOIN:
		take_out(r, LEAF_B, m->top_b, m->n_b);
		r->is_split = 0;
		if (!runs_insert(r, broken[join_on_top] ? 0 : r->n, m->out, UPPER))
			return false;
		break;
	default:
		if (!runs_insert(r, at, m->out, m->part))
			return false;
	}
	s->media = *r;
	return true;
}

static const char *const merge_name[] = { "", "merge", "spill", "split", "join" };

/* A merge at once, or its beginning. */
static void begin(const struct state *old, const struct merge *m)
{
	struct state s = *old;
	unsigned i = 0;

	if (replace(&s, m)) {
		name_act("%s of %u runs", merge_name[m->kind], m->n + m->n_b);
		emit(&s);
	}
	s = *old;
	while (i < MERGES && s.merge[i].kind)
		i++;
	if (s.merges == bound.merges || i == MERGES)
		return;
	s.merges++;
	s.merge[i] = *m;
	name_act("%s: read %u runs", merge_name[m->kind], m->n + m->n_b);
	emit(&s);
}

static void ends(const struct state *old)
{
	unsigned i;

	for (i = 0; i < MERGES; i++) {
		struct state s = *old;

		if (!s.merge[i].kind || s.is_flushing || s.job.phase == COMMITTED)
			continue;
		memset(&s.merge[i], 0, sizeof(s.merge[i]));
		if (!replace(&s, &old->merge[i]))
			continue;
		name_act("%s: replace", merge_name[old->merge[i].kind]);
		emit(&s);
	}
}

/* One that reads [@first, @first + @n). */
static void merge(const struct state *old, enum kind_of_merge kind, unsigned first, unsigned n)
{
	const struct runs *r = &old->now.runs;
	struct state s = *old;
	struct merge m = { .kind = (uint8_t)kind, .n = (uint8_t)n, .part = r->part[first] };
	ent in[RUNS * RUN_ENT];

	if (!n || is_taken(old, first, n))
		return;
	memcpy(m.top, r->r[first], sizeof(m.top));
	inputs(r, first, n, in);
	if (kind == SPILL && broken[spill_drops_tombs])
		s.now.runs.n = (uint8_t)(first + n);
	if (squeeze(&s, in, n * RUN_ENT, first, n, false, m.out))
		begin(old, &m);
}

static void merges(const struct state *old)
{
	const struct runs *r = &old->now.runs;
	unsigned first, n;

	if (old->is_flushing || old->job.phase == COMMITTED)
		return;
	/* LF4: neighbours in one part */
	for (first = 0; first < r->n; first++)
		for (n = 1; first + n <= r->n && r->part[first] == r->part[first + n - 1]; n++)
			merge(old, MERGE, first, n);
}

/* ---- leaves ------------------------------------------------------------------------ */

static void join(const struct state *old)
{
	const struct runs *r = &old->now.runs;
	struct merge m = { .kind = JOIN, .part = LEAF_A };
	unsigned k, i, j, nout = 0, a = part_first(r, LEAF_A), b = part_first(r, LEAF_B);
	ent in[RUNS * RUN_ENT], piece[RUN_ENT];

	if (is_taken(old, a, r->n - a) || is_running(old, JOIN))
		return;
	m.n = (uint8_t)(b - a);
	m.n_b = (uint8_t)(r->n - b);
	if (m.n)
		memcpy(m.top, r->r[a], sizeof(m.top));
	if (m.n_b)
		memcpy(m.top_b, r->r[b], sizeof(m.top_b));
	for (k = 0; k < KEYS; k++) {
		unsigned first = k ? b : a, n = k ? m.n_b : m.n;

		inputs(r, first, n, in);
		if (!n || !squeeze(old, in, n * RUN_ENT, first, n, false, piece)) {
			if (n)
				return;
			continue;
		}
		/* a prefix delete may come from both */
		for (i = 0; i < RUN_ENT && piece[i]; i++) {
			for (j = 0; j < nout && m.out[j] != piece[i]; j++)
				;
			if (j < nout)
				continue;
			if (nout == RUN_ENT)
				return;
			m.out[nout++] = piece[i];
		}
	}
	begin(old, &m);
}

/* LF8: bounds stay as they are while a spill has what it is to write there. */
static void leaves(const struct state *old)
{
	const struct runs *r = &old->now.runs;
	unsigned first, upper = part_first(r, LEAF_A), n;

	if (old->is_flushing || old->job.phase == COMMITTED || old->shapes == bound.shapes)
		return;
	for (first = 0; first < upper; first++) {
		n = upper - first;
		if (!r->is_split)
			merge(old, SPLIT, first, n - (broken[split_leaves_runs] && n > 1));
		else if (is_running(old, JOIN) && !broken[spill_beside_join])
			continue;
		else if (broken[spill_newest] && first)
			merge(old, SPILL, 0, first);
		else
			merge(old, SPILL, first, n);
		if (r->is_split && broken[spills_overlap] && is_taken(old, upper - 1, 1))
			for (n--; n; n--)
				merge(old, SPILL, first, n);
	}
	if (r->is_split && (!is_running(old, SPILL) || broken[spill_beside_join]))
		join(old);
}

/* ---- relocation ------------------------------------------------------------------- */

static bool refers(const ent *e, unsigned n, unsigned blk)
{
	unsigned i;

	for (i = 0; i < n; i++)
		if (E_KIND(e[i]) == PUT && E_BLK(e[i]) == blk)
			return true;
	return false;
}

/* G3: a move leaves out what runs in front hold or cover: of its part, and upper ones. */
static void leave_hidden(const struct state *s, enum part part, unsigned first, ent *out)
{
	const struct runs *r = &s->now.runs;
	unsigned top = part_first(r, part), upper = part_first(r, LEAF_A), n = 0, i, j;
	ent in[RUN_ENT];

	memcpy(in, out, sizeof(in));
	memset(out, 0, sizeof(in));
	for (i = 0; i < RUN_ENT && in[i]; i++) {
		unsigned k = E_KEY(in[i]);
		bool hidden = broken[move_trusts_memtable] &&
			      newest(s->now.mem[0], MEM_ENT, k, NOW);

		for (j = 0; j < first; j++)
			hidden |= (j < upper || j >= top) &&
				  (newest(r->r[j], RUN_ENT, k, NOW) ||
				   E_SEQ(in[i]) <= newest_cover(r->r[j], RUN_ENT, k, NOW));
		if (is_range(in[i]) || !hidden)
			out[n++] = in[i];
	}
}

/* The runs [@first, @first + @n) of a part; those in front of them stay. */
static void job_begin(const struct state *old, unsigned blk, enum part part, unsigned first,
		      unsigned n)
{
	struct state s = *old;
	ent in[RUNS * RUN_ENT];
	unsigned i;

	inputs(&s.now.runs, first, n, in);
	if (!refers(in, n * RUN_ENT, blk) || (is_taken(old, first, n) && !broken[job_beside_merge]))
		return;
	if (!squeeze(&s, in, n * RUN_ENT, first, n, false, s.job.out))
		return;
	leave_hidden(&s, part, first, s.job.out);
	s.job.phase = BUILT;
	memcpy(s.job.top, s.now.runs.r[first], sizeof(s.job.top));
	s.job.part = (uint8_t)part;
	s.job.n = (uint8_t)n;
	s.job.has_front = first > part_first(&s.now.runs, part);
	s.job.victim = (uint8_t)blk;
	s.job.copy = s.nblk++;
	for (i = 0; i < RUN_ENT; i++) {
		ent e = s.job.out[i];

		if (E_KIND(e) == PUT && E_BLK(e) == blk)
			s.job.out[i] = ENT(PUT, E_KEY(e), E_SEQ(e), s.job.copy, E_ID(e));
	}
	s.moves++;
	name_act("move block %u of %u runs to %u", blk, n, s.job.copy);
	emit(&s);
}

/* From the newest run of the part on, or from one that refers to the block. */
static void job_start(const struct state *old, unsigned blk, enum part part)
{
	const struct runs *r = &old->now.runs;
	unsigned top = part_first(r, part), end = part_first(r, part + 1), first, n;

	for (first = top; first < end; first++) {
		if (first > top && !refers(r->r[first], RUN_ENT, blk))
			continue;
		for (n = 1; first + n <= end; n++)
			job_begin(old, blk, part, first, n);
	}
}

/* What came since the start lies in front of the inputs. */
static bool job_replace(const struct job *j, struct runs *r)
{
	unsigned at = take_out(r, j->part, j->top, j->n);

	if (broken[j->has_front ? job_drops_above : job_drops_newer] &&
	    at > part_first(r, j->part))
		runs_remove(r, --at, 1);
	return runs_insert(r, broken[job_on_top] ? part_first(r, j->part) : at, j->out, j->part);
}

static void relocation(const struct state *old)
{
	struct state s = *old;
	unsigned b, p;

	switch (old->job.phase) {
	case IDLE:
		if (s.moves == bound.moves || s.nblk >= BLOCKS || s.is_flushing)
			return;
		for (b = 1; b < s.nblk; b++)
			for (p = UPPER; p < PARTS && b != s.cur && !(s.freed >> b & 1); p++)
				job_start(old, b, p);
		return;
	case BUILT:
		s.job.phase = DURABLE;
		s.durable |= (uint16_t)(1u << s.job.copy);
		name_act("move: the copy is durable");
		emit(&s);
		if (!broken[job_before_flush])
			return;
		s = *old;
		/* fall through */
	case DURABLE:
		if (s.is_flushing ||
		    !job_replace(&s.job, broken[free_before_edit] ? &s.now.runs : &s.media))
			return;
		s.job.phase = COMMITTED;
		name_act("move: commit the edit");
		emit(&s);
		return;
	default:
		if (!job_replace(&s.job, broken[free_before_edit] ? &s.media : &s.now.runs))
			return;
		memset(&s.job, 0, sizeof(s.job));
		name_act("move: show the run");
		emit(&s);
	}
}

/* ---- deletion, checkpoints, crashes ------------------------------------------------ */

static bool runs_refer(const struct runs *r, unsigned blk)
{
	return refers(r->r[0], RUNS * RUN_ENT, blk);
}

static bool is_needed(const struct state *s, unsigned b)
{
	unsigned i;

	for (i = 0; i < VIEWS; i++) {
		const struct tree *t = &s->view[i].tree;

		if (!broken[free_pinned] && s->view[i].at &&
		    (runs_refer(&t->runs, b) || refers(t->mem[0], 2 * MEM_ENT, b)))
			return true;
	}
	for (i = s->horizon; i < s->nop; i++)
		if (!broken[free_unlogged] && refers(&s->op[i], 1, b))
			return true;
	return (!broken[free_before_edit] && runs_refer(&s->media, b)) ||
	       (!broken[free_before_show] && runs_refer(&s->now.runs, b)) ||
	       refers(s->now.mem[0], 2 * MEM_ENT, b) ||
	       (!broken[free_checkpoint] && s->ckpt_ops && runs_refer(&s->ckpt, b)) ||
	       (!broken[free_copy] && s->job.phase && s->job.copy == b);
}

static void deletion(const struct state *old)
{
	unsigned b;

	for (b = 1; b < old->nblk; b++) {
		struct state s = *old;

		if (b == s.cur || (s.freed >> b & 1) || is_needed(&s, b))
			continue;
		s.freed |= (uint16_t)(1u << b);
		name_act("delete block %u", b);
		emit(&s);
	}
}

static void checkpoints(const struct state *old)
{
	struct state s = *old;

	if (s.ckpt_ops) {
		s.ckpt_ops = 0;
		memset(&s.ckpt, 0, sizeof(s.ckpt));
		name_act("drop the checkpoint");
		emit(&s);
	} else if (s.ckpts < bound.ckpts && s.horizon == s.nop && s.nop && !s.is_flushing &&
		   !s.now.has_frozen && s.job.phase != COMMITTED) {
		s.ckpts++;
		s.ckpt = s.media;
		s.ckpt_ops = (uint8_t)(1 + s.nop);
		name_act("checkpoint");
		emit(&s);
	}
}

/*
 * Recovery: the edits, and the first @p records, which are at least what was synced. Those in
 * front of record @q are frozen.
 */
static void recover(const struct state *old, unsigned p, unsigned q)
{
	struct state s = *old;
	bool is_frozen;

	memset(&s.now, 0, sizeof(s.now));
	memset(s.view, 0, sizeof(s.view));
	s.now.runs = s.media;
	s.now.has_frozen = q > s.horizon;
	s.boundary = s.now.has_frozen ? (uint8_t)q : 0;
	memset(&s.op[p], 0, (OPS - p) * sizeof(s.op[0]));
	for (unsigned i = broken[replay_all] ? 0 : s.horizon; i < p; i++) {
		is_frozen = s.now.has_frozen && (broken[parts_by_place] ? (p - i) % 2 : i < q);
		mem_insert(s.now.mem[is_frozen], s.op[i]);
	}
	/* a copy that was not durable is no block */
	if (s.job.phase && !(s.durable >> s.job.copy & 1))
		s.freed |= (uint16_t)(1u << s.job.copy);
	memset(&s.job, 0, sizeof(s.job));
	memset(s.merge, 0, sizeof(s.merge));
	s.nop = s.synced = (uint8_t)p;
	s.is_flushing = 0;
	s.cur = s.nblk++;
	s.crashes++;
	s.seq++;
	if (broken[seq_restarts])
		s.seq = 1;
	name_act("crash, %u of %u writes survive, %u frozen", p, old->nop, q - s.horizon);
	emit(&s);
}

static void crash(const struct state *old)
{
	if (old->crashes == bound.crashes || old->nblk >= BLOCKS || old->seq >= SEQ_MAX)
		return;
	for (unsigned p = old->synced; p <= old->nop; p++) {
		recover(old, p, old->horizon);
		for (unsigned q = old->horizon + 1u; bound.parts && q < p; q++)
			recover(old, p, q);
	}
}

static void successors(const struct state *s)
{
	cur_choice = 0;
	writes(s);
	views(s);
	memtables(s);
	flush(s);
	merges(s);
	leaves(s);
	ends(s);
	relocation(s);
	deletion(s);
	checkpoints(s);
	crash(s);
}

/* ---- runs ---------------------------------------------------------------------------- */

static void print_bounds(const char *what)
{
	printf("# %s: writes=%u views=%u moves=%u crashes=%u ckpts=%u rolls=%u prefixes=%u "
	       "ranges=%u switches=%u shapes=%u merges=%u parts=%u: %zu states%s\n", what,
	       bound.writes, bound.views, bound.moves, bound.crashes, bound.ckpts, bound.rolls,
	       bound.prefixes, bound.ranges, bound.switches, bound.shapes, bound.merges,
	       bound.parts, nnode, is_full ? ", not exhausted" : "");
}

static void the_rules_hold(void)
{
	size_t n = sizeof(small) / sizeof(small[0]), i, more = 0;
	bool is_long = getenv("TEST_LONG");

	if (is_long)
		more = sizeof(large) / sizeof(large[0]);
	memset(broken, 0, sizeof(broken));
	for (i = 0; i < n + more; i++) {
		bound = i < n ? small[i] : large[i - n];
		if (getenv("TEST_SHORT"))
			bound.max_states = MANY / 10;
		explore();
		print_bounds(violation ? violation : "holds");
		if (violation)
			tell((uint32_t)nnode - 1);
		explore_end();
		T_OK(!violation);
		T_OK(is_long || getenv("TEST_SHORT") || !is_full);
	}
}

/* Tries the bounds one after the other until one shows it: few states of the right one do. */
static bool rule_is_needed(enum rule r)
{
	enum { BOUNDS = sizeof(small) / sizeof(small[0]), ROUNDS = 3 };
	static const unsigned most[ROUNDS] = { MANY / 50, MANY / 7, MANY };
	unsigned i;
	bool found = false;

	memset(broken, 0, sizeof(broken));
	broken[r] = true;
	for (i = 0; i < ROUNDS * BOUNDS && !found; i++) {
		bound = small[i % BOUNDS];
		bound.max_states = most[i / BOUNDS];
		found = explore();
		if (found)
			printf("# %s: %s, %zu states\n", rule_name[r], violation, nnode);
		explore_end();
	}
	broken[r] = false;
	return found;
}

static void every_broken_rule_is_found(void)
{
	unsigned r, missed = 0;

	for (r = 0; r < RULE_COUNT; r++) {
		if (rule_is_needed((enum rule)r))
			continue;
		printf("# %s: not found\n", rule_name[r]);
		missed++;
	}
	T_EQ(missed, 0);
}

static bool argument(const char *arg)
{
	struct {
		const char *name;
		unsigned *at;
	} num[] = {
		{ "writes=", &bound.writes }, { "views=", &bound.views },
		{ "moves=", &bound.moves }, { "crashes=", &bound.crashes },
		{ "ckpts=", &bound.ckpts }, { "rolls=", &bound.rolls },
		{ "prefixes=", &bound.prefixes }, { "ranges=", &bound.ranges },
		{ "switches=", &bound.switches }, { "shapes=", &bound.shapes },
		{ "merges=", &bound.merges }, { "parts=", &bound.parts },
		{ "states=", &bound.max_states },
	};
	unsigned i;

	for (i = 0; i < RULE_COUNT; i++)
		if (!strcmp(arg, rule_name[i]))
			return broken[i] = true;
	for (i = 0; i < sizeof(num) / sizeof(num[0]); i++) {
		if (strncmp(arg, num[i].name, strlen(num[i].name)))
			continue;
		*num[i].at = (unsigned)strtoul(arg + strlen(num[i].name), NULL, 10);
		return true;
	}
	return false;
}

int main(int argc, char **argv)
{
	int i;

	if (argc == 1) {
		T_RUN(the_rules_hold);
		T_RUN(every_broken_rule_is_found);
		return t_done();
	}
	bound = (struct bounds){ .writes = 3, .switches = 2, .max_states = MANY };
	for (i = 1; i < argc; i++) {
		if (!argument(argv[i])) {
			fprintf(stderr, "model_tree: unknown %s\n", argv[i]);
			return 2;
		}
	}
	explore();
	print_bounds(violation ? violation : "holds");
	if (violation)
		tell((uint32_t)nnode - 1);
	explore_end();
	return violation ? 1 : 0;
}
