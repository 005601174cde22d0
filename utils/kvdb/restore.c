/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verbs restore and copy: content that is there in order of keys, in backup
 * files (backup.h) or at a checkpoint, goes into new stores by bulk load.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backup.h"
#include "size.h"

#define FILES_MAX 4096u

const struct opt restore_opts[] = {
	{ "to", 0, OPT_UINT, 0, "NUMBER", "as of the backup with this number (default: the newest)",
	  "to", NULL },
	DB_OPTS,
	{ .name = NULL },
};

const struct opt copy_opts[] = {
	{ "checkpoint", 0, OPT_STR, 0, "NAME",
	  "copy this checkpoint, instead of one made for it; the database may be open elsewhere "
	  "then", "checkpoint", NULL },
	DB_OPTS,
	{ .name = NULL },
};

/* ---- reading a file ---------------------------------------------------------------------- */

static int bad(struct bk_in *in, const char *why)
{
	snprintf(in->why, sizeof(in->why), "%s", why);
	return -EUCLEAN;
}

/* All of it, or what the file's end or error says. */
static int read_exact(struct bk_in *in, void *p, size_t len)
{
	errno = 0;
	if (fread(p, 1, len, in->f) == len)
		return 0;
	return ferror(in->f) ? (errno ? -errno : -EIO) : bad(in, "it is cut");
}

static int block_read(struct bk_in *in)
{
	uint8_t h[8], *p;
	int rc = read_exact(in, h, sizeof(h));

	if (rc)
		return rc;
	in->len = (uint32_t)bk_get(h, 4);
	in->at = 0;
	if (!in->len || in->len > BK_BLOCK_MAX)
		return bad(in, "length of a block");
	if (in->len > in->room) {
		p = realloc(in->buf, in->len);
		if (!p)
			return -ENOMEM;
		in->buf = p;
		in->room = in->len;
	}
	rc = read_exact(in, in->buf, in->len);
	if (rc)
		return rc;
	in->crc = mpool_crc32c(in->crc, in->buf, in->len);
	return in->crc == bk_get(h + 4, 4) ? 0 : bad(in, "CRC of a block");
}

static int rec_check(struct bk_in *in, const struct bk_rec *r)
{
	bool is_name = r->type == BK_STORE || r->type == BK_GONE;

	if (r->type < BK_STORE || r->type > BK_END ||
	    (is_name && (r->klen > KVDB_NAME_MAX || memchr(r->key, 0, r->klen))) ||
	    r->klen > KVDB_KEY_MAX || r->vlen > KVDB_VALUE_MAX || (r->type != BK_END && !r->klen) ||
	    (r->type == BK_STORE && r->vlen != BK_STORE_BYTES) ||
	    (r->type == BK_END && (r->vlen != 8 || r->klen)))
		return bad(in, "a record");
	if (r->type != BK_END)
		return 0;
	if (bk_get(r->val, 8) != in->seen || in->at != in->len || fgetc(in->f) != EOF)
		return bad(in, "its end");
	in->is_end = true;
	return 0;
}

int bk_in_next(struct bk_in *in)
{
	struct bk_rec *r = &in->rec;
	const uint8_t *p;
	int rc;

	if (in->is_end)
		return 0;
	if (in->at == in->len) {
		rc = block_read(in);
		if (rc)
			return rc;
	}
	p = in->buf + in->at;
	if (in->len - in->at < BK_REC)
		return bad(in, "a record");
	r->type = p[0];
	r->klen = (uint16_t)bk_get(p + 2, 2);
	r->vlen = (uint32_t)bk_get(p + 4, 4);
	r->key = p + BK_REC;
	r->val = r->key + r->klen;
	if (p[1] || in->len - in->at - BK_REC < (uint64_t)r->klen + r->vlen)
		return bad(in, "a record");
	in->at += BK_REC + r->klen + r->vlen;
	rc = rec_check(in, r);
	in->seen++;
	return rc;
}

int bk_in_open(struct bk_in *in, const char *dir, const struct bk_head *h)
{
	uint8_t head[BK_HDR];
	char path[BK_PATH];
	int rc;

	memset(in, 0, sizeof(*in));
	bk_path(path, dir, h->number);
	in->number = h->number;
	in->f = fopen(path, "re");
	if (!in->f)
		return -errno;
	rc = read_exact(in, head, sizeof(head));
	in->crc = h->crc;
	return rc ? rc : bk_in_next(in);
}

