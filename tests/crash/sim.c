/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Simulated devices: contents, undo, the event log and the provider's calls.
 * See sim.h for the rules.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sim.h"

#define STALL_BYTES	4000000000ull	/* two seconds of the clocks behind s_tick */
#define CHUNK_BYTES	(4u << 20)
#define LOG_MOST	(1ull << 30)	/* a workload writes some MiB */

struct sim_chunk {
	struct sim_chunk *ch_next;
	size_t ch_used, ch_size;
	uint8_t ch_data[];
};

struct sim_undo {
	uint32_t u_page;
	uint32_t u_stamp;	/* the page's stamp before */
	uint64_t u_sum;		/* and its hash */
	uint8_t u_dev;
	uint8_t *u_data;
};

static void die(const char *what)
{
	fprintf(stderr, "simulator: %s\n", what);
	abort();
}

static void *must(void *p)
{
	if (!p)
		die("out of memory");
	return p;
}

uint64_t sim_rand(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t sim_mix(uint64_t a, uint64_t b)
{
	uint64_t s = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c15u);

	return sim_rand(&s);
}

void sim_garbage(void *buf, size_t len, uint64_t seed)
{
	uint8_t *p = buf;
	uint64_t v;

	for (; len >= 8; len -= 8, p += 8) {
		v = sim_rand(&seed);
		memcpy(p, &v, 8);
	}
	v = sim_rand(&seed);
	memcpy(p, &v, len);
}

/* What a discarded page holds: the same everywhere, so that it is made once. */
const uint8_t *sim_discarded(void)
{
	static uint8_t page[SIM_PAGE];

	if (!page[0])
		sim_garbage(page, sizeof(page), 0xd15ca4d);
	return page;
}

/* ---- images ---- */

static void undo_save(struct sim *s, unsigned dev, uint32_t page)
{
	struct sim_dev *d = &s->s_dev[dev];
	struct sim_undo *u;

	if (d->d_stamp[page] == s->s_level[s->s_nlevel - 1].l_stamp)
		return;
	if (s->s_nundo == s->s_undo_cap) {
		unsigned cap = s->s_undo_cap ? s->s_undo_cap * 2 : 256;

		s->s_undo = must(realloc(s->s_undo, cap * sizeof(*s->s_undo)));
		memset(s->s_undo + s->s_undo_cap, 0,
		       (cap - s->s_undo_cap) * sizeof(*s->s_undo));
		s->s_undo_cap = cap;
	}
	u = &s->s_undo[s->s_nundo++];
	if (!u->u_data)
		u->u_data = must(malloc(SIM_PAGE));
	u->u_dev = (uint8_t)dev;
	u->u_page = page;
	u->u_stamp = d->d_stamp[page];
	u->u_sum = d->d_sum[page];
	memcpy(u->u_data, d->d_mem + (size_t)page * SIM_PAGE, SIM_PAGE);
	d->d_stamp[page] = s->s_level[s->s_nlevel - 1].l_stamp;
}

void sim_poke(struct sim *s, unsigned dev, uint64_t off, const void *data, size_t len)
{
	struct sim_dev *d = &s->s_dev[dev];
	uint64_t page = off / SIM_PAGE;

	if (!len)
		return;
	if (off + len > d->d_cap)
		die("write beyond the device");
	for (; page <= (off + len - 1) / SIM_PAGE; page++) {
		if (s->s_nlevel)
			undo_save(s, dev, (uint32_t)page);
		d->d_sum[page] = 0;
		d->d_data[page] = 1;
	}
	memcpy(d->d_mem + off, data, len);
}

void sim_poke_page(struct sim *s, unsigned dev, uint64_t off, const uint8_t *page)
{
	if (memcmp(s->s_dev[dev].d_mem + off, page, SIM_PAGE))
		sim_poke(s, dev, off, page, SIM_PAGE);
}

