/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Runs behind damage: every entry that is given is right, every entry that is
 * not lies in a range that was named; and what a deep check says of a whole
 * database.
 */
#include "kv_fresh.h"
#include "kv_rig.h"

#include "run/filter.h"
#include "meta/mdc.h"
#include "open/salvage.h"
#include "base/hash.h"
#include "run/run_omf.h"
#include "tree/tree.h"

static struct rig r;

#define LOST_MAX 4096u

static struct kv_lost *lost;
static unsigned nlost;

static void on_lost(void *arg, const struct kv_lost *lo)
{
	(void)arg;
	T_OK(nlost < LOST_MAX);
	lost[nlost++] = *lo;
}

static bool is_named(const struct rec *m)
{
	for (unsigned i = 0; i < nlost; i++) {
		const struct kv_lost *lo = &lost[i];

		if (lo->lo_is_missing && lo->lo_max_seq >= m->seq &&
		    kv_kcmp(lo->lo_from, lo->lo_flen, m->key, m->klen) <= 0 &&
		    (!lo->lo_tlen || kv_kcmp(m->key, m->klen, lo->lo_to, lo->lo_tlen) < 0))
			return true;
	}
	return false;
}

static struct kv_salvage *walk_begin(const struct kv_run_desc *d)
{
	struct kv_salvage_fns fns = { .sf_lost = on_lost };
	struct kv_salvage *sv;

	nlost = 0;
	T_EQ(kv_salvage_open(&r.db, d, &fns, &sv), 0);
	return sv;
}

/* Walks the run; returns how many entries were not given. Each was named. */
static unsigned walk(const struct kv_run_desc *d, const struct rec *m, unsigned n)
{
	static bool is_given[12000];
	struct kv_salvage *sv = walk_begin(d);
	unsigned at = 0, missing = 0;
	struct kv_ent e;

	memset(is_given, 0, sizeof(is_given));
	while (!kv_salvage_next(sv, &e)) {
		while (at < n && kv_kcmp(m[at].key, m[at].klen, e.e_key, e.e_klen) < 0)
			at++;
		T_OK(at < n && ent_same(&r, &e, &m[at]));
		is_given[at++] = true;
	}
	kv_salvage_close(sv);
	for (at = 0; at < n; at++) {
		T_OK(is_given[at] || is_named(&m[at]));
		missing += !is_given[at];
	}
	return missing;
}

static void flip(struct mpool_obj *obj, uint64_t off, const uint8_t *x, size_t len)
{
	uint64_t pos, room;
	char path[64];
	int fd, own;

	for (size_t i = 0; i < len; i++, off++) {
		uint8_t b;

		T_EQ(mpool_obj_place(obj, off & ~4095ull, &fd, &pos, &room), 0);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		own = open(path, O_RDWR | O_CLOEXEC);
		T_OK(own >= 0);
		pos += off & 4095;
		T_EQ(pread(own, &b, 1, (off_t)pos), 1);
		b ^= x[i];
		T_EQ(pwrite(own, &b, 1, (off_t)pos), 1);
		T_EQ(fdatasync(own), 0);
		close(own);
	}
}

struct world {
	struct rec *m;
	unsigned n;
	struct kv_run *run;
	struct kv_run_desc d;
};

static void world_open(struct world *w, unsigned n)
{
	rig_open(&r, 4 << 20, 64 << 20);
	r.db.d_budget.b_kblock_bytes = 128 << 10;
	rig_segs(&r);
	lost = calloc(LOST_MAX, sizeof(*lost));
	w->m = model_make(&r, n, &w->n);
	w->run = model_run(&r, w->m, w->n);
	rig_commit(&r, w->run);
	w->d = desc_copy(w->run);
	T_EQ(walk(&w->d, w->m, w->n), 0);
	T_EQ(nlost, 0);
}

static void world_close(struct world *w)
{
	kv_run_put(&r.db, w->run);
	free(w->d.rd_kb);
	model_free(w->m, w->n);
	free(lost);
	rig_close(&r);
}

/* ---- damage ----------------------------------------------------------------------- */

