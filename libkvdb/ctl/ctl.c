/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The control socket: its path, its clients, and when one is cut off (R20).
 *
 * One thread serves all clients with poll(). A client has one request at a
 * time: while its answer waits to be taken, nothing more is read from it. So
 * memory is bounded by the number of clients, and a client that is slow, sends
 * garbage or nothing costs only its place, which it loses after a while. The
 * thread takes no lock that a writer waits for longer than kvdb_stats() does.
 *
 * Place: DIR/UUID-DEV-INO.sock, where UUID is the pool's, and DEV and INO are the
 * numbers of its folder, since a copy of the pool has its UUID (one of the module has
 * no copy and no folder: DIR/UUID.sock). DIR is the first that can be used of
 * $XDG_RUNTIME_DIR/kvdb, /run/kvdb (root) or /run/user/UID/kvdb, and
 * /tmp/kvdb-UID; it must be a directory of ours that no other user may write to.
 * The socket is made under another name and renamed, so a client that finds
 * the name finds a process that listens, or one that died. The pool's lease, which
 * one live database holds, makes replacing it safe. At close the name goes if
 * it is still this socket's. What killed processes left there goes with the
 * next socket: their pools may never be opened again.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "ctl/ctl.h"
#include "base/error.h"
#include "base/guard.h"
#include "db/db.h"
#include "db/thread.h"

#define CLIENTS		16u
#define NSEC		1000000000ull
#define BUSY_NS		(10 * NSEC)	/* half a request, an answer not taken */
#define IDLE_NS		(60 * NSEC)
#define EVICT_NS	(NSEC / 2)	/* all places taken: one silent so long may go */
#define BATCH		16		/* requests of one client before the others' turn */

struct client {
	int c_fd;
	uint64_t c_since;		/* last progress */
	size_t c_n;
	size_t c_sent;
	bool c_last;			/* closes when its answer is delivered */
	struct kv_ctl_out c_out;
	char c_in[KV_CTL_LINE];
};

struct kv_ctl {
	struct kvdb *ct_db;
	int ct_fd;			/* listens */
	int ct_stop;			/* eventfd */
	bool ct_deaf;			/* accept() failed: rests until the next round */
	pthread_t ct_thread;
	struct stat ct_stat;		/* of the name, as it was made */
	char ct_path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	unsigned ct_n;
	struct client *ct_client[CLIENTS];
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

/* ---- the place --------------------------------------------------------------------- */

static bool dir_is_ours(const char *dir)
{
	struct stat st;

	if (mkdir(dir, 0700) && errno != EEXIST)
		return false;
	return !lstat(dir, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 022);
}

/* The first directory that can be used and leaves room for the name; false: none. */
static bool find_dir(char *dir, size_t size)
{
	const char *xdg = secure_getenv("XDG_RUNTIME_DIR");
	unsigned uid = (unsigned)geteuid();
	int n;

	if (xdg && *xdg == '/') {
		n = snprintf(dir, size, "%s/kvdb", xdg);
		if (n > 0 && (size_t)n < size && dir_is_ours(dir))
			return true;
	}
	if (uid)
		snprintf(dir, size, "/run/user/%u/kvdb", uid);
	else
		snprintf(dir, size, "/run/kvdb");
	if (dir_is_ours(dir))
		return true;
	snprintf(dir, size, "/tmp/kvdb-%u", uid);
	return dir_is_ours(dir);
}

/*
 * A socket that no process serves. A datagram is offered: a listener is of another type and is
 * not disturbed, which a connection would do.
 */
static bool is_dead(const struct sockaddr_un *sa)
{
	int fd = mpool_fd_up(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	struct stat st;
	bool is = !lstat(sa->sun_path, &st) && S_ISSOCK(st.st_mode) && fd >= 0 &&
		  connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) && errno == ECONNREFUSED;

	if (fd >= 0)
		close(fd);
	return is;
}

static void sweep(DIR *d, const char *dir)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct dirent *e;
	int n;

