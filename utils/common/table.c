/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Tables: typed cells, three renderings.
 *
 * Text cells that come from media or from the user may hold control characters;
 * they are printed as '?', so that a pool's label cannot drive a terminal.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "size.h"
#include "table.h"
#include "utf8.h"

#define COLS_MAX 32

struct cell {
	char *str;
	uint64_t num;
	bool is_set;
};

struct tbl {
	struct ui *ui;
	const struct col *cols;
	unsigned ncols;
	unsigned show[COLS_MAX], nshow; /* columns to print, in order */
	struct cell *cells;             /* rows * ncols */
	unsigned rows, room;
};

static int col_find(const struct tbl *t, const char *name, size_t len)
{
	for (unsigned i = 0; i < t->ncols; i++)
		if (strlen(t->cols[i].name) == len && !strncasecmp(t->cols[i].name, name, len))
			return (int)i;
	return -1;
}

static void cols_help(struct ui *ui, const struct col *cols)
{
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_arr(&ui->js, "columns");
		for (; cols->name; cols++) {
			json_obj(&ui->js, NULL);
			json_str(&ui->js, "name", cols->name);
			json_bool(&ui->js, "is_default", cols->is_default);
			json_str(&ui->js, "help", cols->help);
			json_end(&ui->js);
		}
		json_end(&ui->js);
		ui_doc_end(ui);
		return;
	}
	for (; cols->name; cols++)
		printf("%-12s%s %s\n", cols->name, cols->is_default ? "*" : " ", cols->help);
	puts("* shown by default");
}

static int cols_select(struct tbl *t, const char *list)
{
	const char *p, *e;
	int c;

	for (p = list; ; p = e + 1) {
		e = p + strcspn(p, ",");
		c = col_find(t, p, (size_t)(e - p));
		if (c < 0)
			return ui_usage(t->ui, "unknown column '%.*s' (-o help lists them)",
					(int)(e - p), p);
		if (t->nshow == COLS_MAX)
			return ui_usage(t->ui, "too many columns");
		t->show[t->nshow++] = (unsigned)c;
		if (!*e)
			return 0;
	}
}

struct tbl *tbl_new(struct ui *ui, const struct col *cols, int *code)
{
	const char *list = args_str(ui->args, "output", NULL);
	struct tbl *t;

	*code = EXIT_DONE;
	if (list && !strcmp(list, "help")) {
		cols_help(ui, cols);
		return NULL;
	}
	t = calloc(1, sizeof(*t));
	if (!t) {
		*code = ui_error(ui, EXIT_FAILED, NULL, NULL, "out of memory");
		return NULL;
	}
	t->ui = ui;
	t->cols = cols;
	while (cols[t->ncols].name)
		t->ncols++;
	if (list) {
		*code = cols_select(t, list);
		if (*code) {
			free(t);
			return NULL;
		}
		return t;
	}
	for (unsigned i = 0; i < t->ncols && t->nshow < COLS_MAX; i++)
		if (cols[i].is_default)
			t->show[t->nshow++] = i;
	return t;
}

void tbl_row(struct tbl *t)
{
	if (t->rows == t->room) {
		unsigned room = t->room ? t->room * 2 : 16;
		struct cell *c = realloc(t->cells, (size_t)room * t->ncols * sizeof(*c));

		if (!c) {
			fprintf(stderr, "%s: out of memory\n", t->ui->tool->name);
			exit(EXIT_FAILED);
		}
		t->cells = c;
		t->room = room;
	}
	memset(&t->cells[(size_t)t->rows * t->ncols], 0, t->ncols * sizeof(*t->cells));
	t->rows++;
}

static struct cell *cell_of(struct tbl *t, const char *col)
{
	int c = col_find(t, col, strlen(col));

	if (c < 0 || !t->rows)
		abort();
	return &t->cells[(size_t)(t->rows - 1) * t->ncols + (unsigned)c];
}

void tbl_str(struct tbl *t, const char *col, const char *s)
{
	struct cell *c = cell_of(t, col);

	free(c->str);
	c->str = s ? strdup(s) : NULL;
	c->is_set = c->str != NULL;
}

void tbl_num(struct tbl *t, const char *col, uint64_t v)
{
	struct cell *c = cell_of(t, col);

	c->num = v;
	c->is_set = true;
}

unsigned tbl_rows(const struct tbl *t)
{
	return t->rows;
}

