/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Reading and replacing pool.json. The text is taken as hostile: sizes, counts
 * and types are checked, and nothing in it is trusted beyond "look there".
 */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guard.h"
#include "mpl_err.h"
#include "poolcfg.h"

#define CFG_TEXT_MAX	(1u << 20)	/* bytes */

static const char *const class_name[MPOOL_MCLASSES] = { "capacity", "staging" };

const char *mpl_cfg_class(unsigned mclass)
{
	return mclass < MPOOL_MCLASSES ? class_name[mclass] : "?";
}

struct mpl_cfg *mpl_cfg_new(unsigned ndevs)
{
	struct mpl_cfg *cf = calloc(1, sizeof(*cf));

	if (!cf)
		return NULL;
	cf->cf_dev = calloc(ndevs ? ndevs : 1, sizeof(*cf->cf_dev));
	if (!cf->cf_dev) {
		free(cf);
		return NULL;
	}
	cf->cf_ndevs = ndevs;
	return cf;
}

void mpl_cfg_free(struct mpl_cfg *cf)
{
	if (!cf)
		return;
	free(cf->cf_dev);
	free(cf);
}

/* a signal ends it on some file systems (FUSE), and nothing has failed */
static int fd_flush(int fd)
{
	return TEMP_FAILURE_RETRY(fsync(fd)) ? -errno : 0;
}

int mpl_dir_sync(const char *path)
{
	int fd = mpool_fd_up(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)), rc;

	if (fd < 0)
		return -errno;
	rc = BARRIER(fd_flush(fd));
	close(fd);
	return rc;
}

int mpl_cfg_path(const char *pool, const struct mpool_dev_provider *pv, const char *path,
		 char *out, unsigned size)
{
	int n;

	if (pv || path[0] == '/')
		n = snprintf(out, size, "%s", path);
	else
		n = snprintf(out, size, "%s/%s", pool, path);
	return n >= 0 && (unsigned)n < size ? 0 : -ENAMETOOLONG;
}

/* The string @key of @o, or NULL. */
static const char *cfg_string(struct json_object *o, const char *key)
{
	struct json_object *v = NULL;

	json_object_object_get_ex(o, key, &v);
	return json_object_is_type(v, json_type_string) ? json_object_get_string(v) : NULL;
}

static int cfg_dev_parse(struct json_object *o, struct mpl_cfg_dev *cd)
{
	struct json_object *v;
	const char *s = cfg_string(o, "path");

	if (!s || !*s || strlen(s) >= sizeof(cd->cd_path))
		return -EINVAL;
	strcpy(cd->cd_path, s);
	s = cfg_string(o, "class");
	if (!s)
		return -EINVAL;
	for (cd->cd_mclass = 0; cd->cd_mclass < MPOOL_MCLASSES; cd->cd_mclass++)
		if (!strcmp(s, class_name[cd->cd_mclass]))
			break;
	if (cd->cd_mclass == MPOOL_MCLASSES)
		return -EINVAL;
	if (json_object_object_get_ex(o, "size", &v) && json_object_is_type(v, json_type_int))
		cd->cd_size = (uint64_t)json_object_get_int64(v);
	if (json_object_object_get_ex(o, "adding", &v))
		cd->cd_is_adding = json_object_get_boolean(v);
	return 0;
}

/* bytes, or a word: until the file system has no more than a tenth left */
static uint64_t cfg_grow_max(struct json_object *v)
{
	int64_t n = json_object_is_type(v, json_type_int) ? json_object_get_int64(v) : 0;

	if (json_object_is_type(v, json_type_string) && !strcmp(json_object_get_string(v), "auto"))
		return MPOOL_GROW_AUTO;
	return n > 0 ? (uint64_t)n : 0;
}

static void json_seedless(void)
{
	if (syscall(SYS_getrandom, NULL, 0, 0) < 0)
		json_global_set_string_hash(JSON_C_STR_HASH_PERLLIKE);
}

/*
 * Before json-c makes its first table it asks the kernel for a seed, and complains to descriptor 2
 * where a filter of system calls forbids that: which may be any file of the program's. There it
 * takes the other hash of the two that it has, which needs none.
 */
static void json_prepare(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, json_seedless);
}

