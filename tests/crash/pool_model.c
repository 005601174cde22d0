/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Random operations on a pool, each with its effects and their times written
 * into the model. See pool_model.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool_model.h"

#define OBJ_ALIVE_MAX	28u	/* a check reads all of them */

const char *pm_pool = "./sim";

void pm_fill(void *buf, size_t len, uint64_t pat, uint64_t off)
{
	uint8_t *p = buf;
	size_t n;

	for (; len; len -= n, p += n, off += n) {
		n = len < SIM_PAGE ? len : SIM_PAGE;
		sim_garbage(p, n, sim_mix(pat, off));
	}
}

void pm_open_opts(struct eng *e, struct mpool_open_opts *o)
{
	*o = (struct mpool_open_opts)MPOOL_OPEN_OPTS_INIT;
	o->io = "sync";
	o->provider = e->e_sim.s_prov.open ? &e->e_sim.s_prov : NULL;
}

static unsigned rnd(struct pm *m, unsigned n)
{
	return (unsigned)(sim_rand(&m->m_rand) % n);
}

/* A call that is durable when it returns: brackets its effects. */
static struct pm_time call_begin(struct eng *e)
{
	return (struct pm_time){ sim_now(&e->e_sim), PM_NEVER };
}

static void call_end(struct eng *e, struct pm *m, struct pm_time *t)
{
	t->e = sim_now(&e->e_sim);
	if (m->m_certain == PM_NEVER)
		m->m_certain = t->e;
}

static int broken(struct eng *e, const char *what, int rc)
{
	return eng_fail(e, "%s: %d (%s)", what, rc, mpool_error_detail()->text);
}

/* When a device said so no class is full, and what was refused may be there. */
static bool is_full(const struct eng *e, int rc)
{
	const struct sim_fault *f = &e->e_sim.s_fault;

	return rc == -ENOSPC && !(f->f_kind == FAULT_NOSPC && f->f_fired);
}

/* ---- objects ---- */

static int obj_write(struct eng *e, struct pm_obj *o, struct mpool_obj *h, uint64_t off, size_t len)
{
	struct iovec iov = { .iov_len = len };
	int rc;

	if (posix_memalign(&iov.iov_base, SIM_PAGE, len))
		return eng_fail(e, "no memory");
	pm_fill(iov.iov_base, len, o->o_pat, off);
	rc = mpool_write(h, off, &iov, 1);
	free(iov.iov_base);
	return rc ? broken(e, "mpool_write", rc) : 0;
}

static uint32_t obj_crc(const struct pm_obj *o, uint64_t len)
{
	uint8_t page[SIM_PAGE];
	uint32_t crc = 0;
	uint64_t off;

	for (off = 0; off < len; off += SIM_PAGE) {
		pm_fill(page, sizeof(page), o->o_pat, off);
		crc = mpool_crc32c(crc, page, sizeof(page));
	}
	return crc;
}

static unsigned objs_alive(const struct pm *m)
{
	unsigned i, n = 0;

	for (i = 0; i < m->m_nobj; i++)
		n += !m->m_obj[i].o_is_dead;
	return n;
}

