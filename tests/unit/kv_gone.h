/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What a database has dropped and not deleted. */
#ifndef TESTS_KV_GONE_H
#define TESTS_KV_GONE_H

#include "meta/mdc.h"
#include "db/db.h"

/* Objects that the container lists as gone, and that are there. */
static size_t gone_but_there(struct kvdb *db)
{
	const struct kv_mdc_state *st = &db->d_mdc->m_st;
	struct mpool_obj *obj;
	size_t n = 0;

	for (size_t i = 0; i < st->st_ngone; i++) {
		if (mpool_obj_open(db->d_mp, st->st_gone[i], &obj))
			continue;
		mpool_obj_close(obj);
		n++;
	}
	return n;
}

#endif
