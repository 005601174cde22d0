/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The half of the power-cut test that runs in the virtual machine. See powercut.h.
 *
 *	cut_work [options] fua DEVICE	one FUA write and one flush between marks
 *	cut_work [options] work OUT	make a pool, work, destroy it; the oracle goes to OUT
 *	cut_work [options] check PACK	put crash states on the devices, open, judge
 *
 *	-k		through the module, else in this process
 *	-c DEV -s DEV	capacity and staging member
 *	-l NAME		marks: messages to the log-writes device NAME
 *	-m DEV		marks: sectors of DEV
 *	-d DIR		folder for pool.json
 *	-S SEED -n STEPS
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/dm-ioctl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "uapi/mpool.h"
#include "powercut.h"

#define ROUNDS	4u	/* the pool is closed (deactivated) between rounds */

struct work {
	struct eng w_eng;
	struct pm_rt w_rt;
	struct cut_oracle w_or;
	bool w_is_kernel;
	const char *w_dev[2];
	const char *w_logged;
	const char *w_dir;
	int w_dm_fd, w_mark_fd;
	uint8_t *w_sector;	/* for marks, aligned */
	unsigned w_steps;
	char w_name[MPOOL_NAME_MAX + 1];	/* of the active pool */
};

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "cut_work: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(1);
}

static void *aligned(size_t size)
{
	void *p;

	if (posix_memalign(&p, SIM_PAGE, size))
		die("no memory");
	memset(p, 0, size);
	return p;
}

/* ---- marks ---- */

static void mark_dm(struct work *w, uint64_t number)
{
	struct {
		struct dm_ioctl head;
		struct dm_target_msg msg;
		char text[48];
	} m;

	memset(&m, 0, sizeof(m));
	m.head.version[0] = DM_VERSION_MAJOR;
	m.head.data_size = sizeof(m);
	m.head.data_start = offsetof(__typeof__(m), msg);
	snprintf(m.head.name, sizeof(m.head.name), "%s", w->w_logged);
	/* the text begins where the message structure ends */
	snprintf(m.msg.message, sizeof(m.text), "mark %" PRIu64, number);
	if (ioctl(w->w_dm_fd, DM_TARGET_MSG, &m))
		die("mark %" PRIu64 " to %s: %s", number, w->w_logged, strerror(errno));
}

static void mark_sector(struct work *w, uint64_t number)
{
	struct cut_mark ma = { .ma_magic = CUT_MARK_MAGIC, .ma_number = number };

	memcpy(w->w_sector, &ma, sizeof(ma));
	if (pwrite(w->w_mark_fd, w->w_sector, SIM_SECTOR, 0) != (ssize_t)SIM_SECTOR)
		die("mark %" PRIu64 ": %s", number, strerror(errno));
}

/* The clock of the model: every look at it is a mark of its own in the log. */
static unsigned mark(void *arg)
{
	struct work *w = arg;
	uint64_t number = ++w->w_or.or_marks;

	if (w->w_mark_fd >= 0)
		mark_sector(w, number);
	if (w->w_dm_fd >= 0)
		mark_dm(w, number);
	return (unsigned)number;
}

static void marks_open(struct work *w, const char *dev)
{
	w->w_dm_fd = w->w_mark_fd = -1;
	w->w_sector = aligned(SIM_PAGE);
	if (w->w_logged) {
		w->w_dm_fd = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
		if (w->w_dm_fd < 0)
			die("/dev/mapper/control: %s", strerror(errno));
	}
	if (dev) {
		w->w_mark_fd = open(dev, O_WRONLY | O_DIRECT | O_CLOEXEC);
		if (w->w_mark_fd < 0)
			die("%s: %s", dev, strerror(errno));
	}
	w->w_eng.e_sim.s_clock = mark;
	w->w_eng.e_sim.s_clock_arg = w;
}

