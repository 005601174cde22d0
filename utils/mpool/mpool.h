/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The verbs of the mpool command and what they share. Every verb works through
 * the public library only.
 */
#ifndef UTILS_MPOOL_H
#define UTILS_MPOOL_H

#include <stdbool.h>

#include <mpool/mpool.h>

#include "poolfind.h"
#include "ui.h"

#define POOL_PATH_MAX 4096

int verb_create(struct ui *ui);
int verb_destroy(struct ui *ui);
int verb_list(struct ui *ui);
int verb_status(struct ui *ui);
int verb_verify(struct ui *ui);
int verb_dump(struct ui *ui);
int verb_map(struct ui *ui);
int verb_scan(struct ui *ui);
int verb_activate(struct ui *ui);
int verb_deactivate(struct ui *ui);
int verb_get(struct ui *ui);
int verb_set(struct ui *ui);
int verb_rename(struct ui *ui);
int verb_add(struct ui *ui);
int verb_grow(struct ui *ui);
int verb_objects(struct ui *ui);
int verb_df(struct ui *ui);
int verb_scrub(struct ui *ui);
int verb_wipe(struct ui *ui);
int verb_history(struct ui *ui);
int verb_iostat(struct ui *ui);
int verb_doctor(struct ui *ui);
int verb_bench(struct ui *ui);

extern const struct opt create_opts[], destroy_opts[], list_opts[], status_opts[], verify_opts[],
	map_opts[], scan_opts[], activate_opts[], deactivate_opts[], get_opts[], set_opts[],
	add_opts[], grow_opts[], objects_opts[], df_opts[], scrub_opts[], wipe_opts[],
	history_opts[], iostat_opts[], doctor_opts[], bench_opts[];

/* Open for reading, without a message. The caller closes. */
int pool_open_rdonly(const char *path, struct mpool **mp);

/* Fail-stopped, as opposed to merely opened for reading. */
static inline bool pool_has_fault(const struct mpool_info *info)
{
	return info->is_rdonly && info->fault[0];
}

/* Whether io_uring may be used here. */
bool has_io_uring(void);

const char *mclass_name(unsigned mclass);
const char *kind_name(unsigned kind);

/* One word for the health of a pool that could not be opened, from -errno. */
const char *health_of_error(int err);

/*
 * What stock libblkid sees on @path: "ext4 file system \"home\"", "gpt partition
 * table", ... Returns true when there is something. Reads only. A file that does
 * not exist, or cannot be read, has no signature here; the library checks again.
 */
bool signature_find(const char *path, char *buf, size_t size);

#endif
