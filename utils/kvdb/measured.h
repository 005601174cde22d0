/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What 'mpool bench -j' measured of a device, as it printed it into a file.
 */
#ifndef KVDB_MEASURED_H
#define KVDB_MEASURED_H

#include <stdbool.h>
#include <stdint.h>

struct ui;

struct measured {
	uint64_t flush_p999_ns, min_interval_ms;
	uint64_t seq_read_bytes_per_s, seq_write_bytes_per_s;
	uint64_t random_read_ns;	/* one at a time, the median */
	bool is_for_staging;
};

/* Returns an exit code; it has said why when that is not EXIT_DONE. */
int measured_read(struct ui *ui, const char *path, struct measured *out);

#endif
