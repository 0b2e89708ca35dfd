/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The aperture planner. A host's inbound aperture is the IOVA space of its NTB adapter as far as
 * the peer reaches it through memory windows. Translations are set once, at link up, as planned
 * here; what the peer really reaches is decided by the page tables of the adapter's IOMMU domain.
 *
 *	window 0, translation 0 (always):
 *	  [0, dma_limit)	DMA API of the NTB's pci_dev: control area, DMA buffers
 *	  0xfee00000, 1 MiB	interrupt messages
 *	  [8 GiB, ...)		guest slots
 *	window 1, translation 1 TiB: export region, BARs of lent functions
 *
 * With less window space it degrades, in this order: interrupts relayed by the lender; a smaller
 * DMA area; less room for guests, down to none; less room for BARs. Every step is reported.
 */
#ifndef PCILEND_LAYOUT_H
#define PCILEND_LAYOUT_H

#include "pcilend/platform.h"

PCILEND_DECLARATIONS_BEGIN

#define PCILEND_LAYOUT_WINDOWS 16	/* more than this many are left unused */
#define PCILEND_LAYOUT_TEXT_BYTES 256

#define PCILEND_HOLE_DEFAULT 0x80000000ULL	/* lowest 32-bit PCI hole assumed of a peer */
#define PCILEND_EXPORT_IOVA (1ULL << 40)
#define PCILEND_SLOT_IOVA (8ULL << 30)
#define PCILEND_MSI_IOVA 0xfee00000ULL		/* Intel SDM 3A §11.11, AMD APM 2 §16.11 */
#define PCILEND_MSI_BYTES 0x100000ULL

/* A memory window, as ntb_mw_get_align() and ntb_peer_mw_get_addr() tell. */
struct pcilend_layout_window {
	u64 size;	/* bytes of the BAR (or part of it) behind which the window lies; the reach */
			/* of the side that looks through it */
	u64 size_max;	/* largest size of an inbound translation; 0: as size */
	u64 addr_align;	/* of the translation; 0: 1 */
	u64 size_align;	/* of the size of a translation; 0: 1 */
};

/* One side of a link. */
struct pcilend_layout_host {
	u32 windows;
	struct pcilend_layout_window window[PCILEND_LAYOUT_WINDOWS];
	u64 hole;	/* start of the lowest PCI hole (MMIO below 4 GiB); 0: unknown */
	u64 iova_end;	/* first address the NTB's IOMMU domain can't translate; 0: none */
};

struct pcilend_layout_region {
	u64 iova;
	u64 size;	/* bytes; 0: there is none */
	u32 window;	/* index of the window that reaches it */
};

#define PCILEND_DEGRADED_INTERRUPTS	0x01	/* no window reaches 0xfee00000: relayed */
#define PCILEND_DEGRADED_DMA		0x02	/* DMA area smaller than the hole would allow */
#define PCILEND_DEGRADED_GUESTS		0x04	/* slots below PCILEND_LAYOUT_GUESTS_FULL */
#define PCILEND_DEGRADED_NO_GUESTS	0x08	/* no slots: no VMs, shadow only */
#define PCILEND_DEGRADED_EXPORT		0x10	/* export region below PCILEND_LAYOUT_EXPORT_FULL */

#define PCILEND_LAYOUT_GUESTS_FULL (16ULL << 30)
#define PCILEND_LAYOUT_EXPORT_FULL (1ULL << 30)

/*
 * A host's inbound aperture. The offset of an IOVA in a region, as the peer counts it, is
 * iova - window[region.window].translation.
 */
struct pcilend_layout {
	u32 windows;		/* to be programmed, from 0 on; the others stay without translation */
	struct {
		u64 translation;
		u64 size;	/* bytes; 0: leave this one without translation */
	} window[PCILEND_LAYOUT_WINDOWS];
	u64 dma_limit;		/* DMA API stays below it (bus_dma_limit is dma_limit - 1), always */
				/* in window 0, like the control area */
	struct pcilend_layout_region interrupts; /* PCILEND_MSI_IOVA, or nothing: relayed */
	struct pcilend_layout_region exports;	/* BARs of functions this host lends to the peer */
	struct pcilend_layout_region slots;	/* guest memory */
	u32 degraded;		/* PCILEND_DEGRADED_* */
};

/**
 * pcilend_layout_plan - inbound aperture of @self, for @peer to look through
 * @self: rules of the inbound translations on this host; its window[].size may be 0
 * @peer: window[].size are the windows through which the peer looks, in the same order, where
 *	known (windows == 0: not known, @self's sizes are taken)
 * @why: on refusal, a sentence that says what is missing and by how much, NUL-terminated;
 *	PCILEND_LAYOUT_TEXT_BYTES are enough
 *
 * Return: 0; -ENOSPC if the windows are too few or too small for any layout; -EINVAL if the input
 * contradicts itself.
 */
int pcilend_layout_plan(const struct pcilend_layout_host *self,
			const struct pcilend_layout_host *peer, struct pcilend_layout *layout,
			char *why, size_t why_bytes);

/* What one PCILEND_DEGRADED_* bit means to people, and the cure; a constant sentence. */
const char *pcilend_layout_degraded_text(u32 bit);

PCILEND_DECLARATIONS_END

#endif /* PCILEND_LAYOUT_H */
