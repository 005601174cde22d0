/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Verbs on stores: kvs create, drop, list, rename, info; and tree, the shape of
 * a store.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "confirm.h"
#include "remote.h"
#include "size.h"
#include "table.h"

const struct opt kvs_opts[] = { DB_OPTS, { .name = NULL } };
const struct opt kvs_create_opts[] = {
	{ "prefix-len", 0, OPT_UINT, 0, "N",
	  "bytes of a key's prefix that deletes by prefix name; fixed for the store's life",
	  "prefix-len", NULL },
	KVS_OPTS,
	DB_OPTS,
	{ .name = NULL },
};
const struct opt kvs_drop_opts[] = { CONFIRM_OPTS, PLAN_OPT, DB_OPTS, { .name = NULL } };
const struct opt kvs_list_opts[] = { TBL_OPTS, DB_OPTS, { .name = NULL } };
const struct opt tree_opts[] = { TBL_OPTS, DB_OPTS, { .name = NULL } };

/* ---- the shape of a store --------------------------------------------------- */

int shape_read(struct kvdb *db, const char *name, struct shape *s)
{
	int n = kvdb_tree(db, name, NULL, 0);

	*s = (struct shape){ 0 };
	while (n > 0) {
		struct kvdb_tree_part *p = calloc((size_t)n, sizeof(*p));
		unsigned max = (unsigned)n;

		if (!p)
			return -ENOMEM;
		n = kvdb_tree(db, name, p, max);
		/* a flush meanwhile may have made it longer */
		if (n >= 0 && (unsigned)n <= max) {
			s->part = p;
			s->n = (unsigned)n;
			return 0;
		}
		free(p);
	}
	return n;
}

void shape_sum(const struct shape *s, struct shape_sum *sum)
{
	*sum = (struct shape_sum){ 0 };
	for (unsigned i = 0; i < s->n; i++) {
		const struct kvdb_tree_part *p = &s->part[i];

		sum->keys += p->keys;
		sum->tombs += p->tombs;
		sum->value_bytes += p->value_bytes;
		if (p->kind == KVDB_PART_RUN) {
			sum->runs++;
			sum->key_bytes += p->bytes;
			sum->index_bytes += p->index_bytes;
		} else {
			sum->memtables++;
			sum->memtable_bytes += p->bytes;
		}
	}
}

/* ---- options ------------------------------------------------------------------ */

int kvs_args(struct ui *ui, struct kvdb_kvs_opts *o, unsigned *mask)
{
	const struct args *a = ui->args;
	uint64_t ns;

	*o = (struct kvdb_kvs_opts)KVDB_KVS_OPTS_INIT;
	*mask = 0;
	if (args_num(a, "prefix-len", 0) > KVDB_KEY_MAX)
		return ui_usage(ui, "--prefix-len: a key has at most %u bytes", KVDB_KEY_MAX);
	o->pfx_len = (uint32_t)args_num(a, "prefix-len", 0);
	if (args_has(a, "ttl")) {
		ns = args_num(a, "ttl", 0);
		if (ns % 1000000000u || ns / 1000000000u > KVDB_TTL_MAX)
			return ui_usage(ui, "--ttl: whole seconds, at most a hundred years");
		o->ttl_s = ns / 1000000000u;
		*mask |= KVDB_KVS_TTL;
	}
	if (args_has(a, "policy")) {
		o->policy = (uint32_t)args_num(a, "policy", 0);
		*mask |= KVDB_KVS_POLICY;
	}
	if (args_has(a, "compress")) {
		o->compress = (uint32_t)args_num(a, "compress", 0);
		*mask |= KVDB_KVS_COMPRESS;
	}
	return EXIT_DONE;
}

/* ---- create, drop, rename --------------------------------------------------- */

int verb_kvs_create(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	struct kvdb_kvs_opts o;
	struct kvdb *db;
	unsigned mask;
	int rc = kvs_args(ui, &o, &mask);

	if (!rc)
		rc = db_open(ui, path, 0, &db);
	if (rc)
		return rc;
	rc = kvdb_kvs_create(db, name, &o);
	rc = db_close(ui, path, db, rc ? db_fail(ui, name, rc) : EXIT_DONE);
	if (!rc && ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "db", path);
		json_str(&ui->js, "kvs", name);
		ui_doc_end(ui);
	}
	return rc;
}

static int kvs_drop_result(struct ui *ui, const char *path, const char *name, bool is_plan)
{
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "db", path);
		json_str(&ui->js, "kvs", name);
		json_bool(&ui->js, "plan", is_plan);
		ui_doc_end(ui);
	} else if (!ui->quiet) {
		printf("%s store %s of database %s\n", is_plan ? "would remove" : "removed", name,
		       path);
	}
	return EXIT_DONE;
}

