/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The verb backup: a checkpoint, or what changed since another, into a file (backup.h). */
#define _GNU_SOURCE	/* syncfs() */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backup.h"
#include "file.h"
#include "size.h"

const struct opt backup_opts[] = {
	{ "full", 0, OPT_FLAG, 0, NULL, "everything, although an earlier backup is there", NULL,
	  NULL },
	{ "incremental", 0, OPT_FLAG, 0, NULL,
	  "only what changed since the last backup; refused when that cannot be", NULL, NULL },
	{ "checkpoint", 0, OPT_STR, 0, "NAME",
	  "back this checkpoint up, instead of one made for it; the database may be open elsewhere "
	  "then", "checkpoint", NULL },
	DB_OPTS,
	{ .name = NULL },
};

#define OWN "backup."	/* names of checkpoints made here begin so */
/* What a restore has open at once, each with a block in memory. It takes longer chains, too. */
#define CHAIN_MAX 500u

volatile sig_atomic_t bk_is_stopped;

static void on_stop(int sig)
{
	(void)sig;
	bk_is_stopped = 1;
}

void bk_stop_catch(void)
{
	ui_on_stop(on_stop);
}

void bk_path(char path[BK_PATH], const char *dir, unsigned number)
{
	snprintf(path, BK_PATH, "%.4000s/%06u.kvb", dir, number);
}

/* ---- headers ------------------------------------------------------------------------- */

static void head_encode(uint8_t p[BK_HDR], struct bk_head *h)
{
	memset(p, 0, BK_HDR);
	memcpy(p, BK_MAGIC, 8);
	bk_put(p + 8, BK_VERSION, 4);
	bk_put(p + 12, h->flags, 4);
	memcpy(p + 16, h->uuid, 16);
	bk_put(p + 32, h->number, 4);
	bk_put(p + 36, h->base, 4);
	bk_put(p + 40, h->ckpt, 8);
	bk_put(p + 48, h->time_ns, 8);
	h->crc = mpool_crc32c(0, p, 60);
	bk_put(p + 60, h->crc, 4);
}

static int head_decode(const uint8_t p[BK_HDR], struct bk_head *h)
{
	if (memcmp(p, BK_MAGIC, 8) || bk_get(p + 60, 4) != mpool_crc32c(0, p, 60))
		return -EUCLEAN;
	if (bk_get(p + 8, 4) != BK_VERSION || bk_get(p + 12, 4) & ~BK_INCREMENTAL ||
	    bk_get(p + 56, 4))
		return -EOPNOTSUPP;
	h->flags = (uint32_t)bk_get(p + 12, 4);
	memcpy(h->uuid, p + 16, 16);
	h->number = (uint32_t)bk_get(p + 32, 4);
	h->base = (uint32_t)bk_get(p + 36, 4);
	h->ckpt = bk_get(p + 40, 8);
	h->time_ns = bk_get(p + 48, 8);
	h->crc = (uint32_t)bk_get(p + 60, 4);
	return 0;
}

static int head_read(const char *path, struct bk_head *h)
{
	uint8_t p[BK_HDR];
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

	if (fd < 0)
		return -errno;
	n = TEMP_FAILURE_RETRY(read(fd, p, sizeof(p)));
	rc = n < 0 ? -errno : n < (ssize_t)sizeof(p) ? -EUCLEAN : head_decode(p, h);
	close(fd);
	return rc;
}

int bk_head_read(const char *dir, unsigned number, struct bk_head *h)
{
	char path[BK_PATH];
	int rc;

	bk_path(path, dir, number);
	rc = head_read(path, h);
	return rc ? rc : h->number == number ? 0 : -EUCLEAN;
}

int bk_last(const char *dir)
{
	struct dirent *de;
	unsigned n;
	int last = 0, end;
	DIR *d = opendir(dir);

	if (!d)
		return -errno;
	while ((de = readdir(d))) {
		end = 0;
		if (sscanf(de->d_name, "%06u.kvb%n", &n, &end) == 1 && end == 10 &&
		    !de->d_name[end] && (int)n > last)
			last = (int)n;
	}
	closedir(d);
	return last;
}

/* ---- writing --------------------------------------------------------------------------- */

struct bk_out {
	int fd;
	uint32_t crc, len;
	uint8_t *buf;		/* 8 bytes in front of the content */
	uint64_t records, puts, dels, bytes;
};

static int block_end(struct bk_out *o)
{
	int rc;

	if (!o->len)
		return 0;
	o->crc = mpool_crc32c(o->crc, o->buf + 8, o->len);
	bk_put(o->buf, o->len, 4);
	bk_put(o->buf + 4, o->crc, 4);
	rc = file_write(o->fd, o->buf, o->len + 8);
	o->bytes += o->len + 8;
	o->len = 0;
	return rc;
}

