/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Differences between kernels, from 6.12 to 7.3. The code is written against the newest shape;
 * what is missing is made up for here. PCILEND_HAVE_* come from Kbuild.
 */
#ifndef PCILEND_COMPAT_H
#define PCILEND_COMPAT_H

#include <linux/device.h>
#include <linux/dma-map-ops.h>
#include <linux/iommu.h>
#include <linux/irq.h>
#include <linux/pci.h>
#include <linux/slab.h>

#ifdef PCILEND_HAVE_DEVICE_OVERRIDE

/* A copy of the device's driver override for kfree(), or NULL if there is none. */
static inline char *pcilend_driver_override(struct pci_dev *pdev)
{
	guard(spinlock)(&pdev->dev.driver_override.lock);
	return kstrdup(pdev->dev.driver_override.name, GFP_ATOMIC);
}

/* If there is no driver override it is @name from now on. With the device lock held. */
static inline int pcilend_default_driver_override(struct pci_dev *pdev, const char *name)
{
	if (device_has_driver_override(&pdev->dev))
		return 0;
	return device_set_driver_override(&pdev->dev, name);
}

#else

/*
 * Up to 6.12.y the override was a field of struct pci_dev, guarded by the device lock
 * (drivers/base/driver.c, driver_set_override()).
 */
static inline int device_set_driver_override(struct device *dev, const char *name)
{
	return driver_set_override(dev, &to_pci_dev(dev)->driver_override, name, strlen(name));
}

static inline char *pcilend_driver_override(struct pci_dev *pdev)
{
	guard(device)(&pdev->dev);
	return kstrdup(pdev->driver_override, GFP_KERNEL);
}

static inline int pcilend_default_driver_override(struct pci_dev *pdev, const char *name)
{
	device_lock_assert(&pdev->dev);
	if (!pdev->driver_override)
		pdev->driver_override = kstrdup(name, GFP_KERNEL);
	return pdev->driver_override ? 0 : -ENOMEM;
}

#endif

/*
 * Up to 6.14 an interrupt was moved by its handler unless it was marked; since, unless its chip is
 * marked to have it so. It may be moved in any context.
 */
static inline void pcilend_irq_may_move(unsigned int irq)
{
#ifndef PCILEND_HAVE_MOVE_DEFERRED
	irq_set_status_flags(irq, IRQ_MOVE_PCNTXT);
#endif
}

/*
 * Since 6.19 vfio_pci_core is asked for a region's contents and for a token by operations of their
 * own; before, vfio_pci_core_ioctl() and vfio_pci_core_match() do all of it.
 */
#ifdef PCILEND_HAVE_REGION_INFO_CAPS
#define PCILEND_VFIO_PCI_CORE_OPS							\
	.get_region_info_caps = vfio_pci_ioctl_get_region_info,			\
	.match_token_uuid = vfio_pci_core_match_token_uuid,
#else
#define PCILEND_VFIO_PCI_CORE_OPS
#endif

/*
 * Since 6.19 struct iommu_domain_ops.attach_dev is given the domain that it was in before.
 * PCILEND_ATTACH(f) defines what PCILEND_ATTACH_OP(f) sets it to, for a function that has no use
 * for that.
 */
#ifdef PCILEND_HAVE_ATTACH_WITHOUT_OLD

#define PCILEND_ATTACH(function) static_assert(sizeof(typeof(function) *))
#define PCILEND_ATTACH_OP(function) (function)

#else

#define PCILEND_ATTACH(function)								\
static int function##_from(struct iommu_domain *domain, struct device *dev,			\
			   struct iommu_domain *old)						\
{												\
	return function(domain, dev);								\
}												\
static_assert(true)
#define PCILEND_ATTACH_OP(function) (function##_from)

#endif

/* What a mapping for @ntb came to, as seen from @base; checked, as DMA-API debugging wants it. */
static inline dma_addr_t pcilend_dma_mapped(struct device *ntb, u64 base, dma_addr_t handle)
{
	return dma_mapping_error(ntb, handle) ? DMA_MAPPING_ERROR : base + handle;
}

