/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Metadata containers: two mlogs under one name, of which the newest complete
 * one counts.
 *
 * Every mlog record begins with eight bytes that say what it is. The first is a
 * header with the container's generation; the log of a new container is
 * complete with its header, one written by a compaction only with its end
 * record. Compaction: erase the other log, write header and records, sync, write
 * the end record, sync; from there on the new log counts; then the old one is
 * erased, so that damage to the new one later cannot bring old content back. The
 * first sync lets the end record prove what is before it: a log whose first frame
 * is damaged would be an empty one otherwise.
 * A crash before the second sync shows the old log, after it the new one. Without memory
 * a compaction can be given up: until its end record is appended no reader looks at the
 * other log, whatever it holds, and the next one begins with erasing it.
 *
 * Locks: md_lock is held shared by append and read, exclusively by the steps of
 * a compaction. The records' order is the mlog's own.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "guard.h"
#include "mpl_err.h"

#define MDC_RECORD_MAX	((1u << 20) - 8u)	/* bytes of one client record */
#define SMALL		4096u
#define MDC_VERSION	1u
#define MDC_GEN_END	(1ull << 62)	/* generations are smaller */
#define MDC_GEN_MOST	(1ull << 61)	/* a writer counts on from less: it never ends */

enum mdc_type { MDC_HEADER = 1, MDC_DATA = 2, MDC_END = 3 };

/* on media, little-endian; before every record */
struct mdc_prefix_omf {
	uint32_t mx_magic;
	uint8_t mx_type;
	uint8_t mx_version;
	uint8_t mx_is_complete;		/* header of a log that needs no end record */
	uint8_t mx_pad;
};

/* the header record */
struct mdc_header_omf {
	struct mdc_prefix_omf mh_prefix;
	uint64_t mh_gen;
};

#define MDC_MAGIC	0x4344504du	/* "MPDC" */

struct mpool_mdc {
	struct mpool *md_pool;
	pthread_rwlock_t md_lock;
	struct mpool_mlog *md_log[2];
	uint64_t md_gen[2];	/* of each log's header, 0 = none */
	int md_valid;		/* the log that counts */
	int md_target;		/* the log that is appended; differs while compacting */
	int md_is_compacting;
	int md_err;		/* sticky: a step of a compaction failed, or the first header */
};

static void mdc_prefix(struct mdc_prefix_omf *mx, enum mdc_type type)
{
	memset(mx, 0, sizeof(*mx));
	mx->mx_magic = htole32(MDC_MAGIC);
	mx->mx_type = (uint8_t)type;
	mx->mx_version = MDC_VERSION;
}

/* the type of a record of @len bytes, or -EUCLEAN */
static int mdc_prefix_check(const struct mdc_prefix_omf *mx, size_t len)
{
	if (!CHECK(len >= sizeof(*mx) && le32toh(mx->mx_magic) == MDC_MAGIC &&
		   mx->mx_version == MDC_VERSION && !mx->mx_pad && mx->mx_is_complete <= 1 &&
		   mx->mx_type >= MDC_HEADER && mx->mx_type <= MDC_END))
		return mpl_err(MPL_MDC, "a record of the container has no valid prefix");
	return mx->mx_type;
}

static int mdc_put_header(struct mpool_mdc *mdc, int i, uint64_t gen, int is_complete)
{
	struct mdc_header_omf mh;
	struct iovec v = { .iov_base = &mh, .iov_len = sizeof(mh) };
	int rc;

	mdc_prefix(&mh.mh_prefix, MDC_HEADER);
	mh.mh_prefix.mx_is_complete = (uint8_t)is_complete;
	mh.mh_gen = htole64(gen);
	rc = mpool_mlog_append(mdc->md_log[i], &v, 1, 0);
	if (!rc)
		mdc->md_gen[i] = gen;
	return rc;
}

/*
 * Reads one record. Its first bytes go to @head, the rest to @buf. -EOVERFLOW
 * when @buf is too small. *len is the whole length, with the prefix.
 */
