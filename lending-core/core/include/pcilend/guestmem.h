/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Guest memory of a virtual machine, found by probing and kept mapped for a borrowed function.
 *
 * VFIO tells an emulated device what is unmapped, never what is mapped. So memory is looked for
 * by pinning where a PC's memory can be, in passes, and a pass is repeated until nothing changes.
 * Memory lies in segments: contiguous pieces of guest-physical address space, each with a slot in
 * the host's aperture. A page at guest-physical address G of a segment is mapped at IOVA
 * segment.iova + (G - segment.start), and G and its IOVA are equal modulo 2 MiB.
 *
 * Where memory is looked for (QEMU's hw/i386/pc.c and pc_q35.c; other VMMs lay out the same):
 *   0 to 640 KiB and 768 KiB to 1 MiB, page by page: holes and read-only memory are skipped;
 *   from 1 MiB to the first hole, below PCILEND_GUEST_LOW_END;
 *   from 4 GiB, and from 1 TiB (AMD hosts move it there), and PCILEND_GUEST_REACH beyond the end
 *   of what was found there, at multiples of PCILEND_GUEST_STRIDE (hotplugged memory).
 * Inside a segment memory is found if it touches other memory or covers a multiple of 64 KiB.
 *
 * The caller serialises all calls for one struct pcilend_guestmem. Nothing here sleeps but what
 * the operations do.
 */
#ifndef PCILEND_GUESTMEM_H
#define PCILEND_GUESTMEM_H

#include "pcilend/platform.h"

__BEGIN_DECLS

#define PCILEND_GUEST_PAGE 4096ULL
/* Largest IOMMU page used, and largest pin: VFIO_PIN_PAGES_MAX_ENTRIES, include/linux/vfio.h. */
#define PCILEND_GUEST_BLOCK (2ULL << 20)
#define PCILEND_GUEST_BLOCK_PAGES 512

#define PCILEND_GUEST_LEGACY_END 0x100000ULL
#define PCILEND_GUEST_VGA_START 0xa0000ULL
#define PCILEND_GUEST_VGA_END 0xc0000ULL
#define PCILEND_GUEST_LOW_END 0xfe000000ULL	/* where the interrupt alias is */
#define PCILEND_GUEST_HIGH_START 0x100000000ULL
#define PCILEND_GUEST_MOVED_START 0x10000000000ULL	/* 1 TiB */
#define PCILEND_GUEST_ADDRESS_END 0x10000000000000ULL	/* 52 bits */
#define PCILEND_GUEST_STRIDE (128ULL << 20)
#define PCILEND_GUEST_REACH (64ULL << 30)
#define PCILEND_GUEST_GRAIN (64ULL << 10)

#define PCILEND_GUEST_SEGMENTS 64	/* as many as a lender maps for a lease */
#define PCILEND_GUEST_RANGES 1024

/* Unchanged passes after which memory that was unmapped is taken for gone. */
#define PCILEND_GUEST_PATIENCE 8
#define PCILEND_GUEST_DELAY_MS 5	/* before the first pass after an unmap */
#define PCILEND_GUEST_DELAY_MAX_MS 640

/* Host pages contiguous in host-physical memory. */
struct pcilend_guest_run {
	u64 pfn;
	u32 pages;
};

/* [start, end), bytes, page aligned. */
struct pcilend_guest_range {
	u64 start;
	u64 end;
};

struct pcilend_guest_segment {
	u64 start;		/* guest-physical, bytes; page aligned */
	u64 end;
	u64 iova;		/* where start is in the aperture */
	u64 slot;		/* what slot_get() gave, and asked for */
	u64 slot_size;
};

struct pcilend_guestmem_ops {
	/*
	 * Pins @pages (1 to PCILEND_GUEST_BLOCK_PAGES) pages at @gpa, all or none, and tells their
	 * host page frame numbers. -EINVAL or -EFAULT: not all of it is memory; -EPERM: not all of
	 * it is writable; any other error ends the pass.
	 */
	int (*pin)(void *context, u64 gpa, u32 pages, u64 *pfn);
	void (*unpin)(void *context, u64 gpa, u64 pages);
	/* Maps @count runs one after the other from @iova; they never cross a 2 MiB boundary. */
	int (*map)(void *context, u64 iova, const struct pcilend_guest_run *run, u32 count);
	void (*unmap)(void *context, u64 iova, u64 pages);
	/* A range of the aperture, @size bytes, start 2 MiB aligned. The caller gives it back. */
	int (*slot_get)(void *context, u64 size, u64 *iova);
};

struct pcilend_guestmem {
	const struct pcilend_guestmem_ops *ops;
	void *context;

	struct pcilend_guest_segment segment[PCILEND_GUEST_SEGMENTS];
	u32 segments;
	struct pcilend_guest_range range[PCILEND_GUEST_RANGES];	/* pinned and mapped; sorted */
	u32 ranges;
	u64 pinned;		/* bytes in all ranges */
	u64 expected;		/* bytes pinned when all was last in order */

	u64 at;			/* where the pass goes on */
	u64 found;		/* end of the memory last seen by the pass */
	u64 missed;		/* the last page looked at, if it was a hole, else all ones */
	u32 work;		/* done in this step */
	bool passing;
	bool changed;		/* this pass pinned something */
	bool disturbed;		/* memory was unmapped since the pass began */
	bool clean;
	bool stable;
	u32 quiet;		/* unchanged passes since the last unmap */
	u32 unstable;		/* passes since it was stable */

	u64 pfn[PCILEND_GUEST_BLOCK_PAGES];
	struct pcilend_guest_run run[PCILEND_GUEST_BLOCK_PAGES];
};

/* Nothing is pinned, no segment is there; neither clean nor stable. */
void pcilend_guestmem_init(struct pcilend_guestmem *memory, const struct pcilend_guestmem_ops *ops,
			   void *context);

/* Starts a pass, or starts the one under way again. */
void pcilend_guestmem_begin(struct pcilend_guestmem *memory);

/*
 * Takes the pass a bounded step on: at most 32 MiB are pinned, then the caller may let others in.
 * Returns 1 if the pass goes on, 0 if it is over, or what an operation failed with: the pass is
 * over then, what it pinned stays. -ENOSPC also if there are too many pieces of memory.
 */
int pcilend_guestmem_step(struct pcilend_guestmem *memory);

/*
 * The guest's owner takes [gpa, +size) away: unmapped and unpinned on return, along with the rest
 * of the 2 MiB blocks it touches (an IOMMU drops large pages as a whole), which the next pass
 * finds again. Not clean and not stable afterwards, also if nothing there was pinned: something
 * else may have come in its place. Returns the bytes given up.
 */
u64 pcilend_guestmem_forget(struct pcilend_guestmem *memory, u64 gpa, u64 size);

/* Everything unmapped and unpinned. Segments stay, for the caller to give their slots back. */
void pcilend_guestmem_release(struct pcilend_guestmem *memory);

/* Forgets the segments. Nothing may be pinned. */
void pcilend_guestmem_drop_segments(struct pcilend_guestmem *memory);

/*
 * True if a whole pass was made since memory was last unmapped: all there was at that moment is
 * mapped. That is enough for one who holds off changes, as QEMU does while a vCPU is in a
 * register access.
 */
bool pcilend_guestmem_clean(const struct pcilend_guestmem *memory);

/* Where @gpa, which is in a segment, is in the aperture. */
u64 pcilend_guestmem_iova(const struct pcilend_guestmem *memory, u64 gpa);

/* True if passes found nothing new, and what was unmapped came back or stayed away for long. */
bool pcilend_guestmem_stable(const struct pcilend_guestmem *memory);

/* Milliseconds to wait before the next pass while not stable. */
u32 pcilend_guestmem_delay(const struct pcilend_guestmem *memory);

__END_DECLS

#endif /* PCILEND_GUESTMEM_H */
