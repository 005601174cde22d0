/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What main.c asks before the module serves anything.
 */
#ifndef MPK_SELFTEST_H
#define MPK_SELFTEST_H

/*
 * Returns 0 when the compiled core works, else a negative errno with the
 * failed step in *what. Sleeps; takes about 20 MiB while it runs.
 */
int mpk_selftest(const char **what);

#endif