static void what_damage_takes_is_named_and_the_rest_is_given(void)
{
	unsigned flips = getenv("TEST_SHORT") ? 40 : 200, hurt = 0;
	struct world w;

	world_open(&w, 12000);
	T_OK(w.d.rd_n > 2);
	for (unsigned i = 0; i < flips; i++) {
		uint32_t b = (uint32_t)(t_rand(&r.rnd) % w.d.rd_n);
		const struct kv_kblock *kb = &w.run->rn_kb[b];
		uint64_t index = (uint64_t)kb->kb_npages * KV_PAGE, len = w.d.rd_kb[b].kd_len, off;
		uint8_t x = (uint8_t)(1u << t_rand(&r.rnd) % 8);
		unsigned missing;

		off = i % 3 == 0 ? t_rand(&r.rnd) % index : i % 3 == 1 ?
		      index + t_rand(&r.rnd) % (len - index - KV_PAGE) :
		      len - 1 - t_rand(&r.rnd) % KV_PAGE;
		if (i % 6 == 1)	/* not a gap between areas */
			off = kb->kb_filter_off + t_rand(&r.rnd) % (kb->kb_fblocks * 64ull);
		flip(kb->kb_obj, off, &x, 1);
		missing = walk(&w.d, w.m, w.n);
		hurt += nlost != 0;
		if (i % 3 == 0)	/* one page, not its neighbours */
			T_OK(missing && missing <= KV_KPAGE_MAXN && nlost == 1);
		if (i % 6 == 1)	/* a filter, no entry */
			T_OK(!missing && nlost == 1);
		if (i % 3 == 2)	/* a block */
			T_OK(missing && missing < w.n && nlost == 1);
		flip(kb->kb_obj, off, &x, 1);
	}
	T_OK(hurt > flips * 2 / 3);
	T_EQ(walk(&w.d, w.m, w.n), 0);
	T_EQ(nlost, 0);
	world_close(&w);
}

static void a_block_that_is_gone_is_named_by_its_neighbours(void)
{
	struct world w;
	uint64_t id;

	world_open(&w, 12000);
	id = w.d.rd_kb[1].kd_id;
	w.d.rd_kb[1].kd_id = 1ull << 40;
	T_OK(walk(&w.d, w.m, w.n) > 100);
	T_EQ(nlost, 1);
	T_OK(lost[0].lo_flen && lost[0].lo_tlen);
	w.d.rd_kb[1].kd_id = id;
	world_close(&w);
}

/* ---- lies: every CRC is right, what they cover is not ------------------------------- */

/* Changes the index of block 0 by @how and writes it back with new CRCs. */
static void recraft(struct world *w, void (*how)(struct kv_kfoot *f, uint8_t *index))
{
	struct kv_kblock *kb = &w->run->rn_kb[0];
	struct kv_kblock_desc *kd = &w->d.rd_kb[0];
	uint32_t base = kb->kb_npages * KV_PAGE, len = kd->kd_len - base;
	uint8_t *was = aligned_alloc(4096, len), *now = aligned_alloc(4096, len);
	struct kv_kfoot f;

	T_EQ(kv_dev_read(&r.db, kb->kb_obj, KV_READ_KEY, base, was, len), 0);
	memcpy(now, was, len);
	T_OK(!kv_kfoot_decode(now + len - KV_PAGE, kd->kd_crc, r.db.d_ident.id_tag, kd->kd_id, 7,
			      kd->kd_len, &f));
	how(&f, now - base);
	for (unsigned i = 0; i < KV_AREAS; i++)
		f.kf_area[i].ar_crc = mpool_crc32c(0, now - base + f.kf_area[i].ar_off,
						   f.kf_area[i].ar_len);
	kd->kd_crc = kv_kfoot_encode(&f, now + len - KV_PAGE);
	for (uint32_t i = 0; i < len; i++)
		was[i] ^= now[i];
	for (uint32_t i = 0; i < len; i++)
		if (was[i])
			flip(kb->kb_obj, base + i, was + i, 1);
	free(was);
	free(now);
}

static void lie_keys(struct kv_kfoot *f, uint8_t *p)
{
	(void)p;
	f->kf_nkeys++;
}