/* Allocates @n objects; returns how many (0 when the class is full), or -1. */
static int objs_alloc(struct eng *e, struct pm *m, struct pm_rt *rt, const struct pm_conf *c,
		      uint32_t kind, unsigned n, unsigned *first)
{
	struct mpool_alloc req[8] = { { 0 } };
	struct pm_time t = call_begin(e);
	unsigned i;
	int rc;

	if (m->m_nobj + n > PM_OBJS || n > 8)
		return 0;
	*first = m->m_nobj;
	for (i = 0; i < n; i++) {
		req[i].kind = kind;
		req[i].mclass = c->pc_devs > 1 || c->pc_is_mixed ? rnd(m, 2) : MPOOL_CAPACITY;
		req[i].capacity = SIM_PAGE * (1 + rnd(m, c->pc_obj_bytes / SIM_PAGE));
		req[i].tag = sim_rand(&m->m_rand) >> 1;
	}
	rc = mpool_alloc(rt->rt_mp, req, n, &rt->rt_obj[m->m_nobj]);
	if (is_full(e, rc))
		return 0;
	if (kind == MPOOL_APPEND && !rc)
		call_end(e, m, &t);
	for (i = 0; i < n; i++) {
		struct mpool_obj *h = rc ? NULL : rt->rt_obj[m->m_nobj];
		struct pm_obj *o = &m->m_obj[m->m_nobj++];

		memset(o, 0, sizeof(*o));
		o->o_id = h ? mpool_obj_id(h) : 0;
		if (h && o->o_id <= m->m_max_id)
			return eng_wrong(e, "id %" PRIx64 " used again", o->o_id);
		m->m_max_id = h ? o->o_id : m->m_max_id;
		o->o_given = h ? sim_now(&e->e_sim) : PM_NEVER;
		o->o_is_dead = !h;
		o->o_tag = req[i].tag;
		o->o_kind = kind;
		o->o_mclass = req[i].mclass;
		o->o_capacity = req[i].capacity;
		o->o_pat = sim_rand(&m->m_rand);
		o->o_exists = kind == MPOOL_APPEND ? t : pm_never;
		o->o_sealed = o->o_deleted = pm_never;
	}
	if (rc)
		return broken(e, "mpool_alloc", rc);
	for (i = *first; kind == MPOOL_APPEND && i < m->m_nobj; i++)
		if (pm_foreign(e, rt->rt_obj[i], m->m_obj[i].o_id, m->m_obj[i].o_capacity))
			return -1;
	return (int)n;
}

static void op_fill(struct pm *m, struct pm_rt *rt, struct mpool_op *op, unsigned i, uint32_t type)
{
	struct pm_obj *o = &m->m_obj[i];

	memset(op, 0, sizeof(*op));
	op->type = type;
	op->obj = rt->rt_obj[i];
	if (type == MPOOL_OP_DELETE) {
		if (!op->obj)
			op->id = o->o_id;
		return;
	}
	op->length = o->o_length = o->o_written;
	o->o_has_crc = rnd(m, 2);
	if (o->o_has_crc) {
		op->flags = MPOOL_OBJ_HAS_CRC;
		op->crc = obj_crc(o, o->o_length);
	}
}

/* One atomic batch: operation k on object which[k]. */
static int batch(struct eng *e, struct pm *m, struct pm_rt *rt, struct mpool_op *op,
		 const unsigned *which, unsigned n)
{
	struct pm_time t = call_begin(e);
	unsigned k;
	int rc;

	if (!n)
		return 0;
	rc = mpool_batch(rt->rt_mp, op, n);
	if (!rc)
		call_end(e, m, &t);
	for (k = 0; k < n; k++) {
		struct pm_obj *o = &m->m_obj[which[k]];

		if (op[k].type == MPOOL_OP_COMMIT) {
			o->o_exists = t;
		} else if (op[k].type == MPOOL_OP_SEAL) {
			o->o_sealed = t;
		} else {
			o->o_deleted = t;
			o->o_is_dead = true;
		}
		if (op[k].type == MPOOL_OP_DELETE || rnd(m, 2)) {
			mpool_obj_close(rt->rt_obj[which[k]]);
			rt->rt_obj[which[k]] = NULL;
		}
	}
	return rc ? broken(e, "mpool_batch", rc) : 0;
}

static int pick(struct pm *m, bool (*fits)(const struct pm_obj *o))
{
	unsigned start, i;

	if (!m->m_nobj)
		return -1;
	start = rnd(m, m->m_nobj);
	for (i = 0; i < m->m_nobj; i++)
		if (!m->m_obj[(start + i) % m->m_nobj].o_is_dead &&
		    fits(&m->m_obj[(start + i) % m->m_nobj]))
			return (int)((start + i) % m->m_nobj);
	return -1;
}

