/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The frame of a command: start-up, errors, results, end.
 *
 * A verb prints its result on stdout and everything else on stderr. It reports
 * an error with one ui_ call and returns that call's value as the exit code.
 * Format on stderr: "tool: verb object: reason (way out) [MPnnnn]", or with -j
 * one JSON object on one line.
 */
#ifndef UTILS_UI_H
#define UTILS_UI_H

#include <stdbool.h>

#include "args.h"
#include "exitcode.h"
#include "json.h"

struct mpool_error;

/* struct ui - the running command; one per process, one thread prints */
struct ui {
	const struct tool *tool;
	const struct verb *verb;
	const struct args *args;
	bool json;    /* -j */
	bool quiet;   /* -q: nothing on stdout but what was asked for */
	bool verbose; /* -v */
	bool tty_out, tty_err, tty_in;
	bool color;   /* stdout is a terminal and NO_COLOR is not set */
	struct json js; /* stdout document, see ui_doc_begin() */
};

/*
 * main() of every tool: umask 077, descriptors 0..2 made safe, parse, help,
 * version, run the verb, check that stdout was delivered. Returns the exit code.
 */
int ui_main(const struct tool *tool, int argc, char **argv);

/*
 * Report a failed library call. @e from mpool_error_detail() or
 * kvdb_error_detail() (may be NULL), @err the negative errno returned.
 * Returns exit_from_error().
 */
int ui_fail(struct ui *ui, const char *object, int err, const struct mpool_error *e);

/* Report an error of the tool itself; @cure and @object may be NULL. Returns @code. */
int ui_error(struct ui *ui, int code, const char *object, const char *cure, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/*
 * When @e says that a pool's name is not valid and that name was taken from
 * @path (@name is NULL), say so, and name --name as the way out.
 */
void ui_pool_name(struct mpool_error *e, const char *path, const char *name);

/* Report bad usage, with a pointer to the help of the verb. Returns EXIT_USAGE. */
int ui_usage(struct ui *ui, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A remark on stderr, not with -q and not with -j. */
void ui_note(struct ui *ui, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * SIGINT, SIGTERM and SIGHUP call @fn; the second SIGINT or SIGTERM kills. They end a wait
 * for input. A SIGHUP that is ignored stays so: nohup(1) began the command.
 */
void ui_on_stop(void (*fn)(int sig));

/*
 * Begin and end the JSON document of this verb on stdout:
 * {"output_version":{"command":"tool verb","major":..,"minor":..}, ... }
 * Members are added with json_*(&ui->js, key, value).
 */
void ui_doc_begin(struct ui *ui, unsigned major, unsigned minor);
void ui_doc_end(struct ui *ui);

/*
 * The same for JSON lines: writes the header line, then each item is an object
 * begun with json_obj(&ui->js, NULL) and ended with json_end().
 */
void ui_lines_begin(struct ui *ui, unsigned major, unsigned minor);

/* Print text that may come from media: control characters but \n and \t become '?'. */
void ui_print(FILE *f, const char *text);

/* Terminal styles; empty strings without colour. */
const char *ui_good(const struct ui *ui);
const char *ui_bad(const struct ui *ui);
const char *ui_bold(const struct ui *ui);
const char *ui_plain(const struct ui *ui);

#endif
