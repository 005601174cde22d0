/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool doctor: is this machine in order for pools? One line per check, with
 * its state and, when it is not good, the cure. It changes nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "databases.h"
#include "members.h"
#include "table.h"

#define MODULE_DIR "/sys/module/mpool"
#define NOFILE_MIN 1024u

const struct opt doctor_opts[] = {
	TBL_OPTS,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

static const struct col doctor_cols[] = {
	{ "check", COL_STR, true, "what was looked at" },
	{ "state", COL_STR, true, "ok; note: works, with less; wrong: will fail" },
	{ "text", COL_STR, true, "what was found" },
	{ "cure", COL_STR, true, "what to do" },
	{ NULL, 0, false, NULL },
};

enum state { OK, NOTE, WRONG };

struct doctor {
	struct ui *ui;
	struct tbl *tbl;
	unsigned wrong;
	bool is_loaded;
};

static void say(struct doctor *d, const char *check, enum state state, const char *cure,
		const char *fmt, ...) __attribute__((format(printf, 5, 6)));

static void say(struct doctor *d, const char *check, enum state state, const char *cure,
		const char *fmt, ...)
{
	static const char *const name[] = { "ok", "note", "wrong" };
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tbl_row(d->tbl);
	tbl_str(d->tbl, "check", check);
	tbl_str(d->tbl, "state", name[state]);
	tbl_str(d->tbl, "text", text);
	tbl_str(d->tbl, "cure", state == OK ? NULL : cure);
	d->wrong += state == WRONG;
}

/* The first line of a file; false when it cannot be read. */
static bool first_line(const char *path, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");
	bool is_read = f && fgets(buf, (int)size, f);

	if (f)
		fclose(f);
	if (is_read)
		buf[strcspn(buf, "\n")] = '\0';
	return is_read;
}

static void check_versions(struct doctor *d)
{
	char module[64];

	if (strcmp(mpool_version(), MP_VERSION))
		say(d, "library", WRONG, "install tool and library of one version",
		    "libmpool %s, mpool %s", mpool_version(), MP_VERSION);
	else
		say(d, "library", OK, NULL, "libmpool %s", mpool_version());
	d->is_loaded = !access(MODULE_DIR, F_OK);
	if (!d->is_loaded)
		say(d, "module", NOTE, "modprobe mpool; without it pools are used by path",
		    "not loaded");
	else if (!first_line(MODULE_DIR "/version", module, sizeof(module)))
		say(d, "module", WRONG, "load the module of this release", "of unknown version");
	else if (strcmp(module, MP_VERSION))
		say(d, "module", WRONG, "deactivate all pools, then modprobe -r mpool and modprobe "
		    "mpool", "%s is loaded, mpool is %s", module, MP_VERSION);
	else
		say(d, "module", OK, NULL, "%s is loaded", module);
}

/* Whether depmod knows the module for this kernel. */
static bool is_installed(const char *release)
{
	char path[256], line[4096];
	bool is_found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/lib/modules/%s/modules.dep", release);
	f = fopen(path, "re");
	while (f && !is_found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, ":")] = '\0';
		is_found = strstr(line, "/mpool.ko") != NULL;
	}
	if (f)
		fclose(f);
	return is_found;
}

static void check_kernel(struct doctor *d)
{
	unsigned major_no = 0, minor_no = 0;
	struct utsname u;
	char path[256];

	if (uname(&u) || sscanf(u.release, "%u.%u", &major_no, &minor_no) != 2) {
		say(d, "kernel", WRONG, NULL, "its version cannot be read");
		return;
	}
	if (major_no < 6 || (major_no == 6 && minor_no < 1))
		say(d, "kernel", NOTE, "the module needs 6.1 or newer; pools by path work",
		    "%s", u.release);
	else
		say(d, "kernel", OK, NULL, "%s", u.release);
	if (is_installed(u.release))
		say(d, "module file", OK, NULL, "installed for %s", u.release);
	else
		say(d, "module file", NOTE, "make dkms-install",
		    "not installed for %s", u.release);
	snprintf(path, sizeof(path), "/lib/modules/%s/build", u.release);
	if (!access(path, F_OK))
		say(d, "kernel headers", OK, NULL, "%s", path);
	else
		say(d, "kernel headers", NOTE, "needed to build the module: install the headers "
		    "of this kernel", "%s is absent", path);
}

