/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Characters of UTF-8, and those of them that a terminal may be sent. */
#ifndef UTILS_UTF8_H
#define UTILS_UTF8_H

#include <stddef.h>

/* Bytes of the character at @p, of which @len follow (at least one); 0: there is none. */
size_t utf8_len(const void *p, size_t len);
/* The same, and 0 for control characters: also U+0080 to U+009F, the other spelling of ESC. */
size_t utf8_shown(const void *p, size_t len);
/* Replaces by '?' what utf8_shown() does not take. */
void utf8_clean(char *s);

#endif
