/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Takes the place of core/guard.h in a module that is broken on purpose, to prove
 * that the power-cut test would notice: the flush at ordering point MP_BROKEN does
 * nothing, or at every one (0). Built by host_powercut.sh, never installed.
 */
#ifndef MP_CORE_GUARD_H
#define MP_CORE_GUARD_H

#define BARRIER(n, expr)	(MP_BROKEN == 0 || MP_BROKEN == (n) ? 0 : (expr))
#define CHECK(n, cond)		(cond)

#endif
