/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Which pieces of indexes are in memory. A block has two that grow with the store: its filter, 1.25
 * bytes a key, and its fences with the CRCs of its pages, a fifth of a byte. While all indexes
 * together keep within b_near_bytes, each piece is in memory, whole, where a lookup finds its
 * line with one addition, or one binary search. When they do not, the largest leave it, a block
 * at a time, and are asked a page of 4096 bytes at a time through the page pool, as key pages
 * are; what is asked often stays there.
 *
 * Filters and fences of a run count as two, each by its own bytes, so the filters of a run leave
 * before its fences, which are a sixth of them. The largest first: a get asks all upper runs, which
 * are small, and one leaf of many, so a byte of a small run serves more gets. When runs have gone
 * and there is room again, the smallest are read back (kv_near_step()).
 *
 * Invariants FLT-2, FLT-3: README.md.
 *
 * Lock: ne_lock, a leaf: the lists, their counts, changes of kb_filter and kb_fences of runs that
 * are in a list, and the loading of blocks (run_load.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/guard.h"
#include "db/bell.h"
#include "db/db.h"
#include "db/limbo.h"
#include "cache/pages.h"
#include "run/filter.h"
#include "run/run.h"
#include "run/run_fence.h"
#include "run/run_load.h"
#include "run/run_near.h"
#include "run/run_omf.h"

#define LINE		64u	/* filters begin at one */
#define BUILD_PART	8u	/* of the budget, that a build may have beyond it */
#define SLACK_PART	16u	/* of the budget, below which pieces come back */

enum { NEAR, FAR };

static inline _Atomic(uint8_t *) *place_of(struct kv_kblock *kb, enum kv_piece piece)
{
	return piece == KV_PIECE_FILTER ? &kb->kb_filter : &kb->kb_fences;
}

static uint64_t piece_bytes(const struct kv_kblock *kb, enum kv_piece piece)
{
	uint64_t bytes = piece == KV_PIECE_FILTER ? (uint64_t)kb->kb_fblocks * KV_FILTER_BLOCK :
			 kv_fences_bytes(kb);

	return (bytes + LINE - 1) & ~(uint64_t)(LINE - 1);
}

/* ---- memory ------------------------------------------------------------------------ */

bool kv_near_choose(struct kvdb *db, struct kv_near_own *own, enum kv_piece piece, uint64_t bytes)
{
	uint64_t most = db->d_budget.b_near_bytes;

	if (atomic_load(&db->d_count.index_mem) + bytes > most &&
	    own->no_bytes + bytes > most / BUILD_PART)
		own->no_is_far[piece] = true;
	if (own->no_is_far[piece])
		return false;
	own->no_bytes += bytes;
	return true;
}

/* The bytes, and after them what retires them. */
static uint8_t *piece_new(uint64_t bytes)
{
	_Static_assert(sizeof(struct kv_limbo) <= LINE, "one line more");
	return aligned_alloc(LINE, bytes + LINE);
}

static void piece_set(struct kvdb *db, struct kv_kblock *kb, enum kv_piece piece, uint8_t *mem)
{
	atomic_fetch_add(&db->d_count.index_mem, piece_bytes(kb, piece) + LINE);
	atomic_store_explicit(place_of(kb, piece), mem, memory_order_release);
}

/* Takes them from readers to come; returns what is to be retired, or freed. */
static uint8_t *piece_take(struct kvdb *db, struct kv_kblock *kb, enum kv_piece piece)
{
	uint8_t *mem = atomic_exchange(place_of(kb, piece), NULL);

	if (mem)
		atomic_fetch_sub(&db->d_count.index_mem, piece_bytes(kb, piece) + LINE);
	return mem;
}

void kv_near_keep(const struct kv_kblock *kb, const struct kv_fences *fe, const uint8_t *index,
		  const bool has[KV_PIECES], uint8_t *mem[KV_PIECES])
{
	for (enum kv_piece i = 0; i < KV_PIECES; i++) {
		uint64_t bytes = has[i] ? piece_bytes(kb, i) : 0;

		mem[i] = bytes ? piece_new(bytes) : NULL;
		if (!mem[i])
			continue;
		if (i == KV_PIECE_FILTER)
			memcpy(mem[i], index + (kb->kb_filter_off - kb->kb_npages * KV_PAGE),
			       bytes);
		else
			kv_fences_lay(kb, fe, mem[i]);
	}
}

void kv_near_free(struct kvdb *db, struct kv_kblock *kb)
{
	for (enum kv_piece i = 0; i < KV_PIECES; i++)
		free(piece_take(db, kb, i));
}

uint64_t kv_near_bytes(const struct kv_kblock *kb)
{
	uint64_t n = 0;

	if (atomic_load(&kb->kb_filter))
		n += piece_bytes(kb, KV_PIECE_FILTER) + LINE;
	if (atomic_load(&kb->kb_fences))
		n += piece_bytes(kb, KV_PIECE_FENCES) + LINE;
	return n;
}

/* ---- which of them ------------------------------------------------------------------- */

static void link_set(struct kvdb *db, struct kv_run *r, enum kv_piece piece, int which, bool is_in)
{
	struct kv_near_piece *np = &r->rn_near[piece];
	struct kv_run **head = &db->d_runs.ru_near.ne_run[piece][which][np->np_size];
	struct kv_near_link *l = &np->np_link[which];

	KV_ASSERT_HELD(&db->d_runs.ru_near.ne_lock);
	if (is_in == !!l->nl_at)
		return;
	if (is_in) {
		l->nl_next = *head;
		l->nl_at = head;
		if (*head)
			(*head)->rn_near[piece].np_link[which].nl_at = &l->nl_next;
		*head = r;
		return;
	}
	*l->nl_at = l->nl_next;
	if (l->nl_next)
		l->nl_next->rn_near[piece].np_link[which].nl_at = l->nl_at;
	*l = (struct kv_near_link){ .nl_at = NULL };
}

static void links_set(struct kvdb *db, struct kv_run *r, enum kv_piece piece)
{
	link_set(db, r, piece, NEAR, r->rn_near[piece].np_n > 0);
	link_set(db, r, piece, FAR, r->rn_near[piece].np_lack > 0);
}

/* Was it loaded, and may it come to memory? */
static bool lacks(struct kv_kblock *kb, enum kv_piece piece)
{
	return kv_kblock_is_loaded(kb) && !atomic_load(place_of(kb, piece)) &&
	       piece_bytes(kb, piece) && !(piece == KV_PIECE_FILTER && kb->kb_no_filter);
}

/* Under ne_lock: the block has the piece now, or lacks it; @was: until now it was the other. */
static void count_set(struct kvdb *db, struct kv_run *r, enum kv_piece piece, uint32_t no,
		      bool has, bool was)
{
	struct kv_near_piece *np = &r->rn_near[piece];

	KV_ASSERT_HELD(&db->d_runs.ru_near.ne_lock);
	if (has) {
		np->np_n++;
		np->np_lack -= was;
		np->np_end = no >= np->np_end ? no + 1 : np->np_end;
	} else {
		np->np_n -= was;
		np->np_lack++;
		np->np_low = no < np->np_low ? no : np->np_low;
	}
	links_set(db, r, piece);
}

/* Under ne_lock: the last piece of the largest that are in memory leaves it; NULL: none is. */
static uint8_t *largest_take(struct kvdb *db, uint64_t *bytes)
{
	struct kv_near *ne = &db->d_runs.ru_near;

	KV_ASSERT_HELD(&ne->ne_lock);
	for (unsigned i = KV_NEAR_SIZES; i-- > 0;) {
		for (enum kv_piece piece = 0; piece < KV_PIECES; piece++) {
			struct kv_run *r = ne->ne_run[piece][NEAR][i];
			struct kv_near_piece *np;
			struct kv_kblock *kb;

			if (!r)
				continue;
			np = &r->rn_near[piece];
			do
				kb = &r->rn_kb[--np->np_end];
			while (!atomic_load(place_of(kb, piece)));
			count_set(db, r, piece, np->np_end, false, true);
			*bytes = piece_bytes(kb, piece);
			return piece_take(db, kb, piece);
		}
	}
	return NULL;
}

void kv_near_trim(struct kvdb *db)
{
	while (atomic_load(&db->d_count.index_mem) > db->d_budget.b_near_bytes) {
		uint64_t bytes = 0;
		uint8_t *mem;

		pthread_mutex_lock(&db->d_runs.ru_near.ne_lock);
		mem = largest_take(db, &bytes);
		pthread_mutex_unlock(&db->d_runs.ru_near.ne_lock);
		if (!mem)
			return;
		kv_retire((struct kv_limbo *)(mem + bytes), free, mem);
	}
}

static void piece_add(struct kvdb *db, struct kv_run *r, enum kv_piece piece)
{
	struct kv_near_piece *np = &r->rn_near[piece];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < r->rn_nkeyed; i++)
		bytes += piece_bytes(&r->rn_kb[i], piece);
	if (!bytes)
		return;
	pthread_mutex_lock(&db->d_runs.ru_near.ne_lock);
	np->np_size = 63 - (unsigned)__builtin_clzll(bytes);
	for (uint32_t i = 0; i < r->rn_nkeyed; i++) {
		if (atomic_load(place_of(&r->rn_kb[i], piece)))
			count_set(db, r, piece, i, true, false);
		else if (lacks(&r->rn_kb[i], piece))
			count_set(db, r, piece, i, false, false);
	}
	pthread_mutex_unlock(&db->d_runs.ru_near.ne_lock);
}

