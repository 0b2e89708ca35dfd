/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the two halves of the virtual configuration space share: registers in byte arrays. */
#ifndef PCILEND_VCONFIG_REGS_H
#define PCILEND_VCONFIG_REGS_H

#include <linux/pci_regs.h>

#include "pcilend/platform.h"

#define ROM_BAR 6

static inline u16 get16(const u8 *bytes, u32 offset)
{
	return bytes[offset] | (u16)bytes[offset + 1] << 8;
}

static inline u32 get32(const u8 *bytes, u32 offset)
{
	return get16(bytes, offset) | (u32)get16(bytes, offset + 2) << 16;
}

static inline void put16(u8 *bytes, u32 offset, u16 value)
{
	bytes[offset] = (u8)value;
	bytes[offset + 1] = (u8)(value >> 8);
}

static inline void put32(u8 *bytes, u32 offset, u32 value)
{
	put16(bytes, offset, (u16)value);
	put16(bytes, offset + 2, (u16)(value >> 16));
}

static inline bool test_bit8(const u8 *bits, u32 index)
{
	return bits[index / 8] >> (index % 8) & 1;
}

/* Bytes of an MSI capability with these flags, PCI Local Bus 3.0 §6.8.1. */
static inline u32 msi_length(u16 flags)
{
	u32 length = flags & PCI_MSI_FLAGS_64BIT ? 14 : 10;

	return flags & PCI_MSI_FLAGS_MASKBIT ? length + 10 : length;
}

#endif /* PCILEND_VCONFIG_REGS_H */
