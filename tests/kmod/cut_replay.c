/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The half of the power-cut test that runs outside the virtual machine. See powercut.h.
 *
 *	cut_replay base FILE		what the logged device holds before the test
 *	cut_replay show LOG		the entries of a log
 *	cut_replay [options] judge LOG ORACLE
 *
 *	-n COUNT	distinct states wanted (default 500)
 *	-x FILE -N COUNT	write so many of them to FILE, for the module to open
 *	-b		the recorded product is broken on purpose: one violation is wanted
 *	-f		ignore flushes and FUA in the log: one violation is wanted
 *	-p		plant each ordering bug of the crash engine: each must be found
 *
 * LOG is in the format of the Linux device-mapper target log-writes, which QEMU's
 * filter blklogwrites writes too: a superblock, then per entry a sector of header
 * with its data behind it.
 *
 * What one FUA write looks like (host_powercut.sh shows it again on each run). The
 * program wrote A and no flush, set mark 1, wrote B with RWF_DSYNC, set mark 2,
 * called fsync(), set mark 3. Each mark is a message and a written sector (w):
 *
 *	log-writes, in the guest, kernel 6.1, above a virtio disk without FUA
 *		mark 1, B FUA, A, w1, flush, mark 2, w2, flush, mark 3, w3
 *	blklogwrites of QEMU 7.2, below the same disk
 *		A, w1, B, flush, w2, flush, w3
 *
 * log-writes sees the bio as it was submitted, with its flag, and holds a plain
 * write back until the flush that covers it: A is logged after B although it completed
 * earlier, which is right, for B's FUA made only B durable. That a crash state of its
 * log never shows A without B is its limit; subsets of the writes before a flush are
 * ours to choose. RWF_DSYNC on a block device sends a flush behind the FUA write.
 * blklogwrites sees the order of completion, and what the block layer made of a
 * FUA write for a disk without it: a write and a flush. QEMU leaves out a flush
 * after which nothing was written, such as the one behind that. It knows no
 * messages: its marks are the written sectors.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "harness.h"
#include "powercut.h"

#define LOG_MAGIC	0x6a736677736872ull
#define ENTRY_FLUSH	1u
#define ENTRY_FUA	2u
#define ENTRY_DISCARD	4u
#define ENTRY_MARK	8u

/* a header on media, little-endian as this machine is */
struct log_super {
	uint64_t ls_magic, ls_version, ls_entries;
	uint32_t ls_sector;	/* bytes */
} __attribute__((packed));

struct log_entry {
	uint64_t le_sector, le_sectors, le_flags, le_data;
};

struct log {
	const uint8_t *lg_p;
	size_t lg_bytes;
	uint32_t lg_sector;
	uint64_t lg_entries;
};

/* one entry: bytes instead of sectors; NULL data for flush and discard */
struct entry {
	uint64_t en_index, en_off, en_len;
	unsigned en_flags;
	const uint8_t *en_data;
};

struct replay {
	struct cut_oracle r_or;
	struct sim_log r_log;		/* events; data stays in the mapped file */
	unsigned *r_pos;		/* of each mark: index of the event after it */
	uint8_t *r_touched[2];		/* per page of a member: the log writes it */
	bool r_has_messages;
	bool r_is_deaf;			/* -f */
	unsigned r_flushes, r_fua, r_writes;
	/* export */
	FILE *r_out;
	uint64_t r_seen, r_every, r_written, r_want;
};

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "cut_replay: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(2);
}

/* ---- logs ---- */

static void log_open(struct log *lg, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct log_super ls;
	struct stat st;
	void *p;

	if (fd < 0 || fstat(fd, &st))
		die("%s: %s", path, strerror(errno));
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (st.st_size < 4096 || p == MAP_FAILED)
		die("%s is too short for a log", path);
	memcpy(&ls, p, sizeof(ls));
	if (ls.ls_magic != LOG_MAGIC || ls.ls_version != 1 || ls.ls_sector < 512 ||
	    ls.ls_sector > 4096)
		die("%s is not a log of version 1", path);
	lg->lg_p = p;
	lg->lg_bytes = (size_t)st.st_size;
	lg->lg_sector = ls.ls_sector;
	lg->lg_entries = ls.ls_entries;
}