static int fua(struct work *w, const char *dev)
{
	struct iovec iov = { .iov_base = aligned(SIM_PAGE), .iov_len = SIM_PAGE };
	int fd = open(dev, O_RDWR | O_DIRECT | O_CLOEXEC);

	memset(iov.iov_base, 0xfa, SIM_PAGE);
	if (fd < 0)
		die("%s: %s", dev, strerror(errno));
	/* an older write, not flushed: a FUA write may not take it along */
	if (pwrite(fd, iov.iov_base, SIM_PAGE, 4 * SIM_PAGE) != (ssize_t)SIM_PAGE)
		die("write to %s: %s", dev, strerror(errno));
	mark(w);
	if (pwritev2(fd, &iov, 1, 0, RWF_DSYNC) != (ssize_t)SIM_PAGE)
		die("FUA write to %s: %s", dev, strerror(errno));
	mark(w);
	if (fsync(fd))
		die("fsync of %s: %s", dev, strerror(errno));
	mark(w);
	close(fd);
	free(iov.iov_base);
	return 0;
}

/* ---- the pool ---- */

static void devs_open(struct work *w, struct mpool_ioc_dev dev[2])
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		dev[i].id_mclass = i;
		dev[i].id_fd = open(w->w_dev[i], O_RDWR | O_CLOEXEC);
		if (dev[i].id_fd < 0)
			die("%s: %s", w->w_dev[i], strerror(errno));
	}
}

static void ctl(unsigned long cmd, void *arg, const char *what)
{
	struct mpool_ioc_arg *ma = arg;
	int fd = open("/dev/mpoolctl", O_RDWR | O_CLOEXEC);
	char text[MPOOL_IOC_TEXT] = "";

	ma->ma_text = (uint64_t)(uintptr_t)text;
	ma->ma_text_size = sizeof(text);
	if (fd < 0)
		die("/dev/mpoolctl: %s", strerror(errno));
	if (ioctl(fd, cmd, arg) < 0)
		die("%s: %s (%s) [MP%04u]", what, strerror(errno), text, ma->ma_error);
	close(fd);
}

static void kernel_create(struct work *w)
{
	struct mpool_ioc_dev dev[2];
	struct mpool_ioc_create c = { .ic_arg.ma_size = sizeof(c), .ic_mode = 0600, .ic_ndevs = 2 };

	devs_open(w, dev);
	snprintf(c.ic_name, sizeof(c.ic_name), "%s", CUT_POOL);
	c.ic_devs = (uint64_t)(uintptr_t)dev;
	ctl(MPOOL_IOC_CREATE, &c, "MPOOL_IOC_CREATE");
	close(dev[0].id_fd);
	close(dev[1].id_fd);
}

static void kernel_destroy(struct work *w)
{
	struct mpool_ioc_dev dev[2];
	struct mpool_ioc_devs d = { .ds_arg.ma_size = sizeof(d), .ds_ndevs = 2 };

	devs_open(w, dev);
	dev[0].id_mclass = dev[1].id_mclass = 0;
	d.ds_devs = (uint64_t)(uintptr_t)dev;
	ctl(MPOOL_IOC_DESTROY, &d, "MPOOL_IOC_DESTROY");
	close(dev[0].id_fd);
	close(dev[1].id_fd);
}

static void embedded_create(struct work *w)
{
	struct mpool_dev_spec dev[2] = {
		{ .path = w->w_dev[0], .mclass = MPOOL_CAPACITY },
		{ .path = w->w_dev[1], .mclass = MPOOL_STAGING },
	};
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;

	o.name = CUT_POOL;
	o.devs = dev;
	o.ndevs = 2;
	if (mpool_create(w->w_dir, &o))
		die("mpool_create: %s", mpool_error_detail()->text);
}

