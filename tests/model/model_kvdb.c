/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Random operations of many threads on a database, through closes, kills and
 * power cuts, against the oracle of mk.h.
 *
 *   SEED=n        repeats the choices of a run
 *   WORLD=n       only this world of it
 *   PIECE=i/n     only each n-th of them, from the i-th on
 *   TEST_SHORT    a tenth: 500 thousand operations, 6 kills
 *   TEST_LONG     500 million operations, 5000 kills: four hours of a processor
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "mk.h"

#define MiB	(1ull << 20)

#define CUT_WORLDS	100000u	/* numbers of worlds on simulated devices begin here */
#define KILLS_PER_WORLD	3u	/* each followed by a round that is closed */

static struct mk_world world;
static char path[400];
static unsigned part = 1, whole = 1;	/* of the full size */

static void pool_make(struct mk_world *wo, uint64_t *rnd)
{
	struct mpool_dev_spec dev[2] = {
		{ .mclass = MPOOL_CAPACITY, .size = 1024 * MiB },
		{ .mclass = MPOOL_STAGING, .size = 256 * MiB },
	};
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;

	co.devs = dev;
	co.ndevs = 1 + mk_rand(rnd) % 2;
	if (mpool_create(path, &co))
		T_FAIL("mpool_create %s: %s", path, mpool_error_detail()->text);
	wo->wo_pool = path;
	mk_options(wo, rnd, false);
	T_EQ(mk_create(wo), 0);
}

/* A store is emptied by dropping it, before the threads begin. */
static void store_renew(struct mk_world *wo, unsigned s)
{
	int rc = kvdb_kvs_drop(wo->wo_db, mk_store_name(s));

	if (!rc)
		rc = kvdb_kvs_create(wo->wo_db, mk_store_name(s), mk_store_opts(s));
	if (!rc)
		rc = kvdb_kvs_open(wo->wo_db, mk_store_name(s), &wo->wo_kvs[s]);
	if (rc)
		mk_fail(wo, "dropping and making store %u: %d (%s)", s, rc,
			kvdb_error_detail()->text);
	memset(wo->wo_shm->sm_base[s], 0, sizeof(wo->wo_shm->sm_base[s]));
	wo->wo_shm->sm_count[MK_THREADS + 1][MC_STORE]++;
}

static void child(struct mk_world *wo, uint64_t rnd)
{
	if (mk_open(wo, 0))
		_exit(2);
	if (mk_rand(&rnd) % 6 == 0)
		store_renew(wo, (unsigned)(mk_rand(&rnd) % MK_STORES));
	mk_work(wo);
	if (!mk_failed(wo))
		mk_close(wo);
	_exit(mk_failed(wo) ? 2 : 0);
}

static uint64_t ops_done(const struct mk_shm *shm)
{
	uint64_t n = 0;
	unsigned t, c;

	for (t = 0; t < MK_THREADS + 2; t++)
		for (c = MC_PUT; c <= MC_STORE; c++)
			n += shm->sm_count[t][c];
	return n;
}

static void verify(struct mk_world *wo)
{
	uint64_t damage = 0;
	int rc = kvdb_verify(wo->wo_pool, &wo->wo_opts, MPOOL_VERIFY_DATA, NULL, NULL, &damage);

	if (rc || damage)
		mk_fail(wo, "kvdb_verify: %d, %llu damaged (%s)", rc, (unsigned long long)damage,
			kvdb_error_detail()->text);
}

