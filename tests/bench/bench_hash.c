/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A hash table in memory as an engine of the comparison: what the driver itself
 * costs. It is not durable, has no order, and forgets nothing.
 *
 * A chain per bucket, grown by compare-and-swap. An entry's value is guarded by
 * a sequence number: odd while it is written; a reader takes a copy and looks
 * at the number again. Keys and entries never move or go.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine.h"

#define CHUNK (16u << 20)

struct entry {
	struct entry *next;
	uint64_t hash;
	_Atomic(uint32_t) seq;
	uint32_t klen, vlen;
	unsigned char data[]; /* key, value */
};

struct thread {
	char *at, *end;		/* of the chunk that new entries come from */
	unsigned char *copy;
};

static _Atomic(struct entry *) *bucket;
static uint64_t mask;

static void *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("no memory");
	madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

static void hash_open(const struct engine_opts *o)
{
	/* about one entry of 1000 bytes each */
	for (mask = 1024; mask < o->data_bytes / 1000; mask *= 2)
		;
	bucket = map(mask * sizeof(*bucket));
	mask--;
}

static void hash_close(void)
{
}

static void *thread_begin(void)
{
	struct thread *t = calloc(1, sizeof(*t));

	if (t)
		t->copy = malloc(1u << 20);
	if (!t || !t->copy)
		die("no memory");
	return t;
}

static void thread_end(void *arg)
{
	struct thread *t = arg;

	free(t->copy);
	free(t);
}

static uint64_t hash_of(const unsigned char *key, size_t klen)
{
	uint64_t h = klen * 0x9e3779b97f4a7c15ull, w;

	for (; klen >= 8; klen -= 8, key += 8) {
		memcpy(&w, key, 8);
		h = (h ^ w) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	w = 0;
	memcpy(&w, key, klen);
	h = (h ^ w) * 0xc4ceb9fe1a85ec53ull;
	return h ^ h >> 32;
}

static struct entry *find(struct entry *e, uint64_t hash, const void *key, size_t klen)
{
	while (e && (e->hash != hash || e->klen != klen || memcmp(e->data, key, klen)))
		e = e->next;
	return e;
}

static struct entry *entry_new(struct thread *t, uint64_t hash, const void *key, size_t klen,
			       const void *val, size_t vlen)
{
	size_t bytes = (sizeof(struct entry) + klen + vlen + 7) & ~(size_t)7;
	struct entry *e;

	if ((size_t)(t->end - t->at) < bytes) {
		size_t chunk = bytes > CHUNK ? bytes : CHUNK;

		t->at = map(chunk);
		t->end = t->at + chunk;
	}
	e = (struct entry *)t->at;
	t->at += bytes;
	e->hash = hash;
	e->klen = (uint32_t)klen;
	e->vlen = (uint32_t)vlen;
	memcpy(e->data, key, klen);
	memcpy(e->data + klen, val, vlen);
	return e;
}

static void overwrite(struct entry *e, const void *val, size_t vlen)
{
	uint32_t seq = atomic_load(&e->seq);

	if (vlen != e->vlen)
		die("hash: a value changed its length");
	while (seq & 1 || !atomic_compare_exchange_weak(&e->seq, &seq, seq + 1)) {
		sched_yield();
		seq = atomic_load(&e->seq);
	}
	atomic_thread_fence(memory_order_release);
	memcpy(e->data + e->klen, val, vlen);
	atomic_store_explicit(&e->seq, seq + 2, memory_order_release);
}

static void put(void *t, const void *key, size_t klen, const void *val, size_t vlen)
{
	uint64_t hash = hash_of(key, klen);
	_Atomic(struct entry *) *b = &bucket[hash & mask];
	struct entry *head = atomic_load(b), *e = find(head, hash, key, klen), *made;

	if (e) {
		overwrite(e, val, vlen);
		return;
	}
	made = entry_new(t, hash, key, klen, val, vlen);
	do {
		/* another thread may have put the same key meanwhile */
		e = find(head, hash, key, klen);
		if (e) {
			overwrite(e, val, vlen);
			return;
		}
		made->next = head;
	} while (!atomic_compare_exchange_weak(b, &head, made));
}

static bool get(void *arg, const void *key, size_t klen, struct engine_view *v)
{
	uint64_t hash = hash_of(key, klen);
	struct entry *e = find(atomic_load(&bucket[hash & mask]), hash, key, klen);
	struct thread *t = arg;
	uint32_t seq;

	if (!e)
		return false;
	for (;;) {
		seq = atomic_load_explicit(&e->seq, memory_order_acquire);
		if (!(seq & 1)) {
			memcpy(t->copy, e->data + e->klen, e->vlen);
			atomic_thread_fence(memory_order_acquire);
			if (atomic_load_explicit(&e->seq, memory_order_relaxed) == seq)
				break;
		}
		sched_yield();
	}
	v->val = t->copy;
	v->vlen = e->vlen;
	return true;
}

static void unget(void *t, struct engine_view *v)
{
	(void)t;
	(void)v;
}

static const char *version(void)
{
	return "1";
}

static const char *settings(void)
{
	return "";
}

static const struct engine hash_engine = {
	.name = "hash",
	.loses = "everything",
	.is_volatile = true,
	.version = version,
	.open = hash_open,
	.close = hash_close,
	.thread_begin = thread_begin,
	.thread_end = thread_end,
	.put = put,
	.get = get,
	.unget = unget,
	.settings = settings,
};

int main(int argc, char **argv)
{
	return ycsb_main(argc, argv, &hash_engine);
}
