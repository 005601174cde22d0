/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * pool.json: where a pool's members are. It holds hints only; identity is what
 * the superblocks say.
 */
#ifndef MPL_POOLCFG_H
#define MPL_POOLCFG_H

#include <stdint.h>

#include <mpool/mpool.h>
#include <mpool/provider.h>

#define MPL_CFG_DEVS	(MPOOL_DEVS_MAX * MPOOL_MCLASSES)
#define MPL_CFG_NAME	"pool.json"
#define MPL_CFG_TEMP	MPL_CFG_NAME ".tmp"	/* what becomes it */

struct mpl_cfg_dev {
	char cd_path[4096];	/* absolute, or relative to the pool's directory */
	uint32_t cd_mclass;
	uint64_t cd_size;	/* bytes when it was made or grown, 0 = unknown */
	int cd_is_adding;	/* an add is under way, or was cut short: may be no member */
};

struct mpl_cfg {
	char cf_name[MPOOL_NAME_MAX + 1];
	char cf_uuid[37];
	uint64_t cf_grow_max;	/* of an open that says nothing else; 0: files do not grow */
	unsigned cf_ndevs;
	struct mpl_cfg_dev *cf_dev;
};

/* -ENOENT: there is none. -EUCLEAN: it cannot be understood */
int mpl_cfg_load(const char *pool, const struct mpool_dev_provider *pv, struct mpl_cfg **out);
/* replaces the file atomically and durably */
int mpl_cfg_store(const char *pool, const struct mpool_dev_provider *pv, const struct mpl_cfg *cf);
int mpl_cfg_remove(const char *pool, const struct mpool_dev_provider *pv);
const char *mpl_cfg_class(unsigned mclass);
struct mpl_cfg *mpl_cfg_new(unsigned ndevs);
void mpl_cfg_free(struct mpl_cfg *cf);
/* fsync of a directory; 0 or -errno */
int mpl_dir_sync(const char *path);
/* @path of a member as given to open(); 0 or -ENAMETOOLONG */
int mpl_cfg_path(const char *pool, const struct mpool_dev_provider *pv, const char *path,
		 char *out, unsigned size);

#endif
