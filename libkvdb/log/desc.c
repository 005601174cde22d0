/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Room for descriptors that lie by themselves (E7). Blocks are counted: there are as many as records
 * that are being made, one for the open epoch and one for that in hand if they have such records,
 * and DESC_LEAST more. A waste at the end of a segment comes from those: only a descriptor of
 * several blocks leaves one.
 *
 * Locks: de_fill_lock > sg_fill_lock; de_lock is a leaf. Nothing is allocated under ep_tick_lock.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/guard.h"
#include "cache/slab.h"
#include "db/mem_wait.h"
#include "log/desc.h"
#include "log/flush.h"
#include "seg/seg.h"

/* Blocks: four for a descriptor of a thousand segments, three that it leaves behind it. */
#define DESC_LEAST	7u
#define DESC_AHEAD	8u	/* blocks more that background work has ready */

static struct kv_descs *descs(struct kvdb *db)
{
	return &db->d_flusher->fl_descs;
}

void kv_desc_init(struct kv_descs *de)
{
	pthread_mutex_init(&de->de_fill_lock, NULL);
	pthread_mutex_init(&de->de_lock, NULL);
	de->de_tail = &de->de_next;
}

/* The first unused one that has @bytes, or NULL. */
static struct kv_seg *next_take(struct kv_descs *de, uint32_t bytes)
{
	struct kv_seg *s;

	pthread_mutex_lock(&de->de_lock);
	s = de->de_next;
	if (s && s->sg_bytes < bytes)
		s = NULL;
	if (s) {
		de->de_next = s->sg_full_next;
		if (!de->de_next)
			de->de_tail = &de->de_next;
		s->sg_full_next = NULL;
	}
	pthread_mutex_unlock(&de->de_lock);
	return s;
}

void kv_desc_fini(struct kvdb *db)
{
	struct kv_descs *de = descs(db);
	struct kv_seg *s;

	while ((s = next_take(de, 0)))
		kv_seg_put(db, s);
	if (de->de_seg)
		kv_seg_put(db, de->de_seg);
	pthread_mutex_destroy(&de->de_fill_lock);
	pthread_mutex_destroy(&de->de_lock);
}

/* Blocks were used, or are given up. */
static void spend(struct kv_descs *de, uint32_t bytes)
{
	pthread_mutex_lock(&de->de_lock);
	KV_ASSERT(de->de_left >= bytes / KV_BLOCK);
	de->de_left -= bytes / KV_BLOCK;
	pthread_mutex_unlock(&de->de_lock);
}

static int seg_alloc(struct kvdb *db, uint32_t bytes, struct kv_seg **out)
{
	struct kv_log *lo = kv_log_at(db->d_logs, 0);
	int err = kv_seg_alloc(db, lo->lo_no, lo->lo_stream, bytes, true, out);

	KV_ASSERT_FREE(&db->d_epochs.ep_tick_lock);
	/* may fail: the user of the segment then waits for its image, no other one is fetched */
	if (!err)
		kv_slab_take_image(db, (*out)->sg_bytes, &(*out)->sg_image);
	return err;
}

/* One more segment, after the others. de_fill_lock held. */
static int seg_add(struct kvdb *db)
{
	struct kv_descs *de = descs(db);
	struct kv_seg *s;
	int err = seg_alloc(db, KV_DESC_BYTES, &s);

	KV_ASSERT_HELD(&de->de_fill_lock);
	if (err)
		return err;
	s->sg_full_next = NULL;
	pthread_mutex_lock(&de->de_lock);
	*de->de_tail = s;
	de->de_tail = &s->sg_full_next;
	de->de_left += s->sg_bytes / KV_BLOCK;
	pthread_mutex_unlock(&de->de_lock);
	return 0;
}

static bool has_room(struct kv_descs *de, uint32_t more)
{
	bool has;

	pthread_mutex_lock(&de->de_lock);
	has = de->de_left >= de->de_promised + DESC_LEAST + more;
	pthread_mutex_unlock(&de->de_lock);
	return has;
}

static bool promise(struct kv_descs *de)
{
	bool has;

	pthread_mutex_lock(&de->de_lock);
	has = CHECK(de->de_left > de->de_promised + DESC_LEAST);
	de->de_promised += has;
	pthread_mutex_unlock(&de->de_lock);
	return has;
}

int kv_desc_promise(struct kvdb *db)
{
	struct kv_descs *de = descs(db);
	int err = 0;

	while (!err && !promise(de)) {
		pthread_mutex_lock(&de->de_fill_lock);
		/* another thread may have got one meanwhile */
		if (!has_room(de, 1))
			err = seg_add(db);
		pthread_mutex_unlock(&de->de_fill_lock);
	}
	return err;
}

