/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Help texts from the command tables, and the verbs that need nothing else.
 */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mpool/mpool.h>

#include "help.h"

#define WIDTH 79

const struct opt help_opts[] = {
	{ "man", 0, OPT_FLAG, 0, NULL, "print the manual page (roff)", NULL, NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

/*
 * Print @text filled to WIDTH with @indent blanks before each line; @col is
 * where the cursor stands. An empty line separates paragraphs.
 */
static void fill(FILE *f, const char *text, int indent, int col)
{
	const char *p = text;

	while (*p) {
		int len = (int)strcspn(p, " \n");

		if (col > indent && col + 1 + len > WIDTH) {
			fputc('\n', f);
			col = 0;
		}
		if (col < indent) {
			fprintf(f, "%*s", indent - col, "");
			col = indent;
		} else if (col > indent) {
			fputc(' ', f);
			col++;
		}
		fprintf(f, "%.*s", len, p);
		col += len;
		p += len;
		if (p[0] == '\n' && p[1] == '\n') {
			fputs("\n\n", f);
			col = 0;
		}
		while (*p == ' ' || *p == '\n')
			p++;
	}
	fputc('\n', f);
}

static void help_opt(FILE *f, const struct opt *o)
{
	char left[80];
	int n;

	if (o->ch)
		n = snprintf(left, sizeof(left), "  -%c, --%s", o->ch, o->name);
	else
		n = snprintf(left, sizeof(left), "      --%s", o->name);
	if (o->arg)
		n += snprintf(left + n, sizeof(left) - (size_t)n, " %s", o->arg);
	fputs(left, f);
	if (n > 26) {
		fputc('\n', f);
		n = 0;
	}
	if (o->key) {
		char text[512];

		snprintf(text, sizeof(text), "%s (also %s=%s)", o->help, o->key, o->arg);
		fill(f, text, 28, n);
	} else {
		fill(f, o->help, 28, n);
	}
}

/* Print lines "left\tright\n" with "{}" in left replaced by the tool's name. */
static void pairs(FILE *f, const struct tool *tool, const char *lines)
{
	while (lines && *lines) {
		const char *tab = strchr(lines, '\t'), *end = strchr(lines, '\n');

		fputs("  ", f);
		for (const char *p = lines; p < tab; p++)
			if (p[0] == '{' && p[1] == '}') {
				fputs(tool->name, f);
				p++;
			} else {
				fputc(*p, f);
			}
		fprintf(f, "\n      %.*s\n", (int)(end - tab - 1), tab + 1);
		lines = end + 1;
	}
}

void help_tool(FILE *f, const struct tool *tool)
{
	fprintf(f, "Usage: %s [GLOBAL] VERB [OPTIONS] OPERANDS\n\n", tool->name);
	fill(f, tool->about, 0, 0);
	fputs("\nVerbs:\n", f);
	for (const struct verb *v = tool->verbs; v->name; v++)
		fprintf(f, "  %-18s %s\n", v->name, v->brief);
	fputs("\nGlobal options:\n", f);
	for (const struct opt *o = args_globals; o->name; o++)
		help_opt(f, o);
	fputs("\nExit status:\n", f);
	for (int i = 0; i < EXIT_CODES; i++)
		fprintf(f, "  %d  %s\n", i, exit_text(i));
	fprintf(f, "\n'%s help VERB' tells more.\n", tool->name);
}

void help_verb(FILE *f, const struct tool *tool, const struct verb *verb)
{
	fprintf(f, "Usage: %s %s%s%s%s\n\n", tool->name, verb->name,
		verb->opts ? " [OPTIONS]" : "", *verb->operands ? " " : "", verb->operands);
	fill(f, verb->about, 0, 0);
	if (verb->opts) {
		fputs("\nOptions:\n", f);
		for (const struct opt *o = verb->opts; o->name; o++)
			help_opt(f, o);
	}
	fputs("\nGlobal options:\n", f);
	for (const struct opt *o = args_globals; o->name; o++)
		help_opt(f, o);
	if (verb->examples) {
		fputs("\nExamples:\n", f);
		pairs(f, tool, verb->examples);
	}
	fputs("\nExit status:\n", f);
	for (const char *p = verb->exits; *p; p++)
		fprintf(f, "  %c  %s\n", *p, exit_text(*p - '0'));
}

static void opts_json(struct json *j, const char *key, const struct opt *o)
{
	json_arr(j, key);
	for (; o && o->name; o++) {
		char ch[2] = { o->ch, 0 };

		json_obj(j, NULL);
		json_str(j, "name", o->name);
		json_str(j, "short", o->ch ? ch : NULL);
		json_str(j, "value", o->arg);
		json_str(j, "key", o->key);
		json_str(j, "help", o->help);
		json_end(j);
	}
	json_end(j);
}

static void help_json(struct ui *ui, const struct verb *only)
{
	struct json *j = &ui->js;

	ui_doc_begin(ui, 1, 0);
	opts_json(j, "global_options", args_globals);
	json_arr(j, "verbs");
	for (const struct verb *v = ui->tool->verbs; v->name; v++) {
		if (only && v != only)
			continue;
		json_obj(j, NULL);
		json_str(j, "name", v->name);
		json_str(j, "operands", v->operands);
		json_str(j, "brief", v->brief);
		json_arr(j, "exit_codes");
		for (const char *p = v->exits; *p; p++)
			json_u64(j, NULL, (uint64_t)(*p - '0'));
		json_end(j);
		opts_json(j, "options", v->opts);
		json_end(j);
	}
	json_end(j);
	ui_doc_end(ui);
}

int verb_help(struct ui *ui)
{
	const struct args *a = ui->args;
	const struct verb *v = NULL;
	const char *near;
	char name[80], group[160];
	int len;

	if (args_has(a, "man")) {
		help_man(stdout, ui->tool);
		return EXIT_DONE;
	}
	if (a->n) {
		snprintf(name, sizeof(name), "%s%s%s", a->v[0], a->n > 1 ? " " : "",
			 a->n > 1 ? a->v[1] : "");
		v = args_verb(ui->tool, name);
		if (!v && args_group(ui->tool, a->v[0], group, sizeof(group)))
			return ui_error(ui, EXIT_NOTFOUND, name, NULL, "wanted %s", group);
		len = v ? 0 : args_near(ui->tool, name, &near);
		if (len)
			return ui_error(ui, EXIT_NOTFOUND, name, NULL,
					"no such verb, did you mean '%.*s'?", len, near);
		if (!v)
			return ui_error(ui, EXIT_NOTFOUND, name, NULL, "no such verb");
	}
	if (ui->json)
		help_json(ui, v);
	else if (v)
		help_verb(stdout, ui->tool, v);
	else
		help_tool(stdout, ui->tool);
	return EXIT_DONE;
}

#define ID_MAX 12

/* "mp0401", "401" and "MP0401" are the same identifier. */
static void id_normal(char id[ID_MAX], const char *word)
{
	if (toupper((unsigned char)word[0]) == 'M' && toupper((unsigned char)word[1]) == 'P')
		word += 2;
	snprintf(id, ID_MAX, "MP%.*s%.5s", strlen(word) < 4 ? 4 - (int)strlen(word) : 0, "000",
		 word);
}

int verb_explain(struct ui *ui)
{
	const char *name, *text, *cure, *word = ui->args->v[0];
	char id[ID_MAX];

	id_normal(id, word);
	if (strlen(word) > 6 || ui->tool->explain(id, &name, &text, &cure))
		return ui_error(ui, EXIT_NOTFOUND, word, NULL, "no such error identifier");
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "id", id);
		json_str(&ui->js, "name", name);
		json_str(&ui->js, "meaning", text);
		json_str(&ui->js, "cure", cure && *cure ? cure : NULL);
		ui_doc_end(ui);
		return EXIT_DONE;
	}
	printf("%s %s\n", id, name);
	printf("  meaning: ");
	fill(stdout, text, 11, 11);
	if (cure && *cure) {
		printf("  cure:    ");
		fill(stdout, cure, 11, 11);
	}
	return EXIT_DONE;
}

