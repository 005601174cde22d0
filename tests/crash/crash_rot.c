/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Crash enumeration with media damage beside each cut: one bit, sector or block
 * that went bad, or one write that a device lost though it said otherwise.
 *
 * Each crash state is judged undamaged (kv_check.c), then once more for each damage,
 * each time on a copy. What is asked of a damaged state:
 *  - an open that is refused says damage, by -EUCLEAN and an identifier, or that a member is
 *    stale, and wrote nothing;
 *  - one that is not has all that the undamaged state has, but for last writes that no
 *    sync or bound covers: a key gives that value, or -EUCLEAN; a bit in a log costs one value
 *    at most; cursors say what gets say, or fail;
 *  - what it showed is there after a close and another open;
 *  - a checkpoint that is sure to be there has what it had, or says damage;
 *  - verify calls nothing sound that an open refuses, or of which a get fails, and writes nothing.
 * Damage to the newest record of a log cannot be told from a torn end: what a crash at that
 * write could show is accepted there, for log frames that of the newest epoch that is proven.
 *
 * Damaged is what the workload wrote and what is still on the medium. How many states there
 * are follows from SEED alone, not from the time that they take.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "kv_model.h"
#include "seg/kv_omf.h"
#include "meta/mdc_omf.h"
#include "codec.h"

#define KiB	(1ull << 10)
#define MiB	(1ull << 20)
#define BLOCK	4096u
#define WANTED	50000u	/* damaged states of a run of ordinary length */
#define RECENT	64u	/* half of the damage is to one of so many last writes */

/* frames of the engine's logs, of mlogs, of the pool; all else */
enum what { W_LOG, W_MLOG, W_META, W_RUN, W_KINDS };
static const char *const what_name[] = { "log", "container", "pool metadata", "run" };
enum how { H_BIT, H_SECTOR, H_BLOCK, H_LOST, H_KINDS };
static const char *const how_name[] = { "bit", "sector", "block", "lost write" };

struct damage {
	enum what da_what;
	enum how da_how;
	unsigned da_ev;		/* the write */
	unsigned da_dev;
	uint64_t da_off;	/* bytes */
	unsigned da_from;	/* a crash from this event on looks so; KM_NEVER: only at the cut */
};

/* What a reader sees. */
struct view {
	bool vi_exists[KM_STORES];
	bool vi_unread[KM_STORES][KM_KEYS];	/* -EUCLEAN */
	struct km_val vi_val[KM_STORES][KM_KEYS];
	unsigned vi_nunread;
};

/*
 * All that was written, and the devices before that. A second generation has two: before the
 * first, and what the power cut left, with which the second begins.
 */
static struct sim_log whole, first_log;
static uint8_t *before[2][SIM_DEVS];
static unsigned second_from;	/* KM_NEVER: there is no second generation */
static uint64_t states[H_KINDS][W_KINDS], refused, partly, rolled, total;

/* ---- what is damaged ---- */

static const uint8_t *medium(const struct eng *e, const struct sim_ev *ev)
{
	return e->e_sim.s_dev[ev->ev_dev].d_mem + ev->ev_off;
}

static bool is_there(const struct eng *e, const struct sim_ev *ev)
{
	return ev->ev_type == SIM_WRITE && !memcmp(medium(e, ev), ev->ev_data, ev->ev_len);
}

/* The epoch of the frame whose header is at @p; 0: there is none. */
static uint64_t epoch_of(const uint8_t *p)
{
	struct kv_frame_hdr h = { 0 };

	/* the place in the header is as good as its checksum */
	if (kv_frame_decode(p, 0, 0, 0, KV_FRAME_MAX, &h) && !h.fh_epoch)
		return 0;
	return kv_frame_decode(p, h.fh_tag, h.fh_obj, h.fh_off, KV_FRAME_MAX, &h) ? 0 : h.fh_epoch;
}

static bool has_magic(const uint8_t *p, uint32_t magic)
{
	return p[0] == (uint8_t)magic && p[1] == (uint8_t)(magic >> 8) &&
	       p[2] == (uint8_t)(magic >> 16) && p[3] == (uint8_t)(magic >> 24);
}

/*
 * Whose bytes are those of the write at @off? @epoch: of its frame of a log, @head: where that
 * begins.
 */
static enum what what_at(const struct sim_ev *ev, uint32_t off, uint64_t *epoch, uint32_t *head)
{
	uint32_t o = off / BLOCK * BLOCK;

	*head = off;
	if (ev->ev_is_meta)
		return W_META;
	for (;; o -= BLOCK) {
		*head = o;
		*epoch = epoch_of(ev->ev_data + o);
		if (*epoch)
			return W_LOG;
		if (has_magic(ev->ev_data + o, MP_MLOG_MAGIC))
			return W_MLOG;
		if (!o)
			return W_RUN;
	}
}

/* What the medium has of a frame that was written with this epoch. */
struct left {
	bool le_head, le_mark;
};

static struct left left_of(const uint8_t *p, uint64_t epoch)
{
	struct left le = { .le_head = epoch_of(p) == epoch };
	struct kv_frame_hdr h = { 0 };
	struct kv_mark m;

	if (!le.le_head)
		return le;
	(void)kv_frame_decode(p, 0, 0, 0, KV_FRAME_MAX, &h);
	(void)kv_frame_decode(p, h.fh_tag, h.fh_obj, h.fh_off, KV_FRAME_MAX, &h);
	le.le_mark = kv_mark_decode(p, &h, &m);
	return le;
}

