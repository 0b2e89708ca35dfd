// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Registers after a reset; see health.h. */

#include "pcilend/health.h"

#define POWER_CYCLE "power the slot or the host off and on"
#define LONGEST_MS 5000u
#define CSTS_READY 0x1u
#define CSTS_FATAL 0x2u

static bool health_sane(u64 cap)
{
	u32 entries = cap & 0xffff;		/* MQES, from 0: two at least */
	u32 least = cap >> 48 & 0xf;		/* MPSMIN */
	u32 most = cap >> 52 & 0xf;		/* MPSMAX */

	return entries && least <= most;
}

enum pcilend_health pcilend_health_nvme(u64 cap, u32 csts, const char **why)
{
	if (cap == U64_MAX || csts == U32_MAX) {
		*why = "its NVMe registers read all-ones after its reset: " POWER_CYCLE;
		return PCILEND_HEALTH_BROKEN;
	}
	if (!health_sane(cap)) {
		*why = "its NVMe capabilities make no sense after its reset: " POWER_CYCLE;
		return PCILEND_HEALTH_BROKEN;
	}
	if (csts & CSTS_FATAL) {
		*why = "it reports a fatal NVMe error (CSTS.CFS) after its reset: " POWER_CYCLE;
		return PCILEND_HEALTH_BROKEN;
	}
	if (csts & CSTS_READY) {
		*why = "it is still enabled (CSTS.RDY) after its reset: " POWER_CYCLE;
		return PCILEND_HEALTH_WAIT;
	}
	return PCILEND_HEALTH_READY;
}

u32 pcilend_health_nvme_ms(u64 cap)
{
	u32 ms = (u32)(cap >> 24 & 0xff) * 500;	/* TO, in 500 ms */

	return ms < LONGEST_MS ? ms : LONGEST_MS;
}
