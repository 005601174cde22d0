// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The table of commands and their fields, values for them, and what may be wrong with a call.
 */
#include "ioc_gen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "harness.h"

/* ---- the table ---- */

enum kind {
	K_RESERVED = 1, K_OUT, K_COUNT, K_NAME, K_NEW_NAME, K_ROOT, K_LABEL, K_UUID, K_FD, K_ID,
	K_LOG, K_SIZE, K_POS, K_NUM, K_TAG,
	/* addresses of arrays: fi_arg is the size of an element */
	K_DEVS, K_ALLOCS, K_IDS_OUT, K_IDS, K_OBJS_OUT, K_OPS, K_VECS, K_BUF_OUT,
};

#define F(type, member, kind, arg) \
	{ offsetof(struct type, member), sizeof(((struct type *)0)->member), kind, arg }

static const struct ioc_field f_version[] = {
	F(mpool_ioc_version, iv_version, K_OUT, 0), { 0 } };
static const struct ioc_field f_create[] = {
	F(mpool_ioc_create, ic_name, K_NEW_NAME, 0), F(mpool_ioc_create, ic_label, K_LABEL, 0),
	F(mpool_ioc_create, ic_uuid, K_UUID, 0), F(mpool_ioc_create, ic_uid, K_NUM, 3),
	F(mpool_ioc_create, ic_gid, K_NUM, 3), F(mpool_ioc_create, ic_mode, K_NUM, 0777),
	F(mpool_ioc_create, ic_spare_pct[0], K_NUM, 10),
	F(mpool_ioc_create, ic_spare_pct[1], K_NUM, 10), F(mpool_ioc_create, ic_ndevs, K_COUNT, 2),
	F(mpool_ioc_create, ic_devs, K_DEVS, sizeof(struct mpool_ioc_dev)),
	F(mpool_ioc_create, ic_reserved, K_RESERVED, 0), { 0 } };
static const struct ioc_field f_devs[] = {
	F(mpool_ioc_devs, ds_ndevs, K_COUNT, 2), F(mpool_ioc_devs, ds_reserved, K_RESERVED, 0),
	F(mpool_ioc_devs, ds_devs, K_DEVS, sizeof(struct mpool_ioc_dev)), { 0 } };
static const struct ioc_field f_probe[] = {
	F(mpool_ioc_probe, pr_fd, K_FD, 0), F(mpool_ioc_probe, pr_reserved, K_RESERVED, 0), { 0 } };
static const struct ioc_field f_activate[] = {
	F(mpool_ioc_activate, ia_ndevs, K_COUNT, 2),
	F(mpool_ioc_activate, ia_devs, K_DEVS, sizeof(struct mpool_ioc_dev)),
	F(mpool_ioc_activate, ia_name, K_OUT, 0),
	F(mpool_ioc_activate, ia_reserved, K_RESERVED, 0), { 0 } };
static const struct ioc_field f_name[] = {
	F(mpool_ioc_name, na_name, K_NAME, 0), F(mpool_ioc_name, na_reserved, K_RESERVED, 0),
	{ 0 } };
static const struct ioc_field f_list[] = {
	F(mpool_ioc_list, li_after, K_NAME, 0), F(mpool_ioc_list, li_reserved, K_OUT, 0), { 0 } };
static const struct ioc_field f_rename[] = {
	F(mpool_ioc_rename, rn_from, K_NEW_NAME, 0), F(mpool_ioc_rename, rn_to, K_NEW_NAME, 0),
	{ 0 } };
static const struct ioc_field f_add[] = {
	F(mpool_ioc_add, ad_name, K_NEW_NAME, 0), F(mpool_ioc_add, ad_ndevs, K_COUNT, 1),
	F(mpool_ioc_add, ad_reserved, K_RESERVED, 0),
	F(mpool_ioc_add, ad_devs, K_DEVS, sizeof(struct mpool_ioc_dev)), { 0 } };
