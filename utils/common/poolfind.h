/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The search for pools: the current directory and what lies directly below it,
 * and the pools that the kernel module has.
 */
#ifndef UTILS_POOLFIND_H
#define UTILS_POOLFIND_H

/*
 * Paths ("./name") and names of pools, sorted: a NULL-terminated array to give
 * to pool_list_free(); NULL without memory.
 */
char **pool_find(void);
void pool_list_free(char **list);

#endif