/*
 * Where an epoch begins that passes for torn. KM_NEVER: it does not, for a mark of a later one says
 * that it was durable, or a header of a later one beside one of its own (RV17, RV22).
 */
static unsigned torn_from(const struct eng *e, unsigned at, uint64_t epoch)
{
	unsigned i = at < sim_log_end(&whole) ? at + 1 : at, first = KM_NEVER;
	bool has_own = false, has_later = false;

	while (i-- > whole.lo_first) {
		const struct sim_ev *ev = sim_log_at(&whole, i);

		if (ev->ev_type != SIM_WRITE || ev->ev_is_meta)
			continue;
		for (uint32_t o = 0; o < ev->ev_len; o += BLOCK) {
			uint64_t of = epoch_of(ev->ev_data + o);
			struct left le = left_of(medium(e, ev) + o, of ? of : KM_NEVER);

			if (of > epoch && le.le_mark)
				return KM_NEVER;
			has_later |= of > epoch && le.le_head;
			has_own |= of == epoch && le.le_head;
			if (of == epoch)
				first = i;
		}
	}
	return has_own && has_later ? KM_NEVER : first;
}

/* Is a later write of this kind, of which anything is there? */
static bool is_last(const struct eng *e, unsigned at, unsigned ev, enum what what)
{
	uint64_t epoch;
	uint32_t head;

	for (unsigned i = ev + 1; i <= at && i < sim_log_end(&whole); i++) {
		const struct sim_ev *x = sim_log_at(&whole, i);

		if (x->ev_type == SIM_WRITE && is_there(e, x) &&
		    what_at(x, 0, &epoch, &head) == what)
			return false;
	}
	return true;
}

static void set_place(unsigned i, uint64_t *rng, struct damage *da)
{
	const struct sim_ev *ev = sim_log_at(&whole, i);
	uint32_t off = (uint32_t)(sim_rand(rng) % ev->ev_len), head;
	uint64_t epoch;

	da->da_ev = i;
	da->da_dev = ev->ev_dev;
	da->da_what = what_at(ev, off, &epoch, &head);
	/* each fourth of those to a log is to the header of a frame, be that as long as it likes */
	if (da->da_what == W_LOG && !(sim_rand(rng) % 4))
		off = head + off % 32;
	da->da_off = ev->ev_off + off;
}

/* A part of the newest checkpoint of the pool: there are few. */
static bool pick_part(const struct eng *e, unsigned at, uint64_t *rng, struct damage *da)
{
	for (unsigned i = at; i-- > whole.lo_first;) {
		const struct sim_ev *ev = sim_log_at(&whole, i);

		if (!is_there(e, ev) || !has_magic(ev->ev_data, MP_FRAME_MAGIC) ||
		    ev->ev_data[6] != MP_FRAME_CKPT)
			continue;
		set_place(i, rng, da);
		return true;
	}
	return false;
}

static bool pick_write(const struct eng *e, unsigned at, uint64_t *rng, struct damage *da)
{
	unsigned first = whole.lo_first, n = at - first, back;
	bool is_log = sim_rand(rng) & 1, is_recent = sim_rand(rng) & 1;

	if (!(sim_rand(rng) % 32) && pick_part(e, at, rng, da))
		return true;
	for (unsigned k = 0; n && k < 60; k++) {
		back = (unsigned)(sim_rand(rng) % (is_recent && n > RECENT ? RECENT : n));
		if (!is_there(e, sim_log_at(&whole, at - 1 - back)))
			continue;
		set_place(at - 1 - back, rng, da);
		if (!is_log || da->da_what == W_LOG || k > 40)
			return true;
	}
	return false;
}

/* From where on a crash leaves what the damaged medium looks like. */
static unsigned looks_like(const struct eng *e, unsigned at, const struct damage *da)
{
	const struct sim_ev *ev = sim_log_at(&whole, da->da_ev);
	uint64_t epoch = 0;
	unsigned first;
	uint32_t head;

	if (da->da_what == W_RUN)
		return KM_NEVER;
	if (da->da_what != W_LOG)
		return is_last(e, at, da->da_ev, da->da_what) ? da->da_ev : KM_NEVER;
	/* one lost write may hold the frames of several epochs */
	if (da->da_how != H_LOST || what_at(ev, 0, &epoch, &head) != W_LOG)
		(void)what_at(ev, (uint32_t)(da->da_off - ev->ev_off), &epoch, &head);
	first = torn_from(e, at, epoch);
	return first == KM_NEVER || first < da->da_ev ? first : da->da_ev;
}

/* What was there before write @n. */
static void before_write(unsigned n, uint8_t *buf)
{
	const struct sim_ev *ev = sim_log_at(&whole, n);
	uint64_t end = ev->ev_off + ev->ev_len;

	bool is_second = n >= second_from;

	memcpy(buf, before[is_second][ev->ev_dev] + ev->ev_off, ev->ev_len);
	for (unsigned i = is_second ? second_from : whole.lo_first; i < n; i++) {
		const struct sim_ev *x = sim_log_at(&whole, i);
		uint64_t from = x->ev_off > ev->ev_off ? x->ev_off : ev->ev_off;
		uint64_t to = x->ev_off + x->ev_len < end ? x->ev_off + x->ev_len : end;

		if (x->ev_type == SIM_WRITE && x->ev_dev == ev->ev_dev && from < to)
			memcpy(buf + (from - ev->ev_off), x->ev_data + (from - x->ev_off),
			       to - from);
	}
}