static const struct ioc_field f_set[] = {
	F(mpool_ioc_set, st_name, K_NAME, 0), F(mpool_ioc_set, st_label, K_LABEL, 0),
	F(mpool_ioc_set, st_uid, K_NUM, 3), F(mpool_ioc_set, st_gid, K_NUM, 3),
	F(mpool_ioc_set, st_mode, K_NUM, 0777), F(mpool_ioc_set, st_spare_pct[0], K_NUM, 10),
	F(mpool_ioc_set, st_reserved, K_RESERVED, 0), { 0 } };
static const struct ioc_field f_info[] = { F(mpool_ioc_info, in_fault, K_OUT, 0), { 0 } };
static const struct ioc_field f_dev_info[] = {
	F(mpool_ioc_dev_info, di_slot, K_NUM, 2), { 0 } };
static const struct ioc_field f_flush[] = {
	F(mpool_ioc_flush, fl_mask, K_NUM, 3), F(mpool_ioc_flush, fl_reserved, K_RESERVED, 0),
	{ 0 } };
static const struct ioc_field f_alloc[] = {
	F(mpool_ioc_alloc, al_n, K_COUNT, 8), F(mpool_ioc_alloc, al_reserved, K_RESERVED, 0),
	F(mpool_ioc_alloc, al_req, K_ALLOCS, sizeof(struct mpool_ioc_alloc_one)),
	F(mpool_ioc_alloc, al_ids, K_IDS_OUT, 8), { 0 } };
static const struct ioc_field f_hold[] = { F(mpool_ioc_hold, ho_id, K_ID, 0), { 0 } };
static const struct ioc_field f_drop[] = {
	F(mpool_ioc_drop, dr_n, K_COUNT, 8), F(mpool_ioc_drop, dr_reserved, K_RESERVED, 0),
	F(mpool_ioc_drop, dr_ids, K_IDS, 8), { 0 } };
static const struct ioc_field f_objects[] = {
	F(mpool_ioc_objects, os_after, K_ID, 0), F(mpool_ioc_objects, os_tag, K_TAG, 0),
	F(mpool_ioc_objects, os_max, K_COUNT, MPOOL_IOC_BATCH_MAX),
	F(mpool_ioc_objects, os_reserved, K_RESERVED, 0),
	F(mpool_ioc_objects, os_out, K_OBJS_OUT, sizeof(struct mpool_ioc_obj)), { 0 } };
static const struct ioc_field f_batch[] = {
	F(mpool_ioc_batch, ba_n, K_COUNT, 8), F(mpool_ioc_batch, ba_reserved, K_RESERVED, 0),
	F(mpool_ioc_batch, ba_ops, K_OPS, sizeof(struct mpool_ioc_op)), { 0 } };
static const struct ioc_field f_open[] = {
	F(mpool_ioc_open, op_id, K_ID, 0), F(mpool_ioc_open, op_reserved, K_RESERVED, 0), { 0 } };
static const struct ioc_field f_mlog[] = { F(mpool_ioc_mlog, ml_id, K_LOG, 0), { 0 } };
static const struct ioc_field f_append[] = {
	F(mpool_ioc_append, ap_id, K_LOG, 0), F(mpool_ioc_append, ap_n, K_COUNT, 8),
	F(mpool_ioc_append, ap_reserved, K_RESERVED, 0),
	F(mpool_ioc_append, ap_vec, K_VECS, sizeof(struct mpool_ioc_vec)), { 0 } };
static const struct ioc_field f_read[] = {
	F(mpool_ioc_read, rd_id, K_LOG, 0), F(mpool_ioc_read, rd_pos, K_POS, 0),
	F(mpool_ioc_read, rd_buf, K_BUF_OUT, 1), F(mpool_ioc_read, rd_size, K_SIZE, 0), { 0 } };
static const struct ioc_field f_root[] = {
	F(mpool_ioc_root, ro_name, K_ROOT, 0), F(mpool_ioc_root, ro_mclass, K_NUM, 1),
	F(mpool_ioc_root, ro_reserved, K_RESERVED, 0), F(mpool_ioc_root, ro_capacity, K_SIZE, 0),
	F(mpool_ioc_root, ro_tag, K_TAG, 0), { 0 } };
static const struct ioc_field f_lease[] = { F(mpool_ioc_lease, le_id, K_UUID, 0), { 0 } };

