/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* What background work failed at. */
#ifndef KV_TROUBLE_H
#define KV_TROUBLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvdb;

/* Zeroed: it works. Part of what fails, with its scope; the lists are trouble.c's. */
struct kv_trouble {
	_Atomic(int) tb_err;		/* the last failure since it worked, or 0 */
	_Atomic(uint64_t) tb_again_ns;	/* it is left alone until then */
	uint64_t tb_since_ns;		/* tl_lock, as all that follows */
	uint32_t tb_n;			/* failures in a row */
	char *tb_text;
	struct kv_trouble *tb_next, **tb_at;
};

/* Of a database. */
struct kv_troubles {
	pthread_mutex_t tl_lock;	/* a leaf */
	struct kv_trouble *tl_first;
};

/* It failed with @err, -EIO or -EUCLEAN: what (@fmt), and why (the detail of the error). */
void kv_trouble_set(struct kvdb *db, struct kv_trouble *tb, int err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* It works, or there is no such thing any more. */
void kv_trouble_end(struct kvdb *db, struct kv_trouble *tb);
/* It failed, and is not to be tried yet. */
bool kv_trouble_holds(struct kvdb *db, const struct kv_trouble *tb);
/* The last failure, with its detail, as this thread's error; 0: it works. */
int kv_trouble_error(struct kvdb *db, const struct kv_trouble *tb);
/* Since it failed first; 0: it works. */
uint64_t kv_trouble_age_ns(struct kvdb *db, struct kv_trouble *tb);
/* How many there are; age and text (NULL: not wanted) of the oldest. */
uint64_t kv_troubles(struct kvdb *db, uint64_t *age_ns, char *text, size_t size);

#endif
