/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * mpool create.
 *
 * Order: gather the members from the command line, let the library check all of
 * them (nothing is written), show the plan, ask when a signature would be
 * overwritten, create. What was asked about is what is created: the member list
 * is built once.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "confirm.h"
#include "members.h"
#include "room.h"
#include "size.h"

const struct opt create_opts[] = {
	{ "size", 's', OPT_SIZE, 0, "SIZE",
	  "size of each capacity file; of a block device, all of it when not given", "capsz",
	  NULL },
	{ "capacity", 0, OPT_STR, OPTF_MULTI, "DEV",
	  "a file or block device for the capacity class, as DEV among the operands", "capdev",
	  NULL },
	{ "staging", 0, OPT_STR, OPTF_MULTI, "DEV",
	  "a file or block device for the staging class; in a directory, the file staging.mp there",
	  "stgdev", NULL },
	{ "staging-size", 0, OPT_SIZE, 0, "SIZE",
	  "size of each staging file; without --staging it is made in the pool's directory",
	  "stgsz", NULL },
	{ "name", 0, OPT_STR, 0, "NAME", "name of the pool, else the last part of PATH", "name",
	  NULL },
	{ "label", 0, OPT_STR, 0, "TEXT", "free text, at most 63 bytes", "label", NULL },
	{ "uid", 0, OPT_USER, 0, "USER", "owner recorded in the pool, else the caller", "uid",
	  NULL },
	{ "gid", 0, OPT_GROUP, 0, "GROUP", "group recorded in the pool, else the caller's", "gid",
	  NULL },
	{ "mode", 0, OPT_MODE, 0, "MODE", "permissions recorded in the pool, else 0600", "mode",
	  NULL },
	{ "spare", 0, OPT_PERCENT, 0, "PERCENT",
	  "part of each class withheld from ordinary allocation, at most 90", "spare", NULL },
	{ "multihost", 0, OPT_ENUM, 0, "WHEN",
	  "keep other hosts out by a heartbeat: auto, the default, does for devices behind a "
	  "fabric (TCP, RDMA, Fibre Channel, iSCSI)", "multihost", "auto|on|off" },
	{ "no-activate", 0, OPT_FLAG, 0, NULL,
	  "a pool made by the module: leave it inactive", NULL, NULL },
	{ "force", 'f', OPT_FLAG, 0, NULL, "overwrite members that hold something else", NULL,
	  NULL },
	CONFIRM_OPTS,
	PLAN_OPT,
	{ NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};

/* struct member - a device of the plan */
struct member {
	char path[POOL_PATH_MAX]; /* as given to the library, or the default file's */
	char signature[160];      /* what it holds now, or "" */
	bool is_block;
	bool exists;
	bool is_default;          /* the library chooses the name */
	uint64_t size;            /* bytes */
};

struct plan {
	const char *path;
	struct mpool_dev_spec spec[2 * MPOOL_DEVS_MAX];
	struct member member[2 * MPOOL_DEVS_MAX];
	unsigned n;
	unsigned signatures;
};

/* Bytes of a block device, 0 when unknown. */
static uint64_t block_size(const char *path)
{
	FILE *f = fopen(path, "re");
	off_t n = 0;

	if (f) {
		if (!fseeko(f, 0, SEEK_END))
			n = ftello(f);
		fclose(f);
	}
	return n > 0 ? (uint64_t)n : 0;
}

/* What a creation that was cut has left is no pool's: it is repeated without a question. */
static bool is_unborn(const char *path)
{
	struct mpool_probe pb;

	return !mpool_probe(path, &pb) && pb.state == 1 && pb.generation <= 2;
}

static int plan_add(struct ui *ui, struct plan *p, const char *path, unsigned mclass,
		    uint64_t size)
{
	static const char *const def[] = { "capacity.mp", "staging.mp" };
	static const char *const opt[] = { "--size", "--staging-size" };
	struct mpool_dev_spec *s = &p->spec[p->n];
	struct member *m = &p->member[p->n];
	struct stat st;

	if (p->n == 2 * MPOOL_DEVS_MAX)
		return ui_usage(ui, "too many member devices");
	m->is_default = !path;
	if (!path)
		snprintf(m->path, sizeof(m->path), "%s/%s", p->path, def[mclass]);
	else
		snprintf(m->path, sizeof(m->path), "%s", path);
	m->exists = !stat(m->path, &st);
	if (m->exists && S_ISDIR(st.st_mode)) {
		snprintf(m->path, sizeof(m->path), "%s/%s", path, def[mclass]);
		m->exists = !stat(m->path, &st);
	}
	m->is_block = m->exists && S_ISBLK(st.st_mode);
	if (!m->is_block && !size)
		return ui_usage(ui, "%s is %s: its size must be given with %s", m->path,
				m->exists ? "a file" : "not there, and would be a file",
				opt[mclass]);
	/* named as it was typed: the library sees it rounded */
	if (size && size < MEMBER_MIN)
		return ui_usage(ui, "%s: '%s' is too small, at least 2M", opt[mclass],
				args_str(ui->args, opt[mclass] + 2, ""));
	m->size = m->is_block && !size ? block_size(m->path) : size;
	if (m->exists && signature_find(m->path, m->signature, sizeof(m->signature))) {
		if (is_unborn(m->path))
			m->signature[0] = '\0';
		else
			p->signatures++;
	}
	s->path = m->is_default ? NULL : m->path;
	s->mclass = mclass;
	s->size = size;
	p->n++;
	return EXIT_DONE;
}

static int plan_members(struct ui *ui, struct plan *p)
{
	const struct args *a = ui->args;
	const uint64_t size = args_num(a, "size", 0), ssize = args_num(a, "staging-size", 0);
	const struct arg *g;
	unsigned pos = 0;
	bool is_name = !strchr(p->path, '/');
	int i, rc = 0;

	if (is_name && args_has(a, "name"))
		return ui_usage(ui, "the pool's name is given twice: %s and --name", p->path);
	if (!is_name && args_has(a, "no-activate"))
		return ui_usage(ui, "--no-activate is for a pool that is given by its name");
	if (is_name && a->n == 1 && !args_has(a, "capacity") && !access("/dev/mpoolctl", F_OK))
		return ui_usage(ui, "a pool of the kernel module needs block devices; write ./%s "
				"for a pool in files", p->path);
	if (args_has(a, "size") && !size)
		return ui_usage(ui, "--size must not be 0");
	if (args_has(a, "staging-size") && !ssize)
		return ui_usage(ui, "--staging-size must not be 0");
	for (i = 1; !rc && i < a->n; i++)
		rc = plan_add(ui, p, a->v[i], MPOOL_CAPACITY, size);
	while (!rc && (g = args_next(a, "capacity", &pos)))
		rc = plan_add(ui, p, g->str, MPOOL_CAPACITY, size);
	if (!rc && !p->n)
		rc = plan_add(ui, p, NULL, MPOOL_CAPACITY, size);
	pos = 0;
	while (!rc && (g = args_next(a, "staging", &pos)))
		rc = plan_add(ui, p, g->str, MPOOL_STAGING, ssize);
	if (!rc && ssize && !args_has(a, "staging"))
		rc = plan_add(ui, p, NULL, MPOOL_STAGING, ssize);
	return rc;
}

static void plan_json(struct ui *ui, const struct plan *p, const struct mpool_create_opts *o,
		      const struct mpool_info *info)
{
	struct json *j = &ui->js;
	char uuid[UUID_STR];

	ui_doc_begin(ui, 1, 0);
	json_bool(j, "is_dry_run", args_has(ui->args, "dry-run"));
	json_str(j, "path", p->path);
	json_str(j, "name", info ? info->name : o->name);
	json_str(j, "uuid", info ? uuid_str(uuid, info->uuid) : NULL);
	json_str(j, "label", o->label);
	json_u64(j, "uid", o->uid);
	json_u64(j, "gid", o->gid);
	json_u64(j, "mode", o->mode);
	json_arr(j, "devices");
	for (unsigned i = 0; i < p->n; i++) {
		const struct member *m = &p->member[i];

		json_obj(j, NULL);
		json_str(j, "path", m->path);
		json_str(j, "class", mclass_name(p->spec[i].mclass));
		json_u64(j, "size", m->size);
		json_bool(j, "is_block", m->is_block);
		json_bool(j, "is_present", m->exists);
		json_str(j, "signature", m->signature[0] ? m->signature : NULL);
		json_end(j);
	}
	json_end(j);
	ui_doc_end(ui);
}

static void plan_text(FILE *f, const struct plan *p, const struct mpool_create_opts *o)
{
	char size[SIZE_STR];

	fprintf(f, "pool %s%s%s%s\n", p->path, o->name ? " named " : "", o->name ? o->name : "",
		p->member[0].is_default ? ", in plain files" : "");
	for (unsigned i = 0; i < p->n; i++) {
		const struct member *m = &p->member[i];

		fprintf(f, "  %-8s  %-6s  %s  %s%s%s\n", mclass_name(p->spec[i].mclass),
			size_str(size, m->size), m->path,
			m->is_block ? "block device" : m->exists ? "file" : "new file",
			m->signature[0] ? ", holds: " : "", m->signature);
	}
}

static void plan_opts(struct ui *ui, struct plan *p, struct mpool_create_opts *o)
{
	const struct args *a = ui->args;
	uint32_t spare = (uint32_t)args_num(a, "spare", 0);

	o->name = args_str(a, "name", NULL);
	o->label = args_str(a, "label", NULL);
	o->uid = (uint32_t)args_num(a, "uid", getuid());
	o->gid = (uint32_t)args_num(a, "gid", getgid());
	o->mode = (uint32_t)args_num(a, "mode", 0600);
	o->spare_pct[MPOOL_CAPACITY] = spare;
	o->spare_pct[MPOOL_STAGING] = spare;
	o->devs = p->spec;
	o->ndevs = p->n;
	if (args_has(a, "force"))
		o->flags |= MPOOL_CREATE_FORCE;
	if (args_num(a, "multihost", 0))
		o->flags |= args_num(a, "multihost", 0) == 1 ? MPOOL_CREATE_MULTIHOST :
							       MPOOL_CREATE_ONE_HOST;
}

static void plan_room(struct ui *ui, const struct plan *p)
{
	struct room room = { .n = 0 };

	for (unsigned i = 0; i < p->n; i++)
		if (!p->member[i].is_block)
			room_add(&room, p->member[i].path, p->member[i].size);
	room_note(ui, &room);
}

/* Ask before signatures are overwritten. The word is the path as it was typed. */
static int create_confirm(struct ui *ui, const struct plan *p, const struct mpool_create_opts *o)
{
	char what[512];
	unsigned i = 0;

	if (!p->signatures)
		return EXIT_DONE;
	while (!p->member[i].signature[0])
		i++;
	if (!args_has(ui->args, "yes") && ui->tty_in)
		plan_text(stderr, p, o);
	snprintf(what, sizeof(what), "%s on %.200s%s", p->member[i].signature, p->member[i].path,
		 p->signatures > 1 ? " and what other members hold" : "");
	return confirm(ui, p->path, what, o->name ? o->name : p->path);
}

/*
 * A pool by name is trusted on the machine that made it. The library has left
 * it active.
 */
static int create_trust(struct ui *ui, const struct plan *p)
{
	struct mpool_probe probe;
	int rc = mpool_probe(p->spec[0].path, &probe);

	if (rc)
		return ui_fail(ui, p->path, rc, mpool_error_detail());
	rc = trust_add(probe.uuid, p->path);
	if (rc)
		ui_note(ui, "%s is not activated at boot: %s: %s", p->path, trust_dir(),
			strerror(-rc));
	rc = args_has(ui->args, "no-activate") ? mpool_deactivate(p->path) : 0;
	return rc ? ui_fail(ui, p->path, rc, mpool_error_detail()) : EXIT_DONE;
}

static int create_report(struct ui *ui, const struct plan *p, const struct mpool_create_opts *o)
{
	struct mpool_info info;
	struct target t;
	struct mpool *mp;
	char size[SIZE_STR];
	int rc;

	if (!strchr(p->path, '/')) {
		rc = create_trust(ui, p);
		if (rc)
			return rc;
	}
	/* what was made is what can be opened: success is not reported without it */
	rc = target_open(ui, p->path, &t);
	if (rc)
		return rc;
	history_add(ui, t.path);
	rc = pool_open_rdonly(t.path, &mp);
	if (!rc) {
		mpool_info(mp, &info);
		mpool_close(mp);
	}
	target_close(&t);
	if (rc)
		return ui_fail(ui, p->path, rc, mpool_error_detail());
	if (ui->json) {
		plan_json(ui, p, o, &info);
		return EXIT_DONE;
	}
	if (ui->quiet)
		return EXIT_DONE;
	printf("created %s", p->path);
	for (unsigned c = 0; c < MPOOL_MCLASSES; c++)
		if (info.cls[c].devs)
			printf("%s %s %s", c ? "," : ":", mclass_name(c),
			       size_str(size, info.cls[c].total));
	putchar('\n');
	return EXIT_DONE;
}

/* A member holds something else: not an EPERM of the system, which -f does not help. */
static bool is_foreign(int rc)
{
	return rc == -EPERM && exit_from_error(rc, mpool_error_detail()->id) == EXIT_REFUSED;
}

/* The library says "force"; here that has a name. */
static int create_fail(struct ui *ui, const struct plan *p, int rc)
{
	struct mpool_error e = *mpool_error_detail();

	if (is_foreign(rc))
		snprintf(e.cure, sizeof(e.cure), "use -f to overwrite");
	ui_pool_name(&e, p->path, args_str(ui->args, "name", NULL));
	return ui_fail(ui, p->path, rc, &e);
}

static int create_run(struct ui *ui, struct plan *p)
{
	struct mpool_create_opts o = MPOOL_CREATE_OPTS_INIT;
	bool is_dry = args_has(ui->args, "dry-run");
	int rc;

	plan_opts(ui, p, &o);
	o.flags |= MPOOL_CREATE_PLAN;
	rc = mpool_create(p->path, &o);
	if (is_dry && (!rc || is_foreign(rc))) {
		if (ui->json)
			plan_json(ui, p, &o, NULL);
		else
			plan_text(stdout, p, &o);
	}
	if (rc)
		return create_fail(ui, p, rc);
	if (!is_dry) {
		rc = create_confirm(ui, p, &o);
		if (rc)
			return rc;
		o.flags &= ~MPOOL_CREATE_PLAN;
		rc = mpool_create(p->path, &o);
		if (rc)
			return create_fail(ui, p, rc);
	}
	plan_room(ui, p);
	return is_dry ? EXIT_DONE : create_report(ui, p, &o);
}

int verb_create(struct ui *ui)
{
	struct plan *p;
	int rc;

	p = calloc(1, sizeof(*p));
	if (!p)
		return ui_error(ui, EXIT_FAILED, NULL, NULL, "out of memory");
	p->path = ui->args->v[0];
	rc = plan_members(ui, p);
	if (!rc)
		rc = create_run(ui, p);
	free(p);
	return rc;
}
