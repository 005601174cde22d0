// SPDX-License-Identifier: GPL-2.0-only
/*
 * How a command is run, on both nodes and through io_uring: found by its full
 * number (size and all), copied once, checked against the table, called, copied
 * back. And where error details go: to the caller of the command, or, when
 * there is none, to the log, unless a program's wrong request is all there is to say.
 *
 * Callers are found by task. A bucket's lock covers its list and the details on
 * it. Interrupts report nothing, but details are reported under locks that
 * interrupts take, so it excludes them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/hash.h>
#include <linux/preempt.h>
#include <linux/printk.h>
#include <linux/uaccess.h>

#include "core/codec.h"
#include "mpk.h"
#include "version.h"

#define BUCKET_BITS	6

struct bucket {
	spinlock_t bu_lock;
	struct hlist_head bu_head;
};

static struct bucket buckets[1 << BUCKET_BITS] = {
	[0 ... (1 << BUCKET_BITS) - 1] = {
		.bu_lock = __SPIN_LOCK_UNLOCKED(buckets.bu_lock),
	},
};

/* one running command; the structure's kernel copy at the end */
struct call {
	struct mpk_detail ca_detail;
	u64 ca_arg[];
};

/* ---- details ---- */

static struct bucket *bucket_of(const struct task_struct *task)
{
	return &buckets[hash_ptr(task, BUCKET_BITS)];
}

void mpk_detail_begin(struct mpk_detail *de)
{
	struct bucket *b = bucket_of(current);
	unsigned long flags;

	de->de_task = current;
	de->de_id = 0;
	de->de_err = 0;
	de->de_text[0] = 0;
	spin_lock_irqsave(&b->bu_lock, flags);
	hlist_add_head(&de->de_node, &b->bu_head);
	spin_unlock_irqrestore(&b->bu_lock, flags);
}

void mpk_detail_end(struct mpk_detail *de)
{
	struct bucket *b = bucket_of(de->de_task);
	unsigned long flags;

	spin_lock_irqsave(&b->bu_lock, flags);
	hlist_del(&de->de_node);
	spin_unlock_irqrestore(&b->bu_lock, flags);
}

static __printf(3, 0) bool detail_set(int id, int err, const char *fmt, va_list ap)
{
	struct bucket *b = bucket_of(current);
	struct mpk_detail *de;
	unsigned long flags;

	if (!in_task())
		return false;
	spin_lock_irqsave(&b->bu_lock, flags);
	hlist_for_each_entry(de, &b->bu_head, de_node) {
		if (de->de_task != current)
			continue;
		/* the last one counts: earlier ones may have been overcome */
		de->de_id = (u32)id;
		de->de_err = err;
		vscnprintf(de->de_text, sizeof(de->de_text), fmt, ap);
		spin_unlock_irqrestore(&b->bu_lock, flags);
		return true;
	}
	spin_unlock_irqrestore(&b->bu_lock, flags);
	return false;
}

__printf(3, 0) void os_verror(int id, int err, const char *fmt, va_list ap)
{
	struct va_format vaf = { .fmt = fmt };
	va_list copy;

	bool is_done;

	va_copy(copy, ap);
	is_done = detail_set(id, err, fmt, copy);
	va_end(copy);
	/* errors that any user can provoke at will do not go to the log */
	if (is_done || err == -EINVAL || err == -ENOENT || err == -EBUSY || err == -EROFS)
		return;
	va_copy(copy, ap);
	vaf.va = &copy;
	pr_err_ratelimited("%pV (error %d) [MP%04d]\n", &vaf, err, id);
	va_end(copy);
}

/* ---- commands ---- */

static const struct mpk_cmd *cmd_find(const struct mpk_cmd *table, u32 n, unsigned int cmd)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (table[i].cm_cmd == cmd)
			return &table[i];
	return NULL;
}

/* first: a caller without permission learns nothing else */
static int cmd_allowed(const struct mpk_cmd *cm, const struct file *file)
{
	if ((cm->cm_flags & MPK_CMD_ADMIN) && !capable(CAP_SYS_ADMIN))
		return mp_err(MP_K_PERM, "command %u", _IOC_NR(cm->cm_cmd));
	if ((cm->cm_flags & MPK_CMD_WRITE) && !(file->f_mode & FMODE_WRITE))
		return mp_err(MP_K_RDONLY, "command %u", _IOC_NR(cm->cm_cmd));
	return 0;
}