static bool is_durable(const struct pm_obj *o)
{
	return o->o_exists.e != PM_NEVER;
}

static bool is_growing(const struct pm_obj *o)
{
	return o->o_kind == MPOOL_APPEND && o->o_sealed.b == PM_NEVER;
}

static bool has_room(const struct pm_obj *o)
{
	return is_growing(o) && o->o_written < o->o_capacity && !o->o_is_reopened;
}

static int write_all(struct eng *e, struct pm *m, struct pm_rt *rt, unsigned i)
{
	struct pm_obj *o = &m->m_obj[i];
	size_t len = SIM_PAGE * (1 + rnd(m, (unsigned)(o->o_capacity / SIM_PAGE)));

	o->o_written = len;
	return obj_write(e, o, rt->rt_obj[i], 0, len);
}

static int do_delete(struct eng *e, struct pm *m, struct pm_rt *rt, unsigned n)
{
	unsigned which[16], k;
	struct mpool_op op[16];

	for (k = 0; k < n && k < 16; k++) {
		int i = pick(m, is_durable);

		if (i < 0)
			break;
		op_fill(m, rt, &op[k], (unsigned)i, MPOOL_OP_DELETE);
		m->m_obj[i].o_is_dead = true;
		which[k] = (unsigned)i;
	}
	return batch(e, m, rt, op, which, k);
}

/* alloc, write, commit @n objects; with @extra also seal and delete others */
static int do_commit(struct eng *e, struct pm *m, struct pm_rt *rt, const struct pm_conf *c,
		     unsigned n, bool extra)
{
	unsigned which[16], first, k, used = 0;
	struct mpool_op op[16];
	int got, i;

	got = objs_alloc(e, m, rt, c, MPOOL_MBLOCK, n, &first);
	if (got < 0)
		return -1;
	for (k = 0; k < (unsigned)got; k++) {
		if (write_all(e, m, rt, first + k))
			return -1;
		op_fill(m, rt, &op[used], first + k, MPOOL_OP_COMMIT);
		which[used++] = first + k;
	}
	i = extra ? pick(m, is_growing) : -1;
	if (i >= 0 && rt->rt_obj[i] && m->m_obj[i].o_written) {
		op_fill(m, rt, &op[used], (unsigned)i, MPOOL_OP_SEAL);
		which[used++] = (unsigned)i;
	}
	for (k = 0; extra && k < 3; k++) {
		i = pick(m, is_durable);
		if (i < 0 || is_growing(&m->m_obj[i]) ||
		    (used && which[used - 1] == (unsigned)i))
			break;
		op_fill(m, rt, &op[used], (unsigned)i, MPOOL_OP_DELETE);
		m->m_obj[i].o_is_dead = true;
		which[used++] = (unsigned)i;
	}
	return batch(e, m, rt, op, which, used);
}

static int do_abort(struct eng *e, struct pm *m, struct pm_rt *rt, const struct pm_conf *c)
{
	unsigned first, k;
	int got = objs_alloc(e, m, rt, c, MPOOL_MBLOCK, 1 + rnd(m, 3), &first);

	for (k = 0; (int)k < got; k++) {
		if (write_all(e, m, rt, first + k))
			return -1;
		mpool_obj_close(rt->rt_obj[first + k]);
		rt->rt_obj[first + k] = NULL;
		m->m_obj[first + k].o_is_dead = true;
	}
	return got < 0 ? -1 : 0;
}

static int do_grow(struct eng *e, struct pm *m, struct pm_rt *rt)
{
	int i = pick(m, has_room);
	struct pm_obj *o;
	unsigned pages;
	size_t len;

	if (i < 0 || !rt->rt_obj[i])
		return 0;
	o = &m->m_obj[i];
	pages = (unsigned)((o->o_capacity - o->o_written) / SIM_PAGE);
	len = SIM_PAGE * (1 + rnd(m, pages < 6 ? pages : 6));
	if (obj_write(e, o, rt->rt_obj[i], o->o_written, len))
		return -1;
	o->o_written += len;
	return 0;
}

