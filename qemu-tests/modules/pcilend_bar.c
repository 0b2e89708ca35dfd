// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_bar.ko: for tests. Exports a BAR as a dma-buf, as a GPU's driver would that has memory
 * there: to those only that reach it peer to peer, and let go of it when it is taken from them.
 *
 *	# modprobe pcilend_bar device=0000:00:06.0 bar=2
 *	ioctl(open("/dev/pcilend-bar"), 0): a new dma-buf; ioctl(.., 1): takes all of them away
 */

#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#define BAR_EXPORT 0
#define BAR_TAKE 1

static char *device;
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "PCI address of the function, dddd:bb:dd.f");

static unsigned int bar;
module_param(bar, uint, 0444);
MODULE_PARM_DESC(bar, "that BAR, 0 to 5");

struct export {
	struct list_head node;	/* exports_lock */
	struct dma_buf *buffer;
	bool taken;		/* buffer->resv */
};

static struct pci_dev *pdev;
static LIST_HEAD(exports);
static DEFINE_MUTEX(exports_lock);

static int bar_attach(struct dma_buf *buffer, struct dma_buf_attachment *attachment)
{
	return attachment->peer2peer ? 0 : -EOPNOTSUPP;
}

static int bar_pin(struct dma_buf_attachment *attachment)
{
	return 0;
}

static void bar_unpin(struct dma_buf_attachment *attachment)
{
}

static struct sg_table *bar_map(struct dma_buf_attachment *attachment,
				enum dma_data_direction direction)
{
	struct export *export = attachment->dmabuf->priv;
	u64 size = attachment->dmabuf->size;
	struct sg_table *table;
	dma_addr_t address;

	dma_resv_assert_held(attachment->dmabuf->resv);
	if (export->taken)
		return ERR_PTR(-ENODEV);
	table = kzalloc(sizeof(*table), GFP_KERNEL);
	if (!table || sg_alloc_table(table, 1, GFP_KERNEL)) {
		kfree(table);
		return ERR_PTR(-ENOMEM);
	}
	address = dma_map_resource(attachment->dev, pci_resource_start(pdev, bar), size, direction,
				   0);
	if (dma_mapping_error(attachment->dev, address)) {
		sg_free_table(table);
		kfree(table);
		return ERR_PTR(-EIO);
	}
	sg_dma_address(table->sgl) = address;
	sg_dma_len(table->sgl) = size;
	return table;
}

static void bar_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
		      enum dma_data_direction direction)
{
	dma_unmap_resource(attachment->dev, sg_dma_address(table->sgl), sg_dma_len(table->sgl),
			   direction, 0);
	sg_free_table(table);
	kfree(table);
}

static int bar_mmap(struct dma_buf *buffer, struct vm_area_struct *vma)
{
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	return vm_iomap_memory(vma, pci_resource_start(pdev, bar), buffer->size);
}

static void bar_release(struct dma_buf *buffer)
{
	struct export *export = buffer->priv;

	mutex_lock(&exports_lock);
	list_del(&export->node);
	mutex_unlock(&exports_lock);
	kfree(export);
}

static const struct dma_buf_ops bar_ops = {
	.attach = bar_attach,
	.pin = bar_pin,
	.unpin = bar_unpin,
	.map_dma_buf = bar_map,
	.unmap_dma_buf = bar_unmap,
	.mmap = bar_mmap,
	.release = bar_release,
};

static int bar_export(void)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct export *export = kzalloc(sizeof(*export), GFP_KERNEL);
	struct dma_buf *buffer;
	int fd;

	if (!export)
		return -ENOMEM;
	info.ops = &bar_ops;
	info.size = pci_resource_len(pdev, bar);
	info.flags = O_RDWR;
	info.priv = export;
	mutex_lock(&exports_lock);
	buffer = dma_buf_export(&info);
	if (IS_ERR(buffer)) {
		mutex_unlock(&exports_lock);
		kfree(export);
		return PTR_ERR(buffer);
	}
	export->buffer = buffer;
	list_add_tail(&export->node, &exports);
	mutex_unlock(&exports_lock);
	fd = dma_buf_fd(buffer, O_CLOEXEC);
	if (fd < 0)
		dma_buf_put(buffer);
	return fd;
}

static void bar_take(void)
{
	struct export *export;

	mutex_lock(&exports_lock);
	list_for_each_entry(export, &exports, node) {
		dma_resv_lock(export->buffer->resv, NULL);
		export->taken = true;
#ifdef PCILEND_HAVE_MOVE_NOTIFY
		dma_buf_move_notify(export->buffer);
#else
		dma_buf_invalidate_mappings(export->buffer);
#endif
		dma_resv_unlock(export->buffer->resv);
	}
	mutex_unlock(&exports_lock);
}

static long bar_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	switch (command) {
	case BAR_EXPORT:
		return bar_export();
	case BAR_TAKE:
		bar_take();
		return 0;
	default:
		return -ENOTTY;
	}
}

static const struct file_operations bar_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = bar_ioctl,
};

static struct miscdevice bar_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "pcilend-bar",
	.fops = &bar_fops,
};

static int __init pcilend_bar_init(void)
{
	struct device *found = device ? bus_find_device_by_name(&pci_bus_type, NULL, device) :
					NULL;
	int err;

	if (!found)
		return -ENODEV;
	pdev = to_pci_dev(found);
	err = bar < PCI_STD_NUM_BARS && pci_resource_flags(pdev, bar) & IORESOURCE_MEM ?
		      pci_enable_device_mem(pdev) : -EINVAL;
	if (err)
		goto err_put;
	err = misc_register(&bar_device);
	if (!err)
		return 0;
	pci_disable_device(pdev);
err_put:
	pci_dev_put(pdev);
	return err;
}

static void __exit pcilend_bar_exit(void)
{
	misc_deregister(&bar_device);
	pci_disable_device(pdev);
	pci_dev_put(pdev);
}

module_init(pcilend_bar_init);
module_exit(pcilend_bar_exit);

/* MODULE_IMPORT_NS() takes a string since 6.13, and a token before. */
MODULE_INFO(import_ns, "DMA_BUF");
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Exports a BAR of a PCI function as a dma-buf");
