/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Objects of a pool of the kernel module. A handle is a reference in the
 * kernel's table of this file: alloc and open give one, close gives it back.
 * It is given back at once and not collected, because the space of an aborted or
 * deleted object must be free when the last handle is closed.
 *
 * Admission. The kernel admits writes at the end of an object when it takes
 * them, and tells the refused ones in their completions. The public contract
 * refuses them at submission. So the place of the next write is kept here too;
 * before something is refused the kernel is asked, because another process may
 * have written, sealed or deleted the object. What passes here and is refused
 * there has its error in the completion.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kmod.h"

#define OBJ_DONE	(MPOOL_OBJ_COMMITTED | MPOOL_OBJ_SEALED)

/* ---- the table; km_lock is held ---- */

static struct mpl_kobj **bucket(struct mpl_kmod *km, uint64_t id)
{
	return &km->km_bucket[(id * 0x9e3779b97f4a7c15ull >> 40) & (MPL_KMOD_BUCKETS - 1)];
}

static struct mpl_kobj *table_find(struct mpl_kmod *km, uint64_t id)
{
	struct mpl_kobj *ko = *bucket(km, id);

	while (ko && ko->ko_id != id)
		ko = ko->ko_chain;
	return ko;
}

static void table_add(struct mpl_kmod *km, struct mpl_kobj *ko)
{
	struct mpl_kobj **b = bucket(km, ko->ko_id);

	ko->ko_chain = *b;
	*b = ko;
}

static void table_del(struct mpl_kmod *km, struct mpl_kobj *ko)
{
	struct mpl_kobj **p = bucket(km, ko->ko_id);

	while (*p != ko)
		p = &(*p)->ko_chain;
	*p = ko->ko_chain;
}

/*
 * What the kernel said. An answer may be older than what is known here: states
 * are never left again, and the end of an object never moves back, unless a
 * write that was counted here failed.
 */
static void state_take(struct mpl_kobj *ko, const struct mpool_ioc_obj *ob)
{
	if (ob->ob_flags & OBJ_DONE)
		ko->ko_length = ob->ob_length;
	else if (!(ko->ko_flags & OBJ_DONE) && (ko->ko_is_stale || ob->ob_length > ko->ko_length))
		ko->ko_length = ob->ob_length;
	ko->ko_flags |= ob->ob_flags;
	if (ob->ob_length)
		ko->ko_is_placed = 1;
	ko->ko_is_stale = 0;
}

/* ---- handles ---- */

static struct mpl_kobj *kobj_new(void)
{
	struct mpl_kobj *ko = calloc(1, sizeof(*ko));

	if (ko)
		ko->ko_fd = -1;
	return ko;
}

static int drop_ids(struct mpl_kmod *km, const uint64_t *id, unsigned n)
{
	struct mpool_ioc_drop dr = { .dr_n = n, .dr_ids = (uintptr_t)id };

	return mpl_ioc(km->km_fd, MPOOL_IOC_DROP, &dr);
}

static int alloc_call(struct mpl_kmod *km, const struct mpool_alloc *req, unsigned n,
		      uint64_t *id)
{
	struct mpool_ioc_alloc_one *one = calloc(n, sizeof(*one));
	struct mpool_ioc_alloc al = { .al_n = n };
	unsigned i;
	int rc;

	if (!one)
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		one[i].ao_kind = req[i].kind;
		one[i].ao_mclass = req[i].mclass;
		one[i].ao_flags = req[i].flags;
		one[i].ao_capacity = req[i].capacity;
		one[i].ao_tag = req[i].tag;
	}
	al.al_req = (uintptr_t)one;
	al.al_ids = (uintptr_t)id;
	rc = mpl_ioc(km->km_fd, MPOOL_IOC_ALLOC, &al);
	free(one);
	return rc;
}

