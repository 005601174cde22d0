/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Simulated member devices for crash tests. They plug into the product through
 * struct mpool_dev_provider, so every byte of the product's own I/O path comes
 * through here. Contents live in memory; the pool's configuration too.
 *
 * While a log is attached, every write, flush, discard, device creation and
 * removal is recorded in one global order, with its data. A crash state is
 * then: the image before the log, plus what was durable at some index, plus
 * any part of what was not (see cut.h).
 *
 * Memory is changed only through sim_poke(), which keeps an undo record per
 * 4 KiB page and level: a state costs what it touched, not the device's size.
 *
 * Threads: calls from the product are serialised by one lock; snapshots,
 * rollback and logs belong to the test's single thread.
 */
#ifndef TESTS_CRASH_SIM_H
#define TESTS_CRASH_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mpool/provider.h>

#define SIM_DEVS	4u
#define SIM_PAGE	4096u
#define SIM_SECTOR	512u
#define SIM_LEVELS	8u
#define SIM_CONF_MAX	4096u

enum sim_ev_type {
	SIM_WRITE = 1,
	SIM_FLUSH,
	SIM_DISCARD,
	SIM_CREATE,	/* atomic and durable, like the two below */
	SIM_REMOVE,
	SIM_CONFIG,
	SIM_RESIZE,	/* durable with the device's next flush */
};

struct sim_ev {
	uint8_t ev_type;	/* enum sim_ev_type */
	uint8_t ev_dev;
	uint8_t ev_is_fua;
	uint8_t ev_is_meta;	/* lies in the pool's own metadata, see sim_meta_add() */
	uint32_t ev_len;	/* bytes */
	uint64_t ev_off;	/* bytes; of a new or resized device its size */
	const uint8_t *ev_data;	/* owned by a log; NULL for flush and discard */
};

struct sim_chunk;

/*
 * Events with indexes lo_first .. lo_first + lo_n - 1. A second generation
 * continues the numbering of the first, so indexes never mean two things.
 */
struct sim_log {
	struct sim_ev *lo_ev;
	unsigned lo_first;
	unsigned lo_n;
	unsigned lo_cap;
	struct sim_chunk *lo_chunks;
	uint64_t lo_bytes;	/* of them */
};

struct sim_dev {
	char d_path[128];
	uint8_t *d_mem;		/* only sim_poke() and sim_rollback() know of d_sum */
	uint64_t *d_sum;	/* per page: hash of what it holds, 0 = not computed since */
	uint8_t *d_has;		/* per page: space was reserved for it, by whatever state */
	uint8_t *d_data;	/* per page: it was written, by whatever state; else zeroes */
	uint32_t *d_stamp;	/* per page: level stamp of its newest undo record */
	uint64_t d_size;	/* bytes */
	uint64_t d_cap;		/* bytes it may grow to */
	bool d_exists;
	bool d_is_open;
};

struct sim_meta {
	uint64_t m_off, m_len;
	unsigned m_dev;
};

enum sim_fault_kind {
	FAULT_NONE = 0,
	FAULT_READ,	/* EIO */
	FAULT_ROT,	/* a read returns a byte that is wrong, and says nothing */
	FAULT_WRITE,	/* EIO, nothing is written */
	FAULT_TORN,	/* EIO, half is written */
	FAULT_NOSPC,	/* ENOSPC, nothing is written */
	FAULT_DROP,	/* a write is lost, and nothing is said */
	FAULT_FLUSH,	/* EIO */
	FAULT_STALL,	/* a flush takes two seconds */
	FAULT_MEMORY,	/* an allocation of the libraries; sticky: eight of them */
	FAULTS,
};
extern const char *const sim_fault_name[FAULTS];

/* The call that fails, and with f_is_sticky all that follow: of the kind's own reads, ... */
struct sim_fault {
	uint8_t f_kind;		/* enum sim_fault_kind */
	bool f_is_sticky;
	uint64_t f_at;		/* counted from 1; 0 = off */
	uint64_t f_calls, f_fired;
};

/* how each sector begins that was on a dirty device before it became a member */
#define SIM_FOREIGN	0x6e676965726f66ull

struct sim_undo;

/* what a snapshot keeps besides pages */
struct sim_level {
	unsigned l_undo;	/* undo records below this belong to lower levels */
	uint32_t l_stamp;
	bool l_exists[SIM_DEVS];
	uint64_t l_size[SIM_DEVS];
	bool l_has_conf;
	char *l_conf;
};

