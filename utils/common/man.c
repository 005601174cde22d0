/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The manual page of a tool, from its command table.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "help.h"

/*
 * Text with what roff would interpret made harmless. A dash is written \- so
 * that an option copied from the page works in a shell.
 */
static void esc(FILE *f, const char *s, size_t len)
{
	bool is_start = true;

	for (size_t i = 0; i < len; i++) {
		if (is_start && (s[i] == '.' || s[i] == '\''))
			fputs("\\&", f);
		is_start = s[i] == '\n';
		if (s[i] == '-')
			fputs("\\-", f);
		else if (s[i] == '\\')
			fputs("\\e", f);
		else
			fputc(s[i], f);
	}
}

static void esc_str(FILE *f, const char *s)
{
	esc(f, s, strlen(s));
}

static void paragraphs(FILE *f, const char *text)
{
	const char *end;

	while ((end = strstr(text, "\n\n"))) {
		esc(f, text, (size_t)(end - text));
		fputs("\n.PP\n", f);
		text = end + 2;
	}
	esc_str(f, text);
	fputc('\n', f);
}

static void man_key(FILE *f, const struct opt *o)
{
	fputs(" (also \\fB", f);
	esc_str(f, o->key);
	fprintf(f, "=\\fI%s\\fR)", o->arg);
}

static void man_opt(FILE *f, const struct opt *o)
{
	fputs(".TP\n", f);
	if (o->ch)
		fprintf(f, "\\fB\\-%c\\fR, ", o->ch);
	fputs("\\fB\\-\\-", f);
	esc_str(f, o->name);
	fputs("\\fR", f);
	if (o->arg)
		fprintf(f, " \\fI%s\\fR", o->arg);
	fputc('\n', f);
	esc_str(f, o->help);
	/* of a common one that differs between verbs, which their help says */
	if (o->key && !(o->flags & OPTF_COMMON))
		man_key(f, o);
	fputs(".\n", f);
}

static void man_opts(FILE *f, const struct opt *o)
{
	for (; o && o->name; o++)
		if (!(o->flags & OPTF_COMMON))
			man_opt(f, o);
}

/* Was it described: has a verb before @v, or @v before @o, one of its name? */
static bool is_repeated(const struct tool *tool, const struct verb *v, const struct opt *o)
{
	for (const struct verb *w = tool->verbs; w <= v; w++)
		for (const struct opt *p = w->opts; p && p->name && (w != v || p != o); p++)
			if (p->flags & OPTF_COMMON && !strcmp(p->name, o->name))
				return true;
	return false;
}

static void man_common(FILE *f, const struct tool *tool)
{
	fputs(".SH COMMON OPTIONS\nThe verbs that take them name them in their first line.\n", f);
	for (const struct verb *v = tool->verbs; v->name; v++)
		for (const struct opt *o = v->opts; o && o->name; o++)
			if (o->flags & OPTF_COMMON && !is_repeated(tool, v, o))
				man_opt(f, o);
}

/* Lines "left\tright\n" as tagged paragraphs; "{}" is the tool's name. */
static void man_pairs(FILE *f, const struct tool *tool, const char *lines)
{
	while (lines && *lines) {
		const char *tab = strchr(lines, '\t'), *end = strchr(lines, '\n');
		const char *brace = strstr(lines, "{}");

		fputs(".TP\n\\fB", f);
		while (brace && brace < tab) {
			esc(f, lines, (size_t)(brace - lines));
			fputs(tool->name, f);
			lines = brace + 2;
			brace = strstr(lines, "{}");
		}
		esc(f, lines, (size_t)(tab - lines));
		fputs("\\fR\n", f);
		esc(f, tab + 1, (size_t)(end - tab - 1));
		fputs(".\n", f);
		lines = end + 1;
	}
}

static void man_synopsis_opt(FILE *f, const struct opt *o)
{
	fputs(" [\\fB", f);
	if (o->ch) {
		fprintf(f, "\\-%c", o->ch);
	} else {
		fputs("\\-\\-", f);
		esc_str(f, o->name);
	}
	fputs("\\fR", f);
	if (o->arg)
		fprintf(f, " \\fI%s\\fR", o->arg);
	fputs("]", f);
	if (o->flags & OPTF_MULTI)
		fputs("...", f);
}

static void man_verb(FILE *f, const struct tool *tool, const struct verb *v)
{
	fputs(".SS ", f);
	esc_str(f, v->name);
	fprintf(f, "\n\\fB%s ", tool->name);
	esc_str(f, v->name);
	fputs("\\fR", f);
	for (const struct opt *o = v->opts; o && o->name; o++)
		man_synopsis_opt(f, o);
	if (*v->operands) {
		fputs(" \\fI", f);
		esc_str(f, v->operands);
		fputs("\\fR", f);
	}
	fputs("\n.PP\n", f);
	paragraphs(f, v->about);
	man_opts(f, v->opts);
	fputs(".PP\nExit status: ", f);
	for (const char *p = v->exits; *p; p++)
		fprintf(f, "%s%c", p == v->exits ? "" : ", ", *p);
	fputs(".\n", f);
}

static void upper(char *out, size_t size, const char *s)
{
	size_t i = 0;

	for (; s[i] && i + 1 < size; i++)
		out[i] = (char)toupper((unsigned char)s[i]);
	out[i] = '\0';
}

void help_man(FILE *f, const struct tool *tool)
{
	const struct verb *v;
	char name[32];

	upper(name, sizeof(name), tool->name);
	fputs(".\\\" SPDX-License-Identifier: GPL-2.0-only OR MIT\n", f);
	fprintf(f, ".\\\" made by \"%s help --man\" from the command table\n", tool->name);
	fprintf(f, ".TH %s 8 \"\" \"%s\"\n", name, tool->name);
	fprintf(f, ".SH NAME\n%s \\- ", tool->name);
	esc_str(f, tool->brief);
	fprintf(f, "\n.SH SYNOPSIS\n\\fB%s\\fR [\\fIGLOBAL\\fR] \\fIVERB\\fR [\\fIOPTIONS\\fR] "
		"\\fIOPERANDS\\fR\n.SH DESCRIPTION\n", tool->name);
	paragraphs(f, tool->about);
	fputs(".SH GLOBAL OPTIONS\n", f);
	man_opts(f, args_globals);
	man_common(f, tool);
	fputs(".SH VERBS\n", f);
	for (v = tool->verbs; v->name; v++)
		man_verb(f, tool, v);
	fputs(".SH EXIT STATUS\n", f);
	for (int i = 0; i < EXIT_CODES; i++) {
		fprintf(f, ".TP\n%d\n", i);
		esc_str(f, exit_text(i));
		fputs(".\n", f);
	}
	fputs(".SH EXAMPLES\n", f);
	for (v = tool->verbs; v->name; v++)
		man_pairs(f, tool, v->examples);
	if (tool->files) {
		fputs(".SH FILES\n", f);
		man_pairs(f, tool, tool->files);
	}
	if (tool->environment) {
		fputs(".SH ENVIRONMENT\n", f);
		man_pairs(f, tool, tool->environment);
	}
	if (tool->see_also)
		fprintf(f, ".SH SEE ALSO\n%s\n", tool->see_also);
}