static void log_walk(const struct log *lg, void (*fn)(void *arg, const struct entry *en), void *arg)
{
	uint64_t at = lg->lg_sector, k;

	for (k = 0; k < lg->lg_entries; k++) {
		struct entry en = { .en_index = k };
		struct log_entry le;
		uint64_t data = 0;

		if (at + lg->lg_sector > lg->lg_bytes)
			die("entry %" PRIu64 " lies behind the log's end", k);
		memcpy(&le, lg->lg_p + at, sizeof(le));
		en.en_flags = (unsigned)le.le_flags;
		en.en_off = le.le_sector * lg->lg_sector;
		en.en_len = le.le_sectors * lg->lg_sector;
		if (en.en_flags & ENTRY_MARK) {
			en.en_data = lg->lg_p + at + sizeof(le);
			en.en_len = le.le_data;
			if (en.en_len > lg->lg_sector - sizeof(le))
				die("entry %" PRIu64 ": mark of %" PRIu64 " bytes", k, en.en_len);
		} else if (!(en.en_flags & ENTRY_DISCARD) && en.en_len) {
			en.en_data = lg->lg_p + at + lg->lg_sector;
			data = en.en_len;
		}
		if (data > lg->lg_bytes - at - lg->lg_sector)
			die("entry %" PRIu64 " lies behind the log's end", k);
		fn(arg, &en);
		at += lg->lg_sector + data;
	}
}

/* the number of a mark, or 0 */
static uint64_t mark_number(const struct entry *en)
{
	struct cut_mark ma;
	char text[64] = "";
	uint64_t n = 0;

	if (en->en_flags & ENTRY_MARK) {
		memcpy(text, en->en_data, en->en_len < 63 ? en->en_len : 63);
		return sscanf(text, "%" SCNu64, &n) == 1 ? n : 0;
	}
	if (en->en_off < CUT_CAP_BYTES + CUT_STG_BYTES || en->en_len < sizeof(ma) || !en->en_data)
		return 0;
	memcpy(&ma, en->en_data, sizeof(ma));
	return memcmp(ma.ma_magic, CUT_MARK_MAGIC, sizeof(ma.ma_magic)) ? 0 : ma.ma_number;
}

static void show(void *arg, const struct entry *en)
{
	uint64_t mark = mark_number(en);

	(void)arg;
	printf("%5" PRIu64 " ", en->en_index);
	if (mark)
		printf("mark %" PRIu64 "%s", mark, en->en_flags & ENTRY_MARK ? "" : " (written)");
	else if (en->en_flags & ENTRY_MARK)
		printf("message");
	else if (en->en_flags & ENTRY_DISCARD)
		printf("discard %" PRIu64 "+%" PRIu64, en->en_off, en->en_len);
	else if (en->en_len)
		printf("write %" PRIu64 "+%" PRIu64, en->en_off, en->en_len);
	printf("%s%s\n", en->en_flags & ENTRY_FLUSH ? " flush" : "",
	       en->en_flags & ENTRY_FUA ? " FUA" : "");
}

/* ---- a log as events ---- */

static struct sim_ev *event(struct replay *r, unsigned type, unsigned dev)
{
	struct sim_log *lo = &r->r_log;

	if (lo->lo_n == lo->lo_cap) {
		lo->lo_cap = lo->lo_cap ? lo->lo_cap * 2 : 1024;
		lo->lo_ev = realloc(lo->lo_ev, lo->lo_cap * sizeof(*lo->lo_ev));
		if (!lo->lo_ev)
			die("no memory");
	}
	memset(&lo->lo_ev[lo->lo_n], 0, sizeof(*lo->lo_ev));
	lo->lo_ev[lo->lo_n].ev_type = (uint8_t)type;
	lo->lo_ev[lo->lo_n].ev_dev = (uint8_t)dev;
	return &lo->lo_ev[lo->lo_n++];
}

static void find_messages(void *arg, const struct entry *en)
{
	struct replay *r = arg;

	if (en->en_flags & ENTRY_MARK && mark_number(en))
		r->r_has_messages = true;
}

