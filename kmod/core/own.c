/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The heartbeat: of a pool with MP_RO_MULTIHOST at most one host writes at a time (INV-25).
 *
 * Nothing is asked of the device but to read and write one sector: block 1 of the home device
 * says which opening of the pool wrote it last, and how often. Clocks are never compared.
 *
 * To open, a host that finds another's claim watches it for WATCH_MS; one that changes is
 * alive. It then writes a claim of its own, waits for VERIFY_MS, and looks again: if the
 * claim is still there, the pool is its own. The owner reads and writes the block every
 * BEAT_MS. Another's claim it overwrites, so that this one gives up, but only as long as it
 * is sure that the other has not looked again. It writes to the pool for LATE_MS after the
 * begin of a heartbeat that counts, and that is less than VERIFY_MS: a host that has looked again
 * knows that its predecessor is silent. What is left of that time is for writes on the way.
 *
 * An owner that is late cannot know which hosts were here meanwhile: a heartbeat that took long
 * may have overwritten the claim of a host that has looked again. Writers wait while the owner
 * claims anew and sees whether the pool's generation is still its own: an opening raises it before
 * it changes anything.
 *
 * A host that opens the pool for reading only, a reader, writes nothing there: it looks at the
 * block every BEAT_MS. Where that has changed another host has come, and the objects that are known
 * here may be deleted and their space reused: from then on nothing is read. Nor is anything read
 * when the last look is LATE_MS old; then the reader looks first. It leaves no trace, so a claim
 * may not be silent for long and then count: one that is CLAIM_MS old is made again, and a reader
 * waits for SILENT_MS. The same goes for an owner: what it may not write it does not read.
 *
 * No limit of one user makes the host late: in the kernel the heartbeat is the root group's I/O,
 * from a queue of its own (dev_bio.c, pools.c). But a limit of a control group (io.max) may hold
 * back data that was admitted for longer than the rest of that time; if the heartbeat stops just
 * then, as of a machine that is suspended, such a write comes after another took the pool. So
 * such limits do not go with a pool of several hosts.
 *
 * There is no short way for the host that was here last, nor after a clean close: one that was
 * stopped, with a heartbeat on its way, and died would find its name there, though another
 * came. tests/model/model_own.py has all of this, and fails without each of these rules.
 * After Lamport's mutual exclusion by timing (Fischer's algorithm, 1987).
 *
 * Locks: ow_lock, for all but the one look that mp_own_wait() begins with; p_lock inside.
 */
#include "member.h"

#define BEAT_MS		250u
#define LATE_MS		750u
#define WATCH_MS	500u
#define VERIFY_MS	1000u
#define POLL_MS		100u
#define CLAIM_MS	(VERIFY_MS + BEAT_MS)	/* a claim so old is made again */
#define FREE_MS		(2 * LATE_MS + POLL_MS)	/* a close that came late may hide an owner */
#define SILENT_MS	(CLAIM_MS + 2 * LATE_MS + POLL_MS)	/* with a heartbeat on its way */
#define CLAIM_TURNS	20
#define DOUBT_MS	5000u	/* for which a device that fails is asked again */

static int block_read(struct mp_own *own)
{
	int rc = own->ow_dev->d_ops->read(own->ow_dev, MP_BEAT_ADDR, own->ow_buf, MP_BLOCK);

	return rc ? mp_err_as(MP_HOST_IO, rc, "%s: read of the heartbeat: error %d",
			      own->ow_dev->d_path, rc) : 0;
}

static int block_write(struct mp_own *own)
{
	int rc;

	own->ow_beat.be_count++;
	mp_beat_encode(&own->ow_beat, own->ow_uuid, own->ow_buf);
	rc = own->ow_dev->d_ops->write(own->ow_dev, MP_BEAT_ADDR, own->ow_buf, MP_BLOCK,
				      MP_DEV_BEAT);
	return rc ? mp_err_as(MP_HOST_IO, rc, "%s: heartbeat: error %d", own->ow_dev->d_path,
			      rc) : 0;
}