static int cfg_parse(const char *text, struct mpl_cfg **out)
{
	struct json_object *root, *devs, *v;
	struct mpl_cfg *cf = NULL;
	size_t i, n = 0;
	int rc = -EINVAL;

	json_prepare();
	root = json_tokener_parse(text);
	if (root && json_object_is_type(root, json_type_object) &&
	    json_object_object_get_ex(root, "devices", &devs) &&
	    json_object_is_type(devs, json_type_array)) {
		n = json_object_array_length(devs);
		if (CHECK(n >= 1 && n <= MPL_CFG_DEVS))
			rc = 0;
	}
	if (!rc) {
		cf = mpl_cfg_new((unsigned)n);
		rc = cf ? 0 : -ENOMEM;
	}
	for (i = 0; i < n && !rc; i++)
		rc = cfg_dev_parse(json_object_array_get_idx(devs, i), &cf->cf_dev[i]);
	if (!rc && json_object_object_get_ex(root, "name", &v))
		snprintf(cf->cf_name, sizeof(cf->cf_name), "%s", json_object_get_string(v));
	if (!rc && json_object_object_get_ex(root, "uuid", &v))
		snprintf(cf->cf_uuid, sizeof(cf->cf_uuid), "%s", json_object_get_string(v));
	if (!rc && json_object_object_get_ex(root, "grow_max", &v))
		cf->cf_grow_max = cfg_grow_max(v);
	json_object_put(root);
	if (rc)
		mpl_cfg_free(cf);
	else
		*out = cf;
	return rc;
}

/* the whole file as text */
static int cfg_read(const char *pool, char *buf, size_t size)
{
	char path[4200];
	struct stat st;
	size_t len = 0;
	ssize_t r = 0;
	int fd, rc;

	if (mpl_cfg_path(pool, NULL, MPL_CFG_NAME, path, sizeof(path)))
		return -ENAMETOOLONG;
	fd = mpool_fd_up(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return -EINVAL;
	}
	while (len < size - 1 &&
	       (r = TEMP_FAILURE_RETRY(read(fd, buf + len, size - 1 - len))) > 0)
		len += (size_t)r;
	rc = r < 0 ? -errno : len == size - 1 ? -EFBIG : 0;
	close(fd);
	buf[len] = 0;
	return rc;
}

/* A directory without pool.json: members of the default names. */
static int cfg_default(const char *pool, struct mpl_cfg **out)
{
	static const char *const name[] = { "capacity.mp", "staging.mp" };
	char path[4200];
	struct mpl_cfg *cf = mpl_cfg_new(2);
	struct stat st;
	unsigned i, n = 0;

	if (!cf)
		return -ENOMEM;
	for (i = 0; i < 2; i++) {
		if (mpl_cfg_path(pool, NULL, name[i], path, sizeof(path)) || lstat(path, &st))
			continue;
		strcpy(cf->cf_dev[n].cd_path, name[i]);
		cf->cf_dev[n++].cd_mclass = i;
	}
	cf->cf_ndevs = n;
	if (!n) {
		mpl_cfg_free(cf);
		return -ENOENT;
	}
	*out = cf;
	return 0;
}

int mpl_cfg_load(const char *pool, const struct mpool_dev_provider *pv, struct mpl_cfg **out)
{
	char *text = malloc(CFG_TEXT_MAX);
	int rc;

	if (!text)
		return -ENOMEM;
	rc = pv ? pv->config_load(pv->ctx, pool, text, CFG_TEXT_MAX) :
		  cfg_read(pool, text, CFG_TEXT_MAX);
	if (rc == -ENOENT && !pv)
		rc = cfg_default(pool, out);
	else if (!rc)
		rc = cfg_parse(text, out);
	free(text);
	if (rc == -EINVAL || rc == -EFBIG)
		return mpl_err(MPL_CONFIG, "%s/%s is not a list of member devices", pool,
			       MPL_CFG_NAME);
	if (rc == -ENOTDIR)
		return mpl_err(MPL_NOPOOL, "%s is not a directory, and a pool is given by its "
			       "directory", pool);
	if (rc == -ENOENT)
		return mpl_err(MPL_NOPOOL, "%s: there is no pool here", pool);
	if (rc && rc != -ENOMEM)
		return mpl_err_as(MPL_DIR, rc, "%s/%s cannot be read: %s", pool, MPL_CFG_NAME,
				  strerror(-rc));
	return rc;
}

