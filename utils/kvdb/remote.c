/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A database that another process has open, by its control socket.
 *
 * The socket's name is made of the pool's uuid, which stands in its description,
 * and its folder; where it lies is written in libkvdb/ctl/ctl.c. The directories of
 * the pool's owner are searched too, for root. A process that answers must be the
 * pool owner's, ours, or root's: a name below /tmp could be any user's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctlsock.h"
#include "remote.h"
#include "size.h"
#include "utf8.h"

#define ANSWER_MAX (8u << 20)
#define CONFIG_MAX (1u << 20)
#define WAIT_S     600 /* a compaction or sync takes its time */
#define ERR_MAX    4095 /* largest errno */
#define CALL_S     5   /* until there is a place in the listener's queue */

/* The folder may belong to any user: only a file is read, and no huge one. */
static int config_read(const char *path, uid_t *owner, struct json_object **root)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	*root = NULL;
	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= CONFIG_MAX) {
		*owner = st.st_uid;
		*root = json_object_from_fd(fd);
	}
	close(fd);
	return *root ? 0 : -EINVAL;
}

#define FOLDER_STR 40

/* What stands behind the uuid: a copy of the pool is in another folder. */
static void folder_str(char s[FOLDER_STR], const char *path)
{
	struct stat st;

	s[0] = '\0';
	if (strchr(path, '/') && !stat(path, &st) && S_ISDIR(st.st_mode))
		snprintf(s, FOLDER_STR, "-%llx-%llx", (unsigned long long)st.st_dev,
			 (unsigned long long)st.st_ino);
}

/* The uuid of the pool at @path without opening it (a writer has it). */
static int pool_uuid(const char *path, char uuid[UUID_STR], uid_t *owner)
{
	struct mpool_open_opts o = MPOOL_OPEN_OPTS_INIT;
	struct json_object *root, *v;
	struct mpool_info in;
	char file[4200];
	struct mpool *mp;
	int rc;

	*owner = geteuid();
	if (!strchr(path, '/')) {
		o.flags = MPOOL_OPEN_RDONLY;
		rc = mpool_open(path, &o, &mp);
		if (rc)
			return rc;
		rc = mpool_info(mp, &in);
		mpool_close(mp);
		if (!rc)
			uuid_str(uuid, in.uuid);
		return rc;
	}
	snprintf(file, sizeof(file), "%s/pool.json", path);
	rc = config_read(file, owner, &root);
	if (rc)
		return rc;
	rc = -EINVAL;
	if (json_object_object_get_ex(root, "uuid", &v) &&
	    json_object_get_string_len(v) == UUID_STR - 1) {
		memcpy(uuid, json_object_get_string(v), UUID_STR);
		rc = strspn(uuid, "0123456789abcdef-") == UUID_STR - 1 ? 0 : -EINVAL;
	}
	json_object_put(root);
	return rc;
}

static int plug(const char *dir, const char *name, uid_t owner)
{
	char path[4400];

	snprintf(path, sizeof(path), "%s/%s.sock", dir, name);
	return ctlsock_open(path, owner, CALL_S, WAIT_S);
}

int remote_open(const char *path, struct remote *r)
{
	const char *xdg = secure_getenv("XDG_RUNTIME_DIR");
	uid_t who[2] = { geteuid(), 0 };
	char name[UUID_STR + FOLDER_STR], dir[4200];
	int rc = pool_uuid(path, name, &who[1]), i, best = -ENOENT;

	*r = (struct remote){ .fd = -1 };
	if (rc)
		return rc;
	folder_str(name + strlen(name), path);
	if (xdg && *xdg == '/') {
		snprintf(dir, sizeof(dir), "%s/kvdb", xdg);
		rc = plug(dir, name, who[1]);
	} else {
		rc = plug("/run/kvdb", name, who[1]);
	}
	for (i = 0; i < 6 && rc < 0; i++) {
		unsigned uid = (unsigned)who[i / 3];

		/* one is there that does not answer us: reported when no other is found */
		best = rc != -ENOENT && rc != -ECONNREFUSED ? rc : best;
		snprintf(dir, sizeof(dir), i % 3 == 0 ? "/run/user/%u/kvdb" : i % 3 == 1 ?
			 "/tmp/kvdb-%u" : "/run/kvdb", uid);
		rc = plug(dir, name, who[1]);
	}
	if (rc < 0)
		return best;
	r->fd = rc;
	return 0;
}

void remote_close(struct remote *r)
{
	if (r->fd >= 0)
		close(r->fd);
	bytes_free(&r->in);
	r->fd = -1;
}

