/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the control socket answers. A request is one JSON object on one line
 * with a member "cmd"; the answer is one object on one line, either
 *	{"ok":true,"cmd":"stats",...}
 * or	{"ok":false,"error":{"id":"MP0975","err":-22,"text":...,"cure":...}}
 * A new command is a row of the table at the end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "db/count.h"
#include "ctl/ctl.h"

#define CTL_VERSION 1u

static const char *const class_name[MPOOL_MCLASSES] = { "capacity", "staging" };

static void put_uuid(struct kv_ctl_out *o, const char *name, const uint8_t uuid[16])
{
	static const char dig[] = "0123456789abcdef";
	char s[37], *p = s;
	int i;

	for (i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		*p++ = dig[uuid[i] >> 4];
		*p++ = dig[uuid[i] & 15];
	}
	*p = 0;
	kv_out_str(o, name, s);
}

static void put_pool(struct kv_ctl_out *o, const struct mpool_info *p)
{
	unsigned c;

	kv_out_obj(o, "pool");
	kv_out_str(o, "name", p->name);
	put_uuid(o, "uuid", p->uuid);
	kv_out_str(o, "io", p->io);
	kv_out_bool(o, "is_direct", p->is_direct);
	kv_out_arr(o, "classes");
	for (c = 0; c < MPOOL_MCLASSES; c++) {
		kv_out_obj(o, NULL);
		kv_out_str(o, "class", class_name[c]);
		kv_out_u64(o, "devices", p->cls[c].devs);
		kv_out_u64(o, "total", p->cls[c].total);
		kv_out_u64(o, "used", p->cls[c].used);
		kv_out_u64(o, "free", p->cls[c].free);
		kv_out_end(o);
	}
	kv_out_end(o);
	kv_out_end(o);
}

static int cmd_info(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o)
{
	struct kvdb_info in;
	int err = kvdb_info(db, &in);

	(void)r;
	if (err)
		return err;
	kv_out_u64(o, "version", CTL_VERSION);
	kv_out_str(o, "library", kvdb_version());
	kv_out_u64(o, "pid", (uint64_t)getpid());
	put_uuid(o, "uuid", in.uuid);
	kv_out_u64(o, "format_version", in.format_version);
	kv_out_u64(o, "kvs", in.kvs);
	kv_out_u64(o, "interval_ms", in.interval_ms);
	kv_out_u64(o, "commit", in.commit);
	kv_out_u64(o, "logs", in.logs);
	kv_out_u64(o, "is_rdonly", in.is_rdonly);
	kv_out_u64(o, "cache_bytes", in.cache_bytes);
	kv_out_u64(o, "log_bytes", in.log_bytes);
	kv_out_u64(o, "segment_bytes", in.segment_bytes);
	kv_out_u64(o, "space_amp_max_percent", (uint64_t)(in.space_amp_max * 100 + 0.5));
	kv_out_str(o, "fault", in.fault);
	kv_out_u64(o, "stuck", in.stuck);
	kv_out_u64(o, "stuck_ns", in.stuck_ns);
	kv_out_str(o, "stuck_text", in.stuck_text);
	put_pool(o, &in.pool);
	return 0;
}

static void put_recovery(struct kv_ctl_out *o, const struct kvdb_recovery *r)
{
	kv_out_obj(o, "recovery");
	kv_out_u64(o, "was_clean", r->was_clean);
	kv_out_u64(o, "incarnation", r->incarnation);
	kv_out_u64(o, "durable_epoch", r->durable_epoch);
	kv_out_u64(o, "segments", r->segments);
	kv_out_u64(o, "frames", r->frames);
	kv_out_u64(o, "records", r->records);
	kv_out_u64(o, "bytes", r->bytes);
	kv_out_u64(o, "replayed", r->replayed);
	kv_out_u64(o, "discarded", r->discarded);
	kv_out_u64(o, "elapsed_ns", r->elapsed_ns);
	kv_out_end(o);
}

