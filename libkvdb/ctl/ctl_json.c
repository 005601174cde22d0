/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The text of the control socket: a strict parser of flat objects and a
 * bounded writer. Everything read is a stranger's; nothing is allocated for it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/ctl.h"

/* ---- requests ------------------------------------------------------------------ */

struct scan {
	const char *p, *end;
	char *to, *to_end;	/* in rq_text */
	struct kv_ctl_req *r;
};

static int wrong(struct scan *s, const char *why)
{
	s->r->rq_why = why;
	return -EINVAL;
}

static void blank(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r'))
		s->p++;
}

static bool next_is(struct scan *s, char c)
{
	blank(s);
	if (s->p == s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

static int put(struct scan *s, char c)
{
	/* a value that holds NUL could be taken for a shorter one */
	if (!c || s->to == s->to_end)
		return wrong(s, "a string holds a zero byte or is too long");
	*s->to++ = c;
	return 0;
}

static int put_utf8(struct scan *s, uint32_t c)
{
	int err;

	if (c < 0x80)
		return put(s, (char)c);
	err = put(s, (char)(c < 0x800 ? 0xc0 | c >> 6 : 0xe0 | c >> 12));
	if (!err && c >= 0x800)
		err = put(s, (char)(0x80 | (c >> 6 & 0x3f)));
	return err ? err : put(s, (char)(0x80 | (c & 0x3f)));
}

static int escape(struct scan *s)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;
	uint32_t c = 0;
	int i;

	if (s->p == s->end || !*s->p)
		return wrong(s, "a string does not end");
	if (*s->p != 'u') {
		at = strchr(from, *s->p++);
		return at ? put(s, to[at - from]) : wrong(s, "an unknown escape");
	}
	for (i = 0, s->p++; i < 4; i++, s->p++) {
		char x = s->p < s->end ? *s->p : 0;

		if (!((x >= '0' && x <= '9') || (x >= 'a' && x <= 'f') || (x >= 'A' && x <= 'F')))
			return wrong(s, "an escape \\u without four hexadecimal digits");
		c = c << 4 | (uint32_t)(x <= '9' ? x - '0' : (x | 0x20) - 'a' + 10);
	}
	if (c >= 0xd800 && c < 0xe000)
		return wrong(s, "surrogates are not taken; write the character itself");
	return put_utf8(s, c);
}

/* After the opening quote. */
static int string(struct scan *s, const char **out)
{
	int err = 0;

	*out = s->to;
	while (!err) {
		if (s->p == s->end)
			return wrong(s, "a string does not end");
		if (*s->p == '"')
			break;
		if ((unsigned char)*s->p < 0x20)
			return wrong(s, "a control character in a string");
		if (*s->p == '\\') {
			s->p++;
			err = escape(s);
		} else {
			err = put(s, *s->p++);
		}
	}
	if (err)
		return err;
	s->p++;
	if (s->to == s->to_end)
		return wrong(s, "too long");
	*s->to++ = 0;
	return 0;
}

/* Number, true, false, null: kept as written. */
static int word(struct scan *s, const char **out)
{
	int err = 0;

	*out = s->to;
	while (!err && s->p < s->end &&
	       ((*s->p >= '0' && *s->p <= '9') || (*s->p >= 'a' && *s->p <= 'z') ||
		*s->p == '-' || *s->p == '+' || *s->p == '.' || *s->p == 'E'))
		err = put(s, *s->p++);
	if (err)
		return err;
	if (s->to == *out)
		return wrong(s, "a value is missing, or is an object or array");
	if (s->to == s->to_end)
		return wrong(s, "too long");
	*s->to++ = 0;
	if (**out != '-' && (**out < '0' || **out > '9') && strcmp(*out, "true") &&
	    strcmp(*out, "false") && strcmp(*out, "null"))
		return wrong(s, "a value that is not JSON");
	return 0;
}

static int member(struct scan *s)
{
	struct kv_ctl_req *r = s->r;
	const char *name, *val;
	int err;

	if (!next_is(s, '"'))
		return wrong(s, "a member begins with its name in quotes");
	err = string(s, &name);
	if (err)
		return err;
	if (!next_is(s, ':'))
		return wrong(s, "no ':' behind a name");
	err = next_is(s, '"') ? string(s, &val) : word(s, &val);
	if (err)
		return err;
	if (kv_ctl_arg(r, name))
		return wrong(s, "a member is there twice");
	if (r->rq_n == KV_CTL_MEMBERS)
		return wrong(s, "too many members");
	r->rq_name[r->rq_n] = name;
	r->rq_val[r->rq_n++] = val;
	return 0;
}

int kv_ctl_parse(struct kv_ctl_req *r, const char *line, size_t len)
{
	struct scan s = { .p = line, .end = line + len, .to = r->rq_text,
			  .to_end = r->rq_text + sizeof(r->rq_text), .r = r };
	int err;

	r->rq_n = 0;
	r->rq_why = "";
	if (!next_is(&s, '{'))
		return wrong(&s, "not a JSON object");
	if (!next_is(&s, '}')) {
		do {
			err = member(&s);
			if (err)
				return err;
		} while (next_is(&s, ','));
		if (!next_is(&s, '}'))
			return wrong(&s, "the object does not end");
	}
	blank(&s);
	return s.p == s.end ? 0 : wrong(&s, "text behind the object");
}

const char *kv_ctl_arg(const struct kv_ctl_req *r, const char *name)
{
	unsigned i;

	for (i = 0; i < r->rq_n; i++)
		if (!strcmp(r->rq_name[i], name))
			return r->rq_val[i];
	return NULL;
}

/* ---- answers ---------------------------------------------------------------------- */

static void text(struct kv_ctl_out *o, const char *p, size_t len)
{
	size_t cap = o->ou_cap ? o->ou_cap : 1024;
	char *more;

	if (o->ou_bad)
		return;
	while (cap - o->ou_len < len && cap < KV_CTL_ANSWER)
		cap *= 2;
	if (cap - o->ou_len < len) {
		o->ou_bad = true;
		return;
	}
	if (cap != o->ou_cap) {
		more = realloc(o->ou_p, cap);
		if (!more) {
			o->ou_bad = true;
			return;
		}
		o->ou_p = more;
		o->ou_cap = cap;
	}
	memcpy(o->ou_p + o->ou_len, p, len);
	o->ou_len += len;
}

/* Bytes of the character at @s, which a NUL ends; 0: it is not UTF-8. */
static unsigned utf8_len(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;
	unsigned n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 :
		     p[0] < 0xf5 ? 4 : 0;

	for (unsigned i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	/* longer than need be, a surrogate, above the last character */
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

/* Paths are any bytes, and a text may have been cut: what is no character becomes U+FFFD. */
static void quoted(struct kv_ctl_out *o, const char *s)
{
	char esc[8];
	unsigned n;

	text(o, "\"", 1);
	for (; *s; s += n ? n : 1) {
		n = utf8_len(s);
		if (!n) {
			text(o, "\\ufffd", 6);
		} else if (*s == '"' || *s == '\\') {
			esc[0] = '\\';
			esc[1] = *s;
			text(o, esc, 2);
		} else if ((unsigned char)*s < 0x20 || *s == 0x7f) {
			snprintf(esc, sizeof(esc), "\\u%04x", (unsigned)*s);
			text(o, esc, 6);
		} else {
			text(o, s, n);
		}
	}
	text(o, "\"", 1);
}

static void item(struct kv_ctl_out *o, const char *name)
{
	unsigned d = o->ou_depth;

	if (d && o->ou_has_item[d - 1])
		text(o, ",", 1);
	if (d)
		o->ou_has_item[d - 1] = true;
	if (name) {
		quoted(o, name);
		text(o, ":", 1);
	}
}

static void open_level(struct kv_ctl_out *o, const char *name, bool is_array)
{
	item(o, name);
	if (o->ou_depth == KV_CTL_DEPTH) {
		o->ou_bad = true;
		return;
	}
	text(o, is_array ? "[" : "{", 1);
	o->ou_is_array[o->ou_depth] = is_array;
	o->ou_has_item[o->ou_depth++] = false;
}

void kv_out_begin(struct kv_ctl_out *o)
{
	o->ou_len = 0;
	o->ou_depth = 0;
	o->ou_bad = false;
	open_level(o, NULL, false);
}

void kv_out_obj(struct kv_ctl_out *o, const char *name)
{
	open_level(o, name, false);
}

void kv_out_arr(struct kv_ctl_out *o, const char *name)
{
	open_level(o, name, true);
}

void kv_out_end(struct kv_ctl_out *o)
{
	if (o->ou_depth)
		text(o, o->ou_is_array[--o->ou_depth] ? "]" : "}", 1);
}

void kv_out_done(struct kv_ctl_out *o)
{
	while (o->ou_depth)
		kv_out_end(o);
	text(o, "\n", 1);
}

void kv_out_u64(struct kv_ctl_out *o, const char *name, uint64_t v)
{
	char b[24];

	item(o, name);
	text(o, b, (size_t)snprintf(b, sizeof(b), "%" PRIu64, v));
}

void kv_out_i64(struct kv_ctl_out *o, const char *name, int64_t v)
{
	char b[24];

	item(o, name);
	text(o, b, (size_t)snprintf(b, sizeof(b), "%" PRId64, v));
}

void kv_out_bool(struct kv_ctl_out *o, const char *name, bool v)
{
	item(o, name);
	text(o, v ? "true" : "false", v ? 4 : 5);
}

void kv_out_str(struct kv_ctl_out *o, const char *name, const char *s)
{
	item(o, name);
	quoted(o, s);
}

void kv_out_free(struct kv_ctl_out *o)
{
	free(o->ou_p);
	memset(o, 0, sizeof(*o));
}
