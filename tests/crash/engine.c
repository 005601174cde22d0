/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Enumeration of crash states over a recorded workload. See engine.h.
 *
 * Memory levels (sim_snap): the pass (durable bytes advance along the log),
 * above it one state, above that what recovery does to it.
 */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include "engine.h"
#include "harness.h"

#define HANG_SECONDS	20	/* one state may not take longer, see eng_watch() */
#define SHOWN		5	/* violations printed per workload */
#define LEAST		2000	/* distinct states of a workload in a run of ordinary length */

static struct eng *current;	/* for the signal handler only */

/* CPU time: as many states on a busy machine as on an idle one. */
static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/*
 * Takes the place of the C library's in statically linked tests: UUIDs and
 * everything that depends on them follow SEED.
 */
ssize_t getrandom(void *buf, size_t len, unsigned int flags)
{
	static uint64_t other = 1;

	(void)flags;
	sim_garbage(buf, len, sim_rand(current ? &current->e_rand : &other));
	return (ssize_t)len;
}

/*
 * So do these: each state opens and closes a database, and its small mappings would come from the
 * kernel again, page by page. Those that are given back are kept, and cleared at the next use.
 */
static struct {
	pthread_mutex_t lock;
	unsigned n;
	struct {
		void *at;
		size_t len;
		bool is_used;
	} map[128];
} kept = { .lock = PTHREAD_MUTEX_INITIALIZER };

#define KEPT_MAX	(256u << 10)	/* bytes of one; of a larger one most is never touched */

static void *kept_take(size_t len)
{
	void *at = NULL;

	pthread_mutex_lock(&kept.lock);
	for (unsigned i = 0; i < kept.n && !at; i++) {
		if (kept.map[i].is_used || kept.map[i].len != len)
			continue;
		kept.map[i].is_used = true;
		at = kept.map[i].at;
	}
	pthread_mutex_unlock(&kept.lock);
	return at ? memset(at, 0, len) : NULL;
}

static void kept_add(void *at, size_t len)
{
	pthread_mutex_lock(&kept.lock);
	if (at != MAP_FAILED && kept.n < sizeof(kept.map) / sizeof(kept.map[0])) {
		kept.map[kept.n].at = at;
		kept.map[kept.n].len = len;
		kept.map[kept.n++].is_used = true;
	}
	pthread_mutex_unlock(&kept.lock);
}

/* May it stay? Not when a part of it goes: then it is an ordinary one. */
static bool kept_give(void *at, size_t len)
{
	bool is_kept = false;

	pthread_mutex_lock(&kept.lock);
	for (unsigned i = 0; i < kept.n && !is_kept; i++) {
		if (kept.map[i].at != at)
			continue;
		is_kept = kept.map[i].len == len;
		kept.map[i].is_used = false;
		if (!is_kept)
			kept.map[i] = kept.map[--kept.n];
		break;
	}
	pthread_mutex_unlock(&kept.lock);
	return is_kept;
}

void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	bool is_ours = !at && prot == (PROT_READ | PROT_WRITE) &&
		       flags == (MAP_PRIVATE | MAP_ANONYMOUS) && len <= KEPT_MAX;
	void *p = is_ours ? kept_take(len) : NULL;

	if (p)
		return p;
	p = (void *)syscall(SYS_mmap, at, len, prot, flags, fd, off);
	if (is_ours)
		kept_add(p, len);
	return p;
}

int munmap(void *at, size_t len)
{
	return kept_give(at, len) ? 0 : (int)syscall(SYS_munmap, at, len);
}

/* ---- helpers of workloads ---- */

static void fail(struct eng *e, bool is_wrong, const char *fmt, va_list ap)
{
	vsnprintf(e->e_why, sizeof(e->e_why), fmt, ap);
	e->e_is_wrong = is_wrong;
}

int eng_fail(struct eng *e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fail(e, false, fmt, ap);
	va_end(ap);
	return -1;
}

int eng_wrong(struct eng *e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fail(e, true, fmt, ap);
	va_end(ap);
	return -1;
}