static void put_devices(struct kvdb *db, struct kv_ctl_out *o)
{
	struct mpool_dev_info d;

	kv_out_arr(o, "devices");
	for (unsigned i = 0; !kvdb_dev_info(db, i, &d); i++) {
		kv_out_obj(o, NULL);
		kv_out_str(o, "path", d.path);
		kv_out_str(o, "class", class_name[d.mclass]);
		kv_out_u64(o, "slot", d.slot);
		kv_out_u64(o, "reads", d.reads);
		kv_out_u64(o, "writes", d.writes);
		kv_out_u64(o, "flushes", d.flushes);
		kv_out_u64(o, "errors", d.errors);
		kv_out_bool(o, "has_health", d.has_health);
		kv_out_u64(o, "csum_errors", d.csum_errors);
		kv_out_u64(o, "rereads", d.rereads);
		kv_out_u64(o, "repairs", d.repairs);
		kv_out_end(o);
	}
	kv_out_end(o);
}

static int cmd_stats(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o)
{
	struct kvdb_stats st;
	int err = kvdb_stats(db, &st);
	unsigned c;

	(void)r;
	if (err)
		return err;
#define X(f) kv_out_u64(o, #f, st.f);
	KVDB_STATS_FIELDS(X)
#undef X
	kv_out_arr(o, "io");
	for (c = 0; c < MPOOL_MCLASSES; c++) {
		kv_out_obj(o, NULL);
		kv_out_str(o, "class", class_name[c]);
#define X(f) kv_out_u64(o, #f, st.io[c].f);
		KVDB_IO_FIELDS(X)
#undef X
		kv_out_end(o);
	}
	kv_out_end(o);
	kv_out_arr(o, "space");
	for (c = 0; c < MPOOL_MCLASSES; c++) {
		kv_out_obj(o, NULL);
		kv_out_str(o, "class", class_name[c]);
		kv_out_u64(o, "segment_bytes", st.space[c].segment_bytes);
		kv_out_u64(o, "live_value_bytes", st.space[c].live_value_bytes);
		kv_out_u64(o, "dead_value_bytes", st.space[c].dead_value_bytes);
		kv_out_end(o);
	}
	kv_out_end(o);
	kv_out_arr(o, "delays");
	for (c = 0; c < KVDB_DELAYS; c++) {
		kv_out_obj(o, NULL);
		kv_out_str(o, "cause", kvdb_delay_name(c));
		kv_out_u64(o, "waits", st.delay[c].waits);
		kv_out_u64(o, "ns", st.delay[c].ns);
		kv_out_u64(o, "max_ns", st.delay[c].max_ns);
		kv_out_end(o);
	}
	kv_out_end(o);
	put_devices(db, o);
	put_recovery(o, &st.recovery);
	return 0;
}

/* ---- stores ----------------------------------------------------------------------- */

typedef int store_fn(struct kvdb *db, const char *name, struct kv_ctl_out *o);

/* Calls @fn for the store that the request names, or for all, inside array @key. */
static int each_store(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o,
		      const char *key, store_fn *fn)
{
	const char *only = kv_ctl_arg(r, "kvs");
	char (*names)[KVDB_NAME_MAX + 1];
	int n, i, err = 0;

	kv_out_arr(o, key);
	if (only) {
		err = fn(db, only, o);
	} else {
		names = calloc(KVDB_KVS_MAX, sizeof(*names));
		if (!names)
			return kv_error(-ENOMEM, "MP0902", "no memory for the list of stores");
		n = kvdb_kvs_list(db, names, KVDB_KVS_MAX);
		for (i = 0; i < n && !err; i++) {
			err = fn(db, names[i], o);
			/* dropped or renamed since the list was made */
			err = err == -ENOENT ? 0 : err;
		}
		free(names);
	}
	kv_out_end(o);
	return err;
}

