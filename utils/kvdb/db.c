/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Verbs on databases: create, verify, drop; and how every verb opens one.
 *
 * A database lives in a pool and is named by the pool's path. Only create and put may
 * make a pool, and they say so; drop never removes one.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "confirm.h"
#include "room.h"
#include "size.h"

#define DEFAULT_SIZE (10ull << 30)

/* ---- opening -------------------------------------------------------------- */

int db_opts(struct ui *ui, struct db_opts *o, unsigned flags)
{
	const char *s = args_str(ui->args, "interval", NULL);
	static const char *const io[] = { "sync", "uring" };
	uint64_t ns;

	*o = (struct db_opts){ .kv = KVDB_OPTS_INIT, .pool = MPOOL_OPEN_OPTS_INIT };
	o->kv.flags = flags | (args_has(ui->args, "time-jump") ? KVDB_TIME_JUMP : 0);
	o->kv.cache_bytes = args_num(ui->args, "cache", 0);
	o->kv.pool = &o->pool;
	if (args_has(ui->args, "io"))
		o->pool.io = io[args_num(ui->args, "io", 0)];
	if (args_has(ui->args, "cache") && o->kv.cache_bytes < (64u << 20))
		return ui_usage(ui, "--cache: at least 64M");
	if (s && !strcmp(s, "none")) {
		o->kv.interval_ms = KVDB_INTERVAL_NONE;
	} else if (s) {
		if (time_parse(s, &ns))
			return ui_usage(ui, "--interval: \"%s\" is not a time such as 100ms", s);
		if (ns < 1000000 || ns / 1000000 >= KVDB_INTERVAL_NONE)
			return ui_usage(ui, "--interval: from 1ms to 49d, or none");
		o->kv.interval_ms = (uint32_t)(ns / 1000000);
	}
	return EXIT_DONE;
}

int db_fail(struct ui *ui, const char *object, int err)
{
	int code = ui_fail(ui, object, err, kvdb_error_detail());

	return err == -E2BIG ? EXIT_USAGE : code;
}

int db_open(struct ui *ui, const char *path, unsigned flags, struct kvdb **out)
{
	struct db_opts o;
	int rc = db_opts(ui, &o, flags);

	if (rc)
		return rc;
	rc = kvdb_open(path, &o.kv, out);
	return rc ? db_fail(ui, path, rc) : EXIT_DONE;
}

int db_busy(struct ui *ui, const char *path)
{
	return ui_error(ui, EXIT_BUSY, path,
			"kvdb checkpoint create DB NAME, then --checkpoint NAME; or close it there",
			"another process has it open and changes what would be read");
}

int db_open_unused(struct ui *ui, const char *path, struct kvdb **out)
{
	struct db_opts o;
	int rc = db_opts(ui, &o, 0);

	if (rc)
		return rc;
	rc = kvdb_open(path, &o.kv, out);
	if (rc == -EBUSY)
		return db_busy(ui, path);
	return rc ? db_fail(ui, path, rc) : EXIT_DONE;
}

int db_open_still(struct ui *ui, const char *path, struct kvdb **out, bool *is_still)
{
	struct db_opts o;
	int rc = db_opts(ui, &o, 0);

	*is_still = false;
	if (rc)
		return rc;
	rc = kvdb_open(path, &o.kv, out);
	if (rc == -EROFS || rc == -EACCES || rc == -EPERM) {
		*is_still = true;
		o.kv.flags |= KVDB_RDONLY;
		rc = kvdb_open(path, &o.kv, out);
	}
	if (rc == -EBUSY)
		return db_busy(ui, path);
	return rc ? db_fail(ui, path, rc) : EXIT_DONE;
}

int db_open_empty(struct ui *ui, const char *path, struct kvdb **out)
{
	int rc = db_open(ui, path, 0, out);

	if (rc || !kvdb_kvs_list(*out, NULL, 0))
		return rc;
	rc = ui_error(ui, EXIT_REFUSED, path, "take a new one: kvdb create",
		      "the database has stores");
	return db_close(ui, path, *out, rc);
}

