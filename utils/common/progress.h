/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Progress on stderr: a line rewritten in place on a terminal, JSON lines with
 * --progress=json, else nothing. Never on stdout.
 *
 * Not thread-safe: one thread reports, at any rate; output is limited to five
 * updates a second.
 */
#ifndef UTILS_PROGRESS_H
#define UTILS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "ui.h"

struct progress {
	struct ui *ui;
	const char *what;   /* "load", "verify" */
	uint64_t total;     /* 0 = unknown */
	bool is_bytes;      /* sizes are bytes, else counts */
	int mode;           /* private */
	bool is_drawn;      /* private */
	uint64_t begin_ns, last_ns;
};

void progress_begin(struct progress *p, struct ui *ui, const char *what, uint64_t total,
		    bool is_bytes);
void progress_update(struct progress *p, uint64_t done);
void progress_end(struct progress *p, uint64_t done); /* removes the line on a terminal */

#endif
