/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The metadata log, writing side.
 *
 * Two regions on each of the log's devices; epoch N lives in region N & 1 and
 * begins with a checkpoint. A frame is a whole number of blocks, written once;
 * no block is rewritten within an epoch (a torn frame that was never
 * acknowledged is replaced at the next open). One frame is in flight at a
 * time: write on every mirror, flush every mirror, apply, next. So a frame
 * with sequence k proves that all before k were durable.
 *
 * Group commit: a thread that finds no leader becomes it and writes one frame for
 * all that wait. Effects on the object table are applied by the leader, in log
 * order, before the next frame, so a checkpoint sees exactly what is durable.
 * The leader owns md_epoch .. md_buf without a lock; md_is_busy says so.
 *
 * In a file the regions take only as much space of the file system as the state needs, md_space:
 * what makes the state larger reserves it first, in both regions, as for a checkpoint of all that
 * there is then and two frames (INV-28). So what needs no room, a delete say, finds its frame or
 * the checkpoint before it has space already, however full the file system is. An epoch that
 * comes to the end of the space goes on in more of it while the log is less than four times its
 * state, and only where that can be had. Space is never given back: no write depends on a
 * decision that a crash could forget.
 * The reading side is mdload.c.
 */
#include "durable.h"

#define LOG_LONG	(64ull << 20)	/* bytes: a longer epoch ends when a quarter is state */
#define STATES		4		/* lengths of the state that a log may have below */

u64 mp_md_region(const struct mp_mdlog *md, u64 epoch)
{
	return md->md_off + (epoch & 1) * md->md_bytes;
}

int mp_md_init(struct mp_pool *pool)
{
	struct mp_mdlog *md = &pool->p_md;
	u32 i;

	mutex_init(&md->md_lock);
	mutex_init(&md->md_space_lock);
	os_cond_init(&md->md_cond);
	INIT_LIST_HEAD(&md->md_queue);
	md->md_off = pool->p_sb->sb_md_off;
	md->md_bytes = pool->p_sb->sb_md_bytes;
	md->md_frame_max = (u32)min_t(u64, MP_FRAME_MAX, ALIGN_DOWN(md->md_bytes / 4, MP_BLOCK));
	md->md_space = md->md_bytes;
	for (i = 0; i < pool->p_ndevs && md->md_ndevs < 2; i++) {
		if (!(pool->p_dev[i]->pd_flags & MP_DEVF_MD))
			continue;
		md->md_dev[md->md_ndevs++] = pool->p_dev[i];
		if (mp_dev_is_sparse(pool->p_dev[i]->pd_dev))
			md->md_space = 0;
	}
	md->md_buf = os_alloc_io(md->md_frame_max);
	if (!md->md_buf)
		return mp_err(MP_NOMEM, "metadata log");
	return 0;
}

void mp_md_fini(struct mp_pool *pool)
{
	struct mp_mdlog *md = &pool->p_md;

	os_assert(!md->md_is_busy && list_empty(&md->md_queue));
	os_free_io(md->md_buf);
	os_free(md->md_load);
	os_cond_destroy(&md->md_cond);
	mutex_destroy(&md->md_space_lock);
	mutex_destroy(&md->md_lock);
}

/* write the frame in md_buf on every mirror; md_len bytes of records are there */
static int frame_write(struct mp_pool *pool, u32 flags, u32 len, u32 nrecs, u64 durable)
{
	struct mp_mdlog *md = &pool->p_md;
	struct mp_frame fr = {
		.mf_flags = flags,
		.mf_blocks = DIV_ROUND_UP(MP_FRAME_HDR + len, MP_BLOCK),
		.mf_addr = mp_md_region(md, md->md_epoch) + md->md_tail,
		.mf_epoch = md->md_epoch,
		.mf_seq = md->md_seq + 1,
		.mf_durable = durable,
		.mf_gen = pool->p_gen,
		.mf_len = len,
		.mf_prev = md->md_prev,
		.mf_nrecs = nrecs,
	};
	u32 i;
	int rc;

	mp_assert_no_lock(pool);
	/* the position is the leader's */
	os_assert(md->md_is_busy || !pool->p_is_open);
	os_assert(durable <= md->md_seq && len <= md->md_frame_max - MP_FRAME_HDR);
	os_assert(md->md_tail + (u64)fr.mf_blocks * MP_BLOCK <= md->md_space);
	mutex_lock(&pool->p_lock);
	fr.mf_id_hwm = min_t(u64, pool->p_next_id + MP_ID_BATCH, MP_ID_LAST);
	mutex_unlock(&pool->p_lock);
	mp_frame_encode(&fr, pool->p_uuid, md->md_buf);
	for (i = 0; i < md->md_ndevs; i++) {
		struct mp_dev *dev = md->md_dev[i]->pd_dev;

		rc = mp_dev_write(dev, fr.mf_addr, md->md_buf, (size_t)fr.mf_blocks * MP_BLOCK);
		if (rc)
			return mp_pool_fail(pool, MP_MD_WRITE, rc, "%s: offset %llu: error %d",
					    dev->d_path, fr.mf_addr, rc);
	}
	md->md_tail += (u64)fr.mf_blocks * MP_BLOCK;
	md->md_seq++;
	md->md_prev = fr.mf_csum;
	md->md_id_next = fr.mf_id_hwm;
	return 0;
}

