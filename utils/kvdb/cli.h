/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the verbs of the kvdb command share: opening a database by the options
 * of the command line, and the text forms of keys and values.
 */
#ifndef KVDB_CLI_H
#define KVDB_CLI_H

#include <kvdb/kvdb.h>

#include "ui.h"

/* Options of every verb that opens a database; none of them is kept in it. */
#define DB_OPTS_AS(KEY) \
	{ "cache", 0, OPT_SIZE, OPTF_COMMON, "SIZE", \
	  "memory budget of everything the database holds, at least 64M, for this command " \
	  "only; each open chooses its own (default: a quarter of memory, at most 4G)", \
	  KEY("cache"), NULL }, \
	{ "io", 0, OPT_ENUM, OPTF_COMMON, "HOW", \
	  "system calls used: sync or uring (default: uring where it works)", \
	  KEY("io"), "sync|uring" }, \
	{ "time-jump", 0, OPT_FLAG, OPTF_COMMON, NULL, \
	  "the wall clock is right, though it is more than a day ahead of the time that the " \
	  "database recorded last: what had to expire until now is gone (MP0936)", NULL, NULL }
#define DB_INTERVAL_AS(KEY) \
	{ "interval", 0, OPT_STR, OPTF_COMMON, "TIME", \
	  "loss bound: a power cut loses at most so much of acknowledging time, 1ms or more; " \
	  "'none' = durable at sync and close only; for this command only; each open chooses " \
	  "its own (default 100ms)", KEY("interval"), NULL }
#define DB_KEY_YES(name) name
#define DB_KEY_NO(name)  NULL
#define DB_OPTS          DB_OPTS_AS(DB_KEY_YES)
/* for verbs that acknowledge writes: the loss bound means something */
#define DB_OPTS_WRITE    DB_INTERVAL_AS(DB_KEY_YES), DB_OPTS
/* for verbs whose operands are data: "io=x" is a value there, not an option */
#define DB_OPTS_PLAIN    DB_OPTS_AS(DB_KEY_NO)
#define DB_OPTS_WRITE_PLAIN DB_INTERVAL_AS(DB_KEY_NO), DB_OPTS_PLAIN

#define KEY_HEX_OPT \
	{ "key-hex", 'X', OPT_FLAG, 0, NULL, "keys on the command line are hexadecimal", \
	  NULL, NULL }

/* struct db_opts - library options; @open points into the same object: do not copy */
struct db_opts {
	struct kvdb_opts kv;
	struct mpool_open_opts pool;
};

/* Fill @o from the command line. Returns an exit code, EXIT_DONE when good. */
int db_opts(struct ui *ui, struct db_opts *o, unsigned flags);

/* Open the database (and store) the operands name; reports; returns an exit code. */
int db_open(struct ui *ui, const char *path, unsigned flags, struct kvdb **out);
/* The same for writing; of one in use it says that a checkpoint of it can be taken instead. */
int db_open_unused(struct ui *ui, const char *path, struct kvdb **out);
/*
 * The same where it may be written to, else, on media that can only be read or of another user,
 * for reading: *@is_still, as long as it is open.
 */
int db_open_still(struct ui *ui, const char *path, struct kvdb **out, bool *is_still);
/* The same for writing; one with stores is refused. */
int db_open_empty(struct ui *ui, const char *path, struct kvdb **out);
int db_busy(struct ui *ui, const char *path);
/* The same at a checkpoint, for reading; NULL: as it is. */
int db_open_at(struct ui *ui, const char *path, const char *checkpoint, struct kvdb **out);
int db_open_kvs(struct ui *ui, const char *path, const char *name, unsigned flags,
		struct kvdb **db, struct kvdb_kvs **kvs);
/*
 * The same for writing. A database that is not there is made, with the store; in one that is there
 * a store is made only with @makes_store. What was made is told.
 */
int db_open_or_make(struct ui *ui, const char *path, const char *name, bool makes_store,
		    struct kvdb **db, struct kvdb_kvs **kvs);