static int do_flush(struct eng *e, struct pm *m, struct pm_rt *rt)
{
	unsigned i, now;
	int rc = mpool_flush(rt->rt_mp, 3);

	if (rc)
		return broken(e, "mpool_flush", rc);
	now = sim_now(&e->e_sim);
	for (i = 0; i < m->m_nobj; i++) {
		struct pm_obj *o = &m->m_obj[i];

		if (o->o_is_dead || !is_growing(o) || o->o_nflush == PM_FLUSHES || !o->o_written)
			continue;
		o->o_flush[o->o_nflush].at = now;
		o->o_flush[o->o_nflush++].len = o->o_written;
	}
	return 0;
}

static int do_seal(struct eng *e, struct pm *m, struct pm_rt *rt)
{
	int i = pick(m, is_growing);
	unsigned which[1];
	struct mpool_op op[1];

	if (i < 0 || !rt->rt_obj[i])
		return 0;
	op_fill(m, rt, op, (unsigned)i, MPOOL_OP_SEAL);
	which[0] = (unsigned)i;
	return batch(e, m, rt, op, which, 1);
}

static int do_fill(struct eng *e, struct pm *m, struct pm_rt *rt, const struct pm_conf *c)
{
	unsigned before = m->m_nobj, k;

	for (k = 0; k < 40 && m->m_nobj + 8 < PM_OBJS; k++) {
		before = m->m_nobj;
		if (do_commit(e, m, rt, c, 4, false))
			return -1;
		if (m->m_nobj == before)
			break;
	}
	while (objs_alive(m) > 6) {
		unsigned alive = objs_alive(m);

		if (do_delete(e, m, rt, 8))
			return -1;
		if (objs_alive(m) == alive)
			break;
	}
	return 0;
}

/* ---- streams ---- */

static int stream_pick(struct pm *m, bool is_mdc, bool (*fits)(const struct pm_stream *))
{
	unsigned start, i;

	if (!m->m_nstream)
		return -1;
	start = rnd(m, m->m_nstream);
	for (i = 0; i < m->m_nstream; i++) {
		struct pm_stream *st = &m->m_stream[(start + i) % m->m_nstream];

		if (!st->st_is_dead && st->st_is_mdc == is_mdc && (!fits || fits(st)))
			return (int)((start + i) % m->m_nstream);
	}
	return -1;
}

static bool is_unsealed(const struct pm_stream *st)
{
	return st->st_sealed.b == PM_NEVER;
}

/* the stream's current version */
static unsigned ver_of(const struct pm *m, unsigned st)
{
	unsigned i = m->m_nver;

	while (i && m->m_ver[i - 1].v_stream != st)
		i--;
	return i - 1;
}

static void ver_add(struct pm *m, unsigned st, struct pm_time t, unsigned need)
{
	m->m_ver[m->m_nver].v_stream = (uint16_t)st;
	m->m_ver[m->m_nver].v_switch = t;
	m->m_ver[m->m_nver++].v_need = (uint16_t)need;
}