void eng_record_begin(struct eng *e)
{
	sim_log_init(&e->e_log, 1);
	sim_snap(&e->e_sim);
	e->e_sim.s_log = &e->e_log;
}

void eng_recovery_begin(struct eng *e)
{
	e->e_sim.s_hash = 0x5eed;
	e->e_sim.s_is_hashing = true;
}

void eng_recovery_end(struct eng *e)
{
	e->e_sim.s_is_hashing = false;
	/* the first recovery of a state is the one that counts */
	if (!e->e_has_hash)
		e->e_hash = e->e_sim.s_hash;
	e->e_has_hash = true;
}

void eng_opened(struct eng *e)
{
	e->e_opened = sim_now(&e->e_sim);
}

/* ---- the set of seen states ---- */

static bool set_add(struct eng *e, uint64_t h)
{
	size_t i;

	h |= !h;
	if (e->e_set_n * 2 >= e->e_set_cap) {
		size_t cap = e->e_set_cap ? e->e_set_cap * 2 : 4096, k;
		uint64_t *v = calloc(cap, sizeof(*v));

		if (!v)
			abort();
		for (k = 0; k < e->e_set_cap; k++) {
			if (!e->e_set[k])
				continue;
			for (i = e->e_set[k] & (cap - 1); v[i]; i = (i + 1) & (cap - 1))
				;
			v[i] = e->e_set[k];
		}
		free(e->e_set);
		e->e_set = v;
		e->e_set_cap = cap;
	}
	for (i = h & (e->e_set_cap - 1); e->e_set[i]; i = (i + 1) & (e->e_set_cap - 1))
		if (e->e_set[i] == h)
			return false;
	e->e_set[i] = h;
	e->e_set_n++;
	return true;
}

/* ---- one state ---- */

enum state_kind { FIRST_GEN, CUT_RECOVERY, THIRD_GEN };

static void violation(struct eng *e)
{
	e->e_n.en_violations++;
	if (e->e_conf.ec_is_hunt || e->e_n.en_violations > SHOWN)
		return;
	printf("# VIOLATION %s: %s\n", e->e_ops->eo_name, e->e_why);
	printf("#   repeat: %s CRASH_STATE=%s %s %s\n", e->e_repeat, e->e_path,
	       program_invocation_name, e->e_ops->eo_name);
	fflush(stdout);
}

static void count(struct eng *e, enum state_kind kind)
{
	bool is_new = e->e_has_hash && set_add(e, e->e_hash);

	e->e_n.en_states++;
	e->e_n.en_distinct += is_new;
	if (e->e_ops->eo_is_two_devs) {
		e->e_n.en_two++;
		e->e_n.en_two_distinct += is_new;
	}
	if (kind == CUT_RECOVERY) {
		e->e_n.en_cut++;
		e->e_n.en_cut_distinct += is_new;
	} else if (kind == THIRD_GEN) {
		e->e_n.en_third++;
		e->e_n.en_third_distinct += is_new;
	}
}

/* CRASH_STATE chooses one state: true when @path is it or leads to it */
static bool is_wanted(const char *path)
{
	const char *want = getenv("CRASH_STATE");
	size_t n = strlen(path);

	return !want || !strncmp(want, path, n);
}

static bool is_exactly(const char *path)
{
	const char *want = getenv("CRASH_STATE");

	return !want || !strcmp(want, path);
}

static void judge(struct eng *e, void *model, unsigned at, enum state_kind kind, uint64_t seed)
{
	bool post = e->e_conf.ec_post_every && seed % e->e_conf.ec_post_every == 0;

	if (!is_exactly(e->e_path))
		return;
	e->e_has_hash = false;
	e->e_rand = seed;
	eng_watch(HANG_SECONDS);
	sim_snap(&e->e_sim);
	if (e->e_ops->eo_check(e, model, at, post))
		violation(e);
	sim_release(&e->e_sim);
	e->e_sim.s_is_hashing = false;
	sim_rollback(&e->e_sim);
	count(e, kind);
}