void sim_snap(struct sim *s)
{
	struct sim_level *l = &s->s_level[s->s_nlevel];
	unsigned i;

	if (s->s_nlevel == SIM_LEVELS)
		die("too many snapshots");
	s->s_nlevel++;
	l->l_undo = s->s_nundo;
	l->l_stamp = ++s->s_stamp;
	for (i = 0; i < SIM_DEVS; i++) {
		l->l_exists[i] = s->s_dev[i].d_exists;
		l->l_size[i] = s->s_dev[i].d_size;
	}
	l->l_has_conf = s->s_has_conf;
	l->l_conf = must(strdup(s->s_conf));
}

void sim_rollback(struct sim *s)
{
	struct sim_level *l = &s->s_level[s->s_nlevel - 1];
	unsigned i;

	while (s->s_nundo > l->l_undo) {
		struct sim_undo *u = &s->s_undo[--s->s_nundo];
		struct sim_dev *d = &s->s_dev[u->u_dev];

		memcpy(d->d_mem + (size_t)u->u_page * SIM_PAGE, u->u_data, SIM_PAGE);
		d->d_stamp[u->u_page] = u->u_stamp;
		d->d_sum[u->u_page] = u->u_sum;
	}
	for (i = 0; i < SIM_DEVS; i++) {
		s->s_dev[i].d_exists = l->l_exists[i];
		/* one that was made above this level keeps its memory */
		if (l->l_size[i])
			s->s_dev[i].d_size = l->l_size[i];
	}
	s->s_has_conf = l->l_has_conf;
	strcpy(s->s_conf, l->l_conf);
	free(l->l_conf);
	s->s_nlevel--;
}

void sim_keep(struct sim *s)
{
	struct sim_level *l = &s->s_level[s->s_nlevel - 1];

	/*
	 * The records stay, they restore older bytes when the level below rolls
	 * back (newest first, so a page saved twice ends with its oldest copy).
	 */
	free(l->l_conf);
	s->s_nlevel--;
	if (!s->s_nlevel)
		s->s_nundo = 0;
}

void sim_release(struct sim *s)
{
	unsigned i;

	for (i = 0; i < s->s_ndev; i++)
		s->s_dev[i].d_is_open = false;
	s->s_is_frozen = false;
}

/* ---- logs ---- */

void sim_log_init(struct sim_log *lo, unsigned first)
{
	memset(lo, 0, sizeof(*lo));
	lo->lo_first = first;
}

void sim_log_fini(struct sim_log *lo)
{
	struct sim_chunk *c, *next;

	for (c = lo->lo_chunks; c; c = next) {
		next = c->ch_next;
		free(c);
	}
	free(lo->lo_ev);
	memset(lo, 0, sizeof(*lo));
}

static struct sim_ev *log_add(struct sim_log *lo)
{
	if (lo->lo_n == lo->lo_cap) {
		lo->lo_cap = lo->lo_cap ? lo->lo_cap * 2 : 256;
		lo->lo_ev = must(realloc(lo->lo_ev, lo->lo_cap * sizeof(*lo->lo_ev)));
	}
	memset(&lo->lo_ev[lo->lo_n], 0, sizeof(*lo->lo_ev));
	return &lo->lo_ev[lo->lo_n++];
}

static uint8_t *log_space(struct sim_log *lo, size_t len)
{
	struct sim_chunk *c = lo->lo_chunks;
	uint8_t *p;

	if (!c || c->ch_size - c->ch_used < len) {
		/* small logs of second generations stay small */
		size_t size = c ? CHUNK_BYTES : 64u << 10;

		if (size < len)
			size = len;
		lo->lo_bytes += size;
		if (lo->lo_bytes > LOG_MOST)
			die("what is tested writes without end");
		c = must(malloc(sizeof(*c) + size));
		c->ch_size = size;
		c->ch_used = 0;
		c->ch_next = lo->lo_chunks;
		lo->lo_chunks = c;
	}
	p = c->ch_data + c->ch_used;
	c->ch_used += len;
	return p;
}

