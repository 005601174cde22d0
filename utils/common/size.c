/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Parsing and printing of sizes, counts and times.
 *
 * The arithmetic is in long double, whose 64-bit mantissa holds every integer
 * result exactly where the input was an integer; a value that does not fit in
 * 64 bits is -ERANGE, never wrapped.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "size.h"

/* Digits with at most one point; hex, exponents, signs and blanks are refused. */
static int number_parse(const char *s, long double *v, const char **end)
{
	const char *p = s;
	int points = 0, digits = 0;
	char buf[64];

	for (; isdigit((unsigned char)*p) || *p == '.'; p++) {
		points += *p == '.';
		digits += *p != '.';
	}
	if (!digits || points > 1 || p - s >= (long)sizeof(buf))
		return -EINVAL;
	memcpy(buf, s, (size_t)(p - s));
	buf[p - s] = '\0';
	*v = strtold(buf, NULL);
	*end = p;
	return 0;
}

static int to_u64(long double v, uint64_t *out)
{
	if (v >= 18446744073709551616.0L)
		return -ERANGE;
	*out = (uint64_t)(v + 0.5L >= 18446744073709551616.0L ? v : v + 0.5L);
	return 0;
}

static int scaled_parse(const char *s, unsigned base, uint64_t *out)
{
	static const char units[] = "KMGTP";
	long double v;
	const char *p, *u;
	int rc = number_parse(s, &v, &p);
	bool is_bare;

	if (rc)
		return rc;
	is_bare = !*p || *p == 'B' || *p == 'b';
	if (!is_bare) {
		u = strchr(units, toupper((unsigned char)*p));
		if (!u)
			return -EINVAL;
		for (; u >= units; u--)
			v *= base;
		p++;
		if (base == 1024 && (*p == 'i' || *p == 'I'))
			p++;
	}
	if (base == 1024 && (*p == 'B' || *p == 'b'))
		p++;
	/* there is no half of a byte or a record */
	if (*p || (is_bare && v < 1e18L && v != (uint64_t)v))
		return -EINVAL;
	return to_u64(v, out);
}

int size_parse(const char *s, uint64_t *bytes)
{
	return scaled_parse(s, 1024, bytes);
}

int count_parse(const char *s, uint64_t *n)
{
	return scaled_parse(s, 1000, n);
}

int time_parse(const char *s, uint64_t *ns)
{
	static const struct {
		const char *unit;
		long double ns;
	} units[] = {
		{ "ns", 1 }, { "us", 1e3L }, { "ms", 1e6L }, { "s", 1e9L },
		{ "m", 60e9L }, { "min", 60e9L }, { "h", 3600e9L }, { "d", 86400e9L },
	};
	long double v;
	const char *p;
	size_t i;
	int rc = number_parse(s, &v, &p);

	if (rc)
		return rc;
	if (!*p)
		return v == 0 ? to_u64(0, ns) : -EINVAL;
	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(p, units[i].unit))
			return to_u64(v * units[i].ns, ns);
	return -EINVAL;
}

/* Three significant digits, and no ".0". */
static const char *short_str(char *buf, double v, const char *unit)
{
	if (v < 9.995 && v != (double)(long)v)
		snprintf(buf, SIZE_STR, "%.2f", v);
	else if (v < 99.95 && v != (double)(long)v)
		snprintf(buf, SIZE_STR, "%.1f", v);
	else
		snprintf(buf, SIZE_STR, "%.0f", v);
	if (strchr(buf, '.')) {
		size_t n = strlen(buf);

		while (buf[n - 1] == '0')
			buf[--n] = '\0';
		if (buf[n - 1] == '.')
			buf[n - 1] = '\0';
	}
	strncat(buf, unit, SIZE_STR - strlen(buf) - 1);
	return buf;
}

const char *size_str(char *buf, uint64_t bytes)
{
	static const char *const units[] = { "", "K", "M", "G", "T", "P", "E" };
	double v = (double)bytes;
	unsigned u = 0;

	while (v >= 1023.5 && u < 6) {
		v /= 1024;
		u++;
	}
	return short_str(buf, v, units[u]);
}

const char *bytes_str(char *buf, uint64_t bytes)
{
	if (bytes >= 1024)
		return size_str(buf, bytes);
	return count_str(buf, bytes, "byte");
}

const char *count_str(char *buf, uint64_t n, const char *noun)
{
	snprintf(buf, SIZE_STR, "%" PRIu64 " %s%s", n, noun, n == 1 ? "" : "s");
	return buf;
}

const char *time_str(char *buf, uint64_t ns)
{
	if (ns < 1000)
		return short_str(buf, (double)ns, "ns");
	if (ns < 1000000)
		return short_str(buf, (double)ns / 1e3, "us");
	if (ns < 1000000000)
		return short_str(buf, (double)ns / 1e6, "ms");
	return short_str(buf, (double)ns / 1e9, "s");
}

const char *uuid_str(char *buf, const uint8_t uuid[16])
{
	static const char hex[] = "0123456789abcdef";
	char *p = buf;
	int i;

	for (i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		*p++ = hex[uuid[i] >> 4];
		*p++ = hex[uuid[i] & 15];
	}
	*p = '\0';
	return buf;
}
