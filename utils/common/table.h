/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Rows of typed cells, printed as an aligned table, as tab-separated lines, or
 * as JSON objects: one list of cells for all three, so that they never differ.
 *
 * Rows are held until tbl_print(), for the widths.
 */
#ifndef UTILS_TABLE_H
#define UTILS_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ui.h"

enum col_type {
	COL_STR = 0,
	COL_SIZE,  /* bytes: IEC short, or exact with -p */
	COL_COUNT,
	COL_PCT,   /* whole percent */
	COL_TIME,  /* nanoseconds: short, or exact with -p */
	COL_BOOL,  /* yes / no */
	COL_VERSION, /* of a format: hexadecimal, or decimal with -p */
};

/* struct col - one column; a table of columns ends with .name == NULL */
struct col {
	const char *name;  /* lower case, as in -o and as the JSON member */
	uint8_t type;      /* enum col_type */
	bool is_default;   /* shown without -o */
	const char *help;
};

struct tbl;

#define TBL_OPTS \
	{ "no-header", 'H', OPT_FLAG, OPTF_COMMON, NULL, \
	  "print no header and separate columns by one tab", NULL, NULL }, \
	{ "exact", 'p', OPT_FLAG, OPTF_COMMON, NULL, \
	  "print exact numbers: bytes and nanoseconds", NULL, NULL }, \
	{ "output", 'o', OPT_STR, OPTF_COMMON, "COLS", \
	  "columns to print, separated by commas; 'help' lists them", NULL, NULL }

/*
 * Begin a table. Reads -H, -p and -o of the command line (put TBL_OPTS into the
 * verb's options). Returns NULL when the command is finished already: *code is
 * then its exit code (-o help, an unknown column).
 */
struct tbl *tbl_new(struct ui *ui, const struct col *cols, int *code);
void tbl_row(struct tbl *t);                                    /* begin a row */
void tbl_str(struct tbl *t, const char *col, const char *s);    /* copied; NULL = "-" / null */
void tbl_num(struct tbl *t, const char *col, uint64_t v);       /* all other types */
/*
 * Print and free. As JSON: members of the open document, array @key; every
 * column, whatever -o says, so that a schema can hold.
 */
void tbl_print(struct tbl *t, const char *key);
void tbl_free(struct tbl *t); /* without printing */
unsigned tbl_rows(const struct tbl *t);

#endif
