/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a backend offers behind the public calls. The public layer checks the
 * arguments, keeps the handles and refuses mpool_close() while any is open; the
 * backend does the rest. Semantics, threads and errors are those of mpool.h.
 */
#ifndef MPL_BACKEND_H
#define MPL_BACKEND_H

#include <pthread.h>
#include <stdint.h>

#include <mpool/mpool.h>

struct mpl_backend_ops;

/* embedded in the backend's own pool, first */
struct mpool {
	const struct mpl_backend_ops *mp_ops;
	uint64_t mp_open;		/* atomic: handles of all kinds */
	int mp_is_rdonly;		/* opened so */
	int mp_is_quiet;		/* MPOOL_OPEN_QUIET */
	pthread_mutex_t mp_lease_lock;
	int mp_is_leased;		/* guarded by mp_lease_lock, as mp_lease */
	uint8_t mp_lease[16];
	char *mp_path;
};

struct mp_obj;
struct mp_mlog;
struct mpl_kobj;

struct mpool_obj {
	struct mpool *ob_pool;
	union {
		struct mp_obj *ob_core;		/* embedded backend */
		struct mpl_kobj *ob_kobj;	/* kernel backend */
	};
	uint64_t ob_refs;		/* atomic */
};

struct mpool_mlog {
	struct mpool *lg_pool;
	union {
		struct mp_mlog *lg_core;	/* embedded backend */
		uint64_t lg_id;			/* kernel backend */
	};
};

struct mpl_backend_ops {
	int (*begin)(struct mpool *mp);	/* NULL: an open writes nothing */
	int (*close)(struct mpool *mp);	/* frees @mp on success */
	void (*info)(struct mpool *mp, struct mpool_info *out);
	int (*is_multihost)(struct mpool *mp);
	int (*dev_info)(struct mpool *mp, unsigned slot, struct mpool_dev_info *out);
	int (*flush)(struct mpool *mp, unsigned mask);

	/* fill the backend's part of @out[i] */
	int (*alloc)(struct mpool *mp, const struct mpool_alloc *req, unsigned n,
		     struct mpool_obj **out);
	int (*obj_open)(struct mpool *mp, uint64_t id, struct mpool_obj *obj);
	void (*obj_close)(struct mpool_obj *obj);
	void (*obj_info)(struct mpool_obj *obj, struct mpool_obj_info *out);
	uint64_t (*obj_id)(const struct mpool_obj *obj);
	/* NULL: not counted */
	void (*bad_read)(struct mpool_obj *obj, uint64_t off, int is_reread);
	int (*objects)(struct mpool *mp, uint64_t after, uint64_t tag,
		       struct mpool_obj_info *out, unsigned max);
	int (*place)(struct mpool_obj *obj, uint64_t off, int *fd, uint64_t *pos, uint64_t *len);
	int (*batch)(struct mpool *mp, const struct mpool_op *op, unsigned n);
	int (*rw)(struct mpool_obj *obj, uint64_t off, const struct iovec *iov, unsigned n,
		  int is_write);
	int (*ioq_open)(struct mpool *mp, unsigned depth, struct mpool_ioq **out);

	int (*mlog_create)(struct mpool *mp, uint32_t mclass, uint64_t capacity, uint64_t tag,
			   uint64_t *id);
	int (*mlog_open)(struct mpool *mp, uint64_t id, struct mpool_mlog *log);
	void (*mlog_close)(struct mpool_mlog *log);
	int (*mlog_append)(struct mpool_mlog *log, const struct iovec *iov, unsigned n,
			   int is_sync);
	int (*mlog_sync)(struct mpool_mlog *log);
	int (*mlog_read)(struct mpool_mlog *log, uint64_t *pos, void *buf, size_t size,
			 size_t *len);
	int (*mlog_erase)(struct mpool_mlog *log);
	int (*mlog_seal)(struct mpool_mlog *log);
	void (*mlog_space)(struct mpool_mlog *log, uint64_t *used, uint64_t *capacity);
	int (*mlog_reserve)(struct mpool_mlog *log, uint64_t must, uint64_t wish, uint64_t *have);