void bk_in_close(struct bk_in *in)
{
	if (in->f)
		fclose(in->f);
	free(in->buf);
}

/* ---- stores -------------------------------------------------------------------------------- */

struct load {
	struct ui *ui;
	const char *path;
	struct kvdb *db;
	uint64_t stores, records, bytes;
};

static int store_make(struct load *l, const char *name, const struct kvdb_kvs_opts *o,
		      struct kvdb_bulk **bulk)
{
	struct kvdb_kvs *kvs;
	int rc = kvdb_kvs_create(l->db, name, o);

	if (!rc)
		rc = kvdb_kvs_open(l->db, name, &kvs);
	if (!rc)
		rc = kvdb_bulk_open(kvs, 0, bulk);
	l->stores += !rc;
	return rc;
}

static int store_add(struct load *l, struct kvdb_bulk *bulk, const void *key, size_t klen,
		     const void *val, size_t vlen)
{
	int rc = bk_is_stopped ? -EINTR : kvdb_bulk_add(bulk, key, klen, vlen ? val : "", vlen);

	l->records += !rc;
	l->bytes += klen + vlen;
	return rc;
}

/* @err: of the calls above, about the store @name. */
static int store_fail(struct load *l, const char *name, int err)
{
	if (err == -EINTR && bk_is_stopped)
		return ui_error(l->ui, EXIT_FAILED, l->path, "take a new one: kvdb create",
				"interrupted in store %s; the stores before it are complete", name);
	return db_fail(l->ui, name, err);
}

/* Closes it and checks everything that was written. */
static int target_close(struct load *l, int rc)
{
	struct db_opts o;
	uint64_t damage = 0;
	int err;

	rc = db_close(l->ui, l->path, l->db, rc);
	if (!rc)
		rc = db_opts(l->ui, &o, 0);
	if (rc)
		return rc;
	err = kvdb_verify(l->path, &o.kv, MPOOL_VERIFY_DATA, NULL, NULL, &damage);
	if (err)
		return db_fail(l->ui, l->path, err);
	return damage ? ui_error(l->ui, EXIT_DAMAGE, l->path, "kvdb verify --data shows it",
				 "%" PRIu64 " findings in what was written", damage) : EXIT_DONE;
}

static void report(struct load *l, const char *from, const char *verb)
{
	struct json *j = &l->ui->js;
	char b[SIZE_STR], s[SIZE_STR], r[SIZE_STR];

	if (l->ui->json) {
		ui_doc_begin(l->ui, 1, 0);
		json_str(j, "from", from);
		json_str(j, "db", l->path);
		json_u64(j, "stores", l->stores);
		json_u64(j, "records", l->records);
		json_u64(j, "bytes", l->bytes);
		ui_doc_end(l->ui);
	} else if (!l->ui->quiet) {
		printf("%s %s, %s, %s into %s; checked\n", verb, count_str(s, l->stores, "store"),
		       count_str(r, l->records, "record"), bytes_str(b, l->bytes), l->path);
	}
}

/* ---- restore ------------------------------------------------------------------------------- */

struct chain {
	struct load l;
	const char *dir;
	unsigned n;			/* files, newest first */
	struct bk_head *head;
	struct bk_in *in;
};

static int chain_fail(struct chain *c, unsigned number, int rc, const char *why)
{
	char path[BK_PATH];

	bk_path(path, c->dir, number);
	if (rc == -EUCLEAN)
		return ui_error(c->l.ui, EXIT_DAMAGE, path, NULL, "damaged backup: %s", why);
	if (rc == -EOPNOTSUPP)
		return ui_error(c->l.ui, EXIT_UNSUPPORTED, path, NULL, "unknown version");
	return ui_fail(c->l.ui, path, rc, NULL);
}

