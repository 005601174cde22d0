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
	  create_opts, "012345678",
	  "{} create ./db1 --size 10G --staging-size 2G\tpool of two files, and a database\n"
	  "{} create ./db1 -n\tsay what would be made\n", verb_create },
	{ "info", "DB", 1, 1, 0, "describe a database",
	  "Print what the database is: settings, stores, the pool below and its space. Reads only. "
	  "When another process has it open, that one is asked.",
	  info_opts, "01234678", "{} info ./db1 -j\tfor a script\n", verb_info },
	{ "get", "DB KVS KEY", 3, 3, 0, "print the value of a key",
	  "Write the value's bytes to standard output and nothing else; on a terminal a newline "
	  "follows. " KEYS_HEX "With -j the value is text when it is valid UTF-8, else hexadecimal "
	  "in value_hex.",
	  get_opts, "01234678", "{} get ./db1 users alice > alice.bin\texact bytes\n", verb_get },
	{ "put", "DB KVS KEY VALUE|-", 4, 4, 0, "store a value under a key",
	  "Store VALUE, or standard input when it is '-', under KEY. A key has 1 to 1344 bytes, a "
	  "value 0 to 16 MiB; longer ones are refused with exit status 2 and nothing is changed. "
	  KEYS_HEX "An operand that begins with '-' needs '--' before it. When the command ends "
	  "the value is durable, because closing a database makes everything durable; --sync "
	  "makes it durable earlier and reports a failure as that of the put.\n\n"
	  "Where DB is no database yet, a folder, its pool, database and store are made, which a "
	  "message says. The pool begins small and grows while it is in use, until a tenth of its "
	  "file system is left. In a database that is there a store is made with --create only: a "
	  "name that was mistyped would be a new one.",
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
	{ "load", "DB [KVS] [FILE]", 1, 3, 0, "store records from a text file",
	  "Store one record per line of FILE, or of standard input. Empty lines are skipped.\n\n"
	  "tsv: key, tab, value. Both may contain the escapes " ESCAPES "; any other use of "
	  "a backslash is an error.\n\n"
	  "jsonl: one JSON object per line with \"key\" and \"value\", strings whose UTF-8 bytes "
	  "are stored; \"key_hex\" and \"value_hex\" carry other bytes as hexadecimal. A line with "
	  "\"output_version\" is skipped. Other members are ignored.\n\n"
	  "With --dump FILE is the output of 'kvdb dump': the operands are DB and FILE. A store "
	  "that is there keeps its options.\n\n"
	  "With --sorted the keys must ascend strictly by their bytes, as after LC_ALL=C sort and "
	  "in a dump; one that does not is a bad line. Each record is written once. All records "
	  "of a store appear at the end, over what the store held, or none of them when the load "
	  "ends earlier.\n\n"
	  "A line that is not good, also one whose key or value is too long, is named with its "
	  "number and ends the load with exit status 1; the records before it stay stored. "
	  "--skip-bad names such lines and goes on, and the exit status is 1 at the end. SIGINT, "
	  "SIGTERM and SIGHUP end the load after the current record: what was stored is made "
	  "durable, its number is printed, and the exit status is 1.",
	  load_opts, "01234678",
	  "{} load -c ./db1 words words.tsv\tmake the store and load it\n"
	  "{} load ./db1 users --format jsonl < users.jsonl\twhat scan -j wrote\n", verb_load },
	{ "verify", "DB", 1, 1, 0, "check a database without writing to it",
	  "Check every structure of the database and print each finding. Damage gives exit status "
	  "6. --data reads every value as well. --deep also goes on behind damage inside of a run: "
	  "it names the store, the object, the place and the range of keys of each damage, with "
	  "the escapes " ESCAPES ", compares filters and counts with what is there, and names "
	  "objects that nothing refers to. The pool below has its own check, 'mpool verify'.\n\n"
	  "The database is closed: one in use changes while it is read. With --checkpoint what a "
	  "checkpoint lists is checked, and the database may be in use.",
	  verify_opts, "01234678",
	  "{} verify --deep ./db1\tread and compare everything\n"
	  "{} verify --deep --checkpoint monday ./db1\tof a database in use\n", verb_verify },
	{ "stats", "DB", 1, 1, 0, "print counters",
	  "Print the counters, what the opening found, and what the members of the pool were asked "
	  "for and caught at: of the process that has the database open, as it tells over its "
	  "control socket, else of an opening for reading. csum_errors are reads whose bytes "
	  "failed a checksum, rereads those of them that were good the second time.",
	  stats_opts, "01234678", "{} stats ./db1 -j\tfor a script\n", verb_stats },
	{ "kvs create", "DB KVS", 2, 2, 0, "make a store",
	  "Make an empty store. Its name has 1 to 31 of the characters A-Z a-z 0-9 . _ - and "
	  "begins with neither '.' nor '-'.",
	  kvs_create_opts, "012345678",
	  "{} kvs create ./db1 users\ta store named users\n"
	  "{} kvs create ./db1 sessions ttl=1h\trecords live for an hour\n",
	  verb_kvs_create },
	{ "kvs drop", "DB KVS", 2, 2, VERBF_DESTROYS, "remove a store and its records",
	  "Remove a store and everything in it. On a terminal its name must be typed; elsewhere -y "
	  "is required.",
	  kvs_drop_opts, "012345678", "{} kvs drop ./db1 users -y\twithout a question\n",
	  verb_kvs_drop },
	{ "kvs list", "DB", 1, 1, 0, "list the stores",
	  "Print all stores by name, with their size.",
	  kvs_list_opts, "01234678", "{} kvs list ./db1 -H -o name\tone name per line\n",
	  verb_kvs_list },
	{ "kvs rename", "DB KVS NAME", 3, 3, 0, "give a store another name",
	  "The store KVS is called NAME from now on. Nothing else changes, and a crash leaves one "
	  "of the two names.",
	  kvs_opts, "012345678", "{} kvs rename ./db1 users people\tusers is people now\n",
	  verb_kvs_rename },
	{ "kvs info", "DB KVS", 2, 2, 0, "describe a store",
	  "Print the size of a store: keys, memtables, runs, values. Reads only. The number of "
	  "keys is about right: overwritten and deleted ones count until runs are merged.",
	  kvs_opts, "01234678", "{} kvs info ./db1 users\thow large it is\n", verb_kvs_info },
	{ "set", "DB [KVS]", 1, 2, 0, "change settings",
	  "With KVS: change options of that store. They are kept in the database.\n\n"
	  "Without: change settings of the database while a process has it open, over its control "
	  "socket. They hold until that process closes it, and the new loss bound holds from the "
	  "moment when this command ends. A closed database has no such settings: each open "
	  "chooses its own.",
	  set_opts, "01234678",
	  "{} set ./db1 interval=20ms\tlose at most 20 ms of work, from now on\n"
	  "{} set ./db1 users ttl=1h\trecords put from now on live for an hour\n", verb_set },
	{ "shell", "DB [KVS]", 1, 2, 0, "work on a database, command by command",
	  "Open the database once and run commands from standard input, one per line: use, list, "
	  "create, drop, rename, get, put, del, scan, count, begin, commit, abort, sync, stats, "
	  "history, help, quit. Between begin and commit everything is one transaction. Keys and "
	  "values have the escapes " ESCAPES "; words with blanks stand in double quotes; # "
	  "begins a remark.\n\n"
	  "From a terminal there is a prompt, !N repeats a line of the history, and an error "
	  "changes nothing else. In a script the first command that fails ends the shell with the "
	  "exit status of that failure; with -k the rest is run first, and behind a use or create "
	  "that failed no store is chosen. What was written is durable when the shell has ended, "
	  "or after sync.",
	  shell_opts, "012345678",
	  "{} shell ./db1 users\tat a terminal\n"
	  "printf 'put a 1\\nget a\\n' | {} shell ./db1 users\ta script\n", verb_shell },
	{ "compact", "DB [KVS]", 1, 2, 0, "bring space back now",
	  "Flush what is in memory, merge the runs of every store into one, and move values out of "
	  "segments that hold garbage: what a database in use does by itself only as far as its "
	  "space bound asks for. With KVS only the keys of that store are merged.\n\n"
	  "A closed database is opened, compacted to the end, and closed. One in use is compacted "
	  "in the background by the process that has it open: the command starts that and returns; "
	  "--wait, --status and --cancel are about it. A process that reads only cannot "
	  "compact.\n\n"
	  "Bytes to do are runs to read and values to move, as known so far; values become known "
	  "when the runs were read.",
	  compact_opts, "01234678",
	  "{} compact ./db1\tbefore a copy of the pool\n"
	  "{} compact ./db1 --wait\tof a database in use, too, until it is done\n"
	  "{} compact ./db1 --status\thow far it is\n", verb_compact },
	{ "tune", "DB", 1, 1, 0, "advise options for this machine and pool",
	  "Print what an open takes by default on this machine and pool, what would suit better, "
	  "and why. Opens for reading; changes nothing.\n\n"
	  "With --bench the advice on loss bound, log and staging follows from what mpool bench "
	  "measured.",
	  tune_opts, "01234678", "{} tune ./db1\tdefaults, advice, reasons\n"
	  "{} tune ./db1 --bench bench.json\tafter mpool bench -j ./trial >bench.json\n",
	  verb_tune },
	{ "top", "DB [INTERVAL [COUNT]]", 1, 3, 0, "watch a database in use",
	  "Ask the process that has the database open, every INTERVAL seconds (default 1), COUNT "
	  "times or without end, and print what it did in between. With -j one JSON object a line, "
	  "with counters as they grew.",
	  top_opts, "01234678",
	  "{} top ./db1 5\tevery five seconds\n"
	  "{} top -j ./db1 1 60\ta minute for a script\n", verb_top },
	{ "tree", "DB [KVS]", 1, 2, 0, "print the shape of the stores",
	  "Print the memtables and runs of each store, or of KVS, newest first in each leaf: how "
	  "many keys and bytes, how many log segments hold the values. Reads only.",
	  tree_opts, "01234678", "{} tree ./db1 users\tits memtables and runs\n", verb_tree },
	{ "dump", "DB [KVS]", 1, 2, 0, "print stores as text to load again",
	  "Print every record of the database, or of the store KVS, or of a range of it, to "
	  "standard output, one per line, in the order of stores and keys. 'kvdb load --dump' "
	  "makes stores of the same names and options and their records from it; the time at "
	  "which a record expires is not in it, so a record lives as long as one put then.\n\n"
	  "jsonl: a header with \"output_version\"; for each store a line {\"kvs\":NAME} with its "
	  "options prefix_len, ttl_s, policy and compress as kvs info -j shows them, then a line "
	  "{\"kvs\":NAME,\"key\":...,\"value\":...} for each record, with key_hex and "
	  "value_hex in place of what is not UTF-8; at last {\"end\":true} with the number of "
	  "stores and records, without which a dump was cut.\n\n"
	  "tsv: key, tab, value with the escapes " ESCAPES ", as scan -H prints.",
	  dump_opts, "01234678",
	  "{} dump ./db1 > db1.jsonl\teverything\n"
	  "{} load --dump ./db2 db1.jsonl\tand back, into another database\n"
	  "{} dump ./db1 users --prefix a --format tsv\ta range of one store\n", verb_dump },
	{ "list", "[DB...]", 0, -1, 0, "list databases",
	  "Print the databases named, or those of the pools in this directory, its direct "
	  "subdirectories and the kernel module. Each is opened for reading, which takes as long "
	  "as reading the logs of one that was not closed.",
	  list_opts, "01234678", "{} list -H -o db,state\tfor a script\n", verb_list },
	{ "checkpoint create", "DB NAME", 2, 2, 0, "make a named point to come back to",
	  "Make a checkpoint: the whole database as it is now, all stores at one moment. It is "
	  "cheap, because nothing is copied, but what it refers to keeps its space until the "
	  "checkpoint is dropped. Its name has 1 to 31 of the characters A-Z a-z 0-9 . _ - and "
	  "begins with neither '.' nor '-'. A database has at most 64.",
	  checkpoint_opts, "012345678",
	  "{} checkpoint create ./db1 monday\tkeep what is there now\n",
	  verb_checkpoint_create },
	{ "checkpoint list", "DB", 1, 1, 0, "list the checkpoints",
	  "Print all checkpoints, oldest first. With -j pinned_bytes is the space that only "
	  "checkpoints hold.",
	  checkpoint_list_opts, "01234678",
	  "{} checkpoint list ./db1 -H -o name\tone name per line\n",
	  verb_checkpoint_list },
	{ "checkpoint drop", "DB NAME", 2, 2, VERBF_DESTROYS, "remove a checkpoint",
	  "Remove a checkpoint. The database itself is not touched; space that only the checkpoint "
	  "held comes free. One that another process reads is refused. On a terminal its name must "
	  "be typed; elsewhere -y is required.",
	  checkpoint_drop_opts, "012345678",
	  "{} checkpoint drop ./db1 monday -y\twithout a question\n",
	  verb_checkpoint_drop },
	{ "backup", "DB DIR", 2, 2, 0, "write the database, or what changed, into a folder",
	  "Write a file into the folder DIR, which is made when it is missing: the whole "
	  "database at a checkpoint, or, when DIR holds a backup of it already, what "
	  "changed since. A checkpoint whose name begins with backup. is made for that "
	  "and kept until the next backup without --checkpoint; a database that can only be read "
	  "is written whole, without one. With --checkpoint that one is "
	  "taken, and the database may be in use elsewhere. Where the checkpoint of the last "
	  "backup in DIR has been dropped, or a file that it builds upon is missing, the next one "
	  "is full, and so is one behind 500 that build upon one another. A file appears when it "
	  "is whole and durable; an interrupted backup is begun anew. SIGINT, SIGTERM and SIGHUP "
	  "end it and remove its checkpoint; that of one that was killed goes with the next backup "
	  "into DIR. What has expired is not in "
	  "it, nor the time at which the rest expires.",
	  backup_opts, "012345678",
	  "{} backup ./db1 /backup/db1\tthe whole, next time what changed\n"
	  "{} backup ./db1 /backup/db1 --checkpoint monday\tas it was on monday\n", verb_backup },
	{ "restore", "DIR DB", 2, 2, 0, "make a database's content from backups",
	  "Load what the backups in the folder DIR hold into the database DB, which must have no "
	  "stores: the newest full one and every incremental one after it, or up to --to. Every "
	  "checksum of the files is compared, and at the end the whole database is checked as "
	  "'kvdb verify --data' does. Each store appears when it is complete. A record lives as "
	  "long as one that is put now: by the time to live of its store, else for ever.",
	  restore_opts, "012345678",
	  "{} create ./db2 --size 10G\ta place for it\n"
	  "{} restore /backup/db1 ./db2\tthe newest\n",
	  verb_restore },
	{ "copy", "DB TO", 2, 2, 0, "copy the content of a database into another",
	  "Copy every store of DB, as it is at a checkpoint that is made for it, or at "
	  "--checkpoint, into the database TO, which must have no stores. Records are written "
	  "once, in order of keys. The checkpoint is removed at the end, also by SIGINT, SIGTERM "
	  "and SIGHUP; that of a copy that was killed goes with the next copy of DB. One that can "
	  "only be read is copied without a checkpoint. In TO a "
	  "record lives as long as one that is put now: by the time to live of its store, else "
	  "for ever.",
	  copy_opts, "012345678", "{} copy ./db1 ./db2\tall of it\n", verb_copy },
	{ "repair", "DB [TO]", 1, 2, 0, "bring what damage left into another database",
	  "Read everything of the closed database DB that can be read and bring it into the "
	  "database TO, which must have no stores. DB is not written. Without TO, or with "
	  "--dry-run, only say what would be lost. Exit status 6 when something is lost or "
	  "uncertain. Of a database that is refused because its log is damaged (MP0907) nothing "
	  "but the end is lost with --rollback: then DB is written, and ends at the epoch that "
	  "the error names as the last good one.\n\n"
	  "What is certain goes to a store of the same name and options. When a key block cannot "
	  "be read, the newest version of a key in its range may be lost with it, or the deletion "
	  "of the key: then what older runs and the logs still hold of the key goes to a store "
	  "with .found behind the name, for you to look at. Small values lie with their keys, so "
	  "the logs do not have them any more; values of transactions are not taken from "
	  "logs.\n\n"
	  "Damage to the logs loses the newest writes in it. Damage to the metadata container "
	  "loses names and options of stores that were made behind it (they are called "
	  "store-NUMBER) and the list of what was deleted since: in both cases overwritten or "
	  "deleted keys may come back, and each is reported. Checkpoints are not brought over; "
	  "'kvdb copy --checkpoint' does that, and may have what is lost here.",
	  repair_opts, "012345678",
	  "{} repair ./db1\tsay what would be lost\n"
	  "{} create ./db2 --size 10G\ta place for the rest\n"
	  "{} repair ./db1 ./db2\tbring it over\n"
	  "{} repair ./db1 --rollback 17\tend it at the last good epoch\n", verb_repair },
	{ "drop", "DB", 1, 1, VERBF_DESTROYS, "remove a database",
	  "Remove the database and everything in it, also when it is damaged. The pool stays; "
	  "'mpool destroy' removes it. On a terminal the name of the pool must be typed; elsewhere "
	  "-y is required.",
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
	  "those of all living keys and values; the largest resident memory; waits of writers by "
	  "cause, the longest of them, and the longest time for which the log waited for one "
	  "write or flush of its devices: when that is near the loss bound, a wait at the gate "
	  "is theirs, or that of a processor which others had.\n\n"
	  "--classes compare runs the workloads on capacity alone and again with staging of a "
	  "tenth of the data in front of it, both behind the same device layers, and prints the "
	  "figures of both and their ratios. Workload a runs twice, each time until every value "
	  "was overwritten once at the mean: in the first run capacity alone acknowledges at once "
	  "and relocates when space is at its bound; the second run, a 2, begins there, and each "
	  "update pays for its own relocation. With --compress and --compressible both runs keep "
	  "such values: a log is never compressed, what leaves staging is.\n\n"
	  "--journal notes every acknowledged put of load, with its time, in a file outside the "
	  "pool. The loader may then be killed, or cut by a layer in MPOOL_DEV, and --check opens "
	  "the database and proves: every value there is right; what is lost is the end of the "
	  "history of acknowledgements, per thread and over all threads; and it spans at most the "
	  "loss bound. Exit status 1 when that does not hold. --missing loads what is left.",
	  bench_opts, "012345678",
	  "{} bench --workload load,a,c --records 2M --threads 4\tmake, measure, remove\n"
	  "{} bench --classes compare\twhat staging is worth\n"
	  "{} bench ./db1 --workload load --journal acks\tthe loader to kill\n"
	  "{} bench ./db1 --check acks\tthe proof afterwards\n", verb_bench },
	HELP_VERBS,
	{ .name = NULL },
};

