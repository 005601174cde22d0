/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The administrative commands of a pool, kept in the pool itself: a container
 * of one record per command, "TIME\tUID\tUSER\tVERSION\tCOMMAND", TIME in
 * seconds since 1970. When its log is full the newest NOTES_MAX are kept.
 *
 * It is a convenience: a verb whose note cannot be written has succeeded
 * nevertheless.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "members.h"
#include "table.h"

#define HISTORY   "mpool.history"
#define TAG       0x6d706f6f6c686973ull /* "mpoolhis" */
#define NOTES_MAX 1000u
#define NOTE_MAX  2048u
#define NOTE_COST 32u       /* bytes that a note takes beside its text, when packed */
#define LOG_MAX   (1u << 20) /* bytes of each log; a note of its own takes a block */
#define LOG_MIN   (64u << 10)
#define POOL_PART 128        /* each log takes at most this part of the capacity class */

struct history {
	char **line; /* oldest first, a ring of NOTES_MAX */
	uint64_t n;  /* ever read */
};

static void history_free(struct history *h)
{
	for (unsigned i = 0; h->line && i < NOTES_MAX; i++)
		free(h->line[i]);
	free(h->line);
}

static const char *history_line(const struct history *h, unsigned i)
{
	return h->line[(h->n > NOTES_MAX ? h->n - NOTES_MAX + i : i) % NOTES_MAX];
}

static unsigned history_count(const struct history *h)
{
	return h->n < NOTES_MAX ? (unsigned)h->n : NOTES_MAX;
}

static int history_read(struct mpool_mdc *mdc, struct history *h)
{
	char buf[NOTE_MAX + 1];
	uint64_t pos = 0;
	size_t len;
	int rc;

	memset(h, 0, sizeof(*h));
	h->line = calloc(NOTES_MAX, sizeof(*h->line));
	if (!h->line)
		return -ENOMEM;
	while (!(rc = mpool_mdc_read(mdc, &pos, buf, NOTE_MAX, &len))) {
		char **slot = &h->line[h->n++ % NOTES_MAX];

		buf[len] = '\0';
		free(*slot);
		*slot = strdup(buf);
		if (!*slot)
			return -ENOMEM;
	}
	return rc == -ENODATA ? 0 : rc;
}

static int append(struct mpool_mdc *mdc, const char *line, unsigned flags)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)line, .iov_len = strlen(line) };

	return mpool_mdc_append(mdc, &iov, 1, flags);
}

/* The oldest line to keep so that one more is a thousand and half the log stays free. */
static unsigned history_keep(const struct history *h, uint64_t capacity)
{
	unsigned n = history_count(h), i = n;
	uint64_t bytes = 0;

	while (i && n - i < NOTES_MAX - 1) {
		bytes += strlen(history_line(h, i - 1)) + NOTE_COST;
		if (bytes > capacity / 2)
			break;
		i--;
	}
	return i;
}

/* The log is full: the newest lines go to the other one. */
static int history_compact(struct mpool_mdc *mdc)
{
	uint64_t used, capacity;
	struct history h;
	unsigned i = 0;
	int rc = history_read(mdc, &h);

	if (!rc)
		rc = mpool_mdc_space(mdc, &used, &capacity);
	if (!rc) {
		i = history_keep(&h, capacity);
		rc = mpool_mdc_compact_begin(mdc);
	}
	for (; !rc && i < history_count(&h); i++)
		rc = append(mdc, history_line(&h, i), 0);
	if (!rc)
		rc = mpool_mdc_compact_end(mdc);
	history_free(&h);
	return rc;
}

static int history_open(struct mpool *mp, struct mpool_mdc **mdc)
{
	struct mpool_info info;
	uint64_t bytes;
	int rc = mpool_mdc_open(mp, HISTORY, mdc);

	if (rc != -ENOENT)
		return rc;
	mpool_info(mp, &info);
	bytes = info.cls[MPOOL_CAPACITY].total / POOL_PART / LOG_MIN * LOG_MIN;
	if (!bytes)
		return -ENOSPC;
	rc = mpool_mdc_create(mp, HISTORY, MPOOL_CAPACITY, bytes < LOG_MAX ? bytes : LOG_MAX, TAG);
	return rc ? rc : mpool_mdc_open(mp, HISTORY, mdc);
}

/* Appends what fits; returns the new end. */
static char *text_add(char *at, const char *end, const char *text)
{
	while (*text && at < end)
		*at++ = *text++;
	*at = '\0';
	return at;
}

/* A word as a shell takes it: in quotes when it has what a shell would look at. */
static char *word_add(char *at, const char *end, const char *word)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789%+,-./:=@_";
	const char *quote = *word && !word[strspn(word, plain)] ? "" : "'";
	char c[2] = "";

	at = text_add(at, end, quote);
	for (; *word; word++) {
		c[0] = (unsigned char)*word < 0x20 || *word == 0x7f ? '?' : *word;
		at = text_add(at, end, *word == '\'' ? "'\\''" : c);
	}
	return text_add(at, end, quote);
}

