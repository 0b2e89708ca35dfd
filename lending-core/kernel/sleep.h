/* SPDX-License-Identifier: GPL-2.0-only */
/* Keeps this host from going to sleep while it lends or borrows. */
#ifndef PCILEND_SLEEP_H
#define PCILEND_SLEEP_H

int pcilend_sleep_init(void);
void pcilend_sleep_exit(void);

#endif /* PCILEND_SLEEP_H */
