/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * An image file: one zstd frame of the configuration (SIM_CONF_MAX bytes), the
 * number of devices (8 bytes), and of each its name (128), size (8), contents.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "image.h"

#define LEVEL	19

struct buf {
	uint8_t *p;
	size_t len, at;
};

static void put(struct buf *b, const void *p, size_t n)
{
	memcpy(b->p + b->at, p, n);
	b->at += n;
}

static int get(struct buf *b, void *p, size_t n)
{
	if (b->len - b->at < n)
		return -EINVAL;
	memcpy(p, b->p + b->at, n);
	b->at += n;
	return 0;
}

struct trim {
	struct sim *s;
	uint8_t *keep[SIM_DEVS];
};

static void keep(void *arg, const struct mpool_extent *e)
{
	struct trim *t = arg;

	memcpy(t->keep[e->slot] + e->off, t->s->s_dev[e->slot].d_mem + e->off, e->len);
}

int image_trim(struct sim *s)
{
	struct trim t = { .s = s };
	struct mpool_open_opts oo;
	int rc = 0;

	golden_opts(s, &oo, NULL);
	for (unsigned i = 0; i < s->s_ndev; i++) {
		t.keep[i] = calloc(1, s->s_dev[i].d_size);
		if (!t.keep[i])
			rc = -ENOMEM;
	}
	if (!rc)
		rc = mpool_map(GOLDEN_POOL, &oo, keep, &t);
	for (unsigned i = 0; i < s->s_ndev; i++) {
		if (!rc)
			memcpy(s->s_dev[i].d_mem, t.keep[i], s->s_dev[i].d_size);
		free(t.keep[i]);
	}
	return rc;
}

static int file_write(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "wb");
	int rc;

	if (!f)
		return -errno;
	rc = fwrite(p, 1, n, f) == n ? 0 : -EIO;
	return fclose(f) ? -EIO : rc;
}

int image_save(const struct sim *s, const char *path)
{
	struct buf raw = { .len = SIM_CONF_MAX + 8 }, packed = { 0 };
	uint64_t n = s->s_ndev;
	int rc = -ENOMEM;

	for (unsigned i = 0; i < s->s_ndev; i++)
		raw.len += sizeof(s->s_dev[i].d_path) + 8 + s->s_dev[i].d_size;
	raw.p = malloc(raw.len);
	packed.p = malloc(ZSTD_compressBound(raw.len));
	if (raw.p && packed.p) {
		put(&raw, s->s_conf, SIM_CONF_MAX);
		put(&raw, &n, 8);
		for (unsigned i = 0; i < s->s_ndev; i++) {
			put(&raw, s->s_dev[i].d_path, sizeof(s->s_dev[i].d_path));
			put(&raw, &s->s_dev[i].d_size, 8);
			put(&raw, s->s_dev[i].d_mem, s->s_dev[i].d_size);
		}
		packed.len = ZSTD_compress(packed.p, ZSTD_compressBound(raw.len), raw.p, raw.len,
					   LEVEL);
		rc = ZSTD_isError(packed.len) ? -EIO : file_write(path, packed.p, packed.len);
	}
	free(raw.p);
	free(packed.p);
	return rc;
}

static int file_read(const char *path, struct buf *b)
{
	FILE *f = fopen(path, "rb");
	long n;

	if (!f)
		return -errno;
	n = fseek(f, 0, SEEK_END) ? -1 : ftell(f);
	rewind(f);
	b->p = n > 0 ? malloc((size_t)n) : NULL;
	b->len = b->p ? fread(b->p, 1, (size_t)n, f) : 0;
	fclose(f);
	return b->p && b->len == (size_t)n ? 0 : -EIO;
}

static int dev_load(struct sim *s, struct buf *b)
{
	char path[sizeof(s->s_dev[0].d_path)];
	struct mpool_vdev vd;
	uint64_t size;
	int rc = get(b, path, sizeof(path)) || get(b, &size, 8) ? -EINVAL : 0;

	if (!rc && (path[sizeof(path) - 1] || size > b->len - b->at))
		rc = -EINVAL;
	if (!rc)
		rc = s->s_prov.open(s, path, 1, 0, size, &vd);
	if (rc)
		return rc;
	vd.ops->close(vd.dev);
	memcpy(s->s_dev[s->s_ndev - 1].d_mem, b->p + b->at, size);
	b->at += size;
	return 0;
}

int image_load(struct sim *s, const char *path)
{
	struct buf packed = { 0 }, raw = { 0 };
	uint64_t n = 0;
	int rc = file_read(path, &packed);

	if (!rc) {
		unsigned long long size = ZSTD_getFrameContentSize(packed.p, packed.len);

		raw.len = size < 1u << 30 ? size : 0;
		raw.p = malloc(raw.len);
		if (!raw.p || ZSTD_decompress(raw.p, raw.len, packed.p, packed.len) != raw.len)
			rc = -EINVAL;
	}
	if (!rc)
		rc = get(&raw, s->s_conf, SIM_CONF_MAX) || get(&raw, &n, 8) || n > SIM_DEVS ?
			-EINVAL : 0;
	s->s_has_conf = !rc;
	for (; !rc && n; n--)
		rc = dev_load(s, &raw);
	free(packed.p);
	free(raw.p);
	return rc;
}
