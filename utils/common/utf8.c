/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Characters of UTF-8: no overlong form, no surrogate, nothing above U+10FFFF. */
#include <stdint.h>
#include <string.h>

#include "utf8.h"

size_t utf8_len(const void *p, size_t len)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *s = p;
	uint32_t c;
	size_t n, i;

	if (s[0] < 0x80)
		return 1;
	n = s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf8 ? 4 : 0;
	if (!n || n > len)
		return 0;
	c = s[0] & 0x7fu >> n;
	for (i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	return n;
}

size_t utf8_shown(const void *p, size_t len)
{
	const unsigned char *s = p;
	size_t n = utf8_len(s, len);

	if ((n == 1 && (s[0] < 0x20 || s[0] == 0x7f)) || (n == 2 && s[0] == 0xc2 && s[1] < 0xa0))
		return 0;
	return n;
}

void utf8_clean(char *s)
{
	size_t left = strlen(s), n;

	for (; left; s += n, left -= n) {
		n = utf8_shown(s, left);
		if (n)
			continue;
		*s = '?';
		n = 1;
	}
}