static int record(struct bk_out *o, enum bk_type type, const void *key, size_t klen,
		  const void *val, size_t vlen)
{
	uint8_t *p;
	int rc = bk_is_stopped ? -EINTR : 0;

	if (!rc && o->len + BK_REC + klen + vlen > BK_BLOCK)
		rc = block_end(o);
	if (rc)
		return rc;
	p = o->buf + 8 + o->len;
	p[0] = (uint8_t)type;
	p[1] = 0;
	bk_put(p + 2, klen, 2);
	bk_put(p + 4, vlen, 4);
	if (klen)
		memcpy(p + BK_REC, key, klen);
	if (vlen)
		memcpy(p + BK_REC + klen, val, vlen);
	o->len += (uint32_t)(BK_REC + klen + vlen);
	o->records++;
	o->puts += type == BK_PUT;
	o->dels += type == BK_DEL;
	return 0;
}

static int out_diff(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	return record(arg, val ? BK_PUT : BK_DEL, key, klen, val, vlen);
}

static int out_all(struct bk_out *o, struct kvdb_kvs *kvs)
{
	const void *key, *val;
	struct kvdb_cursor *cur;
	size_t klen, vlen;
	int rc = kvdb_cursor_open(kvs, 0, NULL, 0, &cur);

	if (rc)
		return rc;
	while (!(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen)))
		if ((rc = record(o, BK_PUT, key, klen, val, vlen)))
			break;
	kvdb_cursor_close(cur);
	return rc == -ENOENT ? 0 : rc;
}

static int out_store_head(struct bk_out *o, struct kvdb_kvs *kvs, const char *name)
{
	struct kvdb_kvs_info in;
	uint8_t v[BK_STORE_BYTES] = { 0 };
	int rc = kvdb_kvs_info(kvs, &in);

	if (rc)
		return rc;
	bk_put(v, in.pfx_len, 4);
	bk_put(v + 4, in.policy, 4);
	bk_put(v + 8, in.compress, 4);
	bk_put(v + 16, in.ttl_s, 8);
	return record(o, BK_STORE, name, strlen(name), v, sizeof(v));
}

static bool is_same(struct kvdb_kvs *a, struct kvdb_kvs *b)
{
	struct kvdb_kvs_info x, y;

	return !kvdb_kvs_info(a, &x) && !kvdb_kvs_info(b, &y) && x.id == y.id;
}

/* A store of the same name may be another one; then the old one is gone. */
static int out_store(struct bk_out *o, struct kvdb *from, struct kvdb *to, const char *name)
{
	struct kvdb_kvs *old = NULL, *kvs = NULL;
	int rc;

	if (from && !kvdb_kvs_open(from, name, &old) && !kvdb_kvs_open(to, name, &kvs) &&
	    !is_same(old, kvs)) {
		old = NULL;
		rc = record(o, BK_GONE, name, strlen(name), NULL, 0);
		if (rc)
			return rc;
	}
	rc = kvdb_kvs_open(to, name, &kvs);
	if (!rc)
		rc = out_store_head(o, kvs, name);
	if (rc)
		return rc;
	return old ? kvdb_diff(old, kvs, out_diff, o) : out_all(o, kvs);
}

static int copy_names(struct kvdb *db, char (**out)[KVDB_NAME_MAX + 1])
{
	char (*shown)[KVDB_NAME_MAX + 1];
	int n = kvs_names(db, &shown);

	*out = calloc(n > 0 ? (size_t)n : 1, sizeof(**out));
	if (!*out)
		return -ENOMEM;
	if (n > 0)
		memcpy(*out, shown, (size_t)n * sizeof(**out));
	return n;
}

/* Both lists are in order: what only @from has is gone. */
static int out_stores(struct bk_out *o, struct kvdb *from, struct kvdb *to)
{
	char (*was)[KVDB_NAME_MAX + 1] = NULL, (*is)[KVDB_NAME_MAX + 1] = NULL;
	int n = copy_names(to, &is), m = from ? copy_names(from, &was) : 0, i = 0, k = 0, c;
	int rc = n < 0 ? n : m < 0 ? m : 0;

	while (!rc && (i < n || k < m)) {
		c = i == n ? 1 : k == m ? -1 : strcmp(is[i], was[k]);
		if (c > 0)
			rc = record(o, BK_GONE, was[k], strlen(was[k]), NULL, 0);
		else
			rc = out_store(o, from, to, is[i]);
		i += c <= 0;
		k += c >= 0;
	}
	free(is);
	free(was);
	return rc;
}

