/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Administration of an open database: renaming stores, the shape of a store,
 * settings, and the control socket as its clients see it (R20).
 */
#include "kvdb_help.h"

#include <dirent.h>
#include <grp.h>
#include <locale.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#define POOL (128 * MIB)

static void end(void)
{
	kh_close();
	T_EQ(kh_damage(MPOOL_VERIFY_DATA), 0);
	th_clean();
}

static void a_renamed_store_keeps_its_data_and_its_handle(void)
{
	struct kvdb_kvs *kvs, *again;
	struct kvdb_cursor *cur;

	kh_fresh(POOL, 0);
	kvs = kh_kvs("old");
	T_EQ(kh_put_str(kvs, "k", "v"), 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	T_EQ(kh_put_str(kvs, "l", "w"), 0);
	T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &cur), 0);
	T_EQ(kvdb_kvs_rename(kh_db, "old", "new"), 0);
	T_EQ(kvdb_kvs_open(kh_db, "old", &again), -ENOENT);
	T_EQ(kvdb_kvs_open(kh_db, "new", &again), 0);
	T_OK(kvs == again);
	T_OK(kh_holds_str(kvs, "k", "v"));
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), 0);
	T_EQ(kvdb_cursor_next(cur, NULL, NULL, NULL, NULL), -ENOENT);
	kvdb_cursor_close(cur);
	/* the name that came free is another store's */
	T_EQ(kvdb_kvs_create(kh_db, "old", NULL), 0);
	T_OK(kh_absent(kh_kvs("old"), "k", 1));
	kh_close();
	kh_open();
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), 2);
	T_OK(kh_holds_str(kh_kvs("new"), "k", "v"));
	T_OK(kh_holds_str(kh_kvs("new"), "l", "w"));
	T_OK(kh_absent(kh_kvs("old"), "k", 1));
	end();
}

static void renames_that_cannot_be_change_nothing(void)
{
	static const char *const bad[] = { "", ".", "-a", "a b",
					   "12345678901234567890123456789012", NULL };
	size_t i;

	kh_fresh(POOL, 0);
	T_EQ(kh_put_str(kh_kvs("a"), "k", "v"), 0);
	T_EQ(kh_put_str(kh_kvs("b"), "k", "w"), 0);
	T_EQ(kvdb_kvs_rename(kh_db, "none", "c"), -ENOENT);
	T_STREQ(kvdb_error_detail()->id, "MP0965");
	T_EQ(kvdb_kvs_rename(kh_db, "a", "b"), -EEXIST);
	T_STREQ(kvdb_error_detail()->id, "MP0970");
	T_EQ(kvdb_kvs_rename(kh_db, NULL, "c"), -EINVAL);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		T_EQ(kvdb_kvs_rename(kh_db, "a", bad[i]), -EINVAL);
	T_EQ(kvdb_kvs_rename(kh_db, "a", "a"), 0);
	kh_close();
	T_EQ(kh_open_with(KVDB_RDONLY), 0);
	T_EQ(kvdb_kvs_rename(kh_db, "a", "c"), -EROFS);
	T_OK(kh_holds_str(kh_kvs("a"), "k", "v"));
	T_OK(kh_holds_str(kh_kvs("b"), "k", "w"));
	end();
}

static void rename_and_write(void)
{
	struct kvdb_kvs *kvs = kh_kvs("s");

	T_EQ(kh_put_str(kvs, "k", "before"), 0);
	T_EQ(kvdb_kvs_rename(kh_db, "s", "t"), 0);
	T_EQ(kh_put_str(kvs, "l", "after"), 0);
	T_EQ(kvdb_kvs_create(kh_db, "s", NULL), 0);
	T_EQ(kvdb_sync(kh_db), 0);
}

/* Log records carry the store's id: replay finds it under whatever name. */
static void a_rename_survives_the_death_of_the_process(void)
{
	kh_make(POOL, 0);
	kh_die_in(rename_and_write);
	kh_open();
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), 2);
	T_OK(kh_holds_str(kh_kvs("t"), "k", "before"));
	T_OK(kh_holds_str(kh_kvs("t"), "l", "after"));
	T_OK(kh_absent(kh_kvs("s"), "k", 1));
	end();
}

/* More renames than the metadata container holds: it is written anew with the last name. */
static void many_renames_leave_the_last_name(void)
{
	char from[32] = "s", to[32];
	unsigned i;

	kh_fresh(POOL, 0);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	for (i = 0; i < 600; i++) {
		snprintf(to, sizeof(to), "store-%u", i);
		T_EQ(kvdb_kvs_rename(kh_db, from, to), 0);
		strcpy(from, to);
	}
	kh_close();
	kh_open();
	T_OK(kh_holds_str(kh_kvs("store-599"), "k", "v"));
	T_EQ(kvdb_kvs_list(kh_db, NULL, 0), 1);
	end();
}