/* The text of a cell; numbers go through @buf (SIZE_STR bytes). */
static const char *cell_text(const struct col *col, const struct cell *c, bool exact, char *buf)
{
	if (!c->is_set)
		return "-";
	switch (col->type) {
	case COL_STR:
		utf8_clean(c->str);
		return *c->str ? c->str : "-";
	case COL_BOOL:
		return c->num ? "yes" : "no";
	case COL_SIZE:
		if (!exact)
			return size_str(buf, c->num);
		break;
	case COL_TIME:
		if (!exact)
			return time_str(buf, c->num);
		break;
	case COL_VERSION:
		if (exact)
			break;
		snprintf(buf, SIZE_STR, "0x%04" PRIx64, c->num);
		return buf;
	case COL_PCT:
		snprintf(buf, SIZE_STR, exact ? "%" PRIu64 : "%" PRIu64 "%%", c->num);
		return buf;
	default:
		break;
	}
	snprintf(buf, SIZE_STR, "%" PRIu64, c->num);
	return buf;
}

/* Columns that terminals and counting bytes agree about: UTF-8 heads only. */
static unsigned width_of(const char *s)
{
	unsigned n = 0;

	for (; *s; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

static void print_cell(const struct col *col, const char *s, unsigned width, bool is_last)
{
	unsigned n = width_of(s), pad = n < width ? width - n : 0;

	if (col->type != COL_STR && col->type != COL_BOOL)
		printf("%*s%s", (int)pad, "", s);
	else if (is_last)
		fputs(s, stdout);
	else
		printf("%s%*s", s, (int)pad, "");
	fputs(is_last ? "\n" : "  ", stdout);
}

static void print_header(const struct tbl *t, const unsigned *width)
{
	char name[64];

	fputs(ui_bold(t->ui), stdout);
	for (unsigned i = 0; i < t->nshow; i++) {
		const struct col *col = &t->cols[t->show[i]];
		size_t n = 0;

		for (; col->name[n] && n < sizeof(name) - 1; n++)
			name[n] = (char)(col->name[n] >= 'a' && col->name[n] <= 'z' ?
					 col->name[n] - 32 : col->name[n]);
		name[n] = '\0';
		print_cell(col, name, width[i], i + 1 == t->nshow);
	}
	fputs(ui_plain(t->ui), stdout);
}

static void print_text(struct tbl *t, bool bare, bool exact)
{
	unsigned width[COLS_MAX], i, r, n;
	char buf[SIZE_STR];

	for (i = 0; i < t->nshow; i++) {
		const struct col *col = &t->cols[t->show[i]];

		width[i] = (unsigned)strlen(col->name);
		for (r = 0; r < t->rows; r++) {
			n = width_of(cell_text(col, &t->cells[(size_t)r * t->ncols + t->show[i]],
					       exact, buf));
			if (n > width[i])
				width[i] = n;
		}
	}
	if (!bare && t->rows)
		print_header(t, width);
	for (r = 0; r < t->rows; r++)
		for (i = 0; i < t->nshow; i++) {
			const struct col *col = &t->cols[t->show[i]];
			const char *s = cell_text(col,
				&t->cells[(size_t)r * t->ncols + t->show[i]], exact, buf);

			if (bare)
				printf("%s%c", s, i + 1 == t->nshow ? '\n' : '\t');
			else
				print_cell(col, s, width[i], i + 1 == t->nshow);
		}
}

static void print_json(struct tbl *t, const char *key)
{
	struct json *j = &t->ui->js;

	json_arr(j, key);
	for (unsigned r = 0; r < t->rows; r++) {
		json_obj(j, NULL);
		for (unsigned i = 0; i < t->ncols; i++) {
			const struct cell *c = &t->cells[(size_t)r * t->ncols + i];
			const struct col *col = &t->cols[i];

			if (!c->is_set)
				json_null(j, col->name);
			else if (col->type == COL_STR)
				json_str(j, col->name, c->str);
			else if (col->type == COL_BOOL)
				json_bool(j, col->name, c->num != 0);
			else
				json_u64(j, col->name, c->num);
		}
		json_end(j);
	}
	json_end(j);
}

void tbl_print(struct tbl *t, const char *key)
{
	const struct args *a = t->ui->args;

	if (t->ui->json)
		print_json(t, key);
	else
		print_text(t, args_has(a, "no-header"), args_has(a, "exact"));
	tbl_free(t);
}

void tbl_free(struct tbl *t)
{
	for (size_t i = 0; i < (size_t)t->rows * t->ncols; i++)
		free(t->cells[i].str);
	free(t->cells);
	free(t);
}
