/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Porting interface of libmpool: where member devices come from, and what
 * time it is. The crash simulator, fault injection and other media plug in
 * here; ordinary applications never need it.
 */
#ifndef MPOOL_PROVIDER_H
#define MPOOL_PROVIDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct mpool_vdev_ops - a device implemented by the provider
 * Semantics and durability as in kmod/core/dev.h: completed writes are
 * volatile until flush; fua makes one write durable alone. Offsets and lengths
 * are multiples of 4096, buffers aligned. 0 or -errno, never short. May be
 * called by several threads at once. discard, reserve may be NULL.
 * resize makes a device larger whose pool grows by itself, by zeroes, or as large as it was when
 * the pool did not take it. room says by how much that can be with what is below it (keeps: and
 * leave a tenth of that). NULL: it does not grow, and is not asked.
 * data, which may be NULL, skips what reads as zeroes: the first offset from off on, before end,
 * that may hold anything else, or end.
 * ready_ns, when not NULL, may be set to the CLOCK_MONOTONIC time at which an
 * asynchronous completion is to be delivered (0: at once); a synchronous
 * caller sleeps until then.
 */
struct mpool_vdev_ops {
	int (*readv)(void *dev, uint64_t off, const struct iovec *iov, unsigned n,
		     uint64_t *ready_ns);
	int (*writev)(void *dev, uint64_t off, const struct iovec *iov, unsigned n, int is_fua,
		      uint64_t *ready_ns);
	int (*flush)(void *dev, uint64_t *ready_ns);
	int (*discard)(void *dev, uint64_t off, uint64_t len);
	int (*reserve)(void *dev, uint64_t off, uint64_t len);
	uint64_t (*data)(void *dev, uint64_t off, uint64_t end);
	int (*resize)(void *dev, uint64_t bytes);
	uint64_t (*room)(void *dev, int keeps);
	void (*close)(void *dev);
};

/** struct mpool_vdev - an opened device */
struct mpool_vdev {
	const struct mpool_vdev_ops *ops;
	void *dev;
	uint64_t size;     /* bytes */
	int is_zeroed;     /* never-written space reads as zeroes */
	int fd;            /* descriptor for io_uring, above 2 (mpool_fd_up()), or -1 */
};

/**
 * struct mpool_dev_provider - opens member devices
 * @open: opens or (create) makes the member called @path of @size bytes.
 *        -EBUSY when it is open already (exclusion), -ENOENT when absent.
 * @remove: removes the member after a destroy; may be NULL
 * @config_load: reads the pool's configuration (pool.json text, NUL
 *        terminated) into @buf; -ENOENT when absent
 * @config_store: replaces it atomically and durably; NULL text removes it
 */
struct mpool_dev_provider {
	void *ctx;
	int (*open)(void *ctx, const char *path, int is_create, int is_rdonly, uint64_t size,
		    struct mpool_vdev *out);
	int (*remove)(void *ctx, const char *path);
	int (*config_load)(void *ctx, const char *pool, char *buf, size_t size);
	int (*config_store)(void *ctx, const char *pool, const char *text);
};

#ifdef __cplusplus
}
#endif
#endif