/* The files from the target back to the full one that they build upon. */
static int chain_find(struct chain *c)
{
	int last = bk_last(c->dir), rc;
	uint64_t to = args_num(c->l.ui->args, "to", last > 0 ? (uint64_t)last : 0);
	unsigned at = (unsigned)to;

	if (last < 0)
		return ui_fail(c->l.ui, c->dir, last, NULL);
	if (!to || to > (uint64_t)last)
		return ui_error(c->l.ui, EXIT_NOTFOUND, c->dir, NULL, "no such backup is there");
	c->head = calloc(FILES_MAX, sizeof(c->head[0]));
	if (!c->head)
		return ui_fail(c->l.ui, c->dir, -ENOMEM, NULL);
	for (;; at--) {
		struct bk_head *h = &c->head[c->n];

		rc = bk_head_read(c->dir, at, h);
		if (rc)
			return chain_fail(c, at, rc, "its header");
		if (c->n && (h->crc != h[-1].base || memcmp(h->uuid, h[-1].uuid, 16)))
			return chain_fail(c, at + 1, -EUCLEAN,
					  "it does not build upon the one before");
		c->n++;
		if (!(h->flags & BK_INCREMENTAL))
			return EXIT_DONE;
		if (at == 1 || c->n == FILES_MAX)
			return chain_fail(c, at, -EUCLEAN, "there is no full backup below it");
	}
}

static bool has_name(const struct bk_in *in)
{
	return !in->is_end && (in->rec.type == BK_STORE || in->rec.type == BK_GONE);
}

static int name_cmp(const struct bk_rec *a, const char *name)
{
	size_t n = strlen(name), m = a->klen < n ? a->klen : n;
	int d = memcmp(a->key, name, m);

	return d ? d : (int)a->klen - (int)n;
}

/* The first name that any file is at; false at the end of all. */
static bool next_name(struct chain *c, char name[KVDB_NAME_MAX + 1])
{
	bool is = false;

	for (unsigned i = 0; i < c->n; i++) {
		if (!has_name(&c->in[i]) || (is && name_cmp(&c->in[i].rec, name) >= 0))
			continue;
		memcpy(name, c->in[i].rec.key, c->in[i].rec.klen);
		name[c->in[i].rec.klen] = 0;
		is = true;
	}
	return is;
}

struct merge {
	bool on[FILES_MAX];	/* files whose records of the store count */
	bool exists;
	struct kvdb_kvs_opts opts;
};

/* Passes GONE and STORE of @name; from a GONE on, older files do not count. */
static int sections_enter(struct chain *c, const char *name, struct merge *m)
{
	bool is_void = false, is_first = true;
	int rc = 0;

	memset(m, 0, sizeof(*m));
	m->opts = (struct kvdb_kvs_opts)KVDB_KVS_OPTS_INIT;
	for (unsigned i = 0; i < c->n && !rc; i++) {
		struct bk_in *in = &c->in[i];
		bool voids = false, has = false;

		while (!rc && has_name(in) && !name_cmp(&in->rec, name)) {
			voids |= in->rec.type == BK_GONE;
			has |= in->rec.type == BK_STORE;
			if (in->rec.type == BK_STORE && is_first) {
				m->opts.pfx_len = (uint32_t)bk_get(in->rec.val, 4);
				m->opts.policy = (uint32_t)bk_get(in->rec.val + 4, 4);
				m->opts.compress = (uint32_t)bk_get(in->rec.val + 8, 4);
				m->opts.ttl_s = bk_get(in->rec.val + 16, 8);
			}
			rc = bk_in_next(in);
		}
		if (rc)
			return chain_fail(c, in->number, rc, in->why);
		/* every file lists what exists: the newest one says whether it does */
		m->exists |= i == 0 && has;
		m->on[i] = has && !is_void;
		is_void |= voids;
		is_first = false;
	}
	return 0;
}

static bool in_store(const struct bk_in *in)
{
	return !in->is_end && (in->rec.type == BK_PUT || in->rec.type == BK_DEL);
}

static int key_cmp(const struct bk_rec *a, const struct bk_rec *b)
{
	size_t m = a->klen < b->klen ? a->klen : b->klen;
	int d = memcmp(a->key, b->key, m);

	return d ? d : (int)a->klen - (int)b->klen;
}

static int advance(struct chain *c, struct bk_in *in)
{
	int rc = bk_in_next(in);

	return rc ? chain_fail(c, in->number, rc, in->why) : 0;
}

