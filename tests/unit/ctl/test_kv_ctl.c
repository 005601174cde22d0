/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Clients of the control socket while the request of one takes long: which is cut off
 * for silence, by a clock that such a request moves on.
 */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "ctl/ctl.h"
#include "harness.h"

static uint64_t fake_ns;

static int fake_clock(clockid_t id, struct timespec *ts)
{
	(void)id;
	ts->tv_sec = (time_t)(fake_ns / 1000000000u);
	ts->tv_nsec = (long)(fake_ns % 1000000000u);
	return 0;
}

static unsigned slow_s;
static void (*meanwhile)(void);

/* The request "slow" takes so many seconds, in which others do something. */
static void fake_command(struct kvdb *db, const char *line, size_t len, struct kv_ctl_out *o)
{
	(void)db;
	if (len == 4 && !memcmp(line, "slow", 4)) {
		fake_ns += slow_s * 1000000000ull;
		if (meanwhile)
			meanwhile();
	}
	kv_out_begin(o);
	kv_out_done(o);
}

#define clock_gettime fake_clock
#define kv_ctl_command fake_command
#include "ctl/ctl.c"
#include "db/db.h"
#undef clock_gettime

static struct kvdb db;
static struct kv_ctl ct;
static int end[CLIENTS];	/* the clients' own */

static void add_client(void)
{
	struct client *c = calloc(1, sizeof(*c));
	int fd[2];

	T_OK(c && !socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
	c->c_fd = fd[0];
	c->c_since = fake_ns;
	end[ct.ct_n] = fd[1];
	ct.ct_client[ct.ct_n++] = c;
}

/* The last of @n clients is the first to be served in each round. */
static void begin(unsigned n)
{
	ct = (struct kv_ctl){ .ct_db = &db, .ct_fd = -1 };
	ct.ct_stop = eventfd(0, EFD_NONBLOCK);
	fake_ns = 1000000000000u;
	while (ct.ct_n < n)
		add_client();
}

static void finish(void)
{
	while (ct.ct_n)
		drop(&ct, ct.ct_n - 1);
	for (unsigned i = 0; i < CLIENTS; i++)
		if (end[i])
			close(end[i]);
	memset(end, 0, sizeof(end));
	close(ct.ct_stop);
	if (ct.ct_fd >= 0)
		close(ct.ct_fd);
}

static void say(unsigned i, const char *text)
{
	T_EQ(send(end[i], text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static bool has_heard(int fd)
{
	char buf[8];

	return recv(fd, buf, sizeof(buf), MSG_DONTWAIT) == 3 && !memcmp(buf, "{}\n", 3);
}

static void the_other_ends_his_request(void)
{
	say(0, "\"}\n");
}

static void who_asks_while_another_is_served_is_answered(void)
{
	begin(2);
	meanwhile = the_other_ends_his_request;
	/* half a request, and the rest while the other's takes twelve seconds */
	say(0, "{\"cmd\":\"info");
	T_OK(serve(&ct));
	slow_s = 12;
	say(1, "slow\n");
	T_OK(serve(&ct));
	T_OK(has_heard(end[1]));
	T_EQ(ct.ct_n, 2);
	T_OK(serve(&ct));
	T_OK(has_heard(end[0]));
	/* nothing before, and all of it while the other's takes two minutes */
	slow_s = 120;
	say(1, "slow\n");
	T_OK(serve(&ct));
	T_EQ(ct.ct_n, 2);
	T_OK(serve(&ct));
	T_OK(has_heard(end[0]));
	finish();
}

static void who_is_silent_meanwhile_is_not_waited_for(void)
{
	begin(2);
	meanwhile = NULL;
	say(0, "{\"cmd\":");
	T_OK(serve(&ct));
	slow_s = 12;
	say(1, "slow\n");
	T_OK(serve(&ct));
	T_EQ(ct.ct_n, 1);
	T_OK(has_heard(end[1]));
	T_EQ(recv(end[0], &slow_s, 1, MSG_DONTWAIT), 0);
	finish();
}

static void all_ask(void)
{
	for (unsigned i = 0; i + 1 < CLIENTS; i++)
		say(i, "x\n");
}

static void a_full_house_that_asks_makes_no_place(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	socklen_t len;
	char buf[1024] = "";
	unsigned i;
	int late;

	begin(CLIENTS);
	/* a name of the kernel's choice */
	ct.ct_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	T_EQ(bind(ct.ct_fd, (struct sockaddr *)&sa, sizeof(sa.sun_family)), 0);
	T_EQ(listen(ct.ct_fd, 4), 0);
	len = sizeof(sa);
	T_EQ(getsockname(ct.ct_fd, (struct sockaddr *)&sa, &len), 0);
	late = socket(AF_UNIX, SOCK_STREAM, 0);
	T_EQ(connect(late, (struct sockaddr *)&sa, len), 0);
	meanwhile = all_ask;
	slow_s = 5;
	say(CLIENTS - 1, "slow\n");
	T_OK(serve(&ct));
	T_OK(recv(late, buf, sizeof(buf) - 1, MSG_DONTWAIT) > 0);
	T_OK(strstr(buf, "MP0973") != NULL);
	T_OK(serve(&ct));
	for (i = 0; i < CLIENTS; i++)
		T_OK(has_heard(end[i]));
	close(late);
	/* of silent clients the one that has been silent longest goes */
	fake_ns += NSEC;
	say(0, "x\n");
	T_OK(serve(&ct));
	T_OK(has_heard(end[0]));
	fake_ns += NSEC;
	late = socket(AF_UNIX, SOCK_STREAM, 0);
	T_EQ(connect(late, (struct sockaddr *)&sa, len), 0);
	T_OK(serve(&ct));
	T_EQ(ct.ct_n, CLIENTS);
	say(0, "x\n");
	T_OK(serve(&ct));
	T_OK(has_heard(end[0]));
	close(late);
	finish();
}

int main(void)
{
	T_RUN(who_asks_while_another_is_served_is_answered);
	T_RUN(who_is_silent_meanwhile_is_not_waited_for);
	T_RUN(a_full_house_that_asks_makes_no_place);
	return t_done();
}
