// SPDX-License-Identifier: GPL-2.0-only
/*
 * Module init and exit, and the kernel's side of error details. The core is
 * checked before anything else happens: a module that fails its self-test
 * stays out. It serves no devices: pools are opened in user space.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/printk.h>

#include "core/err.h"
#include "selftest.h"
#include "version.h"

void os_verror(int id, int err, const char *fmt, va_list ap)
{
	struct va_format vaf = { .fmt = fmt };
	va_list copy;

	va_copy(copy, ap);
	vaf.va = &copy;
	pr_err_ratelimited("%pV (error %d) [MP%04d]\n", &vaf, err, id);
	va_end(copy);
}

static int __init mpool_module_init(void)
{
	const char *what;
	int rc = mpk_selftest(&what);

	if (rc) {
		pr_err("self-test failed: %s: error %d; not loaded\n", what, rc);
		return rc;
	}
	pr_info("version " MP_VERSION ", self-test passed\n");
	return 0;
}

static void __exit mpool_module_exit(void)
{
}

module_init(mpool_module_init);
module_exit(mpool_module_exit);

MODULE_DESCRIPTION("Object storage media pools");
MODULE_VERSION(MP_VERSION);
MODULE_LICENSE("GPL");
MODULE_SOFTDEP("pre: crc32c");
