/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Loading of pages: what is missing is read from the device, its CRCs are
 * compared (once more after one more read), and the pages are published. One
 * state machine, struct kv_load, with two drivers.
 *
 * A blocking reader claims the missing pages in the pool, so that others wait
 * for its read, and stays until they are settled.
 *
 * An asynchronous operation may be left alone for as long as its owner likes:
 * no thread can be made to wait for it. So it claims nothing; it reads into memory
 * of its own, of which the pool gets a copy. A get keeps no position either: when
 * the bytes are there it is run again from its beginning (the memtables of that
 * moment, the runs of that moment) and finds what it asked for before. A walk
 * keeps its cursor, which holds a snapshot. Between two runs an operation holds
 * references on the objects that are being read and is outside kv_enter(). A get
 * that waits is one of these too (get.c), and so is a walk (cursor.c).
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cache/load.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/guard.h"
#include "db/db.h"
#include "db/limbo.h"
#include "db/thread.h"

#define PAGE		4096u
#define LOADS_MAX	(KV_PAGES_MAX / 2)
#define AHEAD_PAGES	128u	/* that one kv_pages_ahead() reads at most */
#define AHEAD_RUN	16u	/* pages of one read: 64 KiB */
#define WAIT_READS	64u	/* that kv_async_wait() submits together */

static __thread struct kv_async *async_self;

int kv_load_error(int err, uint64_t obj, uint64_t page_no)
{
	if (err == -EUCLEAN)
		return kv_error(err, "MP0960", "object %llu, offset %llu: key page: CRC is not "
				"what its parent holds", (unsigned long long)obj,
				(unsigned long long)page_no * PAGE);
	if (err == -ENOMEM)
		return kv_error(err, "MP0902", "no memory for a read");
	return kv_error(err, "MP0946", "object %llu, offset %llu: read failed: %s",
			(unsigned long long)obj, (unsigned long long)page_no * PAGE,
			strerror(-err));
}

/* ---- the state machine ---------------------------------------------------------- */

void kv_load_init(struct kv_load *ld, struct mpool_obj *obj, uint64_t first, unsigned n,
		  const struct iovec *iov, unsigned niov, enum kv_read_for what)
{
	ld->ld_read = (struct kv_read){
		.rd_io = { .obj = obj, .type = MPOOL_READ, .iovcnt = niov, .off = first * PAGE,
			   .iov = iov, .cookie = (uintptr_t)&ld->ld_read },
	};
	ld->ld_first = first;
	ld->ld_n = n;
	ld->ld_tries = 0;
	ld->ld_bad = 0;
	ld->ld_crc = NULL;
	ld->ld_page = NULL;
	ld->ld_is_copied = false;
	ld->ld_for = what;
	ld->ld_err = 0;
}

/* Parents hold the CRCs of key pages; values bring their own. */
static enum kv_read_for pages_for(const uint32_t *crc)
{
	return crc ? KV_READ_KEY : KV_READ_VALUE;
}

static uint8_t *load_page(const struct kv_load *ld, unsigned k)
{
	const struct mpool_io *io = &ld->ld_read.rd_io;

	if (io->iovcnt > 1)
		return io->iov[k].iov_base;
	return (uint8_t *)io->iov[0].iov_base + (size_t)k * PAGE;
}

static bool crc_is_good(const struct kv_load *ld, unsigned k)
{
	uint32_t crc = mpool_crc32c(0, load_page(ld, k), PAGE);

	return ld->ld_tries ? CHECK_CRC(crc == ld->ld_crc[k]) : CHECK_CRC(crc == ld->ld_crc[k]);
}

static void count_read(struct kvdb *db, struct mpool_obj *obj, enum kv_read_for what,
		       uint64_t bytes)
{
	struct mpool_obj_info info;

	if (!mpool_obj_info(obj, &info) && info.mclass < MPOOL_MCLASSES)
		atomic_fetch_add_explicit(&db->d_count.read_bytes[what][info.mclass], bytes,
					  memory_order_relaxed);
}

