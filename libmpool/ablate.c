/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The switch behind BARRIER() and CHECK(): compiled into the ablation build
 * only. MP_ABLATE in the environment names the one guard that is off.
 */
#ifdef MP_ABLATE
#include <stdlib.h>

#include "../kmod/core/guard.h"

__attribute__((visibility("default"))) int mp_ablated(int n)
{
	static int off = -1;
	int cur = __atomic_load_n(&off, __ATOMIC_RELAXED);

	if (cur < 0) {
		const char *s = getenv("MP_ABLATE");

		cur = s ? atoi(s) : 0;
		__atomic_store_n(&off, cur, __ATOMIC_RELAXED);
	}
	return n == cur;
}
#endif
