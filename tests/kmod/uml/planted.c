// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module with one bug per checker. init loads it to see that each of them would
 * have spoken: silence of a checker that is not there proves nothing.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#define LEAK_BYTES	33333	/* init finds the leak by its size */

static char *bug = "";
module_param(bug, charp, 0);

static DEFINE_MUTEX(lock_a);
static DEFINE_MUTEX(lock_b);
static volatile int sink;
static volatile int shift = 40;

static void after_free(void)
{
	char *p = kmalloc(64, GFP_KERNEL);

	kfree(p);
	if (p)
		sink = *(volatile char *)p;
}

static void inversion(void)
{
	mutex_lock(&lock_a);
	mutex_lock(&lock_b);
	mutex_unlock(&lock_b);
	mutex_unlock(&lock_a);
	mutex_lock(&lock_b);
	mutex_lock(&lock_a);
	mutex_unlock(&lock_a);
	mutex_unlock(&lock_b);
}

static void leak(void)
{
	sink = kmalloc(LEAK_BYTES, GFP_KERNEL) != NULL;
}

static int __init planted_init(void)
{
	if (!strcmp(bug, "after-free"))
		after_free();
	else if (!strcmp(bug, "inversion"))
		inversion();
	else if (!strcmp(bug, "leak"))
		leak();
	else if (!strcmp(bug, "shift"))
		sink = 1 << shift;
	return 0;
}

static void __exit planted_exit(void)
{
}

module_init(planted_init);
module_exit(planted_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("bugs for the kernel's checkers to find");
