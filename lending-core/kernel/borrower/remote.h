/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The borrower: functions that lenders offer to this host. What netlink/ asks of it, and what link/
 * does; pcilend/pcilend.h has what frontends ask. borrower.h is for the files of the borrower.
 *
 * Process context, may sleep; what goes to a lender for up to PCILEND_REQUEST_MS. The caller holds
 * no lock. Return of what can fail: 0, or a negative errno with @extack set.
 */
#ifndef PCILEND_REMOTE_H
#define PCILEND_REMOTE_H

#include "link/link.h"
#include "pcilend/pcilend.h"

struct pcilend_joined;
struct pcilend_share_wish;

/* borrower.c */
/* For pcilend_links_register(). */
extern const struct pcilend_borrower_ops pcilend_borrower_link_ops;
/* @is_local: is the UUID that of a function of this host? May sleep. */
int pcilend_borrower_init(bool (*is_local)(const u8 uuid[16]));
void pcilend_borrower_exit(void);

/* remote.c */
struct pcilend_remote *pcilend_remote_get(u32 id);
void pcilend_remote_put(struct pcilend_remote *remote);
bool pcilend_remote_next(u32 after, struct pcilend_report *report);
void pcilend_remote_report(struct pcilend_remote *remote, struct pcilend_report *report);

/*
 * return.c: as pcilend_return(), but it waits for nobody without limit. -EBUSY, with nothing done
 * or, as @extack says, the function to be returned when its user lets go; -EPERM: see there;
 * -ETIMEDOUT, -ENETDOWN: its lender has not confirmed it; -EINTR.
 */
int pcilend_remote_return(struct pcilend_remote *remote, const char *owner,
			  struct netlink_ext_ack *extack);

/* iommu.c: has a VMM, or another user of VFIO, the function? Also after the end of the lease. */
bool pcilend_remote_in_use(struct pcilend_remote *remote);

/* reserve.c */
int pcilend_borrower_reserve(const struct pcilend_msg_reserve *msg,
			     struct netlink_ext_ack *extack);

/* reach.c: peer-to-peer */
int pcilend_reach(struct pcilend_remote *from, u32 to_id, bool on, struct netlink_ext_ack *extack);

/* remote_client.c */
int pcilend_remote_join(struct pcilend_remote *remote, const char *owner, const char *adapter,
			const struct pcilend_share_wish *wish, struct file **file,
			struct pcilend_joined *joined, struct netlink_ext_ack *extack);

/* remote_lease.c */
int pcilend_remote_lease(struct pcilend_remote *remote, const char *owner, const char *adapter,
			 u64 bytes, struct file **file, struct netlink_ext_ack *extack);

/* frontend.c */
struct pcilend_frontend *pcilend_frontend_get(const char *name);
void pcilend_frontend_put(struct pcilend_frontend *frontend);

#endif /* PCILEND_REMOTE_H */