void sim_log_prefix(struct sim_log *lo, const struct sim_log *from, unsigned end)
{
	unsigned n = end - from->lo_first;

	sim_log_init(lo, from->lo_first);
	lo->lo_cap = n + 64;
	lo->lo_ev = must(malloc(lo->lo_cap * sizeof(*lo->lo_ev)));
	if (n)
		memcpy(lo->lo_ev, from->lo_ev, n * sizeof(*lo->lo_ev));
	lo->lo_n = n;
}

unsigned sim_now(const struct sim *s)
{
	if (s->s_clock)
		return s->s_clock(s->s_clock_arg);
	return s->s_log ? sim_log_end(s->s_log) : 0;
}

void sim_meta_add(struct sim *s, unsigned dev, uint64_t off, uint64_t len)
{
	if (s->s_nmeta == sizeof(s->s_meta) / sizeof(s->s_meta[0]))
		return;
	s->s_meta[s->s_nmeta++] = (struct sim_meta){ .m_off = off, .m_len = len, .m_dev = dev };
}

static bool is_meta(const struct sim *s, unsigned dev, uint64_t off)
{
	unsigned i;

	for (i = 0; i < s->s_nmeta; i++)
		if (s->s_meta[i].m_dev == dev && off >= s->s_meta[i].m_off &&
		    off < s->s_meta[i].m_off + s->s_meta[i].m_len)
			return true;
	return false;
}

/* ---- the provider's calls ---- */

struct sim_handle {
	struct sim *h_sim;
	unsigned h_dev;
	bool h_is_rdonly, h_is_peek;
};