static void entry_load(void *arg, const struct entry *en)
{
	struct replay *r = arg;
	uint64_t mark = mark_number(en), off = en->en_off;
	unsigned dev = off >= CUT_CAP_BYTES;
	struct sim_ev *ev;

	if (mark && r->r_has_messages == !!(en->en_flags & ENTRY_MARK)) {
		if (mark > r->r_or.or_marks)
			die("mark %" PRIu64 " is not the oracle's", mark);
		r->r_pos[mark] = sim_log_end(&r->r_log);
	}
	if (en->en_flags & ENTRY_MARK)
		return;
	if (en->en_flags & ENTRY_FLUSH && !r->r_is_deaf) {
		/* one cache for both members: they are slices of one disk */
		event(r, SIM_FLUSH, 0);
		event(r, SIM_FLUSH, 1);
		r->r_flushes++;
	}
	if (!en->en_len || off >= CUT_CAP_BYTES + CUT_STG_BYTES)
		return;
	if (dev)
		off -= CUT_CAP_BYTES;
	if (off + en->en_len > cut_bytes[dev])
		die("entry %" PRIu64 " crosses a member's end", en->en_index);
	memset(r->r_touched[dev] + off / SIM_PAGE, 1,
	       (off % SIM_PAGE + en->en_len + SIM_PAGE - 1) / SIM_PAGE);
	ev = event(r, en->en_data ? SIM_WRITE : SIM_DISCARD, dev);
	ev->ev_off = off;
	ev->ev_len = (uint32_t)en->en_len;
	ev->ev_data = en->en_data;
	ev->ev_is_fua = en->en_flags & ENTRY_FUA && !r->r_is_deaf;
	r->r_fua += ev->ev_is_fua;
	r->r_writes += en->en_data != NULL;
}

/* ---- the oracle: from marks to indexes of events ---- */

static void convert(struct replay *r, unsigned *t)
{
	if (*t == PM_NEVER)
		return;
	if (!*t || *t > r->r_or.or_marks || r->r_pos[*t] == PM_NEVER)
		die("mark %u is not in the log", *t);
	*t = r->r_pos[*t];
}

static void convert_time(struct replay *r, struct pm_time *t)
{
	convert(r, &t->b);
	convert(r, &t->e);
}

static void oracle_convert(struct replay *r)
{
	struct pm *m = &r->r_or.or_pm;
	unsigned i, k;

	for (i = 0; i < m->m_nobj; i++) {
		convert_time(r, &m->m_obj[i].o_exists);
		convert_time(r, &m->m_obj[i].o_sealed);
		convert_time(r, &m->m_obj[i].o_deleted);
		for (k = 0; k < m->m_obj[i].o_nflush; k++)
			convert(r, &m->m_obj[i].o_flush[k].at);
	}
	for (i = 0; i < m->m_nstream; i++) {
		convert_time(r, &m->m_stream[i].st_exists);
		convert_time(r, &m->m_stream[i].st_deleted);
		convert_time(r, &m->m_stream[i].st_sealed);
	}
	for (i = 0; i < m->m_nrec; i++) {
		convert(r, &m->m_rec[i].r_b);
		convert(r, &m->m_rec[i].r_durable);
	}
	for (i = 0; i < m->m_nver; i++)
		convert_time(r, &m->m_ver[i].v_switch);
	convert_time(r, &m->m_created);
	convert_time(r, &m->m_destroyed);
	for (i = 1; i < r->r_or.or_nlabel; i++)
		convert_time(r, &r->r_or.or_label[i].la_time);
}

static void load(struct replay *r, const char *log, const char *oracle)
{
	FILE *f = fopen(oracle, "r");
	struct log lg;
	uint64_t i;

	if (!f)
		die("%s: %s", oracle, strerror(errno));
	if (fread(&r->r_or, sizeof(r->r_or), 1, f) != 1 ||
	    memcmp(r->r_or.or_magic, CUT_ORACLE_MAGIC, sizeof(r->r_or.or_magic)) ||
	    r->r_or.or_bytes != sizeof(r->r_or))
		die("%s is not the oracle of this program", oracle);
	fclose(f);
	r->r_pos = malloc((r->r_or.or_marks + 1) * sizeof(*r->r_pos));
	if (!r->r_pos)
		die("no memory");
	for (i = 0; i <= r->r_or.or_marks; i++)
		r->r_pos[i] = PM_NEVER;
	for (i = 0; i < 2; i++) {
		r->r_touched[i] = calloc(1, cut_bytes[i] / SIM_PAGE);
		if (!r->r_touched[i])
			die("no memory");
	}
	sim_log_init(&r->r_log, 1);
	log_open(&lg, log);
	log_walk(&lg, find_messages, r);
	log_walk(&lg, entry_load, r);
	oracle_convert(r);
}