static int do_stream_create(struct eng *e, struct pm *m, struct pm_rt *rt,
			    const struct pm_conf *c, bool is_mdc)
{
	struct pm_stream *st = &m->m_stream[m->m_nstream];
	uint32_t cls = c->pc_devs > 1 || c->pc_is_mixed ? rnd(m, 2) : MPOOL_CAPACITY;
	uint64_t cap = SIM_PAGE * (8 + rnd(m, 40));
	struct pm_time t;
	int rc;

	if (m->m_nstream == PM_STREAMS || m->m_nver == PM_VERS)
		return 0;
	memset(st, 0, sizeof(*st));
	st->st_is_mdc = is_mdc;
	snprintf(st->st_name, sizeof(st->st_name), "mdc%u", m->m_nstream);
	t = call_begin(e);
	if (is_mdc)
		rc = mpool_mdc_create(rt->rt_mp, st->st_name, cls, cap,
				      PM_TAG_MDC + m->m_nstream);
	else
		rc = mpool_mlog_create(rt->rt_mp, cls, cap, m->m_nstream, &st->st_id);
	if (is_full(e, rc))
		return 0;
	if (!rc)
		call_end(e, m, &t);
	st->st_exists = t;
	st->st_deleted = st->st_sealed = pm_never;
	ver_add(m, m->m_nstream, t, 0);
	if (rc) {
		st->st_id = 0;
		st->st_is_dead = true;
		m->m_nstream++;
		return broken(e, "mlog or mdc create", rc);
	}
	if (!is_mdc && st->st_id <= m->m_max_id)
		return eng_wrong(e, "id %" PRIx64 " used again", st->st_id);
	if (!is_mdc)
		m->m_max_id = st->st_id;
	rc = is_mdc ? mpool_mdc_open(rt->rt_mp, st->st_name, &rt->rt_mdc[m->m_nstream]) :
		      mpool_mlog_open(rt->rt_mp, st->st_id, &rt->rt_log[m->m_nstream]);
	m->m_nstream++;
	return rc ? broken(e, "mlog or mdc open", rc) : 0;
}

/* Appends to version @ver; 1 = it is full. */
static int rec_append(struct eng *e, struct pm *m, struct pm_rt *rt, unsigned st, unsigned ver,
		      uint32_t max, unsigned flags)
{
	static uint8_t buf[PM_REC_MAX];
	struct pm_rec *r = &m->m_rec[m->m_nrec];
	struct iovec iov = { .iov_base = buf };
	unsigned b = sim_now(&e->e_sim), i;
	int rc;

	if (m->m_nrec == PM_RECS)
		return 1;
	r->r_len = 1 + rnd(m, max);
	r->r_pat = sim_rand(&m->m_rand);
	r->r_stream = (uint16_t)st;
	r->r_ver = (uint16_t)ver;
	r->r_b = b;
	r->r_durable = PM_NEVER;
	pm_fill(buf, r->r_len, r->r_pat, 0);
	iov.iov_len = r->r_len;
	rc = rt->rt_mdc[st] ? mpool_mdc_append(rt->rt_mdc[st], &iov, 1, flags) :
			      mpool_mlog_append(rt->rt_log[st], &iov, 1, flags);
	if (rc == -EFBIG)
		return 1;
	m->m_nrec++;
	if (rc)
		return broken(e, "append of a record", rc);
	if (flags & MPOOL_SYNC)
		for (i = 0; i < m->m_nrec; i++)
			if (m->m_rec[i].r_ver == ver && m->m_rec[i].r_durable == PM_NEVER)
				m->m_rec[i].r_durable = sim_now(&e->e_sim);
	return 0;
}

static int do_erase(struct eng *e, struct pm *m, struct pm_rt *rt, unsigned st)
{
	struct pm_time t = call_begin(e);
	int rc;

	if (m->m_nver == PM_VERS)
		return 0;
	rc = mpool_mlog_erase(rt->rt_log[st]);
	if (!rc)
		t.e = sim_now(&e->e_sim);
	ver_add(m, st, t, 0);
	return rc ? broken(e, "mpool_mlog_erase", rc) : 0;
}