int verb_kvs_drop(struct ui *ui)
{
	const char *path = ui->args->v[0], *name = ui->args->v[1];
	bool is_plan = args_has(ui->args, "dry-run");
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	int rc = db_open_kvs(ui, path, name, is_plan ? KVDB_RDONLY : 0, &db, &kvs);

	if (rc)
		return rc;
	if (!is_plan)
		rc = confirm(ui, name, "the store and everything in it", name);
	if (!rc && !is_plan) {
		rc = kvdb_kvs_drop(db, name);
		if (rc)
			rc = db_fail(ui, name, rc);
	}
	rc = db_close(ui, path, db, rc);
	return rc ? rc : kvs_drop_result(ui, path, name, is_plan);
}

int verb_kvs_rename(struct ui *ui)
{
	const char *path = ui->args->v[0], *from = ui->args->v[1], *to = ui->args->v[2];
	struct kvdb *db;
	int rc = db_open(ui, path, 0, &db);

	if (rc)
		return rc;
	rc = kvdb_kvs_rename(db, from, to);
	/* the name that is wrong is the one to show */
	rc = db_close(ui, path, db, rc ? db_fail(ui, rc == -ENOENT ? from : to, rc) : EXIT_DONE);
	if (rc)
		return rc;
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_str(&ui->js, "db", path);
		json_str(&ui->js, "from", from);
		json_str(&ui->js, "to", to);
		ui_doc_end(ui);
	} else if (!ui->quiet) {
		printf("store %s of database %s is now %s\n", from, path, to);
	}
	return EXIT_DONE;
}

/* ---- list, info -------------------------------------------------------------- */

static const struct col kvs_cols[] = {
	{ "name", COL_STR, true, "name of the store" },
	{ "keys", COL_COUNT, true, "keys, about: overwritten and deleted ones count until merged" },
	{ "runs", COL_COUNT, true, "sorted lists of keys on media" },
	{ "values", COL_SIZE, true, "values outside of memtables that runs refer to" },
	{ "keybytes", COL_SIZE, true, "media taken by runs" },
	{ "memtable", COL_SIZE, true, "memory of records not yet in runs" },
	{ "index", COL_SIZE, false, "memory that runs pin: fences and filters" },
	{ "tombs", COL_COUNT, false, "deletions among the keys of runs" },
	{ "memtables", COL_COUNT, false, "memtables, the active one included" },
	{ NULL, 0, false, NULL },
};