/* The time says how much is done beyond the least, which the seed alone decides. */
static bool is_over(const struct eng *e)
{
	if (e->e_conf.ec_is_hunt && e->e_n.en_violations)
		return true;
	return seconds() > e->e_end && (e->e_n.en_distinct >= e->e_conf.ec_least ||
					e->e_n.en_states >= 8 * e->e_conf.ec_least);
}

/* CRASH_TRACE with CRASH_STATE: the events before the crash and what became of them */
static void trace(const struct sim_cut *cu, const struct sim_variants *va, unsigned v)
{
	static const char *const name[] = { "?", "write", "flush", "discard", "create", "remove",
					    "config", "resize" };
	unsigned from = cu->cu_log->lo_first, i, k;

	if (!getenv("CRASH_TRACE"))
		return;
	if (cu->cu_at > from + 40)
		from = cu->cu_at - 40;
	for (i = from; i <= cu->cu_at && i < sim_log_end(cu->cu_log); i++) {
		const struct sim_ev *ev = sim_log_at(cu->cu_log, i);

		printf("# %5u %-7s device %u offset %9" PRIu64 " + %6u%s", i, name[ev->ev_type],
		       ev->ev_dev, ev->ev_off, ev->ev_len, ev->ev_is_fua ? " fua" : "");
		for (k = 0; k <= cu->cu_n; k++) {
			const struct sim_choice *c = &va->va_c[(size_t)v * va->va_units + k];

			if ((k < cu->cu_n ? cu->cu_pend[k].pe_ev : cu->cu_at) == i)
				printf("  pending: part %u, %u", c->ch_part, c->ch_n);
		}
		printf("%s\n", i == cu->cu_at ? "  <- in flight" : "");
	}
}

/*
 * States of a second generation. @cu stands at its first event, memory and
 * pending units as they were then.
 */
static void second_states(struct eng *e, struct sim_cut *cu, void *model, unsigned opened,
			  uint64_t seed)
{
	unsigned end = sim_log_end(cu->cu_log), n = e->e_conf.ec_again_points, k, i;
	unsigned first = cu->cu_at, at[64];
	char base[64];

	strcpy(base, e->e_path);
	if (n > 64)
		n = 64;
	for (k = 0; k < n; k++) {
		unsigned from = first, to = end + 1, t;

		if (k % 2 == 0 && opened > first)
			to = opened;
		else if (k % 2)
			from = opened < end ? opened : first;
		t = from + (unsigned)(sim_rand(&seed) % (to - from));
		for (i = k; i && at[i - 1] > t; i--)
			at[i] = at[i - 1];
		at[i] = t;
	}
	for (k = 0; k < n && !is_over(e); k++) {
		struct sim_variants va;
		unsigned v;

		sim_cut_to(cu, at[k]);
		sim_cut_variants(cu, seed + k, 8, &va);
		/* one of the two extremes or of the others */
		v = (unsigned)(sim_rand(&seed) % va.va_n);
		snprintf(e->e_path, sizeof(e->e_path), "%s/%u.%u", base, k, at[k]);
		if (is_wanted(e->e_path)) {
			sim_snap(&e->e_sim);
			trace(cu, &va, v);
			sim_cut_apply(cu, &va, v);
			judge(e, model, at[k], at[k] < opened ? CUT_RECOVERY : THIRD_GEN,
			      sim_mix(seed, k));
			sim_rollback(&e->e_sim);
		}
		sim_variants_free(&va);
	}
}

/* Recovers, writes more, and crashes again; memory holds the crash on entry. */
static bool second_record(struct eng *e, void *model, unsigned at, struct sim_log *log,
			  uint64_t seed, void **out)
{
	bool ok;

	e->e_has_hash = true;
	e->e_rand = seed;
	e->e_opened = sim_log_end(log);
	e->e_sim.s_log = log;
	eng_watch(HANG_SECONDS);
	ok = !e->e_ops->eo_again(e, model, at, out);
	e->e_sim.s_log = NULL;
	e->e_sim.s_tick = NULL;
	sim_release(&e->e_sim);
	if (!ok)
		violation(e);
	return ok;
}

