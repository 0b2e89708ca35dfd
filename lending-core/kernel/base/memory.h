/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Memory of a process, by a dma-buf: pinned, counted for its RLIMIT_MEMLOCK, and mapped in IOMMU
 * domains in one piece. No lock that a caller could notice, but the process's mmap_lock.
 */
#ifndef PCILEND_MEMORY_H
#define PCILEND_MEMORY_H

#include <linux/types.h>

struct dma_buf;
struct dma_buf_attachment;
struct iommu_domain;
struct mm_struct;
struct netlink_ext_ack;
struct sg_table;

/* Constant between the two. */
struct pcilend_memory {
	u64 size;			/* bytes, whole pages */
	bool writable;			/* by whoever has the descriptor */
	bool contiguous;		/* in physical memory */
	phys_addr_t phys;		/* of its first page */
	struct dma_buf *buffer;
	struct dma_buf_attachment *attachment;
	struct sg_table *table;
	struct mm_struct *mm;
	unsigned long pages;
};

/*
 * pcilend_memory_get - the memory behind a descriptor of the calling process
 *
 * Return: 0; or why not, which @extack says: it is no dma-buf, of no whole pages, no memory, or
 * more than the process may lock.
 */
int pcilend_memory_get(struct pcilend_memory *memory, int fd, struct netlink_ext_ack *extack);
/* Nothing of it is mapped. */
void pcilend_memory_put(struct pcilend_memory *memory);

/* How many pages of 4 KiB of it are in no piece of 2 MiB, at most. */
u64 pcilend_memory_small_pages(const struct pcilend_memory *memory);

/*
 * Maps all of it at @iova, from which on there is room. @prot: IOMMU_READ, IOMMU_WRITE, or both.
 * Return: 0, or what the IOMMU says.
 */
int pcilend_memory_map(const struct pcilend_memory *memory, struct iommu_domain *domain, u64 iova,
		       int prot);

int pcilend_memory_init(void);
void pcilend_memory_exit(void);

#endif /* PCILEND_MEMORY_H */