static void kvs_row(struct tbl *t, const char *name, const struct shape_sum *s)
{
	tbl_row(t);
	tbl_str(t, "name", name);
	tbl_num(t, "keys", s->keys);
	tbl_num(t, "runs", s->runs);
	tbl_num(t, "values", s->value_bytes);
	tbl_num(t, "keybytes", s->key_bytes);
	tbl_num(t, "memtable", s->memtable_bytes);
	tbl_num(t, "index", s->index_bytes);
	tbl_num(t, "tombs", s->tombs);
	tbl_num(t, "memtables", s->memtables);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

int kvs_names(struct kvdb *db, char (**names)[KVDB_NAME_MAX + 1])
{
	static char all[KVDB_KVS_MAX][KVDB_NAME_MAX + 1];
	int n = kvdb_kvs_list(db, all, KVDB_KVS_MAX);

	if (n > 0)
		qsort(all, (size_t)n, sizeof(all[0]), by_name);
	*names = all;
	return n;
}

static int kvs_rows(struct view *v, struct tbl *t)
{
	char (*names)[KVDB_NAME_MAX + 1];
	int n = view_names(v, &names), i, rc;
	struct shape_sum sum;
	struct shape s;

	if (n < 0)
		return -n;
	for (i = 0; i < n; i++) {
		rc = view_shape(v, names[i], &s);
		if (rc)
			return rc;
		shape_sum(&s, &sum);
		free(s.part);
		kvs_row(t, names[i], &sum);
	}
	if (!n)
		ui_note(v->ui, "the database has no store; kvdb kvs create makes one");
	return EXIT_DONE;
}

/* The whole of kvs list and tree: rows from @fill, printed as array @key. */
static int print_view(struct ui *ui, const struct col *cols, const char *key, unsigned minor,
		      int (*fill)(struct view *v, struct tbl *t))
{
	struct view v;
	struct tbl *t;
	int rc;

	t = tbl_new(ui, cols, &rc);
	if (!t)
		return rc;
	rc = view_open(ui, ui->args->v[0], &v);
	if (rc) {
		tbl_free(t);
		return rc;
	}
	rc = fill(&v, t);
	if (rc) {
		tbl_free(t);
		return view_close(&v, rc);
	}
	if (ui->json) {
		ui_doc_begin(ui, 1, minor);
		json_str(&ui->js, "db", v.path);
	}
	tbl_print(t, key);
	if (ui->json)
		ui_doc_end(ui);
	return view_close(&v, EXIT_DONE);
}

int verb_kvs_list(struct ui *ui)
{
	return print_view(ui, kvs_cols, "kvs", 1, kvs_rows);
}

static const char *const policy_name[] = {
	[KVDB_POLICY_DEFAULT] = "default",
	[KVDB_POLICY_STAGING_ONLY] = "staging_only",
	[KVDB_POLICY_STAGING_PREF] = "staging_pref",
	[KVDB_POLICY_TIERED] = "tiered",
	[KVDB_POLICY_CAPACITY_ONLY] = "capacity_only",
};
static const char *const compress_name[] = {
	[KVDB_COMPRESS_NONE] = "none",
	[KVDB_COMPRESS_LZ4] = "lz4",
	[KVDB_COMPRESS_ZSTD] = "zstd",
};

static const char *name_of(const char *const *list, size_t n, uint32_t i)
{
	return i < n ? list[i] : "unknown";
}
#define NAME_OF(list, i) name_of(list, sizeof(list) / sizeof(list[0]), i)

const char *kvs_compress_str(uint32_t how)
{
	return NAME_OF(compress_name, how);
}

void kvs_opts_json(struct json *j, const struct kvdb_kvs_info *in)
{
	json_u64(j, "prefix_len", in->pfx_len);
	json_u64(j, "ttl_s", in->ttl_s);
	json_str(j, "policy", NAME_OF(policy_name, in->policy));
	json_str(j, "compress", kvs_compress_str(in->compress));
}

static bool number_of(const char *const *list, size_t n, const char *name, uint32_t *out)
{
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(list[i], name))
			continue;
		*out = i;
		return true;
	}
	return false;
}
#define NUMBER_OF(list, name, out) number_of(list, sizeof(list) / sizeof(list[0]), name, out)

bool kvs_policy_of(const char *name, uint32_t *out)
{
	return NUMBER_OF(policy_name, name, out);
}

bool kvs_compress_of(const char *name, uint32_t *out)
{
	return NUMBER_OF(compress_name, name, out);
}

static void kvs_info_json(struct ui *ui, const struct kvdb_kvs_info *in,
			  const struct shape_sum *s)
{
	struct json *j = &ui->js;

	ui_doc_begin(ui, 1, 0);
	json_str(j, "db", ui->args->v[0]);
	json_str(j, "kvs", in->name);
	kvs_opts_json(j, in);
	json_u64(j, "keys_estimate", s->keys);
	json_u64(j, "deletions", s->tombs);
	json_u64(j, "memtables", s->memtables);
	json_u64(j, "memtable_bytes", s->memtable_bytes);
	json_u64(j, "runs", s->runs);
	json_u64(j, "run_bytes", s->key_bytes);
	json_u64(j, "index_bytes", s->index_bytes);
	json_u64(j, "value_bytes", s->value_bytes);
	ui_doc_end(ui);
}

static void kvs_info_text(struct ui *ui, const struct kvdb_kvs_info *in,
			  const struct shape_sum *s)
{
	char b[SIZE_STR], c[SIZE_STR];

	printf("store          %s\n", in->name);
	printf("database       %s\n", ui->args->v[0]);
	if (in->pfx_len)
		printf("prefix         %u bytes of a key\n", in->pfx_len);
	if (in->ttl_s)
		printf("time to live   %s\n", time_str(b, in->ttl_s * 1000000000u));
	printf("policy         %s\n", NAME_OF(policy_name, in->policy));
	printf("compression    %s\n", kvs_compress_str(in->compress));
	printf("keys           about %" PRIu64 "\n", s->keys);
	printf("memtables      %u, %s\n", s->memtables, size_str(b, s->memtable_bytes));
	printf("runs           %u, %s on media, %s of memory\n", s->runs,
	       size_str(b, s->key_bytes), size_str(c, s->index_bytes));
	printf("deletions      %" PRIu64 " among the keys of runs\n", s->tombs);
	printf("values         %s in log segments\n", size_str(b, s->value_bytes));
}

