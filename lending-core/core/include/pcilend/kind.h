/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Kinds of functions: what an administrator of a borrower says of those that he means, for devices
 * that are "one of the kind". As text, which people write and sysfs shows:
 *
 *	fast device=144d::0108 label=rack 7
 *	nic3 function=4000a
 *
 * A name, then what must be so, each at most once: `device` as lspci's -d has it, `function` an id
 * of `pcilend list`, and last, since it may have spaces, `label`.
 */
#ifndef PCILEND_KIND_H
#define PCILEND_KIND_H

#include "pcilend/platform.h"
#include "pcilend/wire.h"

__BEGIN_DECLS

#define PCILEND_KIND_NAME_BYTES 32 /* with the NUL */
/* The longest text: name, and each part in full. */
#define PCILEND_KIND_TEXT_BYTES 192

struct pcilend_kind {
	char name[PCILEND_KIND_NAME_BYTES]; /* lower-case letters, digits, '-' in between */
	u32 id;				/* 0: of any function */
	u16 vendor, vendor_mask;	/* a mask is 0 where anything will do, as all below */
	u16 device, device_mask;
	u32 class_code, class_mask;	/* base class, subclass, interface: 24 bits */
	u8 label[PCILEND_LABEL_BYTES];	/* empty: any */
};

/* A PCI base class. For each of these there is always a kind, of that name. */
struct pcilend_kind_class {
	u8 base_class;
	const char *name;
	const char *pretty_name;
};

/* Their order decides the addresses of the kinds. */
#define PCILEND_KIND_CLASSES 16
extern const struct pcilend_kind_class pcilend_kind_classes[PCILEND_KIND_CLASSES];

/* Is it the name of a type that is always there: of one of the classes, or of functions? */
bool pcilend_kind_is_reserved(const char *name);

/*
 * Return: 0; -EINVAL with *why set to a constant sentence, and *kind undefined. @text has no
 * newline in or behind it.
 */
int pcilend_kind_parse(const char *text, struct pcilend_kind *kind, const char **why);

/* Writes what pcilend_kind_parse() makes the same of. Return: bytes without the NUL. */
int pcilend_kind_format(const struct pcilend_kind *kind, char text[PCILEND_KIND_TEXT_BYTES]);

/* Is a function that a lender describes so of that kind? Its state does not count. */
bool pcilend_kind_has(const struct pcilend_kind *kind, const struct pcilend_msg_function *info);

__END_DECLS

#endif /* PCILEND_KIND_H */