static int out_file(struct bk_out *o, struct bk_head *h, struct kvdb *from, struct kvdb *to)
{
	uint8_t head[BK_HDR], v[8];
	int rc;

	head_encode(head, h);
	o->crc = h->crc;
	o->bytes = BK_HDR;
	rc = file_write(o->fd, head, sizeof(head));
	if (!rc)
		rc = out_stores(o, from, to);
	bk_put(v, o->records, 8);
	if (!rc)
		rc = record(o, BK_END, NULL, 0, v, sizeof(v));
	if (!rc)
		rc = block_end(o);
	return rc ? rc : file_sync(o->fd);
}

/* ---- the verb ---------------------------------------------------------------------------- */

struct job {
	struct ui *ui;
	const char *path, *dir;
	int dirfd, last;
	struct bk_head head, base;
	bool has_made;			/* the checkpoint is ours */
	bool is_still;			/* nothing writes to it: none is there, none is needed */
	struct kvdb_checkpoint_info at, from;
	struct bk_out out;
};

static int file_fail(struct job *j, const char *name, int rc)
{
	if (rc == -EINTR && bk_is_stopped)
		return ui_error(j->ui, EXIT_FAILED, name, NULL, "interrupted, there is no backup");
	return ui_fail(j->ui, name, rc, NULL);
}

/* ---- what a killed one leaves ---------------------------------------------------------- */

/*
 * A checkpoint that was made for a backup keeps its space until it is dropped. So the folder
 * names it before it is there, until the file is complete or the checkpoint dropped: the next
 * backup drops what it finds named.
 */
#define NOTE ".checkpoint"

struct note {
	uint8_t uuid[16];
	char name[KVDB_NAME_MAX + 1];
};

