/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Completion scripts for bash and zsh, from the command tables.
 *
 * A script holds the words of each verb and what an option's value is; operands
 * are completed as paths, and for mpool also as names of active pools. Both
 * shells are given the same data.
 */
#include <stdio.h>
#include <string.h>

#include "help.h"

static void print_opts(FILE *f, const struct opt *o)
{
	for (; o && o->name; o++) {
		fprintf(f, " --%s", o->name);
		if (o->ch)
			fprintf(f, " -%c", o->ch);
	}
}

static void print_keys(FILE *f, const struct opt *o)
{
	for (; o && o->name; o++)
		if (o->key)
			fprintf(f, " %s=", o->key);
}

/* --name|-c) set the kind of the value ;; */
static void print_value(FILE *f, const struct opt *o)
{
	fprintf(f, "\t\t--%s", o->name);
	if (o->ch)
		fprintf(f, "|-%c", o->ch);
	fputs(") ", f);
	if (o->type == OPT_ENUM) {
		fputs("values='", f);
		for (const char *p = o->choices; *p; p++)
			fputc(*p == '|' ? ' ' : *p, f);
		fputs("' ;;\n", f);
	} else if (o->type == OPT_USER || o->type == OPT_GROUP) {
		fprintf(f, "values=$(getent %s 2>/dev/null | cut -d: -f1) ;;\n",
			o->type == OPT_USER ? "passwd" : "group");
	} else if (o->type == OPT_STR) {
		fputs("files=1 ;;\n", f);
	} else {
		fputs("values=' ' ;;\n", f);
	}
}

/* A function that knows all: sets words, values, files for $verb and $prev. */
static void print_table(FILE *f, const struct tool *tool)
{
	fprintf(f, "_%s_table() {\n\twords='' values='' files=''\n\tcase $1 in\n", tool->name);
	for (const struct verb *v = tool->verbs; v->name; v++) {
		fprintf(f, "\t'%s') words='", v->name);
		print_opts(f, v->opts);
		print_keys(f, v->opts);
		fputs("'\n\t\tcase $2 in\n", f);
		for (const struct opt *o = v->opts; o && o->name; o++)
			if (o->type != OPT_FLAG)
				print_value(f, o);
		fputs("\t\tesac ;;\n", f);
	}
	fputs("\tesac\n\twords=\"$words", f);
	print_opts(f, args_globals);
	fputs("\"\n\tcase $2 in\n", f);
	for (const struct opt *o = args_globals; o->name; o++)
		if (o->type != OPT_FLAG)
			print_value(f, o);
	fputs("\tesac\n}\n\n", f);
	fprintf(f, "_%s_verbs='", tool->name);
	for (const struct verb *v = tool->verbs; v->name; v++)
		fprintf(f, "%s%s", v == tool->verbs ? "" : "\n", v->name);
	fputs("'\n\n", f);
}

/* The verb on the command line: the longest of one or two words that is known. */
static const char finder[] =
	"_@_find() {\n"
	"\tlocal w two=''\n"
	"\tverb='' one=''\n"
	"\tfor w; do\n"
	"\t\tcase $w in -*) continue ;; esac\n"
	"\t\tif [ -z \"$one\" ]; then one=$w; else two=\"$one $w\"; break; fi\n"
	"\tdone\n"
	"\tfor w in \"$two\" \"$one\"; do\n"
	"\t\tif [ -n \"$w\" ] && printf '%s\\n' \"$_@_verbs\" | grep -qxF -- \"$w\"; then\n"
	"\t\t\tverb=$w\n\t\t\treturn\n\t\tfi\n"
	"\tdone\n"
	"}\n\n"
	"# the words that a verb may go on with\n"
	"_@_next() {\n"
	"\tprintf '%s\\n' \"$_@_verbs\" | awk -v one=\"$one\" '\n"
	"\t\tone == \"\" { print $1 }\n"
	"\t\tone != \"\" && $1 == one && NF > 1 { print $2 }' | sort -u\n"
	"}\n\n"
	"_@_names() {\n"
	"\tls /dev/mpool 2>/dev/null\n"
	"}\n\n";

static const char bash_end[] =
	"_@() {\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	"\tlocal verb one words values files\n"
	"\tlocal -a given=(\"${COMP_WORDS[@]:1:COMP_CWORD-1}\")\n"
	"\t_@_find \"${given[@]}\"\n"
	"\t_@_table \"$verb\" \"$prev\"\n"
	"\tCOMPREPLY=()\n"
	"\tif [ -n \"$values\" ]; then\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$cur\")\n"
	"\telif [ -n \"$files\" ]; then\n"
	"\t\tcompopt -o filenames 2>/dev/null\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
	"\telif [ \"${cur#-}\" != \"$cur\" ]; then\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
	"\telif [ -z \"$verb\" ]; then\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -W \"$(_@_next)\" -- \"$cur\")\n"
	"\telse\n"
	"\t\tcompopt -o filenames 2>/dev/null\n"
	"\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$cur\";\n"
	"\t\t\tcompgen -W \"$words $(_@_names)\" -- \"$cur\" | grep -v '^-')\n"
	"\tfi\n"
	"}\n"
	"complete -F _@ @\n";

static const char zsh_end[] =
	"_@() {\n"
	"\tlocal cur=${words[CURRENT]} prev=${words[CURRENT-1]} verb one values files\n"
	"\tlocal -a given=(\"${(@)words[2,CURRENT-1]}\")\n"
	"\tlocal words\n"
	"\t_@_find \"${given[@]}\"\n"
	"\t_@_table \"$verb\" \"$prev\"\n"
	"\tif [[ -n $values ]]; then\n"
	"\t\tcompadd -- ${=values}\n"
	"\telif [[ -n $files ]]; then\n"
	"\t\t_files\n"
	"\telif [[ $cur = -* ]]; then\n"
	"\t\tcompadd -- ${(M)${=words}:#-*}\n"
	"\telif [[ -z $verb ]]; then\n"
	"\t\tcompadd -- ${(f)\"$(_@_next)\"}\n"
	"\telse\n"
	"\t\t_files\n"
	"\t\tcompadd -S '' -- ${${=words}:#-*}\n"
	"\t\tcompadd -- $(_@_names)\n"
	"\tfi\n"
	"}\n"
	"_@ \"$@\"\n";

/* @text with '@' standing for the tool's name, but "$@" and "[@]" kept. */
static void print_named(FILE *f, const char *text, const char *name)
{
	for (const char *p = text; *p; p++)
		if (*p == '@' && p > text && p[-1] != '$' && p[-1] != '[' && p[-1] != '(')
			fputs(name, f);
		else
			fputc(*p, f);
}

int verb_completion(struct ui *ui)
{
	const char *shell = ui->args->v[0], *name = ui->tool->name;
	bool is_zsh = !strcmp(shell, "zsh");

	if (!is_zsh && strcmp(shell, "bash"))
		return ui_usage(ui, "'%s' is not supported, wanted bash or zsh", shell);
	if (is_zsh)
		printf("#compdef %s\n", name);
	printf("# shellcheck shell=bash disable=SC2034\n"
	       "# SPDX-License-Identifier: GPL-2.0-only OR MIT\n"
	       "# made by \"%s completion %s\" from the command table\n\n", name, shell);
	print_table(stdout, ui->tool);
	print_named(stdout, finder, name);
	print_named(stdout, is_zsh ? zsh_end : bash_end, name);
	return EXIT_DONE;
}
