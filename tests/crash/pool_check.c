/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a recovered pool must show. For every effect of the model: certain ones
 * are there, ones that had not begun are not, and all effects of the one call in
 * flight agree. Committed and sealed contents are compared byte for byte, logs
 * with their records, metadata containers with their newest complete version.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool_model.h"

#define LIST_MAX	1024u

struct judge {
	struct eng *j_eng;
	const struct pm *j_m;
	unsigned j_at;
	int j_outcome;		/* of the call in flight: -1 not known yet */
	struct mpool_obj_info j_list[LIST_MAX];
	unsigned j_n;
	bool j_is_known[LIST_MAX];
};

/* the call in flight happened, or not: all its effects must say the same */
static int in_flight(struct judge *j, int happened, const char *what, uint64_t id)
{
	if (j->j_outcome >= 0 && j->j_outcome != happened)
		return eng_fail(j->j_eng, "%s %" PRIx64 ": half of a call is there", what, id);
	j->j_outcome = happened;
	return 0;
}

/* Is @is_there a legal outcome of the effect at @t? */
static int effect(struct judge *j, struct pm_time t, bool is_there, const char *what, uint64_t id)
{
	if (pm_certain(t, j->j_at))
		return is_there ? 0 : eng_fail(j->j_eng, "%s of %" PRIx64 " was durable, is lost",
					       what, id);
	if (!pm_begun(t, j->j_at))
		return is_there ? eng_fail(j->j_eng, "%s of %" PRIx64 " never happened", what, id) :
				  0;
	return in_flight(j, is_there, what, id);
}

/* Existence is the effect of one call minus the effect of a later one. */
static int existence(struct judge *j, struct pm_time exists, struct pm_time deleted, bool is_there,
		     uint64_t id)
{
	if (pm_begun(deleted, j->j_at))
		return effect(j, deleted, !is_there, "delete", id);
	return effect(j, exists, is_there, "creation", id);
}

static const struct mpool_obj_info *listed(struct judge *j, uint64_t id)
{
	unsigned lo = 0, hi = j->j_n;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if (j->j_list[mid].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == j->j_n || j->j_list[lo].id != id)
		return NULL;
	j->j_is_known[lo] = true;
	return &j->j_list[lo];
}

/* One whose making failed: its id is not known, but its tag is. */
static const struct mpool_obj_info *tagged(struct judge *j, uint32_t kind, uint64_t tag)
{
	unsigned i;

	for (i = 0; i < j->j_n; i++)
		if (j->j_list[i].kind == kind && j->j_list[i].tag == tag) {
			j->j_is_known[i] = true;
			return &j->j_list[i];
		}
	return NULL;
}

int pm_content(struct eng *e, struct mpool_obj *h, const struct pm_obj *o, uint64_t len)
{
	uint8_t want[SIM_PAGE];
	struct iovec iov;
	uint64_t off;
	int rc;

	if (!len)
		return 0;
	iov.iov_len = len;
	if (posix_memalign(&iov.iov_base, SIM_PAGE, len))
		return eng_fail(e, "no memory");
	rc = mpool_read(h, 0, &iov, 1);
	if (rc)
		rc = eng_fail(e, "object %" PRIx64 " cannot be read: %d (%s)", o->o_id, rc,
			      mpool_error_detail()->text);
	for (off = 0; !rc && off < len; off += SIM_PAGE) {
		pm_fill(want, sizeof(want), o->o_pat, off);
		if (memcmp(want, (uint8_t *)iov.iov_base + off, SIM_PAGE))
			rc = eng_wrong(e, "object %" PRIx64 " is wrong at %" PRIu64 " of %"
				       PRIu64, o->o_id, off, len);
	}
	free(iov.iov_base);
	return rc;
}

