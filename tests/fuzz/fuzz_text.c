/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What people and programs hand in: lines to load, backup files, requests at
 * the control socket, on a database in memory that really does what they say.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

/* its functions are its own */
#include "../../utils/kvdb/load.c"

#include "../../utils/kvdb/backup.h"
#include "ctl/ctl.h"
#include "fuzz.h"
#include "image.h"

#define FRESH	2000u	/* inputs until the database begins anew */

static struct sim sim;
static struct kvdb *db;
static struct kvdb_kvs *kvs;
static struct kvdb_opts opts;
static struct mpool_open_opts pool_opts;
static struct ui ui;
static unsigned age;
static char folder[] = "/dev/shm/fuzz-XXXXXX";

static void must(int rc, const char *what)
{
	if (rc) {
		fprintf(stderr, "%s: %d %s\n", what, rc, kvdb_error_detail()->text);
		fz_bug(what);
	}
}

static void begin(void)
{
	sim_snap(&sim);
	must(kvdb_open(GOLDEN_POOL, &opts, &db), "kvdb_open");
	must(kvdb_kvs_open(db, "plain", &kvs), "kvdb_kvs_open");
	age = 0;
}

static void folder_gone(void)
{
	char path[BK_PATH];

	bk_path(path, folder, 1);
	unlink(path);
	rmdir(folder);
}

void fz_init(void)
{
	sim_init(&sim);
	must(image_load(&sim, "tests/golden/kvdb-1.img"), "the golden image");
	golden_opts(&sim, &pool_opts, &opts);
	opts.flags |= KVDB_NOCTL;
	if (!mkdtemp(folder))
		fz_bug("no folder");
	atexit(folder_gone);
	begin();
}

/* Stores come and go, space is used up: begin from the image again. */
static void grow_old(void)
{
	if (++age < FRESH)
		return;
	kvdb_close(db);
	sim_release(&sim);
	sim_rollback(&sim);
	begin();
}

/* ---- lines ------------------------------------------------------------------------------ */

static void lines(struct fz *f, bool is_jsonl, bool is_dump)
{
	struct load l = { .ui = &ui, .file = "-", .db = db, .kvs = is_dump ? NULL : kvs,
			  .is_jsonl = is_jsonl, .is_dump = is_dump };
	size_t n;
	uint8_t *p = fz_copy(f, 1 << 16, &n), *line = p, *end = p + n;

	if (is_jsonl) {
		l.tok = json_tokener_new();
		json_tokener_set_flags(l.tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8 |
						      JSON_TOKENER_ALLOW_TRAILING_CHARS);
	}
	while (line < end) {
		uint8_t *nl = memchr(line, '\n', (size_t)(end - line));
		size_t len = (size_t)((nl ? nl : end) - line);
		char *s = strndup((char *)line, len);

		if (len && strlen(s) == len)
			load_line(&l, s, len);
		free(s);
		line += len + 1;
	}
	if (l.tok)
		json_tokener_free(l.tok);
	bytes_free(&l.key);
	bytes_free(&l.val);
	free(p);
	grow_old();
}

static void tsv(struct fz *f)
{
	lines(f, false, false);
}

static void jsonl(struct fz *f)
{
	lines(f, true, false);
}

static void dump(struct fz *f)
{
	lines(f, true, true);
}

/* ---- backup files ------------------------------------------------------------------------ */

/* Blocks: length (2) and bytes of each; sums are made right but for every eighth input. */
static size_t backup_file(struct fz *f, uint8_t *out, size_t max)
{
	bool is_right = fz_num(f, 1) % 8;
	uint32_t crc, len;
	size_t at = BK_HDR;

	memset(out, 0, BK_HDR);
	memcpy(out, BK_MAGIC, 8);
	out[8] = BK_VERSION;
	out[32] = 1;
	for (unsigned i = 12; i < 56; i++)
		out[i] ^= (uint8_t)(i % 11 ? 0 : fz_num(f, 1));
	crc = mpool_crc32c(0, out, 60) ^ !is_right;
	bk_put(out + 60, crc, 4);
	while (f->n && at + 8 < max) {
		len = (uint32_t)fz_num(f, 2);
		if (len > f->n)
			len = (uint32_t)f->n;
		if (len > max - at - 8)
			len = (uint32_t)(max - at - 8);
		memcpy(out + at + 8, f->p, len);
		f->p += len;
		f->n -= len;
		crc = mpool_crc32c(crc, out + at + 8, len) ^ !is_right;
		bk_put(out + at, len, 4);
		bk_put(out + at + 4, crc, 4);
		at += len + 8;
	}
	return at;
}

static void backup(struct fz *f)
{
	static uint8_t file[1 << 17];
	size_t n = backup_file(f, file, sizeof(file));
	volatile uint8_t sink;
	char path[BK_PATH];
	struct bk_head h;
	struct bk_in in;
	int fd;

	bk_path(path, folder, 1);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, file, n) != (ssize_t)n)
		fz_bug("no file");
	close(fd);
	if (bk_last(folder) != 1)
		fz_bug("the file is not seen");
	if (bk_head_read(folder, 1, &h))
		return;
	if (!bk_in_open(&in, folder, &h))
		do {
			if (in.rec.klen)
				sink = in.rec.key[in.rec.klen - 1];
			if (in.rec.vlen)
				sink = in.rec.val[in.rec.vlen - 1];
		} while (!in.is_end && !bk_in_next(&in));
	bk_in_close(&in);
	(void)sink;
}

/* ---- control socket ------------------------------------------------------------------------ */

static void request(struct fz *f)
{
	struct kv_ctl_req *r = malloc(sizeof(*r));
	size_t n;
	uint8_t *p = fz_copy(f, KV_CTL_LINE - 1, &n);

	kv_ctl_parse(r, (char *)p, n);
	free(r);
	free(p);
}

static void command(struct fz *f)
{
	struct kv_ctl_out o = { 0 };
	size_t n;
	uint8_t *p = fz_copy(f, KV_CTL_LINE - 1, &n);

	kv_ctl_command(db, (char *)p, n, &o);
	if (!o.ou_bad && (!o.ou_len || o.ou_p[o.ou_len - 1] != '\n'))
		fz_bug("no answer");
	kv_out_free(&o);
	free(p);
	grow_old();
}

const struct fz_target fz_targets[] = {
	{ "tsv", tsv }, { "jsonl", jsonl }, { "dump", dump }, { "backup", backup },
	{ "request", request }, { "command", command },
	{ .name = NULL },
};
