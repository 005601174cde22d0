/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Takes the place of core/guard.h in a module that is broken on purpose, to prove
 * that the power-cut test would notice: the flush at ordering point MP_BROKEN does
 * nothing, or at every one (0). Built by host_powercut.sh, never installed. The
 * self-test would not let such a module in: until the module is live it is sound.
 */
#ifndef MP_CORE_GUARD_H
#define MP_CORE_GUARD_H

#include <linux/module.h>

#define BARRIER(n, expr)							\
	((MP_BROKEN == 0 || MP_BROKEN == (n)) &&				\
	 THIS_MODULE->state == MODULE_STATE_LIVE ? 0 : (expr))
#define CHECK(n, cond)		(cond)

#endif