/* An append object shows its own bytes, zeroes or what the pool wrote there before: no other's. */
int pm_foreign(struct eng *e, struct mpool_obj *h, uint64_t id, uint64_t capacity)
{
	const uint64_t mark = SIM_FOREIGN;
	struct iovec iov = { .iov_len = capacity };
	uint64_t off;
	int rc;

	if (posix_memalign(&iov.iov_base, SIM_PAGE, capacity))
		return eng_fail(e, "no memory");
	rc = mpool_read(h, 0, &iov, 1);
	if (rc)
		rc = eng_fail(e, "object %" PRIx64 " cannot be read: %d (%s)", id, rc,
			      mpool_error_detail()->text);
	for (off = 0; !rc && off < capacity; off += SIM_SECTOR)
		if (!memcmp((uint8_t *)iov.iov_base + off, &mark, sizeof(mark)))
			rc = eng_wrong(e, "object %" PRIx64 " shows foreign bytes at %" PRIu64, id,
				       off);
	free(iov.iov_base);
	return rc;
}

static uint64_t flushed_length(const struct pm_obj *o, unsigned at)
{
	uint64_t len = 0;
	unsigned i;

	for (i = 0; i < o->o_nflush; i++)
		if (o->o_flush[i].at <= at)
			len = o->o_flush[i].len;
	return len;
}

static int judge_found(struct judge *j, struct pm_rt *rt, unsigned idx,
		       const struct mpool_obj_info *in)
{
	const struct pm_obj *o = &j->j_m->m_obj[idx];
	bool is_final = in->kind == MPOOL_MBLOCK || in->flags & MPOOL_OBJ_SEALED;
	uint64_t len = is_final ? o->o_length : flushed_length(o, j->j_at);
	int rc;

	if (in->kind != o->o_kind || in->tag != o->o_tag || in->mclass != o->o_mclass ||
	    in->capacity < o->o_capacity)
		return eng_fail(j->j_eng, "object %" PRIx64 " has other attributes", o->o_id);
	if (o->o_kind == MPOOL_APPEND &&
	    effect(j, o->o_sealed, in->flags & MPOOL_OBJ_SEALED, "seal", o->o_id))
		return -1;
	if (is_final && (in->length != o->o_length ||
			 !!(in->flags & MPOOL_OBJ_HAS_CRC) != o->o_has_crc))
		return eng_fail(j->j_eng, "object %" PRIx64 " has length %" PRIu64 " not %" PRIu64
				", or lost its CRC", o->o_id, in->length, o->o_length);
	rc = mpool_obj_open(rt->rt_mp, in->id, &rt->rt_obj[idx]);
	if (rc)
		return eng_fail(j->j_eng, "object %" PRIx64 " cannot be opened: %d", o->o_id, rc);
	rc = pm_content(j->j_eng, rt->rt_obj[idx], o, len);
	if (!rc && !is_final)
		rc = pm_foreign(j->j_eng, rt->rt_obj[idx], o->o_id, in->capacity);
	if (is_final || rc) {
		mpool_obj_close(rt->rt_obj[idx]);
		rt->rt_obj[idx] = NULL;
	}
	return rc;
}

static int judge_objects(struct judge *j, struct pm_rt *rt, struct pm *next)
{
	unsigned i;

	for (i = 0; i < j->j_m->m_nobj; i++) {
		const struct pm_obj *o = &j->j_m->m_obj[i];
		const struct mpool_obj_info *in;

		/* an id that no call had begun to make durable names no object yet */
		if (!pm_begun(o->o_exists, j->j_at))
			continue;
		in = o->o_id ? listed(j, o->o_id) : tagged(j, o->o_kind, o->o_tag);
		if (existence(j, o->o_exists, o->o_deleted, in != NULL, o->o_id) ||
		    (in && judge_found(j, rt, i, in)))
			return -1;
		if (!next || !in)
			continue;
		next->m_obj[i].o_id = in->id;
		next->m_obj[i].o_is_dead = false;
		next->m_obj[i].o_exists = (struct pm_time){ j->j_at, j->j_at };
		if (in->flags & MPOOL_OBJ_SEALED)
			next->m_obj[i].o_sealed = next->m_obj[i].o_exists;
		next->m_obj[i].o_nflush = flushed_length(o, j->j_at) ? 1 : 0;
		next->m_obj[i].o_flush[0].at = j->j_at;
		next->m_obj[i].o_flush[0].len = flushed_length(o, j->j_at);
		if (!(in->flags & MPOOL_OBJ_SEALED) && in->kind == MPOOL_APPEND)
			next->m_obj[i].o_written = flushed_length(o, j->j_at);
		next->m_obj[i].o_is_reopened = true;
	}
	return 0;
}