int db_open_at(struct ui *ui, const char *path, const char *checkpoint, struct kvdb **out)
{
	struct db_opts o;
	int rc = db_opts(ui, &o, KVDB_RDONLY);

	if (rc)
		return rc;
	o.kv.checkpoint = checkpoint;
	rc = kvdb_open(path, &o.kv, out);
	return rc ? db_fail(ui, path, rc) : EXIT_DONE;
}

int db_open_kvs(struct ui *ui, const char *path, const char *name, unsigned flags,
		struct kvdb **db, struct kvdb_kvs **kvs)
{
	int rc = db_open(ui, path, flags, db);

	if (rc)
		return rc;
	rc = kvdb_kvs_open(*db, name, kvs);
	if (!rc)
		return EXIT_DONE;
	rc = db_fail(ui, name, rc);
	kvdb_close(*db);
	return rc;
}

/* It is made when there is none: *@is_made. */
static int open_or_make(struct ui *ui, const char *path, struct kvdb **db, bool *is_made)
{
	struct kvdb_info in;
	struct db_opts o;
	int rc = db_opts(ui, &o, KVDB_CREATE);

	*is_made = false;
	if (rc)
		return rc;
	rc = kvdb_open(path, &o.kv, db);
	if (!rc && !kvdb_info(*db, &in) && in.is_made) {
		*is_made = true;
		ui_note(ui, "made %s: a database in pool %s%s", path, in.pool.name,
			in.pool.cls[MPOOL_CAPACITY].growable ?
			", which grows as it is filled" : "");
	}
	return rc ? db_fail(ui, path, rc) : EXIT_DONE;
}

int db_open_or_make(struct ui *ui, const char *path, const char *name, bool makes_store,
		    struct kvdb **db, struct kvdb_kvs **kvs)
{
	bool is_made;
	int rc = open_or_make(ui, path, db, &is_made);

	if (rc)
		return rc;
	rc = kvdb_kvs_open(*db, name, kvs);
	/* a name that was mistyped is no new store, unless there is none that it could be */
	if (rc == -ENOENT && (is_made || makes_store)) {
		rc = kvdb_kvs_create(*db, name, NULL);
		if (!rc)
			rc = kvdb_kvs_open(*db, name, kvs);
		if (!rc)
			ui_note(ui, "made store %s", name);
	}
	if (!rc)
		return EXIT_DONE;
	rc = db_fail(ui, name, rc);
	kvdb_close(*db);
	return rc;
}

int db_close(struct ui *ui, const char *path, struct kvdb *db, int code)
{
	int rc = kvdb_close(db);

	if (!rc || code)
		return code;
	return db_fail(ui, path, rc);
}

/* last component of a path, for the question before destruction */
static void base_name(const char *path, char buf[256])
{
	size_t end = strlen(path), at;

	while (end > 1 && path[end - 1] == '/')
		end--;
	for (at = end; at && path[at - 1] != '/'; at--)
		;
	if (end - at > 255)
		at = end - 255;
	memcpy(buf, path + at, end - at);
	buf[end - at] = 0;
}

/* ---- create --------------------------------------------------------------- */

const struct opt create_opts[] = {
	{ "size", 0, OPT_SIZE, 0, "SIZE",
	  "capacity of the pool to make, when no pool is at DB (default 10G)", "size", NULL },
	{ "staging-size", 0, OPT_SIZE, 0, "SIZE",
	  "give the new pool a staging class of this size", "staging-size", NULL },
	{ "name", 0, OPT_STR, 0, "NAME", "name of the pool to make, else the last part of DB",
	  "name", NULL },
	{ "segment-size", 0, OPT_SIZE, 0, "SIZE",
	  "log segment size, kept in the database: a multiple of 64K, at most 32M and a quarter "
	  "of --cache (default: by pool size)", "segment-size", NULL },
	{ "space-amp", 0, OPT_STR, 0, "X",
	  "media that may be in use per byte of live keys and values before garbage is moved "
	  "away, kept in the database: 1.1 to 100 (default 1.5)", "space-amp", NULL },
	PLAN_OPT,
	DB_OPTS,
	{ .name = NULL },
};

