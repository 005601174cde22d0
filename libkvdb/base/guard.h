/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Numbered guards of the safety path. BARRIER(n, expr) wraps every flush and
 * ordering point (expr is its int result), CHECK(n, cond) every checksum
 * comparison and bound check on media (true = good). In the product build
 * both are just their expression; the ablation build (-DMP_ABLATE) can switch
 * each off by number, and the suites must notice.
 */
#ifndef KV_GUARD_H
#define KV_GUARD_H

#ifdef MP_ABLATE
int mp_ablated(int n);
#define BARRIER(n, expr)	(mp_ablated(n) ? 0 : (expr))
#define CHECK(n, cond)		(mp_ablated(n) || (cond))
#else
#define BARRIER(n, expr)	(expr)
#define CHECK(n, cond)		(cond)
#endif

#endif