/* Of each key the newest file's record counts. */
static int store_merge(struct chain *c, struct merge *m, struct kvdb_bulk *bulk, const char *name)
{
	uint8_t key[KVDB_KEY_MAX];
	int rc = 0;

	while (!rc) {
		struct bk_in *best = NULL;
		struct bk_rec at;

		for (unsigned i = 0; i < c->n && !rc; i++) {
			struct bk_in *in = &c->in[i];

			while (!rc && !m->on[i] && in_store(in))
				rc = advance(c, in);
			if (!rc && m->on[i] && in_store(in) &&
			    (!best || key_cmp(&in->rec, &best->rec) < 0))
				best = in;
		}
		if (rc || !best)
			return rc;
		if (bulk && best->rec.type == BK_PUT) {
			rc = store_add(&c->l, bulk, best->rec.key, best->rec.klen, best->rec.val,
				       best->rec.vlen);
			if (rc)
				return store_fail(&c->l, name, rc);
		}
		memcpy(key, best->rec.key, best->rec.klen);
		at = (struct bk_rec){ .key = key, .klen = best->rec.klen };
		for (unsigned i = 0; i < c->n && !rc; i++)
			if (m->on[i] && in_store(&c->in[i]) && !key_cmp(&c->in[i].rec, &at))
				rc = advance(c, &c->in[i]);
	}
	return rc;
}

static int restore_store(struct chain *c, const char *name, struct merge *m)
{
	struct kvdb_bulk *bulk = NULL;
	int rc = sections_enter(c, name, m), err;

	if (!rc && m->exists) {
		err = store_make(&c->l, name, &m->opts, &bulk);
		if (err)
			return db_fail(c->l.ui, name, err);
	}
	if (!rc)
		rc = store_merge(c, m, bulk, name);
	if (rc) {
		kvdb_bulk_abort(bulk);
		return rc;
	}
	err = bulk ? kvdb_bulk_finish(bulk) : 0;
	return err ? db_fail(c->l.ui, name, err) : EXIT_DONE;
}

static int restore_all(struct chain *c)
{
	struct merge *m = malloc(sizeof(*m));
	char name[KVDB_NAME_MAX + 1];
	unsigned i;
	int rc = 0;

	c->in = calloc(c->n, sizeof(c->in[0]));
	if (!m || !c->in)
		rc = ui_fail(c->l.ui, c->dir, -ENOMEM, NULL);
	for (i = 0; i < c->n && !rc; i++) {
		int err = bk_in_open(&c->in[i], c->dir, &c->head[i]);

		if (err)
			rc = chain_fail(c, c->head[i].number, err, c->in[i].why);
	}
	while (!rc && next_name(c, name))
		rc = restore_store(c, name, m);
	for (i = 0; i < c->n && !rc; i++)
		if (!c->in[i].is_end)
			rc = chain_fail(c, c->head[i].number, -EUCLEAN, "records of no store");
	for (i = 0; c->in && i < c->n; i++)
		bk_in_close(&c->in[i]);
	free(c->in);
	free(m);
	return rc;
}

int verb_restore(struct ui *ui)
{
	struct chain c = { .l = { .ui = ui, .path = ui->args->v[1] }, .dir = ui->args->v[0] };
	struct rlimit files;
	int rc = chain_find(&c);

	/* all of a chain are open at once; a shell's limit is for programs that use select() */
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	bk_stop_catch();

	if (!rc)
		rc = db_open_empty(c.l.ui, c.l.path, &c.l.db);
	if (!rc)
		rc = target_close(&c.l, restore_all(&c));
	free(c.head);
	if (!rc)
		report(&c.l, c.dir, "restored");
	return rc;
}

/* ---- copy ------------------------------------------------------------------------------------ */

static int copy_store(struct load *l, struct kvdb *from, const char *name)
{
	struct kvdb_kvs_opts o = KVDB_KVS_OPTS_INIT;
	struct kvdb_bulk *bulk = NULL;
	const void *key, *val;
	struct kvdb_cursor *cur;
	struct kvdb_kvs_info in;
	struct kvdb_kvs *kvs;
	size_t klen, vlen;
	int rc = kvdb_kvs_open(from, name, &kvs);

	if (!rc)
		rc = kvdb_kvs_info(kvs, &in);
	if (rc)
		return rc;
	o.pfx_len = in.pfx_len;
	o.policy = in.policy;
	o.compress = in.compress;
	o.ttl_s = in.ttl_s;
	rc = kvdb_cursor_open(kvs, 0, NULL, 0, &cur);
	if (rc)
		return rc;
	rc = store_make(l, name, &o, &bulk);
	while (!rc && !(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen)))
		rc = store_add(l, bulk, key, klen, val, vlen);
	kvdb_cursor_close(cur);
	if (rc == -ENOENT && bulk)
		return kvdb_bulk_finish(bulk);
	kvdb_bulk_abort(bulk);
	return rc;
}