/* ---- streams ---- */

struct records {
	unsigned rc_n;
	uint32_t rc_len[PM_RECS];
	uint64_t rc_hash[PM_RECS];
};

static uint64_t rec_hash(const uint8_t *p, size_t len)
{
	uint64_t h = len;

	for (; len >= 8; len -= 8, p += 8) {
		uint64_t v;

		memcpy(&v, p, 8);
		h = (h ^ v) * 0x9e3779b97f4a7c15ull;
		h ^= h >> 29;
	}
	for (; len; len--, p++)
		h = (h ^ *p) * 0x100000001b3ull;
	return h;
}

static int records_read(struct judge *j, struct pm_rt *rt, unsigned st, struct records *rs)
{
	static uint8_t buf[PM_REC_MAX];
	uint64_t pos = 0;
	size_t len;
	int rc;

	for (rs->rc_n = 0; rs->rc_n < PM_RECS; rs->rc_n++) {
		rc = rt->rt_mdc[st] ? mpool_mdc_read(rt->rt_mdc[st], &pos, buf, sizeof(buf), &len) :
				      mpool_mlog_read(rt->rt_log[st], &pos, buf, sizeof(buf), &len);
		if (rc == -ENODATA)
			return 0;
		if (rc)
			return eng_fail(j->j_eng, "stream %u record %u: %d (%s)", st, rs->rc_n, rc,
					mpool_error_detail()->text);
		rs->rc_len[rs->rc_n] = (uint32_t)len;
		rs->rc_hash[rs->rc_n] = rec_hash(buf, len);
	}
	return eng_fail(j->j_eng, "stream %u does not end", st);
}

/* Do the records found make a legal prefix of version @ver? */
static bool version_fits(struct judge *j, unsigned ver, const struct records *rs)
{
	static uint8_t buf[PM_REC_MAX];
	const struct pm *m = j->j_m;
	unsigned i, n = 0, need = m->m_ver[ver].v_need, k = 0;

	for (i = 0; i < m->m_nrec; i++) {
		const struct pm_rec *r = &m->m_rec[i];

		if (r->r_ver != ver)
			continue;
		k++;
		if (r->r_durable <= j->j_at && k > need)
			need = k;
		if (n == rs->rc_n || n + 1 != k)
			continue;
		if (r->r_b > j->j_at || r->r_len != rs->rc_len[n])
			return false;
		pm_fill(buf, r->r_len, r->r_pat, 0);
		if (rec_hash(buf, r->r_len) != rs->rc_hash[n])
			return false;
		n++;
	}
	return n == rs->rc_n && n >= need;
}

static void next_version(struct judge *j, struct pm *next, unsigned st, unsigned ver, unsigned n)
{
	const struct pm *m = j->j_m;
	unsigned i, k = 0;

	next->m_ver[next->m_nver].v_stream = (uint16_t)st;
	next->m_ver[next->m_nver].v_need = 0;
	next->m_ver[next->m_nver].v_switch = (struct pm_time){ j->j_at, j->j_at };
	for (i = 0; i < m->m_nrec && k < n; i++) {
		struct pm_rec *r = &next->m_rec[next->m_nrec];

		if (m->m_rec[i].r_ver != ver)
			continue;
		*r = m->m_rec[i];
		r->r_ver = (uint16_t)next->m_nver;
		/*
		 * Seen, so it stays. Only another crash may still take what no call had
		 * made durable: what it saw may have come from a device's cache.
		 */
		if (r->r_durable <= j->j_at || !j->j_eng->e_sim.s_log)
			r->r_durable = j->j_at;
		else
			r->r_durable = PM_NEVER;
		next->m_nrec++;
		k++;
	}
	next->m_nver++;
}