/* ---- states ---- */

/* A member as it was before the pool was made. */
static void member_make(struct sim *s, const char *path, unsigned dev)
{
	struct mpool_vdev v;

	if (s->s_prov.open(s, path, 1, 0, cut_bytes[dev], &v))
		die("simulated device %s", path);
	v.ops->close(v.dev);
}

static void meta_range(void *arg, const struct mpool_extent *x)
{
	if (!x->id)
		sim_meta_add(arg, x->slot, x->off, x->len);
}

/* Which events touch the pool's own metadata? The planted bugs need to know. */
static void meta_find(struct eng *e, const struct replay *r)
{
	struct sim *s = &e->e_sim;
	struct mpool_open_opts oo;
	struct sim_cut cu;
	unsigned i, k;

	sim_snap(s);
	sim_cut_init(&cu, s, &e->e_log, PLANT_NONE);
	sim_cut_to(&cu, r->r_or.or_pm.m_destroyed.b);
	sim_cut_apply_all(&cu, false);
	pm_open_opts(e, &oo);
	if (mpool_map(PM_POOL, &oo, meta_range, s))
		printf("# mpool_map: %s\n", mpool_error_detail()->text);
	sim_cut_fini(&cu);
	sim_release(s);
	sim_rollback(s);
	for (i = 0; i < e->e_log.lo_n; i++) {
		struct sim_ev *ev = &e->e_log.lo_ev[i];

		for (k = 0; k < s->s_nmeta; k++)
			if (ev->ev_type == SIM_WRITE && s->s_meta[k].m_dev == ev->ev_dev &&
			    ev->ev_off >= s->s_meta[k].m_off &&
			    ev->ev_off < s->s_meta[k].m_off + s->s_meta[k].m_len)
				ev->ev_is_meta = 1;
	}
}

static int replay_record(struct eng *e, void **model)
{
	static const char conf[] =
		"{\"devices\":[{\"path\":\"capacity\",\"class\":\"capacity\"},"
		"{\"path\":\"staging\",\"class\":\"staging\"}]}";
	struct replay *r = e->e_data;
	struct sim *s = &e->e_sim;

	/* cut_old_page() is how the simulator fills a dirty device */
	s->s_is_dirty = true;
	member_make(s, "capacity", 0);
	member_make(s, "staging", 1);
	s->s_prov.config_store(s, PM_POOL, conf);
	eng_record_begin(e);
	s->s_log = NULL;
	e->e_log.lo_ev = malloc((r->r_log.lo_n + 1) * sizeof(*e->e_log.lo_ev));
	if (!e->e_log.lo_ev)
		return eng_fail(e, "no memory");
	memcpy(e->e_log.lo_ev, r->r_log.lo_ev, r->r_log.lo_n * sizeof(*e->e_log.lo_ev));
	e->e_log.lo_n = e->e_log.lo_cap = r->r_log.lo_n;
	meta_find(e, r);
	*model = &r->r_or.or_pm;
	return 0;
}

static int labels_judge(struct eng *e, const struct replay *r, unsigned at, struct pm_rt *rt)
{
	struct mpool_info info;
	const char *want;

	if (mpool_info(rt->rt_mp, &info))
		return eng_fail(e, "mpool_info");
	want = cut_label_check(&r->r_or, at, info.name, info.label);
	return want ? eng_fail(e, "name %s, label \"%s\": wanted name \"%s\"", info.name,
			       info.label, want) : 0;
}

