/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Names of what media hold by number.
 */
#include "omf.h"
#include "pool.h"

void mp_uuid_text(const u8 *uuid, char out[37])
{
	static const char hex[] = "0123456789abcdef";
	u32 i, k = 0;

	for (i = 0; i < MP_UUID_LEN; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			out[k++] = '-';
		out[k++] = hex[uuid[i] >> 4];
		out[k++] = hex[uuid[i] & 15];
	}
	out[k] = 0;
}

const char *mp_kind_text(u32 kind)
{
	static const char *const name[] = { "metadata", "mblock", "append", "mlog" };

	return kind < ARRAY_SIZE(name) ? name[kind] : "unknown";
}

const char *mp_class_text(u32 mclass)
{
	static const char *const name[] = { "capacity", "staging" };

	return mclass < ARRAY_SIZE(name) ? name[mclass] : "unknown";
}

const char *mp_state_text(u32 sb_state)
{
	static const char *const name[] = { "none", "creating", "active", "destroyed" };

	return sb_state < ARRAY_SIZE(name) ? name[sb_state] : "unknown";
}
