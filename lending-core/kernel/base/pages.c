// SPDX-License-Identifier: GPL-2.0-only
/* Pages that can be taken from the processes that have mapped them (pages.h). */

#include <linux/dma-buf.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>

#include <linux/pci.h>

#include "base/pages.h"
#include "base/source.h"

int pcilend_pages_init(struct pcilend_pages *pages)
{
	init_rwsem(&pages->lock);
	pages->source = pcilend_source_make();
	return pages->source ? pcilend_ones_init(&pages->ones) : -ENOMEM;
}

void pcilend_pages_destroy(struct pcilend_pages *pages)
{
	pcilend_ones_destroy(&pages->ones);
	pcilend_source_put(pages->source);
	pages->source = NULL;
	pci_dev_put(pages->behind);
	pages->behind = NULL;
	if (pages->inode)
		iput(pages->inode);
	pages->inode = NULL;
}

static vm_fault_t pages_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct pcilend_pages *pages = vma->vm_private_data;
	unsigned long pfn;

	if (vmf->pgoff >= pages->size >> PAGE_SHIFT)
		return VM_FAULT_SIGBUS;
	guard(rwsem_read)(&pages->lock);
	if (pages->away)
		pfn = page_to_pfn(pcilend_ones_at(&pages->ones, vmf->pgoff));
	else
		pfn = PHYS_PFN(pages->phys) + vmf->pgoff;
	return vmf_insert_pfn(vma, vmf->address & PAGE_MASK, pfn);
}

static const struct vm_operations_struct pages_vm_ops = {
	.fault = pages_fault,
};

/*
 * A copy on write would be of one moment only, and a child's stores would be nobody's. Of a mapping
 * of a read-only file VM_SHARED is taken back, but not VM_MAYSHARE.
 */
static int pages_mmap(struct dma_buf *buffer, struct vm_area_struct *vma)
{
	struct pcilend_pages *pages = buffer->priv;

	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (pages->read_only) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		vm_flags_clear(vma, VM_MAYWRITE);
	}
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	vma->vm_page_prot = pages->write_combining ? pgprot_writecombine(vma->vm_page_prot) :
						     pgprot_noncached(vma->vm_page_prot);
	vma->vm_private_data = pages;
	vma->vm_ops = &pages_vm_ops;
	return 0;
}

/* Drivers would find an address of this host, which other devices don't reach by themselves. */
static int pages_attach(struct dma_buf *buffer, struct dma_buf_attachment *attachment)
{
	return -EOPNOTSUPP;
}

static struct sg_table *pages_map(struct dma_buf_attachment *attachment,
				  enum dma_data_direction direction)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void pages_unmap(struct dma_buf_attachment *attachment, struct sg_table *table,
			enum dma_data_direction direction)
{
}

static void pages_release(struct dma_buf *buffer)
{
	struct pcilend_pages *pages = buffer->priv;

	pages->release(pages);
}

static const struct dma_buf_ops pages_ops = {
	.attach = pages_attach,
	.map_dma_buf = pages_map,
	.unmap_dma_buf = pages_unmap,
	.mmap = pages_mmap,
	.release = pages_release,
};

struct dma_buf *pcilend_pages_export(struct pcilend_pages *pages)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *buffer;

	info.ops = &pages_ops;
	info.size = pages->size;
	info.flags = pages->read_only ? O_RDONLY : O_RDWR;
	info.priv = pages;
	buffer = dma_buf_export(&info);
	if (IS_ERR(buffer))
		return buffer;
	guard(rwsem_write)(&pages->lock);
	pages->inode = file_inode(buffer->file);
	ihold(pages->inode);
	return buffer;
}

struct pcilend_pages *pcilend_pages_of(struct dma_buf *buffer)
{
	return buffer->ops == &pages_ops ? buffer->priv : NULL;
}

/* Of what is not exported yet nothing is in page tables. */
static void pages_move(struct pcilend_pages *pages, bool away)
{
	struct inode *inode;

	scoped_guard(rwsem_write, &pages->lock) {
		WRITE_ONCE(pages->away, away);
		inode = pages->inode;
	}
	if (inode)
		unmap_mapping_range(inode->i_mapping, 0, 0, true);
}

void pcilend_pages_take(struct pcilend_pages *pages)
{
	pcilend_source_take(pages->source);
	pages_move(pages, true);
}

void pcilend_pages_give(struct pcilend_pages *pages)
{
	pages_move(pages, false);
	pcilend_ones_wipe(&pages->ones);
	pcilend_source_give(pages->source);
}

/* MODULE_IMPORT_NS() takes a string since 6.13, and a token before. */
MODULE_INFO(import_ns, "DMA_BUF");
