/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool: administration of pools. The table of its verbs; the parser, the help
 * and the manual page are made from it.
 */
#include "help.h"
#include "mpool.h"

static const struct verb verbs[] = {
	{ "create", "PATH [DEV...]", 1, ARGS_MAX, 0, "make a pool",
	  "Make a pool in the directory PATH, which is made if it is absent. Without DEV the pool "
	  "lives in the plain files capacity.mp and staging.mp of that directory; --size is then "
	  "required. Each DEV is a file or a block device for the capacity class.\n\n"
	  "Nothing is written before every member was checked. A member that holds something "
	  "else, such as a file system, is refused; -f overrides that check and -y answers the "
	  "question that follows. With -n the plan is printed with every signature found; the exit "
	  "status is that of the check.",
	  create_opts, "01234578",
	  "{} create ./db1 --size 10G\ta pool of one capacity file\n"
	  "{} create ./db1 --size 10G --staging-size 2G\twith a staging file beside it\n"
	  "{} create ./db1 /dev/sdb /dev/sdc --staging /dev/nvme0n1 -n\tshow what would be done\n",
	  verb_create },
	{ "destroy", "PATH...", 1, ARGS_MAX, VERBF_DESTROYS, "remove pools and all their data",
	  "Remove each pool, all its objects, and the files that were made for it. Every pool is "
	  "checked before the first is removed. On a terminal the name of the pool must be typed; "
	  "elsewhere -y is required.",
	  destroy_opts, "012345678", "{} destroy ./db1 -n\tshow what would be lost\n"
	  "{} destroy ./db1 -y\tremove without a question\n", verb_destroy },
	{ "list", "[PATH...]", 0, ARGS_MAX, 0, "list pools",
	  "Print one line per pool. Pools in files are in no registry: without PATH the current "
	  "directory and its direct subdirectories are searched for pools, and no further. A pool "
	  "that cannot be opened is listed with the cause as its health.",
	  list_opts, "01234678",
	  "{} list -H -p -o name,free ./db1\tfree bytes, for a script\n", verb_list },
	{ "status", "[PATH...]", 0, ARGS_MAX, 0, "tell the health of pools and what to do",
	  "Print health, cause and cure, space per class, and every member device with its kind "
	  "of I/O. Without PATH the pools are searched for as by list. A pool that is damaged is "
	  "reported and does not change the exit status unless --exit is given. A pool that is "
	  "busy, which means open elsewhere, counts as healthy: -x passes over it.",
	  status_opts, "01234678",
	  "{} status -q -x --exit\tfor a monitor: silent and 0 when all is well\n", verb_status },
	{ "verify", "PATH", 1, 1, 0, "check a pool without writing to it",
	  "Check every structure of the pool and print each finding. Damage gives exit status 6. "
	  "A finding that is not damage, such as a stale copy or a torn tail, is repaired when the "
	  "pool is next opened.",
	  verify_opts, "01234678",
	  "{} verify --data ./db1\tcheck the contents of objects too\n", verb_verify },
	{ "dump", "PATH", 1, 1, 0, "print the metadata of a pool",
	  "Print all metadata readably, for reports of problems. It holds no contents of objects. "
	  "With -j each line of the text is one element of an array.",
	  NULL, "01234678", "{} dump ./db1 > db1.txt\tsave it for a report\n", verb_dump },
	{ "map", "PATH", 1, 1, 0, "print where everything lies",
	  "Print every live extent in the order of devices and offsets. With -j one JSON object "
	  "per line follows a header line.",
	  map_opts, "01234678", "{} map -p ./db1\texact offsets and lengths\n", verb_map },
	HELP_VERBS,
	{ .name = NULL },
};

static const struct tool mpool_tool = {
	.name = "mpool",
	.brief = "create, inspect and check object storage media pools",
	.about = "mpool manages pools of files or block devices of several media classes: "
		 "capacity, which every pool has, and staging, which is faster.\n\n"
		 "A pool is named by the path of its directory, which must contain a '/': ./db1 "
		 "or /srv/db1. Sizes such as 64M, 4KiB and 1.5T are 1024-based. Results go to "
		 "standard "
		 "output, everything else to standard error. An error message ends in a stable "
		 "identifier when the library gave one; 'mpool explain' tells more about it.",
	.files = "PATH/pool.json\tdescription of the pool: which members it has\n"
		 "PATH/capacity.mp\tcapacity class of a pool in files\n"
		 "PATH/staging.mp\tstaging class of a pool in files\n",
	.environment = "NO_COLOR\twhen set and not empty, no colour is used\n"
		       "MPOOL_IO\thow data is read and written: uring or sync\n"
		       "MPOOL_DEV\tlayers that slow devices down, for trials\n",
	.see_also = "\\fBkvdb\\fR(8), \\fBlibmpool\\fR(7), \\fBlibkvdb\\fR(7), "
		    "\\fBlibkvdb\\fR(3), \\fBblkid\\fR(8)",
	.verbs = verbs,
	.lib_version = mpool_version,
	.explain = mpool_error_explain,
	.format_min = 0x0100,
	.format_max = 0x0100,
};

int main(int argc, char **argv)
{
	return ui_main(&mpool_tool, argc, argv);
}
