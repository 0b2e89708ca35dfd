// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Accesses to the virtual configuration space; see vconfig.h. */

#include "pcilend/vconfig.h"
#include "pcilend/wire.h"
#include "vconfig_regs.h"

/* PCI Express Base 5.0 §7.5.3.4. */
#define DEVCTL_DEFAULT (PCI_EXP_DEVCTL_RELAX_EN | PCI_EXP_DEVCTL_NOSNOOP_EN | \
			PCI_EXP_DEVCTL_READRQ_512B)

void pcilend_vconfig_reset(struct pcilend_vconfig *config)
{
	u32 at;

	for (at = 0; at < PCILEND_VCONFIG_BYTES; at++)
		config->value[at] &= ~config->writable[at];
	if (config->express) {
		at = config->express + PCI_EXP_DEVCTL;
		put16(config->value, at, DEVCTL_DEFAULT & get16(config->writable, at));
	}
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_reset);

static bool vconfig_access_ok(u32 offset, u32 length)
{
	return (length == 1 || length == 2 || length == 4) &&
	       offset <= PCILEND_VCONFIG_BYTES - length;
}

u32 pcilend_vconfig_read(const struct pcilend_vconfig *config, u32 offset, u32 length)
{
	u32 value = 0;
	u32 i;

	if (!vconfig_access_ok(offset, length))
		return length == 1 ? 0xff : length == 2 ? 0xffff : ~0u;
	for (i = 0; i < length; i++)
		value |= (u32)config->value[offset + i] << (8 * i);
	return value;
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_read);

static bool vconfig_within(u32 at, u32 start, u32 length)
{
	return at >= start && at - start < length;
}

/* What a written byte becomes where not every value of the writable bits is possible. */
static u8 vconfig_legal(const struct pcilend_vconfig *config, u32 at, u8 old, u8 next)
{
	if (config->power && at == config->power + (u32)PCI_PM_CTRL) {
		u8 state = next & PCI_PM_CTRL_STATE_MASK;

		/* A state that isn't supported is ignored, §7.5.2.2; D1 and D2 are not. */
		return state == 1 || state == 2 ? old : next;
	}
	if (config->msi && at == config->msi + (u32)PCI_MSI_FLAGS) {
		u8 capable = (next & PCI_MSI_FLAGS_QMASK) >> 1;

		if ((next & PCI_MSI_FLAGS_QSIZE) >> 4 > capable)
			return (next & ~PCI_MSI_FLAGS_QSIZE) | capable << 4;
	}
	return next;
}

static bool vconfig_msi_byte(const struct pcilend_vconfig *config, u32 at)
{
	return config->msi && vconfig_within(at, config->msi, msi_length(get16(config->value,
								config->msi + PCI_MSI_FLAGS)));
}

/* Is it a byte of a register that a borrower may write in the hardware, as far as its bits go? */
static bool vconfig_hardware_byte(const struct pcilend_vconfig *config, u32 at)
{
	return test_bit8(config->forward, at) ||
	       (vconfig_msi_byte(config, at) && at >= config->msi + (u32)PCI_MSI_FLAGS);
}

/* The registers of MSI are known bit by bit; of a vendor's only the vendor knows what they are. */
static u8 vconfig_hardware_bits(const struct pcilend_vconfig *config, u32 at)
{
	if (vconfig_msi_byte(config, at))
		return config->writable[at];
	return test_bit8(config->forward, at) ? 0xff : 0;
}

static unsigned int vconfig_changed_effect(const struct pcilend_vconfig *config, u32 at, u8 changed)
{
	if (!changed)
		return 0;
	if (at == PCI_COMMAND && changed & (PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER))
		return PCILEND_EFFECT_COMMAND;
	if (vconfig_msi_byte(config, at))
		return PCILEND_EFFECT_MSI;
	if (config->msix && vconfig_within(at, config->msix, PCI_CAP_MSIX_SIZEOF))
		return PCILEND_EFFECT_MSIX;
	if (config->power && vconfig_within(at, config->power, PCI_PM_SIZEOF))
		return PCILEND_EFFECT_POWER;
	return 0;
}

static bool vconfig_starts_reset(const struct pcilend_vconfig *config, u32 at, u8 byte)
{
	if (config->express && at == config->express + PCI_EXP_DEVCTL + 1u)
		return byte & (PCI_EXP_DEVCTL_BCR_FLR >> 8) &&
		       get32(config->value, config->express + PCI_EXP_DEVCAP) & PCI_EXP_DEVCAP_FLR;
	if (config->advanced && at == config->advanced + (u32)PCI_AF_CTRL)
		return byte & PCI_AF_CTRL_FLR &&
		       config->value[config->advanced + PCI_AF_CAP] & PCI_AF_CAP_FLR;
	return false;
}

/* Bytes of BARs that exist, also those whose bits are all fixed. */
static bool vconfig_bar_byte(const struct pcilend_vconfig *config, u32 at)
{
	unsigned int index = (at - PCI_BASE_ADDRESS_0) / 4;

	if (vconfig_within(at, PCI_ROM_ADDRESS, 4))
		return config->bar[ROM_BAR].size;
	if (!vconfig_within(at, PCI_BASE_ADDRESS_0, 24))
		return false;
	return config->bar[index].size ||
	       (index && config->bar[index - 1].flags & PCILEND_BAR_MEM64);
}

