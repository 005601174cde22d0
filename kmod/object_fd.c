// SPDX-License-Identifier: GPL-2.0-only
/*
 * Objects as files. Each pool has a pseudo file system, which cannot be mounted, and
 * each object in use one inode of it, found by id: all that open it share one
 * page cache. The inode holds one reference on the core's object. A final object's
 * inode stays, with its pages, after the last close until memory is short;
 * of any other it goes at once, which aborts an mblock that was not committed and
 * frees what was deleted.
 *
 * A file changes nothing but an object's content, by writing: owner, mode and size
 * are the pool's and the core's, and are looked up when asked for.
 *
 * Evicting may happen while the kernel looks for memory, and takes the core's p_lock:
 * that is why the core allocates with GFP_NOFS (os_kern.h).
 */
#include <linux/backing-dev.h>
#include <linux/file.h>
#include <linux/fs_context.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/pseudo_fs.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/splice.h>

#include "core/codec.h"
#include "object.h"

#define OBJFS_MAGIC	0x6d706f6f	/* statfs */
#define OBJ_MODE	0666		/* never executable */
#define BLOCK_BITS	12		/* lengths are multiples of MP_BLOCK */

static_assert(1u << BLOCK_BITS == MP_BLOCK);

static struct kmem_cache *onode_cache;

/* ---- state ---- */

bool mpk_onode_is_final(struct mpk_onode *on)
{
	struct mp_obj_info info;

	/* pairs with the release below: a reader that sees the flag sees the size */
	if (smp_load_acquire(&on->on_is_final))
		return true;
	mp_obj_info(on->on_obj, &info);
	if (!(info.oi_flags & (MP_OBJF_COMMITTED | MP_OBJF_SEALED)))
		return false;
	spin_lock(&on->on_inode.i_lock);
	i_size_write(&on->on_inode, info.oi_length);
	spin_unlock(&on->on_inode.i_lock);
	smp_store_release(&on->on_is_final, true);
	return true;
}

/* as a user sees it: i_size of an object in the making is its capacity, see object_io.c */
static u64 onode_size(struct mpk_onode *on)
{
	struct mp_obj_info info;

	if (mpk_onode_is_final(on))
		return i_size_read(&on->on_inode);
	mp_obj_info(on->on_obj, &info);
	return info.oi_length;
}

static int onode_check_open(struct mpk_onode *on, bool is_write, unsigned int flags)
{
	if (flags & O_APPEND)
		return -EINVAL;
	if (is_write && (on->on_pool->pl_is_rdonly || mpk_onode_is_final(on)))
		return -EROFS;
	return 0;
}

/* owner and mode are the pool's, as they are now. May sleep */
static void onode_take_owner(struct mpk_onode *on)
{
	struct mpk_pool *pool = on->on_pool;
	struct inode *inode = &on->on_inode;

	mutex_lock(&pool->pl_lock);
	spin_lock(&inode->i_lock);
	inode->i_uid = pool->pl_uid;
	inode->i_gid = pool->pl_gid;
	inode->i_mode = S_IFREG | (pool->pl_mode & OBJ_MODE);
	spin_unlock(&inode->i_lock);
	mutex_unlock(&pool->pl_lock);
}

/* ---- files ---- */

/* what open() of the VFS does, and alloc_file_pseudo() does not */
static void obj_file_init(struct file *file, const struct mpk_onode *on)
{
	u64 where, contig;
	struct mp_dev *dev;

	file->f_mode |= FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE | FMODE_ATOMIC_POS |
			FMODE_CAN_ODIRECT | FMODE_NOWAIT | MPK_FMODE_RASYNC | MPK_FMODE_PARALLEL;
	file_ra_state_init(&file->f_ra, file->f_mapping);
	/* readahead as is set for the device that the object begins on */
	if (!mp_obj_map(on->on_obj, 0, MP_BLOCK, &dev, &where, &contig))
		file->f_ra.ra_pages = mpk_dev_of(dev)->dv_bdev->bd_disk->bdi->ra_pages;
}

