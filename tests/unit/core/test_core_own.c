/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The heartbeat that keeps hosts apart: hosts are threads of which one runs at a time, on a
 * clock of their own making; each has its own handle of the same device, and may stop between
 * any two requests. SEED repeats a run.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "member.h"
#include "core_mem.h"

#define SIZE	(4ull << 20)
#define HOSTS	3

struct host {
	struct mp_dev dev;	/* first */
	char name[8];
	struct mp_pool *pool;
	u64 wake;		/* when it goes on */
	bool is_running;	/* a thread does what is below */
	bool is_dead;		/* its requests fail */
	bool is_opening, has_begun;	/* and has written to the pool since */
	u64 lag;		/* its clock stood still for so long */
	u32 slow_read, slow_write;	/* ms, of the next request for the heartbeat */
	u32 slow_flush;			/* ms, of each */
	int (*run)(struct host *h);
	int rc;
	pthread_t thread;
	unsigned opens, works;
};

static struct mem m;
static struct host host[HOSTS];
static pthread_mutex_t baton = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static struct host *whose;	/* the one that runs; NULL: the test itself */
static _Thread_local struct host *me;
static u64 now;			/* ms */
static u64 seed;
static struct host *owner;	/* whose opening began to write last */
static unsigned intrusions;	/* writes of another */
static u32 stalls;		/* one write in so many is followed by a pause; 0: none */

static u32 roll(u32 n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return n ? (u32)((seed >> 33) % n) : 0;
}

/* ---- the clock ---- */

/* The baton goes to the host that wakes first, of several to any. Lock held. */
static void next_turn(void)
{
	struct host *first = NULL;
	unsigned i, at = roll(HOSTS);

	for (i = 0; i < HOSTS; i++) {
		struct host *h = &host[(at + i) % HOSTS];

		if (h->is_running && (!first || h->wake < first->wake))
			first = h;
	}
	if (first && first->wake > now)
		now = first->wake;
	whose = first;
	pthread_cond_broadcast(&turn);
}

static void pass(u32 ms)
{
	if (!me) {
		now += ms;
		return;
	}
	pthread_mutex_lock(&baton);
	me->wake = now + ms;
	next_turn();
	while (whose != me)
		pthread_cond_wait(&turn, &baton);
	pthread_mutex_unlock(&baton);
}

static u64 clock_now(void *ctx)
{
	(void)ctx;
	return now - (me ? me->lag : 0);
}

static void clock_sleep(void *ctx, u32 ms)
{
	(void)ctx;
	pass(ms);
}

static const char *host_name(void *ctx)
{
	(void)ctx;
	return me ? me->name : "test";
}

static void *host_thread(void *arg)
{
	me = arg;
	pthread_mutex_lock(&baton);
	while (whose != me)
		pthread_cond_wait(&turn, &baton);
	pthread_mutex_unlock(&baton);
	me->rc = me->run(me);
	pthread_mutex_lock(&baton);
	me->is_running = false;
	next_turn();
	pthread_mutex_unlock(&baton);
	return NULL;
}

/* Host @i does this from @at ms from now on. */
static void begin(unsigned i, u64 at, int (*run)(struct host *h))
{
	host[i].run = run;
	host[i].wake = now + at;
	host[i].is_running = true;
}

/* All that was begun, to the end. */
static void play(void)
{
	bool was[HOSTS];
	unsigned i;

	for (i = 0; i < HOSTS; i++) {
		was[i] = host[i].is_running;
		if (was[i])
			T_EQ(pthread_create(&host[i].thread, NULL, host_thread, &host[i]), 0);
	}
	pthread_mutex_lock(&baton);
	next_turn();
	pthread_mutex_unlock(&baton);
	for (i = 0; i < HOSTS; i++)
		if (was[i])
			pthread_join(host[i].thread, NULL);
}

/* ---- the device ---- */

static void slow(u32 *ms)
{
	u32 n = *ms;

	*ms = 0;
	if (n)
		pass(n);
}

static int dev_read(struct mp_dev *d, u64 off, void *buf, size_t len)
{
	struct host *h = (struct host *)d;
	int rc = h->is_dead ? -EIO : mem_read(&m.dev, off, buf, len);

	if (off == MP_BEAT_ADDR)
		slow(&h->slow_read);
	return rc;
}