static void spoil(struct eng *e, const struct damage *da, uint64_t *rng)
{
	const struct sim_ev *ev = sim_log_at(&whole, da->da_ev);
	uint32_t len = da->da_how == H_SECTOR ? SIM_SECTOR : BLOCK;
	uint64_t off = da->da_off / len * len;
	uint8_t junk[BLOCK] = { 0 }, *buf;

	switch (da->da_how) {
	case H_BIT:
		junk[0] = medium(e, ev)[da->da_off - ev->ev_off] ^
			  (uint8_t)(1u << (sim_rand(rng) & 7));
		sim_poke(&e->e_sim, da->da_dev, da->da_off, junk, 1);
		return;
	case H_LOST:
		buf = malloc(ev->ev_len);
		if (!buf)
			abort();
		before_write(da->da_ev, buf);
		sim_poke(&e->e_sim, da->da_dev, ev->ev_off, buf, ev->ev_len);
		free(buf);
		return;
	default:
		if (sim_rand(rng) & 1)
			sim_garbage(junk, len, sim_rand(rng));
		sim_poke(&e->e_sim, da->da_dev, off, junk, len);
	}
}

/* ---- what is read ---- */

static bool says_damage(int rc)
{
	return rc == -EUCLEAN && !strncmp(kvdb_error_detail()->id, "MP", 2);
}

/* Each store by what it is called in the undamaged state, or the newest of that name. */
static int store_of(const struct km *m, const struct km *sound, unsigned at, const char *name)
{
	int found = -1;

	for (unsigned i = 0; i < m->m_nstore; i++) {
		if (strcmp(m->m_store[i].s_name, name) || !km_begun(m->m_store[i].s_exists, at))
			continue;
		if (!sound->m_store[i].s_is_dead)
			return (int)i;
		found = (int)i;
	}
	return found;
}

static int read_gets(struct eng *e, struct kvdb_kvs *kvs, unsigned s, struct view *vi)
{
	static uint8_t val[KM_VALUE_MAX];
	uint8_t key[KVDB_KEY_MAX];

	for (unsigned k = 0; k < km_conf_of(e)->kc_keys; k++) {
		size_t vlen = 0;
		int rc = kvdb_get(kvs, key, km_key(k, key), val, sizeof(val), &vlen);

		if (!rc) {
			vi->vi_val[s][k] = km_val_of(val, vlen);
		} else if (says_damage(rc)) {
			vi->vi_unread[s][k] = true;
			vi->vi_nunread++;
		} else if (rc != -ENOENT) {
			return eng_fail(e, "store %u key %u: get says %d (%s)", s, k, rc,
					kvdb_error_detail()->text);
		}
	}
	return 0;
}

/* A cursor shows what gets show; one that comes to its end left out nothing. */
static int read_cursor(struct eng *e, struct kvdb_kvs *kvs, unsigned s, const struct view *vi,
		       const struct km *sound)
{
	bool seen[KM_KEYS] = { false };
	const void *key, *val;
	struct kvdb_cursor *cur;
	size_t klen, vlen;
	int rc = kvdb_cursor_open(kvs, e->e_rand & 1 ? KVDB_REVERSE : 0, NULL, 0, &cur), k;

	if (rc)
		return says_damage(rc) ? 0 : eng_fail(e, "kvdb_cursor_open: %d", rc);
	while (!(rc = kvdb_cursor_next(cur, &key, &klen, &val, &vlen))) {
		struct km_val got = km_val_of(val, vlen);

		k = km_key_number(key, klen);
		if (k < 0 || (!vi->vi_unread[s][k] &&
			      !km_is_same(&got, &vi->vi_val[s][k], 0, 0))) {
			kvdb_cursor_close(cur);
			return eng_wrong(e, "store %u key %d: a cursor shows %zu bytes, get %d", s,
					 k, vlen, k < 0 ? -1 : (int)vi->vi_val[s][k].v_len);
		}
		seen[k] = true;
	}
	if (rc != -ENOENT && !says_damage(rc))
		k = eng_fail(e, "store %u: cursor: %d (%s)", s, rc, kvdb_error_detail()->text);
	else
		k = 0;
	kvdb_cursor_close(cur);
	for (unsigned i = 0; !k && rc == -ENOENT && i < KM_KEYS; i++)
		if (!seen[i] && (vi->vi_unread[s][i] ? sound->m_now[s][i].v_len :
				 vi->vi_val[s][i].v_len) != KM_ABSENT)
			k = eng_wrong(e, "store %u key %u: a cursor passed over it", s, i);
	return k;
}

static int read_all(struct eng *e, const struct km *m, const struct km *sound, unsigned at,
		    struct kvdb *db, struct view *vi)
{
	char names[KM_STORES][KVDB_NAME_MAX + 1];
	int n = kvdb_kvs_list(db, names, KM_STORES);