/* a second open, through /proc: ->permission has been asked */
static int obj_open(struct inode *inode, struct file *file)
{
	struct mpk_onode *on = mpk_onode_of(inode);
	int rc = onode_check_open(on, file->f_mode & FMODE_WRITE, file->f_flags);

	if (!rc)
		rc = mpk_pool_hold(on->on_pool);
	if (!rc)
		obj_file_init(file, on);
	return rc;
}

static int obj_release(struct inode *inode, struct file *file)
{
	mpk_pool_release(mpk_onode_of(inode)->on_pool);
	return 0;
}

static loff_t obj_llseek(struct file *file, loff_t off, int whence)
{
	u64 size = onode_size(mpk_onode_of(file_inode(file)));

	return generic_file_llseek_size(file, off, whence, size, size);
}

static int obj_mmap(struct file *file, struct vm_area_struct *vma)
{
	int rc;

	if (!mpk_onode_is_final(mpk_onode_of(file_inode(file))))
		return -EINVAL;
	if (vma->vm_flags & VM_SHARED) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		/* of a descriptor open for writing: no mprotect() makes it writable later */
		mpk_vm_flags_clear(vma, VM_MAYWRITE);
	}
	rc = generic_file_readonly_mmap(file, vma);
	if (!rc)
		vma->vm_ops = &mpk_obj_vm_ops;
	return rc;
}

/* no page is ever dirty: what is left is the devices' cache */
static int obj_fsync(struct file *file, loff_t start, loff_t end, int datasync)
{
	return mp_obj_flush(mpk_onode_of(file_inode(file))->on_obj);
}

/* fcntl(F_SETFL) */
static int obj_check_flags(int flags)
{
	return flags & O_APPEND ? -EINVAL : 0;
}

/* nothing here writes but ->write_iter: splice to an object, fallocate, ioctl are absent */
static const struct file_operations obj_fops = {
	.owner		= THIS_MODULE,
	.open		= obj_open,
	.release	= obj_release,
	.llseek		= obj_llseek,
	.read_iter	= mpk_obj_read_iter,
	.write_iter	= mpk_obj_write_iter,
	.mmap		= obj_mmap,
	.fsync		= obj_fsync,
	.iopoll		= iocb_bio_iopoll,
	.splice_read	= mpk_obj_splice_read,
	.check_flags	= obj_check_flags,
	MPK_FOP_FLAGS
};

/* ---- inodes ---- */

static int obj_setattr(mpk_idmap_t *idmap, struct dentry *dentry, struct iattr *attr)
{
	struct inode *inode = d_inode(dentry);
	int rc;

	if (attr->ia_valid & ~(ATTR_ATIME | ATTR_ATIME_SET | ATTR_TIMES_SET | ATTR_CTIME))
		return -EPERM;
	onode_take_owner(mpk_onode_of(inode));
	rc = setattr_prepare(idmap, dentry, attr);
	if (!rc)
		setattr_copy(idmap, inode, attr);
	return rc;
}

/* what O_DIRECT asks of memory and of offsets: the largest of the object's devices */
static void dio_align(struct mpk_onode *on, struct kstat *stat)
{
	u32 off = mpk_onode_is_final(on) ? SECTOR_SIZE : MP_BLOCK, mem = SECTOR_SIZE;
	u64 pos, where, contig;
	struct mp_dev *dev;

	for (pos = 0; pos < on->on_capacity; pos += contig) {
		struct block_device *bdev;

		if (mp_obj_map(on->on_obj, pos, on->on_capacity - pos, &dev, &where, &contig))
			return;
		bdev = mpk_dev_of(dev)->dv_bdev;
		off = max(off, bdev_logical_block_size(bdev));
		mem = max3(mem, bdev_logical_block_size(bdev), (u32)bdev_dma_alignment(bdev) + 1);
	}
	stat->dio_mem_align = mem;
	stat->dio_offset_align = off;
	stat->result_mask |= STATX_DIOALIGN;
}

static int obj_getattr(mpk_idmap_t *idmap, const struct path *path, struct kstat *stat, u32 mask,
		       unsigned int flags)
{
	struct mpk_onode *on = mpk_onode_of(d_inode(path->dentry));

	onode_take_owner(on);
	mpk_fillattr(idmap, mask, &on->on_inode, stat);
	stat->size = onode_size(on);
	if (mask & STATX_DIOALIGN)
		dio_align(on, stat);
	return 0;
}