static int mirrors_flush(struct mp_pool *pool)
{
	struct mp_mdlog *md = &pool->p_md;
	u32 i;
	int rc = 0;

	for (i = 0; i < md->md_ndevs && !rc; i++)
		rc = mp_dev_flush(pool, md->md_dev[i]);
	return rc;
}

/*
 * Begin the next epoch with everything that is durable. It counts only from
 * its END frame on, which is written when all before it is on media; until
 * then the old epoch is the valid one.
 */
static int checkpoint(struct mp_pool *pool)
{
	struct mp_mdlog *md = &pool->p_md;
	struct mp_ckpt_cursor c = { .cc_phase = 0 };
	u32 max = md->md_frame_max - MP_FRAME_HDR, len, nrecs;
	u64 durable = md->md_seq;
	int rc;

	os_assert(md->md_is_busy || !pool->p_is_open);
	md->md_epoch++;
	md->md_tail = 0;
	do {
		nrecs = 0;
		len = mp_otab_encode(pool, &c, md->md_buf + MP_FRAME_HDR, max, &nrecs);
		if (md->md_tail + ALIGN(MP_FRAME_HDR + len, MP_BLOCK) + MP_BLOCK > md->md_space)
			return mp_pool_fail(pool, MP_MD_FULL, -ENOSPC,
					    "checkpoint %llu does not fit in %llu bytes",
					    md->md_epoch, md->md_space);
		rc = frame_write(pool, MP_FRAME_CKPT, len, nrecs, durable);
		if (rc)
			return rc;
	} while (c.cc_phase < 2 || c.cc_key < smp_load_acquire(&pool->p_ndevs));
	/* the parts before the mark that makes them count: INV-6 */
	rc = BARRIER(mirrors_flush(pool));
	if (rc)
		return rc;
	rc = frame_write(pool, MP_FRAME_CKPT | MP_FRAME_END, 0, 0, md->md_seq);
	if (rc)
		return rc;
	/* the mark before the first record that follows it: INV-6 */
	return BARRIER(mirrors_flush(pool));
}

int mp_md_format(struct mp_pool *pool)
{
	struct mp_mdlog *md = &pool->p_md;
	int rc;

	/* epoch 0 fills region 0 with a frame, so that both regions always begin with one */
	md->md_epoch = 0;
	md->md_tail = 0;
	md->md_space = min_t(u64, md->md_bytes, MP_MD_FIRST);
	rc = frame_write(pool, MP_FRAME_CKPT, 0, 0, 0);
	return rc ? rc : checkpoint(pool);
}

/* of a region, for @state bytes of records */
static u64 region_need(const struct mp_mdlog *md, u64 state)
{
	/* frames waste less than 1/64; the rest keeps deletes possible when full: INV-8 */
	return state + state / 64 + 16384 + 2ull * md->md_frame_max;
}

int mp_md_room(struct mp_pool *pool, u64 bytes)
{
	u64 state = pool->p_ckpt + pool->p_ckpt_pend + bytes;

	mp_assert_locked(pool);
	if (region_need(&pool->p_md, state) > pool->p_md.md_bytes)
		return mp_err(MP_MD_FULL, "%llu objects", pool->p_nobjs);
	return 0;
}

/* ---- space below ---- */

/* up to @to bytes of each region; md_space_lock held. What a failure leaves reserved stays. */
static int space_take(struct mp_mdlog *md, u64 to, bool is_said)
{
	u64 off = md->md_space, len = to - off;
	u32 i;
	int rc = 0;

	os_assert_held(&md->md_space_lock);
	os_assert(to > off && to <= md->md_bytes && to % MP_BLOCK == 0);
	for (i = 0; i < 2 * md->md_ndevs && !rc; i++) {
		struct mp_dev *dev = md->md_dev[i / 2]->pd_dev;
		u64 at = mp_md_region(md, i) + off;

		if (mp_dev_is_sparse(dev))
			rc = is_said ? mp_dev_reserve(dev, at, len) :
				       dev->d_ops->reserve(dev, at, len);
	}
	if (!rc)
		smp_store_release(&md->md_space, to);
	return rc;
}

