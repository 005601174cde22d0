/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The exit code of each error. One function, so that no two verbs disagree.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "exitcode.h"

const char *exit_text(int code)
{
	static const char *const text[EXIT_CODES] = {
		[EXIT_DONE] = "done",
		[EXIT_FAILED] = "failed (I/O error, no space, output not delivered)",
		[EXIT_USAGE] = "usage error (option, argument, name or size)",
		[EXIT_NOTFOUND] = "no such pool, database, store, key or identifier",
		[EXIT_BUSY] = "busy or locked: open elsewhere",
		[EXIT_REFUSED] = "refused: data would be destroyed; the message names the flag",
		[EXIT_DAMAGE] = "damage found, or unhealthy",
		[EXIT_UNSUPPORTED] = "unsupported: module, format version or feature",
		[EXIT_PERMISSION] = "permission denied",
	};

	if (code < 0 || code >= EXIT_CODES)
		return "unknown";
	return text[code];
}

/* Where the identifier says more than its errno. */
static int exit_from_id(const char *id)
{
	static const struct {
		const char *id;
		int code;
	} special[] = {
		{ "MP0003", EXIT_FAILED },      /* opened read-only: not the pool's state */
		{ "MP0101", EXIT_NOTFOUND },    /* no pool signature: there is no pool */
		{ "MP0106", EXIT_UNSUPPORTED }, /* features that can only be read */
		{ "MP0114", EXIT_DAMAGE },      /* members of different pools */
		{ "MP0162", EXIT_FAILED },      /* no room below, also as EFBIG */
		{ "MP0181", EXIT_FAILED },      /* a full log, not an argument */
		{ "MP0184", EXIT_FAILED },      /* a sealed log */
		{ "MP0416", EXIT_FAILED },      /* a full file system, also as EFBIG */
		{ "MP0433", EXIT_FAILED },      /* EAGAIN, but it is not open: no thread, ... */
		{ "MP0994", EXIT_FAILED },      /* ... of the database neither, ... */
		{ "MP0998", EXIT_FAILED },      /* ... or no key of thread-specific data */
	};

	for (size_t i = 0; id && i < sizeof(special) / sizeof(special[0]); i++)
		if (!strcmp(id, special[i].id))
			return special[i].code;
	return -1;
}

/* Whose errno is what the system said of a file or folder. */
static int is_of_system(const char *id)
{
	return !strcmp(id, "MP0404") || !strcmp(id, "MP0408");
}

int exit_from_error(int err, const char *id)
{
	int has_id = id && *id, code = exit_from_id(id);

	if (!err)
		return EXIT_DONE;
	if (code >= 0)
		return code;
	switch (err) {
	case -EINVAL:
	case -EFBIG:
	case -ERANGE:
	case -ENAMETOOLONG:
		/* the library names the bad argument; a bare errno comes from the system */
		return has_id ? EXIT_USAGE : EXIT_FAILED;
	case -ENOENT:
	case -ENOTDIR:
	case -ENODATA:
		return EXIT_NOTFOUND;
	case -EBUSY:
	case -EAGAIN:
	case -ETXTBSY:
		return EXIT_BUSY;
	case -EEXIST:
		return EXIT_REFUSED;
	case -EPERM:
		/* MP0406 is a foreign signature; any other a missing permission */
		return has_id && !strcmp(id, "MP0406") ? EXIT_REFUSED : EXIT_PERMISSION;
	case -EUCLEAN:
	case -ENOTUNIQ:
	case -ENODEV:
	case -ESTALE:
	case -EBADMSG:
		return EXIT_DAMAGE;
	case -EROFS:
		/* the file system below is, or the pool or database is fail-stopped */
		return !has_id || is_of_system(id) ? EXIT_PERMISSION : EXIT_DAMAGE;
	case -EOPNOTSUPP:
	case -ENOSYS:
	case -EPROTONOSUPPORT:
		return EXIT_UNSUPPORTED;
	case -EACCES:
		return EXIT_PERMISSION;
	default:
		return EXIT_FAILED;
	}
}
