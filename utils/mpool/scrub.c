/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool scrub: read every object that carries a checksum and compare.
 *
 * Objects are visited in ascending order of their ids, so that a run that was
 * interrupted goes on with --from. One that is deleted meanwhile is no damage.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "members.h"
#include "progress.h"
#include "size.h"

#define CHUNK (1u << 20)

const struct opt scrub_opts[] = {
	{ "rate", 0, OPT_SIZE, 0, "SIZE", "read at most so many bytes a second, such as 100M", NULL,
	  NULL },
	{ "from", 0, OPT_STR, 0, "ID", "go on with this object, as an interrupted run said", NULL,
	  NULL },
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static volatile sig_atomic_t is_stopped;

struct scrub {
	struct ui *ui;
	struct mpool *mp;
	void *buf;
	uint64_t rate, begin_ns;
	uint64_t total;   /* bytes to read */
	uint64_t bytes, objects, unchecked, damaged;
	uint64_t next;    /* object to go on with */
	struct progress progress;
};

static void on_signal(int sig)
{
	(void)sig;
	is_stopped = 1;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Sleep until what was read fits the rate. */
static void throttle(const struct scrub *s)
{
	double want = s->rate ? (double)s->bytes * 1e9 / (double)s->rate : 0;
	double left = want - (double)(now_ns() - s->begin_ns);
	struct timespec ts;

	if (left < 1e6)
		return;
	ts.tv_sec = (time_t)(left / 1e9);
	ts.tv_nsec = (long)(left - (double)ts.tv_sec * 1e9);
	nanosleep(&ts, NULL); /* a signal ends it early */
}

static bool is_checkable(const struct mpool_obj_info *o)
{
	return o->kind != MPOOL_MLOG && (o->flags & MPOOL_OBJ_HAS_CRC) &&
	       (o->flags & (MPOOL_OBJ_COMMITTED | MPOOL_OBJ_SEALED));
}

static void scrub_damage(struct scrub *s, const struct mpool_obj_info *o, const char *what)
{
	struct json *j = &s->ui->js;

	s->damaged++;
	if (s->ui->json) {
		json_obj(j, NULL);
		json_u64(j, "id", o->id);
		json_str(j, "class", mclass_name(o->mclass));
		json_u64(j, "length", o->length);
		json_str(j, "text", what);
		json_end(j);
		return;
	}
	printf("%sdamage%s: object 0x%" PRIx64 ", %s: ", ui_bad(s->ui), ui_plain(s->ui), o->id,
	       mclass_name(o->mclass));
	ui_print(stdout, what);
	putchar('\n');
}

/* Returns 0, or -EINTR when the user wants to stop. */
static int scrub_object(struct scrub *s, const struct mpool_obj_info *o)
{
	struct mpool_obj *obj = NULL;
	uint32_t crc = 0;
	char what[320];
	int rc = mpool_obj_open(s->mp, o->id, &obj);

	if (rc == -ENOENT)
		return 0;
	for (uint64_t off = 0; !rc && off < o->length; off += CHUNK) {
		uint64_t len = o->length - off < CHUNK ? o->length - off : CHUNK;
		struct iovec iov = { .iov_base = s->buf, .iov_len = len };

		if (is_stopped) {
			mpool_obj_close(obj);
			return -EINTR;
		}
		rc = mpool_read(obj, off, &iov, 1);
		crc = rc ? crc : mpool_crc32c(crc, s->buf, len);
		s->bytes += len;
		progress_update(&s->progress, s->bytes);
		throttle(s);
	}
	if (rc) {
		const struct mpool_error *e = mpool_error_detail();

		snprintf(what, sizeof(what), "cannot be read: %s",
			 e->id[0] ? e->text : strerror(-rc));
		scrub_damage(s, o, what);
	} else if (crc != o->crc) {
		snprintf(what, sizeof(what), "its CRC32C is %08x, recorded was %08x", crc, o->crc);
		scrub_damage(s, o, what);
	}
	s->objects++;
	mpool_obj_close(obj);
	return 0;
}

/* One pass over all objects from @from on; without @is_reading only count. */
static int scrub_pass(struct scrub *s, uint64_t from, bool is_reading)
{
	struct mpool_obj_info o[64];
	uint64_t after = from ? from - 1 : 0;
	int n, rc = 0;

	while (!rc && (n = mpool_objects(s->mp, after, 0, o, 64)) != 0) {
		if (n < 0)
			return n;
		for (int i = 0; !rc && i < n; i++) {
			s->next = after = o[i].id;
			if (!is_checkable(&o[i]))
				s->unchecked += is_reading;
			else if (!is_reading)
				s->total += o[i].length;
			else
				rc = scrub_object(s, &o[i]);
		}
	}
	return rc;
}

static int scrub_report(struct scrub *s, const char *word, bool is_complete)
{
	struct json *j = &s->ui->js;
	uint64_t ns = now_ns() - s->begin_ns;
	char size[SIZE_STR], n[SIZE_STR];

	if (s->ui->json) {
		json_end(j);
		json_u64(j, "objects", s->objects);
		json_u64(j, "unchecked", s->unchecked);
		json_u64(j, "bytes", s->bytes);
		json_u64(j, "damaged", s->damaged);
		json_u64(j, "elapsed_ns", ns);
		json_bool(j, "is_complete", is_complete);
		if (is_complete)
			json_null(j, "next");
		else
			json_u64(j, "next", s->next);
		ui_doc_end(s->ui);
	} else if (s->damaged || !s->ui->quiet) {
		printf("%s: %s, %s read, %" PRIu64 " damaged; without a checksum: %" PRIu64 "\n",
		       word, count_str(n, s->objects, "object"), size_str(size, s->bytes),
		       s->damaged, s->unchecked);
	}
	if (!is_complete)
		ui_error(s->ui, EXIT_FAILED, word, NULL,
			 "interrupted; go on with --from 0x%" PRIx64, s->next);
	return s->damaged ? EXIT_DAMAGE : is_complete ? EXIT_DONE : EXIT_FAILED;
}

static int scrub_run(struct scrub *s, const struct target *t, uint64_t from)
{
	int rc = pool_open_rdonly(t->path, &s->mp), code;

	if (rc)
		return ui_fail(s->ui, t->word, rc, mpool_error_detail());
	ui_on_stop(on_signal);
	rc = scrub_pass(s, from, false);
	s->begin_ns = now_ns();
	if (s->ui->json) {
		ui_doc_begin(s->ui, 1, 0);
		json_str(&s->ui->js, "pool", t->word);
		json_arr(&s->ui->js, "findings");
	}
	progress_begin(&s->progress, s->ui, "scrub", s->total, true);
	if (!rc)
		rc = scrub_pass(s, from, true);
	progress_end(&s->progress, s->bytes);
	code = scrub_report(s, t->word, !rc);
	if (rc && rc != -EINTR)
		code = ui_fail(s->ui, t->word, rc, mpool_error_detail());
	mpool_close(s->mp);
	return code;
}

int verb_scrub(struct ui *ui)
{
	const char *from = args_str(ui->args, "from", "0");
	struct scrub s = { .ui = ui, .rate = args_num(ui->args, "rate", 0) };
	struct target t;
	uint64_t id;
	char *end;
	int rc;

	errno = 0;
	id = strtoull(from, &end, 0);
	if (*from < '0' || *from > '9' || *end || errno)
		return ui_usage(ui, "--from: '%s' is no object id", from);
	if (args_has(ui->args, "rate") && !s.rate)
		return ui_usage(ui, "--rate must not be 0");
	if (posix_memalign(&s.buf, MPOOL_ALIGN, CHUNK))
		return ui_error(ui, EXIT_FAILED, NULL, NULL, "out of memory");
	rc = target_open(ui, ui->args->v[0], &t);
	if (!rc)
		rc = scrub_run(&s, &t, id);
	target_close(&t);
	free(s.buf);
	return rc;
}
