/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The control socket of an open database, for both commands. Where the sockets lie is written in
 * libkvdb/ctl/ctl.c.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "ctlsock.h"

int ctlsock_open(const char *path, uid_t owner, unsigned send_s, unsigned recv_s)
{
	struct timeval send = { .tv_sec = send_s }, recv = { .tv_sec = recv_s };
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(struct ucred);
	struct ucred cr;
	int fd, err;

	if (strlen(path) >= sizeof(sa.sun_path))
		return -ENOENT;
	memcpy(sa.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send, sizeof(send));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &recv, sizeof(recv));
	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cr, &len))
		err = errno;
	else if (cr.uid && cr.uid != owner && cr.uid != geteuid())
		err = EPERM;
	else
		return fd;
	close(fd);
	return -err;
}
