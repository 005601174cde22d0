/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Backup files. A folder holds files 000001.kvb, 000002.kvb, ..., each the
 * whole database at a checkpoint (full), or what changed since the file of the
 * number before it (incremental). Integers are little-endian, CRC is CRC32C.
 *
 * Header, 64 bytes
 *    0  8  "KVDBBAK" and a newline
 *    8  4  version, 1
 *   12  4  flags: 1 incremental
 *   16 16  uuid of the database
 *   32  4  number, as in the name
 *   36  4  incremental: header CRC of the file before; else 0
 *   40  8  id of the checkpoint
 *   48  8  time, ns since 1970
 *   56  4  0
 *   60  4  CRC of bytes [0, 60)
 *
 * Blocks, to the end of the file: length of the content (4), CRC (4), content.
 * The CRC is begun with that of the block before, the first with that of the
 * header: a block that is missing, moved or doubled is seen.
 *
 * A block has at most 17 MiB; without a value above 1 MiB it has less than 4 MiB,
 * which is all that the first readers of this version take.
 *
 * Records in blocks, none crosses one: type (1), 0 (1), key length (2), value
 * length (4), key, value.
 *    1 STORE  key: its name; value: prefix length (4), policy (4), compression (4), 0 (4),
 *             ttl in seconds (8). Its PUT and DEL follow, keys ascend
 *    2 PUT
 *    3 DEL    in incremental files only
 *    4 GONE   key: name of a store; what older files hold of it is void
 *    5 END    value: number of records before it (8); nothing follows
 * Stores come in order of their names, GONE before STORE. A file lists every
 * store that exists.
 *
 * A file gets its name when it is whole and durable; what has another name is
 * what an interrupted backup left, and restore does not look at it. In .checkpoint
 * the next backup finds which checkpoint was made for it: uuid of the database
 * (16), its name (32, zero-padded).
 */
#ifndef KVDB_BACKUP_H
#define KVDB_BACKUP_H

#include <signal.h>

#include "cli.h"

#define BK_MAGIC	"KVDBBAK\n"
#define BK_VERSION	1u
#define BK_HDR		64u
#define BK_INCREMENTAL	1u
#define BK_BLOCK	(1u << 20)	/* a block is written when it has so much */
#define BK_BLOCK_MAX	(BK_BLOCK + KVDB_VALUE_MAX)
#define BK_REC		8u		/* bytes before key and value */
#define BK_PATH		4200u
#define BK_STORE_BYTES	24u		/* value of STORE */

/* Set by SIGINT, SIGTERM and SIGHUP after bk_stop_catch(): backup, restore and copy end. */
extern volatile sig_atomic_t bk_is_stopped;
void bk_stop_catch(void);

enum bk_type { BK_STORE = 1, BK_PUT = 2, BK_DEL = 3, BK_GONE = 4, BK_END = 5 };

struct bk_head {
	uint32_t flags, number, base, crc;
	uint8_t uuid[16];
	uint64_t ckpt, time_ns;
};

static inline void bk_put(uint8_t *p, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint64_t bk_get(const uint8_t *p, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

/* 0, -EUCLEAN (not a backup, damage), -EOPNOTSUPP (version), or an errno of the file */
int bk_head_read(const char *dir, unsigned number, struct bk_head *h);
/* Greatest number of a file in the folder, 0 = none; -errno. */
int bk_last(const char *dir);
void bk_path(char path[BK_PATH], const char *dir, unsigned number);

/* ---- reading (restore.c) ---- */

struct bk_rec {
	uint8_t type;
	uint16_t klen;
	uint32_t vlen;
	const uint8_t *key, *val;
};

struct bk_in {
	FILE *f;
	unsigned number;
	uint32_t crc;
	uint8_t *buf;
	uint32_t room;		/* of buf */
	uint32_t len, at;
	uint64_t seen;
	struct bk_rec rec;	/* the record at hand */
	bool is_end;
	char why[120];
};

/* A reader at its first record. 0 or -errno, -EUCLEAN with why. */
int bk_in_open(struct bk_in *in, const char *dir, const struct bk_head *h);
int bk_in_next(struct bk_in *in);
void bk_in_close(struct bk_in *in);

#endif
