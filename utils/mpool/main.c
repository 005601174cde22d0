/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool: administration of pools. The table of its verbs; the parser, the help
 * and the manual page are made from it.
 */
#include "help.h"
#include "mpool.h"

static const struct verb verbs[] = {
	{ "create", "NAME|PATH [DEV...]", 1, ARGS_MAX, 0, "make a pool",
	  "Make a pool in the directory PATH, which is made if it is absent. Without DEV the pool "
	  "lives in the plain files capacity.mp and staging.mp of that directory; --size is then "
	  "required. Each DEV is a file or a block device for the capacity class.\n\n"
	  "With NAME instead, without '/', the pool is the kernel module's: every DEV is a block "
	  "device. The pool is noted as trusted in /etc/mpool/pools.d and is activated.\n\n"
	  "Nothing is written before every member was checked. A member that holds something "
	  "else, such as a file system, is refused; -f overrides that check and -y answers the "
	  "question that follows. With -n the plan is printed with every signature found; the exit "
	  "status is that of the check.",
	  create_opts, "01234578",
	  "{} create ./db1 --size 10G\ta pool of one capacity file\n"
	  "{} create ./db1 --size 10G --staging-size 2G\twith a staging file beside it\n"
	  "{} create ./db1 /dev/sdb /dev/sdc --staging /dev/nvme0n1 -n\tshow what would be done\n"
	  "{} create db1 /dev/sdb gid=mpool mode=0660\t/dev/mpool/db1 for a group\n",
	  verb_create },
	{ "destroy", "NAME|PATH...", 1, ARGS_MAX, VERBF_DESTROYS, "remove pools and all their data",
	  "Remove each pool with all its objects. Members that are files are deleted, also those "
	  "that existed before the pool; devices are kept. Every pool is checked before the first "
	  "is removed. A pool that the kernel module has is deactivated first. On a terminal the "
	  "name of the pool must be typed; "
	  "elsewhere -y is required.",
	  destroy_opts, "012345678", "{} destroy ./db1 -n\tshow what would be lost\n"
	  "{} destroy ./db1 -y\tremove without a question\n", verb_destroy },
	{ "list", "[NAME|PATH...]", 0, ARGS_MAX, 0, "list pools",
	  "Print one line per pool. Pools in files are in no registry: without PATH the current "
	  "directory and its direct subdirectories are searched for pools, and no further; active "
	  "pools follow and, for root, inactive ones on block devices. A pool that cannot be "
	  "opened is listed with the cause as its health.",
	  list_opts, "012345678",
	  "{} list -H -p -o name,free ./db1\tfree bytes, for a script\n", verb_list },
	{ "status", "[NAME|PATH...]", 0, ARGS_MAX, 0, "tell the health of pools and what to do",
	  "Print health, cause and cure, space per class, and every member device with its kind "
	  "of I/O; of a member that had any, its failed requests, failed checksums, how many of "
	  "these were good when read again, and the copies of metadata that were repaired, since "
	  "it was opened here (of a pool of the kernel module see /sys/class/mpool). "
	  "Without PATH the pools are searched for as by list. A pool that is damaged is "
	  "reported and does not change the exit status unless --exit is given. A pool that is "
	  "busy, which means open elsewhere, counts as healthy: -x passes over it.",
	  status_opts, "012345678",
	  "{} status -q -x --exit\tfor a monitor: silent and 0 when all is well\n", verb_status },
	{ "verify", "NAME|PATH", 1, 1, 0, "check a pool without writing to it",
	  "Check every structure of the pool and print each finding. Damage gives exit status 6. "
	  "A finding that is not damage, such as a stale copy or a torn tail, is repaired when the "
	  "pool is next opened.",
	  verify_opts, "012345678",
	  "{} verify --data ./db1\tcheck the contents of objects too\n", verb_verify },
	{ "dump", "NAME|PATH", 1, 1, 0, "print the metadata of a pool",
	  "Print all metadata readably, for reports of problems. It holds no contents of objects. "
	  "With -j each line of the text is one element of an array.",
	  NULL, "012345678", "{} dump ./db1 > db1.txt\tsave it for a report\n", verb_dump },
	{ "map", "NAME|PATH", 1, 1, 0, "print where everything lies",
	  "Print every live extent in the order of devices and offsets. With -j one JSON object "
	  "per line follows a header line.",
	  map_opts, "012345678", "{} map -p ./db1\texact offsets and lengths\n", verb_map },
	{ "scan", "[DEV...]", 0, ARGS_MAX, 0, "find pools on block devices",
	  "Look at every block device, or at each DEV, and print the pools whose members were "
	  "found. Devices without a medium, suspended ones and those below another one, as paths "
	  "of multipath, are passed over.\n\n"
	  "--trust notes the UUID of each pool found in /etc/mpool/pools.d: only such pools are "
	  "activated by device events, and only their owner and mode are honoured. A removable "
	  "device must be named for that. --activate activates the trusted pools of which all "
	  "members are there; one that still lacks members, or is on a removable device, is left "
	  "alone, which is no error.\n\n"
	  "--recover is for a device whose first block was overwritten: it shows what the copies "
	  "further on the device say, asks, and restores the first block.",
	  scan_opts, "012345678",
	  "{} scan\twhich pools there are\n"
	  "{} scan --trust --activate /dev/sdb\tuse the pool of that disk here\n"
	  "{} scan --recover -n /dev/sdb\twhat could be restored\n", verb_scan },
	{ "activate", "[NAME|UUID|DEV...]", 0, ARGS_MAX, 0, "give pools to the kernel module",
	  "Activate each pool: the kernel module claims its devices and makes /dev/mpool/NAME with "
	  "the pool's owner, group and mode. A pool that is not trusted on this machine (see scan) "
	  "gets a node that belongs to root, mode 0600. A pool in files is not activated: it is "
	  "opened by its path.",
	  activate_opts, "012345678",
	  "{} activate db1\tby name\n{} activate -a\tevery trusted pool that is complete\n",
	  verb_activate },
	{ "deactivate", "[NAME...]", 0, ARGS_MAX, 0, "take pools back from the kernel module",
	  "Deactivate each pool; its devices are then free. A pool that is in use is refused, and "
	  "with -a the others are deactivated nevertheless. A trusted pool stays inactive until it "
	  "is activated, a member that went comes back, or the machine starts.",
	  deactivate_opts, "0123478", "{} deactivate -a\tat shutdown\n", verb_deactivate },
	{ "get", "NAME|PATH [KEY...]", 1, ARGS_MAX, 0, "print properties of a pool",
	  "Print the properties KEY of a pool, or all.",
	  get_opts, "012345678", "{} get -H -o value ./db1 mode\tone value, for a script\n",
	  verb_get },
	{ "set", "NAME|PATH KEY=VALUE...", 1, 1, 0, "change properties of a pool",
	  "Change the owner, the label, the spare space of a pool, or whether a heartbeat keeps "
	  "other hosts out. What is not given stays. "
	  "A pool given by its path must not be open elsewhere; one that is active changes at "
	  "once, node and all.",
	  set_opts, "012345678", "{} set db1 gid=mpool mode=0660\ta group may use it\n"
	  "{} set ./db1 label='second copy' spare_staging=10\ttwo at once\n", verb_set },
	{ "rename", "NAME|PATH NEW", 2, 2, 0, "give a pool another name",
	  "Rename a pool. The directory of a pool in files keeps its own name. The node of an "
	  "active pool moves at once; what is open stays open.",
	  NULL, "012345678", "{} rename db1 archive\t/dev/mpool/archive from now on\n",
	  verb_rename },
	{ "add", "NAME|PATH DEV...", 2, ARGS_MAX, 0, "add devices to a pool",
	  "Add each DEV, a file or a block device, to a class of the pool: all or none. A class "
	  "that the pool did not have comes into being. A device that holds something else is "
	  "refused as by create.",
	  add_opts, "012345678", "{} add db1 /dev/sdd\tmore capacity\n"
	  "{} add --staging db1 /dev/nvme1n1 -n\tshow what would be done\n", verb_add },
	{ "grow", "NAME|PATH", 1, 1, 0, "use what the members have gained",
	  "Use the space that block devices have gained since they were added. The files of a pool "
	  "in files are made larger: --size says how large.",
	  grow_opts, "012345678", "{} grow ./db1 --size 20G\teach capacity file is 20G now\n",
	  verb_grow },
	{ "objects", "NAME|PATH", 1, 1, 0, "list the objects of a pool",
	  "Print one line per object in ascending order of ids. With -j one JSON object per line "
	  "follows a header line.",
	  objects_opts, "012345678", "{} objects --type mlog ./db1\tlogs only\n", verb_objects },
	{ "df", "NAME|PATH", 1, 1, 0, "print the space of each class",
	  "Print size, use and reserve of each media class, and beside them what the file system "
	  "counts for member files (allocated): metadata included, and free space that no discard "
	  "or punched hole gave back. A class with members on block devices has no such figure.",
	  df_opts, "012345678", "{} df -H -p -o class,free db1\tfor a script\n", verb_df },
	{ "scrub", "NAME|PATH", 1, 1, 0, "read everything that carries a checksum",
	  "Read the contents of every object that carries a checksum and compare. A pool that the "
	  "kernel module has may be in use meanwhile. Damage gives exit status 6. A run that was "
	  "interrupted says with which --from it goes on. verify --data does this and checks the "
	  "metadata too, on pools that nobody has open.",
	  scrub_opts, "012345678", "{} scrub --rate 100M db1\tgently\n", verb_scrub },
	{ "wipe", "DEV...", 1, ARGS_MAX, VERBF_DESTROYS, "make devices nobody's",
	  "Remove the signature of a pool, and nothing else, from each device: what is left of a "
	  "pool that is gone. A device in use is refused, and one that carries another signature. "
	  "Until something is written to it, scan --recover brings the device back.",
	  wipe_opts, "012345678", "{} wipe -n /dev/sdb\tshow whose it is\n", verb_wipe },
	{ "history", "NAME|PATH", 1, 1, 0, "print the commands that changed a pool",
	  "Print the last 1000 administrative commands with time and user. They are kept in the "
	  "pool, in a container named mpool.history that takes at most 2 MiB; a pool too small for "
	  "it has none. Deactivation is not noted.",
	  history_opts, "012345678", "{} history -o time,user,command db1\twho did what\n",
	  verb_history },
	{ "iostat", "[NAME...] [INTERVAL [COUNT]]", 0, ARGS_MAX, 0, "print the I/O of active pools",
	  "Print what active pools, or each NAME, submitted to their devices: first since the "
	  "activation, then every INTERVAL seconds, COUNT times in all, per second. With -j one "
	  "JSON object per line and device follows a header line, with the counts of the "
	  "interval.",
	  iostat_opts, "0123478", "{} iostat 1\tuntil interrupted\n"
	  "{} iostat -j db1 10 6\ta minute, for a program\n", verb_iostat },
	{ "doctor", "", 0, 0, 0, "tell whether this machine is in order for pools",
	  "Check versions, kernel, module, io_uring, limits, udev and systemd integration, nodes, "
	  "pools and their devices, and databases that are open. Each check prints its state "
	  "and, when it is not good, the cure. A note is something that works with less. Exit "
	  "status 6 when something is wrong.",
	  doctor_opts, "0126", "{} doctor -j\tfor a monitor or a report\n", verb_doctor },
	{ "bench", "DEV|FILE", 1, 1, VERBF_DESTROYS, "measure what a device is good for",
	  "Measure with fio: sequential writes that are read back and compared, sequential reads, "
	  "random reads of 4 KiB one and 32 at a time, random writes of 4 KiB with a flush after "
	  "each, and a mix. It prints bandwidth and latencies, what the device is good for, and "
	  "the smallest loss bound that a database on it can keep (interval_ms of kvdb): twice the "
	  "flush that 999 of 1000 keep.\n\n"
	  "FILE is made and removed. The contents of a device are lost: one that holds something "
	  "is refused without -f, and every one is asked about.",
	  bench_opts, "012345678", "{} bench ./trial --size 256M --runtime 2s\ta quick look\n"
	  "{} bench -f -y /dev/nvme1n1\toverwrites it\n", verb_bench },
	HELP_VERBS,
	{ .name = NULL },
};