static void the_shape_of_a_store_adds_up(void)
{
	struct kvdb_tree_part p[16];
	uint64_t keys = 0, values = 0;
	unsigned i;
	int n;

	kh_fresh(POOL, 0);
	T_EQ(kvdb_tree(kh_db, "s", p, 16), -ENOENT);
	T_EQ(kvdb_tree(kh_db, NULL, p, 16), -ENOENT);
	for (i = 0; i < 100; i++)
		T_EQ(kh_put(kh_kvs("s"), &i, 4, 1, 5000), 0);
	n = kvdb_tree(kh_db, "s", p, 16);
	T_EQ(n, 1);
	T_EQ(p[0].kind, KVDB_PART_ACTIVE);
	T_EQ(p[0].keys, 100);
	T_OK(p[0].bytes > 0);
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	i = 1000;
	T_EQ(kh_put(kh_kvs("s"), &i, 4, 1, 50), 0);
	n = kvdb_tree(kh_db, "s", p, 16);
	T_OK(n >= 2 && n <= 16);
	for (i = 0; i < (unsigned)n; i++) {
		keys += p[i].keys;
		values += p[i].value_bytes;
		T_OK(p[i].kind != KVDB_PART_RUN || (p[i].blocks && p[i].bytes && p[i].segments));
	}
	T_EQ(p[0].keys, 1);
	T_EQ(p[n - 1].kind, KVDB_PART_RUN);
	T_EQ(keys, 101);
	T_EQ(values, 100 * 5000);
	/* the number is told however small the array is */
	p[1].kind = 77;
	T_EQ(kvdb_tree(kh_db, "s", p, 1), n);
	T_EQ(p[1].kind, 77);
	T_EQ(kvdb_tree(kh_db, "s", NULL, 0), n);
	end();
}

/* ---- memory by owner -------------------------------------------------------------------- */

static uint64_t resident(void)
{
	unsigned long size, pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f && fscanf(f, "%lu %lu", &size, &pages) != 2)
		pages = 0;
	if (f)
		fclose(f);
	return (uint64_t)pages * 4096;
}

/* Never more than was allowed, and a tenth of what is there has no owner at most. */
static bool is_sum(const struct kvdb_stats *st, uint64_t grown)
{
	return st->memory_bytes <= st->cache_bytes && st->memory_bytes <= grown + grown / 10 &&
	       st->memory_bytes >= grown - grown / 10;
}

static int adds_up(const char *when, uint64_t base)
{
	struct kvdb_stats st;
	unsigned tries = 10000;
	uint64_t grown;

	/* images that are ready for the next records are the window's before they are touched */
	do {
		usleep(1000);
		T_EQ(kvdb_stats(kh_db, &st), 0);
		grown = resident() - base;
	} while (!is_sum(&st, grown) && --tries);
	T_EQ(st.memory_bytes, st.memtable_bytes + st.window_bytes + st.page_bytes +
	     st.index_bytes + st.spare_bytes + st.table_bytes);
	printf("# %s: grown by %.1f MiB, owners hold %.1f: memtables %.1f, window %.1f, "
	       "pages %.1f, index %.1f, spare %.1f, tables %.1f\n", when, (double)grown / MIB,
	       (double)st.memory_bytes / MIB, (double)st.memtable_bytes / MIB,
	       (double)st.window_bytes / MIB, (double)st.page_bytes / MIB,
	       (double)st.index_bytes / MIB, (double)st.spare_bytes / MIB,
	       (double)st.table_bytes / MIB);
	return is_sum(&st, grown);
}

static void the_owners_of_memory_add_up_to_what_the_process_grew_by(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb_kvs *kvs;
	uint64_t base, key;
	size_t len;
	unsigned i;

	kh_make(1024 * MIB, 0);
	o.cache_bytes = 256 * MIB;
	base = resident();
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	kvs = kh_kvs("s");
	for (i = 0; i < 200000; i++) {
		key = i * 0x9e3779b97f4a7c15ull;
		T_EQ(kh_put(kvs, &key, 8, 1, 1000), 0);
		if (i == 100000)
			T_OK(adds_up("half loaded", base));
	}
	T_OK(adds_up("loaded", base));
	T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_OK(adds_up("drained", base));
	for (i = 0; i < 100000; i++) {
		key = i * 0x9e3779b97f4a7c15ull;
		T_EQ(kvdb_get(kvs, &key, 8, kh_buf, sizeof(kh_buf), &len), 0);
	}
	T_OK(adds_up("read", base));
	end();
}

/* MEM1: each keeps other memtables, and some have been used, so that they have read ahead. */
static void many_idle_cursors_fit_into_memory(void)
{
	enum { N = 1000, PUTS = 1000 };
	static struct kvdb_cursor *c[N];
	uint64_t base = 0, most = 0, now, rnd = t_seed();
	const void *key, *val;
	struct kvdb_kvs *kvs;
	struct kvdb_stats st;
	char k[16], v[100];
	size_t klen, vlen;
	unsigned ended = 0;
	int rc;

	kh_make(1024 * MIB, 0);
	base = resident();
	kh_open();
	kvs = kh_kvs("s");
	memset(v, 'v', sizeof(v));
	for (unsigned i = 0; i < N; i++) {
		for (unsigned j = 0; j < PUTS; j++) {
			klen = (size_t)sprintf(k, "k%06u", (unsigned)(t_rand(&rnd) % 200000));
			T_EQ(kvdb_put(kvs, k, klen, v, sizeof(v)), 0);
		}
		T_EQ(kvdb_cursor_open(kvs, 0, NULL, 0, &c[i]), 0);
		if (i % 2)
			T_EQ(kvdb_cursor_next(c[i], &key, &klen, &val, &vlen), 0);
		now = resident() - base;
		most = now > most ? now : most;
	}
	T_EQ(kvdb_stats(kh_db, &st), 0);
	printf("# grown by %.1f MiB at most, owners hold %.1f\n", (double)most / MIB,
	       (double)st.memory_bytes / MIB);
	T_OK(most < st.cache_bytes + 64 * MIB);
	T_EQ(st.cursors, N);
	for (unsigned i = 0; i < N; i++) {
		rc = kvdb_cursor_next(c[i], &key, &klen, &val, &vlen);
		T_OK(!rc || rc == -ESTALE);
		ended += rc == -ESTALE;
		kvdb_cursor_close(c[i]);
	}
	T_OK(ended > N / 2 && ended < N);
	T_EQ(kvdb_stats(kh_db, &st), 0);
	T_EQ(st.cursors, 0);
	T_OK(st.cursors_ended >= ended);
	end();
}

