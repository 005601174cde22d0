/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Progress on stderr. The rate is the average since the begin, which is what
 * the remaining time is derived from.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "progress.h"
#include "size.h"

enum { MODE_NONE, MODE_LINE, MODE_JSON };
enum { HOW_AUTO, HOW_JSON, HOW_NONE }; /* order of --progress in args_globals */

#define PERIOD_NS 200000000ull

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

void progress_begin(struct progress *p, struct ui *ui, const char *what, uint64_t total,
		    bool is_bytes)
{
	uint64_t how = args_num(ui->args, "progress", HOW_AUTO);

	memset(p, 0, sizeof(*p));
	p->ui = ui;
	p->what = what;
	p->total = total;
	p->is_bytes = is_bytes;
	p->begin_ns = now_ns();
	if (how == HOW_JSON)
		p->mode = MODE_JSON;
	else if (how == HOW_AUTO && ui->tty_err && !ui->quiet && !ui->json)
		p->mode = MODE_LINE;
}

static const char *amount(const struct progress *p, char *buf, uint64_t v)
{
	if (p->is_bytes)
		return size_str(buf, v);
	snprintf(buf, SIZE_STR, "%" PRIu64, v);
	return buf;
}

static void draw_json(const struct progress *p, uint64_t done, uint64_t elapsed_ns, double rate)
{
	struct json j;

	json_init(&j, stderr, true);
	json_obj(&j, NULL);
	json_str(&j, "progress", p->what);
	json_u64(&j, "done", done);
	json_u64(&j, "total", p->total);
	json_str(&j, "unit", p->is_bytes ? "bytes" : "count");
	json_u64(&j, "elapsed_ns", elapsed_ns);
	json_u64(&j, "rate_per_s", (uint64_t)rate);
	json_end(&j);
}

static void draw(struct progress *p, uint64_t done, uint64_t now)
{
	uint64_t elapsed = now - p->begin_ns;
	double rate = elapsed ? (double)done * 1e9 / (double)elapsed : 0;
	char d[SIZE_STR], t[SIZE_STR], r[SIZE_STR];

	if (p->mode == MODE_JSON) {
		draw_json(p, done, elapsed, rate);
		return;
	}
	fprintf(stderr, "\r\033[K%s ", p->what);
	if (p->total) {
		uint64_t left = p->total > done ? p->total - done : 0;

		fprintf(stderr, "%u%% %s/%s", (unsigned)((double)done * 100 / (double)p->total),
			amount(p, d, done), amount(p, t, p->total));
		if (rate >= 1)
			fprintf(stderr, " %s/s eta %.0fs", amount(p, r, (uint64_t)rate),
				(double)left / rate);
	} else {
		fprintf(stderr, "%s %s/s", amount(p, d, done), amount(p, r, (uint64_t)rate));
	}
	fflush(stderr);
	p->is_drawn = true;
}

void progress_update(struct progress *p, uint64_t done)
{
	uint64_t now;

	if (p->mode == MODE_NONE)
		return;
	now = now_ns();
	if (now - p->last_ns < PERIOD_NS)
		return;
	p->last_ns = now;
	draw(p, done, now);
}

void progress_end(struct progress *p, uint64_t done)
{
	if (p->mode == MODE_JSON)
		draw(p, done, now_ns());
	if (p->is_drawn)
		fputs("\r\033[K", stderr);
	p->mode = MODE_NONE;
}