/* Close and return @code, or the exit code of a failed close when @code is good. */
int db_close(struct ui *ui, const char *path, struct kvdb *db, int code);
/* Report the library's last error on @object; a key or value too long is a usage error. */
int db_fail(struct ui *ui, const char *object, int err);

extern const char *const class_name[MPOOL_MCLASSES];

/* What kvdb_create() refuses in a pool of such members, without one; reports (trial.c). */
int trial_create(struct ui *ui, const char *path, const struct db_opts *o,
		 const uint64_t size[MPOOL_MCLASSES]);

/* ---- text forms (text.c) ------------------------------------------------- */

/* struct bytes - a growing buffer; all zero is empty */
struct bytes {
	unsigned char *p;
	size_t len, room;
};

int bytes_add(struct bytes *b, const void *p, size_t len); /* 0 or -ENOMEM */
void bytes_free(struct bytes *b);

/* Append the bytes of hexadecimal text; -EINVAL, -ENOMEM. */
int hex_decode(struct bytes *b, const char *s, size_t len);
/*
 * The escapes of the tsv format: \t \n \r \\ and \xHH. Decoding refuses every
 * other escape (-EINVAL); encoding escapes exactly what could not be read back
 * from a line (and control characters), so UTF-8 text stays readable.
 */
int esc_decode(struct bytes *b, const char *s, size_t len);
void esc_print(FILE *f, const void *p, size_t len);
void hex_print(FILE *f, const void *p, size_t len);
bool utf8_valid(const void *p, size_t len);
/* Member @name as text when it is valid UTF-8, else member @hex_name. */
void json_bytes(struct json *j, const char *name, const char *hex_name, const void *p, size_t len);

/* A key operand (hexadecimal with -X); returns an exit code. */
int key_operand(struct ui *ui, const char *s, struct bytes *out);

/* ---- ranges of keys (scan.c) ------------------------------------------------ */

#define RANGE_OPTS \
	{ "prefix", 0, OPT_STR, 0, "P", "only keys that begin with P", "prefix", NULL }, \
	{ "from", 0, OPT_STR, 0, "K", "only keys not less than K", "from", NULL }, \
	{ "to", 0, OPT_STR, 0, "K", "only keys less than K", "to", NULL }

/* struct range - keys with @prefix, not below @from, below @to; empty: no bound */
struct range {
	struct bytes prefix, from, to;
	bool is_reverse;
	uint64_t limit;
	struct kvdb_txn *txn; /* walk in this transaction, or NULL */
};

/* Receives a record; not 0 ends the walk. */
typedef int range_fn(void *arg, const void *key, size_t klen, const void *val, size_t vlen);

/* From --prefix, --from and --to; returns an exit code. */
int range_args(struct ui *ui, struct range *r);
void range_free(struct range *r);
/* @flags: KVDB_KEYS_ONLY. Returns 0 or the library's error. */
int range_walk(const struct range *r, struct kvdb_kvs *kvs, unsigned flags, range_fn *fn,
	       void *arg);

/* ---- stores (kvs.c) ---------------------------------------------------------- */

/* A finding of kvdb_verify(), to standard output or into the document; @arg: the ui (db.c) */
void finding(void *arg, const struct mpool_problem *p);

/* Options of a store; the words of policy and compress stand in the order of their enums. */
#define KVS_OPTS \
	{ "ttl", 0, OPT_TIME, 0, "TIME", \
	  "what is put is gone after so long, in whole seconds; 0 = never", "ttl", NULL }, \
	{ "policy", 0, OPT_ENUM, 0, "POLICY", \
	  "where values live in a pool with two media classes: default, staging_only, " \
	  "staging_pref, tiered or capacity_only", "policy", \
	  "default|staging_only|staging_pref|tiered|capacity_only" }, \
	KVS_OPT_COMPRESS
#define KVS_OPT_COMPRESS \
	{ "compress", 0, OPT_ENUM, 0, "HOW", \
	  "how values are compressed when they are moved: none, lz4 or zstd", "compress", \
	  "none|lz4|zstd" }

