/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Error details: libmpool's own origins go into the same per-thread record as
 * the core's, and mpool_error_detail() turns it into the public form. Every
 * public call that may fail ends in mpl_ret(), so no failure is without a text.
 * A library on top tells its errors in the same public form (mpool_error_slot()):
 * so there is one answer to what failed last, whichever library was called. Its own
 * calls on its pool do not count as the program's (MPOOL_OPEN_QUIET).
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpool/mpool.h>

#include "backend.h"
#include "mpl_err.h"

static const struct mp_err_info own[] = {
#define X(name, num, err, text, cure)	{ num, err, #name, text, cure },
	MPL_ERRORS(X)
#undef X
};

/* The public form; it is true when a library on top has written it, else made when asked for. */
static _Thread_local struct {
	struct mpool_error detail;
	bool is_written;
} told;

static const struct mp_err_info *err_find(int id)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(own); i++)
		if (own[i].ei_id == id)
			return &own[i];
	return mp_err_lookup(id);
}

int mpl_err(enum mpl_err_id id, const char *fmt, ...)
{
	const struct mp_err_info *ei = err_find(id);
	int err = ei ? -ei->ei_errno : -EIO;
	va_list ap;

	va_start(ap, fmt);
	os_verror(id, err, fmt, ap);
	va_end(ap);
	return err;
}

/* Some errors of the system about a path have an identifier, and so a cure, of their own. */
static enum mpl_err_id id_of_system(enum mpl_err_id id, int err)
{
	if (id != MPL_DEVOPEN && id != MPL_DIR && id != MPL_NODE)
		return id;
	switch (err) {
	case -EMFILE:
	case -ENFILE:
		return MPL_FDS;
	case -ENOLCK:
		return MPL_NOLOCKS;
	case -ELOOP:
		return MPL_LINK;
	default:
		return id;
	}
}

int mpl_err_as(enum mpl_err_id id, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	os_verror(id_of_system(id, err), err, fmt, ap);
	va_end(ap);
	return err;
}

void mpl_resume(const struct mpool *mp)
{
	os_user_error_select(mp && mp->mp_is_quiet);
}

void mpl_begin(const struct mpool *mp)
{
	mpl_resume(mp);
	os_user_error_clear();
	if (!os_user_error_is_quiet())
		told.is_written = false;
}

int mpl_ret(int rc)
{
	if (rc < 0 && !os_user_error_is_quiet())
		told.is_written = false;
	if (rc >= 0) {
		os_user_error_clear(); /* a detail of a failure that was overcome */
		return rc;
	}
	if (os_user_error()->oe_err == rc)
		return rc;
	if (rc == -ENOMEM)
		os_user_error_set(MP_NOMEM, rc, "out of memory");
	else if (rc == -EINVAL)
		os_user_error_set(MP_INVAL, rc, "an argument is invalid");
	else if (rc == -ENODATA)	/* answers of a log that is read; of a device it is -EIO */
		os_user_error_set(MPL_LOGEND, rc, "the log has no further record");
	else if (rc == -EOVERFLOW)
		os_user_error_set(MPL_LOGROOM, rc, "the record does not fit into the buffer");
	else
		os_user_error_set(MPL_DEVOPEN, rc, "%s", strerror(-rc));
	return rc;
}

static void detail_fill(struct mpool_error *e, const struct os_user_error *oe)
{
	const struct mp_err_info *ei = oe->oe_id ? err_find(oe->oe_id) : NULL;

	memset(e, 0, sizeof(*e));
	if (!oe->oe_id)
		return;
	snprintf(e->id, sizeof(e->id), "MP%04u", (unsigned)oe->oe_id % 10000);
	e->err = oe->oe_err;
	memcpy(e->text, oe->oe_text, sizeof(e->text));
	if (ei)
		snprintf(e->cure, sizeof(e->cure), "%s", ei->ei_cure);
}

const struct mpool_error *mpool_error_detail(void)
{
	bool is_quiet = os_user_error_is_quiet();

	if (told.is_written)
		return &told.detail;
	os_user_error_select(false);
	detail_fill(&told.detail, os_user_error());
	os_user_error_select(is_quiet);
	return &told.detail;
}

struct mpool_error *mpool_error_slot(void)
{
	mpool_error_detail();
	told.is_written = true;
	return &told.detail;
}

int mpool_error_adopt(int err)
{
	struct mpool_error *e = &told.detail;

	detail_fill(e, os_user_error());
	told.is_written = true;
	e->err = err;
	if (!e->id[0])
		snprintf(e->text, sizeof(e->text), "%s", strerror(-err));
	return err;
}

int mpool_error_explain(const char *id, const char **name, const char **text, const char **cure)
{
	const struct mp_err_info *ei = NULL;
	char *end;
	long n;

	if (id && !strncmp(id, "MP", 2) && id[2] >= '0' && id[2] <= '9') {
		n = strtol(id + 2, &end, 10);
		if (!*end && n > 0 && n < 10000)
			ei = err_find((int)n);
	}
	if (!ei)
		return -ENOENT;
	if (name)
		*name = ei->ei_name;
	if (text)
		*text = ei->ei_text;
	if (cure)
		*cure = ei->ei_cure;
	return 0;
}

int mpool_random(void *buf, size_t len)
{
	return mp_random(buf, len);
}
