/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * kvdb: administration and use of key-value databases. The table of its verbs;
 * the parser, the help and the manual page are made from it.
 */
#include "cli.h"
#include "help.h"

#define KEYS_HEX "Keys are the bytes of KEY as typed; -X takes them as hexadecimal. "
#define ESCAPES "\\t, \\n, \\r, \\\\ and \\xHH"

static const struct verb verbs[] = {
	{ "create", "DB", 1, 1, 0, "make an empty database",
	  "Make an empty database in the pool at the path DB. When no pool is there, one is made "
	  "on plain files in that directory, with --size of capacity and, if --staging-size is "
	  "given, a staging class; the output says so. A pool holds one database. With -n "
	  "everything is checked and nothing written. Loss bound and cache are not settings of "
	  "the database: each open chooses its own.",
	  create_opts, "01245678",
	  "{} create ./db1 --size 10G --staging-size 2G\tpool of two files, and a database\n"
	  "{} create ./db1 -n\tsay what would be made\n", verb_create },
	{ "info", "DB", 1, 1, 0, "describe a database",
	  "Print what the database is: settings, stores, the pool below and its space. Reads only.",
	  info_opts, "01234678", "{} info ./db1 -j\tfor a script\n", verb_info },
	{ "get", "DB KVS KEY", 3, 3, 0, "print the value of a key",
	  "Write the value's bytes to standard output and nothing else; on a terminal a newline "
	  "follows. " KEYS_HEX "With -j the value is text when it is valid UTF-8, else hexadecimal "
	  "in value_hex.",
	  get_opts, "01234678", "{} get ./db1 users alice > alice.bin\texact bytes\n", verb_get },
	{ "put", "DB KVS KEY VALUE|-", 4, 4, 0, "store a value under a key",
	  "Store VALUE, or standard input when it is '-', under KEY. A key has 1 to 1344 bytes, a "
	  "value 0 to 1 MiB; longer ones are refused with exit status 2 and nothing is changed. "
	  KEYS_HEX "An operand that begins with '-' needs '--' before it. When the command ends "
	  "the value is durable, because closing a database makes everything durable; --sync "
	  "makes it durable earlier and reports a failure as that of the put.",
	  put_opts, "01234678",
	  "{} put ./db1 users alice 'hello'\tstore a text\n"
	  "{} put ./db1 users photo - < photo.jpg\tstore a file\n", verb_put },
	{ "del", "DB KVS KEY", 3, 3, 0, "delete a key",
	  "Delete KEY and its value. An absent key gives exit status 3. " KEYS_HEX,
	  del_opts, "01234678", "{} del ./db1 users alice\tdelete one record\n", verb_del },
	{ "scan", "DB KVS", 2, 2, 0, "print records in key order",
	  "Print the records of a store, one per line: key, tab, value, with the escapes " ESCAPES
	  " for what is not printable text, so that the output of 'scan -H' can be loaded again as "
	  "tsv. --from is included, --to is not; --reverse walks the same range downward. With -j "
	  "each record is one JSON object on a line of its own after a header line; key_hex and "
	  "value_hex stand for key and value where these are not UTF-8. It can be loaded as jsonl. "
	  "With -k and -H a value column is absent and the output cannot be loaded.",
	  scan_opts, "01234678",
	  "{} scan ./db1 users --prefix al --limit 10\tthe first ten\n"
	  "{} scan -j ./db1 users > users.jsonl\tsave a store\n", verb_scan },
	{ "load", "DB KVS [FILE]", 2, 3, 0, "store records from a text file",
	  "Store one record per line of FILE, or of standard input. Empty lines are skipped.\n\n"
	  "tsv: key, tab, value. Both may contain the escapes " ESCAPES "; any other use of "
	  "a backslash is an error.\n\n"
	  "jsonl: one JSON object per line with \"key\" and \"value\", strings whose UTF-8 bytes "
	  "are stored; \"key_hex\" and \"value_hex\" carry other bytes as hexadecimal. A line with "
	  "\"output_version\" is skipped. Other members are ignored.\n\n"
	  "A line that is not good, also one whose key or value is too long, is named with its "
	  "number and ends the load with exit status 1; the records before it stay stored. "
	  "--skip-bad names such lines and goes on, and the exit status is 1 at the end. SIGINT, "
	  "SIGTERM and SIGHUP end the load after the current record: what was stored is made "
	  "durable, its number is printed, and the exit status is 1.",
	  load_opts, "01234678",
	  "{} load -c ./db1 words words.tsv\tmake the store and load it\n"
	  "{} load ./db1 users --format jsonl < users.jsonl\twhat scan -j wrote\n", verb_load },
	{ "verify", "DB", 1, 1, 0, "check a closed database without writing to it",
	  "Check every structure of the database and print each finding. Damage gives exit status "
	  "6. --data reads every value as well. The pool below has its own check, 'mpool verify'.",
	  verify_opts, "01234678", "{} verify --data ./db1\tread everything\n", verb_verify },
	{ "stats", "DB", 1, 1, 0, "print counters",
	  "Open the database for reading and print its counters and what the opening found.",
	  stats_opts, "01234678", "{} stats ./db1 -j\tfor a script\n", verb_stats },
	{ "kvs create", "DB KVS", 2, 2, 0, "make a store",
	  "Make an empty store. Its name has 1 to 31 of the characters A-Z a-z 0-9 . _ - and "
	  "begins with neither '.' nor '-'.",
	  kvs_opts, "012345678", "{} kvs create ./db1 users\ta store named users\n",
	  verb_kvs_create },
	{ "kvs drop", "DB KVS", 2, 2, VERBF_DESTROYS, "remove a store and its records",
	  "Remove a store and everything in it. On a terminal its name must be typed; elsewhere -y "
	  "is required.",
	  kvs_drop_opts, "012345678", "{} kvs drop ./db1 users -y\twithout a question\n",
	  verb_kvs_drop },
	{ "kvs list", "DB", 1, 1, 0, "list the stores",
	  "Print the names of all stores, one per line.",
	  kvs_opts, "01234678", "{} kvs list ./db1\tone name per line\n", verb_kvs_list },
	{ "drop", "DB", 1, 1, VERBF_DESTROYS, "remove a database",
	  "Remove the database and everything in it. The pool stays; 'mpool destroy' removes "
	  "it. On "
	  "a terminal the name of the pool must be typed; elsewhere -y is required.",
	  drop_opts, "012345678", "{} drop ./db1 -n\tsay what would be lost\n", verb_drop },
	{ "bench", "[DB]", 0, 1, 0, "measure, with the workloads of YCSB",
	  "Run the workloads of the Yahoo Cloud Serving Benchmark with its key names, its choosers "
	  "of keys and its mixes: load; a, 50 % reads and 50 % updates; b, 95 and 5; c, reads; d, "
	  "95 % reads of the latest records and 5 % inserts; e, 95 % scans of 1 to 100 records and "
	  "5 % inserts; f, 50 % reads and 50 % read-modify-writes. The store is named usertable. "
	  "Without DB a pool on plain files is made in the current directory (or --dir) and "
	  "removed at the end.\n\n"
	  "Every value carries the hash of its key, a version and a pattern, and every read checks "
	  "them; the first error ends the run with exit status 1 and names the key.\n\n"
	  "For each phase: throughput until the last acknowledgement (OPS/S) and until no deferred "
	  "work is left and all is durable (DRAINED/S); CPU microseconds per operation, user and "
	  "system, of all threads of the process, for both (CPU-US/OP, DRAINED/OP); "
	  "latency per kind of operation, to "
	  "1.6 % from above; bytes written and read per media class as the database submitted "
	  "them, and as the kernel counted them; write amplification, the larger of both divided "
	  "by the bytes of keys and values; space amplification, bytes used in the pool divided by "
	  "those of all living keys and values; the largest resident memory.\n\n"
	  "--journal notes every acknowledged put of load, with its time, in a file outside the "
	  "pool. The loader may then be killed, or cut by a layer in MPOOL_DEV, and --check opens "
	  "the database and proves: every value there is right; what is lost is the end of the "
	  "history of acknowledgements, per thread and over all threads; and it spans at most the "
	  "loss bound. Exit status 1 when that does not hold. --missing loads what is left.",
	  bench_opts, "01234678",
	  "{} bench --workload load,a,c --records 2M --threads 4\tmake, measure, remove\n"
	  "{} bench ./db1 --workload load --journal acks\tthe loader to kill\n"
	  "{} bench ./db1 --check acks\tthe proof afterwards\n", verb_bench },
	HELP_VERBS,
	{ .name = NULL },
};