	memset(vi, 0, sizeof(*vi));
	for (unsigned s = 0; s < KM_STORES; s++)
		for (unsigned k = 0; k < KM_KEYS; k++)
			vi->vi_val[s][k].v_len = KM_ABSENT;
	if (n < 0 || n > (int)KM_STORES)
		return eng_fail(e, "kvdb_kvs_list: %d", n);
	for (int i = 0; i < n; i++) {
		int s = store_of(m, sound, at, names[i]), rc;
		struct kvdb_kvs *kvs;

		if (s < 0)
			return eng_wrong(e, "store %s should not exist", names[i]);
		vi->vi_exists[s] = true;
		rc = kvdb_kvs_open(db, names[i], &kvs);
		if (rc)
			return eng_fail(e, "kvdb_kvs_open %s: %d", names[i], rc);
		if (read_gets(e, kvs, (unsigned)s, vi) ||
		    read_cursor(e, kvs, (unsigned)s, vi, sound))
			return -1;
	}
	return 0;
}

/* ---- what may be read ---- */

/* Keys that are not what they should be; *s, *k: one of them. */
static unsigned differs(const struct view *vi, const bool *exists,
			struct km_val now[KM_STORES][KM_KEYS], unsigned *s, unsigned *k)
{
	unsigned n = 0;

	for (unsigned i = 0; i < KM_STORES; i++)
		for (unsigned j = 0; exists[i] && j < KM_KEYS; j++)
			if (!vi->vi_unread[i][j] &&
			    !km_is_same(&vi->vi_val[i][j], &now[i][j], 0, 0)) {
				*s = i;
				*k = j;
				n++;
			}
	return n;
}

