/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A pool on simulated devices, and how databases there are opened. */
#ifndef TESTS_KV_SIM_H
#define TESTS_KV_SIM_H

#include <kvdb/kvdb.h>

#include "harness.h"
#include "sim.h"

#define POOL	"./sim"

static struct sim sim;
static bool kv_sim_has_holes;	/* what kv_sim() makes is as files are */
static struct mpool_open_opts oo;
static struct kvdb_opts opts;

/* An empty pool, of one class or both; sim_fini() ends it. */
static void kv_sim(unsigned devs)
{
	struct mpool_dev_spec dev[2] = {
		{ .path = "capacity", .mclass = MPOOL_CAPACITY, .size = 64u << 20 },
		{ .path = "staging", .mclass = MPOOL_STAGING, .size = 64u << 20 },
	};
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;

	sim_init(&sim);
	sim.s_has_holes = kv_sim_has_holes;
	co.name = "sim";
	co.devs = dev;
	co.ndevs = devs;
	co.provider = &sim.s_prov;
	T_EQ(mpool_create(POOL, &co), 0);
	oo = (struct mpool_open_opts)MPOOL_OPEN_OPTS_INIT;
	oo.io = "sync";
	oo.provider = &sim.s_prov;
	opts = (struct kvdb_opts)KVDB_OPTS_INIT;
	opts.flags = KVDB_MANUAL;
	opts.logs = 1;
	opts.cache_bytes = 64u << 20;
	opts.segment_bytes = 2u << 20;
	opts.pool = &oo;
}

#endif
