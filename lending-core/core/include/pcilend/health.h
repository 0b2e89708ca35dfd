/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a function's registers must say after a reset, for classes that define it. The caller
 * reads them; it is told whether the function is ready, needs time, or is broken.
 */
#ifndef PCILEND_HEALTH_H
#define PCILEND_HEALTH_H

#include "pcilend/platform.h"

__BEGIN_DECLS

/* NVMe controllers; registers in BAR 0 (NVM Express Base 2.0, 3.1.4). */
#define PCILEND_NVME_CLASS 0x010802u
#define PCILEND_NVME_CAP 0x00		/* 64 bits */
#define PCILEND_NVME_CSTS 0x1c		/* 32 bits */
#define PCILEND_NVME_BYTES 0x20

enum pcilend_health {
	PCILEND_HEALTH_READY = 0,
	PCILEND_HEALTH_WAIT = 1,	/* look again */
	PCILEND_HEALTH_BROKEN = 2,
};

/**
 * pcilend_health_nvme - is a controller that was just reset as a reset leaves it?
 * @why: set to a constant sentence unless it is ready: what it is to be quarantined with if it is
 *	broken, or stays as it is
 */
enum pcilend_health pcilend_health_nvme(u64 cap, u32 csts, const char **why);

/* How long a controller may take, in ms: what it says itself, at most 5 s. */
u32 pcilend_health_nvme_ms(u64 cap);

__END_DECLS

#endif /* PCILEND_HEALTH_H */
