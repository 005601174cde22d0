/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Golden images: pools that a program of an earlier format wrote. Each must be
 * found whole, show exactly the text beside it, take writes, and be whole
 * afterwards. They are committed once and never made again; a later format
 * gets images of its own (GOLDEN_MAKE=1 writes those that are missing).
 */
#include <errno.h>
#include <sys/stat.h>

#include "harness.h"
#include "image.h"

#define DIR	"tests/golden/"

struct golden {
	const char *name;
	int (*fill)(struct sim *s);
	int (*list)(struct sim *s, FILE *out);
};

static const struct golden goldens[] = {
	{ "pool-1", golden_pool_fill, golden_pool_list },
	{ "kvdb-1", golden_kvdb_fill, golden_kvdb_list },
};
static const struct golden *golden;
static struct sim sim;

static const char *path(const char *suffix)
{
	static char p[2][128];
	static unsigned n;

	n = !n;
	snprintf(p[n], sizeof(p[n]), DIR "%s.%s", golden->name, suffix);
	return p[n];
}

static void make(void)
{
	struct stat st;
	FILE *f;

	if (!stat(path("img"), &st))
		return;
	T_EQ(golden->fill(&sim), 0);
	T_EQ(image_trim(&sim), 0);
	T_EQ(image_save(&sim, path("img")), 0);
	f = fopen(path("txt"), "w");
	T_OK(f);
	T_EQ(golden->list(&sim, f), 0);
	fclose(f);
	sim_wipe(&sim);
}

static void load(void)
{
	T_EQ(image_load(&sim, path("img")), 0);
}

static void problem(void *arg, const struct mpool_problem *p)
{
	(void)arg;
	printf("# %s: %s\n", p->id, p->text);
}

static void is_whole(void)
{
	struct mpool_open_opts oo;
	uint64_t damage = 1;
	struct kvdb_opts o;

	golden_opts(&sim, &oo, &o);
	T_EQ(mpool_verify(GOLDEN_POOL, &oo, MPOOL_VERIFY_DATA, problem, NULL, &damage), 0);
	T_EQ(damage, 0);
	if (golden->list != golden_kvdb_list)
		return;
	T_EQ(kvdb_verify(GOLDEN_POOL, &o, MPOOL_VERIFY_DATA | KVDB_VERIFY_DEEP, problem, NULL,
			 &damage), 0);
	T_EQ(damage, 0);
}

static void image_is_whole(void)
{
	load();
	is_whole();
	sim_wipe(&sim);
}

/* Twice: what the first open replayed and wrote is read by the second. */
static void image_shows_its_text(void)
{
	FILE *f = fopen(path("txt"), "r");
	char *want, *is = NULL;
	size_t len = 0, n;

	T_OK(f);
	want = calloc(1, 1 << 20);
	T_OK(want);
	n = fread(want, 1, (1 << 20) - 1, f);
	fclose(f);
	load();
	for (unsigned i = 0; i < 2; i++) {
		f = open_memstream(&is, &len);
		T_OK(f);
		T_EQ(golden->list(&sim, f), 0);
		fclose(f);
		T_EQ(len, n);
		T_STREQ(is, want);
		free(is);
	}
	is_whole();
	free(want);
	sim_wipe(&sim);
}

static void pool_takes_writes(struct mpool_open_opts *oo)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .capacity = 4096 };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT, .length = 4096 };
	static uint8_t page[4096] __attribute__((aligned(4096)));
	struct iovec iov = { .iov_base = page, .iov_len = sizeof(page) };
	struct mpool_obj *obj;
	struct mpool *mp;

	T_EQ(mpool_open(GOLDEN_POOL, oo, &mp), 0);
	T_EQ(mpool_alloc(mp, &req, 1, &obj), 0);
	T_EQ(mpool_write(obj, 0, &iov, 1), 0);
	op.obj = obj;
	T_EQ(mpool_batch(mp, &op, 1), 0);
	mpool_obj_close(obj);
	T_EQ(mpool_close(mp), 0);
}

static void database_takes_writes(struct kvdb_opts *o)
{
	char val[8];
	struct kvdb_kvs *kvs;
	struct kvdb *db;
	size_t len;

	T_EQ(kvdb_open(GOLDEN_POOL, o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "leaves", &kvs), 0);
	T_EQ(kvdb_put(kvs, "new", 3, "value", 5), 0);
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH | KVDB_WAIT_COMPACT), 0);
	T_EQ(kvdb_compact(db, KVDB_COMPACT_WAIT), 0);
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(GOLDEN_POOL, o, &db), 0);
	T_EQ(kvdb_kvs_open(db, "leaves", &kvs), 0);
	T_EQ(kvdb_get(kvs, "new", 3, val, sizeof(val), &len), 0);
	T_OK(len == 5 && !memcmp(val, "value", 5));
	T_EQ(kvdb_checkpoint_drop(db, "then"), 0);
	T_EQ(kvdb_close(db), 0);
}

static void image_takes_writes(void)
{
	struct mpool_open_opts oo;
	struct kvdb_opts o;

	load();
	golden_opts(&sim, &oo, &o);
	if (golden->list == golden_kvdb_list)
		database_takes_writes(&o);
	else
		pool_takes_writes(&oo);
	is_whole();
	sim_wipe(&sim);
}

static void run(const char *what, void (*fn)(void))
{
	char name[64];

	snprintf(name, sizeof(name), "%s_%s", golden->name, what);
	name[4] = '_';
	t_run(name, fn);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(goldens) / sizeof(goldens[0]); i++) {
		golden = &goldens[i];
		sim_init(&sim);
		if (getenv("GOLDEN_MAKE"))
			run("is_made", make);
		run("is_whole", image_is_whole);
		run("shows_its_text", image_shows_its_text);
		run("takes_writes", image_takes_writes);
		sim_fini(&sim);
	}
	if (!getenv("TEST_SHORT"))
		t_figure("golden images", "%zu opened, read and written to",
			 sizeof(goldens) / sizeof(goldens[0]));
	return t_done();
}