/* Durable on return. */
static int note_write(int dirfd, const struct note *no)
{
	int fd = openat(dirfd, NOTE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	int rc = fd < 0 ? -errno : file_write(fd, no, sizeof(*no));

	if (!rc)
		rc = file_sync(fd);
	if (!rc)
		rc = file_sync(dirfd);
	if (fd >= 0)
		close(fd);
	return rc;
}

/* False: there is none, or it is about another database. */
static bool note_read(int dirfd, const uint8_t uuid[16], struct note *no)
{
	int fd = openat(dirfd, NOTE, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	bool is_whole = fd >= 0 &&
			TEMP_FAILURE_RETRY(read(fd, no, sizeof(*no))) == (ssize_t)sizeof(*no);

	if (fd >= 0)
		close(fd);
	return is_whole && !memcmp(no->uuid, uuid, sizeof(no->uuid)) && !no->name[KVDB_NAME_MAX];
}

/* The file until it is complete. */
static void part_path(const struct job *j, char path[BK_PATH])
{
	snprintf(path, BK_PATH, "%.4000s/.part", j->dir);
}

/*
 * By its name, or else the one that file @h was made of: a pool that was put back to an older
 * state gives an id again, but no time.
 */
static bool find(struct kvdb *db, const char *name, const struct bk_head *h,
		 struct kvdb_checkpoint_info *out)
{
	static struct kvdb_checkpoint_info all[KVDB_CHECKPOINT_MAX];
	int n = kvdb_checkpoint_list(db, all, KVDB_CHECKPOINT_MAX);

	for (int i = 0; i < n; i++) {
		if (name ? strcmp(all[i].name, name) != 0 :
			   all[i].id != h->ckpt || all[i].time_ns != h->time_ns)
			continue;
		*out = all[i];
		return true;
	}
	return false;
}

static int dir_open(struct job *j)
{
	int rc;

	if (mkdir(j->dir, 0700) && errno != EEXIST)
		return errno != ENOENT ? file_fail(j, j->dir, -errno) :
		       ui_error(j->ui, EXIT_NOTFOUND, j->dir, "make that first",
				"the folder that it is to be made in is not there");
	j->dirfd = open(j->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (j->dirfd < 0)
		return file_fail(j, j->dir, -errno);
	if (flock(j->dirfd, LOCK_EX | LOCK_NB))
		return ui_error(j->ui, EXIT_BUSY, j->dir, NULL, "another backup writes there");
	/* a new folder must survive a power cut, or its files would not */
	rc = file_sync_entry(j->dirfd);
	if (rc)
		return file_fail(j, j->dir, rc);
	j->last = bk_last(j->dir);
	return j->last < 0 ? file_fail(j, j->dir, j->last) : EXIT_DONE;
}

static int drop_own(struct job *j, struct kvdb *db, const char *name)
{
	int err = strncmp(name, OWN, strlen(OWN)) ? 0 : kvdb_checkpoint_drop(db, name);

	return err ? db_fail(j->ui, name, err) : EXIT_DONE;
}

/* The checkpoint that file @h was made of, unless it is the user's. */
static int drop_of(struct job *j, struct kvdb *db, const struct bk_head *h)
{
	struct kvdb_checkpoint_info c;

	return find(db, NULL, h, &c) ? drop_own(j, db, c.name) : EXIT_DONE;
}

/* Drops the checkpoint of a killed backup, unless the last file is of it; makes @name. */
static int make(struct job *j, struct kvdb *db, const char *name)
{
	struct kvdb_checkpoint_info c;
	struct note no;
	int rc = EXIT_DONE;

	if (note_read(j->dirfd, j->head.uuid, &no) && find(db, no.name, NULL, &c) &&
	    (c.id != j->base.ckpt || c.time_ns != j->base.time_ns))
		rc = drop_own(j, db, no.name);
	if (rc)
		return rc;
	no = (struct note){ .name = "" };
	memcpy(no.uuid, j->head.uuid, sizeof(no.uuid));
	snprintf(no.name, sizeof(no.name), "%s", name);
	rc = note_write(j->dirfd, &no);
	if (rc)
		return file_fail(j, j->dir, rc);
	rc = kvdb_checkpoint(db, name, 0);
	if (rc)
		return db_fail(j->ui, name, rc);
	j->has_made = true;
	return EXIT_DONE;
}

/* Number of files that a restore of the last one reads; 0: one is missing or changed. */
static unsigned chain_files(const struct job *j)
{
	struct bk_head h = j->base, below;
	unsigned n = 1;

	for (; h.flags & BK_INCREMENTAL; h = below, n++)
		if (bk_head_read(j->dir, (unsigned)j->last - n, &below) || below.crc != h.base)
			return 0;
	return n;
}

/* Why nothing can build upon the last file; NULL: it can. @err: of its header. */
static const char *why_full(struct job *j, struct kvdb *db, int err)
{
	unsigned n;

	if (!j->last)
		return "there is no backup to build upon";
	if (err || !find(db, NULL, &j->base, &j->from))
		return "the last backup is not readable, or its checkpoint is gone";
	n = chain_files(j);
	if (!n)
		return "a file that the last backup builds upon is missing or damaged";
	return n < CHAIN_MAX ? NULL : "more than 500 files would build upon one another";
}

/* Which checkpoint, and whether the last file can be its base. */
static int choose(struct job *j, struct kvdb *db)
{
	const char *name = args_str(j->ui->args, "checkpoint", NULL);
	struct kvdb_info in;
	const char *why;
	char own[32];
	int rc = kvdb_info(db, &in);

	if (rc)
		return db_fail(j->ui, j->path, rc);
	memcpy(j->head.uuid, in.uuid, 16);
	j->head.number = (uint32_t)j->last + 1;
	rc = j->last ? bk_head_read(j->dir, (unsigned)j->last, &j->base) : -ENOENT;
	if (!rc && memcmp(j->base.uuid, in.uuid, 16))
		return ui_error(j->ui, EXIT_REFUSED, j->dir, "take another folder",
				"it holds backups of another database");
	why = j->is_still ? "the database can only be read, so that it takes no checkpoint" :
			    why_full(j, db, rc);
	if (why && args_has(j->ui->args, "incremental"))
		return ui_error(j->ui, EXIT_REFUSED, j->dir, "--full makes a whole one", "%s", why);
	if (!why && !args_has(j->ui->args, "full")) {
		j->head.flags = BK_INCREMENTAL;
		j->head.base = j->base.crc;
	} else if (why && j->last) {
		ui_note(j->ui, "this one is full: %s", why);
	}
	if (j->is_still) {
		j->head.time_ns = (uint64_t)time(NULL) * 1000000000u;
		return EXIT_DONE;
	}
	if (!name) {
		/* several folders may take backups of one database */
		snprintf(own, sizeof(own), OWN "%06u.%06x", j->head.number % 1000000,
			 (unsigned)(getpid() ^ time(NULL)) & 0xffffff);
		rc = make(j, db, own);
		if (rc)
			return rc;
		name = own;
	}
	if (!find(db, name, NULL, &j->at))
		return ui_error(j->ui, EXIT_NOTFOUND, name, "kvdb checkpoint list shows all",
				"the database has no such checkpoint");
	j->head.ckpt = j->at.id;
	j->head.time_ns = j->at.time_ns;
	return EXIT_DONE;
}

static int write_file(struct job *j)
{
	struct kvdb *to = NULL, *from = NULL;
	char tmp[BK_PATH], path[BK_PATH];
	int rc, err = 0;

	bk_path(path, j->dir, j->head.number);
	part_path(j, tmp);
	rc = db_open_at(j->ui, j->path, j->is_still ? NULL : j->at.name, &to);
	if (!rc && j->head.flags)
		rc = db_open_at(j->ui, j->path, j->from.name, &from);
	/* a place without a reader would be waited for, and the signal has been */
	if (!rc && bk_is_stopped)
		rc = file_fail(j, path, -EINTR);
	j->out.fd = rc ? -1 : open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
				    0600);
	j->out.buf = malloc(8 + BK_BLOCK_MAX);
	if (!rc && (j->out.fd < 0 || !j->out.buf))
		rc = file_fail(j, tmp, j->out.fd < 0 ? -errno : -ENOMEM);
	if (!rc)
		err = out_file(&j->out, &j->head, from, to);
	if (j->out.fd >= 0)
		close(j->out.fd);
	free(j->out.buf);
	if (!rc && !err)
		err = rename(tmp, path) ? -errno : file_sync(j->dirfd);
	if (err) {
		const struct mpool_error *e = kvdb_error_detail();

		rc = e->err == err ? ui_fail(j->ui, path, err, e) : file_fail(j, path, err);
		unlink(tmp);
	}
	kvdb_close(from);
	kvdb_close(to);
	return rc;
}

/*
 * The database is open for writing again: what is needed no more goes. Between the last
 * checkpoint that was made here and this one there may be backups of the user's own.
 */
static int tidy(struct job *j, bool is_good)
{
	struct bk_head h;
	struct kvdb *db;
	int rc;

	if (!j->has_made)
		return EXIT_DONE;
	rc = db_open(j->ui, j->path, 0, &db);
	if (rc)
		return rc;
	if (!is_good)
		rc = drop_of(j, db, &j->head);
	for (int n = is_good ? j->last : 0; n > 0 && !rc; n--)
		if (!bk_head_read(j->dir, (unsigned)n, &h) &&
		    !memcmp(h.uuid, j->head.uuid, sizeof(h.uuid)))
			rc = drop_of(j, db, &h);
	if (!rc)
		unlinkat(j->dirfd, NOTE, 0);
	return db_close(j->ui, j->path, db, rc);
}

static void report(struct job *j)
{
	const char *kind = j->head.flags ? "incremental" : "full";
	struct json *js = &j->ui->js;
	char path[BK_PATH], b[SIZE_STR], r[SIZE_STR], d[SIZE_STR];

	bk_path(path, j->dir, j->head.number);
	if (j->ui->json) {
		ui_doc_begin(j->ui, 1, 0);
		json_str(js, "db", j->path);
		json_str(js, "file", path);
		json_str(js, "kind", kind);
		json_u64(js, "number", j->head.number);
		json_str(js, "checkpoint", j->at.name);
		json_u64(js, "records", j->out.puts);
		json_u64(js, "deletions", j->out.dels);
		json_u64(js, "bytes", j->out.bytes);
		ui_doc_end(j->ui);
	} else if (!j->ui->quiet) {
		printf("wrote %s: %s, %s, %s, %s\n", path, kind,
		       count_str(r, j->out.puts, "record"), count_str(d, j->out.dels, "deletion"),
		       bytes_str(b, j->out.bytes));
	}
}

int verb_backup(struct ui *ui)
{
	struct job j = { .ui = ui, .path = ui->args->v[0], .dir = ui->args->v[1], .dirfd = -1 };
	bool is_given = args_has(ui->args, "checkpoint");
	struct kvdb *db;
	int rc, end;

	if (args_has(ui->args, "full") && args_has(ui->args, "incremental"))
		return ui_usage(ui, "--full and --incremental exclude each other");
	bk_stop_catch();
	/* with a checkpoint of the user's only that is read, beside the writer of the database */
	if (is_given) {
		rc = db_open_at(ui, j.path, args_str(ui->args, "checkpoint", ""), &db);
	} else {
		rc = db_open_still(ui, j.path, &db, &j.is_still);
	}
	if (rc)
		return rc;
	rc = dir_open(&j);
	if (!rc)
		rc = choose(&j, db);
	rc = db_close(ui, j.path, db, rc);
	if (!rc)
		rc = write_file(&j);
	end = j.has_made ? tidy(&j, !rc) : EXIT_DONE;
	if (j.dirfd >= 0)
		close(j.dirfd);
	if (!rc)
		report(&j);
	return rc ? rc : end;
}