int mpl_kobj_alloc(struct mpool *mp, const struct mpool_alloc *req, unsigned n,
		   struct mpool_obj **out)
{
	struct mpl_kmod *km = mpl_kmod(mp);
	uint64_t *id = calloc(n, sizeof(*id));
	struct mpl_kobj *ko;
	unsigned i;
	int rc = id ? mpl_kmod_writable(km) : -ENOMEM;

	for (i = 0; i < n && !rc; i++) {
		out[i]->ob_kobj = kobj_new();
		rc = out[i]->ob_kobj ? 0 : -ENOMEM;
	}
	if (!rc)
		rc = alloc_call(km, req, n, id);
	for (i = 0; i < n && rc; i++)
		free(out[i]->ob_kobj);
	pthread_mutex_lock(&km->km_lock);
	for (i = 0; i < n && !rc; i++) {
		ko = out[i]->ob_kobj;
		ko->ko_id = id[i];
		ko->ko_kind = req[i].kind;
		ko->ko_mclass = req[i].mclass;
		ko->ko_tag = req[i].tag;
		ko->ko_capacity = (req[i].capacity + MPOOL_ALIGN - 1) &
				  ~(uint64_t)(MPOOL_ALIGN - 1);
		ko->ko_refs = 1;
		ko->ko_is_placed = 1;
		table_add(km, ko);
	}
	pthread_mutex_unlock(&km->km_lock);
	free(id);
	return rc;
}

int mpl_kobj_open(struct mpool *mp, uint64_t id, struct mpool_obj *obj)
{
	struct mpl_kmod *km = mpl_kmod(mp);
	struct mpool_ioc_hold ho = { .ho_id = id };
	struct mpl_kobj *ko, *fresh = kobj_new();
	int rc = fresh ? mpl_ioc(km->km_fd, MPOOL_IOC_HOLD, &ho) : -ENOMEM;

	/* an object of ours that does not exist yet, or no longer, can be held but not opened */
	if (!rc && (ho.ho_obj.ob_flags & MPOOL_OBJ_DELETED ||
		    (ho.ho_obj.ob_kind == MPOOL_MBLOCK &&
		     !(ho.ho_obj.ob_flags & MPOOL_OBJ_COMMITTED)))) {
		drop_ids(km, &id, 1);
		rc = -ENOENT;
		os_user_error_set(MP_OBJ_NONE, rc, "object %llu", (unsigned long long)id);
	}
	if (rc) {
		free(fresh);
		return rc;
	}
	pthread_mutex_lock(&km->km_lock);
	ko = table_find(km, id);
	if (!ko) {
		ko = fresh;
		fresh = NULL;
		ko->ko_id = id;
		ko->ko_kind = ho.ho_obj.ob_kind;
		ko->ko_mclass = ho.ho_obj.ob_mclass;
		ko->ko_tag = ho.ho_obj.ob_tag;
		ko->ko_capacity = ho.ho_obj.ob_capacity;
		table_add(km, ko);
	}
	state_take(ko, &ho.ho_obj);
	ko->ko_refs++;
	pthread_mutex_unlock(&km->km_lock);
	free(fresh);
	obj->ob_kobj = ko;
	return 0;
}

void mpl_kobj_close(struct mpool_obj *obj)
{
	struct mpl_kmod *km = mpl_kmod(obj->ob_pool);
	struct mpl_kobj *ko = obj->ob_kobj;
	uint64_t id = ko->ko_id;
	int fd = -1, is_last;

	pthread_mutex_lock(&km->km_lock);
	is_last = !--ko->ko_refs;
	if (is_last) {
		table_del(km, ko);
		fd = mpl_fdcache_take(km, ko);
	}
	pthread_mutex_unlock(&km->km_lock);
	/* the descriptor refers to the object too: first */
	if (fd >= 0)
		close(fd);
	drop_ids(km, &id, 1);
	if (is_last)
		free(ko);
}

/* ---- questions ---- */