static const struct tool mpool_tool = {
	.name = "mpool",
	.brief = "create, inspect and check object storage media pools",
	.about = "mpool manages pools of files or block devices of several media classes: "
		 "capacity, which every pool has, and staging, which is faster.\n\n"
		 "A pool is given by the path of its directory, which must contain a '/': ./db1 "
		 "or /srv/db1; it is then opened in this process. Or it is given by its NAME: the "
		 "kernel module has it, or root has its devices searched for. Sizes such as 64M, "
		 "4KiB and 1.5T are 1024-based. Results go to standard "
		 "output, everything else to standard error. An error message ends in a stable "
		 "identifier when the library gave one; 'mpool explain' tells more about it.",
	.files = "PATH/pool.json\tdescription of the pool: which members it has\n"
		 "PATH/capacity.mp\tcapacity class of a pool in files\n"
		 "PATH/staging.mp\tstaging class of a pool in files\n"
		 "/dev/mpool/NAME\tnode of an active pool\n"
		 "/dev/mpoolctl\tcontrol node of the kernel module\n"
		 "/etc/mpool/pools.d/UUID\ta pool that this machine trusts\n",
	.environment = "NO_COLOR\twhen set and not empty, no colour is used\n"
		       "MPOOL_IO\thow data is read and written: uring or sync\n"
		       "MPOOL_DEV\tlayers that slow devices down, for trials\n"
		       "MPOOL_TRUST_DIR\tinstead of /etc/mpool/pools.d, for trials\n"
		       "TMPDIR\tfolder for what one command needs, else /tmp\n",
	.see_also = "\\fBkvdb\\fR(8), \\fBlibmpool\\fR(7), \\fBlibkvdb\\fR(7), "
		    "\\fBlibkvdb\\fR(3), \\fBblkid\\fR(8), \\fBfio\\fR(1)",
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
