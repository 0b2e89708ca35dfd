/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The aperture planner. A host's inbound aperture is the IOVA space of its NTB adapter as far as
 * the peer reaches it through memory windows. Translations are set once, at link up, as planned
 * here; what the peer really reaches is decided by the page tables of the adapter's IOMMU domain.
 *
 * With two windows of 16 GiB or more it is
 *
 *	window 0, translation 0:
 *	  [0, dma_limit)	DMA API of the NTB's pci_dev: control area, DMA buffers
 *	  0xfee00000, 1 MiB	interrupt messages
 *	  [8 GiB, ...)		guest slots
 *	window 1, translation 1 TiB:
 *	  all of it		exports: BARs of functions that this host lends to the peer
 *
 * With other windows, regions share a window or get one each. Where space is short it degrades,
 * in this order: interrupts relayed by the lender; a smaller DMA area; less room for guests; less
 * room for BARs; no guests at all. Every step is reported.
 */
#ifndef PCILEND_LAYOUT_H
#define PCILEND_LAYOUT_H

#include "pcilend/platform.h"

__BEGIN_DECLS

#define PCILEND_LAYOUT_WINDOWS 16	/* windows beyond are left unused */
#define PCILEND_LAYOUT_TEXT_BYTES 256

#define PCILEND_HOLE_DEFAULT 0x80000000ULL /* lowest PCI hole assumed where it isn't known */
#define PCILEND_EXPORT_IOVA 0x10000000000ULL /* 1 TiB */
#define PCILEND_SLOT_IOVA 0x200000000ULL /* 8 GiB */
#define PCILEND_MSI_IOVA 0xfee00000ULL	/* Intel SDM 3A, 11.11; AMD APM 2, 16.11 */
#define PCILEND_MSI_BYTES 0x100000ULL

/* No layout without these; a region of guest slots below its least is none. */
#define PCILEND_DMA_LEAST 0x40000ULL
#define PCILEND_EXPORT_LEAST 0x40000ULL
#define PCILEND_SLOTS_LEAST 0x8000000ULL
/* More than these is nice to have, less is reported. */
#define PCILEND_EXPORT_FULL 0x40000000ULL
#define PCILEND_SLOTS_FULL 0x400000000ULL

/* A memory window, as ntb_mw_get_align() and ntb_peer_mw_get_addr() tell; all in bytes. */
struct pcilend_layout_window {
	u64 size;	/* how far the side that looks through it reaches; 0: not known */
	u64 size_max;	/* largest size of an inbound translation; 0: not known */
	u64 addr_align;	/* of a translation, a power of two; 0: 1 */
	u64 size_align;	/* of the size of a translation, a power of two; 0: 1 */
	u64 end;	/* first address that a translation can't reach; 0: none. ntb_hw_gen1: */
			/* 0xfffff000 for the 32-bit halves of a split BAR */
};

/* One side of a link. */
struct pcilend_layout_host {
	u32 windows;
	struct pcilend_layout_window window[PCILEND_LAYOUT_WINDOWS];
	u64 hole;	/* start of the lowest PCI hole (MMIO below 4 GiB); 0: not known */
	u64 iova_end;	/* first address the NTB's IOMMU domain can't translate; 0: none */
	u64 memory_end;	/* of a host without an IOMMU, whose DMA area is its memory: all of that */
			/* must be in the area, and there are no slots. 0: there is an IOMMU */
	u64 bars;	/* of such a host: its lowest BAR above 4 GiB, where a window of exports */
			/* alone goes; 0: there is none */
	bool relay;	/* no window for interrupts, though one could reach them */
};

struct pcilend_layout_region {
	u64 iova;
	u64 size;	/* bytes, page aligned; 0: there is none */
	u32 window;	/* index of the window that reaches it */
};

#define PCILEND_DEGRADED_INTERRUPTS	0x01	/* no window for 0xfee00000: relayed, unasked */
#define PCILEND_DEGRADED_DMA		0x02	/* DMA area smaller than the holes allow */
#define PCILEND_DEGRADED_GUESTS		0x04	/* slots below PCILEND_SLOTS_FULL */
#define PCILEND_DEGRADED_NO_GUESTS	0x08	/* no slots: no VMs, shadow only */
#define PCILEND_DEGRADED_EXPORT		0x10	/* exports below PCILEND_EXPORT_FULL */
#define PCILEND_DEGRADED_BITS 5

/*
 * A host's inbound aperture. The offset of an IOVA in a region, as the peer counts it in its
 * window, is iova - window[region.window].translation.
 */
struct pcilend_layout {
	u32 windows;		/* entries of window[] */
	struct {
		u64 translation;
		u64 size;	/* bytes to program; 0: this window stays closed */
	} window[PCILEND_LAYOUT_WINDOWS];
	u64 dma_limit;		/* DMA API stays below it (bus_dma_limit is dma_limit - 1) */
	u32 dma_window;		/* reaches [0, dma_limit) at translation 0; not the first window */
				/* only where another one degrades less */
	struct pcilend_layout_region interrupts; /* PCILEND_MSI_IOVA, or none: relayed */
	struct pcilend_layout_region exports;	 /* BARs of functions this host lends */
	struct pcilend_layout_region slots;	 /* guest memory */
	u32 degraded;		/* PCILEND_DEGRADED_* */
};

/**
 * pcilend_layout_plan - inbound aperture of @self, for @peer to look through
 * @self: rules of inbound translations on this host
 * @peer: window[].size is how far the peer sees through each of these windows, in the same order;
 *	windows == 0 if that isn't known: @self's sizes are taken then
 * @why: on refusal, a sentence that says what is missing and by how much, NUL-terminated;
 *	PCILEND_LAYOUT_TEXT_BYTES are enough
 *
 * Translations are aligned to their size rounded up to a power of two, also where the driver
 * doesn't ask for it (ntb_hw_switchtec refuses others but says 4 KiB).
 *
 * Return: 0; -ENOSPC if windows are too few or too small for any layout; -EINVAL if a rule in the
 * input makes no sense.
 */
int pcilend_layout_plan(const struct pcilend_layout_host *self,
			const struct pcilend_layout_host *peer, struct pcilend_layout *layout,
			char *why, size_t why_bytes);

/**
 * pcilend_layout_reached - can the peer use all of an aperture that was planned?
 * @peer: windows as it sees them, and its PCI hole; all known
 * @why: on refusal, a sentence that says what is out of reach and by how much
 *
 * Return: 0; -ERANGE if the aperture has to be planned anew, with @peer.
 */
int pcilend_layout_reached(const struct pcilend_layout *layout,
			   const struct pcilend_layout_host *peer, char *why, size_t why_bytes);

/* What one PCILEND_DEGRADED_* bit means to people, and the cure; a constant sentence. */
const char *pcilend_layout_degraded_text(u32 bit);

__END_DECLS

#endif /* PCILEND_LAYOUT_H */