/* Fill @o from the command line; *mask: KVDB_KVS_* of what was given. */
int kvs_args(struct ui *ui, struct kvdb_kvs_opts *o, unsigned *mask);
/* Options of a store as members of JSON, and their words as numbers (false: unknown). */
void kvs_opts_json(struct json *j, const struct kvdb_kvs_info *in);
const char *kvs_compress_str(uint32_t how);
bool kvs_policy_of(const char *name, uint32_t *out);
bool kvs_compress_of(const char *name, uint32_t *out);

/* Names of all stores, sorted, in static memory; returns their number. */
int kvs_names(struct kvdb *db, char (**names)[KVDB_NAME_MAX + 1]);

/* struct shape - memtables and runs of a store, newest first */
struct shape {
	struct kvdb_tree_part *part;
	unsigned n;
};

/* struct shape_sum - the same in numbers, bytes */
struct shape_sum {
	unsigned memtables, runs;
	uint64_t keys, tombs, memtable_bytes, key_bytes, index_bytes, value_bytes;
};

int shape_read(struct kvdb *db, const char *name, struct shape *s); /* free(s->part) */
void shape_sum(const struct shape *s, struct shape_sum *sum);

/* ---- verbs --------------------------------------------------------------- */

extern const struct opt create_opts[], info_opts[], get_opts[], put_opts[], del_opts[],
	scan_opts[], load_opts[], verify_opts[], stats_opts[], kvs_opts[], kvs_drop_opts[],
	kvs_list_opts[], checkpoint_opts[], checkpoint_drop_opts[], checkpoint_list_opts[],
	kvs_create_opts[], set_opts[], drop_opts[], list_opts[], dump_opts[], tree_opts[],
	shell_opts[], top_opts[], compact_opts[], tune_opts[], bench_opts[];
extern const struct opt backup_opts[], restore_opts[], copy_opts[], repair_opts[];

int verb_create(struct ui *ui);
int verb_info(struct ui *ui);
int verb_get(struct ui *ui);
int verb_put(struct ui *ui);
int verb_del(struct ui *ui);
int verb_scan(struct ui *ui);
int verb_load(struct ui *ui);
int verb_verify(struct ui *ui);
int verb_stats(struct ui *ui);
int verb_kvs_create(struct ui *ui);
int verb_kvs_drop(struct ui *ui);
int verb_kvs_list(struct ui *ui);
int verb_kvs_rename(struct ui *ui);
int verb_kvs_info(struct ui *ui);
int verb_list(struct ui *ui);
int verb_set(struct ui *ui);
int verb_shell(struct ui *ui);
int verb_top(struct ui *ui);
int verb_compact(struct ui *ui);
int verb_tune(struct ui *ui);
int verb_dump(struct ui *ui);
int verb_tree(struct ui *ui);
int verb_backup(struct ui *ui);
int verb_restore(struct ui *ui);
int verb_copy(struct ui *ui);
int verb_checkpoint_create(struct ui *ui);
int verb_checkpoint_list(struct ui *ui);
int verb_checkpoint_drop(struct ui *ui);
int verb_repair(struct ui *ui);
int verb_drop(struct ui *ui);
int verb_bench(struct ui *ui);

/* Waits of writers by cause, between two readings; @from NULL: since open (delays.c) */
void delays_json(struct json *j, const struct kvdb_stats *from, const struct kvdb_stats *to);
/* One line per cause that occurred, each behind @label. */
void delays_text(const char *label, const struct kvdb_stats *from, const struct kvdb_stats *to);

/* Of media and processor, between two readings; @from NULL: since open (efficiency.c) */
void efficiency_json(struct json *j, const struct kvdb_stats *from, const struct kvdb_stats *to);
void efficiency_text(const char *label, const struct kvdb_stats *from, const struct kvdb_stats *to);
/* Bytes written per byte put, bytes read per byte got, operations per second of processor time. */
double efficiency_written(const struct kvdb_stats *from, const struct kvdb_stats *to);
double efficiency_read(const struct kvdb_stats *from, const struct kvdb_stats *to);
double efficiency_ops(const struct kvdb_stats *from, const struct kvdb_stats *to);

#endif
