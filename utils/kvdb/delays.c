/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Waits of writers by cause, as stats and bench show them. */
#include <inttypes.h>
#include <stdio.h>

#include "cli.h"
#include "json.h"
#include "size.h"

static struct kvdb_delays delay_since(const struct kvdb_stats *from, const struct kvdb_stats *to,
				      unsigned i)
{
	struct kvdb_delays d = to->delay[i];

	if (from) {
		d.waits -= from->delay[i].waits;
		d.ns -= from->delay[i].ns;
	}
	return d;
}

void delays_json(struct json *j, const struct kvdb_stats *from, const struct kvdb_stats *to)
{
	unsigned i;

	json_arr(j, "delays");
	for (i = 0; i < KVDB_DELAYS; i++) {
		struct kvdb_delays d = delay_since(from, to, i);

		json_obj(j, NULL);
		json_str(j, "cause", kvdb_delay_name(i));
		json_u64(j, "waits", d.waits);
		json_u64(j, "ns", d.ns);
		json_u64(j, "max_ns_since_open", d.max_ns);
		json_end(j);
	}
	json_end(j);
}

void delays_text(const char *label, const struct kvdb_stats *from, const struct kvdb_stats *to)
{
	unsigned i, longest = 0;
	char sum[SIZE_STR];
	uint64_t stops;

	for (i = 0; i < KVDB_DELAYS; i++) {
		struct kvdb_delays d = delay_since(from, to, i);
		char max[SIZE_STR];

		if (to->delay[i].max_ns > to->delay[longest].max_ns)
			longest = i;
		if (d.waits)
			printf("%s %-8s %10" PRIu64 " waits, together %9s, longest since open "
			       "%9s\n",
			       label, kvdb_delay_name(i), d.waits, time_str(sum, d.ns),
			       time_str(max, d.max_ns));
	}
	stops = to->stalls - (from ? from->stalls : 0);
	if (stops)
		printf("%s of them, beyond a budget: %" PRIu64 " waits, together %s\n", label,
		       stops, time_str(sum, to->stall_ns - (from ? from->stall_ns : 0)));
	if (to->delay[longest].max_ns) {
		char max[SIZE_STR];

		printf("%s longest wait of a writer since open: %s (%s)\n", label,
		       time_str(max, to->delay[longest].max_ns), kvdb_delay_name(longest));
	}
	if (to->log_device_max_ns)
		printf("%s longest wait of the log for one write or flush since open: %s\n", label,
		       time_str(sum, to->log_device_max_ns));
}
