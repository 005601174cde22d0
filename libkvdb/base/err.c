/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Error details of the calling thread.
 * Every error that a user can act on has a stable id, a text that names
 * object, reason and way out, and the cure from the table here. The detail
 * belongs to the thread, nothing is locked, and it is libmpool's: whichever of
 * the libraries a program asks, it hears what failed last.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <kvdb/kvdb.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/kv_err.h"

static const struct kv_err {
	const char *id, *name, *text, *cure;
} kv_errs[] = {
#define X(id, name, text, cure) { id, name, text, cure },
	KV_ERRS(X)
#undef X
};

static const struct kv_err *find(const char *id)
{
	for (size_t i = 0; i < sizeof(kv_errs) / sizeof(kv_errs[0]); i++)
		if (!strcmp(kv_errs[i].id, id))
			return &kv_errs[i];
	return NULL;
}

int kvdb_error_explain(const char *id, const char **name, const char **text, const char **cure)
{
	const struct kv_err *e = id ? find(id) : NULL;

	if (!e)
		return mpool_error_explain(id, name, text, cure);
	if (name)
		*name = e->name;
	if (text)
		*text = e->text;
	if (cure)
		*cure = e->cure;
	return 0;
}

const struct mpool_error *kvdb_error_detail(void)
{
	return mpool_error_detail();
}

const char *kvdb_version(void)
{
	return MP_VERSION;
}

int kv_error(int err, const char *id, const char *fmt, ...)
{
	struct mpool_error *e = mpool_error_slot();
	const struct kv_err *known = find(id);
	char text[sizeof(e->text)];
	va_list ap;

	KV_ASSERT(err < 0);
	KV_ASSERT(known);	/* each has its meaning and cure in the table */
	/* the text of an earlier failure may be part of this one's */
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	memset(e, 0, sizeof(*e));
	snprintf(e->id, sizeof(e->id), "%s", id);
	e->err = err;
	memcpy(e->text, text, sizeof(text));
	if (known)
		snprintf(e->cure, sizeof(e->cure), "%s", known->cure);
	return err;
}

int kv_error_take(const struct mpool_error *e, int err)
{
	struct mpool_error *own = mpool_error_slot();

	KV_ASSERT(err < 0);
	if (own != e)
		*own = *e;
	own->err = err;
	return err;
}

int kv_error_mpool(int err)
{
	return mpool_error_adopt(err);
}

int kv_error_memory(int err, const char *what)
{
	if (err == -ENOMEM && mpool_error_detail()->err != err)
		kv_error(err, "MP0902", "no memory for %s", what);
	return err;
}

int kv_error_absent(void)
{
	struct mpool_error *e = mpool_error_slot();

	memcpy(e->id, "MP0967", sizeof("MP0967"));
	e->err = -ENOENT;
	memcpy(e->text, KV_ABSENT, sizeof(KV_ABSENT));
	e->cure[0] = '\0';
	return -ENOENT;
}

int kv_error_unwritten(int err)
{
	return err == -EIO ? kv_error_take(mpool_error_detail(), -EROFS) : err;
}