/* Version of the loaded module; false when none is loaded. */
static bool module_version(char *buf, size_t size)
{
	int fd = open("/sys/module/mpool/version", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0) {
		snprintf(buf, size, "unknown");
		return access("/sys/module/mpool", F_OK) == 0;
	}
	n = read(fd, buf, size - 1);
	close(fd);
	buf[n > 0 ? n : 0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	return true;
}

int verb_version(struct ui *ui)
{
	const struct tool *t = ui->tool;
	const char *lib = t->lib_version();
	char module[64];
	bool is_loaded = module_version(module, sizeof(module));

	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "tool", MP_VERSION);
		json_str(&ui->js, "library", lib);
		json_str(&ui->js, "module", is_loaded ? module : NULL);
		json_u64(&ui->js, "format_min", t->format_min);
		json_u64(&ui->js, "format_max", t->format_max);
		ui_doc_end(ui);
		return EXIT_DONE;
	}
	printf("%s %s\n", t->name, MP_VERSION);
	printf("library  %s%s\n", lib, strcmp(lib, MP_VERSION) ? " (differs)" : "");
	printf("module   %s%s\n", is_loaded ? module : "not loaded",
	       is_loaded && strcmp(module, MP_VERSION) ? " (differs)" : "");
	if (t->format_min == t->format_max)
		printf("format   0x%04x\n", t->format_min);
	else
		printf("format   0x%04x to 0x%04x\n", t->format_min, t->format_max);
	return EXIT_DONE;
}