static void info_out(const struct mpool_ioc_obj *ob, struct mpool_obj_info *out)
{
	memset(out, 0, sizeof(*out));
	out->id = ob->ob_id;
	out->tag = ob->ob_tag;
	out->capacity = ob->ob_capacity;
	out->length = ob->ob_length;
	out->kind = ob->ob_kind;
	out->mclass = ob->ob_mclass;
	out->flags = ob->ob_flags;
	out->crc = ob->ob_crc;
}

/* asks the kernel about a held object */
static int state_ask(struct mpl_kmod *km, struct mpl_kobj *ko, struct mpool_ioc_obj *ob)
{
	struct mpool_ioc_hold ho = { .ho_id = ko->ko_id };
	int rc = mpl_ioc(km->km_fd, MPOOL_IOC_OBJ_INFO, &ho);

	if (rc)
		return rc;
	*ob = ho.ho_obj;
	pthread_mutex_lock(&km->km_lock);
	state_take(ko, ob);
	pthread_mutex_unlock(&km->km_lock);
	return 0;
}

void mpl_kobj_info(struct mpool_obj *obj, struct mpool_obj_info *out)
{
	struct mpl_kobj *ko = obj->ob_kobj;
	struct mpool_ioc_obj ob = {
		.ob_id = ko->ko_id,
		.ob_tag = ko->ko_tag,
		.ob_capacity = ko->ko_capacity,
		.ob_kind = ko->ko_kind,
		.ob_mclass = ko->ko_mclass,
	};

	/* a held object can always be described; else what cannot change is */
	state_ask(mpl_kmod(obj->ob_pool), ko, &ob);
	info_out(&ob, out);
}

uint64_t mpl_kobj_id(const struct mpool_obj *obj)
{
	return obj->ob_kobj->ko_id;
}

int mpl_kobj_list(struct mpool *mp, uint64_t after, uint64_t tag, struct mpool_obj_info *out,
		  unsigned max)
{
	unsigned room = max < MPOOL_IOC_BATCH_MAX ? max : MPOOL_IOC_BATCH_MAX, got = 0;
	struct mpool_ioc_obj *ob = calloc(room, sizeof(*ob));
	int i, n = 1;

	if (!ob)
		return -ENOMEM;
	while (got < max && n > 0) {
		struct mpool_ioc_objects os = {
			.os_after = after,
			.os_tag = tag,
			.os_max = max - got < room ? max - got : room,
			.os_out = (uintptr_t)ob,
		};

		n = mpl_ioc(mpl_kmod(mp)->km_fd, MPOOL_IOC_OBJECTS, &os);
		for (i = 0; i < n; i++)
			info_out(&ob[i], &out[got++]);
		if (n > 0)
			after = ob[n - 1].ob_id;
	}
	free(ob);
	return n < 0 ? n : (int)got;
}

int mpl_kobj_place(struct mpool_obj *obj, uint64_t off, int *fd, uint64_t *pos, uint64_t *len)
{
	struct mpl_kmod *km = mpl_kmod(obj->ob_pool);
	struct mpl_kobj *ko = obj->ob_kobj;
	int rc;

	if (off >= ko->ko_capacity) {
		os_user_error_set(MP_OBJ_RANGE, -EINVAL, "object %llu: offset %llu",
				  (unsigned long long)ko->ko_id, (unsigned long long)off);
		return -EINVAL;
	}
	rc = mpl_fdcache_pin(km, ko, 0, 1);
	if (rc < 0)
		return rc;
	*fd = rc;
	*pos = off;
	*len = ko->ko_capacity - off;
	pthread_mutex_lock(&km->km_lock);
	if (ko->ko_is_lent)
		ko->ko_pins--;
	ko->ko_is_lent = 1;
	pthread_mutex_unlock(&km->km_lock);
	return 0;
}

/* ---- admission ---- */