void kv_bad_read(struct kvdb *db, struct mpool_obj *obj, uint64_t off, bool is_reread)
{
	atomic_fetch_add_explicit(&db->d_count.csum_errors, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&db->d_count.rereads, is_reread, memory_order_relaxed);
	mpool_bad_read(obj, off, is_reread);
}

bool kv_load_done(struct kvdb *db, struct kv_load *ld)
{
	struct mpool_obj *obj = ld->ld_read.rd_io.obj;
	int err = ld->ld_read.rd_err;
	uint64_t id = mpool_obj_id(obj);
	uint32_t bad = 0;

	KV_ASSERT(!ld->ld_crc || ld->ld_n <= KV_PAGES_MAX);	/* ld_bad has a bit for each */
	if (!err)
		count_read(db, obj, ld->ld_for, (uint64_t)ld->ld_n * PAGE);
	for (unsigned k = 0; !err && ld->ld_crc && k < ld->ld_n; k++)
		bad |= crc_is_good(ld, k) ? 0 : 1u << k;
	if (bad && !ld->ld_tries++) {
		ld->ld_bad = bad;
		return true;	/* the transfer may have been at fault */
	}
	/* pages with a CRC are KV_PAGES_MAX at most: a bit each */
	for (unsigned k = 0; (ld->ld_bad | bad) && k < ld->ld_n; k++)
		if ((ld->ld_bad | bad) >> k & 1)
			kv_bad_read(db, obj, (ld->ld_first + k) * PAGE, !err && !(bad >> k & 1));
	ld->ld_err = err;
	ld->ld_bad = bad;
	for (unsigned k = 0; k < ld->ld_n && k < KV_PAGES_MAX; k++) {
		int e = bad >> k & 1 ? -EUCLEAN : err;

		if (e && !ld->ld_err)
			ld->ld_err = e;
		if (ld->ld_page && ld->ld_page[k])
			kv_page_settle(db, ld->ld_page[k], e);
		else if (ld->ld_is_copied && !e)
			kv_page_add(db, id, ld->ld_first + k, load_page(ld, k), ld->ld_crc);
	}
	return false;
}

/* ---- blocking readers ------------------------------------------------------------ */

static int dev_read_now(struct kvdb *db, struct mpool_obj *obj, enum kv_read_for what,
			uint64_t off, void *buf, size_t len)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct kv_read rd = { .rd_io = { .obj = obj, .type = MPOOL_READ, .iovcnt = 1, .off = off,
					 .iov = &iov, .cookie = (uintptr_t)&rd } };
	struct kv_read *list = &rd;

	kv_reads_run(db, &list, 1);
	if (rd.rd_err)
		return kv_load_error(rd.rd_err, mpool_obj_id(obj), off / PAGE);
	count_read(db, obj, what, len);
	return 0;
}

/* One request for several pages. */
struct fetch {
	struct kvdb *f_db;
	struct mpool_obj *f_obj;
	uint64_t f_first;
	unsigned f_n;
	const uint32_t *f_crc;
	const uint8_t **f_out;
	struct kv_page *f_page[KV_PAGES_MAX];	/* the pool's; NULL: memory of our own */
	struct iovec f_iov[KV_PAGES_MAX];	/* we read it: into this memory */
	struct kv_load f_load[LOADS_MAX + 1];
};

/* Freed when its readers have left kv_enter(). */
struct own_page {
	uint8_t op_page[PAGE] __attribute__((aligned(PAGE)));
	struct kv_limbo op_limbo;
};

/* Finds the page, or claims it, or takes memory of our own. */
static int fetch_claim(struct fetch *f, unsigned i)
{
	uint8_t *into;

	KV_ASSERT_INSIDE();
	f->f_page[i] = kv_page_claim(f->f_db, mpool_obj_id(f->f_obj), f->f_first + i, f->f_crc,
				     &into);
	if (!f->f_page[i]) {
		struct own_page *op = aligned_alloc(PAGE, sizeof(*op));

		if (!op)
			return -ENOMEM;
		kv_retire(&op->op_limbo, free, op);
		into = op->op_page;
	}
	f->f_iov[i] = (struct iovec){ .iov_base = into, .iov_len = PAGE };
	return 0;
}