/* ---- the control socket --------------------------------------------------------------- */

static char run_dir[64];
static struct kvdb_info info;
static char answer[8 << 20];

static void run_dir_remove(void)
{
	if (*run_dir)
		nftw(run_dir, th_rm, 16, FTW_DEPTH | FTW_PHYS);
	*run_dir = 0;
}

/* An open database with a socket in a directory of its own. */
static void serve_with(uint32_t flags)
{
	kh_make(POOL, 0);
	run_dir_remove();
	strcpy(run_dir, "/tmp/kvctl.XXXXXX");
	T_OK(mkdtemp(run_dir));
	setenv("XDG_RUNTIME_DIR", run_dir, 1);
	T_EQ(kh_open_with(flags), 0);
	T_EQ(kvdb_info(kh_db, &info), 0);
}

static void serve(void)
{
	serve_with(0);
	T_OK(!strncmp(info.ctl, run_dir, strlen(run_dir)));
}

static int plug(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = 20 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(sa.sun_path, info.ctl, sizeof(sa.sun_path));
	if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa))) {
		close(fd);
		return -errno;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	return fd;
}

/* One line into @answer; false: the server hung up. */
static int hear(int fd)
{
	size_t n = 0;

	while (n < sizeof(answer) - 1) {
		ssize_t got = recv(fd, answer + n, 1, 0);

		/* io_uring interrupts calls with a timeout */
		if (got < 0 && errno == EINTR)
			continue;
		if (got != 1)
			break;
		if (answer[n++] == '\n') {
			answer[n - 1] = 0;
			return 1;
		}
	}
	answer[n] = 0;
	return 0;
}

/* A refused client may be told so, and disconnected, before it could ask. */
static int ask(int fd, const char *line)
{
	if (send(fd, line, strlen(line), MSG_NOSIGNAL) < 0 && errno != EPIPE)
		return 0;
	return hear(fd);
}

static int ask_once(const char *line)
{
	int fd = plug(), r;

	if (fd < 0)
		return 0;
	r = ask(fd, line);
	close(fd);
	return r;
}

static int says(const char *part)
{
	if (strstr(answer, part))
		return 1;
	printf("# the answer is %.300s\n", answer);
	return 0;
}

static int is_ok(void)
{
	return !strncmp(answer, "{\"ok\":true,", 11);
}

static uint64_t number_of(const char *name)
{
	char key[64];
	const char *p;

	snprintf(key, sizeof(key), "\"%s\":", name);
	p = strstr(answer, key);
	T_OK(p != NULL);
	return strtoull(p + strlen(key), NULL, 10);
}

static void the_socket_tells_what_the_calls_tell(void)
{
	struct stat st;
	unsigned i;
	int fd;

	serve();
	for (i = 0; i < 10; i++)
		T_EQ(kh_put(kh_kvs("s"), &i, 4, 1, 5000), 0);
	T_EQ(stat(info.ctl, &st), 0);
	T_OK(S_ISSOCK(st.st_mode));
	T_EQ(st.st_mode & 0777, 0600);
	fd = plug();
	T_OK(fd >= 0);
	T_OK(ask(fd, "{\"cmd\":\"info\"}\n") && is_ok());
	T_EQ(number_of("pid"), getpid());
	T_EQ(number_of("kvs"), 1);
	T_EQ(number_of("interval_ms"), info.interval_ms);
	T_OK(ask(fd, " { \"cmd\" : \"stats\" } \r\n") && is_ok());
	T_EQ(number_of("puts"), 10);
	T_EQ(number_of("cache_bytes"), 64 * MIB);
	T_OK(ask(fd, "{\"cmd\":\"kvs\"}\n") && is_ok());
	T_OK(says("\"stores\":[{\"name\":\"s\","));
	T_OK(ask(fd, "{\"cmd\":\"tree\",\"kvs\":\"\\u0073\"}\n") && is_ok());
	T_EQ(number_of("keys"), 10);
	T_OK(ask(fd, "{\"cmd\":\"tree\"}\n") && is_ok());
	T_EQ(number_of("keys"), 10);
	T_OK(ask(fd, "{\"cmd\":\"tree\",\"kvs\":\"none\"}\n") && !is_ok());
	T_OK(says("MP0965"));
	/* several requests in one piece are answered in order */
	T_OK(ask(fd, "{\"cmd\":\"info\"}\n{\"cmd\":\"stats\"}\n"));
	T_OK(says("\"cmd\":\"info\""));
	T_OK(hear(fd) && says("\"cmd\":\"stats\""));
	close(fd);
	end();
	T_OK(stat(info.ctl, &st) && errno == ENOENT);
}

static void what_has_no_socket_works_without(void)
{
	static const uint32_t flags[] = { KVDB_NOCTL, KVDB_RDONLY, KVDB_MANUAL };
	char path[128];
	struct stat st;
	unsigned i;

	for (i = 0; i < 3; i++) {
		serve_with(flags[i]);
		T_STREQ(info.ctl, "");
		snprintf(path, sizeof(path), "%s/kvdb", run_dir);
		T_OK(stat(path, &st));
		end();
	}
	/* a directory that others may write to is not trusted */
	kh_make(POOL, 0);
	T_EQ(mkdir(path, 0700), 0);
	T_EQ(chmod(path, 0777), 0);
	kh_open();
	T_EQ(kvdb_info(kh_db, &info), 0);
	T_OK(strncmp(info.ctl, run_dir, strlen(run_dir)));
	end();
}