static const struct tool kvdb_tool = {
	.name = "kvdb",
	.brief = "create, use, check and measure key-value databases",
	.about = "kvdb manages key-value databases in pools (see mpool(8)). A database is named by "
		 "the path of its pool, which must contain a '/': ./db1 or /srv/db1; or by the "
		 "NAME of a pool that the kernel module has. It holds named stores (KVS) of keys "
		 "and values, both any bytes.\n\n"
		 "A database is open for writing in one process at a time. info, stats, "
		 "tree, set, list, top, compact, kvs list, kvs info and checkpoint ask the "
		 "process that has it open, over a socket that answers its user and root. "
		 "Sizes such as 64M, 4KiB and 1.5T "
		 "are 1024-based. Results go to standard output, everything else to standard "
		 "error. "
		 "An error message ends in a stable identifier when the library gave one; "
		 "'kvdb explain' tells more about it.",
	.files = "DB/pool.json\tdescription of the pool below a database\n"
		 "$XDG_RUNTIME_DIR/kvdb/UUID-DEV-INO.sock\tcontrol socket of a database in use; "
		 "UUID is the pool's, DEV and INO are the numbers of its folder. Without that "
		 "variable: below /run (root), /run/user/UID or /tmp/kvdb-UID\n",
	.environment = "NO_COLOR\twhen set and not empty, no colour is used\n"
		       "XDG_RUNTIME_DIR\twhere control sockets lie\n"
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