static int dev_write(struct mp_dev *d, u64 off, const void *buf, size_t len, unsigned int flags)
{
	struct host *h = (struct host *)d;
	int rc;

	if (off == MP_BEAT_ADDR) {
		slow(&h->slow_write);
	} else if (h->is_opening && !h->has_begun) {
		h->has_begun = true;
		owner = h;
	} else {
		intrusions += owner != h;
	}
	rc = h->is_dead ? -EIO : mem_write(&m.dev, off, buf, len, flags);
	/* what is behind it comes later, then */
	if (off != MP_BEAT_ADDR && stalls && !roll(stalls))
		pass(roll(3000));
	return rc;
}

static int dev_flush(struct mp_dev *d)
{
	if (me && me->slow_flush)
		pass(me->slow_flush);
	return ((struct host *)d)->is_dead ? -EIO : mem_flush(&m.dev);
}

static const struct mp_dev_ops dev_ops = {
	.read = dev_read, .write = dev_write, .flush = dev_flush,
};

static const struct os_user_hooks hooks = {
	.now_ms = clock_now, .sleep_ms = clock_sleep, .host_name = host_name,
};

static void setup(void)
{
	static const u32 mclass = MP_CAPACITY;
	struct mp_dev *dev = &m.dev;
	struct mp_create c = { .mc_name = "unit", .mc_ndevs = 1, .mc_dev = &dev,
			       .mc_mclass = &mclass, .mc_flags = MP_CREATE_MULTIHOST };
	unsigned i;

	os_user_hooks_set(&hooks);
	mem_init(&m, SIZE);
	T_EQ(mp_pool_create(&c), 0);
	memset(host, 0, sizeof(host));
	for (i = 0; i < HOSTS; i++) {
		host[i].dev = m.dev;
		host[i].dev.d_ops = &dev_ops;
		snprintf(host[i].name, sizeof(host[i].name), "host%u", i);
	}
	now = 1000000;
	owner = NULL;
	intrusions = 0;
	stalls = 0;
}

static void teardown(void)
{
	unsigned i;

	for (i = 0; i < HOSTS; i++)
		if (host[i].pool)
			T_EQ(mp_pool_close(host[i].pool), 0);
	mem_fini(&m);
	os_user_hooks_set(NULL);
}

/* ---- what hosts do ---- */

static int open_it(struct host *h)
{
	struct mp_dev *dev = &h->dev;
	int rc;

	h->is_dead = false;
	h->is_opening = true;
	h->has_begun = false;
	rc = mp_pool_open(&dev, 1, 0, &h->pool);
	h->is_opening = false;
	h->opens += !rc;
	return rc;
}

static void close_it(struct host *h)
{
	if (h->pool)
		T_EQ(mp_pool_close(h->pool), 0);
	h->pool = NULL;
}

static void die(struct host *h)
{
	h->is_dead = true;
	close_it(h);
}

static int keep_it(struct host *h)
{
	u64 end = now + 10000;

	while (now < end)
		pass(mp_pool_beat(h->pool));
	return mp_pool_writable(h->pool);
}

static int work(struct host *h)
{
	struct mp_obj *obj;
	int rc = alloc_one(h->pool, MP_APPEND, 4096, &obj);

	h->works += !rc;
	if (!rc)
		mp_obj_put(obj);
	return rc;
}

static int error_id(void)
{
	return os_user_error()->oe_id;
}

static int open_keep(struct host *h)
{
	int rc = open_it(h);

	return rc ? rc : keep_it(h);
}

static int refused(struct host *h)
{
	int rc = open_it(h);

	T_EQ(rc, -EBUSY);
	T_EQ(error_id(), MP_HOST_BUSY);
	T_OK(strstr(os_user_error()->oe_text, "host0"));
	return rc;
}

static void a_living_host_keeps_the_pool(void)
{
	u64 at;

	for (at = 1000; at < 1300; at += 10) {
		setup();
		begin(0, 0, open_keep);
		begin(1, at, refused);
		begin(2, at + 2000, refused);
		play();
		T_EQ(host[0].rc, 0);
		T_EQ(host[1].rc, -EBUSY);
		T_EQ(host[2].rc, -EBUSY);
		teardown();
	}
}

