/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Takes the place of core/guard.h in a module that is broken on purpose, to prove
 * that the power-cut test would notice: the flushes that the function MP_BROKEN is to
 * order by do nothing, or all of them ("all"). Built by host_powercut.sh, never installed.
 * The self-test would not let such a module in: until the module is live it is sound.
 */
#ifndef MP_CORE_GUARD_H
#define MP_CORE_GUARD_H

#include <linux/module.h>
#include <linux/string.h>
#include <linux/stringify.h>

static inline bool is_broken(const char *function)
{
	return THIS_MODULE->state == MODULE_STATE_LIVE &&
	       (!strcmp(__stringify(MP_BROKEN), "all") ||
		!strcmp(__stringify(MP_BROKEN), function));
}

#define BARRIER(expr)	(is_broken(__func__) ? 0 : (expr))
#define CHECK(cond)	(cond)
#define CHECK_CRC(cond)	(cond)

#endif