/* is the block, just read, as this opening left it? No other opening has its number */
static bool block_is_ours(const struct mp_own *own)
{
	struct mp_beat be;

	return mp_beat_decode(own->ow_buf, own->ow_uuid, &be) &&
	       be.be_claim == own->ow_beat.be_claim;
}

/* the one whose block was just read */
static int busy_error(const struct mp_own *own)
{
	struct mp_beat be;

	mp_beat_decode(own->ow_buf, own->ow_uuid, &be);
	return mp_err(MP_HOST_BUSY, "%s: host %s writes its heartbeat there", own->ow_dev->d_path,
		      be.be_host[0] ? be.be_host : "(unknown)");
}

void mp_own_init(struct mp_own *own)
{
	mutex_init(&own->ow_lock);
}

void mp_own_fini(struct mp_own *own)
{
	os_free_io(own->ow_buf);
	mutex_destroy(&own->ow_lock);
}

static int own_take(struct mp_own *own, struct mp_dev *home, const struct mp_sb *sb)
{
	int rc = 0;

	if (!own->ow_buf)
		own->ow_buf = os_alloc_io(2 * MP_BLOCK);
	if (!own->ow_buf)
		return mp_err(MP_NOMEM, "heartbeat");
	own->ow_was = own->ow_buf + MP_BLOCK;
	own->ow_dev = home;
	memcpy(own->ow_uuid, sb->sb_uuid, MP_UUID_LEN);
	memset(&own->ow_beat, 0, sizeof(own->ow_beat));
	os_host_name(own->ow_beat.be_host, MP_BEAT_HOST);
	while (!rc && (!own->ow_beat.be_claim || own->ow_beat.be_claim == ~0ull))
		rc = mp_random(&own->ow_beat.be_claim, sizeof(own->ow_beat.be_claim));
	return rc;
}

static void state_set(struct mp_own *own, enum mp_own_state state)
{
	os_assert_held(&own->ow_lock);
	smp_store_release(&own->ow_state, state);
}

static void counts(struct mp_own *own, u64 begin)
{
	os_assert(begin >= own->ow_good);
	smp_store_release(&own->ow_good, begin);
	own->ow_next = begin + BEAT_MS;
	own->ow_limit = begin + LATE_MS;
	state_set(own, MP_OWN_ALONE);
}

/* the same for the look of a reader: no host has come since @begin */
static void looked(struct mp_own *own, u64 begin)
{
	os_assert(begin >= own->ow_good);
	smp_store_release(&own->ow_good, begin);
	own->ow_next = begin + BEAT_MS;
	own->ow_limit = begin + LATE_MS + DOUBT_MS;
	state_set(own, MP_OWN_READS);
}

/* ---- coming and going ---- */

/* 0: a claim is silent for @ms, or there is none, and it remains so for @free_ms */
static int watch(struct mp_own *own, u32 ms, u32 free_ms)
{
	struct mp_beat be;
	int rc = block_read(own);
	u64 end = os_now_ms();

	if (rc)
		return rc;
	memcpy(own->ow_was, own->ow_buf, MP_BLOCK);
	end += mp_beat_decode(own->ow_buf, own->ow_uuid, &be) && be.be_claim ? ms : free_ms;
	while (!rc && os_now_ms() < end) {
		os_sleep_ms(POLL_MS);
		rc = block_read(own);
		if (!rc && memcmp(own->ow_buf, own->ow_was, MP_BLOCK))
			rc = busy_error(own);
	}
	return rc;
}

/* For a reader: a host whose claim is silent for so long is no owner, and claims anew first. */
static int watch_long(struct mp_own *own)
{
	return watch(own, SILENT_MS, own->ow_dev->d_flags & MP_DEV_BESIDE ? 0 : FREE_MS);
}

static int look(struct mp_dev *home, const struct mp_sb *sb)
{
	struct mp_own own;
	int rc;

	memset(&own, 0, sizeof(own));
	rc = own_take(&own, home, sb);
	if (!rc)
		rc = watch_long(&own);
	os_free_io(own.ow_buf);
	return rc;
}