static int mdc_get(struct mpool_mlog *log, uint64_t *pos, struct mdc_header_omf *head, void *buf,
		   size_t size, size_t *len)
{
	size_t room = sizeof(head->mh_prefix) + (size < MDC_RECORD_MAX ? size : MDC_RECORD_MAX);
	char few[SMALL], *tmp = few;
	int rc = mpool_mlog_read(log, pos, tmp, sizeof(few), len);

	/* most records are small: no memory is asked for them */
	if (rc == -EOVERFLOW && *len <= room) {
		tmp = malloc(*len);
		rc = tmp ? mpool_mlog_read(log, pos, tmp, *len, len) : -ENOMEM;
	}
	if (!rc) {
		memset(head, 0, sizeof(*head));
		memcpy(head, tmp, *len < sizeof(*head) ? *len : sizeof(*head));
		if (buf && *len > sizeof(head->mh_prefix) &&
		    *len - sizeof(head->mh_prefix) <= size)
			memcpy(buf, tmp + sizeof(head->mh_prefix), *len - sizeof(head->mh_prefix));
	}
	if (tmp != few)
		free(tmp);
	return rc;
}

/* Looks for the end record; *complete = 0 when there is none. */
static int mdc_scan(struct mpool_mlog *log, uint64_t pos, int *complete)
{
	struct mdc_header_omf mh;
	size_t len;
	void *buf = malloc(MDC_RECORD_MAX + 8u);
	int rc = buf ? 0 : -ENOMEM;

	while (!rc && !*complete) {
		rc = mpool_mlog_read(log, &pos, buf, MDC_RECORD_MAX + 8u, &len);
		if (rc)
			break;
		memset(&mh, 0, sizeof(mh));
		memcpy(&mh, buf, len < sizeof(mh) ? len : sizeof(mh));
		rc = mdc_prefix_check(&mh.mh_prefix, len);
		if (rc > 0) {
			*complete = rc == MDC_END;
			rc = 0;
		}
	}
	free(buf);
	return rc == -ENODATA ? 0 : rc;
}

/* *gen = 0: empty log. *complete: may be the one that counts. */
static int mdc_inspect(struct mpool_mlog *log, uint64_t *gen, int *complete)
{
	struct mdc_header_omf mh;
	uint64_t pos = 0;
	size_t len;
	int rc = mdc_get(log, &pos, &mh, NULL, 0, &len);

	*gen = 0;
	*complete = 0;
	if (rc == -ENODATA)
		return 0;
	if (rc == -EOVERFLOW)
		return mpl_err(MPL_MDC, "a log of the container does not begin with a header");
	if (rc)
		return rc;
	rc = mdc_prefix_check(&mh.mh_prefix, len);
	if (rc < 0)
		return rc;
	if (!CHECK(rc == MDC_HEADER && len == sizeof(mh) && mh.mh_gen &&
		   le64toh(mh.mh_gen) < MDC_GEN_END))
		return mpl_err(MPL_MDC, "a log of the container does not begin with a header");
	*gen = le64toh(mh.mh_gen);
	*complete = mh.mh_prefix.mx_is_complete;
	return *complete ? 0 : mdc_scan(log, pos, complete);
}

/* Decides which log counts. Both empty: nothing was ever synced to the container. */
static int mdc_choose(struct mpool_mdc *mdc, const char *name)
{
	int i, complete[2], rc;

	for (i = 0; i < 2; i++) {
		rc = mdc_inspect(mdc->md_log[i], &mdc->md_gen[i], &complete[i]);
		if (rc)
			return rc;
	}
	if (complete[0] && complete[1])
		mdc->md_valid = mdc->md_gen[1] > mdc->md_gen[0];
	else if (complete[0] || complete[1])
		mdc->md_valid = complete[1];
	else if (!mdc->md_gen[0] && !mdc->md_gen[1])
		mdc->md_valid = 0;
	else
		return mpl_err(MPL_MDC, "container %s: neither log is complete", name);
	mdc->md_target = mdc->md_valid;
	if (!CHECK(mdc->md_pool->mp_is_rdonly || mdc->md_gen[mdc->md_valid] < MDC_GEN_MOST))
		return mpl_err(MPL_MDC, "container %s: generation %llu is too large to count on "
			       "from; open the pool for reading only", name,
			       (unsigned long long)mdc->md_gen[mdc->md_valid]);
	return 0;
}