/* @must bytes of each region; more of them, as it suits a log of the state, where there are */
static int space_grow(struct mp_pool *pool, u64 must)
{
	struct mp_mdlog *md = &pool->p_md;
	u64 state, wish;
	int rc = 0;

	mutex_lock(&pool->p_lock);
	state = pool->p_ckpt + pool->p_ckpt_pend;
	mutex_unlock(&pool->p_lock);
	wish = max_t(u64, region_need(md, state) + (STATES - 1) * state, MP_MD_FIRST);
	wish = min(ALIGN(max(wish, must), MP_SB_AREA), md->md_bytes);
	mutex_lock(&md->md_space_lock);
	if (wish > md->md_space && space_take(md, wish, false) && must > md->md_space)
		rc = space_take(md, must, true);
	mutex_unlock(&md->md_space_lock);
	return rc;
}

int mp_md_space(struct mp_pool *pool)
{
	u64 must;

	mp_assert_no_lock(pool);
	mutex_lock(&pool->p_lock);
	must = region_need(&pool->p_md, pool->p_ckpt + pool->p_ckpt_pend);
	mutex_unlock(&pool->p_lock);
	/* mp_md_room() has seen to it that it is no more than a region */
	must = min(ALIGN(must, MP_BLOCK), pool->p_md.md_bytes);
	return must > smp_load_acquire(&pool->p_md.md_space) ? space_grow(pool, must) : 0;
}

int mp_md_space_open(struct mp_pool *pool)
{
	struct mp_mdlog *md = &pool->p_md;
	u64 must = max(ALIGN(region_need(md, pool->p_ckpt), MP_BLOCK), md->md_tail + MP_BLOCK);
	u64 known = md->md_bytes, n;
	u32 i;

	if (md->md_space)
		return 0;
	for (i = 0; i < 2 * md->md_ndevs; i++) {
		struct mp_dev *dev = md->md_dev[i / 2]->pd_dev;

		if (!mp_dev_is_sparse(dev))
			continue;
		n = dev->d_ops->reserved ? dev->d_ops->reserved(dev, mp_md_region(md, i), known) :
					   MP_DEV_UNKNOWN;
		/* that cannot tell: what every log has from the beginning */
		known = min_t(u64, known, n == MP_DEV_UNKNOWN ? MP_MD_FIRST : n);
	}
	md->md_space = ALIGN_DOWN(known, MP_BLOCK);
	must = min(must, md->md_bytes);
	return must > md->md_space ? space_grow(pool, must) : 0;
}

/* ---- transactions ---- */

int mp_txn_init(struct mp_txn *txn, u32 max)
{
	memset(txn, 0, sizeof(*txn));
	INIT_LIST_HEAD(&txn->t_list);
	if (max) {
		txn->t_buf = os_call_alloc(max);
		if (!txn->t_buf)
			return mp_err(MP_NOMEM, "metadata record");
	}
	txn->t_max = max;
	return 0;
}

void mp_txn_fini(struct mp_txn *txn)
{
	os_assert(list_empty(&txn->t_list));
	os_free(txn->t_buf);
}

int mp_txn_add(struct mp_txn *txn, const struct mp_rec *r)
{
	if (txn->t_len + mp_rec_size(r) > txn->t_max)
		return mp_err(MP_MD_BATCH, "%u bytes", txn->t_len + mp_rec_size(r));
	txn->t_len += mp_rec_encode(r, txn->t_buf + txn->t_len);
	txn->t_nrecs++;
	return 0;
}

/* move what fits in one frame from the queue to @group; md_lock held */
static u32 group_take(struct mp_mdlog *md, struct list_head *group, u32 *nrecs)
{
	u32 max = md->md_frame_max - MP_FRAME_HDR, len = 0;
	struct mp_txn *t, *tmp;

	os_assert_held(&md->md_lock);
	os_assert(md->md_is_busy && !list_empty(&md->md_queue));
	*nrecs = 0;
	list_for_each_entry_safe(t, tmp, &md->md_queue, t_list) {
		if (len + t->t_len > max)
			break;
		if (t->t_len)
			memcpy(md->md_buf + MP_FRAME_HDR + len, t->t_buf, t->t_len);
		len += t->t_len;
		*nrecs += t->t_nrecs;
		list_del_init(&t->t_list);
		list_add_tail(&t->t_list, group);
	}
	return len;
}