void kv_near_add(struct kvdb *db, struct kv_run *r)
{
	for (enum kv_piece piece = 0; piece < KV_PIECES; piece++)
		piece_add(db, r, piece);
	kv_near_trim(db);
}

void kv_near_remove(struct kvdb *db, struct kv_run *r)
{
	struct kv_near *ne = &db->d_runs.ru_near;
	bool is_room = false, is_far = false;

	pthread_mutex_lock(&ne->ne_lock);
	for (enum kv_piece piece = 0; piece < KV_PIECES; piece++) {
		is_room |= r->rn_near[piece].np_n > 0;
		link_set(db, r, piece, NEAR, false);
		link_set(db, r, piece, FAR, false);
		r->rn_near[piece].np_n = r->rn_near[piece].np_lack = 0;
		for (unsigned i = 0; i < KV_NEAR_SIZES; i++)
			is_far |= ne->ne_run[piece][FAR][i] != NULL;
	}
	pthread_mutex_unlock(&ne->ne_lock);
	if (is_room && is_far)
		kv_grower_kick(db);
}

/* ---- what is loaded ------------------------------------------------------------------- */

bool kv_near_publish(struct kvdb *db, struct kv_kblock *kb, const struct kv_kblock *from,
		     uint8_t *const mem[KV_PIECES])
{
	uint32_t no = kb->kb_run ? (uint32_t)(kb - kb->kb_run->rn_kb) : 0;
	bool is_first;

	pthread_mutex_lock(&db->d_runs.ru_near.ne_lock);
	is_first = !kv_kblock_is_loaded(kb);
	if (is_first) {
		kb->kb_prefix = from->kb_prefix;
		kb->kb_plen = from->kb_plen;
		kb->kb_top = from->kb_top;
		kb->kb_ntop = from->kb_ntop;
		kb->kb_no_filter = from->kb_no_filter;
		atomic_fetch_add(&kb->kb_mem, atomic_load(&from->kb_mem));
		atomic_fetch_add(&db->d_count.index_mem, atomic_load(&from->kb_mem));
		atomic_store_explicit(&kb->kb_page_crcs, atomic_load(&from->kb_page_crcs),
				      memory_order_release);
	}
	for (enum kv_piece i = 0; i < KV_PIECES && is_first; i++) {
		if (mem[i])
			piece_set(db, kb, i, mem[i]);
		if (kb->kb_run && (mem[i] || lacks(kb, i)))
			count_set(db, kb->kb_run, i, no, mem[i], false);
	}
	pthread_mutex_unlock(&db->d_runs.ru_near.ne_lock);
	return is_first;
}