/* Makes a load of each gap among the pages [0, n); returns their number. */
static unsigned fetch_loads(struct fetch *f, unsigned n)
{
	unsigned loads = 0, i, j;

	for (i = 0; i < n; i = j) {
		struct kv_load *ld = &f->f_load[loads];

		for (j = i; j < n && f->f_iov[j].iov_base; j++)
			f->f_out[j] = f->f_iov[j].iov_base;
		if (j == i) {
			j++;
			continue;
		}
		kv_load_init(ld, f->f_obj, f->f_first + i, j - i, &f->f_iov[i], j - i,
			     pages_for(f->f_crc));
		ld->ld_crc = f->f_crc ? f->f_crc + i : NULL;
		ld->ld_page = &f->f_page[i];
		loads++;
		KV_ASSERT(loads <= LOADS_MAX + 1);
	}
	return loads;
}

/* Drives @n loads to their end; the first error. */
static int fetch_read(struct fetch *f, unsigned n)
{
	struct kv_read *todo[LOADS_MAX + 1];
	unsigned i, left = n, again;

	for (i = 0; i < n; i++)
		todo[i] = &f->f_load[i].ld_read;
	for (; left; left = again) {
		kv_reads_run(f->f_db, todo, left);
		for (i = again = 0; i < left; i++)
			if (kv_load_done(f->f_db, (struct kv_load *)todo[i]))
				todo[again++] = todo[i];
	}
	for (i = 0; i < n; i++)
		if (f->f_load[i].ld_err)
			return kv_load_error(f->f_load[i].ld_err, mpool_obj_id(f->f_obj),
					     f->f_load[i].ld_first);
	return 0;
}

static int fetch_run(struct fetch *f)
{
	unsigned claimed = 0, i;
	int rc = 0, err;

	while (claimed < f->f_n && !rc) {
		rc = fetch_claim(f, claimed);
		claimed += !rc;
	}
	err = fetch_read(f, fetch_loads(f, claimed));
	if (!rc)
		rc = err;
	for (i = 0; i < f->f_n && !rc; i++)
		if (!f->f_iov[i].iov_base)
			rc = kv_page_wait(f->f_db, f->f_page[i], &f->f_out[i]);
	return rc;
}

/* ---- reading ahead: many pages of many objects ------------------------------------- */

/* A page that is claimed and to be read. */
struct claim {
	struct mpool_obj *cl_obj;
	uint64_t cl_no;
	struct kv_page *cl_page;
	uint8_t *cl_into;
	const uint32_t *cl_crc;
};

struct ahead {
	struct kvdb *ah_db;
	unsigned ah_n;
	struct claim ah_claim[AHEAD_PAGES];
	/* parallel to the claims, once these are sorted */
	struct iovec ah_iov[AHEAD_PAGES];
	struct kv_page *ah_page[AHEAD_PAGES];
	uint32_t ah_crc[AHEAD_PAGES];
	struct kv_load ah_load[AHEAD_PAGES];
	struct kv_read *ah_todo[AHEAD_PAGES];
};

static void ahead_claim(struct ahead *ah, struct mpool_obj *obj, uint64_t no, const uint32_t *crc)
{
	struct claim *c = &ah->ah_claim[ah->ah_n];
	uint64_t id = mpool_obj_id(obj);

	if (kv_page_peek(ah->ah_db, id, no))
		return;
	*c = (struct claim){ .cl_obj = obj, .cl_no = no, .cl_crc = crc };
	c->cl_page = kv_page_claim(ah->ah_db, id, no, crc, &c->cl_into);
	/* another thread reads it, or there is no room: that is found when it is read */
	ah->ah_n += c->cl_page && c->cl_into;
}

static int claim_cmp(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;
	uint64_t i = mpool_obj_id(x->cl_obj), j = mpool_obj_id(y->cl_obj);

	if (i != j)
		return i < j ? -1 : 1;
	return x->cl_no < y->cl_no ? -1 : x->cl_no > y->cl_no;
}

