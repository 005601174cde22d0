/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Start, errors and end of a command.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mpool/mpool.h>

#include "help.h"
#include "ui.h"
#include "utf8.h"

#define ERROR_MAJOR 1
#define ERROR_MINOR 0

/*
 * A process may be started with descriptors 0..2 closed. The next open would
 * then become "stdout", and a message would be written into a pool. Fill the
 * holes with /dev/null, opened the wrong way round, so that use still fails.
 */
static void fds_fill(void)
{
	static const int mode[] = { O_WRONLY, O_RDONLY, O_WRONLY };

	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", mode[fd]) != fd)
			_exit(EXIT_FAILED);
}

/* Output that was not delivered is a failure, whatever the verb did. */
static int ui_finish(struct ui *ui, int code)
{
	int err = fflush(stdout) ? errno : 0;

	/* not fclose(): the message below flushes what stands before it */
	if (!err && !ferror(stdout) && close(STDOUT_FILENO))
		err = errno;
	if (!err && !ferror(stdout))
		return code;
	/* why an earlier write failed is not known any more */
	ui_error(ui, EXIT_FAILED, NULL, NULL, "cannot write to standard output%s%s",
		 err ? ": " : "", err ? strerror(err) : "");
	return code ? code : EXIT_FAILED;
}

static void ui_init(struct ui *ui, const struct tool *tool, const struct args *a)
{
	memset(ui, 0, sizeof(*ui));
	ui->tool = tool;
	ui->args = a;
	ui->tty_in = isatty(STDIN_FILENO);
	ui->tty_out = isatty(STDOUT_FILENO);
	ui->tty_err = isatty(STDERR_FILENO);
}

static void ui_options(struct ui *ui, const struct args *a)
{
	const char *no_color = secure_getenv("NO_COLOR");

	ui->verb = a->verb;
	ui->json = args_has(a, "json");
	ui->quiet = args_has(a, "quiet");
	ui->verbose = args_has(a, "verbose");
	ui->color = ui->tty_out && !ui->json && !(no_color && *no_color);
}

static int ui_run(struct ui *ui, int argc, char **argv, struct args *a)
{
	int rc = args_parse(ui->tool, argc, argv, a);

	ui_options(ui, a);
	if (rc) {
		/* the -j that decides the form of the message may stand behind the error */
		for (int i = 1; i < argc; i++)
			if (!strcmp(argv[i], "-j") || !strcmp(argv[i], "--json"))
				ui->json = true;
		if (argc > 1 || ui->json)
			return ui_usage(ui, "%s", a->error);
		help_tool(stderr, ui->tool);
		return EXIT_USAGE;
	}
	if (a->want_version)
		return verb_version(ui);
	if (a->want_help) {
		if (a->verb)
			help_verb(stdout, ui->tool, a->verb);
		else
			help_tool(stdout, ui->tool);
		return EXIT_DONE;
	}
	return a->verb->run(ui);
}

int ui_main(const struct tool *tool, int argc, char **argv)
{
	static struct args a;
	static struct ui ui;

	fds_fill();
	umask(077);
	/* a file size limit is then an error of the write, with a message */
	signal(SIGXFSZ, SIG_IGN);
	ui_init(&ui, tool, &a);
	return ui_finish(&ui, ui_run(&ui, argc, argv, &a));
}

/* What a terminal may be sent of @text, and the control characters of @keep; else '?'. */
static void print_shown(FILE *f, const char *text, const char *keep)
{
	size_t left = strlen(text), n;

	for (; left; text += n, left -= n) {
		n = utf8_shown(text, left);
		if (n)
			fwrite(text, 1, n, f);
		else
			fputc(strchr(keep, *text) ? *text : '?', f);
		n = n ? n : 1;
	}
}

void ui_print(FILE *f, const char *text)
{
	print_shown(f, text, "\n\t");
}

/* One line of a message, whatever the text holds. */
static void print_clean(FILE *f, const char *text)
{
	print_shown(f, text, "");
}

struct report {
	int code;
	int err; /* negative errno or 0 */
	const char *object, *reason, *cure, *id;
};

static void report_json(const struct ui *ui, const struct report *r)
{
	struct json j;
	char command[80];

	snprintf(command, sizeof(command), "%s%s%s", ui->tool->name, ui->verb ? " " : "",
		 ui->verb ? ui->verb->name : "");
	json_init(&j, stderr, true);
	json_obj(&j, NULL);
	json_obj(&j, "output_version");
	json_str(&j, "command", command);
	json_u64(&j, "major", ERROR_MAJOR);
	json_u64(&j, "minor", ERROR_MINOR);
	json_end(&j);
	json_obj(&j, "error");
	json_str(&j, "object", r->object);
	json_str(&j, "reason", r->reason);
	json_str(&j, "cure", r->cure && *r->cure ? r->cure : NULL);
	json_str(&j, "id", r->id && *r->id ? r->id : NULL);
	json_str(&j, "errno", r->err ? strerrorname_np(-r->err) : NULL);
	json_u64(&j, "exit_code", (uint64_t)r->code);
	json_end(&j);
	json_end(&j);
}