/* what was expected of a stream, for the message */
static void version_text(const struct judge *j, unsigned ver, char *buf, size_t size)
{
	const struct pm *m = j->j_m;
	unsigned i, n = 0, begun = 0, durable = 0;

	for (i = 0; i < m->m_nrec; i++) {
		if (m->m_rec[i].r_ver != ver)
			continue;
		n++;
		begun += m->m_rec[i].r_b <= j->j_at;
		durable += m->m_rec[i].r_durable <= j->j_at;
	}
	snprintf(buf, size,
		 "version %d: switch %u..%u, %u records, %u begun, %u durable, %u at least",
		 (int)ver, m->m_ver[ver].v_switch.b, m->m_ver[ver].v_switch.e, n, begun, durable,
		 m->m_ver[ver].v_need);
}

static int judge_version(struct judge *j, struct pm_rt *rt, unsigned st, struct pm *next)
{
	static struct records rs;
	const struct pm *m = j->j_m;
	unsigned i, old = PM_NEVER, newer = PM_NEVER;

	if (records_read(j, rt, st, &rs))
		return -1;
	for (i = 0; i < m->m_nver; i++) {
		if (m->m_ver[i].v_stream != st || !pm_begun(m->m_ver[i].v_switch, j->j_at))
			continue;
		if (pm_certain(m->m_ver[i].v_switch, j->j_at) || old == PM_NEVER)
			old = i;
		else
			newer = i;
	}
	if (old != PM_NEVER && version_fits(j, old, &rs))
		newer = old;
	else if (newer == PM_NEVER || !version_fits(j, newer, &rs)) {
		char a[120] = "", b[120] = "";

		if (old != PM_NEVER)
			version_text(j, old, a, sizeof(a));
		if (newer != PM_NEVER)
			version_text(j, newer, b, sizeof(b));
		return eng_fail(j->j_eng,
				"stream %u shows %u records: no legal prefix of (%s) (%s)", st,
				rs.rc_n, a, b);
	}
	if (next)
		next_version(j, next, st, newer, rs.rc_n);
	return 0;
}

static int judge_stream(struct judge *j, struct pm_rt *rt, unsigned st, struct pm *next)
{
	const struct pm_stream *s = &j->j_m->m_stream[st];
	const struct mpool_obj_info *in = NULL;
	unsigned i, n = 0;
	int rc;

	if (!pm_begun(s->st_exists, j->j_at))
		return 0;
	if (s->st_is_mdc) {
		for (i = 0; i < j->j_n; i++) {
			if (j->j_list[i].tag != PM_TAG_MDC + st ||
			    j->j_list[i].kind != MPOOL_MLOG)
				continue;
			j->j_is_known[i] = true;
			in = &j->j_list[i];
			n++;
		}
		if (n == 1 || n > 2)
			return eng_fail(j->j_eng, "container %s has %u logs", s->st_name, n);
	} else {
		in = s->st_id ? listed(j, s->st_id) : tagged(j, MPOOL_MLOG, st);
	}
	if (existence(j, s->st_exists, s->st_deleted, in != NULL, s->st_id))
		return -1;
	if (!in)
		return 0;
	if (!s->st_is_mdc &&
	    effect(j, s->st_sealed, in->flags & MPOOL_OBJ_SEALED, "seal of mlog", s->st_id))
		return -1;
	rc = s->st_is_mdc ? mpool_mdc_open(rt->rt_mp, s->st_name, &rt->rt_mdc[st]) :
			    mpool_mlog_open(rt->rt_mp, in->id, &rt->rt_log[st]);
	if (rc)
		return eng_fail(j->j_eng, "stream %u cannot be opened: %d (%s)", st, rc,
				mpool_error_detail()->text);
	if (next) {
		struct pm_time now = { j->j_at, j->j_at };

		next->m_stream[st].st_id = in->id;
		next->m_stream[st].st_is_dead = false;
		next->m_stream[st].st_exists = now;
		if (in->flags & MPOOL_OBJ_SEALED)
			next->m_stream[st].st_sealed = now;
	}
	return judge_version(j, rt, st, next);
}