const char *const class_name[MPOOL_MCLASSES] = { "capacity", "staging" };

/* the pool that create makes; a staging size of 0 is none */
static uint64_t pool_size(struct ui *ui, unsigned c)
{
	return c == MPOOL_CAPACITY ? args_num(ui->args, "size", DEFAULT_SIZE) :
				     args_num(ui->args, "staging-size", 0);
}

static void say_pool(struct ui *ui, const char *path, bool is_plan)
{
	uint64_t staging = pool_size(ui, MPOOL_STAGING);
	char a[SIZE_STR], b[SIZE_STR], file[4096];
	struct room room = { .n = 0 };

	printf("%s pool %s on plain files: capacity %s%s%s\n", is_plan ? "would make" : "made",
	       path, size_str(a, pool_size(ui, MPOOL_CAPACITY)), staging ? ", staging " : "",
	       staging ? size_str(b, staging) : "");
	snprintf(file, sizeof(file), "%s/%s.mp", path, class_name[MPOOL_CAPACITY]);
	room_add(&room, file, pool_size(ui, MPOOL_CAPACITY) + staging);
	room_note(ui, &room);
}

static void json_pool(struct ui *ui, const char *path)
{
	struct json *j = &ui->js;
	char file[4096];
	unsigned c;

	for (c = 0; c < MPOOL_MCLASSES; c++) {
		if (!pool_size(ui, c))
			continue;
		snprintf(file, sizeof(file), "%s/%s.mp", path, class_name[c]);
		json_obj(j, NULL);
		json_str(j, "path", file);
		json_str(j, "class", class_name[c]);
		json_u64(j, "size", pool_size(ui, c));
		json_end(j);
	}
}

static int make_pool(struct ui *ui, const char *path, unsigned flags)
{
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	struct mpool_dev_spec dev[2] = { { .mclass = MPOOL_CAPACITY },
					 { .mclass = MPOOL_STAGING } };
	int rc;

	dev[0].size = pool_size(ui, MPOOL_CAPACITY);
	dev[1].size = pool_size(ui, MPOOL_STAGING);
	o.name = args_str(ui->args, "name", NULL);
	o.flags = flags;
	o.uid = (uint32_t)getuid();
	o.gid = (uint32_t)getgid();
	o.devs = dev;
	o.ndevs = dev[1].size ? 2 : 1;
	rc = mpool_create(path, &o);
	if (rc) {
		struct mpool_error e = *mpool_error_detail();

		ui_pool_name(&e, path, o.name);
		return ui_fail(ui, path, rc, &e);
	}
	return EXIT_DONE;
}

/*
 * What the library would refuse only after the pool was made. Sizes are checked
 * here as they were typed: the library sees them rounded.
 */
static int create_args(struct ui *ui, struct db_opts *o)
{
	const struct args *a = ui->args;
	uint64_t seg = args_num(a, "segment-size", 0), cache = o->kv.cache_bytes;
	static const char *const size[] = { "size", "staging-size" };
	const char *amp = args_str(a, "space-amp", "0");
	char *end;
	unsigned c;

	for (c = 0; c < MPOOL_MCLASSES; c++)
		if (args_has(a, size[c]) && pool_size(ui, c) < MEMBER_MIN)
			return ui_usage(ui, "--%s: '%s' is too small, at least 2M", size[c],
					args_str(a, size[c], ""));
	if (args_has(a, "segment-size") && (!seg || seg % (64 << 10) || seg > (32 << 20)))
		return ui_usage(ui, "--segment-size: '%s' is not a multiple of 64K of at most 32M",
				args_str(a, "segment-size", ""));
	if (cache && seg > cache / 4)
		return ui_usage(ui, "--segment-size: '%s' is more than a quarter of --cache",
				args_str(a, "segment-size", ""));
	o->kv.space_amp_max = strtod(amp, &end);
	if (*end || (args_has(a, "space-amp") &&
		     !(o->kv.space_amp_max >= 1.1 && o->kv.space_amp_max <= 100)))
		return ui_usage(ui, "--space-amp: '%s' is not a number from 1.1 to 100", amp);
	o->kv.segment_bytes = seg;
	return EXIT_DONE;
}