/* The command as it could be typed again. */
static void command_text(const struct ui *ui, char *buf, size_t size)
{
	const struct args *a = ui->args;
	const char *end = buf + size - 1;
	char *at = text_add(text_add(buf, end, ui->tool->name), end, " ");

	at = text_add(at, end, ui->verb->name);
	for (unsigned i = 0; i < a->ngiven; i++) {
		const struct arg *g = &a->given[i];

		at = text_add(text_add(at, end, " --"), end, g->opt->name);
		if (g->str)
			at = word_add(text_add(at, end, "="), end, g->str);
	}
	for (int i = 0; i < a->n; i++)
		at = word_add(text_add(at, end, " "), end, a->v[i]);
}

static int history_write(const struct ui *ui, const char *path)
{
	const struct passwd *pw = getpwuid(getuid());
	char command[NOTE_MAX - 256], line[NOTE_MAX];
	struct mpool_mdc *mdc;
	struct mpool *mp;
	int rc;

	command_text(ui, command, sizeof(command));
	snprintf(line, sizeof(line), "%" PRId64 "\t%u\t%.64s\t%s\t%s", (int64_t)time(NULL),
		 getuid(), pw ? pw->pw_name : "-", MP_VERSION, command);
	rc = mpool_open(path, NULL, &mp);
	if (rc)
		return rc;
	rc = history_open(mp, &mdc);
	if (!rc) {
		rc = append(mdc, line, MPOOL_SYNC);
		if (rc == -EFBIG) {
			rc = history_compact(mdc);
			if (!rc)
				rc = append(mdc, line, MPOOL_SYNC);
		}
		mpool_mdc_close(mdc);
	}
	mpool_close(mp);
	return rc;
}

void history_add(struct ui *ui, const char *path)
{
	int rc = history_write(ui, path);

	if (rc && ui->verbose)
		ui_note(ui, "the command is not in the pool's history: %s", strerror(-rc));
}

/* ---- mpool history ---- */

const struct opt history_opts[] = {
	TBL_OPTS,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static const struct col history_cols[] = {
	{ "time", COL_STR, true, "when, local time" },
	{ "uid", COL_COUNT, false, "who" },
	{ "user", COL_STR, true, "who, by name" },
	{ "version", COL_STR, false, "of the command" },
	{ "command", COL_STR, true, "what" },
	{ "time_s", COL_COUNT, false, "when, seconds since 1970" },
	{ NULL, 0, false, NULL },
};

static void history_row(struct tbl *t, const char *line)
{
	char text[NOTE_MAX + 1], when[64], *field[5] = { NULL }, *p = text;
	unsigned n = 0;
	struct tm tm;
	time_t s;

	snprintf(text, sizeof(text), "%s", line);
	while (n < 5 && p) {
		field[n++] = p;
		p = n < 5 ? strchr(p, '\t') : NULL;
		if (p)
			*p++ = '\0';
	}
	if (n < 5)
		return;
	s = (time_t)strtoll(field[0], NULL, 10);
	if (!localtime_r(&s, &tm) || !strftime(when, sizeof(when), "%F %T %z", &tm))
		snprintf(when, sizeof(when), "-");
	tbl_row(t);
	tbl_str(t, "time", when);
	tbl_num(t, "time_s", s > 0 ? (uint64_t)s : 0);
	tbl_num(t, "uid", strtoul(field[1], NULL, 10));
	tbl_str(t, "user", field[2]);
	tbl_str(t, "version", field[3]);
	tbl_str(t, "command", field[4]);
}

/* Rows of the pool's history; none is no error. */
static int history_rows(const char *path, struct tbl *t)
{
	struct history h = { NULL, 0 };
	struct mpool_mdc *mdc;
	struct mpool *mp;
	int rc = pool_open_rdonly(path, &mp);

	if (rc)
		return rc;
	rc = mpool_mdc_open(mp, HISTORY, &mdc);
	if (!rc) {
		rc = history_read(mdc, &h);
		for (unsigned i = 0; !rc && i < history_count(&h); i++)
			history_row(t, history_line(&h, i));
		history_free(&h);
		mpool_mdc_close(mdc);
	}
	mpool_close(mp);
	return rc == -ENOENT ? 0 : rc;
}

int verb_history(struct ui *ui)
{
	struct mpool_error e;
	struct target t;
	struct tbl *tbl;
	int code, rc;

	tbl = tbl_new(ui, history_cols, &code);
	if (!tbl)
		return code;
	code = target_open(ui, ui->args->v[0], &t);
	rc = code ? 0 : history_rows(t.path, tbl);
	e = *mpool_error_detail();
	target_close(&t);
	if (code || rc) {
		tbl_free(tbl);
		return code ? code : ui_fail(ui, t.word, rc, &e);
	}
	if (ui->json)
		ui_doc_begin(ui, 1, 0);
	tbl_print(tbl, "commands");
	if (ui->json)
		ui_doc_end(ui);
	return EXIT_DONE;
}