static int store_info(struct kvdb *db, const char *name, struct kv_ctl_out *o)
{
	struct kvdb_kvs_info in;
	struct kvdb_kvs *kvs;
	int err = kvdb_kvs_open(db, name, &kvs);

	if (!err)
		err = kvdb_kvs_info(kvs, &in);
	if (err)
		return err;
	kv_out_obj(o, NULL);
	kv_out_str(o, "name", in.name);
	kv_out_u64(o, "pfx_len", in.pfx_len);
	kv_out_u64(o, "policy", in.policy);
	kv_out_u64(o, "compress", in.compress);
	kv_out_u64(o, "ttl_s", in.ttl_s);
	kv_out_u64(o, "keys_estimate", in.keys_estimate);
	kv_out_end(o);
	return 0;
}

static int cmd_kvs(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o)
{
	return each_store(db, r, o, "stores", store_info);
}

static void put_part(struct kv_ctl_out *o, const char *name, const struct kvdb_tree_part *p)
{
	kv_out_obj(o, NULL);
	kv_out_str(o, "kvs", name);
	kv_out_u64(o, "kind", p->kind);
	kv_out_u64(o, "blocks", p->blocks);
	kv_out_u64(o, "id", p->id);
	kv_out_u64(o, "keys", p->keys);
	kv_out_u64(o, "tombs", p->tombs);
	kv_out_u64(o, "bytes", p->bytes);
	kv_out_u64(o, "index_bytes", p->index_bytes);
	kv_out_u64(o, "value_bytes", p->value_bytes);
	kv_out_u64(o, "segments", p->segments);
	kv_out_u64(o, "leaf", p->leaf);
	kv_out_end(o);
}

static int store_tree(struct kvdb *db, const char *name, struct kv_ctl_out *o)
{
	struct kvdb_tree_part *p = NULL;
	int n = kvdb_tree(db, name, NULL, 0), got = -1, i;

	/* a flush between the two calls makes it longer */
	while (n >= 0 && (got < 0 || got > n)) {
		n = got < 0 ? n + 4 : got + 4;
		free(p);
		p = calloc((size_t)n, sizeof(*p));
		if (!p)
			return kv_error(-ENOMEM, "MP0902", "no memory for the shape of %s", name);
		got = kvdb_tree(db, name, p, (unsigned)n);
		if (got < 0)
			break;
	}
	for (i = 0; i < got; i++)
		put_part(o, name, &p[i]);
	free(p);
	return n < 0 ? n : got < 0 ? got : 0;
}

static int cmd_tree(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o)
{
	return each_store(db, r, o, "parts", store_tree);
}

/* ---- changes ---------------------------------------------------------------------- */

static int bad_request(const char *why)
{
	return kv_error(-EINVAL, "MP0975", "%s", why);
}

static int whole(const struct kv_ctl_req *r, const char *name, uint64_t *v, unsigned bit,
		 unsigned *mask)
{
	const char *s = kv_ctl_arg(r, name);
	char *end;

	if (!s)
		return 0;
	/* no space or sign before it; what is too large is more than any option takes */
	*v = strtoull(s, &end, 10);
	if (*s < '0' || *end)
		return kv_error(-EINVAL, "MP0974", "%s: '%.40s' is not a number", name, s);
	*mask |= bit;
	return 0;
}

/* Options of the store @name: ttl_s, policy, compress, as numbers. */
static int set_store(struct kvdb *db, const struct kv_ctl_req *r, const char *name)
{
	struct kvdb_kvs_opts ko = KVDB_KVS_OPTS_INIT;
	uint64_t policy = 0, compress = 0;
	struct kvdb_kvs *kvs;
	unsigned mask = 0;
	int err = kvdb_kvs_open(db, name, &kvs);

	if (!err)
		err = whole(r, "ttl_s", &ko.ttl_s, KVDB_KVS_TTL, &mask);
	if (!err)
		err = whole(r, "policy", &policy, KVDB_KVS_POLICY, &mask);
	if (!err)
		err = whole(r, "compress", &compress, KVDB_KVS_COMPRESS, &mask);
	if (err)
		return err;
	if (!mask)
		return bad_request("of a store ttl_s, policy and compress can be set");
	if (policy > UINT32_MAX || compress > UINT32_MAX)
		return bad_request("there is no such policy, or compress");
	ko.policy = (uint32_t)policy;
	ko.compress = (uint32_t)compress;
	return kvdb_kvs_set(kvs, &ko, mask);
}

