// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Bus mastering of lent functions; see mastering.h. */

#include "pcilend/mastering.h"

bool pcilend_carrier_lose(enum pcilend_carrier *carrier)
{
	bool carried = *carrier == PCILEND_CARRIER_CARRIES;

	*carrier = PCILEND_CARRIER_LOST;
	return carried;
}

bool pcilend_carrier_take_lost(enum pcilend_carrier *carrier)
{
	if (*carrier != PCILEND_CARRIER_LOST)
		return false;
	*carrier = PCILEND_CARRIER_MEETING;
	return true;
}

bool pcilend_carrier_met(enum pcilend_carrier *carrier)
{
	if (*carrier == PCILEND_CARRIER_MEETING)
		*carrier = PCILEND_CARRIER_CARRIES;
	return *carrier == PCILEND_CARRIER_CARRIES;
}

static u32 mastering_go_on(struct pcilend_mastering *m, bool carries)
{
	if (!carries || m->cut) {
		m->state = PCILEND_MASTERING_WAITING;
		return 0;
	}
	m->state = PCILEND_MASTERING_ON;
	return PCILEND_MASTERING_SWITCH_ON;
}

static u32 mastering_want(struct pcilend_mastering *m, bool carries)
{
	switch (m->state) {
	case PCILEND_MASTERING_OFF:
	case PCILEND_MASTERING_WAITING:
	case PCILEND_MASTERING_RESET:
		return mastering_go_on(m, carries);
	default:
		return 0;
	}
}

static u32 mastering_dont_want(struct pcilend_mastering *m)
{
	if (m->state == PCILEND_MASTERING_ON || m->state == PCILEND_MASTERING_WAITING)
		m->state = PCILEND_MASTERING_OFF;
	/* A fence relies on it, whatever the hardware was found to be. */
	return PCILEND_MASTERING_SWITCH_OFF;
}

static u32 mastering_stop(struct pcilend_mastering *m)
{
	if (m->state != PCILEND_MASTERING_ON)
		return 0;
	m->state = PCILEND_MASTERING_STALE;
	return PCILEND_MASTERING_SWITCH_OFF;
}

/* It may have become possible: nothing is cut any more, or the link carries again. */
static u32 mastering_retry(struct pcilend_mastering *m, bool carries)
{
	if (m->state == PCILEND_MASTERING_WAITING)
		return mastering_go_on(m, carries);
	return m->state == PCILEND_MASTERING_STALE && carries ? PCILEND_MASTERING_RECOVER : 0;
}

u32 pcilend_mastering_step(struct pcilend_mastering *m, enum pcilend_mastering_event event,
			   bool carries)
{
	switch (event) {
	case PCILEND_MASTERING_WANT:
		return mastering_want(m, carries);
	case PCILEND_MASTERING_DONT_WANT:
		return mastering_dont_want(m);
	case PCILEND_MASTERING_LOST:
		return mastering_stop(m);
	case PCILEND_MASTERING_CUT:
		m->cut = true;
		return mastering_stop(m) | PCILEND_MASTERING_RECOVER;
	case PCILEND_MASTERING_UNMAP:
		m->cut = false;
		return 0;
	case PCILEND_MASTERING_RESUME:
		return m->state == PCILEND_MASTERING_RESET ? PCILEND_MASTERING_TELL :
			mastering_retry(m, carries);
	case PCILEND_MASTERING_RETRY:
		return mastering_retry(m, carries);
	case PCILEND_MASTERING_FOREIGN:
		m->state = PCILEND_MASTERING_STALE;
		return PCILEND_MASTERING_SWITCH_OFF;
	case PCILEND_MASTERING_RECOVERED:
		if (m->state != PCILEND_MASTERING_STALE)
			return 0;
		m->state = PCILEND_MASTERING_RESET;
		return PCILEND_MASTERING_TELL;
	case PCILEND_MASTERING_ENDED:
		m->state = PCILEND_MASTERING_OFF;
		return 0;
	}
	return 0;
}