static void settings_change_while_the_database_works(void)
{
	static const char *const bad[][2] = {
		{ "interval_ms", "0" }, { "interval_ms", "-1" }, { "interval_ms", "soon" },
		{ "interval_ms", "" }, { "interval_ms", "4294967295" }, { "interval_ms", "1 " },
		{ "commit", "2" }, { "log_bytes", "1" }, { "cache_bytes", "1000000000" },
		{ "", "1" },
	};
	static const char *const odd[] = { "", "x", "+5", " 5", "5x", "99999999999999999999999" };
	struct kvdb_kvs_info ki;
	struct kvdb_info in;
	char line[128];
	unsigned i;

	serve();
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		T_EQ(kvdb_set(kh_db, bad[i][0], bad[i][1]), -EINVAL);
		T_STREQ(kvdb_error_detail()->id, "MP0974");
	}
	T_EQ(kvdb_set(kh_db, NULL, "1"), -EINVAL);
	T_EQ(kvdb_set(kh_db, "commit", NULL), -EINVAL);
	T_OK(ask_once("{\"cmd\":\"set\",\"name\":\"interval_ms\",\"value\":7}\n") && is_ok());
	T_EQ(kvdb_info(kh_db, &in), 0);
	T_EQ(in.interval_ms, 7);
	T_EQ(kvdb_set(kh_db, "interval_ms", "none"), 0);
	T_EQ(kvdb_set(kh_db, "commit", "1"), 0);
	T_EQ(kvdb_set(kh_db, "log_bytes", "300000000"), 0);
	T_EQ(kvdb_info(kh_db, &in), 0);
	T_EQ(in.interval_ms, KVDB_INTERVAL_NONE);
	T_EQ(in.commit, 1);
	T_EQ(in.log_bytes, 300000000);
	T_OK(ask_once("{\"cmd\":\"set\",\"name\":\"interval_ms\",\"value\":\"0\"}\n"));
	T_OK(!is_ok() && says("MP0974"));
	T_OK(ask_once("{\"cmd\":\"set\",\"name\":\"commit\"}\n") && !is_ok());
	kh_kvs("s");
	T_OK(ask_once("{\"cmd\":\"set\",\"kvs\":\"s\"}\n") && !is_ok() && says("ttl_s"));
	for (i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		snprintf(line, sizeof(line), "{\"cmd\":\"set\",\"kvs\":\"s\",\"ttl_s\":\"%s\"}\n",
			 odd[i]);
		T_OK(ask_once(line) && !is_ok());
	}
	T_OK(ask_once("{\"cmd\":\"set\",\"kvs\":\"s\",\"policy\":4294967296}\n"));
	T_OK(!is_ok() && says("no such policy"));
	T_EQ(kvdb_kvs_info(kh_kvs("s"), &ki), 0);
	T_EQ(ki.ttl_s, 0);
	T_OK(ask_once("{\"cmd\":\"set\",\"kvs\":\"none\",\"ttl_s\":5}\n") && !is_ok());
	T_OK(says("MP0965"));
	kh_close();
	T_EQ(kh_open_with(KVDB_RDONLY), 0);
	T_EQ(kvdb_set(kh_db, "commit", "1"), -EROFS);
	end();
}

/* Large segments in a small pool: an open raises it as far as the pool lets it. */
static void what_a_database_has_can_be_set(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb_info in;
	char text[32];

	kh_make(POOL, 0);
	o.logs = 2;
	o.segment_bytes = 8 * MIB;
	o.log_bytes = 1;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	T_EQ(kvdb_info(kh_db, &in), 0);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)in.log_bytes);
	T_EQ(kvdb_set(kh_db, "log_bytes", text), 0);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)in.log_bytes - 1);
	T_EQ(kvdb_set(kh_db, "log_bytes", text), -EINVAL);
	end();
}

static void a_setting_makes_durable_what_was_acknowledged(void)
{
	static const char *const set[][2] = {
		{ "interval_ms", "none" }, { "commit", "0" }, { "log_bytes", "300000000" },
	};
	struct kvdb_opts o = kh_opts();
	uint64_t ticket;
	unsigned i;

	kh_make(POOL, 0);
	o.interval_ms = KVDB_INTERVAL_NONE;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	for (i = 0; i < sizeof(set) / sizeof(set[0]); i++) {
		struct kvdb_stats st;

		T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
		ticket = kvdb_ticket(kh_db);
		T_EQ(kvdb_set(kh_db, set[i][0], set[i][1]), 0);
		T_EQ(kvdb_stats(kh_db, &st), 0);
		T_OK(st.durable_epoch >= ticket);
	}
	end();
}

/* With the loss bound off nothing becomes durable by itself; with 20 ms it does, at once. */
static void a_new_loss_bound_holds_from_the_return_on(void)
{
	struct timespec nap = { .tv_nsec = 5000000 };
	struct kvdb_opts o = kh_opts();
	struct kvdb_stats a, b;
	unsigned i;

	kh_make(POOL, 0);
	o.interval_ms = 3600 * 1000;
	T_EQ(kvdb_open(th_pool, &o, &kh_db), 0);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	T_EQ(kvdb_stats(kh_db, &a), 0);
	T_OK(a.durable_epoch < a.epoch);
	T_EQ(kvdb_set(kh_db, "interval_ms", "20"), 0);
	T_EQ(kvdb_stats(kh_db, &b), 0);
	T_OK(b.durable_epoch >= a.epoch);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "w"), 0);
	T_EQ(kvdb_stats(kh_db, &a), 0);
	for (i = 0; i < 2000; i++) {
		T_EQ(kvdb_stats(kh_db, &b), 0);
		if (b.durable_epoch >= a.epoch)
			break;
		nanosleep(&nap, NULL);
	}
	T_OK(i < 2000);
	end();
}

