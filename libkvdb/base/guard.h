/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Guards of the safety path, by name only: each is its expression. BARRIER() marks every flush
 * and ordering point (its expression's int result is 0 or an error), CHECK() every bound check
 * and comparison of what the media says (true = good), CHECK_CRC() those that compare checksums
 * and nothing else. The ablation build switches each off in copies of the sources
 * (tests/switches.py), and the suites must notice; the fuzz programs may trust all checksums.
 */
#ifndef KV_GUARD_H
#define KV_GUARD_H

#define BARRIER(expr)	(expr)
#define CHECK(cond)	(cond)
#ifdef MP_FUZZ
int mp_trusts_crc(void);
#define CHECK_CRC(cond)	(mp_trusts_crc() || (cond))
#else
#define CHECK_CRC(cond)	(cond)
#endif

#endif
