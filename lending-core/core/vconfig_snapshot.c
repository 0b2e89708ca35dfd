// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Makes a virtual configuration space out of a snapshot of the function's own; see vconfig.h.
 * Sections named are those of PCI Express Base 5.0; registers as in linux/pci_regs.h.
 */

#include "pcilend/vconfig.h"
#include "pcilend/wire.h"
#include "vconfig_regs.h"

#define STANDARD_BYTES 256u
#define FIRST_CAPABILITY 0x40u
#define FIRST_EXTENDED 0x100u
#define LAST_PIN 4 /* INTD# */
#define MOST_CAPABILITIES ((STANDARD_BYTES - FIRST_CAPABILITY) / 4)

/* Registers and fields that linux/pci_regs.h does not name, §7.5.3 and §7.9.5. */
#define EXPRESS_V1_BYTES 20u
#define EXPRESS_V1_NO_LINK_BYTES 12u
#define EXPRESS_V2_BYTES 60u
#define DEVCAP2_KEPT 0x0000001fu /* completion timeout: ranges, disable */
#define DEVCTL2_KEPT 0x001fu
#define LNKCAP2_SPEEDS 0x000000feu
#define SERIAL_BYTES 12u

#define COMMAND_WRITABLE (PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY | \
			  PCI_COMMAND_SERR | PCI_COMMAND_INTX_DISABLE)
#define STATUS_KEPT (PCI_STATUS_66MHZ | PCI_STATUS_FAST_BACK | PCI_STATUS_DEVSEL_MASK)

/* A capability found in the snapshot's list. */
struct found {
	u16 offset;
	u16 id;
	u16 length;
};

/* What the snapshot has shown so far: dwords that belong to something in a list. */
struct claims {
	u8 dword[PCILEND_VCONFIG_BYTES / 4 / 8];
};

static u32 snapshot_round_up4(u32 value)
{
	return (value + 3) & ~3u;
}

static bool snapshot_claimed(const struct claims *claims, u32 offset)
{
	return test_bit8(claims->dword, offset / 4);
}

/* Takes [offset, offset + length) if nothing of it is taken yet and it ends before @end. */
static bool snapshot_claim(struct claims *claims, u32 offset, u32 length, u32 end)
{
	u32 last = offset + snapshot_round_up4(length);
	u32 at;

	if (last > end)
		return false;
	for (at = offset; at < last; at += 4) {
		if (snapshot_claimed(claims, at))
			return false;
	}
	for (at = offset; at < last; at += 4)
		claims->dword[at / 32] |= 1 << (at / 4 % 8);
	return true;
}

static void snapshot_forward_bytes(struct pcilend_vconfig *config, u32 start, u32 end)
{
	for (; start < end; start++)
		config->forward[start / 8] |= 1 << (start % 8);
}

static bool snapshot_power_of_two(u64 value)
{
	return value && !(value & (value - 1));
}

static bool snapshot_usable_bar(const struct pcilend_vconfig_bar *bar, unsigned int index)
{
	if (!snapshot_power_of_two(bar->size) || bar->flags & PCILEND_BAR_IO)
		return false;
	if (index == ROM_BAR)
		return bar->size >= 0x800 && bar->size <= 0x1000000; /* §7.5.1.2.4 */
	if (bar->flags & PCILEND_BAR_MEM64)
		return index < 5 && bar->size >= 16;
	return bar->size >= 16 && bar->size <= 0x80000000ULL;
}

static void snapshot_set_bars(struct pcilend_vconfig *config,
			      const struct pcilend_vconfig_bar bar[7])
{
	unsigned int i;

	for (i = 0; i < ROM_BAR; i++) {
		u32 at = PCI_BASE_ADDRESS_0 + 4 * i;
		u64 mask = ~(bar[i].size - 1);
		u32 type = 0;

		if (!snapshot_usable_bar(&bar[i], i))
			continue;
		config->bar[i].size = bar[i].size;
		config->bar[i].flags = bar[i].flags & (PCILEND_BAR_MEM64 | PCILEND_BAR_PREFETCH);
		if (bar[i].flags & PCILEND_BAR_PREFETCH)
			type |= PCI_BASE_ADDRESS_MEM_PREFETCH;
		put32(config->writable, at, (u32)mask & ~0xfu);
		if (bar[i].flags & PCILEND_BAR_MEM64) {
			type |= PCI_BASE_ADDRESS_MEM_TYPE_64;
			put32(config->writable, at + 4, (u32)(mask >> 32));
			i++;
		}
		put32(config->value, at, type);
	}
	if (snapshot_usable_bar(&bar[ROM_BAR], ROM_BAR)) {
		config->bar[ROM_BAR].size = bar[ROM_BAR].size;
		put32(config->writable, PCI_ROM_ADDRESS,
		      (u32)~(bar[ROM_BAR].size - 1) | PCI_ROM_ADDRESS_ENABLE);
	}
}

