/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Conformance of mlogs and metadata containers: order, limits, errors, reopen,
 * compaction. Cuts between the steps are the crash suite's business.
 */
#include <stdbool.h>

#include "pool_help.h"

static struct iovec rec(const char *s)
{
	return (struct iovec){ .iov_base = (void *)(uintptr_t)s, .iov_len = strlen(s) };
}

static void mlog_keeps_records_in_order(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_mlog *log, *two;
	struct iovec v[2] = { rec("hello "), rec("world") };
	uint64_t id, pos = 0, used, cap;
	char buf[64];
	size_t len;

	T_EQ(mpool_mlog_create(mp, MPOOL_STAGING, 64 << 10, 4, &id), 0);
	T_EQ(mpool_mlog_create(mp, 9, 64 << 10, 4, &id), -EINVAL);
	T_EQ(mpool_mlog_open(mp, id + 1000, &log), -ENOENT);
	T_EQ(mpool_mlog_open(mp, id, &log), 0);
	T_EQ(mpool_mlog_open(mp, id, &two), -EBUSY);
	T_EQ(mpool_mlog_read(log, &pos, buf, sizeof(buf), &len), -ENODATA);
	T_EQ(mpool_mlog_append(log, v, 2, 0), 0);
	T_EQ(mpool_mlog_append(log, v, 1, MPOOL_SYNC), 0);
	T_EQ(mpool_mlog_append(log, v, 0, 0), -EINVAL);
	T_EQ(mpool_mlog_append(log, v, 1, 0x20), -EINVAL);
	T_EQ(mpool_mlog_sync(log), 0);
	T_EQ(mpool_mlog_space(log, &used, &cap), 0);
	T_OK(used > 0 && used < cap);
	mpool_mlog_close(log);
	mpool_mlog_close(NULL);
	T_EQ(mpool_close(mp), 0);
	mp = th_open_with(NULL, NULL);
	T_EQ(mpool_mlog_open(mp, id, &log), 0);
	T_EQ(mpool_mlog_read(log, &pos, buf, 4, &len), -EOVERFLOW);
	T_STREQ(mpool_error_detail()->id, "MP0432");
	T_EQ(len, 11);
	T_EQ(pos, 0);
	T_EQ(mpool_mlog_read(log, &pos, buf, sizeof(buf), &len), 0);
	T_EQ(len, 11);
	T_MEMEQ(buf, "hello world", 11);
	T_EQ(mpool_mlog_read(log, &pos, buf, sizeof(buf), &len), 0);
	T_EQ(len, 6);
	T_EQ(mpool_mlog_read(log, &pos, buf, sizeof(buf), &len), -ENODATA);
	/* an end, and no fault */
	T_STREQ(mpool_error_detail()->id, "MP0431");
	mpool_mlog_close(log);
	T_EQ(mpool_close(mp), 0);
}

static void mlog_full_erase_seal(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	static char big[40 << 10];
	struct iovec v = { .iov_base = big, .iov_len = sizeof(big) };
	struct mpool_mlog *log;
	uint64_t id, pos = 0;
	size_t len;

	T_EQ(mpool_mlog_create(mp, MPOOL_CAPACITY, 64 << 10, 4, &id), 0);
	T_EQ(mpool_mlog_open(mp, id, &log), 0);
	T_EQ(mpool_mlog_append(log, &v, 1, MPOOL_SYNC), 0);
	T_EQ(mpool_mlog_append(log, &v, 1, MPOOL_SYNC), -EFBIG);
	T_EQ(mpool_mlog_erase(log), 0);
	T_EQ(mpool_mlog_read(log, &pos, big, sizeof(big), &len), -ENODATA);
	T_EQ(mpool_mlog_append(log, &v, 1, MPOOL_SYNC), 0);
	T_EQ(mpool_mlog_seal(log), 0);
	v.iov_len = 10;
	T_EQ(mpool_mlog_append(log, &v, 1, 0), -EROFS);
	mpool_mlog_close(log);
	T_EQ(mpool_close(mp), 0);
}