void kv_desc_forget(struct kvdb *db)
{
	struct kv_descs *de = descs(db);

	pthread_mutex_lock(&de->de_lock);
	KV_ASSERT(de->de_promised);
	de->de_promised--;
	pthread_mutex_unlock(&de->de_lock);
}

void kv_desc_logged(struct kvdb *db)
{
	struct kv_descs *de = descs(db);

	KV_ASSERT_HELD(&db->d_epochs.ep_tick_lock);
	if (de->de_has_open)
		kv_desc_forget(db);
	de->de_has_open = true;
}

void kv_desc_closed(struct kvdb *db)
{
	struct kv_descs *de = descs(db);

	KV_ASSERT_HELD(&db->d_epochs.ep_tick_lock);
	KV_ASSERT_HELD(&db->d_flusher->fl_io_lock);
	de->de_has_ended = de->de_has_open;
	de->de_has_open = false;
}

void kv_desc_done(struct kvdb *db)
{
	struct kv_descs *de = descs(db);

	KV_ASSERT_HELD(&db->d_flusher->fl_io_lock);
	if (de->de_has_ended)
		kv_desc_forget(db);
	de->de_has_ended = false;
}

/* Nothing more goes into the one that is being filled. */
static void seg_end(struct kvdb *db)
{
	struct kv_descs *de = descs(db);
	struct kv_seg *s = de->de_seg;

	de->de_seg = NULL;
	kv_seg_close(db, s, de->de_end);
	/* the table's reference lasts until the epoch is durable */
	kv_seg_put(db, s);
}

/* More than is kept: it waits for memory, and for a merge, which gives room back (R19). */
static int seg_wait(struct kvdb *db, uint32_t bytes, struct kv_seg **out)
{
	uint32_t most = bytes > KV_DESC_BYTES ? bytes : KV_DESC_BYTES;
	bool comes;
	int err;

	do {
		/* looked at first, for it may end */
		comes = atomic_load(&db->d_runs.ru_merging);
		err = seg_alloc(db, most, out);
	} while ((err == -ENOMEM || (err == -ENOSPC && comes)) && !kv_sleep_or_stop(db));
	if (err)
		return kv_fail(db, err, "no room for an epoch descriptor");
	pthread_mutex_lock(&descs(db)->de_lock);
	descs(db)->de_left += (*out)->sg_bytes / KV_BLOCK;
	pthread_mutex_unlock(&descs(db)->de_lock);
	return 0;
}

/* Another one to be filled, with room for @bytes. */
static int seg_begin(struct kvdb *db, uint32_t bytes)
{
	struct kv_descs *de = descs(db);
	struct kv_seg *s = next_take(de, bytes);
	int err = s ? 0 : seg_wait(db, bytes, &s);

	if (err)
		return err;
	de->de_seg = s;
	de->de_end = 0;
	return 0;
}

int kv_desc_take(struct kvdb *db, uint64_t e, uint32_t bytes, struct kv_seg **out, uint32_t *off)
{
	struct kv_descs *de = descs(db);
	struct kv_seg *s = de->de_seg;
	int err = 0;

	KV_ASSERT_HELD(&db->d_flusher->fl_io_lock);
	KV_ASSERT(bytes % KV_BLOCK == 0);
	if (s && de->de_end + bytes > s->sg_bytes) {
		spend(de, s->sg_bytes - de->de_end);
		seg_end(db);
	}
	if (!de->de_seg)
		err = seg_begin(db, bytes);
	if (err)
		return err;
	*out = s = de->de_seg;
	/* an epoch must end: it waits for memory, with one segment however long that takes */
	while (!atomic_load(&s->sg_image) &&
	       !kv_slab_take_image(db, s->sg_bytes, &s->sg_image))
		if ((err = kv_sleep_or_stop(db)))
			return err;
	KV_ASSERT(de->de_end + bytes <= s->sg_bytes);
	KV_ASSERT(atomic_load(&s->sg_last_epoch) < e);
	*off = de->de_end;
	de->de_end += bytes;
	spend(de, bytes);
	if (!atomic_load(&s->sg_first_epoch))
		atomic_store(&s->sg_first_epoch, e);
	atomic_store(&s->sg_last_epoch, e);
	if (de->de_end == s->sg_bytes)
		seg_end(db);
	return 0;
}

void kv_desc_step(struct kvdb *db)
{
	struct kv_descs *de = descs(db);

	/* the thread that fills it needs it more */
	if (has_room(de, DESC_AHEAD) || pthread_mutex_trylock(&de->de_fill_lock))
		return;
	if (!has_room(de, DESC_AHEAD))
		seg_add(db);
	pthread_mutex_unlock(&de->de_fill_lock);
}