static void who_only_reads_looks_first(void)
{
	struct mp_dev *dev;
	struct mp_pool *pool;
	u64 begun;

	setup();
	T_EQ(open_it(&host[0]), 0);
	dev = &host[1].dev;
	begun = now;
	T_EQ(mp_pool_open(&dev, 1, MP_OPEN_RDONLY, &pool), 0);	/* the other is silent */
	T_EQ(now - begun, 2900);
	T_EQ(mp_pool_close(pool), 0);
	teardown();
}

static int peek(struct host *h)
{
	struct mp_dev *dev = &h->dev;
	int rc = mp_pool_open(&dev, 1, MP_OPEN_RDONLY, &h->pool);

	T_EQ(mp_pool_destroy(&dev, 1), -EBUSY);
	return rc;
}

static int peek_beside(struct host *h)
{
	struct mp_dev *dev = &h->dev;

	dev->d_flags |= MP_DEV_BESIDE;
	return mp_pool_open(&dev, 1, MP_OPEN_RDONLY, &h->pool);
}

static void a_living_host_is_not_read_or_destroyed_behind(void)
{
	setup();
	begin(0, 0, open_keep);
	begin(1, 2000, peek);
	strcpy(host[2].name, "host0");	/* another program there */
	begin(2, 5000, peek_beside);
	play();
	T_EQ(host[0].rc, 0);
	T_EQ(host[1].rc, -EBUSY);
	T_EQ(host[2].rc, 0);
	teardown();
}

/* @h has opened it to read; what its object says, which the pool forgets when another deletes it */
static int read_it(struct host *h, u64 id)
{
	struct mp_mlog *log;
	int rc = mp_mlog_open(h->pool, id, &log);

	if (!rc)
		mp_mlog_close(log);
	return rc;
}

static u64 log_id;

static int make_log(struct host *h)
{
	struct mp_obj *obj;
	int rc = open_it(h);

	if (rc)
		return rc;
	T_EQ(alloc_one(h->pool, MP_MLOG, 64 << 10, &obj), 0);
	log_id = mp_obj_id(obj);
	mp_obj_put(obj);
	close_it(h);
	return 0;
}

static int open_to_read(struct host *h)
{
	struct mp_dev *dev = &h->dev;

	return mp_pool_open(&dev, 1, MP_OPEN_RDONLY, &h->pool);
}

/* looks, as its thread or work would, or (@looks false) not before it reads */
static int read_on(struct host *h, bool looks)
{
	u64 end = now + 5000;
	int rc = open_to_read(h);

	if (rc)
		return rc;
	T_EQ(read_it(h, log_id), 0);
	while (now < end)
		pass(looks ? max_t(u32, mp_pool_beat(h->pool), 100) : 1000);
	return read_it(h, log_id);
}

static int read_and_look(struct host *h)
{
	return read_on(h, true);
}

static int read_only_then(struct host *h)
{
	return read_on(h, false);
}

/* what it leaves in the block may be by chance what was there */
static u8 was_beat[MP_BLOCK];

static int come_and_go(struct host *h)
{
	int rc = open_it(h);

	close_it(h);
	memcpy(m.now + MP_BEAT_ADDR, was_beat, MP_BLOCK);
	return rc;
}

static void who_reads_stops_when_another_comes(void)
{
	static int (*const reader[])(struct host *) = { read_and_look, read_only_then };
	unsigned i;

	for (i = 0; i < 2; i++) {
		setup();
		T_EQ(make_log(&host[0]), 0);
		begin(0, 0, reader[i]);
		play();
		T_EQ(host[0].rc, 0);	/* no host came */
		close_it(&host[0]);
		begin(0, 0, reader[i]);
		begin(1, 2500, open_keep);
		play();
		T_EQ(host[1].rc, 0);
		T_EQ(host[0].rc, -EIO);
		T_EQ(mp_pool_is_failed(host[0].pool), 1);
		T_EQ(read_it(&host[0], log_id), -EIO);
		T_EQ(error_id(), MP_HOST_LOST);
		teardown();
	}
	setup();
	T_EQ(make_log(&host[0]), 0);
	memcpy(was_beat, m.now + MP_BEAT_ADDR, MP_BLOCK);
	begin(0, 0, read_only_then);
	begin(1, 2500, come_and_go);
	play();
	T_EQ(host[1].rc, 0);
	T_EQ(host[0].rc, -EIO);
	teardown();
}