/* Where a record is, only a read says; what a program makes up is no place. */
static void a_position_that_no_read_gave_is_refused(void)
{
	static const int64_t away[] = { -24, -20, -8, 4, 1000 };
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct iovec v[2] = { rec("hello "), rec("world") };
	uint64_t id, pos = 0, made_up;
	struct mpool_mlog *log;
	char buf[64], name[32];
	size_t len;
	int rc;

	T_EQ(mpool_mlog_create(mp, MPOOL_CAPACITY, 64 << 10, 4, &id), 0);
	T_EQ(mpool_mlog_open(mp, id, &log), 0);
	T_EQ(mpool_mlog_append(log, v, 2, 0), 0);
	T_EQ(mpool_mlog_append(log, v, 1, MPOOL_SYNC), 0);
	T_EQ(mpool_mlog_read(log, &pos, buf, sizeof(buf), &len), 0);
	snprintf(name, sizeof(name), "log %llu:", (unsigned long long)id);
	/* the first record again, then what is none */
	for (unsigned i = 0; i < sizeof(away) / sizeof(away[0]); i++) {
		made_up = pos + (uint64_t)away[i];
		rc = mpool_mlog_read(log, &made_up, buf, sizeof(buf), &len);
		if (!i) {
			T_EQ(rc, 0);
			continue;
		}
		T_OK(rc == -EINVAL || rc == -EUCLEAN);
		T_OK(strstr(mpool_error_detail()->text, name));
		T_EQ(made_up, pos + (uint64_t)away[i]);
	}
	made_up = UINT64_MAX / 2;
	T_OK(mpool_mlog_read(log, &made_up, buf, sizeof(buf), &len) < 0);
	/* nothing is held against the log */
	T_EQ(mpool_mlog_read(log, &pos, buf, sizeof(buf), &len), 0);
	T_EQ(len, 6);
	T_EQ(mpool_mlog_append(log, v, 1, MPOOL_SYNC), 0);
	mpool_mlog_close(log);
	T_EQ(mpool_close(mp), 0);
}

/* What was appended is read without a sync, wherever the reader stands. */
static void what_is_not_synced_is_read(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct iovec v[2] = { rec("hello "), rec("world") };
	struct iovec large = rec("more than the header of a log, which is read too");
	struct mpool_mlog *log;
	struct mpool_mdc *mdc;
	uint64_t id, pos = 0;
	char buf[64];
	size_t len;

	T_EQ(mpool_mlog_create(mp, MPOOL_CAPACITY, 64 << 10, 4, &id), 0);
	T_EQ(mpool_mlog_open(mp, id, &log), 0);
	for (unsigned i = 0; i < 4; i++) {
		T_EQ(mpool_mlog_append(log, v, 1 + i % 2, i / 2 ? 0 : MPOOL_SYNC), 0);
		T_EQ(mpool_mlog_read(log, &pos, buf, sizeof(buf), &len), 0);
		T_EQ(len, i % 2 ? 11 : 6);
		T_EQ(mpool_mlog_read(log, &pos, buf, sizeof(buf), &len), -ENODATA);
	}
	mpool_mlog_close(log);
	/* a new container has its header before it */
	T_EQ(mpool_mdc_create(mp, "meta", MPOOL_STAGING, 64 << 10, 9), 0);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_EQ(mpool_mdc_append(mdc, v, 2, 0), 0);
	T_EQ(mpool_mdc_append(mdc, &large, 1, 0), 0);
	pos = 0;
	T_EQ(mpool_mdc_read(mdc, &pos, buf, sizeof(buf), &len), 0);
	T_EQ(len, 11);
	/* the largest size there is, as of a caller that knows that it fits */
	T_EQ(mpool_mdc_read(mdc, &pos, buf, SIZE_MAX, &len), 0);
	T_EQ(len, large.iov_len);
	mpool_mdc_close(mdc);
	T_EQ(mpool_close(mp), 0);
}

static int mdc_has(struct mpool_mdc *mdc, const char *want)
{
	char buf[64], all[256] = "";
	uint64_t pos = 0;
	size_t len;
	int rc;

	while (!(rc = mpool_mdc_read(mdc, &pos, buf, sizeof(buf), &len))) {
		strncat(all, buf, len);
		strcat(all, ",");
	}
	if (rc != -ENODATA || strcmp(all, want))
		printf("# rc %d, have \"%s\"\n", rc, all);
	return rc == -ENODATA && !strcmp(all, want);
}