bool kv_near_claim(struct kvdb *db, struct kv_kblock *kb)
{
	struct kv_near *ne = &db->d_runs.ru_near;
	bool is_ours;

	pthread_mutex_lock(&ne->ne_lock);
	is_ours = !kb->kb_is_coming;
	while (kb->kb_is_coming)
		pthread_cond_wait(&ne->ne_came, &ne->ne_lock);
	kb->kb_is_coming = is_ours;
	pthread_mutex_unlock(&ne->ne_lock);
	return is_ours;
}

void kv_near_unclaim(struct kvdb *db, struct kv_kblock *kb)
{
	struct kv_near *ne = &db->d_runs.ru_near;

	pthread_mutex_lock(&ne->ne_lock);
	kb->kb_is_coming = false;
	pthread_cond_broadcast(&ne->ne_came);
	pthread_mutex_unlock(&ne->ne_lock);
}

/* ---- back to memory --------------------------------------------------------------------- */

/* A reference, unless the last one is gone. */
static bool run_hold(struct kv_run *r)
{
	uint32_t n = atomic_load(&r->rn_refs);

	while (n && !atomic_compare_exchange_weak(&r->rn_refs, &n, n + 1))
		;
	return n;
}

/* The first of a list that can be held. */
static struct kv_run *list_hold(struct kv_run *r, enum kv_piece piece)
{
	while (r && !run_hold(r))
		r = r->rn_near[piece].np_link[FAR].nl_next;
	return r;
}

