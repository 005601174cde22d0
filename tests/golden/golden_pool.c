/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The golden image of a pool: every kind of object in every state, on two devices. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "image.h"

#define MIB	(1ull << 20)
#define BLOCK	65536u
#define OBJS	40u
#define RECS	30u
#define TAG	7u

static uint8_t block[BLOCK] __attribute__((aligned(4096)));

static int object(struct mpool *mp, unsigned i, struct mpool_obj **out)
{
	struct mpool_alloc req = { .kind = i % 2 ? MPOOL_APPEND : MPOOL_MBLOCK,
				   .mclass = i % 3 ? MPOOL_CAPACITY : MPOOL_STAGING,
				   .capacity = BLOCK, .tag = TAG + i % 2 };
	struct iovec iov = { .iov_base = block, .iov_len = BLOCK / (1 + i % 4) / 4096 * 4096 };
	struct mpool_op op = { .type = i % 2 ? MPOOL_OP_SEAL : MPOOL_OP_COMMIT,
			       .length = iov.iov_len, .crc = 0 };
	int rc = mpool_alloc(mp, &req, 1, out);

	memset(block, (int)i, sizeof(block));
	if (!rc)
		rc = mpool_write(*out, 0, &iov, 1);
	op.obj = *out;
	/* every eighth stays as it is: never committed, or never sealed */
	return rc || i % 8 >= 6 ? rc : mpool_batch(mp, &op, 1);
}

static int objects(struct mpool *mp)
{
	struct mpool_obj *obj;
	int rc = 0;

	for (unsigned i = 0; !rc && i < OBJS; i++) {
		struct mpool_op op = { .type = MPOOL_OP_DELETE };

		rc = object(mp, i, &obj);
		if (rc)
			break;
		op.id = mpool_obj_id(obj);
		mpool_obj_close(obj);
		if (i % 5 == 4 && i % 8 < 6)
			rc = mpool_batch(mp, &op, 1);
	}
	return rc;
}

static int records(struct mpool_mlog *log, unsigned n)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < n; i++) {
		struct iovec iov = { .iov_base = block, .iov_len = 1 + i * 173 % 5000 };

		memset(block, (int)i, iov.iov_len);
		rc = mpool_mlog_append(log, &iov, 1, i % 4 ? 0 : MPOOL_SYNC);
	}
	return rc ? rc : mpool_mlog_sync(log);
}

/* One that goes on, one that was erased and begun anew, one that is sealed. */
static int logs(struct mpool *mp)
{
	int rc = 0;

	for (unsigned i = 0; !rc && i < 3; i++) {
		struct mpool_mlog *log;
		uint64_t id;

		rc = mpool_mlog_create(mp, i % 2, MIB, TAG, &id);
		if (!rc)
			rc = mpool_mlog_open(mp, id, &log);
		if (rc)
			break;
		rc = records(log, RECS);
		if (!rc && i == 1)
			rc = mpool_mlog_erase(log);
		if (!rc && i == 1)
			rc = records(log, RECS / 3);
		if (!rc && i == 2)
			rc = mpool_mlog_seal(log);
		mpool_mlog_close(log);
	}
	return rc;
}

static int container(struct mpool *mp)
{
	struct iovec iov = { .iov_base = block, .iov_len = 100 };
	struct mpool_mdc *mdc;
	int rc = mpool_mdc_create(mp, "container", MPOOL_CAPACITY, MIB, TAG + 1);

	if (!rc)
		rc = mpool_mdc_open(mp, "container", &mdc);
	if (rc)
		return rc;
	for (unsigned i = 0; !rc && i < RECS; i++) {
		memset(block, 'a' + (int)i % 26, iov.iov_len);
		rc = mpool_mdc_append(mdc, &iov, 1, MPOOL_SYNC);
		if (!rc && i == RECS / 2)
			rc = mpool_mdc_compact_begin(mdc);
		if (!rc && i == RECS / 2 + 3)
			rc = mpool_mdc_compact_end(mdc);
	}
	mpool_mdc_close(mdc);
	return rc;
}