static void mdc_compacts_and_survives_reopen(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_mdc *mdc, *two;
	struct iovec a = rec("a"), b = rec("b"), c = rec("c");
	uint64_t used, cap, have, pos = 0;
	size_t len;
	char x;

	T_EQ(mpool_mdc_open(mp, "meta", &mdc), -ENOENT);
	T_EQ(mpool_mdc_create(mp, "meta", MPOOL_STAGING, 64 << 10, 9), 0);
	T_EQ(mpool_mdc_create(mp, "meta", MPOOL_STAGING, 64 << 10, 9), -EEXIST);
	T_EQ(mpool_mdc_create(mp, "", MPOOL_STAGING, 64 << 10, 9), -EINVAL);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_EQ(mpool_mdc_open(mp, "meta", &two), -EBUSY);
	T_EQ(mpool_mdc_delete(mp, "meta"), -EBUSY);
	T_OK(mdc_has(mdc, ""));
	T_EQ(mpool_mdc_append(mdc, &a, 1, 0), 0);
	T_EQ(mpool_mdc_append(mdc, &b, 1, MPOOL_SYNC), 0);
	T_OK(mdc_has(mdc, "a,b,"));
	T_EQ(mpool_mdc_read(mdc, &pos, &x, 0, &len), -EOVERFLOW);
	T_STREQ(mpool_error_detail()->id, "MP0432");
	T_EQ(len, 1);
	T_EQ(mpool_mdc_compact_end(mdc), -EBUSY);
	T_EQ(mpool_mdc_compact_abort(mdc), -EBUSY);
	T_EQ(mpool_mdc_compact_begin(mdc), 0);
	T_EQ(mpool_mdc_compact_begin(mdc), -EBUSY);
	T_EQ(mpool_mdc_append(mdc, &c, 1, MPOOL_SYNC), 0);
	mpool_mdc_close(mdc); /* not ended: the old log counts */
	T_EQ(mpool_close(mp), 0);
	mp = th_open_with(NULL, NULL);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_OK(mdc_has(mdc, "a,b,"));
	T_EQ(mpool_mdc_compact_begin(mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &b, 1, 0), 0);
	T_EQ(mpool_mdc_compact_end(mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &c, 1, MPOOL_SYNC), 0);
	T_OK(mdc_has(mdc, "b,c,"));
	T_EQ(mpool_mdc_space(mdc, &used, &cap), 0);
	T_OK(used && used < cap);
	/* in files and on devices alike: more than all there is counts as all */
	T_EQ(mpool_mdc_reserve(mdc, 0, 0, &have), 0);
	T_OK(have && have <= cap);
	T_EQ(mpool_mdc_reserve(mdc, 2 * cap, 0, &have), 0);
	T_EQ(have, cap);
	mpool_mdc_close(mdc);
	T_EQ(mpool_close(mp), 0);
	mp = th_open_with(NULL, NULL);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_OK(mdc_has(mdc, "b,c,"));
	T_EQ(mpool_mdc_compact_begin(mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &a, 1, 0), 0);
	T_EQ(mpool_mdc_compact_end(mdc), 0);
	mpool_mdc_close(mdc);	/* the end itself is durable, whatever follows */
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_OK(mdc_has(mdc, "a,"));
	T_EQ(mpool_mdc_compact_begin(mdc), 0);
	T_EQ(mpool_mdc_compact_end(mdc), 0);
	T_OK(mdc_has(mdc, ""));
	mpool_mdc_close(mdc);
	mpool_mdc_close(NULL);
	T_EQ(mpool_mdc_delete(mp, "meta"), 0);
	T_EQ(mpool_mdc_delete(mp, "meta"), -ENOENT);
	T_EQ(mpool_close(mp), 0);
}

static void mdc_goes_on_after_a_compaction_that_was_given_up(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct iovec a = rec("a"), b = rec("b"), c = rec("c");
	struct mpool_mdc *mdc;
	int i;

	T_EQ(mpool_mdc_create(mp, "meta", MPOOL_STAGING, 64 << 10, 9), 0);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &a, 1, 0), 0);	/* still in its buffer */
	for (i = 0; i < 2; i++) {
		T_EQ(mpool_mdc_compact_begin(mdc), 0);
		T_EQ(mpool_mdc_append(mdc, &c, 1, MPOOL_SYNC), 0);
		T_EQ(mpool_mdc_compact_abort(mdc), 0);
		T_EQ(mpool_mdc_append(mdc, &b, 1, MPOOL_SYNC), 0);
	}
	T_OK(mdc_has(mdc, "a,b,b,"));
	mpool_mdc_close(mdc);
	T_EQ(mpool_close(mp), 0);
	mp = th_open_with(NULL, NULL);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_OK(mdc_has(mdc, "a,b,b,"));
	T_EQ(mpool_mdc_compact_begin(mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &a, 1, 0), 0);
	T_EQ(mpool_mdc_compact_end(mdc), 0);
	T_EQ(mpool_mdc_compact_abort(mdc), -EBUSY);
	T_OK(mdc_has(mdc, "a,"));
	mpool_mdc_close(mdc);
	T_EQ(mpool_close(mp), 0);
}