static int obj_permission(mpk_idmap_t *idmap, struct inode *inode, int mask)
{
	if (mask & MAY_NOT_BLOCK)
		return -ECHILD;
	onode_take_owner(mpk_onode_of(inode));
	return generic_permission(idmap, inode, mask);
}

static const struct inode_operations obj_iops = {
	.setattr	= obj_setattr,
	.getattr	= obj_getattr,
	.permission	= obj_permission,
};

static int onode_test(struct inode *inode, void *data)
{
	return mpk_onode_of(inode)->on_id == *(u64 *)data;
}

static int onode_set(struct inode *inode, void *data)
{
	mpk_onode_of(inode)->on_id = *(u64 *)data;
	inode->i_ino = *(u64 *)data;
	return 0;
}

/* the inode of @obj, whose reference it takes over, also on failure */
static struct mpk_onode *onode_get(struct mpk_pool *pool, struct mp_obj *obj)
{
	u64 id = mp_obj_id(obj);
	struct mp_obj_info info;
	struct mpk_onode *on;
	struct inode *inode;

	inode = iget5_locked(pool->pl_mnt->mnt_sb, id, onode_test, onode_set, &id);
	if (!inode || !mpk_inode_is_new(inode)) {
		mp_obj_put(obj);
		return inode ? mpk_onode_of(inode) : NULL;
	}
	mp_obj_info(obj, &info);
	on = mpk_onode_of(inode);
	on->on_pool = pool;
	on->on_obj = obj;
	on->on_kind = info.oi_kind;
	on->on_capacity = info.oi_capacity;
	on->on_is_spread = !mpk_obj_is_on_one(on, 0, info.oi_capacity);
	inode->i_flags |= S_NOATIME | S_NOCMTIME | S_NOSEC;
	inode->i_op = &obj_iops;
	inode->i_fop = &obj_fops;
	inode->i_mapping->a_ops = &mpk_obj_aops;
	inode->i_blkbits = BLOCK_BITS;
	inode->i_blocks = info.oi_capacity >> SECTOR_SHIFT;
	i_size_write(inode, info.oi_capacity);
	mapping_set_gfp_mask(inode->i_mapping, GFP_HIGHUSER_MOVABLE);
	mapping_set_large_folios(inode->i_mapping);
	onode_take_owner(on);
	mpk_onode_is_final(on);
	unlock_new_inode(inode);
	return on;
}

/* ---- places ---- */

/*
 * Each open of an object through the node makes a place, a dentry, which stays until the last
 * descriptor that came from there has gone. The root's is made before there is a pool.
 */
static int place_init(struct dentry *dentry)
{
	struct mpk_pool *pool = dentry->d_sb->s_fs_info;

	if (pool)
		atomic_inc(&pool->pl_places);
	return 0;
}

/* the inode's reference is given back by now */
static void place_release(struct dentry *dentry)
{
	struct mpk_pool *pool = dentry->d_sb->s_fs_info;

	if (pool)
		atomic_dec(&pool->pl_places);
}

/* what /proc shows, as of all files that lie in no folder */
static char *place_name(struct dentry *dentry, char *buf, int size)
{
	char name[48];
	int n = scnprintf(name, sizeof(name), "/%s (deleted)", dentry->d_name.name) + 1;

	return n > size ? ERR_PTR(-ENAMETOOLONG) : memcpy(buf + size - n, name, n);
}

static const struct dentry_operations objfs_dops = {
	.d_init		= place_init,
	.d_release	= place_release,
	.d_dname	= place_name,
};

/* ---- the pseudo file system ---- */

static struct inode *objfs_alloc_inode(struct super_block *sb)
{
	struct mpk_onode *on = alloc_inode_sb(sb, onode_cache, GFP_KERNEL);

	if (!on)
		return NULL;
	on->on_pool = NULL;
	on->on_obj = NULL;
	on->on_id = 0;
	on->on_is_final = false;
	on->on_is_spread = false;
	spin_lock_init(&on->on_lock);
	INIT_LIST_HEAD(&on->on_writes);
	return &on->on_inode;
}