/* 1 a pool is there, 0 none, else a reported exit code negated */
static int pool_exists(struct ui *ui, const char *path, const struct mpool_open_opts *po)
{
	struct mpool_open_opts o = *po;
	struct mpool *mp;
	int rc;

	o.flags |= MPOOL_OPEN_RDONLY;
	rc = mpool_open(path, &o, &mp);
	/* files without a signature: a create that was cut, or mpool_create() refuses them */
	if (rc == -ENOENT || (rc && !strcmp(mpool_error_detail()->id, "MP0101")))
		return 0;
	if (rc)
		return -ui_fail(ui, path, rc, mpool_error_detail());
	mpool_close(mp);
	return 1;
}

static int create_result(struct ui *ui, const char *path, bool has_made_pool, bool is_plan)
{
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "db", path);
		json_bool(&ui->js, "made_pool", has_made_pool);
		json_bool(&ui->js, "plan", is_plan);
		json_arr(&ui->js, "devices");
		if (has_made_pool)
			json_pool(ui, path);
		json_end(&ui->js);
		ui_doc_end(ui);
	} else if (!ui->quiet) {
		if (has_made_pool)
			say_pool(ui, path, is_plan);
		printf("%s database %s\n", is_plan ? "would make" : "made", path);
	}
	return EXIT_DONE;
}

/* a database is there already: the plan must fail as the deed would */
static int plan_in_pool(struct ui *ui, const char *path, const struct db_opts *o)
{
	struct db_opts ro = *o;
	struct kvdb *db;
	int rc;

	ro.kv.pool = &ro.pool;
	ro.kv.flags |= KVDB_RDONLY;
	rc = kvdb_open(path, &ro.kv, &db);
	if (!rc) {
		kvdb_close(db);
		return ui_error(ui, EXIT_REFUSED, path, "kvdb drop removes it",
				"the pool holds a database already");
	}
	return rc == -ENOENT ? EXIT_DONE : db_fail(ui, path, rc);
}

/* The members of a pool that is there, all of a class together. */
static int plan_sizes(struct ui *ui, const char *path, const struct db_opts *o, uint64_t *size)
{
	struct mpool_open_opts ro = o->pool;
	struct mpool_dev_info dev;
	struct mpool *mp;
	int rc;

	ro.flags |= MPOOL_OPEN_RDONLY;
	rc = mpool_open(path, &ro, &mp);
	if (rc)
		return ui_fail(ui, path, rc, mpool_error_detail());
	for (unsigned i = 0; !mpool_dev_info(mp, i, &dev); i++)
		size[dev.mclass] += dev.size;
	mpool_close(mp);
	return EXIT_DONE;
}

/* As the deed would end, and nothing is written. */
static int create_plan(struct ui *ui, const char *path, const struct db_opts *o, bool is_there)
{
	uint64_t size[MPOOL_MCLASSES] = { 0 };
	int rc;

	if (is_there) {
		rc = plan_in_pool(ui, path, o);
		if (!rc)
			rc = plan_sizes(ui, path, o, size);
	} else {
		rc = make_pool(ui, path, MPOOL_CREATE_PLAN);
		for (unsigned c = 0; c < MPOOL_MCLASSES; c++)
			size[c] = pool_size(ui, c);
	}
	if (!rc)
		rc = trial_create(ui, path, o, size);
	return rc ? rc : create_result(ui, path, !is_there, true);
}