/* Is @d the page that lies @pages after @c, in the same object and checked alike? */
static bool claim_is(const struct claim *c, const struct claim *d, unsigned pages)
{
	return d->cl_obj == c->cl_obj && d->cl_no == c->cl_no + pages &&
	       (d->cl_crc ? c->cl_crc != NULL : !c->cl_crc);
}

/* Neighbours become one load; returns the number of loads. */
static unsigned ahead_loads(struct ahead *ah)
{
	unsigned loads = 0, j;

	qsort(ah->ah_claim, ah->ah_n, sizeof(ah->ah_claim[0]), claim_cmp);
	for (unsigned i = 0; i < ah->ah_n; i = j) {
		const struct claim *c = &ah->ah_claim[i];

		for (j = i; j < ah->ah_n && j - i < AHEAD_RUN; j++) {
			const struct claim *d = &ah->ah_claim[j];

			if (!claim_is(c, d, j - i))
				break;
			ah->ah_iov[j] = (struct iovec){ .iov_base = d->cl_into, .iov_len = PAGE };
			ah->ah_page[j] = d->cl_page;
			ah->ah_crc[j] = d->cl_crc ? *d->cl_crc : 0;
		}
		kv_load_init(&ah->ah_load[loads], c->cl_obj, c->cl_no, j - i, &ah->ah_iov[i],
			     j - i, pages_for(c->cl_crc));
		ah->ah_load[loads].ld_crc = c->cl_crc ? &ah->ah_crc[i] : NULL;
		ah->ah_load[loads].ld_page = &ah->ah_page[i];
		ah->ah_todo[loads] = &ah->ah_load[loads].ld_read;
		loads++;
	}
	return loads;
}

static void ahead_now(struct kvdb *db, const struct kv_want *w, unsigned n)
{
	struct ahead ah;
	unsigned left, again;

	ah.ah_db = db;
	ah.ah_n = 0;
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < w[i].wa_n && ah.ah_n < AHEAD_PAGES; j++)
			ahead_claim(&ah, w[i].wa_obj, w[i].wa_first + j,
				    w[i].wa_crc ? w[i].wa_crc + j : NULL);
	for (left = ahead_loads(&ah); left; left = again) {
		kv_reads_run(db, ah.ah_todo, left);
		again = 0;
		for (unsigned i = 0; i < left; i++)
			if (kv_load_done(db, (struct kv_load *)ah.ah_todo[i]))
				ah.ah_todo[again++] = ah.ah_todo[i];
	}
}

/* ---- asynchronous operations ------------------------------------------------------ */

void kv_async_begin(struct kv_async *as)
{
	KV_ASSERT(!async_self);
	as->as_run++;
	async_self = as;
}

void kv_async_end(void)
{
	async_self = NULL;
}

bool kv_async_is_on(struct kvdb *db)
{
	return async_self && async_self->as_db == db;
}

struct kv_aload *kv_async_next(struct kv_async *as)
{
	struct kv_aload *al = as->as_new;

	if (al)
		as->as_new = al->al_link;
	return al;
}

bool kv_async_done(struct kv_aload *al, int err)
{
	KV_ASSERT(!al->al_is_done);
	al->al_load.ld_read.rd_err = err;
	al->al_is_done = !kv_load_done(al->al_as->as_db, &al->al_load);
	return !al->al_is_done;
}

void kv_async_wait(struct kv_async *as)
{
	struct kv_read *rd[WAIT_READS];
	struct kv_aload *al;
	struct kv_thread *t;
	unsigned n = 0, again;

	KV_ASSERT_OUTSIDE();
	do {
		while (n < WAIT_READS && (al = kv_async_next(as)))
			rd[n++] = &al->al_load.ld_read;
		kv_pages_room(as->as_db, n);
		kv_reads_run(as->as_db, rd, n);
		again = 0;
		t = kv_enter();
		for (unsigned i = 0; i < n; i++)
			if (kv_async_done((struct kv_aload *)rd[i], rd[i]->rd_err))
				rd[again++] = rd[i];
		kv_exit(t);
		n = again;
	} while (n || as->as_new);
}