static int do_compact(struct eng *e, struct pm *m, struct pm_rt *rt, unsigned st)
{
	unsigned n = rnd(m, 5), recs = m->m_nrec, k, got = 0;
	struct pm_time t;
	int rc;

	if (m->m_nver == PM_VERS)
		return 0;
	rc = mpool_mdc_compact_begin(rt->rt_mdc[st]);
	if (rc)
		return broken(e, "mpool_mdc_compact_begin", rc);
	for (k = 0; k < n; k++) {
		rc = rec_append(e, m, rt, st, m->m_nver, 3000, 0);
		if (rc < 0)
			return -1;
		got += !rc;
	}
	if (!rnd(m, 5)) {	/* no reader sees what it wrote, neither now nor after a crash */
		m->m_nrec = recs;
		rc = mpool_mdc_compact_abort(rt->rt_mdc[st]);
		return rc ? broken(e, "mpool_mdc_compact_abort", rc) : 0;
	}
	t = call_begin(e);
	rc = mpool_mdc_compact_end(rt->rt_mdc[st]);
	if (!rc)
		t.e = sim_now(&e->e_sim);
	ver_add(m, st, t, got);
	return rc ? broken(e, "mpool_mdc_compact_end", rc) : 0;
}

static int do_rec(struct eng *e, struct pm *m, struct pm_rt *rt)
{
	int st = stream_pick(m, m->m_rand >> 20 & 1, is_unsealed), rc;
	uint32_t max = rnd(m, 12) ? 900 : rnd(m, 4) ? 9000 : PM_REC_MAX;

	if (st < 0)
		st = stream_pick(m, !(m->m_rand >> 20 & 1), is_unsealed);
	if (st < 0)
		return 0;
	rc = rec_append(e, m, rt, (unsigned)st, ver_of(m, (unsigned)st), max,
			rnd(m, 3) ? 0 : MPOOL_SYNC);
	if (rc == 1 && max < 9000)	/* full */
		rc = rt->rt_mdc[st] ? do_compact(e, m, rt, (unsigned)st) :
				      do_erase(e, m, rt, (unsigned)st);
	return rc < 0 ? -1 : 0;
}

static int do_sync(struct eng *e, struct pm *m, struct pm_rt *rt)
{
	int st = stream_pick(m, false, NULL), rc;
	unsigned i, ver;

	if (st < 0)
		return 0;
	rc = mpool_mlog_sync(rt->rt_log[st]);
	if (rc)
		return broken(e, "mpool_mlog_sync", rc);
	ver = ver_of(m, (unsigned)st);
	for (i = 0; i < m->m_nrec; i++)
		if (m->m_rec[i].r_ver == ver && m->m_rec[i].r_durable == PM_NEVER)
			m->m_rec[i].r_durable = sim_now(&e->e_sim);
	return 0;
}

static int do_mlog_end(struct eng *e, struct pm *m, struct pm_rt *rt, bool is_delete)
{
	int st = stream_pick(m, false, is_delete ? NULL : is_unsealed), rc;
	struct mpool_op op = { .type = MPOOL_OP_DELETE };
	struct pm_time t = call_begin(e);
	unsigned i, ver;

	if (st < 0)
		return 0;
	if (!is_delete) {
		ver = ver_of(m, (unsigned)st);
		rc = mpool_mlog_seal(rt->rt_log[st]);
		if (!rc)
			call_end(e, m, &t);
		m->m_stream[st].st_sealed = t;
		if (rc)
			return broken(e, "mpool_mlog_seal", rc);
		for (i = 0; i < m->m_nrec; i++)
			if (m->m_rec[i].r_ver == ver && m->m_rec[i].r_durable == PM_NEVER)
				m->m_rec[i].r_durable = t.e;
		return 0;
	}
	mpool_mlog_close(rt->rt_log[st]);
	rt->rt_log[st] = NULL;
	op.id = m->m_stream[st].st_id;
	t = call_begin(e);
	rc = mpool_batch(rt->rt_mp, &op, 1);
	if (!rc)
		call_end(e, m, &t);
	m->m_stream[st].st_deleted = t;
	m->m_stream[st].st_is_dead = true;
	return rc ? broken(e, "delete of an mlog", rc) : 0;
}