static void lie_seq(struct kv_kfoot *f, uint8_t *p)
{
	(void)p;
	f->kf_max_seq = f->kf_min_seq + 1;
}

static void lie_seg(struct kv_kfoot *f, uint8_t *p)
{
	struct kv_kseg ks;

	kv_kseg_decode(p + f->kf_area[KV_AREA_SEGS].ar_off, &ks);
	ks.ks_bytes += 8;
	kv_kseg_encode(&ks, p + f->kf_area[KV_AREA_SEGS].ar_off);
}

/* Separator 1 becomes the greatest of its length: all of page 1 is below it. */
static void lie_fence_up(struct kv_kfoot *f, uint8_t *p)
{
	uint8_t *a = p + f->kf_area[KV_AREA_FENCE].ar_off;
	uint32_t end = kv_le32(a + 4);

	memset(a + 4 * f->kf_npages, 0xff, end);
}

/* The smallest: keys of page 0 are behind it. */
static void lie_fence_down(struct kv_kfoot *f, uint8_t *p)
{
	uint8_t *a = p + f->kf_area[KV_AREA_FENCE].ar_off;

	memset(a + 4 * f->kf_npages, 0, kv_le32(a + 4));
}

static void lie_filter(struct kv_kfoot *f, uint8_t *p)
{
	memset(p + f->kf_area[KV_AREA_FILTER].ar_off, 0, 64);
}

static void lies_with_right_checksums_are_found(void)
{
	static const struct {
		void (*how)(struct kv_kfoot *f, uint8_t *index);
		const char *says;
	} lie[] = {
		{ lie_keys, "footer: number of entries" },
		{ lie_seq, "footer: sequence numbers" },
		{ lie_seg, "segment table: entries or bytes" },
		{ lie_fence_up, "key below the fence" },
		{ lie_fence_down, "key behind the fence" },
		{ lie_filter, "key that the filter denies" },
	};

	for (unsigned i = 0; i < sizeof(lie) / sizeof(lie[0]); i++) {
		struct world w;
		bool said = false;

		world_open(&w, 2000);
		recraft(&w, lie[i].how);
		/* the entries are there */
		T_EQ(walk(&w.d, w.m, w.n), 0);
		for (unsigned j = 0; j < nlost; j++) {
			T_OK(!lost[j].lo_is_missing);
			said |= !!strstr(lost[j].lo_what, lie[i].says);
		}
		if (!said)
			T_FAIL("lie %u was believed", i);
		world_close(&w);
	}
}

static void lie_seg_id(struct kv_kfoot *f, uint8_t *p)
{
	struct kv_kseg ks;

	kv_kseg_decode(p + f->kf_area[KV_AREA_SEGS].ar_off, &ks);
	ks.ks_id = 1ull << 40;
	kv_kseg_encode(&ks, p + f->kf_area[KV_AREA_SEGS].ar_off);
}

/* The keys are there, and say that their values are not. */
static void a_segment_that_does_not_exist_is_named_and_its_keys_are_given(void)
{
	unsigned n = 0, without = 0;
	struct kv_salvage *sv;
	struct kv_ent e;
	struct world w;

	world_open(&w, 2000);
	recraft(&w, lie_seg_id);
	sv = walk_begin(&w.d);
	while (!kv_salvage_next(sv, &e)) {
		without += e.e_kind == KV_ENT_REF && !e.e_seg;
		n++;
	}
	kv_salvage_close(sv);
	T_EQ(n, w.n);
	T_OK(without);
	T_EQ(nlost, 1);
	T_OK(!lost[0].lo_is_missing && strstr(lost[0].lo_what, "does not exist"));
	world_close(&w);
}

