/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Help texts and man pages, made from the command tables.
 *
 * utils/man/TOOL.8 is the output of "TOOL help --man"; the command tests fail
 * when they differ. A tool offers the verbs "help" and "version" by putting
 * HELP_VERBS at the end of its table.
 */
#ifndef UTILS_HELP_H
#define UTILS_HELP_H

#include <stdio.h>

#include "ui.h"

void help_tool(FILE *f, const struct tool *tool);
void help_verb(FILE *f, const struct tool *tool, const struct verb *verb);
void help_man(FILE *f, const struct tool *tool);

/* The verbs completion, explain, help and version. */
extern const struct opt help_opts[];
int verb_explain(struct ui *ui);
int verb_help(struct ui *ui);
int verb_version(struct ui *ui);

/* completion.c */
int verb_completion(struct ui *ui);

#define HELP_VERBS \
	{ "completion", "bash|zsh", 1, 1, 0, "print the completion script of a shell", \
	  "Print a script that completes verbs, options, their values and operands. 'make " \
	  "install' installs both.", \
	  NULL, "012", "eval \"$({} completion bash)\"\tin this shell, without installation\n", \
	  verb_completion }, \
	{ "explain", "MPnnnn", 1, 1, 0, "explain an error identifier", \
	  "Print the name, the meaning and the cure of an identifier that ends an error message.", \
	  NULL, "0123", "{} explain MP0401\twhat a message ending in [MP0401] means\n", \
	  verb_explain }, \
	{ "help", "[VERB]", 0, 2, 0, "print help", \
	  "Print the list of verbs, or the help of one verb.", \
	  help_opts, "0123", "{} help create\thelp of one verb\n", verb_help }, \
	{ "version", "", 0, 0, 0, "print versions", \
	  "Print the version of the tool, of the library, of the kernel module when it is " \
	  "loaded, and the media format versions that can be read.", \
	  NULL, "012", "{} version -j\tversions for a script\n", verb_version }

#endif
