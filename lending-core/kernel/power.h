/* SPDX-License-Identifier: GPL-2.0-only */
/* Sleep, reboot and power-off of this host while it lends or borrows. */
#ifndef PCILEND_POWER_H
#define PCILEND_POWER_H

int pcilend_power_init(void);
void pcilend_power_exit(void);

#endif /* PCILEND_POWER_H */
