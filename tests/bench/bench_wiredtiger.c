/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * WiredTiger as an engine of the comparison: a row store, a session and a cursor
 * per thread. Its log is synced each interval, or by each commit; checkpoints
 * each minute or 2 GiB of log.
 */
#include <stdio.h>
#include <stdlib.h>

#include <wiredtiger.h>

#include "engine.h"

#define TABLE "table:usertable"

static WT_CONNECTION *conn;
static WT_SESSION *keeper; /* of the thread that keeps the loss bound, and of drain */
static char settings[640];

struct thread {
	WT_SESSION *session;
	WT_CURSOR *cursor;
};

static void check(const char *what, int rc)
{
	if (rc)
		die("%s: %s", what, wiredtiger_strerror(rc));
}

static void engine_open(const struct engine_opts *o)
{
	static const char table[] = "key_format=u,value_format=u,leaf_page_max=8KB,"
				    "internal_page_max=16KB,memory_page_max=10MB,"
				    "block_compressor=none";
	char config[256];

	snprintf(config, sizeof(config),
		 "create,cache_size=%llu,log=(enabled=true),transaction_sync=(%s),"
		 "checkpoint=(wait=60,log_size=2GB),eviction=(threads_min=2,threads_max=2),"
		 "session_max=%u", (unsigned long long)o->cache_bytes,
		 o->is_sync ? "enabled=true,method=fsync" : "enabled=false", o->threads + 64);
	check("open", wiredtiger_open(o->dir, NULL, config, &conn));
	check("session", conn->open_session(conn, NULL, NULL, &keeper));
	if (o->is_new)
		check("table", keeper->create(keeper, TABLE, table));
	snprintf(settings, sizeof(settings), o->is_sync ? "%s; %s" :
		 "%s; %s; log_flush(sync=on) each %u ms", config, table, o->interval_ms);
}

static void engine_close(void)
{
	check("close", conn->close(conn, NULL));
}

static void *thread_begin(void)
{
	struct thread *t = calloc(1, sizeof(*t));

	if (!t)
		die("no memory");
	check("session", conn->open_session(conn, NULL, NULL, &t->session));
	check("cursor", t->session->open_cursor(t->session, TABLE, NULL, NULL, &t->cursor));
	return t;
}

static void thread_end(void *arg)
{
	struct thread *t = arg;

	check("session", t->session->close(t->session, NULL));
	free(t);
}

static void put(void *arg, const void *key, size_t klen, const void *val, size_t vlen)
{
	struct thread *t = arg;
	WT_ITEM k = { .data = key, .size = klen }, v = { .data = val, .size = vlen };
	int rc;

	do {
		t->cursor->set_key(t->cursor, &k);
		t->cursor->set_value(t->cursor, &v);
		rc = t->cursor->insert(t->cursor); /* overwrites */
	} while (rc == WT_ROLLBACK);
	check("put", rc);
	check("reset", t->cursor->reset(t->cursor));
}

static bool get(void *arg, const void *key, size_t klen, struct engine_view *v)
{
	struct thread *t = arg;
	WT_ITEM k = { .data = key, .size = klen }, val;
	int rc;

	do {
		t->cursor->set_key(t->cursor, &k);
		rc = t->cursor->search(t->cursor);
	} while (rc == WT_ROLLBACK);
	if (rc == WT_NOTFOUND)
		return false;
	check("get", rc);
	check("value", t->cursor->get_value(t->cursor, &val));
	v->val = val.data;
	v->vlen = val.size;
	return true;
}

static void unget(void *arg, struct engine_view *v)
{
	struct thread *t = arg;

	(void)v;
	check("reset", t->cursor->reset(t->cursor));
}

static void scan(void *arg, const void *key, size_t klen, uint64_t n, engine_scan_fn *fn,
		 void *fn_arg)
{
	struct thread *t = arg;
	WT_ITEM k = { .data = key, .size = klen }, v;
	int rc, exact;

	t->cursor->set_key(t->cursor, &k);
	rc = t->cursor->search_near(t->cursor, &exact);
	if (!rc && exact < 0)
		rc = t->cursor->next(t->cursor);
	while (!rc && n--) {
		check("key", t->cursor->get_key(t->cursor, &k));
		check("value", t->cursor->get_value(t->cursor, &v));
		if (!fn(fn_arg, k.data, k.size, v.data, v.size))
			break;
		if (n)
			rc = t->cursor->next(t->cursor);
	}
	if (rc != WT_NOTFOUND)
		check("scan", rc);
	check("reset", t->cursor->reset(t->cursor));
}

static void sync_log(void)
{
	check("flush of the log", keeper->log_flush(keeper, "sync=on"));
}

static void drain(void)
{
	check("checkpoint", keeper->checkpoint(keeper, NULL));
}

static const char *version(void)
{
	static char text[32];
	int major, minor, patch;

	wiredtiger_version(&major, &minor, &patch);
	snprintf(text, sizeof(text), "%d.%d.%d", major, minor, patch);
	return text;
}

static const char *get_settings(void)
{
	return settings;
}

static const struct engine wiredtiger_engine = {
	.name = "wiredtiger",
	.loses = "process: its log buffer; power: about interval_ms, a prefix remains",
	.version = version,
	.open = engine_open,
	.close = engine_close,
	.thread_begin = thread_begin,
	.thread_end = thread_end,
	.put = put,
	.get = get,
	.unget = unget,
	.scan = scan,
	.sync = sync_log,
	.drain = drain,
	.settings = get_settings,
};

int main(int argc, char **argv)
{
	return ycsb_main(argc, argv, &wiredtiger_engine);
}