static int mdc_name_check(struct mpool *mp, const char *name)
{
	mpl_begin(mp);
	if (!mp || !name || !*name || strlen(name) > 31)
		return mpl_err_as(MPL_SPEC, -EINVAL, "a container's name has 1 to 31 bytes");
	return 0;
}

int mpool_mdc_create(struct mpool *mp, const char *name, uint32_t mclass, uint64_t capacity,
		     uint64_t tag)
{
	int rc = mdc_name_check(mp, name);

	if (rc)
		return rc;
	/* what is written first puts the header in */
	return mpl_ret(mp->mp_ops->root_create(mp, name, mclass, capacity, tag));
}

static void mdc_free(struct mpool_mdc *mdc)
{
	mpool_mlog_close(mdc->md_log[0]);
	mpool_mlog_close(mdc->md_log[1]);
	pthread_rwlock_destroy(&mdc->md_lock);
	free(mdc);
}

int mpool_mdc_open(struct mpool *mp, const char *name, struct mpool_mdc **out)
{
	struct mpool_mdc *mdc;
	uint64_t id[2];
	int i, rc = mdc_name_check(mp, name);

	if (rc)
		return rc;
	if (!out)
		return mpl_ret(-EINVAL);
	rc = mp->mp_ops->root_get(mp, name, id);
	if (rc)
		return mpl_ret(rc);
	mdc = calloc(1, sizeof(*mdc));
	if (!mdc)
		return mpl_ret(-ENOMEM);
	mdc->md_pool = mp;
	pthread_rwlock_init(&mdc->md_lock, NULL);
	for (i = 0; i < 2 && !rc; i++)
		rc = mpool_mlog_open(mp, id[i], &mdc->md_log[i]);
	if (!rc)
		rc = mdc_choose(mdc, name);
	if (rc) {
		mdc_free(mdc);
		return mpl_ret(rc);
	}
	*out = mdc;
	return 0;
}

void mpool_mdc_close(struct mpool_mdc *mdc)
{
	if (mdc)
		mdc_free(mdc);
}

/* A new container gets its header. md_lock held, exclusively. */
static int mdc_start(struct mpool_mdc *mdc)
{
	int rc;

	if (mdc->md_err || mdc->md_gen[mdc->md_valid])
		return 0;
	rc = mdc_put_header(mdc, mdc->md_valid, 1, 1);
	/* an unfinished compaction and no other log is damage: so there is one first */
	if (!rc) {
		rc = BARRIER(mpool_mlog_sync(mdc->md_log[mdc->md_valid]));
		mdc->md_err = rc;
	}
	return rc;
}

/* Shared, of a container that has its header. */
static int append_lock(struct mpool_mdc *mdc)
{
	int rc;

	pthread_rwlock_rdlock(&mdc->md_lock);
	if (mdc->md_gen[mdc->md_valid])
		return 0;
	pthread_rwlock_unlock(&mdc->md_lock);
	pthread_rwlock_wrlock(&mdc->md_lock);
	rc = mdc_start(mdc);
	pthread_rwlock_unlock(&mdc->md_lock);
	pthread_rwlock_rdlock(&mdc->md_lock);
	return rc;
}

