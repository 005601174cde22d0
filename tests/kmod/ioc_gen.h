/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Random calls of the module's interface. A call is made valid first, from a
 * table that says what every field means and from what exists at the moment;
 * then perhaps something in it is made wrong. What was made wrong on purpose
 * is remembered: such a call may not succeed.
 */
#ifndef TESTS_KMOD_IOC_GEN_H
#define TESTS_KMOD_IOC_GEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ioc_help.h"

/* ---- memory for arguments, one set per thread ---- */

struct gen_mem {
	uint8_t *gm_plain;	/* GEN_PLAIN bytes */
	size_t gm_used;
	uint8_t *gm_edge;	/* end of a mapping; GEN_PAGE bytes before it are there */
	uint8_t *gm_none;	/* no access */
	uint8_t *gm_rdonly;	/* may be read */
	uint8_t *gm_slow;	/* GEN_SLOW bytes; each page arrives late (or plain memory) */
};

#define GEN_PAGE	4096u
#define GEN_PLAIN	(3u << 20)
#define GEN_SLOW	(16u * GEN_PAGE)

int gen_mem_init(struct gen_mem *m, uint8_t *slow);

/* ---- what exists: ioc_world.c ---- */

enum fd_kind {
	FD_CTL = 1, FD_POOL, FD_POOL_RO, FD_CANARY, FD_OBJ, FD_OBJ_RO, FD_DISK, FD_JUNK,
};

struct fd_pick {
	int fp_fd;
	enum fd_kind fp_kind;
	bool fp_is_stable;	/* it is not closed before all threads have stopped */
};

struct fd_pick world_fd(uint64_t *rng, enum fd_kind kind);
int world_disk_fd(uint64_t *rng);
enum id_kind { ID_OBJ, ID_LOG, ID_OPEN_LOG, ID_KINDS };

/* *fd: the descriptor through which it was got, else -1 */
uint64_t world_id(uint64_t *rng, enum id_kind kind, int *fd);
/* the descriptor @fd, if it is still one that commands can be tried on; else false */
bool world_fd_find(int fd, struct fd_pick *p);
const char *world_name(uint64_t *rng);	/* never fz0 */
const char *world_root(uint64_t *rng);

/* ---- calls ---- */

enum node { NODE_CTL = 1, NODE_POOL = 2 };

/* why a call may not succeed */
#define BAD_FIELD	0x01u	/* reserved field, unknown flag, unterminated name, count */
#define BAD_SIZE	0x02u	/* ma_size */
#define BAD_CMD		0x04u	/* no such command */
#define BAD_NODE	0x08u	/* a command of the other node */
#define BAD_WRITE	0x10u	/* changes something, through a descriptor for reading */
#define BAD_ADDR	0x20u	/* memory that is not there */

struct ioc_field {
	uint16_t fi_off, fi_size;
	uint8_t fi_kind;
	uint32_t fi_arg;
};

struct ioc_desc {
	unsigned long de_cmd;
	const char *de_name;
	uint8_t de_node;	/* bits of enum node */
	bool de_is_write;
	uint8_t de_weight;
	uint32_t de_flags;	/* known ones */
	const struct ioc_field *de_field;
	const int *de_errno;	/* documented, beside those that any command may return */
};

struct gen_call {
	const struct ioc_desc *gc_desc;
	unsigned long gc_cmd;
	struct fd_pick gc_fd;
	void *gc_arg;		/* what is passed */
	union {
		struct mpool_ioc_arg gc_head;
		uint8_t gc_buf[1024];	/* the structure as it was made */
	};
	uint32_t gc_n;		/* elements of the arrays */
	int gc_hint;		/* the descriptor that holds what the call names, or -1 */
	uint32_t gc_bad;	/* BAD_* */
	uint32_t gc_elem_bad;	/* those that only an array's elements have */
	uint32_t gc_mutated;	/* bit per field, then head, then command */
};

extern const struct ioc_desc gen_table[];
extern const unsigned int gen_ncmds;

void gen_call(struct gen_call *gc, struct gen_mem *m, uint64_t *rng);
/* a documented error of this command */
bool gen_errno_ok(const struct ioc_desc *de, int err);
/* a boundary value, or anything, of @size bytes */
uint64_t gen_boundary(uint64_t *rng, unsigned int size);

#endif
