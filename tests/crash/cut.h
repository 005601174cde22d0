/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Crash states of a simulated log.
 *
 * A cut walks a log. At index i, memory holds the bytes that are durable when
 * event i is in flight: events before i completed, event i was issued and did
 * not complete, later ones do not exist. What completed but was not flushed,
 * and what is in flight, are the pending units; a variant says of each unit how
 * much of it is on the medium:
 *  - a completed write: any of its 512-byte sectors;
 *  - the write in flight: any of its sectors, some of them zero or garbage;
 *  - a discard: the old bytes, zeroes or garbage.
 * A flush covers the completed writes of its own device. FUA makes one write
 * durable when it completes, and no other.
 */
#ifndef TESTS_CRASH_CUT_H
#define TESTS_CRASH_CUT_H

#include "sim.h"

/* ordering bugs that the walk itself can commit, to test the oracles' power */
enum sim_plant {
	PLANT_NONE = 0,
	PLANT_NO_FLUSH,		/* flushes of the metadata device do nothing */
	PLANT_NO_DATA_FLUSH,	/* the flush before a metadata write skips the data */
	PLANT_EARLY,		/* flush and FUA report before the newest write is down */
	PLANT_REORDER,		/* the oldest write of a flush comes after it */
	PLANT_TORN,		/* half of a flushed block keeps its old bytes */
	PLANTS,
};
extern const char *const sim_plant_name[PLANTS];

struct sim_pend {
	unsigned pe_ev;
	bool pe_is_durable;	/* FUA above an older pending write: always applied */
};

struct sim_cut {
	struct sim *cu_sim;
	const struct sim_log *cu_log;
	unsigned cu_at;
	enum sim_plant cu_plant;
	struct sim_pend *cu_pend;
	unsigned cu_n, cu_cap;
};

enum sim_part {
	PART_NONE = 0,	/* old bytes */
	PART_WHOLE,
	PART_FIRST,	/* the first ch_n sectors are new */
	PART_LAST,
	PART_SOME,	/* sectors chosen by ch_seed */
	PART_GARBAGE,	/* ch_n new sectors, one of garbage, the rest old */
	PART_ZERO,	/* ch_n new sectors, the rest zero */
	PART_OLDGARBAGE,/* ch_n old sectors, one of garbage, the rest new */
};

struct sim_choice {
	uint8_t ch_part;
	uint16_t ch_n;
	uint32_t ch_seed;
};

/* va_n variants of va_units choices each, in the order of the pending units */
struct sim_variants {
	unsigned va_n, va_units;
	struct sim_choice *va_c;
	bool va_is_two;	/* units on more than one device */
};

/* @log begins at the image that memory holds now, with nothing pending */
void sim_cut_init(struct sim_cut *cu, struct sim *s, const struct sim_log *log,
		  enum sim_plant plant);
/* a copy that goes on in @log, of which the walked part is the same */
void sim_cut_fork(struct sim_cut *cu, const struct sim_cut *from, const struct sim_log *log);
void sim_cut_fini(struct sim_cut *cu);
/* completes the events before @idx; memory follows */
void sim_cut_to(struct sim_cut *cu, unsigned idx);
/*
 * At most @max variants for event cu_at in flight (or the end of the log).
 * "Nothing pending survived" and "everything did" always come first.
 * Equal seeds give equal variants.
 */
void sim_cut_variants(const struct sim_cut *cu, uint64_t seed, unsigned max,
		      struct sim_variants *va);
void sim_variants_free(struct sim_variants *va);
/* puts variant @k into memory */
void sim_cut_apply(const struct sim_cut *cu, const struct sim_variants *va, unsigned k);
/* the caches survive: everything completed, and event cu_at too when @with_flying */
void sim_cut_apply_all(const struct sim_cut *cu, bool with_flying);

#endif