static void report(const struct ui *ui, const struct report *r)
{
	fflush(stdout);
	if (ui->json) {
		report_json(ui, r);
		return;
	}
	fprintf(stderr, "%s: ", ui->tool->name);
	if (ui->verb)
		fprintf(stderr, "%s%s", ui->verb->name, r->object ? " " : ": ");
	if (r->object) {
		print_clean(stderr, r->object);
		fputs(": ", stderr);
	}
	print_clean(stderr, r->reason);
	/* a library text that names the way out itself is not repeated */
	if (r->cure && *r->cure && !strstr(r->reason, r->cure)) {
		fputs(" (", stderr);
		print_clean(stderr, r->cure);
		fputc(')', stderr);
	}
	if (r->id && *r->id)
		fprintf(stderr, " [%s]", r->id);
	fputc('\n', stderr);
}

/* A text that begins with "OBJECT: " or "pool OBJECT: " does not name it twice. */
static const char *skip_object(const char *text, const char *object)
{
	const char *p = !strncmp(text, "pool ", 5) ? text + 5 : text;
	size_t n = object ? strlen(object) : 0;

	if (n && !strncmp(p, object, n) && !strncmp(p + n, ": ", 2))
		return p + n + 2;
	return text;
}

int ui_fail(struct ui *ui, const char *object, int err, const struct mpool_error *e)
{
	struct report r = { .err = err, .object = object };

	if (e && e->id[0]) {
		r.id = e->id;
		r.reason = skip_object(e->text, object);
		r.cure = e->cure;
	} else {
		r.reason = strerror(-err);
	}
	r.code = exit_from_error(err, r.id);
	report(ui, &r);
	return r.code;
}

int ui_error(struct ui *ui, int code, const char *object, const char *cure, const char *fmt, ...)
{
	struct report r = { .code = code, .object = object, .cure = cure };
	char reason[800];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	r.reason = reason;
	report(ui, &r);
	return code;
}

void ui_pool_name(struct mpool_error *e, const char *path, const char *name)
{
	size_t end = strlen(path), at;

	if (name || !strchr(path, '/') || strcmp(e->id, "MP0123"))
		return;
	while (end > 1 && path[end - 1] == '/')
		end--;
	for (at = end; at && path[at - 1] != '/'; at--)
		;
	snprintf(e->text, sizeof(e->text), "the name taken from the path, '%.*s', is not valid for "
		 "a pool", (int)(end - at > 64 ? 64 : end - at), path + at);
	snprintf(e->cure, sizeof(e->cure), "give another with --name: 1 to 31 characters of A-Z "
		 "a-z 0-9 . _ - that do not begin with . or -");
}

int ui_usage(struct ui *ui, const char *fmt, ...)
{
	struct report r = { .code = EXIT_USAGE };
	char reason[512], cure[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	snprintf(cure, sizeof(cure), "see: %s help%s%s", ui->tool->name, ui->verb ? " " : "",
		 ui->verb ? ui->verb->name : "");
	r.reason = reason;
	r.cure = cure;
	report(ui, &r);
	return EXIT_USAGE;
}

void ui_note(struct ui *ui, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (ui->quiet || ui->json)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fflush(stdout);
	fprintf(stderr, "%s: ", ui->tool->name);
	print_clean(stderr, text);
	fputc('\n', stderr);
}

void ui_on_stop(void (*fn)(int sig))
{
	struct sigaction sa = { .sa_handler = fn, .sa_flags = (int)SA_RESETHAND }, was;

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	/* kernel and shell both signal a terminal that has gone: a second one is no impatience */
	sa.sa_flags = 0;
	if (!sigaction(SIGHUP, NULL, &was) && was.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &sa, NULL);
}

static void output_version(struct ui *ui, unsigned major, unsigned minor)
{
	char command[80];

	snprintf(command, sizeof(command), "%s %s", ui->tool->name,
		 ui->verb ? ui->verb->name : "version");
	json_obj(&ui->js, "output_version");
	json_str(&ui->js, "command", command);
	json_u64(&ui->js, "major", major);
	json_u64(&ui->js, "minor", minor);
	json_end(&ui->js);
}

void ui_doc_begin(struct ui *ui, unsigned major, unsigned minor)
{
	json_init(&ui->js, stdout, false);
	json_obj(&ui->js, NULL);
	output_version(ui, major, minor);
}

void ui_doc_end(struct ui *ui)
{
	json_end(&ui->js);
}

void ui_lines_begin(struct ui *ui, unsigned major, unsigned minor)
{
	json_init(&ui->js, stdout, true);
	json_obj(&ui->js, NULL);
	output_version(ui, major, minor);
	json_end(&ui->js);
}

const char *ui_good(const struct ui *ui)
{
	return ui->color ? "\033[32m" : "";
}

const char *ui_bad(const struct ui *ui)
{
	return ui->color ? "\033[31m" : "";
}

const char *ui_bold(const struct ui *ui)
{
	return ui->color ? "\033[1m" : "";
}

const char *ui_plain(const struct ui *ui)
{
	return ui->color ? "\033[0m" : "";
}