/* a block that says that it is free may be what a late close has left of an owner's */
static void a_free_block_is_watched(void)
{
	setup();
	T_EQ(make_log(&host[0]), 0);
	begin(0, 0, open_to_read);
	begin(1, 500, open_keep);
	play();
	T_EQ(host[0].rc, -EBUSY);
	T_EQ(host[1].rc, 0);
	teardown();
}

/* its claim takes so long that a reader may have taken it for dead: it claims again */
static void an_old_claim_is_made_again(void)
{
	u64 begun;

	setup();
	begun = now;
	host[0].slow_write = 300;
	T_EQ(open_it(&host[0]), 0);
	T_EQ(now - begun, 2300);
	/* nor does one count that was made anew, and took as long */
	now += 2000;
	host[0].slow_write = 300;
	T_OK(mp_pool_beat(host[0].pool) > 0);
	now += 1000;
	T_OK(mp_pool_beat(host[0].pool) > 0);
	T_OK(mp_pool_would_wait(host[0].pool));
	T_EQ(mp_pool_writable(host[0].pool), 0);
	teardown();
}

/* an owner that another replaced reads no more, either: of its objects it knows nothing */
static int stopped_and_reads(struct host *h)
{
	int rc = open_it(h);

	if (!rc)
		rc = read_it(h, log_id);
	pass(5000);
	return rc ? rc : read_it(h, log_id);
}

static void who_was_replaced_reads_no_more(void)
{
	setup();
	T_EQ(make_log(&host[0]), 0);
	begin(0, 0, stopped_and_reads);
	begin(1, 1500, open_keep);
	play();
	T_EQ(host[1].rc, 0);
	T_EQ(host[0].rc, -EIO);
	teardown();
	setup();
	T_EQ(make_log(&host[0]), 0);
	begin(0, 0, stopped_and_reads);
	play();
	T_EQ(host[0].rc, 0);
	teardown();
}

static void a_dead_hosts_pool_is_free_in_time(void)
{
	u64 begun;

	setup();
	begun = now;
	T_EQ(open_it(&host[0]), 0);
	T_EQ(now - begun, 1000);	/* no host was there */
	die(&host[0]);
	begun = now;
	T_EQ(open_it(&host[1]), 0);
	T_EQ(now - begun, 1500);
	close_it(&host[1]);
	begun = now;
	T_EQ(open_it(&host[0]), 0);
	T_EQ(now - begun, 1000);	/* it said that it went */
	teardown();
}

/* a block that cannot be understood belongs to a host */
static void damage_is_no_permission(void)
{
	u64 begun;

	setup();
	T_EQ(open_it(&host[0]), 0);
	die(&host[0]);
	m.now[MP_BEAT_ADDR + 300] ^= 1;
	begun = now;
	T_EQ(open_it(&host[1]), 0);
	T_EQ(now - begun, 1500);
	close_it(&host[1]);
	/* one that is free, but for a bit: not believed either */
	m.now[MP_BEAT_ADDR + 300] ^= 1;
	begun = now;
	T_EQ(open_it(&host[1]), 0);
	T_EQ(now - begun, 1500);
	teardown();
}

/* ---- stopped hosts ---- */

static int stopped(struct host *h)
{
	int rc = open_it(h);

	if (rc)
		return rc;
	pass(5000);
	return mp_pool_writable(h->pool);
}

static void a_host_that_was_stopped_writes_no_more(void)
{
	setup();
	begin(0, 0, stopped);
	begin(1, 1500, open_keep);
	play();
	T_EQ(host[0].rc, -EROFS);
	T_EQ(host[1].rc, 0);
	teardown();
}

static void stopped_and_alone_it_goes_on(void)
{
	setup();
	begin(0, 0, stopped);
	play();
	T_EQ(host[0].rc, 0);
	teardown();
}

/* its heartbeat was on the way when another came, and lands there */
static int slow_beat(struct host *h)
{
	int rc = open_it(h);

	if (rc)
		return rc;
	pass(250);
	h->slow_write = 3000;
	mp_pool_beat(h->pool);
	return work(h);
}

