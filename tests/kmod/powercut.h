/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What the halves of the power-cut test share. In the virtual machine cut_work
 * drives a pool whose two members are slices of one logged device, and tells
 * the recorders the time by marks. Outside, cut_replay rebuilds crash states from
 * a recorder's log and judges them by cut_work's model of what was acknowledged.
 *
 * The logged device: capacity member, staging member, mark slice. A mark is a
 * message to dm-log-writes and, for a recorder outside the virtual machine that
 * sees only writes, one written sector of the mark slice.
 *
 * Both halves are built from one source for one machine: structures are passed
 * as they lie in memory.
 */
#ifndef TESTS_KMOD_POWERCUT_H
#define TESTS_KMOD_POWERCUT_H

#include "pool_model.h"

#define CUT_POOL	"cut"
#define CUT_CAP_BYTES	(12ull << 20)
#define CUT_STG_BYTES	(12ull << 20)
#define CUT_MARK_BYTES	(64ull << 10)
#define CUT_LOGGED	(CUT_CAP_BYTES + CUT_STG_BYTES + CUT_MARK_BYTES)
#define CUT_LABELS	64u

static const uint64_t cut_bytes[2] = { CUT_CAP_BYTES, CUT_STG_BYTES };

/* what a member holds before the pool is made: @off is the page's offset in it */
static inline void cut_old_page(uint8_t page[SIM_PAGE], uint64_t off)
{
	sim_garbage(page, SIM_PAGE, off ^ 0x6d157);
}

/* a sector of the mark slice */
struct cut_mark {
	char ma_magic[8];
	uint64_t ma_number;
};
#define CUT_MARK_MAGIC	"mpoolcut"

/* name and label after a call that changed one of them; the model has neither */
struct cut_label {
	struct pm_time la_time;
	char la_name[MPOOL_NAME_MAX + 1];
	char la_text[MPOOL_LABEL_MAX + 1];
};

/* the oracle: what was acknowledged, and between which marks */
struct cut_oracle {
	char or_magic[8];
	uint32_t or_bytes;	/* sizeof(struct cut_oracle) */
	uint32_t or_nlabel;
	uint64_t or_seed;
	uint64_t or_marks;	/* numbers 1 .. or_marks were used */
	struct cut_label or_label[CUT_LABELS];
	struct pm or_pm;
};
#define CUT_ORACLE_MAGIC	"cutorcl2"

/*
 * Crash states for the module, one after another in a file:
 *	struct cut_pack, struct cut_oracle (times are event indexes),
 *	pk_states times struct cut_state and its st_pages times struct cut_page
 * Pages that are not named hold what they held before the pool was made.
 */
struct cut_pack {
	char pk_magic[8];
	uint32_t pk_bytes;
	uint32_t pk_states;
};
#define CUT_PACK_MAGIC	"cutpack1"

struct cut_state {
	char st_path[96];	/* of the engine: to repeat it outside */
	uint32_t st_at;
	uint32_t st_pages;
	uint64_t st_rand;
};

struct cut_page {
	uint32_t pa_dev, pa_page;
	uint8_t pa_data[SIM_PAGE];
};

/*
 * Are name and label of an opened pool legal at @at? NULL, or the name they should
 * have come with. At most one change is in flight; the first entry is the creation's.
 */
static inline const char *cut_label_check(const struct cut_oracle *o, unsigned at,
					  const char *name, const char *text)
{
	unsigned i = o->or_nlabel;

	while (i--) {
		const struct cut_label *la = &o->or_label[i];

		if (i && !pm_begun(la->la_time, at))
			continue;
		if (!strcmp(la->la_name, name) && !strcmp(la->la_text, text))
			return NULL;
		if (!i || pm_certain(la->la_time, at))
			return la->la_name;
	}
	return "";
}

#endif