static void mdc_full_asks_for_compaction(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	static char big[20 << 10];
	struct iovec v = { .iov_base = big, .iov_len = sizeof(big) };
	struct mpool_mdc *mdc;
	int i, rc;

	T_EQ(mpool_mdc_create(mp, "m", MPOOL_CAPACITY, 128 << 10, 0), 0);
	T_EQ(mpool_mdc_open(mp, "m", &mdc), 0);
	for (i = 0; !(rc = mpool_mdc_append(mdc, &v, 1, 0)) && i < 100; i++)
		;
	T_EQ(rc, -EFBIG);
	T_EQ(mpool_mdc_compact_begin(mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &v, 1, 0), 0);
	T_EQ(mpool_mdc_compact_end(mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC), 0);
	mpool_mdc_close(mdc);
	T_EQ(mpool_close(mp), 0);
}

/* One that was new: the log that counts held nothing but a header in memory. */
static void mdc_opens_again_after_its_first_compaction_was_given_up(void)
{
	char c[] = "c";
	struct iovec v = { c, 1 };
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_mdc *mdc;

	T_EQ(mpool_mdc_create(mp, "meta", MPOOL_STAGING, 64 << 10, 9), 0);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_EQ(mpool_mdc_compact_begin(mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC), 0);
	mpool_mdc_close(mdc);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_OK(mdc_has(mdc, ""));
	T_EQ(mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC), 0);
	mpool_mdc_close(mdc);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_OK(mdc_has(mdc, "c,"));
	mpool_mdc_close(mdc);
	T_EQ(mpool_close(mp), 0);
}

/* All was written but the record that makes it count: the old log is as it was. */
static void mdc_goes_on_after_a_compaction_that_does_not_fit(void)
{
	static char big[65392];	/* eight bytes less than the log takes */
	char a[] = "a";
	struct iovec v = { a, 1 }, w = { big, sizeof(big) };
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_mdc *mdc;

	T_EQ(mpool_mdc_create(mp, "meta", MPOOL_STAGING, 64 << 10, 9), 0);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC), 0);
	T_EQ(mpool_mdc_compact_begin(mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &w, 1, 0), 0);
	T_EQ(mpool_mdc_compact_end(mdc), -EFBIG);
	T_EQ(mpool_mdc_compact_abort(mdc), 0);
	T_EQ(mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC), 0);
	mpool_mdc_close(mdc);
	T_EQ(mpool_mdc_open(mp, "meta", &mdc), 0);
	T_OK(mdc_has(mdc, "a,a,"));
	mpool_mdc_close(mdc);
	T_EQ(mpool_close(mp), 0);
}

/* replaces the content of the container's first log by one record */
static void plant(struct mpool *mp, uint64_t id, const void *rec_, size_t len)
{
	struct iovec v = { .iov_base = (void *)(uintptr_t)rec_, .iov_len = len };
	struct mpool_mlog *log;

	T_EQ(mpool_mlog_open(mp, id, &log), 0);
	T_EQ(mpool_mlog_erase(log), 0);
	T_EQ(mpool_mlog_append(log, &v, 1, MPOOL_SYNC), 0);
	mpool_mlog_close(log);
}