static size_t iov_bytes(const struct iovec *iov, unsigned n)
{
	size_t len = 0;
	unsigned i;

	for (i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

const char *const sim_fault_name[FAULTS] = {
	"none", "read EIO", "read rot", "write EIO", "write torn", "write ENOSPC", "write lost",
	"flush EIO", "flush stall", "no memory",
};

/* Under s_lock: a call of kinds @first to @last; FAULT_NONE = it works. */
static enum sim_fault_kind fault(struct sim *s, unsigned first, unsigned last)
{
	struct sim_fault *f = &s->s_fault;

	if (f->f_kind < first || f->f_kind > last)
		return FAULT_NONE;
	f->f_calls++;
	if (!f->f_at || f->f_calls < f->f_at || (f->f_calls > f->f_at && !f->f_is_sticky))
		return FAULT_NONE;
	f->f_fired++;
	return f->f_kind;
}

/* Eight, not all that follow: what must not fail waits until there is memory again. */
bool sim_memory_fails(struct sim *s)
{
	struct sim_fault *f = &s->s_fault;

	return fault(s, FAULT_MEMORY, FAULT_MEMORY) && f->f_calls < f->f_at + 8;
}

/* What a recovery reads tells its state from others. Most pages are as in the one before. */
static void hash_read(struct sim *s, unsigned dev, uint64_t off, size_t len)
{
	struct sim_dev *d = &s->s_dev[dev];
	uint64_t key[3] = { dev, off, len }, *sum = d->d_sum + off / SIM_PAGE;
	size_t i, n = len / SIM_PAGE;

	for (i = 0; i < n; i++)
		if (!sum[i])
			sum[i] = XXH3_64bits(d->d_mem + off + i * SIM_PAGE, SIM_PAGE) | 1;
	s->s_hash = XXH3_64bits_withSeed(key, sizeof(key), s->s_hash);
	s->s_hash = XXH3_64bits_withSeed(sum, n * sizeof(*sum), s->s_hash);
	s->s_read_bytes += len;
}

static int sim_readv(void *dev, uint64_t off, const struct iovec *iov, unsigned n,
		     uint64_t *ready_ns)
{
	struct sim_handle *h = dev;
	struct sim *s = h->h_sim;
	struct sim_dev *d = &s->s_dev[h->h_dev];
	size_t len = iov_bytes(iov, n);
	enum sim_fault_kind kind;
	unsigned i;

	if (ready_ns)
		*ready_ns = 0;
	if (off > d->d_size || len > d->d_size - off || off % SIM_PAGE || len % SIM_PAGE)
		return -EINVAL;
	pthread_mutex_lock(&s->s_lock);
	kind = fault(s, FAULT_READ, FAULT_ROT);
	if (s->s_is_hashing)
		hash_read(s, h->h_dev, off, len);
	for (i = 0; i < n; i++) {
		memcpy(iov[i].iov_base, d->d_mem + off, iov[i].iov_len);
		off += iov[i].iov_len;
	}
	if (kind == FAULT_ROT)
		((uint8_t *)iov[0].iov_base)[sim_mix(s->s_fault.f_at, off) % iov[0].iov_len] ^= 4;
	pthread_mutex_unlock(&s->s_lock);
	return kind == FAULT_READ ? -EIO : 0;
}

/* Under s_lock: may this change happen? 0 or the error. */
static int change_begin(struct sim *s, const struct sim_handle *h, int kind, uint64_t bytes)
{
	if (s->s_is_frozen || h->h_is_rdonly) {
		s->s_bad_writes++;
		return -EROFS;
	}
	if (s->s_tick)
		s->s_tick(s->s_tick_arg, kind, bytes);
	return 0;
}

/* As of a file: what is written has space below. */
static int sim_reserve(void *dev, uint64_t off, uint64_t len)
{
	struct sim_handle *h = dev;
	struct sim *s = h->h_sim;
	struct sim_dev *d = &s->s_dev[h->h_dev];
	uint64_t i, need = 0, end = (off + len) / SIM_PAGE;
	int rc = 0;

	if (off > d->d_size || len > d->d_size - off || off % SIM_PAGE || len % SIM_PAGE)
		return -EINVAL;
	pthread_mutex_lock(&s->s_lock);
	for (i = off / SIM_PAGE; i < end; i++)
		need += d->d_has[i] ? 0 : SIM_PAGE;
	if (s->s_is_frozen || h->h_is_rdonly) {
		s->s_bad_writes++;
		rc = -EROFS;
	} else if (need > s->s_room) {
		rc = -ENOSPC;
	} else {
		s->s_room -= need;
		memset(d->d_has + off / SIM_PAGE, 1, end - off / SIM_PAGE);
	}
	pthread_mutex_unlock(&s->s_lock);
	return rc;
}

static void has_space(const struct sim_dev *d, uint64_t off, uint64_t len)
{
	uint64_t i;

	for (i = off / SIM_PAGE; i < (off + len) / SIM_PAGE; i++)
		if (!d->d_has[i])
			die("a write to where no space was reserved");
}

static int sim_writev(void *dev, uint64_t off, const struct iovec *iov, unsigned n, int is_fua,
		      uint64_t *ready_ns)
{
	struct sim_handle *h = dev;
	struct sim *s = h->h_sim;
	struct sim_dev *d = &s->s_dev[h->h_dev];
	size_t len = iov_bytes(iov, n);
	uint8_t *copy = NULL;
	enum sim_fault_kind kind;
	unsigned i;
	int rc;

	if (ready_ns)
		*ready_ns = 0;
	if (off > d->d_size || len > d->d_size - off || off % SIM_PAGE || len % SIM_PAGE)
		return -EINVAL;
	pthread_mutex_lock(&s->s_lock);
	if (s->s_has_holes)
		has_space(d, off, len);
	rc = change_begin(s, h, 1, len);
	kind = rc ? FAULT_NONE : fault(s, FAULT_WRITE, FAULT_DROP);
	if (kind == FAULT_TORN)
		sim_poke(s, h->h_dev, off, iov[0].iov_base, iov[0].iov_len / 2);
	if (kind && kind != FAULT_DROP)
		rc = kind == FAULT_NOSPC ? -ENOSPC : -EIO;
	if (!rc && s->s_log) {
		struct sim_ev *ev = log_add(s->s_log);

		copy = log_space(s->s_log, len);
		ev->ev_type = SIM_WRITE;
		ev->ev_dev = (uint8_t)h->h_dev;
		ev->ev_is_fua = !!is_fua;
		ev->ev_is_meta = is_meta(s, h->h_dev, off);
		ev->ev_off = off;
		ev->ev_len = (uint32_t)len;
		ev->ev_data = copy;
	}
	for (i = 0; !rc && i < n; i++) {
		if (copy) {
			memcpy(copy, iov[i].iov_base, iov[i].iov_len);
			copy += iov[i].iov_len;
		}
		if (kind != FAULT_DROP)
			sim_poke(s, h->h_dev, off, iov[i].iov_base, iov[i].iov_len);
		off += iov[i].iov_len;
	}
	pthread_mutex_unlock(&s->s_lock);
	return rc;
}

static int sim_flush(void *dev, uint64_t *ready_ns)
{
	struct sim_handle *h = dev;
	struct sim *s = h->h_sim;
	enum sim_fault_kind kind;
	int rc;

	if (ready_ns)
		*ready_ns = 0;
	pthread_mutex_lock(&s->s_lock);
	rc = change_begin(s, h, 2, 0);
	kind = rc ? FAULT_NONE : fault(s, FAULT_FLUSH, FAULT_STALL);
	if (kind == FAULT_FLUSH)
		rc = -EIO;
	if (kind == FAULT_STALL && s->s_tick)
		s->s_tick(s->s_tick_arg, 1, STALL_BYTES);
	if (!rc && s->s_log) {
		struct sim_ev *ev = log_add(s->s_log);

		ev->ev_type = SIM_FLUSH;
		ev->ev_dev = (uint8_t)h->h_dev;
	}
	pthread_mutex_unlock(&s->s_lock);
	return rc;
}

/* The running system sees garbage at once: no code may rely on a discarded range. */
static int sim_discard(void *dev, uint64_t off, uint64_t len)
{
	struct sim_handle *h = dev;
	struct sim *s = h->h_sim;
	struct sim_dev *d = &s->s_dev[h->h_dev];
	uint64_t o;
	int rc;

	if (off > d->d_size || len > d->d_size - off || off % SIM_PAGE || len % SIM_PAGE)
		return -EINVAL;
	pthread_mutex_lock(&s->s_lock);
	rc = change_begin(s, h, 3, len);
	if (!rc && s->s_log) {
		struct sim_ev *ev = log_add(s->s_log);

		ev->ev_type = SIM_DISCARD;
		ev->ev_dev = (uint8_t)h->h_dev;
		ev->ev_off = off;
		ev->ev_len = (uint32_t)len;
	}
	for (o = 0; !rc && o < len; o += SIM_PAGE)
		sim_poke_page(s, h->h_dev, off + o, sim_discarded());
	pthread_mutex_unlock(&s->s_lock);
	return rc;
}

static uint64_t sim_data(void *dev, uint64_t off, uint64_t end)
{
	struct sim_handle *h = dev;
	const uint8_t *data = h->h_sim->s_dev[h->h_dev].d_data;
	const uint8_t *first = memchr(data + off / SIM_PAGE, 1, (end - off) / SIM_PAGE);

	return first ? (uint64_t)(first - data) * SIM_PAGE : end;
}

static void sim_close(void *dev)
{
	struct sim_handle *h = dev;

	if (!h->h_is_peek)
		h->h_sim->s_dev[h->h_dev].d_is_open = false;
	free(h);
}

void sim_size(struct sim *s, unsigned dev, uint64_t size)
{
	static const uint8_t zero[SIM_PAGE];
	uint64_t was = s->s_dev[dev].d_size, end = size > was ? size : was;

	for (uint64_t o = size < was ? size : was; o < end; o += SIM_PAGE)
		sim_poke_page(s, dev, o, zero);
	s->s_dev[dev].d_size = size;
}

static void resize(struct sim *s, unsigned dev, uint64_t size)
{
	if (s->s_log) {
		struct sim_ev *ev = log_add(s->s_log);

		ev->ev_type = SIM_RESIZE;
		ev->ev_dev = (uint8_t)dev;
		ev->ev_off = size;
	}
	sim_size(s, dev, size);
}

static int sim_grow(void *dev, uint64_t size)
{
	struct sim_handle *h = dev;
	struct sim *s = h->h_sim;
	int rc = 0;

	pthread_mutex_lock(&s->s_lock);
	if (s->s_is_frozen) {
		s->s_bad_writes++;
		rc = -EROFS;
	} else if (size > s->s_dev[h->h_dev].d_cap || size % SIM_PAGE) {
		rc = -ENOSPC;
	} else {
		resize(s, h->h_dev, size);
	}
	pthread_mutex_unlock(&s->s_lock);
	return rc;
}

static uint64_t sim_room(void *dev, int keeps)
{
	struct sim_handle *h = dev;
	struct sim_dev *d = &h->h_sim->s_dev[h->h_dev];

	(void)keeps;
	/* all of it, and as much as there may be unused */
	return d->d_cap;
}

static const struct mpool_vdev_ops sim_ops = {
	.readv = sim_readv,
	.writev = sim_writev,
	.flush = sim_flush,
	.discard = sim_discard,
	.resize = sim_grow,
	.room = sim_room,
	.close = sim_close,
};

static const struct mpool_vdev_ops sim_file_ops = {
	.readv = sim_readv,
	.writev = sim_writev,
	.flush = sim_flush,
	.discard = sim_discard,
	.reserve = sim_reserve,
	.data = sim_data,
	.resize = sim_grow,
	.room = sim_room,
	.close = sim_close,
};

static int dev_find(const struct sim *s, const char *path)
{
	unsigned i;

	for (i = 0; i < s->s_ndev; i++)
		if (!strcmp(s->s_dev[i].d_path, path))
			return (int)i;
	return -1;
}

static struct sim_dev *dev_new(struct sim *s, const char *path, uint64_t size)
{
	struct sim_dev *d = &s->s_dev[s->s_ndev];
	void *p;

	if (s->s_ndev == SIM_DEVS || strlen(path) >= sizeof(d->d_path))
		return NULL;
	memset(d, 0, sizeof(*d));
	d->d_cap = 4 * size;
	p = mmap(NULL, d->d_cap, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		die("out of memory");
	d->d_mem = p;
	d->d_stamp = must(calloc(d->d_cap / SIM_PAGE, sizeof(*d->d_stamp)));
	d->d_sum = must(calloc(d->d_cap / SIM_PAGE, sizeof(*d->d_sum)));
	d->d_has = must(calloc(d->d_cap / SIM_PAGE, 1));
	d->d_data = must(calloc(d->d_cap / SIM_PAGE, 1));
	d->d_size = size;
	strcpy(d->d_path, path);
	s->s_ndev++;
	return d;
}

void sim_resize(struct sim *s, unsigned dev, uint64_t size)
{
	if (size < s->s_dev[dev].d_size || size > s->s_dev[dev].d_cap)
		die("resize out of bounds");
	resize(s, dev, size);
}

/* A page that another owner of the device left behind. */
static void foreign(uint8_t *page, uint64_t off)
{
	const uint64_t mark = SIM_FOREIGN;
	unsigned i;

	sim_garbage(page, SIM_PAGE, off ^ 0x6d157);
	for (i = 0; i < SIM_PAGE; i += SIM_SECTOR)
		memcpy(page + i, &mark, sizeof(mark));
}

/* A device that comes (back) into being holds nothing, or what another one wrote. */
static int dev_create(struct sim *s, int *idx, const char *path, uint64_t size)
{
	static const uint8_t zero[SIM_PAGE];
	struct sim_dev *d;
	uint64_t o;

	if (*idx < 0) {
		d = dev_new(s, path, size);
		if (!d)
			return -ENOSPC;
		*idx = (int)(s->s_ndev - 1);
	}
	d = &s->s_dev[*idx];
	if (d->d_exists)
		return -EEXIST;
	if (size > d->d_cap || size % SIM_PAGE)
		return -EINVAL;
	if (s->s_is_frozen) {
		s->s_bad_writes++;
		return -EROFS;
	}
	d->d_size = size;
	for (o = 0; o < size; o += SIM_PAGE) {
		uint8_t page[SIM_PAGE];

		if (s->s_is_dirty) {
			foreign(page, o);
			sim_poke(s, (unsigned)*idx, o, page, SIM_PAGE);
		} else if (memcmp(d->d_mem + o, zero, SIM_PAGE)) {
			sim_poke(s, (unsigned)*idx, o, zero, SIM_PAGE);
		}
	}
	d->d_exists = true;
	if (s->s_log) {
		struct sim_ev *ev = log_add(s->s_log);

		ev->ev_type = SIM_CREATE;
		ev->ev_dev = (uint8_t)*idx;
		ev->ev_off = size;
	}
	return 0;
}

static void handle_make(struct sim *s, int idx, struct sim_handle how, struct mpool_vdev *out)
{
	struct sim_handle *h = must(malloc(sizeof(*h)));

	*h = how;
	h->h_sim = s;
	h->h_dev = (unsigned)idx;
	out->ops = s->s_has_holes ? &sim_file_ops : &sim_ops;
	out->dev = h;
	out->size = s->s_dev[idx].d_size;
	out->is_zeroed = 0;
	out->fd = -1;
}

static int sim_peek(void *ctx, const char *path, int is_create, int is_rdonly, uint64_t size,
		    struct mpool_vdev *out)
{
	struct sim *s = ctx;
	int idx, rc = -ENOENT;

	(void)size;
	if (is_create || !is_rdonly)
		return -EROFS;
	pthread_mutex_lock(&s->s_lock);
	idx = dev_find(s, path);
	if (idx >= 0 && s->s_dev[idx].d_exists) {
		handle_make(s, idx, (struct sim_handle){ .h_is_rdonly = true, .h_is_peek = true },
			    out);
		rc = 0;
	}
	pthread_mutex_unlock(&s->s_lock);
	return rc;
}

static int sim_open(void *ctx, const char *path, int is_create, int is_rdonly, uint64_t size,
		    struct mpool_vdev *out)
{
	struct sim *s = ctx;
	int idx, rc = 0;

	pthread_mutex_lock(&s->s_lock);
	idx = dev_find(s, path);
	if (is_create && (idx < 0 || !s->s_dev[idx].d_exists))
		rc = dev_create(s, &idx, path, size);
	else if (idx < 0 || !s->s_dev[idx].d_exists)
		rc = -ENOENT;
	else if (s->s_dev[idx].d_is_open)
		rc = -EBUSY;
	if (!rc) {
		handle_make(s, idx, (struct sim_handle){ .h_is_rdonly = is_rdonly }, out);
		s->s_dev[idx].d_is_open = true;
		out->is_zeroed = is_create && !s->s_is_dirty;
	}
	pthread_mutex_unlock(&s->s_lock);
	return rc;
}

static int sim_remove(void *ctx, const char *path)
{
	struct sim *s = ctx;
	int idx, rc = 0;

	pthread_mutex_lock(&s->s_lock);
	idx = dev_find(s, path);
	if (idx < 0 || !s->s_dev[idx].d_exists) {
		rc = -ENOENT;
	} else if (s->s_is_frozen) {
		s->s_bad_writes++;
		rc = -EROFS;
	} else {
		s->s_dev[idx].d_exists = false;
		if (s->s_log) {
			struct sim_ev *ev = log_add(s->s_log);

			ev->ev_type = SIM_REMOVE;
			ev->ev_dev = (uint8_t)idx;
		}
	}
	pthread_mutex_unlock(&s->s_lock);
	return rc;
}

static int sim_config_load(void *ctx, const char *pool, char *buf, size_t size)
{
	struct sim *s = ctx;
	int rc = 0;

	(void)pool;
	pthread_mutex_lock(&s->s_lock);
	if (!s->s_has_conf)
		rc = -ENOENT;
	else if (strlen(s->s_conf) >= size)
		rc = -EOVERFLOW;
	else
		strcpy(buf, s->s_conf);
	if (s->s_is_hashing)
		s->s_hash = XXH3_64bits_withSeed(s->s_conf, strlen(s->s_conf),
						 s->s_hash + s->s_has_conf);
	pthread_mutex_unlock(&s->s_lock);
	return rc;
}

static int sim_config_store(void *ctx, const char *pool, const char *text)
{
	struct sim *s = ctx;
	int rc = 0;

	(void)pool;
	pthread_mutex_lock(&s->s_lock);
	if (s->s_is_frozen) {
		s->s_bad_writes++;
		rc = -EROFS;
	} else if (text && strlen(text) >= sizeof(s->s_conf)) {
		rc = -EFBIG;
	} else {
		if (s->s_log) {
			struct sim_ev *ev = log_add(s->s_log);

			ev->ev_type = SIM_CONFIG;
			if (text) {
				uint8_t *p = log_space(s->s_log, strlen(text) + 1);

				memcpy(p, text, strlen(text) + 1);
				ev->ev_data = p;
			}
		}
		s->s_has_conf = text != NULL;
		strcpy(s->s_conf, text ? text : "");
	}
	pthread_mutex_unlock(&s->s_lock);
	return rc;
}

void sim_init(struct sim *s)
{
	memset(s, 0, sizeof(*s));
	pthread_mutex_init(&s->s_lock, NULL);
	s->s_room = UINT64_MAX;
	s->s_prov.ctx = s;
	s->s_prov.open = sim_open;
	s->s_prov.remove = sim_remove;
	s->s_prov.config_load = sim_config_load;
	s->s_prov.config_store = sim_config_store;
	s->s_peek = (struct mpool_dev_provider){ .ctx = s, .open = sim_peek,
						 .config_load = sim_config_load };
}

void sim_wipe(struct sim *s)
{
	unsigned i;

	if (s->s_nlevel)
		die("wipe below a snapshot");
	for (i = 0; i < s->s_ndev; i++) {
		munmap(s->s_dev[i].d_mem, s->s_dev[i].d_cap);
		free(s->s_dev[i].d_stamp);
		free(s->s_dev[i].d_has);
		free(s->s_dev[i].d_data);
		free(s->s_dev[i].d_sum);
	}
	memset(s->s_dev, 0, sizeof(s->s_dev));
	s->s_ndev = 0;
	s->s_nmeta = 0;
	s->s_has_conf = false;
	s->s_conf[0] = '\0';
	s->s_log = NULL;
	s->s_is_dirty = false;
	s->s_tick = NULL;
	memset(&s->s_fault, 0, sizeof(s->s_fault));
}

void sim_fini(struct sim *s)
{
	unsigned i;

	while (s->s_nlevel)
		sim_rollback(s);
	sim_wipe(s);
	for (i = 0; i < s->s_undo_cap; i++)
		free(s->s_undo[i].u_data);
	free(s->s_undo);
	pthread_mutex_destroy(&s->s_lock);
}
