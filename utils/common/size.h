/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Sizes, counts and times as people type and read them.
 *
 * Input sizes: "8192", "64M", "1.5T", "4KiB", "4KB"; K M G T P are 1024-based in
 * every spelling. Times: "100ms", "2s", "1.5s", "10us", "5m", "1h", "20ns".
 */
#ifndef UTILS_SIZE_H
#define UTILS_SIZE_H

#include <stddef.h>
#include <stdint.h>

/* All return 0 or -EINVAL / -ERANGE. */
int size_parse(const char *s, uint64_t *bytes);
int count_parse(const char *s, uint64_t *n);     /* K M G are 1000-based */
int time_parse(const char *s, uint64_t *ns);     /* a bare number is refused unless 0 */

/* the smallest member that libmpool makes; named here as the user typed the size */
#define MEMBER_MIN (2u << 20)

#define SIZE_STR 32 /* enough for every size_str(), time_str(), uuid_str() excepted */
#define UUID_STR 37

/* Short forms into @buf (SIZE_STR bytes), returned: "1.5G", "512", "100ms". */
const char *size_str(char *buf, uint64_t bytes);
const char *bytes_str(char *buf, uint64_t bytes); /* in a sentence: "1.5G", "512 bytes" */
const char *count_str(char *buf, uint64_t n, const char *noun); /* "1 key", "2 keys" */
const char *time_str(char *buf, uint64_t ns);
const char *uuid_str(char *buf, const uint8_t uuid[16]); /* UUID_STR bytes */

#endif