static int refuse(const struct mpl_kobj *ko, int is_write, uint64_t off, uint64_t bytes,
		  uint64_t end)
{
	os_user_error_set(MP_OBJ_RANGE, -EINVAL, "object %llu: %s %llu+%llu of %llu",
			  (unsigned long long)ko->ko_id, is_write ? "write" : "read",
			  (unsigned long long)off, (unsigned long long)bytes,
			  (unsigned long long)end);
	return -EINVAL;
}

/* km_lock is held */
static int write_begin(struct mpl_kobj *ko, uint64_t off, uint64_t bytes)
{
	if (off >= ko->ko_capacity || bytes > ko->ko_capacity - off)
		return refuse(ko, 1, off, bytes, ko->ko_capacity);
	if (ko->ko_flags & (OBJ_DONE | MPOOL_OBJ_DELETED) || ko->ko_kind == MPOOL_MLOG) {
		os_user_error_set(MP_OBJ_STATE, -EINVAL, "object %llu is not open for writing",
				  (unsigned long long)ko->ko_id);
		return -EINVAL;
	}
	if (ko->ko_is_placed && off != ko->ko_length) {
		os_user_error_set(MP_OBJ_STATE, -EINVAL,
				  "object %llu: write at %llu, it ends elsewhere",
				  (unsigned long long)ko->ko_id, (unsigned long long)off);
		return -EINVAL;
	}
	ko->ko_is_placed = 1;
	ko->ko_length = off + bytes;
	return 0;
}

/* km_lock is held */
static int read_check(struct mpl_kobj *ko, uint64_t off, uint64_t bytes)
{
	uint64_t end = ko->ko_flags & OBJ_DONE || ko->ko_kind != MPOOL_APPEND ? ko->ko_length :
		       ko->ko_capacity;

	return off < end && bytes <= end - off ? 0 : refuse(ko, 0, off, bytes, end);
}

int mpl_kobj_admit(struct mpl_kmod *km, struct mpl_kobj *ko, int is_write, uint64_t off,
		   uint64_t bytes)
{
	int (*check)(struct mpl_kobj *ko, uint64_t off, uint64_t bytes) =
		is_write ? write_begin : read_check;
	struct mpool_ioc_obj ob;
	int rc = is_write ? mpl_kmod_writable(km) : 0;

	if (rc)
		return rc;
	pthread_mutex_lock(&km->km_lock);
	rc = ko->ko_is_stale ? -EINVAL : check(ko, off, bytes);
	pthread_mutex_unlock(&km->km_lock);
	if (!rc || state_ask(km, ko, &ob))
		return rc;
	pthread_mutex_lock(&km->km_lock);
	rc = check(ko, off, bytes);
	pthread_mutex_unlock(&km->km_lock);
	return rc;
}

/* the cause of the pool's fail-stop, when that is why nothing can be written */
static int fault_told(struct mpl_kmod *km)
{
	struct mpool_ioc_info in = { .in_gen = 0 };

	if (mpl_ioc(km->km_fd, MPOOL_IOC_INFO, &in) || !in.in_fault_id)
		return 0;
	in.in_fault[sizeof(in.in_fault) - 1] = 0;
	os_user_error_set(MP_FAILSTOP, -EROFS, "MP%04u: %.200s", in.in_fault_id, in.in_fault);
	return 1;
}

int mpl_kobj_io_error(struct mpl_kmod *km, struct mpl_kobj *ko, int is_write, uint64_t off,
		      int err)
{
	struct mpool_ioc_obj ob;

	/*
	 * What is known of the object may be old: ask before the next write. A read moved no
	 * end, and the kernel need not have heard of writes that were admitted meanwhile: what
	 * it says now is taken only as far as it is news.
	 */
	if (is_write) {
		pthread_mutex_lock(&km->km_lock);
		ko->ko_is_stale = 1;
		pthread_mutex_unlock(&km->km_lock);
	} else {
		state_ask(km, ko, &ob);
	}
	if (err == -EROFS && fault_told(km))
		return err;
	if (err == -EROFS && is_write && !state_ask(km, ko, &ob) && ob.ob_flags) {
		os_user_error_set(MP_OBJ_STATE, -EINVAL, "object %llu is not open for writing",
				  (unsigned long long)ko->ko_id);
		return -EINVAL;
	}
	return mpl_err_as(is_write ? MPL_DATAWRITE : MPL_DATAREAD, err,
			  "object %llx: %s of pool %s at byte %llu failed: %s",
			  (unsigned long long)ko->ko_id, is_write ? "write" : "read", km->km_name,
			  (unsigned long long)off, strerror(-err));
}

