/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Exit codes of every command, and the one place that derives them from errors.
 *
 * The numbers are a public contract: scripts test them, the man pages list them.
 */
#ifndef UTILS_EXITCODE_H
#define UTILS_EXITCODE_H

enum exit_code {
	EXIT_DONE        = 0,
	EXIT_FAILED      = 1, /* I/O error, no space, no memory, output not delivered */
	EXIT_USAGE       = 2, /* bad option, argument, name or size */
	EXIT_NOTFOUND    = 3, /* no such pool, database, store, key, identifier */
	EXIT_BUSY        = 4, /* open elsewhere or locked */
	EXIT_REFUSED     = 5, /* would destroy data; the message says which flag allows it */
	EXIT_DAMAGE      = 6, /* damage found, or the pool is unhealthy */
	EXIT_UNSUPPORTED = 7, /* module absent, format version, feature */
	EXIT_PERMISSION  = 8,
};
#define EXIT_CODES 9

/* The meaning of an exit code, one line, for man pages and help. */
const char *exit_text(int code);

/*
 * Exit code of a library error. @err is the negative errno (0 gives 0), @id the
 * stable identifier "MPnnnn" or "" or NULL: it decides where one errno has two
 * meanings.
 */
int exit_from_error(int err, const char *id);

#endif
