/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Stable identifiers of libkvdb's errors: id, name, meaning, cure. A released id keeps its
 * meaning, and a number is never used again. libkvdb has 900 to 999 of the one series that
 * core/err.h begins. A new error takes the next free number of the group that it resembles:
 * 902 budgets, logs and durability; 910 keys and values; 920 transactions, views and cursors;
 * 935 properties and the clock; 940 media and the system; 951 databases and stores; 970 names
 * and the control socket; 980 checkpoints and bulk loads; 990 what fits into none, which is full.
 * Its row stands beside those.
 */
#ifndef KV_ERR_H
#define KV_ERR_H

#define KV_ABSENT "there is no such key, or it has expired"

#define KV_ERRS(X) \
	X("MP0902", "KV_MEMORY", "memory for the operation could not be had; nothing was changed", \
	  "give the process more memory, or the database a smaller cache_bytes") \
	X("MP0903", "KV_RDONLY", "the database takes no writes: it is open for reading only, or " \
	  "it stopped at an error that its text names", \
	  "open it for writing; after an error close it, repair the cause, open it again") \
	X("MP0904", "KV_NOROOM", "memtables or logs have reached their budget and cannot be " \
	  "flushed", \
	  "free space in the pool: delete data, or make a larger pool") \
	X("MP0905", "KV_NOTDURABLE", "what was written could not be made durable; no " \
	  "later sync of " \
	  "this handle succeeds", "close the database, repair the device, open it again") \
	X("MP0906", "KV_STUCK", "background work of a store failed at a device, and is tried " \
	  "again with growing pauses", \
	  "look at the device's health; kvdb info tells what is stuck, since when, and why") \
	X("MP0907", "KV_LOG_DAMAGED", "a part of the log is damaged behind which others were " \
	  "durable: the newest writes cannot be had without a hole", \
	  "restore from a backup; or save what can be read: kvdb repair DB NEW; or give up all " \
	  "that was written after the last good epoch: kvdb repair DB --rollback EPOCH") \
	X("MP0908", "KV_LOG_LARGE", "the logs hold more than memtables of a reader may take: it " \
	  "cannot flush them", \
	  "open the database for writing once, or read it with a larger cache_bytes") \
	X("MP0910", "KV_KEY_EMPTY", "a key has at least 1 byte", "check the argument") \
	X("MP0911", "KV_KEY_LONG", "a key has at most 1344 bytes; nothing was changed", \
	  "use a shorter key, for example a hash of the long one") \
	X("MP0912", "KV_VALUE_LONG", "a value has at most 16 MiB; nothing was changed", \
	  "split the value over several keys") \
	X("MP0913", "KV_VALUE_NULL", "a length was given without a value", "check the argument") \
	X("MP0920", "KV_CONFLICT", "another writer was first with a key of the transaction; it " \
	  "can only be aborted", "abort it and run it again") \
	X("MP0921", "KV_KEY_OWNED", "a key belongs to an open transaction longer than a plain " \
	  "write waits; nothing was changed", "try again; end transactions soon") \
	X("MP0922", "KV_VIEW_OLD", "a transaction is older than view_max_age_ms allows", \
	  "abort it and run it again; make it shorter, or raise view_max_age_ms") \
	X("MP0923", "KV_VIEW_MEMORY", "the snapshot of a transaction was given up, because old " \
	  "snapshots held too much memory", \
	  "abort it and run it again; make it shorter, or raise cache_bytes") \
	X("MP0924", "KV_TXN_LOG", "the values of a transaction hold log segments of more than " \
	  "half of their media class", "abort it; write less in one transaction, or enlarge " \
	  "the pool") \
	X("MP0925", "KV_TXN_LARGE", "the writes of open transactions take as much memory as they " \
	  "may; the write was refused, the transaction goes on", \
	  "commit what is there, or abort; write less in one transaction, or raise " \
	  "cache_bytes and log_bytes") \
	X("MP0926", "KV_TXN_RDONLY", "a transaction that was begun for reading only cannot write", \
	  "begin it without KVDB_TXN_RDONLY") \
	X("MP0927", "KV_TXN_DOOMED", "an earlier write of the transaction failed, so it cannot " \
	  "be committed", "abort it and run it again") \
	X("MP0928", "KV_TICKET", "a ticket is of another database or of a time to come", \
	  "pass what kvdb_txn_commit() or kvdb_ticket() gave") \
	X("MP0929", "KV_TXN_GONE", "the transaction of a cursor has ended: without its writes, " \
	  "which the cursor would show, or before the cursor was renewed", \
	  "close the cursor and open another") \
	X("MP0930", "KV_CURSOR_MEMORY", "the snapshot of a cursor was given up, because " \
	  "snapshots held too much memory and others were used later", \
	  "renew the cursor: it goes on at its place with the present snapshot; close cursors " \
	  "when done, or raise cache_bytes") \
	X("MP0931", "KV_CURSOR_UNUSED", "the snapshot of a cursor was given up, because it " \
	  "was not used for view_max_age_ms", \
	  "renew the cursor: it goes on at its place with the present snapshot; close cursors " \
	  "when done, or raise view_max_age_ms") \
	X("MP0932", "KV_TXN_RANGES", "a transaction deletes as many ranges as it may; the " \
	  "delete was refused, the transaction goes on", \
	  "commit what is there, or abort; delete fewer, larger ranges in one transaction") \
	X("MP0933", "KV_BATCH_LARGE", "a batch takes more memory or log than one may; nothing " \
	  "was changed", "split it; open transactions take of the same memory; raise cache_bytes " \
	  "and log_bytes") \
	X("MP0935", "KV_PROPERTY", "a store has an option, or an option has a value, that is not " \
	  "known here or that this version does not act on", \
	  "use a version of the engine that knows the option, or leave it at its default") \
	X("MP0946", "KV_READ", "a device failed to read", \
	  "look at the device's health; what is cached or on other devices can still be read") \
	X("MP0947", "KV_DESCRIPTOR", "the process has no descriptor left for an event", \
	  "raise the limit of open files (ulimit -n)") \
	X("MP0940", "KV_STAGING_FULL", "staging has no room, and the policy of the store allows " \
	  "no other class; nothing was changed", \
	  "delete data, make staging larger, or set the store's policy to staging_pref") \
	X("MP0936", "KV_CLOCK", "the wall clock is more than a day ahead of the time that the " \
	  "database recorded last, and it holds values that expire", \
	  "set the clock right; if it is right, open it for writing once with KVDB_TIME_JUMP, or " \
	  "by kvdb with --time-jump") \
	X("MP0951", "KV_ARGUMENT", "an argument or option is out of its range", \
	  "give what the message asks for; kvdb help and kvdb.h have the ranges") \
	X("MP0952", "KV_NODB", "the pool holds no database", \
	  "create the database first: kvdb create POOL") \
	X("MP0953", "KV_EXISTS", "a database or store of that name exists", \
	  "open it, or remove it first: kvdb drop POOL") \
	X("MP0954", "KV_BUSY", "another process has the database open", \
	  "close the other process that uses this database") \
	X("MP0955", "KV_FULL", "the pool has no space left for this; deletes still work", \
	  "free space: delete data, or load it into a larger pool; of a container that is full " \
	  "larger segments take less: open it with a larger segment_bytes or --cache, or copy it " \
	  "into a database made with --segment-size 32M") \
	X("MP0956", "KV_FORMAT", "the database uses a format or feature that is not known here", \
	  "use a version of the tools that knows this format") \
	X("MP0957", "KV_SUBS", "a store cannot hold sub-stores, or holds keys of another kind", \
	  "make one for them alone: kvdb kvs create POOL NAME --prefix-len 4") \
	X("MP0958", "KV_NOSUB", "the store has no sub-store of that name", \
	  "list the names with a cursor of KVDB_SUB_NAMES; make it with KVDB_SUB_CREATE") \
	X("MP0959", "KV_SUBS_ALL", "a store can take no more sub-stores: each of their numbers " \
	  "was given once", "make another store, and sub-stores of that one") \
	X("MP0960", "KV_DAMAGED", "a checksum or bound of something on media is wrong", \
	  "restore from a backup, or save the rest with kvdb repair; kvdb verify --deep lists " \
	  "what is damaged") \
	X("MP0961", "KV_LOSTWRITE", "something that was acknowledged as durable is not on media", \
	  "the device or its controller broke its flush promise; replace it and restore") \
	X("MP0962", "KV_ORPHANS", "more objects than a crash leaves behind belong to no run", \
	  "do not write to it; kvdb repair brings what is there into another database") \
	X("MP0963", "KV_STOPPED", "the database stopped at its first failed write or flush", \
	  "close the database, repair the cause, and open it again") \
	X("MP0964", "KV_INUSE", "a store is in use", \
	  "close its cursors, and end its bulk load and transactions first") \
	X("MP0965", "KV_NOSTORE", "the database has no store of that name", \
	  "list the stores: kvdb kvs list POOL; make one: kvdb kvs create POOL NAME") \
	X("MP0966", "KV_GIVENUP", "a compaction that was asked for ended before its end: it was " \
	  "cancelled, met damage or a pool without room, or a store is bulk loaded", \
	  "see kvdb compact --status, then ask again; what was reached stays") \
	X("MP0967", "KV_NOKEY", KV_ABSENT, "") \
	X("MP0970", "KV_NAMETAKEN", "the database has a store of that name already", \
	  "choose another name, or drop or rename the other store first: kvdb kvs list POOL") \
	X("MP0971", "KV_CTLLONG", "a line on the control socket is longer than a request can be", \
	  "end each request with a newline") \
	X("MP0972", "KV_CTLPEER", "the control socket answers the user of the database's process " \
	  "and root only", "ask as that user: sudo -u USER kvdb ...") \
	X("MP0973", "KV_CTLFULL", "the control socket has all the clients that it takes", \
	  "close other clients, such as kvdb top, or try again in a second") \
	X("MP0974", "KV_SETTING", "a setting is not known, or its value is out of range", \
	  "see kvdb help set") \
	X("MP0975", "KV_CTLREQUEST", "a request on the control socket is not understood", \
	  "use the kvdb command of the database's version, or see kvdb info") \
	X("MP0980", "KV_MANIFEST", "the list of what a checkpoint consists of is damaged; the " \
	  "database itself is not touched by that, but frees no space until the checkpoint is " \
	  "dropped", "drop the checkpoint and make another") \
	X("MP0981", "KV_NOCKPT", "the database has no checkpoint of that name", \
	  "list the checkpoints: kvdb checkpoint list POOL") \
	X("MP0982", "KV_CKPT_LONG", "the database has more objects than a checkpoint can list", \
	  "compact the database first: kvdb compact POOL") \
	X("MP0983", "KV_CKPT_EXISTS", "a checkpoint of that name exists, or too many exist", \
	  "drop a checkpoint first: kvdb checkpoint drop POOL NAME") \
	X("MP0984", "KV_CKPT_BUSY", "a checkpoint is open for reading, or dropped by another " \
	  "process", \
	  "end the process that reads it; a pin without a reader can be dropped") \
	X("MP0985", "KV_UNSORTED", "a bulk load takes keys in strictly ascending order of their " \
	  "bytes", "sort the input (LC_ALL=C), or load it without --sorted") \
	X("MP0986", "KV_BULK_BUSY", "the store has a bulk load already", \
	  "finish or abort that one first") \
	X("MP0990", "KV_STORES", "the database can take no more stores", "drop a store that is " \
	  "not needed; when all numbers are used: kvdb copy POOL NEW") \
	X("MP0991", "KV_RANDOM", "the system gave no random bytes", \
	  "see getrandom(2): a filter of system calls may be in its way") \
	X("MP0992", "KV_LARGE", "a store is larger than a run or a metadata record can describe", \
	  "delete data, or split the store over several") \
	X("MP0993", "KV_BULK_FAILED", "a bulk load has failed; it can only be aborted", \
	  "abort it; its first error says why") \
	X("MP0994", "KV_THREADS", "the system starts no more threads", \
	  "raise the limit of processes (ulimit -u; pids.max of the cgroup), or ask for " \
	  "fewer threads") \
	X("MP0995", "KV_NOTEMPTY", "the database that is to be filled has stores", \
	  "take a new one: kvdb create POOL") \
	X("MP0996", "KV_VALUE_POOL", "a value needs a segment of its own, for which the pool is " \
	  "too small", "make a larger pool, or split the value over several keys") \
	X("MP0997", "KV_READ_AGAIN", "a repair could not read again what it had read before", \
	  "repair into another new database; if it comes back, look at the device first (dmesg)") \
	X("MP0998", "KV_KEYS", "the program has taken all keys of thread-specific data that a " \
	  "process can have", "delete what it does not need: pthread_key_delete()") \
	X("MP0999", "KV_UNKNOWN", "a change of the database failed on its way to the media, and " \
	  "whether it was made is not known: the database has stopped", \
	  "close it, repair the cause, open it again: what it shows then is so")

#endif