static void state_write(struct eng *e, struct replay *r, unsigned at)
{
	struct cut_state st = { .st_at = at, .st_rand = e->e_rand };
	struct sim *s = &e->e_sim;
	uint8_t old[SIM_PAGE];
	unsigned pass, dev;
	struct cut_page pa;
	uint64_t off;

	memcpy(st.st_path, e->e_path, sizeof(st.st_path));
	for (pass = 0; pass < 2; pass++) {
		for (dev = 0; dev < 2; dev++) {
			for (off = 0; off < cut_bytes[dev]; off += SIM_PAGE) {
				cut_old_page(old, off);
				if (!memcmp(old, s->s_dev[dev].d_mem + off, SIM_PAGE))
					continue;
				if (!pass) {
					st.st_pages++;
					continue;
				}
				pa.pa_dev = dev;
				pa.pa_page = (uint32_t)(off / SIM_PAGE);
				memcpy(pa.pa_data, s->s_dev[dev].d_mem + off, SIM_PAGE);
				fwrite(&pa, sizeof(pa), 1, r->r_out);
			}
		}
		if (!pass)
			fwrite(&st, sizeof(st), 1, r->r_out);
	}
	r->r_written++;
}

/*
 * What makes a state distinct: what was acknowledged, and every byte of the
 * members. The engine's own measure, what recovery reads, leaves out contents.
 */
static uint64_t state_hash(const struct eng *e, const struct replay *r, unsigned at)
{
	const uint8_t *mem[2] = { e->e_sim.s_dev[0].d_mem, e->e_sim.s_dev[1].d_mem };
	uint64_t h = at, page;
	unsigned dev;

	for (dev = 0; dev < 2; dev++)
		for (page = 0; page < cut_bytes[dev] / SIM_PAGE; page++)
			if (r->r_touched[dev][page])
				h = XXH3_64bits_withSeed(mem[dev] + page * SIM_PAGE, SIM_PAGE, h);
	return h;
}

static int replay_check(struct eng *e, void *model, unsigned at, bool post)
{
	static struct pm_rt rt;
	struct replay *r = e->e_data;
	int rc;

	(void)post;
	if (r->r_out) {
		if (r->r_seen++ % r->r_every == r->r_every / 2 && r->r_written < r->r_want)
			state_write(e, r, at);
		return 0;
	}
	e->e_hash = state_hash(e, r, at);
	e->e_has_hash = true;
	rc = pm_judge(e, model, at, &rt, NULL);
	if (!rc && rt.rt_mp)
		rc = labels_judge(e, r, at, &rt);
	if (rt.rt_mp)
		rc |= pm_rt_close(e, model, &rt);
	return rc;
}

static void model_keep(void *model)
{
	(void)model;
}

static const struct eng_ops replay_ops = {
	.eo_name = "log",
	.eo_is_two_devs = true,
	.eo_record = replay_record,
	.eo_check = replay_check,
	.eo_free = model_keep,
};

/* ---- commands ---- */

static void conf_make(struct eng_conf *c, uint64_t seed, unsigned want, unsigned events)
{
	memset(c, 0, sizeof(*c));
	c->ec_seed = seed;
	c->ec_want = want;
	/* the first pass visits every event: both extremes, and some between */
	c->ec_per_point = 3 + 2 * want / (events + 1);
	if (c->ec_per_point > 400)
		c->ec_per_point = 400;
	c->ec_seconds = 3600;
	c->ec_max_passes = 10;
}

static int export(struct eng *e, struct replay *r, const struct eng_conf *conf, const char *path,
		  unsigned want)
{
	struct eng_conf c = *conf;
	struct cut_pack pk = { .pk_bytes = sizeof(r->r_or), .pk_states = want };

	/* the states of the first pass, spread evenly; they are the same each time */
	c.ec_max_passes = 1;
	c.ec_want = UINT32_MAX;
	r->r_out = fopen("/dev/null", "w");
	r->r_want = 0;
	r->r_every = 1;
	if (!r->r_out || !eng_run(e, &replay_ops, &c))
		die("export: %s", e->e_why);
	fclose(r->r_out);
	if (e->e_n.en_states < want)
		die("only %" PRIu64 " states to choose %u from", e->e_n.en_states, want);
	r->r_every = e->e_n.en_states / want;
	r->r_want = want;
	r->r_seen = 0;
	r->r_out = fopen(path, "w");
	if (!r->r_out)
		die("%s: %s", path, strerror(errno));
	memcpy(pk.pk_magic, CUT_PACK_MAGIC, sizeof(pk.pk_magic));
	fwrite(&pk, sizeof(pk), 1, r->r_out);
	fwrite(&r->r_or, sizeof(r->r_or), 1, r->r_out);
	eng_run(e, &replay_ops, &c);
	if (ferror(r->r_out) || fclose(r->r_out))
		die("%s: %s", path, strerror(errno));
	r->r_out = NULL;
	printf("# %" PRIu64 " states for the module\n", r->r_written);
	return r->r_written == want ? 0 : 1;
}

