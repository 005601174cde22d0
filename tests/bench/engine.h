/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the comparison asks of an engine. A program has one engine and opens one
 * store; an adapter keeps it in static variables.
 *
 * Nothing here returns an error: an engine that fails has no figures, so the
 * adapter ends the process by die() and says why.
 */
#ifndef BENCH_ENGINE_H
#define BENCH_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json;

struct engine_opts {
	const char *dir;	/* exists, and is the store's alone */
	uint64_t cache_bytes;	/* memory budget, or the part of it that the engine manages */
	uint64_t data_bytes;	/* keys and values that it will have to hold */
	unsigned threads;	/* that will call it */
	unsigned in_flight;	/* operations of a thread at a time; 0: its calls wait */
	unsigned interval_ms;	/* loss bound */
	bool is_new;
	bool is_sync;		/* a put is durable when it returns */
};

/* struct engine_view - a value where the engine has it, until it is let go */
struct engine_view {
	const void *val;
	size_t vlen;
	void *priv[3];
};

/* struct engine_op - an operation that does not wait: the engine's from submit() to reap() */
struct engine_op {
	const void *key;
	void *val;		/* of a put; else room for what is there */
	size_t klen;
	size_t vlen;		/* of @val; of a get that ended: of what it found */
	bool is_put;
	bool is_found;
};
#define ENGINE_BATCH 64u	/* operations of a call */
#define ENGINE_WRITES 128u	/* puts of a batch, at most */

/* A record of a scan, in order; false ends it. */
typedef bool engine_scan_fn(void *arg, const void *key, size_t klen, const void *val, size_t vlen);

struct engine {
	const char *name;
	const char *loses;	/* what a crash may lose without is_sync, for people */
	bool is_volatile;	/* the store ends with the process */
	const char *(*version)(void);
	void (*open)(const struct engine_opts *o);
	void (*close)(void);
	/* of one thread: what it hands to the functions below */
	void *(*thread_begin)(void);
	void (*thread_end)(void *t);
	void (*put)(void *t, const void *key, size_t klen, const void *val, size_t vlen);
	/* false: there is no such key */
	bool (*get)(void *t, const void *key, size_t klen, struct engine_view *v);
	void (*unget)(void *t, struct engine_view *v);
	/* all of these puts or none of them; NULL: the engine has no such call */
	void (*write)(void *t, const struct engine_op *puts, unsigned n);
	/* begins up to ENGINE_BATCH operations; NULL: the engine has calls that wait only */
	void (*submit)(void *t, struct engine_op *const *ops, unsigned n);
	/* as many as ended, up to ENGINE_BATCH, but at least one: their number */
	unsigned (*reap)(void *t, struct engine_op **ended);
	/* @n records from the first key >= @key; NULL: it has no order */
	void (*scan)(void *t, const void *key, size_t klen, uint64_t n, engine_scan_fn *fn,
		     void *arg);
	/* without is_sync: called each interval_ms; NULL: it keeps to the loss bound by itself */
	void (*sync)(void);
	/* everything deferred is done and durable; NULL: nothing ever is deferred */
	void (*drain)(void);
	/* begin to count, and members of JSON that say what was counted; NULL: nothing */
	void (*count)(void);
	void (*report)(struct json *j);
	/* "name=value ..." of what was set; valid after open */
	const char *(*settings)(void);
};

void die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* The driver: runs what the command line says on @e; the program's exit code. */
int ycsb_main(int argc, char **argv, const struct engine *e);

#endif