static int copy_all(struct load *l, const char *name)
{
	char (*names)[KVDB_NAME_MAX + 1];
	struct kvdb *from;
	int rc = db_open_at(l->ui, l->ui->args->v[0], name, &from), n, i, err = 0;

	if (rc)
		return rc;
	rc = db_open_empty(l->ui, l->path, &l->db);
	if (rc) {
		kvdb_close(from);
		return rc;
	}
	n = kvs_names(from, &names);
	for (i = 0; i < n && !err; i++)
		err = copy_store(l, from, names[i]);
	if (err)
		rc = store_fail(l, names[i - 1], err);
	kvdb_close(from);
	return target_close(l, rc);
}

/* The checkpoint of process @pid, with a checksum that tells it from a user's own. */
static void own_name(char name[KVDB_NAME_MAX + 1], const uint8_t uuid[16], int pid)
{
	uint8_t b[20];

	memcpy(b, uuid, 16);
	bk_put(b + 16, (unsigned)pid, 4);
	snprintf(name, KVDB_NAME_MAX + 1, "copy.%d.%08" PRIx32, pid, mpool_crc32c(0, b, sizeof(b)));
}

/* Those of copies that were killed would keep their space for ever. */
static int drop_left(struct ui *ui, struct kvdb *db, const uint8_t uuid[16])
{
	static struct kvdb_checkpoint_info all[KVDB_CHECKPOINT_MAX];
	int n = kvdb_checkpoint_list(db, all, KVDB_CHECKPOINT_MAX), err, pid;
	char own[KVDB_NAME_MAX + 1];

	for (int i = 0; i < n; i++) {
		if (sscanf(all[i].name, "copy.%d.", &pid) != 1 || pid <= 0)
			continue;
		own_name(own, uuid, pid);
		if (strcmp(all[i].name, own))
			continue;
		/* none of a running process: one with our own pid is from an earlier process */
		if (pid != getpid() && (!kill(pid, 0) || errno != ESRCH))
			continue;
		err = kvdb_checkpoint_drop(db, own);
		/* a process of another pid namespace may run */
		if (err && err != -EBUSY)
			return db_fail(ui, own, err);
	}
	return EXIT_DONE;
}

/* Makes one, whose name is @name then, or "": it can only be read, so it does not change. */
static int copy_begin(struct ui *ui, char name[KVDB_NAME_MAX + 1])
{
	const char *path = ui->args->v[0];
	struct kvdb_info in;
	struct kvdb *db;
	bool is_still;
	int rc = db_open_still(ui, path, &db, &is_still), err;

	name[0] = 0;
	if (rc || is_still)
		return rc ? rc : db_close(ui, path, db, EXIT_DONE);
	err = kvdb_info(db, &in);
	if (!err)
		rc = drop_left(ui, db, in.uuid);
	if (!err && !rc) {
		own_name(name, in.uuid, getpid());
		err = kvdb_checkpoint(db, name, 0);
	}
	return db_close(ui, path, db, err ? db_fail(ui, path, err) : rc);
}

static int copy_end(struct ui *ui, const char *name)
{
	const char *path = ui->args->v[0];
	struct kvdb *db;
	int rc = db_open_unused(ui, path, &db), err;

	if (rc)
		return rc;
	err = kvdb_checkpoint_drop(db, name);
	return db_close(ui, path, db, err ? db_fail(ui, name, err) : EXIT_DONE);
}

int verb_copy(struct ui *ui)
{
	struct load l = { .ui = ui, .path = ui->args->v[1] };
	const char *name = args_str(ui->args, "checkpoint", NULL);
	char own[KVDB_NAME_MAX + 1];
	int rc = EXIT_DONE, end = EXIT_DONE;

	bk_stop_catch();
	if (!name)
		rc = copy_begin(ui, own);
	if (rc)
		return rc;
	rc = copy_all(&l, name ? name : own[0] ? own : NULL);
	if (!name && own[0])
		end = copy_end(ui, own);
	if (!rc)
		report(&l, ui->args->v[0], "copied");
	return rc ? rc : end;
}