/* ---- batches ---- */

struct mpool_ioc_batch *mpl_kobj_batch_arg(const struct mpool_op *op, unsigned n)
{
	struct mpool_ioc_op *v;
	struct mpool_ioc_batch *ba = calloc(1, sizeof(*ba) + n * sizeof(*v) + MPOOL_IOC_TEXT);
	unsigned i;

	if (!ba)
		return NULL;
	v = (struct mpool_ioc_op *)(ba + 1);
	ba->ba_n = n;
	ba->ba_ops = (uintptr_t)v;
	ba->ba_arg.ma_size = sizeof(*ba);
	ba->ba_arg.ma_text_size = MPOOL_IOC_TEXT;
	ba->ba_arg.ma_text = (uintptr_t)(v + n);
	for (i = 0; i < n; i++) {
		v[i].op_type = op[i].type;
		v[i].op_flags = op[i].flags & MPOOL_OBJ_HAS_CRC ? MPOOL_IOC_OP_CRC : 0;
		v[i].op_id = op[i].obj ? op[i].obj->ob_kobj->ko_id : op[i].id;
		v[i].op_length = op[i].length;
		v[i].op_crc = op[i].crc;
		/* the kernel takes no fields that mean nothing for the operation */
		if (op[i].type == MPOOL_OP_DELETE) {
			v[i].op_flags = 0;
			v[i].op_length = 0;
		}
		if (!v[i].op_flags)
			v[i].op_crc = 0;
	}
	return ba;
}

void mpl_kobj_batch_done(struct mpl_kmod *km, const struct mpool_ioc_batch *ba)
{
	const struct mpool_ioc_op *v = (const struct mpool_ioc_op *)(ba + 1);
	struct mpl_kobj *ko;
	unsigned i;

	pthread_mutex_lock(&km->km_lock);
	for (i = 0; i < ba->ba_n; i++) {
		ko = table_find(km, v[i].op_id);
		if (!ko)
			continue;
		if (v[i].op_type == MPOOL_OP_DELETE) {
			ko->ko_flags |= MPOOL_OBJ_DELETED;
			continue;
		}
		ko->ko_flags |= v[i].op_type == MPOOL_OP_SEAL ? MPOOL_OBJ_SEALED :
				MPOOL_OBJ_COMMITTED;
		ko->ko_length = v[i].op_length;
	}
	pthread_mutex_unlock(&km->km_lock);
}

void mpl_kobj_batch_error(const struct mpool_ioc_batch *ba, int err)
{
	const struct mpool_ioc_op *v = (const struct mpool_ioc_op *)(ba + 1);
	const char *text = (const char *)(v + ba->ba_n);

	/* a plain call had its own place for the text and has told it already */
	if (ba->ba_arg.ma_text == (uintptr_t)text)
		mpl_ioc_detail(&ba->ba_arg, err, text);
}

int mpl_kobj_batch(struct mpool *mp, const struct mpool_op *op, unsigned n)
{
	struct mpl_kmod *km = mpl_kmod(mp);
	struct mpool_ioc_batch *ba;
	int rc = mpl_kmod_writable(km);

	if (rc)
		return rc;
	ba = mpl_kobj_batch_arg(op, n);
	if (!ba)
		return -ENOMEM;
	rc = mpl_ioc(km->km_fd, MPOOL_IOC_BATCH, ba);
	if (!rc)
		mpl_kobj_batch_done(km, ba);
	free(ba);
	return rc;
}
