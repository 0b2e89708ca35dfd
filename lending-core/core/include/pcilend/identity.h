/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Names of functions: the fabric-wide id, and the UUID that stays the same on every borrower and
 * over reboots, so that a VM's XML can name a function.
 */
#ifndef PCILEND_IDENTITY_H
#define PCILEND_IDENTITY_H

#include "pcilend/platform.h"

__BEGIN_DECLS

/* Function id: node << 16 | index, each 1 to 65535; text is lower-case hex: "40001". */
#define PCILEND_NODE_MAX 65535u
#define PCILEND_ID_TEXT_BYTES 9 /* with the NUL */

static inline u32 pcilend_id(u16 node, u16 index)
{
	return (u32)node << 16 | index;
}

static inline u16 pcilend_id_node(u32 id)
{
	return (u16)(id >> 16);
}

static inline u16 pcilend_id_index(u32 id)
{
	return (u16)(id & 0xffff);
}

static inline bool pcilend_id_valid(u32 id)
{
	return pcilend_id_node(id) != 0 && pcilend_id_index(id) != 0;
}

/* Writes the text of @id, returns @text. */
char *pcilend_id_format(u32 id, char text[PCILEND_ID_TEXT_BYTES]);

/*
 * Takes exactly what pcilend_id_format() makes of a valid id (lower case, no prefix, no leading
 * zeros, nothing behind). Returns 0, or -EINVAL with *id untouched.
 */
int pcilend_id_parse(const char *text, u32 *id);

/* Where functions that are borrowed are, in PCI domains that no firmware uses. */
#define PCILEND_PCI_DOMAIN_FIRST 0x8000u
#define PCILEND_PCI_NODE_MAX 0x7fffu
#define PCILEND_PCI_INDEX_MAX 0xffu

/*
 * Where a function is on each borrower that has it: domain 8000 + node, bus = index, and 00.0
 * there; 40001 is 8004:01:00.0. VMMs and management stacks take domains of 16 bits only.
 * Return: true; false if its node or index is too high for that.
 */
bool pcilend_pci_place(u32 id, u32 *domain, u8 *bus);

/* What a function is recognised by. */
struct pcilend_identity {
	u16 vendor;
	u16 device;
	u16 subsystem_vendor;
	u16 subsystem_device;
	u32 class_code;		/* 24 bits: base class, subclass, interface; no revision */
	u32 lender;		/* node id */
	u64 serial;		/* PCIe device serial number (extended capability 3), 0: none */
	/*
	 * Which function of the device that the serial number names: PCI_FUNC(devfn), with ARI
	 * all of devfn, and for a virtual function 256 + its index in its physical function.
	 */
	u16 function;
	/* Place on the lender; counts only without a serial number. */
	u16 segment;
	u8 bus;
	u8 devfn;
};

/*
 * UUID of a function, in the byte order of its text (kernel uuid_t, RFC 9562 §4). Version 8
 * (RFC 9562 §5.8); bytes 0 to 3 are "pcld", the other 90 bits a hash of the identity.
 */
void pcilend_uuid_make(u8 uuid[16], const struct pcilend_identity *identity);

/* True for UUIDs that pcilend_uuid_make() can have made. */
bool pcilend_uuid_is_ours(const u8 uuid[16]);

#define PCILEND_UUID_TEXT_BYTES 37 /* 8-4-4-4-12 and the NUL */

/* Writes lower-case text, returns @text. */
char *pcilend_uuid_format(const u8 uuid[16], char text[PCILEND_UUID_TEXT_BYTES]);

/* Takes 36 characters of either case and nothing more: 0, or -EINVAL with @uuid untouched. */
int pcilend_uuid_parse(const char *text, u8 uuid[16]);

/* SipHash-2-4 with 128-bit output (Aumasson, Bernstein 2012, and their reference's doubling). */
void pcilend_siphash128(const u8 key[16], const void *data, size_t length, u8 hash[16]);

__END_DECLS

#endif /* PCILEND_IDENTITY_H */