static void a_checkpoint_is_made_on_request(void)
{
	struct kvdb_checkpoint_info c[2];

	serve();
	T_EQ(kh_put_str(kh_kvs("s"), "k", "v"), 0);
	T_OK(ask_once("{\"cmd\":\"checkpoint\",\"name\":\"before\"}\n") && is_ok());
	T_OK(says("\"name\":\"before\""));
	T_EQ(number_of("stores"), 1);
	T_EQ(kvdb_checkpoint_list(kh_db, c, 2), 1);
	T_STREQ(c[0].name, "before");
	T_OK(ask_once("{\"cmd\":\"checkpoint\",\"name\":\"before\"}\n") && !is_ok());
	T_OK(ask_once("{\"cmd\":\"checkpoint\",\"name\":\"a b\"}\n") && !is_ok());
	T_OK(ask_once("{\"cmd\":\"checkpoint\"}\n") && !is_ok() && says("MP0975"));
	T_EQ(kvdb_checkpoint_list(kh_db, c, 2), 1);
	T_OK(ask_once("{\"cmd\":\"checkpoints\"}\n") && is_ok() && says("\"name\":\"before\""));
	T_EQ(number_of("runs"), c[0].runs);
	T_EQ(number_of("epoch"), c[0].epoch);
	T_OK(ask_once("{\"cmd\":\"checkpoint_drop\"}\n") && !is_ok() && says("MP0975"));
	T_OK(ask_once("{\"cmd\":\"checkpoint_drop\",\"name\":\"after\"}\n") && !is_ok());
	T_OK(ask_once("{\"cmd\":\"checkpoint_drop\",\"name\":\"before\"}\n") && is_ok());
	T_EQ(kvdb_checkpoint_list(kh_db, c, 2), 0);
	T_OK(ask_once("{\"cmd\":\"checkpoints\"}\n") && is_ok() && says("\"checkpoints\":[]"));
	end();
}

static void a_compaction_is_started_followed_and_cancelled_on_request(void)
{
	struct timespec nap = { .tv_nsec = 5000000 };
	unsigned i, k;

	serve();
	for (i = 0; i < 3; i++) {
		for (k = 0; k < 2000; k++)
			T_EQ(kh_put(kh_kvs("s"), &k, 4, i, 300), 0);
		T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
	}
	T_OK(ask_once("{\"cmd\":\"compact\"}\n") && !is_ok() && says("action"));
	T_OK(ask_once("{\"cmd\":\"compact\",\"action\":\"stop\"}\n") && !is_ok());
	T_OK(ask_once("{\"cmd\":\"compact\",\"action\":\"start\",\"kvs\":\"none\"}\n") && !is_ok());
	T_OK(says("MP0965"));
	T_OK(ask_once("{\"cmd\":\"compact\",\"action\":\"status\"}\n") && is_ok());
	T_OK(says("\"is_asked\":false"));
	T_OK(ask_once("{\"cmd\":\"compact\",\"action\":\"start\"}\n") && is_ok());
	for (i = 0; i < 4000; i++) {
		T_OK(ask_once("{\"cmd\":\"compact\",\"action\":\"status\"}\n") && is_ok());
		if (strstr(answer, "\"is_asked\":false"))
			break;
		nanosleep(&nap, NULL);
	}
	T_OK(says("\"error\":0"));
	T_OK(number_of("todo_bytes") > 3 * 2000 * 30);
	T_EQ(number_of("done_bytes"), number_of("todo_bytes"));
	T_EQ(number_of("space_amp_max_percent"), 150);
	T_OK(ask_once("{\"cmd\":\"tree\"}\n") && is_ok());
	T_EQ(number_of("keys"), 0);
	/* and one that is taken back leaves what there is */
	T_OK(ask_once("{\"cmd\":\"compact\",\"action\":\"start\",\"kvs\":\"s\"}\n") && is_ok());
	T_OK(ask_once("{\"cmd\":\"compact\",\"action\":\"cancel\"}\n") && is_ok());
	T_OK(says("\"is_asked\":false"));
	for (k = 0; k < 2000; k++)
		T_OK(kh_holds(kh_kvs("s"), &k, 4, 2, 300));
	end();
}

/* Bytes of strangers come back in answers: a text that is cut, a name that is no text. */
static void answers_are_text_whatever_was_asked(void)
{
	static const char *const asked[] = {
		/* cut in the middle of a character */
		"{\"cmd\":\"xäöüäöüäöüäöüäöüäöüäöüäöü\"}\n",
		"{\"cmd\":\"kvs\",\"kvs\":\"\xff\xfe\"}\n",
		"{\"cmd\":\"\xc3\"}\n",
		"{\"cmd\":\"\xed\xa0\x80 \xc0\xaf \xf5\x80\x80\x80 \xe0\x80\x80\"}\n",
		"{\"cmd\":\"x\xf4\x90\x80\x80\xf0\x80\x80\x80\xf0\x9f\x98\"}\n",
	};
	size_t i;

	T_OK(setlocale(LC_CTYPE, "C.UTF-8") != NULL);
	serve();
	for (i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		T_OK(ask_once(asked[i]) && !is_ok());
		if (mbstowcs(NULL, answer, 0) == (size_t)-1)
			T_FAIL("not UTF-8: %s", answer);
	}
	/* what is text is given back as it was */
	T_OK(ask_once("{\"cmd\":\"ä€😀\"}\n") && says("'ä€😀'"));
	setlocale(LC_CTYPE, "C");
	end();
}