static void a_late_heartbeat_makes_no_owner(void)
{
	setup();
	begin(0, 0, slow_beat);
	begin(1, 1300, open_keep);
	play();
	T_EQ(host[0].rc, -EROFS);
	T_EQ(host[1].rc, 0);
	T_EQ(intrusions, 0);
	teardown();
	/* and alone it goes on, after a second look */
	setup();
	begin(0, 0, slow_beat);
	play();
	T_EQ(host[0].rc, 0);
	teardown();
}

/* opens, and is not heard of again */
static int open_silent(struct host *h)
{
	int rc = open_it(h);

	if (!rc)
		pass(10000);
	return rc;
}

static void a_late_heartbeat_brings_nothing_back(void)
{
	setup();
	begin(0, 0, slow_beat);
	begin(1, 1300, open_silent);
	play();
	T_EQ(host[1].rc, 0);
	T_EQ(intrusions, 0);
	T_EQ(host[0].rc, -EROFS);
	teardown();
}

static void of_two_openings_one_succeeds(void)
{
	u64 at;

	for (at = 0; at < 490; at += 10) {
		setup();
		begin(0, 0, open_silent);
		begin(1, at, open_silent);
		play();
		T_OK(!host[0].rc + !host[1].rc == 1);
		T_EQ(intrusions, 0);
		teardown();
	}
}

/* a claim is seen in time, and written over when its owner may have looked again */
static int slow_take_back(struct host *h)
{
	int rc = open_it(h);

	if (rc)
		return rc;
	pass(740);
	h->slow_write = 490;
	mp_pool_beat(h->pool);
	return work(h);
}

static void a_claim_is_taken_back_in_time_or_not_at_all(void)
{
	setup();
	begin(0, 0, slow_take_back);
	begin(1, 501, open_silent);
	play();
	T_EQ(host[1].rc, 0);
	T_EQ(intrusions, 0);
	T_EQ(host[0].rc, -EROFS);
	teardown();
}

/* a claim that was on its way lands behind one that was made anew */
static int slow_claim(struct host *h)
{
	h->slow_write = 201;
	return open_silent(h);
}

static void of_two_claims_the_later_one_counts(void)
{
	u64 at;

	for (at = 3400; at <= 3800; at += 10) {
		setup();
		begin(0, 0, slow_beat);
		begin(1, at, slow_claim);
		play();
		T_EQ(intrusions, 0);
		T_OK(host[0].rc ? host[0].rc == -EROFS && !host[1].rc : host[1].rc == -EBUSY);
		teardown();
	}
}

static void a_device_that_fails_is_tried_again_for_a_while(void)
{
	setup();
	T_EQ(open_it(&host[0]), 0);
	now += 300;
	host[0].is_dead = true;
	T_OK(mp_pool_beat(host[0].pool) > 0);
	host[0].is_dead = false;
	T_EQ(mp_pool_writable(host[0].pool), 0);
	/* late already, and at the second look */
	now += 800;
	host[0].is_dead = true;
	T_OK(mp_pool_beat(host[0].pool) > 0);
	host[0].is_dead = false;
	now += 300;
	T_OK(mp_pool_beat(host[0].pool) > 0);
	now += 1100;
	host[0].is_dead = true;
	T_OK(mp_pool_beat(host[0].pool) > 0);
	host[0].is_dead = false;
	T_EQ(mp_pool_writable(host[0].pool), 0);
	now += 300;
	T_OK(mp_pool_beat(host[0].pool) > 0);
	host[0].is_dead = true;
	now += 800;
	T_EQ(mp_pool_writable(host[0].pool), -EROFS);
	T_OK(strstr(os_user_error()->oe_text, "MP0127"));
	T_EQ(mp_pool_beat(host[0].pool), 0);
	teardown();
}

static int open_slowly(struct host *h)
{
	h->slow_flush = 200;
	return open_keep(h);
}

static void an_open_keeps_its_heartbeat_while_it_writes(void)
{
	setup();
	begin(0, 0, open_slowly);
	begin(1, 1300, open_silent);
	play();
	T_EQ(host[0].rc, 0);
	T_EQ(host[1].rc, -EBUSY);
	T_EQ(intrusions, 0);
	teardown();
}