	while ((e = readdir(d))) {
		n = snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s", dir, e->d_name);
		if (n > 0 && (size_t)n < sizeof(sa.sun_path) && is_dead(&sa))
			unlink(sa.sun_path);
	}
}

#define DIR_MAX (sizeof(((struct kv_ctl *)0)->ct_path) - sizeof("/.sock") - 36)

/* Sets @dir and ct_path; false: too long for a socket. */
static bool name_it(struct kv_ctl *ct, const char *pool, char dir[DIR_MAX],
		    char tmp[sizeof(ct->ct_path)])
{
	char uuid[40], folder[40] = "";
	struct mpool_info pi;
	const uint8_t *u = pi.uuid;
	struct stat st;
	int n, m;

	if (strchr(pool, '/') && !stat(pool, &st) && S_ISDIR(st.st_mode))
		snprintf(folder, sizeof(folder), "-%llx-%llx", (unsigned long long)st.st_dev,
			 (unsigned long long)st.st_ino);
	if (mpool_info(ct->ct_db->d_mp, &pi) || !find_dir(dir, DIR_MAX - strlen(folder)))
		return false;
	snprintf(uuid, sizeof(uuid),
		 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
		 u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
		 u[15]);
	n = snprintf(ct->ct_path, sizeof(ct->ct_path), "%s/%s%s.sock", dir, uuid, folder);
	m = snprintf(tmp, sizeof(ct->ct_path), "%s/.%.8s-%d-%llu", dir, uuid, (int)getpid(),
		     (unsigned long long)ct->ct_db->d_threads.dt_id);
	return n > 0 && (size_t)n < sizeof(ct->ct_path) && m > 0 && (size_t)m < sizeof(ct->ct_path);
}