static void second_power(struct eng *e, void *model, const struct sim_cut *cu,
			 const struct sim_variants *va, unsigned v, uint64_t seed)
{
	struct sim_log log;
	struct sim_cut sub;
	void *next = NULL;

	sim_snap(&e->e_sim);
	sim_cut_apply(cu, va, v);
	sim_log_init(&log, cu->cu_at + 1);
	sim_snap(&e->e_sim);
	if (second_record(e, model, cu->cu_at, &log, seed, &next)) {
		sim_rollback(&e->e_sim);
		sim_cut_init(&sub, &e->e_sim, &log, e->e_conf.ec_plant);
		second_states(e, &sub, next, e->e_opened, seed);
		sim_cut_fini(&sub);
	} else {
		sim_rollback(&e->e_sim);
	}
	if (next)
		e->e_ops->eo_free(next);
	sim_log_fini(&log);
	sim_rollback(&e->e_sim);
}

/* The process died, the devices did not: nothing is lost, nothing was flushed. */
static void second_process(struct eng *e, void *model, const struct sim_cut *cu, uint64_t seed)
{
	bool with_flying = cu->cu_at < sim_log_end(cu->cu_log) && (seed & 1);
	struct sim_log log;
	struct sim_cut sub;
	void *next = NULL;

	sim_log_prefix(&log, cu->cu_log, cu->cu_at + with_flying);
	sim_cut_fork(&sub, cu, &log);
	sim_snap(&e->e_sim);
	sim_cut_to(&sub, cu->cu_at + with_flying);
	sim_snap(&e->e_sim);
	sim_cut_apply_all(&sub, false);
	if (second_record(e, model, cu->cu_at, &log, seed, &next)) {
		sim_rollback(&e->e_sim);
		second_states(e, &sub, next, e->e_opened, seed);
	} else {
		sim_rollback(&e->e_sim);
	}
	if (next)
		e->e_ops->eo_free(next);
	sim_cut_fini(&sub);
	sim_log_fini(&log);
	sim_rollback(&e->e_sim);
}

/* ---- a pass over the log ---- */

static void point(struct eng *e, void *model, struct sim_cut *cu, unsigned pass)
{
	uint64_t seed = sim_mix(sim_mix(e->e_conf.ec_seed, pass), cu->cu_at), s;
	struct sim_variants va;
	unsigned v;

	snprintf(e->e_path, sizeof(e->e_path), "%u.%u.", pass, cu->cu_at);
	if (!is_wanted(e->e_path))
		return;
	e->e_n.en_points++;
	sim_cut_variants(cu, seed, e->e_conf.ec_per_point, &va);
	/* the two extremes do not change from pass to pass */
	for (v = pass && va.va_n > 2 ? 2 : 0; v < va.va_n && !is_over(e); v++) {
		s = sim_mix(seed, v);
		snprintf(e->e_path, sizeof(e->e_path), "%u.%u.%u", pass, cu->cu_at, v);
		if (is_wanted(e->e_path) || is_exactly(e->e_path)) {
			sim_snap(&e->e_sim);
			if (is_exactly(e->e_path))
				trace(cu, &va, v);
			sim_cut_apply(cu, &va, v);
			judge(e, model, cu->cu_at, FIRST_GEN, s);
			sim_rollback(&e->e_sim);
		}
		if (!e->e_conf.ec_again_every || (s >> 32) % e->e_conf.ec_again_every)
			continue;
		snprintf(e->e_path, sizeof(e->e_path), "%u.%u.%u%s", pass, cu->cu_at, v,
			 s >> 20 & 1 ? "c" : "p");
		if (!is_wanted(e->e_path))
			continue;
		if (s >> 20 & 1)
			second_process(e, model, cu, s);
		else
			second_power(e, model, cu, &va, v, s);
	}
	sim_variants_free(&va);
}

