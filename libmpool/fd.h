/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* fopen() and opendir() for reading, whose descriptor is above the standard ones. */
#ifndef MPL_FD_H
#define MPL_FD_H

#include <dirent.h>
#include <stdio.h>

FILE *mpl_fopen(const char *path);
DIR *mpl_opendir(const char *path);

#endif