static int do_mdc_delete(struct eng *e, struct pm *m, struct pm_rt *rt)
{
	int st = stream_pick(m, true, NULL), rc;
	struct pm_time t;

	if (st < 0)
		return 0;
	mpool_mdc_close(rt->rt_mdc[st]);
	rt->rt_mdc[st] = NULL;
	t = call_begin(e);
	rc = mpool_mdc_delete(rt->rt_mp, m->m_stream[st].st_name);
	if (!rc)
		call_end(e, m, &t);
	m->m_stream[st].st_deleted = t;
	m->m_stream[st].st_is_dead = true;
	return rc ? broken(e, "mpool_mdc_delete", rc) : 0;
}

/* ---- the pool ---- */

static void extent(void *arg, const struct mpool_extent *x)
{
	struct eng *e = arg;

	if (!x->id)
		sim_meta_add(&e->e_sim, x->slot, x->off, x->len);
}

int pm_create(struct eng *e, struct pm *m, const struct pm_conf *c)
{
	struct mpool_dev_spec dev[2] = {
		{ .path = "capacity", .mclass = MPOOL_CAPACITY, .size = c->pc_bytes[0] },
		{ .path = "staging", .mclass = MPOOL_STAGING, .size = c->pc_bytes[1] },
	};
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	struct mpool_open_opts oo;
	struct pm_time t = call_begin(e);
	int rc;

	o.name = "sim";
	o.devs = dev;
	o.ndevs = c->pc_devs;
	o.provider = &e->e_sim.s_prov;
	e->e_sim.s_is_dirty = c->pc_is_dirty;
	rc = mpool_create(PM_POOL, &o);
	if (!rc)
		t.e = sim_now(&e->e_sim);
	if (m)
		m->m_created = t;
	if (rc)
		return broken(e, "mpool_create", rc);
	pm_open_opts(e, &oo);
	e->e_sim.s_nmeta = 0;
	rc = mpool_map(PM_POOL, &oo, extent, e);
	return rc ? broken(e, "mpool_map", rc) : 0;
}

int pm_rt_open(struct eng *e, struct pm *m, struct pm_rt *rt)
{
	struct mpool_open_opts oo;
	unsigned i;
	int rc;

	memset(rt, 0, sizeof(*rt));
	pm_open_opts(e, &oo);
	rc = mpool_open(PM_POOL, &oo, &rt->rt_mp);
	if (rc)
		return broken(e, "mpool_open", rc);
	/* a new handle does not know where an append object ends: it only seals */
	for (i = 0; i < m->m_nobj; i++) {
		if (m->m_obj[i].o_is_dead || !is_growing(&m->m_obj[i]))
			continue;
		m->m_obj[i].o_is_reopened = true;
		rc = mpool_obj_open(rt->rt_mp, m->m_obj[i].o_id, &rt->rt_obj[i]);
		if (rc)
			return broken(e, "mpool_obj_open", rc);
	}
	for (i = 0; i < m->m_nstream; i++) {
		struct pm_stream *st = &m->m_stream[i];

		if (st->st_is_dead)
			continue;
		rc = st->st_is_mdc ? mpool_mdc_open(rt->rt_mp, st->st_name, &rt->rt_mdc[i]) :
				     mpool_mlog_open(rt->rt_mp, st->st_id, &rt->rt_log[i]);
		if (rc)
			return broken(e, "open of a log", rc);
	}
	return 0;
}

int pm_rt_close(struct eng *e, struct pm *m, struct pm_rt *rt)
{
	unsigned i;
	int rc;

	for (i = 0; i < m->m_nstream; i++) {
		if (rt->rt_log[i])
			mpool_mlog_close(rt->rt_log[i]);
		if (rt->rt_mdc[i])
			mpool_mdc_close(rt->rt_mdc[i]);
	}
	for (i = 0; i < PM_OBJS; i++) {
		if (!rt->rt_obj[i])
			continue;
		mpool_obj_close(rt->rt_obj[i]);
		if (i < m->m_nobj && m->m_obj[i].o_exists.b == PM_NEVER)
			m->m_obj[i].o_is_dead = true;
	}
	rc = mpool_close(rt->rt_mp);
	memset(rt, 0, sizeof(*rt));
	return rc ? broken(e, "mpool_close", rc) : 0;
}

