/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The error table as data, and the one way to report an error with detail.
 * Stateless: the detail is kept by os_verror(), per thread in user space.
 */
#include "err.h"
#include "guard.h"

static const struct mp_err_info err_table[] = {
#define X(name, num, err, text, cure)	{ num, err, #name, text, cure },
	MP_ERRORS(X)
#undef X
};

const struct mp_err_info *mp_err_lookup(int id)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(err_table); i++)
		if (err_table[i].ei_id == id)
			return &err_table[i];
	return NULL;
}

int mp_err(enum mp_err_id id, const char *fmt, ...)
{
	const struct mp_err_info *e = mp_err_lookup(id);
	int err = e ? -e->ei_errno : -EINVAL;
	va_list ap;

	va_start(ap, fmt);
	os_verror(id, err, fmt, ap);
	va_end(ap);
	return err;
}

int mp_err_as(enum mp_err_id id, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	os_verror(id, err, fmt, ap);
	va_end(ap);
	return err;
}

int mp_random(void *buf, size_t len)
{
	int err = os_random(buf, len);

	return err ? mp_err(MP_RANDOM, "%zu random bytes: error %d", len, -err) : 0;
}

/* these mean here what they mean there */
static bool is_plain(int err)
{
	return !err || err == -EIO || err == -ENOMEM || err == -ENOSPC || err == -EINVAL;
}

int mp_dev_err(int err)
{
	/* ENODATA would be the end of a log, ENOENT the answer that a key is not there */
	return CHECK(is_plain(err)) ? err : -EIO;
}