/* Might a crash between @from and @at have left this? */
static bool is_legal(const struct eng *e, const struct km *m, unsigned from, unsigned at,
		     const struct view *vi)
{
	static struct km_val now[KM_STORES][KM_KEYS];
	unsigned lo = km_least_ops(m, from, km_conf_of(e)), s, k;

	for (s = 0; s < m->m_nstore; s++) {
		const struct km_store *st = &m->m_store[s];

		if (vi->vi_exists[s] ? km_certain(st->s_dropped, from) :
		    km_certain(st->s_exists, from) && !km_begun(st->s_dropped, at))
			return false;
	}
	memcpy(now, m->m_base, sizeof(now));
	for (unsigned p = 0;; p++) {
		const struct km_op *op = &m->m_op[p];

		if (p >= lo && !(p && op[-1].op_more) && !differs(vi, vi->vi_exists, now, &s, &k))
			return true;
		if (p == m->m_nop || op->op_b > at)
			return false;
		for (k = 0; k < KM_KEYS; k++)
			if (km_changes(op, k))
				now[op->op_store][k] = op->op_val;
	}
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* What the first generation left, the second may lose as a crash of the first would have. */
static bool may_be(const struct eng *e, const struct km *m, unsigned at, const struct damage *da,
		   const struct view *vi)
{
	unsigned from = least(da->da_from, at);

	if (m->m_prev && from < m->m_opened) {
		if (is_legal(e, m->m_prev, least(from, m->m_prev_at), m->m_prev_at, vi))
			return true;
		from = least(m->m_opened, at);
	}
	return is_legal(e, m, from, at, vi);
}

static int judge_view(struct eng *e, const struct km *m, struct km *sound, unsigned at,
		      const struct damage *da, const struct view *vi)
{
	bool exists[KM_STORES];
	unsigned s = 0, k = 0, n;

	for (unsigned i = 0; i < KM_STORES; i++)
		exists[i] = i < sound->m_nstore && !sound->m_store[i].s_is_dead;
	n = differs(vi, exists, sound->m_now, &s, &k);
	if (!n && !memcmp(exists, vi->vi_exists, sizeof(exists))) {
		if (da->da_what == W_LOG && da->da_how == H_BIT && vi->vi_nunread > 1)
			return eng_fail(e, "%u values are lost to one bit of a log",
					vi->vi_nunread);
		return 0;
	}
	/* what was not synced may be there or not, whatever the undamaged state had of it */
	if (may_be(e, m, at, da, vi)) {
		rolled++;
		return 0;
	}
	return eng_wrong(e, "%u keys differ: store %u key %u has %d bytes, was %d", n, s, k,
			 (int)vi->vi_val[s][k].v_len, (int)sound->m_now[s][k].v_len);
}

/* ---- a damaged state ---- */

/* 1: refused, as it may be. */
static int open_it(struct eng *e, uint32_t flags, const char *ckpt, struct kvdb **db)
{
	struct mpool_open_opts oo;
	struct sim_log log;
	struct kvdb_opts o;
	unsigned wrote = 0;
	int rc;

	km_opts(e, &o, &oo);
	o.flags |= flags;
	o.checkpoint = ckpt;
	sim_log_init(&log, 1);
	e->e_sim.s_log = &log;
	rc = kvdb_open(KM_POOL, &o, db);
	e->e_sim.s_log = NULL;
	for (unsigned i = log.lo_first; i < sim_log_end(&log); i++)
		wrote += sim_log_at(&log, i)->ev_type != SIM_FLUSH;
	sim_log_fini(&log);
	if (wrote && (rc || flags & KVDB_RDONLY))
		return eng_fail(e, "an open that %s wrote %u times",
				rc ? "was refused" : "reads only", wrote);
	/* a member that lost what it was told last is an old one */
	if (rc && !says_damage(rc) && rc != -ESTALE)
		return eng_fail(e, "kvdb_open: %d (%s)", rc, kvdb_error_detail()->text);
	return rc != 0;
}

/*
 * May what was read at the first open be unreadable at the second? A memtable that holds a version
 * and the range delete that hides it answers alone. The run that is made of it has the delete and
 * not the version, so a get asks older runs, and the page that cannot be read.
 */
static bool may_go(const struct damage *da, const struct km_val *was)
{
	return da->da_what == W_RUN && was->v_len == KM_ABSENT;
}

/* What was readable is. */
static int judge_again(struct eng *e, const struct km *m, const struct km *sound, unsigned at,
		       const struct damage *da, const struct view *vi)
{
	static struct view now;
	struct kvdb *db;
	int rc = open_it(e, KVDB_RDONLY, NULL, &db);

	if (rc)
		return rc < 0 ? rc : eng_fail(e, "what was open is refused: %s",
					      kvdb_error_detail()->text);
	rc = read_all(e, m, sound, at, db, &now);
	(void)kvdb_close(db);
	for (unsigned s = 0; !rc && s < KM_STORES; s++)
		for (unsigned k = 0; !rc && vi->vi_exists[s] && k < KM_KEYS; k++)
			if (!vi->vi_unread[s][k] &&
			    (now.vi_unread[s][k] ? !may_go(da, &vi->vi_val[s][k]) :
			     !km_is_same(&now.vi_val[s][k], &vi->vi_val[s][k], 0, 0)))
				rc = eng_wrong(e, "store %u key %u: lost by the open: %s", s, k,
					       now.vi_unread[s][k] ? "unreadable" : "another");
	return rc;
}

/* 1: says that all is sound. What it cannot read at all it says as an open does. */
static int judge_verify(struct eng *e)
{
	struct mpool_open_opts oo;
	struct kvdb_opts o;
	uint64_t n = 0;
	int rc;

	km_opts(e, &o, &oo);
	e->e_sim.s_bad_writes = 0;
	e->e_sim.s_is_frozen = true;
	rc = kvdb_verify(KM_POOL, &o, MPOOL_VERIFY_DATA, NULL, NULL, &n);
	e->e_sim.s_is_frozen = false;
	if (e->e_sim.s_bad_writes)
		return eng_fail(e, "kvdb_verify wrote");
	if (rc && !says_damage(rc) && rc != -ESTALE)
		return eng_fail(e, "kvdb_verify: %d (%s)", rc, kvdb_error_detail()->text);
	return !rc && !n;
}

/* What a checkpoint that was made, and not dropped, holds. */
static int judge_ckpt(struct eng *e, const struct km_ckpt *c, unsigned nstore)
{
	static struct view vi;
	struct kvdb *db;
	int rc = open_it(e, KVDB_RDONLY, c->c_name, &db);

	if (rc)
		return rc < 0 ? -1 : 0;
	memset(&vi, 0, sizeof(vi));
	for (unsigned s = 0; !rc && s < nstore; s++) {
		struct kvdb_kvs *kvs;

		if (!c->c_exists[s])
			continue;
		for (unsigned k = 0; k < KM_KEYS; k++)
			vi.vi_val[s][k].v_len = KM_ABSENT;
		rc = kvdb_kvs_open(db, c->c_face[s].f_name, &kvs);
		rc = rc ? eng_fail(e, "kvdb_kvs_open: %d", rc) : read_gets(e, kvs, s, &vi);
		for (unsigned k = 0; !rc && k < KM_KEYS; k++)
			if (!vi.vi_unread[s][k] &&
			    !km_is_same(&vi.vi_val[s][k], &c->c_val[s][k], 0, 0))
				rc = eng_wrong(e, "checkpoint %s: store %u key %u is another",
					       c->c_name, s, k);
	}
	(void)kvdb_close(db);
	return rc;
}

/* One of them, for it costs an open; 0: also when there is none. */
static int judge_ckpts(struct eng *e, const struct km *m, unsigned at, const struct damage *da)
{
	unsigned from = least(da->da_from, at);

	for (unsigned i = 0; i < m->m_nckpt; i++) {
		const struct km_ckpt *c = &m->m_ckpt[(e->e_rand + i) % m->m_nckpt];

		if (km_certain(c->c_made, from) && !km_begun(c->c_dropped, at))
			return judge_ckpt(e, c, m->m_nstore);
	}
	return 0;
}

static int judge_damaged(struct eng *e, const struct km *m, struct km *sound, unsigned at,
			 const struct damage *da, uint64_t how)
{
	bool is_writer = how & 1, is_verified = !(how & 14);
	static struct view vi;
	int rc, is_sound = 0;
	struct kvdb *db;

	km_clock_reset(e, e->e_rand);
	if (is_verified)
		is_sound = judge_verify(e);
	if (is_sound < 0)
		return -1;
	if (is_verified && judge_ckpts(e, m, at, da))
		return -1;
	rc = open_it(e, is_writer ? 0 : KVDB_RDONLY, NULL, &db);
	if (rc) {
		refused += rc > 0;
		if (rc > 0 && is_sound)
			return eng_wrong(e, "verify found nothing, an open says %s",
					 kvdb_error_detail()->text);
		return rc < 0 ? -1 : 0;
	}
	rc = read_all(e, m, sound, at, db, &vi);
	if (!rc)
		rc = judge_view(e, m, sound, at, da, &vi);
	partly += vi.vi_nunread != 0;
	if (!rc && is_sound && vi.vi_nunread)
		rc = eng_wrong(e, "verify found nothing, %u gets fail", vi.vi_nunread);
	if (kvdb_close(db) && !rc)
		rc = eng_fail(e, "kvdb_close (%s)", kvdb_error_detail()->text);
	if (!rc && is_writer)
		rc = judge_again(e, m, sound, at, da, &vi);
	return rc;
}

/* A crash at @cut of the log, where model @m is at @at. */
static int damaged(struct eng *e, const struct km *m, struct km *sound, unsigned at, unsigned cut,
		   uint64_t seed)
{
	struct damage da;
	char why[300];
	int rc;

	if (!pick_write(e, cut, &seed, &da))
		return 0;
	da.da_how = (enum how)(sim_rand(&seed) % H_KINDS);
	states[da.da_how][da.da_what]++;
	total++;
	sim_snap(&e->e_sim);
	spoil(e, &da, &seed);
	da.da_from = looks_like(e, cut, &da);
	rc = judge_damaged(e, m, sound, at, &da, sim_rand(&seed));
	e->e_sim.s_tick = NULL;
	sim_release(&e->e_sim);
	sim_rollback(&e->e_sim);
	if (!rc)
		return 0;
	snprintf(why, sizeof(why), "%.299s", e->e_why);
	return eng_fail(e, "%s of %s, write %u, device %u, offset %llu%s: %s",
			how_name[da.da_how], what_name[da.da_what], da.da_ev, da.da_dev,
			(unsigned long long)da.da_off, da.da_from == KM_NEVER ? "" : ", newest",
			why);
}

/* ---- a crash state ---- */

static unsigned damages;	/* of each state */

static void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

/* The devices are as they were before the log. */
static void rewind_all(struct eng *e, unsigned generation)
{
	e->e_sim.s_log = NULL;
	e->e_sim.s_tick = NULL;
	sim_release(&e->e_sim);
	while (e->e_sim.s_nlevel)
		sim_rollback(&e->e_sim);
	for (unsigned d = 0; d < e->e_sim.s_ndev; d++) {
		const struct sim_dev *dev = &e->e_sim.s_dev[d];

		free(before[generation][d]);
		before[generation][d] = must(malloc(dev->d_cap));
		memcpy(before[generation][d], dev->d_mem, dev->d_cap);
	}
}

static int rot_record(struct eng *e, void **model)
{
	int rc = km_record(e, model);

	rewind_all(e, 0);
	sim_log_prefix(&whole, &e->e_log, sim_log_end(&e->e_log));
	second_from = KM_NEVER;
	return rc;
}

/* Recovers what a crash of the first generation left, and goes on. */
static int second_work(struct eng *e, const struct km *first, unsigned at, struct km *next)
{
	struct km_rt rt;
	int rc;

	km_clock_reset(e, e->e_rand);
	rc = km_judge(e, first, at, km_latest(first, at), &rt, next);
	next->m_prev = first;
	next->m_prev_at = at;
	next->m_opened = sim_log_end(&e->e_log);
	if (rc || !rt.rt_db)
		return -1;
	return km_steps(e, next, &rt, km_conf_of(e)->kc_steps) || km_close(e, next, &rt) ? -1 : 0;
}

/* Power fails in the middle of the first generation; the log is that of the second. */
static int rot_again(struct eng *e, void **model)
{
	struct km *next = km_new(e->e_rand);
	int rc = rot_record(e, model);
	struct sim_variants va;
	struct sim_cut cu;
	unsigned at;

	if (rc) {
		free(next);
		return rc;
	}
	first_log = e->e_log;
	at = first_log.lo_first + first_log.lo_n / 2 +
	     (unsigned)(sim_rand(&next->m_rand) % (first_log.lo_n / 2));
	sim_cut_init(&cu, &e->e_sim, &first_log, PLANT_NONE);
	sim_cut_to(&cu, at);
	sim_cut_variants(&cu, next->m_rand, 8, &va);
	sim_cut_apply(&cu, &va, (unsigned)(sim_rand(&next->m_rand) % va.va_n));
	sim_variants_free(&va);
	sim_cut_fini(&cu);
	second_from = at + 1;
	sim_log_init(&e->e_log, second_from);
	rewind_all(e, 1);
	sim_snap(&e->e_sim);
	e->e_sim.s_log = &e->e_log;
	rc = second_work(e, *model, at, next);
	*model = next;
	whole.lo_n = at + 1 - whole.lo_first;
	whole.lo_ev = must(realloc(whole.lo_ev,
				   (whole.lo_n + e->e_log.lo_n) * sizeof(*whole.lo_ev)));
	memcpy(whole.lo_ev + whole.lo_n, e->e_log.lo_ev, e->e_log.lo_n * sizeof(*whole.lo_ev));
	whole.lo_n += e->e_log.lo_n;
	return rc;
}

static void rot_free(void *model)
{
	struct km *m = model;

	free((struct km *)m->m_prev);
	free(m);
	sim_log_fini(&whole);
	sim_log_fini(&first_log);
}

static int rot_check(struct eng *e, void *model, unsigned cut, bool post)
{
	const struct km *m = model;
	struct km *sound = km_new(e->e_rand);
	uint64_t seed = e->e_rand;
	unsigned at = cut;
	struct km_rt rt;
	int rc;

	(void)post;
	if (m->m_prev && cut < m->m_opened) {
		at = m->m_prev_at;
		m = m->m_prev;
	}
	km_clock_reset(e, seed);
	sim_snap(&e->e_sim);
	rc = km_judge(e, m, at, km_latest(m, at), &rt, sound);
	if (rt.rt_db)
		(void)kvdb_close(rt.rt_db);
	e->e_sim.s_tick = NULL;
	sim_release(&e->e_sim);
	sim_rollback(&e->e_sim);
	for (unsigned k = 0; !rc && k < damages; k++)
		rc = damaged(e, m, sound, at, cut, sim_rand(&seed));
	free(sound);
	return rc;
}

#define ROT(nm, two, rec, ...) {								\
	.w_ops = { .eo_name = nm, .eo_is_two_devs = two, .eo_record = rec,		\
		   .eo_check = rot_check, .eo_free = rot_free },			\
	.w_conf = { .kc_name = nm, .kc_devs = (two) ? 2 : 1, .kc_segment_bytes = 64 * KiB,	\
		    .kc_log_bytes = 1 * MiB, __VA_ARGS__ },				\
}
#define ROT_WL(nm, two, ...)	ROT(nm, two, rot_record, __VA_ARGS__)
#define AGAIN_WL(nm, two, ...)	ROT(nm, two, rot_again, __VA_ARGS__)