int mp_own_read(struct mp_own *own, struct mp_dev *home, const struct mp_sb *sb)
{
	u64 begin = os_now_ms();
	struct mp_beat be;
	int rc;

	mutex_lock(&own->ow_lock);
	rc = own_take(own, home, sb);
	if (!rc)
		rc = watch_long(own);
	if (home->d_flags & MP_DEV_BESIDE) {
		/* it wants to see what changes */
		if (rc == -EBUSY && mp_beat_decode(own->ow_buf, own->ow_uuid, &be) &&
		    !memcmp(be.be_host, own->ow_beat.be_host, MP_BEAT_HOST))
			rc = 0;
	} else if (!rc) {
		looked(own, begin);
	}
	mutex_unlock(&own->ow_lock);
	return rc;
}

int mp_own_look_at(struct mp_dev *dev)
{
	struct mp_sb *sb = os_alloc(sizeof(*sb));
	struct mp_sb_found found;
	int rc = sb ? mp_sb_read(dev, sb, &found) : mp_err(MP_NOMEM, "superblock");

	if (!rc && !sb->sb_slot && sb->sb_state == MP_SB_ACTIVE &&
	    (sb->sb_ro_compat & MP_RO_MULTIHOST))
		rc = look(dev, sb);
	os_free(sb);
	return rc == -EBUSY || rc == -ENOMEM ? rc : 0;
}

/* @is_old: it took so long that a reader may have taken its author for dead */
static int claim(struct mp_own *own, bool *is_old)
{
	u64 claimed = os_now_ms(), begin = 0;
	int rc = block_write(own);

	os_assert_held(&own->ow_lock);
	if (!rc) {
		os_sleep_ms(VERIFY_MS);
		begin = os_now_ms();
		rc = block_read(own);
	}
	if (!rc && !CHECK(block_is_ours(own)))
		rc = busy_error(own);
	*is_old = !CHECK(begin - claimed <= CLAIM_MS);
	if (!rc && !*is_old)
		counts(own, begin);
	return rc;
}

int mp_own_claim(struct mp_own *own, struct mp_dev *home, const struct mp_sb *sb)
{
	u32 turn = 0;
	bool is_old;
	int rc;

	mutex_lock(&own->ow_lock);
	rc = own_take(own, home, sb);
	if (!rc)
		rc = watch(own, WATCH_MS, 0);
	/* an open that fails leaves the pool as it was: ow_was */
	do
		rc = rc ? rc : claim(own, &is_old);
	while (!rc && is_old && ++turn < CLAIM_TURNS);
	if (!rc && is_old)
		rc = mp_err(MP_HOST_IO, "%s: claims take longer than %u ms", home->d_path,
			    CLAIM_MS);
	mutex_unlock(&own->ow_lock);
	return rc;
}

int mp_own_begin(struct mp_own *own, struct mp_dev *home, const struct mp_sb *sb)
{
	u64 begin = os_now_ms();
	int rc;

	mutex_lock(&own->ow_lock);
	rc = own_take(own, home, sb);
	own->ow_has_written = true;
	if (!rc)
		rc = block_write(own);
	if (!rc)
		counts(own, begin);
	mutex_unlock(&own->ow_lock);
	return rc;
}

void mp_own_leave(struct mp_own *own)
{
	struct mp_dev *dev = own->ow_dev;

	mutex_lock(&own->ow_lock);
	if (own->ow_state == MP_OWN_ALONE && os_now_ms() - own->ow_good < LATE_MS &&
	    !block_read(own) && block_is_ours(own)) {
		own->ow_beat.be_claim = 0;
		if (!own->ow_has_written)
			dev->d_ops->write(dev, MP_BEAT_ADDR, own->ow_was, MP_BLOCK, MP_DEV_BEAT);
		else
			block_write(own);
	}
	state_set(own, MP_OWN_OFF);
	mutex_unlock(&own->ow_lock);
}