/* The judge's own power: every planted bug must be seen. */
static int plants(struct eng *e, const struct eng_conf *conf)
{
	struct eng_conf c = *conf;
	unsigned p;
	int rc = 0;

	c.ec_is_hunt = true;
	c.ec_max_passes = 3;
	c.ec_per_point = 16;
	for (p = 1; p < PLANTS; p++) {
		bool found;

		c.ec_plant = (enum sim_plant)p;
		found = eng_run(e, &replay_ops, &c) && e->e_n.en_violations;
		printf("# planted \"%s\": %s%s\n", sim_plant_name[p],
		       found ? "found: " : "NOT FOUND", found ? e->e_why : "");
		rc |= !found;
	}
	return rc;
}

static int base(const char *path)
{
	FILE *f = fopen(path, "w");
	uint8_t page[SIM_PAGE];
	unsigned dev;
	uint64_t off;

	if (!f)
		die("%s: %s", path, strerror(errno));
	for (dev = 0; dev < 2; dev++) {
		for (off = 0; off < cut_bytes[dev]; off += SIM_PAGE) {
			cut_old_page(page, off);
			fwrite(page, sizeof(page), 1, f);
		}
	}
	memset(page, 0, sizeof(page));
	for (off = 0; off < CUT_MARK_BYTES; off += SIM_PAGE)
		fwrite(page, sizeof(page), 1, f);
	if (ferror(f) || fclose(f))
		die("%s: %s", path, strerror(errno));
	return 0;
}

struct options {
	unsigned o_want, o_states;
	bool o_is_broken, o_plants;
	const char *o_out;
};

/* 0: as wanted; 1: not */
static int judge(struct replay *r, const struct options *o)
{
	static struct eng e;
	struct eng_conf conf;
	int rc;

	conf_make(&conf, t_seed(), o->o_want, r->r_log.lo_n);
	eng_init(&e);
	e.e_data = r;
	conf.ec_is_hunt = o->o_is_broken || r->r_is_deaf;
	printf("# %u writes (%u FUA), %u flushes, %" PRIu64 " marks by %s\n", r->r_writes, r->r_fua,
	       r->r_flushes, r->r_or.or_marks, r->r_has_messages ? "message" : "writing");
	if (!eng_run(&e, &replay_ops, &conf))
		die("%s", e.e_why);
	eng_print(&e);
	if (conf.ec_is_hunt) {
		printf("# broken on purpose: %s\n", e.e_n.en_violations ? e.e_why : "not noticed");
		rc = !e.e_n.en_violations;
	} else {
		rc = e.e_n.en_violations || e.e_n.en_distinct < o->o_want;
	}
	if (!rc && o->o_out)
		rc = export(&e, r, &conf, o->o_out, o->o_states);
	if (!rc && o->o_plants)
		rc = plants(&e, &conf);
	eng_fini(&e);
	return rc;
}

int main(int argc, char **argv)
{
	static struct replay r;
	struct options o = { .o_want = 500, .o_states = 50 };
	struct log lg;
	int c;

	while ((c = getopt(argc, argv, "n:x:N:bfp")) != -1) {
		switch (c) {
		case 'n':
			o.o_want = (unsigned)atoi(optarg);
			break;
		case 'x':
			o.o_out = optarg;
			break;
		case 'N':
			o.o_states = (unsigned)atoi(optarg);
			break;
		case 'b':
			o.o_is_broken = true;
			break;
		case 'f':
			r.r_is_deaf = true;
			break;
		case 'p':
			o.o_plants = true;
			break;
		default:
			return 2;
		}
	}
	argc -= optind;
	argv += optind;
	if (argc == 2 && !strcmp(argv[0], "base"))
		return base(argv[1]);
	if (argc == 2 && !strcmp(argv[0], "show")) {
		log_open(&lg, argv[1]);
		log_walk(&lg, show, NULL);
		return 0;
	}
	if (argc == 3 && !strcmp(argv[0], "judge")) {
		load(&r, argv[1], argv[2]);
		return judge(&r, &o);
	}
	fprintf(stderr, "usage: see the head of cut_replay.c\n");
	return 2;
}