/* ---- administration ---- */

static int judge_admin(struct judge *j, struct mpool *mp, struct pm *next)
{
	const struct pm *m = j->j_m;
	struct pm_adm found = { .a_devs = 0 };
	unsigned i, old = 0;

	if (!m->m_nadm)
		return 0;
	if (pm_adm_read(j->j_eng, mp, &found) || pm_adm_names(j->j_eng, mp))
		return -1;
	for (i = 0; i < m->m_nadm; i++)
		if (pm_certain(m->m_adm[i].a_t, j->j_at))
			old = i;
	i = old + 1;
	if (next) {
		next->m_adm[0] = found;
		next->m_adm[0].a_t = (struct pm_time){ 0, 0 };
		next->m_nadm = 1;
	}
	if (i < m->m_nadm && pm_begun(m->m_adm[i].a_t, j->j_at)) {
		if (pm_adm_equal(&found, &m->m_adm[i]))
			return in_flight(j, 1, "administration", i);
		if (pm_adm_equal(&found, &m->m_adm[old]))
			return in_flight(j, 0, "administration", i);
	} else if (pm_adm_equal(&found, &m->m_adm[old])) {
		return 0;
	}
	return eng_fail(j->j_eng, "state %u of administration (%s '%s' %u devices %" PRIu64
			" bytes), found %s '%s' %u devices %" PRIu64 " bytes", old,
			m->m_adm[old].a_name, m->m_adm[old].a_label, m->m_adm[old].a_devs,
			m->m_adm[old].a_bytes, found.a_name, found.a_label, found.a_devs,
			found.a_bytes);
}

/* ---- the whole ---- */

/* What a model looks like to which nothing happened. */
static void next_begin(const struct pm *m, unsigned at, struct pm *next)
{
	unsigned i;

	*next = *m;
	next->m_nrec = next->m_nver = next->m_nadm = 0;
	next->m_max_id = 0;
	next->m_prev = NULL;
	next->m_certain = PM_NEVER;
	next->m_created = (struct pm_time){ at, at };
	next->m_destroyed = pm_never;
	for (i = 0; i < m->m_nobj; i++) {
		if (m->m_obj[i].o_given > at)
			next->m_obj[i].o_given = PM_NEVER;
		else if (m->m_obj[i].o_id > next->m_max_id)
			next->m_max_id = m->m_obj[i].o_id;
		next->m_obj[i].o_is_dead = true;
		next->m_obj[i].o_exists = next->m_obj[i].o_sealed = pm_never;
		next->m_obj[i].o_deleted = pm_never;
	}
	for (i = 0; i < m->m_nstream; i++) {
		next->m_stream[i].st_is_dead = true;
		next->m_stream[i].st_exists = next->m_stream[i].st_sealed = pm_never;
		next->m_stream[i].st_deleted = pm_never;
	}
}

static int list_all(struct judge *j, struct mpool *mp, struct pm *next)
{
	uint64_t after = 0;
	int n;

	j->j_n = 0;
	for (;;) {
		n = mpool_objects(mp, after, 0, j->j_list + j->j_n, 64);
		if (n <= 0)
			break;
		if (j->j_list[j->j_n].id <= after)
			return eng_fail(j->j_eng, "the list of objects is out of order");
		j->j_n += (unsigned)n;
		after = j->j_list[j->j_n - 1].id;
		if (j->j_n + 64 > LIST_MAX)
			return eng_fail(j->j_eng, "too many objects");
	}
	if (n < 0)
		return eng_fail(j->j_eng, "mpool_objects: %d", n);
	if (next && next->m_max_id < after)
		next->m_max_id = after;
	memset(j->j_is_known, 0, sizeof(j->j_is_known));
	return 0;
}

