/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What create would be refused, told without writing: the same is made on a pool
 * in memory whose members have the same sizes. Of these only what is written
 * takes memory.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <mpool/provider.h>

#include "cli.h"

#define PIECE (64u << 10)

struct piece {
	struct piece *next;
	uint64_t off;
	uint8_t p[PIECE];
};

struct disk {
	pthread_mutex_t lock;
	struct piece *first;
	uint64_t size;
	bool is_made;
};

struct trial {
	struct disk disk[MPOOL_MCLASSES];
	char *config;
};

static struct piece *piece_at(struct disk *d, uint64_t off, bool is_write)
{
	struct piece *p = d->first;

	while (p && p->off != off / PIECE * PIECE)
		p = p->next;
	if (p || !is_write)
		return p;
	p = calloc(1, sizeof(*p));
	if (p) {
		p->off = off / PIECE * PIECE;
		p->next = d->first;
		d->first = p;
	}
	return p;
}

static int copy(struct disk *d, uint64_t off, uint8_t *buf, size_t len, bool is_write)
{
	while (len) {
		size_t at = off % PIECE, n = len < PIECE - at ? len : PIECE - at;
		struct piece *p = piece_at(d, off, is_write);

		if (is_write && !p)
			return -ENOMEM;
		if (is_write)
			memcpy(p->p + at, buf, n);
		else if (p)
			memcpy(buf, p->p + at, n);
		else
			memset(buf, 0, n);
		off += n;
		buf += n;
		len -= n;
	}
	return 0;
}

static int transfer(struct disk *d, uint64_t off, const struct iovec *iov, unsigned n,
		    bool is_write)
{
	int rc = 0;

	pthread_mutex_lock(&d->lock);
	for (unsigned i = 0; i < n && !rc; off += iov[i++].iov_len)
		rc = copy(d, off, iov[i].iov_base, iov[i].iov_len, is_write);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int disk_readv(void *dev, uint64_t off, const struct iovec *iov, unsigned n,
		      uint64_t *ready_ns)
{
	if (ready_ns)
		*ready_ns = 0;
	return transfer(dev, off, iov, n, false);
}

static int disk_writev(void *dev, uint64_t off, const struct iovec *iov, unsigned n, int is_fua,
		       uint64_t *ready_ns)
{
	(void)is_fua;
	if (ready_ns)
		*ready_ns = 0;
	return transfer(dev, off, iov, n, true);
}

static int disk_flush(void *dev, uint64_t *ready_ns)
{
	(void)dev;
	if (ready_ns)
		*ready_ns = 0;
	return 0;
}

/* A member is named by the number of its class. */
static int disk_open(void *ctx, const char *path, int is_create, int is_rdonly, uint64_t size,
		     struct mpool_vdev *out)
{
	static const struct mpool_vdev_ops ops = { .readv = disk_readv, .writev = disk_writev,
						   .flush = disk_flush };
	struct trial *t = ctx;
	struct disk *d = &t->disk[*path - '0'];

	(void)is_rdonly;
	if (!d->is_made && !is_create)
		return -ENOENT;
	if (!d->is_made)
		d->size = size;
	d->is_made = true;
	*out = (struct mpool_vdev){ .ops = &ops, .dev = d, .size = d->size, .is_zeroed = 1,
				    .fd = -1 };
	return 0;
}

static int config_load(void *ctx, const char *pool, char *buf, size_t size)
{
	struct trial *t = ctx;

	(void)pool;
	if (!t->config)
		return -ENOENT;
	return (size_t)snprintf(buf, size, "%s", t->config) < size ? 0 : -EFBIG;
}

static int config_store(void *ctx, const char *pool, const char *text)
{
	struct trial *t = ctx;

	(void)pool;
	free(t->config);
	t->config = text ? strdup(text) : NULL;
	return text && !t->config ? -ENOMEM : 0;
}

static void trial_free(struct trial *t)
{
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		while (t->disk[c].first) {
			struct piece *p = t->disk[c].first;

			t->disk[c].first = p->next;
			free(p);
		}
		pthread_mutex_destroy(&t->disk[c].lock);
	}
	free(t->config);
}

int trial_create(struct ui *ui, const char *path, const struct db_opts *o,
		 const uint64_t size[MPOOL_MCLASSES])
{
	struct mpool_create_opts co = MPOOL_CREATE_OPTS_INIT;
	struct mpool_dev_spec spec[MPOOL_MCLASSES];
	struct trial t = { .config = NULL };
	const struct mpool_dev_provider pv = { .ctx = &t, .open = disk_open,
					       .config_load = config_load,
					       .config_store = config_store };
	static const char *const name[MPOOL_MCLASSES] = { "0", "1" };
	struct db_opts own = *o;
	char at[4096];
	int rc;

	for (unsigned c = 0; c < MPOOL_MCLASSES; c++) {
		pthread_mutex_init(&t.disk[c].lock, NULL);
		if (size[c])
			spec[co.ndevs++] = (struct mpool_dev_spec){ .path = name[c], .mclass = c,
								    .size = size[c] };
	}
	co.name = "trial";
	co.devs = spec;
	co.provider = &pv;
	own.kv.pool = &own.pool;
	own.pool.provider = &pv;
	own.pool.io = "sync";
	/* whatever MPOOL_DEV says */
	own.pool.dev = "";
	/* a name would be the module's */
	snprintf(at, sizeof(at), "%s%s", strchr(path, '/') ? "" : "./", path);
	rc = mpool_create(at, &co);
	if (rc) {
		rc = ui_fail(ui, path, rc, mpool_error_detail());
	} else {
		rc = kvdb_create(at, &own.kv);
		rc = rc ? db_fail(ui, path, rc) : EXIT_DONE;
	}
	trial_free(&t);
	return rc;
}