static const struct km_wl workload[] = {
	ROT_WL("values", false, .kc_bytes = { 16 * MiB }, .kc_steps = 300, .kc_stores = 1,
	       .kc_keys = 40, .kc_logs = 2,
	       .kc_weight = { [KM_PUT] = 24, [KM_BIG] = 3, [KM_DEL] = 5, [KM_MANY] = 1,
			      [KM_SYNC] = 4, [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 1 }),
	ROT_WL("stores", false, .kc_bytes = { 16 * MiB }, .kc_steps = 260, .kc_stores = 4,
	       .kc_keys = 16, .kc_has_idle = true, .kc_logs = 3,
	       .kc_weight = { [KM_PUT] = 30, [KM_DEL] = 6, [KM_MANY] = 3, [KM_SYNC] = 4,
			      [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 2, [KM_REOPEN] = 1 }),
	ROT_WL("compact", true, .kc_bytes = { 16 * MiB, 8 * MiB }, .kc_steps = 160,
	       .kc_stores = 2, .kc_keys = 40, .kc_logs = 2,
	       .kc_weight = { [KM_PUT] = 24, [KM_BIG] = 2, [KM_DEL] = 8, [KM_MANY] = 5,
			      [KM_SYNC] = 2, [KM_POLL] = 4, [KM_IDLE] = 2, [KM_FLUSH] = 8,
			      [KM_COMPACT] = 4 }),
	ROT_WL("segments", true, .kc_bytes = { 16 * MiB, 8 * MiB }, .kc_steps = 200,
	       .kc_stores = 1, .kc_keys = 14, .kc_logs = 1,
	       .kc_weight = { [KM_PUT] = 10, [KM_BIG] = 16, [KM_DEL] = 3, [KM_SYNC] = 3,
			      [KM_POLL] = 8, [KM_IDLE] = 3, [KM_FLUSH] = 1, [KM_COMPACT] = 1 }),
	/* epochs of several frames in a segment: what lies between two of one is damaged too */
	ROT_WL("frames", false, .kc_bytes = { 32 * MiB }, .kc_steps = 240, .kc_stores = 1,
	       .kc_keys = 20, .kc_logs = 1, .kc_interval_ms = 1000,
	       .kc_weight = { [KM_PUT] = 4, [KM_BIG] = 30, [KM_DEL] = 1, [KM_SYNC] = 2 }),
	ROT_WL("leaves", true, .kc_bytes = { 16 * MiB, 8 * MiB }, .kc_steps = 140,
	       .kc_stores = 2, .kc_keys = 60, .kc_logs = 2, .kc_leaf_keys = 12,
	       .kc_no_filters = true,
	       .kc_weight = { [KM_PUT] = 30, [KM_DEL] = 8, [KM_MANY] = 2, [KM_SYNC] = 2,
			      [KM_POLL] = 4, [KM_IDLE] = 2, [KM_FLUSH] = 9, [KM_COMPACT] = 3,
			      [KM_MERGES] = 4, [KM_REOPEN] = 1 }),
	ROT_WL("relocate", true, .kc_bytes = { 16 * MiB, 8 * MiB }, .kc_steps = 180,
	       .kc_stores = 2, .kc_keys = 50, .kc_logs = 1, .kc_moves = true,
	       .kc_weight = { [KM_PUT] = 60, [KM_DEL] = 2, [KM_SYNC] = 2, [KM_POLL] = 5,
			      [KM_IDLE] = 2, [KM_FLUSH] = 2, [KM_COMPACT] = 10 }),
	ROT_WL("txns", true, .kc_bytes = { 16 * MiB, 8 * MiB }, .kc_steps = 300, .kc_stores = 3,
	       .kc_keys = 30, .kc_logs = 2,
	       .kc_weight = { [KM_TXN] = 70, [KM_PUT] = 8, [KM_DEL] = 3, [KM_SYNC] = 2,
			      [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 1, [KM_FLUSH_ONE] = 3,
			      [KM_REOPEN] = 1 }),
	ROT_WL("parts", true, .kc_bytes = { 16 * MiB, 8 * MiB }, .kc_steps = 300, .kc_stores = 3,
	       .kc_keys = 30, .kc_logs = 2, .kc_record_max = 256,
	       .kc_weight = { [KM_TXN] = 70, [KM_PUT] = 8, [KM_DEL] = 3, [KM_SYNC] = 2,
			      [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 1, [KM_FLUSH_ONE] = 3,
			      [KM_REOPEN] = 1 }),
	/* batches, whose values lie in frames together; every other one has parts */
	ROT_WL("batches", true, .kc_bytes = { 16 * MiB, 8 * MiB }, .kc_steps = 240, .kc_stores = 3,
	       .kc_keys = 30, .kc_logs = 2, .kc_record_max = 512,
	       .kc_weight = { [KM_BATCH] = 50, [KM_TXN] = 10, [KM_PUT] = 8, [KM_DEL] = 3,
			      [KM_SYNC] = 2, [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 1,
			      [KM_FLUSH_ONE] = 3, [KM_REOPEN] = 1 }),
	/* what checkpoints hold, beside what goes on */
	ROT_WL("checkpoint", true, .kc_bytes = { 16 * MiB, 8 * MiB }, .kc_steps = 120,
	       .kc_stores = 2, .kc_keys = 24, .kc_logs = 2,
	       .kc_weight = { [KM_PUT] = 20, [KM_BIG] = 2, [KM_DEL] = 5, [KM_SYNC] = 2,
			      [KM_POLL] = 4, [KM_IDLE] = 1, [KM_FLUSH] = 3, [KM_COMPACT] = 2,
			      [KM_REOPEN] = 1, [KM_CKPT] = 4, [KM_UNCKPT] = 2 }),
	/* logs of two generations */
	AGAIN_WL("again", false, .kc_bytes = { 16 * MiB }, .kc_steps = 120, .kc_stores = 2,
		 .kc_keys = 40, .kc_logs = 2,
		 .kc_weight = { [KM_PUT] = 24, [KM_BIG] = 3, [KM_DEL] = 5, [KM_MANY] = 2,
				[KM_SYNC] = 4, [KM_POLL] = 5, [KM_IDLE] = 2, [KM_FLUSH] = 1 }),
	AGAIN_WL("replay", true, .kc_bytes = { 16 * MiB, 8 * MiB }, .kc_steps = 100,
		 .kc_stores = 2, .kc_keys = 30, .kc_logs = 3,
		 .kc_weight = { [KM_TXN] = 20, [KM_PUT] = 20, [KM_BIG] = 1, [KM_DEL] = 4,
				[KM_SYNC] = 3, [KM_POLL] = 2, [KM_FLUSH_ONE] = 1,
				[KM_REOPEN] = 1 }),
};

static void tap(bool ok, const char *name, const char *what)
{
	t_failed += !ok;
	printf("%s %u - %s%s\n", ok ? "ok" : "not ok", ++t_count, name, what);
	fflush(stdout);
}

static bool is_chosen(int argc, char **argv, unsigned i)
{
	for (int k = 1; k < argc; k++)
		if (!strcmp(argv[k], workload[i].w_conf.kc_name))
			return true;
	return argc < 2 && t_is_mine(i);
}

static void configure(struct eng_conf *c)
{
	bool is_short = getenv("TEST_SHORT"), is_long = getenv("TEST_LONG");

	/* a gate asks the same each time */
	if (!is_long)
		setenv("SEED", "1", 0);
	eng_conf_default(c, t_seed());
	c->ec_again_every = c->ec_post_every = 0;
	c->ec_per_point = is_short ? 1 : is_long ? 40 : 4;
	c->ec_max_passes = 1;
	c->ec_seconds = 1e6;	/* work is bounded, not time */
	damages = is_short ? 1 : is_long ? 4 : 3;
}

static void print_kinds(void)
{
	for (unsigned h = 0; h < H_KINDS; h++)
		for (unsigned w = 0; w < W_KINDS; w++)
			printf("# %s of %s: %" PRIu64 " states\n", how_name[h], what_name[w],
			       states[h][w]);
	t_figure("media damage", "%" PRIu64 " states: %" PRIu64 " refused, %" PRIu64
		 " lack values, %" PRIu64 " end earlier", total, refused, partly, rolled);
}

int main(int argc, char **argv)
{
	static struct eng e;
	struct eng_conf conf;

	configure(&conf);
	eng_init(&e);
	for (unsigned i = 0; i < sizeof(workload) / sizeof(workload[0]); i++) {
		bool ok;

		if (!is_chosen(argc, argv, i))
			continue;
		ok = eng_run(&e, &workload[i].w_ops, &conf);
		if (!ok || (conf.ec_is_hunt && e.e_n.en_violations))
			printf("# %s: %s\n", workload[i].w_conf.kc_name, e.e_why);
		eng_print(&e);
		tap(ok && !e.e_n.en_violations && e.e_n.en_states, workload[i].w_conf.kc_name,
		    "_loses_only_what_is_damaged");
	}
	print_kinds();
	if (argc < 2 && !getenv("TEST_SHORT") && !getenv("CRASH_STATE") && !getenv("PIECE") &&
	    !conf.ec_is_hunt)
		tap(total >= WANTED, "there_are_50000_damaged_states", "");
	for (unsigned d = 0; d < SIM_DEVS; d++) {
		free(before[0][d]);
		free(before[1][d]);
	}
	eng_fini(&e);
	return t_done();
}