static void objfs_free_inode(struct inode *inode)
{
	kmem_cache_free(onode_cache, mpk_onode_of(inode));
}

static void onode_init_once(void *p)
{
	inode_init_once(&((struct mpk_onode *)p)->on_inode);
}

/* the last user has gone, i_lock is held: 1 = the inode goes too */
static int objfs_drop_inode(struct inode *inode)
{
	struct mpk_onode *on = mpk_onode_of(inode);
	struct mp_obj_info info;

	if (!on->on_obj)
		return 1;
	mp_obj_info(on->on_obj, &info);
	return !(info.oi_flags & (MP_OBJF_COMMITTED | MP_OBJF_SEALED)) ||
	       (info.oi_flags & MP_OBJF_DELETED);
}

static void objfs_evict_inode(struct inode *inode)
{
	struct mpk_onode *on = mpk_onode_of(inode);

	/* waits for reads into the cache: only then may the space become another's */
	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
	if (!on->on_obj)
		return;
	mp_obj_put(on->on_obj);
	on->on_obj = NULL;
	mpk_pool_kick_discard(on->on_pool);
}

/* syncfs(), sync(): what fsync() is to one object; to no pool before it is mounted */
static int objfs_sync_fs(struct super_block *sb, int wait)
{
	struct mpk_pool *pool = smp_load_acquire(&sb->s_fs_info);

	if (!wait || !pool || pool->pl_is_rdonly)
		return 0;
	return mp_pool_flush(pool->pl_core, ~0u);
}

static const struct super_operations objfs_sops = {
	.alloc_inode	= objfs_alloc_inode,
	.free_inode	= objfs_free_inode,
	.drop_inode	= objfs_drop_inode,
	.evict_inode	= objfs_evict_inode,
	.statfs		= simple_statfs,
	.sync_fs	= objfs_sync_fs,
};

/* those of init_pseudo(), always the same */
static const struct fs_context_operations *pseudo_ops;

/* a pseudo superblock has no readahead; that of each file is its device's */
static int objfs_set_readahead(struct super_block *sb)
{
	int rc = super_setup_bdi(sb);

	if (!rc) {
		sb->s_bdi->ra_pages = VM_READAHEAD_PAGES;
		sb->s_bdi->io_pages = SZ_1M >> PAGE_SHIFT;	/* bounds one fadvise() */
	}
	return rc;
}

/* complete before sync() can take the superblock, which is born on return */
static int objfs_get_tree(struct fs_context *fc)
{
	int rc = pseudo_ops->get_tree(fc);
	struct super_block *sb;

	if (rc)
		return rc;
	sb = fc->root->d_sb;
	rc = objfs_set_readahead(sb);
	if (rc) {
		dput(fc->root);
		fc->root = NULL;
		deactivate_locked_super(sb);
	}
	return rc;
}

static void objfs_free_context(struct fs_context *fc)
{
	pseudo_ops->free(fc);
}

static const struct fs_context_operations objfs_context_ops = {
	.free		= objfs_free_context,
	.get_tree	= objfs_get_tree,
};

static int objfs_init_fs_context(struct fs_context *fc)
{
	struct pseudo_fs_context *ctx = init_pseudo(fc, OBJFS_MAGIC);

	if (!ctx)
		return -ENOMEM;
	ctx->ops = &objfs_sops;
	ctx->dops = &objfs_dops;
	WRITE_ONCE(pseudo_ops, fc->ops);
	fc->ops = &objfs_context_ops;
	fc->s_iflags |= SB_I_NOEXEC | SB_I_NODEV;
	return 0;
}

static void objfs_kill_sb(struct super_block *sb)
{
	struct mpk_pool *pool = sb->s_fs_info;

	kill_anon_super(sb);
	if (!pool)
		return;
	complete(&pool->pl_sb_gone);
	mpk_pool_put(pool);
}

/*
 * Not registered, so user space cannot mount it. The owner keeps the module's text
 * until the last superblock is gone; one superblock per pool, so that an idle module
 * has none.
 */
static struct file_system_type objfs_type = {
	.owner			= THIS_MODULE,
	.name			= "mpool_objects",
	.init_fs_context	= objfs_init_fs_context,
	.kill_sb		= objfs_kill_sb,
};

