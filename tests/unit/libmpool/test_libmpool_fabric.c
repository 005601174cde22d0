/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* Which block devices are behind a fabric, by trees as sysfs has them. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device.h"
#include "harness.h"

static char root[256];

static const char *at(const char *path)
{
	static char buf[4][512];
	static unsigned n;

	n = (n + 1) % 4;
	snprintf(buf[n], sizeof(buf[n]), "%s/%s", root, path);
	return buf[n];
}

static void make_dirs(const char *path)
{
	char buf[512], *p;

	snprintf(buf, sizeof(buf), "%s", at(path));
	for (p = strchr(buf, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		mkdir(buf, 0700);
		*p = '/';
	}
	mkdir(buf, 0700);
}

static void put(const char *path, const char *text)
{
	FILE *f = fopen(at(path), "w");

	T_OK(f != NULL);
	fputs(text, f);
	fclose(f);
}

static void point(const char *path, const char *to)
{
	T_EQ(symlink(at(to), at(path)), 0);
}

static void nvme(const char *name, const char *transport)
{
	char path[256], to[256];

	snprintf(path, sizeof(path), "%s/block", name);
	make_dirs(path);
	snprintf(path, sizeof(path), "%s/ctrl", name);
	make_dirs(path);
	snprintf(path, sizeof(path), "%s/ctrl/transport", name);
	put(path, transport);
	snprintf(path, sizeof(path), "%s/block/device", name);
	snprintf(to, sizeof(to), "%s/ctrl", name);
	point(path, to);
}

static int is_fabric(const char *node)
{
	return mpl_node_is_fabric(at(node));
}

static void disks_of_this_host_are_none(void)
{
	make_dirs("pci/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda1");
	put("pci/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda1/partition", "1\n");
	nvme("local", "pcie\n");
	T_OK(!is_fabric("pci/ata1/host0/target0:0:0/0:0:0:0/block/sda"));
	T_OK(!is_fabric("pci/ata1/host0/target0:0:0/0:0:0:0/block/sda/sda1"));
	T_OK(!is_fabric("local/block"));
	T_OK(!is_fabric("nowhere"));
}

static void fabrics_are_found(void)
{
	make_dirs("platform/host3/session1/target3:0:0/3:0:0:1/block/sdb");
	make_dirs("pci/host7/rport-7:0-1/target7:0:1/7:0:1:0/block/sdc/sdc1");
	put("pci/host7/rport-7:0-1/target7:0:1/7:0:1:0/block/sdc/sdc1/partition", "1\n");
	T_OK(is_fabric("platform/host3/session1/target3:0:0/3:0:0:1/block/sdb"));
	T_OK(is_fabric("pci/host7/rport-7:0-1/target7:0:1/7:0:1:0/block/sdc/sdc1"));
	nvme("tcp", "tcp\n");
	nvme("rdma", "rdma\n");
	nvme("fc", "fc\n");
	T_OK(is_fabric("tcp/block") && is_fabric("rdma/block") && is_fabric("fc/block"));
	make_dirs("tcp/block/nvme0n1p1");
	put("tcp/block/nvme0n1p1/partition", "1\n");
	T_OK(is_fabric("tcp/block/nvme0n1p1"));
	/* several paths: the disk belongs to the subsystem, that knows its controllers */
	make_dirs("subsys/block");
	make_dirs("subsys/sys");
	point("subsys/block/device", "subsys/sys");
	point("subsys/sys/nvme1", "tcp/ctrl");
	T_OK(is_fabric("subsys/block"));
}

static void mapped_devices_are_what_they_lie_on(void)
{
	unsigned i;
	char a[64], b[64];

	make_dirs("dm0/slaves");
	T_OK(!is_fabric("dm0"));
	point("dm0/slaves/nvme1n1", "local/block");
	T_OK(!is_fabric("dm0"));
	point("dm0/slaves/nvme2n1", "tcp/block");
	T_OK(is_fabric("dm0"));
	/* a loop ends */
	for (i = 0; i < 2; i++) {
		snprintf(a, sizeof(a), "ring%u/slaves", i);
		make_dirs(a);
	}
	for (i = 0; i < 2; i++) {
		snprintf(a, sizeof(a), "ring%u/slaves/next", i);
		snprintf(b, sizeof(b), "ring%u", !i);
		point(a, b);
	}
	T_OK(!is_fabric("ring0"));
}

int main(void)
{
	const char *tmp = getenv("TMPDIR");
	char command[300];

	snprintf(root, sizeof(root), "%s/fabric.XXXXXX", tmp ? tmp : "/tmp");
	T_OK(mkdtemp(root) != NULL);
	T_RUN(disks_of_this_host_are_none);
	T_RUN(fabrics_are_found);
	T_RUN(mapped_devices_are_what_they_lie_on);
	snprintf(command, sizeof(command), "rm -r '%s'", root);
	T_EQ(system(command), 0);
	return t_done();
}