/* Work in a process of its own until it closes or is killed, then judge. */
static void round_run(struct mk_world *wo, uint64_t *rnd, bool is_kill, uint64_t quota)
{
	struct mk_crash cr = { .cr_certain = UINT64_MAX, .cr_possible = UINT64_MAX };
	struct mk_shm *shm = wo->wo_shm;
	uint64_t x = mk_rand(rnd);
	unsigned tries;
	int status = 0;
	pid_t pid;

	wo->wo_round++;
	mk_time_pass(wo, rnd);
	mk_options(wo, rnd, false);
	wo->wo_bound_ms = wo->wo_opts.interval_ms;
	wo->wo_is_commit = wo->wo_opts.commit;
	wo->wo_quota = is_kill ? UINT64_MAX : quota / wo->wo_threads;
	shm->sm_is_started = 0;
	fflush(stdout);
	pid = fork();
	T_OK(pid >= 0);
	if (!pid)
		child(wo, x);
	if (is_kill) {
		for (tries = 0; tries < 20000 && !mk_failed(wo); tries++) {
			if (__atomic_load_n(&shm->sm_is_started, __ATOMIC_ACQUIRE))
				break;
			usleep(500);
		}
		usleep((useconds_t)(2000 + x % (x >> 32 & 3 ? 150000 : 700000)));
		kill(pid, SIGKILL);
	}
	T_EQ(waitpid(pid, &status, 0), pid);
	if (!mk_failed(wo) && WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		mk_fail(wo, "died of signal %d", WTERMSIG(status));
	cr.cr_is_clean = WIFEXITED(status);
	mk_count(wo)[MC_KILL] += !cr.cr_is_clean;
	if (!mk_failed(wo) && x >> 40 & 1)
		mk_options(wo, rnd, false);	/* not what the bound was */
	if (!mk_failed(wo) && (x >> 41) % 8 == 0)
		verify(wo);
	if (!mk_failed(wo) && (x >> 44) % 4 == 0 && !mk_open(wo, KVDB_RDONLY)) {
		mk_judge(wo, &cr, false);
		mk_close(wo);
	}
	if (!mk_failed(wo))
		mk_judge_checkpoints(wo, &cr);
	if (!mk_failed(wo) && !mk_open(wo, 0)) {
		mk_judge(wo, &cr, true);
		mk_close(wo);
	}
	if (mk_failed(wo))
		T_FAIL("world %u round %u (%s): %s", wo->wo_no, wo->wo_round,
		       cr.cr_is_clean ? "closed" : "killed", shm->sm_why);
}

static void one_world(unsigned no, uint64_t ops)
{
	struct mk_world *wo = &world;
	uint64_t rnd = mk_hash(t_seed(), no * 2 + 1), before = ops_done(wo->wo_shm), done;
	unsigned i, left;

	mk_world_init(wo, t_seed(), no);
	pool_make(wo, &rnd);
	for (i = 0; i < 2 * KILLS_PER_WORLD; i++) {
		done = ops_done(wo->wo_shm) - before;
		left = KILLS_PER_WORLD - i / 2;
		round_run(wo, &rnd, i % 2 == 0, done < ops ? (ops - done) / left : 1000);
	}
	T_EQ(mpool_destroy(path, NULL), 0);
	mk_world_fini(wo);
}

static uint64_t total(unsigned c)
{
	uint64_t n = 0;
	unsigned t;

	for (t = 0; t < MK_THREADS + 2; t++)
		n += world.wo_shm->sm_count[t][c];
	return n;
}

static void counts_print(void)
{
	static const char *const name[MC_COUNTS] = { MC_NAMES };
	unsigned c;

	printf("# %" PRIu64 " operations", ops_done(world.wo_shm));
	for (c = 0; c < MC_COUNTS; c++)
		printf("%s %" PRIu64 " %s", c ? "," : ":", total(c), name[c]);
	printf("\n");
}

/* World @i is to be run by this process. */
static bool is_wanted(unsigned i)
{
	const char *only = getenv("WORLD");

	return only ? strtoul(only, NULL, 0) == i : t_is_mine(i);
}

static void no_operation_differs_from_the_model(void)
{
	unsigned kills = whole > 1 ? 5000 : 60 / part, i;
	unsigned n = (kills + KILLS_PER_WORLD - 1) / KILLS_PER_WORLD, worlds = 0;
	uint64_t ops = 5000000ull * whole / part;
	bool only = getenv("WORLD");

	for (i = 0; i < n; i++) {
		if (!is_wanted(i))
			continue;
		one_world(i, ops / n);
		worlds++;
	}
	kills = only ? 0 : KILLS_PER_WORLD * worlds;
	ops = only ? 0 : ops / n * worlds;
	counts_print();
	t_figure("model and SIGKILL", "%" PRIu64 " operations, %" PRIu64 " kills",
		 ops_done(world.wo_shm), total(MC_KILL));
	T_OK(total(MC_KILL) >= kills);
	T_OK(ops_done(world.wo_shm) >= ops);
	T_OK(total(MC_EXPIRED) >= kills);
	/* a ring that decides nothing would be no check */
	T_OK(total(MC_UNSURE) < total(MC_GET) / 50 + 100);
}

static void no_power_cut_differs_from_the_model(void)
{
	unsigned n = whole > 1 ? 200 : 20 / (part > 1 ? 5 : 1), i, worlds = 0;

	for (i = CUT_WORLDS; i < CUT_WORLDS + n; i++) {
		if (!is_wanted(i))
			continue;
		mk_world_init(&world, t_seed(), i);
		mk_cut_run(&world, 3, 16);
		if (mk_failed(&world))
			T_FAIL("world %u round %u (power cut): %s", world.wo_no, world.wo_round,
			       world.wo_shm->sm_why);
		mk_world_fini(&world);
		worlds++;
	}
	t_figure("model and power cuts", "%" PRIu64 " cuts", total(MC_CUT));
	T_OK(total(MC_CUT) >= (getenv("WORLD") ? 0 : worlds * 3 * 16));
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");

	(void)argc;
	if (getenv("TEST_SHORT"))
		part = 10;
	if (getenv("TEST_LONG"))
		whole = 100;
	snprintf(path, sizeof(path), "%s/model.%d", tmp && *tmp ? tmp : "/tmp", (int)getpid());
	world.wo_shm = mmap(NULL, sizeof(*world.wo_shm), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (world.wo_shm == MAP_FAILED)
		return 2;
	printf("# repeat one world: SEED=%" PRIu64 " WORLD=n %s\n", t_seed(), argv[0]);
	T_RUN(no_operation_differs_from_the_model);
	if (!world.wo_shm->sm_is_failed)
		T_RUN(no_power_cut_differs_from_the_model);
	if (world.wo_shm->sm_is_failed)
		printf("# repeat: SEED=%" PRIu64 " WORLD=%u %s\n", t_seed(),
		       world.wo_no, argv[0]);
	return t_done();
}
