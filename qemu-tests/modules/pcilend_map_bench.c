// SPDX-License-Identifier: GPL-2.0-only
/*
 * pcilend_map_bench.ko: for measurements. Maps and unmaps memory for DMA by a function, again and
 * again, as its driver would, and says in the kernel log how long that takes.
 *
 *	# modprobe pcilend_map_bench function=0000:00:10.0 bytes=2097152
 *	# rmmod pcilend_map_bench
 */

#include <linux/dma-mapping.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sizes.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>

#define ROUNDS_MAX 1000000

static char *function;
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "PCI address of the function, dddd:bb:dd.f; its driver is bound");

static unsigned int rounds = 10000;
module_param(rounds, uint, 0444);
MODULE_PARM_DESC(rounds, "how often, 1 to 1000000");

static unsigned int bytes = PAGE_SIZE;
module_param(bytes, uint, 0444);
MODULE_PARM_DESC(bytes, "to map at once, in one piece: a page, up to 4 MiB");

static int compare(const void *a, const void *b)
{
	u32 left = *(const u32 *)a, right = *(const u32 *)b;

	return left < right ? -1 : left > right;
}

static u32 median(u32 *ns)
{
	sort(ns, rounds, sizeof(*ns), compare, NULL);
	return ns[rounds / 2];
}

static int measure(struct pci_dev *pdev, struct page *page, u32 *map_ns, u32 *unmap_ns)
{
	unsigned int i;

	for (i = 0; i < rounds; i++) {
		ktime_t start = ktime_get(), mapped, end;
		dma_addr_t at = dma_map_page(&pdev->dev, page, 0, bytes, DMA_BIDIRECTIONAL);

		mapped = ktime_get();
		if (dma_mapping_error(&pdev->dev, at))
			return -EIO;
		dma_unmap_page(&pdev->dev, at, bytes, DMA_BIDIRECTIONAL);
		end = ktime_get();
		map_ns[i] = ktime_to_ns(ktime_sub(mapped, start));
		unmap_ns[i] = ktime_to_ns(ktime_sub(end, mapped));
		cond_resched();
	}
	pci_info(pdev, "median of %u: map %u ns, unmap %u ns\n", rounds, median(map_ns),
		 median(unmap_ns));
	return 0;
}

static struct pci_dev *find_function(void)
{
	unsigned int domain, bus, slot, number;

	if (!function || sscanf(function, "%x:%x:%x.%u", &domain, &bus, &slot, &number) != 4)
		return NULL;
	return pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, number));
}

static int __init pcilend_map_bench_init(void)
{
	u32 *map_ns __free(kvfree) = NULL, *unmap_ns __free(kvfree) = NULL;
	struct pci_dev *pdev;
	struct page *page;
	int err = -ENOMEM;

	if (!rounds || rounds > ROUNDS_MAX || !bytes || bytes > SZ_4M)
		return -EINVAL;
	pdev = find_function();
	if (!pdev)
		return -ENODEV;
	map_ns = kvmalloc_array(rounds, sizeof(*map_ns), GFP_KERNEL);
	unmap_ns = kvmalloc_array(rounds, sizeof(*unmap_ns), GFP_KERNEL);
	page = alloc_pages(GFP_KERNEL, get_order(bytes));
	if (map_ns && unmap_ns && page)
		err = measure(pdev, page, map_ns, unmap_ns);
	if (page)
		__free_pages(page, get_order(bytes));
	pci_dev_put(pdev);
	return err;
}

static void __exit pcilend_map_bench_exit(void)
{
}

module_init(pcilend_map_bench_init);
module_exit(pcilend_map_bench_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Measures DMA mappings of a PCI function");
