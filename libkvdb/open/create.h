/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Making what an open does not find. */
#ifndef KV_CREATE_H
#define KV_CREATE_H

#include <stdbool.h>

struct kvdb_opts;

/* What one open has tried to make; all 0 as it begins. */
struct kv_making {
	int tries;
	bool has_seen_pool, has_seen_db;	/* each was there when it was to be made */
	bool has_made;				/* the database */
};

/*
 * After an open failed with @err, whose detail is this thread's: with KVDB_CREATE pool or database
 * is made if that is what is missing. True: the open is to be tried again. False: it ends with *err.
 */
bool kv_open_should_make(const char *pool, const struct kvdb_opts *o, int *err,
			 struct kv_making *m);

#endif
