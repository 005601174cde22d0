/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Text forms of keys and values. Keys and values are any bytes; every form here
 * is exact in both directions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "utf8.h"

int bytes_add(struct bytes *b, const void *p, size_t len)
{
	if (len > b->room - b->len) {
		size_t room = b->room ? b->room : 256;
		unsigned char *n;

		while (room - b->len < len)
			room *= 2;
		n = realloc(b->p, room);
		if (!n)
			return -ENOMEM;
		b->p = n;
		b->room = room;
	}
	if (len)
		memcpy(b->p + b->len, p, len);
	b->len += len;
	return 0;
}

void bytes_free(struct bytes *b)
{
	free(b->p);
	memset(b, 0, sizeof(*b));
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int hex_decode(struct bytes *b, const char *s, size_t len)
{
	size_t i;

	if (len % 2)
		return -EINVAL;
	for (i = 0; i < len; i += 2) {
		int hi = nibble(s[i]), lo = nibble(s[i + 1]);
		unsigned char c;

		if (hi < 0 || lo < 0)
			return -EINVAL;
		c = (unsigned char)(hi * 16 + lo);
		if (bytes_add(b, &c, 1))
			return -ENOMEM;
	}
	return 0;
}

int esc_decode(struct bytes *b, const char *s, size_t len)
{
	const char *end = s + len;

	while (s < end) {
		const char *bs = memchr(s, '\\', (size_t)(end - s));
		size_t plain = (size_t)((bs ? bs : end) - s);
		unsigned char c;

		if (bytes_add(b, s, plain))
			return -ENOMEM;
		if (!bs)
			return 0;
		if (end - bs < 2)
			return -EINVAL;
		s = bs + 2;
		switch (bs[1]) {
		case 't':
			c = '\t';
			break;
		case 'n':
			c = '\n';
			break;
		case 'r':
			c = '\r';
			break;
		case '\\':
			c = '\\';
			break;
		case 'x':
			if (end - s < 2 || nibble(s[0]) < 0 || nibble(s[1]) < 0)
				return -EINVAL;
			c = (unsigned char)(nibble(s[0]) * 16 + nibble(s[1]));
			s += 2;
			break;
		default:
			return -EINVAL;
		}
		if (bytes_add(b, &c, 1))
			return -ENOMEM;
	}
	return 0;
}

bool utf8_valid(const void *p, size_t len)
{
	const unsigned char *s = p;
	size_t n;

	for (; len; s += n, len -= n) {
		n = utf8_len(s, len);
		if (!n)
			return false;
	}
	return true;
}

void esc_print(FILE *f, const void *p, size_t len)
{
	const unsigned char *s = p;
	size_t n;

	for (; len; s += n, len -= n) {
		n = utf8_shown(s, len);
		if (n && *s != '\\') {
			fwrite(s, 1, n, f);
			continue;
		}
		n = 1;
		if (*s == '\t')
			fputs("\\t", f);
		else if (*s == '\n')
			fputs("\\n", f);
		else if (*s == '\r')
			fputs("\\r", f);
		else if (*s == '\\')
			fputs("\\\\", f);
		else
			fprintf(f, "\\x%02x", *s);
	}
}

void hex_print(FILE *f, const void *p, size_t len)
{
	static const char dig[] = "0123456789abcdef";
	const unsigned char *s = p;

	for (; len; s++, len--) {
		putc(dig[*s >> 4], f);
		putc(dig[*s & 15], f);
	}
}

void json_bytes(struct json *j, const char *name, const char *hex_name, const void *p, size_t len)
{
	if (utf8_valid(p, len))
		json_strn(j, name, p, len);
	else
		json_hex(j, hex_name, p, len);
}

int key_operand(struct ui *ui, const char *s, struct bytes *out)
{
	int rc;

	if (args_has(ui->args, "key-hex"))
		rc = hex_decode(out, s, strlen(s));
	else
		rc = bytes_add(out, s, strlen(s));
	if (rc == -EINVAL)
		return ui_usage(ui, "\"%.40s\" is not hexadecimal", s);
	return rc ? ui_fail(ui, NULL, rc, NULL) : EXIT_DONE;
}