int mpool_mdc_append(struct mpool_mdc *mdc, const struct iovec *iov, unsigned iovcnt,
		     unsigned flags)
{
	struct mdc_prefix_omf mx;
	struct iovec v[64];
	uint64_t bytes = 0;
	unsigned i;
	int rc;

	mpl_begin(mdc ? mdc->md_pool : NULL);
	if (!mdc || !iov || iovcnt > 63)
		return mpl_ret(-EINVAL);
	mdc_prefix(&mx, MDC_DATA);
	v[0].iov_base = &mx;
	v[0].iov_len = sizeof(mx);
	for (i = 0; i < iovcnt; i++) {
		bytes += iov[i].iov_len;	/* a sum that wraps the log refuses */
		v[i + 1] = iov[i];
	}
	if (!bytes || bytes > MDC_RECORD_MAX)
		return mpl_err_as(MPL_SPEC, -EINVAL,
				  "a container record has 1 to %u bytes, not %llu", MDC_RECORD_MAX,
				  (unsigned long long)bytes);
	rc = append_lock(mdc);
	if (!rc && mdc->md_err)
		rc = mpl_err(MPL_MDCFAIL, "the container stopped after an earlier failure");
	else if (!rc)
		rc = mpool_mlog_append(mdc->md_log[mdc->md_target], v, iovcnt + 1, flags);
	pthread_rwlock_unlock(&mdc->md_lock);
	return rc;
}

int mpool_mdc_read(struct mpool_mdc *mdc, uint64_t *pos, void *buf, size_t size, size_t *len)
{
	struct mdc_header_omf mh;
	uint64_t p;
	size_t n;
	int rc;

	mpl_begin(mdc ? mdc->md_pool : NULL);
	if (!mdc || !pos || (!buf && size) || !len)
		return mpl_ret(-EINVAL);
	p = *pos;
	pthread_rwlock_rdlock(&mdc->md_lock);
	for (;;) {
		rc = mdc_get(mdc->md_log[mdc->md_valid], &p, &mh, buf, size, &n);
		if (!rc)
			rc = mdc_prefix_check(&mh.mh_prefix, n);
		if (rc == MDC_DATA || rc < 0)
			break;
	}
	pthread_rwlock_unlock(&mdc->md_lock);
	if (rc == -EOVERFLOW || (rc == MDC_DATA && n - sizeof(mh.mh_prefix) > size)) {
		*len = n - sizeof(mh.mh_prefix);
		return mpl_ret(-EOVERFLOW);
	}
	if (rc < 0)
		return mpl_ret(rc);
	*len = n - sizeof(mh.mh_prefix);
	*pos = p;
	return 0;
}

int mpool_mdc_compact_begin(struct mpool_mdc *mdc)
{
	int other, rc = 0;

	mpl_begin(mdc ? mdc->md_pool : NULL);
	if (!mdc)
		return mpl_ret(-EINVAL);
	pthread_rwlock_wrlock(&mdc->md_lock);
	other = !mdc->md_valid;
	if (mdc->md_err)
		rc = mpl_err(MPL_MDCFAIL, "the container stopped after an earlier failure");
	else if (mdc->md_is_compacting)
		rc = mpl_err(MPL_MDCSTATE, "a compaction is in progress already");
	else
		rc = mdc_start(mdc);
	if (!rc && mdc->md_gen[other])
		rc = mpool_mlog_erase(mdc->md_log[other]);
	if (!rc) {
		mdc->md_gen[other] = 0;
		rc = mdc_put_header(mdc, other, mdc->md_gen[mdc->md_valid] + 1, 0);
		/* nothing was written then */
		if (rc && rc != -ENOMEM && rc != -EFBIG)
			mdc->md_err = rc;
	}
	if (!rc) {
		mdc->md_target = other;
		mdc->md_is_compacting = 1;
	}
	pthread_rwlock_unlock(&mdc->md_lock);
	return rc;
}

