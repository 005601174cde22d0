/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Inspection of an active pool: by the core in this process, from the member
 * devices, which are only read and not claimed. The module goes on writing
 * meanwhile: the metadata log only grows, so a moment's prefix of it is a whole
 * pool, but a checkpoint, or space that is used anew, can pass below the reader
 * and look like damage. So what looks wrong is looked at again; damage is
 * believed when nothing was written to any member during the look, and when
 * every look was disturbed the answer is "busy".
 *
 * Findings and lines are kept until the look they belong to is believed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "kmod.h"
#include "user.h"

#define LOOKS_MAX	10
#define LOOK_PAUSE_NS	50000000	/* between two */

/* results of one look, in the order in which they came */
struct item {
	struct item *it_next;
	int it_id;			/* finding */
	int it_is_damage;
	struct mpool_extent it_extent;
	char it_text[];
};

struct look {
	const char *lk_name;
	int lk_node;
	struct mpl_set lk_set;
	struct item *lk_first, **lk_tail;
	int lk_is_full;			/* out of memory: the look does not count */
	u64 lk_damage;
};

static struct item *item_add(struct look *lk, const char *text)
{
	size_t n = strlen(text) + 1;
	struct item *it = calloc(1, sizeof(*it) + n);

	if (!it) {
		lk->lk_is_full = 1;
		return NULL;
	}
	memcpy(it->it_text, text, n);
	*lk->lk_tail = it;
	lk->lk_tail = &it->it_next;
	return it;
}

static void items_free(struct look *lk)
{
	struct item *it;

	while ((it = lk->lk_first)) {
		lk->lk_first = it->it_next;
		free(it);
	}
	lk->lk_tail = &lk->lk_first;
	lk->lk_is_full = 0;
	lk->lk_damage = 0;
}

/* ---- members ---- */

/* what the module has written to all members so far */
static int writes_so_far(struct look *lk, uint64_t *sum)
{
	struct mpool_ioc_dev_info di = { .di_slot = 0 };
	int rc;

	*sum = 0;
	while (!(rc = mpl_ioc(lk->lk_node, MPOOL_IOC_DEV_INFO, &di))) {
		*sum += di.di_writes + di.di_discard_bytes;
		di.di_slot++;
	}
	return rc == -ENOENT ? 0 : rc;
}

static int member_add(struct look *lk, struct mpool_ioc_dev_info *di)
{
	struct mpl_low low;
	const char *why = "";
	struct stat st;
	int rc;

	di->di_path[sizeof(di->di_path) - 1] = 0;
	/* the names in /dev may have changed since */
	if (!stat(di->di_path, &st) && (!S_ISBLK(st.st_mode) ||
					st.st_rdev != makedev(di->di_major, di->di_minor)))
		return mpl_err(MPL_MEMBER, "pool %s: member %s (device %u:%u) has no node in /dev",
			       lk->lk_name, di->di_path, di->di_major, di->di_minor);
	rc = mpl_file_open(di->di_path, MPL_FILE_PEEK, 0, &low, &why);
	if (rc)
		return mpl_err_as(MPL_DEVOPEN, rc, "pool %s is active; its member %s must be read "
				  "for this: %s", lk->lk_name, di->di_path,
				  *why ? why : strerror(-rc));
	rc = mpl_set_add(&lk->lk_set, &low, di->di_path, di->di_mclass, NULL);
	if (!rc)
		lk->lk_set.st_core[lk->lk_set.st_n - 1]->d_flags |= MP_DEV_BESIDE;
	return rc;
}

static void look_close(struct look *lk)
{
	items_free(lk);
	mpl_set_close(&lk->lk_set);
	if (lk->lk_node >= 0)
		close(lk->lk_node);
}

static int look_open(const char *name, struct look *lk)
{
	struct mpool_ioc_dev_info di = { .di_slot = 0 };
	int rc;

	memset(lk, 0, sizeof(*lk));
	lk->lk_name = name;
	lk->lk_tail = &lk->lk_first;
	lk->lk_node = mpl_node_open(name, 1);
	if (lk->lk_node < 0)
		return lk->lk_node;
	rc = mpl_set_alloc(&lk->lk_set, MPL_CFG_DEVS);
	while (!rc) {
		rc = mpl_ioc(lk->lk_node, MPOOL_IOC_DEV_INFO, &di);
		if (!rc)
			rc = member_add(lk, &di);
		di.di_slot++;
	}
	if (rc == -ENOENT && lk->lk_set.st_n)
		return 0;
	look_close(lk);
	return rc;
}

