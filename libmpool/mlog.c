/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Public calls on mlogs: argument checks and handles; framing, recovery and
 * locking are the core's (kmod/core/mlog.c).
 */
#include <errno.h>
#include <stdlib.h>

#include "backend.h"
#include "mpl_err.h"

#define MLOG_RECORD_MAX	(1u << 20)	/* bytes */

int mpool_mlog_create(struct mpool *mp, uint32_t mclass, uint64_t capacity, uint64_t tag,
		      uint64_t *id)
{
	mpl_begin(mp);
	if (!mp || !id)
		return mpl_ret(-EINVAL);
	return mpl_ret(mp->mp_ops->mlog_create(mp, mclass, capacity, tag, id));
}

int mpool_mlog_open(struct mpool *mp, uint64_t id, struct mpool_mlog **out)
{
	struct mpool_mlog *log;
	int rc;

	mpl_begin(mp);
	if (!mp || !out)
		return mpl_ret(-EINVAL);
	log = calloc(1, sizeof(*log));
	if (!log)
		return mpl_ret(-ENOMEM);
	log->lg_pool = mp;
	rc = mp->mp_ops->mlog_open(mp, id, log);
	if (rc) {
		free(log);
		return mpl_ret(rc);
	}
	mpl_pool_hold(mp);
	*out = log;
	return 0;
}

void mpool_mlog_close(struct mpool_mlog *log)
{
	struct mpool *mp;

	if (!log)
		return;
	mp = log->lg_pool;
	mpl_resume(mp);
	mp->mp_ops->mlog_close(log);
	free(log);
	mpl_pool_drop(mp);
}

int mpool_mlog_append(struct mpool_mlog *log, const struct iovec *iov, unsigned iovcnt,
		      unsigned flags)
{
	uint64_t bytes = 0;
	unsigned i;

	mpl_begin(log ? log->lg_pool : NULL);
	if (!log || !iov || iovcnt > 64 || flags & ~MPOOL_SYNC)
		return mpl_ret(-EINVAL);
	/* the sum cannot wrap */
	for (i = 0; i < iovcnt && bytes <= MLOG_RECORD_MAX; i++)
		bytes = iov[i].iov_len > MLOG_RECORD_MAX ? iov[i].iov_len : bytes + iov[i].iov_len;
	if (!bytes || bytes > MLOG_RECORD_MAX)
		return mpl_err_as(MPL_SPEC, -EINVAL, "a record has 1 to %u bytes, not %llu",
				  MLOG_RECORD_MAX, (unsigned long long)bytes);
	return mpl_ret(log->lg_pool->mp_ops->mlog_append(log, iov, iovcnt, !!(flags & MPOOL_SYNC)));
}

int mpool_mlog_sync(struct mpool_mlog *log)
{
	mpl_begin(log ? log->lg_pool : NULL);
	return mpl_ret(log ? log->lg_pool->mp_ops->mlog_sync(log) : -EINVAL);
}

int mpool_mlog_read(struct mpool_mlog *log, uint64_t *pos, void *buf, size_t size, size_t *len)
{
	mpl_begin(log ? log->lg_pool : NULL);
	if (!log || !pos || (!buf && size) || !len)
		return mpl_ret(-EINVAL);
	return mpl_ret(log->lg_pool->mp_ops->mlog_read(log, pos, buf, size, len));
}

int mpool_mlog_erase(struct mpool_mlog *log)
{
	mpl_begin(log ? log->lg_pool : NULL);
	return mpl_ret(log ? log->lg_pool->mp_ops->mlog_erase(log) : -EINVAL);
}

int mpool_mlog_seal(struct mpool_mlog *log)
{
	mpl_begin(log ? log->lg_pool : NULL);
	return mpl_ret(log ? log->lg_pool->mp_ops->mlog_seal(log) : -EINVAL);
}

int mpool_mlog_space(struct mpool_mlog *log, uint64_t *used, uint64_t *capacity)
{
	mpl_begin(log ? log->lg_pool : NULL);
	if (!log || !used || !capacity)
		return mpl_ret(-EINVAL);
	log->lg_pool->mp_ops->mlog_space(log, used, capacity);
	return 0;
}