/* ---- being there ---- */

/* @rc of mp_pool_fail(), which comes first: then writers hear that there is nothing to wait for */
static int lose(struct mp_pool *pool, int rc)
{
	os_assert(mp_pool_is_failed(pool));
	state_set(&pool->p_own, MP_OWN_LOST);
	return rc;
}

static int lost(struct mp_pool *pool)
{
	struct mp_own *own = &pool->p_own;
	struct mp_beat be;

	mp_beat_decode(own->ow_buf, own->ow_uuid, &be);
	return lose(pool, mp_pool_fail(pool, MP_HOST_LOST, -EIO,
				       "%s: the heartbeat there is that of host %s",
				       own->ow_dev->d_path,
				       be.be_host[0] ? be.be_host : "(unknown)"));
}

/*
 * Is it the pool that was opened here? A host that opened it since raised the generation, before
 * it changed anything. So did this host, if it was late in the middle of a change: it stops, too.
 */
static int generation_check(struct mp_pool *pool)
{
	struct mp_own *own = &pool->p_own;
	struct mp_sb *sb = os_alloc(sizeof(*sb));
	struct mp_sb_found found;
	u64 gen;
	int rc = sb ? mp_sb_read(own->ow_dev, sb, &found) : -ENOMEM;

	mutex_lock(&pool->p_lock);
	gen = pool->p_sb_gen;
	mutex_unlock(&pool->p_lock);
	/* one copy is enough: a host that raises the generation writes all before anything else */
	if (rc != -ENOMEM && rc != -EIO &&
	    !CHECK(!rc && sb->sb_state == MP_SB_ACTIVE && sb->sb_gen == gen &&
		   !memcmp(sb->sb_uuid, own->ow_uuid, MP_UUID_LEN)))
		rc = lose(pool, mp_pool_fail(pool, MP_HOST_LOST, -EIO,
					     "%s: the pool is not as it was when the heartbeat "
					     "stopped", own->ow_dev->d_path));
	os_free(sb);
	return rc;
}

static void doubt(struct mp_own *own, u64 now)
{
	own->ow_limit = now + DOUBT_MS;
	state_set(own, MP_OWN_DOUBT);
}

static int beat(struct mp_pool *pool, u64 begin)
{
	struct mp_own *own = &pool->p_own;
	u64 good = own->ow_good, end;
	bool is_over;
	int rc = block_read(own);

	os_assert(own->ow_state == MP_OWN_ALONE);
	if (rc)
		return rc;
	is_over = !block_is_ours(own);
	/* the clock of a machine that was suspended may have stood still: it only seems in time */
	rc = CHECK(!is_over) ? 0 : generation_check(pool);
	if (!rc)
		rc = block_write(own);
	if (rc)
		return rc;
	end = os_now_ms();
	if (CHECK(!is_over || end - good <= LATE_MS)) {
		counts(own, begin);
	} else {
		own->ow_next = end;
		doubt(own, end);
	}
	return 0;
}

static int claim_anew(struct mp_pool *pool)
{
	struct mp_own *own = &pool->p_own;
	int rc = block_read(own);

	os_assert(own->ow_state == MP_OWN_DOUBT);
	/* the host that came has the pool by now, or soon: to overwrite it would be of no use */
	if (!rc && !block_is_ours(own))
		return lost(pool);
	own->ow_claimed = os_now_ms();
	if (!rc)
		rc = block_write(own);
	if (rc)
		return rc;
	own->ow_next = os_now_ms() + VERIFY_MS;
	state_set(own, MP_OWN_WAIT);
	return 0;
}

static int look_again(struct mp_pool *pool, u64 begin)
{
	struct mp_own *own = &pool->p_own;
	int rc = block_read(own);

	os_assert(own->ow_state == MP_OWN_WAIT);
	if (!rc && !CHECK(block_is_ours(own)))
		return lost(pool);
	if (!rc)
		rc = generation_check(pool);
	/* as in claim() */
	if (!rc && !CHECK(begin - own->ow_claimed <= CLAIM_MS))
		state_set(own, MP_OWN_DOUBT);
	else if (!rc)
		counts(own, begin);
	return rc;
}