static void mdc_refuses_logs_that_are_not_its_own(void)
{
	/* a header of generation 1, as mdc.c documents it */
	static const unsigned char good[16] = { 'M', 'P', 'D', 'C', 1, 1, 1, 0, 1 };
	unsigned char bad[16];
	struct mpool *mp = th_new_pool(NULL, NULL);
	struct mpool_obj_info oi[2];
	struct mpool_mdc *mdc;

	T_EQ(mpool_mdc_create(mp, "m", MPOOL_CAPACITY, 64 << 10, 42), 0);
	T_EQ(mpool_objects(mp, 0, 42, oi, 2), 2);
	plant(mp, oi[0].id, good, 16);
	T_EQ(mpool_mdc_open(mp, "m", &mdc), 0);
	mpool_mdc_close(mdc);
	memcpy(bad, good, 16);
	bad[0] = 'X'; /* not a container's record */
	plant(mp, oi[0].id, bad, 16);
	T_EQ(mpool_mdc_open(mp, "m", &mdc), -EUCLEAN);
	memcpy(bad, good, 16);
	bad[4] = 2; /* data where the header should be */
	plant(mp, oi[0].id, bad, 16);
	T_EQ(mpool_mdc_open(mp, "m", &mdc), -EUCLEAN);
	memcpy(bad, good, 16);
	bad[6] = 0; /* a compaction that never ended, and nothing else */
	plant(mp, oi[0].id, bad, 16);
	T_EQ(mpool_mdc_open(mp, "m", &mdc), -EUCLEAN);
	memcpy(bad, good, 16);
	memset(bad + 8, 0, 8);
	bad[15] = 0x20; /* it would count on to where no open takes it: for reading only */
	plant(mp, oi[0].id, bad, 16);
	T_EQ(mpool_mdc_open(mp, "m", &mdc), -EUCLEAN);
	T_OK(strstr(mpool_error_detail()->text, "reading only"));
	memset(bad + 8, 0xff, 8); /* the next generation would not be greater */
	plant(mp, oi[0].id, bad, 16);
	T_EQ(mpool_mdc_open(mp, "m", &mdc), -EUCLEAN);
	T_EQ(mpool_close(mp), 0);
}

#define RECORDS	300	/* of 1000 bytes: more than one reading brings */

/* Records that are there when the read @after fails, or (@is_for_good) that and all behind it. */
static int read_all(unsigned after, bool is_for_good, unsigned *n)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	char dev[64], buf[1000];
	struct mpool_mdc *mdc;
	struct mpool *mp;
	uint64_t pos = 0;
	size_t len;
	int rc;

	snprintf(dev, sizeof(dev), "all:fail=read,err=ENODATA,after=%u%s", after,
		 is_for_good ? ",sticky" : "");
	o.dev = dev;
	o.flags = MPOOL_OPEN_RDONLY;
	*n = 0;
	rc = mpool_open(th_pool, &o, &mp);
	if (rc)
		return rc;
	rc = mpool_mdc_open(mp, "m", &mdc);
	if (!rc) {
		while (!(rc = mpool_mdc_read(mdc, &pos, buf, sizeof(buf), &len)))
			++*n;
		mpool_mdc_close(mdc);
	}
	T_EQ(mpool_close(mp), 0);
	return rc;
}

/* Nor is a failed flush an answer to another request. */
static void a_flush_that_fails_is_eio(void)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct mpool *mp = th_new_pool(NULL, NULL);
	unsigned after, told = 0;
	struct mpool_mdc *mdc;
	char dev[64], b[] = "b";
	struct iovec v = { b, 1 };
	int rc = -EIO;

	T_EQ(mpool_mdc_create(mp, "m", MPOOL_CAPACITY, 64 << 10, 42), 0);
	T_EQ(mpool_close(mp), 0);
	o.dev = dev;
	for (after = 1; rc && after < 100; after++) {
		snprintf(dev, sizeof(dev), "all:fail=flush,err=ENODATA,after=%u,sticky", after);
		rc = mpool_open(th_pool, &o, &mp);
		if (!rc) {
			rc = mpool_mdc_open(mp, "m", &mdc);
			if (!rc) {
				rc = mpool_mdc_append(mdc, &v, 1, MPOOL_SYNC);
				mpool_mdc_close(mdc);
			}
			T_EQ(mpool_close(mp), 0);
		}
		if (rc && rc != -EIO)
			T_FAIL("flush %u: %d %s", after, rc, mpool_error_detail()->text);
		told += rc != 0;
	}
	T_OK(!rc && told > 3);
}

/* Linux says ENODATA of it, which is the end of a log: INV-20. */
static void a_sector_that_cannot_be_read_ends_no_log(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	static char rec_[1000];
	struct iovec v = { .iov_base = rec_, .iov_len = sizeof(rec_) };
	struct mpool_mdc *mdc;
	unsigned n, after, told = 0;
	int rc;

	T_EQ(mpool_mdc_create(mp, "m", MPOOL_CAPACITY, 1 << 20, 42), 0);
	T_EQ(mpool_mdc_open(mp, "m", &mdc), 0);
	for (n = 0; n < RECORDS; n++)
		T_EQ(mpool_mdc_append(mdc, &v, 1, n + 1 == RECORDS ? MPOOL_SYNC : 0), 0);
	mpool_mdc_close(mdc);
	T_EQ(mpool_close(mp), 0);
	for (after = 1;; after++) {
		rc = read_all(after, false, &n);
		told += rc == -EIO;
		if (rc != -EIO && (rc != -ENODATA || n != RECORDS))
			T_FAIL("read %u failed: error %d, %u records: %s", after, rc, n,
			       mpool_error_detail()->text);
		rc = read_all(after, true, &n);
		if (rc == -ENODATA && n == RECORDS)
			break;
		if (rc != -EIO)
			T_FAIL("reads from %u on failed: error %d, %u records", after, rc, n);
	}
	T_OK(told > 4);
}