static int cmd_set(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o)
{
	const char *kvs = kv_ctl_arg(r, "kvs"), *name = kv_ctl_arg(r, "name");
	const char *value = kv_ctl_arg(r, "value");

	(void)o;
	if (kvs)
		return set_store(db, r, kvs);
	return name && value ? kvdb_set(db, name, value) :
			       bad_request("set needs the members name and value, or kvs");
}

static void put_checkpoint(struct kv_ctl_out *o, const struct kvdb_checkpoint_info *c)
{
	kv_out_str(o, "name", c->name);
	kv_out_u64(o, "time_ns", c->time_ns);
	kv_out_u64(o, "stores", c->stores);
	kv_out_u64(o, "keys", c->keys);
	kv_out_u64(o, "bytes", c->bytes);
	kv_out_u64(o, "runs", c->runs);
	kv_out_u64(o, "segments", c->segments);
	kv_out_u64(o, "epoch", c->epoch);
	kv_out_u64(o, "id", c->id);
	kv_out_bool(o, "is_damaged", c->is_damaged);
}

static int cmd_checkpoints(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o)
{
	struct kvdb_checkpoint_info *all = calloc(KVDB_CHECKPOINT_MAX, sizeof(*all));
	int n = all ? kvdb_checkpoint_list(db, all, KVDB_CHECKPOINT_MAX) :
		      kv_error(-ENOMEM, "MP0902", "no memory for the list of checkpoints");

	(void)r;
	kv_out_arr(o, "checkpoints");
	for (int i = 0; i < n && i < (int)KVDB_CHECKPOINT_MAX; i++) {
		kv_out_obj(o, NULL);
		put_checkpoint(o, &all[i]);
		kv_out_end(o);
	}
	kv_out_end(o);
	free(all);
	return n < 0 ? n : 0;
}

static int cmd_checkpoint_drop(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o)
{
	const char *name = kv_ctl_arg(r, "name");

	(void)o;
	return name ? kvdb_checkpoint_drop(db, name) :
		      bad_request("checkpoint_drop needs the member name");
}

/* Other clients wait for it; writers do not. */
static int cmd_checkpoint(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o)
{
	const char *name = kv_ctl_arg(r, "name");
	struct kvdb_checkpoint_info *all;
	int err, n, i;

	if (!name)
		return bad_request("checkpoint needs the member name");
	all = calloc(KVDB_CHECKPOINT_MAX, sizeof(*all));
	if (!all)
		return kv_error(-ENOMEM, "MP0902", "no memory for the list of checkpoints");
	err = kvdb_checkpoint(db, name, 0);
	n = err ? 0 : kvdb_checkpoint_list(db, all, KVDB_CHECKPOINT_MAX);
	for (i = 0; i < n; i++)
		if (!strcmp(all[i].name, name))
			put_checkpoint(o, &all[i]);
	free(all);
	return err;
}

/* ---- compaction -------------------------------------------------------------------- */

static void put_compact(struct kv_ctl_out *o, const struct kvdb_compact_status *st)
{
	kv_out_bool(o, "is_asked", st->is_asked);
	kv_out_bool(o, "is_active", st->is_active);
	kv_out_u64(o, "space_bytes", st->space_bytes);
	kv_out_u64(o, "live_bytes", st->live_bytes);
	kv_out_u64(o, "space_amp_max_percent", (uint64_t)(st->space_amp_max * 100 + 0.5));
	kv_out_u64(o, "moved_bytes", st->moved_bytes);
	kv_out_u64(o, "relocations", st->relocations);
	kv_out_u64(o, "todo_bytes", st->todo_bytes);
	kv_out_u64(o, "done_bytes", st->done_bytes);
	kv_out_i64(o, "error", st->error);
}