int verb_create(struct ui *ui)
{
	const char *path = ui->args->v[0];
	bool is_plan = args_has(ui->args, "dry-run"), has_made = false;
	struct db_opts o;
	int rc = db_opts(ui, &o, 0), there;

	if (!rc)
		rc = create_args(ui, &o);
	if (rc)
		return rc;
	there = pool_exists(ui, path, &o.pool);
	if (there < 0)
		return -there;
	if (there && (args_has(ui->args, "size") || args_has(ui->args, "staging-size") ||
		      args_has(ui->args, "name")))
		return ui_usage(ui, "%s is a pool already: --size, --staging-size and --name are "
				"for making one; without them a database is made in it", path);
	if (is_plan)
		return create_plan(ui, path, &o, there);
	if (!there) {
		rc = make_pool(ui, path, 0);
		if (rc)
			return rc;
		has_made = true;
	}
	rc = kvdb_create(path, &o.kv);
	if (rc) {
		int code = db_fail(ui, path, rc);

		/* another process that makes one in the new pool meanwhile keeps it */
		if (has_made && rc != -EEXIST && rc != -EBUSY && mpool_destroy(path, &o.pool))
			ui_note(ui, "the new pool %s is left behind; mpool destroy removes it",
				path);
		return code;
	}
	return create_result(ui, path, has_made, false);
}

/* ---- verify --------------------------------------------------------------- */

const struct opt verify_opts[] = {
	{ "data", 0, OPT_FLAG, 0, NULL, "read every value and check its checksum", NULL, NULL },
	{ "deep", 0, OPT_FLAG, 0, NULL,
	  "that, and name the keys behind each damage, check filters and counts, and name objects "
	  "that nothing refers to", NULL, NULL },
	{ "checkpoint", 0, OPT_STR, 0, "NAME",
	  "check what this checkpoint lists; the database may be in use", NULL, NULL },
	DB_OPTS,
	{ .name = NULL },
};

static void finding_json(struct json *j, const struct kvdb_problem *kp)
{
	json_obj(j, NULL);
	json_str(j, "id", kp->p.id);
	json_str(j, "text", kp->p.text);
	json_bool(j, "is_damage", kp->p.is_damage);
	json_str(j, "kvs", kp->kvs);
	if (kp->object) {
		json_u64(j, "object", kp->object);
		json_u64(j, "offset", kp->offset);
	}
	if (kp->from)
		json_bytes(j, "from", "from_hex", kp->from, kp->flen);
	if (kp->to)
		json_bytes(j, "to", "to_hex", kp->to, kp->tlen);
	if (kp->keys)
		json_u64(j, "keys", kp->keys);
	json_end(j);
}

void finding(void *arg, const struct mpool_problem *p)
{
	const struct kvdb_problem *kp = (const struct kvdb_problem *)p;
	struct ui *ui = arg;

	if (ui->json) {
		finding_json(&ui->js, kp);
		return;
	}
	printf("%s%s%s: ", p->is_damage ? ui_bad(ui) : "", p->is_damage ? "damage" : "note",
	       p->is_damage ? ui_plain(ui) : "");
	if (kp->kvs)
		printf("store %s: ", kp->kvs);
	ui_print(stdout, p->text);
	if (kp->from) {
		printf("; keys from '");
		esc_print(stdout, kp->from, kp->flen);
		printf(kp->to ? "' to below '" : "' on");
		if (kp->to)
			esc_print(stdout, kp->to, kp->tlen);
		printf(kp->to ? "'" : "");
	}
	printf(" [%s]\n", p->id);
}