static void garbage_is_refused_and_the_next_request_answered(void)
{
	static const char *const bad[] = {
		"", "{", "}", "[]", "null", "info", "{}", "{\"cmd\"}", "{\"cmd\":}", "{\"cmd\":x}",
		"{\"cmd\":\"info\"", "{\"cmd\":\"info\"}}", "{\"cmd\":\"info\"} x",
		"{\"cmd\":{\"a\":1}}", "{\"cmd\":[1]}", "{\"cmd\":\"info\",}", "{,\"cmd\":1}",
		"{\"cmd\":\"info\",\"cmd\":\"info\"}", "{\"cmd\":\"in\\u00fo\"}",
		"{\"cmd\":\"\\ud800\"}", "{\"cmd\":\"\\q\"}", "{\"cmd\":\"\\u0000\"}",
		"{\"cmd\":\"a\tb\"}", "{\"cmd\":\"nothing\"}", "{\"cmd\":7}", "{\"cmd\":\"info\\",
		"{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":1,"
		"\"k\":1,\"l\":1,\"m\":1,\"n\":1,\"o\":1,\"p\":1,\"cmd\":\"info\"}",
	};
	static const char pieces[] = "{}[]\",:\\u0tf1 cmd\x01\xff\0info";
	uint64_t seed = t_seed();
	char line[4096];
	unsigned i, k;
	size_t n;
	int fd;

	serve();
	fd = plug();
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(line, sizeof(line), "%s\n", bad[i]);
		T_OK(ask(fd, line));
		if (is_ok() || !says("MP0975"))
			T_FAIL("not refused: %s", bad[i]);
	}
	/* what the pieces of requests make when they are cut and mixed */
	for (i = 0; i < 3000; i++) {
		n = 0;
		while (n < 100 && t_rand(&seed) % 8)
			for (k = (unsigned)(t_rand(&seed) % 12); k && n < 4000; k--)
				line[n++] = pieces[t_rand(&seed) % sizeof(pieces)];
		for (k = 0; k < n; k++)
			line[k] = line[k] == '\n' ? ' ' : line[k];
		line[n++] = '\n';
		T_EQ(send(fd, line, n, MSG_NOSIGNAL), n);
		T_OK(hear(fd));
		T_OK(!strncmp(answer, "{\"ok\":", 6));
	}
	T_OK(ask(fd, "{\"cmd\":\"info\"}\n") && is_ok());
	close(fd);
	end();
}

/* More than one turn answers, in one piece; and from a client that says nothing more. */
static void many_requests_at_once_are_all_answered(void)
{
	static const char one[] = "{\"cmd\":\"info\"}\n";
	char lines[100 * sizeof(one)] = "";
	unsigned i, k;
	int fd;

	serve();
	for (i = 0; i < 100; i++)
		memcpy(lines + i * (sizeof(one) - 1), one, sizeof(one));
	for (k = 0; k < 2; k++) {
		fd = plug();
		T_EQ(send(fd, lines, strlen(lines), MSG_NOSIGNAL), strlen(lines));
		if (k)
			T_EQ(shutdown(fd, SHUT_WR), 0);
		for (i = 0; i < 100; i++)
			T_OK(hear(fd) && is_ok());
		close(fd);
	}
	end();
}

static void a_request_without_end_is_cut_off(void)
{
	char line[5000];
	int fd;

	serve();
	fd = plug();
	memset(line, ' ', sizeof(line));
	T_EQ(send(fd, line, sizeof(line), MSG_NOSIGNAL), sizeof(line));
	T_OK(hear(fd) && says("MP0971"));
	T_OK(!hear(fd));
	close(fd);
	/* the longest that is taken */
	fd = plug();
	memcpy(line, "{\"cmd\":\"info\"", 13);
	line[4094] = '}';
	line[4095] = '\n';
	line[4096] = 0;
	T_OK(ask(fd, line) && is_ok());
	close(fd);
	end();
}

/* Many clients, some silent: each that asks is answered or told why not. */
static void many_clients_are_bounded_and_silent_ones_make_room(void)
{
	struct timespec nap = { .tv_nsec = 700000000 };
	int fd[40], late;
	unsigned i, served = 0, refused = 0;

	serve();
	for (i = 0; i < 40; i++) {
		fd[i] = plug();
		T_OK(fd[i] >= 0);
		T_OK(ask(fd[i], "{\"cmd\":\"info\"}\n"));
		if (is_ok())
			served++;
		else if (says("MP0973"))
			refused++;
	}
	T_EQ(served, 16);
	T_EQ(refused, 24);
	nanosleep(&nap, NULL);
	late = plug();
	T_OK(ask(late, "{\"cmd\":\"info\"}\n") && is_ok());
	close(late);
	for (i = 0; i < 40; i++)
		close(fd[i]);
	T_OK(ask_once("{\"cmd\":\"info\"}\n") && is_ok());
	end();
}