static int send_all(int fd, const char *p, size_t len)
{
	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* One line, without its newline and ended by NUL. */
static int hear(struct remote *r)
{
	char chunk[16384];
	ssize_t n;

	r->in.len = 0;
	while (r->in.len < ANSWER_MAX) {
		n = recv(r->fd, chunk, sizeof(chunk), 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			return -EPIPE;
		if (bytes_add(&r->in, chunk, (size_t)n))
			return -ENOMEM;
		/* one request, one line: nothing follows it */
		if (chunk[n - 1] == '\n') {
			r->in.p[r->in.len - 1] = 0;
			return 0;
		}
	}
	return -EMSGSIZE;
}

/* ---- members of answers ------------------------------------------------------- */

static struct json_object *member(struct json_object *o, const char *name)
{
	struct json_object *v = NULL;

	if (json_object_is_type(o, json_type_object))
		json_object_object_get_ex(o, name, &v);
	return v;
}

/* Of an array alone: json-c stops the program when it is asked for an item of another kind. */
static struct json_object *list(struct json_object *o, const char *name)
{
	struct json_object *v = member(o, name);

	return json_object_is_type(v, json_type_array) ? v : NULL;
}

uint64_t remote_num(struct json_object *o, const char *name)
{
	return json_object_get_uint64(member(o, name));
}

bool remote_bool(struct json_object *o, const char *name)
{
	return json_object_get_boolean(member(o, name));
}

int remote_err(struct json_object *o, const char *name)
{
	int64_t err = json_object_get_int64(member(o, name));

	return err <= 0 && err >= -ERR_MAX ? (int)err : -EIO;
}

const char *remote_str(struct json_object *o, const char *name)
{
	struct json_object *v = member(o, name);

	return json_object_is_type(v, json_type_string) ? json_object_get_string(v) : "";
}

size_t remote_count(struct json_object *o, const char *name)
{
	struct json_object *v = list(o, name);

	return v ? json_object_array_length(v) : 0;
}

struct json_object *remote_item(struct json_object *o, const char *name, size_t i)
{
	struct json_object *v = list(o, name);

	return v ? json_object_array_get_idx(v, i) : NULL;
}

/* The owner of the pool may answer, also to root: the words drive no terminal. */
static void words(char *to, size_t size, struct json_object *o, const char *name)
{
	snprintf(to, size, "%s", remote_str(o, name));
	utf8_clean(to);
}

/* The process's refusal, as if the library had been called here. */
static int refused(struct ui *ui, const char *object, struct json_object *doc)
{
	struct json_object *e = member(doc, "error");
	struct mpool_error me = { 0 };

	words(me.id, sizeof(me.id), e, "id");
	words(me.text, sizeof(me.text), e, "text");
	words(me.cure, sizeof(me.cure), e, "cure");
	me.err = remote_err(e, "err");
	return ui_fail(ui, object, me.err ? me.err : -EIO, &me);
}

int remote_ask(struct ui *ui, struct remote *r, const char *object, struct json_object *request,
	       struct json_object **out)
{
	const char *line = json_object_to_json_string_ext(request, JSON_C_TO_STRING_PLAIN |
							  JSON_C_TO_STRING_NOSLASHESCAPE);
	struct json_object *doc = NULL;
	int rc = send_all(r->fd, line, strlen(line)), heard;

	if (!rc)
		rc = send_all(r->fd, "\n", 1);
	/* a refused client may have been disconnected before it asked */
	heard = rc && rc != -EPIPE ? rc : hear(r);
	json_object_put(request);
	if (!heard)
		doc = json_tokener_parse((char *)r->in.p);
	if (!heard && !member(doc, "ok")) {
		json_object_put(doc);
		heard = -EBADMSG;
	}
	if (heard)
		return ui_error(ui, EXIT_FAILED, object, "it may have been closed meanwhile: try "
				"again", "the process that has it open gave no answer: %s",
				heard == -EPIPE ? "it hung up" : strerror(-heard));
	if (!remote_bool(doc, "ok")) {
		rc = refused(ui, object, doc);
		json_object_put(doc);
		return rc;
	}
	*out = doc;
	return EXIT_DONE;
}

struct json_object *remote_request(const char *cmd)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "cmd", json_object_new_string(cmd));
	return o;
}

void remote_add(struct json_object *request, const char *name, const char *value)
{
	if (value)
		json_object_object_add(request, name, json_object_new_string(value));
}

/* ---- what an answer says -------------------------------------------------------- */

static void uuid_parse(const char *s, uint8_t uuid[16])
{
	unsigned i = 0, v;

	while (*s && i < 16) {
		if (*s == '-')
			s++;
		if (sscanf(s, "%2x", &v) != 1 || !s[0] || !s[1])
			return;
		uuid[i++] = (uint8_t)v;
		s += 2;
	}
}