static const struct tool kvdb_tool = {
	.name = "kvdb",
	.brief = "create, use, check and measure key-value databases",
	.about = "kvdb manages key-value databases in pools (see mpool(8)). A database is named by "
		 "the path of its pool, which must contain a '/': ./db1 or /srv/db1. It "
		 "holds named "
		 "stores (KVS) of keys and values, both any bytes.\n\n"
		 "A database is open in one process at a time. Sizes such as 64M, 4KiB and 1.5T "
		 "are 1024-based. Results go to standard output, everything else to standard "
		 "error. "
		 "An error message ends in a stable identifier when the library gave one; "
		 "'kvdb explain' tells more about it.",
	.files = "DB/pool.json\tdescription of the pool below a database\n",
	.environment = "NO_COLOR\twhen set and not empty, no colour is used\n"
		       "MPOOL_IO\thow data is read and written: uring or sync\n"
		       "MPOOL_DEV\tlayers below the pool that slow it down or cut its power, for "
		       "trials\n",
	.see_also = "\\fBmpool\\fR(8), \\fBlibmpool\\fR(7), \\fBlibkvdb\\fR(7), "
		    "\\fBlibkvdb\\fR(3)",
	.verbs = verbs,
	.lib_version = kvdb_version,
	.explain = kvdb_error_explain,
	.format_min = 0x0100,
	.format_max = 0x0100,
};

int main(int argc, char **argv)
{
	return ui_main(&kvdb_tool, argc, argv);
}