/* the kernel's copy of the structure; an error means that there is nowhere to write a text */
static int cmd_copy(const struct mpk_cmd *cm, struct call *call, const void __user *uarg)
{
	const struct mpool_ioc_arg *ma = (const struct mpool_ioc_arg *)call->ca_arg;

	if (copy_from_user(call->ca_arg, uarg, _IOC_SIZE(cm->cm_cmd)))
		return -EFAULT;
	if (ma->ma_size != _IOC_SIZE(cm->cm_cmd))
		return -ENOTTY;
	return ma->ma_text_size > MPOOL_IOC_TEXT ? -EINVAL : 0;
}

static int cmd_check(const struct mpk_cmd *cm, const void *arg)
{
	const struct mpool_ioc_arg *ma = arg;

	if (ma->ma_flags & ~cm->cm_args)
		return mp_err(MP_K_ARG, "command %u: flags 0x%x", _IOC_NR(cm->cm_cmd),
			      ma->ma_flags);
	if (cm->cm_zero_len && memchr_inv(arg + cm->cm_zero_off, 0, cm->cm_zero_len))
		return mp_err(MP_K_ARG, "command %u: a reserved field is not zero",
			      _IOC_NR(cm->cm_cmd));
	return 0;
}

/* results and error detail to the caller; the command has been carried out */
static long cmd_back(const struct mpk_cmd *cm, struct call *call, long rc, void __user *uarg)
{
	struct mpool_ioc_arg *ma = (struct mpool_ioc_arg *)call->ca_arg;
	struct mpk_detail *de = &call->ca_detail;
	size_t n;

	/* a detail of a failure that was overcome */
	ma->ma_error = rc < 0 && de->de_err == rc ? de->de_id : 0;
	if (ma->ma_error && ma->ma_text && ma->ma_text_size) {
		n = min_t(size_t, strlen(de->de_text) + 1, ma->ma_text_size);
		de->de_text[n - 1] = 0;
		/* a place that cannot be written gets no text; the error stays what it is */
		ma->ma_error = copy_to_user(u64_to_user_ptr(ma->ma_text), de->de_text, n) ?
			       0 : ma->ma_error;
	}
	if (copy_to_user(uarg, call->ca_arg, _IOC_SIZE(cm->cm_cmd)) && rc >= 0 &&
	    !(cm->cm_flags & MPK_CMD_FD))
		rc = -EFAULT;
	return rc;
}

long mpk_cmd_run(const struct mpk_cmd *table, u32 n, struct file *file, unsigned int cmd,
		 void __user *uarg)
{
	const struct mpk_cmd *cm = cmd_find(table, n, cmd);
	struct call *call;
	int bad;
	long rc;

	if (!cm)
		return -ENOTTY;
	call = kzalloc(sizeof(*call) + _IOC_SIZE(cmd), GFP_KERNEL_ACCOUNT);
	if (!call)
		return -ENOMEM;
	mpk_detail_begin(&call->ca_detail);
	rc = cmd_allowed(cm, file);
	bad = cmd_copy(cm, call, uarg);
	if (!rc)
		rc = bad ? bad : cmd_check(cm, call->ca_arg);
	if (!rc)
		rc = cm->cm_fn(file, call->ca_arg);
	mpk_detail_end(&call->ca_detail);
	if (!bad)
		rc = cmd_back(cm, call, rc, uarg);
	kfree(call);
	return rc;
}

/* ---- what commands share ---- */

void *mpk_copy_array(u64 addr, u32 n, u32 max, size_t size)
{
	void *p;

	if (!n || n > max) {
		mp_err(MP_K_ARG, "%u elements, 1 .. %u are possible", n, max);
		return ERR_PTR(-EINVAL);
	}
	p = kvmalloc_array(n, size, GFP_KERNEL_ACCOUNT);
	if (!p)
		return ERR_PTR(-ENOMEM);
	if (copy_from_user(p, u64_to_user_ptr(addr), n * size)) {
		kvfree(p);
		return ERR_PTR(-EFAULT);
	}
	return p;
}

int mpk_text_check(const char *text, size_t size, const char *what)
{
	if (strnlen(text, size) < size)
		return 0;
	return mp_err(MP_K_ARG, "the %s is longer than %zu bytes", what, size - 1);
}

long mpk_cmd_version(struct file *file, void *arg)
{
	struct mpool_ioc_version *iv = arg;

	iv->iv_abi = MPOOL_IOC_ABI;
	iv->iv_format = MP_FORMAT;
	strscpy_pad(iv->iv_version, MP_VERSION, sizeof(iv->iv_version));
	return 0;
}