/* All space that no object has is free. */
static int judge_space(struct judge *j, struct mpool *mp)
{
	uint64_t held[MPOOL_MCLASSES] = { 0 };
	struct mpool_info in;
	unsigned i;

	if (mpool_info(mp, &in))
		return eng_fail(j->j_eng, "mpool_info");
	for (i = 0; i < j->j_n; i++)
		held[j->j_list[i].mclass] += j->j_list[i].capacity;
	for (i = 0; i < MPOOL_MCLASSES; i++)
		if (in.cls[i].used != held[i])
			return eng_fail(j->j_eng, "class %u: %" PRIu64 " bytes used, objects have %"
					PRIu64, i, in.cls[i].used, held[i]);
	return 0;
}

static void problem(void *arg, const struct mpool_problem *p)
{
	char (*text)[160] = arg;

	if (p->is_damage)
		snprintf(*text, sizeof(*text), "%s %s", p->id, p->text);
}

/* The check tool finds nothing wrong and writes nothing. */
static int judge_verify(struct judge *j)
{
	struct sim *s = &j->j_eng->e_sim;
	struct mpool_open_opts oo;
	char text[160] = "";
	uint64_t damage = 0;
	int rc;

	pm_open_opts(j->j_eng, &oo);
	s->s_bad_writes = 0;
	s->s_is_frozen = true;
	rc = mpool_verify(PM_POOL, &oo, MPOOL_VERIFY_DATA, problem, &text, &damage);
	s->s_is_frozen = false;
	if (rc || damage)
		return eng_fail(j->j_eng, "mpool_verify: %d, %" PRIu64 " damaged: %s%s", rc, damage,
				text, rc ? mpool_error_detail()->text : "");
	return s->s_bad_writes ? eng_fail(j->j_eng, "mpool_verify wrote to a device") : 0;
}

static bool may_be_absent(const struct pm *m, unsigned at)
{
	return !pm_certain(m->m_created, at) || pm_begun(m->m_destroyed, at);
}

int pm_judge(struct eng *e, const struct pm *m, unsigned at, struct pm_rt *rt, struct pm *next)
{
	static struct judge judge;
	struct judge *j = &judge;
	struct mpool_open_opts oo;
	unsigned i;
	int rc;

	memset(rt, 0, sizeof(*rt));
	j->j_eng = e;
	j->j_m = m;
	j->j_at = at;
	j->j_outcome = -1;
	if ((e->e_rand & 3) == 0 && !may_be_absent(m, at) && judge_verify(j))
		return -1;
	pm_open_opts(e, &oo);
	eng_recovery_begin(e);
	rc = mpool_open(PM_POOL, &oo, &rt->rt_mp);
	eng_recovery_end(e);
	if (rc) {
		rt->rt_mp = NULL;
		if (may_be_absent(m, at))
			return 0;
		return eng_fail(e, "mpool_open: %d (%s)", rc, mpool_error_detail()->text);
	}
	if (pm_certain(m->m_destroyed, at))
		return eng_fail(e, "a destroyed pool is back");
	if (next)
		next_begin(m, at, next);
	if (judge_admin(j, rt->rt_mp, next) || list_all(j, rt->rt_mp, next) ||
	    judge_space(j, rt->rt_mp) || judge_objects(j, rt, next))
		return -1;
	for (i = 0; i < m->m_nstream; i++)
		if (judge_stream(j, rt, i, next))
			return -1;
	for (i = 0; i < j->j_n; i++)
		if (!j->j_is_known[i])
			return eng_fail(e, "object %" PRIx64 " (kind %u, tag %" PRIx64
					") should not exist", j->j_list[i].id, j->j_list[i].kind,
					j->j_list[i].tag);
	return 0;
}
