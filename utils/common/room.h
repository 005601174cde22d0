/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Files of pools take their space when it is used: a pool may be larger than what there is. */
#ifndef UTILS_ROOM_H
#define UTILS_ROOM_H

#include "ui.h"

/* struct room - file systems and what files are to take of them */
struct room {
	struct {
		dev_t dev;
		const char *path; /* the first file there */
		uint64_t need, free;
	} fs[16];
	unsigned n;
};

/* A file at @path, which may not be there yet, is to have @size bytes. */
void room_add(struct room *r, const char *path, uint64_t size);
/* Says which file systems have less. */
void room_note(struct ui *ui, const struct room *r);

#endif
