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
	{ "cache", 0, OPT_SIZE, 0, "SIZE", \
	  "memory budget of everything the database holds, at least 64M, for this command " \
	  "only; each open chooses its own (default: a quarter of memory, at most 4G)", \
	  KEY("cache"), NULL }, \
	{ "io", 0, OPT_ENUM, 0, "HOW", \
	  "system calls used: sync or uring (default: uring where it works)", \
	  KEY("io"), "sync|uring" }
#define DB_INTERVAL_AS(KEY) \
	{ "interval", 0, OPT_STR, 0, "TIME", \
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
int db_open_kvs(struct ui *ui, const char *path, const char *name, unsigned flags,
		struct kvdb **db, struct kvdb_kvs **kvs);
/* Close and return @code, or the exit code of a failed close when @code is good. */
int db_close(struct ui *ui, const char *path, struct kvdb *db, int code);
/* Report the library's last error on @object; a key or value too long is a usage error. */
int db_fail(struct ui *ui, const char *object, int err);

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

/* ---- verbs --------------------------------------------------------------- */

extern const struct opt create_opts[], info_opts[], get_opts[], put_opts[], del_opts[], scan_opts[],
	load_opts[], verify_opts[], stats_opts[], kvs_opts[], kvs_drop_opts[], drop_opts[],
	bench_opts[];

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
int verb_drop(struct ui *ui);
int verb_bench(struct ui *ui);

#endif