/*
 * Since 6.18 the DMA API maps physical addresses, memory and MMIO alike (map_phys of struct
 * dma_map_ops); before, pages and resources. PCILEND_DEFINE_DMA_FORWARD(name) defines the
 * operations that map for the device name_ntb(dev), whose handles begin at name_base(dev) for the
 * function; PCILEND_DMA_FORWARD_OPS(name) sets them. MMIO that name_map_peer(dev, phys, size,
 * &handle) knows has that handle, or DMA_MAPPING_ERROR; handles for which name_is_peer(dev, handle)
 * are not the NTB's. After each unmap name_unmapped(dev) is called.
 */
#ifdef PCILEND_HAVE_DMA_MAP_PHYS

#define PCILEND_DEFINE_DMA_FORWARD(name)							\
static dma_addr_t name##_map_phys(struct device *dev, phys_addr_t phys, size_t size,		\
				  enum dma_data_direction dir, unsigned long attrs)		\
{												\
	struct device *ntb = name##_ntb(dev);							\
	dma_addr_t handle;									\
												\
	if (attrs & DMA_ATTR_MMIO && name##_map_peer(dev, phys, size, &handle))			\
		return handle;									\
	return pcilend_dma_mapped(ntb, name##_base(dev),					\
				  dma_map_phys(ntb, phys, size, dir, attrs));			\
}												\
												\
static void name##_unmap_phys(struct device *dev, dma_addr_t handle, size_t size,		\
			      enum dma_data_direction dir, unsigned long attrs)			\
{												\
	if (name##_is_peer(dev, handle))							\
		return;										\
	dma_unmap_phys(name##_ntb(dev), handle - name##_base(dev), size, dir, attrs);		\
	name##_unmapped(dev);									\
}

#define PCILEND_DMA_FORWARD_OPS(name) .map_phys = name##_map_phys, .unmap_phys = name##_unmap_phys,

#else

#define PCILEND_DEFINE_DMA_FORWARD(name)							\
static dma_addr_t name##_map_page(struct device *dev, struct page *page, unsigned long offset,	\
				  size_t size, enum dma_data_direction dir,			\
				  unsigned long attrs)						\
{												\
	struct device *ntb = name##_ntb(dev);							\
												\
	return pcilend_dma_mapped(ntb, name##_base(dev),					\
				  dma_map_page_attrs(ntb, page, offset, size, dir, attrs));	\
}												\
												\
static void name##_unmap_page(struct device *dev, dma_addr_t handle, size_t size,		\
			      enum dma_data_direction dir, unsigned long attrs)			\
{												\
	dma_unmap_page_attrs(name##_ntb(dev), handle - name##_base(dev), size, dir, attrs);	\
	name##_unmapped(dev);									\
}												\
												\
static dma_addr_t name##_map_resource(struct device *dev, phys_addr_t phys, size_t size,	\
				      enum dma_data_direction dir, unsigned long attrs)		\
{												\
	struct device *ntb = name##_ntb(dev);							\
	dma_addr_t handle;									\
												\
	if (name##_map_peer(dev, phys, size, &handle))						\
		return handle;									\
	return pcilend_dma_mapped(ntb, name##_base(dev),					\
				  dma_map_resource(ntb, phys, size, dir, attrs));		\
}												\
												\
static void name##_unmap_resource(struct device *dev, dma_addr_t handle, size_t size,		\
				  enum dma_data_direction dir, unsigned long attrs)		\
{												\
	if (name##_is_peer(dev, handle))							\
		return;										\
	dma_unmap_resource(name##_ntb(dev), handle - name##_base(dev), size, dir, attrs);	\
	name##_unmapped(dev);									\
}

#define PCILEND_DMA_FORWARD_OPS(name)								\
	.map_page = name##_map_page, .unmap_page = name##_unmap_page,				\
	.map_resource = name##_map_resource, .unmap_resource = name##_unmap_resource,

#endif

/*
 * What struct dma_buf_attach_ops calls when the exporter moves the memory, or takes it: its name
 * has changed after 6.19.
 */
#ifdef PCILEND_HAVE_MOVE_NOTIFY
#define PCILEND_DMA_BUF_MOVES(function) .move_notify = (function)
#else
#define PCILEND_DMA_BUF_MOVES(function) .invalidate_mappings = (function)
#endif

#endif /* PCILEND_COMPAT_H */