static void check_lockdown(struct doctor *d)
{
	char line[128];

	if (!first_line("/sys/kernel/security/lockdown", line, sizeof(line)))
		return;
	if (strstr(line, "[none]"))
		say(d, "lockdown", OK, NULL, "unsigned modules may be loaded");
	else
		say(d, "lockdown", d->is_loaded ? OK : NOTE,
		    "the module must be signed: mokutil --import /var/lib/dkms/mok.pub", "%s",
		    line);
}

bool has_io_uring(void)
{
	struct io_uring_params p;
	long fd, rc;

	memset(&p, 0, sizeof(p));
	fd = syscall(__NR_io_uring_setup, 4, &p);
	if (fd < 0)
		return false;
	/* to make a ring may be allowed, and to use it not */
	rc = syscall(__NR_io_uring_enter, fd, 0, 0, 0, NULL, 0);
	close((int)fd);
	return rc >= 0;
}

static void check_io_uring(struct doctor *d)
{
	if (has_io_uring()) {
		say(d, "io_uring", OK, NULL, "available");
	} else {
		say(d, "io_uring", NOTE, "allow it (sysctl kernel.io_uring_disabled=0, or the "
		    "container's seccomp profile); without it I/O is synchronous and slower",
		    "not available: %s", strerror(errno));
	}
}

static void check_limits(struct doctor *d)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	if (r.rlim_cur < NOFILE_MIN)
		say(d, "open files", NOTE, "raise it: ulimit -n, or LimitNOFILE= of the service",
		    "a process may have %llu", (unsigned long long)r.rlim_cur);
	else
		say(d, "open files", OK, NULL, "a process may have %llu",
		    (unsigned long long)r.rlim_cur);
}

static const char *find_file(const char *const *dirs, const char *name, char *buf, size_t size)
{
	for (; *dirs; dirs++) {
		snprintf(buf, size, "%s/%s", *dirs, name);
		if (!access(buf, F_OK))
			return buf;
	}
	return NULL;
}

static void check_integration(struct doctor *d)
{
	static const char *const rules[] = { "/etc/udev/rules.d", "/usr/lib/udev/rules.d",
					     "/lib/udev/rules.d", NULL };
	static const char *const units[] = { "/etc/systemd/system", "/usr/lib/systemd/system",
					     "/usr/local/lib/systemd/system",
					     "/lib/systemd/system", NULL };
	char path[256];

	if (find_file(rules, "69-mpool.rules", path, sizeof(path)))
		say(d, "udev rule", OK, NULL, "%s", path);
	else
		say(d, "udev rule", NOTE, "make install; pools on devices are not activated by "
		    "themselves", "69-mpool.rules is not installed");
	if (access("/run/systemd/system", F_OK))
		say(d, "systemd", NOTE, "call 'mpool activate -a' at start and 'mpool deactivate "
		    "-a' at shutdown", "not in use here");
	else if (find_file(units, "mpool-activate@.service", path, sizeof(path)))
		say(d, "systemd", OK, NULL, "%s", path);
	else
		say(d, "systemd", NOTE, "make install, then systemctl daemon-reload",
		    "mpool-activate@.service is not installed");
	if (getgrnam("mpool"))
		say(d, "group", OK, NULL, "mpool exists");
	else
		say(d, "group", NOTE, "systemd-sysusers, or groupadd --system mpool; then set "
		    "gid=mpool of a pool", "there is no group mpool");
}

static void check_nodes(struct doctor *d)
{
	struct stat st;

	if (!stat(trust_dir(), &st)) {
		if (!S_ISDIR(st.st_mode) || (st.st_uid && st.st_uid != geteuid()) ||
		    (st.st_mode & 022))
			say(d, "trusted pools", WRONG, "chown root and chmod 0755 it",
			    "%s can be written by others: it counts for nothing", trust_dir());
		else
			say(d, "trusted pools", OK, NULL, "%s", trust_dir());
	}
	if (!d->is_loaded)
		return;
	if (stat("/dev/mpoolctl", &st))
		say(d, "control node", WRONG, "is udev or devtmpfs running?",
		    "/dev/mpoolctl is absent");
	else if (!S_ISCHR(st.st_mode) || st.st_uid || (st.st_mode & 077))
		say(d, "control node", WRONG, "chown root and chmod 0600 it",
		    "/dev/mpoolctl has owner %u and mode %04o", st.st_uid, st.st_mode & 07777);
	else
		say(d, "control node", OK, NULL, "/dev/mpoolctl, root only");
}