/* Synced only: a clean close may lose unsynced records. */
int pm_reopen(struct eng *e, struct pm *m, struct pm_rt *rt)
{
	unsigned i;
	int rc;

	for (i = 0; i < m->m_nstream; i++) {
		if (rt->rt_log[i]) {
			unsigned ver = ver_of(m, i), k;

			rc = mpool_mlog_sync(rt->rt_log[i]);
			if (rc && m->m_stream[i].st_sealed.b == PM_NEVER)
				return broken(e, "mpool_mlog_sync", rc);
			for (k = 0; k < m->m_nrec; k++)
				if (m->m_rec[k].r_ver == ver && m->m_rec[k].r_durable == PM_NEVER)
					m->m_rec[k].r_durable = sim_now(&e->e_sim);
		} else if (rt->rt_mdc[i]) {
			/* there is no sync of its own: a synced record covers all */
			rc = rec_append(e, m, rt, i, ver_of(m, i), 8, MPOOL_SYNC);
			if (rc < 0 || (rc == 1 && do_compact(e, m, rt, i)))
				return -1;
		}
	}
	if (pm_rt_close(e, m, rt))
		return -1;
	return pm_rt_open(e, m, rt);
}

static unsigned op_choose(struct pm *m, const struct pm_conf *c)
{
	unsigned sum = 0, k, w;

	for (k = 0; k < PM_OPS; k++)
		sum += c->pc_weight[k];
	w = rnd(m, sum);
	for (k = 0; w >= c->pc_weight[k]; k++)
		w -= c->pc_weight[k];
	return k;
}

int pm_step(struct eng *e, struct pm *m, struct pm_rt *rt, const struct pm_conf *c)
{
	unsigned op = op_choose(m, c), first;
	int st;

	if (objs_alive(m) > OBJ_ALIVE_MAX)
		op = PM_DELETE;
	switch (op) {
	case PM_BATCH:
		return do_commit(e, m, rt, c, 1 + rnd(m, 4), false);
	case PM_ABORT:
		return do_abort(e, m, rt, c);
	case PM_DELETE:
		return do_delete(e, m, rt, 1 + rnd(m, 5));
	case PM_MIXED:
		return do_commit(e, m, rt, c, 1 + rnd(m, 3), true);
	case PM_APPEND:
		return objs_alloc(e, m, rt, c, MPOOL_APPEND, 1 + rnd(m, 3), &first) < 0 ? -1 : 0;
	case PM_GROW:
		return do_grow(e, m, rt);
	case PM_FLUSH:
		return do_flush(e, m, rt);
	case PM_SEAL:
		return do_seal(e, m, rt);
	case PM_MLOG:
		return do_stream_create(e, m, rt, c, false);
	case PM_MDC:
		return do_stream_create(e, m, rt, c, true);
	case PM_REC:
		return do_rec(e, m, rt);
	case PM_SYNC:
		return do_sync(e, m, rt);
	case PM_ERASE:
		st = stream_pick(m, false, is_unsealed);
		return st < 0 ? 0 : do_erase(e, m, rt, (unsigned)st);
	case PM_COMPACT:
		st = stream_pick(m, true, NULL);
		return st < 0 ? 0 : do_compact(e, m, rt, (unsigned)st);
	case PM_MLOG_SEAL:
		return do_mlog_end(e, m, rt, false);
	case PM_MLOG_DELETE:
		return do_mlog_end(e, m, rt, true);
	case PM_MDC_DELETE:
		return do_mdc_delete(e, m, rt);
	case PM_FILL:
		return do_fill(e, m, rt, c);
	case PM_SET:
	case PM_RENAME:
	case PM_ADD:
	case PM_LARGER:
		return pm_admin(e, m, rt, c, (enum pm_op)op);
	default:
		return pm_reopen(e, m, rt);
	}
}
