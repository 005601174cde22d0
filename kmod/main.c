// SPDX-License-Identifier: GPL-2.0-only
/*
 * Module init and exit. The core is checked before anything else happens: a
 * module that fails its self-test registers no device and stays out.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/printk.h>

#include "mpk.h"
#include "selftest.h"
#include "version.h"

static int __init mpool_module_init(void)
{
	struct mpk_detail *de = kmalloc(sizeof(*de), GFP_KERNEL);
	const char *what;
	int rc;

	if (!de)
		return -ENOMEM;
	/* what it provokes is not for the log */
	mpk_detail_begin(de);
	rc = mpk_selftest(&what);
	mpk_detail_end(de);
	kfree(de);
	if (rc) {
		pr_err("self-test failed: %s: error %d; not loaded\n", what, rc);
		return rc;
	}
	rc = mpk_objfs_init();
	if (rc)
		return rc;
	rc = mpk_pools_init();
	if (rc)
		goto err_objfs;
	rc = mpk_sysfs_init();
	if (rc)
		goto err_pools;
	rc = mpk_pool_dev_init();
	if (rc)
		goto err_sysfs;
	/* last: from here on pools may come */
	rc = mpk_ctl_init();
	if (rc)
		goto err_pool_dev;
	pr_info("version " MP_VERSION ", self-test passed\n");
	return 0;
err_pool_dev:
	mpk_pool_dev_exit();
err_sysfs:
	mpk_sysfs_exit();
err_pools:
	mpk_pools_exit();
err_objfs:
	mpk_objfs_exit();
	pr_err("not loaded: error %d\n", rc);
	return rc;
}

/* each active pool and each open file holds a reference on the module: none is left */
static void __exit mpool_module_exit(void)
{
	mpk_ctl_exit();
	mpk_pool_dev_exit();
	mpk_sysfs_exit();
	mpk_pools_exit();
	mpk_objfs_exit();
}

module_init(mpool_module_init);
module_exit(mpool_module_exit);

MODULE_DESCRIPTION("Object storage media pools");
MODULE_VERSION(MP_VERSION);
MODULE_LICENSE("GPL");
MODULE_SOFTDEP("pre: crc32c");
