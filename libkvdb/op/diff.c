/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What changed in a store between two checkpoints: both are walked by key; a
 * key differs when it has another stamp (C7), or is there only once. Values are
 * read of what differs only. What expired since the earlier one was deleted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/key.h"
#include "db/db.h"
#include "op/cursor.h"

struct side {
	struct kvdb_cursor *sd_cur;
	const void *sd_key;
	size_t sd_klen, sd_vlen;
	bool sd_end;
};

static int side_next(struct side *s)
{
	int err = kvdb_cursor_next(s->sd_cur, &s->sd_key, &s->sd_klen, NULL, &s->sd_vlen);

	s->sd_end = err == -ENOENT;
	return s->sd_end ? 0 : err;
}

static int order(const struct side *a, const struct side *b)
{
	if (a->sd_end || b->sd_end)
		return a->sd_end - b->sd_end;
	return kv_kcmp(a->sd_key, a->sd_klen, b->sd_key, b->sd_klen);
}

/* Reads the value at the later checkpoint. */
static int put_out(struct kvdb_kvs *kvs, const struct side *s, uint8_t **buf, size_t *size,
		   kvdb_diff_fn *fn, void *arg)
{
	size_t vlen = 0;
	int err;

	if (s->sd_vlen >= *size) {
		uint8_t *p = realloc(*buf, s->sd_vlen + 1);

		if (!p)
			return kv_error(-ENOMEM, "MP0902", "no memory for a value");
		*buf = p;
		*size = s->sd_vlen + 1;
	}
	err = kvdb_get(kvs, s->sd_key, s->sd_klen, *buf, *size, &vlen);
	/* it expired after the cursor's birth */
	if (err == -ENOENT && atomic_load(&kvs->k_db->d_time.et_used))
		return fn(arg, s->sd_key, s->sd_klen, NULL, 0);
	if (err == -ENOENT || (!err && vlen != s->sd_vlen))
		err = kv_error(-EUCLEAN, "MP0960", "%s: a key of the checkpoint changed",
			       kvs->k_name);
	return err ? err : fn(arg, s->sd_key, s->sd_klen, *buf, vlen);
}

static int walk(struct side *a, struct side *b, struct kvdb_kvs *to, kvdb_diff_fn *fn, void *arg)
{
	uint8_t *buf = NULL;
	size_t size = 0;
	int err = side_next(a), c;

	if (!err)
		err = side_next(b);
	while (!err && !(a->sd_end && b->sd_end)) {
		c = order(a, b);
		if (c < 0)
			err = fn(arg, a->sd_key, a->sd_klen, NULL, 0);
		else if (c > 0 || kv_cursor_ent_seq(a->sd_cur) != kv_cursor_ent_seq(b->sd_cur))
			err = put_out(to, b, &buf, &size, fn, arg);
		if (!err && c <= 0)
			err = side_next(a);
		if (!err && c >= 0)
			err = side_next(b);
	}
	free(buf);
	return err;
}

int kvdb_diff(struct kvdb_kvs *from, struct kvdb_kvs *to, kvdb_diff_fn *fn, void *arg)
{
	struct side a = { 0 }, b = { 0 };
	int err;

	if (!from || !to || !fn || !from->k_db->d_mode.md_at_ckpt || !to->k_db->d_mode.md_at_ckpt ||
	    memcmp(from->k_db->d_ident.id_uuid, to->k_db->d_ident.id_uuid,
		   sizeof(to->k_db->d_ident.id_uuid)) ||
	    from->k_id != to->k_id)
		return kv_error(-EINVAL, "MP0951",
				"a difference is that of one store at two checkpoints");
	err = kvdb_cursor_open(from, KVDB_KEYS_ONLY, NULL, 0, &a.sd_cur);
	if (!err)
		err = kvdb_cursor_open(to, KVDB_KEYS_ONLY, NULL, 0, &b.sd_cur);
	if (!err) {
		kv_cursor_show_expired(a.sd_cur);
		err = walk(&a, &b, to, fn, arg);
	}
	kvdb_cursor_close(a.sd_cur);
	kvdb_cursor_close(b.sd_cur);
	return err;
}