struct sim {
	struct mpool_dev_provider s_prov;
	/* opens for reading beside a writer, as another process reads a pool in use */
	struct mpool_dev_provider s_peek;
	pthread_mutex_t s_lock;
	struct sim_dev s_dev[SIM_DEVS];
	unsigned s_ndev;
	uint64_t s_room;	/* bytes that may still be reserved */
	/* as files: space is reserved, and a write to where there is none ends the program */
	bool s_has_holes;
	bool s_is_dirty;	/* new devices hold another's bytes instead of zeroes */
	char s_conf[SIM_CONF_MAX];
	bool s_has_conf;

	struct sim_log *s_log;		/* NULL: nothing is recorded */
	bool s_is_hashing;		/* reads go into s_hash */
	uint64_t s_hash;
	uint64_t s_read_bytes;
	bool s_is_frozen;		/* any change is counted in s_bad_writes and refused */
	unsigned s_bad_writes;
	/* tells the time instead of s_log: marks in the log of another recorder */
	unsigned (*s_clock)(void *arg);
	void *s_clock_arg;
	/* called before each write (1), flush (2); advances a virtual clock */
	void (*s_tick)(void *arg, int kind, uint64_t bytes);
	void *s_tick_arg;
	struct sim_fault s_fault;

	struct sim_meta s_meta[32];
	unsigned s_nmeta;

	struct sim_level s_level[SIM_LEVELS];
	unsigned s_nlevel;
	uint32_t s_stamp;
	struct sim_undo *s_undo;
	unsigned s_nundo, s_undo_cap;
};

void sim_init(struct sim *s);
void sim_fini(struct sim *s);
/* back to no devices and no configuration; no snapshot may be open */
void sim_wipe(struct sim *s);

/* allocations of the libraries, one of which may fail: see nomem.c; NULL: none does */
void sim_memory_of(struct sim *s);
bool sim_memory_fails(struct sim *s);
/* those that were not freed yet */
long sim_memory_live(void);

/* ---- images ---- */

/* the device is larger now, by zeroes: like a volume that was extended */
void sim_resize(struct sim *s, unsigned dev, uint64_t size);
/* has that size now; what it gains, or gains again, reads as zeroes */
void sim_size(struct sim *s, unsigned dev, uint64_t size);
void sim_poke(struct sim *s, unsigned dev, uint64_t off, const void *data, size_t len);
/* SIM_PAGE bytes at the page that @off begins; one that holds them already costs no undo record */
void sim_poke_page(struct sim *s, unsigned dev, uint64_t off, const uint8_t *page);
/* SIM_PAGE bytes that stand in a discarded page */
const uint8_t *sim_discarded(void);
/* bytes that only depend on @seed; the same for the same seed */
void sim_garbage(void *buf, size_t len, uint64_t seed);
/* begins a level; sim_rollback() returns to the newest one and ends it */
void sim_snap(struct sim *s);
void sim_rollback(struct sim *s);
/* ends the newest level and keeps its changes (they belong to the level below) */
void sim_keep(struct sim *s);
/* after a failed check the product may still hold devices: forget that */
void sim_release(struct sim *s);

/* ---- logs ---- */

void sim_log_init(struct sim_log *lo, unsigned first);
void sim_log_fini(struct sim_log *lo);
/* events of @from up to index @end; the data stays @from's */
void sim_log_prefix(struct sim_log *lo, const struct sim_log *from, unsigned end);
static inline unsigned sim_log_end(const struct sim_log *lo)
{
	return lo->lo_first + lo->lo_n;
}
static inline const struct sim_ev *sim_log_at(const struct sim_log *lo, unsigned idx)
{
	return &lo->lo_ev[idx - lo->lo_first];
}
/*
 * The index of the next event. A call that began at index b and returned at
 * index e has, at a crash during event i, begun iff b <= i and returned iff
 * e <= i.
 */
unsigned sim_now(const struct sim *s);

/* a range that holds pool metadata; planted bugs tell data from metadata by it */
void sim_meta_add(struct sim *s, unsigned dev, uint64_t off, uint64_t len);

/* splitmix64 step, and a mix of several numbers into a seed */
uint64_t sim_rand(uint64_t *state);
uint64_t sim_mix(uint64_t a, uint64_t b);

#endif