/* Starts or ends it, at most, and tells how it stands: nothing waits for it. */
static int cmd_compact(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o)
{
	const char *name = kv_ctl_arg(r, "kvs"), *what = kv_ctl_arg(r, "action");
	struct kvdb_compact_status st;
	struct kvdb_kvs *kvs = NULL;
	unsigned flags = 0;
	int err = name ? kvdb_kvs_open(db, name, &kvs) : 0;

	if (err)
		return err;
	if (!what || (strcmp(what, "start") && strcmp(what, "status") && strcmp(what, "cancel")))
		return bad_request("compact needs the member action: start, status or cancel");
	if (!strcmp(what, "cancel"))
		flags = KVDB_COMPACT_CANCEL;
	if (strcmp(what, "status"))
		err = kvs ? kvdb_kvs_compact(kvs, flags) : kvdb_compact(db, flags);
	if (!err)
		err = kvdb_compact_status(db, &st);
	if (!err)
		put_compact(o, &st);
	return err;
}

/* ---- the table ----------------------------------------------------------------------- */

/*
 * The requests, with their members but for "cmd", and what their answers have:
 *
 *  info                              as kvdb_info(); pid, version of this protocol, library
 *  stats                             struct kvdb_stats; devices as kvdb_dev_info() tells
 *  kvs [kvs]                         stores: name, options, keys; of all or of one
 *  tree [kvs]                        parts: memtables and runs, newest first
 *  set name, value                   of the database: kvdb_set()
 *  set kvs, ttl_s, policy, compress  of a store: kvdb_kvs_set()
 *  checkpoint name                   the one made, as struct kvdb_checkpoint_info
 *  checkpoints                       checkpoints: all, likewise
 *  checkpoint_drop name
 *  compact action [kvs]              as kvdb_compact_status(); start, status or cancel
 */
static const struct cmd {
	const char *name;
	int (*run)(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o);
} cmds[] = {
	{ "info", cmd_info },
	{ "stats", cmd_stats },
	{ "kvs", cmd_kvs },
	{ "tree", cmd_tree },
	{ "set", cmd_set },
	{ "checkpoint", cmd_checkpoint },
	{ "checkpoints", cmd_checkpoints },
	{ "checkpoint_drop", cmd_checkpoint_drop },
	{ "compact", cmd_compact },
};

void kv_ctl_refuse(struct kv_ctl_out *o)
{
	const struct mpool_error *e = kvdb_error_detail();

	kv_out_begin(o);
	kv_out_bool(o, "ok", false);
	kv_out_obj(o, "error");
	kv_out_str(o, "id", e->id);
	kv_out_i64(o, "err", e->err);
	kv_out_str(o, "text", e->text);
	kv_out_str(o, "cure", e->cure);
	kv_out_done(o);
}

static int run(struct kvdb *db, const struct kv_ctl_req *r, struct kv_ctl_out *o)
{
	const char *name = kv_ctl_arg(r, "cmd");
	unsigned i;

	if (!name)
		return bad_request("a request is an object with the member cmd");
	for (i = 0; i < sizeof(cmds) / sizeof(cmds[0]); i++) {
		if (strcmp(cmds[i].name, name))
			continue;
		kv_out_begin(o);
		kv_out_bool(o, "ok", true);
		kv_out_str(o, "cmd", name);
		return cmds[i].run(db, r, o);
	}
	return kv_error(-EOPNOTSUPP, "MP0975", "'%.40s' is not a request that this version of "
			"the library answers", name);
}

void kv_ctl_command(struct kvdb *db, const char *line, size_t len, struct kv_ctl_out *o)
{
	struct kv_ctl_req r;
	int err = kv_ctl_parse(&r, line, len);

	if (err)
		kv_error(err, "MP0975", "the request is not understood: %s", r.rq_why);
	else
		err = run(db, &r, o);
	if (!err)
		kv_out_done(o);
	if (!err && o->ou_bad)
		err = kv_error(-E2BIG, "MP0975", "the answer is too long");
	if (err)
		kv_ctl_refuse(o);
	/* not even room for a refusal: the client sees the end of the line only */
	if (o->ou_bad) {
		kv_out_free(o);
		kv_out_begin(o);
		kv_out_done(o);
	}
}