unsigned int pcilend_vconfig_write(struct pcilend_vconfig *config, u32 offset, u32 length,
				   u32 value)
{
	enum pcilend_intx_state intx = pcilend_vconfig_intx(config);
	unsigned int effects = 0;
	u32 i;

	if (!vconfig_access_ok(offset, length))
		return 0;
	for (i = 0; i < length; i++) {
		u32 at = offset + i;
		u8 byte = (u8)(value >> (8 * i));
		u8 old = config->value[at];
		u8 next = (old & ~config->writable[at]) | (byte & config->writable[at]);

		next = vconfig_legal(config, at, old, next);
		config->value[at] = next;
		effects |= vconfig_changed_effect(config, at, old ^ next);
		if (vconfig_starts_reset(config, at, byte))
			effects |= PCILEND_EFFECT_RESET;
		if (vconfig_bar_byte(config, at))
			effects |= PCILEND_EFFECT_BAR;
		/* Those of MSI go to the hardware together, see PCILEND_EFFECT_MSI. */
		if (vconfig_hardware_bits(config, at) && !vconfig_msi_byte(config, at))
			effects |= PCILEND_EFFECT_FORWARD;
	}
	if (pcilend_vconfig_intx(config) != intx)
		effects |= PCILEND_EFFECT_INTX;
	return effects;
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_write);

bool pcilend_vconfig_forwards(const struct pcilend_vconfig *config, u32 offset, u32 length)
{
	u32 i;

	if (!vconfig_access_ok(offset, length))
		return false;
	for (i = 0; i < length; i++) {
		if (test_bit8(config->forward, offset + i))
			return true;
	}
	return false;
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_forwards);

void pcilend_vconfig_withhold(struct pcilend_vconfig *config)
{
	memset(config->forward, 0, sizeof(config->forward));
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_withhold);

u32 pcilend_vconfig_hardware_bits(const struct pcilend_vconfig *config, u32 offset, u32 length)
{
	u32 bits = 0;
	u32 i;

	if (!vconfig_access_ok(offset, length))
		return 0;
	for (i = 0; i < length; i++) {
		if (!vconfig_hardware_byte(config, offset + i))
			return 0;
		bits |= (u32)vconfig_hardware_bits(config, offset + i) << (8 * i);
	}
	return bits;
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_hardware_bits);

u32 pcilend_vconfig_hardware_value(const struct pcilend_vconfig *config, u32 offset, u32 length,
				   u32 hardware, u32 value)
{
	u32 bits = pcilend_vconfig_hardware_bits(config, offset, length);
	u32 merged = (hardware & ~bits) | (value & bits);
	u32 result = 0;
	u32 i;

	for (i = 0; i < length && bits; i++)
		result |= (u32)vconfig_legal(config, offset + i, (u8)(hardware >> (8 * i)),
					     (u8)(merged >> (8 * i))) << (8 * i);
	return bits ? result : hardware;
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_hardware_value);

u64 pcilend_vconfig_bar_address(const struct pcilend_vconfig *config, unsigned int bar)
{
	u64 address;

	if (bar > ROM_BAR || !config->bar[bar].size)
		return 0;
	if (bar == ROM_BAR)
		return get32(config->value, PCI_ROM_ADDRESS) & PCI_ROM_ADDRESS_MASK;
	address = get32(config->value, PCI_BASE_ADDRESS_0 + 4 * bar) & ~0xfu;
	if (config->bar[bar].flags & PCILEND_BAR_MEM64)
		address |= (u64)get32(config->value, PCI_BASE_ADDRESS_0 + 4 * bar + 4) << 32;
	return address;
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_bar_address);

enum pcilend_intx_state pcilend_vconfig_intx(const struct pcilend_vconfig *config)
{
	const u8 *value = config->value;

	if (!value[PCI_INTERRUPT_PIN])
		return PCILEND_INTX_OFF;
	if (config->msi && get16(value, config->msi + PCI_MSI_FLAGS) & PCI_MSI_FLAGS_ENABLE)
		return PCILEND_INTX_OFF;
	if (config->msix && get16(value, config->msix + PCI_MSIX_FLAGS) & PCI_MSIX_FLAGS_ENABLE)
		return PCILEND_INTX_OFF;
	return get16(value, PCI_COMMAND) & PCI_COMMAND_INTX_DISABLE ? PCILEND_INTX_MASKED :
								      PCILEND_INTX_OPEN;
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_intx);

bool pcilend_vconfig_bus_master(const struct pcilend_vconfig *config)
{
	return config->value[PCI_COMMAND] & PCI_COMMAND_MASTER;
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_bus_master);

bool pcilend_vconfig_memory(const struct pcilend_vconfig *config)
{
	return config->value[PCI_COMMAND] & PCI_COMMAND_MEMORY;
}
EXPORT_SYMBOL_GPL(pcilend_vconfig_memory);