static void one_pass(struct eng *e, void *model, unsigned pass)
{
	unsigned end = sim_log_end(&e->e_log), at, n = end + 1 - e->e_log.lo_first, k;
	struct sim_cut cu;

	sim_snap(&e->e_sim);
	sim_cut_init(&cu, &e->e_sim, &e->e_log, e->e_conf.ec_plant);
	for (k = 0; k < n && !is_over(e); k++) {
		at = e->e_log.lo_first + k;
		sim_cut_to(&cu, at);
		point(e, model, &cu, pass);
		/* later passes may stop in the middle; the first sees every crash point */
		if (pass && e->e_n.en_distinct >= e->e_conf.ec_want)
			break;
	}
	sim_cut_fini(&cu);
	sim_rollback(&e->e_sim);
	e->e_n.en_passes++;
}

bool eng_run(struct eng *e, const struct eng_ops *ops, const struct eng_conf *conf)
{
	double start = seconds();
	void *model = NULL;
	unsigned pass;
	int rc;

	sim_wipe(&e->e_sim);
	e->e_ops = ops;
	e->e_conf = *conf;
	if (ops->eo_share > 1 && conf->ec_per_point >= 8)
		e->e_conf.ec_per_point /= ops->eo_share;
	e->e_rand = sim_mix(conf->ec_seed, 77);
	e->e_end = start + conf->ec_seconds;
	memset(&e->e_n, 0, sizeof(e->e_n));
	free(e->e_set);
	e->e_set = NULL;
	e->e_set_n = e->e_set_cap = 0;
	strcpy(e->e_path, "record");
	snprintf(e->e_repeat, sizeof(e->e_repeat), "%sSEED=%" PRIu64,
		 getenv("TEST_LONG") ? "TEST_LONG=1 " : getenv("TEST_SHORT") ? "TEST_SHORT=1 " : "",
		 conf->ec_seed);
	current = e;
	/* a broken product may never end its history */
	eng_watch(conf->ec_is_hunt ? HANG_SECONDS / 2 : 3 * HANG_SECONDS);
	rc = ops->eo_record(e, &model);
	e->e_sim.s_log = NULL;
	e->e_sim.s_tick = NULL;
	sim_release(&e->e_sim);
	while (e->e_sim.s_nlevel)
		sim_rollback(&e->e_sim);
	for (pass = 0; !rc && pass < conf->ec_max_passes && !is_over(e); pass++) {
		if (pass && e->e_n.en_distinct >= e->e_conf.ec_want)
			break;
		one_pass(e, model, pass);
	}
	eng_watch(0);
	if (model)
		ops->eo_free(model);
	sim_log_fini(&e->e_log);
	e->e_n.en_seconds = seconds() - start;
	current = NULL;
	return rc == 0;
}

/* ---- programs ---- */

static volatile sig_atomic_t ticks_left;	/* 0: not watched */

static void on_tick(int sig)
{
	(void)sig;
	if (ticks_left && --ticks_left == 0)
		raise(SIGABRT);
}

/*
 * Ticks of a second count, not the clock: of those that pass while the program is stopped, or
 * has no processor, there is one.
 */
static void watch_init(void)
{
	struct sigaction sa = { .sa_handler = on_tick, .sa_flags = SA_RESTART };
	struct itimerval second = { { 1, 0 }, { 1, 0 } };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &second, NULL);
}

void eng_watch(unsigned seconds)
{
	ticks_left = (sig_atomic_t)seconds;
}

static void say(const char *s)
{
	if (write(1, s, strlen(s)) < 0)
		_exit(3);
}

/* The product died in a state: say which one, then die. */
static void on_signal(int sig)
{
	if (current) {
		fflush(stdout);
		say("\n# VIOLATION: the product crashed or hung; repeat: ");
		say(current->e_repeat);
		say(" CRASH_STATE=");
		say(current->e_path);
		say(" ");
		say(program_invocation_name);
		say(" ");
		say(current->e_ops->eo_name);
		say("\n");
	}
	signal(sig, SIG_DFL);
	raise(sig);
}