	int (*root_create)(struct mpool *mp, const char *name, uint32_t mclass,
			   uint64_t capacity, uint64_t tag);
	int (*root_get)(struct mpool *mp, const char *name, uint64_t id[2]);
	int (*root_delete)(struct mpool *mp, const char *name);

	int (*lease)(struct mpool *mp, const uint8_t id[16]);
	int (*unlease)(struct mpool *mp, const uint8_t id[16]);
	/* a descriptor whose locks all openers of the pool see; -1 = none */
	int (*hold_fd)(struct mpool *mp);
};

/* asked for, or by the devices: are other hosts kept out by a heartbeat? (fabric.c) */
int mpl_create_is_multihost(const struct mpool_create_opts *o);

/* the embedded backend (backend_user.c) */
int mpl_user_create(const char *path, const struct mpool_create_opts *opts);
int mpl_user_open(const char *path, const struct mpool_open_opts *opts, struct mpool **out);
int mpl_user_destroy(const char *path, const struct mpool_open_opts *opts);
int mpl_user_verify(const char *path, const struct mpool_open_opts *opts, unsigned flags,
		    mpool_problem_fn *fn, void *arg, uint64_t *damage);
int mpl_user_dump(const char *path, const struct mpool_open_opts *opts, mpool_print_fn *fn,
		  void *arg);
int mpl_user_map(const char *path, const struct mpool_open_opts *opts, mpool_extent_fn *fn,
		 void *arg);
/* user_admin.c: as the public calls of the same names, for a pool given by its path */
int mpl_user_set(const char *path, const struct mpool_open_opts *opts,
		 const struct mpool_set_opts *set);
int mpl_user_rename(const char *path, const struct mpool_open_opts *opts, const char *name);
int mpl_user_add(const char *path, const struct mpool_open_opts *opts,
		 const struct mpool_dev_spec *devs, unsigned ndevs, uint32_t flags);
int mpl_user_grow(const char *path, const struct mpool_open_opts *opts, uint64_t size,
		  uint32_t mclass);
int mpl_user_probe(const char *path, struct mpool_probe *out);

/* the kernel backend (backend_kmod.c, kmod_admin.c, kmod_check.c): for a pool given by its name */
int mpl_kmod_create(const char *name, const struct mpool_create_opts *opts);
int mpl_kmod_open(const char *name, const struct mpool_open_opts *opts, struct mpool **out);
int mpl_kmod_destroy(const char *name);
int mpl_kmod_verify(const char *name, unsigned flags, mpool_problem_fn *fn, void *arg,
		    uint64_t *damage);
int mpl_kmod_dump(const char *name, mpool_print_fn *fn, void *arg);
int mpl_kmod_map(const char *name, mpool_extent_fn *fn, void *arg);
int mpl_kmod_set(const char *name, const struct mpool_set_opts *set);
int mpl_kmod_rename(const char *name, const char *to);
int mpl_kmod_add(const char *name, const struct mpool_dev_spec *devs, unsigned ndevs,
		 uint32_t flags);
int mpl_kmod_grow(const char *name, uint64_t size);
int mpl_kmod_activate(const char *const *devs, unsigned ndevs, uint32_t flags,
		      char name[MPOOL_NAME_MAX + 1]);
int mpl_kmod_deactivate(const char *name);
int mpl_kmod_active_next(const char *after, struct mpool_active *out);

/* one public handle more or less */
static inline void mpl_pool_hold(struct mpool *mp)
{
	__atomic_fetch_add(&mp->mp_open, 1, __ATOMIC_RELAXED);
}

static inline void mpl_pool_drop(struct mpool *mp)
{
	__atomic_fetch_sub(&mp->mp_open, 1, __ATOMIC_RELEASE);
}

/* 0, or -EINVAL: alignment of a request, 1 .. 64 buffers; @bytes: of all together */
int mpl_iov_check(uint64_t off, const struct iovec *iov, unsigned n, uint64_t *bytes);
/* 0, or -EINVAL: the operations of a batch */
int mpl_batch_check(struct mpool *mp, const struct mpool_op *op, unsigned n);

#endif