/* An open reads all of an epoch, of each mirror: it does not get long because there is room. */
static bool is_long(struct mp_pool *pool)
{
	u64 tail = pool->p_md.md_tail, state;

	if (tail <= LOG_LONG)
		return false;
	mutex_lock(&pool->p_lock);
	state = pool->p_ckpt;
	mutex_unlock(&pool->p_lock);
	return tail / 4 > state;
}

/* A new epoch, for records of @len bytes in md_buf, which the checkpoint uses, too. */
static int epoch_begin(struct mp_pool *pool, u8 *hold, u32 len)
{
	u8 *recs = pool->p_md.md_buf + MP_FRAME_HDR;
	int rc;

	memcpy(hold, recs, len);
	rc = checkpoint(pool);
	memcpy(recs, hold, len);
	return rc;
}

static int group_write(struct mp_pool *pool, struct list_head *group, u32 len, u32 nrecs)
{
	struct mp_mdlog *md = &pool->p_md;
	struct mp_txn *t;
	u64 end = md->md_tail + ALIGN(MP_FRAME_HDR + len, MP_BLOCK);
	bool is_full;
	u8 *hold;
	int rc;

	os_assert_free(&md->md_lock);
	os_assert(!list_empty(group));
	rc = mp_pool_writable(pool);
	if (rc)
		return rc;
	/* without more space a new epoch has what it needs */
	if (end > smp_load_acquire(&md->md_space) && end <= md->md_bytes)
		space_grow(pool, 0);
	is_full = end > smp_load_acquire(&md->md_space);
	if (is_full || is_long(pool)) {
		hold = os_alloc(len);
		/* what is only long can wait for memory */
		if (!hold && is_full)
			return mp_err(MP_NOMEM, "metadata record");
		rc = hold ? epoch_begin(pool, hold, len) : 0;
		os_free(hold);
		if (rc)
			return rc;
	}
	rc = frame_write(pool, 0, len, nrecs, md->md_seq);
	/* the record is durable before it is acted on: INV-5 */
	if (!rc)
		rc = BARRIER(mirrors_flush(pool));
	if (rc)
		return rc;
	/* now, for an id below it may be told: INV-10 */
	mutex_lock(&md->md_lock);
	md->md_id_hwm = md->md_id_next;
	mutex_unlock(&md->md_lock);
	list_for_each_entry(t, group, t_list)
		if (t->t_apply)
			t->t_apply(t);
	return 0;
}

/* one turn as leader; md_lock held at entry and exit, md_is_busy set by the caller */
static void lead(struct mp_pool *pool)
{
	struct mp_mdlog *md = &pool->p_md;
	struct list_head group;
	struct mp_txn *t, *tmp;
	u32 len, nrecs;
	int rc;

	os_assert_held(&md->md_lock);
	INIT_LIST_HEAD(&group);
	len = group_take(md, &group, &nrecs);
	mutex_unlock(&md->md_lock);
	rc = group_write(pool, &group, len, nrecs);
	mutex_lock(&md->md_lock);
	list_for_each_entry_safe(t, tmp, &group, t_list) {
		list_del_init(&t->t_list);
		t->t_rc = rc;
		t->t_is_done = true;
	}
}

int mp_md_commit(struct mp_pool *pool, struct mp_txn *txn)
{
	struct mp_mdlog *md = &pool->p_md;
	int rc;

	mp_assert_no_lock(pool);
	os_assert(list_empty(&txn->t_list) && !txn->t_is_done);
	if (txn->t_len > md->md_frame_max - MP_FRAME_HDR)
		return mp_err(MP_MD_BATCH, "%u bytes, at most %u", txn->t_len,
			      md->md_frame_max - MP_FRAME_HDR);
	rc = mp_pool_writable(pool);
	if (rc)
		return rc;
	mutex_lock(&md->md_lock);
	list_add_tail(&txn->t_list, &md->md_queue);
	while (!txn->t_is_done) {
		if (md->md_is_busy) {
			os_cond_wait(&md->md_cond, &md->md_lock);
			continue;
		}
		md->md_is_busy = true;
		lead(pool);
		md->md_is_busy = false;
		os_cond_wake_all(&md->md_cond);
	}
	mutex_unlock(&md->md_lock);
	/* all of a failed group get the detail, not the leader alone */
	if (txn->t_rc == -EROFS)
		return mp_pool_writable(pool);
	return txn->t_rc ? mp_pool_failed(pool, txn->t_rc) : 0;
}