/* Clients that take no answers fill their own socket and no other. */
static void who_does_not_listen_holds_nobody_up(void)
{
	static const char request[] = "{\"cmd\":\"stats\"}\n";
	unsigned i, k, sent = 0;
	int fd[8];

	serve();
	for (i = 0; i < 8; i++) {
		fd[i] = plug();
		for (k = 0; k < 20000; k++)
			if (send(fd[i], request, sizeof(request) - 1,
				 MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
				break;
		sent += k;
	}
	T_OK(sent > 1000);
	for (i = 0; i < 50; i++)
		T_OK(ask_once("{\"cmd\":\"info\"}\n") && is_ok());
	/* half a request, and one byte after the other */
	for (i = 0; i < 3; i++)
		T_EQ(send(fd[i], "{\"c", 3, MSG_NOSIGNAL | MSG_DONTWAIT) > 3, 0);
	T_OK(ask_once("{\"cmd\":\"info\"}\n") && is_ok());
	/* one of them listens at last and misses nothing */
	T_OK(hear(fd[0]) && is_ok());
	T_OK(hear(fd[0]) && is_ok());
	for (i = 0; i < 8; i++)
		close(fd[i]);
	end();
}

static _Atomic(int) storm_end, storm_asked;

static void *storm(void *arg)
{
	unsigned n = *(unsigned *)arg;
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char buf[65536];

	memcpy(sa.sun_path, info.ctl, sizeof(sa.sun_path));
	while (!atomic_load(&storm_end)) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (!connect(fd, (struct sockaddr *)&sa, sizeof(sa)) &&
		    send(fd, "{\"cmd\":\"tree\"}\n{\"cm", 19, MSG_NOSIGNAL) > 0 &&
		    (n % 2 || recv(fd, buf, sizeof(buf), 0) > 0))
			atomic_fetch_add(&storm_asked, 1);
		close(fd);
	}
	return NULL;
}

/* Clients come, ask and vanish while stores are written, made, renamed, dropped, flushed. */
static void clients_and_writers_do_not_disturb_each_other(void)
{
	pthread_t th[3];
	unsigned no[3] = { 0, 1, 2 }, i;
	char a[32], b[32];

	serve();
	atomic_store(&storm_end, 0);
	atomic_store(&storm_asked, 0);
	for (i = 0; i < 3; i++)
		T_EQ(pthread_create(&th[i], NULL, storm, &no[i]), 0);
	for (i = 0; i < 60; i++) {
		snprintf(a, sizeof(a), "a%u", i);
		snprintf(b, sizeof(b), "b%u", i);
		T_EQ(kh_put(kh_kvs(a), &i, 4, i, 3000), 0);
		T_EQ(kvdb_kvs_rename(kh_db, a, b), 0);
		T_EQ(kh_put(kh_kvs("s"), &i, 4, i, 3000), 0);
		if (i % 4 == 0)
			T_EQ(kvdb_drain(kh_db, KVDB_WAIT_FLUSH), 0);
		T_EQ(kvdb_kvs_drop(kh_db, b), 0);
	}
	for (i = 0; i < 60; i++)
		T_OK(kh_holds(kh_kvs("s"), &i, 4, i, 3000));
	/* and closes while they ask */
	kh_close();
	atomic_store(&storm_end, 1);
	for (i = 0; i < 3; i++)
		pthread_join(th[i], NULL);
	T_OK(atomic_load(&storm_asked) > 10);
	kh_open();
	end();
}

static void close_hangs_up_on_clients(void)
{
	struct timespec a, b;
	int fd[5];
	unsigned i;

	serve();
	for (i = 0; i < 5; i++)
		fd[i] = plug();
	T_OK(ask(fd[0], "{\"cmd\":\"info\"}\n"));
	T_EQ(send(fd[1], "{\"cmd\"", 6, MSG_NOSIGNAL), 6);
	for (i = 0; i < 3000; i++)
		if (send(fd[2], "{\"cmd\":\"stats\"}\n", 16, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
	clock_gettime(CLOCK_MONOTONIC, &a);
	kh_close();
	clock_gettime(CLOCK_MONOTONIC, &b);
	T_OK(b.tv_sec - a.tv_sec < 10);
	T_OK(!hear(fd[0]));
	T_OK(!hear(fd[1]));
	T_EQ(plug(), -ENOENT);
	for (i = 0; i < 5; i++)
		close(fd[i]);
	kh_open();
	end();
}

static void die(void)
{
	/* kh_die_in() opened it; the socket stays behind */
	T_EQ(kvdb_info(kh_db, &info), 0);
	T_OK(info.ctl[0]);
}

static void a_dead_socket_is_replaced_and_a_foreign_one_left_alone(void)
{
	struct stat st;

	serve();
	kh_close();
	kh_die_in(die);
	T_EQ(stat(info.ctl, &st), 0);
	T_EQ(plug(), -ECONNREFUSED);
	kh_open();
	T_OK(ask_once("{\"cmd\":\"info\"}\n") && is_ok());
	/* a copy of the pool that is opened later takes the name over; its name is not removed */
	T_EQ(unlink(info.ctl), 0);
	T_EQ(mkdir(info.ctl, 0700), 0);
	kh_close();
	T_EQ(stat(info.ctl, &st), 0);
	T_OK(S_ISDIR(st.st_mode));
	T_EQ(rmdir(info.ctl), 0);
	kh_open();
	end();
}

/* A socket beside the database's own, of which @path is set; its descriptor. */
static int socket_at(const char *name, char path[sizeof(info.ctl)])
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(path, sizeof(info.ctl), "%.60s/kvdb/%s", run_dir, name);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	T_EQ(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void what_killed_processes_left_goes_and_nothing_else(void)
{
	static const char other[] = "00000000-0000-4000-8000-000000000000.sock";
	char dead[2][sizeof(info.ctl)], live[2][sizeof(info.ctl)];
	int listens, made;
	FILE *f;

	serve();
	kh_close();
	close(socket_at(other, dead[0]));
	/* died between bind and rename */
	close(socket_at(".00000000-1-2", dead[1]));
	listens = socket_at("11111111-0000-4000-8000-000000000000.sock", live[0]);
	T_EQ(listen(listens, 1), 0);
	/* takes no connection, yet or any more */
	made = socket_at(".11111111-3-4", live[1]);
	snprintf(answer, 200, "%s/kvdb/file", run_dir);
	f = fopen(answer, "w");
	T_OK(f && !fclose(f));
	kh_open();
	T_OK(access(dead[0], F_OK) && errno == ENOENT);
	T_OK(access(dead[1], F_OK) && errno == ENOENT);
	T_EQ(access(live[0], F_OK), 0);
	T_EQ(access(live[1], F_OK), 0);
	T_EQ(access(answer, F_OK), 0);
	/* no client connected */
	T_EQ(fcntl(listens, F_SETFL, O_NONBLOCK), 0);
	T_OK(accept(listens, NULL, NULL) < 0 && errno == EAGAIN);
	close(listens);
	close(made);
	T_OK(ask_once("{\"cmd\":\"info\"}\n") && is_ok());
	end();
}

/* A process of another user, to which every file mode is open. */
static int other_asks(void)
{
	if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
		return 2;
	if (!ask_once("{\"cmd\":\"info\"}\n"))
		return 3;
	if (is_ok() || !strstr(answer, "MP0972"))
		return 4;
	return 0;
}

static void another_user_is_refused_by_his_identity(void)
{
	char dir[128];
	int status = -1;
	pid_t pid;

	serve();
	snprintf(dir, sizeof(dir), "%s/kvdb", run_dir);
	T_EQ(chmod(run_dir, 0755), 0);
	T_EQ(chmod(dir, 0755), 0);
	T_EQ(chmod(info.ctl, 0666), 0);
	fflush(stdout);
	pid = fork();
	T_OK(pid >= 0);
	if (!pid)
		_exit(other_asks());
	T_EQ(waitpid(pid, &status, 0), pid);
	T_OK(WIFEXITED(status));
	T_EQ(WEXITSTATUS(status), 0);
	T_OK(ask_once("{\"cmd\":\"info\"}\n") && is_ok());
	end();
}

/* Two databases in one process: sockets, counters and memory are each one's own. */
static void several_databases_of_a_process_have_each_their_own(void)
{
	struct kvdb_opts o = kh_opts();
	struct kvdb_info first, second;
	struct kvdb_stats st;
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	char path[300];

	serve();
	first = info;
	snprintf(path, sizeof(path), "%s/second", th_dir);
	T_EQ(th_create_at(path, POOL, 0), 0);
	T_EQ(kvdb_create(path, NULL), 0);
	T_EQ(kvdb_open(path, &o, &db), 0);
	T_EQ(kvdb_info(db, &second), 0);
	T_OK(second.ctl[0] && strcmp(first.ctl, second.ctl));
	T_EQ(kvdb_kvs_create(db, "other", NULL), 0);
	T_EQ(kvdb_kvs_open(db, "other", &kvs), 0);
	T_EQ(kh_put_str(kvs, "k", "second"), 0);
	T_EQ(kh_put_str(kh_kvs("s"), "k", "first"), 0);
	T_EQ(kh_put_str(kh_kvs("s"), "l", "first"), 0);
	T_OK(ask_once("{\"cmd\":\"stats\"}\n") && is_ok());
	T_EQ(number_of("puts"), 2);
	info = second;
	T_OK(ask_once("{\"cmd\":\"stats\"}\n") && is_ok());
	T_EQ(number_of("puts"), 1);
	T_OK(ask_once("{\"cmd\":\"kvs\"}\n") && says("other"));
	T_EQ(kvdb_stats(db, &st), 0);
	T_EQ(st.puts, 1);
	T_EQ(kvdb_close(db), 0);
	info = first;
	T_OK(ask_once("{\"cmd\":\"info\"}\n") && is_ok());
	end();
}

static void ctl_tests(void)
{
	TH_RUN_FILES(several_databases_of_a_process_have_each_their_own);
	T_RUN(the_socket_tells_what_the_calls_tell);
	T_RUN(what_has_no_socket_works_without);
	T_RUN(settings_change_while_the_database_works);
	T_RUN(what_a_database_has_can_be_set);
	T_RUN(a_setting_makes_durable_what_was_acknowledged);
	T_RUN(a_new_loss_bound_holds_from_the_return_on);
	T_RUN(a_checkpoint_is_made_on_request);
	T_RUN(a_compaction_is_started_followed_and_cancelled_on_request);
	T_RUN(garbage_is_refused_and_the_next_request_answered);
	T_RUN(answers_are_text_whatever_was_asked);
	T_RUN(many_requests_at_once_are_all_answered);
	T_RUN(a_request_without_end_is_cut_off);
	T_RUN(many_clients_are_bounded_and_silent_ones_make_room);
	T_RUN(who_does_not_listen_holds_nobody_up);
	T_RUN(clients_and_writers_do_not_disturb_each_other);
	T_RUN(close_hangs_up_on_clients);
	TH_RUN_FILES(a_dead_socket_is_replaced_and_a_foreign_one_left_alone);
	T_RUN(what_killed_processes_left_goes_and_nothing_else);
	if (geteuid())
		t_skip("another_user_is_refused_by_his_identity", "needs root");
	else
		TH_RUN_FILES(another_user_is_refused_by_his_identity);
	run_dir_remove();
}

int main(void)
{
	KH_RUN_MODES(a_renamed_store_keeps_its_data_and_its_handle);
	T_RUN(renames_that_cannot_be_change_nothing);
	T_RUN(a_rename_survives_the_death_of_the_process);
	T_RUN(many_renames_leave_the_last_name);
	T_RUN(the_shape_of_a_store_adds_up);
	/* sanitizers hold memory of their own */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	(void)the_owners_of_memory_add_up_to_what_the_process_grew_by;
	(void)many_idle_cursors_fit_into_memory;
#else
	TH_RUN_FILES(the_owners_of_memory_add_up_to_what_the_process_grew_by);
	TH_RUN_FILES(many_idle_cursors_fit_into_memory);
#endif
	ctl_tests();
	th_clean();
	return t_done();
}