int mpool_mdc_compact_abort(struct mpool_mdc *mdc)
{
	int rc = 0;

	mpl_begin(mdc ? mdc->md_pool : NULL);
	if (!mdc)
		return mpl_ret(-EINVAL);
	pthread_rwlock_wrlock(&mdc->md_lock);
	if (mdc->md_err)
		rc = mpl_err(MPL_MDCFAIL, "the container stopped after an earlier failure");
	else if (!mdc->md_is_compacting)
		rc = mpl_err(MPL_MDCSTATE, "no compaction is in progress");
	if (!rc) {
		mdc->md_target = mdc->md_valid;
		mdc->md_is_compacting = 0;
	}
	pthread_rwlock_unlock(&mdc->md_lock);
	return rc;
}

int mpool_mdc_compact_end(struct mpool_mdc *mdc)
{
	struct mdc_prefix_omf mx;
	struct iovec v = { .iov_base = &mx, .iov_len = sizeof(mx) };
	int old, rc;

	mpl_begin(mdc ? mdc->md_pool : NULL);
	if (!mdc)
		return mpl_ret(-EINVAL);
	pthread_rwlock_wrlock(&mdc->md_lock);
	if (!mdc->md_is_compacting || mdc->md_err) {
		pthread_rwlock_unlock(&mdc->md_lock);
		return mdc->md_err ?
		       mpl_err(MPL_MDCFAIL, "the container stopped after an earlier failure") :
		       mpl_err(MPL_MDCSTATE, "no compaction is in progress");
	}
	mdc_prefix(&mx, MDC_END);
	rc = BARRIER(mpool_mlog_sync(mdc->md_log[mdc->md_target]));
	if (!rc)
		rc = mpool_mlog_append(mdc->md_log[mdc->md_target], &v, 1, 0);
	if (rc == -ENOMEM || rc == -EFBIG) {	/* nothing was: it may be given up */
		pthread_rwlock_unlock(&mdc->md_lock);
		return rc;
	}
	if (!rc)
		rc = BARRIER(mpool_mlog_sync(mdc->md_log[mdc->md_target]));
	if (!rc) {
		old = mdc->md_valid;
		mdc->md_valid = mdc->md_target;
		mdc->md_is_compacting = 0;
		rc = mpool_mlog_erase(mdc->md_log[old]);
		if (!rc)
			mdc->md_gen[old] = 0;
		else if (rc == -ENOMEM)	/* as after a crash here: the next one begins with it */
			rc = 0;
	}
	if (rc)
		mdc->md_err = rc;
	pthread_rwlock_unlock(&mdc->md_lock);
	return rc;
}

int mpool_mdc_space(struct mpool_mdc *mdc, uint64_t *used, uint64_t *capacity)
{
	int rc;

	mpl_begin(mdc ? mdc->md_pool : NULL);
	if (!mdc)
		return mpl_ret(-EINVAL);
	pthread_rwlock_rdlock(&mdc->md_lock);
	rc = mpool_mlog_space(mdc->md_log[mdc->md_valid], used, capacity);
	pthread_rwlock_unlock(&mdc->md_lock);
	return rc;
}

int mpool_mdc_reserve(struct mpool_mdc *mdc, uint64_t must, uint64_t wish, uint64_t *have)
{
	uint64_t n[2];
	int i, rc = 0;

	mpl_begin(mdc ? mdc->md_pool : NULL);
	if (!mdc || !have)
		return mpl_ret(-EINVAL);
	pthread_rwlock_rdlock(&mdc->md_lock);
	for (i = 0; i < 2 && !rc; i++)
		rc = mdc->md_pool->mp_ops->mlog_reserve(mdc->md_log[i], must, wish, &n[i]);
	pthread_rwlock_unlock(&mdc->md_lock);
	if (!rc)
		*have = n[0] < n[1] ? n[0] : n[1];
	return mpl_ret(rc);
}

int mpool_mdc_delete(struct mpool *mp, const char *name)
{
	int rc = mdc_name_check(mp, name);

	return rc ? rc : mpl_ret(mp->mp_ops->root_delete(mp, name));
}
