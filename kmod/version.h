/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The one place with the version of everything built from this tree. The top
 * Makefile hands the same text to user space as -DMP_VERSION; dkms.conf
 * repeats it and `make lint` compares the two.
 */
#ifndef MP_VERSION_H
#define MP_VERSION_H

#define MP_VERSION "0.1.0"

#endif