void kv_async_try(struct kv_async *as)
{
	if (as->as_tries++ < KV_ASYNC_RUNS)
		kv_async_begin(as);
}

bool kv_async_again(struct kv_async *as, int rc, bool is_further)
{
	KV_ASSERT_OUTSIDE();
	kv_async_end();
	if (is_further) {
		as->as_tries = 0;
		kv_async_trim(as);
	}
	if (rc != -EINPROGRESS) {
		kv_async_free(as);
		return false;
	}
	kv_async_wait(as);
	return true;
}

bool kv_async_is_same(const struct kv_aload *a, const struct kv_aload *b)
{
	return (!a->al_is_direct || a->al_nth) && a->al_nth == b->al_nth &&
	       a->al_is_direct == b->al_is_direct &&
	       a->al_load.ld_first == b->al_load.ld_first && a->al_load.ld_n == b->al_load.ld_n &&
	       mpool_obj_id(a->al_load.ld_read.rd_io.obj) ==
	       mpool_obj_id(b->al_load.ld_read.rd_io.obj);
}

static void aload_free(struct kv_aload *al)
{
	mpool_obj_close(al->al_load.ld_read.rd_io.obj);
	kv_aload_free(al->al_as->as_db, al);
}

void kv_async_drop(struct kv_aload *al)
{
	struct kv_aload **pp = &al->al_as->as_loads;

	while (*pp != al)
		pp = &(*pp)->al_next;
	*pp = al->al_next;
	aload_free(al);
}

void kv_async_free(struct kv_async *as)
{
	struct kv_aload *al;

	while ((al = as->as_loads)) {
		as->as_loads = al->al_next;
		aload_free(al);
	}
	as->as_new = NULL;
}

void kv_async_trim(struct kv_async *as)
{
	struct kv_aload **pp = &as->as_loads, *al;

	while ((al = *pp)) {
		if (al->al_run == as->as_run || !al->al_is_done) {
			pp = &al->al_next;
			continue;
		}
		*pp = al->al_next;
		aload_free(al);
	}
}

/* It failed, and which of its pages could be read without the others is not known. */
static bool is_unclear(const struct kv_aload *al)
{
	return al->al_is_done && al->al_load.ld_err && !al->al_load.ld_bad;
}

/*
 * The read that brings, or has brought, the page; NULL: the operation did not ask for it.
 * One of more than @most pages that failed is no answer: these are read without the others.
 */
static struct kv_aload *async_find(struct kv_async *as, uint64_t obj, uint64_t no, unsigned most)
{
	struct kv_aload *al;

	for (al = as->as_loads; al; al = al->al_next)
		if (!al->al_is_direct && no - al->al_load.ld_first < al->al_load.ld_n &&
		    mpool_obj_id(al->al_load.ld_read.rd_io.obj) == obj &&
		    (al->al_load.ld_n <= most || !is_unclear(al)))
			break;
	if (al)
		al->al_run = as->as_run;
	return al;
}

/* What an earlier run has asked for. It serves one question of each run. */
static struct kv_aload *async_find_direct(struct kv_async *as, uint64_t obj, uint64_t first,
					  unsigned n)
{
	struct kv_aload *al;

	for (al = as->as_loads; al; al = al->al_next)
		if (al->al_is_done && al->al_is_direct && al->al_run != as->as_run &&
		    al->al_load.ld_first == first && al->al_load.ld_n == n &&
		    mpool_obj_id(al->al_load.ld_read.rd_io.obj) == obj)
			break;
	if (al)
		al->al_run = as->as_run;
	return al;
}