static bool show(struct kv_ctl *ct, struct sockaddr_un *sa)
{
	ct->ct_fd = mpool_fd_up(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (ct->ct_fd < 0)
		return false;
	/* a process of the same number that died between bind and rename */
	unlink(sa->sun_path);
	if (bind(ct->ct_fd, (struct sockaddr *)sa, sizeof(*sa)))
		return false;
	if (!chmod(sa->sun_path, 0600) && !listen(ct->ct_fd, (int)CLIENTS) &&
	    !lstat(sa->sun_path, &ct->ct_stat) && !rename(sa->sun_path, ct->ct_path))
		return true;
	unlink(sa->sun_path);
	return false;
}

static bool listen_at(struct kv_ctl *ct, const char *pool)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char path[DIR_MAX];
	bool is_shown;
	DIR *d = NULL;
	int fd;

	if (!name_it(ct, pool, path, sa.sun_path))
		return false;
	/*
	 * Between bind and the first look at it a socket seems dead: a sweep has the lock. A thread
	 * that does not get it at once does without, since its holder may be stopped.
	 */
	fd = mpool_fd_up(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
		d = fdopendir(fd);
	if (d)
		sweep(d, path);
	is_shown = show(ct, &sa);
	if (d)
		closedir(d);
	else if (fd >= 0)
		close(fd);
	return is_shown;
}

static void leave(struct kv_ctl *ct)
{
	struct stat st;

	/* what another process put there stays */
	if (!lstat(ct->ct_path, &st) && st.st_dev == ct->ct_stat.st_dev &&
	    st.st_ino == ct->ct_stat.st_ino)
		unlink(ct->ct_path);
}

/* ---- clients ------------------------------------------------------------------------- */

static void drop(struct kv_ctl *ct, unsigned i)
{
	struct client *c = ct->ct_client[i];

	close(c->c_fd);
	kv_out_free(&c->c_out);
	free(c);
	ct->ct_client[i] = ct->ct_client[--ct->ct_n];
}

static bool has_answer(const struct client *c)
{
	return c->c_sent < c->c_out.ou_len;
}

/* Its next request is there already: no event tells so. */
static bool has_request(const struct client *c)
{
	return !has_answer(c) && memchr(c->c_in, '\n', c->c_n);
}

static short wanted(const struct client *c)
{
	return has_answer(c) ? POLLOUT : POLLIN;
}

/* Not the client's fault: another's request may have taken us long. */
static bool is_silent(const struct client *c)
{
	struct pollfd p = { .fd = c->c_fd, .events = wanted(c) };

	return !has_request(c) && !poll(&p, 1, 0);
}

/* Sends what fits; false: the client is gone. */
static bool deliver(struct client *c)
{
	while (has_answer(c)) {
		ssize_t n = send(c->c_fd, c->c_out.ou_p + c->c_sent, c->c_out.ou_len - c->c_sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 && errno == EAGAIN;
		c->c_sent += (size_t)n;
		c->c_since = now_ns();
	}
	/* one large answer must not stay for the life of the client */
	kv_out_free(&c->c_out);
	c->c_sent = 0;
	return !c->c_last;
}

/* Answers complete lines, one after the other is delivered; false: the client is to go. */
static bool answer(struct kv_ctl *ct, struct client *c)
{
	char *end;
	int n;

	for (n = 0; n < BATCH && !has_answer(c); n++) {
		size_t len;

		end = memchr(c->c_in, '\n', c->c_n);
		if (!end && c->c_n < sizeof(c->c_in))
			return true;
		if (end) {
			len = (size_t)(end - c->c_in);
			kv_ctl_command(ct->ct_db, c->c_in, len, &c->c_out);
			c->c_n -= len + 1;
			memmove(c->c_in, end + 1, c->c_n);
		} else {
			kv_error(-E2BIG, "MP0971", "a request has at most %u bytes", KV_CTL_LINE);
			kv_ctl_refuse(&c->c_out);
			c->c_last = true;
		}
		if (!deliver(c))
			return false;
	}
	return true;
}

/* False: the client is to go. */
static bool hear(struct kv_ctl *ct, struct client *c)
{
	ssize_t n = recv(c->c_fd, c->c_in + c->c_n, sizeof(c->c_in) - c->c_n, MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR;
	if (!n)
		return false;
	c->c_n += (size_t)n;
	c->c_since = now_ns();
	return answer(ct, c);
}

/* The same user, and root, may ask. */
static bool is_welcome(int fd)
{
	struct ucred cr;
	socklen_t len = sizeof(cr);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cr, &len) || len != sizeof(cr))
		return false;
	return CHECK(cr.uid == geteuid() || cr.uid == 0);
}

/* Makes a place when all are taken: the client that was silent longest. */
static void make_place(struct kv_ctl *ct)
{
	uint64_t since = now_ns() - EVICT_NS;
	unsigned i, old = CLIENTS;

	for (i = 0; i < ct->ct_n; i++)
		if (ct->ct_client[i]->c_since < since && is_silent(ct->ct_client[i])) {
			since = ct->ct_client[i]->c_since;
			old = i;
		}
	if (old < CLIENTS)
		drop(ct, old);
}

/* Says why and hangs up; what does not fit into the socket is not worth waiting for. */
static void send_away(int fd)
{
	struct kv_ctl_out o = { 0 };

	kv_ctl_refuse(&o);
	(void)send(fd, o.ou_p, o.ou_len, MSG_NOSIGNAL | MSG_DONTWAIT);
	kv_out_free(&o);
	close(fd);
}

static void welcome(struct kv_ctl *ct)
{
	int fd = mpool_fd_up(accept4(ct->ct_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
	struct client *c;

	if (fd < 0) {
		/* no descriptors: the waiting client would wake us at once again */
		ct->ct_deaf = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
		return;
	}
	if (!is_welcome(fd)) {
		kv_error(-EPERM, "MP0972", "only the user of the database's process and root are "
			 "answered");
		send_away(fd);
		return;
	}
	if (ct->ct_n == CLIENTS)
		make_place(ct);
	c = ct->ct_n < CLIENTS ? malloc(sizeof(*c)) : NULL;
	if (!c) {
		kv_error(-EBUSY, "MP0973", "%u clients are being answered", ct->ct_n);
		send_away(fd);
		return;
	}
	*c = (struct client){ .c_fd = fd, .c_since = now_ns() };
	ct->ct_client[ct->ct_n++] = c;
}

/* ---- the thread ------------------------------------------------------------------------ */

static void expire(struct kv_ctl *ct)
{
	uint64_t now = now_ns();
	unsigned i = 0;

	while (i < ct->ct_n) {
		struct client *c = ct->ct_client[i];
		uint64_t limit = has_answer(c) || c->c_n ? BUSY_NS : IDLE_NS;

		if (now - c->c_since > limit && is_silent(c))
			drop(ct, i);
		else
			i++;
	}
}

/* One turn of a client for which poll() has seen @events; false: it is to go. */
static bool attend(struct kv_ctl *ct, struct client *c, short events)
{
	/* before its socket is read again: a client that sends no more is answered all the same */
	if (has_request(c))
		return answer(ct, c);
	if (!events)
		return true;
	return has_answer(c) ? deliver(c) && answer(ct, c) : hear(ct, c);
}

/* One round: waits, then gives every client one turn. False: the end. */
static bool serve(struct kv_ctl *ct)
{
	struct pollfd p[CLIENTS + 2];
	unsigned i, n = ct->ct_n;
	int wait_ms = n || ct->ct_deaf ? 1000 : -1;

	p[0] = (struct pollfd){ .fd = ct->ct_stop, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = ct->ct_deaf ? -1 : ct->ct_fd, .events = POLLIN };
	for (i = 0; i < n; i++) {
		struct client *c = ct->ct_client[i];

		p[i + 2] = (struct pollfd){ .fd = c->c_fd, .events = wanted(c) };
		if (has_request(c))
			wait_ms = 0;
	}
	if (poll(p, n + 2, wait_ms) < 0 && errno != EINTR)
		return false;
	if (p[0].revents)
		return false;
	ct->ct_deaf = false;
	/* from the end: drop() moves the last one into the hole */
	for (i = n; i--; )
		if (!attend(ct, ct->ct_client[i], p[i + 2].revents))
			drop(ct, i);
	expire(ct);
	if (p[1].revents)
		welcome(ct);
	return true;
}

static void *ctl_main(void *arg)
{
	struct kv_ctl *ct = arg;

	while (serve(ct))
		;
	while (ct->ct_n)
		drop(ct, ct->ct_n - 1);
	return NULL;
}

void kv_ctl_start(struct kvdb *db, const char *pool)
{
	struct kv_ctl *ct = calloc(1, sizeof(*ct));
	bool is_named = false;

	if (!ct)
		return;
	ct->ct_db = db;
	ct->ct_fd = -1;
	ct->ct_stop = mpool_fd_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (ct->ct_stop >= 0)
		is_named = listen_at(ct, pool);
	/* before the thread is there: it reads it */
	db->d_ctl = is_named ? ct : NULL;
	db->d_opened.on_ctl_path = is_named ? ct->ct_path : NULL;
	if (is_named && !kv_thread_start(&ct->ct_thread, ctl_main, ct))
		return;
	db->d_ctl = NULL;
	db->d_opened.on_ctl_path = NULL;
	if (is_named)
		leave(ct);
	if (ct->ct_fd >= 0)
		close(ct->ct_fd);
	if (ct->ct_stop >= 0)
		close(ct->ct_stop);
	free(ct);
}

void kv_ctl_stop(struct kvdb *db)
{
	struct kv_ctl *ct = db->d_ctl;

	if (!ct)
		return;
	/* first the name: a client that comes from now on finds no socket, not one that hangs up */
	leave(ct);
	eventfd_write(ct->ct_stop, 1);
	pthread_join(ct->ct_thread, NULL);
	close(ct->ct_fd);
	close(ct->ct_stop);
	free(ct);
	db->d_ctl = NULL;
	db->d_opened.on_ctl_path = NULL;
}