/* flips a bit of the frame in the block at @off, if one begins there */
static int flip_frame(const char *file, off_t off)
{
	int fd = open(file, O_RDWR | O_CLOEXEC), is_frame;
	char block[4096];

	T_OK(fd >= 0);
	T_EQ(pread(fd, block, sizeof(block), off), sizeof(block));
	is_frame = !memcmp(block, "MPML", 4);
	block[200] ^= 1;
	if (is_frame)
		T_EQ(pwrite(fd, block, sizeof(block), off), sizeof(block));
	close(fd);
	return is_frame;
}

/* The container with one bit flipped of a frame: -EUCLEAN, or whole. */
static int damaged_open(int records)
{
	struct mpool *mp = th_open_with(NULL, NULL);
	struct mpool_mdc *mdc;
	static char buf[20 << 10];
	uint64_t pos = 0;
	size_t len;
	int rc = mpool_mdc_open(mp, "m", &mdc);

	if (!rc) {
		while (!mpool_mdc_read(mdc, &pos, buf, sizeof(buf), &len))
			records--;
		T_EQ(records, 0);
		mpool_mdc_close(mdc);
	}
	T_EQ(mpool_close(mp), 0);
	return rc;
}

/* All was acknowledged, in five frames: what is missing of it is no crash, and no new container. */
static void mdc_damaged_in_any_frame_of_a_compaction_is_refused(void)
{
	struct mpool *mp = th_new_pool(NULL, NULL);
	static char big[20 << 10];
	struct iovec v = { .iov_base = big, .iov_len = sizeof(big) };
	char file[sizeof(th_pool) + 16];
	struct mpool_mdc *mdc;
	int round, i, refused, rc;
	off_t off;

	snprintf(file, sizeof(file), "%s/staging.mp", th_pool);
	T_EQ(mpool_mdc_create(mp, "m", MPOOL_STAGING, 512 << 10, 0), 0);
	for (round = 0; round < 2; round++) {
		T_EQ(mpool_mdc_open(mp, "m", &mdc), 0);
		T_EQ(mpool_mdc_compact_begin(mdc), 0);
		for (i = 0; i < 10; i++)
			T_EQ(mpool_mdc_append(mdc, &v, 1, 0), 0);
		T_EQ(mpool_mdc_compact_end(mdc), 0);
		mpool_mdc_close(mdc);
		T_EQ(mpool_close(mp), 0);
		refused = 0;
		for (off = 0; off < (off_t)(32 * MIB); off += 4096) {
			if (!flip_frame(file, off))
				continue;
			rc = damaged_open(10);
			T_OK(!rc || rc == -EUCLEAN);
			refused += !!rc;
			T_EQ(flip_frame(file, off), 1);
		}
		T_EQ(refused, 5);
		mp = th_open_with(NULL, NULL);
	}
	T_EQ(mpool_close(mp), 0);
}

int main(void)
{
	unsetenv("MPOOL_DEV");
	T_RUN(mlog_keeps_records_in_order);
	T_RUN(mlog_full_erase_seal);
	T_RUN(a_position_that_no_read_gave_is_refused);
	T_RUN(what_is_not_synced_is_read);
	T_RUN(mdc_compacts_and_survives_reopen);
	T_RUN(mdc_goes_on_after_a_compaction_that_was_given_up);
	T_RUN(mdc_opens_again_after_its_first_compaction_was_given_up);
	T_RUN(mdc_goes_on_after_a_compaction_that_does_not_fit);
	T_RUN(mdc_full_asks_for_compaction);
	T_RUN(mdc_refuses_logs_that_are_not_its_own);
	TH_RUN_FILES(mdc_damaged_in_any_frame_of_a_compaction_is_refused);
	TH_RUN_FILES(a_sector_that_cannot_be_read_ends_no_log);
	TH_RUN_FILES(a_flush_that_fails_is_eio);
	th_clean();
	return t_done();
}