static int async_want(struct kv_async *as, struct mpool_obj *obj, uint64_t first, unsigned n,
		      const uint32_t *crc, enum kv_read_for what, bool is_direct)
{
	struct kv_aload *al = kv_aload_new(as->as_db, n), **tail = &as->as_loads;

	KV_ASSERT(!crc || n <= KV_PAGES_MAX);
	if (!al)
		return kv_load_error(-ENOMEM, 0, 0);
	al->al_iov.iov_len = (size_t)n * PAGE;
	kv_load_init(&al->al_load, mpool_obj_get(obj), first, n, &al->al_iov, 1, what);
	al->al_load.ld_is_copied = !is_direct;
	if (crc) {
		memcpy(al->al_crc, crc, n * sizeof(*crc));
		al->al_load.ld_crc = al->al_crc;
	}
	al->al_as = as;
	al->al_run = 0;
	al->al_is_direct = is_direct;
	al->al_nth = 0;
	al->al_is_done = false;
	al->al_same = NULL;
	/* to the end: of equal direct reads the first asked for is found first */
	al->al_next = NULL;
	while (*tail)
		tail = &(*tail)->al_next;
	*tail = al;
	al->al_link = as->as_new;
	as->as_new = al;
	return -EINPROGRESS;
}

/* The error of one page of it, which came together with others. */
static int page_err(const struct kv_load *ld, uint64_t no)
{
	if (!ld->ld_bad)
		return ld->ld_err;
	return ld->ld_bad >> (no - ld->ld_first) & 1 ? -EUCLEAN : 0;
}

static int async_pages(struct kv_async *as, struct mpool_obj *obj, uint64_t first, unsigned n,
		       const uint32_t *crc, const uint8_t **out)
{
	uint64_t id = mpool_obj_id(obj);
	bool is_coming = false;

	for (unsigned i = 0; i < n; i++) {
		uint64_t no = first + i;
		struct kv_aload *al = async_find(as, id, no, n);

		if (al && !al->al_is_done) {
			is_coming = true;
			continue;
		}
		if (al && page_err(&al->al_load, no))
			return kv_load_error(page_err(&al->al_load, no), id, no);
		if (al)
			out[i] = load_page(&al->al_load, (unsigned)(no - al->al_load.ld_first));
		else
			out[i] = kv_page_hit(as->as_db, id, no);
		if (!out[i]) {
			atomic_fetch_add_explicit(&as->as_db->d_count.page_misses, 1,
						  memory_order_relaxed);
			return async_want(as, obj, no, n - i, crc ? crc + i : NULL,
					  pages_for(crc), false);
		}
	}
	return is_coming ? -EINPROGRESS : 0;
}

/* Notes the reads of what is missing, neighbours together. */
static void async_ahead(struct kv_async *as, const struct kv_want *w, unsigned n)
{
	struct claim claim[AHEAD_PAGES];
	uint32_t crc[AHEAD_RUN];
	unsigned claims = 0, j;

	for (unsigned i = 0; i < n; i++) {
		uint64_t id = mpool_obj_id(w[i].wa_obj);

		for (j = 0; j < w[i].wa_n && claims < AHEAD_PAGES; j++)
			if (!async_find(as, id, w[i].wa_first + j, UINT_MAX) &&
			    !kv_page_peek(as->as_db, id, w[i].wa_first + j))
				claim[claims++] = (struct claim){
					.cl_obj = w[i].wa_obj, .cl_no = w[i].wa_first + j,
					.cl_crc = w[i].wa_crc ? w[i].wa_crc + j : NULL };
	}
	qsort(claim, claims, sizeof(claim[0]), claim_cmp);
	for (unsigned i = 0; i < claims; i = j) {
		const struct claim *c = &claim[i];
		unsigned pages = 0;

		for (j = i; pages < AHEAD_RUN && j < claims && claim_is(c, &claim[j], pages);
		     pages++) {
			crc[pages] = c->cl_crc ? *claim[j].cl_crc : 0;
			while (j < claims && claim_is(c, &claim[j], pages))
				j++;	/* two values lie on it */
		}
		async_want(as, c->cl_obj, c->cl_no, pages, c->cl_crc ? crc : NULL,
			   pages_for(c->cl_crc), false);
	}
}