static int kvs_options(struct view *v, const char *name, struct kvdb_kvs_info *in)
{
	struct json_object *a, *q, *o;
	struct kvdb_kvs *kvs;
	int rc;

	memset(in, 0, sizeof(*in));
	if (v->db) {
		rc = kvdb_kvs_open(v->db, name, &kvs);
		if (!rc)
			rc = kvdb_kvs_info(kvs, in);
		return rc ? db_fail(v->ui, name, rc) : EXIT_DONE;
	}
	q = remote_request("kvs");
	remote_add(q, "kvs", name);
	rc = remote_ask(v->ui, &v->r, name, q, &a);
	if (rc)
		return rc;
	o = remote_item(a, "stores", 0);
	snprintf(in->name, sizeof(in->name), "%s", name);
	in->pfx_len = (uint32_t)remote_num(o, "pfx_len");
	in->policy = (uint32_t)remote_num(o, "policy");
	in->compress = (uint32_t)remote_num(o, "compress");
	in->ttl_s = remote_num(o, "ttl_s");
	json_object_put(a);
	return EXIT_DONE;
}

int verb_kvs_info(struct ui *ui)
{
	const char *name = ui->args->v[1];
	struct kvdb_kvs_info in;
	struct shape_sum sum;
	struct shape s;
	struct view v;
	int rc = view_open(ui, ui->args->v[0], &v);

	if (rc)
		return rc;
	rc = kvs_options(&v, name, &in);
	if (!rc)
		rc = view_shape(&v, name, &s);
	if (rc)
		return view_close(&v, rc);
	shape_sum(&s, &sum);
	free(s.part);
	if (ui->json)
		kvs_info_json(ui, &in, &sum);
	else
		kvs_info_text(ui, &in, &sum);
	return view_close(&v, EXIT_DONE);
}

/* ---- tree -------------------------------------------------------------------- */

static const struct col tree_cols[] = {
	{ "kvs", COL_STR, true, "name of the store" },
	{ "part", COL_STR, true,
	  "active: the memtable that takes writes; frozen: one that waits for its flush; run: "
	  "sorted keys on media" },
	{ "leaf", COL_COUNT, true, "range of keys that a run is of, in their order; 0: all keys" },
	{ "id", COL_COUNT, true, "number of the run" },
	{ "keys", COL_COUNT, true, "keys in it" },
	{ "deletions", COL_COUNT, true, "deletions among them" },
	{ "bytes", COL_SIZE, true, "of a memtable in memory, of a run on media" },
	{ "values", COL_SIZE, true, "values that it refers to" },
	{ "segments", COL_COUNT, true, "log segments that they lie in" },
	{ "index", COL_SIZE, true, "memory that it pins" },
	{ "blocks", COL_COUNT, false, "key blocks, the objects of a run" },
	{ NULL, 0, false, NULL },
};

static void tree_rows(struct tbl *t, const char *name, const struct shape *s)
{
	static const char *const kind[] = { [KVDB_PART_ACTIVE] = "active",
					    [KVDB_PART_FROZEN] = "frozen",
					    [KVDB_PART_RUN] = "run" };

	for (unsigned i = 0; i < s->n; i++) {
		const struct kvdb_tree_part *p = &s->part[i];

		tbl_row(t);
		tbl_str(t, "kvs", name);
		tbl_str(t, "part", NAME_OF(kind, p->kind));
		tbl_num(t, "keys", p->keys);
		tbl_num(t, "bytes", p->bytes);
		if (p->kind != KVDB_PART_RUN)
			continue;
		tbl_num(t, "leaf", p->leaf);
		tbl_num(t, "id", p->id);
		tbl_num(t, "deletions", p->tombs);
		tbl_num(t, "values", p->value_bytes);
		tbl_num(t, "segments", p->segments);
		tbl_num(t, "index", p->index_bytes);
		tbl_num(t, "blocks", p->blocks);
	}
}

static int tree_fill(struct view *v, struct tbl *t)
{
	const char *only = v->ui->args->n > 1 ? v->ui->args->v[1] : NULL;
	char (*names)[KVDB_NAME_MAX + 1];
	int n = view_names(v, &names), rc, i;
	struct shape s;

	if (n < 0)
		return -n;
	for (i = 0; i < (only ? 1 : n); i++) {
		rc = view_shape(v, only ? only : names[i], &s);
		if (rc)
			return rc;
		tree_rows(t, only ? only : names[i], &s);
		free(s.part);
	}
	return EXIT_DONE;
}

int verb_tree(struct ui *ui)
{
	return print_view(ui, tree_cols, "parts", 0, tree_fill);
}