/*
 * Looks until the result can be believed. @once returns 0 or an errno and counts
 * damage in lk_damage.
 */
static int look_run(struct look *lk, int (*once)(struct look *lk, unsigned flags), unsigned flags)
{
	uint64_t before, after;
	int i, rc;

	for (i = 0; i < LOOKS_MAX; i++) {
		items_free(lk);
		rc = writes_so_far(lk, &before);
		if (rc)
			return rc;
		rc = once(lk, flags);
		if (lk->lk_is_full)
			return -ENOMEM;
		if (!rc && !lk->lk_damage)
			return 0;
		if (!writes_so_far(lk, &after) && before == after)
			return rc;
		mpl_sleep_until(mpl_now_ns() + LOOK_PAUSE_NS);
	}
	return mpl_err(MPL_MOVING, "pool %s changed during each of %d looks at it", lk->lk_name,
		       LOOKS_MAX);
}

/* ---- verify ---- */

static void verify_note(void *arg, const struct mp_finding *f)
{
	struct item *it = item_add(arg, f->fi_text);

	if (it) {
		it->it_id = f->fi_id;
		it->it_is_damage = f->fi_is_damage;
	}
}

static int verify_once(struct look *lk, unsigned flags)
{
	return mp_verify(lk->lk_set.st_core, lk->lk_set.st_n,
			 flags & MPOOL_VERIFY_DATA ? MP_VERIFY_DATA : 0, verify_note, lk,
			 &lk->lk_damage);
}

int mpl_kmod_verify(const char *name, unsigned flags, mpool_problem_fn *fn, void *arg,
		    uint64_t *damage)
{
	struct look lk;
	struct item *it;
	char id[16];
	int rc = look_open(name, &lk);

	if (rc)
		return rc;
	rc = look_run(&lk, verify_once, flags);
	for (it = lk.lk_first; it && !rc && fn; it = it->it_next) {
		struct mpool_problem p = {
			.id = id,
			.text = it->it_text,
			.is_damage = (uint32_t)it->it_is_damage,
		};

		snprintf(id, sizeof(id), "MP%04d", it->it_id);
		fn(arg, &p);
	}
	if (!rc)
		*damage = lk.lk_damage;
	look_close(&lk);
	return rc;
}

/* ---- dump and map ---- */

static void dump_note(void *arg, const char *line)
{
	item_add(arg, line);
}

static int dump_once(struct look *lk, unsigned flags)
{
	(void)flags;
	return mp_dump(lk->lk_set.st_core, lk->lk_set.st_n, dump_note, lk);
}

int mpl_kmod_dump(const char *name, mpool_print_fn *fn, void *arg)
{
	struct look lk;
	struct item *it;
	int rc = look_open(name, &lk);

	if (rc)
		return rc;
	rc = look_run(&lk, dump_once, 0);
	for (it = lk.lk_first; it && !rc; it = it->it_next)
		fn(arg, it->it_text);
	look_close(&lk);
	return rc;
}

static void map_note(void *arg, const struct mp_map_extent *e)
{
	struct item *it = item_add(arg, e->me_what);

	if (it)
		it->it_extent = (struct mpool_extent){
			.slot = e->me_slot,
			.kind = e->me_kind,
			.off = e->me_off,
			.len = e->me_len,
			.id = e->me_id,
			.what = it->it_text,
		};
}

static int map_once(struct look *lk, unsigned flags)
{
	(void)flags;
	return mp_map(lk->lk_set.st_core, lk->lk_set.st_n, map_note, lk);
}

int mpl_kmod_map(const char *name, mpool_extent_fn *fn, void *arg)
{
	struct look lk;
	struct item *it;
	int rc = look_open(name, &lk);

	if (rc)
		return rc;
	rc = look_run(&lk, map_once, 0);
	for (it = lk.lk_first; it && !rc; it = it->it_next)
		fn(arg, &it->it_extent);
	look_close(&lk);
	return rc;
}