static int destroy_late(struct host *h)
{
	struct mp_dev *dev = &h->dev;

	h->slow_read = 5000;	/* of the first look at the block: another comes meanwhile */
	return mp_pool_destroy(&dev, 1);
}

static void a_destroy_that_was_stopped_destroys_nothing(void)
{
	setup();
	begin(0, 0, destroy_late);
	begin(1, 1000, open_keep);
	play();
	T_EQ(host[1].rc, 0);
	T_EQ(host[0].rc, -EBUSY);
	T_EQ(intrusions, 0);
	teardown();
}

/* ---- another pool, another time ---- */

static int stopped_for_long(struct host *h)
{
	int rc = open_it(h);

	if (rc)
		return rc;
	pass(20000);
	return work(h);
}

static u32 create_flags;

static int replace(struct host *h)
{
	static const u32 mclass = MP_CAPACITY;
	struct mp_dev *dev = &h->dev;
	struct mp_create c = { .mc_name = "other", .mc_ndevs = 1, .mc_dev = &dev,
			       .mc_mclass = &mclass, .mc_flags = create_flags };
	int rc;

	owner = h;
	rc = mp_pool_destroy(&dev, 1);
	return rc ? rc : mp_pool_create(&c);
}

static void nothing_is_written_to_the_pool_that_came_after(void)
{
	for (create_flags = 0; create_flags <= MP_CREATE_MULTIHOST;
	     create_flags += MP_CREATE_MULTIHOST) {
		setup();
		begin(0, 0, stopped_for_long);
		begin(1, 3000, replace);
		play();
		T_EQ(host[1].rc, 0);
		T_EQ(host[0].rc, -EROFS);
		T_EQ(intrusions, 0);
		teardown();
	}
}

static int create_over(struct host *h)
{
	static const u32 mclass = MP_CAPACITY;
	struct mp_dev *dev = &h->dev;
	struct mp_create c = { .mc_name = "other", .mc_ndevs = 1, .mc_dev = &dev,
			       .mc_mclass = &mclass, .mc_flags = MP_CREATE_FORCE };

	return mp_pool_create(&c);
}

static void force_stops_at_a_living_host(void)
{
	setup();
	begin(0, 0, open_keep);
	begin(1, 2000, create_over);
	play();
	T_EQ(host[0].rc, 0);
	T_EQ(host[1].rc, -EBUSY);
	T_EQ(intrusions, 0);
	/* not at one that is dead */
	die(&host[0]);
	T_EQ(create_over(&host[1]), 0);
	teardown();
}

/* its machine was suspended, and so was its clock */
static int frozen(struct host *h)
{
	int rc = open_it(h);

	if (rc)
		return rc;
	pass(100);
	pass(5000);
	h->lag = 5000;
	pass(200);
	mp_pool_beat(h->pool);
	return work(h);
}

static void a_clock_that_stood_still_is_noticed(void)
{
	setup();
	begin(0, 0, frozen);
	begin(1, 2000, open_keep);
	play();
	T_EQ(host[1].rc, 0);
	T_EQ(host[0].rc, -EROFS);
	T_EQ(intrusions, 0);
	teardown();
}

static void an_open_that_fails_changes_nothing(void)
{
	u8 *was = malloc(SIZE);

	setup();
	T_EQ(open_it(&host[0]), 0);
	close_it(&host[0]);
	memset(m.now + MP_SB_AREA, 0x5a, 512u << 10);
	memcpy(was, m.now, SIZE);
	T_EQ(open_it(&host[0]), -EUCLEAN);
	T_EQ(memcmp(was, m.now, SIZE), 0);
	free(was);
	teardown();
}

/* ---- the property ---- */