/*
 * A reader that is late may have missed a host that came and went, and left the block as it was
 * by chance: the numbers of claims are gone with a close.
 */
static int reader_look(struct mp_pool *pool, u64 begin)
{
	struct mp_own *own = &pool->p_own;
	int rc = block_read(own);

	os_assert(own->ow_state == MP_OWN_READS);
	if (!rc && !CHECK(!memcmp(own->ow_buf, own->ow_was, MP_BLOCK)))
		return lost(pool);
	if (!rc && begin - own->ow_good >= LATE_MS)
		rc = generation_check(pool);
	if (!rc)
		looked(own, begin);
	return rc;
}

/* ow_lock held. An error of the device is tried again, until it is too late */
static void step(struct mp_pool *pool)
{
	struct mp_own *own = &pool->p_own;
	u64 now = os_now_ms();
	int rc = 0;

	os_assert_held(&own->ow_lock);
	if (now < own->ow_next)
		return;
	own->ow_next = now + BEAT_MS;
	/* another may have come and gone, or the block be written by us behind it */
	if (own->ow_state == MP_OWN_ALONE && !CHECK(now - own->ow_good < LATE_MS))
		doubt(own, now);
	if (own->ow_state == MP_OWN_ALONE)
		rc = beat(pool, now);
	else if (own->ow_state == MP_OWN_DOUBT)
		rc = claim_anew(pool);
	else if (own->ow_state == MP_OWN_WAIT)
		rc = look_again(pool, now);
	else if (own->ow_state == MP_OWN_READS)
		rc = reader_look(pool, now);
	if (rc && own->ow_state != MP_OWN_LOST && os_now_ms() >= own->ow_limit)
		lose(pool, mp_pool_fail(pool, MP_HOST_IO, rc, "%s: heartbeat: error %d",
					own->ow_dev->d_path, rc));
}

u32 mp_pool_beat(struct mp_pool *pool)
{
	struct mp_own *own = &pool->p_own;
	u64 now;
	u32 ms = 0;

	mutex_lock(&own->ow_lock);
	step(pool);
	now = os_now_ms();
	if (own->ow_state != MP_OWN_OFF && own->ow_state != MP_OWN_LOST)
		ms = own->ow_next > now ? (u32)(own->ow_next - now) : 1;
	mutex_unlock(&own->ow_lock);
	return ms;
}

bool mp_own_is_late(struct mp_own *own)
{
	u64 good = smp_load_acquire(&own->ow_good);	/* before the time: it may change */

	return !CHECK(smp_load_acquire(&own->ow_state) == MP_OWN_LOST ||
		      os_now_ms() - good < LATE_MS);
}

bool mp_pool_would_wait(struct mp_pool *pool)
{
	return mp_pool_has_beat(pool) && mp_own_is_late(&pool->p_own);
}

void mp_own_wait(struct mp_pool *pool)
{
	struct mp_own *own = &pool->p_own;

	mp_assert_no_lock(pool);
	/* no thread does it for us while the pool is being opened */
	if (!pool->p_is_open && mp_pool_has_beat(pool))
		mp_pool_beat(pool);
	while (smp_load_acquire(&own->ow_state) != MP_OWN_OFF && mp_own_is_late(own)) {
		u32 ms = mp_pool_beat(pool);

		if (ms && mp_own_is_late(own))
			os_sleep_ms(ms);
	}
}

int mp_pool_readable(struct mp_pool *pool)
{
	if (!mp_pool_has_beat(pool))
		return 0;
	mp_own_wait(pool);
	return CHECK(smp_load_acquire(&pool->p_own.ow_state) != MP_OWN_LOST) ? 0 :
	       mp_pool_failed(pool, -EIO);
}

bool mp_pool_has_beat(struct mp_pool *pool)
{
	return smp_load_acquire(&pool->p_own.ow_state) != MP_OWN_OFF;
}
