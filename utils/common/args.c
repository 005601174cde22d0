/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The command line parser, see args.h for the grammar.
 *
 * It needs the verb before it can read options, so global options before the
 * verb are read with the globals' table alone.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "args.h"
#include "exitcode.h"
#include "size.h"

const struct opt args_globals[] = {
	{ "json", 'j', OPT_FLAG, 0, NULL, "print JSON: typed, versioned, complete", NULL, NULL },
	{ "quiet", 'q', OPT_FLAG, 0, NULL, "print nothing but results and errors", NULL, NULL },
	{ "verbose", 'v', OPT_FLAG, 0, NULL, "print more", NULL, NULL },
	{ "progress", 0, OPT_ENUM, 0, "HOW",
	  "progress on standard error: 'auto' (a terminal only), 'json' or 'none'", NULL,
	  "auto|json|none" },
	{ "help", 'h', OPT_FLAG, 0, NULL, "print help", NULL, NULL },
	{ "version", 0, OPT_FLAG, 0, NULL, "print versions", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static int args_err(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static int args_err(struct args *a, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(a->error, sizeof(a->error), fmt, ap);
	va_end(ap);
	return EXIT_USAGE;
}

const struct verb *args_verb(const struct tool *tool, const char *name)
{
	for (const struct verb *v = tool->verbs; v->name; v++)
		if (!strcmp(v->name, name))
			return v;
	return NULL;
}

#define TYPED_MAX 24u

/*
 * Letters that were mistyped to make @a, of @n, from @b, of @m: another one, one too many, one
 * left out, or two in the wrong order.
 */
static size_t typos(const char *a, size_t n, const char *b, size_t m)
{
	size_t d[TYPED_MAX + 1][TYPED_MAX + 1], i, k, least;

	if (n > TYPED_MAX || m > TYPED_MAX)
		return TYPED_MAX;
	for (i = 0; i <= n; i++)
		for (k = 0; k <= m; k++) {
			if (!i || !k) {
				d[i][k] = i + k;
				continue;
			}
			least = d[i - 1][k - 1] + (a[i - 1] != b[k - 1]);
			if (least > d[i - 1][k] + 1)
				least = d[i - 1][k] + 1;
			if (least > d[i][k - 1] + 1)
				least = d[i][k - 1] + 1;
			if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1] &&
			    least > d[i - 2][k - 2] + 1)
				least = d[i - 2][k - 2] + 1;
			d[i][k] = least;
		}
	return d[n][m];
}

/* Is @b, of @m letters, nearer to what was typed than all before, and near enough? */
static bool is_nearer(const char *typed, size_t n, const char *b, size_t m, size_t *best)
{
	size_t is = typos(typed, n, b, m);

	if (is >= *best || is * 3 > n)
		return false;
	*best = is;
	return true;
}

int args_near(const struct tool *tool, const char *word, const char **out)
{
	size_t best = 3, n = strlen(word);
	int len = 0;

	for (const struct verb *v = tool->verbs; v->name; v++) {
		/* of a verb of two words the first alone was typed */
		size_t m = strcspn(v->name, strchr(word, ' ') ? "" : " ");

		if (!is_nearer(word, n, v->name, m, &best))
			continue;
		*out = v->name;
		len = (int)m;
	}
	return len;
}

static const struct opt *opt_near(const struct args *a, const char *name, size_t n)
{
	const struct opt *lists[] = { a->verb ? a->verb->opts : NULL, args_globals };
	const struct opt *found = NULL;
	size_t best = 3;

	for (int i = 0; i < 2; i++)
		for (const struct opt *o = lists[i]; o && o->name; o++)
			if (is_nearer(name, n, o->name, strlen(o->name), &best))
				found = o;
	return found;
}

static const struct opt *opt_find(const struct opt *o, const char *name, size_t len, char ch)
{
	for (; o && o->name; o++) {
		if (name && strlen(o->name) == len && !strncmp(o->name, name, len))
			return o;
		if (!name && o->ch && o->ch == ch)
			return o;
	}
	return NULL;
}

static const struct opt *opt_get(const struct args *a, const char *name, size_t len, char ch)
{
	const struct opt *o = NULL;

	if (a->verb)
		o = opt_find(a->verb->opts, name, len, ch);
	return o ? o : opt_find(args_globals, name, len, ch);
}

static int parse_id(const char *s, bool is_user, uint64_t *out)
{
	char *end;
	unsigned long v;

	if (isdigit((unsigned char)*s)) {
		errno = 0;
		v = strtoul(s, &end, 10);
		/* the highest number means "none" to the system */
		if (errno || *end || v >= UINT32_MAX)
			return -EINVAL;
		*out = v;
		return 0;
	}
	if (is_user) {
		struct passwd *pw = getpwnam(s);

		if (!pw)
			return -ENOENT;
		*out = pw->pw_uid;
	} else {
		struct group *gr = getgrnam(s);

		if (!gr)
			return -ENOENT;
		*out = gr->gr_gid;
	}
	return 0;
}

static int parse_mode(const char *s, uint64_t *out)
{
	char *end;
	unsigned long v;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	v = strtoul(s, &end, 8);
	if (*end || v > 0777)
		return -EINVAL;
	*out = v;
	return 0;
}

static int parse_percent(const char *s, uint64_t *out)
{
	char *end;
	unsigned long v;

	if (!isdigit((unsigned char)*s))
		return -EINVAL;
	v = strtoul(s, &end, 10);
	if (*end == '%')
		end++;
	if (*end || v > 100)
		return -EINVAL;
	*out = v;
	return 0;
}

static int parse_enum(const char *choices, const char *s, uint64_t *out)
{
	size_t len = strlen(s);
	uint64_t i = 0;
	const char *c, *e;

	for (c = choices; ; c = e + 1, i++) {
		e = strchrnul(c, '|');
		if ((size_t)(e - c) == len && !strncmp(c, s, len)) {
			*out = i;
			return 0;
		}
		if (!*e)
			return -EINVAL;
	}
}

/* Check and convert a value; *want names what was expected. */
static int value_parse(const struct opt *o, const char *s, uint64_t *num, const char **want)
{
	*num = 0;
	switch (o->type) {
	case OPT_UINT:
		*want = "a count such as 1000 or 2M";
		return count_parse(s, num);
	case OPT_SIZE:
		*want = "a size such as 8192, 64M or 1.5T";
		return size_parse(s, num);
	case OPT_TIME:
		*want = "a time such as 100ms, 2s or 7d";
		return time_parse(s, num);
	case OPT_PERCENT:
		*want = "a percentage";
		return parse_percent(s, num);
	case OPT_MODE:
		*want = "octal permissions such as 0660";
		return parse_mode(s, num);
	case OPT_USER:
		*want = "the name of a user that there is, or a number";
		return parse_id(s, true, num);
	case OPT_GROUP:
		*want = "the name of a group that there is, or a number";
		return parse_id(s, false, num);
	case OPT_ENUM:
		*want = o->choices;
		return parse_enum(o->choices, s, num);
	default:
		return 0;
	}
}

/* Record a use of @o; @spelled is how the user wrote it. */
static int opt_add(struct args *a, const struct opt *o, const char *spelled, const char *str)
{
	struct arg *g;
	const char *want = "";
	uint64_t num = 0;
	int rc = str ? value_parse(o, str, &num, &want) : 0;

	if (rc == -ERANGE)
		return args_err(a, "%s: '%s' is too large", spelled, str);
	if (rc)
		return args_err(a, "%s: '%s' is not valid, wanted %s", spelled, str, want);
	if (!(o->flags & OPTF_MULTI) && o->type != OPT_FLAG && args_has(a, o->name))
		return args_err(a, "%s is given twice", spelled);
	if (a->ngiven == ARGS_MAX)
		return args_err(a, "too many options");
	if (!strcmp(o->name, "help"))
		a->want_help = true;
	if (!strcmp(o->name, "version"))
		a->want_version = true;
	g = &a->given[a->ngiven++];
	g->opt = o;
	g->str = str;
	g->num = num;
	return 0;
}

static int parse_long(struct args *a, const char *word, const char *next, int *used)
{
	const char *eq = strchr(word, '=');
	size_t len = eq ? (size_t)(eq - word) : strlen(word);
	const struct opt *o = opt_get(a, word + 2, len - 2, 0);
	char spelled[64];

	snprintf(spelled, sizeof(spelled), "%.*s", (int)len, word);
	if (!o) {
		o = opt_near(a, word + 2, len - 2);
		return args_err(a, "unknown option %s%s%s%s", spelled,
				o ? ", did you mean --" : "", o ? o->name : "", o ? "?" : "");
	}
	if (o->type == OPT_FLAG) {
		if (eq)
			return args_err(a, "%s takes no value", spelled);
		return opt_add(a, o, spelled, NULL);
	}
	if (eq)
		return opt_add(a, o, spelled, eq + 1);
	if (!next)
		return args_err(a, "%s needs a value (%s)", spelled, o->arg);
	*used = 1;
	return opt_add(a, o, spelled, next);
}

static int parse_short(struct args *a, const char *word, const char *next, int *used)
{
	const struct opt *o;
	char spelled[3] = "-";
	int rc;

	for (const char *p = word + 1; *p; p++) {
		spelled[1] = *p;
		o = opt_get(a, NULL, 0, *p);
		if (!o && a->verb && a->verb->max && p == word + 1)
			return args_err(a, "unknown option %s (an operand? use -- before it)",
					spelled);
		if (!o)
			return args_err(a, "unknown option %s", spelled);
		if (o->type != OPT_FLAG) {
			if (p[1])
				return opt_add(a, o, spelled, p + 1);
			if (!next)
				return args_err(a, "%s needs a value (%s)", spelled, o->arg);
			*used = 1;
			return opt_add(a, o, spelled, next);
		}
		rc = opt_add(a, o, spelled, NULL);
		if (rc)
			return rc;
	}
	return 0;
}

bool args_is_pair(const char *word)
{
	const char *p = word;

	while (islower((unsigned char)*p) || *p == '_' || *p == '-' || *p == '.' ||
	       (p > word && isdigit((unsigned char)*p)))
		p++;
	return p > word && islower((unsigned char)*word) && *p == '=';
}

static bool verb_has_keys(const struct verb *v)
{
	for (const struct opt *o = v->opts; o && o->name; o++)
		if (o->key)
			return true;
	return false;
}

static int parse_operand(struct args *a, const char *word, bool is_literal)
{
	const struct opt *o;
	size_t len;

	if (!is_literal && args_is_pair(word) && verb_has_keys(a->verb)) {
		len = strcspn(word, "=");
		for (o = a->verb->opts; o->name; o++)
			if (o->key && strlen(o->key) == len && !strncmp(o->key, word, len)) {
				char spelled[64];

				snprintf(spelled, sizeof(spelled), "%s", o->key);
				return opt_add(a, o, spelled, word + len + 1);
			}
		if (!(a->verb->flags & VERBF_KEYS))
			return args_err(a, "unknown key in '%s' (write ./%s for a path)", word,
					word);
	}
	if (a->n == ARGS_MAX)
		return args_err(a, "too many operands");
	a->v[a->n++] = word;
	return 0;
}

/* Find the verb at argv[i], of one word or two; *words says how many. */
static const struct verb *verb_match(const struct tool *tool, int argc, char **argv, int i,
				     int *words)
{
	char two[64];
	const struct verb *v;

	if (i + 1 < argc) {
		snprintf(two, sizeof(two), "%s %s", argv[i], argv[i + 1]);
		v = args_verb(tool, two);
		if (v) {
			*words = 2;
			return v;
		}
	}
	*words = 1;
	return strchr(argv[i], ' ') ? NULL : args_verb(tool, argv[i]);
}

bool args_group(const struct tool *tool, const char *word, char *buf, size_t size)
{
	const struct verb *v, *last = NULL;
	size_t len = strlen(word), n = 0;

	*buf = '\0';
	for (v = tool->verbs; v->name; v++)
		if (!strncmp(v->name, word, len) && v->name[len] == ' ')
			last = v;
	for (v = tool->verbs; last && v <= last && n < size; v++)
		if (!strncmp(v->name, word, len) && v->name[len] == ' ')
			n += (size_t)snprintf(buf + n, size - n, "%s%s",
					      !n ? "" : v == last ? " or " : ", ", v->name);
	return last;
}

static int verb_unknown(const struct tool *tool, struct args *a, const char *word)
{
	const char *near;
	char group[160];
	int len;

	if (args_group(tool, word, group, sizeof(group)))
		return args_err(a, "'%s' is not a whole verb, wanted %s", word, group);
	len = args_near(tool, word, &near);
	if (len)
		return args_err(a, "unknown verb '%.60s', did you mean '%.*s'?", word, len, near);
	return args_err(a, "unknown verb '%.60s'", word);
}

static int check_operands(const struct tool *tool, struct args *a)
{
	if (a->want_help || a->want_version)
		return 0;
	if (!a->verb)
		return args_err(a, "no verb given");
	if (a->n < a->verb->min)
		return args_err(a, "%s, usage: %s %s %s",
				a->n ? "too few operands" : "an operand is missing", tool->name,
				a->verb->name, a->verb->operands);
	if (a->verb->max >= 0 && a->n > a->verb->max)
		return args_err(a, "unexpected operand '%s', usage: %s %s %s",
				a->v[a->verb->max], tool->name, a->verb->name, a->verb->operands);
	return 0;
}

int args_parse(const struct tool *tool, int argc, char **argv, struct args *a)
{
	bool is_literal = false;
	int i, rc, used, words;

	memset(a, 0, sizeof(*a));
	for (i = 1; i < argc; i++) {
		char *w = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;

		used = 0;
		if (!is_literal && !strcmp(w, "--")) {
			is_literal = true;
			rc = 0;
		} else if (!is_literal && w[0] == '-' && w[1] == '-') {
			rc = parse_long(a, w, next, &used);
		} else if (!is_literal && w[0] == '-' && w[1]) {
			rc = parse_short(a, w, next, &used);
		} else if (!a->verb) {
			a->verb = verb_match(tool, argc, argv, i, &words);
			if (!a->verb)
				return verb_unknown(tool, a, w);
			used = words - 1;
			rc = 0;
		} else {
			rc = parse_operand(a, w, is_literal);
		}
		if (rc)
			return rc;
		i += used;
	}
	return check_operands(tool, a);
}

bool args_has(const struct args *a, const char *name)
{
	unsigned pos = 0;

	return args_next(a, name, &pos) != NULL;
}

const struct arg *args_next(const struct args *a, const char *name, unsigned *pos)
{
	while (*pos < a->ngiven) {
		const struct arg *g = &a->given[(*pos)++];

		if (!strcmp(g->opt->name, name))
			return g;
	}
	return NULL;
}

const char *args_str(const struct args *a, const char *name, const char *def)
{
	const struct arg *g;
	unsigned pos = 0;

	while ((g = args_next(a, name, &pos)))
		def = g->str;
	return def;
}

uint64_t args_num(const struct args *a, const char *name, uint64_t def)
{
	const struct arg *g;
	unsigned pos = 0;

	while ((g = args_next(a, name, &pos)))
		def = g->num;
	return def;
}