void remote_info(struct json_object *o, struct kvdb_info *in)
{
	struct json_object *pool = member(o, "pool");
	unsigned c;

	memset(in, 0, sizeof(*in));
	uuid_parse(remote_str(o, "uuid"), in->uuid);
	in->format_version = (uint32_t)remote_num(o, "format_version");
	in->kvs = (uint32_t)remote_num(o, "kvs");
	in->interval_ms = (uint32_t)remote_num(o, "interval_ms");
	in->commit = (uint32_t)remote_num(o, "commit");
	in->logs = (uint32_t)remote_num(o, "logs");
	in->is_rdonly = (uint32_t)remote_num(o, "is_rdonly");
	in->cache_bytes = remote_num(o, "cache_bytes");
	in->log_bytes = remote_num(o, "log_bytes");
	in->segment_bytes = remote_num(o, "segment_bytes");
	in->space_amp_max = (double)remote_num(o, "space_amp_max_percent") / 100;
	words(in->fault, sizeof(in->fault), o, "fault");
	words(in->stuck_text, sizeof(in->stuck_text), o, "stuck_text");
	in->stuck = remote_num(o, "stuck");
	in->stuck_ns = remote_num(o, "stuck_ns");
	words(in->pool.name, sizeof(in->pool.name), pool, "name");
	words(in->pool.io, sizeof(in->pool.io), pool, "io");
	uuid_parse(remote_str(pool, "uuid"), in->pool.uuid);
	in->pool.is_direct = remote_bool(pool, "is_direct");
	for (c = 0; c < MPOOL_MCLASSES; c++) {
		struct json_object *k = remote_item(pool, "classes", c);

		in->pool.cls[c].devs = (uint32_t)remote_num(k, "devices");
		in->pool.cls[c].total = remote_num(k, "total");
		in->pool.cls[c].used = remote_num(k, "used");
		in->pool.cls[c].free = remote_num(k, "free");
	}
}

unsigned remote_devices(struct json_object *o, struct mpool_dev_info *out, unsigned max)
{
	size_t devs = remote_count(o, "devices");
	unsigned n;

	for (n = 0; n < max && n < devs; n++) {
		struct json_object *k = remote_item(o, "devices", n);
		struct mpool_dev_info *d = &out[n];

		memset(d, 0, sizeof(*d));
		words(d->path, sizeof(d->path), k, "path");
		d->mclass = !strcmp(remote_str(k, "class"), "staging");
		d->slot = (uint32_t)remote_num(k, "slot");
		d->reads = remote_num(k, "reads");
		d->writes = remote_num(k, "writes");
		d->flushes = remote_num(k, "flushes");
		d->errors = remote_num(k, "errors");
		d->has_health = remote_bool(k, "has_health");
		d->csum_errors = remote_num(k, "csum_errors");
		d->rereads = remote_num(k, "rereads");
		d->repairs = remote_num(k, "repairs");
	}
	return n;
}

void remote_stats(struct json_object *o, struct kvdb_stats *st)
{
	struct json_object *r = member(o, "recovery");
	unsigned c;

	memset(st, 0, sizeof(*st));
#define X(f) st->f = remote_num(o, #f);
	KVDB_STATS_FIELDS(X)
#undef X
	for (c = 0; c < MPOOL_MCLASSES; c++) {
		struct json_object *k = remote_item(o, "io", c);

#define X(f) st->io[c].f = remote_num(k, #f);
		KVDB_IO_FIELDS(X)
#undef X
	}
	for (c = 0; c < MPOOL_MCLASSES; c++) {
		struct json_object *k = remote_item(o, "space", c);

		st->space[c].segment_bytes = remote_num(k, "segment_bytes");
		st->space[c].live_value_bytes = remote_num(k, "live_value_bytes");
		st->space[c].dead_value_bytes = remote_num(k, "dead_value_bytes");
	}
	for (c = 0; c < KVDB_DELAYS; c++) {
		struct json_object *k = remote_item(o, "delays", c);

		st->delay[c].waits = remote_num(k, "waits");
		st->delay[c].ns = remote_num(k, "ns");
		st->delay[c].max_ns = remote_num(k, "max_ns");
	}
	st->recovery.was_clean = (uint32_t)remote_num(r, "was_clean");
	st->recovery.incarnation = (uint32_t)remote_num(r, "incarnation");
	st->recovery.durable_epoch = remote_num(r, "durable_epoch");
	st->recovery.segments = remote_num(r, "segments");
	st->recovery.frames = remote_num(r, "frames");
	st->recovery.records = remote_num(r, "records");
	st->recovery.bytes = remote_num(r, "bytes");
	st->recovery.replayed = remote_num(r, "replayed");
	st->recovery.discarded = remote_num(r, "discarded");
	st->recovery.elapsed_ns = remote_num(r, "elapsed_ns");
}