static void snapshot_set_header(struct pcilend_vconfig *config, const u8 *hw)
{
	u8 *value = config->value;

	put32(value, PCI_VENDOR_ID, get32(hw, PCI_VENDOR_ID));
	put16(value, PCI_STATUS, get16(hw, PCI_STATUS) & STATUS_KEPT);
	put32(value, PCI_CLASS_REVISION, get32(hw, PCI_CLASS_REVISION));
	put32(value, PCI_SUBSYSTEM_VENDOR_ID, get32(hw, PCI_SUBSYSTEM_VENDOR_ID));
	if (hw[PCI_INTERRUPT_PIN] <= LAST_PIN)
		value[PCI_INTERRUPT_PIN] = hw[PCI_INTERRUPT_PIN];
	put16(value, PCI_MIN_GNT, get16(hw, PCI_MIN_GNT));
	put16(config->writable, PCI_COMMAND, COMMAND_WRITABLE);
	config->writable[PCI_CACHE_LINE_SIZE] = 0xff;
	config->writable[PCI_INTERRUPT_LINE] = 0xff;
}

static u32 snapshot_express_length(const u8 *hw, u32 at)
{
	u16 flags = get16(hw, at + PCI_EXP_FLAGS);

	if ((flags & PCI_EXP_FLAGS_VERS) > 1)
		return EXPRESS_V2_BYTES;
	return (flags & PCI_EXP_FLAGS_TYPE) >> 4 == PCI_EXP_TYPE_RC_END ?
	       EXPRESS_V1_NO_LINK_BYTES : EXPRESS_V1_BYTES;
}

/* Bytes of a capability as far as its kind is known here, at least its own dword. */
static u32 snapshot_capability_length(const u8 *hw, u32 at)
{
	switch (hw[at]) {
	case PCI_CAP_ID_PM:
		return PCI_PM_SIZEOF;
	case PCI_CAP_ID_VPD:
	case PCI_CAP_ID_PCIX:
	case PCI_CAP_ID_SATA:
		return 8;
	case PCI_CAP_ID_MSI:
		return msi_length(get16(hw, at + PCI_MSI_FLAGS));
	case PCI_CAP_ID_VNDR:
		return hw[at + 2] < 4 ? 4 : hw[at + 2];
	case PCI_CAP_ID_EXP:
		return snapshot_express_length(hw, at);
	case PCI_CAP_ID_MSIX:
		return PCI_CAP_MSIX_SIZEOF;
	case PCI_CAP_ID_AF:
		return 6;
	default:
		return 4;
	}
}

/* The snapshot's list, up to where it ends or breaks. */
static unsigned int snapshot_find_capabilities(const u8 *hw, struct claims *claims,
					       struct found found[MOST_CAPABILITIES])
{
	unsigned int count = 0;
	u32 at;

	if (!(get16(hw, PCI_STATUS) & PCI_STATUS_CAP_LIST))
		return 0;
	for (at = hw[PCI_CAPABILITY_LIST] & ~3u; at >= FIRST_CAPABILITY; at = hw[at + 1] & ~3u) {
		u32 length = snapshot_capability_length(hw, at);

		if (!snapshot_claim(claims, at, length, STANDARD_BYTES))
			break;
		found[count].offset = (u16)at;
		found[count].id = hw[at];
		found[count].length = (u16)length;
		count++;
	}
	return count;
}

static bool snapshot_inside_bar(const struct pcilend_vconfig *config, u32 where, u64 bytes)
{
	u32 bar = where & PCI_MSIX_TABLE_BIR;
	u64 offset = where & PCI_MSIX_TABLE_OFFSET;

	return bar < ROM_BAR && offset + bytes <= config->bar[bar].size;
}

static bool snapshot_usable_msix(const struct pcilend_vconfig *config, const u8 *hw, u32 at)
{
	u32 vectors = (get16(hw, at + PCI_MSIX_FLAGS) & PCI_MSIX_FLAGS_QSIZE) + 1;

	return snapshot_inside_bar(config, get32(hw, at + PCI_MSIX_TABLE),
				   (u64)vectors * PCI_MSIX_ENTRY_SIZE) &&
	       snapshot_inside_bar(config, get32(hw, at + PCI_MSIX_PBA), (vectors + 63) / 64 * 8);
}

