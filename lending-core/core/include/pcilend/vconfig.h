/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The virtual configuration space of a borrowed function: what a driver on the borrower, or a
 * guest, sees. It is made once from a snapshot of the lender's function and then answers every
 * access without leaving the host; writes with an effect in hardware are reported to the caller.
 *
 * Layouts: PCI Local Bus 3.0 §6.1 (header), PCI Express Base 5.0 §7.5 (capabilities);
 * names as in include/uapi/linux/pci_regs.h.
 *
 * Callers serialise accesses to one struct pcilend_vconfig; nothing here sleeps, so it may be
 * used under pci_lock with interrupts off.
 */
#ifndef PCILEND_VCONFIG_H
#define PCILEND_VCONFIG_H

#include "pcilend/platform.h"
#include "pcilend/wire.h"

__BEGIN_DECLS

#define PCILEND_VCONFIG_BYTES 4096

/* What a write asks for beyond changing what is read back. */
#define PCILEND_EFFECT_COMMAND	0x01	/* memory space or bus master bit changed */
#define PCILEND_EFFECT_RESET	0x02	/* function level reset (PCIe or AF capability) */
#define PCILEND_EFFECT_MSI	0x04	/* MSI control, address, data or mask changed */
#define PCILEND_EFFECT_MSIX	0x08	/* MSI-X enable or function mask changed */
#define PCILEND_EFFECT_POWER	0x10	/* power state changed */
#define PCILEND_EFFECT_BAR	0x20	/* a BAR or the ROM BAR was written */
#define PCILEND_EFFECT_FORWARD	0x40	/* a register that lives in the hardware: send it on */
#define PCILEND_EFFECT_INTX	0x80	/* pcilend_vconfig_intx() says something else now */

struct pcilend_vconfig_bar {
	u64 size;	/* bytes, a power of two; 0: not implemented */
	u32 flags;	/* PCILEND_BAR_MEM64, PCILEND_BAR_PREFETCH */
};

struct pcilend_vconfig {
	u8 value[PCILEND_VCONFIG_BYTES];
	u8 writable[PCILEND_VCONFIG_BYTES];	/* bits software may change */
	u8 forward[PCILEND_VCONFIG_BYTES / 8];	/* bytes whose truth is in the hardware */
	struct pcilend_vconfig_bar bar[7];
	u16 express;	/* offsets of capabilities, 0: not there */
	u16 msi;
	u16 msix;
	u16 power;
	u16 advanced;	/* Advanced Features (conventional PCI FLR) */
};

/*
 * pcilend_vconfig_init - virtual configuration space from a snapshot
 * @hw: the function's own configuration space, @length bytes (256 or 4096), hostile
 * @bar: sizes as the lender measured them; index 6 is the expansion ROM
 *
 * Shown are power management, MSI-X or else MSI, PCI Express, Advanced Features, vendor-specific
 * capabilities (their bodies forwarded) and the serial number. All others make no sense behind an
 * NTB (SR-IOV, ATS, PRI, PASID, ACS, AER, resizable BAR, vital product data ...) and are taken out
 * of the lists, which stay well formed; so is an MSI-X table outside its BAR. I/O BARs read 0. The
 * Interrupt Status bit does too, as its truth is on the lender. PCI Express always has function
 * level reset, whichever reset the lender has, and D3 loses nothing, as it is not forwarded. A
 * broken capability list (loops, bad offsets) is cut where it breaks. Device-specific registers
 * outside capabilities read as in the snapshot.
 *
 * The lender fills in what a function itself doesn't tell: ids of an SR-IOV virtual function, which
 * read ffff in hardware.
 *
 * Returns 0, or -EINVAL if the snapshot isn't a type 0 header of a function that answers.
 */
int pcilend_vconfig_init(struct pcilend_vconfig *config, const u8 *hw, size_t length,
			 const struct pcilend_vconfig_bar bar[7]);

/*
 * What power-on and function level reset leave: what software can write is as after _init(). The
 * caller does that after PCILEND_EFFECT_RESET, when the hardware has been reset.
 */
void pcilend_vconfig_reset(struct pcilend_vconfig *config);

/* Little-endian value of @length (1, 2, 4) bytes at @offset; all ones if that is out of range. */
u32 pcilend_vconfig_read(const struct pcilend_vconfig *config, u32 offset, u32 length);

/* Writes as hardware would (read-only bits kept, write-1-to-clear honoured); the effects. */
unsigned int pcilend_vconfig_write(struct pcilend_vconfig *config, u32 offset, u32 length,
				   u32 value);

/* True if any byte of the access must be read from the hardware instead. */
bool pcilend_vconfig_forwards(const struct pcilend_vconfig *config, u32 offset, u32 length);

/*
 * From now on nothing of vendor-specific capabilities goes to the hardware, nor is to be read
 * there. For who reads the copy: a driver never saw what became of its write, and what it took in
 * hardware that way, a semaphore, would stay taken.
 */
void pcilend_vconfig_withhold(struct pcilend_vconfig *config);

/*
 * Bits of the hardware's registers that a borrower may write by one access: all of vendor-specific
 * capabilities, and of MSI, where it is shown, what software may write there. 0: the access is not
 * the borrower's, as it touches some other register, or nothing that can be written. Both sides ask
 * this; the lender of its own snapshot, with the same BAR sizes.
 */
u32 pcilend_vconfig_hardware_bits(const struct pcilend_vconfig *config, u32 offset, u32 length);

/*
 * What the lender writes for a borrower that writes @value to a register that has @hardware now:
 * nothing but the bits above change, and no more MSI messages are enabled than there are.
 */
u32 pcilend_vconfig_hardware_value(const struct pcilend_vconfig *config, u32 offset, u32 length,
				   u32 hardware, u32 value);

/* Addresses software put into the BARs (memory bits only), 0 if not implemented or not set. */
u64 pcilend_vconfig_bar_address(const struct pcilend_vconfig *config, unsigned int bar);

/*
 * What its registers let the function do with its interrupt pin: nothing without one, or while MSI
 * or MSI-X is enabled (PCI Local Bus 3.0 §6.8.1.3, §6.8.2.3).
 */
enum pcilend_intx_state pcilend_vconfig_intx(const struct pcilend_vconfig *config);

bool pcilend_vconfig_bus_master(const struct pcilend_vconfig *config);
bool pcilend_vconfig_memory(const struct pcilend_vconfig *config);

__END_DECLS

#endif /* PCILEND_VCONFIG_H */
