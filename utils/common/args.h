/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Command tables and their parser.
 *
 * A tool is one table of verbs; a verb is one table of options. The same tables
 * drive the parser, --help, the man page and the tests, so that an option
 * exists in all of them or in none.
 *
 * Grammar: tool [GLOBAL] VERB [OPTIONS] OPERANDS. Options may stand anywhere
 * after the verb; global options anywhere. --name VALUE, --name=VALUE, -c VALUE,
 * -cVALUE, -abc for flags; "--" ends options; a lone "-" is an operand. An
 * option with a .key may also be written key=value among the operands.
 * Names are never abbreviated: a script must not break when an option is added.
 */
#ifndef UTILS_ARGS_H
#define UTILS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARGS_MAX 256 /* options given, and operands, in one command line */

enum opt_type {
	OPT_FLAG = 0, /* no value */
	OPT_STR,
	OPT_UINT,     /* decimal count; "2M" is 2 * 1000 * 1000 */
	OPT_SIZE,     /* bytes, see size.h */
	OPT_TIME,     /* nanoseconds, see size.h; a unit is required */
	OPT_PERCENT,  /* 0 .. 100, with or without % */
	OPT_MODE,     /* octal permissions */
	OPT_USER,     /* user name or number -> uid */
	OPT_GROUP,    /* group name or number -> gid */
	OPT_ENUM,     /* one of .choices, value is its index */
};

#define OPTF_MULTI  0x1u /* may be given several times */
#define OPTF_COMMON 0x2u /* of many verbs: the manual page describes it once */

/* struct opt - one option; a table ends with .name == NULL */
struct opt {
	const char *name;     /* long name without dashes */
	char ch;              /* short form, 0 = none */
	uint8_t type;         /* enum opt_type */
	uint8_t flags;        /* OPTF_* */
	const char *arg;      /* name of the value in help, NULL for a flag */
	const char *help;     /* one sentence, no full stop */
	const char *key;      /* spelling in key=value form, or NULL */
	const char *choices;  /* OPT_ENUM: "a|b|c" */
};

struct ui; /* ui.h */

#define VERBF_DESTROYS 0x1u /* asks before it acts, see confirm.h */
#define VERBF_KEYS     0x2u /* unknown key=value words are operands, see args_is_pair() */

/* struct verb - one verb; a table ends with .name == NULL */
struct verb {
	const char *name;       /* "create", or two words: "kvs create" */
	const char *operands;   /* "PATH [DEV...]" for the synopsis */
	int min, max;           /* number of operands; max < 0 = any */
	unsigned flags;         /* VERBF_* */
	const char *brief;      /* one line */
	const char *about;      /* paragraphs separated by an empty line */
	const struct opt *opts; /* may be NULL */
	const char *exits;      /* digits of the exit codes that can occur: "01258" */
	const char *examples;   /* lines "command\tmeaning\n" */
	int (*run)(struct ui *ui); /* returns an exit code */
};

/* struct tool - one program */
struct tool {
	const char *name;
	const char *brief;
	const char *about;
	const char *files;       /* man FILES: lines "path\tmeaning\n" */
	const char *environment; /* man ENVIRONMENT: lines "NAME\tmeaning\n" */
	const char *see_also;
	const struct verb *verbs;
	const char *(*lib_version)(void);
	int (*explain)(const char *id, const char **name, const char **text, const char **cure);
	unsigned format_min, format_max; /* media format versions that can be read */
};

/* Options that every verb of every tool takes. */
extern const struct opt args_globals[];

/* struct arg - an option that was given */
struct arg {
	const struct opt *opt;
	const char *str; /* as typed; NULL for a flag */
	uint64_t num;    /* parsed value of the numeric types */
};

/* struct args - a parsed command line; strings point into argv */
struct args {
	const struct verb *verb;
	struct arg given[ARGS_MAX];
	unsigned ngiven;
	const char *v[ARGS_MAX]; /* operands */
	int n;
	char error[256];         /* why parsing failed */
	bool want_help;          /* -h or --help */
	bool want_version;       /* --version */
};

/*
 * Parse. Returns 0, or EXIT_USAGE with a->error set. Without a verb a->verb is
 * NULL (legal only with want_help or want_version).
 */
int args_parse(const struct tool *tool, int argc, char **argv, struct args *a);

/* Look up a verb by name ("create", "kvs create"); NULL when there is none. */
const struct verb *args_verb(const struct tool *tool, const char *name);

/*
 * When verbs of two words begin with @word, writes "kvs create, kvs drop or kvs
 * list" into @buf and returns true.
 */
bool args_group(const struct tool *tool, const char *word, char *buf, size_t size);

/*
 * The verb that was meant, when @word looks like one that was mistyped: *out and how many of its
 * letters (of two words the first, when @word is one); else 0.
 */
int args_near(const struct tool *tool, const char *word, const char **out);

/* Values by long option name. The last one given wins. */
bool args_has(const struct args *a, const char *name);
const char *args_str(const struct args *a, const char *name, const char *def);
uint64_t args_num(const struct args *a, const char *name, uint64_t def);
/* Next use of an OPTF_MULTI option; *pos starts at 0. NULL at the end. */
const struct arg *args_next(const struct args *a, const char *name, unsigned *pos);

/* True when @word looks like key=value: a lower-case word, '=', anything. */
bool args_is_pair(const char *word);

#endif
