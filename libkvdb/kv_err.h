/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Stable identifiers of libkvdb's errors: id, name, meaning, cure. A released
 * id keeps its meaning; new ones are added at the end of their group.
 */
#ifndef KV_ERR_H
#define KV_ERR_H

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
	X("MP0910", "KV_KEY_EMPTY", "a key has at least 1 byte", "check the argument") \
	X("MP0911", "KV_KEY_LONG", "a key has at most 1344 bytes; nothing was changed", \
	  "use a shorter key, for example a hash of the long one") \
	X("MP0912", "KV_VALUE_LONG", "a value has at most 1 MiB; nothing was changed", \
	  "split the value over several keys") \
	X("MP0913", "KV_VALUE_NULL", "a length was given without a value", "check the argument") \
	X("MP0951", "KV_ARGUMENT", "an argument or option is out of its range", \
	  "check the argument against kvdb.h") \
	X("MP0952", "KV_NODB", "the pool holds no database", \
	  "create the database first: kvdb create POOL") \
	X("MP0953", "KV_EXISTS", "a database or store of that name exists", \
	  "open it, or remove it first: kvdb drop POOL") \
	X("MP0954", "KV_BUSY", "another process has the database open", \
	  "close the other process that uses this database") \
	X("MP0955", "KV_FULL", "the pool has no space left for this; deletes still work", \
	  "free space: delete data, or load it into a larger pool") \
	X("MP0956", "KV_FORMAT", "the database uses a format or feature that is not known here", \
	  "use a version of the tools that knows this format") \
	X("MP0960", "KV_DAMAGED", "a checksum or bound of something on media is wrong", \
	  "restore from a backup; kvdb verify lists what is damaged") \
	X("MP0961", "KV_LOSTWRITE", "something that was acknowledged as durable is not on media", \
	  "the device or its controller broke its flush promise; replace it and restore") \
	X("MP0962", "KV_ORPHANS", "more objects than a crash leaves behind belong to no run", \
	  "do not write to it; keep a copy of the pool and report the case") \
	X("MP0963", "KV_STOPPED", "the database stopped at its first failed write or flush", \
	  "close the database, repair the cause, and open it again") \
	X("MP0964", "KV_INUSE", "a store is in use", "close its cursors first") \
	X("MP0965", "KV_NOSTORE", "the database has no store of that name", \
	  "list the stores: kvdb info POOL; make one: kvdb kvs create POOL NAME")

#endif
