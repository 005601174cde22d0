/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Device layers from text (mpool_open_opts.dev or the environment's MPOOL_DEV):
 *
 *	CLASS:KEY[=VALUE],...[;CLASS:...]      CLASS = capacity | staging | all
 *
 * A member gets the settings of every group that names its class. From the
 * device upwards the layers are: volatile cache, faults, delay.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

/* Number with an optional K, M or G (powers of 1024); the end must be @end. */
static int layer_num(const char *s, const char *end, uint64_t *out)
{
	unsigned shift = 0;
	char *e;

	if (*s < '0' || *s > '9')	/* as is what ends an empty one */
		return -EINVAL;
	errno = 0;
	*out = strtoull(s, &e, 0);
	if (e < end && (*e == 'K' || *e == 'k'))
		shift = 10, e++;
	else if (e < end && (*e == 'M' || *e == 'm'))
		shift = 20, e++;
	else if (e < end && (*e == 'G' || *e == 'g'))
		shift = 30, e++;
	if (errno || e != end || *out > UINT64_MAX >> shift)
		return -EINVAL;
	*out <<= shift;
	return 0;
}

/* Digits, perhaps with a point among them. strtod() would want the locale's, and takes more. */
static double decimal(const char *s, const char **e)
{
	double v = 0, place = 1;

	for (; *s >= '0' && *s <= '9'; s++)
		v = v * 10 + (*s - '0');
	if (*s == '.')
		for (s++; *s >= '0' && *s <= '9'; s++)
			v += (*s - '0') * (place /= 10);
	*e = s;
	return v;
}

static int layer_time(const char *s, const char *end, uint64_t *out)
{
	const char *e;
	double v, unit = 0;

	if (*s < '0' || *s > '9')	/* as is what ends an empty one */
		return -EINVAL;
	v = decimal(s, &e);
	if (end - e == 2 && !memcmp(e, "ns", 2))
		unit = 1;
	else if (end - e == 2 && !memcmp(e, "us", 2))
		unit = 1e3;
	else if (end - e == 2 && !memcmp(e, "ms", 2))
		unit = 1e6;
	else if (end - e == 1 && *e == 's')
		unit = 1e9;
	if (unit == 0 || v * unit > 1e15)
		return -EINVAL;
	*out = (uint64_t)(v * unit);
	return 0;
}

static int layer_word(const char *s, const char *end, const char *word)
{
	return (size_t)(end - s) == strlen(word) && !memcmp(s, word, strlen(word));
}

static int layer_fail(struct mpl_layer_conf *lc, const char *v, const char *end)
{
	if (layer_word(v, end, "read"))
		lc->lc_fail |= MPL_FAIL_READ;
	else if (layer_word(v, end, "write"))
		lc->lc_fail |= MPL_FAIL_WRITE;
	else if (layer_word(v, end, "flush"))
		lc->lc_fail |= MPL_FAIL_FLUSH;
	else if (layer_word(v, end, "discard"))
		lc->lc_fail |= MPL_FAIL_DISCARD;
	else
		return -EINVAL;
	return 0;
}

static int layer_err(struct mpl_layer_conf *lc, const char *v, const char *end)
{
	if (layer_word(v, end, "EIO"))
		lc->lc_err = -EIO;
	else if (layer_word(v, end, "ENOSPC"))
		lc->lc_err = -ENOSPC;
	else if (layer_word(v, end, "ENODATA"))
		lc->lc_err = -ENODATA;
	else
		return -EINVAL;
	return 0;
}

/* one KEY or KEY=VALUE in [s, end) */
static int layer_key(struct mpl_layer_conf *lc, const char *s, const char *end)
{
	const char *eq = memchr(s, '=', (size_t)(end - s));
	const char *v = eq ? eq + 1 : end, *k = eq ? eq : end;

	if (!eq) {
		if (layer_word(s, k, "sticky"))
			lc->lc_is_sticky = 1;
		else if (layer_word(s, k, "torn"))
			lc->lc_is_torn = 1;
		else if (layer_word(s, k, "volatile"))
			lc->lc_is_volatile = 1;
		else
			return -EINVAL;
		return 0;
	}
	if (layer_word(s, k, "rate"))
		return layer_num(v, end, &lc->lc_rate);
	if (layer_word(s, k, "write_rate"))
		return layer_num(v, end, &lc->lc_write_rate);
	if (layer_word(s, k, "lat"))
		return layer_time(v, end, &lc->lc_lat_ns);
	if (layer_word(s, k, "pause"))
		return layer_time(v, end, &lc->lc_pause_ns);
	if (layer_word(s, k, "every"))
		return layer_time(v, end, &lc->lc_every_ns);
	if (layer_word(s, k, "fail"))
		return layer_fail(lc, v, end);
	if (layer_word(s, k, "after"))
		return layer_num(v, end, &lc->lc_after);
	if (layer_word(s, k, "err"))
		return layer_err(lc, v, end);
	if (layer_word(s, k, "cut"))
		return layer_time(v, end, &lc->lc_cut_ns);
	if (layer_word(s, k, "cut_after"))
		return layer_num(v, end, &lc->lc_cut_after);
	if (layer_word(s, k, "seed"))
		return layer_num(v, end, &lc->lc_seed);
	return -EINVAL;
}

static int layer_class(const char *s, const char *end)
{
	if (layer_word(s, end, "capacity"))
		return 1 << MPOOL_CAPACITY;
	if (layer_word(s, end, "staging"))
		return 1 << MPOOL_STAGING;
	if (layer_word(s, end, "all"))
		return (1 << MPOOL_CAPACITY) | (1 << MPOOL_STAGING);
	return 0;
}

/* Gathers what @spec says about the classes in @mask. */
static int layer_parse(const char *spec, int mask, struct mpl_layer_conf *lc, const char **at)
{
	const char *s = spec;

	lc->lc_after = 1;
	lc->lc_err = -EIO;
	lc->lc_seed = 1;
	while (*s) {
		const char *end = s + strcspn(s, ";"), *colon = memchr(s, ':', (size_t)(end - s));
		int cls = colon ? layer_class(s, colon) : 0;
		struct mpl_layer_conf ignored = *lc;

		*at = s;
		if (!cls)
			return -EINVAL;
		for (s = colon + 1; s < end;) {
			const char *e = memchr(s, ',', (size_t)(end - s));

			*at = s;
			if (!e)
				e = end;
			if (layer_key(cls & mask ? lc : &ignored, s, e))
				return -EINVAL;
			s = e < end ? e + 1 : e;
		}
		s = *end ? end + 1 : end;
	}
	if (!lc->lc_pause_ns && !lc->lc_every_ns)
		return 0;
	return lc->lc_pause_ns && lc->lc_pause_ns < lc->lc_every_ns ? 0 : -EINVAL;
}

int mpl_layer_check(const char *spec, const char **at)
{
	struct mpl_layer_conf lc = { 0 };

	return layer_parse(spec, 3, &lc, at);
}

int mpl_layer_push(struct mpool_vdev *vd, const char *spec, uint32_t mclass,
		   struct mpl_power **power)
{
	struct mpl_layer_conf lc = { 0 };
	const char *at;
	int rc = layer_parse(spec, 1 << mclass, &lc, &at);

	if (!rc && (lc.lc_is_volatile || lc.lc_cut_ns || lc.lc_cut_after))
		rc = mpl_volatile_push(vd, &lc, power);
	if (!rc && lc.lc_fail)
		rc = mpl_fault_push(vd, &lc);
	if (!rc && (lc.lc_rate || lc.lc_write_rate || lc.lc_lat_ns || lc.lc_pause_ns))
		rc = mpl_delay_push(vd, &lc);
	return rc;
}