/* pool.json for the tools in this process to look at the devices by */
static void config_write(struct work *w)
{
	char path[4096];
	FILE *f;

	if (mkdir(w->w_dir, 0700) && errno != EEXIST)
		die("%s: %s", w->w_dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/pool.json", w->w_dir);
	f = fopen(path, "w");
	if (!f)
		die("%s: %s", path, strerror(errno));
	fprintf(f, "{\"name\":\"%s\",\"devices\":[{\"path\":\"%s\",\"class\":\"capacity\"},"
		"{\"path\":\"%s\",\"class\":\"staging\"}]}\n", CUT_POOL, w->w_dev[0], w->w_dev[1]);
	if (fclose(f))
		die("%s: %s", path, strerror(errno));
}

/* Only the module needs it. 0 or -errno. */
static int activate(struct work *w)
{
	int rc;

	if (!w->w_is_kernel)
		return 0;
	rc = mpool_activate(w->w_dev, 2, MPOOL_ACTIVATE_TRUST, w->w_name);
	pm_pool = w->w_name;
	return rc;
}

static void deactivate(struct work *w)
{
	if (w->w_is_kernel && mpool_deactivate(w->w_name))
		die("mpool_deactivate: %s", mpool_error_detail()->text);
}

/* ---- work ---- */

static const struct pm_conf work_conf = {
	.pc_name = "powercut", .pc_devs = 2, .pc_obj_bytes = 32768,
	.pc_weight = { [PM_BATCH] = 6, [PM_ABORT] = 1, [PM_DELETE] = 3, [PM_MIXED] = 5,
		       [PM_APPEND] = 3, [PM_GROW] = 8, [PM_FLUSH] = 2, [PM_SEAL] = 2,
		       [PM_MLOG] = 2, [PM_REC] = 14, [PM_SYNC] = 3, [PM_ERASE] = 1,
		       [PM_MLOG_SEAL] = 1, [PM_MLOG_DELETE] = 1, [PM_MDC] = 1,
		       [PM_COMPACT] = 1, [PM_MDC_DELETE] = 1, [PM_REOPEN] = 1 },
};

/* syncs every log, closes and opens: afterwards the pool can be left */
static const struct pm_conf settle_conf = {
	.pc_name = "settle", .pc_devs = 2, .pc_obj_bytes = 4096, .pc_weight = { [PM_REOPEN] = 1 },
};

static void steps(struct work *w, const struct pm_conf *conf, unsigned n)
{
	for (; n; n--)
		if (pm_step(&w->w_eng, &w->w_or.or_pm, &w->w_rt, conf))
			die("%s", w->w_eng.e_why);
}

static void pool_enter(struct work *w)
{
	if (activate(w))
		die("mpool_activate: %s", mpool_error_detail()->text);
	if (pm_rt_open(&w->w_eng, &w->w_or.or_pm, &w->w_rt))
		die("%s", w->w_eng.e_why);
}

static void pool_leave(struct work *w)
{
	/* a full model deletes first; eight steps are enough for both */
	steps(w, &settle_conf, 8);
	if (pm_rt_close(&w->w_eng, &w->w_or.or_pm, &w->w_rt))
		die("%s", w->w_eng.e_why);
}

/* One change of the label, or of the name; the pool is not open. */
static void properties(struct work *w, unsigned round)
{
	struct cut_label *la = &w->w_or.or_label[w->w_or.or_nlabel];
	struct mpool_set_opts so = MPOOL_SET_OPTS_INIT;
	int rc;

	if (w->w_or.or_nlabel == CUT_LABELS)
		return;
	*la = la[-1];
	la->la_time = (struct pm_time){ mark(w), PM_NEVER };
	if (round & 1) {
		snprintf(la->la_name, sizeof(la->la_name), "%s%u", CUT_POOL, round);
		rc = mpool_rename(pm_pool, NULL, la->la_name);
		if (!rc && w->w_is_kernel)
			strcpy(w->w_name, la->la_name);
	} else {
		snprintf(la->la_text, sizeof(la->la_text), "round %u", round);
		so.mask = MPOOL_SET_LABEL;
		so.label = la->la_text;
		rc = mpool_set(pm_pool, NULL, &so);
	}
	if (rc)
		die("mpool_set or mpool_rename: %s", mpool_error_detail()->text);
	la->la_time.e = mark(w);
	w->w_or.or_nlabel++;
}

static void oracle_write(const struct work *w, const char *path)
{
	size_t bytes = (sizeof(w->w_or) + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE, done;
	uint8_t *buf = aligned(bytes);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ssize_t n = 0;

	memcpy(buf, &w->w_or, sizeof(w->w_or));
	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	for (done = 0; done < bytes; done += (size_t)n) {
		n = write(fd, buf + done, bytes - done);
		if (n <= 0)
			die("%s: %s", path, strerror(errno));
	}
	if (fsync(fd) || close(fd))
		die("%s: %s", path, strerror(errno));
	free(buf);
}

static int work(struct work *w, const char *out)
{
	struct cut_oracle *o = &w->w_or;
	unsigned round;

	memcpy(o->or_magic, CUT_ORACLE_MAGIC, sizeof(o->or_magic));
	o->or_bytes = sizeof(*o);
	o->or_pm.m_rand = o->or_seed;
	o->or_pm.m_destroyed = pm_never;
	o->or_pm.m_certain = PM_NEVER;
	o->or_nlabel = 1;
	strcpy(o->or_label[0].la_name, CUT_POOL);
	o->or_pm.m_created.b = mark(w);
	if (w->w_is_kernel)
		kernel_create(w);
	else
		embedded_create(w);
	o->or_pm.m_created.e = mark(w);
	for (round = 0; round < ROUNDS; round++) {
		pool_enter(w);
		steps(w, &work_conf, w->w_steps / ROUNDS);
		pool_leave(w);
		properties(w, round);
		deactivate(w);
	}
	o->or_pm.m_destroyed.b = mark(w);
	if (w->w_is_kernel)
		kernel_destroy(w);
	else if (mpool_destroy(w->w_dir, NULL))
		die("mpool_destroy: %s", mpool_error_detail()->text);
	o->or_pm.m_destroyed.e = mark(w);
	oracle_write(w, out);
	printf("cut_work: %u objects, %u logs, %u records, %" PRIu64 " marks\n", o->or_pm.m_nobj,
	       o->or_pm.m_nstream, o->or_pm.m_nrec, o->or_marks);
	return 0;
}

/* ---- check ---- */

static void put_all(const char *path, const uint8_t *buf, size_t len)
{
	int fd = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
	size_t done, n;

	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	for (done = 0; done < len; done += n) {
		n = len - done < (1u << 20) ? len - done : 1u << 20;
		if (pwrite(fd, buf + done, n, (off_t)done) != (ssize_t)n)
			die("write to %s: %s", path, strerror(errno));
	}
	if (fsync(fd) || close(fd))
		die("%s: %s", path, strerror(errno));
}

static void get(FILE *f, void *buf, size_t len)
{
	if (fread(buf, 1, len, f) != len)
		die("the file of states is cut short");
}

/* Fills the devices with one state. */
static void state_put(struct work *w, FILE *f, const struct cut_state *st, uint8_t *mem[2],
		      uint8_t *const old[2])
{
	struct cut_page pa;
	unsigned i;

	for (i = 0; i < 2; i++)
		memcpy(mem[i], old[i], cut_bytes[i]);
	for (i = 0; i < st->st_pages; i++) {
		get(f, &pa, sizeof(pa));
		if (pa.pa_dev > 1 || pa.pa_page >= cut_bytes[pa.pa_dev] / SIM_PAGE)
			die("a page of state %s lies outside", st->st_path);
		memcpy(mem[pa.pa_dev] + (size_t)pa.pa_page * SIM_PAGE, pa.pa_data, SIM_PAGE);
	}
	for (i = 0; i < 2; i++)
		put_all(w->w_dev[i], mem[i], cut_bytes[i]);
}

static bool may_be_absent(const struct pm *m, unsigned at)
{
	return !pm_certain(m->m_created, at) || pm_begun(m->m_destroyed, at);
}

/* 0: legal, and there; 1: legal, and absent; -1: e_why */
static int state_judge(struct work *w, const struct cut_state *st)
{
	struct eng *e = &w->w_eng;
	struct pm *m = &w->w_or.or_pm;
	struct mpool_info info;
	uint64_t damage = 0;
	const char *why;
	int rc = activate(w);

	if (rc && may_be_absent(m, st->st_at))
		return 1;
	if (rc)
		return eng_fail(e, "mpool_activate: %d (%s)", rc, mpool_error_detail()->text);
	/* odd: an active pool's members are not mpool_verify()'s */
	e->e_rand = st->st_rand | 1;
	rc = pm_judge(e, m, st->st_at, &w->w_rt, NULL);
	if (!rc && !w->w_rt.rt_mp) {
		deactivate(w);
		return w->w_is_kernel ? eng_fail(e, "active, but cannot be opened") : 1;
	}
	if (!rc && !mpool_info(w->w_rt.rt_mp, &info)) {
		why = cut_label_check(&w->w_or, st->st_at, info.name, info.label);
		if (why)
			rc = eng_fail(e, "name %s, label \"%s\": wanted %s", info.name, info.label,
				      why);
	}
	if (w->w_rt.rt_mp && pm_rt_close(e, m, &w->w_rt))
		return -1;
	deactivate(w);
	if (rc)
		return rc;
	rc = mpool_verify(w->w_dir, NULL, MPOOL_VERIFY_DATA, NULL, NULL, &damage);
	if (rc || damage)
		return eng_fail(e, "mpool_verify afterwards: %d, %" PRIu64 " damaged", rc, damage);
	return 0;
}

static int check(struct work *w, const char *path)
{
	unsigned i, n[3] = { 0, 0, 0 };
	struct cut_state st;
	struct cut_pack pk;
	uint8_t *mem[2], *old[2];
	FILE *f = fopen(path, "r");
	uint64_t off;

	if (!f)
		die("%s: %s", path, strerror(errno));
	for (i = 0; i < 2; i++) {
		mem[i] = aligned(cut_bytes[i]);
		old[i] = aligned(cut_bytes[i]);
		for (off = 0; off < cut_bytes[i]; off += SIM_PAGE)
			cut_old_page(old[i] + off, off);
	}
	get(f, &pk, sizeof(pk));
	if (memcmp(pk.pk_magic, CUT_PACK_MAGIC, sizeof(pk.pk_magic)) ||
	    pk.pk_bytes != sizeof(w->w_or))
		die("%s is not a file of states of this program", path);
	get(f, &w->w_or, sizeof(w->w_or));
	/* nothing is recorded here: times come from the file */
	w->w_eng.e_sim.s_clock = NULL;
	config_write(w);
	for (i = 0; i < pk.pk_states; i++) {
		int rc;

		get(f, &st, sizeof(st));
		state_put(w, f, &st, mem, old);
		rc = state_judge(w, &st);
		n[rc < 0 ? 2 : (unsigned)rc]++;
		if (rc < 0)
			printf("VIOLATION in state %s: %s\n", st.st_path, w->w_eng.e_why);
		fflush(stdout);
	}
	fclose(f);
	printf("cut_work: %u states, %u opened, %u legally absent, %u violations\n", i, n[0], n[1],
	       n[2]);
	for (i = 0; i < 2; i++) {
		free(mem[i]);
		free(old[i]);
	}
	return n[2] != 0;
}

int main(int argc, char **argv)
{
	static struct work w = { .w_steps = 240, .w_or.or_seed = 1, .w_dir = "./cutpool" };
	const char *mark_dev = NULL;
	int c;

	while ((c = getopt(argc, argv, "kc:s:l:m:d:S:n:")) != -1) {
		switch (c) {
		case 'k':
			w.w_is_kernel = true;
			break;
		case 'c':
			w.w_dev[0] = optarg;
			break;
		case 's':
			w.w_dev[1] = optarg;
			break;
		case 'l':
			w.w_logged = optarg;
			break;
		case 'm':
			mark_dev = optarg;
			break;
		case 'd':
			w.w_dir = optarg;
			break;
		case 'S':
			w.w_or.or_seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			w.w_steps = (unsigned)atoi(optarg);
			break;
		default:
			return 2;
		}
	}
	pm_pool = w.w_dir;
	marks_open(&w, mark_dev);
	if (argc - optind == 2 && !strcmp(argv[optind], "fua"))
		return fua(&w, argv[optind + 1]);
	if (argc - optind == 2 && w.w_dev[0] && w.w_dev[1] && !strcmp(argv[optind], "work"))
		return work(&w, argv[optind + 1]);
	if (argc - optind == 2 && w.w_dev[0] && w.w_dev[1] && !strcmp(argv[optind], "check"))
		return check(&w, argv[optind + 1]);
	fprintf(stderr, "usage: see the head of cut_work.c\n");
	return 2;
}
