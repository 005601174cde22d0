/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Limits of control groups, by trees as /proc and their file systems have them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/cgroup.h"
#include "harness.h"

#define NONE	UINT64_MAX
#define MIB	(1ull << 20)

static char root[256];

/* a file below the tree's root, and the directories that it lies in */
static void put(const char *path, const char *text)
{
	char full[600], *p;
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		mkdir(full, 0700);
		*p = '/';
	}
	f = fopen(full, "w");
	T_OK(f != NULL);
	fputs(text, f);
	fclose(f);
}

static void begin(const char *cgroup, const char *mountinfo)
{
	const char *tmp = getenv("TMPDIR");
	char cmd[300];

	if (*root) {
		snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
		T_EQ(system(cmd), 0);
	}
	snprintf(root, sizeof(root), "%s/kv-cgroup-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	T_OK(mkdtemp(root) != NULL);
	if (cgroup)
		put("/proc/self/cgroup", cgroup);
	if (mountinfo)
		put("/proc/self/mountinfo", mountinfo);
}

static void check(uint64_t memory, uint64_t cores)
{
	struct kv_cgroup g;

	kv_cgroup_read(root, &g);
	T_EQ(g.g_memory, memory);
	T_EQ(g.g_cores, cores);
}

#define V2_MOUNT "34 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"

static void version_2_takes_the_smallest_up_to_the_root(void)
{
	begin("0::/a.slice/b.service/c\n",
	      "23 24 0:21 / /proc rw - proc proc rw\n" V2_MOUNT);
	put("/sys/fs/cgroup/a.slice/memory.max", "314572800\n");
	put("/sys/fs/cgroup/a.slice/cpu.max", "max 100000\n");
	put("/sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
	put("/sys/fs/cgroup/a.slice/b.service/cpu.max", "150000 100000\n");
	put("/sys/fs/cgroup/a.slice/b.service/c/memory.max", "1073741824\n");
	put("/sys/fs/cgroup/a.slice/b.service/c/cpu.max", "400000 100000\n");
	check(300 * MIB, 2);
	put("/sys/fs/cgroup/a.slice/b.service/memory.high", "209715200\n");
	check(200 * MIB, 2);
	/* of a group that is not on the way */
	put("/sys/fs/cgroup/a.slice/other/memory.max", "4096\n");
	check(200 * MIB, 2);
}

static void version_1_has_a_hierarchy_for_each(void)
{
	begin("12:cpuacct,cpu:/c1/c2\n11:memory:/m1/m2\n1:name=systemd:/s\n",
	      "30 25 0:26 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
	      "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	      "32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:3 - cgroup cgroup "
	      "rw,cpu,cpuacct\n");
	put("/sys/fs/cgroup/memory/m1/memory.limit_in_bytes", "314572800\n");
	put("/sys/fs/cgroup/memory/m1/m2/memory.limit_in_bytes", "9223372036854771712\n");
	put("/sys/fs/cgroup/cpu,cpuacct/c1/cpu.cfs_quota_us", "250000\n");
	put("/sys/fs/cgroup/cpu,cpuacct/c1/cpu.cfs_period_us", "100000\n");
	put("/sys/fs/cgroup/cpu,cpuacct/c1/c2/cpu.cfs_quota_us", "-1\n");
	put("/sys/fs/cgroup/cpu,cpuacct/c1/c2/cpu.cfs_period_us", "100000\n");
	check(300 * MIB, 3);
}

static void both_versions_at_once(void)
{
	begin("11:memory:/m\n0::/u\n",
	      "31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	      "33 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
	put("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "314572800\n");
	put("/sys/fs/cgroup/unified/u/cpu.max", "20000 100000\n");
	check(300 * MIB, 1);
}

/* A container sees its own group as the root of the mount, and its path from outside. */
static void a_part_of_a_hierarchy_is_mounted(void)
{
	begin("11:memory:/docker/0123/inner\n",
	      "31 25 0:27 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "524288000\n");
	put("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9223372036854771712\n");
	check(500 * MIB, NONE);
	/* the group above, which is not mounted, is known to the kernel's own sum */
	put("/sys/fs/cgroup/memory/inner/memory.stat",
	    "cache 1\nhierarchical_memory_limit 314572800\ntotal_cache 1\n");
	check(300 * MIB, NONE);
}

static void a_namespace_of_groups(void)
{
	/* mounted inside: the root is ours */
	begin("0::/\n", V2_MOUNT);
	put("/sys/fs/cgroup/memory.max", "314572800\n");
	check(300 * MIB, NONE);
	/* mounted outside of it, and then bound */
	begin("0::/in\n", "34 24 0:30 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
	put("/sys/fs/cgroup/memory.max", "314572800\n");
	check(300 * MIB, NONE);
	/* moved out of the namespace's root */
	begin("0::/../sibling\n", V2_MOUNT);
	put("/sys/fs/cgroup/memory.max", "209715200\n");
	check(200 * MIB, NONE);
	/* a name that only begins like the mount's root */
	begin("0::/docker/0123456\n",
	      "34 24 0:30 /docker/0123 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
	put("/sys/fs/cgroup/memory.max", "104857600\n");
	check(100 * MIB, NONE);
}

static void mounted_anywhere_and_with_blanks(void)
{
	begin("0::/a b:c\n",
	      "34 24 0:30 / /run/c\\040g rw master:1 shared:2 - cgroup2 none rw\n");
	put("/run/c g/a b:c/memory.max", "314572800\n");
	check(300 * MIB, NONE);
}

static void what_is_missing_or_odd_is_no_limit(void)
{
	begin(NULL, NULL);
	check(NONE, NONE);
	begin("0::/a\n", NULL);
	check(NONE, NONE);
	begin("", V2_MOUNT);
	check(NONE, NONE);
	begin("nonsense\n0:/x\n0::/a\n", "short\n - cgroup2\n" V2_MOUNT);
	put("/sys/fs/cgroup/a/memory.max", "max\n");
	put("/sys/fs/cgroup/a/cpu.max", "100000 0\n");
	check(NONE, NONE);
	put("/sys/fs/cgroup/a/cpu.max", "");
	put("/sys/fs/cgroup/a/memory.max", "");
	check(NONE, NONE);
}

int main(void)
{
	T_RUN(version_2_takes_the_smallest_up_to_the_root);
	T_RUN(version_1_has_a_hierarchy_for_each);
	T_RUN(both_versions_at_once);
	T_RUN(a_part_of_a_hierarchy_is_mounted);
	T_RUN(a_namespace_of_groups);
	T_RUN(mounted_anywhere_and_with_blanks);
	T_RUN(what_is_missing_or_odd_is_no_limit);
	if (*root) {
		char cmd[300];

		snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
		if (system(cmd))
			return 1;
	}
	return t_done();
}