static void it_begins_and_ends_with_the_property(void)
{
	struct mp_set on = { .ms_mask = MP_SET_MULTIHOST }, off = { .ms_mask = MP_SET_ONE_HOST };
	struct mp_set both = { .ms_mask = MP_SET_MULTIHOST | MP_SET_ONE_HOST };
	struct mp_pool_info pi;
	u64 begun;

	setup();
	T_EQ(open_it(&host[0]), 0);
	T_EQ(mp_pool_set(host[0].pool, &both), -EINVAL);
	T_EQ(mp_pool_set(host[0].pool, &off), 0);
	T_OK(!mp_pool_has_beat(host[0].pool));
	T_EQ(mp_pool_beat(host[0].pool), 0);
	close_it(&host[0]);
	begun = now;
	T_EQ(open_it(&host[0]), 0);
	T_EQ(now, begun);
	mp_pool_info(host[0].pool, &pi);
	T_OK(!pi.pi_is_multihost);
	T_EQ(mp_pool_set(host[0].pool, &on), 0);
	T_OK(mp_pool_has_beat(host[0].pool));
	mp_pool_info(host[0].pool, &pi);
	T_OK(pi.pi_is_multihost);
	now += 100;
	/* from that moment on another finds it */
	die(&host[0]);
	begun = now;
	T_EQ(open_it(&host[1]), 0);
	T_EQ(now - begun, 1500);
	teardown();
}

/* ---- anything ---- */

static u32 some_delay(void)
{
	static const u32 most[] = { 3, 20, 20, 100, 300, 700, 1600, 4000 };

	return roll(most[roll(8)]);
}

static int live(struct host *h)
{
	u64 end = now + 300000;
	u32 ms;

	while (now < end) {
		pass(some_delay());
		if (!h->pool) {
			h->slow_read = roll(4) ? 0 : some_delay();
			h->slow_write = roll(4) ? 0 : some_delay();
			open_it(h);
			continue;
		}
		if (roll(8) == 0)
			h->slow_write = some_delay();
		if (roll(8) == 0)
			h->slow_read = some_delay();
		ms = mp_pool_beat(h->pool);
		if (!roll(2))
			ms = roll(ms + 1);
		work(h);
		if (!ms || !roll(40))
			close_it(h);
		else if (!roll(60))
			die(h);
		else
			pass(ms);
	}
	die(h);
	return 0;
}

static void never_do_two_write(void)
{
	unsigned round, rounds = getenv("TEST_LONG") ? 2000 : 40, opens = 0, works = 0, i;
	u64 from = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 1;

	for (round = 0; round < rounds; round++) {
		setup();
		seed = from * 1000003 + round;
		stalls = 60;
		for (i = 0; i < HOSTS; i++)
			begin(i, roll(2000), live);
		play();
		for (i = 0; i < HOSTS; i++) {
			opens += host[i].opens;
			works += host[i].works;
		}
		if (intrusions)
			printf("# SEED=%llu, round %u\n", (unsigned long long)from, round);
		T_EQ(intrusions, 0);
		teardown();
	}
	printf("# %u openings, %u writes\n", opens, works);
	T_OK(opens > 20 * rounds && works > 100 * rounds);
}

int main(void)
{
	T_RUN(a_living_host_keeps_the_pool);
	T_RUN(who_only_reads_looks_first);
	T_RUN(a_living_host_is_not_read_or_destroyed_behind);
	T_RUN(who_reads_stops_when_another_comes);
	T_RUN(a_free_block_is_watched);
	T_RUN(an_old_claim_is_made_again);
	T_RUN(who_was_replaced_reads_no_more);
	T_RUN(a_dead_hosts_pool_is_free_in_time);
	T_RUN(damage_is_no_permission);
	T_RUN(a_host_that_was_stopped_writes_no_more);
	T_RUN(stopped_and_alone_it_goes_on);
	T_RUN(a_late_heartbeat_makes_no_owner);
	T_RUN(a_late_heartbeat_brings_nothing_back);
	T_RUN(of_two_openings_one_succeeds);
	T_RUN(a_claim_is_taken_back_in_time_or_not_at_all);
	T_RUN(of_two_claims_the_later_one_counts);
	T_RUN(a_device_that_fails_is_tried_again_for_a_while);
	T_RUN(an_open_keeps_its_heartbeat_while_it_writes);
	T_RUN(a_destroy_that_was_stopped_destroys_nothing);
	T_RUN(nothing_is_written_to_the_pool_that_came_after);
	T_RUN(force_stops_at_a_living_host);
	T_RUN(a_clock_that_stood_still_is_noticed);
	T_RUN(an_open_that_fails_changes_nothing);
	T_RUN(it_begins_and_ends_with_the_property);
	T_RUN(never_do_two_write);
	return t_done();
}