void eng_init(struct eng *e)
{
	static const int sigs[] = { SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL };
	unsigned i;

	memset(e, 0, sizeof(*e));
	/* what is opened is tiny: a huge page for each would be cleared in vain */
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	/* each state opens and closes: what it freed is there for the next one, with its pages */
	mallopt(M_MMAP_THRESHOLD, 256 << 20);
	mallopt(M_TRIM_THRESHOLD, 512 << 20);
	sim_init(&e->e_sim);
	for (i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++)
		signal(sigs[i], on_signal);
	watch_init();
}

void eng_fini(struct eng *e)
{
	sim_fini(&e->e_sim);
	free(e->e_set);
}

void eng_conf_default(struct eng_conf *c, uint64_t seed)
{
	memset(c, 0, sizeof(*c));
	c->ec_seed = seed;
	/* of 32 workloads half as many again as the 50,000 that are asked for; few of each point,
	 * so that the first pass, which sees all points, is within the box */
	c->ec_want = 2500;
	c->ec_per_point = 12;
	c->ec_again_every = 16;
	c->ec_again_points = 6;
	c->ec_post_every = 4;
	c->ec_seconds = 24;
	c->ec_max_passes = 40;
	if (getenv("MP_ABLATE") && atoi(getenv("MP_ABLATE"))) {
		/* the product is broken on purpose: one violation is enough */
		c->ec_is_hunt = true;
		c->ec_want = 6000;
		c->ec_per_point = 10;
		c->ec_again_every = 6;
		c->ec_again_points = 12;
		c->ec_seconds = 6;
		c->ec_max_passes = 8;
		if (getenv("CRASH_DEEP")) {
			c->ec_want = 30000;
			c->ec_per_point = 24;
			c->ec_seconds = 60;
			c->ec_max_passes = 10;
		}
	} else if (getenv("TEST_SHORT")) {
		c->ec_want = 300;
		c->ec_per_point = 3;
		c->ec_seconds = 5;
		c->ec_max_passes = 1;
	} else if (getenv("TEST_LONG")) {
		c->ec_want = 67500;
		c->ec_per_point = 1200;
		c->ec_seconds = 600;
		c->ec_max_passes = 1000;
	} else {
		c->ec_least = LEAST;	/* what is asked for below, also on a busy machine */
	}
}

void eng_print(const struct eng *e)
{
	const struct eng_counts *n = &e->e_n;

	printf("# %-14s %6" PRIu64 " states %6" PRIu64 " distinct, two devices %5" PRIu64
	       ", recovery cut %5" PRIu64 " (%" PRIu64 " distinct), third generation %5" PRIu64
	       ", %u points, %u passes, %.1f CPU s, violations %" PRIu64 "\n",
	       e->e_ops->eo_name, n->en_states, n->en_distinct, n->en_two, n->en_cut,
	       n->en_cut_distinct, n->en_third, n->en_points, n->en_passes, n->en_seconds,
	       n->en_violations);
	fflush(stdout);
}

/* The @no-th workload, by its name or as part of the piece. */
static bool is_chosen(int argc, char **argv, const char *name, unsigned no)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2 && t_is_mine(no);
}

static void sum_up(struct eng_counts *sum, const struct eng_counts *n)
{
	sum->en_states += n->en_states;
	sum->en_distinct += n->en_distinct;
	sum->en_two += n->en_two;
	sum->en_two_distinct += n->en_two_distinct;
	sum->en_cut += n->en_cut;
	sum->en_cut_distinct += n->en_cut_distinct;
	sum->en_third += n->en_third;
	sum->en_third_distinct += n->en_third_distinct;
	sum->en_violations += n->en_violations;
	sum->en_seconds += n->en_seconds;
}