#define ERRS(name, ...) static const int name[] = { __VA_ARGS__, 0 }
ERRS(e_none, 0);
ERRS(e_devs, ENOTBLK, EEXIST, EBUSY, EOPNOTSUPP, EACCES, ENOENT, ENODEV, EUCLEAN, ESTALE, ENOTUNIQ,
     ENOSPC, EROFS);
ERRS(e_name, ENOENT, EBUSY, EEXIST, EROFS, ENOSPC);
ERRS(e_noent, ENOENT);
ERRS(e_write, EROFS);
ERRS(e_alloc, EROFS, ENOSPC);
ERRS(e_batch, ENOENT, ENOSPC, EROFS, EBUSY, EIO);
ERRS(e_open, ENOENT, EROFS, EMFILE, ENFILE, EACCES);
ERRS(e_mlog, ENOENT, EBUSY, EROFS, ENODATA, EOVERFLOW, EFBIG, ENOSPC);
ERRS(e_read, ENOENT, ENODATA, EOVERFLOW, EUCLEAN);
ERRS(e_root, ENOENT, EEXIST, EBUSY, EROFS, ENOSPC);
ERRS(e_lease, EBUSY, ENOENT);

#define CTL(nr, w, flags, f, e) \
	{ MPOOL_IOC_##nr, #nr, NODE_CTL, false, w, flags, f, e }
#define POOL(nr, is_w, w, flags, f, e) \
	{ MPOOL_IOC_##nr, #nr, NODE_POOL, is_w, w, flags, f, e }

const struct ioc_desc gen_table[] = {
	{ MPOOL_IOC_VERSION, "VERSION", NODE_CTL | NODE_POOL, false, 2, 0, f_version, e_none },
	CTL(CREATE, 3, 3, f_create, e_devs),
	CTL(DESTROY, 2, 0, f_devs, e_devs),
	CTL(PROBE, 4, 0, f_probe, e_devs),
	CTL(ACTIVATE, 4, 3, f_activate, e_devs),
	CTL(DEACTIVATE, 3, 0, f_name, e_name),
	CTL(LIST, 4, 0, f_list, e_noent),
	CTL(RENAME, 2, 0, f_rename, e_name),
	CTL(ADD, 2, MPOOL_IOC_CREATE_PLAN, f_add, e_devs),
	CTL(GROW, 2, 0, f_name, e_name),
	CTL(SET, 3, 0x1f, f_set, e_name),
	POOL(INFO, false, 3, 0, f_info, e_none),
	POOL(DEV_INFO, false, 3, 0, f_dev_info, e_noent),
	POOL(FLUSH, true, 2, 0, f_flush, e_write),
	POOL(ALLOC, true, 10, 0, f_alloc, e_alloc),
	POOL(HOLD, false, 8, 0, f_hold, e_noent),
	POOL(DROP, false, 8, 0, f_drop, e_noent),
	POOL(OBJ_INFO, false, 5, 0, f_hold, e_noent),
	POOL(OBJECTS, false, 4, 0, f_objects, e_none),
	POOL(BATCH, true, 12, 0, f_batch, e_batch),
	POOL(OPEN, false, 10, 7, f_open, e_open),
	POOL(MLOG_OPEN, false, 6, 0, f_mlog, e_mlog),
	POOL(MLOG_CLOSE, false, 4, 0, f_mlog, e_mlog),
	POOL(MLOG_APPEND, true, 10, 1, f_append, e_mlog),
	POOL(MLOG_SYNC, true, 3, 0, f_mlog, e_mlog),
	POOL(MLOG_READ, false, 8, 0, f_read, e_read),
	POOL(MLOG_ERASE, true, 2, 0, f_mlog, e_mlog),
	POOL(MLOG_SEAL, true, 1, 0, f_mlog, e_mlog),
	POOL(MLOG_SPACE, false, 3, 0, f_mlog, e_mlog),
	POOL(ROOT_CREATE, true, 3, 0, f_root, e_root),
	POOL(ROOT_GET, false, 4, 0, f_root, e_root),
	POOL(ROOT_DELETE, true, 2, 0, f_root, e_root),
	POOL(ROOT_NEXT, false, 3, 0, f_root, e_root),
	POOL(LEASE, true, 2, 0, f_lease, e_lease),
	POOL(UNLEASE, true, 2, 0, f_lease, e_lease),
};

const unsigned int gen_ncmds = sizeof(gen_table) / sizeof(gen_table[0]);

bool gen_errno_ok(const struct ioc_desc *de, int err)
{
	static const int any[] = { EINVAL, ENOTTY, EBADF, EFAULT, EPERM, ENOMEM, EINTR, 0 };
	const int *e;

	for (e = any; *e; e++)
		if (*e == err)
			return true;
	for (e = de->de_errno; *e; e++)
		if (*e == err)
			return true;
	return false;
}

/* ---- memory ---- */

int gen_mem_init(struct gen_mem *m, uint8_t *slow)
{
	uint8_t *p;

	memset(m, 0, sizeof(*m));
	p = mmap(NULL, GEN_PLAIN + 8 * GEN_PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	m->gm_plain = p;
	p += GEN_PLAIN + GEN_PAGE;	/* plain page that is not written */
	m->gm_rdonly = p;
	m->gm_none = p + GEN_PAGE;
	m->gm_edge = p + 4 * GEN_PAGE;
	if (mprotect(m->gm_rdonly, GEN_PAGE, PROT_READ) ||
	    mprotect(m->gm_none, GEN_PAGE, PROT_NONE) ||
	    /* not unmapped: another map could take the place */
	    mprotect(m->gm_edge, 2 * GEN_PAGE, PROT_NONE))
		return -errno;
	m->gm_slow = slow;
	return 0;
}

static uint8_t *nowhere(struct gen_mem *m, uint64_t *rng, size_t size)
{
	switch (t_rand(rng) % 8) {
	case 0: return NULL;
	case 1: return m->gm_none;
	case 2: return m->gm_edge;
	case 3: return m->gm_edge - (size > 1 ? size / 2 : 0);	/* the second half is missing */
	case 4: return (uint8_t *)0xffff888000001000ull;
	case 5: return (uint8_t *)~0ull - size / 2;		/* wraps around */
	case 6: return (uint8_t *)0x7ffffffff000ull;
	default: return m->gm_none + GEN_PAGE - 1;
	}
}

/*
 * Room for @size bytes that are there; @is_bad: where it may also be missing,
 * and was then set.
 */
static uint8_t *place(struct gen_mem *m, uint64_t *rng, size_t size, bool *is_bad)
{
	unsigned int r = t_rand(rng) % 100;
	uint8_t *p;

	if (r < 4 && is_bad) {
		*is_bad = true;
		return nowhere(m, rng, size);
	}
	if (r < 16 && size <= GEN_PAGE)
		return m->gm_edge - size;
	if (r < 22 && size <= GEN_SLOW)
		return m->gm_slow + (t_rand(rng) % (GEN_SLOW - size + 1) & ~7ull);
	size = (size + 7) & ~(size_t)7;
	/* wrapping over what the call already uses is welcome */
	if (m->gm_used + size > GEN_PLAIN)
		m->gm_used = 0;
	p = m->gm_plain + m->gm_used;
	m->gm_used += size;
	return p;
}

uint64_t gen_boundary(uint64_t *rng, unsigned int size)
{
	static const uint64_t v[] = {
		0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 1023,
		1024, 1025, 4095, 4096, 4097, 65535, 65536, 1u << 20, (1u << 20) + 1, 0x7fffffff,
		0x80000000, 0xfffff000, 0xffffffff, 0x100000000, 0x7fffffffffffffff,
		0x8000000000000000, 0xfffffffffffff000, ~0ull,
	};
	uint64_t r = t_rand(rng);
	uint64_t x = r % 8 ? v[(r >> 8) % (sizeof(v) / sizeof(v[0]))] : t_rand(rng);

	return size >= 8 ? x : x & ((1ull << (size * 8)) - 1);
}

/* ---- values ---- */

static uint64_t length(uint64_t *rng)
{
	uint64_t r = t_rand(rng);

	return r % 10 ? ((r >> 8) % 16 + 1) * 4096 : gen_boundary(rng, 8);
}

static void fill_dev(uint8_t *p, uint64_t *rng)
{
	struct mpool_ioc_dev d = { .id_fd = world_disk_fd(rng) };

	if (t_rand(rng) % 8 == 0)
		d.id_mclass = 1;
	if (t_rand(rng) % 16 == 0)
		d.id_fd = world_fd(rng, FD_JUNK).fp_fd;
	if (t_rand(rng) % 32 == 0)
		d.id_fd = (int)gen_boundary(rng, 4);
	memcpy(p, &d, sizeof(d));
}

static void fill_alloc(uint8_t *p, uint64_t *rng)
{
	uint64_t r = t_rand(rng);
	struct mpool_ioc_alloc_one a = {
		.ao_kind = 1 + r % 3, .ao_mclass = r >> 8 & 1, .ao_flags = r >> 9 & 1,
		.ao_capacity = length(rng), .ao_tag = r >> 16 & 3,
	};

	if (t_rand(rng) % 32 == 0)
		a.ao_kind = (uint32_t)gen_boundary(rng, 4);
	if (t_rand(rng) % 32 == 0)
		a.ao_mclass = (uint32_t)gen_boundary(rng, 4);
	if (t_rand(rng) % 64 == 0)
		a.ao_reserved = 1;
	memcpy(p, &a, sizeof(a));
}

static void fill_op(uint8_t *p, uint64_t *rng, struct gen_call *gc)
{
	uint64_t r = t_rand(rng);
	struct mpool_ioc_op o = {
		.op_type = 1 + r % 3,
		.op_id = world_id(rng, t_rand(rng) % 8 ? ID_OBJ : ID_LOG, &gc->gc_hint),
		.op_length = r >> 4 & 3 ? 0 : length(rng),
		.op_flags = r >> 8 & 7 ? 0 : MPOOL_IOC_OP_CRC, .op_crc = (uint32_t)(r >> 32),
	};

	if (o.op_type == 3 || !o.op_flags)
		o.op_crc = 0;
	if (t_rand(rng) % 32 == 0)
		o.op_type = (uint32_t)gen_boundary(rng, 4);
	if (t_rand(rng) % 64 == 0)
		o.op_reserved = 1;
	memcpy(p, &o, sizeof(o));
}

/* parts of one record; they may lie anywhere, also over each other */
static void fill_vec(uint8_t *p, uint64_t *rng, struct gen_mem *m, struct gen_call *gc)
{
	uint64_t r = t_rand(rng);
	struct mpool_ioc_vec v = { .ve_len = r % 12 ? (r >> 8) % 3000 : (r >> 8) % (1u << 20) };
	bool is_bad = false;

	if (r >> 40 & 31 ? false : true)
		v.ve_len = gen_boundary(rng, 8);
	v.ve_base = (uintptr_t)place(m, rng, v.ve_len > 4 * GEN_PAGE ? 4 * GEN_PAGE : v.ve_len,
				     &is_bad);
	/* from there to the end of what is mapped: else the length reaches into nothing */
	if (!is_bad && v.ve_len > 4 * GEN_PAGE)
		v.ve_base = (uintptr_t)m->gm_plain;
	if (is_bad && v.ve_len)
		gc->gc_bad |= BAD_ADDR;
	if (v.ve_len > MPOOL_IOC_RECORD_MAX)
		gc->gc_bad |= BAD_FIELD;
	memcpy(p, &v, sizeof(v));
}

static void fill_elem(uint8_t *p, unsigned int kind, uint64_t *rng, struct gen_mem *m,
		      struct gen_call *gc)
{
	uint64_t id;

	switch (kind) {
	case K_DEVS:
		fill_dev(p, rng);
		break;
	case K_ALLOCS:
		fill_alloc(p, rng);
		break;
	case K_OPS:
		fill_op(p, rng, gc);
		break;
	case K_VECS:
		fill_vec(p, rng, m, gc);
		break;
	case K_IDS:
		id = world_id(rng, t_rand(rng) % 4 ? ID_OBJ : ID_LOG, &gc->gc_hint);
		memcpy(p, &id, sizeof(id));
		break;
	default:
		break;
	}
}

/* What all threads write, or make zeroes of, may be right when the module reads it. */
static bool is_shared(const struct gen_mem *m, const uint8_t *p)
{
	return p >= m->gm_slow && p < m->gm_slow + GEN_SLOW;
}

static void fill_array(struct gen_call *gc, const struct ioc_field *f, uint64_t *rng,
		       struct gen_mem *m)
{
	bool is_out = f->fi_kind == K_IDS_OUT || f->fi_kind == K_OBJS_OUT ||
		      f->fi_kind == K_BUF_OUT;
	size_t size = (size_t)gc->gc_n * f->fi_arg;
	bool is_bad = false;
	uint8_t *p, elem[64];
	uint32_t i, before;
	uint64_t addr;

	if (f->fi_kind == K_BUF_OUT)
		size = 2 * GEN_PAGE;
	p = place(m, rng, size, &is_bad);
	if (is_out && !is_bad && size <= GEN_PAGE && t_rand(rng) % 64 == 0) {
		p = m->gm_rdonly;
		is_bad = true;
	}
	addr = (uintptr_t)p;
	memcpy(gc->gc_buf + f->fi_off, &addr, sizeof(addr));
	/* results may turn out to be none: the others are read in any case */
	if (is_bad && (f->fi_kind == K_IDS_OUT || !is_out))
		gc->gc_bad |= BAD_ADDR;
	if (is_bad || is_out)
		return;
	before = gc->gc_bad;
	for (i = 0; i < gc->gc_n; i++) {
		fill_elem(elem, f->fi_kind, rng, m, gc);
		memcpy(p + (size_t)i * f->fi_arg, elem, f->fi_arg);
	}
	if (is_shared(m, p))
		gc->gc_bad = before;
	gc->gc_elem_bad = gc->gc_bad & ~before;
}

static void fill_text(uint8_t *p, size_t size, const char *s)
{
	memset(p, 0, size);
	snprintf((char *)p, size, "%s", s);
}

static void fill_field(struct gen_call *gc, const struct ioc_field *f, uint64_t *rng,
		       struct gen_mem *m)
{
	uint8_t *p = gc->gc_buf + f->fi_off;
	uint64_t v = 0;

	switch (f->fi_kind) {
	case K_NAME:
		fill_text(p, f->fi_size, t_rand(rng) % 8 ? world_name(rng) : "fz0");
		return;
	case K_NEW_NAME:
		fill_text(p, f->fi_size, world_name(rng));
		return;
	case K_ROOT:
		fill_text(p, f->fi_size, world_root(rng));
		return;
	case K_LABEL:
		fill_text(p, f->fi_size, t_rand(rng) & 1 ? "a label" : "");
		return;
	case K_COUNT:
		gc->gc_n = t_rand(rng) % 2 ? 1 : 1 + (uint32_t)(t_rand(rng) %
			   (t_rand(rng) % 16 ? f->fi_arg : MPOOL_IOC_IOV_MAX));
		v = gc->gc_n;
		break;
	case K_FD:
		v = (uint32_t)world_disk_fd(rng);
		break;
	case K_ID:
		v = world_id(rng, t_rand(rng) % 8 ? ID_OBJ : ID_LOG, &gc->gc_hint);
		break;
	case K_LOG:
		v = world_id(rng, gc->gc_desc->de_cmd != MPOOL_IOC_MLOG_OPEN ? ID_OPEN_LOG :
			     t_rand(rng) % 16 ? ID_LOG : ID_OBJ, &gc->gc_hint);
		break;
	case K_SIZE:
		v = t_rand(rng) % 8192 + 1;
		break;
	case K_POS:
		v = t_rand(rng) % 3 ? 0 : t_rand(rng) % 9000;
		break;
	case K_NUM:
		v = t_rand(rng) % (f->fi_arg + 1);
		break;
	case K_TAG:
		v = t_rand(rng) % 4;
		break;
	case K_UUID:
	case K_OUT:
	case K_RESERVED:
		return;
	default:
		fill_array(gc, f, rng, m);
		return;
	}
	memcpy(p, &v, f->fi_size);
}

/* ---- what may be wrong ---- */

static void mutate_field(struct gen_call *gc, const struct ioc_field *f, uint64_t *rng)
{
	uint8_t *p = gc->gc_buf + f->fi_off;
	uint64_t v;

	switch (f->fi_kind) {
	case K_NAME:
	case K_NEW_NAME:
	case K_ROOT:
	case K_LABEL:
		if (t_rand(rng) & 1) {
			memset(p, 'a', f->fi_size);	/* no end */
			/* SET looks at its label only when told to */
			if (f->fi_kind != K_LABEL || gc->gc_desc->de_cmd == MPOOL_IOC_CREATE)
				gc->gc_bad |= BAD_FIELD;
		} else {
			static const char *const odd[] = {
				"", ".", "..", "../mpoolctl", "a/b", "-x", "%s%n", "\n", "\xff\xfe",
				"a123456789012345678901234567890",
			};

			fill_text(p, f->fi_size, odd[t_rand(rng) % (sizeof(odd) / sizeof(odd[0]))]);
		}
		return;
	case K_OUT:
	case K_UUID:
		memset(p, (int)t_rand(rng), f->fi_size);
		return;
	case K_RESERVED:
		v = 1ull << t_rand(rng) % (f->fi_size * 8u);
		gc->gc_bad |= BAD_FIELD;
		break;
	case K_COUNT:
		v = gen_boundary(rng, f->fi_size);
		if (v > MPOOL_IOC_BATCH_MAX || !v)
			gc->gc_bad |= BAD_FIELD;
		else if (v > gc->gc_n)
			gc->gc_n = (uint32_t)v;	/* what lies behind the array is taken, too */
		else if (v < gc->gc_n)
			gc->gc_bad &= ~gc->gc_elem_bad;	/* the bad one may not be looked at */
		break;
	default:
		v = gen_boundary(rng, f->fi_size);
		break;
	}
	memcpy(p, &v, f->fi_size);
}

static void mutate_head(struct gen_call *gc, struct gen_mem *m, uint64_t *rng)
{
	struct mpool_ioc_arg *ma = &gc->gc_head;

	switch (t_rand(rng) % 4) {
	case 0:
		ma->ma_size = (uint32_t)gen_boundary(rng, 4);
		if (ma->ma_size != _IOC_SIZE(gc->gc_desc->de_cmd))
			gc->gc_bad |= BAD_SIZE;
		break;
	case 1:
		ma->ma_flags ^= 1u << t_rand(rng) % 32;
		if (ma->ma_flags & ~gc->gc_desc->de_flags)
			gc->gc_bad |= BAD_FIELD;
		break;
	case 2:
		ma->ma_text = (uintptr_t)nowhere(m, rng, MPOOL_IOC_TEXT);
		break;
	default:
		ma->ma_text_size = (uint32_t)gen_boundary(rng, 4);
		if (ma->ma_text_size > MPOOL_IOC_TEXT)
			gc->gc_bad |= BAD_FIELD;
		break;
	}
}

static void mutate_cmd(struct gen_call *gc, uint64_t *rng)
{
	unsigned int i;

	switch (t_rand(rng) % 3) {
	case 0:	/* the size, as of another version */
		gc->gc_cmd ^= 1ul << (_IOC_SIZESHIFT + t_rand(rng) % _IOC_SIZEBITS);
		break;
	case 1:	/* the direction */
		gc->gc_cmd ^= 1ul << (_IOC_DIRSHIFT + t_rand(rng) % _IOC_DIRBITS);
		break;
	default:	/* the number */
		gc->gc_cmd ^= 1ul << (_IOC_NRSHIFT + t_rand(rng) % _IOC_NRBITS);
		break;
	}
	for (i = 0; i < gen_ncmds; i++)
		if (gen_table[i].de_cmd == gc->gc_cmd)
			return;
	gc->gc_bad |= BAD_CMD;
}

#define MUTATED_HEAD	30
#define MUTATED_CMD	31

/* each part once: a second change could make it right again */
static void mutate(struct gen_call *gc, struct gen_mem *m, uint64_t *rng)
{
	const struct ioc_field *f = gc->gc_desc->de_field;
	unsigned int n = 0, r = t_rand(rng) % 16, part;

	while (f[n].fi_size)
		n++;
	part = r < 10 ? t_rand(rng) % n : r < 14 ? MUTATED_HEAD : MUTATED_CMD;
	if (gc->gc_mutated & 1u << part)
		return;
	gc->gc_mutated |= 1u << part;
	if (r < 10)
		mutate_field(gc, &f[part], rng);
	else if (r < 14)
		mutate_head(gc, m, rng);
	else
		mutate_cmd(gc, rng);
}

static enum fd_kind choose_fd(const struct ioc_desc *de, uint64_t *rng)
{
	unsigned int r = t_rand(rng) % 100;

	if (r < 3)
		return FD_JUNK;
	if (r < 6)
		return FD_OBJ;
	if (r < 9)	/* the other node */
		return de->de_node & NODE_CTL ? FD_POOL : FD_CTL;
	if (de->de_node & NODE_CTL)
		return FD_CTL;
	return r < 17 ? FD_POOL_RO : r < 24 ? FD_CANARY : FD_POOL;
}

static void judge_fd(struct gen_call *gc)
{
	enum fd_kind k = gc->gc_fd.fp_kind;
	bool is_pool = k == FD_POOL || k == FD_POOL_RO || k == FD_CANARY;

	if (!gc->gc_fd.fp_is_stable)
		return;
	if (!((k == FD_CTL && gc->gc_desc->de_node & NODE_CTL) ||
	      (is_pool && gc->gc_desc->de_node & NODE_POOL)))
		gc->gc_bad |= BAD_NODE;
	if (gc->gc_desc->de_is_write && (k == FD_POOL_RO || k == FD_CANARY))
		gc->gc_bad |= BAD_WRITE;
	if (gc->gc_desc->de_cmd == MPOOL_IOC_OPEN && k == FD_CANARY &&
	    (gc->gc_head.ma_flags & MPOOL_IOC_OPEN_WRITE))
		gc->gc_bad |= BAD_WRITE;
}

void gen_call(struct gen_call *gc, struct gen_mem *m, uint64_t *rng)
{
	const struct ioc_desc *de;
	const struct ioc_field *f;
	unsigned int i, total = 0, r;
	struct mpool_ioc_arg *ma;
	bool is_bad = false;

	for (i = 0; i < gen_ncmds; i++)
		total += gen_table[i].de_weight;
	r = t_rand(rng) % total;
	for (de = gen_table; r >= de->de_weight; de++)
		r -= de->de_weight;
	memset(gc, 0, sizeof(*gc));
	gc->gc_desc = de;
	gc->gc_cmd = de->de_cmd;
	gc->gc_n = 1;
	gc->gc_hint = -1;
	m->gm_used = 0;
	ma = &gc->gc_head;
	ma->ma_size = _IOC_SIZE(de->de_cmd);
	ma->ma_flags = de->de_flags & (uint32_t)t_rand(rng);
	if (t_rand(rng) & 1) {
		ma->ma_text_size = MPOOL_IOC_TEXT;
		ma->ma_text = (uintptr_t)place(m, rng, MPOOL_IOC_TEXT, NULL);
	}
	for (f = de->de_field; f->fi_size; f++)
		fill_field(gc, f, rng, m);
	for (i = t_rand(rng) % 5; i < 2; i++)
		mutate(gc, m, rng);
	/* what one file holds, others do not: mostly the right one */
	if (t_rand(rng) % 4 == 0 || !world_fd_find(gc->gc_hint, &gc->gc_fd))
		gc->gc_fd = world_fd(rng, choose_fd(de, rng));
	judge_fd(gc);
	gc->gc_arg = place(m, rng, _IOC_SIZE(de->de_cmd), &is_bad);
	if (is_bad)
		gc->gc_bad |= BAD_ADDR;
	else
		memcpy(gc->gc_arg, gc->gc_buf, _IOC_SIZE(de->de_cmd));
	if (is_shared(m, gc->gc_arg)) {
		gc->gc_bad &= BAD_NODE | BAD_CMD;
		gc->gc_mutated = ~0u;
	}
}