int mpk_objfs_mount(struct mpk_pool *pool)
{
	struct vfsmount *mnt;

	init_completion(&pool->pl_sb_gone);
	mnt = kern_mount(&objfs_type);
	if (IS_ERR(mnt))
		return PTR_ERR(mnt);
	mpk_pool_get(pool);
	/* pairs with objfs_sync_fs() */
	smp_store_release(&mnt->mnt_sb->s_fs_info, pool);
	pool->pl_mnt = mnt;
	return 0;
}

/*
 * A place comes from MPOOL_IOC_OPEN only, or from another of the same object. The mount's count
 * does not tell: it is a sum over processors, too low while a place is taken on one of them and
 * given back on another.
 */
bool mpk_objfs_is_idle(struct mpk_pool *pool)
{
	return !atomic_read(&pool->pl_places);
}

void mpk_objfs_unmount(struct mpk_pool *pool)
{
	/* the end of the last file may still be on its way */
	kern_unmount(pool->pl_mnt);
	wait_for_completion(&pool->pl_sb_gone);
	pool->pl_mnt = NULL;
}

void mpk_objfs_forget(struct mpk_pool *pool, u64 id)
{
	struct inode *inode = ilookup5(pool->pl_mnt->mnt_sb, id, onode_test, &id);

	/* it has no other user: ->drop_inode says that it goes */
	if (inode)
		iput(inode);
}

/* ---- descriptors ---- */

/* takes over @on's reference and one count of pl_opens, not on failure */
static struct file *obj_file(struct mpk_onode *on, u32 flags)
{
	int oflags = O_LARGEFILE | (flags & MPOOL_IOC_OPEN_WRITE ? O_RDWR : O_RDONLY) |
		     (flags & MPOOL_IOC_OPEN_DIRECT ? O_DIRECT : 0);
	struct file *file;
	char name[32];

	scnprintf(name, sizeof(name), "object-%llu", on->on_id);
	/* the end of a file gives back a module reference, which this call does not take */
	__module_get(THIS_MODULE);
	file = alloc_file_pseudo(&on->on_inode, on->on_pool->pl_mnt, name, oflags, &obj_fops);
	if (IS_ERR(file))
		module_put(THIS_MODULE);
	else
		obj_file_init(file, on);
	return file;
}

int mpk_obj_fd(struct mpk_pool *pool, struct mp_obj *obj, u32 flags)
{
	struct mp_obj_info info;
	struct mpk_onode *on;
	struct file *file;
	int fd, rc;

	/* before it gets an inode, which would stay when the log is sealed */
	mp_obj_info(obj, &info);
	if (info.oi_kind == MP_MLOG) {
		mp_obj_put(obj);
		return mp_err(MP_OBJ_KIND, "object %llu is a log", info.oi_id);
	}
	on = onode_get(pool, obj);
	if (!on)
		return -ENOMEM;
	rc = onode_check_open(on, flags & MPOOL_IOC_OPEN_WRITE, 0);
	if (!rc)
		rc = mpk_pool_hold(pool);
	if (rc)
		goto err_inode;
	fd = get_unused_fd_flags(flags & MPOOL_IOC_OPEN_CLOEXEC ? O_CLOEXEC : 0);
	if (fd < 0) {
		rc = fd;
		goto err_hold;
	}
	file = obj_file(on, flags);
	if (IS_ERR(file)) {
		rc = PTR_ERR(file);
		put_unused_fd(fd);
		goto err_hold;
	}
	fd_install(fd, file);
	return fd;
err_hold:
	mpk_pool_release(pool);
err_inode:
	iput(&on->on_inode);
	return rc;
}

int mpk_objfs_init(void)
{
	onode_cache = kmem_cache_create("mpool_onode", sizeof(struct mpk_onode), 0,
					SLAB_RECLAIM_ACCOUNT | SLAB_ACCOUNT, onode_init_once);
	return onode_cache ? 0 : -ENOMEM;
}

void mpk_objfs_exit(void)
{
	/* inodes are freed after a grace period */
	rcu_barrier();
	kmem_cache_destroy(onode_cache);
}