static struct json_object *cfg_json(const struct mpl_cfg *cf)
{
	struct json_object *root, *devs;
	unsigned i;

	json_prepare();
	root = json_object_new_object();
	devs = json_object_new_array();
	json_object_object_add(root, "version", json_object_new_int(1));
	json_object_object_add(root, "name", json_object_new_string(cf->cf_name));
	json_object_object_add(root, "uuid", json_object_new_string(cf->cf_uuid));
	if (cf->cf_grow_max)
		json_object_object_add(root, "grow_max", cf->cf_grow_max == MPOOL_GROW_AUTO ?
				       json_object_new_string("auto") :
				       json_object_new_int64((int64_t)cf->cf_grow_max));
	for (i = 0; i < cf->cf_ndevs; i++) {
		const struct mpl_cfg_dev *cd = &cf->cf_dev[i];
		struct json_object *o = json_object_new_object();

		json_object_object_add(o, "path", json_object_new_string(cd->cd_path));
		json_object_object_add(o, "class",
				       json_object_new_string(class_name[cd->cd_mclass]));
		json_object_object_add(o, "size", json_object_new_int64((int64_t)cd->cd_size));
		if (cd->cd_is_adding)
			json_object_object_add(o, "adding", json_object_new_boolean(1));
		json_object_array_add(devs, o);
	}
	json_object_object_add(root, "devices", devs);
	return root;
}

/* temporary file, fsync, rename, fsync of the directory */
static int cfg_write(const char *pool, const char *text)
{
	char path[4200], tmp[4210];
	size_t len = strlen(text), off = 0;
	ssize_t r;
	int fd, rc = 0;

	if (mpl_cfg_path(pool, NULL, MPL_CFG_NAME, path, sizeof(path)) ||
	    mpl_cfg_path(pool, NULL, MPL_CFG_TEMP, tmp, sizeof(tmp)))
		return -ENAMETOOLONG;
	if (unlink(tmp) && errno != ENOENT)
		return -errno;
	fd = mpool_fd_up(open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
			      0600));
	if (fd < 0)
		return -errno;
	while (off < len && !rc) {
		r = TEMP_FAILURE_RETRY(write(fd, text + off, len - off));
		if (r < 0)
			rc = -errno;
		else
			off += (size_t)r;
	}
	if (!rc)
		rc = BARRIER(fd_flush(fd));
	if (close(fd) && errno != EINTR && !rc)
		rc = -errno;
	if (!rc && rename(tmp, path))
		rc = -errno;
	if (rc) {
		unlink(tmp);
		return rc;
	}
	return mpl_dir_sync(pool);
}

int mpl_cfg_store(const char *pool, const struct mpool_dev_provider *pv, const struct mpl_cfg *cf)
{
	struct json_object *root = cfg_json(cf);
	const char *text = json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY |
							  JSON_C_TO_STRING_NOSLASHESCAPE);
	int rc;

	if (!text)
		rc = -ENOMEM;
	else
		rc = pv ? pv->config_store(pv->ctx, pool, text) : cfg_write(pool, text);
	json_object_put(root);
	if (rc == -ENOSPC || rc == -EDQUOT)
		return mpl_err(MPL_FULLFS, "the file system below is full: cannot write %s/%s",
			       pool, MPL_CFG_NAME);
	if (rc && rc != -ENOMEM)
		return mpl_err_as(MPL_DIR, rc, "%s/%s cannot be written: %s", pool, MPL_CFG_NAME,
				  strerror(-rc));
	return rc;
}

int mpl_cfg_remove(const char *pool, const struct mpool_dev_provider *pv)
{
	char path[4200];

	if (pv)
		return pv->config_store(pv->ctx, pool, NULL);
	if (mpl_cfg_path(pool, NULL, MPL_CFG_NAME, path, sizeof(path)))
		return -ENAMETOOLONG;
	if (unlink(path))
		return errno == ENOENT ? 0 : -errno;
	return mpl_dir_sync(pool);
}