int verb_verify(struct ui *ui)
{
	const char *path = ui->args->v[0];
	bool is_deep = args_has(ui->args, "deep"), is_data = is_deep || args_has(ui->args, "data");
	unsigned flags = is_deep ? KVDB_VERIFY_DEEP : is_data ? MPOOL_VERIFY_DATA : 0;
	struct db_opts o;
	uint64_t damage = 0;
	int rc = db_opts(ui, &o, 0);

	if (rc)
		return rc;
	o.kv.checkpoint = args_str(ui->args, "checkpoint", NULL);
	if (o.kv.checkpoint)
		o.kv.flags |= KVDB_RDONLY;
	if (ui->json) {
		ui_doc_begin(ui, 1, 1);
		json_str(&ui->js, "db", path);
		json_str(&ui->js, "checkpoint", o.kv.checkpoint);
		json_bool(&ui->js, "data", is_data);
		json_bool(&ui->js, "deep", is_deep);
		json_arr(&ui->js, "findings");
	}
	rc = kvdb_verify(path, &o.kv, flags, finding, ui, &damage);
	if (ui->json) {
		json_end(&ui->js);
		json_u64(&ui->js, "damage", damage);
		json_bool(&ui->js, "is_clean", !rc && !damage);
		ui_doc_end(ui);
	}
	if (rc == -EBUSY && !o.kv.checkpoint)
		return db_busy(ui, path);
	if (rc)
		return db_fail(ui, path, rc);
	if (!ui->json && !ui->quiet)
		printf(damage ? "%s: %" PRIu64 " damaged\n" : "%s: clean\n", path, damage);
	return damage ? EXIT_DAMAGE : EXIT_DONE;
}

/* ---- drop ----------------------------------------------------------------- */

const struct opt drop_opts[] = { CONFIRM_OPTS, PLAN_OPT, DB_OPTS, { .name = NULL } };

/* What is to go: about so many keys, or what damage keeps from being counted. */
struct content {
	bool is_known;
	uint64_t keys;
	char pool[256]; /* its name, or of one that cannot tell it the last part of the path */
};

static int content_read(struct ui *ui, const char *path, struct content *c)
{
	struct kvdb_stats st;
	struct kvdb_info in;
	struct db_opts o;
	struct kvdb *db;
	int rc = db_opts(ui, &o, KVDB_RDONLY);

	*c = (struct content){ .is_known = false };
	base_name(path, c->pool);
	if (rc)
		return rc;
	rc = kvdb_open(path, &o.kv, &db);
	/* it may be replaced from a backup; a pool that is damaged lets nothing go */
	if (rc == -EUCLEAN) {
		rc = pool_exists(ui, path, &o.pool);
		return rc < 0 ? -rc : EXIT_DONE;
	}
	if (rc)
		return db_fail(ui, path, rc);
	rc = kvdb_stats(db, &st);
	if (!rc)
		rc = kvdb_info(db, &in);
	if (!rc) {
		c->is_known = true;
		c->keys = st.keys_estimate;
		snprintf(c->pool, sizeof(c->pool), "%s", in.pool.name);
	}
	kvdb_close(db);
	return rc ? db_fail(ui, path, rc) : EXIT_DONE;
}

static int drop_result(struct ui *ui, const char *path, const struct content *c, bool is_plan)
{
	char n[SIZE_STR];

	if (ui->json) {
		ui_doc_begin(ui, 1, 1);
		json_str(&ui->js, "db", path);
		json_bool(&ui->js, "plan", is_plan);
		if (c->is_known)
			json_u64(&ui->js, "keys_estimate", c->keys);
		else
			json_null(&ui->js, "keys_estimate");
		ui_doc_end(ui);
	} else if (!ui->quiet) {
		printf("%s database %s: %s%s; the pool stays\n",
		       is_plan ? "would remove" : "removed", path, c->is_known ? "about " : "",
		       c->is_known ? count_str(n, c->keys, "key") : "damaged");
	}
	return EXIT_DONE;
}

int verb_drop(struct ui *ui)
{
	const char *path = ui->args->v[0];
	struct content c;
	struct db_opts o;
	char what[80], n[SIZE_STR];
	int rc = content_read(ui, path, &c);

	if (rc)
		return rc;
	if (args_has(ui->args, "dry-run"))
		return drop_result(ui, path, &c, true);
	snprintf(what, sizeof(what), c.is_known ? "the database with about %s in it" :
		 "the database, which is damaged", count_str(n, c.keys, "key"));
	rc = confirm(ui, path, what, c.pool);
	if (!rc)
		rc = db_opts(ui, &o, 0);
	if (rc)
		return rc;
	rc = kvdb_drop(path, &o.kv);
	return rc ? db_fail(ui, path, rc) : drop_result(ui, path, &c, false);
}