/* Held, the run that lacks the smallest piece for which there is room, and which: or NULL. */
static struct kv_run *smallest_far(struct kvdb *db, enum kv_piece *piece, uint32_t *no)
{
	uint64_t most = db->d_budget.b_near_bytes, used = atomic_load(&db->d_count.index_mem);
	struct kv_near *ne = &db->d_runs.ru_near;
	struct kv_run *r = NULL;

	most -= most / SLACK_PART;
	pthread_mutex_lock(&ne->ne_lock);
	for (unsigned i = 0; i < KV_NEAR_SIZES && !r; i++)
		for (enum kv_piece p = KV_PIECES; p-- > 0 && !r;) {
			r = list_hold(ne->ne_run[p][FAR][i], p);
			*piece = p;
		}
	if (r) {
		uint32_t *low = &r->rn_near[*piece].np_low;

		while (*low < r->rn_nkeyed && !lacks(&r->rn_kb[*low], *piece))
			++*low;
		KV_ASSERT(*low < r->rn_nkeyed);
		*no = *low;
	}
	pthread_mutex_unlock(&ne->ne_lock);
	if (r && used + piece_bytes(&r->rn_kb[*no], *piece) > most) {
		kv_run_put(db, r);
		return NULL;
	}
	return r;
}

/* @n pages of the object from @first on, past the pool, with their CRCs compared. */
static int pages_read(struct kvdb *db, const struct kv_kblock *kb, uint64_t first, uint64_t n,
		      uint8_t *pages)
{
	const uint32_t *crcs = atomic_load_explicit(&kb->kb_page_crcs, memory_order_acquire);
	int rc = kv_dev_read(db, kb->kb_obj, KV_READ_KEY, first * KV_PAGE, pages, n * KV_PAGE);

	for (uint64_t i = 0; i < n && !rc; i++)
		if (!CHECK_CRC(mpool_crc32c(0, pages + i * KV_PAGE, KV_PAGE) ==
			       crcs[first + i - kb->kb_npages])) {
			kv_bad_read(db, kb->kb_obj, (first + i) * KV_PAGE, false);
			rc = kv_run_damaged(kb->kb_id, (first + i) * KV_PAGE, "CRC of the index");
		}
	return rc;
}

static int piece_read(struct kvdb *db, const struct kv_kblock *kb, enum kv_piece piece,
		      uint8_t *mem)
{
	uint64_t off = piece == KV_PIECE_FILTER ? kb->kb_filter_off : kb->kb_fence_off;
	uint64_t end = piece == KV_PIECE_FILTER ? off + piece_bytes(kb, piece) :
		       kb->kb_crc_off + 4ull * kb->kb_npages;
	uint64_t first = off / KV_PAGE, n = (end + KV_PAGE - 1) / KV_PAGE - first;
	uint8_t *pages = aligned_alloc(KV_PAGE, n * KV_PAGE), *p;
	int rc = pages ? pages_read(db, kb, first, n, pages) : -ENOMEM;
	struct kv_fences fe;

	if (!rc && piece == KV_PIECE_FILTER) {
		memcpy(mem, pages + off % KV_PAGE, end - off);
	} else if (!rc) {
		p = pages + off % KV_PAGE;
		fe = (struct kv_fences){ .fe_ends = p, .fe_seps = p + 4ull * kb->kb_npages,
					 .fe_crcs = p + (kb->kb_crc_off - kb->kb_fence_off) };
		rc = kv_fences_check(kb, &fe);
		if (!rc)
			kv_fences_lay(kb, &fe, mem);
	}
	free(pages);
	return rc;
}

int kv_near_step(struct kvdb *db)
{
	struct kv_near *ne = &db->d_runs.ru_near;
	struct kv_kblock *kb;
	enum kv_piece piece;
	uint8_t *mem;
	uint32_t no;
	struct kv_run *r = smallest_far(db, &piece, &no);
	int rc;

	if (!r)
		return 0;
	kb = &r->rn_kb[no];
	mem = piece_new(piece_bytes(kb, piece));
	rc = mem ? piece_read(db, kb, piece, mem) : -ENOMEM;
	pthread_mutex_lock(&ne->ne_lock);
	if (rc && rc != -ENOMEM) {
		/* it is asked through the pool from now on, until its run goes */
		link_set(db, r, piece, FAR, false);
	} else if (!rc && lacks(kb, piece)) {
		piece_set(db, kb, piece, mem);
		mem = NULL;
		count_set(db, r, piece, no, true, true);
	}
	pthread_mutex_unlock(&ne->ne_lock);
	free(mem);
	kv_run_put(db, r);
	return !rc;
}