/* What the version edit says is another thing than what is there. */
static void a_version_edit_that_lies_is_found(void)
{
	struct world w;
	uint32_t len;

	world_open(&w, 2000);
	w.d.rd_keys++;
	T_EQ(walk(&w.d, w.m, w.n), 0);
	T_EQ(nlost, 1);
	T_OK(!lost[0].lo_is_missing && strstr(lost[0].lo_what, "number of keys"));
	w.d.rd_keys--;
	len = w.d.rd_kb[0].kd_len;
	for (unsigned i = 0; i < 3; i++) {
		w.d.rd_kb[0].kd_len = i == 0 ? len + (64u << 20) : i == 1 ? len - 1 : KV_PAGE;
		T_OK(walk(&w.d, w.m, w.n) > 0);
		T_EQ(nlost, 1);
		T_OK(lost[0].lo_is_missing && strstr(lost[0].lo_what, "length in the version"));
	}
	w.d.rd_kb[0].kd_len = len;
	T_EQ(walk(&w.d, w.m, w.n), 0);
	world_close(&w);
}

/* ---- a whole database -------------------------------------------------------------- */

#define KEYS 3000u

static char dir[256];
static struct kvdb *db;

static void make(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	char key[32], val[300] = { 0 };
	struct kvdb_kvs *kvs;

	kv_fresh(dir, sizeof(dir), "kv_salvage", 64u << 20, 256u << 10);
	o.flags = KVDB_MANUAL;
	T_EQ(kvdb_open(dir, &o, &db), 0);
	for (unsigned s = 0; s < 2; s++) {
		T_EQ(kvdb_kvs_create(db, s ? "b" : "a", NULL), 0);
		T_EQ(kvdb_kvs_open(db, s ? "b" : "a", &kvs), 0);
		for (unsigned k = 0; k < KEYS; k++)
			T_EQ(kvdb_put(kvs, key, (size_t)sprintf(key, "%06u", k), val,
				      k % 2 ? 300 : 20), 0);
	}
	T_EQ(kvdb_drain(db, KVDB_WAIT_FLUSH), 0);
}

static void unmake(void)
{
	T_EQ(mpool_destroy(dir, NULL), 0);
	rmdir(dir);
}

struct seen {
	unsigned n, damage;
	char text[400], kvs[32], from[64], to[64];
	uint64_t object, keys;
};

static void see(void *arg, const struct mpool_problem *p)
{
	const struct kvdb_problem *kp = (const struct kvdb_problem *)p;
	struct seen *s = arg;

	s->n++;
	s->damage += p->is_damage;
	s->object = kp->object;
	s->keys = kp->keys;
	snprintf(s->text, sizeof(s->text), "%s", p->text);
	snprintf(s->kvs, sizeof(s->kvs), "%s", kp->kvs ? kp->kvs : "");
	snprintf(s->from, sizeof(s->from), "%.*s", (int)kp->flen,
		 kp->from ? (const char *)kp->from : "");
	snprintf(s->to, sizeof(s->to), "%.*s", (int)kp->tlen, kp->to ? (const char *)kp->to : "");
}

static struct seen verify(void)
{
	struct seen s = { 0 };
	uint64_t damage = 12345;

	T_EQ(kvdb_verify(dir, NULL, KVDB_VERIFY_DEEP, see, &s, &damage), 0);
	T_EQ(damage, s.damage);
	return s;
}

/* Turns a bit over in the page that has key @k, or in its value. */
static void hurt(const char *store, unsigned k, bool is_value)
{
	struct kv_thread *t = kv_enter();
	struct kvdb_kvs *kvs;
	struct mpool_obj *obj;
	struct kv_run *run;
	struct kv_ent e;
	char key[32];
	uint64_t off;
	uint8_t one = 1;
	size_t klen = (size_t)sprintf(key, "%06u", k);

	T_EQ(kvdb_kvs_open(db, store, &kvs), 0);
	run = atomic_load(&kvs->k_tree)->tr_run[0];
	T_EQ(kv_run_lookup(db, run, key, klen, kv_hash(key, klen), &e), 0);
	obj = is_value ? e.e_seg->sg_obj : run->rn_kb[0].kb_obj;
	off = is_value ? e.e_off8 * 8ull :
	      (uint64_t)kv_kblock_page(db, &run->rn_kb[0], (const uint8_t *)key, klen) * KV_PAGE;
	kv_exit(t);
	flip(obj, off + 5, &one, 1);
}