static void tap(bool ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void tap(bool ok, const char *fmt, ...)
{
	va_list ap;

	t_count++;
	t_failed += !ok;
	printf("%s %u - ", ok ? "ok" : "not ok", t_count);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

static void workloads(struct eng *e, int argc, char **argv, const struct eng_ops *const *ops,
		      unsigned n, const struct eng_conf *conf, struct eng_counts *sum)
{
	/* TEST_SHORT and repeating one state do not reach the figures */
	bool is_full = !getenv("TEST_SHORT") && !getenv("CRASH_STATE") && !conf->ec_is_hunt;
	unsigned i;

	for (i = 0; i < n; i++) {
		bool ok;

		if (!is_chosen(argc, argv, ops[i]->eo_name, i))
			continue;
		ok = eng_run(e, ops[i], conf);
		if (!ok)
			printf("# %s could not be recorded: %s\n", ops[i]->eo_name, e->e_why);
		eng_print(e);
		sum_up(sum, &e->e_n);
		tap(ok && !e->e_n.en_violations && e->e_n.en_states, "%s_survives_every_crash",
		    ops[i]->eo_name);
		if (is_full)
			tap(e->e_n.en_distinct >= LEAST, "%s_has_2000_distinct_states",
			    ops[i]->eo_name);
		if (conf->ec_is_hunt && t_failed)
			break;
	}
}

/* The oracles' own power: each planted bug must be found by some workload. */
static void plants(struct eng *e, const struct eng_ops *const *ops, unsigned n,
		   const struct eng_conf *conf)
{
	struct eng_conf c = *conf;
	unsigned p, i, first;

	c.ec_per_point = 16;
	c.ec_max_passes = 1;
	c.ec_seconds = 4;
	c.ec_again_every = 0;
	c.ec_post_every = 0;
	c.ec_is_hunt = true;
	for (p = 1; p < PLANTS; p++) {
		bool found = false;

		c.ec_plant = (enum sim_plant)p;
		first = (unsigned)(sim_mix(c.ec_seed, p) % n);
		for (i = 0; i < n && !found; i++) {
			if (eng_run(e, ops[(first + i) % n], &c) && e->e_n.en_violations) {
				found = true;
				printf("# planted \"%s\" found by %s in state %s: %s\n",
				       sim_plant_name[p], e->e_ops->eo_name, e->e_path,
				       e->e_why);
			}
		}
		tap(found, "planted_bug_%u_is_found", p);
	}
}

int eng_main(int argc, char **argv, const struct eng_ops *const *ops, unsigned n)
{
	static struct eng e;
	struct eng_counts sum = { 0 };
	struct eng_conf conf;

	eng_conf_default(&conf, t_seed());
	eng_init(&e);
	e.e_sim.s_has_holes = true;
	workloads(&e, argc, argv, ops, n, &conf, &sum);
	printf("# total %" PRIu64 " states, %" PRIu64 " distinct, %" PRIu64
	       " distinct on two devices, %" PRIu64 " distinct with recovery cut, %" PRIu64
	       " distinct in the third generation, %" PRIu64 " violations, %.0f states/s\n",
	       sum.en_states, sum.en_distinct, sum.en_two_distinct, sum.en_cut_distinct,
	       sum.en_third_distinct, sum.en_violations,
	       sum.en_seconds > 0 ? (double)sum.en_states / sum.en_seconds : 0);
	t_figure("crash enumeration", "%s: %" PRIu64 " states, %" PRIu64 " distinct, %" PRIu64
		 " violations", program_invocation_short_name, sum.en_states, sum.en_distinct,
		 sum.en_violations);
	if (argc < 2 && !getenv("TEST_SHORT") && !getenv("CRASH_STATE") && !getenv("PIECE") &&
	    !conf.ec_is_hunt) {
		tap(sum.en_two_distinct * 5 >= sum.en_distinct, "a_fifth_is_on_two_devices");
		tap(sum.en_cut_distinct * 10 >= sum.en_distinct, "a_tenth_cuts_recovery");
	}
	if (argc < 2 && !getenv("CRASH_STATE") && !conf.ec_is_hunt && !getenv("TEST_SHORT") &&
	    t_is_mine(0))
		plants(&e, ops, n, &conf);
	eng_fini(&e);
	return t_done();
}
