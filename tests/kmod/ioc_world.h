/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the fuzzer's threads share: disks, pools, descriptors and object ids,
 * and a pool apart, the canary, that nothing they do may change.
 */
#ifndef TESTS_KMOD_IOC_WORLD_H
#define TESTS_KMOD_IOC_WORLD_H

#include "ioc_gen.h"

#define NDISKS		6	/* given to the fuzzer */
#define CANARY		"canary"
#define CANARY_OBJS	8
#define CANARY_BYTES	(64u << 10)

/* a finding: printed, counted */
void finding(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
unsigned int findings(void);

/* disks, the canary, the thing that delays page faults. 0 or negative errno, *why on failure */
int world_init(const char **why);
void world_exit(void);

/*
 * Between them runs one epoch: pool fz0 with open descriptors that stay, other
 * pools that come and go. The end closes all and deactivates; what was durable
 * must be there again at the next beginning. No other thread runs meanwhile.
 */
void world_epoch_begin(uint64_t *rng);
void world_epoch_end(void);

/* compares the canary with what it was at the beginning */
void world_check_canary(void);
/* no pool may have stopped: no device error was injected */
void world_check_faults(void);

/*
 * One valid step in the life of a pool beside fz0: create, activate, rename, add, ...
 * Which command, and its result, also when others were faster.
 */
unsigned long world_life(uint64_t *rng, int ctl, int *rc);

/* descriptors that come and go */
void world_fd_add(int fd, enum fd_kind kind);
void world_fd_close(uint64_t *rng);	/* a random one */
/* ids that calls through @fd returned */
void world_id_add(uint64_t id, enum id_kind kind, int fd);

/* a plain mblock with the contents ioc_pattern() says, committed: @length bytes */
void world_good_add(uint64_t id, uint64_t length);
bool world_good(uint64_t *rng, uint64_t *id, uint64_t *length);

int world_ctl(void);	/* always open */
int world_pool(void);	/* fz0, always open during an epoch */
int world_canary(void);	/* for reading */
uint8_t *world_slow(void);	/* GEN_SLOW bytes of memory that arrives late */
void world_slow_again(void);	/* its pages are forgotten */
bool world_has_slow(void);

#endif
