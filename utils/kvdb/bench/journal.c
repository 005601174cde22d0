/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The journal of acknowledgements: a shared mapping of a file outside the pool,
 * written by plain stores. It survives the end of the process however that
 * ends (SIGKILL, or a power cut simulated by MPOOL_DEV), because the kernel
 * keeps the pages. It is not flushed: for the loss of real power it must lie on
 * a machine that keeps running.
 *
 * A lane belongs to one loader thread. An entry is complete when the lane's
 * count includes it.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

size_t bench_journal_lane(const struct bench_jhead *h)
{
	size_t n = sizeof(struct bench_jlane) + h->per_thread * sizeof(struct bench_jentry);

	return (n + 63) & ~(size_t)63;
}

static int journal_map(struct bench_journal *j, int fd, int prot)
{
	void *p = mmap(NULL, j->bytes, prot, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	j->head = p;
	return 0;
}

/* Empty, and ours from now on. -EEXIST: it holds something that is no journal. */
static int journal_take(int fd)
{
	const uint64_t magic = BENCH_JOURNAL_MAGIC;
	uint64_t was = 0;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISREG(st.st_mode) && st.st_size &&
	    (pread(fd, &was, sizeof(was), 0) != sizeof(was) || was != magic))
		return -EEXIST;
	if (TEMP_FAILURE_RETRY(ftruncate(fd, 0)) ||
	    pwrite(fd, &magic, sizeof(magic), 0) != sizeof(magic))
		return errno ? -errno : -EIO;
	return 0;
}

int bench_journal_make(struct bench *b)
{
	struct bench_jhead h = { .magic = BENCH_JOURNAL_MAGIC, .threads = b->threads };
	struct bench_journal *j = calloc(1, sizeof(*j));
	int fd, rc;

	if (!j)
		return ui_fail(b->ui, b->journal_file, -ENOMEM, NULL);
	h.interval_ms = b->info.interval_ms;
	h.per_thread = (b->records + b->threads - 1) / b->threads;
	h.records = b->records;
	h.value_size = b->value_size;
	h.is_missing = b->is_missing;
	j->bytes = 4096 + b->threads * bench_journal_lane(&h);
	fd = open(b->journal_file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	rc = fd < 0 ? -errno : journal_take(fd);
	/* allocated now: a full file system must not end the process by SIGBUS later */
	if (!rc)
		do {
			rc = -posix_fallocate(fd, 0, (off_t)j->bytes);
		} while (rc == -EINTR);
	if (!rc)
		rc = journal_map(j, fd, PROT_READ | PROT_WRITE);
	if (fd >= 0)
		close(fd);
	if (rc) {
		free(j);
		return rc != -EEXIST ? ui_fail(b->ui, b->journal_file, rc, NULL) :
		       ui_error(b->ui, EXIT_REFUSED, b->journal_file, "give a path that is free, "
				"or that of a journal", "there is a file already that is none");
	}
	h.was_empty = !b->is_missing;
	h.begin_ns = bench_now_ns();
	memcpy(j->head, &h, sizeof(h));
	b->journal = j;
	return EXIT_DONE;
}

/* Is this file, of @size bytes, what bench_journal_make() writes? */
static bool journal_good(const struct bench_jhead *h, size_t size)
{
	uint64_t n = 4096, i;

	if (h->magic != BENCH_JOURNAL_MAGIC || !h->threads || h->threads > BENCH_THREADS)
		return false;
	if (h->per_thread > size / sizeof(struct bench_jentry) || h->value_size > KVDB_VALUE_MAX)
		return false;
	n += h->threads * bench_journal_lane(h);
	if (n != size)
		return false;
	for (i = 0; i < h->threads; i++) {
		struct bench_journal j = { .head = (struct bench_jhead *)h };

		if (bench_jlane_of(&j, (unsigned)i)->count > h->per_thread)
			return false;
	}
	return true;
}

int bench_journal_open(struct ui *ui, const char *file, struct bench_journal *j)
{
	struct stat st;
	int fd = open(file, O_RDONLY | O_CLOEXEC), rc = 0;

	if (fd < 0 || fstat(fd, &st))
		rc = -errno;
	else if (!S_ISREG(st.st_mode) || st.st_size < 4096)
		rc = -EMEDIUMTYPE;
	if (!rc) {
		j->bytes = (size_t)st.st_size;
		rc = journal_map(j, fd, PROT_READ);
	}
	if (fd >= 0)
		close(fd);
	if (!rc && !journal_good(j->head, j->bytes)) {
		bench_journal_close(j);
		rc = -EMEDIUMTYPE;
	}
	if (rc == -EMEDIUMTYPE)
		return ui_error(ui, EXIT_USAGE, file, NULL, "no journal of kvdb bench --journal");
	return rc ? ui_fail(ui, file, rc, NULL) : EXIT_DONE;
}

void bench_journal_close(struct bench_journal *j)
{
	if (j && j->head)
		munmap(j->head, j->bytes);
	if (j)
		j->head = NULL;
}