static int async_direct(struct kv_async *as, struct mpool_obj *obj, enum kv_read_for what,
			uint64_t off, void *buf, size_t len)
{
	uint64_t id = mpool_obj_id(obj);
	struct kv_aload *al = async_find_direct(as, id, off / PAGE, (unsigned)(len / PAGE));

	if (!al)
		return async_want(as, obj, off / PAGE, (unsigned)(len / PAGE), NULL, what, true);
	if (al->al_load.ld_err)
		return kv_load_error(al->al_load.ld_err, id, off / PAGE);
	memcpy(buf, al->al_iov.iov_base, len);
	return 0;
}

static int async_area(struct kv_async *as, struct mpool_obj *obj, uint64_t first, unsigned n,
		      unsigned nth, uint8_t *buf)
{
	uint64_t id = mpool_obj_id(obj);
	struct kv_aload *al = as->as_loads;
	int rc;

	while (al && (al->al_nth != nth || al->al_load.ld_first != first ||
		      al->al_load.ld_n != n || mpool_obj_id(al->al_load.ld_read.rd_io.obj) != id))
		al = al->al_next;
	if (!al) {
		rc = async_want(as, obj, first, n, NULL, KV_READ_KEY, true);
		if (rc == -EINPROGRESS)
			as->as_new->al_nth = nth;
		return rc;
	}
	al->al_run = as->as_run;
	if (!al->al_is_done)
		return -EINPROGRESS;
	if (al->al_load.ld_err)
		return kv_load_error(al->al_load.ld_err, id, first);
	memcpy(buf, al->al_iov.iov_base, (size_t)n * PAGE);
	return 0;
}

/* True in a get that did not expect to wait: it begins anew as an asynchronous operation. */
static bool restarts(struct kvdb *db)
{
	struct kv_tctx *tc = kv_tctx(db);

	return tc && tc->tc_restarts;
}

/* ---- the ways in -------------------------------------------------------------------- */

int kv_pages_get(struct kvdb *db, struct mpool_obj *obj, uint64_t first, unsigned n,
		 const uint32_t *crc, const uint8_t **out)
{
	struct fetch f;
	unsigned i;

	KV_ASSERT_INSIDE();
	if (!n || n > KV_PAGES_MAX)
		return -EINVAL;
	if (kv_async_is_on(db))
		return async_pages(async_self, obj, first, n, crc, out);
	if (restarts(db)) {
		for (i = 0; i < n && (out[i] = kv_page_hit(db, mpool_obj_id(obj), first + i)); i++)
			;
		return i == n ? 0 : -EINPROGRESS;
	}
	f.f_db = db;
	f.f_obj = obj;
	f.f_first = first;
	f.f_n = n;
	f.f_crc = crc;
	f.f_out = out;
	return fetch_run(&f);
}

int kv_dev_read(struct kvdb *db, struct mpool_obj *obj, enum kv_read_for what, uint64_t off,
		void *buf, size_t len)
{
	KV_ASSERT((off | len) % PAGE == 0);
	if (kv_async_is_on(db))
		return async_direct(async_self, obj, what, off, buf, len);
	if (restarts(db))
		return -EINPROGRESS;
	return dev_read_now(db, obj, what, off, buf, len);
}

int kv_area_read(struct kvdb *db, struct mpool_obj *obj, uint64_t first, unsigned n, unsigned nth,
		 uint8_t *buf)
{
	if (kv_async_is_on(db))
		return async_area(async_self, obj, first, n, nth + 1, buf);
	return kv_dev_read(db, obj, KV_READ_KEY, first * PAGE, buf, (size_t)n * PAGE);
}

bool kv_reads_wait(struct kvdb *db)
{
	return !kv_async_is_on(db) && !restarts(db);
}

void kv_pages_ahead(struct kvdb *db, const struct kv_want *w, unsigned n)
{
	KV_ASSERT_INSIDE();
	if (kv_async_is_on(db))
		async_ahead(async_self, w, n);
	else
		ahead_now(db, w, n);
}