static void a_deep_check_names_store_object_and_keys(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct seen s;

	/* no thread merges or seals what is to be damaged */
	o.flags = KVDB_MANUAL;
	make();
	T_EQ(kvdb_close(db), 0);
	s = verify();
	T_EQ(s.n, 0);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	hurt("b", 1500, false);
	hurt("a", 701, true);
	T_EQ(kvdb_close(db), 0);
	s = verify();
	/* the segment does not check either: its frames are read whole */
	T_EQ(s.damage, 3);
	T_OK(strstr(s.text, "log segment"));
	db = NULL;
	unmake();

	make();
	T_EQ(kvdb_close(db), 0);
	T_EQ(kvdb_open(dir, &o, &db), 0);
	hurt("b", 1500, false);
	T_EQ(kvdb_close(db), 0);
	s = verify();
	T_EQ(s.n, 1);
	T_STREQ(s.kvs, "b");
	T_OK(strcmp(s.from, "001500") <= 0 && strcmp("001500", s.to) < 0);
	T_OK(strstr(s.text, "page CRC") && s.object);
	unmake();
}

/* At a checkpoint, beside the process that writes. */
static void a_checkpoint_is_checked_while_the_database_is_in_use(void)
{
	struct kvdb_opts o = KVDB_OPTS_INIT;
	struct seen s = { 0 };
	uint64_t damage = 99;

	make();
	T_EQ(kvdb_checkpoint(db, "c", 0), 0);
	T_EQ(kvdb_verify(dir, NULL, KVDB_VERIFY_DEEP, NULL, NULL, &damage), -EBUSY);
	o.checkpoint = "c";
	o.flags = KVDB_RDONLY;
	T_EQ(kvdb_verify(dir, &o, KVDB_VERIFY_DEEP, see, &s, &damage), 0);
	T_EQ(damage, 0);
	hurt("a", 1501, true);
	T_EQ(kvdb_verify(dir, &o, KVDB_VERIFY_DEEP, see, &s, &damage), 0);
	T_EQ(damage, 1);
	T_STREQ(s.kvs, "a");
	T_STREQ(s.from, "001501");
	T_EQ(s.keys, 1);
	T_EQ(kvdb_close(db), 0);
	unmake();
}

static void what_nothing_refers_to_is_named(void)
{
	struct mpool_alloc req = { .kind = MPOOL_MBLOCK, .capacity = 65536 };
	struct mpool_op op = { .type = MPOOL_OP_COMMIT, .length = 4096 };
	struct iovec iov = { .iov_len = 4096 };
	struct seen s;
	struct mpool *mp;
	uint64_t id;

	make();
	req.tag = db->d_ident.id_tag;
	T_EQ(kvdb_close(db), 0);
	T_EQ(mpool_open(dir, NULL, &mp), 0);
	T_EQ(mpool_alloc(mp, &req, 1, &op.obj), 0);
	T_EQ(posix_memalign(&iov.iov_base, 4096, 4096), 0);
	memset(iov.iov_base, 7, 4096);
	T_EQ(mpool_write(op.obj, 0, &iov, 1), 0);
	T_EQ(mpool_batch(mp, &op, 1), 0);
	free(iov.iov_base);
	id = mpool_obj_id(op.obj);
	mpool_obj_close(op.obj);
	T_EQ(mpool_close(mp), 0);
	s = verify();
	T_EQ(s.n, 1);
	T_EQ(s.damage, 0);
	T_EQ(s.object, id);
	T_OK(strstr(s.text, "nothing refers to it"));
	/* and is gone after an open */
	T_EQ(kvdb_open(dir, NULL, &db), 0);
	T_EQ(kvdb_close(db), 0);
	s = verify();
	T_EQ(s.n, 0);
	unmake();
}

int main(void)
{
	T_RUN(what_damage_takes_is_named_and_the_rest_is_given);
	T_RUN(a_block_that_is_gone_is_named_by_its_neighbours);
	T_RUN(lies_with_right_checksums_are_found);
	T_RUN(a_segment_that_does_not_exist_is_named_and_its_keys_are_given);
	T_RUN(a_version_edit_that_lies_is_found);
	T_RUN(a_deep_check_names_store_object_and_keys);
	T_RUN(a_checkpoint_is_checked_while_the_database_is_in_use);
	T_RUN(what_nothing_refers_to_is_named);
	return t_done();
}
