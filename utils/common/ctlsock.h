/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* The control socket of an open database. */
#ifndef UTILS_CTLSOCK_H
#define UTILS_CTLSOCK_H

#include <sys/types.h>

/*
 * Connects to the socket at @path if this user, root or @owner listens there: below /tmp any
 * user may have taken the name. Waits at most @send_s seconds to connect and to send, @recv_s to
 * receive. Returns a descriptor or -errno: -ENOENT, also of a path that is too long; -EPERM:
 * another user listens.
 */
int ctlsock_open(const char *path, uid_t owner, unsigned send_s, unsigned recv_s);

#endif