static bool snapshot_endpoint(const u8 *hw, u32 at)
{
	switch ((get16(hw, at + PCI_EXP_FLAGS) & PCI_EXP_FLAGS_TYPE) >> 4) {
	case PCI_EXP_TYPE_ENDPOINT:
	case PCI_EXP_TYPE_LEG_END:
	case PCI_EXP_TYPE_RC_END:
		return true;
	default:
		return false;
	}
}

static void snapshot_add_power(struct pcilend_vconfig *config, const u8 *hw, u32 at)
{
	const u16 pmc = get16(hw, at + PCI_PM_PMC);

	/* No wake-up events cross the NTB; D1 and D2 are not worth a forwarded state. */
	put16(config->value, at + PCI_PM_PMC, pmc & (PCI_PM_CAP_VER_MASK | PCI_PM_CAP_DSI));
	/* Nothing is forwarded, so nothing is lost on the way back to D0. */
	put16(config->value, at + PCI_PM_CTRL, PCI_PM_CTRL_NO_SOFT_RESET);
	put16(config->writable, at + PCI_PM_CTRL, PCI_PM_CTRL_STATE_MASK);
	config->power = (u16)at;
}

static void snapshot_add_msi(struct pcilend_vconfig *config, const u8 *hw, u32 at)
{
	u16 flags = get16(hw, at + PCI_MSI_FLAGS) &
		    (PCI_MSI_FLAGS_QMASK | PCI_MSI_FLAGS_64BIT | PCI_MSI_FLAGS_MASKBIT);
	bool wide = flags & PCI_MSI_FLAGS_64BIT;
	u32 log2_vectors = (flags & PCI_MSI_FLAGS_QMASK) >> 1;

	if (log2_vectors > 5) {
		log2_vectors = 5;
		flags = (flags & ~PCI_MSI_FLAGS_QMASK) | 5 << 1;
	}
	put16(config->value, at + PCI_MSI_FLAGS, flags);
	put16(config->writable, at + PCI_MSI_FLAGS, PCI_MSI_FLAGS_ENABLE | PCI_MSI_FLAGS_QSIZE);
	put32(config->writable, at + PCI_MSI_ADDRESS_LO, ~3u);
	if (wide)
		put32(config->writable, at + PCI_MSI_ADDRESS_HI, ~0u);
	put16(config->writable, at + (wide ? PCI_MSI_DATA_64 : PCI_MSI_DATA_32), 0xffff);
	if (flags & PCI_MSI_FLAGS_MASKBIT) {
		u32 pending = at + (wide ? PCI_MSI_PENDING_64 : PCI_MSI_PENDING_32);

		put32(config->writable, at + (wide ? PCI_MSI_MASK_64 : PCI_MSI_MASK_32),
		      (u32)((1ULL << (1u << log2_vectors)) - 1));
		snapshot_forward_bytes(config, pending, pending + 4);
	}
	config->msi = (u16)at;
}