int golden_pool_fill(struct sim *s)
{
	struct mpool_dev_spec dev[2] = {
		{ .path = "capacity", .mclass = MPOOL_CAPACITY, .size = 16 * MIB },
		{ .path = "staging", .mclass = MPOOL_STAGING, .size = 12 * MIB },
	};
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct mpool_set_opts set = MPOOL_SET_OPTS_INIT;
	struct mpool_open_opts oo;
	struct mpool *mp;
	int rc;

	golden_opts(s, &oo, NULL);
	co.name = "golden";
	co.label = "format 1";
	co.devs = dev;
	co.ndevs = 2;
	co.provider = &s->s_prov;
	rc = mpool_create(GOLDEN_POOL, &co);
	set.mask = MPOOL_SET_LABEL | MPOOL_SET_SPARE;
	set.label = "format 0x0100";
	set.spare_pct[0] = set.spare_pct[1] = 5;
	if (!rc)
		rc = mpool_set(GOLDEN_POOL, &oo, &set);
	if (!rc)
		rc = mpool_open(GOLDEN_POOL, &oo, &mp);
	if (rc)
		return rc;
	rc = objects(mp);
	if (!rc)
		rc = logs(mp);
	if (!rc)
		rc = container(mp);
	return mpool_close(mp) ?: rc;
}

/* ---- listing --------------------------------------------------------------------- */

static int object_list(struct mpool *mp, const struct mpool_obj_info *in, FILE *out)
{
	struct iovec iov = { .iov_base = block, .iov_len = in->length };
	struct mpool_obj *obj;
	int rc;

	fprintf(out, "object %" PRIx64 " tag %" PRIu64 " kind %u class %u flags %x %" PRIu64 " of %"
		PRIu64, in->id, in->tag, in->kind, in->mclass, in->flags, in->length, in->capacity);
	if (in->kind == MPOOL_MLOG || !in->length || in->length > sizeof(block)) {
		fputs("\n", out);
		return 0;
	}
	rc = mpool_obj_open(mp, in->id, &obj);
	if (rc)
		return rc;
	rc = mpool_read(obj, 0, &iov, 1);
	mpool_obj_close(obj);
	fprintf(out, " crc %08x\n", mpool_crc32c(0, block, in->length));
	return rc;
}

static int log_list(struct mpool *mp, uint64_t id, FILE *out)
{
	struct mpool_mlog *log;
	uint64_t pos = 0;
	size_t len;
	int rc = mpool_mlog_open(mp, id, &log);

	if (rc)
		return rc;
	while (!(rc = mpool_mlog_read(log, &pos, block, sizeof(block), &len)))
		fprintf(out, "  record %zu crc %08x\n", len, mpool_crc32c(0, block, len));
	mpool_mlog_close(log);
	return rc == -ENODATA ? 0 : rc;
}

static int container_list(struct mpool *mp, FILE *out)
{
	struct mpool_mdc *mdc;
	uint64_t pos = 0;
	size_t len;
	int rc = mpool_mdc_open(mp, "container", &mdc);

	if (rc)
		return rc;
	fputs("container\n", out);
	while (!(rc = mpool_mdc_read(mdc, &pos, block, sizeof(block), &len)))
		fprintf(out, "  record %zu crc %08x\n", len, mpool_crc32c(0, block, len));
	mpool_mdc_close(mdc);
	return rc == -ENODATA ? 0 : rc;
}

int golden_pool_list(struct sim *s, FILE *out)
{
	struct mpool_obj_info in;
	struct mpool_open_opts oo;
	struct mpool_info mi;
	struct mpool *mp;
	uint64_t id = 0;
	int rc;

	golden_opts(s, &oo, NULL);
	rc = mpool_open(GOLDEN_POOL, &oo, &mp);
	if (rc)
		return rc;
	rc = mpool_info(mp, &mi);
	fprintf(out, "pool %s label \"%s\" format %04x objects %" PRIu64 "\n", mi.name, mi.label,
		mi.format_version, mi.objects);
	while (!rc && mpool_objects(mp, id, 0, &in, 1) == 1) {
		id = in.id;
		rc = object_list(mp, &in, out);
		/* a log of the container is open through it */
		if (!rc && in.kind == MPOOL_MLOG && in.tag == TAG)
			rc = log_list(mp, id, out);
	}
	if (!rc)
		rc = container_list(mp, out);
	return mpool_close(mp) ?: rc;
}