/* A file below the queue of the disk that @rdev is or is part of. */
static bool queue_line(dev_t rdev, const char *file, char *buf, size_t size)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/queue/%s", major(rdev), minor(rdev),
		 file);
	if (first_line(path, buf, size))
		return true;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/../queue/%s", major(rdev),
		 minor(rdev), file);
	return first_line(path, buf, size);
}

static void check_device(struct doctor *d, const struct member_dev *m)
{
	char line[64], cache[64] = "unknown";
	bool is_turning = queue_line(m->rdev, "rotational", line, sizeof(line)) && line[0] == '1';

	queue_line(m->rdev, "write_cache", cache, sizeof(cache));
	if (queue_line(m->rdev, "zoned", line, sizeof(line)) && strcmp(line, "none"))
		say(d, m->path, WRONG, "use a device that is not zoned", "zoned: %s", line);
	else if (queue_line(m->rdev, "logical_block_size", line, sizeof(line)) &&
		 strtoul(line, NULL, 10) > MPOOL_ALIGN)
		say(d, m->path, WRONG, "format it with sectors of 4096 or 512 bytes",
		    "sectors of %s bytes", line);
	else if (is_turning && m->probe.mclass == MPOOL_STAGING)
		say(d, m->path, NOTE, "staging wants flash: measure with mpool bench",
		    "a staging device that rotates");
	else
		say(d, m->path, OK, NULL, "%s device of %s, cache: %s",
		    mclass_name(m->probe.mclass), m->probe.name, cache);
}

static void check_pools(struct doctor *d)
{
	char after[MPOOL_NAME_MAX + 1] = "";
	struct mpool_active a;
	struct scan s;

	/* others may not read devices */
	if (geteuid() || scan_run(&s, NULL, 0)) {
		say(d, "devices", NOTE, "run it as root", "not examined");
		return;
	}
	for (unsigned i = 0; i < s.ngroups; i++) {
		const struct pgroup *g = &s.group[i];

		if (g->is_active || g->state == GROUP_COMPLETE)
			say(d, g->name, OK, NULL, "pool, %s%s", group_state_name(g),
			    g->is_trusted ? ", trusted" : "");
		else
			say(d, g->name, g->state == GROUP_DESTROYED ? NOTE : WRONG,
			    g->state == GROUP_MISSING ? "bring the missing devices back" :
			    g->state == GROUP_DUPLICATE ? "remove the copy" :
			    "mpool wipe makes the devices free", "pool, %s: %u of %u members",
			    group_state_name(g), g->found, g->wanted);
	}
	for (unsigned i = 0; i < s.ndevs; i++)
		check_device(d, &s.dev[i]);
	scan_free(&s);
	while (!mpool_active_next(after, &a)) {
		memcpy(after, a.name, sizeof(after));
		if (a.is_faulted)
			say(d, a.name, WRONG, "mpool status names the cause",
			    "pool, stopped by a fault");
	}
}

static void check_database(void *arg, const struct live_db *l)
{
	struct doctor *d = arg;
	char check[MPOOL_NAME_MAX + 16];

	snprintf(check, sizeof(check), "database %s", l->pool);
	if (l->fault[0])
		say(d, check, WRONG, "repair the cause, then close and open it",
		    "open by process %llu, stopped: %s", (unsigned long long)l->pid, l->fault);
	else if (l->stuck)
		say(d, check, WRONG, "look at the device's health; kvdb info tells more",
		    "open by process %llu; fails at %llu things, which are tried again, for "
		    "%llu s at %s", (unsigned long long)l->pid, (unsigned long long)l->stuck,
		    (unsigned long long)l->stuck_s, l->stuck_text);
	else
		say(d, check, OK, NULL, "open by process %llu", (unsigned long long)l->pid);
}

int verb_doctor(struct ui *ui)
{
	struct doctor d = { .ui = ui };
	int code;

	d.tbl = tbl_new(ui, doctor_cols, &code);
	if (!d.tbl)
		return code;
	check_versions(&d);
	check_kernel(&d);
	check_lockdown(&d);
	check_io_uring(&d);
	check_limits(&d);
	check_integration(&d);
	check_nodes(&d);
	check_pools(&d);
	databases_each(check_database, &d);
	if (ui->json) {
		ui_doc_begin(ui, 1, 0);
		json_bool(&ui->js, "is_healthy", !d.wrong);
	}
	tbl_print(d.tbl, "checks");
	if (ui->json)
		ui_doc_end(ui);
	return d.wrong ? EXIT_DAMAGE : EXIT_DONE;
}