static void snapshot_add_msix(struct pcilend_vconfig *config, const u8 *hw, u32 at)
{
	put16(config->value, at + PCI_MSIX_FLAGS,
	      get16(hw, at + PCI_MSIX_FLAGS) & PCI_MSIX_FLAGS_QSIZE);
	put32(config->value, at + PCI_MSIX_TABLE, get32(hw, at + PCI_MSIX_TABLE));
	put32(config->value, at + PCI_MSIX_PBA, get32(hw, at + PCI_MSIX_PBA));
	put16(config->writable, at + PCI_MSIX_FLAGS,
	      PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
	config->msix = (u16)at;
}

/*
 * The link stays under the lender's control: what software sets here changes nothing in the
 * hardware. Function level reset is always there: the lender has some way to reset what it lends.
 * Device Status reads 0: errors are handled, and pending transactions waited for, by the lender.
 */
static void snapshot_add_express(struct pcilend_vconfig *config, const u8 *hw, u32 at)
{
	const u32 length = snapshot_express_length(hw, at);
	const u16 flags = get16(hw, at + PCI_EXP_FLAGS);
	u32 devcap = get32(hw, at + PCI_EXP_DEVCAP) &
		     (PCI_EXP_DEVCAP_PAYLOAD | PCI_EXP_DEVCAP_EXT_TAG | PCI_EXP_DEVCAP_L0S |
		      PCI_EXP_DEVCAP_L1 | PCI_EXP_DEVCAP_RBER);
	u16 devctl = PCI_EXP_DEVCTL_CERE | PCI_EXP_DEVCTL_NFERE | PCI_EXP_DEVCTL_FERE |
		     PCI_EXP_DEVCTL_URRE | PCI_EXP_DEVCTL_RELAX_EN | PCI_EXP_DEVCTL_PAYLOAD |
		     PCI_EXP_DEVCTL_NOSNOOP_EN | PCI_EXP_DEVCTL_READRQ;

	if (devcap & PCI_EXP_DEVCAP_EXT_TAG)
		devctl |= PCI_EXP_DEVCTL_EXT_TAG;
	put16(config->value, at + PCI_EXP_FLAGS,
	      (length == EXPRESS_V2_BYTES ? 2 : 1) | (flags & PCI_EXP_FLAGS_TYPE));
	put32(config->value, at + PCI_EXP_DEVCAP, devcap | PCI_EXP_DEVCAP_FLR);
	put16(config->writable, at + PCI_EXP_DEVCTL, devctl);
	config->express = (u16)at;
	if (length == EXPRESS_V1_NO_LINK_BYTES)
		return;
	put32(config->value, at + PCI_EXP_LNKCAP, get32(hw, at + PCI_EXP_LNKCAP) &
	      (PCI_EXP_LNKCAP_SLS | PCI_EXP_LNKCAP_MLW | PCI_EXP_LNKCAP_L0SEL |
	       PCI_EXP_LNKCAP_L1EL));
	put16(config->writable, at + PCI_EXP_LNKCTL,
	      PCI_EXP_LNKCTL_RCB | PCI_EXP_LNKCTL_CCC | PCI_EXP_LNKCTL_ES);
	put16(config->value, at + PCI_EXP_LNKSTA, get16(hw, at + PCI_EXP_LNKSTA) &
	      (PCI_EXP_LNKSTA_CLS | PCI_EXP_LNKSTA_NLW | PCI_EXP_LNKSTA_SLC));
	if (length == EXPRESS_V1_BYTES)
		return;
	put32(config->value, at + PCI_EXP_DEVCAP2,
	      get32(hw, at + PCI_EXP_DEVCAP2) & DEVCAP2_KEPT);
	put16(config->writable, at + PCI_EXP_DEVCTL2, DEVCTL2_KEPT);
	put32(config->value, at + PCI_EXP_LNKCAP2,
	      get32(hw, at + PCI_EXP_LNKCAP2) & LNKCAP2_SPEEDS);
	put16(config->value, at + PCI_EXP_LNKCTL2,
	      get16(hw, at + PCI_EXP_LNKCTL2) & PCI_EXP_LNKCTL2_TLS);
}

/* Conventional PCI Advanced Capabilities ECN, §6.x.1. */
static void snapshot_add_advanced(struct pcilend_vconfig *config, const u8 *hw, u32 at)
{
	config->value[at + PCI_AF_LENGTH] = 6;
	config->value[at + PCI_AF_CAP] = hw[at + PCI_AF_CAP] & (PCI_AF_CAP_TP | PCI_AF_CAP_FLR);
	config->advanced = (u16)at;
}

/* What it means only its driver and the hardware know. */
static void snapshot_add_vendor(struct pcilend_vconfig *config, const u8 *hw,
				const struct found *found)
{
	u32 at = found->offset;

	memcpy(config->value + at + 2, hw + at + 2, found->length - 2);
	snapshot_forward_bytes(config, at + 4, at + snapshot_round_up4(found->length));
}

/* Copies a capability's body if it is one to show, the first of its kind. */
static bool snapshot_add_capability(struct pcilend_vconfig *config, const u8 *hw,
				    const struct found *found, bool msix)
{
	u32 at = found->offset;

	switch (found->id) {
	case PCI_CAP_ID_PM:
		if (config->power)
			return false;
		snapshot_add_power(config, hw, at);
		return true;
	case PCI_CAP_ID_MSI:
		/* Messages of MSI-X are written by the function itself; these need the lender. */
		if (config->msi || msix)
			return false;
		snapshot_add_msi(config, hw, at);
		return true;
	case PCI_CAP_ID_MSIX:
		if (config->msix || !snapshot_usable_msix(config, hw, at))
			return false;
		snapshot_add_msix(config, hw, at);
		return true;
	case PCI_CAP_ID_EXP:
		if (config->express || !snapshot_endpoint(hw, at))
			return false;
		snapshot_add_express(config, hw, at);
		return true;
	case PCI_CAP_ID_AF:
		if (config->advanced)
			return false;
		snapshot_add_advanced(config, hw, at);
		return true;
	case PCI_CAP_ID_VNDR:
		snapshot_add_vendor(config, hw, found);
		return true;
	default:
		return false;
	}
}

static void snapshot_set_capabilities(struct pcilend_vconfig *config, const u8 *hw)
{
	struct found found[MOST_CAPABILITIES];
	struct claims claims = { { 0 } };
	unsigned int count = snapshot_find_capabilities(hw, &claims, found);
	u32 tail = PCI_CAPABILITY_LIST;
	bool msix = false;
	unsigned int i;
	u32 at;

	/* Device-specific registers outside capabilities: as they were, read-only. */
	for (at = FIRST_CAPABILITY; at < STANDARD_BYTES; at += 4) {
		if (!snapshot_claimed(&claims, at))
			memcpy(config->value + at, hw + at, 4);
	}
	for (i = 0; i < count; i++)
		msix |= found[i].id == PCI_CAP_ID_MSIX &&
			snapshot_usable_msix(config, hw, found[i].offset);
	for (i = 0; i < count; i++) {
		if (!snapshot_add_capability(config, hw, &found[i], msix))
			continue;
		config->value[found[i].offset] = (u8)found[i].id;
		config->value[tail] = (u8)found[i].offset;
		tail = found[i].offset + 1u;
	}
	if (tail != PCI_CAPABILITY_LIST)
		config->value[PCI_STATUS] |= PCI_STATUS_CAP_LIST;
}

/* Bytes of an extended capability that is to be shown, else 4. */
static u32 snapshot_extended_length(const u8 *hw, u32 at)
{
	u32 length;

	switch (PCI_EXT_CAP_ID(get32(hw, at))) {
	case PCI_EXT_CAP_ID_DSN:
		return SERIAL_BYTES;
	case PCI_EXT_CAP_ID_VNDR:
		if (at + 8 > PCILEND_VCONFIG_BYTES)
			return 4;
		length = PCI_VNDR_HEADER_LEN(get32(hw, at + PCI_VNDR_HEADER));
		return length < 8 ? 4 : length;
	default:
		return 4;
	}
}

/* Serial number and vendor-specific capabilities; §7.6.3 for the list's form. */
static void snapshot_set_extended(struct pcilend_vconfig *config, const u8 *hw)
{
	struct claims claims = { { 0 } };
	u32 tail = FIRST_EXTENDED;
	u32 at = FIRST_EXTENDED;

	while (at >= FIRST_EXTENDED) {
		u32 header = get32(hw, at);
		u32 length = snapshot_extended_length(hw, at);

		if (!header || header == ~0u ||
		    !snapshot_claim(&claims, at, length, PCILEND_VCONFIG_BYTES))
			break;
		if (length > 4) {
			/* A list whose head is hidden begins with a null capability. */
			if (at != tail)
				put32(config->value, tail, get32(config->value, tail) | at << 20);
			memcpy(config->value + at, hw + at, length);
			put32(config->value, at, header & 0xfffff);
			if (PCI_EXT_CAP_ID(header) == PCI_EXT_CAP_ID_VNDR)
				snapshot_forward_bytes(config, at + 8,
						       at + snapshot_round_up4(length));
			tail = at;
		}
		at = PCI_EXT_CAP_NEXT(header);
	}
}

int pcilend_vconfig_init(struct pcilend_vconfig *config, const u8 *hw, size_t length,
			 const struct pcilend_vconfig_bar bar[7])
{
	if (length != STANDARD_BYTES && length != PCILEND_VCONFIG_BYTES)
		return -EINVAL;
	if (get16(hw, PCI_VENDOR_ID) == 0xffff || (hw[PCI_HEADER_TYPE] & 0x7f) != 0)
		return -EINVAL;
	memset(config, 0, sizeof(*config));
	snapshot_set_header(config, hw);
	snapshot_set_bars(config, bar);
	snapshot_set_capabilities(config, hw);
	if (config->express && length == PCILEND_VCONFIG_BYTES)
		snapshot_set_extended(config, hw);
	pcilend_vconfig_reset(config);
	return 0;
}
